"""The references: the texts in plain loops, as one would first write them."""

from __future__ import annotations

import random
from collections.abc import Iterable
from typing import Any

import numpy as np
from scipy import stats

from dprl.evaluation import lsl, lsw
from dprl.mdp import Chain
from dprl.private_evaluation import LSL, LSW
from dprl.trajectories import FirstVisitReturns

Step = tuple[int, int, float]


def simulate_chain(chain: Chain, m: int, rng: random.Random) -> list[list[Step]]:
    """Trajectories of the chain (unit paid on arrival), one step at a time."""
    out = []
    for _ in range(m):
        state = 0 if chain.start == "first" else rng.randrange(chain.n_states)
        trajectory = []
        while state < chain.n_states:
            following = state if rng.random() < chain.stay else state + 1
            trajectory.append((state, 0, 1.0 if following == chain.n_states else 0.0))
            state = following
        out.append(trajectory)
    return out


def first_visit_returns(
    trajectories: list[list[Step]], discount: float, n_states: int
) -> list[list[float]]:
    """Section 3.2.1 as written: find each state's first visit, then sum from there."""
    table = []
    for trajectory in trajectories:
        row = [0.0] * n_states
        states = [state for state, _, _ in trajectory]
        for s in range(n_states):
            if s in states:
                first = states.index(s)
                for t in range(first, len(trajectory)):
                    row[s] += discount ** (t - first) * trajectory[t][2]
        table.append(row)
    return table


def first_visit_returns_one_pass(
    trajectories: list[list[Step]], discount: float, n_states: int
) -> list[list[float]]:
    """The same with one backward pass per trajectory: the best a plain loop can do."""
    table = []
    for trajectory in trajectories:
        row = [0.0] * n_states
        following = 0.0
        for state, _, reward in reversed(trajectory):
            following = reward + discount * following
            row[state] = following  # an earlier visit replaces a later one
        table.append(row)
    return table


def psi_lsw(counts: np.ndarray, weights: np.ndarray, beta: float) -> float:
    """Algorithm 1 as printed: all k up to max_s |X_s|; O(K N), in blocks of k."""
    return max(
        float(
            (
                np.exp(-beta * k)
                * (weights / np.maximum(counts - k[:, None], 1.0) ** 2).sum(axis=1)
            ).max()
        )
        for k in _blocks(int(counts.max()))
    )


def psi_lsl(
    counts: np.ndarray, weights: np.ndarray, m: int, coefficient: float, beta: float
) -> float:
    """Algorithm 2 as printed: all k up to m; O(m N), in blocks of k."""
    norm = np.linalg.norm(weights)

    def largest(k: np.ndarray) -> float:
        total = (weights * np.minimum(counts + k[:, None], m)).sum(axis=1)
        return float((np.exp(-beta * k) * (coefficient * np.sqrt(total) + norm) ** 2).max())

    return max(largest(k) for k in _blocks(m))


def _blocks(last: int, size: int = 10_000) -> list[np.ndarray]:
    return [np.arange(low, min(low + size, last + 1)) for low in range(0, last + 1, size)]


def threshold_sums(points: list[float], signs: list[int]) -> list[int]:
    """Rademacher sums of the thresholds: after each point, every threshold in order."""
    seen: list[tuple[float, int]] = []
    out = []
    for point in zip(points, signs, strict=True):
        seen.append(point)
        seen.sort()  # nearly in order: as cheap as an insertion
        total = largest = 0
        for _, sign in reversed(seen):
            total += sign
            largest = max(largest, abs(total))
        out.append(largest)
    return out


def thompson_sampling(
    means: list[float], horizon: int, n_runs: int, rng: random.Random
) -> list[list[int]]:
    """Algorithm 1 of lecture 11, one run and one step after the other; plays of each arm."""
    plays = []
    for _ in range(n_runs):
        successes, failures = [0] * len(means), [0] * len(means)
        for _ in range(horizon):
            theta = [
                rng.betavariate(s + 1, f + 1) for s, f in zip(successes, failures, strict=True)
            ]
            arm = theta.index(max(theta))
            if rng.random() < means[arm]:
                successes[arm] += 1
            else:
                failures[arm] += 1
        plays.append([s + f for s, f in zip(successes, failures, strict=True)])
    return plays


def expected_smooth_term(m: int, p: float, beta: float) -> float:
    """The left side of Lemma 3.16: every count from 0 to m, and its probability."""
    n = np.arange(m + 1)
    term = np.maximum(np.maximum(n, 1) ** -2.0, np.exp(-beta * np.maximum(n - 1, 0)))
    return float(stats.binom.pmf(n, m, p) @ term)


def subsample_and_average(
    data: FirstVisitReturns,
    index_sets: Iterable[np.ndarray],
    features: np.ndarray,
    weights: np.ndarray,
    *,
    f_max: float,
    epsilon: float,
    delta: float,
    ridge: float | None,
) -> tuple[np.ndarray, float]:
    """Algorithm 3 with one base run for each sub-sample: the average and its noise."""
    total, variance, m = 0.0, 0.0, 0
    promise: dict[str, Any] = {"epsilon": epsilon, "delta": delta}
    for index in index_sets:
        one = FirstVisitReturns(data.returns[index], data.visited[index]).statistics((0, f_max))
        if ridge is None:
            total = total + lsw(one, features, weights)
            noise = LSW(features, weights, f_max=f_max).noise(one.counts, **promise).sigma
        else:
            total = total + lsl(one, features, weights, ridge)
            estimator = LSL(features, weights, ridge, f_max=f_max)
            noise = estimator.noise(one.counts, len(index), **promise).sigma
        variance += float(noise) ** 2
        m += 1
    return np.asarray(total / m), float(np.sqrt(variance) / m)
