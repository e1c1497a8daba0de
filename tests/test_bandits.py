"""Exact laws first, then loops that use the same random numbers, then bad input."""

from dataclasses import dataclass
from fractions import Fraction
from itertools import product
from math import comb

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import integrate, stats

from dprl import bandits
from dprl.bandits import BernoulliArm, BetaArm, TwoPointArm, bernoulli_arms

MIXED = [
    BernoulliArm(0.6),
    BetaArm(2.0, 3.0),
    TwoPointArm(0.1, 0.9, 0.25),
    TwoPointArm(0.5, 0.5, 1),
]


# -- a loop over runs and steps, with the random numbers in the documented order ----------


def one_of_the_largest(values, rng):
    largest = [a for a, v in enumerate(values) if v == max(values)]
    return largest[0] if len(largest) == 1 else largest[int(rng.random() * len(largest))]


def naive_rewards(arms, action, rng):
    reward = [0.0] * len(action)
    for a, arm in enumerate(arms):
        for i, chosen in enumerate(action):
            if chosen == a:
                reward[i] = float(arm.sample(rng, 1)[0])
    return reward


def naive_thompson(arms, horizon, n_runs, rng):
    k = len(arms)
    s, f = [[0] * k for _ in range(n_runs)], [[0] * k for _ in range(n_runs)]
    history = []
    for _ in range(horizon):
        theta = [[rng.beta(s[i][a] + 1, f[i][a] + 1) for a in range(k)] for i in range(n_runs)]
        action = [one_of_the_largest(row, rng) for row in theta]
        for i, r in enumerate(naive_rewards(arms, action, rng)):
            won = rng.random() < r
            (s if won else f)[i][action[i]] += 1
        history.append([[s[i][a] + f[i][a] for a in range(k)] for i in range(n_runs)])
    return np.array(history).swapaxes(0, 1)


def naive_ucb1(arms, horizon, n_runs, rng):
    k = len(arms)
    total, plays = [[0.0] * k for _ in range(n_runs)], [[0] * k for _ in range(n_runs)]
    history = []
    for t in range(1, horizon + 1):
        action = []
        for i in range(n_runs):
            if t <= k:
                action.append(t - 1)
                continue
            index = [
                total[i][a] / plays[i][a] + np.sqrt(2 * np.log(t - 1) / plays[i][a])
                for a in range(k)
            ]
            action.append(one_of_the_largest(index, rng))
        for i, r in enumerate(naive_rewards(arms, action, rng)):
            total[i][action[i]] += r
            plays[i][action[i]] += 1
        history.append([list(row) for row in plays])
    return np.array(history).swapaxes(0, 1)


@pytest.mark.parametrize("arms", [bernoulli_arms([0.9, 0.1]), MIXED, bernoulli_arms([0.3])])
@pytest.mark.parametrize(
    ("fast", "slow"),
    [(bandits.thompson_sampling, naive_thompson), (bandits.ucb1, naive_ucb1)],
    ids=["thompson", "ucb1"],
)
def test_same_random_numbers_same_plays(arms, fast, slow):
    runs = fast(arms, 60, 7, np.random.default_rng(5))
    assert (runs.plays == slow(arms, 60, 7, np.random.default_rng(5))).all()


def test_ucb1_meets_ties_so_that_their_order_is_tested():
    """Two arms with the same constant reward: equal indices whenever the plays are equal."""
    arms = [TwoPointArm(0.5, 0.5, 1), TwoPointArm(0.5, 0.5, 1)]
    runs = bandits.ucb1(arms, 3, 4_000, np.random.default_rng(2))
    first = (runs.plays[:, 2, 0] == 2).mean()
    assert abs(first - 0.5) < 5 * 0.5 / np.sqrt(4_000)
    assert (runs.plays[:, 1] == 1).all()


@pytest.mark.parametrize("k", [2, 3])
def test_tied_columns_are_taken_equally_often(k):
    rng = np.random.default_rng(4)
    values = np.tile(np.r_[np.ones(k), 0.5], (9_000, 1))
    share = np.bincount(bandits._fair_argmax(values, rng), minlength=k + 1) / 9_000
    assert share[k] == 0
    assert np.abs(share[:k] - 1 / k).max() < 5 * np.sqrt(1 / k / 9_000)


# -- exact choice probabilities and plays ---------------------------------------------------


def exact_choice(s1, f1, s2, f2):
    """P[Beta(s1+1, f1+1) > Beta(s2+1, f2+1)] in rational numbers.

    Theta_1 > Theta_2 given Theta_1 = x: P[Bin(n_2 + 1, x) >= s_2 + 1]; integrate x^a (1-x)^b.
    """
    n1, n2 = s1 + f1, s2 + f2
    total = Fraction(0)
    for i in range(s2 + 1, n2 + 2):
        a, b = s1 + i, f1 + n2 + 1 - i
        total += comb(n2 + 1, i) * Fraction(1, (a + b + 1) * comb(a + b, a))
    return total * (n1 + 1) * comb(n1, s1)


counts = st.integers(0, 25)


@given(counts, counts, counts, counts)
def test_two_arms_agree_with_rational_arithmetic(s1, f1, s2, f2):
    p = bandits.choice_probabilities([s1, s2], [f1, f2])
    assert p[0] == pytest.approx(float(exact_choice(s1, f1, s2, f2)), rel=1e-11)
    assert p.sum() == pytest.approx(1, abs=1e-12)


@given(st.lists(st.tuples(counts, counts), min_size=1, max_size=5), st.randoms())
def test_probabilities_sum_to_one_and_follow_the_arms(pairs, random):
    s, f = np.array(pairs).T
    p = bandits.choice_probabilities(s, f)
    assert p.sum() == pytest.approx(1, abs=1e-11)
    order = random.sample(range(len(pairs)), len(pairs))
    assert bandits.choice_probabilities(s[order], f[order]) == pytest.approx(p[order], abs=1e-12)
    # mirrored: x -> 1 - x turns the largest into the smallest, so for two arms p swaps
    if len(pairs) == 2:
        assert bandits.choice_probabilities(f, s) == pytest.approx(p[::-1], abs=1e-12)


def test_three_arms_agree_with_quadrature():
    s, f = np.array([3, 1, 7]), np.array([2, 4, 6])

    def integrand(x):
        below = stats.beta.cdf(x, s[1:] + 1, f[1:] + 1).prod()
        return stats.beta.pdf(x, s[0] + 1, f[0] + 1) * below

    value, error = integrate.quad(integrand, 0, 1, epsabs=1e-12)
    assert bandits.choice_probabilities(s, f)[0] == pytest.approx(value, abs=1e-10 + error)


def enumerated_plays(mu, horizon):
    """E[n_t(2)] by walking through every history, in rational numbers."""
    mu = [Fraction(m) for m in mu]
    expected = [Fraction(0)] * horizon
    for actions in product((0, 1), repeat=horizon):
        for tosses in product((0, 1), repeat=horizon):
            probability = Fraction(1)
            s, f = [0, 0], [0, 0]
            for a, won in zip(actions, tosses, strict=True):
                first = exact_choice(s[0], f[0], s[1], f[1])
                probability *= first if a == 0 else 1 - first
                probability *= mu[a] if won else 1 - mu[a]
                (s if won else f)[a] += 1
            for t in range(horizon):
                expected[t] += probability * sum(actions[: t + 1])
    return [float(x) for x in expected]


@pytest.mark.parametrize("mu", [(0.75, 0.25), (1.0, 0.5), (0.5, 0.5), (0.0, 0.125)])
def test_exact_plays_agree_with_an_enumeration_of_histories(mu):
    assert bandits.exact_plays(mu, 4)[:, 1] == pytest.approx(enumerated_plays(mu, 4), abs=1e-13)


@given(st.floats(0, 1), st.floats(0, 1))
@settings(max_examples=30, deadline=None)
def test_first_two_steps_by_hand(m1, m2):
    """P[second arm at step 2] = 1/2 - (mu_1 - mu_2)/6."""
    plays = bandits.exact_plays([m1, m2], 12)
    assert plays[:2, 1] == pytest.approx([0.5, 1 - (m1 - m2) / 6], abs=1e-12)
    assert plays.sum(axis=-1) == pytest.approx(np.arange(1, 13), abs=1e-11)
    assert (np.diff(plays, axis=0) > -1e-12).all()
    assert bandits.exact_plays([m2, m1], 12) == pytest.approx(plays[:, ::-1], abs=1e-11)


def test_exact_plays_of_many_pairs_at_once():
    means = np.random.default_rng(0).random((2, 3, 2))
    together = bandits.exact_plays(means, 9)
    assert together.shape == (2, 3, 9, 2)
    assert together[1, 2] == pytest.approx(bandits.exact_plays(means[1, 2], 9), abs=1e-13)


@pytest.mark.parametrize(
    "arms",
    [
        bernoulli_arms([0.8, 0.4]),
        [TwoPointArm(0.6, 1.0, 0.5), BetaArm(2.0, 3.0)],
        [TwoPointArm(0.8, 0.8, 0.3), TwoPointArm(0.0, 0.5, 0.8)],
    ],
    ids=["bernoulli", "continuous", "constant"],
)
def test_simulated_plays_have_the_exact_mean_whatever_the_arms(arms):
    """The toss makes every arm of mean mu a Bernoulli(mu) arm."""
    runs = bandits.thompson_sampling(arms, 40, 20_000, np.random.default_rng(11), times=[2, 10, 40])
    exact = bandits.exact_plays([0.8, 0.4], 40)[[1, 9, 39]]
    z = (runs.mean_regret - exact @ runs.gaps) / runs.standard_error
    assert np.abs(z).max() < 4.5


# -- arms and the record ---------------------------------------------------------------------


@pytest.mark.parametrize("arm", MIXED, ids=str)
def test_samples_lie_in_the_unit_interval_and_have_the_stated_mean(arm):
    x = arm.sample(np.random.default_rng(1), 40_000)
    assert x.shape == (40_000,)
    assert ((x >= 0) & (x <= 1)).all()
    assert abs(x.mean() - arm.mean) <= 5 * x.std() / 200 + 1e-12


def test_record_keeps_the_asked_times():
    every = bandits.thompson_sampling(MIXED, 30, 5, np.random.default_rng(3))
    some = bandits.thompson_sampling(MIXED, 30, 5, np.random.default_rng(3), times=[1, 7, 29])
    assert (some.plays == every.plays[:, [0, 6, 28]]).all()
    assert (every.plays.sum(axis=-1) == every.times).all()
    assert every.gaps == pytest.approx(0.6 - np.array([0.6, 0.4, 0.3, 0.5]))
    assert every.regret == pytest.approx((every.plays * every.gaps).sum(axis=-1))
    assert not every.plays.flags.writeable


def test_one_arm_has_no_regret():
    runs = bandits.thompson_sampling(bernoulli_arms([0.3]), 20, 3, np.random.default_rng(0))
    assert (runs.regret == 0).all()


@dataclass(frozen=True)
class Generous:
    mean: float = 1.0

    def sample(self, rng, size):
        return np.full(size, 1.5)


RNG = np.random.default_rng(0)
TWO = bernoulli_arms([0.5, 0.6])


@pytest.mark.parametrize("algorithm", [bandits.thompson_sampling, bandits.ucb1])
@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        (([], 5, 5, RNG), ValueError, "at least one arm"),
        (([0.5], 5, 5, RNG), TypeError, r"arms\[0\] must have a mean"),
        (([Generous()], 5, 5, RNG), ValueError, r"outside \[0, 1\]"),
        (([Generous(2.0)], 5, 5, RNG), ValueError, r"mean of arms\[0\] must lie in \[0, 1\]"),
        ((TWO, 0, 5, RNG), ValueError, "horizon must be at least 1"),
        ((TWO, 5.0, 5, RNG), TypeError, "horizon must be an integer"),
        ((TWO, 5, 0, RNG), ValueError, "n_runs must be at least 1"),
        ((TWO, 5, 5, 7), TypeError, "rng must be a numpy.random.Generator"),
    ],
)
def test_bad_setting_is_refused(algorithm, arguments, error, message):
    with pytest.raises(error, match=message):
        algorithm(*arguments)


@pytest.mark.parametrize(
    ("times", "message"),
    [
        ([], "non-empty vector of whole numbers"),
        ([1.0], "whole numbers"),
        ([[1]], "vector"),
        ([0, 1], r"within 1 \.\. 5"),
        ([1, 6], r"within 1 \.\. 5"),
        ([2, 2], "increase"),
    ],
)
def test_bad_times_are_refused(times, message):
    with pytest.raises(ValueError, match=message):
        bandits.thompson_sampling(TWO, 5, 2, RNG, times=times)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: BernoulliArm(1.1), r"mean must lie in \[0, 1\]"),
        (lambda: BetaArm(0.0, 1.0), "alpha must be positive"),
        (lambda: BetaArm(1.0, -1.0), "beta must be positive"),
        (lambda: TwoPointArm(0.5, 0.4, 0.5), "low must not exceed high"),
        (lambda: TwoPointArm(-0.1, 0.4, 0.5), r"low must lie in \[0, 1\]"),
        (lambda: TwoPointArm(0.1, 0.4, 1.5), r"p_high must lie in \[0, 1\]"),
        (lambda: bernoulli_arms([[0.5]]), "means must have 1 dim"),
        (lambda: bandits.choice_probabilities([1, 2], [1]), "vectors alike"),
        (lambda: bandits.choice_probabilities([0.5], [1]), "whole numbers"),
        (lambda: bandits.choice_probabilities([-1], [1]), "must not be negative"),
        (lambda: bandits.exact_plays([0.5], 3), "two entries"),
        (lambda: bandits.exact_plays([0.5, 1.5], 3), r"lie in \[0, 1\]"),
        (lambda: bandits.exact_plays([0.5, 0.5], 0), "horizon must be at least 1"),
        (
            lambda: bandits.thompson_sampling(TWO, 3, 1, RNG).standard_error,
            "needs at least 2 runs",
        ),
    ],
)
def test_bad_value_is_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make()
