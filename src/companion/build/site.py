"""The table of contents, and the site built from the executed pages.

The site is built from a clean state beside the last one and takes its place only when
Jupyter Book has finished without a warning: a failed build leaves the last good site.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from companion.build import freshness
from companion.dependencies import sources_of
from companion.files import digest

PAGES = "book/nb/"
GENERATED = frozenset({"scorecard", "house"})  # below book/nb, written by the build, not executed
SITE = Path("_build/html")

_NEXT = Path("_build/next")
_PREVIOUS = Path("_build/previous")
_RECORD = Path("_build/site.json")
_LOG = Path("_build/site.log")
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
    """Every file the table of contents names, in the order of reading.

    Parameters
    ----------
    root : Path
        The repository.

    Returns
    -------
    list of str
        Paths without suffix, such as ``book/intro``.
    """
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


def inputs(root: Path) -> dict[str, str | None]:
    """Digest of everything the site is made from, stamps and hidden files left out."""
    found = {name: digest(root / name) for name in _FILES}
    for folder in _FOLDERS:
        for name, content in freshness.digests(root / folder).items():
            if not name.endswith(".stamp.json"):
                found[f"{folder}/{name}"] = content
    return {**found, "python": freshness.python_minor()}


def reason(root: Path) -> str | None:
    """Why the site must be built; None when it is up to date."""
    _recover(root)
    return freshness.record_reason(root / _RECORD, inputs(root), freshness.digests(root / SITE))


def build(root: Path, profile: str) -> None:
    """Build the site and put it in place of the last one.

    Parameters
    ----------
    root : Path
        The repository.
    profile : str
        Profile the pages must have been executed with.

    Raises
    ------
    SiteError
        If a page of the table of contents has no valid stamp, or Jupyter Book fails or
        warns. The last good site stays.
    """
    _refuse_stale(root, profile)
    made_from = inputs(root)
    shutil.rmtree(root / _NEXT, ignore_errors=True)
    _run_jupyter_book(root)
    _swap(root)
    freshness.write_record(root / _RECORD, made_from, freshness.digests(root / SITE))


def _refuse_stale(root: Path, profile: str) -> None:
    """Jupyter Book itself notices neither a failed page nor one that never ran."""
    sources = sources_of(root)
    passed = {"profile": profile}
    reasons = {page: freshness.reason(root, page, passed, sources) for page in pages(root)}
    stale = [f"  {page}: {why}" for page, why in reasons.items() if why]
    if stale:
        raise SiteError(
            "these pages have no valid execution, so the site is not built:\n"
            + "\n".join(stale)
            + "\n(something changed while the pages ran: run it again)"
        )


def _run_jupyter_book(root: Path) -> None:
    command = [sys.executable, "-c", "from jupyter_book.cli.main import main; main()"]
    command += ["build", ".", "--path-output", str(_NEXT), "-W", "-n", "--keep-going"]
    (root / _LOG).parent.mkdir(parents=True, exist_ok=True)
    result = subprocess.run(
        command,
        cwd=root,
        # Not SOURCE_DATE_EPOCH: Sphinx would print its year as that of the copyright.
        env={**os.environ, "PYTHONHASHSEED": "0"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    log = _ANSI.sub("", result.stdout).replace(f"{root}{os.sep}", "")
    (root / _LOG).write_text(log, encoding="utf-8")
    if result.returncode:
        raise SiteError(f"jupyter-book failed:\n{_complaints(log)}\nAll of it: {_LOG}")


def _complaints(log: str) -> str:
    """Return the lines that name what is wrong; the end of the log if none does."""
    lines = [line for line in log.splitlines() if "WARNING" in line or "ERROR" in line]
    return "\n".join(dict.fromkeys(lines)) or "\n".join(log.splitlines()[-20:])


def _swap(root: Path) -> None:
    """Put the new site in place; between the two renames :func:`_recover` helps."""
    site, previous = root / SITE, root / _PREVIOUS
    shutil.rmtree(previous, ignore_errors=True)
    if site.exists():
        site.rename(previous)
    (root / _NEXT / "_build" / "html").rename(site)
    shutil.rmtree(previous, ignore_errors=True)


def _recover(root: Path) -> None:
    """Bring the last good site back if a build was killed while it changed places."""
    site, previous = root / SITE, root / _PREVIOUS
    if previous.exists() and not site.exists():
        previous.rename(site)
