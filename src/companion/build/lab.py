"""The pages as notebooks in JupyterLab, to change and play with: ``make lab``.

Works on copies, below ``_build/lab``: one that a reader has changed stays as it is, the others
follow the book. Theorems and other boxes are those of MyST, which JupyterLab is taught to show;
what only the site can make stands there as it came out in the book: its figures, the numbers in
its sentences, and what references stand for. Verdicts and assertions that come out otherwise are
shown, and end nothing.
"""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Sequence
from pathlib import Path

import yaml

from companion.build import executed, freshness, notebooks, plain
from companion.files import digest, source_path, write_atomic

PLACE = Path("_build/lab")
#: Digests of the pages as they were copied, below the place.
_COPIED = ".copied.json"
_HEAD = re.compile(r"---\n.*?\n---\n", re.DOTALL)
_CODE = re.compile(r"(^```\{code-cell\}.*?^```$)", re.DOTALL | re.MULTILINE)
_PAGE = re.compile(r"\]\(((?!https?:)[^()\s]+)\.ipynb(?=[)#])")
_VIEWERS = {"markdown": "Jupytext Notebook", "myst": "Jupytext Notebook"}


def copy_pages(root: Path, pages: Sequence[str]) -> list[str]:
    """Copy pages below the place; those that a reader has changed, which stay, are returned."""
    place = root / PLACE
    names = plain.names_of_book(root, pages)
    path = place / _COPIED
    before = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    copied, changed = {}, []
    for page in pages:
        copy = place / f"{page}.md"
        if copy.is_file() and digest(copy) != before.get(page):
            changed.append(page)
            copied[page] = before.get(page)
        else:
            write_atomic(copy, readable(root, page, names))
            copied[page] = digest(copy)
    write_atomic(path, json.dumps(copied, indent=1))
    return changed


def readable(root: Path, page: str, names: plain.Names) -> str:
    """Source of a page for JupyterLab; the figures of its execution are written beside it."""
    text = source_path(root, page).read_text(encoding="utf-8")
    path = freshness.product_path(root, page, "ipynb")
    done = executed.read(path) if path.is_file() else executed.Page("", {}, {})
    images = {}
    for name, drawn in done.figures.items():
        if not name.endswith("-narrow"):
            images[name] = f"figures/{page.rpartition('/')[2]}--{name}.svg"
            write_atomic((root / PLACE / page).parent / images[name], drawn)
    head = _HEAD.match(text)
    parts = _CODE.split(text[head.end() :] if head else text)
    shown = []
    for part in parts:
        if not _CODE.match(part):
            part = plain.plain(part, names, done.numbers, page, images)[0]
            part = _PAGE.sub(r"](\1.md", part)  # so pages are named here
        shown.append(part)
    # what JupyterLab's formulas read; the text before it is Jupytext's own
    macros = {f"\\{macro}": meaning for macro, (meaning, _) in notebooks.macros_in(root).items()}
    front = f"---\n{yaml.safe_dump({'math': macros}, width=1000)}---"
    body = "\n\n".join([front, *(part for part in shown if part)])
    return f"{head[0] if head else ''}\n{body}\n".lstrip("\n")


def environment(root: Path) -> dict[str, str]:
    """Environment of JupyterLab; writes its settings below the place."""
    place = root / PLACE
    profile = place / ".ipython" / "profile_default"
    extension = 'c.InteractiveShellApp.extensions = ["companion.outcomes"]\n'
    write_atomic(profile / "ipython_kernel_config.py", extension)
    settings = {
        "@jupyterlab/docmanager-extension:plugin": {"defaultViewers": _VIEWERS},
        # it asks nobody outside
        "@jupyterlab/apputils-extension:notification": {
            "checkForUpdates": False,
            "fetchNews": "false",
        },
    }
    configuration = place / ".jupyter"
    write_atomic(configuration / "labconfig/default_setting_overrides.json", json.dumps(settings))
    return {
        "IPYTHONDIR": str(profile.parent),
        "JUPYTER_CONFIG_DIR": str(configuration),
        "PYTHONPATH": str(root / "src"),
    }


def main() -> int:
    """Copy the pages, then become JupyterLab."""
    from companion.build.site import pages

    root = Path.cwd().resolve()
    names = pages(root)
    for page in copy_pages(root, names):
        print(f"{PLACE / page}.md is yours and stays; delete it to have the book's again")
    if not all(freshness.product_path(root, page, "ipynb").is_file() for page in names):
        print("Pages that were not executed show names for numbers, and no figures: make book")
    values = {**os.environ, **environment(root)}
    command = [sys.executable, "-m", "jupyterlab", f"--notebook-dir={root / PLACE}"]
    if hasattr(os, "geteuid") and os.geteuid() == 0:  # in a container there is often nobody else
        command.append("--allow-root")
    os.execve(sys.executable, command, values)


if __name__ == "__main__":
    raise SystemExit(main())
