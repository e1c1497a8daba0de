r"""The executed pages as notebooks that run anywhere, and all that they need: ``make notebooks``.

Written to ``_build/notebooks``:

``<chapter>/<page>.ipynb``
    the page with its outputs, in Markdown that plain Jupyter shows (:mod:`companion.build.plain`);
    figures stand below the code that draws them, with their captions;
``student/<chapter>/<page>.ipynb``
    the same without outputs and solutions; where a solution computes an answer, a cell checks the
    reader's (:mod:`companion.exercise`);
``dprl-*.whl``, ``dprl_book-*.whl``
    the package, and what the pages need beside it: the studies, the plumbing, claims and records;
``<chapter>.zip``, ``book.zip``, ``student.zip``
    the notebooks of a chapter, of the book, and of students, with both wheels and a ``README.txt``.

The first cell of a notebook installs the wheels that lie in its folder or the one above.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from companion import exercise
from companion.build import freshness, plain
from companion.build.executed import page_of

PLACE = Path("_build/notebooks")
_PREFIX = "application/papermill.record/"
_INSTALL = """\
# Once, in an environment of your own: the wheels lie beside the notebook, or one folder above.
%pip install --quiet --find-links . --find-links .. "dprl-book[{extra}]"
%load_ext companion.outcomes"""
#: How to begin, in every archive of notebooks.
README = """\
Notebooks of "On Privacy for Reinforcement Learning: an executable companion".

You need Python 3.11 or newer. In this folder, once:

    python3 -m venv .venv
    .venv/bin/pip install jupyterlab

(On Windows .venv\\Scripts\\pip, and below .venv\\Scripts\\jupyter.) Then

    .venv/bin/jupyter lab

and open a page in one of the folders. Run its cells from the top: the first one installs the two
wheels that lie here and downloads the libraries that the page needs, which takes a minute, once.
Change what you like, such as epsilon in the second code cell; a verdict that then comes out
otherwise is shown and stops nothing.
"""
#: What the wheel of the book holds beside its packages.
_DATA = ("book/claims.yml", "data/published", "data/results/paper", "data/results/laptop")
_SOLUTION = re.compile(r"^(:{3,})\{solution-start\} *(\S*).*?^\1$", re.DOTALL | re.MULTILINE)
_SOLUTION_END = re.compile(r"^(:{3,})\{solution-end\}\n\1$", re.MULTILINE)


class NotebookError(Exception):
    """The notebooks cannot be written; the message is for the reader's terminal."""


def portable(
    notebook: Mapping[str, Any],
    page: str,
    names: plain.Names,
    macros: str,
    extra: str,
    *,
    student: bool,
) -> dict[str, Any]:
    r"""A page's executed notebook as one that plain Jupyter shows and runs.

    ``macros`` are definitions for formulas (``\newcommand``), and ``extra`` is that of the wheel
    ``dprl-book`` which the page needs. For a ``student`` outputs and solutions are left out.
    """
    cells = list(_without_solutions(notebook["cells"]) if student else notebook["cells"])
    numbers = page_of(notebook["cells"]).numbers
    texts: dict[int, str] = {}
    captions: dict[str, str] = {}
    for place, cell in enumerate(cells):
        if cell["cell_type"] == "markdown":
            texts[place], found = plain.plain(_joined(cell["source"]), names, numbers, page)
            captions |= found
    made: list[dict[str, Any]] = []
    for place, cell in enumerate(cells):
        if cell["cell_type"] == "markdown":
            if texts[place]:
                made.append(_markdown(texts[place]))
        elif "injected-parameters" not in cell["metadata"].get("tags", ()):
            made.append(_code(cell, keep_outputs=not student))
            shown = [captions[name] for name in page_of([cell]).figures if name in captions]
            made += [_markdown(caption) for caption in shown]
    if made:
        made[0]["source"] += f"\n\n{macros}"
    made.insert(1, _code({"source": _INSTALL.format(extra=extra), "metadata": {}}))
    for number, cell in enumerate(made):
        cell["id"] = f"cell-{number}"
    kernel = notebook["metadata"].get("kernelspec", {})
    return {
        "cells": made,
        "metadata": {"kernelspec": kernel, "language_info": {"name": "python"}},
        "nbformat": 4,
        "nbformat_minor": 5,
    }


def _joined(source: str | Sequence[str]) -> str:
    return source if isinstance(source, str) else "".join(source)


def _markdown(text: str) -> dict[str, Any]:
    return {"cell_type": "markdown", "metadata": {}, "source": text}


def _code(cell: Mapping[str, Any], *, keep_outputs: bool = False) -> dict[str, Any]:
    tags = cell["metadata"].get("tags", ())
    metadata: dict[str, Any] = {"tags": ["parameters"]} if "parameters" in tags else {}
    if "remove-cell" in tags or "remove-input" in tags:
        metadata["jupyter"] = {"source_hidden": True}
    outputs = list(_visible(cell.get("outputs", ()))) if keep_outputs else []
    return {
        "cell_type": "code",
        "execution_count": None,
        "metadata": metadata,
        "outputs": outputs,
        "source": _joined(cell["source"]),
    }


def _visible(outputs: Sequence[Mapping[str, Any]]) -> Iterator[Mapping[str, Any]]:
    """Outputs as a reader's own run shows them: what was handed over to the text is not shown."""
    for output in outputs:
        name = output.get("metadata", {}).get("scrapbook", {}).get("name")
        if name is None:
            yield output
        elif f"{_PREFIX}image/svg+xml" in output["data"] and not name.endswith("-narrow"):
            data = {kind.removeprefix(_PREFIX): value for kind, value in output["data"].items()}
            yield {"output_type": "display_data", "data": data, "metadata": {}}


def _without_solutions(cells: Sequence[Mapping[str, Any]]) -> Iterator[dict[str, Any]]:
    """Cells, each solution replaced by one that checks its answers, or has room for one."""
    inside = ""  # the exercise whose solution it is
    answers = exercise.answers_of(cells)
    for cell in cells:
        if cell["cell_type"] == "code":
            if not inside:
                yield dict(cell)
            continue
        text = _joined(cell["source"])
        while text:
            mark = (_SOLUTION_END if inside else _SOLUTION).search(text)
            before, text = (text[: mark.start()], text[mark.end() :]) if mark else (text, "")
            if not inside and before.strip():
                yield {**cell, "source": before}
            if mark and inside:
                asked = [each for each in answers if each.label == inside]
                yield {**_code({"source": _checking(asked), "metadata": {}}), "id": ""}
            if mark:
                inside = "" if inside else mark[2]


def _checking(answers: Sequence[exercise.Answer]) -> str:
    """Code that checks a student's answers, and runs as it is."""
    if not answers:
        return "# your answer"
    lines = ["# your answer: compute it above the check, and put it in place of the dots"]
    lines += ["from companion import exercise", ""]
    for each in answers:
        what = f", {json.dumps(each.what, ensure_ascii=False)}" if each.what else ""
        lines.append(f'exercise.check("{each.label}", ...{what})')
    return "\n".join(lines)


def macros_in(root: Path) -> dict[str, tuple[str, int]]:
    """The book's abbreviations in formulas: their meanings and numbers of arguments."""
    config = yaml.safe_load((root / "_config.yml").read_text(encoding="utf-8"))
    known = config["sphinx"]["config"]["mathjax3_config"]["tex"]["macros"]
    return {
        name: (meaning, 0) if isinstance(meaning, str) else (meaning[0], meaning[1])
        for name, meaning in known.items()
    }


def macros_of(root: Path) -> str:
    """The book's abbreviations in formulas, as a formula that shows nothing."""
    lines = []
    for name, (text, arguments) in macros_in(root).items():
        count = f"[{arguments}]" if arguments else ""
        lines.append(rf"\newcommand{{\{name}}}{count}{{{text}}}")
    return f"${''.join(lines)}$"


def build_wheels(root: Path, folder: Path, answers: Sequence[exercise.Answer] = ()) -> None:
    """Build the wheels of the package and of what the pages need beside it.

    The latter holds the ``answers`` of the pages' exercises.
    """
    with tempfile.TemporaryDirectory() as temporary:
        source = Path(temporary)
        project = _project_of_book(root)
        (source / "pyproject.toml").write_text(project, encoding="utf-8")
        ignore = shutil.ignore_patterns("__pycache__")
        for package in ("companion", "experiments"):
            shutil.copytree(root / "src" / package, source / package, ignore=ignore)
        for name in _DATA:
            target = source / "companion" / "_book" / name
            target.parent.mkdir(parents=True, exist_ok=True)
            copy = shutil.copytree if (root / name).is_dir() else shutil.copy
            copy(root / name, target)
        listed = exercise.to_json(answers)
        (source / "companion" / "_book" / exercise.FILE).write_text(listed, encoding="utf-8")
        for place in (root, source):
            done = subprocess.run(
                [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)],
                cwd=place,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                check=False,
            )
            if done.returncode:
                raise NotebookError(f"the wheel of {place.name} is not built:\n{done.stdout}")


def _project_of_book(root: Path) -> str:
    """Project file of the wheel ``dprl-book``: the same version, the libraries of the pages."""
    import tomllib

    project = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))
    version = project["project"]["version"]
    extras = project["project"]["optional-dependencies"]
    needed = [f"dprl=={version}", "ipykernel>=7"]
    of_pages = ("pandas", "joblib", "matplotlib", "tqdm", "pyyaml", "filelock")
    needed += [text for text in project["dependency-groups"]["book"] if text.startswith(of_pages)]
    lines = [
        "[build-system]",
        'requires = ["hatchling"]',
        'build-backend = "hatchling.build"',
        "[project]",
        'name = "dprl-book"',
        f'version = "{version}"',
        f'requires-python = "{project["project"]["requires-python"]}"',
        f"dependencies = {json.dumps(needed)}",
        "[project.optional-dependencies]",
        "pages = []",
        *(f'{extra} = ["dprl[{extra}]=={version}"]' for extra in extras),
        "[tool.hatch.build.targets.wheel]",
        'packages = ["companion", "experiments"]',
        'artifacts = ["companion/_book/**"]',
    ]
    return "\n".join(lines) + "\n"


def extra_of(root: Path, page: str) -> str:
    """The extra of the wheel ``dprl-book`` that a page needs, by the libraries that it used."""
    stamp = freshness.read_stamp(freshness.product_path(root, page, "stamp.json"))
    used = json.dumps(stamp) if stamp is not None else ""
    wanted = {
        '"optax"': "membership",
        '"mujoco"': "membership",
        '"gymnasium"': "membership",
        '"jax"': "off-policy",
        '"opendp"': "release",
    }
    return next((extra for library, extra in wanted.items() if library in used), "pages")


def write(root: Path, pages: Sequence[str]) -> list[Path]:
    """Write all notebooks, wheels and archives below the place; the archives are returned.

    A page without an execution is a :class:`NotebookError`.
    """
    place = root / PLACE
    shutil.rmtree(place, ignore_errors=True)
    missing = [p for p in pages if not freshness.product_path(root, p, "ipynb").is_file()]
    if missing:
        raise NotebookError(f"not executed yet: {', '.join(missing)}; run make book")
    names, macros = plain.names_of_book(root, pages), macros_of(root)
    answers: list[exercise.Answer] = []
    for page in pages:
        path = freshness.product_path(root, page, "ipynb")
        executed, extra = json.loads(path.read_text(encoding="utf-8")), extra_of(root, page)
        answers += exercise.answers_of(executed["cells"])
        for folder, student in (("", False), ("student", True)):
            made = portable(executed, page, names, macros, extra, student=student)
            target = place / folder / f"{page}.ipynb"
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(json.dumps(made, indent=1, ensure_ascii=False), encoding="utf-8")
    build_wheels(root, place, answers)
    return list(_archives(place))


def _archives(place: Path) -> Iterator[Path]:
    wheels = sorted(place.glob("*.whl"))
    chapters = sorted(path for path in place.iterdir() if path.is_dir())
    parts = {chapter.name: [chapter] for chapter in chapters}
    parts["book"] = [chapter for chapter in chapters if chapter.name != "student"]
    for name, folders in parts.items():
        archive = place / f"{name}.zip"
        with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as file:
            file.writestr("README.txt", README)
            for wheel in wheels:
                file.write(wheel, wheel.name)
            loose = place.glob("*.ipynb") if name == "book" else ()
            inside = (path for folder in folders for path in folder.rglob("*.ipynb"))
            # chapters lie beside the wheels, where the first cell of a page looks for them
            top = place / "student" if name == "student" else place
            for path in sorted([*loose, *inside]):
                file.write(path, path.relative_to(top))
        yield archive
    source = _source_archive(place)
    if source is not None:
        yield source


def _source_archive(place: Path) -> Path | None:
    """The source as it was committed last; None where there is no repository of Git."""
    path = place / "source.zip"
    wrote = _git(place.parents[1], "archive", "--prefix=dprl/", f"--output={path}", "HEAD")
    return None if wrote is None else path


def _git(root: Path, *arguments: str) -> str | None:
    """What Git says; None where there is no Git or no repository."""
    command = ["git", *arguments]
    try:
        done = subprocess.run(command, cwd=root, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        return None
    return done.stdout.strip() if done.returncode == 0 else None


_WHAT = {
    "book": "all pages, with outputs",
    "student": "all pages without outputs and solutions; cells check your answers",
    "instructor": "all pages complete, slides, every session of *Teach* with its solutions",
    "figures": "every figure of the pages as SVG and PNG, with caption and data, by chapter",
    "source": "the source of everything",
}


def page(root: Path) -> str:
    """The page of the site that offers the archives, as MyST Markdown."""
    rows = []
    for path in sorted((root / PLACE).glob("*.zip")):
        what = _WHAT.get(path.stem, "the pages of the chapter")
        if path.stem == "source":
            what += f", commit {_git(root, 'rev-parse', '--short=10', 'HEAD')}"
        link = f'<a href="../../downloads/{path.name}" download>{path.name}</a>'
        rows.append(f"| {link} | {what} | {path.stat().st_size / 1e6:.1f} MB |")
    return _INTRODUCTION.format(rows="\n".join(rows))


_INTRODUCTION = """\
# Take away

Each page of the book is a notebook that runs on your own machine, with Python 3.11 or newer and
Jupyter. The archives hold the notebooks and two wheels, `dprl` and `dprl-book`: unpack one, open a
page in Jupyter, and run it. Its first cell installs the wheels with the libraries that the page
needs. Nothing of the repository is required.

| archive | what it holds | size |
|---|---|---|
{rows}

The notebooks are written in Markdown that every program shows. Figures stand below the code that
draws them. Change a number and run on: a verdict or a sentence of the page that comes out
otherwise is shown, and stops nothing. The downloads of the single pages, at the top of each,
are the same notebooks; they need the wheels beside them or one folder above.
"""


def main() -> int:
    """Write everything, and say how large it is; 1 if a page has not been executed."""
    from companion.build import site  # which uses this module

    root = Path.cwd().resolve()
    try:
        archives = write(root, site.pages(root))
    except NotebookError as error:
        print(error, file=sys.stderr)
        return 1
    say_sizes(root, archives)
    return 0


def say_sizes(root: Path, archives: Iterable[Path]) -> None:
    """Print where archives are, and how large."""
    for path in archives:
        print(f"{path.relative_to(root)}: {path.stat().st_size / 1e6:.1f} MB")


if __name__ == "__main__":
    raise SystemExit(main())
