"""The table against gymnasium's own steps; recorded columns against exact values."""

import gymnasium
import numpy as np
import pytest

from dprl.trajectories import first_visit_returns
from dprl.transitions import from_transitions
from experiments.chapter_7.frozen_lake import LIMIT, N_STATES, TERMINAL, columns, lake

UNIFORM = np.full((16, 4), 0.25)


def test_the_ends_are_those_of_gymnasiums_map():
    desc = gymnasium.make("FrozenLake-v1").unwrapped.desc.ravel()
    assert np.flatnonzero((desc == b"H") | (desc == b"G")).tolist() == list(TERMINAL)
    process = lake(1 / 3, 0.9).under(UNIFORM)
    assert np.flatnonzero(process.terminal).tolist() == list(TERMINAL)
    assert gymnasium.make("FrozenLake-v1").spec.max_episode_steps == LIMIT


@pytest.mark.parametrize("rate", [1 / 3, 0.6])
def test_steps_of_gymnasium_have_the_probabilities_of_the_table(rate):
    env = gymnasium.make("FrozenLake-v1", success_rate=rate)
    transition = lake(rate, 0.9).transition
    env.reset(seed=1)
    seen, times = np.zeros(N_STATES), 3_000
    for _ in range(times):
        env.reset()
        env.unwrapped.s = 9
        seen[env.step(2)[0]] += 1
    expected = transition[9, 2]
    error = np.sqrt(expected * (1 - expected) / times)
    assert (abs(seen / times - expected) <= 4.5 * error).all()
    assert expected.sum() == pytest.approx(1)


def test_a_step_at_rate_one_goes_where_it_should():
    assert lake(1.0, 0.9).transition[14, 2, 15] == 1
    assert lake(1.0, 0.9).reward[14, 2, 15] == 1


def test_columns_are_a_fair_record():
    process = lake(1 / 3, 0.9)
    rows = columns(process, UNIFORM, 4_000, np.random.default_rng(1))
    data = from_transitions(rows, N_STATES, terminal=TERMINAL)
    assert len(data) == 4_000
    assert data.lengths.max() <= LIMIT
    returns = first_visit_returns(data.trajectories(cut="as ends"), 0.9)
    estimate = returns.statistics().mean_returns
    reward = process.under(UNIFORM)
    live = ~reward.terminal
    spread = np.sqrt(reward.return_variance()[live] / np.maximum(returns.visit_counts[live], 1))
    assert (abs(estimate - reward.values())[live] <= 4.5 * spread).all()
    with pytest.raises(ValueError, match="episodes must be at least 1"):
        columns(process, UNIFORM, 0, np.random.default_rng(1))


def test_an_episode_that_never_ends_is_cut():
    left_and_up = np.tile([0.5, 0.0, 0.0, 0.5], (16, 1))
    rows = columns(lake(1.0, 0.9), left_and_up, 3, np.random.default_rng(1))
    data = from_transitions(rows, N_STATES, terminal=TERMINAL)
    assert data.lengths.tolist() == [LIMIT] * 3
    assert not data.terminated.any()
