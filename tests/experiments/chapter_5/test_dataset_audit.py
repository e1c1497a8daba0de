"""The audit of data sets: who is a suspect, what is counted; and the command for all runs."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from companion import records
from dprl.membership.attacks.orl_auditor import CriticSettings
from experiments.chapter_5 import dataset_audit, today
from experiments.chapter_5.dataset_audit import AuditRun


@pytest.fixture(scope="module")
def run(tiny_settings):
    return AuditRun(
        tiny_settings, oracles=(1,), shadows=4, critic=CriticSettings(hidden=(8,), steps=20)
    )


@pytest.fixture(scope="module")
def found(run, tiny_folder, tiny_study):
    return dataset_audit.table(run, tiny_folder)


def test_suspects_are_all_models_and_each_shadow_against_the_others(found):
    assert len(found) == 4 * (8 + 4)
    one = found[found["distance"] == "l1"]
    kinds = one.set_index("suspect")["kind"]
    assert kinds["2"] == "trained on it"
    assert kinds["3"] == "same oracle"
    assert set(kinds[["0", "1", "4", "5", "6", "7"]]) == {"other oracle"}
    assert (kinds[[f"shadow {i}" for i in range(4)]] == "trained on it").all()
    assert set(one[one["suspect"].str.startswith("shadow")]["shadows"]) == {3}
    assert found["accepted"].between(0, 1).all()
    np.testing.assert_array_equal(found["majority"], found["accepted"] > 0.5)


def test_summary_counts_suspects(found):
    counts = dataset_audit.summary(found).set_index(["distance", "kind"])
    assert counts.at[("l2", "trained on it"), "suspects"] == 5
    assert counts.at[("l2", "other oracle"), "suspects"] == 6


def test_a_suspect_like_the_shadows_is_accepted_and_a_stranger_is_not():
    rng = np.random.default_rng(1)
    shadows, lengths = rng.normal(size=(8, 50, 6)), np.full(50, 6)
    like, far = rng.normal(size=(50, 6)), rng.normal(size=(50, 6)) + 30
    for distance in ("l1", "l2", "wasserstein"):
        assert dataset_audit._accepted(like, shadows, lengths, distance, 0.01) > 0.9
        assert dataset_audit._accepted(far, shadows, lengths, distance, 0.01) < 0.1


def test_what_makes_no_sense_is_refused(run, tiny_settings):
    with pytest.raises(ValueError, match="oracles must be below 4"):
        AuditRun(tiny_settings, oracles=(4,))
    with pytest.raises(ValueError, match="shadows"):
        AuditRun(tiny_settings, oracles=(0,), shadows=3)


def test_the_command_records_what_a_run_made(run, tiny_folder, tmp_path, monkeypatch, found):
    monkeypatch.setitem(today.AUDIT, "small", run)
    arguments = ["--run", "audit", "--size", "small", "--folder", str(tiny_folder)]
    assert today.main([*arguments, "--records", str(tmp_path)]) == 0
    kept = records.read(tmp_path / "laptop" / "orl-auditor-small.csv")
    pd.testing.assert_frame_equal(kept.frame, found, check_dtype=False)
    assert "--run audit --size small" in kept.provenance["command"]
    for size in ("small", "large"):
        assert {one.size for one in today.PRIVATE[size]} >= {20}
        for one in today.PRIVATE[size]:
            expected = one.learner.rate * one.size
            assert one.learner.divisor == pytest.approx(min(50, one.size))
            assert expected == pytest.approx(one.learner.divisor)


def test_a_piece_of_a_run_has_the_rows_of_the_whole(run, tiny_folder, tmp_path, monkeypatch, found):
    monkeypatch.setitem(today.AUDIT, "small", replace(run, oracles=(1, 0)))
    arguments = ["--run", "audit", "--size", "small", "--folder", str(tiny_folder), "--first", "1"]
    assert today.main([*arguments, "--records", str(tmp_path)]) == 0
    kept = records.read(tmp_path / "laptop" / "orl-auditor-small.csv")
    pd.testing.assert_frame_equal(kept.frame, found, check_dtype=False)


@pytest.mark.parametrize("wrong", [["--first", "1"], ["--first", "0", "--records", "x"]])
def test_a_piece_never_replaces_a_recorded_table(wrong, capsys):
    with pytest.raises(SystemExit):
        today.main(["--run", "private", "--size", "small", *wrong])
    assert "--records" in capsys.readouterr().err
