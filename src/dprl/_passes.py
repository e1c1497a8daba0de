"""Passes over the steps of many trajectories, on plain arrays that the caller has checked.

Each works in blocks that stay in the processor's cache. All first visits of a block are found
together, and all its returns by one triangular solve: no loop over trajectories or steps.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from dprl import _validation as check
from dprl._validation import BoolArray, FloatArray, IntArray

FirstVisits = Iterator[tuple[int, IntArray, FloatArray]]

BLOCK = 2**16  # steps of one block
CELLS = 2**22  # most (trajectory, state) pairs of one block
CHUNK = 2**14  # walks that take a step together
GROUP = 2**13  # walks that are put in order together


class Discounting:
    """G_t = r_t + gamma G_{t+1} of trajectories end to end, block after block.

    The equations are a triangular system with one band beside the diagonal, which BLAS solves
    from the last step to the first, with the products and sums of a loop. (Of its two forms the
    transposed one rounds each product before it adds, whatever the machine, as a loop does.)
    A return beyond the largest number of the machine is that number.
    """

    def __init__(self, gamma: float, most: int) -> None:
        """For blocks of at most ``most`` steps."""
        self.gamma = gamma
        self.band = np.full((2, most), -gamma, order="F")
        self.returns = np.empty(most)

    def __call__(self, rewards: FloatArray, ends: IntArray) -> FloatArray:
        """The returns of one block, to be read before the next call.

        ``ends`` lie behind the last step of each trajectory.
        """
        from scipy.linalg.blas import dtbsv

        out = self.returns[: rewards.size]
        out[:] = rewards
        last = ends - 1
        self.band[1, last] = 0.0  # what follows an end is another trajectory
        out = dtbsv(1, self.band[:, : out.size], out, lower=1, trans=1, diag=1, overwrite_x=1)
        self.band[1, last] = -self.gamma
        # a sum too large makes everything before it infinite or NaN, also beyond an end
        return out if np.isfinite(out[0]) else _discounted_and_clipped(rewards, ends, self.gamma)


def _discounted_and_clipped(rewards: FloatArray, ends: IntArray, gamma: float) -> FloatArray:
    """The same for rewards of any size: one vector operation for each step of the longest."""
    lengths = np.diff(ends, prepend=0)
    order = np.argsort(-lengths, kind="stable")
    lengths, last = lengths[order], ends[order] - 1
    carry, out = np.zeros(lengths.size), np.empty_like(rewards)
    # number of trajectories longer than k, for every k
    live = np.searchsorted(-lengths, -np.arange(int(lengths[0])), side="left")
    for k, n in enumerate(live):
        at = last[:n] - k
        with np.errstate(over="ignore"):
            carry = check.representable(rewards[at] + gamma * carry[:n])
        out[at] = carry
    return out


def blocks(lengths: IntArray, most: int) -> list[tuple[int, int, int, int]]:
    """Trajectories x .. y - 1 with the steps begin .. end - 1: at most BLOCK, if more than one.

    At least one trajectory, at most ``most``.
    """
    ends, x, begin = np.cumsum(lengths), 0, 0
    found = []
    while x < ends.size:
        fit = int(ends.searchsorted(begin + BLOCK, side="right"))
        y = min(max(fit, x + 1), x + most, ends.size)
        end = int(ends[y - 1])
        found.append((x, y, begin, end))
        x, begin = y, end
    return found


def discounted(rewards: FloatArray, lengths: IntArray, gamma: float) -> FloatArray:
    """G_t for every step of all trajectories."""
    parts, out = blocks(lengths, lengths.size), np.empty_like(rewards)
    discounting = Discounting(gamma, max(end - begin for _, _, begin, end in parts))
    for x, y, begin, end in parts:
        out[begin:end] = discounting(rewards[begin:end], np.cumsum(lengths[x:y]))
    return out


def first_visits(
    states: IntArray, rewards: FloatArray, lengths: IntArray, n_states: int, gamma: float
) -> FirstVisits:
    """First visits, block after block: (begin, steps, returns).

    begin is the first step of the block; steps are the positions behind ``begin`` at which a
    trajectory is in a state for the first time, the last one first, and returns the discounted
    returns from there. O(total) time, whatever the number of states.
    """
    parts = blocks(lengths, max(CELLS // n_states, 1))
    most = max(end - begin for _, _, begin, end in parts)
    discounting = Discounting(gamma, most)
    visit = np.empty(max(y - x for x, y, _, _ in parts) * n_states, dtype=np.int32)
    down, kept = np.arange(most - 1, -1, -1, dtype=np.int32), np.empty(most, dtype=np.int32)
    for x, y, begin, end in parts:
        n, inside = end - begin, lengths[x:y]
        step = down[most - n :]
        cell = np.repeat(np.arange((y - x - 1) * n_states, -1, -n_states), inside[::-1])
        cell += states[begin:end][::-1]
        # of repeated cells the last assignment stays: written backwards, the first visit
        visit[cell] = step
        stays = visit.take(cell, out=kept[:n], mode="clip") == step
        first = np.flatnonzero(stays)
        np.subtract(n - 1, first, out=first)
        yield begin, first, discounting(rewards[begin:end], np.cumsum(inside)).take(first)


def walk(
    first: IntArray,
    successor: IntArray,
    cumulative: FloatArray,
    final: BoolArray,
    state: IntArray,
    limit: int,
    rng: np.random.Generator,
) -> tuple[NDArray[np.int32], IntArray, int]:
    """Walks along the edges of a graph until an edge is final; all advance together.

    Parameters
    ----------
    first : ndarray of int, shape (n + 1,)
        The edges first[s] .. first[s + 1] - 1 leave state s, at least one each.
    successor, cumulative, final : ndarray, shape (edges,)
        Where an edge leads; the sum of the probabilities up to it, inf for the last of a state;
        whether it leads to an end.
    state : ndarray of int, shape (m,)
        First states, none of them an end.
    limit : int
        Steps after which no walk goes on.
    rng : numpy.random.Generator
        One uniform number for each walk and step, step by step, in the order of the walks.

    Returns
    -------
    edges : ndarray of int, shape (total,)
        All steps, walk after walk.
    lengths : ndarray of int, shape (m,)
        Steps of each walk.
    unfinished : int
        Walks that ``limit`` stopped.
    """
    degree = np.diff(first)
    doublings = int(degree.max() - 1).bit_length()
    here = first.take(state)  # the first edge that leaves the state, in place of the state
    onwards, goes_on = first.take(successor), ~final
    size = np.zeros(int(first[-1]), dtype=np.int64)
    size[first[:-1]] = degree
    walker = np.arange(state.size, dtype=np.int32)
    steps: list[NDArray[np.int32]] = []
    walkers: list[NDArray[np.int32]] = []
    uniform = np.empty(CHUNK)
    while here.size and len(steps) < limit:
        edges = np.empty(here.size, dtype=np.int32)
        steps.append(edges)
        walkers.append(walker.copy())
        kept = 0
        for low in range(0, here.size, CHUNK):
            begin = here[low : low + CHUNK]
            n = begin.size
            u = rng.random(out=uniform[:n])
            if doublings <= 1:
                edge = begin + (u >= cumulative.take(begin))
            else:
                edge = _search(cumulative, begin, size.take(begin), doublings, u)
            edges[low : low + n] = edge
            on = np.flatnonzero(goes_on.take(edge))
            here[kept : kept + on.size] = onwards.take(edge.take(on))
            walker[kept : kept + on.size] = walker[low : low + n].take(on)
            kept += on.size
        here, walker = here[:kept], walker[:kept]
    found, lengths = _by_walk(steps, walkers, state.size)
    return found, lengths, here.size


def _by_walk(
    steps: list[NDArray[np.int32]], walkers: list[NDArray[np.int32]], m: int
) -> tuple[NDArray[np.int32], IntArray]:
    """The edges of each step, with the walks that took them in order, walk after walk instead."""
    from scipy.sparse import csr_array

    out, lengths = np.empty(sum(part.size for part in steps), np.int32), np.zeros(m, np.int64)
    done = 0
    for low in range(0, m, GROUP):  # so that what is written stays in the cache
        high = min(low + GROUP, m)
        cuts = [walker.searchsorted(np.array([low, high], np.int32)) for walker in walkers]
        parts = [
            (step[i:j], walker[i:j])
            for step, walker, (i, j) in zip(steps, walkers, cuts, strict=True)
        ]
        parts = [part for part in parts if part[0].size]
        if not parts:
            continue
        edges, columns = (np.concatenate(one) for one in zip(*parts, strict=True))
        begins = np.cumsum([0, *(part[0].size for part in parts)])
        index = np.int32 if edges.size <= np.iinfo(np.int32).max else np.int64
        shape = (len(parts), high - low)
        # one row for each step, one column for each walk: by columns, each walk is in one piece
        rows = csr_array((edges, columns - np.int32(low), begins.astype(index)), shape=shape)
        table = rows.tocsc()
        out[done : done + edges.size] = table.data
        lengths[low:high] = np.diff(table.indptr)
        done += edges.size
    return out, lengths


def _search(
    cumulative: FloatArray, begin: IntArray, size: IntArray, doublings: int, u: FloatArray
) -> IntArray:
    """Of the ``size`` edges from ``begin`` on, the first whose cumulative exceeds u."""
    edge = begin.copy()
    for _ in range(doublings):
        half = size >> 1
        edge += half * (u >= cumulative.take(edge + half - 1))
        size = size - half
    return edge
