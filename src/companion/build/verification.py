"""Do the recorded results come out again?

``python -m companion.build.verification`` (``make verify``) computes the recorded tables again
and compares: keys, texts and integers must be equal, floats agree within a tolerance. A page
with tables of the profile ``paper`` is executed at these sizes; a command that recorded some
(:func:`companion.records.keep`), of ``laptop`` too, is run again. All of it happens in a folder
below ``_build``: neither ``book/nb`` nor ``data/results`` is touched. What became of the tables
of a page or command is printed when it is done, and a table that agreed is noted with its code
(:mod:`companion.build.verified`). Names of pages or tables (``PAGE=...``) select what is
computed; ``--accept REASON`` notes without computing, and ``--stale`` (``STALE=1``) only says
which tables are older than their code.

With ``--sample`` (``SAMPLE=1``) one piece of each table is computed: a page runs up to its last
recorded table, and the grids that ``data/results/samples.yml`` names are cut to their first
entries; a command gets the further ``arguments`` that stand there, and finds what pages have
``kept`` for one another. Every row that comes out must be a row of the recorded table: seeds belong
to places in a list of tasks, and the list is cut at its end. A table of which no piece can be had
is listed as not computed, with the reason; a command whose every table is skipped is never run, and
one that takes hours has another run ``instead``, without ``--sample`` too. With ``--minutes M`` no
piece is begun later than that, and the pieces are begun in a random order, so that each has its
turn in the long run:

.. code-block:: yaml

    2-background/thompson-sampling:
      first: {problems: 1}
    6-off-policy/mountain-car:
      skip: "the cheapest row takes twenty minutes"
    python -m experiments.chapter_5 --profile laptop:
      arguments: --cell Hopper-v5-10

Floating-point results differ in their last digits from processor to processor. The tolerance is
1e-6 relative or 1e-12 absolute; ``data/results/tolerances.yml`` may name another for a file:

.. code-block:: yaml

    figure-3-1.csv: {relative: 1e-5, absolute: 1e-9, reason: "sums of 3e6 terms"}
"""

from __future__ import annotations

import argparse
import ast
import functools
import itertools
import json
import math
import multiprocessing
import random
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pandas as pd
import yaml

from companion import records
from companion._numbers import is_whole
from companion.build.execution import PageError, PageRun, compiled_programs, execute_page
from companion.build.verified import digests, note, recorded_tables, stale, table_path
from companion.dependencies import is_command, sources_of
from companion.files import available_cores
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

    ``name`` is its file, with ``laptop/`` before it if that is its profile, and ``page`` the page
    or command that makes it. Of its ``rows`` so many were ``compared``. ``problem`` says what is
    wrong, and ``skipped`` why it was not computed; empty if it came out again.
    """

    name: str
    page: str
    rows: int
    problem: str = ""
    compared: int = 0
    skipped: str = ""


@dataclass(frozen=True)
class Sample:
    """What a sample computes of a page, or of a command.

    ``first`` says how many of the first entries of the page's lists or dicts are used, by name;
    ``skip`` by table (without suffix; ``*`` for all others) why it is not sampled. ``arguments``
    are typed after the command, or after the one that is run ``instead``; it finds in its folder
    all that is in the folder ``kept``. Nothing is computed on another kind of ``processor``, if one
    is named (:func:`processor`)."""

    first: Mapping[str, int] = field(default_factory=dict)
    skip: Mapping[str, str] = field(default_factory=dict)
    arguments: str = ""
    instead: str = ""
    kept: str = ""
    processor: str = ""

    def reason(self, table: str) -> str:
        """Why a table is not sampled; empty if it is."""
        said = self.skip.get(table.removesuffix(".csv"), self.skip.get("*", ""))
        if not said and self.processor not in ("", here := processor()):
            said = f"recorded on a processor of another kind, {self.processor}; this is {here}"
        return said


def processor() -> str:
    """What kind of processor this is, as Linux tells it: ``AuthenticAMD, family 25, model 17``.

    ``, AVX-512`` follows if it has these instructions, which a virtual machine may lack. Trained
    agents come out again to the last digit on processors of one kind only.
    """
    place = Path("/proc/cpuinfo")
    lines = place.read_text(encoding="utf-8").splitlines() if place.is_file() else []
    told = dict(line.split(":", 1) for line in reversed(lines) if ":" in line)
    known = {key.strip(): value.strip() for key, value in told.items()}
    vendor, family, model = (known.get(k, "?") for k in ("vendor_id", "cpu family", "model"))
    wide = ", AVX-512" if "avx512f" in known.get("flags", "").split() else ""
    return f"{vendor}, family {family}, model {model}{wide}"


def load_tolerances(path: Path) -> dict[str, Tolerance]:
    """Read the exceptions from the default tolerance, by file name.

    An entry with other fields than relative, absolute and reason, or without a reason, is a
    ``ValueError``.
    """
    found = {}
    for name, entry in _entries(path).items():
        if set(entry) - {"relative", "absolute", "reason"} or not entry.get("reason"):
            raise ValueError(
                f"{name}: a tolerance has relative, absolute and a reason; got {entry}"
            )
        found[name] = Tolerance(**{k: float(v) for k, v in entry.items() if k != "reason"})
    return found


def _entries(path: Path) -> dict[str, Any]:
    """What a YAML file holds by name; it need not exist."""
    text = path.read_text(encoding="utf-8") if path.exists() else ""
    entries: dict[str, Any] = yaml.safe_load(text) or {}
    return entries


def load_samples(path: Path) -> dict[str, Sample]:
    """Read what a sample computes of each page; a page that is not named is computed whole.

    An entry with other fields, a number of entries that is no whole number >= 1, and an empty
    reason are a ``ValueError``."""
    return {page: _sample(page, entry) for page, entry in _entries(path).items()}


def _sample(page: str, entry: Mapping[str, Any]) -> Sample:
    texts = ("arguments", "instead", "kept", "processor")
    fields = {*texts, "skip"} if is_command(page) else {"first", "skip"}
    if set(entry) - fields:
        raise ValueError(
            f"{page}: a sample has the fields first (of a command: {', '.join(texts)}) and skip; "
            f"got {sorted(entry)}"
        )
    first, skip = entry.get("first", {}), entry.get("skip", {})
    skip = {"*": skip} if isinstance(skip, str) else skip
    if not all(is_whole(count, 1) for count in first.values()):
        raise ValueError(f"{page}: first says how many entries, at least 1; got {first}")
    if not all(isinstance(reason, str) and reason.strip() for reason in skip.values()):
        raise ValueError(f"{page}: what is skipped needs a reason; got {skip}")
    return Sample(first, skip, **{name: str(entry.get(name, "")) for name in texts})


def shorten(notebook: Any, *, first: Mapping[str, int], tables: Sequence[str]) -> None:
    """Let a page, a notebook, compute the first pieces only, and stop after its tables; in place.

    After the statement that gives a name of ``first`` its value, only so many of its first entries
    are kept. Text goes, and all code after the last cell that records one of the ``tables``, named
    without suffix. A name to which no cell in time gives a value is a ``PageError``.
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
    """What differs between two CSV files with their provenance; empty if nothing does.

    With ``part`` the fresh table may lack rows; those that it has must agree.
    """
    if not fresh.exists():
        return "the page does not make it any more"
    old, new = records.read(recorded), records.read(fresh)
    keys = old.provenance.get("keys")
    first, second = (old.frame, new.frame) if keys else _numbered(old.frame, new.frame)
    try:
        found = records.compare(
            first, second, keys=keys, rtol=tolerance.relative, atol=tolerance.absolute
        )
    except records.RecordError as error:
        return str(error)
    if part:
        found = found[found["column"] != "(row only in first)"]
    if found.empty:
        return ""
    return f"{len(found)} differences\n{found.head(_SHOWN).to_string(index=False)}"


def _numbered(first: pd.DataFrame, second: pd.DataFrame) -> tuple[pd.DataFrame, pd.DataFrame]:
    """With a number for each row of a group, where no columns identify it: points of a curve."""
    groups = [c for c in first.columns if not pd.api.types.is_float_dtype(first[c].dtype)]
    if not groups or not first.duplicated(groups).any() or not {*groups} <= {*second.columns}:
        return first, second
    first, second = (f.assign(row=f.groupby(groups).cumcount()) for f in (first, second))
    return first, second


def selected(pages: Mapping[str, Collection[str]], wanted: Sequence[str]) -> dict[str, list[str]]:
    """Choose pages by their names, or by those of their tables.

    ``pages`` maps a page to the file names of its tables, as
    :func:`companion.build.verified.recorded_tables` does; ``wanted`` are pages
    (``4-subsampling/audit``, or the last part if only one page has it) and tables (``figure-3-1``,
    with or without ``.csv``). A table is made by executing its page, so all tables of the page come
    with it. Without a name all pages are chosen; one that is neither, or belongs to several pages,
    is a ``ValueError``.

    >>> selected({"3-chapter/audit": ["a.csv"], "3-chapter/cost": ["b.csv", "c.csv"]}, ["b"])
    {'3-chapter/cost': ['b.csv', 'c.csv']}
    """
    chosen = set()
    for name in wanted:
        table = f"{name.removesuffix('.csv')}.csv"
        found = [name] if name in pages else []
        found = found or [page for page, tables in pages.items() if table in tables]
        found = found or [page for page in pages if page.rpartition("/")[2] == name]
        if not found:
            raise ValueError(f"{name}: no page with recorded tables, and no recorded table")
        if len(found) > 1:
            raise ValueError(f"{name} is the name of several pages: {', '.join(found)}")
        chosen.add(found[0])
    return {page: list(pages[page]) for page in pages if page in chosen or not wanted}


def verify(
    root: Path,
    workers: int,
    wanted: Sequence[str] = (),
    *,
    sample: bool = False,
    minutes: float | None = None,
) -> Iterator[list[Outcome]]:
    """Compute the tables of pages and commands again and compare; pieces of them side by side.

    As soon as a page is done it yields an outcome for each of its recorded tables, and for each
    table that it makes but that is not recorded. One whose tables all agree is noted in
    ``data/results/verified.json``. With ``sample`` a piece of each table is computed; ``wanted`` is
    as in :func:`selected`, and ``workers`` the number of processes of a sweep, or of pieces. With
    ``minutes`` the makers are taken in a random order, and none is begun later than that.

    Raises
    ------
    ValueError
        If a name in `wanted` is unknown, ``samples.yml`` names a page without tables, or
        ``minutes`` is negative or NaN.
    RecordError
        If a recorded table has no provenance, or was edited.
    """
    if minutes is not None and not minutes >= 0:
        raise ValueError(f"minutes must be at least 0; got {minutes}")
    until = time.time() + 60 * (math.inf if minutes is None else minutes)
    folder = root / "_build" / "verify"
    every = recorded_tables(root)
    samples = load_samples(root / "data" / "results" / "samples.yml")
    unknown = sorted(name for name in samples.keys() - every.keys() if not is_command(name))
    if unknown:
        raise ValueError(f"no recorded tables: {', '.join(unknown)}")
    shutil.rmtree(folder, ignore_errors=True)
    chosen = selected(every, wanted)
    order = list(chosen)
    if minutes is not None:
        random.shuffle(order)
    compute = functools.partial(_compute, root, sample=sample, until=until)
    if not sample or workers == 1:
        for maker in order:
            plan = samples.get(maker, Sample())
            yield compute(maker, chosen[maker], plan, workers).noted(root)
        return
    # A piece is small: one core each, and the commands first, which take longest.
    if minutes is None:
        order.sort(key=lambda maker: not is_command(maker))
    with ProcessPoolExecutor(workers, mp_context=multiprocessing.get_context("spawn")) as pool:
        running = [
            pool.submit(compute, maker, chosen[maker], samples.get(maker, Sample()), 1)
            for maker in order
        ]
        for done in as_completed(running):
            yield done.result().noted(root)


@dataclass(frozen=True)
class _Computed:
    """What a page or command, its ``maker``, gave, and the digests taken before it ran."""

    maker: str
    made_from: Mapping[str, Any]
    outcomes: list[Outcome]
    seconds: float | None
    workers: int

    def noted(self, root: Path) -> list[Outcome]:
        """The outcomes; tables that all agree are noted."""
        if all(o.compared and not o.problem for o in self.outcomes):
            whole = all(o.compared == o.rows for o in self.outcomes)
            known = "all rows" if whole else "some rows"
            note(root, self.maker, self.made_from, known, self.seconds, self.workers)
        return self.outcomes


def _compute(
    root: Path,
    maker: str,
    names: Sequence[str],
    plan: Sample,
    workers: int,
    *,
    sample: bool,
    until: float,
) -> _Computed:
    """Compute the tables of a page or a command again, unless it is too late, and compare."""
    part = sample or bool(plan.instead)
    may_skip, late = part or is_command(maker), "no time was left" if time.time() > until else ""
    skipped = {name: (plan.reason(name) if may_skip else "") or late for name in names}
    computed = [name for name in names if not skipped[name]]
    fresh = root / "_build" / "verify" / maker.replace("/", "__").replace(" ", "_")
    made_from = digests(root, maker, sources_of(root))  # before it runs
    problem, start = "", time.perf_counter()
    if computed:
        print(f"{maker}: computing {', '.join(computed)} again ...", flush=True)
        if is_command(maker):
            problem = _run_again(root, maker, fresh, plan if part else Sample())
        else:
            stems = [name.removesuffix(".csv") for name in computed]
            edit = functools.partial(shorten, first=plan.first, tables=stems)
            problem = _execute_again(root, maker, fresh, workers, edit if sample else None)
    seconds = None if part else round(time.perf_counter() - start, 1)
    outcomes = [
        _outcome(root, maker, name, fresh / name, problem, part)
        if name in computed
        else Outcome(name, maker, _rows(table_path(root, name)), skipped=skipped[name])
        for name in names
    ]
    tables = itertools.chain(fresh.glob("*.csv"), fresh.glob("laptop/*.csv"))
    extra = sorted({path.relative_to(fresh).as_posix() for path in tables} - set(names))
    outcomes += [Outcome(name, maker, 0, "made, but not recorded") for name in extra]
    return _Computed(maker, made_from, outcomes, seconds, workers)


def _rows(path: Path) -> int:
    return len(records.read(path).frame)


def _outcome(root: Path, maker: str, name: str, fresh: Path, problem: str, part: bool) -> Outcome:
    """Compare one table that was computed again, unless its page or command failed."""
    recorded = table_path(root, name)
    tolerances = load_tolerances(root / "data" / "results" / "tolerances.yml")
    tolerance = tolerances.get(name, Tolerance())
    found = problem or compare_file(recorded, fresh, tolerance, part=part)
    compared = _rows(fresh) if fresh.exists() else 0
    return Outcome(name, maker, _rows(recorded), found, compared)


def _execute_again(
    root: Path, page: str, fresh: Path, workers: int, edit: Callable[[Any], object] | None
) -> str:
    """Execute one page into a folder; return what went wrong, or nothing."""
    try:
        execute_page(PageRun(root, page, "paper", workers=workers, results_dir=fresh, edit=edit))
    except PageError as error:
        return str(error)
    return ""


def _run_again(root: Path, command: str, fresh: Path, plan: Sample) -> str:
    """Run a command so that its tables go into a folder; return what went wrong, or nothing."""
    work = fresh / "work"
    work.mkdir(parents=True)
    for place in (root / plan.kept).glob("*") if plan.kept else ():
        (work / place.name).symlink_to(place)  # what is new goes beside them, not into `kept`
    typed = [*shlex.split(plan.instead or command)[1:], *shlex.split(plan.arguments)]
    typed += ["--folder", str(work), "--records", str(fresh)]
    programs = compiled_programs(root, fresh / "compiled") if plan.kept else nullcontext()
    try:
        with (fresh / "output.txt").open("w") as output, programs:
            subprocess.run(
                [sys.executable, *typed], cwd=root, stdout=output, stderr=output, check=True
            )
    except subprocess.CalledProcessError as error:
        last = (fresh / "output.txt").read_text(encoding="utf-8").splitlines()[-5:]
        return "\n".join([f"the command failed with status {error.returncode}", *last])
    for path in (fresh / "paper").glob("*.csv"):  # named as recorded_tables does
        for file in (path, path.with_suffix(".json")):
            file.replace(fresh / file.name)
    return ""


def table(outcomes: Sequence[Outcome]) -> str:
    """Outcomes as lines of text, the details of each problem below its line."""
    width = max((len(outcome.name) for outcome in outcomes), default=0)
    lines = []
    for outcome in outcomes:
        first, _, details = outcome.problem.partition("\n")
        verdict = f"DIFFERS: {first}" if outcome.problem else "agrees"
        if outcome.skipped:
            verdict = f"not computed: {outcome.skipped}"
        elif 0 < outcome.compared < outcome.rows:
            verdict = f"{verdict} ({outcome.compared} rows computed)"
        lines.append(f"{outcome.name:<{width}}  {outcome.rows:>7} rows  {verdict}")
        lines += [f"    {line}" for line in details.splitlines()]
    return "\n".join(lines)


def summary(outcomes: Sequence[Outcome], seconds: float) -> str:
    """Say in one line how many tables agree, which do not, and how many were not computed."""
    done = [outcome for outcome in outcomes if not outcome.skipped]
    wrong = [outcome.name for outcome in done if outcome.problem]
    text = f"{len(done) - len(wrong)} of {len(done)} tables agree"
    text += f"; not: {', '.join(wrong)}" if wrong else ""
    skipped = len(outcomes) - len(done)
    return f"{text}{f'; {skipped} not computed' if skipped else ''} ({seconds:.0f} s)"


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; 1 if anything differs, is stale, or cannot be compared."""
    parser = argparse.ArgumentParser(
        prog="python -m companion.build.verification",
        description="Compute the recorded results again and compare.",
    )
    parser.add_argument("wanted", nargs="*", metavar="PAGE", help="pages or tables (default: all)")
    parser.add_argument("--sample", action="store_true", help="one piece of each table only")
    parser.add_argument("--minutes", type=float, metavar="M", help="begin nothing after M minutes")
    parser.add_argument("--accept", metavar="REASON", help="note pages, and compute nothing")
    parser.add_argument("--stale", action="store_true", help="only say what is older")
    options = parser.parse_args(argv)
    root, start = Path.cwd().resolve(), time.perf_counter()
    outcomes: list[Outcome] = []
    if options.stale:
        found = stale(root)
        print("\n".join(found) or "no table is older than its code")
        return int(bool(found))
    try:
        if options.accept is not None:
            return _accept(root, options.wanted, options.accept)
        within = {"sample": options.sample, "minutes": options.minutes}
        for part in verify(root, available_cores(), options.wanted, **within):
            print(f"{table(part)}\n  after {time.perf_counter() - start:.0f} s", flush=True)
            outcomes += part
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
    for page in selected(recorded_tables(root), wanted):
        made_from = digests(root, page, sources_of(root))
        note(root, page, made_from, f"accepted: {reason.strip()}", None, available_cores())
        print(f"{page}: accepted, not computed")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
