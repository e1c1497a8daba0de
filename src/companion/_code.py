"""What a recorded table was computed by: a page's code, and the modules that it uses.

Digests of both say whether a table is older than its code, without computing it again. They
see what a program means and not how it is written: comments, documentation, line breaks and
annotations of parameters do not count; of a page only the code up to its last recorded table
counts, and no statement that only prints, draws or checks a claim. Which modules a page uses
is found without importing any: a name that a package's ``__init__`` takes from a module leads
to that module, and not to all that the package holds.
"""

from __future__ import annotations

import ast
import functools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from .files import sha256

#: They show what was computed; a statement of a page that only calls them does not count.
_SHOWING = frozenset({"card", "claims", "figures"})
#: They write tables and compare them, and compute nothing.
_KEEPING = frozenset({"files", "records"})
_SHORT = 16  # hexadecimal digits of a digest that are kept
_DROPPED = frozenset({"annotation", "returns", "type_comment", "kind", "ctx", "type_params"})


def digest_of(tree: ast.AST) -> str:
    """Digest of a program's meaning, the same in every version of Python.

    >>> one = digest_of(ast.parse("def f(x):\\n    'Twice x.'\\n    return 2 * x  # doubled"))
    >>> one == digest_of(ast.parse("def f(x: int) -> int: return (2*x)"))
    True
    >>> one == digest_of(ast.parse("def f(x): return 3 * x"))
    False
    """
    return sha256(repr(_plain(tree)).encode())[:_SHORT]


def _plain(node: object) -> object:
    if isinstance(node, list):
        kept = (n for n in node if not _is_text(n))
        return [_plain(n) for n in kept]
    if not isinstance(node, ast.AST):
        return (type(node).__name__, repr(node))
    fields = (
        (name, _plain(value))
        for name, value in ast.iter_fields(node)
        # of a dataclass's field the annotation counts, of a parameter it does not
        if (name not in _DROPPED or isinstance(node, ast.AnnAssign)) and name != "ctx"
    )
    # an empty field may be left out, or be named by a newer Python only
    return (type(node).__name__, [(n, v) for n, v in fields if v not in ([], _NOTHING)])


_NOTHING = ("NoneType", "None")


def _is_text(node: object) -> bool:
    """Whether a statement is a text that nobody uses: documentation."""
    return (
        isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
    )


# -- pages ------------------------------------------------------------------------------


def recording_cells(cells: Sequence[str], tables: Iterable[str] | None = None) -> int:
    """How many code cells a page needs to record its tables: all up to the last that saves one.

    Parameters
    ----------
    cells : sequence of str
        Source of each code cell, in order.
    tables : iterable of str, optional
        Names of tables; a cell that saves only others, by literal names, does not count.

    Returns
    -------
    int
        Number of cells, 0 if no cell records one of the tables.
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


def page_tree(cells: Sequence[str]) -> ast.Module:
    """The code that computes a page's recorded tables, as one program.

    Parameters
    ----------
    cells : sequence of str
        Source of each code cell, in order.
    """
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


# -- modules ----------------------------------------------------------------------------


class Package:
    """The modules of a package, read and never imported.

    Parameters
    ----------
    folder : Path
        What holds the packages, for example ``src``.
    """

    def __init__(self, folder: Path) -> None:
        self._paths: dict[str, Path] = {}
        for path in folder.rglob("*.py"):
            parts = path.relative_to(folder).with_suffix("").parts
            self._paths[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
        self._showing = {f"companion.{name}" for name in _SHOWING | _KEEPING}
        # per object, so that a test's small package does not stay in memory
        self.tree = functools.cache(self._tree)
        self.digest = functools.cache(self._digest)
        self._needs = functools.cache(self._needs_of)

    def _tree(self, module: str) -> ast.Module:
        return ast.parse(self._paths[module].read_bytes())

    def _digest(self, module: str) -> str:
        return digest_of(self.tree(module))

    def _needs_of(self, module: str) -> frozenset[str]:
        return frozenset(self.direct(self.tree(module), module))

    def _is_package(self, module: str) -> bool:
        return self._paths[module].name == "__init__.py"

    def used(self, tree: ast.Module) -> list[str]:
        """Modules that a program uses, directly or through others, sorted.

        Parameters
        ----------
        tree : ast.Module
            For example :func:`page_tree`.
        """
        found: set[str] = set()
        waiting = list(self.direct(tree, None))
        while waiting:
            module = waiting.pop()
            if module not in found and module not in self._showing:
                found.add(module)
                waiting += self._needs(module)
        return sorted(found)

    def direct(self, tree: ast.Module, module: str | None) -> set[str]:
        """Modules that a program names in its imports, packages resolved to their parts.

        Parameters
        ----------
        tree : ast.Module
            The program.
        module : str or None
            Its own name, for relative imports; None for a page.
        """
        found: set[str] = set()
        for node in ast.walk(tree):
            if isinstance(node, ast.Import):
                found |= {a.name for a in node.names if a.name in self._paths}
            elif isinstance(node, ast.ImportFrom):
                source = self._source(node, module)
                for alias in node.names if source in self._paths else ():
                    name = f"{source}.{alias.name}"
                    if name in self._paths and self._is_package(name):
                        for attribute in _attributes(tree, alias.asname or alias.name):
                            found |= self._resolve(name, attribute)
                    else:
                        found |= self._resolve(source, alias.name)
        return found - {module}

    def _source(self, node: ast.ImportFrom, module: str | None) -> str:
        if not node.level or module is None:
            return node.module or ""
        parts = module.split(".")
        up = node.level - self._is_package(module)
        return ".".join([*parts[: len(parts) - up], *([node.module] if node.module else [])])

    def _resolve(self, source: str, name: str | None) -> set[str]:
        """The module that defines a name of another; the module itself if in doubt."""
        if f"{source}.{name}" in self._paths:
            return {f"{source}.{name}"}
        if name is None or not self._is_package(source):
            return {source}
        for node in ast.walk(self.tree(source)):  # names that are imported lazily, too
            if isinstance(node, ast.ImportFrom):
                for alias in node.names:
                    origin = self._source(node, source)
                    if (alias.asname or alias.name) == name and origin in self._paths:
                        return self._resolve(origin, alias.name)
        return {source}


def _attributes(tree: ast.AST, name: str) -> Iterator[str | None]:
    """What a program takes from a name; None where it uses the name in another way."""
    inside = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            inside.add(id(node.value))
            if node.value.id == name:
                yield node.attr
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and node.id == name and id(node) not in inside:
            yield None


def changed(before: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """Keys whose values differ, or that only one of the two has, sorted.

    >>> changed({"a": 1, "b": 2}, {"b": 3, "c": 4})
    ['a', 'b', 'c']
    """
    return sorted(k for k in before.keys() | now.keys() if before.get(k) != now.get(k))
