"""Metrics: against loops over single answers and pairs, algebra, limits, coverage."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from scipy import stats
from sklearn import metrics as reference

from dprl import intervals
from dprl.membership.metrics import (
    ConfusionCounts,
    clustered_interval,
    confusion,
    confusion_at,
    operating_point,
    roc_curve,
    summary,
    threshold_on,
    tpr_at_fpr,
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


# against scikit-learn, which has conventions for 0/0 where we have NaN


@given(samples(), st.sampled_from([-1.0, 0.0, 0.5, 2.0]))
def test_summary_is_what_scikit_learn_says(sample, threshold):
    labels, scores = sample
    found = summary(labels, scores, threshold)
    said = scores >= threshold
    assert found["auc"] == pytest.approx(reference.roc_auc_score(labels, scores))
    assert found["accuracy"] == pytest.approx(reference.accuracy_score(labels, said))
    assert found["recall"] == pytest.approx(reference.recall_score(labels, said))
    if said.any():
        assert found["precision"] == pytest.approx(reference.precision_score(labels, said))
        assert found["f1"] == pytest.approx(reference.f1_score(labels, said))
    if said.any() and not said.all():
        mcc = reference.matthews_corrcoef(labels, said)
        assert found["mcc"] == pytest.approx(mcc, abs=1e-12)
    fpr, tpr, _ = reference.roc_curve(labels, scores, drop_intermediate=False)
    assert found["tpr_at_fpr_1pct"] == tpr[fpr <= 0.01].max()
    assert found["tpr_at_fpr_01pct"] == tpr[fpr <= 0.001].max()


# one threshold, exact intervals


@given(samples(), st.integers(-4, 4), st.floats(0.5, 0.99))
def test_an_operating_point_is_counted(sample, threshold, confidence):
    labels, scores = sample
    point = operating_point(labels, scores, threshold, confidence)
    table = by_hand(labels, scores >= threshold)
    positives, negatives = table["tp"] + table["fn"], table["fp"] + table["tn"]
    assert (point.positives, point.negatives) == (positives, negatives)
    assert (point.tpr, point.fpr) == (table["tp"] / positives, table["fp"] / negatives)
    ends = intervals.clopper_pearson(table["tp"], positives, confidence)
    assert (point.tpr_low, point.tpr_high) == ends
    ends = intervals.clopper_pearson(table["fp"], negatives, confidence)
    assert (point.fpr_low, point.fpr_high) == ends
    assert point.chosen_elsewhere


@given(samples(), samples(), st.sampled_from([0.0, 0.2, 0.5, 1.0]))
def test_the_honest_form_looks_at_the_shadow_only(shadow, target, limit):
    labels, scores = target
    point = tpr_at_fpr(labels, scores, limit, chosen_on=shadow)
    assert point == operating_point(labels, scores, threshold_on(*shadow, fpr=limit))
    swapped = tpr_at_fpr(~labels, -scores, limit, chosen_on=shadow)
    assert swapped.threshold == point.threshold


@given(samples(), st.sampled_from([0.0, 0.1, 0.5, 1.0]))
def test_in_sample_it_is_the_curve(sample, limit):
    labels, scores = sample
    point = tpr_at_fpr(labels, scores, limit)
    assert point.tpr == float(roc_curve(labels, scores).tpr_at(limit))
    assert point.fpr <= limit
    assert not point.chosen_elsewhere
    assert (point.fpr_low, point.fpr_high >= point.fpr) == (0.0, True)


def law(kind):
    """Draw scores of non-members and of members; their true survival functions above c."""
    if kind == "normal":
        return (
            lambda rng, n: rng.standard_normal(n),
            lambda rng, n: rng.standard_normal(n) + 1,
            stats.norm.sf,
            lambda c: stats.norm.sf(c - 1),
        )
    return (  # many ties
        lambda rng, n: rng.binomial(9, 0.3, n).astype(float),
        lambda rng, n: rng.binomial(9, 0.5, n).astype(float),
        lambda c: stats.binom.sf(c, 9, 0.3),
        lambda c: stats.binom.sf(c, 9, 0.5),
    )


@pytest.mark.parametrize("kind", ["normal", "ties"])
@pytest.mark.parametrize(("n", "limit"), [(40, 0.0), (60, 0.1)])
def test_in_sample_intervals_cover_the_rule_that_was_chosen(kind, n, limit):
    """Rates of "above c", c the highest negative that may not be accused, both covered."""
    draw_other, draw_member, other_above, member_above = law(kind)
    rng = np.random.default_rng(7)
    runs, held = 400, np.zeros(2)
    for _ in range(runs):
        others, members = draw_other(rng, n), draw_member(rng, 50)
        labels = np.repeat([False, True], [n, 50])
        point = tpr_at_fpr(labels, np.append(others, members), limit, confidence=0.9)
        c = np.sort(others)[::-1][int(limit * n)]
        held += [
            point.tpr_low <= member_above(c) <= point.tpr_high,
            other_above(c) <= point.fpr_high,
        ]
    # at least 0.90 and 0.95 in truth
    assert held[0] >= stats.binom.ppf(1e-3, runs, 0.9)
    assert held[1] >= stats.binom.ppf(1e-3, runs, 0.95)


@given(samples())
def test_no_threshold_is_more_accurate_than_the_chosen_one(sample):
    labels, scores = sample
    chosen = threshold_on(labels, scores)
    best = max(np.mean((scores >= t) == labels) for t in [*scores, np.inf])
    assert np.mean((scores >= chosen) == labels) == best
    grid = np.arange(1, 10) / 10
    chosen = threshold_on(labels, scores, candidates=grid)
    assert chosen in grid
    best = max(np.mean((scores >= t) == labels) for t in grid)
    assert np.mean((scores >= chosen) == labels) == best


def test_the_best_threshold_of_the_test_set_is_optimistic():
    """Scores that know nothing look better than chance where the threshold is chosen."""
    rng = np.random.default_rng(8)
    labels = np.repeat([False, True], 50)
    inside, outside = [], []
    for _ in range(200):
        shadow, target = rng.random((2, 100))
        inside.append(np.mean((shadow >= threshold_on(labels, shadow)) == labels))
        outside.append(np.mean((target >= threshold_on(labels, shadow)) == labels))
    assert np.mean(inside) > 0.55
    assert abs(np.mean(outside) - 0.5) < 0.02


# intervals over oracles


@given(st.integers(2, 6), st.integers(1, 4), st.integers(0, 99))
def test_with_one_oracle_per_draw_it_is_the_t_interval_of_the_means(oracles, draws, seed):
    rng = np.random.default_rng(seed)
    values = rng.normal(size=(oracles, draws))
    found = clustered_interval(values.ravel(), np.repeat(np.arange(oracles) + 3, draws), 0.9)
    means = values.mean(axis=1)
    low, high = stats.t.interval(0.9, oracles - 1, means.mean(), stats.sem(means))
    assert (found.low, found.high) == (pytest.approx(low), pytest.approx(high))
    assert found.mean == pytest.approx(means.mean())
    assert (found.clusters, found.draws) == (oracles, oracles * draws)


def test_it_is_a_loop_over_oracles():
    rng = np.random.default_rng(9)
    members = np.array([rng.permutation(7)[:3] for _ in range(30)])
    values = rng.normal(size=30)
    left_out = [
        np.mean([v for v, row in zip(values, members, strict=True) if o not in row])
        for o in range(7)
    ]
    found = clustered_interval(values, members)
    assert found.standard_error == pytest.approx(math.sqrt(6 * np.var(left_out)))
    again = clustered_interval(values[::-1], members[::-1, ::-1])
    assert again.standard_error == pytest.approx(found.standard_error)


def test_copies_of_draws_do_not_narrow_it():
    """Forty pairs of one model are no forty experiments."""
    values, oracles = np.array([0.1, 0.9, 0.6, 0.4]), np.arange(4)
    once = clustered_interval(values, oracles)
    often = clustered_interval(np.repeat(values, 40), np.repeat(oracles, 40))
    assert (often.low, often.high) == (pytest.approx(once.low), pytest.approx(once.high))


@pytest.mark.parametrize("interaction", [0.0, 1.0])
def test_it_covers_where_draws_share_oracles(interaction):
    """All ordered pairs of 6 oracles; each oracle acts in both places, and pairs interact."""
    pairs = np.array(list(itertools.permutations(range(6), 2)))
    rng = np.random.default_rng(10)
    held, naive, runs = 0, 0, 600
    for _ in range(runs):
        as_shadow, as_target = rng.standard_normal((2, 6))
        x, y = as_shadow[pairs[:, 0]], as_target[pairs[:, 1]]
        values = x + y + interaction * x * y  # the mean over new oracles is 0
        found = clustered_interval(values, pairs)
        held += found.low <= 0 <= found.high
        low, high = stats.t.interval(0.95, len(values) - 1, values.mean(), stats.sem(values))
        naive += low <= 0 <= high
    assert held / runs > 0.92
    assert naive / runs < 0.75


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
        (lambda: operating_point([1, 1], [0.1, 0.2], 0.5), "needed, got no negatives"),
        (lambda: operating_point([0, 0], [0.1, 0.2], 0.5), "needed, got no positives"),
        (lambda: operating_point([0, 1], [0.1, 0.2], [0.5, 0.6]), "threshold must be one"),
        (lambda: operating_point([0, 1], [0.1, 0.2], np.nan), "must not hold NaN"),
        (lambda: operating_point([0, 1], [0.1, 0.2], 0.5, 95), "confidence must lie strictly"),
        (lambda: tpr_at_fpr([0, 1], [0.1, 0.2], 1.5), "fpr must lie"),
        (lambda: tpr_at_fpr([0, 1], [0.1, np.inf]), "scores holds NaN or infinite"),
        (lambda: tpr_at_fpr([0, 1], [0, 1], chosen_on=([1, 1], [0, 1])), "got no negatives"),
        (lambda: threshold_on([0, 1], [0, 1], candidates=[]), "at least one threshold"),
        (lambda: threshold_on([0, 1], [0, 1], candidates=[np.nan]), "candidates holds NaN"),
        (lambda: threshold_on([0, 1], [0, 1], fpr=0.1, candidates=[0.5]), "not both"),
        (lambda: summary([1, 1], [0.1, 0.2]), "needed, got no negatives"),
        (lambda: summary([0, 1], [0.1]), "one entry per label"),
        (lambda: clustered_interval([1.0, np.nan], [0, 1]), "values holds NaN"),
        (lambda: clustered_interval([1.0, 2.0], [0, 0]), "at least two of them"),
        (lambda: clustered_interval([1.0, 2.0], [0]), "one row per value, 2"),
        (lambda: clustered_interval([], []), "integers|one row per value"),
        (lambda: clustered_interval([1.0, 2.0], [0.5, 1.0]), "clusters must be integers"),
        (lambda: clustered_interval([1.0, 2.0], [[0, 1], [0, 2]]), "every draw uses oracle 0"),
        (lambda: clustered_interval([1.0, 2.0], [0, 1], 1.0), "confidence must lie strictly"),
    ],
)
def test_bad_input_is_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def test_wrong_types_are_refused():
    with pytest.raises(TypeError, match="chosen_on must be"):
        tpr_at_fpr([0, 1], [0, 1], chosen_on=[[0, 1]])
    with pytest.raises(TypeError, match="fpr must be a real number"):
        tpr_at_fpr([0, 1], [0, 1], fpr="1 %")


def test_tables_are_read_only():
    table = confusion([0, 1], [0, 1])
    with pytest.raises(ValueError, match="read-only"):
        table.tp[...] = 5
