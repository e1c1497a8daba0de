r"""Sub-sample and average: run a private evaluation on random sub-samples, release the mean.

Algorithm 3 of the thesis, repaired. X are n trajectories, m the number of sub-samples, k
their size; the whole promises (eps*, delta*), each run of the base mechanism, DP-LSW or DP-LSL,
(eps, delta) on its k trajectories:

1. find (eps, delta) from (eps*, delta*), n, m and k
   (:func:`~dprl.private_evaluation.base_promise`);
2. draw m index sets I_1 .. I_m, each k of n without replacement, independent of one
   another and of the data (:func:`~dprl.private_evaluation.draw_subsamples`);
3. release theta = (1/m) sum_i M(X_{I_i}), M the base mechanism at (eps, delta).

The printed algorithm does not say how i moves, averages inside the loop, and returns another
symbol than it computes; its "adaptive" choice of m and k must not look at the data.

**Promise.** theta is (eps*, delta*)-differentially private, neighbours replace one
trajectory; n, m, k, Phi, the weights, the ridge and the range of returns are public. The
index sets are secret: publishing them breaks the promise.

1. On batches of k trajectories M is (eps, delta)-private under "replace one trajectory", and
   does not depend on their order. If X and X' differ in one trajectory, so do X_I and X'_I
   where I contains its index; otherwise X_I = X'_I.
2. Hence one run on a fresh uniform index set is (ln(1 + q (e^eps - 1)), q delta)-private,
   q = k/n (Balle, Barthe and Gaboardi 2018, theorem 9).
3. The m runs use independent index sets and independent noise, and none depends on the
   output of another, so any composition theorem bounds the tuple of all m outputs;
   :func:`~dprl.private_evaluation.base_promise` chooses (eps, delta) so that the bound is
   at most (eps*, delta*).
4. The mean is a function of the tuple: post-processing.

Lemma 3.1 is proved for base epsilon <= 5. Where step 3 allows more, 5 is used, which promises
more. A base delta of 1 or more, which promises nothing, is refused.

**Computation.** Counts and averages of all sub-samples come from matrix products
(:mod:`dprl.private_evaluation.subsamples`). Given the index sets and the data, the m noises
are independent Gaussians, so their mean is one Gaussian,

    theta = (1/m) sum_i theta_i + N(0, s^2 I),    s = (1/m) sqrt(sum_i sigma_i^2),      (1)

and is drawn as one: the same law.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

import numpy as np

from dprl import _validation as check
from dprl._validation import FloatArray, IntArray
from dprl.features import feature_matrix
from dprl.privacy import Guarantee, subsampling
from dprl.privacy.smooth_sensitivity import LARGEST_EPSILON
from dprl.private_evaluation.common import (
    CELLS,
    NEIGHBOURS,
    LeastSquares,
    PrivateEstimate,
    clipped_statistics,
)
from dprl.private_evaluation.subsamples import SubsampleTable, checked_sizes, draw_blocks
from dprl.trajectories import FirstVisitReturns, VisitStatistics

Accounting = Literal["printed", "closed-form", "optimal"]

#: How the base guarantee is found: see :func:`base_promise`.
ACCOUNTINGS: tuple[Accounting, ...] = ("printed", "closed-form", "optimal")

_TABLE = 256  # largest k for which psi is read from a table over all counts

# of some sub-samples: the weight of the states with each count, and what an estimator keeps
Kept = dict[tuple[bytes, int], tuple[FloatArray, dict[str, FloatArray]]]


@dataclass(frozen=True)
class Draws:
    """How many random sub-samples are drawn, of how many trajectories, and how they are accounted.

    m = ``subsamples`` independent ones of k = ``size`` trajectories, 1 <= k <= n.
    All must be chosen without looking at the data; ``accounting`` as in :func:`base_promise`.
    """

    subsamples: int
    size: int
    accounting: Accounting = "printed"


# -- the base mechanism -------------------------------------------------------------------


def base_promise(
    epsilon: float,
    delta: float,
    n: int,
    m: int,
    k: int,
    *,
    accounting: Accounting = "printed",
) -> Guarantee:
    """What each base run must promise so that all m together keep (epsilon, delta).

    Neighbours replace one trajectory, for the whole and for the base. ValueError if the
    accounting refuses.

    Parameters
    ----------
    epsilon, delta : float
        eps* > 0 and delta* in (0, 1).
    n, m, k : int
        Trajectories, sub-samples, trajectories in a sub-sample.
    accounting : {"printed", "closed-form", "optimal"}
        :func:`~dprl.privacy.subsampling.base_guarantee_printed`, the thesis's own (4.9)-(4.10);
        :func:`~dprl.privacy.subsampling.base_guarantee`, the better closed form;
        :func:`~dprl.privacy.subsampling.base_guarantee_optimal`, exact amplification and optimal
        composition, its base delta chosen for the least alpha of Lemma 3.1.

    Examples
    --------
    >>> base = base_promise(1.0, 1e-5, n=10_000, m=100, k=1000)
    >>> round(base.epsilon, 4), round(base.delta, 9)
    (0.0886, 4.58e-07)
    >>> better = base_promise(1.0, 1e-5, n=10_000, m=100, k=1000, accounting="optimal")
    >>> round(better.epsilon, 3)
    0.236
    """
    count, total, size = checked_sizes(n, m, k)
    eps, tail = check.positive("epsilon", epsilon), check.open_unit("delta", delta)
    if accounting not in ACCOUNTINGS:
        raise ValueError(f"accounting must be one of {ACCOUNTINGS}, got {accounting!r}")
    one_epsilon, one_delta = _accounted(eps, tail, count, total, size, accounting)
    return Guarantee(min(one_epsilon, LARGEST_EPSILON), one_delta, NEIGHBOURS)


@lru_cache(maxsize=1024)
def _accounted(
    epsilon: float, delta: float, n: int, m: int, k: int, accounting: Accounting
) -> tuple[float, float]:
    if accounting == "optimal":
        return subsampling.base_guarantee_optimal(epsilon, delta, n, m, k, noise=_smoothing_noise)
    exact = accounting == "closed-form"
    granted = subsampling.base_guarantee if exact else subsampling.base_guarantee_printed
    return granted(epsilon, delta, n, m, k)


def _smoothing_noise(epsilon: float, delta: float) -> float:
    """alpha of Lemma 3.1 up to its constant, with epsilon capped where its proof ends."""
    return float(np.sqrt(np.log(2 / delta)) / min(epsilon, LARGEST_EPSILON))


def base_noise(
    estimator: LeastSquares, counts: IntArray, size: int, base: Guarantee, kept: Kept | None = None
) -> FloatArray:
    """sigma of DP-LSW or DP-LSL for each sub-sample of k = ``size``; shape (rows,). *Not private.*

    ``counts`` (rows, N) are the visits in each. ``kept`` takes what depends on counts and weights
    alone from one call with the same counts to the next.
    """
    kept = {} if kept is None else kept
    promise = {"epsilon": base.epsilon, "delta": base.delta}
    n_states = counts.shape[1]
    tabled = size <= _TABLE
    at_once = max(CELLS // max(size + 1 if tabled else 8 * n_states**2, n_states), 1)
    parts = {i: counts[i : i + at_once] for i in range(0, len(counts), at_once)}
    if not tabled:
        return np.concatenate([estimator.noise(x, size, **promise).sigma for x in parts.values()])
    # sigma is a public constant times sqrt(psi)
    one = estimator.noise(np.zeros((1, n_states), np.int64), size, **promise)
    psi = []
    for i, part in parts.items():
        key = estimator.weights.tobytes(), i
        if key not in kept:
            kept[key] = _masses(part, estimator.weights, size), {}
        masses, products = kept[key]
        psi.append(estimator.psi_of_masses(masses, one.beta, products))
    return one.sigma / np.sqrt(one.psi) * np.sqrt(np.concatenate(psi))


def _masses(counts: IntArray, weights: FloatArray, size: int) -> FloatArray:
    """Total weight of the states with each count 0 .. size; shape (rows, size + 1)."""
    each = size + 1
    place = counts + each * np.arange(len(counts))[:, None]
    spread = np.broadcast_to(weights, counts.shape).ravel()
    total = np.bincount(place.ravel(), weights=spread, minlength=len(counts) * each)
    return np.asarray(total, dtype=np.float64).reshape(-1, each)


# -- the mechanisms -----------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class SubsampleDiagnostics:
    """What happens inside sub-sample-and-average before the noise. *Not private.*

    Attributes
    ----------
    base : Guarantee
        What each base run promises; public.
    mean, sigma : ndarray, shapes (..., d) and (..., m)
        (1/m) sum_i theta_i, without noise, and the noise of each base run.
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
    estimator: LeastSquares,
    draws: Draws,
    *,
    epsilon: float,
    delta: float,
    rng: np.random.Generator,
    n_releases: int | None = None,
) -> SubsampleDiagnostics:
    """The average without noise and the noise of it, for fresh sub-samples. *Not private.*

    Parameters, errors and sub-samples, given a generator in the same state, as in
    :func:`subsample_and_average`, which adds the noise.
    """
    check.instance("data", data, FirstVisitReturns)
    check.instance("estimator", estimator, LeastSquares)
    check.instance("draws", draws, Draws)
    n, m, k = checked_sizes(len(data), draws.subsamples, draws.size)
    check.generator(rng)
    releases = 1 if n_releases is None else check.whole("n_releases", n_releases)
    promise = base_promise(epsilon, delta, n, m, k, accounting=draws.accounting)
    table = SubsampleTable(data, estimator.f_min, estimator.f_max, k)
    phi = feature_matrix(estimator.features, table.n_states)
    mean, unvisited = np.zeros((releases, phi.shape[1])), np.zeros((releases, table.n_states))
    sigma = np.empty(releases * m)
    begin = 0
    for block in draw_blocks(n, releases * m, k, rng):
        for part in table.statistics(block):
            end = begin + len(part.counts)
            sigma[begin:end] = base_noise(estimator, part.counts, k, promise)
            _accumulate(mean, estimator.thetas(part), begin, m)
            _accumulate(unvisited, (part.counts == 0).astype(np.float64), begin, m)
            begin = end
    each = sigma.reshape(releases, m)
    noise = np.sqrt((each**2).sum(axis=1)) / m  # (1)
    arrays = (mean / m, each, noise, unvisited / m)
    if n_releases is None:
        return SubsampleDiagnostics(promise, *(np.asarray(a[0]) for a in arrays))
    return SubsampleDiagnostics(promise, *arrays)


class CountedSubsamples:
    """Averages over sub-samples that are already counted, and their noise. *Not private.*

    One drawing, ``statistics`` of shape (m, N), then serves several estimators, and what they have
    in common is computed once.

    Examples
    --------
    >>> from dprl.features import tabular
    >>> from dprl.private_evaluation import LSW
    >>> counted = VisitStatistics([[2, 1], [2, 2]], [[0.5, 1.0], [0.5, 0.5]], 2, bounds=(0, 1))
    >>> CountedSubsamples(counted).mean(LSW(tabular(2), [1, 1], f_max=1)).tolist()
    [0.5, 0.75]
    """

    def __init__(self, statistics: VisitStatistics) -> None:
        check.instance("statistics", statistics, VisitStatistics)
        if statistics.counts.ndim != 2:
            raise ValueError(
                "statistics must have one row for each sub-sample, "
                f"got shape {statistics.counts.shape}"
            )
        self.statistics = statistics
        self._kept: Kept = {}
        self._means: dict[LeastSquares, FloatArray] = {}

    def mean(self, estimator: LeastSquares) -> FloatArray:
        """(1/m) sum_i theta_i, shape (d,); the returns must be clipped to the estimator's range."""
        if estimator not in self._means:
            counted = clipped_statistics(self.statistics, estimator.f_min, estimator.f_max)
            total = estimator.thetas(counted).sum(axis=0)
            self._means[estimator] = total / len(counted.counts)
        return self._means[estimator]

    def noise(self, estimator: LeastSquares, base: Guarantee) -> float:
        """s of equation (1) where each base run promises ``base``, from :func:`base_promise`."""
        check.instance("base", base, Guarantee)
        if base.neighbours != NEIGHBOURS:
            raise ValueError(f"base must promise for {NEIGHBOURS!r}, got {base.neighbours!r}")
        counts, size = self.statistics.counts, self.statistics.n_trajectories
        sigma = base_noise(estimator, counts, size, base, self._kept)
        return float(np.sqrt((sigma**2).sum()) / len(counts))  # (1)


def _accumulate(total: FloatArray, values: FloatArray, begin: int, m: int) -> None:
    """Add rows begin, begin + 1, .. to the release that they belong to, m rows each."""
    first, last = begin // m, (begin + len(values) - 1) // m
    starts = np.maximum(np.arange(first, last + 1) * m - begin, 0)
    total[first : last + 1] += np.add.reduceat(values, starts, axis=0)


def subsample_and_average(
    data: FirstVisitReturns,
    estimator: LeastSquares,
    draws: Draws,
    *,
    epsilon: float,
    delta: float,
    rng: np.random.Generator,
    n_releases: int | None = None,
) -> PrivateEstimate:
    """The mean of DP-LSW or DP-LSL on random sub-samples: thesis, Algorithm 3, repaired.

    All arguments other than ``data`` are public and must be chosen without looking at the data.

    Parameters
    ----------
    data : FirstVisitReturns
        n trajectories. Single returns, clipped here: averages cannot be sub-sampled.
    estimator : LSW or LSL
        Its ridge is that of LSL on k trajectories.
    draws : Draws
        m, k and the accounting.
    epsilon, delta : float
        The promise (eps*, delta*).
    rng : numpy.random.Generator
        Index sets and noise. For study only: floating-point noise is not safe for a release.
    n_releases : int, optional
        Repeat the whole, index sets included, this many times. Each release keeps the promise
        by itself; all together do not. For audits and error bars.

    Returns
    -------
    PrivateEstimate
        theta of shape (d,), or (n_releases, d); neighbours replace one trajectory.

    Raises
    ------
    ValueError
        Also if the accounting refuses the promise: "printed" and "closed-form" need mk so large
        that the base delta is below 1, "printed" also epsilon <= 4 ln(2/delta).

    Notes
    -----
    O(mkN), or O(mnN) by matrix products for k >= n/16, and O(mN^2) for the noise, less for
    k <= 256. Memory: a table of at most 2nN numbers, m more, and less than 100 MiB.

    Examples
    --------
    >>> from dprl.features import tabular
    >>> from dprl.private_evaluation import LSW
    >>> data = FirstVisitReturns(np.full((50, 2), 0.5), np.ones((50, 2), dtype=bool))
    >>> lsw, draws, rng = LSW(tabular(2), [1, 1], f_max=1), Draws(100, 5), np.random.default_rng(1)
    >>> print(subsample_and_average(data, lsw, draws, epsilon=1, delta=0.01, rng=rng).guarantee)
    (1, 0.01)-differentially private; neighbours: replace one trajectory
    """
    inside = subsample_and_average_diagnostics(
        data, estimator, draws, epsilon=epsilon, delta=delta, rng=rng, n_releases=n_releases
    )
    noise = inside.noise[..., None] * rng.standard_normal(inside.mean.shape)
    return PrivateEstimate(
        check.representable(inside.mean + noise), Guarantee(epsilon, delta, NEIGHBOURS)
    )
