"""Two maps of the house for contributors: its parts, and which imports which.

They are made from the imports of the source files themselves
(:class:`companion.dependencies.Sources`), with every part's first sentence and number of lines.
A part is a module or a package directly below ``dprl``, ``experiments`` or
``companion``, and ``companion.build``. An arrow leads down, to what is imported; one that
follows from others is left out.
"""

from __future__ import annotations

import ast
import functools
import graphlib
import html
from collections.abc import Mapping, Sequence, Set
from pathlib import Path

from companion.build import times
from companion.dependencies import Sources, sources_of

#: The three packages with what each is; none imports one that stands before it.
PACKAGES = {
    "experiments": "the studies of the chapters",
    "dprl": "the science",
    "companion": "the book's plumbing",
}

_WIDTH, _HEIGHT = 128, 28  # of a part's box
_GAP, _RISE = 5, 72  # between boxes of a layer; from layer to layer

Graph = Mapping[str, Set[str]]


def part_of(module: str) -> str | None:
    """Part that a module belongs to; None for packages themselves and what is private.

    >>> part_of("dprl.privacy.audit"), part_of("dprl._validation"), part_of("dprl")
    ('dprl.privacy', None, None)
    """
    names = module.split(".")[:2]
    return None if len(names) < 2 or names[1].startswith("_") else ".".join(names)


def imports_of(sources: Sources) -> dict[str, set[str]]:
    """Each part of the repository with the parts that it imports."""
    found: dict[str, set[str]] = {}
    for package in PACKAGES:
        for module in sources.modules_below(package):
            part = part_of(module)
            if part is None:
                continue
            used = found.setdefault(part, set())
            for unit in sources.module(module).units:
                source, name = unit.origin or ("", "")
                target = next((t for t in (f"{source}.{name}", source) if t in sources), "")
                used.add(part_of(target) or part)
    return {part: used & found.keys() - {part} for part, used in found.items()}


def layers(graph: Graph) -> dict[str, int]:
    """How high each part stands: above everything that it imports.

    A circle of imports is a ``ValueError``.

    >>> layers({"a": {"b", "c"}, "b": {"c"}, "c": set()})
    {'c': 0, 'b': 1, 'a': 2}
    """
    found: dict[str, int] = {}
    try:
        for part in graphlib.TopologicalSorter(graph).static_order():
            found[part] = max((found[used] + 1 for used in graph[part]), default=0)
    except graphlib.CycleError as error:
        raise ValueError(f"a circle of imports: {' -> '.join(error.args[1])}") from None
    return found


def direct(graph: Graph) -> dict[str, set[str]]:
    """The graph without arrows that follow from others.

    >>> direct({"a": {"b", "c"}, "b": {"c"}, "c": set()})
    {'a': {'b'}, 'b': {'c'}, 'c': set()}
    """

    @functools.cache
    def below(part: str) -> frozenset[str]:
        return frozenset(graph[part]).union(*map(below, graph[part]))

    return {
        part: {u for u in used if not any(u in below(other) for other in used)}
        for part, used in graph.items()
    }


def shown(graph: Graph, *packages: str, whole: str = "") -> dict[str, set[str]]:
    """The parts of some packages, with what they import of each other; ``whole`` is one part.

    >>> shown({"a.b": {"a.c", "d.e"}, "a.c": set(), "d.e": set()}, "a", "d", whole="a")
    {'a': {'d.e'}, 'd.e': set()}
    """
    found: dict[str, set[str]] = {}
    for part, used in graph.items():
        package = part.partition(".")[0]
        if package in packages:
            found.setdefault(package if package == whole else part, set()).update(used)
    return {part: used & found.keys() for part, used in found.items()}


def places(graph: Graph) -> dict[str, tuple[float, float]]:
    """Middle of each part's box: package below package, in each a row for each layer.

    In a row the order follows the middle of what the parts import, so that few arrows cross.
    """
    rows: list[tuple[float, list[str]]] = []
    y = 0.0
    for package in PACKAGES:
        parts = {part for part in graph if part.partition(".")[0] == package}
        heights = layers({part: graph[part] & parts for part in parts})
        for height in sorted(set(heights.values()), reverse=True):
            rows.append((y, [part for part in heights if heights[part] == height]))
            y += _RISE
        y += _RISE / 2 if parts else 0  # room for the next title
    width = max(len(row) for _, row in rows) * (_WIDTH + _GAP)
    found: dict[str, tuple[float, float]] = {}
    for y, row in reversed(rows):
        known = {p: [found[u][0] for u in graph[p] if u in found] for p in row}
        row.sort(key=lambda p: (sum(known[p]) / max(len(known[p]), 1), p))
        start = (width - len(row) * (_WIDTH + _GAP)) / 2
        for place, part in enumerate(row):
            found[part] = (start + (place + 0.5) * (_WIDTH + _GAP), y)
    return found


def draw(graph: Graph) -> str:
    """A map as an SVG that takes the colours of the page around it."""
    at = places(graph)
    right = max(x for x, _ in at.values()) + _WIDTH / 2 + _GAP
    bottom = max(y for _, y in at.values()) + _HEIGHT
    said = f"{len(graph)} parts of the house; every arrow leads down, to what is imported"
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 -50 {right:.0f} {bottom + 50:.0f}" '
        f'role="img" aria-label="{said}" style="min-width: 42rem; width: 100%" '
        'font-family="inherit" font-size="13" fill="currentColor" stroke="none">',
        '<defs><marker id="to" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="7" '
        'markerHeight="7" orient="auto"><path d="M0 0 8 4 0 8z" fill="currentColor"/>'
        "</marker></defs>",
    ]
    for part, used in direct(graph).items():
        x, y = at[part]
        for to in sorted(used):
            u, v = at[to]
            top, end = y + _HEIGHT / 2, v - _HEIGHT / 2
            lines.append(
                f'<path d="M{x:.0f} {top:.0f} C{x:.0f} {top + 36:.0f} {u:.0f} {end - 36:.0f} '
                f'{u:.0f} {end:.0f}" fill="none" stroke="currentColor" stroke-opacity=".45" '
                'marker-end="url(#to)"/>'
            )
    for part, (x, y) in at.items():
        package, _, name = part.partition(".")
        dash = {"companion": "4 3", "experiments": "1 3"}.get(package, "none")
        lines.append(
            f'<rect x="{x - _WIDTH / 2:.0f}" y="{y - _HEIGHT / 2:.0f}" width="{_WIDTH}" '
            f'height="{_HEIGHT}" rx="5" stroke="currentColor" '
            f'stroke-dasharray="{dash}" style="fill: var(--pst-color-background, white)"/>'
            f'<text x="{x:.0f}" y="{y + 5:.0f}" text-anchor="middle">'
            f"{html.escape(name or package)}</text>"
        )
    for package, what in PACKAGES.items():
        highest = min(
            (y for part, (_, y) in at.items() if part.startswith(f"{package}.")), default=None
        )
        if highest is not None:
            lines.append(
                f'<text x="0" y="{highest - 26:.0f}" font-weight="bold">'
                f"{package}: {html.escape(what)}</text>"
            )
    return "\n".join([*lines, "</svg>"])


def lines_of(root: Path) -> dict[str, int]:
    """Lines of source of each part, private modules counted with their part or not at all."""
    found: dict[str, int] = {}
    for path in sorted((root / "src").rglob("*.py")):
        parts = path.relative_to(root / "src").with_suffix("").parts
        part = part_of(".".join(p for p in parts if p != "__init__"))
        if part is not None:
            found[part] = found.get(part, 0) + len(path.read_text(encoding="utf-8").splitlines())
    return found


def first_sentence(root: Path, part: str) -> str:
    """The first line of a part's documentation."""
    path = root / "src" / Path(*part.split("."))
    path = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
    text = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
    return text.partition("\n")[0]


def page(root: Path, pages: Sequence[str] = ()) -> str:
    """The page for contributors, as MyST markdown; a circle of imports is a ``ValueError``.

    ``pages`` are those that ``make book`` executes.
    """
    graph, lines = imports_of(sources_of(root)), lines_of(root)
    maps = {
        "Map of the science and its studies": shown(graph, "experiments", "dprl"),
        "Map of the plumbing": shown(graph, "experiments", "companion", whole="experiments"),
    }
    text = [_INTRODUCTION]
    for title, parts_shown in maps.items():
        text += ["```{raw} html", '<div style="overflow-x: auto; margin-bottom: 2rem"']
        text += [f'tabindex="0" role="region" aria-label="{title}">']
        text += [draw(parts_shown), "</div>", "```", ""]
    for package, what in PACKAGES.items():
        parts = sorted(part for part in graph if part.startswith(f"{package}."))
        total = sum(lines[part] for part in parts)
        text += ["", f"## `{package}`: {what}", "", f"{total:,} lines of source.", ""]
        text += [":::{list-table}", ":header-rows: 1", ":widths: 30 56 14", ""]
        text += ["* - Part\n  - What it is\n  - Lines"]
        for part in parts:
            said = first_sentence(root, part).replace("|", "\\|").replace("$", "\\$")
            text += [f"* - `{part.partition('.')[2]}`\n  - {said}\n  - {lines[part]:,}"]
        text += [":::"]
    return "\n".join([*text, *times.section(root, pages)]) + "\n"


_INTRODUCTION = """\
# The house, for contributors

These maps are drawn from the imports of the source files, each time the site is built. An arrow
leads down, to what is imported; one that follows from others is left out. There are no circles.
Imports inside `dprl` go one way too: reinforcement learning and privacy know nothing of each
other, and `private_evaluation` and `bounds` know both. `dprl` knows neither neighbour, and
`companion` knows no science; `make test` checks it. `CONTRIBUTING.md`, at the root of the
repository, has the rules of the house and the way to a new page.
"""
