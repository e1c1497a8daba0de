"""Scores without training: against loops, invariances, blocks of any size, bad input."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dprl.agents import bcq, bcq_population
from dprl.agents.bcq import BCQSettings
from dprl.agents.bcq_population import BCQPopulation
from dprl.agents.episodes import Episodes
from dprl.membership.attacks import scores

KEY = jax.random.key(3)


@pytest.fixture(scope="module")
def models():
    """Eight models that have learned nothing."""
    settings = BCQSettings(
        hidden=(8,), vae_hidden=(8,), batch_size=8, candidates=2, acting_candidates=3
    )
    training = bcq_population.start(settings, 11, 3, range(8))
    return BCQPopulation(settings, training.models.parameters)


@pytest.fixture(scope="module")
def decided(models):
    """Models without randomness: their decoders do not see the latent draws."""
    first, *rest = models.parameters.decoder
    deaf = np.array(first.weight)
    deaf[:, models.observation_size :] = 0
    decoder = (first._replace(weight=jnp.asarray(deaf)), *rest)
    return replace(models, parameters=models.parameters._replace(decoder=decoder))


def model(models, m):
    """As ``models.model``, by NumPy: nothing to compile."""
    return jax.tree.map(lambda leaf: np.asarray(leaf)[m], models.parameters)


@pytest.fixture(scope="module")
def accused():
    """Four episodes of different lengths."""
    rng = np.random.default_rng(1)
    lengths = np.array([6, 2, 1, 5])
    inside = np.arange(6) < lengths[:, None]
    seen = np.arange(7) <= lengths[:, None]
    return Episodes(
        rng.normal(size=(4, 7, 11)) * seen[:, :, None],
        rng.uniform(-1, 1, (4, 6, 3)) * inside[:, :, None],
        rng.normal(size=(4, 6)) * inside,
        lengths,
        lengths < 6,
        rng.normal(size=(4, 12)),
    )


def steps_of(episodes):
    """All states and actions, also those beyond an end."""
    return episodes.observations[:, :-1].reshape(-1, 11), episodes.actions.reshape(-1, 3)


# closed loop


def naive_distance(a_in, a_out):
    total = 0.0
    for j in range(len(a_in[0])):
        mean_in = sum(step[j] for step in a_in) / len(a_in)
        mean_out = sum(step[j] for step in a_out) / len(a_out)
        total -= abs(mean_in - mean_out)
    return total


@given(st.integers(1, 5), st.integers(1, 5), st.integers(1, 3), st.integers(0, 2**32))
def test_action_distance_is_a_loop(t_in, t_out, size, seed):
    rng = np.random.default_rng(seed)
    a, b = rng.normal(size=(4, t_in, size)), rng.normal(size=(4, t_out, size))
    ends = rng.integers(1, t_in + 1, 4)
    found = scores.action_distance(a, b, lengths_in=ends)
    for i in range(4):
        assert found[i] == pytest.approx(naive_distance(a[i, : ends[i]], b[i]), abs=1e-12)
    np.testing.assert_allclose(scores.action_distance(b, a, lengths_out=ends), found)
    np.testing.assert_array_equal(scores.action_distance(a, a), 0)
    assert (found <= 0).all()


def test_the_order_of_the_steps_does_not_matter_to_action_distance():
    rng = np.random.default_rng(0)
    a, b = rng.normal(size=(2, 3, 6, 2))
    shuffled = a[:, rng.permutation(6)]
    np.testing.assert_allclose(scores.action_distance(a, b), scores.action_distance(shuffled, b))


# every state


def test_answers_are_asked_for_at_every_state(decided, accused):
    score = scores.every_state_score(decided, accused, key=KEY)
    assert score.shape == (len(decided), 4)
    states, _ = steps_of(accused)
    for m in range(len(decided)):
        answers = np.asarray(bcq.act(model(decided, m), KEY, states, decided.settings))
        gaps = np.abs(answers.reshape(accused.actions.shape) - accused.actions).mean(axis=2)
        for i, length in enumerate(accused.lengths):
            assert score[m, i] == pytest.approx(-gaps[i, :length].mean(), abs=1e-5)


def test_blocks_bound_the_memory_and_change_nothing(decided, accused, monkeypatch):
    whole = scores.every_state_score(decided, accused, key=KEY)
    monkeypatch.setattr(scores, "_LAYER", len(decided) * 7 * 8 * 3)  # 7 rows of 24
    np.testing.assert_allclose(
        scores.every_state_score(decided, accused, key=KEY), whole, atol=1e-6
    )


def test_answers_are_random_and_a_function_of_the_key(models, accused):
    one, again, other = (
        scores.every_state_score(models, accused, key=jax.random.key(k)) for k in (0, 0, 1)
    )
    np.testing.assert_array_equal(one, again)
    assert not np.array_equal(one, other)


def test_each_model_may_have_trajectories_of_its_own(decided, accused):
    sets = [accused.select(np.roll(np.arange(4), m)) for m in range(len(decided))]
    for score in (
        lambda models, those: scores.every_state_score(models, those, key=KEY),
        scores.vae_score,
    ):
        shared, own = score(decided, accused), score(decided, sets)
        for m in range(len(decided)):
            np.testing.assert_allclose(own[m], np.roll(shared[m], m), atol=1e-6)


# white box


def test_vae_score_is_the_mean_error_of_the_steps(models, accused):
    found = scores.vae_score(models, accused)
    states, actions = steps_of(accused)
    for m in range(0, len(models), 3):
        errors = np.asarray(
            bcq.vae_reconstruction_error(model(models, m), states, actions)
        ).reshape(4, 6)
        for i, length in enumerate(accused.lengths):
            assert found[m, i] == pytest.approx(-errors[i, :length].mean(), rel=1e-4)


# bad input

A = np.zeros((2, 3, 1))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((A[0, 0], A), "a_in must have the shape"),
        ((A, np.zeros((2, 0, 1))), "a_out must have the shape"),
        ((A, np.full((2, 3, 1), np.nan)), "a_out holds NaN"),
        ((A, np.zeros((2, 3, 2))), "same number of action coordinates"),
        ((A, np.zeros((5, 3, 1))), "must fit into one shape"),
        ((A, A, [3]), r"lengths of a_in must have the shape \(2,\)"),
        ((A, A, [3, 4]), "whole numbers in 1 ... 3"),
        ((A, A, None, [0, 1]), "lengths of a_out must be whole numbers"),
    ],
)
def test_distances_of_what_does_not_fit_are_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        scores.action_distance(*arguments)


def test_models_and_trajectories_must_fit(models, accused):
    with pytest.raises(TypeError, match="models must be a BCQPopulation"):
        scores.vae_score(models.parameters, accused)
    with pytest.raises(TypeError, match="each set of episodes must be a Episodes"):
        scores.vae_score(models, [accused.actions] * len(models))
    with pytest.raises(ValueError, match="one set per model, 8, got 2"):
        scores.vae_score(models, [accused] * 2)
    with pytest.raises(ValueError, match="same numbers n and T"):
        scores.vae_score(models, [accused] * 7 + [accused.select([0])])
    blind = Episodes(
        accused.observations[:, :, :4],
        accused.actions,
        accused.rewards,
        accused.lengths,
        accused.terminated,
        accused.initial_states,
    )
    with pytest.raises(ValueError, match="observations of 11 numbers, the episodes of 4"):
        scores.vae_score(models, blind)
    lame = replace_actions(accused, accused.actions[:, :, :2])
    with pytest.raises(ValueError, match="actions of 3 numbers, the episodes of 2"):
        scores.vae_score(models, lame)


def replace_actions(episodes, actions):
    return Episodes(
        episodes.observations,
        actions,
        episodes.rewards,
        episodes.lengths,
        episodes.terminated,
        episodes.initial_states,
    )


# -- step beside step ---------------------------------------------------------------------


def test_step_distance_is_a_loop():
    rng = np.random.default_rng(8)
    a, b = rng.normal(size=(2, 5, 7, 3))
    n, m = rng.integers(1, 8, (2, 5))
    for steps in (None, 4):
        found = scores.step_distance(a, b, n, m, steps)
        for i in range(5):
            end = min(n[i], m[i], steps or 7)
            gaps = [np.abs(a[i, t] - b[i, t]).mean() for t in range(end)]
            assert np.isclose(found[i], -np.mean(gaps))


def test_step_distance_sees_the_order_of_steps():
    a = np.array([[0.0], [1.0]])
    assert scores.action_distance(a, a[::-1]) == 0
    assert scores.step_distance(a, a[::-1], 2, 2) == -1
    assert scores.step_distance(a, a, 2, 2) == 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((np.zeros((2, 1)), np.zeros((3, 1)), 2, 2), "same T"),
        ((np.zeros((2, 1)), np.zeros((2, 1)), 3, 2), "1 ... 2"),
        ((np.zeros((2, 1)), np.zeros((2, 1)), 2, 2, 0), "steps"),
    ],
)
def test_step_distance_refuses(arguments, message):
    with pytest.raises(ValueError, match=message):
        scores.step_distance(*arguments)
