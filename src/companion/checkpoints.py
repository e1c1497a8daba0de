"""Long work that can be interrupted: checkpoints, fingerprints, deadlines.

A checkpoint is an ``.npz`` file with the leaves of a tree, a name for each, and the version of
the format. Nothing is pickled. It appears under its name only when it is complete, so a process
that is killed while it writes leaves the previous checkpoint in place. Reading compares names,
shapes and dtypes with what is expected and says what differs. What a checkpoint depends on
belongs into its path, by a :func:`fingerprint`.

A tree is one of ``jax.tree``: any nesting of dicts, tuples, named tuples and lists; None is an
empty tree. Its leaves are arrays of booleans, integers or floats, numbers of Python, and keys of
``jax.random``.
"""

from __future__ import annotations

import dataclasses
import enum
import hashlib
import json
import os
import re
import time
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path, PurePath
from typing import Any

import numpy as np

from ._numbers import is_real
from .files import replacing

#: Version of the file format. Files of another version are refused.
VERSION = 2

_HEADER = "header"
_KINDS = "biuf"  # booleans, integers, floats


class CheckpointError(ValueError):
    """A checkpoint cannot be written or does not fit what is expected of it."""


class OutOfTime(RuntimeError):
    """A deadline has passed; everything until then is in the checkpoint."""


class Deadline:
    """A time budget that a long computation looks at between its chunks.

    ``seconds`` > 0 from now on, by a clock that gives seconds from a fixed moment.

    >>> ticks = iter([0.0, 4.0, 11.0])
    >>> deadline = Deadline(10, clock=lambda: next(ticks))
    >>> deadline.passed, deadline.passed
    (False, True)
    """

    def __init__(self, seconds: float, clock: Callable[[], float] = time.monotonic) -> None:
        if not (is_real(seconds) and seconds > 0):
            raise ValueError(f"seconds must be a positive number, got {seconds!r}")
        self.seconds = float(seconds)
        self._clock = clock
        self._end = clock() + self.seconds

    @property
    def passed(self) -> bool:
        """Whether no time is left."""
        return self._clock() >= self._end

    def check(self) -> None:
        """Raise :class:`OutOfTime` if no time is left. Write a checkpoint before."""
        if self.passed:
            raise OutOfTime(f"the deadline of {self.seconds:g} s has passed; run again to continue")


# -- writing and reading -------------------------------------------------------------------


def save(path: str | os.PathLike[str], tree: Any) -> None:
    """Write a tree of arrays, atomically, into a file whose folder is made if needed.

    A leaf that is not an array of numbers is a :class:`CheckpointError`. NaN is kept.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder) / "run.npz"
    ...     save(path, {"weights": np.arange(3.0), "step": 7})
    ...     load(path, {"weights": np.zeros(3), "step": 0})
    {'step': 7, 'weights': array([0., 1., 2.])}
    """
    arrays = {name: _array(name, leaf) for name, leaf in _named_leaves(tree)}
    header = json.dumps({"version": VERSION, "names": list(arrays)}).encode()
    entries = {f"leaf{i}": array for i, array in enumerate(arrays.values())}
    entries[_HEADER] = np.frombuffer(header, dtype=np.uint8)
    target = Path(path)
    target.parent.mkdir(parents=True, exist_ok=True)
    with replacing(target) as file:
        np.savez(file, **entries)  # type: ignore[arg-type]


def load(path: str | os.PathLike[str], like: Any = None) -> Any:
    """Read a tree that :func:`save` wrote.

    ``like`` is a tree of the structure, shapes and dtypes that are expected; its values do not
    matter (a leaf may be a ``jax.ShapeDtypeStruct``). The answer has its structure, with NumPy
    arrays and, where ``like`` has a number of Python or a key, the same. Without it the checkpoint
    must be a flat dict, and comes back as one, whatever the shapes.

    Raises
    ------
    FileNotFoundError
        If there is no such file.
    CheckpointError
        If the file is not a checkpoint, is damaged, or has another version, structure, shape
        or dtype.
    """
    source = Path(path)
    found = _read(source)
    if like is None:
        keys = {name: re.fullmatch(r"\['([^']*)'\]", name) for name in found}
        if None in keys.values():
            raise CheckpointError(
                f"{source.name} holds no flat dict: say by `like` what is expected"
            )
        return {key[1]: found[name] for name, key in keys.items() if key}
    import jax

    expected = [name for name, _ in _named_leaves(like)]
    if list(found) != expected:
        missing = [name for name in expected if name not in found]
        extra = [name for name in found if name not in expected]
        raise CheckpointError(
            f"{source.name}: another structure; missing {_few(missing)}, not expected {_few(extra)}"
        )
    leaves = [
        _restore(f"{source.name}: {name}", found[name], leaf) for name, leaf in _named_leaves(like)
    ]
    return jax.tree.unflatten(jax.tree.structure(like), leaves)


def _read(path: Path) -> dict[str, np.ndarray]:
    if not path.exists():
        raise FileNotFoundError(f"no checkpoint at {path}")
    try:
        with path.open("rb") as raw, np.load(raw, allow_pickle=False) as file:
            header: dict[str, Any] = json.loads(file[_HEADER].tobytes())
            if header["version"] == VERSION:
                return {name: file[f"leaf{i}"] for i, name in enumerate(header["names"])}
    except (ValueError, KeyError, EOFError, OSError, zipfile.BadZipFile) as error:
        raise CheckpointError(f"{path.name} cannot be read as a checkpoint: {error}") from None
    raise CheckpointError(f"{path.name} has format version {header['version']}, expected {VERSION}")


def _named_leaves(tree: Any) -> list[tuple[str, Any]]:
    import jax

    return [(jax.tree_util.keystr(at), leaf) for at, leaf in jax.tree.leaves_with_path(tree)]


def _is_key(leaf: Any) -> bool:
    """Whether a leaf is a key of ``jax.random``."""
    return str(getattr(leaf, "dtype", "")).startswith("key<")


def _array(name: str, leaf: Any) -> np.ndarray:
    if _is_key(leaf):
        import jax

        leaf = jax.random.key_data(leaf)
    array = np.asarray(leaf)
    if array.dtype.kind not in _KINDS:
        raise CheckpointError(f"{name} must be an array of numbers, got dtype {array.dtype}")
    return array


def _restore(name: str, leaf: np.ndarray, template: Any) -> Any:
    """The leaf in the template's type, if it has its shape and dtype."""
    is_number = isinstance(template, bool | int | float)
    expected = _array(name, template) if is_number or _is_key(template) else template
    for what in ("shape", "dtype"):
        found, wanted = getattr(leaf, what), getattr(expected, what)
        if found != wanted:
            raise CheckpointError(f"{name} has {what} {found}, expected {wanted}")
    if is_number:
        return type(template)(leaf)
    if _is_key(template):
        import jax

        return jax.random.wrap_key_data(jax.numpy.asarray(leaf), impl=jax.random.key_impl(template))
    return leaf


def _few(names: list[str], most: int = 4) -> str:
    shown = ", ".join(names[:most]) or "nothing"
    return shown + (f" and {len(names) - most} more" if len(names) > most else "")


# -- fingerprints ----------------------------------------------------------------------------


def fingerprint(*objects: Any) -> str:
    """A short name for settings: the same for the same, another for anything else.

    They are numbers, texts, bytes, None, enumerations, paths, arrays of numbers, dataclasses,
    dicts, lists and tuples of them; another type is a ``TypeError``, as its text would not be
    reproducible. The name has 16 hexadecimal digits of a SHA-256. 1, 1.0, True and "1" differ.

    >>> fingerprint(1.0, "Hopper-v5")
    '9413bc688297ea13'
    >>> fingerprint({"a": 1, "b": 2}) == fingerprint({"b": 2, "a": 1})
    True
    """
    digest = hashlib.sha256()
    for part in objects:
        digest.update(_canonical(part))
    return digest.hexdigest()[:16]


def _canonical(value: Any) -> bytes:
    """Bytes that name type and value; every piece carries its length."""
    kind, content = type(value).__name__, b""
    if value is None:
        pass
    elif isinstance(value, enum.Enum):
        kind, content = f"enum {kind}", value.name.encode()
    elif isinstance(value, bool | np.bool_):
        kind, content = "bool", str(bool(value)).encode()
    elif isinstance(value, int | np.integer):
        kind, content = "int", str(int(value)).encode()
    elif isinstance(value, float | np.floating):
        kind, content = "float", float(value).hex().encode()
    elif isinstance(value, str):
        content = value.encode()
    elif isinstance(value, bytes):
        content = value
    elif isinstance(value, PurePath):
        kind, content = "path", str(value).encode()
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        kind = f"dataclass {kind}"
        content = _canonical({f.name: getattr(value, f.name) for f in dataclasses.fields(value)})
    elif isinstance(value, Mapping):
        kind = "dict"
        pairs = sorted((_canonical(key), _canonical(item)) for key, item in value.items())
        content = b"".join(key + item for key, item in pairs)
    elif isinstance(value, list | tuple):
        kind, content = "sequence", b"".join(_canonical(item) for item in value)
    elif hasattr(value, "__array__") and np.asarray(value).dtype.kind in _KINDS:
        array = np.ascontiguousarray(value)
        kind, content = f"array {array.dtype.str} {array.shape}", array.tobytes()
    else:
        raise TypeError(
            "a fingerprint is made of numbers, texts, arrays, dataclasses, lists and dicts, "
            f"got {type(value).__name__}"
        )
    return f"{kind}:{len(content)}:".encode() + content
