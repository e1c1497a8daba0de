r"""Privacy of gradient perturbed off-policy evaluation (Xie, Thomas and Miklau, section 5).

One step draws one of m trajectories, clips a vector of it to norm h, and adds noise of standard
deviation h sigma. For neighbours d, d' (one trajectory replaced) let P, Q be the distributions of
what one step releases. Its *log moment* is

    alpha(lambda) = max over d, d' of ln E_P[(P/Q)^lambda]
                  = lambda D_{lambda+1}(P || Q),                                      (1)

with D the Rényi divergence. All logarithms are natural.

**The explicit pair.** One trajectory gives +h e, the others -h e; against all -h e. In units of
h sigma: P = (1-q) N(0,1) + q N(2/sigma, 1), Q = N(0,1), q = 1/m. With k = lambda + 1 whole,

    E_P[(P/Q)^lambda] = sum_j C(k, j) q^j (1-q)^{k-j} e^{j (j-1) s^2/(2 sigma^2)},    s = 2,    (2)

a lower bound on (1) and exact for lambda = 1: 1 + (e^{4/sigma^2} - 1)/m^2. (s is the distance of
the two clipped vectors in units of h; the paper's proof has s = 1.)

**From above.** Sub-sampling without replacement (Wang, Balle and Kasiviswanathan 2019, theorem
9), with eps_0(j) = j s^2/(2 sigma^2) the Rényi divergence of order j of one Gaussian release:

    e^{(k-1) D_k} <= 1 + q^2 C(k,2) min{4 (e^{eps_0(2)} - 1), 2 e^{eps_0(2)}}
                       + sum_{j=3}^k q^j C(k,j) 2 e^{(j-1) eps_0(j)}.                 (3)

The paper takes s = 1 and drops the sum. Its terms grow like e^{j^2/(2 sigma^2)}.

**Table 1.** Let delta(eps, N, sigma, m) be an accountant's curve. It falls in eps and sigma, and
grows in N. Two quantities are related with the others fixed: dx/dy = - (d delta/dy)/(d delta/dx)
for two of eps, N, sigma, m, and d delta/dy for delta itself.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from numpy.typing import ArrayLike
from scipy import special

from dprl import _validation as check
from dprl._validation import FloatArray, IntArray
from dprl.privacy import noisy_gradient_delta

#: Rows and columns of the appendix's table 1.
QUANTITIES = ("epsilon", "delta", "N", "sigma", "m")
#: From this sigma on the first entry of the minimum in lemma 1 is the smaller one.
SWITCH = math.sqrt(1 / math.log(2))
#: Up to here all terms of (2) and (3) are summed.
LARGEST_ORDER = 10**7


# -- Lemma 1 ----------------------------------------------------------------------------------


def lemma_1_printed(lam: ArrayLike, sigma: float, records: int) -> FloatArray:
    """The printed bound (5.5) on the log moment of one step.

    lam > 0 is the order lambda, sigma > 0 the noise multiplier, records m >= 1.

    >>> float(lemma_1_printed(1, 2.0, 10).round(6))
    0.011361
    """
    x, noise, m = (
        check.positive_array("lam", lam),
        check.positive("sigma", sigma),
        check.whole("records", records),
    )
    return np.asarray(x * (x + 1) / (2 * m**2) * _second_term(1 / noise**2))


def lemma_1_corrected(lam: ArrayLike, sigma: float, records: int) -> FloatArray:
    """Bound (3) with sensitivity 2 h and all its terms, for whole lambda >= 1.

    At least the log moment of every pair of neighbours. Parameters as :func:`lemma_1_printed`.

    >>> bool(lemma_1_corrected(1, 2.0, 10) >= log_moment_pair(1, 2.0, 10))
    True
    """
    return _all_terms(lam, sigma, records, 2.0)


def log_moment_pair(
    lam: ArrayLike, sigma: float, records: int, *, sensitivity: float = 2.0
) -> FloatArray:
    """Log moment (2) of the explicit pair, exactly, for whole lambda >= 1.

    Parameters
    ----------
    lam, sigma, records
        As in :func:`lemma_1_printed`.
    sensitivity : float
        s, distance of the two clipped vectors in units of h. 2 is attained; 1 is the pair of
        the paper's proof.

    Examples
    --------
    >>> x = log_moment_pair(1, 2.0, 10)
    >>> bool(np.isclose(x, np.log1p(np.expm1(4 / 2.0**2) / 100)))
    True
    """
    log_m = math.log(check.whole("records", records))

    def exact(k: int, j: FloatArray, growth: FloatArray) -> FloatArray:
        # the terms without the exponential sum to 1
        binomial = _log_binomial(k, j) - j * log_m + special.xlog1py(k - j, -1 / records)
        return np.asarray(binomial + (growth + np.log(-np.expm1(-growth))))

    return _log_sum(exact, lam, sigma, sensitivity)


# -- (B.13) -----------------------------------------------------------------------------------


def equation_b_13_printed(alpha: ArrayLike, sigma: float, records: int) -> FloatArray:
    """(B.13): the Rényi divergence of order alpha > 1, higher terms ignored, sensitivity h.

    Other parameters as :func:`lemma_1_printed`.

    >>> float(equation_b_13_printed(2, 2.0, 10).round(6))
    0.011297
    """
    x, noise, m = (
        check.finite_array("alpha", alpha),
        check.positive("sigma", sigma),
        check.whole("records", records),
    )
    if (x <= 1).any():
        raise ValueError("alpha must be above 1")
    return np.asarray(np.log1p(x * (x - 1) / (2 * m**2) * _second_term(1 / noise**2)) / (x - 1))


def equation_b_13_corrected(
    alpha: ArrayLike, sigma: float, records: int, *, sensitivity: float = 2.0
) -> FloatArray:
    """(B.13) with all its terms, for whole alpha >= 2; ``sensitivity`` as :func:`log_moment_pair`.

    >>> same = equation_b_13_corrected(2, 2.0, 10, sensitivity=1.0)
    >>> bool(np.isclose(same, equation_b_13_printed(2, 2.0, 10)))
    True
    """
    x = check.finite_array("alpha", alpha)
    return _all_terms(x - 1, sigma, records, sensitivity) / (x - 1)


# -- Lemma 3, Theorem 4 -----------------------------------------------------------------------


def lemma_3(alpha: ArrayLike, distance: float, sigma: float) -> FloatArray:
    """Rényi divergence of N(x, sigma^2 I) and N(y, sigma^2 I), ||x - y|| = distance.

    The paper writes the covariance as sigma I; the value is that of sigma^2 I. The order alpha is
    at least 1, the standard deviation sigma of each coordinate positive.

    >>> float(lemma_3(2, distance=1.0, sigma=2.0))
    0.25
    """
    x, noise = check.finite_array("alpha", alpha), check.positive("sigma", sigma)
    d = check.not_negative("distance", distance)
    if (x < 1).any():
        raise ValueError("alpha must be at least 1")
    return np.asarray(x * d**2 / (2 * noise**2))


def theorem_4_delta(lam: ArrayLike, log_moments: ArrayLike, steps: int, epsilon: float) -> float:
    """Theorem 4: composition and tail bound, min over lambda of e^{N alpha - lambda eps}, or 1.

    lam and log_moments, shape (k,), are orders lambda > 0 and bounds on the log moments of *one*
    step; steps N >= 1; epsilon > 0.

    >>> lam = np.arange(1, 200)
    >>> theorem_4_delta(lam, lam * lemma_3(lam + 1, 0.01, 1.0), 100, 0.5) < 1e-5
    True
    """
    x, total = _composed(lam, log_moments, steps)
    return float(np.exp(min((total - x * check.positive("epsilon", epsilon)).min(), 0.0)))


def theorem_4_epsilon(lam: ArrayLike, log_moments: ArrayLike, steps: int, delta: float) -> float:
    """Theorem 4 solved for epsilon: min over lambda of (N alpha + ln(1/delta)) / lambda.

    Parameters as :func:`theorem_4_delta`, and delta in (0, 1).

    >>> lam = np.arange(1, 200)
    >>> eps = theorem_4_epsilon(lam, lemma_3(lam + 1, 0.01, 1.0) * lam, 100, 1e-5)
    >>> round(theorem_4_delta(lam, lemma_3(lam + 1, 0.01, 1.0) * lam, 100, eps), 9)
    1e-05
    """
    x, total = _composed(lam, log_moments, steps)
    return float(((total + math.log(1 / check.open_unit("delta", delta))) / x).min())


# -- Theorem 1 --------------------------------------------------------------------------------


def theorem_1_sigma(
    epsilon: float, delta: float, records: int, steps: int, *, constant: float = 2.0
) -> float:
    """Theorem 1, (5.1): c_2 sqrt(N ln(1/delta)) / (m eps).

    The paper does not say c_2. (B.32) is solved by c_2 = 2, the default; the algebra before it
    asks for c_2 = 4, up to a term of lower order. *Neither is a valid noise multiplier* outside of
    :func:`theorem_1_largest_epsilon`: use :func:`dprl.privacy.noisy_gradient_sigma`.

    epsilon > 0, delta in (0, 1), records m >= 1, steps N >= 1, constant c_2 > 0.

    >>> round(theorem_1_sigma(0.1, 1e-5, 100_000, 100_000), 4)
    0.2146
    """
    eps, d = check.positive("epsilon", epsilon), check.open_unit("delta", delta)
    m, number = check.whole("records", records), check.whole("steps", steps)
    return check.positive("constant", constant) * math.sqrt(number * math.log(1 / d)) / (m * eps)


def equation_b_32_delta(
    epsilon: float, sigma: float, records: int, steps: int, *, factor: float = 1.0
) -> float:
    """(B.32): min over lambda of exp(f N lambda^2/(m sigma)^2 - lambda eps).

    It is exp(-(m sigma eps)^2/(4 f N)).

    epsilon and sigma > 0; records m, steps N; the factor f > 0 is 1 as printed in (B.32), 4 as in
    the line before it.

    >>> sigma = theorem_1_sigma(0.1, 1e-5, 1000, 1000)
    >>> round(equation_b_32_delta(0.1, sigma, 1000, 1000), 9)
    1e-05
    """
    eps, noise = check.positive("epsilon", epsilon), check.positive("sigma", sigma)
    m, number = check.whole("records", records), check.whole("steps", steps)
    f = check.positive("factor", factor)
    return math.exp(-((m * noise * eps) ** 2) / (4 * f * number))


def equation_b_32_minimiser(
    epsilon: float, sigma: float, records: int, steps: int, *, factor: float = 1.0
) -> float:
    """The lambda at which the minimum of (B.32) is attained, m^2 sigma^2 eps/(2 f N).

    Parameters as :func:`equation_b_32_delta`.

    >>> round(equation_b_32_minimiser(0.0179, 1.2011, 100_000, 100_000))
    1291
    """
    eps, noise = check.positive("epsilon", epsilon), check.positive("sigma", sigma)
    m, number = check.whole("records", records), check.whole("steps", steps)
    return (m * noise) ** 2 * eps / (2 * check.positive("factor", factor) * number)


def equation_b_31_cap(sigma: float, records: int) -> float:
    """(B.31): the largest lambda for which the moment bound is used, sigma^2 ln(m/sigma).

    sigma is positive and below m.

    >>> round(equation_b_31_cap(1.2011, 100_000), 1)
    16.3
    """
    noise, m = check.positive("sigma", sigma), check.whole("records", records)
    if noise >= m:
        raise ValueError(f"sigma must be below m = {m}, got {sigma!r}: then (B.31) allows nothing")
    return noise**2 * math.log(m / noise)


def theorem_1_largest_epsilon(records: int, steps: int, *, factor: float = 4.0) -> float:
    """The largest eps of which theorem 1 speaks, 2 f N ln(m sqrt(ln 2)) / m^2.

    (B.31) made explicit: the minimiser m^2 sigma^2 eps/(2 f N) must not exceed
    sigma^2 ln(m/sigma). sigma drops out but for the logarithm, which is largest at the smallest
    sigma allowed, sqrt(1/ln 2). So c_1 is 2 f ln(m sqrt(ln 2)). Parameters as
    :func:`equation_b_32_delta`.

    >>> round(theorem_1_largest_epsilon(100_000, 100_000), 5)
    0.00091
    """
    m, number = check.whole("records", records, 2), check.whole("steps", steps)
    f = check.positive("factor", factor)
    return 2 * f * number * math.log(m / SWITCH) / m**2


# -- Table 1 of the appendix ------------------------------------------------------------------


def table_1_signs(
    epsilon: float, sigma: float, records: int, steps: int, *, relative: float = 0.02
) -> IntArray:
    """Table 1 of the appendix as signs, from an accountant that holds; shape (5, 5).

    Entry (i, j) is the sign of the derivative of quantity i in quantity j, all others but these
    two fixed; the order is :data:`QUANTITIES`. The relation is symmetric; the diagonal is 0. From
    delta of :func:`dprl.privacy.noisy_gradient_delta` at two values of each of the four others.

    The derivatives are taken at epsilon and sigma > 0, records m and steps N, both at least
    1/relative; relative, in (0, 0.5), is the size of the differences.

    >>> table_1_signs(0.3, 2.0, 1000, 1000)[1].tolist()
    [-1, 0, 1, -1, -1]
    """
    r = check.open_unit("relative", relative)
    m, number = check.whole("records", records), check.whole("steps", steps)
    if r >= 0.5:
        raise ValueError(f"relative must be below 0.5, got {relative!r}")
    if min(m, number) * r < 1:
        raise ValueError(f"records and steps must be at least 1/relative = {1 / r:g}")
    at = {
        "epsilon": check.positive("epsilon", epsilon),
        "N": float(number),
        "sigma": check.positive("sigma", sigma),
        "m": float(m),
    }

    def delta(**changed: float) -> float:
        x = at | changed
        return noisy_gradient_delta(x["sigma"], round(x["m"]), round(x["N"]), x["epsilon"])

    slope = {
        name: float(np.sign(delta(**{name: v * (1 + r)}) - delta(**{name: v * (1 - r)})))
        for name, v in at.items()
    }
    # delta = D(eps, N, sigma, m), or F = D - delta = 0: dx_i/dx_j = -F_j/F_i
    gradient = np.array([slope.get(name, -1.0) for name in QUANTITIES])
    signs: IntArray = np.rint(-np.outer(gradient, gradient)).astype(np.int64)
    np.fill_diagonal(signs, 0)
    return signs


# -- parts ------------------------------------------------------------------------------------


def _composed(lam: ArrayLike, log_moments: ArrayLike, steps: int) -> tuple[FloatArray, FloatArray]:
    """The orders, and the log moments of all steps together."""
    x, alpha = check.positive_array("lam", lam), check.finite_array("log_moments", log_moments)
    if x.shape != alpha.shape or x.ndim != 1:
        raise ValueError(f"lam and log_moments must be alike, got {x.shape} and {alpha.shape}")
    return x, check.whole("steps", steps) * alpha


def _second_term(exponent: float) -> float:
    """min{4 (e^x - 1), 2 e^x}."""
    with np.errstate(over="ignore"):
        grown = float(np.exp(exponent))
    return min(4 * math.expm1(exponent), 2 * grown) if exponent < 700 else 2 * grown


def _all_terms(lam: ArrayLike, sigma: float, records: int, sensitivity: float) -> FloatArray:
    """ln of (3) at k = lambda + 1."""
    log_m = math.log(check.whole("records", records))

    def terms(k: int, j: FloatArray, growth: FloatArray) -> FloatArray:
        logs = _log_binomial(k, j) - j * log_m + math.log(2) + growth
        # 4 (e^x - 1) where it is smaller than 2 e^x, in logarithms
        logs[0] += min(math.log(2) + math.log(-math.expm1(-growth[0])), 0.0)
        return np.asarray(logs)

    return _log_sum(terms, lam, sigma, sensitivity)


def _log_sum(
    log_terms: Callable[[int, FloatArray, FloatArray], FloatArray],
    lam: ArrayLike,
    sigma: float,
    sensitivity: float,
) -> FloatArray:
    """ln(1 + sum_{j=2}^k of the terms) at k = lambda + 1, given j and (j - 1) eps_0(j)."""
    noise, s = check.positive("sigma", sigma), check.positive("sensitivity", sensitivity)
    whole = check.whole_array("the order lambda = alpha - 1", lam)
    if (whole > LARGEST_ORDER).any():
        raise ValueError(f"orders up to {LARGEST_ORDER:,} are summed, got {whole.max():g}")
    out = np.empty(whole.shape)
    for at in np.ndindex(whole.shape):
        k = int(whole[at]) + 1
        j = np.arange(2.0, k + 1)
        growth = j * (j - 1) * s**2 / (2 * noise**2)
        out[at] = np.logaddexp(0.0, special.logsumexp(log_terms(k, j, growth)))
    return out


def _log_binomial(k: int, j: FloatArray) -> FloatArray:
    return special.gammaln(k + 1) - special.gammaln(j + 1) - special.gammaln(k - j + 1)
