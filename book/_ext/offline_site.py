"""Sphinx extension: the site holds everything it needs, and asks nobody for anything.

MathJax is copied from the Python package that carries it: the one combined file and its
fonts, 1.6 MB instead of the package's 24. Scripts that would fetch from elsewhere, or that
the theme adds twice, are left out. Two small things that hinder a screen reader are mended.
"""

from __future__ import annotations

import re
import shutil
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from sphinx.application import Sphinx
from sphinx.errors import ExtensionError

_SCRIPT = Path("tex-chtml.js")
_FONTS = Path("output/chtml/fonts/woff-v2")
_MENDED = {
    # The theme's arrows in the table of contents have no name.
    '<summary><span class="toctree-toggle"': (
        '<summary aria-label="Show or hide sections"><span class="toctree-toggle"'
    ),
    # The corner of a data frame heads nothing.
    "<th></th>": "<td></td>",
}

# Nor do the blank cells above a styled table's index.
_BLANK_HEAD = re.compile(r'<th( class="blank[^"]*" ?>&nbsp;)</th>')


def copy_mathjax(app: Sphinx, exception: Exception | None) -> None:
    """Copy MathJax and its fonts into the built site."""
    if exception or app.builder.format != "html":
        return
    source = _mathjax_folder()
    target = Path(app.outdir, "_static", "mathjax")
    (target / _FONTS).mkdir(parents=True, exist_ok=True)
    fonts = [path.relative_to(source) for path in (source / _FONTS).glob("*.woff")]
    for name in [_SCRIPT, *fonts]:
        shutil.copyfile(source / name, target / name)


def _mathjax_folder() -> Path:
    spec = find_spec("sphinx-mathjax-offline")  # the package's name really has dashes
    if spec is None or spec.origin is None:
        raise ExtensionError("sphinx-mathjax-offline is not installed")
    return Path(spec.origin).parent / "static" / "mathjax"


def clean_scripts(
    app: Sphinx, pagename: str, templatename: str, context: dict[str, Any], doctree: object
) -> None:
    """Drop Thebe, which loads from a CDN, and scripts that are there twice."""
    seen: set[tuple[object, ...]] = set()
    kept = []
    for script in context.get("script_files", []):
        attributes = getattr(script, "attributes", {})
        key = (
            str(getattr(script, "filename", script)),
            *sorted((name, str(value)) for name, value in attributes.items()),
        )
        if key not in seen and "thebe" not in str(key):
            kept.append(script)
        seen.add(key)
    context["script_files"] = kept
    context["css_files"] = [
        sheet
        for sheet in context.get("css_files", [])
        if "thebe" not in str(getattr(sheet, "filename", sheet))
    ]


def mend_markup(app: Sphinx, exception: Exception | None) -> None:
    """Replace the markup that the theme and pandas write, and no page can."""
    if exception or app.builder.format != "html":
        return
    for page in Path(app.outdir).rglob("*.html"):
        text = mended = page.read_text(encoding="utf-8")
        for found, better in _MENDED.items():
            mended = mended.replace(found, better)
        mended = _BLANK_HEAD.sub(r"<td\1</td>", mended)
        if mended != text:
            page.write_text(mended, encoding="utf-8")


def setup(app: Sphinx) -> dict[str, object]:
    """Register the hooks."""
    app.connect("html-page-context", clean_scripts, priority=900)  # after the theme's own
    app.connect("build-finished", copy_mathjax)
    app.connect("build-finished", mend_markup)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
