r"""The least Gaussian noise for a vector, and why no unbiased mechanism does much better.

A query x -> f(x) in R^N changes by a vector d of a set D when one record is replaced. Adding
N(0, Sigma) is mu-GDP if and only if d' Sigma^{-1} d <= mu^2 on D. Weigh squared errors by a
diagonal W > 0. The least error is Gamma^2 / mu^2 with

    Gamma^2 = min { tr(W Sigma) : d' Sigma^{-1} d <= 1 for all d in D }                   (1)
    = max { (tr X_lambda^{1/2})^2 : lambda a distribution on D },                         (2)
    X_lambda = W^{1/2} (sum_d lambda_d d d') W^{1/2}.

Weak duality: for Y = W^{1/2} Sigma W^{1/2}, (1) gives tr(Y^{-1} X_lambda) <= 1, and by
Cauchy-Schwarz (tr X^{1/2})^2 <= tr(Y) tr(Y^{-1} X). With Y = (tr X^{1/2}) X^{1/2} both are equal,
and the weighted mean of q_d = d' Sigma^{-1} d is 1; the best lambda has q_d <= 1 everywhere. Any
lambda gives an interval for Gamma^2: below (2), above max_d q_d times (2).

*Unbiased mechanisms.* Let M be mu-GDP with E M(x) = f(x) on every data set. An f-divergence of
M(x), M(x') is at most that of N(0, 1), N(mu, 1), so that chi^2 <= e^{mu^2} - 1, and the bound of
Hammersley, Chapman and Robbins gives (a'd)^2 <= (a' Cov a)(e^{mu^2} - 1) for all a, that is
d' Cov^{-1} d <= e^{mu^2} - 1 for Cov = Cov M(x) and every d with which a neighbour of x differs. If
that is, up to sign, all of D, or of a part of it with its own Gamma, Cov (e^{mu^2} - 1) is a
candidate of (1):

    tr(W Cov) >= Gamma^2 / (e^{mu^2} - 1).                                                (3)

The Gaussian mechanism with the best Sigma is within sqrt((e^{mu^2} - 1) / mu^2) of it in root mean
square: 1.014 for mu = 0.2367. (For the same statement with concentrated privacy see Nikolov and
Tang 2024; the factorisation norm is that of Edmonds, Nikolov and Ullman 2020.)
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from dprl import _validation as check
from dprl._validation import FloatArray


@dataclass(frozen=True, eq=False)
class OptimalNoise:
    """The solution of (1), feasible, with a certificate of how good it is.

    Attributes
    ----------
    covariance : ndarray, shape (N, N)
        Sigma with max d' Sigma^{-1} d = 1: N(0, Sigma / mu^2) is mu-GDP.
    gamma : float
        sqrt(tr(W Sigma)), an upper bound on Gamma that is attained.
    gamma_lower : float
        Lower bound on Gamma from (2).
    """

    covariance: FloatArray
    gamma: float
    gamma_lower: float


def optimal_noise(
    differences: ArrayLike,
    weights: ArrayLike | None = None,
    *,
    tolerance: float = 1e-4,
    max_steps: int = 20_000,
) -> OptimalNoise:
    """Solve (1) for finitely many differences by multiplicative updates of lambda.

    It is enough to name differences whose convex hull, with their negatives, holds all others.

    Parameters
    ----------
    differences : array_like, shape (k, N)
        D, of rank N.
    weights : array_like, shape (N,), optional
        Diagonal of W, > 0. Default: 1 / N, so that gamma is a root mean square.
    tolerance : float
        Stop when gamma exceeds its lower bound by no more than this part of it.
    max_steps : int
        The certificate holds also if they do not suffice. A step costs O(k N^2 + N^3).

    Examples
    --------
    Any vectors in a box, N = 3: nothing beats independent noise, Gamma = sqrt(N).

    >>> box = [[1, 1, 1], [1, 1, -1], [1, -1, 1], [1, -1, -1]]
    >>> round(optimal_noise(box).gamma, 6)
    1.732051
    """
    d = check.finite_array("differences", differences, ndim=2)
    n = d.shape[1] if d.size else 0
    if n == 0 or np.linalg.matrix_rank(d) < n:
        raise ValueError(f"differences must span all {n} dimensions: shape {d.shape}")
    w = np.full(n, 1 / n) if weights is None else check.positive_array("weights", weights)
    if w.shape != (n,):
        raise ValueError(f"weights must have {n} entries, got shape {w.shape}")
    goal = check.positive("tolerance", tolerance)
    root = np.sqrt(w)
    scaled = d * root  # W^{1/2} d
    lam = np.full(len(d), 1 / len(d))
    for _ in range(check.whole("max_steps", max_steps)):
        size, vectors = np.linalg.eigh((scaled * lam[:, None]).T @ scaled)  # X
        half = np.sqrt(np.maximum(size, size[-1] * 1e-15))  # of X^{1/2}
        trace = float(half.sum())
        q = ((scaled @ vectors) ** 2 / half).sum(axis=1) / trace  # d' Sigma^{-1} d
        if q.max() <= (1 + goal) ** 2:
            break
        lam = lam * q
        lam /= lam.sum()
    shape = (vectors * half) @ vectors.T * (trace * q.max())
    covariance = shape / np.outer(root, root)
    # from below: the smallest sizes as they are, and an allowance for their rounding
    lower = float(np.sqrt(np.maximum(size - n * np.finfo(float).eps * size[-1], 0)).sum())
    return OptimalNoise(covariance, float(trace * np.sqrt(q.max())), lower)


def interval_differences(n: int) -> FloatArray:
    """All indicators of intervals {i, ..., j} in {1, ..., n}, shape (n (n + 1) / 2, n).

    A vector that is non-decreasing with entries in [0, 1] is a mixture of 0 and the indicators of
    {k, ..., n}; the difference of two such vectors therefore lies in the convex hull of the
    indicators of intervals and their negatives.

    >>> interval_differences(2).tolist()
    [[1.0, 0.0], [1.0, 1.0], [0.0, 1.0]]
    """
    size = check.whole("n", n)
    i, j = np.triu_indices(size)
    s = np.arange(size)
    return np.asarray((i[:, None] <= s) & (s <= j[:, None]), dtype=np.float64)


def unbiased_error_bound(gamma: float, mu: float) -> float:
    """Lower bound sqrt of (3) on the weighted error of every unbiased mu-GDP mechanism.

    Parameters
    ----------
    gamma : float
        Gamma of (1), or a lower bound on it, >= 0.
    mu : float
        > 0.

    Examples
    --------
    >>> round(unbiased_error_bound(1.0, 0.2) * 0.2, 4)  # beside 1 / mu of the Gaussian mechanism
    0.99
    """
    return check.not_negative("gamma", gamma) / float(
        np.sqrt(np.expm1(check.positive("mu", mu) ** 2))
    )
