"""Sphinx extension: the same pages, written in less than half the time.

- Sphinx makes the sidebar's list of pages anew for every page. It first copies all headings of
  all pages for it, on the pages about the package all functions too, and then drops what is no
  title. Here that is dropped once.
- Pages are written by several processes. They are read by one: that is not safe in parallel.
"""

from __future__ import annotations

import functools
from typing import Any

from docutils import nodes
from sphinx import addnodes
from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment

from companion.files import available_cores


@functools.lru_cache(maxsize=1)
def titles(env: BuildEnvironment) -> dict[str, nodes.bullet_list]:
    """Per page its title and the pages below it, as Sphinx keeps them for ``titles_only``."""
    found = {}
    for page, contents in env.tocs.items():
        found[page] = short = contents.deepcopy()
        for entry in short.children:
            if isinstance(entry, nodes.Element) and len(entry) > 1:
                below = list(entry.findall(addnodes.toctree))
                if below:
                    entry[1][:] = below
                else:
                    entry.pop(1)
    return found


def list_titles(
    app: Sphinx, pagename: str, templatename: str, context: dict[str, Any], doctree: object
) -> None:
    """Let the template's function that makes the list see titles only, where it shows no more."""
    make = context["toctree"]

    def toctree(**options: Any) -> str:
        if not options.get("titles_only"):
            return str(make(**options))
        everything = app.env.tocs
        app.env.tocs = titles(app.env)
        try:
            return str(make(**options))
        finally:
            app.env.tocs = everything

    context["toctree"] = toctree


def write_in_parallel(app: Sphinx, env: BuildEnvironment) -> None:
    """Give each core a process that writes, beside the one that resolves references."""
    app.parallel = available_cores() + 1


def setup(app: Sphinx) -> dict[str, object]:
    """Register the hooks; the sidebar's before that of the theme."""
    app.connect("html-page-context", list_titles, priority=400)
    app.connect("env-updated", write_in_parallel)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
