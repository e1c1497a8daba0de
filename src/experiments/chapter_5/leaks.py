r"""A leak that is real: members and non-members from one distribution.

The pairs of the thesis compare a model's training data with trajectories of *another* oracle.
Here both kinds come from one oracle, and chance alone says which of them a model is trained
on (:class:`LeakSettings`):

* from each chosen oracle a *pool* of 2 M trajectories;
* *models* come in pairs. Each pair splits the pool at random into two halves of M
  trajectories; the first model is trained on one half, the second on the other. So every
  trajectory of the pool is a member of one model of each pair and a non-member of the other,
  and that some trajectories are easier to imitate than others cancels in each pair;
* *fresh* trajectories of the same oracle, on which no model is trained: more non-members, for
  what is to be said about low false positive rates. All trajectories of an oracle start in the
  states of one list: fresh ones and those of the pool are independent given these;
* *twins*: a model's training data without one trajectory, and nothing else changed. Twin and
  model start from the same networks and draw the same noise in every update. Their batches
  are drawn by the same keys, but from M - 1 and M trajectories, so that the rows differ.

Every model is scored after several numbers of updates, with three kinds of access
(:mod:`dprl.membership.attacks.scores`): a roll-out (closed loop), answers at every state of
the accused trajectory, the parameters (white box). :func:`attack_table` judges attacks by one
threshold for all trajectories and by likelihood ratios (:mod:`dprl.membership.attacks.lira`).

The unit is the pair of models: intervals are over pairs, and speak of new pairs of the same
oracles and pools.

Sources: Yeom et al. 2018 and thesis, section 5.1 (the game); Carlini et al. 2022.
"""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import jax
import numpy as np
import pandas as pd

from companion import checkpoints
from companion.checkpoints import Deadline, fingerprint
from dprl import _validation as check
from dprl._validation import BoolArray, FloatArray, IntArray
from dprl.agents import bcq, environments, episodes, networks, parallel
from dprl.agents.bcq import BCQPopulation
from dprl.agents.episodes import Episodes
from dprl.membership import metrics
from dprl.membership.attacks import lira, scores
from experiments.chapter_5 import oracles, study
from experiments.chapter_5.stages import (
    Progress,
    ResumableTraining,
    Watch,
    computed_by,
    computed_once,
)
from experiments.chapter_5.study import Study, StudySettings

#: What the attacker may ask, from least to most.
ACCESS = ("closed-loop", "every-state", "white-box")
#: One threshold for all trajectories, or likelihood ratios over shadow models.
ATTACKS = ("threshold", "lira-online", "lira-offline")

_FILE, _MODELS = "leak.npz", "models.npz"


@dataclass(frozen=True, eq=False)
class _Accused:
    """Trajectories that are accused of each model; arrays (models, n), or (O, models, n)."""

    labels: BoolArray
    scores: FloatArray
    choose: BoolArray | None = None  # entries that choose a threshold; all if left out
    measure: BoolArray | None = None  # entries that measure rates; all if left out


@dataclass(frozen=True)
class LeakSettings:
    """Everything that a measurement of the leak depends on.

    Parameters
    ----------
    study : StudySettings
        The study whose oracles collect the trajectories, and whose BCQ settings are used.
    oracles : tuple of int
        Which of its oracles; distinct.
    size : int
        M, trajectories in one training set, >= 2. The pool of an oracle holds its first 2 M
        trajectories, those of half 0 before those of half 1; at most M of the study.
    models : int
        Models per oracle: an even number, >= 6. Likelihood ratios use all but one pair as
        shadows, and need two of them.
    twins : int
        Twins per oracle, 0 ... models.
    updates : tuple of int
        After how many updates of each model to measure; rising, multiples of ``chunk``.
    fresh : int
        Trajectories per oracle that no model is trained on; the last ones of the study.
    queries : int
        Answers asked for at each state.
    chunk : int
        Updates per compiled call.
    seed : int
        Of the splits, the models and their answers.

    Raises
    ------
    TypeError, ValueError
        If a number is outside its range, or the study has too few trajectories or oracles.
    """

    study: StudySettings
    oracles: tuple[int, ...]
    size: int
    models: int
    twins: int
    updates: tuple[int, ...]
    fresh: int = 0
    queries: int = 1
    chunk: int = bcq.CHUNK
    seed: int = 29

    def __post_init__(self) -> None:
        check.instance("study", self.study, StudySettings)
        _numbers("oracles", self.oracles, minimum=0)
        if len(set(self.oracles)) < len(self.oracles) or max(self.oracles) >= self.study.oracles:
            raise ValueError(
                f"oracles must be distinct numbers below {self.study.oracles}, got {self.oracles}"
            )
        check.whole("size", self.size, 2)
        check.whole("models", self.models, 6)
        if self.models % 2:
            raise ValueError(f"models come in pairs: models must be even, got {self.models}")
        if check.whole("twins", self.twins, 0) > self.models:
            raise ValueError(
                f"twins must be at most {self.models}, one per model, got {self.twins}"
            )
        _numbers("updates", self.updates, minimum=1)
        check.whole("queries", self.queries)
        check.whole("chunk", self.chunk)
        if any(later <= now for now, later in zip(self.updates, self.updates[1:], strict=False)):
            raise ValueError(f"updates must rise, got {self.updates}")
        if any(number % self.chunk for number in self.updates):
            raise ValueError(f"updates must be multiples of chunk {self.chunk}, got {self.updates}")
        available = 2 * self.study.trajectories
        if 2 * self.size + check.whole("fresh", self.fresh, 0) > available:
            raise ValueError(
                f"an oracle of this study has {available} trajectories; a pool of {2 * self.size} "
                f"and {self.fresh} fresh ones are too many"
            )
        check.seed(self.seed)

    @property
    def name(self) -> str:
        """What to call it: environment, T_max, M."""
        return f"{self.study.name}-{self.size}"

    @property
    def pairs(self) -> IntArray:
        """Shape (models,): the pair to which each model of an oracle belongs."""
        return np.arange(self.models) // 2


def _numbers(name: str, values: object, minimum: int) -> None:
    if not isinstance(values, tuple) or not values:
        raise TypeError(f"{name} must be a tuple of at least one whole number, got {values!r}")
    for value in values:
        check.whole(f"each of {name}", value, minimum)


@dataclass(frozen=True, eq=False)
class Leak:
    """What :func:`run` measured. k = numbers of updates, O = oracles of the settings.

    Attributes
    ----------
    settings : LeakSettings
    pools : list of Episodes
        Of each oracle, 2 M trajectories.
    fresh : list of Episodes
        Of each oracle; empty if the settings have none.
    members : ndarray of bool, shape (O, models, 2 M)
        Which trajectories of the pool each model was trained on.
    scores : dict of str to ndarray, shape (k, O, models, 2 M)
        For each kind of :data:`ACCESS`: the score of each trajectory, larger for a member.
    fresh_scores : dict of str to ndarray, shape (O, models, fresh)
        The same for the fresh trajectories, after the last update.
    twin_records : ndarray of int, shape (O, twins)
        Twin i is model i trained without this trajectory of the pool, a member of model i.
    twin_scores : dict of str to ndarray, shape (k, O, twins, 2 M)
        Scores under the twins.
    returns : ndarray, shape (k, O, models)
        Mean undiscounted return of the roll-outs.
    models : BCQPopulation
        After the last update: number ``o * settings.models + m`` is model m of the o-th oracle;
        the twins come after all models, ``O * settings.models + o * settings.twins + i``.
    """

    settings: LeakSettings
    pools: list[Episodes]
    fresh: list[Episodes]
    members: BoolArray
    scores: dict[str, FloatArray]
    fresh_scores: dict[str, FloatArray]
    twin_records: IntArray
    twin_scores: dict[str, FloatArray]
    returns: FloatArray
    models: BCQPopulation


# -- computing --------------------------------------------------------------------------


def run(
    settings: LeakSettings,
    folder: str | Path = "_build/membership",
    deadline: Deadline | None = None,
    progress: Progress | None = None,
) -> Leak:
    """Compute what is missing of a measurement, or load it.

    What the oracles of ``settings.study`` collect is computed or loaded first
    (:func:`experiments.chapter_5.study.collect`).

    Parameters
    ----------
    settings : LeakSettings
    folder : path
        Where studies are kept.
    deadline, progress
        See :class:`experiments.chapter_5.stages.Watch`.

    Raises
    ------
    OutOfTime
        If the deadline has passed; call again to continue.
    """
    check.instance("settings", settings, LeakSettings)
    inputs = study.collect(settings.study, folder, deadline, progress)
    pools, fresh = _trajectories(settings, inputs)
    sets = _training_sets(settings)
    key = fingerprint(
        computed_by(networks, parallel, bcq, environments, episodes, oracles, scores),
        *(inspect.getsource(one) for one in (_training_sets, _Measurement, _three_scores)),
        settings,
        [one.actions for one in pools + fresh],
    )
    measurement = _Measurement(settings, pools, fresh, sets, Watch(deadline, progress))
    place = Path(folder) / f"leak-{settings.name}-{key}"
    with computed_once(place, measurement.watch) as kept:
        if not kept.done:
            checkpoints.save(place / _FILE, measurement.compute(place), {"kind": "leak"})
        arrays = checkpoints.load(place / _FILE, metadata={"kind": "leak"})
        models = study.load_models(place / _MODELS, settings.study.bcq, measurement.fresh_models)
    return Leak(
        settings=settings,
        pools=pools,
        fresh=fresh,
        members=sets.members,
        scores={access: arrays[f"scores {access}"] for access in ACCESS},
        fresh_scores={access: arrays[f"fresh {access}"] for access in ACCESS},
        twin_records=sets.left_out,
        twin_scores={access: arrays[f"twins {access}"] for access in ACCESS},
        returns=arrays["returns"],
        models=models,
    )


@dataclass(frozen=True, eq=False)
class _TrainingSets:
    """Who is trained on what; models of all oracles first, then all twins."""

    members: BoolArray  # (O, models, 2 M)
    left_out: IntArray  # (O, twins)
    rows: list[tuple[int, BoolArray]] = field(default_factory=list)  # (oracle, mask of its pool)
    seeds: list[int] = field(default_factory=list)


def _trajectories(
    settings: LeakSettings, inputs: list[list[Episodes]]
) -> tuple[list[Episodes], list[Episodes]]:
    pools, fresh = [], []
    for oracle in settings.oracles:
        everything = Episodes.concatenate(inputs[oracle])
        pools.append(everything.select(np.arange(2 * settings.size)))
        if settings.fresh:
            fresh.append(
                everything.select(np.arange(len(everything) - settings.fresh, len(everything)))
            )
    return pools, fresh


def _training_sets(settings: LeakSettings) -> _TrainingSets:
    splits, twins, models = np.random.SeedSequence(settings.seed).spawn(3)
    rng, count = np.random.default_rng(splits), len(settings.oracles)
    members = np.zeros((count, settings.models, 2 * settings.size), dtype=bool)
    for of_oracle in members:
        for first in range(0, settings.models, 2):
            of_oracle[first, rng.permutation(2 * settings.size)[: settings.size]] = True
            of_oracle[first + 1] = ~of_oracle[first]
    rng = np.random.default_rng(twins)
    left_out = np.array(
        [
            [rng.choice(np.flatnonzero(mask)) for mask in of_oracle[: settings.twins]]
            for of_oracle in members
        ],
        dtype=np.int64,
    ).reshape(count, settings.twins)
    sets = _TrainingSets(members, left_out)
    numbers = [int(x) for x in models.generate_state(count * settings.models)]
    for oracle in range(count):
        for model in range(settings.models):
            sets.rows.append((oracle, members[oracle, model]))
            sets.seeds.append(numbers[oracle * settings.models + model])
    for oracle in range(count):
        for twin in range(settings.twins):
            mask = members[oracle, twin].copy()
            mask[left_out[oracle, twin]] = False
            sets.rows.append((oracle, mask))
            sets.seeds.append(numbers[oracle * settings.models + twin])
    return sets


@dataclass(frozen=True, eq=False)
class _Measurement:
    """Training of all models and twins, and scoring after each number of updates."""

    settings: LeakSettings
    pools: list[Episodes]
    fresh: list[Episodes]
    sets: _TrainingSets
    watch: Watch

    def fresh_models(self) -> bcq.BCQTraining:
        pool, learner = self.pools[0], self.settings.study.bcq
        return bcq.start(learner, pool.observation_size, pool.action_size, self.sets.seeds)

    def compute(self, place: Path) -> dict[str, FloatArray]:
        settings, learner = self.settings, self.settings.study.bcq
        terminal = settings.study.timeout_is_terminal
        data = [
            self.pools[oracle].select(mask).transitions(timeout_is_terminal=terminal)
            for oracle, mask in self.sets.rows
        ]

        def advance(before: bcq.BCQTraining, updates: int) -> bcq.BCQTraining:
            return bcq.train(before, data, learner, updates, chunk=settings.chunk)[0]

        last = settings.updates[-1]
        training = ResumableTraining(
            f"leak {settings.size}", last, place / "checkpoint.npz", 5 * settings.chunk, self.watch
        )
        state = training.begin(self.fresh_models())
        parts: list[dict[str, FloatArray]] = []
        for updates in settings.updates:
            scored = place / f"checkpoint-scores-{updates}.npz"
            if not scored.is_file():
                state = training.go_on(state, advance, state.updates, updates)
                training.keep(state)
                models = BCQPopulation(learner, state.models.parameters)
                checkpoints.save(scored, self.score(models, updates == last), {})
                if updates < last:
                    self.watch.check()
            parts.append(checkpoints.load(scored))
        checkpoints.save(place / _MODELS, state.models.parameters, {})
        out = {name: values for name, values in parts[-1].items() if name.startswith("fresh")}
        for name in parts[0]:
            if name not in out:
                out[name] = np.stack([part[name] for part in parts])
        return out

    def score(self, population: BCQPopulation, last: bool) -> dict[str, FloatArray]:
        """All scores of all models and twins."""
        settings, count = self.settings, len(self.settings.oracles)
        split = count * settings.models
        own = [oracle for oracle, _ in self.sets.rows]
        accused = [self.pools[oracle] for oracle in own]
        outputs = self.roll_outs(population, accused)
        pooled = _three_scores(population, accused, outputs, settings.seed, settings.queries)
        returns = np.array([one.returns.mean() for one in outputs[:split]])
        out: dict[str, FloatArray] = {"returns": returns.reshape(count, settings.models)}
        size = 2 * settings.size
        for access, values in pooled.items():
            out[f"scores {access}"] = values[:split].reshape(count, settings.models, size)
            out[f"twins {access}"] = values[split:].reshape(count, settings.twins, size)
        if last:
            empty = np.zeros((count, settings.models, settings.fresh))
            found = dict.fromkeys(ACCESS, empty)
            if self.fresh:
                models = population.select(range(split))
                accused = [self.fresh[o] for o in own[:split]]
                outputs = self.roll_outs(models, accused)
                found = _three_scores(models, accused, outputs, settings.seed, settings.queries)
            for access, values in found.items():
                out[f"fresh {access}"] = values.reshape(empty.shape)
        return out

    def roll_outs(self, models: BCQPopulation, accused: list[Episodes]) -> list[Episodes]:
        """Of each model, from the states in which all the accused start."""
        starts, seed = accused[0].initial_states, self.settings.seed
        return oracles.query_outputs(models, starts, self.settings.study.task, seed=seed)


def _three_scores(
    models: BCQPopulation,
    accused: list[Episodes],
    outputs: list[Episodes],
    seed: int,
    queries: int,
) -> dict[str, FloatArray]:
    """For each access: scores of the accused of each model, shape (models, n)."""
    closed = [
        scores.action_distance(a.actions, b.actions, a.lengths, b.lengths)
        for a, b in zip(accused, outputs, strict=True)
    ]
    key = jax.random.fold_in(jax.random.key(seed), 1)
    return {
        "closed-loop": np.stack(closed),
        "every-state": scores.query_every_state(models, accused, key=key, queries=queries),
        "white-box": scores.vae_score(models, accused),
    }


# -- judging ----------------------------------------------------------------------------


def attack_scores(leak: Leak, access: str, attack: str = "threshold", at: int = -1) -> FloatArray:
    """What the attack says about each trajectory of the pool.

    Parameters
    ----------
    leak : Leak
    access : str
        One of :data:`ACCESS`.
    attack : str
        One of :data:`ATTACKS`. Likelihood ratios take all other pairs of models of the same
        oracle as shadows. Their score is minus the logarithm of the distance or error: it
        is closer to normal.
    at : int
        Index into ``settings.updates``.

    Returns
    -------
    ndarray, shape (O, models, 2 M)
        Larger speaks for a member.
    """
    values = _access(leak.scores, access)[at]
    return np.stack(
        [
            _attacked(attack, of_oracle, members, leak.settings.pairs)
            for of_oracle, members in zip(values, leak.members, strict=True)
        ]
    )


def _access(found: dict[str, FloatArray], access: str) -> FloatArray:
    if access not in ACCESS:
        raise ValueError(f"access must be one of {', '.join(ACCESS)}, got {access!r}")
    return found[access]


def _attacked(attack: str, values: FloatArray, members: BoolArray, pairs: IntArray) -> FloatArray:
    if attack == "threshold":
        return values
    logarithms = -np.log(np.maximum(-values, np.finfo(float).tiny))
    if attack == "lira-online":
        return lira.online(logarithms, members, groups=pairs)
    if attack == "lira-offline":
        return lira.offline(logarithms, members, groups=pairs)
    raise ValueError(f"attack must be one of {', '.join(ATTACKS)}, got {attack!r}")


def attack_table(leak: Leak) -> pd.DataFrame:
    """Every attack with every access after every number of updates.

    Parameters
    ----------
    leak : Leak

    Returns
    -------
    DataFrame
        One row per updates, access and attack:

        ``environment, t_max, oracles, models, trajectories, updates, access, attack``
            What was attacked; ``models`` in all, each trained on ``trajectories``.
        ``unit, clusters``
            What the intervals are over ("pair" of models here), and how many there are.
        ``auc, auc_low, auc_high``
            Mean over models of the area under the ROC curve on the pool, 95 % interval
            (:func:`dprl.membership.metrics.clustered_interval`).
        ``tpr_at_fpr_1pct, tpr_low, tpr_high, fpr``
            The threshold is chosen on the other pairs of the oracle so that at most 1 % of
            *their* non-members are accused; then the mean over pairs of the true positive
            rate, its interval, and the mean false positive rate. After the last update, and
            not for "lira-online", the fresh trajectories are non-members too: the first half
            of them helps to choose, and the FPR is measured on the second half alone. Given a
            model, that part is independent of the threshold. Otherwise both are done on the
            non-members of the pool, which the models share.
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
    for at, updates in enumerate(settings.updates):
        for access in ACCESS:
            for attack in ATTACKS:
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
    judged = [
        _attacked(attack, v, m, leak.settings.pairs) for v, m in zip(values, known, strict=True)
    ]
    pooled = leak.members.shape[-1]
    column = np.arange(labels.shape[-1])
    measuring = column >= pooled + fresh.shape[-1] // 2
    choose = np.broadcast_to(~measuring, labels.shape)
    return _Accused(labels, np.stack(judged), choose, labels | measuring)


def study_table(done: Study, queries: int = 1, seed: int = 29) -> pd.DataFrame:
    """The leak of a study's own models: an honest game that costs no training.

    Model 2 o + h was trained on half h of oracle o; the other half of the same oracle is of
    the same distribution and was not seen. Two halves alone are no shadow models for a
    likelihood ratio; the threshold for a low false positive rate is chosen on the *other
    oracles*. The unit is the oracle.

    Parameters
    ----------
    done : Study
    queries : int
        Answers asked for at each state.
    seed : int
        Of the answers at every state; the roll-outs are the study's own outputs.

    Returns
    -------
    DataFrame
        Three rows, columns as those of :func:`attack_table`; ``unit`` is "oracle".
    """
    check.instance("done", done, Study)
    of = done.settings
    both = [Episodes.concatenate(pair) for pair in done.inputs]
    outputs = [one for pair in done.outputs for one in pair]
    accused = [one for one in both for _ in range(2)]
    # the two halves start in the same states: one roll-out for both
    twice = [Episodes.concatenate([one, one]) for one in outputs]
    found = _three_scores(done.models, accused, twice, seed, queries)
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
    clusters : sequence of int, shape (models,)
        Models that are judged together, and are no shadows of each other.
    families : sequence of int, shape (models,)
        The threshold is chosen on the other clusters of the same family.
    fpr : float
        Share of the non-members of the others that may be accused.
    choose, measure : array of bool, shape (models, n), optional
        Which entries serve to choose thresholds, and on which the rates are measured; by
        default all, for both.

    Returns
    -------
    list of OperatingPoint
        One per cluster, in the order of their numbers.

    Raises
    ------
    ValueError
        If shapes do not fit, a cluster has no others in its family, or members or
        non-members are missing where rates are measured.
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

    Returns
    -------
    DataFrame
        ``environment, t_max, trajectories, updates, access, oracle, twin, record`` and

        ``score_in, score_out``
            Score of the trajectory under the model that was trained on it, and under its
            twin that was not.
        ``found``
            Whether the first is larger.
        ``rank``
            Share of the M - 1 trajectories that *both* were trained on whose score differs
            less (in - out): retraining alone changes scores, a leak is more than that. 1/2
            on average without a leak.
    """
    settings, rows = leak.settings, []
    for at, updates in enumerate(settings.updates):
        for access in ACCESS:
            for o, oracle in enumerate(settings.oracles):
                for twin in range(settings.twins):
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
                            "oracle": oracle,
                            "twin": twin,
                            "record": record,
                            "score_in": float(inside[record]),
                            "score_out": float(inside[record] - change[record]),
                            "found": bool(change[record] > 0),
                            "rank": float((change[both] < change[record]).mean()),
                        }
                    )
    return pd.DataFrame(rows)
