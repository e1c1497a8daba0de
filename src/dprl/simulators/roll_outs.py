r"""Data for off-policy evaluation: episodes of a behaviour policy, ratios to a target policy.

A policy is a function of observations, shape (m, d), to probabilities of the
actions, shape (m, n_actions). Importance ratios correct for the behaviour only
where it gives positive probability to every action that the target can take;
:func:`roll_out` refuses a step at which it does not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import ArrayLike, DTypeLike

from dprl import _validation as check
from dprl._validation import BoolArray, FloatArray, IntArray
from dprl.features import FourierBasis
from dprl.off_policy.policies import importance_ratios
from dprl.off_policy.saddle_point import (
    FeatureSteps,
    Statistics,
    Weighting,
    trajectory_statistics,
)

Policy = Callable[[FloatArray], FloatArray]


class Simulator(Protocol):
    """What an environment offers here; all methods act on m episodes at once."""

    @property
    def n_actions(self) -> int:
        """Actions are 0 .. n_actions - 1."""

    @property
    def max_steps(self) -> int:
        """Steps after which an episode is cut off."""

    @property
    def low(self) -> FloatArray:
        """Lower edge of the box of observations."""

    @property
    def high(self) -> FloatArray:
        """Upper edge of the box of observations."""

    def start(self, episodes: int, rng: np.random.Generator) -> FloatArray:
        """First states."""

    def observe(self, states: ArrayLike) -> FloatArray:
        """What features are made of."""

    def step(
        self, states: ArrayLike, actions: ArrayLike
    ) -> tuple[FloatArray, FloatArray, BoolArray]:
        """Next states, rewards, and which episodes ended."""


@dataclass(frozen=True, eq=False)
class SimulatedEpisodes:
    """Episodes end to end, T steps in all.

    Attributes
    ----------
    observations, next_observations : array, shape (T, d)
        Before and after each step.
    actions : array of int, shape (T,)
    rewards, ratios : array, shape (T,)
        Rewards, and probability of the action under the target over that under
        the behaviour.
    ended : array of bool, shape (T,)
        Whether the step ended its episode. The last step of an episode that was
        cut off did not: its next state has a value like any other.
    lengths : array of int, shape (m,)
        Steps of each episode; they sum to T.
    """

    observations: FloatArray
    next_observations: FloatArray
    actions: IntArray
    rewards: FloatArray
    ratios: FloatArray
    ended: BoolArray
    lengths: IntArray

    @property
    def trajectory_ids(self) -> IntArray:
        """Number of the episode to which each step belongs, shape (T,)."""
        return np.repeat(np.arange(self.lengths.size), self.lengths)

    def steps(self, basis: FourierBasis) -> FeatureSteps:
        """The steps in features of the observations; zero after an end."""
        check.instance("basis", basis, FourierBasis)
        before = basis(self.observations)
        after = np.empty_like(before)
        after[:-1] = before[1:]  # within an episode, the next observation is that of the next step
        last = np.cumsum(self.lengths) - 1
        after[last] = basis(self.next_observations[last])
        after[self.ended] = 0.0
        return FeatureSteps(before, after, self.rewards, self.ratios)

    @property
    def returns(self) -> FloatArray:
        """Sum of the rewards of each episode, without discount, shape (m,)."""
        first = np.cumsum(self.lengths) - self.lengths
        return np.asarray(np.add.reduceat(self.rewards, first), dtype=np.float64)


def roll_out(
    simulator: Simulator,
    behaviour: Policy,
    episodes: int,
    rng: np.random.Generator,
    target: Policy | None = None,
) -> SimulatedEpisodes:
    """Run m episodes of the behaviour policy, all at once.

    Parameters
    ----------
    simulator : Simulator
        The environment.
    behaviour, target : callable
        Policies; without a target the two are one, and every ratio is 1.
    episodes : int
        m.
    rng : numpy.random.Generator
        Draws first states and actions.

    Raises
    ------
    TypeError, ValueError
        If ``episodes`` is not a whole number >= 1, a policy returns something
        that is not a distribution over the actions for each episode, or the
        behaviour never takes an action that the target takes.

    Examples
    --------
    >>> from dprl.simulators.mountain_car import MountainCar
    >>> def coast(observations):
    ...     return np.tile([0.1, 0.8, 0.1], (len(observations), 1))
    >>> data = roll_out(MountainCar(max_steps=9), coast, 3, np.random.default_rng(1))
    >>> data.lengths.tolist(), data.observations.shape, data.returns.tolist()
    ([9, 9, 9], (27, 2), [-9.0, -9.0, -9.0])
    """
    m = check.whole("episodes", episodes)
    check.generator(rng)
    states, alive = simulator.start(m, rng), np.arange(m)
    before = simulator.observe(states)
    steps: list[tuple[np.ndarray, ...]] = []
    for _ in range(simulator.max_steps):
        chances = _distributions(behaviour(before), alive.size, simulator.n_actions)
        actions = draw_actions(chances, rng)
        ratios = (
            np.ones(alive.size)
            if target is None
            else importance_ratios(target(before), chances, actions)
        )
        states, rewards, ended = simulator.step(states, actions)
        after = simulator.observe(states)
        steps.append((alive, before, after, actions, rewards, ratios, ended))
        states, before, alive = states[~ended], after[~ended], alive[~ended]
        if alive.size == 0:
            break
    owner, *columns = (np.concatenate(column) for column in zip(*steps, strict=True))
    order = np.argsort(owner, kind="stable")  # from step after step to episode after episode
    first, second, actions, rewards, ratios, ended = (column[order] for column in columns)
    return SimulatedEpisodes(
        first, second, actions, rewards, ratios, ended, np.bincount(owner, minlength=m)
    )


def roll_outs(
    simulator: Simulator,
    behaviour: Policy,
    episodes: int,
    rng: np.random.Generator,
    target: Policy | None = None,
    *,
    at_once: int = 1000,
) -> Iterator[SimulatedEpisodes]:
    """The same in parts, so that not all steps are held at one time.

    Parameters and errors as in :func:`roll_out`. ``at_once``, the episodes of a part, decides
    which random numbers an episode gets, so it is part of what makes a run repeatable.
    """
    m, size = check.whole("episodes", episodes), check.whole("at_once", at_once)
    for first in range(0, m, size):
        yield roll_out(simulator, behaviour, min(size, m - first), rng, target)


def episode_statistics(
    parts: Iterable[SimulatedEpisodes],
    basis: FourierBasis,
    discount: float,
    *,
    weighting: Weighting,
    dtype: DTypeLike = np.float32,
) -> Statistics:
    """A_i, b_i, C_i of episodes that are simulated part by part.

    Parameters
    ----------
    parts : iterable of SimulatedEpisodes
        For example :func:`roll_outs`.
    basis : FourierBasis
        Features of an observation.
    discount : float
        gamma in [0, 1).
    weighting : {"sum", "mean", "printed"}
        As in :func:`dprl.off_policy.saddle_point.trajectory_statistics`.
    dtype : {float32, float64}
        Of the result, 2 n^2 + n numbers for each episode: with 36 features in
        single precision 1.05 GB for 100,000 episodes, and as much again while the parts are
        put together.

    Raises
    ------
    TypeError, ValueError
        As :func:`roll_out` and
        :func:`dprl.off_policy.saddle_point.trajectory_statistics`.

    Examples
    --------
    >>> from dprl.simulators.mountain_car import MountainCar
    >>> car = MountainCar(max_steps=9)
    >>> def coast(observations):
    ...     return np.tile([0.1, 0.8, 0.1], (len(observations), 1))
    >>> parts = roll_outs(car, coast, 5, np.random.default_rng(1), at_once=2)
    >>> data = episode_statistics(parts, FourierBasis(1, car.low, car.high), 0.99, weighting="mean")
    >>> data.a.shape, data.a.dtype.name
    ((5, 4, 4), 'float32')
    """
    return Statistics.concatenate(
        [
            trajectory_statistics(
                part.steps(basis), part.lengths, discount, weighting=weighting, dtype=dtype
            )
            for part in parts
        ]
    )


def draw_actions(probabilities: FloatArray, rng: np.random.Generator) -> IntArray:
    """One action from each row of a matrix of probabilities."""
    cumulative = np.cumsum(probabilities, axis=1)
    cumulative[:, -1] = 1.0  # whatever rounding left
    drawn = (rng.random((cumulative.shape[0], 1)) >= cumulative).sum(axis=1)
    return np.asarray(drawn, dtype=np.int64)


def _distributions(values: ArrayLike, episodes: int, n_actions: int) -> FloatArray:
    p = check.finite_array("what the behaviour policy returns", values)
    if p.shape != (episodes, n_actions):
        raise ValueError(
            f"the behaviour policy must return shape {(episodes, n_actions)}, got {p.shape}"
        )
    return check.distributions("what the behaviour policy returns", values)
