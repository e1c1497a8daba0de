r"""Tight accounting of m Gaussian releases, each on k of n records drawn without replacement.

One *release*: draw k of the n records uniformly without replacement, compute a query of
L2 sensitivity Delta on them (two sub-samples of size k that differ in one record), and add
N(0, sigma^2 I). Write q = k/n for the *fraction* and mu = Delta/sigma. A release is repeated
m times, each time on a fresh and independent sub-sample; the query may depend on what was
released before. Neighbours replace one record.

**One release.** For neighbours x, x' let P and Q be the distributions of one release, and
D_a(P, Q) = sup_O P(O) - a Q(O) the hockey-stick divergence: delta(eps) = D_{e^eps}. Write P_1,
Q_1 for the outputs on x, x' given that the replaced record was drawn (the same index sets) and
P_0 given that it was not. Then P = (1-q) P_0 + q P_1 and Q = (1-q) P_0 + q Q_1, and with
a' = 1 + (a-1)/q, b = a/a',

    D_a(P, Q) = q D_{a'}(P_1, (1-b) P_0 + b Q_1)          for a >= 1              (1)

(Balle, Barthe and Gaboardi 2018, theorem 2). P_1 and Q_1 are mixtures of the same Gaussians moved
by at most Delta; so are P_1 and P_0, if the replaced record is exchanged for one that was not drawn
(for k = n there is no P_0, and b = 1). D_{a'} of two Gaussians depends only on their distance, in
any dimension, and grows with it. The divergence is jointly convex, hence D_a(P, Q) <= h(a) with

    h(a) = q D_{a'}(N(mu, 1), N(0, 1)),  a >= 1,     h(a) = 1 - a + a h(1/a),  a < 1.   (2)

The second half is the first for the exchanged pair, for D_a(P, Q) = 1 - a + a D_{1/a}(Q, P).
(2) is attained for every single a, by two pairs of inputs: one for a >= 1, one for a < 1.

**A pair with exactly this profile.** Let C be the smaller of the densities of N(mu, 1) and
N(0, 1), with its missing mass t = 2 Phi(mu/2) - 1 put on one separate point, and

    P* = (1-q) C + q N(mu, 1),        Q* = (1-q) C + q N(0, 1).                   (3)

On z > mu/2 the densities are (1-q) phi(z) + q phi(z - mu) and phi(z), so that (1) gives (2); for z
< mu/2 exchange the two and reflect; on the point the loss is 0. So D_a(P*, Q*) = h(a) for all a >
0: (P*, Q*) *dominates* one release, in both orders, and its privacy loss ln(dP*/dQ*) at z is

    l(z) = ln(1 + q (e^{mu (z - mu/2)} - 1)),   z > mu/2;     l(mu - z) = -l(z),       (4)

with an atom of mass (1-q) t at 0.

**m releases.** If a pair dominates each step, whatever was released before, then its m-fold
product dominates the sequence (Zhu, Dong and Wang 2022, on adaptive composition). For two
steps, with densities p, q of the first output y and P_y, Q_y the second given y,

    D_a = E_{y ~ P} D_{a q(y)/p(y)}(P_y, Q_y) <= E_{y ~ P} D_{a q(y)/p(y)}(P*, Q*),

which is D_a of P x P* against Q x Q*; exchange the roles of the two factors and bound the
first in the same way. All a > 0 occur here, also if a > 1 at the start: this is why (2) needs
its second half. So with L the sum of m independent copies of (4) under P*,

    delta(eps) <= E (1 - e^{eps - L})_+ ,                                             (5)

for the whole sequence and for everything computed from it, such as the average. What is *not*
claimed: that (5) is attained for m > 1. No single pair of inputs need be worst for both signs
of the loss, so the true curve may be lower (Lebeda, Regehr, Kamath and Steinke 2025);
:func:`~dprl.privacy.averages.averaged_gaussian_delta` shows how much at most, for the
average.

**Computing (5).** The loss is put on a grid of step h by the rule "connect the dots" (Doroshenko et
al. 2022): the mass of a cell goes to its two ends such that its mass under P* and under Q* stay
what they are. This makes the divergence larger for every a, so the m-fold convolution (of the
accounting library, by FFT) still bounds (5) from above. h is halved until two successive values
agree. The tails that the convolution cuts off are counted as losses of infinity. Not bounded by a
proof are the errors of floating-point arithmetic, and those of the quadrature within a cell, which
are as small: an allowance of sixteen times the unit roundoff per release is added to delta.

Sources: Balle, Barthe and Gaboardi 2018; Zhu, Dong and Wang 2022; Doroshenko et al. 2022;
Lebeda et al. 2025. The pair (3) in this form is worked out here.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator

import numpy as np
from dp_accounting.pld import pld_pmf
from scipy import optimize, special

from dprl import _validation as check
from dprl._validation import FloatArray
from dprl.privacy.averages import (
    averaged_delta,
    averaged_mu,
    checked_setting,
    ever_drawn,
    resolved_delta,
    root_above_zero,
)
from dprl.privacy.gaussian import analytic_gaussian_sigma

#: What two successive halvings of the grid step must agree to, in relation to epsilon or delta.
TOLERANCE = 1e-3
#: Points of one grid, and of its m-fold convolution, at most; a point costs about 100 bytes.
MAX_POINTS = 2**23
#: Points of the grids that only have to confirm a bound that was found otherwise, at most, and
#: twice as many of their convolution.
QUICK_POINTS = 2**18
#: Smallest delta that the convolution in double precision resolves.
SMALLEST_DELTA = 1e-12
#: Largest mu and number of releases for which there are grids, and largest epsilon that is kept.
LARGEST_MU, MOST_RELEASES, LARGEST_EPSILON = 30.0, 10**6, 1000.0
#: Most releases for which a mu is searched: it is small, and so is the grid. A second for 10^6 of
#: them, forty for 3 x 10^7.
MOST_SEARCHED = 10**8
#: Smallest mu and fraction whose squares are numbers.
SMALLEST = 1e-100

_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(6)
_PANEL = 0.25  # longest panel of the quadrature, in units of the integrand's scale
_UNIT = float(np.finfo(np.float64).eps) / 2


# -- one release ------------------------------------------------------------------------------


def subsampled_gaussian_profile(epsilon: float, mu: float, fraction: float) -> float:
    """delta(epsilon) of one release, equation (2): exact, for epsilon of both signs.

    The largest hockey-stick divergence, over all neighbours that replace one record, of the
    Gaussian mechanism on a sub-sample drawn without replacement.

    epsilon is any real number: below 0 it is the profile that composition needs. mu > 0 is the
    sensitivity over the standard deviation of the base release, fraction q = k/n lies in (0, 1].

    >>> round(subsampled_gaussian_profile(0.1, 1.0, 0.1), 6)
    0.018472
    """
    eps, size = check.real("epsilon", epsilon), check.positive("mu", mu)
    q = check.fraction("fraction", fraction)
    if eps < 0:
        return float(-math.expm1(eps) + math.exp(eps) * _one_release(-eps, size, q))
    return _one_release(eps, size, q)


def subsampled_gaussian_delta(mu: float, fraction: float, m: int, epsilon: float) -> float:
    """Upper bound on delta(epsilon) of m releases on sub-samples, equation (5).

    Parameters
    ----------
    mu : float
        Sensitivity over standard deviation of one base release, > 0 and at most ``LARGEST_MU``;
        the sensitivity is that of the query at the size k of a sub-sample, for neighbours that
        replace one record.
    fraction : float
        q = k/n, in (0, 1].
    m : int
        Number of releases, 1 to ``MOST_RELEASES``.
    epsilon : float
        >= 0.

    Returns
    -------
    float
        In [0, 1]. Above the exact value of (5) by about ``TOLERANCE``, relatively, or by the
        floating-point error of the convolution, of order 1e-16 m, if that is more. Exact for m = 1.

    Raises
    ------
    RuntimeError
        If halving the grid step does not settle within ``MAX_POINTS`` points.

    Notes
    -----
    Three to six convolutions of 1e4 to 1e6 points: 0.01 s to some seconds, hardly
    depending on m. Answers are kept.

    Examples
    --------
    >>> round(subsampled_gaussian_delta(0.5, 0.1, 100, epsilon=1.0), 5)
    0.02012
    """
    size, q, number = _setting(mu, fraction, m)
    eps = check.not_negative("epsilon", epsilon)
    if number == 1:
        return _one_release(eps, size, q)
    return _composed_delta(size, q, number, eps, TOLERANCE)


def subsampled_gaussian_epsilon(mu: float, fraction: float, m: int, delta: float) -> float:
    """Least epsilon that (5) certifies for m releases on sub-samples at a given delta.

    Parameters
    ----------
    mu, fraction, m
        As in :func:`subsampled_gaussian_delta`.
    delta : float
        In [1e-12, 1).

    Returns
    -------
    float
        >= 0. m releases, and everything computed from them, are (this, delta)-differentially
        private for neighbours that replace one record. Above the exact value by about
        ``TOLERANCE`` of it, or of the standard deviation of L where that is more.

    Raises
    ------
    ValueError
        If delta is below 1e-12, or below what the convolution of so many releases resolves.
    RuntimeError
        If halving the grid step does not settle within ``MAX_POINTS`` points.

    Examples
    --------
    >>> round(subsampled_gaussian_epsilon(0.5, 0.1, 100, delta=1e-5), 3)
    2.541
    """
    size, q, number = _setting(mu, fraction, m)
    return _composed_epsilon(size, q, number, resolved_delta(delta, SMALLEST_DELTA))


def subsampled_gaussian_mu(fraction: float, m: int, epsilon: float, delta: float) -> float:
    """Largest mu, that is the least noise, for which (5) certifies (epsilon, delta).

    Parameters
    ----------
    fraction, m
        As in :func:`subsampled_gaussian_delta`, but m up to ``MOST_SEARCHED``.
    epsilon : float
        In (0, ``LARGEST_EPSILON``].
    delta : float
        In [1e-12, 1). Choose it well below 1/n: a delta of the order of m k/n is no protection,
        it allows to publish so many records outright.

    Returns
    -------
    float
        mu; the base noise is sigma = sensitivity/mu. Infinite, that is no noise at all, if
        delta >= 1 - (1-q)^m: then even the bare sub-samples are (0, delta)-private, because the
        replaced record is drawn so seldom. Within about ``TOLERANCE`` of the largest;
        ``subsampled_gaussian_delta(mu, ...)`` does not exceed delta.

    Raises
    ------
    ValueError, RuntimeError
        As :func:`subsampled_gaussian_epsilon`.

    Notes
    -----
    A root in ln mu between the mu without any amplification and the mu of
    :func:`~dprl.privacy.averages.averaged_gaussian_mu`: about six evaluations of
    :func:`subsampled_gaussian_delta`.

    Examples
    --------
    >>> mu = subsampled_gaussian_mu(0.1, 100, epsilon=1.0, delta=1e-5)
    >>> round(mu, 3)
    0.243
    >>> subsampled_gaussian_delta(mu, 0.1, 100, epsilon=1.0) <= 1e-5
    True
    """
    _, q, number = _setting(1.0, fraction, m, most=MOST_SEARCHED)
    eps, target = check.positive("epsilon", epsilon), resolved_delta(delta, SMALLEST_DELTA)
    if eps > LARGEST_EPSILON:
        raise ValueError(f"epsilon must be at most {LARGEST_EPSILON:g}, got {epsilon!r}")
    return _largest_mu(q, number, eps, target)


# -- the loss on a grid -----------------------------------------------------------------------


def _one_release(eps: float, mu: float, q: float) -> float:
    """(2) for eps >= 0: q (Phi(mu/2 - e/mu) - e^e Phi(-mu/2 - e/mu)), e^e = 1 + (e^eps - 1)/q."""
    t = _tilt(np.array([eps]), q)[0]
    second = math.exp(min(t + special.log_ndtr(-mu / 2 - t / mu), 0.0))
    return float(q * max(special.ndtr(mu / 2 - t / mu) - second, 0.0))


def _tilt(loss: FloatArray, q: float) -> FloatArray:
    """t = ln(1 + (e^loss - 1)/q), the loss of the base release behind a loss >= 0 of (4)."""
    near = np.minimum(loss, 1.0)
    far = np.maximum(loss, 1.0)
    with np.errstate(under="ignore"):
        t: FloatArray = np.where(
            loss < 1,
            np.log1p(np.expm1(near) / q),
            far + np.log(np.exp(-far) - np.expm1(-far) / q),
        )
    return t


def _loss(t: FloatArray, q: float) -> FloatArray:
    """Its inverse, ln(1 + q (e^t - 1)) for t >= 0."""
    near, far = np.minimum(t, 1.0), np.maximum(t, 1.0)
    with np.errstate(under="ignore"):
        out: FloatArray = np.where(
            t < 1, np.log1p(q * np.expm1(near)), far + np.log(q + (1 - q) * np.exp(-far))
        )
    return out


def _highest_tilt(mu: float, q: float, m: int, tail: float) -> float:
    """t beyond which m releases have no more than the mass ``tail``."""
    depth = -special.ndtri(min(tail / (m * q), 0.5))
    return float(mu * (mu / 2 + depth))


def _scales(mu: float, q: float, m: int, tail: float) -> tuple[float, float]:
    """E l^2 and E |l| of (4) under P*, by quadrature over t."""
    t, weight = _panels(np.array([0.0, _highest_tilt(mu, q, m, tail)]), mu)[1:]
    z = mu / 2 + t / mu
    loss = _loss(t, q)
    density = weight / mu * np.exp(-(z**2) / 2) / math.sqrt(2 * math.pi)
    both = np.exp(loss) + 1  # P* and, by reflection, Q*
    return float((density * both * loss**2).sum()), float((density * both * loss).sum())


def _panels(edges: FloatArray, mu: float) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Nodes of a quadrature over the cells between the edges (in t): cell, t, weight."""
    widths = np.diff(edges)
    scale = 1 + (mu / 2 + edges[1:] / mu) / mu  # of the logarithm of the integrand
    pieces = np.ceil(widths * scale / _PANEL).astype(np.int64)
    pieces = np.maximum(pieces, 1)
    cell = np.repeat(np.arange(widths.size), pieces)
    within = np.arange(cell.size) - np.repeat(np.cumsum(pieces) - pieces, pieces)
    half = np.repeat(widths / pieces, pieces) / 2
    start = edges[cell] + 2 * half * within
    t = start[:, None] + half[:, None] * (1 + _NODES)
    return np.repeat(cell, _NODES.size), t.ravel(), (half[:, None] * _WEIGHTS).ravel()


def _grid(mu: float, q: float, step: float, top: int) -> tuple[FloatArray, float]:
    """Masses at -top step, ..., top step and at infinity, by "connect the dots".

    A cell [l_i, l_{i+1}] sends to its upper end the mass u and to its lower end w with

        u = int (p - e^{l_i} q) / (1 - e^{-step}),    w = int (e^{l_{i+1}} q - p) / (e^step - 1),

    p and q the densities of P* and Q*; here p - e^{l_i} q = q e^{t_i} (e^{t - t_i} - 1) phi, so
    that nothing cancels. The mass at -l is e^{-l} times that at l, for the pair is symmetric.
    """
    losses = np.linspace(0.0, step * top, top + 1)
    edges = _tilt(losses, q)
    cell, t, weight = _panels(edges, mu)
    z = mu / 2 + t / mu
    log_phi = -(z**2) / 2 - math.log(2 * math.pi) / 2
    low, high = edges[cell], edges[cell + 1]
    with np.errstate(under="ignore"):
        up = weight * np.exp(log_phi + low) * np.expm1(t - low)
        down = weight * np.exp(log_phi + high) * -np.expm1(t - high)
    factor = q / mu
    right = np.zeros(top + 1)
    right[1:] += np.bincount(cell, up, top) * factor / -math.expm1(-step)
    right[:-1] += np.bincount(cell, down, top) * factor / math.expm1(step)
    # beyond the last point: the mass under Q* goes to it, the rest of P* to infinity
    beyond = -mu / 2 - edges[-1] / mu
    right[-1] += math.exp(losses[-1] + special.log_ndtr(beyond))
    infinite = _one_release(float(losses[-1]), mu, q)
    left = right[1:] * np.exp(-losses[1:])
    atom = (1 - q) * special.erf(mu / (2 * math.sqrt(2)))
    centre = 2 * right[0] + atom
    return np.concatenate([left[::-1], [centre], right[1:]]), infinite


def _composed(
    mu: float, q: float, m: int, step: float, tail: float, points: int
) -> pld_pmf.PLDPmf | None:
    """The m-fold convolution on a grid; None if it would need too many points."""
    highest = float(_loss(np.array([_highest_tilt(mu, q, m, tail)]), q)[0])
    top = max(math.ceil(highest / step), 2)
    if 2 * top + 1 > points:
        return None
    masses, infinite = _grid(mu, q, step, top)
    one = pld_pmf.DensePLDPmf(step, -top, masses, infinite, True)
    if m == 1:
        return one
    return one.self_compose(m, tail_mass_truncation=tail)


def _refined(
    mu: float,
    q: float,
    m: int,
    tail: float,
    value: Callable[[pld_pmf.PLDPmf], float],
    agree: Callable[[float, float], bool],
) -> float:
    """Halve the grid step until two successive values agree; the last one is returned."""
    previous = math.inf
    for pmf in _ever_finer(mu, q, m, tail, MAX_POINTS):
        now = value(pmf)
        if math.isfinite(previous) and agree(previous, now):
            return min(previous, now)
        previous = now
    raise RuntimeError(
        f"the privacy loss of m = {m} releases with mu = {mu:g} and fraction = {q:g} needs more "
        f"than {MAX_POINTS} grid points: no bound is given. Such a setting "
        "hardly protects the records that are drawn: use more noise or a larger fraction"
    )


def _ever_finer(mu: float, q: float, m: int, tail: float, points: int) -> Iterator[pld_pmf.PLDPmf]:
    """The m-fold convolution on grids of step h, h/2, ... as long as these have few points.

    Each of them bounds (5) from above; the finer, the closer.
    """
    square, absolute = _scales(mu, q, m, tail)
    step = 0.4 * square / absolute
    while (pmf := _composed(mu, q, m, step, tail, points)) is not None:
        yield pmf
        step /= 2
        if points < MAX_POINTS and 16 * math.sqrt(m * square) / step > 2 * points:
            return  # sixteen standard deviations of the sum


def quick_deltas(mu: float, fraction: float, m: int, epsilon: float) -> Iterator[float]:
    """Upper bounds on (5) from ever finer grids of at most ``QUICK_POINTS`` points.

    Parameters as in :func:`subsampled_gaussian_delta`. All bounds hold, whether or not the finest
    grid is fine enough: what a bound from elsewhere is confirmed with. Not even one where a single
    grid has more points; for m = 1 the exact value.

    >>> values = list(quick_deltas(0.5, 0.1, 100, epsilon=1.0))
    >>> [round(v, 3) for v in values[:3]], round(values[-1], 5)
    ([0.023, 0.021, 0.02], 0.02012)
    """
    size, q, number = checked_setting(mu, fraction, m)
    eps = check.not_negative("epsilon", epsilon)
    if number == 1:
        yield _one_release(eps, size, q)
        return
    for pmf in _ever_finer(size, q, number, _cut(size, q, number, eps), QUICK_POINTS):
        yield min(float(pmf.get_delta_for_epsilon(eps)) + _rounding(number), 1.0)


@functools.lru_cache(maxsize=16384)
def _composed_delta(mu: float, q: float, m: int, eps: float, tolerance: float) -> float:
    tail = _cut(mu, q, m, eps)

    def agree(before: float, now: float) -> bool:
        return abs(before - now) <= tolerance * now + 10 * _rounding(m)

    def value(pmf: pld_pmf.PLDPmf) -> float:
        return float(pmf.get_delta_for_epsilon(eps))

    return min(_refined(mu, q, m, tail, value, agree) + _rounding(m), 1.0)


def _cut(mu: float, q: float, m: int, eps: float) -> float:
    """The mass that the convolution may cut off: little of what delta(eps) is at least."""
    return max(1e-5 * max(averaged_delta(mu, q, m, eps), 1e-10), 1e-16)


@functools.lru_cache(maxsize=16384)
def _composed_epsilon(mu: float, q: float, m: int, delta: float) -> float:
    if m == 1:
        return root_above_zero(lambda eps: math.log(max(_one_release(eps, mu, q), 1e-320) / delta))
    reduced = delta - _rounding(m)
    if reduced < delta / 2:
        raise ValueError(
            f"delta must be at least {2 * _rounding(m):.1e} for m = {m} releases: below, the "
            f"convolution in double precision does not resolve it; got {delta:g}"
        )
    tail = 1e-5 * delta
    square, _ = _scales(mu, q, m, tail)
    deviation = math.sqrt(m * square)

    def agree(before: float, now: float) -> bool:
        return abs(before - now) <= TOLERANCE * max(now, min(deviation, 1.0))

    def value(pmf: pld_pmf.PLDPmf) -> float:
        return max(float(pmf.get_epsilon_for_delta(reduced)), 0.0)

    return _refined(mu, q, m, tail, value, agree)


@functools.lru_cache(maxsize=4096)
def _largest_mu(q: float, m: int, eps: float, delta: float) -> float:
    if ever_drawn(q, m) <= delta:
        return math.inf
    plain = 1 / analytic_gaussian_sigma(1.0, eps, delta)
    low = math.log(plain / math.sqrt(m))  # no amplification: certified, up to the tolerance
    high = math.log(averaged_mu(q, m, eps, delta))
    best = low + math.log1p(-TOLERANCE)

    def excess(log_mu: float) -> float:
        nonlocal best
        mu = math.exp(log_mu)
        # delta is steep in mu: three times the tolerance is enough here
        found = (
            _one_release(eps, mu, q) if m == 1 else _composed_delta(mu, q, m, eps, 3 * TOLERANCE)
        )
        if found <= delta:
            best = max(best, log_mu)
        return math.log(max(found, 1e-320) / delta)

    # from the central limit theorem's answer outwards
    guess = min(max(_limiting_log_mu(plain / (q * math.sqrt(m))), low), high)
    outwards, stop = (1, high) if excess(guess) < 0 else (-1, low)
    near, width = guess, 0.02
    while near != stop:
        far = min(max(near + outwards * width, low), high)
        if (excess(far) > 0) == (outwards > 0):
            optimize.brentq(excess, min(near, far), max(near, far), xtol=TOLERANCE / 4)
            break
        near, width = far, 2 * width
    return math.exp(best)


def _limiting_log_mu(total: float) -> float:
    """ln mu at which m releases tend to one Gaussian pair at the distance q sqrt(m) total.

    For q sqrt(m) fixed and m to infinity (Dong, Roth and Su 2022):
    total^2 = 2 (e^{mu^2} Phi(3 mu/2) + 3 Phi(-mu/2) - 2). A starting point only.
    """

    def excess(log_mu: float) -> float:
        mu = math.exp(log_mu)
        right = math.exp(mu**2) * special.ndtr(1.5 * mu) + 3 * special.ndtr(-mu / 2) - 2
        return math.log(max(2 * right, 1e-300)) - 2 * math.log(total)

    return float(optimize.brentq(excess, math.log(1e-6), math.log(25.0)))


def _rounding(m: int) -> float:
    """Allowance for the floating-point error of the m-fold convolution, in total variation.

    Against the same convolution in extended precision the error was one to six times m u, u
    the unit roundoff.
    """
    return 16 * m * _UNIT


# -- checks -----------------------------------------------------------------------------------


def _setting(
    mu: float, fraction: float, m: int, most: int = MOST_RELEASES
) -> tuple[float, float, int]:
    """mu, q and m, within what the grids are made for."""
    size, q, number = checked_setting(mu, fraction, m)
    if not SMALLEST <= size <= LARGEST_MU or q < SMALLEST:
        raise ValueError(
            f"mu must lie in [{SMALLEST:g}, {LARGEST_MU:g}] and fraction in [{SMALLEST:g}, 1], "
            f"got {mu!r} and {fraction!r}"
        )
    if number > most:
        raise ValueError(f"m must be at most {most} releases, got {m!r}")
    return size, q, number
