r"""The planned error of sub-sample-and-average and of the plain mechanism; no data are read.

For trajectories that are independent draws, visiting state s with probability p_s, a sub-sample
of size k has B_s ~ Binomial(k, p_s) visits, and the error of the mean of m releases has three
parts, as root mean squares over the states with importances u:

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
that enters.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy import optimize, special, stats

from dprl import _validation as check
from dprl._validation import FloatArray
from dprl.features import feature_matrix, operator_norm, weighted_pseudo_inverse
from dprl.private_evaluation.common import LeastSquares, return_spread
from dprl.private_evaluation.dp_lsl import LSL

# Gauss-Legendre nodes on [0, 1], split so that a state that is rarely missed is not overlooked
_SPLITS = (0.0, 1e-3, 0.03, 0.3, 1.0)
# lambda / (2k) relative to the largest rho_s ||phi_s||^2: first a grid, then the best refined
_RIDGE_GRID = np.logspace(-4, 8, 25)


@dataclass(frozen=True)
class PlannedError:
    """What a setting is expected to cost: the roots of (1), (2) and (3), in units of returns."""

    noise: float
    bias: float
    sampling: float

    @property
    def score(self) -> float:
        """Root of the sum of the three squares."""
        return math.hypot(self.noise, self.bias, self.sampling)


@dataclass(frozen=True, eq=False)
class Problem:
    """What the plan of an evaluation knows: public numbers only.

    Attributes
    ----------
    n : int
        Number of trajectories.
    visit_probabilities : array_like, shape (N,)
        Planned p_s in [0, 1].
    estimator : LSW or LSL
        Its ridge may be a number, a function of the size of a (sub-)sample, or "tuned": then each
        candidate gets the ridge of its own least planned error.
    importance : array_like, shape (N,), optional
        How much each state's error counts, u before normalisation; default: equally.
    values : array_like, shape () or (N,), optional
        A public guess of the values. Then the bias is that of this guess, what the features
        cannot represent included. Without it the worst values are taken, and the bias is that
        against LSW with all states visited.
    variance : array_like, shape () or (N,), optional
        A public guess of the variance of a return; default a quarter of the squared range.
    """

    n: int
    visit_probabilities: ArrayLike
    estimator: LeastSquares
    importance: ArrayLike | None = None
    values: ArrayLike | None = None
    variance: ArrayLike | None = None


def planned_error(
    problem: Problem, subsamples: int, size: int, *, epsilon: float, delta: float
) -> PlannedError:
    """Equations (1) to (3) for one setting; from public numbers only.

    (1) is for visit counts that rise and fall together, by quadrature over B_s. (2) is exact for
    LSW, by quadrature for LSL. (3) bounds the sampling error for tabular features, and for others
    where the errors of all states agree in sign, up to that quadrature. O(N^2) operations for each
    of 24 nodes (O(N^2 d) for LSL).

    Parameters
    ----------
    problem : Problem
        With "tuned" the ridge is the best for this setting.
    subsamples, size : int
        m >= 1 and k in 1 .. n; 1 and n for the plain mechanism.
    epsilon, delta : float
        The guarantee of the *base* mechanism; epsilon in (0, 5].

    Examples
    --------
    Pieces of one trajectory, 4096 of them, in place of one run on 10,000 trajectories:

    >>> from dprl.features import tabular
    >>> from dprl.private_evaluation import LSW
    >>> problem = Problem(10_000, [1.0] * 40, LSW(tabular(40), [1.0] * 40, f_max=1))
    >>> error = planned_error(problem, 4096, 1, epsilon=1.0, delta=1e-5)
    >>> round(error.noise, 3), error.bias, round(error.sampling, 4)
    (2.441, 0.0, 0.0093)
    """
    plan = plan_of(problem)
    m, k = check.whole("subsamples", subsamples), plan.checked_size(size)
    return plan.error(m, k, epsilon, delta, plan.ridge(m, k, epsilon, delta))


def plan_of(problem: Problem) -> Plan:
    """The checked problem, with what depends on the size of a sub-sample computed once."""
    check.instance("problem", problem, Problem)
    check.instance("estimator", problem.estimator, LeastSquares)
    return (_RidgePlan if isinstance(problem.estimator, LSL) else _WeightedPlan)(problem)


class Plan(ABC):
    """Planned errors of one problem. Where a method takes ``ridge``, LSW has None."""

    def __init__(self, problem: Problem) -> None:
        self.n = check.whole("n", problem.n)
        p = check.finite_array("visit_probabilities", problem.visit_probabilities, ndim=1)
        if p.size == 0 or (p < 0).any() or (p > 1).any():
            raise ValueError("visit_probabilities must be one number in [0, 1] for each state")
        self.p, self.estimator = p, problem.estimator
        self.phi = feature_matrix(self.estimator.features, p.size)
        self.weights = self.estimator.weights
        step, self.size_of_return = return_spread(self.estimator.f_min, self.estimator.f_max)
        u = np.ones(p.size) if problem.importance is None else problem.importance
        u = check.weight_vector("importance", u, p.size)
        self.importance = u / u.sum()
        self.values = None if problem.values is None else self._guess("values", problem.values)
        guess = step**2 / 4 if problem.variance is None else problem.variance
        self.variance = self._guess("variance", guess)
        if (self.variance < 0).any():
            raise ValueError("variance must not be negative")
        squares = (self.phi**2).sum(axis=1)
        self.noise_gain = float(self.importance @ squares)
        self.ridge_unit = float((self.weights * squares).max())
        self._counts: dict[int, tuple[FloatArray, FloatArray]] = {}
        self._estimates: dict[tuple[int, float | None], tuple[float, FloatArray]] = {}
        self.complete = self._complete()

    def _guess(self, name: str, values: ArrayLike) -> FloatArray:
        x = check.finite_array(name, values)
        if x.shape not in ((), self.p.shape):
            raise ValueError(f"{name} must be a number or one for each of {self.p.size} states")
        return np.broadcast_to(x, self.p.shape).astype(np.float64)

    def checked_size(self, size: int) -> int:
        k = check.whole("size", size)
        if k > self.n:
            raise ValueError(f"size must not exceed the {self.n} trajectories, got {k}")
        return k

    @abstractmethod
    def _complete(self) -> FloatArray:
        """H_0, the matrix of LSW with all states visited."""

    @abstractmethod
    def _matrices(self, v: FloatArray, size: int, ridge: float | None) -> FloatArray:
        """H for each row of counts, shape (nodes, N, N)."""

    @abstractmethod
    def _mean_matrix(self, h: FloatArray, weights: FloatArray, size: int) -> FloatArray:
        """E[H]."""

    @abstractmethod
    def noise(self, size: int, epsilon: float, delta: float, ridge: Any) -> FloatArray:
        """Noise of one release of the base mechanism, in values; for each ridge."""

    @abstractmethod
    def ridge_by(
        self, size: int, score: Callable[[FloatArray], FloatArray], refine: bool
    ) -> float | None:
        """The ridge for one size; if it is tuned, the one of least score."""

    def lsw_matrix(self, gamma: FloatArray, allow: bool) -> FloatArray:
        inverse = weighted_pseudo_inverse(self.phi, gamma, allow_rank_deficient=allow)
        return self.phi @ inverse * np.sqrt(gamma)

    def counts(self, size: int) -> tuple[FloatArray, FloatArray]:
        """Visit counts (nodes, N) whose weighted means stand for those over Binomial(k, p)."""
        if size not in self._counts:
            nodes, weights = _quadrature()
            v = np.asarray(stats.binom.ppf(nodes[:, None], size, self.p), dtype=np.float64)
            self._counts[size] = np.maximum(v, 0), weights
        return self._counts[size]

    def moments(self, size: int, ridge: float | None) -> tuple[float, FloatArray]:
        """bias^2 of (2), and Var_s of one sub-sample."""
        key = (size, ridge)
        if key not in self._estimates:
            v, weights = self.counts(size)
            h = self._matrices(v, size, ridge)
            mean = self._mean_matrix(h, weights, size)
            if self.values is None:
                error = np.abs(mean - self.complete).sum(axis=1) * self.size_of_return
                level = np.full(self.p.size, self.size_of_return)
            else:
                error, level = mean @ self.values - self.values, self.values
            answer = h @ level
            between = weights @ answer**2 - (weights @ answer) ** 2
            spread = np.where(v > 0, np.sqrt(self.variance / np.maximum(v, 1)), 0.0)
            within = weights @ (np.abs(h) @ spread[..., None])[..., 0] ** 2
            self._estimates[key] = (
                float(self.importance @ error**2),
                np.maximum(between, 0) + within,
            )
        return self._estimates[key]

    def error(
        self, subsamples: int, size: int, epsilon: float, delta: float, ridge: float | None
    ) -> PlannedError:
        noise = self.noise(size, epsilon, delta, ridge)
        return self.error_with(subsamples, size, float(noise), ridge)

    def error_with(
        self, subsamples: int, size: int, noise: float, ridge: float | None
    ) -> PlannedError:
        """The error where one release of the base mechanism has this noise."""
        bias, variance = self.moments(size, ridge)
        share = size / self.n
        repeated = (1 - share) / subsamples + share
        sampling = math.sqrt(float(self.importance @ variance) * repeated)
        return PlannedError(noise / math.sqrt(subsamples), math.sqrt(bias), sampling)

    def at(self, ridge: Any) -> LeastSquares:
        """The estimator with this ridge."""
        return self.estimator

    def ridge(
        self, subsamples: int, size: int, epsilon: float, delta: float, refine: bool = False
    ) -> float | None:
        """The ridge for this setting, of least planned error if it is tuned; None for LSW."""

        def score(ridges: FloatArray) -> FloatArray:
            out = np.full(ridges.shape, math.inf)  # where the printed algorithm admits none
            admitted = ridges > self.least_ridge
            if admitted.any():
                noise = self.noise(size, epsilon, delta, ridges[admitted])
                out[admitted] = [
                    self.error_with(subsamples, size, float(x), float(ridge)).score
                    for x, ridge in zip(noise, ridges[admitted], strict=True)
                ]
            return out

        return self.ridge_by(size, score, refine)

    #: DP-LSL needs a larger ridge than this.
    least_ridge = 0.0


class _WeightedPlan(Plan):
    """The plan of LSW: H is H_0 with the columns of unvisited states struck out."""

    def _complete(self) -> FloatArray:
        return self.lsw_matrix(self.weights, allow=False)

    def _matrices(self, v: FloatArray, size: int, ridge: float | None) -> FloatArray:
        return self.complete * (v > 0)[:, None, :]

    def _mean_matrix(self, h: FloatArray, weights: FloatArray, size: int) -> FloatArray:
        # needs P[B_s > 0] only, which is known
        return np.asarray(self.complete * -np.expm1(special.xlog1py(size, -self.p)))

    def noise(self, size: int, epsilon: float, delta: float, ridge: Any) -> FloatArray:
        v, weights = self.counts(size)
        sigma = self.estimator.noise(v, size, epsilon=epsilon, delta=delta).sigma
        return np.asarray(np.sqrt(np.asarray(weights @ sigma**2) * self.noise_gain))

    def ridge_by(
        self, size: int, score: Callable[[FloatArray], FloatArray], refine: bool
    ) -> float | None:
        return None


class _RidgePlan(Plan):
    """The plan of LSL."""

    estimator: LSL

    def __init__(self, problem: Problem) -> None:
        super().__init__(problem)
        self.separate = bool(((self.phi != 0).sum(axis=1) <= 1).all())
        if not self.estimator.improved:
            self.least_ridge = float(operator_norm(self.phi) ** 2 * self.weights.max())

    def _complete(self) -> FloatArray:
        return self.lsw_matrix(self.weights * self.p, allow=True)

    def _matrices(self, v: FloatArray, size: int, ridge: float | None) -> FloatArray:
        assert ridge is not None
        gamma = self.weights * v / size
        shift = ridge / (2 * size)
        target = self.phi.T[None] * gamma[:, None, :]
        if self.separate:  # disjoint columns: nothing to solve
            theta: FloatArray = target / (gamma @ self.phi**2 + shift)[..., None]
        else:
            gram = target @ self.phi
            shifted = gram + shift * np.eye(gram.shape[-1])
            theta = np.asarray(np.linalg.solve(shifted, target), dtype=np.float64)
        return self.phi @ theta

    def _mean_matrix(self, h: FloatArray, weights: FloatArray, size: int) -> FloatArray:
        return np.tensordot(weights, h, axes=1)

    def at(self, ridge: Any) -> LeastSquares:
        return replace(self.estimator, ridge=ridge)

    def noise(self, size: int, epsilon: float, delta: float, ridge: Any) -> FloatArray:
        # psi of LSL hardly depends on the spread of the counts
        noise = self.at(ridge).noise(size * self.p, size, epsilon=epsilon, delta=delta)
        return np.asarray(np.sqrt(noise.sigma**2 * self.noise_gain))

    def ridge_by(
        self, size: int, score: Callable[[FloatArray], FloatArray], refine: bool
    ) -> float | None:
        rule = self.estimator.ridge
        if callable(rule):
            return check.positive("ridge(size)", rule(size))
        if not isinstance(rule, str):
            return check.positive("ridge", rule)
        grid = 2 * size * self.ridge_unit * _RIDGE_GRID
        values = score(grid)
        best = int(np.argmin(values))
        if not refine:
            return float(grid[best])
        low, high = grid[max(best - 1, 0)], grid[min(best + 1, grid.size - 1)]
        found = optimize.minimize_scalar(
            lambda x: float(score(np.array([math.exp(x)]))[0]),
            bounds=(math.log(low), math.log(high)),
            method="bounded",
            options={"xatol": 1e-2},
        )
        return float(math.exp(found.x)) if found.fun < values[best] else float(grid[best])


def _quadrature() -> tuple[FloatArray, FloatArray]:
    """Nodes u in (0, 1) and weights: E[f(B)] is the weighted mean of f(quantile of B at u)."""
    x, w = np.polynomial.legendre.leggauss(6)
    low, high = np.array(_SPLITS[:-1])[:, None], np.array(_SPLITS[1:])[:, None]
    nodes = (low + (high - low) * (x + 1) / 2).ravel()
    return nodes, ((high - low) / 2 * w).ravel()
