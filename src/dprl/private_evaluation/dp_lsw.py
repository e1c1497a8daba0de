r"""DP-LSW: weighted least squares with smoothed Gaussian noise (thesis, Algorithm 1).

Let v_s = |X_s| be the visit counts of m trajectories whose returns lie in
[f_min, f_max], w >= 0 public weights, Gamma = diag(w), and

    phi(v, k) = sum_s w_s / max(v_s - k, 1)^2,                     (1) thesis (3.7)
    psi(v)    = max_{k >= 0} e^{-k beta} phi(v, k).                (2)

Replacing one trajectory moves theta = (Gamma^{1/2} Phi)^+ Gamma^{1/2} F_X by at most
D ||(Gamma^{1/2} Phi)^+|| sqrt(phi(v, 0)) (thesis, Corollary 3.5; D = f_max if f_min = 0, see
:func:`~dprl.private_evaluation.common.return_spread`), and psi is the smallest beta-smooth upper
bound of phi. So with alpha, beta of Lemma 3.1

    sigma = alpha D ||(Gamma^{1/2} Phi)^+|| sqrt(psi(v))            (3)

makes theta + N(0, sigma^2 I) (eps, delta)-differentially private.

Computing psi exactly, at a cost that does not depend on m: between consecutive points of {0} and
{v_s - 1} each term of (1) is constant or w_s (v_s - k)^{-2}, hence log-convex in k; sums and
e^{-k beta} keep that, so a maximum over an interval sits at its ends: only they need to be tried.

A mechanism that must not look at the counts needs the largest step over *all* neighbouring
batches. theta = A F_X with A = (Gamma^{1/2} Phi)^+ Gamma^{1/2}; each entry of F_X is an average of
returns, or 0, so it moves by at most D, and theta by at most

    D min( || |A| 1 ||_2,  ||(Gamma^{1/2} Phi)^+|| sqrt(sum_s w_s) ).              (4)

|A| 1 holds the sums of the absolute values in the rows of A. (4) does not shrink when the batch
grows: a state may have a single visit.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import ArrayLike

from dprl import _validation as check
from dprl._validation import FloatArray
from dprl.evaluation import lsw
from dprl.features import feature_matrix, pseudo_inverse_norm, weighted_pseudo_inverse
from dprl.privacy import GaussianSmoothing
from dprl.private_evaluation.common import (
    LeastSquares,
    Noise,
    PrivateEstimate,
    clipped_statistics,
    distances_to_try,
    largest_term,
    released,
    return_spread,
)
from dprl.trajectories import FirstVisitReturns, VisitStatistics


def lsw_local_bound(counts: ArrayLike, weights: ArrayLike, distance: ArrayLike = 0) -> FloatArray:
    """phi(v, k) of equation (1), shape (...). *Not private* if the counts come from data.

    Of visit counts v (..., N), weights w >= 0 (N,) and distances k >= 0 (...), which are broadcast
    against the leading axes.

    Examples
    --------
    >>> float(lsw_local_bound([4, 2], [1.0, 1.0], distance=1))
    1.1111111111111112
    """
    v = check.count_array("counts", counts)
    w = check.weight_vector("weights", weights, v.shape[-1])
    return _local_bound(v, w, check.array_from("distance", distance))


def _local_bound(v: FloatArray, w: FloatArray, k: FloatArray) -> FloatArray:
    out: FloatArray = (w / np.maximum(v - k[..., None], 1.0) ** 2).sum(axis=-1)  # (1)
    return out


def lsw_smooth_bound(
    counts: ArrayLike, weights: ArrayLike, beta: float
) -> tuple[FloatArray, FloatArray]:
    """The smooth bound psi in the noise of DP-LSW, exactly, and the k that attains it; (2).

    O(N^2) per batch, whatever m. Counts, reals >= 0 if they are expected ones, and weights as in
    :func:`lsw_local_bound`; beta > 0. Both results have shape (...).

    Examples
    --------
    >>> psi, k = lsw_smooth_bound([10] * 5 + [2000] * 5, [1.0] * 10, beta=0.001)
    >>> int(k)
    9
    """
    v = check.count_array("counts", counts)
    w = check.weight_vector("weights", weights, v.shape[-1])
    b = check.positive("beta", beta)
    k = distances_to_try(v - 1, np.inf)
    return largest_term(np.exp(-b * k) * _local_bound(v[..., None, :], w, k), k)


@dataclass(frozen=True, eq=False)
class LSW(LeastSquares):
    """The estimator LSW: least squares with weights w >= 0, not all zero.

    Attributes as ``LeastSquares``, and
    ``allow_rank_deficient``: take the least-norm solution where it is not unique.

    Examples
    --------
    >>> from dprl.features import tabular
    >>> round(LSW(tabular(4), [1] * 4, f_max=1).global_sensitivity(), 6)
    2.0
    """

    allow_rank_deficient: bool = field(default=False, kw_only=True)

    def theta(self, statistics: VisitStatistics) -> FloatArray:
        allow = self.allow_rank_deficient
        return lsw(statistics, self.features, self.weights, allow_rank_deficient=allow)

    def noise(
        self, counts: ArrayLike, n_trajectories: int = 1, *, epsilon: float, delta: float
    ) -> Noise:
        v = check.count_array("counts", counts)
        phi = feature_matrix(self.features, v.shape[-1])
        constants = GaussianSmoothing(epsilon, delta, phi.shape[1])
        allow = self.allow_rank_deficient
        norm = pseudo_inverse_norm(phi, self.weights, allow_rank_deficient=allow)
        psi, distance = lsw_smooth_bound(v, self.weights, constants.beta)
        step, _ = return_spread(self.f_min, self.f_max)
        sigma = constants.alpha * step * norm * np.sqrt(psi)  # (3)
        return Noise(constants.alpha, constants.beta, norm, psi, distance, sigma)

    def psi_of_masses(
        self, masses: FloatArray, beta: float, kept: dict[str, FloatArray] | None = None
    ) -> FloatArray:
        count, j = np.arange(float(masses.shape[1]))[:, None], np.arange(masses.shape[1] - 1.0)
        terms = masses @ (np.exp(-beta * j) / np.maximum(count - j, 1) ** 2)
        out: FloatArray = terms.max(axis=1)
        return out

    def global_sensitivity(self, n_trajectories: int = 1) -> float:
        """Bound (4) on the sup over all neighbours of ||theta_X - theta_X'||.

        Attained where no two rows of A share a state (tabular, aggregation), if some trajectory
        can visit every state with the returns that realise D: D sqrt(N) for tabular features.
        ValueError if the solution is not unique and that is not allowed.
        """
        allow, w = self.allow_rank_deficient, self.weights
        inverse = weighted_pseudo_inverse(self.features, w, allow_rank_deficient=allow)
        rows = np.abs(inverse * np.sqrt(w)).sum(axis=1)
        step, _ = return_spread(self.f_min, self.f_max)
        most = min(np.linalg.norm(rows), np.linalg.norm(inverse, 2) * np.sqrt(w.sum()))
        return float(step * most)  # (4)


def dp_lsw(
    data: FirstVisitReturns | VisitStatistics,
    estimator: LSW,
    *,
    epsilon: float,
    delta: float,
    rng: np.random.Generator,
) -> PrivateEstimate:
    """Algorithm 1 of the thesis: LSW plus smoothed Gaussian noise.

    Neighbours replace one trajectory; m is public. The promise needs every single return of every
    conceivable trajectory in [f_min, f_max]: returns are clipped one by one, which costs bias
    where the range is too small.

    Parameters
    ----------
    data : FirstVisitReturns or VisitStatistics
        Single returns, clipped here; or statistics whose returns were clipped to a range inside
        [f_min, f_max], all others being refused.
    estimator : LSW
        Features, weights and the range of returns, chosen without looking at the data.
    epsilon, delta : float
        In (0, 5] and (0, 1).
    rng : numpy.random.Generator
        For study only: floating-point noise is not safe for a release.

    Returns
    -------
    PrivateEstimate
        theta of shape (..., d).

    Examples
    --------
    >>> from dprl.features import tabular
    >>> data = VisitStatistics([5, 4], [0.5, 0.9], 5, bounds=(0, 1))
    >>> rng = np.random.default_rng(1)
    >>> release = dp_lsw(data, LSW(tabular(2), [1, 1], f_max=1), epsilon=1, delta=1e-5, rng=rng)
    >>> print(release.guarantee)
    (1, 1e-05)-differentially private; neighbours: replace one trajectory
    """
    check.instance("estimator", estimator, LSW)
    statistics = clipped_statistics(data, estimator.f_min, estimator.f_max)
    return released(estimator, statistics, epsilon, delta, rng)
