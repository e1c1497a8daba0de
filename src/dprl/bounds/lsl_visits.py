r"""Visits and the smooth bound of DP-LSL: the bounds on psi, Lemmas 3.21 and 3.22.

Symbols as in :mod:`dprl.bounds.lsl_utility`, which uses all of it.

=============  =======================================================================
display        bound on psi before Lemma 3.21: the printed exponent is twice too large
3.21           maximum of e^{-rate x} (a + x): the printed cases are the wrong way round
(3.56)         that maximum for visit counts: the printed bound fails for 0 < n < 1/(2 beta)
3.22           moments of the counts, right as printed
=============  =======================================================================

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
from dprl.private_evaluation.common import integers_around


def largest_discounted_count(counts: ArrayLike, rate: ArrayLike, n_trajectories: int) -> FloatArray:
    """max over integers k >= 0 of e^{-rate k} min(n + k, m), exactly, elementwise.

    The left-hand side of (3.56), with rate 2 beta as printed and beta as it should be. Its
    logarithm is concave in k, so the maximum lies beside the real maximiser.

    counts n in [0, m], of m >= 1 trajectories; rate > 0.

    >>> float(largest_discounted_count(20, 0.01, 10_000).round(4))
    44.9329
    """
    m = check.whole("n_trajectories", n_trajectories)
    n = checked_counts(counts, m)
    r = check.positive_array("rate", rate)
    n, r = np.broadcast_arrays(n, r)
    best = np.clip(1 / r - n, 0, m - n)[..., None]
    k = integers_around(best, 0, m)
    terms = np.exp(-r[..., None] * k) * np.minimum(n[..., None] + k, m)
    return np.asarray(terms.max(axis=-1))


def psi_bound_printed(
    counts: ArrayLike, weights: ArrayLike, n_trajectories: int, coefficient: float, beta: float
) -> FloatArray:
    """The printed bound on psi, unnumbered display before Lemma 3.21. ::

        2 ||rho||_2^2 + 2 c^2 sum_s rho_s max_k e^{-2 k beta} min(n_s + k, m).

    Not a bound: psi has e^{-k beta} in front of a square, and (a + b)^2 <= 2 a^2 + 2 b^2
    leaves it there.

    counts n in [0, m], shape (..., N), of m >= 1 trajectories; weights rho in [0, 1], shape (N,);
    coefficient c = ||Phi|| ||rho||_inf / sqrt(2 lambda) > 0; beta > 0.

    >>> float(psi_bound_printed([20], [1.0], 10_000, 0.5, 5.8145e-4).round(1))
    163.9
    """
    b = check.positive("beta", beta)
    return _psi_bound(counts, weights, n_trajectories, coefficient, 2 * b)


def psi_bound_corrected(
    counts: ArrayLike, weights: ArrayLike, n_trajectories: int, coefficient: float, beta: float
) -> FloatArray:
    """The display before Lemma 3.21 with the exponent that psi has. ::

        psi <= 2 ||rho||_2^2 + 2 c^2 sum_s rho_s max_k e^{-k beta} min(n_s + k, m).

    Parameters as :func:`psi_bound_printed`.

    >>> float(psi_bound_corrected([20], [1.0], 10_000, 0.5, 5.8145e-4).round(1))
    322.0
    """
    b = check.positive("beta", beta)
    return _psi_bound(counts, weights, n_trajectories, coefficient, b)


def lemma_3_21_printed(a: ArrayLike, b: ArrayLike, m: ArrayLike) -> FloatArray:
    """Lemma 3.21 as printed: "max over 0 <= x <= m - a of e^{-2 b x} (a + x)". ::

        a                      if b < a/2
        m e^{-2 b (m - a)}     if b > m/2
        e^{2 a b} / (2 e b)    otherwise

    False: the conditions should compare b with 1/(2 a) and 1/(2 m), the other way round.
    0 <= a <= m, b > 0 and m > 0 broadcast; infinite where e^{2 a b} is beyond a double.

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
    """Lemma 3.21 corrected, for any rate: max over 0 <= x <= m - a of e^{-rate x} (a + x). ::

        a                       if rate >= 1/a
        m e^{-rate (m - a)}     if rate <= 1/m
        e^{a rate - 1} / rate   otherwise

    The derivative e^{-rate x} (1 - rate (a + x)) changes its sign once, so the maximiser is
    1/rate - a, clipped to [0, m - a]; that one formula is what is computed here. The printed
    lemma, whose parameters it shares, has rate = 2 b.

    >>> float(lemma_3_21_corrected(10, 2 * 0.01, 1000).round(2))
    22.47
    """
    a_, r, m_ = _lemma_3_21_arguments(a, rate, m, "rate")
    x = np.clip(1 / r - a_, 0, m_ - a_)
    return np.exp(-r * x) * (a_ + x)


def equation_3_56_printed(counts: ArrayLike, beta: ArrayLike) -> FloatArray:
    """(3.56) as printed: max_k e^{-2 k beta} min(n + k, m) <= n + 1{n = 0} / (2 e beta).

    For integer n and 2 beta < 1 this equals the expression that the thesis prints before
    it. False for every 1 <= n < min(m, 1/(e^{2 beta} - 1)): there already k = 1 gives more
    than n. True for n = 0 and for the larger n. n >= 0 and 0 < beta < 1/2 broadcast.

    >>> equation_3_56_printed([0, 20], 0.01).round(4).tolist()
    [18.394, 20.0]
    """
    n = checked_counts(counts)
    b = check.positive_array("beta", beta)
    if (b >= 0.5).any():
        raise ValueError(f"(3.56) assumes beta < 1/2, got {b.max()}")
    return np.asarray(n + (n == 0) / (2 * math.e * b))


def equation_3_56_corrected(
    counts: ArrayLike, rate: ArrayLike, n_trajectories: ArrayLike
) -> FloatArray:
    """(3.56) corrected: n + kappa e^{-tau n}, equations (1) and (2) of this module.

    An upper bound of max_k e^{-rate k} min(n + k, m) for every 0 <= n <= m, rate > 0 and m >= 1;
    they broadcast. DP-LSL smooths sigma^2, so rate = beta; it would be 2 beta if sigma were
    smoothed.

    >>> equation_3_56_corrected([0, 20], 0.02, 1000).round(4).tolist()
    [18.394, 32.3298]
    """
    m = check.whole_array("n_trajectories", n_trajectories)
    n = checked_counts(counts, m)
    tau, kappa = smoothing_excess(rate, m)
    return n + kappa * np.exp(-tau * n)  # (2)


def smoothing_excess(rate: ArrayLike, n_trajectories: ArrayLike) -> tuple[FloatArray, FloatArray]:
    """tau = max(rate, 1/m) and kappa = e^{-rate/tau}/tau, equation (1) of this module.

    kappa is what smoothing adds to a state that nobody visited, tau how fast this fades
    with the number of visits. rate > 0 and m >= 1 broadcast.

    >>> tau, kappa = smoothing_excess(0.001, [100, 5000])
    >>> tau.tolist(), kappa.round(2).tolist()
    ([0.01, 0.001], [90.48, 367.88])
    """
    r, m = np.broadcast_arrays(
        check.positive_array("rate", rate), check.whole_array("n_trajectories", n_trajectories)
    )
    tau = np.maximum(r, 1 / m)  # (1)
    return tau, np.exp(-r / tau) / tau


class VisitMoments(NamedTuple):
    """The five expectations of Lemma 3.22, in its order."""

    #: E[n_s], shape (..., N) like the next two.
    mean: FloatArray
    #: E[1{n_s = 0}].
    unvisited: FloatArray
    #: E[n_s^2].
    square: FloatArray
    #: E[n_s n_s'], shape (..., N, N) like the next; s is the last axis but one.
    product: FloatArray
    #: E[n_s 1{n_s' = 0}].
    count_where_unvisited: FloatArray


def nested_visits(visit_probabilities: ArrayLike) -> FloatArray:
    """P[s in x and s' in x] where the visit events are nested: min(p_s, p_s'), shape (..., N, N).

    So it is on the chain: a trajectory visits s exactly if it started at or before s. p_s in [0, 1]
    has the shape (..., N).

    >>> nested_visits([0.25, 1.0]).tolist()
    [[0.25, 0.25], [0.25, 1.0]]
    """
    p = check.unit_array("visit_probabilities", visit_probabilities)
    if p.ndim == 0 or p.shape[-1] == 0:
        raise ValueError(f"visit_probabilities must have one entry per state, got shape {p.shape}")
    return np.minimum(p[..., :, None], p[..., None, :])


def lemma_3_22(joint: ArrayLike, n_trajectories: ArrayLike) -> VisitMoments:
    """Moments of the visit counts of m independent trajectories: thesis, Lemma 3.22.

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
        p_{s,s'}, symmetric; p_s on the diagonal. A ValueError if it leaves [0, 1] or the bounds
        p_s + p_s' - 1 <= p_{s,s'} <= min(p_s, p_s').
    n_trajectories : array_like, broadcast against the leading axes
        m >= 1.

    Examples
    --------
    >>> moments = lemma_3_22([[0.5, 0.25], [0.25, 0.5]], 2)
    >>> moments.mean.tolist(), moments.product.tolist()
    ([1.0, 1.0], [[1.5, 1.0], [1.0, 1.5]])
    """
    both = checked_joint(joint)
    m = check.whole_array("n_trajectories", n_trajectories)
    p, first, second = marginals(both)
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
    """What replaces items 2 and 5 of Lemma 3.22 in the corrected Theorem 3.23.

    With q_s = 1 - (1 - e^{-rate}) p_s, of shapes (..., N) and (..., N, N):

    2*. E[e^{-rate n_s}]        = q_s^m
    5*. E[n_s e^{-rate n_s'}]   = m (pbar_{s,s'} + e^{-rate} p_{s,s'}) q_s'^{m-1}

    As the rate > 0 grows they become items 2 and 5. Other parameters as :func:`lemma_3_22`.

    >>> decay, count_decay = discounted_moments([[1.0]], 0.5, 3)
    >>> bool(np.isclose(count_decay[0, 0], 3 * decay[0]))
    True
    """
    both = checked_joint(joint)
    r = check.positive_array("rate", rate)[..., None]
    m = check.whole_array("n_trajectories", n_trajectories)[..., None]
    p, first, _ = marginals(both)
    less = np.expm1(-r) * p  # q - 1
    count_decay = (
        m[..., None]
        * ((first - both) + np.exp(-r[..., None]) * both)
        * _power(less, m - 1)[..., None, :]
    )
    return _power(less, m), count_decay


def _psi_bound(
    counts: ArrayLike, weights: ArrayLike, n_trajectories: int, coefficient: float, rate: float
) -> FloatArray:
    c = check.positive("coefficient", coefficient)
    v = check.count_array("counts", counts)
    rho = regression_weights(weights, v.shape[-1])
    sums = largest_discounted_count(v, rate, n_trajectories) @ rho
    return 2 * float(rho @ rho) + 2 * c**2 * sums


def checked_counts(
    counts: ArrayLike, m: FloatArray | float = math.inf, n_states: int | None = None
) -> FloatArray:
    n = check.array_from("counts", counts)
    if n_states is not None:
        check.count_array("counts", n, n_states)
    if (n > m).any():
        raise ValueError(f"counts must not exceed the trajectories, got {n.max():g}")
    return n


def _lemma_3_21_arguments(
    a: ArrayLike, rate: ArrayLike, m: ArrayLike, name: str = "b"
) -> tuple[FloatArray, FloatArray, FloatArray]:
    r, m_ = check.positive_array(name, rate), check.positive_array("m", m)
    a_, r, m_ = np.broadcast_arrays(check.array_from("a", a), r, m_)
    if (a_ > m_).any():
        raise ValueError("a must lie in [0, m]")
    return a_, r, m_


def checked_joint(joint: ArrayLike) -> FloatArray:
    both = check.finite_array("joint", joint)
    if both.ndim < 2 or both.shape[-1] != both.shape[-2] or both.shape[-1] == 0:
        raise ValueError(f"joint must have shape (..., N, N), got {both.shape}")
    _, first, second = marginals(both)
    slack = 1e-12
    if (both != np.swapaxes(both, -1, -2)).any():
        raise ValueError("joint must be symmetric")
    if (both > np.minimum(first, second) + slack).any() or (first > 1 + slack).any():
        raise ValueError("joint must not exceed min(p_s, p_s'), and p_s must not exceed 1")
    if (both < np.maximum(first + second - 1, 0) - slack).any():
        raise ValueError("joint must be at least max(p_s + p_s' - 1, 0)")
    return both


def marginals(both: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
    """p of shape (..., N), and as rows (s) and columns (s') of a matrix."""
    p = np.diagonal(both, axis1=-2, axis2=-1)
    return p, p[..., :, None], p[..., None, :]
