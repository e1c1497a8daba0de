"""Who collects the data: the mixture, two halves from the same states, greedy outputs."""

import numpy as np
import pytest

from dprl.agents import environments
from dprl.agents.environments import Task
from experiments.chapter_5.oracles import (
    Mixture,
    collect_halves,
    greedy_policies,
    query_outputs,
)

TASK = Task("Hopper-v5", 6)

# -- the mixture ------------------------------------------------------------------------


def test_without_noise_and_random_actions_the_mixture_is_the_policy():
    greedy = np.random.default_rng(0).uniform(-1, 1, (50, 3)).astype(np.float32)
    acted = Mixture(random_share=0, noise=0).act(greedy, np.random.default_rng(1))
    np.testing.assert_array_equal(acted, greedy)


def test_all_random_actions_are_uniform_whatever_the_policy():
    greedy = np.ones((20_000, 2), np.float32)
    acted = Mixture(random_share=1, noise=0).act(greedy, np.random.default_rng(1))
    assert abs(acted.mean()) < 0.02
    assert abs(acted.var() - 1 / 3) < 0.01


def test_the_share_of_random_actions_and_the_noise_are_those_of_the_mixture():
    greedy = np.zeros((200_000, 1), np.float32)
    acted = Mixture().act(greedy, np.random.default_rng(2))
    # P(|a| > 0.9): uniform .1, Gaussian 2 Q(3)
    assert abs((np.abs(acted) > 0.9).mean() - (0.3 * 0.1 + 0.7 * 0.0027)) < 0.002
    assert abs(acted.var() - (0.3 / 3 + 0.7 * 0.09)) < 0.003


def test_a_random_action_is_random_in_all_its_coordinates():
    greedy = np.full((10_000, 2), 0.5, np.float32)
    acted = Mixture(random_share=0.5, noise=0).act(greedy, np.random.default_rng(3))
    kept = acted == 0.5
    assert (kept.all(axis=1) | ~kept.any(axis=1)).all()
    assert abs(kept[:, 0].mean() - 0.5) < 0.02


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        ({"random_share": -0.1}, ValueError, r"random_share must lie in \[0, 1\]"),
        ({"random_share": 1.5}, ValueError, r"random_share must lie in \[0, 1\]"),
        ({"random_share": "half"}, TypeError, "random_share must be a real number"),
        ({"noise": -1}, ValueError, "noise must not be negative"),
        ({"noise": np.nan}, ValueError, "noise must be finite"),
    ],
)
def test_a_mixture_outside_its_range_is_refused(changes, error, message):
    with pytest.raises(error, match=message):
        Mixture(**changes)


# -- policies ---------------------------------------------------------------------------


def test_policies_of_one_and_of_all_agree(tiny_study):
    oracles = tiny_study.oracles
    observations = np.random.default_rng(0).normal(size=(4, 5, 11)).astype(np.float32)
    together = oracles.population_policy()
    grouped = together(observations, 0)
    np.testing.assert_array_equal(
        grouped.reshape(20, 3), greedy_policies(oracles.state)(observations.reshape(20, 11), 0)
    )
    for agent in range(oracles.agents):
        alone = oracles.policy(agent)(observations[agent], 0)
        np.testing.assert_allclose(grouped[agent], alone, atol=1e-6)
    with pytest.raises(ValueError, match=r"must have shape \(4, n, d_s\) or \(4 n, d_s\)"):
        together(observations[0, :3], 0)
    with pytest.raises(ValueError, match=r"agent must lie in 0 \.\.\. 3, got 4"):
        oracles.policy(4)


# -- inputs and outputs -----------------------------------------------------------------


def test_all_halves_and_outputs_start_in_the_shared_states(tiny_study):
    for sets in (tiny_study.inputs, tiny_study.outputs):
        for pair in sets:
            for half in pair:
                np.testing.assert_array_equal(half.initial_states, tiny_study.initial_states)


def test_halves_of_one_oracle_differ_and_so_do_oracles(tiny_study):
    (a, b), (c, _) = tiny_study.inputs[:2]
    assert not np.array_equal(a.actions, b.actions)
    assert not np.array_equal(a.actions, c.actions)


def test_without_exploration_the_halves_are_the_greedy_policy(tiny_study):
    states = tiny_study.initial_states[:3]
    halves = collect_halves(tiny_study.oracles, states, Mixture(0, 0), np.random.default_rng(0))
    for agent, (a, b) in enumerate(halves):
        np.testing.assert_array_equal(a.actions, b.actions)
        alone = environments.rollout("Hopper-v5", tiny_study.oracles.policy(agent), states, 6)
        np.testing.assert_allclose(a.actions, alone.actions, atol=1e-6)


def test_the_same_generator_gives_the_same_data(tiny_study):
    states = tiny_study.initial_states
    one, two = (
        collect_halves(tiny_study.oracles, states, Mixture(), np.random.default_rng(4))
        for _ in range(2)
    )
    assert [len(sets) for sets in one] == [2] * 4
    for a, b in zip(one, two, strict=True):
        np.testing.assert_array_equal(a[0].actions, b[0].actions)


def test_outputs_depend_on_the_seed_of_the_latent_draws_only(tiny_study):
    one, two, other = (
        query_outputs(tiny_study.models, tiny_study.initial_states, TASK, seed=seed)
        for seed in (1, 1, 2)
    )
    assert len(one) == 8
    np.testing.assert_array_equal(one[3].actions, two[3].actions)
    assert not np.array_equal(one[3].actions, other[3].actions)


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        ({"oracles": None}, TypeError, "oracles must be a DataOracles"),
        ({"mixture": 0.3}, TypeError, "mixture must be a Mixture"),
        ({"rng": 5}, TypeError, "rng must be a numpy.random.Generator"),
        ({"initial_states": np.full((2, 12), np.nan)}, ValueError, "NaN or infinite"),
        ({"initial_states": np.zeros((2, 5))}, ValueError, "5"),
    ],
)
def test_bad_requests_for_data_are_refused(tiny_study, changes, error, message):
    arguments = {
        "oracles": tiny_study.oracles,
        "initial_states": tiny_study.initial_states,
        "mixture": Mixture(),
        "rng": np.random.default_rng(0),
    }
    with pytest.raises(error, match=message):
        collect_halves(**arguments | changes)


def test_bad_queries_are_refused(tiny_study):
    states = tiny_study.initial_states
    with pytest.raises(TypeError, match="models must be a BCQPopulation"):
        query_outputs(tiny_study.oracles, states, TASK, seed=0)
    with pytest.raises(TypeError, match="task must be a Task"):
        query_outputs(tiny_study.models, states, "Hopper-v5", seed=0)
    with pytest.raises(ValueError, match="seed must be at least 0"):
        query_outputs(tiny_study.models, states, TASK, seed=-1)
