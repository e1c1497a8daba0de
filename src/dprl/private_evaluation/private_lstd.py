r"""Private least-squares temporal differences with features, on and off policy.

Record i is one trajectory with its A_i, b_i, C_i of :mod:`dprl.off_policy.saddle_point`. With
A, b, C their means over the n trajectories, LSTD is theta = A^{-1} b. Noise on A and b at once
would be multiplied by the size of theta and of A^{-1}. So the release proceeds in rounds, each a
Gaussian mechanism on a mean of clipped vectors u_i, clip(u) = u min(1, R/|u|):

    1. *Whitening* (after CoinPress, Biswas et al. 2020): u_i = W^T C_i W, once for each share of
       ``covariance``. W starts as the identity; after each round it is multiplied by
       (mean + noise)^{-1/2}, the eigenvalues raised by the size of the noise.
    2. *Matrix*: u_i = W^T A_i W, whose mean is A in whitened coordinates, theta = W eta.
    3. *Residuals*: u_i = W^T (b_i - A_i theta) at the theta found so far, once for each share of
       ``residuals``. Near the solution these are short, and so is the noise that hides them.

**Post-processing.** Write A, b for the whitened ones. Round 2 measures each row of A with an error
sigma_A, a residual round measures b - A eta_k with an error sigma_k (:attr:`Round.error`: noise,
and an allowance for what clipping does; without it the clipped matrix would be trusted too much,
and the residuals could not correct it). All rows have the same design, so
generalised least squares gives one estimate (A^, b^) and one covariance matrix K of
each row of it, and with d features

    E |b - A eta|^2 = |b^ - A^ eta|^2 + d h^T K h,    h = (-eta, 1),                      (1)

a quadratic function of eta; the next theta is W times its minimiser. For a flat prior (1) is the
posterior expectation, so it does not matter that the eta_k were chosen on the way. Where C is
well estimated (1) estimates the part of the MSPBE that privacy costs; it is released as
``noise_error``. Sampling error is not in it, nor the error of C.

**Radii.** R is the least radius on a public grid with no more than a given part of the n norms
above it, found by bisection with noisy counts.

**Privacy.** Neighbours replace one trajectory; n is public. With mu = 1/z, where z is the exact
noise of a Gaussian mechanism of sensitivity 1 for (epsilon, delta) (Balle and Wang 2018), and s the
share of a release in mu^2:

* two vectors of length at most R differ by at most 2R, so a sum of clipped vectors with noise of
  standard deviation 2 R z/sqrt(s) is sqrt(s) mu-Gaussian differentially private; attained by
  u and -u. For symmetric matrices, the coordinates are the diagonal and sqrt(2) times the upper
  triangle, in which the Frobenius norm is the Euclidean one;
* a count of norms above a radius changes by at most 1: noise z/sqrt(s).

Everything else is computed from what was released before. The shares add up to 1, so all rounds
together are mu-Gaussian differentially private (Dong, Roth and Su 2022, corollary 3.3), hence
(epsilon, delta)-private. Nothing is assumed of the records but that their numbers are finite: any
function of record i alone that is clipped to R keeps the promise, right or wrong features included.
Importance ratios must come from a known behaviour policy, as for GPOPE.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from dprl import _validation as check
from dprl._validation import FloatArray
from dprl.off_policy.saddle_point import Statistics
from dprl.privacy import Guarantee, analytic_gaussian_sigma
from dprl.private_evaluation.common import NEIGHBOURS

#: Radii that clipping may have: 2^-8 to 2^7.75 in steps of 2^(1/4).
RADII = check.frozen(2.0 ** np.arange(-8, 8, 0.25))
_KINDS = ("covariance", "matrix", "residual")
_COUNTS = int(np.log2(RADII.size))  # of one bisection
_CHUNK = 256  # trajectories that are held in double precision
_LARGEST = 1e50  # a record with larger entries is scaled down to it
_INSIDE = 1 - 1e-12  # clipped vectors are shorter than R whatever rounding does


@dataclass(frozen=True)
class LSTDRounds:
    """How the budget is divided and where vectors are clipped; chosen without the data.

    The defaults were chosen on simulated episodes of other policies than those of any page.

    Parameters
    ----------
    covariance : tuple of float
        Weight of each whitening round, at least one, > 0. Weights of all kinds are divided by
        their sum; that gives the shares of mu^2.
    matrix : float
        Weight of the round for A, > 0.
    residuals : tuple of float
        Weight of each residual round, at least one, > 0.
    radii : float
        Weight of all noisy counts together, > 0.
    clipped : tuple of three floats
        The part of the records that may be clipped in rounds of the first, second and third
        kind, each in (0, 1). Clipping a residual biases theta; the other two do not if the
        residual rounds correct them.
    """

    covariance: tuple[float, ...] = (0.05, 0.10)
    matrix: float = 0.20
    residuals: tuple[float, ...] = (0.02, 0.02, 0.03, 0.05, 0.07, 0.09, 0.12, 0.25)
    radii: float = 0.05
    clipped: tuple[float, float, float] = (0.005, 0.02, 0.002)

    def __post_init__(self) -> None:
        for name in ("covariance", "residuals"):
            weights = getattr(self, name)
            if not isinstance(weights, tuple) or not weights:
                raise ValueError(f"{name} must be a tuple of one or more weights, got {weights!r}")
            kept = tuple(check.positive(name, weight) for weight in weights)
            object.__setattr__(self, name, kept)
        for name in ("matrix", "radii"):
            object.__setattr__(self, name, check.positive(name, getattr(self, name)))
        if not isinstance(self.clipped, tuple) or len(self.clipped) != 3:
            raise ValueError(f"clipped must be a tuple of three parts, got {self.clipped!r}")
        parts = tuple(check.open_unit("clipped", part) for part in self.clipped)
        object.__setattr__(self, "clipped", parts)

    @property
    def total(self) -> float:
        """The sum of all weights."""
        return sum(self.covariance) + self.matrix + sum(self.residuals) + self.radii

    @property
    def rounds(self) -> int:
        """Number of rounds, each with a radius of its own."""
        return len(self.covariance) + 1 + len(self.residuals)


class Round(NamedTuple):
    """What one round released; nothing of it needs to be kept secret.

    Attributes
    ----------
    kind : str
        "covariance", "matrix" or "residual".
    radius : float
        R.
    sigma : float
        Standard deviation of the noise of each coordinate of the *mean*, 2 R z/(n sqrt(s)).
    mean : ndarray, shape (d, d) or (d,)
        The noisy mean of the clipped vectors, in the coordinates of the round.
    clipped : float
        The part of the records that may lie beyond R, without the noise of the counts.
    """

    kind: str
    radius: float
    sigma: float
    mean: FloatArray
    clipped: float

    @property
    def error(self) -> float:
        """Root of the mean square error of a coordinate: noise, and clipped R of all coordinates.

        Where clipping at R is hard for a part of the records, and mild for most of them, it moves
        the mean by the order of part times R; a working value, on which no promise depends.
        """
        return float(np.sqrt(self.sigma**2 + (self.clipped * self.radius) ** 2 / self.mean.size))


@dataclass(frozen=True, eq=False)
class PrivateLSTD:
    """A release of :func:`private_lstd`.

    Attributes
    ----------
    theta : ndarray, shape (d,)
        Parameters; the value of a state is theta^T phi.
    noise_error : float
        (1) at the last eta: the part of the MSPBE that privacy costs, as far as the release can
        tell. No bound: sampling, and errors of C, are not in it, and where the noise is large
        the error can be ten or forty times as much.
    whitening : ndarray, shape (d, d)
        W of the last round, computed from the whitening rounds.
    rounds : tuple of Round
        All that was released on the way.
    guarantee : Guarantee
        Of all this together.
    """

    theta: FloatArray
    noise_error: float
    whitening: FloatArray
    rounds: tuple[Round, ...]
    guarantee: Guarantee


def private_lstd(
    statistics: Statistics,
    epsilon: float,
    delta: float,
    rng: np.random.Generator,
    rounds: LSTDRounds | None = None,
) -> PrivateLSTD:
    """LSTD by private whitening, a noisy matrix and residual rounds: one private release.

    Parameters
    ----------
    statistics : Statistics
        Of n trajectories, each a function of its own trajectory alone: features, discount and
        ratios must be known beforehand. Any finite numbers are allowed. Features should have
        entries, and rewards sizes, of the order of 1, since :data:`RADII` is a fixed range: a
        scale beyond it costs accuracy, not privacy.
    epsilon, delta : float
        The promise; epsilon > 0, delta in (0, 1). Neighbours replace one trajectory.
    rng : numpy.random.Generator
        Its state must stay secret. For study only: floating-point noise is not safe for a release.
    rounds : LSTDRounds, optional
        Division of the budget; the default if left out.

    Returns
    -------
    PrivateLSTD
        O(n d^3) time; beyond the data, memory for 256 trajectories and n norms.

    Raises
    ------
    TypeError, ValueError
        If a parameter is of another type or out of range, or there are too few trajectories for
        the promise: at the default rounds and delta = 1e-5, 1,112 for epsilon = 1 and 9,159 for .1.

    Examples
    --------
    Two states that follow each other, rewards 1 and 0, discount 1/2: values 4/3 and 2/3.

    >>> a, b, c = [[0.5, -0.25], [-0.25, 0.5]], [0.5, 0.0], [[0.5, 0.0], [0.0, 0.5]]
    >>> data = Statistics(*(np.tile(x, (20_000,) + (1,) * np.ndim(x)) for x in (a, b, c)))
    >>> release = private_lstd(data, 1.0, 1e-5, np.random.default_rng(1))
    >>> release.theta.round(2).tolist(), print(release.guarantee)
    (1, 1e-05)-differentially private; neighbours: replace one trajectory
    ([1.33, 0.67], None)
    """
    check.instance("statistics", statistics, Statistics)
    plan = LSTDRounds() if rounds is None else rounds
    check.instance("rounds", plan, LSTDRounds)
    z = analytic_gaussian_sigma(1.0, epsilon, delta)
    measure = _Measurements(statistics, plan, z, check.generator(rng))
    d = statistics.n_features
    needed = fewest_trajectories(epsilon, delta, plan)
    if needed > statistics.n_trajectories:
        raise ValueError(
            f"at epsilon = {epsilon:g} and delta = {delta:g} the noise hides where to clip: "
            f"at least {needed} trajectories are needed, got {statistics.n_trajectories}"
        )

    w = np.eye(d)
    for weight in plan.covariance:
        found = measure.matrices("covariance", w, weight)
        values, vectors = np.linalg.eigh(found.mean)
        floor = found.sigma * np.sqrt(d)  # of the order of the largest eigenvalue of the noise
        w = w @ (vectors / np.sqrt(np.maximum(values, 0.0) + floor))
    found = measure.matrices("matrix", w, plan.matrix)
    system = _RowEstimates(found.mean, found.error)
    eta, noise_error = np.zeros(d), 0.0
    for weight in plan.residuals:
        found = measure.residuals(w, w @ eta, weight)
        system.add(eta, found.mean, found.error)
        eta, noise_error = system.best()
    promise = Guarantee(float(epsilon), float(delta), NEIGHBOURS)
    return PrivateLSTD(w @ eta, noise_error, w, tuple(measure.done), promise)


def fewest_trajectories(epsilon: float, delta: float, rounds: LSTDRounds | None = None) -> int:
    """Trajectories below which the noise of the counts hides where to clip.

    With fewer, two standard deviations of it are more than a quarter of all records.

    Parameters
    ----------
    epsilon, delta, rounds
        As in :func:`private_lstd`.

    Examples
    --------
    >>> fewest_trajectories(1.0, 1e-5), fewest_trajectories(0.1, 1e-5)
    (1112, 9159)
    """
    plan = LSTDRounds() if rounds is None else rounds
    z = analytic_gaussian_sigma(1.0, epsilon, delta)
    return int(np.ceil(8 * _count_noise(plan, z)))


def _count_noise(plan: LSTDRounds, z: float) -> float:
    """Standard deviation of the noise of each count; z is that of a budget of 1."""
    return float(z * np.sqrt(_COUNTS * plan.rounds * plan.total / plan.radii))


class _Measurements:
    """The only part that sees the data: noisy means of clipped vectors, and their radii."""

    def __init__(
        self, statistics: Statistics, plan: LSTDRounds, z: float, rng: np.random.Generator
    ) -> None:
        self.data, self.plan, self.z, self.rng = statistics, plan, z, rng
        self.n, self.d = statistics.b.shape
        self.done: list[Round] = []
        self.down = {"ab": _factors(self.data.a, self.data.b), "c": _factors(self.data.c)}
        self.count_noise = _count_noise(plan, z)

    def matrices(self, kind: str, w: FloatArray, weight: float) -> Round:
        """The mean of W^T X_i W, where X_i is A_i or the symmetric part of C_i."""
        norms, d = np.empty(self.n), self.d
        name = "a" if kind == "matrix" else "c"
        plain = np.array_equal(w, np.eye(d))  # in the first round
        for part in self._parts():
            x = self._doubles(name, part)
            if not plain:
                x = x.reshape(-1, d) @ w
                x = x.reshape(-1, d, d).swapaxes(1, 2).reshape(-1, d) @ w  # transposed
            norms[part] = _norms(x.reshape(-1, d * d))
        few, radius, factors = self._clipping(kind, norms)
        total = np.zeros((d, d))
        for part in self._parts():
            total += np.tensordot(factors[part], self._doubles(name, part), axes=1)
        return self._noisy(kind, (few, radius), w.T @ total @ w, weight)

    def residuals(self, w: FloatArray, theta: FloatArray, weight: float) -> Round:
        """The mean of W^T (b_i - A_i theta)."""
        u = np.empty((self.n, self.d))
        for part in self._parts():
            u[part] = (self._doubles("b", part) - self._doubles("a", part) @ theta) @ w
        few, radius, factors = self._clipping("residual", _norms(u))
        return self._noisy("residual", (few, radius), factors @ u, weight)

    def _clipping(self, kind: str, norms: FloatArray) -> tuple[float, float, FloatArray]:
        """The part that may be clipped, R, and the factor by which each vector is multiplied.

        R is the least radius with few norms above it, by bisection with noisy counts. Few means a
        part of all, or two standard deviations of the noise where that is more.
        """
        part = dict(zip(_KINDS, self.plan.clipped, strict=True))[kind]
        sigma = self.count_noise
        few = max(part * self.n, 2 * sigma)
        low, high = 0, RADII.size - 1
        for _ in range(_COUNTS):
            middle = (low + high) // 2
            above = np.count_nonzero(norms > RADII[middle]) + sigma * self.rng.standard_normal()
            low, high = (low, middle) if above <= few else (middle + 1, high)
        radius = float(RADII[high])
        return min(few / self.n, 1.0), radius, radius * _INSIDE / np.maximum(norms, radius)

    def _noisy(
        self, kind: str, clipping: tuple[float, float], total: FloatArray, weight: float
    ) -> Round:
        """The release: sum and noise, divided by n."""
        few, radius = clipping
        sigma = 2 * radius * self.z * np.sqrt(self.plan.total / weight) / self.n
        noise = self.rng.standard_normal(total.shape)
        if kind == "covariance":  # standard deviation 1 on the diagonal, 1/sqrt(2) off it
            noise = (noise + noise.T) / 2
            total = (total + total.T) / 2  # what rounding makes of it would have no noise
        self.done.append(Round(kind, radius, sigma, total / self.n + sigma * noise, few))
        return self.done[-1]

    def _parts(self) -> Iterator[slice]:
        for first in range(0, self.n, _CHUNK):
            yield slice(first, first + _CHUNK)

    def _doubles(self, name: str, part: slice) -> FloatArray:
        """A_i, b_i or the symmetric part of C_i in double precision, huge records scaled down."""
        x = np.asarray(getattr(self.data, name)[part], dtype=np.float64)
        down = self.down["c" if name == "c" else "ab"]
        if down is not None:
            x = x * down[part].reshape((-1,) + (1,) * (x.ndim - 1))
        return (x + x.swapaxes(1, 2)) / 2 if name == "c" else x


def _factors(*arrays: FloatArray) -> FloatArray | None:
    """What each record is multiplied by, shape (n,), so that no entry exceeds a public number.

    None if all are small enough.
    """
    size = np.zeros(len(arrays[0]))
    for x in (y.reshape(len(y), -1) for y in arrays):
        np.maximum(size, np.maximum(x.max(axis=1), -x.min(axis=1)), out=size)
    return None if size.max() <= _LARGEST else _LARGEST / np.maximum(size, _LARGEST)


def _norms(u: FloatArray) -> FloatArray:
    out: FloatArray = np.sqrt(np.einsum("ij,ij->i", u, u))
    return out


class _RowEstimates:
    """Generalised least squares for the rows of (A, b), all with the same design."""

    def __init__(self, a: FloatArray, sigma: float) -> None:
        d = len(a)
        self.precision = np.zeros((d + 1, d + 1))
        self.precision[:d, :d] = np.eye(d) / sigma**2
        self.weighted = np.zeros((d + 1, d))  # precision times the estimate, a column each row
        self.weighted[:d] = a.T / sigma**2

    def add(self, eta: FloatArray, residual: FloatArray, sigma: float) -> None:
        """A measurement of b - A eta."""
        h = np.append(-eta, 1.0)
        self.precision += np.outer(h, h) / sigma**2
        self.weighted += np.outer(h, residual) / sigma**2

    def best(self) -> tuple[FloatArray, float]:
        """The eta that minimises (1), and (1) there."""
        d = self.weighted.shape[1]
        estimate = np.linalg.solve(self.precision, self.weighted)
        covariance = d * np.linalg.inv(self.precision)
        a, b = estimate[:d].T, estimate[d]
        eta = np.linalg.solve(a.T @ a + covariance[:d, :d], a.T @ b + covariance[:d, d])
        h = np.append(-eta, 1.0)
        return eta, float(np.sum((b - a @ eta) ** 2) + h @ covariance @ h)
