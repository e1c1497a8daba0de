r"""DP-LSW: weighted least squares with smoothed Gaussian noise (thesis, Algorithm 1).

Let v_s = |X_s| be the visit counts of m trajectories whose returns lie in
[f_min, f_max], w >= 0 public weights, Gamma = diag(w), and

    phi(v, k) = sum_s w_s / max(v_s - k, 1)^2,                     (1) thesis (3.7)
    psi(v)    = max_{k >= 0} e^{-k beta} phi(v, k).                (2)

Replacing one trajectory moves theta = (Gamma^{1/2} Phi)^+ Gamma^{1/2} F_X by at most
D ||(Gamma^{1/2} Phi)^+|| sqrt(phi(v, 0)) (thesis, Corollary 3.5; D = f_max if
f_min = 0, see :func:`~dprl.private_evaluation.common.return_spread`), and psi is
the smallest beta-smooth upper bound of phi. So with alpha, beta of Lemma 3.1

    sigma = alpha D ||(Gamma^{1/2} Phi)^+|| sqrt(psi(v))            (3)

makes theta + N(0, sigma^2 I) (eps, delta)-differentially private.

Computing psi exactly, at a cost that does not depend on m: between consecutive
points of {0} and {v_s - 1} each term of (1) is constant or (v_s - k)^{-2} times
w_s, hence log-convex in k; sums and e^{-k beta} keep that, so a maximum over an
interval sits at its ends. Only the ends need to be tried.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from dprl import _validation as check
from dprl._validation import FloatArray
from dprl.evaluation import lsw
from dprl.features import feature_matrix, pseudo_inverse_norm
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


def lsw_local_bound(counts: ArrayLike, weights: ArrayLike, distance: ArrayLike = 0) -> FloatArray:
    """phi(v, k) of equation (1).

    Parameters
    ----------
    counts : array_like, shape (..., N)
        Visit counts v. *Not private* if they come from data.
    weights : array_like, shape (N,)
        w >= 0.
    distance : array_like, shape (...)
        k >= 0, broadcast against the leading axes.

    Examples
    --------
    >>> float(lsw_local_bound([4, 2], [1.0, 1.0], distance=1))
    1.1111111111111112
    """
    v = check.count_array("counts", counts)
    w = check.weight_vector("weights", weights, v.shape[-1])
    k = check.finite_array("distance", distance)
    if (k < 0).any():
        raise ValueError(f"distance must not be negative, got {k.min()}")
    out: FloatArray = (w / np.maximum(v - k[..., None], 1.0) ** 2).sum(axis=-1)  # (1)
    return out


def lsw_smooth_bound(
    counts: ArrayLike, weights: ArrayLike, beta: float
) -> tuple[FloatArray, FloatArray]:
    """psi(v) of equation (2), exactly, and the maximising k.

    O(N^2) per batch, whatever m: the maximum over all integers k >= 0 is
    attained at 0 or beside some v_s - 1.

    Parameters
    ----------
    counts : array_like, shape (..., N)
        Visit counts v >= 0; integers for a batch, any reals when planning with
        expected counts. *Not private* if they come from data.
    weights : array_like, shape (N,)
        w >= 0.
    beta : float
        > 0.

    Returns
    -------
    psi, k : ndarray, shape (...)

    Examples
    --------
    >>> psi, k = lsw_smooth_bound([10] * 5 + [2000] * 5, [1.0] * 10, beta=0.001)
    >>> int(k)
    9
    """
    v = check.count_array("counts", counts)
    w = check.weight_vector("weights", weights, v.shape[-1])
    b = check.positive("beta", beta)
    ends = integers_around(v - 1, 0, np.inf)
    k = np.concatenate([np.zeros((*v.shape[:-1], 1)), ends], axis=-1)
    terms = np.exp(-b * k) * lsw_local_bound(v[..., None, :], w, k)
    best = terms.argmax(axis=-1)[..., None]
    return (
        np.take_along_axis(terms, best, axis=-1)[..., 0],
        np.take_along_axis(k, best, axis=-1)[..., 0],
    )


@dataclass(frozen=True, eq=False)
class LSWDiagnostics:
    """How DP-LSW chose its noise. *Not private* if the counts come from data.

    Attributes
    ----------
    alpha, beta : float
        Constants of Lemma 3.1; public.
    pseudo_inverse_norm : float
        ||(Gamma^{1/2} Phi)^+||; public.
    psi, distance, sigma : ndarray, shape (...)
        psi(v), the k that attains it, and the noise (3): functions of the data.
    """

    alpha: float
    beta: float
    pseudo_inverse_norm: float
    psi: FloatArray
    distance: FloatArray
    sigma: FloatArray


def dp_lsw_diagnostics(
    counts: ArrayLike,
    features: ArrayLike,
    weights: ArrayLike,
    *,
    f_max: float,
    epsilon: float,
    delta: float,
    f_min: float = 0.0,
    allow_rank_deficient: bool = False,
) -> LSWDiagnostics:
    """The noise of DP-LSW for given visit counts, equation (3). *Not private.*

    Its values depend on the counts, which are data: they must not be published
    beside a release. With expected counts in their place it is a planning tool.

    Parameters and errors as :func:`dp_lsw`; ``counts`` has shape (..., N).
    """
    low, high = public_range(f_max, f_min)
    v = check.count_array("counts", counts)
    phi = feature_matrix(features, v.shape[-1])
    constants = GaussianSmoothing(epsilon, delta, phi.shape[1])
    norm = pseudo_inverse_norm(phi, weights, allow_rank_deficient=allow_rank_deficient)
    psi, distance = lsw_smooth_bound(v, weights, constants.beta)
    step, _ = return_spread(low, high)
    sigma = constants.alpha * step * norm * np.sqrt(psi)  # (3)
    return LSWDiagnostics(constants.alpha, constants.beta, norm, psi, distance, sigma)


def dp_lsw(
    data: FirstVisitReturns | VisitStatistics,
    features: ArrayLike,
    weights: ArrayLike,
    *,
    f_max: float,
    epsilon: float,
    delta: float,
    rng: np.random.Generator,
    f_min: float = 0.0,
    allow_rank_deficient: bool = False,
) -> PrivateEstimate:
    """Algorithm 1 of the thesis: LSW plus smoothed Gaussian noise.

    Neighbours replace one trajectory; m is public. The promise needs that every
    single return is in [f_min, f_max] for every conceivable trajectory: returns
    are clipped one by one, which costs bias where the range is too small. The
    arguments other than ``data`` must be chosen without looking at the data.

    Parameters
    ----------
    data : FirstVisitReturns or VisitStatistics
        Single returns, clipped here; or statistics whose returns were clipped to a
        range inside [f_min, f_max].
    features : array_like, shape (N, d)
        Phi.
    weights : array_like, shape (N,)
        w >= 0, not all zero.
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
    allow_rank_deficient : bool
        Take the least-norm solution where it is not unique.

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
    >>> release = dp_lsw(data, tabular(2), [1, 1], f_max=1, epsilon=1, delta=1e-5, rng=rng)
    >>> print(release.guarantee)
    (1, 1e-05)-differentially private; neighbours: replace one trajectory
    """
    low, high = public_range(f_max, f_min)
    statistics = clipped_statistics(data, low, high)
    theta = lsw(statistics, features, weights, allow_rank_deficient=allow_rank_deficient)
    noise = dp_lsw_diagnostics(
        statistics.counts,
        features,
        weights,
        f_max=high,
        f_min=low,
        epsilon=epsilon,
        delta=delta,
        allow_rank_deficient=allow_rank_deficient,
    )
    constants = GaussianSmoothing(epsilon, delta, theta.shape[-1])
    noisy = constants.perturb(theta, noise.sigma, rng)
    return PrivateEstimate(noisy, Guarantee(epsilon, delta, NEIGHBOURS))
