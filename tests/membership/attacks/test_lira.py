"""LiRA: against a naive loop, closed forms of the AUC, no leak, what must not matter."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from dprl.membership.attacks import lira
from dprl.membership.metrics import roc_curve


def halves(rng, models, records):
    """Each pair of models shares out the records, at random."""
    members = np.zeros((models, records), dtype=bool)
    for first in range(0, models, 2):
        members[first, rng.permutation(records)[: records // 2]] = True
        members[first + 1] = ~members[first]
    return members, np.arange(models) // 2


def area(members, ratios):
    return roc_curve(members.ravel(), ratios.ravel()).area


def naive(scores, members, groups, kinds):
    """One model, one record, one list of shadows at a time."""
    models, records = members.shape
    out = np.zeros((models, records))
    for target in range(models):
        shadows = [m for m in range(models) if groups[m] != groups[target]]
        lists = {
            kind: [[scores[m, j] for m in shadows if members[m, j] == kind] for j in range(records)]
            for kind in kinds
        }
        for j in range(records):
            laws = {}
            for kind in kinds:
                squares = sum(np.var(x) * len(x) for x in lists[kind])
                deviation = math.sqrt(squares / sum(len(x) - 1 for x in lists[kind]))
                laws[kind] = stats.norm(np.mean(lists[kind][j]), deviation)
            s = scores[target, j]
            if True in kinds:
                out[target, j] = laws[True].logpdf(s) - laws[False].logpdf(s)
            else:
                out[target, j] = (s - laws[False].mean()) / laws[False].std()
    return out


@pytest.mark.parametrize("paired", [True, False])
def test_a_loop_gives_the_same(paired):
    rng = np.random.default_rng(1)
    members, pairs = halves(rng, 10, 6)
    scores = rng.normal(size=(10, 6)) + members + rng.normal(size=6)
    groups = pairs if paired else np.arange(10)
    given_groups = pairs if paired else None
    for attack, kinds in ((lira.online, (True, False)), (lira.offline, (False,))):
        np.testing.assert_allclose(
            attack(scores, members, groups=given_groups),
            naive(scores, members, groups, kinds),
            rtol=1e-9,
            atol=1e-12,
        )


def test_several_scores_of_a_record_add_up():
    rng = np.random.default_rng(2)
    members, groups = halves(rng, 12, 8)
    scores = rng.normal(size=(12, 8, 3)) * [1.0, 5.0, 0.1]
    single = [lira.online(scores[:, :, k], members, groups=groups) for k in range(3)]
    np.testing.assert_allclose(lira.online(scores, members, groups=groups), sum(single))
    single = [lira.offline(scores[:, :, k], members, groups=groups) for k in range(3)]
    np.testing.assert_allclose(
        lira.offline(scores, members, groups=groups), sum(single) / math.sqrt(3)
    )


# known answers


@pytest.mark.parametrize("shift", [0.5, 1.5])
def test_equal_variances_give_the_closed_form(shift):
    """AUC of a shift d is Phi(d / sqrt 2), though the records differ far more than that."""
    rng = np.random.default_rng(3)
    members, groups = halves(rng, 80, 400)
    hardness = rng.normal(scale=20.0, size=400)
    scores = hardness + shift * members + rng.normal(size=members.shape)
    expected = stats.norm.cdf(shift / math.sqrt(2))
    for attack in (lira.online, lira.offline):
        assert area(members, attack(scores, members, groups=groups)) == pytest.approx(
            expected, abs=0.015
        )
    assert area(members, scores) < 0.5 + 0.1 * shift  # one threshold for all sees little


def test_another_variance_alone_is_found_online_only():
    """In: sd s, out: sd 1, equal means. AUC of |x| is (2 / pi) arctan s."""
    rng = np.random.default_rng(4)
    members, groups = halves(rng, 80, 400)
    scores = rng.normal(size=members.shape) * np.where(members, 3.0, 1.0)
    found = area(members, lira.online(scores, members, groups=groups))
    assert found == pytest.approx(2 / math.pi * math.atan(3.0), abs=0.015)
    assert area(members, lira.offline(scores, members, groups=groups)) == pytest.approx(
        0.5, abs=0.015
    )


@pytest.mark.parametrize("attack", [lira.online, lira.offline])
def test_no_leak_is_chance(attack):
    """Each pair shares out the pool: the interval over pairs holds 1/2, the mean is close."""
    rng = np.random.default_rng(6)
    means = []
    for _ in range(40):
        members, groups = halves(rng, 16, 40)
        effect = rng.normal(size=(16, 1))  # some models fit everything better
        scores = rng.normal(size=40) + effect + rng.normal(size=(16, 40))
        ratios = attack(scores, members, groups=groups)
        means.append(np.mean([area(members[m], ratios[m]) for m in range(16)]))
    gap = np.mean(means) - 0.5
    assert abs(gap) < 4 * np.std(means, ddof=1) / math.sqrt(len(means))
    assert abs(gap) < 0.01


def test_without_pairs_as_groups_the_number_of_shadows_tells():
    """Balanced halves: of the other models, fewer hold a record that the target holds."""
    rng = np.random.default_rng(7)
    members, groups = halves(rng, 6, 40)
    shadows_in = members.sum(axis=0) - members
    assert area(members, -shadows_in) == 1.0
    kept = [members[groups != groups[m]].sum(axis=0) for m in range(6)]
    assert (np.array(kept) == 2).all()


@given(st.floats(0.1, 10), st.floats(-100, 100), st.integers(0, 2**32))
def test_units_do_not_matter(scale, shift, seed):
    rng = np.random.default_rng(seed)
    members, groups = halves(rng, 8, 4)
    scores = rng.normal(size=(8, 4))
    for attack in (lira.online, lira.offline):
        np.testing.assert_allclose(
            attack(scale * scores + shift, members, groups=groups),
            attack(scores, members, groups=groups),
            rtol=1e-6,
            atol=1e-6,
        )


def test_constant_scores_say_nothing():
    members, groups = halves(np.random.default_rng(8), 8, 4)
    for attack in (lira.online, lira.offline):
        assert (attack(np.full((8, 4), 2.5), members, groups=groups) == 0).all()


def test_the_targets_own_score_is_not_among_the_shadows():
    rng = np.random.default_rng(9)
    members, groups = halves(rng, 8, 4)
    scores = rng.normal(size=(8, 4))
    before = lira.online(scores, members, groups=groups)
    scores[1] += 100.0  # the partner of model 0
    np.testing.assert_array_equal(lira.online(scores, members, groups=groups)[0], before[0])


# bad input

MEMBERS = np.array([[1, 0], [0, 1], [1, 0], [0, 1], [1, 0], [0, 1]])
SCORES = np.arange(12.0).reshape(6, 2)


@pytest.mark.parametrize(
    ("scores", "members", "options", "message"),
    [
        (SCORES[0], MEMBERS, {}, "scores must have the shape"),
        (np.zeros((6, 0)), MEMBERS, {}, "at least one of each"),
        (np.where(SCORES > 10, np.nan, SCORES), MEMBERS, {}, "scores holds NaN"),
        (SCORES, MEMBERS[:, :1], {}, "members must have one entry per model and record"),
        (SCORES, MEMBERS * 2, {}, "members must be booleans"),
        (SCORES, MEMBERS, {"groups": [0, 1]}, "one whole number per model"),
        (SCORES, MEMBERS, {"groups": [0, 0, 0, 0, 0, 0.5]}, "one whole number per model"),
        (SCORES, MEMBERS, {"groups": [3] * 6}, "at least two groups"),
        (SCORES, np.ones((6, 2)), {}, 'record 0 has no shadow model of the kind "out"'),
        (SCORES[:4], MEMBERS[:4], {"groups": [0, 0, 1, 1]}, "a pooled variance"),
    ],
)
def test_bad_input(scores, members, options, message):
    with pytest.raises(ValueError, match=message):
        lira.online(scores, members, **options)


def test_offline_needs_no_shadow_that_was_trained_on_the_record():
    lira.offline(SCORES, np.zeros((6, 2)))
    with pytest.raises(ValueError, match='kind "in"'):
        lira.online(SCORES, np.zeros((6, 2)))
