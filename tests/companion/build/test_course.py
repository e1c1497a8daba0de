"""The plans name only what is there; the graph; what the page leaves to instructors."""

import json
import zipfile
from pathlib import Path

import pytest
import yaml

from companion.build import course, notebooks, site

ROOT = Path(__file__).resolve().parents[3]
NEEDS = {"3-a/one": set(), "3-a/two": {"3-a/one", "2-b/zero"}, "2-b/zero": set(), "3-a/odd": set()}
TITLES = {page: page for page in NEEDS}


@pytest.fixture(scope="module")
def book():
    return course.read_material(ROOT, site.pages(ROOT))


@pytest.fixture(scope="module")
def plans():
    return yaml.safe_load((ROOT / course.SOURCE).read_text(encoding="utf-8"))["plans"]


def test_a_page_says_what_it_needs(book):
    assert book.needs["3-policy-evaluation/dp-lsw"] == {
        "3-policy-evaluation/first-visit-monte-carlo",
        "2-background/differential-privacy",
    }
    # a link in the sentence after is no need
    assert book.needs["3-policy-evaluation/smoothed-gaussian-perturbation"] == {
        "2-background/gaussian-mechanism"
    }


def test_every_lesson_needs_something_or_is_a_beginning(book):
    beginnings = {
        "2-background/policy-evaluation",
        "2-background/differential-privacy",
        "2-background/thompson-sampling",
        "2-background/measuring-an-attack",
        "3-policy-evaluation/first-visit-monte-carlo",
    }
    without = {page for page, needed in book.needs.items() if not needed}
    assert {p for p in without if not p.endswith("errata") and "/" in p} == beginnings


def test_the_graph_has_a_box_for_each_page_and_an_arrow_for_each_need():
    drawn = course.draw(NEEDS, TITLES, "3-a")
    assert drawn.count("<rect") == 3  # a page that nobody needs, and that needs nothing, is no node
    assert drawn.count("marker-end") == 2
    assert drawn.count('stroke-dasharray="4 3"') == 1
    assert '<a href="3-a/two.html">' in drawn


@pytest.mark.parametrize("chapter", ["2-background", "5-membership-inference", "7-beyond"])
def test_boxes_of_the_book_do_not_lie_on_each_other(book, chapter):
    drawn = course.draw(book.needs, book.titles, chapter)
    boxes = [part.split('"')[:4] for part in drawn.split("<rect x=")[1:]]
    places = [(float(box[1]), float(box[3])) for box in boxes]
    assert len(set(places)) == len(places)
    for x, y in places:
        near = [p for p in places if p[1] == y and 0 < abs(p[0] - x) < 180]
        assert near == []


def test_the_plans_are_whole(book, plans):
    assert [len(plan["sessions"]) for plan in plans] == [1, 3, 3, 8]
    for session in (session for plan in plans for session in plan["sessions"]):
        assert session["pages"]
        for field in ("stumble", "question", "solution"):
            assert len(session[field]) > 30
        timed = course.steps(book, session)
        asked = [step.exercise for step in timed if step.exercise]
        assert asked
        assert session["homework"]
        assert not set(asked) & set(session["homework"])
        # a sixth of the time and more is theirs, and nobody listens for longer than 40 minutes
        assert sum(step.end - step.start for step in timed if step.deck) <= 75
        assert max(step.end - step.start for step in timed) <= 40


def test_steps_follow_each_other_and_take_the_minutes_of_slides_and_exercises(book, plans):
    lecture = plans[0]["sessions"][0]
    timed = course.steps(book, lecture)
    assert [step.start for step in timed] == [0, *(step.end for step in timed[:-1])]
    assert timed[-1].end == 90
    deck = book.decks["chapter-3"]
    first = timed[0]
    assert (first.deck, first.shown, first.first) == ("chapter-3", "2-4", 2)
    assert first.end == sum(slide.minutes for slide in deck.slides[:3])
    exercise = next(step for step in timed if step.exercise)
    assert exercise.end - exercise.start == book.exercises[exercise.exercise].minutes


def test_the_page_shows_questions_and_no_solutions(book, plans):
    page, text = course.page(ROOT), course.teaching(book, plans, {}, "")
    for session in (session for plan in plans for session in plan["sessions"]):
        assert session["question"] in page
        assert session["solution"] not in page
        assert session["solution"] in text
    assert page.count("<svg") == 6
    assert '<a href="../../slides/chapter-3.html">Private policy evaluation, slides 2–4</a>' in page


def test_the_instructors_text_has_exercises_with_their_solutions(book, plans, tmp_path):
    label = next(
        step["exercise"] for step in plans[0]["sessions"][0]["steps"] if "exercise" in step
    )
    one = book.exercises[label]
    cells = [
        {
            "cell_type": "markdown",
            "source": f"before\n\n**Exercise: {one.title}.**\n\n"
            "Why? [a](a.ipynb) [b](../4-b/b.ipynb)",
        },
        {
            "cell_type": "code",
            "source": "f(1)",
            "outputs": [{"text": "printed\n"}, {"data": {"text/plain": "answer: 2"}}],
        },
        {"cell_type": "markdown", "source": "**Exercise: Another.**\n\nHow?"},
    ]
    (tmp_path / one.page).parent.mkdir()
    (tmp_path / f"{one.page}.ipynb").write_text(json.dumps({"cells": cells}))
    solved = dict(course.read_solved(tmp_path, {label: one}))
    links = f"[a]({one.page.partition('/')[0]}/a.ipynb) [b](4-b/b.ipynb)"
    code = "```python\nf(1)\n```\n\n```\nprinted\nanswer: 2\n```"
    whole = f"**Exercise: {one.title}.**\n\nWhy? {links}\n\n{code}"
    assert solved == {label: whole}
    assert whole in course.teaching(book, plans, solved, "$m$")
    with pytest.raises(course.CourseError, match="lacks the exercise Nobody"):
        dict(course.read_solved(tmp_path, {"ex-x": course.Exercise("Nobody", one.page, "Main", 1)}))


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("pages", ["3-a/none"], "no page 3-a/none"),
        ("homework", ["ex-none"], "no exercise ex-none"),
        ("odd", 1, "missing or unknown: odd"),
        ("steps", [{"slides": "none 2"}], "no deck none"),
        ("steps", [{"slides": "chapter-3 1-4"}], "chapter-3 has no slides '1-4'"),
        ("steps", [{"slides": "chapter-3 5-99"}], "chapter-3 has no slides '5-99'"),
        ("steps", [{"exercise": "ex-none"}], "no exercise ex-none"),
        ("steps", [{"do": "Talk."}], "no step: do"),
        ("steps", [{"do": "Talk.", "minutes": 80}], "the steps take 80 minutes"),
    ],
)
def test_what_nobody_has_is_refused(book, plans, field, value, message):
    session = plans[0]["sessions"][0] | {field: value}
    with pytest.raises(course.CourseError, match=message):
        course._session(book, session)


def test_a_need_that_is_no_page_is_refused(tmp_path):
    (tmp_path / "book").mkdir()
    (tmp_path / course.SOURCE).write_text("needs: {a: [none]}\nplans: []\n")
    (tmp_path / "notebooks").mkdir()
    (tmp_path / "notebooks/a.md").write_text("---\n---\n# A\n")
    with pytest.raises(course.CourseError, match="no page none"):
        course.read_material(tmp_path, ["a"])


def test_the_archive_of_instructors(tmp_path, monkeypatch):
    place = tmp_path / notebooks.PLACE
    for name in ("3-a/page.ipynb", "student/3-a/page.ipynb", "a.whl"):
        (place / name).parent.mkdir(parents=True, exist_ok=True)
        (place / name).write_text(name)
    (tmp_path / "book").mkdir()
    (tmp_path / course.SOURCE).write_text("needs: {}\nplans: []\n")
    (tmp_path / "_toc.yml").write_text("format: jb-book\nroot: book/intro\n")
    monkeypatch.setattr(notebooks, "macros_of", lambda root: "")
    with zipfile.ZipFile(course.write(tmp_path)) as archive:
        names = ["3-a/page.ipynb", "README.txt", "a.whl", "teaching.md"]
        assert sorted(archive.namelist()) == names
