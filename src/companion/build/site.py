"""The table of contents, and the site built from the executed pages.

The site is rendered beside the last one and takes its place only when Jupyter Book has finished
without a warning: a failed build leaves the last good site. Where nothing but pages changed since
a rendering that succeeded, Sphinx continues that one; otherwise it begins anew. The scorecard, the
map of the house and the downloads are written first, the slides into the new site. In all
functions ``root`` is the repository.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import yaml

from companion.build import course, figure_archive, freshness, house, notebooks, scorecard, slides
from companion.claims import ClaimError
from companion.dependencies import sources_of
from companion.files import digest, write_atomic

PAGES = "book/nb/"
#: Below it, pages that are written here and not executed.
GENERATED: dict[str, Callable[[Path], str]] = {
    "scorecard": scorecard.page,
    "house": lambda root: house.page(root, pages(root)),
    "take-away": notebooks.page,
    "teach": course.page,
}
SITE = Path("_build/html")

_NEXT = Path("_build/next")
_PREVIOUS = Path("_build/previous")
_COPY = Path("_build/copy")
_STAMP = Path("_build/site.stamp.json")
_LOG = Path("_build/site.log")
#: What the kept rendering was made from; absent while Sphinx works on it, and after a failure.
_RENDERED = _NEXT / "made-from.json"
#: What Sphinx follows page by page. Whatever else changes, all of it is rendered anew.
_PAGE_BY_PAGE = re.compile(r"book/[^_].*\.(md|ipynb|json|yml)|notebooks/.*|data/.*")
_FILES = ("_config.yml", "_toc.yml", "requirements.lock")
_FOLDERS = (
    "book",
    "notebooks",
    "src",
    "data/published",
    "data/results/laptop",
    "data/results/paper",
)

_ANSI = re.compile(r"\x1b\[[0-9;]*m")


class SiteError(Exception):
    """The site cannot be built; the message is for the reader's terminal."""


def toc_entries(root: Path) -> list[str]:
    """Every file the table of contents names, such as ``book/intro``, in the order of reading."""
    toc = yaml.safe_load((root / "_toc.yml").read_text(encoding="utf-8"))
    return [toc["root"], *_entries(toc)]


def _entries(node: dict[str, Any]) -> Iterator[str]:
    for name in ("parts", "chapters", "sections"):
        for child in node.get(name, ()):
            if "file" in child:
                yield child["file"]
            yield from _entries(child)


def pages(root: Path) -> list[str]:
    """Names of the pages to execute, in the order of the table of contents."""
    names = [entry.removeprefix(PAGES) for entry in toc_entries(root) if entry.startswith(PAGES)]
    return [name for name in names if name not in GENERATED]


def inputs(root: Path) -> freshness.Inputs:
    """What the site is made from; stamps and hidden files are not."""
    found = {name: digest(root / name) for name in _FILES}
    for folder in _FOLDERS:
        for name, content in freshness.digests(root / folder).items():
            if not name.endswith(".stamp.json"):
                found[f"{folder}/{name}"] = content
    return {"read": found, "python": freshness.python_minor()}


def reason(root: Path) -> str | None:
    """Why the site must be built; None when it is up to date."""
    _recover(root)
    stamp = freshness.read_stamp(root / _STAMP)
    if stamp is None:
        return "never made"
    return freshness.differences(stamp, inputs(root), freshness.digests(root / SITE))


def build(root: Path, profile: str) -> None:
    """Build the site, from pages executed with this profile, and put it in place of the last one.

    If a page of the table of contents has no valid stamp, a claim is not as it should be, or
    Jupyter Book fails or warns, the last good site stays, and there is a :class:`SiteError`.
    """
    _refuse_stale(root, profile)
    try:
        notebooks.write(root, pages(root))
        figure_archive.write(root, pages(root))
        if (root / course.SOURCE).is_file():
            course.write(root)
        for entry in toc_entries(root):
            if entry.startswith(PAGES) and entry.removeprefix(PAGES) in GENERATED:
                text = GENERATED[entry.removeprefix(PAGES)](root)
                write_atomic(root / f"{entry}.md", text)
    except ClaimError as error:
        raise SiteError(f"the scorecard is not written:\n{error}") from None
    except (notebooks.NotebookError, course.CourseError, slides.SlidesError) as error:
        raise SiteError(str(error)) from None
    made_from = inputs(root)
    begun_from = _begun_from(made_from)
    if not _continues(root, begun_from):
        shutil.rmtree(root / _NEXT, ignore_errors=True)
    (root / _RENDERED).unlink(missing_ok=True)
    _run_jupyter_book(root)
    _add_downloads(root)
    try:
        slides.write(root, root / _NEXT / "_build" / "html")
    except slides.SlidesError as error:
        raise SiteError(f"the slides are not made:\n{error}") from None
    write_atomic(root / _RENDERED, json.dumps(begun_from))
    _swap(root)
    freshness.write_stamp(root / _STAMP, made_from, freshness.digests(root / SITE))


def _begun_from(made_from: freshness.Inputs) -> freshness.Inputs:
    """The part of the inputs with which every page must be rendered again."""
    read = made_from["read"]
    return made_from | {"read": {n: d for n, d in read.items() if not _PAGE_BY_PAGE.fullmatch(n)}}


def _continues(root: Path, begun_from: freshness.Inputs) -> bool:
    try:
        last = json.loads((root / _RENDERED).read_text(encoding="utf-8"))
    except FileNotFoundError:
        return False
    return bool(last == begun_from)


def _refuse_stale(root: Path, profile: str) -> None:
    """Jupyter Book itself notices neither a failed page nor one that never ran."""
    found = stale(root, profile)
    if found:
        raise SiteError(
            "these pages have no valid execution, so the site is not built:\n"
            + "\n".join(found)
            + "\n(something changed while the pages ran: run it again)"
        )


def stale(root: Path, profile: str) -> list[str]:
    """Pages without a valid execution with this profile, each a line with the reason."""
    sources = sources_of(root)
    passed = {"profile": profile}
    reasons = {page: freshness.reason(root, page, passed, sources) for page in pages(root)}
    return [f"  {page}: {why}" for page, why in reasons.items() if why]


def jupyter_book(folder: Path, *options: str) -> subprocess.CompletedProcess[str]:
    """Let Jupyter Book build the book in a folder; ``stdout`` is all that it says."""
    command = [sys.executable, "-c", "from jupyter_book.cli.main import main; main()"]
    done = subprocess.run(
        [*command, "build", ".", *options],
        cwd=folder,
        # Not SOURCE_DATE_EPOCH: Sphinx would print its year as that of the copyright.
        env={**os.environ, "PYTHONHASHSEED": "0"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    done.stdout = _ANSI.sub("", done.stdout)
    return done


def _run_jupyter_book(root: Path) -> None:
    (root / _LOG).parent.mkdir(parents=True, exist_ok=True)
    result = jupyter_book(root, "--path-output", str(_NEXT), "-W", "-n", "--keep-going")
    log = result.stdout.replace(f"{root}{os.sep}", "")
    (root / _LOG).write_text(log, encoding="utf-8")
    if result.returncode:
        raise SiteError(f"jupyter-book failed:\n{complaints(log)}\nAll of it: {_LOG}")


def complaints(log: str) -> str:
    """Return the lines that name what is wrong; the end of the log if none does."""
    lines = [line for line in log.splitlines() if "WARNING" in line or "ERROR" in line]
    return "\n".join(dict.fromkeys(lines)) or "\n".join(log.splitlines()[-20:])


def _add_downloads(root: Path) -> None:
    """Put the archives beside the pages, and readable notebooks in the place of their sources."""
    html, made = root / _NEXT / "_build" / "html", root / notebooks.PLACE
    for archive in made.glob("*.zip"):
        (html / "downloads").mkdir(exist_ok=True)
        shutil.copy(archive, html / "downloads" / archive.name)
    for page in pages(root):
        notebook = html / "_sources" / PAGES / f"{page}.ipynb"
        if notebook.is_file():
            shutil.copy(made / f"{page}.ipynb", notebook)


def _swap(root: Path) -> None:
    """Put the new site in place; between the two renames :func:`_recover` helps."""
    site, previous, copy = root / SITE, root / _PREVIOUS, root / _COPY
    for folder in (previous, copy):
        shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(root / _NEXT / "_build" / "html", copy)
    if site.exists():
        site.rename(previous)
    copy.rename(site)
    shutil.rmtree(previous, ignore_errors=True)


def _recover(root: Path) -> None:
    """Bring the last good site back if a build was killed while it changed places."""
    site, previous = root / SITE, root / _PREVIOUS
    if previous.exists() and not site.exists():
        previous.rename(site)
