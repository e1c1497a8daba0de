r"""Membership and attribution without any reinforcement learning, where every rate is exact.

A *policy* is a point theta ~ N(0, tau^2 I_d). A *trajectory* of it is X ~ N(theta, I_d). A *model*
of M trajectories of one policy is their mean, with the noise of a release if there is any:

    f = (X_1 + ... + X_M)/M + N(0, s^2 I_d).                                        (1)

The attack's score of an accused trajectory x is -||x - f||^2: the model is near what trained it.
Three kinds of trajectories can be accused:

    kind        where it comes from                        variance v of x - f, per coordinate
    member      one of X_1, ..., X_M                       1 - 1/M + s^2
    held-out    a new one of the same policy               1 + 1/M + s^2
    other       one of another policy                      1 + 1/M + s^2 + 2 tau^2

for x - f has independent normal coordinates with mean 0; a member enters f with weight 1/M. So
||x - f||^2 is v times a chi-square variable with d degrees of freedom. With ratio
``r = v_-/v_+`` of negatives to positives, scores of independent models, and G the
distribution function of chi-square, F that of Fisher's F with (d, d) degrees of freedom,

    TPR = G(r G^-1(FPR)),        AUC = F(r),                                        (2)

and TPR - FPR is largest at the threshold ``||x - f||^2 = d ln(r) / (1/v_+ - 1/v_-)``, where the two
densities are equal. Members against held-out is *membership*: r = 1 + 2/(M - 1) without noise,
which tends to 1. Members against other, or held-out against other, is *attribution*: r tends to
1 + 2 tau^2, whatever was in the training data.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike
from scipy import stats

from dprl import _validation as check
from dprl._validation import FloatArray

#: The kinds of trajectories that can be accused.
KINDS = ("member", "held-out", "other")
_AT_ONCE = 10**7  # numbers in one batch of a simulation, 80 MB


@dataclass(frozen=True)
class GaussianGame:
    """The sizes of the game; see the module.

    Parameters
    ----------
    members, dimensions : int
        M >= 2, trajectories that train one model, and d >= 1.
    spread, noise : float
        tau and s >= 0, standard deviations per coordinate of the policies and of the noise that is
        added to the model, in units of that of the trajectories of one policy.

    Examples
    --------
    >>> game = GaussianGame(members=100, dimensions=20)
    >>> round(game.auc("member", "held-out"), 3), round(game.auc("held-out", "other"), 3)
    (0.518, 0.991)
    """

    members: int
    dimensions: int
    spread: float = 1.0
    noise: float = 0.0

    def __post_init__(self) -> None:
        check.whole("members", self.members, 2)
        check.whole("dimensions", self.dimensions)
        for name in ("spread", "noise"):
            check.not_negative(name, getattr(self, name))

    def variance(self, kind: str) -> float:
        """v of a kind, per coordinate; > 0."""
        if kind not in KINDS:
            raise ValueError(f"kind must be one of {', '.join(KINDS)}, got {kind!r}")
        weight = -1 if kind == "member" else 1
        away = 2 * self.spread**2 if kind == "other" else 0.0
        return 1 + weight / self.members + self.noise**2 + away

    def tpr(self, fpr: ArrayLike, positives: str, negatives: str) -> FloatArray:
        """The ROC curve (2) of two of :data:`KINDS`: the TPR at each ``fpr`` in [0, 1].

        Examples
        --------
        >>> game = GaussianGame(members=10, dimensions=20)
        >>> game.tpr([0.01, 0.5], "member", "held-out").round(3).tolist()
        [0.034, 0.741]
        """
        f = check.unit_array("fpr", fpr)
        law = stats.chi2(self.dimensions)
        return np.asarray(law.cdf(self._ratio(positives, negatives) * law.ppf(f)))

    def auc(self, positives: str, negatives: str) -> float:
        """The area below the ROC curve, exact, (2); kinds as in :meth:`tpr`."""
        ratio = self._ratio(positives, negatives)
        return float(stats.f(self.dimensions, self.dimensions).cdf(ratio))

    def advantage(self, positives: str, negatives: str) -> float:
        """The largest TPR - FPR of a threshold, exact; kinds as in :meth:`tpr`.

        0 if the negatives are at least as near to the model as the positives.
        """
        plus, minus = self.variance(positives), self.variance(negatives)
        if minus <= plus:
            return 0.0
        at = self.dimensions * math.log(minus / plus) / (1 / plus - 1 / minus)
        law = stats.chi2(self.dimensions)
        return float(law.cdf(at / plus) - law.cdf(at / minus))

    def scores(
        self, runs: int, rng: np.random.Generator, clip: float | None = None
    ) -> dict[str, FloatArray]:
        """Scores (runs,) of one accused of each kind per model, played; O(runs M d).

        With ``clip`` > 0, trajectories in the mean (1) are shortened to that norm: replacing one
        then moves the mean by at most 2 clip / M. The accused are not clipped.
        """
        number, source = check.whole("runs", runs), check.generator(rng)
        limit = None if clip is None else check.positive("clip", clip)
        size = max(1, _AT_ONCE // (self.members * self.dimensions))
        parts = [
            self._play(min(size, number - start), source, limit) for start in range(0, number, size)
        ]
        return {kind: np.concatenate([part[kind] for part in parts]) for kind in KINDS}

    def _play(
        self, runs: int, rng: np.random.Generator, clip: float | None
    ) -> dict[str, FloatArray]:
        policy, other = self.spread * rng.standard_normal((2, runs, self.dimensions))
        training = policy[:, None] + rng.standard_normal((runs, self.members, self.dimensions))
        used = training
        if clip is not None:
            length = np.linalg.norm(training, axis=-1, keepdims=True)
            used = training * np.minimum(1.0, clip / length)
        model = used.mean(axis=1) + self.noise * rng.standard_normal((runs, self.dimensions))
        fresh = rng.standard_normal((2, runs, self.dimensions))
        accused = {
            "member": training[:, 0],
            "held-out": policy + fresh[0],
            "other": other + fresh[1],
        }
        return {kind: -((x - model) ** 2).sum(axis=-1) for kind, x in accused.items()}

    def _ratio(self, positives: str, negatives: str) -> float:
        return self.variance(negatives) / self.variance(positives)
