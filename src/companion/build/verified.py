"""What was verified, and with which code: ``data/results/verified.json``.

A table that agreed with its recomputation is noted there, with digests of the code that made
it and of what this uses. So a table that is older than its code is found without computing
anything. The *maker* of a table is a page, or a command, which is its own name. Of each maker
are noted ``code`` and ``modules`` (digests), ``libraries`` (versions) and ``tables`` (SHA-256 of
each); ``verified`` (``all rows``, ``some rows``, or ``accepted: `` with a reason); and ``seconds``
and ``workers`` of the last time that all rows were computed (None: never).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from companion.build.freshness import changed
from companion.dependencies import Sources, Uses, is_command, recorded_by, sources_of
from companion.files import write_atomic

_NOTES = Path("data/results/verified.json")


def recorded_tables(root: Path) -> dict[str, dict[str, str]]:
    """Maker to its recorded tables and their SHA-256, without reading a table.

    A table is named by its file, ``figure-1.csv``, one of the profile ``laptop`` with that:
    ``laptop/table-5-2.csv``. Both levels are sorted, commands after pages.
    """
    found: dict[str, dict[str, str]] = {}
    for profile in ("paper", "laptop"):
        for path in sorted((root / "data" / "results" / profile).glob("*.json")):
            origin = json.loads(path.read_text(encoding="utf-8"))
            name = f"{'' if profile == 'paper' else profile + '/'}{path.stem}.csv"
            maker = origin["page"] or origin["command"]
            found.setdefault(maker, {})[name] = origin["sha256"]
    return {maker: found[maker] for maker in sorted(found, key=lambda m: (is_command(m), m))}


def table_path(root: Path, name: str) -> Path:
    """Where a recorded table is, by its name in :func:`recorded_tables`."""
    results = root / "data" / "results"
    return results / name if "/" in name else results / "paper" / name


def digests(root: Path, maker: str, sources: Sources) -> dict[str, Any]:
    """What recorded tables belong to: code, modules, libraries, and the tables themselves.

    A maker that is a command and no program of the repository is a ``ValueError``.
    """
    made_by = recorded_by(root, maker, sources)
    return {**made_by._asdict(), "tables": recorded_tables(root)[maker]}


def read_notes(root: Path) -> dict[str, dict[str, Any]]:
    """What is noted of each maker, see the module."""
    path = root / _NOTES
    found: dict[str, dict[str, Any]] = json.loads(path.read_text("utf-8")) if path.exists() else {}
    return found


def note(
    root: Path,
    maker: str,
    made_from: Mapping[str, Any],
    verified: str,
    seconds: float | None,
    workers: int,
) -> None:
    """Note that recorded tables belong to the code of today.

    What was verified in all rows stays so when a sample agrees and nothing has changed.
    ``made_from`` are the :func:`digests` taken before it ran: what is edited meanwhile counts as
    changed. ``verified`` says how that is known (see the module), ``seconds`` how long all rows
    took, with None if not all were computed, and ``workers`` how many processes sweeps had."""
    notes = read_notes(root)
    before = notes.get(maker, {})
    same = all(before.get(key) == value for key, value in made_from.items())
    if same and before["verified"] == "all rows":
        verified = "all rows"
    timed = {"seconds": seconds, "workers": workers}
    if seconds is None:
        timed = {key: before.get(key) for key in timed}
    notes[maker] = {**made_from, "verified": verified, **timed}
    text = json.dumps(dict(sorted(notes.items())), indent=1, ensure_ascii=False)
    write_atomic(root / _NOTES, text + "\n")


def stale(root: Path, *, libraries: bool = True) -> list[str]:
    """Recorded tables that are older than the code that makes them.

    One text per maker: its tables, what changed, and what settles it. Tables whose provenance has
    the code of today were just recorded, and need no note. With ``libraries`` false
    another version of a library is no change, for those who only ask about the repository.
    """
    notes, makers, sources = read_notes(root), recorded_tables(root), sources_of(root)
    kinds = ("modules", "libraries", "tables") if libraries else ("modules", "tables")
    found = []
    for maker, names in makers.items():
        what = _changes(root, maker, notes.get(maker), sources, kinds)
        if what:
            stems = [name.removesuffix(".csv") for name in names]
            target = stems[0] if is_command(maker) else maker
            found.append(
                f"{maker} ({', '.join(stems)}): {', '.join(what)}; make verify PAGE={target}"
            )
    return found + [f"{m}: noted, but records nothing" for m in sorted(notes.keys() - makers)]


def _changes(
    root: Path,
    maker: str,
    before: Mapping[str, Any] | None,
    sources: Sources,
    kinds: Sequence[str],
) -> list[str]:
    try:
        now = digests(root, maker, sources)
    except ValueError as error:
        return [str(error)]
    if _sources_when_recorded(root, now["tables"]) == {_source_of(now)}:
        return []  # recorded by the code of today
    if before is None:
        return ["it was never verified"]
    what = ["its code"] if before["code"] != now["code"] else []
    return what + [name for kind in kinds for name in changed(before[kind], now[kind])]


def _source_of(made_from: Mapping[str, Any]) -> str:
    """The digest that provenance has of the code in :func:`digests`."""
    return Uses(*(made_from[name] for name in Uses._fields)).source_sha256


def _sources_when_recorded(root: Path, names: Iterable[str]) -> set[str]:
    origins = (table_path(root, name).with_suffix(".json") for name in names)
    return {json.loads(path.read_text(encoding="utf-8"))["source_sha256"] for path in origins}
