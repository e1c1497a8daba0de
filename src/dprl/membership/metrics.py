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

Exact intervals for a rate are in :mod:`dprl.intervals`.

Sources: thesis, section 2.4.3; Carlini et al. 2022 (why the TPR at a low FPR).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from dprl import _validation as check
from dprl._validation import BoolArray, FloatArray


@dataclass(frozen=True, eq=False)
class ConfusionCounts:
    """The four counts, and what is made of them; one table or an array of tables.

    Parameters
    ----------
    tp, tn, fp, fn : array_like, shapes that broadcast to one shape (...)
        True positives, true negatives, false positives, false negatives; >= 0.
        Fractions are allowed: expected counts, or shares of a population.

    Raises
    ------
    ValueError
        If a count is negative or not finite, or the shapes do not fit.

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
        """The table of a population, as shares that sum to one.

        Parameters
        ----------
        tpr, fpr : array_like
            True and false positive rate of the attack, in [0, 1].
        base_rate : array_like
            Share of positives in the population, in [0, 1].

        Examples
        --------
        >>> at = ConfusionCounts.from_rates(tpr=0.8, fpr=0.1, base_rate=[0.5, 0.01])
        >>> at.precision.round(3).tolist()
        [0.889, 0.075]
        """
        t, f, b = (
            _unit(name, value)
            for name, value in (("tpr", tpr), ("fpr", fpr), ("base_rate", base_rate))
        )
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
        """F1, equation (2.15), in [0, 1], by its form in the counts.

        It equals the harmonic mean of precision and recall wherever that is
        defined, and is 0 where it is not because TP = 0 while FP + FN > 0 (the
        limit from tables with TP > 0). NaN if TP = FP = FN = 0.
        """
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
    """Count the answers of an attack.

    Parameters
    ----------
    labels : array_like of bool or of 0 and 1, shape (n,)
        The truth, 1 for a member; n >= 1.
    answers : array_like of bool or of 0 and 1, shape (..., n)
        What the attack says; leading axes are separate attacks.

    Returns
    -------
    ConfusionCounts
        Of shape (...).

    Examples
    --------
    >>> table = confusion([1, 1, 0, 0, 0], [1, 0, 1, 0, 0])
    >>> int(table.tp), int(table.tn), int(table.fp), int(table.fn)
    (1, 2, 1, 1)
    """
    y = _labels(labels)
    said = _binary("answers", answers)
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
    """Count the answers "member where the score is at least the threshold".

    O((n + t) log n) for t thresholds.

    Parameters
    ----------
    labels : array_like of bool or of 0 and 1, shape (n,)
        The truth, 1 for a member; n >= 1.
    scores : array_like, shape (n,)
        Larger speaks for a member; finite.
    thresholds : array_like, shape (...)
        Any numbers, also infinite.

    Returns
    -------
    ConfusionCounts
        Of the shape of thresholds.

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
        """AUC, in [0, 1]: 1/2 for scores that know nothing.

        Below straight lines from point to point: P(S+ > S-) + P(S+ = S-)/2.
        """
        tp, fp = self.counts.tp, self.counts.fp
        twice = (np.diff(fp) * (tp[1:] + tp[:-1])).sum()
        return float(twice / (2 * tp[-1] * fp[-1]))

    def tpr_at(self, fpr: ArrayLike) -> FloatArray:
        """The largest TPR of a threshold whose FPR is at most the given one.

        Nothing is interpolated: a point between two thresholds would be reached
        only by tossing a coin between them. Chosen and measured on one sample,
        the value is optimistic; for an honest one choose :meth:`threshold_at` on
        one sample and measure :func:`confusion_at` on another.

        Parameters
        ----------
        fpr : array_like, shape (...)
            Allowed false positive rates, in [0, 1].

        Returns
        -------
        ndarray, shape (...)
        """
        return np.asarray(self.tpr[self._last_within(fpr)], dtype=np.float64)

    def threshold_at(self, fpr: ArrayLike) -> FloatArray:
        """The smallest threshold whose FPR is at most the given one; shape (...)."""
        return np.asarray(self.thresholds[self._last_within(fpr)], dtype=np.float64)

    def _last_within(self, fpr: ArrayLike) -> np.ndarray:
        return np.searchsorted(self.fpr, _unit("fpr", fpr), side="right") - 1


def roc_curve(labels: ArrayLike, scores: ArrayLike) -> RocCurve:
    """The ROC curve of a score, one point per distinct score; O(n log n).

    Parameters
    ----------
    labels : array_like of bool or of 0 and 1, shape (n,)
        The truth, 1 for a member; both kinds must occur.
    scores : array_like, shape (n,)
        Larger speaks for a member; finite.

    Raises
    ------
    ValueError
        If there are no positives or no negatives: one of the two rates is then 0/0.

    Examples
    --------
    >>> curve = roc_curve([1, 1, 0, 1, 0, 0], [0.9, 0.8, 0.7, 0.4, 0.4, 0.1])
    >>> curve.fpr.round(2).tolist(), curve.tpr.round(2).tolist()
    ([0.0, 0.0, 0.0, 0.33, 0.67, 1.0], [0.0, 0.33, 0.67, 0.67, 1.0, 1.0])
    >>> round(curve.area, 4), float(curve.tpr_at(0.1).round(4))
    (0.8333, 0.6667)
    """
    y, s = _labelled_scores(labels, scores)
    for kind, present in (("positives", y.any()), ("negatives", not y.all())):
        if not present:
            raise ValueError(f"an ROC curve needs positives and negatives, got no {kind}")
    thresholds = np.append(np.inf, np.unique(s)[::-1])
    return RocCurve(check.frozen(thresholds), confusion_at(y, s, thresholds))


def _ratio(numerator: FloatArray, denominator: FloatArray) -> FloatArray:
    """NaN for 0/0; no numerator here is above 0 where its denominator is 0."""
    top, below = np.asarray(numerator, dtype=np.float64), np.asarray(denominator, dtype=np.float64)
    out: FloatArray = np.divide(top, below, out=np.full(below.shape, np.nan), where=below > 0)
    return out


def _unit(name: str, values: ArrayLike) -> FloatArray:
    x = check.finite_array(name, values)
    if (x < 0).any() or (x > 1).any():
        raise ValueError(f"{name} must lie in [0, 1], got {x.min():g} to {x.max():g}")
    return x


def _binary(name: str, values: ArrayLike) -> BoolArray:
    x = check.finite_array(name, values)
    if not np.isin(x, (0, 1)).all():
        raise ValueError(f"{name} must be booleans, or 0 and 1")
    return np.asarray(x == 1)


def _labels(labels: ArrayLike) -> BoolArray:
    y = _binary("labels", labels)
    if y.ndim != 1 or y.size == 0:
        raise ValueError(f"labels must be a vector of at least one entry, got shape {y.shape}")
    return y


def _labelled_scores(labels: ArrayLike, scores: ArrayLike) -> tuple[BoolArray, FloatArray]:
    y, s = _labels(labels), check.finite_array("scores", scores, ndim=1)
    if s.shape != y.shape:
        raise ValueError(f"scores must have one entry per label, {y.size}, got {s.size}")
    return y, s
