r"""Private control: transition counts released once, then planning.

Neighbours replace one trajectory. Rewards are known; what is private is how states, actions and
next states followed each other. Everything after the release of noisy counts is post-processing,
so any number of rewards, discounts and thresholds may be tried on them.

**Counts at all steps together** (:func:`private_transition_counts`). A trajectory could pass one
transition very often, so what it counts is bounded: with c its own counts so far, the step (s, a)
is counted, whatever s' follows, if

    ||c||^2 + 2 max_{s'} c(s, a, s') + 1 <= R^2,                                            (1)

and left out otherwise. So ||c|| <= R at the end. Counts are not negative, <c, c'> >= 0, hence
||c - c'||^2 <= 2 R^2: noise of standard deviation sqrt(2) R z, attained by two trajectories that
pass one transition each, R times, and not the same (R an integer). As (1) is decided before s' is
seen, a counted step has s' distributed as P(. | s, a): the counts give *unbiased* transitions,
E[sum c(s, a, s') - P(s' | s, a) sum c(s, a, .)] = 0, which scaling long trajectories down
does not.

**Thresholded counts** (:func:`thresholded_model`): counts below a public threshold are taken as
0, what is left is normalised, and the rest is certainty-equivalent planning. A pair (s, a) of which
nothing is left is unknown; it pays the least reward for ever. Where it is public which transitions
are possible, the threshold is for the sum over them, and each keeps its positive part: the noise of
impossible ones is then no reason to drop rare ones.

**DP-APVI** (:func:`dp_apvi`; Qiao and Wang, NeurIPS 2023, arXiv:2206.00810, algorithm 1 with
equations (2) to (5)), for episodes of H steps and rewards in [0, 1]. Noise of standard deviation
sigma on the counts n_h(s, a) and n_h(s, a, s') of each step h separately; positive parts; then,
for each (h, s, a),

    n~(.) = argmin_x max_{s'} |x_{s'} - n'(s, a, s')|,  |sum x - n'(s, a)| <= E/2,  x >= 0,  (2)
    P~ = n~(s, a, .)/n~(s, a) if n~(s, a) > E, else 1/S,
    Gamma = C_1 sqrt(Var_P~(V) iota/(n~ - E)) + C_2 S H E iota/n~ if n~ > E, else C H,      (3)
    Q = min(r + P~ V - Gamma, H - h + 1)^+, V = max_a Q,

backwards from h = H, with E = 4 sqrt(H ln(4 H S^2 A/q)/rho), iota = ln(H S A/q), C_1 = sqrt 2,
C_2 = 16, C > 1, q the failure probability of the paper's bound. What differs from the paper:
sigma is calibrated exactly. Replacing a trajectory moves each of both families of counts by at
most sqrt(2 H) (attained), both by 2 sqrt(H), so sigma = 2 sqrt(H) z; the paper's
sigma^2 = 2 H/rho is the same with rho = mu^2/2 = 1/(2 z^2), the zCDP of mu-GDP, so
E = 2 sigma sqrt(2 ln(4 H S^2 A/q)). (2) has a solution in closed form: the n'(s, a, s') as
they are, or lowered together, at most to 0, or raised together, until the sum is admissible.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse

from dprl import _validation as check
from dprl._validation import FloatArray, IntArray
from dprl.mdp import MarkovDecisionProcess, policy_iteration
from dprl.privacy import Guarantee, analytic_gaussian_sigma
from dprl.privacy.guarantee import REPLACE_ONE_TRAJECTORY
from dprl.trajectories import Batch

_CHUNK = 1 << 23  # counts held at one time
_LARGEST_RADIUS = 2.0**31  # its square is a 64-bit integer
_MOST_COUNTS = 1 << 30  # in one table


def bounded_transition_counts(batch: Batch, n_actions: int, radius: float) -> IntArray:
    """Counts of (s, a, s') with what one trajectory counts bounded by (1). *Not private.*

    A record of a trajectory is counted with the state of the record after it; the last record
    only says where it arrived. Estimates are biased if arrivals in some states are not recorded
    (those of ``RecordedEpisodes.trajectories()`` in the states where episodes end are not).

    Parameters
    ----------
    batch : Batch
        With actions in 0 .. n_actions - 1.
    n_actions : int
        A >= 1.
    radius : float
        R >= 1, chosen without looking at the data. Steps beyond what (1) admits are lost, the last
        ones first: a trajectory of T different transitions needs R >= sqrt(T).

    Returns
    -------
    ndarray of int64, shape (S, A, S)

    Raises
    ------
    ValueError
        If the batch has no actions, or one outside the range, or R < 1 (nothing would count).

    Examples
    --------
    >>> loop = Batch.from_lists([[(0, 0, 0.0)] * 10], n_states=2)
    >>> bounded_transition_counts(loop, 1, radius=3).tolist()  # of 9 transitions
    [[[3, 0]], [[0, 0]]]
    """
    check.instance("batch", batch, Batch)
    a, s = check.whole("n_actions", n_actions), batch.n_states
    radius = check.positive("radius", radius)
    if not 1 <= radius <= _LARGEST_RADIUS:
        raise ValueError(f"radius must be at least 1 and at most 2^31, got {radius!r}")
    _few_counts(s * a * s)
    if batch.actions is None:
        raise ValueError("the batch needs actions")
    if (batch.actions < 0).any() or (batch.actions >= a).any():
        raise ValueError(f"actions must lie in 0 .. {a - 1}")
    pairs = batch.states * a + batch.actions
    begins = batch.ends - batch.lengths
    total, whole = _of_short_trajectories(batch, pairs, s * a * s, radius)
    order = np.argsort(-batch.lengths, kind="stable")
    order = order[~whole[order]]
    if not order.size:
        return total.reshape(s, a, s)
    size = max(_CHUNK // total.size, 1)
    for chunk in np.array_split(order, -(-order.size // size)):
        counts = np.zeros((chunk.size, total.size), dtype=np.int64)
        peaks = np.zeros((chunk.size, s * a), dtype=np.int64)  # max over s' of c(s, a, s')
        squares = np.zeros(chunk.size)
        live = chunk.size
        for t in range(int(batch.lengths[chunk[0]]) - 1):
            while batch.lengths[chunk[live - 1]] <= t + 1:
                live -= 1  # they are sorted, the longest first
            at = begins[chunk[:live]] + t
            pair = pairs[at]
            who = np.arange(live)
            fits = squares[:live] + 2 * peaks[who, pair] + 1 <= radius**2  # (1)
            who, pair, at = who[fits], pair[fits], at[fits]
            key = pair * s + batch.states[at + 1]
            squares[who] += 2 * counts[who, key] + 1
            counts[who, key] += 1
            peaks[who, pair] = np.maximum(peaks[who, pair], counts[who, key])
        total += counts.sum(axis=0)
    return total.reshape(s, a, s)


def _of_short_trajectories(
    batch: Batch, pairs: IntArray, size: int, radius: float
) -> tuple[IntArray, NDArray[np.bool_]]:
    """The counts of those trajectories of which (1) refuses no step, and which they are.

    Of the steps of one, with counts c in the end, (1) asks for at most ||c||^2 + 2 max c.
    """
    last = np.zeros(pairs.size, dtype=bool)
    last[batch.ends - 1] = True
    step = np.flatnonzero(~last)
    into = pairs[step] * batch.n_states + batch.states[step + 1]
    bounds = np.append(0, np.cumsum(batch.lengths - 1))
    moves = sparse.csr_array((np.ones_like(into), into, bounds), shape=(len(batch), size))
    moves.sum_duplicates()
    times, cell = moves.data, moves.indices
    owner = np.repeat(np.arange(len(batch)), np.diff(moves.indptr))
    squares = np.bincount(owner, weights=times.astype(float) ** 2, minlength=len(batch))
    most = np.zeros(len(batch), dtype=np.int64)
    np.maximum.at(most, owner, times)
    whole = squares + 2 * most <= radius**2
    total = np.bincount(cell, weights=times * whole[owner], minlength=size)
    return total.astype(np.int64), whole


def _few_counts(number: int) -> None:
    if number > _MOST_COUNTS:
        raise ValueError(f"a table of at most 2^30 counts can be made, got {number:.3g} of them")


@dataclass(frozen=True, eq=False)
class PrivateCounts:
    """A release of noisy transition counts.

    Attributes
    ----------
    counts : ndarray, shape (S, A, S)
        Noisy, so that they may be negative.
    sigma : float
        Standard deviation of the noise of each; public.
    guarantee : Guarantee
    """

    counts: FloatArray
    sigma: float
    guarantee: Guarantee


def private_transition_counts(
    batch: Batch,
    n_actions: int,
    *,
    radius: float,
    epsilon: float,
    delta: float,
    rng: np.random.Generator,
) -> PrivateCounts:
    """Release the counts of :func:`bounded_transition_counts` with Gaussian noise sqrt(2) R z.

    Neighbours replace one trajectory; the number of trajectories is public.

    Parameters
    ----------
    batch, n_actions, radius
        As in :func:`bounded_transition_counts`.
    epsilon, delta : float
        > 0, and in (0, 1).
    rng : numpy.random.Generator
        For study only: floating-point noise is not safe for a release.

    Examples
    --------
    >>> loop = Batch.from_lists([[(0, 0, 0.0)] * 10], n_states=2)
    >>> rng = np.random.default_rng(1)
    >>> release = private_transition_counts(loop, 1, radius=3, epsilon=1, delta=1e-6, rng=rng)
    >>> round(release.sigma, 3), release.counts.shape
    (17.924, (2, 1, 2))
    """
    counts = bounded_transition_counts(batch, n_actions, radius)
    promise = Guarantee(epsilon, delta, REPLACE_ONE_TRAJECTORY)
    radius = check.positive("radius", radius)
    sigma = math.sqrt(2) * radius * analytic_gaussian_sigma(1.0, epsilon, delta)
    noise = check.generator(rng).standard_normal(counts.shape)
    return PrivateCounts(check.frozen(counts + sigma * noise), sigma, promise)


def thresholded_model(
    released: PrivateCounts,
    reward: ArrayLike,
    discount: float,
    *,
    threshold: float = 3.0,
    possible: ArrayLike | None = None,
    terminal: ArrayLike | None = None,
) -> MarkovDecisionProcess:
    """The model that noisy counts above a threshold leave; post-processing.

    Parameters
    ----------
    released : PrivateCounts
        Noisy counts and their sigma.
    reward : array_like, shape (S, A) or (S, A, S)
        Known rewards.
    discount : float
        gamma in [0, 1).
    threshold : float
        In standard deviations of the noise, >= 0; smaller counts are taken as 0, or, where
        ``possible`` is given, pairs with a smaller sum as unknown.
    possible : array_like of bool, shape (S, A, S), optional
        Public knowledge of which transitions exist; others are taken as 0. Default: none.
    terminal : array_like of bool, shape (S,), optional
        Public knowledge of states that are never left and pay nothing. Default: none.

    Returns
    -------
    MarkovDecisionProcess
        Of S + 1 states. The last one follows a pair of which nothing is known, and from that pair
        on the least reward is paid for ever. Started in the first state.

    Examples
    --------
    >>> noisy = np.array([[[9.0, 1.0], [0.0, 8.0]]] * 2)
    >>> counts = PrivateCounts(noisy, 1.0, Guarantee(1, 0.1, REPLACE_ONE_TRAJECTORY))
    >>> thresholded_model(counts, [[0.1, 0.0], [0.0, 1.0]], 0.9).transition[0].tolist()
    [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0]]
    """
    check.instance("released", released, PrivateCounts)
    noisy = check.finite_array("counts", released.counts, ndim=3)
    s, a, _ = noisy.shape
    least = check.not_negative("threshold", threshold) * check.positive("sigma", released.sigma)
    if possible is None:
        kept = np.where(noisy > least, noisy, 0.0)
    else:
        exists = check.binary_array("possible", possible, ndim=3)
        if exists.shape != noisy.shape:
            raise ValueError(f"possible must have shape {noisy.shape}, got {exists.shape}")
        total = np.where(exists, noisy, 0.0).sum(axis=2, keepdims=True)
        enough = total > least * np.sqrt(exists.sum(axis=2, keepdims=True))
        kept = np.where(exists & enough, np.maximum(noisy, 0.0), 0.0)
    ends = np.zeros(s, dtype=bool)
    if terminal is not None:
        ends = check.binary_array("terminal", terminal, ndim=1)
        if ends.shape != (s,):
            raise ValueError(f"terminal must have {s} entries, got {ends.size}")
    kept[ends] = np.eye(s)[ends][:, None]
    known = kept.sum(axis=2) > 0
    p = np.zeros((s + 1, a, s + 1))  # one more state: what follows an unknown pair
    p[:s, :, :s] = kept / np.where(known, kept.sum(axis=2), 1.0)[:, :, None]
    p[:s, :, s][~known] = 1.0
    p[s, :, s] = 1.0
    r = check.finite_array("reward", reward)
    if r.shape not in ((s, a), (s, a, s)):
        raise ValueError(f"reward must have shape {(s, a)} or {(s, a, s)}, got {r.shape}")
    worst = float(r.min())
    paid = np.full((s + 1, a, s + 1), worst)
    paid[:s, :, :s] = r[:, :, None] if r.ndim == 2 else r
    paid[:s][ends] = 0.0
    return MarkovDecisionProcess(p, paid, discount, np.eye(s + 1)[0])


def thresholded_policy(
    released: PrivateCounts,
    reward: ArrayLike,
    discount: float,
    *,
    threshold: float = 3.0,
    possible: ArrayLike | None = None,
    terminal: ArrayLike | None = None,
) -> IntArray:
    """The best policy of :func:`thresholded_model`, parameters as there; an action per state.

    Examples
    --------
    >>> noisy = np.array([[[9.0, 1.0], [0.0, 8.0]]] * 2)
    >>> counts = PrivateCounts(noisy, 0.1, Guarantee(1, 0.1, REPLACE_ONE_TRAJECTORY))
    >>> thresholded_policy(counts, [[0.1, 0.0], [0.0, 1.0]], 0.9).tolist()
    [1, 1]
    """
    model = thresholded_model(
        released, reward, discount, threshold=threshold, possible=possible, terminal=terminal
    )
    first = np.zeros(model.n_states, dtype=np.int64)
    best: IntArray = policy_iteration(model, first).policies[-1][:-1]
    return best


# -- DP-APVI ------------------------------------------------------------------------------


@dataclass(frozen=True)
class Pessimism:
    """The constants of DP-APVI; those of the paper by default.

    Parameters
    ----------
    failure : float
        q in (0, 1).
    variance : float
        C_1 >= 0.
    noise : float
        C_2 >= 0. The paper's 16 is made for its proof.

    C is not among them: as r + P~ V <= H, every C >= 1 leaves Q = 0.
    """

    failure: float = 0.1
    variance: float = math.sqrt(2)
    noise: float = 16.0

    def __post_init__(self) -> None:
        check.open_unit("failure", self.failure)
        check.not_negative("variance", self.variance)
        check.not_negative("noise", self.noise)


@dataclass(frozen=True, eq=False)
class EpisodicPolicy:
    """What DP-APVI releases.

    Attributes
    ----------
    actions : ndarray of int, shape (H, S)
        The action at each step in each state; the first of equals.
    values : ndarray, shape (H, S)
        V of (3), pessimistic.
    sigma : float
        Standard deviation of the noise of each count; public.
    guarantee : Guarantee
    """

    actions: IntArray
    values: FloatArray
    sigma: float
    guarantee: Guarantee


def step_counts(batch: Batch, n_actions: int, horizon: int) -> IntArray:
    """Counts of (s, a, s') at each of the first ``horizon`` steps, (H, S, A, S). *Not private.*

    One trajectory adds at most one at each step. Parameters otherwise as in
    :func:`bounded_transition_counts`.

    >>> loop = Batch.from_lists([[(0, 0, 0.0)] * 3, [(0, 0, 0.0), (1, 0, 0.0)]], n_states=2)
    >>> step_counts(loop, 1, 3)[:, 0, 0].tolist()
    [[1, 1], [1, 0], [0, 0]]
    """
    check.instance("batch", batch, Batch)
    a, h, s = check.whole("n_actions", n_actions), check.whole("horizon", horizon), batch.n_states
    if batch.actions is None or (batch.actions < 0).any() or (batch.actions >= a).any():
        raise ValueError(f"the batch needs actions in 0 .. {a - 1}")
    _few_counts(h * s * a * s)
    step = np.arange(batch.states.size) - np.repeat(batch.ends - batch.lengths, batch.lengths)
    last = step == np.repeat(batch.lengths, batch.lengths) - 1
    at = np.flatnonzero(~last & (step < h))
    key = ((step[at] * s + batch.states[at]) * a + batch.actions[at]) * s + batch.states[at + 1]
    return np.bincount(key, minlength=h * s * a * s).reshape(h, s, a, s)


def dp_apvi(
    counts: ArrayLike,
    reward: ArrayLike,
    *,
    epsilon: float,
    delta: float,
    rng: np.random.Generator,
    pessimism: Pessimism | None = None,
) -> EpisodicPolicy:
    """DP-APVI (Qiao and Wang 2023, algorithm 1), calibrated exactly; see the module's head.

    Parameters
    ----------
    counts : array_like of int, shape (H, S, A, S)
        :func:`step_counts` of the data: each trajectory has added at most one at each step.
        Neighbours replace one trajectory.
    reward : array_like, shape (S, A) or (H, S, A)
        Known mean rewards in [0, 1].
    epsilon, delta : float
        The promise; > 0, and in (0, 1).
    rng : numpy.random.Generator
        For study only: floating-point noise is not safe for a release.
    pessimism : Pessimism, optional
        The constants; those of the paper by default. No privacy depends on them.

    Returns
    -------
    EpisodicPolicy

    Raises
    ------
    ValueError
        If the counts are not whole numbers >= 0, or the rewards are outside [0, 1].

    Examples
    --------
    >>> counts = np.full((3, 2, 2, 2), 10**9)
    >>> found = dp_apvi(
    ...     counts, [[0, 1], [1, 0]], epsilon=1, delta=1e-6, rng=np.random.default_rng(1)
    ... )
    >>> found.actions.tolist(), found.values[0].round(2).tolist()
    ([[1, 0], [1, 0], [1, 0]], [3.0, 3.0])
    """
    n = check.whole_array("counts", counts, least=0)
    if n.ndim != 4 or n.shape[1] != n.shape[3] or n.size == 0:
        raise ValueError(f"counts must have shape (H, S, A, S), got {n.shape}")
    horizon, s, a, _ = n.shape
    r = check.unit_array("reward", reward)
    if r.shape not in ((s, a), (horizon, s, a)):
        raise ValueError(f"reward must have shape {(s, a)} or {(horizon, s, a)}, got {r.shape}")
    r = np.broadcast_to(r, (horizon, s, a))
    constants = Pessimism() if pessimism is None else pessimism
    check.instance("pessimism", constants, Pessimism)
    promise = Guarantee(epsilon, delta, REPLACE_ONE_TRAJECTORY)
    draws = check.generator(rng)
    sigma = 2 * math.sqrt(horizon) * analytic_gaussian_sigma(1.0, epsilon, delta)
    pairs = np.maximum(n.sum(axis=3) + sigma * draws.standard_normal(n.shape[:3]), 0)
    triples = np.maximum(n + sigma * draws.standard_normal(n.shape), 0)
    q = constants.failure
    error = 2 * sigma * math.sqrt(2 * math.log(4 * horizon * s**2 * a / q))  # E
    iota = math.log(horizon * s * a / q)
    fitted = consistent_counts(triples, pairs, error / 2)
    total = fitted.sum(axis=3)
    known = total > error
    safe = np.where(known, total, 2 * error)
    p = np.where(known[..., None], fitted / safe[..., None], 1 / s)
    actions = np.zeros((horizon, s), dtype=np.int64)
    values, ahead = np.zeros((horizon, s)), np.zeros(s)
    for h in reversed(range(horizon)):
        mean = p[h] @ ahead
        variance = np.maximum(p[h] @ ahead**2 - mean**2, 0)
        penalty = constants.variance * np.sqrt(variance * iota / (safe[h] - error))
        penalty += constants.noise * s * horizon * error * iota / safe[h]
        value = np.where(known[h], r[h] + mean - penalty, 0.0)  # (3)
        value = np.clip(value, 0.0, horizon - h)
        actions[h], values[h] = value.argmax(axis=1), value.max(axis=1)
        ahead = values[h]
    return EpisodicPolicy(check.frozen(actions), check.frozen(values), sigma, promise)


def consistent_counts(triples: FloatArray, pairs: FloatArray, slack: float) -> FloatArray:
    """A solution of (2): counts of next states whose sum is within ``slack`` of the pair's count.

    Parameters
    ----------
    triples : ndarray, shape (..., S)
        n'(s, a, s') >= 0.
    pairs : ndarray, shape (...)
        n'(s, a) >= 0.
    slack : float
        E/2 >= 0.

    Examples
    --------
    >>> consistent_counts(np.array([[5.0, 1.0], [1.0, 1.0]]), np.array([2.0, 5.0]), 1.0).tolist()
    [[3.0, 0.0], [2.0, 2.0]]
    """
    x = check.array_from("triples", triples)
    n, room = check.array_from("pairs", pairs), check.not_negative("slack", slack)
    if x.ndim == 0 or x.shape[-1] == 0 or x.shape[:-1] != n.shape:
        raise ValueError(
            f"triples must have the shape of pairs and one axis more, got {x.shape} and {n.shape}"
        )
    size, total = x.shape[-1], x.sum(axis=-1)
    raised = np.maximum(n - room - total, 0) / size
    # lowered by the t with sum max(x - t, 0) = n + room: by sorting
    high = n + room
    falling = -np.sort(-x, axis=-1)
    shifts = (np.cumsum(falling, axis=-1) - high[..., None]) / np.arange(1, size + 1)
    lowered = np.where(total > high, np.max(np.maximum(shifts, 0), axis=-1), 0.0)
    out: FloatArray = np.maximum(x - lowered[..., None], 0) + raised[..., None]
    return out
