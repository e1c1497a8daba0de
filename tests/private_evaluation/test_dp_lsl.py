"""DP-LSL: psi against brute force, smoothness, sensitivity, and the release itself."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import minimize_scalar

from dprl.evaluation import lsl
from dprl.features import aggregation, operator_norm, tabular
from dprl.mdp import Chain
from dprl.privacy import Guarantee
from dprl.private_evaluation import (
    LSL,
    dp_lsl,
    lsl_local_bound,
    lsl_smooth_bound,
    return_spread,
)
from dprl.trajectories import (
    FirstVisitReturns,
    VisitStatistics,
    chain_first_visit_returns,
    chain_visit_statistics,
)

PROMISE = {"epsilon": 0.1, "delta": 0.1}
betas = st.floats(-5, 0.3).map(lambda x: 10**x)
coefficients = st.floats(-4, 1).map(lambda x: 10**x)
ratios = st.one_of(st.just(1.0), st.floats(1, 2))
seeds = st.integers(0, 2**32 - 1)


@st.composite
def signatures(draw, real=False):
    """Counts up to m, among them 0 and m, and weights in [0, 1], among them 0 and 1."""
    m = draw(st.one_of(st.integers(1, 5), st.integers(1, 1500)))
    count = st.floats(0, m) if real else st.integers(0, m)
    one = st.tuples(
        st.one_of(st.sampled_from([0, m]), count),
        st.one_of(st.sampled_from([0.0, 1.0]), st.floats(0.01, 1)),
    )
    rows = draw(st.lists(one, min_size=1, max_size=6).filter(lambda x: any(r for _, r in x)))
    v, rho = np.array(rows, float).T
    return v, rho, m


def brute_force(v, rho, m, c, beta, q=1.0):
    """Algorithm 2 as printed: every k up to m; O(N m)."""
    k = np.arange(m + 1)
    total = (rho * np.minimum(v + k[:, None], m)).sum(axis=1)
    terms = np.exp(-beta * k) * (c * np.sqrt(total) + q * np.sqrt((rho**2).sum())) ** 2
    return terms.max(), terms


@given(signatures(), coefficients, betas, ratios)
def test_psi_equals_brute_force(signature, c, beta, q):
    v, rho, m = signature
    psi, k = lsl_smooth_bound(v, rho, m, c, beta, step_ratio=q)
    best, terms = brute_force(v, rho, m, c, beta, q)
    assert psi == pytest.approx(best, rel=1e-12)
    assert terms[int(k)] == pytest.approx(best, rel=1e-12)


@given(signatures(real=True), coefficients, betas, ratios)
def test_psi_of_expected_counts_equals_brute_force(signature, c, beta, q):
    v, rho, m = signature
    psi, k = lsl_smooth_bound(v, rho, m, c, beta, step_ratio=q)
    best, terms = brute_force(v, rho, m, c, beta, q)
    assert psi == pytest.approx(best, rel=1e-12)
    assert k == int(k)
    assert terms[int(k)] == pytest.approx(best, rel=1e-12)


@given(signatures(real=True), st.lists(coefficients, min_size=1, max_size=4), betas)
def test_several_coefficients_are_as_one_by_one(signature, several, beta):
    v, rho, m = signature
    psi, k = lsl_smooth_bound(v, rho, m, several, beta)
    assert psi.shape == k.shape == (len(several),)
    one_by_one = [lsl_smooth_bound(v, rho, m, c, beta) for c in several]
    np.testing.assert_allclose(psi, [float(one[0]) for one in one_by_one], rtol=1e-13)
    np.testing.assert_array_equal(k, [float(one[1]) for one in one_by_one])


def test_several_ridges_broadcast_against_the_counts():
    v, phi, rho = [[9, 3, 0], [4, 4, 8]], np.eye(3), np.ones(3)
    kwargs = {"epsilon": 0.5, "delta": 0.01}
    both = LSL(phi, rho, [[5.0], [7.0], [90.0]], f_max=1.0).noise(v, 10, **kwargs)
    assert both.sigma.shape == (3, 2)
    for i, ridge in enumerate((5.0, 7.0, 90.0)):
        one = LSL(phi, rho, ridge, f_max=1.0).noise(v, 10, **kwargs)
        np.testing.assert_allclose(both.sigma[i], one.sigma, rtol=1e-13)
    with pytest.raises(ValueError, match="ridge must exceed"):
        LSL(phi, rho, [5.0, 0.5], f_max=1.0).noise(v, 10, **kwargs)


@given(seeds, coefficients, betas)
def test_psi_on_leading_axes_is_a_loop(seed, c, beta):
    rng = np.random.default_rng(seed)
    v, rho = rng.integers(0, 201, size=(2, 3, 5)), rng.random(5)
    psi, k = lsl_smooth_bound(v, rho, 200, c, beta)
    assert psi.shape == k.shape == (2, 3)
    each = [[lsl_smooth_bound(x, rho, 200, c, beta) for x in row] for row in v]
    assert psi == pytest.approx(np.array([[p for p, _ in row] for row in each]))
    assert k == pytest.approx(np.array([[q for _, q in row] for row in each]))


@given(signatures(), coefficients, st.integers(0, 2000), ratios)
def test_the_local_bound_is_its_sum(signature, c, k, q):
    v, rho, m = signature
    total = sum(r * min(n + k, m) for n, r in zip(v, rho, strict=True))
    expected = (c * total**0.5 + q * sum(rho**2) ** 0.5) ** 2
    assert lsl_local_bound(v, rho, m, c, k, step_ratio=q) == pytest.approx(expected)


def test_the_maximum_is_not_at_a_breakpoint():
    """v = (20, 3), m = 5000, lambda = 50: k* = 309 and psi = 8.393105; at breakpoints 3.586."""
    v, rho, m, c, beta = np.array([20, 3]), np.ones(2), 5000, 1 / np.sqrt(100), 0.002
    psi, k = lsl_smooth_bound(v, rho, m, c, beta)
    assert (round(float(psi), 6), int(k)) == (8.393105, 309)
    at = np.append(m - v, 0)
    breakpoints = np.exp(-beta * at) * lsl_local_bound(v[None], rho, m, c, at)
    assert breakpoints.max() == pytest.approx(3.586, abs=5e-4)


def test_psi_of_a_large_batch_is_a_smooth_maximisation():
    """Second method: bounded search over real k, then the integers beside it."""
    rng = np.random.default_rng(0)
    m, c, beta = 10**7, 0.02, 3e-6
    v, rho = rng.integers(0, 10**5, size=12), rng.random(12)

    def loss(k):
        return float(beta * k - np.log(lsl_local_bound(v, rho, m, c, k)))

    found = minimize_scalar(loss, bounds=(0, m), method="bounded", options={"xatol": 1e-3})
    psi, k = lsl_smooth_bound(v, rho, m, c, beta)
    assert 1000 < k < m - 10**5
    assert np.log(psi) == pytest.approx(-found.fun, abs=1e-10)
    assert loss(k) <= min(loss(k - 1), loss(k + 1))


def test_printed_max_in_place_of_min_would_lose_the_data():
    """phi_k with max{v + k, m} grows beyond k = m - min v, where Lemma 3.11 says it rests."""
    m, c, rho = 100, 0.1, np.ones(2)
    v = np.array([10, 60])
    rest = lsl_local_bound(v, rho, m, c, [90, 100, 500])
    assert rest == pytest.approx(np.full(3, (c * np.sqrt(200) + np.sqrt(2)) ** 2))


# limits


@given(st.integers(1, 10**7), st.integers(1, 8), coefficients, betas)
def test_full_counts_have_nowhere_to_grow(m, n, c, beta):
    rho = np.linspace(0.2, 1, n)
    psi, k = lsl_smooth_bound([m] * n, rho, m, c, beta)
    assert k == 0
    assert psi == pytest.approx((c * np.sqrt(m * rho.sum()) + np.linalg.norm(rho)) ** 2)


@given(signatures())
def test_limits_in_beta(signature):
    v, rho, m = signature
    psi, _ = lsl_smooth_bound(v, rho, m, 0.3, 1e-13)  # distance is free: every count is m
    assert psi == pytest.approx(lsl_local_bound(np.full(v.size, m), rho, m, 0.3), rel=1e-6)
    psi, k = lsl_smooth_bound(v, rho, m, 0.3, 60.0)  # distance is dear
    assert psi == pytest.approx(lsl_local_bound(v, rho, m, 0.3), rel=1e-12)
    assert k == 0


@given(signatures(), betas)
def test_with_a_huge_ridge_only_the_returns_count(signature, beta):
    """lambda -> inf, c -> 0: psi -> ||rho||^2, whatever the counts."""
    v, rho, m = signature
    psi, _ = lsl_smooth_bound(v, rho, m, 1e-12, beta)
    assert psi == pytest.approx((rho**2).sum(), rel=1e-6)


def test_sigma_goes_to_the_global_sensitivity_of_the_returns_as_the_ridge_grows():
    """sigma lambda -> 2 alpha F ||Phi|| ||rho||."""
    rho = np.linspace(0.3, 1, 5)
    noise = LSL(tabular(5), rho, 1e12, f_max=2.0).noise([3, 0, 7, 7, 1], 7, **PROMISE)
    limit = 2 * noise.alpha * 2.0 * np.linalg.norm(rho)
    assert noise.sigma * 1e12 == pytest.approx(limit, rel=1e-5)  # the gap is O(lambda^-1/2)


@given(signatures(), coefficients, betas)
def test_psi_is_between_its_limits_and_grows_with_the_counts(signature, c, beta):
    v, rho, m = signature
    psi, _ = lsl_smooth_bound(v, rho, m, c, beta)
    assert lsl_local_bound(v, rho, m, c) <= psi * (1 + 1e-12)
    assert psi <= lsl_local_bound(v, rho, m, c, m) * (1 + 1e-12)
    more, _ = lsl_smooth_bound(np.minimum(v + 1, m), rho, m, c, beta)
    assert more >= psi * (1 - 1e-12)


# smoothness


@pytest.mark.parametrize("m", [3, 500, 20_000])
@pytest.mark.parametrize(("c", "beta"), [(0.1, 5.8e-4), (1.0, 1e-2), (5.0, 0.5)])
def test_psi_is_smooth_on_random_neighbours(m, c, beta):
    rng = np.random.default_rng(1)
    pairs, n = 4_000, 6
    scale = 10 ** rng.uniform(0, np.log10(m), size=(pairs, 1))
    v = np.floor((scale + 1) * rng.random((pairs, n))).clip(0, m)
    v = np.where(rng.random((pairs, 1)) < 0.2, v[:, :1], v)  # also all equal
    step = rng.integers(-1, 2, size=(pairs, n))
    step = np.where(rng.random((pairs, 1)) < 0.4, step[:, :1], step)
    rho = rng.random(n)
    psi, _ = lsl_smooth_bound(v, rho, m, c, beta)
    other, _ = lsl_smooth_bound((v + step).clip(0, m), rho, m, c, beta)
    change = np.abs(np.log(psi / other))
    assert change.max() <= beta * (1 + 1e-9)
    if (m, beta) == (20_000, 5.8e-4):
        assert change.max() > 0.99 * beta  # no smoother than it has to be


def test_a_truncated_range_of_k_breaks_smoothness():
    beta, m, c = 5.8e-4, 10_000, 1.0
    k = np.arange(51)

    def truncated(v):
        return (np.exp(-beta * k) * lsl_local_bound([[v]], [1.0], m, c, k)).max()

    jump = abs(np.log(truncated(0) / truncated(1)))
    assert jump > 10 * beta
    full = [lsl_smooth_bound([v], [1.0], m, c, beta)[0] for v in (0, 1)]
    assert abs(np.log(full[0] / full[1])) <= beta * (1 + 1e-9)


@pytest.mark.parametrize("m", [10**3, 10**6])
def test_the_number_of_candidates_does_not_depend_on_the_batch_size(monkeypatch, m):
    tried = []
    original = lsl_smooth_bound.__globals__["largest_term"]

    def recorded(terms, k):
        tried.append(terms.shape)
        return original(terms, k)

    monkeypatch.setitem(lsl_smooth_bound.__globals__, "largest_term", recorded)
    lsl_smooth_bound(np.arange(1, 41) * m // 40, np.ones(40), m, 0.1, 1e-3)
    assert tried == [(2 * 40 + 1,)]


# sensitivity

RANGES = [(0.0, 1.0), (0.0, 100.0), (-1.0, 1.0), (-3.0, 0.5), (0.5, 2.0)]


def neighbouring_returns(rng, pairs, m, n, low, high):
    """Random returns in [low, high], often at its ends; one trajectory replaced."""

    def draw(*shape):
        ends = rng.choice([low, high], size=shape)
        return np.where(rng.random(shape) < 0.6, ends, rng.uniform(low, high, size=shape))

    visits = rng.random((pairs, 1, n)) ** 2
    visited = rng.random((pairs, m, n)) < visits
    returns = np.where(visited, draw(pairs, m, n), 0.0)
    other_visited, other = visited.copy(), returns.copy()
    other_visited[:, 0] = rng.random((pairs, n)) < 0.5
    other[:, 0] = np.where(other_visited[:, 0], draw(pairs, n), 0.0)
    return (returns, visited), (other, other_visited)


def statistics(returns, visited, bounds):
    counts = visited.sum(axis=1)
    means = returns.sum(axis=1) / np.maximum(counts, 1)
    return VisitStatistics(counts, means, visited.shape[1], bounds)


def coefficient(phi, rho, ridge):
    return operator_norm(phi) * rho.max() / np.sqrt(2 * ridge)


def relative_step(x, other, phi, rho, ridge, bounds):
    """||theta_X - theta_X'|| over the bound that sigma / alpha uses at k = 0."""
    (low, high), m = bounds, x.n_trajectories
    noise = LSL(phi, rho, ridge, f_max=high, f_min=low).noise(x.counts, m, **PROMISE)
    per_root = noise.sigma / (noise.alpha * np.sqrt(noise.psi))
    step, size = return_spread(low, high)
    c = coefficient(phi, rho, ridge)
    bound = per_root * np.sqrt(lsl_local_bound(x.counts, rho, m, c, step_ratio=step / size))
    return np.linalg.norm(lsl(x, phi, rho, ridge) - lsl(other, phi, rho, ridge), axis=-1) / bound


def feature_sets(rng, n):
    return [tabular(n), aggregation(n), aggregation(n, orthonormal=True), rng.normal(size=(n, 3))]


@pytest.mark.parametrize("bounds", RANGES)
@pytest.mark.parametrize("m", [1, 2, 5])
def test_no_replaced_trajectory_moves_theta_by_more_than_the_bound(bounds, m):
    rng = np.random.default_rng(m)
    first, second = neighbouring_returns(rng, 1_500, m, 4, *bounds)
    x, other = statistics(*first, bounds), statistics(*second, bounds)
    for phi in feature_sets(rng, 4):
        for rho in (np.ones(4), rng.uniform(0.01, 1, size=4)):
            least = operator_norm(phi) ** 2 * rho.max()
            for ridge in (1.01 * least, 3 * least, 1e6 * least):
                assert relative_step(x, other, phi, rho, ridge, bounds).max() <= 1 + 1e-9
                assert relative_step(other, x, phi, rho, ridge, bounds).max() <= 1 + 1e-9


def test_the_printed_bound_is_violated_twofold_by_signed_returns():
    """N = m = 1, lambda = 1e6: the return turns from +F to -F. With q = 2 the bound is met."""
    ridge, phi, rho = 1e6, np.eye(1), np.ones(1)
    every = np.ones((1, 1), bool)
    x, other = (FirstVisitReturns([[r]], every).statistics((-1, 1)) for r in (1.0, -1.0))
    step = abs(lsl(x, phi, rho, ridge) - lsl(other, phi, rho, ridge)).item()
    c = coefficient(phi, rho, ridge)
    printed = 2 / (ridge - 1) * np.sqrt(lsl_local_bound([1], rho, 1, c))
    assert step / printed == pytest.approx(2, abs=2e-3)
    assert relative_step(x, other, phi, rho, ridge, (-1.0, 1.0)) == pytest.approx(1, abs=2e-3)
    assert relative_step(x, other, phi, rho, ridge, (-1.0, 1.0)) <= 1


@pytest.mark.parametrize("bounds", [(0.0, 1.0), (-1.0, 1.0)])
def test_both_conditions_of_lemma_3_1_hold_between_neighbours(bounds):
    """(a) sigma >= alpha times the step, (b) ln sigma^2 moves by at most beta."""
    rng = np.random.default_rng(9)
    low, high = bounds
    first, second = neighbouring_returns(rng, 3_000, 6, 4, low, high)
    x, other = statistics(*first, bounds), statistics(*second, bounds)
    for phi in feature_sets(rng, 4):
        rho = rng.uniform(0.01, 1, size=4)
        ridge = 2 * operator_norm(phi) ** 2 * rho.max()
        noise, changed = (
            LSL(phi, rho, ridge, f_max=high, f_min=low).noise(y.counts, 6, **PROMISE)
            for y in (x, other)
        )
        step = np.linalg.norm(lsl(x, phi, rho, ridge) - lsl(other, phi, rho, ridge), axis=-1)
        assert (noise.sigma >= noise.alpha * step * (1 - 1e-12)).all()
        change = np.abs(np.log(noise.sigma**2 / changed.sigma**2))
        assert change.max() <= noise.beta * (1 + 1e-9)


# the noise


def test_noise_of_the_thesis_setting():
    """d = 40 tabular features, rho = 1, F = 1, m = 1e4, lambda = 100, epsilon = delta = 0.1."""
    m, ones = 10_000, np.ones(40)
    noise = LSL(tabular(40), ones, 100.0, f_max=1).noise([m] * 40, m, **PROMISE)
    assert noise.sigma == pytest.approx(126.2096, rel=1e-6)
    assert noise.distance == 0
    same = LSL(tabular(40), ones / 40, 2.5, f_max=1).noise([m] * 40, m, **PROMISE)
    assert same.sigma == pytest.approx(126.2096, rel=1e-6)


@given(seeds, st.floats(0.01, 1))
def test_noise_depends_on_the_ratio_of_weights_and_ridge_only(seed, c):
    rng = np.random.default_rng(seed)
    v, phi, rho = rng.integers(0, 500, size=5), rng.normal(size=(5, 2)), rng.uniform(0.1, 1, 5)
    ridge = 1.5 * operator_norm(phi) ** 2
    one = LSL(phi, rho, ridge, f_max=2.0).noise(v, 500, **PROMISE)
    scaled = LSL(phi, c * rho, c * ridge, f_max=2.0).noise(v, 500, **PROMISE)
    assert scaled.sigma == pytest.approx(one.sigma)


@given(seeds, st.floats(0.01, 100))
def test_noise_scales_with_the_features_as_the_parameters_do(seed, c):
    """Phi -> c Phi, lambda -> c^2 lambda turns theta into theta / c; so with the noise."""
    rng = np.random.default_rng(seed)
    v, phi, rho = rng.integers(0, 500, size=5), rng.normal(size=(5, 2)), rng.uniform(0.1, 1, 5)
    ridge = 1.5 * operator_norm(phi) ** 2
    one = LSL(phi, rho, ridge, f_max=2.0).noise(v, 500, **PROMISE)
    scaled = LSL(c * phi, rho, c**2 * ridge, f_max=2.0).noise(v, 500, **PROMISE)
    assert scaled.sigma == pytest.approx(one.sigma / c)


def test_noise_is_proportional_to_the_range_and_follows_the_formula():
    v, phi, rho, m = np.array([30, 7]), np.array([[1.0, 0.5], [0.0, 2.0]]), np.array([1.0, 0.3]), 40
    ridge = 9.0
    one = LSL(phi, rho, ridge, f_max=1.0).noise(v, m, **PROMISE)
    hundred = LSL(phi, rho, ridge, f_max=100.0).noise(v, m, **PROMISE)
    assert hundred.sigma == pytest.approx(100 * one.sigma)
    norm = np.linalg.svd(phi)[1].max()
    psi, _ = brute_force(v, rho, m, norm * 1.0 / np.sqrt(2 * ridge), one.beta)
    assert one.sigma == pytest.approx(2 * one.alpha * norm / (ridge - norm**2) * np.sqrt(psi))
    signed = LSL(phi, rho, ridge, f_max=1.0, f_min=-1.0).noise(v, m, **PROMISE)
    doubled, _ = brute_force(v, rho, m, norm * 1.0 / np.sqrt(2 * ridge), one.beta, q=2.0)
    assert signed.sigma == pytest.approx(one.sigma * np.sqrt(doubled / psi))


@pytest.mark.parametrize("excess", [1e-9, 0.0, -0.5])
def test_the_ridge_must_exceed_its_bound(excess):
    phi, rho = aggregation(4), np.array([0.5, 0.2, 0.5, 0.1])  # ||Phi||^2 ||rho|| = 1
    ridge = operator_norm(phi) ** 2 * 0.5 + excess
    if excess > 0:
        assert LSL(phi, rho, ridge, f_max=1).noise([1] * 4, 2, **PROMISE).sigma > 1e9
    else:
        with pytest.raises(ValueError, match=r"ridge must exceed .* = 1"):
            LSL(phi, rho, ridge, f_max=1).noise([1] * 4, 2, **PROMISE)
        improved = LSL(phi, rho, ridge, f_max=1, improved=True).noise([1] * 4, 2, **PROMISE)
        assert np.isfinite(improved.sigma)


@given(signatures(), st.floats(1.001, 100), st.integers(0, 9))
def test_improved_noise_divides_by_the_ridge_alone(case, factor, seed):
    v, rho, m = case
    phi = np.random.default_rng(seed).normal(size=(v.size, 2))
    least = operator_norm(phi) ** 2 * rho.max()
    printed, improved = (
        LSL(phi, rho, factor * least, f_max=1.0, improved=better).noise(v, m, **PROMISE).sigma
        for better in (False, True)
    )
    assert printed * (factor - 1) == pytest.approx(improved * factor, rel=1e-9)


def test_the_improved_release_is_the_improved_noise_on_the_same_solution():
    data, phi, rho = some_statistics(), aggregation(6), np.linspace(0.2, 1, 6)
    estimator = LSL(phi, rho, 0.5, f_max=1, improved=True)
    release = dp_lsl(data, estimator, rng=np.random.default_rng(5), **PROMISE)
    noise = estimator.noise(data.counts, 80, **PROMISE).sigma
    normal = np.random.default_rng(5).standard_normal(3)
    assert release.theta == pytest.approx(lsl(data, phi, rho, 0.5) + noise * normal)


# the release


def some_statistics(n_batches=None):
    chain = Chain(6, start="uniform")
    rng = np.random.default_rng(2)
    return chain_visit_statistics(chain, 80, rng, bounds=(0, 1), n_batches=n_batches)


@pytest.mark.parametrize("n_batches", [None, 4])
def test_the_release_is_theta_plus_sigma_times_the_normal_stream(n_batches):
    data, phi, rho = some_statistics(n_batches), aggregation(6), np.linspace(0.2, 1, 6)
    release = dp_lsl(data, LSL(phi, rho, 9.0, f_max=1), rng=np.random.default_rng(5), **PROMISE)
    noise = LSL(phi, rho, 9.0, f_max=1).noise(data.counts, 80, **PROMISE)
    theta = lsl(data, phi, rho, 9.0)
    stream = np.random.default_rng(5).standard_normal(theta.shape)
    assert release.theta == pytest.approx(theta + noise.sigma[..., None] * stream, rel=1e-12)
    again = dp_lsl(data, LSL(phi, rho, 9.0, f_max=1), rng=np.random.default_rng(5), **PROMISE)
    assert (again.theta == release.theta).all()


def test_the_release_carries_its_guarantee_and_nothing_else():
    promise = {"epsilon": 0.7, "delta": 1e-6}
    rng = np.random.default_rng(0)
    release = dp_lsl(
        some_statistics(), LSL(tabular(6), np.ones(6), 9.0, f_max=1), rng=rng, **promise
    )
    assert release.guarantee == Guarantee(0.7, 1e-6, "replace one trajectory")
    assert set(vars(release)) == {"theta", "guarantee"}  # no sigma, psi or counts


def test_the_noise_has_the_promised_spread_and_independent_components():
    """20 000 releases: variances and correlations, |z| < 5."""
    n = 20_000
    one = some_statistics()
    many = VisitStatistics(
        np.tile(one.counts, (n, 1)), np.tile(one.mean_returns, (n, 1)), 80, one.bounds
    )
    phi, rho = aggregation(6), np.ones(6)
    release = dp_lsl(many, LSL(phi, rho, 9.0, f_max=1), rng=np.random.default_rng(1), **PROMISE)
    sigma = LSL(phi, rho, 9.0, f_max=1).noise(one.counts, 80, **PROMISE).sigma
    z = (release.theta - lsl(one, phi, rho, 9.0)) / sigma
    assert np.abs(z.mean(axis=0)).max() < 5 / np.sqrt(n)
    assert np.abs((z**2).mean(axis=0) - 1).max() < 5 * np.sqrt(2 / n)
    assert np.abs(np.corrcoef(z.T) - np.eye(3)).max() < 5 / np.sqrt(n)


def test_single_returns_are_clipped_before_they_are_averaged():
    chain = Chain(6, start="uniform")
    returns = chain_first_visit_returns(chain, 60, np.random.default_rng(4))
    scaled = FirstVisitReturns(5 * returns.returns - 2 * returns.visited, returns.visited)
    estimator = LSL(tabular(6), np.ones(6), 2.0, f_max=1.0, f_min=-0.5)
    clipped = scaled.statistics((-0.5, 1.0))
    direct, prepared = (
        dp_lsl(data, estimator, rng=np.random.default_rng(0), **PROMISE)
        for data in (scaled, clipped)
    )
    assert (direct.theta == prepared.theta).all()


@pytest.mark.parametrize("bounds", [None, (0.0, 2.0), (-1.0, 1.0)])
def test_averages_not_clipped_into_the_declared_range_are_refused(bounds):
    data = VisitStatistics([3, 3], [0.5, 0.5], 3, bounds)
    with pytest.raises(ValueError, match="clip every single return before averaging"):
        dp_lsl(data, LSL(tabular(2), [1, 1], 9.0, f_max=1), rng=np.random.default_rng(0), **PROMISE)


def test_a_ridge_of_half_precision_is_taken_as_a_double():
    assert type(LSL(np.eye(2), [1.0, 1.0], np.float16(500), f_max=1.0).ridge) is float
