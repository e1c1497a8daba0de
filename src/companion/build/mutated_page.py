"""One page of the book, executed once, with mutants of the values that it uses.

The process forks when a value first appears: the child goes on with the changed value, notes
what the page notices, and ends; the parent waits, and goes on with the right one.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import inspect
import itertools
import json
import math
import os
import re
import select
import shutil
import signal
import sys
import threading
import time
import types
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

from companion import claims, records
from companion.build.mutants import (
    FURTHER,
    REQUIRED,
    SHARPER,
    MutationError,
    functions_of,
    holds_numbers,
    mutate,
    public_functions,
)
from companion.build.page_values import Asserts, Values, words_behind
from companion.files import source_path
from companion.page_code import code_cells


@dataclass
class Result:
    """What one mutant showed: the first notice, and the claims whose own checks failed."""

    function: str
    mutation: str
    notice: str = ""
    moved: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Trial:
    """What was changed, how, from which code cell on, and for the sake of which claims."""

    name: str
    mutation: str
    cell: int
    aims: Sequence[str] = ()


#: Seconds without work after which a mutant that waits for threads is made in another way, and
#: how many such mutants show that all others of the page would wait too.
PATIENCE, WAITING = 15.0, 3


@dataclass
class _Alive:
    """A mutant at work: where it reports, what it will say, and when it last did something."""

    pipe: int
    result: Result
    trial: Trial
    worked: float = 0.0
    seen: float = field(default_factory=time.monotonic)
    waited: bool = False

    def end_if_it_waits(self, pid: int) -> None:
        """Kill it once it has used no processor time for so long that it waits for ever."""
        with contextlib.suppress(psutil.NoSuchProcess):
            times = psutil.Process(pid).cpu_times()
            if times.user + times.system > self.worked + 0.05:
                self.worked, self.seen = times.user + times.system, time.monotonic()
            if time.monotonic() - self.seen > PATIENCE:
                self.waited = True
                os.kill(pid, signal.SIGKILL)


class _Enough(BaseException):
    """A mutant has shown what it can."""


@dataclass(frozen=True)
class MutationTask:
    """What a session is for.

    Of the ``page`` values of a ``stage`` are changed: ``bounds``, ``package`` or ``page``, and of
    the latter two those that appear at most ``window`` code cells before the check of a claim that
    they can reach. No change has moved the claims ``unmoved`` yet. The functions
    ``wanted`` of the bounds are those whose own rows are sought on this page; others are changed
    only while claims are unmoved.

    ``jobs`` mutants are alive at the same time, and each may take so many ``seconds`` of processor
    time. ``packages`` are that of the bounds, and those whose other functions may be changed.
    What was ``made`` in a sitting that was stopped is not made again.

    If pairs of a name and a mutation are ``known`` to have moved claims before, no others are made.
    If there are ``mutants``, such pairs too, the whole page is executed for each of them, and that
    is all: so it is with those that could not be made by forking."""

    page: str
    stage: str
    unmoved: Sequence[str]
    wanted: Sequence[str]
    jobs: int
    seconds: float
    packages: Sequence[str]
    window: float = math.inf
    known: Sequence[tuple[str, str]] = ()
    mutants: Sequence[tuple[str, str]] = ()
    made: Sequence[Trial] = ()


class Session:
    """One execution of a page, in which values are changed as they first appear."""

    def __init__(
        self, root: Path, task: MutationTask, tell: Callable[[Result, Trial], None]
    ) -> None:
        self.tell = tell  # what is known of each mutant, as soon as it is
        self.bounds = task.packages[0]
        self.prefixes = tuple(f"{package}." for package in task.packages[1:])
        self.root, self.task = root, task
        self.stage, self.window = task.stage, task.window
        self.unmoved, self.wanted = set(task.unmoved), set(task.wanted)
        self.known = {(name, mutation) for name, mutation in task.known}
        self.results: list[Result] = []
        self.seconds = 0.0
        source = source_path(root, task.page).read_text(encoding="utf-8")
        self.cells = code_cells(source)
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
        self._tried: dict[str, set[str]] = {}  # a value, and the claims for which it was changed
        self._aims: set[str] | None = None  # of a mutant: the claims that it is for; None: all
        self._changed: list[tuple[int, set[str]]] = []  # of a mutant: where, and for which claims
        self._alive: dict[int, _Alive] = {}
        self.queue: list[tuple[str, str]] = []  # what could not be made by forking
        self._waited = 0
        self._stages: list[Path] = []
        self._shell: Any = None
        self._namespace: dict[str, Any] = {}

    # -- what is observed

    def _observe_package(self) -> None:
        names: dict[str, Any] = {}
        if self.stage == "bounds":
            names = public_functions(self.bounds)
        elif self.stage == "package":
            for name, module in list(sys.modules.items()):
                if name.startswith(self.prefixes) and not name.startswith(self.bounds):
                    names |= functions_of(module)
            # the recorded numbers: other pages' computations
            names |= {f"{records.__name__}.{f.__name__}": f for f in (records.load, records.read)}
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
            if self.stage != "bounds":
                near = self._near(name)
                if not near:
                    return value
                self._changed.append((self._cell, near))
            self._turn += 1
            return mutate(value, self.mutant.mutation, self._turn - 1)
        if not holds_numbers(value):
            return value
        if self.stage == "bounds":
            changed = name not in self._seen and self._sharpen(name)
            self._seen.add(name)
        else:
            tried = self._tried.setdefault(name, set())
            new = self._near(name) - tried
            tried |= new
            kinds = [m for m in FURTHER if not self.known or (name, m) in self.known]
            changed = any(new & self.unmoved and self._try(name, m, new) for m in kinds)
        return self.value(name, value) if changed else value

    def _sharpen(self, name: str) -> bool:
        """Both factors, then smaller ones where they were noticed; true in a mutant."""
        if name not in self.wanted and self._last_cell(name) < self._cell:
            return False
        if any(self._try(name, mutation) for mutation in REQUIRED):
            return True
        if name not in self.wanted or "jax" in sys.modules:
            return False
        self._wait_for(name)
        noticed = {r.mutation for r in self.results if r.function == name and r.notice}
        for mutation, smaller in SHARPER.items():
            for step in smaller if mutation in noticed else ():
                if self._try(name, step):
                    return True
                self._wait_for(name)
                if self.results[-1].notice:
                    break
        return False

    def _wait_for(self, name: str) -> None:
        while any(mutant.result.function == name for mutant in self._alive.values()):
            self._reap()

    def _reached(self, name: str) -> dict[str, int]:
        """Unmoved claims whose checks a value can reach, those that a mutant is for, with cells."""
        words = set(re.findall(r"\w+", name.removeprefix("page: ")))
        if not name.startswith("page: "):
            words = {name.rpartition(".")[2]}
        asked = self.unmoved if self._aims is None else self.unmoved & self._aims
        return {i: c for i, (c, behind) in self.behind.items() if i in asked and words & behind}

    def _near(self, name: str) -> set[str]:
        """Of these claims the ones that are checked in this cell, or in one of the window."""
        there = self._reached(name).items()
        return {i for i, cell in there if self._cell <= cell <= self._cell + self.window}

    def _last_cell(self, name: str) -> int:
        """The last cell with an unmoved claim whose check a value can reach; -1 if none."""
        return max(self._reached(name).values(), default=-1)

    # -- mutants

    def _try(self, name: str, mutation: str, aims: set[str] | None = None) -> bool:
        """Make a mutant for some of the claims, or all; true in the mutant itself."""
        while len(self._alive) >= self.task.jobs:
            self._reap()
        if aims is not None:
            for made in self.task.made:
                if (made.name, made.mutation) == (name, mutation) and made.cell <= self._cell:
                    aims = aims - {*made.aims}
            if not aims & self.unmoved:
                return False
        if self._waited >= WAITING:
            self._later(name, mutation)
            return False
        read, write = os.pipe()
        pid = os.fork()
        if pid == 0:
            os.close(read)
            self._pipe = write
            self._alive = {}
            self._aims = aims
            self._start_mutant(name, mutation)
            os.write(write, b"\n")
            return True
        os.close(write)
        trial = Trial(name, mutation, self._cell, sorted(aims or ()))
        self._alive[pid] = _Alive(read, Result(name, mutation), trial)
        # until it has its own copy of what the page has written: a verdict that this process notes
        # in the meantime would be one that the mutant finds there already, an error
        os.read(read, 1)
        return False

    def _later(self, name: str, mutation: str) -> None:
        if (name, mutation) not in self.queue:  # the whole page changes it in all cells
            self.queue.append((name, mutation))

    def _start_mutant(self, name: str, mutation: str) -> None:
        self.mutant, self._turn, self._over = Result(name, mutation), 0, False
        self._changed = []
        self._brief = mutation in itertools.chain(*SHARPER.values())
        self._new_place(copied=True)
        signal.signal(signal.SIGPROF, self._late)
        # processor time: others may work too
        signal.setitimer(signal.ITIMER_PROF, self.task.seconds)

    def _late(self, *_: object) -> None:
        assert self.mutant is not None
        self._finish("timeout")

    def _reap(self) -> None:
        ready, _, _ = select.select([mutant.pipe for mutant in self._alive.values()], [], [], 1.0)
        for pid, mutant in list(self._alive.items()):
            pipe, result = mutant.pipe, mutant.result
            if pipe not in ready:
                continue
            with os.fdopen(pipe) as stream:
                text = stream.read()
            os.waitpid(pid, 0)
            del self._alive[pid]
            if text:
                result = Result(**json.loads(text))
            elif mutant.waited:
                for place in (self.root / "_build" / "mutation" / "runs").glob(f"{pid}-*"):
                    shutil.rmtree(place, ignore_errors=True)
                self._later(result.function, result.mutation)
                self._waited += 1
                continue
            else:
                result.notice = "the process died"
            self._note(result, mutant.trial)

    def _note(self, result: Result, trial: Trial) -> None:
        self.results.append(result)
        self.tell(result, trial)
        self.unmoved -= set(result.moved)
        moved = f" [{', '.join(result.moved)}]" if result.moved else ""
        say(f"  {result.function} {result.mutation}: {result.notice or 'not noticed'}{moved}")

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
        """Execute the page, with its mutants; a ``MutationError`` if it fails although
        unchanged."""
        self._prepare()
        try:
            for name, mutation in self.task.mutants:
                if self.stage == "bounds" or self._last_cell(name) >= 0:
                    self._run_again(name, mutation)
            if not self.task.mutants:
                self._run_forking()
        finally:
            for stage in self._stages:
                shutil.rmtree(stage, ignore_errors=True)

    def _prepare(self) -> None:
        self._shell = _shell()
        self._namespace = self._shell.user_ns
        self._shell.ast_transformers.append(Asserts())
        if self.stage == "page":
            self._shell.ast_transformers.append(Values())
        self._watch_claims()
        self._new_place(copied=False)

    def _run_forking(self) -> None:
        started, done = time.monotonic(), threading.Event()
        watch = threading.Thread(target=self._end_those_that_wait, args=(done,), daemon=True)
        watch.start()
        try:
            self._execute()
            while self._alive:
                self._reap()
        finally:
            done.set()
        self.seconds = time.monotonic() - started

    def _end_those_that_wait(self, done: threading.Event) -> None:
        # in a thread: the page itself may wait for a file that such a mutant has locked
        while not done.wait(1.0):
            if "jax" in sys.modules:
                for pid, mutant in list(self._alive.items()):
                    mutant.end_if_it_waits(pid)

    def _run_again(self, name: str, mutation: str) -> None:
        """A mutant of a page that cannot fork: the whole page once more."""
        self._shell.reset(new_session=False)
        for module in [m for n, m in sys.modules.items() if n.startswith(self.prefixes)]:
            for entry in list(vars(module).values()):
                if hasattr(entry, "cache_clear"):
                    entry.cache_clear()
        self._start_mutant(name, mutation)
        assert self.mutant is not None
        with contextlib.suppress(_Enough):
            self._execute()
        result, self.mutant = self.mutant, None
        first = min((cell for cell, _ in self._changed), default=0)
        aims = set().union(*(claims for _, claims in self._changed))
        self._note(result, Trial(name, mutation, first, sorted(aims)))

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
            raise MutationError(f"{self.task.page} fails unchanged: {where}: {error}")
        self._finish(where)

    def asserted(self, condition: object) -> object:
        """What stands for an assertion of the page: a mutant notes it, and goes on."""
        if not condition and self.mutant is not None:
            # the cell's own assertion stands in for the claims that the cell checks
            moved = self.claims_of_cell[self._cell] & self.unmoved
            self._notices(f"assertion in code cell {self._cell + 1}", sorted(moved))
            return True
        return condition

    def _notices(self, notice: str, moved: Sequence[str]) -> None:
        """A mutant is noticed, and goes on for the sake of the other claims."""
        assert self.mutant is not None
        self.mutant.notice = self.mutant.notice or notice
        self.mutant.moved += moved
        self.unmoved -= set(moved)
        if self._brief or self._last_cell(self.mutant.function) < self._cell:
            self._finish()

    def _watch_claims(self) -> None:
        """Let a mutant note a verdict that differs, or a sentence that fails, and go on."""

        def observed(function: Callable[..., Any], args: Any, kwargs: Any) -> Any:
            try:
                return function(*args, **kwargs)
            except (claims.ClaimError, claims.ClaimMismatch):
                if self.mutant is None:
                    raise
                claim = claims.load(self.root / "book" / "claims.yml")[args[0]]
                self._notices(f"claim {claim.id}", [claim.id])
                return claims.Badge(claim.id, claim.expected, {})

        def borne_out(function: Callable[..., Any], args: Any, kwargs: Any) -> Any:
            try:
                return function(*args, **kwargs)
            except claims.ClaimMismatch:
                if self.mutant is None:
                    raise
                self._notices(f"sentence in code cell {self._cell + 1}", [])

        _observe(claims.check, observed)
        _observe(claims.bear_out, borne_out)

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


def _observe(function: Any, observer: Callable[[Callable[..., Any], Any, Any], Any]) -> None:
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


def _shell() -> Any:
    from IPython.core.interactiveshell import InteractiveShell

    shell = InteractiveShell.instance()
    setattr(shell, "showtraceback", lambda *_, **__: None)  # noqa: B010
    return shell


def _close_figures() -> None:
    pyplot = sys.modules.get("matplotlib.pyplot")
    if pyplot is not None:
        pyplot.close("all")


def say(text: str) -> None:
    os.write(_terminal, f"{text}\n".encode())


_terminal = 2


def work(root: Path) -> None:
    """Do the task that standard input gives, and write to standard output.

    That is a line of JSON as soon as a mutant is known, ``result`` and ``trial``, then the outcome.
    """
    global _terminal
    task = MutationTask(**json.load(sys.stdin))
    task = dataclasses.replace(task, made=[Trial(**made) for made in task.made])  # type: ignore[arg-type]
    _terminal, answer = os.dup(2), os.dup(1)
    quiet = os.open(os.devnull, os.O_RDWR)
    for number in range(3):  # whatever a page prints, or asks for
        os.dup2(quiet, number)

    def write(line: dict[str, Any]) -> None:
        out.write(json.dumps(line) + "\n")
        out.flush()  # nothing is left for a fork to write again

    def tell(result: Result, trial: Trial) -> None:
        write({"result": dataclasses.asdict(result), "trial": dataclasses.asdict(trial)})

    out = os.fdopen(answer, "w")
    session, error = Session(root, task, tell), ""
    try:
        session.run()
    except MutationError as problem:
        error = str(problem)
    write({"error": error, "seconds": round(session.seconds, 1), "queue": session.queue})
    out.close()
