"""The compiled loop of Algorithm 1 (Xie et al.): every setting and a block of trials at once.

One call makes K steps. The two kernels differ in how the state lies in memory: with bidiagonal
statistics the trials are the last axis, so that every operation is elementwise along them; with
dense ones each trial is a product of matrices. The numbers of a trial do not depend on which
other trials are in the block.

A record may hold any finite numbers, so its gradient B and |B| may not be numbers that the
machine has. Each record therefore comes divided by a power of two, ``size``, near its largest
entry; g = B/size is small, and so is |g|, which is computed relative to the largest entry of g.
What is used of the record is g min(size, h/|g|): B if it is at most h long, h B/|B| else, and never
longer than h up to rounding. Powers of two change no digit.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp

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

    rows: diagonal, above, b, c of the drawn trajectories, (K, trials, n or n - 1), divided by
    their size, and the size, (K, trials, 1);
    noise (groups, K, trials of a group, 2n), standard; step (K, settings);
    live (K,): False for steps that only fill the call;
    scale (settings,): standard deviation of the noise.
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
