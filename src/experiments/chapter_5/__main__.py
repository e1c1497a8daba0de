"""Chapter 5 at larger sizes: ``python -m experiments.chapter_5 --profile laptop``.

Computes the cells of a profile one after the other, each in four stages and then its attacks,
then the leaks (:mod:`experiments.chapter_5.leaks`), and keeps the tables of the finished ones under
``data/results/<profile>``. Everything that was computed before is used: a run that was killed,
or stopped by ``--minutes``, goes on where it was. The tables hold all cells that are finished
so far, also those of earlier runs and of other machines; which machine computed a cell stands
in the table's provenance.

``--measure`` computes no cell. It prints how many milliseconds one lockstep of a whole
population takes (one environment step and one update of each agent), for several sizes of
the population: what to look at before sizes are chosen.

Exit status: 0 if all cells are finished, 75 if the time was up before, 2 for a wrong command
line.
"""

from __future__ import annotations

import argparse
import dataclasses
import os
import platform
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pandas as pd

from companion import records
from companion.files import source_hash
from dprl.agents import bcq, ddpg, environments
from dprl.agents.checkpoints import Deadline, OutOfTime
from dprl.agents.episodes import Transitions
from experiments.chapter_5 import evaluation, leaks, study
from experiments.chapter_5.leaks import LeakDesign
from experiments.chapter_5.study import Cell, Progress

OUT_OF_TIME = 75  # EX_TEMPFAIL: try again
_LIBRARIES = ("jax", "jaxlib", "optax", "mujoco", "gymnasium", "scikit-learn")
_SECONDS_BETWEEN_LINES = 30.0


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; see the module."""
    options = _arguments(argv)
    jobs = {job.name: job for job in _jobs(options.profile)}
    if options.cell:
        unknown = [name for name in options.cell if name not in jobs]
        if unknown:
            print(
                f"no cell {', '.join(unknown)} in profile {options.profile}; "
                f"there are {', '.join(jobs)}",
                file=sys.stderr,
            )
            return 2
    chosen = [jobs[name] for name in options.cell or jobs]
    if options.measure:
        print(measure(chosen[0].cell, options.sizes).to_string(index=False))
        return 0
    deadline = None if options.minutes is None else Deadline(60 * options.minutes)
    for number, job in enumerate(chosen):
        try:
            _compute(job, options.profile, options.folder, options.records, deadline)
        except OutOfTime:
            left = ", ".join(one.name for one in chosen[number:])
            print(
                f"Time is up after {options.minutes:g} minutes; what is done is kept. "
                f"Run the same command again to go on. Not finished: {left}"
            )
            return OUT_OF_TIME
    print(f"finished: {', '.join(job.name for job in chosen)}")
    return 0


def _arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m dprl.membership",
        description="Train oracles, models and attacks of chapter 5 and record the results.",
    )
    parser.add_argument("--profile", choices=study.PROFILES, default="quick")
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
    parser.add_argument("--measure", action="store_true", help="print ms per lockstep, then stop")
    parser.add_argument(
        "--sizes",
        type=int,
        nargs="+",
        default=[8, 32, 100, 200],
        metavar="N",
        help="sizes of the population for --measure",
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
class _Job:
    """What is computed and recorded at once: a cell with its attacks, or a leak of one."""

    name: str
    cell: Cell
    leak: LeakDesign | None = None


def _jobs(profile: str) -> list[_Job]:
    found = [_Job(cell.name, cell) for cell in study.cells(profile)]
    return found + [_Job(f"leak-{one.name}", one.cell, one) for one in leaks.designs(profile)]


def _compute(
    job: _Job, profile: str, folder: Path, results: Path | None, deadline: Deadline | None
) -> None:
    """Compute one job and record its tables; those of ``quick`` are only shown.

    Raises
    ------
    OutOfTime
        If the deadline passed.
    """
    print(f"{job.name}: {job.cell.oracles} oracles, {job.cell.models} models", flush=True)
    progress, start = _Progress(job.name), time.perf_counter()
    work = _attacks if job.leak is None else _leak
    try:
        tables, about = work(job, profile, folder, deadline, progress)
    finally:
        progress.end()
    minutes = (time.perf_counter() - start) / 60
    print(f"{job.name}: finished, {minutes:.1f} minutes in this run", flush=True)
    if profile == "quick":
        print(_overview(next(iter(tables.values()))))
        return
    order = [one.name for one in _jobs(profile)]
    for name, table in tables.items():
        if len(table):
            _merge(name, table, job, profile, order, {**about, **_machine()}, results)


def _attacks(
    job: _Job, profile: str, folder: Path, deadline: Deadline | None, progress: Progress
) -> tuple[dict[str, pd.DataFrame], dict[str, Any]]:
    """Tables of a cell, and what they depend on."""
    cell, design = job.cell, evaluation.design(job.cell, profile)
    done = study.run(cell, folder, deadline, progress)
    found = evaluation.evaluate(done, design, deadline, progress)
    tables = {
        "table-5-2": evaluation.table_5_2(found.table),
        "table-5-2-draws": evaluation.table_5_2(found.per_draw),
        "learning-curves": done.curve,
        "roc": _curves(found.roc),
        "clipping": evaluation.clipping(found.table),
        "temporal-correlation": evaluation.temporal_correlation(found.table),
        "leak": leaks.study_table(done),
    }
    return tables, {
        "settings": dataclasses.asdict(cell),
        "design": dataclasses.asdict(design),
        "seconds": {k: round(v, 1) for k, v in {**done.seconds, **found.seconds}.items()},
    }


def _leak(
    job: _Job, profile: str, folder: Path, deadline: Deadline | None, progress: Progress
) -> tuple[dict[str, pd.DataFrame], dict[str, Any]]:
    """Tables of a leak, and what they depend on."""
    if job.leak is None:
        raise AssertionError("this job has no leak")
    start = time.perf_counter()
    found = leaks.run(job.leak, folder, deadline, progress)
    tables = {"leak": leaks.attack_table(found)}
    if job.leak.twins:
        tables["twins"] = leaks.twin_table(found)
    return tables, {
        "design": dataclasses.asdict(job.leak),
        "seconds": {"leak": round(time.perf_counter() - start, 1)},
    }


def _curves(roc: pd.DataFrame) -> pd.DataFrame:
    """The curves of figure 5.5 and of its control."""
    known = ["as-printed", "same-oracle"]
    kept = roc["length"] == roc["t_max"]
    kept &= roc["training"].isin(known) & roc["labels"].isin(known)
    return roc[kept].drop(columns="length").reset_index(drop=True)


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
        **{library: version(library) for library in ("dprl", "numpy", *_LIBRARIES)},
        "source_sha256": source_hash(),
    }


def _merge(
    name: str,
    table: pd.DataFrame,
    job: _Job,
    profile: str,
    order: Sequence[str],
    about: dict[str, Any],
    results: Path | None,
) -> None:
    """Put a job's rows into the record in place of its older ones; keep the others'."""
    parts, described = {job.name: table.assign(cell=job.name)}, {job.name: about}
    path = (Path("data/results") if results is None else results) / profile / f"{name}.csv"
    if path.is_file():
        old = records.read(path)
        known = old.provenance["parameters"]["cells"]
        for other, rows in old.frame.groupby("cell"):
            if other in order and other != job.name and list(rows) == list(parts[job.name]):
                parts[str(other)], described[str(other)] = rows, known[other]
    present = [one for one in order if one in parts]
    seconds = sum(sum(described[one]["seconds"].values()) for one in present)
    records.keep(
        name,
        pd.concat([parts[one] for one in present], ignore_index=True),
        profile=profile,
        command=f"python -m experiments.chapter_5 --profile {profile} --resume",
        seed=job.cell.seed,
        parameters={"cells": {one: described[one] for one in present}},
        seconds=seconds,
        libraries=_LIBRARIES,
        device=jax.devices()[0].device_kind,
        folder=results,
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


def measure(cell: Cell, sizes: Sequence[int], chunks: int = 4) -> pd.DataFrame:
    """Milliseconds of one lockstep, for several sizes of the population.

    Parameters
    ----------
    cell : Cell
        Environment, T_max and settings of the networks.
    sizes : sequence of int
        Agents in the population, each >= 1.
    chunks : int
        Timed calls; the first is not counted (it compiles). >= 2.

    Returns
    -------
    DataFrame
        ``algorithm, agents, ms_per_lockstep, updates_per_second`` (agent-updates).
    """
    rows = []
    for size in sizes:
        for name, timed in (("DDPG", _ddpg_ticks), ("BCQ", _bcq_ticks)):
            ticks, chunk = timed(cell, size, chunks)
            ms = 1e3 * float(np.median(np.diff(ticks[-chunks:]))) / chunk
            rows.append(
                {
                    "algorithm": name,
                    "agents": size,
                    "ms_per_lockstep": round(ms, 3),
                    "updates_per_second": round(1e3 * size / ms),
                }
            )
    return pd.DataFrame(rows)


def _clock() -> tuple[list[float], Callable[[int, int], None]]:
    ticks: list[float] = []
    return ticks, lambda done, total: ticks.append(time.perf_counter())


def _ddpg_ticks(cell: Cell, size: int, chunks: int) -> tuple[list[float], int]:
    chunk, (ticks, tick) = 50, _clock()
    steps = chunk * (chunks + 2)  # warm-up and the call that compiles
    ddpg.train(
        cell.environment,
        dataclasses.replace(cell.ddpg, warm_up=chunk, capacity=steps),
        seeds=range(size),
        steps=steps,
        t_max=cell.t_max,
        evaluate_every=steps,
        evaluation_episodes=1,
        chunk=chunk,
        progress=tick,
    )
    return ticks, chunk


def _bcq_ticks(cell: Cell, size: int, chunks: int) -> tuple[list[float], int]:
    chunk, (ticks, tick) = 50, _clock()
    world = environments.environment(cell.environment)
    rng = np.random.default_rng(0)
    n = 1_000
    observations = rng.standard_normal((2, n, world.observation_size)).astype(np.float32)
    data = Transitions(
        observations[0],
        rng.uniform(-1, 1, (n, world.action_size)),
        rng.standard_normal(n),
        observations[1],
        np.zeros(n, dtype=bool),
    )
    bcq.train(
        [data] * size,
        cell.bcq,
        seeds=range(size),
        updates=chunk * (chunks + 1),
        chunk=chunk,
        progress=tick,
    )
    return ticks, chunk


if __name__ == "__main__":
    raise SystemExit(main())
