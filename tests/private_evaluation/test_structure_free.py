"""RC without structure: sensitivities of its releases, accuracy, bad input."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from dprl.evaluation import rmse
from dprl.mdp import Chain
from dprl.privacy import Guarantee
from dprl.private_evaluation import NEIGHBOURS
from dprl.private_evaluation.structure_free import (
    _BINS,
    _FINENESS,
    SHARES,
    private_radius,
    recentre_clip_structure_free,
)
from dprl.trajectories import FirstVisitReturns, chain_first_visit_returns

PROMISE = Guarantee(1.0, 1e-6, NEIGHBOURS)


def test_the_budget_is_spent_and_no_more():
    assert sum(SHARES) == pytest.approx(1.0)


@pytest.mark.parametrize(("start", "most"), [("first", 0.0012), ("uniform", 0.0031)])
def test_close_to_the_values_and_far_better_than_its_first_centre(start, most):
    chain = Chain(start=start)
    rng = np.random.default_rng(1)
    errors = []
    for _ in range(20):
        data = chain_first_visit_returns(chain, 10_000, rng)
        release = recentre_clip_structure_free(data, PROMISE, f_max=1.0, rng=rng)
        errors.append(rmse(release.theta, chain.values()))
    assert np.sqrt(np.mean(np.square(errors))) < most


def test_with_hardly_any_noise_it_is_the_average_of_the_returns():
    data = chain_first_visit_returns(Chain(5), 400, np.random.default_rng(2))
    loose = Guarantee(5e5, 0.999999, NEIGHBOURS)
    out = recentre_clip_structure_free(data, loose, f_max=1.0, rng=np.random.default_rng(3))
    assert out.theta == pytest.approx(data.statistics((0, 1)).mean_returns, abs=1e-2)
    assert out.guarantee == loose


def test_the_radius_is_that_of_the_exact_histogram_without_noise():
    """Norms all equal: no noise of the mean asks for more than the edge above them."""
    norms = np.full(1000, 0.3)
    rng = np.random.default_rng(0)
    radius = private_radius(norms, 10.0, 1e-6, 1.0, 1e6, rng)
    edges = 10.0 * _FINENESS ** -np.arange(_BINS)
    assert radius == pytest.approx(edges[edges >= 0.3].min())
    assert private_radius(norms, 10.0, 1e3, 1.0, 1e6, rng) < 0.01  # noise is all that counts


def test_noise_is_seldom_taken_for_long_residuals():
    """Norms all equal: the radius is beyond them only where noise of the histogram passed."""
    norms, rng = np.full(10_000, 0.9), np.random.default_rng(4)
    radii = [private_radius(norms, 50.0, 2e-4, 1.0, 0.05, rng) for _ in range(1000)]
    assert np.mean(np.array(radii) > 0.9 * _FINENESS) < _BINS * stats.norm.sf(3)


def test_long_residuals_are_seen_where_a_histogram_of_many_bins_would_hide_them():
    """One in twelve is five times as long as the others: the radius reaches them."""
    rng = np.random.default_rng(5)
    norms = np.where(np.arange(5_000) % 12 == 0, 2.5, 0.5)
    radii = [private_radius(norms, 50.0, 2e-4, 1.0, 0.05, rng) for _ in range(200)]
    assert np.mean(np.array(radii) >= 2.5) > 0.95


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 10**6), st.sampled_from([0.0, 1e154, 1.7e308, -1.7e308]))
def test_what_is_released_is_finite_and_in_range(seed, size):
    rng = np.random.default_rng(seed)
    visited = rng.random((6, 3)) < rng.random()
    data = FirstVisitReturns(np.where(visited, size * rng.random((6, 3)), 0.0), visited)
    out = recentre_clip_structure_free(data, PROMISE, f_max=2.0, f_min=-1.0, rng=rng).theta
    assert ((out >= -1) & (out <= 2)).all()


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"shares": (0.5, 0.5)}, "two for each round"),
        ({"shares": (0.5, 0.5, 0.5, 0.5)}, "at most 1"),
        ({"f_max": 0.0}, "f_max"),
        ({"guarantee": Guarantee(1.0, 1e-6, "add one record")}, "neighbours"),
        ({"guarantee": Guarantee(1.0, 0.0, NEIGHBOURS)}, "delta"),
    ],
)
def test_bad_input_is_refused(change, words):
    data = chain_first_visit_returns(Chain(5), 10, np.random.default_rng(2))
    options = {"guarantee": PROMISE, "f_max": 1.0, "rng": np.random.default_rng(0), **change}
    with pytest.raises(ValueError, match=words):
        recentre_clip_structure_free(data, **options)
