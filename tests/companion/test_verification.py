"""Recorded results against fresh ones: what agrees, what differs, and what is never touched."""

import json
from pathlib import Path

import pandas as pd
import pytest

from dprl.companion import records, verification
from dprl.companion.execution import PageError
from dprl.companion.verification import Tolerance

PAGE = "3-chapter/page"
TABLE = pd.DataFrame({"algorithm": ["LSW", "LSL"], "runs": [20, 20], "rmse": [0.5, 1.0 / 3.0]})


def record(folder: Path, frame: pd.DataFrame, monkeypatch, name: str = "figure-1") -> None:
    """Write a record as a page does, and put it where the runner does."""
    stage = folder / "stage"
    monkeypatch.setenv("DPRL_PAGE", PAGE)
    monkeypatch.setenv("DPRL_PROFILE", "paper")
    monkeypatch.setenv("DPRL_STAGE", str(stage))
    records.save(name, frame, seed=1, parameters={}, keys=["algorithm"])
    for path in (stage / "results").iterdir():
        path.replace(folder / path.name)


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    recorded = tmp_path / "data/results/paper"
    recorded.mkdir(parents=True)
    source = tmp_path / "notebooks" / f"{PAGE}.md"
    source.parent.mkdir(parents=True)
    source.write_text("# A page, never executed here\n")
    record(recorded, TABLE, monkeypatch)
    return tmp_path


def recompute(monkeypatch: pytest.MonkeyPatch, *frames: pd.DataFrame) -> None:
    """Let the execution of the page save these tables."""

    def execute(run):
        assert (run.page, run.profile) == (PAGE, "paper")
        run.results_dir.mkdir(parents=True)
        for number, frame in enumerate(frames, 1):
            record(run.results_dir, frame, monkeypatch, f"figure-{number}")

    monkeypatch.setattr(verification, "execute_page", execute)


def problems(root: Path) -> list[str]:
    return [o.problem for found in verification.verify(root, workers=1) for o in found]


def test_last_digits_agree_and_nothing_recorded_is_touched(root, monkeypatch):
    recorded = root / "data/results/paper/figure-1.csv"
    before = recorded.read_bytes()
    recompute(monkeypatch, TABLE.assign(rmse=TABLE.rmse * (1 + 1e-9)))
    assert problems(root) == [""]
    assert recorded.read_bytes() == before
    assert not (root / "book").exists()  # nor is the page published


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"rmse": [0.5, 0.34]}, "1 differences"),
        ({"runs": [20, 21]}, "1 differences"),
        ({"algorithm": ["LSW", "DP-LSL"]}, "2 differences"),
        ({"extra": [1.0, 2.0]}, "the tables do not have the same columns: extra"),
    ],
)
def test_what_differs_is_named(root, monkeypatch, change, problem):
    recompute(monkeypatch, TABLE.assign(**change))
    assert problems(root)[0].startswith(problem)


def test_missing_and_unrecorded_tables_differ(root, monkeypatch):
    monkeypatch.setattr(verification, "execute_page", lambda run: None)
    assert problems(root) == ["the page does not make it any more"]
    recompute(monkeypatch, TABLE, TABLE)
    assert problems(root) == ["", "made, but not recorded"]


def test_a_page_that_fails_is_a_difference(root, monkeypatch):
    def fail(run):
        raise PageError("page 3-chapter/page failed in code cell 3")

    monkeypatch.setattr(verification, "execute_page", fail)
    assert problems(root) == ["page 3-chapter/page failed in code cell 3"]


def test_tolerance_of_one_file(root, monkeypatch):
    path = root / "data/results/tolerances.yml"
    path.write_text("figure-1.csv: {relative: 0.05, reason: a short sum}\n")
    assert verification.load_tolerances(path) == {"figure-1.csv": Tolerance(relative=0.05)}
    recompute(monkeypatch, TABLE.assign(rmse=[0.5, 0.34]))
    assert problems(root) == [""]


@pytest.mark.parametrize("entry", ["{relative: 0.05}", "{rtol: 1, reason: typo}"])
def test_tolerance_without_reason_or_with_unknown_field_is_refused(root, entry):
    path = root / "data/results/tolerances.yml"
    path.write_text(f"figure-1.csv: {entry}\n")
    with pytest.raises(ValueError, match=r"figure-1\.csv: a tolerance has relative, absolute"):
        verification.load_tolerances(path)


def test_command_prints_a_table_and_fails_on_a_difference(root, monkeypatch, capsys):
    monkeypatch.chdir(root)
    recompute(monkeypatch, TABLE)
    assert verification.main([]) == 0
    assert "figure-1.csv        2 rows  agrees" in capsys.readouterr().out
    recompute(monkeypatch, TABLE.assign(rmse=[0.5, 0.34]))
    assert verification.main([]) == 1
    shown = capsys.readouterr().out
    assert "DIFFERS: 1 differences" in shown
    assert "0.34" in shown


def test_a_page_is_reported_before_the_next_one_begins(root, monkeypatch):
    other = "4-chapter/other"
    (root / f"notebooks/{other}.md").parent.mkdir()
    (root / f"notebooks/{other}.md").write_text("# Another\n")
    recorded = root / "data/results/paper"
    record(recorded, TABLE, monkeypatch, "figure-2")
    beside = recorded / "figure-2.json"
    beside.write_text(beside.read_text().replace(PAGE, other))
    begun = []
    monkeypatch.setattr(verification, "execute_page", lambda run: begun.append(run.page))
    found = verification.verify(root, workers=1)
    assert [o.name for o in next(found)] == ["figure-1.csv"]
    assert begun == [PAGE]
    assert [o.page for o in next(found)] == [other]


PAGES = {"3-a/audit": ["audit-3.csv"], "4-b/audit": ["x.csv", "y.csv"], "5-c/cost": ["z.csv"]}


@pytest.mark.parametrize(
    ("wanted", "pages"),
    [
        ([], list(PAGES)),
        (["5-c/cost"], ["5-c/cost"]),
        (["cost"], ["5-c/cost"]),
        (["z", "y.csv"], ["4-b/audit", "5-c/cost"]),
        (["x", "y"], ["4-b/audit"]),
    ],
)
def test_selection_by_page_or_table(wanted, pages):
    assert verification.selected(PAGES, wanted) == {page: PAGES[page] for page in pages}


@pytest.mark.parametrize("name", ["audit", "w", "3-a", ""])
def test_unknown_and_ambiguous_names_are_refused(name):
    with pytest.raises(ValueError, match=r"several pages|no page with"):
        verification.selected(PAGES, [name])


def test_command_takes_a_selection(root, monkeypatch, capsys):
    monkeypatch.chdir(root)
    recompute(monkeypatch, TABLE)
    assert verification.main(["figure-1"]) == 0
    assert "1 of 1 tables agree" in capsys.readouterr().out
    assert verification.main(["figure-7"]) == 1
    assert "figure-7: no page with recorded tables" in capsys.readouterr().err


def test_edited_record_is_refused(root, monkeypatch, capsys):
    monkeypatch.chdir(root)
    recorded = root / "data/results/paper/figure-1.csv"
    recorded.write_text(recorded.read_text().replace("0.5", "0.6"))
    assert verification.main([]) == 1
    assert "was edited after it was recorded" in capsys.readouterr().err
    assert json.loads(recorded.with_suffix(".json").read_text())["page"] == PAGE


def test_tables_of_a_command_are_left_out(root):
    assert records.keep(
        "hours",
        TABLE,
        profile="paper",
        command="python -m hours",
        seed=1,
        parameters={},
        folder=root / "data/results",
    ).is_file()
    assert verification.recorded_pages(root / "data/results/paper") == {PAGE: ["figure-1.csv"]}
