r"""Sums released with discrete Gaussian noise: a guarantee that floating point does not break.

Real-valued noise in floating point keeps no promise (Mironov 2012). Here everything that is
released is an integer: records are rounded to multiples of a public grid, their sums are exact,
and OpenDP adds discrete Gaussian noise, P[Z = k] proportional to e^{-k^2/(2 sigma^2)}, which it
samples exactly (Canonne, Kamath and Steinke 2020).

**The guarantee is that of the continuous Gaussian.** Let f be a vector of d integer sums, and
sigma^2 = sigma_1^2 + s^2 with s = 3/2. Release k in Z^d with probability proportional to
e^{-||k - Y||^2/(2 s^2)}, where Y = f + N(0, sigma_1^2 I): a random rounding of the continuous
mechanism, so post-processing. In one coordinate the mass of k is

    q(k) = int N(y; f, sigma_1^2) e^{-(k - y)^2/(2 s^2)} / theta(y) dy,
    theta(y) = sum_j e^{-(j - y)^2/(2 s^2)}
    = sqrt(2 pi) s (1 + 2 sum_{m >= 1} e^{-2 pi^2 s^2 m^2} cos 2 pi m y)                (1)

by Poisson summation: theta(y) is sqrt(2 pi) s up to a factor in [1 - eta, 1 + eta], where
eta = 2 sum_{m >= 1} e^{-2 pi^2 s^2 m^2} < 2e-19. The integral without theta is
sqrt(2 pi) s N(k; f, sigma^2), and N(k; f, sigma^2) is the discrete Gaussian's mass p(k) up to a
factor in [1, 1 + eta], (1) at y = 0 with sigma in place of s. Hence |ln(p/q)| <= a for

    a = d ln((1 + eta)/(1 - eta)) < 5e-19 d                                              (2)

over all d coordinates, and if the continuous mechanism is (eps - 2a, e^{-a} delta)-private,
then P[E] <= e^a Q[E] <= e^a (e^{eps - 2a} Q'[E] + e^{-a} delta) <= e^eps P'[E] + delta: the
discrete one is (eps, delta)-private. What the discreteness costs is s^2 in the variance, in units
of the grid. (Canonne, Kamath and Steinke prove zero-concentrated privacy, and the exact delta in
one dimension; (2) keeps the calibration of Balle and Wang 2018 in any dimension.)
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from dprl import _validation as check
from dprl._validation import FloatArray, IntArray
from dprl.privacy.gaussian import analytic_gaussian_sigma, gaussian_delta
from dprl.privacy.guarantee import Guarantee

#: s^2 of the proof: the variance, in units of the grid, that the discrete noise costs.
ROUNDING_VARIANCE = 2.25
_PER_DIMENSION = 5e-19  # a/d of (2), rounded up
_GUARD = 1e-11  # relative; above the error of gaussian_delta and of the floating-point sigma
_LARGEST = 2**62  # of a sum: the noise is added in 64-bit integers, which OpenDP saturates
_LARGEST_UNITS = 2**40  # of a record: then its quotient by the grid is exact to 2^-13


def discrete_gaussian_sigma(
    sensitivity: float, dimension: int, *, epsilon: float, delta: float
) -> float:
    """Parameter sigma of the discrete Gaussian, in units of the grid, that keeps the promise.

    Parameters
    ----------
    sensitivity : float
        Global L2 sensitivity of the integer sums, in units of the grid; 1e-100 to 1e15.
    dimension : int
        Number of sums d, 1 to 10^6.
    epsilon, delta : float
        At least 1e-6, and in (0, 1).

    Returns
    -------
    float
        sigma of the proof; the variance of the noise is at most sigma^2.

    Examples
    --------
    >>> from dprl.privacy import analytic_gaussian_sigma
    >>> exact = analytic_gaussian_sigma(1000.0, 1.0, 1e-6)
    >>> discrete_gaussian_sigma(1000.0, 80, epsilon=1.0, delta=1e-6) / exact < 1 + 1e-6
    True
    """
    shift, eps = check.positive("sensitivity", sensitivity), check.positive("epsilon", epsilon)
    d, tail = check.whole("dimension", dimension), check.open_unit("delta", delta)
    if not 1e-100 <= shift <= 1e15 or d > 10**6 or eps < 1e-6:
        raise ValueError(
            "the rounding needs 1e-100 <= sensitivity <= 1e15, dimension <= 1e6, epsilon >= 1e-6, "
            f"got {sensitivity!r}, {dimension!r} and {epsilon!r}"
        )
    a = _PER_DIMENSION * d
    target = tail * (1 - _GUARD - a)
    sigma = analytic_gaussian_sigma(shift, eps, tail)
    while gaussian_delta(shift, sigma, eps * (1 - _GUARD) - 2 * a) > target:
        sigma *= 1 + _GUARD
    return math.hypot(sigma, math.sqrt(ROUNDING_VARIANCE)) * (1 + _GUARD)


def to_grid(records: ArrayLike, grid: float) -> IntArray:
    """Each number of each record in units of the grid, rounded to the nearest integer.

    Where two records differ by at most Delta (L2), the rounded ones differ by at most
    :func:`grid_sensitivity`. Sums of the integers are exact, in any order.

    Parameters
    ----------
    records : array_like, shape (n, d)
        What each of n records adds to each of d sums; finite.
    grid : float
        Public step, > 0. A thousandth of the noise costs nothing.

    Returns
    -------
    ndarray of int64, shape (n, d)

    Raises
    ------
    ValueError
        If a record exceeds 2^40 units of the grid, or a sum could leave 64-bit integers. The
        caller has clipped the records: their bound is what makes the sensitivity.

    Examples
    --------
    >>> to_grid([[0.26, -1.0]], grid=0.25).tolist()
    [[1, -4]]
    """
    x = check.finite_array("records", records, ndim=2)
    step = check.positive("grid", grid)
    with np.errstate(over="ignore"):
        units = np.rint(x / step)
    largest = float(np.abs(units).max(initial=0.0))
    if largest > _LARGEST_UNITS or largest * len(units) > _LARGEST:
        raise ValueError("records of this size on this grid overflow: clip them, or coarsen it")
    return units.astype(np.int64)


def grid_sensitivity(sensitivity: float, grid: float, dimension: int) -> float:
    """L2 sensitivity of sums of rounded records in units of the grid: Delta/grid + sqrt(d).

    Each coordinate of two records is rounded by at most 1/2 (and the quotient's own 2^-13, which
    is counted). Records of integers on the grid 1 need no rounding, and no sqrt(d).

    >>> round(grid_sensitivity(1.0, 0.001, 4), 3)
    1002.0
    """
    shift, step = check.positive("sensitivity", sensitivity), check.positive("grid", grid)
    rounding = math.sqrt(check.whole("dimension", dimension)) * (1 + 2**-12)
    return shift / step * (1 + _GUARD) + rounding


def discrete_gaussian_mechanism(
    sums: ArrayLike, *, sensitivity: float, epsilon: float, delta: float, neighbours: str
) -> tuple[IntArray, Guarantee]:
    """Release integer sums with discrete Gaussian noise, through OpenDP: for real data.

    Needs the optional extra ``release`` (OpenDP), whose generator is the operating system's and
    takes no seed. Sums of different size want different noise: scale them before
    :func:`to_grid`, and multiply what is released by grid/scale afterwards.

    Parameters
    ----------
    sums : array_like of int, shape (d,)
        Exact sums over the records, within 2^62.
    sensitivity : float
        Global L2 sensitivity of the sums under ``neighbours``, in the same units; proved by
        the caller (:func:`grid_sensitivity`).
    epsilon, delta : float
        The promise, as in :func:`discrete_gaussian_sigma`.
    neighbours : str
        The relation for which the sensitivity was proved.

    Returns
    -------
    (ndarray of int64, shape (d,), Guarantee)
        Beyond 64 bits the noisy sums stop at the largest integer, which is post-processing.

    Raises
    ------
    ImportError
        If OpenDP is not installed.
    ValueError
        If the sums are not integers, or too large.

    Examples
    --------
    >>> discrete_gaussian_mechanism(  # doctest: +SKIP
    ...     [4127, 918], sensitivity=1.5, epsilon=1.0, delta=1e-6, neighbours="replace one record"
    ... )
    """
    promise = Guarantee(epsilon, delta, neighbours)
    x = check.unmasked("sums", sums)
    if x.ndim != 1 or x.size == 0 or x.dtype.kind not in "iu":
        raise ValueError(f"sums must be a vector of integers, got {x.dtype} of shape {x.shape}")
    if any(abs(int(value)) > _LARGEST for value in x):
        raise ValueError("sums must lie within 2^62: larger ones leave no room for the noise")
    sigma = discrete_gaussian_sigma(sensitivity, x.size, epsilon=epsilon, delta=delta)
    dp = _opendp()
    dp.enable_features("contrib")
    space = dp.vector_domain(dp.atom_domain(T="i64")), dp.l2_distance(T=float)
    noisy = dp.m.make_gaussian(*space, scale=sigma)([int(value) for value in x])
    return np.asarray(noisy, dtype=np.int64), promise


def from_grid(released: ArrayLike, grid: float) -> FloatArray:
    """Released integers in the units of the records again: grid times each.

    >>> from_grid([2, -1], 0.5).tolist()
    [1.0, -0.5]
    """
    return check.finite_array("released", released) * check.positive("grid", grid)


def _opendp() -> Any:
    try:
        import opendp.prelude as dp
    except ImportError:
        raise ImportError(
            "releases with discrete noise need OpenDP: pip install 'dprl[release]'"
        ) from None
    return dp
