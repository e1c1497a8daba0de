"""Bags: many pairs of one model, and one answer, the mean logit.

The thesis' collective mode asks about m = 50 trajectories at once, all of one label. Besides a
network on whole bags (:mod:`dprl.membership.attacks.resnet`) any individual attack gives a
collective one: average its logits over the bag. If the pairs are independent given the label
and the logits are calibrated log odds at even classes, the *sum* of the logits is the log odds
of the bag, so the sign of the mean is the best answer; the mean keeps the threshold 0.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dprl import _validation as check
from dprl._validation import BoolArray, FloatArray, IntArray
from dprl.membership.pairs import LabelledPairs

#: Pairs in one bag of the collective mode (thesis, section 5.6.2: m = 50).
BAG_SIZE = 50


def draw_bags(pairs: LabelledPairs, size: int, rng: np.random.Generator) -> IntArray:
    """Draw bags for the collective mode: indices (k, size) of pairs, none twice.

    The pairs of a bag have one label, their inputs one oracle and half, their outputs one model: an
    accusation is about one batch of trajectories. What is left over when each origin is cut into
    bags of ``size`` >= 1 pairs (:data:`BAG_SIZE` in the thesis) is not used; an origin with fewer
    pairs than a bag holds is refused: its label would be left out.
    """
    check.instance("pairs", pairs, LabelledPairs)
    m = check.whole("size", size)
    check.generator(rng)
    _, group, counts = np.unique(pairs.origins, axis=0, return_inverse=True, return_counts=True)
    if counts.min() < m:
        raise ValueError(
            f"a bag of {m} needs as many pairs of one label and origin, got {counts.min()}: "
            "use smaller bags or more trajectories"
        )
    drawn = []
    for one in range(counts.size):
        members = rng.permutation(np.flatnonzero(group.ravel() == one))
        drawn.append(members[: members.size // m * m].reshape(-1, m))
    return np.concatenate(drawn)


def bag_labels(labels: ArrayLike, bags: ArrayLike) -> BoolArray:
    """The label of each bag, shape (k,), of labels (n,) and bags (k, m); mixed ones are refused.

    Examples
    --------
    >>> bag_labels([True, True, False, False], [[1, 0], [2, 3]]).tolist()
    [True, False]
    """
    y = np.asarray(labels)
    if y.dtype != bool or y.ndim != 1:
        raise ValueError(f"labels must be a vector of booleans, got {y.dtype}, shape {y.shape}")
    found = y[bag_indices(bags, y.size)]
    mixed = np.flatnonzero(found.any(axis=1) & ~found.all(axis=1))
    if mixed.size:
        raise ValueError(f"bag {mixed[0]} mixes positive and negative pairs")
    return np.asarray(found[:, 0])


def vote(logits: ArrayLike, bags: ArrayLike) -> FloatArray:
    """Mean logit (..., k) of each bag (k, m) of pairs, 0 .. n-1, with logits (..., n).

    Leading axes are separate classifiers; positive speaks for "member".

    Examples
    --------
    >>> vote([3.0, -1.0, 0.5, -1.5], [[0, 1], [2, 3]]).tolist()
    [1.0, -0.5]
    """
    x = check.finite_array("logits", logits)
    if x.ndim == 0 or x.shape[-1] == 0:
        raise ValueError(f"logits must have one entry per pair, got shape {x.shape}")
    return np.asarray(x[..., bag_indices(bags, x.shape[-1])].mean(axis=-1))


def bag_tensor(pairs: ArrayLike, bags: ArrayLike) -> NDArray[np.float32]:
    """The tensors (k, 2 d_A, T, m) of bags (k, m) of pairs (n, 2 d_A, T), in float32.

    Examples
    --------
    >>> bag_tensor(np.zeros((8, 6, 10)), [[0, 3, 5], [1, 2, 7]]).shape
    (2, 6, 10, 3)
    """
    x = pair_array("pairs", pairs)
    return np.ascontiguousarray(np.moveaxis(x[bag_indices(bags, len(x))], 1, -1))


def bag_indices(bags: ArrayLike, pairs: int) -> IntArray:
    """Checked indices of bags, shape (k, m), into so many pairs."""
    try:
        index = np.asarray(bags)
    except ValueError as error:
        raise ValueError(f"bags must all have one size: {error}") from None
    if index.ndim != 2 or index.size == 0:
        raise ValueError(
            f"bags must be a table of indices, one bag of at least one pair a row, got shape "
            f"{index.shape}"
        )
    if index.dtype.kind not in "iu":
        raise TypeError(f"bags must hold whole numbers, got {index.dtype}")
    if index.min() < 0 or index.max() >= pairs:
        raise ValueError(
            f"bags must point at pairs 0 to {pairs - 1}, got {index.min()} to {index.max()}"
        )
    return index.astype(np.int64)


def pair_array(name: str, pairs: Any) -> NDArray[np.float32]:
    """Pairs, shape (n, 2 d_A, T), as float32; refuses what cannot be pairs."""
    try:
        x = np.asarray(pairs)
    except ValueError:
        raise ValueError(
            f"{name} must all have one shape (2 d_A, T): mixed action dimensions or lengths"
        ) from None
    if x.dtype.kind not in "biuf":
        raise TypeError(f"{name} must be an array of numbers, got {x.dtype}")
    if x.ndim != 3 or x.size == 0:
        raise ValueError(f"{name} must have shape (n, 2 d_A, T) with n, d_A, T >= 1, got {x.shape}")
    if x.shape[1] % 2:
        raise ValueError(f"{name} must have 2 d_A channels, inputs above outputs, got {x.shape[1]}")
    with np.errstate(over="ignore"):  # what does not fit becomes infinite and is refused below
        x = x.astype(np.float32)
    if not np.isfinite(x).all():
        raise ValueError(f"{name} holds NaN or infinite values; all must be finite")
    return x
