r"""Random sub-samples of a batch, and what the algorithms read from all of them at once.

The index sets I_1 .. I_m are independent, each uniform over the k-subsets of 0 .. n-1, and
independent of the data. How they are drawn depends on k, never on the data:

k < n/16
    Draw k indices with replacement; replace the repeated ones of a row by fresh draws, until
    none is left. A row keeps one of each value, and never draws more than it lacks: it ends with
    the first k different values of one sequence of independent uniform draws. Given those found
    so far, the next is uniform over the rest. So all k-subsets are equally likely, exactly.
otherwise
    Give each index an independent random key and take the k smallest; if the k-th and the next
    key are equal, draw the whole row again. Renaming the indices does not change the law of the
    keys, nor whether the row is drawn again: all k-subsets are equally likely, exactly.

LSW and LSL read visit counts and sums of returns only. For all sub-samples together these are
the product of the m x n matrix of memberships with the n x N tables of visits and clipped
returns: no simulation, no loop over sub-samples.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse

from dprl import _validation as check
from dprl._validation import BoolArray, FloatArray, IntArray
from dprl.private_evaluation.common import CELLS
from dprl.trajectories import FirstVisitReturns, VisitStatistics, value_range

#: Some index sets: sorted indices, shape (rows, k), or memberships, shape (rows, n).
Block = NDArray[np.int32] | BoolArray

_DENSE = 16  # sub-samples of at least n / 16 are drawn as rows of n booleans
_SLICE = 2**18  # numbers in each of several arrays that should stay in the cache
_ROWS = 2**16  # sub-samples drawn at once, at most
_EXACT = 53  # bits of a float that count exactly


def draw_subsamples(n: int, m: int, k: int, rng: np.random.Generator) -> IntArray:
    """Independent random sub-samples: each uniform over the sets of k of the n trajectories.

    Indices 0 .. n-1, shape (m, k), 1 <= k <= n; each row is sorted and holds none twice.
    O(mk log k) for k < n/16, else O(mn). Working memory besides the result is about 100 MiB at
    most, for n up to 2^21.

    Examples
    --------
    >>> draw_subsamples(5, 3, 2, np.random.default_rng(0)).shape
    (3, 2)
    """
    count, total, size = checked_sizes(n, m, k)
    check.generator(rng)
    out = np.empty((total, size), dtype=np.int64)
    begin = 0
    for block in draw_blocks(count, total, size, rng):
        end = begin + len(block)
        dense = block.dtype == bool
        out[begin:end] = np.nonzero(block)[1].reshape(-1, size) if dense else block
        begin = end
    return out


def checked_sizes(n: int, m: int, k: int) -> tuple[int, int, int]:
    """n, m and k, if they are possible sizes."""
    count, total = check.whole("n", n), check.whole("m", m)
    size = check.whole("k", k)
    if size > count:
        raise ValueError(
            f"k must not exceed n, a sub-sample is drawn without replacement: got k = {size} "
            f"and n = {count}"
        )
    if count >= 2**31:
        raise ValueError(f"n must be below 2^31, got {count}")
    return count, total, size


def draw_blocks(n: int, m: int, k: int, rng: np.random.Generator) -> Iterator[Block]:
    """The m index sets, some rows at a time: indices, or memberships for k >= n/16.

    The sizes of the blocks depend on n and k alone, and so do the random numbers.
    """
    dense = _DENSE * k >= n
    width = max(n // 16, 1) if dense else k
    at_once = int(np.clip(CELLS // width, 1, _ROWS))
    for begin in range(0, m, at_once):
        rows = min(at_once, m - begin)
        yield _dense_rows(n, k, rows, rng) if dense else _sparse_rows(n, k, rows, rng)


def _sparse_rows(n: int, k: int, rows: int, rng: np.random.Generator) -> NDArray[np.int32]:
    """By drawing repeated indices again; sorted."""
    indices = rng.integers(n, size=(rows, k), dtype=np.int32)
    indices.sort(axis=1)
    open_rows = np.arange(rows)
    while open_rows.size:
        part = indices[open_rows]
        repeated = part[:, 1:] == part[:, :-1]
        found = repeated.any(axis=1)
        open_rows, part, repeated = open_rows[found], part[found], repeated[found]
        part[:, 1:][repeated] = rng.integers(n, size=int(repeated.sum()), dtype=np.int32)
        part.sort(axis=1)
        indices[open_rows] = part
    return indices


def _dense_rows(n: int, k: int, rows: int, rng: np.random.Generator) -> BoolArray:
    """Rows of n booleans, k of them true: where a random key is among the k smallest."""
    members = np.empty((rows, n), dtype=bool)
    at_once = max(CELLS // n, 1)
    for begin in range(0, rows, at_once):
        part = members[begin : begin + at_once]
        open_rows = np.arange(len(part))
        while open_rows.size:
            words = rng.integers(2**64, size=(open_rows.size, (n + 1) // 2), dtype=np.uint64)
            keys = words.view(np.uint32)[:, :n]
            part[open_rows] = keys <= _kth_smallest(keys, k)[:, None]
            open_rows = open_rows[part[open_rows].sum(axis=1) != k]
    return members


def _kth_smallest(keys: NDArray[np.uint32], k: int) -> NDArray[np.uint32]:
    """The k-th smallest key of each row."""
    n = keys.shape[1]
    if n < 4096:
        smallest: NDArray[np.uint32] = np.partition(keys, k - 1, axis=1)[:, k - 1]
        return smallest
    # only the keys close to where the k-th is expected need to be ordered
    q = k / n
    reach = 6 * np.sqrt(q * (1 - q) / n) + 8 / n
    low, high = (np.uint32(np.clip(x * 2.0**32, 0, 2**32 - 1)) for x in (q - reach, q + reach))
    out = np.empty(len(keys), dtype=np.uint32)
    for i, row in enumerate(keys):
        near = row[(row - low) <= (high - low)]  # modulo 2^32: low <= row <= high
        rank = k - 1 - int(np.count_nonzero(row < low))
        if not 0 <= rank < near.size:
            near, rank = row, k - 1
        out[i] = np.partition(near, rank)[rank]
    return out


class SubsampleTable:
    """Clipped returns and visits of n trajectories, made to be summed over many sub-samples.

    The visits of several states share one float: with k < 2^bits, counts are the digits
    in base 2^bits of a whole number below 2^53, which floats add without error.
    """

    def __init__(self, data: FirstVisitReturns, low: float, high: float, size: int) -> None:
        self._data, self.bounds = data, (low, high)
        n, self.n_states = data.returns.shape
        self.returns = np.empty((n, self.n_states))
        for part in self._slices():
            np.clip(data.returns[part], low, high, out=self.returns[part])
            self.returns[part] *= data.visited[part]
        self.resize(size)

    def resize(self, size: int) -> None:
        """Make the table ready for sub-samples of another size; the returns stay."""
        self.size, self.bits = size, size.bit_length()
        digits = max(_EXACT // self.bits, 1)
        self.shifts = self.bits * np.arange(digits)
        state, words = np.arange(self.n_states), -(-self.n_states // digits)
        place = np.zeros((self.n_states, words))
        place[state, state // digits] = np.exp2(self.shifts[state % digits])
        self.visits = np.empty((len(self.returns), words))
        for part in self._slices():
            self.visits[part] = self._data.visited[part].astype(np.float64) @ place

    def _slices(self) -> Iterator[slice]:
        at_once = max(_SLICE // self.n_states, 1)
        for begin in range(0, len(self.returns), at_once):
            yield slice(begin, begin + at_once)

    def statistics(self, block: Block) -> Iterator[VisitStatistics]:
        """Counts and means of the sub-samples of a block, in slices of bounded size."""
        at_once = max(_SLICE // (self.n_states + self.visits.shape[1]), 1)
        if block.dtype != bool:
            at_once = min(at_once, max(CELLS // block.shape[1], 1))
        for begin in range(0, len(block), at_once):
            sums, packed = self._sums(block[begin : begin + at_once])
            digits = (packed[:, :, None].astype(np.int64) >> self.shifts) & (2**self.bits - 1)
            counts = digits.reshape(len(sums), -1)[:, : self.n_states]
            means = sums / np.maximum(counts, 1)
            yield VisitStatistics(counts, means, self.size, self.bounds)

    def _sums(self, block: Block) -> tuple[FloatArray, FloatArray]:
        """Sums of the returns, and of the packed visits, over each sub-sample."""
        rows, n = len(block), len(self.returns)
        tables = (self.returns, self.visits)
        if block.dtype == bool:
            out = [np.zeros((rows, table.shape[1])) for table in tables]
            at_once = max(CELLS // rows, 64)
            for begin in range(0, n, at_once):
                part = slice(begin, begin + at_once)
                members = block[:, part].astype(np.float64)
                for total, table in zip(out, tables, strict=True):
                    total += members @ table[part]
            return out[0], out[1]
        ends = np.arange(rows + 1, dtype=np.int32) * block.shape[1]
        chosen = sparse.csr_array((np.ones(block.size), block.ravel(), ends), shape=(rows, n))
        return np.asarray(chosen @ self.returns), np.asarray(chosen @ self.visits)

    def statistics_of(self, indices: NDArray[np.integer[Any]]) -> VisitStatistics:
        """Statistics of given index sets, shape (m, size), which are not checked again."""
        m, n = len(indices), len(self.returns)
        counts, means = np.empty((m, self.n_states), dtype=np.int64), np.empty((m, self.n_states))
        begin, dense = 0, _DENSE * self.size >= n
        at_once = max(16 * CELLS // n, 1) if dense else max(CELLS // self.size, 1)
        for first in range(0, m, at_once):
            block = indices[first : first + at_once]
            for part in self.statistics(_members(block, n) if dense else block.astype(np.int32)):
                end = begin + len(part.counts)
                counts[begin:end], means[begin:end] = part.counts, part.mean_returns
                begin = end
        return VisitStatistics(counts, means, self.size, self.bounds)


def subsample_statistics(
    data: FirstVisitReturns, indices: ArrayLike, bounds: tuple[float, float]
) -> VisitStatistics:
    """Visit counts and average returns (m, N) of every sub-sample. *Not private.*

    Indices (m, k) are the members of each, in 0 .. n-1, none twice in a row; each return is clipped
    to the public range ``bounds``, [f_min, f_max], before averaging. O(mkN) time, O(mnN) by matrix
    products for k >= n/16.

    Examples
    --------
    >>> data = FirstVisitReturns([[2.0, 0.0], [0.4, 0.2]], [[True, False], [True, True]])
    >>> pairs = subsample_statistics(data, [[0, 1], [1, 0]], (0.0, 1.0))
    >>> pairs.counts.tolist(), pairs.mean_returns.tolist()
    ([[2, 1], [2, 1]], [[0.7, 0.2], [0.7, 0.2]])
    """
    check.instance("data", data, FirstVisitReturns)
    low, high = value_range(*bounds)
    rows = _checked_indices(indices, len(data))
    return SubsampleTable(data, low, high, rows.shape[1]).statistics_of(rows)


def _members(indices: NDArray[np.integer[Any]], n: int) -> BoolArray:
    members = np.zeros((len(indices), n), dtype=bool)
    np.put_along_axis(members, indices, True, axis=1)
    return members


def _checked_indices(indices: ArrayLike, n: int) -> NDArray[np.int32]:
    try:
        rows = check.unmasked("indices", indices)
    except ValueError as error:
        raise ValueError(f"indices must be one array (m, k): {error}") from None
    if rows.ndim != 2 or rows.size == 0:
        raise ValueError(f"indices must have shape (m, k) and not be empty, got {rows.shape}")
    if not np.issubdtype(rows.dtype, np.integer):
        raise TypeError(f"indices must be integers, got {rows.dtype}")
    if rows.min() < 0 or rows.max() >= n:
        raise ValueError(f"indices must lie in 0 .. {n - 1}, got {rows.min()} .. {rows.max()}")
    small = rows.astype(np.int32)
    at_once = max(CELLS // small.shape[1], 1)
    for begin in range(0, len(small), at_once):
        part = np.sort(small[begin : begin + at_once], axis=1)
        if (part[:, 1:] == part[:, :-1]).any():
            raise ValueError("indices must not repeat within a sub-sample")
    return small
