"""Scores without training: against loops, invariances, blocks of any size, bad input."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dprl.agents import bcq
from dprl.agents.episodes import Episodes
from dprl.membership.attacks import scores

KEY = jax.random.key(3)


@pytest.fixture(scope="module")
def decided(tiny_study):
    """Models without randomness: their decoders do not see the latent draws."""
    models = tiny_study.models
    first, *rest = models.parameters.decoder
    deaf = np.array(first.weight)
    deaf[:, models.observation_size :] = 0
    decoder = (first._replace(weight=jnp.asarray(deaf)), *rest)
    return replace(models, parameters=models.parameters._replace(decoder=decoder))


def model(models, m):
    """As ``models.model``, by NumPy: nothing to compile."""
    return jax.tree.map(lambda leaf: np.asarray(leaf)[m], models.parameters)


@pytest.fixture(scope="module")
def accused(tiny_study):
    """Four episodes of different lengths."""
    some = tiny_study.inputs[0][0].select([0, 1, 2, 3])
    lengths = np.array([6, 2, 1, 5])
    inside = np.arange(6) < lengths[:, None]
    seen = np.arange(7) <= lengths[:, None]
    return Episodes(
        some.observations * seen[:, :, None],
        some.actions * inside[:, :, None],
        some.rewards * inside,
        lengths,
        lengths < 6,
        some.initial_states,
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
    found = scores.answer_distances(decided, accused, key=KEY, queries=2)
    assert found.shape == (len(decided), 2, 4, 6)
    np.testing.assert_allclose(found[:, 0], found[:, 1], atol=1e-6)
    score = scores.query_every_state(decided, accused, key=KEY)
    states, _ = steps_of(accused)
    for m in range(len(decided)):
        answers = np.asarray(bcq.act(model(decided, m), KEY, states, decided.settings))
        gaps = np.abs(answers.reshape(accused.actions.shape) - accused.actions).mean(axis=2)
        for i, length in enumerate(accused.lengths):
            np.testing.assert_allclose(found[m, 0, i, :length], gaps[i, :length], atol=1e-5)
            assert (found[m, :, i, length:] == 0).all()
            assert score[m, i] == pytest.approx(-gaps[i, :length].mean(), abs=1e-5)


def test_blocks_bound_the_memory_and_change_nothing(decided, accused, monkeypatch):
    whole = scores.answer_distances(decided, accused, key=KEY)
    monkeypatch.setattr(scores, "_LAYER", len(decided) * 7 * 8 * 3)  # 7 rows of 24
    np.testing.assert_allclose(scores.answer_distances(decided, accused, key=KEY), whole, atol=1e-6)


def test_answers_are_random_and_a_function_of_the_key(tiny_study, accused):
    one, again, other = (
        scores.answer_distances(tiny_study.models, accused, key=jax.random.key(k), queries=2)
        for k in (0, 0, 1)
    )
    np.testing.assert_array_equal(one, again)
    assert not np.array_equal(one, other)
    assert not np.array_equal(one[:, 0], one[:, 1])


def test_each_model_may_have_trajectories_of_its_own(decided, accused):
    sets = [accused.select(np.roll(np.arange(4), m)) for m in range(len(decided))]
    for score in (
        lambda models, those: scores.query_every_state(models, those, key=KEY),
        scores.vae_score,
    ):
        shared, own = score(decided, accused), score(decided, sets)
        for m in range(len(decided)):
            np.testing.assert_allclose(own[m], np.roll(shared[m], m), atol=1e-6)


@given(st.integers(0, 2**32))
def test_what_is_made_of_several_answers(seed):
    rng = np.random.default_rng(seed)
    d, ends = rng.random((3, 4, 2, 5)), rng.integers(1, 6, (3, 2))
    mean, near = (scores.answer_score(d, ends, kind) for kind in ("mean", "nearest"))
    for m, i in np.ndindex(3, 2):
        kept = d[m, :, i, : ends[m, i]]
        assert mean[m, i] == pytest.approx(-kept.mean())
        assert near[m, i] == pytest.approx(-kept.min(axis=0).mean())
    assert (near >= mean - 1e-12).all()
    same = np.full(2, 3)
    np.testing.assert_array_equal(
        scores.answer_score(d, same), scores.answer_score(d, np.tile(same, (3, 1)))
    )


# white box


def test_vae_score_is_the_mean_error_of_the_steps(tiny_study, accused):
    found = scores.vae_score(tiny_study.models, accused)
    states, actions = steps_of(accused)
    for m in range(0, len(tiny_study.models), 3):
        errors = np.asarray(
            bcq.vae_reconstruction_error(model(tiny_study.models, m), states, actions)
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


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((A[0], [1, 1]), r"\(\.\.\., queries, n, T\)|lengths must have"),
        ((A[0, 0], [1]), r"must have the shape \(\.\.\., queries, n, T\)"),
        ((A - 1, [1, 1, 1]), "must not be negative"),
        ((A, [1, 1]), r"lengths must have the shape \(3,\)"),
        ((A, [1, 1, 2]), r"whole numbers in 1 \.\.\. 1"),
        ((A, [1, 1, 1], "median"), 'statistic must be "mean" or "nearest"'),
    ],
)
def test_answers_that_do_not_fit_are_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        scores.answer_score(*arguments)


def test_models_and_trajectories_must_fit(tiny_study, accused):
    models = tiny_study.models
    with pytest.raises(TypeError, match="models must be a BCQPopulation"):
        scores.vae_score(models.parameters, accused)
    with pytest.raises(TypeError, match="each set of episodes must be a Episodes"):
        scores.vae_score(models, [accused.actions] * len(models))
    with pytest.raises(ValueError, match="one set per model, 8, got 2"):
        scores.vae_score(models, [accused] * 2)
    with pytest.raises(ValueError, match="same numbers n and T"):
        scores.vae_score(models, [accused] * 7 + [accused.select([0])])
    with pytest.raises(ValueError, match="queries must be at least 1"):
        scores.answer_distances(models, accused, key=KEY, queries=0)
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
