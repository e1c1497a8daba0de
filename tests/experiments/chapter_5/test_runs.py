"""The larger runs: what they record, and that each is the size that the book says."""

import dataclasses

import numpy as np
import pytest

from companion import records
from experiments.chapter_5 import __main__ as command
from experiments.chapter_5 import runs, study
from experiments.chapter_5.games import GameSettings
from experiments.chapter_5.runs import Cell
from experiments.chapter_5.sizes import TABLE_5_2


@pytest.fixture
def small(tiny_settings, tiny_attacks, tiny_leak_settings, tiny_folder, tmp_path, monkeypatch):
    """Two tiny runs, and the arguments that keep their tables in a folder."""
    asked = GameSettings(rollouts=1, first_steps=3, network=None)
    looked_at = dataclasses.replace(tiny_settings, bcq_updates=400, bcq_evaluated_at=(200,))
    attacks = dataclasses.replace(
        tiny_attacks, trainings=("as-printed",), several_shadows=False, lengths=(), most_steps=10
    )
    monkeypatch.setitem(runs.RUNS, "A", (Cell(looked_at, asked, (200, 400), attacks),))
    monkeypatch.setitem(runs.RUNS, "B", (Cell(tiny_leak_settings, asked),))
    monkeypatch.setattr(runs, "BENCHMARK_STEPS", 12)
    return ["--folder", str(tiny_folder), "--records", str(tmp_path)]


def test_a_run_records_under_names_of_its_own(small, tmp_path):
    assert command.main(["--run", "A", *small]) == 0
    folder = tmp_path / "laptop"
    assert {p.stem for p in folder.glob("*.csv")} == {
        f"run-a-{name}"
        for name in ("games", "games-by-oracle", "scale", "learning-curves", "table-5-2")
    } | {f"run-a-{name}" for name in ("table-5-2-draws", "roc", "temporal-correlation")}
    frame, provenance = records.read(folder / "run-a-games.csv")
    assert list(frame["updates"].unique()) == [200, 400]
    assert provenance["command"] == "python -m experiments.chapter_5 --run A"
    assert provenance["parameters"]["cells"]["tiny"]["game"]["rollouts"] == 1
    scale = records.read(folder / "run-a-scale.csv").frame
    assert list(scale["algorithm"]) == ["DDPG", "BCQ", "BCQ"]
    assert list(scale["steps"]) == [300, 200, 400]
    assert (scale["benchmark_mean"] > 0).all()
    assert set(records.read(folder / "run-a-table-5-2-draws.csv").frame["steps"]) <= {5, 10}
    before = (folder / "run-a-games.csv").read_bytes()
    assert command.main(["--run", "A", *small]) == 0  # all is there: the same again
    assert (folder / "run-a-games.csv").read_bytes() == before


def test_a_leak_says_how_its_data_were_collected(small, tmp_path, tiny_leak_settings):
    assert command.main(["--run", "B", *small]) == 0
    frame = records.read(tmp_path / "laptop" / "run-b-games.csv").frame
    assert set(frame["trajectories"]) == {tiny_leak_settings.size}
    assert set(frame["random_share"]) == set(frame["noise"]) == {0.3}
    assert "every-state lira-online" in set(frame["score"])
    scale = records.read(tmp_path / "laptop" / "run-b-scale.csv").frame
    assert list(scale["algorithm"]) == ["BCQ"]


def test_time_runs_out(small, tmp_path):
    fresh = ["--folder", str(tmp_path / "nothing"), "--minutes", "1e-9"]
    assert command.main(["--run", "A", *small, *fresh]) == command.OUT_OF_TIME


def test_a_run_is_no_profile():
    with pytest.raises(SystemExit) as stopped:
        command.main(["--run", "A", "--profile", "laptop"])
    assert stopped.value.code == 2


def test_models_on_the_way_are_those_of_a_shorter_training(tiny_settings, tiny_study, tiny_folder):
    longer = dataclasses.replace(tiny_settings, bcq_updates=400, bcq_evaluated_at=(200,))
    done = study.run(longer, tiny_folder)
    for a, b in zip(
        study.models_after(done, 200).parameters.critics,
        tiny_study.models.parameters.critics,
        strict=True,
    ):
        assert np.array_equal(a.weight, b.weight)
    assert study.models_after(done, 400) is done.models
    with pytest.raises(ValueError, match="not after 300"):
        study.models_after(done, 300)


def test_run_d_has_every_cell_of_table_5_2_with_equal_data():
    cells = [cell.of for cell in runs.RUNS["D"]]
    assert {(one.environment, one.t_max) for one in cells} == {
        (name, t) for name, lengths in TABLE_5_2.items() for t in lengths
    }
    assert {(one.oracles, one.trajectories) for one in cells} == {(16, 400)}
    assert all(one.ddpg_steps >= 100_000 and one.bcq_updates >= 30_000 for one in cells)


def test_runs_b_and_c_use_the_oracles_of_a():
    first = runs.RUNS["A"][0].of
    for cell in (*runs.RUNS["B"], *runs.RUNS["C"]):
        same = dataclasses.replace(cell.study, mixture=first.mixture, name=first.name)
        assert same == first


def test_names_are_distinct_within_a_run():
    for cells in runs.RUNS.values():
        assert len({cell.name for cell in cells}) == len(cells)
