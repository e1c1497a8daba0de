r"""Which attack, and whose shadow models: LiRA and RMIA on one measurement of the leak.

On the models of :mod:`experiments.chapter_5.leaks` six attacks are compared (:data:`ATTACKS`).
They differ in what the attacker's shadow models are trained on:

* *the target oracle's own pool*, as in the literature on classifiers: random halves of the
  trajectories from which the target's training set was drawn;
* *another oracle's data*, as in the thesis: the attacker has none of the target oracle's
  trajectories but the accused one. Then either a threshold is carried over from the other
  oracle, or the other oracle's models stand in for the shadows without the trajectory.

Models take turns as the target. RMIA's likelihood is
exp(score / unit), the unit the median distance of the population under the target's shadows; its
population is the first half of the fresh trajectories. The second half only measures false alarms.
Its gamma is 1, and a is chosen on the shadows.

Sources: Carlini et al. 2022; Zarifzadeh, Liu and Shokri 2024; thesis, sections 5.3 and 5.5.
"""

from __future__ import annotations

from dataclasses import dataclass

import jax
import numpy as np
import pandas as pd

from dprl import _validation as check
from dprl import intervals
from dprl._validation import BoolArray, FloatArray
from dprl.agents.episodes import Episodes
from dprl.membership import metrics
from dprl.membership.attacks import lira, rmia, scores
from experiments.chapter_5.leak_tables import operating_points
from experiments.chapter_5.leaks import Leak

#: What the attacker may ask: the two kinds of access with a signal.
ACCESS = ("every-state", "white-box")
#: The attack, and whose data its shadow models, or its threshold, come from.
ATTACKS = (
    ("threshold", "own"),
    ("lira-online", "own"),
    ("lira-offline", "own"),
    ("rmia-online", "own"),
    ("rmia-offline", "own"),
    ("threshold", "other"),
    ("lira-offline", "other"),
)
#: False positive rates at which members are counted.
RATES = (0.01, 0.001)


_COLUMNS = (
    *("tpr", "tpr_low", "tpr_high", "tpr_exact_low", "tpr_exact_high"),
    *("fpr", "fpr_exact_low", "fpr_exact_high", "negatives"),
)


@dataclass(frozen=True, eq=False)
class _Game:
    """Trajectories accused of each model; arrays (O, models, n), fresh ones last."""

    labels: BoolArray
    known: BoolArray  # what counts as "held" for the shadows: see leak_tables
    values: FloatArray
    other: FloatArray  # (O, O - 1, models, n): of the models of all other oracles
    pooled: int
    groups: np.ndarray

    @property
    def population(self) -> slice:
        """The fresh trajectories that are RMIA's z, and that help to choose thresholds."""
        return slice(self.pooled, self.pooled + (self.labels.shape[-1] - self.pooled) // 2)


def cross_scores(leak: Leak, access: str) -> FloatArray:
    """Scores of every oracle's models on every oracle's trajectories.

    Shape (O, O, models, 2 M + fresh): entry ``[o, q, m, j]`` is of model m of oracle q, on
    trajectory j of oracle o, those of the pool first. With o = q these are the scores of the leak;
    with o != q none of the trajectories was used.
    """
    own = np.concatenate([_known(leak, access)[-1], leak.fresh_scores[access]], axis=-1)
    count, models = own.shape[:2]
    out = np.empty((count, *own.shape))
    key = jax.random.fold_in(jax.random.key(leak.settings.seed), 2)
    for o, q in np.ndindex(count, count):
        if o == q:
            out[o, q] = own[o]
            continue
        asked = leak.models.select(range(q * models, (q + 1) * models))
        accused = Episodes.concatenate([leak.pools[o], *leak.fresh[o : o + 1]])
        if access == "white-box":
            out[o, q] = scores.vae_score(asked, accused)
        else:
            out[o, q] = scores.every_state_score(asked, accused, key=key)
    return out


def attack_scores(leak: Leak, access: str, attack: str, shadows: str = "own") -> FloatArray:
    """Scores of an attack of :data:`ATTACKS` on the pool and the fresh trajectories.

    Shape (O, models, 2 M + fresh), larger for a member; online attacks know nothing about the fresh
    ones (NaN). Needs fresh trajectories.
    """
    return _judged(_game(leak, access), attack, shadows)


def _known(leak: Leak, access: str) -> FloatArray:
    if access not in ACCESS:
        raise ValueError(f"access must be one of {', '.join(ACCESS)}, got {access!r}")
    return leak.scores[access]


def _game(leak: Leak, access: str) -> _Game:
    check.instance("leak", leak, Leak)
    crossed = cross_scores(leak, access)
    if leak.settings.fresh < 2:
        raise ValueError("a leak without fresh trajectories has no population")
    count = len(crossed)
    values = np.stack([crossed[o, o] for o in range(count)])
    fresh = (*values.shape[:2], leak.settings.fresh)
    # one model of each pair, at random, is no shadow for a fresh trajectory: as leak_tables
    rng = np.random.default_rng([leak.settings.seed, 1])
    first = rng.random((count, fresh[1] // 2, 1, fresh[2])) < 0.5
    kept_out = np.concatenate([first, ~first], axis=2).reshape(fresh)
    return _Game(
        labels=np.concatenate([leak.members, np.zeros(fresh, dtype=bool)], axis=-1),
        known=np.concatenate([leak.members, kept_out], axis=-1),
        values=values,
        other=np.stack([np.delete(crossed[o], o, axis=0) for o in range(count)]),
        pooled=leak.members.shape[-1],
        groups=leak.settings.pairs,
    )


def _judged(game: _Game, attack: str, shadows: str) -> FloatArray:
    if (attack, shadows) not in ATTACKS:
        raise ValueError(f"no attack {attack!r} with shadows {shadows!r}; there are {ATTACKS}")
    if attack == "threshold":
        return game.values
    judge = _foreign_lira if shadows == "other" else _lira if "lira" in attack else _rmia
    return np.stack([judge(game, o, attack) for o in range(len(game.values))])


def _logarithm(values: FloatArray) -> FloatArray:
    """Closer to normal than minus a distance."""
    out: FloatArray = -np.log(np.maximum(-values, np.finfo(float).tiny))
    return out


def _lira(game: _Game, o: int, attack: str) -> FloatArray:
    ratio = lira.online if attack == "lira-online" else lira.offline
    columns = game.pooled if attack == "lira-online" else game.values.shape[-1]
    found = ratio(
        _logarithm(game.values[o, :, :columns]), game.known[o, :, :columns], groups=game.groups
    )
    return _padded(found, game.values.shape[-1])


def _foreign_lira(game: _Game, o: int, attack: str) -> FloatArray:
    """All models of the other oracles are shadows without the trajectory; no own one is."""
    own, strangers = game.values[o], game.other[o].reshape(-1, game.values.shape[-1])
    both = _logarithm(np.concatenate([own, strangers]))
    held = np.concatenate([game.known[o], np.zeros(strangers.shape, dtype=bool)])
    group = np.append(np.zeros(len(own), dtype=int), np.arange(1, 1 + len(strangers)))
    return lira.offline(both, held, groups=group)[: len(own)]


def _rmia(game: _Game, o: int, attack: str) -> FloatArray:
    known, groups = game.known[o], game.groups
    pool = slice(0, game.pooled)
    found = np.full(known.shape, np.nan)
    for group in np.unique(groups):
        own = groups == group
        distance = -game.values[o]
        unit = float(np.median(distance[~own, game.population]))
        p = rmia.likelihood(game.values[o], unit)
        z = p[:, game.population]
        if attack == "rmia-online":
            judged = rmia.online(p[:, pool], known[:, pool], z, groups=groups)
            found[own, pool] = judged[own]
        else:
            shadows = p[~own, pool], known[~own, pool], z[~own]
            a = rmia.chosen_a(*shadows, groups=groups[~own])
            found[own] = rmia.offline(p, known, z, a=a, groups=groups)[own]
    return found


def _padded(values: FloatArray, columns: int) -> FloatArray:
    missing = columns - values.shape[-1]
    return np.pad(values, ((0, 0), (0, missing)), constant_values=np.nan)


def table(leak: Leak) -> pd.DataFrame:
    """Every attack with both kinds of access, one row each.

    ``environment, t_max, oracles, models, trajectories, updates, access, attack, shadows``
        What was attacked, after the last update, and how (:data:`ATTACKS`).
    ``clusters, auc, auc_low, auc_high``
        Mean over models of the area under the ROC curve on the pool, 95 % interval over pairs of
        models.
    ``chosen_on``
        Non-members, counted once per model, on which a threshold is chosen: for "own" of the other
        pairs of the same oracle, for the threshold of "other" of the other oracles. With fewer than
        1/rate of them a rate cannot be aimed at, and its columns are NaN. So they are for LiRA with
        the other oracle's shadows, whose attacker has nothing to choose a threshold on.
    ``tpr_1pct, tpr_low_1pct, tpr_high_1pct, tpr_exact_low_1pct, tpr_exact_high_1pct``
        Found share of the members at that threshold, interval over clusters (pairs, or oracles),
        and the exact interval of Clopper and Pearson for the count, which would hold if
        all answers were independent. The same for 0.1 %, ``tpr_01pct`` and so on.
    ``fpr_1pct, fpr_exact_low_1pct, fpr_exact_high_1pct, negatives_1pct``
        What those thresholds do to non-members that had no part in choosing them, with the same
        kind of exact interval; offline the second half of the fresh trajectories, online the pool.
    """
    settings, rows = leak.settings, []
    count, models = len(settings.oracles), settings.models
    for access in ACCESS:
        game = _game(leak, access)
        for attack, shadows in ATTACKS:
            judged = _judged(game, attack, shadows)
            row: dict[str, object] = {
                "environment": settings.study.environment,
                "t_max": settings.study.t_max,
                "oracles": count,
                "models": count * models,
                "trajectories": settings.size,
                "updates": settings.updates[-1],
                "access": access,
                "attack": attack,
                "shadows": shadows,
            }
            rows.append(row | _areas(game, judged) | _rates(game, judged, attack, shadows))
    return pd.DataFrame(rows)


def _areas(game: _Game, judged: FloatArray) -> dict[str, object]:
    count, models = judged.shape[:2]
    each = [
        metrics.roc_curve(game.labels[at][: game.pooled], judged[at][: game.pooled]).area
        for at in np.ndindex(count, models)
    ]
    cluster = np.repeat(np.arange(count * models // 2), 2)
    over = metrics.clustered_interval(each, cluster)
    return {
        "clusters": over.clusters,
        "auc": over.mean,
        "auc_low": over.low,
        "auc_high": over.high,
    }


def _rates(game: _Game, judged: FloatArray, attack: str, shadows: str) -> dict[str, object]:
    count, models, n = judged.shape
    oracle = np.repeat(np.arange(count), models)
    pair = np.arange(count * models) // 2
    column, half = np.arange(n), game.population.stop
    if "online" in attack:  # the pool alone
        choose = measure = np.broadcast_to(column < game.pooled, (count * models, n))
    else:
        y = game.labels.reshape(-1, n)
        choose = np.broadcast_to(column < half, y.shape)
        measure = y | (column >= half)
    carried = shadows == "other"
    cluster = oracle if carried else pair
    family = np.zeros_like(oracle) if carried else oracle
    y, s = game.labels.reshape(-1, n), np.nan_to_num(judged.reshape(-1, n), nan=0.0)
    others = (family[:, None] == family) & (cluster[:, None] != cluster)
    chosen_on = int((others @ (~y & choose).sum(axis=1)).min())
    out: dict[str, object] = {"chosen_on": chosen_on}
    nothing_to_choose_on = (attack, shadows) == ("lira-offline", "other")
    for rate, name in zip(RATES, ("1pct", "01pct"), strict=True):
        if chosen_on * rate < 1 or nothing_to_choose_on:
            out |= {f"{column}_{name}": np.nan for column in _COLUMNS}
            continue
        points = operating_points(y, s, cluster, family, rate, choose, measure)
        over = metrics.clustered_interval([one.tpr for one in points], np.arange(len(points)))
        found, members = _counts(points, "tpr", "positives")
        alarms, negatives = _counts(points, "fpr", "negatives")
        numbers = (
            over.mean,
            max(over.low, 0.0),
            min(over.high, 1.0),
            *map(float, intervals.clopper_pearson(found, members)),
            alarms / negatives,
            *map(float, intervals.clopper_pearson(alarms, negatives)),
            negatives,
        )
        out |= {f"{column}_{name}": x for column, x in zip(_COLUMNS, numbers, strict=True)}
    return out


def _counts(points: list[metrics.OperatingPoint], rate: str, number: str) -> tuple[int, int]:
    """Right answers "member", or wrong ones, of all clusters together."""
    sizes = [getattr(one, number) for one in points]
    hits = [round(getattr(one, rate) * size) for one, size in zip(points, sizes, strict=True)]
    return sum(hits), sum(sizes)
