"""The statistics of trajectories, and the identities of the saddle point."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dprl.off_policy.saddle_point import (
    BidiagonalStatistics,
    FeatureSteps,
    SaddlePoint,
    Statistics,
    empirical,
    gradient,
    lstd,
    trajectory_statistics,
    trajectory_weights,
    wis_lstd,
)

RNG = np.random.default_rng(0)
LENGTHS = np.array([3, 2, 5, 2, 3])
PHI, AHEAD = RNG.normal(size=(15, 4)), RNG.normal(size=(15, 4))
REWARDS, RATIOS = RNG.normal(size=15), RNG.uniform(0, 2, 15)


def statistics(weighting="sum", **change):
    given = {"features": PHI, "next_features": AHEAD, "rewards": REWARDS, "ratios": RATIOS}
    given |= {"lengths": LENGTHS, "discount": 0.9, "weighting": weighting}
    given |= change
    fields = ("features", "next_features", "rewards", "ratios")
    steps = FeatureSteps(*(given.pop(name) for name in fields))
    return trajectory_statistics(steps, **given)


def system(seed=1, n=4):
    rng = np.random.default_rng(seed)
    root = rng.normal(size=(n, n))
    return SaddlePoint(rng.normal(size=(n, n)), rng.normal(size=n), root @ root.T)


@pytest.mark.parametrize("weighting", ["sum", "mean", "printed"])
def test_statistics_are_equation_2_2_term_by_term(weighting):
    data = statistics(weighting)
    t = 0
    for i, length in enumerate(LENGTHS):
        divisor = {"sum": 1, "mean": length, "printed": length - 1}[weighting]
        a, b, c = np.zeros((4, 4)), np.zeros(4), np.zeros((4, 4))
        for _ in range(length):
            a += RATIOS[t] * np.outer(PHI[t], PHI[t] - 0.9 * AHEAD[t])
            b += RATIOS[t] * PHI[t] * REWARDS[t]
            c += np.outer(PHI[t], PHI[t])  # without rho, as printed
            t += 1
        np.testing.assert_allclose(data.a[i], a / divisor, atol=1e-13)
        np.testing.assert_allclose(data.b[i], b / divisor, atol=1e-13)
        np.testing.assert_allclose(data.c[i], c / divisor, atol=1e-13)


def test_statistics_do_not_depend_on_the_chunks(monkeypatch):
    whole = statistics("mean")
    monkeypatch.setattr("dprl.off_policy.saddle_point._CHUNK", 1)
    parts = statistics("mean")
    np.testing.assert_allclose(parts.a, whole.a, atol=1e-15)
    np.testing.assert_allclose(parts.b, whole.b, atol=1e-15)


def test_single_precision_is_kept():
    data = statistics("mean", dtype=np.float32)
    assert data.a.dtype == data.b.dtype == data.c.dtype == np.float32
    assert data.mean()[0].dtype == np.float64
    np.testing.assert_allclose(data.a, statistics("mean").a, rtol=1e-5, atol=1e-6)


def test_a_trajectory_without_steps_weighs_nothing():
    assert trajectory_weights([0, 2], "mean").tolist() == [0.0, 0.5]
    assert trajectory_weights([0, 2], "printed").tolist() == [0.0, 1.0]
    assert trajectory_weights([0, 2], "sum").tolist() == [0.0, 1.0]


def test_bidiagonal_and_dense_are_one():
    rng = np.random.default_rng(2)
    compact = BidiagonalStatistics(
        rng.normal(size=(6, 3)), rng.normal(size=(6, 2)), rng.normal(size=(6, 3)), np.ones((6, 3))
    )
    dense = compact.dense()
    assert dense.n_features == compact.n_features == 3
    assert dense.n_trajectories == compact.n_trajectories == 6
    for x, y in zip(dense.mean(), compact.mean(), strict=True):
        np.testing.assert_allclose(x, y, atol=1e-15)
    assert (dense.a[:, 0, 1] == compact.above[:, 0]).all()
    assert (np.tril(dense.a, -1) == 0).all()
    np.testing.assert_allclose(lstd(compact), lstd(dense), atol=1e-10)


def test_joined_statistics_hold_all_trajectories_in_order():
    rng = np.random.default_rng(3)
    a, b, c = rng.normal(size=(5, 2, 2)), rng.normal(size=(5, 2)), rng.normal(size=(5, 2, 2))
    whole = Statistics(a, b, c)
    cuts = [slice(0, 2), slice(2, 3), slice(3, 5)]
    joined = Statistics.concatenate([Statistics(a[s], b[s], c[s]) for s in cuts])
    for name in "abc":
        np.testing.assert_array_equal(getattr(joined, name), getattr(whole, name))
    single = Statistics.concatenate([Statistics(*(x.astype(np.float32) for x in (a, b, c)))])
    assert single.a.dtype == np.float32


@pytest.mark.parametrize(
    ("sizes", "error", "message"),
    [
        ([], ValueError, "parts must be one or more with one number of features, got none"),
        ([2, 3], ValueError, r"one number of features, got \[2, 3\]"),
        ([2, None], TypeError, "each of parts must be a Statistics"),
    ],
)
def test_statistics_that_do_not_fit_are_not_joined(sizes, error, message):
    parts = [
        n and Statistics(np.ones((1, n, n)), np.ones((1, n)), np.ones((1, n, n))) for n in sizes
    ]
    with pytest.raises(error, match=message):
        Statistics.concatenate(parts)


def test_the_gradient_is_the_derivative_of_the_lagrangian():
    point, rng, h = system(), np.random.default_rng(3), 1e-6
    theta, u = rng.normal(size=4), rng.normal(size=4)
    found = gradient(theta, u, point.a, point.b, point.c)
    for k in range(4):
        e = h * np.eye(4)[k]
        up = (point.lagrangian(theta + e, u) - point.lagrangian(theta - e, u)) / (2 * h)
        down = (point.lagrangian(theta, u + e) - point.lagrangian(theta, u - e)) / (2 * h)
        assert found[k] == pytest.approx(up, abs=1e-8)
        assert found[4 + k] == pytest.approx(-down, abs=1e-8)


def test_the_gradient_is_linear_in_the_system_and_q_is_its_matrix():
    point = system()
    x = np.random.default_rng(4).normal(size=(5, 8))
    q, offset = point.matrix, np.concatenate([np.zeros(4), point.b])
    found = gradient(x[:, :4], x[:, 4:], point.a, point.b, point.c)
    np.testing.assert_allclose(found, x @ q.T - offset, atol=1e-13)


def test_the_mean_of_the_gradients_is_the_gradient_of_the_means():
    data = statistics("mean")
    theta, u = np.arange(4.0), np.ones(4)
    each = gradient(theta, u, data.a, data.b, data.c)
    assert each.shape == (5, 8)
    np.testing.assert_allclose(each.mean(axis=0), gradient(theta, u, *data.mean()), atol=1e-14)


@settings(deadline=None, max_examples=25)
@given(st.integers(0, 10**6), st.integers(1, 5))
def test_the_solution_is_a_saddle_point(seed, n):
    point = system(seed, n)
    theta, u = point.solution()
    rng = np.random.default_rng(seed + 1)
    # 0 is the minimum of a non-negative function; A is invertible with probability one.
    assert point.mspbe(theta) <= 1e-8 * (1 + point.mspbe(np.zeros(n)))
    other, dual = rng.normal(size=(20, n)), rng.normal(size=(20, n))
    best = point.lagrangian(theta, u)
    slack = 1e-6 * (1 + np.abs(dual).max() * np.abs(point.a).max())
    assert (point.lagrangian(theta + 0 * dual, dual) <= best + slack).all()
    assert (point.lagrangian(other, u + 0 * other) >= best - slack).all()


def test_the_mspbe_is_twice_the_best_lagrangian_and_a_projected_error():
    point = system()
    theta = np.random.default_rng(6).normal(size=(3, 4))
    best = np.linalg.solve(point.c, (point.b - theta @ point.a.T).T).T
    np.testing.assert_allclose(point.mspbe(theta), 2 * point.lagrangian(theta, best), rtol=1e-9)
    assert point.mspbe(theta).shape == (3,)


def test_the_printed_dual_solution_is_another_one():
    """(6.2) prints w* with A^T; with a singular A that solves nothing."""
    point = SaddlePoint([[1.0, 1.0], [0.0, 0.0]], [1.0, 1.0], np.eye(2))
    theta, u = point.solution()
    np.testing.assert_allclose(gradient(theta, u, point.a, point.b, point.c), 0, atol=1e-14)
    printed = point.b - point.a.T @ theta
    assert np.abs(gradient(theta, printed, point.a, point.b, point.c)).max() > 0.4


def test_states_never_visited_change_nothing():
    a, c = np.zeros((3, 3)), np.zeros((3, 3))
    small = system(7, 2)
    a[:2, :2], c[:2, :2] = small.a, small.c
    large = SaddlePoint(a, np.append(small.b, 0), c)
    theta, u = large.solution()
    np.testing.assert_allclose(theta, np.append(small.solution()[0], 0), atol=1e-9)
    assert u[2] == 0
    x = np.array([0.3, -0.2, 5.0])
    assert large.mspbe(x) == pytest.approx(small.mspbe(x[:2]), rel=1e-9)


def test_wis_lstd_is_lstd_of_the_sums():
    found = wis_lstd(FeatureSteps(PHI, AHEAD, REWARDS, RATIOS), 0.9)
    np.testing.assert_allclose(found, lstd(statistics("sum")), rtol=1e-8)


def test_wis_lstd_in_a_table_is_a_weighted_mean():
    rng = np.random.default_rng(8)
    s, s2 = rng.integers(3, size=(2, 60))
    r, rho = rng.normal(size=60), rng.uniform(0, 3, 60)
    eye = np.eye(3)
    theta = wis_lstd(FeatureSteps(eye[s], eye[s2], r, rho), 0.8)
    for state in range(3):
        at = s == state
        mean = np.average(r[at] + 0.8 * theta[s2[at]], weights=rho[at])
        assert theta[state] == pytest.approx(mean, abs=1e-12)


def test_empirical_is_the_mean():
    data = statistics("mean")
    point = empirical(data)
    np.testing.assert_allclose(point.a, data.a.mean(axis=0), atol=1e-15)
    np.testing.assert_allclose(point.solution()[0], lstd(data), rtol=1e-8)


I2, NAN = np.eye(2), float("nan")
BAD = {
    "unknown weighting": (lambda: trajectory_weights([2], "median"), "weighting must be one of"),
    "negative length": (lambda: trajectory_weights([-1], "sum"), "non-negative integer"),
    "fractional length": (lambda: trajectory_weights([1.5], "sum"), "non-negative integer"),
    "one step over zero": (lambda: trajectory_weights([3, 1], "printed"), "one step"),
    "a of another size": (lambda: Statistics(np.ones((1, 3, 3)), [[1, 1]], [I2]), "a must have"),
    "c of another size": (lambda: Statistics([I2], [[1, 1]], [[1, 1]]), "c must have"),
    "b flat": (lambda: Statistics([I2], [1, 1], [I2]), "b must have 2"),
    "no trajectory": (
        lambda: Statistics(np.ones((0, 2, 2)), np.ones((0, 2)), np.ones((0, 2, 2))),
        "at least one row",
    ),
    "NaN in float32": (
        lambda: Statistics(np.full((1, 1, 1), NAN, np.float32), [[1.0]], [[[1.0]]]),
        "NaN",
    ),
    "above too long": (
        lambda: BidiagonalStatistics([[1, 1]], [[1, 1]], [[1, 1]], [[1, 1]]),
        "above must have",
    ),
    "features unlike": (lambda: statistics(next_features=AHEAD[:3]), "one shape"),
    "no steps": (
        lambda: statistics(features=np.ones((0, 4)), next_features=np.ones((0, 4))),
        "not empty",
    ),
    "rewards short": (lambda: statistics(rewards=[1.0]), "rewards must have one entry per step"),
    "ratio negative": (lambda: statistics(ratios=-RATIOS), "ratios must not be negative"),
    "lengths short": (lambda: statistics(lengths=[3]), "sum to the 15 steps"),
    "length zero": (lambda: statistics(lengths=[15, 0]), "at least 1"),
    "discount one": (lambda: statistics(discount=1), "discount"),
    "integers": (lambda: statistics(dtype=np.int64), "dtype must be"),
    "theta long": (lambda: gradient([1, 1, 1], [1, 1], I2, [1, 1], I2), "must end in shape"),
    "a not square": (lambda: gradient([1, 1], [1, 1], [1, 1], [1, 1], I2), "a must end in"),
    "c asymmetric": (lambda: SaddlePoint(I2, [1, 1], [[1, 1], [0, 1]]), "symmetric"),
    "c indefinite": (lambda: SaddlePoint(I2, [1, 1], -I2), "semidefinite"),
    "a not n by n": (lambda: SaddlePoint([[1]], [1, 1], I2), "a must have shape"),
    "empty system": (lambda: SaddlePoint(np.ones((0, 0)), [], np.ones((0, 0))), "must have shape"),
    "theta of another size": (lambda: system().mspbe([1.0]), "theta must have 4"),
    "w of another size": (lambda: system().lagrangian(np.ones(4), 1.0), "w must have 4"),
}


@pytest.mark.parametrize("case", BAD, ids=list(BAD))
def test_bad_input(case):
    call, message = BAD[case]
    with pytest.raises(ValueError, match=message):
        call()


def test_statistics_of_another_kind_are_refused():
    with pytest.raises(TypeError, match="statistics must be"):
        empirical(np.eye(2))


def test_a_trajectory_whose_products_all_underflow_is_not_refused():
    """A refusal would tell that it is there."""
    steps = FeatureSteps([[1e-20]], [[1e308]], [0.0], [1e308])
    found = trajectory_statistics(steps, [1], 0.9, weighting="sum")
    assert np.isfinite(found.a).all()
