"""The exact privacy profile against its formula and integration; calibrations against it."""

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.integrate import quad
from scipy.stats import norm

from dprl.privacy import (
    Guarantee,
    analytic_gaussian_sigma,
    classical_gaussian_sigma,
    gaussian,
    gaussian_delta,
    gaussian_mechanism,
)

epsilons = st.floats(1e-3, 10.0)
deltas = st.floats(1e-10, 0.9)
shifts = st.floats(1e-3, 1e3)


@given(shifts, st.floats(0.05, 50), epsilons)
def test_delta_is_the_difference_of_two_normal_tails(shift, ratio, epsilon):
    sigma = ratio * shift
    a, b = shift / (2 * sigma), epsilon * sigma / shift
    expected = norm.cdf(a - b) - np.exp(epsilon + norm.logcdf(-a - b))
    assert gaussian_delta(shift, sigma, epsilon) == pytest.approx(expected, rel=1e-6, abs=1e-15)


@given(st.floats(-12, 2), st.floats(-8, 36), st.floats(1e-3, 1e3))
def test_delta_to_twelve_digits_against_high_precision(log_ratio, border, sigma):
    """The difference (1) with 80 digits, at the same floating-point numbers."""
    shift = sigma * 10**log_ratio
    ratio = shift / sigma
    epsilon = max(ratio * (border + ratio / 2), 0.0)
    with mpmath.workdps(80):
        s, eps = mpmath.mpf(shift) / mpmath.mpf(sigma), mpmath.mpf(epsilon)
        second = mpmath.exp(eps) * mpmath.ncdf(-s / 2 - eps / s)
        expected = float(mpmath.ncdf(s / 2 - eps / s) - second)
    if expected > 1e-290:
        assert gaussian_delta(shift, sigma, epsilon) == pytest.approx(expected, rel=1e-12, abs=0)
    else:
        assert 0 <= gaussian_delta(shift, sigma, epsilon) < 2e-290


def test_delta_of_extreme_distances():
    assert 0 <= gaussian_delta(1e-320, 1.0, 0.0) <= 1e-320
    assert gaussian_delta(5e-324, 1e300, 0.5) == 0.0
    assert gaussian_delta(1e300, 1e-300, 5.0) == 1.0
    assert gaussian_delta(1e300, 1.0, 1e300) == 1.0
    assert gaussian_delta(1.0, 1.0, 1e300) == 0.0


@pytest.mark.parametrize("epsilon", [0.0, 0.1, 1.0, 4.0])
@pytest.mark.parametrize("sigma", [0.3, 1.0, 3.0, 20.0])
def test_delta_is_the_integral_of_the_excess_density(epsilon, sigma):
    """delta = integral of max(p - e^eps q, 0); the integrand changes sign once."""
    border = 0.5 - epsilon * sigma**2  # p > e^eps q to its left

    def excess(x):
        return norm.pdf(x, 0, sigma) - np.exp(epsilon) * norm.pdf(x, 1, sigma)

    low = min(border, 0.0) - 12 * sigma
    expected, error = quad(excess, low, border, limit=200, epsabs=1e-13)
    assert gaussian_delta(1.0, sigma, epsilon) == pytest.approx(expected, abs=1e-10 + error)


@given(shifts, st.floats(0.1, 20), epsilons)
def test_delta_falls_with_epsilon_and_noise_and_rises_with_sensitivity(shift, ratio, epsilon):
    sigma = ratio * shift
    delta = gaussian_delta(shift, sigma, epsilon)
    assert 0 <= delta <= 1
    slack = delta + 1e-12
    assert gaussian_delta(shift, sigma, epsilon * 1.1) <= slack
    assert gaussian_delta(shift, sigma * 1.1, epsilon) <= slack
    assert gaussian_delta(shift * 0.9, sigma, epsilon) <= slack
    assert gaussian_delta(3 * shift, 3 * sigma, epsilon) == pytest.approx(delta, rel=1e-6)


def test_at_epsilon_zero_delta_is_the_total_variation_distance():
    assert gaussian_delta(1.0, 2.0, 0.0) == pytest.approx(2 * norm.cdf(0.25) - 1)


def test_a_query_that_never_changes_leaks_nothing():
    assert gaussian_delta(0.0, 1.0, 0.1) == 0


@given(shifts, epsilons, deltas)
@settings(max_examples=25)  # the calibration searches: about 20 ms each
def test_the_analytic_noise_meets_its_delta_and_wastes_none(shift, epsilon, delta):
    """At sigma the exact delta is at most delta; at a noise 0.01 % smaller it is more."""
    sigma = analytic_gaussian_sigma(shift, epsilon, delta)
    assert gaussian_delta(shift, sigma, epsilon) <= delta * (1 + 1e-9)
    assert gaussian_delta(shift, sigma * (1 - 1e-4), epsilon) > delta


@pytest.mark.parametrize("epsilon", [5e-324, 1e-300, 1e-155, 1e-100, 1e-12, 2e-8])
@pytest.mark.parametrize("delta", [0.5, 1e-6, 1e-15, 1e-100, 1e-290])
def test_an_epsilon_near_zero_has_its_noise(epsilon, delta):
    """There the library's search for the analytic noise may never end."""
    sigma = analytic_gaussian_sigma(1.0, epsilon, delta)
    assert delta * (1 - 1e-6) < gaussian_delta(1.0, sigma, epsilon) <= delta


def test_the_noise_does_not_jump_where_the_search_is_another():
    epsilon, delta = 1e-7, 1e-6
    kept, own = gaussian._unit_sigma(epsilon, delta), gaussian._large_unit_sigma(epsilon, delta)
    assert own == pytest.approx(kept, rel=1e-8)


def test_a_delta_without_full_precision_is_refused():
    with pytest.raises(ValueError, match=r"delta must be at least 2\.23e-308, got 5e-324"):
        analytic_gaussian_sigma(1.0, 1.0, 5e-324)


@given(st.floats(1e-3, 0.999), st.floats(1e-10, 0.5), shifts)
@settings(max_examples=25)  # the calibration searches: about 20 ms each
def test_the_classical_noise_is_enough_and_never_below_the_analytic(epsilon, delta, shift):
    classical = classical_gaussian_sigma(shift, epsilon, delta)
    assert classical == pytest.approx(shift * np.sqrt(2 * np.log(1.25 / delta)) / epsilon)
    assert gaussian_delta(shift, classical, epsilon) <= delta
    assert analytic_gaussian_sigma(shift, epsilon, delta) <= classical * (1 + 1e-9)


def test_beyond_its_proof_the_classical_noise_is_too_small():
    """Why epsilon >= 1 is refused: the formula fails there."""
    epsilon, delta = 15.0, 1e-5
    sigma = np.sqrt(2 * np.log(1.25 / delta)) / epsilon
    assert gaussian_delta(1.0, sigma, epsilon) > delta
    with pytest.raises(ValueError, match="epsilon < 1"):
        classical_gaussian_sigma(1.0, epsilon, delta)


def test_the_book_s_numbers():
    assert analytic_gaussian_sigma(1, 0.1, 0.1) == pytest.approx(2.846924, abs=5e-6)
    assert classical_gaussian_sigma(1, 0.1, 0.1) == pytest.approx(22.475447, abs=5e-6)


def test_the_mechanism_adds_the_generator_s_normal_stream():
    value = np.arange(6.0).reshape(2, 3)
    noisy, guarantee = gaussian_mechanism(
        value,
        sensitivity=2.0,
        epsilon=0.5,
        delta=1e-3,
        neighbours="replace one row",
        rng=np.random.default_rng(7),
    )
    stream = np.random.default_rng(7).standard_normal((2, 3))
    assert noisy == pytest.approx(value + analytic_gaussian_sigma(2.0, 0.5, 1e-3) * stream)
    assert guarantee == Guarantee(0.5, 1e-3, "replace one row")


def test_the_mechanism_s_noise_has_the_promised_law():
    """Mean, variance and kurtosis of 2e5 draws, |z| < 5."""
    n = 200_000
    noisy, _ = gaussian_mechanism(
        np.zeros(n),
        sensitivity=1.0,
        epsilon=1.0,
        delta=0.01,
        neighbours="replace one row",
        rng=np.random.default_rng(0),
    )
    z = noisy / analytic_gaussian_sigma(1.0, 1.0, 0.01)
    assert abs(z.mean()) < 5 / np.sqrt(n)
    assert abs((z**2).mean() - 1) < 5 * np.sqrt(2 / n)
    assert abs((z**4).mean() - 3) < 5 * np.sqrt(96 / n)


@pytest.mark.parametrize(("epsilon", "delta"), [(3.2e-7, 1e-200), (1e-7, 1e-12), (0.1, 0.1)])
def test_the_least_noise_is_enough(epsilon, delta):
    sigma = analytic_gaussian_sigma(1.0, epsilon, delta)
    assert gaussian_delta(1.0, sigma, epsilon) <= delta
