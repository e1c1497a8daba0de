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
3.23           bound on the expected excess risk: false as printed, because of (3.56)
3.24           its order, which survives
=============  =======================================================================

What is false here is a bound on the utility. The privacy of DP-LSL does not depend on it. The
bounds on psi and the moments of the counts are in :mod:`dprl.bounds.lsl_visits`. A result has the
shape of the leading axes of its arguments, which broadcast.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from dprl import _validation as check
from dprl._validation import FloatArray
from dprl.bounds.lsl_visits import (
    checked_counts,
    checked_joint,
    discounted_moments,
    lemma_3_22,
    marginals,
    nested_visits,
    smoothing_excess,
)
from dprl.evaluation import regression_weights
from dprl.features import feature_matrix, operator_norm
from dprl.private_evaluation import lsl_coefficient, lsl_smooth_bound, lsl_step_factor

#: Numbers that one chunk of :func:`excess_risk_given_counts` may hold in memory.
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
    """Expected excess ridge risk over the noise, for given counts: thesis, Lemma 3.20. ::

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
    features, weights : array_like, shape (N, d) and (N,)
        Phi, and rho in [0, 1].
    ridge : float
        lambda > 0.

    Examples
    --------
    >>> float(lemma_3_20([4, 2], 0.5, 4, [[1.0], [1.0]], [1.0, 1.0], ridge=8.0))
    1.25
    """
    m = check.whole("n_trajectories", n_trajectories)
    phi, rho = _regression(features, weights)
    n = checked_counts(counts, m, phi.shape[0])
    lam = check.positive("ridge", ridge)
    s2 = check.array_from("variance", variance)
    trace = lam * phi.shape[1] / (2 * m) + n @ (rho * (phi**2).sum(axis=1)) / m  # (3.54)
    return np.asarray(trace * s2)


def section_3_7_constant_printed(
    features: ArrayLike, weights: ArrayLike, ridge: float, *, f_max: float
) -> float:
    """C_lambda as section 3.7 first prints it, after Lemma 3.20.

    2 F ||Phi|| / (lambda - ||Phi||^2 ||rho||_inf). It lacks the factor alpha, so that
    C_lambda sqrt(psi) is not the noise of Algorithm 2. Theorem 3.23 has the factor.

    features and weights as in :func:`lemma_3_20`; ridge lambda > ||Phi||^2 ||rho||_inf, a
    ValueError otherwise; f_max F > 0, R_max / (1 - gamma) in the thesis.

    >>> section_3_7_constant_printed([[1.0]], [1.0], 3.0, f_max=1.0)
    1.0
    """
    return lsl_step_factor(features, weights, ridge, size=f_max)


def section_3_7_constant_corrected(
    features: ArrayLike, weights: ArrayLike, ridge: float, *, f_max: float, alpha: float
) -> float:
    """C_lambda with its factor alpha, as Theorem 3.23 prints it: sigma = C_lambda sqrt(psi).

    Parameters and errors as :func:`section_3_7_constant_printed`; ``alpha`` > 0 is the
    constant of Lemma 3.1.

    >>> section_3_7_constant_corrected([[1.0]], [1.0], 3.0, f_max=1.0, alpha=122.0)
    122.0
    """
    a = check.positive("alpha", alpha)
    return a * section_3_7_constant_printed(features, weights, ridge, f_max=f_max)


def excess_risk_given_counts(
    counts: ArrayLike,
    n_trajectories: int,
    features: ArrayLike,
    weights: ArrayLike,
    ridge: float,
    *,
    beta: float,
    noise_constant: float,
) -> FloatArray:
    """E_eta[J(theta_hat) - J(theta)] of DP-LSL for given visit counts, exactly.

    Lemma 3.20 with sigma^2 = C_lambda^2 psi and psi computed exactly. Its mean over batches is
    the left-hand side of Theorem 3.23. Returns play no role in it, only counts do. O(K N^2) for
    K count vectors, in chunks of bounded memory.

    beta > 0 is the smoothness of psi, noise_constant C_lambda > 0; the others as in
    :func:`lemma_3_20`.

    One state, which one trajectory visits with probability 0.3:

    >>> risk = excess_risk_given_counts([[0], [1]], 1, [[1.0]], [1.0], 2.0,
    ...                                 beta=3.0, noise_constant=1.0)
    >>> float((risk @ [0.7, 0.3]).round(6))
    2.05
    """
    m = check.whole("n_trajectories", n_trajectories)
    phi, rho = _regression(features, weights)
    n = checked_counts(counts, m, phi.shape[0])
    lam, b = check.positive("ridge", ridge), check.positive("beta", beta)
    c2 = check.positive("noise_constant", noise_constant) ** 2
    coefficient = lsl_coefficient(phi, rho, lam)
    rows = max(1, _CHUNK // ((2 * n.shape[-1] + 1) * n.shape[-1]))
    vectors = n.reshape(-1, n.shape[-1])
    risk = np.empty(len(vectors))
    for first in range(0, len(vectors), rows):
        part = slice(first, first + rows)
        psi, _ = lsl_smooth_bound(vectors[part], rho, m, coefficient, b)
        risk[part] = lemma_3_20(vectors[part], c2 * psi, m, phi, rho, lam)
    return risk.reshape(n.shape[:-1])


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
    """Theorem 3.23 as printed: "bound on E_{X, eta}[J(theta_hat) - J(theta)] of DP-LSL".

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
    n_trajectories, ridge, beta, noise_constant : array_like, broadcast against the leading axes
        m >= 1, lambda > 0 (the algorithm needs more, see
        :func:`section_3_7_constant_corrected`), 0 < beta < 1/2, C_lambda > 0.
    features, weights
        As in :func:`lemma_3_20`.

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
    """Theorem 3.23 corrected: a bound on E_{X, eta}[J(theta_hat) - J(theta)] of DP-LSL.

    With tau = max(beta, 1/m), kappa = e^{-beta/tau}/tau, q_s = 1 - (1 - e^{-tau}) p_s and
    double sums over all s, s', C_lambda^2 times ::

        sum_s rho_s p_s (d G / 2 + 2 ||rho||^2 ||phi_s||^2) + lambda d ||rho||^2 / m
        + d G kappa / (2 m) sum_s rho_s q_s^m
        + (m G / lambda) sum_{s,s'} rho_s rho_s' p_s p_s' ||phi_s||^2
        + (G / lambda) sum_{s,s'} rho_s rho_s' ||phi_s||^2
          [ p_{s,s'} - p_s p_s' + kappa (pbar_{s,s'} + e^{-tau} p_{s,s'}) q_s'^{m-1} ].

    Holds for every beta > 0 and lambda > 0, with whatever C_lambda the noise has:
    sigma^2 = C_lambda^2 psi. For m >= 1/beta, tau = beta and kappa = 1/(e beta).

    *Proof.* Lemma 3.20, :func:`~dprl.bounds.lsl_visits.psi_bound_corrected` and equation (2) of
    :mod:`dprl.bounds.lsl_visits` bound the left side by C_lambda^2 times the expectation of
    (lambda d / 2 m + sum_s rho_s ||phi_s||^2 n_s / m) (2 ||rho||^2 + (G / lambda) sum_s' rho_s'
    (n_s' + kappa e^{-tau n_s'})). Insert items 1 and 4 of Lemma 3.22 and
    :func:`~dprl.bounds.lsl_visits.discounted_moments`.

    Parameters as :func:`theorem_3_23_printed`, with any beta > 0.

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
    """A ridge from which the printed Theorem 3.23 holds, whatever beta and the visits. ::

        (3/2 + sqrt 2) m ||Phi||^2 ||rho||_inf^2 ||rho||_1 / ||rho||_2^2,

    about 2.914 m for tabular features and rho = 1. From there on c^2 m ||rho||_1 is at most
    (sqrt 2 - 1)^2 ||rho||_2^2, so psi <= 2 ||rho||_2^2, and the printed bound on psi holds
    by its first term alone. Parameters as in :func:`lemma_3_20`.

    >>> round(theorem_3_23_safe_ridge(np.eye(40), np.ones(40), 1000), 1)
    2914.2
    """
    m = check.whole("n_trajectories", n_trajectories)
    phi, rho = _regression(features, weights)
    g = operator_norm(phi) ** 2 * float(rho.max()) ** 2
    return float((1.5 + np.sqrt(2)) * m * g * rho.sum() / (rho @ rho))


# -- Corollary 3.24 -----------------------------------------------------------------------


class RateConstants(NamedTuple):
    """Constants of the three terms of Corollary 3.24, each of shape (...)."""

    #: K_1 of 1/(lambda m).
    first: FloatArray
    #: K_2 of 1/lambda^2.
    second: FloatArray
    #: K_3 of m/lambda^3.
    third: FloatArray


def corollary_3_24(
    n_trajectories: ArrayLike,
    ridge: ArrayLike,
    constants: tuple[ArrayLike, ArrayLike, ArrayLike] = (1.0, 1.0, 1.0),
) -> FloatArray:
    """K_1/(lambda m) + K_2/lambda^2 + K_3 m/lambda^3: thesis, Corollary 3.24.

    The printed corollary is the order, so its constants are open: with those of
    :func:`corollary_3_24_constants` this is an upper bound. m >= 1 and lambda > 0 broadcast, as do
    the three ``constants`` K_1, K_2, K_3 >= 0.

    >>> float(corollary_3_24(4, 2.0))
    0.875
    """
    m = check.whole_array("n_trajectories", n_trajectories)
    lam = check.positive_array("ridge", ridge)
    if len(constants) != 3:
        raise ValueError(f"constants must be K_1, K_2, K_3, got {len(constants)}")
    k1, k2, k3 = (check.array_from("constants", k) for k in constants)
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
    """Constants with which Corollary 3.24 holds for all m >= 1, lambda >= 2 ||Phi||^2 ||rho||_inf.

    With A = (4 alpha F ||Phi||)^2 and S = sum_s rho_s p_s ||phi_s||^2, ::

        K_1 = A d ||rho||_2^2
        K_2 = A [ (d G / 2) sum_s rho_s p_s + 2 ||rho||_2^2 S + d G ||rho||_1 / (2 e beta)
                  + ||rho||_inf ||rho||_1 S (1 + 1/(e beta)) / 2 ]
        K_3 = A G S sum_s rho_s p_s.

    From :func:`theorem_3_23_corrected`: lambda - ||Phi||^2 ||rho||_inf >= lambda/2, so
    C_lambda^2 <= A/lambda^2; kappa <= 1/(e beta), q_s <= 1, 1/m <= 1, p_{s,s'} <= p_s and
    G/lambda <= ||rho||_inf/2. They do not depend on m or lambda as long as beta does not.

    features and weights as in :func:`lemma_3_20`; visit_probabilities p_s in [0, 1], shape
    (..., N); f_max, alpha and beta are F, alpha and beta of Algorithm 2, > 0.

    >>> k = corollary_3_24_constants([1.0], [[1.0]], [1.0], f_max=1, alpha=0.25, beta=1.0)
    >>> float(k.first), float(k.second.round(4)), float(k.third)
    (1.0, 3.3679, 1.0)
    """
    phi, rho = _regression(features, weights)
    p = marginals(nested_visits(visit_probabilities))[0]
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
    both = checked_joint(joint)
    if both.shape[-1] != rho.size:
        raise ValueError(f"joint must have {rho.size} rows, one per state, got shape {both.shape}")
    m, lam, b, c = np.broadcast_arrays(
        check.whole_array("n_trajectories", n_trajectories),
        check.positive_array("ridge", ridge),
        check.positive_array("beta", beta),
        check.positive_array("noise_constant", noise_constant),
    )
    g = operator_norm(phi) ** 2 * float(rho.max()) ** 2
    return _Setting(both, m, rho, (phi**2).sum(axis=1), phi.shape[1], g, lam, b, c)


def _double_sum(t: _Setting, matrix: FloatArray) -> FloatArray:
    """sum_{s,s'} rho_s rho_s' ||phi_s||^2 matrix_{s,s'}."""
    return np.asarray(np.einsum("s,...st,t->...", t.rho * t.lengths, matrix, t.rho))


def _assemble(t: _Setting, none: FloatArray, rare: FloatArray) -> FloatArray:
    """The terms that both versions of Theorem 3.23 share, and the two that differ.

    none: sum_s rho_s E[excess_s]; rare: sum rho_s rho_s' ||phi_s||^2 E[n_s excess_s'] / m, where
    excess_s stands behind n_s in (3.56).
    """
    p, first, second = marginals(t.joint)
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


def _regression(features: ArrayLike, weights: ArrayLike) -> tuple[FloatArray, FloatArray]:
    phi = feature_matrix(features)
    return phi, regression_weights(weights, phi.shape[0])
