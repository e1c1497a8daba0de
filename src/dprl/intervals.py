r"""Exact intervals for a probability, from k successes in n independent trials.

At confidence 1 - a the interval of Clopper and Pearson (1934) is

    [ I^-1(a/2; k, n - k + 1),  I^-1(1 - a/2; k + 1, n - k) ],                (1)

I^-1 the inverse of the regularised incomplete beta function, with the ends 0 for k = 0 and
1 for k = n. It holds the probability with a chance of at least 1 - a, whatever the
probability is. Each end alone, at level a in place of a/2, is a one-sided bound.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import betainccinv, betaincinv

from dprl import _validation as check
from dprl._validation import FloatArray


def clopper_pearson_lower(count: ArrayLike, trials: ArrayLike, level: float) -> FloatArray:
    """One-sided lower bound on a probability, left end of (1) with ``level`` for a/2.

    Whatever the probability is, the bound exceeds it with probability at most ``level``.

    Parameters
    ----------
    count, trials : array_like, shapes that broadcast to (...)
        0 <= count <= trials. Fractional counts are allowed: they give the bound that
        expected counts would give.
    level : float
        Allowed probability of error, in (0, 1).

    Returns
    -------
    ndarray, shape (...)
        0 where there are no successes.

    Examples
    --------
    >>> float(clopper_pearson_lower(10, 10, 0.05).round(6)), round(0.05 ** 0.1, 6)
    (0.741134, 0.741134)
    """
    k, n, a = _counts(count, trials, level)
    low = betaincinv(np.where(k > 0, k, 1.0), n - k + 1, a)  # asked only where it exists
    return np.where(k > 0, low, 0.0)


def clopper_pearson_upper(count: ArrayLike, trials: ArrayLike, level: float) -> FloatArray:
    """One-sided upper bound on a probability, right end of (1) with ``level`` for a/2.

    Parameters as in :func:`clopper_pearson_lower`, of which it is the mirror image: 1 where there
    are no failures.

    >>> float(clopper_pearson_upper(0, 300, 0.05).round(4))  # about 3 / n: no hit in n runs
    0.0099
    """
    k, n, a = _counts(count, trials, level)
    high = betainccinv(k + 1, np.where(k < n, n - k, 1.0), a)
    return np.where(k < n, high, 1.0)


def clopper_pearson(
    count: ArrayLike, trials: ArrayLike, confidence: float = 0.95
) -> tuple[FloatArray, FloatArray]:
    """Exact two-sided confidence interval for a probability, equation (1).

    The trials must be independent: answers about pairs that share a trained model are not.

    Whole numbers 0 <= count <= trials, which broadcast; confidence 1 - a in (0, 1). Returns both
    ends: 0 and 1 where there are no trials, for nothing is then known.

    >>> low, high = clopper_pearson([0, 5, 10], 10)
    >>> low.round(4).tolist(), high.round(4).tolist()
    ([0.0, 0.1871, 0.6915], [0.3085, 0.8129, 1.0])
    """
    tail = (1 - check.open_unit("confidence", confidence)) / 2
    k, n = check.whole_array("count", count, 0), check.whole_array("trials", trials, 0)
    return clopper_pearson_lower(k, n, tail), clopper_pearson_upper(k, n, tail)


def _counts(
    count: ArrayLike, trials: ArrayLike, level: float
) -> tuple[FloatArray, FloatArray, float]:
    k, n = np.broadcast_arrays(
        check.finite_array("count", count), check.finite_array("trials", trials)
    )
    if (k < 0).any() or (k > n).any():
        raise ValueError("count must lie between 0 and the number of trials")
    return k, n, check.open_unit("level", level)
