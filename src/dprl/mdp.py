r"""Finite Markov reward processes and their exact values.

A policy fixed in a Markov decision process leaves a Markov reward process:
transition probabilities P, a reward R(s, s') on each transition, a discount
gamma in [0, 1) and a start distribution (thesis, equation 2.3). Its value is
the fixed point of the Bellman operator (thesis, equations 2.6-2.8),

    V(s) = sum_{s'} P(s, s') [ R(s, s') + gamma V(s') ],               (1)

so one linear solve gives it exactly.

The chain of the thesis (section 3.8) has N states, stays put with probability
p, moves right with probability 1 - p, and pays one unit when it reaches the
absorbing end. The time spent in a state is geometric, with

    g = E[gamma^{holding time}] = (1 - p) gamma / (1 - p gamma),        (2)

and all values are powers of g. The text leaves open whether the absorbing
state is one of the N and when exactly the unit is paid:
:data:`CHAIN_CONVENTIONS` names the four readings.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike

from dprl import _validation as check
from dprl._validation import BoolArray, FloatArray

Start = Literal["first", "uniform"]


@dataclass(frozen=True, eq=False)
class MarkovRewardProcess:
    """A finite Markov reward process.

    Parameters
    ----------
    transition : array_like, shape (n, n)
        P(s, s'); each row sums to one.
    reward : array_like, shape (n, n)
        R(s, s'), paid on the transition from s to s'; finite.
    discount : float
        gamma in [0, 1).
    start : array_like, shape (n,)
        Distribution of the first state.
    terminal : array_like of bool, shape (n,), optional
        States in which a trajectory ends. Each must be absorbing and pay
        nothing. Default: every absorbing state that pays nothing.

    Raises
    ------
    ValueError
        If a shape does not fit, a row does not sum to one within 1e-9, an
        entry is negative or not finite, gamma is outside [0, 1), or a terminal
        state is not absorbing or pays a reward.

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
        transition: ArrayLike,
        reward: ArrayLike,
        discount: float,
        start: ArrayLike,
        terminal: ArrayLike | None = None,
    ) -> None:
        p = check.finite_array("transition", transition, ndim=2).copy()
        n = p.shape[0]
        if p.shape != (n, n) or n == 0:
            raise ValueError(f"transition must be square and not empty, got shape {p.shape}")
        if (p < 0).any():
            raise ValueError("transition must not hold negative probabilities")
        worst = np.abs(p.sum(axis=1) - 1)
        if worst.max() > 1e-9:
            s = int(worst.argmax())
            raise ValueError(f"row {s} of transition sums to {p[s].sum()}; rows must sum to one")
        r = check.finite_array("reward", reward, ndim=2).copy()
        if r.shape != (n, n):
            raise ValueError(f"reward must have the shape of transition, {(n, n)}, got {r.shape}")
        gamma = check.discount(discount)
        rho = check.probability_vector("start", start, n).copy()
        absorbing = (np.diag(p) == 1) & (np.diag(r) == 0)
        if terminal is None:
            end = absorbing
        else:
            end = np.asarray(terminal)
            if end.dtype != bool or end.shape != (n,):
                raise ValueError(f"terminal must be {n} booleans, got {terminal!r}")
            end = end.copy()
            if (end & ~absorbing).any():
                s = int(np.flatnonzero(end & ~absorbing)[0])
                raise ValueError(f"terminal state {s} must stay with probability 1 and pay 0")
        for name, value in (
            ("transition", check.frozen(p)),
            ("reward", check.frozen(r)),
            ("discount", gamma),
            ("start", check.frozen(rho)),
            ("terminal", check.frozen(end)),
        ):
            object.__setattr__(self, name, value)

    @property
    def n_states(self) -> int:
        """Number of states, terminal ones included."""
        return int(self.transition.shape[0])

    @property
    def expected_reward(self) -> FloatArray:
        """R^pi(s) = sum_{s'} P(s, s') R(s, s'), shape (n,)."""
        out: FloatArray = np.einsum("ij,ij->i", self.transition, self.reward)
        return out

    def bellman(self, values: ArrayLike) -> FloatArray:
        """One application of the Bellman operator, equation (1); (..., n) -> (..., n)."""
        v = check.finite_array("values", values)
        if v.ndim == 0 or v.shape[-1] != self.n_states:
            raise ValueError(
                f"values must have {self.n_states} entries in the last axis, got shape {v.shape}"
            )
        out: FloatArray = self.expected_reward + self.discount * v @ self.transition.T
        return out

    def values(self) -> FloatArray:
        """V, the fixed point of (1), by one linear solve; shape (n,), O(n^3)."""
        identity = np.eye(self.n_states)
        return np.asarray(
            np.linalg.solve(identity - self.discount * self.transition, self.expected_reward),
            dtype=np.float64,
        )

    def return_variance(self) -> FloatArray:
        """Variance of the discounted return from each state, shape (n,).

        The second moment M solves M = E[R^2 + 2 gamma R V' + gamma^2 M'].
        """
        p, r, gamma, v = self.transition, self.reward, self.discount, self.values()
        target = np.einsum("ij,ij->i", p, r**2 + 2 * gamma * r * v)
        second: FloatArray = np.linalg.solve(np.eye(self.n_states) - gamma**2 * p, target)
        return np.maximum(second - v**2, 0.0)

    def visit_probabilities(self) -> FloatArray:
        """p_s, the probability that a trajectory visits s at least once; shape (n,).

        With G = (I - P_TT)^{-1} over the transient states, the probability to
        reach j from i is G_ij / G_jj; a terminal state is reached with
        probability (G P_{T,end})_ij.

        Raises
        ------
        ValueError
            If some state cannot reach a terminal one: its trajectories never end.
        """
        transient = ~self.terminal
        self.require_termination()
        p = self.transition
        g = np.linalg.inv(np.eye(int(transient.sum())) - p[np.ix_(transient, transient)])
        out = np.empty(self.n_states)
        out[transient] = self.start[transient] @ (g / np.diag(g))
        reach_end = g @ p[np.ix_(transient, self.terminal)]
        out[self.terminal] = self.start[self.terminal] + self.start[transient] @ reach_end
        return np.clip(out, 0.0, 1.0)

    def require_termination(self) -> None:
        """Raise ValueError unless every state reaches a terminal one with probability 1."""
        reaches = self.terminal.copy()
        for _ in range(self.n_states):
            reaches = reaches | (self.transition @ reaches > 0)
        if not reaches.all():
            stuck = np.flatnonzero(~reaches).tolist()
            raise ValueError(f"states {stuck} never reach a terminal state: no finite trajectory")


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

    Parameters
    ----------
    n_states : int
        N >= 2, the number of states whose value is estimated.
    stay : float
        p in [0, 1), the probability to stay in a state.
    discount : float
        gamma in [0, 1).
    start : {"first", "uniform"}
        All trajectories start in state 1, or uniformly in the N states.
    convention : str
        A key of :data:`CHAIN_CONVENTIONS`.

    Attributes
    ----------
    process : MarkovRewardProcess
        The N states in order, then whatever the convention adds behind them.

    Raises
    ------
    ValueError
        If a parameter is outside its range or a name is unknown.

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
        p = check.real("stay", self.stay)
        if not 0 <= p < 1:
            raise ValueError(f"stay must lie in [0, 1): the chain must move on, got {self.stay!r}")
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
        """The same values as powers of g, equation (2); shape (n_states,).

        V(s) is g to the number of states that still hold the agent, divided by
        gamma where the unit comes with the arrival; an absorbing state that
        pays on arrival has value 0.
        """
        gamma, p = check.discount(self.discount), float(self.stay)
        g = (1 - p) * gamma / (1 - p * gamma)  # (2)
        left = np.maximum(self.n_holding - np.arange(self.n_states), 0)
        if self.rules.reward_on == "occupancy":
            return np.power(g, left)
        # g^left / gamma without a division by gamma, which may be 0
        paid = (1 - p) / (1 - p * gamma) * np.power(g, np.maximum(left - 1, 0))
        return np.where(left == 0, 0.0, paid)

    def visit_probabilities(self) -> FloatArray:
        """p_s for the N states: 1 from the first state, s/N from a uniform start."""
        return self.process.visit_probabilities()[: self.n_states]
