"""Plans for teaching, from ``book/course.yml``: the page *Teach*, and the instructor's archive.

``book/course.yml`` holds plans of sessions and, under ``needs``, what those pages need that do not
say so in a line ``Needs: [...](....ipynb)`` of their own. A session has pages, steps, homework,
where students stumble, and an exam question with its solution. A step is one of

- ``slides: DECK 2-10, 14``: slides of a deck, for the minutes of their notes,
- ``exercise: LABEL``: an exercise, for the minutes that it states,
- ``do: ...`` with ``minutes``;

the first two may ``say`` something to the teacher. The steps of a session take its minutes, or it
is refused. The page shows all but the solutions; ``instructor.zip`` has them in ``teaching.md``,
those of the exercises too, beside all pages with outputs and solutions, the slides with their
notes, and the wheels. ``make course`` writes the archives of students and of instructors.
"""

from __future__ import annotations

import html
import json
import posixpath
import re
import sys
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from companion.build import house, notebooks, slides

SOURCE = Path("book/course.yml")

_NEEDS = re.compile(r"\bNeeds: (.*)$", re.MULTILINE)
_LINK = re.compile(r"\]\(([^()\s]+)\.ipynb\)")
_TITLE = re.compile(r"^# (.+)$", re.MULTILINE)
_EXERCISE = re.compile(
    r"\{exercise-start\} ?([^\n]*)\n:label: (\S+)\n:+\n\*\*([^*(]+) \((\d+) minutes?\)\.\*\*"
)
_PAGE = re.compile(r"\]\(((?!https?:)[^()\s]+\.ipynb)")
_RANGE = re.compile(r"(\d+)(?:-(\d+))?")
_FIELDS = {"title", "minutes", "pages", "steps", "homework", "stumble", "question", "solution"}
_STEPS = ({"slides"}, {"slides", "say"}, {"exercise"}, {"exercise", "say"}, {"do", "minutes"})
_BOX, _HIGH, _ROW, _ACROSS = 180, 44, 84, 4  # of a page's box; from row to row; boxes in a row


class CourseError(Exception):
    """The plans name what is not there, or lack something; the message is for the terminal."""


@dataclass(frozen=True)
class Exercise:
    """An exercise of a page; its kind is warm-up, main or break it."""

    title: str
    page: str
    kind: str
    minutes: int


@dataclass(frozen=True)
class Step:
    """What is done from one minute of a session to another.

    With slides, ``deck`` is the name of their deck, ``shown`` says which they are, and ``first`` is
    the number of the first one; with an exercise, ``exercise`` is its label.
    """

    start: int
    end: int
    say: str
    deck: str = ""
    shown: str = ""
    first: int = 0
    exercise: str = ""


@dataclass(frozen=True)
class Material:
    """What the plans may name: titles of pages, exercises by their labels, decks; and needs.

    ``needs`` says of every page which others it needs.
    """

    titles: Mapping[str, str]
    exercises: Mapping[str, Exercise]
    decks: Mapping[str, slides.Deck]
    needs: Mapping[str, set[str]]


def read_material(root: Path, pages: Sequence[str]) -> Material:
    """Read the sources of the pages, the decks, and the needs of ``book/course.yml``."""
    titles: dict[str, str] = {}
    exercises: dict[str, Exercise] = {}
    needs: dict[str, set[str]] = {}
    stated = _plans(root)["needs"]
    for page in pages:
        text = (root / "notebooks" / f"{page}.md").read_text(encoding="utf-8")
        found = _TITLE.search(text.split("---", 2)[-1])
        titles[page] = found[1] if found else page
        for title, label, kind, minutes in _EXERCISE.findall(text):
            exercises[label] = Exercise(title, page, kind, int(minutes))
        needs[page] = _needs_of(page, text) | set(stated.get(page, ()))
    for page in {*stated, *(other for needed in needs.values() for other in needed)} - {*pages}:
        raise CourseError(f"{SOURCE}: there is no page {page}")
    return Material(titles, exercises, {deck.name: deck for deck in slides.decks(root)}, needs)


def _needs_of(page: str, text: str) -> set[str]:
    line = _NEEDS.search(text)
    if line is None:
        return set()
    first = line[1].partition(". ")[0] if ".ipynb). " in line[1] else line[1]
    folder = posixpath.dirname(page)
    return {posixpath.normpath(posixpath.join(folder, link)) for link in _LINK.findall(first)}


def _plans(root: Path) -> dict[str, Any]:
    read = yaml.safe_load((root / SOURCE).read_text(encoding="utf-8"))
    if not isinstance(read, dict) or set(read) != {"needs", "plans"}:
        raise CourseError(f"{SOURCE}: it needs 'needs' and 'plans', and nothing else")
    return read


def draw(needs: Mapping[str, set[str]], titles: Mapping[str, str], chapter: str) -> str:
    """The pages of a chapter as an SVG: each below what it needs, other chapters' pages on top."""
    wanted = set().union(*needs.values())
    own = {
        page: needed
        for page, needed in needs.items()
        if page.startswith(f"{chapter}/") and (needed or page in wanted)
    }
    around = {page: set[str]() for needed in own.values() for page in needed if page not in own}
    graph = house.direct({page: own.get(page, set()) for page in [*around, *own]})
    # below "", the row of the other chapters, which may be empty
    heights = house.layers({"": set(), **{page: graph[page] or {""} for page in own}, **around})
    rows: dict[int, list[str]] = {}
    for page in graph:
        rows.setdefault(heights[page], []).append(page)
    at: dict[str, tuple[int, int]] = {}
    y = 0
    for height in sorted(rows):
        row = sorted(rows[height], key=lambda p: (_middle(at, graph[p]), list(titles).index(p)))
        for start in range(0, len(row), _ACROSS):
            part = row[start : start + _ACROSS]
            left = (_ACROSS - len(part)) * (_BOX + 12) / 2
            for place, page in enumerate(part):
                at[page] = (round(left + (place + 0.5) * (_BOX + 12)), y)
            y += _ROW
    said = f"{len(own)} pages of the chapter; an arrow leads from what is needed first"
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 -30 {_ACROSS * (_BOX + 12)} {y}" '
        f'role="img" aria-label="{said}" style="min-width: 44rem; width: 100%" '
        'font-family="inherit" font-size="13" fill="currentColor" stroke="none">',
        f'<defs><marker id="needs-{chapter}" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="7" '
        'markerHeight="7" orient="auto"><path d="M0 0 8 4 0 8z" fill="currentColor"/>'
        "</marker></defs>",
    ]
    for page, needed in graph.items():
        for other in sorted(needed):
            (x, top), (u, bottom) = at[page], at[other]
            begin, end = bottom + _HIGH / 2, top - _HIGH / 2
            lines.append(
                f'<path d="M{u} {begin:.0f} C{u} {begin + 25:.0f} {x} {end - 25:.0f} {x} {end:.0f}"'
                ' fill="none" stroke="currentColor" stroke-opacity=".5" '
                f'marker-end="url(#needs-{chapter})"/>'
            )
    for page, (x, y) in at.items():
        dash = "none" if page in own else "4 3"
        lines.append(
            f'<a href="{page}.html"><rect x="{x - _BOX / 2:.0f}" y="{y - _HIGH / 2:.0f}" '
            f'width="{_BOX}" height="{_HIGH}" rx="5" stroke="currentColor" '
            f'stroke-dasharray="{dash}" style="fill: var(--pst-color-background, white)"/>'
            f"{_label(titles[page], x, y)}</a>"
        )
    return "\n".join([*lines, "</svg>"])


def _middle(at: Mapping[str, tuple[int, int]], pages: set[str]) -> float:
    known = [at[page][0] for page in pages if page in at]
    return sum(known) / len(known) if known else 0


def _label(title: str, x: int, y: int) -> str:
    """A title in one or two lines; what is after its colon is left out if it is long."""
    short = title.partition(":")[0] if len(title) > 44 else title
    words, lines = short.split(), [""]
    for word in words:
        if len(lines[-1]) + len(word) > 23 and lines[-1]:
            lines.append("")
        lines[-1] = f"{lines[-1]} {word}".strip()
    if len(lines) > 2:
        lines = [lines[0], f"{lines[1]} …"]
    top = y + 5 - 8 * (len(lines) - 1)
    spans = "".join(
        f'<tspan x="{x}" y="{top + 16 * n}">{html.escape(line)}</tspan>'
        for n, line in enumerate(lines)
    )
    return f'<text text-anchor="middle">{spans}</text>'


def page(root: Path) -> str:
    """The page *Teach*, as MyST Markdown; a name that stands for nothing is refused."""
    from companion.build import site  # which uses this module

    book = read_material(root, site.pages(root))
    parts = [_INTRODUCTION, _decks(book)]
    for plan in _plans(root)["plans"]:
        parts += [f"## {plan['title']}", plan["for"]]
        for session in plan["sessions"]:
            parts.append(_session(book, session))
    parts.append(_GRAPH)
    chapters = dict.fromkeys(p.partition("/")[0] for p in book.titles if "/" in p)
    for chapter in chapters:
        opening = _TITLE.search((root / "book" / f"{chapter}.md").read_text(encoding="utf-8"))
        name = opening[1] if opening else chapter
        parts += [
            f":::{{dropdown}} Chapter {chapter[0]}: {name}",
            "```{raw} html",
            '<div style="overflow-x: auto" tabindex="0" role="region" '
            f'aria-label="Which page needs which, chapter {chapter[0]}">',
            draw(book.needs, book.titles, chapter),
            "</div>\n```\n:::",
        ]
    return "\n\n".join(parts) + "\n"


def _decks(book: Material) -> str:
    rows = [
        f'| <a href="../../slides/{deck.name}.html">{html.escape(deck.title)}</a> '
        f"| {len(deck.slides) + 1} | {deck.minutes} |"
        for deck in book.decks.values()
    ]
    return "\n".join(
        ["## Slides", "", _SLIDES, "", "| deck | slides | minutes |", "|---|---|---|", *rows]
    )


def _session(book: Material, session: Mapping[str, Any]) -> str:
    """One session, without the solution of its question."""
    timed = steps(book, session)
    pages = ", ".join(
        f"[{_know(book.titles, name, 'page')}]({name}.ipynb)" for name in session["pages"]
    )
    lines = [f":::{{dropdown}} {session['title']} ({session['minutes']} minutes)"]
    lines += [f"**Pages:** {pages}", "", "| minute | what |", "|---|---|"]
    lines += [f"| {step.start} | {_on_page(book, step)} |" for step in timed]
    at_home = ", ".join(_exercise(book, label) for label in session["homework"])
    lines += [
        "",
        f"- **At home:** {at_home}",
        f"- **Where students stumble:** {session['stumble']}",
    ]
    return "\n".join([*lines, f"- **Exam question:** {session['question']}", ":::"])


def steps(book: Material, session: Mapping[str, Any]) -> list[Step]:
    """The steps of a session, one after the other.

    What is missing or unknown, and steps that do not take the minutes of the session are a
    :class:`CourseError`.
    """
    title, known = session.get("title"), set(session)
    if known != _FIELDS:
        odd = ", ".join(sorted(known ^ _FIELDS))
        raise CourseError(f"{SOURCE}: {title}: missing or unknown: {odd}")
    timed: list[Step] = []
    now = 0
    for step in session["steps"]:
        if set(step) not in _STEPS:
            raise CourseError(f"{SOURCE}: {title}: no step: {', '.join(map(str, step))}")
        if "slides" in step:
            deck, _, shown = step["slides"].partition(" ")
            numbers = _numbers(_know(book.decks, deck, "deck"), shown)
            minutes = sum(book.decks[deck].slides[number - 2].minutes for number in numbers)
            end = now + minutes
            timed.append(Step(now, end, step.get("say", ""), deck, shown, numbers[0]))
        elif "exercise" in step:
            label = step["exercise"]
            end = now + _know(book.exercises, label, "exercise").minutes
            timed.append(Step(now, end, step.get("say", ""), exercise=label))
        else:
            end = now + step["minutes"]
            timed.append(Step(now, end, step["do"]))
        now = end
    if now != session["minutes"]:
        raise CourseError(f"{SOURCE}: {title}: the steps take {now} minutes")
    return timed


def _numbers(deck: slides.Deck, shown: str) -> list[int]:
    """Numbers of slides, from the second on: the first one is the title, and takes no time."""
    found: list[int] = []
    for part in shown.split(", "):
        ends = _RANGE.fullmatch(part)
        first, last = (int(ends[1]), int(ends[2] or ends[1])) if ends else (0, 0)
        if not 2 <= first <= last <= len(deck.slides) + 1:
            raise CourseError(f"{SOURCE}: {deck.name} has no slides {shown!r}")
        found += range(first, last + 1)
    return found


def _on_page(book: Material, step: Step) -> str:
    """A step in MyST."""
    if step.deck:
        name = f"{book.decks[step.deck].title}, {_slides(step)}"
        address = f"../../slides/{step.deck}.html"
        return f'<a href="{address}">{name}</a>. {step.say}'.rstrip()
    if step.exercise:
        return f"{_exercise(book, step.exercise)}. {step.say}".rstrip()
    return step.say


def _slides(step: Step) -> str:
    word = "slide" if step.shown.isdigit() else "slides"
    return f"{word} {step.shown.replace('-', '–')}"


def _exercise(book: Material, label: str) -> str:
    found = _know(book.exercises, label, "exercise")
    return f"{{ref}}`{found.title} <{label}>` ({found.kind.lower()}, {found.minutes} minutes)"


def _know(known: Mapping[str, Any], name: str, what: str) -> Any:
    if name not in known:
        raise CourseError(f"{SOURCE}: there is no {what} {name}")
    return known[name]


def teaching(
    book: Material, plans: Sequence[Mapping[str, Any]], solved: Mapping[str, str], macros: str
) -> str:
    """The instructor's text: every session with all solutions, in plain Markdown.

    ``solved`` has exercises with their solutions, by label; ``macros`` are definitions for their
    formulas.
    """
    lines = ["# Sessions with their solutions", "", _READ, "", macros]
    for plan in plans:
        lines += ["", f"## {plan['title']}", "", plan["for"]]
        for session in plan["sessions"]:
            lines += ["", f"### {session['title']} ({session['minutes']} minutes)", ""]
            lines += [f"Pages: {', '.join(session['pages'])}", "", "| minute | what |", "|---|---|"]
            timed = steps(book, session)
            lines += [f"| {step.start} | {_in_text(book, step)} |" for step in timed]
            lines += ["", f"**Where students stumble.** {session['stumble']}"]
            asked = [step.exercise for step in timed if step.exercise]
            for name, labels in (("In class", asked), ("At home", session["homework"])):
                lines += ["", f"#### {name}"]
                for label in labels:
                    lines += ["", solved.get(label, book.exercises[label].title)]
            lines += ["", "#### Exam question", "", session["question"]]
            lines += ["", f"**Solution.** {session['solution']}"]
    return "\n".join(lines) + "\n"


def _in_text(book: Material, step: Step) -> str:
    """A step in plain Markdown."""
    if step.deck:
        return f"Deck {step.deck}, {_slides(step)}. {step.say}".rstrip()
    if step.exercise:
        found = book.exercises[step.exercise]
        return f"Exercise: {found.title} ({found.kind.lower()}, {found.page}). {step.say}".rstrip()
    return step.say


def read_solved(place: Path, exercises: Mapping[str, Exercise]) -> Iterator[tuple[str, str]]:
    """Labels of exercises, and their texts with solutions, from the notebooks below ``place``.

    An exercise that its notebook lacks is a :class:`CourseError`.
    """
    for label, one in exercises.items():
        notebook = json.loads((place / f"{one.page}.ipynb").read_text(encoding="utf-8"))
        text = "\n\n".join(part for cell in notebook["cells"] for part in _shown(cell))
        start = f"**Exercise: {one.title}.**"
        found = re.search(
            re.escape(start) + r".*?(?=^\*\*Exercise: |^## |\Z)", text, re.DOTALL | re.MULTILINE
        )
        if found is None:
            raise CourseError(f"the notebook of {one.page} lacks the exercise {one.title}")
        yield label, _from_the_root(found[0].strip(), posixpath.dirname(one.page))


def _from_the_root(text: str, folder: str) -> str:
    """The text of a page, with links to other pages as they lead from above its folder."""
    return _PAGE.sub(lambda link: f"]({posixpath.normpath(f'{folder}/{link[1]}')}", text)


def _shown(cell: Mapping[str, Any]) -> Iterator[str]:
    """A cell of a notebook as Markdown, with what it printed."""
    source = "".join(cell["source"])
    if cell["cell_type"] == "markdown":
        yield source
        return
    yield f"```python\n{source}\n```"
    said = [o.get("text") or o.get("data", {}).get("text/plain", "") for o in cell["outputs"]]
    if any(said):
        printed = "\n".join("".join(text).rstrip("\n") for text in said)
        yield f"```\n{printed}\n```"


def write(root: Path) -> Path:
    """Write the instructor's archive from the notebooks that are there; its path is returned."""
    from companion.build import site  # which uses this module

    place = root / notebooks.PLACE
    path = place / "instructor.zip"
    book, plans = read_material(root, site.pages(root)), _plans(root)["plans"]
    sessions = [session for plan in plans for session in plan["sessions"]]
    named = {
        label
        for session in sessions
        for label in (
            *session["homework"],
            *(s["exercise"] for s in session["steps"] if "exercise" in s),
        )
    }
    solved = dict(read_solved(place, {label: book.exercises[label] for label in sorted(named)}))
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("README.txt", notebooks.README)
        macros = notebooks.macros_of(root)
        archive.writestr("teaching.md", teaching(book, plans, solved, macros))
        for deck in sorted((root / slides.SOURCES).glob("*.md")):
            archive.write(deck, f"slides/{deck.name}")
        for file in sorted([*place.rglob("*.ipynb"), *place.glob("*.whl")]):
            if "student" not in file.relative_to(place).parts:
                archive.write(file, file.relative_to(place))
    return path


_INTRODUCTION = """\
# Teach

Four plans, from one lecture to a seminar. Each session says minute by minute what to show and which
exercises to give, what is left for home, where students stumble, and has a question for an exam.
The archive <a href="../../downloads/student.zip" download>student.zip</a> has all pages without
solutions, with cells that run,
<a href="../../downloads/instructor.zip" download>instructor.zip</a> all pages complete, the slides
with their notes, and every session with the solutions of its exercises and of its exam question;
both come from the one source. <a href="../../downloads/figures.zip" download>figures.zip</a> has
every figure as SVG and PNG, with its caption and data. A course's own plan is a file of the
repository, `book/course.yml`; `make course` writes the archives again."""
_READ = """\
Formulas are between dollars (LaTeX): JupyterLab shows this text with *Show Markdown Preview*, and
most editors have the same. Code stands as on the pages, with what it printed."""
_SLIDES = """\
The key S opens the speaker's view: for each slide what to say, the minutes, and what students ask.
With `?print-pdf` after the address a deck can be printed. Figures and numbers are those of the
pages of this book."""
_GRAPH = """\
## Which page needs which

An arrow leads from what is needed first; one that follows from others is left out. Dashed boxes are
pages of other chapters. A box is a link."""


def main() -> int:
    """Write the archives of students and instructors; 1 if something is missing."""
    from companion.build import site  # which uses this module

    root = Path.cwd().resolve()
    try:
        page(root)
        notebooks.write(root, site.pages(root))
        made = [root / notebooks.PLACE / "student.zip", write(root)]
    except (CourseError, notebooks.NotebookError) as error:
        print(error, file=sys.stderr)
        return 1
    notebooks.say_sizes(root, made)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
