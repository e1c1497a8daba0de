r"""The two oracles of chapter 5: who makes the data, and what a trained model answers.

The *data oracle* is a DDPG agent (:mod:`dprl.agents.ddpg`). It collects with noise: with
some probability a uniform action, otherwise its policy plus a normal number, cut to the range
of actions. The thesis does not say so; its public code and Fujimoto et al. (2019) do. Each
oracle collects two **halves**, independent given the oracle, from one list of initial states
that all oracles share. A BCQ model (:mod:`dprl.agents.bcq`) is trained on each half.

The *output* of a model for an initial state is its greedy roll-out from that state: the
access that the thesis gives to the attacker (section 5.5).

Sources: thesis, sections 5.5, 5.6.1 and 5.6.2; Fujimoto, Meger and Precup 2019, appendix D.
"""

from __future__ import annotations

from dataclasses import dataclass

import jax
import numpy as np
from numpy.typing import ArrayLike

from dprl import _validation as check
from dprl._validation import FloatArray, IntArray
from dprl.agents import ddpg, environments
from dprl.agents.bcq_population import BCQPopulation
from dprl.agents.ddpg import DDPGState
from dprl.agents.environments import RolloutPolicy, Task
from dprl.agents.episodes import Episodes, Float32Array
from experiments.chapter_5.stages import in_pairs, split_evenly

_act = jax.jit(ddpg.act)
_act_all = jax.jit(jax.vmap(ddpg.act))


@dataclass(frozen=True, eq=False)
class DataOracles:
    """Trained DDPG agents, and how well they did on the way.

    Attributes
    ----------
    task : Task
        What they have learned.
    state : DDPGState
        All that they know; each leaf has shape (agents, ...).
    steps : ndarray of int, shape (k,)
        When their greedy policies were run; the first is 0, before any training.
    returns : ndarray, shape (agents, k, episodes)
        Undiscounted returns. Episode j starts in the same state for all agents and times.
    """

    task: Task
    state: DDPGState
    steps: IntArray
    returns: FloatArray

    @property
    def agents(self) -> int:
        """How many there are."""
        return len(self.returns)

    def policy(self, agent: int) -> RolloutPolicy:
        """The greedy policy of one agent, 0 ... agents - 1."""
        if check.whole("agent", agent, minimum=0) >= self.agents:
            raise ValueError(f"agent must lie in 0 ... {self.agents - 1}, got {agent}")
        actor = jax.tree.map(lambda leaf: leaf[agent], self.state.actor)
        return lambda observations, step: np.asarray(_act(actor, observations))

    def population_policy(self) -> RolloutPolicy:
        """The greedy policies of all; see :func:`greedy_policies`."""
        return greedy_policies(self.state)


def greedy_policies(state: DDPGState) -> RolloutPolicy:
    """The greedy policies of all agents, leaves of shape (agents, ...), in one call.

    Observations of shape (agents, n, d_s) give actions of shape (agents, n, d_A). Those of shape
    (agents n, d_s) are read agent after agent and give actions of shape (agents n, d_A).
    """
    agents = len(state.actor[0].bias)

    def act_greedily(observations: Float32Array, step: int) -> Float32Array:
        if observations.ndim not in (2, 3) or observations.shape[0] % agents:
            raise ValueError(
                f"observations must have shape ({agents}, n, d_s) or ({agents} n, d_s), "
                f"got {observations.shape}"
            )
        grouped = observations.reshape(agents, -1, observations.shape[-1])
        actions = np.asarray(_act_all(state.actor, grouped))
        return actions.reshape(*observations.shape[:-1], actions.shape[-1])

    return act_greedily


@dataclass(frozen=True)
class Mixture:
    """How a data oracle explores.

    At each step it takes, with the probability ``random_share``, an action that is uniform on
    [-1, 1]; otherwise normal numbers of standard deviation ``noise`` >= 0 are added to the policy.

    >>> rng = np.random.default_rng(0)
    >>> Mixture(random_share=0.0, noise=0.0).act(np.array([[0.5, -2.0]]), rng).tolist()
    [[0.5, -1.0]]
    """

    random_share: float = 0.3
    noise: float = 0.3

    def __post_init__(self) -> None:
        check.unit("random_share", self.random_share)
        check.not_negative("noise", self.noise)

    def act(self, greedy: Float32Array, rng: np.random.Generator) -> Float32Array:
        """Actions of the mixture, float32 in [-1, 1], where the policy would do ``greedy``.

        Both of shape (..., d_A).
        """
        noisy = greedy + self.noise * rng.standard_normal(greedy.shape, dtype=np.float32)
        uniform = rng.uniform(-1, 1, greedy.shape).astype(np.float32)
        random = rng.random((*greedy.shape[:-1], 1)) < self.random_share
        return np.where(random, uniform, np.clip(noisy, -1, 1)).astype(np.float32)


def collect_halves(
    oracles: DataOracles, initial_states: ArrayLike, mixture: Mixture, rng: np.random.Generator
) -> list[list[Episodes]]:
    """Let every data oracle collect its two halves, all in one lockstep.

    Parameters
    ----------
    oracles : DataOracles
    initial_states : array_like, shape (M, k)
        Physics states, the same for all oracles and halves; see
        :func:`dprl.agents.environments.draw_initial_states`.
    mixture, rng : Mixture, numpy.random.Generator
        How they explore; the halves use different numbers.

    Returns
    -------
    list of list of Episodes
        ``[oracle][half]``, each of M episodes; episode i starts in initial state i.
    """
    check.instance("oracles", oracles, DataOracles)
    check.instance("mixture", mixture, Mixture)
    check.generator(rng)
    states = check.finite_array("initial_states", initial_states, ndim=2)
    greedy, sets = oracles.population_policy(), 2 * oracles.agents

    def policy(observations: Float32Array, step: int) -> Float32Array:
        return mixture.act(np.asarray(greedy(observations, step)), rng)

    task = oracles.task
    starts = np.tile(states, (sets, 1))
    episodes = environments.rollout(task.environment, policy, starts, task.t_max)
    return in_pairs(split_evenly(episodes, sets))


def query_outputs(
    models: BCQPopulation, initial_states: ArrayLike, task: Task, *, seed: int
) -> list[Episodes]:
    """Greedy roll-outs of all models from the same physics states (M, k), in one lockstep.

    One set of M episodes per model; episode i starts in initial state i. The seed is that of the
    latent candidates that BCQ draws when it acts; nothing is added to its actions.
    """
    check.instance("models", models, BCQPopulation)
    check.instance("task", task, Task)
    states = check.finite_array("initial_states", initial_states, ndim=2)
    count, m = len(models), len(states)
    key = jax.random.key(check.whole("seed", seed, 0))

    def policy(observations: Float32Array, step: int) -> Float32Array:
        of_models = observations.reshape(count, m, -1)
        actions = models.act(jax.random.fold_in(key, step), of_models)
        return np.asarray(actions).reshape(len(observations), -1)

    starts = np.tile(states, (count, 1))
    episodes = environments.rollout(task.environment, policy, starts, task.t_max)
    return split_evenly(episodes, count)
