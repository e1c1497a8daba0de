r"""The attack, repeated over draws of oracles: table 5.2 and its controls.

A *draw* is one experiment as the thesis describes it, on distinct oracles
(:mod:`experiments.chapter_5.oracle_draws`). An attack network is trained on the shadow's pairs and
judges the target's. The thesis has one draw per table entry, trained five times. What differs from
draw to draw is which policies happen to be told apart, so the unit of replication is the oracle.

Draws that share an oracle are not independent, so the standard error of a mean over draws
leaves out one *match* at a time (:func:`dprl.membership.metrics.clustered_interval`): with
one shadow all draws whose shadow or target it is, with several those whose target it is.
There, what the attacks of different targets have in common, most of their shadow oracles, is
not in the error. With 3 or 4 matches any standard error is itself rough; with 2 there is none
for one shadow.

Every attack is trained with one way to label and tested with several (``labels``, see
:mod:`dprl.membership.pairs`):

==============  ===================================  ========================================
training        tested on the target with            on the held-out shadow pairs with
==============  ===================================  ========================================
as-printed      as-printed, same-oracle,             as-printed
                never-seen, swap-twins
same-oracle     same-oracle, swap-twins              same-oracle
input-only      input-only                           input-only
decorrelated    as-printed, decorrelated             as-printed, decorrelated
==============  ===================================  ========================================

With several shadows an attack on the input alone has nothing to learn: around the ring each
oracle's trajectories are positive once and negative once.

The shadow's initial states are split 80 to 20; the 20 are the *shadow validation*. It shares
no trajectory with training, but its oracles. The collective mode judges bags of 50 pairs of
one model: by the mean logit of the individual network, or by a ResNet on the whole bag.
The threshold is 1/2, that is logit 0, in all entries but those that say otherwise.

Sources: thesis, sections 5.6 and 5.7, table 5.2, figures 5.3, 5.5, 5.6 and 5.7.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

from companion.sweeps import code_of, fingerprint
from dprl import _validation as check
from dprl._validation import FloatArray, IntArray
from dprl.membership import metrics, pairs
from dprl.membership.attacks import training, voting
from dprl.membership.attacks.resnet import ResNetSettings
from dprl.membership.attacks.tcn import TCNSettings
from dprl.membership.attacks.training import Classifier
from dprl.membership.pairs import LabelledPairs
from experiments.chapter_5.oracle_draws import Draw, Shadow, draws
from experiments.chapter_5.stages import Watch, computed_once
from experiments.chapter_5.study import Study

TRAININGS = ("as-printed", "same-oracle", "input-only", "decorrelated")
METRICS = ("accuracy", "precision", "recall", "f1", "mcc", "auc", "tpr_at_fpr_1pct")
_ACCURACY = ("draws", "accuracy", "accuracy_se")
#: Thresholds from which the thesis chooses (section 5.7.2).
THRESHOLDS = tuple(i / 10 for i in range(1, 10))
_OF_DATA = ("environment", "t_max", "mode", "labels", "shadows")
#: Columns that identify a row of ``AttackResults.table``.
KEYS = (*_OF_DATA, "split", "training", "network", "length")

_TESTS = {
    "as-printed": ("as-printed", "same-oracle", "never-seen", "swap-twins"),
    "same-oracle": ("same-oracle", "swap-twins"),
    "input-only": ("input-only",),
    "decorrelated": ("as-printed", "decorrelated"),
}
_VALIDATIONS = {name: (name,) for name in TRAININGS[:3]} | {
    "decorrelated": ("as-printed", "decorrelated")
}
#: Mode, truth and logits.
_Answer: TypeAlias = tuple[str, NDArray[np.bool_], FloatArray]
_FPR = np.concatenate([[0.0, 0.001, 0.002, 0.005, 0.01], np.linspace(0.02, 1.0, 50)])


@dataclass(frozen=True)
class AttackSettings:
    """Which attacks are trained on a study.

    Parameters
    ----------
    trainings : tuple of str
        Of ``TRAININGS``.
    several_shadows : bool
        Whether attacks with all remaining oracles as shadows are trained beside those with one.
    tcn : TCNSettings
        The individual network.
    resnet : ResNetSettings, optional
        A network for the collective mode, beside the vote; trained with labels as printed
        and one shadow, whose pairs are one batch of trajectories.
    lengths : tuple of int
        Clipping lengths beside T_max, with labels as printed and one shadow (figure 5.6);
        each below T_max.
    validation_share : float
        Of the shadow's initial states.
    most_steps : int, optional
        The individual networks are trained for twice and twice as long, up to this number of
        steps, for as long as the mean loss on the shadow validation falls
        (:func:`dprl.membership.attacks.training.train_to_plateau`). Left out: for the steps of
        ``tcn``.
    bag_size : int
        Pairs in a bag. Where a model has fewer pairs there are no collective rows.
    """

    trainings: tuple[str, ...] = TRAININGS
    several_shadows: bool = True
    tcn: TCNSettings = field(default_factory=TCNSettings)
    resnet: ResNetSettings | None = None
    lengths: tuple[int, ...] = ()
    validation_share: float = 0.2
    bag_size: int = voting.BAG_SIZE
    seed: int = 52
    most_steps: int | None = None

    def __post_init__(self) -> None:
        check.whole("bag_size", self.bag_size)
        check.seed(self.seed)
        check.open_unit("validation_share", self.validation_share)
        check.instance("tcn", self.tcn, TCNSettings)
        if self.most_steps is not None and check.whole("most_steps", self.most_steps) < (
            self.tcn.steps
        ):
            raise ValueError(f"most_steps must be at least {self.tcn.steps}, got {self.most_steps}")
        if self.resnet is not None:
            check.instance("resnet", self.resnet, ResNetSettings)
        unknown = [name for name in self.trainings if name not in TRAININGS]
        if unknown or not self.trainings:
            raise ValueError(
                f"trainings must be some of {', '.join(TRAININGS)}, got {self.trainings!r}"
            )
        for length in self.lengths:
            check.whole("each of lengths", length)


@dataclass(frozen=True, eq=False)
class AttackResults:
    """What attacks achieved on a study.

    Attributes
    ----------
    table : DataFrame
        One row per way to train, to label and to test: ``environment, t_max, mode, labels,
        shadows, oracles, draws``, then means over draws: ``accuracy``, its standard error
        ``accuracy_se``, ``precision, recall, f1, mcc, auc, tpr_at_fpr_1pct``; then ``split``
        (``target`` or ``shadow-validation``), ``training``, ``network`` (``tcn``, ``vote``
        for the mean logit of the TCN, ``resnet``), ``length`` (clipping length). ``labels``
        is the way to label the tested pairs; ``decorrelated`` are pairs as printed whose
        inputs were decorrelated. ``shadows`` counts shadow models. A metric that is 0/0 in a
        draw counts as 0 in the mean, as in scikit-learn: the precision of an attack that
        never says "member", the MCC of one that always says the same.
    per_draw : DataFrame
        The same per draw, with the oracles and ``tested`` (pairs or bags). Also
        ``best_threshold`` of :data:`THRESHOLDS` on the tested data and the accuracy there,
        ``shadow_threshold`` chosen on the shadow validation and the accuracy there; and with
        ``most_steps`` the ``steps`` of training.
    roc : DataFrame
        For every test on the target: mean over draws of the true positive rate at each false
        positive rate, ``tpr``, and its standard error ``tpr_se``.
    seconds : dict
        ``attacks``: what training and judging took, when it was done.
    """

    table: pd.DataFrame
    per_draw: pd.DataFrame
    roc: pd.DataFrame
    seconds: dict[str, float]


def run(
    study: Study,
    settings: AttackSettings,
    watch: Watch = Watch(),  # noqa: B008 - it cannot change
) -> AttackResults:
    """Train the attacks on a study and judge their targets, or load what was computed.

    The deadline of the watch is looked at between kinds of attacks; if it has passed,
    ``OutOfTime`` is raised; call again to continue.
    """
    check.instance("study", study, Study)
    check.instance("settings", settings, AttackSettings)
    t_max = study.settings.t_max
    for length in settings.lengths:
        if length >= t_max:
            raise ValueError(f"clipping lengths must be below T_max = {t_max}, got {length}")
    kinds = list(_kinds(study, settings))
    per_draw, roc, seconds = [], [], 0.0
    for done, kind in enumerate(kinds):
        watch.report("attacks", done, len(kinds))
        rows, curves, spent = _cached(study, settings, kind, watch)
        per_draw.append(rows)
        roc.append(curves)
        seconds += spent
    watch.report("attacks", len(kinds), len(kinds))
    every, curves = (pd.concat(parts, ignore_index=True) for parts in (per_draw, roc))
    return AttackResults(summarise(every), every, curves, {"attacks": seconds})


def summarise(per_draw: pd.DataFrame) -> pd.DataFrame:
    """``AttackResults.table`` of ``AttackResults.per_draw``."""
    rows = []
    for key, part in per_draw.groupby(list(KEYS), sort=False):
        named = dict(zip(KEYS, key, strict=True))
        matches = part[["shadow_match", "target_match"]]
        row: dict[str, Any] = {name: named.pop(name) for name in _OF_DATA}
        row |= {
            "oracles": int(part["oracles"].iloc[0]),
            "draws": len(part),
            "accuracy": part["accuracy"].mean(),
            "accuracy_se": _standard_error(part["accuracy"], matches),
        }
        rows.append(row | {name: part[name].fillna(0.0).mean() for name in METRICS[1:]} | named)
    return pd.DataFrame(rows)


def table_5_2(table: pd.DataFrame) -> pd.DataFrame:
    """Rows at full clipping length without decorrelation: those of table 5.2 and its controls.

    Of ``AttackResults.table`` or ``AttackResults.per_draw``; all columns but ``length``.
    """
    full = table["length"] == table["t_max"]
    kept = table[full & (table["training"] != "decorrelated")]
    return kept.drop(columns="length").reset_index(drop=True)


def tables(found: AttackResults) -> dict[str, pd.DataFrame]:
    """The tables that are recorded of the attacks on a study, by name.

    ``table-5-2`` and ``table-5-2-draws`` (:func:`table_5_2`; of single draws those with labels as
    printed), ``roc``, the curves of figure 5.5 and of its control, ``clipping`` and
    ``temporal-correlation``.
    """
    draws_of = table_5_2(found.per_draw)
    as_printed = (draws_of[["training", "labels"]] == "as-printed").all(axis=1)
    roc, known = found.roc, ["as-printed", "same-oracle"]
    kept = roc["length"] == roc["t_max"]
    kept &= roc["training"].isin(known) & roc["labels"].isin(known)
    return {
        "table-5-2": table_5_2(found.table),
        "table-5-2-draws": draws_of[as_printed].reset_index(drop=True),
        "roc": roc[kept].drop(columns="length").reset_index(drop=True),
        "clipping": clipping(found.table),
        "temporal-correlation": temporal_correlation(found.table),
    }


def clipping(table: pd.DataFrame) -> pd.DataFrame:
    """Figure 5.6: accuracy over the clipping length, labels as printed, of ``AttackResults.table``.

    Columns ``environment, t_max, mode, length, shadows, split, draws, accuracy, accuracy_se``;
    empty if only one length was computed.
    """
    kept = table[
        (table["training"] == "as-printed")
        & (table["labels"] == "as-printed")
        & (table["network"] != "resnet")
    ]
    if kept["length"].nunique() < 2:
        kept = kept.iloc[:0]
    columns = ["environment", "t_max", "mode", "length", "shadows", "split", *_ACCURACY]
    order = ["mode", "split", "shadows", "length"]
    return kept[columns].sort_values(order, ignore_index=True)


def temporal_correlation(table: pd.DataFrame) -> pd.DataFrame:
    """Figure 5.7: accuracy when training or both sides are decorrelated, labels as printed.

    Of ``AttackResults.table``; columns ``environment, t_max, mode, training, test, shadows, split,
    draws, accuracy, accuracy_se``; ``training`` and ``test`` are ``correlated`` or
    ``decorrelated``.
    """
    kept = table[
        (table["length"] == table["t_max"])
        & (table["network"] != "resnet")
        & table["training"].isin(["as-printed", "decorrelated"])
        & table["labels"].isin(["as-printed", "decorrelated"])
    ]
    words = {"as-printed": "correlated", "decorrelated": "decorrelated"}
    kept = kept.assign(training=kept["training"].map(words), test=kept["labels"].map(words))
    columns = ["environment", "t_max", "mode", "training", "test", "shadows", "split", *_ACCURACY]
    return kept[columns].reset_index(drop=True)


# -- attacks of one kind ----------------------------------------------------------------


@dataclass(frozen=True)
class _Kind:
    """Attacks that are trained in one program: the same shapes and settings."""

    training: str
    several: bool
    length: int
    network: str  # tcn or resnet


def _kinds(study: Study, settings: AttackSettings) -> Iterator[_Kind]:
    t_max = study.settings.t_max
    for several in (False, True) if settings.several_shadows else (False,):
        for name in settings.trainings:
            yield _Kind(name, several, t_max, "tcn")
    if settings.resnet is not None:
        yield _Kind("as-printed", False, t_max, "resnet")
    for length in settings.lengths:
        yield _Kind("as-printed", False, length, "tcn")


def _cached(
    study: Study, settings: AttackSettings, kind: _Kind, watch: Watch
) -> tuple[pd.DataFrame, pd.DataFrame, float]:
    """Table, curves and seconds of one kind: computed once, then read."""
    key = fingerprint(
        code_of(_Attacks),
        kind,
        settings.resnet if kind.network == "resnet" else settings.tcn,
        [settings.validation_share, settings.bag_size, settings.seed],
        *([] if settings.most_steps is None else [settings.most_steps]),
    )
    with computed_once(study.folder / f"attacks-{key}", watch) as kept:
        files = [kept.place / "per-draw.csv", kept.place / "roc.csv"]
        if not kept.done:
            for frame, file in zip(_Attacks(study, settings, kind).results(), files, strict=True):
                frame.to_csv(file, index=False)
        rows, curves = (pd.read_csv(file) for file in files)
    return rows, curves, kept.seconds


class _Attacks:
    """The attacks of one kind: training, and judging of targets."""

    def __init__(self, study: Study, settings: AttackSettings, kind: _Kind) -> None:
        self.study, self.settings, self.kind = study, settings, kind
        self.m = study.settings.trajectories
        self.draws = draws(study.settings.oracles, kind.several, settings.seed)
        self.training_states, self.validation_states = pairs.split_states(
            self.m, settings.validation_share, np.random.default_rng(settings.seed)
        )
        self.rows: list[dict[str, Any]] = []
        self.curves: dict[tuple[str, str], list[tuple[Draw, FloatArray]]] = {}

    def results(self) -> tuple[pd.DataFrame, pd.DataFrame]:
        """Per-draw table and ROC curves."""
        validations = _VALIDATIONS[self.kind.training]
        shadows = list(dict.fromkeys(draw.shadow for draw in self.draws))
        learnt = {
            shadow: self._shadow_pairs(shadow, self.kind.training, self.training_states)
            for shadow in shadows
        }
        attacks = dict(zip(shadows, self._fit(learnt), strict=True))
        thresholds: dict[tuple[Shadow, str], float] = {}
        memories: dict[Shadow, dict[tuple[int, ...], FloatArray]] = {one: {} for one in shadows}
        first = {draw.shadow: draw for draw in reversed(self.draws)}
        for shadow, labels in itertools.product(shadows, validations):
            judged = self._shadow_pairs(shadow, labels, self.validation_states)
            draw = first[shadow]
            pairs.require_disjoint(learnt[shadow], judged)
            for answer in self._answers(attacks[shadow], judged, draw, labels, None):
                if labels == validations[0]:
                    thresholds[shadow, answer[0]] = _best_threshold(*answer[1:])
                self._record(draw, labels, "shadow-validation", answer, np.nan)
        # all attacks judge a target in turn: its pairs are made once
        for target in dict.fromkeys(draw.target for draw in self.draws):
            for labels in _TESTS[self.kind.training]:
                judged = self._pairs(*target, labels, np.arange(self.m))
                for draw in (one for one in self.draws if one.target == target):
                    shadow = draw.shadow
                    pairs.require_disjoint(learnt[shadow], judged)
                    repeats = labels not in ("input-only", "decorrelated")
                    memory = memories[shadow] if repeats else None
                    for answer in self._answers(attacks[shadow], judged, draw, labels, memory):
                        threshold = thresholds.get((shadow, answer[0]), np.nan)
                        self._record(draw, labels, "target", answer, threshold)
        every = pd.DataFrame(self.rows)
        if self.settings.most_steps is not None:
            every["steps"] = attacks[shadows[0]].settings.steps
        return every, self._roc()

    # -- training

    def _fit(self, learnt: Mapping[Shadow, LabelledPairs]) -> list[Classifier]:
        settings = self.settings.tcn if self.kind.network == "tcn" else self.settings.resnet
        assert settings is not None
        data = [(one.pairs, one.labels) for one in learnt.values()]
        seeds = [self._seed("training", shadow.models, shadow.half) for shadow in learnt]
        most_steps = self.settings.most_steps
        if most_steps is None or not isinstance(settings, TCNSettings):
            pairs_of, labels_of = zip(*data, strict=True)
            return training.train_many(pairs_of, labels_of, settings, seeds)
        labels = _VALIDATIONS[self.kind.training][0]
        judged = [self._shadow_pairs(one, labels, self.validation_states) for one in learnt]
        held_out = [(one.pairs, one.labels) for one in judged]
        return training.train_to_plateau(data, held_out, settings, seeds, most_steps)

    def _shadow_pairs(self, shadow: Shadow, labels: str, states: IntArray) -> LabelledPairs:
        return pairs.concatenate(
            [
                self._pairs(positive, negative, shadow.half, labels, states)
                for positive, negative in shadow.models
            ]
        )

    def _pairs(
        self, judged: int, other: int, half: int, labels: str, states: IntArray
    ) -> LabelledPairs:
        mixed = labels == "decorrelated"
        seed = self._seed("decorrelated", judged, other, half, int(states[0]), states.size)
        formatter = pairs.DataFormatter(
            self.study.inputs,
            self.study.outputs,
            length=self.kind.length,
            states=states,
            decorrelated=np.random.default_rng(seed) if mixed else None,
        )
        negatives = None if labels in ("same-oracle", "swap-twins") else other
        return formatter.label(judged, negatives, "as-printed" if mixed else labels, half)

    # -- judging

    def _answers(
        self,
        classifier: Classifier,
        judged: LabelledPairs,
        draw: Draw,
        labels: str,
        memory: dict[tuple[int, ...], FloatArray] | None,
    ) -> Iterator[_Answer]:
        """Mode, truth and logits: of single pairs, and of bags where there are enough."""
        individual = self.kind.network == "tcn"
        if individual:
            logits = self._logits(classifier, judged, memory)
            yield "individual", judged.labels, logits
        counts = np.unique(judged.origins, axis=0, return_counts=True)[1]
        if counts.min() < self.settings.bag_size:
            return
        seed = self._seed("bags", draw.positive, draw.negative, draw.half, draw.matches, labels)
        bags = voting.draw_bags(judged, self.settings.bag_size, np.random.default_rng(seed))
        votes = (
            voting.vote(logits, bags) if individual else classifier.bag_logits(judged.pairs, bags)
        )
        yield "collective", voting.bag_labels(judged.labels, bags), votes

    def _logits(
        self,
        classifier: Classifier,
        judged: LabelledPairs,
        memory: dict[tuple[int, ...], FloatArray] | None,
    ) -> FloatArray:
        """Logits of single pairs; one set of inputs with one of outputs is judged once."""
        if memory is None:
            return classifier.logits(judged.pairs)
        found, origins = [], np.column_stack([judged.inputs, judged.outputs])
        for start in range(0, len(judged), self.m):
            key = tuple(origins[start].tolist())
            if key not in memory:
                memory[key] = classifier.logits(judged.pairs[start : start + self.m])
            found.append(memory[key])
        return np.concatenate(found)

    def _record(
        self, draw: Draw, labels: str, split: str, answer: _Answer, shadow_threshold: float
    ) -> None:
        study, kind, (mode, truth, logits) = self.study.settings, self.kind, answer
        found = metrics.summary(truth, logits, threshold=0.0)
        best = _best_threshold(truth, logits)
        shadow = draw.shadow.models[0] if len(draw.shadow.models) == 1 else (-1, -1)
        target = draw.target if split == "target" else (-1, -1, -1)
        network = ("vote" if mode == "collective" else "tcn") if kind.network == "tcn" else "resnet"
        self.rows.append(
            {
                "environment": study.environment,
                "t_max": study.t_max,
                "mode": mode,
                "labels": labels,
                "shadows": len(draw.shadow.models),
                "split": split,
                "training": kind.training,
                "network": network,
                "length": kind.length,
                "oracles": study.oracles,
                "shadow_positive": shadow[0],
                "shadow_negative": shadow[1],
                "shadow_half": draw.shadow.half,
                "target_positive": target[0],
                "target_negative": target[1],
                "target_half": target[2],
                "shadow_match": draw.matches[0],
                "target_match": draw.matches[split == "target"],
                "tested": truth.size,
                **{name: found[name] for name in METRICS},
                "best_threshold": best,
                "accuracy_best_threshold": _accuracy(truth, logits, best),
                "shadow_threshold": shadow_threshold,
                "accuracy_shadow_threshold": _accuracy(truth, logits, shadow_threshold),
            }
        )
        if split == "target":
            curve = metrics.roc_curve(truth, logits).tpr_at(_FPR)
            self.curves.setdefault((mode, labels), []).append((draw, curve))

    def _roc(self) -> pd.DataFrame:
        study, kind, frames = self.study.settings, self.kind, []
        for (mode, labels), curves in self.curves.items():
            tpr = np.stack([curve for _, curve in curves])
            clusters = [draw.matches for draw, _ in curves]
            frames.append(
                pd.DataFrame(
                    {
                        "environment": study.environment,
                        "t_max": study.t_max,
                        "mode": mode,
                        "labels": labels,
                        "shadows": len(self.draws[0].shadow.models),
                        "training": kind.training,
                        "network": kind.network,
                        "length": kind.length,
                        "draws": len(curves),
                        "fpr": _FPR,
                        "tpr": tpr.mean(axis=0),
                        "tpr_se": [_standard_error(column, clusters) for column in tpr.T],
                    }
                )
            )
        return pd.concat(frames, ignore_index=True)

    def _seed(self, *parts: object) -> int:
        """A seed of its own for each use; it does not depend on what else is computed."""
        return int(fingerprint(self.settings.seed, self.kind.training, *parts), 16) % 2**31


def _best_threshold(truth: NDArray[np.bool_], logits: FloatArray) -> float:
    """Of the thesis's thresholds the one with the highest accuracy; a probability."""
    odds = [math.log(p / (1 - p)) for p in THRESHOLDS]
    chosen = metrics.threshold_on(truth, logits, candidates=odds)
    return THRESHOLDS[int(np.argmin(np.abs(np.array(odds) - chosen)))]


def _accuracy(truth: NDArray[np.bool_], logits: FloatArray, threshold: float) -> float:
    if math.isnan(threshold):
        return math.nan
    at = math.log(threshold / (1 - threshold))
    return float(metrics.confusion_at(truth, logits, at).accuracy)


def _standard_error(values: ArrayLike, clusters: ArrayLike) -> float:
    """Of a mean over draws, leaving out one match at a time; NaN if none can be left out."""
    used = np.asarray(clusters)
    if any((used == match).any(axis=1).all() for match in np.unique(used)):
        return float("nan")
    return metrics.clustered_interval(values, used).standard_error
