"""Sweeps: many independent trials, on one core or on a cluster, with the same numbers.

``run`` calls ``trial(task, seed)`` once for each task. Trial i gets the i-th child of
``SeedSequence(seed)``, so a result depends on the seed and on its place in the list, never
on who computes it or when:

>>> import numpy as np
>>> def throw(task, seed):
...     return int(np.random.default_rng(seed).integers(1, 7, task["dice"]).sum())
>>> once = run(throw, [{"dice": 1}, {"dice": 2}], seed=3, workers=1, label="dice")
>>> once == run(throw, [{"dice": 1}, {"dice": 2}], seed=3, workers=1, label="dice")
True

``DPRL_WORKERS`` says how many processes share the work. With ``DPRL_SCHEDULER``, the address
of a Dask scheduler (dependency group ``cluster``), the same call runs on that cluster.

Every finished trial is kept under ``_build/sweeps`` until the whole sweep has succeeded. A
sweep that was killed continues from what it had finished, unless the trial's code, the
package, the tasks or the seed have changed. Progress goes to the terminal that ``DPRL_TTY``
names, and nowhere else: not into the page.

Long work that is no sweep of independent trials finds here what it needs to be resumed:
``save_checkpoint``, ``load_checkpoint``, ``fingerprint`` and ``Deadline`` of
:mod:`companion.checkpoints`, :func:`companion.files.locked`, and
:func:`companion.dependencies.code_of`, the digest of what a function computes and with what.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import json
import os
import pickle
import shutil
import threading
import time
import types
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import joblib
import numpy as np
import pandas as pd
from numpy.random import SeedSequence
from numpy.typing import ArrayLike

from . import checkpoints
from ._numbers import is_whole
from .checkpoints import CheckpointError as CheckpointError
from .checkpoints import Deadline as Deadline
from .checkpoints import OutOfTime as OutOfTime
from .checkpoints import fingerprint as fingerprint
from .dependencies import code_of as code_of
from .dependencies import full_name, own_sources, versions_of
from .files import build_folder, replacing, sha256
from .files import locked as locked
from .files import write_atomic as write_atomic

load_checkpoint, save_checkpoint = checkpoints.load, checkpoints.save

T = TypeVar("T")
SweepTask = dict[str, Any]
Trial = Callable[[SweepTask, SeedSequence], T]


class SweepError(ValueError):
    """A sweep cannot be run as it was asked for."""


def run(
    trial: Trial[T],
    tasks: Sequence[Mapping[str, Any]],
    *,
    seed: int,
    workers: int | None = None,
    label: str,
) -> list[T]:
    """Run every task, in parallel, resuming what a killed run had finished.

    The results come in the order of the tasks, the same for any number of workers.

    Parameters
    ----------
    trial : callable
        ``trial(task, seed)`` with the task's dict and a ``SeedSequence``; it makes its own
        generator from that seed and returns something that can be pickled. It may be
        defined in a notebook cell.
    tasks : sequence of dict
        One dict per trial.
    seed : int
        The page's seed, not negative.
    workers : int, optional
        Number of processes; by default ``DPRL_WORKERS``, else 1. A cluster ignores it.
    label : str
        What the progress bar says.

    Raises
    ------
    SweepError
        If an argument is malformed, or ``distributed`` is missing for ``DPRL_SCHEDULER``.
    Exception
        What a trial raises, with a note that names the trial; finished trials are kept.
    """
    tasks = _check(trial, tasks, seed, label)
    workers = _workers(workers)
    folder = build_folder() / "sweeps" / sweep_key(trial, tasks, seed)
    seeds = SeedSequence(seed).spawn(len(tasks))
    results: dict[int, T] = dict(_kept(folder, len(tasks)))
    open_trials = [i for i in range(len(tasks)) if i not in results]
    # the last first: lists go from small to large, and no core waits for a large one at the end
    jobs = [(trial, i, tasks[i], seeds[i], label) for i in reversed(open_trials)]
    with _progress(label, len(tasks), len(results)) as advance:
        for i, result in _execute(jobs, workers):
            with contextlib.suppress(FileNotFoundError):  # another process has just finished it
                write_atomic(folder / _NAME.format(i), pickle.dumps(result))
            results[i] = result
            advance()
    shutil.rmtree(folder, ignore_errors=True)
    return [results[i] for i in range(len(tasks))]


def table(
    trial: Trial[Iterable[Mapping[str, Any]]],
    tasks: Sequence[Mapping[str, Any]],
    *,
    seed: int,
    workers: int | None = None,
    label: str,
) -> pd.DataFrame:
    """:func:`run` for trials that return rows: all rows in one table, in the order of the tasks.

    A trial returns an iterable of dicts, column -> value, or none at all; the rest is as in
    :func:`run`.
    """
    found = run(trial, tasks, seed=seed, workers=workers, label=label)
    return pd.DataFrame([row for rows in found for row in rows])


def share(array: ArrayLike) -> Path:
    """Write an array where every process of a sweep can read it, and say where.

    What a trial uses from outside travels with each of its tasks; a large array should not.
    ``np.load(path, mmap_mode="r")`` maps it, once for all processes of a machine. The name is a
    hash of the contents, so a sweep that is resumed finds the file, and its key is the same. The
    file is under ``_build/shared``; ``make clean`` removes it. An array of Python objects is a
    :class:`SweepError`.
    """
    data = np.ascontiguousarray(array)
    if data.dtype.hasobject:
        raise SweepError(f"only an array of numbers can be shared, got type {data.dtype}")
    path = build_folder() / "shared" / f"{joblib.hash(data)}.npy"
    if not path.is_file():
        path.parent.mkdir(parents=True, exist_ok=True)
        with replacing(path) as file:
            np.save(file, data)
    return path


def _check(trial: object, tasks: Any, seed: object, label: object) -> list[SweepTask]:
    if not callable(trial):
        raise SweepError(f"trial must be a function of a task and a seed, got {trial!r}")
    if not isinstance(label, str) or not label.strip():
        raise SweepError(f"label must be a non-empty text, got {label!r}")
    if not is_whole(seed):
        raise SweepError(f"seed must be a non-negative integer, got {seed!r}")
    if isinstance(tasks, str | Mapping) or not isinstance(tasks, Iterable):
        raise SweepError(f"tasks must be a list of dicts, got {type(tasks).__name__}")
    tasks = list(tasks)
    if not tasks:
        raise SweepError(f"{label}: there are no tasks")
    for i, task in enumerate(tasks):
        if not isinstance(task, Mapping) or not all(isinstance(name, str) for name in task):
            raise SweepError(f"{label}: task {i} must be a dict with names as keys, got {task!r}")
    return [dict(task) for task in tasks]


def _workers(workers: object) -> int:
    where = "workers"
    if workers is None:
        where, text = "DPRL_WORKERS", os.environ.get("DPRL_WORKERS", "1")
        workers = int(text) if text.strip().isdecimal() else text
    if not is_whole(workers, 1):
        raise SweepError(f"{where} must be a positive integer, got {workers!r}")
    return int(workers)


# -- who computes -----------------------------------------------------------------------


def _execute(jobs: list[tuple[Any, ...]], workers: int) -> Iterator[tuple[int, Any]]:
    """Index and result of each job, as they finish."""
    scheduler = os.environ.get("DPRL_SCHEDULER")
    if not jobs or (workers == 1 and not scheduler):
        yield from (_one(*job) for job in jobs)
        return
    with contextlib.ExitStack() as stack:
        if scheduler:
            stack.enter_context(_cluster(scheduler))
            backend = joblib.parallel_config("dask", n_jobs=-1)
        else:
            backend = joblib.parallel_config(
                "loky",
                n_jobs=workers,
                inner_max_num_threads=1,  # more would only fight for the cores
                idle_worker_timeout=30,
                initializer=_end_with,
                initargs=(os.getpid(),),
            )
        stack.enter_context(backend)
        stack.enter_context(warnings.catch_warnings())
        # a worker that had been idle left just now: another one takes the job
        warnings.filterwarnings("ignore", message="A worker stopped while some jobs were given")
        pool = joblib.Parallel(return_as="generator_unordered")
        yield from pool(joblib.delayed(_one)(*job) for job in jobs)


def _cluster(scheduler: str) -> Any:
    try:
        from distributed import Client
    except ImportError as error:
        raise SweepError(
            "DPRL_SCHEDULER is set but distributed is not installed: pip install distributed"
        ) from error
    return Client(scheduler)  # type: ignore[no-untyped-call]


def _one(
    trial: Trial[T], index: int, task: SweepTask, seed: SeedSequence, label: str
) -> tuple[int, T]:
    try:
        return index, trial(task, seed)
    except Exception as error:
        error.add_note(f"in trial {index} of the sweep {label!r}, task {task!r}")
        raise


def _end_with(parent: int) -> None:
    """Let this worker process end soon after its parent was killed; loky alone takes minutes."""

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(0.5)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


# -- what was finished ------------------------------------------------------------------

_NAME = "{:06d}.pickle"


def sweep_key(trial: Callable[..., Any], tasks: Sequence[Mapping[str, Any]], seed: int) -> str:
    """Key of a sweep: it changes with the trial, what the trial uses, the tasks and the seed.

    A function of a notebook cell keeps its name when its code changes, so its code counts; of
    the repository's modules what it reaches (:mod:`companion.dependencies`).
    """
    of_trial = list(_parts(trial, set()))
    names = {part.removeprefix(_OURS) for part in of_trial if part.startswith(_OURS)}
    used = own_sources().reached(names=sorted(names))
    parts = {
        "trial": sha256("\0".join(of_trial).encode()),
        "tasks": joblib.hash(list(tasks)),
        "seed": int(seed),
        "modules": used.modules,
        "libraries": versions_of(used.libraries),
    }
    return sha256(json.dumps(parts, sort_keys=True).encode())[:32]


def _kept(folder: Path, count: int) -> Iterator[tuple[int, Any]]:
    for index in range(count):
        # a result that cannot be read any more is computed again
        with contextlib.suppress(Exception):
            yield index, pickle.loads((folder / _NAME.format(index)).read_bytes())


#: Before the full name of what the repository's modules define.
_OURS = "ours "


def _parts(value: object, seen: set[int]) -> Iterator[str]:
    if isinstance(value, functools.partial):
        yield "partial"
        for item in (value.func, *value.args, *sorted(value.keywords.items())):
            yield from _parts(item, seen)
    elif isinstance(value, types.ModuleType):
        yield f"{_OURS if value.__name__ in own_sources() else 'module '}{value.__name__}"
    elif isinstance(value, type) or inspect.isroutine(value):
        if str(getattr(value, "__module__", None)) in own_sources():
            yield _OURS + full_name(value)
        else:
            yield f"name {value.__module__}.{value.__qualname__}"
            if isinstance(value, types.FunctionType) and id(value) not in seen:
                seen.add(id(value))
                yield from _function_parts(value, seen)
    elif isinstance(value, tuple | list):
        for item in value:
            yield from _parts(item, seen)
    else:
        yield f"value {joblib.hash(value)}"


def _function_parts(function: types.FunctionType, seen: set[int]) -> Iterator[str]:
    yield from _code_parts(function.__code__)
    names = set(_names(function.__code__)) & function.__globals__.keys()
    used = {name: function.__globals__[name] for name in names}
    used |= inspect.getclosurevars(function).nonlocals
    for name in sorted(used):
        yield name
        yield from _parts(used[name], seen)
    for default in (*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).items()):
        yield from _parts(default, seen)


def _names(code: types.CodeType) -> Iterator[str]:
    """Global names and attributes, also those of functions and comprehensions inside."""
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _names(constant)


def _code_parts(code: types.CodeType) -> Iterator[str]:
    yield code.co_code.hex()
    yield repr((code.co_names, code.co_varnames))
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _code_parts(constant)
        elif isinstance(constant, frozenset):  # its order differs from process to process
            yield repr(sorted(map(repr, constant)))
        else:
            yield repr(constant)


# -- progress ---------------------------------------------------------------------------


@contextlib.contextmanager
def _progress(label: str, total: int, done: int) -> Iterator[Callable[[], object]]:
    """A function that advances the bar by one trial; without a terminal it does nothing."""
    with contextlib.ExitStack() as stack:
        try:
            from tqdm import tqdm

            terminal = stack.enter_context(open(os.environ["DPRL_TTY"], "w"))  # noqa: PTH123
        except (ImportError, KeyError, OSError):
            yield lambda: None
            return
        bar = stack.enter_context(tqdm(total=total, initial=done, desc=label, file=terminal))
        yield bar.update
