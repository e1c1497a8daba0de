"""When must a page run again, and why? Contents decide, never times.

A page that ran to its end leaves a *stamp*: the digests of everything it was made
from and of everything it made. The page is up to date while both still agree with the
files. Its inputs are named, so that the difference can be said in words:

==============  =====================================================================
``page``        the page's source
``parameters``  the profile, and a seed or other parameter if one was given
``claims``      the entries of ``book/claims.yml`` that name the page
``code``        of each module the definitions that the page reaches, and those that
                execute it (:mod:`companion.dependencies`)
``read``        every other file of the repository that the page opened, as it was then
``libraries``   the versions of the distributions that this code imports
``python``      the minor version of Python
==============  =====================================================================

Published numbers (``data/published``) and recorded results (``data/results``) enter by
``read``: a page depends on those it opened and on no others, so recording one page's result
re-runs its readers and nobody else. What a page itself published is its output, not its
input, whether it read it or not; so a page never makes itself stale.
"""

from __future__ import annotations

import functools
import json
import platform
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, cast

import yaml

from companion.dependencies import Reached, Sources, sources_of, versions_of
from companion.files import digest, sha256, source_path, write_atomic

Inputs = dict[str, Any]
Digests = Mapping[str, str | None]

_SHOWN = 3  # file names in one reason; the rest is counted
#: What executes a page and cleans it.
_EXECUTION = ("companion.build.execution.execute_page", "companion.build.reads")


def digests(folder: Path) -> dict[str, str | None]:
    """Digest of every file below a folder, without caches and hidden files.

    Parameters
    ----------
    folder : Path
        Where to look; it need not exist.

    Returns
    -------
    dict
        Path relative to `folder`, with forward slashes, to digest; sorted.
    """
    return {
        path.relative_to(folder).as_posix(): digest(path)
        for path in sorted(folder.rglob("*"))
        if path.is_file() and not _ignored(path.relative_to(folder))
    }


def _ignored(path: Path) -> bool:
    return any(part.startswith(".") or part == "__pycache__" for part in path.parts)


def python_minor() -> str:
    """The running Python's version without the patch, such as ``3.11``."""
    return ".".join(platform.python_version_tuple()[:2])


def key_of(value: object) -> str:
    """One digest for a JSON-like value, independent of the order of keys.

    >>> key_of({"a": 1, "b": 2}) == key_of({"b": 2, "a": 1})
    True
    """
    text = json.dumps(value, sort_keys=True, ensure_ascii=False)
    return sha256(text.encode())


def notebook_path(root: Path, page: str) -> Path:
    """Executed page, ``book/nb/<page>.ipynb``."""
    return root / "book" / "nb" / f"{page}.ipynb"


def claims_path(root: Path, page: str) -> Path:
    """Verdicts the page computed, ``book/nb/<page>.claims.json``."""
    return root / "book" / "nb" / f"{page}.claims.json"


def stamp_path(root: Path, page: str) -> Path:
    """Stamp of the last complete execution, ``book/nb/<page>.stamp.json``."""
    return root / "book" / "nb" / f"{page}.stamp.json"


def reached(root: Path, page: str, loaded: Iterable[str], sources: Sources) -> Reached:
    """Definitions and libraries that a page, and what executes it, depend on.

    Parameters
    ----------
    root : Path
        The repository.
    page : str
        Page name, such as ``3-policy-evaluation/dp-lsw``.
    loaded : iterable of str
        Modules that its process imported.
    sources : Sources
        The repository's modules.
    """
    names = [name for name in _EXECUTION if "companion.build.execution" in sources]
    return sources.reached(sources.page(root, page), names=names, loaded=loaded)


def inputs(root: Path, page: str, parameters: Mapping[str, Any]) -> Inputs:
    """What a page is made from as far as it is known before it runs, by name.

    Parameters
    ----------
    root : Path
        The repository.
    page : str
        Page name.
    parameters : mapping
        Parameters passed to the page; a seed only if one was given.

    Returns
    -------
    dict
        Component name to a digest or a value.
    """
    return {
        "page": digest(source_path(root, page)),
        "parameters": dict(parameters),
        "claims": key_of(claims_of(root, page)),
        "python": python_minor(),
    }


def inputs_found(
    root: Path, page: str, log: Mapping[str, Mapping[str, Any]], sources: Sources
) -> Inputs:
    """The other inputs, which only the execution of the page shows, by name.

    Parameters
    ----------
    root : Path
        The repository.
    page : str
        Page name.
    log : mapping
        ``read`` and ``loaded`` of ``companion.build.reads.read_log``.
    sources : Sources
        The repository's modules as they were before the page ran: a module that was edited
        meanwhile then counts as changed.

    Returns
    -------
    dict
        Component name to a mapping from file, module or distribution to digest or version.
    """
    found = reached(root, page, log["loaded"], sources)
    return {
        "read": dict(log["read"]),
        "loaded": sorted(log["loaded"]),
        "code": found.modules,
        "libraries": versions_of(found.libraries),
    }


def claims_of(root: Path, page: str) -> object:
    """Return the ledger's entries for one page, so that editing another page's is free."""
    ledger = root / "book" / "claims.yml"
    if not ledger.is_file():
        return None
    stat = ledger.stat()
    entries = _load_ledger(ledger, stat.st_mtime_ns, stat.st_size)
    if isinstance(entries, dict):
        return {k: v for k, v in entries.items() if not isinstance(v, dict) or _names(v, page)}
    return [v for v in entries if _names(v, page)] if isinstance(entries, list) else entries


def _names(entry: object, page: str) -> bool:
    return not isinstance(entry, dict) or entry.get("page") == page


@functools.lru_cache(maxsize=4)
def _load_ledger(path: Path, mtime_ns: int, size: int) -> object:
    # The two numbers are there for the cache only: one read serves every page of a run.
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    return yaml.load(path.read_text(encoding="utf-8"), Loader=loader)


def make_stamp(root: Path, page: str, made_from: Inputs, outputs: Digests) -> dict[str, Any]:
    """Build the record of one complete execution.

    Parameters
    ----------
    root : Path
        The repository.
    page : str
        Page name.
    made_from : dict
        :func:`inputs`, taken before the page ran, with :func:`inputs_found`.
    outputs : mapping of str to str or None
        Published file, relative to `root`, to digest. These leave ``read``: what a page
        makes is not what it is made from.

    Returns
    -------
    dict
        JSON-like stamp, without times.
    """
    read = {name: value for name, value in made_from["read"].items() if name not in outputs}
    components = {**made_from, "read": read}
    return {
        "page": page,
        "key": key_of(components),
        "inputs": components,
        "outputs": dict(sorted(outputs.items())),
    }


def read_stamp(root: Path, page: str) -> dict[str, Any] | None:
    """Last stamp of a page; None if there is none, or none that can be read."""
    try:
        stamp = json.loads(stamp_path(root, page).read_text(encoding="utf-8"))
    except (FileNotFoundError, ValueError):
        return None
    whole = isinstance(stamp, dict) and {"inputs", "outputs", "key"} <= stamp.keys()
    return cast("dict[str, Any]", stamp) if whole else None


def reason(
    root: Path, page: str, parameters: Mapping[str, Any], sources: Sources | None = None
) -> str | None:
    """Why a page must run.

    Parameters
    ----------
    root : Path
        The repository.
    page : str
        Page name.
    parameters : mapping
        Parameters it is to run with.
    sources : Sources, optional
        The repository's modules, read once for many pages.

    Returns
    -------
    str or None
        The reason in words; None when the page is up to date.
    """
    stamp = read_stamp(root, page)
    if stamp is None:
        return "never executed"
    before = stamp["inputs"]
    now = inputs(root, page, parameters)
    now["read"] = {name: digest(root / name) for name in before.get("read", {})}
    now["loaded"] = before.get("loaded", [])
    if now["page"] == before.get("page"):  # of another page it is not known what it reaches
        uses = reached(root, page, now["loaded"], sources or sources_of(root))
        now |= {"code": uses.modules, "libraries": versions_of(uses.libraries)}
    else:
        now |= {name: before.get(name) for name in ("code", "libraries")}
    reasons = describe(before, now)
    for name, recorded in stamp["outputs"].items():
        found = digest(root / name)
        if found != recorded:
            reasons.append(f"output {name} {'missing' if found is None else 'altered'}")
    return "; ".join(reasons) or None


def describe(before: Inputs, now: Inputs) -> list[str]:
    """Differences between two sets of inputs, in words.

    >>> describe({"parameters": {"profile": "quick"}}, {"parameters": {"profile": "paper"}})
    ['profile quick -> paper']
    """
    found: list[str] = []
    for name in changed(before, now):
        old, new = before.get(name) or {}, now.get(name) or {}
        parts = changed(old, new) if isinstance(old, dict) else []
        if name == "parameters":
            found += [f"{n} {old.get(n, 'default')} -> {new.get(n, 'default')}" for n in parts]
        elif name == "python":
            found.append(f"python {old} -> {new}")
        elif name == "libraries":
            found += [f"{n} {old.get(n)} -> {new.get(n)}" for n in parts]
        elif name == "read":
            found += [f"{n} {'missing' if new[n] is None else 'changed'}" for n in parts]
        elif name == "code":
            found.append(f"code changed ({_listed(parts)})")
        else:
            found.append(_WHOLE.get(name, f"{name} changed"))
    return found


_WHOLE = {"page": "the page changed", "claims": "its claims in book/claims.yml changed"}


def record_reason(record: Path, made_from: Digests, outputs: Digests) -> str | None:
    """Why something that is not a page must be made again: the scorecard, the site.

    Parameters
    ----------
    record : Path
        Where :func:`write_record` noted the last time.
    made_from, outputs : mapping of str to str or None
        Digests of today's inputs and outputs.

    Returns
    -------
    str or None
        The reason in words; None when nothing changed.
    """
    try:
        last = json.loads(record.read_text(encoding="utf-8"))
    except (FileNotFoundError, ValueError):
        return "never made"
    names = changed(last["inputs"], made_from)
    if names:
        return f"{_listed(names)} changed"
    altered = changed(last["outputs"], outputs)
    return f"its output was altered ({_listed(altered)})" if altered else None


def write_record(record: Path, made_from: Digests, outputs: Digests) -> None:
    """Note what something was made from, and what was made; see :func:`record_reason`."""
    write_atomic(record, json.dumps({"inputs": made_from, "outputs": outputs}))


def changed(before: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """Keys whose values differ, or that only one of the two has, sorted.

    >>> changed({"a": 1, "b": 2}, {"b": 3, "c": 4})
    ['a', 'b', 'c']
    """
    return sorted(k for k in before.keys() | now.keys() if before.get(k) != now.get(k))


def _listed(names: list[str]) -> str:
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return ", ".join(names[:_SHOWN]) + more
