"""Statements on the privacy of gradient perturbed off-policy evaluation."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import integrate
from scipy.stats import norm

from dprl import privacy
from dprl.bounds import gpope_privacy as law


@pytest.mark.parametrize("lam", [1, 2, 5])
@pytest.mark.parametrize("sensitivity", [1.0, 2.0])
def test_log_moment_by_quadrature(lam, sensitivity):
    sigma, m = 1.7, 12
    mu = sensitivity / sigma

    def integrand(z):
        ratio = 1 - 1 / m + np.exp(mu * z - mu**2 / 2) / m
        return norm.pdf(z) * ratio ** (lam + 1)

    exact = math.log(integrate.quad(integrand, -12, 12 + (lam + 1) * mu, limit=300)[0])
    found = law.log_moment_pair(lam, sigma, m, sensitivity=sensitivity)
    assert found == pytest.approx(exact, rel=1e-8)


@given(sigma=st.floats(0.3, 30.0), m=st.integers(2, 10**6))
@settings(deadline=None, max_examples=60)
def test_lemma_1_fails_for_every_sigma(sigma, m):
    """At lambda = 1, up to the concavity of the logarithm: compare the moments themselves."""
    exact = np.expm1(law.log_moment_pair(1, sigma, m))
    assert exact == pytest.approx(math.expm1(4 / sigma**2) / m**2, rel=1e-6, abs=1e-18)
    assert exact > law.lemma_1_printed(1, sigma, m)


@given(sigma=st.floats(0.5, 8.0), m=st.integers(2, 10**5), lam=st.integers(1, 60))
@settings(deadline=None, max_examples=60)
def test_corrected_bound_is_above_the_pair(sigma, m, lam):
    assert law.lemma_1_corrected(lam, sigma, m) >= law.log_moment_pair(lam, sigma, m) * (1 - 1e-9)


def test_dropped_terms_matter_even_with_sensitivity_h():
    """Orders from which the exact moment of the paper's own pair exceeds (5.5), m = 1e5."""
    first = {}
    for sigma in (0.5, 0.8, 1.0, 1.2011, 2.0):
        lam = np.arange(1, 120)
        above = law.log_moment_pair(lam, sigma, 100_000, sensitivity=1.0) > law.lemma_1_printed(
            lam, sigma, 100_000
        )
        first[sigma] = int(lam[above][0])
    assert first == {0.5: 5, 0.8: 14, 1.0: 22, 1.2011: 32, 2.0: 91}


def test_b_13_is_lemma_1_before_the_logarithm_is_dropped():
    lam = np.array([1.0, 3.0, 10.0])
    moments = lam * law.equation_b_13_printed(lam + 1, 1.5, 40)
    assert (moments <= law.lemma_1_printed(lam, 1.5, 40)).all()
    assert np.allclose(np.expm1(moments), law.lemma_1_printed(lam, 1.5, 40))
    full = law.equation_b_13_corrected([2, 4, 11], 1.5, 40, sensitivity=1.0)
    assert (full >= law.equation_b_13_printed([2, 4, 11], 1.5, 40) * (1 - 1e-12)).all()


def test_the_minimum_switches_at_one_over_log_two():
    """(B.22)-(B.30)."""
    for sigma in (law.SWITCH * 0.99, law.SWITCH * 1.01):
        first, second = 4 * math.expm1(1 / sigma**2), 2 * math.exp(1 / sigma**2)
        assert (first < second) == (sigma > law.SWITCH)
        assert law.lemma_1_printed(1, sigma, 1) == pytest.approx(min(first, second))


def test_lemma_3_by_quadrature():
    x, y, sigma, alpha = 0.3, 1.0, 0.8, 2.5

    def integrand(z):
        return math.exp(alpha * norm.logpdf(z, x, sigma) + (1 - alpha) * norm.logpdf(z, y, sigma))

    exact = math.log(integrate.quad(integrand, -20, 20)[0]) / (alpha - 1)
    assert law.lemma_3(alpha, 0.7, sigma) == pytest.approx(exact)


def test_theorem_4_is_above_the_exact_curve():
    """Gaussian steps: the tail bound holds, and its two forms are inverses."""
    lam = np.arange(1, 400) / 4
    moments = lam * law.lemma_3(lam + 1, 0.3, 1.0)
    eps = law.theorem_4_epsilon(lam, moments, 20, 1e-5)
    assert law.theorem_4_delta(lam, moments, 20, eps) == pytest.approx(1e-5)
    assert privacy.gaussian_delta(0.3 * math.sqrt(20), 1.0, eps) < 1e-5


def test_b_32():
    eps, sigma, m, steps = 0.02, 1.3, 500, 800
    lam = np.linspace(0.01, 4000, 2_000_001)
    for factor in (1.0, 4.0):
        smallest = np.exp((factor * steps * lam**2 / (m * sigma) ** 2 - lam * eps).min())
        found = law.equation_b_32_delta(eps, sigma, m, steps, factor=factor)
        assert found == pytest.approx(smallest, rel=1e-6)
        best = law.equation_b_32_minimiser(eps, sigma, m, steps, factor=factor)
        value = factor * steps * best**2 / (m * sigma) ** 2 - best * eps
        assert math.exp(value) == pytest.approx(found)
    for constant, factor in ((2.0, 1.0), (4.0, 4.0)):
        s = law.theorem_1_sigma(eps, 1e-4, m, steps, constant=constant)
        assert law.equation_b_32_delta(eps, s, m, steps, factor=factor) == pytest.approx(1e-4)


def test_the_largest_epsilon_is_where_the_minimiser_meets_the_cap():
    m, steps = 1000, 3000
    eps = law.theorem_1_largest_epsilon(m, steps)
    cap = law.equation_b_31_cap(law.SWITCH, m)
    assert law.equation_b_32_minimiser(eps, law.SWITCH, m, steps, factor=4.0) == pytest.approx(cap)
    bigger = law.equation_b_32_minimiser(eps, 2.0, m, steps, factor=4.0)
    assert bigger > law.equation_b_31_cap(2.0, m)
    assert law.theorem_1_largest_epsilon(100_000, 100_000) < 1e-3


def test_table_1():
    expected = [
        [0, -1, 1, -1, -1],
        [-1, 0, 1, -1, -1],
        [1, 1, 0, 1, 1],
        [-1, -1, 1, 0, -1],
        [-1, -1, 1, -1, 0],
    ]
    assert law.table_1_signs(0.5, 1.5, 200, 200).tolist() == expected


BAD = [
    (law.lemma_1_printed, (0.0, 1.0, 10), {}, "lam"),
    (law.lemma_1_printed, (1.0, 0.0, 10), {}, "sigma"),
    (law.lemma_1_printed, (1.0, 1.0, 0), {}, "records"),
    (law.lemma_1_corrected, (1.5, 1.0, 10), {}, "whole"),
    (law.log_moment_pair, (0, 1.0, 10), {}, "order lambda"),
    (law.log_moment_pair, (1, 1.0, 10), {"sensitivity": 0.0}, "sensitivity"),
    (law.lemma_1_corrected, (1e16, 1.0, 10), {}, "orders up to 10,000,000"),
    (law.equation_b_13_printed, (1.0, 1.0, 10), {}, "alpha"),
    (law.equation_b_13_corrected, (1, 1.0, 10), {}, "order lambda"),
    (law.lemma_3, (0.5, 1.0, 1.0), {}, "alpha"),
    (law.lemma_3, (2.0, -1.0, 1.0), {}, "distance"),
    (law.theorem_4_delta, ([1.0], [1.0, 2.0], 10, 1.0), {}, "alike"),
    (law.theorem_4_delta, ([1.0], [1.0], 0, 1.0), {}, "steps"),
    (law.theorem_4_epsilon, ([1.0], [1.0], 10, 0.0), {}, "delta"),
    (law.theorem_4_epsilon, ([-1.0], [1.0], 10, 0.1), {}, "lam"),
    (law.theorem_1_sigma, (0.0, 0.1, 10, 10), {}, "epsilon"),
    (law.theorem_1_sigma, (0.1, 0.1, 10, 10), {"constant": 0.0}, "constant"),
    (law.equation_b_32_delta, (0.1, 1.0, 10, 10), {"factor": -1.0}, "factor"),
    (law.equation_b_31_cap, (10.0, 10), {}, "below m"),
    (law.theorem_1_largest_epsilon, (1, 10), {}, "records"),
    (law.table_1_signs, (0.5, 1.5, 20, 200), {}, "1/relative"),
    (law.table_1_signs, (0.5, 1.5, 200, 200), {"relative": 0.6}, "relative"),
]


@pytest.mark.parametrize(("function", "arguments", "named", "message"), BAD)
def test_bad_input_is_named(function, arguments, named, message):
    with pytest.raises(ValueError, match=message):
        function(*arguments, **named)
