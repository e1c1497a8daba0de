"""Private LSTD on the mountain car of chapter 6: the data, and trials on them.

The policy is learned by Q-learning; its seed decides which one, so a page tunes on policies of
other seeds than the one that it reports. On policy it explores with probability .05, off policy
the behaviour explores with .3 and the target pushes at random, both as in chapter 6.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from dprl import _validation as check
from dprl._validation import FloatArray
from dprl.features import FourierBasis
from dprl.off_policy import policies
from dprl.off_policy.saddle_point import SaddlePoint, Statistics, lstd
from dprl.private_evaluation.private_lstd import LSTDRounds, private_lstd
from dprl.simulators.mountain_car import MountainCar
from dprl.simulators.q_learning import QFunction, QLearningSettings, q_learning
from dprl.simulators.roll_outs import episode_statistics, roll_outs

#: Exploration of the behaviour, and whether the target is the push at random.
KINDS = {"on-policy": (0.05, False), "off-policy": (0.3, True)}
DISCOUNT = 0.99
CAR = MountainCar(max_steps=1000)
BASIS = FourierBasis(5, CAR.low, CAR.high)


def learned(rng: np.random.Generator, updates: int = 6_000) -> QFunction:
    """The policy to evaluate, by Q-learning with ten episodes side by side."""
    plan = QLearningSettings(
        1.0, step_size=0.05, exploration=0.05, updates=updates, side_by_side=10
    )
    return q_learning(CAR, BASIS, plan, rng=check.generator(rng))


def simulated(q: QFunction, kind: str, episodes: int, rng: np.random.Generator) -> Statistics:
    """A_i, b_i, C_i of episodes of the behaviour, means over steps, in single precision.

    ``kind`` is a key of :data:`KINDS`; ``episodes`` >= 1, 10 kB of memory for each.
    """
    if kind not in KINDS:
        raise ValueError(f"kind must be one of {sorted(KINDS)}, got {kind!r}")
    exploration, other = KINDS[kind]

    def behaviour(states: FloatArray) -> FloatArray:
        return policies.epsilon_greedy(q(states), exploration)

    def target(states: FloatArray) -> FloatArray:
        return policies.uniform(len(states), CAR.n_actions)

    parts = roll_outs(CAR, behaviour, episodes, rng, target if other else None)
    return episode_statistics(parts, BASIS, DISCOUNT, weighting="mean")


def errors(
    data: Statistics,
    system: SaddlePoint,
    epsilons: Sequence[float],
    delta: float,
    trials: int,
    rng: np.random.Generator,
    rounds: LSTDRounds | None = None,
) -> list[dict[str, Any]]:
    """One row for each epsilon and trial, all on the same data. *Not private*: many releases.

    Parameters
    ----------
    data : Statistics
        Of n trajectories.
    system : SaddlePoint
        (A, b, C) of other trajectories, in which errors are measured.
    epsilons : sequence of float
        Each > 0.
    delta : float
        In (0, 1).
    trials : int
        Releases for each epsilon, >= 1.
    rng : numpy.random.Generator
        Its children draw the noise; trial k of two epsilons has the same one.
    rounds : LSTDRounds, optional
        Division of the budget.

    Returns
    -------
    list of dict
        ``epsilon``, ``trial``, ``error`` (the MSPBE), ``noise_error`` as released, and, the same in
        all rows, ``n``, ``lstd``, the error without privacy, and ``nothing``, that of theta = 0.
    """
    shared = {
        "n": data.n_trajectories,
        "lstd": float(system.mspbe(lstd(data))),
        "nothing": float(system.mspbe(np.zeros(data.n_features))),
    }
    children = check.generator(rng).spawn(check.whole("trials", trials))
    rows = []
    for k, child in enumerate(children):
        state = child.bit_generator.state
        for epsilon in epsilons:
            child.bit_generator.state = state
            release = private_lstd(data, epsilon, delta, child, rounds)
            own = {"error": float(system.mspbe(release.theta)), "noise_error": release.noise_error}
            rows.append({"epsilon": float(epsilon), "trial": k} | own | shared)
    return rows
