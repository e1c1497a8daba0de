r"""Sensitivities, bias and utility under sub-sampling, exact on small populations.

Definitions 4.1 to 4.6 of the thesis speak of a set X of records, a distribution D over X,
data sets x of n records drawn from D, and sub-samples x~ of k of them, drawn uniformly
without replacement. Here X is finite and small (:class:`Population`), so every supremum is a
maximum, every expectation a sum, and nothing is sampled.

A **query** is a family: one function that takes data sets of any size, as A_n : X^n -> R^d
for n = 1, 2, ... It receives M data sets at once, an array of shape (M, n), or (M, n, c) if a
record has c entries, and returns shape (M,) or (M, d). The averaging family

    A_n(x) = (1/n) sum_i a(x_i),   a : X -> R^d                              (1)

is :func:`~dprl.privacy.averaging_query`. Definition 4.1 prints <w, .> instead; a fixed vector w
of n weights cannot be applied to the k records of a sub-sample, and is refused.

A sub-sample is a set of records, it has no order. So a query must be symmetric, that is, not
depend on the order of the records, and data sets are enumerated as multisets: with r records
in X there are C(n+r-1, n) of them, of multinomial probability

    n! prod_j p_j^{c_j} / c_j!,   c_j copies of record j,                    (2)

and a sub-sample with c'_j copies of record j has probability prod_j C(c_j, c'_j) / C(n, k).
Each query is tried on several orders of every multiset and refused if one makes a difference;
this finds most queries that depend on the order, it does not prove symmetry.

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
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy import special

from dprl import _validation as check
from dprl._validation import FloatArray, IntArray

#: Takes data sets of shape (M, n) or (M, n, c), returns shape (M,) or (M, d).
Query = Callable[[FloatArray], ArrayLike]

#: At most so many entries (data sets times records, or data sets times sub-samples).
MOST_ENTRIES = 10_000_000
#: Most records of a data set: beyond, the number of sub-samples exceeds the largest float.
MOST_RECORDS = 1_000
_CHUNK = 1_000_000


class DataSets(NamedTuple):
    """All data sets of one size, as multisets; see :meth:`Population.data_sets`.

    Attributes
    ----------
    counts : ndarray of int, shape (M, r)
        Copies of each record of the universe; rows sum to n.
    records : ndarray, shape (M, n) or (M, n, c)
        The data sets as a query receives them.
    probabilities : ndarray, shape (M,)
        Of drawing that multiset from D^n, equation (2); they sum to one.
    """

    counts: IntArray
    records: FloatArray
    probabilities: FloatArray


@dataclass(frozen=True, eq=False)
class Population:
    """A finite universe X of records and a distribution D over it.

    Parameters
    ----------
    records : array_like, shape (r,) or (r, c)
        The records; c numbers each.
    probabilities : array_like, shape (r,)
        Not negative, sum one. A record of probability zero still belongs to X, over which
        the suprema run.

    Raises
    ------
    ValueError
        If there is no record, an entry is not finite, or the probabilities are none.

    Examples
    --------
    >>> coin = Population([0, 1], [0.5, 0.5])
    >>> coin.data_sets(2).counts.tolist()
    [[2, 0], [1, 1], [0, 2]]
    >>> coin.data_sets(2).probabilities.round(12).tolist()
    [0.25, 0.5, 0.25]
    """

    records: FloatArray
    probabilities: FloatArray

    def __init__(self, records: ArrayLike, probabilities: ArrayLike) -> None:
        x = check.finite_array("records", records).copy()
        if x.ndim not in (1, 2) or x.size == 0:
            raise ValueError(f"records must have shape (r,) or (r, c), got {x.shape}")
        p = check.probability_vector("probabilities", probabilities, len(x)).copy()
        object.__setattr__(self, "records", check.frozen(x))
        object.__setattr__(self, "probabilities", check.frozen(p))

    @property
    def size(self) -> int:
        """Number of records in the universe, r."""
        return len(self.records)

    def n_data_sets(self, n: int) -> int:
        """Number of multisets of n records, C(n + r - 1, n).

        >>> Population([0, 1, 2], [0.2, 0.3, 0.5]).n_data_sets(10)
        66
        """
        n = _records(n, minimum=0)
        return math.comb(n + self.size - 1, n)

    def data_sets(self, n: int) -> DataSets:
        """All data sets of n records, up to order, with their probabilities.

        Time and memory O(n C(n+r-1, n)).

        Parameters
        ----------
        n : int
            >= 1.

        Returns
        -------
        DataSets

        Raises
        ------
        ValueError
            If there are too many to enumerate; the message has their number.
        """
        n = _records(n)
        counts = _multisets(self, n)
        index = np.repeat(np.tile(np.arange(self.size), len(counts)), counts.ravel())
        log_p = (
            special.gammaln(n + 1)
            - special.gammaln(counts + 1.0).sum(axis=1)
            + special.xlogy(counts, self.probabilities).sum(axis=1)
        )
        return DataSets(counts, self.records[index.reshape(len(counts), n)], np.exp(log_p))


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

    >>> base = OutputPerturbation(averaging_query(), lambda x: np.full(len(x), x.shape[1] ** -2.0))
    >>> round(average_utility(base, Population([0, 1], [0.5, 0.5]), n=4), 12)
    0.0625
    """

    query: Query
    variance: Query

    def __post_init__(self) -> None:
        _check_callable("query", self.query)
        _check_callable("variance", self.variance)


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
        """UT_2 of the average of m runs: (noise + sampling)/m + squared bias.

        Parameters
        ----------
        m : array_like of int
            >= 1.

        Returns
        -------
        ndarray, shape of m

        >>> UtilityTerms(noise=1.0, sampling=2.0, squared_bias=0.5).utility([1, 3]).tolist()
        [3.5, 1.5]
        """
        runs = check.finite_array("m", m)
        if (runs < 1).any() or (runs != np.floor(runs)).any():
            raise ValueError("m, the number of sub-samples, must be a whole number >= 1")
        return np.asarray((self.noise + self.sampling) / runs + self.squared_bias)


# -- queries ----------------------------------------------------------------------------


def averaging_query(a: Query | None = None) -> Query:
    """The averaging family A_n(x) = (1/n) sum_i a(x_i): definition 4.1, corrected.

    Section 4.5 of the thesis uses this one. It contains A_1 = a, and with it
    GS_p^(n) = GS_p^(1)/n and ASB_p = 0.

    Parameters
    ----------
    a : callable, optional
        Takes records of shape (M, n) or (M, n, c), and returns (M, n) or (M, n, d); by
        default a record is its own value.

    Returns
    -------
    callable

    Examples
    --------
    >>> A = averaging_query(lambda x: x**2)
    >>> A(np.array([[1.0, 2.0, 3.0, 4.0]])).tolist()
    [7.5]
    """
    if a is None:
        return lambda x: np.mean(x, axis=1)
    _check_callable("a", a)

    def average(x: FloatArray) -> FloatArray:
        values = np.asarray(a(x), dtype=np.float64)
        if values.ndim not in (2, 3) or values.shape[:2] != x.shape[:2]:
            raise ValueError(
                f"a must return one value per record, shape {x.shape[:2]} or one axis more, "
                f"got {values.shape}"
            )
        return np.asarray(values.mean(axis=1), dtype=np.float64)

    return average


# -- definitions 2.2 and 4.2 to 4.4 ------------------------------------------------------


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

    Returns
    -------
    float

    Raises
    ------
    ValueError
        If the query fails on n records, returns no finite value per data set, or depends on
        the order; or if the data sets are too many.

    Examples
    --------
    >>> coin = Population([0, 1], [0.5, 0.5])
    >>> global_sensitivity(averaging_query(), coin, n=4)
    0.25
    >>> weights = np.array([1.0, 2.0, 4.0])
    >>> global_sensitivity(lambda x: x @ weights, coin, n=3, ordered=True)
    4.0
    """
    check.instance("population", population, Population)
    n, p = _records(n), _power(p)
    r = population.size
    if ordered:
        _enough_room(r**n * n, f"{_count(r**n)} sequences of {n} of {r} records")
        index = np.indices((r,) * n).reshape(n, -1).T
        values = _values("query", query, population.records[index])
        table = values.reshape(*(r,) * n, values.shape[1])
        faces = [np.moveaxis(table, i, 0).reshape(r, -1, values.shape[1]) for i in range(n)]
    else:
        rest = _multisets(population, n - 1, room=r * n)
        index = np.repeat(np.tile(np.arange(r), len(rest)), rest.ravel()).reshape(len(rest), n - 1)
        last = [np.column_stack([index, np.full(len(rest), j)]) for j in range(r)]
        x = population.records[np.concatenate(last)]
        values = _values("query", query, x, symmetric=True)
        faces = [values.reshape(r, len(rest), values.shape[1])]
    largest = max(
        (np.abs(face[i] - face[j]) ** p).sum(axis=-1).max()
        for face in faces
        for i, j in itertools.combinations_with_replacement(range(r), 2)
    )
    return float(largest ** (1 / p))


def global_subsampling_sensitivity(
    query: Query, population: Population, n: int, k: int, p: float = 2.0
) -> float:
    """GSS_p^(n,k)(A), equation (4.1): sub-sampling at the worst data set.

    The p-th root of the largest E ||A(x) - A(x~)||_p^p, over all data sets x of the universe.

    Time O(C(n+r-1, n) C(k+r-1, k)), as for all functions of sub-samples here.

    Parameters
    ----------
    query : callable
        The family A, see the module.
    population : Population
        Its probabilities play no part.
    n, k : int
        Records of a data set and of a sub-sample, 1 <= k <= n.
    p : float
        >= 1.

    Returns
    -------
    float

    Raises
    ------
    ValueError
        If the query fails on n or on k records, or depends on the order of the records, or if
        there is too much to enumerate.

    Examples
    --------
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

    Examples
    --------
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

    Examples
    --------
    The maximum of a sub-sample misses that of the data set if the only 1 is not in it.

    >>> coin = Population([0, 1], [0.5, 0.5])
    >>> round(average_subsampling_bias(lambda x: x.max(axis=1), coin, n=2, k=1), 6)
    0.353553
    >>> average_subsampling_bias(averaging_query(), coin, n=2, k=1)
    0.0
    """
    p = _power(p)
    big, small = _both(population, n, k)
    here, there = _answers(query, big, small)
    mean = np.concatenate([weights @ there for _, weights in _subsamples(big, small)])
    return float((big.probabilities @ (np.abs(here - mean) ** p).sum(axis=1)) ** (1 / p))


# -- definitions 4.5 and 4.6 -------------------------------------------------------------


def average_utility(mechanism: OutputPerturbation, population: Population, n: int) -> float:
    """UT_2^(n,D)(M), equation (4.4): the mean squared distance of M(x) from A(x).

    Parameters
    ----------
    mechanism : OutputPerturbation
    population : Population
    n : int
        Records of a data set, >= 1.

    Returns
    -------
    float
        Noise of variance s^2 on each of d coordinates costs d s^2.

    Raises
    ------
    ValueError
        As in :func:`global_sensitivity`; or if a variance is negative.

    Examples
    --------
    >>> doubled = averaging_query(lambda x: np.stack([x, x], axis=-1))
    >>> base = OutputPerturbation(doubled, lambda x: np.full(len(x), 0.25))
    >>> average_utility(base, Population([0, 1], [0.5, 0.5]), n=3)
    0.5
    """
    check.instance("mechanism", mechanism, OutputPerturbation)
    x = population.data_sets(n)
    values = _values("query", mechanism.query, x.records, symmetric=True)
    return float(x.probabilities @ _total_variance(mechanism, x.records, values.shape[1]))


def subsample_and_average_mean(query: Query, population: Population, n: int, k: int) -> FloatArray:
    """The mean output of definition 4.6 on every data set: b(x) = E[A(x~)], equation (4.22).

    It is the same for every number m of sub-samples, and for every base mechanism whose noise
    has mean zero. Parameters and errors as in :func:`global_subsampling_sensitivity`.

    Returns
    -------
    ndarray, shape (M, d)
        In the order of ``population.data_sets(n)``.

    Examples
    --------
    >>> coin = Population([0, 1], [0.5, 0.5])
    >>> subsample_and_average_mean(lambda x: x.max(axis=1), coin, n=4, k=2).ravel().round(6)
    array([0.      , 0.5     , 0.833333, 1.      , 1.      ])
    """
    big, small = _both(population, n, k)
    there = _values("query", query, small.records, symmetric=True)
    return np.concatenate([weights @ there for _, weights in _subsamples(big, small)])


def subsample_and_average_terms(
    mechanism: OutputPerturbation, population: Population, n: int, k: int
) -> UtilityTerms:
    """The three parts of UT_2 of sub-sample-and-average, equation (3) of the module.

    They are sums over all data sets and sub-samples; Theorem 4.14 of the thesis is not used.

    Parameters
    ----------
    mechanism : OutputPerturbation
        The base M~, run on k records.
    population : Population
    n, k : int
        Records of a data set and of a sub-sample, 1 <= k <= n.

    Returns
    -------
    UtilityTerms

    Raises
    ------
    ValueError
        As in :func:`global_subsampling_sensitivity`; or if a variance is negative.

    Examples
    --------
    >>> coin = Population([0, 1], [0.5, 0.5])
    >>> base = OutputPerturbation(averaging_query(), lambda x: np.full(len(x), 0.04))
    >>> terms = subsample_and_average_terms(base, coin, n=20, k=5)
    >>> round(terms.noise, 12), round(terms.sampling, 12), round(terms.squared_bias, 12)
    (0.04, 0.0375, 0.0)
    """
    check.instance("mechanism", mechanism, OutputPerturbation)
    big, small = _both(population, n, k)
    here, there = _answers(mechanism.query, big, small)
    noise_of = _total_variance(mechanism, small.records, there.shape[1])
    noise = sampling = bias = 0.0
    for rows, weights in _subsamples(big, small):
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

    Parameters
    ----------
    mechanism, population, n, k
        As in :func:`subsample_and_average_terms`.
    m : array_like of int
        Numbers of sub-samples, >= 1; they cost nothing, all are computed from the same terms.

    Returns
    -------
    ndarray, shape of m

    Examples
    --------
    >>> coin = Population([0, 1], [0.5, 0.5])
    >>> base = OutputPerturbation(averaging_query(), lambda x: np.full(len(x), 0.04))
    >>> subsample_and_average_utility(base, coin, n=20, m=[1, 10], k=5).round(12).tolist()
    [0.0775, 0.00775]
    """
    return subsample_and_average_terms(mechanism, population, n, k).utility(m)


# -- enumeration ------------------------------------------------------------------------


def _multisets(population: Population, n: int, room: int | None = None) -> IntArray:
    """Counts of all multisets of n records, shape (M, r); the last record first."""
    r, total = population.size, population.n_data_sets(n)
    _enough_room(
        total * max(n if room is None else room, r),
        f"{_count(total)} data sets of {n} of {r} records (as multisets)",
    )
    # stars and bars: r - 1 bars among n + r - 1 places
    bars = np.fromiter(
        itertools.chain.from_iterable(itertools.combinations(range(n + r - 1), r - 1)),
        dtype=np.int64,
        count=total * (r - 1),
    ).reshape(total, r - 1)
    edges = np.column_stack([np.full(total, -1), bars, np.full(total, n + r - 1)])
    return np.ascontiguousarray((np.diff(edges, axis=1) - 1)[::-1])


def _both(population: Population, n: int, k: int) -> tuple[DataSets, DataSets]:
    """All data sets of n records and all of k, after checking that they can be compared."""
    check.instance("population", population, Population)
    n, k = _records(n), check.whole("k", k)
    if k > n:
        raise ValueError(f"a sub-sample has at most n = {n} records, got k = {k}")
    pairs = population.n_data_sets(n) * population.n_data_sets(k)
    _enough_room(
        pairs,
        f"{_count(pairs)} pairs of a data set ({n} of {population.size} records) and a "
        f"sub-sample ({k} records)",
    )
    return population.data_sets(n), population.data_sets(k)


def _subsamples(big: DataSets, small: DataSets) -> Iterator[tuple[slice, FloatArray]]:
    """P(x~ | x) for x in a slice of the data sets and every x~: shape (slice, sub-samples)."""
    n, k = int(big.counts[0].sum()), int(small.counts[0].sum())
    # Pascal's triangle: binomial(a, b), a <= n, b <= k
    choose = np.zeros((n + 1, k + 1))
    choose[:, 0] = 1.0
    for a in range(1, n + 1):
        choose[a, 1:] = choose[a - 1, 1:] + choose[a - 1, :-1]
    step = max(1, _CHUNK // len(small.counts))
    for start in range(0, len(big.counts), step):
        rows = slice(start, start + step)
        weights = np.full((len(big.counts[rows]), len(small.counts)), 1 / choose[n, k])
        for mine, theirs in zip(big.counts[rows].T, small.counts.T, strict=True):
            weights *= choose[mine[:, None], theirs]
        yield rows, weights


def _mean_powers(
    query: Query, population: Population, n: int, k: int, p: float
) -> tuple[FloatArray, FloatArray]:
    """E ||A(x) - A(x~)||_p^p for every x, and the probability of x."""
    big, small = _both(population, n, k)
    here, there = _answers(query, big, small)
    moved = [
        (weights * _distances(here[rows], there, p)).sum(axis=1)
        for rows, weights in _subsamples(big, small)
    ]
    return np.concatenate(moved), big.probabilities


def _distances(a: FloatArray, b: FloatArray, p: float) -> FloatArray:
    """||a_i - b_j||_p^p for all pairs, shape (len(a), len(b))."""
    total = np.zeros((len(a), len(b)))
    for x, y in zip(a.T, b.T, strict=True):
        total += np.abs(x[:, None] - y) ** p
    return total


def _values(name: str, function: Query, x: FloatArray, symmetric: bool = False) -> FloatArray:
    """The function on M data sets, shape (M, d); checked."""
    _check_callable(name, function)
    n = x.shape[1]
    try:
        raw = function(x)
    except Exception as error:
        raise ValueError(
            f"the {name} fails on data sets of {n} record(s): {error}. It must be a family: "
            "one function for every number of records, see dprl.privacy.populations"
        ) from error
    value = check.finite_array(f"{name}(x)", raw)
    if value.ndim == 1:
        value = value[:, None]
    if value.ndim != 2 or len(value) != len(x) or value.shape[1] == 0:
        raise ValueError(
            f"the {name} must return shape ({len(x)},) or ({len(x)}, d) for {len(x)} data "
            f"sets, got {np.shape(raw)}"
        )
    if symmetric and n > 1:
        shuffle = np.random.default_rng(n).permutation
        for order in (np.arange(n)[::-1], np.roll(np.arange(n), 1), shuffle(n), shuffle(n)):
            other = _values(name, function, x[:, order])
            if not np.allclose(other, value, rtol=1e-9, atol=1e-9 * np.abs(value).max()):
                raise ValueError(
                    f"the {name} depends on the order of the {n} records; a sub-sample is a "
                    "set of records and has none"
                )
    return value


def _answers(query: Query, big: DataSets, small: DataSets) -> tuple[FloatArray, FloatArray]:
    """A(x) for every data set and every sub-sample, with the same number of columns."""
    there = _values("query", query, small.records, symmetric=True)
    here = _values("query", query, big.records, symmetric=True)
    if here.shape[1] != there.shape[1]:
        raise ValueError(
            f"the query returns {here.shape[1]} numbers for n records and {there.shape[1]} for k"
        )
    return here, there


def _total_variance(mechanism: OutputPerturbation, x: FloatArray, d: int) -> FloatArray:
    """E ||M(x) - A(x)||^2 for M data sets, shape (M,)."""
    variance = _values("variance", mechanism.variance, x, symmetric=True)
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


def _records(n: int, minimum: int = 1) -> int:
    n = check.whole("n", n, minimum)
    if n > MOST_RECORDS:
        raise ValueError(f"n must be at most {MOST_RECORDS} records here, got {n}")
    return n


def _enough_room(entries: int, what: str) -> None:
    if entries > MOST_ENTRIES:
        raise ValueError(
            f"too much to enumerate: {what}. At most {MOST_ENTRIES:,} entries are; take fewer "
            "records, a smaller universe or smaller sub-samples"
        )


def _count(x: int) -> str:
    """An integer of any size, readable."""
    return f"{x:,}" if x < 10**15 else f"about 10^{math.log10(x):.0f}"


def _check_callable(name: str, function: object) -> None:
    if not callable(function):
        raise TypeError(f"{name} must be callable, got {type(function).__name__}")
