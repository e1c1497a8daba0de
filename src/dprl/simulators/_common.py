"""Checks shared by the simulators."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from dprl import _validation as check
from dprl._validation import FloatArray, IntArray


def state_array(states: ArrayLike, dimension: int) -> FloatArray:
    """States of m episodes, shape (m, dimension)."""
    s = check.finite_array("states", states, ndim=2)
    if s.shape[1] != dimension:
        raise ValueError(f"states must have shape (m, {dimension}), got {s.shape}")
    return s


def action_array(actions: ArrayLike, episodes: int, n_actions: int) -> IntArray:
    """One action for each episode."""
    a = check.unmasked("actions", actions)
    if a.dtype.kind not in "iu" or a.shape != (episodes,):
        raise ValueError(
            f"actions must be {episodes} integers, one for each state, "
            f"got {a.dtype} of shape {a.shape}"
        )
    if a.size and not (a.min() >= 0 and a.max() < n_actions):
        raise ValueError(f"actions must lie in 0 .. {n_actions - 1}, got {a.min()} .. {a.max()}")
    return a.astype(np.int64)
