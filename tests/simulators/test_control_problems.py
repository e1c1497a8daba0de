"""RiverSwim, the chain with a choice of speed, and two ways to draw their data."""

import numpy as np
import pytest
from scipy import stats

from dprl.mdp import MarkovDecisionProcess, policy_iteration
from dprl.private_evaluation.control import step_counts
from dprl.simulators import control_problems as control


def test_river_swim_swims_right_at_best_and_hardly_gets_anywhere_at_random():
    process = control.river_swim()
    assert process.transition.sum(axis=2) == pytest.approx(1)
    assert policy_iteration(process, [0] * 6).policies[-1].tolist() == [1] * 6
    assert process.transition[0, 0].tolist() == [1, 0, 0, 0, 0, 0]
    assert process.expected_reward[[0, 5], [0, 1]].tolist() == [0.005, 1.0]
    assert process.expected_reward.sum() == pytest.approx(1.005)


def test_the_chain_without_a_choice_is_the_chain_of_the_book():
    from dprl.mdp import Chain

    process = control.speed_chain(40, slow=0.5)
    slow = process.under(np.zeros(41, dtype=int)).values()
    assert slow[:40] == pytest.approx(Chain(40, stay=0.5).values())
    fast = process.under(np.ones(41, dtype=int)).values()
    best = policy_iteration(process, [0] * 41).values[-1]
    assert (best >= np.maximum(slow, fast) - 1e-12).all()
    assert best[0] > max(slow[0], fast[0]) + 0.005  # to choose is worth something


@pytest.mark.parametrize("process", [control.river_swim(), control.speed_chain(5)])
def test_both_ways_to_draw_counts_have_the_same_means(process):
    rng = np.random.default_rng(4)
    s, n, steps = process.n_states, 20_000, 6
    policy = np.tile([0.3, 0.7], (s, 1))
    kept = process.transition[np.arange(s), 0, np.arange(s)] < 1  # no step after the end
    kept |= process.transition[np.arange(s), 1, np.arange(s)] < 1
    batch = control.simulate_control(process, policy, n, steps, rng)
    one = step_counts(batch, 2, steps)[:, kept]
    other = control.simulate_step_counts(process, policy, n, steps, rng)[:, kept]
    p = (one + other) / (2 * n)
    z = (one - other) / np.sqrt(np.maximum(2 * n * p * (1 - p), 1))
    assert np.abs(z).max() < 5
    assert stats.kstest(z[p > 1e-3], "norm").pvalue > 1e-4


def test_trajectories_follow_the_process_and_stop_in_its_end():
    process = control.speed_chain(3)
    batch = control.simulate_control(process, [1] * 4, 500, 50, np.random.default_rng(2))
    last = batch.ends - 1
    assert (batch.states[last] == 3).all()
    assert (np.diff(np.flatnonzero(batch.states == 3)) == batch.lengths[1:]).all()
    begins = batch.ends - batch.lengths
    returns = np.add.reduceat(batch.rewards, begins)
    assert returns == pytest.approx(1 - 0.005 * (batch.lengths - 1))


@pytest.mark.parametrize("most", [1, 2, 5])
def test_steps_are_those_of_all_states_one_by_one(most):
    """The successors of a row are compared alone; impossible ones between them change nothing."""
    rng = np.random.default_rng(most)
    p = rng.dirichlet(np.ones(6), size=(6, 3))
    p[np.argsort(np.argsort(rng.random(p.shape))) >= most] = 0
    p /= p.sum(axis=-1, keepdims=True)
    process = MarkovDecisionProcess(p, rng.random(p.shape), 0.9, np.eye(6)[2])
    policy = np.full((6, 3), 1 / 3)
    batch = control.simulate_control(process, policy, 40, 7, np.random.default_rng(most))
    assert (batch.lengths == 8).all()
    states, actions = batch.states.reshape(40, 8).T, batch.actions.reshape(40, 8).T
    draws = np.random.default_rng(most)
    draws.random(40)  # of the first states
    for t in range(7):
        draws.random(40)  # of the actions
        u, moves = draws.random(40), np.cumsum(p[states[t], actions[t]], axis=1)
        assert (states[t + 1] == (moves > u[:, None]).argmax(axis=1)).all()


def test_a_process_that_starts_anywhere_and_a_horizon_of_one():
    process = MarkovDecisionProcess(np.full((2, 1, 2), 0.5), [[1.0], [3.0]], 0.9, [0.25, 0.75])
    batch = control.simulate_control(process, [0, 0], 4000, 1, np.random.default_rng(3))
    begins = batch.ends - batch.lengths
    assert batch.lengths.tolist() == [2] * 4000
    assert batch.states[begins].mean() == pytest.approx(0.75, abs=0.04)
    assert control.episodic_values(process, None, 1).tolist() == [1.0, 3.0]
    assert control.episodic_values(process, [[0, 0]] * 3, 3).tolist() == [5.0, 7.0]


def test_episodic_values_are_the_mean_return_of_roll_outs():
    process, horizon = control.river_swim(4), 12
    exact = control.episodic_values(process, np.ones((horizon, 4), dtype=int), horizon)[0]
    batch = control.simulate_control(process, [1] * 4, 40_000, horizon, np.random.default_rng(5))
    returns = np.add.reduceat(batch.rewards, batch.ends - batch.lengths)
    assert returns.mean() == pytest.approx(exact, abs=5 * returns.std() / 200)
    assert control.episodic_values(process, None, horizon)[0] >= exact


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: control.river_swim(2), "at least 3"),
        (lambda: control.speed_chain(cost=-1.0), "cost"),
        (lambda: control.speed_chain(fast=0.0), "fast"),
        (lambda: control.episodic_values(control.river_swim(), [[0] * 6], 2), "shape"),
        (lambda: control.episodic_values(control.river_swim(), [[2] * 6], 1), "actions must be"),
    ],
)
def test_bad_input_gets_a_clear_error(call, message):
    with pytest.raises(ValueError, match=message):
        call()
