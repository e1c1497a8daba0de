r"""Sample sizes and promises of sequential learning, as printed and as proved.

P is the distribution of an observation, P_n the empirical one, f* a minimiser of P f over
the class F, r_n the Rademacher penalty (:mod:`dprl.stopping.penalties`). Sampling stops at
the earliest after

    N(alpha, beta) = ceil( (2 / alpha^2) ln( 2 / (beta (1 - e^{-alpha^2/2})) ) )       (1)

observations, the least n with 2 e^{-n alpha^2/2} / (1 - e^{-alpha^2/2}) <= beta. By McDiarmid's
inequality, symmetrisation and a union over both and over all n >= N, with probability at
least 1 - beta

    sup_f (P - P_n)(f - f*) <= 2 r_n + 3 alpha    for all n >= N,                      (2)

so stopping at r_n < alpha makes the empirical minimiser (5 alpha, beta)-useful: its risk
exceeds the least one by more than 5 alpha with probability at most beta.

The private rule stops when n r_n - alpha n + nu_n < rho, with rho of scale 2/eps_1 and the
nu_n of scale 4/eps_1. Since

    Pr[rho - nu_n > x] = (2/3) e^{-eps_1 x/4} - (1/6) e^{-eps_1 x/2},    x >= 0,       (3)

with probability at least 1 - b no n >= N has rho - nu_n > kappa alpha n, where

    (2/3) e^{-eps_1 kappa alpha N/4} / (1 - e^{-eps_1 kappa alpha/4}) = b.             (4)

With a function drawn by the exponential mechanism with eps_2, the released one is
(k_1 alpha, beta + b + c)-useful,

    k_1 = 5 + 2 kappa + 2 ln(|F|/c) / (eps_2 alpha N).                                 (5)

The poster prints 5 + 3 eps/(alpha N). The proofs are on the page on sequential learning.
"""

from __future__ import annotations

import math

from numpy.typing import ArrayLike
from scipy import optimize

from dprl import _validation as check
from dprl._validation import FloatArray

_LEAST = 1e-7  # tolerance: below, no number of records is large enough


def initial_sample_size(alpha: float, beta: float) -> int:
    """N(alpha, beta) of (1): no stopping before.

    The tolerance alpha is at least 1e-7, as less would ask for more than 10^15 records; the allowed
    probability of failure beta lies in (0, 1).

    >>> initial_sample_size(0.1, 0.05), initial_sample_size(0.5, 0.5)
    (1798, 29)
    """
    a, b = _tolerance(alpha), check.open_unit("beta", beta)
    size = 2 / a**2 * (math.log(2) - math.log(b) - math.log(-math.expm1(-(a**2) / 2)))
    return max(1, math.ceil(size))


def _tolerance(alpha: float) -> float:
    a = check.positive("alpha", alpha)
    if not _LEAST <= a <= 1 / _LEAST:
        raise ValueError(f"alpha must lie in [{_LEAST:g}, {1 / _LEAST:g}], got {alpha!r}")
    return a


def deviation_failure(alpha: float, start: int) -> float:
    """Upper bound on the probability that (2) fails for some n >= start.

    2 e^{-n alpha^2/2} / (1 - e^{-alpha^2/2}) at n = start >= 1, alpha as in
    :func:`initial_sample_size`; it may exceed 1.

    >>> deviation_failure(0.1, 1798) <= 0.05 < deviation_failure(0.1, 1797)
    True
    """
    a, n = _tolerance(alpha), check.whole("start", start)
    return 2 * math.exp(-n * a**2 / 2) / -math.expm1(-(a**2) / 2)


# -- the private rule ------------------------------------------------------------------------


def noise_allowance(alpha: float, start: int, epsilon_stop: float, failure: float) -> float:
    """kappa of (4): how far the noise may lead the rule astray, in units of alpha n.

    alpha > 0; start N >= 1, the first n at which the rule may stop; epsilon_stop, eps_1, > 0;
    failure b in (0, 1).

    >>> round(noise_allowance(0.1, 1798, 1.0, 0.025), 3)
    0.192
    """
    a, n = check.positive("alpha", alpha), check.whole("start", start)
    eps, b = check.positive("epsilon_stop", epsilon_stop), check.open_unit("failure", failure)
    target = math.log(2 / 3 / b)

    def excess(log_x: float) -> float:  # x = eps_1 kappa alpha / 4
        x = math.exp(log_x)
        return n * x + math.log(-math.expm1(-x)) - target

    log_x = optimize.brentq(excess, -200.0, 50.0, xtol=1e-14)
    return 4 * math.exp(log_x) / (eps * a)


def usefulness_factor(
    alpha: float,
    beta: float,
    class_size: float,
    epsilon_stop: float,
    epsilon_choice: float,
    *,
    extra: float | None = None,
) -> float:
    """k_1 of (5): the release of the private rule is (k_1 alpha, beta + extra)-useful.

    The extra probability of failure is halved between the noise of the rule and the choice
    of the function, b = c = extra/2.

    Parameters
    ----------
    alpha, beta : float
        As given to the rule.
    class_size : float
        |F| >= 1, public. A float, as the class may be as large as 2^1000.
    epsilon_stop, epsilon_choice : float
        eps_1, eps_2 > 0.
    extra : float, optional
        In (0, 1); by default beta.

    Examples
    --------
    >>> round(usefulness_factor(0.1, 0.025, 64, 0.5, 0.5), 2)
    5.95
    >>> round(usefulness_factor(0.1, 0.025, 64, 5e6, 5e6), 4)
    5.0
    """
    size = _size(class_size)
    eps = check.positive("epsilon_choice", epsilon_choice)
    half = check.open_unit("extra", beta if extra is None else extra) / 2
    n = initial_sample_size(alpha, beta)
    choice = 2 * (math.log(size) - math.log(half)) / (eps * alpha * n)
    return 5 + 2 * noise_allowance(alpha, n, epsilon_stop, half) + choice  # (5)


def usefulness_factor_printed(alpha: float, beta: float, epsilon: ArrayLike) -> FloatArray:
    """k_1 as the poster prints it, 5 + 3 eps/(alpha N): it falls as eps does.

    alpha and beta as in :func:`initial_sample_size`; epsilon > 0, of any shape.

    >>> usefulness_factor_printed(0.1, 0.05, [0.001, 1.0]).round(4).tolist()
    [5.0, 5.0167]
    """
    return 5 + _printed_overhead(alpha, beta, epsilon)


def efficiency_factor_printed(alpha: float, beta: float, epsilon: ArrayLike) -> FloatArray:
    """k_2 as the poster prints it, 6 + 3 eps/(alpha N).

    Parameters as in :func:`usefulness_factor_printed`.

    >>> efficiency_factor_printed(0.1, 0.05, 1.0).round(4).tolist()
    6.0167
    """
    return 6 + _printed_overhead(alpha, beta, epsilon)


def efficiency_factor(alpha: float, beta: float, epsilon_stop: float) -> float:
    """k_2 = 6 + 4 ln(2/(3 beta)) / (eps_1 alpha N(alpha, beta)) of the private rule.

    Run at tolerance k_2 alpha, the rule is later than tau with probability at most
    :func:`lateness` + beta, for every rule tau >= N(alpha, beta) that has
    Pr[sup_f |P_tau f - P f| > alpha] <= beta. Without noise it is 6 and :func:`lateness`.

    alpha and beta as in :func:`initial_sample_size`, eps_1 > 0.

    >>> round(efficiency_factor(0.1, 0.05, 1.0), 4)
    6.0576
    """
    eps, n = check.positive("epsilon_stop", epsilon_stop), initial_sample_size(alpha, beta)
    return 6 + 4 * max(math.log(2 / (3 * beta)), 0.0) / (eps * alpha * n)


def lateness(alpha: float, beta: float) -> float:
    """Bound on Pr[later than tau] of :func:`efficiency_factor`, without the rule's noise.

    beta + e^{-N alpha^2/2} + e^{-2 N alpha^2} / (1 - e^{-2 alpha^2}), N = N(alpha, beta): the
    failures of tau, of r_n at one n, and of sup_f |P_n f - P f| at some n >= N. It is at most
    (1 + alpha^2/4) beta. Parameters as in :func:`initial_sample_size`.

    >>> round(lateness(0.1, 0.05), 6)
    0.050125
    """
    n = initial_sample_size(alpha, beta)
    once = math.exp(-n * alpha**2 / 2)
    return beta + once + once**4 / -math.expm1(-2 * alpha**2)


def _printed_overhead(alpha: float, beta: float, epsilon: ArrayLike) -> FloatArray:
    eps = check.positive_array("epsilon", epsilon)
    return 3 * eps / (alpha * initial_sample_size(alpha, beta))


# -- sample sizes for one promise --------------------------------------------------------------


def penalty_constant(class_size: float) -> float:
    """c with E r_n <= c / sqrt(n) for every class of |F| >= 1 functions and every P (Massart).

    >>> round(penalty_constant(64), 3)
    3.115
    """
    return math.sqrt(2 * math.log(2 * _size(class_size)))


def subset_penalty_constant(atoms: int) -> float:
    """c with E r_n <= c / sqrt(n) for all sets of m >= 1 atoms and every P: (sqrt(m) + 1)/2.

    m is the VC dimension. S_n = (sum_a |c_a| + |sum_a c_a|)/2 and E|c_a| <= sqrt(n p_a).

    >>> subset_penalty_constant(100)
    5.5
    """
    return (math.sqrt(check.whole("atoms", atoms)) + 1) / 2


def fixed_sample_size(tolerance: float, beta: float, constant: float) -> int:
    """Sample size, fixed in advance, that is (tolerance, beta)-useful whatever P is.

    The same tools as (2), for one n: the excess risk is at most 2 E r_n + t with probability
    at least 1 - e^{-n t^2/2}, and E r_n <= c / sqrt(n).

    tolerance > 0, which is 5 alpha for the promise of the sequential rule at alpha; beta in (0, 1);
    constant c >= 0, from :func:`penalty_constant` or :func:`subset_penalty_constant`.

    >>> fixed_sample_size(0.5, 0.05, penalty_constant(64))
    302
    """
    t, b = check.positive("tolerance", tolerance), check.open_unit("beta", beta)
    c = check.not_negative("constant", constant)
    return math.ceil(((2 * c + math.sqrt(-2 * math.log(b))) / t) ** 2)


def fixed_private_sample_size(
    tolerance: float, beta: float, class_size: float, epsilon: float
) -> int:
    """Fixed size after which the exponential mechanism alone is (tolerance, beta)-useful.

    For k functions: Hoeffding's inequality for each, and the whole budget for the choice:
    sqrt(2 ln(2 (k - 1)/beta) / n) + 2 ln(2k/beta) / (epsilon n) <= tolerance. With epsilon
    infinite it is a size for the empirical minimiser, which leaves half of beta unused.

    tolerance > 0, beta in (0, 1), class_size k >= 2, epsilon > 0, infinity allowed.

    >>> fixed_private_sample_size(0.5, 0.05, 64, 1.0)
    118
    >>> fixed_private_sample_size(0.5, 0.05, 64, float("inf"))
    63
    """
    t, b = check.positive("tolerance", tolerance), check.open_unit("beta", beta)
    k = _size(class_size)
    if k < 2:
        raise ValueError(f"class_size must be at least 2, got {class_size!r}")
    eps = epsilon if epsilon == math.inf else check.positive("epsilon", epsilon)
    spread = math.sqrt(2 * (math.log(k - 1) + math.log(2 / b)))
    choice = 2 * (math.log(k) + math.log(2 / b)) / eps
    # spread sqrt(n) + choice <= t n: a quadratic in sqrt(n)
    root = (spread + math.sqrt(spread**2 + 4 * t * choice)) / (2 * t)
    return max(1, math.ceil(root**2))


def sequential_private_sample_size(
    tolerance: float, beta: float, class_size: float, epsilon_stop: float, epsilon_choice: float
) -> int:
    """Least number of observations of a private rule that is (tolerance, beta)-useful by (5).

    The largest alpha with k_1 alpha <= tolerance, half of beta for (2) and half for the
    noise; then N(alpha, beta/2), at which the rule stops at the earliest. O(1) bisection.

    tolerance > 0, beta in (0, 1), class_size |F| >= 1, epsilon_stop and epsilon_choice > 0.

    >>> sequential_private_sample_size(0.5, 0.05, 64, 0.5, 0.5)
    2697
    """
    t, b = check.positive("tolerance", tolerance), check.open_unit("beta", beta)

    def excess(log_alpha: float) -> float:
        a = math.exp(log_alpha)
        factor = usefulness_factor(a, b / 2, class_size, epsilon_stop, epsilon_choice)
        return factor * a - t

    low, high = math.log(t / 5) - 1, math.log(t / 5)
    while excess(low) > 0:
        low -= 1
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (low, middle) if excess(middle) > 0 else (middle, high)
    return initial_sample_size(math.exp(low), b / 2)


def packing_limit(epsilon: float, samples: int, failure: float) -> float:
    """Most distributions with disjoint good answers that a private learner can serve.

    If an epsilon-private algorithm looks at no more than ``samples`` observations and gives
    a good answer, each with probability at least 1 - failure, for each of k distributions
    that have no good answer in common, then k (1 - failure) <= e^{epsilon samples}.

    epsilon > 0, samples >= 1; failure, in (0, 1), is no good answer, or more observations.

    >>> round(packing_limit(0.1, 100, 0.05))  # infinite where it is too large for a float
    23186
    """
    eps, n = check.positive("epsilon", epsilon), check.whole("samples", samples)
    b = check.open_unit("failure", failure)
    exponent = eps * n
    return math.inf if exponent > 700 else math.exp(exponent) / (1 - b)


def _size(class_size: float) -> float:
    size = check.real("class_size", class_size)
    if size < 1:
        raise ValueError(f"class_size must be at least 1, got {class_size!r}")
    return size
