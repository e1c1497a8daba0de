"""Statements 11.7-11.13: never violated where they hold, violated where they do not."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dprl.bounds import lecture
from dprl.privacy import counting_sensitivity, laplace_delta, laplace_density, laplace_tail

RANDOM = 20_000
betas = st.floats(1e-9, 0.999)
scales = st.floats(1e-6, 1e3)
counts = st.integers(1, 10**9)


def test_11_7_holds_at_random_points_and_is_attained():
    rng = np.random.default_rng(1)
    x1, x2 = rng.normal(scale=3, size=(2, RANDOM))
    scale = 10 ** rng.uniform(-0.5, 2, RANDOM)
    density = laplace_density(np.array([x1, x2]) / scale, 1.0)  # the factor 1/scale cancels
    ratio, bound = density[0] / density[1], lecture.lemma_11_7(x1, x2, scale)
    assert (ratio <= bound * (1 + 1e-9)).all()
    further = (x1 * x2 > 0) & (np.abs(x1) < np.abs(x2))  # both on one side, the first nearer
    assert ratio[further] == pytest.approx(bound[further])
    assert further.any()


@given(st.floats(-1e3, 1e3), st.floats(-1e3, 1e3), st.floats(1e-3, 1e3))
def test_11_7_in_logarithms(x1, x2, scale):
    log_ratio = (abs(x2) - abs(x1)) / scale
    with np.errstate(divide="ignore"):
        assert log_ratio <= np.log(lecture.lemma_11_7(x1, x2, scale)) + 1e-9 * (1 + abs(log_ratio))


def test_11_7_never_overflows_into_a_warning():
    assert lecture.lemma_11_7(1e6, -1e6, 1.0) == np.inf


@given(st.integers(1, 10**6), st.floats(1e-6, 1e2), betas)
def test_11_9_is_exact_in_both_parts(n, scale, beta):
    epsilon, alpha = lecture.theorem_11_9(n, scale, beta)
    assert laplace_tail(alpha, scale) == pytest.approx(beta)
    assert laplace_delta(1 / n, scale, float(epsilon)) < 1e-14
    assert laplace_delta(1 / n, scale, float(epsilon) * 0.99) > 0


@given(st.integers(1, 10**6), st.floats(1e-6, 10), st.floats(1e-9, 0.5))
def test_11_11_multiplies(k, epsilon, beta):
    together = lecture.lemma_11_11(k, epsilon, beta)
    assert together == pytest.approx((k * epsilon, k * beta))


@pytest.mark.parametrize("k", [1, 2, 5, 12])
def test_11_11_is_attained_by_queries_that_one_record_flips_together(k):
    """Every loss is its largest, epsilon, with probability 2^-k: the sum reaches k epsilon."""
    epsilon = 0.3
    total = float(lecture.lemma_11_11(k, epsilon, 0.01).epsilon)
    nearer, further = laplace_density([-1.0, -2.0], 1 / epsilon)  # an output left of 0 and of 1
    assert k * np.log(nearer / further) == pytest.approx(total)


def test_11_12_is_the_corollary_of_11_9_and_11_11():
    rng = np.random.default_rng(2)
    n, k = rng.integers(1, 10**6, (2, RANDOM))
    scale, beta = 10 ** rng.uniform(-5, 1, RANDOM), rng.uniform(1e-6, 0.999, RANDOM)
    single = lecture.theorem_11_9(n, scale, beta / k)
    together = lecture.lemma_11_11(k, single.epsilon, beta / k)
    promise = lecture.theorem_11_12(n, k, scale, beta)
    assert promise.epsilon == pytest.approx(together.epsilon)
    assert promise.alpha == pytest.approx(single.alpha)
    assert together.beta == pytest.approx(beta)


def test_the_union_bound_is_never_below_the_exact_error_and_equal_for_one_query():
    rng = np.random.default_rng(3)
    k = np.floor(10 ** rng.uniform(0, 12, RANDOM))
    scale, beta = 10 ** rng.uniform(-5, 1, RANDOM), rng.uniform(1e-6, 0.999, RANDOM)
    exact = lecture.largest_error(k, scale, beta)
    union = lecture.theorem_11_12(1, k, scale, beta).alpha
    lower = scale * np.log(k / -np.log1p(-beta))
    assert (exact <= union * (1 + 1e-12)).all()
    assert (exact >= lower - 1e-9 * np.abs(lower)).all()
    one = lecture.largest_error(1, scale, beta)
    assert one == pytest.approx(lecture.theorem_11_9(1, scale, beta).alpha)


@given(counts, scales, betas)
def test_largest_error_is_the_quantile_of_the_largest_of_k(k, scale, beta):
    alpha = lecture.largest_error(k, scale, beta)
    single = float(np.minimum(laplace_tail(alpha, scale), 1 - 1e-16))
    some_error_reaches_it = -np.expm1(k * np.log1p(-single))
    assert some_error_reaches_it == pytest.approx(beta, rel=1e-6)


def test_largest_error_agrees_with_samples():
    rng, k, runs = np.random.default_rng(4), 30, 20_000
    errors = np.abs(rng.laplace(scale=0.5, size=(runs, k))).max(axis=1)
    for beta in (0.5, 0.1, 0.01):
        reached = (errors >= lecture.largest_error(k, 0.5, beta)).mean()
        assert abs(reached - beta) < 5 * np.sqrt(beta * (1 - beta) / runs)


def test_the_reference_values_of_a_thousand_queries():
    assert lecture.largest_error(1000, 1.0, 0.1) == pytest.approx(9.158, abs=5e-4)
    assert lecture.theorem_11_12(1, 1000, 1.0, 0.1).alpha == pytest.approx(9.210, abs=5e-4)


def random_settings(rng):
    """Queries of which one record can change some, answered with exactly known promises."""
    n = np.floor(10 ** rng.uniform(0, 9, RANDOM))
    k = np.floor(10 ** rng.uniform(0, 9, RANDOM))
    changed = np.maximum(1, np.floor(k * rng.random(RANDOM)))
    scale, beta = 10 ** rng.uniform(-8, 2, RANDOM), rng.uniform(1e-6, 0.999, RANDOM)
    epsilon = changed / (n * scale)  # L1 sensitivity changed/n, over the scale
    return n, k, changed, epsilon, lecture.largest_error(k, scale, beta), beta


def test_11_13_corrected_is_never_violated():
    n, k, changed, epsilon, alpha, beta = random_settings(np.random.default_rng(5))
    allowed = lecture.theorem_11_13_corrected(n, epsilon, alpha, beta, changed / k)
    assert (k <= allowed * (1 + 1e-9)).all()
    many = k > 1e4
    assert (allowed[many] <= 1.001 * k[many]).all()  # and it wastes nothing


def test_11_13_corrected_solves_its_equation():
    rng = np.random.default_rng(6)
    n = 10 ** rng.uniform(0, 9, RANDOM)
    epsilon, alpha = 10 ** rng.uniform(-3, 1, RANDOM), 10 ** rng.uniform(-6, 0, RANDOM)
    beta, share = rng.uniform(1e-6, 0.999, RANDOM), rng.uniform(1e-3, 1, RANDOM)
    k = lecture.theorem_11_13_corrected(n, epsilon, alpha, beta, share)
    y, b = epsilon * alpha * n / share, -np.log1p(-beta)
    assert k * np.log(k / b) == pytest.approx(y, rel=1e-6)


def test_11_13_printed_fails_for_a_histogram_and_corrected_needs_its_share():
    """k = n bins: epsilon = 1, alpha -> 0, and k over n / ln n grows without bound."""
    n = 10.0 ** np.arange(2, 9)
    k, beta, epsilon = n, 0.05, 1.0
    sensitivity = counting_sensitivity(np.eye(9), 1)  # 2, whatever the number of bins
    scale = sensitivity / (n * epsilon)
    alpha = lecture.largest_error(k, scale, beta)
    assert (np.diff(alpha) < 0).all()
    assert alpha[-1] < 1e-6
    assert (np.diff(k / lecture.theorem_11_13_printed(n)) > 0).all()  # not little-o
    pretended = lecture.theorem_11_13_corrected(n, epsilon, alpha, beta, share=1.0)
    honest = lecture.theorem_11_13_corrected(n, epsilon, alpha, beta, share=sensitivity / k)
    assert (k > pretended).all()
    assert (k <= honest * (1 + 1e-9)).all()


def test_11_13_under_its_condition_is_little_o():
    """One record changes all: what alpha -> 0 and epsilon = 1 allow, over n / ln n, tends to 0."""
    n = 10.0 ** np.arange(3, 300, 20)
    for alpha in (1 / np.log(n), n**-0.5):
        allowed = lecture.theorem_11_13_corrected(n, 1.0, alpha, 0.05, 1.0)
        share_of_order = allowed / lecture.theorem_11_13_printed(n)
        assert (np.diff(share_of_order) < 0).all()
        assert share_of_order[-1] < 0.01


BAD = {
    "x1 NaN": (lambda: lecture.lemma_11_7(np.nan, 0, 1), "x1 holds NaN"),
    "11.7 scale zero": (lambda: lecture.lemma_11_7(0, 0, 0), "scale must be positive"),
    "n zero": (lambda: lecture.theorem_11_9(0, 1, 0.1), "n must be at least 1"),
    "beta zero": (lambda: lecture.theorem_11_9(1, 1, 0), "beta must lie strictly between"),
    "beta one": (lambda: lecture.largest_error(1, 1, 1), "beta must lie strictly between"),
    "k zero": (lambda: lecture.lemma_11_11([2, 0], 1, 0.1), "k must be at least 1"),
    "epsilon zero": (lambda: lecture.lemma_11_11(2, 0, 0.1), "epsilon must be positive"),
    "k infinite": (lambda: lecture.theorem_11_12(1, np.inf, 1, 0.1), "k holds NaN or infinite"),
    "scale text": (lambda: lecture.largest_error(1, "a", 0.1), "scale must be an array of num"),
    "n one": (lambda: lecture.theorem_11_13_printed(1), "n must be greater than 1"),
    "share over one": (
        lambda: lecture.theorem_11_13_corrected(9, 1, 1, 0.1, 1.5),
        "share must be at most 1",
    ),
    "share zero": (
        lambda: lecture.theorem_11_13_corrected(9, 1, 1, 0.1, 0),
        "share must be positive",
    ),
    "alpha zero": (
        lambda: lecture.theorem_11_13_corrected(9, 1, 0, 0.1, 1),
        "alpha must be positive",
    ),
}


@pytest.mark.parametrize(("call", "words"), BAD.values(), ids=BAD.keys())
def test_bad_input_is_a_clear_error(call, words):
    with pytest.raises(ValueError, match=words):
        call()


def test_arrays_broadcast():
    ns, ks = np.array([10.0, 100.0]), np.array([1.0, 2.0, 3.0])
    epsilon = lecture.theorem_11_12(ns[:, None], ks, 0.1, 0.05).epsilon
    for (i, n), (j, k) in itertools.product(enumerate(ns), enumerate(ks)):
        assert epsilon[i, j] == lecture.theorem_11_12(n, k, 0.1, 0.05).epsilon
