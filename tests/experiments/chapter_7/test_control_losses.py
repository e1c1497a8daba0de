"""Small runs of private control: rows, summaries, what is refused."""

import numpy as np
import pandas as pd
import pytest

from experiments.chapter_7 import control_losses as study


def test_a_trial_has_a_row_for_each_run_and_method_and_is_reproducible():
    tasks = study.control_tasks({"RiverSwim": [200]}, {"RiverSwim": [10**9]}, runs=2)
    trials = [study.control_trial(task, np.random.SeedSequence(3)) for task in tasks]
    assert trials[0].method.tolist() == [*study.FROM_TRAJECTORIES] * 2
    assert trials[1].method.tolist() == [*study.FROM_STEPS] * 2
    again = study.control_trial(tasks[0], np.random.SeedSequence(3))
    pd.testing.assert_frame_equal(trials[0], again)
    assert ((trials[0].loss > -1e-9) & (trials[0].loss < 1.1)).all()
    assert (trials[0].loss[trials[0].method == "no privacy"] < 0.01).all()
    assert (trials[1].loss < 0.01).all()


def test_runs_are_divided_in_tens():
    tasks = study.control_tasks({"chain": [5, 6]}, {}, runs=23)
    assert [(t["batch_size"], t["runs"]) for t in tasks] == [
        (n, k) for n in (5, 6) for k in (10, 10, 3)
    ]


@pytest.mark.parametrize("name", ["RiverSwim", "chain"])
def test_the_best_policy_loses_nothing_and_no_policy_less(name):
    case = study.problem(name)
    best = study.control.episodic_policy(case.process, case.horizon)
    assert case.loss(best) == pytest.approx(0, abs=1e-12)
    some = np.random.default_rng(1).integers(0, 2, best.shape)
    assert case.loss(some) > 0


@pytest.mark.parametrize("name", ["RiverSwim", "chain"])
def test_exact_counts_are_those_that_nothing_bounds(name):
    case = study.problem(name)
    rng = np.random.default_rng(2)
    batch = study.control.simulate_control(case.process, case.behaviour, 30, case.horizon, rng)
    counts = study.exact_counts(batch, 2).counts
    assert np.array_equal(counts, study.private.bounded_transition_counts(batch, 2, radius=1e9))
    assert counts.sum() == batch.states.size - len(batch)


def test_a_constant_at_each_step_changes_no_policy():
    """What is handed to DP-APVI: rewards moved into [0, 1]."""
    case = study.problem("chain")
    found = study._from_steps(
        case, 10**15, {"epsilon": 1.0, "delta": 1e-6}, np.random.default_rng(1)
    )
    assert case.loss(found["DP-APVI without penalty"]) < 1e-6


def test_summaries_and_least_sizes():
    frames = [
        pd.DataFrame({"problem": "chain", "method": "m", "batch_size": n, "loss": losses})
        for n, losses in ((30, [0.001] * 20), (10, [0.5] * 2 + [0.001] * 18), (20, [0.0] * 20))
    ]
    table = study.summarise(frames)
    assert table.within.tolist() == [1.0, 0.9, 1.0]
    assert table.loss_95.tolist() == [0.001, 0.5, 0.0]
    assert table.within_99[0] == pytest.approx(0.01 ** (1 / 20))
    assert study.least_sizes(table).batch_size.tolist() == [20]
    assert np.isnan(study.least_sizes(table[table.batch_size == 10]).batch_size[0])


def test_unknown_problems_are_refused():
    with pytest.raises(ValueError, match="RiverSwim or chain"):
        study.problem("river")
