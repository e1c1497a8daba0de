r"""Deep deterministic policy gradient (DDPG), the learner behind the data oracle.

An actor :math:`\pi_\phi` and a critic :math:`Q_\theta` are trained on transitions
(s, a, r, s') of a replay buffer. One update on a mini-batch of n transitions is ::

    y      = r + gamma (1 - terminal) Q_theta'(s', pi_phi'(s'))
    theta <- Adam step on  (1/n) sum (Q_theta(s, a) - y)^2
    phi   <- Adam step on -(1/n) sum Q_theta(s, pi_phi(s))
    theta' <- tau theta + (1 - tau) theta',  phi' <- tau phi + (1 - tau) phi'

:func:`update` is this step for *one* agent, a pure function. A population is the same
function under ``jax.vmap``: :func:`start` makes one, and :func:`train` steps the environments
of all its agents together, with one update per agent and environment step. All that the future
of a training depends on is in a :class:`DDPGTraining`, a tree of arrays: to go on from one is,
bit by bit on the same machine, never to have stopped.

The algorithm is that of Lillicrap et al. (2016) with the changes of Fujimoto et al. (2018),
which later code, also that of BCQ's authors, kept: Gaussian instead of Ornstein-Uhlenbeck
noise, the action enters the critic's first layer, no batch normalisation, no weight decay,
both learning rates 1e-3, tau = 0.005. The thesis names the algorithm (section 5.6.1) and no
setting of it.

Sources: thesis, sections 5.5 and 5.6.1; Lillicrap et al. 2016, algorithm 1; Fujimoto, van
Hoof and Meger 2018, appendix C.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.typing import ArrayLike
from numpy.typing import NDArray

from dprl import _validation as check
from dprl._validation import FloatArray, IntArray
from dprl.agents import parallel, replay
from dprl.agents.environments import (
    ParallelEnvironments,
    Task,
    draw_initial_states,
    environment,
)
from dprl.agents.episodes import Float32Array
from dprl.agents.networks import Batch, Params, mlp_apply, mlp_inits, soft_update


@dataclass(frozen=True)
class DDPGSettings:
    """Hyper-parameters of DDPG; the defaults are those of :meth:`paper`.

    Parameters
    ----------
    hidden : tuple of int
        Widths of the hidden layers, of actor and critic alike; at least one.
    batch_size : int
        Transitions per update, n >= 1.
    actor_learning_rate, critic_learning_rate : float
        Step sizes of Adam, > 0.
    discount : float
        gamma, in [0, 1).
    tau : float
        Share of the online network in each step of the target network, in (0, 1].
    exploration_noise : float
        Standard deviation of the Gaussian noise on actions while training, >= 0; actions
        lie in [-1, 1].
    warm_up : int
        Environment steps with uniform actions before the first update, >= 1.
    capacity : int
        Transitions that the replay buffer keeps, the newest ones.

    Raises
    ------
    TypeError, ValueError
        If a value is outside its range.

    Examples
    --------
    >>> DDPGSettings.laptop().hidden, DDPGSettings.paper().hidden
    ((64, 64), (400, 300))
    """

    hidden: tuple[int, ...] = (400, 300)
    batch_size: int = 100
    actor_learning_rate: float = 1e-3
    critic_learning_rate: float = 1e-3
    discount: float = 0.99
    tau: float = 0.005
    exploration_noise: float = 0.1
    warm_up: int = 25_000
    capacity: int = 1_000_000

    def __post_init__(self) -> None:
        if not isinstance(self.hidden, tuple) or not self.hidden:
            raise TypeError(f"hidden must be a tuple of at least one width, got {self.hidden!r}")
        for width in self.hidden:
            check.whole("each width of hidden", width)
        for name in ("batch_size", "warm_up", "capacity"):
            check.whole(name, getattr(self, name))
        for name in ("actor_learning_rate", "critic_learning_rate", "tau"):
            check.positive(name, getattr(self, name))
        if self.tau > 1:
            raise ValueError(f"tau must lie in (0, 1], got {self.tau!r}")
        check.below_one("discount", self.discount)
        check.not_negative("exploration_noise", self.exploration_noise)

    @classmethod
    def paper(cls) -> DDPGSettings:
        """Fujimoto et al. (2018), appendix C, with a warm-up of 25,000 steps."""
        return cls()

    @classmethod
    def laptop(cls) -> DDPGSettings:
        """Two layers of 64, a warm-up of 1,000 steps, and room for 100,000 transitions."""
        return cls(hidden=(64, 64), warm_up=1_000, capacity=100_000)


class DDPGState(NamedTuple):
    """All that one agent's update reads and writes.

    Attributes
    ----------
    actor, critic : tuple of Layer
        phi and theta.
    target_actor, target_critic : tuple of Layer
        phi' and theta'.
    actor_optimiser, critic_optimiser : tree
        States of Adam.
    """

    actor: Params
    critic: Params
    target_actor: Params
    target_critic: Params
    actor_optimiser: optax.OptState
    critic_optimiser: optax.OptState


def initialise(
    key: jax.Array, observation_size: int, action_size: int, settings: DDPGSettings
) -> DDPGState:
    """A new agent; its target networks equal its networks.

    Parameters
    ----------
    key : jax.Array
        A key of ``jax.random``.
    observation_size, action_size : int
        d_s and d_A, >= 1.
    settings : DDPGSettings

    Examples
    --------
    >>> state = initialise(jax.random.key(0), 11, 3, DDPGSettings.laptop())
    >>> [layer.weight.shape for layer in state.critic]
    [(14, 64), (64, 64), (64, 1)]
    """
    d_s = check.whole("observation_size", observation_size)
    d_a = check.whole("action_size", action_size)
    check.instance("settings", settings, DDPGSettings)
    actor, critic = mlp_inits(key, [(d_s, *settings.hidden, d_a), (d_s + d_a, *settings.hidden, 1)])
    return DDPGState(
        actor,
        critic,
        actor,
        critic,
        optax.adam(settings.actor_learning_rate).init(actor),
        optax.adam(settings.critic_learning_rate).init(critic),
    )


def act(actor: Params, observations: ArrayLike) -> jax.Array:
    """The greedy actions pi_phi(s), without noise.

    Parameters
    ----------
    actor : tuple of Layer
    observations : array_like, shape (..., d_s)

    Returns
    -------
    jax.Array, shape (..., d_A)
        In [-1, 1].
    """
    return mlp_apply(actor, jnp.asarray(observations), final=jnp.tanh)


def value(critic: Params, observations: ArrayLike, actions: ArrayLike) -> jax.Array:
    """Q_theta(s, a).

    Parameters
    ----------
    critic : tuple of Layer
    observations : array_like, shape (..., d_s)
    actions : array_like, shape (..., d_A)

    Returns
    -------
    jax.Array, shape (...)
    """
    pair = jnp.concatenate([jnp.asarray(observations), jnp.asarray(actions)], axis=-1)
    return mlp_apply(critic, pair)[..., 0]


def update(
    state: DDPGState, batch: Batch, settings: DDPGSettings
) -> tuple[DDPGState, dict[str, jax.Array]]:
    """One step of one agent; a pure function of its arguments.

    The critic moves first; the actor climbs the new critic.

    Parameters
    ----------
    state : DDPGState
    batch : Batch
        n transitions.
    settings : DDPGSettings

    Returns
    -------
    DDPGState
        After the step.
    dict
        ``critic_loss``, the mean squared error before the step, and ``actor_loss``, minus
        the mean value of the actor's actions before its step.

    Examples
    --------
    >>> settings = DDPGSettings.laptop()
    >>> state = initialise(jax.random.key(0), 2, 1, settings)
    >>> zeros = jnp.zeros((4, 2)), jnp.zeros((4, 1)), jnp.zeros(4)
    >>> batch = Batch(zeros[0], zeros[1], zeros[2], zeros[0], jnp.ones(4))
    >>> after, losses = jax.jit(update, static_argnums=2)(state, batch, settings)
    >>> sorted(losses), float(losses["critic_loss"]) > 0
    (['actor_loss', 'critic_loss'], True)
    """
    s, a, r, s_next, terminal = batch
    best_next = value(state.target_critic, s_next, act(state.target_actor, s_next))
    y = r + settings.discount * (1 - terminal) * best_next

    def critic_loss(critic: Params) -> jax.Array:
        return jnp.mean((value(critic, s, a) - y) ** 2)

    loss, slope = jax.value_and_grad(critic_loss)(state.critic)
    critic, critic_optimiser = _adam(
        settings.critic_learning_rate, slope, state.critic, state.critic_optimiser
    )

    def actor_loss(actor: Params) -> jax.Array:
        return -jnp.mean(value(critic, s, act(actor, s)))

    minus_value, slope = jax.value_and_grad(actor_loss)(state.actor)
    actor, actor_optimiser = _adam(
        settings.actor_learning_rate, slope, state.actor, state.actor_optimiser
    )
    moved = DDPGState(
        actor,
        critic,
        soft_update(state.target_actor, actor, settings.tau),
        soft_update(state.target_critic, critic, settings.tau),
        actor_optimiser,
        critic_optimiser,
    )
    return moved, {"critic_loss": loss, "actor_loss": minus_value}


def _adam(
    rate: float, slope: Params, params: Params, optimiser: optax.OptState
) -> tuple[Params, optax.OptState]:
    steps, optimiser = optax.adam(rate).update(slope, optimiser)
    moved: Params = optax.apply_updates(params, steps)
    return moved, optimiser


# -- training a population -----------------------------------------------------------------


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

    Parameters
    ----------
    task : Task
    settings : DDPGSettings
        A buffer takes its whole capacity at once.
    seeds : sequence of int
        >= 0, distinct, at least one.

    Raises
    ------
    TypeError, ValueError
        If an argument is malformed.
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
    training : DDPGTraining
        From :func:`start`, or from this function; it is not changed.
    task, settings
        Those of :func:`start`.
    steps : int
        Environment steps of each agent, >= 1, the warm-up included.
    chunk : int
        It must divide ``steps``, the steps made before, the warm-up and the capacity.
    threads : int, optional
        Threads that step the environments, see
        :class:`dprl.agents.environments.ParallelEnvironments`.

    Raises
    ------
    TypeError, ValueError
        If an argument is malformed, or the training is of other environments or capacity.

    Examples
    --------
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
        env.name,
        agents,
        task.t_max,
        timeout_is_terminal=task.timeout_is_terminal,
        threads=threads,
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
            actors = parallel.joined([state.actor for state in states])
            rows = replay.collect(
                world, generators, chunk, _acting(actors), settings.exploration_noise
            )
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
def _initialise_all(
    keys: jax.Array, observation_size: int, action_size: int, hidden: tuple[int, ...]
) -> DDPGState:
    settings = DDPGSettings(hidden=hidden)  # the rest does not matter for a new agent
    states: DDPGState = jax.vmap(
        lambda key: initialise(key, observation_size, action_size, settings)
    )(keys)
    return states


def _acting(actors: Params) -> Callable[[Float32Array], Float32Array]:
    """Greedy actions of all agents, (agents, n, d_s) -> (agents, n, d_A), for many small calls.

    On a CPU by NumPy, which starts a call in a tenth of the time.
    """
    if jax.default_backend() != "cpu":
        return lambda observations: np.asarray(jax.vmap(act)(actors, observations))
    layers = [(np.asarray(weight), np.asarray(bias)[:, None]) for weight, bias in actors]

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

    return jax.vmap(one_agent)(state, buffer, picked), buffer
