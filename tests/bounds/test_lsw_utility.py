"""Section 3.6: identities, exact expectations by a second method, corrected and printed bounds."""

from fractions import Fraction
from math import comb

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from dprl.bounds import binomial_visits as bv
from dprl.bounds import lsw_utility as u
from dprl.evaluation import lsw, weighted_risk
from dprl.features import aggregation, pseudo_inverse_norm, tabular
from dprl.mdp import Chain, MarkovRewardProcess
from dprl.privacy import GaussianSmoothing
from dprl.private_evaluation import LSW, lsw_local_bound, lsw_smooth_bound
from dprl.trajectories import VisitStatistics, chain_visit_statistics, first_visit_returns, simulate

betas = st.floats(-5, 0.3).map(lambda x: 10**x)
trials = st.integers(1, 400)
successes = st.one_of(st.just(1.0), st.floats(1e-4, 1.0))
SETTINGS = 20_000
ROUNDING = 1 + 1e-12


def random_settings(seed=316, size=SETTINGS):
    """m up to 3000, p down to 1e-3 and often 1, beta in the printed range."""
    rng = np.random.default_rng(seed)
    m = np.round(10 ** rng.uniform(0, 3.5, size))
    p = np.where(rng.random(size) < 0.1, 1.0, 10 ** rng.uniform(-3, 0, size))
    return m, p, 10 ** rng.uniform(-4, np.log10(2), size)


def chain_setting(start):
    """The thesis' chain, tabular, w = 1/40, F_max = 1, epsilon = delta = 0.1."""
    w = np.full(40, 1 / 40)
    constant = u.theorem_3_17_constant(tabular(40), w, f_max=1, epsilon=0.1, delta=0.1)
    beta = GaussianSmoothing(0.1, 0.1, 40).beta
    return Chain(start=start).visit_probabilities(), w, {"constant": constant, "beta": beta}


# ------------------------------------------------------------------ Lemma 3.13 and (3.45)


@given(st.integers(0, 2**32 - 1))
def test_the_excess_risk_is_the_quadratic_form_of_the_noise(seed):
    rng = np.random.default_rng(seed)
    n = int(rng.integers(2, 6))
    phi, w = rng.normal(size=(n, int(rng.integers(1, n + 1)))), rng.random(n) + 0.1
    data = VisitStatistics(rng.integers(1, 9, n), rng.normal(size=n), 9)
    theta = lsw(data, phi, w)
    eta = rng.normal(size=(7, theta.size))
    risk = weighted_risk(data, phi, theta + eta, w) - weighted_risk(data, phi, theta, w)
    assert risk == pytest.approx(u.equation_3_45_corrected(eta, phi, w), rel=1e-9, abs=1e-9)
    # as printed it is off by the linear term -2 F' Gamma Phi eta
    printed = u.equation_3_45_printed(eta, data.mean_returns, theta, phi, w)
    linear = 2 * eta @ phi.T @ (w * data.mean_returns)
    assert printed == pytest.approx(risk - linear, rel=1e-8, abs=1e-8)


def test_the_printed_right_side_is_right_only_in_the_mean():
    rng = np.random.default_rng(1)
    phi, w, returns = aggregation(6), rng.random(6) + 0.1, rng.random(6)
    theta = lsw(VisitStatistics(np.ones(6, int), returns, 1), phi, w)
    eta = rng.normal(size=(500, 3))
    symmetric = np.concatenate([eta, -eta])  # its sample mean of eta is exactly zero
    printed = u.equation_3_45_printed(symmetric, returns, theta, phi, w)
    corrected = u.equation_3_45_corrected(symmetric, phi, w)
    assert printed.mean() == pytest.approx(corrected.mean())
    assert np.abs(printed - corrected).max() > 1


def test_lemma_3_13_against_the_covariance_of_the_noise():
    rng = np.random.default_rng(2)
    phi, w = rng.normal(size=(5, 3)), rng.random(5)
    moments = np.einsum("ij,jk,ki->", phi.T @ np.diag(w) @ phi, np.eye(3), np.eye(3))
    assert u.lemma_3_13(phi, w, [1.0, 4.0]) == pytest.approx(np.array([1.0, 4.0]) * moments)
    assert float(u.lemma_3_13(phi, w, 1.0)) == pytest.approx(
        np.linalg.norm(np.sqrt(w)[:, None] * phi) ** 2
    )


def test_lemma_3_13_by_simulation():
    """Random batches and noise: the mean of the excess over that of sigma^2."""
    rng, phi, w = np.random.default_rng(3), aggregation(6), np.full(6, 1 / 6)
    chain = Chain(6, start="uniform")
    data = chain_visit_statistics(chain, 30, rng, bounds=(0, 1), n_batches=20_000)
    noise = LSW(phi, w, f_max=1).noise(data.counts, epsilon=0.5, delta=0.1)
    eta = noise.sigma[:, None] * rng.standard_normal((20_000, 3))
    theta = lsw(data, phi, w)
    excess = weighted_risk(data, phi, theta + eta, w) - weighted_risk(data, phi, theta, w)
    expected = u.lemma_3_13(phi, w, noise.sigma**2).mean()
    standard_error = excess.std() / np.sqrt(excess.size)
    assert abs(excess.mean() - expected) < 4 * standard_error


# ------------------------------------------------------------------------ Lemma 3.14


def brute_force_3_14(b, a):
    """Minimum and maximum on a fine grid that holds the end points."""
    x = np.linspace(0, a - 1, 20_001)
    f = np.exp(-b * x) / (a - x) ** 2
    return f.min(), f.max()


@given(st.floats(1e-3, 5), st.floats(1, 200))
def test_lemma_3_14_is_a_maximum_over_a_grid(b, a):
    low, high = brute_force_3_14(b, a)
    assert float(bv.lemma_3_14_corrected(b, a)) == pytest.approx(high, rel=1e-12)
    assert float(bv.lemma_3_14_minimum(b, a)) == pytest.approx(low, rel=1e-3)
    assert float(bv.lemma_3_14_minimum(b, a)) <= low * ROUNDING


def test_the_printed_lemma_3_14_is_the_minimum_or_less():
    rng = np.random.default_rng(314)
    b, a = 10 ** rng.uniform(-3, 0.7, SETTINGS), 1 + 10 ** rng.uniform(-2, 2.3, SETTINGS)
    printed, least = (
        bv.lemma_3_14_printed(b, a),
        bv.lemma_3_14_minimum(b, a),
    )
    small = b <= 2
    assert printed[small] == pytest.approx(least[small], rel=1e-9)
    # e^{1 - ab} for e^{b - ab}: below even the minimum
    assert printed[~small] == pytest.approx((least * np.exp(1 - b))[~small], rel=1e-9)
    assert (printed < bv.lemma_3_14_corrected(b, a)).all()
    assert np.bincount(np.digitize(b * a, [2]) + (b > 2)).min() > 100  # all three cases


def test_the_printed_lemma_3_14_is_right_for_an_interval_of_one_point():
    b = np.linspace(0.01, 2, 50)
    assert bv.lemma_3_14_printed(b, 1.0) == pytest.approx(np.ones(50))
    assert bv.lemma_3_14_corrected(b, 1.0) == pytest.approx(np.ones(50))


@given(st.integers(0, 300), betas)
def test_the_smooth_term_is_a_maximum_over_all_k(n, beta):
    k = np.arange(n + 3)
    everything = (np.exp(-beta * k) / np.maximum(n - k, 1) ** 2).max()
    assert float(bv.equation_3_50_corrected(n, beta)) == pytest.approx(everything, rel=1e-12)
    # psi of one state of weight one is the same number
    psi, _ = lsw_smooth_bound([n], [1.0], beta)
    assert float(psi) == pytest.approx(everything, rel=1e-12)
    assert float(bv.equation_3_50_printed(n, beta)) <= everything * ROUNDING


def test_the_printed_smooth_term_is_too_small():
    assert float(bv.equation_3_50_printed(100, 1e-3)) == pytest.approx(1e-4)
    assert float(bv.equation_3_50_corrected(100, 1e-3)) == pytest.approx(np.exp(-0.099))


# ------------------------------------------------------------------- (3.47) and the onset


@given(st.lists(st.integers(0, 500), min_size=1, max_size=6), st.integers(0, 99), betas)
def test_equation_3_47_bounds_psi(v, seed, beta):
    w = np.random.default_rng(seed).random(len(v)) + 0.01
    psi, _ = lsw_smooth_bound(v, w, beta)
    assert float(psi) <= float(u.equation_3_47(v, w, beta)) * ROUNDING
    same, _ = lsw_smooth_bound(np.full(len(v), v[0]), w, beta)
    assert float(u.equation_3_47(np.full(len(v), v[0]), w, beta)) == pytest.approx(float(same))


@given(betas)
def test_the_onset_solves_its_equation(beta):
    n = float(bv.quadratic_regime_onset(beta))
    assert n >= 1
    assert 2 * np.log(n) == pytest.approx(beta * (n - 1), rel=1e-6, abs=1e-6)
    n_before, n_after = np.floor(n * (1 - 1e-6)), np.ceil(n * (1 + 1e-6))
    assert float(bv.equation_3_50_corrected(n_after, beta)) == pytest.approx(n_after**-2.0, 1e-14)
    if n_before > 1:
        assert float(bv.equation_3_50_corrected(n_before, beta)) > n_before**-2.0 * (1 + 1e-14)


def test_the_onset_in_trajectories_and_beyond_two():
    assert bv.quadratic_regime_onset([2.0, 3.0, 900.0]) == pytest.approx(np.ones(3), abs=1e-6)
    assert float(bv.quadratic_regime_onset(1e-3, 1 / 40)) == pytest.approx(
        40 * float(bv.quadratic_regime_onset(1e-3))
    )
    near = 2 - np.array([1e-9, 1e-4, 0.0499, 0.0501])
    n = bv.quadratic_regime_onset(near)
    assert 2 * np.log(n) == pytest.approx(near * (n - 1), rel=1e-12, abs=1e-16)
    assert (n > 2 / near).all()  # the solution that is not n = 1
    table = {1e-2: 1458.0, 1e-3: 19786.5, 1e-4: 248462.2}
    for beta, onset in table.items():
        assert float(bv.quadratic_regime_onset(beta)) == pytest.approx(onset, abs=0.5)


@given(st.integers(0, 2**32 - 1), st.floats(-2.5, 0.2).map(lambda x: 10**x))
def test_with_enough_visits_the_noise_is_as_small_as_the_local_sensitivity(seed, beta):
    rng = np.random.default_rng(seed)
    enough = int(np.ceil(float(bv.quadratic_regime_onset(beta)) * (1 + 1e-9)))
    v, w = enough + rng.integers(0, 2 * enough, 5), rng.random(5) + 0.01
    psi, k = lsw_smooth_bound(v, w, beta)
    assert k == 0
    assert float(psi) == pytest.approx(float(lsw_local_bound(v, w)), rel=1e-12)
    # a state without weight may stay unvisited
    psi, _ = lsw_smooth_bound(np.append(v, 0), np.append(w, 0.0), beta)
    assert float(psi) == pytest.approx(float(lsw_local_bound(v, w)), rel=1e-12)


# ------------------------------------------------------------------------- Lemma 3.15


def exact_mean(m, p, f):
    """Sum over all outcomes in rational arithmetic."""
    q = 1 - p
    return float(sum(f(k) * comb(m, k) * p**k * q ** (m - k) for k in range(m + 1)))


@pytest.mark.parametrize("p", [1e-70, 1e-40, 1e-17, 1e-12, 1e-6, 1e-3, 1.0])
@pytest.mark.parametrize("m", [1, 2, 7, 60])
def test_lemma_3_15_keeps_its_digits_where_visits_are_rare(m, p):
    """Against rational arithmetic at the floating-point number p itself."""
    exact = Fraction(p)
    cases = [
        (bv.lemma_3_15_mean, lambda k: Fraction(1, k + 1)),
        (
            bv.lemma_3_15_inverse_square,
            lambda k: Fraction(6 * (k > 0), (k + 1) * (k + 2)),
        ),
        (
            bv.lemma_3_15_inverse_square_sharper,
            lambda k: (
                Fraction(1 * (k > 0), (k + 1) * (k + 2))
                + Fraction(20 * (k > 0), (k + 1) * (k + 2) * (k + 3))
            ),
        ),
    ]
    for function, f in cases:
        value = float(function(m, p))
        assert value == pytest.approx(exact_mean(m, exact, f), rel=1e-13, abs=0)


def test_lemma_3_15_mean_of_many_trials():
    """(1 - e^{-1}) as p = 1/(m + 1) falls, and 1 - mp/2 where mp is small."""
    assert float(bv.lemma_3_15_mean(10**15, 1e-15)) == pytest.approx(-np.expm1(-1.0), rel=1e-13)
    assert float(bv.lemma_3_15_mean(10**6, 1e-22)) == 1 - 0.5e-16


@given(st.integers(1, 30), st.fractions(Fraction(1, 50), 1, max_denominator=50))
def test_lemma_3_15_in_rational_arithmetic(m, p):
    mean = exact_mean(m, p, lambda k: Fraction(1, k + 1))
    assert float(bv.lemma_3_15_mean(m, float(p))) == pytest.approx(mean, rel=1e-12)
    left = exact_mean(m, p, lambda k: Fraction(1, k * k) if k else 0)
    assert float(bv.expected_inverse_square(m, float(p))) == pytest.approx(left, rel=1e-12)
    q = 1 - p
    bracket = (1 - q ** (m + 2)) / (p * (m + 2)) - q ** (m + 1) - p * (m + 1) / 2 * q**m
    printed = float(6 / (p * (m + 1)) * bracket)
    right = float(bv.lemma_3_15_inverse_square(m, float(p)))
    assert right == pytest.approx(printed, rel=1e-11)
    assert left <= right * ROUNDING
    terms = exact_mean(
        m,
        p,
        lambda k: Fraction(k + 23, (k + 1) * (k + 2) * (k + 3)) if k else 0,
    )
    sharper = float(bv.lemma_3_15_inverse_square_sharper(m, float(p)))
    assert sharper == pytest.approx(terms, rel=1e-11)
    assert left <= sharper * ROUNDING
    assert sharper <= right * ROUNDING


def test_the_inequalities_between_inverse_powers():
    k = np.arange(1, 10_000)
    assert ((k + 1) * (k + 2) <= 6 * k**2).all()
    assert (1 / k**2 <= (1 / ((k + 1) * (k + 2)) * (1 + 20 / (k + 3))) * ROUNDING).all()


def test_lemma_3_15_on_random_settings():
    m, p, _ = random_settings(315)
    left = bv.expected_inverse_square(m, p)
    assert (left <= bv.lemma_3_15_inverse_square(m, p) * ROUNDING).all()
    assert (left <= bv.lemma_3_15_inverse_square_sharper(m, p) * ROUNDING).all()


def test_the_constant_six_tends_to_one():
    m = 10.0 ** np.arange(3, 8)
    scaled = bv.expected_inverse_square(m, 0.3) * (0.3 * m) ** 2
    assert np.abs(scaled - 1) == pytest.approx(0, abs=0.02)
    assert (np.diff(np.abs(scaled - 1)) < 0).all()
    assert bv.lemma_3_15_inverse_square(m, 0.3)[-1] * (0.3 * m[-1]) ** 2 == pytest.approx(6, 1e-4)
    sharper = bv.lemma_3_15_inverse_square_sharper(m, 0.3)[-1] * (0.3 * m[-1]) ** 2
    assert sharper == pytest.approx(1, abs=1e-4)


# ------------------------------------------------------------------------- Lemma 3.16


@given(trials, successes, betas)
def test_the_expected_smooth_term_is_a_full_binomial_sum(m, p, beta):
    n = np.arange(m + 1)
    full = (stats.binom.pmf(n, m, p) * bv.equation_3_50_corrected(n, beta)).sum()
    assert float(bv.expected_smooth_term(m, p, beta)) == pytest.approx(full, rel=1e-12)


@pytest.mark.parametrize(("p", "beta"), [(0.5, 1.0), (0.9, 0.1), (0.001, 1.9), (0.5, 1e-4)])
def test_windows_of_large_sums_lose_nothing(p, beta):
    m = 200_000
    n = np.arange(m + 1)
    full = (stats.binom.pmf(n, m, p) * bv.equation_3_50_corrected(n, beta)).sum()
    assert float(bv.expected_smooth_term(m, p, beta)) == pytest.approx(full, rel=1e-11)


def test_blocks_do_not_change_the_sums(monkeypatch):
    m, p, beta = random_settings(1, 300)
    at_once = bv.expected_smooth_term(m, p, beta)
    monkeypatch.setattr(bv, "_BLOCK", 1_000)
    assert (bv.expected_smooth_term(m, p, beta) == at_once).all()


def test_the_corrected_lemma_3_16_is_never_violated():
    m, p, beta = random_settings()
    left = bv.expected_smooth_term(m, p, beta)
    corrected, sharper = (
        bv.lemma_3_16_corrected(m, p, beta),
        bv.lemma_3_16_sharper(m, p, beta),
    )
    assert (left <= corrected * ROUNDING).all()
    assert (left <= sharper * ROUNDING).all()
    assert (sharper <= corrected * ROUNDING).all()


def test_the_printed_lemma_3_16_is_violated_in_a_third_of_the_settings():
    m, p, beta = random_settings()
    printed = bv.lemma_3_16_printed(m, p, beta)
    violated = bv.expected_smooth_term(m, p, beta) > printed * ROUNDING
    assert 0.3 < violated.mean() < 0.45
    assert beta[violated].max() < 0.4602
    assert not violated[m == 1].any()


@given(trials, successes, st.floats(2, 2000))
def test_the_corrected_lemma_3_16_needs_no_bound_on_beta(m, p, beta):
    left = float(bv.expected_smooth_term(m, p, beta))
    assert left <= float(bv.lemma_3_16_corrected(m, p, beta)) * ROUNDING
    assert left <= float(bv.lemma_3_16_sharper(m, p, beta)) * ROUNDING


def test_the_exponential_part_is_attained_where_every_trajectory_visits():
    beta = np.array([1e-3, 0.01, 0.1])
    m = np.floor(bv.quadratic_regime_onset(beta))
    left = bv.expected_smooth_term(m, 1.0, beta)
    assert left == pytest.approx(np.exp(-beta * (m - 1)), rel=1e-12)


def test_hardly_a_smaller_factor_than_e_to_the_beta_will_do():
    """c e^{-beta m} has to cover what 6/((m+1)(m+2)) leaves of E[h(B)], for every m."""
    for beta in (1e-5, 1e-3, 0.01, 0.1):
        m = np.arange(1, int(20 / beta) + 2, max(1, int(0.001 / beta)))
        m = np.append(m, np.ceil(1 / beta))
        left = bv.expected_smooth_term(m, 1.0, beta)
        least = ((left - 6 / ((m + 1) * (m + 2))) * np.exp(beta * m)).max()
        assert least >= np.exp(beta) * (1 - 6 * np.e * beta**2)
        assert least < np.exp(beta)  # so for a given beta a smaller one does exist


def test_unvisited_states_contribute_one():
    for bound in (
        bv.expected_smooth_term,
        bv.lemma_3_16_printed,
        bv.lemma_3_16_corrected,
        bv.lemma_3_16_sharper,
    ):
        assert bound([1, 50], 0.0, 0.1).tolist() == [1.0, 1.0]


# ------------------------------------------------------- Theorem 3.17 and its corollaries


def test_the_constant_is_that_of_the_algorithm():
    """C^2 psi is the excess risk that Lemma 3.13 gives for the package's own sigma."""
    rng = np.random.default_rng(317)
    phi, w, v = rng.normal(size=(6, 4)), rng.random(6) + 0.1, rng.integers(0, 300, (50, 6))
    promise = {"epsilon": 0.7, "delta": 1e-3}
    noise = LSW(phi, w, f_max=3.0).noise(v, **promise)
    constant = u.theorem_3_17_constant(phi, w, f_max=3.0, **promise)
    risk = u.lemma_3_13(phi, w, noise.sigma**2)
    mine = u.excess_risk_given_counts(v, w, constant=constant, beta=noise.beta)
    assert mine == pytest.approx(risk)


@given(st.integers(0, 2**32 - 1))
def test_the_constant_grows_with_the_root_of_the_dimension(seed):
    rng = np.random.default_rng(seed)
    n, d = 8, int(rng.integers(1, 9))
    phi, w = rng.normal(size=(n, d)), rng.random(n) + 0.1
    constants = GaussianSmoothing(0.5, 0.1, d)
    least = constants.alpha * np.sqrt(d)
    promise = {"f_max": 1.0, "epsilon": 0.5, "delta": 0.1}
    assert u.theorem_3_17_constant(phi, w, **promise) >= least * (1 - 1e-9)
    q, _ = np.linalg.qr(phi)  # equal singular values
    assert u.theorem_3_17_constant(q, np.ones(n), **promise) == pytest.approx(least)


def test_equal_counts_give_the_exact_expectation():
    p, w, setting = chain_setting("first")
    assert (p == 1).all()
    m = np.arange(1, 3_000)
    noise = LSW(tabular(40), w, f_max=1).noise(np.tile(m[:, None], (1, 40)), epsilon=0.1, delta=0.1)
    exact = u.excess_risk_equal_counts(m, w, **setting)
    assert exact == pytest.approx(u.lemma_3_13(tabular(40), w, noise.sigma**2), rel=1e-12)


def test_the_range_in_which_the_printed_statements_fail():
    p, w, setting = chain_setting("first")
    m = np.arange(1, 60_001)
    exact = u.excess_risk_equal_counts(m, w, **setting)
    theorem = m[exact > u.theorem_3_17_printed(m, p, w, **setting)]
    corollary = m[exact > u.corollary_3_18_printed(m, p, w, **setting)]
    assert (theorem == np.arange(2, 32_673)).all()
    assert (corollary == np.arange(3, 32_621)).all()
    for bound in (u.theorem_3_17_corrected, u.theorem_3_17_sharper, u.corollary_3_18_corrected):
        assert (exact <= bound(m, p, w, **setting) * ROUNDING).all()


def test_the_theorem_is_the_sum_of_the_lemma():
    rng = np.random.default_rng(4)
    p, w = np.append(rng.random(4), 0.0), rng.random(5)
    pairs = [
        (u.theorem_3_17_printed, bv.lemma_3_16_printed),
        (u.theorem_3_17_corrected, bv.lemma_3_16_corrected),
        (u.theorem_3_17_sharper, bv.lemma_3_16_sharper),
    ]
    for theorem, lemma in pairs:
        whole = theorem([3, 70], p, w, constant=2.5, beta=0.2)
        by_hand = [
            2.5**2 * sum(a * lemma(m, b, 0.2) for a, b in zip(w, p, strict=True)) for m in (3, 70)
        ]
        assert whole == pytest.approx(np.array(by_hand, dtype=float))


def test_the_corollary_follows_from_the_theorem():
    """Each pair on its own: 3.17 as printed implies 3.18 as printed, and so corrected."""
    m, p, beta = random_settings(318)
    beta = np.minimum(beta, 0.5)
    for i in range(0, SETTINGS, 40):
        setting = {"constant": 1.0, "beta": float(beta[i])}
        args = (m[i], [p[i]], [1.0])
        for theorem, corollary in (
            (u.theorem_3_17_printed, u.corollary_3_18_printed),
            (u.theorem_3_17_corrected, u.corollary_3_18_corrected),
        ):
            assert theorem(*args, **setting) <= corollary(*args, **setting) * ROUNDING


def test_the_corrected_corollary_is_never_violated():
    rng = np.random.default_rng(319)
    settings = 0
    for _ in range(500):
        p, beta = 10 ** rng.uniform(-3, 0), 0.5 * 10 ** rng.uniform(-4, 0)
        m = np.round(10 ** rng.uniform(0, 4, 24))
        bound = u.corollary_3_18_corrected(m, [p], [1.0], constant=1.0, beta=beta)
        assert (bv.expected_smooth_term(m, p, beta) <= bound * ROUNDING).all()
        settings += m.size
    assert settings >= 10_000


def test_simulated_batches_stay_below_the_corrected_theorem_and_above_the_printed():
    p, w, setting = chain_setting("uniform")
    rng = np.random.default_rng(5)
    for m in (100, 3_000, 100_000):
        counts = chain_visit_statistics(Chain(), m, rng, n_batches=60).counts
        risk = u.excess_risk_given_counts(counts, w, **setting)
        standard_error = risk.std() / np.sqrt(60)
        sum_bound = setting["constant"] ** 2 * (bv.expected_smooth_term(m, p, setting["beta"]) @ w)
        assert risk.mean() - 4 * standard_error <= sum_bound
        assert sum_bound <= float(u.theorem_3_17_sharper(m, p, w, **setting)) * ROUNDING
        assert risk.mean() - 4 * standard_error > float(u.theorem_3_17_printed(m, p, w, **setting))


def test_the_order_of_corollary_3_19_with_its_constant():
    m = np.unique(np.round(10 ** np.linspace(0, 7, 400)))
    for p, beta in ((1.0, 1e-3), (0.3, 0.01), (0.05, 0.3)):
        left = bv.expected_smooth_term(m, p, beta)
        constant = u.corollary_3_19([p], [1.0], constant=1.0, beta=beta)
        assert (left * m**2 <= constant * ROUNDING).all()
        limit = u.corollary_3_19_limit([p], [1.0], constant=1.0)
        assert left[-1] * m[-1] ** 2 == pytest.approx(limit, rel=1e-3)
    # for p = 1 the supremum is attained near m = 2/beta
    peak = (bv.expected_smooth_term(m, 1.0, 1e-3) * m**2).max()
    assert peak == pytest.approx(4 * np.exp(1e-3 - 2) / 1e-6, rel=1e-3)


def test_a_state_that_is_never_visited_stops_the_risk_from_vanishing():
    """The chain started in its middle: the first half is never seen."""
    whole = Chain(8, start="first").process
    start = np.zeros(whole.n_states)
    start[4] = 1.0
    process = MarkovRewardProcess(whole.transition, whole.reward, whole.discount, start)
    p = process.visit_probabilities()[:8]
    rng = np.random.default_rng(6)
    counts = first_visit_returns(simulate(process, 300, rng), 0.9).statistics().counts[:8]
    assert (counts == 300 * p).all()
    uniform, seen = np.full(8, 1 / 8), np.where(p > 0, 1 / 4, 0.0)
    floor = u.excess_risk_given_counts(300 * p, uniform, constant=1.0, beta=0.5)
    assert float(floor) == pytest.approx(0.5, abs=1e-4)  # the weight of the unseen half
    vanishing = u.excess_risk_given_counts(300 * p, seen, constant=1.0, beta=0.5)
    assert float(vanishing) == pytest.approx(300**-2.0)
    with pytest.raises(ValueError, match="never visited"):
        u.corollary_3_19(p, uniform, constant=1.0, beta=0.5)
    assert u.corollary_3_19_limit(p, seen, constant=1.0) == pytest.approx(1.0)
    # the weights that the corollary asks for leave Gamma^{1/2} Phi without full rank
    with pytest.raises(ValueError, match="rank"):
        pseudo_inverse_norm(tabular(8), seen)
    assert pseudo_inverse_norm(tabular(8), seen, allow_rank_deficient=True) == pytest.approx(2)


# ------------------------------------------------------------------------- bad input


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: u.lemma_3_13([[1.0]], [1.0], -1.0), "mean_variance"),
        (lambda: bv.lemma_3_14_corrected(0.0, 3), "b must be positive"),
        (lambda: bv.lemma_3_14_printed(1.0, 0.5), "a must be at least 1"),
        (lambda: bv.lemma_3_15_mean(0, 0.5), "m must"),
        (lambda: bv.lemma_3_15_mean(1.5, 0.5), "m must"),
        (lambda: bv.lemma_3_15_inverse_square(2, 0.0), "p must be positive"),
        (lambda: bv.expected_smooth_term(2, 1.5, 0.1), "p must lie"),
        (lambda: bv.expected_smooth_term(2, 1e-80, 0.1), "p must be at least"),
        (lambda: bv.expected_smooth_term(2, 0.5, 0.0), "beta must be positive"),
        (lambda: bv.lemma_3_16_printed(2, 0.5, 2.1), "Lemma 3.16"),
        (lambda: bv.equation_3_50_corrected(1.5, 0.1), "visits"),
        (lambda: u.equation_3_47([[1, 2]], [1.0], 0.1), "weights"),
        (lambda: u.equation_3_45_corrected([1.0, 2.0], [[1.0]], [1.0]), "theta"),
        (lambda: u.equation_3_45_printed([1.0], [1.0, 2.0], [1.0], [[1.0]], [1.0]), "mean_returns"),
        (lambda: u.theorem_3_17_printed(2, 0.5, [1.0], constant=1.0, beta=0.1), "one entry per"),
        (lambda: u.theorem_3_17_printed(2, [0.5], [1.0], constant=0.0, beta=0.1), "constant"),
        (lambda: u.theorem_3_17_printed(2, [0.5], [1.0], constant=1.0, beta=3.0), "Lemma 3.16"),
        (lambda: u.corollary_3_18_printed(2, [0.5], [1.0], constant=1.0, beta=0.6), "3.18"),
        (lambda: u.corollary_3_18_corrected(2, [0.5], [1.0], constant=1.0, beta=0.6), "3.18"),
        (lambda: u.corollary_3_19_limit([0.0], [1.0], constant=1.0), "never visited"),
        (lambda: bv.quadratic_regime_onset(0.1, 0.0), "p must be positive"),
    ],
)
def test_bad_input_is_refused(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_sums_that_are_empty_or_too_long():
    assert bv.expected_inverse_square([], 0.5).shape == (0,)
    assert bv.expected_smooth_term([], 0.5, 0.1).shape == (0,)
    with pytest.raises(ValueError, match="at most 30,000,000 are summed"):
        bv.expected_inverse_square(10**16, 0.5)
