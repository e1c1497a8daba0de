r"""What is computed without data before a private round: a working model, a shape and a radius.

A *working model* is a family of Markov reward processes, theta -> process. It is public, or fitted
to what has been released. It tells how large residuals are likely to be, and nothing else rests on
it: if it is wrong, a release is less accurate and as private as before.

*Shape.* A round releases the mean of n vectors u clipped to ||S^{-1/2} u|| <= R, with noise of
covariance (2 R / (mu n))^2 S. Were the radius the root of the mean of ||S^{-1/2} u||^{2q} to the
power 1/q, then S would best minimise tr(S) E[||S^{-1/2} u||^{2q}]^{1/q}; setting the derivative to
zero gives

    S proportional to E[ ||S^{-1/2} u||^{2(q-1)} u u' ]^{1/2}.                          (1)

q = 1 is the shape of Aumüller et al. (2024), the square root of the second moment; q = 4, taken
here, balances the long vectors against the common ones, and a high quantile follows it.

*Radius.* Among quantiles of ||S^{-1/2} u|| the one that minimises the error to be expected, noise
and bias of clipping, for centres as uncertain as the releases leave them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
from numpy.typing import ArrayLike
from scipy import optimize

from dprl import _validation as check
from dprl._validation import FloatArray, IntArray
from dprl.mdp import Chain, MarkovRewardProcess
from dprl.private_evaluation.sufficient_statistics import COUNT_SCALE, NoisyStatistics

_STARTS = 32  # of the first fit
_FIT_TOLERANCE = 1e-4  # relative, of the sum of squares: far below the error of the data
_POWER = 4  # q of (1)
_STEPS = 6  # of its fixed point: within a thousandth of what more of them reach
_SHAPED = 1000  # residuals of a group that S is made of; the bias needs more
_QUANTILES = np.array([0.5, 0.65, 0.8, 0.9, 0.95, 0.975, 0.99, 0.995, 0.999])


@dataclass(frozen=True, eq=False)
class WorkingModel:
    """A family of reward processes, and the box of its parameters.

    All processes have the same terminal states, which they reach, and visit all others.

    Attributes
    ----------
    process : callable
        theta, an array of shape (k,), to a MarkovRewardProcess.
    low, high : array_like, shape (k,)
        theta lies between; k = 0 for a family of one.

    Examples
    --------
    >>> WorkingModel.known(Chain(3).process).values([]).round(3).tolist()
    [0.951, 0.97, 0.99]
    """

    process: Callable[[FloatArray], MarkovRewardProcess]
    low: FloatArray
    high: FloatArray

    def __post_init__(self) -> None:
        low = check.finite_array("low", self.low, ndim=1)
        high = check.finite_array("high", self.high, ndim=1)
        if low.shape != high.shape or (low >= high).any():
            raise ValueError(f"low must be below high, entry by entry, got {low} and {high}")
        object.__setattr__(self, "low", low)
        object.__setattr__(self, "high", high)
        object.__setattr__(self, "process", _remembered(self.process))

    @classmethod
    def known(cls, process: MarkovRewardProcess) -> WorkingModel:
        """The family that holds one public process."""
        check.instance("process", process, MarkovRewardProcess)
        return cls(lambda theta: process, np.empty(0), np.empty(0))

    @classmethod
    def equal_chain(cls, chain: Chain) -> WorkingModel:
        """The chains that are like this one but for the probability to stay, 0.02 to 0.98."""
        check.instance("chain", chain, Chain)
        return cls(
            lambda theta: replace(chain, stay=float(theta[0])).process,
            np.array([0.02]),
            np.array([0.98]),
        )

    def values(self, theta: ArrayLike) -> FloatArray:
        """Values of the states that are not terminal."""
        process = self.process(np.asarray(theta, dtype=np.float64))
        return process.values()[~process.terminal]

    def fit(
        self, residual: Callable[[FloatArray], FloatArray], theta: FloatArray | None = None
    ) -> tuple[FloatArray, FloatArray]:
        """Least squares over the box, and the covariance of the fit if residuals have variance 1.

        From a first guess, or from the best of 32 fixed points. Shapes (k,) and (k, k).
        """
        if not self.low.size:
            return self.low, np.zeros((0, 0))
        if theta is None:
            points = np.random.default_rng(0).uniform(self.low, self.high, (_STARTS, self.low.size))
            theta = min(points, key=lambda x: float((residual(x) ** 2).sum()))
        inner = 1e-6 * (self.high - self.low)
        theta = np.clip(theta, self.low + inner, self.high - inner)
        box, close = (self.low, self.high), _FIT_TOLERANCE
        found = optimize.least_squares(residual, theta, bounds=box, ftol=close, xtol=close)
        jacobian = np.asarray(found.jac, dtype=np.float64)
        return np.asarray(found.x), np.asarray(np.linalg.pinv(jacobian.T @ jacobian))

    def fit_statistics(self, release: NoisyStatistics) -> tuple[FloatArray, FloatArray]:
        """Fit to released counts and sums, each in units of its noise."""
        middle, width = (release.f_min + release.f_max) / 2, release.f_max - release.f_min

        def residual(theta: FloatArray) -> FloatArray:
            process = self.process(theta)
            states = ~process.terminal
            visits = release.n_trajectories * process.visit_probabilities()[states]
            sums = visits * (process.values()[states] - middle) / width
            counts = (release.counts - visits) * COUNT_SCALE
            return np.concatenate([release.sums - sums, counts]) / np.tile(release.sigma, 2)

        return self.fit(residual)

    def fit_values(
        self, values: FloatArray, covariance: FloatArray, theta: FloatArray
    ) -> tuple[FloatArray, FloatArray]:
        """Fit to estimated values whose errors have the given covariance, from a first guess."""
        whiten = np.linalg.inv(np.linalg.cholesky(covariance))
        return self.fit(lambda x: whiten @ (values - self.values(x)), theta)


def _remembered(
    process: Callable[[FloatArray], MarkovRewardProcess],
) -> Callable[[ArrayLike], MarkovRewardProcess]:
    """Builds the process of each theta once: all fits of a model begin at the same points."""
    built = lru_cache(maxsize=128)(lambda key: process(np.array(key)))
    return lambda theta: built(tuple(np.asarray(theta, dtype=np.float64)))


def shrunk(
    model: WorkingModel, theta: FloatArray, values: FloatArray, covariance: FloatArray
) -> tuple[FloatArray, float]:
    """Values moved towards the working model's by the rule of James and Stein, and what is kept.

    Of the residual r the part max(0, 1 - (N - k - 2) / (r' C^{-1} r)) is kept: next to nothing if
    the model explains the values to within their errors, nearly all if it is wrong.
    """
    target = model.values(theta)
    rest = values - target
    size = float(rest @ np.linalg.solve(covariance, rest))
    freedom = max(rest.size - theta.size - 2, 0)
    kept = max(0.0, 1 - freedom / size) if size > 0 else 0.0
    return target + kept * rest, kept


@dataclass(frozen=True, eq=False)
class RoundPlan:
    """Shape and radius of one round, from the working model alone.

    Attributes
    ----------
    axes : ndarray, shape (N, N)
        Orthonormal eigenvectors of S, in columns.
    sizes : ndarray, shape (N,)
        Eigenvalues of S, > 0.
    radius : float
        R, > 0.
    bias : ndarray, shape (N,)
        What clipping adds to the mean of u under the working model.
    covariance : ndarray, shape (N, N)
        Second moment of u under the working model.
    spread : float
        E min(||S^{-1/2} u|| / R, 1)^2 under the working model.
    """

    axes: FloatArray
    sizes: FloatArray
    radius: float
    bias: FloatArray
    covariance: FloatArray
    spread: float

    @property
    def shape(self) -> FloatArray:
        """S, shape (N, N)."""
        return (self.axes * self.sizes) @ self.axes.T

    @property
    def root(self) -> FloatArray:
        """S^{1/2}, symmetric: the same whatever signs a library gives the axes; shape (N, N)."""
        return (self.axes * np.sqrt(self.sizes)) @ self.axes.T

    def norms(self, u: FloatArray) -> FloatArray:
        """||S^{-1/2} u|| of each row."""
        return np.sqrt(_squared_norms(u, self.axes, self.sizes))

    def clipped(self, u: FloatArray) -> FloatArray:
        """Each row of u times min(1, R / ||S^{-1/2} u||)."""
        return u * (self.radius / np.maximum(self.norms(u), self.radius))[:, None]


def plan_round(
    u: FloatArray, noise_per_radius: float, *, bias_weight: float, radius_factor: float = 1.0
) -> RoundPlan:
    """Shape (1) and radius from residuals that were simulated under the working model.

    Parameters
    ----------
    u : ndarray, shape (groups, m, N)
        In each group around another centre, as uncertain as the true one is. S comes from the
        first 1,000 of each, radius and bias from all.
    noise_per_radius : float
        2 / (mu n): the noise has covariance (noise_per_radius R)^2 S.
    bias_weight : float
        Weight, in squares, of the bias that all groups share: 1, or less if it is corrected by its
        value under the working model.
    radius_factor : float
        The best radius is multiplied by it.
    """
    rows = u.reshape(-1, u.shape[-1])
    some = u[:, :_SHAPED].reshape(-1, u.shape[-1])
    if not (max(some.max(), -some.min()) > 1e-12):
        raise ValueError("residuals do not vary under the working model: it must leave some chance")
    weights = np.ones(len(some))
    for _ in range(_STEPS):  # (1)
        size, axes = np.linalg.eigh((some * weights[:, None]).T @ some / len(some))
        size = np.sqrt(np.maximum(size, 1e-12 * size[-1]))
        longer = _squared_norms(some, axes, size) ** (_POWER - 1)
        weights = np.sqrt(weights * longer / longer.mean())
    norms = np.sqrt(_squared_norms(rows, axes, size)) + 1e-300

    radii = np.quantile(norms, _QUANTILES)
    lost = np.minimum(1, radii / norms[:, None]) - 1
    bias = lost.reshape(*u.shape[:2], -1).swapaxes(1, 2) @ u / u.shape[1]  # (groups, radii, N)
    common = bias.mean(axis=0)
    apart = ((bias - common) ** 2).sum(axis=(0, 2)) / len(bias)
    error = (noise_per_radius * radii) ** 2 * size.sum() + apart
    error += bias_weight * (common**2).sum(axis=1)
    radius = radius_factor * float(radii[error.argmin()])
    scale = np.minimum(1, radius / norms)
    return RoundPlan(
        axes=axes,
        sizes=size,
        radius=radius,
        bias=(scale - 1) @ rows / len(rows),
        covariance=rows.T @ rows / len(rows),
        spread=float((np.minimum(norms / radius, 1) ** 2).mean()),
    )


def _squared_norms(u: FloatArray, axes: FloatArray, sizes: FloatArray) -> FloatArray:
    """u' S^{-1} u of each row."""
    white = u @ (axes / np.sqrt(sizes))
    return np.asarray(np.einsum("ij,ij->i", white, white))


def reachable(process: MarkovRewardProcess) -> IntArray:
    """The states that are not terminal; refused if the process never visits one of them."""
    states = np.flatnonzero(~process.terminal)
    unseen = states[process.visit_probabilities()[states] <= 0]
    if unseen.size:
        raise ValueError(f"the working model never visits states {unseen.tolist()}")
    return states
