r"""DP-LSL: ridge least squares with smoothed Gaussian noise (thesis, Algorithm 2).

Let v_s = |X_s| be the visit counts of m trajectories whose returns lie in
[f_min, f_max], rho in [0, 1] public weights, lambda > ||Phi||^2 ||rho||_inf the ridge, and

    c = ||Phi|| ||rho||_inf / sqrt(2 lambda),
    phi(v, k) = ( c sqrt(sum_s rho_s min(v_s + k, m)) + q ||rho||_2 )^2,  (1) thesis (3.10)
    psi(v)    = max_{k >= 0} e^{-k beta} phi(v, k),                       (2)
    sigma     = 2 alpha F ||Phi|| / (lambda - ||Phi||^2 ||rho||_inf) sqrt(psi).  (3)

With returns in [0, F], F = f_max and q = 1, as printed. In general F is the largest absolute value
of a return and q = D / F, D as in :func:`~dprl.private_evaluation.common.return_spread`: only the
difference of two returns grows with the width of the range. The thesis prints max for min in some
places; Algorithm 2 has min, and only that is right.

The condition on lambda and what (3) subtracts from it are not needed: with lambda alone
in the denominator the promise holds for every lambda > 0, and with less noise
(``improved``; the proof is in :mod:`dprl.bounds.lsl_privacy`).

Computing psi exactly: the sum in (1) is concave and piecewise linear in k with breakpoints m - v_s;
the square root, the added constant and the logarithm keep it concave, and -k beta is linear, so ln
of (2)'s terms is concave. On a piece A + B k its derivative vanishes where y = sqrt(A + B k) solves

    c y^2 + q ||rho||_2 y = c B / beta,                                    (4)

so the maximum over integers is beside one of those points or at an end.

The largest step over *all* neighbouring batches is exactly known where states share parameters
(``lsl_global_sensitivity``), bounded for other features (``LSL.global_sensitivity``).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from dprl import _validation as check
from dprl._validation import FloatArray
from dprl.evaluation import lsl, regression_weights, visit_weights
from dprl.features import feature_matrix, operator_norm
from dprl.privacy import GaussianSmoothing
from dprl.private_evaluation.common import (
    CELLS,
    LeastSquares,
    Noise,
    PrivateEstimate,
    clipped_statistics,
    distances_to_try,
    largest_term,
    public_range,
    released,
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
    """phi(v, k) of equation (1), shape (...).

    Parameters
    ----------
    counts : array_like, shape (..., N)
        Visit counts v in [0, m]. *Not private* if they come from data.
    weights : array_like, shape (N,)
        rho in [0, 1].
    n_trajectories : int
        m.
    coefficient, distance : array_like, shape (...)
        c > 0 and k >= 0, broadcast against the leading axes.
    step_ratio : float
        q in [1, 2]; 1 for returns in [0, F].

    Examples
    --------
    >>> float(lsl_local_bound([4, 0], [1.0, 0.0], 5, coefficient=0.5))
    4.0
    """
    v, rho, m, c, q = _bound_arguments(counts, weights, n_trajectories, coefficient, step_ratio)
    k = check.array_from("distance", distance)
    return _local_bound(v, rho, m, c, k, q * np.linalg.norm(rho))


def _local_bound(
    v: FloatArray,
    rho: FloatArray,
    m: float,
    c: FloatArray,
    k: FloatArray,
    norm: float | np.floating[Any],
) -> FloatArray:
    total = (rho * np.minimum(v + k[..., None], m)).sum(axis=-1)
    out: FloatArray = (c * np.sqrt(total) + norm) ** 2  # (1)
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
    """The smooth bound psi in the noise of DP-LSL, exactly, and the k that attains it; (2).

    O(N log N) pieces and O(N^2) evaluations per batch, whatever m. Parameters as
    :func:`lsl_local_bound`; beta > 0. Both results have shape (...).

    Examples
    --------
    >>> coefficient = 1 / np.sqrt(2 * 50)
    >>> psi, k = lsl_smooth_bound([20, 3], [1.0, 1.0], 5000, coefficient, beta=0.002)
    >>> float(psi.round(6)), int(k)
    (8.393105, 309)
    """
    v, rho, m, c, q = _bound_arguments(counts, weights, n_trajectories, coefficient, step_ratio)
    b = check.positive("beta", beta)
    if c.ndim:
        v = np.broadcast_to(v, (*np.broadcast_shapes(v.shape[:-1], c.shape), v.shape[-1]))
    c = c[..., None]
    # pieces of A + B k, sorted by their right end m - v_s
    order = np.argsort(-v, axis=-1, kind="stable")
    sorted_v = v[order] if v.ndim == 1 else np.take_along_axis(v, order, axis=-1)
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
    stationary = np.where(positive, np.minimum(np.maximum(at, begins), ends), begins)
    k = distances_to_try(stationary, m)
    return largest_term(np.exp(-b * k) * _local_bound(v[..., None, :], rho, m, c, k, norm), k)


def lsl_coefficient(features: ArrayLike, weights: ArrayLike, ridge: float) -> float:
    """c = ||Phi|| ||rho||_inf / sqrt(2 lambda) of (1); Phi (N, d), rho (N,) in [0, 1], lambda > 0.

    Examples
    --------
    >>> lsl_coefficient([[2.0], [0.0]], [0.5, 1.0], ridge=8.0)
    0.5
    """
    phi = feature_matrix(features)
    rho = regression_weights(weights, phi.shape[0])
    return _coefficient(operator_norm(phi), rho, check.positive("ridge", ridge))


def _coefficient(norm: float, rho: FloatArray, lam: float) -> float:
    return float(norm * rho.max() / np.sqrt(2 * lam))


def lsl_step_factor(
    features: ArrayLike,
    weights: ArrayLike,
    ridge: float,
    *,
    size: float,
    improved: bool = False,
) -> float:
    """What multiplies sqrt(phi) in the bound on one trajectory's effect (Corollary 3.10).

    2 F ||Phi|| / (lambda - ||Phi||^2 ||rho||_inf) as printed, for lambda > ||Phi||^2 ||rho||_inf;
    2 F ||Phi|| / lambda improved, for every lambda > 0. ``size`` is F > 0, the largest absolute
    value of a return; Phi, rho and lambda as in :func:`lsl_coefficient`.

    Examples
    --------
    >>> lsl_step_factor([[1.0]], [1.0], 2.0, size=1.0, improved=True)
    1.0
    """
    phi = feature_matrix(features)
    rho = regression_weights(weights, phi.shape[0])
    lam, most = check.positive("ridge", ridge), check.positive("size", size)
    return _step_factor(operator_norm(phi), rho, lam, most, improved)


def _step_factor(norm: float, rho: FloatArray, lam: float, most: float, improved: bool) -> float:
    subtracted = 0.0 if improved else float(norm**2 * rho.max())
    if lam <= subtracted:
        raise ValueError(
            f"ridge must exceed ||Phi||^2 ||rho||_inf = {subtracted:g}, got {lam!r}: "
            "Corollary 3.10 bounds the sensitivity only then; improved=True needs no condition"
        )
    return float(2 * most * norm / (lam - subtracted))


@dataclass(frozen=True, eq=False)
class LSL(LeastSquares):
    """The estimator LSL: ridge least squares with weights rho in [0, 1], not all zero.

    Attributes as ``LeastSquares``, and

    Attributes
    ----------
    ridge : float
        lambda > 0; no promise covers one that is tuned on the data. An array of ridges broadcasts
        against the leading axes of the noise; a function of the size of a batch, or "tuned", is
        for planning only (:class:`~dprl.private_evaluation.Problem`).
    improved : bool
        Noise as in :func:`lsl_step_factor`: less, for the same promise, than as printed.
    """

    ridge: Any
    improved: bool = field(default=False, kw_only=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        regression_weights(self.weights, self.features.shape[0])
        if isinstance(self.ridge, str) and self.ridge != "tuned":
            raise ValueError(f"ridge must be a number, or 'tuned' in a plan, got {self.ridge!r}")
        if callable(self.ridge) or isinstance(self.ridge, str):
            return
        several = [check.positive("ridge", lam) for lam in np.ravel(self.ridge).tolist()]
        ridge = np.reshape(several, np.shape(self.ridge)) if np.ndim(self.ridge) else several[0]
        object.__setattr__(self, "ridge", ridge)

    def theta(self, statistics: VisitStatistics) -> FloatArray:
        return lsl(statistics, self.features, self.weights, self.ridge)

    def thetas(self, statistics: VisitStatistics) -> FloatArray:
        phi, lam = self.features, check.positive("ridge", self.ridge)  # one for all batches
        if ((phi != 0).sum(axis=1) <= 1).all():  # Phi' Gamma_X Phi is diagonal: nothing to solve
            gamma = visit_weights(statistics, self.weights)
            diagonal = gamma @ phi**2 + lam / (2 * statistics.n_trajectories)
            out: FloatArray = (gamma * statistics.mean_returns) @ phi / diagonal
            return out
        at_once = max(CELLS // phi.shape[1] ** 2, 1)
        counts, means = statistics.counts, statistics.mean_returns
        rest = statistics.n_trajectories, statistics.bounds
        parts = (
            VisitStatistics(counts[i : i + at_once], means[i : i + at_once], *rest)
            for i in range(0, len(counts), at_once)
        )
        return np.concatenate([self.theta(part) for part in parts])

    def noise(
        self, counts: ArrayLike, n_trajectories: int, *, epsilon: float, delta: float
    ) -> Noise:
        v = check.count_array("counts", counts)
        phi = feature_matrix(self.features, v.shape[-1])
        rho, norm = regression_weights(self.weights, phi.shape[0]), operator_norm(phi)
        step, size = return_spread(self.f_min, self.f_max)
        shape, ridges = np.shape(self.ridge), np.ravel(self.ridge).tolist()
        for lam in ridges:
            check.positive("ridge", lam)
        factor = np.reshape(
            [_step_factor(norm, rho, lam, size, self.improved) for lam in ridges], shape
        )
        constants = GaussianSmoothing(epsilon, delta, phi.shape[1])
        psi, distance = lsl_smooth_bound(
            v,
            rho,
            n_trajectories,
            np.reshape([_coefficient(norm, rho, lam) for lam in ridges], shape),
            constants.beta,
            step_ratio=step / size,
        )
        sigma = constants.alpha * factor * np.sqrt(psi)  # (3)
        return Noise(constants.alpha, constants.beta, norm, psi, distance, sigma)

    def psi_of_masses(
        self, masses: FloatArray, beta: float, kept: dict[str, FloatArray] | None = None
    ) -> FloatArray:
        kept = {} if kept is None else kept
        j = np.arange(float(masses.shape[1]))
        if "roots" not in kept:
            kept["roots"] = np.sqrt(masses @ np.minimum(j[:, None] + j, j[-1]))
        step, size = return_spread(self.f_min, self.f_max)
        c = lsl_coefficient(self.features, self.weights, self.ridge)
        fixed = step / size * np.linalg.norm(self.weights)
        terms = np.exp(-beta * j) * (c * kept["roots"] + fixed) ** 2
        out: FloatArray = terms.max(axis=1)
        return out

    def global_sensitivity(self, n_trajectories: int) -> float:
        """Bound on the sup over all neighbours of ||theta_X - theta_X'||, any features.

        The exact value where states share parameters (``lsl_global_sensitivity``). Elsewhere
        the smaller of two bounds, with k the number of trajectories:

        * The local bound of DP-LSL (Corollary 3.10, with lambda alone in the denominator) grows
          with every count, so its value with all counts at k bounds every batch.
        * 2 F sqrt(k sum_s rho_s / (2 lambda)), twice the largest norm of theta. Proof: theta =
          (G'G + a I)^{-1} G' y with G = Gamma_X^{1/2} Phi, y = Gamma_X^{1/2} F_X and
          a = lambda / (2k); the matrix has norm max_t t / (t^2 + a) <= 1 / (2 sqrt(a)) over the
          singular values t of G, and ||y||^2 <= F^2 sum_s rho_s.

        Examples
        --------
        >>> phi = [[1.0, 0.0], [0.5, 0.5], [0.0, 1.0]]
        >>> round(LSL(phi, [1.0] * 3, 200.0, f_max=1.0).global_sensitivity(50), 6)
        0.030399
        """
        phi, rho, lam = self.features, self.weights, check.positive("ridge", self.ridge)
        k = check.whole("n_trajectories", n_trajectories)
        if states_share_parameters(phi):
            return lsl_global_sensitivity(phi, rho, lam, f_max=self.f_max, f_min=self.f_min)
        step, size = return_spread(self.f_min, self.f_max)
        coefficient = lsl_coefficient(phi, rho, lam)
        full = lsl_local_bound(np.full(rho.size, k), rho, k, coefficient, step_ratio=step / size)
        local = lsl_step_factor(phi, rho, lam, size=size, improved=True) * np.sqrt(full)
        return float(min(local, 2 * size * np.sqrt(k * rho.sum() / (2 * lam))))


def dp_lsl(
    data: FirstVisitReturns | VisitStatistics,
    estimator: LSL,
    *,
    epsilon: float,
    delta: float,
    rng: np.random.Generator,
) -> PrivateEstimate:
    """Algorithm 2 of the thesis: LSL plus smoothed Gaussian noise.

    Parameters, errors and what the promise needs as in :func:`~dprl.private_evaluation.dp_lsw`,
    with an :class:`LSL`, its ridge too chosen without looking at the data.

    Examples
    --------
    >>> from dprl.features import tabular
    >>> data = VisitStatistics([5, 4], [0.5, 0.9], 5, bounds=(0, 1))
    >>> estimator = LSL(tabular(2), [1, 1], 9.0, f_max=1)
    >>> dp_lsl(data, estimator, epsilon=1, delta=1e-5, rng=np.random.default_rng(1)).theta.shape
    (2,)
    """
    check.instance("estimator", estimator, LSL)
    statistics = clipped_statistics(data, estimator.f_min, estimator.f_max)
    return released(estimator, statistics, epsilon, delta, rng)


def lsl_global_sensitivity(
    features: ArrayLike,
    weights: ArrayLike,
    ridge: float,
    *,
    f_max: float,
    f_min: float = 0.0,
) -> float:
    """Exact sup over all neighbours of ||theta_X - theta_X'||, where states share parameters:

    D sqrt( sum_g ( c_g R_g / (c_g^2 R_g + lambda/2) )^2 ), where column g of Phi has the value
    c_g on the states of group g and 0 elsewhere, and R_g is the sum of rho over the group.
    Tabular with rho = 1: D sqrt(N) / (1 + lambda/2). The same for every batch size, so noise
    in proportion to it needs no smoothing.

    Proof for [0, F] and c = 1. With A the weighted sum of the returns, B that of the visits of
    the common trajectories, theta_g = (A + u) / (B + r + lambda/2), where x adds r <= R_g and
    0 <= u <= F r. As 0 <= A <= F B, this is at most (A + F R_g) / (B + R_g + lambda/2) and at
    least A / (B + R_g + lambda/2). The difference F R_g / (B + R_g + lambda/2) is largest for
    B = 0; and x, x' that visit every state with returns F and 0 attain it for all groups at
    once. A column c_g rescales theta_g by 1/c_g and the ridge by 1/c_g^2. For a range
    [f_min, f_max] the same steps give D, the largest change of a return.

    Parameters
    ----------
    features, weights, ridge
        As in :func:`lsl_coefficient`. Each row of Phi has at most one entry that is not 0, each
        column one value c_g > 0 (``tabular`` and ``aggregation`` of :mod:`dprl.features`): the
        proof covers no other features, and they are refused.
    f_max, f_min : float
        Range of the returns, f_min < f_max and f_max > 0.

    Examples
    --------
    >>> from dprl.features import tabular
    >>> lsl_global_sensitivity(tabular(4), [1.0] * 4, ridge=6.0, f_max=1.0)
    0.5
    """
    low, high = public_range(f_max, f_min)
    phi = feature_matrix(features)
    rho = regression_weights(weights, phi.shape[0])
    lam = check.positive("ridge", ridge)
    value = shared_values(phi)
    mass = ((phi != 0) * rho[:, None]).sum(axis=0)
    step, _ = return_spread(low, high)
    return float(step * np.linalg.norm(value * mass / (value**2 * mass + lam / 2)))


def states_share_parameters(features: FloatArray) -> bool:
    """Whether each state has at most one parameter, and each column one positive value."""
    value = features.max(axis=0)
    alone = (features != 0).sum(axis=1) <= 1
    same = np.isclose(features, (features != 0) * value, rtol=1e-12, atol=0)
    return bool(alone.all() and (value > 0).all() and same.all())


def shared_values(features: FloatArray) -> FloatArray:
    """c_g of each column; refused unless :func:`states_share_parameters`."""
    if not states_share_parameters(features):
        raise ValueError(
            "features must give each state at most one parameter, with one positive value per "
            "column (tabular, aggregation): the global sensitivity is proved only for these"
        )
    value: FloatArray = features.max(axis=0)
    return value


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
    c = check.positive_array("coefficient", coefficient)
    q = check.real("step_ratio", step_ratio)
    if not 1 <= q <= 2:
        raise ValueError(f"step_ratio must lie in [1, 2], got {step_ratio!r}")
    return v, rho, float(m), c, q
