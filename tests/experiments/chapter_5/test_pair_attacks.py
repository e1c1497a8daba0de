"""Draws of oracles, the table behind table 5.2, and what may never share a trajectory."""

import dataclasses
import itertools
from collections import Counter

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from companion.sweeps import Deadline, OutOfTime
from dprl.membership import metrics, pairs
from dprl.membership.attacks.resnet import ResNetSettings
from experiments.chapter_5 import pair_attacks
from experiments.chapter_5.oracle_draws import draws
from experiments.chapter_5.pair_attacks import AttackSettings
from experiments.chapter_5.stages import Watch


def over():
    """A deadline that has passed when it is first asked."""
    return Watch(Deadline(1, clock=itertools.count(0.0, 2.0).__next__))


@pytest.fixture(scope="module")
def found(tiny_study, tiny_attacks):
    return pair_attacks.run(tiny_study, tiny_attacks)


# -- draws ------------------------------------------------------------------------------


@given(oracles=st.integers(4, 11), several=st.booleans(), seed=st.integers(0, 1000))
def test_a_draw_has_distinct_oracles_and_every_oracle_is_target_equally_often(
    oracles, several, seed
):
    matched = oracles - oracles % 2
    found = draws(oracles, several, seed)
    assert len(found) == matched * (1 if several else matched - 2)
    for draw in found:
        shadows = {o for model in draw.shadow.models for o in model}
        assert draw.positive != draw.negative
        assert not shadows & {draw.positive, draw.negative}
        if several:
            assert len(shadows) == oracles - 2
            assert [a for a, _ in draw.shadow.models] != [b for _, b in draw.shadow.models]
        else:
            assert len(shadows) == 2
    assert len({(d.shadow, d.positive, d.negative) for d in found}) == len(found)
    assert len(set(Counter(draw.positive for draw in found).values())) == 1


def test_in_a_ring_every_shadow_oracle_is_positive_once_and_negative_once():
    for draw in draws(8, several=True, seed=3):
        positive, negative = zip(*draw.shadow.models, strict=True)
        assert sorted(positive) == sorted(negative)
        assert all(a != b for a, b in draw.shadow.models)


def test_matches_name_the_oracles_that_draws_share():
    for draw in draws(6, several=False, seed=1):
        own, target = draw.matches
        assert own != target
    of_match = {}
    for draw in draws(6, several=True, seed=1):
        of_match.setdefault(draw.matches[1], set()).update((draw.positive, draw.negative))
    assert sorted(len(two) for two in of_match.values()) == [2, 2, 2]
    assert set().union(*of_match.values()) == set(range(6))


# -- tables -----------------------------------------------------------------------------


def test_columns_are_those_of_the_record(found):
    assert list(found.table)[:15] == [
        *("environment", "t_max", "mode", "labels", "shadows", "oracles", "draws"),
        *("accuracy", "accuracy_se", "precision", "recall", "f1", "mcc", "auc"),
        "tpr_at_fpr_1pct",
    ]
    assert not found.table.duplicated(list(pair_attacks.KEYS)).any()


def test_every_training_is_tested_as_the_module_says(found):
    target = found.table[(found.table["split"] == "target") & (found.table["length"] == 6)]
    for name, tests in pair_attacks._TESTS.items():
        for shadows in (1, 2):
            rows = target[(target["training"] == name) & (target["shadows"] == shadows)]
            assert set(rows["labels"]) == set(tests)
            assert set(rows["mode"]) == {"individual", "collective"}
            assert set(rows["draws"]) == {8 if shadows == 1 else 4}


def test_the_table_holds_means_over_draws(found):
    for row in found.table.itertuples():
        part = found.per_draw
        for key in pair_attacks.KEYS:
            part = part[part[key] == getattr(row, key)]
        assert row.draws == len(part)
        assert np.isclose(row.accuracy, part["accuracy"].mean())
        both = part["shadow_match"].to_numpy() != part["target_match"].to_numpy()
        assert np.isnan(row.accuracy_se) == both.all()  # two matches: none can be left out


@pytest.mark.parametrize("several", [False, True])
def test_the_error_of_a_mean_leaves_out_one_match_at_a_time(several):
    rng = np.random.default_rng(0)
    table = pd.DataFrame(
        [
            {
                **dict.fromkeys(pair_attacks.KEYS, 0),
                "oracles": 8,
                "shadow_match": draw.matches[0],
                "target_match": draw.matches[1],
                **{name: rng.random() for name in pair_attacks.METRICS},
            }
            for draw in draws(8, several, seed=2)
        ]
    )
    (row,) = pair_attacks.summarise(table).itertuples()
    left = np.array(
        [
            table[(table["shadow_match"] != m) & (table["target_match"] != m)]["accuracy"].mean()
            for m in range(4)
        ]
    )
    assert np.isclose(row.accuracy_se**2, 3 / 4 * ((left - left.mean()) ** 2).sum())
    if several:  # one cluster each: the standard error of the mean of four means
        means = table.groupby("target_match")["accuracy"].mean()
        assert np.isclose(row.accuracy_se, means.std() / 2)


def test_swap_twins_are_judged_on_both_models_of_the_target(found):
    one_mode = found.per_draw[found.per_draw["mode"] == "individual"]
    tested = one_mode[one_mode["split"] == "target"].groupby("labels")["tested"].unique()
    assert {labels: list(counts) for labels, counts in tested.items()} == {
        **{key: [20] for key in ("as-printed", "same-oracle", "never-seen")},
        **{key: [20] for key in ("input-only", "decorrelated")},
        "swap-twins": [40],
    }


def test_the_best_threshold_on_the_tested_data_is_never_worse_than_one_half(found):
    rows = found.per_draw
    assert (rows["accuracy_best_threshold"] >= rows["accuracy"] - 1e-12).all()
    target = rows[rows["split"] == "target"]
    assert (target["accuracy_best_threshold"] >= target["accuracy_shadow_threshold"] - 1e-12)[
        target["accuracy_shadow_threshold"].notna()
    ].all()
    assert set(rows["best_threshold"]) <= set(pair_attacks.THRESHOLDS)


def test_curves_rise_from_0_to_1_and_their_draws_are_counted(found):
    for _, curve in found.roc.groupby(
        ["mode", "labels", "shadows", "training", "network", "length"]
    ):
        assert (np.diff(curve["tpr"]) >= 0).all()
        assert curve["fpr"].iloc[0] == 0
        assert curve["tpr"].iloc[-1] == 1
        assert curve["draws"].nunique() == 1


def test_an_attack_on_the_input_alone_is_right_half_of_the_time(found):
    """What it wins on one order of a match it loses on the other."""
    rows = found.per_draw[
        (found.per_draw["labels"] == "input-only")
        & (found.per_draw["split"] == "target")
        & (found.per_draw["mode"] == "individual")
    ]
    orders = ["shadows", "shadow_positive", "shadow_half", "target_match"]
    for _, both in rows.groupby(orders):
        assert both["accuracy"].size == 2
        assert np.isclose(both["accuracy"].sum(), 1)
        assert np.isclose(both["auc"].sum(), 1)


def test_views_of_the_table_keep_what_their_figures_show(found):
    main = pair_attacks.table_5_2(found.table)
    assert "decorrelated" not in set(main["labels"]) | set(main["training"])
    assert "length" not in main
    lengths = pair_attacks.clipping(found.table)
    assert set(lengths["length"]) == {3, 6}
    figure = pair_attacks.temporal_correlation(found.table)
    assert set(zip(figure["training"], figure["test"], strict=True)) == {
        ("correlated", "correlated"),
        ("decorrelated", "correlated"),
        ("decorrelated", "decorrelated"),
    }
    assert set(found.table[found.table["length"] == 3]["shadows"]) == {1}
    assert not figure.duplicated(["mode", "training", "test", "shadows", "split"]).any()


# -- one attack, done by hand -----------------------------------------------------------


def test_a_row_equals_the_attack_done_by_hand(tiny_study, tiny_attacks, found):
    draw = draws(4, several=False, seed=tiny_attacks.seed)[0]
    kind = pair_attacks._Kind("as-printed", False, 6, "tcn")
    attacks = pair_attacks._Attacks(tiny_study, tiny_attacks, kind)
    shadows = list(dict.fromkeys(one.shadow for one in attacks.draws))
    states = attacks.training_states
    learnt = {one: attacks._shadow_pairs(one, "as-printed", states) for one in shadows}
    classifier = dict(zip(shadows, attacks._fit(learnt), strict=True))[draw.shadow]
    formatter = pairs.DataFormatter(tiny_study.inputs, tiny_study.outputs)
    judged = formatter.label(draw.positive, other=draw.negative, half=draw.half)
    expected = metrics.summary(judged.labels, classifier.logits(judged.pairs), 0.0)
    row = found.per_draw[
        (found.per_draw["mode"] == "individual")
        & (found.per_draw["labels"] == "as-printed")
        & (found.per_draw["training"] == "as-printed")
        & (found.per_draw["split"] == "target")
        & (found.per_draw["length"] == 6)
        & (found.per_draw["shadows"] == 1)
    ].iloc[0]
    assert (row["target_positive"], row["target_negative"]) == (draw.positive, draw.negative)
    assert np.isclose(row["auc"], expected["auc"], atol=0.02)
    assert np.isclose(row["accuracy"], expected["accuracy"], atol=0.11)  # 20 pairs, one at 0


def test_training_shares_no_trajectory_with_validation_and_target(tiny_study, tiny_attacks):
    for several in (False, True):
        for name in pair_attacks.TRAININGS:
            kind = pair_attacks._Kind(name, several, 6, "tcn")
            attacks = pair_attacks._Attacks(tiny_study, tiny_attacks, kind)
            for draw in attacks.draws:
                parts = [
                    attacks._shadow_pairs(draw.shadow, name, states)
                    for states in (attacks.training_states, attacks.validation_states)
                ]
                judged = attacks._pairs(*draw.target, "as-printed", np.arange(attacks.m))
                pairs.require_disjoint(*parts, judged)


def test_a_shared_trajectory_is_refused_before_anything_is_judged(
    tiny_study, tiny_attacks, monkeypatch
):
    kind = pair_attacks._Kind("as-printed", False, 6, "tcn")
    attacks = pair_attacks._Attacks(tiny_study, tiny_attacks, kind)
    attacks.validation_states = attacks.training_states[:3]
    monkeypatch.setattr(attacks, "_fit", lambda learnt: [None] * len(learnt))
    with pytest.raises(ValueError, match="sets 0 and 1 share"):
        attacks.results()


# -- kept, continued, refused -----------------------------------------------------------


def test_what_was_judged_is_loaded(tiny_study, tiny_attacks, found, monkeypatch):
    monkeypatch.setattr(pair_attacks.training, "train_many", None)
    again = pair_attacks.run(tiny_study, tiny_attacks, over())
    pd.testing.assert_frame_equal(again.per_draw, found.per_draw)
    pd.testing.assert_frame_equal(again.roc, found.roc)
    fewer = dataclasses.replace(tiny_attacks, lengths=())
    assert len(pair_attacks.run(tiny_study, fewer).per_draw) < len(found.per_draw)


def test_after_the_deadline_no_kind_is_begun(tiny_study, tiny_attacks):
    later = dataclasses.replace(tiny_attacks, seed=99)
    with pytest.raises(OutOfTime):
        pair_attacks.run(tiny_study, later, over())


def test_too_few_pairs_for_a_bag_leave_the_collective_mode_out(tiny_study, tiny_attacks):
    one = dataclasses.replace(
        tiny_attacks, bag_size=11, trainings=("input-only",), several_shadows=False, lengths=()
    )
    assert set(pair_attacks.run(tiny_study, one).per_draw["mode"]) == {"individual"}


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        ({"trainings": ()}, ValueError, "trainings must be some of as-printed"),
        ({"trainings": ("honest",)}, ValueError, "trainings must be some of as-printed"),
        ({"bag_size": 0}, ValueError, "bag_size must be at least 1"),
        ({"validation_share": 1.0}, ValueError, "validation_share must lie strictly"),
        ({"tcn": ResNetSettings()}, TypeError, "tcn must be a TCNSettings"),
        ({"resnet": "18"}, TypeError, "resnet must be a ResNetSettings"),
        ({"lengths": (0,)}, ValueError, "each of lengths must be at least 1"),
    ],
)
def test_malformed_settings_are_refused(changes, error, message):
    with pytest.raises(error, match=message):
        AttackSettings(**changes)


def test_clipping_beyond_t_max_and_other_objects_are_refused(tiny_study, tiny_attacks):
    beyond = dataclasses.replace(tiny_attacks, lengths=(6,))
    with pytest.raises(ValueError, match="clipping lengths must be below T_max = 6, got 6"):
        pair_attacks.run(tiny_study, beyond)
    with pytest.raises(TypeError, match="study must be a Study"):
        pair_attacks.run(None, tiny_attacks)
    with pytest.raises(ValueError, match="oracles must be at least 4"):
        draws(3, several=False, seed=0)


def test_a_network_on_bags_judges_bags_only_and_learns_from_one_shadow(
    tiny_study, tiny_attacks, monkeypatch
):
    class Bags:
        """Says "member" where the mean of the first channel is positive."""

        def bag_logits(self, of_pairs, bags):
            return of_pairs[:, 0].mean(axis=1)[bags].mean(axis=1)

    wide = dataclasses.replace(tiny_attacks, resnet=ResNetSettings(width=1, bag_size=5))
    (kind,) = (one for one in pair_attacks._kinds(tiny_study, wide) if one.network == "resnet")
    assert not kind.several
    attacks = pair_attacks._Attacks(tiny_study, wide, kind)
    monkeypatch.setattr(attacks, "_fit", lambda learnt: [Bags()] * len(learnt))
    rows, curves = attacks.results()
    assert set(rows["mode"]) == set(curves["mode"]) == {"collective"}
    assert set(rows["network"]) == {"resnet"}
    target = rows[rows["split"] == "target"]
    assert set(target["labels"]) == {"as-printed", "same-oracle", "never-seen", "swap-twins"}
    assert set(target[target["labels"] == "as-printed"]["tested"]) == {4}  # two bags of each
