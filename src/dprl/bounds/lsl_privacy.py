r"""Privacy of DP-LSL: how far one trajectory moves the ridge solution (thesis, section 3.4.3).

X and X' are neighbours: of m trajectories one, x, is replaced by another, x'. F_x holds the
first-visit returns of x (0 where it does not visit), rho in [0, 1] are public weights,
Gamma_rho = diag(rho), Delta = diag(1{s in x} - 1{s in x'}), lambda the ridge, and theta the
minimiser (3.9) on X.

========  ==========================================================================
3.9       bound from theta, x and x'
3.40      its numerator, from norms
3.10      bound from the visit counts of X alone: sqrt(phi(v))
3.11      the largest phi within distance k, in closed form
========  ==========================================================================

The printed bounds need lambda above a norm of Phi, which they subtract in the denominator.
The corrected ones need only lambda > 0 and subtract nothing: with M = Phi' Gamma_X Phi +
lambda/(2m) I and M' the same on X',

    M' (theta' - theta) = (1/m) Phi' Gamma_rho (Delta Phi theta - F_x + F_x'),        (1)

and ||M'^{-1}|| <= 2m/lambda. For 0/1 features in which states share parameters, even the
largest step over *all* neighbours is known:
:func:`~dprl.private_evaluation.lsl_global_sensitivity`.

Nothing here is private: counts, returns and theta are data. Where arguments have the shape
(..., N), results have the shape (...).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from dprl import _validation as check
from dprl._validation import BoolArray, FloatArray
from dprl.bounds.lsw_privacy import checked_returns
from dprl.evaluation import regression_weights
from dprl.features import feature_matrix, operator_norm
from dprl.private_evaluation import lsl_coefficient, lsl_local_bound, lsl_step_factor, return_spread
from dprl.private_evaluation.common import public_range
from dprl.private_evaluation.dp_lsl import (
    lsl_global_sensitivity as lsl_global_sensitivity,  # the exact value beside its bounds
)
from dprl.private_evaluation.dp_lsl import shared_values
from dprl.trajectories import FirstVisitReturns


@dataclass(frozen=True, eq=False)
class Replacement:
    """One trajectory x and its replacement x', as first-visit returns.

    Parameters
    ----------
    returns, other_returns : array_like, shape (..., N)
        F_x and F_x', finite; 0 where a state is not visited.
    visited, other_visited : array_like of bool, shape (..., N)
        Whether x, x' visits the state.

    Examples
    --------
    >>> Replacement([1.0, 0.0], [True, False], [0.0, 0.5], [False, True]).sign.tolist()
    [1.0, -1.0]
    """

    returns: FloatArray
    visited: BoolArray
    other_returns: FloatArray
    other_visited: BoolArray

    def __post_init__(self) -> None:
        for name, seen in (("returns", "visited"), ("other_returns", "other_visited")):
            values = check.finite_array(name, getattr(self, name))
            visits = check.unmasked(seen, getattr(self, seen))
            if values.ndim == 0 or visits.dtype != bool or visits.shape != values.shape:
                raise ValueError(
                    f"{seen} must be booleans, one for each of the {name} {values.shape}, "
                    f"got {visits.dtype} {visits.shape}"
                )
            if ((values != 0) & ~visits).any():
                raise ValueError(f"{name} must be 0 where a state is not visited")
            object.__setattr__(self, name, values)
            object.__setattr__(self, seen, visits)
        if self.returns.shape != self.other_returns.shape:
            raise ValueError(
                "x and x' must have the same shape, "
                f"got {self.returns.shape} and {self.other_returns.shape}"
            )

    @property
    def sign(self) -> FloatArray:
        """Diagonal of Delta: 1{s in x} - 1{s in x'}, shape (..., N)."""
        return self.visited.astype(np.float64) - self.other_visited


def lemma_3_9_printed(
    theta: ArrayLike, change: Replacement, features: ArrayLike, weights: ArrayLike, ridge: float
) -> FloatArray:
    """Bound on ||theta_X - theta_X'|| as printed: thesis, Lemma 3.9, equation 3.38.

    2 ||(Delta Phi theta - F_x + F_x')' Gamma_rho Phi|| / (lambda - ||Phi' Delta Gamma_rho Phi||).

    Correct, for returns of any sign; but it needs a ridge above the norm that it subtracts.

    Parameters
    ----------
    theta : array_like, shape (..., d)
        The minimiser on X.
    change : Replacement
        x and x', arrays of shape (..., N).
    features, weights : array_like, shape (N, d) and (N,)
        Phi, and rho in [0, 1].
    ridge : float
        lambda > ||Phi' Delta Gamma_rho Phi||; a ValueError if it is too small for one of the
        replacements.

    Examples
    --------
    >>> change = Replacement([1.0], [True], [0.0], [False])
    >>> float(lemma_3_9_printed([0.5], change, [[1.0]], [1.0], ridge=2.0))
    1.0
    """
    step, phi, rho, lam = _step(theta, change, features, weights, ridge)
    curvature = np.swapaxes(change.sign[..., None] * rho[:, None] * phi, -1, -2) @ phi
    subtracted = np.linalg.norm(curvature, 2, axis=(-2, -1))
    if (subtracted >= lam).any():
        raise ValueError(
            f"ridge must exceed ||Phi' Delta Gamma_rho Phi|| = {subtracted.max():g}, "
            f"got {ridge!r}: use lemma_3_9_corrected, which needs no such condition"
        )
    return np.asarray(2 * step / (lam - subtracted))  # (3.38)


def lemma_3_9_corrected(
    theta: ArrayLike, change: Replacement, features: ArrayLike, weights: ArrayLike, ridge: float
) -> FloatArray:
    """Lemma 3.9 improved: (2/lambda) ||(Delta Phi theta - F_x + F_x')' Gamma_rho Phi||.

    For every lambda > 0, by equation (1) of the module. Attained, for example, if x' and all
    common trajectories visit no state.

    Parameters as :func:`lemma_3_9_printed`; ``ridge`` > 0.

    >>> change = Replacement([1.0], [True], [0.0], [False])
    >>> float(lemma_3_9_corrected([0.5], change, [[1.0]], [1.0], ridge=2.0))
    0.5
    """
    step, _, _, lam = _step(theta, change, features, weights, ridge)
    return 2 / lam * step


def equation_3_40(
    theta: ArrayLike, change: Replacement, features: ArrayLike, weights: ArrayLike
) -> FloatArray:
    """Bound on the numerator of Lemma 3.9: thesis, equation 3.40.

    ||(Delta Phi theta - F_x + F_x')' Gamma_rho Phi||
        <= ( ||theta|| ||Phi|| ||rho||_inf + ||(F_x - F_x')' Gamma_rho|| ) ||Phi||.

    Parameters as :func:`lemma_3_9_printed`.

    >>> change = Replacement([1.0], [True], [0.0], [False])
    >>> float(equation_3_40([0.5], change, [[1.0]], [1.0]))
    1.5
    """
    size, phi, rho = _solution(theta, change, features, weights)
    norm = operator_norm(phi)
    difference = np.linalg.norm((change.returns - change.other_returns) * rho, axis=-1)
    return np.asarray((np.linalg.norm(size, axis=-1) * norm * rho.max() + difference) * norm)


def corollary_3_10_solution_norm(
    counts: ArrayLike, weights: ArrayLike, ridge: float, *, f_max: float
) -> FloatArray:
    """Bound on ||theta_X|| in the proof of Corollary 3.10, after equation 3.41.

    F sqrt( sum_s rho_s |X_s| / (2 lambda) ), for returns of size at most F; it rests on
    x / (x^2 + a) <= 1 / (2 sqrt(a)) for the singular values x and a = lambda / (2m). Parameters
    as in :func:`corollary_3_10_printed`; ``ridge`` > 0.

    >>> float(corollary_3_10_solution_norm([8, 0], [1.0, 1.0], ridge=4.0, f_max=3.0))
    3.0
    """
    v = check.count_array("counts", counts)
    rho = regression_weights(weights, v.shape[-1])
    lam, high = check.positive("ridge", ridge), check.positive("f_max", f_max)
    return np.asarray(high * np.sqrt((rho * v).sum(axis=-1) / (2 * lam)))


def corollary_3_10_printed(
    counts: ArrayLike,
    n_trajectories: int,
    features: ArrayLike,
    weights: ArrayLike,
    ridge: float,
    *,
    f_max: float,
) -> FloatArray:
    """Bound on ||theta_X - theta_X'|| over all neighbours as printed: thesis, Corollary 3.10.

    2 F ||Phi|| / (lambda - ||Phi||^2 ||rho||_inf) sqrt(phi(v)),
    phi(v) = ( c sqrt(sum_s rho_s |X_s|) + ||rho||_2 )^2, c = ||Phi|| ||rho||_inf / sqrt(2 lambda).
    Holds for returns in [0, F]; violated by a factor of up to 2 for returns of both signs.

    Parameters
    ----------
    counts : array_like, shape (..., N)
        |X_s|, the signature of X.
    n_trajectories : int
        m.
    features, weights : array_like, shape (N, d) and (N,)
        Phi, and rho in [0, 1].
    ridge : float
        lambda > ||Phi||^2 ||rho||_inf; a ValueError otherwise.
    f_max : float
        F > 0, largest size of a return.

    Examples
    --------
    >>> float(corollary_3_10_printed([4], 4, [[1.0]], [1.0], 2.0, f_max=1.0))
    4.0
    """
    factor = lsl_step_factor(features, weights, ridge, size=f_max)
    c = lsl_coefficient(features, weights, ridge)
    return factor * np.sqrt(lsl_local_bound(counts, weights, n_trajectories, c))


def corollary_3_10_corrected(
    counts: ArrayLike,
    n_trajectories: int,
    features: ArrayLike,
    weights: ArrayLike,
    ridge: float,
    *,
    f_max: float,
    f_min: float = 0.0,
) -> FloatArray:
    """Corollary 3.10 for every lambda > 0 and returns in [f_min, f_max].

    (2 F ||Phi|| / lambda) sqrt(phi(v)), F the largest size of a return, and in phi
    (D / F) ||rho||_2 in place of ||rho||_2, D the largest change of a return: only the
    difference of returns grows with the width of the range, the size of theta does not.

    Parameters as :func:`corollary_3_10_printed`; ``ridge`` > 0 and ``f_min`` < ``f_max``.

    >>> float(corollary_3_10_corrected([4], 4, [[1.0]], [1.0], 2.0, f_max=1.0))
    2.0
    """
    step, size = return_spread(*public_range(f_max, f_min))
    factor = lsl_step_factor(features, weights, ridge, size=size, improved=True)
    c = lsl_coefficient(features, weights, ridge)
    local = lsl_local_bound(counts, weights, n_trajectories, c, step_ratio=step / size)
    return factor * np.sqrt(local)


def lemma_3_11_printed(
    counts: ArrayLike,
    weights: ArrayLike,
    n_trajectories: int,
    coefficient: float,
    distance: ArrayLike = 0,
) -> FloatArray:
    """Largest phi within distance k of v as printed: thesis, Lemma 3.11.

    ( c sqrt(sum_s rho_s max(v_s + k, m)) + ||rho||_2 )^2: a maximum where a minimum is meant.
    For k = 0 it is the printed phi(v). Its values do not rest at
    :func:`lemma_3_11_constant` for large k, as the lemma's second sentence says.

    Parameters
    ----------
    counts, weights : array_like, shape (..., N) and (N,)
        v in [0, m], and rho in [0, 1].
    n_trajectories : int
        m.
    coefficient : float
        c = ||Phi|| ||rho||_inf / sqrt(2 lambda), > 0.
    distance : array_like, shape (...)
        k >= 0.

    Examples
    --------
    >>> float(lemma_3_11_printed([4], [1.0], 9, coefficient=1.0, distance=0))
    16.0
    """
    v = check.count_array("counts", counts)
    rho = regression_weights(weights, v.shape[-1])
    m, c = check.whole("n_trajectories", n_trajectories), check.positive("coefficient", coefficient)
    k = check.array_from("distance", distance)
    total = (rho * np.maximum(v + k[..., None], m)).sum(axis=-1)
    return np.asarray((c * np.sqrt(total) + np.linalg.norm(rho)) ** 2)


def lemma_3_11_corrected(
    counts: ArrayLike,
    weights: ArrayLike,
    n_trajectories: int,
    coefficient: float,
    distance: ArrayLike = 0,
) -> FloatArray:
    """Lemma 3.11 with the minimum of v_s + k and m, as in Algorithm 2.

    phi grows with every count, so its largest value within distance k is at v + k, capped at
    m. The function of DP-LSL itself, :func:`~dprl.private_evaluation.lsl_local_bound`.

    Parameters as :func:`lemma_3_11_printed`.

    >>> float(lemma_3_11_corrected([4], [1.0], 9, coefficient=1.0, distance=0))
    9.0
    """
    return lsl_local_bound(counts, weights, n_trajectories, coefficient, distance)


def lemma_3_11_constant(weights: ArrayLike, n_trajectories: int, coefficient: float) -> float:
    """The value of phi_k for k >= m - min_s v_s: thesis, Lemma 3.11, second sentence.

    ( c sqrt(m sum_s rho_s) + ||rho||_2 )^2: every state visited by every trajectory.

    Parameters as :func:`lemma_3_11_printed`.

    >>> lemma_3_11_constant([1.0], 9, coefficient=1.0)
    16.0
    """
    rho = check.finite_array("weights", weights, ndim=1)
    m = check.whole("n_trajectories", n_trajectories)
    c = check.positive("coefficient", coefficient)
    return float(lsl_local_bound(np.full(rho.size, m), rho, m, c))


def lsl_global_sensitivity_bound(
    features: ArrayLike, weights: ArrayLike, ridge: float, *, f_max: float, f_min: float = 0.0
) -> float:
    """Bound on the largest step over all neighbours: 2 D ||Phi|| ||rho||_2 / lambda.

    From the improved Lemma 3.9: a state's value under theta is an average of returns, pulled
    towards 0. So each entry of Delta Phi theta - F_x + F_x' is at most D in size, its product with
    Gamma_rho at most D ||rho||_2, and with Phi at most ||Phi|| times that. Never below
    :func:`~dprl.private_evaluation.lsl_global_sensitivity`, whose parameters it shares.

    >>> from dprl.features import tabular
    >>> lsl_global_sensitivity_bound(tabular(4), [1.0] * 4, ridge=8.0, f_max=1.0)
    0.5
    """
    step, _ = return_spread(*public_range(f_max, f_min))
    phi = feature_matrix(features)
    shared_values(phi)
    rho, lam = regression_weights(weights, phi.shape[0]), check.positive("ridge", ridge)
    return float(2 * step * operator_norm(phi) * np.linalg.norm(rho) / lam)


def tabular_local_sensitivity(
    data: FirstVisitReturns, weights: ArrayLike, ridge: float, *, f_max: float, f_min: float = 0.0
) -> float:
    """Exact local sensitivity of LSL with tabular features: sup over X' of ||theta_X - theta_X'||.

    The new trajectory may visit any states with any returns in the range. theta_s is the sum
    of the state's returns over its visits plus lambda/(2 rho_s), so states are independent
    and three choices each suffice: no visit, lowest return, highest. O(m N).

    All returns of the data X lie in [f_min, f_max], f_min < f_max and f_max > 0; weights rho in
    [0, 1], shape (N,); ridge lambda > 0.

    >>> data = FirstVisitReturns([[1.0], [1.0]], [[True], [True]])
    >>> tabular_local_sensitivity(data, [1.0], 4.0, f_max=1.0)
    0.25
    """
    returns, visited, low, high = checked_returns(data, f_max, f_min)
    rho = regression_weights(weights, returns.shape[1])
    half = check.positive("ridge", ridge) / 2
    counts = visited.sum(axis=0) - visited
    sums = returns.sum(axis=0) - returns
    now = rho * returns.sum(axis=0) / (rho * visited.sum(axis=0) + half)
    options = [
        rho * sums / (rho * counts + half),
        rho * (sums + low) / (rho * (counts + 1) + half),
        rho * (sums + high) / (rho * (counts + 1) + half),
    ]
    largest = np.max([np.abs(new - now) for new in options], axis=0)
    return float(np.linalg.norm(largest, axis=1).max())


def _solution(
    theta: ArrayLike, change: Replacement, features: ArrayLike, weights: ArrayLike
) -> tuple[FloatArray, FloatArray, FloatArray]:
    check.instance("change", change, Replacement)
    phi = feature_matrix(features, change.returns.shape[-1])
    rho = regression_weights(weights, phi.shape[0])
    t = check.finite_array("theta", theta)
    if t.ndim == 0 or t.shape[-1] != phi.shape[1]:
        raise ValueError(
            f"theta must have one entry per feature, {phi.shape[1]}, got shape {t.shape}"
        )
    return t, phi, rho


def _step(
    theta: ArrayLike, change: Replacement, features: ArrayLike, weights: ArrayLike, ridge: float
) -> tuple[FloatArray, FloatArray, FloatArray, float]:
    """||(Delta Phi theta - F_x + F_x')' Gamma_rho Phi||, and the checked problem."""
    t, phi, rho = _solution(theta, change, features, weights)
    residual = change.sign * (t @ phi.T) - change.returns + change.other_returns
    step: FloatArray = np.linalg.norm((rho * residual) @ phi, axis=-1)
    return step, phi, rho, check.positive("ridge", ridge)
