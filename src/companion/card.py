"""The provenance card at the end of a page: what made it, and from which recorded tables.

    provenance_card("figure-3-1", "noise-3")

It says nothing that differs between two executions of the same sources, such as times or
machines; those are in each record's own JSON file.
"""

from __future__ import annotations

import html
import platform
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from . import records
from .files import RECORDED, current_run

_LIBRARIES = ("numpy", "scipy", "pandas", "matplotlib")
_SHORT = 10


@dataclass(frozen=True)
class Card:
    """What made a page; shows itself in Jupyter as a block that opens on a click.

    Attributes
    ----------
    facts : tuple of (str, str)
        Name and value, in the order in which they are shown.
    tables : tuple of dict
        One provenance per record.
    """

    facts: tuple[tuple[str, str], ...]
    tables: tuple[dict[str, Any], ...]

    def _repr_html_(self) -> str:
        facts = "".join(
            f"<dt>{html.escape(name)}</dt><dd>{html.escape(value)}</dd>"
            for name, value in self.facts
        )
        items = "".join(f"<li>{_table_html(table)}</li>" for table in self.tables)
        return (
            '<details class="provenance-card"><summary>What made this page</summary>'
            f"<dl>{facts}</dl>"
            + (f"<p>Recorded tables</p><ul>{items}</ul>" if items else "")
            + "</details>"
        )

    def _repr_mimebundle_(self, **_: object) -> dict[str, str]:
        return {"text/plain": str(self), "text/html": self._repr_html_()}

    def __str__(self) -> str:
        lines = [f"{name}: {value}" for name, value in self.facts]
        return "\n".join([*lines, *(f"table: {_describe(table)}" for table in self.tables)])


def provenance_card(*record_names: str, seed: int | None = None) -> Card:
    """Describe what made the page that is being executed.

    Parameters
    ----------
    *record_names : str
        Records that the page shows: those it has saved in this execution come first, then
        those of the paper profile, then of the laptop's, then of the quick one. One that does
        not exist, or was edited, is a :class:`companion.records.RecordError`.
    seed : int, optional
        The page's seed; by default the seed of the records this page has saved.
    """
    run = current_run()
    tables = tuple(_find(name) for name in dict.fromkeys(record_names))
    seeds = sorted({t["seed"] for t in tables if t["seed"] is not None and t["page"] == run.page})
    shown = seeds if seed is None else [seed]
    facts = [
        ("page", f"notebooks/{run.page}.md" if run.page else "run by hand"),
        ("profile", run.profile),
        *([("seed", ", ".join(map(str, shown)))] if shown else []),
        ("dprl", version("dprl")),
        ("libraries", ", ".join(_libraries())),
    ]
    return Card(tuple(facts), tables)


def _find(name: str) -> dict[str, Any]:
    staged = current_run().stage / "results" / f"{name}.csv"
    if staged.is_file():
        return records.read(staged).provenance
    for profile in reversed(RECORDED):
        path = records.locate(name, profile)
        if path is not None:
            return records.read(path).provenance
    return records.load(name).provenance  # raises, and says what is missing


def _libraries() -> Iterator[str]:
    yield f"Python {platform.python_version()}"
    for library in _LIBRARIES:
        try:
            yield f"{library} {version(library)}"
        except PackageNotFoundError:  # matplotlib is optional
            continue


def _describe(table: dict[str, Any]) -> str:
    parts = [
        f"data/results/{table['profile']}/{table['name']}.csv",
        f"{table['rows']} rows",
        f"sha256 {table['sha256'][:_SHORT]}",
        *([f"seed {table['seed']}"] if table["seed"] is not None else []),
    ]
    if table["source_sha256"]:
        parts.append(f"made by dprl {table['dprl']}, source {table['source_sha256'][:_SHORT]}")
    return ", ".join(parts)


def _table_html(table: dict[str, Any]) -> str:
    path, *rest = _describe(table).split(", ")
    return f"<code>{html.escape(path)}</code>: {html.escape(', '.join(rest))}"
