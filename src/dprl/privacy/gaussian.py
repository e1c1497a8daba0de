r"""The Gaussian mechanism: f(X) + N(0, sigma^2 I) for a query of global L2 sensitivity Delta.

Its privacy profile is known exactly (Balle and Wang 2018, theorem 8):

    delta(eps) = Phi(Delta/(2 sigma) - eps sigma/Delta)
                 - e^eps Phi(-Delta/(2 sigma) - eps sigma/Delta),            (1)

Phi the standard normal distribution function. The classical calibration

    sigma = Delta sqrt(2 ln(1.25/delta)) / eps                               (2)

is sufficient for eps < 1 only (Dwork and Roth 2014, theorem A.1) and is refused
beyond. The analytic calibration inverts (1) and holds for every eps.

The two terms of (1) are nearly equal where delta is small. With s = Delta/sigma,
x = eps/s - s/2 and phi the normal density, e^eps phi(x + s) = phi(x), so that (1) is

    delta(eps) = phi(x) (R(x) - R(x + s)),   R(x) = Phi(-x)/phi(x)               (3)
               = phi(x) int_0^inf e^{-xu - u^2/2} (1 - e^{-su}) du.              (4)

(3) is computed where s is not small, and else the integral, in which nothing cancels.
"""

from __future__ import annotations

import math
import sys
from functools import lru_cache

import numpy as np
from dp_accounting.pld import common, privacy_loss_mechanism
from numpy.typing import ArrayLike
from scipy import optimize, special

from dprl import _validation as check
from dprl._validation import FloatArray
from dprl.privacy.guarantee import Guarantee

_LIBRARY = 1e8  # largest first guess of the library's search, whose tolerance is 1e-7
_PANELS = 12  # of the quadrature of (4), with 16 nodes each
_TAIL = 90.0  # what is left out of (4) is e^{-_TAIL/2} of what is kept
_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(16)
_NODES = (((_NODES + 1) / 2 + np.arange(_PANELS)[:, None]) / _PANELS).ravel()  # on [0, 1]
_WEIGHTS = np.tile(_WEIGHTS / (2 * _PANELS), _PANELS)


def gaussian_delta(sensitivity: float, sigma: float, epsilon: float) -> float:
    """Exact delta of the Gaussian mechanism at a given epsilon, equation (1).

    sensitivity >= 0 is the distance of the two means, sigma > 0 the standard deviation of the
    noise, epsilon >= 0. In [0, 1], with a relative error below 1e-12 if it is at least 1e-290 and
    sensitivity/sigma is at most 100; a larger quotient costs digits in proportion.

    >>> round(gaussian_delta(1.0, 2.846924442403095, 0.1), 9)
    0.1
    >>> f"{gaussian_delta(1e-12, 1.0, 0.0) * math.sqrt(2 * math.pi):.12g}"  # s phi(0)
    '1e-12'
    """
    eps = check.not_negative("epsilon", epsilon)
    s = check.not_negative("sensitivity", sensitivity) / check.positive("sigma", sigma)
    return _profile(s, eps / s - s / 2) if s > 0 else 0.0


def _profile(s: float, x: float) -> float:
    """(1) for the distance s > 0 in units of sigma and x = eps/s - s/2."""
    if abs(x) > 39:  # phi(x) is no normal floating-point number
        return float(x < 0)
    density = math.exp(-x * x / 2) / math.sqrt(2 * math.pi)
    border = max(x, 0.0)
    if s < 0.1 * (1 + border):  # (4); x > -s/2 is not far below zero
        length = math.sqrt(border**2 + _TAIL) - border
        u = length * _NODES
        inner = np.exp(-u * (x + u / 2)) * -np.expm1(-s * u)
        return float(density * length * (_WEIGHTS @ inner))
    second = density * _mills(x + s)
    first = density * _mills(x) if x > 0 else float(special.ndtr(-x))
    return first - second  # (3)


def _mills(x: float) -> float:
    """R(x) of (3), x >= 0."""
    return math.sqrt(math.pi / 2) * float(special.erfcx(x / math.sqrt(2)))


def classical_gaussian_sigma(sensitivity: float, epsilon: float, delta: float) -> float:
    """Noise of the classical Gaussian mechanism for (epsilon, delta), equation (2).

    ValueError if epsilon >= 1, where the proof does not hold; use :func:`analytic_gaussian_sigma`.

    >>> round(classical_gaussian_sigma(1.0, 0.1, 0.1), 4)
    22.4754
    """
    shift = check.positive("sensitivity", sensitivity)
    eps, d = check.positive("epsilon", epsilon), check.open_unit("delta", delta)
    if eps >= 1:
        raise ValueError(
            f"the classical Gaussian mechanism is proved for epsilon < 1, got {eps}; "
            "use analytic_gaussian_sigma"
        )
    return float(shift * np.sqrt(2 * np.log(1.25 / d)) / eps)  # (2)


def analytic_gaussian_sigma(sensitivity: float, epsilon: float, delta: float) -> float:
    """Least noise for which the Gaussian mechanism is (epsilon, delta)-private.

    The inverse of (1), by the accounting library's search. delta is at least 2.3e-308: smaller
    numbers have less than full precision.

    >>> round(analytic_gaussian_sigma(1.0, 0.1, 0.1), 4)
    2.8469
    """
    shift = check.positive("sensitivity", sensitivity)
    eps, d = check.positive("epsilon", epsilon), check.open_unit("delta", delta)
    if d < sys.float_info.min:
        raise ValueError(f"delta must be at least {sys.float_info.min:.3g}, got {delta!r}")
    return shift * _unit_sigma(eps, d)


@lru_cache(maxsize=4096)
def _unit_sigma(epsilon: float, delta: float) -> float:
    if math.sqrt(2 * math.log(1.5 / delta)) > _LIBRARY * epsilon:
        return _large_unit_sigma(epsilon, delta)
    target = common.DifferentialPrivacyParameters(epsilon, delta)
    loss = privacy_loss_mechanism.GaussianPrivacyLoss.from_privacy_guarantee(target)
    sigma, step = float(loss.standard_deviation), sys.float_info.epsilon
    while gaussian_delta(1.0, sigma, epsilon) > delta:  # the search ends within a tolerance
        sigma, step = sigma * (1 + step), 2 * step
    return sigma


def _large_unit_sigma(epsilon: float, delta: float) -> float:
    """The same for an epsilon near 0, where the library's search may never end."""
    # with epsilon = 0 the exact delta is below 1/(sigma sqrt(2 pi))
    ends = math.log(1e-2), -math.log(delta)

    def excess(log_sigma: float) -> float:
        found = gaussian_delta(1.0, math.exp(log_sigma), epsilon)
        return math.log(max(found, 1e-320)) - math.log(delta)

    root = optimize.brentq(excess, *ends, xtol=1e-13, rtol=1e-14)
    return math.exp(root) * (1 + 1e-10)  # more than the error of the root


def gaussian_mechanism(
    value: ArrayLike,
    *,
    sensitivity: float,
    epsilon: float,
    delta: float,
    neighbours: str,
    rng: np.random.Generator,
) -> tuple[FloatArray, Guarantee]:
    """Release value + N(0, sigma^2 I), sigma by the analytic calibration.

    Parameters and result as in :func:`~dprl.privacy.laplace.laplace_mechanism`, but the sensitivity
    is the global one in L2, and delta, in (0, 1), is part of the promise.
    """
    x = check.finite_array("value", value)
    sigma = check.positive("sigma", analytic_gaussian_sigma(sensitivity, epsilon, delta))
    with np.errstate(over="ignore"):
        noisy = x + sigma * check.generator(rng).standard_normal(x.shape)
    return check.representable(noisy), Guarantee(epsilon, delta, neighbours)
