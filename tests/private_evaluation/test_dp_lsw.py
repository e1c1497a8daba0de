"""DP-LSW: psi against brute force, smoothness, sensitivity, and the release itself."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dprl.evaluation import lsw
from dprl.features import aggregation, tabular
from dprl.mdp import Chain
from dprl.privacy import Guarantee
from dprl.private_evaluation import (
    LSW,
    NEIGHBOURS,
    dp_lsw,
    lsw_local_bound,
    lsw_smooth_bound,
)
from dprl.trajectories import (
    FirstVisitReturns,
    VisitStatistics,
    chain_first_visit_returns,
    chain_visit_statistics,
)

PROMISE = {"epsilon": 0.1, "delta": 0.1}
betas = st.floats(-5, 0.3).map(lambda x: 10**x)
weights = st.one_of(st.just(0.0), st.floats(0.01, 10))
whole_counts = st.one_of(st.integers(0, 4), st.integers(0, 400))


def states(count):
    """Counts and weights of the same number of states, one weight at least positive."""
    pair = st.lists(st.tuples(count, weights), min_size=1, max_size=7)
    return pair.filter(lambda rows: any(w > 0 for _, w in rows))


def brute_force(v, w, beta):
    """Algorithm 1 as printed: every k up to K_X; O(N max v)."""
    v, w = np.asarray(v, float), np.asarray(w, float)
    k = np.arange(int(np.ceil(v.max())) + 2)
    terms = np.exp(-beta * k) * (w / np.maximum(v - k[:, None], 1) ** 2).sum(axis=1)
    return terms.max(), terms


@given(states(whole_counts), betas)
def test_psi_equals_brute_force(rows, beta):
    v, w = zip(*rows, strict=True)
    psi, k = lsw_smooth_bound(v, w, beta)
    best, terms = brute_force(v, w, beta)
    assert psi == pytest.approx(best, rel=1e-12)
    assert terms[int(k)] == pytest.approx(best, rel=1e-12)


@given(states(st.floats(0, 300)), betas)
def test_psi_of_expected_counts_equals_brute_force(rows, beta):
    v, w = zip(*rows, strict=True)
    psi, k = lsw_smooth_bound(v, w, beta)
    best, terms = brute_force(v, w, beta)
    assert psi == pytest.approx(best, rel=1e-12)
    assert k == int(k)
    assert terms[int(k)] == pytest.approx(best, rel=1e-12)


@given(st.integers(0, 2**32 - 1), betas)
def test_psi_on_leading_axes_is_a_loop(seed, beta):
    rng = np.random.default_rng(seed)
    v, w = rng.integers(0, 200, size=(2, 3, 5)), rng.random(5)
    psi, k = lsw_smooth_bound(v, w, beta)
    assert psi.shape == k.shape == (2, 3)
    each = [[lsw_smooth_bound(x, w, beta) for x in row] for row in v]
    assert psi == pytest.approx(np.array([[p for p, _ in row] for row in each]))
    assert k == pytest.approx(np.array([[q for _, q in row] for row in each]))


@given(states(whole_counts), st.integers(0, 500))
def test_the_local_bound_is_its_sum(rows, k):
    v, w = zip(*rows, strict=True)
    expected = sum(b / max(a - k, 1) ** 2 for a, b in rows)
    assert lsw_local_bound(v, w, k) == pytest.approx(expected)


@given(st.integers(1, 5000), st.integers(1, 6), betas)
def test_equal_counts_leave_two_candidates(n, size, beta):
    """Corrected Lemma 3.14: max(n^-2, e^{-beta (n-1)}) times the sum of the weights."""
    w = np.linspace(0.5, 2, size)
    psi, k = lsw_smooth_bound([n] * size, w, beta)
    assert psi == pytest.approx(w.sum() * max(n**-2.0, np.exp(-beta * (n - 1))), rel=1e-12)
    assert k in (0, n - 1)


def test_printed_lemma_3_14_is_the_minimum_and_would_understate_psi():
    n, beta = 1000, 5.8145e-4  # the printed third case
    printed = np.e**2 / 4 * beta**2 * np.exp(-n * beta)
    assert lsw_smooth_bound([n], [1.0], beta)[0] > 1e6 * printed


@given(states(whole_counts))
def test_limits_in_beta(rows):
    v, w = np.array(rows).T
    psi, _ = lsw_smooth_bound(v, w, 1e-12)  # distance is free: every count falls to one
    assert psi == pytest.approx(w.sum(), rel=1e-6)
    psi, k = lsw_smooth_bound(v, w, 60.0)  # distance is dear: the local bound itself
    assert psi == pytest.approx(lsw_local_bound(v, w), rel=1e-12)
    assert k == 0


@given(states(whole_counts), betas)
def test_psi_is_between_its_limits_and_falls_with_beta(rows, beta):
    v, w = np.array(rows).T
    psi, _ = lsw_smooth_bound(v, w, beta)
    assert lsw_local_bound(v, w) <= psi * (1 + 1e-12)
    assert psi <= w.sum() * (1 + 1e-12)
    assert lsw_smooth_bound(v, w, 2 * beta)[0] <= psi * (1 + 1e-12)


def test_an_interior_breakpoint_can_win():
    psi, k = lsw_smooth_bound([10] * 5 + [2000] * 5, [1.0] * 10, 0.001)
    assert k == 9
    assert psi == pytest.approx(brute_force([10] * 5 + [2000] * 5, [1.0] * 10, 0.001)[0])


def neighbours(rng, pairs, n, largest):
    """Counts of every size, and counts that differ by at most one in each state."""
    scale = 10 ** rng.uniform(0, np.log10(largest), size=(pairs, 1))
    v = np.floor(scale * rng.random((pairs, n))).astype(int)
    v = np.where(rng.random((pairs, 1)) < 0.2, v[:, :1], v)  # also all equal
    step = rng.integers(-1, 2, size=(pairs, n))
    step = np.where(rng.random((pairs, 1)) < 0.4, step[:, :1], step)  # also all together
    return v, np.clip(v + step, 0, largest)


@pytest.mark.parametrize("beta", [5.8e-4, 1e-2, 0.5])
def test_psi_is_smooth_on_random_neighbours(beta):
    rng = np.random.default_rng(1)
    v, other = neighbours(rng, 10_000, 6, 20_000)
    w = rng.random(6)
    change = np.abs(np.log(lsw_smooth_bound(v, w, beta)[0] / lsw_smooth_bound(other, w, beta)[0]))
    assert change.max() <= beta * (1 + 1e-9)
    assert change.max() > 0.99 * beta  # and no smoother than it has to be


def test_a_truncated_range_of_k_breaks_smoothness():
    """N = 1, k <= 50: ln psi jumps by ln 4 instead of 5.8e-4."""
    beta = 5.8e-4
    k = np.arange(51)

    def truncated(v):
        return (np.exp(-beta * k) * lsw_local_bound([[v]], [1.0], k)).max()

    jump = abs(np.log(truncated(51) / truncated(52)))
    assert jump == pytest.approx(np.log(4))
    full = [lsw_smooth_bound([v], [1.0], beta)[0] for v in (51, 52)]
    assert abs(np.log(full[0] / full[1])) <= beta * (1 + 1e-9)


@pytest.mark.parametrize("m", [1e3, 1e6])
def test_the_number_of_candidates_does_not_depend_on_the_batch_size(monkeypatch, m):
    tried = []
    original = lsw_smooth_bound.__globals__["largest_term"]

    def recorded(terms, k):
        tried.append(terms.shape)
        return original(terms, k)

    monkeypatch.setitem(lsw_smooth_bound.__globals__, "largest_term", recorded)
    lsw_smooth_bound(np.arange(1, 41) * m / 40, np.ones(40), 1e-3)
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


def feature_sets(rng, n):
    return [tabular(n), aggregation(n), aggregation(n, orthonormal=True), rng.normal(size=(n, 3))]


def relative_step(x, other, phi, w, bounds):
    """||theta_X - theta_X'|| over the bound that sigma / alpha uses at k = 0."""
    low, high = bounds
    noise = LSW(phi, w, f_max=high, f_min=low).noise(x.counts, **PROMISE)
    per_root = noise.sigma / (noise.alpha * np.sqrt(noise.psi))
    bound = per_root * np.sqrt(lsw_local_bound(x.counts, w))
    return np.linalg.norm(lsw(x, phi, w) - lsw(other, phi, w), axis=-1) / bound


@pytest.mark.parametrize("bounds", RANGES)
@pytest.mark.parametrize("m", [1, 2, 5])
def test_no_replaced_trajectory_moves_theta_by_more_than_the_bound(bounds, m):
    rng = np.random.default_rng(m)
    first, second = neighbouring_returns(rng, 2_000, m, 4, *bounds)
    x, other = statistics(*first, bounds), statistics(*second, bounds)
    for phi in feature_sets(rng, 4):
        for w in (np.ones(4), rng.uniform(0.01, 1, size=4)):
            assert relative_step(x, other, phi, w, bounds).max() <= 1 + 1e-9
            assert relative_step(other, x, phi, w, bounds).max() <= 1 + 1e-9


@pytest.mark.parametrize("bounds", RANGES)
@pytest.mark.parametrize("m", [1, 2, 7])
def test_the_bound_is_attained(bounds, m):
    """One state: from the upper end of the range to the lower, or to no visit at all."""
    low, high = bounds
    every = np.ones((1, m, 1), bool)
    returns = np.full((1, m, 1), high)
    swapped, gone, unseen = returns.copy(), returns.copy(), every.copy()
    swapped[0, 0], gone[0, 0], unseen[0, 0] = low, 0.0, False
    x = statistics(returns, every, bounds)
    ratios = [
        relative_step(x, other, np.eye(1), np.ones(1), bounds)[0]
        for other in (statistics(swapped, every, bounds), statistics(gone, unseen, bounds))
    ]
    assert max(ratios) <= 1 + 1e-12
    if low <= 0 or m == 1:
        assert max(ratios) == pytest.approx(1)


def test_the_printed_constant_is_violated_twofold_by_signed_returns():
    """Returns in [-F, F]: one trajectory turns from +F to -F, the average moves by 2F/n."""
    f, n = 1.0, 5
    x = FirstVisitReturns([[f]] * n, np.ones((n, 1), bool))
    other = FirstVisitReturns([[-f], *[[f]] * (n - 1)], np.ones((n, 1), bool))
    step = abs(
        lsw(x.statistics(), np.eye(1), [1.0]) - lsw(other.statistics(), np.eye(1), [1.0])
    ).item()
    printed = f * np.sqrt(lsw_local_bound([n], [1.0]))  # Corollary 3.5 as printed, D = F
    assert step / printed == pytest.approx(2)
    signed = LSW(np.eye(1), [1.0], f_max=f, f_min=-f).noise([n], **PROMISE)
    positive = LSW(np.eye(1), [1.0], f_max=f).noise([n], **PROMISE)
    assert signed.sigma == pytest.approx(2 * positive.sigma)


@pytest.mark.parametrize("bounds", [(0.0, 1.0), (-1.0, 1.0)])
def test_both_conditions_of_lemma_3_1_hold_between_neighbours(bounds):
    """(a) sigma >= alpha times the step, (b) ln sigma^2 moves by at most beta."""
    rng = np.random.default_rng(9)
    first, second = neighbouring_returns(rng, 3_000, 6, 4, *bounds)
    x, other = statistics(*first, bounds), statistics(*second, bounds)
    for phi in feature_sets(rng, 4):
        w = rng.uniform(0.01, 1, size=4)
        noise, changed = (
            LSW(phi, w, f_max=bounds[1], f_min=bounds[0]).noise(y.counts, **PROMISE)
            for y in (x, other)
        )
        step = np.linalg.norm(lsw(x, phi, w) - lsw(other, phi, w), axis=-1)
        assert (noise.sigma >= noise.alpha * step * (1 - 1e-12)).all()
        change = np.abs(np.log(noise.sigma**2 / changed.sigma**2))
        assert change.max() <= noise.beta * (1 + 1e-9)


def test_rank_deficient_features_keep_the_bound():
    rng = np.random.default_rng(3)
    bounds = (0.0, 1.0)
    first, second = neighbouring_returns(rng, 2_000, 3, 4, *bounds)
    x, other = statistics(*first, bounds), statistics(*second, bounds)
    phi = rng.normal(size=(4, 2)) @ rng.normal(size=(2, 4))
    w = np.array([1.0, 0.5, 0.0, 1.0])
    options = {"allow_rank_deficient": True}
    noise = LSW(phi, w, f_max=1, **options).noise(x.counts, **PROMISE)
    step = np.linalg.norm(lsw(x, phi, w, **options) - lsw(other, phi, w, **options), axis=-1)
    bound = noise.sigma / (noise.alpha * np.sqrt(noise.psi)) * np.sqrt(lsw_local_bound(x.counts, w))
    assert (step <= bound * (1 + 1e-9)).all()
    release = dp_lsw(x, LSW(phi, w, f_max=1, **options), rng=rng, **PROMISE)
    assert release.theta.shape == (2_000, 4)


# the noise


@pytest.mark.parametrize(
    ("m", "sigma"), [(100, 752.0845), (1000, 578.9377), (10_000, 42.29446), (100_000, 0.00774)]
)
def test_noise_of_the_thesis_setting(m, sigma):
    """d = 40 tabular features, w = 1, F = 1, every count m, epsilon = delta = 0.1."""
    noise = LSW(tabular(40), np.ones(40), f_max=1).noise([m] * 40, **PROMISE)
    assert noise.sigma == pytest.approx(sigma, rel=1e-4 if m == 100_000 else 1e-6)
    assert noise.distance == (m - 1 if m < 36_097 else 0)


@given(st.integers(0, 2**32 - 1), st.floats(1e-3, 1e3))
def test_noise_does_not_depend_on_the_scale_of_the_weights(seed, c):
    rng = np.random.default_rng(seed)
    v, phi, w = rng.integers(0, 500, size=5), rng.normal(size=(5, 2)), rng.uniform(0.1, 1, 5)
    one = LSW(phi, w, f_max=2.0).noise(v, **PROMISE)
    scaled = LSW(phi, c * w, f_max=2.0).noise(v, **PROMISE)
    assert scaled.sigma == pytest.approx(one.sigma)


def test_noise_is_proportional_to_the_range_and_follows_the_formula():
    v, phi, w = [30, 7], np.array([[1.0, 0.5], [0.0, 2.0]]), np.array([1.0, 0.3])
    one = LSW(phi, w, f_max=1.0).noise(v, **PROMISE)
    hundred = LSW(phi, w, f_max=100.0).noise(v, **PROMISE)
    assert hundred.sigma == pytest.approx(100 * one.sigma)
    smallest = np.linalg.svd(np.sqrt(w)[:, None] * phi)[1].min()
    psi, _ = brute_force(v, w, one.beta)
    assert one.sigma == pytest.approx(one.alpha * np.sqrt(psi) / smallest)


# the release


def some_statistics(n_batches=None):
    chain = Chain(6, start="uniform")
    rng = np.random.default_rng(2)
    return chain_visit_statistics(chain, 80, rng, bounds=(0, 1), n_batches=n_batches)


@pytest.mark.parametrize("n_batches", [None, 4])
def test_the_release_is_theta_plus_sigma_times_the_normal_stream(n_batches):
    data, phi, w = some_statistics(n_batches), aggregation(6), np.linspace(0.2, 1, 6)
    release = dp_lsw(data, LSW(phi, w, f_max=1), rng=np.random.default_rng(5), **PROMISE)
    noise = LSW(phi, w, f_max=1).noise(data.counts, **PROMISE)
    theta = lsw(data, phi, w)
    stream = np.random.default_rng(5).standard_normal(theta.shape)
    assert release.theta == pytest.approx(theta + noise.sigma[..., None] * stream, rel=1e-12)
    again = dp_lsw(data, LSW(phi, w, f_max=1), rng=np.random.default_rng(5), **PROMISE)
    assert (again.theta == release.theta).all()


def test_the_release_carries_its_guarantee_and_nothing_else():
    release = dp_lsw(
        some_statistics(),
        LSW(tabular(6), np.ones(6), f_max=1),
        epsilon=0.7,
        delta=1e-6,
        rng=np.random.default_rng(0),
    )
    assert release.guarantee == Guarantee(0.7, 1e-6, "replace one trajectory")
    assert NEIGHBOURS == "replace one trajectory"
    assert set(vars(release)) == {"theta", "guarantee"}  # no sigma, psi or counts


def test_the_noise_has_the_promised_spread_and_independent_components():
    """20 000 releases: variances and correlations, |z| < 5."""
    n = 20_000
    one = some_statistics()
    many = VisitStatistics(
        np.tile(one.counts, (n, 1)), np.tile(one.mean_returns, (n, 1)), 80, one.bounds
    )
    phi, w = aggregation(6), np.ones(6)
    release = dp_lsw(many, LSW(phi, w, f_max=1), rng=np.random.default_rng(1), **PROMISE)
    sigma = LSW(phi, w, f_max=1).noise(one.counts, **PROMISE).sigma
    z = (release.theta - lsw(one, phi, w)) / sigma
    assert np.abs(z.mean(axis=0)).max() < 5 / np.sqrt(n)
    assert np.abs((z**2).mean(axis=0) - 1).max() < 5 * np.sqrt(2 / n)
    assert np.abs(np.corrcoef(z.T) - np.eye(3)).max() < 5 / np.sqrt(n)


def test_single_returns_are_clipped_before_they_are_averaged():
    chain = Chain(6, start="uniform")
    returns = chain_first_visit_returns(chain, 60, np.random.default_rng(4))
    scaled = FirstVisitReturns(5 * returns.returns - 2 * returns.visited, returns.visited)
    estimator = LSW(tabular(6), np.ones(6), f_max=1.0, f_min=-0.5)
    direct = dp_lsw(scaled, estimator, rng=np.random.default_rng(0), **PROMISE)
    clipped = scaled.statistics((-0.5, 1.0))
    assert np.abs(clipped.mean_returns - scaled.statistics().mean_returns).max() > 0.1
    prepared = dp_lsw(clipped, estimator, rng=np.random.default_rng(0), **PROMISE)
    assert (direct.theta == prepared.theta).all()


@pytest.mark.parametrize("bounds", [None, (0.0, 2.0), (-1.0, 1.0)])
def test_averages_not_clipped_into_the_declared_range_are_refused(bounds):
    data = VisitStatistics([3, 3], [0.5, 0.5], 3, bounds)
    with pytest.raises(ValueError, match="clip every single return before averaging"):
        dp_lsw(data, LSW(tabular(2), [1, 1], f_max=1), rng=np.random.default_rng(0), **PROMISE)


def test_averages_clipped_to_a_narrower_range_are_accepted():
    data = VisitStatistics([3, 3], [0.5, 0.5], 3, (0.25, 0.75))
    dp_lsw(data, LSW(tabular(2), [1, 1], f_max=1), rng=np.random.default_rng(0), **PROMISE)
