r"""Noise of DP-LSW in one state that a binomial number of trajectories visits: Lemmas 3.14 to 3.16.

For n visits of a state the noise of DP-LSW is governed by

    h(n) = max_{k >= 0} e^{-k beta} / max(n - k, 1)^2.                      (1)

The logarithm of e^{-bx} (a - x)^{-2} is convex in x, so its maximum is at an end point of
[0, a - 1]:

    h(n) = max(n^{-2}, e^{-beta (n - 1)})  for n >= 1,   h(0) = 1.          (2)

The printed Lemma 3.14 gives the value at the stationary point, which is the minimum, and what
follows in :mod:`dprl.bounds.lsw_utility` inherits it. ``..._sharper`` replaces the constant 6 of
Lemma 3.15 by one that tends to 1. Array arguments broadcast.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike
from scipy import stats
from scipy.special import betainc, lambertw

from dprl import _validation as check
from dprl._validation import FloatArray

#: The range of beta for which Lemma 3.16 and Theorem 3.17 are stated.
LARGEST_BETA = 2.0

#: Smallest positive probability: below it fourth powers leave the range of floats.
SMALLEST_PROBABILITY = 1e-70

# Terms of one block of binomial sums held in memory at once.
_BLOCK = 2_000_000
#: Of one setting: that of m = 10^13 at p = 1/2, in about five seconds.
MOST_TERMS = 30_000_000


def lemma_3_14_printed(b: ArrayLike, a: ArrayLike) -> FloatArray:
    """Lemma 3.14 as printed, for max_{0 <= x <= a - 1} e^{-bx} / (a - x)^2.

    1/a^2 if b < 2/a, e^{1 - ab} if b > 2, (e^2/4) b^2 e^{-ab} otherwise
    (equation 3.48). Right only for a = 1 and b <= 2; elsewhere it is the minimum
    (:func:`lemma_3_14_minimum`), and for b > 2 less than that. b > 0 and a >= 1 broadcast.

    >>> round(float(lemma_3_14_printed(0.1, 100.0)), 10)
    8.387e-07
    """
    decay, end = check.positive_array("b", b), check.array_from("a", a, 1)
    stationary = math.e**2 / 4 * decay**2 * np.exp(-end * decay)
    return np.select([decay < 2 / end, decay > 2], [end**-2.0, np.exp(1 - end * decay)], stationary)


def lemma_3_14_minimum(b: ArrayLike, a: ArrayLike) -> FloatArray:
    """The minimum of e^{-bx} / (a - x)^2 over 0 <= x <= a - 1; b > 0, a >= 1.

    The function is log-convex with its stationary point at x = a - 2/b: the
    minimum is there if that lies in the interval, else at the nearer end point.

    >>> round(float(lemma_3_14_minimum(3.0, 3.0)), 7)
    0.0024788
    """
    decay, end = check.positive_array("b", b), check.array_from("a", a, 1)
    x = np.clip(end - 2 / decay, 0, end - 1)
    return np.asarray(np.exp(-decay * x) / (end - x) ** 2, dtype=np.float64)


def lemma_3_14_corrected(b: ArrayLike, a: ArrayLike) -> FloatArray:
    """Lemma 3.14 corrected: the maximum is max(a^{-2}, e^{-b (a - 1)}); b > 0, a >= 1.

    A log-convex function attains its maximum over an interval at an end point. If a is an integer,
    both end points are, so this is the maximum over the integers x too.

    >>> float(lemma_3_14_corrected(0.1, 100.0))
    0.0001
    """
    decay, end = check.positive_array("b", b), check.array_from("a", a, 1)
    return np.maximum(end**-2.0, np.exp(-decay * (end - 1)))


def equation_3_50_printed(visits: ArrayLike, beta: ArrayLike) -> FloatArray:
    """Equation (3.50) as printed, for h(n) of equation (1) of this module.

    1 if n = 0, n^{-2} if 1 <= n < 2/beta, (e^2/4) beta^2 e^{-beta n} if n >= 2/beta:
    the printed Lemma 3.14 with a = n, whole numbers >= 0, and beta in (0, 2].

    >>> equation_3_50_printed([0, 2], 0.01).tolist()
    [1.0, 0.25]
    """
    n, b = check.whole_array("visits", visits, 0), checked_betas(beta, LARGEST_BETA, "Lemma 3.16")
    return np.where(n == 0, 1.0, lemma_3_14_printed(b, np.maximum(n, 1.0)))


def equation_3_50_corrected(visits: ArrayLike, beta: ArrayLike) -> FloatArray:
    """Equation (3.50) corrected: h(0) = 1 and h(n) = max(n^{-2}, e^{-beta (n - 1)}).

    For whole n >= 0 and beta > 0.

    >>> equation_3_50_corrected([0, 2], 0.01).round(4).tolist()
    [1.0, 0.99]
    """
    n, b = check.whole_array("visits", visits, 0), checked_betas(beta)
    return np.where(n == 0, 1.0, lemma_3_14_corrected(b, np.maximum(n, 1.0)))


def quadratic_regime_onset(beta: ArrayLike, smallest_p: ArrayLike = 1.0) -> FloatArray:
    """n*, the number of visits from which on h(n) = n^{-2}; or n*/p in trajectories.

    The larger solution of n^{-2} = e^{-beta (n - 1)},

        n* = -(2/beta) W_{-1}(-(beta/2) e^{-beta/2}),

    W_{-1} the lower real branch of Lambert's function. For 1 < n < n* the noise of
    DP-LSW falls exponentially, h(n) = e^{-beta (n - 1)} > n^{-2}; from n* on it is
    as small as the local sensitivity. n* = 1 for beta >= 2.

    Parameters
    ----------
    beta : array_like
        > 0.
    smallest_p : array_like
        In (0, 1]: the smallest probability p_s of a visit among the weighted states; n*/p_s
        trajectories visit s n* times on average.

    Examples
    --------
    >>> round(float(quadratic_regime_onset(1e-3)), 1)
    19786.5
    """
    b = checked_betas(beta)
    # the branch point is beta = 2, where n* = 1; near it the expansion is the better start
    gap = np.maximum(2 - b, 0.0)
    near = gap < 0.05
    lower = np.where(near, 1.0, b)
    lambert = -(2 / lower) * np.real(lambertw(-(lower / 2) * np.exp(-lower / 2), -1))
    onset = np.where(near, 1 + gap + 2 * gap**2 / 3, lambert)
    for _ in range(3):  # Newton's method removes what rounding has left
        slope = np.where(gap > 0, 2 / onset - b, 1.0)
        onset = np.where(gap > 0, onset - (2 * np.log(onset) - b * (onset - 1)) / slope, 1.0)
    return np.asarray(onset / _successes(smallest_p), dtype=np.float64)


def lemma_3_15_mean(m: ArrayLike, p: ArrayLike) -> FloatArray:
    """Lemma 3.15, first part: E[1 / (B + 1)] = (1 - (1 - p)^{m+1}) / (p (m + 1)).

    An identity for B ~ Binomial(m, p), m a whole number >= 1 and p in (0, 1].

    >>> float(lemma_3_15_mean(1, 0.5))
    0.75
    """
    trials, success = check.whole_array("m", m), _successes(p)
    with np.errstate(divide="ignore"):  # p = 1: ln 0 = -inf, and the power is 0
        some = -np.expm1((trials + 1) * np.log1p(-success))
    return np.asarray(some / (success * (trials + 1)), dtype=np.float64)


def lemma_3_15_inverse_square(m: ArrayLike, p: ArrayLike) -> FloatArray:
    r"""Lemma 3.15, second part: an upper bound of E[B^{-2}; B >= 1].

    The printed right side is

        6/(p(m+1)) [ (1-(1-p)^{m+2})/(p(m+2)) - (1-p)^{m+1} - p(m+1)/2 (1-p)^m ].

    Computed as 6 P[B_{m+2} >= 3] / (p^2 (m+1)(m+2)), the same number without
    cancellation: 1/k^2 <= 6/((k+1)(k+2)) moves the weights of Binomial(m, p)
    to those of Binomial(m + 2, p), two places further.

    Parameters as :func:`lemma_3_15_mean`.

    >>> float(lemma_3_15_inverse_square(1, 1.0))
    1.0
    """
    trials, success = check.whole_array("m", m), _successes(p)
    return np.asarray(6 * _shifted_two(trials, success), dtype=np.float64)


def lemma_3_15_inverse_square_sharper(m: ArrayLike, p: ArrayLike) -> FloatArray:
    r"""Lemma 3.15, second part, with a constant that tends to 1 instead of 6.

    E[B^{-2}; B >= 1] <= P[B_{m+2} >= 3] / (p^2 (m+1)(m+2))
                         + 20 P[B_{m+3} >= 4] / (p^3 (m+1)(m+2)(m+3)),

    from 1/k^2 <= 1/((k+1)(k+2)) + 20/((k+1)(k+2)(k+3)) for k >= 1. Never above the printed bound,
    and (pm)^2 times it tends to 1 as pm grows, which is the true limit.

    Parameters as :func:`lemma_3_15_mean`.

    >>> round(float(lemma_3_15_inverse_square_sharper(10**6, 0.5)) * (0.5 * 10**6) ** 2, 3)
    1.0
    """
    trials, success = check.whole_array("m", m), _successes(p)
    third = betainc(4.0, trials, success) / (
        success**3 * (trials + 1) * (trials + 2) * (trials + 3)
    )  # P[B_{m+3} >= 4] = I_p(4, m)
    return np.asarray(_shifted_two(trials, success) + 20 * third, dtype=np.float64)


def expected_inverse_square(m: ArrayLike, p: ArrayLike) -> FloatArray:
    """E[B^{-2}; B >= 1] for B ~ Binomial(m, p), by summation.

    The left side of Lemma 3.15. Accuracy and cost as :func:`expected_smooth_term`.

    Parameters as :func:`lemma_3_15_mean`.

    >>> float(expected_inverse_square(2, 0.5).round(12))
    0.5625
    """
    trials, success = np.broadcast_arrays(check.whole_array("m", m), _successes(p))
    return _positive_part(trials, success, None)


def expected_smooth_term(m: ArrayLike, p: ArrayLike, beta: ArrayLike) -> FloatArray:
    """E[h(B)] for B ~ Binomial(m, p): the left side of Lemma 3.16, by summation.

    h is that of :func:`equation_3_50_corrected`. Terms are left out only where
    Bernstein's inequality puts less than 1e-16 of the two parts of the sum:
    O(min(m, sqrt(m p (1 - p)) + 50)) are summed, at most ``MOST_TERMS``.

    m trajectories (whole numbers >= 1), p the probability of a visit in [0, 1], beta > 0.

    >>> float(expected_smooth_term(1, 0.3, 0.01))  # no or one visit: 1 either way
    1.0
    >>> float(expected_smooth_term(2, 1.0, 0.01).round(6))
    0.99005
    """
    trials, success, b = np.broadcast_arrays(
        check.whole_array("m", m), checked_probabilities(p), checked_betas(beta)
    )
    with np.errstate(divide="ignore"):
        never = np.exp(trials * np.log1p(-success))
    visited = np.where(success > 0, success, 1.0)
    return np.asarray(
        np.where(success > 0, never + _positive_part(trials, visited, b), 1.0), dtype=np.float64
    )


def lemma_3_16_printed(m: ArrayLike, p: ArrayLike, beta: ArrayLike) -> FloatArray:
    """Lemma 3.16 as printed (equation 3.49), a claimed upper bound of E[h(B)].

    6/(p^2 (m+1)(m+2)) + (e^2 beta^2/4)(1 - (1 - e^{-beta}) p)^m for p > 0, and 1 for p = 0. It
    rests on the printed Lemma 3.14 and fails: e^beta is needed where e^2 beta^2/4 stands.
    Parameters as :func:`expected_smooth_term`, with beta <= 2.

    >>> round(float(lemma_3_16_printed(1000, 1.0, 1e-3)), 8)
    6.66e-06
    >>> round(float(expected_smooth_term(1000, 1.0, 1e-3)), 5)
    0.36825
    """
    b = checked_betas(beta, LARGEST_BETA, "Lemma 3.16")
    return _two_terms(m, p, b, 2 * np.log(b) + 2 - np.log(4))


def lemma_3_16_corrected(m: ArrayLike, p: ArrayLike, beta: ArrayLike) -> FloatArray:
    """Lemma 3.16 corrected: an upper bound of E[h(B)].

    6/(p^2 (m+1)(m+2)) + e^beta (1 - (1 - e^{-beta}) p)^m for p > 0, and 1 for p = 0. It needs no
    beta <= 2. No factor below e^beta (1 - 6 e beta^2) can replace e^beta: for p = 1 the left side
    is at least e^beta e^{-beta m}, and 6/((m+1)(m+2)) < 6 beta^2 at m = ceil(1/beta). Parameters
    as :func:`expected_smooth_term`.

    >>> round(float(lemma_3_16_corrected(1000, 1.0, 1e-3)), 5)
    0.36825
    """
    b = checked_betas(beta)
    return _two_terms(m, p, b, b)


def lemma_3_16_sharper(m: ArrayLike, p: ArrayLike, beta: ArrayLike) -> FloatArray:
    """Lemma 3.16 with both parts sharp: the constant 6 replaced by one that tends to 1.

    :func:`lemma_3_15_inverse_square_sharper` plus e^beta (1 - (1 - e^{-beta}) p)^m.

    Parameters as :func:`lemma_3_16_corrected`.

    >>> m = 10**6
    >>> round(float(lemma_3_16_sharper(m, 0.5, 0.1)) * (0.5 * m) ** 2, 3)
    1.0
    """
    trials, success, b = check.whole_array("m", m), checked_probabilities(p), checked_betas(beta)
    visited = np.where(success > 0, success, 1.0)
    inverse = lemma_3_15_inverse_square_sharper(trials, visited)
    with np.errstate(over="ignore"):  # beyond the range of floats the bound is infinite
        exponential = np.exp(b + trials * log_moment(visited, b))
    return np.asarray(np.where(success > 0, inverse + exponential, 1.0), dtype=np.float64)


def _two_terms(m: ArrayLike, p: ArrayLike, beta: FloatArray, log_factor: FloatArray) -> FloatArray:
    """6/(p^2 (m+1)(m+2)) + e^{log_factor} (1 - (1 - e^{-beta}) p)^m; 1 where p = 0."""
    trials, success = check.whole_array("m", m), checked_probabilities(p)
    visited = np.where(success > 0, success, 1.0)
    inverse = 6 / (visited**2 * (trials + 1) * (trials + 2))
    with np.errstate(over="ignore"):  # beyond the range of floats the bound is infinite
        exponential = np.exp(log_factor + trials * log_moment(visited, beta))
    return np.asarray(np.where(success > 0, inverse + exponential, 1.0), dtype=np.float64)


def log_moment(p: FloatArray, beta: FloatArray | float) -> FloatArray:
    """ln E[e^{-beta B_{1,p}}] = ln(1 - (1 - e^{-beta}) p); p > 0."""
    b = np.asarray(beta, dtype=np.float64)
    with np.errstate(divide="ignore"):  # p = 1 and a large beta: replaced below
        inside = np.log1p(np.expm1(-b) * p)
    return np.asarray(np.where(p == 1, -b, inside), dtype=np.float64)


def _shifted_two(m: FloatArray, p: FloatArray) -> FloatArray:
    """E[1/((B+1)(B+2)); B >= 1] = P[B_{m+2} >= 3] / (p^2 (m+1)(m+2))."""
    at_least_three = betainc(3.0, m, p)  # P[B_{m+2} >= 3] = I_p(3, m)
    return np.asarray(at_least_three / (p**2 * (m + 1) * (m + 2)), dtype=np.float64)


def _positive_part(m: FloatArray, p: FloatArray, beta: FloatArray | None) -> FloatArray:
    """E[h(B); B >= 1], or E[B^{-2}; B >= 1] without beta; p > 0, equal shapes.

    h(n) <= n^{-2} + e^beta e^{-beta n}. The first part is concentrated around mp, the
    second around mp', p' = p e^{-beta} / (1 - (1 - e^{-beta}) p), the mean of the
    tilted binomial. Both neighbourhoods are summed, ragged, block by block.
    """
    trials, success = m.ravel(), p.ravel()
    low, high = _neighbourhood(trials, success)
    tilt = None if beta is None else beta.ravel()
    if tilt is not None:
        log_mean = log_moment(success, tilt)
        tilted = np.minimum(success * np.exp(-tilt - log_mean), 1.0)
        other_low, other_high = _neighbourhood(trials, tilted)
        # for beta >= 2 the exponential part never exceeds n^{-2}
        use = tilt < 2
        other_low = np.where(use, np.minimum(other_low, low), low)
        other_high = np.where(use, other_high, low - 1)
        apart = other_high < low
        low = np.where(apart, low, other_low)
        high = np.maximum(high, other_high)
        # a second range where the two neighbourhoods do not meet; else empty
        starts = np.stack([low, other_low], axis=1)
        stops = np.stack([high, np.where(apart, other_high, other_low - 1)], axis=1)
    else:
        starts, stops = low[:, None], high[:, None]
    terms = (stops - starts + 1).sum(axis=1)
    if (terms > MOST_TERMS).any():
        raise ValueError(
            f"m is too large: {terms.max():.1g} terms, at most {MOST_TERMS:,} are summed"
        )
    lengths = (stops - starts + 1).astype(np.int64)
    out = np.empty(trials.size)
    if not out.size:
        return out.reshape(m.shape)
    per_setting = lengths.sum(axis=1)
    # settings of about _BLOCK terms together
    block = np.cumsum(per_setting) // _BLOCK
    for part in np.split(np.arange(trials.size), np.flatnonzero(np.diff(block)) + 1):
        owner = np.repeat(part, per_setting[part])
        first, size = starts[part].ravel(), lengths[part].ravel()
        begins = np.cumsum(size) - size
        n = np.repeat(first - begins, size) + np.arange(int(size.sum()))
        value = n**-2.0
        if tilt is not None:
            value = np.maximum(value, np.exp(-tilt[owner] * (n - 1)))
        mass = stats.binom.pmf(n, trials[owner], success[owner]) * value
        out[part] = np.bincount(owner - part[0], weights=mass, minlength=part.size)
    return out.reshape(m.shape)


def _neighbourhood(m: FloatArray, p: FloatArray) -> tuple[FloatArray, FloatArray]:
    """First and last n >= 1 outside of which Binomial(m, p) has mass below 2e-16.

    Bernstein: P[|B - mp| > t] <= 2 exp(-t^2 / (2 (v + t/3))), v = mp(1 - p); the
    right side is 2 e^{-37} for t = 37/3 + sqrt((37/3)^2 + 74 v).
    """
    mean = m * p
    t = 37 / 3 + np.sqrt((37 / 3) ** 2 + 74 * mean * (1 - p))
    return np.maximum(np.floor(mean - t), 1.0), np.minimum(np.ceil(mean + t), m)


def checked_probabilities(p: ArrayLike) -> FloatArray:
    success = check.unit_array("p", p)
    if ((success > 0) & (success < SMALLEST_PROBABILITY)).any():
        raise ValueError(
            f"a positive p must be at least {SMALLEST_PROBABILITY:g}: its powers vanish"
        )
    return success


def _successes(p: ArrayLike) -> FloatArray:
    success = checked_probabilities(p)
    if (success == 0).any():
        raise ValueError("p must be positive: with p = 0 the binomial variable is never above 0")
    return success


def checked_betas(beta: ArrayLike, largest: float | None = None, statement: str = "") -> FloatArray:
    b = check.positive_array("beta", beta)
    if largest is not None and (b > largest).any():
        raise ValueError(f"{statement} is stated for beta <= {largest:g}, got {b.max()}")
    return b
