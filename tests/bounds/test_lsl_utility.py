"""Section 3.7: identities by quadrature and enumeration, corrected bounds by random search."""

import itertools
from decimal import Context, Decimal, localcontext

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import gammaln, xlogy
from scipy.stats import binom

from dprl import evaluation
from dprl.bounds import lsl_utility as lu
from dprl.bounds import lsl_visits as lv
from dprl.features import aggregation, operator_norm, tabular
from dprl.mdp import Chain
from dprl.privacy import GaussianSmoothing
from dprl.private_evaluation import LSL, lsl_local_bound, lsl_smooth_bound
from dprl.trajectories import FirstVisitReturns, chain_visit_statistics

seeds = st.integers(0, 2**32 - 1)
SLACK = 1 + 1e-10
THESIS = GaussianSmoothing(0.1, 0.1, 40)


def compositions(m, parts):
    """Every way to share m trajectories among the visit patterns; shape (K, parts)."""
    bars = np.array(list(itertools.combinations(range(m + parts - 1), parts - 1)))
    ends = np.column_stack([-np.ones(len(bars)), bars, np.full(len(bars), m + parts - 1)])
    return np.diff(ends, axis=1).astype(int) - 1


def visit_law(patterns, laws, m):
    """Count vectors of m trajectories and their probabilities, for each law of patterns."""
    shares = compositions(m, len(patterns))
    log_p = (
        gammaln(m + 1)
        - gammaln(shares + 1).sum(axis=1)
        + xlogy(shares, laws[:, None, :]).sum(axis=-1)
    )
    return shares @ patterns, np.exp(log_p)


def two_start_risk(p, m, ridge, constants=THESIS, n_states=40):
    """Exact risk and both bounds: start in state 1 with probability p, else in the last state."""
    rho, phi = np.ones(n_states), tabular(n_states)
    n = np.arange(m + 1)
    law = binom.pmf(n, m, p)
    kept = law > 1e-25
    counts = np.column_stack([np.repeat(n[kept, None], n_states - 1, 1), np.full(kept.sum(), m)])
    constant = lu.section_3_7_constant_corrected(phi, rho, ridge, f_max=1, alpha=constants.alpha)
    terms = {"beta": constants.beta, "noise_constant": constant}
    exact = law[kept] @ lu.excess_risk_given_counts(counts, m, phi, rho, ridge, **terms)
    joint = lv.nested_visits(np.r_[np.full(n_states - 1, p), 1.0])
    bounds = [
        theorem(joint, m, phi, rho, ridge, **terms)
        for theorem in (lu.theorem_3_23_printed, lu.theorem_3_23_corrected)
    ]
    return float(exact), *map(float, bounds)


# -- Lemma 3.20 ---------------------------------------------------------------------------


@given(seeds)
def test_lemma_3_20_is_the_expectation_of_the_risk_itself(seed):
    """Two Gauss-Hermite nodes a direction integrate the quadratic risk exactly."""
    rng = np.random.default_rng(seed)
    m, n, d = (int(x) for x in rng.integers(1, [6, 4, 4]))
    phi, rho = rng.normal(size=(n, d)), rng.uniform(0.01, 1, n)
    visited = rng.random((m, n)) < 0.6
    returns = FirstVisitReturns(np.where(visited, rng.normal(size=(m, n)), 0.0), visited)
    ridge, sigma = rng.uniform(0.5, 5), rng.uniform(0.1, 3)
    theta = evaluation.lsl(returns.statistics(), phi, rho, ridge)
    nodes = theta + sigma * np.array(list(itertools.product([-1, 1], repeat=d)))
    risks = [evaluation.ridge_risk(returns, phi, x, rho, ridge) for x in nodes]
    excess = np.mean(risks) - evaluation.ridge_risk(returns, phi, theta, rho, ridge)
    identity = lu.lemma_3_20(returns.visit_counts, sigma**2, m, phi, rho, ridge)
    assert identity == pytest.approx(excess, rel=1e-9)


@pytest.mark.parametrize("features", [tabular(6), aggregation(6), aggregation(6, orthonormal=True)])
def test_the_constant_gives_the_noise_of_algorithm_2(features):
    rho, ridge, m = np.linspace(0.1, 1, 6), 9.0, 50
    counts = np.array([0, 3, 3, 20, 50, 50])
    noise = LSL(features, rho, ridge, f_max=7.0).noise(counts, m, epsilon=0.5, delta=0.01)
    right = lu.section_3_7_constant_corrected(features, rho, ridge, f_max=7.0, alpha=noise.alpha)
    wrong = lu.section_3_7_constant_printed(features, rho, ridge, f_max=7.0)
    assert right * np.sqrt(noise.psi) == pytest.approx(noise.sigma)
    assert wrong * np.sqrt(noise.psi) == pytest.approx(noise.sigma / noise.alpha)
    assert noise.alpha > 2  # so the printed constant is another number


def test_excess_risk_is_its_sum(monkeypatch):
    rng = np.random.default_rng(1)
    counts = rng.integers(0, 31, (40, 3))
    # binary fractions: sums over states are exact, in whatever order a processor takes them
    phi, rho = rng.integers(-16, 17, (3, 2)) / 8, np.array([0.25, 0.0, 0.875])
    ridge, beta = 20.0, 0.05
    given_arguments = (counts, 30, phi, rho, ridge)
    found = lu.excess_risk_given_counts(*given_arguments, beta=beta, noise_constant=3.0)
    c = operator_norm(phi) * 0.875 / np.sqrt(2 * ridge)
    risks = []
    for v in counts:
        k = np.arange(31)
        psi = (np.exp(-beta * k) * lsl_local_bound(np.tile(v, (31, 1)), rho, 30, c, k)).max()
        trace = sum(r * x @ x * n for r, x, n in zip(rho, phi, v, strict=True)) / 30
        risks.append((ridge * 2 / 60 + trace) * 9 * psi)
    assert found == pytest.approx(risks)
    monkeypatch.setattr(lu, "_CHUNK", 1)
    again = lu.excess_risk_given_counts(*given_arguments, beta=beta, noise_constant=3.0)
    assert (again == found).all()


def test_excess_risk_agrees_with_simulated_batches():
    """Counts of simulated chains, a noise drawn for each, the risk's own difference."""
    rng = np.random.default_rng(5)
    chain, m, ridge, runs = Chain(4, 0.5, 0.9, "uniform"), 30, 12.0, 40_000
    phi, rho = tabular(4), np.ones(4)
    constants = GaussianSmoothing(1.0, 0.1, 4)
    data = chain_visit_statistics(chain, m, rng, bounds=(0, 1), n_batches=runs)
    noise = LSL(phi, rho, ridge, f_max=1.0).noise(data.counts, m, epsilon=1.0, delta=0.1)
    theta = evaluation.lsl(data, phi, rho, ridge)
    noisy = constants.perturb(theta, noise.sigma, rng)
    excess = evaluation.excess_ridge_risk(noisy, theta, data, phi, rho, ridge)
    patterns = np.triu(np.ones((4, 4), int))  # a start in s visits s and all behind it
    counts, p = visit_law(patterns, np.full((1, 4), 0.25), m)
    constant = lu.section_3_7_constant_corrected(phi, rho, ridge, f_max=1, alpha=constants.alpha)
    exact = p[0] @ lu.excess_risk_given_counts(
        counts, m, phi, rho, ridge, beta=constants.beta, noise_constant=constant
    )
    error = excess.std(ddof=1) / np.sqrt(runs)
    assert error < 0.01 * exact
    assert abs(excess.mean() - exact) < 4 * error


# -- Lemma 3.21, (3.56), psi --------------------------------------------------------------


@given(st.integers(0, 300), st.integers(1, 300), st.floats(-4, 1).map(lambda x: 10**x))
def test_the_discounted_count_is_a_maximum_over_all_k(n, m, rate):
    n = min(n, m)
    k = np.arange(m + 1)
    best = (np.exp(-rate * k) * np.minimum(n + k, m)).max()
    assert lv.largest_discounted_count(n, rate, m) == pytest.approx(best, rel=1e-13)


def test_lemma_3_21_corrected_is_the_maximum_and_the_printed_one_is_not():
    rng = np.random.default_rng(2)
    m = 10 ** rng.uniform(-1, 3, 20_000)
    a = m * np.where(rng.random(m.size) < 0.1, 0.0, rng.random(m.size))
    b = 10 ** rng.uniform(-4, 2, m.size)
    corrected, printed = (
        lv.lemma_3_21_corrected(a, 2 * b, m),
        lv.lemma_3_21_printed(a, b, m),
    )
    grid = np.linspace(0, 1, 200)
    best = np.zeros(m.size)
    for x in ((m - a)[:, None] * grid, np.minimum(m - a, 1 / (2 * b))[:, None] * grid):
        values = np.exp(-2 * b[:, None] * x) * (a[:, None] + x)
        best = np.maximum(best, values.max(axis=1))
    assert (best <= corrected * SLACK).all()
    assert (best >= 0.9999 * corrected).all()
    # the three cases, with the conditions as they must be
    rate = 2 * b
    with np.errstate(divide="ignore", over="ignore"):
        cases = np.select(
            [rate >= 1 / a, rate <= 1 / m],
            [a, m * np.exp(-rate * (m - a))],
            np.exp(a * rate - 1) / rate,
        )
    assert corrected == pytest.approx(cases, rel=1e-12)
    too_small, too_large = printed < corrected / SLACK, printed > corrected * SLACK
    assert too_small.mean() > 0.2
    assert too_large.mean() > 0.05
    with np.errstate(divide="ignore"):
        both_right = (
            ((b < a / 2) & (b >= 1 / (2 * a)))
            | ((b > m / 2) & (b <= 1 / (2 * m)))
            | ((b >= a / 2) & (b <= m / 2) & (b <= 1 / (2 * a)) & (b >= 1 / (2 * m)))
        )
    assert ((~too_small & ~too_large) == both_right).mean() > 0.999


def test_lemma_3_21_in_numbers():
    """a = 10, b = 0.01, m = 1000: the printed first case gives 10, the maximum is 22.47."""
    x = np.linspace(0, 990, 10**6)
    best = (np.exp(-0.02 * x) * (10 + x)).max()
    assert lv.lemma_3_21_printed(10, 0.01, 1000) == 10
    assert lv.lemma_3_21_corrected(10, 0.02, 1000) == pytest.approx(best, rel=1e-9)
    assert best == pytest.approx(22.47, abs=5e-3)
    assert np.isinf(lv.lemma_3_21_printed(100, 100, 1000))
    # the end points of its range
    assert lv.lemma_3_21_corrected(7, 0.3, 7) == 7
    assert lv.lemma_3_21_corrected(0, 1e-300, 7) == 7
    assert lv.lemma_3_21_corrected(0, 1e300, 7) == pytest.approx(0, abs=1e-299)


def test_equation_3_56_corrected_is_never_below_and_has_its_chord_between():
    rng = np.random.default_rng(3)
    m = np.floor(10 ** rng.uniform(0, 5, 40_000))
    n = np.floor((m + 1) * rng.random(m.size) ** 4)
    rate = 10 ** rng.uniform(-6, 0.5, m.size)
    # the maximum depends on m element by element: by its definition through Lemma 3.21
    real = lv.lemma_3_21_corrected(n, rate, m)
    tau, kappa = lv.smoothing_excess(rate, m)
    chord = n + kappa * np.maximum(1 - tau * n, 0)
    corrected = lv.equation_3_56_corrected(n, rate, m)
    assert (real <= chord * SLACK).all()
    assert (chord <= corrected * SLACK).all()
    for i in range(0, m.size, 400):
        whole = lv.largest_discounted_count(n[i], rate[i], int(m[i]))
        assert whole <= real[i] * SLACK
    at_zero = lv.lemma_3_21_corrected(0 * n, rate, m)
    assert kappa == pytest.approx(at_zero)
    assert (kappa <= 1 / (np.e * rate) * SLACK).all()


@given(st.integers(1, 3000), st.floats(-5, np.log10(0.49)).map(lambda x: 10**x), seeds)
def test_equation_3_56_fails_exactly_where_the_docstring_says(m, beta, seed):
    n = np.random.default_rng(seed).integers(0, m + 1, 50)
    true = lv.largest_discounted_count(n, 2 * beta, m)
    violated = true > lv.equation_3_56_printed(n, beta) * SLACK
    edge = 1 / np.expm1(2 * beta)
    clear = np.abs(n - edge) > 1e-6 * edge  # not within rounding of the edge
    assert (violated == ((n >= 1) & (n < min(m, edge))))[clear].all()


def random_signatures(rng, settings, n_states=5):
    m = int(10 ** rng.uniform(0, 4))
    v = np.floor((m + 1) * rng.random((settings, n_states)) ** rng.uniform(1, 8))
    rho = np.where(rng.random(n_states) < 0.2, 0.0, rng.random(n_states))
    rho[0] = rng.uniform(0.1, 1)
    return v, rho, m, 10 ** rng.uniform(-2, 1), 10 ** rng.uniform(-5, 0)


def test_psi_bound_corrected_is_never_violated():
    rng = np.random.default_rng(4)
    printed_fails = printed_holds = 0
    for _ in range(60):
        v, rho, m, c, beta = random_signatures(rng, 200)
        psi, _ = lsl_smooth_bound(v, rho, m, c, beta)
        assert (psi <= lv.psi_bound_corrected(v, rho, m, c, beta) * SLACK).all()
        printed = lv.psi_bound_printed(v, rho, m, c, beta)
        printed_fails += (psi > printed * SLACK).sum()
        printed_holds += (psi <= printed).sum()
        # its exponent would be right if sigma and not sigma^2 were smoothed
        psi_of_sigma, _ = lsl_smooth_bound(v, rho, m, c, 2 * beta)
        assert (psi_of_sigma <= printed * SLACK).all()
        whole = lv.equation_3_56_corrected(v, beta, m) @ rho
        assert (psi <= (2 * rho @ rho + 2 * c**2 * whole) * SLACK).all()
    assert printed_fails > 100
    assert printed_holds > 100


def test_the_one_state_example():
    """n = 20, m = 10^4, lambda = 2, rho = 1: the numbers of the page."""
    c, beta, m = 1 / np.sqrt(2 * 2.0), THESIS.beta, 10_000
    psi, k = lsl_smooth_bound([20], [1.0], m, c, beta)
    assert (float(psi.round(2)), int(k)) == (176.02, 1619)
    assert lv.psi_bound_printed([20], [1.0], m, c, beta) == pytest.approx(163.9, abs=0.05)
    assert 2 + 2 * c**2 * lv.equation_3_56_printed(20, beta) == 12
    corrected = 2 + 2 * c**2 * lv.equation_3_56_corrected(20, beta, m)
    assert corrected == pytest.approx(324.7, abs=0.05)
    one = lv.largest_discounted_count(1, [2 * beta, beta], m)
    assert one == pytest.approx([316.71, 633.06], abs=0.01)


# -- Lemma 3.22 ---------------------------------------------------------------------------


@given(seeds, st.integers(1, 4), st.floats(0.01, 3))
def test_moments_by_enumeration_of_every_batch(seed, m, rate):
    """m trajectories of three states, each with one of the 2^3 visit patterns."""
    rng = np.random.default_rng(seed)
    patterns = np.array(list(itertools.product([0, 1], repeat=3)))
    law = rng.dirichlet(np.full(8, rng.uniform(0.1, 2)))
    # pairs of a batch in order: not the multinomial formula that the other tests use
    batches = np.array(list(itertools.product(range(8), repeat=m)))
    weight = law[batches].prod(axis=1)
    n = patterns[batches].sum(axis=1)
    joint = (patterns * law[:, None]).T @ patterns
    joint = (joint + joint.T) / 2
    moments = lv.lemma_3_22(joint, m)
    decay, count_decay = lv.discounted_moments(joint, rate, m)

    def mean(values):
        return np.tensordot(weight, values, axes=1)

    pair = n[:, :, None] * n[:, None, :]
    where_none = n[:, :, None] * (n[:, None, :] == 0)
    discounted = n[:, :, None] * np.exp(-rate * n[:, None, :])
    assert moments.mean == pytest.approx(mean(n), abs=1e-12)
    assert moments.unvisited == pytest.approx(mean(n == 0), abs=1e-12)
    assert moments.square == pytest.approx(mean(n**2), abs=1e-12)
    assert moments.product == pytest.approx(mean(pair), abs=1e-12)
    assert moments.count_where_unvisited == pytest.approx(mean(where_none), abs=1e-12)
    assert decay == pytest.approx(mean(np.exp(-rate * n)), abs=1e-12)
    assert count_decay == pytest.approx(mean(discounted), abs=1e-12)
    assert np.diagonal(moments.product) == pytest.approx(moments.square, abs=1e-12)


def test_discounting_beyond_measure_leaves_the_printed_moments():
    joint = lv.nested_visits([0.2, 0.7, 1.0])
    decay, count_decay = lv.discounted_moments(joint, 700.0, 6)
    moments = lv.lemma_3_22(joint, 6)
    assert decay == pytest.approx(moments.unvisited)
    assert count_decay == pytest.approx(moments.count_where_unvisited)


def test_visits_on_the_chain_are_nested():
    chain = Chain(5, 0.3, 0.9, "uniform")
    joint = lv.nested_visits(chain.visit_probabilities())
    starts = np.triu(np.ones((5, 5)))
    assert joint == pytest.approx(starts.T @ starts / 5)


# -- Theorem 3.23 -------------------------------------------------------------------------


@given(seeds)
def test_both_theorems_are_the_expanded_expectation(seed):
    """The printed proof's expression, with the moments put in factor by factor."""
    rng = np.random.default_rng(seed)
    n_states, d, m = (int(x) for x in rng.integers(1, [5, 4, 20]))
    phi, rho = rng.normal(size=(n_states, d)), rng.uniform(0.01, 1, n_states)
    joint = lv.nested_visits(rng.random(n_states))
    ridge, beta, constant = rng.uniform(0.1, 50), rng.uniform(1e-3, 0.49), rng.uniform(0.1, 5)
    moments = lv.lemma_3_22(joint, m)
    over = operator_norm(phi) ** 2 * rho.max() ** 2 / ridge
    left = rho * (phi**2).sum(axis=1) / m
    tau, kappa = lv.smoothing_excess(beta, m)
    decay, count_decay = lv.discounted_moments(joint, tau, m)
    versions = {
        lu.theorem_3_23_printed: (
            moments.unvisited / (2 * np.e * beta),
            moments.count_where_unvisited / (2 * np.e * beta),
        ),
        lu.theorem_3_23_corrected: (kappa * decay, kappa * count_decay),
    }
    for theorem, (single, double) in versions.items():
        flat = ridge * d / (2 * m) * (2 * rho @ rho + over * rho @ (moments.mean + single))
        sloped = (
            left @ moments.mean * 2 * rho @ rho + over * left @ (moments.product + double) @ rho
        )
        found = theorem(joint, m, phi, rho, ridge, beta=beta, noise_constant=constant)
        assert found == pytest.approx(constant**2 * (flat + sloped), rel=1e-10)


def random_problem(rng):
    """Features, weights, m, lambda, beta and 120 laws of the four visit patterns of two states."""
    m, d = int(rng.integers(1, 15)), int(rng.integers(1, 3))
    phi = rng.normal(size=(2, d)) if rng.random() < 0.7 else tabular(2)
    rho = np.array([1.0, rng.choice([0.0, rng.random(), 1.0])])
    ridge = operator_norm(phi) ** 2 * (1 + 10 ** rng.uniform(-2, 4))
    beta = 10 ** rng.uniform(-4, 0.5)
    patterns = np.array([[0, 0], [1, 0], [0, 1], [1, 1]])
    laws = rng.dirichlet(np.full(4, 10 ** rng.uniform(-1.5, 1)), 120)
    joint = np.einsum("lk,ks,kt->lst", laws, patterns, patterns)
    counts, p = visit_law(patterns, laws, m)
    return phi, rho, m, ridge, beta, joint, counts, p / p.sum(axis=1, keepdims=True)


def test_theorem_3_23_corrected_is_never_violated():
    """12 000 settings, the expectation summed over every possible count vector."""
    rng = np.random.default_rng(6)
    printed_fails, settings, tightest = 0, 0, 0.0
    for _ in range(100):
        phi, rho, m, ridge, beta, joint, counts, p = random_problem(rng)
        exact = p @ lu.excess_risk_given_counts(
            counts, m, phi, rho, ridge, beta=beta, noise_constant=1.0
        )
        bound = lu.theorem_3_23_corrected(joint, m, phi, rho, ridge, beta=beta)
        assert (exact <= bound * SLACK).all()
        tightest = max(tightest, (exact / bound).max())
        settings += exact.size
        if beta < 0.5:
            printed = lu.theorem_3_23_printed(joint, m, phi, rho, ridge, beta=beta)
            printed_fails += (exact > printed * SLACK).sum()
        if ridge >= 2 * operator_norm(phi) ** 2 * rho.max():
            constant = lu.section_3_7_constant_corrected(phi, rho, ridge, f_max=2, alpha=3)
            k = lu.corollary_3_24_constants(
                np.diagonal(joint, axis1=1, axis2=2), phi, rho, f_max=2, alpha=3, beta=beta
            )
            assert (constant**2 * bound <= lu.corollary_3_24(m, ridge, k) * SLACK).all()
    assert settings >= 10_000
    assert printed_fails > 500
    assert tightest > 0.8


def test_theorem_3_23_printed_holds_from_the_safe_ridge_on():
    rng = np.random.default_rng(7)
    settings = 0
    while settings < 10_000:
        phi, rho, m, _, beta, joint, counts, p = random_problem(rng)
        if beta >= 0.5:
            continue
        ridge = lu.theorem_3_23_safe_ridge(phi, rho, m) * 10 ** rng.uniform(0, 2)
        exact = p @ lu.excess_risk_given_counts(
            counts, m, phi, rho, ridge, beta=beta, noise_constant=1.0
        )
        printed = lu.theorem_3_23_printed(joint, m, phi, rho, ridge, beta=beta)
        assert (exact <= printed * SLACK).all()
        settings += exact.size


@pytest.mark.parametrize(
    ("p", "m", "ridge", "exact", "printed", "ratio"),
    [
        (0.01, 1000, 2.0, 5.4476e8, 6.6868e7, 8.15),
        (0.01, 1000, np.sqrt(1000), 71_988, 16_049, 4.49),
        (0.01, 3000, np.sqrt(3000), 14_089, 5684.1, 2.48),
        (0.001, 3000, np.sqrt(3000), 11_094, 4300.8, 2.58),
        (0.5, 1000, np.sqrt(1000), 1.0003e6, 9.8406e5, 1.017),
        (0.2, 100, 100.0, 19_593, 15_649, 1.252),  # lambda = m is not safe either
    ],
)
def test_theorem_3_23_printed_is_violated_on_the_chain(p, m, ridge, exact, printed, ratio):
    found = two_start_risk(p, m, ridge)
    assert found[0] == pytest.approx(exact, rel=1e-4)
    assert found[1] == pytest.approx(printed, rel=1e-4)
    assert found[0] / found[1] == pytest.approx(ratio, abs=5e-3)
    assert found[0] <= found[2]


def test_theorem_3_23_printed_holds_where_all_counts_are_surely_large():
    for m in (1720, 5000):  # 1/beta = 1719.8
        exact, printed, corrected = two_start_risk(1.0, m, np.sqrt(m))
        assert exact <= printed <= corrected


def test_settings_may_be_arrays():
    joint = lv.nested_visits([[0.1, 1.0], [0.6, 0.9], [0.0, 0.3]])
    m, ridge = np.array([10, 40, 1000]), np.array([3.0, 5.0, 7.0])
    beta, constant = np.array([0.2, 0.01, 0.003]), np.array([1.0, 2.0, 3.0])
    for theorem in (lu.theorem_3_23_printed, lu.theorem_3_23_corrected):
        together = theorem(joint, m, tabular(2), [1, 1], ridge, beta=beta, noise_constant=constant)
        each = [
            theorem(j, k, tabular(2), [1, 1], r, beta=b, noise_constant=c)
            for j, k, r, b, c in zip(joint, m, ridge, beta, constant, strict=True)
        ]
        assert together == pytest.approx(np.array(each))


# -- Corollary 3.24 -----------------------------------------------------------------------


@pytest.mark.parametrize(("power", "order"), [(0.5, -0.5), (2 / 3, -1.0), (1.0, -2.0)])
def test_the_order_in_m_for_a_ridge_that_is_a_power(power, order):
    """All trajectories visit every state: the exact risk has the order of its bound."""
    phi, rho, m = tabular(3), np.ones(3), np.array([10**8, 10**10])
    constants = GaussianSmoothing(0.1, 0.1, 3)
    risk, bound = [], []
    k = lu.corollary_3_24_constants(
        np.ones(3), phi, rho, f_max=1, alpha=constants.alpha, beta=constants.beta
    )
    for size in m:
        ridge = float(size) ** power
        c = lu.section_3_7_constant_corrected(phi, rho, ridge, f_max=1, alpha=constants.alpha)
        one = lu.excess_risk_given_counts(
            [size] * 3, int(size), phi, rho, ridge, beta=constants.beta, noise_constant=c
        )
        risk.append(one)
        bound.append(lu.corollary_3_24(size, ridge, k))
    assert np.log10(risk[1] / risk[0]) / 2 == pytest.approx(order, abs=0.02)
    assert np.log10(bound[1] / bound[0]) / 2 == pytest.approx(order, abs=0.2)
    assert (np.array(risk) <= bound).all()


# -- bad input ----------------------------------------------------------------------------

GOOD = {"n_trajectories": 4, "features": tabular(2), "weights": [1, 1], "ridge": 2.0}


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: lu.lemma_3_20([5, 0], 1.0, **GOOD), "must not exceed"),
        (lambda: lu.lemma_3_20([1, 0], -1.0, **GOOD), "variance must not be negative"),
        (lambda: lu.lemma_3_20([1, 0, 0], 1.0, **GOOD), "must have 2 entries"),
        (lambda: lu.section_3_7_constant_printed(tabular(2), [1, 1], 1.0, f_max=1), "must exceed"),
        (lambda: lv.largest_discounted_count(3, 0.0, 4), "rate must be positive"),
        (lambda: lv.largest_discounted_count(-1, 0.1, 4), "must not be negative"),
        (lambda: lv.psi_bound_printed([1], [2.0], 4, 1.0, 0.1), "at most 1"),
        (lambda: lv.lemma_3_21_printed(5, 0.1, 4), r"a must lie in \[0, m\]"),
        (lambda: lv.lemma_3_21_corrected(1, -0.1, 4), "rate must be positive"),
        (lambda: lv.equation_3_56_printed(1, 0.5), "beta < 1/2"),
        (lambda: lv.equation_3_56_corrected(1, 0.1, 2.5), "whole numbers"),
        (lambda: lv.nested_visits([0.5, 1.5]), r"must lie in \[0, 1\]"),
        (lambda: lv.lemma_3_22([[0.5, 0.2], [0.1, 0.5]], 3), "symmetric"),
        (lambda: lv.lemma_3_22([[0.5, 0.6], [0.6, 0.5]], 3), "must not exceed min"),
        (lambda: lv.lemma_3_22([[0.9, 0.1], [0.1, 0.9]], 3), "at least max"),
        (lambda: lv.lemma_3_22([0.5], 3), "must have shape"),
        (lambda: lu.theorem_3_23_printed([[0.5]], beta=0.1, **GOOD), "joint must have 2 rows"),
        (
            lambda: lu.theorem_3_23_printed(lv.nested_visits([1, 1]), beta=0.6, **GOOD),
            "beta < 1/2",
        ),
        (lambda: lu.corollary_3_24(4, 2.0, (1, -1, 1)), "must not be negative"),
        (lambda: lu.corollary_3_24(4, 2.0, (1, 1)), "K_1, K_2, K_3"),
        (
            lambda: lu.corollary_3_24_constants([1], tabular(2), [1, 1], f_max=1, alpha=1, beta=1),
            "must have 2 entries",
        ),
    ],
)
def test_bad_input_is_refused(call, message):
    with pytest.raises(ValueError, match=message):
        call()


@pytest.mark.parametrize(
    ("p", "m"), [(1e-17, 10**16), (1e-9, 10**9), (1e-3, 500), (0.5, 3), (1, 1)]
)
def test_moments_keep_their_digits_where_visits_are_rare(p, m):
    """One state: P[n = 0] and E[e^{-rate n}] of a binomial, with 60 digits."""
    with localcontext(Context(prec=60)):
        exact, factor = Decimal(p), Decimal("-0.25").exp()
        never = (1 - exact) ** m
        decay = (1 - (1 - factor) * exact) ** m
        counted = m * factor * exact * (1 - (1 - factor) * exact) ** (m - 1) if m > 1 else factor
    joint = [[float(p)]]
    assert float(lv.lemma_3_22(joint, m)[1][0]) == pytest.approx(float(never), rel=1e-13)
    one, two = lv.discounted_moments(joint, 0.25, m)
    assert float(one[0]) == pytest.approx(float(decay), rel=1e-13)
    assert float(two[0, 0]) == pytest.approx(float(counted), rel=1e-13)
