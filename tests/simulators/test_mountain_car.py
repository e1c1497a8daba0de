"""Mountain car: equal to gymnasium's, and what follows from its dynamics."""

import gymnasium
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dprl.simulators.mountain_car import HIGH, LOW, MountainCar

seeds = st.integers(0, 2**32 - 1)


@pytest.mark.parametrize("seed", range(3))
def test_a_thousand_steps_are_those_of_gymnasium(seed):
    theirs = gymnasium.make("MountainCar-v0").unwrapped
    ours, rng = MountainCar(), np.random.default_rng(seed)
    theirs.reset(seed=seed)
    state, ends = np.array([theirs.state]), 0
    pushes = np.repeat(rng.integers(0, 3, 100), 10)  # persistent, so that the car gets about
    for push in pushes:
        if seed == 0:  # the way the car goes
            push = 2 if state[0, 1] >= 0 else 0
        after, reward, ended = ours.step(state, [push])
        _, their_reward, their_end, _, _ = theirs.step(int(push))
        assert after[0] == pytest.approx(theirs.state, abs=1e-6)
        assert reward[0] == their_reward == -1
        assert ended[0] == their_end
        state = after
        if their_end:
            ends += 1
            theirs.reset()
            state = np.array([theirs.state])
    assert seed or ends  # the swinging car reaches the goal


@given(seeds, st.integers(1, 20))
@settings(deadline=None, max_examples=20)
def test_steps_stay_in_the_box_and_do_not_depend_on_their_neighbours(seed, m):
    rng, car = np.random.default_rng(seed), MountainCar()
    states = rng.uniform(LOW, HIGH, (m, 2))
    actions = rng.integers(0, 3, m)
    after, _, ended = car.step(states, actions)
    assert (after >= LOW).all()
    assert (after <= HIGH).all()
    for i in range(m):
        alone, _, end = car.step(states[i : i + 1], actions[i : i + 1])
        assert (alone[0] == after[i]).all()
        assert end[0] == ended[i]


def test_the_left_wall_stops_the_car_and_the_goal_ends_the_episode():
    car = MountainCar()
    after, _, ended = car.step([[-1.19, -0.07], [0.49, 0.07]], [0, 2])
    assert after[0].tolist() == [-1.2, 0.0]
    assert ended.tolist() == [False, True]


def test_start_is_uniform_between_its_two_ends_and_at_rest():
    first = MountainCar(start_low=-0.6, start_high=-0.4).start(10_000, np.random.default_rng(0))
    assert (first[:, 1] == 0).all()
    assert first[:, 0].min() >= -0.6
    assert first[:, 0].max() <= -0.4
    assert first[:, 0].mean() == pytest.approx(-0.5, abs=0.003)
    assert (
        MountainCar(start_low=-0.5, start_high=-0.5).start(3, np.random.default_rng(0))
        == [-0.5, 0.0]
    ).all()
