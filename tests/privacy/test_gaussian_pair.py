"""The exact profile of two Gaussians against closed forms, other integrals and samples."""

import itertools

import mpmath
import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from scipy import integrate, stats

from dprl.privacy import (
    gaussian_delta,
    gaussian_pair_delta,
    gaussian_pair_epsilon,
    gaussian_pair_loss,
    gaussian_pair_renyi,
    gaussian_pair_tail,
)

shifts = st.floats(0.0, 6.0)  # down to the smallest positive number
log_ratios = st.floats(-1.0, 1.0)  # 0, and 1e-16, among them
epsilons = st.floats(0.0, 5.0)
dimensions = st.integers(1, 60)

# Quadrature over the norm orthogonal to the shift, in 50-digit arithmetic.
REFERENCE = [
    ((1.0, 1.0, 0.9, 0.5, 1), 0.28031386320243755),
    ((1.0, 1.0, 1.1, 0.5, 3), 0.20872096328428249),
    ((0.1, 1.0, 1.0000001, 0.01, 2), 0.035252964782680254),
    ((2.0, 3.0, 2.9, 1.0, 40), 0.058509466275494724),
    ((2.0, 2.9, 3.0, 1.0, 40), 0.037166447267526816),
    ((0.5, 1.0, 1.000000001, 4.0, 5), 2.7060308178652694e-16),
    ((0.0, 1.0, 0.8, 0.3, 10), 0.30241183402965702),
    ((5.0, 1.0, 1.2, 20.0, 7), 3.678761811435232e-5),
    ((0.3, 1.0, 1.02, 0.1, 400), 0.21137461597115866),
    ((0.3, 1.0, 0.98, 0.1, 400), 0.21823363313273272),
    ((1.0, 10.0, 9.99, 0.5, 10000), 0.00014496536012149766),
    ((0.01, 1.0, 5.0, 0.2, 2), 0.81255279078850878),
    # R is nearly 0: incomplete gamma functions in 120-digit arithmetic
    ((0.0, 1.0, 1.1051709180756477, 0.7, 7), 2.381689362031081e-68),
    ((0.0, 1.0, 2.718281828459045, 2.9999999, 3), 1.18345608676878058e-18),
    ((0.9778356403572809, 1.0, 0.9997335059310712, 15.100274261633754, 5), 1.26586458121520919e-51),
]


def in_one_dimension(distance, s1, s2, eps):
    """P[Z_1 in E] - e^eps P[Z_2 in E], E the line or what is between or outside two roots."""
    mean, s1, s2, eps = map(mpmath.mpf, (distance, s1, s2, eps))

    def difference(low, high):
        def mass(centre, s):
            return mpmath.ncdf((high - centre) / s) - mpmath.ncdf((low - centre) / s)

        return mass(0, s1) - mpmath.exp(eps) * mass(mean, s2)

    a = (1 / s2**2 - 1 / s1**2) / 2  # L - eps = a z^2 + b z + c
    b, c = -mean / s2**2, mpmath.log(s2 / s1) + mean**2 / (2 * s2**2) - eps
    inf = mpmath.inf
    if a == 0:
        return difference(-inf, -c / b)
    root = b**2 - 4 * a * c
    if root < 0:
        return difference(-inf, inf) if a > 0 else mpmath.mpf(0)
    ends = sorted((-b + sign * mpmath.sqrt(root)) / (2 * a) for sign in (-1, 1))
    if a < 0:
        return difference(*ends)
    return difference(-inf, ends[0]) + difference(ends[1], inf)


@example(-2, 1.0, 1.0)  # R is nearly 0
@example(-4, 0.3, 0.3)
@given(
    st.floats(-4, 1.5),
    st.one_of(st.just(0.0), st.floats(-1.0, 1.0), st.sampled_from([1e-15, -1e-15, 1e-9, -1e-5])),
    st.floats(0.0, 20.0),
)
def test_one_dimension_to_twelve_digits_against_high_precision(log_distance, log_ratio, eps):
    distance, s2 = 10**log_distance, float(np.exp(log_ratio))
    with mpmath.workdps(400):
        expected = float(in_one_dimension(distance, 1.0, s2, eps))
    computed = gaussian_pair_delta(distance, 1.0, s2, eps)
    if expected > 1e-290:
        assert computed == pytest.approx(expected, rel=1e-12, abs=0)
    else:
        assert computed <= 2e-290


def by_probabilities(distance, s1, s2, eps, d):
    """P[Z_1 in E] - e^eps P[Z_2 in E] with non-central chi-squared probabilities."""
    a, b = 1 / s2**2, 1 / s1**2
    border = 2 * (eps - d * np.log(s2 / s1)) / (a - b) + a * b * distance**2 / (a - b) ** 2
    if border <= 0:
        return 0.0
    to_first, to_second = a * distance / abs(a - b), b * distance / abs(a - b)
    inside = stats.ncx2.sf if a > b else stats.ncx2.cdf
    first = inside(border / s1**2, d, (to_first / s1) ** 2)
    return first - np.exp(eps) * inside(border / s2**2, d, (to_second / s2) ** 2)


@pytest.mark.parametrize(("arguments", "expected"), REFERENCE)
def test_high_precision_reference(arguments, expected):
    *pair, eps, d = arguments
    assert gaussian_pair_delta(*pair, eps, dimension=d) == pytest.approx(expected, rel=1e-12, abs=0)


@given(shifts, log_ratios, epsilons, dimensions)
def test_it_is_the_difference_of_two_noncentral_chi_squared(shift, log_ratio, eps, d):
    s1, s2 = 1.3, 1.3 * np.exp(log_ratio)
    if abs(log_ratio) < 0.01:
        return  # there the probabilities lose digits
    expected = by_probabilities(shift, s1, s2, eps, d)
    assert gaussian_pair_delta(shift, s1, s2, eps, d) == pytest.approx(expected, rel=0, abs=1e-12)


@pytest.mark.parametrize("log_ratio", [-0.7, -0.1, -1e-3, 1e-3, 0.1, 0.7])
@pytest.mark.parametrize("eps", [0.0, 0.3, 2.0])
def test_one_dimension_against_the_integral_of_the_excess_density(log_ratio, eps):
    s2 = 2 * np.exp(log_ratio)

    def excess(x):
        return max(stats.norm.pdf(x, 0, 2) - np.exp(eps) * stats.norm.pdf(x, 1.5, s2), 0.0)

    # the roots of the quadratic L(x) = eps are the kinks
    square, line = 1 / (2 * s2**2) - 1 / 8, -1.5 / s2**2
    roots = np.roots([square, line, 1.5**2 / (2 * s2**2) + np.log(s2 / 2) - eps])
    cuts = np.sort(np.clip(np.r_[-40, 40, roots[np.isreal(roots)].real], -40, 40))
    pieces = [
        integrate.quad(excess, a, b, epsabs=1e-13, limit=200, points=[0])[0]
        for a, b in itertools.pairwise(cuts)
        if b > a
    ]
    assert gaussian_pair_delta(1.5, 2.0, s2, eps) == pytest.approx(sum(pieces), abs=1e-11)


@pytest.mark.parametrize(("d", "s2", "eps"), [(2, 0.8, 0.5), (5, 1.3, 0.2), (30, 0.95, 0.0)])
def test_several_dimensions_against_samples(d, s2, eps):
    """delta = E[(1 - e^{eps - L(Z_1)})_+] with the loss computed point by point."""
    rng = np.random.default_rng(20)
    other = np.full(d, 0.7 / np.sqrt(d))
    z = rng.standard_normal((100_000, d))
    loss = gaussian_pair_loss(z, np.zeros(d), 1.0, other, s2)
    term = np.maximum(-np.expm1(eps - loss), 0)
    error = 5 * term.std() / np.sqrt(term.size)
    assert gaussian_pair_delta(0.7, 1.0, s2, eps, d) == pytest.approx(term.mean(), abs=error)


@pytest.mark.parametrize(("d", "s2", "level"), [(1, 0.8, 0.3), (5, 1.3, -1.0), (30, 0.95, 1.0)])
def test_tail_of_the_loss_against_samples(d, s2, level):
    rng = np.random.default_rng(22)
    other = np.full(d, 0.7 / np.sqrt(d))
    hits = gaussian_pair_loss(rng.standard_normal((100_000, d)), np.zeros(d), 1.0, other, s2)
    tail = gaussian_pair_tail(0.7, 1.0, s2, level, d)
    assert tail == pytest.approx(np.mean(hits > level), abs=5 * np.sqrt(tail / 100_000))


@given(shifts, log_ratios, epsilons, dimensions)
def test_delta_is_the_integral_of_the_tail(shift, log_ratio, eps, d):
    """delta(eps) = int_eps^inf e^{eps - x} P[L > x] dx, so at least its first piece."""
    s2 = float(np.exp(log_ratio))
    at, beyond = (gaussian_pair_tail(shift, 1.0, s2, x, d) for x in (eps, eps + 0.1))
    delta = gaussian_pair_delta(shift, 1.0, s2, eps, d)
    rest = np.exp(-0.1) * gaussian_pair_delta(shift, 1.0, s2, eps + 0.1, d)
    piece = -np.expm1(-0.1)
    assert piece * beyond - 1e-13 <= delta - rest <= piece * at + 1e-13


def test_tail_far_out():
    assert gaussian_pair_tail(0.0, 1.0, 1.0, 0.0) == 0.0
    assert gaussian_pair_tail(0.0, 1.0, 1.0, -1e-3) == 1.0
    assert gaussian_pair_tail(1.0, 2.0, 1.0, -30.0) == 1.0
    assert gaussian_pair_tail(1.0, 1.0, 2.0, 30.0) == 0.0
    assert gaussian_pair_tail(1.0, 1.0, 2.0, -1e4) == pytest.approx(1.0, rel=1e-13)


def test_loss_is_the_difference_of_log_densities():
    rng = np.random.default_rng(21)
    z, mu, other = rng.standard_normal((50, 3)), rng.standard_normal(3), rng.standard_normal(3)
    log_p = stats.multivariate_normal(mu, 4.0 * np.eye(3)).logpdf(z)
    log_q = stats.multivariate_normal(other, 0.25 * np.eye(3)).logpdf(z)
    np.testing.assert_allclose(gaussian_pair_loss(z, mu, 2.0, other, 0.5), log_p - log_q)


@given(st.floats(0.01, 5.0), st.floats(-16, -7), st.sampled_from([-1, 1]), epsilons, dimensions)
def test_nearly_equal_variances_join_the_equal_ones(shift, exponent, sign, eps, d):
    """A relative change h of sigma moves delta by at most d h (total variation)."""
    h = sign * 10**exponent
    limit = gaussian_delta(shift, 1.0, eps)
    near = gaussian_pair_delta(shift, 1.0, 1.0 + h, eps, d)
    assert abs(near - limit) <= np.exp(eps) * d * abs(h) + 1e-13
    assert gaussian_pair_delta(shift, 1.0, 1.0, eps, d) == limit


def test_transition_is_smooth_in_relative_terms():
    """delta is a smooth function of ln sigma_2: second differences vanish across equality."""
    steps = np.array([-2e-9, -1e-9, 0.0, 1e-9, 2e-9])
    values = [gaussian_pair_delta(1.0, 3.0, 3 * np.exp(h), 2.0, 40) for h in steps]
    assert np.abs(np.diff(values, 2)).max() < 1e-10 * values[2]


@given(shifts, log_ratios, epsilons, dimensions, st.floats(0.01, 1e3))
def test_units_do_not_matter(shift, log_ratio, eps, d, unit):
    s2 = float(np.exp(log_ratio))
    expected = gaussian_pair_delta(shift, 1.0, s2, eps, d)
    scaled = gaussian_pair_delta(unit * shift, unit, unit * s2, eps, d)
    assert scaled == pytest.approx(expected, rel=1e-7, abs=1e-12)


@given(shifts, log_ratios, epsilons, dimensions)
def test_delta_grows_with_the_distance_and_falls_with_epsilon(shift, log_ratio, eps, d):
    s2 = float(np.exp(log_ratio))
    delta = gaussian_pair_delta(shift, 1.0, s2, eps, d)
    assert 0 <= delta <= 1
    assert gaussian_pair_delta(shift + 0.1, 1.0, s2, eps, d) >= delta - 1e-13
    assert gaussian_pair_delta(shift, 1.0, s2, eps + 0.1, d) <= delta + 1e-13


@given(shifts, log_ratios, dimensions)
def test_at_epsilon_zero_both_orders_agree(shift, log_ratio, d):
    s2 = float(np.exp(log_ratio))
    one, other = (gaussian_pair_delta(shift, *s, 0.0, d) for s in ((1.0, s2), (s2, 1.0)))
    assert one == pytest.approx(other, rel=1e-9, abs=1e-14)


@given(shifts, log_ratios, epsilons, dimensions)
def test_profile_is_convex_in_the_factor(shift, log_ratio, eps, d):
    """sup_E P1[E] - t P2[E] is convex in t = e^eps, and 1 at t = 0."""
    s2 = float(np.exp(log_ratio))
    t = np.exp(eps) * np.array([1.0, 1.5, 2.0])
    one, two, three = (gaussian_pair_delta(shift, 1.0, s2, float(np.log(u)), d) for u in t)
    assert two <= (one + three) / 2 + 1e-13
    assert one <= 1 - t[0] / t[2] * (1 - three) + 1e-13


def test_equal_means_and_a_narrow_first_one_have_bounded_loss():
    """The loss of the narrower against the wider is at most d ln(sigma_2/sigma_1)."""
    largest = 3 * np.log(1.5)
    assert gaussian_pair_delta(0.0, 1.0, 1.5, largest * 0.999, 3) > 0
    assert gaussian_pair_delta(0.0, 1.0, 1.5, largest * 1.001, 3) == 0
    assert gaussian_pair_delta(0.0, 1.5, 1.0, largest * 1.001, 3) > 0


def test_extreme_inputs_stay_finite():
    assert gaussian_pair_delta(1e6, 1.0, 1.1, 1.0) == 1.0
    assert gaussian_pair_delta(1e-9, 1.0, 1.0 + 1e-12, 700.0, 3) == 0.0
    for pair in ((1e-8, 1e8), (1e8, 1e-8)):
        assert gaussian_pair_delta(0.0, *pair, 0.1, 1000) == pytest.approx(1.0, rel=1e-12)
    assert gaussian_pair_delta(1e-30, 1.0, np.nextafter(1.0, 2.0), 0.1) == 0.0


@pytest.mark.parametrize("unit", [2.0**-1000, 2.0**900])
def test_units_of_any_size(unit):
    for function in (gaussian_pair_delta, gaussian_pair_tail, gaussian_pair_renyi):
        assert function(unit, unit, 2 * unit, 0.5) == function(1.0, 1.0, 2.0, 0.5)
    assert gaussian_pair_epsilon(unit, unit, 2 * unit, 0.1) == gaussian_pair_epsilon(1, 1, 2, 0.1)


@pytest.mark.parametrize("sigmas", [(1.0, 2.0), (2.0, 1.0)])
def test_far_apart(sigmas):
    assert gaussian_pair_delta(1e10, *sigmas, 0.5) == pytest.approx(1, rel=1e-6)
    divergence = gaussian_pair_renyi(1e10, *sigmas, 1.0)
    assert gaussian_pair_epsilon(1e10, *sigmas, 0.5) == pytest.approx(divergence, rel=1e-6)


@settings(deadline=None)
@given(st.floats(0.0, 3.0), st.floats(-0.3, 0.3), st.floats(1e-12, 0.5), st.integers(1, 20))
def test_epsilon_is_the_inverse(shift, log_ratio, delta, d):
    s2 = float(np.exp(log_ratio))
    eps = gaussian_pair_epsilon(shift, 1.0, s2, delta, d)
    if eps < 1e-6:  # found to 1e-13 in absolute terms
        assert gaussian_pair_delta(shift, 1.0, s2, 2e-6, d) <= delta
    else:
        assert gaussian_pair_delta(shift, 1.0, s2, eps * (1 + 1e-6), d) <= delta
        assert gaussian_pair_delta(shift, 1.0, s2, eps * (1 - 1e-6), d) >= delta


@pytest.mark.parametrize("order", [0.5, 1.0, 1.7, 3.0])
@pytest.mark.parametrize(("s1", "s2"), [(1.0, 1.0), (1.2, 1.0), (1.0, 1.4)])
def test_renyi_divergence_is_its_integral(order, s1, s2):
    def term(x):
        log_p, log_q = stats.norm.logpdf(x, 0, s1), stats.norm.logpdf(x, 0.8, s2)
        if order == 1:
            return np.exp(log_p) * (log_p - log_q)
        return np.exp(order * log_p + (1 - order) * log_q)

    total, _ = integrate.quad(term, -60, 60, points=[0], limit=400, epsabs=1e-12)
    expected = total if order == 1 else np.log(total) / (order - 1)
    assert gaussian_pair_renyi(0.8, s1, s2, order) == pytest.approx(expected, rel=1e-7)
    assert gaussian_pair_renyi(0.0, s1, s2, order, 7) == pytest.approx(
        7 * gaussian_pair_renyi(0.0, s1, s2, order), rel=1e-12
    )


def test_renyi_divergence_is_infinite_from_one_order_on():
    first_infinite = 1.2**2 / (1.2**2 - 1)
    assert np.isfinite(gaussian_pair_renyi(0.5, 1.2, 1.0, first_infinite * 0.999))
    assert np.isinf(gaussian_pair_renyi(0.5, 1.2, 1.0, first_infinite * 1.001))
    assert np.isfinite(gaussian_pair_renyi(0.5, 1.0, 1.2, 1e6))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((-1.0, 1.0, 1.0, 0.1), "distance"),
        ((1.0, 0.0, 1.0, 0.1), "sigma must be positive"),
        ((1.0, 1.0, -1.0, 0.1), "sigma_other"),
        ((1.0, 1.0, 1.0, -0.1), "epsilon"),
        ((float("nan"), 1.0, 1.0, 0.1), "distance"),
        ((1.0, 1.0, 1.0, 0.1, 0), "dimension"),
        ((1.0, 1.0, 1e300, 0.1), "may differ by a factor of at most"),
        ((1e11, 1.0, 2.0, 0.1), "distance must be at most"),
    ],
)
def test_bad_input(arguments, message):
    with pytest.raises(ValueError, match=message):
        gaussian_pair_delta(*arguments)


def test_bad_input_elsewhere():
    with pytest.raises(TypeError, match="dimension"):
        gaussian_pair_delta(1.0, 1.0, 1.0, 0.1, 2.5)
    for delta in (1.0, 5e-324):
        with pytest.raises(ValueError, match="delta"):
            gaussian_pair_epsilon(1.0, 1.0, 1.0, delta)
    with pytest.raises(ValueError, match="order"):
        gaussian_pair_renyi(1.0, 1.0, 1.0, 0.0)
    with pytest.raises(ValueError, match="last axis"):
        gaussian_pair_loss([[0.0, 1.0]], [0.0], 1.0, [0.0], 1.0)
