r"""The experiment of thesis section 4.8: sub-sample and average on the chain.

A *setting* is one point of one curve: a base mechanism (DP-LSW or DP-LSL), features, a
promise (eps*, delta*), the number n of trajectories, and one of these algorithms with all its
public numbers:

``non-private``
    LSW or LSL on all trajectories, without noise.
``plain``
    the base mechanism on all trajectories (the red curves of the thesis).
``recalibrated``
    the same, calibrated to the guarantee that implies (eps*, delta*) with the least planned
    noise (:func:`~dprl.privacy.recalibrated_guarantee`).
``algorithm-3``
    Algorithm 3 with m and k by the data-independent rule of
    :func:`~dprl.private_evaluation.choose_subsampling`, base guarantee by (4.9)-(4.10).
``algorithm-3-printed``
    Algorithm 3 with m and k that minimise (4.31) on m k^2 = n^2.
``algorithm-3-optimal``
    as ``algorithm-3``, base guarantee by exact amplification and optimal composition.
``average-then-perturb``
    LSW or LSL without noise on random sub-samples, m and k of ``algorithm-3``, their mean,
    one Gaussian release (one reading of the blue curves).
``partition``
    the same on disjoint blocks, with its own block size (Nissim, Raskhodnikova and Smith 2007).

:func:`plan_settings` chooses the public numbers without looking at data,
:func:`subsampling_trial` draws batches and runs every setting on the same ones. Settings with
the same n, m and k share their sub-samples: every curve has the law it should have, and
differences between curves are less noisy.

Publishing LSW on floor(delta n) trajectories drawn at random, without any noise, is
(0, delta)-private (:data:`NOISE_FREE`): with a neighbour, the drawn set holds the replaced
trajectory with probability at most delta.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import groupby
from typing import Any, Literal

import numpy as np
import pandas as pd

from dprl import _validation as check
from dprl._validation import FloatArray
from dprl.evaluation import rmse
from dprl.mdp import Chain
from dprl.privacy import Guarantee
from dprl.private_evaluation import (
    LSL,
    LSW,
    NEIGHBOURS,
    Budget,
    CountedSubsamples,
    NoCandidateError,
    Problem,
    Promise,
    SubsamplingChoice,
    base_promise,
    choose_partition,
    choose_printed,
    choose_subsampling,
    draw_subsamples,
)
from dprl.private_evaluation.average_then_perturb import noise_of_average
from dprl.private_evaluation.common import LeastSquares, released
from dprl.private_evaluation.subsample_and_average import Accounting
from dprl.private_evaluation.subsamples import SubsampleTable
from dprl.trajectories import FirstVisitReturns, VisitStatistics, chain_first_visit_returns
from experiments.chapter_3 import chain_features

Base = Literal["DP-LSW", "DP-LSL"]

#: The algorithms, by the names used in the records.
ALGORITHMS = (
    "non-private",
    "plain",
    "recalibrated",
    "algorithm-3",
    "algorithm-3-printed",
    "algorithm-3-optimal",
    "average-then-perturb",
    "partition",
)

#: LSW on delta n trajectories drawn at random, without noise; base "LSW".
NOISE_FREE = "noise-free-subsample"

#: How the ridge of DP-LSL follows from the number of trajectories it sees; "" for DP-LSW.
RIDGE_RULES = ("schedule", "tuned")

#: What identifies a point of a curve in the records.
KEYS = ["base", "ridge_rule", "features", "start", "delta", "epsilon"]
KEYS += ["algorithm", "weighting", "batch_size"]

#: The public numbers of a point in the records; ``ridge`` is empty for LSW.
PUBLIC = ["subsamples", "size", "base_epsilon", "base_delta", "ridge", "chosen"]

_FEW = 5  # runs in the thesis
_POWER = 4  # sizes and numbers of sub-samples that the rule tries, as powers
_WIDE = 8  # the same where the ridge is tuned for each
_MOST_PRINTED = 2**26  # mk of the printed sizes beyond which they are not run
_FIRST_SUBSAMPLES = 2**14  # the budget allows as many for any n
_MOST_BLOCKS = 2**17  # of a partition
_BUDGET = Budget(most_subsamples=2**17, most_draws=2**22)
_HARDLY_ANY = 0.01  # without privacy nothing is gained by a larger ridge


@dataclass(frozen=True)
class Setting:
    """One point of one curve: an algorithm with all its public numbers.

    Attributes
    ----------
    base : str
        "DP-LSW" or "DP-LSL"; "LSW" for the noise-free sub-sample.
    ridge_rule : str
        "" (LSW), "schedule" (lambda = c sqrt(number of trajectories seen)) or "tuned".
    features : str
        A name of :data:`~experiments.chapter_3.FEATURES`.
    epsilon, delta : float
        The promise of the release.
    algorithm : str
        One of :data:`ALGORITHMS`, or :data:`NOISE_FREE`.
    batch_size, subsamples, size : int
        n, m and k; m = 1 and k = n for an algorithm that does not sub-sample.
    base_epsilon, base_delta : float
        What one run of the base mechanism promises; those of the promise where there is none.
    ridge : float or None
        lambda of each LSL run.
    chosen : bool
        Whether the rule prefers this setting: to Algorithm 3 (plain) or to plain (Algorithm 3).
    """

    base: str
    ridge_rule: str
    features: str
    epsilon: float
    delta: float
    algorithm: str
    batch_size: int
    subsamples: int
    size: int
    base_epsilon: float
    base_delta: float
    ridge: float | None
    chosen: bool = False


# -- public numbers -----------------------------------------------------------------------


def noise_free_setting(features: str, batch_size: int, delta: float) -> Setting:
    """LSW on floor(delta n) random trajectories, published as it is: (0, delta)-private.

    delta lies in (0, 1), and delta n must be at least 1: else no trajectory may be published.

    >>> noise_free_setting("tabular", 1_000, 0.1).size
    100
    """
    n = check.whole("batch_size", batch_size)
    tail = check.open_unit("delta", delta)
    size = int(np.floor(tail * n * (1 + 1e-12)))
    if size < 1:
        raise ValueError(f"delta n must be at least 1 to publish a trajectory, got {tail * n:g}")
    return Setting("LSW", "", features, 0.0, tail, NOISE_FREE, n, 1, size, 0.0, tail, None)


@dataclass(frozen=True)
class Curve:
    """What the settings of a curve have in common, but for the algorithm.

    Attributes as :class:`Setting`, where "tuned" is the lambda of least planned error, for each
    algorithm and size on its own; ``schedule`` is c > 0 of :func:`scheduled_ridge`; returns are in
    [0, ``f_max``].
    """

    base: Base
    features: str
    epsilon: float
    delta: float
    ridge_rule: str = ""
    schedule: float = 10.0
    f_max: float = 1.0

    def __post_init__(self) -> None:
        if self.base not in ("DP-LSW", "DP-LSL"):
            raise ValueError(f"base must be 'DP-LSW' or 'DP-LSL', got {self.base!r}")
        if self.ridge_rule not in (RIDGE_RULES if self.base == "DP-LSL" else ("",)):
            raise ValueError(
                f"ridge_rule must be '' for DP-LSW and one of {RIDGE_RULES} for DP-LSL, "
                f"got {self.ridge_rule!r} for {self.base}"
            )

    def estimator(self, n_states: int) -> LeastSquares:
        """LSW, or LSL with the rule of its ridge."""
        phi, ones = chain_features(self.features, n_states), np.ones(n_states)
        if self.base == "DP-LSW":
            return LSW(phi, ones, f_max=self.f_max)
        rule = "tuned" if self.ridge_rule == "tuned" else scheduled_ridge(self.schedule, phi)
        return LSL(phi, ones, rule, f_max=self.f_max)


def plan_settings(
    chain: Chain,
    batch_size: int,
    curve: Curve,
    *,
    budget: Budget = _BUDGET,
    algorithms: Sequence[str] = ALGORITHMS,
) -> list[Setting]:
    """The public numbers of every algorithm for one batch size: no data are read.

    Parameters
    ----------
    chain, batch_size : Chain, int
        Only the chain's visit probabilities are used; n.
    curve : Curve
    budget : Budget
        Of the rule: largest m, but never more than 4n or 2^14, whichever is larger; largest mk,
        4n if that is more.
    algorithms : sequence of str
        Some of :data:`ALGORITHMS`. Each has one setting, but one without a valid choice (the
        accounting refuses) is left out, and so is ``algorithm-3-printed`` where mk exceeds 2^26.

    Examples
    --------
    >>> found = plan_settings(Chain(start="first"), 1_000, Curve("DP-LSW", "tabular", 1.0, 1e-6))
    >>> [(s.algorithm, s.subsamples, s.size) for s in found if s.algorithm.startswith("algorithm")]
    [('algorithm-3', 16384, 1), ('algorithm-3-printed', 208, 69), ('algorithm-3-optimal', 16384, 1)]
    """
    unknown = sorted(set(algorithms) - set(ALGORITHMS))
    if unknown:
        raise ValueError(f"algorithms must be among {ALGORITHMS}, got {unknown}")
    return list(_Planner(chain, batch_size, curve).settings(budget, algorithms))


def scheduled_ridge(schedule: float, features: FloatArray) -> Callable[[int], float]:
    """lambda = c sqrt(size), but at least 1.01 ||Phi||^2: DP-LSL as printed needs more than that.

    >>> scheduled_ridge(10.0, np.eye(40))(100), scheduled_ridge(0.1, np.eye(40))(4)
    (100.0, 1.01)
    """
    c = check.positive("schedule", schedule)
    least = 1.01 * float(np.linalg.norm(features, 2)) ** 2
    return lambda size: float(max(c * np.sqrt(size), least))


class _Planner:
    def __init__(self, chain: Chain, n: int, curve: Curve) -> None:
        self.n = check.whole("batch_size", n)
        delta = check.open_unit("delta", curve.delta)
        self.promise = (check.positive("epsilon", curve.epsilon), delta)
        estimator = curve.estimator(chain.n_states)
        self.problem = Problem(n, chain.visit_probabilities(), estimator)
        self.ridge = getattr(estimator, "ridge", None)  # None, a function of the size, or "tuned"
        what = (curve.base, curve.ridge_rule, curve.features, *self.promise)
        self.template = Setting(*what, "", self.n, 1, self.n, *self.promise, None)

    def settings(self, budget: Budget, wanted: Sequence[str]) -> Iterator[Setting]:
        plain = self.plain()
        rule = self.subsampled("printed", budget)
        if "non-private" in wanted:
            ridge = _HARDLY_ANY if self.ridge == "tuned" else plain.ridge
            yield replace(self.template, algorithm="non-private", ridge=ridge)
        if "plain" in wanted:
            yield self.made("plain", plain, chosen=rule is None or plain.score <= rule.score)
        if "recalibrated" in wanted:
            yield self.made("recalibrated", self.plain(recalibrate=True))
        if "algorithm-3" in wanted and rule is not None:
            yield self.made("algorithm-3", rule, chosen=rule.score < plain.score)
        if "algorithm-3-printed" in wanted:
            yield from self.printed()
        if "algorithm-3-optimal" in wanted:
            best = self.subsampled("optimal", budget)
            if best is not None:
                yield self.made("algorithm-3-optimal", best)
        if "average-then-perturb" in wanted and rule is not None:
            made = self.made("average-then-perturb", rule)
            yield replace(made, base_epsilon=self.promise[0], base_delta=self.promise[1])
        if "partition" in wanted:
            yield self.partition()

    def partition(self) -> Setting:
        power = _POWER if self.ridge == "tuned" else 2
        few = (k for k in _powers(power, self.n) if self.n // k <= _MOST_BLOCKS)
        epsilon, delta = self.promise
        blocks = choose_partition(self.problem, epsilon=epsilon, delta=delta, sizes=[*few, self.n])
        return self.of_size("partition", blocks.subsamples, blocks.size, blocks.ridge)

    def of_size(self, algorithm: str, m: int, k: int, ridge: float | None) -> Setting:
        return replace(self.template, algorithm=algorithm, subsamples=m, size=k, ridge=ridge)

    def made(self, algorithm: str, choice: SubsamplingChoice, chosen: bool = False) -> Setting:
        made = self.of_size(algorithm, choice.subsamples, choice.size, choice.ridge)
        return replace(made, base_epsilon=choice.epsilon, base_delta=choice.delta, chosen=chosen)

    def plain(self, recalibrate: bool = False) -> SubsamplingChoice:
        promise = Promise(*self.promise, recalibrate=recalibrate, allow_large_delta=True)
        return choose_subsampling(self.problem, promise, Budget(subsamples=[]))

    def subsampled(self, accounting: Accounting, budget: Budget) -> SubsamplingChoice | None:
        """The best setting with sub-samples within the budget; None if there is none."""
        power = _WIDE if self.ridge == "tuned" else _POWER
        most = min(budget.most_subsamples, max(_FIRST_SUBSAMPLES, 4 * self.n))
        mk = None if budget.most_draws is None else max(budget.most_draws, 4 * self.n)
        tries = Budget(
            most,
            mk,
            sorted({*_powers(power, most), 2 ** (most.bit_length() - 1)}),
            _powers(power, max(self.n // 2, 1)),
        )
        promise = Promise(*self.promise, accounting=accounting, allow_large_delta=True)
        try:
            return choose_subsampling(self.problem, promise, tries, with_plain=False)
        except NoCandidateError:
            return None

    def printed(self) -> Iterator[Setting]:
        sizes = choose_printed(self.n, self.promise[0])
        m, k = sizes.subsamples, sizes.size
        if m * k > _MOST_PRINTED:
            return
        try:
            base = base_promise(*self.promise, self.n, m, k, accounting="printed")
        except ValueError:  # (4.9)-(4.10) have no guarantee for these sizes
            return
        ridge = self.ridge(k) if callable(self.ridge) else None
        if self.ridge == "tuned":
            promise = Promise(base.epsilon, base.delta, allow_large_delta=True)
            part = replace(self.problem, n=k)
            ridge = choose_subsampling(part, promise, Budget(subsamples=[])).ridge
        made = self.of_size("algorithm-3-printed", m, k, ridge)
        yield replace(made, base_epsilon=base.epsilon, base_delta=base.delta)


def _powers(base: int, most: int) -> list[int]:
    """1, base, base^2, .. up to most."""
    out = [1]
    while out[-1] * base <= most:
        out.append(out[-1] * base)
    return out


# -- runs ---------------------------------------------------------------------------------


def subsampling_trial(task: Mapping[str, Any], seed: np.random.SeedSequence) -> pd.DataFrame:
    """Some independent runs of all settings of one start distribution.

    In one run every smaller batch is the beginning of the largest one. Memory: a few tables of
    n N numbers.

    Parameters
    ----------
    task : mapping
        ``start`` ("first" or "uniform"); ``settings``, a sequence of :class:`Setting`;
        ``runs``, how many; ``first_run``, the number of the first; ``f_max``; optional
        ``chain``, keyword arguments of :class:`~dprl.mdp.Chain`.
    seed : numpy.random.SeedSequence
        Everything random comes from it.

    Returns
    -------
    DataFrame
        :data:`KEYS`, :data:`PUBLIC`, ``run`` and ``value``, the root mean squared error over the
        states, weighted equally ("uniform") and, for first-state starts, by the start
        probabilities ("start": only state 1 counts).
    """
    chain = Chain(start=task["start"], **task.get("chain", {}))
    f_max = check.positive("f_max", task["f_max"])
    first = task.get("first_run", 0)
    settings = sorted(task["settings"], key=lambda s: (*_group(s), s.algorithm))
    largest = max(s.batch_size for s in settings)
    tables = []
    for run, stream in enumerate(seed.spawn(task["runs"])):
        rngs = [np.random.default_rng(s) for s in stream.spawn(3)]
        data = chain_first_visit_returns(chain, largest, rngs[0])
        rows: list[dict[str, Any]] = []
        for n, part in groupby(settings, key=lambda s: s.batch_size):
            batch = FirstVisitReturns(data.returns[:n], data.visited[:n])
            rows += _one_batch(batch, list(part), chain, f_max, rngs[1], rngs[2])
        tables.append(pd.DataFrame(rows).assign(run=first + run))
    table = pd.concat(tables, ignore_index=True)
    return table[[*KEYS, *PUBLIC, "run", "value"]]


def summarise(trials: Sequence[pd.DataFrame]) -> pd.DataFrame:
    """Mean and standard error over all runs, numbered through, and over the first five.

    Columns :data:`KEYS`, :data:`PUBLIC`, ``mean``, ``standard_error`` (of the mean), ``runs``,
    ``mean_of_5`` and ``standard_error_of_5`` (the number of runs in the thesis).
    """
    table = pd.concat(trials, ignore_index=True)
    by = [*KEYS, *PUBLIC]
    out = table.groupby(by, dropna=False, sort=True)["value"].agg(
        mean="mean", standard_error="sem", runs="count"
    )
    few = table[table["run"] < _FEW].groupby(by, dropna=False, sort=True)["value"]
    out["mean_of_5"], out["standard_error_of_5"] = few.mean(), few.sem()
    return out.reset_index()


def _group(setting: Setting) -> tuple[int, str, int, int]:
    """Settings of one group share their index sets."""
    design = "partition" if setting.algorithm == "partition" else "random"
    return setting.batch_size, design, setting.subsamples, setting.size


def _one_batch(
    batch: FirstVisitReturns,
    settings: Sequence[Setting],
    chain: Chain,
    f_max: float,
    index_rng: np.random.Generator,
    noise_rng: np.random.Generator,
) -> list[dict[str, Any]]:
    n, bounds = len(batch), (0.0, f_max)
    whole = batch.statistics(bounds)
    values, weightings = chain.values(), _weightings(chain)
    rows = []
    table: SubsampleTable | None = None
    for (_, design, m, k), part in groupby(settings, key=_group):
        group = list(part)
        counted: CountedSubsamples | None = None
        most = 0
        if any(s.algorithm not in _ON_ALL for s in group):
            if design == "partition":
                indices = index_rng.permutation(n)[: m * k].reshape(m, k)
            else:
                indices = draw_subsamples(n, m, k, index_rng)
            most = int(np.bincount(indices.ravel(), minlength=n).max())
            if table is None:
                table = SubsampleTable(batch, *bounds, k)
            elif table.size != k:
                table.resize(k)
            counted = CountedSubsamples(table.statistics_of(indices))
            del indices
        for s in group:
            estimator = _estimator(s.features, s.ridge, chain.n_states, f_max)
            theta = _release(s, estimator, whole, counted, most, noise_rng)
            estimate = estimator.features @ theta
            for weighting, w in weightings.items():
                rows.append(
                    {
                        **{name: getattr(s, name) for name in _NAMES},
                        "ridge": np.nan if s.ridge is None else s.ridge,
                        "start": chain.start,
                        "weighting": weighting,
                        "value": float(rmse(estimate, values, w)),
                    }
                )
    return rows


def _weightings(chain: Chain) -> dict[str, FloatArray]:
    """How the errors of the states are weighted."""
    uniform = {"uniform": np.ones(chain.n_states)}
    return uniform | ({"start": chain.start_distribution} if chain.start == "first" else {})


_NAMES = [x for x in (*KEYS, *PUBLIC) if x not in ("start", "weighting", "ridge")]
_ON_ALL = ("non-private", "plain", "recalibrated")


@lru_cache(maxsize=64)
def _estimator(features: str, ridge: float | None, n_states: int, f_max: float) -> LeastSquares:
    """One object for settings that share an estimate, which is then computed once."""
    phi, ones = chain_features(features, n_states), np.ones(n_states)
    if ridge is None:
        return LSW(phi, ones, f_max=f_max)
    return LSL(phi, ones, ridge, f_max=f_max)


def _release(
    s: Setting,
    estimator: LeastSquares,
    whole: VisitStatistics,
    counted: CountedSubsamples | None,
    most: int,
    rng: np.random.Generator,
) -> FloatArray:
    """What one setting publishes.

    ``counted`` are its sub-samples, and one trajectory is in at most ``most`` of them.
    """
    if s.algorithm == "non-private":
        return estimator.theta(whole)
    if s.algorithm in _ON_ALL:
        return released(estimator, whole, s.base_epsilon, s.base_delta, rng).theta
    assert counted is not None
    noise = 0.0
    if s.algorithm.startswith("algorithm-3"):
        noise = counted.noise(estimator, Guarantee(s.base_epsilon, s.base_delta, NEIGHBOURS))
    elif s.algorithm != NOISE_FREE:
        step = estimator.global_sensitivity(s.size)
        _, noise = noise_of_average(step, s.subsamples, most, s.epsilon, s.delta)
    mean = counted.mean(estimator)
    theta: FloatArray = mean + noise * rng.standard_normal(len(mean))
    return theta


# -- what a curve is compared with --------------------------------------------------------


def constant_errors(chain: Chain, f_max: float = 1.0) -> dict[str, dict[str, float]]:
    """Root mean squared errors of answers that need no data, or no privacy.

    For each weighting ("uniform"; for first-state starts also "start"): ``best`` (the best
    constant: an oracle, it needs the exact values; 0 where only one state counts), ``middle``
    (the constant f_max / 2, from the public range of returns alone) and ``zero``.

    >>> {name: round(x, 3) for name, x in constant_errors(Chain())["uniform"].items()}
    {'best': 0.158, 'middle': 0.246, 'zero': 0.706}
    """
    v, out = chain.values(), {}
    for name, w in _weightings(chain).items():
        middle = check.positive("f_max", f_max) / 2
        constants = {"best": float(v @ w / w.sum()), "middle": middle, "zero": 0.0}
        out[name] = {label: float(rmse(np.full(v.size, c), v, w)) for label, c in constants.items()}
    return out


def rows_with(table: pd.DataFrame, **values: Any) -> pd.DataFrame:
    """Rows of a table that have these values (floats within rounding), by batch size."""
    for column, value in values.items():
        found = table[column]
        table = table[np.isclose(found, value) if isinstance(value, float) else found == value]
    return table.sort_values("batch_size")


def mean_errors(
    frame: pd.DataFrame,
    base: str,
    rule: str = "",
    promise: tuple[float, float] = (0.1, 0.1),
) -> pd.DataFrame:
    """Mean error of each algorithm at one promise, equal weights.

    ``frame`` is a table of :func:`summarise`, ``rule`` that of the ridge. Returned is a row for
    each start, kind of features and batch size, and a column for each algorithm.
    """
    epsilon, delta = promise
    table = rows_with(
        frame, base=base, ridge_rule=rule, weighting="uniform", epsilon=epsilon, delta=delta
    )
    table = table[table.features.isin(["tabular", "aggregated"])]
    return table.pivot_table(
        index=["start", "features", "batch_size"], columns="algorithm", values="mean"
    )
