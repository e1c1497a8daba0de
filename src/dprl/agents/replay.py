"""Replay buffers of populations: transitions as rows of one array per agent.

A row is s, a, r, s', terminal, all float32.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence

import jax
import jax.numpy as jnp
import numpy as np

from dprl.agents.environments import Environment, ParallelEnvironments, draw_initial_states
from dprl.agents.episodes import Float32Array
from dprl.agents.networks import MiniBatch


def row_size(env: Environment) -> int:
    """Numbers in one transition, 2 d_s + d_A + 2."""
    return 2 * env.observation_size + env.action_size + 2


def collect(
    world: ParallelEnvironments,
    generators: Sequence[np.random.Generator],
    chunk: int,
    policy: Callable[[Float32Array], Float32Array] | None = None,
    noise: float = 0.0,
) -> Float32Array:
    """Take ``chunk`` steps in all environments; an agent whose episode is over starts another.

    Rows of shape (agents, chunk, row_size), float32. Each agent has an environment of the world,
    and a generator of its exploration and its initial states. The policy takes observations
    (agents, 1, d_s) to actions (agents, 1, d_A), to which normal numbers of standard deviation
    ``noise`` are added before they are clipped; without it actions are uniform.
    """
    env, agents = world.environment, world.count
    d_s, d_a = env.observation_size, env.action_size
    rows = np.empty((agents, chunk, row_size(env)), np.float32)
    drawn = np.empty((chunk, agents, d_a), np.float32)
    for agent, rng in enumerate(generators):
        shape = (chunk, d_a)
        drawn[:, agent] = rng.standard_normal(shape) if policy else rng.uniform(-1, 1, shape)
    observations = world.observations
    for t in range(chunk):
        actions = drawn[t]
        if policy:
            greedy = policy(observations[:, None])[:, 0]
            actions = np.clip(greedy + noise * actions, -1, 1)
        step = world.step(actions)
        rows[:, t, :d_s] = observations
        rows[:, t, d_s : d_s + d_a] = actions
        rows[:, t, d_s + d_a] = step.rewards
        rows[:, t, d_s + d_a + 1 : -1] = step.observations
        rows[:, t, -1] = step.terminals
        observations, over = step.observations, step.finished
        if over.any():
            own = [generators[agent] for agent in np.flatnonzero(over).tolist()]
            starts = [draw_initial_states(env.name, 1, rng) for rng in own]
            observations = world.reset_where(over, np.concatenate(starts))
    return rows


@functools.partial(jax.jit, donate_argnums=0)
def store(buffer: jax.Array, rows: jax.Array, position: int) -> jax.Array:
    """The buffer (agents, capacity, row_size) with rows written from a position on, in place."""
    return jax.lax.dynamic_update_slice(buffer, rows, (0, position, 0))


def as_batch(rows: jax.Array, observation_size: int, action_size: int) -> MiniBatch:
    """Rows, shape (n, row_size), as what an update takes."""
    d_s, d_a = observation_size, action_size
    ends = [d_s, d_s + d_a, d_s + d_a + 1, 2 * d_s + d_a + 1]
    s, a, r, s_next, terminal = jnp.split(rows, ends, axis=-1)
    return MiniBatch(s, a, r[:, 0], s_next, terminal[:, 0])
