"""The compiled loop of Algorithm 1 (Xie et al.): every setting and a block of trials at once.

One call makes K steps. The two kernels differ in how the state lies in memory: with bidiagonal
statistics the trials are the last axis, so that every operation is elementwise along them; with
dense ones each trial is a product of matrices. The numbers of a trial do not depend on which
other trials are in the block.

A record may hold any finite numbers, so its gradient B may overflow. Each record therefore comes
divided by a power of two, ``size``, near its largest entry; g = B/size is small, and so is |g|,
which is computed relative to the largest entry of g. What is used of the record is
g min(size, h/|g|): B if it is at most h long, h B/|B| else. Powers of two change no digit.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol, cast

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import ArrayLike, NDArray

from dprl._validation import FloatArray, IntArray
from dprl.off_policy.saddle_point import BidiagonalStatistics, Statistics

AnyStatistics = Statistics | BidiagonalStatistics
#: One data set for all trials, or a function: number of the trial -> its own data set.
Source = AnyStatistics | Callable[[int], AnyStatistics]

# Trials that share a stream of random numbers, always drawn for the whole group: the numbers of a
# trial depend neither on how many trials there are nor on how they are divided.
_GROUP = 8
_STATE = 1 << 18  # bytes of a block's state: stays in the cache of one core
_INPUT = 1 << 22  # bytes of the statistics and the noise for one call
_STEPS = 256  # of one call, at most

#: theta, w, clipped steps, largest gradient norm.
State = tuple[jax.Array, jax.Array, jax.Array, jax.Array]


def _power_of_two(x: jax.Array) -> jax.Array:
    """The largest power of two that is at most x > 0; 1 for zero and for subnormal numbers."""
    bits, exponent = (
        (jnp.int64, 0x7FF0000000000000) if x.dtype == jnp.float64 else (jnp.int32, 0x7F800000)
    )
    power = jax.lax.bitcast_convert_type(
        jax.lax.bitcast_convert_type(x, bits) & bits(exponent), x.dtype
    )
    return jnp.where(power > 0, power, 1)


def _kept(norm: jax.Array, size: jax.Array, clip: jax.Array) -> jax.Array:
    """min(size, clip / norm): what is multiplied with B/size, whose norm is given."""
    some = norm > 0
    return jnp.where(some, jnp.minimum(size, clip / jnp.where(some, norm, 1)), 0)


@jax.jit
def bidiagonal(
    state: State,
    rows: tuple[jax.Array, ...],
    noise: jax.Array,
    step: jax.Array,
    live: jax.Array,
    scale: jax.Array,
    clip: jax.Array,
) -> State:
    """K steps; theta and w have shape (settings, n, trials).

    rows: diagonal, above, b, c of the drawn trajectories, (K, trials, n or n - 1), divided by their
    size, and the size, (K, trials, 1); noise (groups, K, trials of a group, 2n), standard;
    step (K, settings); live (K,): False for steps that only fill the call; scale (settings,) of
    the noise.
    """
    dtype = state[0].dtype
    n = state[0].shape[1]

    def trials_last(x: jax.Array) -> jax.Array:
        return jnp.swapaxes(x, 1, 2).astype(dtype)

    def one(state: State, x: tuple[jax.Array, ...]) -> tuple[State, None]:
        theta, w, clipped, largest = state
        d, u, b, c, whole, z, beta, alive = x
        primal = -(d * w + jnp.pad(u * w[:, :-1], ((0, 0), (1, 0), (0, 0))))
        dual = d * theta + jnp.pad(u * theta[:, 1:], ((0, 0), (0, 1), (0, 0))) + c * w - b
        unit = _power_of_two(jnp.maximum(abs(primal).max(axis=1), abs(dual).max(axis=1)))
        # The norm, term by term: one pass over the state, along the trials, nothing stored.
        square = jnp.zeros_like(largest)
        for i in range(n):
            p = d[i] * w[:, i]
            q = d[i] * theta[:, i] + c[i] * w[:, i] - b[i]
            if i:
                p = p + u[i - 1] * w[:, i - 1]
            if i < n - 1:
                q = q + u[i] * theta[:, i + 1]
            p, q = p / unit, q / unit
            square = square + p * p + q * q
        norm = jnp.sqrt(square) * unit
        keep = _kept(norm, whole, clip)[:, None]
        norm = norm * whole
        size, spread = beta[:, None, None], scale[:, None, None]
        after = (
            theta - size * (keep * primal + spread * z[:n]),
            w - size * (keep * dual + spread * z[n:]),
            clipped + (alive & (norm > clip)),
            jnp.maximum(largest, jnp.where(alive, norm, 0)),
        )
        return after, None

    z = jnp.moveaxis(noise, (0, 2), (2, 3))  # (K, 2n, groups, trials of a group)
    z = z.reshape(*z.shape[:2], -1).astype(dtype)
    xs = (*(trials_last(x) for x in rows), z, step, live)
    return jax.lax.scan(one, state, xs)[0]


@jax.jit
def dense(
    state: State,
    rows: tuple[jax.Array, ...],
    noise: jax.Array,
    step: jax.Array,
    live: jax.Array,
    scale: jax.Array,
    clip: jax.Array,
) -> State:
    """K steps; theta and w have shape (trials, settings, n). rows: a, b, c, size."""
    dtype = state[0].dtype
    n = state[0].shape[2]

    def one(state: State, x: tuple[jax.Array, ...]) -> tuple[State, None]:
        theta, w, clipped, largest = state
        a, b, c, whole, z, beta, alive = x
        primal = -jnp.einsum("tsj,tji->tsi", w, a)
        dual = jnp.einsum("tsj,tij->tsi", theta, a) + jnp.einsum("tsj,tij->tsi", w, c) - b[:, None]
        unit = _power_of_two(jnp.maximum(abs(primal).max(axis=2), abs(dual).max(axis=2)))
        p, q = primal / unit[..., None], dual / unit[..., None]
        norm = jnp.sqrt((p * p).sum(axis=2) + (q * q).sum(axis=2)) * unit
        keep = _kept(norm, whole, clip)[..., None]
        norm = norm * whole
        size, spread = beta[:, None], scale[:, None]
        after = (
            theta - size * (keep * primal + spread * z[:, None, :n]),
            w - size * (keep * dual + spread * z[:, None, n:]),
            clipped + (alive & (norm > clip)),
            jnp.maximum(largest, jnp.where(alive, norm, 0)),
        )
        return after, None

    z = jnp.swapaxes(noise, 0, 1).reshape(noise.shape[1], -1, 2 * n).astype(dtype)
    xs = (*(x.astype(dtype) for x in rows), z, step, live)
    return jax.lax.scan(one, state, xs)[0]


# -- blocks of trials --------------------------------------------------------------------------


class StepSizes(Protocol):
    """A schedule."""

    def size(self, i: ArrayLike, iterations: int) -> FloatArray:
        """Step sizes of the iterations i = 1, 2, ..."""


@dataclass(frozen=True, eq=False)
class LoopArguments:
    """The arguments of :func:`dprl.private_evaluation.gpope.gpope_runs_not_private`, checked."""

    source: Source
    first: AnyStatistics
    scale: FloatArray  # (settings,), h sigma
    clip: float
    steps: tuple[StepSizes, ...]
    iterations: int
    seeds: list[np.random.SeedSequence]  # one for each group of trials
    trials: int
    start: FloatArray  # (2n,)
    at: tuple[int, ...]
    dtype: type[np.floating[Any]]
    noise_dtype: type[np.floating[Any]]

    @property
    def n(self) -> int:
        return self.first.n_features

    @property
    def read_after(self) -> list[int]:
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


def group_seeds(rng: np.random.Generator, trials: int) -> list[np.random.SeedSequence]:
    """A seed for each group of trials, spawned by the generator."""
    spawned = rng.bit_generator.spawn(-(-trials // _GROUP))
    return [cast(np.random.SeedSequence, child.seed_seq) for child in spawned]


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


def _trial_data(plan: LoopArguments, trial: int) -> AnyStatistics:
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


def run(plan: LoopArguments, groups: range) -> tuple[FloatArray, IntArray, FloatArray]:
    """One block: iterates as read (readings, settings, trials, 2n), clipped steps, norms."""
    trials = range(groups[0] * _GROUP, min(plan.trials, (groups[-1] + 1) * _GROUP))
    width = len(groups) * _GROUP
    data = [
        _Data.of(_trial_data(plan, t), plan.dtype)
        for t in (trials if callable(plan.source) else (0,))
    ]
    streams = [
        tuple(np.random.Generator(np.random.SFC64(s)) for s in seeds)
        for seeds in (seed.spawn(2) for seed in plan.seeds[groups.start : groups.stop])
    ]
    is_bidiagonal = isinstance(plan.first, BidiagonalStatistics)
    advance = bidiagonal if is_bidiagonal else dense
    settings = len(plan.steps)
    x = np.broadcast_to(plan.start.astype(plan.dtype), (width, settings, 2 * plan.n))
    counts = (width, settings)
    if is_bidiagonal:
        x, counts = x.transpose(1, 2, 0), (settings, width)
    cut = 1 if is_bidiagonal else 2
    theta, w = np.split(np.ascontiguousarray(x), 2, axis=cut)
    inputs = [_Inputs.empty(plan, data[0], len(groups)) for _ in range(2)]
    readers: list[Any] = [None, None]  # what was computed last from each of them
    chunk = inputs[0].drawn.shape[0]
    bounds = sorted({*plan.read_after, *range(0, plan.iterations, chunk)})
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
            if b in plan.read_after:
                now = np.concatenate([np.asarray(s, np.float64) for s in state[:2]], axis=cut)
                now = now.transpose((0, 2, 1) if is_bidiagonal else (1, 0, 2))
                out.append(now[:, : len(trials)])
        clipped, largest = (np.asarray(s) for s in state[2:])
    if not is_bidiagonal:
        clipped, largest = clipped.T, largest.T
    here = slice(len(trials))
    return np.array(out), clipped[:, here], np.asarray(largest[:, here], np.float64)


@dataclass(frozen=True, eq=False)
class _Inputs:
    """What the compiled loop reads in some iterations of a block."""

    # of the drawn trajectories, divided by their size, and the size: (iterations, trials, ...)
    rows: tuple[NDArray[Any], ...]
    noise: NDArray[Any]  # (groups, iterations, trials of a group, 2n)
    drawn: IntArray  # (iterations, trials)

    @classmethod
    def empty(cls, plan: LoopArguments, data: _Data, groups: int) -> _Inputs:
        width, fields = groups * _GROUP, (*data.fields, data.size[:, None])
        one = sum(int(np.prod(f.shape[1:])) * f.dtype.itemsize for f in fields)
        one += 2 * plan.n * np.dtype(plan.noise_dtype).itemsize
        length = max(1, min(_INPUT // (one * width), _STEPS, plan.iterations))
        return cls(
            tuple(np.zeros((length, width, *f.shape[1:]), f.dtype) for f in fields),
            np.zeros((groups, length, _GROUP, 2 * plan.n), plan.noise_dtype),
            np.zeros((length, width), np.int64),
        )

    def draw(
        self,
        plan: LoopArguments,
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
            normals.standard_normal(out=self.noise[g, :count], dtype=plan.noise_dtype)
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

    def piece(self, begin: int, length: int) -> tuple[tuple[NDArray[Any], ...], NDArray[Any]]:
        """Rows and noise from iteration ``begin`` on; where they end, the last is repeated."""
        here: Any = slice(begin, begin + length)
        if begin + length > self.drawn.shape[0]:
            here = np.minimum(np.arange(begin, begin + length), self.drawn.shape[0] - 1)
        return tuple(r[here] for r in self.rows), self.noise[:, here]
