r"""The worst neighbours of today's mechanisms, and random ones beside them.

:func:`random_and_worst` compares 10^5 random pairs of records with the pair that attains a
sensitivity, each in units of the sensitivity. What a record adds to a sum is computed by the
package's own functions: :func:`~dprl.private_evaluation.recentre_shape_clip.residuals` and
``RoundPlan.clipped``, ``bounded_transition_counts``, ``step_counts``, ``to_grid``. Many records at
once are one batch, or, where a function gives only the sum over a batch, one batch in which each
record has states of its own.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import pandas as pd

from dprl import _validation as check
from dprl._validation import FloatArray, IntArray
from dprl.mdp import Chain
from dprl.off_policy.saddle_point import Statistics
from dprl.privacy.discrete_gaussian import grid_sensitivity, to_grid
from dprl.private_evaluation.control import bounded_transition_counts, step_counts
from dprl.private_evaluation.recentre_shape_clip import residuals
from dprl.private_evaluation.sufficient_statistics import COUNT_SCALE, statistics_sigma
from dprl.private_evaluation.working_model import RoundPlan, plan_round
from dprl.trajectories import Batch, FirstVisitReturns, simulate

#: States of the chains in the audit, and the range of the returns, which is [-FAR, FAR].
STATES, FAR = 3, 100.0
_TOGETHER = 25  # records with states of their own in one batch


# -- pairs of data sets ---------------------------------------------------------------------------


def returns_pair(n: int, other: float | None = -FAR) -> tuple[FirstVisitReturns, FirstVisitReturns]:
    """n records that visit all states with return 0, but for the first: FAR against ``other``.

    None: the first record of the second data set visits nothing.
    """

    def data(first: float | None) -> FirstVisitReturns:
        returns, visited = np.zeros((n, STATES)), np.ones((n, STATES), dtype=bool)
        returns[0], visited[0] = first or 0.0, first is not None
        return FirstVisitReturns(returns, visited)

    return data(FAR), data(other)


def steps_pair(n: int, other: float | None = -1e6) -> tuple[Batch, Batch]:
    """n trajectories along the chain without reward, but for the first: 10^6 against ``other``.

    None: the first trajectory of the second batch begins in the terminal state.
    """

    def data(reward: float | None) -> Batch:
        ends = reward is None
        path = np.arange(STATES + 1)
        rewards = np.zeros((n, STATES + 1))
        rewards[0, :STATES] = reward or 0.0
        lengths = np.full(n, STATES + 1)
        skip = 0
        if ends:
            lengths[0], skip = 1, STATES
        return Batch(
            states=np.tile(path, n)[skip:],
            rewards=rewards.ravel()[skip:],
            lengths=lengths,
            n_states=STATES + 1,
        )

    return data(1e6), data(other)


def features_pair(n: int, other: float = -1e6) -> tuple[Statistics, Statistics]:
    """n records with A = C = I and b = 1 in two features; the first has 10^6 times, or ``other``
    times as much.
    """

    def data(size: float) -> Statistics:
        a, b = np.tile(np.eye(2), (n, 1, 1)), np.ones((n, 2))
        a[0] *= size
        b[0] *= -size
        return Statistics(a, b, a)

    return data(1e6), data(other)


def loops_pair(radius: int) -> tuple[Batch, Batch]:
    """One trajectory that stays in state 0 ``radius`` times, against one that stays in state 1."""
    steps = [[(s, 0, 0.0)] * (radius + 1) for s in (0, 1)]
    return Batch.from_lists(steps[:1], 2), Batch.from_lists(steps[1:], 2)


# -- pairs of records -----------------------------------------------------------------------------


def random_and_worst(count: int, rng: np.random.Generator) -> pd.DataFrame:
    """Displacement over sensitivity: the largest of ``count`` random pairs, and the worst pair.

    Returns
    -------
    DataFrame
        ``mechanism``, ``random_largest``, ``worst_pair``.
    """
    pairs = check.whole("count", count)
    studies: dict[str, Callable[[int, np.random.Generator], tuple[FloatArray, FloatArray]]] = {
        "sufficient statistics": _statistics,
        "RC, returns": _returns_form,
        "RC, temporal differences": _steps_form,
        "RC without structure": _diagonal,
        "private LSTD, matrices": lambda k, g: _balls(k, 4, g),
        "private LSTD, residuals": lambda k, g: _balls(k, 2, g),
        "transition counts": _transitions,
        "counts of each step": _steps,
        "discrete release": _grid,
    }
    rows = []
    for (name, study), child in zip(studies.items(), check.generator(rng).spawn(9), strict=True):
        random, worst = study(pairs, child)
        rows.append((name, float(random.max()), float(worst.max())))
    return pd.DataFrame(rows, columns=["mechanism", "random_largest", "worst_pair"])


def _statistics(count: int, rng: np.random.Generator) -> tuple[FloatArray, FloatArray]:
    mu, n = 0.3, 10
    sigma = statistics_sigma(n, mu, rng.uniform(1, 10, n))

    def moved(visited: FloatArray, centred: FloatArray) -> FloatArray:
        counts = np.diff(visited, axis=0)[0] * COUNT_SCALE / sigma
        sums = np.diff(visited * centred, axis=0)[0] / sigma
        return np.asarray(np.sqrt((counts**2 + sums**2).sum(axis=-1)) / mu)

    visited = (rng.random((2, count, n)) < rng.random((2, count, 1))).astype(float)
    centred = rng.choice([-0.5, 0.5], (2, count, n))
    every = rng.random(count) < 0.5
    centred[:, every] = rng.uniform(-0.5, 0.5, (2, int(every.sum()), n))
    half = np.full((1, n), 0.5)
    ones = np.ones((2, 1, n))
    worst = moved(ones, np.stack([half, -half]))
    appears = moved(np.stack([ones[0], 0 * ones[0]]), np.stack([half, half]))
    return moved(visited, centred), np.concatenate([worst, appears])


def _of_plan(
    plan: RoundPlan, u: FloatArray, rng: np.random.Generator, u_worst: FloatArray
) -> tuple[FloatArray, FloatArray]:
    def moved(a: FloatArray, b: FloatArray) -> FloatArray:
        return plan.norms(plan.clipped(a) - plan.clipped(b)) / (2 * plan.radius)

    return moved(u, u[rng.permutation(len(u))]), moved(u_worst, -u_worst)


def _chain_plan(rng: np.random.Generator) -> RoundPlan:
    process = Chain(10).process
    u = residuals(simulate(process, 500, rng), process, process.values()[:-1] + 0.02)
    return plan_round(u[None], 1e-3, bias_weight=1.0)


def _returns_form(count: int, rng: np.random.Generator) -> tuple[FloatArray, FloatArray]:
    plan = _chain_plan(rng)
    process = Chain(10).process
    centre = process.values()[:-1]
    visited = rng.random((count, 10)) < rng.random((count, 1))
    returns = np.where(visited, centre + rng.standard_cauchy((count, 10)), 0.0)
    u = residuals(FirstVisitReturns(returns, visited), process, centre)
    worst = FirstVisitReturns(centre + 1e3 * np.ones((1, 10)), np.ones((1, 10), dtype=bool))
    return _of_plan(plan, u, rng, residuals(worst, process, centre))


def _steps_form(count: int, rng: np.random.Generator) -> tuple[FloatArray, FloatArray]:
    plan = _chain_plan(rng)
    process = Chain(10).process
    batch = simulate(process, count, rng)
    rewards = rng.standard_cauchy(batch.states.size)
    wild = Batch(
        states=batch.states, rewards=rewards, lengths=batch.lengths, n_states=batch.n_states
    )
    centre = process.values()[:-1]
    u = residuals(wild, process, centre)
    return _of_plan(plan, u, rng, u[:1] * 1e9)


def _diagonal(count: int, rng: np.random.Generator) -> tuple[FloatArray, FloatArray]:
    p = rng.uniform(0.05, 1, 10)
    empty = np.zeros((10, 10))
    plan = RoundPlan(np.eye(10), 1 / p, 3.0, np.zeros(10), empty, 0.0)
    u = (rng.random((count, 10)) < p) * rng.uniform(-1, 1, (count, 10)) / p
    return _of_plan(plan, u, rng, np.full((1, 10), 1e3))


def _balls(count: int, d: int, rng: np.random.Generator) -> tuple[FloatArray, FloatArray]:
    one = np.ones(d)
    plan = RoundPlan(np.eye(d), one, 1.0, 0 * one, np.zeros((d, d)), 0.0)
    return _of_plan(plan, rng.standard_cauchy((count, d)), rng, np.full((1, d), 1e6))


class _Walks(NamedTuple):
    """Trajectories in two states, action 0, reward 0; what lies beyond a length is not used."""

    states: IntArray  # (walks, longest)
    lengths: IntArray

    @classmethod
    def random(cls, count: int, longest: int, rng: np.random.Generator) -> _Walks:
        """Each stays with a probability of its own."""
        moves = rng.random((count, longest)) > rng.random((count, 1))
        return cls(moves.cumsum(axis=1) % 2, rng.integers(2, longest + 1, count))

    def tallied(self, tally: Callable[[Batch], IntArray]) -> FloatArray:
        """What each walk counts by itself: in one batch with others, on states of its own."""
        parts = []
        for first in range(0, len(self.lengths), _TOGETHER):
            states = self.states[first : first + _TOGETHER]
            lengths = self.lengths[first : first + _TOGETHER]
            own = 2 * np.arange(len(lengths))[:, None]
            used = np.arange(states.shape[1]) < lengths[:, None]
            flat = (states + own)[used]
            counts = tally(
                Batch(
                    states=flat,
                    rewards=np.zeros(flat.size),
                    lengths=lengths,
                    n_states=2 * len(lengths),
                    actions=np.zeros_like(flat),
                )
            )
            blocks = own + np.arange(2)
            parts.append(np.stack([counts[..., i, :, :][..., i] for i in blocks]))
        return np.concatenate(parts).astype(np.float64)


def _of_counts(
    count: int,
    rng: np.random.Generator,
    tally: Callable[[Batch], IntArray],
    norm: Callable[[FloatArray], FloatArray],
    longest: int,
) -> tuple[FloatArray, FloatArray]:
    found = _Walks.random(2 * count, longest + 8, rng).tallied(tally)
    loops = _Walks(np.array([[0], [1]]).repeat(longest, axis=1), np.full(2, longest))
    a, b = loops.tallied(tally)
    return norm(found[:count] - found[count:]), norm((a - b)[None])


def _transitions(count: int, rng: np.random.Generator) -> tuple[FloatArray, FloatArray]:
    radius = 4
    return _of_counts(
        count,
        rng,
        lambda batch: bounded_transition_counts(batch, 1, radius),
        lambda d: np.sqrt((d**2.0).sum(axis=(1, 2, 3))) / (math.sqrt(2) * radius),
        radius + 1,
    )


def _steps(count: int, rng: np.random.Generator) -> tuple[FloatArray, FloatArray]:
    horizon = 6

    def norm(d: FloatArray) -> FloatArray:
        both = (d**2.0).sum(axis=(1, 2, 3, 4)) + (d.sum(axis=4) ** 2.0).sum(axis=(1, 2, 3))
        return np.asarray(np.sqrt(both) / (2 * math.sqrt(horizon)))

    return _of_counts(
        count,
        rng,
        lambda batch: step_counts(batch, 1, horizon),
        norm,
        horizon + 1,
    )


def _grid(count: int, rng: np.random.Generator) -> tuple[FloatArray, FloatArray]:
    grid, d = 0.01, 10
    u = rng.uniform(-0.5, 0.5, (count, d))
    units = to_grid(u, grid)
    most = grid_sensitivity(math.sqrt(d), grid, d)
    gap = units - units[rng.permutation(count)]
    # half of the grid's step more on both sides: the rounding that the sensitivity allows for
    ends = to_grid(np.array([[1.0], [-1.0]]) * np.full(d, 0.505 + 1e-9), grid)
    wide = grid_sensitivity(math.sqrt(d) * 1.01, grid, d)
    return np.linalg.norm(gap, axis=1) / most, np.linalg.norm(ends[:1] - ends[1:], axis=1) / wide
