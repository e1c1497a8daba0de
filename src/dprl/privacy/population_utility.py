r"""Sensitivities, bias and utility under sub-sampling, exact on small populations.

Definitions 2.2 and 4.2 to 4.6 of the thesis, for the populations and the queries of
:mod:`dprl.privacy.populations`; nothing is sampled.

With the answer's mean b(x) = E A(x~), the mechanism of definition 4.6, which averages m
independent runs of a base mechanism, each on a sub-sample of its own, has the utility

    UT_2 = E ||A(x) - b(x)||^2                              squared bias
         + (1/m) E ||A(x~) - b(x)||^2                       sampling variance
         + (1/m) E ||M~(x~) - A(x~)||^2                     noise             (3)

if the noise has mean zero and is independent from run to run. Utility in the sense of
definition 4.5 is a mean squared error: the smaller the better, and measured from A(x) on the
data at hand, not from a value of the population.

None of this is private or meant to be: these are properties of D and of the query.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from dprl import _validation as check
from dprl._validation import FloatArray
from dprl.privacy.populations import (
    DataSets,
    Population,
    Query,
    both_sizes,
    check_callable,
    checked_records,
    enough_room,
    multisets,
    readable,
    subsample_weights,
    values_of,
)


@dataclass(frozen=True, eq=False)
class OutputPerturbation:
    """A family of output perturbation mechanisms: M(x) = A(x) + noise of mean zero.

    The thesis's section 4.2 asks for E M(x) = A(x). The variance of the noise may depend on the
    data, as it does where the noise follows a smooth sensitivity; this class promises no privacy.

    Attributes
    ----------
    query : callable
        The family A, see the module.
    variance : callable
        Takes what the query takes and returns the variance of the noise: shape (M,), the
        same for every coordinate, or (M, d). It is not asked for independent coordinates.

    Examples
    --------
    Gaussian noise that shrinks as 1/n, as for an average:

    >>> from dprl.privacy import averaging_query
    >>> base = OutputPerturbation(averaging_query(), lambda x: np.full(len(x), x.shape[1] ** -2.0))
    >>> round(average_utility(base, Population([0, 1], [0.5, 0.5]), n=4), 12)
    0.0625
    """

    query: Query
    variance: Query

    def __post_init__(self) -> None:
        check_callable("query", self.query)
        check_callable("variance", self.variance)


class UtilityTerms(NamedTuple):
    """The three parts of the utility of sub-sample-and-average, equation (3).

    Attributes
    ----------
    noise : float
        E ||M~(x~) - A(x~)||^2 of one run.
    sampling : float
        E ||A(x~) - b(x)||^2 of one run: the variance that the choice of the sub-sample
        causes. In the thesis's terms, AVSS^2 - ASB^2.
    squared_bias : float
        E ||A(x) - b(x)||^2, that is ASB^2: more runs do not reduce it.
    """

    noise: float
    sampling: float
    squared_bias: float

    def utility(self, m: ArrayLike) -> FloatArray:
        """UT_2 of the average of m runs, m >= 1 of any shape: (noise + sampling)/m + squared bias.

        >>> UtilityTerms(noise=1.0, sampling=2.0, squared_bias=0.5).utility([1, 3]).tolist()
        [3.5, 1.5]
        """
        runs = check.array_from("m", m, 1)
        if (runs % 1).any():
            raise ValueError("m, the number of sub-samples, must be a whole number")
        return np.asarray((self.noise + self.sampling) / runs + self.squared_bias)


def global_sensitivity(
    query: Query, population: Population, n: int, p: float = 2.0, *, ordered: bool = False
) -> float:
    """GS_p^(n)(A): the largest change of A_n if one of the n records is replaced.

    Definition 2.2 of the thesis; the maximum over all data sets and all replacements within
    the universe, whatever its probabilities.

    Parameters
    ----------
    query : callable
        The family A, see the module.
    population : Population
    n : int
        Records of a data set, >= 1.
    p : float
        Of the norm, >= 1.
    ordered : bool
        Try all r^n sequences, for a query that depends on the order of the records.
        Otherwise r C(n+r-2, n-1) data sets are evaluated, and symmetry is checked.

    Raises
    ------
    ValueError
        If the query fails on n records, returns no finite value per data set, or depends on
        the order; or if the data sets are too many.

    Examples
    --------
    >>> from dprl.privacy import averaging_query
    >>> coin = Population([0, 1], [0.5, 0.5])
    >>> global_sensitivity(averaging_query(), coin, n=4)
    0.25
    >>> weights = np.array([1.0, 2.0, 4.0])
    >>> global_sensitivity(lambda x: x @ weights, coin, n=3, ordered=True)
    4.0
    """
    check.instance("population", population, Population)
    n, p = checked_records(n), _power(p)
    r = population.size
    if ordered:
        enough_room(r**n * n, f"{readable(r**n)} sequences of {n} of {r} records")
        index = np.indices((r,) * n).reshape(n, -1).T
        values = values_of("query", query, population.records[index])
        table = values.reshape(*(r,) * n, values.shape[1])
        faces = [np.moveaxis(table, i, 0).reshape(r, -1, values.shape[1]) for i in range(n)]
    else:
        rest = multisets(population, n - 1, room=r * n)
        index = np.repeat(np.tile(np.arange(r), len(rest)), rest.ravel()).reshape(len(rest), n - 1)
        last = [np.column_stack([index, np.full(len(rest), j)]) for j in range(r)]
        x = population.records[np.concatenate(last)]
        values = values_of("query", query, x, symmetric=True)
        faces = [values.reshape(r, len(rest), values.shape[1])]
    return float(
        max(
            _norms(face[i] - face[j], p).max()
            for face in faces
            for i, j in itertools.combinations_with_replacement(range(r), 2)
        )
    )


def _norms(vectors: FloatArray, p: float) -> FloatArray:
    """p-norms over the last axis; divided by the largest entry first, since powers underflow."""
    top = np.abs(vectors).max(axis=-1, keepdims=True)
    shares = np.abs(vectors) / np.where(top > 0, top, 1.0)
    norms: FloatArray = top[..., 0] * (shares**p).sum(axis=-1) ** (1 / p)
    return norms


def global_subsampling_sensitivity(
    query: Query, population: Population, n: int, k: int, p: float = 2.0
) -> float:
    """GSS_p^(n,k)(A), equation (4.1): sub-sampling at the worst data set.

    The p-th root of the largest E ||A(x) - A(x~)||_p^p, over all data sets x of the universe.

    Time O(C(n+r-1, n) C(k+r-1, k)), as for all functions of sub-samples here.

    query, population and p as in :func:`global_sensitivity`; records n of a data set and k of a
    sub-sample, 1 <= k <= n. ValueError if the query fails on n or on k records, or depends on their
    order, or if there is too much to enumerate.

    >>> from dprl.privacy import averaging_query
    >>> coin = Population([0, 1], [0.9, 0.1])
    >>> round(global_subsampling_sensitivity(averaging_query(), coin, n=4, k=2), 6)
    0.288675
    """
    p = _power(p)
    moved, _ = _mean_powers(query, population, n, k, p)
    return float(moved.max() ** (1 / p))


def average_subsampling_sensitivity(
    query: Query, population: Population, n: int, k: int, p: float = 2.0
) -> float:
    """AVSS_p^(n,k,D)(A), equation (4.2): sub-sampling on average over data sets.

    The p-th root of E ||A(x) - A(x~)||_p^p with x drawn from D^n. Parameters and errors as in
    :func:`global_subsampling_sensitivity`. For the averaging family and p = 2 it is the root
    of (1/k - 1/n) (E ||a||^2 - ||E a||^2).

    >>> from dprl.privacy import averaging_query
    >>> coin = Population([0, 1], [0.5, 0.5])
    >>> round(average_subsampling_sensitivity(averaging_query(), coin, n=20, k=5) ** 2, 12)
    0.0375
    """
    p = _power(p)
    moved, probabilities = _mean_powers(query, population, n, k, p)
    return float((probabilities @ moved) ** (1 / p))


def average_subsampling_bias(
    query: Query, population: Population, n: int, k: int, p: float = 2.0
) -> float:
    """ASB_p^(n,k,D)(A), equation (4.3): how far the mean answer on sub-samples is off.

    The p-th root of E ||A(x) - E[A(x~) | x]||_p^p with x drawn from D^n. Parameters and errors
    as in :func:`global_subsampling_sensitivity`.

    The maximum of a sub-sample misses that of the data set if the only 1 is not in it.

    >>> from dprl.privacy import averaging_query
    >>> coin = Population([0, 1], [0.5, 0.5])
    >>> round(average_subsampling_bias(lambda x: x.max(axis=1), coin, n=2, k=1), 6)
    0.353553
    >>> average_subsampling_bias(averaging_query(), coin, n=2, k=1)
    0.0
    """
    p = _power(p)
    big, small = both_sizes(population, n, k)
    here, there = _answers(query, big, small)
    mean = np.concatenate([weights @ there for _, weights in subsample_weights(big, small)])
    return float((big.probabilities @ (np.abs(here - mean) ** p).sum(axis=1)) ** (1 / p))


def average_utility(mechanism: OutputPerturbation, population: Population, n: int) -> float:
    """UT_2^(n,D)(M), equation (4.4): the mean squared distance of M(x) from A(x).

    Noise of variance s^2 on each of d coordinates costs d s^2. Parameters and errors as in
    :func:`subsample_and_average_terms`, for data sets of n >= 1 records.

    >>> from dprl.privacy import averaging_query
    >>> doubled = averaging_query(lambda x: np.stack([x, x], axis=-1))
    >>> base = OutputPerturbation(doubled, lambda x: np.full(len(x), 0.25))
    >>> average_utility(base, Population([0, 1], [0.5, 0.5]), n=3)
    0.5
    """
    check.instance("mechanism", mechanism, OutputPerturbation)
    check.instance("population", population, Population)
    x = population.data_sets(n)
    values = values_of("query", mechanism.query, x.records, symmetric=True)
    return float(x.probabilities @ _total_variance(mechanism, x.records, values.shape[1]))


def subsample_and_average_mean(query: Query, population: Population, n: int, k: int) -> FloatArray:
    """The mean output of definition 4.6 on every data set: b(x) = E[A(x~)], equation (4.22).

    It is the same for every number m of sub-samples, and for every base mechanism whose noise
    has mean zero. Parameters and errors as in :func:`global_subsampling_sensitivity`; the result
    has shape (M, d), in the order of ``population.data_sets(n)``.

    >>> coin = Population([0, 1], [0.5, 0.5])
    >>> subsample_and_average_mean(lambda x: x.max(axis=1), coin, n=4, k=2).ravel().round(6)
    array([0.      , 0.5     , 0.833333, 1.      , 1.      ])
    """
    big, small = both_sizes(population, n, k)
    there = values_of("query", query, small.records, symmetric=True)
    return np.concatenate([weights @ there for _, weights in subsample_weights(big, small)])


def subsample_and_average_terms(
    mechanism: OutputPerturbation, population: Population, n: int, k: int
) -> UtilityTerms:
    """The three parts of UT_2 of sub-sample-and-average, equation (3) of the module.

    They are sums over all data sets and sub-samples; Theorem 4.14 of the thesis is not used.

    The base M~ of the mechanism is run on k of n records, 1 <= k <= n. ValueError as in
    :func:`global_subsampling_sensitivity`; or if a variance is negative.

    >>> from dprl.privacy import averaging_query
    >>> coin = Population([0, 1], [0.5, 0.5])
    >>> base = OutputPerturbation(averaging_query(), lambda x: np.full(len(x), 0.04))
    >>> terms = subsample_and_average_terms(base, coin, n=20, k=5)
    >>> round(terms.noise, 12), round(terms.sampling, 12), round(terms.squared_bias, 12)
    (0.04, 0.0375, 0.0)
    """
    check.instance("mechanism", mechanism, OutputPerturbation)
    big, small = both_sizes(population, n, k)
    here, there = _answers(mechanism.query, big, small)
    noise_of = _total_variance(mechanism, small.records, there.shape[1])
    noise = sampling = bias = 0.0
    for rows, weights in subsample_weights(big, small):
        p = big.probabilities[rows]
        mean = weights @ there
        noise += float(p @ (weights @ noise_of))
        sampling += float(p @ (weights * _distances(mean, there, 2.0)).sum(axis=1))
        bias += float(p @ ((here[rows] - mean) ** 2).sum(axis=1))
    return UtilityTerms(noise, sampling, bias)


def subsample_and_average_utility(
    mechanism: OutputPerturbation, population: Population, n: int, m: ArrayLike, k: int
) -> FloatArray:
    """UT_2^(n,D) of the mechanism of definition 4.6: m runs on k of n records, averaged.

    Parameters as in :func:`subsample_and_average_terms`; m >= 1 of any shape, the shape of the
    result. Many m cost nothing, all are computed from the same terms.

    >>> from dprl.privacy import averaging_query
    >>> coin = Population([0, 1], [0.5, 0.5])
    >>> base = OutputPerturbation(averaging_query(), lambda x: np.full(len(x), 0.04))
    >>> subsample_and_average_utility(base, coin, n=20, m=[1, 10], k=5).round(12).tolist()
    [0.0775, 0.00775]
    """
    return subsample_and_average_terms(mechanism, population, n, k).utility(m)


def _mean_powers(
    query: Query, population: Population, n: int, k: int, p: float
) -> tuple[FloatArray, FloatArray]:
    """E ||A(x) - A(x~)||_p^p for every x, and the probability of x."""
    big, small = both_sizes(population, n, k)
    here, there = _answers(query, big, small)
    moved = [
        (weights * _distances(here[rows], there, p)).sum(axis=1)
        for rows, weights in subsample_weights(big, small)
    ]
    return np.concatenate(moved), big.probabilities


def _distances(a: FloatArray, b: FloatArray, p: float) -> FloatArray:
    """||a_i - b_j||_p^p for all pairs, shape (len(a), len(b))."""
    total = np.zeros((len(a), len(b)))
    for x, y in zip(a.T, b.T, strict=True):
        total += np.abs(x[:, None] - y) ** p
    return total


def _answers(query: Query, big: DataSets, small: DataSets) -> tuple[FloatArray, FloatArray]:
    """A(x) for every data set and every sub-sample, with the same number of columns."""
    there = values_of("query", query, small.records, symmetric=True)
    here = values_of("query", query, big.records, symmetric=True)
    if here.shape[1] != there.shape[1]:
        raise ValueError(
            f"the query returns {here.shape[1]} numbers for n records and {there.shape[1]} for k"
        )
    return here, there


def _total_variance(mechanism: OutputPerturbation, x: FloatArray, d: int) -> FloatArray:
    """E ||M(x) - A(x)||^2 for M data sets, shape (M,)."""
    variance = values_of("variance", mechanism.variance, x, symmetric=True)
    if variance.shape[1] not in (1, d):
        raise ValueError(
            f"the variance must have one column, or {d} like the query, got {variance.shape[1]}"
        )
    if (variance < 0).any():
        raise ValueError(f"the variance must not be negative, got minimum {variance.min()}")
    total: FloatArray = np.broadcast_to(variance, (len(x), d)).sum(axis=1)
    return total


def _power(p: float) -> float:
    x = check.real("p", p)
    if x < 1:
        raise ValueError(f"p must be at least 1, got {p!r}")
    return x
