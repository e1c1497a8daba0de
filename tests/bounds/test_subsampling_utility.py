"""Sections 4.3 to 4.7: exact enumeration, second methods, random settings, the printed forms."""

import functools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import special, stats

from dprl.bounds import subsampling_limits as lim
from dprl.bounds import subsampling_utility as u
from dprl.privacy import (
    OutputPerturbation,
    Population,
    analytic_gaussian_sigma,
    average_subsampling_sensitivity,
    averaging_query,
    classical_gaussian_sigma,
    gaussian_delta,
    subsample_and_average_utility,
)
from dprl.privacy.averages import (
    LARGEST_EPSILON,
    averaged_gaussian_delta,
    averaged_gaussian_epsilon,
    averaged_gaussian_mu,
)
from dprl.privacy.subsampling import inversion_printed

SETTINGS = 20_000
ROUNDING = 1 + 1e-12
epsilons = st.floats(-3, 0.6).map(lambda x: 10**x)
deltas = st.floats(-8, -0.1).map(lambda x: 10**x)
fractions = st.floats(-4, 0).map(lambda x: 10**x)
PROMISES = [(1.0, 1e-5), (0.1, 1e-5), (0.1, 0.1), (0.01, 0.1), (0.5, 1e-3), (3.0, 0.3), (0.99, 0.9)]


def random_sizes(rng, size):
    """n, m, k as integers."""
    n = np.round(10 ** rng.uniform(0.5, 7, size)).astype(np.int64)
    m = np.round(10 ** rng.uniform(0, 8, size)).astype(np.int64)
    k = np.clip(np.round(n ** rng.uniform(0, 1, size)), 1, n).astype(np.int64)
    return n, m, k


def plain(eps, delta):
    """mu, b and c of the module."""
    mu = lim.least_noise_signal(eps, delta)
    return mu, eps / mu - mu / 2, eps / mu + mu / 2


# ------------------------------------------------------------------------- Theorem 4.9


@given(st.integers(1, 10**6), st.floats(1e-4, 0.999), st.floats(1e-12, 0.999))
def test_theorem_4_9_corrected_is_the_variance_of_the_classical_mechanism(n, eps, delta):
    sigma = classical_gaussian_sigma(2.5 / n, eps, delta)
    found = u.theorem_4_9_corrected(n, eps, delta, scale=3 * 2.5**2)
    assert float(found) == pytest.approx(3 * sigma**2, rel=1e-12)
    printed = u.theorem_4_9_printed(n, eps, delta, scale=3 * 2.5**2)
    assert float(printed / found) == pytest.approx(-math.log(delta), rel=1e-12)


def test_the_noise_of_theorem_4_9_is_private_up_to_2_ln_2_5():
    rng = np.random.default_rng(49)
    eps, delta = rng.uniform(1e-3, u.LARGEST_CLASSICAL_EPSILON, 500), rng.random(500)
    sigma = np.sqrt(u.theorem_4_9_corrected(1, eps, delta))
    true = [gaussian_delta(1.0, s, e) for s, e in zip(sigma, eps, strict=True)]
    assert (np.array(true) <= delta).all()


def test_the_printed_constant_is_not_even_sufficient():
    variance = float(u.theorem_4_9_printed(1, 0.99, 0.9))
    assert gaussian_delta(1.0, math.sqrt(variance), 0.99) == pytest.approx(0.9042, abs=1e-4)
    assert float(u.theorem_4_9_printed(1, 0.5, math.exp(-1))) == pytest.approx(
        float(u.theorem_4_9_corrected(1, 0.5, math.exp(-1)))
    )


# ------------------------------------------------------------- sampling error, Corollary 4.15


@pytest.mark.parametrize("k", [1, 2, 4, 5])
def test_section_4_5_by_enumeration(k):
    rng = np.random.default_rng(45 + k)
    records, p = rng.normal(size=(3, 2)), rng.dirichlet(np.ones(3))
    population, query = Population(records, p), averaging_query()
    v = float(p @ (records**2).sum(axis=1) - ((p @ records) ** 2).sum())
    exact = average_subsampling_sensitivity(query, population, 5, k)
    assert float(u.section_4_5_avss_squared(5, k, v)) == pytest.approx(exact**2, abs=1e-14)
    assert float(u.equation_4_21_corrected(5, k, v)) == pytest.approx(exact, abs=1e-7)


def test_equation_4_21_is_off_by_any_factor():
    n, k = 100, 50
    assert float(u.equation_4_21_corrected(n, n, 1.0)) == 0 < float(u.equation_4_21_printed(1, n))
    ratio = u.equation_4_21_corrected(n, k, 1.0) / u.equation_4_21_printed([1, 10**6], k)
    assert ratio[1] / ratio[0] == pytest.approx(1e6)


def test_corollary_4_15_by_enumeration():
    rng = np.random.default_rng(415)
    records, p = rng.random((3, 2)), rng.dirichlet(np.ones(3))
    v = float(p @ (records**2).sum(axis=1) - ((p @ records) ** 2).sum())
    span = np.linalg.norm(records[:, None] - records[None], axis=-1).max()
    n, k, m, eps, delta = 6, 2, np.array([1, 3, 50]), 0.4, 1e-3
    sigma = classical_gaussian_sigma(span / k, eps, delta)
    base = OutputPerturbation(averaging_query(), lambda x: np.full(len(x), sigma**2))
    exact = subsample_and_average_utility(base, Population(records, p), n, m, k)
    scale = 2 * span**2
    corrected = u.corollary_4_15_corrected(n, m, k, eps, delta, v, scale=scale)
    assert corrected == pytest.approx(exact, rel=1e-10)
    printed = u.corollary_4_15_printed(n, m, k, eps, delta, v, scale=scale)
    assert (printed / exact > 6).all()


def test_corollary_4_15_by_simulation():
    rng = np.random.default_rng(4150)
    n, m, k, eps, delta, runs = 30, 4, 6, 0.9, 0.4, 20_000
    x = (rng.random((runs, n)) < 0.5).astype(float)
    sigma = classical_gaussian_sigma(1 / k, eps, delta)
    total = np.zeros(runs)
    for _ in range(m):
        total += rng.permuted(x, axis=1)[:, :k].mean(axis=1) + sigma * rng.standard_normal(runs)
    error = (total / m - x.mean(axis=1)) ** 2
    expected = float(u.corollary_4_15_corrected(n, m, k, eps, delta, 0.25))
    assert abs(error.mean() - expected) < 4 * error.std() / math.sqrt(runs)


# ------------------------------------------------------------------------ Theorem 4.16


def test_the_printed_calibration_loses_in_every_random_setting():
    rng = np.random.default_rng(416)
    n, m, k = random_sizes(rng, SETTINGS)
    eps, delta = 10 ** rng.uniform(-5, 0.26, SETTINGS), 10 ** rng.uniform(-12, -0.01, SETTINGS)
    ratio = u.theorem_4_16_ratio(n, m, k, eps, delta)
    bound = u.theorem_4_16_lower_bound(n, m, k, eps, delta)
    defined = np.isfinite(ratio)
    assert defined.mean() > 0.4
    assert (ratio[defined] * ROUNDING >= bound[defined]).all()
    assert (bound[defined] > 1).all()
    # any slack below delta
    slack = delta * rng.random(SETTINGS)
    bound = u.theorem_4_16_lower_bound(n, m, k, eps, delta, slack)
    ratio = u.theorem_4_16_ratio(n, m, k, eps, delta, slack)
    defined = np.isfinite(ratio)
    assert (ratio[defined] * ROUNDING >= bound[defined]).all()
    assert (bound[defined & (delta <= 0.75)] > 1).all()
    # once there are as many draws as records, each draw costs
    enough = np.isfinite(bound) & (m * k >= n)
    growth = 1 + np.log(m * (k / n)) / np.log(1.25 / delta)
    assert (bound * ROUNDING >= -8 * np.log(delta) * growth)[enough].all()


def test_on_a_sequence_of_theorem_4_16_the_opposite_happens():
    n = np.array([10**3, 10**4, 10**6, 10**8, 10**10])
    m, k = np.round(n**1.5).astype(np.int64), n // 2
    ratio = u.theorem_4_16_ratio(n, m, k, 1.0, 1e-5)
    assert ratio == pytest.approx([184.5, 212.7, 270.1, 327.6, 385.0], abs=0.06)
    twice = u.theorem_4_16_ratio(n, m, k, 1.0, 1e-5, logarithms="twice")
    assert (np.diff(twice) > np.diff(ratio)).all()
    # the hypotheses: m k^2/n^2 and m k^2/(n^2 ln(mk/n)) grow, AVSS^2 n^2/m shrinks
    grows = m * (k / n) ** 2
    assert (np.diff(grows / np.log(m * (k / n))) > 0).all()
    assert (np.diff(u.section_4_5_avss_squared(n, k, 0.25) * n**2.0 / m) < 0).all()


def test_the_ratio_is_made_of_corollary_and_theorem():
    base = u.printed_base(1000, 7, 300, 0.3, 1e-4)
    once = u.corollary_4_15_corrected(1000, 7, 300, *base, 0.0)
    expected = once / u.theorem_4_9_corrected(1000, 0.3, 1e-4)
    assert float(u.theorem_4_16_ratio(1000, 7, 300, 0.3, 1e-4)) == pytest.approx(float(expected))


def test_equation_4_29_and_the_missing_square_of_4_30():
    x = 10.0 ** np.arange(-5, -1)

    def logarithm(x):
        # (4.9) with n = m = k = 1 and 8 ln(1/delta') = 1 is ln(1/2 + sqrt(1/4 + x))
        return inversion_printed(x, 0.95, 1, 1, 1, slack=math.exp(-1 / 8))[0]

    assert logarithm(x) == pytest.approx(np.log(0.5 + np.sqrt(0.25 + x)), rel=1e-9)
    assert ((logarithm(x) - (x - 1.5 * x**2)) / x**3)[1:] == pytest.approx(10 / 3, rel=0.1)
    assert (logarithm(x) / x**2).max() > 1e4
    assert ((logarithm(x) ** 2 - x**2) / x**3) == pytest.approx(-3, rel=0.1)


# ------------------------------------------------------------------------ Theorem 4.17


def test_equation_4_31_is_least_at_one_sub_sample_of_one_record():
    for n, eps in [(8, 1.0), (30, 0.5), (100, 0.01)]:
        m, k = np.arange(1, 3 * n)[:, None], np.arange(1, n + 1)
        value = u.theorem_4_17_printed(n, m, k, eps)
        assert np.unravel_index(value.argmin(), value.shape) == (0, 0)
        assert value[0, 0] == pytest.approx(1 - math.log(n) / eps**2)


def test_the_corrected_rate_is_the_order_of_the_utility_and_the_printed_is_not():
    printed, corrected = [], []
    for n in (10**3, 10**6, 10**9):
        m = k = round(n ** (2 / 3))
        base = u.printed_base(n, m, k, 0.5, 1e-5)
        exact = float(u.corollary_4_15_corrected(n, m, k, *base, 0.25))
        printed.append(exact / float(u.theorem_4_17_printed(n, m, k, 0.5)))
        corrected.append(exact / float(u.theorem_4_17_corrected(n, m, k, 0.5, 0.25)))
    assert printed[2] > 10 * printed[1]
    assert 0.9 < corrected[2] < corrected[1] < corrected[0] < 2000
    # exactly the exchange of the second term
    difference = u.theorem_4_17_corrected(100, 4, 50, 0.5, 0.25) - u.theorem_4_17_printed(
        100, 4, 50, 0.5
    )
    assert float(difference) == pytest.approx((1 / 50 - 1 / 100) * 0.25 / 4 - 1 / (50 * 16))


# -------------------------------------------------------------- every calibration: the lemma


@given(epsilons, st.floats(0.01, 4), st.floats(-2, 6), st.integers(1, 60), fractions)
def test_the_half_line_is_one_of_the_events(eps, signal, cut, m, q):
    value = float(lim.half_line_delta(eps, signal, cut, m, q))
    j = np.arange(m + 1)
    first = stats.binom.pmf(j, m, q) @ stats.norm.cdf(signal * j / (m * q) - cut)
    assert value == pytest.approx(first - math.exp(eps) * stats.norm.cdf(-cut), abs=1e-12)
    base = signal / (q * math.sqrt(m))
    assert value <= averaged_gaussian_delta(base, q, m, eps) + 1e-9


@pytest.mark.parametrize(("m", "q"), [(10**6, 0.3), (10**5, 1e-4), (10**7, 1e-6)])
def test_large_binomial_sums_lose_nothing(m, q):
    j = np.arange(10**6 if q > 0.1 else 2000)
    j = j + max(0, int(m * q) - j.size // 2)
    first = stats.binom.pmf(j, m, q) @ special.ndtr(0.7 * j / (m * q) - 1.5)
    value = float(lim.half_line_delta(0.2, 0.7, 1.5, m, q))
    assert value == pytest.approx(first - math.exp(0.2) * special.ndtr(-1.5), abs=1e-12)


@pytest.mark.parametrize(("eps", "delta"), PROMISES)
def test_the_signal_of_the_plain_mechanism(eps, delta):
    mu, b, c = plain(eps, delta)
    assert 1 / mu == pytest.approx(analytic_gaussian_sigma(1.0, eps, delta), rel=1e-6)
    assert stats.norm.cdf(-b) - math.exp(eps) * stats.norm.cdf(-c) == pytest.approx(delta)
    # no half line is better than the one beyond c
    cuts = np.linspace(-5, 9, 2001)
    assert lim.half_line_delta(eps, mu, cuts, 1, 1.0).max() <= delta * (1 + 1e-9)


@pytest.mark.parametrize(("eps", "delta"), PROMISES)
def test_the_minorants_lie_below(eps, delta):
    mu, b, c = plain(eps, delta)
    phi, kappa = stats.norm.pdf(b), lim.minorant_curvature(eps, delta)
    g = phi / (kappa * mu)
    assert lim.total_threshold(eps, delta) == pytest.approx(4 * (g + 1) / (mu * g) ** 2)
    y = np.concatenate([np.linspace(0, 20, 20_001), np.geomspace(20, 1e4 / phi, 20_001)])
    curve, line = special.ndtr(y - c), special.ndtr(-b) + phi * (y - mu)
    assert (curve - (line - kappa * (y - mu) ** 2)).min() >= -1e-15
    q0 = lim.safe_fraction(eps, delta)
    if b > 0:
        inside = y <= mu / q0
        assert (curve - line)[inside].min() >= -1e-15
        assert (curve - line)[y > mu / q0 * (1 + 1e-9)].max() < 0
    else:
        assert q0 == 1


@functools.cache
def random_promises(size=70):
    """eps, delta, mu, c as arrays, and each promise as a pair of floats."""
    rng = np.random.default_rng(69)
    pairs = [
        (float(e), float(d))
        for e, d in zip(
            10 ** rng.uniform(-3, 0.6, size), 10 ** rng.uniform(-8, -0.2, size), strict=True
        )
    ]
    mu, _, c = np.array([plain(*pair) for pair in pairs]).T
    return (*np.array(pairs).T, mu, c, pairs)


def test_from_the_safe_fraction_on_no_average_has_less_noise():
    """With the plain mechanism's noise the half line already costs delta."""
    rng = np.random.default_rng(70)
    eps, delta, mu, c, pairs = random_promises()
    safe = np.array([lim.safe_fraction(*pair) for pair in pairs])
    tested = 0
    for q in np.append(10 ** rng.uniform(-7, 0, 350), safe[safe < 1]):
        m, on = int(10 ** rng.uniform(0, 3)), safe <= q
        assert (lim.half_line_delta(eps, mu, c, m, float(q)) >= delta * (1 - 1e-9))[on].all()
        tested += on.sum()
    assert tested > 10_000


def test_above_the_threshold_total_utility_is_never_better():
    """With the noise that would make the total equal, privacy is refuted."""
    rng = np.random.default_rng(71)
    eps, delta, mu, c, pairs = random_promises()
    threshold = np.array([lim.total_threshold(*pair) for pair in pairs])
    tested = 0
    for q in 10 ** rng.uniform(-6, 0, 350):
        m = int(10 ** rng.uniform(0, 3.5))
        left = 1 - threshold * mu**2 * (1 / q - 1) / m  # of the utility, for the noise
        on = left > 0
        signal = mu / np.sqrt(np.where(on, left, 1.0))
        found = lim.half_line_delta(eps, signal, c, m, float(q))
        assert (found >= delta * (1 - 1e-9))[on].all()
        tested += on.sum()
    assert tested > 10_000


def test_an_epsilon_that_promises_nothing_is_refused():
    assert lim.least_noise_signal(LARGEST_EPSILON, 1e-6) > 1_000
    functions = (
        lim.least_noise_signal,
        lim.safe_fraction,
        lim.total_threshold,
        functools.partial(averaged_gaussian_mu, 0.5, 4),
        functools.partial(u.utility_ratio, 10, 4, 10, calibration="average", variance=0.2),
    )
    for function in functions:
        with pytest.raises(ValueError, match="epsilon must be at most 1e\\+06, got 1e\\+300"):
            function(1e300, 1e-6)


@pytest.mark.parametrize(("eps", "delta"), PROMISES)
def test_the_exact_average_agrees_with_both_theorems(eps, delta):
    mu, q0 = (
        lim.least_noise_signal(eps, delta),
        lim.safe_fraction(eps, delta),
    )
    least = max(
        lim.total_threshold(eps, delta),
        lim.name_and_shame_threshold(eps, delta),
    )
    assert least == lim.total_threshold(eps, delta)
    for m in (1, 3, 200):
        for q in np.geomspace(1e-4, 0.99, 6):
            base = averaged_gaussian_mu(float(q), m, eps, delta)
            noise = (mu / (q * math.sqrt(m) * base)) ** 2 if math.isfinite(base) else 0.0
            total = noise + least * mu**2 * (1 / q - 1) / m
            assert total >= 1 - 1e-9
            if q >= q0:
                assert noise >= 1 - 1e-9
            n = 10**8
            sizes = (n, m, round(q * n))
            for bound in (
                lim.noise_lower_bound,
                lim.noise_lower_bound_sharper,
            ):
                assert float(bound(*sizes, eps, delta)) <= noise * (1 + 1e-6) + 1e-12


def test_below_the_second_threshold_publishing_records_is_better():
    """n = 1000, delta = 0.1: 100 bare records are (0, 0.1)-private."""
    n, eps, delta = 1000, 0.1, 0.1
    v = lim.name_and_shame_threshold(eps, delta) / n
    for factor, wins in ((0.99, True), (1.01, False)):
        found = u.utility_ratio(n, 1, 100, eps, delta, calibration="average", variance=factor * v)
        assert float(found.noise) == 0
        assert (float(found.total) < 1) == wins
    assert math.isinf(averaged_gaussian_mu(0.1, 1, eps, delta))


def test_the_noise_alone_can_be_less_where_delta_dominates():
    """epsilon < mu^2/2: every k < n allows a little less noise."""
    found = u.utility_ratio(10_000, [1, 64], 5_000, 0.01, 0.1, calibration="average", variance=0.25)
    assert lim.safe_fraction(0.01, 0.1) == 1
    assert found.noise[0] == pytest.approx(0.9927, abs=1e-4)
    assert 0.999 < found.noise[1] < 1
    assert (found.total > 1).all()


@pytest.mark.parametrize("eta", [0.05, 0.4])
def test_the_lower_bound_by_chernoff_from_its_formula(eta):
    n, m, k, eps, delta = 10_000, 1_000, 400, 0.5, 1e-3
    tail = math.exp(-(eta**2) * m * k / (2 * n))
    weaker = analytic_gaussian_sigma(1.0, eps, delta + tail)
    expected = ((1 - eta) * weaker / analytic_gaussian_sigma(1.0, eps, delta)) ** 2
    found = float(lim.noise_lower_bound(n, m, k, eps, delta, tail=tail))
    assert found == pytest.approx(expected, rel=1e-6)


def test_the_lower_bounds_tend_to_one():
    m = 10 ** np.arange(3, 12)
    for bound in (
        lim.noise_lower_bound,
        lim.noise_lower_bound_sharper,
    ):
        for eps, delta in PROMISES:
            values = bound(10**6, m, 10**3, eps, delta)
            assert (np.diff(values) >= 0).all()
            assert (values <= 1).all()
            assert (
                bound(
                    10**6,
                    10**11,
                    10**3,
                    eps,
                    delta,
                    **({} if bound is not lim.noise_lower_bound else {"tail": delta / 1e4}),
                )
                > 0.98
            )
    assert float(lim.noise_lower_bound(100, 1, 1, 1.0, 1e-5)) == 0


@given(epsilons, deltas)
@settings(max_examples=20)
def test_thresholds_are_ordered(eps, delta):
    assert 0 < lim.name_and_shame_threshold(eps, delta) < lim.total_threshold(eps, delta)
    assert delta < lim.safe_fraction(eps, delta) <= 1


# --------------------------------------------------------------------------- utility ratio


def test_the_three_calibrations_are_in_order():
    sizes = (1000, np.array([1, 8, 64])[:, None], np.array([100, 500, 1000]))
    found = {
        name: u.utility_ratio(*sizes, 0.5, 1e-5, calibration=name, variance=0.25)
        for name in ("printed", "tight", "average")
    }
    for ratio in found.values():
        assert ratio.total == pytest.approx(ratio.noise + ratio.sampling)
        assert (ratio.sampling[:, 2] == 0).all()
    assert (found["tight"].noise >= found["average"].noise * (1 - 1e-3)).all()
    assert (found["tight"].noise[:, 2] == 1).all()
    assert (found["average"].noise >= 1).all()
    printed = found["printed"]
    assert (printed.noise[np.isfinite(printed.noise)] > 50).all()
    assert np.isnan(u.utility_ratio(1000, 1, 1, 0.5, 1e-5, calibration="printed", variance=0).total)
    sigma = classical_gaussian_sigma(1 / 1000, 0.5, 1e-5)
    assert printed.sampling[1, 1] == pytest.approx(0.25 * (1 / 500 - 1 / 1000) / 8 / sigma**2)


# ------------------------------------------------------------------------------ bad input


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: u.theorem_4_9_printed(0, 0.5, 0.1), "at least 1"),
        (lambda: u.theorem_4_9_printed(10, 1.9, 0.1), r"2 ln 2\.5"),
        (lambda: u.theorem_4_9_corrected(10, 0.5, 1.0), "strictly between"),
        (lambda: u.theorem_4_9_corrected(10, 0.5, 0.1, scale=0.0), "positive"),
        (lambda: u.section_4_5_avss_squared(10, 11, 1.0), "k must not exceed n"),
        (lambda: u.section_4_5_avss_squared(10, 5, -1.0), "negative"),
        (lambda: u.theorem_4_16_ratio(10, 1, 5, 0.5, 0.1, logarithms="thrice"), "logarithms"),
        (lambda: lim.half_line_delta(-0.1, 1.0, 1.0, 5, 0.5), "negative"),
        (lambda: lim.half_line_delta(0.1, 1.0, 1.0, 5, 1.5), "fraction"),
        (
            lambda: lim.noise_lower_bound(10, 1, 5, 0.5, 0.9, tail=0.2),
            "delta \\+ tail",
        ),
        (lambda: lim.safe_fraction(0.0, 0.1), "positive"),
        (lambda: u.equation_4_21_printed(1.5, 2), "m must be integers"),
        (lambda: u.theorem_4_17_printed(10, 2.0, 3, 0.5), "m must be integers"),
        (lambda: averaged_gaussian_mu(0.1, 5, 1.0, 5e-324), "delta must be at least"),
        (lambda: averaged_gaussian_epsilon(1.0, 0.1, 5, 5e-324), "delta must be at least"),
        (lambda: lim.total_threshold(0.1, 0.0), "strictly between"),
        (
            lambda: u.utility_ratio(10, 1, 5, 0.5, 0.1, calibration="loose", variance=0.1),
            "calibration",
        ),
    ],
)
def test_bad_values_are_refused(call, message):
    with pytest.raises(ValueError, match=message):
        call()


@pytest.mark.parametrize(
    "call",
    [
        lambda: lim.safe_fraction("1", 0.1),
    ],
)
def test_wrong_types_are_refused(call):
    with pytest.raises(TypeError):
        call()
