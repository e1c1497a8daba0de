r"""The Gaussian mechanism: f(X) + N(0, sigma^2 I) for a query of global L2 sensitivity Delta.

Its privacy profile is known exactly (Balle and Wang 2018, theorem 8):

    delta(eps) = Phi(Delta/(2 sigma) - eps sigma/Delta)
                 - e^eps Phi(-Delta/(2 sigma) - eps sigma/Delta),            (1)

Phi the standard normal distribution function. The classical calibration

    sigma = Delta sqrt(2 ln(1.25/delta)) / eps                               (2)

is sufficient for eps < 1 only (Dwork and Roth 2014, theorem A.1) and is refused
beyond. The analytic calibration inverts (1) and holds for every eps.
"""

from __future__ import annotations

import numpy as np
from dp_accounting.pld import common, privacy_loss_mechanism
from numpy.typing import ArrayLike

from dprl import _validation as check
from dprl._validation import FloatArray
from dprl.privacy.guarantee import Guarantee


def gaussian_delta(sensitivity: float, sigma: float, epsilon: float) -> float:
    """Exact delta of the Gaussian mechanism at epsilon, equation (1).

    Parameters
    ----------
    sensitivity : float
        Distance of the two means, >= 0.
    sigma : float
        Standard deviation of the noise, > 0.
    epsilon : float
        >= 0.

    Examples
    --------
    >>> round(gaussian_delta(1.0, 2.846924442403095, 0.1), 9)
    0.1
    """
    shift = check.real("sensitivity", sensitivity)
    scale = check.positive("sigma", sigma)
    eps = check.real("epsilon", epsilon)
    if shift < 0 or eps < 0:
        raise ValueError(f"sensitivity and epsilon must not be negative, got {shift}, {eps}")
    if shift == 0:
        return 0.0
    loss = privacy_loss_mechanism.GaussianPrivacyLoss(scale, sensitivity=shift)
    return float(loss.get_delta_for_epsilon(eps))


def classical_gaussian_sigma(sensitivity: float, epsilon: float, delta: float) -> float:
    """Noise of the classical Gaussian mechanism, equation (2).

    Raises
    ------
    ValueError
        If epsilon >= 1, where the proof does not hold; use
        :func:`analytic_gaussian_sigma`.

    Examples
    --------
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

    The inverse of (1), by the accounting library's search.

    Examples
    --------
    >>> round(analytic_gaussian_sigma(1.0, 0.1, 0.1), 4)
    2.8469
    """
    shift = check.positive("sensitivity", sensitivity)
    target = common.DifferentialPrivacyParameters(
        check.positive("epsilon", epsilon), check.open_unit("delta", delta)
    )
    loss = privacy_loss_mechanism.GaussianPrivacyLoss.from_privacy_guarantee(target)
    return float(shift * loss.standard_deviation)


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

    Parameters
    ----------
    value : array_like, shape (...,)
        The exact answer f(X).
    sensitivity : float
        Global L2 sensitivity of f under ``neighbours``; proved by the caller.
    epsilon, delta : float
        The promise; epsilon > 0, delta in (0, 1).
    neighbours : str
        The relation for which the sensitivity was proved.
    rng : numpy.random.Generator
        For study only: floating-point noise is not safe for a release.

    Returns
    -------
    (ndarray, Guarantee)
    """
    x = check.finite_array("value", value)
    sigma = check.positive("sigma", analytic_gaussian_sigma(sensitivity, epsilon, delta))
    with np.errstate(over="ignore"):
        noisy = x + sigma * check.generator(rng).standard_normal(x.shape)
    return check.representable(noisy), Guarantee(epsilon, delta, neighbours)
