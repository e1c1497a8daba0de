r"""The regret of Thompson sampling: lecture 11, Theorem 11.1, as printed and with its constant.

Arms a = 1 .. k with means mu_a, gaps Delta_a = mu* - mu_a, natural logarithms, and

    d(u, v) = u ln(u/v) + (1 - u) ln((1 - u)/(1 - v)).                                 (1)

Printed: for all eps > 0, with a constant hidden in the O(),

    R_T <= (1 + eps) sum_{a: Delta_a > 0} (ln T) Delta_a / d(mu_a, mu*) + O(k / eps^2).  (2)

No constant makes (2) true at T = 1, where ln T = 0 and R_1 is the mean gap, whatever eps.
What the argument of Agrawal and Goyal (2017) gives, with every constant kept, is: for all
eps > 0 and T >= 1, if mu* < 1,

    R_T <= sum_a Delta_a [ (1 + eps) ln T / d(mu_a, mu*) + C_a(eps) ],                 (3)
    C_a(eps) = 1 + 1 / (e^{d(x, mu_a)} - 1) + G(mu*, y),                               (4)

with mu_a < x < y < mu* chosen by

    d(x, mu*) = d(mu_a, mu*) / sqrt(1 + eps),   d(x, y) = d(mu_a, mu*) / (1 + eps),    (5)

and, with S_j ~ Bin(j, mu*) and p_j = P[Bin(j + 1, y) <= S_j], the probability that a draw
from Beta(S_j + 1, j - S_j + 1) exceeds y,

    G(mu*, y) = sum_{j >= 0} E[1/p_j - 1].                                             (6)

G is finite. Let r = mu*(1 - y) / (y(1 - mu*)), A = r^y mu* / (mu* - y), and z the point
between y and mu* with d(z, y) = d(z, mu*) = c. Then for every j

    E[1/p_j - 1] <= A e^{-j d(y, mu*)} + e^{-jc} + 2 e^{-(j+1)c},                      (7)

three geometric series.

As eps -> 0, G, and with it (4), exceeds 1/eps^2 by a logarithm. If one arm alone is optimal,
a second pair of thresholds x', y', those of eps = 3, used while the optimal arm has at most J
plays, takes the logarithm away: C_a(eps) may be replaced by

    1 + 1/(e^{d(x, mu_a)} - 1) + sum_{j > J} E[1/p_j - 1] + c_a + 2 + ln(N) / d(x'_a, y'_a),  (8)
    c_b = 1/(e^{d(x'_b, mu_b)} - 1) + G(mu*, y'_b),
    N = 2 (J + 1 + sum_b [c_b + 1 + ln(2l) / d(x'_b, y'_b)]),

for every J >= 0, the sum over the l arms that are not optimal. The proofs are on the page on
Thompson sampling.
"""

from __future__ import annotations

import functools
from collections.abc import Callable

import numpy as np
from numpy.typing import ArrayLike
from scipy import optimize, special

from dprl import _validation as check
from dprl._validation import FloatArray, IntArray


def bernoulli_kl(u: ArrayLike, v: ArrayLike) -> FloatArray:
    """Relative entropy d(u, v) of two coins, equation (1), in nats, >= 0.

    With 0 ln 0 = 0; infinite where v is 0 or 1 and u is not the same. u and v in [0, 1] broadcast.
    Rounding is about 1e-16 in absolute terms.

    >>> bernoulli_kl([0.1, 0.0, 0.5], [0.9, 0.5, 1.0]).round(4).tolist()
    [1.7578, 0.6931, inf]
    """
    p, q = check.unit_array("u", u), check.unit_array("v", v)
    both = special.rel_entr(p, q) + special.rel_entr(1 - p, 1 - q)
    return np.maximum(both, 0.0)


def lai_robbins_constant(means: ArrayLike) -> float:
    """sum_a Delta_a / d(mu_a, mu*) over the arms that are not optimal.

    The regret of every algorithm whose regret grows more slowly than every power of T, on
    every set of Bernoulli arms, is at least this constant times ln T, asymptotically (Lai
    and Robbins 1985). It is 0 if mu* = 1. The k ``means`` lie in [0, 1].

    >>> round(lai_robbins_constant([0.9, 0.1]), 4)
    0.4551
    """
    mu, best, gaps = _arms(means)
    worse = gaps > 0
    return float((gaps[worse] / bernoulli_kl(mu[worse], best)).sum())


def theorem_11_1_leading_term(
    means: ArrayLike, horizon: ArrayLike, epsilon: ArrayLike
) -> FloatArray:
    """The first term of (2): (1 + eps) ln T sum_a Delta_a / d(mu_a, mu*).

    means, shape (k,), in [0, 1]; horizon T >= 1; epsilon > 0.

    >>> float(theorem_11_1_leading_term([0.9, 0.1], 1, 1.0))
    0.0
    """
    t, eps = check.array_from("horizon", horizon, 1), check.positive_array("epsilon", epsilon)
    return (1 + eps) * np.log(t) * lai_robbins_constant(means)


def theorem_11_1_printed(
    means: ArrayLike, horizon: ArrayLike, epsilon: ArrayLike, constant: float
) -> FloatArray:
    """The right side of (2) if the O() hides this constant >= 0: leading term + constant k / eps^2.

    Other parameters as :func:`theorem_11_1_leading_term`.

    >>> float(theorem_11_1_printed([0.9, 0.1], 1, 100.0, constant=10.0))  # R_1 is 0.4
    0.002
    """
    c = check.not_negative("constant", constant)
    eps, k = check.positive_array("epsilon", epsilon), np.size(means)
    return theorem_11_1_leading_term(means, horizon, epsilon) + c * k / eps**2


def theorem_11_1_thresholds(mean: float, best: float, epsilon: float) -> tuple[float, float]:
    """x and y of (5), for 0 <= mu_a < mu* < 1 and epsilon > 0.

    >>> x, y = theorem_11_1_thresholds(0.1, 0.9, 1.0)
    >>> bool(0.1 < x < y < 0.9), round(float(bernoulli_kl(0.1, 0.9) / bernoulli_kl(x, y)), 9)
    (True, 2.0)
    """
    low, high = _two_means(mean, best)
    eps = float(check.positive_array("epsilon", check.real("epsilon", epsilon)))
    whole = float(bernoulli_kl(low, high))
    x = _root(lambda u: float(bernoulli_kl(u, high)) - whole / np.sqrt(1 + eps), low, high)
    y = _root(lambda v: float(bernoulli_kl(x, v)) - whole / (1 + eps), x, high)
    if not low < x < y < high:
        raise ValueError(
            f"the means {mean!r} and {best!r} and epsilon {epsilon!r} are too close for double "
            "precision: no thresholds between them"
        )
    return x, y


def young_optimal_arm_terms(best: float, threshold: float, terms: int) -> FloatArray:
    """E[1/p_j - 1] of (6) for j = 0 .. terms - 1, by summing over S_j; shape (terms,).

    Where p_j is below the smallest floats, 1/p_j is replaced by an upper bound. O(terms^2).
    ``best`` is mu* in (0, 1), ``threshold`` y in (0, mu*).

    >>> young_optimal_arm_terms(0.9, 0.5, 2).round(6).tolist()  # 1 and 0.1 * 3 + 0.9 / 3
    [1.0, 0.6]
    """
    mu, y = _two_means(threshold, best, names=("threshold", "best"))[::-1]
    if y == 0:
        raise ValueError("threshold must be positive")
    out = np.empty(check.whole("terms", terms))
    log_factorial = special.gammaln(np.arange(out.size + 2) + 1.0)
    for j in range(out.size):
        s = np.arange(j + 1, dtype=np.int64)
        log_f = _log_binomial(log_factorial, s, j + 1, y)
        log_weight = _log_binomial(log_factorial, s, j, mu)  # P[S_j = s]
        f = np.exp(log_f)
        below = np.cumsum(f)  # p_j, a sum of positive terms
        above = np.cumsum(np.append(y ** (j + 1), f[:0:-1]))[::-1]  # 1 - p_j, likewise
        p = np.where(below > 1e-290, below, 1.0)
        # 1/p_j <= 1/f takes over where p_j cannot be represented
        value = np.where(below > 1e-290, np.exp(log_weight) * above / p, np.exp(log_weight - log_f))
        out[j] = value.sum()
    return out


def young_optimal_arm_tail(best: float, threshold: float, start: int = 0) -> float:
    """Closed upper bound on sum_{j >= start} E[1/p_j - 1]: the three series of (7).

    Parameters as :func:`young_optimal_arm_terms`; start >= 0, and 0 bounds all of G.

    >>> round(young_optimal_arm_tail(0.9, 0.5), 3)
    43.099
    >>> bool(young_optimal_arm_terms(0.9, 0.5, 200).sum() < young_optimal_arm_tail(0.9, 0.5))
    True
    """
    mu, y = _two_means(threshold, best, names=("threshold", "best"))[::-1]
    if y == 0:
        raise ValueError("threshold must be positive")
    j = check.whole("start", start, minimum=0, maximum=None)
    log_r = np.log(mu / y) + np.log1p(-y) - np.log1p(-mu)
    a = np.exp(y * log_r) * mu / (mu - y)
    d_y = float(bernoulli_kl(y, mu))
    z = (np.log1p(-y) - np.log1p(-mu)) / log_r
    c = float(bernoulli_kl(z, mu))
    if d_y == 0 or c == 0:
        raise ValueError(f"threshold {threshold!r} and best {best!r} are too close")
    first = a * np.exp(-j * d_y) / -np.expm1(-d_y)
    rest = (np.exp(-j * c) + 2 * np.exp(-(j + 1) * c)) / -np.expm1(-c)
    return float(first + rest)  # (7), summed


@functools.lru_cache(maxsize=1024)
def _young_optimal_arm(best: float, threshold: float, terms: int) -> float:
    """G of (6): exact terms, as many as matter, then the closed bound."""
    n = min(64, terms)
    while n < terms and young_optimal_arm_tail(best, threshold, n) > 1e-9:
        n = min(2 * n, terms)
    exact = young_optimal_arm_terms(best, threshold, n).sum()
    return float(exact) + young_optimal_arm_tail(best, threshold, n)


def theorem_11_1_constant(mean: float, best: float, epsilon: float, *, terms: int = 2_000) -> float:
    """C_a(eps) of (4): what the plays of arm a may exceed (1 + eps) ln T / d(mu_a, mu*) by.

    G is the sum of its first terms, exact, plus the closed bound on the others.

    Parameters
    ----------
    mean, best, epsilon : float
        As in :func:`theorem_11_1_thresholds`.
    terms : int
        >= 1, how many terms of G are summed exactly at most: more terms, a smaller constant,
        O(terms^2) time, 0.3 s for 2000 where the means are close or epsilon is small.

    Examples
    --------
    >>> round(theorem_11_1_constant(0.1, 0.9, 1.0), 1)
    133.6
    """
    x, y = theorem_11_1_thresholds(mean, best, epsilon)
    early = 1 / np.expm1(float(bernoulli_kl(x, mean)))
    return float(1 + early + _young_optimal_arm(float(best), y, check.whole("terms", terms)))  # (4)


def theorem_11_1_constant_small_epsilon(
    means: ArrayLike, epsilon: float, *, terms: int = 2_000
) -> FloatArray:
    """The constant (8), with the best J among the powers of two: O(1/eps^2) as eps -> 0.

    Parameters
    ----------
    means : array_like, shape (k,)
        In [0, 1); one arm alone is optimal. The result has this shape: 0 for the optimal arm.
    epsilon : float
        > 0.
    terms : int
        As in :func:`theorem_11_1_constant`.

    Examples
    --------
    >>> theorem_11_1_constant_small_epsilon([0.9, 0.1], 0.1).round(-2).tolist()
    [0.0, 600.0]
    """
    mu, best, gaps = _arms(means)
    worse = np.flatnonzero(gaps > 0)
    if mu.size - worse.size > 1:
        raise ValueError("means must have a single largest entry")
    out, again = np.zeros(mu.size), {}
    total = 0.0
    for b in worse:
        x, y = theorem_11_1_thresholds(float(mu[b]), best, 3.0)  # x', y'
        rate = float(bernoulli_kl(x, y))
        early = 1 / np.expm1(float(bernoulli_kl(x, mu[b])))
        c = float(early) + _young_optimal_arm(best, y, check.whole("terms", terms))
        again[b] = (c, rate)
        total += c + 1 + np.log(2 * worse.size) / rate
    for a in worse:
        x, y = theorem_11_1_thresholds(float(mu[a]), best, epsilon)
        c, rate = again[a]
        late = [
            young_optimal_arm_tail(best, y, j + 1) + np.log(2 * (j + 1 + total)) / rate
            for j in (2**i for i in range(64))
        ]
        out[a] = 1 + 1 / np.expm1(float(bernoulli_kl(x, mu[a]))) + c + 2 + min(late)  # (8)
    return out


def theorem_11_1_corrected(
    means: ArrayLike, horizon: ArrayLike, epsilon: float, *, terms: int = 2_000
) -> FloatArray:
    """The right side of (3): an upper bound on the regret with nothing hidden.

    For each arm the smaller of (4) and (8); only (4) if several arms are optimal.

    Parameters
    ----------
    means : array_like, shape (k,)
        In [0, 1); a ValueError if mu* = 1, where (5) has no solution.
    horizon : array_like
        T >= 1; the result has its shape.
    epsilon : float
        > 0.
    terms : int
        As in :func:`theorem_11_1_constant`.

    Examples
    --------
    >>> theorem_11_1_corrected([0.9, 0.1], [1, 10_000], 1.0).round(1).tolist()
    [63.3, 71.6]
    """
    mu, best, gaps = _arms(means)
    if best == 1:
        raise ValueError(
            "the largest mean must be below 1: the thresholds need d(mu_a, mu*) finite"
        )
    constant = np.array(
        [
            theorem_11_1_constant(float(m), best, epsilon, terms=terms) if m < best else 0.0
            for m in mu
        ]
    )
    if (gaps == 0).sum() == 1:
        second = theorem_11_1_constant_small_epsilon(mu, epsilon, terms=terms)
        constant = np.minimum(constant, second)
    return np.asarray(theorem_11_1_leading_term(means, horizon, epsilon) + gaps @ constant)  # (3)


def ucb1_bound(means: ArrayLike, horizon: ArrayLike) -> FloatArray:
    """Regret of UCB1: sum_a [8 ln T / Delta_a + (1 + pi^2/3) Delta_a] over a with a gap.

    Auer, Cesa-Bianchi and Fischer (2002), theorem 1; holds for all rewards in [0, 1]. The means lie
    in [0, 1], T >= 1.

    >>> round(float(ucb1_bound([0.9, 0.1], 10_000)), 2)
    95.54
    """
    _, _, gaps = _arms(means)
    worse = gaps[gaps > 0]
    t = check.array_from("horizon", horizon, 1)
    return np.asarray(8 * np.log(t) * (1 / worse).sum() + (1 + np.pi**2 / 3) * worse.sum())


def _arms(means: ArrayLike) -> tuple[FloatArray, float, FloatArray]:
    mu = check.unit_array("means", means)
    if mu.ndim != 1 or mu.size == 0:
        raise ValueError(f"means must be a non-empty vector, got shape {mu.shape}")
    return mu, float(mu.max()), mu.max() - mu


def _two_means(
    low: float, high: float, names: tuple[str, str] = ("mean", "best")
) -> tuple[float, float]:
    a, b = check.real(names[0], low), check.real(names[1], high)
    if not 0 <= a < b < 1:
        raise ValueError(f"need 0 <= {names[0]} < {names[1]} < 1, got {low!r} and {high!r}")
    return a, b


def _root(function: Callable[[float], float], low: float, high: float) -> float:
    return float(optimize.brentq(function, low, high, xtol=1e-15, rtol=8.9e-16))


def _log_binomial(log_factorial: FloatArray, s: IntArray, n: int, p: float) -> FloatArray:
    """ln P[Bin(n, p) = s] for whole s <= n."""
    out: FloatArray = (
        log_factorial[n]
        - log_factorial[s]
        - log_factorial[n - s]
        + s * np.log(p)
        + (n - s) * np.log1p(-p)
    )
    return out
