r"""Episodes of equal maximum length as arrays, and the transitions they are made of.

An episode starts in a state s_0 and lasts T' <= T steps: observations o_0 ... o_T', actions
a_0 ... a_{T'-1}, rewards r_0 ... r_{T'-1}. It ends by *termination* (an absorbing state was
reached: the hopper fell) or by *time-out* after T steps (T is the environment's T_max). The
two are not the same for a learner: the value of an absorbing state is zero, that of a state
at which the clock ran out is not. :meth:`Episodes.transitions` keeps them apart unless it is
told not to, by ``timeout_is_terminal``.

n episodes are stored in rectangles of T steps, with zeros beyond the end of each.

Source: thesis, sections 5.4 to 5.6 (trajectories, T_max); Pardo et al. 2018 (time limits).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dprl import _validation as check
from dprl._validation import BoolArray, FloatArray, IntArray

Float32Array = NDArray[np.float32]


def _float32(name: str, values: ArrayLike, ndim: int) -> Float32Array:
    """A finite float32 array; what is float32 already is not copied."""
    if isinstance(values, np.ndarray) and values.dtype == np.float32:
        if values.ndim != ndim:
            raise ValueError(f"{name} must have {ndim} dimension(s), got shape {values.shape}")
        if not np.isfinite(values).all():
            raise ValueError(f"{name} holds NaN or infinite values; all must be finite")
        return values
    x = check.finite_array(name, values, ndim=ndim)
    largest = float(np.finfo(np.float32).max)
    if (np.abs(x) > largest).any():
        raise ValueError(f"{name} holds values beyond the range of float32, {largest:.3g}")
    return x.astype(np.float32)


def _flags(name: str, values: ArrayLike) -> BoolArray:
    x = np.asarray(values)
    if x.dtype != np.bool_ or x.ndim != 1:
        raise ValueError(f"{name} must be one bool each, got {x.dtype} of shape {x.shape}")
    return x


def _check_rows(arrays: dict[str, NDArray[Any]], what: str) -> None:
    sizes = {name: len(array) for name, array in arrays.items()}
    if len(set(sizes.values())) > 1:
        raise ValueError(f"all arrays must have one row for each {what}, got {sizes}")
    if not sizes["rewards"]:
        raise ValueError(f"there must be at least one {what}, got none")


@dataclass(frozen=True, eq=False)
class Transitions:
    """Steps (o, a, r, o', terminal) of any episodes, one a row.

    Parameters
    ----------
    observations, actions, rewards, next_observations : array_like
        Of shapes (N, d_s), (N, d_A), (N,) and (N, d_s), N >= 1; kept as float32.
    terminals : array of bool, shape (N,)
        True where the value of what follows is zero.
    """

    observations: Float32Array
    actions: Float32Array
    rewards: Float32Array
    next_observations: Float32Array
    terminals: BoolArray

    def __init__(
        self,
        observations: ArrayLike,
        actions: ArrayLike,
        rewards: ArrayLike,
        next_observations: ArrayLike,
        terminals: ArrayLike,
    ) -> None:
        arrays = {
            "observations": _float32("observations", observations, 2),
            "actions": _float32("actions", actions, 2),
            "rewards": _float32("rewards", rewards, 1),
            "next_observations": _float32("next_observations", next_observations, 2),
            "terminals": _flags("terminals", terminals),
        }
        _check_rows(arrays, "step")
        before, after = arrays["observations"].shape, arrays["next_observations"].shape
        if before != after:
            raise ValueError(f"observations {before} and next_observations {after} must agree")
        for name, array in arrays.items():
            object.__setattr__(self, name, array)

    def __len__(self) -> int:
        return len(self.rewards)

    @property
    def observation_size(self) -> int:
        """d_s."""
        return int(self.observations.shape[1])

    @property
    def action_size(self) -> int:
        """d_A."""
        return int(self.actions.shape[1])


@dataclass(frozen=True, eq=False)
class Episodes:
    """n episodes of at most T steps; entries beyond an episode's end are zero.

    Parameters
    ----------
    observations, actions, rewards : array_like, shapes (n, T + 1, d_s), (n, T, d_A) and (n, T)
        Observations to o_T', the last one included; kept as float32.
    lengths : array_like of int, shape (n,)
        Number of steps T' of each, from 1 to T.
    terminated : array of bool, shape (n,)
        True if the last step led into an absorbing state, False if time ran out.
    initial_states : array_like, shape (n, k)
        Physics state s_0, from which the episode can be run again (positions, then
        velocities); float64.

    Examples
    --------
    >>> two = Episodes(
    ...     observations=np.ones((2, 4, 1)) * [[[1], [1], [1], [1]], [[1], [1], [0], [0]]],
    ...     actions=np.ones((2, 3, 1)) * [[[1], [1], [1]], [[1], [0], [0]]],
    ...     rewards=[[1, 1, 1], [5, 0, 0]],
    ...     lengths=[3, 1],
    ...     terminated=np.array([False, True]),
    ...     initial_states=np.zeros((2, 2)),
    ... )
    >>> two.transitions().terminals.tolist()
    [False, False, False, True]
    >>> two.transitions(timeout_is_terminal=True).terminals.tolist()
    [False, False, True, True]
    """

    observations: Float32Array
    actions: Float32Array
    rewards: Float32Array
    lengths: IntArray
    terminated: BoolArray
    initial_states: FloatArray

    def __init__(
        self,
        observations: ArrayLike,
        actions: ArrayLike,
        rewards: ArrayLike,
        lengths: ArrayLike,
        terminated: ArrayLike,
        initial_states: ArrayLike,
    ) -> None:
        arrays: dict[str, NDArray[Any]] = {
            "observations": _float32("observations", observations, 3),
            "actions": _float32("actions", actions, 3),
            "rewards": _float32("rewards", rewards, 2),
            "lengths": check.integers("lengths", lengths, ndim=1),
            "terminated": _flags("terminated", terminated),
            "initial_states": check.finite_array("initial_states", initial_states, ndim=2),
        }
        _check_rows(arrays, "episode")
        t = arrays["rewards"].shape[1]
        steps = (arrays["observations"].shape[1] - 1, arrays["actions"].shape[1], t)
        if len(set(steps)) > 1:
            raise ValueError(
                "observations must have T + 1 entries along axis 1, actions and rewards T; "
                f"got {steps[0] + 1}, {steps[1]} and {steps[2]}"
            )
        ends = arrays["lengths"]
        if ends.min() < 1 or ends.max() > t:
            raise ValueError(f"lengths must lie in 1 ... T = {t}, got {ends.min()} to {ends.max()}")
        beyond = np.arange(t + 1) > ends[:, None]
        idle = np.arange(t) >= ends[:, None]
        for name, outside in (("observations", beyond), ("actions", idle), ("rewards", idle)):
            if arrays[name][outside].any():
                raise ValueError(f"{name} must be zero beyond the end of an episode")
        for name, array in arrays.items():
            object.__setattr__(self, name, array)

    def __len__(self) -> int:
        return len(self.lengths)

    @property
    def t_max(self) -> int:
        """T, the largest number of steps an episode can have."""
        return int(self.rewards.shape[1])

    @property
    def observation_size(self) -> int:
        """d_s."""
        return int(self.observations.shape[2])

    @property
    def action_size(self) -> int:
        """d_A."""
        return int(self.actions.shape[2])

    @property
    def steps(self) -> BoolArray:
        """Shape (n, T): True where the episode took a step."""
        return np.asarray(np.arange(self.t_max) < self.lengths[:, None])

    @property
    def returns(self) -> FloatArray:
        """Shape (n,): undiscounted sum of rewards of each episode."""
        return np.asarray(self.rewards.sum(axis=1, dtype=np.float64))

    def select(self, indices: ArrayLike) -> Episodes:
        """Some of the episodes, at least one, in the order asked for.

        Indices are positions 0 ... n - 1 (repeats are allowed), or a mask of n bools.
        """
        chosen = np.asarray(indices)
        if chosen.ndim != 1 or chosen.dtype.kind not in "iub":
            raise TypeError(
                "indices must be a list of integers or a mask, "
                f"got {chosen.dtype} of shape {chosen.shape}"
            )
        if chosen.dtype == np.bool_:
            if len(chosen) != len(self):
                raise ValueError(f"a mask must have {len(self)} entries, got {len(chosen)}")
            chosen = np.flatnonzero(chosen)
        if not len(chosen):
            raise ValueError("at least one episode must be selected")
        if chosen.min() < 0 or chosen.max() >= len(self):
            raise ValueError(
                f"indices must lie in 0 ... {len(self) - 1}, got {chosen.min()} to {chosen.max()}"
            )
        return Episodes(**{name: array[chosen] for name, array in self.arrays().items()})

    def transitions(self, *, timeout_is_terminal: bool = False) -> Transitions:
        """All steps, episode after episode, in the order of time.

        Only absorbing states are terminal, and the value of a state at which time ran out is
        learned like any other; or, with ``timeout_is_terminal``, the last step of every episode
        is terminal, as in code that stores ``done`` of the old gym interface.
        """
        done = self.steps
        last = np.arange(self.t_max) == self.lengths[:, None] - 1
        ends = np.ones_like(self.terminated) if timeout_is_terminal else self.terminated
        return Transitions(
            self.observations[:, :-1][done],
            self.actions[done],
            self.rewards[done],
            self.observations[:, 1:][done],
            (last & ends[:, None])[done],
        )

    @classmethod
    def concatenate(cls, parts: Sequence[Episodes]) -> Episodes:
        """Several sets of episodes of the same T, d_s, d_A and k, one after the other."""
        parts = list(parts)
        if not parts:
            raise ValueError("there is nothing to concatenate")
        for part in parts:
            check.instance("each part", part, Episodes)
        shapes = [
            (part.t_max, part.observation_size, part.action_size, part.initial_states.shape[1])
            for part in parts
        ]
        if len(set(shapes)) > 1:
            raise ValueError(f"(T, d_s, d_A, k) must agree, got {sorted(set(shapes))}")
        arrays = [part.arrays() for part in parts]
        return cls(**{name: np.concatenate([a[name] for a in arrays]) for name in arrays[0]})

    def arrays(self) -> dict[str, NDArray[Any]]:
        """All arrays by name: what ``Episodes(**arrays)`` makes the same episodes of."""
        return {field.name: getattr(self, field.name) for field in fields(self)}
