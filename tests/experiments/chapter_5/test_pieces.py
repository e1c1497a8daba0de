"""What is computed of the first oracle alone is what the whole run says of it."""

import dataclasses

import numpy as np
import pytest

from companion import records
from experiments.chapter_5 import __main__ as command
from experiments.chapter_5 import pieces, runs
from experiments.chapter_5.games import GameSettings
from experiments.chapter_5.leaks import LeakSettings
from experiments.chapter_5.runs import Cell


@pytest.fixture
def small(tiny_settings, tiny_leak_settings, tiny_folder, monkeypatch):
    """A study, and a leak of the same oracles in whose data more is random."""
    asked = GameSettings(rollouts=2, first_steps=3, network=None)
    monkeypatch.setitem(runs.RUNS, "A", (Cell(tiny_settings, asked, (200,)),))
    monkeypatch.setitem(runs.RUNS, "B", (Cell(tiny_leak_settings, asked),))
    monkeypatch.setattr(runs, "BENCHMARK_STEPS", 12)
    return tiny_folder


@pytest.mark.parametrize(
    ("run", "name", "rows"), [("A", "learning-curves", 3), ("B", "games-by-oracle", 6)]
)
def test_the_rows_of_the_first_oracle(small, tmp_path, run, name, rows):
    assert command.main(["--run", run, "--folder", str(small), "--records", str(tmp_path)]) == 0
    piece = ["--folder", str(tmp_path / "empty"), "--records", str(tmp_path / "piece")]
    assert pieces.main(["--run", run, *piece]) == 0
    file = f"laptop/run-{run.lower()}-{name}.csv"
    whole, part = (records.read(place / file).frame for place in (tmp_path, tmp_path / "piece"))
    assert list(part) == list(whole)
    assert len(part) == rows
    keys = [column for column in part if column not in ("auc", "mean_return")]
    (value,) = set(part) - set(keys)
    both = part.merge(whole, on=keys, how="left", suffixes=("", "_whole"))
    assert (both[value] == both[f"{value}_whole"]).all()
    assert part["oracle"].eq(0).all()
    assert np.ptp(part[value]) > 0


def test_oracles_that_stand_for_others_are_not_left_where_a_study_finds_them(
    tiny_settings, tiny_study, tiny_folder
):
    with pytest.raises(FileExistsError, match="must be empty"):
        pieces.keep_first_oracle(tiny_settings, tiny_folder)


def test_scores_are_those_of_a_leak_that_begins_with_the_first_oracle(
    tiny_settings, tiny_leak_settings, tmp_path
):
    later = dataclasses.replace(tiny_leak_settings, oracles=(1, 2))
    assert isinstance(later, LeakSettings)
    for cell in (
        Cell(tiny_settings, GameSettings()),
        Cell(tiny_leak_settings),
        Cell(later, GameSettings()),
    ):
        with pytest.raises(ValueError, match="of the first oracle"):
            pieces.scores(cell, tmp_path)
    assert not list(tmp_path.iterdir())
