r"""Private control: the value lost by what is planned on released counts, over the batch size.

Two problems with episodes of H steps: RiverSwim, swum by a behaviour that goes right with
probability .8, and the chain with a choice of speed, where it is a coin. The criterion is the
expected sum of the rewards of an episode; *value loss* is the share of the best that a policy
falls short of it. All methods know the rewards.

:func:`control_trial` is a trial of :func:`companion.sweeps.run`, :func:`control_tasks` makes its
tasks, :func:`summarise` the table and :func:`least_sizes` the batch sizes that suffice.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike

from dprl._validation import FloatArray, IntArray
from dprl.intervals import clopper_pearson_lower
from dprl.mdp import MarkovDecisionProcess
from dprl.privacy import Guarantee
from dprl.private_evaluation import NEIGHBOURS
from dprl.private_evaluation import control as private
from dprl.simulators import control_problems as control
from dprl.trajectories import Batch

#: What identifies a row of the table.
KEYS = ["problem", "method", "batch_size"]
#: Methods that need every trajectory, and those whose counts are drawn without them.
FROM_TRAJECTORIES = ("no privacy", "counts, transitions known", "counts, nothing known")
FROM_STEPS = ("DP-APVI without penalty", "DP-APVI")


@dataclass(frozen=True, eq=False)
class ControlProblem:
    """A process, its behaviour, and what is public beside the rewards.

    Attributes
    ----------
    process : MarkovDecisionProcess
    behaviour : ndarray, shape (S, A)
        Probabilities of the actions in the data.
    horizon : int
        H.
    radius : float
        R of the bound on what one trajectory counts.
    """

    process: MarkovDecisionProcess
    behaviour: FloatArray
    horizon: int
    radius: float

    @property
    def terminal(self) -> FloatArray:
        """Whether a state is never left."""
        s = np.arange(self.process.n_states)
        return np.asarray((self.process.transition[s, :, s] == 1).all(axis=1))

    def loss(self, actions: IntArray) -> float:
        """The value lost, relative to the best; actions of shape (H, S)."""
        reached, best = (
            float(self.process.start @ control.episodic_values(self.process, a, self.horizon))
            for a in (actions, None)
        )
        return 1 - reached / best

    def planned(
        self, release: private.PrivateCounts, possible: ArrayLike | None = None
    ) -> IntArray:
        """The best actions, shape (H, S), in the model that a release leaves."""
        model = private.thresholded_model(
            release,
            self.process.reward,
            self.process.discount,
            terminal=self.terminal,
            possible=possible,
        )
        return control.episodic_policy(model, self.horizon)[:, : self.process.n_states]


@cache
def problem(name: str) -> ControlProblem:
    """``RiverSwim`` or ``chain``."""
    if name == "RiverSwim":
        river = control.river_swim()
        return ControlProblem(river, np.tile([0.2, 0.8], (river.n_states, 1)), horizon=20, radius=8)
    if name == "chain":
        chain = control.speed_chain()
        return ControlProblem(chain, np.full((chain.n_states, 2), 0.5), horizon=60, radius=10)
    raise ValueError(f"problem must be RiverSwim or chain, got {name!r}")


def exact_counts(batch: Batch, n_actions: int) -> private.PrivateCounts:
    """All counts without noise; *not private*, the promise is for show."""
    counts = private.step_counts(batch, n_actions, int(batch.lengths.max())).sum(axis=0)
    return private.PrivateCounts(counts.astype(float), 1e-9, Guarantee(1.0, 0.5, NEIGHBOURS))


def control_tasks(
    sizes: Mapping[str, Iterable[int]], step_sizes: Mapping[str, Iterable[int]], runs: int
) -> list[dict[str, Any]]:
    """Tasks of :func:`control_trial`, ten runs each at most.

    ``sizes`` has the batch sizes of the methods from trajectories for each problem, ``step_sizes``
    those of the methods from counts of steps.
    """
    return [
        {"problem": name, "batch_size": int(n), "methods": methods, "runs": min(10, runs - done)}
        for methods, chosen in (("trajectories", sizes), ("steps", step_sizes))
        for name, some in chosen.items()
        for n in some
        for done in range(0, runs, 10)
    ]


def control_trial(task: Mapping[str, Any], seed: np.random.SeedSequence) -> pd.DataFrame:
    """Some runs of one problem at one size; :data:`KEYS` and ``loss``, one row a run and method.

    Parameters
    ----------
    task : mapping
        ``problem``, ``batch_size``, ``methods`` ("trajectories" or "steps"), ``runs``; optional
        ``epsilon`` and ``delta``.
    seed : numpy.random.SeedSequence
    """
    case, n = problem(task["problem"]), task["batch_size"]
    limits = {"epsilon": task.get("epsilon", 1.0), "delta": task.get("delta", 1e-6)}
    run = _from_trajectories if task["methods"] == "trajectories" else _from_steps
    rows = []
    for stream in seed.spawn(task["runs"]):
        for method, actions in run(case, n, limits, np.random.default_rng(stream)).items():
            rows.append([task["problem"], method, n, case.loss(actions)])
    return pd.DataFrame(rows, columns=[*KEYS, "loss"])


def _from_trajectories(
    case: ControlProblem, n: int, limits: Mapping[str, float], rng: np.random.Generator
) -> dict[str, IntArray]:
    batch = control.simulate_control(case.process, case.behaviour, n, case.horizon, rng)
    release = private.private_transition_counts(batch, 2, radius=case.radius, rng=rng, **limits)
    possible = case.process.transition > 0
    plans = (
        case.planned(exact_counts(batch, 2)),
        case.planned(release, possible=possible),
        case.planned(release),
    )
    return dict(zip(FROM_TRAJECTORIES, plans, strict=True))


def _from_steps(
    case: ControlProblem, n: int, limits: Mapping[str, float], rng: np.random.Generator
) -> dict[str, IntArray]:
    counts = control.simulate_step_counts(case.process, case.behaviour, n, case.horizon, rng)
    reward = case.process.expected_reward
    low, high = min(float(reward.min()), 0.0), float(reward.max())
    scaled = (reward - low) / max(high - low, 1.0)  # a constant at each step changes no policy
    plain = private.Pessimism(variance=0.0, noise=0.0)
    return {
        method: private.dp_apvi(counts, scaled, rng=rng, pessimism=pessimism, **limits).actions
        for method, pessimism in zip(FROM_STEPS, (plain, None), strict=True)
    }


def summarise(trials: Iterable[pd.DataFrame]) -> pd.DataFrame:
    """The table: mean loss, the loss not exceeded in 95 % of the runs, the share of runs at 1 %.

    ``within`` is that share; ``within_99`` is its lower limit with confidence .99 (Clopper and
    Pearson).
    """
    table = pd.concat(list(trials), ignore_index=True)
    rows = []
    for key, losses in table.groupby(KEYS, sort=False)["loss"]:
        x = np.sort(losses.to_numpy())
        good, runs = int((x <= 0.01).sum()), x.size
        low = float(clopper_pearson_lower(good, runs, 0.01))
        ninety_five = float(x[int(np.ceil(0.95 * runs)) - 1])
        rows.append([*key, float(x.mean()), ninety_five, good / runs, low, runs])
    columns = [*KEYS, "loss_mean", "loss_95", "within", "within_99", "runs"]
    return pd.DataFrame(rows, columns=columns)


def least_sizes(table: pd.DataFrame) -> pd.DataFrame:
    """For each problem and method the least batch size from which on at least 95 % lose 1 %.

    Missing where no size of the table will do.
    """
    rows = []
    for (name, method), some in table.groupby(["problem", "method"], sort=False):
        ordered = some.sort_values("batch_size")
        fails = np.flatnonzero(ordered["within"].to_numpy() < 0.95)
        first = int(fails[-1]) + 1 if fails.size else 0
        size = ordered["batch_size"].iloc[first] if first < len(ordered) else np.nan
        rows.append([name, method, float(size)])
    return pd.DataFrame(rows, columns=["problem", "method", "batch_size"])
