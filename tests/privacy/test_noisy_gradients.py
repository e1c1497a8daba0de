"""Accounting of noisy gradient steps."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import integrate, optimize
from scipy.stats import norm

from dprl import privacy
from dprl.privacy import accounting, noisy_gradients

SETTINGS = [(2.0, 1000, 1000, 0.3), (1.0, 60, 60, 0.5), (0.5, 60, 60, 2.0), (1.2, 300, 3000, 0.5)]


@pytest.mark.parametrize("setting", SETTINGS, ids=str)
def test_inversion_agrees_with_the_grid(setting):
    """The grid is above the exact value, by a thousandth of it at most."""
    sigma, m, steps, eps = setting
    grid = accounting.subsampled_gaussian_delta(2 / sigma, 1 / m, steps, eps)
    found = privacy.noisy_gradient_delta(sigma, m, steps, eps)
    assert found == pytest.approx(grid, rel=3e-3)
    assert privacy.noisy_gradient_delta_lower(sigma, m, steps, eps) <= grid


def test_one_step_is_exact():
    """delta of one release has a closed form; the explicit pair attains it for eps > 0."""
    mu, q, eps = 2 / 0.7, 1 / 20, 0.4
    exact = accounting.subsampled_gaussian_profile(eps, mu, q)
    for bound in (privacy.noisy_gradient_delta, privacy.noisy_gradient_delta_lower):
        assert bound(0.7, 20, 1, eps) == pytest.approx(exact, rel=1e-12)


def test_one_record_is_the_gaussian_mechanism():
    """m = 1: the N steps together are one Gaussian release at the distance mu sqrt(N)."""
    exact = privacy.gaussian_delta(2 * math.sqrt(9) / 5.0, 1.0, 0.8)
    assert privacy.noisy_gradient_delta(5.0, 1, 9, 0.8) == pytest.approx(exact, rel=1e-3)
    assert privacy.noisy_gradient_delta_lower(5.0, 1, 9, 0.8) == pytest.approx(exact, rel=1e-3)


def test_two_steps_of_the_pair_by_quadrature():
    mu, q, eps = 2 / 1.5, 0.25, 0.3

    def ratio(z):
        return 1 - q + q * np.exp(mu * z - mu**2 / 2)

    def inner(z):  # the second step's best half line, given the first
        level = (math.exp(eps) / ratio(z) - (1 - q)) / q
        t = math.log(level) / mu + mu / 2 if level > 0 else -math.inf
        first = (1 - q) * norm.sf(t) + q * norm.sf(t - mu)
        return (ratio(z) * first - math.exp(eps) * norm.sf(t)) * norm.pdf(z)

    exact = integrate.quad(inner, -9, 12, limit=400, epsabs=1e-12)[0]
    assert privacy.noisy_gradient_delta_lower(1.5, 4, 2, eps) == pytest.approx(exact, rel=1e-3)


@given(
    sigma=st.floats(1.2, 4.0),
    m=st.integers(50, 2000),
    epochs=st.floats(1.0, 3.0),
    eps=st.floats(0.2, 1.0),
)
@settings(deadline=None, max_examples=10)
def test_lower_is_below_upper(sigma, m, epochs, eps):
    steps = max(1, round(epochs * m))
    low = privacy.noisy_gradient_delta_lower(sigma, m, steps, eps)
    high = privacy.noisy_gradient_delta(sigma, m, steps, eps)
    assert 0 <= low <= high <= 1
    assert privacy.threshold_test_delta(sigma, m, steps, eps) <= high


def test_epsilon_and_sigma_are_inverses():
    m = 200
    low, high = (
        f(2.0, m, m, 1e-4)
        for f in (privacy.noisy_gradient_epsilon_lower, privacy.noisy_gradient_epsilon)
    )
    assert low < high < privacy.noisy_gradient_renyi_epsilon(2.0, m, m, 1e-4)
    assert privacy.noisy_gradient_delta(2.0, m, m, high) == pytest.approx(1e-4, rel=1e-3)
    sigma = privacy.noisy_gradient_sigma(high, 1e-4, m, m)
    assert sigma == pytest.approx(2.0, rel=1e-4)
    assert privacy.noisy_gradient_delta(sigma, m, m, high) <= 1e-4
    below = privacy.noisy_gradient_sigma_lower(high, 1e-4, m, m)
    assert below < sigma
    assert privacy.noisy_gradient_delta_lower(below * 0.999, m, m, high) > 1e-4


def test_no_noise_is_needed_if_records_are_hardly_drawn():
    assert privacy.noisy_gradient_sigma(1.0, 0.01, 1000, 5) == pytest.approx(0, abs=1e-9)


def test_threshold_test_is_the_best_threshold():
    sigma, m, eps = 0.5, 50, 0.3
    mu, q = 2 / sigma, 1 / m

    def negative(t):
        present = (1 - q) * norm.cdf(t) + q * norm.cdf(t - mu)
        return -((1 - present**m) - math.exp(eps) * (1 - norm.cdf(t) ** m))

    best = -optimize.minimize_scalar(negative, bounds=(0, 8), method="bounded").fun
    assert privacy.threshold_test_delta(sigma, m, m, eps) == pytest.approx(best, rel=1e-5)


def test_printed_noise_at_the_papers_size():
    """The noise that the paper prints for (0.1, 1e-5) at m = N = 1e5."""
    sigma, m = 2 * math.sqrt(1e5 * math.log(1e5)) / (1e5 * 0.1), 100_000
    assert privacy.threshold_test_delta(sigma, m, m, 0.1) >= 0.6315
    assert privacy.noisy_gradient_epsilon_lower(sigma, m, m, 1e-5) == pytest.approx(259, abs=0.2)
    assert privacy.noisy_gradient_epsilon(sigma, m, m, 1e-5) == pytest.approx(260, abs=0.2)


def test_a_margin_where_rounding_is_all_there_is():
    """Far out the bound from above stays positive and the one from below stops at 0."""
    assert 0 < privacy.noisy_gradient_delta(4.0, 100, 100, 6.0) < 1e-9
    assert privacy.noisy_gradient_delta_lower(4.0, 100, 100, 6.0) == 0


def test_window_is_flat_then_falls_to_zero():
    x = np.linspace(0, 1, 101)
    window = noisy_gradients._flat_top(x)
    assert np.allclose(window[x < 0.5], 1)
    assert window[-1] < 1e-12
    assert (np.diff(window) <= 0).all()


BAD = [
    (privacy.noisy_gradient_delta, (0.0, 10, 10, 1.0), "sigma"),
    (privacy.noisy_gradient_delta, (math.nan, 10, 10, 1.0), "sigma"),
    (privacy.noisy_gradient_delta, (1.0, 0, 10, 1.0), "records"),
    (privacy.noisy_gradient_delta, (1.0, 10, 0, 1.0), "steps"),
    (privacy.noisy_gradient_delta, (1.0, 10, 10, 0.0), "epsilon"),
    (privacy.noisy_gradient_delta_lower, (1.0, 10, 10, -1.0), "epsilon"),
    (privacy.noisy_gradient_delta_lower, (1.0, 10, -3, 1.0), "steps"),
    (privacy.noisy_gradient_epsilon, (1.0, 10, 10, 0.0), "delta"),
    (privacy.noisy_gradient_epsilon, (1.0, 10, 10, 1e-13), "delta"),
    (privacy.noisy_gradient_epsilon_lower, (1.0, 10, 10, 1.0), "delta"),
    (privacy.noisy_gradient_sigma, (0.0, 1e-5, 10, 10), "epsilon"),
    (privacy.noisy_gradient_sigma, (1.0, 1.5, 10, 10), "delta"),
    (privacy.noisy_gradient_sigma_lower, (1.0, 1e-5, 10, 0), "steps"),
    (privacy.noisy_gradient_renyi_epsilon, (-1.0, 10, 10, 1e-5), "sigma"),
    (privacy.threshold_test_delta, (1.0, 10, 10, -0.1), "epsilon"),
]


@pytest.mark.parametrize(("function", "arguments", "name"), BAD)
def test_bad_input_is_named(function, arguments, name):
    with pytest.raises(ValueError, match=name):
        function(*arguments)


def test_whole_numbers_must_be_whole():
    with pytest.raises(TypeError, match="records"):
        privacy.noisy_gradient_delta(1.0, 10.5, 10, 1.0)


def test_a_promise_is_confirmed_by_the_grid(monkeypatch):
    """If the inversion were too optimistic, the grid's own noise would be used."""
    setting = (0.5, 0.01, 60, 60)
    sigma = noisy_gradients.noisy_gradient_certified_sigma(*setting)
    assert sigma == noisy_gradients.noisy_gradient_sigma(*setting)
    assert accounting.subsampled_gaussian_delta(2 / sigma, 1 / 60, 60, 0.5) <= 0.01
    monkeypatch.setattr(noisy_gradients, "noisy_gradient_sigma", lambda *_: 0.9 * sigma)
    cautious = noisy_gradients.noisy_gradient_certified_sigma(*setting)
    assert accounting.subsampled_gaussian_delta(2 / cautious, 1 / 60, 60, 0.5) <= 0.01
    assert cautious == pytest.approx(sigma, rel=0.01)


def test_where_no_noise_is_needed_none_is_certified():
    assert noisy_gradients.noisy_gradient_certified_sigma(0.5, 0.5, 60, 1) == 0


def test_a_lower_bound_that_says_nothing_is_zero():
    assert privacy.noisy_gradient_epsilon_lower(1e8, 100, 100, 1e-5) == 0
    assert privacy.noisy_gradient_sigma_lower(1e4, 1e-5, 100, 100) == 0
    # from above the end of the range is a promise that is kept
    assert privacy.noisy_gradient_epsilon(1e8, 100, 100, 1e-5) == pytest.approx(1e-9)


def test_hardly_any_noise():
    """From below, the value at the end of the range; from above, refused."""
    for f in (privacy.noisy_gradient_epsilon_lower, privacy.noisy_gradient_delta_lower):
        assert f(1e-8, 100, 100, 1e-5) == f(noisy_gradients.SMALLEST_SIGMA, 100, 100, 1e-5) > 0
    for refused in (privacy.noisy_gradient_epsilon, privacy.noisy_gradient_delta):
        with pytest.raises(ValueError, match=r"sigma must be at least 0\.08"):
            refused(1e-8, 100, 100, 1e-5)


def test_a_huge_epsilon_gets_the_noise_of_the_largest():
    most = noisy_gradients.LARGEST_EPSILON
    sigma = [noisy_gradients.noisy_gradient_certified_sigma(e, 1e-5, 60, 60) for e in (most, 1e4)]
    assert sigma[0] == sigma[1] >= noisy_gradients.SMALLEST_SIGMA


def test_too_many_records():
    with pytest.raises(ValueError, match="records must be at most 100000000"):
        privacy.noisy_gradient_sigma(1.0, 1e-5, 10**9, 10**9)


@pytest.mark.parametrize("steps", [10**9, 10**12])
def test_more_steps_than_the_grid_has_room_for(steps):
    with pytest.raises(ValueError, match="steps must be at most 1000000"):
        noisy_gradients.noisy_gradient_certified_sigma(1.0, 1e-5, steps, steps)


@pytest.mark.parametrize("size", [64, 1024])
def test_the_sum_by_panels_is_the_sum(size):
    """Both ways to add w e^{iul}, at points that start anywhere and losses of both signs."""
    rng = np.random.default_rng(3)
    loss = np.concatenate([1e-6 * rng.normal(size=3000), 5 * rng.normal(size=500)])
    weight = rng.random(loss.size) / loss.size
    u = 0.37 * np.arange(size, 2 * size)
    direct = np.exp(1j * u[:, None] * loss) @ weight
    assert abs(noisy_gradients._by_panels(loss, weight, u) - direct).max() < 1e-13
    assert abs(noisy_gradients._directly(loss, weight, u) - direct).max() < 1e-13


def test_a_million_records_have_a_certified_sigma():
    setting = (0.1, 1e-5, 10**6, 10**6)
    sigma = noisy_gradients.noisy_gradient_certified_sigma(*setting)
    least = noisy_gradients.noisy_gradient_sigma(*setting)
    assert least <= sigma <= 1.01 * least
    assert min(accounting.quick_deltas(2 / sigma, 1e-6, 10**6, 0.1)) <= 1e-5


def test_a_promise_that_no_grid_confirms_is_refused():
    def never(_):
        yield 1.0

    for bounds in (never, lambda _: iter(())):
        with pytest.raises(ValueError, match="does not confirm"):
            noisy_gradients._confirmed(bounds, 1e-5)


@pytest.mark.parametrize(("sigma", "epsilon"), [(0.05, 1000.0), (0.055, 760.0), (0.06, 760.0)])
def test_a_large_epsilon_is_not_refuted_by_rounding(sigma, epsilon):
    """One step is exact; exp(epsilon) and far tails are no floating-point numbers there."""
    exact = accounting.subsampled_gaussian_profile(epsilon, 2 / sigma, 0.5)
    found = noisy_gradients.threshold_test_delta(sigma, 2, 1, epsilon)
    assert 0.99 * exact < found <= exact * (1 + 1e-9)
