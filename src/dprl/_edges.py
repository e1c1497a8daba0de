"""The transitions of positive probability of a finite process, from dense or sparse matrices."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from dprl import _validation as check
from dprl._validation import FloatArray, IntArray


@dataclass(frozen=True, eq=False)
class Edges:
    """The transitions of positive probability, those from one state after another.

    Attributes
    ----------
    source, successor : ndarray of int, shape (edges,)
        From which state to which; successors of a state in ascending order.
    probability, cumulative : ndarray, shape (edges,)
        P(s, s'), and the sum of the probabilities up to and with this one; inf for the last of
        a state, so that rounding does not lead past it.
    reward : ndarray, shape (edges,)
        R(s, s').
    first : ndarray of int, shape (n + 1,)
        Those from s are first[s] .. first[s + 1] - 1.
    """

    source: IntArray
    successor: IntArray
    probability: FloatArray
    cumulative: FloatArray
    reward: FloatArray
    first: IntArray

    @classmethod
    def of(cls, transition: FloatArray, reward: FloatArray) -> Edges:
        """Those of checked matrices (n, n)."""
        source, successor = np.nonzero(transition)
        probability = np.asarray(transition[source, successor])
        paid = np.asarray(reward[source, successor])
        return cls._sorted(source, successor, probability, paid, transition.shape[0])

    @classmethod
    def of_sparse(cls, transition: Any, reward: Any) -> Edges:
        """Those of a sparse transition matrix and a dense or sparse reward; both are checked."""
        p = check.sparse_array("transition", transition)
        n = p.shape[0]
        if p.shape != (n, n) or n == 0:
            raise ValueError(f"transition must be square and not empty, got shape {p.shape}")
        p = check.sparse_distributions("transition", transition, p)
        p.eliminate_zeros()
        source = np.repeat(np.arange(n), np.diff(p.indptr))
        successor = p.indices.astype(np.int64)
        if is_sparse(reward):
            r = check.sparse_array("reward", reward)
            if r.shape != (n, n):
                raise ValueError(
                    f"reward must have the shape of transition, {(n, n)}, got {r.shape}"
                )
            place = np.repeat(np.arange(n), np.diff(r.indptr)) * n + r.indices
            wanted = source * n + successor
            at = np.searchsorted(place, wanted)
            paid = np.append(r.data, 0.0)[
                np.where(np.append(place, -1)[at] == wanted, at, place.size)
            ]
        else:
            paid = reward_matrix(reward, n, copied=False)[source, successor]
        return cls._sorted(source, successor, p.data, paid, n)

    @classmethod
    def _sorted(
        cls,
        source: IntArray,
        successor: IntArray,
        probability: FloatArray,
        reward: FloatArray,
        n_states: int,
    ) -> Edges:
        first = np.searchsorted(source, np.arange(n_states + 1))
        degree, cumulative = np.diff(first), probability.copy()
        for j in range(1, int(degree.max())):  # row by row in the order of a loop
            at = first[:-1][degree > j] + j
            cumulative[at] += cumulative[at - 1]
        cumulative[first[1:] - 1] = np.inf
        parts = source, successor, probability, cumulative, reward, first
        return cls(*(check.frozen(part) for part in parts))

    @cached_property
    def matrix(self) -> Any:
        """P, compressed by rows."""
        from scipy.sparse import csr_array

        n = self.first.size - 1
        return csr_array((self.probability, self.successor, self.first), shape=(n, n))

    def mean(self, values: FloatArray) -> FloatArray:
        """sum_{s'} P(s, s') x(s, s') of one value for each transition; shape (n,)."""
        sums = np.bincount(self.source, self.probability * values, minlength=self.first.size - 1)
        return np.asarray(sums, dtype=np.float64)

    def ahead(self, values: FloatArray) -> FloatArray:
        """sum_{s'} P(s, s') v(s') of one value for each state; (..., n) -> (..., n)."""
        flat = values.reshape(-1, values.shape[-1])
        return np.asarray((self.matrix @ flat.T).T.reshape(values.shape))


def edges_of_actions(transition: Any, reward: Any) -> tuple[Edges, ...]:
    """One :class:`Edges` for each action, of a list of sparse matrices and rewards; checked."""
    if not all(is_sparse(x) for x in transition):
        raise ValueError("transition must hold one sparse matrix for each action, or none")
    k, n = len(transition), transition[0].shape[0]
    if any(x.shape != (n, n) for x in transition):
        raise ValueError(
            f"transition must hold matrices of one shape (n, n), "
            f"got {[x.shape for x in transition]}"
        )
    if isinstance(reward, (list, tuple)) and any(is_sparse(x) for x in reward):
        if len(reward) != k:
            raise ValueError(f"reward must hold {k} matrices, one for each action")
        rewards = list(reward)
    else:
        r = check.finite_array("reward", reward)
        if r.shape not in ((n, k), (n, k, n)):
            raise ValueError(f"reward must have shape {(n, k)} or {(n, k, n)}, got {r.shape}")
        rewards = [
            r[:, a] if r.ndim == 3 else _spread(p, r[:, a]) for a, p in enumerate(transition)
        ]
    return tuple(Edges.of_sparse(p, r) for p, r in zip(transition, rewards, strict=True))


def _spread(transition: Any, reward: FloatArray) -> Any:
    """r(s) on every transition from s."""
    rows = transition.tocoo()
    return type(rows)((reward[rows.coords[0]], rows.coords), shape=rows.shape).tocsr()


def mixed(actions: tuple[Edges, ...], policy: FloatArray) -> tuple[Any, Any]:
    """P(s, s') and the mean R(s, s') if actions are drawn from pi (n, k); sparse matrices."""
    from scipy.sparse import csr_array

    n = policy.shape[0]
    pi = np.concatenate([policy[edges.source, a] for a, edges in enumerate(actions)])
    kept = pi > 0

    def column(name: str) -> Any:
        return np.concatenate([getattr(edges, name) for edges in actions])[kept]

    probability = column("probability")
    joint = pi[kept] * probability
    cell, of = np.unique(column("source") * n + column("successor"), return_inverse=True)
    source, successor = cell // n, cell % n
    weight = np.bincount(of, joint)
    p = weight / np.bincount(source, weight, minlength=n)[source]  # a sum of rounded products
    # where every action that is possible leads to the same state for certain
    surely = np.bincount(of, probability == 1)
    p[surely == (policy > 0).sum(axis=1)[source]] = 1.0
    paid = np.bincount(of, joint * column("reward"))
    reward = np.divide(paid, weight, out=np.zeros_like(paid), where=weight > 0)
    index = source, successor
    return csr_array((p, index), shape=(n, n)), csr_array((reward, index), shape=(n, n))


def is_sparse(matrix: Any) -> bool:
    """Whether it is one of SciPy's sparse matrices or arrays."""
    return hasattr(matrix, "tocsr") and hasattr(matrix, "nnz")


def reward_matrix(reward: Any, n: int, *, copied: bool = True) -> FloatArray:
    """R(s, s') of n states as a dense array, checked."""
    if is_sparse(reward):
        reward = check.sparse_array("reward", reward).toarray()
    r = check.finite_array("reward", reward, ndim=2)
    if r.shape != (n, n):
        raise ValueError(f"reward must have the shape of transition, {(n, n)}, got {r.shape}")
    return r.copy() if copied else r


def ranges(begins: IntArray, ends: IntArray) -> IntArray:
    """begins[0] .. ends[0] - 1, then begins[1] .. ends[1] - 1, and so on.

    >>> ranges(np.array([3, 9]), np.array([5, 10])).tolist()
    [3, 4, 9]
    """
    sizes = ends - begins
    offsets = begins - (np.cumsum(sizes) - sizes)
    return np.asarray(np.arange(int(sizes.sum())) + np.repeat(offsets, sizes))
