"""DDPG: one update by hand, problems with known answers, training that can be killed."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dprl.agents import checkpoints, ddpg, environments
from dprl.agents.checkpoints import CheckpointError, Deadline, OutOfTime
from dprl.agents.ddpg import DDPGPopulation, DDPGSettings
from dprl.agents.networks import Batch

SMALL = DDPGSettings(hidden=(6,), batch_size=8, warm_up=20, capacity=40)
CALL = {"seeds": [3, 4], "steps": 60, "t_max": 8, "evaluate_every": 20, "chunk": 10}
CALL |= {"evaluation_episodes": 2, "threads": 1}


def leaves(tree):
    return [np.asarray(leaf) for leaf in jax.tree.leaves(tree)]


def identical(a, b):
    return all(
        x.dtype == y.dtype and x.shape == y.shape and x.tobytes() == y.tobytes()
        for x, y in zip(leaves(a), leaves(b), strict=True)
    )


# the step of one agent


@functools.cache
def one_step(settings=SMALL):
    return jax.jit(functools.partial(ddpg.update, settings=settings))


def random_case(seed, n=8, d_s=4, d_a=2, settings=SMALL):
    rng = np.random.default_rng(seed)
    batch = Batch(
        rng.normal(size=(n, d_s)),
        rng.uniform(-1, 1, (n, d_a)),
        rng.normal(size=n),
        rng.normal(size=(n, d_s)),
        (rng.random(n) < 0.3) * 1.0,
    )
    batch = Batch(*(np.asarray(part, np.float32) for part in batch))
    initialise = jax.jit(ddpg.initialise, static_argnums=(1, 2, 3))
    state = initialise(jax.random.key(seed), d_s, d_a, settings)
    # targets of their own
    other = initialise(jax.random.key(seed + 1000), d_s, d_a, settings)
    return state._replace(target_actor=other.actor, target_critic=other.critic), batch


def forward(net, x):
    """Double precision; returns the hidden layer too."""
    (w1, b1), (w2, b2) = [[np.asarray(part, np.float64) for part in layer] for layer in net]
    hidden = np.maximum(x @ w1 + b1, 0)
    return hidden, hidden @ w2 + b2


def backward(net, x, slope):
    """Slopes of a two-layer network's weights, and of its input, by the chain rule."""
    (w1, _), (w2, _) = [[np.asarray(part, np.float64) for part in layer] for layer in net]
    hidden, _ = forward(net, x)
    inner = (slope @ w2.T) * (hidden > 0)
    return [(x.T @ inner, inner.sum(0)), (hidden.T @ slope, slope.sum(0))], inner @ w1.T


def adam_once(net, slopes, rate):
    """First step of Adam: both moments start at zero."""
    return [
        [
            np.asarray(part, np.float64) - rate * g / (np.abs(g) + 1e-8)
            for part, g in zip(layer, of_layer, strict=True)
        ]
        for layer, of_layer in zip(net, slopes, strict=True)
    ]


def update_by_hand(state, batch, settings):
    s, a, r, s_next, terminal = (np.asarray(part, np.float64) for part in batch)
    n = len(r)
    a_next = np.tanh(forward(state.target_actor, s_next)[1])
    q_next = forward(state.target_critic, np.hstack([s_next, a_next]))[1][:, 0]
    y = r + settings.discount * (1 - terminal) * q_next
    pair = np.hstack([s, a])
    error = forward(state.critic, pair)[1][:, 0] - y
    slopes, _ = backward(state.critic, pair, 2 * error[:, None] / n)
    critic = adam_once(state.critic, slopes, settings.critic_learning_rate)
    policy = np.tanh(forward(state.actor, s)[1])
    chosen = np.hstack([s, policy])
    value = forward(critic, chosen)[1]
    _, towards = backward(critic, chosen, np.full((n, 1), -1 / n))
    of_policy = towards[:, s.shape[1] :] * (1 - policy**2)
    slopes, _ = backward(state.actor, s, of_policy)
    actor = adam_once(state.actor, slopes, settings.actor_learning_rate)
    return actor, critic, (error**2).mean(), -value.mean()


@pytest.mark.parametrize("seed", range(3))
def test_the_update_is_the_one_by_hand(seed):
    state, batch = random_case(seed)
    after, losses = one_step()(state, batch)
    actor, critic, critic_loss, actor_loss = update_by_hand(state, batch, SMALL)
    # where a slope is nearly zero the sign that Adam takes of it is open: no such case here
    for found, expected in ((after.actor, actor), (after.critic, critic)):
        for layer, by_hand in zip(found, expected, strict=True):
            np.testing.assert_allclose(layer.weight, by_hand[0], atol=2e-5)
            np.testing.assert_allclose(layer.bias, by_hand[1], atol=2e-5)
    assert float(losses["critic_loss"]) == pytest.approx(critic_loss, rel=1e-4)
    assert float(losses["actor_loss"]) == pytest.approx(actor_loss, rel=1e-3, abs=1e-5)
    for old, new, moved in (
        (state.target_actor, after.actor, after.target_actor),
        (state.target_critic, after.critic, after.target_critic),
    ):
        for x, y, z in zip(leaves(old), leaves(new), leaves(moved), strict=True):
            np.testing.assert_allclose(z, 0.995 * x + 0.005 * y, atol=1e-6)


def test_what_follows_an_absorbing_state_does_not_matter():
    state, batch = random_case(0)
    absorbed = batch._replace(terminals=np.ones_like(batch.terminals))
    elsewhere = absorbed._replace(next_observations=batch.next_observations + 7)
    assert identical(one_step()(state, absorbed), one_step()(state, elsewhere))
    running = batch._replace(terminals=np.zeros_like(batch.terminals))
    moved = running._replace(next_observations=batch.next_observations + 7)
    assert not identical(one_step()(state, running)[0].critic, one_step()(state, moved)[0].critic)


def test_a_population_is_its_agents():
    cases = [random_case(seed) for seed in range(3)]
    stacked = jax.tree.map(lambda *parts: jnp.stack(parts), *cases)
    together, _ = jax.jit(jax.vmap(functools.partial(ddpg.update, settings=SMALL)))(*stacked)
    for agent, case in enumerate(cases):
        alone, _ = one_step()(*case)
        for x, y in zip(leaves(together), leaves(alone), strict=True):
            np.testing.assert_allclose(x[agent], y, atol=1e-6)


# problems with a known answer


def learn_bandit(best, terminal, seed, updates=800):
    """One state, reward 1 - (a - best)^2; it ends after one step, or never."""
    settings = DDPGSettings(
        hidden=(64, 64),
        batch_size=64,
        discount=0.5,
        tau=0.05,
        actor_learning_rate=2e-3,
        critic_learning_rate=3e-3,
    )
    state = ddpg.initialise(jax.random.key(seed), 1, 1, settings)

    def body(state, key):
        actions = jax.random.uniform(key, (64, 1), minval=-1.0)
        rewards = 1 - jnp.square(actions[:, 0] - best)
        nothing = jnp.ones((64, 1))
        batch = Batch(nothing, actions, rewards, nothing, jnp.full(64, terminal))
        return ddpg.update(state, batch, settings)[0], None

    return jax.lax.scan(body, state, jax.random.split(jax.random.key(seed + 1), updates))[0]


@functools.cache
def bandits():
    """Two seeds, ending and never ending, in one program."""
    best = 0.4
    learn = jax.vmap(lambda terminal, seed: learn_bandit(best, terminal, seed))
    ends, seeds = jnp.array([1.0, 1.0, 0.0, 0.0]), jnp.array([0, 10, 0, 10])
    return best, ends, jax.jit(learn)(ends, seeds)


def test_the_actor_finds_the_best_action_and_the_critic_its_value():
    best, ends, states = bandits()
    nothing = jnp.ones((4, 1))
    found = jax.vmap(ddpg.act)(states.actor, nothing)
    np.testing.assert_allclose(found, np.full((4, 1), best), atol=0.12)
    # 1 at once, or 1 + 1/2 + 1/4 + ... = 2
    worth = jax.vmap(ddpg.value)(states.critic, nothing, found)
    np.testing.assert_allclose(worth, 2 - np.asarray(ends), atol=0.05)
    # another action costs its distance
    other = jnp.zeros_like(found)
    less = worth - jax.vmap(ddpg.value)(states.critic, nothing, other)
    np.testing.assert_allclose(less, np.full(4, best**2), atol=0.05)


# training


def train(settings=SMALL, name="Hopper-v5", **changes):
    return ddpg.train(name, settings, **(CALL | changes))


@pytest.fixture(scope="module")
def uninterrupted():
    return train()


def test_training_gives_a_curve_and_agents(uninterrupted):
    agents = uninterrupted
    assert agents.agents == 2
    assert agents.trained_steps == 60
    assert agents.steps.tolist() == [0, 20, 40, 60]
    assert agents.returns.shape == agents.lengths.shape == (2, 4, 2)
    assert np.isfinite(agents.returns).all()
    assert agents.lengths.min() >= 1
    assert agents.lengths.max() <= 8
    np.testing.assert_array_equal(agents.returns[:, 0], agents.returns[:, 1])  # still warming up
    assert not np.isclose(agents.returns[:, 1], agents.returns[:, 3]).any()
    assert all(leaf.shape[0] == 2 for leaf in leaves(agents.state))


def test_the_last_evaluation_is_that_of_the_trained_policy(uninterrupted):
    rng = np.random.default_rng(np.random.SeedSequence(0))
    starts = environments.draw_initial_states("Hopper-v5", 2, rng)
    for agent in range(2):
        episodes = environments.rollout(
            "Hopper-v5", uninterrupted.policy(agent), starts, 8, threads=1
        )
        np.testing.assert_allclose(episodes.returns, uninterrupted.returns[agent, -1], rtol=1e-3)
        assert episodes.lengths.tolist() == uninterrupted.lengths[agent, -1].tolist()


def test_policies_of_one_and_of_all_agree(uninterrupted):
    observations = np.random.default_rng(0).normal(size=(2, 5, 11)).astype(np.float32)
    together = uninterrupted.population_policy()
    grouped = together(observations, 0)
    flat = together(observations.reshape(10, 11), 0)
    np.testing.assert_array_equal(grouped.reshape(10, 3), flat)
    for agent in range(2):
        alone = uninterrupted.policy(agent)(observations[agent], 0)
        np.testing.assert_allclose(grouped[agent], alone, atol=1e-6)
    by_numpy = ddpg._acting(uninterrupted.state.actor)(observations)
    np.testing.assert_allclose(by_numpy, grouped, atol=1e-6)
    assert np.abs(grouped).max() <= 1
    with pytest.raises(ValueError, match=r"must have shape \(2, n, d_s\) or \(2 n, d_s\)"):
        together(observations[0, :3], 0)


@pytest.mark.parametrize("stop_after", [10, 20, 30, 50])
def test_a_killed_training_continues_bit_by_bit(tmp_path, uninterrupted, stop_after):
    path = tmp_path / "training.npz"
    now = [0.0]

    def progress(done, steps):
        assert steps == 60
        now[0] = 2.0 if done == stop_after else 0.0

    with pytest.raises(OutOfTime):
        train(checkpoint=path, deadline=Deadline(1, clock=lambda: now[0]), progress=progress)
    assert checkpoints.read_metadata(path)["step"] == stop_after
    seen = []
    resumed = train(checkpoint=path, progress=lambda done, _: seen.append(done))
    assert seen == list(range(stop_after + 10, 61, 10))
    assert identical(resumed.state, uninterrupted.state)
    np.testing.assert_array_equal(resumed.returns, uninterrupted.returns)
    np.testing.assert_array_equal(resumed.lengths, uninterrupted.lengths)


def test_a_crash_costs_only_what_was_not_yet_written(tmp_path, uninterrupted, monkeypatch):
    monkeypatch.setattr(ddpg, "_SECONDS_BETWEEN_CHECKPOINTS", -1.0)  # after each chunk
    path = tmp_path / "training.npz"

    def crash(done, steps):
        if done == 40:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train(checkpoint=path, progress=crash)
    assert checkpoints.read_metadata(path)["step"] == 30
    assert identical(train(checkpoint=path).state, uninterrupted.state)


def test_the_end_is_not_a_deadline_missed(uninterrupted):
    now = [0.0]

    def progress(done, steps):
        now[0] = 2.0 if done == steps else 0.0

    agents = train(deadline=Deadline(1, clock=lambda: now[0]), progress=progress)
    assert identical(agents.state, uninterrupted.state)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"seeds": [3, 6]}, r"seeds is \[3, 4\], expected \[3, 6\]"),
        ({"t_max": 9}, "t_max is 8, expected 9"),
        ({"steps": 80}, "steps is 60, expected 80"),
        ({"timeout_is_terminal": True}, "timeout_is_terminal is False, expected True"),
        ({"settings": dataclasses.replace(SMALL, tau=0.01)}, "settings is .*0.005.* expected"),
        ({"settings": dataclasses.replace(SMALL, hidden=(5,))}, r"settings is .*\[6\].* expected"),
        ({"name": "HalfCheetah-v5"}, "environment is 'Hopper-v5'"),
    ],
)
def test_a_checkpoint_of_another_training_is_refused(tmp_path_factory, changes, message):
    path = tmp_path_factory.getbasetemp() / "other-training.npz"
    if not path.exists():
        with pytest.raises(OutOfTime):
            train(checkpoint=path, deadline=Deadline(1, clock=iter([0.0, 2.0, 2.0]).__next__))
    with pytest.raises(CheckpointError, match=message):
        train(checkpoint=path, **changes)


def test_saving_and_loading_keeps_everything(tmp_path, uninterrupted):
    uninterrupted.save(tmp_path / "agents.npz")
    back = DDPGPopulation.load(tmp_path / "agents.npz")
    assert identical(back.state, uninterrupted.state)
    assert jax.tree.structure(back.state) == jax.tree.structure(uninterrupted.state)
    for field in dataclasses.fields(DDPGPopulation):
        if field.name != "state":
            mine, other = getattr(back, field.name), getattr(uninterrupted, field.name)
            np.testing.assert_array_equal(mine, other)
    checkpoints.save(tmp_path / "other.npz", {}, {"kind": "BCQ"})
    with pytest.raises(CheckpointError, match="holds no DDPG population"):
        DDPGPopulation.load(tmp_path / "other.npz")


def test_groups_change_nothing(uninterrupted, monkeypatch):
    for groups in ([slice(0, 2)], [slice(0, 1), slice(1, 2)]):
        monkeypatch.setattr(ddpg, "_groups", lambda agents, groups=groups: groups)
        agents = train()
        for x, y in zip(leaves(agents.state), leaves(uninterrupted.state), strict=True):
            np.testing.assert_allclose(x, y, atol=1e-4)


def test_groups_cover_the_agents_once():
    for agents in (1, 2, 3, 7, 16):
        groups = ddpg._groups(agents)
        assert [i for group in groups for i in range(group.start, group.stop)] == [*range(agents)]
        assert all(group.stop > group.start for group in groups)


# what is stored


@pytest.fixture
def run():
    def make(timeout_is_terminal=False, settings=SMALL, t_max=3, steps=60):
        plan = ddpg._Plan(
            "Hopper-v5", settings, (1, 2), steps, t_max, 20, 1, 10, timeout_is_terminal
        )
        return ddpg._Run(plan, threads=1)

    made = []

    def remember(**options):
        made.append(make(**options))
        return made[-1]

    yield remember
    for one in made:
        one.close()


def columns(rows):
    """Rows of the buffer, of Hopper: s, a, r, s', terminal."""
    return np.split(np.asarray(rows), [11, 14, 15, 26], axis=-1)


@pytest.mark.parametrize("timeout_is_terminal", [False, True])
def test_a_time_out_is_no_absorbing_state_unless_asked_for(run, timeout_is_terminal):
    rows = run(timeout_is_terminal=timeout_is_terminal).collect(learning=False)
    s, a, r, s_next, terminal = columns(rows)
    assert np.abs(a).max() <= 1
    # no hopper falls within three steps: every third step is a time-out
    over = np.tile((np.arange(10) % 3 == 2)[:, None], (2, 1, 1))
    np.testing.assert_array_equal(terminal, over * float(timeout_is_terminal))
    assert (r != 0).all()
    goes_on = ~over[:, :-1, 0]
    np.testing.assert_array_equal(s[:, 1:][goes_on], s_next[:, :-1][goes_on])
    assert not (s[:, 1:][~goes_on] == s_next[:, :-1][~goes_on]).all(axis=-1).any()


def test_the_buffer_keeps_the_newest(run):
    training = run()
    written = []
    for _ in range(6):
        before = training.step
        collect = training.collect
        training.collect = lambda learning, c=collect: written.append(c(learning)) or written[-1]
        training.advance()
        training.collect = collect
        assert training.step == before + 10
    whole = np.concatenate(written, axis=1)  # 60 steps; there is room for 40
    held = np.concatenate([np.asarray(buffer) for buffer in training.buffers])
    np.testing.assert_array_equal(held[:, :20], whole[:, 40:])
    np.testing.assert_array_equal(held[:, 20:], whole[:, 20:40])
    assert training.filled == 40


def test_exploration_is_the_policy_plus_noise(run):
    training = run(settings=dataclasses.replace(SMALL, exploration_noise=0.05))
    s, a, *_ = columns(training.collect(learning=True))
    greedy = np.asarray(ddpg._act_all(ddpg._joined(training.states).actor, s))
    noise = (a - greedy)[np.abs(a) < 1]
    assert 0.035 < noise.std() < 0.065  # 60 normal numbers
    silent = run(settings=dataclasses.replace(SMALL, exploration_noise=0.0))
    s, a, *_ = columns(silent.collect(learning=True))
    greedy = np.asarray(ddpg._act_all(ddpg._joined(silent.states).actor, s))
    np.testing.assert_allclose(a, greedy, atol=1e-6)


# bad input


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"hidden": ()}, "hidden must be a tuple of at least one width"),
        ({"hidden": [64, 64]}, "hidden must be a tuple"),
        ({"hidden": (64, 0)}, "each width of hidden must be at least 1"),
        ({"batch_size": 0}, "batch_size must be at least 1"),
        ({"batch_size": 1.5}, "batch_size must be an integer"),
        ({"actor_learning_rate": 0.0}, "actor_learning_rate must be positive"),
        ({"critic_learning_rate": float("nan")}, "critic_learning_rate must be finite"),
        ({"discount": 1.0}, r"discount must lie in \[0, 1\)"),
        ({"tau": 1.5}, r"tau must lie in \(0, 1\]"),
        ({"tau": 0}, "tau must be positive"),
        ({"exploration_noise": -0.1}, "exploration_noise must not be negative"),
        ({"warm_up": 0}, "warm_up must be at least 1"),
        ({"capacity": True}, "capacity must be an integer"),
    ],
)
def test_bad_settings(changes, message):
    with pytest.raises((TypeError, ValueError), match=message):
        DDPGSettings(**changes)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"name": "Ant-v5"}, "unknown environment 'Ant-v5'"),
        ({"settings": {}}, "settings must be a DDPGSettings"),
        ({"seeds": []}, "seeds must be distinct and at least one"),
        ({"seeds": [1, 1]}, "seeds must be distinct"),
        ({"seeds": [-1]}, "each seed must be at least 0"),
        ({"steps": 65}, "chunk must divide steps, 65"),
        ({"evaluate_every": 15}, "chunk must divide evaluate_every, 15"),
        ({"chunk": 25, "steps": 100, "evaluate_every": 50}, "chunk must divide the warm-up, 20"),
        ({"steps": 20}, "steps must exceed the warm-up of 20 steps"),
        ({"t_max": 0}, "t_max must be at least 1"),
        ({"timeout_is_terminal": 1}, "timeout_is_terminal must be a bool"),
        ({"evaluation_episodes": 0}, "evaluation_episodes must be at least 1"),
        (
            {"settings": dataclasses.replace(SMALL, capacity=45)},
            "chunk must divide the buffer's capacity, 45",
        ),
    ],
)
def test_bad_calls(changes, message):
    with pytest.raises((TypeError, ValueError), match=message):
        train(**changes)


def test_no_such_agent(uninterrupted):
    with pytest.raises(ValueError, match=r"agent must lie in 0 \.\.\. 1, got 2"):
        uninterrupted.policy(2)


def test_defaults_are_those_of_the_paper():
    assert DDPGSettings() == DDPGSettings.paper()
    assert DDPGSettings.laptop() == dataclasses.replace(
        DDPGSettings.paper(), hidden=(64, 64), warm_up=1_000, capacity=100_000
    )
