r"""DP-LSL: ridge least squares with smoothed Gaussian noise (thesis, Algorithm 2).

Let v_s = |X_s| be the visit counts of m trajectories whose returns lie in
[f_min, f_max], rho in [0, 1] public weights, lambda > ||Phi||^2 ||rho||_inf the ridge, and

    c = ||Phi|| ||rho||_inf / sqrt(2 lambda),
    phi(v, k) = ( c sqrt(sum_s rho_s min(v_s + k, m)) + q ||rho||_2 )^2,  (1) thesis (3.10)
    psi(v)    = max_{k >= 0} e^{-k beta} phi(v, k),                       (2)
    sigma     = 2 alpha F ||Phi|| / (lambda - ||Phi||^2 ||rho||_inf) sqrt(psi).  (3)

With returns in [0, F], F = f_max and q = 1, as printed. In general F is the
largest absolute value of a return and q = D / F, D as in
:func:`~dprl.private_evaluation.common.return_spread`: only the difference of two
returns grows with the width of the range, not the size of theta. The thesis
prints max for min in some places; Algorithm 2 has min, and only that is right.

The condition on lambda and what (3) subtracts from it are not needed: with lambda alone
in the denominator the promise holds for every lambda > 0, and with less noise
(``improved``; the proof is in :mod:`dprl.bounds.lsl_privacy`).

Computing psi exactly: the sum in (1) is concave and piecewise linear in k with
breakpoints m - v_s; the square root, the added constant and the logarithm keep
it concave, and -k beta is linear, so ln of (2)'s terms is concave. On a piece
A + B k its derivative vanishes where y = sqrt(A + B k) solves

    c y^2 + q ||rho||_2 y = c B / beta,                                    (4)

so the maximum over integers is beside one of those points or at an end.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from dprl import _validation as check
from dprl._validation import FloatArray
from dprl.evaluation import lsl, regression_weights
from dprl.features import feature_matrix, operator_norm
from dprl.privacy import GaussianSmoothing, Guarantee
from dprl.private_evaluation.common import (
    NEIGHBOURS,
    PrivateEstimate,
    clipped_statistics,
    integers_around,
    public_range,
    return_spread,
)
from dprl.trajectories import FirstVisitReturns, VisitStatistics


def lsl_local_bound(
    counts: ArrayLike,
    weights: ArrayLike,
    n_trajectories: int,
    coefficient: ArrayLike,
    distance: ArrayLike = 0,
    *,
    step_ratio: float = 1.0,
) -> FloatArray:
    """phi(v, k) of equation (1).

    Parameters
    ----------
    counts : array_like, shape (..., N)
        Visit counts v in [0, m]. *Not private* if they come from data.
    weights : array_like, shape (N,)
        rho in [0, 1].
    n_trajectories : int
        m.
    coefficient : array_like, shape (...)
        c = ||Phi|| ||rho||_inf / sqrt(2 lambda), > 0; broadcast against the leading axes.
    distance : array_like, shape (...)
        k >= 0, broadcast against them too.
    step_ratio : float
        q = D / F in [1, 2]; 1 for returns in [0, F].

    Examples
    --------
    >>> float(lsl_local_bound([4, 0], [1.0, 0.0], 5, coefficient=0.5))
    4.0
    """
    v, rho, m, c, q = _bound_arguments(counts, weights, n_trajectories, coefficient, step_ratio)
    k = check.finite_array("distance", distance)
    if (k < 0).any():
        raise ValueError(f"distance must not be negative, got {k.min()}")
    total = (rho * np.minimum(v + k[..., None], m)).sum(axis=-1)
    out: FloatArray = (c * np.sqrt(total) + q * np.linalg.norm(rho)) ** 2  # (1)
    return out


def lsl_smooth_bound(
    counts: ArrayLike,
    weights: ArrayLike,
    n_trajectories: int,
    coefficient: ArrayLike,
    beta: float,
    *,
    step_ratio: float = 1.0,
) -> tuple[FloatArray, FloatArray]:
    """psi(v) of equation (2), exactly, and the maximising k.

    O(N log N) pieces and O(N^2) evaluations per batch, whatever m.

    Parameters as :func:`lsl_local_bound`; ``beta`` > 0.

    Returns
    -------
    psi, k : ndarray, shape (...)

    Examples
    --------
    >>> coefficient = 1 / np.sqrt(2 * 50)
    >>> psi, k = lsl_smooth_bound([20, 3], [1.0, 1.0], 5000, coefficient, beta=0.002)
    >>> float(psi.round(6)), int(k)
    (8.393105, 309)
    """
    v, rho, m, c, q = _bound_arguments(counts, weights, n_trajectories, coefficient, step_ratio)
    b = check.positive("beta", beta)
    v = np.broadcast_to(v, (*np.broadcast_shapes(v.shape[:-1], c.shape), v.shape[-1]))
    c = c[..., None]
    # pieces of A + B k, sorted by their right end m - v_s
    order = np.argsort(-v, axis=-1, kind="stable")
    sorted_v = np.take_along_axis(v, order, axis=-1)
    sorted_rho = rho[order]
    ends = m - sorted_v
    capped = np.cumsum(sorted_rho, axis=-1) - sorted_rho  # weight of states already at m
    slope = np.maximum(rho.sum() - capped, 0.0)
    open_sum = (sorted_rho * sorted_v)[..., ::-1].cumsum(axis=-1)[..., ::-1]
    level = m * capped + open_sum
    norm = q * np.linalg.norm(rho)
    root = (-norm + np.sqrt(norm**2 + 4 * c**2 * slope / b)) / (2 * c)  # y of (4)
    begins = np.concatenate([np.zeros_like(ends[..., :1]), ends[..., :-1]], axis=-1)
    positive = slope > 0
    at = np.divide(root**2 - level, slope, out=np.zeros_like(level), where=positive)
    stationary = np.where(positive, np.clip(at, begins, ends), begins)
    k = np.concatenate([np.zeros_like(ends[..., :1]), integers_around(stationary, 0, m)], axis=-1)
    local = lsl_local_bound(v[..., None, :], rho, int(m), c, k, step_ratio=q)
    terms = np.exp(-b * k) * local
    best = terms.argmax(axis=-1)[..., None]
    return (
        np.take_along_axis(terms, best, axis=-1)[..., 0],
        np.take_along_axis(k, best, axis=-1)[..., 0],
    )


def lsl_coefficient(features: ArrayLike, weights: ArrayLike, ridge: float) -> float:
    """c = ||Phi|| ||rho||_inf / sqrt(2 lambda) of equation (1).

    Parameters
    ----------
    features : array_like, shape (N, d)
        Phi.
    weights : array_like, shape (N,)
        rho in [0, 1].
    ridge : float
        lambda > 0.

    Examples
    --------
    >>> lsl_coefficient([[2.0], [0.0]], [0.5, 1.0], ridge=8.0)
    0.5
    """
    phi = feature_matrix(features)
    rho = regression_weights(weights, phi.shape[0])
    lam = check.positive("ridge", ridge)
    return float(operator_norm(phi) * rho.max() / np.sqrt(2 * lam))


def lsl_step_factor(
    features: ArrayLike,
    weights: ArrayLike,
    ridge: float,
    *,
    size: float,
    improved: bool = False,
) -> float:
    """What multiplies sqrt(phi) in the bound on one trajectory's effect (Corollary 3.10).

    2 F ||Phi|| / (lambda - ||Phi||^2 ||rho||_inf) as printed, 2 F ||Phi|| / lambda improved.

    Parameters
    ----------
    features, weights, ridge
        As in :func:`lsl_coefficient`; as printed, lambda > ||Phi||^2 ||rho||_inf.
    size : float
        F > 0, the largest absolute value of a return.
    improved : bool
        Subtract nothing; proved for every lambda > 0.

    Raises
    ------
    ValueError
        If the ridge is not above what is subtracted.

    Examples
    --------
    >>> lsl_step_factor([[1.0]], [1.0], 2.0, size=1.0)
    2.0
    >>> lsl_step_factor([[1.0]], [1.0], 2.0, size=1.0, improved=True)
    1.0
    """
    phi = feature_matrix(features)
    rho = regression_weights(weights, phi.shape[0])
    lam, most = check.positive("ridge", ridge), check.positive("size", size)
    norm = operator_norm(phi)
    subtracted = 0.0 if improved else float(norm**2 * rho.max())
    if lam <= subtracted:
        raise ValueError(
            f"ridge must exceed ||Phi||^2 ||rho||_inf = {subtracted:g}, got {ridge!r}: "
            "Corollary 3.10 bounds the sensitivity only then; improved=True needs no condition"
        )
    return float(2 * most * norm / (lam - subtracted))


@dataclass(frozen=True, eq=False)
class LSLDiagnostics:
    """How DP-LSL chose its noise. *Not private* if the counts come from data.

    Attributes
    ----------
    alpha, beta : float
        Constants of Lemma 3.1; public.
    operator_norm : float
        ||Phi||; public.
    psi, distance, sigma : ndarray, shape (...)
        psi(v), the k that attains it, and the noise (3): functions of the data.
    """

    alpha: float
    beta: float
    operator_norm: float
    psi: FloatArray
    distance: FloatArray
    sigma: FloatArray


def dp_lsl_diagnostics(
    counts: ArrayLike,
    n_trajectories: int,
    features: ArrayLike,
    weights: ArrayLike,
    ridge: ArrayLike,
    *,
    f_max: float,
    epsilon: float,
    delta: float,
    f_min: float = 0.0,
    improved: bool = False,
) -> LSLDiagnostics:
    """The noise of DP-LSL for given visit counts, equation (3). *Not private.*

    Its values depend on the counts, which are data: they must not be published
    beside a release. With expected counts in their place it is a planning tool.

    Parameters and errors as :func:`dp_lsl`; ``counts`` has shape (..., N). Several ridges
    broadcast against the leading axes.
    """
    low, high = public_range(f_max, f_min)
    v = check.count_array("counts", counts)
    phi = feature_matrix(features, v.shape[-1])
    rho = regression_weights(weights, v.shape[-1])
    step, size = return_spread(low, high)
    shape, ridges = np.shape(ridge), np.ravel(ridge).tolist()
    factors = [lsl_step_factor(phi, rho, lam, size=size, improved=improved) for lam in ridges]
    factor = np.reshape(factors, shape)
    constants = GaussianSmoothing(epsilon, delta, phi.shape[1])
    psi, distance = lsl_smooth_bound(
        v,
        rho,
        n_trajectories,
        np.reshape([lsl_coefficient(phi, rho, lam) for lam in ridges], shape),
        constants.beta,
        step_ratio=step / size,
    )
    sigma = constants.alpha * factor * np.sqrt(psi)  # (3)
    norm = operator_norm(phi)
    return LSLDiagnostics(constants.alpha, constants.beta, norm, psi, distance, sigma)


def dp_lsl(
    data: FirstVisitReturns | VisitStatistics,
    features: ArrayLike,
    weights: ArrayLike,
    ridge: float,
    *,
    f_max: float,
    epsilon: float,
    delta: float,
    rng: np.random.Generator,
    f_min: float = 0.0,
    improved: bool = False,
) -> PrivateEstimate:
    """Algorithm 2 of the thesis: LSL plus smoothed Gaussian noise.

    Neighbours replace one trajectory; m is public. The promise needs that every
    single return is in [f_min, f_max] for every conceivable trajectory: returns
    are clipped one by one, which costs bias where the range is too small. The
    arguments other than ``data`` must be chosen without looking at the data; a
    ridge tuned on the data is not covered.

    Parameters
    ----------
    data : FirstVisitReturns or VisitStatistics
        Single returns, clipped here; or statistics whose returns were clipped to a
        range inside [f_min, f_max].
    features : array_like, shape (N, d)
        Phi.
    weights : array_like, shape (N,)
        rho in [0, 1], not all zero.
    ridge : float
        lambda > ||Phi||^2 ||rho||_inf; any lambda > 0 if ``improved``.
    f_max : float
        Public upper end of the returns, > 0. The thesis has R_max / (1 - gamma)
        by default.
    epsilon : float
        In (0, 5].
    delta : float
        In (0, 1).
    rng : numpy.random.Generator
        For study only: floating-point noise is not safe for a release.
    f_min : float
        Public lower end of the returns; 0 in the thesis.
    improved : bool
        Less noise for the same promise: lambda in place of lambda - ||Phi||^2 ||rho||_inf.
        False is the algorithm as printed.

    Returns
    -------
    PrivateEstimate
        theta of shape (..., d).

    Raises
    ------
    ValueError
        If a parameter is outside its range, shapes do not fit, or the data were
        not clipped to a range inside the declared one.

    Examples
    --------
    >>> from dprl.features import tabular
    >>> data = VisitStatistics([5, 4], [0.5, 0.9], 5, bounds=(0, 1))
    >>> rng = np.random.default_rng(1)
    >>> release = dp_lsl(data, tabular(2), [1, 1], 9.0, f_max=1, epsilon=1, delta=1e-5, rng=rng)
    >>> release.theta.shape
    (2,)
    """
    low, high = public_range(f_max, f_min)
    statistics = clipped_statistics(data, low, high)
    noise = dp_lsl_diagnostics(
        statistics.counts,
        statistics.n_trajectories,
        features,
        weights,
        ridge,
        f_max=high,
        f_min=low,
        epsilon=epsilon,
        delta=delta,
        improved=improved,
    )
    theta = lsl(statistics, features, weights, ridge)
    constants = GaussianSmoothing(epsilon, delta, theta.shape[-1])
    noisy = constants.perturb(theta, noise.sigma, rng)
    return PrivateEstimate(noisy, Guarantee(epsilon, delta, NEIGHBOURS))


def _bound_arguments(
    counts: ArrayLike,
    weights: ArrayLike,
    n_trajectories: int,
    coefficient: ArrayLike,
    step_ratio: float,
) -> tuple[FloatArray, FloatArray, float, FloatArray, float]:
    v = check.count_array("counts", counts)
    rho = regression_weights(weights, v.shape[-1])
    m = check.whole("n_trajectories", n_trajectories)
    if (v > m).any():
        raise ValueError(f"counts must not exceed the {m} trajectories, got {v.max():g}")
    c = check.finite_array("coefficient", coefficient)
    if (c <= 0).any():
        raise ValueError(f"coefficient must be positive, got {c.min()}")
    q = check.real("step_ratio", step_ratio)
    if not 1 <= q <= 2:
        raise ValueError(f"step_ratio must lie in [1, 2], got {step_ratio!r}")
    return v, rho, float(m), c, q
