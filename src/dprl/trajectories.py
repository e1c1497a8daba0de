r"""Batches of trajectories, and what first-visit Monte Carlo reads from them.

A trajectory is x = ((s_1, a_1, r_1), ..., (s_T, a_T, r_T)). If x visits s, the
first-visit return is (thesis, section 3.2.1)

    F_{x,s} = sum_{t >= i} gamma^{t - i} r_t,   i = first time x is in s,   (1)

and 0 if x does not visit s. A batch X of m trajectories is summarised by the
visit counts |X_s| and the average returns (thesis, equation 3.2)

    F_{X,s} = (1 / |X_s|) sum_{x in X_s} F_{x,s}     (0 if |X_s| = 0).       (2)

Nothing here is private. A privacy proof needs every single return in a public
range, whoever the record belongs to, so :meth:`FirstVisitReturns.statistics`
clips each F_{x,s} *before* it averages, and the result remembers the range.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dprl import _passes
from dprl import _validation as check
from dprl._validation import BoolArray, FloatArray, IntArray
from dprl.mdp import Chain, MarkovRewardProcess, reward_process

FIRST_DRAWN = 1_000  # trajectories of the first part of simulate_visit_statistics
KEPT_STEPS = 2**20  # steps of each further part


@dataclass(frozen=True, eq=False)
class Batch:
    """m trajectories of unequal length, stored end to end.

    ValueError if the batch or a trajectory is empty, shapes do not fit, a state is outside the
    space or a reward is not finite.

    Parameters
    ----------
    states : array_like of int, shape (total,)
        Visited states, trajectory after trajectory, each in 0 .. n_states - 1.
    rewards : array_like of float, shape (total,)
        Reward of each step; finite.
    lengths : array_like of int, shape (m,)
        Steps of each trajectory, >= 1; they sum to total.
    n_states : int
        Size of the state space.
    actions : array_like of int, shape (total,), optional
        Action of each step; absent for a Markov reward process.
    """

    states: IntArray
    rewards: FloatArray
    lengths: IntArray
    n_states: int
    actions: IntArray | None = None

    def __post_init__(self) -> None:
        n = check.whole("n_states", self.n_states)
        lengths = check.integers("lengths", self.lengths, ndim=1)
        if lengths.size == 0:
            raise ValueError("a batch needs at least one trajectory, got none")
        if (lengths < 1).any():
            i = int(np.flatnonzero(lengths < 1)[0])
            raise ValueError(f"trajectory {i} is empty; each needs at least one step")
        states = check.integers("states", self.states, ndim=1)
        if states.size != lengths.sum():
            raise ValueError(
                f"states holds {states.size} steps, but lengths sum to {lengths.sum()}"
            )
        if (states < 0).any() or (states >= n).any():
            bad = int(states[(states < 0) | (states >= n)][0])
            raise ValueError(f"state {bad} is outside the space 0 .. {n - 1}")
        rewards = check.finite_array("rewards", self.rewards, ndim=1)
        if rewards.shape != states.shape:
            raise ValueError(
                f"rewards must have one entry per step, {states.size}, got {rewards.size}"
            )
        if self.actions is not None:
            actions = check.integers("actions", self.actions, ndim=1)
            if actions.shape != states.shape:
                raise ValueError(
                    f"actions must have one entry per step, {states.size}, got {actions.size}"
                )
            object.__setattr__(self, "actions", check.frozen(actions))
        object.__setattr__(self, "states", check.frozen(states))
        object.__setattr__(self, "rewards", check.frozen(rewards.copy()))
        object.__setattr__(self, "lengths", check.frozen(lengths))
        object.__setattr__(self, "n_states", n)

    @classmethod
    def from_lists(
        cls, trajectories: Iterable[Sequence[tuple[int, int, float]]], n_states: int
    ) -> Batch:
        """Build a batch from lists of (state, action, reward).

        ValueError as from the constructor; also if a step is not a triple.

        >>> batch = Batch.from_lists([[(0, 0, 0.0), (1, 0, 1.0)], [(1, 0, 2.0)]], n_states=3)
        >>> len(batch), batch.lengths.tolist()
        (2, [2, 1])
        """
        try:
            rows = [list(x) for x in trajectories]
        except TypeError:
            raise ValueError(
                "trajectories must be an iterable of lists of (state, action, reward)"
            ) from None
        for i, row in enumerate(rows):
            for t, step in enumerate(row):
                if not isinstance(step, Sequence) or len(step) != 3:
                    raise ValueError(
                        f"step {t} of trajectory {i} must be (state, action, reward), got {step!r}"
                    )
        flat = [step for row in rows for step in row]
        return cls(
            states=check.integers("states", [step[0] for step in flat], ndim=1),
            rewards=check.finite_array("rewards", [step[2] for step in flat]),
            lengths=check.integers("lengths", [len(row) for row in rows], ndim=1),
            n_states=n_states,
            actions=check.integers("actions", [step[1] for step in flat], ndim=1),
        )

    @classmethod
    def _of_own(
        cls, states: IntArray, rewards: FloatArray, lengths: IntArray, n_states: int
    ) -> Batch:
        """A batch of arrays that this module has made and nobody else holds: no copy, no check."""
        batch = object.__new__(cls)
        for name, value in (("states", states), ("rewards", rewards), ("lengths", lengths)):
            object.__setattr__(batch, name, check.frozen(value))
        object.__setattr__(batch, "n_states", n_states)
        object.__setattr__(batch, "actions", None)
        return batch

    def __len__(self) -> int:
        """Number of trajectories m."""
        return int(self.lengths.size)

    @property
    def ends(self) -> IntArray:
        """Position behind the last step of each trajectory, shape (m,)."""
        return np.asarray(np.cumsum(self.lengths), dtype=np.int64)

    @property
    def trajectory_ids(self) -> IntArray:
        """Trajectory to which each step belongs, shape (total,)."""
        return np.repeat(np.arange(len(self)), self.lengths)

    def replace(self, index: int, trajectory: Sequence[tuple[int, int, float]]) -> Batch:
        """The neighbouring batch in which one trajectory is replaced.

        A batch without actions stays without them.
        """
        if not 0 <= check.whole("index", index, minimum=0) < len(self):
            raise ValueError(f"index {index} is outside the batch 0 .. {len(self) - 1}")
        new = Batch.from_lists([trajectory], self.n_states)
        stop = int(self.ends[index])
        begin = stop - int(self.lengths[index])

        def spliced(old: NDArray[np.generic], inserted: NDArray[np.generic]) -> NDArray[np.generic]:
            return np.concatenate([old[:begin], inserted, old[stop:]])

        lengths = self.lengths.copy()
        lengths[index] = len(trajectory)
        return Batch(
            states=spliced(self.states, new.states),  # type: ignore[arg-type]
            rewards=spliced(self.rewards, new.rewards),  # type: ignore[arg-type]
            lengths=lengths,
            n_states=self.n_states,
            actions=None
            if self.actions is None or new.actions is None
            else spliced(self.actions, new.actions),  # type: ignore[arg-type]
        )


@dataclass(frozen=True, eq=False)
class FirstVisitReturns:
    """First-visit returns of a batch: one number for each trajectory and state, equation (1).

    ValueError if the shapes differ, the batch is empty, a return is not finite, or a state that is
    not visited has a return.

    Attributes
    ----------
    returns : ndarray, shape (m, N)
        F_{x,s}; 0 where x does not visit s.
    visited : ndarray of bool, shape (m, N)
        Whether x visits s.
    """

    returns: FloatArray
    visited: BoolArray

    def __post_init__(self) -> None:
        returns = check.finite_array("returns", self.returns, ndim=2)
        visited = check.unmasked("visited", self.visited)
        if visited.dtype != bool or visited.shape != returns.shape:
            raise ValueError(
                f"visited must be booleans of shape {returns.shape}, "
                f"got {visited.dtype} {visited.shape}"
            )
        if returns.size == 0:
            raise ValueError("a batch needs at least one trajectory and one state")
        if ((returns != 0) & ~visited).any():
            raise ValueError("returns must be 0 where a state is not visited")
        object.__setattr__(self, "returns", check.frozen(returns.view()))
        object.__setattr__(self, "visited", check.frozen(visited.view()))

    def __len__(self) -> int:
        """Number of trajectories m."""
        return int(self.returns.shape[0])

    @property
    def visit_counts(self) -> IntArray:
        """|X_s|, the signature of the batch; shape (N,)."""
        return np.asarray(self.visited.sum(axis=0, dtype=np.int64))

    def clipped(self, lower: float, upper: float) -> FirstVisitReturns:
        """Each visited return clipped to the public range [lower, upper]."""
        low, high = value_range(lower, upper)
        kept = np.where(self.visited, np.clip(self.returns, low, high), 0.0)
        return FirstVisitReturns(kept, self.visited)

    def statistics(self, bounds: tuple[float, float] | None = None) -> VisitStatistics:
        """Counts and average returns, equation (2).

        Every single return is clipped to the public range bounds = (lower, upper) before averaging.
        Without it nothing is clipped, and no private algorithm accepts the result.
        """
        returns = self.returns
        if bounds is not None:
            returns = np.clip(returns, *value_range(*_pair(bounds)))
            returns[~self.visited] = 0.0
        counts = self.visit_counts
        means = returns.sum(axis=0) / np.maximum(counts, 1)
        return VisitStatistics(counts, means, len(self), bounds)


@dataclass(frozen=True, eq=False)
class VisitStatistics:
    """Visit counts and average returns of a batch, or of many: all that least squares reads.

    ValueError if shapes differ, a count exceeds m, or a mean lies outside the bounds.

    Attributes
    ----------
    counts : ndarray, shape (..., N)
        Visit counts |X_s|, between 0 and n_trajectories.
    mean_returns : ndarray, shape (..., N)
        F_X, equation (2); 0 where the count is 0.
    n_trajectories : int
        m, the same for all batches. Public.
    bounds : (float, float) or None
        The public range to which every single return was clipped.
    """

    counts: IntArray
    mean_returns: FloatArray
    n_trajectories: int
    bounds: tuple[float, float] | None = None

    def __post_init__(self) -> None:
        m = check.whole("n_trajectories", self.n_trajectories)
        counts = check.integers("counts", self.counts)
        means = check.finite_array("mean_returns", self.mean_returns)
        if counts.ndim == 0 or counts.size == 0 or means.shape != counts.shape:
            raise ValueError(
                "counts and mean_returns must have the same shape (..., N), "
                f"got {counts.shape} and {means.shape}"
            )
        if (counts < 0).any() or (counts > m).any():
            raise ValueError(f"counts must lie in 0 .. {m}, the number of trajectories")
        if means[counts == 0].any():
            raise ValueError("mean_returns must be 0 where a state was never visited")
        if self.bounds is not None:
            low, high = value_range(*_pair(self.bounds))
            # sums of m returns err by m roundings
            slack = max(1e-9, m * np.finfo(float).eps) * max(abs(low), abs(high))
            seen = means[counts > 0]
            if seen.size and (seen.min() < low - slack or seen.max() > high + slack):
                raise ValueError(
                    f"mean_returns leave the declared range [{low}, {high}]: "
                    "the returns were not clipped to it"
                )
            object.__setattr__(self, "bounds", (low, high))
        # copies: a caller who keeps the array cannot change what was checked
        object.__setattr__(self, "counts", check.frozen(counts.copy()))
        object.__setattr__(self, "mean_returns", check.frozen(means.copy()))

    @property
    def n_states(self) -> int:
        """N, the number of states."""
        return int(self.counts.shape[-1])

    def merged(self, other: VisitStatistics) -> VisitStatistics:
        """The statistics of both batches together; ranges must agree."""
        check.instance("other", other, VisitStatistics)
        if self.bounds != other.bounds or self.counts.shape != other.counts.shape:
            raise ValueError("only batches of the same shape and the same clipping range merge")
        counts = self.counts + other.counts
        sums = self.counts * self.mean_returns + other.counts * other.mean_returns
        return VisitStatistics(
            counts,
            sums / np.maximum(counts, 1),
            self.n_trajectories + other.n_trajectories,
            self.bounds,
        )


def discounted_returns(batch: Batch, discount: float) -> FloatArray:
    """G_t = r_t + gamma G_{t+1} for every step of every trajectory, shape (total,).

    O(total), without a loop over trajectories or steps. A return beyond the largest number of
    the machine is that number.

    >>> batch = Batch.from_lists([[(0, 0, 0.0), (1, 0, 1.0)], [(1, 0, 2.0)]], n_states=2)
    >>> discounted_returns(batch, 0.5).tolist()
    [0.5, 1.0, 2.0]
    """
    check.instance("batch", batch, Batch)
    gamma = check.below_one("discount", discount)
    return _passes.discounted(batch.rewards, batch.lengths, gamma)


def first_visit_returns(batch: Batch, discount: float) -> FirstVisitReturns:
    """The first-visit return of every trajectory of a batch in every state, equation (1).

    No loop over trajectories; O(total + m N) time, and m N numbers of memory. Where counts and
    averages are enough, :func:`visit_statistics` needs neither.

    >>> batch = Batch.from_lists([[(0, 0, 0.0), (1, 0, 1.0), (0, 0, 8.0)]], n_states=3)
    >>> first_visit_returns(batch, 0.5).returns.tolist()
    [[2.5, 5.0, 0.0]]
    """
    found = _first_visits(batch, discount)
    n, trajectory = batch.n_states, batch.trajectory_ids
    returns = np.zeros(len(batch) * n)
    visited = np.zeros(returns.size, dtype=bool)
    for begin, steps, values in found:
        at = steps + begin
        cells = trajectory.take(at) * n + batch.states.take(at)
        returns[cells], visited[cells] = values, True
    return FirstVisitReturns(returns.reshape(-1, n), visited.reshape(-1, n))


def visit_statistics(
    batch: Batch, discount: float, bounds: tuple[float, float] | None = None
) -> VisitStatistics:
    """Counts and average returns of a batch, equation (2), without the table of all returns.

    The same as ``first_visit_returns(batch, discount).statistics(bounds)`` but for rounding, in
    O(total) time and O(N) memory beside the batch.

    Parameters
    ----------
    batch : Batch
        m trajectories.
    discount : float
        gamma in [0, 1).
    bounds : (float, float), optional
        Public range to which every single return is clipped before averaging.

    Examples
    --------
    >>> batch = Batch.from_lists([[(0, 0, 0.0), (1, 0, 3.0)], [(1, 0, 0.5)]], n_states=3)
    >>> data = visit_statistics(batch, 0.5, bounds=(0, 1))
    >>> data.counts.tolist(), data.mean_returns.tolist()
    ([1, 2, 0], [1.0, 0.75, 0.0])
    """
    check.instance("batch", batch, Batch)
    low, high = (-np.inf, np.inf) if bounds is None else value_range(*_pair(bounds))
    found = _first_visits(batch, discount)
    n = batch.n_states
    counts, sums = np.zeros(n, dtype=np.int64), np.zeros(n)
    waiting: list[tuple[IntArray, FloatArray]] = []
    size = 0

    def add() -> None:
        states, returns = waiting[0]
        if len(waiting) > 1:
            states = np.concatenate([part[0] for part in waiting])
            returns = np.concatenate([part[1] for part in waiting])
        counts[:] += np.bincount(states, minlength=n)
        sums[:] += np.bincount(states, weights=returns, minlength=n)

    for begin, steps, returns in found:
        np.clip(returns, low, high, out=returns)
        waiting.append((batch.states[begin:].take(steps), returns))
        size += steps.size
        if size >= n:  # adding costs no more than finding
            add()
            waiting, size = [], 0
    if waiting:
        add()
    return VisitStatistics(counts, sums / np.maximum(counts, 1), len(batch), bounds)


def simulate(
    process: MarkovRewardProcess | Chain,
    n_trajectories: int,
    rng: np.random.Generator,
    *,
    record_terminal: bool = False,
    max_steps: int = 100_000,
) -> Batch:
    """Draw trajectories of any finite Markov reward process until they end.

    All trajectories advance together, one vector operation per time step. The
    cost is O(total steps x log of the largest number of successors of a state).

    Parameters
    ----------
    process : MarkovRewardProcess or Chain
        Every state must reach a terminal one, else ValueError.
    n_trajectories : int
        m >= 1.
    rng : numpy.random.Generator
    record_terminal : bool
        Whether the terminal state is recorded as a last step with reward 0, so that it counts as
        visited. If not, a trajectory that starts in it would be empty: ValueError.
    max_steps : int
        A trajectory that has not ended by then is a RuntimeError, never cut: a cut return would
        be biased.
    """
    m = check.whole("n_trajectories", n_trajectories)
    limit = check.whole("max_steps", max_steps)
    check.generator(rng)
    process = reward_process("process", process)
    process.require_termination()
    if not record_terminal and process.start[process.terminal].any():
        raise ValueError(
            "a trajectory may start in a terminal state and would be empty; "
            "pass record_terminal=True"
        )
    state = rng.choice(process.n_states, size=m, p=process.start)
    edges = process.edges
    moving = np.flatnonzero(~process.terminal[state])
    lengths = np.zeros(m, dtype=np.int64)
    steps, lengths[moving], unfinished = _passes.walk(
        edges.first,
        edges.successor,
        edges.cumulative,
        process.terminal[edges.successor],
        state[moving],
        limit,
        rng,
    )
    if unfinished:
        raise RuntimeError(
            f"{unfinished} trajectories have not ended after max_steps = {limit} steps"
        )
    states, rewards = edges.source.take(steps), edges.reward.take(steps)
    if record_terminal:
        last = state
        last[moving] = edges.successor.take(steps.take(np.cumsum(lengths[moving]) - 1))
        ends = np.cumsum(lengths)
        states, rewards = np.insert(states, ends, last), np.insert(rewards, ends, 0.0)
        lengths += 1
    return Batch._of_own(states, rewards, lengths, process.n_states)


def simulate_visit_statistics(
    process: MarkovRewardProcess | Chain,
    n_trajectories: int,
    rng: np.random.Generator,
    *,
    bounds: tuple[float, float] | None = None,
    record_terminal: bool = False,
    max_steps: int = 100_000,
) -> VisitStatistics:
    """Counts and average returns of trajectories that are drawn, read and forgotten.

    Of any number of trajectories in bounded memory: they are drawn with :func:`simulate`, some
    at a time, so that about a million steps are kept at once (more only if one trajectory is
    longer). Up to 1,000 trajectories are those that ``simulate`` draws from the same generator;
    more have the same distribution.

    Parameters
    ----------
    process, n_trajectories, rng, record_terminal, max_steps
        As in :func:`simulate`, with its errors.
    bounds : (float, float), optional
        Public range to which every single return is clipped before averaging.

    Examples
    --------
    >>> process = MarkovRewardProcess([[0.5, 0.5], [0, 1]], [[0, 1], [0, 0]], 0.9, [1, 0])
    >>> data = simulate_visit_statistics(process, 5, np.random.default_rng(1), bounds=(0, 1))
    >>> data.counts.tolist(), data.mean_returns.round(2).tolist()
    ([5, 0], [0.92, 0.0])
    """
    m = check.whole("n_trajectories", n_trajectories)
    discount = reward_process("process", process).discount
    found: VisitStatistics | None = None
    done, steps, size = 0, 0, FIRST_DRAWN
    while done < m:
        size = min(size, m - done)
        batch = simulate(process, size, rng, record_terminal=record_terminal, max_steps=max_steps)
        part = visit_statistics(batch, discount, bounds)
        found = part if found is None else found.merged(part)
        done, steps = done + size, steps + batch.states.size
        size = max(KEPT_STEPS * done // steps, 1)  # about KEPT_STEPS at their mean length
    assert found is not None
    return found


def chain_first_visit_returns(
    chain: Chain, n_trajectories: int, rng: np.random.Generator
) -> FirstVisitReturns:
    """First-visit returns of simulated trajectories of the chain, without the trajectories.

    The chain never turns back, so a trajectory is its start and one geometric
    holding time H_j per state it passes; the time from the first visit of s to
    the end is H_s + H_{s+1} + ..., and the return is a power of gamma. Same
    distribution as :func:`simulate` with :func:`first_visit_returns`.

    Arrays of shape (m, N), O(m N) time and memory.
    """
    m = check.whole("n_trajectories", n_trajectories)
    check.generator(rng)
    check.instance("chain", chain, Chain)
    n = chain.n_states
    start = np.zeros(m, np.int64) if chain.start == "first" else rng.integers(n, size=m)
    remaining = rng.geometric(1 - chain.stay, size=(n, m))  # state by state: long vectors
    if chain.rules.absorbing_inside:
        remaining[-1] = 0
    for s in range(n - 2, -1, -1):
        remaining[s] += remaining[s + 1]
    returns = np.take(_chain_payoffs(chain, int(remaining[0].max())), remaining)
    visited = np.arange(n)[:, None] >= start
    returns *= visited
    return FirstVisitReturns(returns.T, visited.T)


def chain_visit_statistics(
    chain: Chain,
    n_trajectories: int,
    rng: np.random.Generator,
    *,
    bounds: tuple[float, float] | None = None,
    n_batches: int | None = None,
) -> VisitStatistics:
    r"""Counts and average returns of a batch of chain trajectories, whatever its size.

    Arrays of shape (N,), or (n_batches, N) for independent batches drawn at once.

    Runs the batch backwards from its end and keeps only how many trajectories
    are in each state. All m are in the last state one step before the end. A
    geometric holding time is the same read backwards, so at each backward step
    Binomial(n_s, 1 - p) of the n_s trajectories in s leave it; one that leaves
    s at backward time t had the first-visit return payoff(t) in s. It started
    in s with probability start_s / sum_{j <= s} start_j and is then complete;
    otherwise it moves to s - 1. The counts and sums so obtained have exactly
    the joint distribution of those of m simulated trajectories.

    Parameters
    ----------
    chain : Chain
        The chain.
    n_trajectories : int
        m >= 1; time and memory do not depend on it but for the logarithm: the
        loop runs to the longest trajectory, O(log m) steps of O(N) draws.
    rng : numpy.random.Generator
    bounds : (float, float), optional
        Public range to which every single return is clipped.
    n_batches : int, optional
    """
    m = check.whole("n_trajectories", n_trajectories)
    runs = 1 if n_batches is None else check.whole("n_batches", n_batches)
    check.generator(rng)
    check.instance("chain", chain, Chain)
    low, high = (-np.inf, np.inf) if bounds is None else value_range(*_pair(bounds))
    n, holding = chain.n_states, chain.n_holding
    start = chain.start_distribution
    counts = np.zeros((runs, n), np.int64)
    sums = np.zeros((runs, n))
    present = np.zeros((runs, holding), np.int64)
    arriving = np.full(runs, m)
    if chain.rules.absorbing_inside:  # every trajectory visits it; some begin there
        counts[:, -1] = m
        sums[:, -1] = m * np.clip(_chain_payoffs(chain, 0)[0], low, high)
        arriving = m - rng.binomial(m, start[-1], size=runs)
    present[:, -1] = arriving
    reached = np.cumsum(start[:holding])
    begins_here = np.divide(start[:holding], reached, out=np.zeros(holding), where=reached > 0)
    t = 0
    while present.any():
        t += 1
        leaving = rng.binomial(present, 1 - chain.stay)
        payoff = np.clip(_chain_payoffs(chain, t)[t], low, high)
        counts[:, :holding] += leaving
        sums[:, :holding] += payoff * leaving
        moving_on = leaving - rng.binomial(leaving, begins_here)
        present -= leaving
        present[:, :-1] += moving_on[:, 1:]
    means = sums / np.maximum(counts, 1)
    if n_batches is None:
        counts, means = counts[0], means[0]
    return VisitStatistics(counts, means, m, bounds)


def value_range(lower: float, upper: float) -> tuple[float, float]:
    """A public range of returns, lower < upper, checked.

    ValueError if a bound is not finite or lower >= upper.
    """
    low, high = check.real("lower", lower), check.real("upper", upper)
    if low >= high:
        raise ValueError(f"the range of returns needs lower < upper, got [{low}, {high}]")
    return low, high


def _pair(bounds: tuple[float, float]) -> tuple[float, float]:
    if not isinstance(bounds, Sequence) or isinstance(bounds, str) or len(bounds) != 2:
        raise ValueError(f"bounds must be a pair (lower, upper), got {bounds!r}")
    return bounds[0], bounds[1]


def _chain_payoffs(chain: Chain, longest: int) -> FloatArray:
    """Return of a first visit t = 0 .. longest steps before the absorbing state is reached.

    t = 0 is the absorbing state itself, where it is one of the N.
    """
    steps = np.arange(longest + 1)
    if chain.rules.reward_on == "occupancy":
        return np.power(float(chain.discount), steps)
    return np.where(steps == 0, 0.0, np.power(float(chain.discount), np.maximum(steps - 1, 0)))


def _first_visits(batch: Batch, discount: float) -> _passes.FirstVisits:
    check.instance("batch", batch, Batch)
    gamma = check.below_one("discount", discount)
    return _passes.first_visits(batch.states, batch.rewards, batch.lengths, batch.n_states, gamma)
