r"""How good an attack is: counts of right and wrong answers, rates, ROC curves.

An attack answers "member" (positive) or "not a member" (negative). Answers and truth give
four counts: true and false positives TP, FP, true and false negatives TN, FN. Of them are
made (thesis, section 2.4.3) ::

    ACC = (TP + TN) / (TP + TN + FP + FN)                                    (2.12)
    PR  = TP / (TP + FP)                                                     (2.13)
    RE  = TP / (TP + FN)                                                     (2.14)
    F1  = 2 PR RE / (PR + RE) = 2 TP / (2 TP + FP + FN)                      (2.15)
    MCC = (TP TN - FP FN) / sqrt((TP+FP)(TP+FN)(TN+FP)(TN+FN))               (2.16)
    FPR = FP / (FP + TN)                                                     (2.17)

A metric that is 0/0 is NaN here, never a number by convention: each property says when.
RE is also called the true positive rate (TPR).

An attack with a score answers "member" where the score is at least a threshold. The ROC
curve holds (FPR, TPR) for every threshold that makes a difference. Equal scores cannot be
told apart by any threshold, so they give one point. The area below the curve (AUC), joined
by straight lines, is P(S+ > S-) + P(S+ = S-)/2 for the scores S+ of a random positive and
S- of a random negative of the sample.

How sure a number is depends on what would be drawn anew. :class:`OperatingPoint` holds exact
(Clopper-Pearson) intervals for the two rates of one rule: they speak of further independent
*pairs* judged by the same classifier about the same models. :func:`clustered_interval` is about
further *oracles*: new data sources, models and classifiers. It is approximate, and the one to use
for "how well does the attack work".

Sources: thesis, sections 2.4.3 and 5.7.2; Carlini et al. 2022 (why the TPR at a low FPR).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import stdtrit

from dprl import _validation as check
from dprl import intervals
from dprl._validation import BoolArray, FloatArray


@dataclass(frozen=True, eq=False)
class ConfusionCounts:
    """True and false positives and negatives, and the rates made of them; one table or many.

    Parameters
    ----------
    tp, tn, fp, fn : array_like, shapes that broadcast to one shape (...)
        >= 0. Fractions are allowed: expected counts, or shares of a population.

    Examples
    --------
    >>> table = ConfusionCounts(tp=8, tn=85, fp=5, fn=2)
    >>> float(table.accuracy), float(table.recall), float(table.precision.round(4))
    (0.93, 0.8, 0.6154)
    >>> never = ConfusionCounts(tp=0, tn=90, fp=0, fn=10)  # always answers "negative"
    >>> float(never.accuracy), float(never.precision), float(never.mcc)
    (0.9, nan, nan)
    """

    tp: FloatArray
    tn: FloatArray
    fp: FloatArray
    fn: FloatArray

    def __init__(self, tp: ArrayLike, tn: ArrayLike, fp: ArrayLike, fn: ArrayLike) -> None:
        given = {"tp": tp, "tn": tn, "fp": fp, "fn": fn}
        counts = [check.finite_array(name, value) for name, value in given.items()]
        for name, count in zip(given, counts, strict=True):
            if (count < 0).any():
                raise ValueError(f"{name} must not be negative, got {count.min():g}")
        try:
            spread = np.broadcast_arrays(*counts)
        except ValueError:
            shapes = ", ".join(str(count.shape) for count in counts)
            raise ValueError(f"tp, tn, fp, fn must fit into one shape, got {shapes}") from None
        for name, count in zip(given, spread, strict=True):
            object.__setattr__(self, name, check.frozen(np.array(count)))

    @classmethod
    def from_rates(cls, tpr: ArrayLike, fpr: ArrayLike, base_rate: ArrayLike) -> ConfusionCounts:
        """The table of a population, as shares that sum to one; ``base_rate`` of it are positives.

        >>> at = ConfusionCounts.from_rates(tpr=0.8, fpr=0.1, base_rate=[0.5, 0.01])
        >>> at.precision.round(3).tolist()
        [0.889, 0.075]
        """
        t, f = check.unit_array("tpr", tpr), check.unit_array("fpr", fpr)
        b = check.unit_array("base_rate", base_rate)
        return cls(tp=b * t, tn=(1 - b) * (1 - f), fp=(1 - b) * f, fn=b * (1 - t))

    @property
    def positives(self) -> FloatArray:
        """TP + FN: how many are members."""
        return np.asarray(self.tp + self.fn)

    @property
    def negatives(self) -> FloatArray:
        """TN + FP: how many are not."""
        return np.asarray(self.tn + self.fp)

    @property
    def accuracy(self) -> FloatArray:
        """ACC, equation (2.12), in [0, 1]; NaN for an empty table."""
        return _ratio(self.tp + self.tn, self.positives + self.negatives)

    @property
    def precision(self) -> FloatArray:
        """PR, equation (2.13), in [0, 1]; NaN if nothing was answered "positive"."""
        return _ratio(self.tp, self.tp + self.fp)

    @property
    def recall(self) -> FloatArray:
        """RE or TPR, equation (2.14), in [0, 1]; NaN if there are no positives."""
        return _ratio(self.tp, self.positives)

    @property
    def false_positive_rate(self) -> FloatArray:
        """FPR, equation (2.17), in [0, 1]; NaN if there are no negatives."""
        return _ratio(self.fp, self.negatives)

    @property
    def f1(self) -> FloatArray:
        """F1, equation (2.15) by the counts, in [0, 1]; NaN if TP = FP = FN = 0."""
        return _ratio(2 * self.tp, 2 * self.tp + self.fp + self.fn)

    @property
    def mcc(self) -> FloatArray:
        """MCC, equation (2.16), in [-1, 1]: the correlation of answers and truth.

        NaN if the answers or the truth are constant: a constant has no correlation.
        """
        answered, refused = self.tp + self.fp, self.tn + self.fn
        # roots first: the product of four counts can overflow
        scale = np.sqrt(answered) * np.sqrt(refused)
        scale = scale * np.sqrt(self.positives) * np.sqrt(self.negatives)
        return np.clip(_ratio(self.tp * self.tn - self.fp * self.fn, scale), -1.0, 1.0)


def confusion(labels: ArrayLike, answers: ArrayLike) -> ConfusionCounts:
    """Count the answers (..., n) of attacks, one in each row, beside the labels (n,), the truth.

    Both are booleans, or 0 and 1 for a member; n >= 1. The counts have shape (...).

    Examples
    --------
    >>> table = confusion([1, 1, 0, 0, 0], [1, 0, 1, 0, 0])
    >>> int(table.tp), int(table.tn), int(table.fp), int(table.fn)
    (1, 2, 1, 1)
    """
    y, said = _labels(labels), check.binary_array("answers", answers)
    if said.ndim == 0 or said.shape[-1] != y.size:
        raise ValueError(
            f"answers must have {y.size} entries in the last axis, got shape {said.shape}"
        )
    return ConfusionCounts(
        tp=(said & y).sum(axis=-1),
        tn=(~said & ~y).sum(axis=-1),
        fp=(said & ~y).sum(axis=-1),
        fn=(~said & y).sum(axis=-1),
    )


def confusion_at(labels: ArrayLike, scores: ArrayLike, thresholds: ArrayLike) -> ConfusionCounts:
    """Count the answers "member where the score is at least the threshold"; O((n + t) log n).

    Labels and scores as in :func:`roc_curve`, but one kind of labels suffices. The counts have the
    shape of the t thresholds, which may be infinite.

    Examples
    --------
    >>> confusion_at([0, 1, 1], [0.2, 0.7, 0.7], [0.2, 0.7, 0.8]).tp.tolist()
    [2.0, 2.0, 0.0]
    """
    y, s = _labelled_scores(labels, scores)
    try:
        theta = np.asarray(thresholds, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise ValueError(f"thresholds must be numbers: {error}") from None
    if np.isnan(theta).any():
        raise ValueError("thresholds must not hold NaN")
    tp, fp = (
        group.size - np.searchsorted(np.sort(group), theta, side="left") for group in (s[y], s[~y])
    )
    positives = int(y.sum())
    return ConfusionCounts(tp=tp, tn=y.size - positives - fp, fp=fp, fn=positives - tp)


@dataclass(frozen=True, eq=False)
class RocCurve:
    """All the trade-offs that thresholds on one score offer; made by :func:`roc_curve`.

    Attributes
    ----------
    thresholds : ndarray, shape (k + 1,)
        Infinity (no positive answer at all), then the k distinct scores, falling.
    counts : ConfusionCounts
        One table per threshold; the last one answers "positive" always.
    """

    thresholds: FloatArray
    counts: ConfusionCounts

    @property
    def tpr(self) -> FloatArray:
        """True positive rates, rising from 0 to 1; shape (k + 1,)."""
        return self.counts.recall

    @property
    def fpr(self) -> FloatArray:
        """False positive rates, rising from 0 to 1; shape (k + 1,)."""
        return self.counts.false_positive_rate

    @property
    def area(self) -> float:
        """AUC, in [0, 1]: 1/2 for scores that know nothing; see the module."""
        tp, fp = self.counts.tp, self.counts.fp
        twice = (np.diff(fp) * (tp[1:] + tp[:-1])).sum()
        return float(twice / (2 * tp[-1] * fp[-1]))

    def tpr_at(self, fpr: ArrayLike) -> FloatArray:
        """The largest TPR of a threshold whose FPR is at most the given one in [0, 1].

        Shape (...), nothing interpolated. Chosen and measured on one sample, the value is
        optimistic; for an honest one see :func:`tpr_at_fpr`.
        """
        return np.asarray(self.tpr[self._last_within(fpr)], dtype=np.float64)

    def threshold_at(self, fpr: ArrayLike) -> FloatArray:
        """The smallest threshold whose FPR is at most the given one; shape (...)."""
        return np.asarray(self.thresholds[self._last_within(fpr)], dtype=np.float64)

    def _last_within(self, fpr: ArrayLike) -> np.ndarray:
        return np.searchsorted(self.fpr, check.unit_array("fpr", fpr), side="right") - 1


def roc_curve(labels: ArrayLike, scores: ArrayLike) -> RocCurve:
    """The ROC curve of a score, one point per distinct score; O(n log n).

    Labels (n,) are the truth, booleans or 1 for a member; both kinds must occur. Scores (n,) are
    finite; larger speaks for a member.

    Examples
    --------
    >>> curve = roc_curve([1, 1, 0, 1, 0, 0], [0.9, 0.8, 0.7, 0.4, 0.4, 0.1])
    >>> curve.fpr.round(2).tolist(), curve.tpr.round(2).tolist()
    ([0.0, 0.0, 0.0, 0.33, 0.67, 1.0], [0.0, 0.33, 0.67, 0.67, 1.0, 1.0])
    >>> round(curve.area, 4), float(curve.tpr_at(0.1).round(4))
    (0.8333, 0.6667)
    """
    y, s = _both_kinds(labels, scores)
    thresholds = np.append(np.inf, np.unique(s)[::-1])
    return RocCurve(check.frozen(thresholds), confusion_at(y, s, thresholds))


@dataclass(frozen=True)
class OperatingPoint:
    """Both rates of the rule "member where the score is at least the threshold".

    Made by :func:`operating_point` and :func:`tpr_at_fpr`. Each interval alone holds its
    rate with a chance of at least ``confidence``, if the pairs are independent given the
    models and the threshold; the two together with at least ``2 confidence - 1``.

    Attributes
    ----------
    threshold : float
        Infinite if no score was high enough: the rule then never says "member".
    tpr, tpr_low, tpr_high, fpr, fpr_low, fpr_high : float
        Measured rates and their intervals, in [0, 1].
    positives, negatives : int
        Pairs measured, >= 1.
    chosen_elsewhere : bool
        Whether the threshold was chosen on other data; if not, see :func:`tpr_at_fpr`.
    """

    threshold: float
    tpr: float
    tpr_low: float
    tpr_high: float
    fpr: float
    fpr_low: float
    fpr_high: float
    positives: int
    negatives: int
    confidence: float
    chosen_elsewhere: bool


def operating_point(
    labels: ArrayLike, scores: ArrayLike, threshold: float, confidence: float = 0.95
) -> OperatingPoint:
    """Measure a rule whose threshold was fixed without these data, by :func:`threshold_on`, say.

    Labels and scores as in :func:`roc_curve`; ``threshold`` may be infinite, and ``confidence``, in
    (0, 1), is that of each of the two intervals.

    Examples
    --------
    >>> point = operating_point([1, 1, 1, 0, 0, 0], [5, 4, 1, 3, 2, 0], threshold=3.5)
    >>> point.fpr, round(point.fpr_high, 3)  # none of three: not much is known
    (0.0, 0.708)
    """
    table = confusion_at(*_both_kinds(labels, scores), threshold)
    if table.tp.shape != ():
        raise ValueError(f"threshold must be one number, got shape {table.tp.shape}")
    positives, negatives = int(table.positives), int(table.negatives)
    tpr_low, tpr_high = intervals.clopper_pearson(table.tp, positives, confidence)
    fpr_low, fpr_high = intervals.clopper_pearson(table.fp, negatives, confidence)
    return OperatingPoint(
        threshold=float(threshold),
        tpr=float(table.recall),
        tpr_low=float(tpr_low),
        tpr_high=float(tpr_high),
        fpr=float(table.false_positive_rate),
        fpr_low=float(fpr_low),
        fpr_high=float(fpr_high),
        positives=positives,
        negatives=negatives,
        confidence=float(confidence),
        chosen_elsewhere=True,
    )


def tpr_at_fpr(
    labels: ArrayLike,
    scores: ArrayLike,
    fpr: float = 0.01,
    *,
    chosen_on: tuple[ArrayLike, ArrayLike] | None = None,
    confidence: float = 0.95,
) -> OperatingPoint:
    """True positive rate where at most a share ``fpr`` of the non-members is accused.

    The honest form chooses the threshold on shadow data (``chosen_on``) and measures both
    rates here; the measured FPR may then exceed ``fpr``, and is reported.

    Without ``chosen_on`` the threshold is the lowest that these very negatives allow, the
    usual figure: the rule is "above c", c the highest negative that may not be accused. The
    TPR's interval is exact, because c is chosen by the negatives alone. The FPR's runs from 0 to
    the bound of the order statistic c: with K negatives allowed among n, the true FPR is at most
    Beta(K + 1, n - K) distributed, of which the upper Clopper-Pearson end for K of n is a
    quantile. It can exceed ``fpr`` by much: 0.037 for K = 0, n = 100.

    ``fpr`` lies in [0, 1], ``chosen_on`` is (labels, scores); the rest as in
    :func:`operating_point`.

    Examples
    --------
    >>> rng = np.random.default_rng(3)
    >>> y = np.repeat([1, 0], 500)
    >>> shadow, target = rng.standard_normal((2, 1000)) + 2 * y
    >>> point = tpr_at_fpr(y, target, 0.01, chosen_on=(y, shadow))
    >>> round(point.tpr, 2), point.fpr, round(point.fpr_high, 3)
    (0.4, 0.008, 0.02)
    """
    y, s = _both_kinds(labels, scores)
    limit = check.real("fpr", fpr)
    if chosen_on is not None and (not isinstance(chosen_on, tuple | list) or len(chosen_on) != 2):
        raise TypeError("chosen_on must be (labels, scores)")
    threshold = threshold_on(*((y, s) if chosen_on is None else chosen_on), fpr=limit)
    point = operating_point(y, s, threshold, confidence)
    if chosen_on is not None:
        return point
    rates = np.arange(point.negatives + 1) / point.negatives
    allowed = int(np.searchsorted(rates, limit, side="right")) - 1
    _, high = intervals.clopper_pearson(allowed, point.negatives, confidence)
    return replace(point, fpr_low=0.0, fpr_high=float(high), chosen_elsewhere=False)


def threshold_on(
    labels: ArrayLike,
    scores: ArrayLike,
    *,
    fpr: float | None = None,
    candidates: ArrayLike | None = None,
) -> float:
    """Choose a threshold, on shadow data: never on the data that measure the attack.

    The thesis (section 5.7.2) takes the best of 0.1, ..., 0.9 on what it evaluates, which
    makes the result optimistic. Labels and scores as in :func:`roc_curve`.

    Parameters
    ----------
    fpr : float, optional
        Then: the smallest score with at most this false positive rate, in [0, 1]; infinity
        if there is none.
    candidates : array_like, shape (k,), optional
        Without ``fpr``: of these the one with the highest accuracy, the middle one among
        equals. By default halfway between neighbouring scores, "always" and "never".

    Examples
    --------
    >>> threshold_on([0, 0, 1, 1], [0.1, 0.2, 0.6, 0.9])
    0.4
    """
    y, s = _both_kinds(labels, scores)
    if fpr is not None:
        if candidates is not None:
            raise ValueError("give fpr or candidates, not both: each is a rule of its own")
        return float(roc_curve(y, s).threshold_at(check.real("fpr", fpr)))
    if candidates is None:
        levels = np.unique(s)
        tried = np.concatenate([levels[:1], levels[:-1] / 2 + levels[1:] / 2, [np.inf]])
    else:
        tried = np.sort(check.finite_array("candidates", candidates, ndim=1))
        if tried.size == 0:
            raise ValueError("candidates must hold at least one threshold, got none")
    accuracy = confusion_at(y, s, tried).accuracy
    best = np.flatnonzero(accuracy == accuracy.max())
    return float(tried[best[best.size // 2]])


def summary(labels: ArrayLike, scores: ArrayLike, threshold: float = 0.5) -> dict[str, float]:
    """The numbers of one attack, as table 5.2 of the thesis has them and more.

    ``accuracy``, ``precision``, ``recall``, ``f1``, ``mcc`` at the threshold (NaN where 0/0, see
    :class:`ConfusionCounts`); ``auc``; ``tpr_at_fpr_1pct`` and ``tpr_at_fpr_01pct``, the TPR at an
    FPR of at most 1 % and 0.1 % on these very data. Arguments as in :func:`operating_point`; 0.5
    is a threshold for probabilities, 0 for log-odds.

    Examples
    --------
    >>> found = summary([1, 1, 0, 1, 0, 0], [0.9, 0.8, 0.7, 0.4, 0.3, 0.1])
    >>> round(found["accuracy"], 3), round(found["auc"], 3), round(found["tpr_at_fpr_1pct"], 3)
    (0.667, 0.889, 0.667)
    """
    y, s = _both_kinds(labels, scores)
    table, curve = confusion_at(y, s, threshold), roc_curve(y, s)
    names = ("accuracy", "precision", "recall", "f1", "mcc")
    low, lower = curve.tpr_at([0.01, 0.001])
    return {
        **{name: float(getattr(table, name)) for name in names},
        "auc": curve.area,
        "tpr_at_fpr_1pct": float(low),
        "tpr_at_fpr_01pct": float(lower),
    }


@dataclass(frozen=True)
class ClusteredInterval:
    """A mean over draws and how well it is known; made by :func:`clustered_interval`.

    ``mean`` is over all draws, ``standard_error`` of it over oracles; ``low`` and ``high`` are the
    ends, ``clusters`` and ``draws`` the numbers of oracles, the unit, and of values.
    """

    mean: float
    standard_error: float
    low: float
    high: float
    clusters: int
    draws: int
    confidence: float


def clustered_interval(
    values: ArrayLike, clusters: ArrayLike, confidence: float = 0.95
) -> ClusteredInterval:
    r"""Confidence interval for a mean over draws that share oracles: leave one oracle out.

    A draw takes one or more oracles (those of the shadow and of the target). Two draws with
    an oracle in common are not independent, so the draws are not the unit. Let m be the mean
    over all draws and m_(o) that over the draws *without* oracle o. With O oracles

        standard error^2 = (O - 1) / O * sum_o (m_(o) - average of the m_(o))^2        (1)

    and the interval is m plus or minus the t quantile with O - 1 degrees of freedom times
    the standard error. If every draw uses one oracle and all have as many, (1) is the
    ordinary standard error of the mean of the O oracle means. For draws of several oracles
    it is the jackknife of a U-statistic (Efron and Stein 1981): on average not too small if
    all draws of distinct oracles are there.

    The interval speaks of the mean over draws of *new* oracles of the same kind, approximately.

    Parameters
    ----------
    values : array_like, shape (n,)
        One finite number per draw, for example the accuracy.
    clusters : array_like of int, shape (n,) or (n, r)
        The oracles that each draw uses: two or more, none of them in every draw.
    confidence : float
        In (0, 1).

    Examples
    --------
    >>> found = clustered_interval([0.9, 0.9, 0.9, 0.5, 0.5, 0.5], [0, 0, 0, 1, 1, 1])
    >>> round(found.mean, 3), round(found.standard_error, 3), found.clusters
    (0.7, 0.2, 2)
    """
    x = check.finite_array("values", values, ndim=1)
    level = check.open_unit("confidence", confidence)
    members = check.integers("clusters", clusters)
    if members.ndim == 1:
        members = members[:, None]
    if members.ndim != 2 or members.shape[0] != x.size or members.size == 0:
        raise ValueError(
            f"clusters must have one row per value, {x.size}, got shape {np.shape(clusters)}"
        )
    names = np.unique(members)
    if names.size < 2:
        raise ValueError("an interval over oracles needs at least two of them, got one")
    without = (members[:, :, None] != names).all(axis=1)  # (n, O)
    left = without.sum(axis=0)
    if (left == 0).any():
        raise ValueError(
            f"every draw uses oracle {names[left == 0][0]}: leaving it out leaves nothing; "
            "draw other combinations"
        )
    means = (x @ without) / left
    count = names.size
    error = math.sqrt((count - 1) / count * ((means - means.mean()) ** 2).sum())
    half = float(stdtrit(count - 1, (1 + level) / 2)) * error
    mean = float(x.mean())
    return ClusteredInterval(mean, error, mean - half, mean + half, count, x.size, level)


def _both_kinds(labels: ArrayLike, scores: ArrayLike) -> tuple[BoolArray, FloatArray]:
    y, s = _labelled_scores(labels, scores)
    for kind, present in (("positives", y.any()), ("negatives", not y.all())):
        if not present:
            raise ValueError(f"positives and negatives are needed, got no {kind}")
    return y, s


def _ratio(numerator: FloatArray, denominator: FloatArray) -> FloatArray:
    """NaN for 0/0; no numerator here is above 0 where its denominator is 0."""
    top, below = np.asarray(numerator, dtype=np.float64), np.asarray(denominator, dtype=np.float64)
    out: FloatArray = np.divide(top, below, out=np.full(below.shape, np.nan), where=below > 0)
    return out


def _labels(labels: ArrayLike) -> BoolArray:
    y = check.binary_array("labels", labels)
    if y.ndim != 1 or y.size == 0:
        raise ValueError(f"labels must be a vector of at least one entry, got shape {y.shape}")
    return y


def _labelled_scores(labels: ArrayLike, scores: ArrayLike) -> tuple[BoolArray, FloatArray]:
    y, s = _labels(labels), check.finite_array("scores", scores, ndim=1)
    if s.shape != y.shape:
        raise ValueError(f"scores must have one entry per label, {y.size}, got {s.size}")
    return y, s
