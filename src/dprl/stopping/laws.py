r"""The exact law of the stopping time, given the path of sums; and what a pair of laws tells.

For a path S_1, ..., S_n held fixed, let m_n = S_n - alpha (n + 1) for the printed rules and
m_n = S_n - alpha n for the private one, n >= N. With F the distribution function of the
noise of scale 1/eps,

    one draw:     Pr[stop at n] = Pr[ m_n < delta <= min_{N <= k < n} m_k ],            (1)
    fresh draws:  Pr[stop at n] = (1 - F(m_n)) prod_{N <= k < n} F(m_k),                (2)

and for the private rule, with G the distribution function of Lap(4/eps_1) and g the density
of Lap(2/eps_1),

    Pr[stop at n] = int g(r) G(r - m_n) prod_{N <= k < n} (1 - G(r - m_k)) dr.          (3)

Between the points 0 and m_k the integrand of (3) is a sum of exponentials; Gauss and
Legendre's rule on panels that are short for the steepest of them gives it to about 12
digits. The laws of the output with random signs are averages of these over the signs.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike
from scipy import stats

from dprl import _validation as check
from dprl._validation import FloatArray
from dprl.stopping.rules import check_reading, checked_sums

_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(16)
_LARGEST_WORK = 2e6  # panels times checks: about a second
_REACH = 160.0  # tails are cut where the threshold's density has fallen by e^-80


def printed_law(
    sums: ArrayLike, alpha: float, beta: float, epsilon: float, reading: str
) -> FloatArray:
    """Law of the stop under the printed rule, equation (1) or (2).

    sums, shape (..., n), any real numbers (the poster's own update gives signed sums); the rest as
    in :func:`dprl.stopping.rules.stop_printed`. Returns shape (..., n - N + 2): Pr[stop at N], ...,
    Pr[stop at n], and last the probability of no stop within n.

    >>> law = printed_law(np.zeros(40), 0.5, 0.5, 0.1, "one draw")
    >>> law.size, round(float(law[1]), 5), round(float(law.sum()), 12)
    (13, 0.00544, 1.0)
    """
    s, _, n = checked_sums(sums, alpha, beta)
    scale = 1 / check.positive("epsilon", epsilon)
    check_reading(reading)
    margin = s - alpha * (n + 1)
    if reading == "one draw":
        least = np.minimum.accumulate(margin, axis=-1)
        edges = np.concatenate([np.full((*s.shape[:-1], 1), np.inf), least], axis=-1)
        inside = _laplace_between(edges[..., 1:], edges[..., :-1], scale)  # (1)
        last = stats.laplace.cdf(least[..., -1:], scale=scale)
        return np.concatenate([inside, last], axis=-1)
    go_on = stats.laplace.cdf(margin, scale=scale)
    still = np.concatenate([np.ones((*s.shape[:-1], 1)), np.cumprod(go_on, axis=-1)], axis=-1)
    stop = still[..., :-1] * stats.laplace.sf(margin, scale=scale)  # (2)
    return np.concatenate([stop, still[..., -1:]], axis=-1)


def private_law(sums: ArrayLike, alpha: float, beta: float, epsilon: float) -> FloatArray:
    """Law of the stop under the private rule, equation (3).

    O(c^2 + c d) time for c checks whose m_n span d units of 1/eps_1: made for the short
    paths of an audit, not for thousands of checks.

    sums, shape (..., n); the rest as in :func:`dprl.stopping.rules.stop_privately`. Returns shape
    (..., n - N + 2), as :func:`printed_law`. ValueError if an input is out of range, or c d is so
    large that it would take long.

    >>> law = private_law(np.zeros(40), 0.5, 0.5, 0.1)
    >>> law.size, round(float(law.sum()), 12)
    (13, 1.0)
    """
    s, _, n = checked_sums(sums, alpha, beta)
    eps = check.positive("epsilon", epsilon)
    margins = (s - alpha * n).reshape(-1, n.size)
    rows, index = np.unique(margins, axis=0, return_inverse=True)
    laws = np.stack([_one_private_law(row, eps) for row in rows])
    return laws[index.ravel()].reshape(*s.shape[:-1], n.size + 1)


def _one_private_law(margin: FloatArray, eps: float) -> FloatArray:
    low, high = min(0.0, margin.min()) - _REACH / eps, max(0.0, margin.max()) + _REACH / eps
    kinks = np.unique(np.concatenate([[low, 0.0, high], margin]))
    rate = eps * max(0.5, margin.size / 40)  # each check adds eps/4 to the steepest exponent
    with np.errstate(over="ignore", invalid="ignore"):
        pieces = np.maximum(1, np.ceil(np.diff(kinks) * rate))
        if not pieces.sum() * margin.size <= _LARGEST_WORK:
            raise ValueError(
                f"{margin.size} checks with sums and thresholds that span "
                f"{kinks[-1] - kinks[0]:g} at epsilon {eps:g} are too many to integrate over: "
                "scale the sums down, or take fewer or a smaller epsilon"
            )
    parts = pieces.astype(np.int64)
    left = np.repeat(kinks[:-1], parts)
    width = np.repeat(np.diff(kinks) / parts, parts)
    number = np.arange(parts.sum()) - np.repeat(np.cumsum(parts) - parts, parts)
    half = width / 2
    r = ((left + number * width + half)[:, None] + half[:, None] * _NODES).ravel()
    weight = (half[:, None] * _WEIGHTS).ravel() * stats.laplace.pdf(r, scale=2 / eps)
    out = np.empty(margin.size + 1)
    for i, m in enumerate(margin):
        gap = (r - m) * (eps / 4)
        tail = np.exp(-np.abs(gap)) / 2  # of the standard Laplace law, on the near side
        out[i] = (weight * np.where(gap < 0, tail, 1 - tail)).sum()  # (3)
        weight = weight * np.where(gap < 0, 1 - tail, tail)
    out[-1] = weight.sum()
    return out


def _laplace_between(low: FloatArray, high: FloatArray, scale: float) -> FloatArray:
    """Pr[low < Z <= high], with small relative error in both tails; 0 where low >= high."""
    a, b = low / scale, high / scale
    gap = -np.expm1(np.minimum(a - b, 0.0))  # 1 - e^{-(b - a)}
    left = np.exp(np.minimum(b, 0.0)) / 2 * gap
    right = np.exp(-np.maximum(a, 0.0)) / 2 * gap
    across = -np.expm1(np.minimum(a, 0.0)) / 2 - np.expm1(-np.maximum(b, 0.0)) / 2
    out: FloatArray = np.where(b <= 0, left, np.where(a >= 0, right, across))
    return np.where(a >= b, 0.0, out)


# -- what a pair of laws tells -----------------------------------------------------------------


def largest_loss(law: ArrayLike, law_other: ArrayLike) -> float:
    """The least epsilon with which a pair of discrete laws is (epsilon, 0)-private.

    max over the outcomes of |ln(p/q)|; infinite if one of them has probability 0 under one
    law only. It is the loss of this pair, not of a mechanism.

    law and law_other, shape (m,), are probabilities.

    >>> round(largest_loss([0.5, 0.5], [0.25, 0.75]), 4), largest_loss([0.5, 0.5], [0, 1])
    (0.6931, inf)
    """
    p, q = _laws(law, law_other)
    some = (p > 0) | (q > 0)
    if not some.any():
        return 0.0
    if ((p > 0) != (q > 0)).any():
        return float("inf")
    return float(np.abs(np.log(p[some]) - np.log(q[some])).max())


def pair_delta(law: ArrayLike, law_other: ArrayLike, epsilon: float) -> float:
    """The least delta with which a pair of discrete laws is (epsilon, delta)-private.

    The larger of sum (p - e^epsilon q)_+ and the same with p and q exchanged, epsilon >= 0. The
    laws as in :func:`largest_loss`.

    >>> pair_delta([0.5, 0.5], [0, 1], 0.0)
    0.5
    """
    p, q = _laws(law, law_other)
    eps = check.not_negative("epsilon", epsilon)
    with np.errstate(divide="ignore"):
        one, two = (
            np.maximum(a - np.exp(np.minimum(eps + np.log(b), 1.0)), 0).sum()
            for a, b in ((p, q), (q, p))
        )
    return float(max(one, two))


def _laws(law: ArrayLike, law_other: ArrayLike) -> tuple[FloatArray, FloatArray]:
    p, q = (
        check.finite_array(name, v, ndim=1) for name, v in (("law", law), ("law_other", law_other))
    )
    if p.shape != q.shape or p.size == 0:
        raise ValueError(f"the two laws must have the same outcomes, got {p.shape}, {q.shape}")
    for v in (p, q):
        if (v < 0).any() or abs(v.sum() - 1) > 1e-6:
            raise ValueError(f"a law must hold probabilities that sum to one, got sum {v.sum()}")
    return p, q
