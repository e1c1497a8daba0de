"""Long work that can be interrupted: checkpoints, fingerprints, deadlines.

A checkpoint is an ``.npz`` file with the arrays of a tree, a name for each, and a header:
the format's version, shapes, dtypes, and what the writer says about its settings. Nothing is
pickled. It appears under its name only when it is complete, so a process that is killed while
it writes leaves the previous checkpoint in place. Reading compares the header with what is
expected and says what differs: a checkpoint of other settings, sizes or an older format is
never continued by mistake.

A tree is any nesting of dicts, tuples, named tuples and lists; None is an empty tree. Its
leaves are arrays of booleans, integers or floats, numbers of Python, and keys of
``jax.random``.
"""

from __future__ import annotations

import dataclasses
import enum
import hashlib
import json
import math
import os
import time
import zipfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path, PurePath
from typing import Any

import numpy as np

from .files import replacing

#: Version of the file format. Files of another version are refused.
VERSION = 1

_HEADER = "header"
_KINDS = "biuf"  # booleans, integers, floats


class CheckpointError(ValueError):
    """A checkpoint cannot be written or does not fit what is expected of it."""


class OutOfTime(RuntimeError):
    """A deadline has passed; everything until then is in the checkpoint."""


class Deadline:
    """A time budget that a long computation looks at between its chunks.

    Parameters
    ----------
    seconds : float
        Budget from now on, > 0.
    clock : callable, optional
        Gives seconds from a fixed moment. Default: ``time.monotonic``.

    Examples
    --------
    >>> ticks = iter([0.0, 4.0, 11.0])
    >>> deadline = Deadline(10, clock=lambda: next(ticks))
    >>> deadline.passed
    False
    >>> deadline.check()
    Traceback (most recent call last):
      ...
    companion.checkpoints.OutOfTime: the deadline of 10 s has passed; run again to continue
    """

    def __init__(self, seconds: float, clock: Callable[[], float] = time.monotonic) -> None:
        number = isinstance(seconds, int | float | np.number) and not isinstance(seconds, bool)
        if not (number and 0 < seconds < math.inf):
            raise ValueError(f"seconds must be a positive number, got {seconds!r}")
        self.seconds = float(seconds)
        self._clock = clock
        self._end = clock() + self.seconds

    @property
    def remaining(self) -> float:
        """Seconds that are left; negative after the deadline."""
        return self._end - self._clock()

    @property
    def passed(self) -> bool:
        """Whether no time is left."""
        return self.remaining <= 0

    def check(self) -> None:
        """Raise :class:`OutOfTime` if no time is left. Write a checkpoint before."""
        if self.passed:
            raise OutOfTime(f"the deadline of {self.seconds:g} s has passed; run again to continue")


# -- writing and reading -------------------------------------------------------------------


def save(path: str | os.PathLike[str], tree: Any, metadata: Mapping[str, Any]) -> None:
    """Write a tree of arrays, atomically.

    Parameters
    ----------
    path : path
        File to write or replace. Its folder is made if needed.
    tree : tree
        See the module. NaN is kept.
    metadata : mapping
        Settings and progress: what JSON can hold (a big integer too), and dataclasses of it.

    Raises
    ------
    CheckpointError
        If a leaf is not an array of numbers, or the metadata cannot be written as JSON.

    Examples
    --------
    >>> import tempfile
    >>> folder = tempfile.TemporaryDirectory()
    >>> path = Path(folder.name) / "run.npz"
    >>> save(path, {"weights": np.arange(3.0), "step": 7}, {"tau": 0.005})
    >>> load(path, {"weights": np.zeros(3), "step": 0}, {"tau": 0.005})
    {'weights': array([0., 1., 2.]), 'step': 7}
    >>> load(path, {"weights": np.zeros(4), "step": 0})
    Traceback (most recent call last):
      ...
    companion.checkpoints.CheckpointError: run.npz: ['weights'] has shape (3,), expected (4,)
    >>> folder.cleanup()
    """
    arrays = {name: _array(name, leaf) for name, leaf in _leaves(tree)}
    header = {
        "version": VERSION,
        "names": list(arrays),
        "shapes": [list(array.shape) for array in arrays.values()],
        "dtypes": [array.dtype.name for array in arrays.values()],
        "metadata": _json(metadata),
    }
    entries: dict[str, Any] = {
        _HEADER: np.frombuffer(json.dumps(header).encode(), dtype=np.uint8),
        **{f"leaf{i}": array for i, array in enumerate(arrays.values())},
    }
    target = Path(path)
    target.parent.mkdir(parents=True, exist_ok=True)
    with replacing(target) as file:
        np.savez(file, **entries)


def load(
    path: str | os.PathLike[str], like: Any = None, metadata: Mapping[str, Any] | None = None
) -> Any:
    """Read a tree that :func:`save` wrote.

    Parameters
    ----------
    path : path
    like : tree, optional
        A tree of the structure, shapes and dtypes that are expected; its values do not
        matter (a leaf may be a ``jax.ShapeDtypeStruct``). Without it the checkpoint must be a
        flat dict, and comes back as one, whatever the shapes.
    metadata : mapping, optional
        Entries that the checkpoint's metadata must have. Others may be there.

    Returns
    -------
    tree
        Of the structure of ``like``. Arrays are NumPy arrays; where ``like`` has a number of
        Python or a key, so has the result.

    Raises
    ------
    FileNotFoundError
        If there is no such file.
    CheckpointError
        If the file is not a checkpoint, is damaged, has another version, structure, shape
        or dtype, or other metadata.
    """
    source = Path(path)
    header, leaves = _read(source, arrays=True)
    if metadata is not None:
        _same_metadata(source, header["metadata"], _json(metadata))
    found = dict(zip(header["names"], leaves, strict=True))
    if like is None:
        return _flat_dict(source, found)
    expected = [name for name, _ in _leaves(like)]
    if header["names"] != expected:
        missing = [name for name in expected if name not in found]
        extra = [name for name in found if name not in expected]
        raise CheckpointError(
            f"{source.name}: another structure; missing {_few(missing)}, not expected {_few(extra)}"
        )
    return _map(like, lambda name, leaf: _restore(f"{source.name}: {name}", found[name], leaf))


def read_metadata(
    path: str | os.PathLike[str], expected: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """The metadata of a checkpoint, without its arrays.

    Parameters
    ----------
    path : path
    expected : mapping, optional
        Entries that the metadata must have, as in :func:`load`.

    Raises
    ------
    FileNotFoundError, CheckpointError
        As :func:`load`.
    """
    source = Path(path)
    header, _ = _read(source, arrays=False)
    metadata: dict[str, Any] = header["metadata"]
    if expected is not None:
        _same_metadata(source, metadata, _json(expected))
    return metadata


# -- fingerprints ----------------------------------------------------------------------------


def fingerprint(*objects: Any) -> str:
    """A short name for settings: the same for the same, another for anything else.

    Parameters
    ----------
    objects
        Numbers, texts, bytes, None, enumerations, paths, arrays of numbers, dataclasses,
        dicts, lists and tuples of them.

    Returns
    -------
    str
        16 hexadecimal digits of a SHA-256. 1, 1.0, True and "1" differ.

    Raises
    ------
    TypeError
        For an object of another type: its text would not be reproducible.

    Examples
    --------
    >>> fingerprint(1.0, "Hopper-v5")
    '9413bc688297ea13'
    >>> fingerprint({"a": 1, "b": 2}) == fingerprint({"b": 2, "a": 1})
    True
    >>> fingerprint(["a", "b"]) == fingerprint("a", "b")
    False
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


# -- trees -----------------------------------------------------------------------------------


def _branches(node: Any) -> list[tuple[str, Any]] | None:
    """Parts of a tree with their names; None for a leaf."""
    if node is None:
        return []
    if isinstance(node, Mapping):
        return [(f"[{key!r}]", node[key]) for key in sorted(node)]
    if isinstance(node, tuple) and hasattr(node, "_fields"):
        return [(f".{name}", getattr(node, name)) for name in node._fields]
    if isinstance(node, list | tuple):
        return [(f"[{i}]", item) for i, item in enumerate(node)]
    return None


def _leaves(node: Any, where: str = "") -> Iterator[tuple[str, Any]]:
    parts = _branches(node)
    if parts is None:
        yield where, node
    for name, part in parts or ():
        yield from _leaves(part, where + name)


def _map(node: Any, change: Callable[[str, Any], Any], where: str = "") -> Any:
    """The same tree with other leaves."""
    parts = _branches(node)
    if parts is None:
        return change(where, node)
    if node is None:
        return None
    if isinstance(node, Mapping):
        return {key: _map(item, change, f"{where}[{key!r}]") for key, item in node.items()}
    items = [_map(part, change, where + name) for name, part in parts]
    return type(node)(*items) if hasattr(node, "_fields") else type(node)(items)


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
    if isinstance(template, bool | int | float):
        own = np.asarray(template)
        _same(name, leaf, own.shape, own.dtype)
        return type(template)(leaf)
    if _is_key(template):
        import jax

        data = jax.random.key_data(template)
        _same(name, leaf, data.shape, data.dtype)
        return jax.random.wrap_key_data(jax.numpy.asarray(leaf), impl=jax.random.key_impl(template))
    _same(name, leaf, tuple(template.shape), np.dtype(template.dtype))
    return leaf


def _same(name: str, leaf: np.ndarray, shape: tuple[int, ...], dtype: np.dtype[Any]) -> None:
    if leaf.shape != shape:
        raise CheckpointError(f"{name} has shape {leaf.shape}, expected {shape}")
    if leaf.dtype != dtype:
        raise CheckpointError(f"{name} has dtype {leaf.dtype}, expected {dtype}")


# -- headers ---------------------------------------------------------------------------------


def _json(metadata: Mapping[str, Any]) -> dict[str, Any]:
    """The metadata as JSON would give it back."""

    def plain(value: Any) -> Any:
        if dataclasses.is_dataclass(value) and not isinstance(value, type):
            return dataclasses.asdict(value)
        if isinstance(value, np.generic):
            return value.item()
        raise TypeError(f"{type(value).__name__} is not JSON")

    try:
        result: dict[str, Any] = json.loads(json.dumps(dict(metadata), default=plain))
    except (TypeError, ValueError) as error:
        raise CheckpointError(f"metadata must be what JSON can hold: {error}") from None
    return result


def _read(path: Path, arrays: bool) -> tuple[dict[str, Any], list[np.ndarray]]:
    if not path.exists():
        raise FileNotFoundError(f"no checkpoint at {path}")
    try:
        with path.open("rb") as raw, np.load(raw, allow_pickle=False) as file:
            if _HEADER not in file.files:
                raise CheckpointError(f"{path.name} is an .npz file but no checkpoint")
            header: dict[str, Any] = json.loads(file[_HEADER].tobytes())
            if header["version"] != VERSION:
                raise CheckpointError(
                    f"{path.name} has format version {header['version']}, expected {VERSION}"
                )
            count = len(header["names"]) if arrays else 0
            leaves = [file[f"leaf{i}"] for i in range(count)]
    except CheckpointError:
        raise
    except (ValueError, KeyError, EOFError, OSError, zipfile.BadZipFile) as error:
        raise CheckpointError(f"{path.name} cannot be read as a checkpoint: {error}") from None
    return header, leaves


def _same_metadata(path: Path, found: Mapping[str, Any], expected: Mapping[str, Any]) -> None:
    wrong = [
        f"{name} is {found.get(name, 'missing')!r}, expected {value!r}"
        for name, value in expected.items()
        if name not in found or found[name] != value
    ]
    if wrong:
        raise CheckpointError(f"{path.name} was made with other settings: {'; '.join(wrong)}")


def _flat_dict(path: Path, found: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    if any(name != f"['{name[2:-2]}']" or "'" in name[2:-2] for name in found):
        raise CheckpointError(f"{path.name} holds no flat dict: say by `like` what is expected")
    return {name[2:-2]: leaf for name, leaf in found.items()}


def _few(names: list[str], most: int = 4) -> str:
    shown = ", ".join(names[:most]) or "nothing"
    return shown + (f" and {len(names) - most} more" if len(names) > most else "")
