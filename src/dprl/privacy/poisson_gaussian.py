r"""Accounting of noisy sums over Poisson samples: DP-SGD.

The mechanism: U *steps*. Each takes every record with probability q, independently of the others
and of other steps, computes of each one taken a vector of norm at most C, which may depend on
what was released before, and releases the sum plus N(0, (z C)^2 I). Neighbours *add or remove one
record*: the number of records is not public, q, z, C and U are. (Replacing a record can move the
sum by 2 C and is another relation, for which the numbers here do not hold.)

One step is dominated, for removing the record, by the pair of P = (1 - q) N(0, z^2) + q N(1, z^2)
and Q = N(0, z^2), and for adding it by the same pair exchanged; U steps by the U-fold products
(Zhu, Dong and Wang 2022). Both privacy loss distributions are computed by the accounting library
with the rule "connect the dots" (Doroshenko et al. 2022), which errs on the safe side, and composed
by FFT; the larger epsilon counts.

Sources: Abadi et al. 2016; Koskela, Jälkö and Honkela 2020; Zhu, Dong and Wang 2022; Doroshenko et
al. 2022.
"""

from __future__ import annotations

import functools
import math

from dp_accounting import dp_event
from dp_accounting import privacy_accountant as accountant
from dp_accounting.pld import pld_privacy_accountant

from dprl import _validation as check
from dprl.privacy.averages import resolved_delta

#: Relative accuracy of a noise multiplier that is searched; it is rounded up.
ACCURACY = 1e-3
#: With less, a step promises nothing to speak of, and the grid of its loss is large.
SMALLEST_NOISE = 0.1
#: Below it the library leaves out a part of the loss that counts.
SMALLEST_DELTA = 1e-12
_GRID = 1e-3  # of the discretised loss


def poisson_gaussian_epsilon(noise: float, rate: float, steps: int, delta: float) -> float:
    """Epsilon >= 0 of U steps at a given delta, from above.

    Parameters
    ----------
    noise : float
        z, standard deviation of the noise over the largest norm of a record's vector; at least
        :data:`SMALLEST_NOISE`.
    rate : float
        q in (0, 1].
    steps : int
        U >= 1.
    delta : float
        In (0, 1), at least :data:`SMALLEST_DELTA`.

    Notes
    -----
    For neighbours that add or remove one record. About a second; answers are kept. The loss is put
    on a grid of step 0.001, so that the answer is above the exact one by at most about
    0.001 sqrt(U).

    Examples
    --------
    >>> round(poisson_gaussian_epsilon(1.0, 1.0, 1, 1e-5), 2)  # the Gaussian mechanism
    4.38
    """
    z = check.positive("noise", noise)
    if z < SMALLEST_NOISE:
        raise ValueError(f"noise must be at least {SMALLEST_NOISE:g}, got {noise!r}")
    return _epsilon(
        z,
        check.fraction("rate", rate),
        check.whole("steps", steps),
        resolved_delta(delta, SMALLEST_DELTA),
    )


@functools.lru_cache(maxsize=512)
def _epsilon(noise: float, rate: float, steps: int, delta: float) -> float:
    one = accountant.NeighboringRelation.ADD_OR_REMOVE_ONE
    step = dp_event.PoissonSampledDpEvent(rate, dp_event.GaussianDpEvent(noise))
    account = pld_privacy_accountant.PLDAccountant(one, value_discretization_interval=_GRID)
    account.compose(dp_event.SelfComposedDpEvent(step, steps))
    return float(account.get_epsilon(delta))


def poisson_gaussian_noise(epsilon: float, delta: float, rate: float, steps: int) -> float:
    """The noise multiplier z with which U steps keep (epsilon, delta), rounded up.

    epsilon > 0; the rest as for :func:`poisson_gaussian_epsilon`. The least one is smaller by at
    most :data:`ACCURACY`, relatively; where it is below :data:`SMALLEST_NOISE`, that is given.

    Examples
    --------
    >>> z = poisson_gaussian_noise(3.0, 1e-5, rate=0.1, steps=100)
    >>> poisson_gaussian_epsilon(z, 0.1, 100, 1e-5) <= 3.0
    True
    """
    eps = check.positive("epsilon", epsilon)
    q, number = check.fraction("rate", rate), check.whole("steps", steps)
    small = resolved_delta(delta, SMALLEST_DELTA)
    high = 1.0
    while _epsilon(high, q, number, small) > eps:
        high *= 2
    low = high / 2
    while _epsilon(low, q, number, small) <= eps:
        if low == SMALLEST_NOISE:
            return low
        low, high = max(low / 2, SMALLEST_NOISE), low
    while high / low > 1 + ACCURACY:
        middle = math.sqrt(low * high)
        if _epsilon(middle, q, number, small) <= eps:
            high = middle
        else:
            low = middle
    return high
