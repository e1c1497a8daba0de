r"""Long computations that can be interrupted: files, locks, fingerprints, deadlines.

A checkpoint is an ``.npz`` file. It holds the arrays of a tree, a name for each, and a header
with the format's version, shapes, dtypes, and what the writer says about its settings. It
holds no code: nothing is pickled. It appears under its name only when it is complete, so a
process that is killed while it writes leaves the previous checkpoint in place.

Reading compares the header with what the reader expects and says what differs, so that a
checkpoint of other settings, sizes or an older format is never continued by mistake.
"""

from __future__ import annotations

import dataclasses
import enum
import fcntl
import hashlib
import json
import os
import time
import uuid
import zipfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path, PurePath
from types import ModuleType
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import numpy as np

from dprl import _validation as check

#: Version of the file format. Files of another version are refused.
VERSION = 1

_HEADER = "header"
_KINDS = "biuf"  # booleans, integers, floats

Tree = TypeVar("Tree")


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
    >>> ticks = iter([0.0, 4.0, 11.0, 11.0])
    >>> deadline = Deadline(10, clock=lambda: next(ticks))
    >>> deadline.check()
    >>> deadline.check()
    Traceback (most recent call last):
      ...
    dprl.agents.checkpoints.OutOfTime: the deadline of 10 s has passed; run again to continue
    """

    def __init__(self, seconds: float, clock: Callable[[], float] = time.monotonic) -> None:
        self.seconds = check.positive("seconds", seconds)
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


# -- files -------------------------------------------------------------------------------


def save(path: str | os.PathLike[str], tree: Any, metadata: Mapping[str, Any]) -> None:
    """Write a tree of arrays, atomically.

    Parameters
    ----------
    path : path
        File to write or replace. Its folder is made if needed.
    tree : tree of arrays and numbers
        Any nesting of dicts, tuples, named tuples and lists that JAX takes as a tree.
        Leaves: arrays of booleans, integers or floats; Python numbers; keys of
        ``jax.random``. NaN is kept.
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
    {'step': 7, 'weights': array([0., 1., 2.])}
    >>> load(path, {"weights": np.zeros(4), "step": 0})
    Traceback (most recent call last):
      ...
    dprl.agents.checkpoints.CheckpointError: run.npz: ['weights'] has shape (3,), expected (4,)
    >>> folder.cleanup()
    """
    target = Path(path)
    names, leaves = _flatten(tree)
    arrays = [_array(name, leaf) for name, leaf in zip(names, leaves, strict=True)]
    header = {
        "version": VERSION,
        "names": names,
        "shapes": [list(array.shape) for array in arrays],
        "dtypes": [array.dtype.name for array in arrays],
        "metadata": _json(metadata),
    }
    raw = np.frombuffer(json.dumps(header).encode(), dtype=np.uint8)
    target.parent.mkdir(parents=True, exist_ok=True)
    # a name of its own: two writers cannot touch each other's unfinished file
    unfinished = target.with_name(f".{target.name}.{uuid.uuid4().hex}.tmp")
    entries: dict[str, Any] = {_HEADER: raw}
    entries |= {f"leaf{i}": array for i, array in enumerate(arrays)}
    try:
        with unfinished.open("wb") as file:
            np.savez(file, **entries)
            file.flush()
            os.fsync(file.fileno())
        unfinished.replace(target)
    finally:
        unfinished.unlink(missing_ok=True)


def load(
    path: str | os.PathLike[str], like: Any = None, metadata: Mapping[str, Any] | None = None
) -> Any:
    """Read a tree that :func:`save` wrote.

    Parameters
    ----------
    path : path
    like : tree, optional
        A tree of the structure, shapes and dtypes that are expected; its values do not
        matter (arrays, ``jax.ShapeDtypeStruct``, Python numbers, keys). Without it the
        checkpoint must be a flat dict, and comes back as one, whatever the shapes.
    metadata : mapping, optional
        Entries that the checkpoint's metadata must have. Others may be there.

    Returns
    -------
    tree
        Of the structure of ``like``. Arrays are NumPy arrays; where ``like`` has a Python
        number or a key, so has the result.

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
    if like is None:
        return _flat_dict(source, header["names"], leaves)
    expected, templates = _flatten(like)
    if header["names"] != expected:
        missing = [name for name in expected if name not in header["names"]]
        extra = [name for name in header["names"] if name not in expected]
        raise CheckpointError(
            f"{source.name}: another structure; missing {_few(missing)}, not expected {_few(extra)}"
        )
    restored = [
        _restore(f"{source.name}: {name}", leaf, template)
        for name, leaf, template in zip(expected, leaves, templates, strict=True)
    ]
    return jax.tree.unflatten(jax.tree.structure(like), restored)


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


# -- one process at a time -----------------------------------------------------------------


@contextmanager
def locked(folder: str | os.PathLike[str], timeout: float | None = None) -> Iterator[Path]:
    """Hold a folder's lock, so that two processes do not compute the same thing.

    The lock is a file in the folder, held by the operating system: it is free again as soon
    as the process ends, however it ends. It is not re-entrant. It needs a file system that
    supports locks, and a POSIX system.

    Parameters
    ----------
    folder : path
        Made if needed.
    timeout : float, optional
        Give up after so many seconds. Default: wait.

    Yields
    ------
    Path
        The folder.

    Raises
    ------
    TimeoutError
        If another process still holds the lock after ``timeout`` seconds.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as parent, locked(Path(parent) / "study") as folder:
    ...     folder.name
    'study'
    """
    place = Path(folder)
    if timeout is not None:
        deadline = Deadline(timeout)
    place.mkdir(parents=True, exist_ok=True)
    with (place / ".lock").open("a") as file:
        if timeout is None:
            fcntl.flock(file, fcntl.LOCK_EX)
        else:
            while True:
                try:
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                except BlockingIOError:
                    if deadline.passed:
                        raise TimeoutError(
                            f"another process holds the lock of {place} for more than {timeout:g} s"
                        ) from None
                    time.sleep(0.05)
        try:
            yield place
        finally:
            fcntl.flock(file, fcntl.LOCK_UN)


# -- fingerprints ----------------------------------------------------------------------------


def fingerprint(*objects: Any) -> str:
    """A short name for settings and code: the same for the same, another for anything else.

    Parameters
    ----------
    objects
        Numbers, texts, bytes, None, enumerations, arrays of numbers, dataclasses, dicts,
        lists and tuples of them, and modules. A module counts by its source text.

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
    elif isinstance(value, ModuleType):
        if getattr(value, "__file__", None) is None:
            raise TypeError(f"a fingerprint needs a module with a source file, got {value!r}")
        kind, content = f"module {value.__name__}", Path(str(value.__file__)).read_bytes()
    elif isinstance(value, enum.Enum):
        kind, content = f"enum {type(value).__name__}", value.name.encode()
    elif isinstance(value, (bool, np.bool_)):
        kind, content = "bool", str(bool(value)).encode()
    elif isinstance(value, (int, np.integer)):
        kind, content = "int", str(int(value)).encode()
    elif isinstance(value, (float, np.floating)):
        kind, content = "float", float(value).hex().encode()
    elif isinstance(value, str):
        content = value.encode()
    elif isinstance(value, bytes):
        content = value
    elif isinstance(value, PurePath):
        kind, content = "path", str(value).encode()
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        kind = f"dataclass {kind}"
        fields = {f.name: getattr(value, f.name) for f in dataclasses.fields(value)}
        content = _canonical(fields)
    elif isinstance(value, Mapping):
        kind = "dict"
        pairs = sorted((_canonical(key), _canonical(item)) for key, item in value.items())
        content = b"".join(key + item for key, item in pairs)
    elif isinstance(value, (list, tuple)):
        kind, content = "sequence", b"".join(_canonical(item) for item in value)
    elif isinstance(value, (np.ndarray, jax.Array)) and value.dtype.kind in _KINDS:
        array = np.ascontiguousarray(value)
        kind, content = f"array {array.dtype.str} {array.shape}", array.tobytes()
    else:
        raise TypeError(
            "a fingerprint is made of numbers, texts, arrays, dataclasses, lists, dicts and "
            f"modules, got {type(value).__name__}"
        )
    return f"{kind}:{len(content)}:".encode() + content


# -- helpers ---------------------------------------------------------------------------------


def _flatten(tree: Any) -> tuple[list[str], list[Any]]:
    pairs = jax.tree_util.tree_flatten_with_path(tree)[0]
    return [jax.tree_util.keystr(where) for where, _ in pairs], [leaf for _, leaf in pairs]


def _is_key(leaf: Any) -> bool:
    dtype = getattr(leaf, "dtype", None)
    return dtype is not None and jnp.issubdtype(dtype, jax.dtypes.prng_key)


def _array(name: str, leaf: Any) -> np.ndarray:
    array = np.asarray(jax.random.key_data(leaf) if _is_key(leaf) else leaf)
    if array.dtype.kind not in _KINDS:
        raise CheckpointError(f"{name} must be an array of numbers, got dtype {array.dtype}")
    return array


def _restore(name: str, leaf: np.ndarray, template: Any) -> Any:
    """The leaf in the template's type, if it has its shape and dtype."""
    if isinstance(template, (bool, int, float)):
        own = np.asarray(template)
        _same(name, leaf, own.shape, own.dtype)
        return type(template)(leaf)
    if _is_key(template):
        data = jax.random.key_data(template)
        _same(name, leaf, data.shape, data.dtype)
        return jax.random.wrap_key_data(jnp.asarray(leaf), impl=jax.random.key_impl(template))
    _same(name, leaf, tuple(template.shape), np.dtype(template.dtype))
    return leaf


def _same(name: str, leaf: np.ndarray, shape: tuple[int, ...], dtype: np.dtype[Any]) -> None:
    if leaf.shape != shape:
        raise CheckpointError(f"{name} has shape {leaf.shape}, expected {shape}")
    if leaf.dtype != dtype:
        raise CheckpointError(f"{name} has dtype {leaf.dtype}, expected {dtype}")


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


def _flat_dict(path: Path, names: list[str], leaves: list[np.ndarray]) -> dict[str, np.ndarray]:
    keys = [name[2:-2] for name in names]
    if any(name != f"['{key}']" or "'" in key for name, key in zip(names, keys, strict=True)):
        raise CheckpointError(f"{path.name} holds no flat dict: say by `like` what is expected")
    return dict(zip(keys, leaves, strict=True))


def _few(names: list[str], most: int = 4) -> str:
    shown = ", ".join(names[:most]) or "nothing"
    return shown + (f" and {len(names) - most} more" if len(names) > most else "")
