"""Which files of the repository does a page open, and which of its modules does it import?

Loaded into the page's kernel as an IPython extension, before its first cell. An audit
hook sees every ``open`` of the process, whatever library asks for it, and notes the file
with the digest it had at that moment; :mod:`companion.build.freshness` makes it an input of
the page. A file that was asked for and is missing is noted too: the page must run again
when it appears. Files opened by worker processes are not seen: load data in the page. The
modules that a worker uses are found from the page's code, as all others are.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from companion.files import digest

# Inputs of every page already (src, the ledger, notebooks), or nothing a page is made from.
_ELSEWHERE = ("src/", "notebooks/", "book/claims.yml", "book/nb/", "_build/", ".")


class ReadLog:
    """Audit hook that writes one JSON line per file first opened or module first imported.

    The line is ``["read", path, digest]``, the path in the repository, or
    ``["loaded", module, null]``.
    """

    def __init__(self, root: Path, log: Path) -> None:
        self._root = f"{root}{os.sep}"
        self._packages = {path.name for path in (root / "src").glob("*")}
        self._seen: set[str] = set()
        self._log = log.open("a", encoding="utf-8", buffering=1)

    def __call__(self, event: str, arguments: tuple[Any, ...]) -> None:
        """Note a file of the repository that is opened for reading, or a module of it."""
        if event == "import" and str(arguments[0]).split(".")[0] in self._packages:
            self._log.write(json.dumps(["loaded", arguments[0], None]) + "\n")
        if event != "open" or not _reads(arguments):
            return
        path = os.path.abspath(os.fsdecode(arguments[0]))  # noqa: PTH100 - no pathlib in a hook
        if not path.startswith(self._root):
            return
        name = path[len(self._root) :].replace(os.sep, "/")
        if name in self._seen or name.startswith(_ELSEWHERE):
            return
        self._seen.add(name)  # first, because the digest below opens the file again
        self._log.write(json.dumps(["read", name, digest(Path(path))]) + "\n")


def _reads(arguments: Iterable[Any]) -> bool:
    """Return whether the arguments of an ``open`` event name a file and ask to read it."""
    path, mode, flags = arguments
    if not isinstance(path, (str, bytes, os.PathLike)):
        return False  # a file descriptor: its path was seen when it was opened
    if mode is None:
        return bool((flags & os.O_ACCMODE) == os.O_RDONLY)
    return not set(mode) & set("wax+")


def read_log(path: Path) -> dict[str, dict[str, str | None]]:
    """What :class:`ReadLog` wrote: under ``read`` files, under ``loaded`` modules."""
    found: dict[str, dict[str, str | None]] = {"read": {}, "loaded": {}}
    if path.exists():
        for kind, name, value in sorted(map(json.loads, path.read_text("utf-8").splitlines())):
            found[kind][name] = value
    return found


def load_ipython_extension(_shell: object) -> None:
    """Start noting; called by IPython when the page's kernel starts."""
    stage = Path(os.environ["DPRL_STAGE"])
    sys.addaudithook(ReadLog(Path.cwd(), stage / "reads.jsonl"))
