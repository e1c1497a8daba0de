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

*Where they fail.* Where the process has residuals beyond R that the working model does not expect,
even rare ones: they are clipped, (1) counts each at most as 1, and nothing warns.

*Where they are refused.* (2) leaves out what is of second order, the error of the first centre
times that of the working model, and the bias of clipping around a bad centre. Both are large where
the noise of round 0 is: its root mean square in the values, in units of the range of the returns,
for visit probabilities p_s and the share s_0 of mu^2 = 1/z^2, is

    first_noise = z/n (sum_s 1/p_s) / sqrt(N s_0).                                    (3)

Above :data:`LARGEST_FIRST_NOISE` there are no intervals. (3) is public and known beforehand,
:func:`fewest_for_intervals`, so that a refusal tells nothing and no budget need be spent to see it.
"""

from __future__ import annotations

import numpy as np
from scipy import special

from dprl import _validation as check
from dprl._validation import FloatArray
from dprl.privacy import Guarantee
from dprl.privacy.gaussian_dp import divided_mu
from dprl.private_evaluation.common import promised_mu
from dprl.private_evaluation.recentre_shape_clip import RecentredValues, RoundSettings
from dprl.private_evaluation.working_model import WorkingModel, reachable

#: Of (3); beyond it intervals on the chain were seen to cover too seldom.
LARGEST_FIRST_NOISE = 0.1

#: How RC is run for intervals.
INTERVAL_SETTINGS = RoundSettings(
    shares=(0.1, 0.1, 0.15, 0.62),
    spread_share=0.03,
    bias_weight=1.0,
    correct_bias=False,
    radius_factor=1.5,
    simulated=1000,  # enough where no bias is subtracted
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
        If the release holds no spread, or there were too few trajectories for intervals.

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
    confidence = check.open_unit("confidence", confidence)
    if release.first_noise > LARGEST_FIRST_NOISE:
        factor = release.first_noise / LARGEST_FIRST_NOISE
        raise ValueError(
            "too few trajectories for intervals that cover: "
            f"{factor:.1f} times as many are needed, see fewest_for_intervals"
        )
    k = max(1.0, release.spread_ratio)
    variance = np.diag(release.noise_covariance) + k * np.diag(release.sampling_covariance)
    half = -special.ndtri((1 - confidence) / 2) * np.sqrt(variance)
    return release.values - half, release.values + half


def fewest_for_intervals(
    model: WorkingModel, guarantee: Guarantee, settings: RoundSettings = INTERVAL_SETTINGS
) -> int:
    """The least number of trajectories for which :func:`recentred_intervals` does not refuse.

    Parameters
    ----------
    model, guarantee, settings
        As in :func:`~dprl.private_evaluation.recentre_shape_clip.recentre_shape_clip`; all public.

    Examples
    --------
    >>> from dprl.mdp import Chain
    >>> from dprl.private_evaluation import NEIGHBOURS
    >>> promise = Guarantee(1.0, 1e-6, NEIGHBOURS)
    >>> model = WorkingModel.equal_chain(Chain(start="uniform"))
    >>> fewest_for_intervals(model, promise)
    3616
    """
    check.instance("model", model, WorkingModel)
    check.instance("settings", settings, RoundSettings)
    mu = divided_mu(promised_mu(guarantee), settings.shares[:1])[0]
    example = model.process((model.low + model.high) / 2)
    inverse = 1 / example.visit_probabilities()[reachable(example)]
    first_noise = inverse.sum() / (mu * np.sqrt(inverse.size))  # (3) for n = 1
    return int(np.ceil(first_noise / LARGEST_FIRST_NOISE))
