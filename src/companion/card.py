"""The provenance card at the end of a page: what made it, and from which recorded tables.

    provenance_card("figure-3-1", "noise-3")

It says nothing that differs between two executions of the same sources, such as times or
machines; those are in each record's own JSON file.
"""

from __future__ import annotations

import html
import platform
from dataclasses import dataclass
from importlib.metadata import version
from typing import Any

from . import records
from .dependencies import versions_of
from .files import RECORDED, current_run

_LIBRARIES = ("numpy", "scipy", "pandas", "matplotlib")
_SHORT = 10


@dataclass(frozen=True)
class Card:
    """What made a page; shows itself in Jupyter as a block that opens on a click.

    ``facts`` are names and values, in the order in which they are shown, and ``tables`` one
    provenance per record.
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

    Of the records that the page shows, those it has saved in this execution come first, then those
    of the paper profile, then of the laptop's, then of the quick one. One that does not exist, or
    was edited, is a :class:`companion.records.RecordError`. The seed is by default that of the
    records this page has saved."""
    run = current_run()
    tables = tuple(_find(name) for name in dict.fromkeys(record_names))
    seeds = sorted({t["seed"] for t in tables if t["seed"] is not None and t["page"] == run.page})
    shown = seeds if seed is None else [seed]
    libraries = [f"Python {platform.python_version()}"]
    libraries += [f"{name} {number}" for name, number in versions_of(_LIBRARIES).items()]
    facts = [
        ("page", f"notebooks/{run.page}.md" if run.page else "run by hand"),
        ("profile", run.profile),
        *([("seed", ", ".join(map(str, shown)))] if shown else []),
        ("dprl", version("dprl")),
        ("libraries", ", ".join(libraries)),
    ]
    return Card(tuple(facts), tables)


def _find(name: str) -> dict[str, Any]:
    staged = current_run().stage / "results" / f"{name}.csv"
    kept = (records.locate(name, profile) for profile in reversed(RECORDED))
    path = staged if staged.is_file() else next(filter(None, kept), None)
    # without a path load raises, and says what is missing
    return (records.read(path) if path else records.load(name)).provenance


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
