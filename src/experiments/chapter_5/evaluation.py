r"""The attack, repeated over draws of oracles: table 5.2 and its controls.

A **draw** is one experiment as the thesis describes it (section 5.6.1): distinct oracles for
the shadow's training data and the shadow's negatives, for the target's training data and the
target's negatives. An attack network is trained on the shadow's pairs and judges the target's.
The thesis has one draw per table entry, trained five times. What differs from draw to draw is
which policies happen to be told apart, so the unit of replication is the oracle.

All O oracles are matched at random in pairs (with an odd number one rests);

* ``shadows = 1``, the thesis's design: each match, in both orders, trains one attack (O of
  them), and each judges all other matches in both orders: O (O - 2) draws;
* ``shadows = O - 2``: for each match one attack is trained on the models of *all other*
  oracles, in random order around a ring, each with the next one's data as negatives; it
  judges the match in both orders: O draws.

Each oracle is the target equally often, and both orders of a match are judged on the same
half. So the answers of an attack that looks at the input alone cancel: what is right in one
order is wrong in the other, and its mean accuracy is 1/2.

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
import json
import math
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

from dprl import _validation as check
from dprl._validation import FloatArray, IntArray
from dprl.agents.checkpoints import Deadline, fingerprint, locked
from dprl.membership import metrics, pairs
from dprl.membership.attacks import resnet, tcn, training, voting
from dprl.membership.attacks.resnet import ResNetSettings
from dprl.membership.attacks.tcn import TCNSettings
from dprl.membership.attacks.training import Classifier
from dprl.membership.pairs import LabelledPairs
from experiments.chapter_5.study import PROFILES, Cell, Progress, Study, code_of

TRAININGS = ("as-printed", "same-oracle", "input-only", "decorrelated")
METRICS = ("accuracy", "precision", "recall", "f1", "mcc", "auc", "tpr_at_fpr_1pct")
_ACCURACY = ("draws", "accuracy", "accuracy_se")
#: Thresholds from which the thesis chooses (section 5.7.2).
THRESHOLDS = tuple(i / 10 for i in range(1, 10))
#: Columns that identify a row of ``Evaluation.table``.
KEYS = (
    "environment",
    "t_max",
    "mode",
    "labels",
    "shadows",
    "split",
    "training",
    "network",
    "length",
)

_TESTS = {
    "as-printed": ("as-printed", "same-oracle", "never-seen", "swap-twins"),
    "same-oracle": ("same-oracle", "swap-twins"),
    "input-only": ("input-only",),
    "decorrelated": ("as-printed", "decorrelated"),
}
_VALIDATIONS = {
    "as-printed": ("as-printed",),
    "same-oracle": ("same-oracle",),
    "input-only": ("input-only",),
    "decorrelated": ("as-printed", "decorrelated"),
}
_FPR = np.concatenate([[0.0, 0.001, 0.002, 0.005, 0.01], np.linspace(0.02, 1.0, 50)])


@dataclass(frozen=True)
class Design:
    """Which attacks are trained on a study.

    Parameters
    ----------
    trainings : tuple of str
        Of ``TRAININGS``.
    several_shadows : bool
        Whether attacks with all remaining oracles as shadows are trained beside those with
        one.
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
    bag_size : int
        Pairs in a bag. Where a model has fewer pairs there are no collective rows.
    seed : int

    Raises
    ------
    TypeError, ValueError
        If a value is malformed.
    """

    trainings: tuple[str, ...] = TRAININGS
    several_shadows: bool = True
    tcn: TCNSettings = field(default_factory=TCNSettings)
    resnet: ResNetSettings | None = None
    lengths: tuple[int, ...] = ()
    validation_share: float = 0.2
    bag_size: int = pairs.BAG_SIZE
    seed: int = 52

    def __post_init__(self) -> None:
        check.whole("bag_size", self.bag_size)
        check.seed(self.seed)
        check.open_unit("validation_share", self.validation_share)
        check.instance("tcn", self.tcn, TCNSettings)
        if self.resnet is not None:
            check.instance("resnet", self.resnet, ResNetSettings)
        unknown = [name for name in self.trainings if name not in TRAININGS]
        if unknown or not self.trainings:
            raise ValueError(
                f"trainings must be some of {', '.join(TRAININGS)}, got {self.trainings!r}"
            )
        for length in self.lengths:
            check.whole("each of lengths", length)


def design(cell: Cell, profile: str) -> Design:
    """The attacks that a profile trains on a cell.

    Parameters
    ----------
    cell : Cell
    profile : str
        ``quick``, ``laptop`` or ``paper``.

    Returns
    -------
    Design
        All trainings with the TCN. ``quick`` and ``laptop``: the narrow one
        (:meth:`dprl.membership.attacks.tcn.TCNSettings.narrow`). ``quick``: two more clipping
        lengths. ``laptop``: for Hopper at T_max 100 clipping lengths and a ResNet-18 of width 16.
        ``paper``: a ResNet-18 of standard width everywhere, with the weight decay of table 5.1
        left out (with Adam it shrinks all weights to zero), clipping lengths where the thesis
        has them.

    Examples
    --------
    >>> from experiments.chapter_5 import study
    >>> design(study.cells("quick")[0], "quick").lengths
    (5, 15)
    """
    check.instance("cell", cell, Cell)
    hopper_100 = cell.environment == "Hopper-v5" and cell.t_max == 100
    if profile == "quick":
        return Design(tcn=TCNSettings.narrow(), lengths=tuple(n for n in (5, 15) if n < cell.t_max))
    if profile == "laptop":
        return Design(
            tcn=TCNSettings.narrow(),
            lengths=(5, 10, 25, 50) if hopper_100 else (),
            resnet=ResNetSettings(width=16, steps=80) if hopper_100 else None,
        )
    if profile == "paper":
        return Design(
            lengths=(5, 10, 25, 50) if hopper_100 else (),
            resnet=ResNetSettings(width=64, steps=400),
        )
    raise ValueError(f"profile must be one of {', '.join(PROFILES)}, got {profile!r}")


@dataclass(frozen=True)
class Shadow:
    """What one attack is trained on.

    Attributes
    ----------
    models : tuple of (int, int)
        For each shadow model its oracle, and the oracle of its negatives.
    half : int
        Which of the halves, for all of them.
    """

    models: tuple[tuple[int, int], ...]
    half: int


@dataclass(frozen=True)
class Draw:
    """One experiment.

    Attributes
    ----------
    shadow : Shadow
    positive, negative : int
        The target's oracle, and the oracle of its negatives.
    half : int
        Which of the target's two models.
    matches : (int, int)
        Numbers of the shadow's and the target's match. With several shadows both are the
        target's.
    """

    shadow: Shadow
    positive: int
    negative: int
    half: int
    matches: tuple[int, int]

    @property
    def target(self) -> tuple[int, int, int]:
        """``positive``, ``negative``, ``half``: what decides which pairs are judged."""
        return self.positive, self.negative, self.half


def draws(oracles: int, several: bool, seed: int) -> list[Draw]:
    """The draws of a design, grouped by shadow; see the module for how they come about.

    Parameters
    ----------
    oracles : int
        O >= 4.
    several : bool
        One shadow model, or all remaining oracles.
    seed : int

    Returns
    -------
    list of Draw

    Examples
    --------
    >>> len(draws(6, several=False, seed=0)), len(draws(6, several=True, seed=0))
    (24, 6)
    """
    count = check.whole("oracles", oracles, 4)
    rng = np.random.default_rng(check.seed(seed))
    meeting = _matches(count, rng)
    found = []
    for number, match in enumerate(meeting):
        if several:
            others = rng.permutation([o for o in range(count) if o not in match])
            ring = [int(o) for o in others]
            models = tuple(zip(ring, [*ring[1:], ring[0]], strict=True))
            shadows, targets = [Shadow(models, int(rng.integers(2)))], [number]
        else:
            shadows = [Shadow((two,), int(rng.integers(2))) for two in (match, match[::-1])]
            targets = [other for other in range(len(meeting)) if other != number]
        for shadow, target in itertools.product(shadows, targets):
            half, order = int(rng.integers(2)), meeting[target]
            found += [Draw(shadow, *two, half, (number, target)) for two in (order, order[::-1])]
    return found


def _matches(oracles: int, rng: np.random.Generator) -> list[tuple[int, int]]:
    """A random perfect matching; with an odd number one oracle rests."""
    order = [int(o) for o in rng.permutation(oracles)]
    return list(zip(order[0::2], order[1::2], strict=False))


@dataclass(frozen=True, eq=False)
class Evaluation:
    """What the attacks of a design achieved on a study.

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
        ``shadow_threshold`` chosen on the shadow validation and the accuracy there.
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


def evaluate(
    study: Study,
    design: Design,
    deadline: Deadline | None = None,
    progress: Progress | None = None,
) -> Evaluation:
    """Train the attacks of a design and judge their targets, or load what was computed.

    Parameters
    ----------
    study : Study
    design : Design
    deadline : Deadline, optional
        Checked between groups of trainings; finished groups are kept.
    progress : callable, optional
        As for :func:`experiments.chapter_5.study.run`.

    Returns
    -------
    Evaluation

    Raises
    ------
    OutOfTime
        If the deadline has passed; call again to continue.
    ValueError
        If a clipping length is not below T_max.
    """
    check.instance("study", study, Study)
    check.instance("design", design, Design)
    for length in design.lengths:
        if length >= study.cell.t_max:
            raise ValueError(
                f"clipping lengths must be below T_max = {study.cell.t_max}, got {length}"
            )
    per_draw, roc, seconds = [], [], 0.0
    groups = list(_groups(study, design))
    for done, group in enumerate(groups):
        if progress is not None:
            progress("attacks", done, len(groups))
        rows, curves, spent = _cached(study, design, group, deadline)
        per_draw.append(rows)
        roc.append(curves)
        seconds += spent
    if progress is not None:
        progress("attacks", len(groups), len(groups))
    every = pd.concat(per_draw, ignore_index=True)
    curves = pd.concat(roc, ignore_index=True)
    return Evaluation(summarise(every), every, curves, {"attacks": seconds})


def summarise(per_draw: pd.DataFrame) -> pd.DataFrame:
    """Means over draws, with clustered standard errors of the accuracy.

    Parameters
    ----------
    per_draw : DataFrame
        As ``Evaluation.per_draw``.

    Returns
    -------
    DataFrame
        As ``Evaluation.table``.
    """
    rows = []
    for key, part in per_draw.groupby(list(KEYS), sort=False):
        named = dict(zip(KEYS, key, strict=True))
        row: dict[str, Any] = {name: named[name] for name in KEYS[:5]}
        row["oracles"] = int(part["oracles"].iloc[0])
        row["draws"] = len(part)
        row["accuracy"] = part["accuracy"].mean()
        row["accuracy_se"] = _standard_error(
            part["accuracy"], part[["shadow_match", "target_match"]]
        )
        row |= {name: part[name].fillna(0.0).mean() for name in METRICS[1:]}
        rows.append(row | {name: named[name] for name in KEYS[5:]})
    return pd.DataFrame(rows)


def table_5_2(table: pd.DataFrame) -> pd.DataFrame:
    """Rows at full clipping length without decorrelation: those of table 5.2 and its controls.

    Parameters
    ----------
    table : DataFrame
        ``Evaluation.table`` or ``Evaluation.per_draw``.

    Returns
    -------
    DataFrame
        The same columns but ``length``.
    """
    full = table["length"] == table["t_max"]
    kept = table[full & (table["training"] != "decorrelated")]
    return kept.drop(columns="length").reset_index(drop=True)


def clipping(table: pd.DataFrame) -> pd.DataFrame:
    """Figure 5.6: accuracy over the clipping length, labels as printed.

    Parameters
    ----------
    table : DataFrame
        ``Evaluation.table``.

    Returns
    -------
    DataFrame
        ``environment, t_max, mode, length, shadows, split, draws, accuracy, accuracy_se``;
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

    Parameters
    ----------
    table : DataFrame
        ``Evaluation.table``.

    Returns
    -------
    DataFrame
        ``environment, t_max, mode, training, test, shadows, split, draws, accuracy,
        accuracy_se``; ``training`` and ``test`` are ``correlated`` or ``decorrelated``.
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


# -- one group of trainings -------------------------------------------------------------


@dataclass(frozen=True)
class _Group:
    """Attacks that are trained in one program: the same shapes and settings."""

    training: str
    several: bool
    length: int
    network: str  # tcn or resnet


def _groups(study: Study, design: Design) -> Iterator[_Group]:
    t_max = study.cell.t_max
    for several in (False, True) if design.several_shadows else (False,):
        for name in design.trainings:
            yield _Group(name, several, t_max, "tcn")
    if design.resnet is not None:
        yield _Group("as-printed", False, t_max, "resnet")
    for length in design.lengths:
        yield _Group("as-printed", False, length, "tcn")


def _cached(
    study: Study, design: Design, group: _Group, deadline: Deadline | None
) -> tuple[pd.DataFrame, pd.DataFrame, float]:
    """Table, curves and seconds of one group: computed once, then read."""
    settings = design.resnet if group.network == "resnet" else design.tcn
    mark = fingerprint(
        *map(code_of, (metrics, pairs, resnet, tcn, training, voting, _this_module())),
        group,
        settings,
        [design.validation_share, design.bag_size, design.seed],
    )
    with locked(study.folder / f"attacks-{mark}") as place:
        files, clock = [place / "per-draw.csv", place / "roc.csv"], place / "seconds.json"
        if not clock.is_file():
            if deadline is not None:
                deadline.check()
            start = time.perf_counter()
            for frame, file in zip(_Judge(study, design, group).frames(), files, strict=True):
                frame.to_csv(file, index=False)
            unfinished = clock.with_suffix(".part")
            unfinished.write_text(json.dumps(time.perf_counter() - start))
            unfinished.replace(clock)  # last, and whole: it says that the tables are
        rows, curves = (_read(file) for file in files)
        return rows, curves, float(json.loads(clock.read_text()))


def _read(file: Path) -> pd.DataFrame:
    return pd.read_csv(file)


class _Judge:
    """Trains the attacks of one group and lets them judge."""

    def __init__(self, study: Study, design: Design, group: _Group) -> None:
        self.study, self.design, self.group = study, design, group
        cell = study.cell
        self.m = cell.trajectories
        self.draws = draws(cell.oracles, group.several, design.seed)
        self.training_states, self.validation_states = pairs.split_states(
            self.m, design.validation_share, np.random.default_rng(design.seed)
        )
        self.rows: list[dict[str, Any]] = []
        self.curves: dict[tuple[str, str], list[FloatArray]] = {}
        self.curve_draws: dict[tuple[str, str], list[Draw]] = {}

    def frames(self) -> tuple[pd.DataFrame, pd.DataFrame]:
        """Per-draw table and ROC curves."""
        shadows = list(dict.fromkeys(draw.shadow for draw in self.draws))
        learnt = [
            self._shadow_pairs(shadow, self.group.training, self.training_states)
            for shadow in shadows
        ]
        attacks = self._fit(shadows, learnt)
        thresholds: dict[tuple[Shadow, str], float] = {}
        memories: dict[Shadow, dict[tuple[int, int], FloatArray]] = {one: {} for one in shadows}
        first = {draw.shadow: draw for draw in reversed(self.draws)}
        for shadow, seen, classifier in zip(shadows, learnt, attacks, strict=True):
            for labels in _VALIDATIONS[self.group.training]:
                judged = self._shadow_pairs(shadow, labels, self.validation_states)
                pairs.require_disjoint(seen, judged)
                for mode, truth, logits in self._judge(
                    classifier, judged, first[shadow], labels, None
                ):
                    if labels == _VALIDATIONS[self.group.training][0]:
                        thresholds[shadow, mode] = _best_threshold(truth, logits)
                    self._add(first[shadow], labels, "shadow-validation", mode, truth, logits, None)
        # all attacks judge a target in turn: its pairs are made once
        for target in dict.fromkeys(draw.target for draw in self.draws):
            for labels in _TESTS[self.group.training]:
                judged = self._target_pairs(*target, labels)
                for draw in (one for one in self.draws if one.target == target):
                    number = shadows.index(draw.shadow)
                    pairs.require_disjoint(learnt[number], judged)
                    memory = memories[draw.shadow]
                    for mode, truth, logits in self._judge(
                        attacks[number],
                        judged,
                        draw,
                        labels,
                        None if labels in ("input-only", "decorrelated") else memory,
                    ):
                        threshold = thresholds.get((draw.shadow, mode))
                        self._add(draw, labels, "target", mode, truth, logits, threshold)
        return pd.DataFrame(self.rows), self._roc()

    # -- training

    def _fit(self, shadows: Sequence[Shadow], sets: Sequence[LabelledPairs]) -> list[Classifier]:
        settings = self.design.tcn if self.group.network == "tcn" else self.design.resnet
        if settings is None:
            raise AssertionError("a ResNet group without ResNet settings")
        return training.train_many(
            [one.pairs for one in sets],
            [one.labels for one in sets],
            settings,
            [self._seed("training", shadow.models, shadow.half) for shadow in shadows],
        )

    def _shadow_pairs(self, shadow: Shadow, labels: str, states: IntArray) -> LabelledPairs:
        return pairs.concatenate(
            [
                self._pairs(positive, negative, shadow.half, labels, states)
                for positive, negative in shadow.models
            ]
        )

    def _target_pairs(self, positive: int, negative: int, half: int, labels: str) -> LabelledPairs:
        return self._pairs(positive, negative, half, labels, np.arange(self.m))

    def _pairs(
        self, judged: int, other: int, half: int, labels: str, states: IntArray
    ) -> LabelledPairs:
        mixed = labels == "decorrelated"
        seed = self._seed("decorrelated", judged, other, half, int(states[0]), states.size)
        return pairs.labelled_pairs(
            self.study.inputs,
            self.study.outputs,
            judged=judged,
            other=None if labels in ("same-oracle", "swap-twins") else other,
            labels="as-printed" if mixed else labels,
            half=half,
            length=self.group.length,
            states=states,
            decorrelated=np.random.default_rng(seed) if mixed else None,
        )

    # -- judging

    def _judge(
        self,
        classifier: Classifier,
        judged: LabelledPairs,
        draw: Draw,
        labels: str,
        memory: dict[tuple[int, int], FloatArray] | None,
    ) -> Iterator[tuple[str, NDArray[np.bool_], FloatArray]]:
        """Mode, truth and logits: of single pairs, and of bags where there are enough."""
        individual = self.group.network == "tcn"
        if individual:
            logits = self._logits(classifier, judged, memory)
            yield "individual", judged.labels, logits
        groups = np.stack([judged.labels, judged.input_ids >> 32, judged.output_ids >> 32])
        if np.unique(groups, axis=1, return_counts=True)[1].min() < self.design.bag_size:
            return
        seed = self._seed("bags", draw.positive, draw.negative, draw.half, draw.matches, labels)
        bags = pairs.bags(judged, self.design.bag_size, np.random.default_rng(seed))
        votes = (
            voting.vote(logits, bags) if individual else classifier.bag_logits(judged.pairs, bags)
        )
        yield "collective", pairs.bag_labels(judged.labels, bags), votes

    def _logits(
        self,
        classifier: Classifier,
        judged: LabelledPairs,
        memory: dict[tuple[int, int], FloatArray] | None,
    ) -> FloatArray:
        """Logits of single pairs; one set of inputs with one of outputs is judged once."""
        if memory is None:
            return classifier.logits(judged.pairs)
        found = []
        for start in range(0, len(judged), self.m):
            key = int(judged.input_ids[start]) >> 32, int(judged.output_ids[start]) >> 32
            if key not in memory:
                memory[key] = classifier.logits(judged.pairs[start : start + self.m])
            found.append(memory[key])
        return np.concatenate(found)

    def _add(
        self,
        draw: Draw,
        labels: str,
        split: str,
        mode: str,
        truth: NDArray[np.bool_],
        logits: FloatArray,
        shadow_threshold: float | None,
    ) -> None:
        cell, group = self.study.cell, self.group
        found = metrics.summary(truth, logits, threshold=0.0)
        best = _best_threshold(truth, logits)
        one = len(draw.shadow.models) == 1
        network = (
            ("vote" if mode == "collective" else "tcn") if group.network == "tcn" else "resnet"
        )
        row: dict[str, Any] = {
            "environment": cell.environment,
            "t_max": cell.t_max,
            "mode": mode,
            "labels": labels,
            "shadows": len(draw.shadow.models),
            "split": split,
            "training": group.training,
            "network": network,
            "length": group.length,
            "oracles": cell.oracles,
            "shadow_positive": draw.shadow.models[0][0] if one else -1,
            "shadow_negative": draw.shadow.models[0][1] if one else -1,
            "shadow_half": draw.shadow.half,
            "target_positive": draw.positive if split == "target" else -1,
            "target_negative": draw.negative if split == "target" else -1,
            "target_half": draw.half if split == "target" else -1,
            "shadow_match": draw.matches[0],
            "target_match": draw.matches[1] if split == "target" else draw.matches[0],
            "tested": truth.size,
            **{name: found[name] for name in METRICS},
            "best_threshold": best,
            "accuracy_best_threshold": _accuracy(truth, logits, best),
        }
        if shadow_threshold is None:
            row |= {"shadow_threshold": np.nan, "accuracy_shadow_threshold": np.nan}
        else:
            row["shadow_threshold"] = shadow_threshold
            row["accuracy_shadow_threshold"] = _accuracy(truth, logits, shadow_threshold)
        self.rows.append(row)
        if split == "target":
            curve = metrics.roc_curve(truth, logits).tpr_at(_FPR)
            self.curves.setdefault((mode, labels), []).append(curve)
            self.curve_draws.setdefault((mode, labels), []).append(draw)

    def _roc(self) -> pd.DataFrame:
        cell, group, frames = self.study.cell, self.group, []
        for (mode, labels), curves in self.curves.items():
            tpr = np.stack(curves)
            clusters = [draw.matches for draw in self.curve_draws[mode, labels]]
            frames.append(
                pd.DataFrame(
                    {
                        "environment": cell.environment,
                        "t_max": cell.t_max,
                        "mode": mode,
                        "labels": labels,
                        "shadows": len(self.draws[0].shadow.models),
                        "training": group.training,
                        "network": group.network,
                        "length": group.length,
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
        return int(fingerprint(self.design.seed, self.group.training, *parts), 16) % 2**31


def _best_threshold(truth: NDArray[np.bool_], logits: FloatArray) -> float:
    """Of the thesis's thresholds the one with the highest accuracy; a probability."""
    odds = [math.log(p / (1 - p)) for p in THRESHOLDS]
    chosen = metrics.threshold_on(truth, logits, candidates=odds)
    return THRESHOLDS[int(np.argmin(np.abs(np.array(odds) - chosen)))]


def _accuracy(truth: NDArray[np.bool_], logits: FloatArray, threshold: float) -> float:
    at = math.log(threshold / (1 - threshold))
    return float(metrics.confusion_at(truth, logits, at).accuracy)


def _standard_error(values: ArrayLike, clusters: ArrayLike) -> float:
    """Of a mean over draws, leaving out one match at a time; NaN if none can be left out."""
    used = np.asarray(clusters)
    if any((used == match).any(axis=1).all() for match in np.unique(used)):
        return float("nan")
    return metrics.clustered_interval(values, used).standard_error


def _this_module() -> ModuleType:
    return sys.modules[__name__]
