"""The study of intervals: complete rows, shares counted as they should be, chains that differ."""

import numpy as np
import pandas as pd
import pytest

from dprl.mdp import Chain
from experiments.chapter_7.interval_coverage import (
    KEYS,
    interval_tasks,
    interval_trial,
    summarise,
    uneven_chain,
)

CELL = dict(zip(KEYS, ("wrong", "uniform", 1.0, 1e-6, 500), strict=True))


@pytest.fixture(scope="module")
def trial():
    task = {**CELL, "runs": 2, "block": 4, "n_states": 5}
    return interval_trial(task, np.random.SeedSequence(1))


def test_one_row_for_each_run_and_state(trial):
    assert len(trial) == 10
    assert not trial.duplicated([*KEYS, "run", "state"]).any()
    assert set(trial["run"]) == {4, 5}
    assert (trial["width"] > 0).all()
    assert ((trial["error"].abs() <= trial["width"] / 2) == trial["covers"]).all()
    again = interval_trial(
        {**CELL, "runs": 2, "block": 4, "n_states": 5}, np.random.SeedSequence(1)
    )
    pd.testing.assert_frame_equal(trial, again)


def test_the_table_counts_what_is_covered():
    rows = pd.DataFrame(
        {
            **CELL,
            "run": [0, 0, 1, 1],
            "state": [1, 2, 1, 2],
            "covers": [True, True, True, False],
            "width": [1.0, 2.0, 3.0, 4.0],
            "error": [1.0, 1.0, 1.0, 3.0],
            "spread": [1.0, 1.0, 2.0, 2.0],
            "first_noise": 0.5,
        }
    )
    (row,) = summarise([rows]).to_dict("records")
    assert {key: row[key] for key in KEYS} == CELL
    assert row["runs"] == 2
    assert row["coverage"] == 0.75
    assert row["coverage_se"] == pytest.approx(0.25)
    assert row["worst_state"] == 0.5
    assert row["width"] == 2.5
    assert row["rmse"] == pytest.approx(np.sqrt(3))
    assert row["spread"] == 1.5
    assert row["first_noise"] == 0.5


def test_states_of_an_uneven_chain_differ_and_the_rest_is_the_chain():
    chain = Chain(6)
    truth = uneven_chain(chain, np.random.default_rng(0))
    stay = np.diag(truth.transition)[:6]
    assert ((stay >= 0.3) & (stay <= 0.7)).all()
    assert len(set(stay)) == 6
    assert truth.transition.sum(axis=1) == pytest.approx(1)
    assert (truth.reward == chain.process.reward).all()
    assert truth.terminal.sum() == 1


def test_tasks_add_up_to_the_runs():
    tasks = interval_tasks({(1.0, 1e-6, 100): 25, (1.0, 1e-6, 1000): 3})
    assert sum(t["runs"] for t in tasks if t["batch_size"] == 100) == 4 * 25
    assert sum(t["runs"] for t in tasks if t["batch_size"] == 1000) == 4 * 3
    assert len({(t["model"], t["start"], t["batch_size"], t["block"]) for t in tasks}) == len(tasks)
