"""Do the recorded results come out again?

``python -m companion.build.verification`` (``make verify``) executes every page that has
recorded results, at the sizes of the papers, into a folder of its own below ``_build``, and
compares each table with the recorded one: keys, texts and integers must be equal, floats
agree within a tolerance. What became of a page's tables is printed when the page is done.
Names of pages or tables as arguments (``make verify PAGE=...``) select what is computed.

With ``--sample`` (``make verify SAMPLE=1``) one piece of each table is computed: a page runs up
to its last recorded table, the grids that ``data/results/samples.yml`` names are cut to their
first entries, and every row that comes out must be a row of the recorded table. Seeds belong
to places in a list of tasks, and the list is cut at its end, so the rows are the same. A table
of which no piece can be had is listed as not sampled, with the reason:

.. code-block:: yaml

    2-background/thompson-sampling:
      first: {problems: 1}
    6-off-policy/mountain-car:
      skip: "the cheapest row takes twenty minutes"

A table that agreed is noted in ``data/results/verified.json``, with digests of the page's code
and of what this uses (:func:`stale`). So a table that is older than its code is found
without computing anything. ``--accept REASON`` notes pages without computing them.

Floating-point results differ in their last digits from processor to processor, so bytes are
never compared. Neither ``book/nb`` nor ``data/results`` is touched. Tables that a command
made (:func:`companion.records.keep`) are left out: they take hours.

The tolerance is 1e-6 relative or 1e-12 absolute; ``data/results/tolerances.yml`` may name
another for a file, with the reason:

.. code-block:: yaml

    figure-3-1.csv: {relative: 1e-5, absolute: 1e-9, reason: "sums of 3e6 terms"}
"""

from __future__ import annotations

import argparse
import ast
import functools
import json
import shutil
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from companion import records
from companion.build.execution import PageError, Run, execute_page
from companion.build.freshness import changed
from companion.dependencies import Sources, recorded_by_page, sources_of
from companion.files import available_cores, write_atomic
from companion.page_code import recording_cells

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
    compared : int
        Rows that were computed again.
    skipped : str
        Why the table was not sampled; empty if it was.
    """

    name: str
    page: str
    rows: int
    problem: str = ""
    compared: int = 0
    skipped: str = ""


@dataclass(frozen=True)
class Sample:
    """What a sample computes of a page.

    Parameters
    ----------
    first : mapping
        Name of a list or dict of the page to how many of its first entries are used.
    skip : mapping
        Table (without suffix) to the reason why it is not sampled; under ``*`` all others.
    """

    first: Mapping[str, int] = field(default_factory=dict)
    skip: Mapping[str, str] = field(default_factory=dict)

    def reason(self, table: str) -> str:
        """Why a table is not sampled; empty if it is.

        >>> Sample(skip={"*": "it takes hours"}).reason("figure-1.csv")
        'it takes hours'
        """
        return self.skip.get(table.removesuffix(".csv"), self.skip.get("*", ""))


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


def load_samples(path: Path) -> dict[str, Sample]:
    """Read what a sample computes of each page; a page that is not named is computed whole.

    Parameters
    ----------
    path : Path
        The YAML file; it need not exist.

    Returns
    -------
    dict
        Page to its sample.

    Raises
    ------
    ValueError
        If an entry has other fields than first and skip, a number of entries is not a whole
        number >= 1, or a reason is empty.
    """
    if not path.exists():
        return {}
    entries: Mapping[str, Any] = yaml.safe_load(path.read_text(encoding="utf-8")) or {}
    return {page: _sample(page, entry) for page, entry in entries.items()}


def _sample(page: str, entry: Mapping[str, Any]) -> Sample:
    if set(entry) - {"first", "skip"}:
        raise ValueError(f"{page}: a sample has the fields first and skip; got {sorted(entry)}")
    first, skip = entry.get("first", {}), entry.get("skip", {})
    skip = {"*": skip} if isinstance(skip, str) else skip
    if not all(type(count) is int and count >= 1 for count in first.values()):
        raise ValueError(f"{page}: first says how many entries, at least 1; got {first}")
    if not all(isinstance(reason, str) and reason.strip() for reason in skip.values()):
        raise ValueError(f"{page}: what is skipped needs a reason; got {skip}")
    return Sample(first, skip)


def shorten(notebook: Any, *, first: Mapping[str, int], tables: Sequence[str]) -> None:
    """Let a page compute the first pieces only, and stop after its tables.

    Parameters
    ----------
    notebook : nbformat.NotebookNode
        The page; changed in place. Text goes, and all code after the last cell that records
        one of the tables.
    first : mapping
        Name to a number of entries: after the statement that gives the name its value, only
        so many of its first entries are kept.
    tables : sequence of str
        Names of the tables, without suffix.

    Raises
    ------
    PageError
        If no cell in time gives one of the names a value.
    """
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    code = code[: recording_cells([cell.source for cell in code], tables)]
    waiting = dict(first)
    for cell in code:
        lines = cell.source.splitlines()
        after = {name: _assigned(cell.source, name) for name in waiting}
        for name, line in sorted(after.items(), key=lambda item: -item[1]):
            if line:
                of = f"{name}.items() if isinstance({name}, dict) else {name}"
                lines.insert(line, f"{name} = type({name})(list({of})[:{waiting.pop(name)}])")
        cell.source = "\n".join(lines)
    if waiting:
        raise PageError(f"the page gives no value to {', '.join(waiting)} before its tables")
    notebook.cells = code


def _assigned(source: str, name: str) -> int:
    """Last line of the last statement of a cell that gives a name its value; 0 if none does."""
    last = 0
    for statement in ast.parse(source).body:
        if not isinstance(statement, ast.FunctionDef | ast.ClassDef):
            stored = (n for n in ast.walk(statement) if isinstance(n, ast.Name))
            if any(n.id == name and isinstance(n.ctx, ast.Store) for n in stored):
                last = statement.end_lineno or 0
    return last


def compare_file(recorded: Path, fresh: Path, tolerance: Tolerance, *, part: bool = False) -> str:
    """Compare one table with its recorded version.

    Parameters
    ----------
    recorded, fresh : Path
        The two CSV files, each with its provenance beside it.
    tolerance : Tolerance
        How far floats may differ.
    part : bool
        Whether the fresh table may lack rows; those that it has must agree.

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
    if part:
        found = found[found["column"] != "(row only in first)"]
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


def verify(
    root: Path, workers: int, wanted: Sequence[str] = (), *, sample: bool = False
) -> Iterator[list[Outcome]]:
    """Execute pages with recorded results again, one after the other, and compare.

    A page whose tables all agree is noted in ``data/results/verified.json``.

    Parameters
    ----------
    root : Path
        The repository.
    workers : int
        Worker processes for sweeps.
    wanted : sequence of str
        Pages or tables, see :func:`selected`; all if there are none.
    sample : bool
        Whether to compute a piece of each table only.

    Yields
    ------
    list of Outcome
        As soon as a page is done: one per recorded table of the page, and one per table that
        it makes but that is not recorded.

    Raises
    ------
    ValueError
        If a name in `wanted` is unknown, or ``samples.yml`` names a page without tables.
    RecordError
        If a recorded table has no provenance, or was edited.
    """
    recorded = root / "data" / "results" / "paper"
    folder = root / "_build" / "verify"
    every = recorded_pages(recorded)
    samples = load_samples(root / "data" / "results" / "samples.yml") if sample else {}
    if samples.keys() - every.keys():
        raise ValueError(f"no recorded tables: {', '.join(sorted(samples.keys() - every.keys()))}")
    pages = selected(every, wanted)
    shutil.rmtree(folder, ignore_errors=True)
    for page, names in pages.items():
        plan = samples.get(page, Sample())
        computed = [name for name in names if not plan.reason(name)]
        fresh = folder / page.replace("/", "__")
        made_from = digests(root, page, sources_of(root))  # before it runs
        problem, start = "", time.perf_counter()
        if computed:
            print(f"{page}: computing {', '.join(computed)} again ...", flush=True)
            stems = [name.removesuffix(".csv") for name in computed]
            edit = functools.partial(shorten, first=plan.first, tables=stems) if sample else None
            problem = _recompute(root, page, fresh, workers, edit)
        seconds = time.perf_counter() - start
        outcomes = [
            _outcome(root, page, name, fresh / name, problem, sample)
            if name in computed
            else Outcome(name, page, _rows(recorded / name), skipped=plan.reason(name))
            for name in names
        ]
        extra = sorted({path.name for path in fresh.glob("*.csv")} - set(names))
        outcomes += [Outcome(name, page, 0, "made, but not recorded") for name in extra]
        if all(o.compared and not o.problem for o in outcomes):
            whole = all(o.compared == o.rows for o in outcomes)
            kind = "all rows" if whole else "some rows"
            note(root, page, made_from, kind, None if sample else round(seconds, 1), workers)
        yield outcomes


def _rows(path: Path) -> int:
    return len(records.read(path).frame)


def _outcome(root: Path, page: str, name: str, fresh: Path, problem: str, part: bool) -> Outcome:
    """Compare one table that was computed again, unless its page failed."""
    recorded = root / "data" / "results" / "paper" / name
    tolerances = load_tolerances(root / "data" / "results" / "tolerances.yml")
    tolerance = tolerances.get(name, Tolerance())
    found = problem or compare_file(recorded, fresh, tolerance, part=part)
    compared = _rows(fresh) if fresh.exists() else 0
    return Outcome(name, page, _rows(recorded), found, compared)


def _recompute(
    root: Path, page: str, fresh: Path, workers: int, edit: functools.partial[None] | None
) -> str:
    """Execute one page into a folder; return what went wrong, or nothing."""
    try:
        execute_page(Run(root, page, "paper", workers=workers, results_dir=fresh, edit=edit))
    except PageError as error:
        return str(error)
    return ""


# -- what was verified, and with which code ---------------------------------------------


def _notes(root: Path) -> Path:
    return root / "data" / "results" / "verified.json"


def read_notes(root: Path) -> dict[str, dict[str, Any]]:
    """Read what is noted of each page with recorded tables; nothing if there is no file.

    Parameters
    ----------
    root : Path
        The repository.

    Returns
    -------
    dict
        Page to ``code`` and ``modules`` (digests), ``libraries`` (versions),
        ``tables`` (SHA-256 of each), ``verified``
        (``all rows``, ``some rows``, or ``accepted: `` with a reason), and ``seconds`` and
        ``workers`` of the last time that all rows were computed (None: never).
    """
    path = _notes(root)
    found: dict[str, dict[str, Any]] = (
        json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    )
    return found


def note(
    root: Path,
    page: str,
    made_from: Mapping[str, Any],
    verified: str,
    seconds: float | None,
    workers: int,
) -> None:
    """Note that a page's recorded tables belong to its code of today.

    What was verified in all rows stays so when a sample agrees and nothing has changed.

    Parameters
    ----------
    root : Path
        The repository.
    page : str
        A page with recorded tables.
    made_from : mapping
        :func:`digests`, taken before the page ran: what is edited meanwhile counts as changed.
    verified : str
        How that is known, see :func:`read_notes`.
    seconds : float or None
        How long all rows took; None if not all were computed.
    workers : int
        Worker processes that sweeps had.
    """
    notes = read_notes(root)
    before = notes.get(page, {})
    same = all(before.get(key) == value for key, value in made_from.items())
    if same and before["verified"] == "all rows":
        verified = "all rows"
    timed = {"seconds": seconds, "workers": workers}
    if seconds is None:
        timed = {key: before.get(key) for key in timed}
    notes[page] = {**made_from, "verified": verified, **timed}
    text = json.dumps(dict(sorted(notes.items())), indent=1, ensure_ascii=False)
    write_atomic(_notes(root), text + "\n")


def digests(root: Path, page: str, sources: Sources) -> dict[str, Any]:
    """What a page's recorded tables belong to: its code, the modules, libraries and tables.

    Parameters
    ----------
    root : Path
        The repository.
    page : str
        A page with recorded tables.
    sources : Sources
        The modules, read once for many pages.

    Returns
    -------
    dict
        ``code``, ``modules``, ``libraries`` and ``tables``, see :func:`read_notes`.
    """
    return {**recorded_by_page(root, page, sources)._asdict(), "tables": _tables(root)[page]}


def _tables(root: Path) -> dict[str, dict[str, str]]:
    """Page to its recorded tables and their SHA-256, without reading a table."""
    pages: dict[str, dict[str, str]] = {}
    for path in sorted((root / "data" / "results" / "paper").glob("*.json")):
        origin = json.loads(path.read_text(encoding="utf-8"))
        if origin["page"] is not None:
            pages.setdefault(origin["page"], {})[f"{path.stem}.csv"] = origin["sha256"]
    return dict(sorted(pages.items()))


def stale(root: Path) -> list[str]:
    """Find recorded tables that are older than the code that makes them.

    Parameters
    ----------
    root : Path
        The repository.

    Returns
    -------
    list of str
        One text per page: its tables, what changed, and the command that settles it.
    """
    notes, sources = read_notes(root), sources_of(root)
    pages = _tables(root)
    found = []
    for page, names in pages.items():
        before, now = notes.get(page), digests(root, page, sources)
        if before is None:
            what = ["it was never verified"]
        else:
            what = ["its code"] if before["code"] != now["code"] else []
            for kind in ("modules", "libraries", "tables"):
                what += changed(before[kind], now[kind])
        if what:
            tables = ", ".join(name.removesuffix(".csv") for name in names)
            found.append(f"{page} ({tables}): {', '.join(what)}; make verify PAGE={page}")
    found += [f"{page}: noted, but records nothing" for page in sorted(notes.keys() - pages.keys())]
    return found


# -- command line -----------------------------------------------------------------------


def table(outcomes: Sequence[Outcome]) -> str:
    """Outcomes as lines of text, the details of each problem below its line."""
    width = max((len(outcome.name) for outcome in outcomes), default=0)
    lines = []
    for outcome in outcomes:
        first, _, details = outcome.problem.partition("\n")
        verdict = f"DIFFERS: {first}" if outcome.problem else "agrees"
        if outcome.skipped:
            verdict = f"not sampled: {outcome.skipped}"
        elif 0 < outcome.compared < outcome.rows:
            verdict = f"{verdict} ({outcome.compared} rows computed)"
        lines.append(f"{outcome.name:<{width}}  {outcome.rows:>7} rows  {verdict}")
        lines += [f"    {line}" for line in details.splitlines()]
    return "\n".join(lines)


def summary(outcomes: Sequence[Outcome], seconds: float) -> str:
    """Say in one line how many tables agree, which do not, and how many were not sampled."""
    done = [outcome for outcome in outcomes if not outcome.skipped]
    wrong = [outcome.name for outcome in done if outcome.problem]
    text = f"{len(done) - len(wrong)} of {len(done)} tables agree"
    text += f"; not: {', '.join(wrong)}" if wrong else ""
    skipped = len(outcomes) - len(done)
    return f"{text}{f'; {skipped} not sampled' if skipped else ''} ({seconds:.0f} s)"


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
        prog="python -m companion.build.verification",
        description="Compute the recorded results again and compare.",
    )
    parser.add_argument("wanted", nargs="*", metavar="PAGE", help="pages or tables (default: all)")
    parser.add_argument("--sample", action="store_true", help="one piece of each table only")
    parser.add_argument("--accept", metavar="REASON", help="note pages, and compute nothing")
    options = parser.parse_args(argv)
    root, start = Path.cwd().resolve(), time.perf_counter()
    outcomes: list[Outcome] = []
    try:
        if options.accept is not None:
            return _accept(root, options.wanted, options.accept)
        before = start
        for found in verify(root, available_cores(), options.wanted, sample=options.sample):
            now = time.perf_counter()
            print(f"{table(found)}\n  {now - before:.0f} s", flush=True)
            before = now
            outcomes += found
    except (records.RecordError, ValueError, json.JSONDecodeError) as error:
        print(error, file=sys.stderr)
        return 1
    if not outcomes:
        print("no results are recorded yet")
        return 0
    print(summary(outcomes, time.perf_counter() - start))
    return int(any(outcome.problem for outcome in outcomes))


def _accept(root: Path, wanted: Sequence[str], reason: str) -> int:
    if not reason.strip() or not wanted:
        raise ValueError("to accept pages without computing them, name them and give a reason")
    for page in selected(recorded_pages(root / "data" / "results" / "paper"), wanted):
        made_from = digests(root, page, sources_of(root))
        note(root, page, made_from, f"accepted: {reason.strip()}", None, available_cores())
        print(f"{page}: accepted, not computed")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
