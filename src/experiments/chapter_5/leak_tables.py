r"""Attacks on members and non-members of one distribution: how much they find.

Attacks judge by one threshold for all trajectories, or by likelihood ratios over shadow models
(:mod:`dprl.membership.attacks.lira`). :func:`attack_table` and :func:`twin_table` are about the
models of a measurement (:mod:`experiments.chapter_5.leaks`). The unit there is the pair of models:
intervals are over pairs, and speak of new pairs of the same oracles and pools.
:func:`study_table` is about the models of a study; there the unit is the oracle.

Sources: Carlini et al. 2022 (true positives at a low false positive rate, likelihood ratios).
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from dprl import _validation as check
from dprl._validation import BoolArray, FloatArray, IntArray
from dprl.agents.episodes import Episodes
from dprl.membership import metrics
from dprl.membership.attacks import lira
from experiments.chapter_5.leaks import ACCESS, Leak, three_scores
from experiments.chapter_5.study import Study

#: One threshold for all trajectories, or likelihood ratios over shadow models.
ATTACKS = ("threshold", "lira-online", "lira-offline")


@dataclass(frozen=True, eq=False)
class _Accused:
    """Trajectories that are accused of each model; arrays (models, n), or (O, models, n)."""

    labels: BoolArray
    scores: FloatArray
    choose: BoolArray | None = None  # entries that choose a threshold; all if left out
    measure: BoolArray | None = None  # entries that measure rates; all if left out


def attack_scores(leak: Leak, access: str, attack: str = "threshold", at: int = -1) -> FloatArray:
    """What the attack says about each trajectory of the pool, shape (O, models, 2 M).

    Larger speaks for a member. Likelihood ratios take all other pairs of models of the same oracle
    as shadows; their score is minus the logarithm of the distance or error: it is closer to normal.

    Access is one of ``leaks.ACCESS``, the attack one of ``ATTACKS``; ``at`` is an index into
    ``settings.updates``.
    """
    values = _access(leak.scores, access)[at]
    return _attacked(attack, values, leak.members, leak.settings.pairs)


def _access(found: dict[str, FloatArray], access: str) -> FloatArray:
    if access not in ACCESS:
        raise ValueError(f"access must be one of {', '.join(ACCESS)}, got {access!r}")
    return found[access]


def _attacked(attack: str, values: FloatArray, members: BoolArray, pairs: IntArray) -> FloatArray:
    """The first axis of values and members are oracles."""
    if attack not in ATTACKS:
        raise ValueError(f"attack must be one of {', '.join(ATTACKS)}, got {attack!r}")
    if attack == "threshold":
        return values
    ratio = lira.online if attack == "lira-online" else lira.offline
    logarithms = -np.log(np.maximum(-values, np.finfo(float).tiny))
    both = zip(logarithms, members, strict=True)
    return np.stack([ratio(of_oracle, own, groups=pairs) for of_oracle, own in both])


def attack_table(leak: Leak) -> pd.DataFrame:
    """Every attack with every access after every number of updates, one row for each.

    ``environment, t_max, oracles, models, trajectories, updates, access, attack``
        What was attacked; ``models`` in all, each trained on ``trajectories``.
    ``unit, clusters``
        What the intervals are over ("pair" of models here), and how many there are.
    ``auc, auc_low, auc_high``
        Mean over models of the area under the ROC curve on the pool, 95 % interval
        (:func:`dprl.membership.metrics.clustered_interval`).
    ``tpr_at_fpr_1pct, tpr_low, tpr_high, fpr``
        The threshold is chosen on the other pairs of the oracle so that at most 1 % of *their*
        non-members are accused; then the mean over pairs of the true positive rate, its interval,
        and the mean false positive rate. After the last update, and not for "lira-online", the
        fresh trajectories are non-members too: the first half of them helps to choose, and the FPR
        is measured on the second half alone. Given a model, that part is independent of the
        threshold. Otherwise both are done on the non-members of the pool, which the models share.
    ``tpr_at_fpr_01pct``
        The same for 0.1 %; NaN with fewer than 1,000 non-members to choose on.
    ``negatives``
        Non-members, counted once per model, on which the false positive rate is measured.
    ``mean_return``
        Of the models' roll-outs.
    """
    settings, rows = leak.settings, []
    count = len(settings.oracles)
    family = np.repeat(np.arange(count), settings.models)
    cluster = family * settings.models + np.tile(settings.pairs, count)
    last = len(settings.updates) - 1
    for (at, updates), access, attack in itertools.product(
        enumerate(settings.updates), ACCESS, ATTACKS
    ):
        values = attack_scores(leak, access, attack, at)
        auc = _areas(leak.members, values)
        accused = _Accused(leak.members, values)
        if at == last and settings.fresh > 1 and attack != "lira-online":
            accused = _with_fresh(leak, access, attack)
        rows.append(
            {
                "environment": settings.study.environment,
                "t_max": settings.study.t_max,
                "oracles": count,
                "models": count * settings.models,
                "trajectories": settings.size,
                "updates": updates,
                "access": access,
                "attack": attack,
                **_rates(auc, accused, cluster, family, "pair"),
                "mean_return": float(leak.returns[at].mean()),
            }
        )
    return pd.DataFrame(rows)


def _with_fresh(leak: Leak, access: str, attack: str) -> _Accused:
    """Pool and fresh trajectories.

    One model of each pair, at random, is no shadow for a fresh trajectory. It has then as many
    shadows as one of the pool, and the mean and variance of as many scores: with all of them
    its standardised score would be the narrower one, and its false positive rate too low.
    """
    fresh = _access(leak.fresh_scores, access)
    labels = np.concatenate([leak.members, np.zeros(fresh.shape, dtype=bool)], axis=-1)
    values = np.concatenate([leak.scores[access][-1], fresh], axis=-1)
    rng = np.random.default_rng([leak.settings.seed, 1])
    first = rng.random((len(fresh), leak.settings.models // 2, 1, fresh.shape[-1])) < 0.5
    kept_out = np.concatenate([first, ~first], axis=2).reshape(fresh.shape)
    known = np.concatenate([leak.members, kept_out], axis=-1)
    judged = _attacked(attack, values, known, leak.settings.pairs)
    pooled = leak.members.shape[-1]
    column = np.arange(labels.shape[-1])
    measuring = column >= pooled + fresh.shape[-1] // 2
    choose = np.broadcast_to(~measuring, labels.shape)
    return _Accused(labels, judged, choose, labels | measuring)


def study_table(done: Study, seed: int = 29) -> pd.DataFrame:
    """The leak of a study's own models: an honest game that costs no training.

    Model 2 o + h was trained on half h of oracle o; the other half of the same oracle is of
    the same distribution and was not seen. Two halves alone are no shadow models for a
    likelihood ratio; the threshold for a low false positive rate is chosen on the *other
    oracles*. Three rows, with the columns of :func:`attack_table`; ``unit`` is "oracle". The seed
    is of the answers at every state; the roll-outs are the study's own outputs.
    """
    check.instance("done", done, Study)
    of = done.settings
    both = [Episodes.concatenate(pair) for pair in done.inputs]
    outputs = [one for pair in done.outputs for one in pair]
    accused = [one for one in both for _ in range(2)]
    # the two halves start in the same states: one roll-out for both
    twice = [Episodes.concatenate([one, one]) for one in outputs]
    found = three_scores(done.models, accused, twice, seed)
    half = np.repeat([True, False], of.trajectories)
    labels = np.stack([half, ~half] * of.oracles)
    cluster = np.repeat(np.arange(of.oracles), 2)
    rows = []
    for access in ACCESS:
        values = found[access]
        area, family = _areas(labels, values), np.zeros_like(cluster)
        judged = _rates(area, _Accused(labels, values), cluster, family, "oracle")
        rows.append(
            {
                "environment": of.environment,
                "t_max": of.t_max,
                "oracles": of.oracles,
                "models": of.models,
                "trajectories": of.trajectories,
                "updates": of.bcq_updates,
                "access": access,
                "attack": "threshold",
                **judged,
                "mean_return": float(np.mean([one.returns.mean() for one in outputs])),
            }
        )
    return pd.DataFrame(rows)


def _areas(labels: BoolArray, values: FloatArray) -> FloatArray:
    """AUC of each model; the last axis are trajectories."""
    n = labels.shape[-1]
    pairs = zip(labels.reshape(-1, n), values.reshape(-1, n), strict=True)
    return np.array([metrics.roc_curve(y, s).area for y, s in pairs])


def _rates(
    auc: FloatArray, accused: _Accused, cluster: IntArray, family: IntArray, unit: str
) -> dict[str, object]:
    n = accused.labels.shape[-1]
    y, s = accused.labels.reshape(-1, n), accused.scores.reshape(-1, n)
    choosing, measuring = (
        np.ones_like(y) if mask is None else mask.reshape(-1, n)
        for mask in (accused.choose, accused.measure)
    )
    area = metrics.clustered_interval(auc, cluster)
    points = operating_points(y, s, cluster, family, 0.01, choosing, measuring)
    tpr = metrics.clustered_interval([one.tpr for one in points], np.arange(len(points)))
    fewest = min(
        int((~y & choosing)[(family == own) & (cluster != one)].sum())
        for one, own in zip(cluster, family, strict=True)
    )
    rare = np.nan  # a threshold for 0.1 % cannot be chosen on fewer than 1,000
    if fewest >= 1_000:
        few = operating_points(y, s, cluster, family, 0.001, choosing, measuring)
        rare = float(np.mean([one.tpr for one in few]))
    return {
        "unit": unit,
        "clusters": area.clusters,
        "auc": area.mean,
        "auc_low": area.low,
        "auc_high": area.high,
        "tpr_at_fpr_1pct": tpr.mean,
        "tpr_low": max(tpr.low, 0.0),
        "tpr_high": min(tpr.high, 1.0),
        "fpr": float(np.mean([one.fpr for one in points])),
        "tpr_at_fpr_01pct": rare,
        "negatives": sum(one.negatives for one in points),
    }


def operating_points(
    labels: BoolArray,
    values: FloatArray,
    clusters: Sequence[int] | IntArray,
    families: Sequence[int] | IntArray,
    fpr: float,
    choose: BoolArray | None = None,
    measure: BoolArray | None = None,
) -> list[metrics.OperatingPoint]:
    """Rates of each cluster of models at a threshold chosen on the others.

    Parameters
    ----------
    labels : array of bool, shape (models, n)
        Which trajectories are members.
    values : array, shape (models, n)
        Scores of an attack, larger for a member.
    clusters, families : sequence of int, shape (models,)
        Models of one cluster are judged together, and are no shadows of each other; the threshold
        is chosen on the other clusters of the same family, of which there must be some.
    fpr : float
        Share of the non-members of the others that may be accused.
    choose, measure : array of bool, shape (models, n), optional
        Which entries serve to choose thresholds, and on which the rates are measured; by
        default all, for both. Members and non-members must be among those measured.

    Returns
    -------
    list of OperatingPoint
        One per cluster, in the order of their numbers.
    """
    y, s = np.asarray(labels, dtype=bool), np.asarray(values)
    cluster, family = np.asarray(clusters), np.asarray(families)
    masks = [np.ones_like(y) if m is None else np.asarray(m, bool) for m in (choose, measure)]
    shapes = [y.shape, s.shape, *(mask.shape for mask in masks)]
    if y.ndim != 2 or len(set(shapes)) > 1 or not cluster.shape == family.shape == y.shape[:1]:
        raise ValueError(
            "labels, values, choose and measure must have the shape (models, n), clusters and "
            f"families (models,); got {shapes}, {cluster.shape}, {family.shape}"
        )
    points = []
    for one in np.unique(cluster):
        own = cluster == one
        others = ~own & (family == family[own][0])
        if not others.any():
            raise ValueError(f"cluster {one} has no others in its family to choose a threshold on")
        chosen, measured = masks[0] & others[:, None], masks[1] & own[:, None]
        points.append(
            metrics.tpr_at_fpr(y[measured], s[measured], fpr, chosen_on=(y[chosen], s[chosen]))
        )
    return points


def twin_table(leak: Leak) -> pd.DataFrame:
    """How the score of the trajectory that was left out changes, one row a twin.

    Columns ``environment, t_max, trajectories, updates, access, oracle, twin, record`` and

    ``score_in, score_out``
        Score of the trajectory under the model that was trained on it, and under its twin that
        was not.
    ``found``
        Whether the first is larger.
    ``rank``
        Share of the M - 1 trajectories that *both* were trained on whose score differs less
        (in - out): retraining alone changes scores, a leak is more than that. 1/2 on average
        without a leak.
    """
    settings, rows = leak.settings, []
    for (at, updates), access in itertools.product(enumerate(settings.updates), ACCESS):
        for o, twin in np.ndindex(leak.twin_records.shape):
            record = int(leak.twin_records[o, twin])
            inside = leak.scores[access][at, o, twin]
            change = inside - leak.twin_scores[access][at, o, twin]
            both = leak.members[o, twin].copy()
            both[record] = False
            rows.append(
                {
                    "environment": settings.study.environment,
                    "t_max": settings.study.t_max,
                    "trajectories": settings.size,
                    "updates": updates,
                    "access": access,
                    "oracle": settings.oracles[o],
                    "twin": twin,
                    "record": record,
                    "score_in": float(inside[record]),
                    "score_out": float(inside[record] - change[record]),
                    "found": bool(change[record] > 0),
                    "rank": float((change[both] < change[record]).mean()),
                }
            )
    return pd.DataFrame(rows)
