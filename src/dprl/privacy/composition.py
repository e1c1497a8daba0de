r"""Composition: what m releases promise together.

For m releases that are each (eps_0, delta_0)-private, and any slack delta' in (0, 1), advanced
composition (Dwork, Rothblum and Vadhan 2010, theorem III.3; Dwork and Roth 2014, theorem 3.20):

    eps* = eps_0 sqrt(2 m ln(1/delta')) + m eps_0 (e^{eps_0} - 1),
    delta* = m delta_0 + delta'.                                                      (1)

The best possible bound for m arbitrary (eps_0, delta_0)-private mechanisms (Kairouz, Oh and
Viswanath 2015) is

    delta* = 1 - (1 - delta_0)^m (1 - E[(1 - e^{eps* - (2J - m) eps_0})_+]),          (2)

J binomial with m trials of probability e^{eps_0}/(1 + e^{eps_0}). Each mechanism may be chosen
by looking at the outputs before it.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import special

from dprl import _validation as check
from dprl._validation import FloatArray

#: Relative rounding error of (2), rounded up; against 50 digits it is a hundredth of that.
_GUARD = 1e-10
#: What is left out of the binomial has a probability below e^-700.
_DEVIATIONS, _EXTRA = 40, 1000


def advanced_composition(
    epsilon: ArrayLike, delta: ArrayLike, m: ArrayLike, slack: ArrayLike
) -> tuple[Any, Any]:
    """Guarantee of m (epsilon, delta)-private releases together, equation (1).

    Parameters
    ----------
    epsilon : float or array_like
        Of one release, >= 0.
    delta : float or array_like
        Of one release, >= 0.
    m : int or array_like
        Number of releases, >= 1.
    slack : float or array_like
        delta' in (0, 1). All broadcast.

    Returns
    -------
    (float, float) or (ndarray, ndarray)
        As the formula gives them: a delta of 1 or more promises nothing, and epsilon is
        infinite where e^epsilon overflows.

    Examples
    --------
    >>> epsilon, delta = advanced_composition(0.01, 1e-8, 100, 1e-5)
    >>> round(epsilon, 6), round(delta, 10)
    (0.489903, 1.1e-05)
    """
    e, d = at_least_zero("epsilon", epsilon), at_least_zero("delta", delta)
    count, s = check.integer_array("m", m), check.open_unit_array("slack", slack)
    with np.errstate(over="ignore"):
        total = e * np.sqrt(-2 * count * np.log(s)) + count * e * np.expm1(e)  # (1)
    return plain_number(total), plain_number(count * d + s)


def optimal_composition_delta(epsilon: float, delta: float, m: int, target_epsilon: float) -> float:
    """Least delta* that m (epsilon, delta)-private releases keep at eps*, equation (2).

    Exact: m randomised responses attain it (Kairouz, Oh and Viswanath 2015).

    One release keeps epsilon >= 0 and delta in [0, 1); m >= 1, target_epsilon eps* >= 0. In [0, 1],
    rounded up by 1e-10 of its value; parts below 1e-300 are not seen. Time and memory O(sqrt(m)), a
    millisecond at 2^20.

    >>> optimal_composition_delta(0.1, 0.0, 10, 1.0)  # basic composition: eps* = m eps
    0.0
    >>> round(optimal_composition_delta(0.1, 1e-6, 100, 3.0), 9)
    0.001461258
    """
    e, d = check.not_negative("epsilon", epsilon), check.below_one("delta", delta)
    count, target = check.whole("m", m), check.not_negative("target_epsilon", target_epsilon)
    return total_delta(d, count, expected_excess(*composed_loss(e, count), target))


def optimal_composition_epsilon(epsilon: float, delta: float, m: int, target_delta: float) -> float:
    """Least eps* that m (epsilon, delta)-private releases keep at delta*: the inverse of (2).

    epsilon, delta and m as in :func:`optimal_composition_delta`; target_delta in (0, 1) is delta*.
    Returns the upper end of an interval of relative length 1e-12, so never too small; infinite if
    already the deltas of the releases exceed delta*.

    >>> round(optimal_composition_epsilon(0.01, 1e-8, 100, 1.1e-5), 6)
    0.337174
    >>> optimal_composition_epsilon(0.01, 1e-6, 100, 1e-5)
    inf
    """
    e, d = check.not_negative("epsilon", epsilon), check.below_one("delta", delta)
    count, target = check.whole("m", m), check.open_unit("target_delta", target_delta)
    losses, masses = composed_loss(e, count)

    def kept(level: float) -> bool:
        return total_delta(d, count, expected_excess(losses, masses, level)) <= target

    low, high = 0.0, count * e
    if total_delta(d, count, 0.0) > target:
        return float("inf")
    if kept(low):
        return 0.0
    while high - low > 1e-12 * high:
        middle = (low + high) / 2
        low, high = (low, middle) if kept(middle) else (middle, high)
    return high


def composed_loss(epsilon: float, m: int) -> tuple[FloatArray, FloatArray]:
    """Privacy losses (2J - m) eps of m randomised responses, ascending, and their probabilities.

    Ratios of neighbouring probabilities are summed up from the mode outwards, and normalised.
    """
    p = float(special.expit(epsilon))
    mode = min(int((m + 1) * p), m)
    reach = int(_DEVIATIONS * np.sqrt(m * p * special.expit(-epsilon))) + _EXTRA
    low, high = max(mode - reach, 0), min(mode + reach, m)
    j = np.arange(low, high + 1, dtype=np.float64)
    ratio = np.log((m - j[:-1]) / (j[:-1] + 1)) + epsilon  # ln P[j + 1] / P[j]
    at = mode - low
    logs = np.concatenate([-np.cumsum(ratio[:at][::-1])[::-1], [0.0], np.cumsum(ratio[at:])])
    masses: FloatArray = np.exp(logs - logs.max())
    losses: FloatArray = (2 * j - m) * epsilon
    return losses, masses / masses.sum()


def expected_excess(losses: FloatArray, masses: FloatArray, level: float) -> float:
    """E[(1 - e^{level - L})_+], rounded up."""
    start = int(np.searchsorted(losses, level, side="right"))
    if start == losses.size:
        return 0.0
    kept = -np.expm1(level - losses[start:])
    return min(float(masses[start:] @ kept) * (1 + _GUARD), 1.0)


def total_delta(step_delta: float, m: int, excess: float) -> float:
    """1 - (1 - delta_0)^m (1 - excess), without a difference of nearly equal numbers."""
    spent = float(-np.expm1(m * np.log1p(-step_delta))) if step_delta < 1 else 1.0
    return min(spent + (1 - spent) * excess, 1.0)


def at_least_zero(name: str, values: ArrayLike) -> FloatArray:
    x = np.asarray(check.unmasked(name, values), dtype=np.float64)
    if np.isnan(x).any() or (x < 0).any():
        raise ValueError(f"{name} must not be negative and not NaN, got {values!r}")
    return x


def plain_number(values: NDArray[Any]) -> float | FloatArray:
    """A plain float for scalar arguments."""
    out: FloatArray = np.asarray(values, dtype=np.float64)
    return float(out) if out.ndim == 0 else out
