r"""The chain with two actions: the on- and off-policy data of the paper.

In each of the chain's states an agent stays or moves one to the right, and the step into the
absorbing end pays 1 (Xie et al., section 7). Choosing to stay is taken as an action, so that a
policy is its probability to stay: p_b for the behaviour, p for the target, and the ratios are

    rho = p / p_b for a step that stays,   (1 - p) / (1 - p_b) for one that moves.   (1)

With p = p_b the data are on-policy. The chain never turns back, so a trajectory is its first state
and how often it stayed in each later one: 2 n bytes. The absorbing end has features 0, so A_i is
bidiagonal.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import DTypeLike, NDArray

from dprl import _validation as check
from dprl._validation import FloatArray
from dprl.mdp import BOOK_CONVENTION, Chain, Start
from dprl.off_policy.population import exact_saddle_point
from dprl.off_policy.saddle_point import (
    BidiagonalStatistics,
    SaddlePoint,
    Weighting,
    trajectory_weights,
)

_CHUNK = 1 << 15  # trajectories held in wide integers at one time


@dataclass(frozen=True, eq=False)
class TwoPolicyChain:
    """The chain under two policies, one that acts and one to be evaluated.

    ``behaviour`` and ``target`` are its two :class:`dprl.mdp.Chain`.

    Parameters
    ----------
    n_states, discount, start
        N, gamma and the first state, as in :class:`dprl.mdp.Chain`.
    behaviour_stay, target_stay : float
        p_b in (0, 1) and p in [0, 1): probabilities to stay.
    convention : str
        A key of :data:`dprl.mdp.CHAIN_CONVENTIONS`; it settles what the paper leaves open. With
        "outside-arrival" the absorbing state is behind the N, and all trajectories start before it.
        With "inside-arrival" it is the last of the N, and one trajectory in N of a uniform start
        has no steps. 40 states of which one absorbs and none starts there: N = 39, "outside". The
        "occupancy" conventions pay one step later, for being at the end.

    Examples
    --------
    >>> chain = TwoPolicyChain(target_stay=0.8)
    >>> np.round(chain.ratios(), 12).tolist()
    [1.6, 0.4]
    >>> chain.values().round(4)[[0, -1]].tolist()
    [0.1407, 0.9615]
    """

    n_states: int = 40
    behaviour_stay: float = 0.5
    target_stay: float = 0.5
    discount: float = 0.99
    start: Start = "uniform"
    convention: str = BOOK_CONVENTION
    behaviour: Chain = field(init=False, repr=False)
    target: Chain = field(init=False, repr=False)

    def __post_init__(self) -> None:
        check.open_unit("behaviour_stay", self.behaviour_stay)
        p = check.below_one("target_stay", self.target_stay)
        for name, stay in (("behaviour", self.behaviour_stay), ("target", p)):
            chain = Chain(self.n_states, stay, self.discount, self.start, self.convention)
            object.__setattr__(self, name, chain)

    @property
    def n_features(self) -> int:
        """n, the states that are not terminal: one feature for each."""
        return int((~self.behaviour.process.terminal).sum())

    def ratios(self) -> tuple[float, float]:
        """rho of a step that stays and of one that moves, equation (1)."""
        return (
            self.target_stay / self.behaviour_stay,
            (1 - self.target_stay) / (1 - self.behaviour_stay),
        )

    def values(self) -> FloatArray:
        """V of the target policy at the n states, shape (n,)."""
        process = self.target.process
        return process.values()[~process.terminal]

    def exact(self, weighting: Weighting) -> SaddlePoint:
        """A, b and C without simulation; see :mod:`dprl.off_policy.population`."""
        return exact_saddle_point(self.behaviour, self.target, weighting=weighting)


@dataclass(frozen=True, eq=False)
class ChainData:
    """m trajectories of the behaviour policy, as counts.

    Attributes
    ----------
    chain : TwoPolicyChain
    start : ndarray of int16, shape (m,)
        First state, 0 .. n - 1, or n where it is the absorbing one.
    stays : ndarray of int16, shape (m, n)
        How often the agent stayed in each state; 0 in states before the first.
    """

    chain: TwoPolicyChain
    start: NDArray[np.int16]
    stays: NDArray[np.int16]

    def __post_init__(self) -> None:
        check.instance("chain", self.chain, TwoPolicyChain)
        start = check.unmasked("start", self.start)
        stays = check.unmasked("stays", self.stays)
        n = self.chain.n_features
        if start.ndim != 1 or start.size == 0 or stays.shape != (start.size, n):
            raise ValueError(
                f"start must have shape (m,) and stays (m, {n}), got {start.shape} "
                f"and {stays.shape}"
            )
        if start.dtype.kind not in "iu" or stays.dtype.kind not in "iu":
            raise ValueError(f"start and stays must be integers, got {start.dtype}, {stays.dtype}")
        if start.min() < 0 or start.max() > n or stays.min() < 0:
            raise ValueError(f"start must lie in 0 .. {n} and stays must not be negative")
        if stays[np.arange(n) < start[:, None]].any():
            raise ValueError("stays must be 0 in the states before the first one")
        limit = np.iinfo(np.int16).max
        if stays.max() > limit:
            raise ValueError(f"stays must be at most {limit}, got {stays.max()}")
        object.__setattr__(self, "start", start.astype(np.int16, copy=False))
        object.__setattr__(self, "stays", stays.astype(np.int16, copy=False))

    @property
    def n_trajectories(self) -> int:
        """m."""
        return int(self.start.size)

    def lengths(self) -> NDArray[np.int64]:
        """Steps L of each trajectory, shape (m,): its stays and one move per state."""
        moves = self.stays.shape[1] - self.start.astype(np.int64)
        return np.asarray(self.stays.sum(axis=1, dtype=np.int64) + moves)

    def statistics(
        self, weighting: Weighting, dtype: DTypeLike = np.float64
    ) -> BidiagonalStatistics:
        """A_i, b_i and C_i of Xie et al., equation (2.2), in O(m n), in float64 or float32.

        With k stays in state s, its diagonal entry of A_i is v_L (k rho_stay (1 - gamma) +
        rho_move), the one above it -v_L gamma rho_move, and its entry of C_i is v_L (k + 1); v_L
        as in :func:`dprl.off_policy.saddle_point.trajectory_weights`.
        """
        m, n = self.stays.shape
        if np.dtype(dtype) not in (np.dtype(np.float32), np.dtype(np.float64)):
            raise ValueError(f"dtype must be float32 or float64, got {np.dtype(dtype)}")
        weight = trajectory_weights(self.lengths(), weighting)
        gamma, (stay, move) = self.chain.discount, self.chain.ratios()
        # The last state of the "occupancy" conventions has one step and no choice.
        last_move = move if self.chain.behaviour.rules.reward_on == "arrival" else 1.0
        moves = np.full(n, move)
        moves[-1] = last_move
        diagonal, c = np.empty((m, n), dtype), np.empty((m, n), dtype)
        above, b = np.empty((m, n - 1), dtype), np.zeros((m, n), dtype)
        for begin in range(0, m, _CHUNK):
            part = slice(begin, begin + _CHUNK)
            k = self.stays[part].astype(np.float64)
            w = weight[part, None] * (np.arange(n) >= self.start[part, None])
            diagonal[part] = w * (k * (stay * (1 - gamma)) + moves)
            above[part] = (-gamma * move) * w[:, :-1]
            b[part, -1] = last_move * w[:, -1]
            c[part] = w * (k + 1)
        return BidiagonalStatistics(diagonal, above, b, c)


def simulate_behaviour(
    chain: TwoPolicyChain, n_trajectories: int, rng: np.random.Generator
) -> ChainData:
    """m trajectories of the behaviour policy.

    The number of stays in a state is geometric, P(k) = (1 - p_b) p_b^k, and independent of all
    else; one that does not fit 16 bits, as for p_b very near 1, is a ValueError.

    Examples
    --------
    >>> data = simulate_behaviour(TwoPolicyChain(3), 2, np.random.default_rng(0))
    >>> data.start.tolist(), data.stays.shape
    ([1, 2], (2, 3))
    """
    check.instance("chain", chain, TwoPolicyChain)
    m = check.whole("n_trajectories", n_trajectories)
    check.generator(rng)
    n, holding = chain.n_features, chain.behaviour.n_holding
    first = np.zeros(m, np.int16)
    if chain.start == "uniform":
        first = rng.integers(chain.n_states, size=m, dtype=np.int16)
    stays = np.zeros((m, n), np.int16)
    for begin in range(0, m, _CHUNK):
        part = slice(begin, begin + _CHUNK)
        visited = np.arange(holding) >= first[part, None]
        drawn = rng.geometric(1 - chain.behaviour_stay, size=visited.shape) - 1
        if drawn.max() > np.iinfo(np.int16).max:
            raise ValueError(f"behaviour_stay {chain.behaviour_stay} makes too many stays to count")
        stays[part, :holding] = drawn * visited
    return ChainData(chain, first, stays)
