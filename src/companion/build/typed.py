"""Values that a page types where it must compute them: such a check cannot fail."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator, Set
from typing import TypeGuard

from companion.claims import OUTCOMES

#: Functions that only change the type of what they are given.
_CASTS = ("bool", "int", "float", "str", "round", "abs", "len", "all", "any")


def typed_values(source: str) -> list[tuple[int, str]]:
    """Find values that were typed where a page must compute them.

    A verdict that was typed, or that is read back from a name to which the page only ever assigns
    constants, cannot fail. The same goes for evidence of which no number was computed; one number
    that describes the run, such as a size, may stand beside computed ones. Of all code of a page
    (:func:`companion.page_code.code_of_page`) the lines of faults are given, counted from 1.

    >>> typed_values("claims.check('thesis:1', printed=True, ratio=worst())")
    [(1, 'thesis:1: printed= was typed, not computed')]
    """
    tree = ast.parse(source)
    constants = _constant_names(tree)
    faults = []
    for call in ast.walk(tree):
        if not _is_check(call):
            continue
        first = call.args[0] if call.args else None
        claim_id = str(first.value) if isinstance(first, ast.Constant) else "a claim"
        evidence = []
        for keyword in call.keywords:
            if keyword.arg in OUTCOMES:
                if _is_typed(keyword.value, constants):
                    what = f"{claim_id}: {keyword.arg}= was typed, not computed"
                    faults.append((keyword.value.lineno, what))
            elif keyword.arg != "scale":
                evidence.append(keyword.value)
        if evidence and all(_is_typed(value, constants) for value in evidence):
            faults.append((call.lineno, f"{claim_id}: no number of its evidence was computed"))
    return sorted(faults)


def _is_check(node: ast.AST) -> TypeGuard[ast.Call]:
    if not isinstance(node, ast.Call):
        return False
    name = node.func.attr if isinstance(node.func, ast.Attribute) else None
    return name == "check" and ast.unparse(node.func).split(".")[-2] == "claims"


def _constant_names(tree: ast.AST) -> set[str]:
    """Names that the code binds by plain assignments of constants and in no other way."""
    plain: dict[str, list[ast.expr]] = {}
    bound: Counter[str] = Counter()
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load):
            bound[node.id] += 1
        elif isinstance(node, ast.arg):
            bound[node.arg] += 1
        elif isinstance(node, ast.FunctionDef | ast.ClassDef):
            bound[node.name] += 1
        elif isinstance(node, ast.alias):
            bound[(node.asname or node.name).split(".")[0]] += 1
        if isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None:
            for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
                for name, value in _pairs(target, node.value):
                    plain.setdefault(name, []).append(value)
    # Different constants, chosen where the code branches, say what the branches found.
    candidates = {
        name
        for name, values in plain.items()
        if len(values) == bound[name] and len({ast.dump(value) for value in values}) == 1
    }
    while True:  # a name of names, until nothing changes
        typed = {n for n in candidates if all(_is_typed(v, candidates) for v in plain[n])}
        if typed == candidates:
            return candidates
        candidates = typed


def _pairs(target: ast.expr, value: ast.expr) -> Iterator[tuple[str, ast.expr]]:
    if isinstance(target, ast.Name):
        if not any(isinstance(node, ast.List | ast.Dict | ast.Set) for node in ast.walk(value)):
            yield target.id, value  # what can be filled later is not a constant
    elif isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple):
        for left, right in zip(target.elts, value.elts, strict=False):
            yield from _pairs(left, right)


def _is_typed(value: ast.expr, constants: Set[str]) -> bool:
    """Whether an expression contains nothing but constants, and names of constants."""
    for node in ast.walk(value):
        if isinstance(node, ast.Name):
            if node.id not in constants and node.id not in _CASTS:
                return False
        elif isinstance(node, ast.Call):
            if not isinstance(node.func, ast.Name) or node.func.id not in _CASTS:
                return False
        elif isinstance(node, ast.Attribute | ast.comprehension | ast.Lambda):
            return False
    return True
