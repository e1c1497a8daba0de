"""The bound of Theorem 11.1 against the exact regret, and each step of its proof on its own."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from dprl import bandits
from dprl.bounds import thompson
from dprl.bounds.thompson import bernoulli_kl

HORIZON = 40
EPSILONS = (0.01, 0.1, 0.5, 1.0, 3.0, 30.0)
probabilities = st.floats(0, 1)
inner = st.floats(0.01, 0.99)


@pytest.fixture(scope="module")
def settings_of_two_arms():
    """Random pairs of means and the exact regret for every horizon, shape (60, HORIZON)."""
    means = np.random.default_rng(111).uniform(0, 0.99, (60, 2))
    gap = np.abs(means[:, 0] - means[:, 1])
    means, gap = means[gap > 0.02], gap[gap > 0.02]
    plays = bandits.exact_plays(means, HORIZON)
    worse = means.argmin(axis=1)
    return means, gap[:, None] * np.take_along_axis(plays, worse[:, None, None], axis=2)[..., 0]


# -- d(u, v) -----------------------------------------------------------------------------------


@given(probabilities, probabilities)
def test_relative_entropy_is_that_of_two_coins(u, v):
    assert bernoulli_kl(u, v) == pytest.approx(
        stats.entropy([u, 1 - u], [v, 1 - v]), rel=1e-9, abs=1e-12
    )
    assert bernoulli_kl(u, v) >= 2 * (u - v) ** 2 - 1e-12  # Pinsker


@given(probabilities, inner)
def test_relative_entropy_is_the_same_for_losses(u, v):
    assert bernoulli_kl(1 - u, 1 - v) == pytest.approx(float(bernoulli_kl(u, v)), abs=1e-12)


def test_limits_of_the_relative_entropy():
    assert bernoulli_kl([0, 1, 0, 1], [0, 1, 1, 0]).tolist() == [0, 0, np.inf, np.inf]
    assert bernoulli_kl(0.0, 0.3) == pytest.approx(-np.log(0.7))
    assert bernoulli_kl(1.0, 0.3) == pytest.approx(-np.log(0.3))
    u, h = 0.3, 1e-4
    assert bernoulli_kl(u + h, u) == pytest.approx(h**2 / (2 * u * (1 - u)), rel=1e-3)


# -- the printed bound --------------------------------------------------------------------------


@pytest.mark.parametrize("constant", [0.0, 1.0, 1e3, 1e9])
def test_no_constant_saves_the_printed_bound_at_the_first_step(constant):
    """R_1 is the mean gap; ln 1 = 0 and k / eps^2 vanishes as eps grows."""
    means = [0.9, 0.1]
    regret = 0.8 * bandits.exact_plays(means, 1)[0, 1]
    assert regret == pytest.approx(0.4)
    epsilon = np.sqrt(2 * (constant + 1) / (0.5 * regret))
    assert thompson.theorem_11_1_printed(means, 1, epsilon, constant) < regret


def test_printed_bound_with_a_fitted_constant_holds_for_moderate_epsilon(settings_of_two_arms):
    """For 0 < eps <= 1 the corrected constant, times eps^2 / k, is one that the O() may hide."""
    means, regret = settings_of_two_arms
    t = np.arange(1, HORIZON + 1)
    for mu, exact in zip(means[:15], regret, strict=False):
        for eps in (0.1, 0.5, 1.0):
            excess = thompson.theorem_11_1_corrected(mu, 1, eps, terms=150)
            constant = float(excess) * eps**2 / 2
            assert (exact <= thompson.theorem_11_1_printed(mu, t, eps, constant) + 1e-9).all()


def test_leading_term_is_the_lai_robbins_constant_times_the_logarithm():
    means = [0.9, 0.8, 0.5]
    slope = 0.1 / bernoulli_kl(0.8, 0.9) + 0.4 / bernoulli_kl(0.5, 0.9)
    assert thompson.lai_robbins_constant(means) == pytest.approx(float(slope))
    value = thompson.theorem_11_1_leading_term(means, [1, 100], [[0.5], [2.0]])
    assert value == pytest.approx(np.outer([1.5, 3.0], [0, np.log(100)]) * slope)


def test_a_certain_arm_makes_the_leading_term_vanish():
    """d(mu_a, 1) is infinite; equal arms have no regret at all."""
    assert thompson.lai_robbins_constant([1.0, 0.5]) == 0
    assert thompson.lai_robbins_constant([0.4, 0.4]) == 0


# -- the corrected bound ------------------------------------------------------------------------


def test_corrected_bound_is_never_violated(settings_of_two_arms):
    means, regret = settings_of_two_arms
    t, cases = np.arange(1, HORIZON + 1), 0
    for mu, exact in zip(means, regret, strict=True):
        for eps in EPSILONS:
            bound = thompson.theorem_11_1_corrected(mu, t, eps, terms=40)
            assert (exact <= bound).all(), (mu, eps)
            cases += t.size
    assert cases >= 10_000


def test_corrected_bound_covers_simulated_runs_of_several_arms():
    means = [0.7, 0.5, 0.5, 0.2]
    arms = bandits.bernoulli_arms(means)
    runs = bandits.thompson_sampling(arms, 500, 200, np.random.default_rng(8), times=[1, 50, 500])
    for eps in EPSILONS:
        bound = thompson.theorem_11_1_corrected(means, runs.times, eps, terms=200)
        assert (runs.mean_regret + 5 * runs.standard_error <= bound).all()


@given(inner, inner, st.floats(1e-3, 100))
@settings(deadline=None)
def test_thresholds_solve_their_equations(u, v, epsilon):
    low, high = sorted((u, v))
    if high - low < 1e-3:
        return
    x, y = thompson.theorem_11_1_thresholds(low, high, epsilon)
    d = bernoulli_kl(low, high)
    assert low < x < y < high
    assert bernoulli_kl(x, high) == pytest.approx(float(d) / np.sqrt(1 + epsilon), rel=1e-6)
    assert bernoulli_kl(x, y) == pytest.approx(float(d) / (1 + epsilon), rel=1e-6, abs=1e-12)


@given(st.floats(0.05, 0.99), st.floats(0.02, 0.98))
@settings(deadline=None, max_examples=60)
def test_terms_agree_with_the_definition_and_lie_below_the_closed_bound(best, share):
    y = best * share
    terms = thompson.young_optimal_arm_terms(best, y, 40)
    for j in (0, 1, 7, 39):
        s = np.arange(j + 1)
        p = stats.beta.sf(y, s + 1, j - s + 1)  # a posterior draw exceeds y
        weight = stats.binom.pmf(s, j, best)
        seen = weight > 0
        assert terms[j] == pytest.approx((weight[seen] * (1 / p[seen] - 1)).sum(), rel=1e-6)
    tail = np.array([thompson.young_optimal_arm_tail(best, y, j) for j in range(41)])
    assert (terms <= (tail[:-1] - tail[1:]) * (1 + 1e-9)).all()  # term by term: (7)


@given(
    st.lists(st.tuples(st.integers(0, 12), st.integers(0, 12)), min_size=2, max_size=4),
    st.floats(0.05, 0.95),
)
@settings(max_examples=40)
def test_a_draw_below_the_threshold_costs_plays_of_the_optimal_arm(pairs, y):
    """First step: P[a played, its draw <= y] <= (1/p - 1) P[optimal arm played]."""
    s, f = np.array(pairs).T + 1.0  # arm 0 is the optimal one
    n = int(s.sum() + f.sum())
    node, weight = np.polynomial.legendre.leggauss(n // 2 + 1)
    x = y * (node + 1) / 2
    below = stats.beta.cdf(x, s[:, None], f[:, None])
    for a in range(1, len(s)):
        others = np.delete(below, a, axis=0).prod(axis=0)
        left = y / 2 * (weight * stats.beta.pdf(x, s[a], f[a]) * others).sum()
        p = stats.beta.sf(y, s[0], f[0])
        played = bandits.choice_probabilities(s - 1, f - 1)[0]
        assert left <= (1 / p - 1) * played * (1 + 1e-9)


@given(st.floats(0.02, 0.9), st.floats(0.02, 1), st.floats(0.02, 1))
@settings(max_examples=40)
def test_a_draw_far_above_the_mean_is_rare(mean, first, second):
    """Second and third step: Chernoff for the draw and for the observed mean."""
    x = mean + first * (0.95 - mean)
    y = x + second * (0.99 - x)
    n = np.arange(1, 400)
    draw = stats.binom.cdf(np.floor(n * x), n + 1, y)  # P[Beta > y] with S = floor(n x)
    assert (draw <= np.exp(-(n + 1) * bernoulli_kl(x, y)) * (1 + 1e-9)).all()
    above = stats.binom.sf(np.floor(n * x), n, mean)
    assert above.sum() <= 1 / np.expm1(float(bernoulli_kl(x, mean))) * (1 + 1e-9)


def test_terms_stay_finite_where_probabilities_underflow():
    terms = thompson.young_optimal_arm_terms(0.9, 0.89, 2_500)
    assert np.isfinite(terms).all()
    assert (terms > 0).all()


def test_more_exact_terms_never_enlarge_the_constant():
    values = [thompson.theorem_11_1_constant(0.4, 0.6, 1.0, terms=n) for n in (1, 10, 100, 1_000)]
    assert (np.diff(values) < 0).all()


def test_second_pair_of_thresholds_gives_the_order_of_one_over_epsilon_squared():
    eps = np.array([1e-1, 1e-2, 1e-3, 1e-4])
    means = [0.2, 0.9, 0.5]
    scaled = np.array([thompson.theorem_11_1_constant_small_epsilon(means, e) * e**2 for e in eps])
    assert (scaled[:, 1] == 0).all()
    assert (np.diff(scaled[:, [0, 2]], axis=0) < 0).all()  # falls to a limit
    assert scaled[2, [0, 2]] == pytest.approx(scaled[3, [0, 2]], rel=0.02)


def test_corrected_bound_takes_the_smaller_constant_and_allows_shared_optima():
    means, eps = [0.9, 0.1], 0.1
    one = thompson.theorem_11_1_constant(0.1, 0.9, eps)
    two = thompson.theorem_11_1_constant_small_epsilon(means, eps)[1]
    assert thompson.theorem_11_1_corrected(means, 1, eps) == pytest.approx(0.8 * min(one, two))
    shared = thompson.theorem_11_1_corrected([0.9, 0.9, 0.1], 1, eps)
    assert shared == pytest.approx(0.8 * one)
    assert thompson.theorem_11_1_corrected([0.5, 0.5], 100, eps) == 0


def test_ucb1_stays_below_its_bound():
    means = [0.9, 0.6, 0.6]
    runs = bandits.ucb1(bandits.bernoulli_arms(means), 2_000, 60, np.random.default_rng(9))
    assert (runs.mean_regret <= thompson.ucb1_bound(means, runs.times)).all()
    assert thompson.ucb1_bound(means, 1) == pytest.approx((1 + np.pi**2 / 3) * 0.6)


# -- bad input ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: bernoulli_kl(1.1, 0.5), r"u must lie in \[0, 1\]"),
        (lambda: bernoulli_kl(0.5, np.nan), "v holds NaN"),
        (lambda: thompson.lai_robbins_constant([]), "non-empty vector"),
        (lambda: thompson.lai_robbins_constant([[0.5]]), "non-empty vector"),
        (lambda: thompson.theorem_11_1_leading_term([0.5], 0.5, 1), "horizon must be at least 1"),
        (lambda: thompson.theorem_11_1_leading_term([0.5], 5, 0), "epsilon must be positive"),
        (lambda: thompson.theorem_11_1_printed([0.5], 5, 1, -1), "constant must not be negative"),
        (lambda: thompson.theorem_11_1_thresholds(0.5, 0.5, 1), "0 <= mean < best < 1"),
        (lambda: thompson.theorem_11_1_thresholds(0.5, 1.0, 1), "0 <= mean < best < 1"),
        (lambda: thompson.theorem_11_1_thresholds(0.5, 0.6, 1e-17), "too close"),
        (lambda: thompson.young_optimal_arm_terms(0.5, 0.6, 5), "0 <= threshold < best < 1"),
        (lambda: thompson.young_optimal_arm_terms(0.5, 0.0, 5), "threshold must be positive"),
        (lambda: thompson.young_optimal_arm_terms(0.5, 0.1, 0), "terms must be at least 1"),
        (lambda: thompson.young_optimal_arm_tail(0.5, 0.0), "threshold must be positive"),
        (lambda: thompson.young_optimal_arm_tail(0.5, 0.1, -1), "start must be at least 0"),
        (lambda: thompson.theorem_11_1_corrected([1.0, 0.5], 5, 1.0), "largest mean must be below"),
        (
            lambda: thompson.theorem_11_1_constant_small_epsilon([0.5, 0.5], 1.0),
            "single largest entry",
        ),
    ],
)
def test_bad_input_is_refused(call, message):
    with pytest.raises(ValueError, match=message):
        call()
