"""Mutants: values that are changed, the functions that give them, and what each of these is."""

from __future__ import annotations

import dataclasses
import importlib
import inspect
import numbers
import pkgutil
import re
import types
from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd

#: The package whose every public function must be seen by a page.
BOUNDS = "dprl.bounds"
#: The packages whose other functions serve to move a claim.
PACKAGES = ("dprl", "experiments")

REQUIRED = ("x 0.5", "x 2")
#: Smaller changes, the smallest first, by direction.
SHARPER = {"x 0.5": ("x 0.95", "x 0.8"), "x 2": ("x 1.052631579", "x 1.25")}
FURTHER = ("x 2", "uneven", "negated")
KINDS = {
    "upper bound": ("x 0.5",),
    "lower bound": ("x 2",),
    "exact": REQUIRED,
    "refuted": REQUIRED,  # one of them suffices
}
_FACTOR = re.compile(r"x ([0-9.]+)")


class MutationError(ValueError):
    """A page, or the list of survivors, is not what it must be."""


# -- changing a value --------------------------------------------------------------------


def mutate(value: Any, mutation: str, turn: int = 0) -> Any:
    """A copy of a value with every number changed.

    The value is a number, a Boolean, or an array, sequence, mapping, dataclass or table of them;
    what holds no number is returned as it is. The mutation is ``x FACTOR``, ``uneven`` or
    ``negated``; another is a :class:`MutationError`. ``turn`` counts the calls of the function, for
    ``uneven``.

    >>> mutate({"a": 1.0, "b": (2, True)}, "x 2")
    {'a': 2.0, 'b': (4, False)}
    >>> [mutate(1.0, "uneven", turn) for turn in range(3)]
    [2.0, 0.5, 2.0]
    """
    match = _FACTOR.fullmatch(mutation)
    if match:
        return _change(value, float(match[1]))
    factors = {"uneven": 0.5 if turn % 2 else 2.0, "negated": -1.0}
    if mutation not in factors:
        raise MutationError(f"no mutation is called {mutation!r}")
    return _change(value, factors[mutation])


def _change(value: Any, factor: float) -> Any:
    if isinstance(value, bool | np.bool_):
        return not value
    if isinstance(value, np.ndarray):
        return _change_array(value, factor)
    if isinstance(value, pd.DataFrame):
        return value.apply(lambda column: _change(column, factor))
    if isinstance(value, pd.Series) and value.dtype == object:  # a row of a table with texts
        return value.map(lambda part: part * factor if isinstance(part, float) else part)
    if isinstance(value, pd.Series) and value.dtype == bool:
        return ~value
    if isinstance(value, pd.Series | pd.Index):
        return value * factor if pd.api.types.is_float_dtype(value.dtype) else value
    if isinstance(value, np.generic):
        return _change_array(np.asarray(value), factor)[()]
    if isinstance(value, numbers.Integral):
        return _whole(int(value), factor)
    if isinstance(value, numbers.Number):
        return value * factor  # type: ignore[operator]
    parts = _parts(value)
    if parts is None:
        return value
    changed = {name: _change(part, factor) for name, part in parts.items()}
    if isinstance(value, Mapping):
        return changed
    if isinstance(value, list | tuple):
        return type(value)(*changed.values() if hasattr(value, "_fields") else [changed.values()])
    copy = object.__new__(type(value))  # its constructor may refuse other numbers
    for name, part in changed.items():
        object.__setattr__(copy, name, part)
    return copy


def _parts(value: Any) -> Mapping[Any, Any] | None:
    """What a mapping, sequence or dataclass holds, by name or place; None of anything else."""
    if isinstance(value, Mapping):
        return value
    if isinstance(value, list | tuple):
        return dict(enumerate(value))
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        slots = {n: getattr(value, n) for n in getattr(type(value), "__slots__", ())}
        return {**getattr(value, "__dict__", {}), **slots}
    return None


def _whole(value: int, factor: float) -> int:
    """A factor of an integer, and never the same integer unless it is 0."""
    changed = round(value * factor)
    return changed if changed != value or not value else value + (1 if factor > 1 else -1)


def _change_array(value: np.ndarray[Any, Any], factor: float) -> np.ndarray[Any, Any]:
    if value.dtype == bool:
        return ~value
    if np.issubdtype(value.dtype, np.integer):
        changed = np.rint(value * factor)
        same = (changed == value) & (value != 0)  # never the same integer unless it is 0
        return np.asarray(changed + same * (1 if factor > 1 else -1)).astype(value.dtype)
    if np.issubdtype(value.dtype, np.number):
        return np.asarray(value * factor, dtype=value.dtype)
    return value


def holds_numbers(value: Any) -> bool:
    """Whether :func:`mutate` changes anything of a value.

    >>> holds_numbers([1.0]), holds_numbers("text"), holds_numbers([])
    (True, False, False)
    """
    if isinstance(value, numbers.Number | np.generic):
        return not isinstance(value, np.character | np.object_)
    if isinstance(value, np.ndarray):
        return value.size > 0 and (value.dtype == bool or np.issubdtype(value.dtype, np.number))
    if isinstance(value, pd.DataFrame):
        return any(holds_numbers(column) for _, column in value.items())
    if isinstance(value, pd.Series) and value.dtype == object:
        return any(isinstance(part, float) for part in value)
    if isinstance(value, pd.Series) and value.dtype == bool:
        return value.size > 0
    if isinstance(value, pd.Series | pd.Index):
        return bool(pd.api.types.is_float_dtype(value.dtype))
    return any(holds_numbers(part) for part in (_parts(value) or {}).values())


# -- functions and what they are -----------------------------------------------------------


def public_functions(package: str) -> dict[str, types.FunctionType]:
    """Public functions, methods and properties of a package and its modules.

    Their full names are ``module.function`` and ``module.Class.method``.
    """
    root = importlib.import_module(package)
    found = functions_of(root)
    for info in pkgutil.walk_packages(getattr(root, "__path__", ()), f"{package}."):
        if not info.name.rpartition(".")[2].startswith("_"):
            found |= functions_of(importlib.import_module(info.name))
    return found


def functions_of(module: types.ModuleType) -> dict[str, types.FunctionType]:
    """Public functions and methods that one module defines, by their full names."""
    found: dict[str, types.FunctionType] = {}
    name = module.__name__
    for key, value in list(vars(module).items()):
        if key.startswith("_") or getattr(value, "__module__", None) != name:
            continue
        entries = {f"{name}.{key}": value}
        if inspect.isclass(value):
            entries = {f"{name}.{key}.{m}": e for m, e in vars(value).items() if m[:1] != "_"}
        for full, entry in entries.items():
            function = function_in(entry)
            if function is not None and function.__module__ == name:
                found[full] = function
    return found


def function_in(value: object) -> types.FunctionType | None:
    """The plain function behind a method, a property or a cached function."""
    for attribute in ("__func__", "fget", "func", "__wrapped__"):
        inner = getattr(value, attribute, None)
        if isinstance(inner, types.FunctionType):
            value = inner
    return value if isinstance(value, types.FunctionType) else None


def kind_of(name: str, docstring: str | None, kinds: Mapping[str, str]) -> str:
    """What a function gives, one of ``KINDS``, by its full name and what its docstring begins with.

    ``kinds`` holds exceptions, by the name without the package.

    >>> kind_of("p.lemma_1", "A lower bound.", {}), kind_of("p.lemma_1_printed", "The loss.", {})
    ('lower bound', 'refuted')
    """
    short = name.removeprefix(f"{BOUNDS}.")
    if short in kinds:
        return kinds[short]
    if name.endswith("_printed"):
        return "refuted"
    first = (docstring or "").strip().partition("\n")[0].lower()
    first = f"{short.rpartition('.')[2].replace('_', ' ')} {first}"
    if re.search(r"lower bound|at least\b", first):
        return "lower bound"
    if re.search(r"\bbound|at most\b", first):
        return "upper bound"
    return "exact"
