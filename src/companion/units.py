"""A program read as units: what is defined at its top level, what that means and mentions.

A unit is a function, a class, an assigned name or an imported name; any other statement at the
top level is a unit that always counts. Its digest sees what it means and not how it is written:
comments, documentation, line breaks and annotations of parameters do not count.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import Any, NamedTuple

from .files import sha256

SHORT = 16  # hexadecimal digits of a digest that are kept
_DROPPED = frozenset({"annotation", "returns", "type_comment", "kind", "ctx", "type_params"})
_NOTHING = ("NoneType", "None")


# -- meaning of a program -----------------------------------------------------------------


def digest_of(tree: ast.AST) -> str:
    """Digest of a program's meaning, the same in every version of Python.

    >>> one = digest_of(ast.parse("def f(x):\\n    'Twice x.'\\n    return 2 * x  # doubled"))
    >>> one == digest_of(ast.parse("def f(x: int) -> int: return (2*x)"))
    True
    >>> one == digest_of(ast.parse("def f(x): return 3 * x"))
    False
    """
    return sha256(repr(_plain(tree)).encode())[:SHORT]


def _plain(node: object) -> object:
    if isinstance(node, list):
        return [_plain(n) for n in node if not _is_text(n)]
    if not isinstance(node, ast.AST):
        return (type(node).__name__, repr(node))
    fields = ((name, _plain(value)) for name, value in _meaningful(node))
    # an empty field may be left out, or be named by a newer Python only
    return (type(node).__name__, [(n, v) for n, v in fields if v not in ([], _NOTHING)])


def _meaningful(node: ast.AST) -> Iterator[tuple[str, Any]]:
    """Fields that count: of a dataclass's field the annotation does, of a parameter not."""
    for name, value in ast.iter_fields(node):
        if isinstance(node, ast.JoinedStr):  # Python 3.12.1 puts empty texts between the parts
            value = [n for n in value if not (isinstance(n, ast.Constant) and n.value == "")]
        if name not in _DROPPED or (isinstance(node, ast.AnnAssign) and name != "ctx"):
            yield name, value


def _is_text(node: object) -> bool:
    """Whether a statement is a text that nobody uses: documentation."""
    return (
        isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
    )


def _mentioned(node: object) -> Iterator[str]:
    """Names that a program mentions, each with the attributes that follow it: ``a.b.c``."""
    if isinstance(node, list):
        for item in node:
            yield from () if _is_text(item) else _mentioned(item)
    elif isinstance(node, ast.Name):
        yield node.id
    elif isinstance(node, ast.Attribute):
        attributes: list[str] = []
        inner: ast.expr = node
        while isinstance(inner, ast.Attribute):
            attributes.append(inner.attr)
            inner = inner.value
        if isinstance(inner, ast.Name):
            yield ".".join([inner.id, *reversed(attributes)])
        else:
            yield from _mentioned(inner)
    elif isinstance(node, ast.AST):
        for _, value in _meaningful(node):
            yield from _mentioned(value)


# -- units --------------------------------------------------------------------------------


class Unit(NamedTuple):
    """A piece of a module that is reached as a whole.

    ``names`` are what it defines, and ``uses`` the names of the same module that it mentions, with
    attributes. ``always`` says whether it counts as soon as its module is imported, and ``digest``
    what it means; it is empty for an import inside a function, which counts there, and for one that
    only the type checker executes. ``origin`` of an imported name is the module, and the name in it
    (empty: the module itself).
    """

    names: tuple[str, ...]
    always: bool
    digest: str
    uses: tuple[str, ...]
    origin: tuple[str, str] | None = None


def units_of(tree: ast.Module, module: str = "", package: bool = False) -> list[Unit]:
    """Read a program as units; its name and whether it is an ``__init__`` are for relative imports.

    >>> for unit in units_of(ast.parse("from m import f as g\\nx = g(1)\\nprint(x)")):
    ...     print(unit.names, unit.always, unit.uses, unit.origin)
    ('g',) False () ('m', 'f')
    ('x',) False ('x', 'g') None
    () True ('x',) None
    """
    found: list[Unit] = []
    for statement in tree.body:
        if _is_text(statement):
            continue
        if _for_types(statement):  # never executed, and says where lazy names come from
            found += _all_imports(statement, module, package, "")
            continue
        if isinstance(statement, ast.Import | ast.ImportFrom):
            found += _imports(statement, module, package, digest_of(statement))
            continue
        names = _defined(statement)
        always = names is None
        if names is None:  # what a conditional statement defines counts with it
            names = {n.id for n in ast.walk(statement) if isinstance(n, ast.Name) and _is_stored(n)}
            names |= {n.name for n in ast.walk(statement) if isinstance(n, _DEFINITIONS)}
        uses = tuple(dict.fromkeys(_mentioned(statement)))
        found.append(Unit(tuple(sorted(names)), always, digest_of(statement), uses))
        found += _all_imports(statement, module, package, "")
    own = {name for unit in found for name in unit.names}
    return [u._replace(uses=tuple(x for x in u.uses if x.split(".")[0] in own)) for u in found]


_DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)


def _defined(statement: ast.stmt) -> set[str] | None:
    """Names that a statement defines and does nothing else; None if it may do more."""
    if isinstance(statement, _DEFINITIONS):
        registers = any(
            isinstance(n, ast.Attribute) and n.attr == "register"
            for decorator in statement.decorator_list
            for n in ast.walk(decorator)
        )
        return None if registers else {statement.name}
    if isinstance(statement, ast.Assign):
        targets = statement.targets
    elif isinstance(statement, ast.AnnAssign):
        targets = [statement.target]
    else:
        return None
    parts = [p for t in targets for p in (t.elts if isinstance(t, ast.Tuple) else [t])]
    names = {part.id for part in parts if isinstance(part, ast.Name)}
    return names if len(names) == len(parts) else None


def _is_stored(name: ast.Name) -> bool:
    return isinstance(name.ctx, ast.Store)


def _for_types(statement: ast.stmt) -> bool:
    """Whether a statement is for the type checker only."""
    test = statement.test if isinstance(statement, ast.If) else None
    return isinstance(test, ast.Name) and test.id == "TYPE_CHECKING"


def _all_imports(tree: ast.AST, module: str, package: bool, digest: str) -> Iterator[Unit]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import | ast.ImportFrom):
            yield from _imports(node, module, package, digest)


def _imports(
    node: ast.Import | ast.ImportFrom, module: str, package: bool, digest: str
) -> Iterator[Unit]:
    """One unit for each name that an import binds."""
    source = getattr(node, "module", None) or ""
    if isinstance(node, ast.ImportFrom) and node.level:
        parts = module.split(".")
        above = parts[: len(parts) - node.level + package]
        source = ".".join([*above, *([source] if source else [])])
    for alias in node.names:
        bound = alias.asname or alias.name.split(".")[0]
        if isinstance(node, ast.ImportFrom):
            origin = (source, alias.name)
        else:
            origin = (alias.name if alias.asname else bound, "")
        meaning = digest and sha256(f"{origin} {bound}".encode())[:SHORT]
        yield Unit((bound,), False, meaning, (), origin)


def program_of(tree: ast.AST) -> list[Unit]:
    """A page, or another program that nobody imports, as one unit and what it imports."""
    found = list(_all_imports(tree, "", False, "program"))
    own = {name for unit in found for name in unit.names}
    uses = dict.fromkeys(use for use in _mentioned(tree) if use.split(".")[0] in own)
    return [Unit((), True, "program", tuple(uses)), *found]
