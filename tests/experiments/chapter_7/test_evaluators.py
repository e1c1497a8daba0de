"""Small runs of the forecasts' check: rows, what is known, what is refused."""

import numpy as np
import pandas as pd
import pytest

from dprl.off_policy.saddle_point import empirical
from experiments.chapter_7 import evaluators as study


def test_rows_of_all_settings():
    tasks = study.forecast_tasks(study.SETTINGS, [(2_000, 5.0)], runs=2)
    table = study.summarise(
        study.forecast_trial(task, np.random.SeedSequence(i)) for i, task in enumerate(tasks)
    )
    assert table.groupby("setting").size().to_dict() == {
        "chain of 12": 5,
        "chain of 25": 5,
        "ladder": 4,
        "ring, on policy": 1,
        "ring, off policy": 1,
    }
    assert set(table.mechanism) == set(study.TOLERANCE)
    assert np.isfinite(table[["rmse", "forecast", "least", "ratio"]]).all(axis=None)
    assert (table.runs == 2).all()
    exact = table[table.mechanism.str.startswith("counts")]
    assert ((exact.ratio > 0.5) & (exact.ratio < 2)).all()


def test_trials_are_reproducible_and_runs_divided():
    tasks = study.forecast_tasks(["ladder"], [(500, 1.0)], runs=23)
    assert [t["runs"] for t in tasks] == [10, 10, 3]
    one, other = (study.forecast_trial(tasks[2], np.random.SeedSequence(4)) for _ in range(2))
    pd.testing.assert_frame_equal(one, other)


def test_too_few_trajectories_for_private_lstd_leave_no_row():
    task = study.forecast_tasks(["ring, on policy"], [(200, 1.0)], runs=1)[0]
    assert study.forecast_trial(task, np.random.SeedSequence(1)).empty


def test_off_policy_walks_have_the_system_of_the_target():
    """Weighted steps of the coin have the mean of steps of the target."""
    rng = np.random.default_rng(5)
    weighted = empirical(study.ring_statistics(3, True, 200_000, rng, steps=1))
    plain = empirical(study.ring_statistics(3, False, 200_000, rng, steps=1))
    assert weighted.c == pytest.approx(plain.c, abs=0.02)
    assert np.abs(weighted.a - plain.a).max() > 0.02


def test_the_ladder_is_a_process_whose_returns_stay_in_range():
    from dprl.trajectories import first_visit_returns, simulate

    batch = simulate(study.ladder(), 5_000, np.random.default_rng(1))
    returns = first_visit_returns(batch, study.ladder().discount)
    assert np.quantile(returns.returns[returns.visited], 0.999) <= 1
