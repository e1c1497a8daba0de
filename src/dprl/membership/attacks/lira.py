r"""The likelihood-ratio attack over shadow models (LiRA).

A record is accused of having been in a model's training data. Any *score* of the pair
(model, record) that says how well the model fits the record is given; larger speaks for a
member. How well a model fits a record depends on the record much more than on membership,
so one threshold for all records wastes the score. LiRA compares with *shadow models* of
which the attacker knows the training data. For each record it fits one normal law to the
scores of the shadow models that were trained on it, N(mu_in, sigma_in^2), and one to those
of the others, N(mu_out, sigma_out^2). The attack's own score is

    online    log N(s; mu_in, sigma_in^2) - log N(s; mu_out, sigma_out^2)               (1)
    offline   (s - mu_out) / sigma_out                                                  (2)

with s the target's score of the record. By the lemma of Neyman and Pearson (1) with the true
laws is the best attack on one record that sees only s. Offline needs no model that was
trained on the accused record; (2) is a rising function of the one-sided p-value of the source.

Here the models of one population, each trained on a random half of a pool of records, take
turns: one is the target, the others are its shadows.

Sources: Carlini et al. 2022, section V and algorithm 1.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from dprl import _validation as check
from dprl._validation import BoolArray, FloatArray, IntArray

# A standard deviation is at least this share of the spread of all the shadows' scores.
_FLOOR = 1e-6


def online(scores: ArrayLike, members: ArrayLike, *, groups: ArrayLike | None = None) -> FloatArray:
    r"""Log-likelihood ratio (1) of every model against every record.

    Parameters
    ----------
    scores : array_like, shape (models, records) or (models, records, k)
        Larger for a member. With a last axis, k scores of one record (say, one per time step) that
        are treated as independent given membership: their ratios are added.
    members : array_like of bool or of 0 and 1, shape (models, records)
        Whether the record was in the model's training data.
    groups : array_like of int, shape (models,), optional
        Models of the target's own group are not among its shadows. By default each model is a
        group. If the models come in pairs that share out the pool, let each pair be a group:
        otherwise the *number* of shadows that hold a record tells whether the target holds it.

    Returns
    -------
    ndarray, shape (models, records)
        Larger speaks for a member; 0 where the shadows know nothing.

    Notes
    -----
    Each record needs shadows of both kinds. All records have one pair of variances, as the source
    advises for less than about 64 shadow models, with the number of observations minus that of
    records in the denominator. Standard deviations are at least a millionth of the spread of all
    the shadows' scores. O(models^2 x records x k).

    Examples
    --------
    >>> members = [[1, 0], [0, 1], [1, 0], [0, 1], [1, 0], [0, 1]]
    >>> scores = [[2.1, 7.0], [1.0, 8.0], [1.9, 6.9], [1.2, 8.1], [2.0, 7.1], [0.9, 7.9]]
    >>> ratio = online(scores, members)
    >>> ((ratio > 0) == np.array(members)).all()
    np.True_
    """
    s, member, group = _population(scores, members, groups)
    out = np.empty(member.shape)
    for target in range(member.shape[0]):
        shadow = group != group[target]
        inside, outside = (
            _fit(s[shadow], chosen, kind)
            for chosen, kind in ((member[shadow], "in"), (~member[shadow], "out"))
        )
        floor = _FLOOR * _spread(s[shadow])
        out[target] = (
            _log_density(s[target], *inside, floor) - _log_density(s[target], *outside, floor)
        ).sum(axis=-1)
    return out


def offline(
    scores: ArrayLike, members: ArrayLike, *, groups: ArrayLike | None = None
) -> FloatArray:
    r"""Standardised score (2) of every model against every record.

    Only shadows that were *not* trained on the record are used: an attacker can train them before
    knowing whom to accuse. k standardised scores of a record are added and divided by the root of
    k: for a non-member whose scores are independent the answer is roughly standard normal.
    Parameters, shapes, errors as for :func:`online`.

    Examples
    --------
    >>> members = [[1, 0], [0, 1], [0, 0], [0, 0], [1, 1]]
    >>> scores = [[2.1, 7.0], [1.0, 8.0], [0.9, 6.9], [1.1, 7.1], [2.0, 8.2]]
    >>> offline(scores, members)[0].round(1).tolist()
    [9.5, 0.0]
    """
    s, member, group = _population(scores, members, groups)
    out = np.empty(member.shape)
    for target in range(member.shape[0]):
        shadow = group != group[target]
        mean, deviation = _fit(s[shadow], ~member[shadow], "out")
        deviation = np.maximum(deviation, _FLOOR * _spread(s[shadow]))
        z = (s[target] - mean) / deviation
        out[target] = z.sum(axis=-1) / np.sqrt(z.shape[-1])
    return out


def _fit(scores: FloatArray, chosen: BoolArray, kind: str) -> tuple[FloatArray, FloatArray]:
    """Mean and standard deviation over the chosen models; both (records, k)."""
    count = chosen.sum(axis=0)
    if (count < 1).any():
        raise ValueError(f'record {int(np.argmin(count))} has no shadow model of the kind "{kind}"')
    weight = chosen[:, :, None]
    mean = (scores * weight).sum(axis=0) / count[:, None]
    squares = (((scores - mean) * weight) ** 2).sum(axis=0)
    freedom = int((count - 1).sum())
    if freedom == 0:
        raise ValueError(
            f'a pooled variance of the kind "{kind}" needs two shadow models of that kind for '
            "at least one record"
        )
    return mean, np.broadcast_to(np.sqrt(squares.sum(axis=0) / freedom), mean.shape)


def _log_density(
    x: FloatArray, mean: FloatArray, deviation: FloatArray, floor: FloatArray
) -> FloatArray:
    """Up to a constant."""
    sd = np.maximum(deviation, floor)
    out: FloatArray = -0.5 * ((x - mean) / sd) ** 2 - np.log(sd)
    return out


def _spread(scores: FloatArray) -> FloatArray:
    """Standard deviation of each of the k scores over models and records, never 0."""
    deviation = scores.std(axis=(0, 1))
    return np.where(deviation > 0, deviation, 1.0)


def _population(
    scores: ArrayLike, members: ArrayLike, groups: ArrayLike | None
) -> tuple[FloatArray, BoolArray, IntArray]:
    s = check.finite_array("scores", scores)
    if s.ndim == 2:
        s = s[:, :, None]
    if s.ndim != 3 or 0 in s.shape:
        raise ValueError(
            "scores must have the shape (models, records) or (models, records, k) and hold at "
            f"least one of each, got {np.shape(scores)}"
        )
    m = check.binary_array("members", members)
    if m.shape != s.shape[:2]:
        raise ValueError(
            f"members must have one entry per model and record, {s.shape[:2]}, got {m.shape}"
        )
    if groups is None:
        g = np.arange(m.shape[0])
    else:
        numbers = check.finite_array("groups", groups, ndim=1)
        if numbers.shape != (m.shape[0],) or (numbers != np.floor(numbers)).any():
            raise ValueError(f"groups must be one whole number per model, {m.shape[0]} in all")
        g = numbers.astype(np.int64)
    if np.unique(g).size < 2:
        raise ValueError("at least two groups of models are needed: a target and its shadows")
    return s, m, g
