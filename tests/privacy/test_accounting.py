"""The accounting against second methods: quadrature, another discretisation, a contour integral.

None of the second methods uses the package's grid. They use the explicit pair of the module
(densities, loss) or, for one release, enumeration of all sub-samples.
"""

import itertools
import math

import numpy as np
import pytest
from dp_accounting import dp_event, privacy_accountant
from dp_accounting.pld import pld_pmf
from dp_accounting.rdp import rdp_privacy_accountant
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import fft, integrate, optimize, special, stats

from dprl.privacy import (
    accounting,
    analytic_gaussian_sigma,
    averaged_gaussian_delta,
    averaged_gaussian_epsilon,
    averaged_gaussian_mu,
    averages,
    gaussian_delta,
    gaussian_pair_epsilon,
    subsampled_gaussian_delta,
    subsampled_gaussian_epsilon,
    subsampled_gaussian_mu,
    subsampled_gaussian_profile,
)

mus = st.floats(0.05, 4.0)
fractions = st.floats(0.01, 1.0)
some_epsilons = st.floats(-4.0, 4.0)


# -- second methods ---------------------------------------------------------------------------


def densities(z, mu, q):
    """The two densities of the dominating pair; its atom apart."""
    one, other = stats.norm.pdf(z, mu), stats.norm.pdf(z)
    both = np.minimum(one, other)
    return (1 - q) * both + q * one, (1 - q) * both + q * other


def pair_delta(mu, q, eps):
    """Hockey-stick divergence of the dominating pair by quadrature."""

    def excess(z):
        p, r = densities(z, mu, q)
        return max(p - math.exp(eps) * r, 0.0)

    ends = [-10.0, mu / 2, mu + 10.0]
    if eps != 0:  # the kink
        level = abs(eps)
        t = level + math.log(math.exp(-level) - math.expm1(-level) / q)
        kink = mu / 2 + math.copysign(t / mu, eps)
        if ends[0] < kink < ends[-1]:
            ends = sorted([*ends, kink])
    parts = [
        integrate.quad(excess, a, b, epsabs=1e-13, limit=200)[0]
        for a, b in itertools.pairwise(ends)
    ]
    atom = (1 - q) * (2 * stats.norm.cdf(mu / 2) - 1)
    return sum(parts) + max(-math.expm1(eps), 0.0) * atom


def loss(z, mu, q):
    """ln(dP/dQ) of the dominating pair."""
    right = np.log1p(q * np.expm1(mu * (z - mu / 2)))
    left = -np.log1p(q * np.expm1(mu * (mu / 2 - z)))
    return np.where(z > mu / 2, right, left)


def two_releases_delta(mu, q, eps):
    """Two releases: the profile of the second, integrated over the loss of the first."""

    level = abs(eps)
    kink = mu / 2 + (level + math.log(math.exp(-level) - math.expm1(-level) / q)) / mu
    nodes, weights = np.polynomial.legendre.leggauss(10)
    inner = 0.0
    for a, b in itertools.pairwise(sorted([-9.0, mu / 2, kink, mu + 9.0])):
        edges = np.linspace(a, b, 13)
        half = (edges[1] - edges[0]) / 2
        z = (edges[:-1, None] + half * (1 + nodes)).ravel()
        later = [subsampled_gaussian_profile(eps - x, mu, q) for x in loss(z, mu, q).tolist()]
        inner += float(np.tile(half * weights, 12) * densities(z, mu, q)[0] @ later)
    atom = (1 - q) * (2 * stats.norm.cdf(mu / 2) - 1)
    return inner + atom * subsampled_gaussian_profile(eps, mu, q)


def rounded_delta(mu, q, m, points):
    """delta as a function of eps: losses rounded to the *nearest* point, own FFT, own truncation.

    No bound, and no connect-the-dots: the masses come from distribution functions.
    """
    z = mu + 6.5  # what lies beyond is put here
    highest = float(loss(z, mu, q))
    x = np.linspace(-highest, highest, 2 * points + 1)
    step = x[1] - x[0]
    edge = (np.arange(points) + 0.5) * step
    t = np.where(
        edge < 1,
        np.log1p(np.expm1(np.minimum(edge, 1)) / q),
        edge + np.log(np.exp(-edge) - np.expm1(-edge) / q),
    )
    z = mu / 2 + t / mu
    above = (1 - q) * special.ndtr(-z) + q * special.ndtr(mu - z)  # P(l > edge)
    below = special.ndtr(-z)  # P(l < -edge)
    right, left = -np.diff(np.append(above, 0.0)), -np.diff(np.append(below, 0.0))
    masses = np.concatenate([left[::-1], [1 - above[0] - below[0]], right])
    spread = math.sqrt(m * (masses @ x**2 - (masses @ x) ** 2))
    mean = m * float(masses @ x)
    length = fft.next_fast_len(int(max(24 * spread / step, masses.size)) + 1)
    total = np.fft.irfft(np.fft.rfft(masses, length) ** m, length)
    # index i stands for the loss (i - m points) step, modulo length
    first = round((mean - length / 2 * step) / step)
    losses = (first + np.arange(length)) * step
    total = np.roll(total, -((first + m * points) % length))

    def delta(eps):
        tail = losses > eps
        return float(total[tail] @ -np.expm1(eps - losses[tail]))

    return delta


def contour_delta(mu, q, m, reach=12.0):
    """delta as a function of eps, by the inverse Laplace transform at the saddle point.

    The transform of (1 - e^(eps - x))_+ is e^(-s eps)/(s (s + 1)), so
    delta = 1/(2 pi i) int M(s)^m e^(-s eps)/(s (s + 1)) ds, M(s) = E e^(s l): no grid of losses.
    """
    nodes, weights = np.polynomial.legendre.leggauss(12)
    edges = np.linspace(mu / 2, mu / 2 + 20.0, 81)
    half = np.diff(edges)[:, None] / 2
    z = (edges[:-1, None] + half * (1 + nodes)).ravel()
    weight = (half * weights).ravel()
    value = loss(z, mu, q)
    log_density = -(z**2) / 2 - math.log(2 * math.pi) / 2
    atom = (1 - q) * (2 * stats.norm.cdf(mu / 2) - 1)

    def log_moment(s):
        s = np.atleast_1d(s)[:, None]
        up = np.exp((s + 1) * value + log_density) @ weight
        return np.log(atom + up + np.exp(-s * value + log_density) @ weight)

    def delta(eps):
        def exponent(s):
            return m * log_moment(s) - s * eps - np.log(s) - np.log(s + 1)

        best = optimize.minimize_scalar(
            lambda log_s: float(exponent(np.array([math.exp(log_s)]))[0]),
            bounds=(-8.0, math.log(30.0 / mu)),
            method="bounded",
            options={"xatol": 1e-6},
        )
        c = math.exp(best.x)
        h = c * 1e-3
        around = exponent(np.array([c - h, c, c + h]))
        width = 1 / math.sqrt((around[0] - 2 * around[1] + around[2]) / h**2)
        u = np.arange(0, reach, 0.1) * width
        terms = np.exp(exponent(c + 1j * u)).real
        assert abs(terms[-1]) < 1e-7 * terms[0], "the contour is cut too early"
        return float((terms.sum() - terms[0] / 2) * (u[1] - u[0]) / math.pi)

    return delta


def epsilon_of(delta, target, high=50.0):
    """Root of delta(eps) = target."""
    if delta(0.0) <= target:
        return 0.0
    return optimize.brentq(lambda e: math.log(max(delta(e), 1e-300) / target), 0.0, high)


def second_epsilon(method, mu, q, m, target):
    """Epsilon by the method that is named."""
    if method == "analytic":
        assert q == 1
        return gaussian_pair_epsilon(mu * math.sqrt(m), 1.0, 1.0, target)
    if method == "quadrature":
        assert m in (1, 2)
        one = m == 1
        return epsilon_of(
            lambda e: pair_delta(mu, q, e) if one else two_releases_delta(mu, q, e), target
        )
    if method == "contour":
        return epsilon_of(contour_delta(mu, q, m), target, high=10.0)
    return epsilon_of(rounded_delta(mu, q, m, points=int(method)), target)


SETTINGS = [  # method, mu, q, m, delta
    ("analytic", 0.27, 1.0, 1, 1e-5),
    ("analytic", 0.05, 1.0, 400, 1e-6),
    ("analytic", 0.002, 1.0, 250_000, 1e-5),
    ("quadrature", 1.0, 0.1, 1, 1e-5),
    ("quadrature", 0.8, 0.3, 2, 1e-4),
    ("quadrature", 3.0, 0.05, 2, 1e-3),
    ("contour", 0.5, 0.1, 100, 1e-5),
    ("contour", 0.243, 0.0464, 464, 1e-5),
    ("contour", 0.0265, 0.1, 10_000, 1e-5),
    ("contour", 0.1, 0.3, 300, 1e-9),
    ("contour", 0.3, 1e-3, 1_000_000, 1e-6),
    ("3001", 0.31, 0.0464, 464, 0.1),
    ("30011", 2.5, 0.01, 50, 1e-3),
    ("100003", 1.7, 1e-4, 10_000, 1e-5),  # few draws, heavy tails
]


# -- one release ------------------------------------------------------------------------------


@given(mus, fractions, some_epsilons)
@settings(max_examples=40)
def test_one_release_is_the_profile_of_the_explicit_pair(mu, q, eps):
    expected = pair_delta(mu, q, eps)
    assert subsampled_gaussian_profile(eps, mu, q) == pytest.approx(expected, rel=1e-7, abs=1e-11)


@given(mus, fractions)
def test_one_release_is_the_profile_of_some_pair(mu, q):
    """Convex, decreasing, between (1 - a)_+ and 1; the kink at a = 1 is the atom of the loss."""
    a = np.concatenate([np.linspace(1e-6, 1, 60), np.linspace(1, 30, 120)[1:]])
    h = np.array([subsampled_gaussian_profile(math.log(x), mu, q) for x in a])
    slopes = np.diff(h) / np.diff(a)
    assert (np.diff(slopes) >= -1e-9).all()
    assert slopes.max() <= 1e-12
    assert slopes.min() >= -1 - 1e-9
    assert (h >= np.maximum(1 - a, 0) - 1e-12).all()
    assert h.max() <= 1
    near = 1e-6 * mu * q
    right = (subsampled_gaussian_profile(near, mu, q) - h[a == 1][0]) / math.expm1(near)
    left = (subsampled_gaussian_profile(-near, mu, q) - h[a == 1][0]) / math.expm1(-near)
    atom = (1 - q) * (2 * stats.norm.cdf(mu / 2) - 1)
    assert right - left == pytest.approx(atom, abs=1e-5)


@given(mus, fractions, some_epsilons)
def test_one_release_is_symmetric(mu, q, eps):
    h = subsampled_gaussian_profile(eps, mu, q)
    exchanged = -math.expm1(eps) + math.exp(eps) * subsampled_gaussian_profile(-eps, mu, q)
    assert h == pytest.approx(exchanged, rel=1e-9, abs=1e-14)


@given(st.floats(0.01, 8.0), st.floats(0, 8.0))
def test_all_records_drawn_is_the_gaussian_mechanism(mu, eps):
    assert subsampled_gaussian_profile(eps, mu, 1.0) == pytest.approx(
        gaussian_delta(mu, 1.0, eps), rel=1e-10, abs=1e-300
    )


@pytest.mark.parametrize(("n", "k"), [(2, 1), (4, 2), (5, 3), (6, 1)])
def test_one_release_bounds_every_query_on_few_records(n, k):
    """All sub-samples enumerated: any query of sensitivity 1, both orders, both signs of eps."""
    rng = np.random.default_rng(n * k)
    mu, q = 1.3, k / n
    subsets = list(itertools.combinations(range(n), k))
    z = np.linspace(-30, 30, 6001)
    for _ in range(40):
        # a query with values in an interval of length 1, of any form: a table over sub-samples
        table = {}

        def query(values, table=table):
            return mu * table.setdefault(
                tuple(sorted(values)), rng.choice([0.0, 1.0, rng.random()])
            )

        x = list(range(n))  # distinct records; record 0 is replaced by n
        centres = np.array([[query([x[i] for i in s]) for s in subsets]])
        x[0] = n
        centres = np.concatenate([centres, [[query([x[i] for i in s]) for s in subsets]]])
        p, r = stats.norm.pdf(z[None, :, None], centres[:, None, :]).mean(axis=2)
        for eps in (-1.0, -0.1, 0.0, 0.05, 0.5, 1.5):
            bound = subsampled_gaussian_profile(eps, mu, q)
            for first, second in ((p, r), (r, p)):
                found = np.maximum(first - math.exp(eps) * second, 0).sum() * (z[1] - z[0])
                assert found <= bound + 1e-5


@pytest.mark.parametrize("eps", [0.0, 0.05, 0.7])
def test_one_release_is_attained_by_a_mean(eps):
    """All records alike but one: mixture against one Gaussian, the larger of both orders."""
    for mu, q in ((1.0, 0.1), (0.2, 0.5), (3.0, 0.02)):
        assert averaged_gaussian_delta(mu, q, 1, eps) == pytest.approx(
            subsampled_gaussian_profile(eps, mu, q), rel=1e-8
        )


# -- m releases -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("mu", "q", "step", "top"),
    [(1.0, 0.1, 0.05, 20), (0.3, 0.5, 0.01, 40), (3.0, 0.02, 0.2, 15), (0.7, 1.0, 0.1, 9)],
)
def test_the_grid_has_the_profile_at_its_points_and_more_between(mu, q, step, top):
    """That is what "connect the dots" means; with coarse grids and heavy tails cut off."""
    masses, infinite = accounting._grid(mu, q, step, top)
    losses = step * np.arange(-top, top + 1)
    assert infinite > 1e-4
    assert masses.min() >= 0
    assert masses.sum() + infinite == pytest.approx(1, abs=1e-13)

    def excess(eps):
        kept = -np.expm1(np.minimum(eps - losses, 0))
        return kept @ masses + infinite - subsampled_gaussian_profile(eps, mu, q)

    assert max(abs(excess(x)) for x in losses) < 1e-13
    assert min(excess(x) for x in losses[:-1] + step / 2) > 1e-8
    assert excess(losses[-1] + 1) > 1e-5
    assert excess(losses[0] - 1) > 0


@pytest.mark.parametrize(("n", "k"), [(2, 1), (3, 2), (4, 1), (4, 2), (4, 3)])
def test_two_adaptive_queries_on_few_records(n, k):
    """Every query that gives 0 or 1 to each sub-sample, and the best second query after it.

    Neighbours, sub-samples and queries enter through three numbers: how many of the sub-samples
    are given a 1, without the replaced record, with it, and with its replacement. For a single
    level of the likelihood ratio the best second query attains the profile of one release.
    """
    mu, q = 1.2, k / n
    z = np.linspace(-9.0, 10.0, 2001)
    zero, one = stats.norm.pdf(z), stats.norm.pdf(z, mu)

    def after(eps):
        t = np.log1p(np.expm1(np.abs(eps)) / q) / mu
        best = q * (stats.norm.cdf(mu / 2 - t) - np.exp(mu * t) * stats.norm.cdf(-mu / 2 - t))
        low = np.exp(np.minimum(eps, 0))
        return np.where(eps < 0, 1 - low + low * best, best)

    without, with_it = math.comb(n - 1, k), math.comb(n - 1, k - 1)
    laws = itertools.product(range(without + 1), range(with_it + 1), range(with_it + 1))
    shares = {((a + b) / (without + with_it), (a + c) / (without + with_it)) for a, b, c in laws}
    for eps in (0.0, 0.3, 1.0, 2.0):
        found = []
        for share, other in shares:
            p, r = zero + share * (one - zero), zero + other * (one - zero)
            found.append(p @ after(eps - np.log(p / r)) * (z[1] - z[0]))
        bound = subsampled_gaussian_delta(mu, q, 2, eps)
        assert 0.93 * bound < max(found) <= bound * (1 + 1e-6)


@pytest.mark.parametrize(("method", "mu", "q", "m", "delta"), SETTINGS)
def test_epsilon_agrees_with_a_second_method(method, mu, q, m, delta):
    found = subsampled_gaussian_epsilon(mu, q, m, delta)
    expected = second_epsilon(method, mu, q, m, delta)
    assert expected > 0
    assert found == pytest.approx(expected, rel=0.01)
    exact = not method.isdigit()  # rounding to the nearest point errs by more
    assert found >= expected * (1 - (1e-6 if exact else 3e-3)), "an upper bound"
    assert found >= averaged_gaussian_epsilon(mu, q, m, delta) * (1 - 1e-9)


@pytest.mark.parametrize(
    ("mu", "q", "m", "eps"),
    [(0.5, 0.1, 100, 1.0), (0.0265, 0.1, 10_000, 1.0), (0.1, 0.3, 300, 3.0), (0.05, 0.9, 99, 0.2)],
)
def test_delta_agrees_with_the_contour_integral(mu, q, m, eps):
    found, exact = subsampled_gaussian_delta(mu, q, m, eps), contour_delta(mu, q, m)(eps)
    assert found == pytest.approx(exact, rel=2e-3)
    assert found >= exact * (1 - 1e-6)


def test_the_second_methods_agree_with_each_other():
    for mu, q, m, eps in ((0.5, 0.1, 100, 1.0), (0.243, 0.0464, 464, 0.8)):
        assert rounded_delta(mu, q, m, 4001)(eps) == pytest.approx(
            contour_delta(mu, q, m)(eps), rel=1e-3
        )
    assert contour_delta(0.4, 0.9, 2, reach=100.0)(0.3) == pytest.approx(
        two_releases_delta(0.4, 0.9, 0.3), rel=1e-4
    )


@pytest.mark.parametrize(("mu", "q", "m", "delta"), [(0.5, 0.1, 100, 1e-5), (1.0, 0.02, 40, 1e-4)])
def test_the_librarys_discretisation_of_the_profile_gives_the_same(mu, q, m, delta):
    """Connect-the-dots from differences of the profile instead of from the densities."""
    step = 1e-3
    grid = np.arange(-6000, 6001)
    profile = [subsampled_gaussian_profile(step * i, mu, q) for i in grid]
    pmf = pld_pmf.create_pmf_pessimistic_connect_dots(step, grid, profile).self_compose(m)
    assert subsampled_gaussian_epsilon(mu, q, m, delta) == pytest.approx(
        pmf.get_epsilon_for_delta(delta), rel=3e-3
    )


def test_the_central_limit_of_many_releases():
    """q sqrt(m) fixed, m large: one Gaussian pair at the distance of Dong, Roth and Su."""
    mu, m = 0.8, 1_000_000
    q = 1.0 / math.sqrt(m)
    total = math.sqrt(
        2 * (math.exp(mu**2) * stats.norm.cdf(1.5 * mu) + 3 * stats.norm.cdf(-mu / 2) - 2)
    )
    limit = gaussian_pair_epsilon(total, 1.0, 1.0, 1e-3)
    assert subsampled_gaussian_epsilon(mu, q, m, 1e-3) == pytest.approx(limit, rel=0.01)


def test_samples_of_the_loss():
    """delta as an average over simulated sums of losses under the pair."""
    rng = np.random.default_rng(4)
    mu, q, m, eps, runs = 0.6, 0.2, 12, 0.5, 200_000
    total = np.zeros(runs)
    for _ in range(m):
        u = rng.random(runs)
        shifted = rng.standard_normal(runs) + mu
        plain = rng.standard_normal(runs)
        # the overlap: a draw from N(0, 1) is kept with probability min(1, ratio)
        kept = np.log(rng.random(runs)) < mu * plain - mu**2 / 2
        total += np.where(u < q, loss(shifted, mu, q), np.where(kept, loss(plain, mu, q), 0.0))
    values = np.maximum(-np.expm1(eps - total), 0.0)
    error = values.std() / math.sqrt(runs)
    assert abs(values.mean() - subsampled_gaussian_delta(mu, q, m, eps)) < 4.5 * error


@given(st.floats(0.05, 1.5), st.floats(0.05, 0.9), st.integers(2, 30), st.floats(0.0, 2.0))
@settings(max_examples=12, deadline=None)
def test_bounds_and_order(mu, q, m, eps):
    """Above the pair of averages, below any one record always drawn, and growing."""
    found = subsampled_gaussian_delta(mu, q, m, eps)
    assert found >= averaged_gaussian_delta(mu, q, m, eps) * (1 - 1e-9) - 1e-15
    assert found <= gaussian_delta(mu * math.sqrt(m), 1.0, eps) * (1 + 3e-3) + 1e-12
    assert found <= (1 - (1 - q) ** m) * (1 + 3e-3)
    slack = 3e-3 * found + 1e-12
    assert subsampled_gaussian_delta(1.1 * mu, q, m, eps) >= found - slack
    assert subsampled_gaussian_delta(mu, 1.1 * q, m, eps) >= found - slack
    assert subsampled_gaussian_delta(mu, q, m + 1, eps) >= found - slack
    assert subsampled_gaussian_delta(mu, q, m, eps + 0.1) <= found + slack


def test_epsilon_and_delta_are_inverse():
    for mu, q, m, delta in ((0.5, 0.1, 100, 1e-5), (0.05, 0.5, 2_000, 1e-6), (1.0, 0.1, 1, 1e-3)):
        eps = subsampled_gaussian_epsilon(mu, q, m, delta)
        assert subsampled_gaussian_delta(mu, q, m, eps) == pytest.approx(delta, rel=0.01)


def test_epsilon_is_zero_where_total_variation_is_below_delta():
    assert subsampled_gaussian_epsilon(0.1, 0.1, 4, delta=0.1) == 0.0
    assert subsampled_gaussian_epsilon(1.0, 0.01, 1, delta=0.1) == 0.0
    assert averaged_gaussian_epsilon(0.1, 0.1, 4, delta=0.1) == 0.0


# -- the least noise --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("q", "m", "eps", "delta"),
    [
        (1.0, 1, 1.0, 1e-5),
        (1.0, 50, 1.0, 1e-5),
        (0.1, 1, 1.0, 1e-5),
        (0.1, 100, 1.0, 1e-5),
        (0.0464, 464, 0.1, 0.1),
        (0.5, 4, 0.1, 1e-6),
        (0.01, 10_000, 0.1, 1e-5),
    ],
)
def test_the_largest_mu(q, m, eps, delta):
    mu = subsampled_gaussian_mu(q, m, eps, delta)
    assert subsampled_gaussian_delta(mu, q, m, eps) <= delta
    assert subsampled_gaussian_delta(1.003 * mu, q, m, eps) > delta
    plain = 1 / (analytic_gaussian_sigma(1.0, eps, delta) * math.sqrt(m))
    assert plain * (1 - 2e-3) <= mu <= averaged_gaussian_mu(q, m, eps, delta) * (1 + 1e-9)
    if q == 1:
        assert mu == pytest.approx(plain, rel=2e-3)


def test_no_noise_at_all_where_delta_allows_to_publish_the_records():
    for function in (subsampled_gaussian_mu, averaged_gaussian_mu):
        assert function(0.1, 1, 0.01, 0.1) == math.inf
        assert function(0.01, 10, 0.01, 0.1) == math.inf
        assert math.isfinite(function(0.1, 2, 0.01, 0.1))
    # and the profile tends to 1 - (1-q)^m as the noise vanishes
    assert subsampled_gaussian_profile(5.0, 1e3, 0.1) == pytest.approx(0.1)
    assert averaged_gaussian_delta(1e3, 0.1, 3, 5.0) == pytest.approx(1 - 0.9**3)


# -- the pair of averages ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("mu", "q", "m", "eps"),
    [(0.5, 0.1, 20, 0.5), (2.0, 0.3, 3, 0.0), (0.2, 0.9, 50, 1.0), (3.0, 0.05, 7, 2.0)],
)
def test_the_pair_of_averages_by_quadrature(mu, q, m, eps):
    j = np.arange(m + 1)
    weights, shift = stats.binom.pmf(j, m, q), j * mu / math.sqrt(m)
    z = np.linspace(-12, shift[-1] + 12, 400_001)
    mixture = sum(w * stats.norm.pdf(z, s) for w, s in zip(weights, shift, strict=True))
    one = stats.norm.pdf(z)
    both = [
        np.maximum(a - math.exp(eps) * b, 0).sum() * (z[1] - z[0])
        for a, b in ((mixture, one), (one, mixture))
    ]
    assert averaged_gaussian_delta(mu, q, m, eps) == pytest.approx(max(both), rel=1e-6)


@given(st.floats(0.01, 3.0), fractions, st.integers(1, 60), st.floats(0, 5), st.floats(-6.0, 12.0))
def test_no_half_line_tells_the_averages_better_apart(mu, q, m, eps, z):
    """Both orders: half lines to the right for one, to the left for the other."""
    j = np.arange(m + 1)
    weights, shift = stats.binom.pmf(j, m, q), j * mu / math.sqrt(m)
    one, other = weights @ stats.norm.sf(z, shift), stats.norm.sf(z)
    found = averaged_gaussian_delta(mu, q, m, eps)
    assert one - math.exp(eps) * other <= found * (1 + 1e-9) + 1e-14
    assert (1 - other) - math.exp(eps) * (1 - one) <= found * (1 + 1e-9) + 1e-14


@given(st.floats(0.001, 3.0), st.floats(0.1, 4.0), st.integers(1, 5_000))
def test_the_pair_of_averages_with_all_records_drawn(mu, eps, m):
    mu = mu / math.sqrt(m)
    assert averaged_gaussian_delta(mu, 1.0, m, eps) == pytest.approx(
        gaussian_delta(mu * math.sqrt(m), 1.0, eps), rel=1e-8, abs=1e-300
    )


@pytest.mark.parametrize(("q", "m"), [(0.1, 100), (0.5, 100_000), (1e-6, 1_000_000), (0.3, 1)])
def test_the_inverses_of_the_pair_of_averages(q, m):
    mu = averaged_gaussian_mu(q, m, 0.5, 1e-7)
    assert averaged_gaussian_delta(mu, q, m, 0.5) == pytest.approx(1e-7, rel=1e-6)
    assert averaged_gaussian_epsilon(mu, q, m, 1e-7) == pytest.approx(0.5, rel=1e-6)


def test_the_binomial_weights_are_complete():
    for q, m in ((0.5, 400_000), (1e-6, 1_000_000), (0.999, 5_000), (0.2, 3)):
        j, log_weight = averages._binomial(q, m)
        assert np.exp(log_weight).sum() == pytest.approx(1, rel=1e-8)
        assert log_weight == pytest.approx(stats.binom.logpmf(j, m, q), rel=1e-9, abs=1e-7)
        missing = set(range(m + 1)) - set(j.astype(int)) if m < 10_000 else set()
        assert all(stats.binom.logpmf(i, m, q) < -700 for i in missing)


# -- another accountant, and a trap -----------------------------------------------------------


def renyi_epsilon(multiplier, n, k, m, delta):
    """The library's Renyi accountant for sampling without replacement, replace one."""
    accountant = rdp_privacy_accountant.RdpAccountant(
        neighboring_relation=privacy_accountant.NeighboringRelation.REPLACE_ONE
    )
    event = dp_event.SampledWithoutReplacementDpEvent(n, k, dp_event.GaussianDpEvent(multiplier))
    return accountant.compose(event, m).get_epsilon(delta)


@pytest.mark.parametrize(
    ("mu", "n", "k", "m"), [(0.5, 1_000, 100, 100), (0.243, 10_000, 464, 464), (1.0, 500, 5, 900)]
)
def test_the_renyi_accountant_is_looser(mu, n, k, m):
    """With the noise multiplier sigma/sensitivity it is a bound, and a worse one."""
    renyi = renyi_epsilon(1 / mu, n, k, m, 1e-5)
    assert subsampled_gaussian_epsilon(mu, k / n, m, 1e-5) < renyi


def test_the_noise_multiplier_trap():
    """The multiplier is documented as sigma over the norm C to which values are clipped.

    Replacing one value of norm C moves a sum by up to 2 C, so with that multiplier the
    accountant's answer for replace-one lies below the lower bound of the explicit pair.
    """
    clip, sigma = 1.0, 2.0
    mu = 2 * clip / sigma
    trap = renyi_epsilon(sigma / clip, 10_000, 9_000, 100, 1e-5)
    assert trap < averaged_gaussian_epsilon(mu, 0.9, 100, 1e-5)
    right = renyi_epsilon(1 / mu, 10_000, 9_000, 100, 1e-5)
    assert right > subsampled_gaussian_epsilon(mu, 0.9, 100, 1e-5)


# -- refusals ---------------------------------------------------------------------------------


def test_refuses_where_the_grid_would_not_fit(monkeypatch):
    monkeypatch.setattr(accounting, "MAX_POINTS", 2_000)
    accounting._composed_delta.cache_clear()
    accounting._composed_epsilon.cache_clear()
    with pytest.raises(RuntimeError, match="more than 2000 grid points"):
        subsampled_gaussian_epsilon(1.9, 1e-5, 100_000, 1e-5)
    with pytest.raises(RuntimeError, match="use more noise"):
        subsampled_gaussian_delta(1.9, 1e-5, 100_000, 0.1)


def test_refuses_a_delta_that_double_precision_does_not_resolve():
    with pytest.raises(ValueError, match="at least 1e-12"):
        subsampled_gaussian_epsilon(1.0, 0.1, 2, 1e-13)
    with pytest.raises(ValueError, match="for m = 1000000 releases"):
        subsampled_gaussian_epsilon(0.001, 1.0, 1_000_000, 1e-9)


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"mu": 0.0}, ValueError, "mu must be positive"),
        ({"mu": math.inf}, ValueError, "mu must be finite"),
        ({"fraction": 0.0}, ValueError, r"fraction must lie in \(0, 1\]"),
        ({"fraction": 1.5}, ValueError, r"fraction must lie in \(0, 1\]"),
        ({"fraction": "all"}, TypeError, "fraction must be a real number"),
        ({"m": 0}, ValueError, "m must be at least 1"),
        ({"m": 2.0}, TypeError, "m must be an integer"),
        ({"epsilon": -0.1}, ValueError, "epsilon must not be negative"),
    ],
)
def test_bad_input(change, error, message):
    good = {"mu": 1.0, "fraction": 0.5, "m": 3, "epsilon": 1.0}
    for function in (subsampled_gaussian_delta, averaged_gaussian_delta):
        with pytest.raises(error, match=message):
            function(**(good | change))
    if "epsilon" in change:
        return
    good = {"mu": 1.0, "fraction": 0.5, "m": 3, "delta": 1e-3}
    for function in (subsampled_gaussian_epsilon, averaged_gaussian_epsilon):
        with pytest.raises(error, match=message):
            function(**(good | change))


def test_bad_targets():
    for function in (subsampled_gaussian_mu, averaged_gaussian_mu):
        with pytest.raises(ValueError, match="epsilon must be positive"):
            function(0.5, 3, 0.0, 1e-5)
        with pytest.raises(ValueError, match="delta must lie strictly between"):
            function(0.5, 3, 1.0, 1.0)
        with pytest.raises(ValueError, match="fraction"):
            function(-0.5, 3, 1.0, 1e-5)
        with pytest.raises(TypeError, match="m must be an integer"):
            function(0.5, True, 1.0, 1e-5)
    with pytest.raises(ValueError, match="mu must be positive"):
        subsampled_gaussian_profile(0.1, -1.0, 0.5)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: subsampled_gaussian_delta(1e300, 0.1, 100, 1.0), r"mu must lie in \[1e-100, 30\]"),
        (lambda: subsampled_gaussian_epsilon(40.0, 0.1, 100, 1e-5), r"mu must lie in"),
        (lambda: subsampled_gaussian_epsilon(5e-324, 0.1, 100, 1e-5), r"mu must lie in"),
        (lambda: subsampled_gaussian_delta(0.5, 1e-300, 100, 1.0), r"fraction in \[1e-100, 1\]"),
        (lambda: subsampled_gaussian_delta(0.5, 0.1, 10**12, 1.0), "at most 1000000 releases"),
        (lambda: subsampled_gaussian_mu(0.1, 10**12, 1.0, 1e-5), "at most 100000000 releases"),
        (lambda: subsampled_gaussian_mu(0.1, 100, 1e300, 1e-5), "epsilon must be at most 1000"),
    ],
)
def test_what_no_grid_is_made_for_is_refused_at_once(call, words):
    with pytest.raises(ValueError, match=words):
        call()
