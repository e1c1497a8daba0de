r"""Gradient perturbed off-policy evaluation, GPOPE (Xie et al., Algorithm 1).

Stochastic descent to the saddle point of :mod:`dprl.off_policy.saddle_point`. From x = (theta, w)
each of N steps draws one of the m trajectories uniformly, takes its gradient (4.1)

    B_i(theta, w) = (-A_i^T w, A_i theta + C_i w - b_i),                               (1)

clips this vector of 2n numbers to the norm h, adds noise, and moves against it:

    x <- x - beta_i (B_i min(1, h/|B_i|) + h sigma zeta_i),   zeta_i ~ N(0, I).         (2)

**Privacy.** Neighbours replace one trajectory; m is public. Two clipped gradients may differ by 2h,
not by h, so a step is a Gaussian mechanism with mu = 2/sigma, sub-sampled with fraction 1/m, and
the N iterates together are their N-fold composition (:mod:`dprl.privacy.noisy_gradients`).
:func:`gpope` takes the least sigma that is certified. The start, the step sizes and h
must not depend on the data, and A_i, b_i, C_i only on trajectory i: importance ratios are
those of a known behaviour policy. If it was estimated from the same data, each ratio depends on
every person, one replaced trajectory moves every gradient, and nothing is promised. A release
is one setting, run once, with noise of its own.

**Experiments are another matter.** :func:`gpope_runs_not_private` makes many settings (step
sizes, sigmas) and a block of trials step together, in one compiled loop. The settings of a trial
share draws *and noise*: these cost most, and common random numbers make settings comparable. Who
sees two settings of a trial subtracts their noisy gradients, and the noise is gone: no
composition theorem applies (:func:`experiments.chapter_6.without_the_noise`).

Needs JAX: ``pip install dprl[off-policy]``.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import jax
import joblib
import numpy as np
from numpy.typing import ArrayLike, NDArray

from dprl import _validation as check
from dprl._validation import FloatArray, IntArray
from dprl.off_policy.saddle_point import BidiagonalStatistics, Statistics
from dprl.privacy import Guarantee
from dprl.privacy.noisy_gradients import noisy_gradient_certified_sigma
from dprl.private_evaluation import _gpope_loop as loop
from dprl.private_evaluation.common import NEIGHBOURS

AnyStatistics = Statistics | BidiagonalStatistics
#: One data set for all trials, or a function: number of the trial -> its own data set.
Source = AnyStatistics | Callable[[int], AnyStatistics]

# Trials that share a stream of random numbers. Always drawn for a whole group, so the numbers of
# a trial depend neither on how many trials there are nor on how they are divided.
_GROUP = 8
_STATE = 1 << 18  # bytes of a block's state: stays in the cache of one core
_INPUT = 1 << 22  # bytes of the statistics and the noise for one call
_STEPS = 256  # of one call, at most
# Farther than this many standard deviations no float32 normal number of NumPy lies.
_FARTHEST = 16.0
# Public numbers must lie between these and their inverses: no iterate, whatever the data are, is
# then infinite, and no noise is lost below the smallest number.
_LARGEST = {"double": 1e250, "single": 1e25}
_MOST_ITERATIONS = 2**31 - 1


@dataclass(frozen=True)
class ConstantStep:
    """beta_i = eta / N^k for N iterations (Xie et al., Theorem 2).

    Parameters
    ----------
    eta : float
        > 0.
    k : float
        >= 0; 0 is a step size that does not depend on N.

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
    """beta_i = eta / (i + offset) for i = 1, 2, ... (Xie et al., Theorem 3, has offset 0).

    Parameters
    ----------
    eta : float
        > 0.
    offset : float
        >= 0.

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
class Iterates:
    """Where (2) has got to. *Not private*; :class:`PrivateIterates` is a release.

    Attributes
    ----------
    theta, w : ndarray, shape (settings, trials, n)
        After the last iteration.
    at : tuple of int
        The iterations that were asked for, increasing.
    theta_at, w_at : ndarray, shape (len(at), settings, trials, n)
        After these iterations.
    """

    theta: FloatArray
    w: FloatArray
    at: tuple[int, ...]
    theta_at: FloatArray
    w_at: FloatArray


@dataclass(frozen=True, eq=False)
class PrivateIterates:
    """A release of :func:`gpope`.

    Attributes
    ----------
    theta, w : ndarray, shape (n,)
        After the last iteration.
    at : tuple of int
        The iterations that were asked for, increasing.
    theta_at, w_at : ndarray, shape (len(at), n)
        After these iterations.
    sigma : float
        Standard deviation of the noise in units of h.
    guarantee : Guarantee
        Of all this together, whatever iterations were asked for. A second release from the same
        data, with noise of its own, has to be composed with it.
    """

    theta: FloatArray
    w: FloatArray
    at: tuple[int, ...]
    theta_at: FloatArray
    w_at: FloatArray
    sigma: float
    guarantee: Guarantee


@dataclass(frozen=True, eq=False)
class GPOPEDiagnostics:
    """How much was clipped. *Not private.*

    Attributes
    ----------
    iterates : Iterates
        The same as those of :func:`gpope_runs_not_private`.
    clipped : ndarray of int, shape (settings, trials)
        Iterations whose gradient was longer than h.
    largest : ndarray, shape (settings, trials)
        Largest norm of a gradient before clipping.
    """

    iterates: Iterates
    clipped: IntArray
    largest: FloatArray


def gpope(
    statistics: AnyStatistics,
    epsilon: float,
    delta: float,
    *,
    clip: float,
    steps: Step,
    iterations: int,
    rng: np.random.Generator,
    start: tuple[ArrayLike, ArrayLike] | None = None,
    at: Sequence[int] = (),
    precision: Literal["double", "single"] = "double",
) -> PrivateIterates:
    """Algorithm 1 with the least noise that is certified to keep a promise: one private release.

    Parameters
    ----------
    statistics : Statistics or BidiagonalStatistics
        Of m trajectories, each a function of its own trajectory alone: features, discount and
        importance ratios must be known beforehand, not estimated from these data.
    epsilon : float
        > 0.
    delta : float
        In [1e-10, 1), below the probability 1 - (1 - 1/m)^N of ever drawing a given trajectory.
    clip : float
        h > 0, the norm to which gradients are clipped.
    steps : ConstantStep or DiminishingStep
        One schedule. Several are several releases: call again, and compose.
    iterations : int
        N >= 1.
    rng : numpy.random.Generator
        Draws and noise; its state must stay secret. It moves on with each call. A generator
        that is set back gives the same noise again, which then cancels between two releases.
    start : pair of array_like, shape (n,), optional
        theta and w at the start; zeros if left out.
    at : sequence of int
        Iterations in 1 .. N after which the iterates are released too, at no further cost.
    precision : {"double", "single"}
        Of the arithmetic.

    None of the arguments but the first may depend on the data. Records may hold any finite
    numbers: what is released is finite, and each record is clipped by its true norm.

    Returns
    -------
    PrivateIterates
        The guarantee is for neighbours that replace one trajectory.

    Raises
    ------
    ValueError, TypeError
        If an argument is out of range.

    Examples
    --------
    >>> data = Statistics(np.ones((100, 1, 1)), np.ones((100, 1)), np.ones((100, 1, 1)))
    >>> secret = np.random.default_rng(1)  # in earnest without the 1
    >>> release = gpope(
    ...     data, 1.0, 1e-5, clip=1.0, steps=ConstantStep(0.1), iterations=100, rng=secret
    ... )
    >>> release.theta.shape, round(release.sigma, 2)
    ((1,), 1.83)
    """
    if not isinstance(statistics, AnyStatistics):
        raise TypeError(
            "statistics must be a Statistics or a BidiagonalStatistics, "
            f"got {type(statistics).__name__}"
        )
    if not isinstance(steps, Step):
        raise TypeError(
            "steps must be one ConstantStep or DiminishingStep: a release has one setting; "
            f"got {type(steps).__name__}"
        )
    check.generator(rng)
    n_iterations = check.whole("iterations", iterations)
    m = statistics.n_trajectories
    sigma = noisy_gradient_certified_sigma(epsilon, delta, m, n_iterations)
    if sigma == 0:
        raise ValueError(
            f"delta = {delta!r} is at least the probability that a given trajectory is ever "
            f"drawn: it would be kept without any noise; choose delta well below 1/{m}"
        )
    run = gpope_runs_not_private(
        statistics,
        sigma=sigma,
        clip=clip,
        steps=steps,
        iterations=n_iterations,
        seed=int.from_bytes(rng.bytes(16), "little"),
        start=start,
        at=at,
        precision=precision,
    )
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
    *,
    sigma: float | Sequence[float],
    clip: float,
    steps: Step | Sequence[Step],
    iterations: int,
    seed: int,
    trials: int = 1,
    start: tuple[ArrayLike, ArrayLike] | None = None,
    at: Sequence[int] = (),
    precision: Literal["double", "single"] = "double",
    workers: int = 1,
) -> Iterates:
    """Algorithm 1 in many settings and trials, for experiments. *Not private*: see :func:`gpope`.

    The settings of a trial share their noise, so that differences between them have none.

    Parameters
    ----------
    statistics : Statistics, BidiagonalStatistics or callable
        The data of m trajectories, the same in all trials; or a function from the number of a
        trial, 0, 1, ..., to the data of that trial. All must be of one kind and size. A function
        is called once for each trial, and the data of a block of trials, at least eight, are
        held at a time.
    sigma : float or sequence of float
        Standard deviation of the noise in units of h, >= 0.
    clip : float
        h > 0, the norm to which gradients are clipped.
    steps : ConstantStep, DiminishingStep or sequence of them
        Setting j uses sigma[j] and steps[j]; a single one is used in all settings.
    iterations : int
        N >= 1.
    seed : int
        >= 0. The same seed gives the same numbers for a trial, whatever the number of trials,
        settings, workers, and the iterations asked for in ``at``.
    trials : int
        Independent runs of each setting, >= 1. Draws and noise are shared between the settings
        of one trial.
    start : pair of array_like, shape (n,), optional
        theta and w at the start; zeros if left out.
    at : sequence of int
        Iterations in 1 .. N after which the iterates are kept.
    precision : {"double", "single"}
        Of the arithmetic. The noise has single precision in both, so it is the same.
    workers : int
        Processes that share the blocks of trials.

    Returns
    -------
    Iterates

    Raises
    ------
    ValueError, TypeError
        If an argument is out of range or the data of the trials differ in kind or size.

    Notes
    -----
    O(N trials (settings n + n)) for bidiagonal statistics, n^2 in place of n for dense ones.

    Examples
    --------
    >>> data = Statistics([[[2.0]]], [[1.0]], [[[0.5]]])  # one trajectory; theta* = 1/2, w* = 0
    >>> end = gpope_runs_not_private(
    ...     data, sigma=[0.0, 0.1], clip=10.0, steps=ConstantStep(0.1), iterations=5000, seed=1
    ... )
    >>> end.theta.round(6).tolist()[0], end.w.shape
    ([[0.5]], (2, 1, 1))
    """
    return gpope_diagnostics(
        statistics,
        sigma=sigma,
        clip=clip,
        steps=steps,
        iterations=iterations,
        seed=seed,
        trials=trials,
        start=start,
        at=at,
        precision=precision,
        workers=workers,
    ).iterates


def gpope_diagnostics(
    statistics: Source,
    *,
    sigma: float | Sequence[float],
    clip: float,
    steps: Step | Sequence[Step],
    iterations: int,
    seed: int,
    trials: int = 1,
    start: tuple[ArrayLike, ArrayLike] | None = None,
    at: Sequence[int] = (),
    precision: Literal["double", "single"] = "double",
    workers: int = 1,
) -> GPOPEDiagnostics:
    """:func:`gpope_runs_not_private` with what the gradients were like. *Not private.*

    Parameters
    ----------
    statistics, sigma, clip, steps, iterations, seed, trials, start, at, precision, workers
        As in :func:`gpope_runs_not_private`.

    Returns
    -------
    GPOPEDiagnostics

    Raises
    ------
    ValueError, TypeError
        As :func:`gpope_runs_not_private`.

    Examples
    --------
    >>> data = Statistics([[[2.0]]], [[1.0]], [[[0.5]]])
    >>> seen = gpope_diagnostics(
    ...     data, sigma=0.0, clip=0.5, steps=ConstantStep(0.1), iterations=3, seed=1
    ... )
    >>> seen.clipped.tolist(), seen.largest.tolist()
    ([[3]], [[1.0]])
    """
    plan = _plan(statistics, sigma, clip, steps, iterations, seed, trials, start, at, precision)
    blocks = plan.blocks(check.whole("workers", workers))
    if workers == 1 or len(blocks) == 1:
        parts = [_run(plan, block) for block in blocks]
    else:
        parts = joblib.Parallel(n_jobs=workers, max_nbytes="1M")(
            joblib.delayed(_run)(plan, block) for block in blocks
        )
    at_marks, clipped, largest = (
        np.concatenate(piece, axis=axis)
        for piece, axis in zip(zip(*parts, strict=True), (2, 1, 1), strict=True)
    )
    theta, w = at_marks[..., : plan.n], at_marks[..., plan.n :]
    kept = [plan.marks.index(i) for i in plan.at]
    iterates = Iterates(theta[-1], w[-1], plan.at, theta[kept], w[kept])
    return GPOPEDiagnostics(iterates, clipped.astype(np.int64), largest)


@dataclass(frozen=True, eq=False)
class _Plan:
    """The arguments, checked."""

    source: Source
    first: AnyStatistics
    scale: FloatArray  # (settings,), h sigma
    clip: float
    steps: tuple[Step, ...]
    iterations: int
    seed: int
    trials: int
    start: FloatArray  # (2n,)
    at: tuple[int, ...]
    dtype: type[np.floating[Any]]

    @property
    def n(self) -> int:
        return self.first.n_features

    @property
    def marks(self) -> list[int]:
        """Iterations after which the state is read."""
        return sorted({*self.at, self.iterations})

    def blocks(self, workers: int) -> list[range]:
        """The groups of trials, divided so that a block's state fits the cache."""
        groups = -(-self.trials // _GROUP)
        one = len(self.steps) * 2 * self.n * _GROUP * np.dtype(self.dtype).itemsize
        best = max(1, min(_STATE // one, -(-groups // workers), 512))
        # Blocks of one size, with few groups that only fill the last one.
        sizes = range(max(1, best // 2), best * 3 // 2 + 1)
        size = min(sizes, key=lambda s: (-(-groups // s) * s, abs(s - best)))
        return [range(a, a + size) for a in range(0, groups, size)]


def _plan(
    statistics: Source,
    sigma: float | Sequence[float],
    clip: float,
    steps: Step | Sequence[Step],
    iterations: int,
    seed: int,
    trials: int,
    start: tuple[ArrayLike, ArrayLike] | None,
    at: Sequence[int],
    precision: str,
) -> _Plan:
    if not isinstance(steps, Step | Iterable):
        raise TypeError(f"steps must be a ConstantStep or a DiminishingStep, got {steps!r}")
    chosen = (steps,) if isinstance(steps, Step) else tuple(steps)
    for step in chosen:
        if not isinstance(step, Step):
            raise TypeError(
                "steps must be a ConstantStep, a DiminishingStep or several of them, "
                f"got {type(step).__name__}"
            )
    noise = check.finite_array("sigma", sigma)
    if noise.ndim > 1 or noise.size == 0 or (noise < 0).any():
        raise ValueError(f"sigma must be one or several numbers >= 0, got {sigma!r}")
    noise = np.atleast_1d(noise)
    settings = max(len(chosen), noise.size)
    if len(chosen) not in (1, settings) or noise.size not in (1, settings):
        raise ValueError(
            "sigma and steps must be of one length, or one of them single, "
            f"got {noise.size} and {len(chosen)}"
        )
    bound = check.positive("clip", clip)
    number = check.whole("iterations", iterations)
    if number > _MOST_ITERATIONS:
        raise ValueError(f"iterations must be at most {_MOST_ITERATIONS}, got {number}")
    if isinstance(at, str) or not isinstance(at, Iterable):
        raise TypeError(f"at must be a sequence of iterations, got {at!r}")
    wanted = tuple(check.whole("at", i) for i in at)
    if wanted != tuple(sorted(set(wanted))) or (wanted and wanted[-1] > number):
        raise ValueError(f"at must be increasing iterations in 1 .. {number}, got {wanted}")
    if precision not in ("double", "single"):
        raise ValueError(f"precision must be 'double' or 'single', got {precision!r}")
    check.seed(seed)
    check.whole("trials", trials)
    first = _first(statistics)
    n = first.n_features
    if n == 0:
        raise ValueError("statistics must have at least one feature, got none")
    if start is None:
        x = np.zeros(2 * n)
    else:
        if not isinstance(start, tuple) or len(start) != 2:
            raise ValueError("start must be a pair (theta, w)")
        pair = [check.finite_array("start", part, ndim=1) for part in start]
        if any(part.shape != (n,) for part in pair):
            raise ValueError(
                f"start must hold two vectors of {n} entries, got {[p.size for p in pair]}"
            )
        x = np.concatenate(pair)
    _stay_finite(x, bound, noise, chosen, number, precision)
    return _Plan(
        statistics,
        first,
        bound * np.broadcast_to(noise, settings),
        bound,
        chosen * (settings if len(chosen) == 1 else 1),
        number,
        int(seed),
        int(trials),
        x,
        wanted,
        np.float64 if precision == "double" else np.float32,
    )


def _stay_finite(
    start: FloatArray,
    clip: float,
    noise: FloatArray,
    steps: tuple[Step, ...],
    iterations: int,
    precision: str,
) -> None:
    """Refuse public arguments with which some data could make an iterate infinite."""
    most = _LARGEST[precision]
    longest = clip * (1 + _FARTHEST * float(noise.max()))  # of a noisy gradient, in any entry
    with np.errstate(over="ignore"):
        farthest = max(
            float(abs(start).max())
            + iterations * float(step.size(1, iterations)) * longest  # step sizes never grow
            for step in steps
        )
    least = clip * float(noise[noise > 0].min(initial=1.0))
    if not (longest <= most and farthest <= most and least >= 1 / most and clip >= 1 / most):
        raise ValueError(
            f"in {precision} precision clip, clip sigma, and how far the iterates can get must "
            f"lie within {1 / most:.0e} and {most:.0e}, got clip = {clip:.3g}, clip sigma >= "
            f"{least:.3g}, gradients up to {longest:.3g} and iterates up to {farthest:.3g}"
        )


def _first(source: Source) -> AnyStatistics:
    """The data of trial 0, or of all."""
    data = source(0) if callable(source) else source
    if not isinstance(data, AnyStatistics):
        raise TypeError(
            "statistics must be a Statistics, a BidiagonalStatistics or a function that gives "
            f"one for the number of a trial, got {type(data).__name__}"
        )
    return data


@dataclass(frozen=True, eq=False)
class _Data:
    """Records, and for each a power of two near its largest entry: any finite number is allowed."""

    fields: tuple[NDArray[Any], ...]  # (m, ...)
    size: NDArray[np.floating[Any]]  # (m,), in the precision of the loop
    inverse: tuple[NDArray[Any], ...]  # 1 / size, in the precision of each field, (m, 1, ...)

    @classmethod
    def of(cls, data: AnyStatistics, dtype: type[np.floating[Any]]) -> _Data:
        if isinstance(data, Statistics):
            fields: tuple[NDArray[Any], ...] = (data.a, data.b, data.c)
        else:
            fields = (data.diagonal, data.above, data.b, data.c)
        largest = np.zeros(data.n_trajectories)
        for f in fields:
            rows = f.reshape(f.shape[0], -1)
            if rows.shape[1]:
                np.maximum(largest, np.maximum(rows.max(axis=1), -rows.min(axis=1)), out=largest)
        # Entries divided by 2^exponent are below 2. The exponent of a tiny record stops where
        # its inverse is still a number.
        least = -120 if any(f.dtype == np.float32 for f in fields) else -1000
        exponent = np.maximum(np.frexp(largest)[1] - 1, least)
        size = np.minimum(np.ldexp(1.0, exponent), float(np.finfo(dtype).max)).astype(dtype)
        inverse = tuple(
            np.ldexp(f.dtype.type(1), -exponent).reshape(-1, *[1] * (f.ndim - 1)) for f in fields
        )
        return cls(fields, size, inverse)


def _trial_data(plan: _Plan, trial: int) -> AnyStatistics:
    if not callable(plan.source):
        return plan.source
    data = plan.first if trial == 0 else plan.source(trial)
    if type(data) is not type(plan.first) or data.b.shape != plan.first.b.shape:
        raise ValueError(
            f"the data of all trials must be of one kind and size; those of trial {trial} are "
            f"{type(data).__name__} with (m, n) = {np.shape(getattr(data, 'b', ()))}, those of "
            f"trial 0 {type(plan.first).__name__} with {plan.first.b.shape}"
        )
    return data


def _run(plan: _Plan, groups: range) -> tuple[FloatArray, IntArray, FloatArray]:
    """One block: iterates at the marks (marks, settings, trials, 2n), clipped steps, norms."""
    trials = range(groups[0] * _GROUP, min(plan.trials, (groups[-1] + 1) * _GROUP))
    width = len(groups) * _GROUP
    data = [
        _Data.of(_trial_data(plan, t), plan.dtype)
        for t in (trials if callable(plan.source) else (0,))
    ]
    streams = [
        tuple(np.random.Generator(np.random.SFC64(s)) for s in seeds)
        for seeds in (
            np.random.SeedSequence(plan.seed, spawn_key=(group,)).spawn(2)
            for group in groups
            if group * _GROUP < plan.trials
        )
    ]
    bidiagonal = isinstance(plan.first, BidiagonalStatistics)
    advance = loop.bidiagonal if bidiagonal else loop.dense
    settings = len(plan.steps)
    x = np.broadcast_to(plan.start.astype(plan.dtype), (width, settings, 2 * plan.n))
    counts = (width, settings)
    if bidiagonal:
        x, counts = x.transpose(1, 2, 0), (settings, width)
    cut = 1 if bidiagonal else 2
    theta, w = np.split(np.ascontiguousarray(x), 2, axis=cut)
    inputs = [_Inputs.empty(plan, data[0], len(groups)) for _ in range(2)]
    readers: list[Any] = [None, None]  # what was computed last from each of them
    chunk = inputs[0].drawn.shape[0]
    bounds = sorted({*plan.marks, *range(0, plan.iterations, chunk)})
    # All calls have one length, so one program is compiled; steps of size 0 fill them up.
    length = max(b - a for a, b in itertools.pairwise(bounds))
    out = []
    with jax.enable_x64(plan.dtype is np.float64):
        state: Any = (theta, w, np.zeros(counts, np.int32), np.zeros(counts, plan.dtype))
        scale, clip = plan.scale.astype(plan.dtype), plan.dtype(plan.clip)
        for a, b in itertools.pairwise(bounds):
            turn, begin = a // chunk % 2, a % chunk
            if begin == 0:  # while the loop still works on the other half
                jax.block_until_ready(readers[turn])  # type: ignore[no-untyped-call]
                inputs[turn].draw(plan, data, streams, min(chunk, plan.iterations - a))
            step = np.zeros((length, settings), plan.dtype)
            for j, schedule in enumerate(plan.steps):
                step[: b - a, j] = schedule.size(np.arange(a, b) + 1, plan.iterations)
            live = np.arange(length) < b - a
            rows, noise = inputs[turn].piece(begin, length)
            state = readers[turn] = advance(state, rows, noise, step, live, scale, clip)
            if b in plan.marks:
                now = np.concatenate([np.asarray(s, np.float64) for s in state[:2]], axis=cut)
                now = now.transpose((0, 2, 1) if bidiagonal else (1, 0, 2))
                out.append(now[:, : len(trials)])
        clipped, largest = (np.asarray(s) for s in state[2:])
    if not bidiagonal:
        clipped, largest = clipped.T, largest.T
    here = slice(len(trials))
    return np.array(out), clipped[:, here], np.asarray(largest[:, here], np.float64)


@dataclass(frozen=True, eq=False)
class _Inputs:
    """What the compiled loop reads in some iterations of a block."""

    # of the drawn trajectories, divided by their size, and the size: (iterations, trials, ...)
    rows: tuple[NDArray[Any], ...]
    noise: NDArray[np.float32]  # (groups, iterations, trials of a group, 2n)
    drawn: IntArray  # (iterations, trials)

    @classmethod
    def empty(cls, plan: _Plan, data: _Data, groups: int) -> _Inputs:
        width, fields = groups * _GROUP, (*data.fields, data.size[:, None])
        one = sum(int(np.prod(f.shape[1:])) * f.dtype.itemsize for f in fields) + 8 * plan.n
        length = max(1, min(_INPUT // (one * width), _STEPS, plan.iterations))
        return cls(
            tuple(np.zeros((length, width, *f.shape[1:]), f.dtype) for f in fields),
            np.zeros((groups, length, _GROUP, 2 * plan.n), np.float32),
            np.zeros((length, width), np.int64),
        )

    def draw(
        self,
        plan: _Plan,
        data: list[_Data],
        streams: list[tuple[np.random.Generator, ...]],
        count: int,
    ) -> None:
        """Fill the first ``count`` iterations."""
        m = plan.first.n_trajectories
        for g, (draws, normals) in enumerate(streams):
            self.drawn[:count, g * _GROUP : (g + 1) * _GROUP] = draws.integers(
                m, size=(count, _GROUP)
            )
            normals.standard_normal(out=self.noise[g, :count], dtype=np.float32)
        if len(data) == 1:
            self._take(data[0], self.drawn[:count], slice(None))
        else:
            for t, records in enumerate(data):
                self._take(records, self.drawn[:count, t], t)

    def _take(self, data: _Data, drawn: IntArray, trials: Any) -> None:
        for field, inverse, out in zip(data.fields, data.inverse, self.rows, strict=False):
            here = out[: len(drawn), trials]
            np.take(field, drawn, axis=0, out=here, mode="clip")
            here *= inverse[drawn]
        self.rows[-1][: len(drawn), trials, 0] = data.size[drawn]

    def piece(
        self, begin: int, length: int
    ) -> tuple[tuple[NDArray[Any], ...], NDArray[np.float32]]:
        """Rows and noise from iteration ``begin`` on; where they end, the last is repeated."""
        here: Any = slice(begin, begin + length)
        if begin + length > self.drawn.shape[0]:
            here = np.minimum(np.arange(begin, begin + length), self.drawn.shape[0] - 1)
        return tuple(r[here] for r in self.rows), self.noise[:, here]
