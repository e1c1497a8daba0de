r"""Lecture 11, statements 11.7 to 11.13: counting queries and the Laplace mechanism.

A data set has n records, neighbours replace one of them. A counting query is a fraction, so its
sensitivity is 1/n. Every one of k queries is answered with independent noise of Lap(sigma); sigma
is the scale, not the standard deviation. An answer is (alpha, beta)-accurate if P(error >= alpha)
<= beta on every data set, the error of k answers being the largest of theirs.

The largest of k independent errors has an exact quantile,

    P(max |Z_i| >= alpha) = beta  at  alpha = sigma a_k,
    a_k = -ln(1 - (1 - beta)^(1/k)),                                         (1)

and, as (1 - beta)^(1/k) = exp(-b/k) >= 1 - b/k with b = ln(1/(1 - beta)),

    ln(k/b) <= a_k <= ln(k/beta),                                            (2)

the right side being the union bound that theorem 11.12 uses.

Theorem 11.13 is printed for every sequence of k counting queries. It needs one
record to be able to change a fixed share of them: the L1 sensitivity is then at
least share * k/n, the privacy level of the mechanism is that over sigma, and

    k ln(k/b) <= epsilon alpha n / share                                     (3)

follows from (2). A histogram (k disjoint predicates) has L1 sensitivity 2/n
whatever k, and no such limit.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import wrightomega

from dprl import _validation as check
from dprl._validation import FloatArray


class CountingPromise(NamedTuple):
    """What the Laplace mechanism promises for counting queries."""

    #: Privacy parameter; delta is 0, neighbours replace one record.
    epsilon: FloatArray
    #: The error that is reached or passed with probability at most beta.
    alpha: FloatArray


class Composition(NamedTuple):
    """What follows for k answers from the promise for each of them."""

    #: Privacy parameter of all answers together.
    epsilon: FloatArray
    #: Bound on the probability that any error reaches alpha; may exceed 1.
    beta: FloatArray


def lemma_11_7(x1: ArrayLike, x2: ArrayLike, scale: ArrayLike) -> FloatArray:
    """Lemma 11.7: f(x1)/f(x2) <= exp(|x1 - x2|/scale) for the Laplace density f.

    The bound, for points and a scale sigma > 0 that broadcast; infinity where it is larger than any
    float.

    >>> lemma_11_7(3.0, 1.0, scale=2.0).round(4).tolist()
    2.7183
    """
    distance = np.abs(check.finite_array("x1", x1) - check.finite_array("x2", x2))
    with np.errstate(over="ignore"):
        return np.exp(distance / check.positive_array("scale", scale))


def theorem_11_9(n: ArrayLike, scale: ArrayLike, beta: ArrayLike) -> CountingPromise:
    """Theorem 11.9: one counting query; epsilon = 1/(n scale), alpha = scale ln(1/beta).

    Both are attained: the first by two data sets that differ in the query, the second
    on every data set. It holds for every beta in (0, 1); the clause that asks for a
    negligible beta is not needed.

    Parameters
    ----------
    n, scale, beta : array_like
        Records, >= 1; sigma > 0; beta in (0, 1).

    Examples
    --------
    >>> promise = theorem_11_9(n=100, scale=0.02, beta=0.05)
    >>> float(promise.epsilon), round(float(promise.alpha), 6)
    (0.5, 0.059915)
    """
    records, sigma, b = (
        check.array_from("n", n, 1),
        check.positive_array("scale", scale),
        check.open_unit_array("beta", beta),
    )
    return CountingPromise(1 / (records * sigma), sigma * np.log(1 / b))


def lemma_11_11(k: ArrayLike, epsilon: ArrayLike, beta: ArrayLike) -> Composition:
    """Lemma 11.11: k >= 1 answers, each epsilon-private and (alpha, beta)-accurate.

    Together they are k epsilon-private and (alpha, k beta)-accurate; epsilon > 0, beta in (0, 1).

    >>> together = lemma_11_11(k=10, epsilon=0.25, beta=0.001)
    >>> float(together.epsilon), float(together.beta)
    (2.5, 0.01)
    """
    queries = check.array_from("k", k, 1)
    return Composition(
        queries * check.positive_array("epsilon", epsilon),
        queries * check.open_unit_array("beta", beta),
    )


def theorem_11_12(n: ArrayLike, k: ArrayLike, scale: ArrayLike, beta: ArrayLike) -> CountingPromise:
    """Theorem 11.12: k counting queries; k/(n scale)-private, alpha = scale ln(k/beta).

    The privacy level is attained if one record can flip all k >= 1 queries; the error is
    the union bound, never below :func:`largest_error`. Other parameters as :func:`theorem_11_9`.

    >>> promise = theorem_11_12(n=1000, k=10, scale=0.02, beta=0.05)
    >>> float(promise.epsilon), round(float(promise.alpha), 6)
    (0.5, 0.105966)
    """
    records, queries = check.array_from("n", n, 1), check.array_from("k", k, 1)
    sigma, b = check.positive_array("scale", scale), check.open_unit_array("beta", beta)
    return CountingPromise(queries / (records * sigma), sigma * (np.log(queries) - np.log(b)))


def largest_error(k: ArrayLike, scale: ArrayLike, beta: ArrayLike) -> FloatArray:
    """Exact alpha at which P(max of k |Lap(scale)| >= alpha) = beta, equation (1).

    For k >= 1 independent answers; other parameters as :func:`theorem_11_9`.

    >>> largest_error(k=1000, scale=1.0, beta=0.1).round(4).tolist()
    9.1582
    """
    queries, b = check.array_from("k", k, 1), check.open_unit_array("beta", beta)
    return check.positive_array("scale", scale) * -np.log(-np.expm1(np.log1p(-b) / queries))  # (1)


def theorem_11_13_printed(n: ArrayLike) -> FloatArray:
    """Theorem 11.13 as printed: k = o(n / ln n) whatever the queries. Returns n / ln n, n > 1.

    The printed theorem says that k over this number tends to 0 along every sequence
    with epsilon bounded, alpha tending to 0 and beta fixed. Histograms refute it.

    >>> theorem_11_13_printed(1_000_000).round(1).tolist()
    72382.4
    """
    records = check.array_from("n", n, 1)
    if (records <= 1).any():
        raise ValueError("n must be greater than 1")
    return records / np.log(records)


def theorem_11_13_corrected(
    n: ArrayLike, epsilon: ArrayLike, alpha: ArrayLike, beta: ArrayLike, share: ArrayLike
) -> FloatArray:
    """Theorem 11.13 corrected: the number of queries that (3) allows.

    If one record can change ``share`` of the k queries, and the Laplace mechanism is
    epsilon-private and (alpha, beta)-accurate, then k is at most the returned number, the solution
    of k ln(k/b) = y for y = epsilon alpha n / share, b = ln(1/(1 - beta)): y / W(y/b), W being
    Lambert's function. With epsilon and share fixed and alpha tending to 0 it is o(n / ln n).

    Parameters
    ----------
    n : array_like
        Records, >= 1.
    epsilon, alpha : array_like
        > 0: the privacy level and the error asked for.
    beta : array_like
        In (0, 1).
    share : array_like
        In (0, 1]: the L1 sensitivity of the queries is at least share * k / n.

    Examples
    --------
    >>> theorem_11_13_corrected(1_000_000, 1.0, 0.01, 0.05, share=1.0).round(1).tolist()
    1011.2
    """
    records, c = check.array_from("n", n, 1), check.positive_array("share", share)
    if (c > 1).any():
        raise ValueError("share must be at most 1")
    y = (
        check.positive_array("epsilon", epsilon)
        * check.positive_array("alpha", alpha)
        * records
        / c
    )
    b = -np.log1p(-check.open_unit_array("beta", beta))
    lambert: FloatArray = wrightomega(np.log(y) - np.log(b))  # W(x) = omega(ln x)
    return y / lambert
