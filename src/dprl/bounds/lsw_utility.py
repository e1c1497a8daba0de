r"""Utility of DP-LSW (thesis, section 3.6): how much empirical risk its noise costs.

A batch X holds m independent trajectories; a trajectory visits state s with
probability p_s, so that v_s = |X_s| is Binomial(m, p_s). DP-LSW releases
theta_hat = theta + eta with eta ~ N(0, sigma_X^2 I) and

    sigma_X^2 = alpha^2 F_max^2 ||(Gamma^{1/2} Phi)^+||^2 psi_X.           (1)

All of section 3.6 bounds the expected excess empirical risk
E[J_X^w(theta_hat) - J_X^w(theta)]. With A = Gamma^{1/2} Phi and

    C = alpha F_max ||A^+|| ||A||_F                                        (2)

it equals C^2 E[psi_X] (Lemma 3.13), and psi_X is at most the weighted sum of

    h(n) = max_{k >= 0} e^{-k beta} / max(n - k, 1)^2                       (3)

over the states, n = v_s (equation 3.47). Lemma 3.14 is to give the maximum (3) and gives the
minimum; Theorem 3.17 and Corollary 3.18 inherit it. :mod:`dprl.bounds.binomial_visits` has that
lemma, Lemmas 3.15 and 3.16, as printed and as corrected. Functions named ``..._printed`` are what
the thesis prints, ``..._corrected`` what the corrected lemmas give, ``..._sharper`` what the
sharper form of Lemma 3.15 gives.

Array arguments broadcast; a result has their shape without the axis of the states.
"""

from __future__ import annotations

import functools
from collections.abc import Callable

import numpy as np
from numpy.typing import ArrayLike

from dprl import _validation as check
from dprl._validation import FloatArray
from dprl.bounds.binomial_visits import (
    checked_betas,
    checked_probabilities,
    equation_3_50_corrected,
    lemma_3_16_corrected,
    lemma_3_16_printed,
    lemma_3_16_sharper,
    log_moment,
)
from dprl.evaluation import excess_weighted_risk
from dprl.features import feature_matrix, pseudo_inverse_norm
from dprl.privacy import GaussianSmoothing
from dprl.private_evaluation import lsw_smooth_bound

#: The range of beta for which Corollary 3.18 is stated.
LARGEST_BETA_COROLLARY = 0.5


# -- Lemma 3.13 and equation (3.45) -----------------------------------------------------


def lemma_3_13(features: ArrayLike, weights: ArrayLike, mean_variance: ArrayLike) -> FloatArray:
    """Lemma 3.13: the expected excess risk, ||Gamma^{1/2} Phi||_F^2 E[sigma_X^2].

    An identity, not a bound. It holds conditionally on X as well, with sigma_X^2
    in place of its mean (equation 3.46).

    features Phi, shape (N, d); weights w >= 0, not all zero, shape (N,); mean_variance >= 0,
    E[sigma_X^2], or sigma_X^2 of given data.

    >>> float(lemma_3_13([[1.0, 0.0], [0.0, 2.0]], [1.0, 0.5], 10.0))
    30.0
    """
    phi = feature_matrix(features)
    w = check.weight_vector("weights", weights, phi.shape[0])
    variance = check.array_from("mean_variance", mean_variance)
    return np.asarray((phi**2).sum(axis=1) @ w * variance, dtype=np.float64)


def equation_3_45_printed(
    noise: ArrayLike,
    mean_returns: ArrayLike,
    minimiser: ArrayLike,
    features: ArrayLike,
    weights: ArrayLike,
) -> FloatArray:
    """Equation (3.45) as printed: eta'A eta - F'Gamma Phi eta - eta'A theta.

    A = Phi' Gamma Phi. Not the excess risk: the two linear terms must cancel, and here they add up
    to -2 F' Gamma Phi eta. Their mean over eta is zero, so Lemma 3.13 survives.

    features and weights as in :func:`lemma_3_13`; noise eta, shape (..., d); mean_returns F_X,
    shape (N,); minimiser theta, shape (d,), the LSW solution for it.

    >>> float(equation_3_45_printed([0.5], [1.0], [1.0], [[1.0]], [1.0]))
    -0.75
    """
    phi = feature_matrix(features)
    w = check.weight_vector("weights", weights, phi.shape[0])
    eta = _parameters("noise", noise, phi)
    theta = _parameters("minimiser", minimiser, phi)
    returns = check.finite_array("mean_returns", mean_returns, ndim=1)
    if returns.shape != w.shape:
        raise ValueError(f"mean_returns must have {w.size} entries, got {returns.size}")
    moved = eta @ phi.T
    linear = moved @ (w * returns) + moved @ (w * (phi @ theta))  # (3.45), after the square
    return moved**2 @ w - linear


def equation_3_45_corrected(
    noise: ArrayLike, features: ArrayLike, weights: ArrayLike
) -> FloatArray:
    """Equation (3.45) corrected: the excess risk is eta' Phi' Gamma Phi eta.

    Exact for every eta, because the gradient vanishes at the minimiser. Parameters as
    :func:`equation_3_45_printed`.

    >>> float(equation_3_45_corrected([0.5], [[1.0]], [1.0]))
    0.25
    """
    phi = feature_matrix(features)
    return excess_weighted_risk(noise, np.zeros(phi.shape[1]), phi, weights)


# -- Lemma 3.14 and equations (3.47), (3.50) ----------------------------------------------


def equation_3_47(counts: ArrayLike, weights: ArrayLike, beta: float) -> FloatArray:
    """Equation (3.47), right side: sum_s w_s h(v_s), an upper bound of psi_X.

    The left side is :func:`~dprl.private_evaluation.lsw_smooth_bound`; the two are
    equal if all counts are equal, and if every weighted state has at least
    :func:`~dprl.bounds.binomial_visits.quadratic_regime_onset` visits.

    Parameters
    ----------
    counts : array_like, shape (..., N)
        Visit counts v >= 0, whole numbers. *Not private* if they come from data.
    weights : array_like, shape (N,)
        w >= 0.
    beta : float
        > 0.

    Examples
    --------
    >>> float(equation_3_47([2, 0], [1.0, 1.0], beta=3.0))
    1.25
    """
    v = check.count_array("counts", counts)
    w = check.weight_vector("weights", weights, v.shape[-1])
    return equation_3_50_corrected(v, check.positive("beta", beta)) @ w


# -- Theorem 3.17 and its corollaries ---------------------------------------------------


def theorem_3_17_constant(
    features: ArrayLike,
    weights: ArrayLike,
    *,
    f_max: float,
    epsilon: float,
    delta: float,
    allow_rank_deficient: bool = False,
) -> float:
    """C of Theorem 3.17, equation (2): alpha F_max ||A^+|| ||A||_F, A = Gamma^{1/2} Phi.

    It does not depend on m. Since ||A||_F ||A^+|| >= sqrt(rank A), C is at least alpha F_max
    sqrt(d) for features of full rank, with equality if all singular values of A are equal.

    Parameters
    ----------
    features, weights
        As in :func:`lemma_3_13`.
    f_max : float
        Public bound on the returns, which lie in [0, f_max]; > 0. The thesis
        writes R_max / (1 - gamma).
    epsilon, delta : float
        The promise; epsilon in (0, 5], delta in (0, 1).
    allow_rank_deficient : bool
        As in :func:`~dprl.private_evaluation.dp_lsw`.

    Examples
    --------
    >>> C = theorem_3_17_constant([[1.0]], [1.0], f_max=1.0, epsilon=0.1, delta=0.1)
    >>> round(C, 6) == round(GaussianSmoothing(0.1, 0.1, 1).alpha, 6)
    True
    """
    phi = feature_matrix(features)
    bound = check.positive("f_max", f_max)
    constants = GaussianSmoothing(epsilon, delta, phi.shape[1])
    inverse = pseudo_inverse_norm(phi, weights, allow_rank_deficient=allow_rank_deficient)
    frobenius = np.sqrt(lemma_3_13(phi, weights, 1.0))
    return float(constants.alpha * bound * inverse * frobenius)


def theorem_3_17_printed(
    m: ArrayLike, p: ArrayLike, weights: ArrayLike, *, constant: float, beta: float
) -> FloatArray:
    """Theorem 3.17 as printed: C^2 times the weighted sum of the printed Lemma 3.16.

    Claimed to bound E[J(theta_hat) - J(theta)]; it does not. O(size of m times N).

    Parameters
    ----------
    m : array_like
        Number of trajectories, whole numbers >= 1; the result has this shape.
    p, weights : array_like, shape (N,)
        Probability in [0, 1] that a trajectory visits each state, and w >= 0, not all zero.
    constant, beta : float
        C > 0, from :func:`theorem_3_17_constant`; beta in (0, 2].

    Examples
    --------
    >>> float(theorem_3_17_printed(1, [0.0], [2.0], constant=3.0, beta=0.1))
    18.0
    """
    return _summed(lemma_3_16_printed, m, p, weights, constant, beta)


def theorem_3_17_corrected(
    m: ArrayLike, p: ArrayLike, weights: ArrayLike, *, constant: float, beta: float
) -> FloatArray:
    """Theorem 3.17 corrected: C^2 times the weighted sum of the corrected Lemma 3.16.

    C^2 ( sum_{S_0} w_s + sum_{S_+} w_s [ 6/(p_s^2 (m+1)(m+2))
    + e^beta (1 - (1 - e^{-beta}) p_s)^m ] ), for every beta > 0.

    Parameters as :func:`theorem_3_17_printed`, with any beta > 0.

    >>> float(theorem_3_17_corrected(1, [1.0], [1.0], constant=1.0, beta=0.1))
    2.0
    """
    return _summed(lemma_3_16_corrected, m, p, weights, constant, beta)


def theorem_3_17_sharper(
    m: ArrayLike, p: ArrayLike, weights: ArrayLike, *, constant: float, beta: float
) -> FloatArray:
    """Theorem 3.17 with the sharper Lemma 3.16: constants 1 and e^beta in the limit.

    Parameters as :func:`theorem_3_17_corrected`.

    >>> m = 10**6
    >>> bound = theorem_3_17_sharper(m, [1.0], [1.0], constant=1.0, beta=0.1)
    >>> round(float(bound) * m**2, 3)
    1.0
    """
    return _summed(lemma_3_16_sharper, m, p, weights, constant, beta)


def corollary_3_18_printed(
    m: ArrayLike, p: ArrayLike, weights: ArrayLike, *, constant: float, beta: float
) -> FloatArray:
    """Corollary 3.18 as printed, a claimed upper bound of the expected excess risk.

    C^2 ( sum_{S_0} w_s + 6 sum_{S_+} w_s [ 1/(p_s m)^2 + beta^2 (1 - beta p_s/2)^m ] ).

    Parameters as :func:`theorem_3_17_printed`, with beta in (0, 1/2].

    >>> float(corollary_3_18_printed(1, [1.0], [1.0], constant=1.0, beta=0.5).round(6))
    7.125
    """
    return _summed(functools.partial(_simple, printed=True), m, p, weights, constant, beta)


def corollary_3_18_corrected(
    m: ArrayLike, p: ArrayLike, weights: ArrayLike, *, constant: float, beta: float
) -> FloatArray:
    """Corollary 3.18 corrected: the printed one without its factor beta^2.

    C^2 ( sum_{S_0} w_s + 6 sum_{S_+} w_s [ 1/(p_s m)^2 + (1 - beta p_s/2)^m ] ).

    Parameters as :func:`corollary_3_18_printed`.

    >>> float(corollary_3_18_corrected(1, [1.0], [1.0], constant=1.0, beta=0.5).round(6))
    10.5
    """
    return _summed(_simple, m, p, weights, constant, beta)


def corollary_3_19(p: ArrayLike, weights: ArrayLike, *, constant: float, beta: float) -> float:
    """Corollary 3.19 with its constant: E[excess risk] <= K / m^2 for every m >= 1. Returns K.

    K = C^2 sum_s w_s ( 6/p_s^2 + 4 e^{beta - 2} / c_s^2 ),
    c_s = -ln(1 - (1 - e^{-beta}) p_s), over the states with w_s > 0, all of which
    need p_s > 0: else the excess risk does not vanish, and a ValueError says so. From the corrected
    Theorem 3.17, whose parameters it shares, and m^2 e^{-cm} <= 4 e^{-2}/c^2.
    The second part, about 4/(e beta p_s)^2, is what the order O(1/m^2) hides.

    >>> round(corollary_3_19([1.0], [1.0], constant=1.0, beta=1e-3))
    541889
    """
    success, w, c = _weighted(p, weights, constant)
    b = check.positive("beta", beta)
    rate = -log_moment(success, b)
    return float(c**2 * (w @ (6 / success**2 + 4 * np.exp(b - 2) / rate**2)))


def corollary_3_19_limit(p: ArrayLike, weights: ArrayLike, *, constant: float) -> float:
    """The limit of m^2 E[excess risk] as m grows: C^2 sum_s w_s / p_s^2.

    Exact, for every beta > 0. Below: psi_X >= sum_s w_s / max(v_s, 1)^2 and Jensen's
    inequality; above: :func:`theorem_3_17_sharper`.

    Parameters and errors as :func:`corollary_3_19`, without beta.

    >>> corollary_3_19_limit([0.5, 0.0], [1.0, 0.0], constant=1.0)
    4.0
    """
    success, w, c = _weighted(p, weights, constant)
    return float(c**2 * (w @ success**-2.0))


def excess_risk_equal_counts(
    visits: ArrayLike, weights: ArrayLike, *, constant: float, beta: float
) -> FloatArray:
    """Expected excess risk of DP-LSW if every state has the same number n of visits.

    Exactly C^2 (sum_s w_s) h(n): by Lemma 3.13, and because (3.47) is an equality
    for equal counts. With p_s = 1 for all s it is the expectation, with n = m.

    weights, constant and beta as in :func:`theorem_3_17_corrected`; visits n, whole numbers >= 0;
    the result has this shape.

    >>> float(excess_risk_equal_counts(10, [0.5, 0.5], constant=3.0, beta=10.0).round(12))
    0.09
    """
    w = check.finite_array("weights", weights, ndim=1)
    w = check.weight_vector("weights", w, w.size)
    c, b = check.positive("constant", constant), check.positive("beta", beta)
    return np.asarray(c**2 * w.sum() * equation_3_50_corrected(visits, b), dtype=np.float64)


def excess_risk_given_counts(
    counts: ArrayLike, weights: ArrayLike, *, constant: float, beta: float
) -> FloatArray:
    """C^2 psi(v): the expected excess risk over the noise alone, for given visit counts.

    Its mean over batches is the left side of Theorem 3.17. ``counts`` has the shape (..., N), other
    parameters are those of :func:`excess_risk_equal_counts`. *Not private* if the counts come from
    data.

    >>> float(excess_risk_given_counts([10, 10], [0.5, 0.5], constant=3.0, beta=10.0).round(12))
    0.09
    """
    psi, _ = lsw_smooth_bound(counts, weights, beta)
    return np.asarray(check.positive("constant", constant) ** 2 * psi, dtype=np.float64)


# -- shared -----------------------------------------------------------------------------


def _simple(m: FloatArray, p: FloatArray, beta: float, printed: bool = False) -> FloatArray:
    """One state's term of Corollary 3.18."""
    b = checked_betas(beta, LARGEST_BETA_COROLLARY, "Corollary 3.18")
    visited = np.where(p > 0, p, 1.0)
    factor = 6 * b**2 if printed else 6.0
    value = 6 / (visited * m) ** 2 + factor * np.exp(m * np.log1p(-b * visited / 2))
    return np.asarray(np.where(p > 0, value, 1.0), dtype=np.float64)


def _summed(
    term: Callable[[FloatArray, FloatArray, float], FloatArray],
    m: ArrayLike,
    p: ArrayLike,
    weights: ArrayLike,
    constant: float,
    beta: float,
) -> FloatArray:
    """C^2 sum_s w_s term(m, p_s, beta); shape of m."""
    success, w, c = _states(p, weights, constant)
    terms = term(check.whole_array("m", m)[..., None], success, check.positive("beta", beta))
    return np.asarray(c**2 * (terms @ w), dtype=np.float64)


def _states(
    p: ArrayLike, weights: ArrayLike, constant: float
) -> tuple[FloatArray, FloatArray, float]:
    success = checked_probabilities(p)
    if success.ndim != 1:
        raise ValueError(f"p must have one entry per state, got shape {success.shape}")
    w = check.weight_vector("weights", weights, success.size)
    return success, w, check.positive("constant", constant)


def _weighted(
    p: ArrayLike, weights: ArrayLike, constant: float
) -> tuple[FloatArray, FloatArray, float]:
    """p and w of the states with positive weight; each of them can be visited."""
    success, w, c = _states(p, weights, constant)
    counted = w > 0
    if (success[counted] == 0).any():
        s = int(np.flatnonzero(counted & (success == 0))[0])
        raise ValueError(
            f"state {s} has weight {w[s]:g} and is never visited (p = 0): "
            "the excess risk does not vanish"
        )
    return success[counted], w[counted], c


def _parameters(name: str, values: ArrayLike, phi: FloatArray) -> FloatArray:
    x = check.finite_array(name, values)
    if x.ndim == 0 or x.shape[-1] != phi.shape[1]:
        raise ValueError(f"{name} must have {phi.shape[1]} entries in the last axis, got {x.shape}")
    return x
