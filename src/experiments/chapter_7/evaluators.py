r"""Errors that were forecast in closed form beside simulated ones, on settings of their own.

:func:`forecast_trial` is a trial of :func:`companion.sweeps.run`, :func:`forecast_tasks` makes its
tasks and :func:`summarise` the table: one row for each setting, promise and mechanism.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from typing import Any

import numpy as np
import pandas as pd

from dprl._validation import FloatArray
from dprl.mdp import Chain, MarkovRewardProcess
from dprl.off_policy.saddle_point import Statistics, empirical, lstd
from dprl.privacy import Guarantee, analytic_gaussian_sigma
from dprl.private_evaluation import NEIGHBOURS
from dprl.private_evaluation.choice import Features, Model, forecasts
from dprl.private_evaluation.private_lstd import private_lstd
from dprl.private_evaluation.recentre_shape_clip import recentre_shape_clip
from dprl.private_evaluation.structure_free import recentre_clip_structure_free
from dprl.private_evaluation.sufficient_statistics import release_statistics
from dprl.private_evaluation.working_model import WorkingModel
from dprl.trajectories import FirstVisitReturns, first_visit_returns, simulate

#: What identifies a row of the table.
KEYS = ["setting", "mechanism", "batch_size", "epsilon"]
DELTA = 1e-6
#: Chains: N, probability to stay, discount, start.
CHAINS: dict[str, tuple[int, float, float, Any]] = {
    "chain of 12": (12, 0.6, 0.95, "first"),
    "chain of 25": (25, 0.35, 0.99, "uniform"),
}
#: Rings: d, and whether the policy is another one.
RINGS = {"ring, on policy": (6, False), "ring, off policy": (8, True)}
SETTINGS = (*CHAINS, "ladder", *RINGS)
#: By how much a simulated error may differ from its forecast where n/z is at least the least, as a
#: factor; decided before the settings were run.
TOLERANCE = {
    "counts and sums, noise by visits": 1.25,
    "counts and sums, equal noise": 1.25,
    "RC without structure": 3.0,
    "RC, returns": 2.0,
    "RC, temporal differences": 2.0,
    "private LSTD": 2.0,
}
_STEPS, _RING_DISCOUNT = 10, 0.9


@cache
def ladder() -> MarkovRewardProcess:
    """Eight rungs, started anywhere: one up (.6, the highest stays), one down (.1), or off (.3,
    from the lowest .4); step k up pays .03 k. No chain."""
    n = 8
    p, r = np.zeros((n + 1, n + 1)), np.zeros((n + 1, n + 1))
    for s in range(n):
        p[s, min(s + 1, n - 1)] += 0.6
        p[s, s - 1 if s else n] += 0.1
        p[s, n] += 0.3
        if s < n - 1:
            r[s, s + 1] = 0.03 * (s + 1)
    p[n, n] = 1
    return MarkovRewardProcess(p, r, 0.9, np.append(np.full(n, 1 / n), 0.0))


def ring_statistics(
    d: int, off_policy: bool, n: int, rng: np.random.Generator, steps: int = _STEPS
) -> Statistics:
    """A_i, b_i, C_i of n walks on a ring of 3d states with fixed features, rewards in [-1, 1].

    The behaviour flips a coin for the direction and slips one time in ten; the target of the
    off-policy form goes right with probability .7.
    """
    fixed, states = np.random.default_rng(21), 3 * d
    phi = np.column_stack([np.ones(states), fixed.uniform(-1, 1, (states, d - 1))])
    reward = fixed.uniform(-1, 1, states)
    a, b, c = np.zeros((n, d, d)), np.zeros((n, d)), np.zeros((n, d, d))
    s = rng.integers(0, states, n)
    for _ in range(steps):
        right = rng.random(n) < 0.5
        ratio = np.where(right, 1.4, 0.6) if off_policy else np.ones(n)
        following = (s + np.where(right, 1, -1) * (rng.random(n) < 0.9)) % states
        moved = phi[s] - _RING_DISCOUNT * phi[following]
        a += (ratio[:, None] * phi[s])[:, :, None] * moved[:, None, :] / steps
        b += (ratio * reward[s])[:, None] * phi[s] / steps
        c += phi[s][:, :, None] * phi[s][:, None, :] / steps
        s = following
    return Statistics(a, b, c)


@cache
def ring(name: str) -> tuple[Any, Features]:
    """The system of many walks, in which errors are measured, and what a forecast is told."""
    d, off_policy = RINGS[name]
    data = ring_statistics(d, off_policy, 50_000, np.random.default_rng(12))
    system, theta = empirical(data), lstd(data)
    whiten = np.linalg.cholesky(np.linalg.inv(data.c.mean(axis=0, dtype=np.float64)))
    residual = (data.b - data.a @ theta) @ whiten
    size = math.sqrt(float((residual**2).sum(axis=1).mean()))
    nothing = math.sqrt(float(system.mspbe(np.zeros(d))))
    return system, Features(d, size, _RING_DISCOUNT, width=nothing)


def forecast_tasks(
    settings: Sequence[str], promises: Iterable[tuple[int, float]], runs: int, block: int = 10
) -> list[dict[str, Any]]:
    """Tasks of :func:`forecast_trial`: so many runs of each setting and (n, epsilon), in blocks."""
    return [
        {"setting": s, "batch_size": n, "epsilon": e, "runs": min(block, runs - done)}
        for n, e in promises
        for s in settings
        for done in range(0, runs, block)
    ]


def forecast_trial(task: Mapping[str, Any], seed: np.random.SeedSequence) -> pd.DataFrame:
    """Some runs of one setting; :data:`KEYS` and ``square``, the mean squared error of a run."""
    n, epsilon = task["batch_size"], task["epsilon"]
    run = _features if task["setting"] in RINGS else _states
    rows = []
    for stream in seed.spawn(task["runs"]):
        found = run(task["setting"], n, epsilon, np.random.default_rng(stream))
        rows += [[task["setting"], name, n, epsilon, square] for name, square in found.items()]
    return pd.DataFrame(rows, columns=[*KEYS, "square"])


def _problem(setting: str) -> Model | Features:
    if setting in RINGS:
        return ring(setting)[1]
    if setting == "ladder":
        return Model(ladder())
    return Model(_chain(setting))


def _chain(setting: str) -> Chain:
    n, stay, discount, start = CHAINS[setting]
    return Chain(n, stay=stay, discount=discount, start=start)


def _states(setting: str, n: int, epsilon: float, rng: np.random.Generator) -> dict[str, float]:
    """Squared error of every mechanism on a chain or the ladder."""
    promise = Guarantee(epsilon, DELTA, NEIGHBOURS)
    if setting == "ladder":
        process, model = ladder(), WorkingModel.known(ladder())
    else:
        process, model = _chain(setting).process, WorkingModel.equal_chain(_chain(setting))
    states = ~process.terminal
    values, visits = process.values()[states], process.visit_probabilities()[states]
    batch = simulate(process, n, rng)
    found = first_visit_returns(batch, process.discount)
    returns = FirstVisitReturns(found.returns[:, states], found.visited[:, states])
    statistics = returns.statistics((0.0, 1.0))
    limits: dict[str, Any] = {"f_max": 1.0, "rng": rng}
    budget: dict[str, Any] = {"epsilon": epsilon, "delta": DELTA, **limits}
    estimates: dict[str, FloatArray] = {
        "counts and sums, noise by visits": release_statistics(
            statistics, expected_visits=visits, **budget
        )[0].values(),
        "counts and sums, equal noise": release_statistics(statistics, **budget)[0].values(),
        "RC without structure": recentre_clip_structure_free(returns, promise, **limits).theta,
        "RC, temporal differences": recentre_shape_clip(batch, model, promise, **limits).values,
    }
    if setting in CHAINS:
        estimates["RC, returns"] = recentre_shape_clip(returns, model, promise, **limits).values
    return {name: float(np.mean((x - values) ** 2)) for name, x in estimates.items()}


def _features(setting: str, n: int, epsilon: float, rng: np.random.Generator) -> dict[str, float]:
    """MSPBE of private LSTD; nothing where it refuses so few trajectories."""
    d, off_policy = RINGS[setting]
    data = ring_statistics(d, off_policy, n, rng)
    try:
        release = private_lstd(data, epsilon, DELTA, rng)
    except ValueError:
        return {}
    return {"private LSTD": float(ring(setting)[0].mspbe(release.theta))}


def summarise(trials: Iterable[pd.DataFrame]) -> pd.DataFrame:
    """The table: simulated RMSE, its standard error, the forecast, n/z and the least n/z."""
    table = pd.concat(list(trials), ignore_index=True)
    squares = table.groupby(KEYS, sort=False)["square"]
    out: pd.DataFrame = squares.agg(["mean", "sem", "count"]).reset_index()
    out = out.rename(columns={"mean": "rmse", "sem": "rmse_se", "count": "runs"})
    out["rmse"] = np.sqrt(out["rmse"])
    out["rmse_se"] /= 2 * out["rmse"]
    rows = []
    for row in out.to_dict("records"):
        z = analytic_gaussian_sigma(1.0, row["epsilon"], DELTA)
        known = {f.mechanism: f for f in forecasts(_problem(str(row["setting"])))}
        forecast, n = known[str(row["mechanism"])], int(row["batch_size"])
        rows.append([forecast.error(n, z), n / z, forecast.least])
    out[["forecast", "n_over_z", "least"]] = rows
    out["ratio"] = out["rmse"] / out["forecast"]
    out["tolerance"] = out["mechanism"].map(TOLERANCE)
    return out
