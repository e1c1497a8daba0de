r"""Finite Markov decision processes, the reward processes they leave, and exact values.

A Markov decision process has transition probabilities P(s' | s, a), a reward
r(s, a, s'), a discount gamma in [0, 1) and a start distribution. A policy
pi(a | s) fixed in it leaves a Markov reward process: transition probabilities P,
a reward R(s, s') on each transition (thesis, equation 2.3). Its value is
the fixed point of the Bellman operator (thesis, equations 2.6-2.8),

    V(s) = sum_{s'} P(s, s') [ R(s, s') + gamma V(s') ],               (1)

so one linear solve gives it exactly. Policy iteration (thesis, figure 2.1)
alternates that solve with the choice of the actions that are best under

    Q(s, a) = sum_{s'} P(s' | s, a) [ r(s, a, s') + gamma V(s') ].     (2)

The chain of the thesis (section 3.8) has N states, stays put with probability
p, moves right with probability 1 - p, and pays one unit when it reaches the
absorbing end. The time spent in a state is geometric, with

    g = E[gamma^{holding time}] = (1 - p) gamma / (1 - p gamma),        (3)

and all values are powers of g. The text leaves open whether the absorbing
state is one of the N and when exactly the unit is paid:
:data:`CHAIN_CONVENTIONS` names the four readings.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike

from dprl import _validation as check
from dprl._edges import Edges, edges_of_actions, is_sparse, mixed, ranges, reward_matrix
from dprl._validation import BoolArray, FloatArray, IntArray

Start = Literal["first", "uniform"]


@dataclass(frozen=True, eq=False)
class MarkovRewardProcess:
    """A finite Markov reward process.

    Of a sparse transition matrix the process keeps the transitions of positive probability alone,
    and its methods work with these. The attributes transition and reward are then made when they
    are asked for: dense arrays, n^2 numbers each. ValueError if a shape does not fit, a row does
    not sum to one within 1e-9, an entry is negative or not finite, gamma is outside [0, 1), or a
    terminal state is not absorbing or pays a reward.

    Parameters
    ----------
    transition : array_like or SciPy sparse matrix, shape (n, n)
        P(s, s'); each row sums to one.
    reward : array_like or SciPy sparse matrix, shape (n, n)
        R(s, s'), paid on the transition from s to s'; finite.
    discount : float
        gamma in [0, 1).
    start : array_like, shape (n,)
        Distribution of the first state.
    terminal : array_like of bool, shape (n,), optional
        States in which a trajectory ends. Each must be absorbing and pay
        nothing. Default: every absorbing state that pays nothing.

    Examples
    --------
    >>> process = MarkovRewardProcess([[0.5, 0.5], [0, 1]], [[0, 1], [0, 0]], 0.9, [1, 0])
    >>> process.values().round(4).tolist()
    [0.9091, 0.0]
    """

    transition: FloatArray
    reward: FloatArray
    discount: float
    start: FloatArray
    terminal: BoolArray

    def __init__(
        self,
        transition: Any,
        reward: Any,
        discount: float,
        start: ArrayLike,
        terminal: ArrayLike | None = None,
    ) -> None:
        edges, p, r = None, None, None
        if is_sparse(transition):
            edges = Edges.of_sparse(transition, reward)
            n = edges.first.size - 1
            certain = (edges.source == edges.successor) & (edges.probability == 1)
            absorbing = np.zeros(n, dtype=bool)
            absorbing[edges.source[certain & (edges.reward == 0)]] = True
        else:
            p = check.finite_array("transition", transition, ndim=2)
            n = p.shape[0]
            if p.shape != (n, n) or n == 0:
                raise ValueError(f"transition must be square and not empty, got shape {p.shape}")
            p = check.distributions("transition", transition).copy()
            r = reward_matrix(reward, n)
            absorbing = (np.diag(p) == 1) & (np.diag(r) == 0)
        gamma = check.below_one("discount", discount)
        rho = check.probability_vector("start", start, n).copy()
        if terminal is None:
            end = absorbing
        else:
            end = check.unmasked("terminal", terminal)
            if end.dtype != bool or end.shape != (n,):
                raise ValueError(f"terminal must be {n} booleans, got {terminal!r}")
            end = end.copy()
            if (end & ~absorbing).any():
                s = int(np.flatnonzero(end & ~absorbing)[0])
                raise ValueError(f"terminal state {s} must stay with probability 1 and pay 0")
        kept: dict[str, Any] = {"discount": gamma, "start": check.frozen(rho)}
        kept["terminal"] = check.frozen(end)
        if edges is not None:
            kept |= {"edges": edges, "_sparse": True}
        elif p is not None and r is not None:
            kept |= {"transition": check.frozen(p), "reward": check.frozen(r), "_sparse": False}
        for name, value in kept.items():
            object.__setattr__(self, name, value)

    def __getattr__(self, name: str) -> Any:
        """The dense matrices of a sparse process, made when they are first asked for."""
        if name not in ("transition", "reward") or not self.__dict__.get("_sparse"):
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        edges, matrix = self.edges, np.zeros((self.n_states, self.n_states))
        matrix[edges.source, edges.successor] = (
            edges.probability if name == "transition" else edges.reward
        )
        object.__setattr__(self, name, check.frozen(matrix))
        return matrix

    @property
    def n_states(self) -> int:
        """Number of states, terminal ones included."""
        return int(self.start.size)

    @property
    def expected_reward(self) -> FloatArray:
        """R^pi(s) = sum_{s'} P(s, s') R(s, s'), shape (n,)."""
        if self._sparse:
            return self.edges.mean(self.edges.reward)
        out: FloatArray = np.einsum("ij,ij->i", self.transition, self.reward)
        return out

    def _solve(self, factor: float, target: FloatArray) -> FloatArray:
        """The x with x = target + factor P x."""
        if not self._sparse:
            identity = np.eye(self.n_states)
            return np.asarray(np.linalg.solve(identity - factor * self.transition, target))
        from scipy.sparse import eye_array
        from scipy.sparse.linalg import spsolve

        system = eye_array(self.n_states, format="csc") - (factor * self.edges.matrix).tocsc()
        return np.asarray(spsolve(system, target))

    def bellman(self, values: ArrayLike) -> FloatArray:
        """One application of the Bellman operator, equation (1); (..., n) -> (..., n)."""
        v = _state_values(values, self.n_states)
        if self._sparse:
            return self.expected_reward + self.discount * self.edges.ahead(v)
        return self.expected_reward + self.discount * v @ self.transition.T

    def values(self) -> FloatArray:
        """V, the fixed point of (1), by one linear solve; shape (n,).

        O(n^3) the first time if the process is dense; if sparse, what its factors need.
        """
        return self._values.copy()

    @cached_property
    def _values(self) -> FloatArray:
        return self._solve(self.discount, self.expected_reward)

    def return_variance(self) -> FloatArray:
        """Variance of the discounted return from each state, shape (n,).

        The second moment M solves M = E[R^2 + 2 gamma R V' + gamma^2 M'].
        """
        gamma, v = self.discount, self.values()
        if self._sparse:
            r = self.edges.reward
            target = self.edges.mean(r**2 + 2 * gamma * r * v[self.edges.successor])
        else:
            r = self.reward
            target = np.einsum("ij,ij->i", self.transition, r**2 + 2 * gamma * r * v)
        return np.maximum(self._solve(gamma**2, target) - v**2, 0.0)

    def visit_probabilities(self) -> FloatArray:
        """p_s, the probability that a trajectory visits s at least once; shape (n,).

        With G = (I - P_TT)^{-1} over the transient states, the probability to
        reach j from i is G_ij / G_jj; a terminal state is reached with
        probability (G P_{T,end})_ij.

        A sparse process takes one solve for each state: at least quadratic time, linear memory.
        ValueError if some state cannot reach a terminal one: its trajectories never end.
        """
        return self._visit_probabilities.copy()

    @cached_property
    def _visit_probabilities(self) -> FloatArray:
        transient = ~self.terminal
        self.require_termination()
        if self._sparse:
            return self._sparse_visit_probabilities(transient)
        p = self.transition
        g = np.linalg.inv(np.eye(int(transient.sum())) - p[np.ix_(transient, transient)])
        out = np.empty(self.n_states)
        out[transient] = self.start[transient] @ (g / np.diag(g))
        reach_end = g @ p[np.ix_(transient, self.terminal)]
        out[self.terminal] = self.start[self.terminal] + self.start[transient] @ reach_end
        return np.clip(out, 0.0, 1.0)

    def _sparse_visit_probabilities(self, transient: BoolArray) -> FloatArray:
        """The same from sparse factors; the diagonal of G column by column, some at a time."""
        from scipy.sparse import eye_array
        from scipy.sparse.linalg import splu

        rows, n = self.edges.matrix[transient], int(transient.sum())
        out = np.zeros(self.n_states)
        if n:
            factors = splu((eye_array(n, format="csr") - rows[:, transient]).tocsc())
            visits = factors.solve(self.start[transient], trans="T")  # type: ignore[call-overload]
            diagonal = np.empty(n)
            for low in range(0, n, 256):
                block = np.arange(low, min(low + 256, n))
                unit = np.zeros((n, block.size))
                unit[block, block - low] = 1.0
                diagonal[block] = factors.solve(unit)[block, block - low]
            out[transient] = visits / diagonal
            out[self.terminal] = visits @ rows[:, self.terminal]
        out[self.terminal] += self.start[self.terminal]
        return np.clip(out, 0.0, 1.0)

    @cached_property
    def edges(self) -> Edges:
        """All transitions of positive probability."""
        return Edges.of(self.transition, self.reward)

    def require_termination(self) -> None:
        """Raise ValueError unless every state reaches a terminal one with probability 1."""
        reaches = self._reaches_end
        if not reaches.all():
            stuck = np.flatnonzero(~reaches).tolist()
            raise ValueError(f"states {stuck} never reach a terminal state: no finite trajectory")

    @cached_property
    def _reaches_end(self) -> BoolArray:
        """Whether a terminal state can be reached from a state; O(transitions)."""
        edges = self.edges
        order = np.argsort(edges.successor, kind="stable")
        into = np.searchsorted(edges.successor[order], np.arange(self.n_states + 1))
        source = edges.source[order]
        reaches = self.terminal.copy()
        new = np.flatnonzero(reaches)
        while new.size:  # backwards, one step further each time
            before = source[ranges(into[new], into[new + 1])]
            new = np.unique(before[~reaches[before]])
            reaches[new] = True
        return reaches


@dataclass(frozen=True, eq=False)
class MarkovDecisionProcess:
    """A finite Markov decision process (thesis, section 2.1).

    A *policy* is given either as one action per state, integers of shape (n,),
    or as pi(a | s), probabilities of shape (n, k). Sparse matrices are kept as in
    :class:`MarkovRewardProcess`; ValueError for what that class refuses too.

    Parameters
    ----------
    transition : array_like, shape (n, k, n), or a list of k SciPy sparse matrices (n, n)
        P(s' | s, a) at [s, a, s'] for n states and k actions, or at [a][s, s']; sums to one
        over s'.
    reward : array_like, shape (n, k) or (n, k, n), or a list of k sparse matrices (n, n)
        r(s, a), or r(s, a, s') paid on the transition to s'; finite. A list only with a list.
    discount : float
        gamma in [0, 1).
    start : array_like, shape (n,)
        Distribution p_0 of the first state.

    Examples
    --------
    >>> wait, act = [[0.5, 0.5], [0, 1]], [[0, 1], [0, 1]]
    >>> process = MarkovDecisionProcess(
    ...     np.stack([wait, act], axis=1), [[0, -1], [1, 1]], 0.5, [1, 0]
    ... )
    >>> process.under([0, 0]).values().round(4).tolist()
    [0.6667, 2.0]
    """

    transition: FloatArray
    reward: FloatArray
    discount: float
    start: FloatArray

    def __init__(self, transition: Any, reward: Any, discount: float, start: ArrayLike) -> None:
        if isinstance(transition, (list, tuple)) and any(is_sparse(x) for x in transition):
            edges = edges_of_actions(transition, reward)
            n = edges[0].first.size - 1
            rho = check.probability_vector("start", start, n).copy()
            object.__setattr__(self, "_edges", edges)
            object.__setattr__(self, "discount", check.below_one("discount", discount))
            object.__setattr__(self, "start", check.frozen(rho))
            return
        object.__setattr__(self, "_edges", None)
        p = check.finite_array("transition", transition, ndim=3)
        n, k, _ = p.shape
        if p.shape != (n, k, n) or p.size == 0:
            raise ValueError(
                "transition must have shape (states, actions, states), none of them 0, "
                f"got {p.shape}"
            )
        p = check.distributions("transition", transition, ndim=3).copy()
        r = check.finite_array("reward", reward)
        if r.shape not in ((n, k), (n, k, n)):
            raise ValueError(f"reward must have shape {(n, k)} or {(n, k, n)}, got {r.shape}")
        if r.ndim == 2:
            r = np.broadcast_to(r[:, :, None], p.shape)
        for name, value in (
            ("transition", check.frozen(p)),
            ("reward", check.frozen(r.copy())),
            ("discount", check.below_one("discount", discount)),
            ("start", check.frozen(check.probability_vector("start", start, n).copy())),
        ):
            object.__setattr__(self, name, value)

    def __getattr__(self, name: str) -> Any:
        """The dense arrays of a sparse process, made when they are first asked for."""
        if name not in ("transition", "reward") or not self.__dict__.get("_edges"):
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        array = np.zeros((self.n_states, self.n_actions, self.n_states))
        for a, edges in enumerate(self._edges):
            values = edges.probability if name == "transition" else edges.reward
            array[edges.source, a, edges.successor] = values
        object.__setattr__(self, name, check.frozen(array))
        return array

    @property
    def n_states(self) -> int:
        """Number of states."""
        return int(self.start.size)

    @property
    def n_actions(self) -> int:
        """Number of actions, the same in every state."""
        return len(self._edges) if self._edges else int(self.transition.shape[1])

    @property
    def expected_reward(self) -> FloatArray:
        """r(s, a) = sum_{s'} P(s' | s, a) r(s, a, s'), shape (n, k)."""
        if self._edges:
            return np.stack([edges.mean(edges.reward) for edges in self._edges], axis=1)
        out: FloatArray = np.einsum("iaj,iaj->ia", self.transition, self.reward)
        return out

    def action_probabilities(self, policy: ArrayLike) -> FloatArray:
        """pi(a | s) of a policy in either form, shape (n, k).

        ValueError if the policy has another shape, names an action that does not exist, or its
        probabilities do not sum to one within 1e-9.
        """
        given = check.unmasked("policy", policy)
        n, k = self.n_states, self.n_actions
        if given.shape == (n,) and given.dtype.kind in "iu":
            if (given < 0).any() or (given >= k).any():
                bad = given[(given < 0) | (given >= k)][0]
                raise ValueError(f"policy holds action {bad}; actions are 0 .. {k - 1}")
            out: FloatArray = np.eye(k)[given]
            return out
        if given.shape != (n, k):
            raise ValueError(
                f"policy must be {n} integer actions or probabilities of shape {(n, k)}, "
                f"got {given.dtype} of shape {given.shape}"
            )
        return check.distributions("policy", given)

    def under(self, policy: ArrayLike) -> MarkovRewardProcess:
        """The reward process that a fixed policy leaves (thesis, equation 2.3).

        P(s, s') = sum_a P(s' | s, a) pi(a | s), and R(s, s') is the mean reward given that s'
        follows s. That keeps every expected return, hence all values. Where two actions lead to
        the same state with different rewards, the spread between them is averaged out:
        :meth:`MarkovRewardProcess.return_variance` is then a lower bound.

        The policy is one action per state, integers of shape (n,), or pi(a | s), shape (n, k). The
        result has the same states, discount and start; terminal are the states that never leave and
        pay nothing under the policy.
        """
        pi = self.action_probabilities(policy)
        if self._edges:
            return MarkovRewardProcess(*mixed(self._edges, pi), self.discount, self.start)
        joint = pi[:, :, None] * self.transition
        p = joint.sum(axis=1)  # (2.3)
        p /= p.sum(axis=1, keepdims=True)  # a sum of rounded products
        certain = ((self.transition == 1) | (pi[:, :, None] == 0)).all(axis=1)
        p[certain] = 1.0
        paid = (joint * self.reward).sum(axis=1)
        reward = np.divide(paid, joint.sum(axis=1), out=np.zeros_like(p), where=p > 0)
        return MarkovRewardProcess(p, reward, self.discount, self.start)

    def action_values(self, values: ArrayLike) -> FloatArray:
        """Q of equation (2): act once, then collect ``values``; (..., n) -> (..., n, k).

        With the values of a policy it is that policy's action-value function
        (thesis, equation 2.5). O(n^2 k), or the number of transitions of a sparse process.
        """
        v = _state_values(values, self.n_states)
        if self._edges:
            ahead = np.stack([edges.ahead(v) for edges in self._edges], axis=-1)
        else:
            ahead = np.einsum("iaj,...j->...ia", self.transition, v)
        out: FloatArray = self.expected_reward + self.discount * ahead
        return out


def _state_values(values: ArrayLike, n: int) -> FloatArray:
    v = check.finite_array("values", values)
    if v.ndim == 0 or v.shape[-1] != n:
        raise ValueError(f"values must have {n} entries in the last axis, got shape {v.shape}")
    return v


@dataclass(frozen=True, eq=False)
class PolicyIteration:
    """All rounds of policy iteration, in order.

    Attributes
    ----------
    policies : ndarray of int, shape (rounds, n)
        The policy that each round evaluates; the last one is optimal.
    values : ndarray, shape (rounds, n)
        Their values; the last ones are V*.
    """

    policies: IntArray
    values: FloatArray

    def __len__(self) -> int:
        """Number of rounds, each one evaluation and one look for an improvement."""
        return int(self.policies.shape[0])


def policy_iteration(
    process: MarkovDecisionProcess, policy: ArrayLike, *, tolerance: float = 1e-10
) -> PolicyIteration:
    """Policy iteration with exact evaluation (thesis, figure 2.1), all rounds kept.

    Each round solves (1) for the policy, then gives every state a greedy action of
    (2), unless its present one is as good. It stops when no state changes. Values
    never fall from one round to the next, so no policy comes back, and there are
    at most k^n of them. A round costs O(n^3 + n^2 k). ValueError if the first policy is
    not one action per state, or the tolerance is not positive.

    Parameters
    ----------
    process : MarkovDecisionProcess
        With n states and k actions.
    policy : array_like of int, shape (n,)
        The first policy.
    tolerance : float
        An action is better only if it gains more than this part of the largest
        value, > 0: above rounding, so that ties do not make policies alternate.
        The last values are then V* within tolerance / (1 - gamma) times it.

    Examples
    --------
    >>> wait, act = [[0.5, 0.5], [0, 1]], [[0, 1], [0, 1]]
    >>> process = MarkovDecisionProcess(
    ...     np.stack([wait, act], axis=1), [[0, -1], [1, 1]], 0.9, [1, 0]
    ... )
    >>> rounds = policy_iteration(process, [1, 0])
    >>> rounds.policies.tolist(), rounds.values.round(3).tolist()
    ([[1, 0], [0, 0]], [[8.0, 10.0], [8.182, 10.0]])
    """
    check.instance("process", process, MarkovDecisionProcess)
    slack = check.positive("tolerance", tolerance)
    if check.unmasked("policy", policy).ndim != 1:
        raise ValueError("policy iteration starts from one action per state")
    pi = process.action_probabilities(policy).argmax(axis=1)
    states = np.arange(process.n_states)
    policies, values = [], []
    while True:
        v = process.under(pi).values()  # evaluation
        policies.append(pi)
        values.append(v)
        q = process.action_values(v)  # improvement
        better = q.max(axis=1) > q[states, pi] + slack * np.abs(v).max()
        if not better.any():
            return PolicyIteration(
                check.frozen(np.array(policies, dtype=np.int64)), check.frozen(np.array(values))
            )
        pi = np.where(better, q.argmax(axis=1), pi)


@dataclass(frozen=True)
class ChainConvention:
    """One reading of the chain's description.

    Attributes
    ----------
    letter : str
        A to D, the order of the book's table.
    absorbing_inside : bool
        Whether the absorbing state is the last of the N states whose value is
        estimated, or a further state behind them.
    reward_on : {"arrival", "occupancy"}
        Whether the unit is paid on the step that reaches the absorbing state,
        or one step later, for being in it.
    """

    letter: str
    absorbing_inside: bool
    reward_on: Literal["arrival", "occupancy"]


#: The four readings of "a reward of 1 when the agent reaches the final,
#: absorbing state". The book uses ``outside-arrival``.
CHAIN_CONVENTIONS: dict[str, ChainConvention] = {
    "inside-arrival": ChainConvention("A", True, "arrival"),
    "outside-arrival": ChainConvention("B", False, "arrival"),
    "inside-occupancy": ChainConvention("C", True, "occupancy"),
    "outside-occupancy": ChainConvention("D", False, "occupancy"),
}

#: The book's reading of the chain; the page "First-visit Monte Carlo" says why.
BOOK_CONVENTION = "outside-arrival"


@dataclass(frozen=True, eq=False)
class Chain:
    """The chain of N states as a Markov reward process.

    ValueError if a parameter is outside its range or a name is unknown.

    Parameters
    ----------
    n_states : int
        N >= 2, the number of states whose value is estimated.
    stay, discount : float
        p in [0, 1), the probability to stay in a state; gamma in [0, 1).
    start : {"first", "uniform"}
        All trajectories start in state 1, or uniformly in the N states.
    convention : str
        A key of :data:`CHAIN_CONVENTIONS`.

    Attributes
    ----------
    process : MarkovRewardProcess
        The N states in order, then whatever the convention adds behind them.

    Examples
    --------
    >>> Chain(40, stay=0.5, discount=0.99).values()[0].round(9)
    np.float64(0.453855537)
    """

    n_states: int = 40
    stay: float = 0.5
    discount: float = 0.99
    start: Start = "uniform"
    convention: str = BOOK_CONVENTION
    process: MarkovRewardProcess = field(init=False, repr=False)

    def __post_init__(self) -> None:
        n = check.whole("n_states", self.n_states, minimum=2)
        p = check.below_one("stay", self.stay)  # the chain must move on
        if self.start not in ("first", "uniform"):
            raise ValueError(f"start must be 'first' or 'uniform', got {self.start!r}")
        if self.convention not in CHAIN_CONVENTIONS:
            raise ValueError(
                f"convention must be one of {sorted(CHAIN_CONVENTIONS)}, got {self.convention!r}"
            )
        object.__setattr__(self, "process", self._build(n, p))

    @property
    def rules(self) -> ChainConvention:
        """The convention's record."""
        return CHAIN_CONVENTIONS[self.convention]

    @property
    def n_holding(self) -> int:
        """Number of states in which the chain stays with probability p."""
        return self.n_states - 1 if self.rules.absorbing_inside else self.n_states

    def _build(self, n: int, p: float) -> MarkovRewardProcess:
        holding = self.n_holding
        # occupancy adds a silent last state: the unit is paid on the step into it
        size = holding + (1 if self.rules.reward_on == "arrival" else 2)
        transition, reward = np.eye(size), np.zeros((size, size))
        index = np.arange(holding)
        transition[index, index] = p
        transition[index, index + 1] = 1 - p
        if size == holding + 2:
            transition[holding, holding], transition[holding, holding + 1] = 0.0, 1.0
        reward[size - 2, size - 1] = 1.0
        start = np.zeros(size)
        start[: 1 if self.start == "first" else n] = 1.0
        return MarkovRewardProcess(transition, reward, self.discount, start / start.sum())

    def values(self) -> FloatArray:
        """Exact values of the N states by linear solve, shape (n_states,)."""
        return self.process.values()[: self.n_states]

    def closed_form_values(self) -> FloatArray:
        """The same values as powers of g, equation (3); shape (n_states,).

        V(s) is g to the number of states that still hold the agent, divided by
        gamma where the unit comes with the arrival; an absorbing state that
        pays on arrival has value 0.
        """
        gamma, p = check.below_one("discount", self.discount), float(self.stay)
        g = (1 - p) * gamma / (1 - p * gamma)  # (3)
        left = np.maximum(self.n_holding - np.arange(self.n_states), 0)
        if self.rules.reward_on == "occupancy":
            return np.power(g, left)
        # g^left / gamma without a division by gamma, which may be 0
        paid = (1 - p) / (1 - p * gamma) * np.power(g, np.maximum(left - 1, 0))
        return np.where(left == 0, 0.0, paid)

    @property
    def start_distribution(self) -> FloatArray:
        """Distribution of the first state over the N states, shape (n_states,)."""
        return self.process.start[: self.n_states]

    def visit_probabilities(self) -> FloatArray:
        """p_s for the N states: 1 from the first state, s/N from a uniform start."""
        return self.process.visit_probabilities()[: self.n_states]

    def return_variance(self) -> FloatArray:
        """Variance of the discounted return from each of the N states, shape (n_states,)."""
        return self.process.return_variance()[: self.n_states]


def reward_process(name: str, process: MarkovRewardProcess | Chain) -> MarkovRewardProcess:
    """The reward process that an argument is, or that of a chain.

    TypeError if it is neither; ``name`` is what the message calls it.
    """
    if isinstance(process, Chain):
        return process.process
    check.instance(name, process, MarkovRewardProcess)
    return process
