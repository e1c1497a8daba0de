"""Answers: what is handed over, how a reader's value is judged, what is refused."""

import json
import math

import numpy as np
import pytest

from companion import exercise
from companion.exercise import CLOSE, RIGHT, WRONG, Answer, ExerciseError
from companion.files import write_atomic


@pytest.fixture
def installed(tmp_path, monkeypatch):
    """A book with two answers for one exercise, and one for another."""
    (tmp_path / "notebooks").mkdir()
    answers = [
        Answer("ex-1-two", 4.0, "cats", 0.01, 0.0),
        Answer("ex-1-two", 0.0, "dogs", 0.0, 0.5),
        Answer("ex-1-one", -0.25, "", 0.01, 0.0),
    ]
    write_atomic(tmp_path / exercise.FILE, exercise.to_json(answers))
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    ("value", "verdict"),
    [
        (100.0, RIGHT),
        (100.9, RIGHT),
        (99.1, RIGHT),
        (104.0, CLOSE),
        (-100.0, "The size is right, the sign is not."),
        (200.5, "Twice the answer: a factor of 2 too much."),
        (50.0, "Half the answer: a factor of 2 is missing."),
        (10_000, "100 times the answer: is it asked in per cent?"),
        (1.0, "A hundredth of the answer: is it asked in per cent?"),
        (107.0, WRONG),
        (0.0, WRONG),
    ],
)
def test_a_value_is_right_within_the_tolerance_and_else_told_how_it_misses(value, verdict):
    assert Answer("ex-1-one", 100.0, "", 0.01, 0.0).judge(value) == verdict


def test_an_absolute_tolerance_is_added():
    assert Answer("ex-1-one", 0.0, "", 0.01, 0.5).judge(0.5) == RIGHT
    assert Answer("ex-1-one", 7.0, "", 0.0, 0.0).judge(7) == RIGHT


def test_the_answer_is_printed_and_handed_over(capsys, monkeypatch):
    exercise.answer("ex-1-one", np.float64(0.123456), "of cats", atol=0.1)
    assert capsys.readouterr().out == "answer, of cats: 0.1235\n"
    shown = []
    monkeypatch.setattr(exercise, "in_jupyter", lambda: True)
    monkeypatch.setattr(exercise, "publish", lambda *bundle: shown.append(bundle))
    exercise.answer("ex-1-one", 7, rtol=0)
    ((data, metadata),) = shown
    assert data == {"text/plain": "answer: 7"}
    output = {"data": data, "metadata": metadata}
    assert exercise.answers_of([{"outputs": [output]}]) == [Answer("ex-1-one", 7.0, "", 0.0, 0.0)]
    with pytest.raises(ExerciseError, match="ex-1-one has two answers ''"):
        exercise.answers_of([{"outputs": [output, output]}])


@pytest.mark.parametrize(
    ("arguments", "options", "message"),
    [
        (("1-one", 1.0), {}, "a label looks like ex-7-rounds, got '1-one'"),
        ((3, 1.0), {}, "got 3"),
        (("ex-1-one", math.nan), {}, "one finite number, got nan"),
        (("ex-1-one", np.inf), {}, "one finite number, got inf"),
        (("ex-1-one", [1, 2]), {}, "one finite number"),
        (("ex-1-one", True), {}, "one finite number, got True"),
        (("ex-1-one", 0.5), {"rtol": 0}, "nothing but 0.5 would be right"),
        (("ex-1-one", 0.5), {"atol": -1}, "at least 0"),
        (("ex-1-one", 0.5, "a\nb"), {}, "one line"),
    ],
)
def test_what_is_no_answer_is_refused(arguments, options, message):
    with pytest.raises(ExerciseError, match=message):
        exercise.answer(*arguments, **options)


def test_a_check_judges_and_never_prints_the_answer(installed, capsys):
    exercise.check("ex-1-one", ...)
    exercise.check("ex-1-one", 0.25)
    exercise.check("ex-1-one", np.float64(-0.25))
    exercise.check("ex-1-two", 0, "dogs")
    assert capsys.readouterr().out.splitlines() == [
        "ex-1-one: no answer yet. Put it in place of the dots.",
        "ex-1-one: The size is right, the sign is not.",
        "ex-1-one: Right.",
        "ex-1-two, dogs: Right.",
    ]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("ex-9-none", 1), "no answer is known for 'ex-9-none'"),
        (("Ex 1", 1), "a label looks like"),
        (("ex-1-two", 1), "ex-1-two has the answers 'cats', 'dogs', not ''"),
        (("ex-1-one", "1/4"), "one finite number, got '1/4'"),
    ],
)
def test_a_check_says_what_it_cannot_compare(installed, arguments, message):
    with pytest.raises(ExerciseError, match=message):
        exercise.check(*arguments)


def test_in_the_repository_the_pages_executed_last_are_read(tmp_path):
    fields = {"label": "ex-1-one", "value": 2.0, "what": "", "rtol": 0.1, "atol": 0.0}
    cells = [{"cell_type": "markdown"}, {"outputs": [{"metadata": {"answer": fields}}]}]
    write_atomic(tmp_path / "book/nb/1-x/page.ipynb", json.dumps({"cells": cells}))
    assert exercise.known_answers(tmp_path) == {"ex-1-one": [Answer(**fields)]}
