"""The command: records per cell, spread over several runs; the same path at small sizes."""

import dataclasses

import pytest

from companion import records
from experiments.chapter_5 import __main__ as command
from experiments.chapter_5.sizes import Sizes

TABLES = {
    "table-5-2",
    "table-5-2-draws",
    "learning-curves",
    "roc",
    "clipping",
    "temporal-correlation",
    "leak",
    "twins",
}


@pytest.fixture
def small(
    tiny_settings, tiny_attacks, tiny_leak_settings, tiny_folder, tiny_study, tmp_path, monkeypatch
):
    """The paper profile with tiny studies, and the arguments that keep it in a folder."""
    few = dataclasses.replace(
        tiny_attacks, trainings=("as-printed", "decorrelated"), several_shadows=False
    )
    two = (tiny_settings, dataclasses.replace(tiny_settings, bcq_updates=400, name="longer"))
    small = Sizes(two, (few, few), (tiny_leak_settings,))
    for profile in ("quick", "paper"):
        monkeypatch.setitem(command.PROFILES, profile, small)
    return ["--profile", "paper", "--folder", str(tiny_folder), "--records", str(tmp_path)]


def test_cells_are_recorded_one_after_the_other(small, tmp_path, capsys):
    assert command.main([*small, "--cell", "longer", "--resume"]) == 0
    path = tmp_path / "paper" / "table-5-2.csv"
    assert set(records.read(path).frame["cell"]) == {"longer"}
    assert command.main(small) == 0
    assert "finished: tiny, longer, leak-tiny-4" in capsys.readouterr().out
    assert {p.stem for p in path.parent.glob("*.csv")} >= TABLES
    frame, provenance = records.read(path)
    assert list(frame["cell"].unique()) == ["tiny", "longer"]
    assert list(frame)[:4] == ["environment", "t_max", "mode", "labels"]
    about = provenance["parameters"]["cells"]
    assert list(about) == ["tiny", "longer"]
    assert about["longer"]["settings"]["bcq_updates"] == 400
    assert {"jax", "mujoco", "gymnasium", "device", "cores", "code"} <= set(about["tiny"])
    assert about["tiny"]["seconds"].keys() >= {"oracles", "inputs", "models", "outputs", "attacks"}
    assert {"jax", "mujoco", "gymnasium", "device"} <= set(provenance)
    assert provenance["seed"] == 5
    leak = records.read(path.with_name("leak.csv"))
    assert list(leak.frame["cell"].unique()) == ["tiny", "longer", "leak-tiny-4"]
    twins = records.read(path.with_name("twins.csv"))
    assert list(twins.provenance["parameters"]["cells"]) == ["leak-tiny-4"]


def test_time_runs_out_with_its_own_exit_status(small, tmp_path, capsys):
    fresh = ["--folder", str(tmp_path / "nothing-yet")]
    status = command.main([*small, *fresh, "--minutes", "1e-9"])
    assert status == command.OUT_OF_TIME == 75
    out = capsys.readouterr().out
    assert "Run the same command again to go on. Not finished: tiny, longer, leak-tiny-4" in out
    assert not list(tmp_path.rglob("*.csv"))


def test_quick_results_are_shown_and_not_recorded(small, tmp_path, capsys):
    small[1] = "quick"
    assert command.main([*small, "--cell", "tiny"]) == 0
    assert "as-printed" in capsys.readouterr().out
    assert not list(tmp_path.rglob("*.csv"))


def test_an_unknown_cell_is_named(small, capsys):
    assert command.main([*small, "--cell", "Hopper-v9"]) == 2
    assert (
        "no cell Hopper-v9 in profile paper; there are tiny, longer, leak-tiny-4"
        in capsys.readouterr().err
    )


@pytest.mark.parametrize(
    "wrong", [["--profile", "huge"], ["--minutes", "0"], ["--minutes", "-3"], ["--speed"]]
)
def test_a_wrong_command_line_ends_with_2(wrong, capsys):
    with pytest.raises(SystemExit) as stopped:
        command.main(wrong)
    assert stopped.value.code == 2
