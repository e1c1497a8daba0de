r"""Stochastic bandits: Thompson sampling and UCB1, their regret, exact arms.

There are k arms. Arm a pays rewards in [0, 1], independent and of mean mu_a. Let

    mu* = max_a mu_a,    Delta_a = mu* - mu_a  (the gap),    n_t(a) = plays of a up to step t.

The pseudo-regret of one run, and the regret, its expectation, are

    sum_a Delta_a n_t(a),        R_t = sum_a Delta_a E[n_t(a)].                        (1)

Thompson sampling (lecture 11, Algorithm 1) keeps S_a successes and F_a failures of every
arm. At each step it draws Theta_a ~ Beta(S_a + 1, F_a + 1) for each arm, plays the largest,
and tosses a coin that shows 1 with the probability of the reward r:

    P[toss = 1 | r] = r,   so   P[toss = 1] = E[r] = mu_a.                             (2)

By (2) the counts (S, F) have the same law for every arm of mean mu_a as for a Bernoulli arm.

For few plays nothing need be simulated. A Beta density with whole parameters is a
polynomial, so the probability that arm a is drawn largest,

    int_0^1 f_a(x) prod_{b != a} F_b(x) dx,                                            (3)

is integrated exactly by Gauss and Legendre's rule with enough nodes, and with two arms the
law of (S_1, F_1, S_2, F_2) follows step by step: :func:`exact_plays`.

Source: lecture 11, section 11.1; UCB1 is due to Auer, Cesa-Bianchi and Fischer (2002).
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy as np
from numpy.typing import ArrayLike
from scipy import special

from dprl import _validation as check
from dprl._validation import FloatArray, IntArray


@runtime_checkable
class Arm(Protocol):
    """What an arm must have: its exact mean, and independent rewards in [0, 1]."""

    @property
    def mean(self) -> float:
        """Expected reward, in [0, 1]."""
        ...

    def sample(self, rng: np.random.Generator, size: int) -> FloatArray:
        """Independent rewards, shape (size,)."""
        ...


@dataclass(frozen=True)
class BernoulliArm:
    """Reward 1 with probability ``mean``, else 0.

    >>> BernoulliArm(1.0).sample(np.random.default_rng(0), 3).tolist()
    [1.0, 1.0, 1.0]
    """

    mean: float

    def __post_init__(self) -> None:
        check.unit("mean", self.mean)

    def sample(self, rng: np.random.Generator, size: int) -> FloatArray:
        """Independent rewards, shape (size,)."""
        return (rng.random(size) < self.mean).astype(np.float64)


@dataclass(frozen=True)
class BetaArm:
    """Reward with the Beta(alpha, beta) distribution, alpha, beta > 0.

    >>> BetaArm(2.0, 3.0).mean
    0.4
    """

    alpha: float
    beta: float

    def __post_init__(self) -> None:
        check.positive("alpha", self.alpha)
        check.positive("beta", self.beta)

    @property
    def mean(self) -> float:
        """alpha / (alpha + beta)."""
        return self.alpha / (self.alpha + self.beta)

    def sample(self, rng: np.random.Generator, size: int) -> FloatArray:
        """Independent rewards, shape (size,)."""
        return rng.beta(self.alpha, self.beta, size)


@dataclass(frozen=True)
class TwoPointArm:
    """Reward ``high`` with probability ``p_high``, else ``low``; 0 <= low <= high <= 1.

    With ``low == high`` the reward is constant.

    >>> TwoPointArm(0.25, 0.75, 0.5).mean
    0.5
    """

    low: float
    high: float
    p_high: float

    def __post_init__(self) -> None:
        check.unit("p_high", self.p_high)
        if check.unit("low", self.low) > check.unit("high", self.high):
            raise ValueError(f"low must not exceed high, got {self.low} > {self.high}")

    @property
    def mean(self) -> float:
        """low + p_high (high - low)."""
        return self.low + self.p_high * (self.high - self.low)

    def sample(self, rng: np.random.Generator, size: int) -> FloatArray:
        """Independent rewards, shape (size,)."""
        return np.where(rng.random(size) < self.p_high, self.high, self.low)


def bernoulli_arms(means: ArrayLike) -> list[BernoulliArm]:
    """One Bernoulli arm for each mean in [0, 1].

    >>> [arm.mean for arm in bernoulli_arms([0.9, 0.1])]
    [0.9, 0.1]
    """
    return [BernoulliArm(float(m)) for m in check.finite_array("means", means, ndim=1)]


@dataclass(frozen=True, eq=False)
class BanditRuns:
    """What independent runs of an algorithm played.

    Attributes
    ----------
    times : ndarray of int, shape (n,)
        Steps after which the plays were recorded, increasing, from 1 on.
    plays : ndarray of int, shape (n_runs, n, k)
        n_t(a) for each run, recorded time and arm.
    means : ndarray, shape (k,)
        The arms' means.
    """

    times: IntArray
    plays: IntArray
    means: FloatArray

    @property
    def gaps(self) -> FloatArray:
        """Delta_a, shape (k,)."""
        out: FloatArray = self.means.max() - self.means
        return out

    @property
    def regret(self) -> FloatArray:
        """Pseudo-regret of each run, equation (1), shape (n_runs, n)."""
        return self.plays @ self.gaps  # (1)

    @property
    def mean_regret(self) -> FloatArray:
        """Mean over the runs, an unbiased estimate of R_t, shape (n,)."""
        out: FloatArray = self.regret.mean(axis=0)
        return out

    @property
    def standard_error(self) -> FloatArray:
        """Standard error of the mean regret, shape (n,). Needs two runs."""
        if len(self.plays) < 2:
            raise ValueError("a standard error needs at least 2 runs")
        out: FloatArray = self.regret.std(axis=0, ddof=1) / np.sqrt(len(self.plays))
        return out


def thompson_sampling(
    arms: Sequence[Arm],
    horizon: int,
    n_runs: int,
    rng: np.random.Generator,
    *,
    times: ArrayLike | None = None,
) -> BanditRuns:
    """Thompson sampling, Algorithm 1 of lecture 11, in many independent runs at once.

    All runs advance together: a step costs a few vector operations over the runs, and
    k n_runs Beta variables, which take most of the time. O(horizon k n_runs) in all.
    Memory O(n_runs k) and the record, n_runs x len(times) x k whole numbers.

    Random numbers are used in this order, so that a loop over runs can repeat them: all
    Theta, run by run; the tie-breaking numbers, if two draws of a run are equal (their
    probability is 0 but for rounding); the rewards, arm by arm; one toss for each run.

    Parameters
    ----------
    arms : sequence of Arm
        At least one; rewards outside [0, 1] are refused when they occur.
    horizon, n_runs : int
        T >= 1 steps; n_runs >= 1.
    rng : numpy.random.Generator
    times : array_like of int, shape (n,), optional
        Steps to record, increasing, within 1 .. T. By default every step.

    Raises
    ------
    TypeError, ValueError
        If an argument is not of the kind or range above.

    Examples
    --------
    >>> runs = thompson_sampling(bernoulli_arms([0.9, 0.1]), 100, 50, np.random.default_rng(1))
    >>> runs.plays.shape
    (50, 100, 2)
    >>> bool((runs.plays.sum(axis=-1) == runs.times).all())
    True
    """
    arms, horizon, n_runs, record = _setting(arms, horizon, n_runs, rng, times)
    every = np.arange(n_runs)
    successes = np.zeros((n_runs, len(arms)))  # line 1
    failures = np.zeros((n_runs, len(arms)))
    for t in range(1, horizon + 1):  # line 2
        theta = rng.beta(successes + 1, failures + 1)  # line 3
        action = _fair_argmax(theta, rng)  # line 4
        reward = _pull(arms, action, rng)
        toss = rng.random(n_runs) < reward  # line 5; rewards 0 and 1 stay as they are
        successes[every, action] += toss  # line 6
        failures[every, action] += ~toss
        record.after(t, successes + failures)
    return record.runs(arms)


def ucb1(
    arms: Sequence[Arm],
    horizon: int,
    n_runs: int,
    rng: np.random.Generator,
    *,
    times: ArrayLike | None = None,
) -> BanditRuns:
    """UCB1 (Auer, Cesa-Bianchi and Fischer 2002), in many independent runs at once.

    Each arm is played once, in order. Then step t, with t - 1 plays behind it, plays the arm
    with the largest mean reward + sqrt(2 ln(t - 1) / plays of the arm). Equal indices occur
    often here; one of the tied arms is taken at random, each with the same probability.

    O(horizon k n_runs) time. Parameters, results and errors as :func:`thompson_sampling`.

    >>> runs = ucb1(bernoulli_arms([0.9, 0.1]), 100, 50, np.random.default_rng(1), times=[2, 100])
    >>> runs.plays[0, 0].tolist()
    [1, 1]
    """
    arms, horizon, n_runs, record = _setting(arms, horizon, n_runs, rng, times)
    every = np.arange(n_runs)
    total = np.zeros((n_runs, len(arms)))
    plays = np.zeros((n_runs, len(arms)))
    for t in range(1, horizon + 1):
        if t <= len(arms):
            action = np.full(n_runs, t - 1)
        else:
            action = _fair_argmax(total / plays + np.sqrt(2 * np.log(t - 1) / plays), rng)
        total[every, action] += _pull(arms, action, rng)
        plays[every, action] += 1
        record.after(t, plays)
    return record.runs(arms)


class _Record:
    """Keeps the plays at the recorded times."""

    def __init__(self, times: IntArray, n_runs: int, k: int) -> None:
        self.times, self.plays = times, np.zeros((n_runs, times.size, k), dtype=np.int64)
        self._next = 0

    def after(self, t: int, plays: FloatArray) -> None:
        if self._next < self.times.size and self.times[self._next] == t:
            self.plays[:, self._next] = plays
            self._next += 1

    def runs(self, arms: Sequence[Arm]) -> BanditRuns:
        means = np.array([arm.mean for arm in arms], dtype=np.float64)
        return BanditRuns(*(check.frozen(x) for x in (self.times, self.plays, means)))


def _setting(
    arms: Sequence[Arm],
    horizon: int,
    n_runs: int,
    rng: np.random.Generator,
    times: ArrayLike | None,
) -> tuple[list[Arm], int, int, _Record]:
    arms = list(arms)
    if not arms:
        raise ValueError("arms must hold at least one arm")
    for i, arm in enumerate(arms):
        if not isinstance(arm, Arm):
            raise TypeError(
                f"arms[{i}] must have a mean and sample(rng, size), got {type(arm).__name__}"
            )
        check.unit(f"mean of arms[{i}]", arm.mean)
    horizon, n_runs = check.whole("horizon", horizon), check.whole("n_runs", n_runs)
    check.generator(rng)
    steps = np.arange(1, horizon + 1) if times is None else check.unmasked("times", times).copy()
    if steps.ndim != 1 or steps.size == 0 or steps.dtype.kind not in "iu":
        raise ValueError("times must be a non-empty vector of whole numbers")
    if steps[0] < 1 or steps[-1] > horizon or (np.diff(steps) <= 0).any():
        raise ValueError(f"times must increase within 1 .. {horizon}")
    return arms, horizon, n_runs, _Record(steps.astype(np.int64), n_runs, len(arms))


def _fair_argmax(values: FloatArray, rng: np.random.Generator) -> IntArray:
    """The largest column of each row; among equals one at random. No draw without a tie."""
    action: IntArray = values.argmax(axis=1)
    best = values == values.max(axis=1, keepdims=True)
    if np.count_nonzero(best) > action.size:
        count = best.sum(axis=1)
        tied = np.flatnonzero(count > 1)
        pick = np.floor(rng.random(tied.size) * count[tied])  # 0 .. count - 1
        action[tied] = (best[tied].cumsum(axis=1) > pick[:, None]).argmax(axis=1)
    return action


def _pull(arms: Sequence[Arm], action: IntArray, rng: np.random.Generator) -> FloatArray:
    """The reward of the arm that each run plays."""
    reward = np.empty(action.size)
    for a, arm in enumerate(arms):
        chosen = np.flatnonzero(action == a)
        if chosen.size:
            reward[chosen] = arm.sample(rng, chosen.size)
    if not (reward.min() >= 0 and reward.max() <= 1):  # false for NaN, too
        raise ValueError("an arm gave a reward outside [0, 1]")
    return reward


# -- exact, without simulation ------------------------------------------------------------


def choice_probabilities(successes: ArrayLike, failures: ArrayLike) -> FloatArray:
    """Probability that Thompson sampling plays each arm next, equation (3), exactly.

    The same number is the posterior probability that the arm's mean is the largest, under
    independent uniform priors. The integrand is a polynomial of degree sum_b n_b + k - 1
    (n_b plays of arm b), for which half as many Gauss-Legendre nodes are exact up to
    rounding: O(k^2 + k n) for n plays in all, after the nodes.

    successes and failures, shape (k,), are S_a, F_a >= 0. Returns shape (k,), of sum one.
    ValueError if the counts are not whole numbers >= 0, or not two vectors of one length.

    >>> choice_probabilities([1, 0], [0, 1]).round(12).tolist()  # 5/6 and 1/6
    [0.833333333333, 0.166666666667]
    """
    s, f = check.count_array("successes", successes), check.count_array("failures", failures)
    if s.ndim != 1 or s.shape != f.shape:
        raise ValueError(f"successes and failures must be vectors alike, got {s.shape}, {f.shape}")
    if (s % 1).any() or (f % 1).any():
        raise ValueError("successes and failures must be whole numbers")
    x, weight = _nodes(int((s + f).sum()) + s.size - 1)
    density, below = _beta_density(s, f, x), special.betainc(s[:, None] + 1, f[:, None] + 1, x)
    out = np.empty(s.size)
    for a in range(s.size):
        out[a] = (weight * density[a] * np.delete(below, a, axis=0).prod(axis=0)).sum()  # (3)
    return out


def exact_plays(means: ArrayLike, horizon: int) -> FloatArray:
    """E[n_t(a)] of Thompson sampling with two arms, for every t up to the horizon, exactly.

    The law of (S_1, F_1, S_2, F_2) is carried from step to step with the choice
    probabilities (3); no random number is used. By (2) it holds for all arms with rewards in
    [0, 1] and these means. O(T^5) multiplications with a small constant (matrix products),
    O(T^3) memory: 0.1 s for T = 60, a few seconds for T = 200.

    means, shape (..., 2), are mu_1 and mu_2 in [0, 1]; several pairs share the choice
    probabilities. The horizon is T >= 1. Returns shape (..., T, 2): entry t - 1 holds E[n_t(1)],
    E[n_t(2)]. ValueError if a mean is outside [0, 1] or the last axis is not 2.

    >>> plays = exact_plays([0.9, 0.1], 2)
    >>> (0.8 * plays[:, 1]).round(6).tolist()  # the regret: Delta/2 and Delta - Delta^2/6
    [0.4, 0.693333]
    """
    mu = check.unit_array("means", means)
    if mu.ndim < 1 or mu.shape[-1] != 2:
        raise ValueError(f"means must have two entries in the last axis, got shape {mu.shape}")
    horizon = check.whole("horizon", horizon)
    pairs = mu.reshape(-1, 2)
    x, weight = _nodes(horizon)  # degree (n_1 + n_2) + 1 <= horizon
    counts = [np.arange(n + 1.0) for n in range(horizon)]
    density = [weight * _beta_density(s, s[::-1], x) for s in counts]
    below = [special.betainc(s[:, None] + 1, s[::-1, None] + 1, x) for s in counts]
    up, down = pairs[:, :, None, None], 1 - pairs[:, :, None, None]
    # law[n_1][i, s_1, s_2]: probability for pair i; n_2 = t - n_1
    law = [np.ones((len(pairs), 1, 1))]
    plays = np.zeros((len(pairs), horizon + 1, 2))
    for t in range(horizon):
        after = [np.zeros((len(pairs), n + 1, t + 2 - n)) for n in range(t + 2)]
        for n, now in enumerate(law):
            first = now * (density[n] @ below[t - n].T)  # (3): arm 1 is played
            second = now - first
            after[n + 1][:, 1:, :] += up[:, 0] * first
            after[n + 1][:, :-1, :] += down[:, 0] * first
            after[n][:, :, 1:] += up[:, 1] * second
            after[n][:, :, :-1] += down[:, 1] * second
        law = after
        mass = np.stack([p.sum(axis=(1, 2)) for p in law], axis=1)  # law of n_1
        plays[:, t + 1, 0] = mass @ np.arange(t + 2)
        plays[:, t + 1, 1] = mass @ np.arange(t + 1, -1, -1)
    return plays[:, 1:].reshape(*mu.shape[:-1], horizon, 2)


@functools.lru_cache(maxsize=16)
def _nodes(degree: int) -> tuple[FloatArray, FloatArray]:
    """Nodes and weights on [0, 1], exact for polynomials up to this degree."""
    x, weight = special.roots_legendre(degree // 2 + 1)
    return check.frozen((x + 1) / 2), check.frozen(weight / 2)


def _beta_density(s: FloatArray, f: FloatArray, x: FloatArray) -> FloatArray:
    """Density of Beta(s + 1, f + 1) at x in (0, 1), shape (len(s), len(x))."""
    s, f = s[:, None], f[:, None]
    log_density = special.xlogy(s, x) + special.xlog1py(f, -x) - special.betaln(s + 1, f + 1)
    return np.exp(log_density)
