r"""RC for returns, knowing nothing but their range: no model, no visit probabilities.

The rounds of :mod:`dprl.private_evaluation.recentre_shape_clip` with first-visit returns, and with
all that the working model supplied released instead, from shares of mu^2:

1. visit counts, with noise of variance N/mu_1^2 for N states: replacing one trajectory moves each
   by at most 1. They give p, at least the standard deviation of their noise;
2. centred sufficient statistics with noise by p: the first centre V, and, with the counts of
   both releases weighted by their variances, a better p;
3. in each round u = v (F - V)/p and S = diag(1/p): the noise of step 2 leaves V with errors
   proportional to p^{-1/2}, so that E u_s^2 is about p^{-2}, and S its root; a histogram of the
   norms on a public logarithmic grid, with noise of variance 2/mu_h^2 (one trajectory leaves one
   bin for another), which gives the radius; and the mean of the clipped u.

Each release is mu_k-GDP given those before, and they compose to the promise. Assumed known: the
number of states and the range of the returns.
"""

from __future__ import annotations

import numpy as np

from dprl import _validation as check
from dprl._validation import FloatArray
from dprl.privacy import Guarantee
from dprl.privacy.gaussian_dp import divided_mu
from dprl.private_evaluation.common import (
    PrivateEstimate,
    promised_mu,
    public_range,
)
from dprl.private_evaluation.sufficient_statistics import COUNT_SCALE, noisy_statistics
from dprl.trajectories import FirstVisitReturns

#: Shares of mu^2: counts, statistics, then histogram and mean of each round.
SHARES = (0.04, 0.26, 0.02, 0.13, 0.05, 0.5)

_FINENESS = 1.5  # quotient of neighbouring edges: few bins, since noise adds up behind an edge
_BINS = 24
_BIAS_WEIGHT = 0.25  # in squares: residuals of both signs cancel
_SURE = 3.0  # standard deviations; noise alone exceeds them in at most 3 % of histograms


def recentre_clip_structure_free(
    data: FirstVisitReturns,
    guarantee: Guarantee,
    *,
    f_max: float,
    f_min: float = 0.0,
    shares: tuple[float, ...] = SHARES,
    rng: np.random.Generator,
) -> PrivateEstimate:
    """Private values of all states; neighbours replace one trajectory.

    Parameters
    ----------
    data : FirstVisitReturns
        Clipped to the range here.
    guarantee : Guarantee
        The promise; delta > 0.
    f_max, f_min : float
        Public range of the returns and of the values.
    shares : tuple of float
        As :data:`SHARES`, with any number of rounds.
    rng : numpy.random.Generator
        For study only: floating-point noise is not safe for a release.

    Examples
    --------
    >>> from dprl.mdp import Chain
    >>> from dprl.private_evaluation import NEIGHBOURS
    >>> from dprl.trajectories import chain_first_visit_returns
    >>> chain, rng = Chain(start="first"), np.random.default_rng(0)
    >>> data = chain_first_visit_returns(chain, 10_000, rng)
    >>> promise = Guarantee(1.0, 1e-6, NEIGHBOURS)
    >>> values = recentre_clip_structure_free(data, promise, f_max=1.0, rng=rng).theta
    >>> bool(np.abs(values - chain.values()).max() < 0.01)
    True
    """
    low, high = public_range(f_max, f_min)
    check.instance("data", data, FirstVisitReturns)
    mu_total = promised_mu(guarantee)
    check.generator(rng)
    if not isinstance(shares, tuple) or len(shares) < 4 or len(shares) % 2:
        raise ValueError(
            f"shares must be a tuple of two numbers and two for each round, got {shares!r}"
        )
    mu = divided_mu(mu_total, shares)
    n, (_, states) = len(data), data.returns.shape
    returns = data.clipped(low, high)

    sigma = np.sqrt(states) / mu[0]
    counts = returns.visit_counts + sigma * rng.standard_normal(states)
    p = np.clip(counts, min(sigma, n), n) / n
    release = noisy_statistics(returns, mu[1], f_max=high, f_min=low, expected_visits=p, rng=rng)
    centre = release.values()
    second = release.sigma / COUNT_SCALE
    counts = (counts / sigma**2 + release.counts / second**2) / (sigma**-2 + second**-2)
    p = np.clip(counts, np.minimum((sigma**-2 + second**-2) ** -0.5, n), n) / n
    shape = 1 / p  # diagonal of S
    longest = (high - low) * np.sqrt((p**-2 / shape).sum())
    for mu_h, mu_k in mu[2:].reshape(-1, 2):
        u = returns.visited * (returns.returns - centre) / p
        norms = np.linalg.norm(u / np.sqrt(shape), axis=1)
        noise_per_radius = 2 * np.sqrt(shape.sum()) / (mu_k * n)
        radius = private_radius(norms, longest, noise_per_radius, shape.mean(), mu_h, rng)
        clipped = u * (radius / np.maximum(norms, radius))[:, None]
        noise = 2 * radius / (mu_k * n) * np.sqrt(shape) * rng.standard_normal(states)
        centre = np.clip(centre + clipped.mean(axis=0) + noise, low, high)
    return PrivateEstimate(centre, guarantee)


def private_radius(
    norms: FloatArray,
    longest: float,
    noise_per_radius: float,
    scale: float,
    mu: float,
    rng: np.random.Generator,
) -> float:
    """A radius from a noisy histogram of norms, mu-GDP; an edge of a public grid below ``longest``.

    It minimises (noise_per_radius R)^2 + scale E[(norm - R)_+]^2/4, the noise and the bias of
    clipping at R as far as the histogram tells: residuals beyond an edge are counted if they
    exceed their noise three times.
    """
    edges = longest * _FINENESS ** np.arange(1.0 - _BINS, 1.0)
    bins = np.minimum(np.searchsorted(edges, norms), _BINS - 1)
    histogram = np.bincount(bins, minlength=_BINS).astype(np.float64)
    noisy = histogram + np.sqrt(2) / mu * rng.standard_normal(_BINS)
    # the longest norms first; where no more than noise remains behind an edge, nothing does
    behind = np.cumsum(noisy[::-1])[::-1]
    noise_behind = np.sqrt(2 * np.arange(_BINS, 0, -1)) / mu
    share = np.where(behind > _SURE * noise_behind, behind, 0.0) / len(norms)
    share = np.clip(np.maximum.accumulate(share[::-1])[::-1], 0, 1)  # P[norm > edge below]
    width = np.diff(edges)
    excess = np.append(np.cumsum((share[1:] * width)[::-1])[::-1], 0.0)  # E (norm - R)_+
    error = (noise_per_radius * edges) ** 2 + _BIAS_WEIGHT * scale * excess**2
    return float(edges[int(error.argmin())])
