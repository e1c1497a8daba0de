r"""Utility of sub-sample-and-average for linear queries (thesis, sections 4.3 to 4.7).

A linear query is a mean, A_n(x) = (1/n) sum_i a(x_i) with values in R^d. Write ::

    Delta = sup ||a(x) - a(x')||,      V = E ||a(x) - E a(x)||^2 = Tr Sigma - ||mu||^2,

so that GS_2^(n)(A) = Delta/n. Utility is a mean squared error: the smaller the better. Two
mechanisms are compared, both (eps, delta)-private for neighbours that replace one record:

* the *plain* one releases A_n(x) + N(0, sigma^2 I), UT = d sigma^2;
* *sub-sample-and-average* averages m releases A_k + N(0, sigma_k^2 I), each on its own k of the
  n records. With s^2 = sigma_k^2/m its utility is (theorem 4.14, linear case)

      UT = d s^2 + (1/m) (1/k - 1/n) V.                                               (1)

Let T = n B/(m k), B binomial with m trials of probability k/n: the part of the influence of one
record that is left after sub-sampling. E T = 1, and

    w = Var T = (n/k - 1)/m,    so that the second term of (1) is w V/n.              (2)

**Printed calibration.** s^2 from theorem 4.7 at the base guarantee (4.9)-(4.10).

**Any calibration.** :mod:`dprl.bounds.subsampling_limits`: from a size of the sub-samples on
there is no less noise than in the plain mechanism, from a batch size on no better total utility.

Sizes and privacy parameters broadcast where nothing else is said. Sizes are integers.
"""

from __future__ import annotations

import math
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from dprl import _validation as check
from dprl._validation import FloatArray
from dprl.bounds.subsampling_limits import checked_records, plain_mechanism
from dprl.privacy.accounting import subsampled_gaussian_mu
from dprl.privacy.averages import averaged_gaussian_mu
from dprl.privacy.subsampling import base_guarantee_printed
from dprl.private_evaluation.subsampling_rule import equation_4_31

#: Theorem 4.7 is stated for eps < 1 and holds up to here: with c^2 = 2 ln(1.25/delta) and
#: z = c - eps/(2c) >= 0, delta_G <= Phi(-z) <= e^{eps/2 - c^2/2}/2 = delta e^{eps/2}/2.5.
LARGEST_CLASSICAL_EPSILON = 2 * math.log(2.5)


# -- the plain mechanism: theorem 4.9 -----------------------------------------------------


def theorem_4_9_printed(
    n: ArrayLike, epsilon: ArrayLike, delta: ArrayLike, *, scale: float = 1.0
) -> FloatArray:
    """Theorem 4.9 as printed: 2 ln(1.25/delta) ln(1/delta) d Delta^2 / (n^2 eps^2).

    The last display of its proof. The logarithm is there twice: theorem 4.7 has the variance
    2 ln(1.25/delta) GS^2/eps^2, which the printed C ln(1/delta) GS^2/eps^2 with
    C = 2 ln(1.25/delta) exceeds by ln(1/delta); for delta > 1/e it falls below, and close to
    delta = 1 it is too small to be private.

    n >= 1 records; epsilon in (0, 2 ln 2.5] and delta in (0, 1), where theorem 4.7 holds (it is
    stated for epsilon < 1); scale d Delta^2 > 0, with Delta = GS_2^(1)(A).

    >>> float(theorem_4_9_printed(100, 0.5, 0.1).round(6))
    0.004653
    """
    e, d = _classical_range(epsilon, delta)
    return np.asarray(-np.log(d) * theorem_4_9_corrected(n, e, d, scale=scale))


def theorem_4_9_corrected(
    n: ArrayLike, epsilon: ArrayLike, delta: ArrayLike, *, scale: float = 1.0
) -> FloatArray:
    """Theorem 4.9 corrected: 2 ln(1.25/delta) d Delta^2 / (n^2 eps^2).

    The utility of the Gaussian mechanism of theorem 4.7, an identity. The mechanism is
    (eps, delta)-private for neighbours that replace one record. Parameters as
    :func:`theorem_4_9_printed`.

    >>> float(theorem_4_9_corrected(100, 0.5, 0.1).round(6))
    0.002021
    """
    records, (e, d) = check.integer_array("n", n), _classical_range(epsilon, delta)
    size = check.positive("scale", scale)
    return np.asarray(2 * np.log(1.25 / d) * size / (records * e) ** 2)


# -- sampling error: section 4.5 ----------------------------------------------------------


def section_4_5_avss_squared(n: ArrayLike, k: ArrayLike, variance: ArrayLike) -> FloatArray:
    """Section 4.5: AVSS_2^2 = E ||A(x) - A(x~)||^2 = (1/k - 1/n) V; an identity for linear queries.

    n records and k in a sub-sample, integers, 1 <= k <= n; variance is V = Tr Sigma - ||mu||^2
    >= 0, in the thesis's notation Sigma = E a a^T, mu = E a.

    >>> float(section_4_5_avss_squared(20, 5, 0.25).round(12))
    0.0375
    """
    records, size = checked_records(n, k)
    v = check.array_from("variance", variance)
    return np.asarray((records - size) / (size * records) * v)


def equation_4_21_printed(m: ArrayLike, k: ArrayLike) -> FloatArray:
    """Equation (4.21) as printed, for the size of AVSS: 1/(k m).

    AVSS does not depend on m. The equation's own left side is (1/m) AVSS^2/V.

    >>> float(equation_4_21_printed(4, 5))
    0.05
    """
    return np.asarray(1 / (check.integer_array("m", m) * check.integer_array("k", k)))


def equation_4_21_corrected(n: ArrayLike, k: ArrayLike, variance: ArrayLike) -> FloatArray:
    """Equation (4.21) corrected: AVSS = sqrt((1/k - 1/n) V), which is 0 for k = n.

    Parameters as :func:`section_4_5_avss_squared`.

    >>> float(equation_4_21_corrected(20, 20, 0.25))
    0.0
    """
    return np.sqrt(section_4_5_avss_squared(n, k, variance))


# -- sub-sample-and-average: corollary 4.15 -----------------------------------------------


def corollary_4_15_printed(
    n: ArrayLike,
    m: ArrayLike,
    k: ArrayLike,
    base_epsilon: ArrayLike,
    base_delta: ArrayLike,
    variance: ArrayLike,
    *,
    scale: float = 1.0,
) -> FloatArray:
    """Corollary 4.15 as printed: the double logarithm of theorem 4.9 over m, plus AVSS^2/m.

    Parameters
    ----------
    n, m, k : array_like
        Records, sub-samples, size of a sub-sample; integers, m >= 1, 1 <= k <= n.
    base_epsilon, base_delta : array_like
        Guarantee of the base mechanism, in (0, 2 ln 2.5] and (0, 1). NaN gives NaN.
    variance, scale
        V as in :func:`section_4_5_avss_squared`, d Delta^2 as in :func:`theorem_4_9_printed`.

    Examples
    --------
    >>> float(corollary_4_15_printed(100, 4, 50, 0.5, 0.1, 0.25).round(6))
    0.005278
    """
    sampling = section_4_5_avss_squared(n, k, variance)
    noise = theorem_4_9_printed(k, base_epsilon, base_delta, scale=scale)
    return np.asarray((noise + sampling) / check.integer_array("m", m))


def corollary_4_15_corrected(
    n: ArrayLike,
    m: ArrayLike,
    k: ArrayLike,
    base_epsilon: ArrayLike,
    base_delta: ArrayLike,
    variance: ArrayLike,
    *,
    scale: float = 1.0,
) -> FloatArray:
    """Corollary 4.15 corrected: equation (1) with the noise of theorem 4.7. An identity.

    UT = 2 ln(1.25/delta~) d Delta^2/(m k^2 eps~^2) + (1/m)(1/k - 1/n) V. What the mechanism
    promises is another matter: see :mod:`dprl.privacy.subsampling`. Parameters as
    :func:`corollary_4_15_printed`.

    >>> float(corollary_4_15_corrected(100, 4, 50, 0.5, 0.1, 0.25).round(6))
    0.002646
    """
    sampling = section_4_5_avss_squared(n, k, variance)
    noise = theorem_4_9_corrected(k, base_epsilon, base_delta, scale=scale)
    return np.asarray((noise + sampling) / check.integer_array("m", m))


# -- theorem 4.16 -------------------------------------------------------------------------


def theorem_4_16_ratio(
    n: ArrayLike,
    m: ArrayLike,
    k: ArrayLike,
    epsilon: ArrayLike,
    delta: ArrayLike,
    slack: ArrayLike | None = None,
    *,
    logarithms: Literal["once", "twice"] = "once",
) -> FloatArray:
    """Noise of sub-sample-and-average over noise of the plain mechanism, printed calibration.

    The first term of corollary 4.15 at the base guarantee (4.9)-(4.10), over theorem 4.9 at
    (epsilon, delta): both noises by theorem 4.7. Theorem 4.16 says that it tends to 0 if
    k, m -> infinity and m k^2 grows faster than n^2 ln(mk/n); in truth it tends to infinity,
    see :func:`theorem_4_16_lower_bound`. NaN where :func:`printed_base` is.

    Parameters
    ----------
    n, m, k, epsilon, delta : array_like
        Integers, m >= 1, 1 <= k <= n; promise of both mechanisms, as in
        :func:`theorem_4_9_printed`.
    slack : array_like, optional
        delta' in (0, delta), by default delta/2.
    logarithms : {"once", "twice"}
        Theorem 4.9 as corrected, or as printed.

    Examples
    --------
    >>> float(theorem_4_16_ratio(10_000, 10**6, 5_000, 0.9, 1e-5).round(1))
    212.7
    """
    if logarithms not in ("once", "twice"):
        raise ValueError(f"logarithms must be 'once' or 'twice', got {logarithms!r}")
    single = logarithms == "once"
    over = corollary_4_15_corrected if single else corollary_4_15_printed
    under = theorem_4_9_corrected if single else theorem_4_9_printed
    base = printed_base(n, m, k, epsilon, delta, slack)
    return np.asarray(over(n, m, k, *base, 0.0) / under(n, epsilon, delta))


def theorem_4_16_lower_bound(
    n: ArrayLike,
    m: ArrayLike,
    k: ArrayLike,
    epsilon: ArrayLike,
    delta: ArrayLike,
    slack: ArrayLike | None = None,
) -> FloatArray:
    """A lower bound on :func:`theorem_4_16_ratio`: 8 ln(1/delta') ln(1.25/delta~)/ln(1.25/delta).

    Because eps~ of (4.9) is at most x = n eps/(k sqrt(8 m ln(1/delta'))), so that
    m k^2 eps~^2 <= n^2 eps^2/(8 ln(1/delta')). It exceeds 1 for all sizes if delta' <= delta
    and delta <= 3/4, for the default delta' = delta/2 at every delta. And it diverges under the
    hypotheses of theorem 4.16, because delta~ <= n delta/(m k) tends to 0.

    Parameters as :func:`theorem_4_16_ratio`; NaN in the same places.

    >>> float(theorem_4_16_lower_bound(10_000, 10**6, 5_000, 0.9, 1e-5).round(1))
    212.6
    """
    _, base_delta = printed_base(n, m, k, epsilon, delta, slack)
    d = np.asarray(delta, dtype=np.float64)
    prime = d / 2 if slack is None else np.asarray(slack, dtype=np.float64)
    return np.asarray(-8 * np.log(prime) * np.log(1.25 / base_delta) / np.log(1.25 / d))


def section_4_6_expression(
    m: ArrayLike, k: ArrayLike, base_epsilon: ArrayLike, base_delta: ArrayLike
) -> FloatArray:
    """The expression that sections 4.6 and 4.7 estimate: ln(1/delta~)/(m k^2 eps~^2).

    Parameters as :func:`corollary_4_15_printed`.

    >>> float(section_4_6_expression(4, 5, 0.5, 0.1).round(5))
    0.0921
    """
    e, d = _classical_range(base_epsilon, base_delta)
    return np.asarray(
        -np.log(d) / (check.integer_array("m", m) * (check.integer_array("k", k) * e) ** 2)
    )


def printed_base(
    n: ArrayLike,
    m: ArrayLike,
    k: ArrayLike,
    epsilon: ArrayLike,
    delta: ArrayLike,
    slack: ArrayLike | None = None,
) -> tuple[FloatArray, FloatArray]:
    """Base guarantee (4.9)-(4.10) where theorem 4.7 can make use of it, NaN elsewhere.

    Parameters as :func:`theorem_4_16_ratio`, but epsilon may be larger.

    Returns
    -------
    (ndarray, ndarray)
        eps~ in (0, 2 ln 2.5] and delta~ in (0, 1). NaN where eps* > 4 ln(1/delta'), where the
        base delta would be 1 or more, or the base epsilon more than 2 ln 2.5.

    Examples
    --------
    >>> e, d = printed_base(10_000, [16, 1], [2_500, 10], 1.0, 1e-5)
    >>> e.round(4).tolist(), (d * 1e6).round(3).tolist()
    ([0.0886, nan], [1.144, nan])
    """
    e, d = base_guarantee_printed(epsilon, delta, n, m, k, slack, refused="nan")
    e, d = np.asarray(e), np.asarray(d)
    usable = e <= LARGEST_CLASSICAL_EPSILON  # false for NaN
    return np.where(usable, e, np.nan), np.where(usable, d, np.nan)


# -- theorem 4.17 -------------------------------------------------------------------------


def theorem_4_17_printed(n: int, m: ArrayLike, k: ArrayLike, epsilon: float) -> FloatArray:
    """Theorem 4.17, equation (4.31) as printed: ln(mk/n)/(m k^2 eps^2) + 1/(k m^2).

    An order of magnitude. Its second term divides by m once too often. Read as a function to
    minimise, it is negative where ln(n/(m k)) > k eps^2/m: for eps <= 1 and n >= 8 its least value
    is 1 - ln(n)/eps^2, at m = k = 1. Integers m >= 1, 1 <= k <= n broadcast; epsilon > 0.

    >>> float(theorem_4_17_printed(10_000, 1, 1, 0.1).round(1))
    -920.0
    """
    _, size = checked_records(n, k)
    return equation_4_31(n, check.integer_array("m", m), size, epsilon)


def theorem_4_17_corrected(
    n: int, m: ArrayLike, k: ArrayLike, epsilon: float, variance: float
) -> FloatArray:
    """Theorem 4.17 corrected: ln(mk/n)/(m k^2 eps^2) + (1/m)(1/k - 1/n) V.

    The order of the utility under the printed calibration, for fixed eps, delta, delta' and V,
    if k, m -> infinity with m k^2 of the order n^2. The second term is exact.

    Parameters as :func:`theorem_4_17_printed`, and V >= 0.

    >>> rate = theorem_4_17_corrected(10**6, 10**4, 10**4, 1.0, 0.25)
    >>> bool(rate > 400 * theorem_4_17_printed(10**6, 10**4, 10**4, 1.0))
    True
    """
    count = check.integer_array("m", m)
    second = section_4_5_avss_squared(n, k, variance) / count
    misprint = equation_4_21_printed(m, k) / count  # 1/(k m^2)
    return np.asarray(theorem_4_17_printed(n, m, k, epsilon) + (second - misprint))


# -- ratio of utilities -------------------------------------------------------------------


class UtilityRatio(NamedTuple):
    """Utility of sub-sample-and-average over that of the plain mechanism."""

    #: noise + sampling.
    total: FloatArray
    #: Ratio of the two noise variances.
    noise: FloatArray
    #: The sampling error (1/m)(1/k - 1/n) V over the utility of the plain mechanism.
    sampling: FloatArray


def utility_ratio(
    n: ArrayLike,
    m: ArrayLike,
    k: ArrayLike,
    epsilon: float,
    delta: float,
    *,
    calibration: Literal["printed", "tight", "average"],
    variance: float,
) -> UtilityRatio:
    """How much worse sub-sample-and-average is, with one of three calibrations of its noise.

    =========== ========================================================= =================
    calibration noise of the m base releases                              plain mechanism
    =========== ========================================================= =================
    printed     theorem 4.7 at (4.9)-(4.10), delta' = delta/2             theorem 4.7
    tight       :func:`~dprl.privacy.accounting.subsampled_gaussian_mu`   analytic Gaussian
    average     :func:`~dprl.privacy.averages.averaged_gaussian_mu`       analytic Gaussian
    =========== ========================================================= =================

    The first two are (epsilon, delta)-private for neighbours that replace one record. The third
    is a lower bound: with less noise no accounting of any kind can certify the average. NaN where
    the printed calibration is not defined, see :func:`printed_base`. Noise 0 where even bare
    sub-samples are (0, delta)-private.

    Parameters
    ----------
    n, m, k : array_like
        Integers, m >= 1, 1 <= k <= n; they broadcast.
    epsilon, delta : float
        The promise: epsilon > 0, for "printed" at most 2 ln 2.5, and delta in (0, 1).
    calibration : {"printed", "tight", "average"}
    variance : float
        V/(d Delta^2) >= 0, at most 1/4 if d = 1: nothing else of the query matters.

    Notes
    -----
    "tight" costs about half a second for each pair (k/n, m), "average" a hundredth; answers are
    kept. Errors as :func:`~dprl.privacy.accounting.subsampled_gaussian_mu`.

    Examples
    --------
    >>> found = utility_ratio(10_000, 4, 5_000, 0.5, 1e-5, calibration="tight", variance=0.25)
    >>> [round(float(x), 2) for x in found]
    [13.76, 1.12, 12.64]
    """
    if not isinstance(calibration, str) or calibration not in ("printed", "tight", "average"):
        raise ValueError(f"calibration must be printed, tight or average, got {calibration!r}")
    eps, d = check.positive("epsilon", epsilon), check.open_unit("delta", delta)
    (records, size), count = checked_records(n, k), check.integer_array("m", m)
    if calibration == "printed":
        noise = theorem_4_16_ratio(n, m, k, eps, d)
        plain = theorem_4_9_corrected(n, eps, d)
    else:
        mu = plain_mechanism(eps, d).mu
        plain = 1 / (records * mu) ** 2
        largest = subsampled_gaussian_mu if calibration == "tight" else averaged_gaussian_mu
        noise = np.empty(np.broadcast(records, count, size).shape)
        for at, (number, q) in _cells(count, size / records, noise.shape):
            noise[at] = 1.0 if q == 1 else _noise_ratio(mu, largest(q, number, eps, d), q, number)
    sampling = section_4_5_avss_squared(n, k, variance) / count / plain
    noise, sampling = np.broadcast_arrays(np.asarray(noise), np.asarray(sampling))
    return UtilityRatio(np.asarray(noise + sampling), noise, sampling)


def _noise_ratio(mu: float, base: float, q: float, m: int) -> float:
    """s^2/sigma^2, with the signal u = q sqrt(m) base of the average."""
    return (mu / (q * math.sqrt(m) * base)) ** 2 if math.isfinite(base) else 0.0


def _cells(count: FloatArray, q: FloatArray, shape: tuple[int, ...]) -> Any:
    """Index, and m and q as plain numbers."""
    both = np.broadcast_to(count, shape), np.broadcast_to(q, shape)
    for at in np.ndindex(shape):
        yield at, (int(both[0][at]), float(both[1][at]))


# -- inside -------------------------------------------------------------------------------


def _classical_range(epsilon: ArrayLike, delta: ArrayLike) -> tuple[FloatArray, FloatArray]:
    """eps and delta where theorem 4.7 holds; NaN is passed on."""
    e, d = np.asarray(epsilon, dtype=np.float64), np.asarray(delta, dtype=np.float64)
    if ((e <= 0) | (e > LARGEST_CLASSICAL_EPSILON)).any():
        raise ValueError(
            "epsilon must be positive and at most 2 ln 2.5 = 1.83, where theorem 4.7 holds, "
            f"got {epsilon!r}"
        )
    if ((d <= 0) | (d >= 1)).any():
        raise ValueError(f"delta must lie strictly between 0 and 1, got {delta!r}")
    return e, d
