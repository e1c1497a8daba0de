"""Does a page notice when the mathematics under it is changed?

``python -m companion.build.mutation`` (``make mutate``) executes each page in one plain process,
without a kernel. When a function of the package is called for the first time, the process
forks: in the child every value of that function is changed, by a factor of two, say, and the
child goes on with the page; the parent waits, and then goes on with the right value. A change
is *noticed* if some ``claims.check`` comes to another verdict or refuses what it is given, or
if the page raises, as by an ``assert``.

- For every public function of ``dprl.bounds`` the value is multiplied by 0.5 and by 2. A bound
  must be noticed in the direction that would make it false, an exact value in both, and a
  printed statement that the book refutes in one of them (the other makes it only more false).
  What a function is, its name and the first line of its docstring say, or ``kinds`` in
  ``book/mutation.yml``. The smallest change noticed, of .95, .8 and .5 and their reciprocals,
  says how sharp the check is.
- For every claim it is sought which change makes *its own* check fail: first of those bounds,
  then of the other functions of the package that the page calls, then of the page's own
  functions and of the values that it assigns; of these first what appears at most three code
  cells before the check, since the rest of the page need not run for it, and only if that moves
  nothing what appears at most six cells before it, then twelve, then anywhere. On a page that was
  examined before it changed, what moved its claims then is tried before all of these. Beside the
  two factors there are ``uneven``, factors 2 and 0.5 in turn, for checks that compare values of
  one function, and ``negated``.

Numbers are changed inside arrays, tuples, lists, mappings, dataclasses and tables too; of a
Boolean there is only the opposite. An integer stays one.

What a page showed is kept in ``data/results/mutation`` until its code, or a definition that it
reaches, changes: a run that is stopped goes on after the last mutant that it made, on another
machine too, and ``--minutes`` ends it before the next page. The record holds all pages that are
examined, and says of the rest that they are not. Threads do not survive a fork: a mutant of a page
that uses ``jax`` may wait for them for ever. One that has done nothing for a while is ended, and
made again by executing the whole page with the change in it; after a few of them all others of the
page are made so. Survivors have a reason in ``book/mutation.yml``, and a reason without a survivor
is an error.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import math
import os
import re
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
import yaml

from companion import claims, records
from companion.build import freshness, site
from companion.build.execution import page_environment
from companion.build.mutants import (
    BOUNDS,
    KINDS,
    PACKAGES,
    REQUIRED,
    MutationError,
    kind_of,
    public_functions,
)
from companion.build.mutated_page import MutationTask, say, work
from companion.dependencies import sources_of
from companion.files import source_path, write_atomic
from companion.page_code import code_cells, code_of_page

_FAR = (6, 12, math.inf)
#: The stages in their order, and how many code cells before that of a check a value appears in
#: each, step by step: what appears late is soon tried, and often settles the claim.
WINDOWS = {
    "bounds": (math.inf,),
    "near package": (3,),
    "near page": (3,),
    "package": _FAR,
    "page": _FAR,
}
STAGES = tuple(WINDOWS)
#: Share of the functions, and of the claims, that must be noticed.
GOAL = 0.95
#: To be raised when a mutant becomes another, so that no page's old results are kept. Further
#: mutants take nothing away from what was noticed.
_VERSION = 3
_MISSED_PAGE = "no page calls it"
_WAITS = "not examined yet"
_KEYS = ["function", "mutation", "page"]
_SURVIVES = "survives: "


def _in_a_process(
    root: Path, task: MutationTask, tell: Callable[[dict[str, Any]], None]
) -> dict[str, Any]:
    """The outcome of a task; what is known of each mutant is told as soon as it is."""
    environment = {
        **os.environ,
        **page_environment(root, task.page, "quick"),
        "DPRL_TTY": "",
        "MPLBACKEND": "agg",  # nothing is drawn
        "IPYTHONDIR": str(root / "_build" / "mutation" / "ipython"),
    }
    command = [sys.executable, "-m", "companion.build.mutation", "--work"]
    outcome: dict[str, Any] = {}
    with subprocess.Popen(
        command, cwd=root, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        with process.stdin as stdin:
            json.dump(dataclasses.asdict(task), stdin)
        for line in process.stdout:
            said = json.loads(line)
            if "result" in said:
                tell(said)
            else:
                outcome = said
    if process.returncode:
        raise subprocess.CalledProcessError(process.returncode, command)
    if outcome["error"]:
        raise MutationError(outcome["error"])
    return outcome


@dataclass(frozen=True)
class Sitting:
    """What an earlier one has shown of a page, and what to do with what this one shows."""

    before: Mapping[str, Any] | None = None
    keep: Callable[[dict[str, Any]], None] = lambda found: None


def examine(
    root: Path,
    page: str,
    wanted: set[str],
    *,
    jobs: int = 1,
    stages: Sequence[str] = STAGES,
    packages: Sequence[str] = (BOUNDS, *PACKAGES),
    sitting: Sitting | None = None,
) -> dict[str, Any]:
    """Change what is under one page, and see what it notices.

    ``wanted`` are the functions of the bounds whose own rows are sought here, and ``jobs`` mutants
    work at the same time. The ``stages`` say which values are changed, in this order; later ones
    only while claims are unmoved, and none that the ``sitting`` has from an earlier answer.
    ``packages`` are that of the bounds, and those whose other functions may be changed.

    The answer has ``results`` (a ``Result`` each, as a dict), ``unmoved`` claims, ``seconds`` of
    the clean page, the ``stages`` done, the mutants ``made`` for a stage that is not done, and
    those ``known`` to have moved claims before the page changed, which are tried first. It
    is given to the sitting's ``keep`` after each mutant, so that another can have it as
    ``before``; not for the bounds, where the next mutant depends on what the last one showed. A
    page that fails although nothing is changed is a ``MutationError``."""
    sitting = sitting or Sitting()
    ledger = claims.load(root / "book" / "claims.yml").values()
    unmoved = sorted(c.id for c in ledger if c.page == page and c.expected != "not checkable")
    found: dict[str, Any] = {"results": [], "unmoved": unmoved, "seconds": 0.0, "stages": []}
    found |= sitting.before or {}
    lock = threading.Lock()

    def tell(said: dict[str, Any]) -> None:
        with lock:
            found["results"] = [*found["results"], said["result"]]
            found["unmoved"] = sorted({*found["unmoved"]} - {*said["result"]["moved"]})
            if stage != "bounds":
                found["made"] = [*found.get("made", ()), said["trial"]]
                sitting.keep(found)

    for stage in (stage for stage in stages if stage not in found["stages"]):
        for kind, window, known in _passes(stage, found.get("known", ())):
            if not (wanted if kind == "bounds" else found["unmoved"]):
                break
            limit = _limit(found["seconds"])
            task = MutationTask(
                *(page, kind, found["unmoved"], sorted(wanted), jobs, limit, packages, window),
                known=known,
                made=found.get("made", ()),
            )
            outcome = _in_a_process(root, task, tell)
            found["seconds"] = max(found["seconds"], outcome["seconds"])
            shares = [outcome["queue"][job::jobs] for job in range(jobs)]
            limit = _limit(found["seconds"])  # of the whole page: its seconds are known only now
            task = dataclasses.replace(task, unmoved=found["unmoved"], seconds=limit)
            alone = [dataclasses.replace(task, mutants=share) for share in shares if share]
            with ThreadPoolExecutor(jobs) as pool:
                list(pool.map(lambda task: _in_a_process(root, task, tell), alone))
        found["stages"] = [*found["stages"], stage]
        found.pop("made", None)
    if is_whole(found):
        found.pop("known", None)
    return found


def _limit(seconds: float) -> float:
    """How much processor time a mutant may take if the clean page takes so many seconds."""
    return max(60.0, 5 * seconds)


def _passes(
    stage: str, known: Sequence[tuple[str, str]]
) -> Iterator[tuple[str, float, Sequence[tuple[str, str]]]]:
    """Which values a stage changes, how far before a check, and, if not all, which mutants."""
    if stage == STAGES[1]:
        for kind in ("package", "page"):
            pairs = [(f, m) for f, m in known if f.startswith("page: ") == (kind == "page")]
            if pairs:
                yield kind, math.inf, pairs
    for window in WINDOWS[stage]:
        yield stage.removeprefix("near "), window, ()


def _key(root: Path, page: str) -> str:
    """Changes with a page's code, its claims, and the definitions of science that it reaches."""
    sources = sources_of(root)
    reached = sources.reached(sources.page(root, page)).modules
    sources.keep()
    science = {m: d for m, d in reached.items() if m.partition(".")[0] in PACKAGES}
    code = code_cells(source_path(root, page).read_text(encoding="utf-8"))
    parts = [code, freshness.claims_of(root, page), science, _VERSION]
    return freshness.key_of(parts)


def _kept(root: Path, page: str) -> Path:
    return root / "data" / "results" / "mutation" / f"{page.replace('/', '__')}.json"


def _read(root: Path, page: str) -> dict[str, Any] | None:
    path = _kept(root, page)
    return json.loads(path.read_text(encoding="utf-8")) if path.is_file() else None


def load_kept(root: Path, page: str) -> dict[str, Any] | None:
    """What is kept of a page; None if there is nothing, or the page or what it uses changed."""
    kept = _read(root, page)
    return kept if kept and kept["key"] == _key(root, page) else None


def _known(root: Path, page: str) -> list[tuple[str, str]]:
    """Mutants that moved claims of a page before it changed."""
    kept = _read(root, page) or {"results": []}
    moved = [(r["function"], r["mutation"]) for r in kept["results"] if r["moved"]]
    return list(dict.fromkeys(moved + [(f, m) for f, m in kept.get("known", ())]))


def _keep(root: Path, page: str, found: Mapping[str, Any]) -> None:
    """Keep what a page showed, one line a result."""
    lines = ",\n".join(json.dumps(result) for result in found["results"])
    rest = json.dumps({name: value for name, value in found.items() if name != "results"})
    write_atomic(_kept(root, page), f'{rest[:-1]}, "results": [\n{lines}\n]}}\n')


def examine_on(
    root: Path, page: str, wanted: set[str], stage: str, *, jobs: int = 1
) -> dict[str, Any]:
    """Go on with a stage of a page from what is kept of it, and keep what it shows."""
    before = load_kept(root, page) or {"known": _known(root, page)}
    started, key = time.monotonic(), _key(root, page)  # as it is now: this may take hours
    took = before.get("took", 0.0)

    def keep(found: dict[str, Any]) -> None:
        _keep(root, page, found | {"took": took + time.monotonic() - started, "key": key})

    found = examine(root, page, wanted, jobs=jobs, stages=[stage], sitting=Sitting(before, keep))
    keep(found)
    return found


def is_whole(entry: Mapping[str, Any] | None) -> bool:
    """Whether all stages of a page are done."""
    return entry is not None and set(STAGES) <= {*entry["stages"]}


def callers(root: Path, pages: Sequence[str], functions: Sequence[str]) -> dict[str, set[str]]:
    """For each page the functions, of the full names given, whose rows are sought on it.

    These are the ones that its code names. A function that no page names may be called by
    another: every page that imports something of the bounds is asked.
    """
    words = {
        page: set(re.findall(r"\w+", code_of_page(source_path(root, page).read_text("utf-8"))))
        for page in pages
    }
    near = {page for page in pages if BOUNDS.rpartition(".")[2] in words[page]}
    named = {f: {p for p in near if f.rpartition(".")[2] in words[p]} for f in functions}
    return {page: {f for f in functions if page in (named[f] or near)} for page in pages}


def satisfied(kind: str, noticed: Mapping[str, str]) -> bool:
    """Whether a function of some kind was noticed in the directions that count.

    >>> satisfied("exact", {"x 0.5": "claim a", "x 2": ""})
    False
    """
    seen = [bool(noticed.get(mutation)) for mutation in KINDS[kind]]
    return any(seen) if kind == "refuted" else all(seen)


@dataclass(frozen=True)
class Notes:
    """``book/mutation.yml``: kinds that no docstring says, and why something survives."""

    kinds: Mapping[str, str]
    survivors: Mapping[str, str]


def load_notes(path: Path) -> Notes:
    """Read the list of kinds and survivors; it need not exist.

    An unknown kind, or a survivor without a reason, is a ``MutationError``.
    """
    if not path.is_file():
        return Notes({}, {})
    entries = yaml.safe_load(path.read_text(encoding="utf-8")) or {}
    if set(entries) - {"kinds", "survivors"}:
        raise MutationError(f"{path.name} has kinds and survivors, got {', '.join(entries)}")
    notes = Notes(entries.get("kinds") or {}, entries.get("survivors") or {})
    for name, kind in notes.kinds.items():
        if kind not in KINDS:
            raise MutationError(f"{path.name}: {name}: no kind is called {kind!r}")
    for name, why in notes.survivors.items():
        if not isinstance(why, str) or not why.strip():
            raise MutationError(f"{path.name}: {name}: say why it survives")
    return notes


def table(
    root: Path,
    pages: Sequence[str],
    kept: Mapping[str, Mapping[str, Any]],
    functions: Mapping[str, str],
    notes: Notes,
) -> tuple[pd.DataFrame, list[str]]:
    """The rows of the record, and what is wrong with the list of survivors.

    ``kept`` is what each of the pages showed (:func:`examine`); some may be missing. ``functions``
    are the public ones of the bounds with their kinds. The rows have ``function`` (of a claim its
    id), ``mutation``, ``page``, ``noticed`` and ``why``; wrong are survivors without a reason, and
    reasons without a survivor. What may still be noticed on a page, or at a stage, that is not
    examined yet has the mutation "none", and is neither.
    """
    rows: list[tuple[str, str, str, bool, str]] = []
    alive: set[str] = set()
    waiting: set[str] = set()
    left = [page for page in pages if "bounds" not in kept.get(page, {"stages": ()})["stages"]]
    sought = callers(root, left, list(functions))
    for name, kind in functions.items():
        short = name.removeprefix(f"{BOUNDS}.")
        shown = [
            (page, r["mutation"], r["notice"])
            for page, entry in kept.items()
            for r in entry["results"]
            if r["function"] == name
        ]
        good = satisfied(kind, {mutation: notice for _, mutation, notice in shown if notice})
        if not good and any(name in wanted for wanted in sought.values()):
            waiting.add(short)
            rows.append((short, "none", "none", False, _WAITS))
            continue
        if not good:
            alive.add(short)
        reason = notes.survivors.get(short, "")
        for page, mutation, notice in shown:
            why = notice or (_harmless(kind, mutation) if good else _SURVIVES + reason)
            rows.append((short, mutation, page, bool(notice), why))
        if not shown:
            rows.append((short, "x 0.5", "none", False, _SURVIVES + (reason or _MISSED_PAGE)))
    for claim in claims.load(root / "book" / "claims.yml").values():
        entry = kept.get(claim.page)
        movers = [r for r in entry["results"] if claim.id in r["moved"]] if entry else []
        if movers:
            how = f"{movers[0]['function'].removeprefix(f'{PACKAGES[0]}.')} {movers[0]['mutation']}"
            rows.append((claim.id, how, claim.page, True, "its check fails"))
        elif claim.expected == "not checkable":
            rows.append((claim.id, "none", claim.page, False, "nothing is computed"))
        elif not is_whole(entry):
            waiting.add(claim.id)
            rows.append((claim.id, "none", claim.page, False, _WAITS))
        else:
            alive.add(claim.id)
            why = _SURVIVES + notes.survivors.get(claim.id, "")
            rows.append((claim.id, "all", claim.page, False, why))
    problems = [f"{n} survives, without a reason" for n in sorted(alive - {*notes.survivors})]
    gone = [n for n in notes.survivors if n not in alive | waiting]
    problems += [f"{n} does not survive: take its reason away" for n in gone]
    return pd.DataFrame(rows, columns=[*_KEYS, "noticed", "why"]), problems


def _harmless(kind: str, mutation: str) -> str:
    down = mutation in ("x 0.5", "x 0.8", "x 0.95")
    if (kind == "upper bound" and not down) or (kind == "lower bound" and down):
        return "still a bound"
    if mutation in REQUIRED:
        return "noticed in the other direction, or on another page"
    return "too small a change"


def survivors(frame: pd.DataFrame) -> pd.DataFrame:
    """The functions and claims of a record that survive: ``function`` and ``why``, one row each."""
    mark = _SURVIVES.strip()  # a reason may be empty
    left = frame.loc[frame["why"].str.startswith(mark), ["function", "why"]]
    left = left.assign(why=left["why"].str.removeprefix(mark).str.strip())
    return left.drop_duplicates().reset_index(drop=True)


def counts(frame: pd.DataFrame) -> dict[str, tuple[int, int]]:
    """How many ``functions`` and ``claims`` of a record are noticed, and of how many.

    Claims that cannot be checked do not count, nor does what is not examined yet.
    """
    names = set(frame.loc[frame["mutation"] != "none", "function"])
    noticed = names - set(survivors(frame)["function"])
    claim_ids = {name for name in names if ":" in name}
    return {
        "functions": (len(noticed - claim_ids), len(names - claim_ids)),
        "claims": (len(noticed & claim_ids), len(claim_ids)),
    }


def run_all(
    root: Path,
    pages: Sequence[str],
    functions: Sequence[str],
    jobs: int,
    minutes: float = float("inf"),
) -> int:
    """Test every page that is not kept; the number of failures.

    First the bounds on all pages, then page by page what settles the claims; then the same for
    pages that use ``jax``, since few of their mutants can be forked. After so many ``minutes``
    nothing is begun.
    """
    sought = callers(root, pages, functions)
    failed, end = 0, time.monotonic() + 60 * minutes
    sources = sources_of(root)
    slow = {p for p in pages if "jax" in sources.reached(sources.page(root, p)).libraries}
    order: list[tuple[str, str]] = []
    for group in ([p for p in pages if p not in slow], [p for p in pages if p in slow]):
        order += [(STAGES[0], page) for page in group]
        order += [(stage, page) for page in group for stage in STAGES[1:]]
    for stage, page in order:
        before = load_kept(root, page)
        if before is not None and stage in before["stages"]:
            continue
        if time.monotonic() > end:
            break
        say(f"{stage} [{pages.index(page) + 1}/{len(pages)}] {page}")
        try:
            found = examine_on(root, page, sought[page], stage, jobs=jobs)
        except MutationError as error:
            say(f"  {error}")
            failed += 1
            continue
        left = ", ".join(found["unmoved"]) or "none"
        say(f"  unmoved claims: {left} ({found['took']:.0f} s)")
    return failed


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; 1 if a page fails, too much survives or a reason is missing."""
    parser = argparse.ArgumentParser(prog="python -m companion.build.mutation")
    parser.add_argument("--page", help="only this page; nothing is recorded")
    parser.add_argument("--function", help="only functions of this name; nothing is recorded")
    parser.add_argument("--jobs", type=int, default=1, help="mutants at the same time")
    parser.add_argument(
        "--minutes", type=float, default=float("inf"), help="begin no page after so many"
    )
    parser.add_argument("--work", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args(argv)
    root = Path.cwd().resolve()
    if options.work:
        work(root)
        return 0
    notes = load_notes(root / "book" / "mutation.yml")
    functions = {
        name: kind_of(name, function.__doc__, notes.kinds)
        for name, function in public_functions(BOUNDS).items()
    }
    pages = site.pages(root)
    if options.page or options.function:
        return _only(root, options, pages, functions)
    if run_all(root, pages, list(functions), options.jobs, options.minutes):
        say("a page failed: nothing is recorded")
        return 1
    kept = {page: entry for page in pages if (entry := load_kept(root, page))}
    examined = sum(map(is_whole, kept.values()))
    say(f"{len(kept)} of {len(pages)} pages begun, {examined} examined to the end")
    frame, problems = table(root, pages, kept, functions, notes)
    numbers_of = counts(frame)
    for name, (good, total) in numbers_of.items():
        say(f"{name}: {good} of {total} noticed ({good / max(total, 1):.1%})")
    for problem in problems:
        say(problem)
    records.keep(
        "mutation",
        frame,
        records.Command("python -m companion.build.mutation", profile="paper"),
        seed=None,
        parameters={"profile": "quick", "goal": GOAL, "pages": [examined, len(kept), len(pages)]},
        seconds=sum(entry["took"] for entry in kept.values()),  # also of earlier sittings
        keys=_KEYS,
    )
    enough = all(good >= GOAL * total for good, total in numbers_of.values())
    return int(bool(problems) or not enough or examined < len(pages))


def _only(
    root: Path, options: argparse.Namespace, pages: Sequence[str], functions: Mapping[str, str]
) -> int:
    """A page or a function alone, on the terminal."""
    chosen = [f for f in functions if options.function in (None, f, f.rpartition(".")[2])]
    sought = callers(root, pages, chosen)
    if options.page and options.page not in pages:
        say(f"no page is called {options.page}")
        return 1
    for page in [options.page] if options.page else [p for p in pages if sought[p]]:
        say(page)
        stages = ("bounds",) if options.function else STAGES
        try:
            sitting = Sitting({"known": _known(root, page)})
            found = examine(
                root, page, sought[page], jobs=options.jobs, stages=stages, sitting=sitting
            )
        except MutationError as error:
            say(f"  {error}")
            return 1
        if options.function:
            continue
        say(f"unmoved claims: {', '.join(found['unmoved']) or 'none'}")
        notices: dict[str, dict[str, str]] = {}
        for r in found["results"]:
            notices.setdefault(r["function"], {})[r["mutation"]] = r["notice"]
        left = [f for f in chosen if f in notices and not satisfied(functions[f], notices[f])]
        say(f"survivors: {', '.join(sorted(left)) or 'none'}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
