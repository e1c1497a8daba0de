r"""Intervals for the value of every state, from what RC releases and nothing else.

The last round of :func:`~dprl.private_evaluation.recentre_shape_clip.recentre_shape_clip` is

    values = centre + (1/n) sum clip(u_i) + noise,

so that, clipping aside, its error is that of a mean of n independent vectors plus noise whose
covariance K is known exactly. Under the working model that mean has covariance C/n, with C the
second moment of u. The working model may be wrong: a small share of the budget releases

    E min(||S^{-1/2} u|| / R, 1)^2,  which one trajectory moves by at most 1/n,             (1)

and with k the larger of 1 and the quotient of (1) by its value under the working model,

    values_s +- q sqrt(K_ss + k C_ss / n),   q a normal quantile.                         (2)

Clipping must be rare for (2): with :data:`INTERVAL_SETTINGS` the last radius is half as large again
as the one of least error, chosen with the full weight of the bias, and no bias is subtracted.
The cover is approximate: normal, for large n, and not simultaneous over states.
"""

from __future__ import annotations

import numpy as np
from scipy import special

from dprl import _validation as check
from dprl._validation import FloatArray
from dprl.private_evaluation.recentre_shape_clip import RecentredValues, RoundSettings

#: How RC is run for intervals.
INTERVAL_SETTINGS = RoundSettings(
    shares=(0.1, 0.1, 0.15, 0.62),
    spread_share=0.03,
    bias_weight=1.0,
    correct_bias=False,
    radius_factor=1.5,
)


def recentred_intervals(
    release: RecentredValues, confidence: float = 0.95
) -> tuple[FloatArray, FloatArray]:
    """Intervals (2) for each state that is not terminal; post-processing.

    Parameters
    ----------
    release : RecentredValues
        With a ``spread_ratio``: run with :data:`INTERVAL_SETTINGS`.
    confidence : float
        In (0, 1), for each state.

    Returns
    -------
    low, high : ndarray, shape (N,)
        Not cut at the range of the values.

    Raises
    ------
    ValueError
        If the release holds no spread.

    Examples
    --------
    >>> from dprl.mdp import Chain
    >>> from dprl.private_evaluation import NEIGHBOURS
    >>> from dprl.private_evaluation.recentre_shape_clip import recentre_shape_clip
    >>> from dprl.private_evaluation.working_model import WorkingModel
    >>> from dprl.privacy import Guarantee
    >>> from dprl.trajectories import simulate
    >>> chain, rng = Chain(start="first"), np.random.default_rng(0)
    >>> release = recentre_shape_clip(
    ...     simulate(chain, 10_000, rng), WorkingModel.equal_chain(chain),
    ...     Guarantee(1.0, 1e-6, NEIGHBOURS), f_max=1.0, settings=INTERVAL_SETTINGS, rng=rng,
    ... )
    >>> low, high = recentred_intervals(release)
    >>> bool(np.median(high - low) < 0.003)
    True
    """
    check.instance("release", release, RecentredValues)
    if release.spread_ratio is None:
        raise ValueError("the release has no spread: run it with settings=INTERVAL_SETTINGS")
    k = max(1.0, release.spread_ratio)
    variance = np.diag(release.noise_covariance) + k * np.diag(release.sampling_covariance)
    half = -special.ndtri((1 - check.open_unit("confidence", confidence)) / 2) * np.sqrt(variance)
    return release.values - half, release.values + half
