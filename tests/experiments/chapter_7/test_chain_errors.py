"""The table of today's mechanisms: complete, reproducible, its order the one to expect."""

import numpy as np
import pandas as pd
import pytest

from dprl.mdp import Chain
from dprl.privacy import Guarantee
from dprl.private_evaluation import NEIGHBOURS
from dprl.trajectories import first_visit_returns, simulate
from experiments.chapter_7.chain_errors import (
    KEYS,
    MECHANISMS,
    PROMISES,
    chain_trial,
    lower_bound,
    lstd_values,
    summarise,
    today_tasks,
)

TASK = {"start": "first", "batch_size": 2000, "runs": 2}


@pytest.fixture(scope="module")
def trial():
    return chain_trial(TASK, np.random.SeedSequence(1))


def test_one_row_for_each_run_of_each_mechanism(trial):
    assert list(trial.columns) == [*KEYS, "value"]
    counts = trial.groupby(KEYS)["value"].count()
    assert (counts == 2).all()
    # no trajectory may be published at delta = 1e-6
    assert len(counts) == len(PROMISES) * len(MECHANISMS) - 2
    assert set(trial["mechanism"]) == set(MECHANISMS)


def test_same_seed_same_rows(trial):
    again = chain_trial(TASK, np.random.SeedSequence(1))
    pd.testing.assert_frame_equal(trial, again)


def test_the_table_puts_the_mechanisms_in_order(trial):
    table = summarise([trial], bound=lambda *_: 1e-4)
    rows = table[(table["epsilon"] == 1.0)].set_index("mechanism")["rmse"]
    better = ["RC, returns", "RC without structure", "sufficient statistics", "DP-LSW"]
    assert rows[better].is_monotonic_increasing
    assert np.allclose(table["ratio"], table["rmse"] * 1e4)
    assert (table["runs"] == 2).all()
    plain = trial[(trial["mechanism"] == "LSTD") & (trial["epsilon"] == 1.0)]["value"]
    assert rows["LSTD"] == pytest.approx(np.sqrt((plain**2).mean()))


def test_tasks_add_up_to_the_runs():
    tasks = today_tasks({100: 25, 1000: 3})
    assert sum(t["runs"] for t in tasks if t["batch_size"] == 100) == 50
    assert sum(t["runs"] for t in tasks if t["batch_size"] == 1000) == 6
    assert len({tuple(t.values()) for t in tasks}) == len(tasks)


def test_lstd_on_a_batch_is_near_the_values_and_needs_no_visit():
    chain = Chain(6)
    batch = simulate(chain, 20_000, np.random.default_rng(0))
    assert lstd_values(batch, chain) == pytest.approx(chain.values(), abs=2e-3)
    one = simulate(Chain(6, start="first"), 1, np.random.default_rng(0))
    returns = first_visit_returns(one, chain.discount)
    assert lstd_values(one, chain)[0] == pytest.approx(returns.returns[0, 0], abs=0.05)


def test_bounds_fall_with_the_trajectories_and_privacy_never_lowers_them():
    chain = Chain(40, start="uniform")
    promise = Guarantee(1.0, 1e-6, NEIGHBOURS)
    for law in ("Markov", "along the chain"):
        few, many = (lower_bound(chain, law, promise, n) for n in (1000, 10_000))
        assert few > many >= lower_bound(chain, law, None, 10_000)
    markov, wider = (lower_bound(chain, x, promise, 10_000) for x in ("Markov", "along the chain"))
    assert markov < wider
