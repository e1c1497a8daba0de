"""Two-point bounds: group privacy by naive iteration, the integral by quadrature, mechanisms."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import integrate, special, stats

from dprl.bounds.two_points import TestingCurve, TwoPoints, gaussian_group_curve, group_curve
from dprl.mdp import Chain
from dprl.privacy import analytic_gaussian_sigma


def once(a, epsilon, delta):
    return min(math.exp(epsilon) * a + delta, 1 - math.exp(-epsilon) * (1 - a - delta), 1.0)


def naive(a, n, tau, epsilon, delta):
    total, level = 0.0, a
    for k in range(n + 1):
        total += stats.binom.pmf(k, n, tau) * level
        level = once(level, epsilon, delta)
    return total


@settings(max_examples=40)
@given(
    st.integers(1, 40),
    st.floats(0.0, 1.0),
    st.floats(0.01, 3.0),
    st.floats(0.0, 0.3),
    st.floats(0.0, 1.0),
)
def test_the_curve_is_the_mean_of_iterated_bounds(n, tau, epsilon, delta, a):
    curve = group_curve(n, tau, epsilon, delta)
    found = np.interp(a, curve.probability, curve.bound)
    assert found == pytest.approx(naive(a, n, tau, epsilon, delta), abs=1e-10)


@pytest.mark.parametrize(("n", "tau"), [(1, 1.0), (50, 0.1), (1000, 0.02)])
def test_tangents_lie_close_above_the_gaussian_curve(n, tau):
    mu, a = 0.3, np.linspace(1e-6, 1 - 1e-6, 999)
    k = np.arange(n + 1)
    exact = special.ndtr(special.ndtri(a)[:, None] + mu * k) @ stats.binom.pmf(k, n, tau)
    curve = gaussian_group_curve(n, tau, mu)
    found = np.interp(a, curve.probability, curve.bound)
    assert (found >= exact - 1e-12).all()
    assert (found < exact + 1e-4).all()
    slopes = np.diff(curve.bound) / np.maximum(np.diff(curve.probability), 1e-300)
    assert (np.diff(slopes[np.diff(curve.probability) > 1e-9]) < 1e-6).all()


def test_the_integral_is_that_of_the_gaussian_pair():
    mu = 0.8

    def integrand(x):
        p, q = stats.norm.pdf(x), stats.norm.pdf(x - mu)
        return p * q / (p + q)

    exact = integrate.quad(integrand, -12, 12)[0]
    found = gaussian_group_curve(1, 1.0, mu).separation_left()
    assert exact * (1 - 1e-4) < found <= exact * (1 + 1e-9)


def test_the_integral_of_randomised_response():
    eps = 1.1
    p = np.array([math.exp(eps), 1]) / (1 + math.exp(eps))
    exact = (p * p[::-1] / (p + p[::-1])).sum()
    assert group_curve(1, 1.0, eps, 0.0).separation_left() == pytest.approx(exact)


def test_ends():
    assert group_curve(100, 0.0, 1.0, 0.1).separation_left() == pytest.approx(0.5)
    assert group_curve(100, 1.0, 1.0, 0.1).separation_left() == pytest.approx(0.0, abs=1e-6)
    assert TestingCurve(np.array([0.0, 1.0]), np.array([1.0, 1.0])).separation_left() == 0


@pytest.mark.parametrize("n", [100, 10_000])
def test_no_noisy_mean_beats_the_bound_and_the_bound_is_not_far_below(n):
    """All returns 1 under P, 0 under Q: the mean with the least Gaussian noise, risk exact."""
    mu = 0.2367
    bound, tau = TwoPoints([1.0], [1.0]).rmse(n, mu=mu)
    noise = 1 / (n * mu)
    sampling = tau * (1 - tau) / n
    worst = math.sqrt(noise**2 + sampling)
    assert 0.5 * noise < bound <= worst


@pytest.mark.parametrize("start", ["first", "uniform"])
def test_publishing_a_share_delta_of_the_data_beats_no_bound(start):
    """A (0, delta)-private estimator whose risk is simulated at both points."""
    delta, n = 0.1, 2000
    chain = Chain(10, start=start)
    points = TwoPoints(chain.values(), chain.visit_probabilities())
    bound, _ = points.rmse(n, epsilon=0.1, delta=delta)
    sampling = chain.return_variance() / (delta * n * chain.visit_probabilities())
    assert bound < math.sqrt(np.mean(sampling))


def test_distance_by_mixing_expected_sums():
    chain = Chain(6)
    v, p, f, tau = chain.values(), chain.visit_probabilities(), np.linspace(0, 1, 6), 0.2
    sums = (1 - tau) * p * v + tau * f
    visits = (1 - tau) * p + tau
    exact = math.sqrt(np.mean((sums / visits - v) ** 2))
    assert TwoPoints(v, p, f).distance(tau) == pytest.approx(exact)
    assert TwoPoints(v, p).distance(0.0) == 0


def test_the_chosen_tau_is_the_best_and_more_privacy_gives_larger_bounds():
    chain = Chain(40)
    points = TwoPoints(chain.values(), chain.visit_probabilities())
    best, tau = points.rmse(1000, epsilon=1.0, delta=1e-6)
    others = [
        points.rmse(1000, epsilon=1.0, delta=1e-6, tau=tau * f)[0] for f in (0.5, 0.9, 1.1, 2)
    ]
    assert best >= max(others)
    assert points.rmse(1000, epsilon=0.5, delta=1e-6)[0] > best
    z = analytic_gaussian_sigma(1.0, 1.0, 1e-6)
    assert points.rmse(1000, mu=1 / z)[0] > best  # GDP promises more than its (1, 1e-6)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: TwoPoints([1.0, 2.0], [1.0]), "one entry for each state"),
        (lambda: TwoPoints([1.0], [0.0]), "visit_probabilities"),
        (lambda: TwoPoints([1.0], [1.0]).rmse(10), "either epsilon"),
        (lambda: TwoPoints([1.0], [1.0]).rmse(10, mu=1.0, delta=0.1), "either epsilon"),
        (lambda: TwoPoints([1.0], [1.0]).rmse(10, mu=1.0, tau=0.0), "tau"),
        (lambda: group_curve(10, 0.5, 1000.0, 0.0), "at most 100"),
        (lambda: group_curve(10, 1.5, 1.0, 0.0), "tau"),
    ],
)
def test_bad_input_gets_a_clear_error(call, message):
    with pytest.raises(ValueError, match=message):
        call()
