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
from numpy.typing import ArrayLike, NDArray

from dprl import _validation as check
from dprl.agents import environments
from dprl.agents.bcq import BCQPopulation
from dprl.agents.ddpg import DDPGPopulation
from dprl.agents.episodes import Episodes


@dataclass(frozen=True)
class Mixture:
    """How a data oracle explores.

    Parameters
    ----------
    random_share : float
        Probability, at each step, of an action that is uniform on the range; in [0, 1].
    noise : float
        Standard deviation of what is added to the policy otherwise; >= 0, actions lie in
        [-1, 1].

    Raises
    ------
    TypeError, ValueError
        If a value is not such a number.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> Mixture(random_share=0.0, noise=0.0).act(np.array([[0.5, -2.0]]), rng).tolist()
    [[0.5, -1.0]]
    """

    random_share: float = 0.3
    noise: float = 0.3

    def __post_init__(self) -> None:
        if not 0 <= check.real("random_share", self.random_share) <= 1:
            raise ValueError(f"random_share must lie in [0, 1], got {self.random_share!r}")
        if check.real("noise", self.noise) < 0:
            raise ValueError(f"noise must not be negative, got {self.noise!r}")

    def act(self, greedy: NDArray[np.float32], rng: np.random.Generator) -> NDArray[np.float32]:
        """Actions of the mixture.

        Parameters
        ----------
        greedy : ndarray, shape (..., d_A)
            What the policy would do.
        rng : numpy.random.Generator

        Returns
        -------
        ndarray of float32, shape (..., d_A)
            In [-1, 1].
        """
        noisy = greedy + self.noise * rng.standard_normal(greedy.shape, dtype=np.float32)
        uniform = rng.uniform(-1, 1, greedy.shape).astype(np.float32)
        random = rng.random((*greedy.shape[:-1], 1)) < self.random_share
        return np.where(random, uniform, np.clip(noisy, -1, 1)).astype(np.float32)


def collect_halves(
    population: DDPGPopulation,
    initial_states: ArrayLike,
    mixture: Mixture,
    t_max: int,
    rng: np.random.Generator,
    halves: int = 2,
) -> list[list[Episodes]]:
    """Let every data oracle collect its halves, all in one lockstep.

    Parameters
    ----------
    population : DDPGPopulation
        The O data oracles.
    initial_states : array_like, shape (M, k)
        Physics states, the same for all oracles and halves; see
        :func:`dprl.agents.environments.draw_initial_states`.
    mixture : Mixture
        How they explore.
    t_max : int
        Maximum length, >= 1.
    rng : numpy.random.Generator
        Source of the exploration; the halves use different numbers.
    halves : int
        Sets of M trajectories per oracle, >= 1.

    Returns
    -------
    list of list of Episodes
        ``[oracle][half]``, each of M episodes; episode i starts in initial state i.

    Raises
    ------
    TypeError, ValueError
        If an argument is malformed.
    """
    check.instance("population", population, DDPGPopulation)
    check.instance("mixture", mixture, Mixture)
    check.generator(rng)
    sets = check.whole("halves", halves)
    states = check.finite_array("initial_states", initial_states, ndim=2)
    greedy = population.population_policy()

    def policy(observations: NDArray[np.float32], step: int) -> NDArray[np.float32]:
        return mixture.act(greedy(observations, step), rng)

    agents, m = population.agents, len(states)
    episodes = environments.rollout(
        population.environment, policy, np.tile(states, (agents * sets, 1)), t_max
    )
    return _grouped(episodes, agents, sets, m)


def query_outputs(
    models: BCQPopulation,
    initial_states: ArrayLike,
    t_max: int,
    *,
    environment: str,
    seed: int,
) -> list[Episodes]:
    """Greedy roll-outs of all models from the same states, in one lockstep.

    Parameters
    ----------
    models : BCQPopulation
        The trained models.
    initial_states : array_like, shape (M, k)
        Physics states.
    t_max : int
        Maximum length, >= 1.
    environment : str
        One of :data:`dprl.agents.environments.NAMES`.
    seed : int
        Of the latent candidates that BCQ draws when it acts; nothing is added to its actions.

    Returns
    -------
    list of Episodes
        One per model, each of M episodes; episode i starts in initial state i.
    """
    check.instance("models", models, BCQPopulation)
    states = check.finite_array("initial_states", initial_states, ndim=2)
    count, m = len(models), len(states)
    key = jax.random.key(check.whole("seed", seed, 0))

    def policy(observations: NDArray[np.float32], step: int) -> NDArray[np.float32]:
        of_models = observations.reshape(count, m, -1)
        actions = models.act(jax.random.fold_in(key, step), of_models)
        return np.asarray(actions).reshape(len(observations), -1)

    episodes = environments.rollout(environment, policy, np.tile(states, (count, 1)), t_max)
    return [group[0] for group in _grouped(episodes, count, 1, m)]


def _grouped(episodes: Episodes, groups: int, sets: int, size: int) -> list[list[Episodes]]:
    numbers = np.arange(groups * sets * size).reshape(groups, sets, size)
    return [[episodes.select(part) for part in group] for group in numbers]
