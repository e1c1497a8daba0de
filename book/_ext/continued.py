"""Sphinx extension: a rendering that is continued shows what one from nothing would.

Sphinx reads a page again when it changed, or a file that it used, and then writes it again. Other
pages show things of it too: its title and place in the table of contents, and the numbers of its
sections, figures, equations and theorems. When one of these changed, every page is written again.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterable
from pathlib import Path

from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment

_KEPT = "shown_elsewhere"


def pages_to_write(app: Sphinx, env: BuildEnvironment) -> Iterable[str]:
    """All pages, if what one page shows of another is not as it was."""
    std, math = env.get_domain("std").data, env.get_domain("math").data
    words = {page: title.astext() for page, title in env.titles.items()}
    places = {page: toc.astext() for page, toc in env.tocs.items()}
    numbers = [env.toc_secnumbers, env.toc_fignumbers, math["objects"]]
    tables = [words, places, env.toctree_includes, *numbers, std["labels"], std["anonlabels"]]
    # The page read last stands last in each of them.
    shown = repr([sorted(table.items()) for table in tables])
    before = getattr(env, _KEPT, None)
    setattr(env, _KEPT, shown)
    if before in (None, shown):
        return []
    # The listings of the package's code have the table of contents beside them, and no entry here.
    shutil.rmtree(Path(app.outdir, "_modules"), ignore_errors=True)
    return env.found_docs


def setup(app: Sphinx) -> dict[str, object]:
    """Register the hook, behind those that give numbers."""
    app.connect("env-get-updated", pages_to_write, priority=900)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
