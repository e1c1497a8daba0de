r"""Small populations whose data sets and sub-samples are enumerated, and queries on them.

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

:mod:`dprl.privacy.population_utility` has the sensitivities, the bias and the utility.

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
        n = checked_records(n, minimum=0)
        return math.comb(n + self.size - 1, n)

    def data_sets(self, n: int) -> DataSets:
        """All data sets of n >= 1 records, up to order, with their probabilities.

        Time and memory O(n C(n+r-1, n)); a ValueError says their number if there are too many.
        """
        n = checked_records(n)
        counts = multisets(self, n)
        index = np.repeat(np.tile(np.arange(self.size), len(counts)), counts.ravel())
        log_p = (
            special.gammaln(n + 1)
            - special.gammaln(counts + 1.0).sum(axis=1)
            + special.xlogy(counts, self.probabilities).sum(axis=1)
        )
        return DataSets(counts, self.records[index.reshape(len(counts), n)], np.exp(log_p))


# -- queries ----------------------------------------------------------------------------


def averaging_query(a: Query | None = None) -> Query:
    """The averaging family A_n(x) = (1/n) sum_i a(x_i): definition 4.1, corrected.

    Section 4.5 of the thesis uses this one. It contains A_1 = a, and with it
    GS_p^(n) = GS_p^(1)/n and ASB_p = 0. The function a takes records of shape (M, n) or (M, n, c),
    and returns (M, n) or (M, n, d); by default a record is its own value.

    >>> A = averaging_query(lambda x: x**2)
    >>> A(np.array([[1.0, 2.0, 3.0, 4.0]])).tolist()
    [7.5]
    """
    if a is None:
        return lambda x: np.mean(x, axis=1)
    check_callable("a", a)

    def average(x: FloatArray) -> FloatArray:
        values = np.asarray(a(x), dtype=np.float64)
        if values.ndim not in (2, 3) or values.shape[:2] != x.shape[:2]:
            raise ValueError(
                f"a must return one value per record, shape {x.shape[:2]} or one axis more, "
                f"got {values.shape}"
            )
        return np.asarray(values.mean(axis=1), dtype=np.float64)

    return average


# -- enumeration ------------------------------------------------------------------------


def multisets(population: Population, n: int, room: int | None = None) -> IntArray:
    """Counts of all multisets of n records, shape (M, r); the last record first."""
    r, total = population.size, population.n_data_sets(n)
    enough_room(
        total * max(n if room is None else room, r),
        f"{readable(total)} data sets of {n} of {r} records (as multisets)",
    )
    # stars and bars: r - 1 bars among n + r - 1 places
    bars = np.fromiter(
        itertools.chain.from_iterable(itertools.combinations(range(n + r - 1), r - 1)),
        dtype=np.int64,
        count=total * (r - 1),
    ).reshape(total, r - 1)
    edges = np.column_stack([np.full(total, -1), bars, np.full(total, n + r - 1)])
    return np.ascontiguousarray((np.diff(edges, axis=1) - 1)[::-1])


def both_sizes(population: Population, n: int, k: int) -> tuple[DataSets, DataSets]:
    """All data sets of n records and all of k, after checking that they can be compared."""
    check.instance("population", population, Population)
    n, k = checked_records(n), check.whole("k", k)
    if k > n:
        raise ValueError(f"a sub-sample has at most n = {n} records, got k = {k}")
    pairs = population.n_data_sets(n) * population.n_data_sets(k)
    enough_room(
        pairs,
        f"{readable(pairs)} pairs of a data set ({n} of {population.size} records) and a "
        f"sub-sample ({k} records)",
    )
    return population.data_sets(n), population.data_sets(k)


def subsample_weights(big: DataSets, small: DataSets) -> Iterator[tuple[slice, FloatArray]]:
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


def values_of(name: str, function: Query, x: FloatArray, symmetric: bool = False) -> FloatArray:
    """The function on M data sets, shape (M, d); checked."""
    check_callable(name, function)
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
            other = values_of(name, function, x[:, order])
            if not np.allclose(other, value, rtol=1e-9, atol=1e-9 * np.abs(value).max()):
                raise ValueError(
                    f"the {name} depends on the order of the {n} records; a sub-sample is a "
                    "set of records and has none"
                )
    return value


def checked_records(n: int, minimum: int = 1) -> int:
    n = check.whole("n", n, minimum)
    if n > MOST_RECORDS:
        raise ValueError(f"n must be at most {MOST_RECORDS} records here, got {n}")
    return n


def enough_room(entries: int, what: str) -> None:
    if entries > MOST_ENTRIES:
        raise ValueError(
            f"too much to enumerate: {what}. At most {MOST_ENTRIES:,} entries are; take fewer "
            "records, a smaller universe or smaller sub-samples"
        )


def readable(x: int) -> str:
    """An integer of any size, readable."""
    return f"{x:,}" if x < 10**15 else f"about 10^{math.log10(x):.0f}"


def check_callable(name: str, function: object) -> None:
    if not callable(function):
        raise TypeError(f"{name} must be callable, got {type(function).__name__}")
