r"""Linear features: the matrix Phi of shape (N, d), one row phi_s per state.

Values are approximated by Phi theta (thesis, section 2.1.1). Two norms of Phi
enter the noise of the private algorithms: its operator norm ||Phi|| (DP-LSL)
and that of the pseudo-inverse of Gamma^{1/2} Phi (DP-LSW), Gamma = diag(w).

States that are vectors of real numbers get :class:`FourierBasis`.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import combinations
from math import comb
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike

from dprl import _validation as check
from dprl._validation import FloatArray, IntArray

REMEMBERED = 2**17  # most numbers of a matrix whose norm or inverse is remembered


def tabular(n_states: int) -> FloatArray:
    """Features of states that share nothing: the identity, shape (N, N).

    >>> tabular(2).tolist()
    [[1.0, 0.0], [0.0, 1.0]]
    """
    return np.eye(check.whole("n_states", n_states))


def aggregation(n_states: int, size: int = 2, *, orthonormal: bool = False) -> FloatArray:
    """Features of adjacent states that share one value, ``size`` at a time: (N, ceil(N / size)).

    The entries are 0 and 1, or scaled so that the columns have length one. Both
    span the same functions; the private algorithms tell them apart, because
    they add noise to theta and not to Phi theta.

    >>> aggregation(4).tolist()
    [[1.0, 0.0], [1.0, 0.0], [0.0, 1.0], [0.0, 1.0]]
    """
    n = check.whole("n_states", n_states)
    group = np.arange(n) // check.whole("size", size)
    phi: FloatArray = (group[:, None] == np.arange(group[-1] + 1)).astype(np.float64)
    return phi / np.linalg.norm(phi, axis=0) if orthonormal else phi


def feature_matrix(features: ArrayLike, n_states: int | None = None) -> FloatArray:
    """Check a feature matrix.

    Parameters
    ----------
    features : array_like, shape (N, d)
        Finite, not all zero; any rank.
    n_states : int, optional
        Required number of rows.

    Raises
    ------
    ValueError
        If the shape does not fit, an entry is not finite, or all are zero.
    """
    phi = check.finite_array("features", features, ndim=2)
    if 0 in phi.shape:
        raise ValueError(f"features must have states and columns, got shape {phi.shape}")
    if n_states is not None and phi.shape[0] != n_states:
        raise ValueError(f"features must have one row per state, {n_states}, got {phi.shape[0]}")
    if not phi.any():
        raise ValueError("features must not all be zero")
    return phi


def rank(features: ArrayLike) -> int:
    """Numerical rank of Phi, with numpy's cut-off; depends on Phi alone.

    >>> rank(aggregation(40))
    20
    """
    return int(np.linalg.matrix_rank(feature_matrix(features)))


def operator_norm(features: ArrayLike) -> float:
    """The largest singular value ||Phi|| of a feature matrix.

    >>> round(operator_norm(aggregation(40)), 6)
    1.414214
    """
    return _matrix_norm(feature_matrix(features))


def _matrix_norm(matrix: FloatArray) -> float:
    if matrix.size > REMEMBERED:
        return float(np.linalg.norm(matrix, 2))
    return _norm(matrix.tobytes(), matrix.shape)


@lru_cache(maxsize=64)  # asked for again and again by every bound on DP-LSL
def _norm(entries: bytes, shape: tuple[int, ...]) -> float:
    return float(np.linalg.norm(np.frombuffer(entries).reshape(shape), 2))


def weighted_pseudo_inverse(
    features: ArrayLike, weights: ArrayLike, *, allow_rank_deficient: bool = False
) -> FloatArray:
    """(Gamma^{1/2} Phi)^+, shape (d, N), Gamma = diag(weights).

    Parameters
    ----------
    features : array_like, shape (N, d)
        Phi.
    weights : array_like, shape (N,)
        w >= 0, not all zero.
    allow_rank_deficient : bool
        Whether Gamma^{1/2} Phi may have a rank below d. The pseudo-inverse then
        picks the solution of least norm: still a fixed linear map of the data.
        The cut-off of small singular values depends on Phi and w alone.

    Raises
    ------
    ValueError
        If the rank is below d and this was not allowed.
    """
    return _checked_inverse(features, weights, allow_rank_deficient).copy()


def pseudo_inverse_norm(
    features: ArrayLike, weights: ArrayLike, *, allow_rank_deficient: bool = False
) -> float:
    """||(Gamma^{1/2} Phi)^+||, one over the smallest non-zero singular value.

    >>> round(pseudo_inverse_norm(aggregation(40), [1.0] * 40), 6)
    0.707107
    """
    return _matrix_norm(_checked_inverse(features, weights, allow_rank_deficient))


def _checked_inverse(
    features: ArrayLike, weights: ArrayLike, allow_rank_deficient: bool
) -> FloatArray:
    phi = feature_matrix(features)
    w = check.weight_vector("weights", weights, phi.shape[0])
    found = _remembered_inverse if phi.size <= REMEMBERED else _inverse
    inverse, r = found(phi.tobytes(), w.tobytes(), phi.shape, not allow_rank_deficient)
    if r < phi.shape[1] and not allow_rank_deficient:
        raise ValueError(
            f"Gamma^(1/2) Phi has rank {r} below d = {phi.shape[1]}: the solution is not unique. "
            "Drop columns, weight more states, or allow_rank_deficient=True for the least norm"
        )
    return inverse


def _inverse(
    features: bytes, weights: bytes, shape: tuple[int, ...], ranked: bool
) -> tuple[FloatArray, int]:
    """(Gamma^{1/2} Phi)^+, and the rank if it is asked for."""
    scaled = np.sqrt(np.frombuffer(weights))[:, None] * np.frombuffer(features).reshape(shape)
    rank = int(np.linalg.matrix_rank(scaled)) if ranked else 0
    # the cut-off of matrix_rank: a direction that does not count as rank is not inverted
    cut_off = max(shape) * np.finfo(np.float64).eps
    return np.asarray(np.linalg.pinv(scaled, rcond=cut_off), dtype=np.float64), rank


# Phi and w are public and chosen once: a sweep over batches asks for the same ones every time
_remembered_inverse = lru_cache(maxsize=16)(_inverse)


#: Which frequencies a Fourier basis takes: all, or those that move one coordinate, or two.
Coupling = Literal["full", "pairs", "independent"]
_COUPLED: dict[str, int | None] = {"full": None, "pairs": 2, "independent": 1}


@dataclass(frozen=True, eq=False)
class FourierBasis:
    r"""Cosines on a box: phi_c(s) = cos(pi c . x), x the state scaled to [0, 1]^d.

    The frequencies c are vectors of d whole numbers in 0 .. order. "full" takes
    all (order + 1)^d of them. That is 36 for mountain car at order five and
    46,656 for the six numbers of an HIV patient, so there is a choice: "pairs"
    takes those with at most two entries other than zero, "independent" those
    with at most one, 1 + d * order in number.

    Parameters
    ----------
    order : int
        Largest frequency, at least 1.
    low, high : array_like, shape (d,)
        The box, low < high in each coordinate. It must not be read from private
        data. A state outside it is moved to its edge, because beyond the edge a
        cosine would take a state for its mirror image.
    coupling : {"full", "pairs", "independent"}
        Which frequencies to take.

    Raises
    ------
    TypeError, ValueError
        If the order is not a whole number >= 1, the box is empty in a
        coordinate, the coupling is unknown, or there would be more than 100,000
        features.

    Notes
    -----
    Every feature lies in [-1, 1], so ||phi(s)|| <= sqrt(n): a public bound that
    a privacy proof may use.

    Source: Konidaris, Osentoski and Thomas (2011), equation 4.

    Examples
    --------
    >>> basis = FourierBasis(5, [-1.2, -0.07], [0.6, 0.07])
    >>> basis.n_features, basis([-1.2, -0.07]).tolist() == [1.0] * 36
    (36, True)
    >>> FourierBasis(5, [0] * 6, [1] * 6, coupling="independent").n_features
    31
    """

    order: int
    low: FloatArray
    high: FloatArray
    coupling: Coupling = "full"

    def __post_init__(self) -> None:
        check.whole("order", self.order)
        low = check.finite_array("low", self.low, ndim=1)
        high = check.finite_array("high", self.high, ndim=1)
        if low.shape != high.shape or low.size == 0:
            raise ValueError(
                f"low and high must be one vector each, of one length >= 1, got "
                f"shapes {low.shape} and {high.shape}"
            )
        if (low >= high).any():
            raise ValueError(f"low must be below high in each coordinate, got {low} and {high}")
        if self.coupling not in _COUPLED:
            raise ValueError(f"coupling must be one of {list(_COUPLED)}, got {self.coupling!r}")
        object.__setattr__(self, "low", check.frozen(low.copy()))
        object.__setattr__(self, "high", check.frozen(high.copy()))
        moved = _COUPLED[self.coupling] or low.size
        count = sum(comb(low.size, k) * self.order**k for k in range(min(moved, low.size) + 1))
        if count > 100_000:
            raise ValueError(
                f"{count} features: too many. Take a smaller order, or coupling='independent'"
            )

    @cached_property
    def frequencies(self) -> IntArray:
        """The vectors c, shape (n, d); the first is zero, the constant feature."""
        d, moved = self.low.size, _COUPLED[self.coupling] or self.low.size
        if moved >= d:
            c = np.indices((self.order + 1,) * d).reshape(d, -1).T
        else:
            rows = [np.zeros((1, d), dtype=np.int64)]
            for k in range(1, moved + 1):
                values = 1 + np.indices((self.order,) * k).reshape(k, -1).T
                for coordinates in combinations(range(d), k):
                    block = np.zeros((values.shape[0], d), dtype=np.int64)
                    block[:, coordinates] = values
                    rows.append(block)
            c = np.concatenate(rows)
        return np.asarray(check.frozen(c.astype(np.int64)))

    @property
    def n_features(self) -> int:
        """Number of features n."""
        return int(self.frequencies.shape[0])

    @cached_property
    def step_scale(self) -> FloatArray:
        """Factor of the step size of each feature, 1 / ||c||, and 1 for the constant; shape (n,).

        Source: Konidaris, Osentoski and Thomas (2011), "Scaling gradient descent parameters".
        """
        norms = np.linalg.norm(self.frequencies, axis=1)
        return np.asarray(check.frozen(1 / np.where(norms > 0, norms, 1.0)))

    def __call__(self, states: ArrayLike) -> FloatArray:
        """Features of states, shape (..., d) to (..., n); O(n d) for each state."""
        s = check.finite_array("states", states)
        if s.ndim == 0 or s.shape[-1] != self.low.size:
            raise ValueError(
                f"states must have {self.low.size} coordinates in the last axis, got {s.shape}"
            )
        scaled = np.clip((s - self.low) / (self.high - self.low), 0, 1)
        # cos and sin of pi k x by the addition theorem, then of the sum over the coordinates:
        # two cosines for each coordinate in place of one for each feature
        turn = np.exp(1j * np.pi * scaled.reshape(-1, self.low.size).T)
        powers = np.ones((self.order + 1, *turn.shape), dtype=np.complex128)
        for k in range(self.order):
            powers[k + 1] = powers[k] * turn
        product = powers[self.frequencies[:, 0], 0]
        for j in range(1, self.low.size):
            product *= powers[self.frequencies[:, j], j]
        return np.ascontiguousarray(product.real.T).reshape(*s.shape[:-1], -1)
