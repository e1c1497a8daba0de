r"""Mountain car: a weak engine in a valley, many cars at once.

A state is (position x, velocity v). Actions 0, 1, 2 push left, not, right:

    v' = clip(v + force (a - 1) - gravity cos(3 x), -v_max, v_max),
    x' = clip(x + v', x_min, x_max),          v' = 0 at the left wall,

reward -1 for every step, the end at x' >= goal. The numbers are those of
Sutton and Barto (1998, example 8.2) as the environment MountainCar-v0 of
gymnasium has them, to which the tests compare. The texts disagree on the start
(at random in the valley or always at its bottom) and on the largest number of
steps, so both are parameters.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np
from numpy.typing import ArrayLike

from dprl import _validation as check
from dprl._validation import BoolArray, FloatArray
from dprl.simulators._common import action_array, state_array

FORCE, GRAVITY = 0.001, 0.0025
GOAL = 0.5
#: The box of positions and velocities.
LOW = check.frozen(np.array([-1.2, -0.07]))
HIGH = check.frozen(np.array([0.6, 0.07]))


@dataclass(frozen=True)
class MountainCar:
    """The environment, stepped for many episodes at once.

    Parameters
    ----------
    max_steps : int
        An episode that has not reached the goal after so many steps is cut off.
    start_low, start_high : float
        First position, uniform between the two (equal: always there); at rest.

    Raises
    ------
    TypeError, ValueError
        If ``max_steps`` is not a whole number >= 1, or the first positions do
        not lie in order, within the box and left of the goal.

    Examples
    --------
    >>> car = MountainCar(start_low=-0.5, start_high=-0.5)
    >>> states = car.start(2, np.random.default_rng(0))
    >>> after, rewards, ended = car.step(states, [0, 2])
    >>> after.round(6).tolist()
    [[-0.501177, -0.001177], [-0.499177, 0.000823]]
    >>> rewards.tolist(), ended.tolist()
    ([-1.0, -1.0], [False, False])
    """

    max_steps: int = 200
    start_low: float = -0.6
    start_high: float = -0.4
    n_actions: int = field(default=3, init=False)
    low: ClassVar[FloatArray] = LOW
    high: ClassVar[FloatArray] = HIGH

    def __post_init__(self) -> None:
        check.whole("max_steps", self.max_steps)
        low = check.real("start_low", self.start_low)
        high = check.real("start_high", self.start_high)
        if not LOW[0] <= low <= high < GOAL:
            raise ValueError(
                f"the first position must have {LOW[0]} <= start_low <= start_high < {GOAL}, "
                f"got {low} and {high}"
            )

    def start(self, episodes: int, rng: np.random.Generator) -> FloatArray:
        """First states, shape (episodes, 2)."""
        m = check.whole("episodes", episodes)
        check.generator(rng)
        positions = rng.uniform(self.start_low, self.start_high, m)
        return np.column_stack([positions, np.zeros(m)])

    def observe(self, states: ArrayLike) -> FloatArray:
        """What features are made of: the state itself."""
        return state_array(states, 2)

    def step(
        self, states: ArrayLike, actions: ArrayLike
    ) -> tuple[FloatArray, FloatArray, BoolArray]:
        """One step of every car: states (m, 2) and actions (m,) in 0, 1, 2.

        Returns
        -------
        tuple
            Next states (m, 2), rewards (m,), whether the goal was reached (m,).
        """
        s = state_array(states, 2)
        push = action_array(actions, s.shape[0], self.n_actions) - 1
        speed = s[:, 1] + push * FORCE - np.cos(3 * s[:, 0]) * GRAVITY
        speed = np.clip(speed, LOW[1], HIGH[1])
        place = np.clip(s[:, 0] + speed, LOW[0], HIGH[0])
        speed = np.where((place == LOW[0]) & (speed < 0), 0.0, speed)
        return np.column_stack([place, speed]), np.full(s.shape[0], -1.0), place >= GOAL
