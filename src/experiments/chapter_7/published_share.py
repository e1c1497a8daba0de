"""What publishing some trajectories in the clear is worth: the exact error of their averages."""

from __future__ import annotations

import numpy as np
from scipy import stats

from dprl import Chain
from dprl import _validation as check

_LARGEST = 20_000  # from here on the first order is exact to a few digits


def averages_error(chain: Chain, n: int, idle: float = 0.0) -> float:
    """RMSE over the states of the averages of n first-visit returns; 0 where nobody was.

    A state that is visited with probability p has K ~ Bin(n, p) returns of variance v and mean V,
    and the squared error v E[1/K; K >= 1] + V^2 P(K = 0). With ``idle``, in [0, 1), this share of
    the trajectories passes through all states and earns nothing, and the error is from the values
    of that law. n >= 1; above 20,000 the error is v/(n p), to first order.

    >>> chain = Chain(start="uniform")
    >>> first_order = np.sqrt((chain.return_variance() / chain.visit_probabilities()).mean() / 10)
    >>> round(float(averages_error(chain, 10) / first_order), 1)
    5.2
    """
    check.instance("chain", chain, Chain)
    size, share = check.whole("n", n), check.below_one("idle", idle)
    visits = (1 - share) * chain.visit_probabilities()
    p = visits + share
    kept = visits / p  # share of the visits that are of the chain
    values = kept * chain.values()
    variance = kept * (chain.return_variance() + chain.values() ** 2) - values**2
    if size > _LARGEST:
        return float(np.sqrt((variance / p).mean() / size))
    k = np.arange(size + 1)[:, None]
    weight = np.asarray(stats.binom.pmf(k, size, p))
    squares = variance * (weight[1:] / k[1:]).sum(axis=0) + values**2 * weight[0]
    return float(np.sqrt(squares.mean()))
