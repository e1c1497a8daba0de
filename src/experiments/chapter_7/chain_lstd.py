r"""Private least squares on the chain of the thesis, one feature for each state.

Three ways to make LSTD private, with ever more that is public: noise on A and b at once, private
LSTD, and RC with temporal differences, which knows that the process is a chain. The error is that
of the values of the 40 states.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from dprl import _validation as check
from dprl._validation import FloatArray
from dprl.evaluation import rmse
from dprl.mdp import Start
from dprl.off_policy.chain import TwoPolicyChain, simulate_behaviour
from dprl.off_policy.saddle_point import BidiagonalStatistics, lstd
from dprl.privacy import Guarantee
from dprl.privacy.gaussian_dp import gaussian_mu
from dprl.private_evaluation import NEIGHBOURS
from dprl.private_evaluation.private_lstd import private_lstd
from dprl.private_evaluation.recentre_shape_clip import recentre_shape_clip
from dprl.private_evaluation.working_model import WorkingModel
from dprl.trajectories import simulate

#: What identifies a row of the table.
KEYS = ["start", "n", "method", "run"]


def noisy_system(
    statistics: BidiagonalStatistics,
    epsilon: float,
    delta: float,
    part: float,
    rng: np.random.Generator,
) -> FloatArray:
    """Solution of the means of A_i and b_i, clipped together, with noise in all N^2 + N entries.

    The radius is the 1 - part quantile of the norms of the data themselves, in this method's
    favour: it is *not private*. Neighbours replace one trajectory.
    """
    n, d = statistics.b.shape
    parts = (statistics.diagonal, statistics.above, statistics.b)
    rows = np.concatenate(parts, axis=1, dtype=np.float64)  # what is not 0 in A_i and b_i
    norms = np.linalg.norm(rows, axis=1)
    radius = np.quantile(norms, 1 - check.open_unit("part", part))
    mean = np.minimum(1, radius / np.maximum(norms, radius)) @ rows / n
    diagonal, above, b = np.split(mean, [d, 2 * d - 1])
    noise = 2 * radius / (gaussian_mu(epsilon, delta) * n) * rng.standard_normal(d * d + d)
    a = np.diag(diagonal) + np.diag(above, 1) + noise[: d * d].reshape(d, d)
    return np.asarray(np.linalg.solve(a, b + noise[d * d :]))


def lstd_tasks(
    runs: Mapping[int, int], *, starts: Sequence[Start] = ("first", "uniform")
) -> list[dict[str, Any]]:
    """Tasks of :func:`chain_trial`: for each number of trajectories so many runs."""
    return [
        {"start": start, "n": n, "run": run}
        for start in starts
        for n, number in runs.items()
        for run in range(number)
    ]


def chain_trial(task: Mapping[str, Any], seed: np.random.SeedSequence) -> list[dict[str, Any]]:
    """One run at (1, 1e-6): the ``rmse`` of each method, and :data:`KEYS`.

    ``task`` has ``start``, ``n``, ``run``; optional ``n_states``.
    """
    pair = TwoPolicyChain(task.get("n_states", 40), start=task["start"])
    rng = np.random.default_rng(seed)
    epsilon, delta = 1.0, 1e-6
    data = simulate_behaviour(pair, task["n"], rng).statistics("sum", np.float32)
    dense = data.dense()
    chain = pair.target
    release = recentre_shape_clip(
        simulate(chain, task["n"], rng),
        WorkingModel.equal_chain(chain),
        Guarantee(epsilon, delta, NEIGHBOURS),
        f_max=1.0,
        rng=rng,
    )
    found = {
        "noise on A and b": noisy_system(data, epsilon, delta, 0.01, rng),
        "private LSTD": private_lstd(dense, epsilon, delta, rng).theta,
        "RC, temporal differences": release.values,
        "LSTD": lstd(data),
        "nothing": np.zeros(pair.n_features),
    }
    own = {key: task[key] for key in ("start", "n", "run")}
    return [
        {**own, "method": method, "rmse": float(rmse(values, pair.values()))}
        for method, values in found.items()
    ]
