r"""Sub-sample and average: run a private evaluation on random sub-samples, release the mean.

Algorithm 3 of the thesis, repaired. X are n trajectories, m the number of sub-samples, k
their size; (eps*, delta*) is what the whole promises, (eps, delta) what each run of the
base mechanism DP-LSW or DP-LSL promises on its k trajectories:

1. find (eps, delta) from (eps*, delta*), n, m and k
   (:func:`~dprl.private_evaluation.base_promise`);
2. draw m index sets I_1 .. I_m, each k of n without replacement, independent of one
   another and of the data (:func:`~dprl.private_evaluation.draw_subsamples`);
3. release theta = (1/m) sum_i M(X_{I_i}), M the base mechanism at (eps, delta).

The printed algorithm does not say how i moves, averages inside the loop, and returns another
symbol than it computes; its "adaptive" choice of m and k must not look at the data.

**Promise.** theta is (eps*, delta*)-differentially private, neighbours replace one
trajectory; n, m, k, Phi, the weights, the ridge and the range of returns are public.

1. On batches of k trajectories M is (eps, delta)-private under "replace one trajectory".
   If X and X' differ in one trajectory, so do X_I and X'_I where I contains its index;
   otherwise X_I = X'_I.
2. Hence one run on a fresh random index set is (ln(1 + q (e^eps - 1)), q delta)-private,
   q = k/n (Balle, Barthe and Gaboardi 2018, theorem 9).
3. The m runs use independent index sets and independent noise, and none depends on the
   output of another, so any composition theorem bounds the tuple of all m outputs;
   :func:`~dprl.private_evaluation.base_promise` chooses (eps, delta) so that the bound is
   at most (eps*, delta*).
4. The mean is a function of the tuple: post-processing.

Lemma 3.1 is proved for base epsilon <= 5. Where step 1 allows more, 5 is used: a promise
with a smaller epsilon implies one with a larger one.

**Computation.** LSW and LSL read visit counts and sums of returns only. For all sub-samples
at once these are the product of the m x n matrix of memberships with the n x N tables of
visits and clipped returns: no simulation, no loop over sub-samples. Given the index sets and
the data, the m noises are independent Gaussians, so their mean is one Gaussian,

    theta = (1/m) sum_i theta_i + N(0, s^2 I),    s = (1/m) sqrt(sum_i sigma_i^2),      (1)

and is drawn as one: the same law.

**Average then perturb** (:func:`~dprl.private_evaluation.average_then_perturb`, the blue curves
of figures 4.2 and 4.3) averages without noise and releases once. For given index sets let b be
the largest number of them that contain one index. Replacing that trajectory changes at most b
of the m estimates, each by at most the global sensitivity G of the base estimate
(:mod:`dprl.private_evaluation.global_sensitivity`), so

    || (1/m) sum_i theta_i - (1/m) sum_i theta'_i ||_2 <= (b/m) G.                        (2)

Gaussian noise for sensitivity (2) makes the release (eps*, delta*)-private for each choice of
the index sets. They do not depend on the data, and a mixture with data-independent weights of
private releases is private with the same parameters. For m disjoint blocks b = 1: the
sample-and-aggregate method of Nissim, Raskhodnikova and Smith (2007) with the mean.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse

from dprl import _validation as check
from dprl._validation import BoolArray, FloatArray, IntArray
from dprl.evaluation import lsl, lsw, regression_weights, visit_weights
from dprl.features import feature_matrix
from dprl.privacy import Guarantee, analytic_gaussian_sigma, subsampling
from dprl.privacy.smooth_sensitivity import LARGEST_EPSILON
from dprl.private_evaluation.common import (
    NEIGHBOURS,
    PrivateEstimate,
    clipped_statistics,
    public_range,
    return_spread,
)
from dprl.private_evaluation.dp_lsl import dp_lsl_diagnostics, lsl_coefficient
from dprl.private_evaluation.dp_lsw import dp_lsw_diagnostics
from dprl.private_evaluation.global_sensitivity import (
    lsl_sensitivity_bound,
    lsw_global_sensitivity,
)
from dprl.trajectories import FirstVisitReturns, VisitStatistics, value_range

Accounting = Literal["printed", "closed-form", "optimal"]

#: How the base guarantee is found: (4.9)-(4.10) of the thesis; the better closed form; the
#: largest epsilon under exact amplification and optimal composition.
ACCOUNTINGS: tuple[Accounting, ...] = ("printed", "closed-form", "optimal")

_DENSE = 16  # sub-samples of at least n / 16 are kept as rows of booleans
_CELLS = 2**21  # numbers in one working array
_SLICE = 2**18  # numbers in each of several arrays that should stay in the cache
_ROWS = 2**16  # sub-samples drawn at once, at most
_TABLE = 256  # largest k for which psi is read from a table over all counts
_EXACT = 53  # bits of a float that count exactly


# -- index sets ---------------------------------------------------------------------------


def draw_subsamples(n: int, m: int, k: int, rng: np.random.Generator) -> IntArray:
    """m independent index sets, each uniform over the subsets of size k of 0 .. n-1.

    Parameters
    ----------
    n, m, k : int
        Records, sub-samples, records in a sub-sample; m >= 1, 1 <= k <= n.
    rng : numpy.random.Generator
        Source of randomness.

    Returns
    -------
    ndarray of int, shape (m, k)
        Each row is sorted and holds no index twice.

    Raises
    ------
    ValueError
        If k exceeds n.

    Notes
    -----
    For k < n/16, O(mk log k): indices are drawn with replacement and the repeated ones of
    each row drawn again, until none is left. At every stage the set of distinct values
    has a law that does not change when indices are renamed, so the final set of size k is
    uniform. For larger k, O(mn): the k smallest of n random keys; a row with a tie at
    the k-th key is drawn again. Working memory besides the result is about 100 MiB at most,
    for n up to 2^21.

    Examples
    --------
    >>> draw_subsamples(5, 3, 2, np.random.default_rng(0)).shape
    (3, 2)
    """
    count, total, size = _sizes(n, m, k)
    check.generator(rng)
    out = np.empty((total, size), dtype=np.int64)
    begin = 0
    for block in _blocks(count, total, size, rng):
        rows = _as_indices(block, size)
        out[begin : begin + len(rows)] = rows
        begin += len(rows)
    return out


def _blocks(
    n: int, m: int, k: int, rng: np.random.Generator
) -> Iterator[NDArray[np.int32] | BoolArray]:
    """The m index sets in blocks of rows: indices (rows, k), or members (rows, n) if k is large.

    The sizes of the blocks depend on n and k alone, and so do the random numbers.
    """
    dense = _DENSE * k >= n
    width = max(n // 16, 1) if dense else k
    at_once = int(np.clip(_CELLS // width, 1, _ROWS))
    for begin in range(0, m, at_once):
        rows = min(at_once, m - begin)
        yield _dense_rows(n, k, rows, rng) if dense else _sparse_rows(n, k, rows, rng)


def _sparse_rows(n: int, k: int, rows: int, rng: np.random.Generator) -> NDArray[np.int32]:
    """Sorted rows of k distinct indices, by drawing repeated ones again."""
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
    at_once = max(_CELLS // n, 1)
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


def _as_indices(block: NDArray[np.int32] | BoolArray, k: int) -> IntArray:
    if block.dtype == bool:
        return np.nonzero(block)[1].reshape(len(block), k)
    return block.astype(np.int64)


def _as_members(block: NDArray[np.int32], n: int) -> BoolArray:
    members = np.zeros((len(block), n), dtype=bool)
    np.put_along_axis(members, block, True, axis=1)
    return members


def _sizes(n: int, m: int, k: int) -> tuple[int, int, int]:
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


# -- counts and sums of every sub-sample --------------------------------------------------


class _Table:
    """Clipped returns and visits of n trajectories, made to be summed over many sub-samples.

    The visits of several states share one float: with k < 2^bits, counts are the digits
    in base 2^bits of a whole number below 2^53, which floats add without error.
    """

    def __init__(self, data: FirstVisitReturns, low: float, high: float, size: int) -> None:
        n, self.n_states = data.returns.shape
        self.size, self.bounds = size, (low, high)
        self.bits = size.bit_length()
        digits = max(_EXACT // self.bits, 1)
        self.shifts = self.bits * np.arange(digits)
        state, words = np.arange(self.n_states), -(-self.n_states // digits)
        place = np.zeros((self.n_states, words))
        place[state, state // digits] = np.exp2(self.shifts[state % digits])
        self.rows = np.empty((n, self.n_states + words))
        at_once = max(_SLICE // self.n_states, 1)
        for begin in range(0, n, at_once):
            part = slice(begin, begin + at_once)
            visited = data.visited[part].astype(np.float64)
            np.clip(data.returns[part], low, high, out=self.rows[part, : self.n_states])
            self.rows[part, : self.n_states] *= visited
            self.rows[part, self.n_states :] = visited @ place

    def statistics(self, block: NDArray[np.integer] | BoolArray) -> Iterator[VisitStatistics]:
        """Counts and means of the sub-samples of a block, in slices of bounded size."""
        at_once = max(_SLICE // self.rows.shape[1], 1)
        if block.dtype != bool:
            at_once = min(at_once, max(_CELLS // block.shape[1], 1))
        for begin in range(0, len(block), at_once):
            sums = self._sums(block[begin : begin + at_once])
            whole = sums[:, self.n_states :, None].astype(np.int64)
            digits = (whole >> self.shifts) & (2**self.bits - 1)
            counts = digits.reshape(len(sums), -1)[:, : self.n_states]
            means = sums[:, : self.n_states] / np.maximum(counts, 1)
            yield VisitStatistics(counts, means, self.size, self.bounds)

    def _sums(self, block: NDArray[np.integer] | BoolArray) -> FloatArray:
        rows, n = len(block), len(self.rows)
        if block.dtype == bool:
            out = np.zeros((rows, self.rows.shape[1]))
            at_once = max(_CELLS // rows, 64)
            for begin in range(0, n, at_once):
                part = slice(begin, begin + at_once)
                out += block[:, part].astype(np.float64) @ self.rows[part]
            return out
        k = block.shape[1]
        if k == 1:
            return self.rows[block[:, 0]]
        ends = np.arange(rows + 1, dtype=np.int32) * k
        members = sparse.csr_array((np.ones(rows * k), block.ravel(), ends), shape=(rows, n))
        return np.asarray(members @ self.rows)


def subsample_statistics(
    data: FirstVisitReturns, indices: ArrayLike, bounds: tuple[float, float]
) -> VisitStatistics:
    """Visit counts and average returns of every sub-sample. *Not private.*

    Parameters
    ----------
    data : FirstVisitReturns
        n trajectories; each return is clipped before averaging.
    indices : array_like of int, shape (m, k)
        Members of each sub-sample, in 0 .. n-1, none twice in a row.
    bounds : (float, float)
        Public range [f_min, f_max] of the returns.

    Returns
    -------
    VisitStatistics
        Arrays of shape (m, N); k trajectories each.

    Raises
    ------
    TypeError
        If data are averages already, or the indices are not integers.
    ValueError
        If an index is outside the batch or twice in a row, or the range is not one.

    Notes
    -----
    O(mkN) time, O(mnN) by matrix products for k >= n/16; the result needs 16 mN bytes.

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
    m, k = rows.shape
    table = _Table(data, low, high, k)
    counts = np.empty((m, table.n_states), dtype=np.int64)
    means = np.empty((m, table.n_states))
    begin, dense = 0, _DENSE * k >= len(data)
    at_once = max(16 * _CELLS // len(data), 1) if dense else m
    for first in range(0, m, at_once):
        block = rows[first : first + at_once]
        members = _as_members(block, len(data)) if dense else block
        for part in table.statistics(members):
            end = begin + len(part.counts)
            counts[begin:end], means[begin:end] = part.counts, part.mean_returns
            begin = end
    return VisitStatistics(counts, means, k, (low, high))


def _checked_indices(indices: ArrayLike, n: int) -> NDArray[np.int32]:
    try:
        rows = np.asarray(indices)
    except ValueError as error:
        raise ValueError(f"indices must be one array (m, k): {error}") from None
    if rows.ndim != 2 or rows.size == 0:
        raise ValueError(f"indices must have shape (m, k) and not be empty, got {rows.shape}")
    if not np.issubdtype(rows.dtype, np.integer):
        raise TypeError(f"indices must be integers, got {rows.dtype}")
    if rows.min() < 0 or rows.max() >= n:
        raise ValueError(f"indices must lie in 0 .. {n - 1}, got {rows.min()} .. {rows.max()}")
    small = rows.astype(np.int32)
    for begin in range(0, len(small), max(_CELLS // small.shape[1], 1)):
        part = np.sort(small[begin : begin + max(_CELLS // small.shape[1], 1)], axis=1)
        if (part[:, 1:] == part[:, :-1]).any():
            raise ValueError("indices must not repeat within a sub-sample")
    return small


# -- the base mechanism -------------------------------------------------------------------


def base_promise(
    epsilon: float,
    delta: float,
    n: int,
    m: int,
    k: int,
    *,
    accounting: Accounting = "printed",
    slack: float | None = None,
    base: tuple[float, float] | None = None,
) -> Guarantee:
    """What each base run must promise so that all m together keep (epsilon, delta).

    Public numbers only. Neighbours replace one trajectory, for the whole and for the base.

    Parameters
    ----------
    epsilon, delta : float
        eps* > 0 and delta* in (0, 1).
    n, m, k : int
        Trajectories, sub-samples, trajectories in a sub-sample.
    accounting : {"printed", "closed-form", "optimal"}
        :func:`~dprl.privacy.subsampling.base_guarantee_printed`, the thesis's own (4.9)-(4.10);
        :func:`~dprl.privacy.subsampling.base_guarantee`;
        :func:`~dprl.privacy.subsampling.base_guarantee_optimal`, its base delta chosen for
        the least alpha of Lemma 3.1.
    slack : float, optional
        delta' of advanced composition; by default delta/2. Not for "optimal".
    base : (float, float), optional
        A base guarantee to use in place of the accounting's. It is refused unless exact
        amplification and optimal composition show that it keeps the promise.

    Returns
    -------
    Guarantee
        With epsilon at most 5, the range in which Lemma 3.1 is proved: a larger one is replaced
        by 5, which promises more.

    Raises
    ------
    ValueError
        If the accounting refuses, or the given base does not keep the promise.

    Examples
    --------
    >>> base = base_promise(1.0, 1e-5, n=10_000, m=100, k=1000)
    >>> round(base.epsilon, 4), round(base.delta, 9)
    (0.0886, 4.58e-07)
    >>> better = base_promise(1.0, 1e-5, n=10_000, m=100, k=1000, accounting="optimal")
    >>> round(better.epsilon, 3)
    0.236
    """
    count, total, size = _sizes(n, m, k)
    eps, tail = check.positive("epsilon", epsilon), check.open_unit("delta", delta)
    if base is not None:
        if slack is not None:
            raise ValueError("a given base guarantee needs no slack")
        pair = _checked_base(base, eps, tail, count, total, size)
        return Guarantee(*pair, NEIGHBOURS)
    if accounting not in ACCOUNTINGS:
        raise ValueError(f"accounting must be one of {ACCOUNTINGS}, got {accounting!r}")
    if accounting == "optimal" and slack is not None:
        raise ValueError("optimal composition has no slack")
    one_epsilon, one_delta = _accounted(eps, tail, count, total, size, accounting, slack)
    return Guarantee(min(one_epsilon, LARGEST_EPSILON), one_delta, NEIGHBOURS)


@lru_cache(maxsize=1024)
def _accounted(
    epsilon: float,
    delta: float,
    n: int,
    m: int,
    k: int,
    accounting: Accounting,
    slack: float | None,
) -> tuple[float, float]:
    if accounting == "optimal":
        return subsampling.base_guarantee_optimal(epsilon, delta, n, m, k, noise=_smoothing_noise)
    exact = accounting == "closed-form"
    granted = subsampling.base_guarantee if exact else subsampling.base_guarantee_printed
    return granted(epsilon, delta, n, m, k, slack)


def _smoothing_noise(epsilon: float, delta: float) -> float:
    """alpha of Lemma 3.1 up to its constant, with epsilon capped where its proof ends."""
    return float(np.sqrt(np.log(2 / delta)) / min(epsilon, LARGEST_EPSILON))


def _checked_base(
    base: tuple[float, float], epsilon: float, delta: float, n: int, m: int, k: int
) -> tuple[float, float]:
    if not isinstance(base, tuple) or len(base) != 2:
        raise ValueError(f"base must be a pair (epsilon, delta), got {base!r}")
    one = check.positive("base epsilon", base[0]), check.open_unit("base delta", base[1])
    if one[0] > LARGEST_EPSILON:
        raise ValueError(
            f"base epsilon must be at most {LARGEST_EPSILON:g}, where Lemma 3.1 is proved, "
            f"got {one[0]!r}"
        )
    spent = subsampling.optimal_composition_delta(*subsampling.amplified(*one, k / n), m, epsilon)
    if spent > delta * (1 + 1e-9):
        raise ValueError(
            f"base {one} on {m} sub-samples of {k} of {n} has delta = {spent:g} at epsilon = "
            f"{epsilon:g}: more than the {delta:g} promised"
        )
    return one


class _Base:
    """LSW or LSL on sub-samples of one size, and the noise of DP-LSW or DP-LSL for it."""

    def __init__(
        self,
        n_states: int,
        size: int,
        features: ArrayLike,
        weights: ArrayLike,
        ridge: float | None,
        f_min: float,
        f_max: float,
        *,
        improved: bool = False,
        allow_rank_deficient: bool = False,
    ) -> None:
        self.low, self.high = public_range(f_max, f_min)
        self.size = size
        self.phi = feature_matrix(features, n_states)
        self.ridge = None if ridge is None else check.positive("ridge", ridge)
        self.improved, self.deficient = improved, allow_rank_deficient
        if self.ridge is None:
            if improved:
                raise ValueError("improved belongs to DP-LSL: give a ridge")
            self.weights = check.weight_vector("weights", weights, n_states)
        else:
            if allow_rank_deficient:
                raise ValueError("allow_rank_deficient belongs to DP-LSW: a ridge needs no rank")
            self.weights = regression_weights(weights, n_states)
        self.separate = bool(((self.phi != 0).sum(axis=1) <= 1).all())

    def estimates(self, statistics: VisitStatistics) -> FloatArray:
        """LSW or LSL of each sub-sample, without noise; shape (rows, d)."""
        if self.ridge is None:
            return lsw(statistics, self.phi, self.weights, allow_rank_deficient=self.deficient)
        if self.separate:  # Phi' Gamma_X Phi is diagonal: no equations to solve
            gamma = visit_weights(statistics, self.weights)
            diagonal = gamma @ self.phi**2 + self.ridge / (2 * self.size)
            out: FloatArray = (gamma * statistics.mean_returns) @ self.phi / diagonal
            return out
        d, rows = self.phi.shape[1], len(statistics.counts)
        at_once = max(_CELLS // d**2, 1)
        parts = (
            VisitStatistics(
                statistics.counts[i : i + at_once],
                statistics.mean_returns[i : i + at_once],
                statistics.n_trajectories,
                statistics.bounds,
            )
            for i in range(0, rows, at_once)
        )
        return np.concatenate([lsl(part, self.phi, self.weights, self.ridge) for part in parts])

    def noise(self, counts: IntArray, promise: Guarantee) -> FloatArray:
        """sigma of DP-LSW or DP-LSL for each row of counts; shape (rows,)."""
        tabled = self.size <= _TABLE
        width = self.size + 1 if tabled else 8 * counts.shape[1] ** 2
        at_once = max(_CELLS // max(width, counts.shape[1]), 1)
        parts = (counts[i : i + at_once] for i in range(0, len(counts), at_once))
        if not tabled:
            return np.concatenate([self._formula(part, promise)[0] for part in parts])
        # sigma is a public constant times sqrt(psi)
        sigma, psi, beta = self._formula(np.zeros((1, counts.shape[1]), np.int64), promise)
        found = np.concatenate([self._psi(part, beta) for part in parts])
        out: FloatArray = sigma / np.sqrt(psi) * np.sqrt(found)
        return out

    def sensitivity(self) -> float:
        """Bound on how far one trajectory moves the estimate, whatever the data."""
        if self.ridge is None:
            return lsw_global_sensitivity(
                self.phi,
                self.weights,
                f_max=self.high,
                f_min=self.low,
                allow_rank_deficient=self.deficient,
            )
        return lsl_sensitivity_bound(
            self.phi, self.weights, self.ridge, self.size, f_max=self.high, f_min=self.low
        )

    def _formula(
        self, counts: IntArray, promise: Guarantee
    ) -> tuple[FloatArray, FloatArray, float]:
        """sigma, psi and beta by the base mechanism's own function."""
        epsilon, delta = promise.epsilon, promise.delta
        if self.ridge is None:
            lsw_noise = dp_lsw_diagnostics(
                counts,
                self.phi,
                self.weights,
                f_max=self.high,
                f_min=self.low,
                epsilon=epsilon,
                delta=delta,
                allow_rank_deficient=self.deficient,
            )
            return lsw_noise.sigma, lsw_noise.psi, lsw_noise.beta
        noise = dp_lsl_diagnostics(
            counts,
            self.size,
            self.phi,
            self.weights,
            self.ridge,
            f_max=self.high,
            f_min=self.low,
            epsilon=epsilon,
            delta=delta,
            improved=self.improved,
        )
        return noise.sigma, noise.psi, noise.beta

    def _psi(self, counts: IntArray, beta: float) -> FloatArray:
        """psi of each row of counts, by the maximum over every distance.

        phi(v, j) is a sum over states of a function of v_s and j alone (for DP-LSL, under the
        root). So all that matters is how much weight the states with each count 0 .. k have,
        and one matrix product gives phi for all rows and all j.
        """
        each = self.size + 1
        place = counts + each * np.arange(len(counts))[:, None]
        spread = np.broadcast_to(self.weights, counts.shape)
        cells = len(counts) * each
        total = np.bincount(place.ravel(), weights=spread.ravel(), minlength=cells)
        weight = np.asarray(total, dtype=np.float64).reshape(-1, each)
        count = np.arange(float(each))[:, None]
        if self.ridge is None:
            j = np.arange(float(self.size))
            terms = weight @ (np.exp(-beta * j) / np.maximum(count - j, 1) ** 2)
        else:
            j = np.arange(float(each))
            step, size = return_spread(self.low, self.high)
            level = weight @ np.minimum(count + j, self.size)
            c = lsl_coefficient(self.phi, self.weights, self.ridge)
            fixed = step / size * np.linalg.norm(self.weights)
            terms = np.exp(-beta * j) * (c * np.sqrt(level) + fixed) ** 2
        out: FloatArray = terms.max(axis=1)
        return out


# -- the mechanisms -----------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class SubsampleDiagnostics:
    """What happens inside sub-sample-and-average before the noise. *Not private.*

    Attributes
    ----------
    base : Guarantee
        What each base run promises; public.
    mean : ndarray, shape (..., d)
        (1/m) sum_i theta_i, the average of the estimates without noise.
    sigma : ndarray, shape (..., m)
        Noise of each base run.
    noise : ndarray, shape (...)
        s of equation (1), the standard deviation of the released average.
    unvisited : ndarray, shape (..., N)
        Share of the sub-samples without a visit to each state.
    """

    base: Guarantee
    mean: FloatArray
    sigma: FloatArray
    noise: FloatArray
    unvisited: FloatArray


def subsample_and_average_diagnostics(
    data: FirstVisitReturns,
    features: ArrayLike,
    weights: ArrayLike,
    *,
    subsamples: int,
    size: int,
    f_max: float,
    epsilon: float,
    delta: float,
    rng: np.random.Generator,
    ridge: float | None = None,
    slack: float | None = None,
    accounting: Accounting = "printed",
    base: tuple[float, float] | None = None,
    f_min: float = 0.0,
    improved: bool = False,
    allow_rank_deficient: bool = False,
    n_releases: int | None = None,
) -> SubsampleDiagnostics:
    """The average without noise and the noise of it, for fresh sub-samples. *Not private.*

    Parameters and errors as :func:`subsample_and_average`, which draws the same sub-samples
    from a generator in the same state and adds the noise.

    Examples
    --------
    >>> from dprl.features import tabular
    >>> data = FirstVisitReturns(np.full((50, 2), 0.5), np.ones((50, 2), dtype=bool))
    >>> inside = subsample_and_average_diagnostics(
    ...     data, tabular(2), [1, 1], subsamples=100, size=5, f_max=1,
    ...     epsilon=1, delta=0.01, rng=np.random.default_rng(1),
    ... )
    >>> inside.mean.tolist(), inside.sigma.shape
    ([0.5, 0.5], (100,))
    """
    check.instance("data", data, FirstVisitReturns)
    n, m, k = _sizes(len(data), subsamples, size)
    check.generator(rng)
    releases = 1 if n_releases is None else check.whole("n_releases", n_releases)
    mechanism = _Base(
        data.returns.shape[1],
        k,
        features,
        weights,
        ridge,
        f_min,
        f_max,
        improved=improved,
        allow_rank_deficient=allow_rank_deficient,
    )
    promise = base_promise(epsilon, delta, n, m, k, accounting=accounting, slack=slack, base=base)
    table = _Table(data, mechanism.low, mechanism.high, k)
    d = mechanism.phi.shape[1]
    mean, unvisited = np.zeros((releases, d)), np.zeros((releases, table.n_states))
    sigma = np.empty(releases * m)
    begin = 0
    for block in _blocks(n, releases * m, k, rng):
        for part in table.statistics(block):
            end = begin + len(part.counts)
            sigma[begin:end] = mechanism.noise(part.counts, promise)
            _accumulate(mean, mechanism.estimates(part), begin, m)
            _accumulate(unvisited, (part.counts == 0).astype(np.float64), begin, m)
            begin = end
    each = sigma.reshape(releases, m)
    noise = np.sqrt((each**2).sum(axis=1)) / m  # (1)
    arrays = (mean / m, each, noise, unvisited / m)
    if n_releases is None:
        return SubsampleDiagnostics(promise, *(np.asarray(a[0]) for a in arrays))
    return SubsampleDiagnostics(promise, *arrays)


def subsample_estimates(
    statistics: VisitStatistics,
    features: ArrayLike,
    weights: ArrayLike,
    *,
    ridge: float | None = None,
    allow_rank_deficient: bool = False,
) -> FloatArray:
    """LSW or LSL on every sub-sample, without noise. *Not private.*

    As :func:`~dprl.evaluation.lsw` and :func:`~dprl.evaluation.lsl`, with memory and time for
    a million sub-samples: no equations are solved where states share parameters.

    Parameters
    ----------
    statistics : VisitStatistics
        Arrays of shape (m, N).
    features, weights, ridge, allow_rank_deficient
        As in :func:`average_then_perturb`.

    Returns
    -------
    ndarray, shape (m, d)

    Examples
    --------
    >>> from dprl.features import tabular
    >>> counted = VisitStatistics([[2, 1], [2, 2]], [[0.5, 1.0], [0.5, 0.5]], 2)
    >>> subsample_estimates(counted, tabular(2), [1, 1], ridge=4.0).round(3).tolist()
    [[0.25, 0.333], [0.25, 0.25]]
    """
    check.instance("statistics", statistics, VisitStatistics)
    mechanism = _Base(
        statistics.n_states,
        statistics.n_trajectories,
        features,
        weights,
        ridge,
        0.0,
        1.0,
        allow_rank_deficient=allow_rank_deficient,
    )
    if statistics.counts.ndim != 2:
        raise ValueError(
            f"statistics must have one row for each sub-sample, got {statistics.counts.shape}"
        )
    return mechanism.estimates(statistics)


def average_diagnostics(
    statistics: VisitStatistics,
    features: ArrayLike,
    weights: ArrayLike,
    *,
    base: Guarantee,
    f_max: float,
    ridge: float | None = None,
    f_min: float = 0.0,
    improved: bool = False,
    allow_rank_deficient: bool = False,
) -> SubsampleDiagnostics:
    """The average and its noise for sub-samples that are already counted. *Not private.*

    What :func:`subsample_and_average_diagnostics` does after drawing and counting. One drawing
    then serves several base mechanisms, as in an experiment that compares them.

    Parameters
    ----------
    statistics : VisitStatistics
        Arrays of shape (m, N), one row for each sub-sample: :func:`subsample_statistics`.
    base : Guarantee
        What each base run promises: :func:`base_promise`.
    features, weights, f_max, ridge, f_min, improved, allow_rank_deficient
        As in :func:`subsample_and_average`.

    Raises
    ------
    ValueError
        If an argument is outside its range, the base promises for other neighbours, or the
        returns were not clipped to a range inside [f_min, f_max].

    Examples
    --------
    >>> from dprl.features import tabular
    >>> counted = VisitStatistics([[2, 1], [2, 2]], [[0.5, 1.0], [0.5, 0.5]], 2, bounds=(0, 1))
    >>> base = base_promise(1.0, 0.01, n=20, m=2, k=2)
    >>> average_diagnostics(counted, tabular(2), [1, 1], base=base, f_max=1).mean.tolist()
    [0.5, 0.75]
    """
    check.instance("statistics", statistics, VisitStatistics)
    check.instance("base", base, Guarantee)
    if base.neighbours != NEIGHBOURS:
        raise ValueError(f"base must promise for {NEIGHBOURS!r}, got {base.neighbours!r}")
    mechanism = _Base(
        statistics.n_states,
        statistics.n_trajectories,
        features,
        weights,
        ridge,
        f_min,
        f_max,
        improved=improved,
        allow_rank_deficient=allow_rank_deficient,
    )
    counted = clipped_statistics(statistics, mechanism.low, mechanism.high)
    if counted.counts.ndim != 2:
        raise ValueError(
            f"statistics must have one row for each sub-sample, got shape {counted.counts.shape}"
        )
    m = len(counted.counts)
    sigma = mechanism.noise(counted.counts, base)
    return SubsampleDiagnostics(
        base,
        mechanism.estimates(counted).sum(axis=0) / m,
        sigma,
        np.asarray(np.sqrt((sigma**2).sum()) / m),  # (1)
        (counted.counts == 0).mean(axis=0),
    )


def _accumulate(total: FloatArray, values: FloatArray, begin: int, m: int) -> None:
    """Add rows begin, begin + 1, .. to the release that they belong to, m rows each."""
    first, last = begin // m, (begin + len(values) - 1) // m
    starts = np.maximum(np.arange(first, last + 1) * m - begin, 0)
    total[first : last + 1] += np.add.reduceat(values, starts, axis=0)


def subsample_and_average(
    data: FirstVisitReturns,
    features: ArrayLike,
    weights: ArrayLike,
    *,
    subsamples: int,
    size: int,
    f_max: float,
    epsilon: float,
    delta: float,
    rng: np.random.Generator,
    ridge: float | None = None,
    slack: float | None = None,
    accounting: Accounting = "printed",
    base: tuple[float, float] | None = None,
    f_min: float = 0.0,
    improved: bool = False,
    allow_rank_deficient: bool = False,
    n_releases: int | None = None,
) -> PrivateEstimate:
    """The mean of DP-LSW or DP-LSL on random sub-samples: thesis, Algorithm 3, repaired.

    Neighbours replace one trajectory; all arguments other than ``data`` are public and must be
    chosen without looking at the data, m and k included.

    Parameters
    ----------
    data : FirstVisitReturns
        n trajectories. Single returns, clipped here: averages cannot be sub-sampled.
    features : array_like, shape (N, d)
        Phi.
    weights : array_like, shape (N,)
        w >= 0 of DP-LSW, or rho in [0, 1] of DP-LSL.
    subsamples, size : int
        m >= 1 and 1 <= k <= n.
    f_max, f_min : float
        Public range of the returns, f_max > 0, f_min < f_max.
    epsilon, delta : float
        The promise (eps*, delta*) of the release.
    rng : numpy.random.Generator
        Index sets and noise. For study only: floating-point noise is not safe for a release.
    ridge : float, optional
        None: the base is DP-LSW. Else lambda of DP-LSL on k trajectories.
    accounting, slack, base
        How the base guarantee follows from the promise: :func:`base_promise`.
    improved : bool
        DP-LSL with less noise, as in :func:`~dprl.private_evaluation.dp_lsl`.
    allow_rank_deficient : bool
        DP-LSW only, as in :func:`~dprl.private_evaluation.dp_lsw`.
    n_releases : int, optional
        Repeat the whole, index sets included, this many times. Each release keeps the promise
        by itself; all together do not. For audits and error bars.

    Returns
    -------
    PrivateEstimate
        theta of shape (d,), or (n_releases, d).

    Raises
    ------
    TypeError
        If data are averages, or an argument has the wrong type.
    ValueError
        If an argument is outside its range, or the accounting refuses the promise: "printed"
        and "closed-form" need mk so large that the base delta is below 1, "printed" also
        epsilon <= 4 ln(1/slack).

    Notes
    -----
    O(mkN), or O(mnN) by matrix products for k >= n/16, and O(mN^2) for the noise, less for
    k <= 256. Memory: a table of at most 2nN numbers, m more, and less than 100 MiB.

    Examples
    --------
    >>> from dprl.features import tabular
    >>> data = FirstVisitReturns(np.full((50, 2), 0.5), np.ones((50, 2), dtype=bool))
    >>> release = subsample_and_average(
    ...     data, tabular(2), [1, 1], subsamples=100, size=5, f_max=1,
    ...     epsilon=1, delta=0.01, rng=np.random.default_rng(1),
    ... )
    >>> print(release.theta.shape, release.guarantee)
    (2,) (1, 0.01)-differentially private; neighbours: replace one trajectory
    """
    inside = subsample_and_average_diagnostics(
        data,
        features,
        weights,
        subsamples=subsamples,
        size=size,
        f_max=f_max,
        epsilon=epsilon,
        delta=delta,
        rng=rng,
        ridge=ridge,
        slack=slack,
        accounting=accounting,
        base=base,
        f_min=f_min,
        improved=improved,
        allow_rank_deficient=allow_rank_deficient,
        n_releases=n_releases,
    )
    noise = inside.noise[..., None] * rng.standard_normal(inside.mean.shape)
    return PrivateEstimate(inside.mean + noise, Guarantee(epsilon, delta, NEIGHBOURS))


@dataclass(frozen=True, eq=False)
class AverageDiagnostics:
    """What happens inside average-then-perturb before the noise. *Not private.*

    Attributes
    ----------
    mean : ndarray, shape (d,)
        (1/m) sum_i theta_i: a function of the data.
    inclusions : int
        b, the largest number of sub-samples with one trajectory in common; public.
    sensitivity : float
        (b/m) G of equation (2); public.
    noise : float
        Standard deviation of the noise; public.
    """

    mean: FloatArray
    inclusions: int
    sensitivity: float
    noise: float


Design = Literal["random", "partition"]


def average_then_perturb_diagnostics(
    data: FirstVisitReturns,
    features: ArrayLike,
    weights: ArrayLike,
    *,
    subsamples: int,
    size: int,
    f_max: float,
    epsilon: float,
    delta: float,
    rng: np.random.Generator,
    ridge: float | None = None,
    design: Design = "random",
    f_min: float = 0.0,
    allow_rank_deficient: bool = False,
) -> AverageDiagnostics:
    """The average without noise, and the noise of it, for fresh index sets. *Not private.*

    Parameters and errors as :func:`average_then_perturb`, which draws the same index sets
    from a generator in the same state and adds the noise.

    Examples
    --------
    >>> from dprl.features import tabular
    >>> data = FirstVisitReturns(np.full((50, 4), 0.5), np.ones((50, 4), dtype=bool))
    >>> inside = average_then_perturb_diagnostics(
    ...     data, tabular(4), [1] * 4, subsamples=10, size=5, f_max=1, design="partition",
    ...     epsilon=1, delta=0.01, rng=np.random.default_rng(1),
    ... )
    >>> inside.inclusions, inside.sensitivity
    (1, 0.2)
    """
    check.instance("data", data, FirstVisitReturns)
    n, m, k = _sizes(len(data), subsamples, size)
    check.generator(rng)
    mechanism = _Base(
        data.returns.shape[1],
        k,
        features,
        weights,
        ridge,
        f_min,
        f_max,
        allow_rank_deficient=allow_rank_deficient,
    )
    one = mechanism.sensitivity()
    eps, tail = check.positive("epsilon", epsilon), check.open_unit("delta", delta)
    table = _Table(data, mechanism.low, mechanism.high, k)
    total = np.zeros(mechanism.phi.shape[1])
    included = np.zeros(n, dtype=np.int64)
    for block in _designed(n, m, k, design, rng):
        if block.dtype == bool:
            included += block.sum(axis=0)
        else:
            included += np.bincount(block.ravel(), minlength=n)
        for part in table.statistics(block):
            total += mechanism.estimates(part).sum(axis=0)
    most = int(included.max())
    sensitivity = most / m * one  # (2)
    noise = sensitivity * _unit_noise(eps, tail)
    return AverageDiagnostics(total / m, most, sensitivity, noise)


@lru_cache(maxsize=1024)
def _unit_noise(epsilon: float, delta: float) -> float:
    return analytic_gaussian_sigma(1.0, epsilon, delta)


def _designed(
    n: int, m: int, k: int, design: Design, rng: np.random.Generator
) -> Iterator[NDArray[np.integer] | BoolArray]:
    if design == "random":
        return _blocks(n, m, k, rng)
    if design != "partition":
        raise ValueError(f"design must be 'random' or 'partition', got {design!r}")
    if m * k > n:
        raise ValueError(
            f"a partition has at most floor(n / k) = {n // k} sub-samples of {k}, got {m}"
        )
    return iter([rng.permutation(n)[: m * k].reshape(m, k)])


def average_then_perturb(
    data: FirstVisitReturns,
    features: ArrayLike,
    weights: ArrayLike,
    *,
    subsamples: int,
    size: int,
    f_max: float,
    epsilon: float,
    delta: float,
    rng: np.random.Generator,
    ridge: float | None = None,
    design: Design = "random",
    f_min: float = 0.0,
    allow_rank_deficient: bool = False,
) -> PrivateEstimate:
    """LSW or LSL on sub-samples without noise, their mean, and one Gaussian release of it.

    The noise follows from equation (2) and the analytic Gaussian mechanism: it depends on the
    index sets, not on the data. The proof is in the module's text.

    Parameters
    ----------
    data : FirstVisitReturns
        n trajectories; single returns, clipped here.
    features : array_like, shape (N, d)
        Phi.
    weights : array_like, shape (N,)
        w >= 0 of LSW, or rho in [0, 1] of LSL.
    subsamples, size : int
        m >= 1 and 1 <= k <= n; m k <= n for a partition.
    f_max, f_min : float
        Public range of the returns, f_max > 0, f_min < f_max.
    epsilon, delta : float
        The promise; epsilon > 0, delta in (0, 1).
    rng : numpy.random.Generator
        For study only: floating-point noise is not safe for a release.
    ridge : float, optional
        None: LSW. Else lambda of LSL on k trajectories, > 0.
    design : {"random", "partition"}
        m independent index sets, or m disjoint blocks of a random permutation.
    allow_rank_deficient : bool
        LSW only, as in :func:`~dprl.evaluation.lsw`.

    Returns
    -------
    PrivateEstimate
        theta of shape (d,); neighbours replace one trajectory.

    Raises
    ------
    TypeError
        If data are averages, or an argument has the wrong type.
    ValueError
        If an argument is outside its range, or a partition does not fit.

    Examples
    --------
    >>> from dprl.features import tabular
    >>> data = FirstVisitReturns(np.full((50, 2), 0.5), np.ones((50, 2), dtype=bool))
    >>> release = average_then_perturb(
    ...     data, tabular(2), [1, 1], subsamples=10, size=5, f_max=1, design="partition",
    ...     epsilon=1, delta=0.01, rng=np.random.default_rng(1),
    ... )
    >>> print(release.guarantee)
    (1, 0.01)-differentially private; neighbours: replace one trajectory
    """
    inside = average_then_perturb_diagnostics(
        data,
        features,
        weights,
        subsamples=subsamples,
        size=size,
        f_max=f_max,
        epsilon=epsilon,
        delta=delta,
        rng=rng,
        ridge=ridge,
        design=design,
        f_min=f_min,
        allow_rank_deficient=allow_rank_deficient,
    )
    noise = inside.noise * rng.standard_normal(inside.mean.shape)
    return PrivateEstimate(inside.mean + noise, Guarantee(epsilon, delta, NEIGHBOURS))
