"""Lemma 3.1: its constants, its domain, and the exact delta under its calibration."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.integrate import quad
from scipy.stats import ncx2, norm

from dprl.privacy import GaussianSmoothing, gaussian_delta, smooth_upper_bound
from dprl.privacy.smooth_sensitivity import LARGEST_EPSILON


def constants(epsilon, delta, d):
    """The printed formulas, also outside the domain of the class."""
    t = np.log(2 / delta)
    return 5 * np.sqrt(2 * t) / epsilon, epsilon / (4 * (d + t))


def exact_delta(shift, sigma, sigma_other, epsilon, d):
    """sup over sets of P[O] - e^eps Q[O], P = N(0, sigma^2 I), Q = N(shift e_1, sigma_other^2 I).

    The set where the density of P exceeds e^eps times that of Q is a ball or its
    complement, so both probabilities are those of a non-central chi-square.
    """
    a = 1 / sigma_other**2 - 1 / sigma**2
    centre = shift / (a * sigma_other**2)
    level = 2 * (epsilon + d * np.log(sigma / sigma_other))
    radius = (level - shift**2 / sigma_other**2) / a + centre**2
    tail = ncx2.sf if a > 0 else ncx2.cdf
    if radius <= 0:
        return 1 - np.exp(epsilon) if a > 0 else 0.0
    p = tail(radius / sigma**2, d, (centre / sigma) ** 2)
    q = tail(radius / sigma_other**2, d, ((centre - shift) / sigma_other) ** 2)
    return float(p - np.exp(epsilon) * q)


def worst_delta(epsilon, delta, d):
    """Exact delta at the largest shift and the largest change of sigma that (a), (b) allow."""
    alpha, beta = constants(epsilon, delta, d)
    ratio = np.exp(beta / 2)
    shift = 1 / alpha  # of the smaller sigma, 1
    return max(
        exact_delta(shift, 1.0, ratio, epsilon, d), exact_delta(shift, ratio, 1.0, epsilon, d)
    )


@given(st.floats(1e-4, 5.0), st.floats(1e-12, 0.999), st.integers(1, 2000))
def test_the_constants_are_the_printed_formulas(epsilon, delta, d):
    c = GaussianSmoothing(epsilon, delta, d)
    assert (c.alpha, c.beta) == pytest.approx(constants(epsilon, delta, d))


def test_the_book_s_constants():
    c = GaussianSmoothing(0.1, 0.1, 40)
    assert c.alpha == pytest.approx(122.387341534)
    assert c.beta == pytest.approx(5.81453057734689e-4)
    assert GaussianSmoothing(0.1, 0.1, 20).beta == pytest.approx(1.08715824756540e-3)


def test_the_lemma_is_offered_up_to_epsilon_five_only():
    assert LARGEST_EPSILON == 5
    assert GaussianSmoothing(5.0, 0.1, 1).alpha > 0
    with pytest.raises(ValueError, match="epsilon <= 5"):
        GaussianSmoothing(np.nextafter(5.0, 6.0), 0.1, 1)


@pytest.mark.parametrize("epsilon", [0.01, 0.1, 1.0, 5.0])
@pytest.mark.parametrize("delta", [0.5, 0.1, 1e-3, 1e-8])
def test_with_equal_variances_the_exact_delta_is_far_below_the_promise(epsilon, delta):
    alpha = GaussianSmoothing(epsilon, delta, 1).alpha
    assert gaussian_delta(1.0, alpha, epsilon) < 0.01 * delta


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 5.0])
@pytest.mark.parametrize("d", [1, 5, 40])
@pytest.mark.parametrize("delta", [0.5, 0.1, 1e-3])
def test_with_unequal_variances_the_exact_delta_is_far_below_the_promise(epsilon, delta, d):
    assert worst_delta(epsilon, delta, d) < 0.01 * delta


@pytest.mark.parametrize("ratio", [0.8, 0.97, 1.05, 1.3])
@pytest.mark.parametrize("epsilon", [0.1, 1.0])
def test_the_exact_delta_of_this_test_is_an_integral(ratio, epsilon):
    """The yardstick itself against numerical integration, d = 1."""

    def excess(x):
        return max(norm.pdf(x) - np.exp(epsilon) * norm.pdf(x, 0.5, ratio), 0.0)

    points = np.linspace(-12, 12, 49)
    pieces = [quad(excess, *ends, limit=200)[0] for ends in itertools.pairwise(points)]
    assert exact_delta(0.5, 1.0, ratio, epsilon, 1) == pytest.approx(sum(pieces), abs=1e-7)


def test_far_above_five_the_printed_lemma_is_false():
    """Why large epsilon is refused: at epsilon = 100, d = 1 the promise 0.1 is broken."""
    assert worst_delta(100.0, 0.1, 1) == pytest.approx(0.553, abs=5e-4)


# the smooth upper bound


@given(
    st.lists(st.floats(0.0, 100.0), min_size=1, max_size=30),
    st.floats(1e-4, 2.0),
)
def test_the_smooth_upper_bound_is_the_largest_discounted_term(values, beta):
    reach = np.maximum.accumulate(values)  # phi_k grows with k
    psi, k = smooth_upper_bound(lambda j: float(reach[j]), beta, len(values) - 1)
    terms = np.exp(-beta * np.arange(len(values))) * reach
    assert psi == pytest.approx(terms.max())
    assert terms[k] == pytest.approx(psi)
    assert psi >= reach[0]


@given(st.lists(st.floats(0.01, 100.0), min_size=3, max_size=12), st.floats(0.01, 2.0))
def test_on_a_line_of_data_sets_it_is_the_smallest_smooth_upper_bound(values, beta):
    """Data sets 0, 1, 2, ... in a row, neighbours beside each other."""
    n = len(values)

    def psi(i):
        def largest(k):
            return max(values[max(i - k, 0) : i + k + 1])

        return smooth_upper_bound(largest, beta, n)[0]

    bound = np.array([psi(i) for i in range(n)])
    assert (bound >= np.array(values) * (1 - 1e-12)).all()
    assert (np.abs(np.diff(np.log(bound))) <= beta * (1 + 1e-9)).all()
    distance = np.abs(np.subtract.outer(np.arange(n), np.arange(n)))
    smallest = (np.exp(-beta * distance) * values).max(axis=1)  # any smooth bound is above it
    assert bound == pytest.approx(smallest)


# the noise


def test_perturb_adds_sigma_times_the_normal_stream_to_each_batch():
    c = GaussianSmoothing(1.0, 0.1, 3)
    mean, sigma = np.arange(6.0).reshape(2, 3), np.array([1.0, 100.0])
    noisy = c.perturb(mean, sigma, np.random.default_rng(3))
    stream = np.random.default_rng(3).standard_normal((2, 3))
    assert noisy == pytest.approx(mean + sigma[:, None] * stream)


@pytest.mark.parametrize(
    ("mean", "sigma", "message"),
    [
        ([0.0, 0.0], 1.0, "3 parameters"),
        ([0.0, 0.0, 0.0], [1.0, 1.0, 1.0], "sigma must be positive, one for each"),
        ([0.0, 0.0, 0.0], 0.0, "sigma must be positive"),
        ([0.0, 0.0, 0.0], np.nan, "sigma holds NaN"),
    ],
)
def test_perturb_refuses_noise_that_does_not_fit(mean, sigma, message):
    with pytest.raises(ValueError, match=message):
        GaussianSmoothing(1.0, 0.1, 3).perturb(mean, sigma, np.random.default_rng(0))
