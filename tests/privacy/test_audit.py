"""The audit: exact levels by enumeration, mechanisms whose epsilon is known, broken ones."""

import functools
import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import optimize, stats

from dprl import private_evaluation as private
from dprl.evaluation import lsw
from dprl.features import tabular
from dprl.privacy import Guarantee, gaussian_delta
from dprl.privacy.audit import (
    AuditResult,
    audit_samples,
    epsilon_lower_bound,
    fit_frequencies,
    fit_projection,
    largest_certifiable_epsilon,
    largest_true_positive_rate,
    run_trials,
)
from dprl.trajectories import VisitStatistics

counts = st.integers(1, 400).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n)))
levels = st.floats(1e-6, 0.5)


# -- the bound for a fixed event ---------------------------------------------------------


@pytest.mark.parametrize("delta", [0.0, 0.1])
@pytest.mark.parametrize(("p", "q"), [(0.9, 0.1), (0.5, 0.02), (0.3, 0.3), (0.2, 0.0), (0.1, 0.6)])
def test_the_bound_for_a_fixed_event_keeps_its_level_by_enumeration(p, q, delta):
    """Every outcome of 25 + 30 runs: the bound exceeds ln((p - delta)/q) rarely enough."""
    n, other, confidence = 25, 30, 0.9
    k, l = np.arange(n + 1)[:, None], np.arange(other + 1)
    bound = epsilon_lower_bound(k, n, l, other, delta=delta, confidence=confidence)
    weight = stats.binom.pmf(k, n, p) * stats.binom.pmf(l, other, q)
    true = np.inf if q == 0 and p > delta else np.log(max(p - delta, 1e-300) / max(q, 1e-300))
    assert weight[bound > max(true, 0.0)].sum() <= 1 - confidence + 1e-12


@given(counts, counts, st.floats(0.0, 0.5))
def test_the_bound_is_the_formula_and_never_above_the_most_possible(pair, other, delta):
    (k, n), (l, m) = pair, other
    low = stats.binomtest(k, n).proportion_ci(0.95, "exact").low  # two-sided: a/2 on each side
    high = stats.binomtest(l, m).proportion_ci(0.95, "exact").high
    expected = max(0.0, np.log((low - delta) / high)) if low > delta else 0.0
    bound = epsilon_lower_bound(k, n, l, m, delta=delta)
    assert bound == pytest.approx(expected, abs=1e-9)
    assert bound <= largest_certifiable_epsilon(n, m, delta=delta) + 1e-12


@pytest.mark.parametrize("n", [10, 1000, 10**6])
def test_the_most_possible_is_logarithmic_in_the_runs(n):
    a = 0.05 / 2
    low, high = a ** (1 / n), 1 - a ** (1 / n)  # solve p^n = a/2 and (1 - q)^n = a/2
    most = largest_certifiable_epsilon(n, n, delta=0.0)
    assert most == pytest.approx(np.log(low / high))
    if n >= 1000:
        assert most == pytest.approx(np.log(n / np.log(2 / 0.05)), rel=2e-3)


# -- the region of tests -----------------------------------------------------------------


def worst_mechanism(epsilon, delta):
    """Four outputs whose best tests reach the border of (2) everywhere."""
    p = (1 - delta) * np.array([np.exp(epsilon), 1.0]) / (1 + np.exp(epsilon))
    return np.array([delta, p[0], p[1], 0.0]), np.array([0.0, p[1], p[0], delta])


def best_tests(first, second):
    """Corners (FPR, TPR) of all optimal tests, by Neyman and Pearson."""
    with np.errstate(divide="ignore"):
        order = np.argsort(-np.log(first / np.maximum(second, 1e-300)))
    return (np.concatenate([[0.0], np.cumsum(x[order])]) for x in (second, first))


@given(st.floats(0.01, 8.0), st.floats(0.0, 0.9))
def test_the_region_is_reached_by_the_worst_private_mechanism(epsilon, delta):
    first, second = worst_mechanism(epsilon, delta)
    fpr, tpr = best_tests(first, second)
    x = np.linspace(0, 1, 101)
    reached = np.interp(x, fpr, tpr)
    reached[0] = delta  # interp takes the lower end of the jump at 0
    assert largest_true_positive_rate(x, epsilon, delta) == pytest.approx(reached, abs=1e-9)


@given(st.floats(0.01, 3.0), st.floats(0.0, 0.3))
def test_every_event_of_the_worst_mechanism_is_private(epsilon, delta):
    pair = worst_mechanism(epsilon, delta)
    for inside in itertools.product([False, True], repeat=4):
        for p, q in (pair, pair[::-1]):
            assert p[list(inside)].sum() <= np.exp(epsilon) * q[list(inside)].sum() + delta + 1e-12


def test_the_region_has_the_known_corners():
    assert largest_true_positive_rate([0.0, 1.0], 1.0, 0.1) == pytest.approx([0.1, 1.0])
    assert largest_true_positive_rate(0.5, 0.0, 0.0) == pytest.approx(0.5)
    assert largest_true_positive_rate(0.3, 1e4, 0.0) == pytest.approx(1.0)
    assert largest_true_positive_rate(0.0, 1e4, 0.0) == pytest.approx(0.0)


# -- the whole audit ---------------------------------------------------------------------


def naive_audit(x, y, delta, rng, confidence=0.95):
    """The same split, then every event in turn with scipy's interval."""
    parts = []
    for z in (x, y):
        order = rng.permutation(len(z))
        parts.append((z[order[: len(z) // 2]], z[order[len(z) // 2 :]]))
    (tune, held), (tune_other, held_other) = parts

    def bound(p, q, event):
        k, l = int(event(p).sum()), int(event(q).sum())
        low = stats.binomtest(k, len(p)).proportion_ci(confidence, "exact").low
        high = stats.binomtest(l, len(q)).proportion_ci(confidence, "exact").high
        return np.log((low - delta) / high) if low > delta else -np.inf

    best = (-np.inf, None)
    for t in np.union1d(tune, tune_other):
        for event in (lambda z, t=t: z >= t, lambda z, t=t: z <= t):
            for swap in (False, True):
                pair = (tune_other, tune) if swap else (tune, tune_other)
                found = bound(*pair, event)
                if found > best[0]:
                    best = (found, (event, swap))
    event, swap = best[1]
    pair = (held_other, held) if swap else (held, held_other)
    return max(0.0, bound(*pair, event))


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("delta", [0.0, 0.05])
def test_the_audit_equals_a_naive_one(seed, delta):
    rng = np.random.default_rng(seed)
    x, y = rng.laplace(0.7, 0.5, 80).round(1), rng.laplace(0.0, 0.5, 80).round(1)
    fast = audit_samples(x, y, delta=delta, rng=np.random.default_rng(99))
    slow = naive_audit(x, y, delta, np.random.default_rng(99))
    assert fast.epsilon_lower == pytest.approx(slow, abs=1e-12)


def laplace(epsilon, n, rng):
    return rng.laplace(1.0, 1 / epsilon, n), rng.laplace(0.0, 1 / epsilon, n), epsilon, 0.0


def randomised_response(epsilon, n, rng):
    p = 1 / (1 + np.exp(-epsilon))
    return (rng.random(n) < p) * 1.0, (rng.random(n) < 1 - p) * 1.0, epsilon, 0.0


@functools.cache
def gaussian_epsilon(sigma, delta):
    return optimize.brentq(lambda e: gaussian_delta(1.0, sigma, e) - delta, 0.0, 50.0)


def gaussian(sigma, n, rng):
    delta = 0.01
    epsilon = gaussian_epsilon(sigma, delta)
    return rng.normal(1.0, sigma, n), rng.normal(0.0, sigma, n), epsilon, delta


def the_same(_, n, rng):
    return rng.standard_normal(n), rng.standard_normal(n), 0.0, 0.0


def often_enough(failures, repetitions, level):
    """The failures do not contradict a failure probability of at most ``level``."""
    return stats.binomtest(failures, repetitions, level, alternative="greater").pvalue > 1e-3


@pytest.mark.parametrize("runs", [60, 400])
@pytest.mark.parametrize(
    ("mechanism", "parameter"),
    [(laplace, 0.5), (randomised_response, 1.0), (gaussian, 1.0), (the_same, None)],
)
def test_the_bound_exceeds_the_true_epsilon_no_more_often_than_promised(mechanism, parameter, runs):
    rng, level, repetitions = np.random.default_rng(20231129), 0.2, 100
    failures = 0
    for _ in range(repetitions):
        x, y, true, delta = mechanism(parameter, runs, rng)
        found = audit_samples(x, y, delta=delta, rng=rng, confidence=1 - level)
        failures += found.epsilon_lower > true
    assert often_enough(failures, repetitions, level)


def test_choosing_and_counting_on_the_same_runs_would_break_the_level():
    """The check above can fail: without the split the best of many events looks too good."""
    rng, level, runs, repetitions = np.random.default_rng(5), 0.2, 400, 150
    failures = 0
    for _ in range(repetitions):
        x, y = rng.standard_normal((2, runs))
        t = np.union1d(x, y)
        k, l = (x[:, None] >= t).sum(axis=0), (y[:, None] >= t).sum(axis=0)
        failures += epsilon_lower_bound(k, runs, l, runs, delta=0.0, confidence=1 - level).max() > 0
    assert not often_enough(failures, repetitions, level)


@pytest.mark.parametrize(
    ("mechanism", "parameter", "fraction"),
    [
        (randomised_response, 0.5, 0.9),
        (randomised_response, 2.0, 0.9),
        (laplace, 1.0, 0.9),
        (gaussian, 1.0, 0.85),
    ],
)
def test_with_many_runs_the_bound_comes_close(mechanism, parameter, fraction):
    rng = np.random.default_rng(1934)
    x, y, true, delta = mechanism(parameter, 200_000, rng)
    found = audit_samples(x, y, delta=delta, rng=rng, confidence=0.999)
    assert fraction * true <= found.epsilon_lower <= true


def test_the_order_of_the_inputs_does_not_matter():
    rng = np.random.default_rng(3)
    x, y = (rng.random(4000) < 0.3) * 1.0, np.zeros(4000)  # only P(1) / Q(1) is unbounded
    forward = audit_samples(x, y, delta=0.0, rng=np.random.default_rng(1))
    backward = audit_samples(y, x, delta=0.0, rng=np.random.default_rng(1))
    assert forward.epsilon_lower > 4
    assert backward.epsilon_lower > 4
    assert not forward.swapped
    assert backward.swapped


def test_sorted_samples_are_split_at_random():
    """A split by position would choose on small and count on large outputs."""
    rng = np.random.default_rng(4)
    x, y, true, _ = laplace(1.0, 50_000, rng)
    found = audit_samples(np.sort(x), np.sort(y), delta=0.0, rng=rng)
    assert 0.8 * true < found.epsilon_lower <= true


def test_a_larger_delta_explains_more():
    rng = np.random.default_rng(8)
    x, y = rng.normal(1.0, 1.0, 20_000), rng.normal(0.0, 1.0, 20_000)
    bounds = [
        audit_samples(x, y, delta=d, rng=np.random.default_rng(0)).epsilon_lower
        for d in (0.0, 0.01, 0.1, 0.3, 0.4)
    ]
    assert all(a > b for a, b in itertools.pairwise(bounds[:-1]))
    assert bounds[-1] == 0  # total variation 0.383 < 0.4: nothing is left to explain


def test_uneven_numbers_of_runs():
    rng = np.random.default_rng(9)
    x, y, true, _ = randomised_response(1.0, 60_000, rng)
    found = audit_samples(x, y[:20_000], delta=0.0, rng=rng)
    assert (found.trials, found.trials_other) in [(30_000, 10_000), (10_000, 30_000)]
    assert 0.9 * true < found.epsilon_lower <= true
    assert found.largest_certifiable == pytest.approx(
        float(largest_certifiable_epsilon(30_000, 10_000, delta=0.0)), rel=0.2
    )


def test_same_generator_same_result():
    x, y = np.random.default_rng(2).standard_normal((2, 1000))
    one, two = (audit_samples(x, y, delta=0.0, rng=np.random.default_rng(6)) for _ in range(2))
    assert one == two


# -- scores ------------------------------------------------------------------------------


def test_many_numbers_are_projected_on_the_difference_of_means():
    """Noise in 20 dimensions, the shift in one: the projection finds it."""
    rng = np.random.default_rng(11)
    x, y = rng.standard_normal((2, 40_000, 20))
    x[:, 3] += 1.0
    found = audit_samples(x, y, delta=0.01, rng=rng)
    true = gaussian_epsilon(1.0, 0.01)
    assert 0.7 * true < found.epsilon_lower <= true


def test_the_projection_is_blind_to_a_change_of_the_noise_and_the_likelihood_ratio_is_not():
    rng = np.random.default_rng(12)
    x, y = rng.standard_normal((2, 10_000, 40))
    x *= 1.3
    likelihood_ratio = audit_samples(x, y, delta=0.0, rng=rng, score=lambda z: (z**2).sum(axis=1))
    assert likelihood_ratio.epsilon_lower > 5
    assert audit_samples(x, y, delta=0.0, rng=rng).epsilon_lower < 1


@given(st.lists(st.integers(0, 3), min_size=4, max_size=40), st.data())
def test_frequencies_are_the_smoothed_log_ratio(values, data):
    first = np.array(values)
    second = np.array(data.draw(st.lists(st.integers(0, 3), min_size=4, max_size=40)))
    for a, b, z in (
        (first, second, np.arange(5)),
        (first[:, None], second[:, None], np.arange(5)[:, None]),
    ):
        learnt = np.asarray(fit_frequencies(a, b)(z))
        expected = [
            np.log(((a == v).sum() + 0.5) / (len(a) + 1) / (((b == v).sum() + 0.5) / (len(b) + 1)))
            if v in a or v in b
            else 0.0
            for v in z.ravel()
        ]
        assert learnt == pytest.approx(np.array(expected))


def test_the_projection_of_the_tuning_runs():
    rng = np.random.default_rng(13)
    a, b, z = rng.standard_normal((3, 50, 4, 2))
    expected = [(z[i] * (a.mean(axis=0) - b.mean(axis=0))).sum() for i in range(50)]
    assert np.asarray(fit_projection(a, b)(z)) == pytest.approx(np.array(expected))


# -- broken mechanisms -------------------------------------------------------------------

promise = Guarantee(1.0, 0.0, "replace one record")


def found_out(x, y, seed=0, **options):
    result = audit_samples(
        x, y, delta=0.0, confidence=0.9999, rng=np.random.default_rng(seed), **options
    )
    return result.contradicts(promise)


def test_the_right_noise_is_not_found_out():
    rng = np.random.default_rng(21)
    x, y, _, _ = laplace(1.0, 100_000, rng)
    assert not found_out(x, y)


def test_noise_for_a_mean_on_a_sum_is_found_out():
    """Scale 1/(n epsilon) is that of a mean of n bits; the sum needs 1/epsilon."""
    rng, n = np.random.default_rng(22), 30
    x, y = 10 + rng.laplace(0, 1 / n, 2000), 9 + rng.laplace(0, 1 / n, 2000)
    assert found_out(x, y)


def test_a_forgotten_sensitivity_is_found_out():
    """Values in [0, 5] summed with noise for values in [0, 1]: epsilon is 5."""
    rng = np.random.default_rng(23)
    x, y = 5.0 + rng.laplace(0, 1, 50_000), rng.laplace(0, 1, 50_000)
    result = audit_samples(x, y, delta=0.0, rng=rng)
    assert 3.5 < result.epsilon_lower <= 5.0


def test_seeded_noise_is_found_out():
    def seeded(data, _):
        return sum(data) + np.random.default_rng(0).laplace(0, 1.0)

    rng = np.random.default_rng(24)
    x, y = run_trials(seeded, [1, 1, 0], 400, rng), run_trials(seeded, [1, 0, 0], 400, rng)
    assert found_out(x, y)
    result = audit_samples(x, y, delta=0.0, rng=rng)
    assert result.epsilon_lower == pytest.approx(result.largest_certifiable)


def test_rounding_the_noise_and_not_the_answer_is_found_out_by_frequencies_only():
    """Answers 3/7 and 2/7 plus a whole number: the fraction tells the input."""
    rng = np.random.default_rng(25)
    x, y = (a + np.round(rng.laplace(0, 3.0, 20_000)) for a in (3 / 7, 2 / 7))
    assert found_out(x.round(9), y.round(9), fit=fit_frequencies)
    assert not found_out(x, y)  # every threshold keeps the promise


def test_noise_in_proportion_to_the_local_sensitivity_is_found_out():
    """A median of bits: nothing can move it for one input, so its noise is 0."""

    def median(data, rng):
        x = sorted(data)
        local = 0.0 if x[0] == x[2] else 1.0
        return x[1] + local * rng.laplace(0, 1.0)

    rng = np.random.default_rng(26)
    x, y = (run_trials(median, data, 2000, rng) for data in ([0, 0, 0], [0, 0, 1]))
    assert found_out(x, y, score=lambda z: -np.abs(z))


def test_dp_lsw_without_clipping_is_found_out_and_with_clipping_not():
    """One state, 3000 visits, declared range [0, 1], one neighbour with the return 100."""
    rng, n, trials = np.random.default_rng(27), 3000, 20_000
    promised = Guarantee(0.1, 0.1, private.NEIGHBOURS)
    noise = private.LSW(tabular(1), [1.0], f_max=1.0).noise([n], epsilon=0.1, delta=0.1).sigma
    returns = np.zeros(n)
    neighbour = np.append(np.zeros(n - 1), 100.0)
    for clip, caught in ((np.inf, True), (1.0, False)):
        theta = [
            lsw(VisitStatistics([n], [np.minimum(r, clip).mean()], n), tabular(1), [1.0])
            for r in (returns, neighbour)
        ]
        samples = [t + noise * rng.standard_normal((trials, 1)) for t in theta]
        result = audit_samples(*samples, delta=0.1, confidence=0.9999, rng=rng)
        assert result.contradicts(promised) is caught


# -- the result, bad input ---------------------------------------------------------------


def test_a_promise_with_a_larger_delta_cannot_be_contradicted():
    result = audit_samples(np.zeros(100), np.ones(100), delta=0.0, rng=np.random.default_rng(0))
    with pytest.raises(ValueError, match="larger delta"):
        result.contradicts(Guarantee(1.0, 0.1, "replace one record"))
    with pytest.raises(TypeError, match="guarantee must be a Guarantee"):
        result.contradicts(1.0)
    # an audit at a larger delta may contradict a promise with a smaller one
    strict = audit_samples(np.zeros(100), np.ones(100), delta=0.2, rng=np.random.default_rng(0))
    assert strict.contradicts(promise)


def test_the_result_says_what_it_means():
    result = audit_samples(np.zeros(100), np.ones(100), delta=0.0, rng=np.random.default_rng(0))
    assert isinstance(result, AuditResult)
    assert "epsilon >= " in str(result)
    assert "can certify at most" in str(result)
    assert (result.count, result.count_other) == (50, 0)


ok = np.zeros(10)


@pytest.mark.parametrize(
    ("arguments", "options", "message"),
    [
        ((ok, np.zeros((10, 2))), {}, "same shape"),
        ((0.0, ok), {}, "first axis"),
        ((ok[:3], ok), {}, "at least two runs"),
        ((ok, ok), {"delta": -0.1}, "delta must lie"),
        ((ok, ok), {"delta": 1.0}, "delta must lie"),
        ((ok, ok), {"confidence": 1.0}, "confidence must lie"),
        ((ok, ok * np.nan), {}, "NaN or infinite"),
        ((ok, ok), {"score": lambda z: z.sum()}, "one number for each"),
        ((ok, ok), {"score": lambda z: z * np.nan}, "NaN"),
        ((ok, ok), {"score": lambda z: ["a"] * len(z)}, "one number for each"),
        ((ok, ok), {"score": lambda z: z, "fit": fit_projection}, "not both"),
        ((np.array([{}] * 9), np.array([{}] * 9)), {"fit": fit_frequencies}, "objects"),
    ],
)
def test_bad_input_is_refused(arguments, options, message):
    with pytest.raises(ValueError, match=message):
        audit_samples(*arguments, **{"delta": 0.0, "rng": np.random.default_rng(0)} | options)


def test_a_seed_is_no_generator():
    with pytest.raises(TypeError, match="rng must be"):
        audit_samples(ok, ok, delta=0.0, rng=1)
    with pytest.raises(TypeError, match="rng must be"):
        run_trials(lambda d, r: 0.0, None, 3, 1)
    with pytest.raises(ValueError, match="trials must be at least 1"):
        run_trials(lambda d, r: 0.0, None, 0, np.random.default_rng(0))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: epsilon_lower_bound(1, 5, 1, 5, delta=0.0, confidence=0.0), "confidence must"),
        (lambda: largest_true_positive_rate(1.1, 1.0, 0.0), "false_positive_rate must lie"),
        (lambda: largest_true_positive_rate(0.1, -1.0, 0.0), "epsilon must not be negative"),
        (lambda: largest_true_positive_rate(0.1, 1.0, 1.0), "delta must lie"),
    ],
)
def test_bad_parameters_are_refused(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_infinite_scores_are_allowed():
    """Outputs that only one input can give have an infinite likelihood ratio."""
    x, y = np.zeros(100), np.ones(100)
    found = audit_samples(
        x, y, delta=0.0, rng=np.random.default_rng(0), score=lambda z: np.where(z, -np.inf, np.inf)
    )
    assert found.epsilon_lower == pytest.approx(found.largest_certifiable)


def test_no_overflow_where_a_rate_is_tiny():
    assert largest_true_positive_rate(1e-310, 1_000.0, 0.0) == 1.0
    assert largest_true_positive_rate(0.0, 1_000.0, 0.0) == 0.0
