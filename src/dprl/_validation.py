"""Checks shared by the public functions: each says what was wrong and what is expected."""

from __future__ import annotations

from math import isfinite
from numbers import Integral, Real
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]
BoolArray = NDArray[np.bool_]
LARGEST_WHOLE = 2**63 - 1


def real(name: str, value: Any) -> float:
    """A finite real number, not a bool."""
    if type(value) is float and isfinite(value):  # nearly always
        return value
    if isinstance(value, (bool, np.bool_)) or not isinstance(value, Real):
        raise TypeError(f"{name} must be a real number, got {value!r}")
    try:
        x = float(value)
    except OverflowError:
        raise ValueError(f"{name} must be a floating-point number, got a larger one") from None
    if not isfinite(x):
        raise ValueError(f"{name} must be finite, got {value!r}")
    return x


def positive(name: str, value: Any) -> float:
    """A finite number > 0."""
    x = real(name, value)
    if x <= 0:
        raise ValueError(f"{name} must be positive, got {value!r}")
    return x


def not_negative(name: str, value: Any) -> float:
    """A finite number >= 0."""
    x = real(name, value)
    if x < 0:
        raise ValueError(f"{name} must not be negative, got {value!r}")
    return x


def open_unit(name: str, value: Any) -> float:
    """A number strictly between 0 and 1."""
    x = real(name, value)
    if not 0 < x < 1:
        raise ValueError(f"{name} must lie strictly between 0 and 1, got {value!r}")
    return x


def below_one(name: str, value: Any) -> float:
    """A number in [0, 1)."""
    x = real(name, value)
    if not 0 <= x < 1:
        raise ValueError(f"{name} must lie in [0, 1), got {value!r}")
    return x


def unit(name: str, value: Any) -> float:
    """A number in [0, 1]."""
    x = real(name, value)
    if not 0 <= x <= 1:
        raise ValueError(f"{name} must lie in [0, 1], got {value!r}")
    return x


def fraction(name: str, value: Any) -> float:
    """A number in (0, 1]."""
    x = real(name, value)
    if not 0 < x <= 1:
        raise ValueError(f"{name} must lie in (0, 1], got {value!r}")
    return x


def whole(name: str, value: Any, minimum: int = 1, *, maximum: int | None = LARGEST_WHOLE) -> int:
    """An integer from minimum to maximum (None: no end), not a bool and not a float."""
    if type(value) is not int and (
        isinstance(value, (bool, np.bool_)) or not isinstance(value, Integral)
    ):
        raise TypeError(f"{name} must be an integer, got {value!r}")
    if value < minimum:
        raise ValueError(f"{name} must be at least {minimum}, got {value!r}")
    if maximum is not None and int(value) > maximum:
        largest = "2^63 - 1" if maximum == LARGEST_WHOLE else maximum
        raise ValueError(f"{name} must be at most {largest}, got about 2^{int(value).bit_length()}")
    return int(value)


def seed(value: Any) -> int:
    """What numpy makes a generator from: an integer >= 0 of any size."""
    return whole("seed", value, minimum=0, maximum=None)


def generator(rng: Any) -> np.random.Generator:
    """A numpy Generator: seeds and the legacy global state are refused."""
    if not isinstance(rng, np.random.Generator):
        raise TypeError(
            "rng must be a numpy.random.Generator (numpy.random.default_rng(seed)), "
            f"got {type(rng).__name__}"
        )
    return rng


def instance(name: str, value: Any, kind: type) -> None:
    """An object of one of the package's own types."""
    if not isinstance(value, kind):
        raise TypeError(f"{name} must be a {kind.__name__}, got {type(value).__name__}")


class MaskedError(ValueError):
    """Entries are masked, which numpy would read through their mask."""


def unmasked(name: str, values: ArrayLike) -> NDArray[Any]:
    """An array of any type; masked entries are refused, wherever in a list they stand."""
    if _has_masked(values):
        raise MaskedError(f"{name} has masked entries; leave them out or fill them in first")
    return np.asarray(values)


def _has_masked(values: Any) -> bool:
    if isinstance(values, (list, tuple)):
        return any(_has_masked(x) for x in values)
    return isinstance(values, np.ma.MaskedArray) and bool(np.ma.is_masked(values))


def finite_array(name: str, values: ArrayLike, ndim: int | None = None) -> FloatArray:
    """A float array without NaN or infinity, of the given number of dimensions."""
    try:
        raw = values if type(values) is np.ndarray else unmasked(name, values)
        if raw.dtype.kind not in "biufO":  # text and complex numbers are not converted silently
            raise TypeError(f"got {raw.dtype}")
        x = np.asarray(raw, dtype=np.float64)
    except MaskedError:
        raise
    except (TypeError, ValueError, OverflowError) as error:
        raise ValueError(f"{name} must be an array of numbers: {error}") from None
    if ndim is not None and x.ndim != ndim:
        raise ValueError(f"{name} must have {ndim} dimension(s), got shape {x.shape}")
    if not np.isfinite(x).all():
        raise ValueError(f"{name} holds NaN or infinite values; all must be finite")
    return x


def zeros_and_ones(name: str, values: ArrayLike) -> NDArray[np.int8]:
    """An array of 0 and 1, or of booleans, as small integers."""
    raw = unmasked(name, values)
    v = raw if raw.dtype.kind == "b" else finite_array(name, values)
    if v.dtype.kind != "b" and not ((v == 0) | (v == 1)).all():
        raise ValueError(f"{name} must hold only 0 and 1")
    return v.astype(np.int8)


def positive_array(name: str, values: ArrayLike) -> FloatArray:
    """Finite numbers > 0."""
    x = finite_array(name, values)
    if (x <= 0).any():
        raise ValueError(f"{name} must be positive, got {x.min()}")
    return x


def array_from(name: str, values: ArrayLike, least: float = 0) -> FloatArray:
    """Finite numbers >= least."""
    x = finite_array(name, values)
    if (x < least).any():
        wanted = f"be at least {least:g}" if least else "not be negative"
        raise ValueError(f"{name} must {wanted}, got {x.min()}")
    return x


def unit_array(name: str, values: ArrayLike) -> FloatArray:
    """Numbers in [0, 1]."""
    x = finite_array(name, values)
    if (x < 0).any() or (x > 1).any():
        raise ValueError(f"{name} must lie in [0, 1], got {x.min():g} to {x.max():g}")
    return x


def open_unit_array(name: str, values: ArrayLike) -> FloatArray:
    """Numbers strictly between 0 and 1."""
    x = finite_array(name, values)
    if ((x <= 0) | (x >= 1)).any():
        raise ValueError(f"{name} must lie strictly between 0 and 1, got {values!r}")
    return x


def whole_array(name: str, values: ArrayLike, least: float = 1) -> FloatArray:
    """Whole numbers >= least, of any type, as floats."""
    x = array_from(name, values, least)
    if (x != np.floor(x)).any():
        raise ValueError(f"{name} must hold whole numbers, got {x[x != np.floor(x)].flat[0]}")
    return x


def binary_array(name: str, values: ArrayLike, ndim: int | None = None) -> BoolArray:
    """Booleans, also written as 0 and 1."""
    x = finite_array(name, values, ndim=ndim)
    if not np.isin(x, (0, 1)).all():
        raise ValueError(f"{name} must be booleans, or 0 and 1")
    return np.asarray(x == 1)


def integer_array(name: str, values: ArrayLike) -> FloatArray:
    """Integers >= 1, as floats."""
    return integers(name, values, 1).astype(np.float64)


def integers(
    name: str, values: ArrayLike, least: int | None = None, ndim: int | None = None
) -> IntArray:
    """Integers >= least, of an integer type unless there are none; copied."""
    try:
        raw = unmasked(name, values)
    except MaskedError:
        raise
    except ValueError as error:  # rows of different lengths
        raise ValueError(f"{name} must be an array of integers: {error}") from None
    if ndim is not None and raw.ndim != ndim:
        raise ValueError(f"{name} must have {ndim} dimension(s), got shape {raw.shape}")
    if raw.size and raw.dtype.kind not in "iu":
        raise ValueError(f"{name} must be integers, got {raw.dtype}")
    if raw.size and raw.max() > LARGEST_WHOLE:
        raise ValueError(f"{name} must be at most 2^63 - 1, got {raw.max()}")
    if least is not None and raw.size and raw.min() < least:
        raise ValueError(f"{name} must be at least {least}, got {raw.min()}")
    return np.array(raw, dtype=np.int64)


def weight_vector(name: str, weights: ArrayLike, n_states: int) -> FloatArray:
    """Non-negative weights, one per state, not all zero. A scalar is not spread."""
    w = finite_array(name, weights, ndim=1)
    if w.shape != (n_states,):
        raise ValueError(f"{name} must have one entry per state, {n_states}, got {w.size}")
    if (w < 0).any():
        raise ValueError(f"{name} must not be negative, got minimum {w.min()}")
    if not w.any():
        raise ValueError(f"{name} must not all be zero")
    return w


def normalised(name: str, values: ArrayLike, probabilities: FloatArray) -> FloatArray:
    """Probabilities, divided by their sum in the last axis if their own type explains it.

    ``values`` is what the caller gave: numbers of less than double precision cannot sum to
    one more closely than their rounding, a few units of it or one for each of them. All else
    is returned as it is, for the caller to check.
    """
    kind = unmasked(name, values).dtype
    if kind.kind != "f" or kind.itemsize >= 8 or probabilities.ndim == 0:
        return probabilities
    total = probabilities.sum(axis=-1, keepdims=True)
    slack = max(4, probabilities.shape[-1]) * float(np.finfo(kind).eps)
    return np.where(
        np.abs(total - 1) <= slack, probabilities / np.where(total > 0, total, 1), probabilities
    )


def probability_vector(name: str, values: ArrayLike, n_states: int) -> FloatArray:
    """A distribution over n_states states."""
    p = finite_array(name, values, ndim=1)
    if p.shape != (n_states,):
        raise ValueError(f"{name} must have {n_states} entries, got {p.size}")
    p = normalised(name, values, p)
    if (p < 0).any() or abs(p.sum() - 1) > 1e-9:
        raise ValueError(f"{name} must be non-negative and sum to one, got sum {p.sum()}")
    return p


def distributions(name: str, values: ArrayLike, ndim: int | None = 2) -> FloatArray:
    """Distributions in the last axis, each of which sums to one within 1e-9."""
    p = finite_array(name, values, ndim=ndim)
    if p.ndim == 0:
        raise ValueError(f"{name} must have its outcomes in the last axis, got one number")
    if (p < 0).any():
        raise ValueError(f"{name} must not hold negative probabilities, got {p.min()}")
    p = normalised(name, values, p)
    worst = np.abs(p.sum(axis=-1) - 1)
    if worst.size and worst.max() > 1e-9:
        row = np.unravel_index(int(worst.argmax()), worst.shape)
        at = ", ".join(str(i) for i in row)
        raise ValueError(f"row {at} of {name} sums to {p[row].sum()}; rows must sum to one")
    return p


def sparse_array(name: str, values: Any) -> Any:
    """A copy of one of SciPy's sparse matrices: floats by rows, sorted, each entry once, finite."""
    from scipy.sparse import csr_array

    if values.dtype.kind not in "biuf":
        raise ValueError(f"{name} must be an array of numbers: got {values.dtype}")
    if values.ndim != 2:
        raise ValueError(f"{name} must have 2 dimension(s), got shape {values.shape}")
    x = csr_array(values, dtype=np.float64, copy=True)
    x.sum_duplicates()
    finite_array(name, x.data)
    return x


def sparse_distributions(name: str, values: Any, rows: Any) -> Any:
    """The same of :func:`distributions` for the sparse ``rows`` made of ``values``."""
    if (rows.data < 0).any():
        raise ValueError(f"{name} must not hold negative probabilities, got {rows.data.min()}")
    total = np.asarray(rows.sum(axis=1))
    if values.dtype.kind == "f" and values.dtype.itemsize < 8:
        slack = max(4, rows.shape[1]) * float(np.finfo(values.dtype).eps)
        near = np.abs(total - 1) <= slack
        rows.data /= np.repeat(np.where(near, total, 1.0), np.diff(rows.indptr))
        total = np.where(near, 1.0, total)
    worst = int(np.abs(total - 1).argmax())
    if abs(total[worst] - 1) > 1e-9:
        raise ValueError(f"row {worst} of {name} sums to {total[worst]}; rows must sum to one")
    return rows


def count_array(name: str, counts: ArrayLike, n_states: int | None = None) -> FloatArray:
    """Non-negative numbers in the last axis, one per state; kept as floats."""
    v = finite_array(name, counts)
    if v.ndim == 0 or v.shape[-1] == 0:
        raise ValueError(f"{name} must have one entry per state, got shape {v.shape}")
    if n_states is not None and v.shape[-1] != n_states:
        raise ValueError(f"{name} must have {n_states} entries in the last axis, got {v.shape[-1]}")
    if (v < 0).any():
        raise ValueError(f"{name} must not be negative, got minimum {v.min()}")
    return v


def representable(values: FloatArray) -> FloatArray:
    """Values beyond the largest number of the machine brought back to it; no error, no inf.

    Of a noisy answer this is post-processing: it tells nothing that the answer does not tell.
    """
    largest = np.finfo(np.float64).max
    out: FloatArray = np.clip(values, -largest, largest)
    return out


def frozen(array: NDArray[Any]) -> NDArray[Any]:
    """The array, made read-only."""
    array.setflags(write=False)
    return array
