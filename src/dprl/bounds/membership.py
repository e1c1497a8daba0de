r"""What differential privacy promises against membership inference, and what an attack proves.

**The game.** A fair bit b is drawn. If b = 1 a record is in the training data, if b = 0 another
record of the same distribution is in its place (replace one) or none (add or remove one); all
other records are independent of b. The attack sees whatever is released and answers "member"
or not, with TPR = P(yes | b = 1) and FPR = P(yes | b = 0). If training is (epsilon,
delta)-differentially private for these neighbours, every attack obeys

    TPR <= e^epsilon FPR + delta,    1 - FPR <= e^epsilon (1 - TPR) + delta.          (1)

(1) is a statement on one record and one data set; averages over records, data sets and models
obey it too. The best TPR at a given FPR is :func:`dprl.privacy.largest_true_positive_rate`.

**The corner.** The two lines of (1) meet at FPR = F, TPR = 1 - F with F = (1 - delta) / (e^epsilon
+ 1). The region is convex, so the corner has the largest advantage, and the area below the
boundary through (0, delta), (F, 1 - F), (1 - delta, 1) is the largest area under an ROC curve:

    advantage  TPR - FPR <= (e^epsilon - 1 + 2 delta) / (e^epsilon + 1)               (2)
    AUC                  <= 1 - (1 - delta)^2 / (e^epsilon + 1)                       (3)

Randomised response that shows its bit with probability delta, and otherwise tells the truth
with probability e^epsilon / (e^epsilon + 1), attains (1), (2) and (3): they cannot be improved.
Yeom et al. print e^epsilon - 1 instead of (2), for delta = 0; it says nothing from ln 2 on.

**Precision.** With base rate pi, PR = pi TPR / (pi TPR + (1 - pi) FPR), and at a recall t (1)
allows no FPR below

    max{0, (t - delta) e^-epsilon, 1 - delta - e^epsilon (1 - t)}.                    (4)

For delta = 0 the odds of membership grow by at most e^epsilon. For delta > 0 a precision of 1 is
allowed, at recalls up to delta.

**Groups.** If k records are replaced together, (1) holds with

    (k epsilon,  delta (e^{k epsilon} - 1) / (e^epsilon - 1)).                        (5)

**Lower bounds.** A pair of rates (TPR, FPR) is possible only if epsilon is at least

    max{0, ln((TPR - delta) / FPR), ln((1 - delta - FPR) / (1 - TPR))}.               (6)

Let records come in n pairs of which a fair coin, independent of the others, puts one into the
training data; an attack guesses, from what was released, which one. If training is
epsilon-private (delta = 0, replace one), then

    P(guess i is right | release, coins before i) <= e^epsilon / (e^epsilon + 1),     (7)

for given the release and the coins before, the odds of coin i are a ratio of two averages over
the coins after i, and term by term these differ by a factor of at most e^epsilon. So the number
of right guesses is at most a binomial with that probability, in the stochastic order, although
all the guesses are about one model; which pairs are guessed may depend on the release. At
confidence 1 - a, with the one-sided bound p of Clopper and Pearson on r right of n guesses,

    epsilon >= max{0, ln(p / (1 - p))}.                                               (8)

Several models add up, if their coins are independent.

Sources: Kairouz, Oh and Viswanath 2015 (region); Yeom et al. 2018, theorem 1; Humphries et al.
2020 (2); Dwork and Roth 2014 (groups); Steinke, Nasr and Jagielski 2023 (one run).
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike

from dprl import _validation as check
from dprl._validation import BoolArray, FloatArray
from dprl.intervals import clopper_pearson_lower

# e^700 is about the largest number; from there on every bound below is its limit.
_LARGEST = 700.0


# -- from a promise to the attack -------------------------------------------------------------


def largest_advantage(epsilon: ArrayLike, delta: float = 0.0) -> FloatArray:
    """The largest TPR - FPR of any attack on an (epsilon, delta)-private release, (2); in [0, 1].

    The largest accuracy on a balanced test is (1 + this)/2.

    epsilon >= 0, of any shape, which the result has; delta in [0, 1).

    >>> largest_advantage([0.1, 1.0, 4.0]).round(3).tolist()
    [0.05, 0.462, 0.964]
    """
    eps, d = check.array_from("epsilon", epsilon), check.below_one("delta", delta)
    return np.asarray(1 - 2 * _corner(eps, d))


def yeom_advantage(epsilon: ArrayLike) -> FloatArray:
    """The bound e^epsilon - 1 as Yeom et al. print it (theorem 1), for delta = 0.

    True, and more than 1 from epsilon = ln 2 on; :func:`largest_advantage` is exact. epsilon lies
    in [0, 700].

    >>> yeom_advantage([0.1, 1.0]).round(3).tolist()
    [0.105, 1.718]
    """
    eps = check.array_from("epsilon", epsilon)
    if (eps > _LARGEST).any():
        raise ValueError(f"epsilon must be at most {_LARGEST:g} here, got {eps.max():g}")
    return np.asarray(np.expm1(eps))


def largest_auc(epsilon: ArrayLike, delta: float = 0.0) -> FloatArray:
    """The largest area under an ROC curve against an (epsilon, delta)-private release, (3).

    In [1/2, 1]. Parameters as :func:`largest_advantage`.

    >>> largest_auc([0.0, 1.0], delta=0.0).round(4).tolist()
    [0.5, 0.7311]
    """
    eps, d = check.array_from("epsilon", epsilon), check.below_one("delta", delta)
    return np.asarray(1 - (1 - d) * _corner(eps, d))


def smallest_false_positive_rate(
    recall: ArrayLike, epsilon: ArrayLike, delta: float = 0.0
) -> FloatArray:
    """The least FPR at which an attack may have a given recall (TPR), (4).

    The recalls in [0, 1] broadcast with epsilon; other parameters as :func:`largest_advantage`.

    >>> float(smallest_false_positive_rate(0.9, epsilon=1.0).round(4))
    0.7282
    """
    t, eps, d = (
        check.unit_array("recall", recall),
        check.array_from("epsilon", epsilon),
        check.below_one("delta", delta),
    )
    low = (t - d) * np.exp(-eps)
    # e^eps (1 - t) without an overflow: from 700 on it exceeds 1 unless t = 1
    high = 1 - d - np.exp(np.minimum(eps, _LARGEST)) * (1 - t)
    return np.asarray(np.maximum(np.maximum(low, high), 0.0))


def largest_precision(
    recall: ArrayLike, base_rate: ArrayLike, epsilon: ArrayLike, delta: float = 0.0
) -> FloatArray:
    """The largest precision of an attack with a given recall, from (4).

    Parameters
    ----------
    recall : array_like, shape (...)
        Each in (0, 1]: without a "yes" there is no precision.
    base_rate : array_like, shape (...)
        Share of members among the records that may be accused, each in (0, 1).
    epsilon, delta
        As in :func:`largest_advantage`; all shapes broadcast.

    Examples
    --------
    >>> float(largest_precision(0.01, base_rate=0.001, epsilon=1.0).round(5))
    0.00271
    """
    t, pi = check.unit_array("recall", recall), check.unit_array("base_rate", base_rate)
    if (t == 0).any():
        raise ValueError("recall must be above 0: an attack that names nobody has no precision")
    if (pi == 0).any() or (pi == 1).any():
        raise ValueError("base_rate must lie strictly between 0 and 1")
    fpr = smallest_false_positive_rate(t, epsilon, delta)
    return np.asarray(pi * t / (pi * t + (1 - pi) * fpr))


def group_privacy(epsilon: float, delta: float, size: int) -> tuple[float, float]:
    """epsilon and delta for ``size`` >= 1 records that are replaced together, (5).

    From epsilon >= 0 and delta in [0, 1) for one record. delta is cut at 1, where nothing is
    promised.

    >>> [round(x, 6) for x in group_privacy(0.1, 1e-6, 50)]
    [5.0, 0.001402]
    """
    eps, d = check.not_negative("epsilon", epsilon), check.below_one("delta", delta)
    k = check.whole("size", size)
    if d == 0:
        return k * eps, 0.0
    if eps == 0:
        return 0.0, min(k * d, 1.0)
    exponent = math.log(d) + (k - 1) * eps + _log1mexp(k * eps) - _log1mexp(eps)
    return k * eps, math.exp(min(exponent, 0.0))


# -- from a level to the promise --------------------------------------------------------------


def epsilon_for_advantage(advantage: ArrayLike, delta: float = 0.0) -> FloatArray:
    """The largest epsilon that keeps every attack's TPR - FPR at or below a level: (2) solved.

    It is also the least epsilon at which an attack with this advantage is possible.

    Advantages in [0, 1), of any shape, which the result has; delta in [0, 1). NaN where no epsilon
    does, as delta alone allows a larger advantage.

    >>> epsilon_for_advantage([0.0, 0.1, 0.5]).round(4).tolist()
    [0.0, 0.2007, 1.0986]
    >>> float(epsilon_for_advantage(0.1, delta=0.2))
    nan
    """
    a, d = _below_one("advantage", advantage), check.below_one("delta", delta)
    return _log_or_nan((1 + a - 2 * d) / (1 - a), np.asarray(a >= d))


def epsilon_for_auc(auc: ArrayLike, delta: float = 0.0) -> FloatArray:
    """The largest epsilon that keeps every attack's AUC at or below a level: (3) solved.

    For levels in [1/2, 1) and delta in [0, 1). NaN where no epsilon does, as delta alone allows a
    larger area.

    >>> epsilon_for_auc([0.5, 0.6, 0.9]).round(4).tolist()
    [0.0, 0.4055, 2.1972]
    """
    area, d = _below_one("auc", auc), check.below_one("delta", delta)
    if (area < 0.5).any():
        raise ValueError(f"auc must be at least 1/2, got {area.min():g}: turn the answers round")
    ratio = (1 - d) ** 2 / (1 - area) - 1
    return _log_or_nan(ratio, np.asarray(area >= largest_auc(0.0, d)))


def least_epsilon(tpr: ArrayLike, fpr: ArrayLike, delta: float = 0.0) -> FloatArray:
    """The least epsilon >= 0 at which an attack may have these rates, (6); may be infinite.

    The rates in [0, 1] are probabilities, not estimates; they broadcast. Where TPR < FPR turn the
    answers round first: 1 - TPR and 1 - FPR may ask for more. delta is in [0, 1). From
    estimates use :func:`dprl.privacy.epsilon_lower_bound` or :func:`epsilon_from_guesses`.

    >>> float(least_epsilon(0.3, 0.001).round(3)), float(least_epsilon(0.2, 0.0))
    (5.704, inf)
    """
    t, f = np.broadcast_arrays(check.unit_array("tpr", tpr), check.unit_array("fpr", fpr))
    d = check.below_one("delta", delta)
    with np.errstate(divide="ignore", invalid="ignore"):
        found = np.log(np.maximum(t - d, 0)) - np.log(f)
        silent = np.log(np.maximum(1 - d - f, 0)) - np.log(1 - t)
    # 0/0 asks for nothing: such a line of (1) holds for every epsilon
    both = np.fmax(np.where(t <= d, 0.0, found), np.where(f >= 1 - d, 0.0, silent))
    return np.asarray(np.maximum(both, 0.0))


# -- from counted guesses ---------------------------------------------------------------------


def epsilon_from_guesses(
    correct: ArrayLike, guesses: ArrayLike, confidence: float = 0.95
) -> FloatArray:
    """Lower bound on epsilon, >= 0, from guesses which record of a pair was used, (8).

    Each pair holds two records; a fair coin, independent of all others, put one of them into
    the training data. With a uniformly random half of a pool the coins are fair and
    independent if members and non-members are matched uniformly at random. For delta = 0
    and neighbours that replace one record.

    Whole numbers 0 <= correct <= guesses, which broadcast; with at least the probability
    confidence, in (0, 1), the bound does not exceed the true value.

    >>> epsilon_from_guesses([50, 90, 100], 100).round(3).tolist()
    [0.0, 1.631, 3.493]
    """
    level = 1 - check.open_unit("confidence", confidence)
    right, n = check.whole_array("correct", correct, 0), check.whole_array("guesses", guesses, 0)
    p = clopper_pearson_lower(right, n, level)
    with np.errstate(divide="ignore"):
        return np.asarray(np.maximum(np.log(p) - np.log1p(-p), 0.0))


# -- helpers ----------------------------------------------------------------------------------


def _corner(eps: FloatArray, delta: float) -> FloatArray:
    """FPR of the corner, (1 - delta) / (e^eps + 1), without an overflow."""
    small = np.exp(-eps)
    return np.asarray((1 - delta) * small / (1 + small))


def _log1mexp(x: float) -> float:
    """ln(1 - e^-x) for x > 0."""
    return math.log(-math.expm1(-x))


def _log_or_nan(ratio: FloatArray, defined: BoolArray) -> FloatArray:
    out = np.full(np.shape(ratio), np.nan)
    np.log(np.maximum(ratio, 1.0), out=out, where=defined)
    return out


def _below_one(name: str, values: ArrayLike) -> FloatArray:
    x = check.unit_array(name, values)
    if (x == 1).any():
        raise ValueError(f"{name} must be below 1: any epsilon keeps that level")
    return x
