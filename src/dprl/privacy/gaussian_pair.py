r"""Exact privacy of two spherical Gaussians whose means *and* variances differ.

Let Z_1 ~ N(mu_1, sigma_1^2 I_d), Z_2 ~ N(mu_2, sigma_2^2 I_d), D = ||mu_1 - mu_2||. The
privacy loss at z (thesis, equation 3.18) is

    L(z) = d ln(sigma_2/sigma_1) + ||z - mu_2||^2/(2 sigma_2^2)
           - ||z - mu_1||^2/(2 sigma_1^2),                                       (1)

and the least delta for which the pair is (eps, delta)-indistinguishable in this order is
the hockey-stick divergence

    delta(eps) = sup_E { P[Z_1 in E] - e^eps P[Z_2 in E] } = E[(1 - e^{eps - L(Z_1)})_+].  (2)

Measure lengths in units of sigma_1 and put g = sigma_1^2/sigma_2^2 - 1. Where g != 0, (1) depends
on z only through its distance r = ||z - c|| from the centre c = mu_2 + (mu_2 - mu_1)/g, which lies
on the line through the means, at the distance lambda = (1 + g) D/|g| from mu_1:

    L = eps + g (r^2 - R^2)/2,   R^2 = (2 eps + d ln(1 + g))/g + (1 + g) D^2/g^2.   (3)

So {L > eps} is the *outside* of a ball if Z_1 is the wider one (g > 0), the *inside* if it
is the narrower one (g < 0; empty if R^2 <= 0). Under Z_1 the distance r has the density of
the non-central chi distribution,

    f(r) = r (r/lambda)^nu e^{-(r^2 + lambda^2)/2} I_nu(lambda r),   nu = d/2 - 1,   (4)

so that delta(eps) is an integral over r of a positive function,

    delta(eps) = int f(r) (1 - e^{-g (r^2 - R^2)/2})_+ dr.                        (5)

No difference of nearly equal numbers is left, and that is why (5) is computed rather than the
difference of two non-central chi-squared probabilities that (2) gives: with nearly equal variances
lambda and R are huge and their difference is of order one, the probabilities lose their digits, and
where delta is small so does their difference. In (5) only t = r - lambda appears, with R - lambda =
(R^2 - lambda^2)/(R + lambda) and R^2 - lambda^2 = (2 eps + d ln(1 + g) - (1 + g) D^2)/g.
Neighbouring floating-point numbers sigma_1, sigma_2 are no exception. Where Z_1 is the narrower one
and eps near d ln(sigma_2/sigma_1), so that R may be near 0, the numerator of R^2 is computed in 40
digits.

Accuracy: relative error below 1e-12 against 50-digit arithmetic, with d up to 10 000 and
delta down to 1e-290 (the tests hold some of these values). The inputs themselves may matter
more: where D/sigma is small, delta changes by 1e-10 from one floating-point sigma to the
next. Equal variances, the limit g = 0 of (5), are :func:`dprl.privacy.gaussian_delta`, which
keeps the same promise where D/sigma is at most 100.
"""

from __future__ import annotations

import decimal
import math

import numpy as np
from numpy.typing import ArrayLike
from scipy import special

from dprl import _validation as check
from dprl._validation import FloatArray
from dprl.privacy.averages import resolved_delta, root_above_zero
from dprl.privacy.gaussian import gaussian_delta

_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(16)
_WIDEST = 0.5  # panel of the quadrature, in units of sigma_1; the integrand varies over ~ 1
_TAIL = 90.0  # what is left out is e^{-_TAIL/2} of what is kept
_LARGEST_RATIO = 1e20  # of the sigmas
_FARTHEST = 1e10  # in units of sigma: of r, some digits are left
_NOTHING = 1e-100  # a distance below it, in units of sigma, is no distance
_DEBYE = 100.0  # order from which the uniform expansion of the Bessel function is used

# Polynomials u_1..u_5 in p of the uniform expansion of I_nu (DLMF 10.41.10), coefficients of
# p^k, p^{k+2}, ..., p^{3k}.
_DEBYE_POLYNOMIALS = (
    np.array([3, -5]) / 24,
    np.array([81, -462, 385]) / 1152,
    np.array([30375, -369603, 765765, -425425]) / 414720,
    np.array([4465125, -94121676, 349922430, -446185740, 185910725]) / 39813120,
    np.array([1519035525, -49286948607, 284499769554, -614135872350, 566098157625, -188699385875])
    / 6688604160,
)


def gaussian_pair_loss(
    points: ArrayLike,
    mean: ArrayLike,
    sigma: float,
    mean_other: ArrayLike,
    sigma_other: float,
) -> FloatArray:
    """Privacy loss L(z) of the first Gaussian against the second, equation (1), natural logarithm.

    points, shape (..., d), is where to evaluate it; mean and mean_other have shape (d,); the
    standard deviations sigma and sigma_other are > 0. Returns shape (...,).

    >>> gaussian_pair_loss([[0.0], [1.0]], [0.0], 1.0, [1.0], 1.0)
    array([ 0.5, -0.5])
    """
    z = check.finite_array("points", points)
    mu = check.finite_array("mean", mean, ndim=1)
    other = check.finite_array("mean_other", mean_other, ndim=1)
    s1, s2 = check.positive("sigma", sigma), check.positive("sigma_other", sigma_other)
    if z.ndim == 0 or not z.shape[-1] == mu.size == other.size:
        raise ValueError(
            f"points, mean and mean_other must agree in the last axis, got shapes "
            f"{z.shape}, {mu.shape}, {other.shape}"
        )
    far, near = (((z - m) / s) ** 2 for m, s in ((other, s2), (mu, s1)))
    loss: FloatArray = mu.size * np.log(s2 / s1) + (far - near).sum(axis=-1) / 2  # (1)
    return loss


def gaussian_pair_delta(
    distance: float, sigma: float, sigma_other: float, epsilon: float, dimension: int = 1
) -> float:
    """Exact delta of two Gaussians with different means and variances at a given epsilon, (2).

    Of N(mu_1, sigma^2 I) against N(mu_2, sigma_other^2 I), D apart.
    One order only: a mechanism needs the larger of both, with sigma and sigma_other swapped.

    Parameters
    ----------
    distance, sigma, sigma_other, epsilon : float
        Distance D of the two means, >= 0, in the units of sigma; standard deviations of the first
        and of the second distribution, > 0, neither more than 1e20 times the other, nor D more
        than 1e10 times the first; epsilon >= 0.
    dimension : int
        d >= 1.

    Returns
    -------
    float
        In [0, 1]. Takes less than a millisecond.

    Examples
    --------
    >>> round(gaussian_pair_delta(1.0, 2.0, 2.0, 0.5), 12) == round(gaussian_delta(1, 2, 0.5), 12)
    True
    >>> wider_first = gaussian_pair_delta(0.0, 1.1, 1.0, 0.5, dimension=10)
    >>> narrower_first = gaussian_pair_delta(0.0, 1.0, 1.1, 0.5, dimension=10)
    >>> round(wider_first, 6), round(narrower_first, 6)
    (0.048242, 0.011996)
    """
    shift, s1, s2 = _pair(distance, sigma, sigma_other)
    eps = check.not_negative("epsilon", epsilon)
    return _delta(shift, s1, s2, eps, check.whole("dimension", dimension))


def gaussian_pair_tail(
    distance: float, sigma: float, sigma_other: float, loss: float, dimension: int = 1
) -> float:
    """P[L(Z_1) > loss]: the exact tail of the privacy loss (1) under the first Gaussian.

    Parameters as in :func:`gaussian_pair_delta`; any real loss. Never below delta(loss).

    >>> round(gaussian_pair_tail(1.0, 1.0, 1.0, 0.5), 12)  # the loss is N(1/2, 1)
    0.5
    """
    shift, s1, s2 = _pair(distance, sigma, sigma_other)
    level, d = check.real("loss", loss), check.whole("dimension", dimension)
    shift = shift / s1
    if shift < _NOTHING:
        shift = 0.0
    if s1 != s2:
        return _integral(shift, s1, s2, level, d, excess=False)
    if shift == 0:
        return float(level < 0)
    return float(special.ndtr(shift / 2 - level / shift))


def gaussian_pair_epsilon(
    distance: float, sigma: float, sigma_other: float, delta: float, dimension: int = 1
) -> float:
    """Least eps >= 0 with delta(eps) <= delta: the inverse of :func:`gaussian_pair_delta`.

    Parameters as there, delta in [1e-300, 1); one order only. To ten digits; 0 if the total
    variation distance is at most delta.

    >>> round(gaussian_pair_epsilon(1.0, 2.846924442403095, 2.846924442403095, 0.1), 6)
    0.1
    """
    shift, s1, s2 = _pair(distance, sigma, sigma_other)
    target, d = resolved_delta(delta), check.whole("dimension", dimension)

    def excess(eps: float) -> float:
        return float(np.log(max(_delta(shift, s1, s2, eps, d), 1e-320) / target))

    return root_above_zero(excess)


def gaussian_pair_renyi(
    distance: float, sigma: float, sigma_other: float, order: float, dimension: int = 1
) -> float:
    r"""Renyi divergence of N(mu_1, sigma^2 I) from N(mu_2, sigma_other^2 I), natural logarithm.

    With s^2 = order sigma_other^2 + (1 - order) sigma^2 (Gil, Alajaji and Linder 2013),

        D_order = order D^2/(2 s^2) + d/(order - 1) ln(sigma^{1-order} sigma_other^order / s),

    and infinite if s^2 <= 0: where the first Gaussian is the wider one, the divergence is
    infinite from the order sigma^2/(sigma^2 - sigma_other^2) on.

    The pair as in :func:`gaussian_pair_delta`, in one order only; order > 0, at 1 the
    Kullback-Leibler divergence.

    >>> gaussian_pair_renyi(1.0, 2.0, 2.0, 3.0)  # order D^2 / (2 sigma^2)
    0.375
    >>> gaussian_pair_renyi(0.0, 2.0, 1.0, 1.4)
    inf
    """
    shift, s1, s2 = _pair(distance, sigma, sigma_other)
    a, d = check.positive("order", order), check.whole("dimension", dimension)
    h = (s2 - s1) * (s2 + s1) / s1**2  # sigma_2^2/sigma_1^2 - 1
    mixed = 1 + a * h  # s^2/sigma_1^2
    if mixed <= 0:
        return float("inf")
    mean_part = a * (shift / s1) ** 2 / (2 * mixed)
    log_quotient = _log_quotient(h, s2, s1)
    if abs(a - 1) < 1e-7:  # the limit; its error is of the order of the difference
        return float(mean_part + d / 2 * (log_quotient - h * (s1 / s2) ** 2))
    return float(mean_part + d / (2 * (a - 1)) * (a * log_quotient - np.log(mixed)))


def _pair(distance: float, sigma: float, sigma_other: float) -> tuple[float, float, float]:
    """The three numbers, divided by a power of two near sigma: exact, and no square overflows."""
    shift = check.not_negative("distance", distance)
    s1, s2 = check.positive("sigma", sigma), check.positive("sigma_other", sigma_other)
    if not 1 / _LARGEST_RATIO <= s1 / s2 <= _LARGEST_RATIO:
        raise ValueError(
            f"sigma and sigma_other may differ by a factor of at most {_LARGEST_RATIO:g}, "
            f"got {sigma!r} and {sigma_other!r}"
        )
    if shift / s1 > _FARTHEST:
        raise ValueError(
            f"distance must be at most {_FARTHEST:g} sigma, got {distance!r} and {sigma!r}"
        )
    power = -math.frexp(s1)[1]
    return math.ldexp(shift, power), math.ldexp(s1, power), math.ldexp(s2, power)


def _log_quotient(g: float, sigma: float, sigma_other: float) -> float:
    """ln(sigma^2/sigma_other^2), given that quotient minus 1."""
    quotient = np.log1p(g) if abs(g) < 0.5 else 2 * np.log(sigma / sigma_other)
    return float(quotient)


def _delta(distance: float, sigma: float, sigma_other: float, epsilon: float, d: int) -> float:
    """Equation (5); the closed form where the variances are equal."""
    if distance / sigma < _NOTHING:
        distance = 0.0
    if sigma == sigma_other:
        return gaussian_delta(distance, sigma, epsilon)
    return _integral(distance / sigma, sigma, sigma_other, epsilon, d, excess=True)


def _integral(
    shift: float, sigma: float, sigma_other: float, level: float, d: int, *, excess: bool
) -> float:
    """Equation (5), or with excess=False the same without the last factor: P[L(Z_1) > level].

    Gauss-Legendre quadrature on panels that widen away from R; shift is D.
    """
    g = (sigma - sigma_other) * (sigma + sigma_other) / sigma_other**2
    quotient = (sigma / sigma_other) ** 2  # 1 + g
    log_quotient = _log_quotient(g, sigma, sigma_other)
    numerator = 2 * level + d * log_quotient
    if abs(numerator) < 0.1 * abs(level):  # R may be near 0: no digit of the sum is to be lost
        with decimal.localcontext(prec=40):
            logs = decimal.Decimal(sigma).ln() - decimal.Decimal(sigma_other).ln()
            numerator = float(2 * (decimal.Decimal(level) + d * logs))
    offset = numerator / g
    centre = quotient * shift / abs(g)  # lambda
    border_squared = offset + quotient * (shift / g) ** 2  # R^2, (3)
    outwards = g > 0
    if border_squared <= 0:  # g < 0: nowhere is L > level; g > 0: everywhere
        return float(outwards)
    border = np.sqrt(border_squared)  # R
    # R - lambda, without the difference of two large numbers
    start = (offset - quotient * shift**2 / g) / (border + centre)
    mode = (d - 1) / (np.sqrt(centre**2 + d - 1) + centre) if d > 1 else 0.0  # of r - lambda
    gone = start - mode if outwards else mode - start  # > 0: the border lies in the tail
    length = np.sqrt(max(gone, 0.0) ** 2 + _TAIL) - gone
    if length == 0:  # by rounding: farther out than any mass
        return 0.0
    skip = -gone - np.sqrt(_TAIL)  # the border lies that far before anything happens
    scales = [_WIDEST, 1 / (abs(g) * border), 1 / np.sqrt(abs(g))]
    scales.append(1 / max(abs(gone), 1e-9))
    if not outwards:
        length = min(length, border)
        scales.append(border / d)
    if skip > 1:
        s, weight = _panels(length - skip, _WIDEST)
        s = s + skip
    else:
        s, weight = _panels(length, min(scales) / 4)
    sign = 1.0 if outwards else -1.0
    t, r = start + sign * s, border + sign * s
    term = weight * np.exp(_log_density(r, t, centre, d))
    if excess:
        term *= -np.expm1(-abs(g) / 2 * s * (border + r))  # 1 - e^{-g (r^2 - R^2)/2}
    return float(np.clip(term.sum(), 0.0, 1.0))


def _panels(length: float, first: float) -> tuple[FloatArray, FloatArray]:
    """Nodes and weights on [0, length]: panels double from ``first`` up to the widest."""
    first = min(first, length, _WIDEST)
    growing = int(np.ceil(np.log2(_WIDEST / first)))
    widths = np.minimum(first * 2.0 ** np.arange(growing + int(length / _WIDEST) + 2), _WIDEST)
    edges = np.minimum(np.concatenate([[0.0], np.cumsum(widths)]), length)
    edges = edges[: int(np.argmax(edges >= length)) + 1]
    half = np.diff(edges)[:, None] / 2
    return (edges[:-1, None] + half * (1 + _NODES)).ravel(), (half * _WEIGHTS).ravel()


def _log_density(r: FloatArray, t: FloatArray, centre: float, d: int) -> FloatArray:
    """ln f(r) of (4), r = centre + t; centre = 0 is the central chi distribution."""
    nu = d / 2 - 1
    with np.errstate(divide="ignore"):  # r = 0 has density 0 (d > 1)
        if centre == 0:
            log_r = np.log(r) if d > 1 else np.zeros_like(r)
            central: FloatArray = (
                (d - 1) * log_r - r**2 / 2 - nu * np.log(2.0) - special.gammaln(d / 2)
            )
            return central
        near = np.abs(t) < centre / 2
        ratio = np.where(near, np.log1p(np.where(near, t / centre, 0.0)), np.log(r / centre))
    # sqrt(x) I_nu(x) e^{-x} tends to 1/sqrt(2 pi): no large terms cancel
    log_f: FloatArray = (nu + 0.5) * ratio - t**2 / 2 + _log_bessel(nu, centre * r)
    return log_f


def _log_bessel(nu: float, x: FloatArray) -> FloatArray:
    """ln( sqrt(x) e^{-x} I_nu(x) ) for nu = -1/2, 0, 1/2, ... and x > 0, however large."""
    x = np.maximum(x, 1e-290)
    if nu == -0.5:
        half: FloatArray = np.log1p(np.exp(-2 * np.minimum(x, 400.0))) - np.log(2 * np.pi) / 2
        return half
    if nu >= _DEBYE:
        return _log_bessel_uniform(nu, x)
    out = np.empty_like(x)
    small, large = x**2 < nu + 1, x > 1e6
    between = ~(small | large)
    y = x[small]
    series = term = np.ones_like(y)
    for k in range(1, 14):  # DLMF 10.25.2
        term = term * (y**2 / 4) / (k * (nu + k))
        series = series + term
    out[small] = nu * np.log(y / 2) + np.log(y) / 2 - y - special.gammaln(nu + 1) + np.log(series)
    out[between] = np.log(special.ive(nu, x[between])) + np.log(x[between]) / 2
    y = x[large]
    series = term = np.ones_like(y)
    for k in range(1, 9):  # DLMF 10.40.1
        term = term * -(4 * nu**2 - (2 * k - 1) ** 2) / (8 * k * y)
        series = series + term
    out[large] = np.log(series) - np.log(2 * np.pi) / 2
    return out


def _log_bessel_uniform(nu: float, x: FloatArray) -> FloatArray:
    """The same by the expansion that is uniform in x, for large nu (DLMF 10.41.3)."""
    z = x / nu
    root = np.sqrt(1 + z**2)
    p = 1 / root
    total = np.ones_like(z)
    for k, coefficients in enumerate(_DEBYE_POLYNOMIALS, start=1):
        total += (p / nu) ** k * np.polynomial.polynomial.polyval(p**2, coefficients)
    # nu eta - x, and sqrt(x) taken into the root
    exponent = nu / (root + z) - nu * np.arcsinh(1 / z)
    log_i: FloatArray = exponent + (np.log(z / root) - np.log(2 * np.pi)) / 2 + np.log(total)
    return log_i
