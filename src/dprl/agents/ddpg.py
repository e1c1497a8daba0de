r"""Deep deterministic policy gradient (DDPG), the learner behind the data oracle.

An actor :math:`\pi_\phi` and a critic :math:`Q_\theta` are trained on transitions
(s, a, r, s') of a replay buffer. One update on a mini-batch of n transitions is ::

    y      = r + gamma (1 - terminal) Q_theta'(s', pi_phi'(s'))
    theta <- Adam step on  (1/n) sum (Q_theta(s, a) - y)^2
    phi   <- Adam step on -(1/n) sum Q_theta(s, pi_phi(s))
    theta' <- tau theta + (1 - tau) theta',  phi' <- tau phi + (1 - tau) phi'

:func:`update` is this step for *one* agent, a pure function. A population is the same
function under ``jax.vmap``; :func:`train` steps the environments of all its agents
together and makes one update per agent and environment step.

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
import itertools
import os
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.typing import ArrayLike
from numpy.typing import NDArray

from dprl import _validation as check
from dprl.agents import checkpoints, environments
from dprl.agents.networks import Batch, Params, mlp_apply, mlp_inits, soft_update

Float32Array = NDArray[np.float32]
Tree = TypeVar("Tree")

#: Shape of a policy as roll-outs call it: (observations (n, d_s), step) -> actions (n, d_A).
Policy = Callable[[Float32Array, int], Float32Array]

# A checkpoint holds the whole replay buffer; more often than this it is not written.
_SECONDS_BETWEEN_CHECKPOINTS = 60.0


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
        check.discount(self.discount)
        if check.real("exploration_noise", self.exploration_noise) < 0:
            raise ValueError(
                f"exploration_noise must not be negative, got {self.exploration_noise!r}"
            )

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


# -- a population ------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class DDPGPopulation:
    """Trained agents, stacked along the first axis of every array; made by :func:`train`.

    Attributes
    ----------
    environment : str
        Name of the environment.
    settings : DDPGSettings
    t_max : int
        Maximum length of an episode in training and evaluation.
    timeout_is_terminal : bool
        Whether the end by t_max was stored as an absorbing state.
    seeds : tuple of int
        One per agent.
    trained_steps : int
        Environment steps of each agent.
    state : DDPGState
        Everything the agents know; each leaf has shape (agents, ...).
    steps : ndarray of int, shape (k,)
        When the policies were evaluated; the first entry is 0, before any training.
    returns : ndarray, shape (agents, k, episodes)
        Undiscounted returns of greedy episodes. Episode j starts in the same state for all
        agents and evaluations.
    lengths : ndarray of int, shape (agents, k, episodes)
        Their lengths in steps.
    """

    environment: str
    settings: DDPGSettings
    t_max: int
    timeout_is_terminal: bool
    seeds: tuple[int, ...]
    trained_steps: int
    state: DDPGState
    steps: NDArray[np.int64]
    returns: NDArray[np.float64]
    lengths: NDArray[np.int64]

    @property
    def agents(self) -> int:
        """How many agents there are."""
        return len(self.seeds)

    def policy(self, agent: int) -> Policy:
        """The greedy policy of one agent, as roll-outs call it.

        Parameters
        ----------
        agent : int
            0 ... agents - 1.
        """
        if check.whole("agent", agent, minimum=0) >= self.agents:
            raise ValueError(f"agent must lie in 0 ... {self.agents - 1}, got {agent}")
        actor = jax.tree.map(lambda leaf: leaf[agent], self.state.actor)

        def act_greedily(observations: Float32Array, step: int) -> Float32Array:
            return np.asarray(_act_one(actor, observations))

        return act_greedily

    def population_policy(self) -> Policy:
        """The greedy policies of all agents in one call.

        Returns
        -------
        callable
            Observations of shape (agents, n, d_s) give actions of shape (agents, n, d_A).
            Observations of shape (agents n, d_s) are read agent after agent and give actions
            of shape (agents n, d_A).
        """
        actors, agents = self.state.actor, self.agents

        def act_greedily(observations: Float32Array, step: int) -> Float32Array:
            if observations.ndim not in (2, 3) or observations.shape[0] % agents:
                raise ValueError(
                    f"observations must have shape ({agents}, n, d_s) or ({agents} n, d_s), "
                    f"got {observations.shape}"
                )
            grouped = observations.reshape(agents, -1, observations.shape[-1])
            actions = np.asarray(_act_all(actors, grouped))
            return actions.reshape(*observations.shape[:-1], actions.shape[-1])

        return act_greedily

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write everything into one file; see :mod:`dprl.agents.checkpoints`."""
        checkpoints.save(
            path,
            {
                "state": self.state,
                "steps": self.steps,
                "returns": self.returns,
                "lengths": self.lengths,
            },
            {
                "kind": "DDPG population",
                "environment": self.environment,
                "settings": asdict(self.settings),
                "t_max": self.t_max,
                "timeout_is_terminal": self.timeout_is_terminal,
                "seeds": list(self.seeds),
                "trained_steps": self.trained_steps,
                "curve": list(self.returns.shape),
            },
        )

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> DDPGPopulation:
        """Read what :meth:`save` wrote.

        Raises
        ------
        FileNotFoundError, CheckpointError
            If there is no such file, or it holds something else.
        """
        known = checkpoints.read_metadata(path)
        if known.get("kind") != "DDPG population":
            raise checkpoints.CheckpointError(f"{Path(path).name} holds no DDPG population")
        given = known["settings"]
        settings = DDPGSettings(**{**given, "hidden": tuple(given["hidden"])})
        curve = tuple(known["curve"])
        like = {
            "state": _shapes(known["environment"], settings, len(known["seeds"])),
            "steps": np.zeros(curve[1], np.int64),
            "returns": np.zeros(curve),
            "lengths": np.zeros(curve, np.int64),
        }
        tree = checkpoints.load(path, like)
        return cls(
            known["environment"],
            settings,
            known["t_max"],
            known["timeout_is_terminal"],
            tuple(known["seeds"]),
            known["trained_steps"],
            jax.tree.map(jnp.asarray, tree["state"]),
            tree["steps"],
            tree["returns"],
            tree["lengths"],
        )


_act_one = jax.jit(act)
_act_all = jax.jit(jax.vmap(act))


def _shapes(name: str, settings: DDPGSettings, agents: int) -> DDPGState:
    """Shapes and dtypes of a population's state."""
    env = environments.environment(name)

    def one(key: jax.Array) -> DDPGState:
        return initialise(key, env.observation_size, env.action_size, settings)

    shapes: DDPGState = jax.eval_shape(jax.vmap(one), jax.random.split(jax.random.key(0), agents))
    return shapes


# -- training ----------------------------------------------------------------------------


def train(
    name: str,
    settings: DDPGSettings,
    *,
    seeds: Sequence[int],
    steps: int,
    t_max: int,
    evaluate_every: int = 5_000,
    evaluation_episodes: int = 10,
    chunk: int = 50,
    timeout_is_terminal: bool = False,
    checkpoint: str | os.PathLike[str] | None = None,
    deadline: checkpoints.Deadline | None = None,
    progress: Callable[[int, int], object] | None = None,
    threads: int | None = None,
) -> DDPGPopulation:
    """Train one agent per seed, all in lockstep, with one update per environment step.

    Steps are taken in chunks: ``chunk`` environment steps of every agent, then as many
    updates, whose mini-batches are drawn from all that the buffer then holds. So the policy
    that collects is at most ``chunk`` updates old. In the warm-up actions are uniform and
    nothing is learned. Everything random about an agent comes from its seed.

    The same call gives the same parameters on the same machine, bit by bit, whether it ran
    through or was killed and continued from its checkpoint.

    Parameters
    ----------
    name : str
        One of :data:`dprl.agents.environments.NAMES`.
    settings : DDPGSettings
    seeds : sequence of int
        One per agent, >= 0, distinct.
    steps : int
        Environment steps of each agent, the warm-up included.
    t_max : int
        Maximum length of an episode, >= 1. Its end is a truncation: the state reached is
        not absorbing and its value counts.
    evaluate_every, evaluation_episodes : int
        The greedy policy is evaluated before training, whenever so many steps have been
        made, and at the end; on so many episodes.
    chunk : int
        It must divide ``steps``, ``evaluate_every``, the warm-up and the buffer's capacity.
    timeout_is_terminal : bool
        Store the end by t_max as if the state reached were absorbing.
    checkpoint : path, optional
        File that holds everything needed to continue: about once a minute, and when the
        deadline passes. It is read if it exists.
    deadline : Deadline, optional
        Looked at after each chunk.
    progress : callable, optional
        ``progress(done, steps)``, called after each chunk.
    threads : int, optional
        Threads that step the environments, see
        :class:`dprl.agents.environments.ParallelEnvironments`.

    Returns
    -------
    DDPGPopulation

    Raises
    ------
    OutOfTime
        If the deadline passed. With a checkpoint, call again to continue.
    CheckpointError
        If the checkpoint was made by another call.
    TypeError, ValueError
        For an unknown environment or a number outside its range.

    Examples
    --------
    >>> tiny = DDPGSettings(hidden=(8,), batch_size=4, warm_up=10, capacity=100)
    >>> agents = train("Hopper-v5", tiny, seeds=[0, 1], steps=20, t_max=5, chunk=10,
    ...                evaluate_every=10, evaluation_episodes=2, threads=1)
    >>> agents.steps.tolist(), agents.returns.shape
    ([0, 10, 20], (2, 3, 2))
    >>> agents.policy(1)(np.zeros((4, 11), np.float32), 0).shape
    (4, 3)
    """
    plan = _Plan(
        name,
        settings,
        tuple(seeds),
        steps,
        t_max,
        evaluate_every,
        evaluation_episodes,
        chunk,
        timeout_is_terminal,
    )
    path = None if checkpoint is None else Path(checkpoint)
    if path is not None and path.exists():
        checkpoints.read_metadata(path, plan.identity())  # refused before anything is made
    run = _Run(plan, threads)
    try:
        if path is not None and path.exists():
            run.read(path)
        written = time.monotonic()
        while True:
            run.evaluate_if_due()
            if run.step == steps:
                break
            run.advance()
            if progress is not None:
                progress(run.step, steps)
            late = deadline is not None and deadline.passed and run.step < steps
            due = time.monotonic() - written > _SECONDS_BETWEEN_CHECKPOINTS
            if path is not None and (late or due):
                run.write(path)
                written = time.monotonic()
            if late and deadline is not None:
                deadline.check()
        return run.population()
    finally:
        run.close()


@dataclass(frozen=True)
class _Plan:
    """What is to be trained: the arguments of :func:`train` that decide its result."""

    environment: str
    settings: DDPGSettings
    seeds: tuple[int, ...]
    steps: int
    t_max: int
    evaluate_every: int
    evaluation_episodes: int
    chunk: int
    timeout_is_terminal: bool

    def __post_init__(self) -> None:
        environments.environment(self.environment)
        check.instance("settings", self.settings, DDPGSettings)
        check.instance("timeout_is_terminal", self.timeout_is_terminal, bool)
        for seed in self.seeds:
            check.whole("each seed", seed, minimum=0)
        if not self.seeds or len(set(self.seeds)) < len(self.seeds):
            raise ValueError(f"seeds must be distinct and at least one, got {list(self.seeds)}")
        for name in ("steps", "t_max", "evaluate_every", "evaluation_episodes", "chunk"):
            check.whole(name, getattr(self, name))
        for what, number in (
            ("steps", self.steps),
            ("evaluate_every", self.evaluate_every),
            ("the warm-up", self.settings.warm_up),
            ("the buffer's capacity", self.settings.capacity),
        ):
            if number % self.chunk:
                raise ValueError(f"chunk must divide {what}, {number}, got {self.chunk}")
        if self.settings.warm_up >= self.steps:
            raise ValueError(
                f"steps must exceed the warm-up of {self.settings.warm_up} steps, got {self.steps}"
            )

    def identity(self) -> dict[str, Any]:
        """What a checkpoint must say to be continued."""
        return {"kind": "DDPG training", **asdict(self)}


class _Run:
    """One training of a population: its memory, its environments, its clocks."""

    def __init__(self, plan: _Plan, threads: int | None) -> None:
        self.plan, self.agents = plan, len(plan.seeds)
        self.world = environments.environment(plan.environment)
        # independent streams of each agent: networks, and all that happens while it learns
        pairs = [np.random.SeedSequence(seed).spawn(2) for seed in plan.seeds]
        keys = jnp.stack(
            [
                jax.random.wrap_key_data(
                    jnp.asarray(first.generate_state(2, np.uint32)), impl="threefry2x32"
                )
                for first, _ in pairs
            ]
        )
        self.generators = [np.random.default_rng(second) for _, second in pairs]
        state = _initialise_all(
            keys, self.world.observation_size, self.world.action_size, plan.settings.hidden
        )
        width = 2 * self.world.observation_size + self.world.action_size + 2
        self.capacity = min(plan.settings.capacity, plan.steps)
        self.groups = _groups(self.agents)
        self.states = [_part(state, group) for group in self.groups]
        self.buffers = [
            jnp.zeros((group.stop - group.start, self.capacity, width), jnp.float32)
            for group in self.groups
        ]
        self.workers, self.compiled = ThreadPoolExecutor(len(self.groups)), False
        self.step = 0
        self.environments = environments.ParallelEnvironments(
            plan.environment,
            self.agents,
            plan.t_max,
            timeout_is_terminal=plan.timeout_is_terminal,
            threads=threads,
        )
        self.observations = self.environments.reset(
            np.concatenate([self.initial_state(agent) for agent in range(self.agents)])
        )
        self.when = np.unique([*range(0, plan.steps, plan.evaluate_every), plan.steps])
        shape = (self.agents, self.when.size, plan.evaluation_episodes)
        self.returns, self.lengths = np.full(shape, np.nan), np.zeros(shape, np.int64)
        # the same episodes for every agent, evaluation, and training
        self.starts = environments.draw_initial_states(
            plan.environment,
            plan.evaluation_episodes,
            np.random.default_rng(np.random.SeedSequence(0)),
        )

    def close(self) -> None:
        self.workers.shutdown()
        self.environments.close()

    @property
    def filled(self) -> int:
        """Transitions in the buffer of each agent."""
        return min(self.step, self.capacity)

    def initial_state(self, agent: int) -> NDArray[np.float64]:
        return environments.draw_initial_states(self.world.name, 1, self.generators[agent])

    def advance(self) -> None:
        """One chunk: environment steps, then updates."""
        learning = self.step >= self.plan.settings.warm_up
        rows = self.collect(learning)
        position, self.step = self.step % self.capacity, self.step + self.plan.chunk
        if learning:
            size = (self.plan.chunk, self.plan.settings.batch_size)
            picked = np.stack([rng.integers(0, self.filled, size) for rng in self.generators])
            self.learn(rows, position, picked.astype(np.int32))
        else:
            for i, group in enumerate(self.groups):
                self.buffers[i] = _store(self.buffers[i], rows[group], position)

    def learn(self, rows: Float32Array, position: int, picked: NDArray[np.int32]) -> None:
        """The updates of one chunk, each group of agents on its own thread."""

        def of_group(i: int) -> tuple[DDPGState, jax.Array]:
            group, state, buffer = self.groups[i], self.states[i], self.buffers[i]
            after: tuple[DDPGState, jax.Array] = _learn(
                state, buffer, rows[group], position, picked[group], self.plan.settings
            )
            jax.tree.map(lambda leaf: leaf.block_until_ready(), after)
            return after

        # the first call compiles: once, for groups of one size
        side_by_side = self.workers.map if self.compiled else map
        done = list(side_by_side(of_group, range(len(self.groups))))
        self.compiled = True
        self.states, self.buffers = [list(part) for part in zip(*done, strict=True)]

    def collect(self, learning: bool) -> Float32Array:
        """Transitions of one chunk, shape (agents, chunk, width)."""
        d_s, d_a = self.world.observation_size, self.world.action_size
        rows = np.empty((self.agents, self.plan.chunk, 2 * d_s + d_a + 2), np.float32)
        drawn = np.empty((self.plan.chunk, self.agents, d_a), np.float32)
        for agent, rng in enumerate(self.generators):
            shape = (self.plan.chunk, d_a)
            drawn[:, agent] = rng.standard_normal(shape) if learning else rng.uniform(-1, 1, shape)
        act_greedily = _acting(_joined([state.actor for state in self.states]))
        for t in range(self.plan.chunk):
            actions = drawn[t]
            if learning:
                greedy = act_greedily(self.observations[:, None])[:, 0]
                actions = np.clip(greedy + self.plan.settings.exploration_noise * actions, -1, 1)
            step = self.environments.step(actions)
            rows[:, t, :d_s] = self.observations
            rows[:, t, d_s : d_s + d_a] = actions
            rows[:, t, d_s + d_a] = step.rewards
            rows[:, t, d_s + d_a + 1 : -1] = step.observations
            rows[:, t, -1] = step.terminals
            self.observations = step.observations
            over = step.finished
            if over.any():
                starts = [self.initial_state(agent) for agent in np.flatnonzero(over).tolist()]
                self.observations = self.environments.reset_where(over, np.concatenate(starts))
        return rows

    def evaluate_if_due(self) -> None:
        due = np.flatnonzero(self.when == self.step)
        if due.size and np.isnan(self.returns[:, due[0]]).any():
            greedy = self.population().population_policy()
            states = np.tile(self.starts, (self.agents, 1))
            episodes = environments.rollout(self.world.name, greedy, states, self.plan.t_max)
            shape = (self.agents, self.plan.evaluation_episodes)
            self.returns[:, due[0]] = episodes.returns.reshape(shape)
            self.lengths[:, due[0]] = episodes.lengths.reshape(shape)

    def population(self) -> DDPGPopulation:
        return DDPGPopulation(
            self.plan.environment,
            self.plan.settings,
            self.plan.t_max,
            self.plan.timeout_is_terminal,
            self.plan.seeds,
            self.step,
            _joined(self.states),
            self.when,
            self.returns,
            self.lengths,
        )

    def tree(self, filled: int) -> dict[str, Any]:
        return {
            "state": _joined(self.states),
            "buffer": _joined(self.buffers)[:, :filled],
            "physics": self.environments.full_states,
            "elapsed": self.environments.elapsed,
            "returns": self.returns,
            "lengths": self.lengths,
        }

    def write(self, path: Path) -> None:
        progress = {
            "step": self.step,
            "generators": [rng.bit_generator.state for rng in self.generators],
        }
        checkpoints.save(path, self.tree(self.filled), {**self.plan.identity(), **progress})

    def read(self, path: Path) -> None:
        known = checkpoints.read_metadata(path)
        self.step = int(known.get("step", 0))
        tree = checkpoints.load(path, self.tree(self.filled), self.plan.identity())
        self.states = [_part(tree["state"], group) for group in self.groups]
        for i, group in enumerate(self.groups):
            self.buffers[i] = _store(self.buffers[i], tree["buffer"][group], 0)
        self.observations = self.environments.restore(tree["physics"], tree["elapsed"])
        self.returns, self.lengths = tree["returns"], tree["lengths"]
        for rng, state in zip(self.generators, known["generators"], strict=True):
            rng.bit_generator.state = state


@functools.partial(jax.jit, static_argnums=(1, 2, 3))
def _initialise_all(
    keys: jax.Array, observation_size: int, action_size: int, hidden: tuple[int, ...]
) -> DDPGState:
    settings = DDPGSettings(hidden=hidden)  # the rest does not matter for a new agent
    states: DDPGState = jax.vmap(
        lambda key: initialise(key, observation_size, action_size, settings)
    )(keys)
    return states


def _groups(agents: int) -> list[slice]:
    """Consecutive agents that learn on one thread.

    The products of small matrices use one core. On a CPU as many groups as there are cores
    learn at the same time; an accelerator takes all agents at once.
    """
    known = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    cores = (known or 1) if jax.default_backend() == "cpu" else 1
    ends = np.linspace(0, agents, min(cores, agents) + 1).round().astype(int).tolist()
    return [slice(start, stop) for start, stop in itertools.pairwise(ends)]


def _part(tree: Tree, group: slice) -> Tree:
    # through NumPy: nothing to compile; and a copy, since it will be overwritten in place
    part: Tree = jax.tree.map(lambda leaf: jnp.array(np.asarray(leaf)[group]), tree)
    return part


def _joined(trees: Sequence[Tree]) -> Tree:
    whole: Tree
    if len(trees) == 1:
        whole = jax.tree.map(jnp.copy, trees[0])
    else:
        whole = jax.tree.map(lambda *leaves: jnp.asarray(np.concatenate(leaves)), *trees)
    return whole


def _acting(actors: Params) -> Callable[[Float32Array], Float32Array]:
    """Greedy actions of all agents, (agents, n, d_s) -> (agents, n, d_A), for many small calls.

    On a CPU by NumPy, which starts a call in a tenth of the time.
    """
    if jax.default_backend() != "cpu":
        return lambda observations: np.asarray(_act_all(actors, observations))
    layers = [(np.asarray(weight), np.asarray(bias)[:, None]) for weight, bias in actors]

    def act_greedily(observations: Float32Array) -> Float32Array:
        x = observations
        for weight, bias in layers[:-1]:
            x = np.maximum(x @ weight + bias, 0)
        weight, bias = layers[-1]
        return np.asarray(np.tanh(x @ weight + bias))

    return act_greedily


@functools.partial(jax.jit, donate_argnums=0)
def _store(buffer: jax.Array, rows: jax.Array, position: int) -> jax.Array:
    return jax.lax.dynamic_update_slice(buffer, rows, (0, position, 0))


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
    buffer = jax.lax.dynamic_update_slice(buffer, rows, (0, position, 0))
    d_s = state.actor[0].weight.shape[1]
    d_a = state.actor[-1].bias.shape[1]
    ends = [d_s, d_s + d_a, d_s + d_a + 1, 2 * d_s + d_a + 1]

    def one_agent(state: DDPGState, memory: jax.Array, picked: jax.Array) -> DDPGState:
        def one_update(state: DDPGState, rows: jax.Array) -> tuple[DDPGState, None]:
            s, a, r, s_next, terminal = jnp.split(rows, ends, axis=-1)
            batch = Batch(s, a, r[:, 0], s_next, terminal[:, 0])
            return update(state, batch, settings)[0], None

        return jax.lax.scan(one_update, state, memory[picked])[0]

    return jax.vmap(one_agent)(state, buffer, picked), buffer
