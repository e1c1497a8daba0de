"""Do the recorded results come out again?

``python -m dprl.companion.verification`` (``make verify``) executes every page that has
recorded results, at the sizes of the papers, into a folder of its own below ``_build``, and
compares each table with the recorded one: keys, texts and integers must be equal, floats
agree within a tolerance. What became of a page's tables is printed when the page is done.
Names of pages or tables as arguments (``make verify PAGE=...``) select what is computed.

Floating-point results differ in their last digits from processor to processor, so bytes are
never compared. Neither ``book/nb`` nor ``data/results`` is touched. Tables that a command
made (:func:`dprl.companion.records.keep`) are left out: they take hours.

The tolerance is 1e-6 relative or 1e-12 absolute; ``data/results/tolerances.yml`` may name
another for a file, with the reason:

.. code-block:: yaml

    figure-3-1.csv: {relative: 1e-5, absolute: 1e-9, reason: "sums of 3e6 terms"}
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
from collections.abc import Iterator, Mapping, Sequence
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


def selected(pages: Mapping[str, Sequence[str]], wanted: Sequence[str]) -> dict[str, list[str]]:
    """Choose pages by their names, or by those of their tables.

    A table is made by executing its page, so all tables of the page come with it.

    Parameters
    ----------
    pages : mapping
        Page to the file names of its tables, see :func:`recorded_pages`.
    wanted : sequence of str
        Pages (``4-subsampling/audit``, or the last part if only one page has it) and tables
        (``figure-3-1``, with or without ``.csv``); all pages if there are none.

    Returns
    -------
    dict
        The pages that were asked for, in the order of `pages`.

    Raises
    ------
    ValueError
        If a name is neither a page with recorded tables nor one of these tables, or belongs
        to several pages.

    Examples
    --------
    >>> pages = {"3-chapter/audit": ["a.csv"], "3-chapter/cost": ["b.csv", "c.csv"]}
    >>> selected(pages, ["b"])
    {'3-chapter/cost': ['b.csv', 'c.csv']}
    """
    chosen = set()
    for name in wanted:
        found = [name] if name in pages else []
        found = found or [page for page, tables in pages.items() if _table(name) in tables]
        found = found or [page for page in pages if page.rpartition("/")[2] == name]
        if not found:
            raise ValueError(f"{name}: no page with recorded tables, and no recorded table")
        if len(found) > 1:
            raise ValueError(f"{name} is the name of several pages: {', '.join(found)}")
        chosen.add(found[0])
    return {page: list(pages[page]) for page in pages if page in chosen or not wanted}


def _table(name: str) -> str:
    return name if name.endswith(".csv") else f"{name}.csv"


def verify(root: Path, workers: int, wanted: Sequence[str] = ()) -> Iterator[list[Outcome]]:
    """Execute pages with recorded results again, one after the other, and compare.

    Parameters
    ----------
    root : Path
        The repository.
    workers : int
        Worker processes for sweeps.
    wanted : sequence of str
        Pages or tables, see :func:`selected`; all if there are none.

    Yields
    ------
    list of Outcome
        As soon as a page is done: one per recorded table of the page, and one per table that
        it makes but that is not recorded.

    Raises
    ------
    ValueError
        If a name in `wanted` is unknown.
    RecordError
        If a recorded table has no provenance, or was edited.
    """
    recorded = root / "data" / "results" / "paper"
    tolerances = load_tolerances(root / "data" / "results" / "tolerances.yml")
    folder = root / "_build" / "verify"
    pages = selected(recorded_pages(recorded), wanted)
    shutil.rmtree(folder, ignore_errors=True)
    for page, names in pages.items():
        print(f"{page}: computing {', '.join(names)} again ...", flush=True)
        fresh = folder / page.replace("/", "__")
        problem = _recompute(root, page, fresh, workers)
        outcomes = []
        for name in names:
            rows = len(records.read(recorded / name).frame)
            found = problem or compare_file(
                recorded / name, fresh / name, tolerances.get(name, Tolerance())
            )
            outcomes.append(Outcome(name, page, rows, found))
        extra = sorted({path.name for path in fresh.glob("*.csv")} - set(names))
        yield outcomes + [Outcome(name, page, 0, "made, but not recorded") for name in extra]


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


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line from the root of the repository.

    Parameters
    ----------
    argv : sequence of str, optional
        Arguments; default: the process's own.

    Returns
    -------
    int
        1 if anything differs or cannot be compared, else 0.
    """
    parser = argparse.ArgumentParser(
        prog="python -m dprl.companion.verification",
        description="Compute the recorded results again and compare.",
    )
    parser.add_argument("wanted", nargs="*", metavar="PAGE", help="pages or tables (default: all)")
    options = parser.parse_args(argv)
    outcomes: list[Outcome] = []
    try:
        for found in verify(Path.cwd().resolve(), available_cores(), options.wanted):
            print(table(found), flush=True)
            outcomes += found
    except (records.RecordError, ValueError, json.JSONDecodeError) as error:
        print(error, file=sys.stderr)
        return 1
    print(summary(outcomes) if outcomes else "no results are recorded yet")
    return int(any(outcome.problem for outcome in outcomes))


def summary(outcomes: Sequence[Outcome]) -> str:
    """Say in one line how many tables agree and which do not."""
    wrong = [outcome.name for outcome in outcomes if outcome.problem]
    agree = f"{len(outcomes) - len(wrong)} of {len(outcomes)} tables agree"
    return f"{agree}; not: {', '.join(wrong)}" if wrong else agree


if __name__ == "__main__":
    raise SystemExit(main())
