"""DDPG: one update by hand, problems with known answers, training that can be killed."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dprl.agents import ddpg, ddpg_population, parallel, replay
from dprl.agents.ddpg import DDPGSettings
from dprl.agents.environments import ParallelEnvironments, Task
from dprl.agents.networks import MiniBatch

SMALL = DDPGSettings(hidden=(6,), batch_size=8, warm_up=20, capacity=40)
TASK = Task("Hopper-v5", t_max=8)


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
    batch = MiniBatch(
        rng.normal(size=(n, d_s)),
        rng.uniform(-1, 1, (n, d_a)),
        rng.normal(size=n),
        rng.normal(size=(n, d_s)),
        (rng.random(n) < 0.3) * 1.0,
    )
    batch = MiniBatch(*(np.asarray(part, np.float32) for part in batch))
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
        batch = MiniBatch(nothing, actions, rewards, nothing, jnp.full(64, terminal))
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


def train(pieces=(60,), task=TASK, settings=SMALL, seeds=(3, 4), chunk=10):
    training = ddpg_population.start(task, settings, seeds)
    for steps in pieces:
        training = ddpg_population.train(training, task, settings, steps, chunk=chunk, threads=1)
    return training


@pytest.fixture(scope="module")
def uninterrupted():
    return train()


def test_training_changes_agents_after_the_warm_up(uninterrupted):
    fresh = ddpg_population.start(TASK, SMALL, (3, 4))
    assert (fresh.step, uninterrupted.step) == (0, 60)
    assert all(leaf.shape[0] == 2 for leaf in leaves(uninterrupted.agents))
    assert identical(train((20,)).agents, fresh.agents)  # still warming up
    moved = zip(leaves(uninterrupted.agents.actor), leaves(fresh.agents.actor), strict=True)
    assert not any(np.isclose(x, y).all() for x, y in moved)


@pytest.mark.parametrize("pieces", [(10, 50), (20, 40), (30, 20, 10), (50, 10)])
def test_to_go_on_is_never_to_have_stopped_bit_by_bit(uninterrupted, pieces):
    assert identical(train(pieces), uninterrupted)


def test_a_training_can_be_gone_on_with_twice(uninterrupted):
    half = train((30,))
    before = [leaf.copy() for leaf in leaves(half)]
    for _ in range(2):
        assert identical(
            ddpg_population.train(half, TASK, SMALL, 30, chunk=10, threads=1), uninterrupted
        )
    assert all(map(np.array_equal, leaves(half), before))


def test_agents_depend_on_their_own_seed(uninterrupted):
    other = train(seeds=(3, 5))
    for x, y in zip(leaves(other.agents), leaves(uninterrupted.agents), strict=True):
        assert np.array_equal(x[0], y[0])
    assert not np.allclose(other.buffer[1], uninterrupted.buffer[1])


def test_acting_by_numpy_is_acting(uninterrupted):
    observations = np.random.default_rng(0).normal(size=(2, 5, 11)).astype(np.float32)
    actors = uninterrupted.agents.actor
    actions = ddpg_population._acting([actors])(observations)
    np.testing.assert_allclose(actions, jax.vmap(ddpg.act)(actors, observations), atol=1e-6)
    assert np.abs(actions).max() <= 1


@pytest.mark.parametrize("cores", [1, 3])
def test_the_number_of_cores_changes_nothing(uninterrupted, monkeypatch, cores):
    monkeypatch.setattr(parallel, "available_cores", lambda: cores)
    assert identical(train(), uninterrupted)


def test_an_accelerator_learns_what_a_cpu_learns(uninterrupted, monkeypatch):
    """All agents at once, up to rounding; here on a CPU."""
    monkeypatch.setattr(parallel.jax, "default_backend", lambda: "gpu")
    half = train((40,))
    for _ in range(2):  # what is given is not overwritten in place
        found = ddpg_population.train(half, TASK, SMALL, 20, chunk=10, threads=1)
        for x, y in zip(leaves(found.agents), leaves(uninterrupted.agents), strict=True):
            np.testing.assert_allclose(x, y, atol=1e-4)


@pytest.mark.parametrize("backend", ["cpu", "gpu"])
def test_groups_cover_the_agents_once(monkeypatch, backend):
    monkeypatch.setattr(parallel.jax, "default_backend", lambda: backend)
    for agents in (1, 2, 3, 7, 16):
        groups = parallel.groups(agents)
        assert [i for group in groups for i in range(group.start, group.stop)] == [*range(agents)]
        assert len(groups) == (agents if backend == "cpu" else 1)


# what is stored


def columns(rows):
    """Rows of the buffer, of Hopper: s, a, r, s', terminal."""
    return np.split(np.asarray(rows), [11, 14, 15, 26], axis=-1)


@pytest.mark.parametrize("timeout_is_terminal", [False, True])
def test_a_time_out_is_no_absorbing_state_unless_asked_for(timeout_is_terminal):
    training = train((20,), Task("Hopper-v5", 3, timeout_is_terminal))
    s, a, r, s_next, terminal = columns(training.buffer[:, :20])
    assert np.abs(a).max() <= 1
    # no hopper falls within three steps: every third step is a time-out
    over = np.tile((np.arange(20) % 3 == 2)[:, None], (2, 1, 1))
    np.testing.assert_array_equal(terminal, over * float(timeout_is_terminal))
    assert (r != 0).all()
    goes_on = ~over[:, :-1, 0]
    np.testing.assert_array_equal(s[:, 1:][goes_on], s_next[:, :-1][goes_on])
    assert not (s[:, 1:][~goes_on] == s_next[:, :-1][~goes_on]).all(axis=-1).any()


def test_the_buffer_keeps_the_newest():
    roomy = dataclasses.replace(SMALL, capacity=60, warm_up=50)
    small = dataclasses.replace(roomy, capacity=40)  # during the warm-up both see the same
    whole, held = (np.asarray(train((50,), settings=one).buffer) for one in (roomy, small))
    np.testing.assert_array_equal(held[:, :10], whole[:, 40:50])
    np.testing.assert_array_equal(held[:, 10:], whole[:, 10:40])


@pytest.mark.parametrize("noise", [0.0, 0.05])
def test_exploration_is_the_policy_plus_noise(noise):
    actors = ddpg_population.start(TASK, SMALL, (1, 2)).agents.actor
    world = ParallelEnvironments("Hopper-v5", 2, t_max=3, threads=1)
    world.reset(np.tile([0, 1.25] + [0.0] * 10, (2, 1)))
    generators = [np.random.default_rng(seed) for seed in (1, 2)]
    s, a, *_ = columns(
        replay.collect(world, generators, 10, ddpg_population._acting([actors]), noise)
    )
    found = (a - np.asarray(jax.vmap(ddpg.act)(actors, s)))[np.abs(a) < 1]
    if noise:
        assert 0.7 < found.std() / noise < 1.3  # 60 normal numbers
    else:
        np.testing.assert_allclose(found, 0, atol=1e-6)


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
        ({"tau": 0}, r"tau must lie in \(0, 1\]"),
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
        ({"task": "Hopper-v5"}, "task must be a Task"),
        ({"settings": {}}, "settings must be a DDPGSettings"),
        ({"seeds": []}, "seeds must be distinct and at least one"),
        ({"seeds": [1, 1]}, "seeds must be distinct"),
        ({"seeds": [-1]}, "each seed must be at least 0"),
        ({"pieces": [65]}, "chunk must divide steps, 65"),
        ({"pieces": [0]}, "steps must be at least 1"),
        ({"chunk": 25, "pieces": [100]}, "chunk must divide the warm-up, 20"),
        (
            {"settings": dataclasses.replace(SMALL, capacity=45)},
            "chunk must divide the buffer's capacity, 45",
        ),
    ],
)
def test_bad_calls(changes, message):
    with pytest.raises((TypeError, ValueError), match=message):
        train(**changes)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (("Ant-v5", 8), "unknown environment 'Ant-v5'"),
        (("Hopper-v5", 0), "t_max must be at least 1"),
        (("Hopper-v5", 8, 1), "timeout_is_terminal must be a bool"),
    ],
)
def test_bad_tasks(given, message):
    with pytest.raises((TypeError, ValueError), match=message):
        Task(*given)


def test_a_training_of_other_sizes_or_chunks_is_refused():
    training = train((20,))
    with pytest.raises(ValueError, match=r"buffers of shape \(2, 40, 27\), expected \(2, 80, 27\)"):
        ddpg_population.train(training, TASK, dataclasses.replace(SMALL, capacity=80), 10, chunk=10)
    with pytest.raises(ValueError, match=r"buffers of shape \(2, 40, 27\), expected \(2, 40, 42\)"):
        ddpg_population.train(training, Task("HalfCheetah-v5", 8), SMALL, 10, chunk=10)
    odd = training._replace(step=25)
    with pytest.raises(ValueError, match="chunk must divide the steps made before, 25"):
        ddpg_population.train(odd, TASK, SMALL, 10, chunk=10)


def test_defaults_are_those_of_the_paper():
    assert DDPGSettings() == DDPGSettings.paper()
    assert DDPGSettings.laptop() == dataclasses.replace(
        DDPGSettings.paper(), hidden=(64, 64), warm_up=1_000, capacity=100_000
    )
