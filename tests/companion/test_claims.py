"""Verdicts follow from booleans and nothing else; then the list; then bad input."""

from __future__ import annotations

import itertools
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from companion import claims
from companion.claims import ClaimError, ClaimMismatch

PAGE = "3-policy-evaluation/dp-lsw"


def entry(claim_id="thesis:3.1", expected="holds", **changes):
    return {
        "id": claim_id,
        "source": claim_id.split(":")[0],
        "title": "A bound",
        "statement": "The bound $b$ holds.",
        "expected": expected,
        "page": PAGE,
        **({"severity": "constant"} if expected in claims.FAULTS else {}),
    } | changes


def write_claims(root: Path, *entries: object) -> Path:
    path = root / "book" / "claims.yml"
    path.parent.mkdir(exist_ok=True)
    (root / "notebooks").mkdir(exist_ok=True)
    path.write_text(json.dumps(entries), encoding="utf-8")  # JSON is YAML
    return path


@pytest.fixture
def page(tmp_path, monkeypatch):
    """A repository in which the runner executes PAGE; a list with one claim per verdict."""
    expected = dict(zip("abcdefg", claims.VERDICTS, strict=True))
    other = entry("thesis:other", page="3-policy-evaluation/other")
    write_claims(tmp_path, *(entry(f"thesis:{k}", v) for k, v in expected.items()), other)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DPRL_PAGE", PAGE)
    monkeypatch.setenv("DPRL_PROFILE", "quick")
    monkeypatch.setenv("DPRL_STAGE", str(tmp_path / "stage"))
    return tmp_path


def recorded(root: Path) -> list[dict]:
    return claims.read(root / "stage" / "claims.json")


# -- the verdict ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("letter", "outcome"),
    [
        ("a", {"printed": True}),
        ("a", {"printed": True, "corrected": True}),
        ("a", {"printed": np.bool_(True), "under_conditions": True}),
        ("b", {"printed": False, "under_conditions": True}),
        ("c", {"printed": False, "corrected": True}),
        ("c", {"printed": np.False_, "corrected": np.True_, "under_conditions": False}),
        ("d", {"reproduced": True}),
        ("d", {"reproduced": True, "with_deviations": True}),
        ("e", {"reproduced": False, "with_deviations": True}),
        ("f", {"reproduced": False}),
        ("f", {"reproduced": False, "with_deviations": False}),
    ],
)
def test_verdict_is_derived_from_the_booleans(page, letter, outcome):
    badge = claims.check(f"thesis:{letter}", **outcome, gap=0.5)
    assert badge.verdict == dict(zip("abcdefg", claims.VERDICTS, strict=True))[letter]
    assert recorded(page) == [
        {
            "id": f"thesis:{letter}",
            "verdict": badge.verdict,
            "numbers": {"gap": 0.5},
            "page": PAGE,
            "profile": "quick",
        }
    ]


_STATEMENT = ("printed", "under_conditions", "corrected")
_OUTCOME = ("reproduced", "with_deviations")


@given(st.tuples(*[st.sampled_from([None, True, False])] * 5))
def test_every_combination_gives_a_verdict_of_its_family_or_an_error(values):
    outcome = dict(zip(_STATEMENT + _OUTCOME, values, strict=True))
    try:
        verdict = claims._derive("thesis:1", outcome)
    except ClaimError:
        return
    given_statement = any(outcome[name] is not None for name in _STATEMENT)
    assert (verdict in claims.VERDICTS[:3]) == given_statement
    assert (verdict in claims.VERDICTS[3:6]) != given_statement
    assert (verdict == "holds") == (outcome["printed"] is True)
    assert (verdict == "reproduced") == (outcome["reproduced"] is True)


def test_only_unambiguous_combinations_give_a_verdict():
    accepted = 0
    for values in itertools.product([None, True, False], repeat=5):
        try:
            claims._derive("thesis:1", dict(zip(_STATEMENT + _OUTCOME, values, strict=True)))
        except ClaimError:
            continue
        accepted += 1
    # printed: 2 x 2; not printed: conditions (1), corrected (2); outcomes: 2 x 3
    assert accepted == 4 + 3 + 6


def test_another_verdict_than_expected_is_a_mismatch_that_says_everything(page):
    with pytest.raises(ClaimMismatch, match=r"'holds', expected 'false as printed' \(ratio=0.5"):
        claims.check("thesis:c", printed=True, ratio=0.5)
    assert not (page / "stage" / "claims.json").exists()


def test_not_checkable_records_its_reason(page):
    badge = claims.not_checkable("thesis:g", "The data\n were never published.")
    assert recorded(page)[0]["reason"] == "The data were never published."
    assert "never published" in str(badge)
    with pytest.raises(ClaimMismatch):
        claims.not_checkable("thesis:a", "too hard")


def test_records_are_added_in_order_and_numbers_become_plain(page):
    claims.check(
        "thesis:a",
        printed=True,
        a=np.float64(0.1),
        b=np.int64(3),
        c=np.True_,
        d="tabular",
        e=np.array(2.5),
        f=np.inf,
    )
    claims.check("thesis:d", reproduced=True, n=1)
    first, second = recorded(page)
    assert first["numbers"] == {"a": 0.1, "b": 3, "c": True, "d": "tabular", "e": 2.5, "f": "inf"}
    assert second["id"] == "thesis:d"


def test_same_checks_give_the_same_bytes(page):
    path = page / "stage" / "claims.json"
    contents = set()
    for _ in range(2):
        claims.check("thesis:a", printed=True, ratio=1 / 3)
        contents.add(path.read_bytes())
        path.unlink()
    assert len(contents) == 1


# -- the badge --------------------------------------------------------------------------


def test_badge_is_one_line_with_an_anchor_and_readable_numbers(page):
    badge = claims.check("thesis:c", printed=False, corrected=True, worst_ratio=1.00004, n=300_000)
    text = badge._repr_html_()
    assert 'id="claim-thesis-c"' in text
    assert (
        '<span class="verdict verdict-false severity-constant">false as printed (constant)' in text
    )
    assert "worst ratio = 1.00004, n = 300\u202f000" in text
    assert "\n" not in text
    assert badge._repr_markdown_().startswith("(claim-thesis-c)=\n")


def test_badge_escapes_what_a_page_hands_over(page):
    badge = claims.check("thesis:a", printed=True, kind="<b>&", n=1)
    assert "&lt;b&gt;&amp;" in badge._repr_html_()


def test_every_badge_of_a_cell_shows_itself_exactly_once(page):
    pytest.importorskip("IPython")
    cell = (
        "from companion import claims\n"
        "first = claims.check('thesis:a', printed=True, n=1)\n"
        "claims.check('thesis:d', reproduced=True, n=2)"  # also the cell's value
    )
    code = f"""
from IPython.core.interactiveshell import InteractiveShell
from IPython.utils.capture import capture_output
shell = InteractiveShell.instance(history_length=0)
with capture_output() as out:
    shell.run_cell({cell!r}).raise_error()
print([list(o.data) for o in out.outputs], "claim-" in out.stdout)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    kinds = "['text/plain', 'text/html', 'text/markdown']"
    assert done.stdout.strip().endswith(f"[{kinds}, {kinds}] False")


# -- a reader in Jupyter ----------------------------------------------------------------


def test_without_a_runner_checks_apply_but_nothing_recorded_is_touched(page, monkeypatch):
    monkeypatch.delenv("DPRL_STAGE")
    monkeypatch.delenv("DPRL_PAGE")
    for n in (1, 2):  # a reader runs the same cell again
        claims.check("thesis:a", printed=True, n=n)
    claims.check("thesis:other", printed=True, n=3)  # whichever page it is
    records = claims.read(page / "_build" / "interactive" / "claims.json")
    assert [r["numbers"]["n"] for r in records] == [2, 3]


@pytest.mark.parametrize("in_jupyter", [True, False])
@pytest.mark.parametrize(
    ("outcome", "verdict"),
    [
        ({"printed": False, "corrected": True}, "false as printed"),
        ({"printed": False, "corrected": False}, "undecided"),
        ({"printed": False}, "undecided"),
        ({"printed": True, "corrected": False}, "undecided"),
    ],
)
def test_a_reader_who_tries_other_values_sees_both_verdicts(
    page, monkeypatch, in_jupyter, outcome, verdict
):
    if in_jupyter:
        monkeypatch.delenv("DPRL_STAGE")
        monkeypatch.delenv("DPRL_PAGE")
    else:
        monkeypatch.setenv("DPRL_TRY", "1")
    badge = claims.check("thesis:a", **outcome, n=1)
    assert str(badge) == f"{verdict} (with the book's values: holds): thesis:a (n = 1)"
    assert "with the book's values: holds" in badge._repr_html_()
    assert "with the book's values" not in str(
        claims.check("thesis:b", printed=False, under_conditions=True, n=1)
    )
    with pytest.raises(ClaimError):  # what no value of a parameter explains
        claims.check("thesis:c", printed="yes", n=1)


def test_a_sentence_that_is_not_borne_out_stops_the_build_and_no_reader(page, monkeypatch):
    claims.bear_out("members are found", np.bool_(True))
    with pytest.raises(ClaimMismatch, match="members are found"):
        claims.bear_out("members are found", False)
    shown = []
    monkeypatch.setattr("companion.outcomes.publish", shown.append)
    monkeypatch.setenv("DPRL_TRY", "1")
    claims.bear_out("members are found", True)
    assert shown == []
    claims.bear_out("members are found", False)
    assert "members are found" in shown[0]["text/plain"]


def test_the_repository_is_found_from_a_page_folder(page, monkeypatch):
    folder = page / "notebooks" / "3-policy-evaluation"
    folder.mkdir()
    monkeypatch.chdir(folder)
    claims.check("thesis:a", printed=True, n=1)
    assert recorded(page)[0]["id"] == "thesis:a"


# -- bad input --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("claim_id", "arguments", "message"),
    [
        ("thesis:zz", {"printed": True, "n": 1}, "not listed"),
        ("thesis:other", {"printed": True, "n": 1}, "belongs to page"),
        ("thesis:a", {"n": 1}, "nothing was computed"),
        ("thesis:a", {"corrected": True, "n": 1}, "nothing was computed"),
        ("thesis:a", {"printed": True}, "at least one number"),
        ("thesis:a", {"printed": True, "ok": True, "kind": "x"}, "at least one number"),
        ("thesis:a", {"printed": True, "n": float("nan")}, "NaN"),
        ("thesis:a", {"printed": True, "n": np.float32("nan")}, "NaN"),
        ("thesis:a", {"printed": True, "n": np.ones(2)}, "one number or a short text"),
        ("thesis:a", {"printed": True, "n": None}, "one number or a short text"),
        ("thesis:a", {"printed": True, "n": 1 + 2j}, "one number or a short text"),
        ("thesis:a", {"printed": True, "n": 1, "s": "x" * 81}, "more than 80"),
        ("thesis:a", {"printed": 1, "n": 1}, "printed must be True or False"),
        ("thesis:a", {"printed": "yes", "n": 1}, "printed must be True or False"),
        ("thesis:a", {"printed": np.ones(2, bool), "n": 1}, "printed must be True or False"),
        ("thesis:a", {"printed": True, "corrected": 0.0, "n": 1}, "corrected must be True"),
        ("thesis:a", {"printed": True, "corrected": False, "n": 1}, "must be true or left out"),
        ("thesis:a", {"printed": True, "under_conditions": False, "n": 1}, "or left out"),
        ("thesis:c", {"printed": False, "n": 1}, "needs a corrected version"),
        ("thesis:c", {"printed": False, "corrected": False, "n": 1}, "fails too"),
        ("thesis:b", {"printed": False, "under_conditions": False, "n": 1}, "needs a corrected"),
        (
            "thesis:c",
            {"printed": False, "under_conditions": True, "corrected": True, "n": 1},
            "leave one out",
        ),
        ("thesis:a", {"printed": True, "reproduced": True, "n": 1}, "not both"),
        ("thesis:a", {"printed": True, "with_deviations": False, "n": 1}, "not both"),
        ("thesis:d", {"with_deviations": True, "n": 1}, "needs reproduced"),
    ],
)
def test_bad_checks_are_refused_and_nothing_is_written(page, claim_id, arguments, message):
    with pytest.raises(ClaimError, match=message):
        claims.check(claim_id, **arguments)
    assert not (page / "stage").exists()


def test_a_second_check_on_a_page_is_refused(page):
    claims.check("thesis:a", printed=True, n=1)
    with pytest.raises(ClaimError, match="already checked"):
        claims.check("thesis:a", printed=True, n=1)


@pytest.mark.parametrize("reason", ["", "  ", None])
def test_not_checkable_needs_a_reason(page, reason):
    with pytest.raises(ClaimError, match="say why"):
        claims.not_checkable("thesis:g", reason)


@pytest.mark.parametrize(
    ("variable", "value", "message"),
    [
        ("DPRL_PROFILE", "full", "DPRL_PROFILE must be one of quick, paper"),
        ("DPRL_STAGE", "relative/stage", "absolute"),
        ("DPRL_PAGE", "", "DPRL_PAGE is not"),
    ],
)
def test_a_contradicting_runner_is_refused(page, monkeypatch, variable, value, message):
    monkeypatch.setenv(variable, value)
    with pytest.raises(RuntimeError, match=message):
        claims.check("thesis:a", printed=True, n=1)


# -- the list ---------------------------------------------------------------------------


def test_list_keeps_its_order_and_needs_pages_only_with_a_root(tmp_path):
    path = write_claims(tmp_path, entry("xie:lemma-1"), entry("thesis:figure-3.1"))
    assert list(claims.load(path)) == ["xie:lemma-1", "thesis:figure-3.1"]
    with pytest.raises(ClaimError, match=r"notebooks/3-policy-evaluation/dp-lsw\.md does not"):
        claims.load(path, tmp_path)
    source = tmp_path / "notebooks" / f"{PAGE}.md"
    source.parent.mkdir()
    source.write_text("# Page\n")
    assert len(claims.load(path, tmp_path)) == 2


def test_a_changed_list_is_read_again(page):
    claims.check("thesis:a", printed=True, n=1)
    write_claims(page, entry("thesis:new"))
    claims.check("thesis:new", printed=True, n=1)


@pytest.mark.parametrize(
    ("entries", "message"),
    [
        ([entry(), entry()], "listed twice"),
        ([entry("thesis:3.1"), entry("thesis:3-1")], "share the anchor"),
        ([entry(expected="true")], "unknown verdict 'true'"),
        ([entry(note="x")], "unknown field note"),
        ([{k: v for k, v in entry().items() if k != "title"}], "missing field title"),
        ([entry(title=" ")], "title must be a non-empty text"),
        ([entry(statement=3)], "statement must be a non-empty text"),
        ([entry(source="book")], "source must be one of"),
        ([entry(source="xie")], "id and source disagree"),
        ([entry("thesis:Lemma 1")], "id must look like"),
        ([entry("thesis:")], "id must look like"),
        ([entry("thesis:3..1")], "id must look like"),
        ([entry(page="../secrets")], "page must look like"),
        ([entry(page="3-x/page.md")], "page must look like"),
        ([entry(title="x" * 91)], "at most 90"),
        (["thesis:3.1"], "expected the fields"),
        ({"thesis:3.1": entry()}, "must hold a list"),
    ],
)
def test_bad_lists_are_refused(tmp_path, entries, message):
    path = tmp_path / "claims.yml"
    path.write_text(json.dumps(entries))
    with pytest.raises(ClaimError, match=message):
        claims.load(path)


def test_missing_and_malformed_files_are_named(tmp_path):
    with pytest.raises(ClaimError, match="does not exist"):
        claims.load(tmp_path / "claims.yml")
    (tmp_path / "claims.yml").write_text("- id: [")
    with pytest.raises(ClaimError, match="not valid YAML"):
        claims.load(tmp_path / "claims.yml")
    for text, message in [("[", "not valid JSON"), ('[{"id": "x"}]', "must hold a list")]:
        (tmp_path / "claims.json").write_text(text)
        with pytest.raises(ClaimError, match=message):
            claims.read(tmp_path / "claims.json")


# -- severity and scale -----------------------------------------------------------------


@pytest.mark.parametrize("expected", claims.VERDICTS)
@pytest.mark.parametrize("severity", ["", "grave", *claims.SEVERITIES])
def test_exactly_the_faults_have_a_known_severity(tmp_path, expected, severity):
    listed = entry(expected=expected)
    listed.pop("severity", None)
    path = write_claims(tmp_path, listed | ({"severity": severity} if severity else {}))
    if (severity in claims.SEVERITIES) if expected in claims.FAULTS else not severity:
        assert claims.load(path)["thesis:3.1"].severity == severity
    else:
        with pytest.raises(ClaimError, match="severity"):
            claims.load(path)


def test_a_smaller_experiment_says_so_in_its_badge_and_its_record(page):
    badge = claims.check("thesis:f", reproduced=False, runs=3, scale="3 of 100 runs")
    assert str(badge) == "not reproduced at this scale: thesis:f (runs = 3, scale: 3 of 100 runs)"
    assert recorded(page)[0]["scale"] == "3 of 100 runs"


@pytest.mark.parametrize(
    ("outcome", "scale", "message"),
    [
        ({"printed": True}, "3 of 100 runs", "only an outcome"),
        ({"reproduced": True}, "smaller", "with numbers"),
        ({"reproduced": True}, 0.1, "with numbers"),
        ({"reproduced": True}, "1 " * 100, "at most 120 characters"),
    ],
)
def test_a_scale_says_in_numbers_how_much_smaller_an_outcome_is(page, outcome, scale, message):
    with pytest.raises(ClaimError, match=message):
        claims.check("thesis:a", **outcome, scale=scale, n=1)
