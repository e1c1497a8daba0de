"""Scores of members, held-out trajectories and others, and their tables."""

import dataclasses

import numpy as np
import pytest

from dprl.membership import metrics
from dprl.membership.attacks import scores
from experiments.chapter_5 import games, leaks, oracles
from experiments.chapter_5.games import GameSettings


@pytest.fixture(scope="module")
def asked(tiny_attacks):
    return GameSettings(rollouts=2, first_steps=3, network=tiny_attacks.tcn, most_steps=10)


def test_a_study_and_its_halves(tiny_study, asked):
    game = games.of_study(tiny_study, 200)
    m = tiny_study.settings.trajectories
    assert game.kinds.shape == (8, 3 * m)
    for model in range(8):
        o, h = divmod(model, 2)
        actions = game.accused[model].actions
        assert np.array_equal(actions[:m], tiny_study.inputs[o][h].actions)
        assert np.array_equal(actions[m : 2 * m], tiny_study.inputs[o][1 - h].actions)
        assert np.array_equal(actions[2 * m :], tiny_study.inputs[(o + 1) % 4][h].actions)
    found = games.score(game, asked)
    roll_outs = ["mean-action", "first-steps", "all-steps", "network"]
    assert list(found) == [*roll_outs, "every-state", "white-box"]
    assert all(one.shape == game.kinds.shape for one in found.values())
    # the one line, by hand, as the mean of two roll-outs
    by_hand = np.zeros(m)
    for seed in (asked.seed, asked.seed + 1):
        outputs = oracles.query_outputs(game.models, game.starts, game.task, seed=seed)
        a, b = tiny_study.inputs[0][0], outputs[0]
        by_hand += scores.action_distance(a.actions, b.actions, a.lengths, b.lengths) / 2
    assert np.allclose(found["mean-action"][0, :m], by_hand)
    alone = games.score(game, dataclasses.replace(asked, network=None))
    assert "network" not in alone
    assert np.array_equal(alone["first-steps"], found["first-steps"])


def test_a_leak_and_its_members(tiny_leak_settings, tiny_folder, asked):
    leak = leaks.run(tiny_leak_settings, tiny_folder)
    game = games.of_leak(leak)
    assert game.kinds.shape == (12, 16)
    assert ((game.kinds[:, :8] == 0) == leak.members.reshape(12, 8)).all()
    assert (game.kinds[:, 8:] == 2).all()
    found = games.score(game, dataclasses.replace(asked, network=None))
    assert np.allclose(
        found["white-box"][:, :8], leak.scores["white-box"][-1].reshape(12, 8), rtol=1e-4
    )
    ratios = games.ratios(leak)
    assert set(games.table(game, ratios, ["same-oracle"])["games"]["score"]) == set(ratios)


def test_tables_are_means_by_oracle(tiny_study):
    game = games.of_study(tiny_study, 200)
    rng = np.random.default_rng(0)
    values = rng.normal(size=game.kinds.shape)
    values[game.kinds == 0] += 1.0
    found = games.table(game, {"made up": values})
    main, by_oracle = found["games"], found["games-by-oracle"]
    assert list(main["labels"]) == list(games.LABELS)
    row = main.iloc[0]
    area = [
        metrics.roc_curve(k[k < 2] == 0, v[k < 2]).area
        for k, v in zip(game.kinds, values, strict=True)
    ]
    assert np.isclose(row["auc"], np.mean(area))
    assert row["auc_low"] < row["auc"] < row["auc_high"]
    own = by_oracle[by_oracle["labels"] == "same-oracle"]["auc"]
    assert np.allclose(own, np.reshape(area, (4, 2)).mean(axis=1))
    assert main.set_index("labels")["auc"]["never-seen"] < row["auc"]


def test_the_network_finds_a_plain_copy():
    """Outputs that repeat members: found by a network that was trained on other oracles."""
    rng = np.random.default_rng(1)
    kinds = np.tile(np.repeat([0, 1, 2], 20), (6, 1))
    a_in = rng.uniform(-1, 1, (6, 60, 1, 1)).astype(np.float32)
    copies = np.where(kinds[..., None, None] == 0, a_in, -a_in)
    ones = np.ones((6, 60), dtype=int)
    answers = games.pairs_of(a_in, ones, copies, ones)
    game = games.Game(None, None, [], kinds, np.repeat([0, 1, 2], 2), np.zeros((20, 1)))
    network = dataclasses.replace(
        GameSettings().network,
        channels=8,
        kernel=1,
        dilations=(1,),
        dropout=0.0,
        steps=200,
        learning_rate=0.02,
    )
    logits = games._network(
        game, answers[:, :, None], GameSettings(network=network, most_steps=200)
    )
    assert (logits[kinds == 0].mean() - logits[kinds == 1].mean()) > 1


@pytest.mark.parametrize("wrong", [{"rollouts": 0}, {"first_steps": 0}, {"most_steps": 0}])
def test_settings_are_checked(wrong):
    with pytest.raises(ValueError, match=next(iter(wrong))):
        GameSettings(**wrong)
