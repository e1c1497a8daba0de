"""Chapter 5 at larger sizes: ``python -m experiments.chapter_5 --run A``, or ``--profile laptop``.

With ``--run`` the cells of a run of :mod:`experiments.chapter_5.runs` are computed, and their
tables kept under ``data/results/laptop`` with its name, as ``run-a-games.csv``. With
``--profile`` the studies of a profile (:mod:`experiments.chapter_5.sizes`) are computed one
after the other, each in four stages and then its attacks, then the leaks
(:mod:`experiments.chapter_5.leaks`), and the tables of the finished ones kept under
``data/results/<profile>``. A *cell* is the part of a table that one of them makes.

Everything that was computed before is used: a run that was killed, or stopped by ``--minutes``,
goes on where it was. The tables hold all cells that are finished so far, also those of earlier
runs and of other machines; which machine computed a cell stands in the table's provenance.

Exit status: 0 if all cells are finished, 75 if the time was up before, 2 for a wrong command line.
"""

from __future__ import annotations

import argparse
import os
import platform
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import jax
import pandas as pd

from companion import records
from companion.sweeps import Deadline, OutOfTime, code_of
from experiments.chapter_5 import runs
from experiments.chapter_5.runs import RUNS, Cell
from experiments.chapter_5.sizes import PROFILES
from experiments.chapter_5.stages import Watch

#: Named in the provenance of the tables.
LIBRARIES = ("jax", "jaxlib", "optax", "mujoco", "gymnasium", "numpy")
OUT_OF_TIME = 75  # EX_TEMPFAIL: try again
_SECONDS_BETWEEN_LINES = 30.0


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; see the module."""
    options = _arguments(argv)
    plan = _of_profile(options.profile) if options.run is None else _of_run(options.run)
    chosen = list(options.cell or plan.cells)
    unknown = ", ".join(name for name in chosen if name not in plan.cells)
    if unknown:
        there = ", ".join(plan.cells)
        print(f"no cell {unknown} in {plan.name}; there are {there}", file=sys.stderr)
        return 2
    deadline = None if options.minutes is None else Deadline(60 * options.minutes)
    for number, name in enumerate(chosen):
        try:
            _compute(name, plan, options.folder, options.records, deadline)
        except OutOfTime:
            print(
                f"Time is up after {options.minutes:g} minutes; what is done is kept. "
                f"Run the same command again to go on. Not finished: {', '.join(chosen[number:])}"
            )
            return OUT_OF_TIME
    print(f"finished: {', '.join(chosen)}")
    return 0


def _arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m experiments.chapter_5",
        description="Train oracles, models and attacks of chapter 5 and record the results.",
    )
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--profile", choices=PROFILES, default="quick")
    what.add_argument("--run", choices=RUNS, help="one of the larger runs")
    parser.add_argument(
        "--resume",
        action="store_true",
        help="go on with what an earlier run left; this is always done, the flag says so",
    )
    parser.add_argument(
        "--cell", action="append", metavar="NAME", help="only this cell; may be given again"
    )
    parser.add_argument(
        "--minutes", type=_positive, metavar="M", help="stop at the next checkpoint after M"
    )
    parser.add_argument(
        "--folder", type=Path, default=Path("_build/membership"), help="where studies are kept"
    )
    parser.add_argument(
        "--records", type=Path, default=None, help="instead of data/results, for the tables"
    )
    return parser.parse_args(argv)


def _positive(text: str) -> float:
    number = float(text)
    if not 0 < number < float("inf"):
        raise argparse.ArgumentTypeError(f"must be a positive number, got {text}")
    return number


@dataclass(frozen=True)
class _Plan:
    """All cells of a profile or run by name, and where and how their tables are recorded."""

    name: str
    cells: dict[str, Cell]
    profile: str
    command: str
    prefix: str = ""


def _of_profile(profile: str) -> _Plan:
    sizes = PROFILES[profile]
    studies = zip(sizes.studies, sizes.attacks, strict=True)
    cells = {of.name: Cell(of, attacks=attacks) for of, attacks in studies}
    cells |= {f"leak-{one.name}": Cell(one) for one in sizes.leaks}
    command = f"python -m experiments.chapter_5 --profile {profile} --resume"
    return _Plan(f"profile {profile}", cells, profile, command)


def _of_run(run: str) -> _Plan:
    cells = {cell.name: cell for cell in RUNS[run]}
    command = f"python -m experiments.chapter_5 --run {run}"
    return _Plan(f"run {run}", cells, "laptop", command, f"run-{run.lower()}-")


def _compute(
    name: str, plan: _Plan, folder: Path, results: Path | None, deadline: Deadline | None
) -> None:
    """Compute one cell and record its tables; those of ``quick`` are only shown."""
    cell = plan.cells[name]
    print(f"{name}: {cell.study.oracles} oracles, {cell.study.models} models", flush=True)
    progress, start = _Progress(name), time.perf_counter()
    try:
        tables, about = runs.compute(cell, folder, Watch(deadline, progress))
    finally:
        progress.end()
    minutes = (time.perf_counter() - start) / 60
    print(f"{name}: finished, {minutes:.1f} minutes in this run", flush=True)
    if plan.profile == "quick":
        print(_overview(next(iter(tables.values()))))
        return
    for of, table in tables.items():
        if len(table):
            _merge(of, table.assign(cell=name), plan, {**about, **_machine()}, results)


def _overview(table: pd.DataFrame) -> str:
    """The columns that say most."""
    if "split" in table:
        table = table[table["split"] == "target"]
    wanted = ["mode", "labels", "training", "shadows", "draws", "accuracy", "accuracy_se", "auc"]
    wanted += ["trajectories", "updates", "access", "attack"]
    columns = [name for name in wanted if name in table]
    return table[columns].round(3).to_string(index=False)


def _machine() -> dict[str, object]:
    return {
        "device": jax.devices()[0].device_kind,
        "cores": os.cpu_count(),
        "machine": platform.machine(),
        "python": platform.python_version(),
        **{library: version(library) for library in ("dprl", *LIBRARIES)},
        "code": code_of(runs.compute),
    }


def _merge(
    name: str, table: pd.DataFrame, plan: _Plan, about: dict[str, Any], results: Path | None
) -> None:
    """Put a cell's rows into the record in place of its older ones; keep the others'."""
    cell = str(table["cell"].iloc[0])
    parts, described = {cell: table}, {cell: about}
    name = plan.prefix + name
    path = (Path("data/results") if results is None else results) / plan.profile / f"{name}.csv"
    if path.is_file():
        old = records.read(path)
        known = old.provenance["parameters"]["cells"]
        for other, rows in old.frame.groupby("cell"):
            if other in plan.cells and other != cell and list(rows) == list(table):
                parts[str(other)], described[str(other)] = rows, known[other]
    present = [one for one in plan.cells if one in parts]
    seconds = sum(sum(described[one]["seconds"].values()) for one in present)
    records.keep(
        name,
        pd.concat([parts[one] for one in present], ignore_index=True),
        records.Command(
            plan.command,
            profile=plan.profile,
            libraries=LIBRARIES,
            device=jax.devices()[0].device_kind,
            folder=results,
        ),
        seed=plan.cells[cell].study.seed,
        parameters={"cells": {one: described[one] for one in present}},
        seconds=seconds,
    )


class _Progress:
    """Progress of one cell, on stderr: a bar on a terminal, a line now and then elsewhere."""

    def __init__(self, name: str) -> None:
        self.name, self.stage, self.last = name, "", 0.0
        self.bar: Any = None

    def __call__(self, stage: str, done: int, total: int) -> None:
        if sys.stderr.isatty():
            self._draw(stage, done, total)
        elif stage != self.stage or time.monotonic() - self.last > _SECONDS_BETWEEN_LINES:
            self.stage, self.last = stage, time.monotonic()
            print(f"{self.name}: {stage} {done} of {total}", file=sys.stderr, flush=True)

    def _draw(self, stage: str, done: int, total: int) -> None:
        from tqdm import tqdm

        if stage != self.stage:
            self.end()
            self.stage, self.bar = stage, tqdm(total=total, desc=f"{self.name}: {stage}")
        self.bar.update(done - self.bar.n)

    def end(self) -> None:
        """Close the bar."""
        if self.bar is not None:
            self.bar.close()
        self.bar, self.stage = None, ""


if __name__ == "__main__":
    raise SystemExit(main())
