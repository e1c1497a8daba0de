r"""Privacy of DP-LSW: how far one trajectory moves the averages (thesis, section 3.4.2).

X and X' are neighbours: m trajectories, of which one, x, is replaced by another, x'.
|X_s| counts the trajectories that visit state s, F_{X,s} averages their first-visit
returns (0 if there are none), w >= 0 are public weights, Gamma = diag(w), and
||u||_Gamma = sqrt(sum_s w_s u_s^2).

========  ==========================================================================
3.34      theta moves by at most ||(Gamma^{1/2} Phi)^+|| times the averages' distance
3.4       distance of the averages, from the counts of the m - 1 common trajectories
3.5       the same from the counts of X alone: sqrt(phi(v))
3.35      the noise that condition (a) of Lemma 3.1 then asks for
3.6       the smallest beta-smooth upper bound of a function of the counts
3.7       the largest phi within distance k, in closed form
========  ==========================================================================

The printed bounds hold for returns in [0, F]. For returns in [f_min, f_max] their
constant is D = max(f_max - f_min, |f_min|, |f_max|), see
:func:`~dprl.private_evaluation.common.return_spread`; for |F| <= f_max it is twice the
printed one. Nothing here is private: counts and returns are data. Where arguments have the
shape (..., N), results have the shape (...).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike
from scipy.ndimage import maximum_filter

from dprl import _validation as check
from dprl._validation import FloatArray
from dprl.features import pseudo_inverse_norm
from dprl.privacy import smooth_upper_bound
from dprl.private_evaluation import lsw_local_bound, return_spread
from dprl.private_evaluation.common import public_range
from dprl.trajectories import FirstVisitReturns


def equation_3_34(
    mean_returns: ArrayLike,
    other_mean_returns: ArrayLike,
    features: ArrayLike,
    weights: ArrayLike,
    *,
    allow_rank_deficient: bool = False,
) -> FloatArray:
    """Bound on ||theta_X - theta_X'|| from the averages: thesis, equation 3.34.

    ||(Gamma^{1/2} Phi)^+|| ||F_X - F_X'||_Gamma, because the LSW solution is a fixed
    linear map of Gamma^{1/2} F_X. It stays one if Gamma^{1/2} Phi has not full rank and the
    solution of least norm is taken.

    F_X and F_X' have shape (..., N), features Phi (N, d), weights w >= 0 (N,); allow_rank_deficient
    says whether Gamma^{1/2} Phi may have a rank below d.

    >>> float(equation_3_34([1.0, 0.0], [0.0, 0.0], [[2.0], [0.0]], [1.0, 1.0]))
    0.5
    """
    first = check.finite_array("mean_returns", mean_returns)
    other = check.finite_array("other_mean_returns", other_mean_returns)
    if first.ndim == 0 or first.shape[-1:] != other.shape[-1:]:
        raise ValueError(
            "mean_returns and other_mean_returns must have one entry per state, "
            f"got shapes {first.shape} and {other.shape}"
        )
    w = check.weight_vector("weights", weights, first.shape[-1])
    norm = pseudo_inverse_norm(features, w, allow_rank_deficient=allow_rank_deficient)
    return np.asarray(norm * np.sqrt((w * (first - other) ** 2).sum(axis=-1)))  # (3.34)


def lemma_3_4_printed(
    other_counts: ArrayLike, touched: ArrayLike, weights: ArrayLike, *, f_max: float
) -> FloatArray:
    """Bound on ||F_X - F_X'||_Gamma as printed: thesis, Lemma 3.4.

    F sqrt( sum_{s in x or x'} w_s / (|X°_s| + 1)^2 ), X° the m - 1 common trajectories.
    It holds for returns in [0, F]. Section 2.1 of the thesis allows rewards of both signs,
    for which it is violated by a factor of up to 2.

    Parameters
    ----------
    other_counts : array_like, shape (..., N)
        |X°_s|, how many of the common trajectories visit s.
    touched : array_like of bool, shape (..., N)
        Whether x or x' visits s.
    weights : array_like, shape (N,)
        w >= 0.
    f_max : float
        F > 0, largest size of a return; R_max / (1 - gamma) in the thesis.

    Examples
    --------
    >>> float(lemma_3_4_printed([3, 5], [True, False], [1.0, 1.0], f_max=1.0))
    0.25
    """
    return check.positive("f_max", f_max) * _touched_norm(other_counts, touched, weights)


def lemma_3_4_corrected(
    other_counts: ArrayLike,
    touched: ArrayLike,
    weights: ArrayLike,
    *,
    f_max: float,
    f_min: float = 0.0,
) -> FloatArray:
    """Lemma 3.4 with the constant D of the range [f_min, f_max] in place of F.

    Proof for one state, A/n the average of the n = |X°_s| common returns. If x and x' visit,
    the averages differ by |F_x - F_x'|/(n + 1); if only x does and n >= 1, by
    |F_x - A/n|/(n + 1); if only x does and n = 0, by |F_x|. Each is at most D/(n + 1).
    Attained by returns at the ends of the range.

    Parameters as :func:`lemma_3_4_printed`; ``f_min`` < ``f_max`` is the lower end of the
    returns. With 0 it is the printed bound.

    >>> float(lemma_3_4_corrected([3, 5], [True, False], [1, 1], f_max=1.0, f_min=-1.0))
    0.5
    """
    step, _ = return_spread(*public_range(f_max, f_min))
    return step * _touched_norm(other_counts, touched, weights)


def corollary_3_5_printed(counts: ArrayLike, weights: ArrayLike, *, f_max: float) -> FloatArray:
    """Bound on ||F_X - F_X'||_Gamma over all neighbours as printed: thesis, Corollary 3.5.

    F sqrt(phi(v)), phi(v) = sum_s w_s / max(|X_s|, 1)^2, equation 3.36. Holds for returns
    in [0, F]. ``counts`` are |X_s|, the signature of X; other parameters as
    :func:`lemma_3_4_printed`.

    >>> float(corollary_3_5_printed([4, 0], [16.0, 8.0], f_max=1.0))
    3.0
    """
    return check.positive("f_max", f_max) * np.sqrt(lsw_local_bound(counts, weights))


def corollary_3_5_corrected(
    counts: ArrayLike, weights: ArrayLike, *, f_max: float, f_min: float = 0.0
) -> FloatArray:
    """Corollary 3.5 with the constant D of the range [f_min, f_max] in place of F.

    Parameters as :func:`corollary_3_5_printed`, and ``f_min`` < ``f_max``.

    >>> float(corollary_3_5_corrected([4, 0], [16.0, 8.0], f_max=1.0, f_min=-1.0))
    6.0
    """
    step, _ = return_spread(*public_range(f_max, f_min))
    return step * np.sqrt(lsw_local_bound(counts, weights))


def equation_3_35_printed(
    counts: ArrayLike,
    features: ArrayLike,
    weights: ArrayLike,
    *,
    f_max: float,
    alpha: float,
    allow_rank_deficient: bool = False,
) -> FloatArray:
    """Least noise that meets condition (a) of Lemma 3.1 as printed: thesis, equation 3.35.

    alpha F ||(Gamma^{1/2} Phi)^+|| sqrt(phi(v)). Not smooth: on its own it is no calibration.

    Parameters
    ----------
    counts, weights, f_max
        As in :func:`corollary_3_5_printed`.
    features, allow_rank_deficient
        As in :func:`equation_3_34`.
    alpha : float
        Noise per unit of sensitivity, > 0; :class:`dprl.privacy.GaussianSmoothing`.

    Examples
    --------
    >>> float(equation_3_35_printed([4], [[1.0]], [1.0], f_max=1.0, alpha=8.0))
    2.0
    """
    norm = pseudo_inverse_norm(features, weights, allow_rank_deficient=allow_rank_deficient)
    a = check.positive("alpha", alpha)
    return a * norm * corollary_3_5_printed(counts, weights, f_max=f_max)


def equation_3_35_corrected(
    counts: ArrayLike,
    features: ArrayLike,
    weights: ArrayLike,
    *,
    f_max: float,
    alpha: float,
    f_min: float = 0.0,
    allow_rank_deficient: bool = False,
) -> FloatArray:
    """Equation 3.35 with the constant D of the range [f_min, f_max] in place of F.

    Parameters as :func:`equation_3_35_printed`, and ``f_min`` < ``f_max``.

    >>> float(equation_3_35_corrected([4], [[1.0]], [1.0], f_max=1.0, f_min=-1.0, alpha=8.0))
    4.0
    """
    norm = pseudo_inverse_norm(features, weights, allow_rank_deficient=allow_rank_deficient)
    a = check.positive("alpha", alpha)
    return a * norm * corollary_3_5_corrected(counts, weights, f_max=f_max, f_min=f_min)


def lemma_3_6(values: ArrayLike, beta: float) -> FloatArray:
    """Smallest beta-smooth upper bound of a positive function on a grid: thesis, Lemma 3.6.

    psi(v) = sup_{k >= 0} e^{-k beta} max_{||v - v'||_inf <= k} phi(v'), equation 3.37. The
    term k = 0 is needed: without it psi is not an upper bound.

    This is the definition, evaluated on all signatures at once, for checking faster forms:
    O(K M) filter steps and as many comparisons for M grid points and a largest side K.

    Parameters
    ----------
    values : array_like, shape (n_1, ..., n_N)
        phi(v) > 0 for v in {0 .. n_1 - 1} x ... x {0 .. n_N - 1}; neighbours differ by at
        most one in each coordinate. The result has the same shape.
    beta : float
        > 0.

    Examples
    --------
    >>> lemma_3_6([1.0, 1.0, 1e-6], beta=0.5).round(4).tolist()
    [1.0, 1.0, 0.6065]
    """
    phi = check.finite_array("values", values)
    b = check.positive("beta", beta)
    if phi.ndim == 0 or phi.size == 0:
        raise ValueError(f"values must be a grid of signatures, got shape {phi.shape}")
    if (phi <= 0).any():
        raise ValueError(f"values must be positive, got minimum {phi.min()}")
    last = max(phi.shape) - 1
    within = np.stack(
        [maximum_filter(phi, size=2 * k + 1, mode="nearest") for k in range(last + 1)]
    )
    flat = within.reshape(last + 1, -1)
    psi = [smooth_upper_bound(column.__getitem__, b, last)[0] for column in flat.T]
    return np.array(psi).reshape(phi.shape)


def lemma_3_7(counts: ArrayLike, weights: ArrayLike, distance: ArrayLike) -> FloatArray:
    """Largest phi within distance k >= 0 of v: thesis, Lemma 3.7.

    sum_s w_s / max(v_s - k, 1)^2, which is sum_s w_s from k = max_s v_s - 1 on. The function
    of DP-LSW itself, :func:`~dprl.private_evaluation.lsw_local_bound`. ``distance`` has the
    shape (...).

    >>> lemma_3_7([[5, 2], [5, 2]], [1.0, 3.0], [3, 4]).tolist()
    [3.25, 4.0]
    """
    return lsw_local_bound(counts, weights, distance)


def averages_local_sensitivity(
    data: FirstVisitReturns, weights: ArrayLike, *, f_max: float, f_min: float = 0.0
) -> float:
    """Exact local sensitivity of the averages: sup over X' of ||F_X - F_X'||_Gamma.

    What Lemma 3.4 and Corollary 3.5 bound. The new trajectory may visit any states with any
    returns in [f_min, f_max]. For a fixed replaced trajectory the squared distance is a sum
    over states, each a convex function of the new return, so three choices a state suffice:
    no visit, the lowest return, the highest. O(m N). With tabular features and w = 1 it is
    the local sensitivity of the LSW solution itself.

    All returns of the data X lie in [f_min, f_max] (clip them first), f_min < f_max and f_max > 0;
    weights w >= 0, shape (N,).

    >>> data = FirstVisitReturns([[1.0], [0.0]], [[True], [True]])
    >>> averages_local_sensitivity(data, [1.0], f_max=1.0)
    0.5
    """
    returns, visited, low, high = checked_returns(data, f_max, f_min)
    w = check.weight_vector("weights", weights, returns.shape[1])
    counts = visited.sum(axis=0) - visited  # |X°_s| for each replaced trajectory
    sums = returns.sum(axis=0) - returns
    now = returns.sum(axis=0) / np.maximum(visited.sum(axis=0), 1)
    options = [
        sums / np.maximum(counts, 1),  # not visited: the average of the others
        (sums + low) / (counts + 1),
        (sums + high) / (counts + 1),
    ]
    # a state without visits has sum 0 up to rounding
    options[0] = np.where(counts > 0, options[0], 0.0)
    largest = np.max([np.abs(new - now) for new in options], axis=0)
    return float(np.sqrt((w * largest**2).sum(axis=1)).max())


def checked_returns(
    data: FirstVisitReturns, f_max: float, f_min: float
) -> tuple[FloatArray, FloatArray, float, float]:
    """Returns and visits (as 0 and 1) of X, refused if a return leaves [f_min, f_max]."""
    check.instance("data", data, FirstVisitReturns)
    low, high = public_range(f_max, f_min)
    seen = data.returns[data.visited]
    if seen.size and (seen.min() < low or seen.max() > high):
        raise ValueError(
            f"data has returns in [{seen.min():g}, {seen.max():g}], outside the range "
            f"[{low:g}, {high:g}]; clip them first: FirstVisitReturns.clipped"
        )
    return data.returns, data.visited.astype(np.float64), low, high


def _touched_norm(other_counts: ArrayLike, touched: ArrayLike, weights: ArrayLike) -> FloatArray:
    """sqrt( sum over touched states of w_s / (|X°_s| + 1)^2 )."""
    counts = check.count_array("other_counts", other_counts)
    seen = check.unmasked("touched", touched)
    if seen.dtype != bool or seen.shape[-1:] != counts.shape[-1:]:
        raise ValueError(
            f"touched must be booleans, one per state in the last axis ({counts.shape[-1]}), "
            f"got {seen.dtype} {seen.shape}"
        )
    w = check.weight_vector("weights", weights, counts.shape[-1])
    return np.asarray(np.sqrt(np.where(seen, w / (counts + 1) ** 2, 0.0).sum(axis=-1)))
