"""Recorded steps (s, a, r, s', ended, cut) as trajectories, checked first.

The step of a simulator, or a row of a record, has a state s, an action a, a reward r, the next
state s' and two flags (Towers et al. 2024, gymnasium): *terminated*, the episode ended in s', so
that nothing follows and the value behind s' is 0; *truncated*, the recording was cut there, as by a
time limit, and something would have followed. One flag ``done`` for both cannot be used: the return
of an episode that was cut is not known, and a temporal difference goes on with the value of s'
after a cut, and with 0 after an end.

What is checked are the faults of records that no estimator would notice: episodes torn apart,
missing steps, a next state that is the first one after a reset, episodes without an end.

An error message says what is in the data. It is for whoever holds them, and no part of a release.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dprl import _validation as check
from dprl._validation import BoolArray, FloatArray, IntArray
from dprl.trajectories import Batch

#: What :func:`from_transitions` reads; it may read a column ``step`` too.
COLUMNS = ("episode", "state", "action", "reward", "next_state", "terminated", "truncated")


class Columns(Protocol):
    """Columns by name: a dictionary, or a table such as a data frame."""

    def __contains__(self, name: Any, /) -> bool:
        """Whether there is such a column."""

    def __getitem__(self, name: str, /) -> Any:
        """The column."""


@dataclass(frozen=True, eq=False)
class RecordedEpisodes:
    """The steps of m episodes, stored end to end; made by :func:`from_transitions`.

    Attributes
    ----------
    states, actions, next_states : ndarray of int, shape (total,)
    rewards : ndarray, shape (total,)
    lengths : ndarray of int, shape (m,)
        Steps of each episode, >= 1.
    terminated : ndarray of bool, shape (m,)
        Whether the episode ended by itself; otherwise it was cut.
    n_states : int
    """

    states: IntArray
    actions: IntArray
    rewards: FloatArray
    next_states: IntArray
    lengths: IntArray
    terminated: BoolArray
    n_states: int

    def __len__(self) -> int:
        """Number of episodes m."""
        return int(self.lengths.size)

    def trajectories(self, *, cut: Literal["refuse", "as ends"] = "refuse") -> Batch:
        """The episodes for whatever reads returns.

        ``cut`` says what becomes of an episode that was cut. Its return is not known: it is
        refused, or taken to have nothing behind the cut. The latter leaves out, from a state first
        visited in step t of T, at most gamma^(T - t + 1) times the largest value, and is as private
        as any function of one episode.

        The state in which an episode ends is in no step. Whoever counts transitions
        (:mod:`dprl.private_evaluation.control`) has to append it.

        ValueError if an episode was cut and ``cut`` is "refuse", or ``cut`` is anything else.
        """
        if cut not in ("refuse", "as ends"):
            raise ValueError(f"cut must be 'refuse' or 'as ends', got {cut!r}")
        if cut == "refuse" and not self.terminated.all():
            first = int(np.flatnonzero(~self.terminated)[0])
            raise ValueError(
                f"{int((~self.terminated).sum())} of {len(self)} episodes were cut, the first of "
                f"them number {first}, after {self.lengths[first]} steps: their returns are not "
                "known. Use temporal differences, which go on with the next state, or take cuts "
                "for ends with cut='as ends'. Do not leave these episodes out: the long ones are "
                "not like the others, and their number would tell of the data"
            )
        return Batch(self.states, self.rewards, self.lengths, self.n_states, self.actions)

    def following(self, values: ArrayLike) -> FloatArray:
        """The entry of s' for every step, and 0 where the step ended its episode.

        (n_states, ...) -> (total, ...); with features, what
        :class:`dprl.off_policy.saddle_point.FeatureSteps` calls ``next_features``.
        """
        table = check.finite_array("values", values)
        if table.ndim == 0 or table.shape[0] != self.n_states:
            raise ValueError(
                f"values must have {self.n_states} rows, one for each state, got {table.shape}"
            )
        out = table[self.next_states]
        out[np.cumsum(self.lengths)[self.terminated] - 1] = 0.0
        return out


def from_transitions(
    columns: Columns, n_states: int, *, terminal: ArrayLike | None = None
) -> RecordedEpisodes:
    """Check recorded steps and put them together; O(total) time.

    Parameters
    ----------
    columns : dict or data frame
        Columns of one length, a row for each step, episode after episode and in order of time:
        ``episode`` (integers or text), ``state``, ``action``, ``next_state`` (integers >= 0),
        ``reward`` (finite), ``terminated`` and ``truncated`` (booleans, or 0 and 1). If both
        flags are set the episode ended. If there is a column ``step``, it must rise by one from
        row to row of an episode. Other columns are not read.
    n_states : int
        States are 0 .. n_states - 1. Public: not counted in the data.
    terminal : array_like of int, optional
        The states in which episodes end, public too. If given, episodes must end when they reach
        one of them, and nowhere else; without it, an end may be anywhere.

    Raises
    ------
    TypeError, ValueError
        If a column is missing, has another length or type, or the rows contradict each other: see
        the module. The message names the first row or episode, and says what may help.

    Examples
    --------
    >>> rows = {
    ...     "episode": [0, 0, 1], "state": [0, 1, 0], "action": [1, 1, 0], "reward": [0, 1, 0],
    ...     "next_state": [1, 2, 0], "terminated": [0, 1, 0], "truncated": [0, 0, 1],
    ... }
    >>> data = from_transitions(rows, n_states=3, terminal=[2])
    >>> len(data), data.lengths.tolist(), data.terminated.tolist()
    (2, [2, 1], [True, False])
    >>> data.following([5.0, 6.0, 7.0]).tolist()  # behind the end 0, behind the cut the state's
    [6.0, 0.0, 5.0]
    """
    size = check.whole("n_states", n_states)
    _require_columns(columns)
    ids = _episodes(columns["episode"])
    state, action, following = (
        _numbers(name, columns[name], ids.size) for name in ("state", "action", "next_state")
    )
    for name, numbers in (("state", state), ("next_state", following)):
        if (numbers >= size).any():
            row = int(np.flatnonzero(numbers >= size)[0])
            raise ValueError(
                f"{name} is {numbers[row]} in row {row}; with n_states = {size} the states are "
                f"0 .. {size - 1}"
            )
    reward = check.finite_array("reward", columns["reward"], ndim=1)
    ended, cut = (
        check.binary_array(name, columns[name], ndim=1) for name in ("terminated", "truncated")
    )
    for name, column in (("reward", reward), ("terminated", ended), ("truncated", cut)):
        _same_length(name, column.size, ids.size)

    first = np.flatnonzero(np.append(True, ids[1:] != ids[:-1]))
    last = np.append(first[1:], ids.size) - 1
    _contiguous(ids, first)
    if "step" in columns:
        _rising(_numbers("step", columns["step"], ids.size), ids, last)
    _flags(ended, cut, ids, last)
    _joined(state, following, ids, last)
    if terminal is not None:
        _ends(state, following, ended, _numbers("terminal", terminal), size)
    return RecordedEpisodes(
        states=check.frozen(state),
        actions=check.frozen(action),
        rewards=check.frozen(reward.copy()),
        next_states=check.frozen(following),
        lengths=check.frozen(last - first + 1),
        terminated=check.frozen(ended[last]),
        n_states=size,
    )


def _require_columns(columns: Columns) -> None:
    wanted = f"a dictionary or data frame with the columns {', '.join(COLUMNS)}"
    if isinstance(columns, (str, list, tuple, np.ndarray)) or not hasattr(columns, "__getitem__"):
        raise TypeError(f"columns must be {wanted}, got {type(columns).__name__}")
    missing = [name for name in COLUMNS if name not in columns]
    if "done" in columns and {"terminated", "truncated"} & set(missing):
        raise ValueError(
            "done does not say whether an episode ended or was cut, as by a time limit: give "
            "terminated and truncated instead. Behind an end the value is 0, behind a cut that of "
            "the next state. gymnasium's step returns both; the older gym wrote a cut into "
            "info['TimeLimit.truncated']. If every episode ended by itself, terminated is done "
            "and truncated is 0 everywhere"
        )
    if missing:
        raise ValueError(f"columns must be {wanted}; there is no {', '.join(missing)}")


def _episodes(values: Any) -> NDArray[Any]:
    ids = check.unmasked("episode", values)
    if ids.ndim != 1 or ids.size == 0:
        raise ValueError(f"episode must have one entry for each step, got shape {ids.shape}")
    fine = ids.dtype.kind in "iuUS" or (
        ids.dtype.kind == "O" and all(isinstance(x, (str, int)) for x in ids)
    )
    if not fine:
        raise ValueError(
            f"episode must hold integers or text, got {ids.dtype}; a missing entry turns a column "
            "of integers into one of floats"
        )
    return ids


def _numbers(name: str, values: Any, length: int | None = None) -> IntArray:
    numbers = check.unmasked(name, values)
    if numbers.ndim != 1 or numbers.dtype.kind not in "iu":
        raise ValueError(
            f"{name} must hold integers 0, 1, 2, ..., got {numbers.dtype} of shape "
            f"{numbers.shape}; give states and actions numbers first, by a public list"
        )
    if length is not None:
        _same_length(name, numbers.size, length)
    if (numbers < 0).any():
        row = int(np.flatnonzero(numbers < 0)[0])
        raise ValueError(f"{name} is {numbers[row]} in row {row}; it must not be negative")
    if numbers.size and numbers.max() > check.LARGEST_WHOLE:
        row = int(np.argmax(numbers))
        raise ValueError(f"{name} is {numbers[row]} in row {row}; it must be at most 2^63 - 1")
    return numbers.astype(np.int64)


def _same_length(name: str, got: int, length: int) -> None:
    if got != length:
        raise ValueError(f"{name} has {got} entries, episode has {length}: one row for each step")


def _contiguous(ids: NDArray[Any], first: IntArray) -> None:
    seen: set[Any] = set()
    for row in first.tolist():
        if ids[row] in seen:
            raise ValueError(
                f"episode {ids[row]} goes on in row {row}, after another episode: sort the rows by "
                "episode, and within each by time"
            )
        seen.add(ids[row])


def _rising(step: IntArray, ids: NDArray[Any], last: IntArray) -> None:
    wrong = np.diff(step) != 1
    wrong[last[:-1]] = False
    if wrong.any():
        row = int(np.flatnonzero(wrong)[0])
        raise ValueError(
            f"step is {step[row + 1]} in row {row + 1}, after {step[row]} in the same episode "
            f"{ids[row]}: rows are missing, or not in order of time"
        )


def _flags(ended: BoolArray, cut: BoolArray, ids: NDArray[Any], last: IntArray) -> None:
    early = ended | cut
    early[last] = False
    if early.any():
        row = int(np.flatnonzero(early)[0])
        name = "terminated" if ended[row] else "truncated"
        raise ValueError(
            f"row {row} is {name}, but episode {ids[row]} goes on behind it: each episode needs a "
            "number of its own"
        )
    open_ended = ~(ended | cut)[last]
    if open_ended.any():
        row = int(last[open_ended][0])
        raise ValueError(
            f"episode {ids[row]} never ends: its last row, {row}, is neither terminated nor "
            "truncated. If the recording stopped there, it was truncated"
        )


def _joined(state: IntArray, following: IntArray, ids: NDArray[Any], last: IntArray) -> None:
    torn = following[:-1] != state[1:]
    torn[last[:-1]] = False
    if torn.any():
        row = int(np.flatnonzero(torn)[0])
        raise ValueError(
            f"row {row} leads to state {following[row]}, but the next row of episode {ids[row]} "
            f"starts in state {state[row + 1]}: a step is missing, rows are not in order of time, "
            "or next_state was read after a reset"
        )


def _ends(
    state: IntArray, following: IntArray, ended: BoolArray, terminal: IntArray, size: int
) -> None:
    if (terminal >= size).any():
        raise ValueError(f"terminal must hold states 0 .. {size - 1}, got {terminal.max()}")
    inside = np.isin(state, terminal)
    if inside.any():
        row = int(np.flatnonzero(inside)[0])
        raise ValueError(
            f"row {row} starts in state {state[row]}, in which episodes end: terminal states have "
            "no steps of their own"
        )
    reached = np.isin(following, terminal)
    if (reached != ended).any():
        row = int(np.flatnonzero(reached != ended)[0])
        said = "is not terminated" if reached[row] else "is terminated"
        what = "one" if reached[row] else "none"
        raise ValueError(
            f"row {row} {said}, but state {following[row]}, which it leads to, is {what} of the "
            "terminal states"
        )
