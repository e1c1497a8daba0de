r"""The experiment of thesis section 3.8: LSW, LSL, DP-LSW and DP-LSL on the chain.

One trial draws batches of growing size (each contains the one before), runs all
algorithms on the same batches and reports, per algorithm,

``rmse``
    root mean squared error over the states against the exact values;
``excess_empirical_risk``
    J(released theta) - J(non-private theta) in the algorithm's own objective,
    (3.4) for DP-LSW and (3.8) for DP-LSL.

The text leaves open the start distribution, the bound on the returns, the
weights and the ridge schedule: all are arguments. Weights are uniform, w = rho = 1.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from dprl import features as feature_maps
from dprl._validation import FloatArray
from dprl.evaluation import excess_ridge_risk, excess_weighted_risk, lsl, lsw, rmse
from dprl.mdp import Chain
from dprl.private_evaluation import LSL, LSW, dp_lsl, dp_lsw
from dprl.trajectories import VisitStatistics, chain_visit_statistics

#: The features of the experiments, by the name used in the records.
FEATURES = ("tabular", "aggregated", "aggregated-orthonormal")

#: What identifies a curve's point in the records; ``ridge`` and ``f_max`` may be empty.
KEYS = ["algorithm", "features", "start", "f_max", "batch_size", "ridge", "metric"]


def chain_features(name: str, n_states: int) -> FloatArray:
    """The feature matrix of a name in :data:`FEATURES`."""
    if name not in FEATURES:
        raise ValueError(f"features must be one of {FEATURES}, got {name!r}")
    if name == "tabular":
        return feature_maps.tabular(n_states)
    return feature_maps.aggregation(n_states, orthonormal=name == "aggregated-orthonormal")


def chain_trial(task: Mapping[str, Any], seed: np.random.SeedSequence) -> pd.DataFrame:
    """Some independent runs of the experiment for one start distribution.

    One least-squares solve per batch size, features and ridge, all runs at once.

    Parameters
    ----------
    task : mapping
        ``start`` ("first" or "uniform"); ``batch_sizes`` (increasing); ``ridges``, a mapping from
        features name to the values of lambda per batch size (one sequence for each); ``f_max``
        (sequence); ``epsilon``, ``delta``; ``runs`` (independent repetitions); optional ``chain``,
        keyword arguments of :class:`~dprl.mdp.Chain`.
    seed : numpy.random.SeedSequence
        Everything random comes from it.

    Returns
    -------
    DataFrame
        Columns :data:`KEYS`, ``run`` and ``value``, one row per number.
    """
    chain = Chain(start=task["start"], **task.get("chain", {}))
    data_rng, noise_rng = (np.random.default_rng(s) for s in seed.spawn(2))
    tables: list[pd.DataFrame] = []
    statistics: VisitStatistics | None = None
    for i, size in enumerate(task["batch_sizes"]):
        known = 0 if statistics is None else statistics.n_trajectories
        fresh = chain_visit_statistics(
            chain, size - known, data_rng, bounds=(0.0, 1.0), n_batches=task["runs"]
        )
        statistics = fresh if statistics is None else statistics.merged(fresh)
        for name, ridges in task["ridges"].items():
            tables.extend(_one_batch(statistics, chain, name, ridges[i], task, noise_rng))
    table = pd.concat(tables, ignore_index=True)
    table.insert(2, "start", task["start"])
    return table[[*KEYS, "run", "value"]]


def summarise(trials: Sequence[pd.DataFrame]) -> pd.DataFrame:
    """:data:`KEYS`, ``mean`` over the runs of all trials, its ``standard_error``, ``runs``."""
    table = pd.concat(trials, ignore_index=True)
    grouped = table.groupby(KEYS, dropna=False, sort=True)["value"]
    return grouped.agg(mean="mean", standard_error="sem", runs="count").reset_index()


def _one_batch(
    statistics: VisitStatistics,
    chain: Chain,
    features_name: str,
    ridges: Sequence[float],
    task: Mapping[str, Any],
    rng: np.random.Generator,
) -> list[pd.DataFrame]:
    """All algorithms on one batch size; statistics of shape (runs, N)."""
    phi = chain_features(features_name, chain.n_states)
    ones, values = np.ones(chain.n_states), chain.values()
    promise = {"epsilon": task["epsilon"], "delta": task["delta"]}
    out: list[pd.DataFrame] = []

    def report(algorithm: str, f_max: float, ridge: float, metric: str, result: FloatArray) -> None:
        row = {
            "algorithm": algorithm,
            "features": features_name,
            "f_max": f_max,
            "batch_size": statistics.n_trajectories,
            "ridge": ridge,
            "metric": metric,
            "run": np.arange(len(result)),
            "value": result,
        }
        out.append(pd.DataFrame(row))

    exact = lsw(statistics, phi, ones)
    report("LSW", np.nan, np.nan, "rmse", rmse(exact @ phi.T, values))
    for f_max in task["f_max"]:
        noisy = dp_lsw(statistics, LSW(phi, ones, f_max=f_max), rng=rng, **promise).theta
        report("DP-LSW", f_max, np.nan, "rmse", rmse(noisy @ phi.T, values))
        excess = excess_weighted_risk(noisy, exact, phi, ones)
        report("DP-LSW", f_max, np.nan, "excess_empirical_risk", excess)
    for ridge in ridges:
        exact = lsl(statistics, phi, ones, ridge)
        report("LSL", np.nan, ridge, "rmse", rmse(exact @ phi.T, values))
        for f_max in task["f_max"]:
            estimator = LSL(phi, ones, ridge, f_max=f_max)
            noisy = dp_lsl(statistics, estimator, rng=rng, **promise).theta
            report("DP-LSL", f_max, ridge, "rmse", rmse(noisy @ phi.T, values))
            excess = excess_ridge_risk(noisy, exact, statistics, phi, ones, ridge)
            report("DP-LSL", f_max, ridge, "excess_empirical_risk", excess)
    return out
