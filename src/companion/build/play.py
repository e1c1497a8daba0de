"""One page with a reader's own values, beside the book.

``make page PAGE=3-policy-evaluation/dp-lsw epsilon=1`` executes the page with this value instead of
its own, renders it alone below ``_build/play``, and opens it. Parameters of the page can be
changed, and the sizes in the cell after them. A verdict or an assertion that comes out otherwise
is shown where it stands. Nothing of the book or of its records changes.
"""

from __future__ import annotations

import argparse
import ast
import json
import shutil
import webbrowser
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml

from companion.build.execution import PageError, PageRun, exit_status, try_page
from companion.build.site import PAGES, jupyter_book
from companion.files import available_cores, write_atomic

PLACE = Path("_build/play")
_SITE = Path("_build/html")  # below the place
#: What Sphinx reads beside the page itself.
_SHARED = ("book/_ext", "book/_static", "book/references.bib", "book/claims.yml", "_config.yml")


def parse_values(texts: Sequence[str]) -> dict[str, Any]:
    """Values of parameters from ``name=value``; what is no Python literal is a text.

    >>> parse_values(["epsilon=0.5", "start=first"])
    {'epsilon': 0.5, 'start': 'first'}
    """
    values: dict[str, Any] = {}
    for text in texts:
        name, sign, value = text.partition("=")
        if not (sign and name.isidentifier()):
            raise PageError(f"expected name=value, such as epsilon=0.5; got {text!r}")
        try:
            values[name] = ast.literal_eval(value)
        except (SyntaxError, ValueError):
            values[name] = value
    return values


def render(root: Path, page: str, notebook: Any) -> Path:
    """Write a notebook and its page, alone; where the page is.

    If Jupyter Book fails, it is a :class:`~companion.build.execution.PageError` that says where
    the notebook is.
    """
    place = root / PLACE
    shutil.rmtree(place, ignore_errors=True)
    for name in _SHARED:
        (place / name).parent.mkdir(parents=True, exist_ok=True)
        copy = shutil.copytree if (root / name).is_dir() else shutil.copy
        copy(root / name, place / name)
    _copy_claims(root, place)
    entry = f"{PAGES}{page}"
    write_atomic(place / f"{entry}.ipynb", json.dumps(notebook, indent=1, ensure_ascii=False))
    write_atomic(place / "_toc.yml", yaml.safe_dump({"format": "jb-book", "root": entry}))
    # Links to other pages lead nowhere here, which is no fault: neither -n nor -W.
    done = jupyter_book(place, "--quiet")
    if done.returncode:
        last = "\n".join(done.stdout.splitlines()[-5:])
        raise PageError(
            f"page {page} ran, but is not rendered; the notebook is {PLACE / entry}.ipynb\n{last}"
        )
    return place / _SITE / f"{entry}.html"


def _copy_claims(root: Path, place: Path) -> None:
    """Numbers of other pages that the page names, as far as these have been executed."""
    for path in (root / PAGES).rglob("*.claims.json"):
        write_atomic(place / path.relative_to(root), path.read_bytes())


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line from the root of the repository; 1 if the page fails."""
    parser = argparse.ArgumentParser(
        prog="python -m companion.build.play",
        description="Execute one page with other values, beside the book, and open it.",
    )
    parser.add_argument("page", help="page name, such as 3-policy-evaluation/dp-lsw")
    parser.add_argument("values", nargs="*", metavar="name=value", help="of its parameters")
    parser.add_argument("--no-open", action="store_true", help="only say where the page is")
    options = parser.parse_args(argv)
    root = Path.cwd().resolve()

    def play() -> None:
        values = parse_values(options.values)
        profile = values.pop("profile", "quick")
        run = PageRun(root, options.page, profile, workers=available_cores(), tried=values)
        path = render(root, options.page, try_page(run))
        print(path.relative_to(root))
        if not options.no_open:
            webbrowser.open(path.as_uri())

    return exit_status(options.page, play)


if __name__ == "__main__":
    raise SystemExit(main())
