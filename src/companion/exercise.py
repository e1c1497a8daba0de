"""Answers of exercises that are checked: in the solution, on the site and in a student's notebook.

In the code of a solution

    exercise.answer("ex-7-rounds", np.sqrt(2))

prints the value, and hands it over with its tolerance: the site (``book/_ext/answers.py``) puts a
field into the box of the exercise, and the notebooks of students get a cell

    exercise.check("ex-7-rounds", ...)

that says whether what stands in place of the dots is right, without printing the answer. An
exercise may have several answers; ``what`` then says what each of them is.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from ._jupyter import in_jupyter, publish
from ._numbers import is_real, plain, significant
from .files import find_root, is_name

#: Where answers are, below the root, in an installation without the repository.
FILE = Path("book/answers.json")
_EXECUTED = Path("book/nb")
_KEY = "answer"  # of an output's metadata
#: Answers this much farther off than the tolerance allows are said to be close.
_CLOSE = 5
#: What is said of a value that is the answer times a factor; ``answers.js`` says the same.
_NEAR_MISSES = (
    (-1, "The size is right, the sign is not."),
    (2, "Twice the answer: a factor of 2 too much."),
    (0.5, "Half the answer: a factor of 2 is missing."),
    (100, "100 times the answer: is it asked in per cent?"),
    (0.01, "A hundredth of the answer: is it asked in per cent?"),
)
RIGHT = "Right."
CLOSE = "Close, but not close enough: carry more digits, or look for a small term left out."
WRONG = "Not yet."


class ExerciseError(ValueError):
    """An answer is malformed, or there is none to compare with."""


@dataclass(frozen=True)
class Answer:
    """An exercise's answer: a value is right within ``atol + rtol * abs(value)`` of it.

    ``label`` is the exercise's, and ``what`` says which of its answers this is, if there are
    several.
    """

    label: str
    value: float
    what: str
    rtol: float
    atol: float

    def judge(self, value: float) -> str:
        """One sentence on a finite value: ``RIGHT``, how it misses, or ``WRONG``."""
        if self._within(value, 1):
            return RIGHT
        for factor, word in _NEAR_MISSES:
            if self._within(value / factor, 1):
                return word
        return CLOSE if self._within(value, _CLOSE) else WRONG

    def _within(self, value: float, times: float) -> bool:
        return abs(value - self.value) <= times * (self.atol + self.rtol * abs(self.value))


def answer(
    label: str, value: object, what: str = "", *, rtol: float = 0.01, atol: float = 0.0
) -> None:
    """Print the answer of an exercise and hand it over to the site and to students' notebooks.

    Parameters
    ----------
    label : str
        Of the exercise, such as ``ex-7-rounds``.
    value : int, float or NumPy scalar
        The answer; finite.
    what : str
        What this answer is, in a few words, where an exercise has several.
    rtol, atol : float
        What is farther from the value than ``atol + rtol * abs(value)`` is wrong; at least 0, and
        not both without effect.

    Raises
    ------
    ExerciseError
        If the label is malformed, the value is not one finite number, or nothing but the value
        itself would be right although it is no integer.
    """
    _check_label(label)
    value = plain(value)
    if not is_real(value):
        raise ExerciseError(f"{label}: an answer is one finite number, got {value!r}")
    if not all(is_real(t) and t >= 0 for t in (rtol, atol)):
        raise ExerciseError(f"{label}: rtol and atol must be at least 0, got {rtol!r}, {atol!r}")
    if atol + rtol * abs(value) == 0 and value != int(value):
        raise ExerciseError(f"{label}: nothing but {value!r} would be right; give rtol or atol")
    if not isinstance(what, str) or "\n" in what:
        raise ExerciseError(f"{label}: what is a few words on one line, got {what!r}")
    made = Answer(label, float(value), what, float(rtol), float(atol))
    text = f"answer{f', {what}' if what else ''}: {significant(value)}"
    if in_jupyter():
        publish({"text/plain": text}, {_KEY: asdict(made)})
    else:
        print(text)


def check(label: str, value: object = ..., what: str = "") -> None:
    """Say whether a value answers an exercise, without printing the answer.

    ``label`` and ``what`` are those of :func:`answer`, ``value`` is a number, or ``...`` as long as
    there is none. A label that has no answer, or not this one, and a value that is not one finite
    number are an :class:`ExerciseError`.
    """
    _check_label(label)
    root = find_root()
    known = known_answers(root)
    if label not in known:
        raise ExerciseError(f"no answer is known for {label!r}; its page must have been executed")
    found = {each.what: each for each in known[label]}
    if what not in found:
        raise ExerciseError(f"{label} has the answers {', '.join(map(repr, found))}, not {what!r}")
    head = f"{label}{f', {what}' if what else ''}: "
    if value is ...:
        print(f"{head}no answer yet. Put it in place of the dots.")
        return
    value = plain(value)
    if not is_real(value):
        raise ExerciseError(f"{label}: an answer is one finite number, got {value!r}")
    print(head + found[what].judge(float(value)))


def _check_label(label: object) -> None:
    if not (is_name(label) and label.startswith("ex-")):
        raise ExerciseError(f"a label looks like ex-7-rounds, got {label!r}")


def answers_of(cells: Sequence[Mapping[str, Any]]) -> list[Answer]:
    """The answers that the executed cells of a notebook hand over, in order.

    Two of the same exercise that say the same ``what`` are an :class:`ExerciseError`.
    """
    found: dict[tuple[str, str], Answer] = {}
    for cell in cells:
        for output in cell.get("outputs", ()):
            if fields := output.get("metadata", {}).get(_KEY):
                each = Answer(**fields)
                if (each.label, each.what) in found:
                    raise ExerciseError(f"{each.label} has two answers {each.what!r}")
                found[each.label, each.what] = each
    return list(found.values())


def known_answers(root: Path) -> dict[str, list[Answer]]:
    """Answers by label: those of an installation, else those of the pages executed last."""
    path = root / FILE
    if path.is_file():
        listed = json.loads(path.read_text(encoding="utf-8"))
        return _by_label(Answer(**fields) for fields in listed)
    pages = sorted((root / _EXECUTED).rglob("*.ipynb"))
    return _by_label(each for page in pages for each in _answers_in(page, page.stat().st_mtime_ns))


@functools.lru_cache(maxsize=200)
def _answers_in(path: Path, _modified: int) -> list[Answer]:
    return answers_of(json.loads(path.read_text(encoding="utf-8"))["cells"])


def to_json(answers: Sequence[Answer]) -> str:
    """Answers as the text of :data:`FILE`."""
    return json.dumps([asdict(each) for each in answers], indent=1, ensure_ascii=False) + "\n"


def _by_label(answers: Iterator[Answer]) -> dict[str, list[Answer]]:
    found: dict[str, list[Answer]] = {}
    for each in answers:
        found.setdefault(each.label, []).append(each)
    return found
