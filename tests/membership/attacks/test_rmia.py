"""RMIA: against a naive loop, its invariances, known answers, no leak, what it refuses."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from dprl.membership.attacks import rmia
from dprl.membership.metrics import roc_curve


def halves(rng, models, records):
    """Each pair of models shares out the records, at random."""
    members = np.zeros((models, records), dtype=bool)
    for first in range(0, models, 2):
        members[first, rng.permutation(records)[: records // 2]] = True
        members[first + 1] = ~members[first]
    return members, np.arange(models) // 2


def made_up(rng, models, records, z, shift=1.0):
    """Records differ by more than membership changes; so do models."""
    members, groups = halves(rng, models, records)
    hard, model = rng.normal(size=records + z), 0.3 * rng.normal(size=(models, 1))
    gap = np.exp(hard + model + 0.3 * rng.normal(size=(models, records + z)))
    gap[:, :records] *= np.exp(-shift * members)
    p = rmia.likelihood(-gap, unit=1.0)
    return p[:, :records], members, p[:, records:], groups


def naive(p, members, population, groups, gamma, a=None):
    """One model, one record, one population record at a time."""
    out = np.zeros(p.shape)
    for target in range(len(p)):
        shadows = [m for m in range(len(p)) if groups[m] != groups[target]]
        for j in range(p.shape[1]):
            p_out = np.mean([p[m, j] for m in shadows if not members[m, j]])
            if a is None:
                p_x = (np.mean([p[m, j] for m in shadows if members[m, j]]) + p_out) / 2
            else:
                p_x = 0.5 * ((1 + a) * p_out + (1 - a))
            wins = 0
            for z in range(population.shape[1]):
                p_z = np.mean([population[m, z] for m in shadows])
                if a is not None:
                    p_z = 0.5 * ((1 + a) * p_z + (1 - a))
                ratio = (p[target, j] / p_x) / (population[target, z] / p_z)
                wins += ratio >= gamma
            out[target, j] = wins / population.shape[1]
    return out


@pytest.mark.parametrize("gamma", [0.7, 1.0, 2.0])
@pytest.mark.parametrize("paired", [True, False])
def test_a_loop_gives_the_same(gamma, paired):
    p, members, population, pairs = made_up(np.random.default_rng(1), 8, 6, 9)
    groups = pairs if paired else np.arange(8)
    given_groups = pairs if paired else None
    np.testing.assert_allclose(
        rmia.online(p, members, population, groups=given_groups, gamma=gamma),
        naive(p, members, population, groups, gamma),
    )
    for a in (0.0, 0.3, 1.0):
        np.testing.assert_allclose(
            rmia.offline(p, members, population, a=a, groups=given_groups, gamma=gamma),
            naive(p, members, population, groups, gamma, a),
        )


def test_each_target_may_have_its_own_a():
    p, members, population, groups = made_up(np.random.default_rng(2), 6, 8, 11)
    weights = np.linspace(0, 1, 6)
    found = rmia.offline(p, members, population, a=weights, groups=groups)
    for target, a in enumerate(weights):
        alone = rmia.offline(p, members, population, a=a, groups=groups)
        np.testing.assert_array_equal(found[target], alone[target])


@given(seed=st.integers(0, 2**32 - 1), gamma=st.floats(0.25, 4))
def test_the_order_within_a_model_is_that_of_its_ratio(seed, gamma):
    """Population and gamma only set the scale: a larger p / p(x) never has a smaller score."""
    p, members, population, groups = made_up(np.random.default_rng(seed), 6, 8, 7)
    scores = rmia.offline(p, members, population, a=1.0, groups=groups, gamma=gamma)
    for target in range(6):
        shadow = groups != groups[target]
        out = shadow[:, None] & ~members
        p_x = (p * out).sum(axis=0) / out.sum(axis=0)
        order = np.argsort(p[target] / p_x)
        assert (np.diff(scores[target, order]) >= 0).all()
    assert ((scores >= 0) & (scores <= 1)).all()
    np.testing.assert_allclose(scores * 7, np.round(scores * 7))


def test_a_larger_gamma_accuses_less_and_models_are_put_on_one_scale():
    p, members, population, groups = made_up(np.random.default_rng(3), 6, 8, 50)
    at = [rmia.online(p, members, population, groups=groups, gamma=g) for g in (0.5, 1.0, 2.0)]
    assert (at[0] >= at[1]).all()
    assert (at[1] >= at[2]).all()
    assert (at[0] > at[2]).any()
    # a target that fits everything k times better has the same scores
    scaled, scaled_z = p.copy(), population.copy()
    scaled[0], scaled_z[0] = p[0] / 3, population[0] / 3
    np.testing.assert_array_equal(
        rmia.online(scaled, members, scaled_z, groups=groups)[0], at[1][0]
    )


def test_of_a_non_member_that_is_like_the_population_the_score_is_uniform():
    """Exchangeable records: with gamma = 1 the score exceeds 1 - alpha with probability alpha."""
    rng = np.random.default_rng(4)
    models, records, z = 4, 2_000, 999
    p = rmia.likelihood(-np.exp(rng.normal(size=(models, records + z))), 1.0)
    members = np.zeros((models, records), dtype=bool)
    scores = rmia.offline(p[:, :records], members, p[:, records:], a=1.0)
    for alpha in (0.05, 0.5):
        share = (scores > 1 - alpha).mean()
        assert share == pytest.approx(alpha, abs=5 * np.sqrt(alpha / records))


def test_hard_records_are_compared_with_themselves():
    """Far more is found than with one threshold, and no leak is no find."""
    rng = np.random.default_rng(5)
    p, members, population, groups = made_up(rng, 20, 200, 200, shift=1.0)
    plain = np.mean([roc_curve(y, s).area for y, s in zip(members, p, strict=True)])
    for scores in (
        rmia.online(p, members, population, groups=groups),
        rmia.offline(p, members, population, a=1.0, groups=groups),
    ):
        area = np.mean([roc_curve(y, s).area for y, s in zip(members, scores, strict=True)])
        assert area > plain + 0.1
    p, members, population, groups = made_up(rng, 40, 200, 200, shift=0.0)
    scores = rmia.online(p, members, population, groups=groups)
    pairs = [roc_curve(members[m], scores[m]).area for m in range(40)]
    assert np.mean(pairs) == pytest.approx(0.5, abs=4 / np.sqrt(12 * 100 * 40))


def test_a_is_the_best_one_and_the_first_of_equals():
    rng = np.random.default_rng(6)
    p, members, population, groups = made_up(rng, 8, 20, 30)
    chosen = rmia.chosen_a(p, members, population, groups=groups)
    areas = []
    for a in rmia.CANDIDATES:
        found = rmia.offline(p, members, population, a=a, groups=groups)
        each = zip(members, found, strict=True)
        areas.append(np.mean([roc_curve(y, s).area for y, s in each]))
    assert chosen == rmia.CANDIDATES[int(np.argmax(areas))]
    assert rmia.chosen_a(p, members, population, groups=groups, candidates=[0.4]) == 0.4
    flat = np.full_like(p, 0.5)
    assert rmia.chosen_a(flat, members, population, groups=groups, candidates=[0.7, 0.2]) == 0.7


def test_likelihood_is_laplace_up_to_a_constant():
    gaps = np.array([0.0, 0.5, 3.0])
    found = rmia.likelihood(-gaps, unit=0.7)
    density = stats.laplace.pdf(gaps, scale=0.7)
    np.testing.assert_allclose(found, density / density[0])
    assert rmia.likelihood([-1e9], unit=1.0)[0] > 0


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"p": [[0.0, 0.5]] * 4}, r"\(0, 1\]"),
        ({"p": [[1.5, 0.5]] * 4}, "p must"),
        ({"members": [[1, 0]] * 3}, "shape"),
        ({"population": [[0.5]] * 3}, "shape"),
        ({"population": [[]] * 4}, "population"),
        ({"groups": [0, 0, 0, 0]}, "two groups"),
        ({"groups": [0, 1]}, "one whole number"),
        ({"groups": [0.0, 1.0, 2.0, 3.0]}, "one whole number"),
        ({"gamma": 0.0}, "gamma"),
        ({"members": [[1, 0]] * 4}, "record . lacks"),
    ],
)
def test_what_makes_no_sense_is_refused(change, message):
    fine = {
        "p": [[0.5, 0.4]] * 4,
        "members": [[1, 0], [0, 1]] * 2,
        "population": [[0.5, 0.6]] * 4,
    }
    rmia.online(**fine)
    with pytest.raises(ValueError, match=message):
        rmia.online(**(fine | change))


def test_offline_and_the_choice_of_a_refuse_too():
    p, members, population, groups = made_up(np.random.default_rng(7), 4, 4, 3)
    with pytest.raises(ValueError, match="a must"):
        rmia.offline(p, members, population, a=1.5)
    with pytest.raises(ValueError, match="one per model"):
        rmia.offline(p, members, population, a=[0.1, 0.2])
    with pytest.raises(ValueError, match="candidates"):
        rmia.chosen_a(p, members, population, groups=groups, candidates=[])
    with pytest.raises(ValueError, match="two groups"):
        rmia.chosen_a(p[:2], members[:2], population[:2], groups=groups[:2])
    with pytest.raises(ValueError, match="minus a distance"):
        rmia.likelihood([0.1], 1.0)
