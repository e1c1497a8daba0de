"""Least squares against general solvers; risks against their definitions."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import approx_fprime, minimize

from dprl.evaluation import (
    empirical_risk,
    excess_ridge_risk,
    excess_weighted_risk,
    lsl,
    lsw,
    regression_weights,
    ridge_risk,
    rmse,
    visit_weights,
    weighted_risk,
)
from dprl.features import aggregation, tabular
from dprl.mdp import Chain
from dprl.trajectories import FirstVisitReturns, VisitStatistics, chain_visit_statistics

seeds = st.integers(0, 2**32 - 1)


def problem(seed, n=7, d=3, m=12):
    """Random returns of m trajectories (some states hardly visited), features, weights."""
    rng = np.random.default_rng(seed)
    visited = rng.random((m, n)) < rng.uniform(0, 1, size=n)
    returns = FirstVisitReturns(np.where(visited, rng.normal(size=(m, n)), 0.0), visited)
    phi = rng.normal(size=(n, d))
    weights = rng.uniform(0.05, 1, size=n)
    return returns, phi, weights, rng


# LSW


@given(seeds)
def test_lsw_is_numpy_least_squares_on_scaled_rows(seed):
    returns, phi, w, _ = problem(seed)
    data = returns.statistics()
    root = np.sqrt(w)
    expected = np.linalg.lstsq(root[:, None] * phi, root * data.mean_returns)[0]
    assert lsw(data, phi, w) == pytest.approx(expected)


@pytest.mark.parametrize("seed", range(5))
def test_lsw_minimises_the_weighted_risk(seed):
    returns, phi, w, _ = problem(seed)
    data = returns.statistics()
    found = minimize(
        lambda theta: float(weighted_risk(data, phi, theta, w)), np.zeros(3), method="BFGS"
    )
    assert lsw(data, phi, w) == pytest.approx(found.x, abs=1e-5)
    assert weighted_risk(data, phi, lsw(data, phi, w), w) <= found.fun + 1e-12


@given(seeds)
def test_lsw_satisfies_the_normal_equations(seed):
    """(3.6) in its first form: Phi' Gamma Phi theta = Phi' Gamma F_X."""
    returns, phi, w, _ = problem(seed)
    data = returns.statistics()
    left = phi.T @ (w[:, None] * phi) @ lsw(data, phi, w)
    assert left == pytest.approx(phi.T @ (w * data.mean_returns))


@given(seeds)
def test_rank_deficient_lsw_is_the_least_norm_minimiser(seed):
    returns, phi, w, _ = problem(seed)
    data = returns.statistics()
    doubled = np.c_[phi, phi[:, 0]]
    theta = lsw(data, doubled, w, allow_rank_deficient=True)
    assert doubled @ theta == pytest.approx(phi @ lsw(data, phi, w))
    shifted = theta + np.array([1.0, 0, 0, -1.0])  # the null direction
    assert theta @ theta < shifted @ shifted
    assert abs(theta[0] - theta[3]) < 1e-9


def test_tabular_lsw_gives_the_averages_back_whatever_the_weights():
    data = chain_visit_statistics(Chain(6), 50, np.random.default_rng(0))
    for w in (np.ones(6), np.arange(1.0, 7.0)):
        assert lsw(data, tabular(6), w) == pytest.approx(data.mean_returns)


def test_aggregated_lsw_gives_the_weighted_average_of_a_group():
    data = VisitStatistics([1, 1, 1, 1], [1.0, 2.0, 3.0, 4.0], 1)
    theta = lsw(data, aggregation(4), [1.0, 3.0, 1.0, 1.0])
    assert theta == pytest.approx([1.75, 3.5])


# LSL


@given(seeds, st.floats(0.01, 1000))
def test_lsl_has_gradient_zero_of_the_ridge_risk(seed, ridge):
    """Central differences of (3.8), which is quadratic: exact up to rounding."""
    returns, phi, rho, _ = problem(seed)
    theta = lsl(returns.statistics(), phi, rho, ridge)
    h = 1e-3
    for j in range(theta.size):
        step = h * np.eye(theta.size)[j]
        up = ridge_risk(returns, phi, theta + step, rho, ridge)
        down = ridge_risk(returns, phi, theta - step, rho, ridge)
        assert abs(up - down) / (2 * h) < 1e-9 * max(1.0, ridge)


@pytest.mark.parametrize("seed", range(5))
def test_lsl_minimises_the_ridge_risk(seed):
    returns, phi, rho, _ = problem(seed)

    def risk(theta):
        return ridge_risk(returns, phi, theta, rho, 3.0)

    found = minimize(risk, np.zeros(3), method="BFGS")
    theta = lsl(returns.statistics(), phi, rho, 3.0)
    assert theta == pytest.approx(found.x, abs=1e-5)
    assert risk(theta) <= found.fun + 1e-12
    assert approx_fprime(theta, risk, 1e-7) == pytest.approx(np.zeros(3), abs=1e-5)


@given(seeds, st.floats(0.01, 100))
def test_lsl_is_augmented_least_squares_on_every_single_visit(seed, ridge):
    """Second method: one row per visit, and sqrt(lambda/2) times the identity below."""
    returns, phi, rho, _ = problem(seed)
    i, s = np.nonzero(returns.visited)
    rows = np.r_[np.sqrt(rho[s])[:, None] * phi[s], np.sqrt(ridge / 2) * np.eye(3)]
    target = np.r_[np.sqrt(rho[s]) * returns.returns[i, s], np.zeros(3)]
    expected = np.linalg.lstsq(rows, target)[0]
    assert lsl(returns.statistics(), phi, rho, ridge) == pytest.approx(expected, abs=1e-9)


@given(seeds, st.floats(0.01, 1))
def test_lsl_depends_on_the_ratio_of_weights_and_ridge_only(seed, c):
    returns, phi, rho, _ = problem(seed)
    data = returns.statistics()
    assert lsl(data, phi, c * rho, c * 5.0) == pytest.approx(lsl(data, phi, rho, 5.0))


@given(seeds)
def test_lsl_goes_to_zero_and_to_visit_weighted_least_squares(seed):
    returns, phi, rho, _ = problem(seed)
    data = returns.statistics()
    assert np.abs(lsl(data, phi, rho, 1e9)).max() < 1e-6
    seen = data.counts > 0
    if np.linalg.matrix_rank(phi[seen]) == 3:
        weights = rho * data.counts
        limit = lsw(data, phi, weights)
        moment = phi.T @ (weights[:, None] * phi) / len(returns)
        if np.linalg.cond(moment) < 1e4:
            assert lsl(data, phi, rho, 1e-9) == pytest.approx(limit, rel=1e-4, abs=1e-6)


def test_tabular_lsl_shrinks_each_average_by_its_count():
    """theta_s = n_s F_s / (n_s + lambda / (2 rho_s))."""
    data = VisitStatistics([4, 1, 0], [0.5, 1.0, 0.0], 4)
    rho = np.array([1.0, 0.5, 1.0])
    expected = data.counts * data.mean_returns / (data.counts + 3.0 / (2 * rho))
    assert lsl(data, tabular(3), rho, 3.0) == pytest.approx(expected)


def test_visit_weights_are_the_share_of_trajectories_that_visit():
    data = VisitStatistics([[2, 1], [0, 2]], [[0.0, 0.0], [0.0, 1.0]], 2)
    assert visit_weights(data, [1.0, 0.5]).tolist() == [[1.0, 0.25], [0.0, 0.5]]
    assert regression_weights([0.0, 1.0], 2).tolist() == [0.0, 1.0]


# risks


@given(seeds)
def test_empirical_risk_is_its_double_sum(seed):
    returns, phi, rho, rng = problem(seed)
    theta = rng.normal(size=3)
    total = sum(
        rho[s] * (returns.returns[i, s] - phi[s] @ theta) ** 2
        for i in range(len(returns))
        for s in range(7)
        if returns.visited[i, s]
    )
    expected = total / len(returns)
    assert empirical_risk(returns, phi, theta, rho) == pytest.approx(expected)
    penalty = 4.0 / (2 * len(returns)) * theta @ theta
    assert ridge_risk(returns, phi, theta, rho, 4.0) == pytest.approx(expected + penalty)


@given(seeds)
def test_excess_weighted_risk_is_the_difference_of_risks(seed):
    returns, phi, w, rng = problem(seed)
    data, theta = returns.statistics(), rng.normal(size=3)
    best = lsw(data, phi, w)
    difference = weighted_risk(data, phi, theta, w) - weighted_risk(data, phi, best, w)
    excess = excess_weighted_risk(theta, best, phi, w)
    assert excess == pytest.approx(difference, abs=1e-9)
    assert excess >= 0


@given(seeds, st.floats(0.1, 100))
def test_excess_ridge_risk_is_the_difference_of_risks(seed, ridge):
    returns, phi, rho, rng = problem(seed)
    data, theta = returns.statistics(), rng.normal(size=3)
    best = lsl(data, phi, rho, ridge)
    difference = ridge_risk(returns, phi, theta, rho, ridge) - ridge_risk(
        returns, phi, best, rho, ridge
    )
    excess = excess_ridge_risk(theta, best, data, phi, rho, ridge)
    assert excess == pytest.approx(difference, abs=1e-9)
    assert excess >= 0


@given(seeds)
def test_empirical_risk_depends_on_theta_through_the_averages_only(seed):
    """Its differences can be had from counts and averages: bias and spread separate."""
    returns, phi, rho, rng = problem(seed)
    data = returns.statistics()
    gamma = visit_weights(data, rho)

    def from_averages(theta):
        return float(((data.mean_returns - phi @ theta) ** 2 * gamma).sum())

    a, b = rng.normal(size=(2, 3))
    difference = empirical_risk(returns, phi, a, rho) - empirical_risk(returns, phi, b, rho)
    assert difference == pytest.approx(from_averages(a) - from_averages(b), abs=1e-9)


# errors and leading axes


@given(seeds, st.floats(0.01, 100))
def test_rmse_is_a_weighted_norm(seed, c):
    rng = np.random.default_rng(seed)
    estimates, values, w = rng.normal(size=(4, 6)), rng.normal(size=6), rng.random(6) + 0.1
    expected = [np.sqrt(np.average((e - values) ** 2, weights=w)) for e in estimates]
    assert rmse(estimates, values, w) == pytest.approx(expected)
    assert rmse(estimates, values, c * w) == pytest.approx(expected)  # normalised
    plain = [np.sqrt(np.mean((e - values) ** 2)) for e in estimates]
    assert rmse(estimates, values) == pytest.approx(plain)
    assert rmse(values, values) == 0


def test_a_state_without_weight_does_not_count():
    assert rmse([1.0, 100.0], [0.0, 0.0], weights=[2.0, 0.0]) == 1.0


@given(seeds)
def test_leading_axes_are_a_loop(seed):
    rng = np.random.default_rng(seed)
    chain = Chain(6, start="uniform")
    data = chain_visit_statistics(chain, 5, rng, n_batches=4)
    phi, w = aggregation(6, 4), rng.uniform(0.1, 1, size=6)
    each = [VisitStatistics(data.counts[i], data.mean_returns[i], 5) for i in range(4)]
    theta = rng.normal(size=(4, 2))

    many, one = lsw(data, phi, w), [lsw(x, phi, w) for x in each]
    assert many == pytest.approx(np.array(one))
    ridged, single = lsl(data, phi, w, 2.0), [lsl(x, phi, w, 2.0) for x in each]
    assert ridged == pytest.approx(np.array(single))
    assert weighted_risk(data, phi, theta, w) == pytest.approx(
        [weighted_risk(x, phi, t, w) for x, t in zip(each, theta, strict=True)]
    )
    assert excess_weighted_risk(theta, many, phi, w) == pytest.approx(
        [excess_weighted_risk(t, b, phi, w) for t, b in zip(theta, one, strict=True)]
    )
    assert excess_ridge_risk(theta, ridged, data, phi, w, 2.0) == pytest.approx(
        [
            excess_ridge_risk(t, b, x, phi, w, 2.0)
            for t, b, x in zip(theta, single, each, strict=True)
        ]
    )
    assert visit_weights(data, w) == pytest.approx(np.array([visit_weights(x, w) for x in each]))


def test_lsw_of_many_chain_batches_has_the_error_that_theory_predicts():
    """Tabular, all from state 1: E[RMSE^2] = mean variance / m; 400 batches, |z| < 5."""
    chain, m, runs = Chain(40, 0.5, 0.99, "first"), 100, 400
    data = chain_visit_statistics(chain, m, np.random.default_rng(1), n_batches=runs)
    squared = rmse(lsw(data, tabular(40), np.ones(40)), chain.values()) ** 2
    expected = chain.return_variance().mean() / m
    assert np.sqrt(expected * m) == pytest.approx(0.0388345, abs=5e-8)
    assert abs(squared.mean() - expected) < 5 * squared.std() / np.sqrt(runs)
