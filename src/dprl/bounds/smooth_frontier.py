r"""The exact price of smooth sensitivity: its frontier, and the best that DP-LSW could be.

A mechanism with noise sigma_X >= alpha ||mu_X - mu_X'|| and |ln sigma_X^2 - ln sigma_X'^2| <= beta
(conditions (a), (b) of :mod:`dprl.bounds.smoothed_gaussian`) keeps a promise (eps, delta) for every
(alpha, beta) above a curve, the frontier alpha(beta). It rises from z = 1/mu at beta = 0, the noise
of the Gaussian mechanism with the same promise, to infinity at the beta where unequal variances
alone break the promise. DP-LSW has sigma = alpha D ||(Gamma^{1/2} Phi)^+|| sqrt(psi_beta(v)): with
psi falling and alpha rising in beta, the best noise is the least of alpha(beta) sqrt(psi_beta(v)).

The frontier of :func:`~dprl.bounds.smoothed_gaussian.calibrated_alpha` maximises over the ratio of
the variances on a grid. **A bound for all ratios.** With N(m, s^2 I) <= (s'/s)^d N(m, s'^2 I)
pointwise for s <= s', every event E has, for c = (s'/s)^d,

    P_s[E] - e^eps Q[E] <= c (P_s'[E] - e^{eps - ln c} Q[E]),
    hence  delta_s(eps) <= c delta_s'(eps - ln c).                                          (1)

Cut [-beta, beta] into cells of width w. In a cell, ln s^2 is at most w below its upper end, so (1)
with ln c <= d w/2, and the largest distance in the cell (delta does not decrease with it), bound
delta in the whole cell. The largest over the cells is proved, and exact as w goes to 0.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike
from scipy import optimize

from dprl import _validation as check
from dprl.bounds.smoothed_gaussian import calibrated_alpha, largest_beta
from dprl.privacy import analytic_gaussian_sigma, gaussian_pair_delta
from dprl.private_evaluation.dp_lsw import lsw_local_bound, lsw_smooth_bound


def certified_delta(
    alpha: float, beta: float, epsilon: float, dimension: int, *, cells: int = 400
) -> float:
    """An upper bound on delta under conditions (a) and (b), proved for every ratio of variances.

    Parameters
    ----------
    alpha, beta : float
        > 0.
    epsilon : float
        > 0; d beta/cells must be smaller, or more cells are needed.
    dimension : int
        d >= 1.
    cells : int
        >= 1.

    Raises
    ------
    ValueError
        If the cells are too wide for this epsilon.

    Examples
    --------
    >>> from dprl.bounds.smoothed_gaussian import worst_delta
    >>> found, proved = worst_delta(6, 0.01, 1, 40), certified_delta(6, 0.01, 1, 40)
    >>> found <= proved < 1.03 * found
    True
    """
    a, b = check.positive("alpha", alpha), check.positive("beta", beta)
    eps, d = check.positive("epsilon", epsilon), check.whole("dimension", dimension)
    edges = np.linspace(-b, b, check.whole("cells", cells) + 1)
    log_c = d * (2 * b / cells) / 2
    if log_c >= eps:
        raise ValueError(f"{cells} cells are too wide for epsilon = {eps:g}: take more")
    worst = max(
        gaussian_pair_delta(
            float(np.exp(min(x / 2, 0.0)) / a), float(np.exp(x / 2)), 1.0, eps - log_c, d
        )
        for x in edges[1:]
    )
    return min(float(np.exp(log_c)) * worst, 1.0)  # (1)


@dataclass(frozen=True)
class BestSmoothNoise:
    """The least noise that smooth sensitivity gives DP-LSW, in units of D ||(Gamma^{1/2}Phi)^+||.

    Attributes
    ----------
    alpha, beta : float
        Where on the frontier.
    noise : float
        alpha sqrt(psi_beta(v)).
    floor : float
        z sqrt(phi(v, 0)): what it would be if nothing had to be smooth, and the sensitivity at
        the data themselves could be used. No (alpha, beta) goes below.
    """

    alpha: float
    beta: float
    noise: float
    floor: float


def best_lsw_noise(
    counts: ArrayLike, weights: ArrayLike, *, epsilon: float, delta: float, dimension: int
) -> BestSmoothNoise:
    """The best point of the frontier for DP-LSW at these counts.

    Of planned counts it is a calibration that depends on no data; of real ones it is *not
    private*, a comparison only.

    Parameters
    ----------
    counts : array_like, shape (N,)
        v, visit counts; real numbers when planning.
    weights : array_like, shape (N,)
        w >= 0, not all zero.
    epsilon, delta : float
        > 0, and in (0, 1).
    dimension : int
        d >= 1, the number of parameters.

    Examples
    --------
    >>> best = best_lsw_noise([10_000] * 40, [1] * 40, epsilon=1, delta=1e-6, dimension=40)
    >>> round(best.noise, 4), round(best.floor, 4)  # as it is for tabular features, f_max = 1
    (0.0027, 0.0027)
    """
    v = check.count_array("counts", counts)
    if v.ndim != 1:
        raise ValueError(f"counts must be one vector, got shape {v.shape}")
    d = check.whole("dimension", dimension)

    def noise(log_beta: float) -> float:
        beta = float(np.exp(log_beta))
        alpha = calibrated_alpha(beta, epsilon, delta, d, points=3)
        return alpha * float(np.sqrt(lsw_smooth_bound(v, weights, beta)[0]))

    end = float(np.log(largest_beta(epsilon, delta, d)))
    grid = end - np.geomspace(1e-3, 12, 14)
    values = [noise(float(x)) for x in grid]
    best = int(np.argmin(values))
    found = optimize.minimize_scalar(
        noise,
        bounds=(grid[min(best + 1, grid.size - 1)], grid[max(best - 1, 0)]),
        method="bounded",
        options={"xatol": 1e-3},
    )
    x = float(found.x) if found.fun < values[best] else float(grid[best])
    beta = float(np.exp(x))
    alpha = calibrated_alpha(beta, epsilon, delta, d)
    psi = float(lsw_smooth_bound(v, weights, beta)[0])
    least = analytic_gaussian_sigma(1.0, epsilon, delta)
    floor = least * float(np.sqrt(lsw_local_bound(v, weights)))
    return BestSmoothNoise(alpha, beta, alpha * psi**0.5, floor)
