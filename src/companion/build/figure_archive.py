"""Every figure of the book for lectures, in one archive by chapter: ``make figures``.

``figures.zip`` holds of each figure that a page has drawn

``<chapter>/<page>--<figure>.svg``, ``.png``
    the figure as it stands on a screen, to scale and to paste;
``<chapter>/<page>--<figure>.txt``
    its caption, a description, the page, its licence, and which tables it was drawn from;

and ``<chapter>/data`` with those tables, each with the file that says where it came from: all that
the code of the figure uses. A figure without a table is drawn from formulas, or from what its page
computes and does not record.
"""

from __future__ import annotations

import ast
import json
import re
import sys
import zipfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from companion.build import executed, freshness, notebooks, plain
from companion.files import sha256, write_atomic

#: Below the repository.
PLACE = Path("_build/notebooks/figures.zip")

#: Where pixels are kept, by the content of their figure: they take most of the time.
_DRAWN = Path("_build/png")
_ZOOM = 2.0  # 590 points wide are 1574 pixels
_ALT = re.compile(r"\{glue:figure\} (\S+)\n(?::\w+:.*\n)*?:alt: (.+)")
_NO_TABLE = "none recorded: formulas, or what the page computes when it runs"


def tables_of_figures(cells: Sequence[str], known: Iterable[str]) -> dict[str, set[str]]:
    """Which of a page's tables each of its figures is drawn from.

    Beginning with the names in the cell that hands a figure over, it goes back through the
    statements of the page that give these names their values, and collects the tables that they
    name, or that are saved from one of these names. ``cells`` are sources of code cells, in
    order, and ``known`` the tables that the page saves or reads. A figure whose name is computed is
    left out.

    >>> draw = "figures.glue_figure('error', draw(runs))"
    >>> tables_of_figures(["runs = trials()", "records.save('a', runs)", draw], ["a", "b"])
    {'error': {'a'}}
    """
    tables = set(known)
    parsed = [(n, node) for n, cell in enumerate(cells) for node in ast.parse(cell).body]
    statements = [(n, _Statement.read(node)) for n, node in parsed]
    found: dict[str, set[str]] = {}
    for place, statement in statements:
        for figure in statement.figures:
            cell = [other for n, other in statements if n == place]
            needed = set().union(*(other.loaded for other in cell))
            named = set().union(*(other.texts for other in cell))
            for _, before in reversed([s for s in statements if s[0] < place]):
                if needed & before.given:
                    needed |= before.loaded
                    named |= before.texts
            found[figure] = named & tables
    return found


class _Statement(NamedTuple):
    """A statement: figures that it hands over, names it uses, names it gives values, its texts."""

    figures: list[str]
    loaded: set[str]
    given: set[str]
    texts: set[str]

    @classmethod
    def read(cls, node: ast.stmt) -> _Statement:
        return cls(
            list(_handed_over(node)), _loaded(node), _stored(node) | _saved(node), _texts(node)
        )


def _handed_over(node: ast.AST) -> Iterator[str]:
    """Names of the figures that a statement hands over."""
    for call in _calls(node, "glue_figure"):
        if call.args and isinstance(call.args[0], ast.Constant):
            yield str(call.args[0].value)


def _calls(node: ast.AST, name: str) -> Iterator[ast.Call]:
    for call in ast.walk(node):
        function = call.func if isinstance(call, ast.Call) else None
        if isinstance(function, ast.Attribute) and function.attr == name:
            assert isinstance(call, ast.Call)
            yield call


def _saved(node: ast.AST) -> set[str]:
    """Names whose values a statement records."""
    saved = (call.args[1] for call in _calls(node, "save") if len(call.args) > 1)
    return {frame.id for frame in saved if isinstance(frame, ast.Name)}


def _texts(node: ast.AST) -> set[str]:
    constants = (n.value for n in ast.walk(node) if isinstance(n, ast.Constant))
    return {value for value in constants if isinstance(value, str)}


def _loaded(node: ast.AST) -> set[str]:
    return {n.id for n in ast.walk(node) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load)}


def _stored(node: ast.AST) -> set[str]:
    if isinstance(node, ast.Import | ast.ImportFrom):
        return set()  # what it names is no data
    if isinstance(node, ast.FunctionDef | ast.ClassDef):
        return {node.name}
    stored = {
        n.id for n in ast.walk(node) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)
    }
    for n in ast.walk(node):  # frame["x"] = ... and frame.x = ... change the frame
        if isinstance(n, ast.Subscript | ast.Attribute) and isinstance(n.ctx, ast.Store):
            base: ast.expr = n
            while isinstance(base, ast.Subscript | ast.Attribute):
                base = base.value
            stored |= {base.id} if isinstance(base, ast.Name) else set()
    return stored


def recorded(root: Path, page: str) -> dict[str, Path]:
    """The tables that the execution of a page read or recorded, by name.

    Of a table in several sizes it is the one that was read: it stands behind what is shown.
    """
    stamp: Mapping[str, Any] = (
        freshness.read_stamp(freshness.product_path(root, page, "stamp.json")) or {}
    )
    files = [*stamp.get("outputs", ()), *stamp.get("inputs", {}).get("read", ())]
    tables = [root / name for name in files if name.startswith("data/results/")]
    # a page may have looked for a table that is not there
    return {path.stem: path for path in tables if path.suffix == ".csv" and path.is_file()}


def write(root: Path, pages: Sequence[str]) -> Path:
    """Write the archive of these executed pages, and return its path."""
    names = plain.names_of_book(root, pages)
    path = root / PLACE
    path.parent.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        there: set[str] = set()
        for page in pages:
            for name, content in _of_page(root, page, names):
                if name not in there:
                    archive.writestr(zipfile.ZipInfo(name), content, zipfile.ZIP_DEFLATED)
                    there.add(name)
    return path


def _of_page(root: Path, page: str, names: plain.Names) -> Iterator[tuple[str, str | bytes]]:
    """Names and contents of a page's files in the archive."""
    notebook = freshness.product_path(root, page, "ipynb")
    cells = json.loads(notebook.read_text(encoding="utf-8"))["cells"]
    found, tables = executed.page_of(cells), recorded(root, page)
    code = ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]
    drawn_from = tables_of_figures([_python(cell) for cell in code], tables)
    text = "\n\n".join("".join(c["source"]) for c in cells if c["cell_type"] == "markdown")
    captions = plain.plain(text, names, found.numbers, page)[1]
    chapter = page.rpartition("/")[0]
    for name, drawn in found.figures.items():
        if name.endswith("-narrow"):
            continue
        used = sorted(drawn_from.get(name, {t for t in tables if name.startswith(t)}))
        stem = f"{page}--{name}"
        yield f"{stem}.svg", drawn
        yield f"{stem}.png", png(drawn, root / _DRAWN)
        yield (
            f"{stem}.txt",
            _TEXT.format(
                caption=captions.get(name, ""),
                description=dict(_ALT.findall(text)).get(name, ""),
                title=found.title,
                page=page,
                data=", ".join(f"data/{table}.csv" for table in used) or _NO_TABLE,
            ),
        )
        for table in used:
            for suffix in (".csv", ".json"):
                kept = tables[table].with_suffix(suffix)
                yield f"{chapter}/data/{table}{suffix}", kept.read_bytes()


def png(drawn: str, kept: Path) -> bytes:
    """A figure in pixels; it is drawn only if the folder ``kept`` does not have it yet."""
    path = kept / f"{sha256(drawn.encode())[:24]}.png"
    if not path.is_file():
        from resvg_py import svg_to_bytes

        pixels = svg_to_bytes(
            svg_string=drawn, dpi=96, zoom=_ZOOM, background="white", skip_system_fonts=True
        )
        write_atomic(path, pixels)
    return path.read_bytes()


def _python(cell: str) -> str:
    return "\n".join(line for line in cell.splitlines() if not line.startswith(("%", "!")))


_TEXT = """\
{caption}

Description: {description}
Page: {title} ({page})
Data: {data}
Licence: CC BY 4.0, "On Privacy for Reinforcement Learning: an executable companion"
"""


def main() -> int:
    """Write the archive and say where it is; 1 if a page has not been executed."""
    from companion.build import site  # which uses this module

    root = Path.cwd().resolve()
    pages = site.pages(root)
    missing = [p for p in pages if not freshness.product_path(root, p, "ipynb").is_file()]
    if missing:
        print(f"not executed yet: {', '.join(missing)}; run make book", file=sys.stderr)
        return 1
    path = write(root, pages)
    notebooks.say_sizes(root, [path])
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
