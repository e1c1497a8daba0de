"""Execute one page of the book, all or nothing.

``python -m companion.build.execution 3-policy-evaluation/dp-lsw --profile quick``

The page runs in a kernel of its own, with the repository's root as its working directory,
and writes into a *staging folder* (``DPRL_STAGE``) below ``book/nb/.staging``. Only when
every cell has succeeded, and none has written to stderr, are its products published, each
file whole, in this order:

1. ``$DPRL_STAGE/results/*`` to ``data/results/<profile>/``;
2. ``$DPRL_STAGE/claims.json`` to ``book/nb/<page>.claims.json``;
3. the cleaned notebook to ``book/nb/<page>.ipynb``;
4. the stamp to ``book/nb/<page>.stamp.json``.

Until the stamp is there the old one disagrees with the files, so a run killed between two
steps is repeated (:mod:`companion.build.freshness`). A run that fails, or is killed before
step 1, leaves the last good version untouched.

A page finds in its environment:

================  ===================================================================
``DPRL_PAGE``     its name
``DPRL_PROFILE``  ``quick`` or ``paper``
``DPRL_STAGE``    its staging folder, absolute
``DPRL_WORKERS``  how many worker processes a sweep may use
``DPRL_TTY``      the terminal, for progress bars; empty where there is none
``DPRL_TRY``      set where other values than the book's are tried
================  ===================================================================
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import functools
import hashlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from companion.build import freshness
from companion.build.reads import read_log
from companion.build.typed import typed_values
from companion.dependencies import Sources, sources_of
from companion.files import PROFILES, available_cores, digest, source_path
from companion.page_code import code_of_page

REQUIRED_PARAMETERS = ("profile", "seed")

_QUICK_CELL_SECONDS = 3600  # a quick cell that takes longer hangs, on a slow machine too
_ANSI = re.compile(r"\x1b\[[0-9;]*m")
_PAGE_NAME = re.compile(r"[\w-]+(/[\w-]+)*")

# The first two silence what ipykernel says about itself. The extension notes what the page opens.
_KERNEL_CONFIG = """\
c.IPKernelApp.log_level = 40
c.HistoryManager.enabled = False
c.InteractiveShellApp.extensions = ["{}"]
"""
#: Of a page of the book, and of one with a reader's own values.
_EXTENSIONS = ("companion.build.reads", "companion.outcomes")


class PageError(Exception):
    """A page cannot be executed, or failed; the message is for the reader's terminal."""


@dataclass(frozen=True)
class PageRun:
    """What to execute, and where.

    ``root`` is the repository, absolute. The page ``notebooks/<page>.md`` runs with the profile
    ``quick`` or ``paper``, with a ``seed`` instead of its own if one is given, and with so many
    ``workers`` for its sweeps. With ``results_dir`` its results go there and nothing else is
    published: a recomputation beside the book. ``edit`` changes the page (a notebook, in place)
    before it is executed, and needs a ``results_dir``. With ``tried``, a reader's own values of
    parameters, nothing is published, and no outcome ends the page. What is not as it must be, or a
    page without source, is a :class:`PageError`.
    """

    root: Path
    page: str
    profile: str
    seed: int | None = None
    workers: int = 1
    results_dir: Path | None = None
    edit: Callable[[Any], object] | None = None
    tried: Mapping[str, Any] | None = None

    def __post_init__(self) -> None:
        if self.edit is not None and self.results_dir is None:
            raise PageError(f"page {self.page}: an edited page is not published")
        if self.profile not in PROFILES:
            raise PageError(f"profile must be one of {', '.join(PROFILES)}; got {self.profile!r}")
        if self.workers < 1:
            raise PageError(f"workers must be at least 1; got {self.workers}")
        if not _PAGE_NAME.fullmatch(self.page):
            raise PageError(f"not a page name: {self.page!r} (expected chapter/page)")
        if not self.source.is_file():
            raise PageError(f"no such page: {self.source.relative_to(self.root)} does not exist")

    @property
    def source(self) -> Path:
        """Source of the page."""
        return source_path(self.root, self.page)

    @property
    def stage(self) -> Path:
        """Staging folder of this page and this process."""
        return _staging_folder(self.root) / f"{self.page.replace('/', '__')}-{os.getpid()}"

    @property
    def passed(self) -> dict[str, Any]:
        """Parameters that reach the page."""
        seed = {} if self.seed is None else {"seed": self.seed}
        return {"profile": self.profile, **seed, **(self.tried or {})}


def execute_page(run: PageRun) -> None:
    """Execute a page and publish what it made.

    If the page is not well formed, a cell fails or a cell writes to stderr, nothing is published,
    and there is a :class:`PageError`.
    """
    made_from = freshness.inputs(run.root, run.page, run.passed)  # before the page is read
    sources = sources_of(run.root)
    _make_stage(run)
    try:
        notebook = _execute(run, sources)
        log = read_log(run.stage / "reads.jsonl")
        made_from |= freshness.inputs_found(run.root, run.page, log, sources)
        sources.keep()
        _publish(run, notebook, made_from)
    finally:
        shutil.rmtree(run.stage, ignore_errors=True)


def try_page(run: PageRun) -> Any:
    """Execute a page with the values ``tried``; the notebook, of which nothing is published.

    A parameter that the page does not have, and a cell that fails, is a :class:`PageError`.
    """
    _make_stage(run)
    try:
        return _execute(run, sources_of(run.root))
    finally:
        shutil.rmtree(run.stage, ignore_errors=True)


def _make_stage(run: PageRun) -> None:
    remove_stale_stages(run.root)
    if run.stage.is_dir():  # of a killed process that had this number
        shutil.rmtree(run.stage)
    run.stage.mkdir(parents=True)


def remove_stale_stages(root: Path) -> None:
    """Remove staging folders whose process is gone: killed runs leave them."""
    for stage in _staging_folder(root).glob("*-*"):
        pid = stage.name.rpartition("-")[2]
        if pid.isdigit() and not _alive(int(pid)):
            shutil.rmtree(stage, ignore_errors=True)


def _staging_folder(root: Path) -> Path:
    # Beside the results, on the same file system, so that a file can be moved whole.
    return root / "book" / "nb" / ".staging"


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
        state = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[0]
    except ProcessLookupError:
        return False
    except OSError:
        return True  # of somebody else, or not a Linux: the signal's answer is all there is
    return state != "Z"  # killed, but its parent, killed too, has not asked how it ended


# ------------------------------------------------------------------- execution


def _execute(run: PageRun, sources: Sources) -> Any:
    """Run the page in its staging folder; return the cleaned notebook."""
    # Imported here: whoever only asks whether a page is up to date need not wait for them.
    import nbformat

    # modules as they are now
    libraries = freshness.reached(run.root, run.page, (), sources).libraries
    source, executed = run.stage / "source.ipynb", run.stage / "executed.ipynb"
    notebook = read_source(run.source, run.page)
    if run.edit is not None:
        run.edit(notebook)
    sizes = _try_sizes(notebook, run.tried or {})
    nbformat.write(notebook, source)
    _check_parameters(run, source, sizes)
    if run.tried is None:
        _refuse_typed_verdicts(run)
    # several processes of a page would share the folder
    programs: contextlib.AbstractContextManager[None] = contextlib.nullcontext()
    if run.workers == 1 and "jax" in libraries:
        programs = compiled_programs(run.root, run.stage / "compiled")
    with _environment(_kernel_environment(run)), programs:
        _run_kernel(run, source, executed)
    result = nbformat.read(executed, as_version=4)
    if run.tried is not None:
        return clean(result)
    _refuse_stderr(run, result)
    if run.edit is None:
        _refuse_unchecked_claims(run)
    return clean(result)


def read_source(path: Path, page: str) -> Any:
    """A page as a notebook, with cell ids that depend on its name and the cells' order only."""
    import jupytext

    notebook = jupytext.read(path, fmt="md:myst")
    for number, cell in enumerate(notebook.cells):
        cell["id"] = hashlib.sha256(f"{page}:{number}".encode()).hexdigest()[:12]
    return notebook


def _try_sizes(notebook: Any, tried: Mapping[str, Any]) -> list[str]:
    """Give names of the sizes the values tried, where the page assigns them; all these names.

    The sizes are what the first code cell after the parameters assigns before it imports: most
    depend on the profile, which the parameters cell does not know yet.
    """
    cells = [cell for cell in notebook.cells if cell.cell_type == "code"]
    tags = ["parameters" in cell.metadata.get("tags", ()) for cell in cells]
    after = cells[tags.index(True) + 1 :] if True in tags else []
    if not (after and tried):
        return []
    try:
        body = ast.parse(after[0].source).body
    except SyntaxError:
        return []  # the cell itself will say so, with its place
    imports = (n for n, line in enumerate(body) if isinstance(line, ast.Import | ast.ImportFrom))
    assigned = [
        (line.end_lineno, node.id)
        for line in body[: next(imports, None)]
        if isinstance(line, ast.Assign)
        for target in line.targets
        for node in ast.walk(target)
        if isinstance(node, ast.Name)
    ]
    lines = after[0].source.splitlines()
    for end, name in reversed(assigned):
        if name in tried:
            lines.insert(end, f"{name} = {tried[name]!r}")
    after[0].source = "\n".join(lines)
    return [name for _, name in assigned]


def _check_parameters(run: PageRun, source: Path, sizes: Sequence[str]) -> None:
    """Refuse a page without the parameters cell, of which papermill would only warn."""
    import papermill

    known = [*papermill.inspect_notebook(str(source)), *sizes]
    unknown = ", ".join(name for name in run.tried or () if name not in known)
    if unknown:
        raise PageError(f"page {run.page} has no parameter {unknown}; it has {', '.join(known)}")
    missing = [name for name in REQUIRED_PARAMETERS if name not in known]
    if missing:
        raise PageError(
            f"page {run.page}: a cell tagged 'parameters' must declare profile and seed; "
            f"{' and '.join(missing)} not found"
        )


def _refuse_typed_verdicts(run: PageRun) -> None:
    """Refuse a page that types what it must compute: such a check cannot fail."""
    try:
        faults = typed_values(code_of_page(run.source.read_text(encoding="utf-8")))
    except SyntaxError:
        return  # the cell itself will say so, with its place
    if faults:
        listed = "\n".join(f"line {line}: {what}" for line, what in faults)
        raise PageError(f"page {run.page} types what it must compute:\n{listed}")


def page_environment(root: Path, page: str, profile: str, workers: int = 1) -> dict[str, str]:
    """Environment of a page's process: what it is, and the same bytes for the same seed."""
    return {
        "DPRL_PAGE": page,
        "DPRL_PROFILE": profile,
        "DPRL_WORKERS": str(workers),
        # One BLAS thread, no random hashes, no dates in SVG.
        "OMP_NUM_THREADS": "1",
        "PYTHONHASHSEED": "0",
        "SOURCE_DATE_EPOCH": "0",
        "MPLCONFIGDIR": str(_font_cache(root)),
        # On a slow machine XLA would complain of that on stderr, where a page must not write.
        "TF_CPP_MIN_LOG_LEVEL": "3",
        # glibc keeps what arrays of up to 32 MiB leave for the next one; getting it anew from the
        # system each time is a twentieth of the work with thousands of trajectories.
        "MALLOC_MMAP_THRESHOLD_": str(2**25),
        "MALLOC_TRIM_THRESHOLD_": str(2**30),
        "MALLOC_TOP_PAD_": str(2**26),
    }


def _kernel_environment(run: PageRun) -> dict[str, str]:
    """Environment of the kernel; writes the kernel's configuration into the stage."""
    profile = run.stage / "ipython" / "profile_default"
    profile.mkdir(parents=True)
    config = _KERNEL_CONFIG.format(_EXTENSIONS[run.tried is not None])
    (profile / "ipython_kernel_config.py").write_text(config, encoding="utf-8")
    terminal = os.ttyname(2) if os.isatty(2) else ""
    return {
        **page_environment(run.root, run.page, run.profile, run.workers),
        "DPRL_STAGE": str(run.stage),
        "DPRL_TRY": "" if run.tried is None else "1",
        "DPRL_TTY": os.environ.get("DPRL_TTY", terminal),
        # Nothing of the user's own set-up reaches the page, and no other kernel "python3".
        "IPYTHONDIR": str(profile.parent),
        "JUPYTER_PATH": "",
        "JUPYTER_PREFER_ENV_PATH": "1",
        "JUPYTER_RUNTIME_DIR": str(run.stage / "runtime"),
        "JUPYTER_PLATFORM_DIRS": "1",
        "MPLBACKEND": "module://matplotlib_inline.backend_inline",
    }


def _font_cache(root: Path) -> Path:
    """Matplotlib's folder, with its list of fonts made.

    That takes seconds, of which matplotlib tells on stderr: the first page to run would fail by it.
    """
    folder = root / "_build" / "matplotlib"
    folder.mkdir(parents=True, exist_ok=True)
    if not any(folder.glob("fontlist-*.json")):
        subprocess.run(
            [sys.executable, "-c", "import matplotlib.font_manager"],
            env={**os.environ, "MPLCONFIGDIR": str(folder)},
            capture_output=True,
            check=False,  # a page without figures needs no fonts
        )
    return folder


@contextlib.contextmanager
def compiled_programs(root: Path, own: Path) -> Iterator[None]:
    """Let a process that is started meanwhile have what JAX has compiled for others, and add to it.

    Compilation is a third to two thirds of what a quick page takes that uses JAX. JAX does not
    write its files whole, and warns for ever of one that is cut: so each process has a folder of
    its ``own``, with links to what there is, and what it adds is moved away when it has succeeded.
    """
    kept = root / "_build" / "compiled"
    own.mkdir()
    for path in kept.glob("*"):
        (own / path.name).symlink_to(path)
    settings = {
        "JAX_COMPILATION_CACHE_DIR": str(own),
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
        "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
        # the folder's name would be part of what a program is found by
        "JAX_PERSISTENT_CACHE_ENABLE_XLA_CACHES": "none",
    }
    with _environment(settings):
        yield
    for path in own.glob("*"):
        if not path.is_symlink():
            _move_whole(path, kept / path.name)


@contextlib.contextmanager
def _environment(values: Mapping[str, str]) -> Iterator[None]:
    """Set environment variables for a while; the kernel inherits them."""
    before = dict(os.environ)
    os.environ.update(values)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


def _run_kernel(run: PageRun, source: Path, executed: Path) -> None:
    import papermill
    from nbclient.exceptions import CellTimeoutError, DeadKernelError

    log = run.stage / "kernel.log"
    try:
        with _stderr_to(log):
            papermill.execute_notebook(
                str(source),
                str(executed),
                parameters=run.passed,
                kernel_name="python3",
                language="python",
                cwd=str(run.root),
                progress_bar=False,
                # Otherwise all of it is written before and after every cell.
                request_save_on_cell_execute=False,
                execution_timeout=_QUICK_CELL_SECONDS if run.profile == "quick" else None,
                start_timeout=_QUICK_CELL_SECONDS,
                # After 4 s, the default, what a cell has printed would be dropped silently.
                iopub_timeout=_QUICK_CELL_SECONDS,
                raise_on_iopub_timeout=True,
                coalesce_streams=True,
            )
        return
    except papermill.PapermillExecutionError as error:
        why = _ANSI.sub("", "\n".join(error.traceback))
    except CellTimeoutError:
        why = f"the cell took longer than {_QUICK_CELL_SECONDS} s"
    except DeadKernelError as error:
        last_words = log.read_text(encoding="utf-8", errors="replace")
        why = f"the kernel died: {error}\n{last_words}".rstrip()
    raise _failure(run, executed, why)


@contextlib.contextmanager
def _stderr_to(path: Path) -> Iterator[None]:
    """Send what this process and the kernel write to stderr into a file for a while.

    What a cell writes there is in the notebook, and refused. What the kernel itself says, as about
    sockets that close in another order than it expects, matters only if it died.
    """
    sys.stderr.flush()
    before = os.dup(2)
    try:
        with path.open("wb") as file:
            os.dup2(file.fileno(), 2)
        yield
    finally:
        sys.stderr.flush()
        os.dup2(before, 2)
        os.close(before)


def _failure(run: PageRun, executed: Path, why: str) -> PageError:
    """The error of a page that failed: where, then why."""
    import nbformat

    cells = nbformat.read(executed, as_version=4).cells if executed.exists() else ()
    bad = next((c["id"] for c in cells if c.metadata.get("papermill", {}).get("exception")), None)
    return PageError(f"page {run.page} failed in {_place(run, bad)}:\n{why}")


def _place(run: PageRun, cell_id: str | None) -> str:
    """Say where a code cell stands in the page's source."""
    ids = [c["id"] for c in read_source(run.source, run.page).cells if c.cell_type == "code"]
    text = run.source.read_text(encoding="utf-8")
    lines = [n for n, line in enumerate(text.splitlines(), 1) if line.startswith("```{code-cell}")]
    source = run.source.relative_to(run.root).as_posix()
    if cell_id not in ids or len(lines) != len(ids):
        return source
    number = ids.index(cell_id)
    return f"code cell {number + 1} ({source}, line {lines[number]})"


def _refuse_stderr(run: PageRun, notebook: Any) -> None:
    """Treat output on stderr as a failure: a warning is for the author, not the reader."""
    for cell in notebook.cells:
        for output in cell.get("outputs", ()):
            if output.output_type == "stream" and output.name == "stderr":
                raise PageError(
                    f"page {run.page} wrote to stderr in {_place(run, cell['id'])}:\n{output.text}"
                )


def _refuse_unchecked_claims(run: PageRun) -> None:
    """Refuse a page that says nothing of a claim that the ledger gives to it."""
    listed = freshness.claims_of(run.root, run.page)
    if not isinstance(listed, list):
        return  # no ledger, or one that is refused elsewhere
    record = run.stage / "claims.json"
    checked = {entry["id"] for entry in json.loads(record.read_text())} if record.is_file() else ()
    missing = [entry["id"] for entry in listed if entry["id"] not in checked]
    if missing:
        raise PageError(f"page {run.page} does not check {', '.join(missing)}")


def clean(notebook: Any) -> Any:
    """Remove from an executed page, in place, what differs between two equal runs.

    Times and versions go, ids become stable. The cell papermill injected is hidden altogether,
    the page's own parameters folded.
    """
    notebook.metadata.pop("papermill", None)
    notebook.metadata["language_info"] = {"name": "python", "pygments_lexer": "ipython3"}
    for cell in notebook.cells:
        cell.metadata.pop("papermill", None)
        cell.metadata.pop("execution", None)
        tags = list(cell.metadata.pop("tags", []))
        if tags:
            cell.metadata["tags"] = tags
        if "injected-parameters" in tags:
            cell["id"] = "injected"
            cell.metadata["tags"] = [*tags, "remove-cell"]
        elif "parameters" in tags:
            cell.metadata["tags"] = [*tags, "hide-input"]
    return notebook


def as_text(notebook: Any) -> str:
    """A notebook as its file holds it."""
    return json.dumps(notebook, indent=1, sort_keys=True, ensure_ascii=False) + "\n"


# ----------------------------------------------------------------- publication


def _publish(run: PageRun, notebook: Any, made_from: freshness.Inputs) -> None:
    """Move a page's products into place; see the module's text for the order."""
    results = sorted(p for p in (run.stage / "results").rglob("*") if p.is_file())
    target = run.results_dir or run.root / "data" / "results" / run.profile
    moves = {path: target / path.relative_to(run.stage / "results") for path in results}
    if run.results_dir is None:
        product = functools.partial(freshness.product_path, run.root, run.page)
        staged = {name: run.stage / name for name in ("claims.json", "ipynb", "stamp.json")}
        if staged["claims.json"].is_file():
            moves[staged["claims.json"]] = product("claims.json")
        else:
            product("claims.json").unlink(missing_ok=True)  # a page that claims nothing any more
        staged["ipynb"].write_text(as_text(notebook), encoding="utf-8")
        moves[staged["ipynb"]] = product("ipynb")
        outputs = {to.relative_to(run.root).as_posix(): digest(path) for path, to in moves.items()}
        freshness.write_stamp(staged["stamp.json"], made_from, outputs)
        moves[staged["stamp.json"]] = product("stamp.json")
    for path, destination in moves.items():
        _move_whole(path, destination)


def _move_whole(source: Path, destination: Path) -> None:
    """Replace a file by another, at one stroke on one file system.

    One with the same bytes is left alone: Sphinx goes by modification times, and would render a
    page again that was rewritten.
    """
    destination.parent.mkdir(parents=True, exist_ok=True)
    if digest(source) != digest(destination):
        shutil.move(source, destination)


# ---------------------------------------------------------------- command line


def _stop(_signal: int, _frame: object) -> None:
    sys.exit(128 + signal.SIGTERM)  # an exception, so that the stage is removed


def exit_status(page: str, work: Callable[[], object]) -> int:
    """Do a command's work on a page; 1 if the page failed, 130 if it was interrupted."""
    signal.signal(signal.SIGTERM, _stop)
    try:
        work()
    except PageError as error:
        print(error, file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print(f"page {page} interrupted", file=sys.stderr)
        return 130
    return 0


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; 1 if the page failed, 130 if it was interrupted."""
    parser = argparse.ArgumentParser(
        prog="python -m companion.build.execution", description="Execute one page of the book."
    )
    parser.add_argument("page", help="page name, such as 3-policy-evaluation/dp-lsw")
    parser.add_argument("--profile", default="quick", choices=PROFILES)
    parser.add_argument("--seed", type=int, help="instead of the page's own")
    parser.add_argument(
        "--workers", type=int, default=available_cores(), help="processes for sweeps"
    )
    parser.add_argument(
        "--results-dir",
        type=lambda text: Path(text).resolve(),
        help="put results there, publish nothing else",
    )
    options = parser.parse_args(argv)
    root = Path.cwd().resolve()
    return exit_status(options.page, lambda: execute_page(PageRun(root, **vars(options))))


if __name__ == "__main__":
    raise SystemExit(main())
