r"""Gradient perturbed off-policy evaluation, GPOPE (Xie et al., Algorithm 1).

Stochastic descent to the saddle point of :mod:`dprl.off_policy.saddle_point`. From x = (theta, w)
each of N steps draws one of the m trajectories uniformly, takes its gradient (4.1)

    B_i(theta, w) = (-A_i^T w, A_i theta + C_i w - b_i),                               (1)

clips this vector of 2n numbers to the norm h, adds noise, and moves against it:

    x <- x - beta_i (B_i min(1, h/|B_i|) + h sigma zeta_i),   zeta_i ~ N(0, I).         (2)

**Privacy.** Neighbours replace one trajectory; m is public. Two clipped gradients may differ by 2h,
not by h, so a step is a Gaussian mechanism with mu = 2/sigma, sub-sampled with fraction 1/m, and
the N iterates together are their N-fold composition (:mod:`dprl.privacy.noisy_gradients`).
:func:`gpope` takes the least sigma that is certified. The start, the step sizes and h must not
depend on the data, and A_i, b_i, C_i only on trajectory i: importance ratios are those of a known
behaviour policy. If it was estimated from the same data, each ratio depends on every person, one
replaced trajectory moves every gradient, and nothing is promised.

**Experiments are another matter.** :func:`gpope_runs_not_private` makes many settings (step
sizes, sigmas) and a block of trials step together. The settings of a trial share draws *and
noise*: these cost most, and common random numbers make settings comparable. Who sees two settings
of a trial subtracts their noisy gradients, and the noise is gone: no composition theorem applies
(:func:`experiments.chapter_6.without_the_noise`). And their noise has single precision, which is
fast: a gradient of double precision shows through it, since its last digits get no noise.

Needs JAX: ``pip install dprl[off-policy]``.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import joblib
import numpy as np
from numpy.typing import ArrayLike

from dprl import _validation as check
from dprl._validation import FloatArray, IntArray
from dprl.privacy import Guarantee
from dprl.privacy.noisy_gradients import noisy_gradient_certified_sigma
from dprl.private_evaluation import _gpope_loop as loop
from dprl.private_evaluation._gpope_loop import AnyStatistics, Source
from dprl.private_evaluation.common import NEIGHBOURS

_FARTHEST = 16.0  # no normal number of NumPy is larger, in either precision
# Public numbers must lie between these and their inverses: then no iterate is infinite, whatever
# the data are, and no noise is lost below the smallest number.
_LARGEST = {"double": 1e250, "single": 1e25}
_MOST_ITERATIONS = 2**31 - 1


@dataclass(frozen=True)
class ConstantStep:
    """beta_i = eta / N^k for N iterations; eta > 0, k >= 0 (Xie et al., Theorem 2).

    Examples
    --------
    >>> ConstantStep(2.0, 0.5).size([1, 50, 100], 100).tolist()
    [0.2, 0.2, 0.2]
    """

    eta: float
    k: float = 0.0

    def __post_init__(self) -> None:
        check.positive("eta", self.eta)
        check.not_negative("k", self.k)

    def size(self, i: ArrayLike, iterations: int) -> FloatArray:
        """Step sizes of the iterations i = 1, 2, ..."""
        return np.full(np.shape(i), self.eta / float(iterations) ** self.k)


@dataclass(frozen=True)
class DiminishingStep:
    """beta_i = eta / (i + offset), i >= 1; eta > 0, offset >= 0 (Xie et al., Theorem 3: 0).

    Examples
    --------
    >>> DiminishingStep(2.0, 3.0).size([1, 2, 5], 5).tolist()
    [0.5, 0.4, 0.25]
    """

    eta: float
    offset: float = 0.0

    def __post_init__(self) -> None:
        check.positive("eta", self.eta)
        check.not_negative("offset", self.offset)

    def size(self, i: ArrayLike, iterations: int) -> FloatArray:
        """Step sizes of the iterations i = 1, 2, ..."""
        return self.eta / (np.asarray(i, dtype=np.float64) + self.offset)


Step = ConstantStep | DiminishingStep


@dataclass(frozen=True, eq=False)
class Descent:
    """How (2) descends; none of it may depend on the data.

    ``schedules`` is the tuple of steps, also where it is one.

    Parameters
    ----------
    steps : ConstantStep, DiminishingStep or sequence of them
        One schedule, or one for each setting of :func:`gpope_runs_not_private`.
    clip : float
        h > 0, the norm to which gradients are clipped.
    iterations : int
        N in 1 .. 2^31 - 1.
    start : pair of array_like, shape (n,), optional
        theta and w at the start; zeros if left out.
    at : sequence of int
        Increasing iterations in 1 .. N after which the iterates are kept.
    precision : {"double", "single"}
        Of the arithmetic. The noise of a release has double precision in both, that of
        experiments single precision.
    """

    steps: Step | Sequence[Step]
    clip: float
    iterations: int
    start: tuple[ArrayLike, ArrayLike] | None = None
    at: Sequence[int] = ()
    precision: Literal["double", "single"] = "double"
    schedules: tuple[Step, ...] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        schedules = tuple(self.steps) if isinstance(self.steps, Iterable) else (self.steps,)
        for step in schedules:
            if not isinstance(step, Step):
                raise TypeError(
                    "steps must be a ConstantStep, a DiminishingStep or several of them, "
                    f"got {type(step).__name__}"
                )
        check.positive("clip", self.clip)
        number = check.whole("iterations", self.iterations, maximum=_MOST_ITERATIONS)
        if isinstance(self.at, str) or not isinstance(self.at, Iterable):
            raise TypeError(f"at must be a sequence of iterations, got {self.at!r}")
        wanted = tuple(check.whole("at", i) for i in self.at)
        if wanted != tuple(sorted(set(wanted))) or (wanted and wanted[-1] > number):
            raise ValueError(f"at must be increasing iterations in 1 .. {number}, got {wanted}")
        if self.precision not in _LARGEST:
            raise ValueError(f"precision must be 'double' or 'single', got {self.precision!r}")
        if self.start is not None and not (isinstance(self.start, tuple) and len(self.start) == 2):
            raise ValueError("start must be a pair (theta, w)")
        object.__setattr__(self, "schedules", schedules)
        object.__setattr__(self, "at", wanted)

    def first_iterate(self, n_features: int) -> FloatArray:
        """theta and w at the start, shape (2n,)."""
        if self.start is None:
            return np.zeros(2 * n_features)
        pair = [check.finite_array("start", part, ndim=1) for part in self.start]
        if any(part.shape != (n_features,) for part in pair):
            raise ValueError(
                f"start must hold two vectors of {n_features} entries, got {[p.size for p in pair]}"
            )
        return np.concatenate(pair)


@dataclass(frozen=True, eq=False)
class Iterates:
    """Where (2) has got to. *Not private*; :class:`PrivateIterates` is a release.

    Attributes
    ----------
    theta, w : ndarray, shape (settings, trials, n)
        After the last iteration.
    theta_at, w_at : ndarray, shape (len(at), settings, trials, n)
        After the iterations ``at``, those that were asked for.
    clipped, largest : ndarray of int, ndarray, shape (settings, trials)
        Number of gradients that were longer than h; largest norm before clipping.
    """

    theta: FloatArray
    w: FloatArray
    at: tuple[int, ...]
    theta_at: FloatArray
    w_at: FloatArray
    clipped: IntArray
    largest: FloatArray


@dataclass(frozen=True, eq=False)
class PrivateIterates:
    """A release of :func:`gpope`: :class:`Iterates` without the axes of settings and trials.

    ``sigma`` is the standard deviation of the noise in units of h. The guarantee is of all this
    together; a second release from the same data has to be composed with it.
    """

    theta: FloatArray
    w: FloatArray
    at: tuple[int, ...]
    theta_at: FloatArray
    w_at: FloatArray
    sigma: float
    guarantee: Guarantee


def gpope(
    statistics: AnyStatistics,
    epsilon: float,
    delta: float,
    descent: Descent,
    rng: np.random.Generator,
) -> PrivateIterates:
    """GPOPE, private off-policy evaluation (Algorithm 1), with the least noise that is certified.

    Parameters
    ----------
    statistics : Statistics or BidiagonalStatistics
        Of m trajectories, each a function of its own trajectory alone: features, discount and
        importance ratios must be known beforehand, not estimated from these data. Records may hold
        any finite numbers: what is released is finite, and each record is clipped by its true norm.
    epsilon, delta : float
        epsilon > 0; delta in [1e-10, 1), below the probability 1 - (1 - 1/m)^N of ever drawing a
        given trajectory.
    descent : Descent
        With one schedule: several are several releases, to be composed. The iterates ``at`` some
        iterations are released too, at no further cost.
    rng : numpy.random.Generator
        Draws and noise; its state must stay secret. A generator that is set back gives the same
        noise again, which then cancels between two releases. For study only: floating-point noise
        is not safe for a release in earnest.

    Examples
    --------
    >>> from dprl.off_policy.saddle_point import Statistics
    >>> data = Statistics(np.ones((100, 1, 1)), np.ones((100, 1)), np.ones((100, 1, 1)))
    >>> secret = np.random.default_rng(1)  # in earnest without the 1
    >>> descent = Descent(ConstantStep(0.1), clip=1.0, iterations=100)
    >>> release = gpope(data, 1.0, 1e-5, descent, secret)
    >>> release.theta.shape, round(release.sigma, 2)
    ((1,), 1.83)
    """
    if not isinstance(statistics, AnyStatistics):
        raise TypeError(
            "statistics must be a Statistics or a BidiagonalStatistics, "
            f"got {type(statistics).__name__}"
        )
    check.instance("descent", descent, Descent)
    if not isinstance(descent.steps, Step):
        raise TypeError(
            "steps must be one ConstantStep or DiminishingStep: a release has one setting; "
            f"got {type(descent.steps).__name__}"
        )
    check.generator(rng)
    m = statistics.n_trajectories
    sigma = noisy_gradient_certified_sigma(epsilon, delta, m, descent.iterations)
    if sigma == 0:
        raise ValueError(
            f"delta = {delta!r} is at least the probability that a given trajectory is ever "
            f"drawn: it would be kept without any noise; choose delta well below 1/{m}"
        )
    own = np.random.default_rng(int.from_bytes(rng.bytes(16), "little"))
    # noise coarser than the gradients would give the drawn record away, whatever sigma is
    run = _run(_plan(statistics, descent, sigma, own, 1, np.float64), 1)
    return PrivateIterates(
        run.theta[0, 0],
        run.w[0, 0],
        run.at,
        run.theta_at[:, 0, 0],
        run.w_at[:, 0, 0],
        sigma,
        Guarantee(float(epsilon), float(delta), NEIGHBOURS),
    )


def gpope_runs_not_private(
    statistics: Source,
    descent: Descent,
    sigma: float | Sequence[float],
    rng: np.random.Generator,
    *,
    trials: int = 1,
    workers: int = 1,
) -> Iterates:
    """Algorithm 1 in many settings and trials, for experiments. *Not private*: see the module.

    Parameters
    ----------
    statistics : Statistics, BidiagonalStatistics or callable
        The data of m trajectories, the same in all trials; or a function from the number of a
        trial, 0, 1, ..., to its data, all of one kind and size. It is called once for each trial,
        and the data of a block of trials, at least eight, are held at a time.
    descent : Descent
        Setting j uses its schedule j and sigma[j]; a single one is used in all settings.
    sigma : float or sequence of float
        Standard deviation of the noise in units of h, >= 0.
    rng : numpy.random.Generator
        Draws and noise come from children that it spawns: the numbers of a trial do not depend on
        the number of trials, settings, workers or iterations that are kept. A second call with
        the same generator has numbers of its own.
    trials, workers : int
        Independent runs of each setting, and processes that share the blocks of trials; >= 1.

    Notes
    -----
    O(N trials (settings n + n)) for bidiagonal statistics, n^2 in place of n for dense ones.

    Examples
    --------
    >>> from dprl.off_policy.saddle_point import Statistics
    >>> data = Statistics([[[2.0]]], [[1.0]], [[[0.5]]])  # one trajectory; theta* = 1/2, w* = 0
    >>> descent = Descent(ConstantStep(0.1), clip=10.0, iterations=5000)
    >>> end = gpope_runs_not_private(data, descent, [0.0, 0.1], np.random.default_rng(1))
    >>> end.theta.round(6).tolist()[0], end.clipped.tolist()
    ([[0.5]], [[0], [0]])
    """
    number = check.whole("trials", trials)
    plan = _plan(statistics, descent, sigma, check.generator(rng), number, np.float32)
    return _run(plan, check.whole("workers", workers))


def _run(plan: loop.LoopArguments, workers: int) -> Iterates:
    blocks = plan.blocks(workers)
    if workers == 1 or len(blocks) == 1:
        parts = [loop.run(plan, block) for block in blocks]
    else:
        parts = joblib.Parallel(n_jobs=workers, max_nbytes="1M")(
            joblib.delayed(loop.run)(plan, block) for block in blocks
        )
    readings, clipped, largest = (
        np.concatenate(piece, axis=axis)
        for piece, axis in zip(zip(*parts, strict=True), (2, 1, 1), strict=True)
    )
    theta, w = readings[..., : plan.n], readings[..., plan.n :]
    at = plan.at
    kept = [plan.read_after.index(i) for i in at]
    return Iterates(theta[-1], w[-1], at, theta[kept], w[kept], clipped.astype(np.int64), largest)


def _plan(
    statistics: Source,
    descent: Descent,
    sigma: float | Sequence[float],
    rng: np.random.Generator,
    trials: int,
    noise_dtype: type[np.floating[Any]],
) -> loop.LoopArguments:
    check.instance("descent", descent, Descent)
    noise = check.finite_array("sigma", sigma)
    if noise.ndim > 1 or noise.size == 0 or (noise < 0).any():
        raise ValueError(f"sigma must be one or several numbers >= 0, got {sigma!r}")
    noise, schedules = np.atleast_1d(noise), descent.schedules
    settings = max(len(schedules), noise.size)
    if len(schedules) not in (1, settings) or noise.size not in (1, settings):
        raise ValueError(
            "sigma and steps must be of one length, or one of them single, "
            f"got {noise.size} and {len(schedules)}"
        )
    first = statistics(0) if callable(statistics) else statistics
    if not isinstance(first, AnyStatistics):
        raise TypeError(
            "statistics must be a Statistics, a BidiagonalStatistics or a function that gives "
            f"one for the number of a trial, got {type(first).__name__}"
        )
    if first.n_features == 0:
        raise ValueError("statistics must have at least one feature, got none")
    start = descent.first_iterate(first.n_features)
    _stay_finite(descent, start, noise)
    return loop.LoopArguments(
        statistics,
        first,
        descent.clip * np.broadcast_to(noise, settings),
        float(descent.clip),
        schedules * (settings if len(schedules) == 1 else 1),
        int(descent.iterations),
        loop.group_seeds(rng, trials),
        trials,
        start,
        tuple(descent.at),
        np.float64 if descent.precision == "double" else np.float32,
        noise_dtype,
    )


def _stay_finite(descent: Descent, start: FloatArray, noise: FloatArray) -> None:
    """Refuse public arguments with which some data could make an iterate infinite."""
    most, clip, count = _LARGEST[descent.precision], float(descent.clip), int(descent.iterations)
    longest = clip * (1 + _FARTHEST * float(noise.max()))  # of a noisy gradient, in any entry
    with np.errstate(over="ignore"):
        farthest = max(
            float(abs(start).max())
            + count * float(step.size(1, count)) * longest  # step sizes never grow
            for step in descent.schedules
        )
    least = clip * float(noise[noise > 0].min(initial=1.0))
    if not (longest <= most and farthest <= most and least >= 1 / most and clip >= 1 / most):
        raise ValueError(
            f"in {descent.precision} precision clip, clip sigma, and how far the iterates can get "
            f"must lie within {1 / most:.0e} and {most:.0e}, got clip = {clip:.3g}, clip sigma >= "
            f"{least:.3g}, gradients up to {longest:.3g} and iterates up to {farthest:.3g}"
        )
