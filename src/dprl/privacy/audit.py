r"""Auditing: a lower bound on epsilon, from samples of a mechanism on two neighbouring inputs.

Let P and Q be the distributions of a mechanism's output on neighbouring data X and X'.
(epsilon, delta)-differential privacy says of every event O (thesis, equation 2.10)

    P(O) <= e^epsilon Q(O) + delta    and    Q(O) <= e^epsilon P(O) + delta.    (1)

Read O as a test that decides "the data were X": Q(O) is its false positive rate and
P(O) its true positive rate, and (1), for O and for its complement, confines the two to

    TPR <= min{ e^epsilon FPR + delta,  1 - e^-epsilon (1 - delta - FPR) }.     (2)

One event that breaks (1) refutes the promise. From k hits in n runs on X and k' hits in
n' runs on X', at confidence 1 - a, the one-sided bounds of Clopper and Pearson
(:mod:`dprl.intervals`) at a/2 each,

    P(O) >= p_low(k, n),    Q(O) <= q_up(k', n'),                               (3)

hold together with probability at least 1 - a, and then

    epsilon >= max{ 0, ln( (p_low - delta) / q_up ) }.                          (4)

(3) is about an event that was fixed before its hits were counted. Therefore
:func:`~dprl.privacy.audit.audit_samples` splits the runs at random: one part chooses the
event and which of the two inequalities (1) to test, the other part counts. Only one event
is counted, so no correction is needed.

What (4) means: with probability at least the stated confidence the mechanism is *not*
(epsilon', delta)-private for any epsilon' below the bound. It is no upper bound: a small
number may mean a private mechanism, the wrong neighbours, the wrong event, or too few runs.
No audit with n and n' counted runs can report more than (4) at k = n, k' = 0.

Sources: Clopper and Pearson 1934; Ding et al. 2018 and Jagielski, Ullman and Oprea 2020
(audits of this kind); Kairouz, Oh and Viswanath 2015 (the region (2)).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dprl import _validation as check
from dprl._validation import FloatArray
from dprl.intervals import clopper_pearson_lower, clopper_pearson_upper
from dprl.privacy.guarantee import Guarantee

#: One number per run, larger if the output speaks for the first input.
Score = Callable[[NDArray[Any]], ArrayLike]
#: Learns a score from the tuning runs on the first and on the second input.
Fit = Callable[[NDArray[Any], NDArray[Any]], Score]

#: At most about this many thresholds are tried on the tuning runs.
_THRESHOLDS = 256


# -- the bound ------------------------------------------------------------------------------


def epsilon_lower_bound(
    count: ArrayLike,
    trials: ArrayLike,
    count_other: ArrayLike,
    trials_other: ArrayLike,
    *,
    delta: float,
    confidence: float = 0.95,
) -> FloatArray:
    """The bound (4) for an event that was fixed before it was counted.

    count hits in trials runs on the input that makes the event more likely, count_other in
    trials_other on the other, all of shape (...), which the result has; delta in [0, 1), confidence
    1 - a in (0, 1). At least 0.

    >>> float(epsilon_lower_bound(500, 1000, 100, 1000, delta=0.0).round(3))
    1.36
    """
    a = 1 - check.open_unit("confidence", confidence)
    p_low = clopper_pearson_lower(count, trials, a / 2)
    q_up = clopper_pearson_upper(count_other, trials_other, a / 2)
    return _log_ratio(p_low, q_up, check.below_one("delta", delta))


def largest_certifiable_epsilon(
    trials: ArrayLike, trials_other: ArrayLike, *, delta: float, confidence: float = 0.95
) -> FloatArray:
    """The most that (4) can ever report: hit in every run on one input, in none on the other.

    Parameters as :func:`epsilon_lower_bound`.

    >>> float(largest_certifiable_epsilon(10_000, 10_000, delta=0.0).round(2))
    7.9
    """
    return epsilon_lower_bound(
        trials, trials, np.zeros(()), trials_other, delta=delta, confidence=confidence
    )


def largest_true_positive_rate(
    false_positive_rate: ArrayLike, epsilon: float, delta: float
) -> FloatArray:
    """The best any test can do against an (epsilon, delta)-private mechanism, inequality (2).

    False positive rates in [0, 1], of any shape; epsilon >= 0, delta in [0, 1).

    >>> float(largest_true_positive_rate(0.05, epsilon=0.1, delta=0.0).round(4))
    0.0553
    """
    fpr = check.unit_array("false_positive_rate", false_positive_rate)
    eps, d = check.not_negative("epsilon", epsilon), check.below_one("delta", delta)
    with np.errstate(divide="ignore"):
        rising = np.exp(np.minimum(eps + np.log(fpr), 0.0)) + d
    falling = 1 - np.exp(-eps) * (1 - d - fpr)
    out: FloatArray = np.clip(np.minimum(rising, falling), 0.0, 1.0)  # (2)
    return out


# -- the audit ---------------------------------------------------------------------------


@dataclass(frozen=True)
class AuditResult:
    """What an audit found. See the module for what it means and what it does not.

    Attributes
    ----------
    epsilon_lower : float
        The bound (4).
    delta, confidence : float
        At which it was asked, and with which probability it is right.
    threshold : float
        The event is "score >= threshold" or "score <= threshold", chosen on the tuning runs.
    above : bool
        Whether it is the first of these.
    swapped : bool
        False if the event is more likely under the first input, so that the first
        inequality (1) was tested; True if under the second.
    count, trials, count_other, trials_other : int
        Hits and counted runs on the input that makes the event more likely; hits and counted runs
        on the other input.
    probability_lower, probability_upper, largest_certifiable : float
        p_low and q_up of (3); the most that this many runs could ever have reported.
    """

    epsilon_lower: float
    delta: float
    confidence: float
    threshold: float
    above: bool
    swapped: bool
    count: int
    trials: int
    count_other: int
    trials_other: int
    probability_lower: float
    probability_upper: float
    largest_certifiable: float

    def contradicts(self, guarantee: Guarantee) -> bool:
        """Whether a promise is refuted: the bound exceeds its epsilon.

        A promise that is kept is refuted with probability at most 1 - confidence.

        ValueError if the audit's delta is smaller than the promised one: then a large bound
        contradicts nothing.

        >>> rng = np.random.default_rng(0)
        >>> found = audit_samples(np.zeros(1000), np.ones(1000), delta=0.0, rng=rng)
        >>> found.contradicts(Guarantee(1.0, 0.0, "replace one record"))
        True
        """
        check.instance("guarantee", guarantee, Guarantee)
        if self.delta < guarantee.delta:
            raise ValueError(
                f"the audit was made at delta = {self.delta:g}, which says nothing about a "
                f"promise with the larger delta = {guarantee.delta:g}"
            )
        return self.epsilon_lower > guarantee.epsilon

    def __str__(self) -> str:
        return (
            f"epsilon >= {self.epsilon_lower:.3g} at delta = {self.delta:g} "
            f"with confidence {self.confidence:g}; {self.trials} + {self.trials_other} counted "
            f"runs can certify at most {self.largest_certifiable:.3g}"
        )


def audit_samples(
    samples: ArrayLike,
    samples_other: ArrayLike,
    *,
    delta: float,
    rng: np.random.Generator,
    confidence: float = 0.95,
    score: Score | None = None,
    fit: Fit | None = None,
) -> AuditResult:
    """Lower bound on epsilon from independent runs on two neighbouring inputs.

    The runs are split at random into halves. On the tuning runs every event "score >= t" and "score
    <= t" (about 256 thresholds t) is tried in both directions, and the one with the
    largest bound (4) is kept; the others are then counted for this event alone.

    Parameters
    ----------
    samples : array_like, shape (n, ...)
        Outputs of n runs on the first input; runs are independent of each other and of
        the runs on the second input.
    samples_other : array_like, shape (n', ...)
        Outputs of n' runs on the second input.
    delta : float
        In [0, 1).
    rng : numpy.random.Generator
        Splits the runs.
    confidence : float
        In (0, 1): with at least this probability the bound does not exceed the true value.
    score : callable, optional
        Outputs (n, ...) -> one number each, (n,); fixed without looking at these samples.
        The best is the log-likelihood ratio of the two outputs where it is known (Neyman
        and Pearson), for Gaussian noise
        :func:`~dprl.privacy.gaussian_pair.gaussian_pair_loss`. Infinite values are allowed.
    fit : callable, optional
        Learns the score from the tuning runs, for example :func:`fit_frequencies`. By
        default the number itself for outputs of shape (n,), else :func:`fit_projection`.

    Raises
    ------
    ValueError
        If a parameter is out of range, there are fewer than two runs for either part, or
        a score is not one number (infinite, but not NaN) per run.

    Examples
    --------
    >>> rng = np.random.default_rng(1)
    >>> bits = rng.random((2, 40_000)) < np.array([[0.75], [0.25]])  # randomised response
    >>> print(audit_samples(*bits.astype(float), delta=0.0, rng=rng))
    epsilon >= 1.06 at delta = 0 with confidence 0.95; 20000 + 20000 counted runs can \
certify at most 8.6
    """
    first, second = np.asarray(samples), np.asarray(samples_other)
    d, level = check.below_one("delta", delta), 1 - check.open_unit("confidence", confidence)
    if first.ndim == 0 or second.ndim == 0 or first.shape[1:] != second.shape[1:]:
        raise ValueError(
            "samples must have one output per run in the first axis and the same shape "
            f"otherwise, got {first.shape} and {second.shape}"
        )
    if score is not None and fit is not None:
        raise ValueError("give a score that is fixed, or a fit that learns one, not both")
    tune, held = _split(first, check.generator(rng))
    tune_other, held_other = _split(second, rng)
    if score is None:
        score = (fit or _default_fit)(tune, tune_other)

    # choose the event: candidates x (above, below) x (first over second, second over first)
    s, s_other = _scores(score, tune), _scores(score, tune_other)
    thresholds = _candidates(s, s_other)
    above, above_other = _count_above(s, thresholds), _count_above(s_other, thresholds)
    below, below_other = _count_above(-s, -thresholds), _count_above(-s_other, -thresholds)
    rate = np.array([above, below]) / s.size
    rate_other = np.array([above_other, below_other]) / s_other.size
    n, n_other = len(held), len(held_other)
    gains = np.array(
        [
            _raw_bound(rate * n, n, rate_other * n_other, n_other, d, level),
            _raw_bound(rate_other * n_other, n_other, rate * n, n, d, level),
        ]
    )
    swapped, side, at = (int(i) for i in np.unravel_index(gains.argmax(), gains.shape))
    threshold, is_above = float(thresholds[at]), side == 0

    # count it on the other runs
    hits = [
        int((x >= threshold).sum() if is_above else (x <= threshold).sum())
        for x in (_scores(score, held), _scores(score, held_other))
    ]
    runs = [n, n_other]
    if swapped:
        hits, runs = hits[::-1], runs[::-1]
    p_low = clopper_pearson_lower(hits[0], runs[0], level / 2)
    q_up = clopper_pearson_upper(hits[1], runs[1], level / 2)
    most = largest_certifiable_epsilon(runs, runs[::-1], delta=d, confidence=confidence)
    return AuditResult(
        epsilon_lower=float(_log_ratio(p_low, q_up, d)),
        delta=d,
        confidence=float(confidence),
        threshold=threshold,
        above=is_above,
        swapped=bool(swapped),
        count=hits[0],
        trials=runs[0],
        count_other=hits[1],
        trials_other=runs[1],
        probability_lower=float(p_low),
        probability_upper=float(q_up),
        largest_certifiable=float(most.max()),
    )


def run_trials(
    mechanism: Callable[[Any, np.random.Generator], ArrayLike],
    data: Any,
    trials: int,
    rng: np.random.Generator,
) -> NDArray[Any]:
    """Run a mechanism many times on the same input; outputs stacked in the first axis.

    For mechanisms that cannot be vectorised: ``mechanism(data, rng)`` returns an output of the
    same shape in every run. The generator goes on from run to run, so the runs are independent,
    unless the mechanism makes its own noise.

    >>> def noisy_sum(data, rng):
    ...     return sum(data) + rng.laplace()
    >>> run_trials(noisy_sum, [1, 0, 1], 5, np.random.default_rng(0)).shape
    (5,)
    """
    source, n = check.generator(rng), check.whole("trials", trials)
    return np.stack([np.asarray(mechanism(data, source)) for _ in range(n)])


# -- scores ------------------------------------------------------------------------------


def fit_projection(tune: NDArray[Any], tune_other: NDArray[Any]) -> Score:
    """Score = inner product with the difference of the two means of the tuning runs.

    Runs of shape (n, ...) and (n', ...). Right for noise of one shape around two means; blind to
    a change of the noise.

    >>> score = fit_projection(np.array([[1.0, 0.0]]), np.array([[0.0, 0.0]]))
    >>> np.asarray(score(np.array([[2.0, 5.0]]))).tolist()
    [2.0]
    """
    first, second = (check.finite_array("samples", x) for x in (tune, tune_other))
    direction = (first.mean(axis=0) - second.mean(axis=0)).ravel()

    def score(outputs: NDArray[Any]) -> FloatArray:
        y = check.finite_array("samples", outputs)
        out: FloatArray = y.reshape(len(y), -1) @ direction
        return out

    return score


def fit_frequencies(tune: NDArray[Any], tune_other: NDArray[Any]) -> Score:
    """Score = log of the ratio of smoothed frequencies of each distinct output.

    Runs of shape (n, ...) and (n', ...), of any type without object fields. For outputs with few
    values, or with values that give the input away: its events are sets of outputs, not
    intervals. An output that the tuning runs did not have gets 0. O(n log n); each distinct output
    is kept.

    >>> score = fit_frequencies(np.array([1, 1, 3]), np.array([2, 2, 3]))
    >>> np.asarray(score(np.array([1, 2, 3, 4]))).round(3).tolist()
    [1.609, -1.609, 0.0, 0.0]
    """
    rows = [_rows(x) for x in (tune, tune_other)]
    values, index = np.unique(np.concatenate(rows), return_inverse=True)
    hits = [
        np.bincount(part, minlength=values.size) for part in np.split(index.ravel(), [rows[0].size])
    ]
    smoothed = [(h + 0.5) / (r.size + 1) for h, r in zip(hits, rows, strict=True)]
    log_ratio = np.log(smoothed[0] / smoothed[1])

    def score(outputs: NDArray[Any]) -> FloatArray:
        y = _rows(outputs)
        at = np.minimum(np.searchsorted(values, y), values.size - 1)
        return np.where(values[at] == y, log_ratio[at], 0.0)

    return score


# -- helpers -----------------------------------------------------------------------------


def _log_ratio(p_low: FloatArray, q_up: FloatArray, delta: float) -> FloatArray:
    """(4)."""
    excess = p_low - delta
    return np.maximum(np.log(np.where(excess > 0, excess, q_up) / q_up), 0.0)


def _raw_bound(
    count: FloatArray,
    trials: int,
    count_other: FloatArray,
    trials_other: int,
    delta: float,
    level: float,
) -> FloatArray:
    """(4) without the maximum, so that hopeless events can be told apart."""
    p_low = clopper_pearson_lower(np.minimum(count, trials), trials, level / 2)
    q_up = clopper_pearson_upper(np.minimum(count_other, trials_other), trials_other, level / 2)
    excess = p_low - delta
    ratio = np.log(np.where(excess > 0, excess, 1.0) / q_up)
    # where p_low <= delta there is no logarithm: those events come last, by p_low
    return np.where(excess > 0, ratio, np.log(np.finfo(np.float64).tiny) + excess)


def _split(samples: NDArray[Any], rng: np.random.Generator) -> tuple[NDArray[Any], NDArray[Any]]:
    size = len(samples) // 2
    if size < 2:
        raise ValueError(
            "at least two runs are needed to choose the event and two to count, "
            f"got {len(samples)} in all"
        )
    order = rng.permutation(len(samples))
    return samples[order[:size]], samples[order[size:]]


def _default_fit(tune: NDArray[Any], tune_other: NDArray[Any]) -> Score:
    if tune.ndim == 1:
        return lambda outputs: check.finite_array("samples", outputs, ndim=1)
    return fit_projection(tune, tune_other)


def _scores(score: Score, outputs: NDArray[Any]) -> FloatArray:
    s = np.asarray(score(outputs))
    if s.shape != (len(outputs),) or s.dtype.kind not in "biuf":
        raise ValueError(
            f"score must give one number for each of the {len(outputs)} runs, got "
            f"{s.dtype} of shape {s.shape}"
        )
    s = s.astype(np.float64)
    if np.isnan(s).any():
        raise ValueError("score gave NaN")
    return s


def _candidates(scores: FloatArray, scores_other: FloatArray) -> FloatArray:
    """Observed scores: all, or a selection that is dense in both tails."""
    values = np.unique(np.concatenate([scores, scores_other]))
    if values.size <= _THRESHOLDS:
        return values
    quarter = _THRESHOLDS // 4
    middle = np.linspace(0, values.size - 1, 2 * quarter)
    tail = np.geomspace(1, values.size, quarter) - 1
    ranks = np.unique(np.concatenate([middle, tail, values.size - 1 - tail]).astype(np.int64))
    return values[ranks]


def _count_above(scores: FloatArray, thresholds: FloatArray) -> FloatArray:
    """Number of scores >= each threshold, in O((n + t) log n)."""
    return np.asarray(
        scores.size - np.searchsorted(np.sort(scores), thresholds, side="left"), dtype=np.float64
    )


def _rows(outputs: NDArray[Any]) -> NDArray[Any]:
    """Each run's output as one comparable value."""
    y = np.asarray(outputs)
    if y.dtype.hasobject:
        raise ValueError("fit_frequencies compares plain values, not Python objects")
    if y.ndim == 1:
        return y
    flat = np.ascontiguousarray(y.reshape(len(y), -1))
    return flat.view(np.dtype((np.void, flat.dtype.itemsize * flat.shape[1]))).ravel()
