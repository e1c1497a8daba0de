r"""Rademacher penalties of a class of binary functions, exactly, for every sample size.

For functions f with values 0 and 1, observations X_1, X_2, ... and fair signs sigma_i, drawn
independently of them, the penalty of a class F after n observations is

    r_n = S_n / n,     S_n = sup_{f in F} |sum_{i <= n} sigma_i f(X_i)|.               (1)

It is large where some function of the class can follow pure noise. The functions here return
the whole path S_1, ..., S_n in whole numbers. For signs that are held fixed, replacing one
observation changes one f(X_i) by at most 1, so it changes each S_n by at most 1, and not at
all before its own time.

Three kinds of classes:

- k functions given by their values: one running sum each, O(nk);
- thresholds on the line, f_t(x) = 1{x >= t}, or their errors 1{f_t(x) != y} on labelled
  points: the sums over all t are suffix sums over the points in the order of x, and their
  extremes after each new point follow from a tree of blocks, O(n log n) for the path;
- all subsets of countably many atoms: with c_a the sum of the signs at atom a,
  S_n = max(sum_a max(c_a, 0), sum_a max(-c_a, 0)), O(n) for the path.

Source: the poster on private sequential learning; the penalty is that of Koltchinskii (2001).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from dprl import _validation as check
from dprl._validation import BoolArray, IntArray


def fair_signs(shape: int | tuple[int, ...], rng: np.random.Generator) -> IntArray:
    """Independent signs, -1 and 1 with probability 1/2 each, of any shape.

    >>> signs = fair_signs((2, 500), np.random.default_rng(0))
    >>> sorted(set(signs.ravel().tolist())), signs.shape
    ([-1, 1], (2, 500))
    """
    return 2 * check.generator(rng).integers(0, 2, shape) - 1


def finite_class_sums(losses: ArrayLike, signs: ArrayLike) -> IntArray:
    """S_1, ..., S_n of (1) for k functions: one running sum for each.

    O(nk) time for each run; the memory is that of one path for each run.

    losses, 0 or 1, of shape (n, k) or (runs, n, k), have f_j(X_i) in row i, column j; signs, -1 or
    1, of shape (n,) or (runs, n). Returns shape (n,), or (runs, n) if either argument has a runs
    axis. ValueError if the class or the stream is empty, a value is none of these, or the shapes do
    not agree.

    Two functions; the second is 1 everywhere.

    >>> finite_class_sums([[0, 1], [1, 1], [1, 1]], [1, -1, -1]).tolist()
    [1, 1, 2]
    """
    f, s = check.zeros_and_ones("losses", losses), _signs(signs)
    if f.ndim not in (2, 3) or 0 in f.shape:
        raise ValueError(
            "losses must have shape (n, k) or (runs, n, k), with at least one observation and "
            f"one function, got {f.shape}"
        )
    if s.shape[-1] != f.shape[-2] or (f.ndim == 3 and s.ndim == 2 and len(s) != len(f)):
        raise ValueError(f"signs must fit the losses: got shapes {s.shape} and {f.shape}")
    out = np.zeros(np.broadcast_shapes(s.shape, f.shape[:-1]), dtype=np.int64)
    for j in range(f.shape[-1]):
        np.maximum(out, np.abs(np.cumsum(s * f[..., j], axis=-1)), out=out)
    return out


def threshold_penalty(points: ArrayLike, signs: ArrayLike, labels: ArrayLike | None = None) -> int:
    """S_n of (1) for thresholds on the line, after all n points: one sort, O(n log n).

    Parameters
    ----------
    points : array_like, shape (n,)
    signs : array_like of -1 and 1, shape (n,)
    labels : array_like of 0 and 1, shape (n,), optional
        If given, the class holds the errors 1{1{x >= t} != y} of the thresholds; otherwise
        the thresholds themselves. t is any real number, or infinite with either sign.

    Examples
    --------
    >>> threshold_penalty([0.3, 0.1, 0.2], [1, 1, -1])
    1
    >>> threshold_penalty([0.3, 0.1, 0.2], [1, 1, -1], labels=[0, 1, 1])
    2
    """
    x, start, step = _steps(points, signs, labels)
    if x.ndim != 1 or step.ndim != 1:
        raise ValueError(f"points and signs must be vectors, got {x.shape} and {step.shape}")
    order = np.argsort(-x, kind="stable")
    last = np.append(np.diff(x[order]) != 0, True)  # a threshold cannot part equal points
    suffix = np.cumsum(step[order])[last]
    offset = int(start.sum())
    return int(max(abs(offset), np.abs(offset + suffix).max()))


def threshold_sums(
    points: ArrayLike, signs: ArrayLike, labels: ArrayLike | None = None
) -> IntArray:
    """S_1, ..., S_n of (1) for thresholds on the line, each exact, O(n log n) for the path.

    The points are sorted once. A balanced tree over the sorted points keeps for each block of
    them the sum of its steps and the largest and smallest of its suffix sums; two neighbouring
    blocks, left and right, combine into

        sum = sum_l + sum_r,  high = max(high_r, sum_r + high_l),  low alike.            (2)

    A new point changes one block on each level of the tree. All times and all runs of a level
    are computed together.

    points, signs and labels as in :func:`threshold_penalty`, each of shape (n,) or (runs, n), as
    the result. ValueError if there is no point, a point is not finite, a sign or label is not one,
    or the shapes do not agree.

    >>> threshold_sums([0.3, 0.1, 0.2], [1, 1, -1]).tolist()
    [1, 2, 1]
    >>> threshold_sums([0.3, 0.1, 0.2], [1, 1, -1], labels=[0, 1, 1]).tolist()
    [1, 2, 2]
    """
    x, start, step = _steps(points, signs, labels)
    shape = np.broadcast_shapes(x.shape, step.shape)
    rank = np.broadcast_to(_dense_ranks(x), shape).reshape(-1, shape[-1])
    flat = np.ascontiguousarray(np.broadcast_to(step, shape)).ravel()
    high, low = _extreme_suffix_sums(rank, flat)
    offset = np.cumsum(np.broadcast_to(start, shape), axis=-1).ravel()
    out: IntArray = np.maximum(np.abs(offset + high), np.abs(offset + low)).reshape(shape)
    return out


def subset_sums(atoms: ArrayLike, signs: ArrayLike) -> IntArray:
    """S_1, ..., S_n of (1) for the class of all sets of atoms, f_A(x) = 1{x in A}.

    With m atoms these are 2^m functions of VC dimension m. O(n) time for each run.

    Parameters
    ----------
    atoms : array_like of whole numbers, shape (n,) or (runs, n)
        Which atom each observation is; a negative number is a point in which every function
        of the class is 0.
    signs : array_like of -1 and 1, shape (n,) or (runs, n)

    Returns
    -------
    ndarray of int, shape (n,) or (runs, n)
        With a runs axis if either argument has one. A table of one count for each run and
        each atom that occurs is kept.

    Raises
    ------
    ValueError
        If the stream is empty, an atom is not a whole number, a sign is not -1 or 1, or the
        shapes do not agree.

    Examples
    --------
    >>> subset_sums([0, 1, 0, -1], [1, -1, 1, 1]).tolist()
    [1, 1, 2, 2]
    """
    a, s = check.unmasked("atoms", atoms), _signs(signs)
    if a.ndim not in (1, 2) or a.size == 0 or a.dtype.kind not in "iu":
        raise ValueError("atoms must be whole numbers of shape (n,) or (runs, n), n >= 1")
    if a.shape[-1] != s.shape[-1] or (a.ndim == s.ndim == 2 and len(a) != len(s)):
        raise ValueError(f"signs must fit the atoms: got shapes {s.shape} and {a.shape}")
    shape = np.broadcast_shapes(a.shape, s.shape)
    kinds, index = np.unique(a, return_inverse=True)
    # an empty point moves no sum; time first, so that each step reads one stretch of memory
    step = np.ascontiguousarray(np.where(a < 0, 0, s).reshape(-1, shape[-1]).T)
    runs = step.shape[1]
    column = index.reshape(a.shape).T  # whole, or one for each run
    every = slice(None) if a.ndim == 1 else np.arange(runs)
    count = np.zeros((kinds.size, runs), dtype=np.int64)
    signed, absolute = (np.zeros(runs, dtype=np.int64) for _ in range(2))
    out = np.empty((shape[-1], runs), dtype=np.int64)
    for i in range(shape[-1]):
        at = (column[i], every)
        new = count[at] + step[i]
        absolute += np.abs(new) - np.abs(count[at])
        count[at] = new
        signed += step[i]
        # the positive counts sum to (absolute + signed)/2, the negative to (absolute - signed)/2
        out[i] = (absolute + np.abs(signed)) // 2
    return np.ascontiguousarray(out.T).reshape(shape)


# -- thresholds ----------------------------------------------------------------------------


def _steps(
    points: ArrayLike, signs: ArrayLike, labels: ArrayLike | None
) -> tuple[np.ndarray, IntArray, IntArray]:
    """Points; sigma y; sigma (1 - 2y): the sum at t is that of sigma y plus a suffix sum."""
    x, s = check.finite_array("points", points), _signs(signs)
    y = np.zeros(1, dtype=np.int64) if labels is None else check.zeros_and_ones("labels", labels)
    if x.ndim not in (1, 2) or x.size == 0:
        raise ValueError(f"points must have shape (n,) or (runs, n), n >= 1, got {x.shape}")
    shapes = [x.shape, s.shape] if labels is None else [x.shape, s.shape, y.shape]
    runs = {len_[0] for len_ in shapes if len(len_) == 2}
    if len({sh[-1] if sh else 0 for sh in shapes}) > 1 or len(runs) > 1 or y.ndim > 2:
        raise ValueError(
            "points, signs and labels must agree in length and in runs, got shapes "
            + ", ".join(map(str, shapes))
        )
    return x, s * y, s * (1 - 2 * y)


def _dense_ranks(x: np.ndarray) -> IntArray:
    """Ranks 0, 1, ... in the last axis; equal values share one."""
    order = np.argsort(x, axis=-1)
    ordered = np.take_along_axis(x, order, axis=-1)
    new = np.zeros(x.shape, dtype=np.int64)
    new[..., 1:] = ordered[..., 1:] != ordered[..., :-1]
    rank = np.empty(x.shape, dtype=np.int64)
    np.put_along_axis(rank, order, np.cumsum(new, axis=-1), axis=-1)
    return rank


def _extreme_suffix_sums(rank: IntArray, step: IntArray) -> tuple[IntArray, IntArray]:
    """Largest and smallest suffix sum (the empty one among them) after each point.

    rank (runs, n); step and the results flat, run by run. Level d of the tree parts the points
    of each run by the d highest bits of their ranks; within a block they stay in the order of
    time. A stable partition leads down from the root to the leaves, (2) back up.
    """
    depth = int(rank.max()).bit_length()
    code = (np.arange(len(rank))[:, None] << depth | rank).ravel()  # run, then rank
    sizes = np.bincount(code, minlength=len(rank) << depth)
    bits = []
    order = np.arange(code.size)
    for d in range(depth):
        bit = (code[order] >> (depth - 1 - d) & 1).astype(np.bool_)
        left, right = _child_slots(bit, _counts(sizes, depth - d), _counts(sizes, depth - d - 1))
        bits.append(bit)
        down = np.empty_like(order)
        down[np.where(bit, right, left)] = order
        order = down
    # leaves: equal points cannot be parted. State 0 is that of a block without a point.
    running = np.cumsum(step[order])
    before = np.append(0, running)[np.cumsum(sizes) - sizes]
    total = running - np.repeat(before, sizes)
    state = np.zeros((code.size + 1, 3), dtype=np.int64)  # sum, high, low
    state[1:] = np.stack([total, np.maximum(total, 0), np.minimum(total, 0)], axis=1)
    for d in reversed(range(depth)):
        parents, children = _counts(sizes, depth - d), _counts(sizes, depth - d - 1)
        left, right = _child_slots(bits[d], parents, children)
        first = np.repeat(np.cumsum(parents) - parents, parents)
        middle = first + np.repeat(children[::2], parents)
        one = state[np.where(left >= first, left + 1, 0)]
        two = state[np.where(right >= middle, right + 1, 0)]
        sums = two[:, :1] + one  # (2)
        state[1:, 0] = sums[:, 0]
        np.maximum(two[:, 1], sums[:, 1], out=state[1:, 1])
        np.minimum(two[:, 2], sums[:, 2], out=state[1:, 2])
    return state[1:, 1], state[1:, 2]


def _counts(sizes: IntArray, levels: int) -> IntArray:
    """Sizes of the blocks that hold 2^levels leaves each."""
    out: IntArray = sizes.reshape(-1, 1 << levels).sum(axis=1)
    return out


def _child_slots(
    bit: BoolArray, parents: IntArray, children: IntArray
) -> tuple[IntArray, IntArray]:
    """For each event of a level, where the last event so far of its two children is kept.

    A slot before the child's first means that the child has no event yet.
    """
    first = np.repeat(np.cumsum(parents) - parents, parents)
    ones = np.cumsum(bit)
    before = np.append(0, ones)[first]
    right_so_far = ones - before
    left_so_far = np.arange(bit.size) - first + 1 - right_so_far
    middle = first + np.repeat(children[::2], parents)
    return first + left_so_far - 1, middle + right_so_far - 1


# -- checks --------------------------------------------------------------------------------


def _signs(signs: ArrayLike) -> IntArray:
    s = check.finite_array("signs", signs)
    if s.ndim not in (1, 2) or s.size == 0:
        raise ValueError(f"signs must have shape (n,) or (runs, n), n >= 1, got {s.shape}")
    if not (np.abs(s) == 1).all():
        raise ValueError("signs must hold only -1 and 1")
    return s.astype(np.int64)
