r"""Smoothed Gaussian perturbation (thesis, section 3.4.1): lemmas 3.1 to 3.3.

An algorithm releases mu_X + N(0, sigma_X^2 I_d) with a variance that depends on the data.
For neighbours X, X' let

    (a) sigma_X >= alpha ||mu_X - mu_X'||_2,   (b) |ln sigma_X^2 - ln sigma_X'^2| <= beta.

Lemma 3.1 and Lemma 3.2 give alpha, beta for which this is (eps, delta)-differentially
private. The constants of Lemma 3.1 are :func:`dprl.privacy.smoothing_constants`.

Both are proved through Lemma 3.3: on an event of probability at least 1 - delta the privacy
loss is at most eps. Put t = ln(2/delta), kappa = beta/2, u = (Z_1 - mu_1)/sigma_1 ~ N(0, I),
r = sigma_1/sigma_2 in [e^{-kappa}, e^{kappa}], and let Delta be the difference of the means
in units of sigma_2. Then (thesis, equation 3.18)

    L = -d ln r + (r^2 - 1) ||u||^2/2 - r <u, Delta> + ||Delta||^2/2.               (1)

Direct proof of Lemma 3.1. (a) for both orders gives ||Delta|| <= min(1, r)/alpha. On the
event -<u, Delta> <= sqrt(2t) ||Delta||, ||u||^2 <= B = d + 2 sqrt(d t) + 2 t, which fails
with probability at most e^{-t}/2 + e^{-t} = 3 delta/4, (1) is largest at r = e^{kappa}:

    L <= -d kappa + (e^{2 kappa} - 1) B/2 + e^{kappa} sqrt(2t)/alpha + 1/(2 alpha^2)    (2)

unless r < 1, where L <= d kappa + sqrt(2t)/alpha + 1/(2 alpha^2). Inserting alpha and beta,
with (e^{2x} - 1)/2 <= x + x^2 e^{2x}, 2 sqrt(dt) + 2t <= (1 + sqrt 2)(d + t) and
B <= (3 + sqrt 5)/2 (d + t), gives for r >= 1

    L <= eps [ (1 + sqrt 2)/8 + (3 + sqrt 5)/2 eps e^{2 kappa}/(64 (d + t))
               + e^{kappa}/5 + eps/(100 t) ]                                          (3)

and for r < 1 L <= eps [1/8 + 1/5 + eps/(100 t)]. The factor in (3) grows with eps and falls
with d and t; at d = 1, t = ln 2 it is below 1 for eps <= 5.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy import integrate, optimize, special

from dprl import _validation as check
from dprl._validation import BoolArray, FloatArray
from dprl.privacy import gaussian_pair_delta, smoothing_constants
from dprl.privacy.smooth_sensitivity import LARGEST_EPSILON

#: beta in units of Lemma 3.1's, by what condition (b) is asked of: ln sigma^2 or ln sigma.
_SMOOTHED = {"variance": 1.0, "deviation": 2.0}


class WorstPair(NamedTuple):
    """The admissible pair of Gaussians with the largest exact delta."""

    #: Its delta at the epsilon asked for.
    delta: float
    #: ln(sigma_1^2/sigma_2^2), in [-beta, beta]; the first is the one that is observed.
    log_variance_ratio: float
    #: Distance of the means in units of sigma_2.
    distance: float


# -- Lemma 3.1 ------------------------------------------------------------------------


def lemma_3_1_proof_bound(
    epsilon: ArrayLike, delta: ArrayLike, dimension: ArrayLike, *, smoothed: str = "variance"
) -> FloatArray:
    """The bound (3) on the privacy loss, outside an event of probability 3 delta/4.

    Lemma 3.1 is proved wherever this is at most epsilon: for epsilon <= 5 with
    ``smoothed="variance"``, the thesis's condition (b), and for epsilon <= 1 with ``"deviation"``,
    the weaker condition |ln sigma_X - ln sigma_X'| <= beta of Nissim, Raskhodnikova and Smith.

    epsilon > 0, delta in (0, 1) and dimension >= 1 broadcast; smoothed is what changes by at most
    beta: ln sigma^2 or ln sigma.

    >>> (lemma_3_1_proof_bound([1.0, 5.0], 0.999999, 1) / [1, 5]).round(3).tolist()
    [0.56, 0.916]
    """
    eps, t, d, kappa = _lemma_3_1(epsilon, delta, dimension, smoothed)
    f = _SMOOTHED[smoothed]
    wider = (
        f * (1 + np.sqrt(2)) / 8
        + (3 + np.sqrt(5)) / 2 * f**2 * eps * np.exp(2 * kappa) / (64 * (d + t))
        + np.exp(kappa) / 5
        + eps / (100 * t)
    )  # (3), r >= 1
    narrower = f / 8 + 1 / 5 + eps / (100 * t)  # r < 1
    return np.asarray(eps * np.maximum(wider, narrower))


def lemma_3_1_event_bound(
    epsilon: ArrayLike, delta: ArrayLike, dimension: ArrayLike, *, smoothed: str = "variance"
) -> FloatArray:
    """The bound (2) as it stands, before :func:`lemma_3_1_proof_bound` simplifies it.

    Where the first Gaussian is the wider one it is the largest loss on the event of the proof,
    attained for d >= 2; for d = 1 it is above it. At most :func:`lemma_3_1_proof_bound`, whose
    parameters it shares; below epsilon a little further, up to epsilon = 8.

    >>> (lemma_3_1_event_bound([5.0, 8.0], 0.999999, 1) / [5, 8]).round(3).tolist()
    [0.73, 0.974]
    """
    _, t, d, kappa = _lemma_3_1(epsilon, delta, dimension, smoothed)
    alpha, _ = smoothing_constants(epsilon, delta, dimension)
    radius = equation_3_14_threshold(t, d)  # B
    mean = np.sqrt(2 * t) / alpha
    wider = -d * kappa + np.expm1(2 * kappa) / 2 * radius + np.exp(kappa) * mean  # (2)
    narrower = d * kappa + mean  # r < 1
    return np.asarray(np.maximum(wider, narrower) + 1 / (2 * alpha**2))


def _lemma_3_1(
    epsilon: ArrayLike, delta: ArrayLike, dimension: ArrayLike, smoothed: str
) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray]:
    """eps, t, d and kappa, the largest |ln(sigma_1/sigma_2)|."""
    if smoothed not in _SMOOTHED:
        raise ValueError(f"smoothed must be one of {', '.join(_SMOOTHED)}, got {smoothed!r}")
    _, beta = smoothing_constants(epsilon, delta, dimension)
    eps, tail, d = (np.asarray(v, dtype=np.float64) for v in (epsilon, delta, dimension))
    return eps, np.log(2 / tail), d, _SMOOTHED[smoothed] * beta / 2


# -- Lemma 3.2 ------------------------------------------------------------------------


def lemma_3_2_constants(
    epsilon: ArrayLike, delta: ArrayLike, dimension: ArrayLike
) -> tuple[FloatArray, FloatArray]:
    """alpha and beta of Lemma 3.2. With C = sqrt(2 ln(4/delta)),

        alpha = 15 C / eps,   beta = 2 ln 2 eps / (5 (sqrt d + C)^2).

    The lemma asks for eps <= 5 and beta <= ln 2. The second follows from the first, because
    (sqrt d + C)^2 >= (1 + sqrt(2 ln 4))^2 > 7: then beta < 0.2.

    Parameters
    ----------
    epsilon, delta, dimension : array_like
        In (0, 5], in (0, 1), >= 1; they broadcast. A ValueError outside of these.

    Examples
    --------
    >>> alpha, beta = lemma_3_2_constants(0.1, 0.1, 40)
    >>> round(float(alpha), 3), round(float(beta), 7)
    (407.43, 0.0003392)
    """
    smoothing_constants(epsilon, delta, dimension)  # checks the ranges
    eps, d = (np.asarray(v, dtype=np.float64) for v in (epsilon, dimension))
    if (eps > LARGEST_EPSILON).any():
        raise ValueError(f"Lemma 3.2 asks for epsilon <= 5, got {eps.max()}")
    c = _normal_radius(delta)
    alpha: FloatArray = np.asarray(15 * c / eps)
    beta: FloatArray = np.asarray(2 * np.log(2) * eps / (5 * (np.sqrt(d) + c) ** 2))
    if (beta > np.log(2)).any():
        raise ValueError(f"Lemma 3.2 asks for beta <= ln 2, got {beta.max()}")
    alpha, beta = (v.copy() for v in np.broadcast_arrays(alpha, beta))
    return alpha, beta


def lemma_3_2_parts(epsilon: ArrayLike, delta: ArrayLike, dimension: ArrayLike) -> FloatArray:
    """The five parts of the loss in the proof of Lemma 3.2, each at most eps/5; shape (..., 5).

    For sigma_1^2/sigma_2^2 between e^{-beta} and e^{beta}, ||mu_1 - mu_2|| <= sigma_1/alpha and
    z in Omega (:func:`lemma_3_2_event`), with C as in :func:`lemma_3_2_constants` and
    D = sqrt d + sqrt(2 ln(2/delta)):

    1. d beta/2, the change of volume (3.19);
    2. C^2 (e^beta - 1)/2, the part of the noise along the shift (3.24);
    3. D^2 (e^beta - 1)/2, the part orthogonal to it (3.25);
    4. 3/(2 alpha^2), the shift itself (3.32);
    5. 3 C/alpha, the shift times the noise along it (3.32); equal to eps/5.

    Parameters as :func:`lemma_3_2_constants`.

    >>> (lemma_3_2_parts(1.0, 0.1, 40) * 5).round(3).tolist()
    [0.339, 0.063, 0.654, 0.005, 1.0]
    """
    alpha, beta = lemma_3_2_constants(epsilon, delta, dimension)
    d = np.asarray(dimension, dtype=np.float64)
    c, radius = _normal_radius(delta), _ball_radius(delta, d)
    growth = np.expm1(beta) / 2  # (gamma - 1)/2 with the gamma of (3.22)
    parts = (
        d * beta / 2,  # (3.19)
        c**2 * growth,  # (3.24)
        radius**2 * growth,  # (3.25)
        3 / (2 * alpha**2),  # (3.32), first term
        3 * c / alpha,  # (3.32), second term
    )
    return np.stack(np.broadcast_arrays(*parts), axis=-1)


def lemma_3_2_event(points: ArrayLike, direction: ArrayLike, delta: float) -> BoolArray:
    r"""Membership in Omega_a and Omega_b of equation (3.12), in units of sigma_1.

    Omega_a: the noise along the shift is at most C = sqrt(2 ln(4/delta)) in size (3.16).
    Omega_b: the noise has norm at most D = sqrt d + sqrt(2 ln(2/delta)) (3.17).

    points, shape (..., d), are (z - mu_1)/sigma_1; direction, shape (d,), is mu_2 - mu_1, of any
    length but 0; delta in (0, 1). Returns booleans of shape (..., 2): in Omega_a, in Omega_b; Omega
    is where both hold.

    >>> lemma_3_2_event([[0.0, 3.0], [3.0, 0.0]], [1.0, 0.0], 0.1).tolist()
    [[True, True], [False, True]]
    """
    u = check.finite_array("points", points)
    e = check.finite_array("direction", direction, ndim=1)
    if u.ndim == 0 or u.shape[-1] != e.size:
        raise ValueError(f"points and direction must agree, got shapes {u.shape}, {e.shape}")
    length = np.linalg.norm(e)
    if length == 0:
        raise ValueError("direction must not be zero: with equal means there is no shift")
    tail = check.open_unit("delta", delta)
    along = np.abs(u @ e) <= length * _normal_radius(tail)  # (3.16)
    near = np.linalg.norm(u, axis=-1) <= _ball_radius(tail, np.float64(e.size))  # (3.17)
    inside: BoolArray = np.stack([along, near], axis=-1)
    return inside


def lemma_3_2_missed(delta: float, dimension: int) -> tuple[float, float, float]:
    """Exact probabilities that Z_1 misses Omega_a, Omega_b, and Omega.

    The proof needs at most delta/2, delta/2 and delta (3.15), for delta in (0, 1) and a dimension
    d >= 1.

    >>> [round(p, 5) for p in lemma_3_2_missed(0.1, 2)]
    [0.0066, 0.00058, 0.00687]
    """
    tail, d = check.open_unit("delta", delta), check.whole("dimension", dimension)
    c, radius = float(_normal_radius(tail)), float(_ball_radius(tail, np.float64(d)))
    missed_a = 2 * float(special.ndtr(-c))
    missed_b = float(special.gammaincc(d / 2, radius**2 / 2))
    if d == 1:
        return missed_a, missed_b, max(missed_a, missed_b)

    def inside_a_only(x: float) -> float:  # noise along the shift x, too long orthogonally
        rest = special.gammaincc((d - 1) / 2, max(radius**2 - x**2, 0.0) / 2)
        return float(np.exp(-(x**2) / 2) / np.sqrt(2 * np.pi) * rest)

    extra = 2 * integrate.quad(inside_a_only, 0, c, epsabs=1e-14, epsrel=1e-10)[0]
    return missed_a, missed_b, missed_a + extra


def equation_3_13(threshold: ArrayLike) -> FloatArray:
    """Equation (3.13): 2 e^{-t^2/2} bounds P[|N(0, 1)| > t], t >= 0; elementwise.

    >>> float(equation_3_13(0.0))
    2.0
    """
    t = check.array_from("threshold", threshold)
    return np.asarray(2 * np.exp(-(t**2) / 2))  # (3.13)


def equation_3_14_threshold(t: ArrayLike, dimension: ArrayLike) -> FloatArray:
    """Equation (3.14), Laurent and Massart: chi^2_d exceeds this with probability <= e^{-t}.

    d + 2 sqrt(d t) + 2 t for t >= 0 and d >= 1 degrees of freedom; they broadcast.

    >>> float(equation_3_14_threshold(4.0, 1))
    13.0
    """
    s, d = check.finite_array("t", t), check.finite_array("dimension", dimension)
    if (s < 0).any() or (d < 1).any():
        raise ValueError("t must not be negative and dimension must be at least 1")
    return np.asarray(d + 2 * np.sqrt(d * s) + 2 * s)  # (3.14)


def _normal_radius(delta: ArrayLike) -> FloatArray:
    """C of (3.16)."""
    return np.asarray(np.sqrt(2 * np.log(4 / np.asarray(delta, dtype=np.float64))))


def _ball_radius(delta: ArrayLike, dimension: FloatArray | np.float64) -> FloatArray:
    """D of (3.17)."""
    tail = np.asarray(delta, dtype=np.float64)
    return np.asarray(np.sqrt(dimension) + np.sqrt(2 * np.log(2 / tail)))


# -- Lemma 3.3 ------------------------------------------------------------------------


def lemma_3_3(first: ArrayLike, second: ArrayLike, epsilon: float) -> tuple[FloatArray, FloatArray]:
    """Lemma 3.3 for finite distributions: what its condition needs, and what privacy needs.

    The smallest delta that condition 1 allows is P_1[p_1 > e^eps p_2], the mass of the
    outcomes whose loss exceeds eps. The lemma says that the exact
    delta(eps) = sum (p_1 - e^eps p_2)_+ is at most that. The converse is false.

    first and second, shape (..., n), are distributions over n outcomes in the last axis; epsilon
    >= 0. Returns the mass beyond eps, and the exact delta.

    >>> [float(x.round(3)) for x in lemma_3_3([0.6, 0.4], [0.4, 0.6], 0.1)]
    [0.6, 0.158]
    """
    eps = check.not_negative("epsilon", epsilon)
    p, q = (check.distributions(x, y, None) for x, y in (("first", first), ("second", second)))
    if p.shape[-1] != q.shape[-1]:
        raise ValueError(f"both must share their last axis, got shapes {p.shape}, {q.shape}")
    with np.errstate(over="ignore"):  # e^eps may be infinite; where q = 0 it does not matter
        excess = p - np.where(q > 0, np.exp(eps) * np.where(q > 0, q, 1.0), 0.0)
    return np.where(excess > 0, p, 0.0).sum(axis=-1), np.maximum(excess, 0.0).sum(axis=-1)


# -- exact: what conditions (a) and (b) really buy --------------------------------------


def worst_pair(
    alpha: float, beta: float, epsilon: float, dimension: int, *, points: int = 17
) -> WorstPair:
    """The pair of Gaussians with the largest exact delta among those that (a), (b) admit.

    Both conditions hold for both orders. In units of sigma_2 a pair is given by
    x = ln(sigma_1^2/sigma_2^2) in [-beta, beta] and a distance of at most
    min(1, sigma_1/sigma_2)/alpha. Both signs of x are both orders of an unordered pair.

    *Proved*: for given variances delta does not decrease with the distance, so the largest
    distance is taken. (1 - delta = int_0^inf vol({p_1 > s} and {e^eps p_2 > s}) ds, the volume
    common to two balls, which does not grow when their centres move apart.)
    *Computed, not proved*: the maximum over x, on ``points`` equally spaced values from
    -beta to beta, refined where it is inside. For alpha and beta that make a mechanism
    private it was found at x = beta, the wider first, in every case tried.

    alpha and beta > 0, epsilon >= 0, dimension d >= 1; points is at least 3, odd (so that equal
    variances are among them).

    >>> pair = worst_pair(2.904, 0.0146, 0.1, 40)
    >>> round(pair.delta, 4), round(pair.log_variance_ratio, 4)
    (0.1, 0.0146)
    """
    a, b = check.positive("alpha", alpha), check.positive("beta", beta)
    eps, d = check.real("epsilon", epsilon), check.whole("dimension", dimension)
    if check.whole("points", points, minimum=3) % 2 == 0:
        raise ValueError(f"points must be odd, got {points}")

    def distance(x: float) -> float:
        return float(np.exp(min(x / 2, 0.0)) / a)  # (a) for both orders

    def exact(x: float) -> float:
        return gaussian_pair_delta(distance(x), float(np.exp(x / 2)), 1.0, eps, d)

    grid = b * np.linspace(-1, 1, points)
    values = [exact(float(x)) for x in grid]
    best = int(np.argmax(values))
    at, largest = float(grid[best]), values[best]
    if 0 < best < points - 1:
        found = optimize.minimize_scalar(
            lambda x: -exact(float(x)), bounds=(grid[best - 1], grid[best + 1]), method="bounded"
        )
        if -found.fun > largest:
            at, largest = float(found.x), float(-found.fun)
    return WorstPair(largest, at, distance(at))


def worst_delta(
    alpha: float, beta: float, epsilon: float, dimension: int, *, points: int = 17
) -> float:
    """The largest exact delta under conditions (a) and (b): :func:`worst_pair` alone.

    A mechanism that uses alpha and beta is (epsilon, delta)-private if this is at most
    delta, and only then if its neighbours attain the conditions. Parameters as there.

    >>> alpha, beta = smoothing_constants(100.0, 0.1, 1)  # Lemma 3.1 far outside its range
    >>> round(worst_delta(float(alpha), float(beta), 100.0, 1), 3)
    0.553
    """
    return worst_pair(alpha, beta, epsilon, dimension, points=points).delta


def calibrated_alpha(
    beta: float, epsilon: float, delta: float, dimension: int, *, points: int = 9
) -> float:
    """The least alpha for which (a) and (b) with this beta give (epsilon, delta)-privacy.

    The inverse of :func:`worst_delta` in alpha, in which it does not increase (proved). Infinity
    if beta is so large that different variances alone break the promise.

    beta > 0, epsilon > 0, delta in (0, 1); dimension and points as in :func:`worst_pair`.

    >>> round(calibrated_alpha(0.0146, 0.1, 0.1, 40), 3)
    2.904
    """
    eps, target = check.positive("epsilon", epsilon), check.open_unit("delta", delta)
    b, d = check.positive("beta", beta), check.whole("dimension", dimension)

    def excess(log_alpha: float) -> float:
        found = worst_delta(float(np.exp(log_alpha)), b, eps, d, points=points)
        return float(np.log(max(found, 1e-300) / target))

    if b >= largest_beta(eps, target, d):
        return float("inf")
    low, high = -2.0, 2.0
    while excess(low) < 0:
        low -= 4
    while excess(high) > 0:
        high += 4
        if high > 100:  # beta is the largest up to rounding
            return float("inf")
    return float(np.exp(optimize.brentq(excess, low, high, xtol=1e-10)))


def largest_beta(epsilon: float, delta: float, dimension: int) -> float:
    """The beta beyond which condition (b) alone breaks the promise, whatever alpha.

    The beta at which two Gaussians with *equal* means and variances in the ratio e^beta,
    the wider first, have exact delta(epsilon) = delta. No alpha helps beyond it. Parameters as
    :func:`calibrated_alpha`.

    >>> round(largest_beta(0.1, 0.1, 40), 4)
    0.0772
    """
    eps, target = check.positive("epsilon", epsilon), check.open_unit("delta", delta)
    d = check.whole("dimension", dimension)

    def excess(log_beta: float) -> float:
        ratio = float(np.exp(np.exp(log_beta) / 2))
        return float(np.log(max(gaussian_pair_delta(0.0, ratio, 1.0, eps, d), 1e-300) / target))

    low, high = -20.0, 0.0
    while excess(high) < 0:
        high += 0.5
    while excess(low) > 0 and low > -700:
        low -= 20
    return float(np.exp(optimize.brentq(excess, low, high, xtol=1e-11)))
