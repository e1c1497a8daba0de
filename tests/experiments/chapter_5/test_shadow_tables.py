"""Attacks by the source of their shadows: against single calls, what is used, what is refused."""

from dataclasses import replace

import numpy as np
import pytest

from dprl.membership.attacks import lira, rmia, scores
from dprl.membership.metrics import roc_curve
from experiments.chapter_5 import leak_tables, leaks, shadow_tables


@pytest.fixture(scope="module")
def leak(tiny_leak_settings, tiny_folder, tiny_study):
    return leaks.run(tiny_leak_settings, tiny_folder)


def test_models_of_one_oracle_are_asked_about_the_trajectories_of_the_other(leak):
    crossed = shadow_tables.cross_scores(leak, "white-box")
    assert crossed.shape == (2, 2, 6, 16)
    for o in (0, 1):
        np.testing.assert_array_equal(crossed[o, o, :, :8], leak.scores["white-box"][-1, o])
        np.testing.assert_array_equal(crossed[o, o, :, 8:], leak.fresh_scores["white-box"][o])
    strangers = scores.vae_score(leak.models.select(range(6, 12)), leak.pools[0])
    np.testing.assert_allclose(crossed[0, 1, :, :8], strangers, rtol=1e-5)


def test_own_shadows_give_the_known_attacks(leak):
    for attack in ("threshold", "lira-online", "lira-offline"):
        found = shadow_tables.attack_scores(leak, "white-box", attack)[..., :8]
        known = leak_tables.attack_scores(leak, "white-box", attack)
        # offline, the fresh trajectories share in the pooled deviation: one factor per target
        scale = (found / known)[..., :1]
        np.testing.assert_allclose(found, scale * known)
        assert attack == "lira-offline" or np.allclose(scale, 1)
    assert np.isnan(shadow_tables.attack_scores(leak, "white-box", "rmia-online")[..., 8:]).all()


def test_rmia_takes_its_unit_and_its_a_from_the_shadows(leak):
    found = shadow_tables.attack_scores(leak, "white-box", "rmia-offline")
    pairs = leak.settings.pairs
    target, left = 2, pairs != pairs[2]  # of oracle 1
    z = slice(8, 12)  # the first half of the fresh ones
    values = np.concatenate(
        [leak.scores["white-box"][-1, 1], leak.fresh_scores["white-box"][1]], axis=-1
    )
    p = rmia.likelihood(values, float(np.median(-values[left, z])))
    members = leak.members[1]
    a = rmia.chosen_a(p[left, :8], members[left], p[left, z], groups=pairs[left])
    alone = rmia.offline(p[:, :8], members, p[:, z], a=a, groups=pairs)
    np.testing.assert_array_equal(found[1, target, :8], alone[target])


def test_other_shadows_are_all_models_of_the_other_oracle_and_no_own_one(leak):
    found = shadow_tables.attack_scores(leak, "every-state", "lira-offline", "other")
    crossed = -np.log(-shadow_tables.cross_scores(leak, "every-state"))
    for o, m in ((0, 0), (1, 5)):
        both = np.vstack([crossed[o, o, m], crossed[o, 1 - o]])
        expected = lira.offline(both, np.zeros(both.shape, dtype=bool))[0]
        np.testing.assert_allclose(found[o, m], expected)


def test_the_table_has_a_row_for_every_attack_and_says_what_it_cannot_resolve(leak):
    table = shadow_tables.table(leak)
    assert len(table) == 2 * len(shadow_tables.ATTACKS)
    rows = table.set_index(["access", "attack", "shadows"])
    known = leak_tables.attack_table(leak)
    known = known[known["updates"] == 4].set_index(["access", "attack"])
    for access in shadow_tables.ACCESS:
        for attack in ("threshold", "lira-online", "lira-offline"):
            assert rows.at[(access, attack, "own"), "auc"] == pytest.approx(
                known.at[(access, attack), "auc"]
            )
    judged = shadow_tables.attack_scores(leak, "white-box", "rmia-online")[..., :8]
    areas = [
        roc_curve(leak.members[at], judged[at]).area for at in np.ndindex(leak.members.shape[:2])
    ]
    assert rows.at[("white-box", "rmia-online", "own"), "auc"] == pytest.approx(np.mean(areas))
    # 4 models of other pairs, with 4 of the pool and 4 fresh ones each; 6 of the other oracle
    assert set(rows.xs("rmia-offline", level=1)["chosen_on"]) == {32}
    assert set(rows.xs("rmia-online", level=1)["chosen_on"]) == {16}
    assert set(rows.xs("other", level=2)["chosen_on"]) == {48}
    assert table[["tpr_1pct", "tpr_01pct", "fpr_1pct"]].isna().all(axis=None)


def test_rates_are_those_of_thresholds_chosen_elsewhere(leak, monkeypatch):
    monkeypatch.setattr(shadow_tables, "RATES", (0.1, 0.001))
    rows = shadow_tables.table(leak).set_index(["access", "attack", "shadows"])
    carried = rows.loc[("white-box", "threshold", "other")]
    values = [
        np.concatenate([leak.scores["white-box"][-1, o], leak.fresh_scores["white-box"][o]], -1)
        for o in (0, 1)
    ]
    found, alarms = 0, 0
    for own in (0, 1):
        other = 1 - own
        negatives = np.sort(
            np.append(values[other][:, :8][~leak.members[other]], values[other][:, 8:12])
        )
        spared = negatives[-int(0.1 * negatives.size) - 1]
        known = np.append(values[other][:, :8].ravel(), values[other][:, 8:12].ravel())
        threshold = known[known > spared].min()
        found += (values[own][:, :8][leak.members[own]] >= threshold).sum()
        alarms += (values[own][:, 12:] >= threshold).sum()
    assert carried["tpr_1pct"] == pytest.approx(found / leak.members.sum())
    assert carried["fpr_1pct"] == pytest.approx(alarms / carried["negatives_1pct"])
    assert carried["negatives_1pct"] == 12 * 4
    assert carried["tpr_exact_low_1pct"] <= carried["tpr_1pct"] <= carried["tpr_exact_high_1pct"]
    assert np.isnan(rows.at[("white-box", "lira-offline", "other"), "tpr_1pct"])
    assert rows["tpr_01pct"].isna().all()


def test_what_cannot_be_asked_is_refused(leak):
    with pytest.raises(ValueError, match="access must be one of"):
        shadow_tables.attack_scores(leak, "closed-loop", "threshold")
    with pytest.raises(ValueError, match="no attack 'rmia-online'"):
        shadow_tables.attack_scores(leak, "white-box", "rmia-online", "other")
    alone = replace(
        leak,
        settings=replace(leak.settings, fresh=0),
        fresh=[],
        fresh_scores={name: found[..., :0] for name, found in leak.fresh_scores.items()},
    )
    with pytest.raises(ValueError, match="no population"):
        shadow_tables.attack_scores(alone, "white-box", "threshold")
