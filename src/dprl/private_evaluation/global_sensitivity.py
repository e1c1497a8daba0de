r"""How far one trajectory can move LSW and LSL, over all pairs of neighbouring batches.

DP-LSW and DP-LSL adapt their noise to the visit counts (local sensitivity). A mechanism
that must not look at the counts needs the largest step over *all* batches instead. With
returns in [f_min, f_max], D = :func:`~dprl.private_evaluation.return_spread` and
neighbours that replace one trajectory:

LSW
    theta = A F_X with A = (Gamma^{1/2} Phi)^+ Gamma^{1/2}. Each entry of F_X is an average
    of returns, or 0, so it moves by at most D, and theta by at most

        D min( || |A| 1 ||_2,  ||(Gamma^{1/2} Phi)^+|| sqrt(sum_s w_s) ).              (1)

    |A| 1 holds the sums of the absolute values in the rows of A.
LSL
    exactly known where states share parameters
    (:func:`~dprl.private_evaluation.lsl_global_sensitivity`), bounded for other features
    (:func:`~dprl.private_evaluation.lsl_sensitivity_bound`).

Neither shrinks when the batch grows: a state may have a single visit. All arguments are
public, and so are the results.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from dprl import _validation as check
from dprl._validation import FloatArray
from dprl.evaluation import regression_weights
from dprl.features import feature_matrix, weighted_pseudo_inverse
from dprl.private_evaluation.common import public_range, return_spread
from dprl.private_evaluation.dp_lsl import lsl_coefficient, lsl_local_bound, lsl_step_factor


def lsw_global_sensitivity(
    features: ArrayLike,
    weights: ArrayLike,
    *,
    f_max: float,
    f_min: float = 0.0,
    allow_rank_deficient: bool = False,
) -> float:
    """Bound (1) on the sup over all neighbours of ||theta_X - theta_X'|| for LSW.

    Attained where no two rows of A share a state (tabular, aggregation), if some trajectory
    can visit every state with the returns that realise D: D sqrt(N) for tabular features.

    Parameters
    ----------
    features : array_like, shape (N, d)
        Phi.
    weights : array_like, shape (N,)
        w >= 0, not all zero.
    f_max, f_min : float
        Range of the returns, f_min < f_max and f_max > 0.
    allow_rank_deficient : bool
        As in :func:`~dprl.evaluation.lsw`.

    Raises
    ------
    ValueError
        If an argument is outside its range, or the solution is not unique and that was not
        allowed.

    Examples
    --------
    >>> from dprl.features import aggregation, tabular
    >>> lsw_global_sensitivity(tabular(4), [1.0] * 4, f_max=1.0)
    2.0
    >>> round(lsw_global_sensitivity(aggregation(4), [1.0] * 4, f_max=1.0), 6)
    1.414214
    """
    low, high = public_range(f_max, f_min)
    phi = feature_matrix(features)
    w = check.weight_vector("weights", weights, phi.shape[0])
    inverse = weighted_pseudo_inverse(phi, w, allow_rank_deficient=allow_rank_deficient)
    rows = np.abs(inverse * np.sqrt(w)).sum(axis=1)
    step, _ = return_spread(low, high)
    most = min(np.linalg.norm(rows), np.linalg.norm(inverse, 2) * np.sqrt(w.sum()))
    return float(step * most)  # (1)


def lsl_global_sensitivity(
    features: ArrayLike,
    weights: ArrayLike,
    ridge: float,
    *,
    f_max: float,
    f_min: float = 0.0,
) -> float:
    """Exact sup over all neighbours of ||theta_X - theta_X'||, for states that share parameters.

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
    features : array_like, shape (N, d)
        Phi; each row has at most one entry that is not 0, each column one value c_g > 0:
        ``tabular`` and ``aggregation`` of :mod:`dprl.features`.
    weights : array_like, shape (N,)
        rho in [0, 1].
    ridge : float
        lambda > 0.
    f_max, f_min : float
        Range of the returns, f_min < f_max and f_max > 0.

    Raises
    ------
    ValueError
        If the features are of another form: the proof does not cover them.

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


def lsl_sensitivity_bound(
    features: ArrayLike,
    weights: ArrayLike,
    ridge: float,
    n_trajectories: int,
    *,
    f_max: float,
    f_min: float = 0.0,
) -> float:
    """Bound on the sup over all neighbours of ||theta_X - theta_X'|| for LSL, any features.

    The exact value where states share parameters. Elsewhere the smaller of two bounds; F is
    the largest size of a return and k the number of trajectories.

    * The local bound of DP-LSL (Corollary 3.10, with lambda alone in the denominator) grows
      with every count, so its value with all counts at k bounds every batch.
    * 2 F sqrt(k sum_s rho_s / (2 lambda)), twice the largest norm of theta. Proof: theta =
      (G'G + a I)^{-1} G' y with G = Gamma_X^{1/2} Phi, y = Gamma_X^{1/2} F_X and
      a = lambda / (2k); the matrix has norm max_t t / (t^2 + a) <= 1 / (2 sqrt(a)) over the
      singular values t of G, and ||y||^2 <= F^2 sum_s rho_s.

    Parameters
    ----------
    features : array_like, shape (N, d)
        Phi.
    weights : array_like, shape (N,)
        rho in [0, 1].
    ridge : float
        lambda > 0.
    n_trajectories : int
        k, trajectories in the batch; public.
    f_max, f_min : float
        Range of the returns, f_min < f_max and f_max > 0.

    Examples
    --------
    >>> phi = [[1.0, 0.0], [0.5, 0.5], [0.0, 1.0]]
    >>> round(lsl_sensitivity_bound(phi, [1.0] * 3, 200.0, 50, f_max=1.0), 6)
    0.030399
    """
    low, high = public_range(f_max, f_min)
    k = check.whole("n_trajectories", n_trajectories)
    phi = feature_matrix(features)
    rho = regression_weights(weights, phi.shape[0])
    lam = check.positive("ridge", ridge)
    if states_share_parameters(phi):
        return lsl_global_sensitivity(phi, rho, lam, f_max=high, f_min=low)
    step, size = return_spread(low, high)
    coefficient = lsl_coefficient(phi, rho, lam)
    full = lsl_local_bound(np.full(rho.size, k), rho, k, coefficient, step_ratio=step / size)
    local = lsl_step_factor(phi, rho, lam, size=size, improved=True) * np.sqrt(full)
    return float(min(local, 2 * size * np.sqrt(k * rho.sum() / (2 * lam))))


def states_share_parameters(features: FloatArray) -> bool:
    """Whether each state has at most one parameter, and each column one positive value.

    Tabular features and aggregations are of this form.
    """
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
