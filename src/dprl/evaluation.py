r"""Least-squares Monte Carlo policy evaluation, and how far off it is.

The empirical risk of theta on a batch X of m trajectories with regression
weights rho is (thesis, equation 3.1)

    J_X(theta) = (1/m) sum_x sum_{s in x} rho_s (F_{x,s} - phi_s' theta)^2.   (1)

Its minimiser need not be unique and may jump when one trajectory changes. Two
stable versions of it are solved here, both from counts and average returns:

    LSW  min sum_s w_s (F_{X,s} - phi_s' theta)^2            (3.4), (3.6)
    LSL  min J_X(theta) + lambda/(2m) ||theta||^2            (3.8), (3.9)

Nothing here is private. Arrays may carry leading batch axes.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from dprl import _validation as check
from dprl._validation import FloatArray
from dprl.features import feature_matrix, weighted_pseudo_inverse
from dprl.trajectories import FirstVisitReturns, VisitStatistics


def lsw(
    statistics: VisitStatistics,
    features: ArrayLike,
    weights: ArrayLike,
    *,
    allow_rank_deficient: bool = False,
) -> FloatArray:
    """LSW, the weighted least-squares solution (thesis, equation 3.6).

    theta = (Gamma^{1/2} Phi)^+ Gamma^{1/2} F_X with Gamma = diag(w): a fixed
    linear map of the average returns.

    Parameters
    ----------
    statistics : VisitStatistics
        Arrays of shape (..., N).
    features : array_like, shape (N, d)
        Phi; Gamma^{1/2} Phi of rank d unless allow_rank_deficient.
    weights : array_like, shape (N,)
        w >= 0, not all zero; chosen without looking at the data.
    allow_rank_deficient : bool
        Take the least-norm solution where it is not unique.

    Returns
    -------
    ndarray, shape (..., d)

    Examples
    --------
    >>> from dprl.features import tabular
    >>> data = VisitStatistics([2, 1], [0.5, 1.0], 2)
    >>> lsw(data, tabular(2), [1.0, 1.0]).tolist()
    [0.5, 1.0]
    """
    check.instance("statistics", statistics, VisitStatistics)
    phi = feature_matrix(features, statistics.n_states)
    w = check.weight_vector("weights", weights, statistics.n_states)
    inverse = weighted_pseudo_inverse(phi, w, allow_rank_deficient=allow_rank_deficient)
    return (statistics.mean_returns * np.sqrt(w)) @ inverse.T


def lsl(
    statistics: VisitStatistics, features: ArrayLike, weights: ArrayLike, ridge: float
) -> FloatArray:
    """LSL, the ridge solution (thesis, equation 3.9).

    theta = (Phi' Gamma_X Phi + lambda/(2m) I)^{-1} Phi' Gamma_X F_X with
    Gamma_X = diag(rho_s |X_s| / m).

    Parameters
    ----------
    statistics : VisitStatistics
        Arrays of shape (..., N).
    features : array_like, shape (N, d)
        Phi, of any rank.
    weights : array_like, shape (N,)
        rho in [0, 1], not all zero.
    ridge : float
        lambda > 0.

    Returns
    -------
    ndarray, shape (..., d)

    Examples
    --------
    >>> from dprl.features import tabular
    >>> data = VisitStatistics([2, 1], [0.5, 1.0], 2)
    >>> lsl(data, tabular(2), [1.0, 1.0], ridge=2.0).round(4).tolist()
    [0.3333, 0.5]
    """
    check.instance("statistics", statistics, VisitStatistics)
    phi = feature_matrix(features, statistics.n_states)
    gamma = visit_weights(statistics, weights)
    if gamma.ndim == 1:
        gram = (phi.T * gamma) @ phi
    else:
        gram = np.einsum("sd,...s,se->...de", phi, gamma, phi, optimize=True)
    lam = check.positive("ridge", ridge) / (2 * statistics.n_trajectories)
    matrix = gram + lam * np.eye(phi.shape[1])
    target = (gamma * statistics.mean_returns) @ phi
    return np.asarray(np.linalg.solve(matrix, target[..., None])[..., 0], dtype=np.float64)


def visit_weights(statistics: VisitStatistics, weights: ArrayLike) -> FloatArray:
    """Diagonal of Gamma_X, rho_s |X_s| / m; shape (..., N), rho in [0, 1]."""
    check.instance("statistics", statistics, VisitStatistics)
    rho = regression_weights(weights, statistics.n_states)
    return rho * statistics.counts / statistics.n_trajectories


def regression_weights(weights: ArrayLike, n_states: int) -> FloatArray:
    """Check rho: one weight in [0, 1] per state, not all zero (thesis, section 3.2.1)."""
    rho = check.weight_vector("weights", weights, n_states)
    if rho.max() > 1:
        raise ValueError(f"the regression weights rho must be at most 1, got {rho.max()}")
    return rho


def rmse(estimates: ArrayLike, values: ArrayLike, weights: ArrayLike | None = None) -> FloatArray:
    """Root of the (weighted) mean squared error over the states.

    Parameters
    ----------
    estimates : array_like, shape (..., N)
        Estimated values Phi theta.
    values : array_like, shape (N,)
        Exact values.
    weights : array_like, shape (N,), optional
        Importance of each state, >= 0; normalised here. Default: equal.

    Returns
    -------
    ndarray, shape (...)

    Examples
    --------
    >>> float(rmse([1.0, 3.0], [1.0, 1.0], weights=[3.0, 1.0]))
    1.0
    """
    v = check.finite_array("values", values, ndim=1)
    e = check.finite_array("estimates", estimates)
    if e.ndim == 0 or e.shape[-1] != v.size:
        raise ValueError(f"estimates must have {v.size} entries in the last axis, got {e.shape}")
    w = np.ones(v.size) if weights is None else check.weight_vector("weights", weights, v.size)
    out: FloatArray = np.sqrt(((e - v) ** 2 @ w) / w.sum())
    return out


def empirical_risk(
    returns: FirstVisitReturns, features: ArrayLike, theta: ArrayLike, weights: ArrayLike
) -> float:
    """J_X(theta), equation (1), from the single returns of one batch."""
    check.instance("returns", returns, FirstVisitReturns)
    phi = feature_matrix(features, returns.returns.shape[1])
    rho = regression_weights(weights, phi.shape[0])
    parameters = _parameters(check.finite_array("theta", theta, ndim=1), phi)
    error = np.where(returns.visited, returns.returns - phi @ parameters, 0.0)
    return float(((error**2) @ rho).mean())


def ridge_risk(
    returns: FirstVisitReturns,
    features: ArrayLike,
    theta: ArrayLike,
    weights: ArrayLike,
    ridge: float,
) -> float:
    """J_X^lambda(theta) = J_X(theta) + lambda/(2m) ||theta||^2 (thesis, equation 3.8)."""
    check.instance("returns", returns, FirstVisitReturns)
    lam = check.positive("ridge", ridge)
    parameters = check.finite_array("theta", theta, ndim=1)
    penalty = lam / (2 * len(returns)) * float(parameters @ parameters)
    return empirical_risk(returns, features, theta, weights) + penalty


def weighted_risk(
    statistics: VisitStatistics, features: ArrayLike, theta: ArrayLike, weights: ArrayLike
) -> FloatArray:
    """J_X^w(theta) = sum_s w_s (F_{X,s} - phi_s' theta)^2 (thesis, equation 3.4); shape (...)."""
    check.instance("statistics", statistics, VisitStatistics)
    phi = feature_matrix(features, statistics.n_states)
    w = check.weight_vector("weights", weights, statistics.n_states)
    return (statistics.mean_returns - _parameters(theta, phi) @ phi.T) ** 2 @ w


def excess_weighted_risk(
    theta: ArrayLike, minimiser: ArrayLike, features: ArrayLike, weights: ArrayLike
) -> FloatArray:
    """J_X^w(theta) - J_X^w(minimiser) for the LSW minimiser; shape (...).

    At a minimiser the linear term vanishes, so the excess is exactly
    ||Phi (theta - minimiser)||^2 in the weights w. Computed that way, it does
    not suffer from cancellation.
    """
    phi = feature_matrix(features)
    w = check.weight_vector("weights", weights, phi.shape[0])
    step = (_parameters(theta, phi) - _parameters(minimiser, phi)) @ phi.T
    return step**2 @ w


def excess_ridge_risk(
    theta: ArrayLike,
    minimiser: ArrayLike,
    statistics: VisitStatistics,
    features: ArrayLike,
    weights: ArrayLike,
    ridge: float,
) -> FloatArray:
    """J_X^lambda(theta) - J_X^lambda(minimiser) for the LSL minimiser; shape (...).

    Exactly the quadratic form of theta - minimiser in Phi' Gamma_X Phi + lambda/(2m) I.
    """
    check.instance("statistics", statistics, VisitStatistics)
    phi = feature_matrix(features, statistics.n_states)
    gamma = visit_weights(statistics, weights)
    lam = check.positive("ridge", ridge)
    step = _parameters(theta, phi) - _parameters(minimiser, phi)
    fit = ((step @ phi.T) ** 2 * gamma).sum(axis=-1)
    out: FloatArray = fit + lam / (2 * statistics.n_trajectories) * (step**2).sum(axis=-1)
    return out


def _parameters(theta: ArrayLike, phi: FloatArray) -> FloatArray:
    x = check.finite_array("theta", theta)
    if x.ndim == 0 or x.shape[-1] != phi.shape[1]:
        raise ValueError(f"theta must have {phi.shape[1]} entries in the last axis, got {x.shape}")
    return x
