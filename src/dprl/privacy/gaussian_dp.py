r"""Gaussian differential privacy: one number for a mechanism whose noise is Gaussian.

A mechanism is mu-GDP if telling neighbouring data sets apart by its output is at least as hard
as telling N(0, 1) from N(mu, 1) (Dong, Roth and Su 2022). Adding N(0, Sigma) to a
query is mu-GDP if and only if d' Sigma^{-1} d <= mu^2 for every difference d of the query on
neighbours. mu-GDP is (epsilon, delta)-privacy for all pairs on one curve, and

    delta = Phi(mu/2 - epsilon/mu) - e^epsilon Phi(-mu/2 - epsilon/mu)             (1)

is the profile of the Gaussian mechanism with sensitivity mu and standard deviation 1, so that a
promise (epsilon, delta) is kept exactly where mu is that mechanism's (Balle and Wang 2018).
Mechanisms that are mu_1-, ..., mu_k-GDP, each chosen with the outputs of those before, are together

    sqrt(mu_1^2 + ... + mu_k^2)-GDP                                               (2)

(Dong, Roth and Su 2022): a budget is divided by dividing mu^2, and nothing is lost.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from dprl import _validation as check
from dprl._validation import FloatArray
from dprl.privacy.gaussian import analytic_gaussian_sigma


def gaussian_mu(epsilon: float, delta: float) -> float:
    """The largest mu for which mu-GDP implies (epsilon, delta)-privacy, equation (1).

    Parameters
    ----------
    epsilon : float
        > 0.
    delta : float
        In (0, 1).

    Examples
    --------
    >>> round(1 / gaussian_mu(1.0, 1e-6), 4)
    4.2247
    """
    return 1 / analytic_gaussian_sigma(1.0, epsilon, delta)


def divided_mu(mu: float, shares: ArrayLike) -> FloatArray:
    """mu_k of rounds that compose to at most mu, equation (2): sqrt(share_k) mu.

    Parameters
    ----------
    mu : float
        > 0.
    shares : array_like, shape (k,)
        Shares of mu^2, > 0, that add up to at most 1.

    Returns
    -------
    ndarray, shape (k,)

    Raises
    ------
    ValueError
        If a share is not positive, or their sum exceeds 1 by more than rounding.

    Examples
    --------
    >>> divided_mu(2.0, [0.25, 0.75]).round(4).tolist()
    [1.0, 1.7321]
    """
    total = check.positive("mu", mu)
    s = check.positive_array("shares", shares)
    if s.ndim != 1 or s.sum() > 1 + 1e-12:
        raise ValueError(
            f"shares must be one vector whose sum is at most 1, got sum {s.sum():.17g}"
        )
    return np.asarray(np.sqrt(s) * total)
