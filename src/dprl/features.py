r"""Linear features: the matrix Phi of shape (N, d), one row phi_s per state.

Values are approximated by Phi theta (thesis, section 2.1.1). Two norms of Phi
enter the noise of the private algorithms: its operator norm ||Phi|| (DP-LSL)
and that of the pseudo-inverse of Gamma^{1/2} Phi (DP-LSW), Gamma = diag(w).
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from numpy.typing import ArrayLike

from dprl import _validation as check
from dprl._validation import FloatArray


def tabular(n_states: int) -> FloatArray:
    """One feature per state: the identity, shape (N, N).

    >>> tabular(2).tolist()
    [[1.0, 0.0], [0.0, 1.0]]
    """
    return np.eye(check.whole("n_states", n_states))


def aggregation(n_states: int, size: int = 2, *, orthonormal: bool = False) -> FloatArray:
    """Adjacent states share one value, groups of ``size``; shape (N, ceil(N / size)).

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
    """||Phi||, the largest singular value.

    >>> round(operator_norm(aggregation(40)), 6)
    1.414214
    """
    phi = feature_matrix(features)
    return _norm(phi.tobytes(), phi.shape)


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
    phi = feature_matrix(features)
    w = check.weight_vector("weights", weights, phi.shape[0])
    scaled = np.sqrt(w)[:, None] * phi
    if not allow_rank_deficient and (r := int(np.linalg.matrix_rank(scaled))) < phi.shape[1]:
        raise ValueError(
            f"Gamma^(1/2) Phi has rank {r} below d = {phi.shape[1]}: the solution is not unique. "
            "Drop columns, weight more states, or allow_rank_deficient=True for the least norm"
        )
    # the cut-off of matrix_rank: a direction that does not count as rank is not inverted
    cut_off = max(scaled.shape) * np.finfo(np.float64).eps
    return np.asarray(np.linalg.pinv(scaled, rcond=cut_off), dtype=np.float64)


def pseudo_inverse_norm(
    features: ArrayLike, weights: ArrayLike, *, allow_rank_deficient: bool = False
) -> float:
    """||(Gamma^{1/2} Phi)^+||, one over the smallest non-zero singular value.

    >>> round(pseudo_inverse_norm(aggregation(40), [1.0] * 40), 6)
    0.707107
    """
    inverse = weighted_pseudo_inverse(features, weights, allow_rank_deficient=allow_rank_deficient)
    return float(np.linalg.norm(inverse, 2))
