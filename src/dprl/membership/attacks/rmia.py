r"""The robust membership inference attack (RMIA) over shadow models and a population.

Like LiRA (:mod:`dprl.membership.attacks.lira`) it asks whether a model fits the accused record x
better than models do in general. It compares the answer with those for *population* records z,
drawn from the same source, on which no model was trained. Let p(x|theta) in (0, 1] say how
likely x is under the model theta, 1 for a perfect fit, and p(x) its mean over models. Then

    LR(x, z) = (p(x|theta) / p(x)) / (p(z|theta) / p(z))                                (1)
    score(x) = share of the population records z with LR(x, z) >= gamma                 (2)

For one theta, (2) is a rising function of p(x|theta) / p(x): z and gamma do not change the order
of the records, they put the scores of different models on one scale. With gamma = 1 the score
of a non-member is nearly uniform, and "accuse above 0.99" has a false positive rate near 1 %.

p(x) needs shadow models of which the attacker knows the training data. With p_in and p_out the
means of p(x|theta') over those that hold x and those that do not,

    online    p(x) = (p_in + p_out) / 2                                                 (3)
    offline   p(x) = ((1 + a) p_out + 1 - a) / 2                                        (4)

(4) puts p_in = a p_out + (1 - a) in place of p_in: no shadow holds x. This line goes through
(1, 1), since a record that is answered perfectly without membership is so with it; a in [0, 1]
says how little membership adds (a = 1: nothing). No model holds z; p(z) is the mean of
p(z|theta') online, and (4) of it offline, as in the authors' published program.

The source is about classifiers, where p(x|theta) is the probability given to the true label. For
scores that are minus a distance :func:`likelihood` makes one.

Sources: Zarifzadeh, Liu and Shokri 2024, sections 3 and 4; a of (4) as chosen by their program,
on shadow models (:func:`chosen_a`).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

from dprl import _validation as check
from dprl._validation import BoolArray, FloatArray, IntArray
from dprl.membership.metrics import roc_curve

#: Candidates for a in equation (4).
CANDIDATES = tuple(round(0.1 * k, 1) for k in range(11))


def likelihood(scores: ArrayLike, unit: float) -> FloatArray:
    """exp(score / unit) in (0, 1], for scores <= 0 that are minus a distance; same shape.

    Up to its constant the density of Laplace's law at that distance; 1 for no distance. The unit,
    > 0, must not depend on who is a member of the target. Never below 1e-300.

    >>> likelihood([0.0, -2.0], unit=2.0).round(3).tolist()
    [1.0, 0.368]
    """
    s = check.finite_array("scores", scores)
    if (s > 0).any():
        raise ValueError(f"scores must be minus a distance, got {s.max():g}")
    return np.maximum(np.exp(s / check.positive("unit", unit)), 1e-300)


def online(
    p: ArrayLike,
    members: ArrayLike,
    population: ArrayLike,
    *,
    groups: ArrayLike | None = None,
    gamma: float = 1.0,
) -> FloatArray:
    """Score (2) with (3) of every model against every record.

    Parameters
    ----------
    p : array_like, shape (models, records)
        p(x|theta) in (0, 1].
    members : array_like of bool or of 0 and 1, shape (models, records)
        Whether the record was in the model's training data.
    population : array_like, shape (models, z)
        p(z|theta) in (0, 1] for z >= 1 records that no model was trained on.
    groups : array_like of int, shape (models,), optional
        Models of the target's own group are not among its shadows, as for
        :func:`dprl.membership.attacks.lira.online`. By default each model is a group.
    gamma : float
        > 0.

    Returns
    -------
    ndarray, shape (models, records)
        In [0, 1], multiples of 1/z; larger speaks for a member.

    Raises
    ------
    ValueError
        If shapes do not fit, a number is outside its range, there is one group only, or a record
        has no shadow of a kind that is needed.

    Examples
    --------
    >>> members = [[1, 0], [0, 1], [1, 0], [0, 1]]
    >>> p = [[0.9, 0.2], [0.5, 0.4], [0.9, 0.2], [0.5, 0.4]]
    >>> online(p, members, population=[[0.3, 0.5]] * 4)[0].tolist()
    [1.0, 0.0]
    """
    at = _Setting(p, members, population, groups, gamma)
    rows = []
    for target in range(at.models):
        shadow = at.group != at.group[target]
        member = at.member[shadow]
        p_x = (_mean(at.p[shadow], member) + _mean(at.p[shadow], ~member)) / 2
        rows.append(at.score(target, p_x, at.z[shadow].mean(axis=0)))
    return np.stack(rows)


def offline(
    p: ArrayLike,
    members: ArrayLike,
    population: ArrayLike,
    *,
    a: ArrayLike,
    groups: ArrayLike | None = None,
    gamma: float = 1.0,
) -> FloatArray:
    """Score (2) with (4) of every model against every record; only shadows without it are used.

    ``a`` is one number in [0, 1], or one for each model as target. The rest as for :func:`online`.

    Examples
    --------
    >>> members = [[1, 0], [0, 1], [1, 0], [0, 1]]
    >>> p = [[0.9, 0.2], [0.5, 0.4], [0.9, 0.2], [0.5, 0.4]]
    >>> offline(p, members, population=[[0.3, 0.5]] * 4, a=0.3)[0].tolist()
    [1.0, 0.0]
    """
    at = _Setting(p, members, population, groups, gamma)
    weights = check.unit_array("a", a)
    if weights.shape not in ((), (at.models,)):
        raise ValueError(f"a must be one number, or one per model, got shape {weights.shape}")
    rows = []
    for target, weight in enumerate(np.broadcast_to(weights, at.models)):
        shadow = at.group != at.group[target]
        outside = _mean(at.p[shadow], ~at.member[shadow])
        rows.append(
            at.score(target, _between(outside, weight), _between(at.z[shadow].mean(axis=0), weight))
        )
    return np.stack(rows)


def chosen_a(
    p: ArrayLike,
    members: ArrayLike,
    population: ArrayLike,
    *,
    groups: ArrayLike | None = None,
    candidates: Sequence[float] = CANDIDATES,
) -> float:
    """The a of (4) with which models attack each other best, offline.

    Give it the *shadows* of a target: nothing about the target's own training data is then used.
    Each is attacked by those of other groups; the candidate with the largest mean area under the
    ROC curve is chosen, the first one if several have it. Parameters as for :func:`online`; each
    model needs members and non-members.

    Examples
    --------
    >>> members = [[1, 0], [0, 1], [1, 0], [0, 1]]
    >>> p = [[0.9, 0.2], [0.5, 0.4], [0.9, 0.2], [0.5, 0.4]]
    >>> chosen_a(p, members, population=[[0.3, 0.5, 0.7]] * 4, candidates=[0.3])
    0.3
    """
    at = _Setting(p, members, population, groups, 1.0)
    values = [check.unit("each of candidates", one) for one in candidates]
    if not values:
        raise ValueError("candidates must hold at least one number")
    means = []
    for weight in values:
        found = offline(at.p, at.member, at.z, a=weight, groups=at.group)
        each = zip(at.member, found, strict=True)
        means.append(np.mean([roc_curve(y, s).area for y, s in each]))
    return values[int(np.argmax(means))]


def _between(outside: FloatArray, a: float) -> FloatArray:
    """Equation (4)."""
    return ((1 + a) * outside + 1 - a) / 2


def _mean(p: FloatArray, chosen: BoolArray) -> FloatArray:
    """Mean over the chosen models, of each record."""
    count = chosen.sum(axis=0)
    if (count < 1).any():
        raise ValueError(f"record {int(np.argmin(count))} lacks a shadow model of a kind it needs")
    return np.asarray((p * chosen).sum(axis=0) / count)


class _Setting:
    """Checked arguments."""

    def __init__(
        self,
        p: ArrayLike,
        members: ArrayLike,
        population: ArrayLike,
        groups: ArrayLike | None,
        gamma: float,
    ) -> None:
        self.p, self.z = (
            _probabilities(name, values) for name, values in (("p", p), ("population", population))
        )
        self.member = check.binary_array("members", members)
        self.gamma = check.positive("gamma", gamma)
        self.models = len(self.p)
        if self.member.shape != self.p.shape or len(self.z) != self.models:
            raise ValueError(
                "p and members must have the shape (models, records), population (models, z), "
                f"got {self.p.shape}, {self.member.shape}, {self.z.shape}"
            )
        numbers = np.arange(self.models) if groups is None else np.asarray(groups)
        if numbers.shape != (self.models,) or numbers.dtype.kind not in "iu":
            raise ValueError(f"groups must be one whole number per model, {self.models} in all")
        self.group: IntArray = numbers
        if np.unique(numbers).size < 2:
            raise ValueError("at least two groups of models are needed: a target and its shadows")

    def score(self, target: int, p_x: FloatArray, p_z: FloatArray) -> FloatArray:
        """Equation (2), given p(x) and p(z)."""
        limits = np.sort(self.gamma * self.z[target] / p_z)
        below = np.searchsorted(limits, self.p[target] / p_x, side="right")
        return np.asarray(below / limits.size)


def _probabilities(name: str, values: ArrayLike) -> FloatArray:
    x = check.unit_array(name, values)
    if x.ndim != 2 or 0 in x.shape or (x == 0).any():
        raise ValueError(f"{name} must hold numbers in (0, 1], in two dimensions, got {x.shape}")
    return x
