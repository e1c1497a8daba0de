"""What DP-LSW and DP-LSL share: the released object, clipping, the range of returns."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dprl import _validation as check
from dprl._validation import FloatArray
from dprl.privacy import Guarantee
from dprl.privacy.guarantee import REPLACE_ONE_TRAJECTORY
from dprl.trajectories import FirstVisitReturns, VisitStatistics, value_range

#: The neighbouring relation of all algorithms here; the number of trajectories is public.
NEIGHBOURS = REPLACE_ONE_TRAJECTORY

#: Largest size of f_min and f_max.
LARGEST_RETURN = 1e100


@dataclass(frozen=True, eq=False)
class PrivateEstimate:
    """A release: noisy parameters and what they promise.

    Attributes
    ----------
    theta : ndarray, shape (..., d)
        The released parameters; values are Phi theta.
    guarantee : Guarantee
        Holds for each batch of the leading axes separately.
    """

    theta: FloatArray
    guarantee: Guarantee


def return_spread(f_min: float, f_max: float) -> tuple[float, float]:
    """How far one trajectory can move an average, for returns in [f_min, f_max].

    A state that a trajectory does not visit contributes 0, so the range that
    counts always includes 0.

    Returns
    -------
    largest_step : float
        D = max(f_max - f_min, |f_min|, |f_max|): largest change of a return
        when one trajectory is replaced by another, visited or not. The thesis
        (Lemma 3.4) has f_min = 0, hence D = f_max; for |r| <= R_max its
        constant must be doubled, D = 2 R_max / (1 - gamma).
    largest_size : float
        max(|f_min|, |f_max|).

    Examples
    --------
    >>> return_spread(0.0, 1.0), return_spread(-1.0, 1.0)
    ((1.0, 1.0), (2.0, 1.0))
    """
    low, high = value_range(f_min, f_max)
    size = max(abs(low), abs(high))
    return max(high - low, size), size


def public_range(f_max: float, f_min: float) -> tuple[float, float]:
    """The declared range of returns, checked: f_max > 0, f_min < f_max, neither beyond 1e100.

    Farther out, sums of returns that the range allows would overflow.
    """
    high, low = check.positive("f_max", f_max), check.real("f_min", f_min)
    if low >= high:
        raise ValueError(f"f_min must be below f_max, got f_min = {f_min!r}, f_max = {f_max!r}")
    if max(-low, high) > LARGEST_RETURN:
        raise ValueError(
            f"f_min and f_max must lie within {LARGEST_RETURN:g}, got {f_min!r} and {f_max!r}"
        )
    return low, high


def clipped_statistics(
    data: FirstVisitReturns | VisitStatistics, f_min: float, f_max: float
) -> VisitStatistics:
    """Counts and averages of returns that are provably in [f_min, f_max].

    Raises
    ------
    TypeError
        If data is of another type.
    ValueError
        If data are averages whose single returns were not clipped to a range
        inside this one: clipping an average afterwards does not bound what one
        trajectory can do.
    """
    if isinstance(data, FirstVisitReturns):
        return data.statistics((f_min, f_max))
    if not isinstance(data, VisitStatistics):
        raise TypeError(
            f"data must be FirstVisitReturns or VisitStatistics, got {type(data).__name__}"
        )
    if data.bounds is None or data.bounds[0] < f_min or data.bounds[1] > f_max:
        raise ValueError(
            f"the returns were clipped to {data.bounds}, which is not inside [{f_min:g}, "
            f"{f_max:g}]; clip every single return before averaging: "
            "FirstVisitReturns.statistics((f_min, f_max))"
        )
    return data


def integers_around(points: FloatArray, first: int, last: float) -> FloatArray:
    """Floor and ceiling of each point, clipped to [first, last]; last axis doubled."""
    both = np.concatenate([np.floor(points), np.ceil(points)], axis=-1)
    return np.asarray(np.clip(both, first, last), dtype=np.float64)
