"""Long computations of this chapter: kept in folders, told about, continued after a stop.

A computation is kept under a fingerprint of all it depends on: settings, the code that computes
it, and the versions of the libraries that this imports
(:func:`companion.dependencies.code_of`). So what has changed is computed again, and nothing else.
Two processes that ask for the same thing at the same time do not compute it twice: the second
waits.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import numpy as np

from companion.sweeps import Deadline, load_checkpoint, locked, save_checkpoint, write_atomic
from dprl.agents.episodes import Episodes

T = TypeVar("T")

#: Called with a stage's name, what is done of it and what is to be done.
Progress = Callable[[str, int, int], object]

_SECONDS_BETWEEN_CHECKPOINTS = 60.0  # one of data oracles holds their whole replay buffers


@dataclass(frozen=True)
class Watch:
    """When a computation stops, and whom it tells how far it is.

    What is done until the deadline is kept; ``progress(stage, done, total)`` is called now and
    then, and at the end of each stage.
    """

    deadline: Deadline | None = None
    progress: Progress | None = None

    def check(self) -> None:
        """Raise :class:`companion.checkpoints.OutOfTime` if the deadline has passed."""
        if self.deadline is not None:
            self.deadline.check()

    def report(self, stage: str, done: int, total: int) -> None:
        """Tell how far a stage is."""
        if self.progress is not None:
            self.progress(stage, done, total)


@dataclass(frozen=True)
class ResumableTraining:
    """A training that goes on from its checkpoint.

    Parameters
    ----------
    stage : str
        What to call it.
    total : int
        Steps when it ends.
    path : path or None
        Its checkpoint: written about once a minute, and where it stops before the end.
    piece : int
        Steps between two looks at the clock.
    watch : Watch
    """

    stage: str
    total: int
    path: Path | None
    piece: int
    watch: Watch = Watch()

    def begin(self, fresh: T) -> T:
        """The state in the checkpoint, or the one that is given if there is none."""
        if self.path is None or not self.path.is_file():
            return fresh
        state: T = load_checkpoint(self.path, like=fresh)
        return state

    def go_on(self, state: T, advance: Callable[[T, int], T], done: int, until: int) -> T:
        """Take the steps from ``done`` to ``until``; ``advance(state, n)`` takes n of them.

        ``OutOfTime`` is raised if the deadline passed before the last step.
        """
        written = time.monotonic()
        while done < until:
            count = min(self.piece, until - done)
            state, done = advance(state, count), done + count
            self.watch.report(self.stage, done, self.total)
            if done == self.total:
                break
            deadline = self.watch.deadline
            late = deadline is not None and deadline.passed
            due = time.monotonic() - written > _SECONDS_BETWEEN_CHECKPOINTS
            if late or due:
                self.keep(state)
                written = time.monotonic()
            if late:
                self.watch.check()
        return state

    def keep(self, state: object) -> None:
        """Write the checkpoint now, before other work that takes long."""
        if self.path is not None:
            save_checkpoint(self.path, state)


@dataclass
class Kept:
    """A folder for a result; whether it is there, and what it took, in all its pieces."""

    place: Path
    done: bool
    seconds: float


@contextmanager
def computed_once(place: Path, watch: Watch) -> Iterator[Kept]:
    """The folder of a result, locked; where it is not done, the block computes it.

    When the block has succeeded the result is done, and its checkpoints are removed. If there is
    something to do and no time, ``OutOfTime`` is raised.
    """
    with locked(place):
        clock, finished = place / "seconds.json", place / "finished"
        before = json.loads(clock.read_text()) if clock.is_file() else 0.0
        kept = Kept(place, finished.is_file(), before)
        if kept.done:
            yield kept
            return
        watch.check()
        start = time.perf_counter()
        try:
            yield kept
        finally:
            kept.seconds = before + time.perf_counter() - start
            write_atomic(clock, json.dumps(kept.seconds))
        finished.touch()
        for file in place.glob("checkpoint*.npz"):
            file.unlink()


def integers(stream: np.random.SeedSequence, count: int) -> list[int]:
    """So many seeds of a stream."""
    return [int(x) for x in stream.generate_state(count)]


def save_episodes(path: Path, sets: Iterable[Episodes]) -> None:
    """Write sets of episodes into one file, one after the other."""
    save_checkpoint(path, Episodes.concatenate(list(sets)).arrays())


def load_episodes(path: Path, sets: int) -> list[Episodes]:
    """Read what :func:`save_episodes` wrote: so many sets, all of one size."""
    every = Episodes(**load_checkpoint(path))
    return split_evenly(every, sets)


def split_evenly(episodes: Episodes, sets: int) -> list[Episodes]:
    """So many sets of one size, in order."""
    return [episodes.select(part) for part in np.split(np.arange(len(episodes)), sets)]


def in_pairs(items: Sequence[T]) -> list[list[T]]:
    """Two by two, in order: ``[oracle][half]`` of what is listed oracle by oracle."""
    return [list(items[i : i + 2]) for i in range(0, len(items), 2)]
