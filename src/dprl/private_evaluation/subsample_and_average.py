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

Lemma 3.1 is proved for base epsilon <= 5. Where step 3 allows more, 5 is used: a promise
with a smaller epsilon implies one with a larger one. A base delta of 1 or more is refused: it
would promise nothing.

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
from numpy.typing import ArrayLike

from dprl import _validation as check
from dprl._validation import FloatArray, IntArray
from dprl.evaluation import lsl, lsw, regression_weights, visit_weights
from dprl.features import feature_matrix
from dprl.privacy import Guarantee, subsampling
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
from dprl.private_evaluation.subsamples import CELLS, SubsampleTable, checked_sizes, draw_blocks
from dprl.trajectories import FirstVisitReturns, VisitStatistics

Accounting = Literal["printed", "closed-form", "optimal"]

#: How the base guarantee is found: (4.9)-(4.10) of the thesis; the better closed form; the
#: largest epsilon under exact amplification and optimal composition.
ACCOUNTINGS: tuple[Accounting, ...] = ("printed", "closed-form", "optimal")

_TABLE = 256  # largest k for which psi is read from a table over all counts

Kept = dict[tuple[str, int], FloatArray]


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

    Returns
    -------
    Guarantee
        With epsilon at most 5, the range in which Lemma 3.1 is proved: a larger one is replaced
        by 5, which promises more.

    Raises
    ------
    ValueError
        If an argument is outside its range, or the accounting refuses.

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


class BaseMechanism:
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
        at_once = max(CELLS // d**2, 1)
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

    def noise(self, counts: IntArray, promise: Guarantee, kept: Kept | None = None) -> FloatArray:
        """sigma of DP-LSW or DP-LSL for each row of counts; shape (rows,).

        ``kept`` carries what does not depend on promise, features or ridge from one call to the
        next; only for the same counts and weights.
        """
        kept = {} if kept is None else kept
        tabled = self.size <= _TABLE
        width = self.size + 1 if tabled else 8 * counts.shape[1] ** 2
        at_once = max(CELLS // max(width, counts.shape[1]), 1)
        parts = {i: counts[i : i + at_once] for i in range(0, len(counts), at_once)}
        if not tabled:
            return np.concatenate([self._formula(part, promise)[0] for part in parts.values()])
        # sigma is a public constant times sqrt(psi)
        sigma, psi, beta = self._formula(np.zeros((1, counts.shape[1]), np.int64), promise)
        found = np.concatenate([self._psi(part, beta, i, kept) for i, part in parts.items()])
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

    def _psi(self, counts: IntArray, beta: float, part: int, kept: Kept) -> FloatArray:
        """psi of each row of counts, by the maximum over every distance.

        phi(v, j) is a sum over states of a function of v_s and j alone (for DP-LSL, under the
        root). So all that matters is how much weight the states with each count 0 .. k have,
        and one matrix product gives phi for all rows and all j.
        """
        each = self.size + 1
        count = np.arange(float(each))[:, None]
        if ("weight", part) not in kept:
            place = counts + each * np.arange(len(counts))[:, None]
            spread = np.broadcast_to(self.weights, counts.shape)
            cells = len(counts) * each
            total = np.bincount(place.ravel(), weights=spread.ravel(), minlength=cells)
            kept["weight", part] = np.asarray(total, dtype=np.float64).reshape(-1, each)
        weight = kept["weight", part]
        if self.ridge is None:
            j = np.arange(float(self.size))
            terms = weight @ (np.exp(-beta * j) / np.maximum(count - j, 1) ** 2)
        else:
            j = np.arange(float(each))
            step, size = return_spread(self.low, self.high)
            if ("level", part) not in kept:
                kept["level", part] = np.sqrt(weight @ np.minimum(count + j, self.size))
            c = lsl_coefficient(self.phi, self.weights, self.ridge)
            fixed = step / size * np.linalg.norm(self.weights)
            terms = np.exp(-beta * j) * (c * kept["level", part] + fixed) ** 2
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
    n, m, k = checked_sizes(len(data), subsamples, size)
    check.generator(rng)
    releases = 1 if n_releases is None else check.whole("n_releases", n_releases)
    mechanism = BaseMechanism(
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
    promise = base_promise(epsilon, delta, n, m, k, accounting=accounting, slack=slack)
    table = SubsampleTable(data, mechanism.low, mechanism.high, k)
    d = mechanism.phi.shape[1]
    mean, unvisited = np.zeros((releases, d)), np.zeros((releases, table.n_states))
    sigma = np.empty(releases * m)
    begin = 0
    for block in draw_blocks(n, releases * m, k, rng):
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


class CountedSubsamples:
    """Averages over sub-samples that are already counted, and their noise. *Not private.*

    What :func:`subsample_and_average_diagnostics` does after drawing and counting. One drawing
    then serves several base mechanisms, as in an experiment that compares them; what they have
    in common is computed once.

    Parameters
    ----------
    statistics : VisitStatistics
        Arrays of shape (m, N), one row for each sub-sample: :func:`subsample_statistics`.
    weights, f_max, f_min
        As in :func:`subsample_and_average`.

    Raises
    ------
    ValueError
        If an argument is outside its range, or the returns were not clipped to a range inside
        [f_min, f_max].

    Examples
    --------
    >>> from dprl.features import tabular
    >>> counted = VisitStatistics([[2, 1], [2, 2]], [[0.5, 1.0], [0.5, 0.5]], 2, bounds=(0, 1))
    >>> pair = CountedSubsamples(counted, [1, 1], f_max=1)
    >>> pair.mean(tabular(2)).tolist()
    [0.5, 0.75]
    """

    def __init__(
        self, statistics: VisitStatistics, weights: ArrayLike, *, f_max: float, f_min: float = 0.0
    ) -> None:
        check.instance("statistics", statistics, VisitStatistics)
        self.low, self.high = public_range(f_max, f_min)
        self.weights = weights
        self.statistics = clipped_statistics(statistics, self.low, self.high)
        if self.statistics.counts.ndim != 2:
            raise ValueError(
                "statistics must have one row for each sub-sample, "
                f"got shape {self.statistics.counts.shape}"
            )
        self._kept: Kept = {}
        self._means: dict[tuple[bytes, float | None], FloatArray] = {}

    def mean(self, features: ArrayLike, *, ridge: float | None = None) -> FloatArray:
        """(1/m) sum_i theta_i of LSW, or of LSL with this ridge; shape (d,)."""
        mechanism = self.mechanism(features, ridge)
        key = (mechanism.phi.tobytes(), mechanism.ridge)
        if key not in self._means:
            self._means[key] = mechanism.estimates(self.statistics).sum(axis=0) / len(
                self.statistics.counts
            )
        return self._means[key]

    def noise(self, features: ArrayLike, base: Guarantee, *, ridge: float | None = None) -> float:
        """s of equation (1) where each base run promises ``base``: :func:`base_promise`.

        Raises
        ------
        ValueError
            If the base promises for other neighbours.
        """
        check.instance("base", base, Guarantee)
        if base.neighbours != NEIGHBOURS:
            raise ValueError(f"base must promise for {NEIGHBOURS!r}, got {base.neighbours!r}")
        counts = self.statistics.counts
        sigma = self.mechanism(features, ridge).noise(counts, base, self._kept)
        return float(np.sqrt((sigma**2).sum()) / len(counts))  # (1)

    def mechanism(self, features: ArrayLike, ridge: float | None) -> BaseMechanism:
        """The base mechanism with these features and ridge on one of the sub-samples."""
        counted = self.statistics
        return BaseMechanism(
            counted.n_states,
            counted.n_trajectories,
            features,
            self.weights,
            ridge,
            self.low,
            self.high,
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
    accounting, slack
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
        f_min=f_min,
        improved=improved,
        allow_rank_deficient=allow_rank_deficient,
        n_releases=n_releases,
    )
    noise = inside.noise[..., None] * rng.standard_normal(inside.mean.shape)
    return PrivateEstimate(
        check.representable(inside.mean + noise), Guarantee(epsilon, delta, NEIGHBOURS)
    )
