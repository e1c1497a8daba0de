r"""The privacy of the average of m Gaussian releases, each on a random sub-sample: a lower bound.

Releases, mu and the fraction q as in :mod:`dprl.privacy.accounting`. Let one record move every
base query by exactly Delta when it is drawn, as for a mean of numbers. The average of m releases,
divided by its standard deviation sigma/sqrt(m), is then N(B mu/sqrt(m), 1) on x and N(0, 1) on
x', B binomial(m, q). The profile of this explicit pair is a *lower* bound on what any accountant
may report.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable

import numpy as np
from scipy import optimize, special

from dprl import _validation as check
from dprl._validation import FloatArray
from dprl.privacy.gaussian import analytic_gaussian_sigma

#: Of a promise for which a mu is searched: far beyond it the root takes seconds, and then fails.
LARGEST_EPSILON = 1e6
#: Smaller numbers have fewer digits.
LEAST_DELTA = 1e-300


def averaged_gaussian_delta(mu: float, fraction: float, m: int, epsilon: float) -> float:
    """delta(epsilon) of the explicit pair of averages, the larger of both orders.

    A lower bound on delta(epsilon) of the average of m releases, and of all m.

    Parameters as in :func:`~dprl.privacy.accounting.subsampled_gaussian_delta`. In [0, 1]; to about
    ten digits.

    The likelihood ratio increases in z, so the best events are half lines: one root and one
    sum of up to m + 1 terms, O(min(m, 40 sqrt(m))) each.

    >>> from dprl.privacy import gaussian_delta
    >>> full = averaged_gaussian_delta(0.1, 1.0, 100, epsilon=0.5)
    >>> round(full, 12) == round(gaussian_delta(1.0, 1.0, 0.5), 12)
    True
    """
    size, q, number = checked_setting(mu, fraction, m)
    return averaged_delta(size, q, number, check.not_negative("epsilon", epsilon))


def averaged_gaussian_epsilon(mu: float, fraction: float, m: int, delta: float) -> float:
    """Least epsilon of the explicit pair of averages at a given delta.

    mu, fraction and m as in :func:`~dprl.privacy.accounting.subsampled_gaussian_delta`, delta in
    [1e-300, 1). At least 0, and a lower bound on what any accountant may report.

    >>> round(averaged_gaussian_epsilon(0.5, 0.1, 100, delta=1e-5), 3)
    2.191
    """
    size, q, number = checked_setting(mu, fraction, m)
    target = resolved_delta(delta)

    def excess(eps: float) -> float:
        return math.log(max(averaged_delta(size, q, number, eps), 1e-320) / target)

    return root_above_zero(excess)


def averaged_gaussian_mu(fraction: float, m: int, epsilon: float, delta: float) -> float:
    """Largest mu at which the explicit pair of averages needs no more than delta at epsilon.

    fraction and m as in :func:`~dprl.privacy.accounting.subsampled_gaussian_delta`, epsilon > 0 and
    at most ``LARGEST_EPSILON``, delta in [1e-300, 1). An upper bound on the mu that any accountant
    may allow; infinite if delta >= 1 - (1-q)^m.

    >>> round(averaged_gaussian_mu(0.1, 100, epsilon=1.0, delta=1e-5), 3)
    0.257
    """
    q, number = check.fraction("fraction", fraction), check.whole("m", m)
    eps, target = check.positive("epsilon", epsilon), resolved_delta(delta)
    if eps > LARGEST_EPSILON:
        raise ValueError(f"epsilon must be at most {LARGEST_EPSILON:g}, got {epsilon!r}")
    return averaged_mu(q, number, eps, target)


@functools.lru_cache(maxsize=8)
def _binomial(q: float, m: int) -> tuple[FloatArray, FloatArray]:
    """Values and log probabilities of B, without those below e^-745."""
    if q == 1:
        return np.array([float(m)]), np.zeros(1)
    # Chernoff: P(B <= j), P(B >= j) <= exp(-m KL(j/m, q)) <= e^-745 outside of the window
    spread = math.sqrt(2 * 745.0 * m * q) + 745.0
    j = np.arange(max(0, math.floor(m * q - spread)), min(m, math.ceil(m * q + 2 * spread)) + 1.0)
    log_weight = (
        special.gammaln(m + 1.0)
        - special.gammaln(j + 1)
        - special.gammaln(m - j + 1)
        + special.xlogy(j, q)
        + special.xlog1py(m - j, -q)
    )
    log_weight -= special.logsumexp(log_weight)  # the gamma functions err where m is large
    keep = log_weight > -745
    return check.frozen(j[keep]), check.frozen(log_weight[keep])


def averaged_delta(mu: float, q: float, m: int, eps: float) -> float:
    j, log_weight = _binomial(q, m)
    shift = j * (mu / math.sqrt(m))

    def log_ratio(z: float) -> float:
        return float(special.logsumexp(log_weight + shift * (z - shift / 2)))

    def edge(level: float) -> float:
        """z with log_ratio(z) = level."""
        low, high = -1.0, 1.0
        while log_ratio(low) > level:
            low *= 2
        while log_ratio(high) < level:
            high *= 2
        return float(optimize.brentq(lambda z: log_ratio(z) - level, low, high, xtol=1e-13))

    with np.errstate(under="ignore"):
        z = edge(eps)
        first = float(np.exp(log_weight + special.log_ndtr(shift - z)).sum())
        mixed_first = first - math.exp(min(eps + special.log_ndtr(-z), 0.0))
        nothing_drawn = float(log_weight[0]) if j[0] == 0 else -math.inf
        if nothing_drawn >= -eps:  # the ratio never falls to e^-eps
            return float(min(max(mixed_first, 0.0), 1.0))
        z = edge(-eps)
        second = float(np.exp(eps + log_weight + special.log_ndtr(z - shift)).sum())
        mixed_second = float(special.ndtr(z)) - second
    return float(min(max(mixed_first, mixed_second, 0.0), 1.0))


@functools.lru_cache(maxsize=4096)
def averaged_mu(q: float, m: int, eps: float, delta: float) -> float:
    if ever_drawn(q, m) <= delta:
        return math.inf

    def excess(log_mu: float) -> float:
        return math.log(max(averaged_delta(math.exp(log_mu), q, m, eps), 1e-320) / delta)

    low = math.log(1 / (analytic_gaussian_sigma(1.0, eps, delta) * math.sqrt(m)))
    while excess(low) > 0:
        low -= 1e-6
    high = low + 1.0
    while excess(high) < 0:
        high += 1.0
    return math.exp(optimize.brentq(excess, low, high, xtol=1e-12, rtol=1e-12))


def ever_drawn(q: float, m: int) -> float:
    """1 - (1-q)^m: probability that a given record is in any of the sub-samples."""
    return -math.expm1(m * math.log1p(-q)) if q < 1 else 1.0


def root_above_zero(excess: Callable[[float], float]) -> float:
    """Root of a decreasing function on [0, inf); 0 if it starts below 0."""
    if excess(0.0) <= 0:
        return 0.0
    high = 1.0
    while excess(high) > 0:
        high *= 2
    return float(optimize.brentq(excess, 0.0, high, xtol=1e-13, rtol=1e-11))


def resolved_delta(delta: float, least: float = LEAST_DELTA) -> float:
    """A delta in [least, 1): double precision resolves no smaller one here."""
    target = check.open_unit("delta", delta)
    if target < least:
        raise ValueError(
            f"delta must be at least {least:g}, which is what double precision resolves here; "
            f"got {delta!r}"
        )
    return target


def checked_setting(mu: float, fraction: float, m: int) -> tuple[float, float, int]:
    return check.positive("mu", mu), check.fraction("fraction", fraction), check.whole("m", m)
