"""What code depends on: the definitions that it reaches, and the libraries that it imports.

A module is read as units (:mod:`companion.units`). A unit is reached if the code that asks
mentions its name, or if a reached unit does, through whatever imports lie between; to a fixed
point. A statement that defines nothing counts as soon as its module is imported. Nothing is
imported to find out, so the answer is the same for a page, a record, a cache and a
verification, and takes milliseconds.

A better sentence makes nothing out of date, and a changed function only what reaches it. In
doubt a unit is reached: a module that is used otherwise than by ``module.name`` is reached
whole, as is one that no import names but the process has loaded.
"""

from __future__ import annotations

import ast
import functools
import json
import pickle
import re
import sys
import types
from collections.abc import Callable, Collection, Iterable, Sequence
from importlib.metadata import (
    PackageNotFoundError,
    distributions,
    packages_distributions,
    version,
)
from pathlib import Path
from typing import NamedTuple

from .files import sha256, source_path, write_atomic
from .page_code import code_cells, code_of_page, recording_tree
from .units import SHORT, Unit, digest_of, program_of, units_of

#: How modules are read: raise the number when that changes, so that no old reading is used.
_READER = (3, *sys.version_info[:2])
_PROGRAM = ""  # what asks, a module without a name


# -- what is reached ----------------------------------------------------------------------


class Module:
    """A module read as units, see :func:`companion.units.units_of`."""

    def __init__(self, units: Sequence[Unit]) -> None:
        self.units = units
        self.always = [unit for unit in units if unit.always]
        self.named: dict[str, list[Unit]] = {}
        for unit in units:
            for name in unit.names:
                self.named.setdefault(name, []).append(unit)
        self.imported = [u.origin for u in units if u.origin and u.digest]


class Reached(NamedTuple):
    """What some code depends on, sorted.

    ``modules`` are those of the repository, with the digest of their reached units;
    ``libraries`` the top-level names of other packages that they import.
    """

    modules: dict[str, str]
    libraries: tuple[str, ...]


class Sources:
    """The modules below a folder of packages, read and never imported.

    The file ``cache`` keeps what was read, with the digests of the files. With ``packages`` only
    these count.
    """

    def __init__(
        self, folder: Path, cache: Path | None = None, packages: Sequence[str] = ("",)
    ) -> None:
        self._paths: dict[str, Path] = {}
        for path in sorted(path for name in packages for path in (folder / name).rglob("*.py")):
            parts = path.relative_to(folder).with_suffix("").parts
            self._paths[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
        self._modules: dict[str, Module] = {}
        self._cache = cache
        self._kept = _read_cache(cache)
        self._fresh = False

    def __contains__(self, module: str) -> bool:
        return module in self._paths

    def module(self, name: str) -> Module:
        """One module, read once."""
        if name not in self._modules:
            path = self._paths[name]
            package = path.name == "__init__.py"
            units = self._read(name, path, lambda text: units_of(ast.parse(text), name, package))
            stub = path.with_suffix(".pyi")
            if stub.exists():  # never executed, and says where lazy names come from
                listed = units_of(ast.parse(stub.read_bytes()), name, package)
                units = units + [unit._replace(digest="") for unit in listed]
            self._modules[name] = Module(units)
        return self._modules[name]

    def modules_below(self, package: str) -> list[str]:
        """Modules of a package."""
        return [name for name in self._paths if name.startswith(f"{package}.")]

    def page(self, root: Path, page: str) -> list[Unit]:
        """The program of a page, for :meth:`reached`."""

        def read(text: bytes) -> list[Unit]:
            return program_of(ast.parse(code_of_page(text.decode())))

        return self._read(f"page {page}", source_path(root, page), read)

    def _read(self, name: str, path: Path, read: Callable[[bytes], list[Unit]]) -> list[Unit]:
        content = path.read_bytes()
        digest = sha256(content)
        if name not in self._kept or self._kept[name][0] != digest:
            self._kept[name] = (digest, read(content))
            self._fresh = True
        return self._kept[name][1]

    def keep(self) -> None:
        """Write what was read for the first time into the cache."""
        if self._cache is not None and self._fresh:
            write_atomic(self._cache, pickle.dumps((_READER, self._kept)))
            self._fresh = False

    def reached(
        self,
        program: Sequence[Unit] = (),
        *,
        names: Iterable[str] = (),
        loaded: Iterable[str] = (),
        without: Collection[str] = (),
    ) -> Reached:
        """What a program (:func:`companion.units.program_of`), or a definition, depends on.

        ``names`` are full names of definitions, or of whole modules. Of the modules that its
        process had ``loaded``, one that no import names is reached whole; those in ``without`` do
        not count."""
        search = _Search(self, without)
        self._modules[_PROGRAM] = Module(program)
        search.touch(_PROGRAM)
        for name in names:
            search.full_name(name)
        search.run()
        for module in loaded:
            if module in self and module not in search.touched:
                search.whole(module)
        search.run()
        return search.found()


def sources_of(root: Path) -> Sources:
    """The packages of a repository."""
    return Sources(root / "src", root / "_build" / "dependencies.pickle")


def _read_cache(path: Path | None) -> dict[str, tuple[str, list[Unit]]]:
    """What an earlier process has read; nothing if it cannot be trusted."""
    try:
        reader, kept = pickle.loads(path.read_bytes()) if path else (None, {})
    except Exception:  # whatever the bytes of a damaged file mean
        return {}
    return kept if reader == _READER else {}


class _Search:
    """One search for what is reached."""

    def __init__(self, sources: Sources, without: Collection[str]) -> None:
        self.sources = sources
        self.without = without
        self.touched: set[str] = set()
        self.libraries: set[str] = set()
        self.reached: dict[str, dict[str, Unit]] = {}  # module -> digest -> unit
        self.seen: set[tuple[str, str]] = set()
        self.waiting: list[tuple[str, str]] = []  # module, name in it with attributes

    def full_name(self, name: str) -> None:
        """A definition by its full name, or a whole module."""
        parts = name.split(".")
        for length in range(len(parts), 0, -1):
            module = ".".join(parts[:length])
            if module in self.sources:
                self.enter(module, tuple(parts[length:]))
                return
        raise ValueError(f"{name} is in no module of the repository")

    def run(self) -> None:
        """Follow names to a fixed point."""
        while self.waiting:
            module, use = self.waiting.pop()
            if (module, use) in self.seen:
                continue
            self.seen.add((module, use))
            name, *attributes = use.split(".")
            for unit in self.sources.module(module).named[name]:
                self.reach(module, unit)
                if unit.origin is not None:
                    self.origin(unit.origin, tuple(attributes))

    def reach(self, module: str, unit: Unit) -> None:
        """A unit counts, and what it mentions."""
        if unit.digest:
            of_module = self.reached.setdefault(module, {})
            key = f"{unit.names} {unit.digest}"
            if key in of_module:
                return
            of_module[key] = unit
        self.waiting += [(module, use) for use in unit.uses]

    def origin(self, origin: tuple[str, str], attributes: tuple[str, ...]) -> None:
        """Where an imported name leads to."""
        source, name = origin
        if source in self.sources:
            self.enter(source, (*([name] if name else []), *attributes))
        elif source:
            root = source.split(".")[0]
            if root not in sys.stdlib_module_names:
                self.libraries.add(root)

    def enter(self, module: str, attributes: tuple[str, ...]) -> None:
        """A module is used: a name in it, or the module itself."""
        if module in self.without:
            return
        self.touch(module)
        name, rest = (attributes[0], attributes[1:]) if attributes else ("*", ())
        named = self.sources.module(module).named
        own = named.get(name, [])
        lazy = "__getattr__" in named and not any(unit.digest for unit in own)
        if lazy and (own or f"{module}.{name}" not in self.sources):
            self.waiting.append((module, "__getattr__"))  # it finds the name when it is used
        if name == "*":
            self.whole(module)
        elif any(unit.origin != (module, name) for unit in own):
            self.waiting.append((module, ".".join(attributes)))
        elif f"{module}.{name}" in self.sources:
            self.enter(f"{module}.{name}", rest)
        elif lazy:
            for other in self.sources.modules_below(module):
                if name in self.sources.module(other).named:
                    self.waiting.append((other, ".".join(attributes)))

    def touch(self, module: str) -> None:
        """A module is imported, with the packages above it: some statements always count."""
        if module in self.touched:
            return
        self.touched.add(module)
        if module in self.without:
            return
        above = module.rpartition(".")[0]
        if above in self.sources:
            self.touch(above)
        read = self.sources.module(module)
        for unit in read.always:
            self.reach(module, unit)
        for source, name in read.imported:
            self.import_(source, name)

    def import_(self, source: str, name: str) -> None:
        """A statement imports a name from a module; both may be modules of the repository."""
        for imported in (source, f"{source}.{name}"):
            if imported in self.sources:
                self.touch(imported)
        if name == "*" and source in self.sources:
            self.whole(source)

    def whole(self, module: str) -> None:
        """A module is used in a way that may reach all that it defines."""
        self.touch(module)
        for unit in self.sources.module(module).units:
            self.reach(module, unit)
            source, name = unit.origin or ("", "")
            if unit.digest and f"{source}.{name}" not in self.sources and name:
                self.origin((source, name), ())

    def found(self) -> Reached:
        """Digests of what was reached."""
        modules = {
            module: sha256("\n".join(sorted(units)).encode())[:SHORT]
            for module, units in sorted(self.reached.items())
            if module != _PROGRAM
        }
        return Reached(modules, tuple(sorted(self.libraries)))


@functools.cache
def _distributions() -> dict[str, list[str]]:
    """Distributions by the top-level packages that they say they hold; most say it."""
    found: dict[str, list[str]] = {}
    for one in distributions():
        for package in (one.read_text("top_level.txt") or "").split():
            found.setdefault(package, []).append(one.metadata["Name"])
    return found


_all_distributions = functools.cache(packages_distributions)  # half a second: of their files


def versions_of(libraries: Iterable[str]) -> dict[str, str]:
    """Distribution to version, of top-level packages; what is not installed has none.

    >>> sorted(versions_of(["numpy", "yaml", "no_such_package"]))
    ['PyYAML', 'numpy']
    """
    found = {}
    for library in libraries:
        try:
            found[library] = version(library)  # most distributions have the package's name
        except PackageNotFoundError:
            names = _distributions().get(library) or _all_distributions().get(library, [])
            found |= {name: version(name) for name in names}
    return found


# -- pages, commands and functions --------------------------------------------------------

#: Of the plumbing, what shows results or keeps them, and computes nothing.
SHOWING = frozenset(
    f"companion.{name}"
    for name in (
        *("card", "claims", "dependencies", "exercise", "figures", "files", "published", "records"),
    )
)


class Uses(NamedTuple):
    """What a table, or a cache, was computed by.

    ``code`` is the digest of the page's code that computes, empty for a command; ``modules`` are as
    in :class:`Reached`, and ``libraries`` maps a distribution to its version.
    """

    code: str
    modules: dict[str, str]
    libraries: dict[str, str]

    @property
    def source_sha256(self) -> str:
        """One digest of all code; the libraries are beside it."""
        return sha256(json.dumps([self.code, self.modules], sort_keys=True).encode())


def is_command(maker: str) -> bool:
    """Whether the maker of a table is a command and not a page."""
    return maker.startswith("python ")


def recorded_by(root: Path, maker: str, sources: Sources | None = None) -> Uses:
    """What the recorded tables of a page or command are computed by.

    ``maker`` is the name of a page (one that has no source uses nothing), or a command as it stands
    in the provenance of its table: ``python -m MODULE ...`` or ``python FILE ...``. ``sources`` are
    the modules, read once for many makers. A command whose program is not in the repository is a
    ``ValueError``.
    """
    sources = sources or sources_of(root)
    if not is_command(maker):
        path = source_path(root, maker)
        cells = code_cells(path.read_text(encoding="utf-8")) if path.is_file() else []
        tree = recording_tree(cells)
        return _uses(digest_of(tree), sources, program_of(tree))
    match = re.match(r"python (?:-m ([\w.]+)|(\S+\.py))(?= |$)", maker)
    if match and match[1]:
        names = [name for name in (f"{match[1]}.__main__", match[1]) if name in sources]
        if names:
            return _uses("", sources, names=names[:1])
    elif match and (root / match[2]).is_file():
        tree = ast.parse((root / match[2]).read_bytes())
        return _uses(digest_of(tree), sources, program_of(tree))
    raise ValueError(f"no program of this repository: {maker!r}")


def _uses(
    code: str, sources: Sources, program: Sequence[Unit] = (), names: Sequence[str] = ()
) -> Uses:
    found = sources.reached(program, names=names, without=SHOWING)
    sources.keep()
    return Uses(code, found.modules, versions_of(found.libraries))


# Not documented with "#:": the site would show the place of the machine that built it.
OWN_ROOT = Path(__file__).resolve().parents[2]


@functools.cache
def own_sources() -> Sources:
    """The packages beside this one, as they were when this process first asked.

    Where they are installed, without a repository, there are others beside them.
    """
    folder = Path(__file__).resolve().parents[1]
    if folder == OWN_ROOT / "src":
        return sources_of(OWN_ROOT)
    return Sources(folder, packages=("companion", "dprl", "experiments"))


def full_name(thing: object) -> str:
    """Name by which the sources know a module, or the function or class that holds a thing.

    >>> full_name(full_name), full_name(Sources.page)
    ('companion.dependencies.full_name', 'companion.dependencies.Sources')
    """
    if isinstance(thing, types.ModuleType):
        return thing.__name__
    module = getattr(thing, "__module__", None) or ""
    if module == "__main__":
        module = getattr(getattr(sys.modules["__main__"], "__spec__", None), "name", module)
    return f"{module}.{getattr(thing, '__qualname__', '').split('.')[0]}"


def code_of(*things: object) -> str:
    """Digest of what functions, classes or modules of the repository compute, and with what.

    For the names of caches, 16 hexadecimal digits: it changes when a definition that they reach
    does, or a library that these import, and not when a sentence is put better. What is not of
    this repository is a ``ValueError``.
    """
    found = _uses("", own_sources(), names=[full_name(thing) for thing in things])
    return sha256(json.dumps(found, sort_keys=True).encode())[:SHORT]
