"""The scorecard: one square and one row per claim, made from what the pages have recorded.

It joins ``book/claims.yml`` and every ``book/nb/**/*.claims.json``. A claim without a record, a
record without a claim, a verdict that differs from the expected one, or a claim that a reader
could not find is an error: each row links to the badge on its page and to the line of the source
file that checks it.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from docutils.nodes import make_id

from companion import claims
from companion.build.freshness import product_path
from companion.claims import Claim, ClaimError
from companion.files import source_path

_HIDING_TAGS = {"remove-cell", "remove_cell", "remove-output", "remove_output"}


@dataclass(frozen=True)
class Row:
    """One claim with everything its row shows."""

    claim: Claim
    record: Mapping[str, Any]
    page_title: str
    line: int
    erratum: str

    @property
    def chapter(self) -> str:
        """The folder of its page."""
        return self.claim.page.split("/")[0]

    @property
    def verdict(self) -> str:
        """Its verdict as HTML."""
        scale = self.record.get("scale", "")
        return claims.verdict_html(self.record["verdict"], self.claim.severity, scale)


def page(root: Path) -> str:
    """The scorecard as MyST markdown, made after the pages of the repository were executed.

    All that is wrong is one :class:`companion.claims.ClaimError`, with a line each.
    """
    listed = claims.load(root / "book" / "claims.yml", root)
    records, problems = _collect(root)
    rows = []
    for claim in listed.values():
        record = records.pop(claim.id, None)
        wrong = _problem(claim, record)
        if wrong or record is None:
            problems.append(wrong)
            continue
        try:
            rows.append(_row(claim, record, root))
        except ClaimError as error:
            problems.append(str(error))
    problems += [f"{i}: recorded by {r['page']}, but not listed" for i, r in records.items()]
    if problems:
        raise ClaimError("\n".join(problems))
    parts = ["# Scorecard", _INTRODUCTION, _summary(rows), _SEVERITIES_SAY, _FILTER]
    for chapter in sorted({row.chapter for row in rows}):
        parts.append(_chapter(chapter, [row for row in rows if row.chapter == chapter], root))
    return "\n\n".join(parts) + "\n"


def _collect(root: Path) -> tuple[dict[str, Mapping[str, Any]], list[str]]:
    folder = root / "book" / "nb"
    found: dict[str, Mapping[str, Any]] = {}
    problems = []
    for path in sorted(folder.rglob("*.claims.json")):
        page = path.relative_to(folder).as_posix().removesuffix(".claims.json")
        for record in claims.read(path):
            if record["page"] != page:
                problems.append(f"{record['id']}: {path.name} of {page} says page {record['page']}")
            elif record["id"] in found:
                problems.append(f"{record['id']}: recorded twice")
            else:
                found[record["id"]] = record
    return found, problems


def _problem(claim: Claim, record: Mapping[str, Any] | None) -> str:
    if record is None:
        return f"{claim.id}: no record; page {claim.page} does not check it, or was not executed"
    if record["page"] != claim.page:
        return f"{claim.id}: listed for page {claim.page}, checked by {record['page']}"
    if record["verdict"] != claim.expected:
        return f"{claim.id}: expected {claim.expected!r}, recorded {record['verdict']!r}"
    return ""


def _row(claim: Claim, record: Mapping[str, Any], root: Path) -> Row:
    _check_badge(claim, root)
    source = source_path(root, claim.page).read_text(encoding="utf-8")
    title, erratum = _title(source, claim.page), _erratum(claim, root)
    return Row(claim, record, title, _line(source, claim), erratum)


def _erratum(claim: Claim, root: Path) -> str:
    """Address of the section of the errata that explains a fault, or nothing."""
    for path in sorted((root / "notebooks").glob("*/errata.md")):
        before, found, _ = path.read_text(encoding="utf-8").partition(
            f"<{claims.anchor(claim.id)}>`"
        )
        heading = re.findall(r"^##+ +(.+?)\s*$", before, flags=re.MULTILINE)
        if found and heading:
            return f"{path.parent.name}/errata.html#{make_id(heading[-1])}"
    return ""


def _line(source: str, claim: Claim) -> int:
    """Line of the call that checks the claim, or else of its id."""
    quoted = rf"[\"']{re.escape(claim.id)}[\"']"
    for pattern in (rf"\b(?:check|not_checkable)\(\s*{quoted}", quoted):
        match = re.search(pattern, source)
        if match:
            return source.count("\n", 0, match.start()) + 1
    raise ClaimError(f"{claim.id}: notebooks/{claim.page}.md nowhere names it")


def _title(source: str, page: str) -> str:
    match = re.search(r"^# +(.+?)\s*$", source, flags=re.MULTILINE)
    if not match:
        raise ClaimError(f"notebooks/{page}.md has no title")
    return match.group(1)


def _check_badge(claim: Claim, root: Path) -> None:
    path = product_path(root, claim.page, "ipynb")
    if not path.is_file():
        raise ClaimError(f"{claim.id}: page {claim.page} was not executed, {path.name} is missing")
    if not any(f'id="{claims.anchor(claim.id)}"' in output for output in _shown_html(path)):
        raise ClaimError(
            f"{claim.id}: its badge is not shown on page {claim.page}; "
            "do not hide the output of the cell that checks it"
        )


def _shown_html(path: Path) -> Iterator[str]:
    for cell in json.loads(path.read_text(encoding="utf-8"))["cells"]:
        if not _HIDING_TAGS & set(cell["metadata"].get("tags", [])):
            for output in cell.get("outputs", []):
                yield "".join(output.get("data", {}).get("text/html", ""))


# -- rendering --------------------------------------------------------------------------


_INTRODUCTION = """\
Every claim of the five texts that this book checks, with the verdict that running code gave it.
Each square is one claim: open a chapter, or ask for a verdict below. A claim's name leads to the
place on its page where it is decided."""

_SEVERITIES_SAY = """\
:::{dropdown} What a severity says
A statement that is false, or true under a condition only, has a severity in brackets:
*misprint*, the statement that was meant is true; *constant*, a constant or a logarithm is
wrong and the form and message stand; *condition*, an assumption was left out; *breaks the
conclusion*, what the source concludes from it falls. *At this scale* stands behind the verdict
of an experiment that is smaller than its source's.
:::"""

#: Filled by ``scorecard.js``; without it, the chapters open all the same.
_FILTER = '<div id="scorecard-filter"></div>'


def _summary(rows: Sequence[Row]) -> str:
    counts = Counter(row.record["verdict"] for row in rows)
    lines = [
        f"* - {claims.verdict_html(verdict)}\n  - {counts[verdict]}{_severities(rows, verdict)}"
        for verdict in claims.VERDICTS
        if counts[verdict]
    ]
    head = [":::{list-table}", ":header-rows: 1", ":class: scorecard-summary", ""]
    total = f"* - all\n  - {len(rows)}"
    return "\n".join([*head, "* - Verdict\n  - Claims", *lines, total, ":::"])


def _severities(rows: Sequence[Row], verdict: str) -> str:
    counts = Counter(row.claim.severity for row in rows if row.record["verdict"] == verdict)
    found = [f"{counts[severity]} {severity}" for severity in claims.SEVERITIES if counts[severity]]
    return f": {', '.join(found)}" if found else ""


def _chapter(chapter: str, rows: Sequence[Row], root: Path) -> str:
    """A chapter's claims as squares, and below them, folded, as a table."""
    title = _title((root / "book" / f"{chapter}.md").read_text(encoding="utf-8"), chapter)
    tiles = "".join(map(_tile, rows))
    return f"""\
<details class="scorecard-chapter"><summary>{chapter.split("-")[0]} · {title}: {len(rows)} claims
<span class="tiles" aria-hidden="true">{tiles}</span></summary>

:::{{list-table}}
:header-rows: 1
:class: scorecard
:widths: 60 20 20

* - What is claimed
  - Verdict
  - Where
{"".join(map(_entry, rows))}:::

</details>"""


def _tile(row: Row) -> str:
    verdict = row.record["verdict"]
    style, title = claims.STYLES[verdict], f"{row.claim.id}: {verdict}"
    return f'<span class="tile {style}" title="{title}"></span>'


def _entry(row: Row) -> str:
    claim, record = row.claim, row.record
    path, scale = f"notebooks/{claim.page}.md", record.get("scale", "")
    evidence = claims.evidence_text(record["numbers"], record.get("reason", ""), scale)
    profile = "" if record["profile"] == "quick" else f" ({record['profile']} profile)"
    erratum = f'\n\n    <a href="{row.erratum}">Erratum</a>' if row.erratum else ""
    return f"""\
* - **{claim.title}** ({{ref}}`{claim.id} <{claims.anchor(claim.id)}>`)

    {claim.statement}

    <details><summary>Evidence</summary>

    {_plain(evidence)}{profile}. {{download}}`{path}:{row.line} <../../{path}>`

    </details>

  - {row.verdict}
  - [{row.page_title}]({claim.page}.ipynb){erratum}
"""


def _plain(text: str) -> str:
    """Text in which MyST sees no markup."""
    return re.sub(r"([\\`*_{}\[\]<>$#|~])", r"\\\1", text)
