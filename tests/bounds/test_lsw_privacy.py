"""Privacy of DP-LSW: bounds against exact sensitivities, and the smallest smooth bound."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dprl.bounds import lsw_privacy as bounds
from dprl.evaluation import lsw
from dprl.features import aggregation, tabular
from dprl.privacy import GaussianSmoothing
from dprl.private_evaluation import LSW, lsw_smooth_bound, return_spread
from dprl.trajectories import FirstVisitReturns, VisitStatistics

RANGES = [(0.0, 1.0), (0.0, 100.0), (-1.0, 1.0), (-3.0, 0.5), (0.5, 2.0)]
seeds = st.integers(0, 2**32 - 1)


def neighbours(rng, pairs, m, n, low, high):
    """Random batches with returns in [low, high], often at its ends, and neighbours of them.

    Returns counts and averages of X, the same of X', counts of the m - 1 common trajectories,
    and which states x or x' visits.
    """

    def draw(*shape):
        ends = rng.choice([low, high], size=shape)
        return np.where(rng.random(shape) < 0.6, ends, rng.uniform(low, high, size=shape))

    visited = rng.random((pairs, m, n)) < rng.random((pairs, 1, n)) ** 2
    returns = np.where(visited, draw(pairs, m, n), 0.0)
    new_visited = rng.random((pairs, n)) < 0.6
    new = np.where(new_visited, draw(pairs, n), 0.0)

    def averages(common, returns_of_one, visits_of_one):
        counts = common.sum(axis=1) + visits_of_one
        sums = returns[:, 1:].sum(axis=1) + returns_of_one
        return counts, sums / np.maximum(counts, 1)

    common = visited[:, 1:]
    x = averages(common, returns[:, 0], visited[:, 0])
    other = averages(common, new, new_visited)
    return x, other, common.sum(axis=1), visited[:, 0] | new_visited


def distance(first, second, w):
    return np.sqrt((w * (first - second) ** 2).sum(axis=-1))


# 3.4 and 3.5


@pytest.mark.parametrize("span", RANGES)
@pytest.mark.parametrize("m", [1, 2, 6])
def test_no_pair_of_neighbours_violates_the_corrected_bounds(span, m):
    rng = np.random.default_rng(m)
    low, high = span
    w = rng.random(4) + 0.01
    x, other, common, touched = neighbours(rng, 10_000, m, 4, low, high)
    moved = distance(x[1], other[1], w)
    narrow = bounds.lemma_3_4_corrected(common, touched, w, f_max=high, f_min=low)
    wide = bounds.corollary_3_5_corrected(x[0], w, f_max=high, f_min=low)
    slack = 1e-9 * max(abs(low), abs(high))
    assert (moved <= narrow + slack).all()
    assert (narrow <= wide * (1 + 1e-12)).all()


@pytest.mark.parametrize("m", [1, 2, 6])
def test_the_printed_bounds_hold_for_returns_that_are_not_negative(m):
    rng = np.random.default_rng(10 + m)
    w = rng.random(4) + 0.01
    x, other, common, touched = neighbours(rng, 10_000, m, 4, 0.0, 2.0)
    moved = distance(x[1], other[1], w)
    assert (moved <= bounds.lemma_3_4_printed(common, touched, w, f_max=2.0) + 1e-9).all()
    assert (moved <= bounds.corollary_3_5_printed(x[0], w, f_max=2.0) + 1e-9).all()


@pytest.mark.parametrize("m", [1, 3])
def test_the_printed_bounds_are_violated_up_to_twofold_by_signed_returns(m):
    rng = np.random.default_rng(m)
    x, other, common, touched = neighbours(rng, 10_000, m, 1, -1.0, 1.0)
    moved = distance(x[1], other[1], np.ones(1))
    for bound in (
        bounds.lemma_3_4_printed(common, touched, [1.0], f_max=1.0),
        bounds.corollary_3_5_printed(x[0], [1.0], f_max=1.0),
    ):
        ratio = moved[bound > 0] / bound[bound > 0]
        assert ratio.max() == pytest.approx(2.0)


@given(seeds)
def test_lemma_3_4_is_its_sum(seed):
    rng = np.random.default_rng(seed)
    n = int(rng.integers(1, 5))
    common, touched, w = rng.integers(0, 20, n), rng.random(n) < 0.5, rng.random(n) + 0.1
    total = sum(w[s] / (common[s] + 1) ** 2 for s in range(n) if touched[s])
    assert bounds.lemma_3_4_printed(common, touched, w, f_max=3.0) == pytest.approx(3 * total**0.5)
    assert bounds.lemma_3_4_corrected(common, touched, w, f_max=3.0) == pytest.approx(
        3 * total**0.5
    )
    signed = bounds.lemma_3_4_corrected(common, touched, w, f_max=3.0, f_min=-3.0)
    assert signed == pytest.approx(6 * total**0.5)


@given(seeds, st.floats(-5, 0.9))
def test_corollary_3_5_is_its_sum_and_3_35_a_multiple_of_it(seed, f_min):
    rng = np.random.default_rng(seed)
    n = int(rng.integers(1, 5))
    v, w = rng.integers(0, 20, n), rng.random(n) + 0.1
    root = sum(w[s] / max(v[s], 1) ** 2 for s in range(n)) ** 0.5
    assert bounds.corollary_3_5_printed(v, w, f_max=2.0) == pytest.approx(2 * root)
    step, _ = return_spread(f_min, 1.0)
    corrected = bounds.corollary_3_5_corrected(v, w, f_max=1.0, f_min=f_min)
    assert corrected == pytest.approx(step * root)
    phi = rng.normal(size=(n, 1))
    norm = 1 / np.linalg.norm(np.sqrt(w) * phi[:, 0])
    noise = bounds.equation_3_35_printed(v, phi, w, f_max=2.0, alpha=7.0)
    assert noise == pytest.approx(7 * norm * 2 * root)
    noise = bounds.equation_3_35_corrected(v, phi, w, f_max=1.0, f_min=f_min, alpha=7.0)
    assert noise == pytest.approx(7 * norm * step * root)


def test_noise_of_the_algorithm_is_3_35_where_smoothing_changes_nothing():
    v = np.array([60_000, 70_000])
    noise = LSW(tabular(2), [1, 2], f_max=1).noise(v, epsilon=0.1, delta=0.1)
    assert noise.distance == 0
    least = bounds.equation_3_35_printed(v, tabular(2), [1, 2], f_max=1, alpha=noise.alpha)
    assert noise.sigma == pytest.approx(least)
    few = LSW(tabular(2), [1, 2], f_max=1).noise([60, 70], epsilon=0.1, delta=0.1)
    assert few.sigma > bounds.equation_3_35_printed(
        [60, 70], tabular(2), [1, 2], f_max=1, alpha=few.alpha
    )


# exact local sensitivity


def enumerated(data, w, low, high):
    """Every trajectory replaced by every pattern of no visit, lowest, highest return."""
    m, n = data.returns.shape
    now = data.statistics().mean_returns
    largest = 0.0
    for i in range(m):
        for pattern in itertools.product((None, low, high), repeat=n):
            returns, visited = data.returns.copy(), data.visited.copy()
            visited[i] = [p is not None for p in pattern]
            returns[i] = [p or 0.0 for p in pattern]
            means = FirstVisitReturns(returns, visited).statistics().mean_returns
            largest = max(largest, float(distance(now, means, w)))
    return largest


def random_batch(rng, m, n, low, high):
    visited = rng.random((m, n)) < rng.random()
    return FirstVisitReturns(np.where(visited, rng.uniform(low, high, (m, n)), 0.0), visited)


@settings(max_examples=30, deadline=None)
@given(seeds, st.sampled_from(RANGES))
def test_exact_local_sensitivity_equals_enumeration(seed, span):
    rng = np.random.default_rng(seed)
    low, high = span
    m, n = int(rng.integers(1, 5)), int(rng.integers(1, 4))
    data, w = random_batch(rng, m, n, low, high), rng.random(n) + 0.1
    exact = bounds.averages_local_sensitivity(data, w, f_max=high, f_min=low)
    assert exact == pytest.approx(enumerated(data, w, low, high), rel=1e-9, abs=1e-12)
    bound = bounds.corollary_3_5_corrected(data.visit_counts, w, f_max=high, f_min=low)
    assert exact <= bound * (1 + 1e-9)


@given(seeds, st.sampled_from(RANGES))
def test_no_neighbour_is_farther_than_the_exact_local_sensitivity(seed, span):
    rng = np.random.default_rng(seed)
    low, high = span
    m, n = int(rng.integers(1, 6)), int(rng.integers(1, 4))
    data, w = random_batch(rng, m, n, low, high), rng.random(n) + 0.1
    exact = bounds.averages_local_sensitivity(data, w, f_max=high, f_min=low)
    for _ in range(20):
        returns, visited = data.returns.copy(), data.visited.copy()
        i = rng.integers(m)
        visited[i] = rng.random(n) < 0.7
        returns[i] = np.where(visited[i], rng.uniform(low, high, n), 0.0)
        other = FirstVisitReturns(returns, visited).statistics().mean_returns
        assert distance(data.statistics().mean_returns, other, w) <= exact + 1e-9 * abs(exact)


@pytest.mark.parametrize("span", [(0.0, 1.0), (-1.0, 1.0), (-3.0, 0.5)])
@pytest.mark.parametrize("n_visits", [1, 3, 50])
def test_the_corrected_corollary_is_attained(span, n_visits):
    """All trajectories visit both states with the highest return: one falls to the lowest."""
    low, high = span
    every = np.ones((n_visits, 2), bool)
    data, w = FirstVisitReturns(np.full((n_visits, 2), high), every), np.array([1.0, 0.3])
    exact = bounds.averages_local_sensitivity(data, w, f_max=high, f_min=low)
    attained = bounds.corollary_3_5_corrected([n_visits] * 2, w, f_max=high, f_min=low)
    assert exact == pytest.approx(float(attained))


@pytest.mark.parametrize("m", [1, 10, 10_000])
def test_global_sensitivity_does_not_vanish_with_the_batch(m):
    empty = FirstVisitReturns(np.zeros((m, 3)), np.zeros((m, 3), bool))
    largest = bounds.averages_local_sensitivity(empty, np.ones(3), f_max=2.0)
    assert largest == pytest.approx(2 * np.sqrt(3))


# 3.34


@pytest.mark.parametrize("deficient", [False, True])
def test_equation_3_34_on_random_pairs(deficient):
    rng = np.random.default_rng(3)
    for _ in range(50):
        n = int(rng.integers(2, 6))
        phi = rng.normal(size=(n, n - 1))
        w = rng.random(n) + 0.01
        if deficient:
            phi, w = np.column_stack([phi, phi[:, 0]]), np.where(np.arange(n) == 0, 0.0, w)
        means, other = rng.random((2, 200, n))
        every = np.ones((200, n), int)
        theta, moved = (
            lsw(VisitStatistics(every, f, 1), phi, w, allow_rank_deficient=deficient)
            for f in (means, other)
        )
        bound = bounds.equation_3_34(means, other, phi, w, allow_rank_deficient=deficient)
        assert bound.shape == (200,)
        assert (np.linalg.norm(theta - moved, axis=-1) <= bound * (1 + 1e-9)).all()


def test_equation_3_34_is_attained():
    """Along the direction that the pseudo-inverse stretches most."""
    phi, w = aggregation(4) * [1.0, 3.0], np.array([1.0, 2.0, 0.5, 1.0])
    inverse = np.linalg.pinv(np.sqrt(w)[:, None] * phi)
    direction = np.linalg.svd(inverse)[2][0] / np.sqrt(w)
    moved = np.linalg.norm(inverse @ (np.sqrt(w) * direction))
    assert bounds.equation_3_34(direction, np.zeros(4), phi, w) == pytest.approx(moved)


def test_equation_3_34_refuses_a_rank_that_was_not_allowed():
    with pytest.raises(ValueError, match="rank 1 below d = 2"):
        bounds.equation_3_34([1.0, 0.0], [0.0, 0.0], np.ones((2, 2)), [1.0, 1.0])


# 3.6 and 3.7


def ball_maximum(values, k):
    """Largest value within l_inf distance k on the grid, by looking at every point."""
    points = np.array(list(np.ndindex(values.shape)))
    near = np.abs(points[:, None] - points[None]).max(axis=2) <= k
    return np.where(near, values.ravel()[None], -np.inf).max(axis=1).reshape(values.shape)


grids = st.tuples(seeds, st.sampled_from([(7,), (4, 4), (5, 3), (3, 3, 3)]), st.floats(0.01, 2))


@given(grids)
def test_lemma_3_6_is_the_supremum_over_balls(case):
    seed, shape, beta = case
    values = np.exp(np.random.default_rng(seed).normal(0, 3, shape))
    expected = np.max(
        [np.exp(-k * beta) * ball_maximum(values, k) for k in range(max(shape))], axis=0
    )
    assert bounds.lemma_3_6(values, beta) == pytest.approx(expected, rel=1e-12)


@given(grids)
def test_lemma_3_6_is_smooth_above_and_tight_everywhere(case):
    """At each point psi is phi, or e^{-beta} times a neighbour's psi: it cannot be lowered."""
    seed, shape, beta = case
    values = np.exp(np.random.default_rng(seed).normal(0, 3, shape))
    psi = bounds.lemma_3_6(values, beta)
    largest_beside = ball_maximum(psi, 1)
    assert (psi >= values).all()
    assert (largest_beside <= psi * np.exp(beta) * (1 + 1e-12)).all()
    assert psi == pytest.approx(np.maximum(values, np.exp(-beta) * largest_beside), rel=1e-12)


@given(grids)
def test_no_smooth_upper_bound_is_below_lemma_3_6(case):
    seed, shape, beta = case
    rng = np.random.default_rng(seed)
    values = np.exp(rng.normal(0, 3, shape))
    psi = bounds.lemma_3_6(values, beta)
    higher = bounds.lemma_3_6(values * np.exp(rng.exponential(1, shape)), beta)
    steeper = bounds.lemma_3_6(values, beta / 3)  # smooth with a smaller beta, hence with beta
    assert (higher >= psi * (1 - 1e-12)).all()
    assert (steeper >= psi * (1 - 1e-12)).all()


@settings(max_examples=30, deadline=None)
@given(seeds, st.floats(-3, 0.5).map(lambda x: 10**x))
def test_psi_of_the_algorithm_is_the_smallest_smooth_bound(seed, beta):
    rng = np.random.default_rng(seed)
    w, m = rng.random(2) + 0.01, int(rng.integers(1, 12))
    points = np.array(list(np.ndindex(m + 1, m + 1)))
    phi = bounds.lemma_3_7(points, w, np.zeros(len(points))).reshape(m + 1, m + 1)
    psi, _ = lsw_smooth_bound(points, w, beta)
    assert psi.reshape(m + 1, m + 1) == pytest.approx(bounds.lemma_3_6(phi, beta), rel=1e-12)


@given(seeds, st.integers(0, 8))
def test_lemma_3_7_is_the_maximum_over_the_ball(seed, k):
    rng = np.random.default_rng(seed)
    w = rng.random(2) + 0.01
    points = np.array(list(np.ndindex(7, 7)))
    phi = bounds.lemma_3_7(points, w, np.zeros(49)).reshape(7, 7)
    closed = bounds.lemma_3_7(points, w, np.full(49, k)).reshape(7, 7)
    assert closed == pytest.approx(ball_maximum(phi, k))
    resting = points.max(axis=1).reshape(7, 7) - 1 <= k
    assert closed[resting] == pytest.approx(w.sum())


@pytest.mark.parametrize(("epsilon", "dimension"), [(0.1, 3), (5.0, 1)])
def test_psi_is_smooth_and_no_smoother_than_it_has_to_be(epsilon, dimension):
    rng = np.random.default_rng(5)
    beta = GaussianSmoothing(epsilon, 0.1, dimension).beta
    v = rng.integers(0, 10 ** rng.integers(1, 5, (20_000, 1)), (20_000, 3))
    step = np.where(rng.random((20_000, 1)) < 0.5, rng.integers(-1, 2, (20_000, 1)), 1)
    step = np.where(rng.random((20_000, 3)) < 0.5, step, rng.integers(-1, 2, (20_000, 3)))
    w = rng.random(3) + 0.01
    psi, other = (lsw_smooth_bound(u, w, beta)[0] for u in (v, np.maximum(v + step, 0)))
    change = np.abs(np.log(psi / other)).max() / beta
    assert 0.99 < change <= 1 + 1e-9


# bad input

NAN = float("nan")
BAD = {
    "negative common count": (
        lambda: bounds.lemma_3_4_printed([-1], [True], [1.0], f_max=1),
        "other_counts must not be negative",
    ),
    "touched not boolean": (
        lambda: bounds.lemma_3_4_printed([1], [1], [1.0], f_max=1),
        "touched must be booleans",
    ),
    "touched too short": (
        lambda: bounds.lemma_3_4_corrected([1, 2], [True], [1.0, 1.0], f_max=1),
        "touched must be booleans, one per state",
    ),
    "weights too short": (
        lambda: bounds.lemma_3_4_printed([1, 2], [True, True], [1.0], f_max=1),
        "one entry per state",
    ),
    "no range": (
        lambda: bounds.lemma_3_4_printed([1], [True], [1.0], f_max=0),
        "f_max must be positive",
    ),
    "range upside down": (
        lambda: bounds.corollary_3_5_corrected([1], [1.0], f_max=1, f_min=1),
        "f_min must be below f_max",
    ),
    "count not finite": (
        lambda: bounds.corollary_3_5_printed([NAN], [1.0], f_max=1),
        "NaN or infinite",
    ),
    "no noise per unit": (
        lambda: bounds.equation_3_35_printed([1], [[1.0]], [1.0], f_max=1, alpha=0),
        "alpha must be positive",
    ),
    "averages of two sizes": (
        lambda: bounds.equation_3_34([1.0], [1.0, 2.0], [[1.0]], [1.0]),
        "must have one entry per state",
    ),
    "phi not positive": (lambda: bounds.lemma_3_6([1.0, 0.0], 0.1), "values must be positive"),
    "no grid": (lambda: bounds.lemma_3_6(1.0, 0.1), "grid of signatures"),
    "beta zero": (lambda: bounds.lemma_3_6([1.0], 0.0), "beta must be positive"),
    "distance negative": (lambda: bounds.lemma_3_7([1], [1.0], -1), "must not be negative"),
    "return outside the range": (
        lambda: bounds.averages_local_sensitivity(
            FirstVisitReturns([[2.0]], [[True]]), [1.0], f_max=1
        ),
        "clip them first",
    ),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input_is_refused(case):
    call, words = BAD[case]
    with pytest.raises(ValueError, match=words):
        call()


def test_data_of_another_type_is_refused():
    with pytest.raises(TypeError, match="must be a FirstVisitReturns"):
        bounds.averages_local_sensitivity([[1.0]], [1.0], f_max=1)
