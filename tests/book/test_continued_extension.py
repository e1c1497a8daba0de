"""A rendering that Sphinx continues is the one that it would make from nothing."""

import re
import shutil
from pathlib import Path

from companion.build import site

EXTENSIONS = Path(__file__).resolve().parents[2] / "book" / "_ext"
CONFIG = f"""\
title: A book
only_build_toc_files: true
execute: {{execute_notebooks: "off"}}
sphinx:
  local_extensions: {{continued: {EXTENSIONS}}}
"""
PAGES = {
    "_config.yml": CONFIG,
    "_toc.yml": "format: jb-book\nroot: a\nchapters: [{file: b}, {file: c}]\n",
    "a.md": "# First\n\nSee [](b.md).\n",
    "b.md": "# Second\n",
    "c.md": "# Third\n",
}


def render(folder: Path) -> dict[str, str]:
    done = site.jupyter_book(folder, "-W", "-n")
    assert done.returncode == 0, done.stdout
    html = folder / "_build" / "html"
    pages = {name: (html / f"{name}.html").read_text() for name in "abc"}
    # A style sheet of the rendering before has its checksum behind its name.
    return {name: re.sub(r"\?v=\w+", "", text) for name, text in pages.items()}


def test_other_pages_follow(tmp_path):
    folder, anew = tmp_path / "continued", tmp_path / "anew"
    folder.mkdir()
    for name, text in PAGES.items():
        (folder / name).write_text(text)
    first = render(folder)

    (folder / "b.md").write_text("# Second\n\nA line.\n")
    second = render(folder)
    assert "A line." in second["b"]
    assert (second["a"], second["c"]) == (first["a"], first["c"])

    (folder / "b.md").write_text("# Another\n")
    third = render(folder)
    shutil.copytree(folder, anew, ignore=shutil.ignore_patterns("_build"))
    assert "Another" in third["a"]
    assert third == render(anew)
