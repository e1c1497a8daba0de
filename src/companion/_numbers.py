"""Numbers as a reader wants to see them."""

from __future__ import annotations

import math
from typing import TypeGuard

import numpy as np

_SUPERSCRIPT = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")
_THIN_SPACE = "\u202f"  # no line break inside a number


def tidy(text: str) -> str:
    """Typeset a number that ``format`` has written; any other text stays as it is.

    The sign becomes a real minus, a thousands separator a thin space, an exponent a power of ten.

    >>> tidy("-1.5e-05"), tidy("1e+06"), tidy("20 runs")
    ('−1.5×10⁻⁵', '10⁶', '20 runs')
    """
    try:
        value = float(text.replace(",", "").removesuffix("%"))
    except ValueError:
        return text
    if math.isnan(value):
        return text
    if text.lower().lstrip("+-").startswith("inf"):  # 1.798e+308 overflows but is no infinity
        return "∞" if value > 0 else "−∞"
    mantissa, _, exponent = text.replace(",", _THIN_SPACE).replace("E", "e").partition("e")
    sign, digits = ("−", mantissa[1:]) if mantissa.startswith("-") else ("", mantissa)
    if not exponent:
        return sign + digits
    power = "10" + str(int(exponent)).translate(_SUPERSCRIPT)
    return sign + (power if digits == "1" else f"{digits}×{power}")


def plain(value: object) -> object:
    """A scalar of NumPy as Python's own number; anything else as it is."""
    if isinstance(value, np.generic) or (isinstance(value, np.ndarray) and value.ndim == 0):
        return value.item()
    return value


def is_whole(value: object, least: int = 0) -> TypeGuard[int]:
    """Whether it is an integer, and at least so large."""
    whole = isinstance(value, int | np.integer) and not isinstance(value, bool)
    return whole and int(value) >= least  # type: ignore[call-overload]


def is_real(value: object) -> TypeGuard[float]:
    """Whether it is a finite number."""
    number = isinstance(value, int | float | np.number) and not isinstance(value, bool)
    return number and math.isfinite(value)  # type: ignore[arg-type]


def significant(value: bool | int | float | str) -> str:
    """Write a value with four significant digits, more where four would hide something.

    A number that is close to an integer without being one keeps the digits that show it.

    >>> significant(0.123456), significant(1.00004), significant(3.2e-7), significant(True)
    ('0.1235', '1.00004', '3.2×10⁻⁷', 'yes')
    """
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return tidy(f"{value:,}" if abs(value) < 10**9 else f"{value:.4g}")
    for digits in range(4, 11):
        text = f"{value:.{digits}g}"
        if value.is_integer() or not float(text).is_integer() or abs(value) >= 10**4:
            break
    return tidy(text)
