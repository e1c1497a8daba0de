"""The Laplace mechanism against integration, the accounting library and enumeration."""

import itertools

import numpy as np
import pytest
from dp_accounting.pld import privacy_loss_mechanism
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.integrate import quad

from dprl.privacy import (
    Guarantee,
    counting_query,
    counting_sensitivity,
    laplace_cdf,
    laplace_delta,
    laplace_density,
    laplace_loss_cdf,
    laplace_mechanism,
    laplace_scale,
    laplace_tail,
)

scales = st.floats(1e-3, 1e3)
points = st.floats(-1e3, 1e3)
epsilons = st.floats(1e-3, 10.0)
shifts = st.floats(1e-3, 1e3)
NEIGHBOURS = "replace one record"


# -- the distribution ---------------------------------------------------------------------


@given(points, scales)
def test_density_is_the_symmetric_exponential(z, scale):
    assert laplace_density(z, scale) == pytest.approx(np.exp(-abs(z) / scale) / (2 * scale))
    assert laplace_density(-z, scale) == laplace_density(z, scale)


@pytest.mark.parametrize("scale", [0.2, 1.0, 7.0])
def test_distribution_function_is_the_integral_of_the_density(scale):
    total = 2 * quad(lambda z: laplace_density(z, scale), 0, np.inf)[0]
    assert total == pytest.approx(1)
    for z in (-3.0, -0.1, 0.0, 2.0):
        below = 0.5 + quad(lambda t: laplace_density(t, scale), 0, z)[0]
        assert laplace_cdf(z, scale) == pytest.approx(below)


@given(points, scales)
def test_tail_is_what_the_distribution_function_leaves(z, scale):
    two_sided = laplace_cdf(-abs(z), scale) + 1 - laplace_cdf(abs(z), scale)
    assert laplace_tail(abs(z), scale) == pytest.approx(two_sided, abs=1e-15)
    assert laplace_tail(-abs(z), scale) == 1


def test_the_standard_deviation_is_root_two_times_the_scale():
    variance = 2 * quad(lambda z: z**2 * laplace_density(z, 3.0), 0, np.inf)[0]
    assert np.sqrt(variance) == pytest.approx(np.sqrt(2) * 3.0)


# -- the privacy profile ------------------------------------------------------------------


@given(shifts, st.floats(0.05, 50), epsilons)
def test_delta_agrees_with_the_accounting_library(shift, ratio, epsilon):
    scale = ratio * shift
    library = privacy_loss_mechanism.LaplacePrivacyLoss(scale, sensitivity=shift)
    expected = max(0.0, library.get_delta_for_epsilon(epsilon))
    assert laplace_delta(shift, scale, epsilon) == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("epsilon", [0.0, 0.1, 0.7, 2.0])
@pytest.mark.parametrize("scale", [0.3, 1.0, 4.0])
def test_delta_is_the_integral_of_the_excess_density(scale, epsilon):
    def excess(y):
        p, q = laplace_density(y, scale), laplace_density(y - 1, scale)
        return max(p - np.exp(epsilon) * q, 0)

    expected = quad(excess, -60 * scale, 0, limit=200)[0] + quad(excess, 0, 1, limit=400)[0]
    assert laplace_delta(1.0, scale, epsilon) == pytest.approx(expected, abs=1e-7)


@given(shifts, epsilons)
def test_the_calibrated_scale_is_private_and_a_smaller_one_is_not(shift, epsilon):
    scale = laplace_scale(shift, epsilon)
    assert laplace_delta(shift, scale, epsilon) < 1e-14
    assert laplace_delta(shift, scale * (1 - 1e-6), epsilon) > 1e-10


@given(shifts, st.floats(0.1, 20), epsilons)
def test_delta_falls_with_epsilon_and_noise_and_rises_with_sensitivity(shift, ratio, epsilon):
    scale = ratio * shift
    delta = laplace_delta(shift, scale, epsilon)
    assert 0 <= delta <= 1
    assert laplace_delta(shift, scale, epsilon * 1.1) <= delta
    assert laplace_delta(shift, scale * 1.1, epsilon) <= delta
    assert laplace_delta(shift * 0.9, scale, epsilon) <= delta
    assert laplace_delta(3 * shift, 3 * scale, epsilon) == pytest.approx(delta, abs=1e-14)


def test_a_query_that_never_changes_leaks_nothing():
    assert laplace_delta(0.0, 1.0, 0.1) == laplace_delta(0.0, 1.0, 0.0) == 0


@given(st.floats(0.01, 20.0))
def test_loss_steps_at_both_ends_and_nowhere_else(top):
    below, above = np.nextafter(-top, -np.inf), np.nextafter(top, 0)
    p = laplace_loss_cdf([below, -top, above, top], top, 1.0)
    assert p == pytest.approx([0, np.exp(-top) / 2, 0.5, 1])
    inside = laplace_loss_cdf(np.linspace(-top, top, 99), top, 1.0)
    assert (np.diff(inside) >= 0).all()


@pytest.mark.parametrize("epsilon", [0.0, 0.4, 1.1])
def test_delta_is_an_expectation_over_the_loss(epsilon):
    """delta(eps) = E max(0, 1 - e^(eps - L)) = integral of P(L > l) e^(eps - l) over l > eps."""
    shift, scale = 1.5, 0.8

    def integrand(loss):
        return (1 - laplace_loss_cdf(loss, shift, scale)) * np.exp(epsilon - loss)

    expected = quad(integrand, epsilon, shift / scale)[0]
    assert laplace_delta(shift, scale, epsilon) == pytest.approx(expected, abs=1e-9)


def test_loss_of_samples_has_that_distribution():
    rng, n, top = np.random.default_rng(3), 100_000, 1.3
    y = rng.laplace(size=n)
    loss = np.log(laplace_density(y, 1.0) / laplace_density(y - top, 1.0))
    for level in (-0.9, -0.2, 0.3, 1.2):
        assert abs((loss <= level).mean() - laplace_loss_cdf(level, top, 1.0)) < 5 / np.sqrt(n)


@settings(max_examples=40)
@given(st.floats(0.05, 3.0), st.floats(0.05, 3.0), st.floats(0.0, 6.0))
def test_two_coordinates_leak_no_more_than_one_that_moves_as_far(first, second, epsilon):
    """The exact profile of two shifts, by integrating over the second one's loss."""

    def one(eps):  # profile of the first coordinate, for eps of any sign
        return 1 - np.exp(eps) if eps < -first else max(0.0, -np.expm1((eps - first) / 2))

    def density(loss):
        return np.exp(-(second - loss) / 2) / 4

    corners = [c for c in (epsilon - first, epsilon + first) if -second < c < second]
    between = quad(
        lambda loss: density(loss) * one(epsilon - loss), -second, second, points=corners or None
    )[0]
    ends = one(epsilon - second) / 2 + one(epsilon + second) * np.exp(-second) / 2
    both = between + ends
    assert both <= laplace_delta(first + second, 1.0, epsilon) + 1e-8
    assert both >= max(laplace_delta(s, 1.0, epsilon) for s in (first, second)) - 1e-8


# -- the mechanism ------------------------------------------------------------------------


def release(**change):
    given_ = {"value": [0.0], "sensitivity": 1.0, "epsilon": 0.5, "neighbours": NEIGHBOURS}
    return laplace_mechanism(**{**given_, "rng": np.random.default_rng(7), **change})


def test_the_mechanism_adds_the_generator_s_laplace_stream():
    value = np.arange(6.0).reshape(2, 3)
    noisy, guarantee = release(value=value, sensitivity=2.0)
    stream = np.random.default_rng(7).laplace(size=(2, 3))
    assert noisy == pytest.approx(value + laplace_scale(2.0, 0.5) * stream)
    assert guarantee == Guarantee(0.5, 0.0, NEIGHBOURS)


def test_the_mechanism_s_noise_has_the_promised_law():
    """Mean absolute value is the scale, and a tenth of the noise passes scale ln 10."""
    n = 200_000
    noisy, _ = release(value=np.zeros(n), sensitivity=3.0)
    scale = laplace_scale(3.0, 0.5)
    assert abs(noisy.mean()) < 5 * np.sqrt(2 / n) * scale
    assert abs(np.abs(noisy).mean() / scale - 1) < 5 / np.sqrt(n)
    passed = (np.abs(noisy) >= scale * np.log(10)).mean()
    assert abs(passed - 0.1) < 5 * np.sqrt(0.09 / n)


@pytest.mark.parametrize(
    ("change", "error", "words"),
    [
        ({"sensitivity": 0}, ValueError, "sensitivity must be positive"),
        ({"sensitivity": -1.0}, ValueError, "sensitivity must be positive"),
        ({"sensitivity": np.inf}, ValueError, "sensitivity must be finite"),
        ({"sensitivity": "1"}, TypeError, "sensitivity must be a real number"),
        ({"epsilon": 0}, ValueError, "epsilon must be positive"),
        ({"epsilon": np.nan}, ValueError, "epsilon must be finite"),
        ({"epsilon": True}, TypeError, "epsilon must be a real number"),
        ({"neighbours": " "}, ValueError, "neighbours must say the relation"),
        ({"value": [np.nan]}, ValueError, "value holds NaN"),
        ({"value": ["a"]}, ValueError, "value must be an array of numbers"),
        ({"rng": 1}, TypeError, r"rng must be a numpy\.random\.Generator"),
    ],
)
def test_a_bad_release_is_refused(change, error, words):
    with pytest.raises(error, match=words):
        release(**change)


def test_a_refused_release_draws_no_noise():
    rng = np.random.default_rng(3)
    for change in ({"epsilon": 0}, {"neighbours": ""}, {"value": [np.inf]}):
        with pytest.raises(ValueError, match=r"must|holds"):
            release(rng=rng, **change)
    assert rng.random() == np.random.default_rng(3).random()


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: laplace_density([0.0], 0.0), "scale must be positive"),
        (lambda: laplace_density([np.nan], 1.0), "z holds NaN"),
        (lambda: laplace_cdf(["a"], 1.0), "z must be an array of numbers"),
        (lambda: laplace_tail([np.inf], 1.0), "threshold holds NaN or infinite"),
        (lambda: laplace_tail([1.0], -1.0), "scale must be positive"),
        (lambda: laplace_scale(1.0, 0.0), "epsilon must be positive"),
        (lambda: laplace_delta(-1.0, 1.0, 0.1), "must not be negative"),
        (lambda: laplace_delta(1.0, 1.0, -0.1), "must not be negative"),
        (lambda: laplace_delta(1.0, 0.0, 0.1), "scale must be positive"),
        (lambda: laplace_loss_cdf([np.nan], 1.0, 1.0), "loss holds NaN"),
        (lambda: laplace_loss_cdf([0.0], 0.0, 1.0), "sensitivity must be positive"),
        (lambda: counting_query([]), r"hits must have shape \(n,\) or \(n, k\)"),
        (lambda: counting_query(1.0), r"hits must have shape \(n,\) or \(n, k\)"),
        (lambda: counting_query([0.5]), "hits must hold only 0 and 1"),
        (lambda: counting_query([np.nan]), "hits holds NaN"),
        (lambda: counting_sensitivity([0, 1], 5), r"patterns must have shape \(r, k\)"),
        (lambda: counting_sensitivity(np.zeros((0, 2)), 5), r"patterns must have shape \(r, k\)"),
        (lambda: counting_sensitivity([[2]], 5), "patterns must hold only 0 and 1"),
        (lambda: counting_sensitivity([[1]], 0), "n_records must be at least 1"),
        (lambda: counting_sensitivity([[1]], 5, order=0.5), "order must be at least 1"),
        (lambda: counting_sensitivity([[1]], 5, order=np.nan), "order must be finite"),
    ],
)
def test_bad_arguments_are_refused(call, words):
    with pytest.raises(ValueError, match=words):
        call()


# -- counting queries ---------------------------------------------------------------------


@given(st.lists(st.lists(st.booleans(), min_size=3, max_size=3), min_size=1, max_size=9))
def test_counting_query_counts(rows):
    expected = [sum(row[j] for row in rows) / len(rows) for j in range(3)]
    assert counting_query(rows) == pytest.approx(expected)
    assert counting_query([row[0] for row in rows]) == pytest.approx(expected[0])


@settings(max_examples=30)
@given(
    st.integers(1, 3),
    st.integers(2, 3).flatmap(
        lambda records: st.lists(
            st.lists(st.integers(0, 1), min_size=2, max_size=2), min_size=records, max_size=records
        )
    ),
    st.sampled_from([1.0, 2.0, 3.5, np.inf]),
)
def test_counting_sensitivity_is_the_supremum_over_all_neighbours(n, patterns, order):
    h = np.array(patterns)
    largest = 0.0
    for data in itertools.product(range(len(h)), repeat=n):
        for place, new in itertools.product(range(n), range(len(h))):
            neighbour = list(data)
            neighbour[place] = new
            moved = counting_query(h[list(data)]) - counting_query(h[neighbour])
            largest = max(largest, float(np.linalg.norm(moved, ord=order)))
    assert counting_sensitivity(h, n, order) == pytest.approx(largest)


@pytest.mark.parametrize("k", [2, 7, 50])
def test_a_histogram_s_sensitivity_does_not_grow_with_its_bins(k):
    assert counting_sensitivity(np.eye(k), 100) == pytest.approx(2 / 100)
    assert counting_sensitivity(np.vstack([np.zeros(k), np.ones(k)]), 100) == pytest.approx(k / 100)
