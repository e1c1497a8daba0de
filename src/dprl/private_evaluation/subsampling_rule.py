r"""How many sub-samples, of which size: a rule that looks at public numbers only.

Sub-sample-and-average runs a private base mechanism on m random sub-samples of k of the n
trajectories and releases the mean (thesis, Algorithm 3). The thesis chooses (m, k) by minimising
its equation (4.31), an order of magnitude with its constants left out (``choose_printed``).
``choose_subsampling`` plans the error instead (``dprl.private_evaluation.planning``). No
data are read: the choice costs no privacy, and the promise holds however wrong the plan is.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike

from dprl import _validation as check
from dprl._validation import FloatArray
from dprl.privacy.gaussian import analytic_gaussian_sigma
from dprl.privacy.recalibration import recalibrated_guarantee
from dprl.privacy.smooth_sensitivity import LARGEST_EPSILON
from dprl.private_evaluation.planning import Plan, PlannedError, Problem, plan_of
from dprl.private_evaluation.subsample_and_average import ACCOUNTINGS, Accounting, base_promise

# how many of the best candidates get a finer ridge
_REFINED = 5


class NoCandidateError(ValueError):
    """No pair (m, k) keeps the promise within the budget."""


@dataclass(frozen=True)
class Promise:
    """What the whole mechanism must promise, and how.

    Attributes
    ----------
    epsilon, delta : float
        epsilon in (0, 5], delta in (0, 1/n].
    accounting : {"printed", "closed-form", "optimal"}
        Where the base guarantee comes from: :func:`~dprl.private_evaluation.base_promise`.
        With "optimal" a candidate takes up to a second at m = 2^20.
    recalibrate : bool
        Calibrate the plain mechanism by :func:`~dprl.privacy.recalibrated_guarantee`.
    allow_large_delta : bool
        A promise with delta > 1/n is refused unless this is set: publishing one trajectory drawn
        at random keeps it.
    """

    epsilon: float
    delta: float
    accounting: Accounting = "closed-form"
    recalibrate: bool = False
    allow_large_delta: bool = False

    def checked(self, n: int) -> tuple[float, float]:
        """epsilon and delta, if this can be promised of n trajectories."""
        eps, tail = check.positive("epsilon", self.epsilon), check.open_unit("delta", self.delta)
        if eps > LARGEST_EPSILON:
            raise ValueError(f"epsilon must be at most {LARGEST_EPSILON:g}, got {eps:g}")
        if tail > 1 / n and not self.allow_large_delta:
            raise ValueError(
                f"delta = {tail:g} exceeds 1/n = {1 / n:g}: publishing one trajectory drawn at "
                "random keeps such a promise. Choose a smaller delta, or allow_large_delta=True"
            )
        if self.accounting not in ACCOUNTINGS:
            raise ValueError(f"accounting must be one of {ACCOUNTINGS}, got {self.accounting!r}")
        return eps, tail

    def base(self, n: int, m: int, k: int) -> tuple[float, float] | None:
        """What each of m runs on k trajectories may promise; None if that is no candidate."""
        if m * k < n or (m == 1 and k == n):
            return None
        try:
            base = base_promise(self.epsilon, self.delta, n, m, k, accounting=self.accounting)
        except ValueError:  # epsilon > 4 ln(2/delta): the accounting has no guarantee
            return None
        return (base.epsilon, base.delta) if base.delta <= self.delta else None


@dataclass(frozen=True)
class Budget:
    """How much computation the mechanism may take, and which sizes to try.

    Attributes
    ----------
    most_subsamples : int
        Largest m.
    most_draws : int, optional
        Largest mk; by default unlimited.
    subsamples, sizes : sequence of int, optional
        m and k to try; default powers of two up to the budget, and up to n / 2.
    """

    most_subsamples: int = 4096
    most_draws: int | None = None
    subsamples: Sequence[int] | None = None
    sizes: Sequence[int] | None = None

    def pairs(self, plan: Plan) -> list[tuple[int, int]]:
        """The pairs (m, k) to try."""
        most = check.whole("most_subsamples", self.most_subsamples)
        draws = math.inf if self.most_draws is None else check.whole("most_draws", self.most_draws)
        subsamples, sizes = self.subsamples, self.sizes
        if subsamples is None:
            subsamples = [2**i for i in range(most.bit_length())]
        if sizes is None:
            sizes = [2**i for i in range(max(plan.n // 2, 1).bit_length())]
        counts = [check.whole("subsamples", m) for m in subsamples]
        if counts and max(counts) > most:
            raise ValueError(
                f"subsamples must not exceed most_subsamples = {most}, got {max(counts)}"
            )
        return [
            (m, k) for m in counts for k in [plan.checked_size(k) for k in sizes] if m * k <= draws
        ]


@dataclass(frozen=True)
class SubsamplingChoice:
    """A setting of sub-sample-and-average, or the plain mechanism, and its planned error.

    Attributes
    ----------
    subsamples, size : int
        m and k; 1 and n for the ``plain`` mechanism.
    epsilon, delta : float
        What the base mechanism promises on its sub-sample ("replace one trajectory").
    ridge : float or None
        lambda of each base run; None for LSW.
    """

    subsamples: int
    size: int
    epsilon: float
    delta: float
    ridge: float | None
    planned: PlannedError
    plain: bool

    @property
    def score(self) -> float:
        """The planned root mean squared error."""
        return self.planned.score


@dataclass(frozen=True)
class PartitionChoice:
    """m disjoint blocks of k trajectories, averaged and released once, with public noise ``sigma``.

    Other attributes as :class:`SubsamplingChoice`.
    """

    subsamples: int
    size: int
    ridge: float | None
    sigma: float
    planned: PlannedError

    @property
    def score(self) -> float:
        """The planned root mean squared error."""
        return self.planned.score


@dataclass(frozen=True)
class PrintedChoice:
    """m and k by the thesis's own advice, and (4.31) there, without its hidden constant."""

    subsamples: int
    size: int
    value: float


def equation_4_31(n: int, subsamples: ArrayLike, size: ArrayLike, epsilon: float) -> FloatArray:
    """ln(mk/n) / (m k^2 eps^2) + 1/(k m^2), the order of magnitude that is to be minimised.

    m = ``subsamples`` > 0 and k = ``size`` > 0 broadcast; epsilon > 0.

    Examples
    --------
    >>> float(equation_4_31(100, 1, 1, 0.1).round(3))
    -459.517
    """
    count = check.whole("n", n)
    eps = check.positive("epsilon", epsilon)
    m, k = check.finite_array("subsamples", subsamples), check.finite_array("size", size)
    if (m <= 0).any() or (k <= 0).any():
        raise ValueError("subsamples and size must be positive")
    return np.log(m * k / count) / (m * k**2 * eps**2) + 1 / (k * m**2)


def choose_printed(
    n: int, epsilon: float, *, advice: Literal["minimise", "example"] = "minimise"
) -> PrintedChoice:
    """Sizes as the thesis advises: minimise (4.31) under m k^2 = n^2, or its example.

    Without the condition (4.31) has no useful minimum: it is negative wherever ln(n/(mk)) > k
    eps^2/m, and least at m = k = 1. With k = n / sqrt(m) it reads

        ln(m) / (2 n^2 eps^2) + m^{-3/2} / n,

    which falls until m^{3/2} = 3 n eps^2 and then rises. So m = (3 n eps^2)^{2/3}, at least 1
    and at most n^2 (where k = 1); of the two integers around it the better one is taken.

    "example" is the text's way to a rate of n^{-2}: m k^2 and k m^2 both of order n^2, that is
    m = k = n^{2/3}; the constants, which are not said, are taken as one. n >= 1 records;
    epsilon > 0 of the whole mechanism.

    Examples
    --------
    >>> choice = choose_printed(10_000, 0.1)
    >>> choice.subsamples, choice.size
    (45, 1491)
    """
    count, eps = check.whole("n", n), check.positive("epsilon", epsilon)
    if advice == "example":
        m = k = max(1, round(count ** (2 / 3)))
        return PrintedChoice(m, k, float(equation_4_31(count, m, k, eps)))
    if advice != "minimise":
        raise ValueError(f"advice must be 'minimise' or 'example', got {advice!r}")
    best = min(max((3 * count * eps**2) ** (2 / 3), 1.0), float(count) ** 2)
    around = [max(1, math.floor(best)), min(math.ceil(best), count**2)]

    def on_the_curve(m: int) -> float:
        return float(equation_4_31(count, m, count / math.sqrt(m), eps))

    m = min(around, key=on_the_curve)
    k = min(max(1, round(count / math.sqrt(m))), count)
    return PrintedChoice(m, k, on_the_curve(m))


def subsampling_candidates(
    problem: Problem, promise: Promise, budget: Budget | None = None
) -> list[SubsamplingChoice]:
    """All settings that the rule compares, the plain mechanism first; public numbers only.

    A pair (m, k) is a candidate if the accounting has a base guarantee for it and

    - m k >= n: on average each trajectory is used once. Below that a mechanism is tempted to
      publish a few trajectories exactly and to count on most of them staying hidden;
    - delta of the base mechanism is at most that of the promise, for the same reason.

    With "tuned" the ridges come from a grid, a factor of 3.2 apart.

    Examples
    --------
    >>> from dprl.features import tabular
    >>> from dprl.private_evaluation import LSW
    >>> problem = Problem(1_000, [1.0] * 40, LSW(tabular(40), [1.0] * 40, f_max=1))
    >>> budget = Budget(subsamples=[64, 1024], sizes=[1, 4, 16])
    >>> found = subsampling_candidates(problem, Promise(1.0, 1e-5), budget)
    >>> [(c.subsamples, c.size) for c in found]
    [(1, 1000), (64, 16), (1024, 1), (1024, 4), (1024, 16)]
    """
    plan = plan_of(problem)
    return [_plain(plan, promise), *_subsampled(plan, promise, budget)]


def choose_subsampling(
    problem: Problem, promise: Promise, budget: Budget | None = None, *, with_plain: bool = True
) -> SubsamplingChoice:
    """The setting of least planned error; the plain mechanism if nothing beats it.

    Every argument must be chosen without looking at the data: then the choice costs no privacy. It
    replaces the line "choose m and k that minimise (4.31)" of the thesis's Algorithm 3. A "tuned"
    ridge is found between the points of the grid too. Without ``with_plain``, for study: the best
    setting with sub-samples, or NoCandidateError if no pair (m, k) is a candidate.

    Examples
    --------
    With 1,000 trajectories the noise of plain DP-LSW drowns everything; with 10,000 there is
    nothing to gain:

    >>> from dprl.features import tabular
    >>> from dprl.private_evaluation import LSW
    >>> estimator, promise = LSW(tabular(40), [1.0] * 40, f_max=1), Promise(1.0, 1e-5)
    >>> choice = choose_subsampling(Problem(1_000, [1.0] * 40, estimator), promise)
    >>> choice.subsamples, choice.size
    (4096, 1)
    >>> choose_subsampling(Problem(10_000, [1.0] * 40, estimator), promise).plain
    True
    """
    plan = plan_of(problem)
    found = [_plain(plan, promise)] if with_plain else []
    found += _subsampled(plan, promise, budget)
    if not found:
        raise NoCandidateError("no pair of subsamples and sizes is a candidate")
    found = sorted(found, key=lambda choice: choice.score)  # stable: plain before equals
    if not isinstance(getattr(plan.estimator, "ridge", None), str):
        return found[0]
    refined = []
    for c in found[:_REFINED]:
        setting = c.subsamples, c.size, c.epsilon, c.delta
        lam = plan.ridge(*setting, refine=True)
        refined.append(replace(c, ridge=lam, planned=plan.error(*setting, lam)))
    return min(refined, key=lambda choice: choice.score)


def _subsampled(plan: Plan, promise: Promise, budget: Budget | None) -> list[SubsamplingChoice]:
    check.instance("promise", promise, Promise)
    promise.checked(plan.n)
    chosen = Budget() if budget is None else budget
    check.instance("budget", chosen, Budget)
    found = []
    for m, k in chosen.pairs(plan):
        base = promise.base(plan.n, m, k)
        if base is not None:
            lam = plan.ridge(m, k, *base)
            error = plan.error(m, k, *base, lam)
            found.append(SubsamplingChoice(m, k, *base, lam, error, False))
    return found


def _plain(plan: Plan, promise: Promise) -> SubsamplingChoice:
    check.instance("promise", promise, Promise)
    base = eps, tail = promise.checked(plan.n)
    lam = plan.ridge(1, plan.n, *base)
    for _ in range(2 if promise.recalibrate else 0):  # the ridge and the guarantee in turn

        def noise(e: float, d: float, fixed: float | None = lam) -> float:
            return float(plan.noise(plan.n, e, d, fixed)) if e <= LARGEST_EPSILON else math.inf

        base = recalibrated_guarantee(eps, tail, noise)
        lam = plan.ridge(1, plan.n, *base)
    planned = plan.error(1, plan.n, *base, lam)
    return SubsamplingChoice(1, plan.n, *base, lam, planned, True)


def choose_partition(
    problem: Problem, *, epsilon: float, delta: float, sizes: Sequence[int] | None = None
) -> PartitionChoice:
    """Blocks for ``average_then_perturb(..., Blocks(...))`` of least planned error.

    m = floor(n / k) blocks of k trajectories, and noise for 1/m of the global sensitivity of the
    base estimate. Bias as in (2) of the plan; the sampling variance is Var_s / m, for the blocks
    are independent.

    Parameters
    ----------
    problem : Problem
        n, the estimator and what is known beforehand. With a ridge the global sensitivity falls
        with the size, and one block may be best.
    epsilon, delta : float
        epsilon > 0; delta in (0, 1) may exceed 1/n, for no trajectory is published exactly.
    sizes : sequence of int, optional
        k to try; default powers of two up to n, and n.

    Examples
    --------
    >>> from dprl.features import tabular
    >>> from dprl.private_evaluation import LSW
    >>> problem = Problem(10_000, [1.0] * 40, LSW(tabular(40), [1.0] * 40, f_max=1))
    >>> choice = choose_partition(problem, epsilon=1.0, delta=1e-5)
    >>> choice.subsamples, choice.size, round(choice.planned.noise, 4)
    (10000, 1, 0.0024)
    """
    plan = plan_of(problem)
    eps, tail = check.positive("epsilon", epsilon), check.open_unit("delta", delta)
    if sizes is None:
        sizes = sorted({2**i for i in range(plan.n.bit_length())} | {plan.n})
    unit = analytic_gaussian_sigma(1.0, eps, tail)

    def candidate(k: int, lam: float | None) -> PartitionChoice:
        blocks = plan.n // k
        noise = unit * plan.at(lam).global_sensitivity(k) / blocks * math.sqrt(plan.noise_gain)
        bias, var = plan.moments(k, lam)
        sampling = math.sqrt(float(plan.importance @ var) / blocks)
        planned = PlannedError(noise, math.sqrt(bias), sampling)
        return PartitionChoice(blocks, k, lam, noise / math.sqrt(plan.noise_gain), planned)

    def scores(k: int) -> Callable[[FloatArray], FloatArray]:
        return lambda ridges: np.array([candidate(k, float(x)).score for x in ridges])

    found = [candidate(k, plan.ridge_by(k, scores(k), True)) for k in map(plan.checked_size, sizes)]
    if not found:
        raise ValueError("sizes must hold at least one size")
    return min(found, key=lambda choice: choice.score)
