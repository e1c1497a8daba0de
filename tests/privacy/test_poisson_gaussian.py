"""Accounting of DP-SGD: the Gaussian mechanism, two independent computations, monotone answers."""

import math

import numpy as np
import pytest
from scipy import integrate, optimize, stats

from dprl.privacy.gaussian import gaussian_delta
from dprl.privacy.poisson_gaussian import (
    ACCURACY,
    SMALLEST_NOISE,
    poisson_gaussian_epsilon,
    poisson_gaussian_noise,
)


@pytest.mark.parametrize(("noise", "steps"), [(1.0, 1), (4.0, 9), (20.0, 100)])
def test_without_sampling_it_is_one_gaussian_release(noise, steps):
    found = poisson_gaussian_epsilon(noise, 1.0, steps, 1e-5)
    exact = optimize.brentq(lambda e: gaussian_delta(math.sqrt(steps), noise, e) - 1e-5, 0, 50)
    assert exact <= found <= exact + 2e-3 * math.sqrt(steps) + 1e-3


@pytest.mark.parametrize("rate", [0.05, 0.5])
def test_one_step_is_the_integral_of_its_two_pairs(rate):
    noise, delta = 0.8, 1e-3

    def mixture(x):
        return (1 - rate) * stats.norm.pdf(x, 0, noise) + rate * stats.norm.pdf(x, 1, noise)

    def base(x):
        return stats.norm.pdf(x, 0, noise)

    def excess(p, q, e):
        grid = np.linspace(-12, 13, 400_001)
        return integrate.trapezoid(np.maximum(p(grid) - math.exp(e) * q(grid), 0), grid)

    exact = max(
        optimize.brentq(lambda e, p=p, q=q: excess(p, q, e) - delta, 0, 20)
        for p, q in ((mixture, base), (base, mixture))
    )
    found = poisson_gaussian_epsilon(noise, rate, 1, delta)
    assert exact - 1e-4 <= found <= exact + 3e-3


def test_it_lies_above_a_simulated_lower_bound_and_below_no_sampling():
    """Losses of the removal pair, sampled: delta at epsilon is not above the promise's."""
    noise, rate, steps, delta = 1.0, 0.2, 30, 1e-2
    found = poisson_gaussian_epsilon(noise, rate, steps, delta)
    rng = np.random.default_rng(1)
    hit = rng.random((200_000, steps)) < rate
    x = hit + noise * rng.standard_normal(hit.shape)
    loss = np.log1p(rate * np.expm1((x - 0.5) / noise**2)).sum(axis=1)
    sampled = np.maximum(1 - np.exp(found - loss), 0)
    assert sampled.mean() <= delta + 5 * sampled.std() / math.sqrt(loss.size)
    assert sampled.mean() >= 0.5 * delta  # the bound is not idle
    assert found < poisson_gaussian_epsilon(noise, 1.0, steps, delta)


@pytest.mark.parametrize(("epsilon", "rate", "steps"), [(1.0, 0.1, 200), (10.0, 1.0, 50)])
def test_the_noise_is_the_least_one_up_to_its_accuracy(epsilon, rate, steps):
    z = poisson_gaussian_noise(epsilon, 1e-5, rate, steps)
    assert poisson_gaussian_epsilon(z, rate, steps, 1e-5) <= epsilon
    assert poisson_gaussian_epsilon(z * (1 - 2 * ACCURACY), rate, steps, 1e-5) > epsilon


def test_what_makes_no_sense_is_refused():
    for change, name in (
        ({"noise": 0.0}, "noise"),
        ({"noise": 1e-300}, "noise must be at least 0.1"),
        ({"rate": 0.0}, "rate"),
        ({"steps": 0}, "steps"),
        ({"delta": 0.0}, "delta"),
    ):
        fine = {"noise": 1.0, "rate": 0.5, "steps": 2, "delta": 1e-5}
        with pytest.raises(ValueError, match=name):
            poisson_gaussian_epsilon(**(fine | change))
    with pytest.raises(ValueError, match="epsilon"):
        poisson_gaussian_noise(0.0, 1e-5, 0.5, 2)


@pytest.mark.parametrize(("epsilon", "rate"), [(1e300, 0.5), (1.0, 1e-300)])
def test_where_no_noise_is_needed_the_smallest_is_given(epsilon, rate):
    assert poisson_gaussian_noise(epsilon, 1e-5, rate, 2) == SMALLEST_NOISE


def test_a_delta_that_the_library_cannot_resolve_is_refused():
    for call in (
        lambda: poisson_gaussian_epsilon(1.0, 1.0, 1, 1e-15),
        lambda: poisson_gaussian_noise(1.0, 1e-17, 0.1, 10),
    ):
        with pytest.raises(ValueError, match="delta must"):
            call()
