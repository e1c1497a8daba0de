r"""Accounting of noisy gradient steps, each on one record drawn afresh.

The mechanism: N *steps*. Each draws one of m *records* uniformly, computes a vector of it and
of all that was released before, clips the whole vector to norm h, and adds N(0, (h sigma)^2) to
every coordinate. The steps draw independently of each other; m, N, h and sigma are public.
Neighbours replace one record. Private off-policy evaluation by noisy gradients (Xie, Thomas and
Miklau, Algorithm 1) is of this kind, a record being a trajectory.

Two vectors of norm at most h are at most 2 h apart, and +h, -h attain it. So a step is a release
of the kind of :mod:`dprl.privacy.accounting` with

    fraction q = 1/m,    mu = 2 h / (h sigma) = 2 / sigma,                            (1)

whatever h is. (With mu = 1/sigma, the distance of a clipped vector from 0, nothing below would
hold: some record is drawn in every step, and the other one takes its place.)

**From above.** The pair (3) of that module dominates one step, hence its N-fold product all N
steps: with L the sum of N independent privacy losses of that pair,

    delta(eps) <= E (1 - e^{eps - L})_+ .                                             (2)

**From below.** Let all records but one give the vector -h e and the one +h e, against a data set
in which all give -h e. In units of h sigma, one step releases from the first
(1-q) N(0, 1) + q N(mu, 1), from the second N(0, 1). N independent copies of *this* pair
have the exact curve E (1 - e^{eps - L})_+ with their own L, and no accountant may report
less. A cruder lower bound needs no more than one line: the event "some step exceeds t",

    delta(eps) >= (1 - F^N) - e^eps (1 - Phi(t)^N),  F = (1-q) Phi(t) + q Phi(t - mu).  (3)

**Computing (2).** With M(s) = E e^{s L_1} for one step and any c > 0 with M(c) finite,

    delta(eps) = 1/(2 pi i) int_{c - i inf}^{c + i inf} M(s)^N e^{-s eps} / (s (s+1)) ds,  (4)

for 1/(s (s+1)) is the Laplace transform of (1 - e^{-y})_+. (The bound M(c)^N e^{-c eps} of the
moments accountant is what remains of (4) if the integral is not carried out.) M is one integral
over z, by Gauss-Legendre rules; (4) is summed by the trapezoidal rule, which converges
geometrically here. c is half of the saddle point: that keeps the images of both tails, which
the rule with step 2 pi c / 45 adds, below e^-45. Where M(c + iu) does not decay (few steps hit
anything, so that L has nearly an atom) a smooth window, flat at the top, ends the sum; points
are doubled until two doublings change no more than 2e-5 of it. A margin for that and an
allowance for rounding are added to what is reported from above and subtracted from what is
reported from below. The grid method of :mod:`dprl.privacy.accounting`, whose direction is
proved, agrees; the tests compare them.

**Rényi divergence.** :func:`~dprl.privacy.noisy_gradients.noisy_gradient_renyi_epsilon` is the
accounting library's, with *replace one*, sampling without replacement, and the noise multiplier
sigma/2 which (1) asks for: a third bound from above, much looser.

Sources: Xie, Thomas and Miklau 2019, section 5; Zhu, Dong and Wang 2022 and Wang, Balle and
Kasiviswanathan 2019 for the tools. (4) is Fourier inversion as in Koskela, Jälkö and Honkela
2020, along another line.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np
from dp_accounting import dp_event, privacy_accountant
from dp_accounting.rdp import rdp_privacy_accountant
from numpy.typing import NDArray
from scipy import optimize, special

from dprl import _validation as check
from dprl._validation import FloatArray
from dprl.privacy.accounting import (
    quick_deltas,
    subsampled_gaussian_profile,
)
from dprl.privacy.averages import ever_drawn, resolved_delta

ComplexArray = NDArray[np.complex128]

#: Relative margin for the errors of the quadrature.
MARGIN = 2e-4

#: Least noise multiplier for which (2) is computed. At 0.08 and m = N = 100, epsilon is 2000.
SMALLEST_SIGMA = 0.08
#: Smallest delta that (4) in double precision resolves.
SMALLEST_DELTA = 1e-10
#: Beyond this epsilon the noise of this epsilon is given: it promises more.
LARGEST_EPSILON = 100.0
#: Most records for which a sigma is searched: beyond, (4) settles too slowly.
MOST_RECORDS = 10**8
#: Most steps for which the grid method is asked.
MOST_GRID_STEPS = 10**6

_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(10)
_REACH = 10.0  # standard deviations; beyond is a mass of 1e-23
_PANEL = 0.25  # longest panel in z
_PHASE = 6.0  # largest change of u l within a panel
_IMAGES = 45.0
_BLOCK, _MOST = 64, 2**15  # points of the trapezoidal rule: at first, and at most
_MOST_TERMS = 2**22  # of a sum at all points; beyond, it is carried out by panels
_TERMS = 14  # of the expansion in a panel
_TRIALS = 5  # of the grid method
_AGREE = 2e-5  # of what two successive doublings may still change
_UNIT = float(np.finfo(np.float64).eps)


class _Law(NamedTuple):
    """The privacy loss of one step: masses at losses (what is at loss 0 is left out)."""

    loss: FloatArray
    mass: FloatArray


_Pair = Callable[[float, float, float], _Law]


# -- from above -------------------------------------------------------------------------------


def noisy_gradient_delta(sigma: float, records: int, steps: int, epsilon: float) -> float:
    """Upper bound (2) on delta(epsilon) of all steps together.

    Parameters
    ----------
    sigma : float
        Noise multiplier, >= ``SMALLEST_SIGMA``: the noise has standard deviation h sigma in
        every coordinate.
    records, steps : int
        m, N >= 1.
    epsilon : float
        > 0.

    Returns
    -------
    float
        In [0, 1]; above (2) by ``MARGIN``, relatively, and an allowance for rounding. Where (4)
        does not settle (hardly any noise) it is the least of ``accounting.quick_deltas``, or 1.

    Raises
    ------
    ValueError
        If an argument is out of range, or (4) does not settle and there are more than
        ``MOST_GRID_STEPS`` steps.

    Notes
    -----
    A few hundred to some ten thousand evaluations of M, each a sum over some thousand nodes:
    milliseconds to some tenths of a second, whatever the number of steps. Where hardly any step
    draws the replaced record (N far below m), (4) does not settle and grids replace it: up to half
    a second, and some twenty times that, up to ten seconds, where an epsilon or a sigma is sought.

    Examples
    --------
    >>> d = noisy_gradient_delta(2.0, 1000, 1000, epsilon=0.3)
    >>> lower = noisy_gradient_delta_lower(2.0, 1000, 1000, epsilon=0.3)
    >>> f"{lower:.2e} <= delta <= {d:.2e}"
    '1.14e-08 <= delta <= 1.92e-08'
    """
    mu, q, number = _setting(_computed(sigma), records, steps)
    return _delta(_dominating, mu, q, number, check.positive("epsilon", epsilon), 1)


def noisy_gradient_epsilon(sigma: float, records: int, steps: int, delta: float) -> float:
    """Least epsilon that (2) certifies for all steps together, at a given delta.

    sigma, records and steps as in :func:`noisy_gradient_delta`, delta in [1e-10, 1). At least 1e-9.
    The steps, and whatever is computed from them, such as the last iterate, are (this,
    delta)-differentially private.

    >>> round(noisy_gradient_epsilon(2.0, 1000, 1000, delta=1e-5), 3)
    0.18
    """
    mu, q, number = _setting(_computed(sigma), records, steps)
    return _epsilon(_dominating, mu, q, number, resolved_delta(delta, SMALLEST_DELTA), 1)


def noisy_gradient_sigma(epsilon: float, delta: float, records: int, steps: int) -> float:
    """Least noise of clipped gradient steps that is certified for (epsilon, delta), by (2).

    Parameters
    ----------
    epsilon : float
        > 0.
    delta : float
        In [1e-10, 1). Choose it well below 1/m: from 1 - (1 - 1/m)^N on, no noise is needed,
        because the replaced record is drawn so seldom.
    records, steps
        As in :func:`noisy_gradient_delta`; at most ``MOST_RECORDS`` records.

    Returns
    -------
    float
        sigma, rounded up by 1e-5 of it; at least ``SMALLEST_SIGMA``, and no less than for
        ``LARGEST_EPSILON``, though less may do. 0 if no noise is needed.

    Notes
    -----
    A root in ln sigma: about ten evaluations of :func:`noisy_gradient_delta`.

    Examples
    --------
    >>> sigma = noisy_gradient_sigma(0.5, 0.01, records=60, steps=60)
    >>> round(sigma, 3)
    1.633
    >>> noisy_gradient_delta(sigma, 60, 60, epsilon=0.5) <= 0.01
    True
    """
    q, number = 1 / _few_records(records), check.whole("steps", steps)
    eps, target = check.positive("epsilon", epsilon), resolved_delta(delta, SMALLEST_DELTA)
    wanted = min(eps, LARGEST_EPSILON)
    return _sigma(_dominating, q, number, wanted, target, 1) * (1 + 1e-5)


def noisy_gradient_certified_sigma(epsilon: float, delta: float, records: int, steps: int) -> float:
    """:func:`noisy_gradient_sigma`, confirmed by the grid method: for a promise that is made.

    Parameters as there. The grid method, whose direction is proved, has the last word: the sigma
    is raised, if need be, until a grid gives at most delta. That is by less than a hundredth
    where m and N are 10^6.

    ValueError if an argument is out of range, there are more than ``MOST_GRID_STEPS`` steps, or no
    grid confirms a sigma nearby.

    >>> round(noisy_gradient_certified_sigma(0.1, 1e-5, 1000, 1000), 2)
    2.78
    """
    _grid_steps(steps)
    sigma = noisy_gradient_sigma(epsilon, delta, records, steps)
    if sigma == 0:  # delta is at least the probability of ever drawing the replaced record
        return 0.0
    mu, q, number = _setting(sigma, records, steps)
    wanted = min(check.positive("epsilon", epsilon), LARGEST_EPSILON)
    return sigma * _confirmed(lambda f: quick_deltas(mu / f, q, number, wanted), delta)


def noisy_gradient_renyi_epsilon(sigma: float, records: int, steps: int, delta: float) -> float:
    """Epsilon by Rényi divergences, sampling without replacement: valid, and much larger.

    Parameters as in :func:`noisy_gradient_epsilon`; the accounting library's bound.

    >>> round(noisy_gradient_renyi_epsilon(2.0, 1000, 1000, delta=1e-5), 2)
    0.7
    """
    mu, q, number = _setting(sigma, records, steps)
    target = resolved_delta(delta, SMALLEST_DELTA)
    accountant = rdp_privacy_accountant.RdpAccountant(
        neighboring_relation=privacy_accountant.NeighboringRelation.REPLACE_ONE
    )
    event = dp_event.SampledWithoutReplacementDpEvent(
        source_dataset_size=round(1 / q), sample_size=1, event=dp_event.GaussianDpEvent(1 / mu)
    )
    accountant.compose(event, number)
    return float(accountant.get_epsilon(target))


# -- from below -------------------------------------------------------------------------------


def noisy_gradient_delta_lower(sigma: float, records: int, steps: int, epsilon: float) -> float:
    """delta(epsilon) of the explicit pair: no accountant may report less.

    Parameters as in :func:`noisy_gradient_delta`; any sigma > 0, but below ``SMALLEST_SIGMA`` the
    value there is given: less noise does not hide more.

    In [0, 1]; below the exact value of the pair by ``MARGIN``, relatively, and an allowance for
    rounding. Where (4) does not settle, the bound (3).
    """
    mu, q, number = _setting(_at_least(sigma), records, steps)
    eps = check.positive("epsilon", epsilon)
    found = _delta(_explicit, mu, q, number, eps, -1)
    return max(found, threshold_test_delta(_at_least(sigma), records, steps, eps))


def noisy_gradient_epsilon_lower(sigma: float, records: int, steps: int, delta: float) -> float:
    """Least epsilon of the explicit pair at a given delta.

    Parameters as in :func:`noisy_gradient_epsilon`, sigma as in :func:`noisy_gradient_delta_lower`.

    At least 0: the steps are not (epsilon, delta)-private for any smaller epsilon. 0, which says
    nothing, if no epsilon from 1e-9 on is refuted.

    >>> round(noisy_gradient_epsilon_lower(2.0, 1000, 1000, delta=1e-5), 3)
    0.149
    """
    mu, q, number = _setting(_at_least(sigma), records, steps)
    return _epsilon(_explicit, mu, q, number, resolved_delta(delta, SMALLEST_DELTA), -1)


def noisy_gradient_sigma_lower(epsilon: float, delta: float, records: int, steps: int) -> float:
    """The noise multiplier below which the explicit pair violates (epsilon, delta).

    Parameters as in :func:`noisy_gradient_sigma`.

    At least 0: whatever the accounting, less noise is not enough. 0, which says nothing, if no
    sigma from ``SMALLEST_SIGMA`` on is refuted, or epsilon exceeds ``LARGEST_EPSILON``.

    >>> round(noisy_gradient_sigma_lower(0.5, 0.01, records=60, steps=60), 3)
    1.541
    """
    q, number = 1 / _few_records(records), check.whole("steps", steps)
    eps, target = check.positive("epsilon", epsilon), resolved_delta(delta, SMALLEST_DELTA)
    if eps > LARGEST_EPSILON:
        return 0.0
    return _sigma(_explicit, q, number, eps, target, -1)


def threshold_test_delta(sigma: float, records: int, steps: int, epsilon: float) -> float:
    """The lower bound (3) on delta(epsilon), in [0, 1]: does any step exceed the best threshold?

    Parameters as in :func:`noisy_gradient_delta`; any sigma > 0, epsilon >= 0.

    >>> round(threshold_test_delta(0.2146, 100_000, 100_000, epsilon=0.1), 3)
    0.632
    """
    mu, q, number = _setting(sigma, records, steps)
    eps = check.not_negative("epsilon", epsilon)
    t = np.linspace(-10.0, 10.0 + mu, 20_001)
    above = (1 - q) * special.ndtr(-t) + q * special.ndtr(mu - t)
    with np.errstate(divide="ignore"):
        first = -np.expm1(number * np.log1p(-above))
        second = np.where(  # its logarithm; far out by the union bound, exact to rounding there
            t < 30,
            np.log(-np.expm1(number * special.log_ndtr(np.minimum(t, 30.0)))),
            math.log(number) + special.log_ndtr(-t),
        )
        found = first - np.exp(np.minimum(eps + second, 0.0))
    return float(np.clip(found.max(), 0.0, 1.0))


# -- the loss of one step ---------------------------------------------------------------------


def _loss(z: FloatArray, mu: float, q: float) -> FloatArray:
    """ln(1 + q (e^y - 1)), y = mu z - mu^2/2: (1-q) N(0,1) + q N(mu,1) over N(0,1)."""
    y = mu * (z - mu / 2)
    near, far = np.minimum(y, 20.0), np.maximum(y, 20.0)
    return np.where(y < 20, np.log1p(q * np.expm1(near)), far + np.log(q + (1 - q) * np.exp(-far)))


def _nodes(low: float, mu: float, q: float, highest: float) -> tuple[FloatArray, FloatArray]:
    """Losses at the nodes of a quadrature over z > low, and the mass of N(0,1) there.

    Panels are so short that the phase u l changes by at most ``_PHASE`` for u <= highest.
    """
    coarse = np.arange(low, mu + _REACH + _PANEL, _PANEL)
    change = highest * np.diff(_loss(coarse, mu, q))
    pieces = np.maximum(np.ceil(change / _PHASE), 1).astype(np.int64)
    start = np.repeat(coarse[:-1], pieces)
    half = np.repeat(_PANEL / pieces, pieces) / 2
    start += 2 * half * (np.arange(start.size) - np.repeat(np.cumsum(pieces) - pieces, pieces))
    z = (start[:, None] + half[:, None] * (1 + _NODES)).ravel()
    mass = (half[:, None] * _WEIGHTS).ravel() * np.exp(-(z**2) / 2) / math.sqrt(2 * math.pi)
    return _loss(z, mu, q), mass


def _dominating(mu: float, q: float, highest: float) -> _Law:
    """The pair that dominates every step; its atom at loss 0 is left out."""
    loss, mass = _nodes(mu / 2, mu, q, highest)
    return _Law(np.concatenate([loss, -loss]), np.concatenate([mass * np.exp(loss), mass]))


def _explicit(mu: float, q: float, highest: float) -> _Law:
    """One record against the others, observed where the record is present."""
    loss, mass = _nodes(-_REACH, mu, q, highest)
    return _Law(loss, mass * np.exp(loss))


# -- the inversion (4) ------------------------------------------------------------------------


def _delta(pair: _Pair, mu: float, q: float, steps: int, eps: float, side: int) -> float:
    """(4), with its margin added (side 1) or subtracted (side -1)."""
    if steps == 1:  # both pairs have the exact profile of one release
        return subsampled_gaussian_profile(eps, mu, q)
    found = _inverted(pair, mu, q, steps, eps)
    if found is None:
        if side < 0:
            return 0.0
        _grid_steps(steps)
        return min(quick_deltas(mu, q, steps, eps), default=1.0)
    value, peak = found
    allowance = 8 * _UNIT * steps * peak + 1e-14
    return float(np.clip(value * (1 + side * MARGIN) + side * allowance, 0.0, 1.0))


@functools.lru_cache(maxsize=4096)
def _inverted(
    pair: _Pair, mu: float, q: float, steps: int, eps: float
) -> tuple[float, float] | None:
    """(4), and the size of its terms; None if the sum does not settle."""
    law = pair(mu, q, 0.0)
    if steps * float(law.loss.max()) <= eps:  # the loss is bounded, and never gets there
        return 0.0, 0.0

    def exponent(log_c: float) -> float:
        c = math.exp(log_c)
        return _log_power(law, c, steps) - c * eps - math.log(c * (c + 1))

    saddle = optimize.minimize_scalar(exponent, bounds=(-9.0, 9.0), method="bounded")
    c = math.exp(saddle.x) / 2
    step = 2 * math.pi * c / _IMAGES
    largest = math.exp(exponent(math.log(c)))
    values = np.empty(0, dtype=np.complex128)
    found = [math.inf, math.inf]
    while values.size < _MOST:
        u: FloatArray = step * np.arange(values.size, max(2 * values.size, _BLOCK), dtype=float)
        power = steps * np.log1p(_moments(pair(mu, q, float(u[-1])), c, u))
        s = c + 1j * u
        values = np.concatenate([values, np.exp(power - s * eps) / (s * (s + 1))])
        window = _flat_top(np.arange(values.size) / values.size)
        window[0] = 0.5
        found.append(float((values.real * window).sum()) * step / math.pi)
        if abs(found[-1] - found[-2]) + abs(found[-2] - found[-3]) < _AGREE * abs(found[-1]):
            return found[-1], largest * step * _IMAGES
        if found[-1] < _UNIT * steps * largest * step and np.abs(values[-1]) < _UNIT * largest:
            return max(found[-1], 0.0), largest * step * _IMAGES  # nothing but rounding is left
    return None


def _log_power(law: _Law, c: float, steps: int) -> float:
    """N ln M(c); where M is beyond all use, something that still grows with c."""
    top = c * float(law.loss.max())
    if top > 700:
        return steps * top
    moment = float((law.mass * np.expm1(c * law.loss)).sum())
    return steps * math.log1p(moment)


def _flat_top(x: FloatArray) -> FloatArray:
    """1 up to 1/2, 0 from 1 on, all derivatives continuous: ends the sum smoothly."""
    y = np.clip(2 * x - 1, 1e-3, 1 - 1e-3)
    return special.expit(1 / y - 1 / (1 - y))


def _moments(law: _Law, c: float, u: FloatArray) -> ComplexArray:
    """M(c + iu) - 1 for equidistant u: directly, or by panels where that takes too long."""
    with np.errstate(under="ignore", over="ignore"):
        weight = law.mass * np.exp(c * law.loss)
    found = _directly if law.loss.size * u.size <= _MOST_TERMS else _by_panels
    out: ComplexArray = found(law.loss, weight, u) - law.mass.sum()
    return out


def _directly(loss: FloatArray, weight: FloatArray, u: FloatArray) -> ComplexArray:
    """sum w e^{iul}, by a recurrence that is started anew every 64 points."""
    turn = np.exp(1j * (u[1] - u[0]) * loss)
    out = np.empty(u.size, dtype=np.complex128)
    for first in range(0, u.size, _BLOCK):
        phase = weight * np.exp(1j * u[first] * loss)
        for k in range(first, min(first + _BLOCK, u.size)):
            out[k] = phase.sum()
            phase *= turn
    return out


def _by_panels(loss: FloatArray, weight: FloatArray, u: FloatArray) -> ComplexArray:
    """The same in the time of some Fourier transforms.

    The losses are put into 2 K panels, K = len(u), of width d with 2 K d (u_1 - u_0) = 2 pi (the
    sum does not see whole periods). Around the middle v of the points u, and at the distance
    x d/2 from the middle of a panel, |x| <= 1, by the expansion of Jacobi and Anger

        e^{i (u - v) x d/2} = J_0(t) + 2 sum_k i^k J_k(t) T_k(x),   t = (u - v) d/2, |t| <= pi/4,

    of which the terms from k = 14 on are below 1e-16. The sums of w T_k(x) over each panel are
    transformed.
    """
    number, middle = 2 * u.size, u.size // 2
    place = loss * (number * float(u[1] - u[0]) / (2 * math.pi))
    panel = np.rint(place)
    x = 2 * (place - panel)
    index = panel.astype(np.int64) % number
    before, now = np.zeros(loss.size, np.complex128), weight * np.exp(1j * u[middle] * loss)
    out = np.zeros(u.size, dtype=np.complex128)
    for k, factor in enumerate(_bessel(u.size)):
        sums = np.bincount(index, now.real, number) + 1j * np.bincount(index, now.imag, number)
        transformed = np.roll(number * np.fft.ifft(sums), middle)[: u.size]
        out += (1 if k == 0 else 2) * 1j**k * factor * transformed
        before, now = now, (x * now if k == 0 else 2 * x * now - before)
    return out


@functools.lru_cache(maxsize=16)
def _bessel(size: int) -> FloatArray:
    """J_k(t) of :func:`_by_panels`, shape (14, size)."""
    t = (np.arange(size) - size // 2) * (math.pi / (2 * size))
    return check.frozen(special.jv(np.arange(_TERMS)[:, None], t))


def _epsilon(pair: _Pair, mu: float, q: float, steps: int, delta: float, side: int) -> float:
    def excess(log_eps: float) -> float:
        found = _delta(pair, mu, q, steps, math.exp(log_eps), side)
        return math.log(max(found, 1e-300) / delta)

    # from the tail bound M(c)^N e^{-c eps} <= delta downwards
    law = pair(mu, q, 0.0)

    def tail(log_c: float) -> float:
        c = math.exp(log_c)
        return math.log((_log_power(law, c, steps) - math.log(delta)) / c)

    bound = optimize.minimize_scalar(tail, bounds=(-9.0, 9.0), method="bounded")
    return _root(excess, float(bound.fun), 1e-9, side)


def _sigma(pair: _Pair, q: float, steps: int, eps: float, delta: float, side: int) -> float:
    if ever_drawn(q, steps) <= delta:
        return 0.0

    def excess(log_sigma: float) -> float:
        mu = 2 * math.exp(-log_sigma)
        found = _delta(pair, mu, q, steps, eps, side)
        return math.log(max(found, 1e-300) / delta)

    return _root(excess, 0.0, SMALLEST_SIGMA, side)


def _root(excess: Callable[[float], float], start: float, least: float, side: int) -> float:
    """Exponential of the root of a decreasing function, searched outwards from a start.

    If it is below ``least``: that from above (side 1), 0 from below (side -1).
    """
    near, width = start, 0.2
    outwards = 1 if excess(start) > 0 else -1
    while True:
        far = max(near + outwards * width, math.log(least))
        if (excess(far) > 0) != (outwards > 0):
            low, high = min(near, far), max(near, far)
            return math.exp(optimize.brentq(excess, low, high, xtol=1e-6))
        if outwards < 0 and far <= math.log(least):
            return least if side > 0 else 0.0
        near, width = far, 1.5 * width


def _confirmed(bounds: Callable[[float], Iterator[float]], delta: float) -> float:
    """A factor >= 1, as small as a few trials find, for which some of the bounds is at most delta.

    The bounds fall in the factor; those for one factor are ever closer, and their differences a
    quarter of the ones before, so that it is soon seen when they will not get there.
    """
    x, step, last = 0.0, 0.0, math.inf
    for _ in range(_TRIALS):
        best = math.inf
        for level, found in enumerate(bounds(math.exp(x))):
            if found <= delta:
                return math.exp(x)
            limit, best = found - (best - found) / 3, min(best, found)
            if level > 2 and delta < limit < found:
                best = limit
                break
        if best == math.inf:
            break
        excess = math.log(best / delta)
        # a tenth of it, then by the secant, and somewhat farther
        fallen = last - excess
        wanted = excess / 10 if last == math.inf else 2 * step
        if 0 < fallen < math.inf:
            wanted = min(1.03 * excess * step / fallen, 10 * step)
        step, last = min(max(wanted, 1e-5), 0.5), excess
        x += step
    raise ValueError(
        "the grid method does not confirm this promise, nor one nearby, with few points: "
        "choose a larger epsilon or delta, or more noise"
    )


# -- checks -----------------------------------------------------------------------------------


def _computed(sigma: float) -> float:
    if check.positive("sigma", sigma) < SMALLEST_SIGMA:
        raise ValueError(
            f"sigma must be at least {SMALLEST_SIGMA}: with less noise epsilon is in the "
            f"thousands, and it is not computed; got {sigma!r}"
        )
    return sigma


def _at_least(sigma: float) -> float:
    return max(check.positive("sigma", sigma), SMALLEST_SIGMA)


def _few_records(records: int) -> int:
    if check.whole("records", records) > MOST_RECORDS:
        raise ValueError(f"records must be at most {MOST_RECORDS}, got {records}")
    return records


def _grid_steps(steps: int) -> None:
    if check.whole("steps", steps) > MOST_GRID_STEPS:
        raise ValueError(
            f"steps must be at most {MOST_GRID_STEPS} where the grid method confirms or replaces "
            f"the inversion, got {steps}"
        )


def _setting(sigma: float, records: int, steps: int) -> tuple[float, float, int]:
    noise = check.positive("sigma", sigma)
    return 2 / noise, 1 / check.whole("records", records), check.whole("steps", steps)
