"""Privacy of DP-LSL: bounds against exact sensitivities, with and without the printed condition."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dprl.bounds import lsl_privacy as bounds
from dprl.bounds.lsl_privacy import Replacement
from dprl.evaluation import lsl
from dprl.features import aggregation, operator_norm, tabular
from dprl.privacy import GaussianSmoothing, analytic_gaussian_sigma
from dprl.private_evaluation import LSL, lsl_smooth_bound
from dprl.trajectories import FirstVisitReturns, VisitStatistics

RANGES = [(0.0, 1.0), (0.0, 100.0), (-1.0, 1.0), (-3.0, 0.5), (0.5, 2.0)]
PROMISE = {"epsilon": 0.1, "delta": 0.1}
seeds = st.integers(0, 2**32 - 1)


def neighbours(rng, pairs, m, n, low, high):
    """Random batches with returns in [low, high], often at its ends; x replaced by x'."""

    def draw(*shape):
        ends = rng.choice([low, high], size=shape)
        return np.where(rng.random(shape) < 0.6, ends, rng.uniform(low, high, size=shape))

    visited = rng.random((pairs, m, n)) < rng.random((pairs, 1, n)) ** 2
    returns = np.where(visited, draw(pairs, m, n), 0.0)
    new_visited = rng.random((pairs, n)) < 0.6
    new = np.where(new_visited, draw(pairs, n), 0.0)
    change = Replacement(returns[:, 0], visited[:, 0], new, new_visited)

    def statistics(one, visits):
        counts = visited[:, 1:].sum(axis=1) + visits
        sums = returns[:, 1:].sum(axis=1) + one
        return VisitStatistics(counts, sums / np.maximum(counts, 1), m)

    return statistics(returns[:, 0], visited[:, 0]), statistics(new, new_visited), change


def feature_sets(rng, n):
    return [
        tabular(n),
        aggregation(n),
        aggregation(n, orthonormal=True),
        rng.normal(size=(n, 2)),
        rng.normal(size=(n, n + 2)),
    ]


def steps(x, other, phi, rho, ridge):
    theta, moved = lsl(x, phi, rho, ridge), lsl(other, phi, rho, ridge)
    return theta, np.linalg.norm(theta - moved, axis=-1)


# 3.9


@pytest.mark.parametrize("span", RANGES)
def test_the_improved_lemma_3_9_holds_for_every_ridge(span):
    rng = np.random.default_rng(1)
    for m in (1, 2, 5):
        x, other, change = neighbours(rng, 2_000, m, 4, *span)
        for phi in feature_sets(rng, 4):
            rho = rng.uniform(0.01, 1, 4)
            for ridge in operator_norm(phi) ** 2 * 10.0 ** rng.uniform(-4, 4, 3):
                theta, step = steps(x, other, phi, rho, ridge)
                bound = bounds.lemma_3_9_corrected(theta, change, phi, rho, ridge)
                assert (step <= bound * (1 + 1e-6) + 1e-9 * max(map(abs, span))).all()


@pytest.mark.parametrize("span", RANGES)
def test_the_printed_lemma_3_9_holds_and_is_larger(span):
    rng = np.random.default_rng(2)
    for m in (1, 2, 5):
        x, other, change = neighbours(rng, 2_000, m, 4, *span)
        for phi in feature_sets(rng, 4):
            rho = rng.uniform(0.01, 1, 4)
            ridge = operator_norm(phi) ** 2 * rho.max() * (1 + 10.0 ** rng.uniform(-4, 2))
            theta, step = steps(x, other, phi, rho, ridge)
            printed = bounds.lemma_3_9_printed(theta, change, phi, rho, ridge)
            improved = bounds.lemma_3_9_corrected(theta, change, phi, rho, ridge)
            assert (step <= printed * (1 + 1e-9) + 1e-9).all()
            assert (improved <= printed * (1 + 1e-12)).all()


@given(seeds, st.floats(-3, 3).map(lambda x: 10**x))
def test_the_identity_behind_the_improved_lemma(seed, ridge):
    """M'(theta' - theta) = (1/m) Phi' Gamma_rho (Delta Phi theta - F_x + F_x')."""
    rng = np.random.default_rng(seed)
    m, phi, rho = 3, rng.normal(size=(4, 3)), rng.uniform(0.01, 1, 4)
    x, other, change = neighbours(rng, 1, m, 4, -1.0, 1.0)
    theta, moved = lsl(x, phi, rho, ridge)[0], lsl(other, phi, rho, ridge)[0]
    gamma = np.diag(rho * other.counts[0] / m)
    left = (phi.T @ gamma @ phi + ridge / (2 * m) * np.eye(3)) @ (moved - theta)
    inner = change.sign[0] * (phi @ theta) - change.returns[0] + change.other_returns[0]
    assert m * left == pytest.approx(phi.T @ (rho * inner), abs=1e-9)


def test_the_improved_lemma_is_attained():
    """All other trajectories, and x', visit nothing: M' is the ridge alone."""
    phi, rho, ridge = np.array([[1.0, 0.3], [0.2, -2.0]]), np.array([1.0, 0.4]), 0.7
    change = Replacement([0.5, 1.0], [True, True], [0.0, 0.0], [False, False])
    x = VisitStatistics([1, 1], [0.5, 1.0], 9)
    other = VisitStatistics([0, 0], [0.0, 0.0], 9)
    theta, step = steps(x, other, phi, rho, ridge)
    bound = bounds.lemma_3_9_corrected(theta, change, phi, rho, ridge)
    assert step == pytest.approx(float(bound))


def test_the_printed_denominator_is_subtracted():
    change = Replacement([1.0, 0.0], [True, False], [0.0, 1.0], [False, True])
    phi, rho, theta = np.array([[2.0], [1.0]]), np.array([0.5, 1.0]), [0.25]
    # ||Phi' Delta Gamma Phi|| = |0.5 * 4 - 1| = 1
    ratio = bounds.lemma_3_9_printed(theta, change, phi, rho, 5.0)
    ratio /= bounds.lemma_3_9_corrected(theta, change, phi, rho, 5.0)
    assert ratio == pytest.approx(5 / 4)
    # Gamma_rho (Delta Phi theta - F_x + F_x') = (0.5 (0.5 - 1), -0.25 + 1)
    inner = abs(2 * 0.5 * (0.5 - 1) + (-0.25 + 1))
    improved = bounds.lemma_3_9_corrected(theta, change, phi, rho, 5.0)
    assert improved == pytest.approx(2 / 5 * inner)
    with pytest.raises(ValueError, match="ridge must exceed"):
        bounds.lemma_3_9_printed(theta, change, phi, rho, 1.0)


# 3.40 and 3.10


@pytest.mark.parametrize("span", RANGES)
def test_the_chain_of_bounds_from_3_9_to_3_10(span):
    rng = np.random.default_rng(4)
    low, high = span
    size = max(abs(low), abs(high))
    slack = 1e-9 * size
    for m in (1, 2, 6):
        x, other, change = neighbours(rng, 2_000, m, 4, low, high)
        for phi in feature_sets(rng, 4):
            rho = rng.uniform(0.01, 1, 4)
            for ridge in operator_norm(phi) ** 2 * 10.0 ** rng.uniform(-4, 4, 3):
                theta, step = steps(x, other, phi, rho, ridge)
                length = np.linalg.norm(theta, axis=-1)
                most = bounds.corollary_3_10_solution_norm(x.counts, rho, ridge, f_max=size)
                assert (length <= most * (1 + 1e-9) + slack).all()
                lemma = bounds.lemma_3_9_corrected(theta, change, phi, rho, ridge)
                split = 2 / ridge * bounds.equation_3_40(theta, change, phi, rho)
                assert (lemma <= split * (1 + 1e-9) + slack).all()
                corollary = bounds.corollary_3_10_corrected(
                    x.counts, m, phi, rho, ridge, f_max=high, f_min=low
                )
                assert (split <= corollary * (1 + 1e-9) + slack).all()
                assert (step <= corollary * (1 + 1e-9) + slack).all()


def test_the_printed_corollary_holds_for_returns_that_are_not_negative():
    rng = np.random.default_rng(5)
    for m in (1, 2, 6):
        x, other, _ = neighbours(rng, 4_000, m, 4, 0.0, 2.0)
        for phi in feature_sets(rng, 4):
            rho = rng.uniform(0.01, 1, 4)
            ridge = operator_norm(phi) ** 2 * rho.max() * (1 + 10.0 ** rng.uniform(-2, 4))
            _, step = steps(x, other, phi, rho, ridge)
            printed = bounds.corollary_3_10_printed(x.counts, m, phi, rho, ridge, f_max=2.0)
            assert (step <= printed * (1 + 1e-9)).all()


def test_the_printed_corollary_is_violated_almost_twofold_by_signed_returns():
    ridge = 1e6
    x, other = (VisitStatistics([1], [f], 1) for f in (1.0, -1.0))
    _, step = steps(x, other, np.eye(1), np.ones(1), ridge)
    printed = bounds.corollary_3_10_printed([1], 1, np.eye(1), [1.0], ridge, f_max=1.0)
    assert 1.99 < step / printed < 2
    corrected = bounds.corollary_3_10_corrected(
        [1], 1, np.eye(1), [1.0], ridge, f_max=1.0, f_min=-1.0
    )
    assert 0.99 < step / corrected <= 1


@given(seeds, st.floats(0.01, 1e4))
def test_corollary_3_10_is_its_formula(seed, extra):
    rng = np.random.default_rng(seed)
    v, phi, rho = rng.integers(0, 9, 3), rng.normal(size=(3, 2)), rng.uniform(0.01, 1, 3)
    norm = np.linalg.norm(phi, 2)
    least = norm**2 * rho.max()
    lam = least + extra
    total = sum(r * n for r, n in zip(rho, v, strict=True))
    root = norm * rho.max() / np.sqrt(2 * lam) * np.sqrt(total) + np.sqrt(sum(rho**2))
    printed = bounds.corollary_3_10_printed(v, 9, phi, rho, lam, f_max=3.0)
    assert printed == pytest.approx(2 * 3 * norm / extra * root, rel=1e-6)
    improved = bounds.corollary_3_10_corrected(v, 9, phi, rho, lam, f_max=3.0)
    assert improved == pytest.approx(2 * 3 * norm / lam * root)
    signed = bounds.corollary_3_10_corrected(v, 9, phi, rho, lam, f_max=3.0, f_min=-3.0)
    wider = root + np.sqrt(sum(rho**2))
    assert signed == pytest.approx(2 * 3 * norm / lam * wider)


def test_the_printed_corollary_refuses_a_small_ridge_the_improved_one_does_not():
    arguments = ([3, 1], 5, 2 * np.eye(2), [1.0, 0.5])
    with pytest.raises(ValueError, match=r"ridge must exceed .* = 4, got 4"):
        bounds.corollary_3_10_printed(*arguments, 4.0, f_max=1.0)
    assert bounds.corollary_3_10_corrected(*arguments, 0.01, f_max=1.0) > 0


# 3.11


@pytest.mark.parametrize("c", [0.01, 0.3, 5.0])
def test_lemma_3_11_with_the_minimum_is_the_maximum_over_the_ball(c):
    m, rho = 5, np.array([0.2, 1.0])
    points = np.array(list(itertools.product(range(m + 1), repeat=2)))
    phi = bounds.lemma_3_11_corrected(points, rho, m, c)
    apart = np.abs(points[:, None] - points[None]).max(axis=2)
    constant = bounds.lemma_3_11_constant(rho, m, c)
    for k in range(2 * m):
        largest = np.where(apart <= k, phi[None], -np.inf).max(axis=1)
        closed = bounds.lemma_3_11_corrected(points, rho, m, c, np.full(len(points), k))
        assert closed == pytest.approx(largest)
        resting = k >= m - points.min(axis=1)
        assert closed[resting] == pytest.approx(constant)


@given(st.integers(1, 50), st.integers(1, 60), st.floats(0.01, 5))
def test_lemma_3_11_with_the_maximum_leaves_its_constant(m, k, c):
    """With every count at m the printed form is the constant at k = 0 only."""
    rho, v = np.array([0.2, 1.0]), np.array([m, m])
    constant = bounds.lemma_3_11_constant(rho, m, c)
    assert bounds.lemma_3_11_printed(v, rho, m, c) == pytest.approx(constant)
    assert bounds.lemma_3_11_printed(v, rho, m, c, k) > constant
    assert bounds.lemma_3_11_corrected(v, rho, m, c, k) == pytest.approx(constant)


def test_the_printed_phi_does_not_depend_on_the_data():
    """max(v, m) = m for every count: all signatures of m trajectories look alike."""
    rng = np.random.default_rng(0)
    v = rng.integers(0, 8, (100, 3))
    printed = bounds.lemma_3_11_printed(v, [1.0, 0.5, 0.1], 7, 0.3)
    assert printed == pytest.approx(bounds.lemma_3_11_constant([1.0, 0.5, 0.1], 7, 0.3))


@pytest.mark.parametrize("c", [0.1, 5.0])
def test_psi_is_smooth_and_no_smoother_than_it_has_to_be(c):
    rng = np.random.default_rng(6)
    m, beta = 20_000, GaussianSmoothing(0.1, 0.1, 6).beta
    v = rng.integers(0, 10 ** rng.integers(1, 5, (20_000, 1)), (20_000, 3))
    step = np.where(rng.random((20_000, 1)) < 0.5, rng.integers(-1, 2, (20_000, 1)), 1)
    step = np.where(rng.random((20_000, 3)) < 0.5, step, rng.integers(-1, 2, (20_000, 3)))
    psi, other = (
        lsl_smooth_bound(u, np.full(3, 0.5), m, c, beta)[0] for u in (v, (v + step).clip(0, m))
    )
    change = np.abs(np.log(psi / other)).max() / beta
    assert 0.99 < change <= 1 + 1e-9


# noise


@given(seeds, st.floats(1.01, 1e4))
def test_the_improved_noise_lacks_what_the_printed_one_subtracts(seed, factor):
    rng = np.random.default_rng(seed)
    v, phi, rho = rng.integers(0, 9, 3), rng.normal(size=(3, 2)), rng.uniform(0.01, 1, 3)
    least = operator_norm(phi) ** 2 * rho.max()
    ridge = factor * least
    printed, improved = (
        LSL(phi, rho, ridge, f_max=2, f_min=-1, improved=better).noise(v, 9, **PROMISE).sigma
        for better in (False, True)
    )
    assert printed / improved == pytest.approx(ridge / (ridge - least), rel=1e-6)


@pytest.mark.parametrize("span", [(0.0, 1.0), (-1.0, 1.0)])
@pytest.mark.parametrize("ridge", [1e-3, 0.5, 20.0])
def test_the_improved_noise_meets_both_conditions_below_the_printed_limit(span, ridge):
    rng = np.random.default_rng(7)
    low, high = span
    phi, rho, m = aggregation(4), rng.uniform(0.1, 1, 4), 5
    constants = GaussianSmoothing(0.1, 0.1, 2)
    x, other, _ = neighbours(rng, 3_000, m, 4, low, high)
    sigma, changed = (
        LSL(phi, rho, ridge, f_max=high, f_min=low, improved=True)
        .noise(y.counts, m, **PROMISE)
        .sigma
        for y in (x, other)
    )
    _, step = steps(x, other, phi, rho, ridge)
    assert (sigma >= constants.alpha * step).all()
    assert np.abs(np.log(sigma**2 / changed**2)).max() <= constants.beta * (1 + 1e-9)


# global sensitivity


@pytest.mark.parametrize("span", RANGES)
@pytest.mark.parametrize("ridge", [0.01, 1.0, 50.0])
def test_no_pair_of_neighbours_exceeds_the_global_sensitivity(span, ridge):
    rng = np.random.default_rng(8)
    low, high = span
    for m in (1, 2, 5):
        x, other, _ = neighbours(rng, 4_000, m, 4, low, high)
        for phi in (tabular(4), aggregation(4), aggregation(4, 3, orthonormal=True)):
            rho = rng.uniform(0.01, 1, 4)
            _, step = steps(x, other, phi, rho, ridge)
            exact = bounds.lsl_global_sensitivity(phi, rho, ridge, f_max=high, f_min=low)
            wide = bounds.lsl_global_sensitivity_bound(phi, rho, ridge, f_max=high, f_min=low)
            assert (step <= exact * (1 + 1e-9)).all()
            assert exact <= wide * (1 + 1e-12)


@pytest.mark.parametrize("span", RANGES)
@pytest.mark.parametrize("m", [1, 40])
def test_the_global_sensitivity_is_attained(span, m):
    """x visits every state with the highest return, x' with the lowest, or not at all."""
    low, high = span
    rho, ridge = np.array([1.0, 0.3, 0.6, 1.0]), 3.0
    lowest = min(low, 0.0)
    for phi in (tabular(4), aggregation(4), aggregation(4, orthonormal=True)):
        x = VisitStatistics([1] * 4, [high] * 4, m)
        seen = int(lowest < 0)
        other = VisitStatistics([seen] * 4, [lowest] * 4, m)
        _, step = steps(x, other, phi, rho, ridge)
        exact = bounds.lsl_global_sensitivity(phi, rho, ridge, f_max=high, f_min=low)
        assert step == pytest.approx(exact)


def test_global_sensitivity_of_tabular_features_and_what_it_saves():
    """N = 40, rho = 1, lambda = 100, F = 1, m = 10^4: 126.2 with smoothing, 0.36 without."""
    ones, ridge, m = np.ones(40), 100.0, 10_000
    exact = bounds.lsl_global_sensitivity(tabular(40), ones, ridge, f_max=1)
    assert exact == pytest.approx(np.sqrt(40) / (1 + ridge / 2))
    wide = bounds.lsl_global_sensitivity_bound(tabular(40), ones, ridge, f_max=1)
    assert wide == pytest.approx(2 * np.sqrt(40) / ridge)
    smoothed = LSL(tabular(40), ones, ridge, f_max=1).noise([m] * 40, m, **PROMISE)
    assert smoothed.sigma == pytest.approx(126.2096, rel=1e-6)
    assert analytic_gaussian_sigma(wide, 0.1, 0.1) == pytest.approx(0.36, abs=5e-4)


@pytest.mark.parametrize("span", [(0.0, 1.0), (-1.0, 1.0), (0.5, 2.0)])
def test_exact_tabular_local_sensitivity_equals_enumeration(span):
    rng = np.random.default_rng(9)
    low, high = span
    for _ in range(20):
        m, n = int(rng.integers(1, 4)), int(rng.integers(1, 4))
        visited = rng.random((m, n)) < 0.6
        returns = np.where(visited, rng.uniform(low, high, (m, n)), 0.0)
        data, rho, ridge = FirstVisitReturns(returns, visited), rng.uniform(0.01, 1, n), 0.5
        now, largest = lsl(data.statistics(), np.eye(n), rho, ridge), 0.0
        for i, pattern in itertools.product(
            range(m), itertools.product((None, low, high), repeat=n)
        ):
            f, seen = returns.copy(), visited.copy()
            f[i], seen[i] = [p or 0.0 for p in pattern], [p is not None for p in pattern]
            theta = lsl(FirstVisitReturns(f, seen).statistics(), np.eye(n), rho, ridge)
            largest = max(largest, float(np.linalg.norm(theta - now)))
        exact = bounds.tabular_local_sensitivity(data, rho, ridge, f_max=high, f_min=low)
        assert exact == pytest.approx(largest)
        bound = bounds.corollary_3_10_corrected(
            data.visit_counts, m, np.eye(n), rho, ridge, f_max=high, f_min=low
        )
        assert exact <= bound * (1 + 1e-9)
        most = bounds.lsl_global_sensitivity(np.eye(n), rho, ridge, f_max=high, f_min=low)
        assert exact <= most * (1 + 1e-9)


@settings(max_examples=25)
@given(seeds, st.floats(-3, 3).map(lambda x: 10**x))
def test_local_sensitivity_becomes_the_global_one_without_data(seed, ridge):
    rng = np.random.default_rng(seed)
    n = int(rng.integers(1, 4))
    rho = rng.uniform(0.01, 1, n)
    empty = FirstVisitReturns(np.zeros((6, n)), np.zeros((6, n), bool))
    local = bounds.tabular_local_sensitivity(empty, rho, ridge, f_max=2.0)
    assert local == pytest.approx(bounds.lsl_global_sensitivity(np.eye(n), rho, ridge, f_max=2.0))


# bad input

ONE = Replacement([1.0], [True], [0.0], [False])
BAD = {
    "visits not boolean": (
        lambda: Replacement([1.0], [1], [0.0], [False]),
        "visited must be booleans",
    ),
    "return without a visit": (
        lambda: Replacement([0.0], [True], [1.0], [False]),
        "other_returns must be 0 where a state is not visited",
    ),
    "two sizes": (
        lambda: Replacement([0.0], [True], [1.0, 0.0], [True, True]),
        "x and x' must have the same shape",
    ),
    "theta too long": (
        lambda: bounds.lemma_3_9_corrected([1.0, 2.0], ONE, [[1.0]], [1.0], 1.0),
        "theta must have one entry per feature",
    ),
    "ridge zero": (
        lambda: bounds.lemma_3_9_corrected([1.0], ONE, [[1.0]], [1.0], 0.0),
        "ridge must be positive",
    ),
    "weight above one": (
        lambda: bounds.equation_3_40([1.0], ONE, [[1.0]], [2.0]),
        "must be at most 1",
    ),
    "count above m": (
        lambda: bounds.corollary_3_10_corrected([3], 2, [[1.0]], [1.0], 1.0, f_max=1.0),
        "must not exceed the 2 trajectories",
    ),
    "size zero": (
        lambda: bounds.corollary_3_10_solution_norm([3], [1.0], 1.0, f_max=0.0),
        "f_max must be positive",
    ),
    "distance negative": (
        lambda: bounds.lemma_3_11_printed([3], [1.0], 4, 1.0, -1),
        "distance must not be negative",
    ),
    "two parameters for a state": (
        lambda: bounds.lsl_global_sensitivity([[1.0, 1.0]], [1.0], 1.0, f_max=1.0),
        "at most one parameter",
    ),
    "unequal values in a column": (
        lambda: bounds.lsl_global_sensitivity_bound([[1.0], [2.0]], [1.0, 1.0], 1.0, f_max=1.0),
        "at most one parameter",
    ),
    "negative feature": (
        lambda: bounds.lsl_global_sensitivity([[-1.0]], [1.0], 1.0, f_max=1.0),
        "at most one parameter",
    ),
    "return outside the range": (
        lambda: bounds.tabular_local_sensitivity(
            FirstVisitReturns([[2.0]], [[True]]), [1.0], 1.0, f_max=1.0
        ),
        "clip them first",
    ),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input_is_refused(case):
    call, words = BAD[case]
    with pytest.raises(ValueError, match=words):
        call()


def test_a_change_of_another_type_is_refused():
    with pytest.raises(TypeError, match="must be a Replacement"):
        bounds.lemma_3_9_corrected([1.0], ([1.0], [True]), [[1.0]], [1.0], 1.0)


def test_a_coefficient_is_one_number():
    with pytest.raises(TypeError, match="coefficient must be a real number"):
        bounds.lemma_3_11_constant([1.0], 9, np.empty(0))
