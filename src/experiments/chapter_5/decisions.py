"""What the larger runs decide: rules and their numbers, fixed before any of them was started.

A rule reads recorded tables (:mod:`experiments.chapter_5.runs`) and gives a :class:`Decision`,
one of the outcomes that its docstring names. Its unit is the oracle. The AUC of a score is the
mean over oracles with Student's t interval of :data:`CONFIDENCE`, wider than the 95 % of the
tables, since a rule looks at up to four of them: if nothing leaks, a rule that looks at four
lower ends says so wrongly in at most 2 of 100 runs (four times half a per cent).

Roll-outs are judged by :data:`ROLL_OUT_SCORES`: the first steps compared one by one, which
needs no training, and the network that was trained for this question.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import pandas as pd
from scipy import stats

from dprl._validation import FloatArray

#: Of the intervals that rules look at.
CONFIDENCE = 0.99
#: Scores by which roll-outs are judged.
ROLL_OUT_SCORES = ("first-steps", "network")
#: An AUC, or accuracy, up to which a leak counts as small: "none above" is said at this number.
SMALL = 0.55
#: Run B: every-state AUC at M = 20 above which memory counts as strong.
STRONG = 0.7
#: Run C: AUC up to which nothing much is left without noise; difference that counts as none.
LITTLE, NO_CHANGE = 0.6, 0.05
#: Run D: rise of the accuracy by a factor of ten in T_max below which there is "no rise".
NO_RISE = 0.05


@dataclass(frozen=True)
class Interval:
    """A mean over oracles, or a slope, and the ends of its interval."""

    mean: float
    low: float
    high: float


@dataclass(frozen=True)
class Decision:
    """What a rule says: one of the outcomes that it names, and the numbers it looked at."""

    outcome: str
    evidence: dict[str, Interval]

    def __str__(self) -> str:
        parts = (
            f"{name}: {one.mean:.3f} [{one.low:.3f}, {one.high:.3f}]"
            for name, one in self.evidence.items()
        )
        return "; ".join(parts)


def over_oracles(values: FloatArray, confidence: float = CONFIDENCE) -> Interval:
    """Mean of one number an oracle, with Student's t interval.

    Examples
    --------
    >>> found = over_oracles(np.array([0.5, 0.52, 0.54]), 0.95)
    >>> round(found.mean, 3), round(found.low, 3), round(found.high, 3)
    (0.52, 0.47, 0.57)
    """
    x = np.asarray(values, dtype=float)
    if x.ndim != 1 or x.size < 2:
        raise ValueError(f"an interval needs the numbers of at least two oracles, got {x.shape}")
    half = stats.t.ppf((1 + confidence) / 2, x.size - 1) * x.std(ddof=1) / np.sqrt(x.size)
    return Interval(float(x.mean()), float(x.mean() - half), float(x.mean() + half))


def run_a(by_oracle: pd.DataFrame) -> Decision:
    """Run A (and E): is "no membership signal in roll-outs" a matter of too short a training?

    ``by_oracle`` is ``run-a-games-by-oracle``. Looks at the AUC of members against held-out
    trajectories by :data:`ROLL_OUT_SCORES`, after the first and the last number of updates:

    * "leak after longer training": a lower end above 1/2 after the last, and none after the first;
    * "leak all along": a lower end above 1/2 after the last, and one after the first;
    * "no leak above 0.55": no such lower end after the last, both upper ends at most 0.55;
    * "undecided": anything else.
    """
    updates = sorted(by_oracle["updates"].unique())
    at_first, at_last = updates[0], updates[-1]
    ends = {
        (name, at): _auc(by_oracle[by_oracle["updates"] == at], name)
        for at in (at_first, at_last)
        for name in ROLL_OUT_SCORES
    }
    first, last = ([ends[name, at] for name in ROLL_OUT_SCORES] for at in (at_first, at_last))
    early = any(one.low > 0.5 for one in first)
    found = "leak all along" if early else "leak after longer training"
    outcome = _outcome(last, found, "leak")
    return Decision(outcome, {f"{name}, {at:,} updates": one for (name, at), one in ends.items()})


def run_b(by_oracle: pd.DataFrame) -> Decision:
    """Run B: do roll-outs leak where memory is strong?

    ``by_oracle`` is ``run-b-games-by-oracle``. Looks at members against held-out trajectories:

    * "memory is weak": the lower end by ``every-state`` with M = 20 is not above 0.7, so that the
      question cannot be asked;
    * "leak": with M = 20 or 100 a lower end of :data:`ROLL_OUT_SCORES` is above 1/2;
    * "no leak above 0.55": no such lower end, and all four upper ends at most 0.55;
    * "undecided": anything else.
    """
    sizes = sorted(by_oracle["trajectories"].unique())
    at_size = {size: by_oracle[by_oracle["trajectories"] == size] for size in sizes}
    memory = _auc(at_size[sizes[0]], "every-state")
    evidence = {f"every-state, M = {sizes[0]}": memory}
    ends = {
        f"{name}, M = {size}": _auc(at_size[size], name)
        for size in sizes
        for name in ROLL_OUT_SCORES
    }
    weak = memory.low <= STRONG
    outcome = "memory is weak" if weak else _outcome(ends.values(), "leak", "leak")
    return Decision(outcome, evidence | ends)


def run_c(by_oracle: pd.DataFrame) -> Decision:
    """Run C: is the memory one of exploration noise?

    ``by_oracle`` is ``run-c-games-by-oracle``. Looks at the AUC by ``every-state`` of members
    against held-out trajectories: with the least noise (quiet), with the most (loud), and at the
    differences loud minus quiet of the same oracles. With four oracles the intervals are of 95 %:

    * "noise alone": the difference's lower end is above 0, the quiet upper end at most 0.6;
    * "noise in part": both lower ends are above, of the difference above 0 and of quiet above 1/2,
      and the quiet upper end is above 0.6;
    * "not noise": the difference's upper end is at most 0.05, the quiet lower end above 1/2;
    * "undecided": anything else.
    """
    chosen = _same_oracle(by_oracle, "every-state")
    order = chosen.sort_values(["random_share", "noise", "oracle"])
    by_mixture = [part["auc"].to_numpy() for _, part in order.groupby(["random_share", "noise"])]
    quiet, loud = by_mixture[0], by_mixture[-1]
    ends = {
        "quiet": over_oracles(quiet, 0.95),
        "loud": over_oracles(loud, 0.95),
        "loud minus quiet": over_oracles(loud - quiet, 0.95),
    }
    change, least = ends["loud minus quiet"], ends["quiet"]
    if change.low > 0 and least.high <= LITTLE:
        outcome = "noise alone"
    elif change.low > 0 and least.low > 0.5:
        outcome = "noise in part"
    elif change.high <= NO_CHANGE and least.low > 0.5:
        outcome = "not noise"
    else:
        outcome = "undecided"
    return Decision(outcome, ends)


def run_d_membership(table: pd.DataFrame) -> Decision:
    """Run D: does the attack of table 5.2 find membership in any cell?

    ``table`` is ``run-d-table-5-2``. Looks at the accuracy on the target at threshold 1/2 of
    single pairs, members against held-out trajectories, by the network that was trained with
    labels as printed on all shadows; in each cell with an interval of 1 - 0.05 / (number of
    cells), so that all hold together with 95 %:

    * "membership in some cells": a lower end is above 1/2;
    * "no membership above 0.55": none is, and all upper ends are at most 0.55;
    * "undecided": anything else.
    """
    rows = _target(table, "same-oracle")
    ends = _cells(rows, 1 - 0.05 / len(rows))
    return Decision(_outcome(ends.values(), "membership in some cells", "membership"), ends)


def run_d_trend(table: pd.DataFrame, environment: str) -> Decision:
    """Run D: does the attack of table 5.2 improve with T_max, the data being equally many?

    ``table`` is ``run-d-table-5-2``. Looks at the accuracies as printed (single pairs, target,
    threshold 1/2, all shadows) of an environment, and fits a line in log10 T_max, weighted by
    1 / (standard error)^2; its slope, the rise by a factor of ten, has a 95 % interval from these
    standard errors (normal):

    * "rises": the lower end is above 0;
    * "falls": the upper end is below 0;
    * "no rise above 0.05": the interval holds 0 and its upper end is at most 0.05;
    * "undecided": anything else.
    """
    rows = _target(table, "as-printed")
    rows = rows[rows["environment"] == environment]
    x = np.log10(rows["t_max"].to_numpy(dtype=float))
    y, weight = rows["accuracy"].to_numpy(), rows["accuracy_se"].to_numpy() ** -2.0
    centred = x - np.average(x, weights=weight)
    spread = float((weight * centred**2).sum())
    slope, half = float((weight * centred * y).sum()) / spread, 1.96 / np.sqrt(spread)
    found = Interval(slope, slope - half, slope + half)
    if found.low > 0:
        outcome = "rises"
    elif found.high < 0:
        outcome = "falls"
    elif found.high <= NO_RISE:
        outcome = f"no rise above {NO_RISE}"
    else:
        outcome = "undecided"
    return Decision(outcome, {environment: found})


def orl_auditor(found: pd.DataFrame) -> Decision:
    """ORL-Auditor: does it tell the data set that was used, or whose policy made it?

    ``found`` is ``orl-auditor`` (:func:`experiments.chapter_5.dataset_audit.table`). Looks at the
    shares of suspects that are accepted on most trajectories, by the L1 distance, with 95 %
    intervals over data sets:

    * "tells the data set": of those trained on it at least 90 %, of the same oracle's at most 10 %;
    * "tells the oracle": of both at least half, of other oracles' at most 10 %;
    * "undecided": anything else.
    """
    rows = found[found["distance"] == "l1"]
    shares = rows.groupby(["kind", "audited"])["majority"].mean()
    kinds = ("trained on it", "same oracle", "other oracle")
    ends = {kind: over_oracles(shares[kind].to_numpy(), 0.95) for kind in kinds}
    trained, same, other = rows.groupby("kind")["majority"].mean()[[*kinds]]
    if trained >= 0.9 and same <= 0.1:
        outcome = "tells the data set"
    elif min(trained, same) >= 0.5 and other <= 0.1:
        outcome = "tells the oracle"
    else:
        outcome = "undecided"
    return Decision(outcome, ends)


def against_threshold(table: pd.DataFrame) -> pd.Series:
    """Which attacks with shadow models read better than one threshold for all trajectories?

    ``table`` is ``attacks-today`` (:func:`experiments.chapter_5.shadow_tables.table`). The result
    has the index ``trajectories, access, attack, shadows``, without thresholds, and of the 95 %
    intervals of the AUC says

    * "better": the lower end is above the threshold's upper end;
    * "worse": the upper end is below the threshold's lower end;
    * "undecided": anything else.
    """
    keys = ["trajectories", "access", "attack", "shadows"]
    rows = table[table["attack"] != "threshold"]
    plain = table[(table["attack"] == "threshold") & (table["shadows"] == "own")]
    ends = ["auc_low", "auc_high"]
    both = rows[keys + ends].merge(
        plain[keys[:2] + ends], on=keys[:2], how="left", suffixes=("", "_plain")
    )
    better = both["auc_low"] > both["auc_high_plain"]
    worse = both["auc_high"] < both["auc_low_plain"]
    said = np.select([better, worse], ["better", "worse"], "undecided")
    return pd.Series(said, pd.MultiIndex.from_frame(both[keys]))


def private_training(table: pd.DataFrame) -> pd.Series:
    """For which numbers of trajectories and epsilons is private training a defence?

    ``table`` is ``private-bcq`` (:func:`experiments.chapter_5.private_models.table`). The result
    has the index ``trajectories, epsilon``. Looks at 95 % intervals over oracles of the return and
    of four AUCs, with both kinds of access by threshold and by likelihood ratio:

    * "fails": the return's upper end is below the lower end of clipping alone by more than half of
      that training's mean gain over untrained networks, or a lower end of an AUC is above 0.55;
    * "works": it does not fail, the return's lower end is above the upper end of untrained
      networks, and the upper end of every AUC is at most 0.55;
    * "undecided": anything else.
    """

    def returns(rows: pd.DataFrame) -> pd.Series:
        return rows[["return_mean", "return_low", "return_high"]].iloc[0]

    outcomes = {}
    for size, rows in table.groupby("trajectories"):
        at = dict(tuple(rows.groupby("training")))
        untrained, clipped = returns(at["untrained"]), returns(at["clipped"])
        gain = clipped["return_mean"] - untrained["return_mean"]
        for epsilon, promised in at["private"].groupby("epsilon"):
            own = returns(promised)
            low, high = (promised[[f"auc_{end}", f"lira_{end}"]] for end in ("low", "high"))
            lost = own["return_high"] < clipped["return_low"] - gain / 2
            if lost or (low > SMALL).to_numpy().any():
                outcome = "fails"
            elif own["return_low"] > untrained["return_high"] and (high <= SMALL).to_numpy().all():
                outcome = "works"
            else:
                outcome = "undecided"
            outcomes[size, epsilon] = outcome
    return pd.Series(outcomes).rename_axis(["trajectories", "epsilon"])


def _outcome(ends: Iterable[Interval], found: str, what: str) -> str:
    """Found if a lower end is above 1/2; none if all upper ends are at most ``SMALL``."""
    intervals = list(ends)
    if any(one.low > 0.5 for one in intervals):
        return found
    if all(one.high <= SMALL for one in intervals):
        return f"no {what} above {SMALL}"
    return "undecided"


def _same_oracle(by_oracle: pd.DataFrame, score: str) -> pd.DataFrame:
    found = by_oracle[(by_oracle["labels"] == "same-oracle") & (by_oracle["score"] == score)]
    if found.empty:
        raise ValueError(f"the table has no rows of the score {score!r}")
    return found


def _auc(by_oracle: pd.DataFrame, score: str) -> Interval:
    return over_oracles(_same_oracle(by_oracle, score)["auc"].to_numpy())


def _target(table: pd.DataFrame, labels: str) -> pd.DataFrame:
    """Rows of single pairs with labels as printed in training and all shadows."""
    return table[
        (table["mode"] == "individual")
        & (table["split"] == "target")
        & (table["training"] == "as-printed")
        & (table["labels"] == labels)
        & (table["shadows"] == table["oracles"] - 2)
    ]


def _cells(rows: pd.DataFrame, confidence: float) -> dict[str, Interval]:
    """Accuracy of each row, with Student's t interval over the matches of its draws."""
    matches = rows["oracles"].to_numpy() // 2
    halves = stats.t.ppf((1 + confidence) / 2, matches - 1) * rows["accuracy_se"].to_numpy()
    names = zip(rows["environment"], rows["t_max"], strict=True)
    return {
        f"{environment}, T_max {t_max}": Interval(float(a), float(a - half), float(a + half))
        for (environment, t_max), a, half in zip(names, rows["accuracy"], halves, strict=True)
    }
