r"""How many sub-samples, of which size: a rule that looks at public numbers only.

Sub-sample-and-average runs a private base mechanism on m random sub-samples of k of the n
trajectories and releases the mean (thesis, Algorithm 3). The thesis chooses (m, k) by minimising
its equation (4.31), an order of magnitude with its constants left out
(:func:`~dprl.private_evaluation.choose_printed`).

:func:`~dprl.private_evaluation.choose_subsampling` plans the error instead. For trajectories
that are independent draws, visiting state s with probability p_s, a sub-sample of size k has
B_s ~ Binomial(k, p_s) visits, and the error of the mean of m releases has three parts, as root
mean squares over the states with importances u:

    noise^2    = sum_s u_s ||phi_s||^2 E[sigma^2] / m,                             (1)
    bias^2     = sum_s u_s (sum_t |E[H] - H_0|_{st} F)^2,                          (2)
    sampling^2 = sum_s u_s Var_s ((1/m)(1 - k/n) + k/n).                           (3)

H is the matrix that turns the average returns of a sub-sample into estimated values: for LSW
Phi (Gamma^{1/2} Phi)^+ Gamma^{1/2} with the columns of unvisited states struck out, and H_0 the
same with all states visited; for LSL the ridge solution. F is the largest absolute return, and
Var_s the variance of one sub-sample's estimate: at most S^2 / B_s for each visited state, S half
the range of the returns, plus what the number of visits adds. (3) is an upper bound, whatever the
dependence between sub-samples: given the data the mean of one draw is a U-statistic, and its
variance is at most k/n times that of its kernel (Hoeffding 1948, theorem 5.2).

The p_s are part of the plan, from a known start distribution or a simulator; so is everything else
that enters. No data are read: the choice costs no privacy, and the promise holds however
wrong the plan is.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike
from scipy import optimize, special, stats

from dprl import _validation as check
from dprl._validation import FloatArray
from dprl.evaluation import regression_weights
from dprl.features import feature_matrix, operator_norm, weighted_pseudo_inverse
from dprl.privacy.gaussian import analytic_gaussian_sigma
from dprl.privacy.smooth_sensitivity import LARGEST_EPSILON
from dprl.private_evaluation.common import public_range, return_spread
from dprl.private_evaluation.dp_lsl import dp_lsl_diagnostics
from dprl.private_evaluation.dp_lsw import dp_lsw_diagnostics
from dprl.private_evaluation.global_sensitivity import (
    lsl_sensitivity_bound,
    lsw_global_sensitivity,
)
from dprl.private_evaluation.subsample_and_average import ACCOUNTINGS, Accounting, base_promise

#: A fixed ridge for every size, or one chosen within the plan.
Ridge = Callable[[int], float] | Literal["tuned"] | None

# Gauss-Legendre nodes on [0, 1], split so that a state that is rarely missed is not overlooked
_SPLITS = (0.0, 1e-3, 0.03, 0.3, 1.0)
# lambda / (2k) relative to the largest rho_s ||phi_s||^2: first a grid, then the best refined
_RIDGE_GRID = np.logspace(-4, 8, 25)
# how many of the best candidates get a finer ridge
_REFINED = 5


class NoCandidateError(ValueError):
    """No pair (m, k) keeps the promise within the budget."""


@dataclass(frozen=True)
class PlannedError:
    """What a setting is expected to cost, in units of the returns.

    Attributes
    ----------
    noise, bias, sampling : float
        The square roots of (1), (2) and (3).
    """

    noise: float
    bias: float
    sampling: float

    @property
    def score(self) -> float:
        """Root of the sum of the three squares."""
        return math.hypot(self.noise, self.bias, self.sampling)


@dataclass(frozen=True)
class SubsamplingChoice:
    """A setting of sub-sample-and-average, or the plain mechanism, and its planned error.

    Attributes
    ----------
    subsamples, size : int
        m and k; 1 and n for the plain mechanism.
    epsilon, delta : float
        What the base mechanism promises on its sub-sample ("replace one trajectory").
    ridge : float or None
        lambda of each base run; None for LSW.
    planned : PlannedError
        Noise, bias and sampling error.
    plain : bool
        Whether this is the base mechanism on all the data.
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
    """Disjoint blocks, averaged and released once.

    Attributes
    ----------
    subsamples, size : int
        Number of blocks m and trajectories in each, k.
    ridge : float or None
        lambda of each block's LSL; None for LSW.
    sigma : float
        Noise of each parameter; public, it depends on no data.
    planned : PlannedError
        Noise, bias and sampling error.
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
    """Sizes by the thesis's own advice.

    Attributes
    ----------
    subsamples, size : int
        m and k.
    value : float
        Equation (4.31) there, without its hidden constant.
    """

    subsamples: int
    size: int
    value: float


def equation_4_31(n: int, subsamples: ArrayLike, size: ArrayLike, epsilon: float) -> FloatArray:
    """ln(mk/n) / (m k^2 eps^2) + 1/(k m^2), the order of magnitude that is to be minimised.

    Parameters
    ----------
    n : int
        Number of records.
    subsamples, size : array_like
        m > 0 and k > 0; they broadcast.
    epsilon : float
        > 0.

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
    out: FloatArray = np.log(m * k / count) / (m * k**2 * eps**2) + 1 / (k * m**2)
    return out


def choose_printed(
    n: int, epsilon: float, *, advice: Literal["minimise", "example"] = "minimise"
) -> PrintedChoice:
    """Sizes as the thesis advises: minimise (4.31) under m k^2 = n^2, or its example.

    Without the condition (4.31) has no useful minimum: it is negative wherever mk < n, and least
    at m = k = 1. With k = n / sqrt(m) it reads

        ln(m) / (2 n^2 eps^2) + m^{-3/2} / n,

    which falls until m^{3/2} = 3 n eps^2 and then rises. So m = (3 n eps^2)^{2/3}, at least 1
    and at most n^2 (where k = 1); of the two integers around it the better one is taken.

    Parameters
    ----------
    n : int
        Number of records, >= 1.
    epsilon : float
        The epsilon of the whole mechanism, > 0.
    advice : {"minimise", "example"}
        "example" is the text's way to a rate of n^{-2}: m k^2 and k m^2 both of order n^2, that
        is m = k = n^{2/3}. The constants are not said; they are taken as one.

    Returns
    -------
    PrintedChoice

    Examples
    --------
    >>> choice = choose_printed(10_000, 0.1)
    >>> choice.subsamples, choice.size
    (45, 1491)
    >>> example = choose_printed(10_000, 0.1, advice="example")
    >>> example.subsamples, example.size
    (464, 464)
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


def equivalent_epsilon(epsilon: float, delta: float, base_delta: float) -> float:
    """The largest e such that every (e, base_delta)-private mechanism is (epsilon, delta)-private.

    The worst mechanism with (e, d) has, at epsilon <= e, a delta of
    d + (1 - d)(exp(e) - exp(epsilon)) / (1 + exp(e)): randomised response that reveals everything
    with probability d (Kairouz, Oh and Viswanath 2015). Setting this to delta and solving,

        exp(e) = (exp(epsilon) + r) / (1 - r),   r = (delta - d) / (1 - d).

    Parameters
    ----------
    epsilon : float
        > 0.
    delta : float
        In (0, 1).
    base_delta : float
        d in [0, delta].

    Examples
    --------
    >>> round(equivalent_epsilon(0.1, 0.1, 0.01), 4)
    0.2744
    >>> equivalent_epsilon(0.1, 0.1, 0.1)
    0.1
    """
    eps, tail = check.positive("epsilon", epsilon), check.open_unit("delta", delta)
    d = check.real("base_delta", base_delta)
    if not 0 <= d <= tail:
        raise ValueError(f"base_delta must lie in [0, delta = {tail:g}], got {base_delta!r}")
    r = (tail - d) / (1 - d)
    return eps + math.log1p(r * math.exp(-eps)) - math.log1p(-r)


def recalibrated_guarantee(
    epsilon: float, delta: float, noise: Callable[[float, float], float]
) -> tuple[float, float]:
    """The guarantee that implies the promised one and asks for the least planned noise.

    A mechanism calibrated to (epsilon, delta) may be calibrated to any (e, d) with
    d < delta and e of :func:`equivalent_epsilon` in its place: it then keeps the same promise. If
    delta is large, that e is much larger than epsilon and the noise much smaller.

    Parameters
    ----------
    epsilon : float
        > 0; the promise.
    delta : float
        In (0, 1); the promise.
    noise : callable
        (e, d) -> planned size of the noise, > 0; from public numbers only. Infinite where the
        mechanism has no proof.

    Returns
    -------
    (float, float)
        e >= epsilon and d <= delta: calibrate to these. About 150 calls of ``noise``.

    Raises
    ------
    ValueError
        If the noise is infinite or undefined for every candidate.

    Examples
    --------
    The noise of Lemma 3.1 per unit of sensitivity, for a promise with a large delta:

    >>> from dprl.privacy import GaussianSmoothing
    >>> e, d = recalibrated_guarantee(0.1, 0.1, lambda e, d: GaussianSmoothing(e, d, 1).alpha)
    >>> round(GaussianSmoothing(0.1, 0.1, 1).alpha / GaussianSmoothing(e, d, 1).alpha, 2)
    2.08
    """
    eps, tail = check.positive("epsilon", epsilon), check.open_unit("delta", delta)

    def planned(logit: float) -> float:
        d = tail / (1 + math.exp(-logit))
        value = float(noise(equivalent_epsilon(eps, tail, d), d))
        return value if value > 0 else math.inf  # NaN compares false

    grid = np.linspace(-35, 35, 113)
    values = np.array([planned(x) for x in grid])
    best = int(values.argmin())
    original = float(noise(eps, tail))
    if not (np.isfinite(values).any() or np.isfinite(original)):
        raise ValueError("the planned noise is infinite for every guarantee that keeps the promise")
    low, high = grid[max(best - 1, 0)], grid[min(best + 1, grid.size - 1)]
    refined = optimize.minimize_scalar(planned, bounds=(low, high), method="bounded")
    x = float(refined.x) if refined.fun < values[best] else float(grid[best])
    if not planned(x) < original:
        return eps, tail
    d = tail / (1 + math.exp(-x))
    return equivalent_epsilon(eps, tail, d), d


class _Plan:
    """The public inputs, checked once, and what depends on the size of a sub-sample only."""

    def __init__(
        self,
        n: int,
        visit_probabilities: ArrayLike,
        features: ArrayLike,
        weights: ArrayLike,
        f_max: float,
        f_min: float,
        lsl: bool,
        improved: bool,
        importance: ArrayLike | None,
        values: ArrayLike | None,
        variance: ArrayLike | None,
    ) -> None:
        self.n = check.whole("n", n)
        p = check.finite_array("visit_probabilities", visit_probabilities, ndim=1)
        if p.size == 0 or (p < 0).any() or (p > 1).any():
            raise ValueError("visit_probabilities must be one number in [0, 1] for each state")
        self.p = p
        self.phi = feature_matrix(features, p.size)
        self.lsl, self.improved = lsl, improved
        if lsl:
            self.weights = regression_weights(weights, p.size)
        else:
            self.weights = check.weight_vector("weights", weights, p.size)
        self.f_min, self.f_max = public_range(f_max, f_min)
        step, self.size_of_return = return_spread(self.f_min, self.f_max)
        u = np.ones(p.size) if importance is None else importance
        u = check.weight_vector("importance", u, p.size)
        self.importance = u / u.sum()
        self.values = self.guess("values", values)
        self.variance = self.guess("variance", variance)
        if self.variance is None:
            self.variance = np.full(p.size, step**2 / 4)
        elif (self.variance < 0).any():
            raise ValueError("variance must not be negative")
        gamma = self.weights * p if lsl else self.weights
        self.complete = self.lsw_matrix(gamma, allow=lsl)
        squares = (self.phi**2).sum(axis=1)
        self.noise_gain = float(self.importance @ squares)
        self.separate = bool(((self.phi != 0).sum(axis=1) <= 1).all())
        self.ridge_unit = float((self.weights * squares).max())
        self.least_ridge = float(operator_norm(self.phi) ** 2 * self.weights.max())
        self._counts: dict[int, tuple[FloatArray, FloatArray]] = {}
        self._estimates: dict[tuple[int, float | None], tuple[float, FloatArray]] = {}

    def guess(self, name: str, values: ArrayLike | None) -> FloatArray | None:
        if values is None:
            return None
        x = check.finite_array(name, values)
        if x.shape not in ((), self.p.shape):
            raise ValueError(f"{name} must be a number or one for each of {self.p.size} states")
        return np.broadcast_to(x, self.p.shape).astype(np.float64)

    def lsw_matrix(self, gamma: FloatArray, allow: bool) -> FloatArray:
        inverse = weighted_pseudo_inverse(self.phi, gamma, allow_rank_deficient=allow)
        out: FloatArray = self.phi @ inverse * np.sqrt(gamma)
        return out

    def counts(self, size: int) -> tuple[FloatArray, FloatArray]:
        """Visit counts (nodes, N) whose weighted means stand for those over Binomial(k, p)."""
        if size not in self._counts:
            nodes, weights = _quadrature()
            v = np.asarray(stats.binom.ppf(nodes[:, None], size, self.p), dtype=np.float64)
            self._counts[size] = np.maximum(v, 0), weights
        return self._counts[size]

    def estimator(self, size: int, ridge: float | None) -> tuple[float, FloatArray]:
        """bias^2 of (2), and Var_s of one sub-sample."""
        key = (size, ridge)
        if key not in self._estimates:
            v, weights = self.counts(size)
            h = self._matrices(v, size, ridge)
            if ridge is None:  # E[H] needs P[B_s > 0] only, which is known
                mean = self.complete * -np.expm1(special.xlog1py(size, -self.p))
            else:
                mean = np.tensordot(weights, h, axes=1)
            if self.values is None:
                error = np.abs(mean - self.complete).sum(axis=1) * self.size_of_return
                level = np.full(self.p.size, self.size_of_return)
            else:
                error, level = mean @ self.values - self.values, self.values
            answer = h @ level
            between = weights @ answer**2 - (weights @ answer) ** 2
            assert self.variance is not None
            spread = np.where(v > 0, np.sqrt(self.variance / np.maximum(v, 1)), 0.0)
            within = weights @ (np.abs(h) @ spread[..., None])[..., 0] ** 2
            self._estimates[key] = (
                float(self.importance @ error**2),
                np.maximum(between, 0) + within,
            )
        return self._estimates[key]

    def _matrices(self, v: FloatArray, size: int, ridge: float | None) -> FloatArray:
        """H for each row of counts, shape (nodes, N, N)."""
        if ridge is None:
            return self.complete * (v > 0)[:, None, :]
        gamma = self.weights * v / size
        shift = ridge / (2 * size)
        target = self.phi.T[None] * gamma[:, None, :]
        if self.separate:  # disjoint columns: nothing to solve
            theta: FloatArray = target / (gamma @ self.phi**2 + shift)[..., None]
        else:
            gram = target @ self.phi
            shifted = gram + shift * np.eye(gram.shape[-1])
            theta = np.asarray(np.linalg.solve(shifted, target), dtype=np.float64)
        out: FloatArray = self.phi @ theta
        return out

    def error(
        self, subsamples: int, size: int, epsilon: float, delta: float, ridge: float | None
    ) -> PlannedError:
        noise = self.noise(size, epsilon, delta, ridge)
        return self.error_with(subsamples, size, float(noise), ridge)

    def error_with(
        self, subsamples: int, size: int, noise: float, ridge: float | None
    ) -> PlannedError:
        """The error where one release of the base mechanism has this noise."""
        bias, variance = self.estimator(size, ridge)
        share = size / self.n
        repeated = (1 - share) / subsamples + share
        sampling = math.sqrt(float(self.importance @ variance) * repeated)
        return PlannedError(noise / math.sqrt(subsamples), math.sqrt(bias), sampling)

    def noise(
        self, size: int, epsilon: float, delta: float, ridge: float | FloatArray | None
    ) -> FloatArray:
        """Noise of one release of the base mechanism, in values; for each ridge."""
        if ridge is None:
            v, weights = self.counts(size)
            lsw = dp_lsw_diagnostics(
                v,
                self.phi,
                self.weights,
                f_max=self.f_max,
                f_min=self.f_min,
                epsilon=epsilon,
                delta=delta,
            )
            squared = np.asarray(weights @ lsw.sigma**2)
        else:  # psi of LSL hardly depends on the spread of the counts
            lsl = dp_lsl_diagnostics(
                size * self.p,
                size,
                self.phi,
                self.weights,
                ridge,
                f_max=self.f_max,
                f_min=self.f_min,
                epsilon=epsilon,
                delta=delta,
                improved=self.improved,
            )
            squared = lsl.sigma**2
        out: FloatArray = np.sqrt(squared * self.noise_gain)
        return out

    def global_sensitivity(self, size: int, ridge: float | None) -> float:
        """Of one noise-free estimate on a block."""
        if ridge is None:
            return lsw_global_sensitivity(
                self.phi, self.weights, f_max=self.f_max, f_min=self.f_min
            )
        return lsl_sensitivity_bound(
            self.phi, self.weights, ridge, size, f_max=self.f_max, f_min=self.f_min
        )

    def best_ridge(
        self, subsamples: int, size: int, epsilon: float, delta: float, refine: bool
    ) -> float:
        def scores(ridges: FloatArray) -> FloatArray:
            out = np.full(ridges.shape, math.inf)  # where the printed algorithm admits none
            admitted = ridges > (0.0 if self.improved else self.least_ridge)
            if admitted.any():
                noise = self.noise(size, epsilon, delta, ridges[admitted])
                out[admitted] = [
                    self.error_with(subsamples, size, float(x), float(ridge)).score
                    for x, ridge in zip(noise, ridges[admitted], strict=True)
                ]
            return out

        return self.tune(scores, size, refine)

    def tune(self, scores: Callable[[FloatArray], FloatArray], size: int, refine: bool) -> float:
        """The ridge of least score: from a grid, and between its neighbours if refined."""
        grid = 2 * size * self.ridge_unit * _RIDGE_GRID
        values = scores(grid)
        best = int(np.argmin(values))
        if not refine:
            return float(grid[best])
        low, high = grid[max(best - 1, 0)], grid[min(best + 1, grid.size - 1)]
        found = optimize.minimize_scalar(
            lambda x: float(scores(np.array([math.exp(x)]))[0]),
            bounds=(math.log(low), math.log(high)),
            method="bounded",
            options={"xatol": 1e-2},
        )
        return float(math.exp(found.x)) if found.fun < values[best] else float(grid[best])


def _resolve(ridge: Ridge, size: int, tuned: Callable[[int], float]) -> float | None:
    """The ridge for one size."""
    if ridge is None:
        return None
    if callable(ridge):
        return check.positive("ridge(size)", ridge(size))
    if ridge == "tuned":
        return tuned(size)
    raise ValueError(f"ridge must be None, 'tuned' or a function of the size, got {ridge!r}")


def planned_error(
    n: int,
    visit_probabilities: ArrayLike,
    features: ArrayLike,
    weights: ArrayLike,
    *,
    subsamples: int,
    size: int,
    epsilon: float,
    delta: float,
    f_max: float,
    f_min: float = 0.0,
    ridge: float | None = None,
    improved: bool = False,
    importance: ArrayLike | None = None,
    values: ArrayLike | None = None,
    variance: ArrayLike | None = None,
) -> PlannedError:
    """Equations (1) to (3) for one setting; from public numbers only.

    Parameters
    ----------
    n : int
        Number of trajectories.
    visit_probabilities : array_like, shape (N,)
        p_s in [0, 1]; a plan.
    features : array_like, shape (N, d)
        Phi.
    weights : array_like, shape (N,)
        w of LSW, or rho in [0, 1] of LSL.
    subsamples, size : int
        m >= 1 and k in 1 .. n; 1 and n for the plain mechanism.
    epsilon, delta : float
        The guarantee of the *base* mechanism; epsilon in (0, 5].
    f_max, f_min : float
        Public range of the returns.
    ridge : float, optional
        lambda of each LSL run; None for LSW.
    improved : bool
        As in :func:`~dprl.private_evaluation.dp_lsl`.
    importance : array_like, shape (N,), optional
        How much each state's error counts, u before normalisation; default: equally.
    values : array_like, shape () or (N,), optional
        A public guess of the values. Then the bias is that of this guess, what the features
        cannot represent included. Without it the worst values are taken, and the bias is that
        against LSW with all states visited.
    variance : array_like, shape () or (N,), optional
        A public guess of the variance of a return; default a quarter of the squared range.

    Returns
    -------
    PlannedError
        (1) for visit counts that rise and fall together, by quadrature over B_s. (2) is exact
        for LSW, by quadrature for LSL. (3) bounds the sampling error for tabular features, and
        for others where the errors of all states agree in sign, up to that quadrature.

    Raises
    ------
    ValueError
        If a parameter is outside its range or shapes do not fit.

    Notes
    -----
    O(N^2) operations for each of 24 quadrature nodes (O(N^2 d) for LSL).

    Examples
    --------
    Pieces of one trajectory, 4096 of them, in place of one run on 10,000 trajectories:

    >>> from dprl.features import tabular
    >>> error = planned_error(
    ...     10_000, [1.0] * 40, tabular(40), [1.0] * 40, subsamples=4096, size=1,
    ...     epsilon=1.0, delta=1e-5, f_max=1.0)
    >>> round(error.noise, 3), error.bias, round(error.sampling, 4)
    (2.441, 0.0, 0.0093)
    """
    plan = _Plan(
        n,
        visit_probabilities,
        features,
        weights,
        f_max,
        f_min,
        ridge is not None,
        improved,
        importance,
        values,
        variance,
    )
    m = check.whole("subsamples", subsamples)
    k = _size(size, plan.n)
    lam = None if ridge is None else check.positive("ridge", ridge)
    return plan.error(m, k, epsilon, delta, lam)


def subsampling_candidates(
    n: int,
    visit_probabilities: ArrayLike,
    features: ArrayLike,
    weights: ArrayLike,
    *,
    f_max: float,
    epsilon: float,
    delta: float,
    ridge: Ridge = None,
    accounting: Accounting = "closed-form",
    slack: float | None = None,
    most_subsamples: int = 4096,
    most_draws: int | None = None,
    subsamples: Sequence[int] | None = None,
    sizes: Sequence[int] | None = None,
    f_min: float = 0.0,
    improved: bool = False,
    importance: ArrayLike | None = None,
    values: ArrayLike | None = None,
    variance: ArrayLike | None = None,
    recalibrate: bool = False,
    allow_large_delta: bool = False,
) -> list[SubsamplingChoice]:
    """All settings that the rule compares, the plain mechanism first; public numbers only.

    A pair (m, k) is a candidate if the accounting has a base guarantee for it and

    - m k >= n: on average each trajectory is used once. Below that a mechanism is tempted to
      publish a few trajectories exactly and to count on most of them staying hidden;
    - delta of the base mechanism is at most that of the promise, for the same reason.

    The base epsilon is at most 5, where Lemma 3.1 is proved.

    Parameters
    ----------
    ridge : None, "tuned" or callable
        None: LSW. "tuned": LSL, the ridge of each candidate chosen to minimise its own planned
        error. A callable: LSL with lambda = ridge(size).
    accounting : {"printed", "closed-form", "optimal"}
        Where the base guarantee comes from: :func:`~dprl.private_evaluation.base_promise`.
        With "optimal" a candidate takes up to a second at m = 2^20.
    slack : float, optional
        delta' of advanced composition; not used by "optimal".
    most_subsamples : int
        The budget of computation: largest m.
    most_draws : int, optional
        The same for mk; by default unlimited.
    subsamples, sizes : sequence of int, optional
        m and k to try; default powers of two up to the budget, and up to n / 2.
    recalibrate : bool
        Calibrate the plain mechanism by :func:`recalibrated_guarantee`.
    allow_large_delta : bool
        A promise with delta > 1/n is refused unless this is set: publishing one trajectory drawn
        at random keeps it.

    Other parameters as in :func:`choose_subsampling` and :func:`planned_error`.

    Returns
    -------
    list of SubsamplingChoice
        With "tuned" the ridges come from a grid, a factor of 3.2 apart.

    Examples
    --------
    >>> from dprl.features import tabular
    >>> found = subsampling_candidates(
    ...     1_000, [1.0] * 40, tabular(40), [1.0] * 40, f_max=1.0, epsilon=1.0, delta=1e-5,
    ...     subsamples=[64, 1024], sizes=[1, 4, 16])
    >>> [(c.subsamples, c.size) for c in found]
    [(1, 1000), (64, 16), (1024, 1), (1024, 4), (1024, 16)]
    """
    plan = _Plan(
        n,
        visit_probabilities,
        features,
        weights,
        f_max,
        f_min,
        ridge is not None,
        improved,
        importance,
        values,
        variance,
    )
    search = _Search(epsilon, delta, ridge, accounting, slack, recalibrate, allow_large_delta)
    budget = _Budget(most_subsamples, most_draws)
    return search.candidates(plan, budget, subsamples, sizes, with_plain=True)


def choose_subsampling(
    n: int,
    visit_probabilities: ArrayLike,
    features: ArrayLike,
    weights: ArrayLike,
    *,
    f_max: float,
    epsilon: float,
    delta: float,
    ridge: Ridge = None,
    accounting: Accounting = "closed-form",
    slack: float | None = None,
    most_subsamples: int = 4096,
    most_draws: int | None = None,
    subsamples: Sequence[int] | None = None,
    sizes: Sequence[int] | None = None,
    f_min: float = 0.0,
    improved: bool = False,
    importance: ArrayLike | None = None,
    values: ArrayLike | None = None,
    variance: ArrayLike | None = None,
    recalibrate: bool = False,
    allow_large_delta: bool = False,
    with_plain: bool = True,
) -> SubsamplingChoice:
    """The setting of least planned error; the plain mechanism if nothing beats it.

    Every argument must be chosen without looking at the data. Then the choice is a public number
    and costs no privacy. It replaces the line "choose m and k that minimise (4.31)" of the thesis's
    Algorithm 3.

    Parameters
    ----------
    n : int
        Number of trajectories; public under "replace one trajectory".
    visit_probabilities : array_like, shape (N,)
        Planned p_s, from the start distribution, a simulator, or the least one expects.
    features : array_like, shape (N, d)
        Phi.
    weights : array_like, shape (N,)
        w of LSW, or rho in [0, 1] of LSL.
    f_max, f_min : float
        Public range of the returns.
    epsilon, delta : float
        What the whole mechanism must promise; epsilon in (0, 5], delta in (0, 1/n].
    ridge, accounting, slack, recalibrate, allow_large_delta
        As in :func:`subsampling_candidates`.
    most_subsamples, most_draws, subsamples, sizes
        As there.
    improved, importance, values, variance
        As in :func:`planned_error`.
    with_plain : bool
        False: the best setting with sub-samples, even if plain is better. For study.

    Returns
    -------
    SubsamplingChoice
        With "tuned" the ridge of the choice is found between the points of the grid too.

    Raises
    ------
    ValueError
        If a parameter is outside its range, shapes do not fit or delta > 1/n.
    NoCandidateError
        A ``ValueError``, if no pair (m, k) is a candidate.

    Examples
    --------
    With 1,000 trajectories the noise of plain DP-LSW drowns everything; with 10,000 there is
    nothing to gain:

    >>> from dprl.features import tabular
    >>> public = dict(f_max=1.0, epsilon=1.0, delta=1e-5)
    >>> choice = choose_subsampling(1_000, [1.0] * 40, tabular(40), [1.0] * 40, **public)
    >>> choice.subsamples, choice.size
    (4096, 1)
    >>> choose_subsampling(10_000, [1.0] * 40, tabular(40), [1.0] * 40, **public).plain
    True
    """
    plan = _Plan(
        n,
        visit_probabilities,
        features,
        weights,
        f_max,
        f_min,
        ridge is not None,
        improved,
        importance,
        values,
        variance,
    )
    search = _Search(epsilon, delta, ridge, accounting, slack, recalibrate, allow_large_delta)
    budget = _Budget(most_subsamples, most_draws)
    found = search.candidates(plan, budget, subsamples, sizes, with_plain=with_plain)
    if not found:
        raise NoCandidateError("no pair of subsamples and sizes is a candidate")
    return search.best(plan, found)


def choose_partition(
    n: int,
    visit_probabilities: ArrayLike,
    features: ArrayLike,
    weights: ArrayLike,
    *,
    f_max: float,
    epsilon: float,
    delta: float,
    ridge: Ridge = None,
    sizes: Sequence[int] | None = None,
    f_min: float = 0.0,
    importance: ArrayLike | None = None,
    values: ArrayLike | None = None,
    variance: ArrayLike | None = None,
) -> PartitionChoice:
    """Blocks for ``average_then_perturb(..., design="partition")`` of least planned error.

    Disjoint blocks of k trajectories, m = floor(n / k) of them; LSW or LSL on each without noise,
    the mean, and one Gaussian release for 1/m of the global sensitivity of the base estimate.
    Bias as in (2); the sampling variance is Var_s / m, for the blocks are independent.

    Parameters
    ----------
    ridge : None, "tuned" or callable
        As in :func:`subsampling_candidates`. With a ridge the global sensitivity falls with the
        size, and one block may be best.
    sizes : sequence of int, optional
        k to try; default powers of two up to n, and n.

    Other parameters as in :func:`choose_subsampling`; here delta may exceed 1/n, for no
    trajectory is published exactly.

    Returns
    -------
    PartitionChoice

    Examples
    --------
    >>> from dprl.features import tabular
    >>> choice = choose_partition(
    ...     10_000, [1.0] * 40, tabular(40), [1.0] * 40, f_max=1.0, epsilon=1.0, delta=1e-5)
    >>> choice.subsamples, choice.size, round(choice.planned.noise, 4)
    (10000, 1, 0.0024)
    """
    plan = _Plan(
        n,
        visit_probabilities,
        features,
        weights,
        f_max,
        f_min,
        ridge is not None,
        True,
        importance,
        values,
        variance,
    )
    eps, tail = check.positive("epsilon", epsilon), check.open_unit("delta", delta)
    if sizes is None:
        sizes = sorted({2**i for i in range(plan.n.bit_length())} | {plan.n})
    unit = analytic_gaussian_sigma(1.0, eps, tail)

    def candidate(k: int, lam: float | None) -> PartitionChoice:
        blocks = plan.n // k
        noise = unit * plan.global_sensitivity(k, lam) / blocks * math.sqrt(plan.noise_gain)
        bias, var = plan.estimator(k, lam)
        sampling = math.sqrt(float(plan.importance @ var) / blocks)
        planned = PlannedError(noise, math.sqrt(bias), sampling)
        return PartitionChoice(blocks, k, lam, noise / math.sqrt(plan.noise_gain), planned)

    def tuned(k: int) -> float:
        return plan.tune(lambda x: np.array([candidate(k, lam).score for lam in x]), k, True)

    found = []
    for k in [_size(k, plan.n) for k in sizes]:
        lam = _resolve(ridge, k, tuned)
        found.append(candidate(k, lam))
    if not found:
        raise ValueError("sizes must hold at least one size")
    return min(found, key=lambda choice: choice.score)


@dataclass(frozen=True)
class _Budget:
    subsamples: int  # largest m
    draws: int | None  # largest mk


@dataclass(frozen=True)
class _Search:
    """The promise, and how candidates get their guarantee and their ridge."""

    epsilon: float
    delta: float
    ridge: Ridge
    accounting: Accounting
    slack: float | None
    recalibrate: bool
    allow_large_delta: bool

    def candidates(
        self,
        plan: _Plan,
        budget: _Budget,
        subsamples: Sequence[int] | None,
        sizes: Sequence[int] | None,
        with_plain: bool,
    ) -> list[SubsamplingChoice]:
        eps, tail = self._promise(plan.n)
        most = check.whole("most_subsamples", budget.subsamples)
        draws = math.inf if budget.draws is None else check.whole("most_draws", budget.draws)
        if subsamples is None:
            subsamples = [2**i for i in range(most.bit_length())]
        if sizes is None:
            sizes = [2**i for i in range(max(plan.n // 2, 1).bit_length())]
        counts = [check.whole("subsamples", m) for m in subsamples]
        if counts and max(counts) > most:
            raise ValueError(
                f"subsamples must not exceed most_subsamples = {most}, got {max(counts)}"
            )
        found = [self._plain(plan, eps, tail)] if with_plain else []
        for m in counts:
            for k in [_size(k, plan.n) for k in sizes]:
                base = self._base(plan.n, m, k, eps, tail) if m * k <= draws else None
                if base is not None:
                    lam = self._ridge(plan, m, k, base)
                    error = plan.error(m, k, *base, lam)
                    found.append(SubsamplingChoice(m, k, *base, lam, error, False))
        return found

    def best(self, plan: _Plan, found: list[SubsamplingChoice]) -> SubsamplingChoice:
        found = sorted(found, key=lambda candidate: candidate.score)  # stable: plain before equals
        if self.ridge != "tuned":
            return found[0]
        refined = []
        for c in found[:_REFINED]:
            base = (c.epsilon, c.delta)
            lam = plan.best_ridge(c.subsamples, c.size, *base, refine=True)
            error = plan.error(c.subsamples, c.size, *base, lam)
            refined.append(replace(c, ridge=lam, planned=error))
        return min(refined, key=lambda candidate: candidate.score)

    def _promise(self, n: int) -> tuple[float, float]:
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
        if self.slack is not None:
            if self.accounting == "optimal":
                raise ValueError("optimal composition has no slack")
            if check.open_unit("slack", self.slack) >= tail:
                raise ValueError(f"slack must be below delta = {tail:g}, got {self.slack!r}")
        return eps, tail

    def _base(self, n: int, m: int, k: int, eps: float, tail: float) -> tuple[float, float] | None:
        if m * k < n or (m == 1 and k == n):
            return None
        try:
            base = base_promise(eps, tail, n, m, k, accounting=self.accounting, slack=self.slack)
        except ValueError:  # epsilon > 4 ln(1/slack): the accounting has no guarantee
            return None
        return (base.epsilon, base.delta) if base.delta <= tail else None

    def _ridge(self, plan: _Plan, m: int, k: int, base: tuple[float, float]) -> float | None:
        return _resolve(self.ridge, k, lambda k: plan.best_ridge(m, k, *base, refine=False))

    def _plain(self, plan: _Plan, eps: float, tail: float) -> SubsamplingChoice:
        base = (eps, tail)
        lam = self._ridge(plan, 1, plan.n, base)
        for _ in range(2 if self.recalibrate else 0):  # the ridge and the guarantee in turn

            def noise(e: float, d: float, fixed: float | None = lam) -> float:
                return float(plan.noise(plan.n, e, d, fixed)) if e <= LARGEST_EPSILON else math.inf

            base = recalibrated_guarantee(eps, tail, noise)
            lam = self._ridge(plan, 1, plan.n, base)
        planned = plan.error(1, plan.n, *base, lam)
        return SubsamplingChoice(1, plan.n, *base, lam, planned, True)


def _quadrature() -> tuple[FloatArray, FloatArray]:
    """Nodes u in (0, 1) and weights: E[f(B)] is the weighted mean of f(quantile of B at u)."""
    x, w = np.polynomial.legendre.leggauss(6)
    low, high = np.array(_SPLITS[:-1])[:, None], np.array(_SPLITS[1:])[:, None]
    nodes = (low + (high - low) * (x + 1) / 2).ravel()
    return nodes, ((high - low) / 2 * w).ravel()


def _size(size: int, n: int) -> int:
    k = check.whole("size", size)
    if k > n:
        raise ValueError(f"size must not exceed the {n} trajectories, got {k}")
    return k
