"""Recorded results against fresh ones: what agrees, what differs, and what is never touched."""

import json
import shutil
from pathlib import Path
from types import SimpleNamespace

import pandas as pd
import pytest

from companion import records
from companion.build import verification, verified
from companion.build.execution import PageError, PageRun, execute_page
from companion.build.verification import Tolerance
from companion.dependencies import recorded_by, sources_of

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
    with_source(folder / f"{name}.json", "0" * 64)  # by code of another day


def with_source(path: Path, source: str) -> None:
    path.write_text(json.dumps(json.loads(path.read_text()) | {"source_sha256": source}))


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


def test_points_of_a_curve_are_compared_by_their_order(tmp_path, monkeypatch):
    curve = pd.DataFrame({"of": ["a", "a", "b"], "rate": [0.0, 1.0, 0.5]})
    for place, rates in (("old", curve.rate), ("same", curve.rate), ("new", [0.0, 0.9, 0.5])):
        monkeypatch.setenv("DPRL_STAGE", str(tmp_path / place))
        monkeypatch.setenv("DPRL_PAGE", PAGE)
        records.save("roc", curve.assign(rate=rates), seed=1, parameters={})
    old, same, new = (tmp_path / p / "results/roc.csv" for p in ("old", "same", "new"))
    assert verification.compare_file(old, same, Tolerance()) == ""
    assert "1 differences" in verification.compare_file(old, new, Tolerance())


@pytest.mark.parametrize("rows", [[0], [0, 1], [0, 2], [2]])
def test_a_piece_of_a_curve_agrees(tmp_path, monkeypatch, rows):
    curve = pd.DataFrame({"of": ["a", "a", "b"], "rate": [0.0, 1.0, 0.5]})
    monkeypatch.setenv("DPRL_PAGE", PAGE)
    for place, points in (("old", curve), ("new", curve.loc[rows].reset_index(drop=True))):
        monkeypatch.setenv("DPRL_STAGE", str(tmp_path / place))
        records.save("roc", points, seed=1, parameters={})
    old, new = (tmp_path / place / "results/roc.csv" for place in ("old", "new"))
    assert verification.compare_file(old, new, Tolerance(), part=True) == ""


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
    assert verification.main(["--stale"]) == 1
    assert "it was never verified" in capsys.readouterr().out
    assert verification.main([]) == 0
    assert verification.main(["--stale"]) == 0
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


COMMAND = "python make.py"
#: Reads where its table goes, and records it with one row less if it is asked to.
PROGRAM = """
import sys, pathlib, shutil
here = pathlib.Path(__file__).parent / "kept"
place = pathlib.Path(sys.argv[sys.argv.index("--records") + 1]) / "laptop"
place.mkdir(parents=True)
for path in here.iterdir():
    shutil.copy(path, place / path.name)
work = pathlib.Path(sys.argv[sys.argv.index("--folder") + 1])
if "--kept" in sys.argv and (work / "model" / "of-a-page").read_text() != "trained":
    sys.exit("nothing kept")
(work / "of-this-run").mkdir()
if "--fail" in sys.argv:
    sys.exit("out of luck")
"""
#: After that: the table without its last row, and with the digest of what is left.
LESS = """
import hashlib, json
path, origin = place / "hours.csv", place / "hours.json"
path.write_text("".join(path.read_text().splitlines(keepends=True)[:-1]))
about = json.loads(origin.read_text())
about["sha256"] = hashlib.sha256(path.read_bytes()).hexdigest()
origin.write_text(json.dumps(about))
"""


@pytest.fixture
def commanded(root, monkeypatch):
    """A laptop table that a command of this repository has recorded; it can do it again."""
    (root / "make.py").write_text(PROGRAM)
    monkeypatch.setattr(records, "OWN_ROOT", root)
    made_by = records.Command(COMMAND, profile="laptop", folder=root / "r")
    path = records.keep("hours", TABLE, made_by, seed=1, parameters={}, keys=["algorithm"])
    with_source(path.with_suffix(".json"), "0" * 64)
    shutil.copytree(path.parent, root / "kept")
    shutil.copytree(path.parent, root / "data/results/laptop")
    return root


def again(root, *wanted, **options):
    (found,) = verification.verify(root, 1, wanted or ["laptop/hours"], **options)
    return [(o.name, o.problem, o.compared, o.skipped) for o in found]


def test_a_command_is_run_again_and_noted(commanded):
    assert list(verified.recorded_tables(commanded)) == [PAGE, COMMAND]
    assert any("laptop/hours): it was never verified" in text for text in verified.stale(commanded))
    assert again(commanded) == [("laptop/hours.csv", "", 2, "")]
    assert verified.read_notes(commanded)[COMMAND]["verified"] == "all rows"
    assert not any(COMMAND in text for text in verified.stale(commanded))
    (commanded / "make.py").write_text(PROGRAM + "x = 1\n")
    (text,) = (text for text in verified.stale(commanded) if COMMAND in text)
    assert text.endswith("its code; make verify PAGE=laptop/hours")


def test_pieces_side_by_side(commanded):
    """In processes of their own: a command that runs, and a page that is not executed."""
    (commanded / "data/results/samples.yml").write_text(f"{PAGE}: {{skip: it takes hours}}\n")
    found = [o for part in verification.verify(commanded, 2, sample=True) for o in part]
    assert sorted((o.name, o.problem, o.compared, o.skipped) for o in found) == [
        ("figure-1.csv", "", 0, "it takes hours"),
        ("laptop/hours.csv", "", 2, ""),
    ]
    assert verified.read_notes(commanded)[COMMAND]["verified"] == "all rows"


@pytest.mark.parametrize(("sample", "workers"), [(True, 2), (True, 1), (False, 1)])
def test_nothing_is_begun_after_the_minutes(commanded, monkeypatch, sample, workers):
    """Not a page and not a command; what is left is listed, and nothing is noted."""
    monkeypatch.setattr(verification, "execute_page", lambda run: pytest.fail("executed"))
    options = {"sample": sample, "minutes": 0}
    found = [o for part in verification.verify(commanded, workers, **options) for o in part]
    assert sorted((o.name, o.problem, o.compared, o.skipped) for o in found) == [
        ("figure-1.csv", "", 0, "no time was left"),
        ("laptop/hours.csv", "", 0, "no time was left"),
    ]
    assert verified.read_notes(commanded) == {}


def test_minutes_that_suffice_change_the_order_only(commanded):
    samples = commanded / "data/results/samples.yml"
    samples.write_text(f"{PAGE}: {{skip: it takes hours}}\n")
    parts = list(verification.verify(commanded, 2, sample=True, minutes=60))
    assert sorted((o.name, o.compared, o.skipped) for part in parts for o in part) == [
        ("figure-1.csv", 0, "it takes hours"),
        ("laptop/hours.csv", 2, ""),
    ]


@pytest.mark.parametrize("minutes", [-1, float("nan")])
def test_minutes_that_are_no_span_are_refused(commanded, minutes):
    with pytest.raises(ValueError, match="minutes must be at least 0"):
        next(verification.verify(commanded, 1, minutes=minutes))


def test_a_command_that_fails_or_may_not_run(commanded):
    samples = commanded / "data/results/samples.yml"
    samples.write_text(f"{COMMAND}: {{arguments: --fail}}\n")
    ((_, problem, _, _),) = again(commanded, sample=True)
    assert problem == "the command failed with status 1\nout of luck"
    assert again(commanded)[0][1] == ""  # whole, it is run without further arguments
    samples.write_text(f"{COMMAND}: {{skip: it measures time}}\n")
    assert again(commanded) == [("laptop/hours.csv", "", 0, "it measures time")]
    samples.write_text(f"{COMMAND}: {{first: {{a: 1}}}}\n")
    with pytest.raises(ValueError, match="of a command: arguments"):
        again(commanded)


def test_a_command_that_takes_hours_has_another_run_instead(commanded):
    """In a sample and without; what the other one gives is a piece, and the first never runs."""
    (commanded / "make.py").write_text("raise SystemExit('hours')")
    (commanded / "piece.py").write_text(PROGRAM + LESS)
    samples = commanded / "data/results/samples.yml"
    samples.write_text(f"{COMMAND}: {{instead: python piece.py}}\n")
    for sample in (True, False):
        assert again(commanded, sample=sample) == [("laptop/hours.csv", "", 1, "")]
        assert verified.read_notes(commanded)[COMMAND]["verified"] == "some rows"
        assert verified.read_notes(commanded)[COMMAND]["seconds"] is None
    samples.write_text("")
    ((_, problem, _, _),) = again(commanded)
    assert problem == "the command failed with status 1\nhours"


@pytest.mark.parametrize(("flags", "ending"), [("fma avx2", ""), ("avx2 avx512f", ", AVX-512")])
def test_the_kind_of_a_processor_says_its_widest_instructions(flags, ending, monkeypatch):
    told = "vendor_id : V\ncpu family : 1\nmodel : 2\nmodel name : N\nflags : {}\n\n"
    monkeypatch.setattr(Path, "is_file", lambda path: True)
    monkeypatch.setattr(Path, "read_text", lambda path, encoding: told.format(flags) * 2)
    assert verification.processor() == f"V, family 1, model 2{ending}"


def test_on_another_kind_of_processor_nothing_is_computed(commanded, monkeypatch):
    (commanded / "make.py").write_text(PROGRAM)
    samples = commanded / "data/results/samples.yml"
    here = verification.processor()
    samples.write_text(f"{COMMAND}: {{processor: '{here}'}}\n")
    assert again(commanded, sample=True) == [("laptop/hours.csv", "", 2, "")]
    monkeypatch.setattr(verification, "processor", lambda: "an abacus")
    ((_, problem, compared, skipped),) = again(commanded, sample=True)
    assert (problem, compared) == ("", 0)
    assert skipped == f"recorded on a processor of another kind, {here}; this is an abacus"


# ---------------------------------------------------------------------------------- samples


def test_a_piece_of_a_command_finds_what_pages_keep_and_adds_nothing_to_it(commanded):
    samples = commanded / "data/results/samples.yml"
    samples.write_text(f"{COMMAND}: {{arguments: --kept, kept: _build/models}}\n")
    model = commanded / "_build/models/model/of-a-page"
    model.parent.mkdir(parents=True)
    model.write_text("trained")
    for sample in (True, True, False):  # whole, it starts from nothing
        assert again(commanded, sample=sample) == [("laptop/hours.csv", "", 2, "")]
        assert any(commanded.glob("_build/verify/*/*/model/of-a-page")) == sample
        assert [path.name for path in model.parents[1].iterdir()] == ["model"]


def test_a_sample_may_lack_rows_and_those_it_has_must_agree(root, monkeypatch):
    recompute(monkeypatch, TABLE[:1])
    (found,) = next(verification.verify(root, workers=1, sample=True))
    assert (found.problem, found.compared, found.rows) == ("", 1, 2)
    assert "agrees (1 rows computed)" in verification.table([found])
    assert problems(root) == ["1 differences\n" + problems(root)[0].partition("\n")[2]]  # whole


@pytest.mark.parametrize(
    "fresh", [TABLE[:1].assign(rmse=[0.51]), TABLE[:1].assign(algorithm=["DP-LSL"])]
)
def test_a_sample_with_another_number_or_another_row_differs(root, monkeypatch, fresh):
    recompute(monkeypatch, fresh)
    (found,) = next(verification.verify(root, workers=1, sample=True))
    assert found.problem.startswith("1 differences")


def test_what_is_not_sampled_is_listed_and_its_page_not_executed(root, monkeypatch, capsys):
    (root / "data/results/samples.yml").write_text(f"{PAGE}: {{skip: it takes hours}}\n")
    monkeypatch.setattr(verification, "execute_page", lambda run: pytest.fail("executed"))
    monkeypatch.chdir(root)
    assert verification.main(["--sample"]) == 0
    shown = capsys.readouterr().out
    assert "not computed: it takes hours" in shown
    assert "0 of 0 tables agree; 1 not computed" in shown
    assert verified.read_notes(root) == {}


@pytest.mark.parametrize(
    "entry",
    ["{last: {x: 1}}", "{first: {x: 0}}", "{first: {x: true}}", "{skip: ''}", "{skip: {a: 3}}"],
)
def test_a_malformed_sample_is_refused(root, entry):
    path = root / "data/results/samples.yml"
    path.write_text(f"{PAGE}: {entry}\n")
    with pytest.raises(ValueError, match=PAGE):
        verification.load_samples(path)


def test_a_sample_of_a_page_without_tables_is_refused(root):
    (root / "data/results/samples.yml").write_text("3-chapter/other: {skip: why}\n")
    with pytest.raises(ValueError, match="no recorded tables: 3-chapter/other"):
        next(verification.verify(root, workers=1, sample=True))


def notebook(*sources: str) -> SimpleNamespace:
    cells = [SimpleNamespace(cell_type="code", source=source) for source in sources]
    return SimpleNamespace(cells=[SimpleNamespace(cell_type="markdown", source="T"), *cells])


def test_a_shortened_page_stops_after_its_tables_and_keeps_first_entries():
    page = notebook(
        "sizes = [10, 20, 30]; kinds = {'a': 1, 'b': 2}",
        "seen = [(s, k) for s in sizes for k in kinds]",
        "records.save('one', seen)",
        "records.save('two', seen)",
        "raise RuntimeError",
    )
    verification.shorten(page, first={"sizes": 2, "kinds": 1}, tables=["one"])
    saved = {}
    names = {"records": SimpleNamespace(save=saved.__setitem__)}
    for cell in page.cells:
        exec(cell.source, names)
    assert saved == {"one": [(10, "a"), (20, "a")]}


def test_a_name_that_the_page_does_not_give_is_an_error():
    page = notebook("records.save('one', 1)", "sizes = [1]")
    with pytest.raises(PageError, match="no value to sizes"):
        verification.shorten(page, first={"sizes": 1}, tables=["one"])


SOURCE = """\
---
kernelspec:
  display_name: Python 3
  language: python
  name: python3
---

```{code-cell} ipython3
:tags: [parameters]
profile = "quick"
seed = 3
```

```{code-cell} ipython3
import numpy as np
import pandas as pd
from companion import records, sweeps
sizes = [1, 2, 3]
def trial(task, child):
    return [task | {"x": float(np.random.default_rng(child).random())}]
table = sweeps.table(trial, [{"size": s} for s in sizes], seed=seed, label="x")
records.save("walk", table, seed=seed, parameters={}, keys=["size"])
```

```{code-cell} ipython3
assert len(table) == 3
```
"""


def test_a_sweep_is_sampled_and_a_changed_trial_is_found(root, tmp_path):
    """The whole way, with a kernel: record, sample, change the trial, sample again."""
    (tmp_path / "book").mkdir()
    source, page = tmp_path / "notebooks/3-chapter/walk.md", "3-chapter/walk"
    source.write_text(SOURCE)
    execute_page(PageRun(root, page, "paper", results_dir=root / "data/results/paper"))
    (root / "data/results/samples.yml").write_text(f"{page}: {{first: {{sizes: 1}}}}\n")

    def sample():
        ((found,),) = verification.verify(root, workers=1, wanted=["walk"], sample=True)
        return found

    found = sample()
    assert (found.problem, found.compared, found.rows) == ("", 1, 3)
    assert verified.read_notes(root)[page]["verified"] == "some rows"
    source.write_text(SOURCE.replace(".random())}", ".random()) + 1e-4}"))
    assert any(page in text and "its code" in text for text in verified.stale(root))
    assert sample().problem.startswith("1 differences")
    assert any(page in text and "its code" in text for text in verified.stale(root))


# -------------------------------------------------------------------- older than their code


def test_a_verified_page_is_noted_until_its_table_changes(root, monkeypatch):
    (text,) = verified.stale(root)
    assert text == f"{PAGE} (figure-1): it was never verified; make verify PAGE={PAGE}"
    recompute(monkeypatch, TABLE.assign(rmse=[0.5, 0.34]))
    assert problems(root)[0]
    assert verified.stale(root) == [text]  # what differs is not noted
    recompute(monkeypatch, TABLE)
    assert problems(root) == [""]
    assert verified.stale(root) == []
    noted = verified.read_notes(root)[PAGE]
    assert noted["verified"] == "all rows"
    assert noted["seconds"] >= 0
    next(verification.verify(root, workers=1, sample=True))  # nothing changed: it stays so
    assert verified.read_notes(root)[PAGE] == noted
    record(root / "data/results/paper", TABLE.assign(rmse=[0.5, 0.4]), monkeypatch)
    assert "figure-1.csv; make verify" in verified.stale(root)[0]


def test_what_was_just_recorded_needs_no_note(root):
    assert verified.stale(root)
    now = recorded_by(root, PAGE, sources_of(root))
    with_source(root / "data/results/paper/figure-1.json", now.source_sha256)
    assert verified.stale(root) == []
    (root / f"notebooks/{PAGE}.md").write_text(SOURCE)
    assert "never verified" in verified.stale(root)[0]


def test_another_version_of_a_library_counts_where_it_is_asked_for(root, monkeypatch):
    recompute(monkeypatch, TABLE)
    assert problems(root) == [""]
    notes = verified.read_notes(root)
    notes[PAGE]["libraries"] = {"numpy": "1.0"}
    (root / "data/results/verified.json").write_text(json.dumps(notes))
    assert "numpy; make verify" in verified.stale(root)[0]
    assert verified.stale(root, libraries=False) == []
    notes[PAGE]["modules"] = {"dprl.mdp": "0" * 16}
    (root / "data/results/verified.json").write_text(json.dumps(notes))
    assert "dprl.mdp; make verify" in verified.stale(root, libraries=False)[0]


def test_accepted_pages_are_noted_with_the_reason(root, monkeypatch, capsys):
    monkeypatch.chdir(root)
    assert verification.main(["--accept", "renamed only", PAGE]) == 0
    assert verified.read_notes(root)[PAGE]["verified"] == "accepted: renamed only"
    assert verified.stale(root) == []
    assert verification.main(["--accept", "all of them"]) == 1
    assert verification.main(["--accept", " ", PAGE]) == 1
    assert "name them and give a reason" in capsys.readouterr().err
