r"""Limits of sub-sample-and-average for linear queries that hold for every calibration.

Symbols as in :mod:`dprl.bounds.subsampling_utility`. Let T = n B/(m k), B binomial with m trials
of probability k/n: the part of the influence of one record that is left after sub-sampling.
E T = 1 and w = Var T = (n/k - 1)/m.

Let mu be the signal of the least noise of the plain mechanism: its profile
delta_G(eps; mu) = Phi(mu/2 - eps/mu) - e^eps Phi(-mu/2 - eps/mu) equals delta, so that analytic
sigma = Delta/(n mu). Put b = eps/mu - mu/2 and c = eps/mu + mu/2; then mu - c = -b. If the
averages are (eps, delta)-private with u = Delta/(n s), the half line beyond c s, on the data
sets (a, ..., a) and (a', a, ..., a), gives

    E Phi(T u - c) <= delta + e^eps Phi(-c) = Phi(-b).                                (3)

Everything below follows from (3), with a minorant of Phi(. - c):

* the tangent at mu lies below Phi(. - c) on [0, n mu/k] if k >= q_0 n
  (:func:`safe_fraction`): then u <= mu, there is no less noise than in the plain mechanism;
* the parabola Phi(-b) + phi(b)(y - mu) - kappa (y - mu)^2 lies below Phi(y - c) everywhere,
  with kappa = phi(1)/2, or phi(b)^2/(4 (2 Phi(b) - 1)) where b > 0 and this is less. With
  r = mu/u < 1 and g = phi(b)/(kappa mu) it gives

      w >= (1 - r)((g + 1) r - 1),                                                    (4)

  and, as noise may always be added, (4) also holds at every larger r < 1. So total utility is
  at least that of the plain mechanism as soon as (:func:`total_threshold`)

      n V/(d Delta^2) >= 4 (g + 1)/(mu g)^2.                                          (5)
"""

from __future__ import annotations

import functools
import math
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy import optimize, special, stats

from dprl import _validation as check
from dprl._validation import FloatArray
from dprl.privacy.averages import averaged_gaussian_mu

#: phi(1): the second derivative of Phi is nowhere below minus this.
_STEEPEST = math.exp(-0.5) / math.sqrt(2 * math.pi)


def least_noise_signal(epsilon: float, delta: float) -> float:
    """mu: sensitivity over standard deviation of the analytic Gaussian mechanism, to twelve digits.

    The mu with Phi(mu/2 - eps/mu) - e^eps Phi(-mu/2 - eps/mu) = delta, for epsilon in (0, 1e6] and
    delta in (0, 1).

    >>> round(1 / least_noise_signal(0.1, 0.1), 4)  # standard deviation at sensitivity 1
    2.8469
    """
    return _plain(epsilon, delta).mu


def half_line_delta(
    epsilon: ArrayLike, signal: ArrayLike, cut: ArrayLike, m: int, fraction: float
) -> FloatArray:
    """Equation (3) at any cut: E Phi(T u - c) - e^eps Phi(-c), a lower bound on delta(eps).

    For one half line and the data sets (a, ..., a) and (a', a, ..., a) with a and a' as far
    apart as possible; :func:`~dprl.privacy.accounting.averaged_gaussian_delta` is the largest
    value over all events. A sum over B of O(sqrt(m)) terms; what is left out is below 1e-14.

    epsilon is eps >= 0, signal u = Delta/(n s) >= 0 and cut c; they broadcast. m sub-samples of the
    fraction k/n in (0, 1].

    >>> float(half_line_delta(0.1, 0.351257, 0.460319, m=9, fraction=1.0).round(6))
    0.1
    """
    e, u, c = (
        check.finite_array(name, x)
        for name, x in (("epsilon", epsilon), ("signal", signal), ("cut", cut))
    )
    if (e < 0).any() or (u < 0).any():
        raise ValueError("epsilon and signal must not be negative")
    count, q = check.whole("m", m), check.fraction("fraction", fraction)
    spread = 8 * math.sqrt(count * q * (1 - q)) + 40  # Bernstein: below 1e-14 outside
    low, high = max(0, int(count * q - spread)), min(count, int(count * q + spread) + 1)
    b = np.arange(low, high + 1, dtype=np.float64)
    mass = stats.binom.pmf(b, count, q)
    influence = b / (count * q)
    hit = special.ndtr(u[..., None] * influence - c[..., None]) @ mass
    return np.asarray(hit - np.exp(e + special.log_ndtr(-c)))


def noise_lower_bound(
    n: ArrayLike,
    m: ArrayLike,
    k: ArrayLike,
    epsilon: float,
    delta: float,
    *,
    tail: float | None = None,
) -> FloatArray:
    """By Chernoff's bound: least noise variance of sub-sample-and-average over the plain one's.

    For every eta in (0, 1), s >= (1 - eta) Delta/(n mu(eps, delta + e^{-eta^2 m k/(2n)})), where
    mu(eps, .) is :func:`least_noise_signal`. As m k/n grows the bound tends to 1. Valid for all
    data-independent Gaussian noise with which the released average is (eps, delta)-private.

    Parameters
    ----------
    n, m, k : array_like
        Integers, m >= 1, 1 <= k <= n.
    epsilon, delta : float
        The promise: epsilon > 0, delta in (0, 1).
    tail : float, optional
        e^{-eta^2 mk/(2n)}, any number with delta + tail < 1; by default the lesser of delta/10
        and (1 - delta)/2.

    Returns
    -------
    ndarray
        In [0, 1]; 0 where mk/n is too small for this tail.

    Examples
    --------
    >>> noise_lower_bound(10_000, [10**3, 10**5, 10**7], 5_000, 1.0, 1e-5).round(3).tolist()
    [0.578, 0.943, 0.984]
    """
    plain = _plain(epsilon, delta)
    lost = min(delta / 10, (1 - delta) / 2) if tail is None else check.positive("tail", tail)
    if delta + lost >= 1:
        raise ValueError(f"delta + tail must be less than 1, got {delta} + {tail}")
    (records, size), count = checked_records(n, k), check.integer_array("m", m)
    eta = np.sqrt(-2 * math.log(lost) * records / (count * size))
    weaker = plain_mechanism(float(epsilon), delta + lost).mu
    return np.asarray((np.maximum(1 - eta, 0.0) * plain.mu / weaker) ** 2)


def noise_lower_bound_sharper(
    n: ArrayLike, m: ArrayLike, k: ArrayLike, epsilon: float, delta: float
) -> FloatArray:
    """By (4) and the tangent: least noise variance of sub-sample-and-average over the plain one's.

    1 where k >= q_0 n; elsewhere r^2, r the larger root of w = (1 - r)((g + 1) r - 1), and 0 if
    there is none. 1 - r is about w/g, and w = (n/k - 1)/m. Valid for all data-independent
    Gaussian noise with which the released average is (eps, delta)-private.

    Parameters as :func:`noise_lower_bound`.

    >>> noise_lower_bound_sharper(10**6, [1, 10**3], [200, 100], 1.0, 1e-5).round(4).tolist()
    [1.0, 0.9992]
    """
    plain = _plain(epsilon, delta)
    (records, size), count = checked_records(n, k), check.integer_array("m", m)
    w = (records / size - 1) / count  # (2)
    g = plain.steepness
    inside = g**2 - 4 * (g + 1) * w
    root = ((g + 2) + np.sqrt(np.maximum(inside, 0.0))) / (2 * (g + 1))
    squared = np.where(inside >= 0, np.minimum(root, 1.0) ** 2, 0.0)
    return np.where(size >= safe_fraction(epsilon, delta) * records, 1.0, squared)


def safe_fraction(epsilon: float, delta: float) -> float:
    """q_0 in (0, 1]: for k >= q_0 n sub-sampling needs no less noise than the plain mechanism.

    Whatever m and the accounting, for data-independent Gaussian noise. With z_0 > 0 the solution of
    Phi(z - b) - Phi(-b) = phi(b) z it is q_0 = mu/(mu + z_0), somewhat above delta: for small delta
    about mu phi(b). It is 1 where eps <= mu^2/2: there the tangent argument says nothing, and less
    noise can be enough (0.9927 of the variance for eps = 0.01, delta = 0.1, m = 1, k = n/2).
    Parameters as :func:`least_noise_signal`.

    >>> round(safe_fraction(1.0, 1e-5), 6), safe_fraction(0.01, 0.1)
    (0.000166, 1.0)
    """
    return _plain(epsilon, delta).safe


def minorant_curvature(epsilon: float, delta: float) -> float:
    """kappa > 0: a parabola that touches Phi(y - c) at mu and lies below it for all y.

    Phi(y - c) >= Phi(-b) + phi(b)(y - mu) - kappa (y - mu)^2. With phi(1)/2 by Taylor's theorem.
    Where b > 0, also with phi(b)^2/(4 (2 Phi(b) - 1)): put z = y - mu and P = Phi(z - b) -
    Phi(-b); then P >= phi(b) z for z <= 2b, and beyond P >= 2 Phi(b) - 1 and
    phi(b) z <= P + (phi(b) z)^2/(4P). The lesser of the two is returned. Parameters as
    :func:`least_noise_signal`.

    >>> round(minorant_curvature(1.0, 0.1), 4), round(minorant_curvature(0.01, 0.1), 4)
    (0.0575, 0.121)
    """
    return _plain(epsilon, delta).curvature


def total_threshold(epsilon: float, delta: float) -> float:
    """N_0 > 0, right side of (5): total utility is never better if n V/(d Delta^2) >= N_0.

    Whatever m, k and the accounting, for data-independent Gaussian noise, in comparison with the
    analytic Gaussian mechanism. Parameters as :func:`least_noise_signal`.

    >>> round(total_threshold(1.0, 1e-5), 4), round(total_threshold(0.1, 0.1), 2)
    (0.0023, 3.85)
    """
    plain = _plain(epsilon, delta)
    g = plain.steepness
    return 4 * (1 + 1 / g) / g / plain.mu**2


def name_and_shame_threshold(epsilon: float, delta: float) -> float:
    """delta/((1 - delta) mu^2): below it, publishing delta n records outright is better.

    One sub-sample of k = delta n records (if that is an integer) without any noise is
    (0, delta)-private. Its utility is (1/k - 1/n) V, less than that of the analytic Gaussian
    mechanism if and only if n V/(d Delta^2) is less than this. So :func:`total_threshold` cannot
    be lowered further. Parameters as :func:`least_noise_signal`.

    >>> round(name_and_shame_threshold(0.1, 0.1), 2)
    0.9
    """
    mu = least_noise_signal(epsilon, delta)
    return delta / ((1 - delta) * mu**2)


class PlainMechanism(NamedTuple):
    """The analytic Gaussian mechanism at one promise, and what (3) to (5) need of it."""

    mu: float
    curvature: float  # kappa
    steepness: float  # g = phi(b)/(kappa mu)
    safe: float  # q_0


def _plain(epsilon: float, delta: float) -> PlainMechanism:
    return plain_mechanism(check.positive("epsilon", epsilon), check.open_unit("delta", delta))


@functools.lru_cache(maxsize=4096)
def plain_mechanism(epsilon: float, delta: float) -> PlainMechanism:
    mu = averaged_gaussian_mu(1.0, 1, epsilon, delta)  # k = n: nothing is sub-sampled
    b = epsilon / mu - mu / 2
    density = math.exp(-(b**2) / 2) / math.sqrt(2 * math.pi)
    if b <= 1e-12:
        return PlainMechanism(mu, _STEEPEST / 2, 2 * density / (_STEEPEST * mu), 1.0)
    between = float(special.erf(b / math.sqrt(2)))  # 2 Phi(b) - 1
    kappa = min(_STEEPEST / 2, density**2 / (4 * between))
    g = max(2 * density / _STEEPEST, 4 * between / density) / mu  # density**2 may underflow
    return PlainMechanism(mu, kappa, g, mu / (mu + _tangent_ends(b, density)))


def _tangent_ends(b: float, density: float) -> float:
    """z_0: where the tangent of Phi at -b, followed to the right, meets Phi again; b > 0."""

    def gap(z: float) -> float:
        return float(special.ndtr(z - b) - special.ndtr(-b) - density * z)

    low, high = 2 * b, 2 / density  # at 2b Phi is above, at the other end the tangent is
    if gap(low) <= 0:  # b below rounding
        return low
    return float(optimize.brentq(gap, low, high, xtol=1e-14 * max(low, 1.0), rtol=1e-14))


def checked_records(n: ArrayLike, k: ArrayLike) -> tuple[FloatArray, FloatArray]:
    records, size = check.integer_array("n", n), check.integer_array("k", k)
    if (size > records).any():
        raise ValueError("k must not exceed n: a sub-sample is drawn without replacement")
    return records, size
