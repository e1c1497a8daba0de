"""Bias of missed states by enumeration; the law of the noise against the mechanisms themselves."""

import itertools
from fractions import Fraction
from math import comb

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from dprl.bounds import subsampled_evaluation as b
from dprl.bounds.binomial_visits import quadratic_regime_onset
from dprl.evaluation import lsw
from dprl.features import aggregation, tabular
from dprl.mdp import Chain
from dprl.privacy import GaussianSmoothing, gaussian_delta
from dprl.private_evaluation import (
    LSL,
    LSW,
    Blocks,
    average_then_perturb_diagnostics,
    base_promise,
    subsample_statistics,
)
from dprl.trajectories import FirstVisitReturns, chain_first_visit_returns

PROMISES = [(0.1, 0.1), (1.0, 1e-5), (0.01, 1e-8)]


# -- the bias of missed states ------------------------------------------------------------


@given(st.integers(1, 60), st.data())
def test_missed_given_data_is_the_ratio_of_binomial_coefficients(n, data):
    k = data.draw(st.integers(1, n))
    visits = np.arange(n + 1)
    exact = [float(Fraction(comb(n - v, k), comb(n, k))) for v in visits]
    assert b.missed_given_data(n, visits, k) == pytest.approx(exact, rel=1e-12, abs=0)


def test_missed_given_data_for_large_batches_in_long_arithmetic():
    n = 10**6
    for v, k in [(1, 1), (25_000, 200), (3, 10**5), (999_000, 900), (999_000, 2_000)]:
        exact = Fraction(comb(n - v, k), comb(n, k)) if v + k <= n else Fraction(0)
        assert b.missed_given_data(n, v, k) == pytest.approx(float(exact), rel=1e-10)


@given(st.integers(1, 40), st.floats(0, 1))
def test_missed_is_the_mean_of_missed_given_data(n, p):
    k = (n + 1) // 2
    visits = np.arange(n + 1)
    mean = stats.binom.pmf(visits, n, p) @ b.missed_given_data(n, visits, k)
    assert float(b.missed(p, k)) == pytest.approx(mean, rel=1e-9, abs=1e-14)


def test_missed_does_not_round_rare_states_away():
    assert float(b.missed(1e-18, 10)) == 1.0
    assert 1 - float(b.missed(1e-12, 1)) == pytest.approx(1e-12, rel=1e-3)
    assert b.missed([0.0, 1.0], 5).tolist() == [1.0, 0.0]


def random_batch(seed, n=6, states=4):
    rng = np.random.default_rng(seed)
    visited = rng.random((n, states)) < [0.2, 0.5, 0.9, 1.0][:states]
    return FirstVisitReturns(np.where(visited, rng.random((n, states)), 0.0), visited)


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("phi", [tabular(4), aggregation(4), [[1, 0], [1, 1], [0, 1], [2, -1]]])
def test_the_bias_of_lsw_by_enumerating_every_subsample(seed, phi):
    data, w, k = random_batch(seed), [1.0, 2.0, 0.5, 1.0], 3
    everyone = subsample_statistics(data, list(itertools.combinations(range(6), k)), (0, 1))
    whole = data.statistics((0, 1))
    phi = np.asarray(phi, dtype=float)
    mean = lsw(everyone, phi, w).mean(axis=0) @ phi.T
    bias = b.subsampling_bias(whole.mean_returns, b.missed_given_data(6, whole.counts, k), phi, w)
    assert mean - lsw(whole, phi, w) @ phi.T == pytest.approx(bias, abs=1e-14)


def test_the_bias_over_independent_trajectories_by_simulation():
    chain, k, rng = Chain(n_states=6, stay=0.5, start="uniform"), 4, np.random.default_rng(3)
    data = chain_first_visit_returns(chain, 4 * 20_000, rng)
    blocks = subsample_statistics(data, np.arange(4 * 20_000).reshape(-1, k), (0, 1)).mean_returns
    bias = b.subsampling_bias(
        chain.values(), b.missed(chain.visit_probabilities(), k), tabular(6), np.ones(6)
    )
    error = blocks.std(axis=0) / np.sqrt(len(blocks))
    assert (np.abs(blocks.mean(axis=0) - chain.values() - bias) < 5 * error + 1e-12).all()


def test_a_linear_query_would_have_no_bias():
    """The sum of the returns over k is linear, and unbiased; the average over the visits is not."""
    data = random_batch(1)
    subsets = list(itertools.combinations(range(6), 2))
    sums = np.array([data.returns[list(c)].mean(axis=0) for c in subsets])
    assert sums.mean(axis=0) == pytest.approx(data.returns.mean(axis=0))
    averages = subsample_statistics(data, subsets, (0, 1)).mean_returns
    assert not np.allclose(averages.mean(axis=0), data.statistics().mean_returns)


# -- the law of the noise -----------------------------------------------------------------


def test_the_base_delta_left_out_is_the_largest_with_every_trajectory_used_once():
    for accounting in b.CLOSED_ACCOUNTING:
        base = base_promise(1.0, 1e-5, 100, 100, 1, accounting="closed-form")
        for call in (
            lambda **what: b.crossover_constant(1.0, 1e-5, **what),
            lambda **what: float(b.least_subsampled_noise(100, 4, 1.0, 1e-5, **what)),
            lambda **what: b.least_lsl_ratio(
                1.0, 1e-5, visit_probabilities=[0.5], weights=[1.0], **what
            ),
        ):
            assert call(accounting=accounting) == pytest.approx(
                call(base_delta=base.delta, accounting=accounting)
            )


@given(st.integers(1, 10**6), st.sampled_from(PROMISES), st.floats(0.1, 50))
def test_plain_noise_is_that_of_dp_lsw_with_equal_counts(n, promise, f_max):
    eps, delta = promise
    full = LSW(tabular(7), np.ones(7), f_max=f_max).noise(np.full(7, n), epsilon=eps, delta=delta)
    assert b.plain_noise(n, 7, eps, delta, f_max=f_max) == pytest.approx(float(full.sigma))


def test_plain_noise_leaves_its_plateau_at_the_onset_of_the_quadratic_regime():
    beta = GaussianSmoothing(0.1, 0.1, 40).beta
    onset = float(quadratic_regime_onset(beta))
    n = np.array([onset * 0.999, onset * 1.001])
    flat = GaussianSmoothing(0.1, 0.1, 40).alpha * np.sqrt(40) / n
    noise = b.plain_noise(n, 40, 0.1, 0.1)
    assert noise[0] > flat[0] * (1 + 1e-6)
    assert noise[1] == pytest.approx(flat[1], rel=1e-12)


@pytest.mark.parametrize("accounting", b.CLOSED_ACCOUNTING)
@pytest.mark.parametrize(("eps", "delta"), PROMISES)
def test_no_choice_of_m_and_k_gets_below_the_bound(accounting, eps, delta):
    for n in (100, 10_000, 10**6):
        for m, k in itertools.product([2**i for i in range(0, 40, 3)], (1, 3, 10, 70, n // 2)):
            if m * k < n:
                continue
            base = base_promise(eps, delta, n, m, k, accounting=accounting)
            noise = b.subsampled_noise(m, k, 40, base.epsilon, base.delta)
            least = b.least_subsampled_noise(
                n, 40, eps, delta, base_delta=base.delta, accounting=accounting
            )
            assert noise >= least * (1 - 1e-9)


@pytest.mark.parametrize("accounting", b.CLOSED_ACCOUNTING)
@pytest.mark.parametrize(("eps", "delta"), PROMISES)
def test_many_single_trajectories_attain_the_bound(accounting, eps, delta):
    n, m = 10_000, 2**52
    base = base_promise(eps, delta, n, m, 1, accounting=accounting)
    noise = b.subsampled_noise(m, 1, 40, base.epsilon, base.delta)
    least = b.least_subsampled_noise(
        n, 40, eps, delta, base_delta=base.delta, accounting=accounting
    )
    assert noise == pytest.approx(least, rel=1e-3)


def test_the_limit_of_each_accounting_is_approached_from_below():
    n, k = 10_000, 7
    for accounting in b.CLOSED_ACCOUNTING:
        z = b.calibration_limit(1.0, 1e-5, accounting=accounting)
        reached = [
            k * np.sqrt(m) * base_promise(1.0, 1e-5, n, m, k, accounting=accounting).epsilon / n
            for m in (2**14, 2**24, 2**50)
        ]
        assert reached == sorted(reached)
        assert reached[-1] == pytest.approx(z, rel=1e-3)
        assert reached[-1] < z


def test_one_direct_release_is_the_partition_into_single_trajectories():
    chain, n = Chain(n_states=5, start="first"), 60
    data = chain_first_visit_returns(chain, n, np.random.default_rng(0))
    inside = average_then_perturb_diagnostics(
        data,
        LSW(tabular(5), np.ones(5), f_max=1.0),
        Blocks(n, 1),
        epsilon=0.5,
        delta=1e-3,
        rng=np.random.default_rng(1),
    )
    sigma = b.direct_noise(n, 5, 0.5, 1e-3)
    assert inside.noise == pytest.approx(sigma)
    assert gaussian_delta(np.sqrt(5) / n, sigma, 0.5) == pytest.approx(1e-3, rel=1e-6)
    assert inside.mean == pytest.approx(data.statistics().mean_returns)


@pytest.mark.parametrize("accounting", b.CLOSED_ACCOUNTING)
@pytest.mark.parametrize(("eps", "delta"), PROMISES)
def test_a_direct_release_has_less_noise_than_any_subsampling(accounting, eps, delta):
    n = 10_000
    least = b.least_subsampled_noise(n, 40, eps, delta, accounting=accounting)
    assert b.direct_noise(n, 40, eps, delta) * 5 < least


@given(st.floats(-5, -1).map(lambda x: 10**x), st.floats(1, 50))
def test_crossover_points_solve_the_equation(beta, c):
    low, high = (float(x) for x in b.crossover_points(beta, c))

    def excess(n):
        return np.log(n / c) - (n - 1) * beta / 2

    if np.isnan(low):
        n = np.logspace(0, 7, 2_000)
        assert excess(n).max() < 1e-6
        return
    assert low <= high * (1 + 1e-6)
    if high > low * 1.001:
        assert excess(np.sqrt(low * high)) > 0
        assert excess(low) == pytest.approx(0, abs=1e-9)
        assert excess(high) == pytest.approx(0, abs=1e-6)


@pytest.mark.parametrize("accounting", b.CLOSED_ACCOUNTING)
@pytest.mark.parametrize(("eps", "delta"), PROMISES)
def test_crossover_separates_where_the_bound_is_below_plain(accounting, eps, delta):
    low, high = b.crossover(40, eps, delta, accounting=accounting)
    for end, inside in ((low, 1.01), (high, 0.99)):
        n = np.array([end * inside, end / inside])
        below = b.least_subsampled_noise(n, 40, eps, delta, accounting=accounting) < b.plain_noise(
            n, 40, eps, delta
        )
        assert below.tolist() == [True, False]
    # in the quadratic regime sub-sampling loses by c, whatever m and k
    late = 3 * float(quadratic_regime_onset(GaussianSmoothing(eps, delta, 40).beta))
    ratio = b.least_subsampled_noise(late, 40, eps, delta, accounting=accounting) / b.plain_noise(
        late, 40, eps, delta
    )
    c = b.crossover_constant(eps, delta, accounting=accounting)
    assert float(ratio) == pytest.approx(c)
    assert c > 2


@pytest.mark.parametrize("accounting", b.CLOSED_ACCOUNTING)
@pytest.mark.parametrize(("eps", "delta"), PROMISES)
def test_outside_the_crossover_no_choice_wins_and_inside_one_does(accounting, eps, delta):
    def gain(n):
        tried = []
        for m, k in itertools.product([2**i for i in range(0, 41, 2)], (1, 2, 8, 64, n)):
            if n <= m * k and k <= n:
                base = base_promise(eps, delta, n, m, k, accounting=accounting)
                tried.append(b.subsampled_noise(m, k, 40, base.epsilon, base.delta))
        return float(b.plain_noise(n, 40, eps, delta) / min(tried))

    low, high = b.crossover(40, eps, delta, accounting=accounting)
    for n in (max(int(low), 1), int(high) + 1, int(1.2 * high), int(5 * high)):
        assert gain(n) <= 1 + 1e-9
    # the law is an upper limit; the number of sub-samples that it asks for costs little
    assert gain(int(0.9 * high)) > 1


@pytest.mark.parametrize("accounting", b.CLOSED_ACCOUNTING)
def test_subsampled_dp_lsl_never_has_less_noise_than_the_bound(accounting):
    """Random sizes, ridges, features and visits; the left side by its exact mean over counts."""
    rng = np.random.default_rng(12)
    for case in range(40):
        n = int(10 ** rng.uniform(1, 5))
        k = int(n ** rng.uniform(0, 1))
        m = int(np.ceil(n / k) * 10 ** rng.uniform(0, 3))
        phi = (tabular(4), aggregation(4), rng.normal(size=(4, 2)))[case % 3]
        rho, p = rng.random(4), rng.random(4)
        eps, delta = PROMISES[case % 3]
        base = base_promise(eps, delta, n, m, k, accounting=accounting)
        improved = bool(rng.random() < 0.5)
        least = 0.0 if improved else np.linalg.norm(phi, 2) ** 2 * rho.max()
        ridge = least + k * 10 ** rng.uniform(-4, 2)
        options = {"f_max": 1.0, "improved": improved}
        counts = rng.binomial(k, p, size=(4_000, 4))
        runs = LSL(phi, rho, ridge, **options).noise(
            counts, k, epsilon=base.epsilon, delta=base.delta
        )
        s = np.sqrt((runs.sigma**2).mean() / m)
        plain = LSL(phi, rho, ridge * n / k, **options).noise(
            np.full(4, n), n, epsilon=eps, delta=delta
        )
        ratio = b.least_lsl_ratio(
            eps,
            delta,
            visit_probabilities=p,
            weights=rho,
            base_delta=base.delta,
            accounting=accounting,
        )
        assert s >= ratio * float(plain.sigma) * (1 - 0.02)
        # no batch of n trajectories makes plain noisier than full counts do
        other = LSL(phi, rho, ridge * n / k, **options).noise(
            rng.binomial(n, p), n, epsilon=eps, delta=delta
        )
        assert other.sigma <= plain.sigma * (1 + 1e-12)


# -- bad input ----------------------------------------------------------------------------

BAD = {
    "size above n": (lambda: b.missed_given_data(5, [1], 6), ValueError, "size"),
    "visits above n": (lambda: b.missed_given_data(5, [6], 2), ValueError, "visits"),
    "negative visits": (lambda: b.missed_given_data(5, [-1], 2), ValueError, "visits"),
    "visits not integers": (lambda: b.missed_given_data(5, [1.5], 2), ValueError, "visits"),
    "probability above one": (lambda: b.missed([1.2], 2), ValueError, "visit_probabilities"),
    "size zero": (lambda: b.missed([0.5], 0), ValueError, "size"),
    "missing of another length": (
        lambda: b.subsampling_bias([0.5, 1.0], [0.1], tabular(2), [1, 1]),
        ValueError,
        "missing",
    ),
    "missing no probability": (
        lambda: b.subsampling_bias([0.5], [1.5], tabular(1), [1]),
        ValueError,
        "missing",
    ),
    "no trajectories": (lambda: b.plain_noise(0, 4, 1.0, 0.1), ValueError, "n must"),
    "epsilon not proved": (lambda: b.plain_noise(5, 4, 6.0, 0.1), ValueError, "epsilon"),
    "no subsamples": (lambda: b.subsampled_noise(0, 1, 4, 1.0, 0.1), ValueError, "subsamples"),
    "accounting unknown": (
        lambda: b.calibration_limit(1.0, 0.1, accounting="optimal"),
        ValueError,
        "accounting",
    ),
    "bound without trajectories": (
        lambda: b.least_subsampled_noise(0, 4, 1.0, 0.1, base_delta=0.1),
        ValueError,
        "n must",
    ),
    "base delta of one": (
        lambda: b.crossover_constant(1.0, 0.1, base_delta=1.0),
        ValueError,
        "base_delta",
    ),
    "probability above one in the ratio": (
        lambda: b.least_lsl_ratio(
            1.0, 0.1, visit_probabilities=[2.0], weights=[1.0], base_delta=0.1
        ),
        ValueError,
        "visit_probabilities",
    ),
    "beta zero": (lambda: b.crossover_points(0.0, 2.0), ValueError, "beta"),
    "direct without trajectories": (lambda: b.direct_noise(0, 4, 1.0, 0.1), ValueError, "n must"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input(case):
    call, error, words = BAD[case]
    with pytest.raises(error, match=words):
        call()
