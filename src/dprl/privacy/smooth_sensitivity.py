r"""Gaussian noise calibrated to a smooth upper bound of the local sensitivity.

Lemma 3.1 of the thesis (after Nissim, Raskhodnikova and Smith). Put

    alpha = 5 sqrt(2 ln(2/delta)) / eps,                                     (1)
    beta  = eps / (4 (d + ln(2/delta))).                                     (2)

If for every pair of neighbouring X, X'

    (a) sigma_X >= alpha ||mu_X - mu_X'||_2   and
    (b) |ln sigma_X^2 - ln sigma_X'^2| <= beta,

then releasing mu_X + N(0, sigma_X^2 I_d) is (eps, delta)-differentially private. The printed lemma
states no range. It holds for 0 < eps <= 5 and 0 < delta < 1, for which a direct proof with the same
constants exists (:func:`dprl.bounds.smoothed_gaussian.lemma_3_1_proof_bound`); it fails for large
eps (in one dimension from about eps = 50). Above 5 nothing is proved here, so nothing is promised.

If phi bounds the squared local sensitivity, the smallest bound with property
(b) above it is (thesis, equation 3.37)

    psi(v) = sup_{k >= 0} e^{-k beta} phi_k(v),                              (3)

phi_k(v) the maximum of phi within distance k of v. The supremum starts at k = 0:
without that term psi is not an upper bound.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import ArrayLike

from dprl import _validation as check
from dprl._validation import FloatArray

#: Largest epsilon for which Lemma 3.1 is proved with its printed constants.
LARGEST_EPSILON = 5.0


def smoothing_constants(
    epsilon: ArrayLike, delta: ArrayLike, dimension: ArrayLike
) -> tuple[FloatArray, FloatArray]:
    """The same constants alpha and beta for any epsilon: numbers, not a promise.

    For a promise use :class:`GaussianSmoothing`, which refuses what is not proved.

    epsilon > 0, delta in (0, 1) and dimension d >= 1 broadcast; alpha and beta have the shape that
    results.

    >>> alpha, beta = smoothing_constants([0.1, 100.0], 0.1, 1)
    >>> alpha.round(4).tolist(), beta.round(6).tolist()
    ([122.3873, 0.1224], [0.006257, 6.256675])
    """
    eps, tail, d = np.broadcast_arrays(
        check.positive_array("epsilon", epsilon),
        check.open_unit_array("delta", delta),
        check.array_from("dimension", dimension, 1),
    )
    alpha: FloatArray = np.asarray(5 * np.sqrt(2 * np.log(2 / tail)) / eps)  # (1)
    beta: FloatArray = np.asarray(eps / (4 * (d + np.log(2 / tail))))  # (2)
    return alpha, beta


@dataclass(frozen=True)
class GaussianSmoothing:
    """The constants alpha and beta of smoothed Gaussian noise (thesis, Lemma 3.1), (1) and (2).

    Parameters
    ----------
    epsilon, delta : float
        epsilon in (0, 5]; delta in (0, 1).
    dimension : int
        d >= 1, the number of released parameters.

    Raises
    ------
    ValueError
        If epsilon or delta is outside its range: the lemma is not proved there.

    Examples
    --------
    >>> constants = GaussianSmoothing(0.1, 0.1, 40)
    >>> round(constants.alpha, 6), round(constants.beta, 9)
    (122.387342, 0.000581453)
    """

    epsilon: float
    delta: float
    dimension: int

    def __post_init__(self) -> None:
        check.positive("epsilon", self.epsilon)
        if self.epsilon > LARGEST_EPSILON:
            raise ValueError(
                f"Lemma 3.1 is proved for epsilon <= {LARGEST_EPSILON:g}, got {self.epsilon!r}"
            )
        check.open_unit("delta", self.delta)
        check.whole("dimension", self.dimension)

    @property
    def alpha(self) -> float:
        """Noise per unit of local sensitivity, equation (1)."""
        return _constants(self.epsilon, self.delta, self.dimension)[0]

    @property
    def beta(self) -> float:
        """Largest change of ln sigma^2 between neighbours, equation (2)."""
        return _constants(self.epsilon, self.delta, self.dimension)[1]

    def perturb(self, mean: FloatArray, sigma: FloatArray, rng: np.random.Generator) -> FloatArray:
        """mean + N(0, sigma^2 I); mean (..., d), sigma (...).

        The caller has proved (a) and (b) for sigma. Floating-point noise: for
        study, not for a release.
        """
        mu = check.finite_array("mean", mean)
        scale = check.finite_array("sigma", sigma)
        if mu.ndim == 0 or mu.shape[-1] != self.dimension:
            raise ValueError(
                f"mean: the constants are for {self.dimension} parameters in the last axis, "
                f"got shape {mu.shape}"
            )
        if scale.shape != mu.shape[:-1] or (scale <= 0).any():
            raise ValueError(
                f"sigma must be positive, one for each of the batches {mu.shape[:-1]}, "
                f"got shape {scale.shape}"
            )
        noise = check.generator(rng).standard_normal(mu.shape)
        with np.errstate(over="ignore"):
            return check.representable(mu + scale[..., None] * noise)


@lru_cache(maxsize=64)
def _constants(epsilon: float, delta: float, dimension: int) -> tuple[float, float]:
    alpha, beta = smoothing_constants(epsilon, delta, dimension)
    return float(alpha), float(beta)


def smooth_upper_bound(
    largest_within: Callable[[int], float], beta: float, last: int
) -> tuple[float, int]:
    """psi of equation (3) by trying every k, and the maximising k.

    The reference for faster methods, O(last) evaluations. Correct only if
    phi_k no longer grows beyond ``last``: a shorter range breaks property (b).

    largest_within maps k to phi_k(v), the maximum of phi within distance k; beta > 0; last >= 0 is
    the largest k to try: phi_k must be constant from there on.

    >>> smooth_upper_bound(lambda k: 1 / max(4 - k, 1) ** 2, beta=0.01, last=3)[1]
    3
    """
    b = check.positive("beta", beta)
    terms = [
        np.exp(-k * b) * largest_within(k) for k in range(check.whole("last", last, minimum=0) + 1)
    ]
    best = int(np.argmax(terms))
    return float(terms[best]), best
