"""What privacy promises against membership inference: exact, attained, and inverted."""

import math
from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from dprl import privacy
from dprl.bounds import membership as bounds

EPSILONS = (0.0, 0.01, 0.3, 1.0, 3.0, 12.0)
DELTAS = (0.0, 1e-5, 0.1, 0.6)
epsilons = st.floats(0, 20)
deltas = st.floats(0, 0.99)
rates = st.floats(0, 1)


def best_tpr(fpr, epsilon, delta):
    """The region of Kairouz et al., from the module that audits."""
    return privacy.largest_true_positive_rate(fpr, epsilon, delta)


def randomised_response(epsilon, delta):
    """Answers (bit shown, "1", "0") with their probabilities for b = 1 and for b = 0.

    With probability delta the bit is shown; otherwise "b" is answered with probability
    e^epsilon / (e^epsilon + 1) and the other value else.
    """
    true = 1 / (1 + math.exp(-epsilon))
    one = np.array([delta, (1 - delta) * true, (1 - delta) * (1 - true), 0.0])
    return one, one[::-1]


def corners(epsilon, delta):
    """The ROC points of randomised response: shown 1, said 1, said 0, shown 0."""
    one, zero = randomised_response(epsilon, delta)
    return np.append(0, np.cumsum(zero)).clip(0, 1), np.append(0, np.cumsum(one)).clip(0, 1)


# -- from a promise to the attack -------------------------------------------------------------


@pytest.mark.parametrize(("epsilon", "delta"), list(product(EPSILONS, DELTAS)))
def test_bounds_are_those_of_the_whole_region(epsilon, delta):
    fpr = np.append(np.linspace(0, 1, 100_001), (1 - delta) / (math.exp(epsilon) + 1))
    fpr.sort()
    tpr = best_tpr(fpr, epsilon, delta)
    assert bounds.largest_advantage(epsilon, delta) == pytest.approx((tpr - fpr).max(), abs=1e-12)
    assert bounds.largest_auc(epsilon, delta) == pytest.approx(np.trapezoid(tpr, fpr), abs=2e-5)


@pytest.mark.parametrize(("epsilon", "delta"), list(product(EPSILONS, DELTAS)))
def test_randomised_response_is_private_and_attains_the_bounds(epsilon, delta):
    one, zero = randomised_response(epsilon, delta)
    for first, second in ((one, zero), (zero, one)):
        assert np.maximum(first - math.exp(epsilon) * second, 0).sum() <= delta + 1e-9
    fpr, tpr = corners(epsilon, delta)
    assert (tpr - fpr).max() == pytest.approx(float(bounds.largest_advantage(epsilon, delta)))
    assert np.trapezoid(tpr, fpr) == pytest.approx(float(bounds.largest_auc(epsilon, delta)))
    assert tpr[1:] == pytest.approx(best_tpr(fpr[1:], epsilon, delta))


def test_printed_forms_of_the_advantage():
    eps, delta = np.linspace(0, 6, 50), 0.05
    exact = (np.exp(eps) - 1 + 2 * delta) / (np.exp(eps) + 1)  # Humphries et al. 2020
    assert bounds.largest_advantage(eps, delta) == pytest.approx(exact)
    assert bounds.largest_advantage(eps) == pytest.approx(np.tanh(eps / 2))
    assert bounds.yeom_advantage(eps) == pytest.approx(np.exp(eps) - 1)
    assert (bounds.yeom_advantage(eps) >= bounds.largest_advantage(eps)).all()
    assert bounds.yeom_advantage(math.log(2)) == pytest.approx(1)  # nothing is promised


def test_limits():
    assert bounds.largest_advantage(0.0) == 0
    assert bounds.largest_auc(0.0) == 0.5
    assert bounds.largest_advantage(1e6, 0.3) == 1
    assert bounds.largest_auc(1e6, 0.3) == 1
    # who misses no member with certainty accuses everybody, whatever epsilon is
    assert bounds.smallest_false_positive_rate([0.0, 0.5, 1.0], 1e6).tolist() == [0, 0, 1]
    assert bounds.smallest_false_positive_rate(0.5, 0.0) == 0.5
    for f in (bounds.largest_advantage, bounds.largest_auc):
        assert (np.diff(f(np.linspace(0, 30, 200), 0.01)) >= 0).all()


@given(rates, epsilons, deltas)
def test_smallest_fpr_is_the_inverse_of_the_largest_tpr(recall, epsilon, delta):
    fpr = float(bounds.smallest_false_positive_rate(recall, epsilon, delta))
    assert best_tpr(min(fpr * (1 + 1e-9) + 1e-12, 1), epsilon, delta) >= recall - 1e-6
    if fpr > 1e-9:
        assert best_tpr(fpr * (1 - 1e-6), epsilon, delta) < recall


@given(st.floats(0.01, 1), st.floats(0.001, 0.999), st.floats(0, 10))
def test_odds_of_membership_grow_by_at_most_e_epsilon(recall, base_rate, epsilon):
    precision = float(bounds.largest_precision(recall, base_rate, epsilon))
    odds, before = precision / (1 - precision), base_rate / (1 - base_rate)
    assert odds <= before * math.exp(epsilon) * (1 + 1e-6)
    # attained at every recall up to that of the corner
    if recall <= 1 / (1 + math.exp(-epsilon)):
        assert odds == pytest.approx(before * math.exp(epsilon), rel=1e-6)


def test_delta_allows_certainty_at_small_recall():
    assert bounds.largest_precision([1e-3, 1e-2, 0.5], 1e-6, 0.1, 1e-2)[:2].tolist() == [1, 1]
    assert bounds.largest_precision(0.5, 1e-6, 0.1, 1e-2) < 1e-5


@given(epsilons, st.floats(0, 1e-3), st.integers(1, 60))
def test_group_privacy_is_the_sum_of_its_steps(epsilon, delta, size):
    # from X_0 to X_k by one record at a time: P_0 <= e^eps P_1 + delta <= ...
    total_eps, total_delta = bounds.group_privacy(epsilon, delta, size)
    assert total_eps == pytest.approx(size * epsilon)
    steps = min(delta * sum(math.exp(min(i * epsilon, 600)) for i in range(size)), 1.0)
    assert total_delta == pytest.approx(steps, rel=1e-9)


@pytest.mark.parametrize("size", [1, 2, 5, 50])
def test_group_privacy_holds_for_the_gaussian_mechanism(size):
    """k records move a Gaussian release k times as far; its exact profile is below the bound."""
    for sigma, epsilon in product((2.0, 10.0), (0.05, 0.3, 1.0)):
        delta = privacy.gaussian_delta(1.0, sigma, epsilon)
        group = bounds.group_privacy(epsilon, delta, size)
        assert privacy.gaussian_delta(size, sigma, group[0]) <= group[1] * (1 + 1e-9)


# -- from a level to the promise --------------------------------------------------------------


@given(st.floats(0, 0.999), st.floats(0, 0.9))
def test_epsilon_for_advantage_is_the_inverse(advantage, delta):
    epsilon = float(bounds.epsilon_for_advantage(advantage, delta))
    if advantage < delta:
        assert math.isnan(epsilon)
    else:
        assert bounds.largest_advantage(epsilon, delta) == pytest.approx(advantage, abs=1e-9)


@given(st.floats(0.5, 0.999), st.floats(0, 0.9))
def test_epsilon_for_auc_is_the_inverse(auc, delta):
    epsilon = float(bounds.epsilon_for_auc(auc, delta))
    if math.isnan(epsilon):
        assert bounds.largest_auc(0.0, delta) > auc
    else:
        assert bounds.largest_auc(epsilon, delta) == pytest.approx(auc, abs=1e-9)


@given(st.floats(0, 1).filter(lambda x: x == 0 or x > 1e-12), rates, deltas)
def test_least_epsilon_is_where_the_region_reaches_the_point(fpr, tpr, delta):
    epsilon = float(bounds.least_epsilon(tpr, fpr, delta))
    below = (1 - fpr, 1 - tpr)  # the second line of (1) is the first for the answer "no"

    def allowed(eps):
        scale = math.exp(min(eps, 700))
        return tpr <= scale * fpr + delta + 1e-9 and below[0] <= scale * below[1] + delta + 1e-9

    if math.isinf(epsilon):
        assert not allowed(15.0) or min(fpr, below[1]) < 1e-9
    else:
        assert allowed(epsilon)
        assert epsilon == 0 or epsilon < 1e-6 or not allowed(epsilon - max(1e-6, epsilon / 2))


def test_least_epsilon_at_the_edges():
    found = bounds.least_epsilon([0, 1, 1, 0.5, 0.05, 1], [0, 1, 0, 0.5, 0, 0.95], 0.1)
    assert found.tolist() == [0, 0, math.inf, 0, 0, 0]


@pytest.mark.parametrize(("epsilon", "delta"), list(product(EPSILONS[1:], DELTAS)))
def test_least_epsilon_of_the_corner_is_epsilon(epsilon, delta):
    fpr = (1 - delta) / (math.exp(epsilon) + 1)
    assert bounds.least_epsilon(1 - fpr, fpr, delta) == pytest.approx(epsilon)


# -- from counted guesses ---------------------------------------------------------------------


@pytest.mark.parametrize("guesses", [1, 20, 400])
@pytest.mark.parametrize("epsilon", [0.0, 0.5, 2.0])
@pytest.mark.parametrize("confidence", [0.8, 0.95])
def test_bound_from_guesses_fails_as_seldom_as_it_says(guesses, epsilon, confidence):
    """Exact, for independent randomised responses, which are the worst case."""
    correct = np.arange(guesses + 1)
    bound = bounds.epsilon_from_guesses(correct, guesses, confidence)
    chance = stats.binom.pmf(correct, guesses, 1 / (1 + math.exp(-epsilon)))
    assert chance[bound > epsilon + 1e-12].sum() <= 1 - confidence + 1e-12
    assert (np.diff(bound) >= 0).all()


@pytest.mark.parametrize("seed", range(20))
def test_guesses_about_one_release_are_at_most_binomial(seed):
    """(7) by enumeration: a random epsilon-private release of all the bits at once."""
    rng, n, epsilon = np.random.default_rng(seed), 4, 1.2
    bits = np.array(list(product((0, 1), repeat=n)))
    # the exponential mechanism with utilities that one bit moves by at most 1: log-odds between
    # neighbours are at most epsilon, as the normalisation moves by at most epsilon/2 as well
    outputs = 6
    weights = rng.uniform(-1, 1, (outputs, n))
    utility = bits @ weights.T
    law = np.exp(epsilon / 2 * utility)
    law /= law.sum(axis=1, keepdims=True)
    for i in range(n):
        flipped = bits.copy()
        flipped[:, i] ^= 1
        other = law[(flipped * 2 ** np.arange(n)[::-1]).sum(axis=1)]
        assert (law <= math.exp(epsilon) * other * (1 + 1e-12)).all()
    posterior = law / law.sum(axis=0)  # bits x outputs, from fair coins
    guess = (posterior.T @ bits > 0.5).astype(int)  # the best guess of each bit
    right = (bits[:, None, :] == guess[None]).sum(axis=2)
    probability = law / len(bits)
    for r in range(n + 1):
        at_least = probability[right >= r].sum()
        assert at_least <= stats.binom.sf(r - 1, n, 1 / (1 + math.exp(-epsilon))) + 1e-12


def test_a_random_half_is_a_random_matching_with_fair_coins():
    """The identity behind the design: both give every half with the same probability."""
    rng, m = np.random.default_rng(0), 2
    counts: dict[tuple[int, ...], int] = {}
    for _ in range(6000):
        pairs = rng.permutation(2 * m).reshape(m, 2)
        half = tuple(sorted(pairs[np.arange(m), rng.integers(0, 2, m)]))
        counts[half] = counts.get(half, 0) + 1
    assert len(counts) == math.comb(2 * m, m)
    assert stats.chisquare(list(counts.values())).pvalue > 1e-4


# -- bad input ----------------------------------------------------------------------------------

BAD = [
    (lambda: bounds.largest_advantage(-0.1), ValueError, "epsilon must not be negative"),
    (lambda: bounds.largest_advantage(float("nan")), ValueError, "epsilon holds NaN"),
    (lambda: bounds.largest_advantage("1"), ValueError, "epsilon must be an array of numbers"),
    (lambda: bounds.largest_advantage(1.0, 1.0), ValueError, r"delta must lie in \[0, 1\)"),
    (lambda: bounds.largest_auc(1.0, "0"), TypeError, "delta must be a real number"),
    (lambda: bounds.yeom_advantage(701.0), ValueError, "at most 700"),
    (lambda: bounds.smallest_false_positive_rate(1.1, 1.0), ValueError, "recall must lie in"),
    (lambda: bounds.largest_precision(0.0, 0.5, 1.0), ValueError, "recall must be above 0"),
    (lambda: bounds.largest_precision(0.5, 1.0, 1.0), ValueError, "base_rate must lie strictly"),
    (lambda: bounds.largest_precision(0.5, -0.1, 1.0), ValueError, "base_rate must lie in"),
    (lambda: bounds.group_privacy(1.0, 0.0, 0), ValueError, "size must be at least 1"),
    (lambda: bounds.group_privacy(1.0, 0.0, 2.0), TypeError, "size must be an integer"),
    (lambda: bounds.group_privacy(-1.0, 0.0, 2), ValueError, "epsilon must not be negative"),
    (lambda: bounds.epsilon_for_advantage(1.0), ValueError, "advantage must be below 1"),
    (lambda: bounds.epsilon_for_advantage(-0.1), ValueError, "advantage must lie in"),
    (lambda: bounds.epsilon_for_auc(0.4), ValueError, "auc must be at least 1/2"),
    (lambda: bounds.epsilon_for_auc(1.0), ValueError, "auc must be below 1"),
    (lambda: bounds.least_epsilon(0.5, 1.5), ValueError, "fpr must lie in"),
    (lambda: bounds.epsilon_from_guesses(3, 2), ValueError, "count must lie between 0"),
    (lambda: bounds.epsilon_from_guesses(1.5, 2), ValueError, "correct must hold whole numbers"),
    (lambda: bounds.epsilon_from_guesses(1, 2, 1.0), ValueError, "confidence must lie strictly"),
]


@pytest.mark.parametrize(("call", "error", "message"), BAD)
def test_bad_input_is_refused(call, error, message):
    with pytest.raises(error, match=message):
        call()
