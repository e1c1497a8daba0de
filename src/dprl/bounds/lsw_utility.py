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

over the states, n = v_s (equation 3.47). The logarithm of e^{-bx} (a - x)^{-2} is
convex in x, so its maximum is at an end point of [0, a - 1]:

    h(n) = max(n^{-2}, e^{-beta (n - 1)})  for n >= 1,   h(0) = 1.          (4)

The printed Lemma 3.14 gives the value at the stationary point, which is the
minimum, and Lemma 3.16, Theorem 3.17 and Corollary 3.18 inherit it. Functions
named ``..._printed`` are what the thesis prints, ``..._corrected`` what (4) gives;
``..._sharper`` replaces the constant 6 of Lemma 3.15 by one that tends to 1.

Everything is vectorised over array arguments, which broadcast.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from numpy.typing import ArrayLike
from scipy import stats
from scipy.special import betainc, lambertw

from dprl import _validation as check
from dprl._validation import FloatArray
from dprl.evaluation import excess_weighted_risk
from dprl.features import feature_matrix, pseudo_inverse_norm
from dprl.privacy import GaussianSmoothing
from dprl.private_evaluation import lsw_smooth_bound

#: The range of beta for which Lemma 3.16 and Theorem 3.17 are stated.
LARGEST_BETA = 2.0
#: The range of beta for which Corollary 3.18 is stated.
LARGEST_BETA_COROLLARY = 0.5

#: Smallest positive probability: below it fourth powers leave the range of floats.
SMALLEST_PROBABILITY = 1e-70

# Terms of one block of binomial sums held in memory at once.
_BLOCK = 2_000_000


# -- Lemma 3.13 and equation (3.45) -----------------------------------------------------


def lemma_3_13(features: ArrayLike, weights: ArrayLike, mean_variance: ArrayLike) -> FloatArray:
    """Lemma 3.13: the expected excess risk, ||Gamma^{1/2} Phi||_F^2 E[sigma_X^2].

    An identity, not a bound. It holds conditionally on X as well, with sigma_X^2
    in place of its mean (equation 3.46).

    Parameters
    ----------
    features : array_like, shape (N, d)
        Phi.
    weights : array_like, shape (N,)
        w >= 0, not all zero.
    mean_variance : array_like
        E[sigma_X^2], or sigma_X^2 of given data; >= 0.

    Returns
    -------
    ndarray, shape of mean_variance

    Examples
    --------
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

    Parameters
    ----------
    noise : array_like, shape (..., d)
        eta.
    mean_returns : array_like, shape (N,)
        F_X.
    minimiser : array_like, shape (d,)
        theta, the LSW solution for F_X.
    features, weights
        Phi of shape (N, d) and w of shape (N,).

    Returns
    -------
    ndarray, shape (...)

    Examples
    --------
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

    Exact for every eta, because the gradient vanishes at the minimiser.

    Parameters
    ----------
    noise : array_like, shape (..., d)
        eta.
    features, weights
        Phi of shape (N, d) and w of shape (N,).

    Returns
    -------
    ndarray, shape (...)

    Examples
    --------
    >>> float(equation_3_45_corrected([0.5], [[1.0]], [1.0]))
    0.25
    """
    phi = feature_matrix(features)
    return excess_weighted_risk(noise, np.zeros(phi.shape[1]), phi, weights)


# -- Lemma 3.14 and equations (3.47), (3.50) ----------------------------------------------


def lemma_3_14_printed(b: ArrayLike, a: ArrayLike) -> FloatArray:
    """Lemma 3.14 as printed, for max_{0 <= x <= a - 1} e^{-bx} / (a - x)^2.

    1/a^2 if b < 2/a, e^{1 - ab} if b > 2, (e^2/4) b^2 e^{-ab} otherwise
    (equation 3.48). Right only for a = 1 and b <= 2; elsewhere it is the minimum
    (:func:`lemma_3_14_minimum`), and for b > 2 less than that.

    Parameters
    ----------
    b : array_like
        > 0.
    a : array_like
        >= 1, broadcast against b.

    Returns
    -------
    ndarray

    Examples
    --------
    >>> round(float(lemma_3_14_printed(0.1, 100.0)), 10)
    8.387e-07
    """
    decay, end = _decay_and_end(b, a)
    stationary = math.e**2 / 4 * decay**2 * np.exp(-end * decay)
    return np.select([decay < 2 / end, decay > 2], [end**-2.0, np.exp(1 - end * decay)], stationary)


def lemma_3_14_minimum(b: ArrayLike, a: ArrayLike) -> FloatArray:
    """The minimum of e^{-bx} / (a - x)^2 over 0 <= x <= a - 1.

    The function is log-convex with its stationary point at x = a - 2/b: the
    minimum is there if that lies in the interval, else at the nearer end point.

    Parameters as :func:`lemma_3_14_printed`.

    Examples
    --------
    >>> round(float(lemma_3_14_minimum(3.0, 3.0)), 7)
    0.0024788
    """
    decay, end = _decay_and_end(b, a)
    x = np.clip(end - 2 / decay, 0, end - 1)
    return np.asarray(np.exp(-decay * x) / (end - x) ** 2, dtype=np.float64)


def lemma_3_14_corrected(b: ArrayLike, a: ArrayLike) -> FloatArray:
    """Lemma 3.14 corrected: the maximum is max(a^{-2}, e^{-b (a - 1)}).

    A log-convex function attains its maximum over an interval at an end point. If a is an integer,
    both end points are, so this is the maximum over the integers x too.

    Parameters as :func:`lemma_3_14_printed`.

    Examples
    --------
    >>> float(lemma_3_14_corrected(0.1, 100.0))
    0.0001
    """
    decay, end = _decay_and_end(b, a)
    return np.maximum(end**-2.0, np.exp(-decay * (end - 1)))


def equation_3_47(counts: ArrayLike, weights: ArrayLike, beta: float) -> FloatArray:
    """Equation (3.47), right side: sum_s w_s h(v_s), an upper bound of psi_X.

    The left side is :func:`~dprl.private_evaluation.lsw_smooth_bound`; the two are
    equal if all counts are equal, and if every weighted state has at least
    :func:`quadratic_regime_onset` visits.

    Parameters
    ----------
    counts : array_like, shape (..., N)
        Visit counts v >= 0, whole numbers. *Not private* if they come from data.
    weights : array_like, shape (N,)
        w >= 0.
    beta : float
        > 0.

    Returns
    -------
    ndarray, shape (...)

    Examples
    --------
    >>> float(equation_3_47([2, 0], [1.0, 1.0], beta=3.0))
    1.25
    """
    v = check.count_array("counts", counts)
    w = check.weight_vector("weights", weights, v.shape[-1])
    return equation_3_50_corrected(v, check.positive("beta", beta)) @ w


def equation_3_50_printed(visits: ArrayLike, beta: ArrayLike) -> FloatArray:
    """Equation (3.50) as printed, for h(n) of equation (3) of this module.

    1 if n = 0, n^{-2} if 1 <= n < 2/beta, (e^2/4) beta^2 e^{-beta n} if n >= 2/beta:
    the printed Lemma 3.14 with a = n and beta <= 2.

    Parameters
    ----------
    visits : array_like
        n, whole numbers >= 0.
    beta : array_like
        In (0, 2], broadcast against n.

    Examples
    --------
    >>> equation_3_50_printed([0, 2], 0.01).tolist()
    [1.0, 0.25]
    """
    n, b = _visits(visits), _betas(beta, LARGEST_BETA, "Lemma 3.16")
    return np.where(n == 0, 1.0, lemma_3_14_printed(b, np.maximum(n, 1.0)))


def equation_3_50_corrected(visits: ArrayLike, beta: ArrayLike) -> FloatArray:
    """Equation (3.50) corrected: h(0) = 1 and h(n) = max(n^{-2}, e^{-beta (n - 1)}).

    Parameters
    ----------
    visits : array_like
        n, whole numbers >= 0.
    beta : array_like
        > 0, broadcast against n.

    Examples
    --------
    >>> equation_3_50_corrected([0, 2], 0.01).round(4).tolist()
    [1.0, 0.99]
    """
    n, b = _visits(visits), _betas(beta)
    return np.where(n == 0, 1.0, lemma_3_14_corrected(b, np.maximum(n, 1.0)))


def quadratic_regime_onset(beta: ArrayLike, smallest_p: ArrayLike = 1.0) -> FloatArray:
    """n*, the number of visits from which on h(n) = n^{-2}; or n*/p in trajectories.

    The larger solution of n^{-2} = e^{-beta (n - 1)},

        n* = -(2/beta) W_{-1}(-(beta/2) e^{-beta/2}),

    W_{-1} the lower real branch of Lambert's function. For 1 < n < n* the noise of
    DP-LSW falls exponentially, h(n) = e^{-beta (n - 1)} > n^{-2}; from n* on it is
    as small as the local sensitivity. n* = 1 for beta >= 2.

    Parameters
    ----------
    beta : array_like
        > 0.
    smallest_p : array_like
        In (0, 1], broadcast against beta: the smallest probability p_s of a visit
        among the weighted states. n*/p_s trajectories visit s n* times on average.

    Returns
    -------
    ndarray
        n* / smallest_p; by default n*.

    Examples
    --------
    >>> round(float(quadratic_regime_onset(1e-3)), 1)
    19786.5
    """
    b = _betas(beta)
    # the branch point is beta = 2, where n* = 1; near it the expansion is the better start
    gap = np.maximum(2 - b, 0.0)
    near = gap < 0.05
    lower = np.where(near, 1.0, b)
    lambert = -(2 / lower) * np.real(lambertw(-(lower / 2) * np.exp(-lower / 2), -1))
    onset = np.where(near, 1 + gap + 2 * gap**2 / 3, lambert)
    for _ in range(3):  # Newton's method removes what rounding has left
        slope = np.where(gap > 0, 2 / onset - b, 1.0)
        onset = np.where(gap > 0, onset - (2 * np.log(onset) - b * (onset - 1)) / slope, 1.0)
    return np.asarray(onset / _successes(smallest_p), dtype=np.float64)


# -- Lemma 3.15 -------------------------------------------------------------------------


def lemma_3_15_mean(m: ArrayLike, p: ArrayLike) -> FloatArray:
    """Lemma 3.15, first part: E[1 / (B + 1)] = (1 - (1 - p)^{m+1}) / (p (m + 1)).

    B is Binomial(m, p). An identity.

    Parameters
    ----------
    m : array_like
        Trials, whole numbers >= 1.
    p : array_like
        Success probability in (0, 1], broadcast against m.

    Examples
    --------
    >>> float(lemma_3_15_mean(1, 0.5))
    0.75
    """
    trials, success = _trials(m), _successes(p)
    with np.errstate(divide="ignore"):  # p = 1: ln 0 = -inf, and the power is 0
        some = -np.expm1((trials + 1) * np.log1p(-success))
    return np.asarray(some / (success * (trials + 1)), dtype=np.float64)


def lemma_3_15_inverse_square(m: ArrayLike, p: ArrayLike) -> FloatArray:
    r"""Lemma 3.15, second part: an upper bound of E[B^{-2}; B >= 1].

    The printed right side is

        6/(p(m+1)) [ (1-(1-p)^{m+2})/(p(m+2)) - (1-p)^{m+1} - p(m+1)/2 (1-p)^m ].

    Computed as 6 P[B_{m+2} >= 3] / (p^2 (m+1)(m+2)), the same number without
    cancellation: 1/k^2 <= 6/((k+1)(k+2)) moves the weights of Binomial(m, p)
    to those of Binomial(m + 2, p), two places further.

    Parameters as :func:`lemma_3_15_mean`.

    Examples
    --------
    >>> float(lemma_3_15_inverse_square(1, 1.0))
    1.0
    """
    trials, success = _trials(m), _successes(p)
    return np.asarray(6 * _shifted_two(trials, success), dtype=np.float64)


def lemma_3_15_inverse_square_sharper(m: ArrayLike, p: ArrayLike) -> FloatArray:
    r"""Lemma 3.15, second part, with a constant that tends to 1 instead of 6.

    E[B^{-2}; B >= 1] <= P[B_{m+2} >= 3] / (p^2 (m+1)(m+2))
                         + 20 P[B_{m+3} >= 4] / (p^3 (m+1)(m+2)(m+3)),

    from 1/k^2 <= 1/((k+1)(k+2)) + 20/((k+1)(k+2)(k+3)) for k >= 1. Never above the printed bound,
    and (pm)^2 times it tends to 1 as pm grows, which is the true limit.

    Parameters as :func:`lemma_3_15_mean`.

    Examples
    --------
    >>> round(float(lemma_3_15_inverse_square_sharper(10**6, 0.5)) * (0.5 * 10**6) ** 2, 3)
    1.0
    """
    trials, success = _trials(m), _successes(p)
    third = betainc(4.0, trials, success) / (
        success**3 * (trials + 1) * (trials + 2) * (trials + 3)
    )  # P[B_{m+3} >= 4] = I_p(4, m)
    return np.asarray(_shifted_two(trials, success) + 20 * third, dtype=np.float64)


def expected_inverse_square(m: ArrayLike, p: ArrayLike) -> FloatArray:
    """E[B^{-2}; B >= 1] for B ~ Binomial(m, p), by summation.

    The left side of Lemma 3.15. Accuracy and cost as :func:`expected_smooth_term`.

    Parameters as :func:`lemma_3_15_mean`.

    Examples
    --------
    >>> float(expected_inverse_square(2, 0.5).round(12))
    0.5625
    """
    trials, success = np.broadcast_arrays(_trials(m), _successes(p))
    return _positive_part(trials, success, None)


# -- Lemma 3.16 -------------------------------------------------------------------------


def expected_smooth_term(m: ArrayLike, p: ArrayLike, beta: ArrayLike) -> FloatArray:
    """E[h(B)] for B ~ Binomial(m, p): the left side of Lemma 3.16, by summation.

    h is that of :func:`equation_3_50_corrected`. Terms are left out only where
    Bernstein's inequality puts less than 1e-16 of the two parts of the sum.

    Parameters
    ----------
    m : array_like
        Number of trajectories, whole numbers >= 1.
    p : array_like
        Probability of a visit, in [0, 1].
    beta : array_like
        > 0. All three broadcast.

    Returns
    -------
    ndarray

    Notes
    -----
    O(min(m, sqrt(m p (1 - p)) + 50)) terms per setting.

    Examples
    --------
    >>> float(expected_smooth_term(1, 0.3, 0.01))  # no or one visit: 1 either way
    1.0
    >>> float(expected_smooth_term(2, 1.0, 0.01).round(6))
    0.99005
    """
    trials, success, b = np.broadcast_arrays(_trials(m), _probabilities(p), _betas(beta))
    with np.errstate(divide="ignore"):
        never = np.exp(trials * np.log1p(-success))
    visited = np.where(success > 0, success, 1.0)
    return np.asarray(
        np.where(success > 0, never + _positive_part(trials, visited, b), 1.0), dtype=np.float64
    )


def lemma_3_16_printed(m: ArrayLike, p: ArrayLike, beta: ArrayLike) -> FloatArray:
    """Lemma 3.16 as printed (equation 3.49), a claimed upper bound of E[h(B)].

    6/(p^2 (m+1)(m+2)) + (e^2 beta^2/4)(1 - (1 - e^{-beta}) p)^m for p > 0, and 1 for p = 0. It
    rests on the printed Lemma 3.14 and fails: e^beta is needed where e^2 beta^2/4 stands.

    Parameters
    ----------
    m : array_like
        Number of trajectories, whole numbers >= 1.
    p : array_like
        Probability of a visit, in [0, 1].
    beta : array_like
        In (0, 2]. All three broadcast.

    Examples
    --------
    >>> round(float(lemma_3_16_printed(1000, 1.0, 1e-3)), 8)
    6.66e-06
    >>> round(float(expected_smooth_term(1000, 1.0, 1e-3)), 5)
    0.36825
    """
    b = _betas(beta, LARGEST_BETA, "Lemma 3.16")
    return _two_terms(m, p, b, 2 * np.log(b) + 2 - np.log(4))


def lemma_3_16_corrected(m: ArrayLike, p: ArrayLike, beta: ArrayLike) -> FloatArray:
    """Lemma 3.16 corrected: an upper bound of E[h(B)].

    6/(p^2 (m+1)(m+2)) + e^beta (1 - (1 - e^{-beta}) p)^m for p > 0, and 1 for p = 0. It needs no
    beta <= 2. No factor below e^beta (1 - 6 e beta^2) can replace e^beta: for p = 1 the left side
    is at least e^beta e^{-beta m}, and 6/((m+1)(m+2)) < 6 beta^2 at m = ceil(1/beta).

    Parameters as :func:`lemma_3_16_printed`, with any beta > 0.

    Examples
    --------
    >>> round(float(lemma_3_16_corrected(1000, 1.0, 1e-3)), 5)
    0.36825
    """
    b = _betas(beta)
    return _two_terms(m, p, b, b)


def lemma_3_16_sharper(m: ArrayLike, p: ArrayLike, beta: ArrayLike) -> FloatArray:
    """Lemma 3.16 with both parts sharp: the constant 6 replaced by one that tends to 1.

    :func:`lemma_3_15_inverse_square_sharper` plus e^beta (1 - (1 - e^{-beta}) p)^m.

    Parameters as :func:`lemma_3_16_corrected`.

    Examples
    --------
    >>> m = 10**6
    >>> round(float(lemma_3_16_sharper(m, 0.5, 0.1)) * (0.5 * m) ** 2, 3)
    1.0
    """
    trials, success, b = _trials(m), _probabilities(p), _betas(beta)
    visited = np.where(success > 0, success, 1.0)
    inverse = lemma_3_15_inverse_square_sharper(trials, visited)
    with np.errstate(over="ignore"):  # beyond the range of floats the bound is infinite
        exponential = np.exp(b + trials * _log_moment(visited, b))
    return np.asarray(np.where(success > 0, inverse + exponential, 1.0), dtype=np.float64)


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
    features : array_like, shape (N, d)
        Phi.
    weights : array_like, shape (N,)
        w >= 0, not all zero.
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

    Claimed to bound E[J(theta_hat) - J(theta)]; it does not.

    Parameters
    ----------
    m : array_like
        Number of trajectories, whole numbers >= 1.
    p : array_like, shape (N,)
        Probability that a trajectory visits each state, in [0, 1].
    weights : array_like, shape (N,)
        w >= 0, not all zero.
    constant : float
        C > 0, from :func:`theorem_3_17_constant`.
    beta : float
        In (0, 2].

    Returns
    -------
    ndarray, shape of m

    Notes
    -----
    O(size of m times N).

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

    Examples
    --------
    >>> float(theorem_3_17_corrected(1, [1.0], [1.0], constant=1.0, beta=0.1))
    2.0
    """
    return _summed(lemma_3_16_corrected, m, p, weights, constant, beta)


def theorem_3_17_sharper(
    m: ArrayLike, p: ArrayLike, weights: ArrayLike, *, constant: float, beta: float
) -> FloatArray:
    """Theorem 3.17 with :func:`lemma_3_16_sharper`: constants 1 and e^beta in the limit.

    Parameters as :func:`theorem_3_17_corrected`.

    Examples
    --------
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

    Examples
    --------
    >>> float(corollary_3_18_printed(1, [1.0], [1.0], constant=1.0, beta=0.5).round(6))
    7.125
    """
    return _summed(_simple_printed, m, p, weights, constant, beta)


def corollary_3_18_corrected(
    m: ArrayLike, p: ArrayLike, weights: ArrayLike, *, constant: float, beta: float
) -> FloatArray:
    """Corollary 3.18 corrected: the printed one without its factor beta^2.

    C^2 ( sum_{S_0} w_s + 6 sum_{S_+} w_s [ 1/(p_s m)^2 + (1 - beta p_s/2)^m ] ).

    Parameters as :func:`corollary_3_18_printed`.

    Examples
    --------
    >>> float(corollary_3_18_corrected(1, [1.0], [1.0], constant=1.0, beta=0.5).round(6))
    10.5
    """
    return _summed(_simple_corrected, m, p, weights, constant, beta)


def corollary_3_19(p: ArrayLike, weights: ArrayLike, *, constant: float, beta: float) -> float:
    """Corollary 3.19 with its constant: E[excess risk] <= K / m^2 for every m >= 1.

    K = C^2 sum_s w_s ( 6/p_s^2 + 4 e^{beta - 2} / c_s^2 ),
    c_s = -ln(1 - (1 - e^{-beta}) p_s), over the states with w_s > 0, all of which
    need p_s > 0. From the corrected Theorem 3.17 and m^2 e^{-cm} <= 4 e^{-2}/c^2.
    The second part, about 4/(e beta p_s)^2, is what the order O(1/m^2) hides.

    Parameters
    ----------
    p, weights, constant, beta
        As :func:`theorem_3_17_corrected`.

    Returns
    -------
    float
        K.

    Raises
    ------
    ValueError
        If a state with positive weight is never visited: the excess risk then does not vanish.

    Examples
    --------
    >>> round(corollary_3_19([1.0], [1.0], constant=1.0, beta=1e-3))
    541889
    """
    success, w, c = _weighted(p, weights, constant)
    b = check.positive("beta", beta)
    rate = -_log_moment(success, b)
    return float(c**2 * (w @ (6 / success**2 + 4 * np.exp(b - 2) / rate**2)))


def corollary_3_19_limit(p: ArrayLike, weights: ArrayLike, *, constant: float) -> float:
    """The limit of m^2 E[excess risk] as m grows: C^2 sum_s w_s / p_s^2.

    Exact, for every beta > 0. Below: psi_X >= sum_s w_s / max(v_s, 1)^2 and Jensen's
    inequality; above: :func:`theorem_3_17_sharper`.

    Parameters and errors as :func:`corollary_3_19`, without beta.

    Examples
    --------
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

    Parameters
    ----------
    visits : array_like
        n, whole numbers >= 0.
    weights : array_like, shape (N,)
        w >= 0, not all zero.
    constant : float
        C > 0, from :func:`theorem_3_17_constant`.
    beta : float
        > 0.

    Returns
    -------
    ndarray, shape of visits

    Examples
    --------
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

    Its mean over batches is the left side of Theorem 3.17. *Not private* if the
    counts come from data.

    Parameters
    ----------
    counts : array_like, shape (..., N)
        Visit counts.
    weights, constant, beta
        As :func:`excess_risk_equal_counts`.

    Returns
    -------
    ndarray, shape (...)

    Examples
    --------
    >>> float(excess_risk_given_counts([10, 10], [0.5, 0.5], constant=3.0, beta=10.0).round(12))
    0.09
    """
    psi, _ = lsw_smooth_bound(counts, weights, beta)
    return np.asarray(check.positive("constant", constant) ** 2 * psi, dtype=np.float64)


# -- shared -----------------------------------------------------------------------------


def _two_terms(m: ArrayLike, p: ArrayLike, beta: FloatArray, log_factor: FloatArray) -> FloatArray:
    """6/(p^2 (m+1)(m+2)) + e^{log_factor} (1 - (1 - e^{-beta}) p)^m; 1 where p = 0."""
    trials, success = _trials(m), _probabilities(p)
    visited = np.where(success > 0, success, 1.0)
    inverse = 6 / (visited**2 * (trials + 1) * (trials + 2))
    with np.errstate(over="ignore"):  # beyond the range of floats the bound is infinite
        exponential = np.exp(log_factor + trials * _log_moment(visited, beta))
    return np.asarray(np.where(success > 0, inverse + exponential, 1.0), dtype=np.float64)


def _simple_printed(m: FloatArray, p: FloatArray, beta: float) -> FloatArray:
    b = _betas(beta, LARGEST_BETA_COROLLARY, "Corollary 3.18")
    return _simple(m, p, b, 6 * b**2)


def _simple_corrected(m: FloatArray, p: FloatArray, beta: float) -> FloatArray:
    b = _betas(beta, LARGEST_BETA_COROLLARY, "Corollary 3.18")
    return _simple(m, p, b, np.asarray(6.0))


def _simple(m: FloatArray, p: FloatArray, b: FloatArray, factor: FloatArray) -> FloatArray:
    visited = np.where(p > 0, p, 1.0)
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
    success = _probabilities(p)
    if success.ndim != 1:
        raise ValueError(f"p must have one entry per state, got shape {success.shape}")
    w = check.weight_vector("weights", weights, success.size)
    c, b = check.positive("constant", constant), check.positive("beta", beta)
    terms = term(_trials(m)[..., None], success, b)
    return np.asarray(c**2 * (terms @ w), dtype=np.float64)


def _weighted(
    p: ArrayLike, weights: ArrayLike, constant: float
) -> tuple[FloatArray, FloatArray, float]:
    """p and w of the states with positive weight; each of them can be visited."""
    success = _probabilities(p)
    if success.ndim != 1:
        raise ValueError(f"p must have one entry per state, got shape {success.shape}")
    w = check.weight_vector("weights", weights, success.size)
    c = check.positive("constant", constant)
    counted = w > 0
    if (success[counted] == 0).any():
        s = int(np.flatnonzero(counted & (success == 0))[0])
        raise ValueError(
            f"state {s} has weight {w[s]:g} and is never visited (p = 0): "
            "the excess risk does not vanish"
        )
    return success[counted], w[counted], c


def _log_moment(p: FloatArray, beta: FloatArray | float) -> FloatArray:
    """ln E[e^{-beta B_{1,p}}] = ln(1 - (1 - e^{-beta}) p); p > 0."""
    b = np.asarray(beta, dtype=np.float64)
    with np.errstate(divide="ignore"):  # p = 1 and a large beta: replaced below
        inside = np.log1p(np.expm1(-b) * p)
    return np.asarray(np.where(p == 1, -b, inside), dtype=np.float64)


def _shifted_two(m: FloatArray, p: FloatArray) -> FloatArray:
    """E[1/((B+1)(B+2)); B >= 1] = P[B_{m+2} >= 3] / (p^2 (m+1)(m+2))."""
    at_least_three = betainc(3.0, m, p)  # P[B_{m+2} >= 3] = I_p(3, m)
    return np.asarray(at_least_three / (p**2 * (m + 1) * (m + 2)), dtype=np.float64)


def _positive_part(m: FloatArray, p: FloatArray, beta: FloatArray | None) -> FloatArray:
    """E[h(B); B >= 1], or E[B^{-2}; B >= 1] without beta; p > 0, equal shapes.

    h(n) <= n^{-2} + e^beta e^{-beta n}. The first part is concentrated around mp, the
    second around mp', p' = p e^{-beta} / (1 - (1 - e^{-beta}) p), the mean of the
    tilted binomial. Both neighbourhoods are summed, ragged, block by block.
    """
    trials, success = m.ravel(), p.ravel()
    low, high = _neighbourhood(trials, success)
    tilt = None if beta is None else beta.ravel()
    if tilt is not None:
        log_moment = _log_moment(success, tilt)
        tilted = np.minimum(success * np.exp(-tilt - log_moment), 1.0)
        other_low, other_high = _neighbourhood(trials, tilted)
        # for beta >= 2 the exponential part never exceeds n^{-2}
        use = tilt < 2
        other_low = np.where(use, np.minimum(other_low, low), low)
        other_high = np.where(use, other_high, low - 1)
        apart = other_high < low
        low = np.where(apart, low, other_low)
        high = np.maximum(high, other_high)
        # a second range where the two neighbourhoods do not meet; else empty
        starts = np.stack([low, other_low], axis=1)
        stops = np.stack([high, np.where(apart, other_high, other_low - 1)], axis=1)
    else:
        starts, stops = low[:, None], high[:, None]
    lengths = (stops - starts + 1).astype(np.int64)
    out = np.empty(trials.size)
    per_setting = lengths.sum(axis=1)
    # settings of about _BLOCK terms together
    block = np.cumsum(per_setting) // _BLOCK
    for part in np.split(np.arange(trials.size), np.flatnonzero(np.diff(block)) + 1):
        owner = np.repeat(part, per_setting[part])
        first, size = starts[part].ravel(), lengths[part].ravel()
        begins = np.cumsum(size) - size
        n = np.repeat(first - begins, size) + np.arange(int(size.sum()))
        value = n**-2.0
        if tilt is not None:
            value = np.maximum(value, np.exp(-tilt[owner] * (n - 1)))
        mass = stats.binom.pmf(n, trials[owner], success[owner]) * value
        out[part] = np.bincount(owner - part[0], weights=mass, minlength=part.size)
    return out.reshape(m.shape)


def _neighbourhood(m: FloatArray, p: FloatArray) -> tuple[FloatArray, FloatArray]:
    """First and last n >= 1 outside of which Binomial(m, p) has mass below 2e-16.

    Bernstein: P[|B - mp| > t] <= 2 exp(-t^2 / (2 (v + t/3))), v = mp(1 - p); the
    right side is 2 e^{-37} for t = 37/3 + sqrt((37/3)^2 + 74 v).
    """
    mean = m * p
    t = 37 / 3 + np.sqrt((37 / 3) ** 2 + 74 * mean * (1 - p))
    return np.maximum(np.floor(mean - t), 1.0), np.minimum(np.ceil(mean + t), m)


def _decay_and_end(b: ArrayLike, a: ArrayLike) -> tuple[FloatArray, FloatArray]:
    decay, end = check.finite_array("b", b), check.finite_array("a", a)
    if (decay <= 0).any():
        raise ValueError(f"b must be positive, got {decay.min()}")
    if (end < 1).any():
        raise ValueError(f"a must be at least 1, got {end.min()}")
    return decay, end


def _trials(m: ArrayLike) -> FloatArray:
    trials = check.finite_array("m", m)
    if (trials < 1).any() or (trials != np.floor(trials)).any():
        raise ValueError("m must hold whole numbers of trajectories, at least 1")
    return trials


def _visits(visits: ArrayLike) -> FloatArray:
    n = check.finite_array("visits", visits)
    if (n < 0).any() or (n != np.floor(n)).any():
        raise ValueError("visits must hold whole numbers, at least 0")
    return n


def _probabilities(p: ArrayLike) -> FloatArray:
    success = check.finite_array("p", p)
    if (success < 0).any() or (success > 1).any():
        raise ValueError(f"p must lie in [0, 1], got {success.min()} .. {success.max()}")
    if ((success > 0) & (success < SMALLEST_PROBABILITY)).any():
        raise ValueError(
            f"a positive p must be at least {SMALLEST_PROBABILITY:g}: its powers vanish"
        )
    return success


def _successes(p: ArrayLike) -> FloatArray:
    success = _probabilities(p)
    if (success == 0).any():
        raise ValueError("p must be positive: with p = 0 the binomial variable is never above 0")
    return success


def _betas(beta: ArrayLike, largest: float | None = None, statement: str = "") -> FloatArray:
    b = check.positive_array("beta", beta)
    if largest is not None and (b > largest).any():
        raise ValueError(f"{statement} is stated for beta <= {largest:g}, got {b.max()}")
    return b


def _parameters(name: str, values: ArrayLike, phi: FloatArray) -> FloatArray:
    x = check.finite_array(name, values)
    if x.ndim == 0 or x.shape[-1] != phi.shape[1]:
        raise ValueError(f"{name} must have {phi.shape[1]} entries in the last axis, got {x.shape}")
    return x
