"""Records: the table behind each figure, with where it came from.

``save`` writes a tidy table as CSV and, beside it, a JSON file with its provenance: page,
profile, parameters, seed, versions, digest of the code that it was made by, seconds and cores.
``load`` gives both back and refuses a table that was edited after it was recorded.
``compare`` lists where a fresh table differs from a recorded one.

The files go to the staging folder of the execution; after a page has succeeded they are
moved to ``data/results/<profile>``. What takes longer than a page may is computed by a
command; ``keep`` writes its tables to the same place, with the same provenance. Floats are
written so that they read back exactly, and a float column may hold NaN (an empty cell): a
value that does not exist.

>>> import pandas as pd
>>> old = pd.DataFrame({"algorithm": ["LSW", "LSL"], "rmse": [0.5, 0.25]})
>>> compare(old, old.assign(rmse=[0.5, 0.3]), rtol=1e-9, atol=0)[["algorithm", "first", "second"]]
  algorithm  first  second
0       LSL   0.25     0.3
"""

from __future__ import annotations

import dataclasses
import datetime as dt
import io
import json
import math
import os
import platform
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from ._numbers import is_real, is_whole
from .dependencies import OWN_ROOT, Uses, is_command, recorded_by
from .files import (
    PROFILES,
    RECORDED,
    Run,
    current_run,
    find_root,
    is_name,
    sha256,
    write_atomic,
)

_LIBRARIES = ("numpy", "scipy", "pandas")


class RecordError(ValueError):
    """A table cannot be recorded, or a record cannot be trusted."""


class Record(NamedTuple):
    """A recorded table: its ``frame``, with columns of type float64, int64, bool or str, and its
    ``provenance``, what was written beside it (see :func:`save`).
    """

    frame: pd.DataFrame
    provenance: dict[str, Any]


@dataclass
class Timer:
    """Seconds that a block took, see :func:`timer`."""

    seconds: float = math.nan


@contextmanager
def timer() -> Iterator[Timer]:
    """Time a block of code: ``with timer() as clock: ...``, then ``clock.seconds``."""
    clock, start = Timer(), time.perf_counter()
    try:
        yield clock
    finally:
        clock.seconds = time.perf_counter() - start


# -- save -------------------------------------------------------------------------------


def save(
    name: str,
    frame: pd.DataFrame,
    *,
    seed: int | None,
    parameters: Mapping[str, object],
    seconds: float | None = None,
    keys: Sequence[str] | None = None,
) -> None:
    """Write a tidy table and its provenance into the staging folder.

    It returns nothing, so that it may be the last line of a cell. What is not fit to be recorded is
    a :class:`RecordError`, as is a table of the paper profile that another profile would overwrite.

    Parameters
    ----------
    name : str
        File name without suffix, for example ``figure-3-1``.
    frame : DataFrame
        One observation a row, one variable a column, index 0, 1, 2, ...
    seed : int or None
        The page's seed; None where nothing is random.
    parameters : mapping
        What the table depends on: numbers, texts, and lists of them.
    seconds : float, optional
        How long the computation took, see :func:`timer`.
    keys : sequence of str, optional
        Columns that identify a row; by default the columns that are not floats, if they do.
    """
    _check_name(name)
    run = current_run()
    table = _Table(name, frame, keys, seed, parameters, seconds)
    run = _with_profile(name, run, table.facts["parameters"].get("profile", run.profile))
    path = run.stage / "results" / f"{name}.csv"
    _protect_paper(path, run)
    made_by = recorded_by(run.root, run.page) if run.page else None
    table.write(path, {"page": run.page, "profile": run.profile}, made_by)


@dataclass(frozen=True)
class Command:
    """A command that makes tables, for :func:`keep`.

    Attributes
    ----------
    line : str
        What to type to make them again: ``python -m MODULE ...`` or ``python FILE ...``.
    profile : str
        ``laptop`` or ``paper``: what is quick belongs into a page.
    libraries : sequence of str
        Distributions whose versions count, beside those that every record names.
    device : str, optional
        Kind of the device that computed them, for example ``cpu`` or the name of a GPU.
    folder : path, optional
        Of the records, instead of ``data/results`` of the repository around the working directory.
    """

    line: str
    profile: str
    libraries: Sequence[str] = ()
    device: str | None = None
    folder: str | Path | None = None


def keep(
    name: str,
    frame: pd.DataFrame,
    made_by: Command,
    *,
    seed: int | None,
    parameters: Mapping[str, object],
    seconds: float | None = None,
    keys: Sequence[str] | None = None,
) -> Path:
    """Write a table that a command made to where records are kept, and say where the CSV file is.

    Name, table, seed, parameters, seconds, keys and what is refused are as in :func:`save`; refused
    are also another profile, a name under which a page has recorded a table, and a command that is
    no program of the repository.
    """
    _check_name(name)
    profile, line = made_by.profile, made_by.line
    if profile not in RECORDED or profile == "quick":
        raise RecordError(f"{name}: a command keeps laptop or paper results, got {profile!r}")
    if not isinstance(line, str) or not is_command(line):
        raise RecordError(f"{name}: a command is what python is called with, got {line!r}")
    table = _Table(name, frame, keys, seed, parameters, seconds)
    folder = made_by.folder
    root = find_root() / "data" / "results" if folder is None else Path(folder)
    path = root / profile / f"{name}.csv"
    beside = path.with_suffix(".json")  # the table itself may be newer, if a run was killed
    page = json.loads(beside.read_text("utf-8"))["page"] if beside.is_file() else None
    if page is not None:
        raise RecordError(f"{path.name} is a table of the page {page}")
    origin = {
        "page": None,
        "command": line,
        "profile": profile,
        **{library: version(library) for library in made_by.libraries},
        "device": made_by.device,
    }
    try:
        uses = recorded_by(OWN_ROOT, line)
    except ValueError as error:
        raise RecordError(f"{name}: {error}") from None
    table.write(path, origin, uses)
    return path


class _Table:
    """A table that was checked, with the facts about it that its provenance says."""

    def __init__(
        self,
        name: str,
        frame: pd.DataFrame,
        keys: Sequence[str] | None,
        seed: int | None,
        parameters: Mapping[str, object],
        seconds: float | None,
    ) -> None:
        tidy = _tidy(name, frame)
        if keys is None:
            found = _default_keys(tidy)
            keys = found if found and not tidy.duplicated(found).any() else None
        elif isinstance(keys, str) or not keys:
            raise RecordError(f"{name}: keys must be a non-empty list of columns, got {keys!r}")
        else:
            keys = list(keys)
            _by_key(name, tidy, keys)
        if seed is not None and not is_whole(seed):
            raise RecordError(f"{name}: seed must be a non-negative integer or None, got {seed!r}")
        if seconds is not None and not (is_real(seconds) and seconds >= 0):
            raise RecordError(f"{name}: seconds must be a finite number >= 0, got {seconds!r}")
        # pandas writes a float as its shortest text that reads back to the same number
        self.data = tidy.to_csv(index=False, lineterminator="\n").encode()
        self.facts: dict[str, Any] = {
            "parameters": _plain(f"{name}: parameters", dict(parameters)),
            "seed": None if seed is None else int(seed),
            "sha256": sha256(self.data),
            "rows": len(tidy),
            "columns": {column: _kind(tidy[column]) for column in tidy},
            "keys": keys,
            "seconds": None if seconds is None else round(float(seconds), 3),
        }

    def write(self, path: Path, origin: Mapping[str, object], made_by: Uses | None) -> None:
        provenance = {
            "name": path.stem,
            **origin,
            **self.facts,
            "source_sha256": made_by.source_sha256 if made_by else None,
            "python": platform.python_version(),
            **{library: version(library) for library in ("dprl", *_LIBRARIES)},
            "cores": os.cpu_count(),
            "machine": platform.machine(),
        }
        text = json.dumps(provenance, indent=1, ensure_ascii=False, allow_nan=False)
        write_atomic(path, self.data)
        write_atomic(path.with_suffix(".json"), text + "\n")


def _with_profile(name: str, run: Run, profile: str) -> Run:
    """A reader chooses the profile in the page; under the runner the two must agree."""
    if profile == run.profile:
        return run
    if not run.interactive or profile not in PROFILES:
        raise RecordError(
            f"{name}: parameters say profile {profile!r}, this execution has {run.profile!r}"
        )
    return dataclasses.replace(run, profile=profile)


def _check_name(name: str) -> None:
    if not is_name(name):
        raise RecordError(
            "a record's name is lower-case words or numbers joined by . or -, "
            f"like figure-3-1; got {name!r}"
        )


def _protect_paper(path: Path, run: Run) -> None:
    if run.profile == "paper":
        return
    existing = path.with_suffix(".json")
    recorded = existing.is_file() and json.loads(existing.read_text())["profile"] == "paper"
    if recorded or (run.root / "data" / "results" / "paper") in path.resolve().parents:
        raise RecordError(
            f"{path.name} holds a result of the paper profile; "
            f"a run with profile {run.profile} does not overwrite it"
        )


def _tidy(name: str, frame: object) -> pd.DataFrame:
    """A copy with plain column types, or an error that says what is not tidy."""
    if not isinstance(frame, pd.DataFrame):
        raise RecordError(f"{name}: expected a DataFrame, got {type(frame).__name__}")
    if frame.empty:
        raise RecordError(f"{name}: the table is empty, shape {frame.shape}")
    columns = list(frame.columns)
    if frame.columns.nlevels > 1 or not all(isinstance(c, str) and c for c in columns):
        raise RecordError(f"{name}: column names must be non-empty texts, got {columns}")
    if any(c != c.strip() or "\n" in c or "\r" in c for c in columns):
        raise RecordError(f"{name}: a column name has spaces at its ends or a line break")
    twice = sorted({c for c in columns if columns.count(c) > 1})
    if twice:
        raise RecordError(f"{name}: column name used twice: {', '.join(twice)}")
    index = frame.index
    if index.nlevels > 1 or index.name is not None or list(index) != list(range(len(frame))):
        raise RecordError(
            f"{name}: the index must be 0, 1, 2, ...; use frame.reset_index() if it holds data, "
            "frame.reset_index(drop=True) if it does not"
        )
    return pd.DataFrame({column: _column(name, frame[column]) for column in columns})


def _column(name: str, column: pd.Series[Any]) -> pd.Series[Any]:
    where = f"{name}, column {column.name!r}"
    if pd.api.types.is_bool_dtype(column.dtype):
        return column.astype("bool")
    if pd.api.types.is_integer_dtype(column.dtype):
        if not column.between(-(2**63), 2**63 - 1).all():
            raise RecordError(f"{where}: an integer does not fit 64 bits, or is missing")
        return column.astype("int64")
    if pd.api.types.is_float_dtype(column.dtype):
        values = column.astype("float64")
        if np.isinf(values).any():
            raise RecordError(f"{where}: infinite value in row {int(np.isinf(values).argmax())}")
        return values
    if isinstance(column.dtype, pd.StringDtype) or column.dtype == object:
        return _text_column(where, column)
    raise RecordError(
        f"{where}: type {column.dtype} cannot be recorded; use float, integer, bool or text"
    )


def _text_column(where: str, column: pd.Series[Any]) -> pd.Series[Any]:
    for row, value in enumerate(column):
        if not isinstance(value, str):
            raise RecordError(f"{where}: row {row} holds {value!r}, expected a text")
        if "\r" in value or "\n" in value or "\0" in value:
            raise RecordError(f"{where}: row {row} holds a line break or a null character")
    return column.astype("str")


def _kind(column: pd.Series[Any]) -> str:
    return {"f": "float64", "i": "int64", "b": "bool"}.get(column.dtype.kind, "str")


def _plain(where: str, value: object) -> Any:
    """A copy of a parameter in JSON's own types."""
    if isinstance(value, np.generic | np.ndarray):
        value = value.tolist()
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        if not math.isfinite(value):
            raise RecordError(f"{where}: {value!r} is not finite")
        return value
    if isinstance(value, Mapping):
        if not all(isinstance(key, str) for key in value):
            raise RecordError(f"{where}: names must be texts, got {list(value)}")
        return {key: _plain(f"{where}.{key}", item) for key, item in value.items()}
    if isinstance(value, list | tuple | range):
        return [_plain(f"{where}[{i}]", item) for i, item in enumerate(value)]
    if isinstance(value, Path | dt.date):
        raise RecordError(f"{where}: {value!r} would differ from machine to machine or day to day")
    raise RecordError(f"{where}: cannot record a {type(value).__name__}, convert it first")


# -- load -------------------------------------------------------------------------------


def load(name: str, profile: str = "paper") -> Record:
    """Read a record and check that its table is the one that was recorded.

    Of the profile ``paper``, ``quick`` or ``laptop``, what this execution has just saved comes
    first, then ``data/results/<profile>``. A record that does not exist, or whose table and
    provenance do not belong together, is a :class:`RecordError`.
    """
    _check_name(name)
    if profile not in RECORDED:
        raise RecordError(f"profile must be one of {', '.join(RECORDED)}, got {profile!r}")
    path = locate(name, profile)
    if path is None:
        raise RecordError(
            f"no record {name!r} with profile {profile}: "
            f"data/results/{profile}/{name}.csv does not exist"
        )
    return read(path)


def locate(name: str, profile: str) -> Path | None:
    """The CSV file of a record, or None: staged by this execution first, then kept."""
    run = current_run()
    staged = run.stage / "results" / f"{name}.csv"
    if staged.is_file() and read(staged).provenance["profile"] == profile:
        return staged
    kept = run.root / "data" / "results" / profile / f"{name}.csv"
    try:
        # opened, not only looked for: so the page is known to depend on it, present or not
        with kept.open("rb"):
            return kept
    except OSError:
        return None


def read(path: str | Path) -> Record:
    """Read one record by the path of its CSV file; see :func:`load`."""
    path = Path(path)
    beside = path.with_suffix(".json")
    if not path.is_file():
        raise RecordError(f"{path} does not exist")
    if not beside.is_file():
        raise RecordError(f"{path.name} has no provenance: {beside.name} is missing beside it")
    try:
        provenance: dict[str, Any] = json.loads(beside.read_text(encoding="utf-8"))
        recorded, columns = provenance["sha256"], dict(provenance["columns"])
    except (ValueError, KeyError, TypeError) as error:
        raise RecordError(f"{beside.name} is not a provenance file: {error!r}") from error
    data = path.read_bytes()
    if sha256(data) != recorded:
        raise RecordError(
            f"{path.name} was edited after it was recorded: its sha256 is {sha256(data)[:12]}, "
            f"{beside.name} says {recorded[:12]}; run its page again"
        )
    return Record(_from_csv(data, columns), provenance)


def _from_csv(data: bytes, columns: dict[str, str]) -> pd.DataFrame:
    # everything as text first: Python's own float() reads back exactly, in every pandas
    text = pd.read_csv(io.BytesIO(data), dtype="str", na_filter=False, skip_blank_lines=False)
    return pd.DataFrame({name: _parsed(text[name], kind) for name, kind in columns.items()})


def _parsed(column: pd.Series[Any], kind: str) -> pd.Series[Any]:
    if kind == "float64":
        return pd.Series([float(x) if x else math.nan for x in column], dtype="float64")
    if kind == "int64":
        return pd.Series([int(x) for x in column], dtype="int64")
    return column == "True" if kind == "bool" else column


# -- compare ----------------------------------------------------------------------------


def compare(
    a: pd.DataFrame,
    b: pd.DataFrame,
    keys: Sequence[str] | None = None,
    rtol: float = 1e-6,
    atol: float = 1e-12,
) -> pd.DataFrame:
    """List where two tables of the same kind differ.

    Two values agree when ``|a - b| <= atol + rtol * max(|a|, |b|)``, with tolerances >= 0, or when
    both are NaN; texts, integers and booleans outside the keys must be equal.

    Parameters
    ----------
    a, b : DataFrame
        Tables with the same columns, for example recorded and fresh; else a :class:`RecordError`.
    keys : sequence of str, optional
        Columns that identify a row, else a :class:`RecordError`. By default all that are not
        floats. A float among the keys matches when its first twelve digits do.

    Returns
    -------
    DataFrame
        The keys, then ``column``, ``first``, ``second`` and ``difference``; no row when the
        tables agree. A row that only one table has appears once, with ``column`` saying
        ``(row only in first)`` or ``(row only in second)``.
    """
    if not (0 <= rtol < math.inf and 0 <= atol < math.inf):
        raise RecordError(f"tolerances must be finite and not negative, got {rtol}, {atol}")
    if set(a.columns) != set(b.columns):
        only = sorted(set(a.columns) ^ set(b.columns))
        raise RecordError(f"the tables do not have the same columns: {', '.join(only)}")
    keys = list(keys) if keys is not None else _default_keys(a)
    if not keys:
        raise RecordError("no column identifies a row: give keys")
    left, right = _by_key("first table", a, keys), _by_key("second table", b, keys)
    rows: list[dict[str, object]] = []
    for key in left.index.union(right.index, sort=False):
        both = key in left.index and key in right.index
        side = "first" if key in left.index else "second"
        row = (left if key in left.index else right).loc[key]
        identity = {name: row[name] for name in keys}
        if not both:
            rows.append({**identity, "column": f"(row only in {side})", "difference": math.nan})
            continue
        for column in (c for c in a.columns if c not in keys):
            first, second = row[column], right.at[key, column]
            gap = _gap(first, second, rtol, atol)
            if gap is not None:
                values = {"first": first, "second": second, "difference": gap}
                rows.append({**identity, "column": column, **values})
    return pd.DataFrame(rows, columns=[*keys, "column", "first", "second", "difference"])


def _gap(first: Any, second: Any, rtol: float, atol: float) -> float | None:
    """How far two values are apart; None if they agree, NaN if they are no numbers."""
    if isinstance(first, float) and isinstance(second, float):
        tolerance = atol + rtol * max(abs(first), abs(second))
        agree = abs(first - second) <= tolerance or (math.isnan(first) and math.isnan(second))
    else:
        agree = bool(first == second)
    numbers = isinstance(first, int | float) and isinstance(second, int | float)
    return None if agree else abs(float(first) - float(second)) if numbers else math.nan


def _default_keys(frame: pd.DataFrame) -> list[str]:
    return [c for c in frame.columns if not pd.api.types.is_float_dtype(frame[c].dtype)]


def _by_key(where: str, frame: pd.DataFrame, keys: list[str]) -> pd.DataFrame:
    """The table as Python's own values, by the text of its keys, which must identify its rows."""

    def text(value: object) -> str:
        return f"{value:.12g}" if isinstance(value, float) else repr(value)

    unknown = [key for key in keys if key not in frame.columns]
    if unknown:
        raise RecordError(f"{where}: no column {', '.join(map(repr, unknown))} to be a key")
    plain = frame.astype(object)
    plain = plain.set_axis([" ".join(map(text, row)) for row in plain[keys].to_numpy()], axis=0)
    repeated = plain.index.duplicated()
    if repeated.any():
        example = plain.loc[repeated, keys].iloc[0].to_dict()
        raise RecordError(f"{where}: the keys do not identify its rows, twice: {example}")
    return plain
