"""Do the recorded results come out again?

``python -m dprl.companion.verification`` (``make verify``) executes every page that has
recorded results, at the sizes of the papers, into a folder of its own below ``_build``, and
compares each table with the recorded one: keys, texts and integers must be equal, floats
agree within a tolerance. Floating-point results differ in their last digits from processor
to processor, so bytes are never compared. Neither ``book/nb`` nor ``data/results`` is
touched. Tables that a command made (:func:`dprl.companion.records.keep`) are left out: they
take hours.

The tolerance is 1e-6 relative or 1e-12 absolute; ``data/results/tolerances.yml`` may name
another for a file, with the reason:

.. code-block:: yaml

    figure-3-1.csv: {relative: 1e-5, absolute: 1e-9, reason: "sums of 3e6 terms"}
"""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from dprl.companion import records
from dprl.companion.execution import PageError, Run, available_cores, execute_page

_SHOWN = 5  # differences printed per table


@dataclass(frozen=True)
class Tolerance:
    """How far a float may be from the recorded one: ``absolute + relative * |value|``."""

    relative: float = 1e-6
    absolute: float = 1e-12


@dataclass(frozen=True)
class Outcome:
    """What became of one recorded table.

    Parameters
    ----------
    name : str
        File name.
    page : str
        Page that makes it.
    rows : int
        Rows of the recorded table.
    problem : str
        What is wrong; empty if the table came out again.
    """

    name: str
    page: str
    rows: int
    problem: str = ""


def recorded_pages(recorded: Path) -> dict[str, list[str]]:
    """Which page made which recorded tables.

    Parameters
    ----------
    recorded : Path
        ``data/results/paper``.

    Returns
    -------
    dict
        Page to file names, both sorted; without tables that a command made.

    Raises
    ------
    RecordError
        If a table has no provenance, or was edited.
    """
    pages: dict[str, list[str]] = {}
    for path in sorted(recorded.glob("*.csv")):
        page = records.read(path).provenance["page"]
        if page is not None:  # else a command made it, see records.keep
            pages.setdefault(page, []).append(path.name)
    return dict(sorted(pages.items()))


def load_tolerances(path: Path) -> dict[str, Tolerance]:
    """Read the exceptions from the default tolerance.

    Parameters
    ----------
    path : Path
        The YAML file; it need not exist.

    Returns
    -------
    dict
        File name to tolerance.

    Raises
    ------
    ValueError
        If an entry has other fields than relative, absolute and reason, or no reason.
    """
    if not path.exists():
        return {}
    entries: Mapping[str, Any] = yaml.safe_load(path.read_text(encoding="utf-8")) or {}
    return {name: _tolerance(name, entry) for name, entry in entries.items()}


def _tolerance(name: str, entry: Mapping[str, Any]) -> Tolerance:
    unknown = set(entry) - {"relative", "absolute", "reason"}
    if unknown or not entry.get("reason"):
        raise ValueError(f"{name}: a tolerance has relative, absolute and a reason; got {entry}")
    numbers = {key: float(value) for key, value in entry.items() if key != "reason"}
    return Tolerance(**numbers)


def compare_file(recorded: Path, fresh: Path, tolerance: Tolerance) -> str:
    """Compare one table with its recorded version.

    Parameters
    ----------
    recorded, fresh : Path
        The two CSV files, each with its provenance beside it.
    tolerance : Tolerance
        How far floats may differ.

    Returns
    -------
    str
        What differs; empty if nothing does.
    """
    if not fresh.exists():
        return "the page does not make it any more"
    old = records.read(recorded)
    try:
        found = records.compare(
            old.frame,
            records.read(fresh).frame,
            keys=old.provenance.get("keys"),
            rtol=tolerance.relative,
            atol=tolerance.absolute,
        )
    except records.RecordError as error:
        return str(error)
    if found.empty:
        return ""
    return f"{len(found)} differences\n{found.head(_SHOWN).to_string(index=False)}"


def verify(root: Path, workers: int) -> list[Outcome]:
    """Execute every page with recorded results again, and compare.

    Parameters
    ----------
    root : Path
        The repository.
    workers : int
        Worker processes for sweeps.

    Returns
    -------
    list of Outcome
        One per recorded table, and one per table that is made but not recorded.
    """
    recorded = root / "data" / "results" / "paper"
    tolerances = load_tolerances(root / "data" / "results" / "tolerances.yml")
    folder = root / "_build" / "verify"
    shutil.rmtree(folder, ignore_errors=True)
    outcomes: list[Outcome] = []
    for page, names in recorded_pages(recorded).items():
        print(f"{page}: computing {', '.join(names)} again ...", flush=True)
        fresh = folder / page.replace("/", "__")
        problem = _recompute(root, page, fresh, workers)
        for name in names:
            rows = len(records.read(recorded / name).frame)
            found = problem or compare_file(
                recorded / name, fresh / name, tolerances.get(name, Tolerance())
            )
            outcomes.append(Outcome(name, page, rows, found))
        extra = sorted({path.name for path in fresh.glob("*.csv")} - set(names))
        outcomes += [Outcome(name, page, 0, "made, but not recorded") for name in extra]
    return outcomes


def _recompute(root: Path, page: str, fresh: Path, workers: int) -> str:
    """Execute one page into a folder; return what went wrong, or nothing."""
    try:
        execute_page(Run(root, page, "paper", workers=workers, results_dir=fresh))
    except PageError as error:
        return str(error)
    return ""


def table(outcomes: Sequence[Outcome]) -> str:
    """Outcomes as lines of text, the details of each problem below its line."""
    width = max((len(outcome.name) for outcome in outcomes), default=0)
    lines = []
    for outcome in outcomes:
        first, _, details = outcome.problem.partition("\n")
        verdict = f"DIFFERS: {first}" if outcome.problem else "agrees"
        lines.append(f"{outcome.name:<{width}}  {outcome.rows:>7} rows  {verdict}")
        lines += [f"    {line}" for line in details.splitlines()]
    return "\n".join(lines)


def main() -> int:
    """Run the command line from the root of the repository; 1 if anything differs."""
    try:
        outcomes = verify(Path.cwd().resolve(), available_cores())
    except (records.RecordError, ValueError, json.JSONDecodeError) as error:
        print(error, file=sys.stderr)
        return 1
    print(table(outcomes) or "no results are recorded yet")
    return int(any(outcome.problem for outcome in outcomes))


if __name__ == "__main__":
    raise SystemExit(main())
