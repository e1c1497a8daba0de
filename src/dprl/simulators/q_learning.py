r"""Q-learning with linear features, to obtain a policy worth evaluating.

    Q(s, a) = W_a . phi(s),    W_a <- W_a + alpha_c (r + gamma max_b Q(s', b) - Q(s, a)) phi(s)

with a step alpha_c = alpha / ||c|| for the feature of frequency c, as Konidaris,
Osentoski and Thomas (2011) advise for the Fourier basis. Several episodes run
side by side, and each update takes the mean over them; with one it is the
textbook's algorithm (Watkins 1989). Nothing promises that it converges.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from dprl import _validation as check
from dprl._validation import FloatArray
from dprl.features import FourierBasis
from dprl.simulators.roll_outs import Simulator


@dataclass(frozen=True, eq=False)
class QFunction:
    """Values of actions, linear in Fourier features.

    Parameters
    ----------
    basis : FourierBasis
        Features of an observation.
    weights : array_like, shape (n_actions, n)
        W, finite.

    Raises
    ------
    TypeError, ValueError
        If the weights are not finite or do not fit the basis.

    Examples
    --------
    >>> q = QFunction(FourierBasis(1, [0.0], [1.0]), [[0, 1], [0.5, 0]])
    >>> q([[0.0], [0.5]]).round(6).tolist()
    [[1.0, 0.5], [0.0, 0.5]]
    """

    basis: FourierBasis
    weights: FloatArray

    def __post_init__(self) -> None:
        check.instance("basis", self.basis, FourierBasis)
        w = check.finite_array("weights", self.weights, ndim=2)
        if w.shape[0] < 1 or w.shape[1] != self.basis.n_features:
            raise ValueError(
                f"weights must have {self.basis.n_features} columns and a row for each action, "
                f"got {w.shape}"
            )
        object.__setattr__(self, "weights", check.frozen(w.copy()))

    def __call__(self, observations: ArrayLike) -> FloatArray:
        """Values of all actions, shape (m, d) to (m, n_actions)."""
        return np.asarray(self.basis(observations) @ self.weights.T, dtype=np.float64)


@dataclass(frozen=True)
class QLearningSettings:
    """How Q-learning proceeds.

    Parameters
    ----------
    discount : float
        gamma in [0, 1]; 1 is for episodes that end.
    step_size : float
        alpha > 0.
    exploration : float
        Probability in [0, 1] of an action at random; else the best so far.
    updates, side_by_side : int
        Number of updates; episodes that run at once.

    Raises
    ------
    TypeError, ValueError
        If a parameter is outside its range.
    """

    discount: float
    step_size: float
    exploration: float
    updates: int
    side_by_side: int

    def __post_init__(self) -> None:
        for name in ("discount", "exploration"):
            check.unit(name, getattr(self, name))
        check.positive("step_size", self.step_size)
        check.whole("updates", self.updates)
        check.whole("side_by_side", self.side_by_side)


def q_learning(
    simulator: Simulator,
    basis: FourierBasis,
    settings: QLearningSettings,
    rng: np.random.Generator,
) -> QFunction:
    """Learn by acting; each update takes one step in every one of the parallel episodes.

    Parameters
    ----------
    simulator : Simulator
        The environment. An episode that ends or is cut off starts anew.
    basis : FourierBasis
        Features of an observation.
    settings : QLearningSettings
        Step size, exploration and length.
    rng : numpy.random.Generator
        Draws starts and actions.

    Returns
    -------
    QFunction
        The mean of the weights over the second half of the updates: the last
        weights chatter with the step size.

    Raises
    ------
    ArithmeticError
        If the weights grow beyond 1e12: the step is too large.
    """
    check.instance("basis", basis, FourierBasis)
    check.instance("settings", settings, QLearningSettings)
    check.generator(rng)
    n, m = settings.updates, settings.side_by_side
    weights = np.zeros((simulator.n_actions, basis.n_features))
    mean = np.zeros_like(weights)
    scale = settings.step_size / m * basis.step_scale
    states, age = simulator.start(m, rng), np.zeros(m, dtype=np.int64)
    phi = basis(simulator.observe(states))
    rows = np.arange(m)
    for i in range(n):
        values = phi @ weights.T
        actions = values.argmax(axis=1)
        explore = rng.random(m) < settings.exploration
        actions[explore] = rng.integers(simulator.n_actions, size=int(explore.sum()))
        states, rewards, ended = simulator.step(states, actions)
        age += 1
        after = basis(simulator.observe(states))
        best = np.where(ended, 0.0, (after @ weights.T).max(axis=1))
        error = rewards + settings.discount * best - values[rows, actions]
        np.add.at(weights, actions, error[:, None] * phi * scale)
        if not np.abs(weights).max() < 1e12:
            raise ArithmeticError("Q-learning diverged: take a smaller step_size")
        if i >= n // 2:
            mean += weights
        over = ended | (age >= simulator.max_steps)
        if over.any():
            fresh = simulator.start(int(over.sum()), rng)
            states[over], age[over] = fresh, 0
            after[over] = basis(simulator.observe(fresh))
        phi = after
    return QFunction(basis, mean / (n - n // 2))
