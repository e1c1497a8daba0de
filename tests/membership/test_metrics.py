"""Metrics: against loops over single answers and pairs, algebra, limits, coverage."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from dprl.membership.metrics import (
    ConfusionCounts,
    confusion,
    confusion_at,
    roc_curve,
)

counts = st.integers(0, 60)
rates = st.floats(0, 1)


@st.composite
def samples(draw, both=True):
    """Labels and scores with many ties."""
    n = draw(st.integers(2 if both else 1, 25))
    labels = draw(hnp.arrays(bool, n))
    if both:
        labels[:2] = [True, False]
    scores = draw(hnp.arrays(np.float64, n, elements=st.integers(-3, 3).map(float)))
    return labels, scores


def by_hand(labels, answers):
    """Four counts, one answer at a time."""
    table = {"tp": 0, "tn": 0, "fp": 0, "fn": 0}
    for truth, said in zip(labels, answers, strict=True):
        table[("t" if truth == said else "f") + ("p" if said else "n")] += 1
    return table


def pieces(table, index=()):
    return {name: float(getattr(table, name)[index]) for name in ("tp", "tn", "fp", "fn")}


# counts


@given(samples(both=False))
def test_counts_are_a_loop_over_answers(sample):
    labels, scores = sample
    answers = np.stack([scores > 0, scores > 1, np.zeros_like(labels)])
    table = confusion(labels, answers)
    for row, said in enumerate(answers):
        assert pieces(table, row) == by_hand(labels, said)
    assert pieces(confusion(labels.astype(int), answers[0].astype(float))) == pieces(table, 0)


@given(samples(both=False))
def test_counts_at_thresholds_are_those_of_the_answers(sample):
    labels, scores = sample
    thresholds = np.array([[-np.inf, -4.0, -1.0], [0.5, 3.0, np.inf]])
    table = confusion_at(labels, scores, thresholds)
    assert table.tp.shape == (2, 3)
    for index in np.ndindex(2, 3):
        assert pieces(table, index) == by_hand(labels, scores >= thresholds[index])


# the six metrics


def defined(value, expected):
    """Equal, or both undefined."""
    value = float(value)
    return math.isnan(value) if expected is None else value == pytest.approx(expected, abs=1e-12)


def fraction(top, bottom):
    return None if bottom == 0 else top / bottom


@given(counts, counts, counts, counts)
def test_metrics_are_their_formulas(tp, tn, fp, fn):
    table = ConfusionCounts(tp, tn, fp, fn)
    pr, re = fraction(tp, tp + fp), fraction(tp, tp + fn)
    assert defined(table.accuracy, fraction(tp + tn, tp + tn + fp + fn))
    assert defined(table.precision, pr)
    assert defined(table.recall, re)
    assert defined(table.false_positive_rate, fraction(fp, fp + tn))
    if pr and re:
        assert defined(table.f1, 1 / (0.5 * (1 / pr + 1 / re)))  # the harmonic mean
        assert defined(table.f1, 2 * pr * re / (pr + re))
    else:
        assert defined(table.f1, 0.0 if fp + fn else None)
    margins = (tp + fp) * (tp + fn) * (tn + fp) * (tn + fn)
    assert defined(table.mcc, fraction(tp * tn - fp * fn, math.sqrt(margins)))


@given(counts, counts, counts, counts)
def test_mcc_is_the_correlation_of_answers_and_truth(tp, tn, fp, fn):
    truth = np.repeat([1.0, 0.0, 0.0, 1.0], [tp, tn, fp, fn])
    said = np.repeat([1.0, 0.0, 1.0, 0.0], [tp, tn, fp, fn])
    mcc = float(ConfusionCounts(tp, tn, fp, fn).mcc)
    if truth.size and truth.std() > 0 and said.std() > 0:
        assert mcc == pytest.approx(np.corrcoef(truth, said)[0, 1], abs=1e-9)
    else:
        assert math.isnan(mcc)


@given(counts, counts, counts, counts)
def test_mcc_vanishes_exactly_where_answers_and_truth_are_independent(tp, tn, fp, fn):
    table = ConfusionCounts(tp, tn, fp, fn)
    if not math.isnan(float(table.mcc)):
        independent = tp * (tp + tn + fp + fn) == (tp + fp) * (tp + fn)
        assert (float(table.mcc) == 0) == independent


@given(counts, counts, counts, counts)
def test_exchanging_the_two_classes(tp, tn, fp, fn):
    """MCC and accuracy do not mind, F1 does; the opposite answers change the sign of MCC."""
    table, mirror = ConfusionCounts(tp, tn, fp, fn), ConfusionCounts(tn, tp, fn, fp)
    opposite = ConfusionCounts(fn, fp, tn, tp)
    assert np.array_equal(table.accuracy, mirror.accuracy, equal_nan=True)
    np.testing.assert_allclose(table.mcc, mirror.mcc, atol=1e-12)
    np.testing.assert_allclose(table.mcc, -opposite.mcc, atol=1e-12)


@given(rates, rates, st.floats(0.01, 0.99))
def test_rates_come_back_from_the_table_of_a_population(tpr, fpr, base_rate):
    table = ConfusionCounts.from_rates(tpr, fpr, base_rate)
    assert float(table.recall) == pytest.approx(tpr, abs=1e-12)
    assert float(table.false_positive_rate) == pytest.approx(fpr, abs=1e-12)
    assert float(table.positives) == pytest.approx(base_rate)
    assert float(table.accuracy) == pytest.approx(base_rate * tpr + (1 - base_rate) * (1 - fpr))


def test_metrics_of_many_tables_are_those_of_each():
    rng = np.random.default_rng(1)
    tables = rng.integers(0, 4, (4, 50))
    together = ConfusionCounts(*tables)
    for name in ("accuracy", "precision", "recall", "f1", "mcc", "false_positive_rate"):
        alone = [float(getattr(ConfusionCounts(*one), name)) for one in tables.T]
        np.testing.assert_array_equal(getattr(together, name), alone)
    assert np.isnan(together.mcc).any()


def test_counts_too_large_for_integers():
    table = ConfusionCounts(10**15, 10**15, 0, 0)
    assert float(table.mcc) == pytest.approx(1.0)
    assert float(ConfusionCounts(3e6, 4e6, 2e6, 1e6).mcc) == pytest.approx(
        float(ConfusionCounts(3, 4, 2, 1).mcc)
    )


# ROC


@given(samples())
def test_the_roc_curve_is_every_threshold(sample):
    labels, scores = sample
    curve = roc_curve(labels, scores)
    assert curve.thresholds.tolist() == [np.inf, *sorted(set(scores), reverse=True)]
    for i, threshold in enumerate(curve.thresholds):
        assert pieces(curve.counts, i) == by_hand(labels, scores >= threshold)
    assert (curve.tpr[0], curve.fpr[0], curve.tpr[-1], curve.fpr[-1]) == (0, 0, 1, 1)
    assert (np.diff(curve.tpr) >= 0).all()
    assert (np.diff(curve.fpr) >= 0).all()


@given(samples())
def test_the_area_is_a_loop_over_pairs(sample):
    labels, scores = sample
    wins = [
        1.0 if a > b else 0.5 if a == b else 0.0 for a in scores[labels] for b in scores[~labels]
    ]
    area = roc_curve(labels, scores).area
    assert area == pytest.approx(np.mean(wins))
    assert roc_curve(labels, -scores).area == pytest.approx(1 - area)
    assert roc_curve(~labels, scores).area == pytest.approx(1 - area)
    assert roc_curve(labels, scores**3 - 7).area == area  # only the order counts


@given(samples(), st.one_of(rates, st.sampled_from([0.0, 0.2, 0.25, 1 / 3, 0.5, 1.0])))
def test_tpr_at_an_fpr_is_the_best_threshold_allowed(sample, limit):
    labels, scores = sample
    curve = roc_curve(labels, scores)
    tables = [confusion(labels, scores >= t) for t in [np.inf, *scores]]
    allowed = [float(t.recall) for t in tables if float(t.false_positive_rate) <= limit]
    assert float(curve.tpr_at(limit)) == max(allowed)
    chosen = confusion_at(labels, scores, curve.threshold_at(limit))
    assert float(chosen.recall) == max(allowed)
    assert float(chosen.false_positive_rate) <= limit


def test_ties_at_the_top_cannot_be_split():
    """The best negative shares its score with all positives: no positive without it."""
    curve = roc_curve([1, 1, 1, 0, 0, 0, 0], [5, 5, 5, 5, 1, 1, 1])
    assert curve.tpr_at([0.0, 0.24, 0.25, 1.0]).tolist() == [0.0, 0.0, 1.0, 1.0]
    assert curve.threshold_at([0.0, 0.25]).tolist() == [np.inf, 5.0]
    assert roc_curve([1, 0], [3, 3]).area == 0.5


# bad input


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: ConfusionCounts(-1, 0, 0, 0), "tp must not be negative"),
        (lambda: ConfusionCounts(1, np.nan, 0, 0), "tn holds NaN"),
        (lambda: ConfusionCounts([1, 2], [1, 2, 3], 0, 0), "one shape"),
        (lambda: ConfusionCounts.from_rates(1.2, 0, 0.5), r"tpr must lie in \[0, 1\]"),
        (lambda: ConfusionCounts.from_rates(1, 0, -0.5), "base_rate must lie"),
        (lambda: confusion([0, 2], [0, 1]), "labels must be booleans"),
        (lambda: confusion([], []), "labels must be a vector"),
        (lambda: confusion([[0, 1]], [0, 1]), "labels must be a vector"),
        (lambda: confusion([0, 1], [0, 1, 1]), "answers must have 2 entries"),
        (lambda: confusion([0, 1], [0.5, 1]), "answers must be booleans"),
        (lambda: confusion(["yes", "no"], [0, 1]), "labels must be an array of numbers"),
        (lambda: confusion_at([0, 1], [0.1], 0.5), "scores must have one entry per label"),
        (lambda: confusion_at([0, 1], [0.1, np.nan], 0.5), "scores holds NaN"),
        (lambda: confusion_at([0, 1], [0.1, 0.2], np.nan), "thresholds must not hold NaN"),
        (lambda: confusion_at([0, 1], [0.1, 0.2], "x"), "thresholds must be numbers"),
        (lambda: roc_curve([1, 1], [0.1, 0.2]), "got no negatives"),
        (lambda: roc_curve([0, 0], [0.1, 0.2]), "got no positives"),
        (lambda: roc_curve([0, 1], [0.1, 0.2]).tpr_at(-0.1), "fpr must lie"),
        (lambda: roc_curve([0, 1], [0.1, 0.2]).threshold_at(1.1), "fpr must lie"),
    ],
)
def test_bad_input_is_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def test_tables_are_read_only():
    table = confusion([0, 1], [0, 1])
    with pytest.raises(ValueError, match="read-only"):
        table.tp[...] = 5
