"""Does a page notice when the mathematics under it is changed?

``python -m dprl.companion.mutation`` (``make mutate``) executes each page in one plain process,
without a kernel. When a function of the package is called for the first time, the process
forks: in the child every value of that function is changed, by a factor of two, say, and the
child goes on with the page; the parent waits, and then goes on with the right value. A change
is *noticed* if some ``claims.check`` comes to another verdict or refuses what it is given, or
if the page raises, as by an ``assert``.

- For every public function of ``BOUNDS`` the value is multiplied by 0.5 and by 2. A bound
  must be noticed in the direction that would make it false, an exact value in both, and a
  printed statement that the book refutes in one of them (the other makes it only more false).
  What a function is, its name and the first line of its docstring say, or ``kinds`` in
  ``book/mutation.yml``. The smallest change noticed, of .95, .8 and .5 and their reciprocals,
  says how sharp the check is.
- For every claim it is sought which change makes *its own* check fail: first of those bounds,
  then of the other functions of the package that the page calls, then of the page's own
  functions and of the values that it assigns. Beside the two factors there are ``uneven``,
  factors 2 and 0.5 in turn, for checks that compare values of one function, and ``negated``.

Numbers are changed inside arrays, tuples, lists, mappings, dataclasses and tables too; of a
Boolean there is only the opposite. An integer stays one.

What a page showed is kept in ``_build/mutation`` until the page, or a module that it used,
changes: a run that is stopped goes on where it was. Threads do not survive a fork: a mutant of a
page that uses ``jax`` may wait for them for ever. One that has shown nothing after ``PATIENCE``
seconds is ended, and made again by executing the whole page with the change in it. Survivors have
a reason in ``book/mutation.yml``, and a reason without a survivor is an error.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import dataclasses
import functools
import importlib
import inspect
import itertools
import json
import numbers
import os
import pkgutil
import re
import select
import shutil
import signal
import subprocess
import sys
import time
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import yaml

from dprl.companion import claims, freshness, records, site
from dprl.companion._files import write_atomic

#: The package whose every public function must be seen by a page.
BOUNDS = "dprl.bounds"
#: The package whose other functions serve to move a claim, and what of it knows no science.
PACKAGE, PLUMBING = "dprl", "dprl.companion"

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
STAGES = ("bounds", "package", "page")
#: Share of the functions, and of the claims, that must be noticed.
GOAL = 0.95
#: Seconds after which a mutant that may wait for threads is given up, and made in another way.
PATIENCE = 60.0
#: To be raised when what a mutant is changes, so that no page's old results are kept.
_VERSION = 1
_FACTOR = re.compile(r"x ([0-9.]+)")
_MISSED_PAGE = "no page calls it"
_SURVIVES = "survives: "


class MutationError(ValueError):
    """A page, or the list of survivors, is not what it must be."""


# -- changing a value --------------------------------------------------------------------


def mutate(value: Any, mutation: str, turn: int = 0) -> Any:
    """Change every number of a value.

    Parameters
    ----------
    value : object
        A number, a Boolean, or an array, sequence, mapping, dataclass or table of them.
        What holds no number is returned as it is.
    mutation : str
        ``x FACTOR``, ``uneven`` or ``negated``.
    turn : int
        Which call of the function this is, counted from 0; for ``uneven``.

    Returns
    -------
    object
        A changed copy.

    Raises
    ------
    MutationError
        If there is no such mutation.

    Examples
    --------
    >>> mutate({"a": 1.0, "b": (2, True)}, "x 2")
    {'a': 2.0, 'b': (4, False)}
    >>> [mutate(1.0, "uneven", turn) for turn in range(3)]
    [2.0, 0.5, 2.0]
    """
    return _change(value, _factor(mutation, turn))


def _factor(mutation: str, turn: int) -> float:
    match = _FACTOR.fullmatch(mutation)
    if match:
        return float(match[1])
    if mutation == "uneven":
        return 2.0 if turn % 2 == 0 else 0.5
    if mutation == "negated":
        return -1.0
    raise MutationError(f"no mutation is called {mutation!r}")


def _change(value: Any, factor: float) -> Any:
    if isinstance(value, bool | np.bool_):
        return not value
    if isinstance(value, np.ndarray):
        return _change_array(value, factor)
    if isinstance(value, pd.DataFrame):
        changed = value.copy()
        for column in changed.columns:
            if pd.api.types.is_float_dtype(changed[column].dtype):
                changed[column] = changed[column] * factor
        return changed
    if isinstance(value, pd.Series | pd.Index):
        return value * factor if pd.api.types.is_float_dtype(value.dtype) else value
    if isinstance(value, np.generic):
        return _change_array(np.asarray(value), factor)[()]
    if isinstance(value, numbers.Integral):
        return _whole(int(value), factor)
    if isinstance(value, numbers.Number):
        return value * factor  # type: ignore[operator]
    return _change_inside(value, factor)


def _whole(value: int, factor: float) -> int:
    """A factor of an integer, and never the same integer unless it is 0."""
    changed = round(value * factor)
    return changed if changed != value or not value else value + (1 if factor > 1 else -1)


def _change_array(value: np.ndarray[Any, Any], factor: float) -> np.ndarray[Any, Any]:
    if value.dtype == bool:
        return ~value
    if np.issubdtype(value.dtype, np.integer):
        changed = np.rint(value * factor)
        same = (changed == value) & (value != 0)
        return np.asarray(changed + same * (1 if factor > 1 else -1)).astype(value.dtype)
    if np.issubdtype(value.dtype, np.number):
        return np.asarray(value * factor, dtype=value.dtype)
    return value


def _change_inside(value: Any, factor: float) -> Any:
    if isinstance(value, Mapping):
        return {key: _change(entry, factor) for key, entry in value.items()}
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*(_change(entry, factor) for entry in value))
    if isinstance(value, list | tuple):
        return type(value)(_change(entry, factor) for entry in value)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return _change_dataclass(value, factor)
    return value


def _change_dataclass(value: Any, factor: float) -> Any:
    """A copy with other numbers; its constructor, which may refuse them, is not called."""
    copy = object.__new__(type(value))
    for name, entry in vars(value).items() if hasattr(value, "__dict__") else ():
        object.__setattr__(copy, name, _change(entry, factor))
    for name in getattr(type(value), "__slots__", ()):
        object.__setattr__(copy, name, _change(getattr(value, name), factor))
    return copy


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
        return any(pd.api.types.is_float_dtype(dtype) for dtype in value.dtypes)
    if isinstance(value, pd.Series | pd.Index):
        return bool(pd.api.types.is_float_dtype(value.dtype))
    if isinstance(value, Mapping):
        return any(holds_numbers(entry) for entry in value.values())
    if isinstance(value, list | tuple):
        return any(holds_numbers(entry) for entry in value)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return any(holds_numbers(getattr(value, f.name)) for f in dataclasses.fields(value))
    return False


# -- functions and what they are -----------------------------------------------------------


def public_functions(package: str) -> dict[str, types.FunctionType]:
    """Public functions and methods that a package defines, by their full names.

    Parameters
    ----------
    package : str
        Name of a package or module.

    Returns
    -------
    dict of str to function
        ``module.function`` and ``module.Class.method``, properties among them.
    """
    found: dict[str, types.FunctionType] = {}
    for module in _modules(package):
        found |= functions_of(module)
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
            function = _function_in(entry)
            if function is not None and function.__module__ == name:
                found[full] = function
    return found


def _modules(package: str) -> Iterator[types.ModuleType]:
    root = importlib.import_module(package)
    yield root
    for info in pkgutil.walk_packages(getattr(root, "__path__", ()), f"{package}."):
        if not info.name.rpartition(".")[2].startswith("_"):
            yield importlib.import_module(info.name)


def _function_in(value: object) -> types.FunctionType | None:
    """The plain function behind a method, a property or a cached function."""
    for attribute in ("__func__", "fget", "func", "__wrapped__"):
        inner = getattr(value, attribute, None)
        if isinstance(inner, types.FunctionType):
            value = inner
    return value if isinstance(value, types.FunctionType) else None


def kind_of(name: str, docstring: str | None, kinds: Mapping[str, str]) -> str:
    """What a function gives: one of ``KINDS``.

    Parameters
    ----------
    name : str
        Its full name.
    docstring : str or None
        Its docstring, of which the first line counts.
    kinds : mapping of str to str
        Exceptions, by the name without the package.

    >>> kind_of("p.lemma_1", "A lower bound of the loss.", {})
    'lower bound'
    >>> kind_of("p.lemma_1_printed", "The loss.", {}), kind_of("p.loss", "The loss.", {})
    ('refuted', 'exact')
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


# -- one page ------------------------------------------------------------------------------


@dataclass
class Result:
    """What one mutant showed: the first notice, and the claims whose own checks failed."""

    function: str
    mutation: str
    notice: str = ""
    moved: list[str] = field(default_factory=list)


def words_behind(cells: Sequence[str], cell: int, claim_id: str) -> set[str]:
    """Names in the code that a claim's check rests on, statement by statement backwards.

    Parameters
    ----------
    cells : sequence of str
        Code of the page.
    cell : int
        Place of the claim's cell.
    claim_id : str
        The claim.

    Returns
    -------
    set of str
        Names, of functions and attributes too; some of them perhaps in vain.

    Examples
    --------
    >>> cells = ["a = f()", "b = a", "c = g(); claims.check('t:1', printed=b < 1)"]
    >>> sorted(words_behind(cells, 2, "t:1"))
    ['a', 'b', 'check', 'claims', 'f']
    """
    behind: set[str] = set()
    for place in range(cell, -1, -1):
        try:
            statements = ast.parse(claims.code_of(f"```{{code-cell}}\n{cells[place]}\n```\n")).body
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
        if isinstance(node, ast.Name):
            words.add(node.id)
            if not isinstance(node.ctx, ast.Load):
                stored.add(node.id)
        elif isinstance(node, ast.Attribute):
            words.add(node.attr)
            # x.append(...), x[...] = ..., x.y = ...: x may be another one afterwards
        elif isinstance(node, ast.Constant):
            texts.add(node.value)
        elif isinstance(node, ast.FunctionDef | ast.ClassDef):
            stored.add(node.name)
        if isinstance(node, ast.Attribute | ast.Subscript):
            inner: ast.expr = node
            while isinstance(inner, ast.Attribute | ast.Subscript):
                inner = inner.value
            changed = not isinstance(node.ctx, ast.Load) or (
                isinstance(node, ast.Attribute) and node.attr in _CHANGING
            )
            if isinstance(inner, ast.Name) and changed:
                stored.add(inner.id)
    return stored, words, texts


#: Methods that change what they belong to.
_CHANGING = {"append", "extend", "add", "update", "setdefault", "insert", "sort"}


class _Enough(BaseException):
    """A mutant has shown what it can."""


class Session:
    """One execution of a page, in which values are changed as they first appear.

    Parameters
    ----------
    root : Path
        The repository.
    page : str
        Name of the page.
    stage : str
        Which values are changed: ``bounds``, ``package`` or ``page``.
    unmoved : set of str
        Claims of the page that no change has moved yet.
    wanted : set of str
        Functions of the bounds whose own rows are sought on this page; others are changed only
        while claims are unmoved.
    jobs : int
        Mutants alive at the same time.
    seconds : float
        Processor time that a mutant may take.
    packages : (str, str)
        The package of the bounds, and the one whose other functions may be changed.
    """

    def __init__(
        self,
        root: Path,
        page: str,
        stage: str,
        unmoved: set[str],
        wanted: set[str],
        jobs: int = 1,
        seconds: float = 120.0,
        packages: Sequence[str] = (BOUNDS, PACKAGE),
    ) -> None:
        self.bounds, self.package = packages
        self.root, self.page, self.stage = root, page, stage
        self.unmoved, self.wanted, self.jobs = set(unmoved), set(wanted), jobs
        self.limit = seconds
        self.results: list[Result] = []
        self.seconds = 0.0
        self.cells = _cells(root, page)
        ids = list(claims.load(root / "book" / "claims.yml"))
        self.claims_of_cell = [{i for i in ids if f'"{i}"' in code} for code in self.cells]
        self.behind = {
            claim_id: (cell, words_behind(self.cells, cell, claim_id))
            for cell, found in enumerate(self.claims_of_cell)
            for claim_id in found
        }
        self.mutant: Result | None = None
        self._cell = 0
        self._pipe = -1
        self._over = False  # the mutant has shown what it can
        self._brief = False  # one notice is all that the mutant is for
        self._turn = 0
        self._seen: set[str] = set()
        self._alive: dict[int, tuple[int, Result, float]] = {}
        self._queue: list[tuple[str, str]] = []
        self._stages: list[Path] = []
        self._shell: Any = None
        self._namespace: dict[str, Any] = {}

    # -- what is observed

    def _observe_package(self) -> None:
        if self.stage == "bounds":
            names = public_functions(self.bounds)
        elif self.stage == "package":
            modules = [m for m in list(sys.modules) if m.startswith(f"{self.package}.")]
            names = {}
            for module in modules:
                if not module.startswith((PLUMBING, self.bounds)):
                    names |= functions_of(sys.modules[module])
            # the recorded numbers: other pages' computations
            for function in (_function_in(records.load), _function_in(records.read)):
                if function is not None:
                    names[f"{records.__name__}.{function.__name__}"] = function
        else:
            return
        for name, function in names.items():
            _observe(function, functools.partial(self._called, name))

    def _called(self, name: str, function: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        value = function(*args, **kwargs)
        # of the package what the page itself calls, of the bounds every call
        if self.stage == "package" and sys._getframe(2).f_globals is not self._namespace:
            return value
        return self.value(name, value)

    def value(self, name: str, value: Any) -> Any:
        """The value of a function, or of a name of the page, as this process must see it."""
        if self.mutant is not None:
            if name != self.mutant.function or self._over:
                return value
            self._turn += 1
            return mutate(value, self.mutant.mutation, self._turn - 1)
        if name in self._seen or not holds_numbers(value):
            return value
        self._seen.add(name)
        if self.stage == "bounds":
            changed = self._sharpen(name)
        else:
            changed = any(
                self._last_cell(name) >= self._cell and self._try(name, m) for m in FURTHER
            )
        return self.value(name, value) if changed else value

    def _sharpen(self, name: str) -> bool:
        """Both factors, then smaller ones where they were noticed; true in a mutant."""
        if name not in self.wanted and self._last_cell(name) < self._cell:
            return False
        if any(self._try(name, mutation) for mutation in REQUIRED):
            return True
        if name not in self.wanted or "jax" in sys.modules:
            return False
        while any(result.function == name for _, result, _ in self._alive.values()):
            self._reap()
        for mutation, smaller in SHARPER.items():
            noticed = any(
                r.function == name and r.mutation == mutation and r.notice for r in self.results
            )
            for step in smaller if noticed else ():
                if self._try(name, step):
                    return True
                while any(result.function == name for _, result, _ in self._alive.values()):
                    self._reap()
                if self.results[-1].notice:
                    break
        return False

    def _last_cell(self, name: str) -> int:
        """The last cell with an unmoved claim whose check a value can reach; -1 if none."""
        words = set(re.findall(r"\w+", name.removeprefix("page: ")))
        if not name.startswith("page: "):
            words = {name.rpartition(".")[2]}
        cells = [
            c for i, (c, behind) in self.behind.items() if i in self.unmoved and words & behind
        ]
        return max(cells, default=-1)

    # -- mutants

    def _try(self, name: str, mutation: str) -> bool:
        """Make a mutant; true in the mutant itself."""
        while len(self._alive) >= self.jobs:
            self._reap()
        if self.stage != "bounds" and self._last_cell(name) < self._cell:
            return False
        read, write = os.pipe()
        pid = os.fork()
        if pid == 0:
            os.close(read)
            self._pipe = write
            self._alive = {}
            self._start_mutant(name, mutation)
            return True
        os.close(write)
        self._alive[pid] = (read, Result(name, mutation), time.monotonic())
        return False

    def _start_mutant(self, name: str, mutation: str) -> None:
        self.mutant, self._turn, self._over = Result(name, mutation), 0, False
        self._brief = mutation in itertools.chain(*SHARPER.values())
        self._new_place(copied=True)
        signal.signal(signal.SIGPROF, self._late)
        signal.setitimer(signal.ITIMER_PROF, self.limit)  # processor time: others may work too

    def _late(self, *_: object) -> None:
        assert self.mutant is not None
        self._finish("timeout")

    def _reap(self) -> None:
        ready, _, _ = select.select([pipe for pipe, _, _ in self._alive.values()], [], [], 1.0)
        for pid, (pipe, result, begun) in list(self._alive.items()):
            if pipe not in ready:
                if "jax" in sys.modules and time.monotonic() - begun > PATIENCE:
                    os.kill(pid, signal.SIGKILL)
                    os.waitpid(pid, 0)
                    os.close(pipe)
                    for place in (self.root / "_build" / "mutation" / "runs").glob(f"{pid}-*"):
                        shutil.rmtree(place, ignore_errors=True)
                    del self._alive[pid]
                    self._queue.append((result.function, result.mutation))
                continue
            with os.fdopen(pipe) as stream:
                text = stream.read()
            os.waitpid(pid, 0)
            del self._alive[pid]
            if text:
                result = Result(**json.loads(text))
            else:
                result.notice = "the process died"
            self._note(result)

    def _note(self, result: Result) -> None:
        self.results.append(result)
        self.unmoved -= set(result.moved)
        moved = f" [{', '.join(result.moved)}]" if result.moved else ""
        _say(f"  {result.function} {result.mutation}: {result.notice or 'not noticed'}{moved}")

    def _finish(self, notice: str = "") -> None:
        """End a mutant with what it showed."""
        assert self.mutant is not None
        if self._over:
            return
        self._over = True
        signal.setitimer(signal.ITIMER_PROF, 0)
        self.mutant.notice = self.mutant.notice or notice
        if self._pipe < 0:
            raise _Enough
        shutil.rmtree(self._stages[-1], ignore_errors=True)
        os.write(self._pipe, json.dumps(dataclasses.asdict(self.mutant)).encode())
        os._exit(0)

    # -- the page

    def run(self) -> None:
        """Execute the page, with its mutants.

        Raises
        ------
        MutationError
            If the page fails although nothing is changed.
        """
        self._shell = _shell()
        self._namespace = self._shell.user_ns
        self._shell.ast_transformers.append(_Asserts())
        if self.stage == "page":
            self._shell.ast_transformers.append(_Values())
        self._watch_claims()
        self._new_place(copied=False)
        started = time.monotonic()
        try:
            self._execute()
            while self._alive:
                self._reap()
            self.seconds = time.monotonic() - started
            for name, mutation in self._queue:
                if self.stage == "bounds" or self._last_cell(name) >= 0:
                    self._run_again(name, mutation)
        finally:
            for stage in self._stages:
                shutil.rmtree(stage, ignore_errors=True)

    def _run_again(self, name: str, mutation: str) -> None:
        """A mutant of a page that cannot fork: the whole page once more."""
        self._shell.reset(new_session=False)
        for module in [m for n, m in sys.modules.items() if n.startswith(f"{self.package}.")]:
            for entry in list(vars(module).values()):
                if hasattr(entry, "cache_clear"):
                    entry.cache_clear()
        self._start_mutant(name, mutation)
        assert self.mutant is not None
        with contextlib.suppress(_Enough):
            self._execute()
        result, self.mutant = self.mutant, None
        self._note(result)

    def _execute(self) -> None:
        self._shell.user_ns["__assert__"] = self.asserted
        if self.stage == "page":
            self._shell.user_ns["__value__"] = self.value
        for cell, code in enumerate(self.cells):
            self._cell = cell
            self._observe_package()  # also what the page has imported since
            outcome = self._shell.run_cell(code, store_history=False)
            if self._over:
                return
            error = outcome.error_before_exec or outcome.error_in_exec
            if error is not None:
                self._failed(error)
            _close_figures()
            mutant = self.mutant
            if mutant is not None and (mutant.notice or self.stage != "bounds"):
                if self._last_cell(mutant.function) <= self._cell:
                    self._finish()
            elif mutant is None and self._done():
                return
        if self.mutant is not None:
            self._finish()

    def _done(self) -> bool:
        """Whether the rest of the page has nothing left that a change could show."""
        left = [cell for claim, (cell, _) in self.behind.items() if claim in self.unmoved]
        return self.stage != "bounds" and max(left, default=-1) <= self._cell

    def _failed(self, error: BaseException) -> None:
        where = f"{type(error).__name__} in code cell {self._cell + 1}"
        if self.mutant is None:
            raise MutationError(f"{self.page} fails unchanged: {where}: {error}")
        self._finish(where)

    def asserted(self, condition: object) -> object:
        """What stands for an assertion of the page: a mutant notes it, and goes on."""
        if condition or self.mutant is None:
            return condition
        self.mutant.notice = self.mutant.notice or f"assertion in code cell {self._cell + 1}"
        # the cell's own assertion stands in for the claims that the cell checks
        moved = self.claims_of_cell[self._cell] & self.unmoved
        self.mutant.moved += sorted(moved)
        self.unmoved -= moved
        if self._brief or self._last_cell(self.mutant.function) < self._cell:
            self._finish()
        return True

    def _watch_claims(self) -> None:
        """Let a mutant note a verdict that differs, and go on for the sake of the others."""

        def observed(function: Callable[..., Any], args: Any, kwargs: Any) -> Any:
            if self.mutant is None:
                return function(*args, **kwargs)
            try:
                return function(*args, **kwargs)
            except (claims.ClaimError, claims.ClaimMismatch):
                claim = claims.load(self.root / "book" / "claims.yml")[args[0]]
                self.mutant.notice = self.mutant.notice or f"claim {claim.id}"
                self.mutant.moved.append(claim.id)
                self.unmoved.discard(claim.id)
                if self._brief or self._last_cell(self.mutant.function) < self._cell:
                    self._finish()
                return claims.Badge(claim.id, claim.expected, {})

        check = _function_in(claims.check)
        assert check is not None
        _observe(check, observed)

    def _new_place(self, *, copied: bool) -> None:
        """A repository of its own, so that no changed number reaches a cache or a record.

        Everything in it is a link to the true one, except ``_build``, of which it has a copy.
        """
        before = Path.cwd() / "_build" if copied else self.root / "_build"
        place = self.root / "_build" / "mutation" / "runs" / f"{os.getpid()}-{len(self._stages)}"
        shutil.rmtree(place, ignore_errors=True)
        (place / "_build").mkdir(parents=True)
        self._stages.append(place)
        for entry in self.root.iterdir():
            if entry.name not in ("_build", ".git"):
                (place / entry.name).symlink_to(entry)
        for name in ("membership", "shared", "sweeps", "matplotlib", "interactive"):
            if (before / name).is_dir():
                shutil.copytree(before / name, place / "_build" / name, copy_function=os.link)
        stage = place / "_build" / "stage"
        if copied and self._pipe >= 0:
            shutil.copytree(before / "stage", stage)
        stage.mkdir(exist_ok=True)
        os.chdir(place)
        os.environ["DPRL_STAGE"] = str(stage)


_OBSERVED: set[int] = set()


def _observe(
    function: types.FunctionType, observer: Callable[[Callable[..., Any], Any, Any], Any]
) -> None:
    """Send every call of a function, under whatever name, through an observer.

    Its code is exchanged, not the function, so that every module and page that has imported
    it, and every object that holds it, sees the other value.
    """
    code = function.__code__
    if id(function) in _OBSERVED or code.co_freevars or inspect.isgeneratorfunction(function):
        return
    _OBSERVED.add(id(function))
    function.__dict__.setdefault("__signature__", inspect.signature(function))
    original = types.FunctionType(
        code, function.__globals__, function.__name__, function.__defaults__
    )
    original.__kwdefaults__ = function.__kwdefaults__
    hook = f"__observer_{id(function)}__"
    function.__globals__[hook] = functools.partial(observer, original)
    space: dict[str, Any] = {}
    exec(f"def f(*a, **k):\n    return {hook}(a, k)", space)
    function.__code__ = space["f"].__code__.replace(
        co_filename=code.co_filename, co_firstlineno=code.co_firstlineno, co_name=code.co_name
    )
    function.__defaults__, function.__kwdefaults__ = None, None


class _Asserts(ast.NodeTransformer):
    """Send what a page asserts through ``__assert__``."""

    def visit_Assert(self, node: ast.Assert) -> ast.Assert:
        """Change one assertion."""
        node.test = ast.Call(ast.Name("__assert__", ast.Load()), [node.test], [])
        return ast.fix_missing_locations(node)


class _Values(ast.NodeTransformer):
    """Send what a page assigns, and what its own functions return, through ``__value__``."""

    def visit_Module(self, node: ast.Module) -> ast.Module:
        """Change the statements of a cell."""
        for statement in node.body:
            self._through(statement)
        return ast.fix_missing_locations(node)

    def _through(self, node: ast.stmt) -> None:
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name | ast.Tuple):
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


def _shell() -> Any:
    from IPython.core.interactiveshell import InteractiveShell

    shell = InteractiveShell.instance()
    setattr(shell, "showtraceback", lambda *_, **__: None)  # noqa: B010
    return shell


def _close_figures() -> None:
    pyplot = sys.modules.get("matplotlib.pyplot")
    if pyplot is not None:
        pyplot.close("all")


def _cells(root: Path, page: str) -> list[str]:
    import jupytext

    book = jupytext.read(freshness.source_path(root, page), fmt="md:myst")
    return [cell.source for cell in book.cells if cell.cell_type == "code"]


_terminal = 2


def _say(text: str) -> None:
    os.write(_terminal, f"{text}\n".encode())


# -- the processes of a page -----------------------------------------------------------------


def _work(root: Path, order: Path) -> None:
    """Do what an order says, in a process of its own, and write the outcome beside it."""
    global _terminal
    task = json.loads(order.read_text(encoding="utf-8"))
    _terminal = os.dup(2)
    quiet = os.open(os.devnull, os.O_WRONLY)
    os.dup2(quiet, 1)
    os.dup2(quiet, 2)
    session = Session(
        root,
        task["page"],
        task["stage"],
        set(task["unmoved"]),
        set(task["wanted"]),
        task["jobs"],
        task["limit"],
        task["packages"],
    )
    error = ""
    try:
        session.run()
    except MutationError as problem:
        error = str(problem)
    outcome = {
        "error": error,
        "seconds": round(session.seconds, 1),
        "modules": _modules_used(root),
        "unmoved": sorted(session.unmoved),
        "results": [dataclasses.asdict(result) for result in session.results],
    }
    write_atomic(order.with_suffix(".out"), json.dumps(outcome))


def _modules_used(root: Path) -> dict[str, str | None]:
    """Digests of the package's modules that are loaded, without the plumbing."""
    used = {}
    for name, module in sorted(sys.modules.items()):
        path = getattr(module, "__file__", None)
        if name.startswith(f"{PACKAGE}.") and not name.startswith(PLUMBING) and path:
            used[os.path.relpath(path, root)] = freshness.digest(Path(path))
    return used


def _environment(page: str, root: Path) -> dict[str, str]:
    return os.environ | {
        "DPRL_PAGE": page,
        "DPRL_PROFILE": "quick",
        "DPRL_WORKERS": "1",
        "DPRL_TTY": "",
        "OMP_NUM_THREADS": "1",
        "PYTHONHASHSEED": "0",
        "SOURCE_DATE_EPOCH": "0",
        "MPLBACKEND": "agg",  # nothing is drawn
        "MPLCONFIGDIR": str(root / "_build" / "matplotlib"),
        "IPYTHONDIR": str(root / "_build" / "mutation" / "ipython"),
    }


def _in_a_process(root: Path, task: dict[str, Any]) -> dict[str, Any]:
    folder = root / "_build" / "mutation"
    order = folder / f"{task['page'].replace('/', '__')}.{task['stage']}.{os.getpid()}.order"
    write_atomic(order, json.dumps(task))
    try:
        subprocess.run(
            [sys.executable, "-m", "dprl.companion.mutation", "--order", str(order)],
            cwd=root,
            env=_environment(task["page"], root),
            check=True,
        )
        outcome: dict[str, Any] = json.loads(order.with_suffix(".out").read_text())
    finally:
        order.unlink(missing_ok=True)
        order.with_suffix(".out").unlink(missing_ok=True)
    if outcome["error"]:
        raise MutationError(outcome["error"])
    return outcome


# -- all pages ---------------------------------------------------------------------------------


def examine(
    root: Path,
    page: str,
    wanted: set[str],
    *,
    jobs: int = 1,
    stages: Sequence[str] = STAGES,
    packages: Sequence[str] = (BOUNDS, PACKAGE),
    before: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Change what is under one page, and see what it notices.

    Parameters
    ----------
    root : Path
        The repository.
    page : str
        Name of the page.
    wanted : set of str
        Functions of the bounds whose own rows are sought here.
    jobs : int, optional
        Mutants at the same time.
    stages : sequence of str, optional
        Which values are changed, in this order; later ones only while claims are unmoved.
    packages : (str, str), optional
        The package of the bounds, and the one whose other functions may be changed.
    before : mapping, optional
        What earlier stages gave: they are not repeated.

    Returns
    -------
    dict
        ``results`` (a :class:`Result` each, as a dict), ``unmoved`` claims, ``seconds`` of the
        clean page, ``modules`` that it used with their digests, and the ``stages`` done.

    Raises
    ------
    MutationError
        If the page fails although nothing is changed.
    """
    ledger = claims.load(root / "book" / "claims.yml").values()
    unmoved = {c.id for c in ledger if c.page == page and c.expected != "not checkable"}
    found: dict[str, Any] = {
        "results": [],
        "unmoved": sorted(unmoved),
        "seconds": 0.0,
        "modules": {},
        "stages": [],
    }
    found |= before or {}
    for stage in stages:
        if stage in found["stages"]:
            continue
        found["stages"] = [*found["stages"], stage]
        if not (wanted if stage == "bounds" else found["unmoved"]):
            continue
        task: dict[str, Any] = {
            "page": page,
            "stage": stage,
            "unmoved": found["unmoved"],
            "jobs": jobs,
            "packages": list(packages),
            "wanted": sorted(wanted),
            "limit": max(60.0, 5 * found["seconds"]),
        }
        outcome = _in_a_process(root, task)
        found["results"] = [*found["results"], *outcome["results"]]
        found["unmoved"] = outcome["unmoved"]
        found["seconds"] = max(found["seconds"], outcome["seconds"])
        found["modules"] = found["modules"] | outcome["modules"]
    return found


def _key(root: Path, page: str) -> str:
    return freshness.key_of(
        [
            freshness.digest(freshness.source_path(root, page)),
            freshness.claims_of(root, page),
            _VERSION,
        ]
    )


def _kept(root: Path, page: str) -> Path:
    return root / "_build" / "mutation" / f"{page.replace('/', '__')}.json"


def load_kept(root: Path, page: str) -> dict[str, Any] | None:
    """What is kept of a page; None if there is nothing, or the page or its modules changed."""
    path = _kept(root, page)
    if not path.is_file():
        return None
    kept: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    if kept["key"] != _key(root, page):
        return None
    if any(freshness.digest(root / file) != digest for file, digest in kept["modules"].items()):
        return None
    return kept


def callers(root: Path, pages: Sequence[str], functions: Sequence[str]) -> dict[str, set[str]]:
    """Functions that each page names in its code.

    A function that no page names may be called by another: every page that imports something
    of the bounds is asked.

    Parameters
    ----------
    root : Path
        The repository.
    pages : sequence of str
        Names of the pages.
    functions : sequence of str
        Full names.

    Returns
    -------
    dict of str to set of str
        For each page the functions whose rows are sought on it.
    """
    words = {
        page: set(
            re.findall(r"\w+", claims.code_of(freshness.source_path(root, page).read_text("utf-8")))
        )
        for page in pages
    }
    near = {page for page in pages if BOUNDS.rpartition(".")[2] in words[page]}
    named = {f: {p for p in near if f.rpartition(".")[2] in words[p]} for f in functions}
    return {page: {f for f in functions if page in (named[f] or near)} for page in pages}


def satisfied(kind: str, noticed: Mapping[str, str]) -> bool:
    """Whether a function of some kind was noticed in the directions that count.

    >>> satisfied("exact", {"x 0.5": "claim a", "x 2": ""})
    False
    >>> satisfied("upper bound", {"x 0.5": "claim a", "x 2": ""})
    True
    >>> satisfied("refuted", {"x 0.5": "", "x 2": "claim a"})
    True
    """
    seen = [bool(noticed.get(mutation)) for mutation in KINDS[kind]]
    return any(seen) if kind == "refuted" else all(seen)


@dataclass(frozen=True)
class Notes:
    """``book/mutation.yml``: kinds that no docstring says, and why something survives."""

    kinds: Mapping[str, str]
    survivors: Mapping[str, str]


def load_notes(path: Path) -> Notes:
    """Read the list of kinds and survivors; it need not exist.

    Raises
    ------
    MutationError
        If a kind is unknown or a survivor has no reason.
    """
    if not path.is_file():
        return Notes({}, {})
    entries = yaml.safe_load(path.read_text(encoding="utf-8")) or {}
    if set(entries) - {"kinds", "survivors"}:
        raise MutationError(f"{path.name} has kinds and survivors, got {', '.join(entries)}")
    notes = Notes(entries.get("kinds") or {}, entries.get("survivors") or {})
    for name, kind in notes.kinds.items():
        if kind not in KINDS:
            raise MutationError(f"{path.name}: {name}: no kind is called {kind!r}")
    for name, why in notes.survivors.items():
        if not isinstance(why, str) or not why.strip():
            raise MutationError(f"{path.name}: {name}: say why it survives")
    return notes


def table(
    root: Path, kept: Mapping[str, Mapping[str, Any]], functions: Mapping[str, str], notes: Notes
) -> tuple[pd.DataFrame, list[str]]:
    """The rows of the record, and what is wrong with the list of survivors.

    Parameters
    ----------
    root : Path
        The repository.
    kept : mapping
        What each page showed, see :func:`examine`.
    functions : mapping of str to str
        Public functions of the bounds with their kinds.
    notes : Notes
        The reasons.

    Returns
    -------
    frame : DataFrame
        ``function`` (of a claim its id), ``mutation``, ``page``, ``noticed``, ``why``.
    problems : list of str
        Survivors without a reason, and reasons without a survivor.
    """
    rows: list[dict[str, object]] = []
    alive: set[str] = set()
    short = {name: name.removeprefix(f"{BOUNDS}.") for name in functions}
    for name, kind in functions.items():
        of_pages = {
            page: {r["mutation"]: r["notice"] for r in entry["results"] if r["function"] == name}
            for page, entry in kept.items()
        }
        of_pages = {page: notices for page, notices in of_pages.items() if notices}
        union: dict[str, str] = {}
        for notices in of_pages.values():
            union |= {mutation: notice for mutation, notice in notices.items() if notice}
        good = satisfied(kind, union)
        if not good:
            alive.add(short[name])
        reason = notes.survivors.get(short[name], "")
        for page, notices in of_pages.items():
            for mutation, notice in notices.items():
                why = notice or (_harmless(kind, mutation) if good else _SURVIVES + reason)
                rows.append(_row(short[name], mutation, page, bool(notice), why))
        if not of_pages:
            why = _SURVIVES + (reason or _MISSED_PAGE)
            rows.append(_row(short[name], "x 0.5", "none", False, why))
    for claim in claims.load(root / "book" / "claims.yml").values():
        found = [r for r in kept[claim.page]["results"] if claim.id in r["moved"]]
        if found:
            first = found[0]
            how = f"{first['function'].removeprefix(f'{PACKAGE}.')} {first['mutation']}"
            rows.append(_row(claim.id, how, claim.page, True, "its check fails"))
        elif claim.expected == "not checkable":
            rows.append(_row(claim.id, "none", claim.page, False, "nothing is computed"))
        else:
            alive.add(claim.id)
            why = _SURVIVES + notes.survivors.get(claim.id, "")
            rows.append(_row(claim.id, "all", claim.page, False, why))
    problems = [f"{n} survives, without a reason" for n in sorted(alive - {*notes.survivors})]
    problems += [f"{n} does not survive: take its reason away" for n in notes.survivors]
    problems = [p for p in problems if p.split(" does not")[0] not in alive]
    return pd.DataFrame(rows), problems


def _harmless(kind: str, mutation: str) -> str:
    down = mutation in ("x 0.5", "x 0.8", "x 0.95")
    if kind == "upper bound" and not down:
        return "still a bound"
    if kind == "lower bound" and down:
        return "still a bound"
    if mutation in REQUIRED:
        return "noticed in the other direction, or on another page"
    return "too small a change"


def _row(name: str, mutation: str, page: str, noticed: bool, why: str) -> dict[str, object]:
    return {"function": name, "mutation": mutation, "page": page, "noticed": noticed, "why": why}


def survivors(frame: pd.DataFrame) -> pd.DataFrame:
    """The functions and claims of a record that survive, with the reasons.

    Parameters
    ----------
    frame : DataFrame
        See :func:`table`.

    Returns
    -------
    DataFrame
        ``function`` and ``why``, one row each.
    """
    left = frame[frame["why"].str.startswith(_SURVIVES.strip())][["function", "why"]]
    left = left.assign(why=left["why"].str.removeprefix(_SURVIVES.strip()).str.strip())
    return left.drop_duplicates().reset_index(drop=True)


def counts(frame: pd.DataFrame) -> dict[str, tuple[int, int]]:
    """How many functions and claims are noticed, of how many.

    Parameters
    ----------
    frame : DataFrame
        See :func:`table`.

    Returns
    -------
    dict
        ``functions`` and ``claims``: noticed, all. Claims that cannot be checked do not count.
    """
    names = set(frame.loc[frame["mutation"] != "none", "function"])
    left = set(survivors(frame)["function"])
    found = {}
    for what, of in (
        ("functions", {n for n in names if ":" not in n}),
        ("claims", {n for n in names if ":" in n}),
    ):
        found[what] = (len(of - left), len(of))
    return found


def run_all(
    root: Path,
    pages: Sequence[str],
    functions: Sequence[str],
    jobs: int,
    stages: Sequence[str] = STAGES,
) -> int:
    """Test every page that is not kept, stage by stage; the number of failures."""
    sought = callers(root, pages, functions)
    failed = 0
    for stage, (number, page) in itertools.product(stages, enumerate(pages, start=1)):
        before = load_kept(root, page)
        if before is not None and stage in before["stages"]:
            continue
        started = time.monotonic()
        _say(f"{stage} [{number}/{len(pages)}] {page}")
        try:
            found = examine(root, page, sought[page], jobs=jobs, stages=[stage], before=before)
        except MutationError as error:
            _say(f"  {error}")
            failed += 1
            continue
        write_atomic(_kept(root, page), json.dumps(found | {"key": _key(root, page)}, indent=1))
        _say(
            f"  unmoved claims: {', '.join(found['unmoved']) or 'none'} "
            f"({time.monotonic() - started:.0f} s)"
        )
    return failed


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; 1 if a page fails, too much survives or a reason is missing."""
    parser = argparse.ArgumentParser(prog="python -m dprl.companion.mutation")
    parser.add_argument("--page", help="only this page; nothing is recorded")
    parser.add_argument("--function", help="only functions of this name; nothing is recorded")
    parser.add_argument("--jobs", type=int, default=1, help="mutants at the same time")
    parser.add_argument("--stage", choices=STAGES, help="only this one; nothing is recorded")
    parser.add_argument("--order", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args(argv)
    root = Path.cwd().resolve()
    if options.order:
        _work(root, options.order)
        return 0
    notes = load_notes(root / "book" / "mutation.yml")
    functions = {
        name: kind_of(name, function.__doc__, notes.kinds)
        for name, function in public_functions(BOUNDS).items()
    }
    pages = site.pages(root)
    if options.page or options.function:
        return _only(root, options, pages, functions)
    started = time.monotonic()
    stages = (options.stage,) if options.stage else STAGES
    failed = run_all(root, pages, list(functions), options.jobs, stages)
    if options.stage:
        return int(bool(failed))
    kept = {page: load_kept(root, page) for page in pages}
    if failed or None in kept.values():
        _say(f"{failed} pages failed: nothing is recorded")
        return 1
    frame, problems = table(root, {p: k for p, k in kept.items() if k}, functions, notes)
    numbers_of = counts(frame)
    for name, (good, total) in numbers_of.items():
        _say(f"{name}: {good} of {total} noticed ({good / total:.1%})")
    for problem in problems:
        _say(problem)
    records.keep(
        "mutation",
        frame,
        profile="paper",
        command="python -m dprl.companion.mutation",
        seed=None,
        parameters={"profile": "quick", "goal": GOAL},
        seconds=time.monotonic() - started,
        keys=["function", "mutation", "page"],
    )
    enough = all(good >= GOAL * total for good, total in numbers_of.values())
    return int(bool(problems) or not enough)


def _only(
    root: Path, options: argparse.Namespace, pages: Sequence[str], functions: Mapping[str, str]
) -> int:
    """A page or a function alone, on the terminal."""
    chosen = [f for f in functions if options.function in (None, f, f.rpartition(".")[2])]
    sought = callers(root, pages, chosen)
    if options.page and options.page not in pages:
        _say(f"no page is called {options.page}")
        return 1
    for page in [options.page] if options.page else [p for p in pages if sought[p]]:
        _say(page)
        stages = ("bounds",) if options.function else STAGES
        try:
            outcome = examine(root, page, sought[page], jobs=options.jobs, stages=stages)
        except MutationError as error:
            _say(f"  {error}")
            return 1
        if not options.function:
            _say(f"unmoved claims: {', '.join(outcome['unmoved']) or 'none'}")
            survivors = [
                f
                for f in sorted({r["function"] for r in outcome["results"]} & set(chosen))
                if not satisfied(
                    functions[f],
                    {r["mutation"]: r["notice"] for r in outcome["results"] if r["function"] == f},
                )
            ]
            _say(f"survivors: {', '.join(survivors) or 'none'}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
