r"""Claims: what the sources state, and the verdict a page computes for each.

``book/claims.yml`` lists every claim once, with the verdict that is expected::

    - id: thesis:3.17
      source: thesis
      title: Smooth bound of DP-LSL
      statement: The quantity $\psi_X$ bounds the local sensitivity and is smooth.
      expected: false as printed
      severity: constant
      page: 3-policy-evaluation/dp-lsl

Only a statement that is false or lacks a condition has a *severity* (:data:`SEVERITIES`), so
that a doubled logarithm does not look like a broken theorem. A page hands over what it computed
as booleans, with the numbers that are its evidence::

    claims.check("thesis:3.17", printed=False, corrected=True, worst_ratio=ratio)

The verdict is derived, never typed. One that differs from the expected verdict raises
:class:`ClaimMismatch`, so the page fails, and with it the build. Outside the build, where a reader
tries other values, the badge says both, and that nothing follows where a corrected version fails.

==========================  =============================================
verdict                     what was computed
==========================  =============================================
holds                       ``printed`` is true
holds with conditions       ``printed`` is false, ``under_conditions`` is true
false as printed            ``printed`` is false, ``corrected`` is true
reproduced                  ``reproduced`` is true
reproduced with deviations  ``reproduced`` is false, ``with_deviations`` is true
not reproduced              ``reproduced`` is false, ``with_deviations`` is not true
not checkable               no computation can decide it, see :func:`not_checkable`
==========================  =============================================

An experiment that is smaller than its source's says by how much, in ``scale=``; its verdict then
reads *not reproduced at this scale*. Each check is added to ``claims.json`` in the staging folder
of the execution; the scorecard is made from these files.
"""

from __future__ import annotations

import functools
import html
import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from . import outcomes
from ._jupyter import in_jupyter, publish
from ._numbers import plain, significant
from .files import Run, current_run, source_path, write_atomic

VERDICTS = (
    "holds",
    "holds with conditions",
    "false as printed",
    "reproduced",
    "reproduced with deviations",
    "not reproduced",
    "not checkable",
)
#: Instead of a verdict, with a reader's own values: what was computed fits none, as when neither
#: the printed statement holds nor what the book puts in its place.
UNDECIDED = "undecided"
#: Arguments of :func:`check` that say what was found; all others are evidence.
OUTCOMES = ("printed", "under_conditions", "corrected", "reproduced", "with_deviations")
SOURCES = ("thesis", "balle", "xie", "poster", "lecture")

#: A claim's id: the source, a colon, and lower-case words or numbers joined by ``.`` or ``-``.
ID_PATTERN = re.compile(rf"(?:{'|'.join(SOURCES)}):[a-z0-9]+(?:[.-][a-z0-9]+)*")
#: A page: its path below ``notebooks``, without the suffix.
PAGE_PATTERN = re.compile(r"[a-z0-9][a-z0-9-]*(?:/[a-z0-9][a-z0-9-]*)*")

#: How much a fault matters, least first: what is misprinted, a wrong constant in a statement
#: that otherwise holds, a condition that was left out, or a statement whose conclusion falls.
SEVERITIES = ("misprint", "constant", "condition", "breaks the conclusion")
#: Verdicts that say something against the printed text: each has a severity.
FAULTS = ("holds with conditions", "false as printed")

_FIELDS = ("id", "source", "title", "statement", "expected", "page")
#: The class of a verdict in the site's style sheet.
STYLES = {
    "holds": "verdict-holds",
    "holds with conditions": "verdict-conditions",
    "false as printed": "verdict-false",
    "reproduced": "verdict-reproduced",
    "reproduced with deviations": "verdict-deviations",
    "not reproduced": "verdict-not",
    "not checkable": "verdict-unchecked",
    UNDECIDED: "verdict-unchecked",
}
_LONGEST_TITLE, _LONGEST_STRING, _LONGEST_SCALE = 90, 80, 120

Number = bool | int | float | str


class ClaimError(ValueError):
    """A claim, or its check, does not say what it must."""


class _UndecidedError(ClaimError):
    """What was computed fits no verdict, as when a correction fails too."""


class ClaimMismatch(AssertionError):
    """What was computed differs from the expected verdict, or from a sentence of the page."""


@dataclass(frozen=True)
class Claim:
    """One claim of ``book/claims.yml``; see the module for the fields."""

    id: str
    source: str
    title: str
    statement: str
    expected: str
    page: str
    severity: str = ""


@dataclass
class Badge:
    """A checked claim, shown as one line: verdict, id, numbers.

    In Jupyter it shows itself once, when it is made, wherever in a cell that is. ``numbers`` is
    the evidence, as plain Python values. ``reason``, ``severity`` and ``scale`` say why nothing
    could be computed, how much the fault matters, and how much smaller the experiment is than its
    source's; they are empty where that does not apply. ``expected`` is the verdict of the book,
    where a reader's own values lead to another.
    """

    id: str
    verdict: str
    numbers: dict[str, Number]
    reason: str = ""
    severity: str = ""
    scale: str = ""
    expected: str = ""
    _shown: bool = field(default=False, repr=False, compare=False)

    def _repr_html_(self) -> str:
        evidence = html.escape(evidence_text(self.numbers, self.reason, self.scale))
        shown = verdict_html(self.verdict, self.severity, self.scale)
        if self.expected:
            shown += f" (with the book's values: {html.escape(self.expected)})"
        return (
            f'<details class="claim-badge" id="{anchor(self.id)}"><summary>{shown} '
            f'<code class="claim-id">{self.id}</code></summary>'
            f'<span class="claim-numbers">{evidence}</span></details>'
        )

    def _repr_markdown_(self) -> str:
        # The target makes the badge a checked cross reference: {ref}`text <claim-...>`.
        return f"({anchor(self.id)})=\n\n{self}"

    def _repr_mimebundle_(self, **_: object) -> dict[str, str]:
        kinds = {"plain": str(self), "html": self._repr_html_(), "markdown": self._repr_markdown_()}
        return {f"text/{kind}": text for kind, text in kinds.items()}

    def _ipython_display_(self) -> None:
        if not self._shown:  # else it was the last expression of its cell as well
            self._shown = True
            publish(self._repr_mimebundle_())

    def __str__(self) -> str:
        evidence = evidence_text(self.numbers, self.reason, self.scale)
        verdict = verdict_text(self.verdict, self.severity, self.scale)
        if self.expected:
            verdict += f" (with the book's values: {self.expected})"
        return f"{verdict}: {self.id}" + (f" ({evidence})" if evidence else "")


# -- the list ---------------------------------------------------------------------------


def load(path: str | Path, root: str | Path | None = None) -> dict[str, Claim]:
    """Read and validate a list of claims, see the module, in the order of the YAML file.

    With ``root``, the repository, every page must exist as ``notebooks/<page>.md``.

    Raises
    ------
    ClaimError
        If anything in the file is missing, unknown, repeated or malformed.
    """
    import yaml

    path = Path(path)
    if not path.is_file():
        raise ClaimError(f"{path} does not exist: it must list the claims")
    try:
        entries = yaml.safe_load(path.read_text(encoding="utf-8"))
    except yaml.YAMLError as error:
        raise ClaimError(f"{path} is not valid YAML: {error}") from error
    if not isinstance(entries, list):
        raise ClaimError(f"{path} must hold a list of claims, got {type(entries).__name__}")
    claims: dict[str, Claim] = {}
    anchors: dict[str, str] = {}
    for position, entry in enumerate(entries, start=1):
        where = f"{path.name}, claim {position}"
        claim = _parse(entry, where)
        _require(claim.id not in claims, where, f"{claim.id} is listed twice")
        other = anchors.setdefault(anchor(claim.id), claim.id)
        shared = f"{claim.id} and {other} share the anchor {anchor(claim.id)}"
        _require(other == claim.id, where, shared)
        found = root is None or source_path(Path(root), claim.page).is_file()
        missing = f"page notebooks/{claim.page}.md does not exist"
        _require(found, f"{where} ({claim.id})", missing)
        claims[claim.id] = claim
    return claims


def _parse(entry: object, where: str) -> Claim:
    if not isinstance(entry, dict):
        raise ClaimError(f"{where}: expected the fields {', '.join(_FIELDS)}, got {entry!r}")
    if isinstance(entry.get("id"), str):
        where = f"{where} ({entry['id']})"
    known = (*_FIELDS, "severity")
    unknown = ", ".join(sorted(str(key) for key in entry if key not in known))
    _require(not unknown, where, f"unknown field {unknown}; known: {', '.join(known)}")
    missing = ", ".join(name for name in _FIELDS if name not in entry)
    _require(not missing, where, f"missing field {missing}")
    for name, value in entry.items():
        text = isinstance(value, str) and value.strip()
        _require(text, where, f"{name} must be a non-empty text, got {value!r}")
    claim = Claim(**{name: value.strip() for name, value in entry.items()})
    source, verdict = claim.source, claim.expected
    known_source = f"source must be one of {', '.join(SOURCES)}, got {source!r}"
    _require(source in SOURCES, where, known_source)
    _require(
        ID_PATTERN.fullmatch(claim.id),
        where,
        "id must look like thesis:3.17 or xie:lemma-1 (a source, a colon, "
        f"lower-case words or numbers joined by . or -), got {claim.id!r}",
    )
    same_source = claim.id.startswith(f"{source}:")
    _require(same_source, where, f"id and source disagree, source is {source!r}")
    known_verdict = f"unknown verdict {verdict!r}, expected one of {'; '.join(VERDICTS)}"
    _require(verdict in VERDICTS, where, known_verdict)
    _require(
        claim.severity in (SEVERITIES if verdict in FAULTS else ("",)),
        where,
        f"what is {' or '.join(FAULTS)}, and nothing else, has a severity, one of "
        f"{', '.join(SEVERITIES)}; got {claim.severity!r}",
    )
    _require(
        PAGE_PATTERN.fullmatch(claim.page),
        where,
        "page must look like 3-policy-evaluation/dp-lsw (below notebooks, without suffix), "
        f"got {claim.page!r}",
    )
    one_line = len(claim.title) <= _LONGEST_TITLE and "\n" not in claim.title
    longest = f"title must be one line of at most {_LONGEST_TITLE} characters"
    _require(one_line, where, longest)
    return claim


# -- checking ---------------------------------------------------------------------------


def check(
    claim_id: str,
    /,
    *,
    printed: bool | np.bool_ | None = None,
    under_conditions: bool | np.bool_ | None = None,
    corrected: bool | np.bool_ | None = None,
    reproduced: bool | np.bool_ | None = None,
    with_deviations: bool | np.bool_ | None = None,
    scale: str = "",
    **numbers: object,
) -> Badge:
    """Derive a claim's verdict from what was computed, compare it, and record it.

    Parameters
    ----------
    claim_id : str
        A claim of ``book/claims.yml`` that belongs to the page being executed.
    printed, under_conditions, corrected : bool, optional
        Statements: does it hold exactly as its source prints it, once the conditions that the
        page names are added, in the page's corrected version?
    reproduced, with_deviations : bool, optional
        Outcomes (figures, tables, experimental sentences): did it come out as stated, apart
        from the deviations that the page lists?
    scale : str, optional
        Outcomes: how much smaller this experiment is than its source's, in a few words with
        numbers, for example ``"BCQ 3,000 of 1,000,000 updates"``.
    **numbers
        The evidence, at least one number: bool, int, float or a short text each.

    Raises
    ------
    ClaimError
        If the claim is unknown, belongs to another page or was checked before, if the
        booleans do not determine a verdict, or if the evidence is not made of numbers.
    ClaimMismatch
        If the verdict differs from the expected one.
    """
    values = (printed, under_conditions, corrected, reproduced, with_deviations)
    outcome = dict(zip(OUTCOMES, values, strict=True))
    run = current_run()
    claim = _find(claim_id, run)
    found = {name: _as_bool(name, v) for name, v in outcome.items()}
    try:
        verdict = _derive(claim_id, found)
    except _UndecidedError:
        if not run.exploring:
            raise
        verdict = UNDECIDED
    _check_scale(claim_id, scale, is_outcome=reproduced is not None)
    return _record(claim, verdict, _as_numbers(claim_id, numbers), "", run, scale)


def bear_out(sentence: str, found: object, /) -> None:
    """Stop the build if a sentence of the page is not borne out by what was computed.

    For what the text says about an outcome and no claim covers; outside the build, where a reader
    tries other values, the sentence is shown as one that does not hold.

    Raises
    ------
    ClaimMismatch
        In the build, if ``found`` is false.
    """
    holds = _as_bool(sentence, found)
    if not holds and not current_run().exploring:
        raise ClaimMismatch(f"the page says {sentence!r}; what it computed does not")
    outcomes.show_unless(holds, sentence)


def not_checkable(claim_id: str, /, reason: str) -> Badge:
    """Record that no computation can decide a claim, as :func:`check` records a verdict.

    The reason says what is missing, in one sentence for the reader; an empty one is an error.
    """
    run = current_run()
    claim = _find(claim_id, run)
    if not isinstance(reason, str) or not reason.strip():
        raise ClaimError(f"{claim_id}: say why it is not checkable, got {reason!r}")
    return _record(claim, "not checkable", {}, " ".join(reason.split()), run)


def _require(fine: object, where: str, message: str, error: type[ClaimError] = ClaimError) -> None:
    if not fine:
        raise error(f"{where}: {message}")


def _find(claim_id: str, run: Run) -> Claim:
    path = run.root / "book" / "claims.yml"
    claim = _load_cached(path, path.stat().st_mtime_ns if path.is_file() else 0).get(claim_id)
    if claim is None:
        raise ClaimError(f"unknown claim {claim_id!r}: it is not listed in book/claims.yml")
    if run.page not in (None, claim.page):
        raise ClaimError(f"{claim_id} belongs to page {claim.page}, but this is page {run.page}")
    return claim


@functools.lru_cache(maxsize=4)
def _load_cached(path: Path, _modified: int) -> dict[str, Claim]:
    return load(path)


def _as_bool(name: str, value: object) -> bool | None:
    value = plain(value)
    if value is None or isinstance(value, bool):
        return value
    raise ClaimError(f"{name} must be True or False, got {value!r} ({type(value).__name__})")


def _derive(claim_id: str, outcome: Mapping[str, bool | None]) -> str:
    printed, under_conditions, corrected, reproduced, with_deviations = outcome.values()
    if reproduced is not None or with_deviations is not None:
        _require(
            printed is under_conditions is corrected is None,
            claim_id,
            f"give either {', '.join(OUTCOMES[:3])} (a statement) "
            f"or {', '.join(OUTCOMES[3:])} (an outcome), not both",
        )
        alone = "with_deviations needs reproduced=True or False beside it"
        _require(reproduced is not None, claim_id, alone)
        if reproduced:
            return "reproduced"
        return "reproduced with deviations" if with_deviations else "not reproduced"
    nothing = "nothing was computed; give printed= or reproduced="
    _require(printed is not None, claim_id, nothing)
    if printed:
        _require(
            corrected is not False and under_conditions is not False,
            claim_id,
            "it holds as printed, so corrected and under_conditions must be true or left out",
            _UndecidedError,
        )
        return "holds"
    both_false = "false as printed, and its corrected version fails too"
    _require(corrected is not False, claim_id, both_false, _UndecidedError)
    _require(
        not (under_conditions and corrected),
        claim_id,
        "under_conditions and corrected are both true; "
        "leave one out, they lead to different verdicts",
    )
    _require(
        under_conditions or corrected,
        claim_id,
        "a false statement needs a corrected version (corrected=True) "
        "or conditions under which it survives (under_conditions=True)",
        _UndecidedError,
    )
    return "holds with conditions" if under_conditions else "false as printed"


def _check_scale(claim_id: str, scale: object, *, is_outcome: bool) -> None:
    if scale == "":
        return
    _require(
        isinstance(scale, str) and re.search(r"\d", scale) and len(scale) <= _LONGEST_SCALE,
        claim_id,
        f"scale says in at most {_LONGEST_SCALE} characters, with numbers, how "
        f"much smaller the experiment is, got {scale!r}",
    )
    _require(is_outcome, claim_id, "only an outcome (reproduced=) has a scale")


def _as_numbers(claim_id: str, numbers: Mapping[str, object]) -> dict[str, Number]:
    found = {name: _as_number(claim_id, name, value) for name, value in numbers.items()}
    counts = any(isinstance(v, int | float) and not isinstance(v, bool) for v in found.values())
    _require(counts, claim_id, "a verdict needs at least one number as its evidence")
    return found


def _as_number(claim_id: str, name: str, value: object) -> Number:
    value = plain(value)
    if not isinstance(value, bool | int | float | str):
        kind = type(value).__name__
        raise ClaimError(f"{claim_id}: {name} must be one number or a short text, got {kind}")
    _require(value == value, claim_id, f"{name} is not a number (NaN)")
    short = not isinstance(value, str) or len(value) <= _LONGEST_STRING
    _require(short, claim_id, f"{name} is a text of more than {_LONGEST_STRING} characters")
    return value


def _record(
    claim: Claim, verdict: str, numbers: dict[str, Number], reason: str, run: Run, scale: str = ""
) -> Badge:
    differs = verdict != claim.expected
    if differs and not run.exploring:
        evidence = ", ".join(f"{k}={v!r}" for k, v in numbers.items()) or reason
        raise ClaimMismatch(
            f"{claim.id}: computed {verdict!r}, expected {claim.expected!r} ({evidence})"
        )
    path = run.stage / "claims.json"
    records = read(path) if path.is_file() else []
    if any(record["id"] == claim.id for record in records):
        if not run.interactive:
            raise ClaimError(f"{claim.id} was already checked on page {claim.page}")
        records = [r for r in records if r["id"] != claim.id]  # a reader ran the cell again
    record = {
        "id": claim.id,
        "verdict": verdict,
        "numbers": {name: _to_json(value) for name, value in numbers.items()},
        "page": claim.page,
        "profile": run.profile,
    }
    extra = {"reason": reason, "scale": scale}
    records.append(record | {name: text for name, text in extra.items() if text})
    text = json.dumps(records, indent=1, ensure_ascii=False, allow_nan=False)
    write_atomic(path, text + "\n")
    severity, expected = ("", claim.expected) if differs else (claim.severity, "")
    badge = Badge(claim.id, verdict, numbers, reason, severity, scale, expected)
    if in_jupyter():
        badge._ipython_display_()
    return badge


def _to_json(value: Number) -> Number:
    # JSON has no infinity; a text is shown in the same way.
    return str(value) if isinstance(value, float) and math.isinf(value) else value


def read(path: str | Path) -> list[dict[str, Any]]:
    """Read the records of one page; a :class:`ClaimError` if the file is not a list of them."""
    try:
        records = json.loads(Path(path).read_text(encoding="utf-8"))
    except ValueError as error:
        raise ClaimError(f"{path} is not valid JSON: {error}") from error
    needed = {"id", "verdict", "numbers", "page", "profile"}
    if not isinstance(records, list) or not all(
        isinstance(record, dict) and needed <= record.keys() for record in records
    ):
        raise ClaimError(f"{path} must hold a list of records with {', '.join(sorted(needed))}")
    return records


def evidence_in(path: Path) -> dict[str, dict[str, Number]]:
    """The numbers of each claim's evidence in such a file, by the claim's id."""
    return {record["id"]: record["numbers"] for record in read(path)}


# -- showing ----------------------------------------------------------------------------


def anchor(claim_id: str) -> str:
    """The HTML anchor of a claim's badge.

    >>> anchor("thesis:3.17")
    'claim-thesis-3-17'
    """
    return "claim-" + re.sub(r"[^a-z0-9]+", "-", claim_id)


def verdict_text(verdict: str, severity: str = "", scale: str = "") -> str:
    """A verdict in words, with its severity or its scale.

    >>> verdict_text("not reproduced", scale="3,000 of 1,000,000 updates")
    'not reproduced at this scale'
    """
    return verdict + (f" ({severity})" if severity else "") + (" at this scale" if scale else "")


def verdict_html(verdict: str, severity: str = "", scale: str = "") -> str:
    """A verdict as a span that the site's style sheet colours.

    >>> verdict_html("false as printed", severity="misprint")
    '<span class="verdict verdict-false severity-misprint">false as printed (misprint)</span>'
    """
    classes = f"verdict {STYLES[verdict]}"
    if severity:
        classes += f" severity-{severity.replace(' ', '-')}"
    return f'<span class="{classes}">{html.escape(verdict_text(verdict, severity, scale))}</span>'


def evidence_text(numbers: Mapping[str, Number], reason: str = "", scale: str = "") -> str:
    """The numbers of a claim in one line.

    >>> evidence_text({"worst_ratio": 1.25, "runs": 20})
    'worst ratio = 1.25, runs = 20'
    """
    parts = [f"{name.replace('_', ' ')} = {_shown(value)}" for name, value in numbers.items()]
    parts += [f"scale: {scale}"] if scale else []
    return ", ".join(parts) or reason


def _shown(value: Number) -> str:
    if isinstance(value, str) and value in ("inf", "-inf"):
        value = float(value)
    return significant(value)
