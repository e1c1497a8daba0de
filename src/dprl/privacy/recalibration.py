"""Another guarantee that implies the promised one, and asks for less noise."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from scipy import optimize

from dprl import _validation as check


def equivalent_epsilon(epsilon: float, delta: float, base_delta: float) -> float:
    """The largest e such that every (e, base_delta)-private mechanism is (epsilon, delta)-private.

    The worst mechanism with (e, d) has, at epsilon <= e, a delta of
    d + (1 - d)(exp(e) - exp(epsilon)) / (1 + exp(e)): randomised response that reveals everything
    with probability d (Kairouz, Oh and Viswanath 2015). Setting this to delta and solving,

        exp(e) = (exp(epsilon) + r) / (1 - r),   r = (delta - d) / (1 - d).

    epsilon > 0, delta in (0, 1), and base_delta, d, in [0, delta].

    >>> round(equivalent_epsilon(0.1, 0.1, 0.01), 4)
    0.2744
    >>> equivalent_epsilon(0.1, 0.1, 0.1)
    0.1
    """
    eps, tail = check.positive("epsilon", epsilon), check.open_unit("delta", delta)
    d = check.real("base_delta", base_delta)
    if not 0 <= d <= tail:
        raise ValueError(f"base_delta must lie in [0, delta = {tail:g}], got {base_delta!r}")
    r = (tail - d) / (1 - d)
    larger = eps + math.log1p(r * math.exp(-eps)) - math.log1p(-r)
    return max(eps, larger - 2 * math.ulp(larger))  # rounded down


def recalibrated_guarantee(
    epsilon: float, delta: float, noise: Callable[[float, float], float]
) -> tuple[float, float]:
    """The guarantee that implies the promised one and asks for the least planned noise.

    A mechanism calibrated to (epsilon, delta) may be calibrated to any (e, d) with
    d < delta and e of :func:`equivalent_epsilon` in its place: it then keeps the same promise. If
    delta is large, that e is much larger than epsilon and the noise much smaller.

    Parameters
    ----------
    epsilon : float
        > 0; the promise.
    delta : float
        In (0, 1); the promise.
    noise : callable
        (e, d) -> planned size of the noise, > 0; from public numbers only. Infinite where the
        mechanism has no proof.

    Returns
    -------
    (float, float)
        e >= epsilon and d <= delta: calibrate to these. About 150 calls of ``noise``.

    Raises
    ------
    ValueError
        If the noise is infinite or undefined for every candidate.

    Examples
    --------
    The noise of Lemma 3.1 per unit of sensitivity, for a promise with a large delta:

    >>> from dprl.privacy import GaussianSmoothing
    >>> e, d = recalibrated_guarantee(0.1, 0.1, lambda e, d: GaussianSmoothing(e, d, 1).alpha)
    >>> round(GaussianSmoothing(0.1, 0.1, 1).alpha / GaussianSmoothing(e, d, 1).alpha, 2)
    2.08
    """
    eps, tail = check.positive("epsilon", epsilon), check.open_unit("delta", delta)

    def planned(logit: float) -> float:
        d = tail / (1 + math.exp(-logit))
        value = float(noise(equivalent_epsilon(eps, tail, d), d))
        return value if value > 0 else math.inf  # NaN compares false

    grid = np.linspace(-35, 35, 113)
    values = np.array([planned(x) for x in grid])
    best = int(values.argmin())
    original = float(noise(eps, tail))
    if not (np.isfinite(values).any() or np.isfinite(original)):
        raise ValueError("the planned noise is infinite for every guarantee that keeps the promise")
    low, high = grid[max(best - 1, 0)], grid[min(best + 1, grid.size - 1)]
    refined = optimize.minimize_scalar(planned, bounds=(low, high), method="bounded")
    x = float(refined.x) if refined.fun < values[best] else float(grid[best])
    if not planned(x) < original:
        return eps, tail
    d = tail / (1 + math.exp(-x))
    return equivalent_epsilon(eps, tail, d), d
