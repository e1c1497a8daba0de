"""Exact intervals for a probability: SciPy as reference, coverage, limits, bad input."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from dprl.intervals import clopper_pearson, clopper_pearson_lower, clopper_pearson_upper

counts = st.integers(1, 400).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n)))
levels = st.floats(1e-6, 0.5)


@given(counts, levels)
def test_the_interval_is_that_of_scipy(pair, level):
    k, n = pair
    test = stats.binomtest(k, n, alternative="greater")
    low = test.proportion_ci(confidence_level=1 - level, method="exact").low
    test = stats.binomtest(k, n, alternative="less")
    high = test.proportion_ci(confidence_level=1 - level, method="exact").high
    assert clopper_pearson_lower(k, n, level) == pytest.approx(low, abs=1e-12)
    assert clopper_pearson_upper(k, n, level) == pytest.approx(high, abs=1e-12)


@given(counts, levels)
def test_the_bounds_are_mirror_images_and_hold_the_observed_rate(pair, level):
    k, n = pair
    low, high = clopper_pearson_lower(k, n, level), clopper_pearson_upper(k, n, level)
    assert clopper_pearson_upper(n - k, n, level) == pytest.approx(1 - low, abs=1e-12)
    assert 0 <= low <= k / n <= high <= 1


@pytest.mark.parametrize("n", [1, 7, 60])
@pytest.mark.parametrize("level", [0.01, 0.05, 0.3])
def test_the_level_is_kept_for_every_probability_by_enumeration(n, level):
    k = np.arange(n + 1)
    low, high = clopper_pearson_lower(k, n, level), clopper_pearson_upper(k, n, level)
    for p in np.linspace(0.001, 0.999, 201):
        weight = stats.binom.pmf(k, n, p)
        assert weight[low > p].sum() <= level + 1e-12
        assert weight[high < p].sum() <= level + 1e-12


@given(st.integers(0, 60), st.integers(0, 60), st.floats(0.01, 0.999))
def test_interval_ends_are_where_the_binomial_tails_hold_half_the_level(k, more, confidence):
    n = k + more
    low, high = (float(end) for end in clopper_pearson(k, n, confidence))
    half = (1 - confidence) / 2
    assert 0 <= low <= (k / n if n else 0.5) <= high <= 1
    if k > 0:
        assert stats.binom.sf(k - 1, n, low) == pytest.approx(half, rel=1e-6)
    else:
        assert low == 0
    if k < n:
        assert stats.binom.cdf(k, n, high) == pytest.approx(half, rel=1e-6)
    else:
        assert high == 1


@pytest.mark.parametrize(("n", "confidence"), [(1, 0.9), (10, 0.95), (37, 0.8), (200, 0.99)])
def test_coverage_is_never_below_the_confidence(n, confidence):
    k = np.arange(n + 1)
    low, high = clopper_pearson(k, n, confidence)
    # the coverage is lowest at an end of an interval, seen from outside
    ends = np.unique(np.concatenate([low, high]))
    p = np.concatenate([ends, ends - 1e-9, ends + 1e-9, np.linspace(0, 1, 997)]).clip(0, 1)
    inside = (low <= p[:, None]) & (p[:, None] <= high)
    coverage = (stats.binom.pmf(k, n, p[:, None]) * inside).sum(axis=1)
    assert coverage.min() >= confidence - 1e-6
    assert coverage.min() < confidence + 0.1


def test_intervals_broadcast_and_mirror():
    low, high = clopper_pearson([[0], [3]], [5, 10, 20])
    assert low.shape == high.shape == (2, 3)
    alone = clopper_pearson(3, 20)
    assert (low[1, 2], high[1, 2]) == (float(alone[0]), float(alone[1]))
    mirror = clopper_pearson(17, 20)
    assert (1 - float(mirror[1]), 1 - float(mirror[0])) == pytest.approx((low[1, 2], high[1, 2]))
    nothing = clopper_pearson(0, 0)
    assert (float(nothing[0]), float(nothing[1])) == (0.0, 1.0)


def test_rule_of_three():
    """No hit in n trials: a one-sided 95 per cent bound of about 3/n."""
    _, high = clopper_pearson(0, [100, 1_000, 100_000], confidence=0.9)
    assert high * [100, 1_000, 100_000] == pytest.approx(-np.log(0.05), rel=0.02)
    assert high == pytest.approx(1 - 0.05 ** (1 / np.array([100, 1_000, 100_000])))


def test_the_two_sided_interval_is_made_of_the_one_sided_bounds():
    low, high = clopper_pearson(7, 30, confidence=0.8)
    assert float(low) == float(clopper_pearson_lower(7, 30, 0.1))
    assert float(high) == float(clopper_pearson_upper(7, 30, 0.1))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: clopper_pearson_lower(-1, 5, 0.05), "count must lie"),
        (lambda: clopper_pearson_upper(6, 5, 0.05), "count must lie"),
        (lambda: clopper_pearson_lower(0, -1, 0.05), "count must lie"),
        (lambda: clopper_pearson_lower(1, 5, 0.0), "level must lie"),
        (lambda: clopper_pearson(3, 2), "count must lie"),
        (lambda: clopper_pearson(0.5, 2), "count must hold whole"),
        (lambda: clopper_pearson(1, 2.5), "trials must hold whole"),
        (lambda: clopper_pearson(1, 2, 1.0), "confidence must lie strictly"),
        (lambda: clopper_pearson([np.nan], 2), "count holds NaN"),
    ],
)
def test_bad_input_is_refused(call, message):
    with pytest.raises(ValueError, match=message):
        call()
