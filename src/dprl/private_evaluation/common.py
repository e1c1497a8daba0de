"""What DP-LSW and DP-LSL share: the release, its noise, clipping, the range of returns."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import KW_ONLY, dataclass

import numpy as np
from numpy.typing import ArrayLike

from dprl import _validation as check
from dprl._validation import FloatArray
from dprl.features import feature_matrix
from dprl.privacy import GaussianSmoothing, Guarantee
from dprl.privacy.gaussian_dp import gaussian_mu
from dprl.privacy.guarantee import REPLACE_ONE_TRAJECTORY
from dprl.trajectories import FirstVisitReturns, VisitStatistics, value_range

#: Of all algorithms here; the number of trajectories is public.
NEIGHBOURS = REPLACE_ONE_TRAJECTORY

LARGEST_RETURN = 1e100  # largest size of f_min and f_max
CELLS = 2**21  # numbers in one working array


@dataclass(frozen=True, eq=False)
class PrivateEstimate:
    """A release: noisy parameters theta (..., d), of values Phi theta, and what they promise.

    The guarantee holds for each batch of the leading axes separately.
    """

    theta: FloatArray
    guarantee: Guarantee


@dataclass(frozen=True, eq=False)
class Noise:
    """How DP-LSW or DP-LSL chose its noise. *Not private* if the counts come from data.

    Attributes
    ----------
    alpha, beta : float
        Constants of Lemma 3.1; public.
    norm : float
        ||(Gamma^{1/2} Phi)^+|| of DP-LSW, ||Phi|| of DP-LSL; public.
    psi, distance, sigma : ndarray, shape (...)
        psi(v), the k that attains it, and the noise of each parameter: functions of the data.
    """

    alpha: float
    beta: float
    norm: float
    psi: FloatArray
    distance: FloatArray
    sigma: FloatArray


@dataclass(frozen=True, eq=False)
class LeastSquares(ABC):
    """LSW or LSL on returns in a public range, and what a private release must know of it.

    All of it must be chosen without looking at the data.

    Attributes
    ----------
    features : array_like, shape (N, d)
        Phi.
    weights : array_like, shape (N,)
        One public weight for each state.
    f_max, f_min : float
        Public range of the returns, f_max > 0, f_min < f_max; in the thesis f_min = 0 and
        f_max = R_max / (1 - gamma).
    """

    features: FloatArray
    weights: FloatArray
    _: KW_ONLY
    f_max: float
    f_min: float = 0.0

    def __post_init__(self) -> None:
        low, high = public_range(self.f_max, self.f_min)
        phi = feature_matrix(self.features)
        w = check.weight_vector("weights", self.weights, phi.shape[0])
        for name, value in (("features", phi), ("weights", w), ("f_min", low), ("f_max", high)):
            object.__setattr__(self, name, value)

    @abstractmethod
    def theta(self, statistics: VisitStatistics) -> FloatArray:
        """The estimate without noise; shape (..., d)."""

    def thetas(self, statistics: VisitStatistics) -> FloatArray:
        """The same for many batches in rows, in bounded memory."""
        return self.theta(statistics)

    @abstractmethod
    def noise(
        self, counts: ArrayLike, n_trajectories: int, *, epsilon: float, delta: float
    ) -> Noise:
        """The noise of DP-LSW or DP-LSL for visit counts (..., N), data or planned. *Not private.*

        If the counts are data, it must not be published beside a release. ``n_trajectories`` is
        the size of the batch, without which LSW does; epsilon in (0, 5], delta in (0, 1).
        """

    @abstractmethod
    def psi_of_masses(
        self, masses: FloatArray, beta: float, kept: dict[str, FloatArray] | None = None
    ) -> FloatArray:
        """psi of batches of k trajectories, where masses (rows, k + 1) weigh each count.

        phi(v, j) is (for LSL: under the root) a sum over states of a function of v_s and j alone:
        one matrix product for all rows and all j. ``kept`` may hold it from one call with the same
        masses to the next.
        """

    @abstractmethod
    def global_sensitivity(self, n_trajectories: int) -> float:
        """Bound on the sup over all neighbours of ||theta_X - theta_X'||; public.

        Of batches of ``n_trajectories``, on which that of LSW does not depend.
        """


def released(
    estimator: LeastSquares,
    statistics: VisitStatistics,
    epsilon: float,
    delta: float,
    rng: np.random.Generator,
) -> PrivateEstimate:
    """The estimate of clipped statistics plus the noise that keeps (epsilon, delta)."""
    theta = estimator.theta(statistics)
    noise = estimator.noise(
        statistics.counts, statistics.n_trajectories, epsilon=epsilon, delta=delta
    )
    constants = GaussianSmoothing(epsilon, delta, theta.shape[-1])
    noisy = constants.perturb(theta, noise.sigma, rng)
    return PrivateEstimate(noisy, Guarantee(epsilon, delta, NEIGHBOURS))


def return_spread(f_min: float, f_max: float) -> tuple[float, float]:
    """D and F: the largest change of a return, and its largest size, for returns in [f_min, f_max].

    D = max(f_max - f_min, |f_min|, |f_max|) when one trajectory is replaced by another, visited or
    not: a state that a trajectory does not visit contributes 0, so the range that counts always
    includes 0. F = max(|f_min|, |f_max|). The thesis (Lemma 3.4) has f_min = 0, hence D = f_max;
    for |r| <= R_max its constant must be doubled, D = 2 R_max / (1 - gamma).

    Examples
    --------
    >>> return_spread(0.0, 1.0), return_spread(-1.0, 1.0)
    ((1.0, 1.0), (2.0, 1.0))
    """
    low, high = value_range(f_min, f_max)
    size = max(abs(low), abs(high))
    return max(high - low, size), size


def promised_mu(guarantee: Guarantee) -> float:
    """The mu of Gaussian privacy that keeps a promise, which must be for :data:`NEIGHBOURS`."""
    check.instance("guarantee", guarantee, Guarantee)
    if guarantee.neighbours != NEIGHBOURS:
        raise ValueError(f"the guarantee must be for neighbours that {NEIGHBOURS!r}")
    return gaussian_mu(guarantee.epsilon, guarantee.delta)


def public_range(f_max: float, f_min: float) -> tuple[float, float]:
    """f_min and f_max if f_max > 0, f_min < f_max, and sums of returns cannot overflow."""
    high, low = check.positive("f_max", f_max), check.real("f_min", f_min)
    if low >= high:
        raise ValueError(f"f_min must be below f_max, got f_min = {f_min!r}, f_max = {f_max!r}")
    if max(-low, high) > LARGEST_RETURN:
        raise ValueError(
            f"f_min and f_max must lie within {LARGEST_RETURN:g}, got {f_min!r} and {f_max!r}"
        )
    return low, high


def clipped_statistics(
    data: FirstVisitReturns | VisitStatistics, f_min: float, f_max: float
) -> VisitStatistics:
    """Counts and averages of returns that are provably in [f_min, f_max].

    Clipping an average does not bound what one trajectory can do: such averages are refused.
    """
    if isinstance(data, FirstVisitReturns):
        return data.statistics((f_min, f_max))
    if not isinstance(data, VisitStatistics):
        raise TypeError(
            f"data must be FirstVisitReturns or VisitStatistics, got {type(data).__name__}"
        )
    if data.bounds is None or data.bounds[0] < f_min or data.bounds[1] > f_max:
        raise ValueError(
            f"the returns were clipped to {data.bounds}, which is not inside [{f_min:g}, "
            f"{f_max:g}]; clip every single return before averaging: "
            "FirstVisitReturns.statistics((f_min, f_max))"
        )
    return data


def integers_around(points: FloatArray, first: int, last: float) -> FloatArray:
    """Floor and ceiling of each point, clipped to [first, last]; last axis doubled."""
    both = np.concatenate([np.floor(points), np.ceil(points)], axis=-1)
    return np.asarray(np.minimum(np.maximum(both, first), last), dtype=np.float64)


def distances_to_try(points: FloatArray, last: float) -> FloatArray:
    """0, and the integers around each point, clipped to [0, last]; shape (..., 2 N + 1)."""
    ends = integers_around(points, 0, last)
    return np.concatenate([np.zeros_like(ends[..., :1]), ends], axis=-1)


def largest_term(terms: FloatArray, k: FloatArray) -> tuple[FloatArray, FloatArray]:
    """The largest term in the last axis, and the first k that gives it."""
    if terms.ndim == 1:
        at = terms.argmax()
        return terms[..., at], k[..., at]
    best = terms.argmax(axis=-1)[..., None]
    return (
        np.take_along_axis(terms, best, axis=-1)[..., 0],
        np.take_along_axis(k, best, axis=-1)[..., 0],
    )
