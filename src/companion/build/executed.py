"""What executed pages hand over to other texts: figures, numbers, evidence, verdicts.

A figure or a number of a page has the name under which the page has handed it over
(:mod:`companion.figures`), a number of a claim the name that it has among the claim's evidence.
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from companion import claims, figures
from companion.build import freshness

_T = TypeVar("_T")

_SVG = "image/svg+xml"
_TITLE = re.compile(r"^# (.+)$", re.MULTILINE)


class NotThereError(LookupError):
    """No executed page has what is asked for; the message says what there is."""


class Page(NamedTuple):
    """An executed page: its title, its figures as SVG by name, its numbers as text by name."""

    title: str
    figures: dict[str, str]
    numbers: dict[str, str]


@dataclass
class Executed:
    """The executed pages of a repository, each read once."""

    root: Path
    _pages: dict[str, Page] = field(default_factory=dict)
    _evidence: dict[str, dict[str, dict[str, claims.Number]]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.claims = claims.load(self.root / "book" / "claims.yml")

    def page(self, name: str) -> Page:
        """A page, such as ``3-policy-evaluation/dp-lsw``."""
        if name not in self._pages:
            path = freshness.product_path(self.root, name, "ipynb")
            if not path.is_file():
                raise NotThereError(f"there is no executed page {name}")
            self._pages[name] = read(path)
        return self._pages[name]

    def figure(self, page: str, name: str) -> str:
        """A figure of a page, as SVG; with ``-narrow`` after its name, the one for phones."""
        return _known(self.page(page).figures, name, f"{page} has no figure")

    def number(self, page: str, name: str) -> str:
        """A number that a page has handed over to its text."""
        return _known(self.page(page).numbers, name, f"{page} has no number")

    def claim(self, name: str) -> claims.Claim:
        """A claim of ``book/claims.yml``."""
        if name not in self.claims:
            raise NotThereError(f"there is no claim {name} in book/claims.yml")
        return self.claims[name]

    def evidence(self, claim: str, name: str, form: str | None = None) -> str:
        """One number of a claim's evidence, typeset with a format specification."""
        page = self.claim(claim).page
        if page not in self._evidence:
            path = freshness.product_path(self.root, page, "claims.json")
            if not path.is_file():
                raise NotThereError(f"{page} has checked no claim")
            self._evidence[page] = claims.evidence_in(path)
        numbers = self._evidence[page].get(claim, {})
        return figures.typeset(_known(numbers, name, f"{claim} has no evidence"), form)


def read(path: Path) -> Page:
    """Read an executed page from its notebook."""
    return page_of(json.loads(path.read_text(encoding="utf-8"))["cells"])


def page_of(cells: Iterable[Mapping[str, Any]]) -> Page:
    """Read an executed page from the cells of its notebook."""
    drawn: dict[str, str] = {}
    numbers: dict[str, str] = {}
    title = ""
    for cell in cells:
        found = _TITLE.search("".join(cell["source"])) if cell["cell_type"] == "markdown" else None
        title = title or (found[1] if found else "")
        for output in cell.get("outputs", ()):
            book = output.get("metadata", {}).get("scrapbook")
            if book is None:
                continue
            data = {k.removeprefix(book["mime_prefix"]): v for k, v in output["data"].items()}
            if _SVG in data:
                drawn[book["name"]] = "".join(data[_SVG])
            else:
                numbers[book["name"]] = handed_over("".join(data["text/plain"]))
    return Page(title, drawn, numbers)


def handed_over(text: str) -> str:
    r"""A number or text that a page has handed over, as it is meant to be read.

    >>> handed_over(r"'1\u202f254'") == "1\u202f254", handed_over("plain")
    (True, 'plain')
    """
    return str(ast.literal_eval(text)) if text[:1] in ("'", '"') else text


def _known(known: Mapping[str, _T], name: str, complaint: str) -> _T:
    if name not in known:
        there = ", ".join(n for n in known if not n.endswith("-narrow")) or "nothing"
        raise NotThereError(f"{complaint} {name}; there is {there}")
    return known[name]
