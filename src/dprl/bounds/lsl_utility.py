r"""Utility of DP-LSL: the expected excess risk of its noise (thesis, section 3.7).

Symbols: n_s = |X_s| visit counts of m trajectories, rho public weights, Phi (N, d) features
with rows phi_s, lambda the ridge, F the bound on the returns, alpha and beta the constants
of Lemma 3.1, and ::

    G        = ||Phi||^2 ||rho||_inf^2,
    c        = ||Phi|| ||rho||_inf / sqrt(2 lambda),          so 2 c^2 = G / lambda,
    psi      = max_k e^{-k beta} (c sqrt(sum_s rho_s min(n_s + k, m)) + ||rho||_2)^2,
    sigma^2  = C_lambda^2 psi.

=============  =======================================================================
3.20           expected excess risk for given counts: an identity, right as printed
display        bound on psi before Lemma 3.21: the printed exponent is twice too large
3.21           maximum of e^{-rate x} (a + x): the printed cases are the wrong way round
(3.56)         that maximum for visit counts: the printed bound fails for 0 < n < 1/(2 beta)
3.22           moments of the counts, right as printed
3.23           bound on the expected excess risk: false as printed, because of the above
3.24           its order, which survives
=============  =======================================================================

What is false here is a bound on the utility. The privacy of DP-LSL does not depend on it.

The corrected (3.56) writes, for a rate r > 0, ::

    tau = max(r, 1/m),    kappa = e^{-r / tau} / tau,                               (1)
    max_{k >= 0} e^{-k r} min(n + k, m) <= n + kappa e^{-tau n},   0 <= n <= m.     (2)

kappa is the left-hand side's largest value at n = 0; it is 1/(e r) as soon as m >= 1/r.
Proof of (2): by the corrected Lemma 3.21 the left side minus n is at most a convex function
of n on [0, 1/tau] with the values kappa and 0 at the ends, and 0 beyond; so it lies below
the chord kappa (1 - tau n)_+, and (1 - t)_+ <= e^{-t}.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy import special

from dprl import _validation as check
from dprl._validation import FloatArray
from dprl.evaluation import regression_weights
from dprl.features import feature_matrix, operator_norm
from dprl.private_evaluation import lsl_coefficient, lsl_smooth_bound, lsl_step_factor
from dprl.private_evaluation.common import integers_around

#: Numbers that one chunk of :func:`expected_excess_risk` may hold in memory.
_CHUNK = 4_000_000


# -- Lemma 3.20 and the constant ----------------------------------------------------------


def lemma_3_20(
    counts: ArrayLike,
    variance: ArrayLike,
    n_trajectories: int,
    features: ArrayLike,
    weights: ArrayLike,
    ridge: float,
) -> FloatArray:
    r"""Expected excess ridge risk over the noise, for given counts: thesis, Lemma 3.20. ::

        E_eta[J(theta + eta) - J(theta)]
            = (lambda d / (2 m) + (1/m) sum_s rho_s ||phi_s||^2 n_s) sigma^2,   (3.54)

    for eta ~ N(0, sigma^2 I_d) and theta the minimiser. An identity: at the minimum only
    the quadratic form of eta remains, and this is its trace times sigma^2.

    Parameters
    ----------
    counts : array_like, shape (..., N)
        Visit counts n in [0, m]. *Not private* if they come from data.
    variance : array_like, shape (...)
        sigma^2 >= 0.
    n_trajectories : int
        m >= 1.
    features : array_like, shape (N, d)
        Phi.
    weights : array_like, shape (N,)
        rho in [0, 1].
    ridge : float
        lambda > 0.

    Returns
    -------
    ndarray, shape (...)

    Examples
    --------
    >>> float(lemma_3_20([4, 2], 0.5, 4, [[1.0], [1.0]], [1.0, 1.0], ridge=8.0))
    1.25
    """
    m = check.whole("n_trajectories", n_trajectories)
    phi, rho = _regression(features, weights)
    n = _counts(counts, m, phi.shape[0])
    lam = check.positive("ridge", ridge)
    s2 = check.array_from("variance", variance)
    trace = lam * phi.shape[1] / (2 * m) + n @ (rho * (phi**2).sum(axis=1)) / m  # (3.54)
    out: FloatArray = trace * s2
    return out


def section_3_7_constant_printed(
    features: ArrayLike, weights: ArrayLike, ridge: float, *, f_max: float
) -> float:
    r"""C_lambda as section 3.7 first prints it, after Lemma 3.20.

    2 F ||Phi|| / (lambda - ||Phi||^2 ||rho||_inf). It lacks the factor alpha, so that
    C_lambda sqrt(psi) is not the noise of Algorithm 2. Theorem 3.23 has the factor.

    Parameters
    ----------
    features : array_like, shape (N, d)
        Phi.
    weights : array_like, shape (N,)
        rho in [0, 1].
    ridge : float
        lambda > ||Phi||^2 ||rho||_inf.
    f_max : float
        F > 0; R_max / (1 - gamma) in the thesis.

    Raises
    ------
    ValueError
        If the ridge is not above ||Phi||^2 ||rho||_inf.

    Examples
    --------
    >>> section_3_7_constant_printed([[1.0]], [1.0], 3.0, f_max=1.0)
    1.0
    """
    return lsl_step_factor(features, weights, ridge, size=f_max)


def section_3_7_constant_corrected(
    features: ArrayLike, weights: ArrayLike, ridge: float, *, f_max: float, alpha: float
) -> float:
    r"""C_lambda with its factor alpha, as Theorem 3.23 prints it: sigma = C_lambda sqrt(psi).

    Parameters and errors as :func:`section_3_7_constant_printed`; ``alpha`` > 0 is the
    constant of Lemma 3.1.

    Examples
    --------
    >>> section_3_7_constant_corrected([[1.0]], [1.0], 3.0, f_max=1.0, alpha=122.0)
    122.0
    """
    a = check.positive("alpha", alpha)
    return a * section_3_7_constant_printed(features, weights, ridge, f_max=f_max)


def expected_excess_risk(
    counts: ArrayLike,
    probabilities: ArrayLike,
    n_trajectories: int,
    features: ArrayLike,
    weights: ArrayLike,
    ridge: float,
    *,
    beta: float,
    noise_constant: float,
) -> FloatArray:
    r"""E_{X, eta}[J(theta_hat) - J(theta)] of DP-LSL, exactly, by summing over the counts.

    Lemma 3.20 with sigma^2 = C_lambda^2 psi and psi computed exactly. The left-hand side
    of Theorem 3.23. Returns play no role in it, only counts do. O(K N^2) for K count
    vectors, in chunks of bounded memory.

    Parameters
    ----------
    counts : array_like, shape (K, N)
        The count vectors that can occur.
    probabilities : array_like, shape (..., K)
        Their probabilities, >= 0, summing to one within 1e-9. Leading axes: several laws.
    n_trajectories, features, weights, ridge
        As in :func:`lemma_3_20`.
    beta : float
        > 0, the smoothness of psi.
    noise_constant : float
        C_lambda > 0.

    Returns
    -------
    ndarray, shape (...)

    Examples
    --------
    One state, which one trajectory visits with probability 0.3:

    >>> float(expected_excess_risk([[0], [1]], [0.7, 0.3], 1, [[1.0]], [1.0], 2.0,
    ...                            beta=3.0, noise_constant=1.0).round(6))
    2.05
    """
    m = check.whole("n_trajectories", n_trajectories)
    phi, rho = _regression(features, weights)
    n = _counts(counts, m, phi.shape[0])
    if n.ndim != 2:
        raise ValueError(f"counts must have shape (K, N), got {n.shape}")
    lam, b = check.positive("ridge", ridge), check.positive("beta", beta)
    c2 = check.positive("noise_constant", noise_constant) ** 2
    p = check.finite_array("probabilities", probabilities)
    if p.ndim == 0 or p.shape[-1] != n.shape[0]:
        raise ValueError(f"probabilities must have {n.shape[0]} entries, got shape {p.shape}")
    p = check.normalised("probabilities", probabilities, p)
    if (p < 0).any() or (np.abs(p.sum(axis=-1) - 1) > 1e-9).any():
        raise ValueError("probabilities must be non-negative and sum to one")
    coefficient = lsl_coefficient(phi, rho, lam)
    rows = max(1, _CHUNK // ((2 * n.shape[1] + 1) * n.shape[1]))
    risk = np.empty(n.shape[0])
    for first in range(0, n.shape[0], rows):
        part = slice(first, first + rows)
        psi, _ = lsl_smooth_bound(n[part], rho, m, coefficient, b)
        risk[part] = lemma_3_20(n[part], c2 * psi, m, phi, rho, lam)
    return p @ risk


# -- bounds on psi ------------------------------------------------------------------------


def largest_discounted_count(counts: ArrayLike, rate: ArrayLike, n_trajectories: int) -> FloatArray:
    r"""max over integers k >= 0 of e^{-rate k} min(n + k, m), exactly, elementwise.

    The left-hand side of (3.56), with rate 2 beta as printed and beta as it should be. Its
    logarithm is concave in k, so the maximum lies beside the real maximiser.

    Parameters
    ----------
    counts : array_like, any shape
        n in [0, m].
    rate : array_like, broadcast against the counts
        > 0.
    n_trajectories : int
        m >= 1.

    Examples
    --------
    >>> float(largest_discounted_count(20, 0.01, 10_000).round(4))
    44.9329
    """
    m = check.whole("n_trajectories", n_trajectories)
    n = _counts(counts, m)
    r = check.positive_array("rate", rate)
    n, r = np.broadcast_arrays(n, r)
    best = np.clip(1 / r - n, 0, m - n)[..., None]
    k = integers_around(best, 0, m)
    terms = np.exp(-r[..., None] * k) * np.minimum(n[..., None] + k, m)
    out: FloatArray = terms.max(axis=-1)
    return out


def psi_bound_printed(
    counts: ArrayLike, weights: ArrayLike, n_trajectories: int, coefficient: float, beta: float
) -> FloatArray:
    r"""The printed bound on psi, unnumbered display before Lemma 3.21. ::

        2 ||rho||_2^2 + 2 c^2 sum_s rho_s max_k e^{-2 k beta} min(n_s + k, m).

    Not a bound: psi has e^{-k beta} in front of a square, and (a + b)^2 <= 2 a^2 + 2 b^2
    leaves it there.

    Parameters
    ----------
    counts : array_like, shape (..., N)
        n in [0, m].
    weights : array_like, shape (N,)
        rho in [0, 1].
    n_trajectories : int
        m >= 1.
    coefficient : float
        c = ||Phi|| ||rho||_inf / sqrt(2 lambda) > 0.
    beta : float
        > 0.

    Returns
    -------
    ndarray, shape (...)

    Examples
    --------
    >>> float(psi_bound_printed([20], [1.0], 10_000, 0.5, 5.8145e-4).round(1))
    163.9
    """
    b = check.positive("beta", beta)
    return _psi_bound(counts, weights, n_trajectories, coefficient, 2 * b)


def psi_bound_corrected(
    counts: ArrayLike, weights: ArrayLike, n_trajectories: int, coefficient: float, beta: float
) -> FloatArray:
    r"""The display before Lemma 3.21 with the exponent that psi has. ::

        psi <= 2 ||rho||_2^2 + 2 c^2 sum_s rho_s max_k e^{-k beta} min(n_s + k, m).

    Parameters and return value as :func:`psi_bound_printed`.

    Examples
    --------
    >>> float(psi_bound_corrected([20], [1.0], 10_000, 0.5, 5.8145e-4).round(1))
    322.0
    """
    b = check.positive("beta", beta)
    return _psi_bound(counts, weights, n_trajectories, coefficient, b)


def lemma_3_21_printed(a: ArrayLike, b: ArrayLike, m: ArrayLike) -> FloatArray:
    r"""Lemma 3.21 as printed: "max over 0 <= x <= m - a of e^{-2 b x} (a + x)". ::

        a                      if b < a/2
        m e^{-2 b (m - a)}     if b > m/2
        e^{2 a b} / (2 e b)    otherwise

    False: the conditions should compare b with 1/(2 a) and 1/(2 m), the other way round.

    Parameters
    ----------
    a, b, m : array_like, broadcast against each other
        0 <= a <= m, b > 0, m > 0.

    Returns
    -------
    ndarray
        inf where e^{2 a b} is beyond a double.

    Examples
    --------
    >>> float(lemma_3_21_printed(10, 0.01, 1000))
    10.0
    """
    a_, b_, m_ = _lemma_3_21_arguments(a, b, m)
    with np.errstate(over="ignore"):
        otherwise = np.exp(2 * a_ * b_ - 1) / (2 * b_)
    return np.where(
        b_ < a_ / 2, a_, np.where(b_ > m_ / 2, m_ * np.exp(-2 * b_ * (m_ - a_)), otherwise)
    )


def lemma_3_21_corrected(a: ArrayLike, rate: ArrayLike, m: ArrayLike) -> FloatArray:
    r"""Lemma 3.21 corrected, for any rate: max over 0 <= x <= m - a of e^{-rate x} (a + x). ::

        a                       if rate >= 1/a
        m e^{-rate (m - a)}     if rate <= 1/m
        e^{a rate - 1} / rate   otherwise

    The derivative e^{-rate x} (1 - rate (a + x)) changes its sign once, so the maximiser is
    1/rate - a, clipped to [0, m - a]; that one formula is what is computed here. The printed
    lemma has rate = 2 b.

    Parameters
    ----------
    a, rate, m : array_like, broadcast against each other
        0 <= a <= m, rate > 0, m > 0.

    Examples
    --------
    >>> float(lemma_3_21_corrected(10, 2 * 0.01, 1000).round(2))
    22.47
    """
    a_, r, m_ = _lemma_3_21_arguments(a, rate, m, "rate")
    x = np.clip(1 / r - a_, 0, m_ - a_)
    return np.exp(-r * x) * (a_ + x)


def equation_3_56_printed(counts: ArrayLike, beta: ArrayLike) -> FloatArray:
    r"""(3.56) as printed: max_k e^{-2 k beta} min(n + k, m) <= n + 1{n = 0} / (2 e beta).

    For integer n and 2 beta < 1 this equals the expression that the thesis prints before
    it. False for every 1 <= n < min(m, 1/(e^{2 beta} - 1)): there already k = 1 gives more
    than n. True for n = 0 and for the larger n.

    Parameters
    ----------
    counts, beta : array_like, broadcast against each other
        n >= 0; 0 < beta < 1/2.

    Examples
    --------
    >>> equation_3_56_printed([0, 20], 0.01).round(4).tolist()
    [18.394, 20.0]
    """
    n = _counts(counts)
    b = check.positive_array("beta", beta)
    if (b >= 0.5).any():
        raise ValueError(f"(3.56) assumes beta < 1/2, got {b.max()}")
    out: FloatArray = n + (n == 0) / (2 * math.e * b)
    return out


def equation_3_56_corrected(
    counts: ArrayLike, rate: ArrayLike, n_trajectories: ArrayLike
) -> FloatArray:
    r"""(3.56) corrected: n + kappa e^{-tau n}, equations (1) and (2) of this module.

    An upper bound of max_k e^{-rate k} min(n + k, m) for every 0 <= n <= m and rate > 0.
    DP-LSL smooths sigma^2, so rate = beta; it would be 2 beta if sigma were smoothed.

    Parameters
    ----------
    counts, rate, n_trajectories : array_like, broadcast against each other
        0 <= n <= m, rate > 0, m >= 1.

    Examples
    --------
    >>> equation_3_56_corrected([0, 20], 0.02, 1000).round(4).tolist()
    [18.394, 32.3298]
    """
    m = _whole("n_trajectories", n_trajectories)
    n = _counts(counts, m)
    tau, kappa = smoothing_excess(rate, m)
    return n + kappa * np.exp(-tau * n)  # (2)


def smoothing_excess(rate: ArrayLike, n_trajectories: ArrayLike) -> tuple[FloatArray, FloatArray]:
    r"""tau = max(rate, 1/m) and kappa = e^{-rate/tau}/tau, equation (1) of this module.

    kappa is what smoothing adds to a state that nobody visited, tau how fast this fades
    with the number of visits.

    Parameters
    ----------
    rate, n_trajectories : array_like, broadcast against each other
        rate > 0, m >= 1.

    Returns
    -------
    tau, kappa : ndarray

    Examples
    --------
    >>> tau, kappa = smoothing_excess(0.001, [100, 5000])
    >>> tau.tolist(), kappa.round(2).tolist()
    ([0.01, 0.001], [90.48, 367.88])
    """
    r, m = np.broadcast_arrays(
        check.positive_array("rate", rate), _whole("n_trajectories", n_trajectories)
    )
    tau = np.maximum(r, 1 / m)  # (1)
    return tau, np.exp(-r / tau) / tau


# -- Lemma 3.22 ---------------------------------------------------------------------------


class VisitMoments(NamedTuple):
    """The five expectations of Lemma 3.22, in its order.

    Attributes
    ----------
    mean, unvisited, square : ndarray, shape (..., N)
        E[n_s], E[1{n_s = 0}] and E[n_s^2].
    product, count_where_unvisited : ndarray, shape (..., N, N)
        E[n_s n_s'] and E[n_s 1{n_s' = 0}]; s is the last axis but one.
    """

    mean: FloatArray
    unvisited: FloatArray
    square: FloatArray
    product: FloatArray
    count_where_unvisited: FloatArray


def nested_visits(visit_probabilities: ArrayLike) -> FloatArray:
    r"""P[s in x and s' in x] where the visit events are nested: min(p_s, p_s').

    So it is on the chain: a trajectory visits s exactly if it started at or before s.

    Parameters
    ----------
    visit_probabilities : array_like, shape (..., N)
        p_s in [0, 1].

    Returns
    -------
    ndarray, shape (..., N, N)

    Examples
    --------
    >>> nested_visits([0.25, 1.0]).tolist()
    [[0.25, 0.25], [0.25, 1.0]]
    """
    p = check.finite_array("visit_probabilities", visit_probabilities)
    if p.ndim == 0 or p.shape[-1] == 0:
        raise ValueError(f"visit_probabilities must have one entry per state, got shape {p.shape}")
    if (p < 0).any() or (p > 1).any():
        raise ValueError("visit_probabilities must lie in [0, 1]")
    return np.minimum(p[..., :, None], p[..., None, :])


def lemma_3_22(joint: ArrayLike, n_trajectories: ArrayLike) -> VisitMoments:
    r"""Moments of the visit counts of m independent trajectories: thesis, Lemma 3.22.

    With p_s = P[s in x], p_{s,s'} = P[s in x and s' in x] and pbar_{s,s'} = p_s - p_{s,s'}:

    1. E[n_s]                = m p_s
    2. E[1{n_s = 0}]         = (1 - p_s)^m
    3. E[n_s^2]              = m^2 p_s^2 + m (p_s - p_s^2)
    4. E[n_s n_s']           = m (m - 1) p_s p_s' + m p_{s,s'}
    5. E[n_s 1{n_s' = 0}]    = m pbar_{s,s'} (1 - p_s')^{m-1}

    The last two hold for s = s' as well.

    Parameters
    ----------
    joint : array_like, shape (..., N, N)
        p_{s,s'}, symmetric; p_s on the diagonal.
    n_trajectories : array_like, broadcast against the leading axes
        m >= 1.

    Returns
    -------
    VisitMoments

    Raises
    ------
    ValueError
        If the matrix is not symmetric, leaves [0, 1] or the bounds
        p_s + p_s' - 1 <= p_{s,s'} <= min(p_s, p_s').

    Examples
    --------
    >>> moments = lemma_3_22([[0.5, 0.25], [0.25, 0.5]], 2)
    >>> moments.mean.tolist(), moments.product.tolist()
    ([1.0, 1.0], [[1.5, 1.0], [1.0, 1.5]])
    """
    both = _joint(joint)
    m = _whole("n_trajectories", n_trajectories)
    p, first, second = _marginals(both)
    mv, mm = m[..., None], m[..., None, None]
    return VisitMoments(
        mv * p,
        _power(-p, mv),
        mv**2 * p**2 + mv * (p - p**2),
        mm * (mm - 1) * first * second + mm * both,
        mm * (first - both) * _power(-second, mm - 1),
    )


def _power(x: FloatArray, exponent: FloatArray) -> FloatArray:
    """(1 + x)^exponent for x >= -1: a small x is not rounded away in 1 + x."""
    return np.exp(special.xlog1py(exponent, x))


def discounted_moments(
    joint: ArrayLike, rate: ArrayLike, n_trajectories: ArrayLike
) -> tuple[FloatArray, FloatArray]:
    r"""What replaces items 2 and 5 of Lemma 3.22 in the corrected Theorem 3.23.

    With q_s = 1 - (1 - e^{-rate}) p_s:

    2*. E[e^{-rate n_s}]        = q_s^m
    5*. E[n_s e^{-rate n_s'}]   = m (pbar_{s,s'} + e^{-rate} p_{s,s'}) q_s'^{m-1}

    As the rate grows they become items 2 and 5.

    Parameters
    ----------
    joint : array_like, shape (..., N, N)
        As in :func:`lemma_3_22`.
    rate, n_trajectories : array_like, broadcast against the leading axes
        rate > 0, m >= 1.

    Returns
    -------
    decay : ndarray, shape (..., N)
    count_decay : ndarray, shape (..., N, N)

    Examples
    --------
    >>> decay, count_decay = discounted_moments([[1.0]], 0.5, 3)
    >>> bool(np.isclose(count_decay[0, 0], 3 * decay[0]))
    True
    """
    both = _joint(joint)
    r = check.positive_array("rate", rate)[..., None]
    m = _whole("n_trajectories", n_trajectories)[..., None]
    p, first, _ = _marginals(both)
    less = np.expm1(-r) * p  # q - 1
    count_decay = (
        m[..., None]
        * ((first - both) + np.exp(-r[..., None]) * both)
        * _power(less, m - 1)[..., None, :]
    )
    return _power(less, m), count_decay


# -- Theorem 3.23 -------------------------------------------------------------------------


def theorem_3_23_printed(
    joint: ArrayLike,
    n_trajectories: ArrayLike,
    features: ArrayLike,
    weights: ArrayLike,
    ridge: ArrayLike,
    *,
    beta: ArrayLike,
    noise_constant: ArrayLike = 1.0,
) -> FloatArray:
    r"""Theorem 3.23 as printed: "bound on E_{X, eta}[J(theta_hat) - J(theta)] of DP-LSL".

    C_lambda^2 times ::

        sum_s rho_s p_s (d G / 2 + 2 ||rho||^2 ||phi_s||^2) + lambda d ||rho||^2 / m
        + d G / (4 e beta m) sum_s rho_s (1 - p_s)^m
        + (m G / lambda) sum_{s,s'} rho_s rho_s' p_s p_s' ||phi_s||^2
        + (G / lambda) [ sum_s rho_s^2 ||phi_s||^2 (p_s - p_s^2) + sum_{s != s'} rho_s rho_s'
          ||phi_s||^2 (p_{s,s'} - p_s p_s' + pbar_{s,s'} (1 - p_s')^{m-1} / (2 e beta)) ].

    (The brackets of the last line are set as the printed proof has them.) Not a bound, see
    :func:`theorem_3_23_corrected`. It does hold if lambda is at least
    :func:`theorem_3_23_safe_ridge`, or if all counts are surely at least 1/beta.

    Parameters
    ----------
    joint : array_like, shape (..., N, N)
        Probabilities p_{s,s'} that a trajectory visits both, p_s on the diagonal.
    n_trajectories : array_like, broadcast against the leading axes
        m >= 1.
    features : array_like, shape (N, d)
        Phi.
    weights : array_like, shape (N,)
        rho in [0, 1].
    ridge : array_like, broadcast
        lambda > 0; the algorithm needs more, see :func:`section_3_7_constant_corrected`.
    beta : array_like, broadcast
        0 < beta < 1/2.
    noise_constant : array_like, broadcast
        C_lambda > 0.

    Returns
    -------
    ndarray, shape (...)

    Examples
    --------
    >>> float(theorem_3_23_printed([[0.5]], 4, [[1.0]], [1.0], 2.0, beta=0.1).round(4))
    2.3894
    """
    t = _theorem_arguments(joint, n_trajectories, features, weights, ridge, beta, noise_constant)
    if (t.beta >= 0.5).any():
        raise ValueError(f"the printed theorem assumes beta < 1/2, got {t.beta.max()}")
    moments = lemma_3_22(t.joint, t.m)
    none = (t.rho * moments.unvisited).sum(axis=-1)
    # pbar vanishes for s = s': the whole sum is the sum over s != s'
    rare = _double_sum(t, moments.count_where_unvisited / t.m[..., None, None])
    excess = 1 / (2 * math.e * t.beta)
    return _assemble(t, none * excess, rare * excess)


def theorem_3_23_corrected(
    joint: ArrayLike,
    n_trajectories: ArrayLike,
    features: ArrayLike,
    weights: ArrayLike,
    ridge: ArrayLike,
    *,
    beta: ArrayLike,
    noise_constant: ArrayLike = 1.0,
) -> FloatArray:
    r"""Theorem 3.23 corrected: a bound on E_{X, eta}[J(theta_hat) - J(theta)] of DP-LSL.

    With tau = max(beta, 1/m), kappa = e^{-beta/tau}/tau, q_s = 1 - (1 - e^{-tau}) p_s and
    double sums over all s, s', C_lambda^2 times ::

        sum_s rho_s p_s (d G / 2 + 2 ||rho||^2 ||phi_s||^2) + lambda d ||rho||^2 / m
        + d G kappa / (2 m) sum_s rho_s q_s^m
        + (m G / lambda) sum_{s,s'} rho_s rho_s' p_s p_s' ||phi_s||^2
        + (G / lambda) sum_{s,s'} rho_s rho_s' ||phi_s||^2
          [ p_{s,s'} - p_s p_s' + kappa (pbar_{s,s'} + e^{-tau} p_{s,s'}) q_s'^{m-1} ].

    Holds for every beta > 0 and lambda > 0, with whatever C_lambda the noise has:
    sigma^2 = C_lambda^2 psi. For m >= 1/beta, tau = beta and kappa = 1/(e beta).

    *Proof.* Lemma 3.20, :func:`psi_bound_corrected` and equation (2) of this module bound
    the left side by C_lambda^2 times the expectation of (lambda d / 2 m + sum_s rho_s
    ||phi_s||^2 n_s / m) (2 ||rho||^2 + (G / lambda) sum_s' rho_s' (n_s' + kappa e^{-tau
    n_s'})). Insert items 1 and 4 of Lemma 3.22 and :func:`discounted_moments`.

    Parameters and return value as :func:`theorem_3_23_printed`, with any beta > 0.

    Examples
    --------
    >>> float(theorem_3_23_corrected([[0.5]], 4, [[1.0]], [1.0], 2.0, beta=0.1).round(4))
    2.952
    """
    t = _theorem_arguments(joint, n_trajectories, features, weights, ridge, beta, noise_constant)
    tau, kappa = smoothing_excess(t.beta, t.m)
    decay, count_decay = discounted_moments(t.joint, tau, t.m)
    none = (t.rho * decay).sum(axis=-1)
    rare = _double_sum(t, count_decay / t.m[..., None, None])
    return _assemble(t, none * kappa, rare * kappa)


def theorem_3_23_safe_ridge(features: ArrayLike, weights: ArrayLike, n_trajectories: int) -> float:
    r"""A ridge from which the printed Theorem 3.23 holds, whatever beta and the visits. ::

        (3/2 + sqrt 2) m ||Phi||^2 ||rho||_inf^2 ||rho||_1 / ||rho||_2^2,

    This is about 2.914 m for tabular features and rho = 1. From there on c^2 m ||rho||_1 is at most
    (sqrt 2 - 1)^2 ||rho||_2^2, so psi <= 2 ||rho||_2^2, and the printed bound on psi holds
    by its first term alone.

    Parameters
    ----------
    features : array_like, shape (N, d)
        Phi.
    weights : array_like, shape (N,)
        rho in [0, 1].
    n_trajectories : int
        m >= 1.

    Examples
    --------
    >>> round(theorem_3_23_safe_ridge(np.eye(40), np.ones(40), 1000), 1)
    2914.2
    """
    m = check.whole("n_trajectories", n_trajectories)
    phi, rho = _regression(features, weights)
    g = operator_norm(phi) ** 2 * float(rho.max()) ** 2
    return float((1.5 + np.sqrt(2)) * m * g * rho.sum() / (rho @ rho))


# -- Corollary 3.24 -----------------------------------------------------------------------


class RateConstants(NamedTuple):
    """Constants of the three terms of Corollary 3.24.

    Attributes
    ----------
    first, second, third : ndarray, shape (...)
        K_1 of 1/(lambda m), K_2 of 1/lambda^2, K_3 of m/lambda^3.
    """

    first: FloatArray
    second: FloatArray
    third: FloatArray


def corollary_3_24(
    n_trajectories: ArrayLike,
    ridge: ArrayLike,
    constants: tuple[ArrayLike, ArrayLike, ArrayLike] = (1.0, 1.0, 1.0),
) -> FloatArray:
    r"""K_1/(lambda m) + K_2/lambda^2 + K_3 m/lambda^3: thesis, Corollary 3.24.

    The printed corollary is the order, so its constants are open: with those of
    :func:`corollary_3_24_constants` this is an upper bound.

    Parameters
    ----------
    n_trajectories, ridge : array_like, broadcast against each other
        m >= 1, lambda > 0.
    constants : three array_likes
        K_1, K_2, K_3 >= 0.

    Examples
    --------
    >>> float(corollary_3_24(4, 2.0))
    0.875
    """
    m, lam = _whole("n_trajectories", n_trajectories), check.positive_array("ridge", ridge)
    if len(constants) != 3:
        raise ValueError(f"constants must be K_1, K_2, K_3, got {len(constants)}")
    k1, k2, k3 = (check.finite_array("constants", k) for k in constants)
    if min(k.min() for k in (k1, k2, k3)) < 0:
        raise ValueError("constants must not be negative")
    return k1 / (lam * m) + k2 / lam**2 + k3 * m / lam**3  # (3.57)


def corollary_3_24_constants(
    visit_probabilities: ArrayLike,
    features: ArrayLike,
    weights: ArrayLike,
    *,
    f_max: float,
    alpha: float,
    beta: float,
) -> RateConstants:
    r"""Constants with which Corollary 3.24 holds for all m >= 1, lambda >= 2 ||Phi||^2 ||rho||_inf.

    With A = (4 alpha F ||Phi||)^2 and S = sum_s rho_s p_s ||phi_s||^2, ::

        K_1 = A d ||rho||_2^2
        K_2 = A [ (d G / 2) sum_s rho_s p_s + 2 ||rho||_2^2 S + d G ||rho||_1 / (2 e beta)
                  + ||rho||_inf ||rho||_1 S (1 + 1/(e beta)) / 2 ]
        K_3 = A G S sum_s rho_s p_s.

    From :func:`theorem_3_23_corrected`: lambda - ||Phi||^2 ||rho||_inf >= lambda/2, so
    C_lambda^2 <= A/lambda^2; kappa <= 1/(e beta), q_s <= 1, 1/m <= 1, p_{s,s'} <= p_s and
    G/lambda <= ||rho||_inf/2. They do not depend on m or lambda as long as beta does not.

    Parameters
    ----------
    visit_probabilities : array_like, shape (..., N)
        p_s in [0, 1].
    features : array_like, shape (N, d)
        Phi.
    weights : array_like, shape (N,)
        rho in [0, 1].
    f_max, alpha, beta : float
        F, alpha and beta of Algorithm 2, > 0.

    Returns
    -------
    RateConstants

    Examples
    --------
    >>> k = corollary_3_24_constants([1.0], [[1.0]], [1.0], f_max=1, alpha=0.25, beta=1.0)
    >>> float(k.first), float(k.second.round(4)), float(k.third)
    (1.0, 3.3679, 1.0)
    """
    phi, rho = _regression(features, weights)
    p = _marginals(nested_visits(visit_probabilities))[0]
    if p.shape[-1] != rho.size:
        raise ValueError(f"visit_probabilities must have {rho.size} entries, got shape {p.shape}")
    norm, top = operator_norm(phi), float(rho.max())
    a = (4 * check.positive("alpha", alpha) * check.positive("f_max", f_max) * norm) ** 2
    excess = 1 / (math.e * check.positive("beta", beta))
    d, g, norm2 = phi.shape[1], norm**2 * top**2, float(rho @ rho)
    visits = p @ rho
    size = p @ (rho * (phi**2).sum(axis=1))
    return RateConstants(
        np.asarray(a * d * norm2),
        a
        * (
            d * g / 2 * visits
            + 2 * norm2 * size
            + d * g * rho.sum() * excess / 2
            + top * rho.sum() * size * (1 + excess) / 2
        ),
        a * g * size * visits,
    )


# -- shared -------------------------------------------------------------------------------


class _Setting(NamedTuple):
    """Checked arguments of Theorem 3.23; m, ridge, beta, constant broadcast to one shape."""

    joint: FloatArray
    m: FloatArray
    rho: FloatArray
    lengths: FloatArray  # ||phi_s||^2
    d: int
    g: float
    ridge: FloatArray
    beta: FloatArray
    constant: FloatArray


def _theorem_arguments(
    joint: ArrayLike,
    n_trajectories: ArrayLike,
    features: ArrayLike,
    weights: ArrayLike,
    ridge: ArrayLike,
    beta: ArrayLike,
    noise_constant: ArrayLike,
) -> _Setting:
    phi, rho = _regression(features, weights)
    both = _joint(joint)
    if both.shape[-1] != rho.size:
        raise ValueError(f"joint must have {rho.size} rows, one per state, got shape {both.shape}")
    m, lam, b, c = np.broadcast_arrays(
        _whole("n_trajectories", n_trajectories),
        check.positive_array("ridge", ridge),
        check.positive_array("beta", beta),
        check.positive_array("noise_constant", noise_constant),
    )
    g = operator_norm(phi) ** 2 * float(rho.max()) ** 2
    return _Setting(both, m, rho, (phi**2).sum(axis=1), phi.shape[1], g, lam, b, c)


def _double_sum(t: _Setting, matrix: FloatArray) -> FloatArray:
    """sum_{s,s'} rho_s rho_s' ||phi_s||^2 matrix_{s,s'}."""
    out: FloatArray = np.einsum("s,...st,t->...", t.rho * t.lengths, matrix, t.rho)
    return out


def _assemble(t: _Setting, none: FloatArray, rare: FloatArray) -> FloatArray:
    """The terms that both versions of Theorem 3.23 share, and the two that differ.

    none: sum_s rho_s E[excess_s]; rare: sum rho_s rho_s' ||phi_s||^2 E[n_s excess_s'] / m, where
    excess_s stands behind n_s in (3.56).
    """
    p, first, second = _marginals(t.joint)
    norm2, over = float(t.rho @ t.rho), t.g / t.ridge
    visits = (t.rho * p * (t.d * t.g / 2 + 2 * norm2 * t.lengths)).sum(axis=-1)
    pairs = _double_sum(t, first * second)
    covariance = _double_sum(t, t.joint - first * second)
    out: FloatArray = t.constant**2 * (
        visits
        + t.ridge * t.d * norm2 / t.m
        + t.d * t.g / (2 * t.m) * none
        + t.m * over * pairs
        + over * (covariance + rare)
    )
    return out


def _psi_bound(
    counts: ArrayLike, weights: ArrayLike, n_trajectories: int, coefficient: float, rate: float
) -> FloatArray:
    c = check.positive("coefficient", coefficient)
    v = check.count_array("counts", counts)
    rho = regression_weights(weights, v.shape[-1])
    sums = largest_discounted_count(v, rate, n_trajectories) @ rho
    return 2 * float(rho @ rho) + 2 * c**2 * sums


def _regression(features: ArrayLike, weights: ArrayLike) -> tuple[FloatArray, FloatArray]:
    phi = feature_matrix(features)
    return phi, regression_weights(weights, phi.shape[0])


def _counts(
    counts: ArrayLike, m: FloatArray | int | None = None, n_states: int | None = None
) -> FloatArray:
    n = (
        check.finite_array("counts", counts)
        if n_states is None
        else check.count_array("counts", counts, n_states)
    )
    if (n < 0).any():
        raise ValueError(f"counts must not be negative, got {n.min()}")
    if m is not None and (n > m).any():
        raise ValueError(f"counts must not exceed the trajectories, got {n.max():g}")
    return n


def _lemma_3_21_arguments(
    a: ArrayLike, rate: ArrayLike, m: ArrayLike, name: str = "b"
) -> tuple[FloatArray, FloatArray, FloatArray]:
    a_ = check.finite_array("a", a)
    r, m_ = check.positive_array(name, rate), check.positive_array("m", m)
    if (a_ < 0).any() or (a_ > m_).any():
        raise ValueError("a must lie in [0, m]")
    a_, r, m_ = np.broadcast_arrays(a_, r, m_)
    return a_, r, m_


def _joint(joint: ArrayLike) -> FloatArray:
    both = check.finite_array("joint", joint)
    if both.ndim < 2 or both.shape[-1] != both.shape[-2] or both.shape[-1] == 0:
        raise ValueError(f"joint must have shape (..., N, N), got {both.shape}")
    _, first, second = _marginals(both)
    slack = 1e-12
    if (both != np.swapaxes(both, -1, -2)).any():
        raise ValueError("joint must be symmetric")
    if (both > np.minimum(first, second) + slack).any() or (first > 1 + slack).any():
        raise ValueError("joint must not exceed min(p_s, p_s'), and p_s must not exceed 1")
    if (both < np.maximum(first + second - 1, 0) - slack).any():
        raise ValueError("joint must be at least max(p_s + p_s' - 1, 0)")
    return both


def _marginals(both: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
    """p of shape (..., N), and as rows (s) and columns (s') of a matrix."""
    p = np.diagonal(both, axis1=-2, axis2=-1)
    return p, p[..., :, None], p[..., None, :]


def _whole(name: str, value: ArrayLike) -> FloatArray:
    x = check.finite_array(name, value)
    if (x < 1).any() or (x != np.floor(x)).any():
        raise ValueError(f"{name} must be integers of at least 1, got {x.min()}")
    return x
