"""When must a page run again, and why? Contents decide, never times.

A page that ran to its end leaves a *stamp*: the digests of everything it was made
from and of everything it made. The page is up to date while both still agree with the
files; so is the site, which has a stamp too. The inputs of a page are named, so that the
difference can be said in words:

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

Published numbers and recorded results (``data``) enter by ``read``: recording one page's result
re-runs its readers and nobody else. What a page itself published is its output, not its input,
whether it read it or not; so a page never makes itself stale.

In all functions ``root`` is the repository, and ``page`` a page's name, such as
``3-policy-evaluation/dp-lsw``.
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
from companion.files import digest, sha256, source_path

Inputs = dict[str, Any]
Digests = Mapping[str, str | None]

_SHOWN = 3  # file names in one reason; the rest is counted
#: What executes a page and cleans it.
_EXECUTION = ("companion.build.execution.execute_page", "companion.build.reads")
_WORDS = {"page": "the page changed", "claims": "its claims in book/claims.yml changed"}


def product_path(root: Path, page: str, suffix: str) -> Path:
    """What an execution published: ``ipynb``, the verdicts ``claims.json``, or ``stamp.json``."""
    return root / "book" / "nb" / f"{page}.{suffix}"


# -- what a page is made from -------------------------------------------------------------


def digests(folder: Path) -> dict[str, str | None]:
    """Digest of every file below a folder by its path there, without caches and hidden files."""
    found = {path.relative_to(folder): path for path in sorted(folder.rglob("*"))}
    return {
        name.as_posix(): digest(path)
        for name, path in found.items()
        if path.is_file() and not any(p[:1] == "." or p == "__pycache__" for p in name.parts)
    }


def python_minor() -> str:
    """The running Python's version without the patch, such as ``3.11``."""
    return ".".join(platform.python_version_tuple()[:2])


def key_of(value: object) -> str:
    """One digest for a JSON-like value, independent of the order of keys."""
    return sha256(json.dumps(value, sort_keys=True, ensure_ascii=False).encode())


def reached(root: Path, page: str, loaded: Iterable[str], sources: Sources) -> Reached:
    """Definitions and libraries that a page, and what executes it, depend on.

    ``loaded`` are the modules that its process imported.
    """
    names = [name for name in _EXECUTION if "companion.build.execution" in sources]
    return sources.reached(sources.page(root, page), names=names, loaded=loaded)


def inputs(root: Path, page: str, parameters: Mapping[str, Any]) -> Inputs:
    """What a page is made from as far as it is known before it runs, by name.

    ``parameters`` are those passed to the page; a seed only if one was given.
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

    ``log`` is that of ``companion.build.reads.read_log``; ``sources`` are the repository's
    modules as they were before the page ran: one that was edited meanwhile counts as changed.
    """
    found = reached(root, page, log["loaded"], sources)
    return {
        "read": dict(log["read"]),
        "loaded": sorted(log["loaded"]),
        "code": found.modules,
        "libraries": versions_of(found.libraries),
    }


def claims_of(root: Path, page: str) -> object:
    """The ledger's entries for one page, so that editing another page's is free."""
    ledger = root / "book" / "claims.yml"
    if not ledger.is_file():
        return None
    entries = _load_ledger(ledger, ledger.stat().st_mtime_ns)
    if not isinstance(entries, list):
        return entries
    return [v for v in entries if not isinstance(v, dict) or v.get("page") == page]


@functools.lru_cache(maxsize=4)
def _load_ledger(path: Path, _modified: int) -> object:
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    return yaml.load(path.read_text(encoding="utf-8"), Loader=loader)


# -- stamps -------------------------------------------------------------------------------


def write_stamp(path: Path, made_from: Inputs, outputs: Digests) -> None:
    """Note what something was made from, and the digests of what was made.

    What is made leaves ``read``: it is not what it is made from.
    """
    read = {name: value for name, value in made_from["read"].items() if name not in outputs}
    stamp = {"inputs": {**made_from, "read": read}, "outputs": outputs}
    path.write_text(json.dumps(stamp, indent=1, sort_keys=True) + "\n", encoding="utf-8")


def read_stamp(path: Path) -> dict[str, Any] | None:
    """The stamp in a file; None if there is none, or none that can be read."""
    try:
        stamp = json.loads(path.read_text(encoding="utf-8"))
    except (FileNotFoundError, ValueError):
        return None
    whole = isinstance(stamp, dict) and {"inputs", "outputs"} <= stamp.keys()
    return cast("dict[str, Any]", stamp) if whole else None


def reason(
    root: Path,
    page: str,
    parameters: Mapping[str, Any],
    sources: Sources | None = None,
    *,
    same_code: bool = False,
) -> str | None:
    """Why a page must run with these parameters, in words; None when it is up to date.

    ``sources`` are the repository's modules, read once for many pages. With ``same_code`` the
    page's cells are known to be what they were, and another text of it is no reason.
    """
    stamp = read_stamp(product_path(root, page, "stamp.json"))
    if stamp is None:
        return "never executed"
    before = stamp["inputs"]
    now = {**before, **inputs(root, page, parameters)}
    if same_code:
        now["page"] = before["page"]
    now["read"] = {name: digest(root / name) for name in before["read"]}
    if now["page"] == before["page"]:  # of another page it is not known what it reaches
        uses = reached(root, page, before["loaded"], sources or sources_of(root))
        now |= {"code": uses.modules, "libraries": versions_of(uses.libraries)}
    return differences(stamp, now, {name: digest(root / name) for name in stamp["outputs"]})


def differences(stamp: Mapping[str, Any], made_from: Inputs, outputs: Digests) -> str | None:
    """How today's inputs and outputs differ from those of a stamp, in words; None if not.

    >>> stamp = {"inputs": {"parameters": {"profile": "quick"}}, "outputs": {}}
    >>> differences(stamp, {"parameters": {"profile": "paper"}}, {})
    'profile quick -> paper'
    """
    before, found = stamp["inputs"], []
    for name in changed(before, made_from):
        old, new = before.get(name) or {}, made_from.get(name) or {}
        parts = changed(old, new) if isinstance(old, dict) else []
        if name == "python":
            found.append(f"python {old} -> {new}")
        elif name in ("parameters", "libraries"):
            missing = "default" if name == "parameters" else "not used"
            found += [f"{n} {old.get(n, missing)} -> {new.get(n, missing)}" for n in parts]
        elif name == "read":
            found.append(f"{_listed(parts)} changed")
        elif name == "code":
            found.append(f"code changed ({_listed(parts)})")
        else:
            found.append(_WORDS.get(name, f"{name} changed"))
    altered = changed(stamp["outputs"], outputs)
    if altered:
        gone = all(outputs.get(name) is None for name in altered)
        found.append(f"output {_listed(altered)} {'missing' if gone else 'altered'}")
    return "; ".join(found) or None


def changed(before: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """Keys whose values differ, or that only one of the two has, sorted."""
    return sorted(k for k in before.keys() | now.keys() if before.get(k) != now.get(k))


def _listed(names: list[str]) -> str:
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return ", ".join(names[:_SHOWN]) + more
