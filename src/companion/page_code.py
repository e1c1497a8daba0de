"""The code of a page: its cells, and what of them computes the tables that it records.

Of a page that records tables only the code up to the last of them counts, and no statement
that only prints, draws or checks a claim.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Sequence

#: They show what was computed; a statement of a page that only calls them does not count.
_SHOWING = frozenset({"card", "claims", "exercise", "figures"})


def code_of_page(page: str) -> str:
    """The code of a page's cells, on the lines where it stands in the page.

    >>> code_of_page("# Title\\n```{code-cell} ipython3\\n:tags: [x]\\nx = 1\\n```\\n").splitlines()
    ['', '', '', 'x = 1', '']
    """
    lines, inside, options = [], False, False
    for line in page.splitlines():
        if line.startswith("```{code-cell}"):
            inside, options, kept = True, False, ""
        elif inside and line == "```":
            inside, kept = False, ""
        elif inside and line == "---":
            options, kept = not options, ""
        else:
            kept = line if inside and not options and not line.startswith((":", "%", "!")) else ""
        lines.append(kept)
    return "\n".join(lines) + "\n"


def code_cells(page: str) -> list[str]:
    """Source of each code cell of a page, in order."""
    found: list[list[str]] = []
    for line, kept in zip(page.splitlines(), code_of_page(page).splitlines(), strict=True):
        if line.startswith("```{code-cell}"):
            found.append([])
        elif found:
            found[-1].append(kept)
    return ["\n".join(lines).strip("\n") for lines in found]


def recording_cells(cells: Sequence[str], tables: Iterable[str] | None = None) -> int:
    """How many code cells a page needs to record its tables: all up to the last that saves one.

    ``cells`` are their sources, in order. If ``tables`` are named, a cell that saves only others,
    by literal names, does not count. Without a cell that counts it is 0.
    """
    wanted = None if tables is None else set(tables)
    last = 0
    for number, source in enumerate(cells, 1):
        for call in ast.walk(ast.parse(source)):
            if not (isinstance(call, ast.Call) and _called(call) == ("records", "save")):
                continue
            name = call.args[0] if call.args else None
            literal = name.value if isinstance(name, ast.Constant) else None
            if wanted is None or literal is None or literal in wanted:
                last = number
    return last


def recording_tree(cells: Sequence[str]) -> ast.Module:
    """The code of a page's cells that computes its recorded tables, as one program."""
    body: list[ast.stmt] = []
    for source in cells[: recording_cells(cells)]:
        body += [s for s in ast.parse(source).body if not _only_shows(s)]
    return ast.Module(body=body, type_ignores=[])


def _called(call: ast.Call) -> tuple[str, str]:
    """Owner and name of what is called, ``("", name)`` without an owner."""
    if isinstance(call.func, ast.Attribute) and isinstance(call.func.value, ast.Name):
        return call.func.value.id, call.func.attr
    return "", call.func.id if isinstance(call.func, ast.Name) else ""


def _only_shows(statement: ast.stmt) -> bool:
    if isinstance(statement, ast.Assert):
        return True
    if not (isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call)):
        return False
    owner, name = _called(statement.value)
    return owner in _SHOWING or (owner, name) == ("", "print")
