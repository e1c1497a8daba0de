"""A table that is saved reads back exactly; then provenance, comparison, bad input."""

from __future__ import annotations

import dataclasses
import json
import string

import numpy as np
import pandas as pd
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pandas.testing import assert_frame_equal

from companion import records
from companion.dependencies import recorded_by
from companion.files import sha256, write_atomic
from companion.records import RecordError


@pytest.fixture
def stage(tmp_path, monkeypatch):
    for folder in ("book", "notebooks", "data/results/paper"):
        (tmp_path / folder).mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DPRL_PAGE", "3-policy-evaluation/dp-lsw")
    monkeypatch.setenv("DPRL_PROFILE", "quick")
    monkeypatch.setenv("DPRL_STAGE", str(tmp_path / "stage"))
    return tmp_path / "stage" / "results"


def table(**changes):
    columns = {"algorithm": ["LSW", "LSL"], "runs": [20, 20], "rmse": [0.1 + 0.2, np.nan]}
    return pd.DataFrame(columns | changes)


def save(frame=None, name="figure-3-1", **changes):
    arguments = {"seed": 7, "parameters": {"epsilon": 0.1}} | changes
    records.save(name, table() if frame is None else frame, **arguments)


# -- there and back ---------------------------------------------------------------------

_floats = st.floats(allow_infinity=False, width=64)
_texts = st.text(
    st.characters(blacklist_categories=("Cs",), blacklist_characters="\r\n\0"), max_size=8
)


@settings(
    deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
@given(
    rows=st.lists(
        st.tuples(_floats, st.integers(-(2**63), 2**63 - 1), st.booleans(), _texts),
        min_size=1,
        max_size=20,
    )
)
def test_any_tidy_table_reads_back_exactly(stage, rows):
    frame = pd.DataFrame(rows, columns=["value", "count", "flag", "text"])
    save(frame)
    back = records.load("figure-3-1", "quick").frame
    assert_frame_equal(back, frame, check_exact=True, check_dtype=False)
    assert [records._kind(back[c]) for c in back] == ["float64", "int64", "bool", "str"]
    signs = np.signbit(frame.value.to_numpy(float)), np.signbit(back.value.to_numpy())
    assert np.array_equal(*signs) or frame.value.isna().any()


def test_a_single_column_with_an_empty_cell_keeps_its_rows(stage):
    frame = pd.DataFrame({"x": [1.0, np.nan, 2.0]})
    save(frame)
    assert_frame_equal(records.load("figure-3-1", "quick").frame, frame)


def test_words_that_readers_take_for_missing_stay_words(stage):
    frame = pd.DataFrame({"word": ["NA", "", "nan", "1.0", "True"], "x": [1.0, np.nan, 0, -1, 2]})
    save(frame)
    assert list(records.load("figure-3-1", "quick").frame.word) == list(frame.word)


def test_file_has_plain_line_ends_and_no_index(stage):
    save()
    content = (stage / "figure-3-1.csv").read_bytes()
    assert content == b"algorithm,runs,rmse\nLSW,20,0.30000000000000004\nLSL,20,\n"


def test_saving_twice_gives_the_same_bytes(stage):
    contents = set()
    for _ in range(2):
        save(seconds=1.5)
        contents.add((stage / "figure-3-1.csv").read_bytes() + _json_bytes(stage))
    assert len(contents) == 1
    assert not [p for p in stage.iterdir() if p.suffix not in (".csv", ".json")]


def _json_bytes(stage):
    return (stage / "figure-3-1.json").read_bytes()


def test_provenance_says_where_the_table_comes_from(stage):
    parameters = {"epsilon": np.float64(0.1), "sizes": np.array([10, 100]), "pair": (1, None)}
    save(parameters=parameters, seed=np.int64(7), seconds=1.23456)
    provenance = json.loads(_json_bytes(stage))
    assert provenance["page"] == "3-policy-evaluation/dp-lsw"
    assert provenance["profile"] == "quick"
    assert provenance["parameters"] == {"epsilon": 0.1, "sizes": [10, 100], "pair": [1, None]}
    assert provenance["seed"] == 7
    assert provenance["sha256"] == sha256((stage / "figure-3-1.csv").read_bytes())
    made_by = recorded_by(stage.parents[1], "3-policy-evaluation/dp-lsw")
    assert provenance["source_sha256"] == made_by.source_sha256
    assert provenance["numpy"] == np.__version__
    assert provenance["seconds"] == 1.235
    assert provenance["keys"] == ["algorithm", "runs"]
    assert {"dprl", "python", "scipy", "pandas", "cores", "machine"} <= provenance.keys()


def test_keys_may_be_given_and_are_unknown_where_nothing_identifies_a_row(stage):
    frame = pd.DataFrame({"ridge": [1.0, 2.0], "rmse": [0.1, 0.2]})
    save(frame)
    assert records.load("figure-3-1", "quick").provenance["keys"] is None
    save(frame, keys=["ridge"], seed=None)
    assert records.load("figure-3-1", "quick").provenance["keys"] == ["ridge"]


def test_a_timer_measures_even_a_block_that_fails(monkeypatch):
    monkeypatch.setattr(records.time, "perf_counter", iter([3.0, 7.5]).__next__)
    with pytest.raises(ZeroDivisionError), records.timer() as clock:
        _ = 1 / 0
    assert clock.seconds == 4.5


# -- load -------------------------------------------------------------------------------


def test_an_edited_table_is_refused(stage):
    save()
    path = stage / "figure-3-1.csv"
    path.write_text(path.read_text().replace("LSL", "LSX"))
    with pytest.raises(RecordError, match="edited after it was recorded"):
        records.load("figure-3-1", "quick")


def test_recorded_results_are_found_in_their_profile(stage, tmp_path, monkeypatch):
    monkeypatch.setenv("DPRL_PROFILE", "paper")
    save()
    for path in list(stage.iterdir()):
        path.rename(tmp_path / "data" / "results" / "paper" / path.name)
    monkeypatch.setenv("DPRL_PROFILE", "quick")
    save(table(runs=[2, 2]))
    assert list(records.load("figure-3-1").frame.runs) == [20, 20]
    assert list(records.load("figure-3-1", "quick").frame.runs) == [2, 2]


def test_missing_parts_are_named(stage):
    with pytest.raises(RecordError, match=r"data/results/paper/figure-3-1\.csv does not exist"):
        records.load("figure-3-1")
    with pytest.raises(RecordError, match="profile must be one of"):
        records.load("figure-3-1", "full")
    with pytest.raises(RecordError, match=r"nowhere\.csv does not exist"):
        records.read(stage / "nowhere.csv")
    save()
    (stage / "figure-3-1.json").write_text("{}")
    with pytest.raises(RecordError, match="not a provenance file"):
        records.read(stage / "figure-3-1.csv")
    (stage / "figure-3-1.json").unlink()
    with pytest.raises(RecordError, match="no provenance"):
        records.read(stage / "figure-3-1.csv")


# -- paper results are safe -------------------------------------------------------------


def test_a_quick_run_never_replaces_a_paper_result(stage, monkeypatch):
    monkeypatch.setenv("DPRL_PROFILE", "paper")
    save()
    before = _json_bytes(stage)
    monkeypatch.setenv("DPRL_PROFILE", "quick")
    with pytest.raises(RecordError, match="result of the paper profile"):
        save(table(runs=[1, 1]))
    assert _json_bytes(stage) == before
    monkeypatch.setenv("DPRL_PROFILE", "paper")
    save(table(runs=[1, 1]))


def test_a_quick_run_cannot_even_be_staged_among_paper_results(stage, tmp_path, monkeypatch):
    monkeypatch.setenv("DPRL_STAGE", str(tmp_path / "data" / "results" / "paper"))
    with pytest.raises(RecordError, match="result of the paper profile"):
        save()


def test_a_reader_chooses_the_profile_in_the_page(stage, tmp_path, monkeypatch):
    for name in ("DPRL_STAGE", "DPRL_PAGE", "DPRL_PROFILE"):
        monkeypatch.delenv(name)
    save(parameters={"profile": "paper"})
    path = tmp_path / "_build" / "interactive" / "results" / "figure-3-1.json"
    assert json.loads(path.read_text())["profile"] == "paper"
    assert records.load("figure-3-1").provenance["page"] is None


def test_under_the_runner_parameters_cannot_contradict_the_profile(stage):
    with pytest.raises(RecordError, match="parameters say profile 'paper'"):
        save(parameters={"profile": "paper"})


# -- bad input --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("frame", "message"),
    [
        (table(rmse=[np.inf, 0.0]), "infinite value in row 0"),
        (table(rmse=[0.0, -np.inf]), "infinite value in row 1"),
        (table(algorithm=["LSW", None]), "row 1 holds"),
        (pd.DataFrame({"a": ["x", 3]}, dtype=object), "row 1 holds 3"),
        (pd.DataFrame({"a": [[1], [2]]}), "row 0 holds"),
        (table(algorithm=["a\nb", "c"]), "line break"),
        (table(when=pd.to_datetime(["2020-01-01"] * 2)), "cannot be recorded"),
        (table(kind=pd.Categorical(["a", "b"])), "cannot be recorded"),
        (table(z=[1j, 2j]), "cannot be recorded"),
        (table(big=np.array([2**63, 1], dtype=np.uint64)), "64 bits"),
        (table().iloc[:0], "empty"),
        (pd.DataFrame(), "empty"),
        (pd.DataFrame(index=[0, 1]), "empty"),
        (pd.DataFrame([[1, 2]], columns=["a", "a"]), "used twice: a"),
        (pd.DataFrame([[1, 2]], columns=["a", 3]), "non-empty texts"),
        (pd.DataFrame([[1, 2]], columns=["a", ""]), "non-empty texts"),
        (pd.DataFrame([[1, 2]], columns=["a", "b "]), "spaces at its ends"),
        (pd.DataFrame([[1]], columns=pd.MultiIndex.from_tuples([("a", "b")])), "non-empty texts"),
        (table().set_index("algorithm"), "reset_index"),
        (table().set_index(["algorithm", "runs"]), "reset_index"),
        (table().iloc[::-1], "reset_index"),
        (table().iloc[1:], "reset_index"),
        ([1, 2], "expected a DataFrame"),
        (table()["rmse"], "expected a DataFrame"),
    ],
)
def test_untidy_tables_are_refused(stage, frame, message):
    with pytest.raises(RecordError, match=message):
        save(frame)
    assert not stage.exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"name": "Figure 3"}, "lower-case words"),
        ({"name": "../figure"}, "lower-case words"),
        ({"name": "figure-3.csv/"}, "lower-case words"),
        ({"name": ""}, "lower-case words"),
        ({"seed": -1}, "seed must be"),
        ({"seed": 1.0}, "seed must be"),
        ({"seed": True}, "seed must be"),
        ({"seconds": -1}, "seconds must be a finite"),
        ({"seconds": float("nan")}, "seconds must be a finite"),
        ({"seconds": "1"}, "seconds must be a finite number"),
        ({"parameters": {"x": float("nan")}}, "parameters.x: nan is not finite"),
        ({"parameters": {"x": [1.0, np.inf]}}, r"parameters.x\[1\]: inf is not finite"),
        ({"parameters": {"x": object()}}, "cannot record a object"),
        ({"parameters": {1: 2}}, "names must be texts"),
        ({"keys": ["nope"]}, "no column 'nope'"),
        ({"keys": ["runs"]}, "do not identify its rows"),
        ({"keys": "algorithm"}, "non-empty list"),
        ({"keys": []}, "non-empty list"),
    ],
)
def test_bad_arguments_are_refused(stage, arguments, message):
    with pytest.raises(RecordError, match=message):
        save(**arguments)
    assert not stage.exists()


def test_paths_in_parameters_are_refused(stage, tmp_path):
    with pytest.raises(RecordError, match="machine to machine"):
        save(parameters={"folder": tmp_path})


# -- compare ----------------------------------------------------------------------------

_frames = st.lists(
    st.tuples(st.integers(0, 50), _floats), min_size=1, max_size=15, unique_by=lambda row: row[0]
).map(lambda rows: pd.DataFrame(rows, columns=["m", "rmse"]).astype({"rmse": float}))


@given(_frames, st.randoms(use_true_random=False))
def test_a_table_agrees_with_itself_in_any_order(frame, random):
    order = list(range(len(frame)))
    random.shuffle(order)
    assert records.compare(frame, frame.iloc[order], rtol=0, atol=0).empty


@given(_frames, st.floats(1e-6, 0.1), st.sampled_from([0.5, 2.0]))
def test_relative_tolerance_decides_at_the_stated_size(frame, rtol, factor):
    frame = frame.assign(rmse=1.0 + frame.rmse.abs().clip(upper=1e6).fillna(0))
    moved = frame.assign(rmse=frame.rmse * (1 + factor * rtol))
    assert len(records.compare(frame, moved, rtol=rtol, atol=0)) == (factor > 1) * len(frame)


def test_differences_are_symmetric_and_named():
    a = pd.DataFrame({"m": [1, 2, 3], "x": [1.0, np.nan, 3.0], "kind": ["a", "b", "c"]})
    b = pd.DataFrame({"m": [1, 2, 4], "x": [1.5, 1.0, 3.0], "kind": ["a", "B", "c"]})
    result = records.compare(a, b, keys=["m"], rtol=1e-9, atol=1e-9)
    assert list(result.column) == [
        "x",
        "x",
        "kind",
        "(row only in first)",
        "(row only in second)",
    ]
    assert list(result.m) == [1, 2, 2, 3, 4]
    assert result.difference[0] == 0.5
    mirrored = records.compare(b, a, keys=["m"], rtol=1e-9, atol=1e-9)
    assert len(mirrored) == len(result)


def test_float_keys_match_in_their_first_twelve_digits():
    ridge = np.sqrt([100.0, 1000.0, 3e6])
    a = pd.DataFrame({"ridge": ridge, "rmse": [0.1, 0.2, 0.3]})
    b = a.assign(ridge=np.nextafter(ridge, np.inf))
    assert records.compare(a, b, keys=["ridge"]).empty
    assert len(records.compare(a, a.assign(ridge=ridge * 1.001), keys=["ridge"])) == 6


@pytest.mark.parametrize(
    ("changes", "arguments", "message"),
    [
        ({"extra": [1.0, 2.0]}, {}, "same columns: extra"),
        ({}, {"keys": ["runs"]}, "do not identify its rows"),
        ({}, {"keys": ["nope"]}, "no column 'nope'"),
        ({}, {"rtol": -1.0}, "tolerances"),
        ({}, {"atol": float("nan")}, "tolerances"),
    ],
)
def test_tables_that_cannot_be_compared_are_refused(changes, arguments, message):
    with pytest.raises(RecordError, match=message):
        records.compare(table(), table(**changes), **arguments)


def test_a_table_of_floats_alone_needs_keys():
    frame = pd.DataFrame({"x": [1.0]})
    with pytest.raises(RecordError, match="give keys"):
        records.compare(frame, frame)


# -- writing ----------------------------------------------------------------------------


def test_a_write_that_fails_leaves_the_old_file_and_no_other(tmp_path, monkeypatch):
    path = tmp_path / "a.txt"
    write_atomic(path, "old")

    def broken(*_):
        raise OSError("disk full")

    monkeypatch.setattr("os.fsync", broken)
    with pytest.raises(OSError, match="disk full"):
        write_atomic(path, "new")
    assert [p.name for p in tmp_path.iterdir()] == ["a.txt"]
    assert path.read_text() == "old"


@settings(
    deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
@given(st.text(string.printable))
def test_text_is_written_as_it_is_and_only_when_it_changed(tmp_path, text):
    path = tmp_path / "a.txt"
    write_atomic(path, text)
    assert path.read_bytes() == text.encode()
    before = path.stat().st_mtime_ns
    assert write_atomic(path, text) is False
    assert path.stat().st_mtime_ns == before


# -- tables that a command made ---------------------------------------------------------


def keep(root, frame=None, name="table-5-2", **changes):
    command = {
        "line": "python -m experiments.chapter_5 --profile laptop",
        "profile": "laptop",
        "folder": root / "data" / "results",
    }
    arguments = {"seed": 7, "parameters": {"cells": ["Hopper-v5-50"]}}
    fields = {field.name for field in dataclasses.fields(records.Command)}
    made_by = records.Command(**command | {k: v for k, v in changes.items() if k in fields})
    arguments |= {k: v for k, v in changes.items() if k not in fields}
    return records.keep(name, table() if frame is None else frame, made_by, **arguments)


@pytest.mark.parametrize("profile", ["laptop", "paper"])
def test_a_table_of_a_command_is_kept_and_found_by_its_profile(stage, tmp_path, profile):
    path = keep(tmp_path, profile=profile, libraries=["joblib"], device="cpu", seconds=3600.0)
    assert path == tmp_path / "data" / "results" / profile / "table-5-2.csv"
    frame, provenance = records.load("table-5-2", profile=profile)
    assert_frame_equal(frame, table(), check_dtype=False)
    assert (provenance["page"], provenance["device"]) == (None, "cpu")
    assert provenance["command"] == "python -m experiments.chapter_5 --profile laptop"
    assert {"joblib", "numpy", "source_sha256", "cores"} <= provenance.keys()
    assert records.locate("table-5-2", "quick") is None


def test_a_command_replaces_its_own_table_and_no_page_s(stage, tmp_path, monkeypatch):
    keep(tmp_path)
    keep(tmp_path, table(runs=[30, 30]))
    assert list(records.load("table-5-2", profile="laptop").frame.runs) == [30, 30]
    # killed between the table and its provenance
    (tmp_path / "data" / "results" / "laptop" / "table-5-2.csv").write_text("runs\n1\n")
    keep(tmp_path, table(runs=[40, 40]))
    assert list(records.load("table-5-2", profile="laptop").frame.runs) == [40, 40]
    monkeypatch.setenv("DPRL_PROFILE", "paper")
    save()
    for path in list(stage.iterdir()):
        path.rename(tmp_path / "data" / "results" / "paper" / path.name)
    with pytest.raises(RecordError, match="is a table of the page 3-policy-evaluation/dp-lsw"):
        keep(tmp_path, name="figure-3-1", profile="paper")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"profile": "quick"}, "a command keeps laptop or paper results, got 'quick'"),
        ({"line": "python -m nowhere"}, "no program of this repository"),
        ({"profile": "GPU"}, "a command keeps laptop or paper results, got 'GPU'"),
        ({"line": " "}, "a command is what python is called with"),
        ({"seed": -1}, "seed must be a non-negative integer"),
        ({"name": "Table 5.2"}, "a record's name is"),
    ],
)
def test_a_command_s_table_needs_profile_command_and_seed(stage, tmp_path, changes, message):
    with pytest.raises(RecordError, match=message):
        keep(tmp_path, **changes)
