"""Penalties against enumeration, laws against loops and quadrature, bounds against their defining
inequalities, then bad input."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import integrate, stats

from dprl import stopping
from dprl.privacy import laplace_density

NAN = float("nan")
ALPHA, BETA = 0.5, 0.5
START = 29  # N(1/2, 1/2)


def signs_of(n, rng, runs=None):
    return stopping.fair_signs(n if runs is None else (runs, n), rng)


# -- penalties -----------------------------------------------------------------------------


def naive_finite(losses, signs):
    return [
        max(
            abs(sum(s * f for s, f in zip(signs[:n], column[:n], strict=True)))
            for column in np.asarray(losses).T
        )
        for n in range(1, len(signs) + 1)
    ]


def naive_thresholds(points, signs, labels):
    """All thresholds between and beyond the points, one by one."""
    cuts = [*sorted(set(points)), max(points) + 1]
    out = []
    for n in range(1, len(points) + 1):
        sums = [
            sum(
                s * ((x >= t) != y)
                for x, s, y in zip(points[:n], signs[:n], labels[:n], strict=True)
            )
            for t in cuts
        ]
        out.append(max(map(abs, sums)))
    return out


def naive_subsets(atoms, signs):
    kinds = sorted({a for a in atoms if a >= 0})
    out = []
    for n in range(1, len(atoms) + 1):
        sums = [
            sum(s for a, s in zip(atoms[:n], signs[:n], strict=True) if a in chosen)
            for size in range(len(kinds) + 1)
            for chosen in itertools.combinations(kinds, size)
        ]
        out.append(max(map(abs, sums)))
    return out


stream = st.lists(
    st.tuples(st.integers(0, 5), st.sampled_from([-1, 1]), st.integers(0, 1)),
    min_size=1,
    max_size=12,
)


@settings(max_examples=60, deadline=None)
@given(stream)
def test_sums_are_those_of_all_functions_of_the_class(rows):
    points, signs, labels = (list(v) for v in zip(*rows, strict=True))
    found = stopping.threshold_sums(points, signs, labels)
    assert found.tolist() == naive_thresholds(points, signs, labels)
    plain = stopping.threshold_sums(points, signs)
    assert plain.tolist() == naive_thresholds(points, signs, [0] * len(points))
    assert stopping.threshold_penalty(points, signs, labels) == found[-1]
    assert stopping.threshold_penalty(points, signs) == plain[-1]
    atoms = [p - 1 for p in points]  # -1: in no set
    assert stopping.subset_sums(atoms, signs).tolist() == naive_subsets(atoms, signs)
    losses = np.array([[p % 2, p % 3 == 0, y] for p, y in zip(points, labels, strict=True)])
    assert stopping.finite_class_sums(losses, signs).tolist() == naive_finite(losses, signs)


@pytest.mark.parametrize("n", [1, 2, 3, 64, 65, 300])
def test_the_path_of_thresholds_is_one_sort_after_the_other(n):
    rng = np.random.default_rng(n)
    points, signs = rng.normal(size=n).round(1), signs_of(n, rng)
    labels = rng.integers(0, 2, n)
    path = stopping.threshold_sums(points, signs, labels)
    one_by_one = [
        stopping.threshold_penalty(points[:i], signs[:i], labels[:i]) for i in range(1, n + 1)
    ]
    assert path.tolist() == one_by_one


def test_runs_share_no_state():
    rng = np.random.default_rng(3)
    points, signs = rng.integers(0, 7, (5, 40)), signs_of(40, rng, 5)
    labels = rng.integers(0, 2, (5, 40))
    together = stopping.threshold_sums(points, signs, labels)
    assert (
        together == [stopping.threshold_sums(*r) for r in zip(points, signs, labels, strict=True)]
    ).all()
    one = stopping.threshold_sums(points[0], signs, labels[0])
    assert (one == [stopping.threshold_sums(points[0], s, labels[0]) for s in signs]).all()
    assert (
        stopping.subset_sums(points[0], signs)[2] == stopping.subset_sums(points[0], signs[2])
    ).all()
    losses = rng.integers(0, 2, (5, 40, 3))
    several = stopping.finite_class_sums(losses, signs)
    alone = [stopping.finite_class_sums(f, s) for f, s in zip(losses, signs, strict=True)]
    assert (several == alone).all()
    assert (
        stopping.finite_class_sums(losses[1], signs)[4]
        == stopping.finite_class_sums(losses[1], signs[4])
    ).all()


def test_sets_of_atoms_take_one_stream_for_each_run():
    rng = np.random.default_rng(12)
    atoms, signs = rng.integers(-1, 6, (7, 50)), signs_of(50, rng, 7)
    found = stopping.subset_sums(atoms, signs)
    alone = [stopping.subset_sums(a, s) for a, s in zip(atoms, signs, strict=True)]
    assert (found == alone).all()
    same = [stopping.subset_sums(a, signs[0]) for a in atoms]
    assert (stopping.subset_sums(atoms, signs[0]) == same).all()


def test_thresholds_on_a_grid_are_a_finite_class():
    rng = np.random.default_rng(8)
    cell, labels, signs = rng.integers(0, 9, 200), rng.integers(0, 2, 200), signs_of(200, rng)
    losses = (cell[:, None] >= np.arange(10)) != labels[:, None]
    finite = stopping.finite_class_sums(losses, signs)
    assert (stopping.threshold_sums(cell, signs, labels) == finite).all()


@settings(max_examples=60, deadline=None)
@given(stream, st.data())
def test_one_observation_moves_each_sum_by_at_most_one_and_none_before_it(rows, data):
    points, signs, labels = (np.array(v) for v in zip(*rows, strict=True))
    i = data.draw(st.integers(0, points.size - 1))
    new, other = points.copy(), labels.copy()
    new[i], other[i] = data.draw(st.integers(0, 5)), data.draw(st.integers(0, 1))
    losses, replaced = (np.stack([p % 2, p % 3 == 0], axis=1) for p in (points, new))
    pairs = [
        (
            stopping.threshold_sums(points, signs, labels),
            stopping.threshold_sums(new, signs, other),
        ),
        (stopping.subset_sums(points - 1, signs), stopping.subset_sums(new - 1, signs)),
        (
            stopping.finite_class_sums(losses, signs),
            stopping.finite_class_sums(replaced, signs),
        ),
    ]
    for one, two in pairs:
        assert np.abs(one - two).max() <= 1
        assert (one[:i] == two[:i]).all()


def all_signs(n):
    return np.array(list(itertools.product([-1, 1], repeat=n)))


@pytest.mark.parametrize("k", [1, 2, 5])
def test_massart_constant_bounds_the_mean_penalty(k):
    rng = np.random.default_rng(k)
    for n in (1, 4, 9):
        for _ in range(10):
            losses = rng.integers(0, 2, (n, k))
            mean = stopping.finite_class_sums(losses, all_signs(n))[:, -1].mean()
            assert mean <= stopping.penalty_constant(k) * math.sqrt(n)


@pytest.mark.parametrize("m", [1, 2, 6])
def test_subset_constant_bounds_the_mean_penalty(m):
    rng = np.random.default_rng(m)
    for n in (1, 4, 9):
        for _ in range(10):
            atoms = rng.integers(-1, m, n)
            mean = stopping.subset_sums(atoms, all_signs(n))[:, -1].mean()
            assert mean <= stopping.subset_penalty_constant(m) * math.sqrt(n)


# -- sample sizes ---------------------------------------------------------------------------


@given(st.floats(0.01, 2), st.floats(1e-6, 0.999))
def test_initial_sample_size_is_the_least_that_keeps_the_union_bound(alpha, beta):
    n = stopping.initial_sample_size(alpha, beta)
    assert stopping.deviation_failure(alpha, n) <= beta * (1 + 1e-9)
    if n > 1:
        assert stopping.deviation_failure(alpha, n - 1) >= beta * (1 - 1e-9)


def test_initial_sample_size_is_the_printed_formula():
    for a, b, n in ((0.1, 0.05, 1798), (0.1, 0.1, 1660), (0.2, 0.05, 381), (0.05, 0.01, 9587)):
        printed = math.ceil(2 / a**2 * math.log(2 / (b * (1 - math.exp(-(a**2) / 2)))))
        assert stopping.initial_sample_size(a, b) == printed == n


def noise_tail(x, eps):
    """Pr[rho - nu > x], equation (3) of the sample sizes."""
    return 2 / 3 * np.exp(-eps * x / 4) - np.exp(-eps * x / 2) / 6


@pytest.mark.parametrize("eps", [0.2, 1.0, 3.0])
def test_noise_tail_is_the_tail_of_the_difference(eps):
    def integrand(r, x):  # rho - nu > x, given rho: nu < rho - x
        return float(laplace_density(r, 2 / eps)) * stats.laplace.cdf(r - x, scale=4 / eps)

    for x in (0.0, 0.7, 5.0, 40.0):
        tail = sum(
            integrate.quad(integrand, *ends, args=(x,), epsabs=1e-13, limit=200)[0]
            for ends in ((-200 / eps, 0), (0, x), (x, x + 200 / eps))
        )
        assert noise_tail(x, eps) == pytest.approx(tail, rel=1e-8)
    assert noise_tail(0.0, eps) == 0.5


@given(st.floats(0.01, 1), st.integers(1, 10_000), st.floats(1e-4, 100), st.floats(1e-6, 0.99))
def test_noise_allowance_solves_its_equation_and_covers_the_tail(alpha, start, eps, failure):
    kappa = stopping.noise_allowance(alpha, start, eps, failure)
    x = eps * kappa * alpha / 4
    assert start * x + math.log(-math.expm1(-x)) == pytest.approx(
        math.log(2 / 3 / failure), rel=1e-9, abs=1e-9
    )
    n = np.arange(start, start + 2_000)
    assert noise_tail(kappa * alpha * n, eps).sum() <= failure * (1 + 1e-9)


def test_usefulness_factor_is_5_without_noise_and_grows_as_epsilon_falls():
    rule = (0.1, 0.05, 64)
    assert stopping.usefulness_factor(*rule, 1e9, 1e9) == pytest.approx(5, abs=1e-6)
    found = [stopping.usefulness_factor(*rule, e, e) for e in (10, 1, 0.1, 0.01)]
    assert found == sorted(found)
    # in each of its two parts it is of the order 1/eps
    for part in ((1e-5, 1e9), (1e9, 1e-5)):
        one = stopping.usefulness_factor(*rule, *part) - 5
        two = stopping.usefulness_factor(*rule, part[0] / 10, part[1] / 10) - 5
        assert two / one == pytest.approx(10, rel=1e-4)
    n = stopping.initial_sample_size(0.1, 0.05)
    choice = 2 * math.log(64 / 0.02) / (0.3 * 0.1 * n)
    assert stopping.usefulness_factor(*rule, 1e12, 0.3, extra=0.04) == pytest.approx(5 + choice)
    noise = stopping.noise_allowance(0.1, n, 0.3, 0.02)
    assert stopping.usefulness_factor(*rule, 0.3, 1e12, extra=0.04) == pytest.approx(5 + 2 * noise)


def test_printed_factors_have_epsilon_upside_down():
    n = stopping.initial_sample_size(0.1, 0.05)
    eps = np.array([1e-3, 1.0])
    assert stopping.usefulness_factor_printed(0.1, 0.05, eps) == pytest.approx(
        5 + 3 * eps / 0.1 / n
    )
    assert stopping.efficiency_factor_printed(0.1, 0.05, eps) == pytest.approx(
        6 + 3 * eps / 0.1 / n
    )
    assert stopping.efficiency_factor(0.1, 0.05, 1e-3) > stopping.efficiency_factor(0.1, 0.05, 1.0)


def test_efficiency_factor_leaves_room_for_the_noise():
    for beta in (0.01, 0.3, 0.6):
        for eps in (0.01, 1.0):
            kappa = stopping.efficiency_factor(0.1, beta, eps) - 6
            n = stopping.initial_sample_size(0.1, beta)
            assert 0.7 * beta < noise_tail(kappa * 0.1 * n, eps) <= beta
    assert stopping.efficiency_factor(0.1, 0.9, 1.0) == 6


@given(st.floats(0.01, 3), st.floats(1e-6, 0.999))
def test_lateness_is_hardly_more_than_the_failure_of_the_opponent(alpha, beta):
    found, n = stopping.lateness(alpha, beta), stopping.initial_sample_size(alpha, beta)
    assert beta < found <= (1 + alpha**2 / 4) * beta
    later = np.exp(-2 * alpha**2 * np.arange(n, n + 200_000)).sum()
    assert found == pytest.approx(beta + math.exp(-n * alpha**2 / 2) + later, rel=1e-9)


@pytest.mark.parametrize("tolerance", [0.05, 0.5, 1.5])
def test_fixed_sizes_are_the_least_that_keep_their_inequality(tolerance):
    for constant in (0.0, 1.3, 40.0):
        n = stopping.fixed_sample_size(tolerance, 0.05, constant)
        needed = 2 * constant + math.sqrt(2 * math.log(20))
        assert needed / math.sqrt(n) <= tolerance * (1 + 1e-12)
        assert n == 1 or needed / math.sqrt(n - 1) > tolerance * (1 - 1e-12)
    for eps in (0.01, 1.0, math.inf):
        n = stopping.fixed_private_sample_size(tolerance, 0.05, 64, eps)

        def error(n, eps=eps):
            return math.sqrt(2 * math.log(63 / 0.025) / n) + 2 * math.log(64 / 0.025) / (eps * n)

        assert error(n) <= tolerance * (1 + 1e-12)
        assert n == 1 or error(n - 1) > tolerance * (1 - 1e-12)


@pytest.mark.parametrize("eps", [0.02, 0.5, 50.0])
def test_sequential_size_keeps_the_promise_and_hardly_less_would(eps):
    n = stopping.sequential_private_sample_size(0.5, 0.05, 64, eps, eps)
    alphas = np.geomspace(0.001, 0.1, 4_000)
    sizes = np.array([stopping.initial_sample_size(a, 0.025) for a in alphas])
    kept = [a * stopping.usefulness_factor(a, 0.025, 64, eps, eps) <= 0.5 for a in alphas]
    assert n <= sizes[kept].min() <= n * 1.01 + 1
    assert n >= stopping.initial_sample_size(0.1, 0.025)


def test_packing_limit():
    assert stopping.packing_limit(0.1, 100, 0.05) == pytest.approx(math.exp(10) / 0.95)
    assert stopping.packing_limit(1.0, 10_000, 0.5) == math.inf


# -- rules ----------------------------------------------------------------------------------


def naive_stop(sums, draw_threshold, draw_noise, margin):
    """One run at a time is another order of random numbers: so all runs step by step."""
    runs, n = sums.shape
    bar, out = [draw_threshold() for _ in range(runs)], [0] * runs
    for i in range(START, n + 1):
        for r in range(runs):
            if not out[r] and margin(sums[r, i - 1], i) + draw_noise() < bar[r]:
                out[r] = i
    return out


@pytest.mark.parametrize("seed", range(5))
def test_rules_are_the_lines_of_the_algorithm(seed):
    rng = np.random.default_rng(seed)
    sums = np.abs(np.cumsum(signs_of(60, rng, 20), axis=1)) + np.arange(60) // 3
    eps = 0.2
    assert stopping.stop_without_privacy(sums, ALPHA, BETA).tolist() == naive_stop(
        sums, lambda: 0.0, lambda: 0.0, lambda s, n: s - ALPHA * n
    )

    def compare(found, threshold, noise, margin):
        loop = np.random.default_rng(7)
        slow = naive_stop(sums, lambda: threshold(loop), lambda: noise(loop), margin)
        assert found.tolist() == slow
        assert np.count_nonzero(found) > 0

    compare(
        stopping.stop_printed(sums, ALPHA, BETA, eps, "one draw", np.random.default_rng(7)),
        lambda rng: rng.laplace(scale=1 / eps),
        lambda rng: 0.0,
        lambda s, n: s - ALPHA * (n + 1),
    )
    compare(
        stopping.stop_printed(sums, ALPHA, BETA, eps, "fresh draws", np.random.default_rng(7)),
        lambda rng: 0.0,
        lambda rng: -rng.laplace(scale=1 / eps),
        lambda s, n: s - ALPHA * (n + 1),
    )
    compare(
        stopping.stop_privately(sums, ALPHA, BETA, eps, np.random.default_rng(7)),
        lambda rng: rng.laplace(scale=2 / eps),
        lambda rng: rng.laplace(scale=4 / eps),
        lambda s, n: s - ALPHA * n,
    )


def test_stops_have_the_shape_of_the_runs():
    rng = np.random.default_rng(0)
    for shape in ((40,), (3, 40), (2, 3, 40)):
        sums = np.zeros(shape)
        assert stopping.stop_without_privacy(sums, ALPHA, BETA).shape == shape[:-1]
        assert stopping.stop_privately(sums, ALPHA, BETA, 1.0, rng).shape == shape[:-1]
        for reading in stopping.READINGS:
            found = stopping.stop_printed(sums, ALPHA, BETA, 1.0, reading, rng)
            assert found.shape == shape[:-1]


def test_no_stop_is_zero():
    never = np.full((3, 40), 1e9)
    rng = np.random.default_rng(0)
    assert not stopping.stop_without_privacy(never, ALPHA, BETA).any()
    assert not stopping.stop_privately(never, ALPHA, BETA, 1.0, rng).any()
    for reading in stopping.READINGS:
        assert not stopping.stop_printed(never, ALPHA, BETA, 1.0, reading, rng).any()


# -- laws -------------------------------------------------------------------------------------


def path(rng, checks=8, top=25):
    return np.r_[np.zeros(START - 1), rng.integers(0, top, checks)]


def law_of(rule, sums, eps):
    if rule == "private":
        return stopping.private_law(sums, ALPHA, BETA, eps)
    return stopping.printed_law(sums, ALPHA, BETA, eps, rule)


@pytest.mark.parametrize("rule", [*stopping.READINGS, "private"])
@pytest.mark.parametrize("eps", [0.1, 1.0])
def test_laws_agree_with_the_rules(rule, eps):
    rng = np.random.default_rng(11)
    runs = 40_000
    for _ in range(3):
        sums = path(rng)
        many = np.broadcast_to(sums, (runs, sums.size))
        if rule == "private":
            stops = stopping.stop_privately(many, ALPHA, BETA, eps, rng)
        else:
            stops = stopping.stop_printed(many, ALPHA, BETA, eps, rule, rng)
        law = law_of(rule, sums, eps)
        assert law.sum() == pytest.approx(1, abs=1e-12)
        seen = np.array([(stops == n).sum() for n in [*range(START, sums.size + 1), 0]])
        error = np.sqrt(runs * law * (1 - law)) + 1e-9
        assert (np.abs(seen - runs * law) < 5 * error + 3).all()


@pytest.mark.parametrize("eps", [0.3, 2.0])
def test_private_law_agrees_with_quadrature(eps):
    sums = path(np.random.default_rng(2), checks=5)
    margin = sums[START - 1 :] - ALPHA * np.arange(START, sums.size + 1)
    law = stopping.private_law(sums, ALPHA, BETA, eps)
    kinks = [-150 / eps, *sorted({0.0, *margin}), 150 / eps]

    def integrand(r, i):
        value = stats.laplace.pdf(r, scale=2 / eps) * stats.laplace.cdf(
            r - margin[i], scale=4 / eps
        )
        return value * np.prod([stats.laplace.sf(r - m, scale=4 / eps) for m in margin[:i]])

    for i in range(margin.size):
        parts = [
            integrate.quad(integrand, a, b, args=(i,), epsabs=0, epsrel=1e-11, limit=200)[0]
            for a, b in itertools.pairwise(kinks)
        ]
        assert law[i] == pytest.approx(sum(parts), rel=1e-8)


def test_laws_take_paths_together():
    rng = np.random.default_rng(4)
    sums = np.stack([path(rng) for _ in range(6)]).reshape(2, 3, -1)
    for rule in (*stopping.READINGS, "private"):
        together = law_of(rule, sums, 0.5)
        assert together.shape == (2, 3, sums.shape[-1] - START + 2)
        assert together[1, 2] == pytest.approx(law_of(rule, sums[1, 2], 0.5), rel=1e-12)


def test_many_checks_are_still_integrated_well():
    """Steep products: the mass must come out, and one long path end as a short one begins."""
    sums = np.zeros(400)
    law = stopping.private_law(sums, ALPHA, BETA, 0.05)
    assert law.sum() == pytest.approx(1, abs=1e-12)
    short = stopping.private_law(sums[:40], ALPHA, BETA, 0.05)
    assert law[:12] == pytest.approx(short[:12], rel=1e-10)


# -- privacy of the stop ------------------------------------------------------------------------


def test_one_draw_fails_in_closed_form():
    eps, n = 0.1, np.arange(START, 61)
    zeros = np.zeros(60)
    other = np.r_[np.zeros(START), np.ones(60 - START)]  # from draw N + 1 on
    law, law_other = (stopping.printed_law(s, ALPHA, BETA, eps, "one draw") for s in (zeros, other))
    below = np.exp(-eps * ALPHA * (n + 1)) / 2
    assert law[0] == pytest.approx(1 - below[0], rel=1e-12)
    assert law[1:-1] == pytest.approx(below[:-1] - below[1:], rel=1e-12)
    assert law_other[1] == 0
    assert law_other[2] == 0  # the threshold falls by alpha = 1/2 a step
    assert stopping.largest_loss(law, law_other) == math.inf
    # the poster's own update, without a class and without an absolute value
    signed = [np.r_[np.zeros(START), np.full(60 - START, s)] for s in (-1, 1)]
    mixture = np.mean(
        [stopping.printed_law(s, ALPHA, BETA, eps, "one draw") for s in signed], axis=0
    )
    ratio = math.expm1(-eps * (1 + ALPHA)) / (2 * math.expm1(-eps * ALPHA))
    assert mixture[1] / law[1] == pytest.approx(ratio, rel=1e-10)


def test_fresh_draws_fail_in_closed_form():
    eps, checks = 1.0, 8
    zeros, ones = np.zeros(START - 1 + checks), np.ones(START - 1 + checks)
    law, other = (stopping.printed_law(s, ALPHA, BETA, eps, "fresh draws") for s in (zeros, ones))
    n = START + np.arange(checks)
    go_on = np.exp(-eps * ALPHA * (n + 1)) / 2
    for t in range(checks):
        ratio = math.exp(t * eps) * (1 - math.exp(eps) * go_on[t]) / (1 - go_on[t])
        assert other[t] / law[t] == pytest.approx(ratio, rel=1e-9)
    assert stopping.largest_loss(law, other) > 7 * eps


margins = st.lists(st.integers(0, 40), min_size=1, max_size=7)


@settings(max_examples=60, deadline=None)
@given(margins, st.data(), st.sampled_from([0.1, 1.0, 3.0]))
def test_private_stop_keeps_its_promise_on_all_neighbouring_paths(sums, data, eps):
    moves = data.draw(st.lists(st.integers(-1, 1), min_size=len(sums), max_size=len(sums)))
    before = np.zeros(START - 1)
    one = stopping.private_law(np.r_[before, sums], ALPHA, BETA, eps)
    two = stopping.private_law(np.r_[before, np.add(sums, moves)], ALPHA, BETA, eps)
    assert stopping.largest_loss(one, two) <= eps * (1 + 1e-9)


@settings(max_examples=60, deadline=None)
@given(margins, st.sampled_from([-1, 1]), st.sampled_from([0.1, 1.0]))
def test_one_draw_is_enough_for_a_common_shift(sums, move, eps):
    one, two = (
        stopping.printed_law(np.r_[np.zeros(START - 1), s], ALPHA, BETA, eps, "one draw")
        for s in (np.array(sums), np.array(sums) + move)
    )
    assert stopping.largest_loss(one, two) <= eps * (1 + 1e-9)


def known_signs_pair(rounds, level):
    """Two functions, one observation replaced: S' = S + 1, and at the last draw S' = S - 1."""
    rows, signs = [(0, 0)], [1]
    for _ in range(level):
        rows += [(1, 0), (0, 1)]
        signs += [1, -1]
    rows += [(0, 0)] * (START - 1 - len(rows))
    signs += [1] * (START - 1 - len(signs))
    for _ in range(rounds):
        rows += [(1, 0), (0, 1)]
        signs += [1, -1]
    rows.append((1, 1))
    signs.append(-1)
    other = [(1, 1), *rows[1:]]
    return np.array(rows), np.array(other), np.array(signs)


def test_the_budget_of_the_private_stop_is_used_up_if_the_signs_are_known():
    rows, other, signs = known_signs_pair(rounds=20, level=2)
    one, two = (stopping.finite_class_sums(f, signs) for f in (rows, other))
    move = two - one
    assert (move[START - 1 : -1] == 1).all()
    assert move[-1] == -1
    eps = 1.0
    laws = [stopping.private_law(s, ALPHA, BETA, eps) for s in (one, two)]
    assert 0.99 * eps < stopping.largest_loss(*laws) <= eps * (1 + 1e-9)


# -- the choice ---------------------------------------------------------------------------------


def test_choice_has_the_law_of_the_exponential_mechanism():
    rng = np.random.default_rng(0)
    totals, eps, runs = np.array([3, 0, 1, 7]), 0.8, 40_000
    weight = np.exp(-eps / 2 * totals)
    law = stopping.exponential_mechanism(totals, eps)
    assert law == pytest.approx(weight / weight.sum(), rel=1e-12)
    seen = np.bincount(stopping.choose(np.tile(totals, (runs, 1)), eps, rng), minlength=4)
    assert (np.abs(seen - runs * law) < 5 * np.sqrt(runs * law * (1 - law))).all()
    assert stopping.choose(totals, eps, rng).shape == ()
    assert stopping.exponential_mechanism([0, 10_000], 5.0).tolist() == [1.0, 0.0]


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(1, 30), min_size=1, max_size=6), st.data(), st.floats(0.01, 3))
def test_choice_keeps_its_promise(totals, data, eps):
    moves = data.draw(st.lists(st.integers(-1, 1), min_size=len(totals), max_size=len(totals)))
    one, two = (stopping.exponential_mechanism(t, eps) for t in (totals, np.add(totals, moves)))
    assert stopping.largest_loss(one, two) <= eps * (1 + 1e-9)


def test_printed_choice_needs_twice_its_budget():
    eps = 1.0
    far = [np.array([0, 40]), np.array([1, 39])]
    right = stopping.largest_loss(*(stopping.exponential_mechanism(t, eps) for t in far))
    printed = stopping.largest_loss(*(stopping.exponential_mechanism(t, 2 * eps) for t in far))
    assert right == pytest.approx(eps, abs=1e-8)
    assert printed == pytest.approx(2 * eps, abs=1e-8)


# -- the whole algorithm --------------------------------------------------------------------------

RULE = {"alpha": ALPHA, "beta": BETA}


def losses_of(rng, n=80, k=4):
    return rng.random((n, k)) < np.linspace(0.1, 0.9, k)


def test_release_is_signs_stop_and_choice():
    losses = losses_of(np.random.default_rng(1))
    for seed in range(20):
        release = stopping.private_sequential_learning(
            losses, **RULE, epsilon_stop=0.2, epsilon_choice=0.3, rng=np.random.default_rng(seed)
        )
        rng = np.random.default_rng(seed)
        sums = stopping.finite_class_sums(losses, stopping.fair_signs((1, 80), rng))
        (when,) = stopping.stop_privately(sums, ALPHA, BETA, 0.2, rng)
        n = when or 80
        assert (release.samples, release.stopped) == (n, bool(when))
        assert release.chosen == stopping.choose(losses[None, :n].sum(axis=1), 0.3, rng)[0]
        assert release.guarantee.epsilon == 0.5
        assert release.guarantee.delta == 0
        assert release.guarantee.neighbours == stopping.NEIGHBOURS


def test_what_comes_after_the_stop_does_not_matter():
    rng = np.random.default_rng(5)
    losses = losses_of(rng)
    options = {**RULE, "epsilon_stop": 0.5, "epsilon_choice": 0.5}
    first = stopping.private_sequential_learning(losses, **options, rng=np.random.default_rng(9))
    changed = losses.copy()
    changed[first.samples :] = ~changed[first.samples :]
    again = stopping.private_sequential_learning(changed, **options, rng=np.random.default_rng(9))
    assert first == again
    assert first.samples < len(losses)


def test_one_stream_or_one_for_each_run():
    losses = losses_of(np.random.default_rng(2))

    def go(losses, **more):
        rng = np.random.default_rng(6)
        return stopping.private_sequential_runs(
            losses, **RULE, epsilon_stop=1, epsilon_choice=1, rng=rng, **more
        )

    one = go(losses, runs=30)
    each = go(np.broadcast_to(losses, (30, *losses.shape)))
    assert (one.samples == each.samples).all()
    assert (one.chosen == each.chosen).all()
    assert (one.stopped == each.stopped).all()


def test_the_choice_uses_the_observations_up_to_the_stop_and_no_other():
    losses = np.zeros((60, 2), dtype=int)
    losses[START - 1, 0] = losses[START, 1] = 1  # at N: 1 against 0; before and after: a tie
    for many in ({"losses": losses, "runs": 50}, {"losses": np.tile(losses, (50, 1, 1))}):
        out = stopping.private_sequential_runs(
            **many, **RULE, epsilon_stop=1e6, epsilon_choice=1e6, rng=np.random.default_rng(0)
        )
        assert (out.samples == START).all()
        assert (out.chosen == 1).all()


def test_a_stream_that_ends_is_used_up():
    rng = np.random.default_rng(0)
    pairs = np.repeat(np.eye(2, dtype=int), [1, 1], axis=0)
    losses = np.tile(pairs, (20, 1))[:START]
    out = stopping.private_sequential_runs(
        losses, **RULE, epsilon_stop=0.01, epsilon_choice=1, runs=200, rng=rng
    )
    assert set(out.samples.tolist()) == {START}
    assert 0 < out.stopped.sum() < 200


# -- what two laws tell ---------------------------------------------------------------------------


def test_pair_delta_is_the_worst_event():
    rng = np.random.default_rng(3)
    for _ in range(20):
        p, q = rng.dirichlet(np.ones(4), 2)
        for eps in (0.0, 0.5):
            events = itertools.chain.from_iterable(
                itertools.combinations(range(4), size) for size in range(5)
            )
            worst = max(
                max(
                    p[list(e)].sum() - math.exp(eps) * q[list(e)].sum(),
                    q[list(e)].sum() - math.exp(eps) * p[list(e)].sum(),
                )
                for e in events
            )
            assert stopping.pair_delta(p, q, eps) == pytest.approx(worst, abs=1e-12)
        assert stopping.pair_delta(p, q, stopping.largest_loss(p, q)) == pytest.approx(0, abs=1e-12)
    assert stopping.largest_loss([1.0, 0.0], [1.0, 0.0]) == 0


# -- bad input -------------------------------------------------------------------------------------

RNG = np.random.default_rng(0)
ZEROS = np.zeros(40)
FLAT = np.zeros((40, 2))


def stop(**change):
    given = {"sums": ZEROS, "alpha": ALPHA, "beta": BETA, "epsilon": 1.0, "rng": RNG}
    return stopping.stop_privately(**{**given, **change})


def printed(**change):
    given = {"sums": ZEROS, "alpha": ALPHA, "beta": BETA, "epsilon": 1.0, "reading": "one draw"}
    return stopping.stop_printed(**{**given, "rng": RNG, **change})


def learn(**change):
    given = {"losses": FLAT, **RULE, "epsilon_stop": 1.0, "epsilon_choice": 1.0, "rng": RNG}
    return stopping.private_sequential_learning(**{**given, **change})


BAD = {
    "no function": (
        lambda: stopping.finite_class_sums(np.zeros((3, 0)), [1, 1, 1]),
        "one function",
    ),
    "no observation": (
        lambda: stopping.finite_class_sums(np.zeros((0, 2)), [1]),
        "one observation",
    ),
    "loss of 2": (lambda: stopping.finite_class_sums([[2]], [1]), "losses must hold only 0 and 1"),
    "loss NaN": (lambda: stopping.finite_class_sums([[NAN]], [1]), "losses holds NaN"),
    "losses a vector": (lambda: stopping.finite_class_sums([1, 0], [1, 1]), r"shape \(n, k\)"),
    "sign 0": (lambda: stopping.finite_class_sums([[1]], [0]), "only -1 and 1"),
    "sign of text": (lambda: stopping.finite_class_sums([[1]], ["+"]), "signs must be an array"),
    "signs too few": (lambda: stopping.finite_class_sums([[1], [0]], [1]), "signs must fit"),
    "signs of other runs": (
        lambda: stopping.finite_class_sums(np.zeros((3, 2, 1)), np.ones((2, 2))),
        "signs must fit",
    ),
    "no point": (lambda: stopping.threshold_sums([], [1]), "points must have shape"),
    "point infinite": (lambda: stopping.threshold_sums([math.inf], [1]), "points holds NaN or inf"),
    "points too many": (lambda: stopping.threshold_sums([1, 2], [1]), "agree in length"),
    "label 2": (lambda: stopping.threshold_sums([1], [1], [2]), "labels must hold only 0 and 1"),
    "labels too few": (lambda: stopping.threshold_sums([1, 2], [1, 1], [1]), "agree in length"),
    "points of other runs": (
        lambda: stopping.threshold_sums(np.zeros((2, 3)), np.ones((4, 3))),
        "agree in length and in runs",
    ),
    "penalty of a matrix": (
        lambda: stopping.threshold_penalty(np.zeros((2, 3)), np.ones((2, 3))),
        "must be vectors",
    ),
    "atoms of floats": (lambda: stopping.subset_sums([0.5], [1]), "whole numbers"),
    "no atoms": (lambda: stopping.subset_sums([], [1]), "whole numbers of shape"),
    "atoms of other runs": (
        lambda: stopping.subset_sums(np.zeros((2, 3), int), np.ones((4, 3))),
        "signs must fit",
    ),
    "atoms too few": (lambda: stopping.subset_sums([1], [1, 1]), "signs must fit"),
    "alpha 0": (lambda: stop(alpha=0.0), "alpha must be positive"),
    "alpha negative": (lambda: learn(alpha=-0.1), "alpha must be positive"),
    "beta 1": (lambda: stop(beta=1.0), "beta must lie strictly between 0 and 1"),
    "beta 0": (lambda: stopping.initial_sample_size(0.1, 0.0), "beta must lie strictly"),
    "epsilon 0": (lambda: stop(epsilon=0.0), "epsilon must be positive"),
    "epsilon NaN": (lambda: printed(epsilon=NAN), "epsilon must be finite"),
    "stream too short": (lambda: stop(sums=np.zeros(28)), r"at least N\(alpha, beta\) = 29"),
    "stream a number": (lambda: stop(sums=3.0), "at least N"),
    "sums NaN": (lambda: printed(sums=np.full(40, NAN)), "sums holds NaN"),
    "unknown reading": (lambda: printed(reading="two draws"), "reading must be one of one draw"),
    "unknown reading of a law": (
        lambda: stopping.printed_law(ZEROS, ALPHA, BETA, 1.0, "fresh"),
        "reading must be one of",
    ),
    "law without budget": (
        lambda: stopping.private_law(ZEROS, ALPHA, BETA, -1.0),
        "epsilon must be positive",
    ),
    "no budget for the stop": (lambda: learn(epsilon_stop=0.0), "epsilon_stop must be positive"),
    "no budget for the choice": (lambda: learn(epsilon_choice=-1.0), "epsilon_choice must be pos"),
    "three axes for one release": (
        lambda: learn(losses=np.zeros((2, 40, 2))),
        r"losses must have shape \(n, k\)",
    ),
    "runs for many streams": (
        lambda: stopping.private_sequential_runs(
            np.zeros((2, 40, 2)), **RULE, epsilon_stop=1, epsilon_choice=1, rng=RNG, runs=2
        ),
        "together with runs",
    ),
    "no runs for one stream": (
        lambda: stopping.private_sequential_runs(
            FLAT, **RULE, epsilon_stop=1, epsilon_choice=1, rng=RNG
        ),
        "together with runs",
    ),
    "no totals": (lambda: stopping.choose(np.zeros((2, 0)), 1.0, RNG), "one number per function"),
    "negative totals": (lambda: stopping.exponential_mechanism([-1, 2], 1.0), "not be negative"),
    "allowed failure 0": (
        lambda: stopping.noise_allowance(0.1, 10, 1.0, 0.0),
        "failure must lie strictly",
    ),
    "empty class": (
        lambda: stopping.usefulness_factor(0.1, 0.1, 0, 1.0, 1.0),
        "class_size must be at least 1",
    ),
    "class of one for the choice": (
        lambda: stopping.fixed_private_sample_size(0.5, 0.05, 1, 1.0),
        "class_size must be at least 2",
    ),
    "negative constant": (
        lambda: stopping.fixed_sample_size(0.5, 0.05, -1.0),
        "constant must not be negative",
    ),
    "printed factor without epsilon": (
        lambda: stopping.usefulness_factor_printed(0.1, 0.05, [1.0, 0.0]),
        "epsilon must be positive",
    ),
    "laws of two lengths": (lambda: stopping.largest_loss([1.0], [0.5, 0.5]), "same outcomes"),
    "law that does not sum": (lambda: stopping.pair_delta([0.5], [0.5], 1.0), "sum to one"),
    "negative epsilon of a pair": (
        lambda: stopping.pair_delta([1.0], [1.0], -1.0),
        "epsilon must not be negative",
    ),
}


@pytest.mark.parametrize(("call", "words"), BAD.values(), ids=BAD.keys())
def test_bad_input_is_a_clear_error(call, words):
    with pytest.raises(ValueError, match=words):
        call()


@pytest.mark.parametrize(
    "call",
    [
        lambda: stopping.initial_sample_size("0.1", 0.05),
        lambda: stopping.deviation_failure(0.1, 2.0),
        lambda: stopping.subset_penalty_constant(2.5),
        lambda: stopping.packing_limit(0.1, 1.5, 0.1),
        lambda: stopping.fair_signs(3, 0),
        lambda: stop(rng=1),
        lambda: printed(rng=None),
        lambda: learn(rng=np.random.RandomState(0)),
        lambda: stopping.choose([1, 2], 1.0, "seed"),
    ],
)
def test_wrong_types_are_type_errors(call):
    with pytest.raises(TypeError):
        call()


def test_a_refused_release_draws_no_number():
    rng = np.random.default_rng(3)
    for change in ({"alpha": 0.0}, {"epsilon_choice": 0.0}, {"epsilon_stop": 0.0}, {"beta": 2.0}):
        with pytest.raises(ValueError, match="must"):
            learn(**change, rng=rng)
    with pytest.raises(ValueError, match="at least N"):
        learn(losses=np.zeros((10, 2)), rng=rng)
    assert rng.random() == np.random.default_rng(3).random()


def test_a_pair_with_disjoint_laws_has_a_delta_at_every_epsilon():
    assert stopping.pair_delta([0.5, 0.5], [0, 1], 1_000.0) == 0.5
