r"""How often the intervals of RC cover, on the chain of the thesis and where states differ.

A run simulates trajectories, releases values with
:data:`~dprl.private_evaluation.recentred_intervals.INTERVAL_SETTINGS` and looks at the interval of
every state. The working model is always the family of chains that stay with one unknown
probability everywhere: it holds the truth where ``model`` is ``right``; where it is ``wrong`` each
run has a chain of its own, whose states stay with probabilities drawn from [.3, .7].
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd

from dprl.mdp import Chain, MarkovRewardProcess
from dprl.privacy import Guarantee
from dprl.private_evaluation import NEIGHBOURS
from dprl.private_evaluation.recentre_shape_clip import recentre_shape_clip
from dprl.private_evaluation.recentred_intervals import INTERVAL_SETTINGS, recentred_intervals
from dprl.private_evaluation.working_model import WorkingModel
from dprl.trajectories import simulate

#: What identifies a row of the table.
KEYS = ["model", "start", "epsilon", "delta", "batch_size"]


def uneven_chain(chain: Chain, rng: np.random.Generator) -> MarkovRewardProcess:
    """Like the chain, each state with a probability to stay of its own, drawn from [.3, .7]."""
    even = chain.process
    p = even.transition.copy()
    states = np.arange(chain.n_states)
    stay = rng.uniform(0.3, 0.7, chain.n_states)
    p[states, states], p[states, states + 1] = stay, 1 - stay
    return MarkovRewardProcess(p, even.reward, chain.discount, even.start)


def interval_tasks(
    cells: Mapping[tuple[float, float, int], int], *, block: int = 20
) -> list[dict[str, Any]]:
    """Tasks of :func:`interval_trial`: runs for each (epsilon, delta, n), in blocks.

    For each kind of working model and each start.
    """
    return [
        dict(
            zip(KEYS, (model, start, *cell), strict=True),
            runs=min(block, number - done),
            block=done,
        )
        for model in ("right", "wrong")
        for start in ("first", "uniform")
        for cell, number in cells.items()
        for done in range(0, number, block)
    ]


def interval_trial(task: Mapping[str, Any], seed: np.random.SeedSequence) -> pd.DataFrame:
    """Some runs of one kind.

    Parameters
    ----------
    task : mapping
        :data:`KEYS` and ``runs``; optional ``n_states``, 40 if left out.
    seed : numpy.random.SeedSequence

    Returns
    -------
    DataFrame
        One row for each run and state: :data:`KEYS`, ``run``, ``state``, whether the interval
        ``covers``, its ``width``, the ``error`` of its middle, the released ratio ``spread``, and
        ``first_noise``.
    """
    chain = Chain(task.get("n_states", 40), start=task["start"])
    family = WorkingModel.equal_chain(chain)
    promise = Guarantee(task["epsilon"], task["delta"], NEIGHBOURS)
    runs = []
    for run, stream in enumerate(seed.spawn(task["runs"])):
        rng = np.random.default_rng(stream)
        truth = chain.process if task["model"] == "right" else uneven_chain(chain, rng)
        values = truth.values()[: chain.n_states]
        release = recentre_shape_clip(
            simulate(truth, task["batch_size"], rng),
            family,
            promise,
            f_max=1.0,
            settings=INTERVAL_SETTINGS,
            rng=rng,
        )
        # where intervals are refused, what they would have been
        low, high = recentred_intervals(replace(release, first_noise=0.0))
        found = {
            "run": task["block"] + run,
            "state": np.arange(1, chain.n_states + 1),
            "covers": (low <= values) & (values <= high),
            "width": high - low,
            "error": (low + high) / 2 - values,
            "spread": release.spread_ratio,
            "first_noise": release.first_noise,
        }
        runs.append(pd.DataFrame({**{k: task[k] for k in KEYS}, **found}))
    return pd.concat(runs, ignore_index=True)


def summarise(trials: Iterable[pd.DataFrame]) -> pd.DataFrame:
    """One row for each of :data:`KEYS`.

    ``coverage`` is the share of the intervals that cover, with the standard error over runs;
    ``worst_state`` the least share of a state; ``width`` and ``rmse`` are means over states and
    runs; ``spread`` is the mean of the released ratio, and ``first_noise`` decides whether
    intervals are refused.
    """
    table = pd.concat(list(trials), ignore_index=True)
    by_run = table.groupby([*KEYS, "run"], sort=False)
    each = by_run.agg(
        covers=("covers", "mean"),
        width=("width", "mean"),
        spread=("spread", "first"),
        first_noise=("first_noise", "first"),
    )
    each["square"] = (table["error"] ** 2).groupby([table[k] for k in [*KEYS, "run"]]).mean()
    groups = each.reset_index().groupby(KEYS, sort=False)
    out = groups.agg(
        runs=("covers", "size"),
        coverage=("covers", "mean"),
        coverage_se=("covers", "sem"),
        width=("width", "mean"),
        rmse=("square", "mean"),
        spread=("spread", "mean"),
        first_noise=("first_noise", "first"),
    )
    out["rmse"] = np.sqrt(out["rmse"])
    state = table.groupby([*KEYS, "state"], sort=False)["covers"].mean()
    out["worst_state"] = state.groupby(KEYS, sort=False).min()
    return out.reset_index()
