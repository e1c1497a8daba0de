r"""The error of today's mechanisms on the chain of the thesis, beside the limits.

Every mechanism evaluates the same trajectories of the chain with N = 40 states; the RMSE is over
the states. :func:`chain_trial` is a trial of :func:`companion.sweeps.run`, :func:`today_tasks`
makes its tasks and :func:`summarise` the table: one row for each mechanism, start, promise and
number of trajectories, with the lower bound of the mechanism's class and the ratio to it.

The class of a mechanism is what it assumes of the law of the trajectories: ``Markov``, or ``along
the chain`` for any law that moves from state to state. ``knows`` is what else is public to it.
Shares and radii are the defaults of the package everywhere.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from dprl._validation import FloatArray
from dprl.bounds.two_points import TwoPoints
from dprl.bounds.van_trees import LocalChains
from dprl.evaluation import rmse
from dprl.features import tabular
from dprl.mdp import Chain, Start
from dprl.privacy import Guarantee
from dprl.private_evaluation import LSW, NEIGHBOURS, dp_lsw
from dprl.private_evaluation.recentre_shape_clip import recentre_shape_clip
from dprl.private_evaluation.structure_free import recentre_clip_structure_free
from dprl.private_evaluation.sufficient_statistics import release_statistics
from dprl.private_evaluation.working_model import WorkingModel
from dprl.trajectories import Batch, FirstVisitReturns, first_visit_returns, simulate

#: The promises (epsilon, delta) of the table.
PROMISES = ((1.0, 1e-6), (0.1, 0.1), (0.1, 1e-6))

#: Mechanism: what it knows beside the range of the returns, and its class.
MECHANISMS = {
    "Monte Carlo": ("not private", "along the chain"),
    "LSTD": ("not private", "Markov"),
    "a share delta published": ("nothing", "along the chain"),
    "DP-LSW": ("nothing", "along the chain"),
    "sufficient statistics": ("expected visits", "along the chain"),
    "RC without structure": ("nothing", "along the chain"),
    "RC, returns": ("a family of chains", "along the chain"),
    "RC, returns, shrunk": ("a family of chains", "along the chain"),
    "RC, temporal differences": ("a family of chains", "Markov"),
    "RC, temporal differences, shrunk": ("a family of chains", "Markov"),
}

#: What identifies a row of the table.
KEYS = ["mechanism", "start", "epsilon", "delta", "batch_size"]


def today_tasks(
    runs: Mapping[int, int], *, block: int = 10, starts: Sequence[Start] = ("first", "uniform")
) -> list[dict[str, Any]]:
    """Tasks of :func:`chain_trial`: for each number of trajectories so many runs, in blocks."""
    return [
        {"start": start, "batch_size": size, "runs": min(block, number - done), "block": done}
        for start in starts
        for size, number in runs.items()
        for done in range(0, number, block)
    ]


def chain_trial(task: Mapping[str, Any], seed: np.random.SeedSequence) -> pd.DataFrame:
    """Some runs of all mechanisms with all promises, at one size.

    Parameters
    ----------
    task : mapping
        ``start``, ``batch_size``, ``runs``; optional ``n_states``.
    seed : numpy.random.SeedSequence

    Returns
    -------
    DataFrame
        :data:`KEYS` and ``value``, the RMSE of one run in each row.
    """
    chain = Chain(task.get("n_states", 40), start=task["start"])
    model = WorkingModel.equal_chain(chain)
    values = chain.values()
    rows = []
    for stream in seed.spawn(task["runs"]):
        data_seed, noise_seed = stream.spawn(2)
        batch = simulate(chain, task["batch_size"], np.random.default_rng(data_seed))
        returns = chain_returns(batch, chain)
        plain = {
            "Monte Carlo": returns.statistics((0.0, 1.0)).mean_returns,
            "LSTD": lstd_values(batch, chain),
        }
        noises = noise_seed.spawn(len(PROMISES))
        for (epsilon, delta), noise in zip(PROMISES, noises, strict=True):
            promise = Guarantee(epsilon, delta, NEIGHBOURS)
            found = private_estimates(chain, model, batch, returns, promise, noise)
            for mechanism, estimate in {**plain, **found}.items():
                error = float(rmse(estimate, values))
                key = [mechanism, task["start"], epsilon, delta, task["batch_size"]]
                rows.append([*key, error])
    return pd.DataFrame(rows, columns=[*KEYS, "value"])


def chain_returns(batch: Batch, chain: Chain) -> FirstVisitReturns:
    """First-visit returns of the chain's N states."""
    returns, n = first_visit_returns(batch, chain.discount), chain.n_states
    return FirstVisitReturns(returns.returns[:, :n], returns.visited[:, :n])


def private_estimates(
    chain: Chain,
    model: WorkingModel,
    batch: Batch,
    returns: FirstVisitReturns,
    promise: Guarantee,
    seed: np.random.SeedSequence,
) -> dict[str, FloatArray]:
    """The values that each mechanism finds; one that does not exist at the promise is left out."""
    n = chain.n_states
    statistics = returns.statistics((0.0, 1.0))
    rng = np.random.default_rng(seed)
    limits = {"epsilon": promise.epsilon, "delta": promise.delta}
    out: dict[str, FloatArray] = {}
    few = math.floor(promise.delta * len(batch))
    if few:
        drawn = rng.permutation(len(batch))[:few]
        published = FirstVisitReturns(returns.returns[drawn], returns.visited[drawn])
        out["a share delta published"] = published.statistics((0.0, 1.0)).mean_returns
    lsw = LSW(tabular(n), np.ones(n), f_max=1.0)
    out["DP-LSW"] = dp_lsw(statistics, lsw, rng=rng, **limits).theta
    centred, _ = release_statistics(
        statistics, f_max=1.0, expected_visits=chain.visit_probabilities(), rng=rng, **limits
    )
    out["sufficient statistics"] = centred.values()
    free = recentre_clip_structure_free(returns, promise, f_max=1.0, rng=rng)
    out["RC without structure"] = free.theta
    forms: dict[str, FirstVisitReturns | Batch] = {
        "RC, returns": returns,
        "RC, temporal differences": batch,
    }
    for name, data in forms.items():
        release = recentre_shape_clip(data, model, promise, f_max=1.0, rng=rng)
        out[name], out[f"{name}, shrunk"] = release.values, release.shrunk
    return out


def lstd_values(batch: Batch, chain: Chain) -> FloatArray:
    """Values of the process with the batch's own frequencies and mean rewards; not private."""
    n = chain.process.n_states
    following = np.append(batch.states[1:], 0)
    following[batch.ends - 1] = n - 1
    moves = np.bincount(batch.states * n + following, minlength=n * n).reshape(n, n).astype(float)
    paid = np.bincount(batch.states, weights=batch.rewards, minlength=n)
    matrix = np.diag(moves.sum(axis=1)) - chain.discount * moves
    unseen = moves.sum(axis=1) == 0
    matrix[unseen, unseen] = 1.0
    return np.asarray(np.linalg.solve(matrix, paid)[: chain.n_states])


def lower_bound(chain: Chain, law: str, promise: Guarantee | None, batch_size: int) -> float:
    """The largest of the bounds for the class ``law`` at this size, private ones if promised.

    The van Trees bounds are on chains whose probabilities lie within 5/sqrt(n) of this one's.
    """
    near = LocalChains(
        np.full(chain.n_states, chain.stay),
        min(0.2, 5 / math.sqrt(batch_size)),
        discount=chain.discount,
        start=chain.start,
    )
    without = near.markov_rmse if law == "Markov" else near.any_law_rmse
    bounds = [without(batch_size)]
    if promise is not None:
        limits = {"epsilon": promise.epsilon, "delta": promise.delta}
        bounds.append(near.private_rmse(batch_size, **limits))
        if law != "Markov":
            points = TwoPoints(chain.values(), chain.visit_probabilities())
            bounds.append(points.rmse(batch_size, **limits)[0])
    return max(bounds)


def summarise(
    trials: Iterable[pd.DataFrame],
    bound: Callable[[Chain, str, Guarantee | None, int], float] = lower_bound,
) -> pd.DataFrame:
    """The table: RMSE with its standard error, runs, lower bound and ratio to it.

    The RMSE is the root of the mean of the squared errors over states *and* runs, the quantity that
    the bounds are on; the mean of the roots would be smaller.
    """
    table = pd.concat(list(trials), ignore_index=True)
    squares = table.assign(value=table["value"] ** 2).groupby(KEYS, sort=False)["value"]
    out = squares.agg(rmse="mean", rmse_se="sem", runs="count").reset_index()
    out["rmse"] = np.sqrt(out["rmse"])
    out["rmse_se"] /= 2 * out["rmse"]
    out.insert(1, "knows", [MECHANISMS[m][0] for m in out["mechanism"]])
    out.insert(2, "class", [MECHANISMS[m][1] for m in out["mechanism"]])
    out.insert(3, "features", "tabular")
    found: dict[tuple[Any, ...], float] = {}
    bounds = []
    for row in out.to_dict("records"):
        private = row["knows"] != "not private"
        key = (row["class"], row["start"], row["epsilon"], row["delta"], row["batch_size"], private)
        if key not in found:
            promise = Guarantee(row["epsilon"], row["delta"], NEIGHBOURS) if private else None
            chain = Chain(start=row["start"])
            found[key] = bound(chain, str(row["class"]), promise, int(row["batch_size"]))
        bounds.append(found[key])
    out["lower_bound"] = bounds
    out["ratio"] = out["rmse"] / out["lower_bound"]
    return out
