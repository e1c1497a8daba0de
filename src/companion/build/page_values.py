"""The code of a page, as mutation needs it: what a check rests on, and where values appear."""

from __future__ import annotations

import ast
from collections.abc import Sequence


def words_behind(cells: Sequence[str], cell: int, claim_id: str) -> set[str]:
    """Names in the code that a claim's check rests on, statement by statement backwards.

    Of the code cells of a page it is the one at the place ``cell`` that checks the claim. Names of
    functions and attributes are among them, and some perhaps in vain.

    >>> cells = ["a = f()", "b = a", "c = g(); claims.check('t:1', printed=b < 1)"]
    >>> sorted(words_behind(cells, 2, "t:1"))
    ['a', 'b', 'check', 'claims', 'f']
    """
    behind: set[str] = set()
    for place in range(cell, -1, -1):
        try:
            statements = ast.parse(cells[place]).body
        except SyntaxError:  # a line of IPython's
            continue
        for statement in reversed(statements):
            stored, words, texts = _names_in(statement)
            checks = place == cell and claim_id in texts
            if checks or stored & behind:
                behind |= words
    return behind


def _names_in(statement: ast.stmt) -> tuple[set[str], set[str], set[object]]:
    """Names that a statement may change, all its words, and its texts."""
    stored: set[str] = set()
    words: set[str] = set()
    texts: set[object] = set()
    for node in ast.walk(statement):
        if isinstance(node, ast.Constant):
            texts.add(node.value)
        elif isinstance(node, ast.FunctionDef | ast.ClassDef):
            stored.add(node.name)
        elif isinstance(node, ast.Name):
            words.add(node.id)
        elif isinstance(node, ast.Attribute):
            words.add(node.attr)
        if isinstance(node, ast.Name | ast.Attribute | ast.Subscript):
            # x.append(...), x[...] = ..., x.y = ...: x may be another one afterwards
            changed = not isinstance(node.ctx, ast.Load) or getattr(node, "attr", "") in _CHANGING
            inner: ast.expr = node
            while isinstance(inner, ast.Attribute | ast.Subscript):
                inner = inner.value
            if isinstance(inner, ast.Name) and changed:
                stored.add(inner.id)
    return stored, words, texts


#: Methods that change what they belong to.
_CHANGING = {"append", "extend", "add", "update", "setdefault", "insert", "sort"}


class Asserts(ast.NodeTransformer):
    """Send what a page asserts through ``__assert__``."""

    def visit_Assert(self, node: ast.Assert) -> ast.Assert:
        """Change one assertion."""
        node.test = ast.Call(ast.Name("__assert__", ast.Load()), [node.test], [])
        return ast.fix_missing_locations(node)


class Values(ast.NodeTransformer):
    """Send what a page assigns, and what its own functions return, through ``__value__``."""

    def visit_Module(self, node: ast.Module) -> ast.Module:
        """Change the statements of a cell."""
        for statement in node.body:
            self._through(statement)
        return ast.fix_missing_locations(node)

    def _through(self, node: ast.stmt) -> None:
        stored = ast.Name | ast.Tuple | ast.Subscript
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], stored):
            if isinstance(node.targets[0], ast.Tuple) and isinstance(node.value, ast.GeneratorExp):
                # taken apart at once; a list of it holds numbers
                node.value = ast.ListComp(node.value.elt, node.value.generators)
            node.value = _seen_by(ast.unparse(node.targets[0]), node.value)
        elif isinstance(node, ast.FunctionDef):
            for inner in ast.walk(node):
                if isinstance(inner, ast.Return) and inner.value is not None:
                    inner.value = _seen_by(f"{node.name}()", inner.value)
        elif isinstance(node, ast.For | ast.With | ast.If | ast.While):
            for statement in node.body:
                self._through(statement)


def _seen_by(name: str, value: ast.expr) -> ast.expr:
    call = ast.Call(ast.Name("__value__", ast.Load()), [ast.Constant(f"page: {name}"), value], [])
    return ast.copy_location(call, value)
