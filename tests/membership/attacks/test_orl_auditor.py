"""ORL-Auditor: critic against exact values, distances and Grubbs' test against SciPy and tables."""

import jax
import numpy as np
import pytest
from scipy import stats
from scipy.spatial.distance import cosine

from dprl.agents import bcq_population
from dprl.agents.bcq import BCQSettings
from dprl.agents.episodes import Episodes
from dprl.agents.networks import mlp_apply
from dprl.membership.attacks import orl_auditor
from dprl.membership.attacks.orl_auditor import CriticSettings


def episodes(rng, n=6, t=5, lengths=None):
    ends = np.full(n, t) if lengths is None else np.asarray(lengths)
    done = np.arange(t) < ends[:, None]
    seen = np.arange(t + 1) <= ends[:, None]
    return Episodes(
        observations=rng.normal(size=(n, t + 1, 3)) * seen[..., None],
        actions=rng.uniform(-1, 1, size=(n, t, 2)) * done[..., None],
        rewards=rng.uniform(0.5, 2.0, size=(n, t)) * done,
        lengths=ends,
        terminated=ends < t,
        initial_states=np.zeros((n, 4)),
    )


def test_the_critic_learns_the_discounted_rewards_that_follow():
    data = episodes(np.random.default_rng(1), n=3, t=4, lengths=[4, 2, 3])
    settings = CriticSettings(hidden=(32, 32), discount=0.9, batch_size=64, steps=3_000)
    critic = orl_auditor.train_critic(data, settings, jax.random.key(2))
    inputs = np.concatenate([data.observations[:, :-1], data.actions], axis=-1)
    found = np.asarray(mlp_apply(critic, inputs)[..., 0])
    for row, end in enumerate(data.lengths):
        value = 0.0
        for t in range(end - 1, -1, -1):
            value = data.rewards[row, t] / data.rewards.max() + 0.9 * value
            assert found[row, t] == pytest.approx(value, abs=0.08)


def test_values_are_those_of_the_models_answers():
    data = episodes(np.random.default_rng(3), n=4, t=5, lengths=[5, 1, 3, 2])
    settings = BCQSettings(hidden=(8,), vae_hidden=(8,), acting_candidates=1)
    start = bcq_population.start(settings, 3, 2, [1, 2])
    models = bcq_population.BCQPopulation(settings, start.models.parameters)
    critic = orl_auditor.train_critic(data, CriticSettings(hidden=(8,), steps=1), jax.random.key(1))
    key = jax.random.key(7)
    found = orl_auditor.value_sequences(critic, models, data, key)
    assert found.shape == (2, 4, 5)
    states = np.broadcast_to(data.observations[:, :-1].reshape(-1, 3), (2, 20, 3))
    answers = np.asarray(models.act(key, states))
    one = mlp_apply(critic, np.append(states[1, 11], answers[1, 11])[None])[0, 0]
    assert found[1, 2, 1] == pytest.approx(float(one), rel=1e-4)
    assert (found[:, ~data.steps] == 0).all()


def test_distances_are_those_of_scipy_on_each_sequence():
    rng = np.random.default_rng(4)
    x, c, ends = rng.normal(size=(3, 4, 6)), rng.normal(size=(4, 6)), np.array([6, 1, 4, 5])
    found = {kind: orl_auditor.distances(x, c, ends, kind) for kind in orl_auditor.DISTANCES}
    for m, j in np.ndindex(3, 4):
        a, b = x[m, j, : ends[j]], c[j, : ends[j]]
        assert found["l1"][m, j] == pytest.approx(np.abs(a - b).sum())
        assert found["l2"][m, j] == pytest.approx(((a - b) ** 2).sum())
        assert found["cosine"][m, j] == pytest.approx(cosine(a, b))
        assert found["wasserstein"][m, j] == pytest.approx(stats.wasserstein_distance(a, b))


def test_the_limits_are_those_of_the_published_tables():
    """One-sided, Grubbs and Beck 1972."""
    for n, alpha, limit in ((5, 0.05, 1.672), (10, 0.01, 2.410), (20, 0.05, 2.557)):
        assert orl_auditor.grubbs_limit(n, alpha) == pytest.approx(limit, abs=1e-3)


def test_the_level_is_kept_for_normal_numbers_and_an_outlier_is_refused():
    rng = np.random.default_rng(5)
    d = rng.normal(size=(9, 200_000))
    accepted = orl_auditor.accepts(d[:8], d[8], alpha=0.05)
    # the test is for the largest of nine; the suspect is it in one case of nine
    share = 0.05 / 9
    assert 1 - accepted.mean() == pytest.approx(share, abs=5 * np.sqrt(share / d.shape[1]))
    assert not orl_auditor.accepts(d[:8], d[8] + 50, alpha=0.05).any()
    assert orl_auditor.accepts(d[:8], d[8] - 50, alpha=0.05).all()  # too near is no outlier
    assert orl_auditor.accepts(np.ones((4, 2)), np.ones(2)).all()


def test_what_makes_no_sense_is_refused():
    with pytest.raises(ValueError, match="kind"):
        orl_auditor.distances(np.ones((1, 2)), np.ones((1, 2)), [2], "chebyshev")
    with pytest.raises(ValueError, match="do not fit"):
        orl_auditor.distances(np.ones((1, 3)), np.ones((1, 2)), [2])
    with pytest.raises(ValueError, match="do not fit"):
        orl_auditor.distances(np.ones((1, 2)), np.ones((1, 2)), [3])
    with pytest.raises(ValueError, match="shadows must be"):
        orl_auditor.accepts(np.ones((1, 2)), np.ones(2))
    with pytest.raises(ValueError, match="n must"):
        orl_auditor.grubbs_limit(2, 0.05)
    with pytest.raises(ValueError, match="discount"):
        CriticSettings(discount=1.0)
