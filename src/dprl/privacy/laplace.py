r"""The Laplace mechanism: f(X) + Z for a query of global L1 sensitivity Delta.

The Laplace distribution of scale sigma has the density

    f(z) = exp(-|z|/sigma) / (2 sigma),                                      (1)

and standard deviation sqrt(2) sigma. Noise of scale

    sigma >= Delta / eps                                                     (2)

on every coordinate makes the release eps-differentially private, delta = 0 (lecture, definition
11.8 and theorem 11.9; the definition there does not state (2)). For one released number the privacy
profile is known exactly. With eps0 = Delta/sigma,

    delta(eps) = max(0, 1 - exp((eps - eps0)/2)).                            (3)

The privacy loss L = ln f(Y) / f(Y - Delta), Y drawn from f, takes the value eps0
with probability 1/2, the value -eps0 with probability exp(-eps0)/2, and has
density exp(-(eps0 - l)/2)/4 at l between them.

For a query with several numbers (3) is an upper bound: moving the coordinates one
after the other goes through data sets whose trade-off functions compose exactly
to that of one coordinate moved by the whole of Delta.

A counting query is the fraction of the n records that satisfy a predicate; its
sensitivity, neighbours replacing one record, is 1/n (lecture, definition 11.3).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike
from scipy import stats

from dprl import _validation as check
from dprl._validation import FloatArray
from dprl.privacy.guarantee import Guarantee


def laplace_density(z: ArrayLike, scale: float) -> FloatArray:
    """Density of Lap(scale), scale > 0, at z of any shape, equation (1).

    >>> laplace_density([-2.0, 0.0, 2.0], scale=2.0).round(4).tolist()
    [0.092, 0.25, 0.092]
    """
    x, sigma = check.finite_array("z", z), check.positive("scale", scale)
    return np.asarray(stats.laplace.pdf(x, scale=sigma), dtype=np.float64)


def laplace_cdf(z: ArrayLike, scale: float) -> FloatArray:
    """P(Z <= z) for Z of Lap(scale), scale > 0, and z of any shape.

    >>> laplace_cdf([-1.0, 0.0, 1.0], scale=1.0).round(4).tolist()
    [0.1839, 0.5, 0.8161]
    """
    x, sigma = check.finite_array("z", z), check.positive("scale", scale)
    return np.asarray(stats.laplace.cdf(x, scale=sigma), dtype=np.float64)


def laplace_tail(threshold: ArrayLike, scale: float) -> FloatArray:
    """P(|Z| >= threshold) for Z of Lap(scale): exp(-threshold/scale), 1 below zero.

    Thresholds of any shape, scale > 0.

    >>> laplace_tail(np.log(20), scale=1.0).round(6).tolist()
    0.05
    """
    a, sigma = check.finite_array("threshold", threshold), check.positive("scale", scale)
    return np.exp(-np.maximum(a, 0.0) / sigma)


def laplace_scale(sensitivity: float, epsilon: float) -> float:
    """Least scale with which the Laplace mechanism is epsilon-private, equation (2).

    The sensitivity is the global one in L1; both arguments > 0.

    >>> laplace_scale(sensitivity=0.01, epsilon=0.5)
    0.02
    """
    return check.positive("sensitivity", sensitivity) / check.positive("epsilon", epsilon)


def laplace_delta(sensitivity: float, scale: float, epsilon: float) -> float:
    """Exact delta of the Laplace mechanism at a given epsilon, equation (3).

    The largest P[A(X) in O] - e^epsilon P[A(X') in O] over sets O, for two means at distance
    ``sensitivity``. Zero from epsilon = sensitivity/scale on. With several coordinates and
    ``sensitivity`` in L1 it is an upper bound, attained where a single coordinate moves.

    sensitivity >= 0 is the distance of the two means, scale sigma > 0, epsilon >= 0.

    >>> laplace_delta(1.0, 2.0, 0.5), round(laplace_delta(1.0, 2.0, 0.0), 6)
    (0.0, 0.221199)
    """
    top = check.not_negative("sensitivity", sensitivity) / check.positive("scale", scale)
    eps = check.not_negative("epsilon", epsilon)
    return float(-np.expm1(min(eps - top, 0.0) / 2)) + 0.0  # (3); no negative zero


def laplace_loss_cdf(loss: ArrayLike, sensitivity: float, scale: float) -> FloatArray:
    """P(L <= loss) of the privacy loss of one released number, for losses of any shape.

    A step up at -sensitivity/scale and one of height 1/2 at sensitivity/scale; both > 0.

    >>> laplace_loss_cdf([-1.1, -1.0, 0.999999999, 1.0], 1.0, 1.0).round(4).tolist()
    [0.0, 0.1839, 0.5, 1.0]
    """
    ell = check.finite_array("loss", loss)
    top = check.positive("sensitivity", sensitivity) / check.positive("scale", scale)
    between = np.exp(-(top - np.clip(ell, -top, top)) / 2) / 2
    return np.where(ell >= top, 1.0, np.where(ell < -top, 0.0, between))


def laplace_mechanism(
    value: ArrayLike,
    *,
    sensitivity: float,
    epsilon: float,
    neighbours: str,
    rng: np.random.Generator,
) -> tuple[FloatArray, Guarantee]:
    """Release value + Z, independent Laplace noise of scale sensitivity/epsilon.

    Parameters
    ----------
    value : array_like, shape (...,)
        The exact answer f(X); all its numbers together are one release.
    sensitivity : float
        Global L1 sensitivity of f under ``neighbours``, > 0; proved by the caller.
    epsilon : float
        The promise, > 0; delta is 0.
    neighbours : str
        The relation for which the sensitivity was proved.
    rng : numpy.random.Generator
        For study only: floating-point noise is not safe for a release.

    Returns
    -------
    (ndarray, Guarantee)
        The noisy answer, shape of value, and (epsilon, 0, neighbours). Always finite: beyond the
        largest number of the machine it is that number.

    Examples
    --------
    >>> noisy, promise = laplace_mechanism(
    ...     0.25, sensitivity=0.01, epsilon=0.5, neighbours="replace one record",
    ...     rng=np.random.default_rng(1))
    >>> print(promise)
    (0.5, 0)-differentially private; neighbours: replace one record
    """
    x = check.finite_array("value", value)
    sigma = check.positive("sensitivity/epsilon", laplace_scale(sensitivity, epsilon))  # (2)
    promise = Guarantee(epsilon, 0.0, neighbours)
    noise = np.asarray(check.generator(rng).laplace(scale=sigma, size=x.shape))
    with np.errstate(over="ignore"):
        return check.representable(x + noise), promise


def counting_query(hits: ArrayLike) -> FloatArray:
    """Fraction of the records that satisfy each predicate (lecture, definition 11.3).

    hits are 0 and 1: h(x_i), shape (n,), or h_j(x_i) for k predicates, shape (n, k). Returns
    multiples of 1/n in [0, 1], shape () or (k,).

    >>> counting_query([[1, 0], [1, 1], [0, 0], [1, 0]]).tolist()
    [0.75, 0.25]
    """
    h = check.zeros_and_ones("hits", hits)
    if h.ndim not in (1, 2) or h.shape[0] == 0:
        raise ValueError(f"hits must have shape (n,) or (n, k) with n >= 1, got {h.shape}")
    return np.asarray(h.mean(axis=0))


def counting_sensitivity(patterns: ArrayLike, n_records: int, order: float = 1.0) -> float:
    """Global sensitivity of k counting queries; neighbours replace one record.

    Replacing a record x by x' moves the answers by (h(x') - h(x))/n whatever the other
    records are, so the supremum over data sets is a maximum over two records:
    max ||h(x) - h(x')||_p / n. With order 1 it lies between 0 and k/n. O(r^2 k).

    Parameters
    ----------
    patterns : array_like of 0 and 1, shape (r, k)
        h_1(x) ... h_k(x) for each of the r conceivable records x.
    n_records : int
        n >= 1, public.
    order : float
        p >= 1, ``numpy.inf`` allowed.

    Examples
    --------
    Four disjoint predicates; four that one record can satisfy together.

    >>> counting_sensitivity(np.eye(4), n_records=100)
    0.02
    >>> counting_sensitivity([[0] * 4, [1] * 4], n_records=100)
    0.04
    """
    h = check.zeros_and_ones("patterns", patterns)
    if h.ndim != 2 or 0 in h.shape:
        raise ValueError(f"patterns must have shape (r, k), none of them 0, got {h.shape}")
    n = check.whole("n_records", n_records)
    p = float(order) if order == np.inf else check.real("order", order)
    if p < 1:
        raise ValueError(f"order must be at least 1, got {order!r}")
    return float(max(np.linalg.norm(h - row, ord=p, axis=1).max() for row in h) / n)
