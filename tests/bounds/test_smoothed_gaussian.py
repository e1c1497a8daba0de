"""Lemmas 3.1 to 3.3: their constants, their proofs step by step, and the exact delta."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from dprl.bounds import smoothed_gaussian as smoothed
from dprl.privacy import (
    GaussianSmoothing,
    analytic_gaussian_sigma,
    gaussian_delta,
    gaussian_pair_delta,
    gaussian_pair_loss,
    smoothing_constants,
)

epsilons = st.floats(1e-3, 5.0)
deltas = st.floats(1e-10, 0.99)
dimensions = st.integers(1, 500)


def random_settings(n, seed, largest_epsilon=5.0):
    rng = np.random.default_rng(seed)
    eps = largest_epsilon * 10 ** -rng.uniform(0, 3, n)
    delta = 1 - 10 ** -rng.uniform(0.01, 3, n)
    delta = np.where(rng.random(n) < 0.5, delta, 10 ** -rng.uniform(0.05, 12, n))
    d = np.ceil(10 ** rng.uniform(0, 3, n))
    return rng, eps, delta, d


# -- Lemma 3.1


@given(epsilons, deltas, dimensions)
def test_constants_are_those_of_the_class(eps, delta, d):
    c = GaussianSmoothing(eps, delta, d)
    assert (c.alpha, c.beta) == tuple(float(v) for v in smoothing_constants(eps, delta, d))


def test_constants_broadcast():
    alpha, beta = smoothing_constants(np.array([[0.1], [1.0]]), 0.1, np.array([1, 5, 40]))
    assert alpha.shape == beta.shape == (2, 3)
    assert alpha[1, 0] == pytest.approx(5 * np.sqrt(2 * np.log(20)))
    assert beta[1, 2] == pytest.approx(1 / (4 * (40 + np.log(20))))


@pytest.mark.parametrize(("smoothing", "limit"), [("variance", 5.0), ("deviation", 1.0)])
def test_proof_bound_stays_below_epsilon_in_the_proved_range(smoothing, limit):
    _, eps, delta, d = random_settings(50_000, 1, limit)
    bound = smoothed.lemma_3_1_proof_bound(eps, delta, d, smoothed=smoothing)
    event = smoothed.lemma_3_1_event_bound(eps, delta, d, smoothed=smoothing)
    assert (event <= bound * (1 + 1e-12)).all()
    assert (bound < eps).all()
    corner = smoothed.lemma_3_1_proof_bound(limit, 1 - 1e-12, 1, smoothed=smoothing)
    assert (bound / eps).max() <= corner / limit < 1  # d = 1, delta -> 1 is the worst


def test_proof_bound_ends_a_little_above_five():
    assert smoothed.lemma_3_1_proof_bound(5.7, 1 - 1e-12, 1) > 5.7
    assert smoothed.lemma_3_1_proof_bound(1.1, 1 - 1e-12, 1, smoothed="deviation") > 1.1
    assert smoothed.lemma_3_1_event_bound(8.0, 1 - 1e-12, 1) < 8.0
    assert smoothed.lemma_3_1_event_bound(8.5, 1 - 1e-12, 1) > 8.5


@pytest.mark.parametrize("smoothing", ["variance", "deviation"])
def test_loss_of_random_pairs_on_the_event_never_exceeds_the_bound(smoothing):
    """Pairs and outcomes drawn at random, the loss by its definition (d = 3)."""
    rng, eps, delta, _ = random_settings(20_000, 2, 8.0)
    d, t = 3, np.log(2 / delta)
    alpha, beta = smoothing_constants(eps, delta, d)
    kappa = beta / 2 * (2 if smoothing == "deviation" else 1)
    x = kappa * rng.choice([-1, 1, rng.uniform(-1, 1)], eps.size)
    shift = np.minimum(1, np.exp(x)) / alpha * rng.choice([1.0, 1.0, 0.5], eps.size)
    u = rng.standard_normal((eps.size, d))
    u *= np.sqrt(smoothed.equation_3_14_threshold(t, d) / (u**2).sum(axis=1))[:, None]
    u[:, 0] = np.maximum(u[:, 0], -np.sqrt(2 * t))  # inside the event
    loss = -d * x + np.expm1(2 * x) * (u**2).sum(axis=1) / 2 - np.exp(x) * u[:, 0] * shift
    loss += shift**2 / 2
    one = gaussian_pair_loss(
        np.exp(x[0]) * u[0], np.zeros(d), float(np.exp(x[0])), np.eye(d)[0] * shift[0], 1.0
    )
    assert loss[0] == pytest.approx(float(one))
    bound = smoothed.lemma_3_1_event_bound(eps, delta, d, smoothed=smoothing)
    assert (loss <= bound + 1e-12).all()


@given(st.floats(0.01, 20.0), deltas, dimensions)
def test_bound_is_attained_by_the_wider_one(eps, delta, d):
    alpha, beta = (float(v) for v in smoothing_constants(eps, delta, d))
    t, kappa = np.log(2 / delta), beta / 2
    radius = d + 2 * np.sqrt(d * t) + 2 * t
    loss = -d * kappa + np.expm1(beta) / 2 * radius
    loss += np.exp(kappa) * np.sqrt(2 * t) / alpha + 1 / (2 * alpha**2)
    narrower = d * kappa + np.sqrt(2 * t) / alpha + 1 / (2 * alpha**2)
    event = smoothed.lemma_3_1_event_bound(eps, delta, d)
    assert event == pytest.approx(max(loss, narrower), rel=1e-9)


@pytest.mark.parametrize("d", [1, 5, 40])
@pytest.mark.parametrize("delta", [0.5, 0.1, 1e-5])
def test_lemma_3_1_holds_up_to_five_and_fails_at_the_far_end(d, delta):
    for eps in (0.1, 1.0, 5.0):
        alpha, beta = (float(v) for v in smoothing_constants(eps, delta, d))
        assert smoothed.worst_delta(alpha, beta, eps, d) < 0.01 * delta
        assert smoothed.worst_delta(alpha, 2 * beta, eps, d) < 0.1 * delta  # ln sigma smoothed
    alpha, beta = (float(v) for v in smoothing_constants(400.0, delta, d))
    assert smoothed.worst_delta(alpha, beta, 400.0, d) > delta


# -- Lemma 3.2


def test_lemma_3_2_parts_stay_below_a_fifth_of_epsilon():
    _, eps, delta, d = random_settings(50_000, 3)
    parts = smoothed.lemma_3_2_parts(eps, delta, d)
    assert parts.shape == (50_000, 5)
    assert (parts <= eps[:, None] / 5 * (1 + 1e-12)).all()
    np.testing.assert_allclose(parts[:, 4], eps / 5)  # the fifth is used up


def test_the_condition_on_beta_is_automatic():
    _, eps, delta, d = random_settings(50_000, 4)
    _, beta = smoothed.lemma_3_2_constants(eps, delta, d)
    assert beta.max() < 0.2 < np.log(2)
    assert smoothed.lemma_3_2_constants(5.0, 1 - 1e-12, 1)[1] == pytest.approx(0.19517, abs=1e-5)


def test_losses_on_the_event_stay_below_the_five_parts_and_epsilon():
    rng, eps, delta, _ = random_settings(20_000, 5)
    d = 3
    alpha, beta = smoothed.lemma_3_2_constants(eps, delta, d)
    x = beta / 2 * rng.choice([-1, 1, rng.uniform(-1, 1)], eps.size)
    shift = np.minimum(1, np.exp(x)) / alpha  # in units of sigma_2
    c, radius = np.sqrt(2 * np.log(4 / delta)), np.sqrt(d) + np.sqrt(2 * np.log(2 / delta))
    u = rng.standard_normal((eps.size, d))
    u *= (radius / np.linalg.norm(u, axis=1))[:, None]
    u[:, 0] = np.clip(u[:, 0], -c, c)
    loss = -d * x + np.expm1(2 * x) * (u**2).sum(axis=1) / 2 - np.exp(x) * u[:, 0] * shift
    loss += shift**2 / 2
    parts = smoothed.lemma_3_2_parts(eps, delta, d)
    assert (loss <= parts.sum(axis=1) + 1e-12).all()
    assert (loss <= eps).all()


@given(st.floats(1e-8, 0.999), st.integers(1, 200))
def test_the_event_is_missed_with_probability_at_most_delta(delta, d):
    a, b, either = smoothed.lemma_3_2_missed(delta, d)
    assert a <= delta / 2
    assert b <= delta / 2
    assert max(a, b) - 1e-15 <= either <= a + b + 1e-13


@pytest.mark.parametrize("d", [1, 2, 7])
def test_missed_probability_against_samples(d):
    u = np.random.default_rng(6).standard_normal((200_000, d))
    inside = smoothed.lemma_3_2_event(u, np.ones(d), 0.5)
    missed = (*(1 - inside.mean(axis=0)), 1 - inside.all(axis=1).mean())
    for counted, exact in zip(missed, smoothed.lemma_3_2_missed(0.5, d), strict=True):
        assert counted == pytest.approx(exact, abs=5 * np.sqrt(exact / 200_000))


def test_tail_bounds_hold():
    rng = np.random.default_rng(7)
    t, d = 10 ** rng.uniform(-3, 2, 20_000), np.ceil(10 ** rng.uniform(0, 4, 20_000))
    assert (2 * stats.norm.sf(t) <= smoothed.equation_3_13(t)).all()
    exceeds = stats.chi2.sf(smoothed.equation_3_14_threshold(t, d), d)
    assert (exceeds <= np.exp(-t)).all()
    with pytest.raises(ValueError, match="negative"):
        smoothed.equation_3_13(-1.0)
    with pytest.raises(ValueError, match="dimension"):
        smoothed.equation_3_14_threshold(1.0, 0)


# -- Lemma 3.3


def test_lemma_3_3_where_an_outcome_is_impossible_and_epsilon_is_huge():
    for eps in (0.1, 700.0, 1e4):
        beyond, delta = smoothed.lemma_3_3([0.25, 0.75], [0.0, 1.0], eps)
        assert (float(beyond), float(delta)) == (0.25, 0.25)


def test_lemma_3_3_on_random_distributions_and_its_converse_fails():
    rng = np.random.default_rng(8)
    p, q = rng.dirichlet(np.full(5, 0.7), (2, 10_000))
    for eps in (0.0, 0.3, 2.0):
        beyond, delta = smoothed.lemma_3_3(p, q, eps)
        assert (delta <= beyond + 1e-15).all()
        assert (delta < beyond / 2).any()  # private with half of what the condition needs
        naive = np.maximum(p - np.exp(eps) * q, 0).sum(axis=1)
        np.testing.assert_allclose(delta, naive, atol=1e-15)


# -- exact


@given(st.floats(0.5, 50.0), st.floats(1e-4, 0.3), st.floats(0.0, 2.0), st.integers(1, 30))
def test_no_random_admissible_pair_is_worse(alpha, beta, eps, d):
    rng = np.random.default_rng(9)
    worst = smoothed.worst_pair(alpha, beta, eps, d)
    assert -beta <= worst.log_variance_ratio <= beta
    for x in beta * rng.uniform(-1, 1, 5):
        ratio = np.exp(x / 2)
        distance = rng.choice([0.3, 1.0]) * min(1, ratio) / alpha
        delta = gaussian_pair_delta(distance, ratio, 1.0, eps, d)
        assert delta <= worst.delta * (1 + 1e-6) + 1e-14


def test_a_maximum_inside_is_found():
    """With far shifts a wider first Gaussian hides the shift: the maximum is inside."""
    pair = smoothed.worst_pair(0.2, 1.5, 0.1, 1, points=5)
    fine = smoothed.worst_pair(0.2, 1.5, 0.1, 1, points=101)
    assert abs(pair.log_variance_ratio) < 1.5
    assert pair.delta == pytest.approx(fine.delta, rel=1e-6)


@pytest.mark.parametrize(
    ("alpha", "beta", "eps", "delta", "d"),
    [(2.904, 0.0146, 0.1, 0.1, 40), (2.904, 0.0202, 0.1, 0.1, 20), (46.1, 0.00376, 0.1, 1e-5, 40)],
)
def test_calibration_inverts_the_worst_delta(alpha, beta, eps, delta, d):
    found = smoothed.calibrated_alpha(beta, eps, delta, d)
    assert found == pytest.approx(alpha, rel=2e-3)
    assert smoothed.worst_delta(found, beta, eps, d) == pytest.approx(delta, rel=1e-6)


def test_calibration_tends_to_the_analytic_gaussian_as_beta_vanishes():
    found = smoothed.calibrated_alpha(1e-9, 0.1, 0.1, 40)
    assert found == pytest.approx(analytic_gaussian_sigma(1.0, 0.1, 0.1), rel=1e-6)
    assert gaussian_delta(1.0, found, 0.1) == pytest.approx(0.1, rel=1e-6)


def test_largest_beta_is_where_alpha_becomes_infinite():
    beta = smoothed.largest_beta(0.1, 0.1, 40)
    assert gaussian_pair_delta(0.0, np.exp(beta / 2), 1.0, 0.1, 40) == pytest.approx(0.1)
    assert np.isfinite(smoothed.calibrated_alpha(0.99 * beta, 0.1, 0.1, 40))
    assert np.isinf(smoothed.calibrated_alpha(1.01 * beta, 0.1, 0.1, 40))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: smoothing_constants(0.0, 0.1, 1), "epsilon"),
        (lambda: smoothing_constants(1.0, 1.0, 1), "delta"),
        (lambda: smoothing_constants(1.0, 0.1, 0.5), "dimension"),
        (lambda: smoothed.lemma_3_2_constants(5.1, 0.1, 1), "epsilon <= 5"),
        (lambda: smoothed.lemma_3_1_proof_bound(1.0, 0.1, 1, smoothed="both"), "smoothed"),
        (lambda: smoothed.lemma_3_2_event([[1.0]], [0.0], 0.1), "direction"),
        (lambda: smoothed.lemma_3_2_event([[1.0, 2.0]], [1.0], 0.1), "agree"),
        (lambda: smoothed.lemma_3_3([0.5, 0.6], [0.5, 0.5], 0.1), "first"),
        (lambda: smoothed.lemma_3_3([1.0], [0.5, 0.5], 0.1), "last axis"),
        (lambda: smoothed.lemma_3_3([1.0], [1.0], -0.1), "epsilon"),
        (lambda: smoothed.worst_pair(1.0, 1.0, 1.0, 1, points=4), "odd"),
        (lambda: smoothed.worst_pair(0.0, 1.0, 1.0, 1), "alpha"),
        (lambda: smoothed.largest_beta(1.0, 2.0, 1), "delta"),
    ],
)
def test_bad_input(call, message):
    with pytest.raises(ValueError, match=message):
        call()
