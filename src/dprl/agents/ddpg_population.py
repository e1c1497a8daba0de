"""Many DDPG agents at once: collecting and learning in lockstep.

:func:`start` makes a population and :func:`train` goes on with it: it steps the environments of
all agents together, and makes one update per agent and environment step. A training knows no
files: all that its future depends on is in a :class:`DDPGTraining`, a tree of arrays, and to go on
from one is, bit by bit on the same machine, never to have stopped.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from dprl import _validation as check
from dprl._validation import FloatArray, IntArray
from dprl.agents import parallel, replay
from dprl.agents.ddpg import DDPGSettings, DDPGState, initialise, update
from dprl.agents.environments import ParallelEnvironments, Task, draw_initial_states, environment
from dprl.agents.episodes import Float32Array
from dprl.agents.networks import Params


class DDPGTraining(NamedTuple):
    """A population in training: all that its future depends on, and nothing but arrays.

    Attributes
    ----------
    agents : DDPGState
        What the agents know; each leaf has shape (agents, ...).
    buffer : array of float32, shape (agents, capacity, 2 d_s + d_A + 2)
        Replay buffers, rows s, a, r, s', terminal; the oldest row is overwritten.
    full_states, elapsed : ndarray, shapes (agents, m) and (agents,)
        Where the environments are, see :class:`dprl.agents.environments.ParallelEnvironments`.
    generators : ndarray of uint64, shape (agents, 6)
        States of the generators of all that is random about each agent.
    step : int
        Environment steps that each agent has made.
    """

    agents: DDPGState
    buffer: jax.Array
    full_states: FloatArray
    elapsed: IntArray
    generators: NDArray[np.uint64]
    step: int


def start(task: Task, settings: DDPGSettings, seeds: Sequence[int]) -> DDPGTraining:
    """One new agent per seed, from which alone everything random about it comes.

    Seeds are >= 0 and distinct, at least one. A buffer takes its whole capacity at once.
    """
    check.instance("task", task, Task)
    check.instance("settings", settings, DDPGSettings)
    distinct = {check.whole("each seed", seed, minimum=0) for seed in seeds}
    if not distinct or len(distinct) < len(seeds):
        raise ValueError(f"seeds must be distinct and at least one, got {list(seeds)}")
    env = environment(task.environment)
    # independent streams of each agent: networks, and all that happens while it learns
    pairs = [np.random.SeedSequence(seed).spawn(2) for seed in seeds]
    words = [jnp.asarray(first.generate_state(2, np.uint32)) for first, _ in pairs]
    keys = jnp.stack([jax.random.wrap_key_data(two, impl="threefry2x32") for two in words])
    generators = [np.random.default_rng(second) for _, second in pairs]
    world = ParallelEnvironments(env.name, len(seeds), task.t_max, threads=1)
    world.reset(np.concatenate([draw_initial_states(env.name, 1, rng) for rng in generators]))
    agents = _initialise_all(keys, env.observation_size, env.action_size, settings.hidden)
    buffer = jnp.zeros((len(seeds), settings.capacity, replay.row_size(env)), jnp.float32)
    return _training(agents, buffer, world, generators, 0)


def train(
    training: DDPGTraining,
    task: Task,
    settings: DDPGSettings,
    steps: int,
    *,
    chunk: int = 50,
    threads: int | None = None,
) -> DDPGTraining:
    """Train all agents for so many more environment steps.

    Steps are taken in chunks: ``chunk`` environment steps of every agent, then as many
    updates, whose mini-batches are drawn from all that the buffer then holds. So the policy
    that collects is at most ``chunk`` updates old. In the warm-up actions are uniform and
    nothing is learned.

    Parameters
    ----------
    training, task, settings
        From :func:`start`, or from this function, with the same arguments; it is not changed.
    steps : int
        Environment steps of each agent, >= 1, the warm-up included.
    chunk : int
        It must divide ``steps``, the steps made before, the warm-up and the capacity.
    threads : int, optional
        Threads that step the environments, see
        :class:`dprl.agents.environments.ParallelEnvironments`.

    Examples
    --------
    >>> from dprl.agents.ddpg import act
    >>> task = Task("Hopper-v5", t_max=5)
    >>> tiny = DDPGSettings(hidden=(8,), batch_size=4, warm_up=10, capacity=100)
    >>> training = train(start(task, tiny, seeds=[0, 1]), task, tiny, 20, chunk=10, threads=1)
    >>> training.step, jax.vmap(act)(training.agents.actor, np.zeros((2, 4, 11))).shape
    (20, (2, 4, 3))
    """
    check.instance("task", task, Task)
    check.instance("settings", settings, DDPGSettings)
    for name, number in (
        ("steps", check.whole("steps", steps)),
        ("the steps made before", training.step),
        ("the warm-up", settings.warm_up),
        ("the buffer's capacity", settings.capacity),
    ):
        if number % check.whole("chunk", chunk):
            raise ValueError(f"chunk must divide {name}, {number}, got {chunk}")
    env, agents = environment(task.environment), len(training.generators)
    expected = (agents, settings.capacity, replay.row_size(env))
    if training.buffer.shape != expected:
        raise ValueError(
            f"the training has buffers of shape {training.buffer.shape}, expected {expected}"
        )
    generators = [parallel.generator_from(state) for state in training.generators]
    groups = parallel.groups(agents)
    states = [parallel.part_of(training.agents, group) for group in groups]
    buffers = [parallel.part_of(training.buffer, group) for group in groups]
    world = ParallelEnvironments(
        env.name, agents, task.t_max, timeout_is_terminal=task.timeout_is_terminal, threads=threads
    )
    world.restore(training.full_states, training.elapsed)
    end = training.step + steps
    for step in range(training.step, end, chunk):
        position, filled = step % settings.capacity, min(step + chunk, settings.capacity)
        if step < settings.warm_up:
            rows = replay.collect(world, generators, chunk)
            buffers = [
                replay.store(one, rows[group], position)
                for one, group in zip(buffers, groups, strict=True)
            ]
        else:
            greedy = _acting([state.actor for state in states])
            rows = replay.collect(world, generators, chunk, greedy, settings.exploration_noise)
            size = (chunk, settings.batch_size)
            picked = np.stack([rng.integers(0, filled, size) for rng in generators])
            picked = picked.astype(np.int32)
            given = [
                (state, buffer, rows[group], position, picked[group], settings)
                for state, buffer, group in zip(states, buffers, groups, strict=True)
            ]
            learned = parallel.on_threads(_learn, given)
            states, buffers = [list(part) for part in zip(*learned, strict=True)]
    return _training(parallel.joined(states), parallel.joined(buffers), world, generators, end)


def _training(
    agents: DDPGState,
    buffer: jax.Array,
    world: ParallelEnvironments,
    generators: Sequence[np.random.Generator],
    step: int,
) -> DDPGTraining:
    drawn = np.stack([parallel.generator_state(rng) for rng in generators])
    training = DDPGTraining(agents, buffer, world.full_states, world.elapsed, drawn, step)
    world.close()
    return training


@functools.partial(jax.jit, static_argnums=(1, 2, 3))
def _initialise_all(keys: jax.Array, d_s: int, d_a: int, hidden: tuple[int, ...]) -> DDPGState:
    settings = DDPGSettings(hidden=hidden)  # the rest does not matter for a new agent
    states: DDPGState = jax.vmap(lambda key: initialise(key, d_s, d_a, settings))(keys)
    return states


def _acting(groups: Sequence[Params]) -> Callable[[Float32Array], Float32Array]:
    """Greedy actions of all agents, (agents, n, d_s) -> (agents, n, d_A), for many small calls.

    By NumPy, which starts a call in a tenth of the time that JAX takes on a CPU, and in less of
    what it takes on an accelerator.
    """
    actors = jax.tree.map(lambda *leaves: np.concatenate(leaves), *jax.device_get(groups))
    layers = [(weight, bias[:, None]) for weight, bias in actors]

    def act_greedily(observations: Float32Array) -> Float32Array:
        x = observations
        for weight, bias in layers[:-1]:
            x = np.maximum(x @ weight + bias, 0)
        weight, bias = layers[-1]
        return np.asarray(np.tanh(x @ weight + bias))

    return act_greedily


@functools.partial(jax.jit, static_argnums=5, donate_argnums=(0, 1))
def _learn(
    state: DDPGState,
    buffer: jax.Array,
    rows: jax.Array,
    position: int,
    picked: jax.Array,
    settings: DDPGSettings,
) -> tuple[DDPGState, jax.Array]:
    """Store a chunk of transitions, then make one update per row of ``picked``."""
    buffer = replay.store(buffer, rows, position)
    d_s, d_a = state.actor[0].weight.shape[1], state.actor[-1].bias.shape[1]

    def one_agent(state: DDPGState, memory: jax.Array, picked: jax.Array) -> DDPGState:
        def one_update(state: DDPGState, rows: jax.Array) -> tuple[DDPGState, None]:
            return update(state, replay.as_batch(rows, d_s, d_a), settings)[0], None

        return jax.lax.scan(one_update, state, memory[picked])[0]

    return parallel.each(one_agent, state, buffer, picked), buffer
