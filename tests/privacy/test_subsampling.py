"""Amplification, composition and calibration against enumeration, the library and each other."""

import itertools
import math

import numpy as np
import pytest
from dp_accounting.pld import common, privacy_loss_distribution
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from dprl.privacy import (
    advanced_composition,
    amplified,
    amplified_elementary,
    amplified_printed,
    base_guarantee,
    base_guarantee_optimal,
    base_guarantee_printed,
    composed,
    composed_printed,
    inversion_printed,
    optimal_composition_delta,
    optimal_composition_epsilon,
)

epsilons = st.floats(1e-4, 6.0)
deltas = st.floats(1e-9, 0.5)
fractions = st.floats(1e-5, 1.0)
counts = st.integers(1, 3000)


@st.composite
def sizes(draw):
    """n, m, k with 1 <= k <= n."""
    n = draw(st.integers(1, 10**6))
    return n, draw(counts), draw(st.integers(1, n))


def hockey_stick(p, q, epsilon):
    """Largest P(O) - e^epsilon Q(O), both orders, over the last axis."""
    one, other = (np.maximum(a - np.exp(epsilon) * b, 0).sum(-1) for a, b in ((p, q), (q, p)))
    return np.maximum(one, other)


# -- one sub-sample -----------------------------------------------------------------------


def replacements(values, size):
    """Pairs of multisets of that size that differ in one record."""
    sets = list(itertools.combinations_with_replacement(range(values), size))
    for one, other in itertools.combinations(sets, 2):
        common_part = sum(min(one.count(v), other.count(v)) for v in range(values))
        if common_part == size - 1:
            yield one, other


def subsampled(kernel, records, size):
    """Output distribution of the kernel on a uniform sub-sample, by listing the sub-samples."""
    parts = [kernel[part] for part in itertools.combinations(records, size)]
    return np.mean(parts, axis=0)


@pytest.mark.parametrize(("n", "k"), [(2, 1), (4, 1), (4, 2), (5, 3), (4, 4)])
def test_no_explicit_mechanism_leaks_more_than_the_exact_pair(n, k):
    rng = np.random.default_rng(100 * n + k)
    universe, outputs = 3, 4
    for sharpness in (0.3, 1.0, 3.0):
        for _ in range(4):
            kernel = {
                part: rng.dirichlet(np.full(outputs, 1 / sharpness))
                for part in itertools.combinations_with_replacement(range(universe), k)
            }
            base = [(kernel[a], kernel[b]) for a, b in replacements(universe, k)]
            whole = [
                (subsampled(kernel, a, k), subsampled(kernel, b, k))
                for a, b in replacements(universe, n)
            ]
            for epsilon in (0.0, 0.2, 1.0, 2.5):
                delta = max(hockey_stick(p, q, epsilon) for p, q in base)
                step, step_delta = amplified(epsilon, delta, k / n)
                leak = max(hockey_stick(p, q, step) for p, q in whole)
                assert leak <= step_delta + 1e-12


@given(epsilons, deltas, st.integers(1, 30), st.data())
def test_the_exact_pair_is_attained(epsilon, delta, n, data):
    """Say, through a randomised response, whether a certain record is in the sub-sample."""
    k = data.draw(st.integers(1, n))
    p = np.exp(epsilon) / (1 + np.exp(epsilon))
    absent = np.array([0, p, 1 - p, 0]) * (1 - delta) + np.array([delta, 0, 0, 0])
    present = np.array([0, 1 - p, p, 0]) * (1 - delta) + np.array([0, 0, 0, delta])
    q = k / n
    mixture = (1 - q) * absent + q * present
    step, step_delta = amplified(epsilon, delta, q)
    leak = np.maximum(mixture - np.exp(step) * absent, 0).sum()
    assert leak == pytest.approx(step_delta, rel=1e-9, abs=1e-14)
    smaller = np.maximum(mixture - np.exp(step * (1 - 1e-3)) * absent, 0).sum()
    assert smaller > step_delta


@given(epsilons, deltas, fractions)
def test_the_three_pairs_are_ordered(epsilon, delta, fraction):
    exact, d = amplified(epsilon, delta, fraction)
    printed, d_printed = amplified_printed(epsilon, delta, fraction)
    elementary, d_elementary = amplified_elementary(epsilon, delta, fraction)
    assert exact <= printed * (1 + 1e-12)
    assert exact <= elementary * (1 + 1e-12)
    assert d == d_printed
    assert d <= d_elementary


@given(epsilons, deltas, fractions)
def test_formulas_as_written(epsilon, delta, fraction):
    e = math.exp(epsilon)
    assert amplified(epsilon, delta, fraction) == pytest.approx(
        (math.log(1 + fraction * (e - 1)), fraction * delta), rel=1e-9
    )
    assert amplified_printed(epsilon, delta, fraction) == pytest.approx(
        (fraction * (e - 1), fraction * delta), rel=1e-9
    )
    assert amplified_elementary(epsilon, delta, fraction) == pytest.approx(
        (math.log(1 + fraction * e * (e - 1)), fraction * e * delta), rel=1e-9
    )


def test_the_printed_pairs_are_not_ordered_among_themselves():
    """Neither Lemma 4.10 nor the pair inside (4.7)-(4.8) implies the other."""
    assert amplified_printed(0.1, 0.0, 0.1)[0] < amplified_elementary(0.1, 0.0, 0.1)[0]
    assert amplified_printed(5.0, 0.0, 0.9)[0] > amplified_elementary(5.0, 0.0, 0.9)[0]


def test_the_whole_data_set_amplifies_nothing():
    assert amplified(0.7, 1e-3, 1.0) == pytest.approx((0.7, 1e-3))


def test_very_large_and_very_small_epsilon():
    assert amplified(1e-12, 0.0, 0.1)[0] == pytest.approx(1e-13)
    assert amplified(1000.0, 0.0, 0.1)[0] == pytest.approx(1000 + math.log(0.1))
    assert amplified_printed(1000.0, 0.0, 0.1)[0] == math.inf
    assert amplified_elementary(1000.0, 0.0, 0.1) == pytest.approx((2000 + math.log(0.1), 0.0))


# -- composition --------------------------------------------------------------------------


def worst_pair(epsilon, delta):
    """The (epsilon, delta)-private pair that every other one is a function of."""
    p = np.exp(epsilon) / (1 + np.exp(epsilon))
    one = np.array([delta, (1 - delta) * p, (1 - delta) * (1 - p), 0])
    return one, one[::-1]


@pytest.mark.parametrize(
    ("epsilon", "delta", "m"),
    [(0.5, 0.0, 12), (2.0, 0.0, 11), (0.1, 0.0, 1), (0.7, 0.05, 7), (1.5, 1e-3, 8), (0.0, 0.1, 6)],
)
def test_composition_against_every_outcome(epsilon, delta, m):
    one, other = worst_pair(epsilon, delta)
    if delta == 0:
        one, other = one[1:3], other[1:3]
    p, q = np.ones(1), np.ones(1)
    for _ in range(m):
        p, q = np.outer(p, one).ravel(), np.outer(q, other).ravel()
    for target in (0.0, 0.3, 0.5 * m * epsilon, 0.9 * m * epsilon, m * epsilon, 100.0):
        expected = np.maximum(p - np.exp(target) * q, 0).sum()
        found = optimal_composition_delta(epsilon, delta, m, target)
        assert found == pytest.approx(expected, rel=1e-9, abs=1e-12)


@pytest.mark.parametrize(("epsilon", "delta", "m"), [(0.02, 1e-7, 500), (0.3, 0.0, 40)])
def test_composition_against_the_accounting_library(epsilon, delta, m):
    pld = privacy_loss_distribution.from_privacy_parameters(
        common.DifferentialPrivacyParameters(epsilon, delta), value_discretization_interval=epsilon
    ).self_compose(m)
    for target in (0.0, 0.4, 1.0, 2.0, 6.0):
        expected = pld.get_delta_for_epsilon(target)
        found = optimal_composition_delta(epsilon, delta, m, target)
        assert found == pytest.approx(expected, rel=1e-6, abs=1e-12)


@pytest.mark.parametrize(
    ("epsilon", "m", "target", "expected"),
    [  # 60-digit arithmetic
        (0.1, 100, 3.0, "0.0013613986948416379"),
        (1e-3, 2**20, 1.0, "0.13546007339138303"),
        (1e-3, 2**20, 9.0, "6.785677328253103e-18"),
        (3e-4, 2**20, 1.5, "6.404101246333473e-08"),
        (1e-5, 2**20, 0.01, "0.0008963760734825503"),
        (5.0, 1000, 4995.0, "0.0012039960190142341"),
    ],
)
def test_composition_against_long_arithmetic(epsilon, m, target, expected):
    found = optimal_composition_delta(epsilon, 0.0, m, target)
    ratio = found / float(expected) - 1
    assert 0.9e-10 < ratio < 1.1e-10  # rounded up by 1e-10, and otherwise exact


@given(epsilons, deltas, st.integers(1, 400), st.floats(1e-6, 0.5))
def test_advanced_composition_never_promises_more_than_is_possible(epsilon, delta, m, slack):
    step = epsilon / m
    total, total_delta = advanced_composition(step, delta / m, m, slack)
    assert optimal_composition_delta(step, delta / m, m, total) <= total_delta * (1 + 1e-9)


def test_advanced_composition_as_written():
    e, m, s = 0.03, 50, 1e-4
    expected = e * math.sqrt(2 * m * math.log(1 / s)) + m * e * (math.exp(e) - 1)
    assert advanced_composition(e, 1e-6, m, s) == pytest.approx((expected, m * 1e-6 + s))


@given(epsilons, st.floats(0, 1e-3), st.integers(1, 300), st.floats(1e-12, 0.4))
def test_epsilon_is_the_inverse_from_above(epsilon, delta, m, target):
    found = optimal_composition_epsilon(epsilon, delta, m, target)
    if math.isinf(found):
        assert 1 - (1 - delta) ** m > target * (1 - 1e-9)
        return
    assert optimal_composition_delta(epsilon, delta, m, found) <= target
    if found > 0:
        below = optimal_composition_delta(epsilon, delta, m, found * (1 - 1e-7))
        assert below > target


@given(epsilons, deltas, counts, st.floats(0, 3))
def test_composition_is_monotone(epsilon, delta, m, target):
    def total(e, d, count, t):
        return optimal_composition_delta(e, d, count, t)

    here = total(epsilon, delta, m, target)
    assert 0 <= here <= 1
    for there in (
        total(epsilon * 1.1, delta, m, target),
        total(epsilon, delta * 1.1, m, target),
        total(epsilon, delta, m + 1, target),
        total(epsilon, delta, m, target * 0.9),
    ):
        assert there >= here * (1 - 1e-9)


def test_one_release_and_basic_composition():
    assert optimal_composition_delta(0.4, 1e-5, 1, 0.4) == pytest.approx(1e-5)
    assert optimal_composition_delta(0.4, 0.0, 10, 4.0) == 0
    assert optimal_composition_epsilon(0.4, 0.0, 3, 1e-9) <= 1.2
    assert optimal_composition_delta(0.0, 0.1, 3, 0.0) == pytest.approx(1 - 0.9**3)
    assert optimal_composition_epsilon(0.0, 0.0, 1000, 0.1) == 0


def test_epsilon_zero_needs_the_total_variation():
    """m releases of randomised response: at eps* = 0 the distance of two binomials."""
    p = np.exp(0.2) / (1 + np.exp(0.2))
    mass = [math.comb(9, j) * p**j * (1 - p) ** (9 - j) for j in range(10)]
    distance = np.maximum(np.array(mass) - mass[::-1], 0).sum()
    assert optimal_composition_delta(0.2, 0.0, 9, 0.0) == pytest.approx(distance, rel=1e-9)


# -- both together ------------------------------------------------------------------------


@given(st.floats(1e-3, 3.0), deltas, sizes(), st.floats(1e-9, 0.9))
def test_the_forward_map_as_written_and_never_better_than_the_exact_one(e, delta, nmk, slack):
    n, m, k = nmk
    y = k / n * math.exp(e) * (math.exp(e) - 1)
    big_l = math.log(1 / slack)
    expected = (m * y + math.sqrt(2 * m * big_l)) * math.log1p(y)
    printed = composed_printed(e, delta, n, m, k, slack)
    assert printed == pytest.approx((expected, delta * m * k / n * math.exp(e) + slack), rel=1e-9)
    better = composed(e, delta, n, m, k, slack)
    assert better[0] <= printed[0] * (1 + 1e-12)
    assert better[1] <= printed[1]


@given(sizes(), st.floats(1e-4, 0.9), st.floats(0.01, 0.99), st.floats(1e-3, 2.0))
@settings(max_examples=300)
def test_both_inversions_keep_the_promise(nmk, delta, part, share_of_limit):
    n, m, k = nmk
    slack = part * delta
    epsilon = share_of_limit * 4 * math.log(1 / slack)
    for inverse, forward in (
        (base_guarantee_printed, composed_printed),
        (base_guarantee, composed),
    ):
        e, d = inverse(epsilon, delta, n, m, k, slack, refused="nan")
        if math.isnan(e):
            continue
        total, total_delta = forward(e, d, n, m, k, slack)
        assert total <= epsilon * (1 + 1e-12)
        assert total_delta == pytest.approx(delta, rel=1e-12)
        # and what advanced composition grants, the optimal one confirms
        step = amplified(e, d, k / n)
        assert optimal_composition_delta(*step, m, epsilon) <= delta * (1 + 1e-9)


def test_the_condition_of_the_printed_inversion_cannot_be_weakened():
    """With many sub-samples the bound eps*/2 + eps*^2/(8 ln(1/delta')) is attained."""
    slack, n = 0.9, 10**6
    limit = 4 * math.log(1 / slack)
    for factor, keeps in ((0.99, True), (1.01, False)):
        target = factor * limit
        e, _ = inversion_printed(target, 0.95, n, 10**9, n, slack)
        assert (composed_printed(e, 0.0, n, 10**9, n, slack)[0] <= target) is keeps
        e, _ = base_guarantee(target, 0.95, n, 10**9, n, slack)  # no condition
        assert composed(e, 0.0, n, 10**9, n, slack)[0] <= target


@given(sizes(), st.floats(0.01, 2.0), st.floats(1e-9, 0.3))
def test_the_better_closed_form_gains_between_one_and_two_and_a_third(nmk, epsilon, delta):
    n, m, k = nmk
    better = base_guarantee(epsilon, delta, n, m, k, refused="nan")
    printed = base_guarantee_printed(epsilon, delta, n, m, k, refused="nan")
    assume(not math.isnan(better[0]) and not math.isnan(printed[0]))
    assert printed[0] * (1 - 1e-12) <= better[0] <= 2.34 * printed[0]
    assert better[1] == pytest.approx(printed[1] * math.exp(printed[0]))


def test_the_better_closed_form_uses_up_nearly_all_of_the_bound():
    e, d = base_guarantee(1.0, 1e-5, 10_000, 464, 464)
    assert composed(e, d, 10_000, 464, 464, 5e-6)[0] == pytest.approx(1.0, rel=0.01)


def test_the_inversion_as_written():
    epsilon, delta, n, m, k, slack = 0.8, 1e-4, 5000, 30, 700, 3e-5
    x = n * epsilon / (k * math.sqrt(8 * m * math.log(1 / slack)))
    root = 0.5 + math.sqrt(0.25 + x)
    expected = (math.log(root), n * (delta - slack) / (m * k) / root)
    assert inversion_printed(epsilon, delta, n, m, k, slack) == pytest.approx(expected)
    assert base_guarantee_printed(epsilon, delta, n, m, k, slack) == pytest.approx(expected)
    y = max(np.roots([m, math.sqrt(2 * m * math.log(1 / slack)), -epsilon]))
    expected = (math.log(1 + n * y / k), n * (delta - slack) / (m * k))
    assert base_guarantee(epsilon, delta, n, m, k, slack) == pytest.approx(expected)


def test_the_default_slack_is_half_of_delta():
    sizes_ = {"n": 1000, "m": 5, "k": 400}
    for inverse in (base_guarantee, base_guarantee_printed):
        assert inverse(0.5, 1e-3, **sizes_) == inverse(0.5, 1e-3, **sizes_, slack=5e-4)


@given(sizes(), st.floats(0.05, 2.0), st.floats(1e-8, 0.2))
@settings(max_examples=40)
def test_the_optimal_guarantee_keeps_the_promise_and_uses_it_up(nmk, epsilon, delta):
    n, m, k = nmk
    e, d = base_guarantee_optimal(epsilon, delta, n, m, k)
    step, step_delta = amplified(e, d, k / n)
    used = optimal_composition_delta(step, step_delta, m, epsilon)
    assert delta * (1 - 1e-4) < used <= delta
    assert 0 <= d < 1
    closed = base_guarantee(epsilon, delta, n, m, k, refused="nan")
    if not math.isnan(closed[0]):
        same_delta = base_guarantee_optimal(epsilon, delta, n, m, k, closed[1])
        assert same_delta[0] >= closed[0]
        noise = [math.sqrt(math.log(1.25 / b)) / a for a, b in ((e, d), closed)]
        assert noise[0] <= noise[1] * (1 + 1e-6)


def test_the_optimal_split_beats_a_fine_grid():
    epsilon, delta, n, m, k = 0.5, 1e-4, 10_000, 64, 900

    def noise(e, d):
        return math.sqrt(math.log(2 / d)) / e

    found = noise(*base_guarantee_optimal(epsilon, delta, n, m, k, noise=noise))
    most = delta * n / (m * k)
    grid = [
        noise(*base_guarantee_optimal(epsilon, delta, n, m, k, share * most))
        for share in np.linspace(0.005, 0.995, 200)
    ]
    assert found <= min(grid) * (1 + 1e-4)


def test_one_sub_sample_of_everything_is_the_promise_or_something_more_lenient():
    e, d = base_guarantee_optimal(1.0, 1e-5, 100, 1, 100)
    assert (e, d) == pytest.approx((1.0, 1e-5))
    e, d = base_guarantee_optimal(1e-4, 0.1, 100, 1, 100)  # delta dominates: much more lenient
    assert e > 0.1
    assert optimal_composition_delta(e, d, 1, 1e-4) <= 0.1


def test_a_base_without_delta():
    e, d = base_guarantee_optimal(1.0, 1e-5, 10_000, 16, 2500, 0.0)
    assert d == 0
    found = optimal_composition_delta(*amplified(e, 0.0, 0.25), 16, 1.0)
    assert found == pytest.approx(1e-5, rel=1e-6)


def test_grids_are_the_scalar_functions_cell_by_cell():
    m, k = np.array([1, 4, 64])[:, None], np.array([1, 20, 1000])
    for function, arguments in (
        (composed, (0.3, 1e-6, 1000)),
        (composed_printed, (0.3, 1e-6, 1000)),
        (inversion_printed, (0.3, 1e-6, 1000)),
        (base_guarantee, (0.3, 1e-3, 1000)),
        (base_guarantee_printed, (0.3, 1e-3, 1000)),
    ):
        got = function(*arguments, m, k, 4e-7)
        for a, b in itertools.product(range(3), range(3)):
            expected = function(*arguments, int(m[a, 0]), int(k[b]), 4e-7)
            assert (got[0][a, b], got[1][a, b]) == expected
    assert isinstance(amplified(1.0, 0.1, 0.5)[0], float)


def test_refused_cells_become_nan_on_request_only():
    k = np.array([10, 1000])
    e, d = base_guarantee(0.5, 0.1, 1000, 1, k, refused="nan")
    assert np.isnan(e).tolist() == np.isnan(d).tolist() == [True, False]
    with pytest.raises(ValueError, match="base delta would be 1 or more"):
        base_guarantee(0.5, 0.1, 1000, 1, k)


# -- bad input ----------------------------------------------------------------------------


@pytest.mark.parametrize("inverse", [base_guarantee, base_guarantee_printed])
def test_conditions_of_the_inversion(inverse):
    with pytest.raises(ValueError, match="slack must be below delta"):
        inverse(0.5, 0.1, 1000, 100, 500, 0.1)
    with pytest.raises(ValueError, match="1 or more"):
        inverse(1e-6, 0.1, 1000, 1, 10)
    with pytest.raises(ValueError, match="refused"):
        inverse(0.5, 0.1, 1000, 100, 500, refused="ignore")
    inverse(1.5, 0.1, 1000, 100, 500)  # eps* above 1 is fine where 4 ln(1/delta') allows it


def test_only_the_printed_inversion_limits_epsilon():
    arguments = (0.5, 0.95, 1000, 100, 500, 0.9)
    with pytest.raises(ValueError, match=r"4 ln\(1/slack\)"):
        base_guarantee_printed(*arguments)
    assert composed(*base_guarantee(*arguments), *arguments[2:])[0] <= 0.5


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ((0.0, 0.1, 10, 1, 5), "epsilon must be positive"),
        ((0.1, 1.0, 10, 1, 5), "delta must lie strictly between"),
        ((0.1, 0.1, 10, 0, 5), "m must be at least 1"),
        ((0.1, 0.1, 10, 1, 0), "k must be at least 1"),
        ((0.1, 0.1, 10, 1, 11), "k must not exceed n"),
        ((0.1, 0.1, 10, 1.5, 5), "m must be integers"),
        ((0.1, 0.1, 10, True, 5), "m must be integers"),
        ((np.nan, 0.1, 10, 1, 5), "epsilon"),
    ],
)
def test_sizes_and_targets(arguments, error):
    for function in (base_guarantee, base_guarantee_printed):
        with pytest.raises((TypeError, ValueError), match=error):
            function(*arguments)


@pytest.mark.parametrize(
    ("call", "error"),
    [
        (lambda: amplified(-1.0, 0.0, 0.5), "epsilon must not be negative"),
        (lambda: amplified(1.0, 1.1, 0.5), r"delta must lie in \[0, 1\]"),
        (lambda: amplified(1.0, 0.1, 0.0), "fraction"),
        (lambda: amplified(1.0, 0.1, 1.5), "fraction"),
        (lambda: advanced_composition(0.1, 0.0, 5, 1.0), "slack"),
        (lambda: advanced_composition(0.1, 0.0, 5.0, 0.1), "m must be integers"),
        (lambda: optimal_composition_delta(0.1, 1.0, 5, 0.1), r"delta must lie in \[0, 1\)"),
        (lambda: optimal_composition_delta(0.1, 0.0, 0, 0.1), "m must be at least 1"),
        (lambda: optimal_composition_delta(0.1, 0.0, 5, -0.1), "target_epsilon"),
        (lambda: optimal_composition_epsilon(0.1, 0.0, 5, 0.0), "target_delta"),
        (lambda: base_guarantee_optimal(0.1, 0.1, 10, 4, 10, 0.05), "already costs"),
        (lambda: base_guarantee_optimal(0.1, 0.1, 10, 4, 10, 1.0), "base_delta must lie"),
        (lambda: base_guarantee_optimal(0.1, 0.1, 10, 4, 10, -0.1), "base_delta must lie"),
        (lambda: base_guarantee_optimal(0.1, 0.1, 10, 4, 11), "k must not exceed n"),
        (
            lambda: base_guarantee_optimal(0.1, 0.1, 10, 4, 5, 1e-3, noise=lambda e, d: 1 / e),
            "not both",
        ),
    ],
)
def test_bad_input(call, error):
    with pytest.raises((TypeError, ValueError), match=error):
        call()


def test_the_base_of_a_huge_epsilon_is_finite():
    """exp(epsilon) is no floating-point number; q = 1/2 adds ln 2."""
    base, _ = base_guarantee_optimal(750.0, 1e-5, n=10, m=1, k=5)
    assert 750 < base <= 750 + np.log(2)
