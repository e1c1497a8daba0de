r"""Counts and sums of returns, released once with Gaussian noise; any regression afterwards.

Let v be 1 if a trajectory visits state s, and F its return in [f_min, f_max], of middle c and
width w. Release for each state, with a = sqrt(3)/2,

    C_s = sum v + N(0, (sigma_s/a)^2),    S_s = sum v (F - c)/w + N(0, sigma_s^2).       (1)

*The count is free.* Replace one trajectory, and measure the change of (C_s, S_s) in units of its
noise. If both trajectories visit s, S_s moves by at most 1 and C_s not at all: 1/sigma_s^2 in
squares. If one does, S_s moves by at most 1/2 and C_s by 1: (a^2 + 1/4)/sigma_s^2 = 1/sigma_s^2.
Hence the release is mu-GDP if and only if

    sum_s 1/sigma_s^2 <= mu^2,                                                         (2)

attained by F = f_max everywhere against F = f_min everywhere. Sums about 0 with counts of
their own would cost twice as much in squares.

*Noise by expected visits.* V_s = c + w S_s/C_s has, where s is visited c_s times, noise of variance
about (w sigma_s/c_s)^2. The sum over s is least under (2) for

    sigma_s^2 = c_s (sum_t 1/c_t) / mu^2,                                              (3)

by Cauchy-Schwarz; the noise then has a root mean square of w sum_s (1/c_s) / (mu sqrt(N)).
The c_s are public, for example expected; wrong ones cost accuracy, not privacy.

LSW, LSL and every other regression on visit counts and average returns are functions of (1): they
cost nothing more, whatever their features, weights and ridge.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from dprl import _validation as check
from dprl._validation import FloatArray
from dprl.evaluation import regression_weights
from dprl.features import feature_matrix, weighted_pseudo_inverse
from dprl.privacy import Guarantee
from dprl.privacy.gaussian_dp import gaussian_mu
from dprl.private_evaluation.common import NEIGHBOURS, clipped_statistics, public_range
from dprl.trajectories import FirstVisitReturns, VisitStatistics

#: a of (1).
COUNT_SCALE = float(np.sqrt(3) / 2)
_NARROWEST = 1e-6  # width of a range of returns over their size: c is then exact to 1e-10 of it


@dataclass(frozen=True, eq=False)
class NoisyStatistics:
    """A release of equation (1), and what is public about it.

    Attributes
    ----------
    counts : ndarray, shape (..., N)
        C, noisy: may be negative and is not whole.
    sums : ndarray, shape (..., N)
        S, of returns about the middle of their range in units of its width.
    sigma : ndarray, shape (N,)
        Standard deviation of the noise of S; that of C is 2/sqrt(3) times as large.
    n_trajectories : int
    f_min, f_max : float
        Public range of the returns.
    """

    counts: FloatArray
    sums: FloatArray
    sigma: FloatArray
    n_trajectories: int
    f_min: float
    f_max: float

    @property
    def _visits(self) -> FloatArray:
        """C, at least the standard deviation of its noise."""
        visits: FloatArray = np.maximum(self.counts, self.sigma / COUNT_SCALE)
        return visits

    def values(self) -> FloatArray:
        """V = c + w S / C within [f_min, f_max]; shape (..., N)."""
        middle, width = (self.f_min + self.f_max) / 2, self.f_max - self.f_min
        return np.clip(middle + width * self.sums / self._visits, self.f_min, self.f_max)

    def lsw(self, features: ArrayLike, weights: ArrayLike) -> FloatArray:
        """Parameters of LSW on the noisy averages, as :func:`dprl.evaluation.lsw`."""
        phi = feature_matrix(features, self.counts.shape[-1])
        w = check.weight_vector("weights", weights, phi.shape[0])
        return (self.values() * np.sqrt(w)) @ weighted_pseudo_inverse(phi, w).T

    def lsl(self, features: ArrayLike, weights: ArrayLike, ridge: float) -> FloatArray:
        """Parameters of LSL on the noisy counts and averages, as :func:`dprl.evaluation.lsl`."""
        phi = feature_matrix(features, self.counts.shape[-1])
        rho = regression_weights(weights, phi.shape[0])
        gamma = rho * self._visits / self.n_trajectories
        lam = check.positive("ridge", ridge) / (2 * self.n_trajectories)
        gram = np.einsum("sd,...s,se->...de", phi, gamma, phi, optimize=True)
        target = (gamma * self.values()) @ phi
        matrix = gram + lam * np.eye(phi.shape[1])
        return np.asarray(np.linalg.solve(matrix, target[..., None])[..., 0])


def statistics_sigma(n_states: int, mu: float, expected_visits: ArrayLike | None) -> FloatArray:
    """Noise of equation (3), shape (N,); without expected visits the same for all states.

    Only the ratios of the expected visits matter, each > 0.

    >>> statistics_sigma(4, 0.5, None).tolist()
    [4.0, 4.0, 4.0, 4.0]
    """
    size = check.whole("n_states", n_states)
    c = np.ones(size) if expected_visits is None else expected_visits
    visits = check.positive_array("expected_visits", c)
    if visits.shape != (size,):
        raise ValueError(f"expected_visits must have {size} entries, got shape {visits.shape}")
    return np.asarray(np.sqrt(visits * (1 / visits).sum()) / check.positive("mu", mu))  # (3)


def noisy_statistics(
    data: FirstVisitReturns | VisitStatistics,
    mu: float,
    *,
    f_max: float,
    f_min: float = 0.0,
    expected_visits: ArrayLike | None = None,
    rng: np.random.Generator,
) -> NoisyStatistics:
    """Release (1) with mu-GDP; neighbours replace one trajectory, their number is public.

    Parameters
    ----------
    data : FirstVisitReturns or VisitStatistics
        Returns are clipped to [f_min, f_max]; averages whose returns were not clipped to a range
        inside it are refused. Batches in leading axes are released one by one.
    mu : float
        > 0.
    f_max, f_min : float
        Public range of the returns; its width is at least a millionth of its larger end.
    expected_visits : array_like, shape (N,), optional
        c of (3), > 0, public. Without it all states get the same noise.
    rng : numpy.random.Generator
        For study only: floating-point noise is not safe for a release.

    Examples
    --------
    >>> from dprl.mdp import Chain
    >>> from dprl.trajectories import chain_visit_statistics
    >>> chain, rng = Chain(start="first"), np.random.default_rng(0)
    >>> data = chain_visit_statistics(chain, 10_000, rng, bounds=(0, 1))
    >>> release = noisy_statistics(data, 0.2367, f_max=1.0, rng=rng)
    >>> bool(np.abs(release.values() - chain.values()).max() < 0.02)
    True
    """
    low, high = public_range(f_max, f_min)
    if high - low < max(_NARROWEST * max(abs(low), high), 1e-300):
        raise ValueError(
            f"the range of the returns is too narrow for floating point, got f_min = {f_min!r}, "
            f"f_max = {f_max!r}: subtract a public number from the returns, or scale them"
        )
    statistics = clipped_statistics(data, low, high)
    sigma = statistics_sigma(statistics.n_states, mu, expected_visits)
    check.generator(rng)
    middle, width = (low + high) / 2, high - low
    sums = statistics.counts * (statistics.mean_returns - middle) / width
    shape = (2, *sums.shape)
    count_noise, sum_noise = sigma * rng.standard_normal(shape)
    return NoisyStatistics(
        counts=statistics.counts + count_noise / COUNT_SCALE,
        sums=sums + sum_noise,
        sigma=sigma,
        n_trajectories=statistics.n_trajectories,
        f_min=low,
        f_max=high,
    )


def release_statistics(
    data: FirstVisitReturns | VisitStatistics,
    *,
    epsilon: float,
    delta: float,
    f_max: float,
    f_min: float = 0.0,
    expected_visits: ArrayLike | None = None,
    rng: np.random.Generator,
) -> tuple[NoisyStatistics, Guarantee]:
    """:func:`noisy_statistics` with the largest mu that keeps (epsilon, delta).

    Parameters as there; epsilon > 0 and delta in (0, 1).
    """
    mu = gaussian_mu(epsilon, delta)
    release = noisy_statistics(
        data, mu, f_max=f_max, f_min=f_min, expected_visits=expected_visits, rng=rng
    )
    return release, Guarantee(epsilon, delta, NEIGHBOURS)
