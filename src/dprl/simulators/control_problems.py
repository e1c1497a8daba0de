r"""Small control problems and their data: RiverSwim, and the chain with a choice of speed.

RiverSwim (Strehl and Littman 2008; here with the numbers of Osband, Russo and Van Roy 2013) is a
row of states. Swimming left always succeeds; swimming right moves one state on with probability
.35, stays with .6 and falls back with .05 (from the first state .6 and .4, in the last .6 to stay
and .4 to fall back). Left in the first state pays 5/1000, right in the last pays 1.

The chain with a choice of speed is the chain of the book in which each step is slow or fast: it
moves on with probability ``slow`` or ``fast``; a fast step costs ``cost``; the end pays 1.

The counts of n independent episodes are a Markov chain of their own: those in state s at step h
split binomially over the actions, and multinomially over the next states. So the counts of any
number of episodes are drawn exactly in O(horizon S A) draws (:func:`simulate_step_counts`).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from dprl import _validation as check
from dprl._validation import FloatArray, IntArray
from dprl.mdp import MarkovDecisionProcess
from dprl.trajectories import Batch


def river_swim(n_states: int = 6, discount: float = 0.95) -> MarkovDecisionProcess:
    """RiverSwim, started in the first state; action 0 is left, 1 is right.

    Parameters
    ----------
    n_states : int
        At least 3.
    discount : float
        In [0, 1).

    Examples
    --------
    >>> river_swim().transition[2, 1].tolist()
    [0.0, 0.05, 0.6, 0.35, 0.0, 0.0]
    """
    n = check.whole("n_states", n_states, minimum=3)
    p, r = np.zeros((n, 2, n)), np.zeros((n, 2))
    s = np.arange(n)
    p[s, 0, np.maximum(s - 1, 0)] = 1
    inner = s[1:-1]
    for step, probability in ((-1, 0.05), (0, 0.6), (1, 0.35)):
        p[inner, 1, inner + step] = probability
    p[0, 1, :2] = 0.4, 0.6
    p[-1, 1, -2:] = 0.4, 0.6
    r[0, 0], r[-1, 1] = 5 / 1000, 1
    return MarkovDecisionProcess(p, r, discount, np.eye(n)[0])


def speed_chain(
    n_states: int = 40,
    *,
    slow: float = 0.5,
    fast: float = 0.9,
    cost: float = 0.005,
    discount: float = 0.99,
) -> MarkovDecisionProcess:
    """The chain with a choice of speed; N states and the end; action 0 is slow, 1 is fast.

    Parameters
    ----------
    n_states : int
        N >= 1, without the absorbing end, which is state N and pays nothing more.
    slow, fast : float
        Probabilities to move on, in (0, 1].
    cost : float
        Of a fast step, >= 0.
    discount : float
        In [0, 1).

    Examples
    --------
    >>> from dprl.mdp import policy_iteration
    >>> process = speed_chain()
    >>> policy = policy_iteration(process, [0] * 41).policies[-1]
    >>> policy[:40].tolist().index(1)  # the first state in which speed is worth its cost
    14
    """
    n = check.whole("n_states", n_states)
    price = check.not_negative("cost", cost)
    p, r = np.zeros((n + 1, 2, n + 1)), np.zeros((n + 1, 2, n + 1))
    p[n, :, n] = 1
    s = np.arange(n)
    moves = check.fraction("slow", slow), check.fraction("fast", fast)
    for action, move in enumerate(moves):
        p[s, action, s], p[s, action, s + 1] = 1 - move, move
    r[n - 1, :, n] = 1
    r[:n, 1, :] -= price
    return MarkovDecisionProcess(p, r, discount, np.eye(n + 1)[0])


def simulate_control(
    process: MarkovDecisionProcess,
    policy: ArrayLike,
    n_trajectories: int,
    steps: int,
    rng: np.random.Generator,
) -> Batch:
    """Trajectories of the given number of steps, with actions, and the state reached at the end.

    Parameters
    ----------
    process : MarkovDecisionProcess
    policy : array_like
        One action per state, or pi(a | s).
    n_trajectories, steps : int
        >= 1. A trajectory is cut off after its first visit of a state that it can never leave
        under any action.
    rng : numpy.random.Generator

    Returns
    -------
    Batch
        One record more than steps for each trajectory: the last one says where it arrived; its
        action is drawn too, its reward is 0.

    Examples
    --------
    >>> batch = simulate_control(river_swim(), [1] * 6, 3, 10, np.random.default_rng(1))
    >>> batch.lengths.tolist(), int(batch.states[0])
    ([11, 11, 11], 0)
    """
    check.instance("process", process, MarkovDecisionProcess)
    pi = process.action_probabilities(policy)
    m, length = check.whole("n_trajectories", n_trajectories), check.whole("steps", steps)
    draws = check.generator(rng)
    choose, (following, move) = _cumulative(pi), _successors(process.transition)
    every = np.arange(process.n_states)
    ends = (process.transition[every, :, every] == 1).all(axis=1)
    states = np.empty((length + 1, m), dtype=np.int64)
    actions = np.empty((length + 1, m), dtype=np.int64)
    rewards = np.zeros((length + 1, m))
    start = _cumulative(process.start)
    states[0] = np.searchsorted(start, draws.random(m), side="right")
    for t in range(length + 1):
        s = states[t]
        a = actions[t] = (draws.random(m)[:, None] >= choose[s]).sum(axis=1)
        if t < length:
            k = (draws.random(m)[:, None] >= move[s, a]).sum(axis=1)
            states[t + 1] = following[s, a, k]
            rewards[t] = process.reward[s, a, states[t + 1]]
    states, actions, rewards = states.T.copy(), actions.T.copy(), rewards.T.copy()
    ended = ends[states]
    lengths = np.where(ended.any(axis=1), ended.argmax(axis=1), length) + 1
    kept = np.arange(length + 1) < lengths[:, None]
    rewards[np.arange(m), lengths - 1] = 0.0
    return Batch(states[kept], rewards[kept], lengths, process.n_states, actions[kept])


def simulate_step_counts(
    process: MarkovDecisionProcess,
    policy: ArrayLike,
    n_trajectories: int,
    horizon: int,
    rng: np.random.Generator,
) -> IntArray:
    """Counts of (s, a, s') at each of ``horizon`` steps, summed over the trajectories.

    The distribution of the sums over :func:`simulate_control`, absorbing states included, without
    the trajectories: any number of them costs the same.

    Returns
    -------
    ndarray of int64, shape (horizon, S, A, S)

    Examples
    --------
    >>> counts = simulate_step_counts(river_swim(), [1] * 6, 10**9, 5, np.random.default_rng(1))
    >>> counts.sum(axis=(1, 2, 3)).tolist() == [10**9] * 5
    True
    """
    check.instance("process", process, MarkovDecisionProcess)
    pi = process.action_probabilities(policy)
    m, length = check.whole("n_trajectories", n_trajectories), check.whole("horizon", horizon)
    draws = check.generator(rng)
    out = np.zeros((length, process.n_states, process.n_actions, process.n_states), dtype=np.int64)
    present = draws.multinomial(m, process.start / process.start.sum())
    for h in range(length):
        acting = draws.multinomial(present, _normal(pi))
        out[h] = draws.multinomial(acting, _normal(process.transition))
        present = out[h].sum(axis=(0, 1))
    return out


def episodic_values(
    process: MarkovDecisionProcess, actions: ArrayLike | None, horizon: int
) -> FloatArray:
    """Expected sum of the rewards of ``horizon`` steps, undiscounted, by backward induction.

    Parameters
    ----------
    process : MarkovDecisionProcess
        Its discount plays no part.
    actions : array_like of int, shape (horizon, S), or None
        The action at each step in each state; None: the best, which gives the optimal values.
    horizon : int
        >= 1.

    Returns
    -------
    ndarray, shape (S,)
        From each first state.

    Raises
    ------
    ValueError
        If the actions have another shape, or one does not exist.

    Examples
    --------
    >>> episodic_values(river_swim(), None, 20)[0].round(4)
    np.float64(3.3973)
    """
    check.instance("process", process, MarkovDecisionProcess)
    length, every = check.whole("horizon", horizon), np.arange(process.n_states)
    chosen = None if actions is None else check.whole_array("actions", actions, least=0).astype(int)
    if chosen is not None and (
        chosen.shape != (length, every.size) or chosen.max() >= process.n_actions
    ):
        raise ValueError(
            f"actions must be of 0 .. {process.n_actions - 1}, of shape {(length, every.size)}, "
            f"got shape {chosen.shape}"
        )
    ahead = np.zeros(every.size)
    for h in reversed(range(length)):
        value = process.expected_reward + process.transition @ ahead
        ahead = value.max(axis=1) if chosen is None else value[every, chosen[h]]
    return ahead


def episodic_policy(process: MarkovDecisionProcess, horizon: int) -> IntArray:
    """The actions of the most expected reward in ``horizon`` steps, undiscounted; shape (H, S).

    At each step the first of equals; by backward induction, parameters as in
    :func:`episodic_values`.

    Examples
    --------
    >>> episodic_policy(river_swim(3), 5)[:, 0].tolist()  # too late to swim
    [1, 1, 1, 0, 0]
    """
    check.instance("process", process, MarkovDecisionProcess)
    length = check.whole("horizon", horizon)
    out = np.zeros((length, process.n_states), dtype=np.int64)
    ahead = np.zeros(process.n_states)
    for h in reversed(range(length)):
        value = process.expected_reward + process.transition @ ahead
        out[h], ahead = value.argmax(axis=1), value.max(axis=1)
    return out


def _normal(p: FloatArray) -> FloatArray:
    """Probabilities that sum to one as closely as floating point lets them."""
    return np.asarray(p / p.sum(axis=-1, keepdims=True))


def _cumulative(p: FloatArray) -> FloatArray:
    """Cumulative probabilities without the last one, so that rounding cannot lead past it."""
    cumulative: FloatArray = np.cumsum(p, axis=-1)[..., :-1]
    last = p.shape[-1] - 1 - (p[..., ::-1] > 0).argmax(axis=-1)
    beyond = np.arange(p.shape[-1] - 1) >= last[..., None]
    return np.asarray(np.where(beyond, np.inf, cumulative))


def _successors(p: FloatArray) -> tuple[IntArray, FloatArray]:
    """The possible ones in each row, in order, and their cumulative probabilities less the last."""
    most = int((p > 0).sum(axis=-1).max())
    successor = np.argsort(p <= 0, axis=-1, kind="stable")[..., :most]
    last = np.full((*p.shape[:-1], 1), np.inf)
    cumulative = np.concatenate([_cumulative(p), last], axis=-1)
    possible = np.take_along_axis(p, successor, axis=-1) > 0
    found = np.where(possible, np.take_along_axis(cumulative, successor, axis=-1), np.inf)
    return successor, np.asarray(found[..., :-1])
