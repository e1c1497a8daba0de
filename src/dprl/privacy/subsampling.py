r"""Privacy of m releases on random sub-samples: amplification, composition, calibration.

A data set holds n records. A base mechanism takes k records and is (eps, delta)-private when one of
its k records is replaced. It is run m times, each time on a fresh sub-sample: k of the n records,
uniformly, without replacement. Everything that is computed from the m outputs, their average for
one, is then (eps*, delta*)-private when one of the n records is replaced. Write q = k/n.

*One sub-sample.* Exact (Balle, Barthe and Gaboardi 2018, theorem 9), attained by a base that
says, through a randomised response, whether a certain record is in the sub-sample:

    eps_0 = ln(1 + q (e^eps - 1)),              delta_0 = q delta.                    (1)

The thesis states the weaker (Lemma 4.10) and uses, in (4.7)-(4.8), a third pair, which an
elementary argument gives:

    eps_0 = q (e^eps - 1),                      delta_0 = q delta,                    (2)
    eps_0 = ln(1 + q e^eps (e^eps - 1)),        delta_0 = q e^eps delta.              (3)

*m sub-samples.* Advanced composition (:mod:`dprl.privacy.composition`), for any slack delta':

    eps* = eps_0 sqrt(2 m ln(1/delta')) + m eps_0 (e^{eps_0} - 1),
    delta* = m delta_0 + delta'.                                                      (4)

(3) and (4) together are (4.7)-(4.8) of the thesis. Optimal composition is better.

*The inverse.* Given eps*, delta* and 0 < delta' < delta*, write L = ln(1/delta'). If eps* <= 4 L,
then (3) and (4) keep the promise (eps*, delta*) with the base that has

    e^eps (e^eps - 1) = x,    delta = n (delta* - delta') / (m k e^eps),
    x = n eps* / (k sqrt(8 m L))                                                      (6)

(thesis, equations 4.9-4.10): the two terms of eps* are at most eps*/2 and eps*^2/(8 L), since
ln(1 + y) <= y. No weaker condition on eps* and delta' alone is enough: for m to infinity both are
attained. The exact pair (1) and (4) keep the promise, without a condition on eps*, with

    eps = ln(1 + n y/k),      delta = n (delta* - delta') / (m k),
    m y^2 + sqrt(2 m L) y = eps*,   y > 0,                                            (7)

because e^{eps_0} - 1 = y and eps_0 <= y.

All statements hold for any base mechanism, linear or not, and also if each base mechanism is
chosen by looking at the outputs before it. The sub-samples must be drawn independently of each
other and of the data, and which records they hold must stay secret.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike
from scipy import optimize, special

from dprl import _validation as check
from dprl._validation import FloatArray
from dprl.privacy.composition import (
    advanced_composition,
    at_least_zero,
    composed_loss,
    expected_excess,
    plain_number,
    total_delta,
)

# -- one sub-sample -----------------------------------------------------------------------


def amplified(epsilon: ArrayLike, delta: ArrayLike, fraction: ArrayLike) -> tuple[Any, Any]:
    """Guarantee of a base mechanism run on one sub-sample without replacement, equation (1).

    Neighbours: replace one record, before and after.

    Parameters
    ----------
    epsilon : float or array_like
        Of the base mechanism, >= 0.
    delta : float or array_like
        Of the base mechanism, in [0, 1].
    fraction : float or array_like
        q = k/n in (0, 1]. The three broadcast.

    Returns
    -------
    (float, float) or (ndarray, ndarray)
        eps_0 and delta_0 of the sub-sampled mechanism; some base attains them.

    Examples
    --------
    >>> epsilon, delta = amplified(1.0, 1e-5, 0.1)
    >>> round(epsilon, 6), round(delta, 12)
    (0.158565, 1e-06)
    """
    e, d, q = _base(epsilon, delta, fraction)
    with np.errstate(over="ignore"):
        gain = q * np.expm1(e)
    step = np.where(np.isfinite(gain), np.log1p(gain), np.log(q) + e)
    return plain_number(step), plain_number(q * d)


def amplified_printed(epsilon: ArrayLike, delta: ArrayLike, fraction: ArrayLike) -> tuple[Any, Any]:
    """Lemma 4.10 of the thesis, equation (2): valid, and never below :func:`amplified`.

    Parameters as there; eps_0 is infinite where e^epsilon overflows.

    >>> round(amplified_printed(1.0, 1e-5, 0.1)[0], 6)
    0.171828
    """
    e, d, q = _base(epsilon, delta, fraction)
    with np.errstate(over="ignore"):
        return plain_number(q * np.expm1(e)), plain_number(q * d)


def amplified_elementary(
    epsilon: ArrayLike, delta: ArrayLike, fraction: ArrayLike
) -> tuple[Any, Any]:
    """The step that (4.7)-(4.8) of the thesis contain, equation (3): valid, from no lemma of it.

    Parameters as in :func:`amplified`. delta_0 is as the formula gives it: from 1 on it promises
    nothing, and it is infinite where e^epsilon overflows.

    >>> epsilon, delta = amplified_elementary(1.0, 1e-5, 0.1)
    >>> round(epsilon, 6), round(delta, 9)
    (0.383272, 2.718e-06)
    """
    e, d, q = _base(epsilon, delta, fraction)
    with np.errstate(over="ignore", invalid="ignore"):
        gain = q * np.exp(e) * np.expm1(e)
        step = np.where(np.isfinite(gain), np.log1p(gain), np.log(q) + 2 * e)
        return plain_number(step), plain_number(np.where(d == 0, 0.0, q * np.exp(e) * d))


# -- sub-sampling and composition together ------------------------------------------------


def composed_printed(
    epsilon: ArrayLike,
    delta: ArrayLike,
    n: ArrayLike,
    m: ArrayLike,
    k: ArrayLike,
    slack: ArrayLike,
) -> tuple[Any, Any]:
    """Forward map (4.7)-(4.8) of the thesis: (3) and then (4). Valid, never below :func:`composed`.

    Parameters
    ----------
    epsilon, delta : float or array_like
        Of the base mechanism: >= 0, and in [0, 1].
    n, m, k : int or array_like
        Records, sub-samples, records in a sub-sample; m >= 1, 1 <= k <= n.
    slack : float or array_like
        delta' in (0, 1). All broadcast.

    Returns
    -------
    (float, float) or (ndarray, ndarray)
        eps* and delta*, as the formula gives them: a delta of 1 or more promises nothing.

    Examples
    --------
    >>> epsilon, delta = composed_printed(0.1, 1e-7, n=10_000, m=100, k=500, slack=1e-5)
    >>> round(epsilon, 6), round(delta, 9)
    (0.281431, 1.0553e-05)
    """
    _, q = _sizes(n, m, k)
    return advanced_composition(*amplified_elementary(epsilon, delta, q), m, slack)


def composed(
    epsilon: ArrayLike,
    delta: ArrayLike,
    n: ArrayLike,
    m: ArrayLike,
    k: ArrayLike,
    slack: ArrayLike,
) -> tuple[Any, Any]:
    """Exact amplification (1) and then advanced composition (4).

    Parameters and return value as in :func:`composed_printed`.

    >>> epsilon, delta = composed(0.1, 1e-7, n=10_000, m=100, k=500, slack=1e-5)
    >>> round(epsilon, 6), round(delta, 9)
    (0.25443, 1.05e-05)
    """
    _, q = _sizes(n, m, k)
    return advanced_composition(*amplified(epsilon, delta, q), m, slack)


# -- the inverse: which base guarantee keeps a promise ------------------------------------


def inversion_printed(
    epsilon: ArrayLike,
    delta: ArrayLike,
    n: ArrayLike,
    m: ArrayLike,
    k: ArrayLike,
    slack: ArrayLike,
) -> tuple[Any, Any]:
    """The formulas (4.9)-(4.10) of the thesis wherever they can be evaluated: no promise.

    For a promise use :func:`base_guarantee_printed`, which refuses what is not proved; parameters
    as there, and if delta' is not below delta*, the second number is not positive.

    >>> epsilon, _ = inversion_printed(0.5, 0.95, n=1000, m=100, k=500, slack=0.9)
    >>> round(composed_printed(epsilon, 0.0, 1000, 100, 500, 0.9)[0], 3)  # more than 0.5
    0.532
    """
    e, d, count, q, s = _target(epsilon, delta, n, m, k, slack)
    base_epsilon, base_delta = _printed(e, d, count, q, s)
    return plain_number(base_epsilon), plain_number(base_delta)


def base_guarantee_printed(
    epsilon: ArrayLike,
    delta: ArrayLike,
    n: ArrayLike,
    m: ArrayLike,
    k: ArrayLike,
    slack: ArrayLike | None = None,
    *,
    refused: Literal["raise", "nan"] = "raise",
) -> tuple[Any, Any]:
    """Base guarantee (4.9)-(4.10) of the thesis for a promise, equation (6), with its conditions.

    The m sub-samples together are (epsilon, delta)-private if the base mechanism keeps what is
    returned. Neighbours: replace one of the n records; for the base, one of its k records.

    Parameters
    ----------
    epsilon, delta : float or array_like
        eps* > 0, the promise of the whole; delta* in (0, 1), the promise of the whole.
    n, m, k : int or array_like
        Records, sub-samples, records in a sub-sample; m >= 1, 1 <= k <= n.
    slack : float or array_like, optional
        delta' with 0 < delta' < delta*; by default delta*/2. All broadcast.
    refused : {"raise", "nan"}
        What to do where a condition fails: an error (default), or NaN in these places.

    Returns
    -------
    (float, float) or (ndarray, ndarray)
        Epsilon and delta of the base mechanism. Epsilon may exceed 1, where the classical
        Gaussian calibration is not proved.

    Raises
    ------
    ValueError
        If delta' is not below delta*; if eps* > 4 ln(1/delta'), where the inversion fails; if
        the base delta comes out as 1 or more, mk e^eps <= n (delta* - delta'): then a base that
        publishes one record of its sub-sample is allowed, and no guarantee says so.

    Examples
    --------
    >>> epsilon, delta = base_guarantee_printed(1.0, 1e-5, n=10_000, m=16, k=2500)
    >>> round(epsilon, 4), round(delta, 10)
    (0.0886, 1.144e-06)
    """
    e, d, count, q, s = _target(epsilon, delta, n, m, k, slack)
    base_epsilon, base_delta = _printed(e, d, count, q, s)
    limit = -4 * np.log(s)
    return _granted(base_epsilon, base_delta, d, s, refused, e, limit)


def base_guarantee(
    epsilon: ArrayLike,
    delta: ArrayLike,
    n: ArrayLike,
    m: ArrayLike,
    k: ArrayLike,
    slack: ArrayLike | None = None,
    *,
    refused: Literal["raise", "nan"] = "raise",
) -> tuple[Any, Any]:
    """Base guarantee for a promise by exact amplification, equation (7).

    Its epsilon is at least that of :func:`base_guarantee_printed`, up to 2.34 times it, and its
    delta is larger by the factor e^eps of the printed epsilon.

    Parameters and return value as in :func:`base_guarantee_printed`, without its condition on eps*:
    a ValueError only if delta' is not below delta*, or the base delta comes out as 1 or more, that
    is mk <= n (delta* - delta').

    >>> epsilon, delta = base_guarantee(1.0, 1e-5, n=10_000, m=16, k=2500)
    >>> round(epsilon, 4), round(delta, 10)
    (0.1779, 1.25e-06)
    """
    e, d, count, q, s = _target(epsilon, delta, n, m, k, slack)
    big_l = -np.log(s)
    y = 2 * e / (np.sqrt(2 * count * big_l) * (1 + np.sqrt(1 + 2 * e / big_l)))
    base_delta = (d - s) / (count * q)
    return _granted(np.log1p(y / q), base_delta, d, s, refused)


def base_guarantee_optimal(
    epsilon: float,
    delta: float,
    n: int,
    m: int,
    k: int,
    base_delta: float | None = None,
    *,
    noise: Callable[[float, float], float] | None = None,
) -> tuple[float, float]:
    """Largest base epsilon that keeps a promise by exact amplification (1) and optimal composition.

    No accounting that knows of one sub-sampled release only its epsilon and delta can grant
    more. One that knows more of the base mechanism can.

    Parameters
    ----------
    epsilon, delta : float
        eps* > 0 and delta* in (0, 1), the promise of the whole.
    n, m, k : int
        Records, sub-samples, records in a sub-sample; m >= 1, 1 <= k <= n.
    base_delta : float, optional
        Delta of the base mechanism, in [0, 1). A larger one leaves less epsilon. By default it
        is chosen to minimise ``noise``: it may come near 1, where the base mechanism may do
        anything with one record in a sub-sample, publish it for one.
    noise : callable, optional
        (epsilon, delta) -> size of the base mechanism's noise, positive and falling in both; by
        default sqrt(ln(1.25/delta))/epsilon, the classical Gaussian mechanism up to a factor.
        Only without ``base_delta``.

    Returns
    -------
    (float, float)
        Epsilon and delta of the base mechanism, rounded down. With m = 1 and k = n this is the
        most lenient guarantee that still implies (epsilon, delta).

    Raises
    ------
    ValueError
        If ``base_delta`` uses up delta* on its own.

    Notes
    -----
    About 20 searches over epsilon, ten evaluations each: a hundredth of a second, a third
    of a second at m = 2^20.

    Examples
    --------
    >>> epsilon, delta = base_guarantee_optimal(1.0, 1e-5, n=10_000, m=16, k=2500)
    >>> round(epsilon, 3)
    0.259
    >>> from dprl.privacy import optimal_composition_delta
    >>> step = amplified(epsilon, delta, 0.25)
    >>> optimal_composition_delta(*step, 16, 1.0) <= 1e-5
    True
    """
    target = check.positive("epsilon", epsilon)
    total = check.open_unit("delta", delta)
    count, q = (float(v) for v in _sizes(check.whole("n", n), check.whole("m", m), k))
    releases = int(count)

    def largest(step_delta: float) -> float:
        spent = total_delta(step_delta, releases, 0.0)
        left = (total - spent) / (1 - spent)
        step = _largest_step(releases, target, left)
        base = step + math.log1p(-math.expm1(-step) * (1 / q - 1))  # ln(1 + (e^step - 1) / q)
        return base * (1 - 1e-12)

    if base_delta is not None:
        if noise is not None:
            raise ValueError("noise chooses base_delta: give one of the two, not both")
        given = check.below_one("base_delta", base_delta)
        if total_delta(q * given, releases, 0.0) >= total:
            raise ValueError(
                f"base_delta {given:g} on {releases} sub-samples of the fraction {q:g} already "
                f"costs {total_delta(q * given, releases, 0.0):g}; delta is only {total:g}"
            )
        return largest(q * given), given

    size = _classical_noise if noise is None else noise
    most = min(total, total_delta(q, releases, 0.0))  # what the base deltas may cost in all

    def split(share: float) -> tuple[float, float]:
        """The base guarantee when its deltas cost this share of the most they may."""
        step_delta = float(-np.expm1(np.log1p(-most * share) / releases))
        base = min(step_delta / q, 1.0) * (1 - 1e-12)
        return largest(q * base), base

    def cost(logit: float) -> float:
        return size(*split(float(special.expit(logit))))

    grid = np.linspace(-14.0, 10.0, 9)
    best = int(np.argmin([cost(u) for u in grid]))
    low, high = grid[max(best - 1, 0)], grid[min(best + 1, grid.size - 1)]
    found = optimize.minimize_scalar(
        cost, bounds=(low, high), method="bounded", options={"xatol": 1e-2}
    )
    shares = [float(special.expit(u)) for u in (grid[best], found.x)] + [1.0]
    return min((split(share) for share in shares), key=lambda pair: size(*pair))


# -- inside -------------------------------------------------------------------------------


def _classical_noise(epsilon: float, delta: float) -> float:
    return float(np.sqrt(np.log(1.25 / delta)) / epsilon)


def _largest_step(m: int, target: float, left: float) -> float:
    """Largest eps_0 whose m-fold composition has at most delta = left at eps = target."""

    def gap(log_step: float) -> float:
        excess = expected_excess(*composed_loss(float(np.exp(log_step)), m), target)
        return float(np.log(max(excess, 1e-320) / left))

    low = float(np.log(target / m))  # basic composition: the excess is zero
    if left <= 1e-300:
        return float(np.exp(low)) * (1 - 1e-12)
    high = max(low, float(np.log(target) - np.log(m) / 2 - 2))
    while gap(high) <= 0:
        low, high = high, high + 1
    root = float(optimize.brentq(gap, low, high, xtol=1e-12, rtol=1e-14)) if low < high else low
    while gap(root) > 0:  # to the safe side of the root
        root -= 1e-11
    return float(np.exp(root))


def _printed(
    e: FloatArray, d: FloatArray, m: FloatArray, q: FloatArray, s: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Equation (6): ln(1/2 + sqrt(1/4 + x)), without losing digits for small x, and delta."""
    x = e / (q * np.sqrt(-8 * m * np.log(s)))
    root = np.sqrt(0.25 + x)
    return np.log1p(x / (0.5 + root)), np.asarray((d - s) / (m * q * (0.5 + root)))


def _granted(
    base_epsilon: FloatArray,
    base_delta: FloatArray,
    d: FloatArray,
    s: FloatArray,
    refused: Literal["raise", "nan"],
    e: FloatArray | float = 0.0,
    limit: FloatArray | float = np.inf,
) -> tuple[Any, Any]:
    """The base guarantee where delta' < delta*, eps* <= limit and the base delta is below 1."""
    if refused not in ("raise", "nan"):
        raise ValueError(f"refused must be 'raise' or 'nan', got {refused!r}")
    conditions = (
        (s, np.less, d, "slack must be below delta"),
        (e, np.less_equal, limit, "epsilon must be at most 4 ln(1/slack), or the promise fails"),
        (base_delta, np.less, 1.0, "mk is so small that the base delta would be 1 or more"),
    )
    kept = np.ones(np.broadcast(base_epsilon, base_delta).shape, dtype=bool)
    for value, compare, bound, message in conditions:
        holds = np.asarray(compare(value, bound))
        if refused == "raise" and not holds.all():
            at = np.unravel_index(int(np.argmin(holds)), holds.shape)
            v, b = (np.broadcast_to(a, holds.shape)[at] for a in (value, bound))
            raise ValueError(f"{message}: {v:g} against {b:g}")
        kept = kept & holds
    return (
        plain_number(np.where(kept, base_epsilon, np.nan)),
        plain_number(np.where(kept, base_delta, np.nan)),
    )


def _target(
    epsilon: ArrayLike,
    delta: ArrayLike,
    n: ArrayLike,
    m: ArrayLike,
    k: ArrayLike,
    slack: ArrayLike | None,
) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray, FloatArray]:
    e = check.positive_array("epsilon", epsilon)
    d = check.open_unit_array("delta", delta)
    count, q = _sizes(n, m, k)
    return e, d, count, q, d / 2 if slack is None else check.open_unit_array("slack", slack)


def _base(
    epsilon: ArrayLike, delta: ArrayLike, fraction: ArrayLike
) -> tuple[FloatArray, FloatArray, FloatArray]:
    e, d = at_least_zero("epsilon", epsilon), at_least_zero("delta", delta)
    if (d > 1).any():
        raise ValueError(f"delta must lie in [0, 1], got {d.max()}")
    q = check.finite_array("fraction", fraction)
    if ((q <= 0) | (q > 1)).any():
        raise ValueError("fraction must lie in (0, 1]: records in a sub-sample over all records")
    return e, d, q


def _sizes(n: ArrayLike, m: ArrayLike, k: ArrayLike) -> tuple[FloatArray, FloatArray]:
    """m and q = k/n as floats."""
    records, count, size = (check.integer_array(*x) for x in (("n", n), ("m", m), ("k", k)))
    if (size > records).any():
        raise ValueError("k must not exceed n: a sub-sample is drawn without replacement")
    return count, np.asarray(size / records)
