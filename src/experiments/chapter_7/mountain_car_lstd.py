"""Private LSTD on the mountain car of chapter 6: the data, and trials on them.

The policy is learned by Q-learning; its seed decides which one, so a page tunes on policies of
other seeds than the one that it reports. On policy it explores with probability .05, off policy
the behaviour explores with .3 and the target pushes at random, both as in chapter 6.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from dprl import _validation as check
from dprl._validation import FloatArray
from dprl.features import FourierBasis
from dprl.off_policy import policies
from dprl.off_policy.saddle_point import SaddlePoint, Statistics, empirical, lstd
from dprl.privacy import noisy_gradient_sigma
from dprl.private_evaluation.private_lstd import LSTDRounds, fewest_trajectories, private_lstd
from dprl.simulators.mountain_car import MountainCar
from dprl.simulators.q_learning import QFunction, QLearningSettings, q_learning
from dprl.simulators.roll_outs import episode_statistics, roll_outs
from experiments import chapter_6

#: Exploration of the behaviour, and whether the target is the push at random.
KINDS = {"on-policy": (0.05, False), "off-policy": (0.3, True)}
DISCOUNT = 0.99
CAR = MountainCar(max_steps=1000)
BASIS = FourierBasis(5, CAR.low, CAR.high)

#: The promises are (epsilon, DELTA); GPOPE's clipping norm.
EPSILONS = (1.0, 0.1)
DELTA = 1e-5
CLIP = 0.1


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
        ``epsilon``, ``trial``, ``error`` (the MSPBE), ``noise_error`` as released,
        ``matrix_noise``, the usual spectral norm 2 sigma sqrt(d) of the noise in the matrix round,
        ``smallest``, the least singular value of the true matrix in its coordinates (which is not
        released), and, the same in all rows, ``n``, ``lstd``, the error without privacy, and
        ``nothing``, that of theta = 0.
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
            (sigma,) = (r.sigma for r in release.rounds if r.kind == "matrix")
            own = {
                "error": float(system.mspbe(release.theta)),
                "noise_error": release.noise_error,
                "matrix_noise": float(2 * sigma * np.sqrt(data.n_features)),
                "smallest": float(
                    np.linalg.norm(release.whitening.T @ system.a @ release.whitening, -2)
                ),
            }
            rows.append({"epsilon": float(epsilon), "trial": k} | own | shared)
    return rows


def car_trial(task: Mapping[str, Any], seed: np.random.SeedSequence) -> list[dict[str, Any]]:
    """Private LSTD, GPOPE and their limits on the data of one policy.

    A trial of :func:`companion.sweeps.table`. ``task`` has ``policy`` (a seed), ``kind``,
    ``sizes``, ``trials``, ``fresh``, the episodes in which errors are measured, and ``reaches`` of
    GPOPE, triples (n, epsilon, reach). Rows hold ``kind``, ``policy``, ``method``, ``n``,
    ``epsilon``, ``trial``, ``error`` (the MSPBE), for private LSTD also ``noise_error``,
    ``matrix_noise`` and ``smallest`` of :func:`errors`, else NaN, and for GPOPE ``reach``. Private
    LSTD is left out where there are too few trajectories for it.
    """
    data, system, noise, descent = _data(task, seed)
    rows = _gpope_rows(data, system, task["reaches"], task, descent)
    for n, stream in zip(task["sizes"], noise.spawn(len(task["sizes"])), strict=True):
        part = _first(data, n)
        epsilons = [e for e in EPSILONS if n >= fewest_trajectories(e, DELTA)]
        found = errors(part, system, epsilons, DELTA, task["trials"], np.random.default_rng(stream))
        rows += [{"method": "private LSTD", **{k: r[k] for k in _KEPT}} for r in found]
        for method, theta in (("LSTD", lstd(part)), ("nothing", np.zeros(part.n_features))):
            rows.append({"method": method, "n": n, "error": float(system.mspbe(theta))})
    every = {
        "kind": task["kind"],
        "policy": task["policy"],
        "epsilon": np.nan,
        "trial": 0,
        "noise_error": np.nan,
        "matrix_noise": np.nan,
        "reach": np.nan,
        "smallest": np.nan,
    }
    return [{**every, **row} for row in rows]


_KEPT = ("n", "epsilon", "trial", "error", "noise_error", "matrix_noise", "smallest")


def _data(
    task: Mapping[str, Any], seed: np.random.SeedSequence
) -> tuple[Statistics, SaddlePoint, np.random.SeedSequence, np.random.SeedSequence]:
    """Data, the system in which errors are measured, and two seeds for noise."""
    episodes, others, first, second = seed.spawn(4)
    q = learned(np.random.default_rng(task["policy"]))
    data, other = (
        simulated(q, task["kind"], count, np.random.default_rng(s))
        for count, s in ((max(task["sizes"]), episodes), (task["fresh"], others))
    )
    return data, empirical(other), first, second


def _first(data: Statistics, n: int) -> Statistics:
    return Statistics(data.a[:n], data.b[:n], data.c[:n])


def _gpope_rows(
    data: Statistics,
    system: SaddlePoint,
    reaches: Iterable[tuple[int, float, float]],
    task: Mapping[str, Any],
    seed: np.random.SeedSequence,
) -> list[dict[str, Any]]:
    """GPOPE's last iterate after one pass over the first n trajectories, certified noise."""
    plans: dict[int, list[chapter_6.GPOPESetting]] = {}
    for n, epsilon, reach in reaches:
        sigma = noisy_gradient_sigma(epsilon, DELTA, n, n)
        plans.setdefault(n, []).append(chapter_6.GPOPESetting(f"{epsilon}", sigma, reach))
    rows = []
    for (n, plan), stream in zip(plans.items(), seed.spawn(len(plans)), strict=True):
        found = chapter_6.errors(
            _first(data, n),
            system.mspbe,
            plan,
            clip=CLIP,
            iterations=n,
            trials=task["trials"],
            rng=np.random.default_rng(stream),
        )
        for k, row in enumerate(found):
            own = {"reach": row["reach"], "error": row["error"], "trial": k % task["trials"]}
            rows.append({"method": "GPOPE", "n": n, "epsilon": float(row["noise"]), **own})
    return [{"kind": task["kind"], **row} for row in rows]
