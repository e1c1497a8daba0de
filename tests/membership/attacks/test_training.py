"""Training: gradients and Adam by hand, seeds, learning up to a Bayes accuracy, bad input."""

import dataclasses

import jax
import numpy as np
import optax
import pytest
from scipy.stats import norm

from dprl.membership.attacks import resnet, tcn, training
from dprl.membership.attacks.resnet import ResNetSettings
from dprl.membership.attacks.tcn import TCNSettings
from dprl.membership.attacks.training import train, train_many

SMALL = TCNSettings(
    channels=8, kernel=3, dilations=(1, 2), steps=200, batch_size=32, learning_rate=5e-3
)
BAGS = ResNetSettings(width=2, blocks=(1,), bag_size=4, steps=40, batch_size=8)
BAYES = 0.9


def problem(n, seed, length=10):
    """Pairs whose label is known with probability BAYES at best.

    White noise but for a common shift of the first channel: the mean over time of that channel
    is sufficient, and the best rule is its sign.
    """
    rng = np.random.default_rng(seed)
    labels = np.arange(n) % 2
    pairs = rng.normal(size=(n, 2, length))
    pairs[:, 0] += (labels * 2 - 1)[:, None] * norm.ppf(BAYES) / np.sqrt(length)
    return pairs, labels


@pytest.fixture(scope="module")
def trained():
    """Two trainings in one program."""
    sets = [problem(400, seed) for seed in (0, 1)]
    return train_many(*zip(*sets, strict=True), SMALL, [5, 6])


@pytest.fixture(scope="module")
def bagged():
    return train(*problem(120, 3), BAGS, 1)


def test_learns_almost_as_well_as_possible(trained):
    pairs, labels = problem(4000, 9)
    best = (np.sign(pairs[:, 0].sum(axis=1)) == labels * 2 - 1).mean()
    assert best == pytest.approx(BAYES, abs=0.02)
    for network in trained:
        accuracy = ((network.logits(pairs) > 0) == labels).mean()
        assert best - 0.06 < accuracy < best + 0.01


def test_losses_fall(trained):
    for network in trained:
        assert network.losses.shape == (SMALL.steps,)
        assert network.losses[-30:].mean() < network.losses[:10].mean() - 0.1


def test_votes_are_better_than_single_answers(trained):
    pairs, labels = problem(1000, 10)
    bags = np.concatenate([np.arange(1000)[labels == g].reshape(-1, 10) for g in (0, 1)])
    votes = trained[0].bag_logits(pairs, bags)
    assert ((votes > 0) == labels[bags[:, 0]]).mean() > BAYES + 0.05
    by_hand = [np.mean(trained[0].logits(pairs)[bag]) for bag in bags]
    np.testing.assert_allclose(votes, by_hand)


def test_same_seed_same_network_whatever_is_trained_beside_it(trained):
    again = train_many(*zip(*[problem(400, s) for s in (0, 1)], strict=True), SMALL, [5, 6])
    for one, other in zip(trained, again, strict=True):
        jax.tree.map(np.testing.assert_array_equal, one.parameters, other.parameters)
    swapped = train_many(*zip(*[problem(400, s) for s in (2, 0)], strict=True), SMALL, [7, 5])
    pairs, _ = problem(50, 11)
    np.testing.assert_allclose(swapped[1].logits(pairs), trained[0].logits(pairs), atol=1e-3)
    assert not np.allclose(swapped[0].logits(pairs), trained[0].logits(pairs), atol=1e-2)


def test_answers_do_not_depend_on_the_pairs_beside_them(trained):
    pairs, _ = problem(300, 12)  # more than one block
    logits = trained[0].logits(pairs)
    assert logits.shape == (300,)
    np.testing.assert_allclose(logits[7:9], trained[0].logits(pairs[7:9]), atol=1e-4)
    np.testing.assert_allclose(
        logits, tcn.apply(trained[0].parameters, pairs.astype(np.float32), SMALL), atol=1e-4
    )


def test_epochs_visit_every_pair_equally_often():
    labels = np.arange(30) % 2 == 0
    settings = dataclasses.replace(SMALL, steps=12, batch_size=10)
    index = training._batches(labels, settings, np.random.default_rng(0))
    assert index.shape == (12, 10, 1)
    assert (np.bincount(index.ravel(), minlength=30) == 4).all()
    assert len({tuple(epoch) for epoch in index.reshape(4, 30)}) == 4
    tiny = training._batches(labels, dataclasses.replace(SMALL, steps=2), np.random.default_rng(0))
    assert tiny.shape == (2, 30, 1)  # a batch is never larger than the data


def test_bags_are_of_one_label_without_repetition():
    labels = np.arange(30) % 3 == 0
    index = training._batches(labels, BAGS, np.random.default_rng(0))
    assert index.shape == (BAGS.steps, BAGS.batch_size, BAGS.bag_size)
    assert (labels[index] == labels[index[..., :1]]).all()
    assert (labels[index[..., 0]].sum(axis=1) == BAGS.batch_size // 2).all()
    assert (np.diff(np.sort(index, axis=-1), axis=-1) > 0).all()


def test_loss_is_the_cross_entropy():
    rng = np.random.default_rng(0)
    logits, labels = rng.normal(size=20) * 5, rng.integers(0, 2, 20)
    probability = 1 / (1 + np.exp(-logits))
    by_hand = -np.mean(np.log(np.where(labels, probability, 1 - probability)))
    assert float(training.cross_entropy(logits, labels)) == pytest.approx(by_hand, rel=1e-4)
    assert np.isfinite(training.cross_entropy(np.array([1e4]), np.array([0.0])))


@pytest.mark.parametrize(("decay", "form"), [(0.0, "l2"), (1.0, "l2"), (1.0, "decoupled")])
def test_three_steps_of_adam_by_hand(decay, form):
    settings = ResNetSettings(weight_decay=decay, decay=form, learning_rate=0.01)
    rule = training.optimiser(training.rates_of(settings))
    w, slopes = np.array([0.5, -2.0]), np.random.default_rng(0).normal(size=(3, 2))
    jax_w, memory = w.astype(np.float32), rule.init(w.astype(np.float32))
    m = v = np.zeros(2)
    for t, g in enumerate(slopes, start=1):
        change, memory = rule.update(g.astype(np.float32), memory, jax_w)
        jax_w = optax.apply_updates(jax_w, change)
        if form == "l2":
            g = g + decay * w
        m, v = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g**2
        shrink = 0.01 * decay * w if form == "decoupled" else 0.0
        w = w - 0.01 * (m / (1 - 0.9**t)) / (np.sqrt(v / (1 - 0.999**t)) + 1e-8) - shrink
        np.testing.assert_allclose(jax_w, w, rtol=1e-4)


def test_lockstep_and_one_after_the_other_give_the_same(monkeypatch, trained):
    monkeypatch.setattr(training, "_lockstep", lambda: True)
    sets = [problem(400, seed) for seed in (0, 1)]
    other = train_many(*zip(*sets, strict=True), SMALL, [5, 6])
    pairs, _ = problem(50, 11)
    for one, two in zip(trained, other, strict=True):
        np.testing.assert_allclose(one.logits(pairs), two.logits(pairs), atol=1e-2)


def test_no_decay_for_a_tcn():
    assert training.rates_of(TCNSettings(learning_rate=0.01)) == (0.01, 0.0, 0.0)


def test_a_network_for_bags(bagged):
    pairs, labels = problem(120, 3)
    bags = np.concatenate([np.flatnonzero(labels == g)[:12].reshape(3, 4) for g in (0, 1)])
    logits = bagged.bag_logits(pairs, bags)
    assert logits.shape == (6,)
    assert bagged.losses[-10:].mean() < bagged.losses[:10].mean()
    tensor = np.moveaxis(pairs[bags], 1, -1).astype(np.float32)
    apply = jax.jit(resnet.apply, static_argnums=3, static_argnames="training")
    again, _ = apply(bagged.parameters, bagged.statistics, tensor, BAGS, training=False)
    np.testing.assert_allclose(logits, again, atol=1e-3)
    assert float(np.abs(bagged.statistics["stem"]["mean"]).max()) > 0  # they were moved
    np.testing.assert_allclose(bagged.bag_logits(pairs, bags[2:4]), logits[2:4], atol=1e-3)


def test_a_network_for_bags_refuses_pairs_and_other_bags(bagged):
    pairs, _ = problem(20, 3)
    with pytest.raises(TypeError, match="use bag_logits"):
        bagged.logits(pairs)
    with pytest.raises(ValueError, match="bags of 4, got 3"):
        bagged.bag_logits(pairs, [[0, 1, 2]])


def test_judging_other_shapes_is_refused(trained):
    with pytest.raises(ValueError, match=r"trained on pairs of shape \(2, 10\), got \(4, 10\)"):
        trained[0].logits(np.zeros((3, 4, 10)))
    with pytest.raises(ValueError, match=r"got \(2, 9\)"):
        trained[0].logits(np.zeros((3, 2, 9)))


GOOD = np.zeros((4, 2, 5))


@pytest.mark.parametrize(
    ("pairs", "labels", "message"),
    [
        ([np.zeros((6, 5)), np.zeros((4, 5))], [0, 1], "mixed action dimensions"),
        (np.zeros((4, 3, 5)), [0, 1, 0, 1], "2 d_A channels, inputs above outputs, got 3"),
        (np.zeros((0, 2, 5)), [], r"shape \(n, 2 d_A, T\)"),
        (np.zeros((4, 10)), [0, 1, 0, 1], r"shape \(n, 2 d_A, T\)"),
        (np.full((4, 2, 5), np.nan), [0, 1, 0, 1], "NaN or infinite"),
        (np.full((4, 2, 5), 1e300), [0, 1, 0, 1], "NaN or infinite"),
        (GOOD, [1, 1, 1, 1], "only 1: nothing can be learned"),
        (GOOD, [0, 0, 0, 0], "only 0"),
        (GOOD, [0, 1, 2, 1], "booleans, or 0 and 1"),
        (GOOD, [0, 1, 1], "one entry per pair, 4, got 3"),
    ],
)
def test_bad_data(pairs, labels, message):
    with pytest.raises(ValueError, match=message):
        train(pairs, labels, SMALL, 0)


def test_other_bad_input():
    labels = [0, 1, 0, 1]
    with pytest.raises(ValueError, match="pairs of one shape"):
        train_many([GOOD, np.zeros((4, 6, 5))], [labels, labels], SMALL, [0, 1])
    with pytest.raises(ValueError, match="got 1, 1 and 2"):
        train_many([GOOD], [labels], SMALL, [0, 1])
    with pytest.raises(ValueError, match="got 0, 0 and 0"):
        train_many([], [], SMALL, [])
    with pytest.raises(ValueError, match="seed must be at least 0"):
        train(GOOD, labels, SMALL, -1)
    with pytest.raises(TypeError, match="TCNSettings or a ResNetSettings, got dict"):
        train(GOOD, labels, {}, 0)
    with pytest.raises(ValueError, match="needs 4 pairs of one label, one of the labels has 2"):
        train(GOOD, labels, BAGS, 0)
    with pytest.raises(TypeError, match="array of numbers"):
        train([["a"]], labels, SMALL, 0)


# -- to a plateau -------------------------------------------------------------------------


def _separable(seed, n=40):
    rng = np.random.default_rng(seed)
    labels = np.arange(n) % 2
    return rng.normal(size=(n, 2, 6)) + 3 * labels[:, None, None], labels


def _plateau(held_out, most_steps, steps=10):
    small = TCNSettings(channels=4, kernel=2, dilations=(1,), learning_rate=0.02, steps=steps)
    return training.train_to_plateau([_separable(0)], [held_out], small, [1], most_steps)[0]


def test_training_goes_on_while_it_helps():
    """What holds for the data holds for the pairs held out: the loss falls to the end."""
    found = _plateau(_separable(1), 80)
    assert found.settings.steps == 80
    assert np.array_equal(found.losses, training.train(*_separable(0), found.settings, 1).losses)


def test_training_stops_where_it_does_not_help():
    pairs, labels = _separable(1)
    assert _plateau((pairs, 1 - labels), 80).settings.steps == 10


def test_a_plateau_needs_room_and_pairs():
    with pytest.raises(ValueError, match="most_steps"):
        _plateau(_separable(1), 5)
    small = TCNSettings(steps=1)
    with pytest.raises(ValueError, match="held out"):
        training.train_to_plateau([_separable(0)], [], small, [1], 4)
