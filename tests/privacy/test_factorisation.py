"""The least Gaussian noise: its certificate, closed forms, and brute force over covariances."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dprl.privacy.factorisation import interval_differences, optimal_noise, unbiased_error_bound


def largest(noise, differences):
    return np.einsum("ki,ij,kj->k", differences, np.linalg.inv(noise.covariance), differences).max()


@pytest.mark.parametrize("n", [1, 2, 5, 12])
def test_the_noise_is_feasible_and_the_interval_contains_its_size(n):
    d = interval_differences(n)
    weights = np.linspace(3, 1, n)
    noise = optimal_noise(d, weights)
    assert largest(noise, d) == pytest.approx(1.0, abs=1e-9)
    assert np.sqrt(np.trace(noise.covariance * weights[:, None])) == pytest.approx(noise.gamma)
    assert noise.gamma_lower <= noise.gamma * (1 + 1e-12)
    assert noise.gamma <= noise.gamma_lower * (1 + 1.01e-4)


def test_one_direction_and_the_box_have_closed_forms():
    assert optimal_noise([[3.0]], [2.0]).gamma == pytest.approx(3 * np.sqrt(2))
    axes = optimal_noise(np.diag([1.0, 2.0, 4.0]), np.ones(3))
    assert axes.gamma == pytest.approx(np.sqrt(21), rel=2e-4)
    assert np.allclose(axes.covariance, np.diag([1, 4, 16]), rtol=2e-3)


def test_the_chain_of_the_thesis():
    """N = 40: every state visited; and uniform starts, errors divided by visit probabilities."""
    d = interval_differences(40)
    assert optimal_noise(d).gamma == pytest.approx(2.2815, rel=3e-4)
    weights = (40 / np.arange(1, 41)) ** 2 / 40
    assert optimal_noise(d, weights).gamma == pytest.approx(12.817, rel=3e-4)


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 10**6))
def test_no_other_covariance_is_smaller(seed):
    rng = np.random.default_rng(seed)
    d = rng.normal(size=(7, 3))
    weights = rng.random(3) + 0.1
    best = optimal_noise(d, weights, tolerance=1e-3)
    any_one = np.cov(rng.normal(size=(3, 9)))
    for other in (any_one, best.covariance + 0.1 * best.covariance[0, 0] * any_one):
        scale = np.einsum("ki,ij,kj->k", d, np.linalg.inv(other), d).max()
        assert np.sqrt(np.trace(other * weights[:, None]) * scale) >= best.gamma_lower * (1 - 1e-9)


@settings(max_examples=50, deadline=None)
@given(st.integers(0, 10**6))
def test_differences_of_monotone_vectors_lie_within(seed):
    """Random monotone vectors never exceed what the intervals attain."""
    rng = np.random.default_rng(seed)
    d = interval_differences(6)
    noise = optimal_noise(d)
    first, second = np.sort(rng.choice([0.0, 1.0, *rng.random(6)], size=(2, 200, 6)), axis=-1)
    assert largest(noise, first - second) <= 1 + 1e-9


def test_lower_bound_on_unbiased_mechanisms():
    for mu, factor in ((0.2367, 1.014), (0.3513, 1.032)):
        assert 1 / mu / unbiased_error_bound(1.0, mu) == pytest.approx(factor, abs=1e-3)


@pytest.mark.parametrize("bad", [[[1.0, 1.0]], [], [[np.nan, 1.0]], [1.0, 2.0]])
def test_differences_that_do_not_span_are_refused(bad):
    with pytest.raises(ValueError, match="differences"):
        optimal_noise(bad)


@pytest.mark.parametrize("weights", [[1.0], [1.0, 0.0], [1.0, -1.0]])
def test_bad_weights_are_refused(weights):
    with pytest.raises(ValueError, match="weights"):
        optimal_noise(np.eye(2), weights)


@pytest.mark.parametrize("small", [1e-12, 1e-9, 1e-3])
def test_the_lower_bound_is_one_where_a_direction_is_short(small):
    """Of diag(1, s), weights 1, the exact value is the root of 1 + s^2."""
    found = optimal_noise(np.diag([1.0, small]), np.ones(2))
    assert found.gamma_lower <= np.hypot(1, small) <= found.gamma * (1 + 1e-12)
    assert found.gamma_lower >= 1 - 1e-4
