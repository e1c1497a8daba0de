"""Files, locks, digests, cores: what sweeps, records and the build share.

The runner that executes a page says in environment variables which page it is
(``DPRL_PAGE``), with which profile (``DPRL_PROFILE``), and into which staging folder its
files go (``DPRL_STAGE``); it moves the staged files to their place only after the whole
page has succeeded. A reader who runs the page in Jupyter has no runner: then the files go
to ``_build/interactive`` and touch nothing that was recorded. With ``DPRL_TRY`` the runner
executes a page with other values than the book's: what comes out otherwise is shown, no error.

A file is written beside its destination, forced to disk and renamed, so that a process
killed at any point leaves either the old file or the new one. Locks are those of the operating
system: they are free again as soon as their process ends, however it ends.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import secrets
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, TypeGuard

import filelock

PROFILES = ("quick", "paper")  # of a page
#: Profiles under which tables are kept; only a command records with the profile ``laptop``.
RECORDED = ("quick", "laptop", "paper")


@dataclass(frozen=True)
class Run:
    """The execution a page is in.

    ``root`` is the repository, and the folder ``stage`` receives this execution's files. ``page``
    is, for example, ``3-policy-evaluation/dp-lsw``, and None when a reader runs it in Jupyter;
    ``profile`` is ``quick`` or ``paper``.
    """

    root: Path
    stage: Path
    page: str | None
    profile: str

    @property
    def interactive(self) -> bool:
        """Whether a reader, and not the runner, executes the page."""
        return self.page is None

    @property
    def exploring(self) -> bool:
        """Whether other values than the book's may be tried: no outcome then ends the page."""
        return self.interactive or bool(os.environ.get("DPRL_TRY"))


def current_run() -> Run:
    """The execution that the environment says; a ``RuntimeError`` if it contradicts itself."""
    profile = os.environ.get("DPRL_PROFILE", "quick")
    if profile not in PROFILES:
        raise RuntimeError(f"DPRL_PROFILE must be one of {', '.join(PROFILES)}, got {profile!r}")
    root = find_root()
    stage = os.environ.get("DPRL_STAGE")
    if not stage:
        return Run(root, build_folder() / "interactive", None, profile)
    page = os.environ.get("DPRL_PAGE")
    if not page:
        raise RuntimeError("DPRL_STAGE is set but DPRL_PAGE is not: the runner sets both")
    if not Path(stage).is_absolute():
        raise RuntimeError(f"DPRL_STAGE must be an absolute path, got {stage!r}")
    return Run(root, Path(stage), page, profile)


#: Claims and records that are installed with this package, where it comes without the repository.
_INSTALLED = Path(__file__).parent / "_book"


def find_root(start: Path | None = None) -> Path:
    """Nearest folder, upwards from ``start``, that holds both ``book`` and ``notebooks``.

    Without one it is what was installed with this package (:mod:`companion.build.notebooks`), else
    ``start`` itself (by default the working directory).
    """
    here = (start or Path.cwd()).resolve()
    for folder in (here, *here.parents):
        if (folder / "book").is_dir() and (folder / "notebooks").is_dir():
            return folder
    return _INSTALLED if _INSTALLED.is_dir() else here


def build_folder() -> Path:
    """Where executions keep what they may make again: ``_build`` of the repository.

    Without a repository it is below the working directory.
    """
    root = find_root()
    return (Path.cwd() if root == _INSTALLED else root) / "_build"


def source_path(root: Path, page: str) -> Path:
    """Source of a page, ``notebooks/<page>.md``."""
    return root / "notebooks" / f"{page}.md"


def is_name(name: object) -> TypeGuard[str]:
    """Whether it is lower-case words or numbers joined by ``.`` or ``-``."""
    return isinstance(name, str) and bool(re.fullmatch(r"[a-z0-9]+([.-][a-z0-9]+)*", name))


def write_atomic(path: Path, content: str | bytes) -> bool:
    """Write a whole file, in a folder made if it is missing, or nothing.

    Text is encoded as UTF-8 without translating line ends. A file that already holds these bytes
    is not touched; then the answer is False.
    """
    data = content.encode() if isinstance(content, str) else content
    if path.is_file() and path.read_bytes() == data:
        return False
    path.parent.mkdir(parents=True, exist_ok=True)
    with replacing(path) as file:
        file.write(data)
    return True


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[BinaryIO]:
    """A new file that becomes ``path`` when the block has succeeded, and vanishes if it fails."""
    temporary = path.parent / f".{path.name}.{os.getpid()}-{secrets.token_hex(4)}.tmp"
    try:
        with temporary.open("xb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)  # noqa: PTH105 - the one call that is atomic everywhere
    finally:
        temporary.unlink(missing_ok=True)


def sha256(data: bytes) -> str:
    """SHA-256 as hexadecimal digits."""
    return hashlib.sha256(data).hexdigest()


def digest(path: Path) -> str | None:
    """SHA-256 of a file's bytes; None where there is no such file."""
    try:
        return sha256(path.read_bytes())
    except (FileNotFoundError, IsADirectoryError, NotADirectoryError):
        return None


def available_cores() -> int:
    """Cores this process may use: fewer than the machine's in a container or a batch job."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


@contextlib.contextmanager
def locked(folder: str | os.PathLike[str]) -> Iterator[Path]:
    """Hold a folder's lock, so that two processes do not compute the same thing.

    The folder is made if needed, and given as soon as no other process holds its lock, the file
    ``.lock`` in it; the lock is not re-entrant.
    """
    place = Path(folder)
    place.mkdir(parents=True, exist_ok=True)
    with filelock.FileLock(place / ".lock", is_singleton=False):
        yield place
