"""Private control: bounds of counts, their noise, planning, and DP-APVI step by step."""

import math
from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import optimize

from dprl.mdp import policy_iteration
from dprl.privacy import Guarantee, analytic_gaussian_sigma
from dprl.private_evaluation import control
from dprl.simulators.control_problems import (
    episodic_values,
    river_swim,
    simulate_control,
    simulate_step_counts,
    speed_chain,
)
from dprl.trajectories import Batch

RIGHT = np.tile([0.2, 0.8], (6, 1))
RELATION = "replace one trajectory"


def naive_counts(batch, n_actions, radius):
    """The rule step by step, one trajectory after the other."""
    total = np.zeros((batch.n_states, n_actions, batch.n_states), dtype=int)
    for end, length in zip(batch.ends, batch.lengths, strict=True):
        counts = Counter()
        for i in range(end - length, end - 1):
            s, a, following = batch.states[i], batch.actions[i], batch.states[i + 1]
            peak = max(counts[s, a, x] for x in range(batch.n_states))
            if sum(c * c for c in counts.values()) + 2 * peak + 1 <= radius**2:
                counts[s, a, following] += 1
        for (s, a, following), c in counts.items():
            total[s, a, following] += c
    return total


def random_batch(rng, m, n_states, n_actions, longest):
    lengths = rng.integers(1, longest + 1, m)
    total = lengths.sum()
    sticky = rng.integers(1, n_states + 1)  # few states: many repeated transitions
    return Batch(
        rng.integers(0, sticky, total),
        np.zeros(total),
        lengths,
        n_states,
        rng.integers(0, n_actions, total),
    )


@settings(max_examples=40)
@given(st.integers(0, 10**6), st.floats(1.0, 12.0))
def test_counts_are_those_of_the_rule(seed, radius):
    rng = np.random.default_rng(seed)
    batch = random_batch(rng, 7, 3, 2, 30)
    found = control.bounded_transition_counts(batch, 2, radius)
    assert (found == naive_counts(batch, 2, radius)).all()


@settings(max_examples=60)
@given(st.integers(0, 10**6), st.floats(1.0, 20.0))
def test_no_replaced_trajectory_moves_the_counts_by_more_than_the_sensitivity(seed, radius):
    rng = np.random.default_rng(seed)
    batch = random_batch(rng, 3, 4, 2, 60)
    other = random_batch(rng, 1, 4, 2, int(rng.integers(1, 400)))
    record = [(int(s), int(a), 0.0) for s, a in zip(other.states, other.actions, strict=True)]
    moved = control.bounded_transition_counts(batch, 2, radius) - control.bounded_transition_counts(
        batch.replace(1, record), 2, radius
    )
    assert np.linalg.norm(moved) <= math.sqrt(2) * radius


def test_the_sensitivity_is_attained():
    one, other = ([(s, 0, 0.0)] * 50 for s in (0, 1))
    counts = [
        control.bounded_transition_counts(Batch.from_lists([x], 2), 1, radius=7)
        for x in (one, other)
    ]
    assert np.linalg.norm(counts[0] - counts[1]) == pytest.approx(7 * math.sqrt(2))
    rng = np.random.default_rng(1)
    release = control.private_transition_counts(
        Batch.from_lists([one], 2), 1, radius=7, epsilon=1.0, delta=1e-6, rng=rng
    )
    assert release.sigma == pytest.approx(
        7 * math.sqrt(2) * analytic_gaussian_sigma(1.0, 1.0, 1e-6)
    )
    assert release.guarantee == Guarantee(1.0, 1e-6, RELATION)


def test_bounded_counts_estimate_transitions_without_bias_and_scaled_ones_do_not():
    """One state that one either repeats or leaves; long trajectories are those that repeated."""
    rng = np.random.default_rng(8)
    stay, m, steps = 0.8, 40_000, 25
    leaving = rng.geometric(1 - stay, m)
    lengths = np.minimum(leaving, steps) + 1
    states = np.zeros(lengths.sum(), dtype=int)
    states[(np.cumsum(lengths) - 1)[leaving <= steps]] = 1
    batch = Batch(states, np.zeros(states.size), lengths, 2, np.zeros(states.size, dtype=int))
    counts = control.bounded_transition_counts(batch, 1, radius=3)[0, 0]
    total = counts.sum()
    assert counts[0] / total == pytest.approx(stay, abs=5 * math.sqrt(0.16 / total))
    repeated, left = np.minimum(leaving - 1, steps), leaving <= steps
    scale = np.minimum(1, 3 / np.hypot(repeated, left))
    scaled = (scale * repeated).sum() / (scale * (repeated + left)).sum()
    assert scaled < stay - 0.05


def test_noise_has_the_promised_size():
    batch = simulate_control(river_swim(), RIGHT, 50, 30, np.random.default_rng(1))
    exact = control.bounded_transition_counts(batch, 2, 5)
    settings = {"radius": 5, "epsilon": 1.0, "delta": 1e-6}
    noise = np.concatenate(
        [
            (
                control.private_transition_counts(
                    batch, 2, **settings, rng=np.random.default_rng(k)
                ).counts
                - exact
            ).ravel()
            for k in range(30)
        ]
    )
    sigma = 5 * math.sqrt(2) * analytic_gaussian_sigma(1.0, 1.0, 1e-6)
    assert noise.std() == pytest.approx(sigma, rel=0.08)


@pytest.mark.parametrize("process", [river_swim(), speed_chain(6)])
def test_planning_on_exact_counts_finds_the_best_policy(process):
    s = process.n_states
    terminal = process.transition[np.arange(s), 0, np.arange(s)] == 1
    terminal &= process.transition[np.arange(s), 1, np.arange(s)] == 1
    counts = control.PrivateCounts(1e6 * process.transition, 1.0, Guarantee(1, 0.1, RELATION))
    found = control.thresholded_policy(counts, process.reward, process.discount, terminal=terminal)
    best = policy_iteration(process, [0] * s).policies[-1]
    assert found[~terminal].tolist() == best[~terminal].tolist()


def test_an_unknown_pair_pays_the_least_reward_for_ever():
    """Action 1 would pay more, but nothing is known of where it leads."""
    noisy = np.array([[[50.0, 0.0], [2.9, 2.9]], [[0.0, 50.0], [0.0, 50.0]]])
    release = control.PrivateCounts(noisy, 1.0, Guarantee(1, 0.1, RELATION))
    reward = [[1.0, 1.5], [0.0, 0.0]]
    assert control.thresholded_policy(release, reward, 0.9)[0] == 0
    assert control.thresholded_policy(release, reward, 0.9, threshold=2.0)[0] == 0
    assert control.thresholded_policy(release, reward, 0.1, threshold=2.0)[0] == 1
    known = [[[1, 0], [1, 0]], [[0, 1], [0, 1]]]
    assert control.thresholded_policy(release, reward, 0.9, threshold=2.0, possible=known)[0] == 1


def test_where_the_possible_transitions_are_public_rare_ones_are_kept():
    """Action 1 pays more, and rarely ends in the second state, where nothing is paid for ever."""
    noisy = np.array([[[50.0, 0.0], [45.0, 2.0]], [[0.0, 50.0], [0.0, 50.0]]])
    release = control.PrivateCounts(noisy, 1.0, Guarantee(1, 0.1, RELATION))
    reward = [[1.0, 1.1], [0.0, 0.0]]
    possible = [[[1, 0], [1, 1]], [[0, 1], [0, 1]]]
    assert control.thresholded_policy(release, reward, 0.95)[0] == 1  # 2 is below 3 sigma
    assert control.thresholded_policy(release, reward, 0.95, possible=possible)[0] == 0


def test_private_control_swims_right():
    process, rng = river_swim(), np.random.default_rng(6)
    batch = simulate_control(process, RIGHT, 2000, 40, rng)
    release = control.private_transition_counts(
        batch, 2, radius=10, epsilon=1.0, delta=1e-6, rng=rng
    )
    policy = control.thresholded_policy(release, process.reward, process.discount)
    assert policy.tolist() == [1] * 6


# -- DP-APVI


@settings(max_examples=60)
@given(st.integers(0, 10**6), st.integers(1, 6))
def test_consistent_counts_solve_the_linear_programme(seed, size):
    rng = np.random.default_rng(seed)
    x = np.maximum(rng.normal(3, 5, size), 0)
    n, slack = float(rng.uniform(0, 6 * size)), float(rng.uniform(0, 5))
    found = control.consistent_counts(x, np.array(n), slack)
    assert (found >= 0).all()
    assert abs(found.sum() - n) <= slack + 1e-9
    ones, eye = np.ones((size, 1)), np.eye(size)
    solved = optimize.linprog(
        np.append(np.zeros(size), 1),
        A_ub=np.block([[eye, -ones], [-eye, -ones], [np.ones(size), 0.0], [-np.ones(size), 0.0]]),
        b_ub=np.concatenate([x, -x, [n + slack, slack - n]]),
    )
    assert np.abs(found - x).max() == pytest.approx(solved.fun, abs=1e-7)


def test_step_counts_one_by_one_and_their_sensitivity():
    rng = np.random.default_rng(3)
    batch = random_batch(rng, 6, 3, 2, 12)
    naive = np.zeros((5, 3, 2, 3), dtype=int)
    for end, length in zip(batch.ends, batch.lengths, strict=True):
        for h in range(min(length - 1, 5)):
            i = end - length + h
            naive[h, batch.states[i], batch.actions[i], batch.states[i + 1]] += 1
    assert (control.step_counts(batch, 2, 5) == naive).all()
    one, other = (
        control.step_counts(Batch.from_lists([[(s, 0, 0.0)] * 9], 2), 1, 8) for s in (0, 1)
    )
    squares = sum(((one - other).sum(axis=axis) ** 2).sum() for axis in ((), (3,)))
    assert math.sqrt(squares) == 2 * math.sqrt(8)  # both families of counts, attained


def naive_apvi(triples, pairs, reward, sigma, q, c1, c2):
    """Algorithm 1 of the paper, line by line, for noisy counts that are given."""
    h_all, s_all, a_all = pairs.shape
    error = 4 * math.sqrt(
        h_all * math.log(4 * h_all * s_all**2 * a_all / q) / (2 * h_all / sigma**2)
    )
    iota = math.log(h_all * s_all * a_all / q)
    v = np.zeros(s_all)
    policy = np.zeros((h_all, s_all), dtype=int)
    for h in range(h_all, 0, -1):
        new = np.zeros(s_all)
        for s in range(s_all):
            best = []
            for a in range(a_all):
                n = control.consistent_counts(triples[h - 1, s, a], pairs[h - 1, s, a], error / 2)
                if n.sum() > error:
                    p = n / n.sum()
                    variance = p @ (v - p @ v) ** 2
                    gamma = c1 * math.sqrt(variance * iota / (n.sum() - error))
                    gamma += c2 * s_all * h_all * error * iota / n.sum()
                else:
                    p, gamma = np.full(s_all, 1 / s_all), 1.5 * h_all
                value = reward[s, a] + p @ v - gamma
                best.append(max(min(value, h_all - h + 1), 0))
            policy[h - 1, s], new[s] = int(np.argmax(best)), max(best)
        v = new
    return policy, v


@pytest.mark.parametrize("noise", [16.0, 0.01])
@pytest.mark.parametrize("scale", [3 * 10**4, 10**9])
def test_dp_apvi_is_the_algorithm_line_by_line(scale, noise):
    horizon, s, a = 3, 3, 2
    source = np.random.default_rng(4)
    counts = source.multinomial(scale, source.dirichlet(np.ones(s), size=(horizon, s, a)))
    counts[0, 1] = 0
    reward = source.uniform(size=(s, a))
    pessimism = control.Pessimism(noise=noise)
    found = control.dp_apvi(
        counts,
        reward,
        epsilon=1.0,
        delta=1e-6,
        rng=np.random.default_rng(9),
        pessimism=pessimism,
    )
    rng = np.random.default_rng(9)
    pairs = np.maximum(counts.sum(axis=3) + found.sigma * rng.standard_normal(counts.shape[:3]), 0)
    triples = np.maximum(counts + found.sigma * rng.standard_normal(counts.shape), 0)
    policy, v = naive_apvi(
        triples, pairs, reward, found.sigma, pessimism.failure, math.sqrt(2), noise
    )
    assert found.values[0] == pytest.approx(v)
    assert found.actions.tolist() == policy.tolist()
    assert found.sigma == pytest.approx(
        2 * math.sqrt(horizon) * analytic_gaussian_sigma(1.0, 1.0, 1e-6)
    )


def test_dp_apvi_is_pessimistic_and_finds_the_best_policy_of_very_many_episodes():
    process, horizon, rng = river_swim(), 12, np.random.default_rng(7)
    best = episodic_values(process, None, horizon)[0]
    losses = []
    for n in (10**3, 10**10):
        counts = simulate_step_counts(process, RIGHT, n, horizon, rng)
        found = control.dp_apvi(counts, process.expected_reward, epsilon=1.0, delta=1e-6, rng=rng)
        reached = episodic_values(process, found.actions, horizon)[0]
        assert found.values[0, 0] <= reached + 1e-9
        losses.append(1 - reached / best)
    assert losses[0] > 0.5
    assert losses[1] < 0.01


def test_extreme_records_release_finite_numbers():
    trajectory = [(0, 0, 1e300)] * 5000 + [(1, 1, -1e300)]
    batch = Batch.from_lists([trajectory, [(1, 0, 0.0)]], 2)
    rng = np.random.default_rng(2)
    release = control.private_transition_counts(
        batch, 2, radius=4, epsilon=0.1, delta=1e-6, rng=rng
    )
    assert np.isfinite(release.counts).all()
    counts = control.step_counts(batch, 2, 4)
    found = control.dp_apvi(counts, np.zeros((2, 2)), epsilon=0.1, delta=1e-6, rng=rng)
    assert np.isfinite(found.values).all()


PLAIN = Batch.from_lists([[(0, 0, 0.0), (0, 0, 0.0)]], 1)
SILENT = Batch(np.array([0]), np.array([0.0]), np.array([1]), 1)
RELEASE = control.PrivateCounts(np.ones((1, 1, 1)), 1.0, Guarantee(1, 0.1, RELATION))
PROMISE = {"epsilon": 1.0, "delta": 0.1, "rng": np.random.default_rng(1)}


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: control.bounded_transition_counts(PLAIN, 1, 0.5), "radius must be at least 1"),
        (lambda: control.bounded_transition_counts(SILENT, 1, 2), "needs actions"),
        (lambda: control.step_counts(SILENT, 1, 2), "needs actions"),
        (
            lambda: control.bounded_transition_counts(Batch.from_lists([[(0, 1, 0.0)]], 1), 1, 2),
            "actions must lie",
        ),
        (lambda: control.thresholded_policy(RELEASE, [[1.0, 2.0]], 0.9), "reward must have shape"),
        (lambda: control.thresholded_policy(RELEASE, [[1.0]], 0.9, terminal=[1, 0]), "terminal"),
        (
            lambda: control.thresholded_policy(RELEASE, [[1.0]], 0.9, possible=[[[1, 1]]]),
            "possible",
        ),
        (lambda: control.dp_apvi(np.ones((1, 2, 1, 3)), [[0.0]], **PROMISE), "shape"),
        (lambda: control.dp_apvi(np.full((1, 1, 1, 1), 0.5), [[0.0]], **PROMISE), "whole"),
        (lambda: control.dp_apvi(np.ones((1, 1, 1, 1)), [[2.0]], **PROMISE), r"\[0, 1\]"),
        (lambda: control.Pessimism(failure=0.0), "failure"),
        (lambda: control.consistent_counts(1.0, 1.0, 0.0), "triples must have the shape"),
        (lambda: control.consistent_counts([[1.0]], [1.0, 2.0], 0.0), "triples must have"),
    ],
)
def test_bad_input_gets_a_clear_error(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_a_radius_of_half_precision_bounds_as_well():
    """Its square is no number of half precision."""
    long = Batch.from_lists([[(0, 0, 0.0)] * 5_000], n_states=1)
    found = [control.bounded_transition_counts(long, 1, r).sum() for r in (np.float16(300), 300.0)]
    assert found[0] == found[1] <= 300
