"""Mutants of a tiny package under a tiny page: what is noticed, and what survives."""

import contextlib
import dataclasses
import json
import shutil
import signal
import subprocess
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from companion import records
from companion.build import mutants, mutated_page, mutation
from companion.build.page_values import words_behind

PAGE, FAR = "1-chapter/page", "1-chapter/far"
MATHS = '''
def pinned():
    """The value."""
    return 3.0

def loose():
    """An upper bound of the error."""
    return 100.0

def too_low():
    """A lower bound of the error."""
    return 1.0

def never_called():
    """The value."""
    return 1.0

class Law:
    @property
    def mass(self):
        """The mass."""
        return 1.0
'''
OTHER = "def error():\n    return 2.0\n\ndef unused():\n    return 1.0\n"
CELLS = [
    ":tags: [parameters]\n\nprofile = 'quick'\nseed = 1",
    "from companion import claims\nfrom tiny import bounds, other",
    "from tiny.bounds import loose",
    "assert abs(bounds.Law().mass - 1) < 1e-9",
    'claims.check("thesis:1", printed=abs(bounds.pinned() - 3) < 0.3, n=bounds.pinned())',
    "error = other.error()",
    'claims.check("thesis:2", printed=error < min(loose(), 3), n=error)',
    'claims.check("thesis:3", printed=bounds.too_low() < 1.5 < error, n=error)',
    "first, second = (int(n) for n in '12')\ntotal = first + second",
    'claims.check("thesis:4", printed=total == 3, n=total)',
    "import math",
    'claims.check("thesis:5", printed=math.pi > 3, n=math.pi)',
]
HEADER = "---\nkernelspec:\n  display_name: Python 3\n  language: python\n  name: python3\n---\n\n"
CLAIM = """- id: thesis:{0}
  source: thesis
  title: Number {0}
  statement: A number.
  expected: holds
  page: {1}
"""


def write(root, page, cells):
    code = "".join(f"```{{code-cell}} ipython3\n{cell}\n```\n\n" for cell in cells)
    (root / f"notebooks/{page}.md").write_text(HEADER + "# A page\n\n" + code)


@pytest.fixture(scope="module")
def repository(tmp_path_factory):
    root = tmp_path_factory.mktemp("mutation")
    for name, text in (("__init__", ""), ("bounds", MATHS), ("other", OTHER)):
        path = root / "tiny" / f"{name}.py"
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    (root / "book").mkdir()
    (root / "book/claims.yml").write_text(
        "".join(CLAIM.format(i, PAGE if i < 6 else FAR) for i in range(1, 7))
    )
    (root / f"notebooks/{PAGE}.md").parent.mkdir(parents=True)
    write(root, PAGE, CELLS)
    return root


@pytest.fixture(scope="module")
def outcome(repository):
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(repository)
        patch.setenv("PYTHONPATH", str(repository), prepend=":")
        wanted = set(mutants.public_functions("tiny.bounds"))
        assert wanted == {
            f"tiny.bounds.{n}" for n in ("pinned", "loose", "too_low", "never_called", "Law.mass")
        }
        yield mutation.examine(repository, PAGE, wanted, packages=("tiny.bounds", "tiny"))


def notices(outcome, function):
    return {r["mutation"]: r["notice"] for r in outcome["results"] if r["function"] == function}


def test_a_pinned_value_is_noticed_by_its_claim_and_by_how_little(outcome):
    assert notices(outcome, "tiny.bounds.pinned") == {
        "x 0.5": "claim thesis:1",
        "x 2": "claim thesis:1",
        "x 0.95": "",
        "x 0.8": "claim thesis:1",
        "x 1.052631579": "",
        "x 1.25": "claim thesis:1",
    }


def test_a_mutant_with_an_execution_of_its_own_shows_what_a_fork_shows(
    repository, outcome, monkeypatch
):
    monkeypatch.setenv("PYTHONPATH", str(repository), prepend=":")
    forked = [r for r in outcome["results"] if r["mutation"] in ("x 0.5", "x 2")]
    forked = [r for r in forked if r["function"].startswith("tiny.bounds.")]
    assert any(r["notice"] for r in forked)
    assert not all(r["notice"] for r in forked)
    mutants_of = [(r["function"], r["mutation"]) for r in forked]
    claims = [f"thesis:{i}" for i in range(1, 6)]
    task = mutated_page.MutationTask(
        PAGE, "bounds", claims, [], 1, 60.0, ("tiny.bounds", "tiny"), mutants=mutants_of
    )
    told = []
    alone = mutation._in_a_process(repository, task, told.append)
    assert alone["queue"] == []
    shown = [(r["function"], r["mutation"], r["notice"]) for r in (said["result"] for said in told)]
    assert shown == [(r["function"], r["mutation"], r["notice"]) for r in forked]


def test_an_assertion_notices_too_and_methods_are_functions(outcome):
    seen = notices(outcome, "tiny.bounds.Law.mass")
    assert seen["x 0.5"] == seen["x 0.95"] == "assertion in code cell 4"


def test_a_loose_bound_survives_in_both_directions(outcome):
    """It was imported by name: it is changed there too, or this would say nothing."""
    assert notices(outcome, "tiny.bounds.loose") == {"x 0.5": "", "x 2": ""}


def test_a_bound_is_noticed_in_the_direction_that_makes_it_false(outcome):
    seen = notices(outcome, "tiny.bounds.too_low")
    assert not seen["x 0.5"]
    assert seen["x 2"] == "claim thesis:3"
    assert mutation.satisfied("lower bound", seen)
    assert not mutation.satisfied("exact", seen)


def test_what_is_never_called_has_no_mutant(outcome):
    assert notices(outcome, "tiny.bounds.never_called") == {}
    assert notices(outcome, "tiny.other.unused") == {}


def test_claims_are_moved_by_bounds_then_the_package_then_the_page(outcome):
    moved = {
        claim: result["function"] for result in outcome["results"] for claim in result["moved"]
    }
    assert moved == {
        "thesis:1": "tiny.bounds.pinned",
        "thesis:2": "tiny.other.error",
        "thesis:3": "tiny.bounds.too_low",
        "thesis:4": "page: (first, second)",
    }
    assert outcome["unmoved"] == ["thesis:5"]


def test_values_far_from_a_check_wait_for_a_later_stage(repository, monkeypatch):
    cells = ["from companion import claims", "own = [1, 2]", "a = sum(own)", "b = 1", "c = 2"]
    cells += ["d = 3", "e = a + 1", 'claims.check("thesis:6", printed=e == 4, n=e)']
    write(repository, FAR, cells)
    monkeypatch.setenv("PYTHONPATH", str(repository), prepend=":")
    tiny = ("tiny.bounds", "tiny")
    found = mutation.examine(repository, FAR, set(), stages=["near page"], packages=tiny)
    assert {(r["function"], tuple(r["moved"])) for r in found["results"]} == {
        ("page: e", ("thesis:6",))
    }
    before = found | {"unmoved": ["thesis:6"], "results": []}
    found = mutation.examine(
        repository, FAR, set(), stages=["page"], packages=tiny, sitting=mutation.Sitting(before)
    )
    assert found["results"][0]["function"] == "page: own"
    assert found["unmoved"] == []


def test_a_sentence_that_fails_is_noticed_and_keeps_no_claim_from_its_check(
    repository, monkeypatch
):
    cells = ["from companion import claims", "n = len('abc')", 'claims.bear_out("few", 0 < n < 5)']
    write(repository, FAR, [*cells, 'claims.check("thesis:6", printed=n > 0, n=n)'])
    monkeypatch.setenv("PYTHONPATH", str(repository), prepend=":")
    tiny = ("tiny.bounds", "tiny")
    found = mutation.examine(repository, FAR, set(), stages=["near page"], packages=tiny)
    assert [(r["mutation"], r["notice"], r["moved"]) for r in found["results"]] == [
        ("x 2", "sentence in code cell 3", []),
        ("uneven", "sentence in code cell 3", []),
        ("negated", "sentence in code cell 3", ["thesis:6"]),
    ]


def test_what_is_stored_in_a_table_is_changed_too(repository, monkeypatch):
    cells = ["from companion import claims", "t = {}", 't["n"] = len("abc")']
    cells += ['claims.check("thesis:6", printed=t["n"] == 3, n=t["n"])']
    write(repository, FAR, cells)
    monkeypatch.setenv("PYTHONPATH", str(repository), prepend=":")
    tiny = ("tiny.bounds", "tiny")
    found = mutation.examine(repository, FAR, set(), stages=["near page"], packages=tiny)
    assert [(r["function"], r["moved"]) for r in found["results"]] == [
        ("page: t['n']", ["thesis:6"])
    ]


def test_nothing_is_left_behind(repository, outcome):
    assert sorted(p.name for p in (repository / "_build/mutation").iterdir()) in (
        ["ipython", "runs"],
        ["runs"],
    )
    assert list((repository / "_build/mutation/runs").iterdir()) == []


def test_table_names_survivors_and_asks_for_their_reasons(
    repository, outcome, monkeypatch, tmp_path
):
    monkeypatch.setattr(mutation, "BOUNDS", "tiny.bounds")
    kinds = {
        "tiny.bounds.pinned": "exact",
        "tiny.bounds.loose": "upper bound",
        "tiny.bounds.too_low": "lower bound",
        "tiny.bounds.never_called": "exact",
    }
    notes = mutation.Notes({}, {"loose": "it is far above", "pinned": "old"})
    waits, problems = mutation.table(repository, [PAGE], {}, kinds, mutation.Notes({}, {}))
    assert problems == []
    assert set(waits["why"]) == {"not examined yet"}
    assert mutation.counts(waits) == {"functions": (0, 0), "claims": (0, 0)}
    frame, problems = mutation.table(repository, [PAGE], {PAGE: outcome}, kinds, notes)
    assert problems == [
        "never_called survives, without a reason",
        "thesis:5 survives, without a reason",
        "pinned does not survive: take its reason away",
    ]
    rows = frame.set_index(["function", "mutation"])
    assert rows.loc[("loose", "x 0.5"), "why"] == "survives: it is far above"
    assert rows.loc[("too_low", "x 0.5"), "why"] == "still a bound"
    assert rows.loc[("never_called", "x 0.5"), "why"] == "survives: no page calls it"
    assert not rows.loc[("thesis:5", "all"), "noticed"]
    assert frame["noticed"].dtype == bool
    assert not frame.duplicated(["function", "mutation", "page"]).any()
    assert mutation.counts(frame) == {"functions": (2, 4), "claims": (4, 5)}
    path = records.keep(
        "mutation",
        frame,
        records.Command("python -m companion.build.mutation", profile="paper", folder=tmp_path),
        seed=None,
        parameters={"goal": 0.95},
        keys=["function", "mutation", "page"],
    )
    kept = mutation.survivors(records.read(path).frame)
    assert kept["function"].tolist() == ["loose", "never_called", "thesis:5"]
    assert kept["why"].tolist() == ["it is far above", "no page calls it", ""]


def test_a_page_that_fails_unchanged_is_an_error(repository, monkeypatch):
    path = repository / "notebooks/1-chapter/broken.md"
    text = (repository / f"notebooks/{PAGE}.md").read_text()
    path.write_text(text.replace("mass - 1", "mass - 2"))
    monkeypatch.setenv("PYTHONPATH", str(repository), prepend=":")
    with pytest.raises(mutants.MutationError, match="fails unchanged: AssertionError in code"):
        mutation.examine(
            repository, "1-chapter/broken", {"tiny.bounds.pinned"}, packages=("tiny.bounds", "tiny")
        )


@dataclasses.dataclass(frozen=True)
class Pair:
    low: float
    name: str

    def __post_init__(self):
        assert self.low == 1


def test_numbers_are_changed_wherever_they_are():
    assert mutants.mutate((1.0, [2.0], "x", None), "x 2") == (2.0, [4.0], "x", None)
    assert mutants.mutate(True, "x 2") is False
    assert mutants.mutate(np.bool_(False), "x 0.5") is True
    assert mutants.mutate(3, "x 2") == 6
    assert mutants.mutate(1, "x 0.95") == 0  # an integer changes, however small the factor
    assert mutants.mutate(np.int64(10), "x 1.052631579") == 11
    assert mutants.mutate(Pair(1.0, "x"), "x 2").low == 2.0
    assert mutants.mutate(1.0, "negated") == -1.0
    changed = mutants.mutate(np.array([[1.0, 2.0]]), "x 0.5")
    assert changed.tolist() == [[0.5, 1.0]]
    assert mutants.mutate(np.array([True, False]), "x 2").tolist() == [False, True]
    assert mutants.mutate(np.array([1, 0, 3]), "x 0.95").tolist() == [0, 0, 2]
    frame = pd.DataFrame({"m": [1], "loss": [2.0]})
    assert mutants.mutate(frame, "x 2").to_dict("records") == [{"m": 1, "loss": 4.0}]
    assert frame.loss[0] == 2.0
    near = pd.DataFrame({"of": ["x", "y"], "near": [True, False]})
    assert mutants.holds_numbers(near)
    assert mutants.mutate(near, "uneven")["near"].tolist() == [False, True]
    row = pd.DataFrame({"m": [1], "loss": [2.0], "of": ["x"]}).loc[0]
    assert mutants.holds_numbers(row)
    assert mutants.mutate(row, "x 2").to_dict() == {"m": 1, "loss": 4.0, "of": "x"}
    assert row["loss"] == 2.0
    assert mutants.holds_numbers(row.to_frame())  # a column of numbers and texts
    with pytest.raises(mutants.MutationError, match="no mutation is called"):
        mutants.mutate(1.0, "forgotten")


@pytest.mark.parametrize("value", ["x", None, [], {}, np.array(["a"]), pd.Series(["a"])])
def test_what_holds_no_number_is_left_alone(value):
    assert not mutants.holds_numbers(value)


def test_words_behind_a_claim_follow_what_fills_a_list():
    cells = ["l = []\nm = g()", "l.append(f())\nm += h()", "claims.check('t:1', printed=all(l))"]
    words = words_behind(cells, 2, "t:1")
    assert "f" in words
    assert not {"g", "h"} & words


@pytest.mark.parametrize(
    ("text", "match"),
    [
        ("kinds: {a: sharp}", "no kind is called"),
        ("survivors: {a: ''}", "say why"),
        ("other: {}", "kinds and survivors"),
    ],
)
def test_bad_notes_are_refused(tmp_path, text, match):
    (tmp_path / "mutation.yml").write_text(text)
    with pytest.raises(mutants.MutationError, match=match):
        mutation.load_notes(tmp_path / "mutation.yml")


def test_a_page_is_kept_until_its_code_changes(repository, outcome):
    kept = outcome | {"key": mutation._key(repository, PAGE)}
    mutation._keep(repository, PAGE, kept)
    assert mutation.load_kept(repository, PAGE) == kept
    assert mutation.is_whole(kept)
    source = Path(repository / f"notebooks/{PAGE}.md")
    page = source.read_text()
    source.write_text(page + "\nMore.\n")
    assert mutation.load_kept(repository, PAGE) == kept
    source.write_text(page + "\n```{code-cell} ipython3\nmore = 1\n```\n")
    assert mutation.load_kept(repository, PAGE) is None


of_f = mutated_page.Result("f", "x 2"), mutated_page.Trial("f", "x 2", 0)


class Stopped(Exception):
    pass


def test_a_stage_that_is_stopped_goes_on_after_its_last_mutant(repository, monkeypatch):
    """Wherever it is stopped, no mutant is made again, and all show together what they would."""
    monkeypatch.setenv("PYTHONPATH", str(repository), prepend=":")
    stage = {"stages": ["page"], "packages": ("tiny.bounds", "tiny")}
    at_once = mutation.examine(repository, PAGE, set(), **stage)
    assert len(at_once["results"]) == 4
    kept, sittings = [], 0

    def keep(found):
        kept.append(json.loads(json.dumps(found)))
        if len(kept) % 2:
            raise Stopped

    while True:
        before = kept[-1] if kept else None
        sittings += 1
        with contextlib.suppress(Stopped):
            sitting = mutation.Sitting(before, keep)
            found = mutation.examine(repository, PAGE, set(), **stage, sitting=sitting)
            break
    assert sittings > 2
    del found["seconds"], at_once["seconds"]
    assert found == at_once
    assert "made" not in found


def test_what_moved_claims_before_a_page_changed_is_tried_first(repository, monkeypatch):
    cells = ["from companion import claims", "own = 2", "b = 3", "c = own + 2 * b", "d = c"]
    write(repository, FAR, [*cells, "e = d", 'claims.check("thesis:6", printed=e == 8, n=e)'])
    monkeypatch.setenv("PYTHONPATH", str(repository), prepend=":")
    monkeypatch.setattr(mutation, "PACKAGES", ("tiny",))
    mover = mutated_page.Result("page: own", "negated", "claim thesis:6", ["thesis:6"])
    other = mutated_page.Result("page: b", "x 2", "not noticed")
    old = {"key": "of other code", "results": [vars(mover), vars(other)]}
    mutation._keep(repository, FAR, old)
    found = mutation.examine_on(repository, FAR, set(), "bounds")
    assert found["known"] == [("page: own", "negated")]
    found = mutation.examine_on(repository, FAR, set(), "near package")
    assert found["results"] == [vars(mover)]
    for stage in ("near page", "package", "page"):
        found = mutation.examine_on(repository, FAR, set(), stage)
    assert found["results"] == [vars(mover)]
    assert mutation.is_whole(found)
    assert "known" not in found


def test_a_mutant_with_an_execution_of_its_own_has_time_for_the_whole_page(repository, monkeypatch):
    tasks = []

    def in_a_process(root, task, tell):
        tasks.append(task)
        return {"seconds": 100.0, "queue": [] if task.mutants else [("page: own", "x 2")]}

    monkeypatch.setattr(mutation, "_in_a_process", in_a_process)
    mutation.examine(repository, FAR, set(), stages=["near page"])
    assert [(task.mutants, task.seconds) for task in tasks] == [
        ((), 60.0),
        ([("page: own", "x 2")], 500.0),
    ]


def test_a_mutant_finds_no_verdict_that_its_page_notes_later(repository, monkeypatch):
    """Its folder takes long to copy; the page checks its next claim only when that is done."""
    monkeypatch.setenv("PYTHONPATH", str(repository), prepend=":")
    many = repository / "_build" / "sweeps" / "many"
    many.mkdir(parents=True)
    for n in range(5_000):
        (many / str(n)).touch()
    stage = {"stages": ["page"], "packages": ("tiny.bounds", "tiny")}
    found = mutation.examine(repository, PAGE, set(), **stage)
    shutil.rmtree(many)  # no other test needs them
    moved = {r["mutation"]: r["moved"] for r in found["results"] if r["function"] == "page: error"}
    assert moved == {"x 2": ["thesis:2"], "uneven": ["thesis:2"], "negated": ["thesis:3"]}


def test_a_mutant_that_waits_for_ever_is_ended_while_its_page_waits_for_it(monkeypatch):
    monkeypatch.setattr(mutated_page, "PATIENCE", 0.0)
    waiting = subprocess.Popen(["sleep", "600"])
    mutant = mutated_page._Alive(0, *of_f)
    while not mutant.waited:  # starting may take some processor time
        mutant.end_if_it_waits(waiting.pid)
    assert waiting.wait() == -signal.SIGKILL
    mutant.end_if_it_waits(waiting.pid)  # is gone, and nobody minds


def test_a_mutant_that_works_is_left_alone(monkeypatch):
    monkeypatch.setattr(mutated_page, "PATIENCE", 1e9)
    working = subprocess.Popen(["sleep", "600"])
    mutant = mutated_page._Alive(0, *of_f)
    mutant.end_if_it_waits(working.pid)
    assert not mutant.waited
    assert working.poll() is None
    working.kill()
    working.wait()
