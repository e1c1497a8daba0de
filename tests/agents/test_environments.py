"""Environments: against gymnasium step by step, independence of threads and neighbours."""

import contextlib
import dataclasses

import gymnasium
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dprl.agents import environments
from dprl.agents.environments import (
    NAMES,
    ParallelEnvironments,
    draw_initial_states,
    environment,
    rollout,
)


@pytest.fixture(scope="module")
def peers(tmp_path_factory):
    """Gymnasium's own environments, without their time limit."""
    # MuJoCo writes its deprecation warning of a gymnasium model to a file where it runs
    with contextlib.chdir(tmp_path_factory.mktemp("log")):
        made = {name: gymnasium.make(name).unwrapped for name in NAMES}
    yield made
    for env in made.values():
        env.close()


@pytest.fixture(params=NAMES)
def peer(request, peers):
    return peers[request.param]


def start(peer, state):
    """Gymnasium's environment at a state, as after a reset into it."""
    peer.reset()
    nq = peer.model.nq
    peer.set_state(state[:nq], state[nq:])
    return peer._get_obs()


def swinging(name, count, steps, seed):
    """Waves and noise: actions that keep a hopper up for a while."""
    rng = np.random.default_rng(seed)
    d = environment(name).action_size
    t = np.arange(steps)[:, None, None]
    waves = np.sin(t * rng.uniform(0.01, 0.3, (count, d)) + rng.uniform(0, 6, (count, d)))
    noise = rng.uniform(-1, 1, (steps, count, d))
    actions = np.clip(0.7 * waves + 0.3 * noise, -1, 1).astype(np.float32)
    actions[:, 0] *= 0.02  # one that stands for long
    return actions


# gymnasium


@pytest.mark.parametrize("t_max", [60, 1_000])
def test_agrees_with_gymnasium_over_episodes_and_resets(peer, t_max):
    name, count, steps = peer.spec.id, 3, 1_000
    rng = np.random.default_rng(1)
    actions = swinging(name, count, steps, seed=2)
    parallel = ParallelEnvironments(name, count, t_max, threads=2)
    states = draw_initial_states(name, count, rng)
    seen = [(parallel.reset(states), None, states, np.ones(count, dtype=bool))]
    for t in range(steps):
        step = parallel.step(actions[t])
        exact = parallel.environment.observe(parallel.states)
        np.testing.assert_array_equal(step.observations, exact.astype(np.float32))
        states = draw_initial_states(name, count, rng)
        if step.finished.any():
            parallel.reset_where(step.finished, states[step.finished])
        seen.append((exact, step, states, step.finished))
    # more than time-outs for the hopper; at 1,000 the cheetah runs without a reset
    assert sum(row[3].sum() for row in seen) >= count * max(1, steps // t_max)
    for i in range(count):
        elapsed = 0
        for t in range(steps):
            _, _, states, fresh = seen[t]
            if fresh[i]:
                start(peer, states[i])
                elapsed = 0
            observation, reward, terminated, _, _ = peer.step(actions[t, i])
            elapsed += 1
            exact, step = seen[t + 1][:2]
            np.testing.assert_allclose(exact[i], observation, rtol=0, atol=1e-6)
            np.testing.assert_allclose(step.rewards[i], reward, rtol=0, atol=1e-6)
            assert step.terminated[i] == step.terminals[i] == terminated
            assert step.truncated[i] == (elapsed == t_max and not terminated)


def test_bit_for_bit_although_chaotic(peer):
    """1,000 steps without a reset, fallen or not; a difference of 1e-12 grows past 1e-6."""
    name, steps = peer.spec.id, 1_000
    actions = np.random.default_rng(5).uniform(-1, 1, (steps, 2, environment(name).action_size))
    actions = actions.astype(np.float32)
    actions[:, 1] = actions[:, 0]
    parallel = ParallelEnvironments(name, 2, steps, threads=2)
    states = np.repeat(draw_initial_states(name, 1, np.random.default_rng(4)), 2, axis=0)
    states[1, 2] += 1e-12
    parallel.reset(states)
    observation = start(peer, states[0])
    apart = 0.0
    for t in range(steps):
        now = parallel.environment.observe(parallel.states)
        np.testing.assert_array_equal(now[0], observation)
        apart = max(apart, float(np.abs(now[1] - now[0]).max()))
        parallel._terminated[:] = False  # go on after the fall
        parallel.step(actions[t])
        observation = peer.step(actions[t, 0])[0]
    assert apart > (1e-6 if name == "HalfCheetah-v5" else 1e-12)


def test_initial_states_are_gymnasiums_resets(peer):
    name = peer.spec.id
    drawn = draw_initial_states(name, 5, np.random.default_rng(7))
    peer.np_random = np.random.default_rng(7)
    for row in drawn:
        observation, _ = peer.reset()
        np.testing.assert_array_equal(environment(name).observe(row), observation)
        np.testing.assert_array_equal(row, peer.state_vector())


def test_constants_are_gymnasiums(peer):
    env = environment(peer.spec.id)
    assert env.observation_size == peer.observation_space.shape[0]
    assert env.action_size == peer.action_space.shape[0]
    np.testing.assert_array_equal(np.abs([peer.action_space.low, peer.action_space.high]), 1)
    assert (env.frame_skip, env.dt) == (peer.frame_skip, peer.dt)
    assert env.control_cost == peer._ctrl_cost_weight
    assert env.reset_noise == peer._reset_noise_scale
    assert env.healthy_reward == getattr(peer, "_healthy_reward", 0.0)


def test_the_model_is_gymnasiums_without_the_warning(peer, capfd):
    environments._model.cache_clear()
    mine = environments._model(peer.spec.id)
    assert capfd.readouterr() == ("", "")
    compared = 0
    for name in dir(mine):
        field = getattr(mine, name)
        if isinstance(field, np.ndarray):
            np.testing.assert_array_equal(field, getattr(peer.model, name), err_msg=name)
            compared += 1
    assert compared > 100
    for name in ("timestep", "integrator", "solver", "cone", "iterations", "tolerance"):
        assert getattr(mine.opt, name) == getattr(peer.model.opt, name)


def test_fallen_as_gymnasium_says(peers):
    hopper, env = peers["Hopper-v5"], environment("Hopper-v5")
    standing = draw_initial_states("Hopper-v5", 1, np.random.default_rng(0))[0]
    cases = [(1, 0.7), (1, 0.7001), (2, 0.2), (2, -0.1999), (4, 100.0), (4, 99.9), (9, -100.0)]
    for coordinate, value in [*cases, (0, 500.0)]:
        state = standing.copy()
        state[coordinate] = value
        start(hopper, state)
        assert env.fallen(state) == (not hopper.is_healthy), (coordinate, value)
    assert not environment("HalfCheetah-v5").fallen(np.full((2, 18), 1e3)).any()


# independence


@pytest.mark.parametrize("name", NAMES)
def test_neither_threads_nor_neighbours_matter(name):
    steps, count = 60, 7
    actions = swinging(name, count, steps, seed=3)
    states = draw_initial_states(name, count, np.random.default_rng(2))

    def run(some, threads):
        policy = lambda observations, step: actions[step, some]  # noqa: E731
        return rollout(name, policy, states[some], steps, threads=threads)

    everyone = run(np.arange(count), 1)
    for some, threads in ((np.arange(count), 3), (np.array([4, 1]), 1), (np.array([6]), 2)):
        part = run(some, threads)
        for field in dataclasses.fields(part):
            expected = getattr(everyone, field.name)[some]
            np.testing.assert_array_equal(getattr(part, field.name), expected)


@pytest.mark.parametrize("name", NAMES)
def test_a_reset_forgets(name):
    """The same episode after other episodes, reset one by one or together."""
    actions = swinging(name, 2, 40, seed=8)
    states = draw_initial_states(name, 2, np.random.default_rng(2))
    parallel = ParallelEnvironments(name, 2, 40, threads=1)

    def episode():
        return np.stack([parallel.step(a).observations for a in actions])

    parallel.reset(states)
    first = episode()
    parallel.reset(states)
    np.testing.assert_array_equal(episode(), first)
    for i in (1, 0):
        mask = np.arange(2) == i
        np.testing.assert_array_equal(
            parallel.reset_where(mask, states[mask])[i],
            environment(name).observe(states[i]).astype(np.float32),
        )
    np.testing.assert_array_equal(episode(), first)


def test_restored_in_another_process_would_go_on_the_same():
    name, steps = "HalfCheetah-v5", 80
    actions = swinging(name, 3, steps, seed=9)
    one, two = (ParallelEnvironments(name, 3, steps, threads=1) for _ in range(2))
    one.reset(draw_initial_states(name, 3, np.random.default_rng(0)))
    for a in actions[:40]:
        one.step(a)
    np.testing.assert_array_equal(two.restore(one.full_states, one.elapsed), one.observations)
    for a in actions[40:]:
        first, second = one.step(a), two.step(a)
        for x, y in zip(first, second, strict=True):
            np.testing.assert_array_equal(x, y)
    assert first.truncated.all()


# episodes


@given(st.integers(1, 12), st.integers(1, 4), st.booleans())
@settings(max_examples=10)
def test_time_limit_and_what_a_learner_is_told(t_max, count, timeout_is_terminal):
    name = "Hopper-v5"
    parallel = ParallelEnvironments(
        name, count, t_max, timeout_is_terminal=timeout_is_terminal, threads=1
    )
    parallel.reset(draw_initial_states(name, count, np.random.default_rng(0)))
    still = np.zeros((count, 3))
    for t in range(1, t_max + 1):
        step = parallel.step(still)
        assert (step.truncated == (t == t_max)).all()  # it does not fall so soon
        assert not step.terminated.any()
        assert (step.terminals == (timeout_is_terminal & step.truncated)).all()
        assert (parallel.elapsed == t).all()
    before = parallel.states
    after = parallel.step(still)
    assert after.finished.all()
    assert not after.rewards.any()
    np.testing.assert_array_equal(parallel.states, before)


def test_rollout_is_the_loop_over_steps():
    name, t_max = "Hopper-v5", 50
    states = draw_initial_states(name, 4, np.random.default_rng(1))
    gain = np.random.default_rng(2).normal(size=(11, 3))
    policy = lambda observations, step: np.tanh(observations @ gain + step / 50)  # noqa: E731
    episodes = rollout(name, policy, states, t_max, threads=2)
    assert episodes.terminated.any()  # such a policy falls
    np.testing.assert_array_equal(episodes.initial_states, states)
    for i, state in enumerate(states):
        alone = ParallelEnvironments(name, 1, t_max, threads=1)
        observation = alone.reset(state[None])
        for t in range(episodes.lengths[i]):
            np.testing.assert_array_equal(episodes.observations[i, t], observation[0])
            # one product of matrices rounds otherwise than four
            action = episodes.actions[i, t][None]
            np.testing.assert_allclose(action, policy(observation, t), atol=1e-5)
            step = alone.step(action)
            assert episodes.rewards[i, t] == step.rewards[0]
            observation = step.observations
            assert step.finished[0] == (t + 1 == episodes.lengths[i])
        np.testing.assert_array_equal(episodes.observations[i, t + 1], observation[0])
        assert step.terminated[0] == episodes.terminated[i]


def test_a_policy_always_sees_everyone():
    shapes = []

    def policy(observations, step):
        shapes.append((observations.shape, observations.dtype, step))
        return np.where(np.arange(3)[:, None] == 0, 1.0, 0.0) * np.ones((3, 3))

    states = draw_initial_states("Hopper-v5", 3, np.random.default_rng(0))
    episodes = rollout("Hopper-v5", policy, states, 40, threads=1)
    assert episodes.lengths[0] < 40  # full torque makes it fall
    assert shapes == [((3, 11), np.float32, t) for t in range(40)]


def test_rollout_stops_when_all_have_finished():
    calls = []

    def policy(observations, step):
        calls.append(step)
        return np.ones((1, 3))

    states = draw_initial_states("Hopper-v5", 1, np.random.default_rng(0))
    episodes = rollout("Hopper-v5", policy, states, 1_000, threads=1)
    assert len(calls) == episodes.lengths[0] < 100
    assert episodes.terminated[0]


def test_actions_are_kept_as_they_were_taken():
    """float64 actions are rounded before the step, not only when they are stored."""
    states = draw_initial_states("HalfCheetah-v5", 1, np.random.default_rng(0))
    precise = np.random.default_rng(1).uniform(-1, 1, (30, 1, 6))
    first = rollout("HalfCheetah-v5", lambda o, t: precise[t], states, 30, threads=1)
    again = rollout("HalfCheetah-v5", lambda o, t: first.actions[:, t], states, 30, threads=1)
    np.testing.assert_array_equal(again.observations, first.observations)


# bad input


@pytest.fixture(scope="module")
def hoppers():
    made = ParallelEnvironments("Hopper-v5", 2, 50, threads=1)
    made.reset(draw_initial_states("Hopper-v5", 2, np.random.default_rng(0)))
    return made


@pytest.mark.parametrize("name", ["Hopper-v2", "hopper", "", None])
def test_unknown_environments_are_refused(name):
    for call in (
        lambda: environment(name),
        lambda: draw_initial_states(name, 1, np.random.default_rng(0)),
        lambda: ParallelEnvironments(name, 1, 1),
        lambda: rollout(name, None, np.zeros((1, 12)), 1),
    ):
        with pytest.raises(ValueError, match="unknown environment"):
            call()


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"t_max": 0}, ValueError, "t_max must be at least 1"),
        ({"t_max": 10.0}, TypeError, "t_max must be an integer"),
        ({"count": 0}, ValueError, "count must be at least 1"),
        ({"count": True}, TypeError, "count must be an integer"),
        ({"threads": 0}, ValueError, "threads must be at least 1"),
        ({"timeout_is_terminal": "no"}, TypeError, "timeout_is_terminal must be"),
    ],
)
def test_bad_sizes_are_refused(change, error, message):
    with pytest.raises(error, match=message):
        ParallelEnvironments(**({"name": "Hopper-v5", "count": 1, "t_max": 5} | change))


@pytest.mark.parametrize(
    ("actions", "message"),
    [
        (np.zeros((2, 6)), "shape \\(2, 3\\)"),  # those of the cheetah
        (np.zeros((1, 3)), "shape \\(2, 3\\)"),
        (np.zeros(6), "shape \\(2, 3\\)"),
        (np.full((2, 3), np.nan), "NaN"),
        (np.full((2, 3), np.inf), "infinite"),
        (np.full((2, 3), 1.001), "\\[-1, 1\\]"),
        (np.full((2, 3), "0"), "numbers"),
    ],
)
def test_bad_actions_are_refused(hoppers, actions, message):
    with pytest.raises(ValueError, match=message):
        hoppers.step(actions)
    with pytest.raises(ValueError, match=message):
        rollout("Hopper-v5", lambda o, t: actions, hoppers.states, 5, threads=1)


@pytest.mark.parametrize(
    ("states", "message"),
    [
        (np.zeros((2, 18)), "shape \\(2, 12\\)"),
        (np.zeros((3, 12)), "shape \\(2, 12\\)"),
        (np.zeros(12), "2 dimension"),
        (np.full((2, 12), np.nan), "NaN"),
    ],
)
def test_bad_states_are_refused(hoppers, states, message):
    with pytest.raises(ValueError, match=message):
        hoppers.reset(states)
    with pytest.raises(ValueError, match=message):
        hoppers.reset_where(np.ones(2, dtype=bool), states)


def test_other_bad_calls_are_refused(hoppers):
    for mask in (np.ones(3, dtype=bool), np.ones(2), [[True, False]]):
        with pytest.raises(ValueError, match="mask must be 2 bools"):
            hoppers.reset_where(mask, np.zeros((1, 12)))
    with pytest.raises(TypeError, match="Generator"):
        draw_initial_states("Hopper-v5", 1, 0)
    with pytest.raises(ValueError, match="count must be at least 1"):
        draw_initial_states("Hopper-v5", 0, np.random.default_rng(0))
    with pytest.raises(ValueError, match="count must be at least 1"):
        rollout("Hopper-v5", lambda o, t: o, np.zeros((0, 12)), 5)
    with pytest.raises(ValueError, match="full_states must have shape"):
        hoppers.restore(np.zeros((2, 12)), [0, 0])
    for ages in ([0, 51], [0], [-1, 0]):
        with pytest.raises(ValueError, match=r"in 0 \.\.\. 50"):
            hoppers.restore(hoppers.full_states, np.array(ages))
    with pytest.raises(ValueError, match="integers"):
        hoppers.restore(hoppers.full_states, np.zeros(2))


def test_not_before_a_reset_and_not_after_the_end():
    fresh = ParallelEnvironments("Hopper-v5", 1, 5, threads=1)
    uses = (
        lambda: fresh.step(np.zeros((1, 3))),
        lambda: fresh.states,
        lambda: fresh.full_states,
        lambda: fresh.reset_where(np.array([False]), np.zeros((0, 12))),
    )
    for use in uses:
        with pytest.raises(RuntimeError, match="must be reset"):
            use()
    fresh.close()
    for use in (*uses, lambda: fresh.reset(np.zeros((1, 12)))):
        with pytest.raises(RuntimeError, match="closed"):
            use()
    fresh.close()
