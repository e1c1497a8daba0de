"""The pages as they are written: what every page must have, checked without executing it."""

import ast
import importlib
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

import jupytext
import nbformat
import pytest
import yaml

from companion.build.typed import typed_values
from companion.page_code import code_of_page

ROOT = Path(__file__).resolve().parents[2]
NOTEBOOKS = sorted((ROOT / "notebooks").rglob("*.md"))
PROSE = sorted(p for p in (ROOT / "book").rglob("*.md") if not {"nb", "slides"} & {*p.parts})
PAGES = [*NOTEBOOKS, *PROSE]
# Not lessons: the list of what is false, the tables of other pages, how the book is made.
WITHOUT_EXERCISES = {"errata", "scorecard", "reproducing"}
FIGURE = re.compile(
    r"^[`:]{3,}\{(?:glue:)?(?:figure|image)\} (?P<what>\S+)\n(?P<options>(?::.*\n)*)", re.MULTILINE
)
HEADER = """\
---
jupytext:
  notebook_metadata_filter: kernelspec,jupytext,-jupytext.text_representation.jupytext_version
  text_representation:
    extension: .md
    format_name: myst
    format_version: 0.13
kernelspec:
  display_name: Python 3
  language: python
  name: python3
---
"""


def name(path: Path) -> str:
    return path.relative_to(ROOT).with_suffix("").as_posix()


notebook = pytest.mark.parametrize("path", NOTEBOOKS, ids=name)
page = pytest.mark.parametrize("path", PAGES, ids=name)


def text_of(path: Path) -> str:
    return path.read_text(encoding="utf-8")


def code_cells(text: str) -> list[str]:
    return re.findall(r"^```\{code-cell\}.*?\n(.*?)^```$", text, flags=re.DOTALL | re.MULTILINE)


def without_code(text: str) -> str:
    return re.sub(r"^(`{3,}).*?^\1$", "", text, flags=re.DOTALL | re.MULTILINE)


@notebook
def test_round_trip_leaves_the_source_as_it_is(path):
    text = text_of(path)
    assert jupytext.writes(jupytext.reads(text, fmt="md:myst"), fmt="md:myst") == text


@notebook
def test_header_is_the_canonical_one(path):
    assert text_of(path).startswith(HEADER)


def test_code_cells_are_formatted_and_free_of_dead_names(tmp_path):
    """Lines of 96 characters fit the page; a list stands on one line where it can."""
    for path in NOTEBOOKS:
        book = jupytext.reads(text_of(path), fmt="md:myst")
        nbformat.write(book, tmp_path / (name(path).replace("/", "-") + ".ipynb"))
    ruff = [sys.executable, "-m", "ruff"]
    for command in (
        [
            *("format", "--check", "--isolated", "--line-length=96"),
            *("--config", "format.skip-magic-trailing-comma=true"),
        ],
        ["check", "--isolated", "--select=F,E7,W", "--ignore=E731,E741"],
    ):
        result = subprocess.run(
            [*ruff, *command, str(tmp_path)], capture_output=True, text=True, check=False
        )
        assert result.returncode == 0, result.stdout + result.stderr


#: Names of the book's plumbing; a line of visible code that uses one is not about the subject.
PLUMBING = re.compile(r"\b(?:claims|records|figures|card|sweeps)\.\w")
FOLDED = re.compile(
    r"^:tags: \[.*\b(?:hide-input|remove-input|hide-cell|remove-cell)\b", re.MULTILINE
)


def test_visible_code_is_about_the_subject():
    """Of the lines of code that a reader sees at once, few check, record or draw.

    A line counts if it is not empty and its cell is not folded or removed.
    """
    everywhere = plumbing_everywhere = 0
    for path in NOTEBOOKS:
        cells = [cell for cell in code_cells(text_of(path)) if not FOLDED.search(cell)]
        lines = [line for cell in cells for line in cell.splitlines() if line.strip(" :")]
        plumbing = sum(bool(PLUMBING.search(line)) for line in lines)
        assert plumbing <= 0.08 * len(lines), path
        everywhere, plumbing_everywhere = everywhere + len(lines), plumbing_everywhere + plumbing
    assert plumbing_everywhere <= 0.03 * everywhere


@notebook
def test_parameters_cell_declares_profile_and_seed(path):
    tagged = [
        cell for cell in code_cells(text_of(path)) if re.match(r":tags: \[.*parameters", cell)
    ]
    assert len(tagged) == 1
    assert re.search(r'^profile = "quick"', tagged[0], flags=re.MULTILINE)
    assert re.search(r"^seed = \d+", tagged[0], flags=re.MULTILINE)


@notebook
def test_no_page_reads_the_text_of_a_page(path):
    """A new text is published with the outputs that there are (companion.build.new_text)."""
    assert not re.search(r"\bnotebooks\b", code_of_page(text_of(path)))


@notebook
def test_no_verdict_is_typed(path):
    assert not typed_values(code_of_page(text_of(path)))


@page
def test_one_title(path):
    titles = re.findall(r"^# .+$", without_code(text_of(path)), flags=re.MULTILINE)
    assert len(titles) == 1


@notebook
def test_page_says_what_one_learns_and_where_it_comes_from(path):
    text = text_of(path)
    assert re.search(r"^:{3,}\{admonition\} You will learn$", text, flags=re.MULTILINE)
    assert "card.provenance_card(" in "".join(code_cells(text))
    assert re.search(r"^## Sources", text, flags=re.MULTILINE)


@notebook
def test_two_exercises_with_folded_solutions(path):
    if path.stem in WITHOUT_EXERCISES:
        return
    text = text_of(path)
    exercises = re.findall(r"\{exercise(?:-start)?\}[^\n]*\n:label: (\S+)", text)
    solutions = re.findall(r"\{solution(?:-start)?\} (\S+)\n:class: dropdown", text)
    assert len(exercises) >= 2
    assert sorted(exercises) == sorted(solutions)


FORM = re.compile(r"\*\*(Warm-up|Main|Break it) \(\d+ minutes\)\.\*\* \S")
EXERCISE = re.compile(
    r"^:::\{exercise-start\} (?P<title>[^\n]+)\n:label: (?P<label>ex-\S+)\n:::\n(?P<text>.*?)"
    r"^:::\{exercise-end\}\n:::$",
    re.DOTALL | re.MULTILINE,
)
SOLUTION = re.compile(
    r"^:::\{solution-start\} (\S+)\n:class: dropdown\n:::\n(.*?)^:::\{solution-end\}\n:::$",
    re.DOTALL | re.MULTILINE,
)


def answered_labels(code):
    """Labels of the answers that code hands over; None for one that is not a literal."""
    for call in ast.walk(ast.parse(code)):
        if isinstance(call, ast.Call) and ast.unparse(call.func) == "exercise.answer":
            yield call.args[0].value if isinstance(call.args[0], ast.Constant) else None


@notebook
def test_every_exercise_says_its_kind_and_minutes(path):
    text = text_of(path)
    found = list(EXERCISE.finditer(text))
    assert len(found) == text.count("{exercise-start}"), "an exercise is not written as the others"
    assert "{exercise}" not in text
    for exercise in found:
        assert FORM.match(exercise["text"].strip()), exercise["label"]
        assert not re.search(r"minutes|[Ww]arm-up|Break it|Main", exercise["title"])
        warms_up = exercise["text"].strip().startswith("**Warm-up")
        assert warms_up or "{dropdown} Hint" in exercise["text"], exercise["label"]
    kinds = [FORM.match(exercise["text"].strip())[1] for exercise in found]
    if path.stem not in {*WITHOUT_EXERCISES, "concordance"}:
        assert set(kinds) == {"Warm-up", "Main", "Break it"}
    outside = EXERCISE.sub("", text)
    assert not re.search(r"^\*\*(Warm-up|Main|Break it)", outside, re.MULTILINE), "in no exercise"


@notebook
def test_answers_stand_in_the_solution_of_their_exercise(path):
    text = text_of(path)
    exercises = {exercise["label"] for exercise in EXERCISE.finditer(text)}
    here = [(label, code_of_page(solution)) for label, solution in SOLUTION.findall(text)]
    for label, code in here:
        assert label in exercises
        assert set(answered_labels(code)) <= {label}
    everywhere = list(answered_labels(code_of_page(text)))
    assert len(everywhere) == sum(len(list(answered_labels(code))) for _, code in here)
    assert not re.search(r"your values?:|print\(.*expected: ", code_of_page(text))


@page
def test_nothing_is_fetched_from_outside(path):
    text = text_of(path)
    assert not re.search(r"!\[[^\]]*\]\(https?:|<(?:img|script|iframe|link)\b[^>]*https?:", text)
    assert not re.search(r"\{(?:figure|image)\} https?:", text)


@page
def test_every_figure_has_alternative_text(path):
    text = text_of(path)
    for directive in FIGURE.finditer(text):
        assert re.search(r"^:alt: \S+", directive["options"], flags=re.MULTILINE), directive["what"]
    assert "![](" not in text
    for options in re.findall(r"\{code-cell\} ipython3\n---\n(.*?)\n---", text, flags=re.DOTALL):
        mystnb = yaml.safe_load(options).get("mystnb", {})
        assert "figure" not in mystnb or mystnb.get("image", {}).get("alt")


@page
def test_no_fence_is_broken_by_a_role_in_its_title(path):
    """A backtick in the first line of a ``` fence makes it text, and swallows what follows."""
    assert not re.search(r"^```\{[^\n]*\}[^\n]*`[^\n]*$", text_of(path), flags=re.MULTILINE)


@page
def test_names_of_the_api_are_those_of_its_pages(path):
    """A link leads to the module whose page documents the name, not to where it is imported."""
    api = "".join(text_of(p) for p in (ROOT / "book" / "api").glob("*.md"))
    modules = set(re.findall(r"automodule:: (\S+)", api))
    for target in re.findall(r"\{py:(?:func|class|meth|data)\}`~?([\w.]+)`", text_of(path)):
        parts = target.split(".")
        depth = max(i for i in range(len(parts) + 1) if ".".join(parts[:i]) in {"", *modules})
        assert depth, f"{target}: no page of the API has {target.rpartition('.')[0]}"
        found = importlib.import_module(".".join(parts[:depth]))
        for part in parts[depth:]:
            assert hasattr(found, part), target
            found = getattr(found, part)


def test_labels_are_unique_over_the_whole_book():
    labels: Counter[str] = Counter()
    for path in PAGES:
        text = text_of(path)
        labels.update(re.findall(r"^:(?:label|name): (\S+)$", text, flags=re.MULTILINE))
        labels.update(re.findall(r"^\(([\w-]+)\)=$", text, flags=re.MULTILINE))
        labels.update(re.findall(r"^\$\$ \(([\w-]+)\)$", text, flags=re.MULTILINE))
    assert [label for label, count in labels.items() if count > 1] == []
