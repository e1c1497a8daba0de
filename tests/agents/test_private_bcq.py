"""Private BCQ: gradients against single calls, sensitivity on neighbours, samples, noise."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from dprl.agents import bcq, private_bcq
from dprl.agents.bcq import BCQSettings
from dprl.agents.episodes import Episodes
from dprl.agents.networks import MiniBatch
from dprl.agents.private_bcq import PrivateSettings

TINY = BCQSettings(hidden=(8,), vae_hidden=(8,), batch_size=4, candidates=2, acting_candidates=2)


def episodes(n=6, t=5, scale=1.0):
    rng = np.random.default_rng(1)
    ends = rng.integers(1, t + 1, n)
    done = np.arange(t) < ends[:, None]
    seen = np.arange(t + 1) <= ends[:, None]
    return Episodes(
        observations=scale * rng.normal(size=(n, t + 1, 3)) * seen[..., None],
        actions=rng.uniform(-1, 1, size=(n, t, 2)) * done[..., None],
        rewards=scale * rng.normal(size=(n, t)) * done,
        lengths=ends,
        terminated=ends < t,
        initial_states=np.zeros((n, 4)),
    )


def parameters(seed=0):
    return bcq.initialise(jax.random.key(seed), 3, 2, TINY).parameters


def batch_of(data, row):
    rng = np.random.default_rng(2)
    steps = rng.integers(0, data.lengths[row], TINY.batch_size)
    return MiniBatch(*(leaf[row, steps] for leaf in private_bcq._data(data, False)))


def flat(tree):
    return np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(tree)])


def test_the_gradient_is_that_of_each_loss_for_its_own_networks():
    data, at = episodes(), parameters()
    batch = batch_of(data, 2)
    numbers = jax.random.normal(jax.random.key(3), bcq.noise_shape(2, TINY))
    noise = bcq.as_noise(numbers)
    found = private_bcq.trajectory_gradient(at, batch, numbers, TINY)
    vae = jax.grad(lambda x: bcq.vae_loss(x, batch, noise.encoding, TINY)[0])(
        (at.encoder, at.decoder)
    )
    targets = bcq.critic_targets(at, batch, noise.proposals, TINY)
    critics = jax.grad(lambda x: bcq.critics_loss(x, batch, targets))(at.critics)
    actor = jax.grad(lambda x: bcq.perturbation_loss(x, at, batch, noise.proposal, TINY))(
        at.perturbation
    )
    for mine, alone in zip(found, (vae, critics, actor), strict=True):
        np.testing.assert_allclose(flat(mine), flat(alone), rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("scale", [1e-3, 1.0, 1e6])
def test_no_trajectory_moves_the_sum_by_more_than_the_clip(scale):
    data, at = episodes(scale=scale), parameters()
    for row in range(len(data)):
        numbers = jax.random.normal(jax.random.key(row), bcq.noise_shape(2, TINY))
        slope = private_bcq.trajectory_gradient(at, batch_of(data, row), numbers, TINY)
        short = private_bcq.clipped(slope, 0.7)
        assert optax.tree.norm(short) <= 0.7 * (1 + 1e-5)
        for group, whole in zip(short, slope, strict=True):
            norm = float(optax.tree.norm(whole))
            share = 0.7 / math.sqrt(3)
            assert optax.tree.norm(group) == pytest.approx(min(norm, share), rel=1e-4)


@pytest.mark.parametrize("scale", [1e-45, 1e-38, 1e10, 1e19, 5e37])
def test_an_extreme_trajectory_neither_moves_the_sum_by_more_nor_breaks_it(scale):
    """Single precision ends near 3e38; squares of what is beyond 2e19 are infinite."""
    extreme, others = episodes(scale=scale).arrays(), episodes().arrays()
    mixed = Episodes(**{k: np.concatenate([extreme[k][:1], others[k][1:]]) for k in others})
    at = parameters()
    numbers = jax.random.normal(jax.random.key(0), bcq.noise_shape(2, TINY))
    slope = private_bcq.trajectory_gradient(at, batch_of(mixed, 0), numbers, TINY)
    short = flat(private_bcq.clipped(slope, 0.7))
    assert np.isfinite(short).all()
    assert np.linalg.norm(short) <= 0.7 * (1 + 1e-5)
    settings = PrivateSettings(TINY, rate=1.0, divisor=6.0, clip=0.7, noise=1.0)
    trained = private_bcq.train(mixed, np.ones(6, bool), settings, 3, np.random.default_rng(1))
    assert np.isfinite(flat(trained)).all()


def test_what_is_not_finite_counts_as_zero_and_an_infinite_clip_clips_nothing():
    slope = private_bcq._Trainable(
        jnp.array([jnp.inf, 1.0]), jnp.array([jnp.nan]), jnp.array([3.0, 4.0])
    )
    short = private_bcq.clipped(slope, math.sqrt(3))
    assert flat(short).tolist() == pytest.approx([0, 0, 0, 0.6, 0.8])
    whole = private_bcq.clipped(slope._replace(vae=jnp.ones(2), critics=jnp.ones(1)), math.inf)
    assert flat(whole).tolist() == [1, 1, 1, 3, 4]


def test_a_step_without_noise_is_the_sum_of_clipped_gradients_through_adam():
    """With q = 1; the draws are read off the call."""
    data, members = episodes(), np.array([True, False, True, True, False, True])
    settings = PrivateSettings(TINY, rate=1.0, divisor=4.0, clip=0.5, noise=0.0)
    rng = np.random.default_rng(9)
    rows, _ = private_bcq.poisson_samples(members, 1.0, 1, rng)
    first = bcq.initialise(jax.random.key(int(rng.integers(2**31))), 3, 2, TINY)
    raw = rng.integers(2**32, size=(1, 2, 4), dtype=np.uint32)[0]
    shares_key, numbers_key = (jax.random.wrap_key_data(one, impl="rbg") for one in raw)
    slots = rows.shape[1]
    shares = jax.random.uniform(shares_key, (slots, 4))
    numbers = jax.random.normal(numbers_key, (slots, *bcq.noise_shape(2, TINY)))
    total, at = None, first.parameters
    for slot in range(4):
        row = int(rows[0, slot])
        assert members[row]
        steps = np.floor(np.asarray(shares[slot]) * data.lengths[row]).astype(int)
        batch = MiniBatch(*(leaf[row, steps] for leaf in private_bcq._data(data, False)))
        slope = private_bcq.trajectory_gradient(at, batch, numbers[slot], TINY)
        one = private_bcq.clipped(slope, 0.5)
        total = one if total is None else jax.tree.map(jnp.add, total, one)
    adam = optax.adam(TINY.learning_rate)
    start = private_bcq._trainable(at)
    mean = jax.tree.map(lambda leaf: leaf / 4.0, total)
    change, _ = adam.update(mean, adam.init(start))
    expected = optax.apply_updates(start, change)
    found = private_bcq.train(data, members, settings, 1, np.random.default_rng(9))
    np.testing.assert_allclose(
        flat(private_bcq._trainable(found)), flat(expected), rtol=1e-4, atol=2e-5
    )
    moved = (1 - TINY.target_rate) * flat(at.target_critics)
    moved += TINY.target_rate * flat(expected.critics)
    np.testing.assert_allclose(flat(found.target_critics), moved, rtol=1e-5, atol=1e-6)


def test_only_members_are_looked_at():
    data, members = episodes(), np.array([True, False, True, True, False, True])
    settings = PrivateSettings(TINY, rate=0.6, divisor=2.0, noise=1.0)
    other = Episodes(**data.arrays() | {"actions": data.actions * members[:, None, None]})
    one, two = (
        private_bcq.train(x, members, settings, 3, np.random.default_rng(4)) for x in (data, other)
    )
    np.testing.assert_array_equal(flat(one), flat(two))


def test_samples_are_poisson_and_none_is_cut_off():
    members = np.arange(200) % 2 == 0
    rng = np.random.default_rng(5)
    rows, taken = private_bcq.poisson_samples(members, 0.3, 4_000, rng)
    sizes = taken.sum(axis=1)
    assert rows.shape[1] % private_bcq.SLOTS == 0
    assert (np.diff(taken, axis=1) <= 0).all()  # what counts stands first: a step cuts the rest
    assert all(private_bcq._slots(int(size), rows.shape[1]) >= size for size in sizes)
    assert sizes.max() <= rows.shape[1]
    assert members[rows[taken == 1]].all()
    counts = np.bincount(rows[taken == 1], minlength=200)[members]
    assert abs(counts / 4_000 - 0.3).max() < 5 * math.sqrt(0.21 / 4_000)
    assert sizes.var() == pytest.approx(100 * 0.21, rel=0.12)  # independent, not k of n
    assert all(len(set(row[one == 1])) == one.sum() for row, one in zip(rows, taken, strict=True))


class Loud(np.random.Generator):
    """A generator whose normal numbers are far beyond what single precision draws."""

    def standard_normal(self, size):
        return np.full(size, 7.0)


def releases(monkeypatch, steps, rng, noise=2.5):
    """What `steps` steps of an empty data set release, shape (steps, weights)."""
    seen = []

    def follow(known, moments, mean, learner):
        seen.append(mean)
        return known, moments

    monkeypatch.setattr(private_bcq, "_follow", follow)
    settings = PrivateSettings(TINY, rate=0.5, divisor=4.0, clip=2.0, noise=noise)
    private_bcq.train(episodes(), np.zeros(6, dtype=bool), settings, steps, rng)
    return 4.0 * np.array(seen)


def test_noise_has_the_deviation_that_was_asked_for(monkeypatch):
    """Of an empty data set only noise is released, divided by B."""
    drawn = releases(monkeypatch, 50, np.random.default_rng(6))
    assert drawn.shape == (50, flat(private_bcq._trainable(parameters())).size)
    assert drawn.std() == pytest.approx(5.0, rel=5 / math.sqrt(2 * drawn.size))
    assert abs(drawn.mean()) < 5 * 5.0 / math.sqrt(drawn.size)
    assert np.unique(drawn[0]).size == drawn[0].size
    assert (drawn[0] != drawn[1]).any()
    assert (releases(monkeypatch, 1, np.random.default_rng(6), noise=0.0) == 0).all()


def test_noise_comes_from_the_generator_of_the_caller(monkeypatch):
    assert (releases(monkeypatch, 1, Loud(np.random.PCG64(6))) == 7.0 * 5.0).all()


def test_an_empty_data_set_gives_noise_alone_and_seeds_decide():
    data, none = episodes(), np.zeros(6, dtype=bool)
    settings = PrivateSettings(TINY, rate=0.5, divisor=3.0, noise=1.0)
    one, again, other = (
        flat(private_bcq.train(data, none, settings, 2, np.random.default_rng(s)))
        for s in (1, 1, 2)
    )
    np.testing.assert_array_equal(one, again)
    assert (one != other).any()
    assert np.isfinite(one).all()


def test_what_makes_no_sense_is_refused():
    data = episodes()
    settings = PrivateSettings(TINY)
    for members in (np.ones(5, dtype=bool), np.ones(6)):
        with pytest.raises(ValueError, match="members must be 6 bools"):
            private_bcq.train(data, members, settings, 1, np.random.default_rng(0))
    for change, message in (
        ({"rate": 0.0}, "rate"),
        ({"divisor": 0.0}, "divisor"),
        ({"noise": -1.0}, "noise"),
        ({"clip": 0.0}, "clip"),
        ({"clip": math.inf}, "finite clip"),
    ):
        with pytest.raises(ValueError, match=message):
            PrivateSettings(**({"noise": 1.0} | change))
    assert PrivateSettings(clip=math.inf, noise=0.0).clip == math.inf
