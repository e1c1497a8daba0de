r"""Two laws that privacy keeps apart: a lower bound for any law near the true one.

P is the law of a trajectory, Q another one, and P_tau = (1 - tau) P + tau Q. A private estimate
from n trajectories can hardly tell P from P_tau when n tau is small, and then errs at one of them.

**Group privacy, exactly.** For one replaced trajectory P'[E] <= G(P[E]) with

    G(a) = min(e^eps a + delta, 1 - e^-eps (1 - a - delta), 1)    for (eps, delta),         (1)
    G(a) = Phi(Phi^{-1}(a) + mu)                                  for mu-GDP.

G is concave and does not decrease, so k replacements give the k-fold G_k = G(G(...)), also concave.
Draw n trajectories of P and replace each by one of Q with probability tau: K ~ Binomial(n, tau)
replacements, independent of what stood there before. By Jensen, for every event E of the output

    P_tau[E] <= Gbar(P[E]),      Gbar(a) = E G_K(a).                                       (2)

**The error.** Let V, V' be the values under P and P_tau. For densities p, p' of the output,
E||M - V||^2 + E'||M - V'||^2 >= ||V - V'||^2 int p p'/(p + p'), the least at each output. The
integral is at least that of the pair whose testing curve is Gbar itself, because each pair that is
at least as hard to tell apart is a randomised image of that one (Blackwell). So

    max over P, P_tau of E||M - V||^2 >= (||V - V'||^2/2) int_0^1 L/(1 + L) da, L = Gbar'.  (3)

A larger concave curve in place of Gbar makes (3) smaller, so a bound stays a bound if K > k_max
counts as 1 (all of the mass), and if a smooth Gbar is replaced by the least of its tangents. Under
(1) Gbar is piecewise linear and its corners are computed by going backwards through G; either way
(3) is a finite sum, without a quadrature. 1e-9 of its value is taken off for rounding.

**The alternative here**: trajectories of Q visit every state with the returns f. Then, pi_s the
visit probabilities under P,

    V'_s = ((1 - tau) pi_s V_s + tau f_s)/((1 - tau) pi_s + tau).                           (4)

With f = 0, trajectories that never arrive though they pass through every state (a long wait in the
last one), Q is a law along the chain. (3) then holds for every class of laws that contains P and
P_tau: any law along the chain within tau of P, in total variation. It does not hold for the Markov
class, whose estimators may use that Q is no chain. It bounds the larger of two errors: one may be
smaller at P alone, for an estimator that errs more at P_tau, as all that clip to P do.

No bound at a given delta can exceed the error of publishing each trajectory with probability
delta: that is (0, delta)-private, with the non-private error at delta n trajectories.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike
from scipy import optimize, special, stats

from dprl import _validation as check
from dprl._validation import FloatArray

_ROUNDING = 1e-9
_TAIL = 1e-14  # of K, counted as telling everything
_TANGENTS = 1500  # of the curve under mu-GDP


@dataclass(frozen=True)
class TestingCurve:
    """Corners of a concave, piecewise linear bound on P_tau[E] by P[E].

    Attributes
    ----------
    probability : ndarray, shape (m,)
        P[E], ascending from 0 to 1.
    bound : ndarray, shape (m,)
        What P_tau[E] may be at most.
    """

    probability: FloatArray
    bound: FloatArray

    __test__ = False  # no test case, for pytest

    def separation_left(self) -> float:
        """int_0^1 L/(1 + L) da of (3): 1/2 if the laws cannot be told apart, 0 if they can.

        >>> TestingCurve(np.array([0.0, 1.0]), np.array([0.0, 1.0])).separation_left()
        0.5
        """
        run, rise = np.diff(self.probability), np.maximum(np.diff(self.bound), 0.0)
        mixed = np.divide(run * rise, run + rise, out=np.zeros_like(run), where=run + rise > 0)
        return float(mixed.sum())


def group_curve(n: int, tau: float, epsilon: float, delta: float) -> TestingCurve:
    """(2) for an (epsilon, delta)-private mechanism.

    Parameters
    ----------
    n : int
        Trajectories; neighbours replace one.
    tau : float
        In [0, 1].
    epsilon, delta : float
        In [0, 100], and in [0, 1).

    Examples
    --------
    >>> curve = group_curve(1, 1.0, 1.0, 0.1)  # G itself
    >>> curve.probability.round(4).tolist(), curve.bound.round(4).tolist()
    ([0.0, 0.242, 0.9, 1.0], [0.1, 0.758, 1.0, 1.0])
    """
    m, t = check.whole("n", n), check.unit("tau", tau)
    eps, d = check.not_negative("epsilon", epsilon), check.below_one("delta", delta)
    if eps > 100:
        raise ValueError(f"epsilon must be at most 100, got {epsilon!r}")
    weights, rest = _replacements(m, t)
    grow = np.exp(eps)
    middle = (1 - d) / (1 + grow)  # where both sides of (1) meet

    def once(a: FloatArray) -> FloatArray:
        out: FloatArray = np.minimum(np.minimum(grow * a + d, 1 - (1 - a - d) / grow), 1.0)
        return out

    def back(y: FloatArray) -> FloatArray:
        return np.asarray(np.where(y <= grow * middle + d, (y - d) / grow, 1 - d - grow * (1 - y)))

    corners, pulled = [0.0, 1.0], np.array([middle, 1 - d])
    for _ in range(weights.size - 1):
        corners.extend(pulled[(pulled > 0) & (pulled < 1)])
        pulled = back(pulled)
    a = np.unique(corners)
    level, total = a, weights[0] * a
    for weight in weights[1:]:
        level = once(level)
        total = total + weight * level
    return TestingCurve(a, np.minimum(total + rest, 1.0))


def gaussian_group_curve(n: int, tau: float, mu: float) -> TestingCurve:
    """(2) for a mu-GDP mechanism, from above by tangents.

    Parameters as :func:`group_curve`; mu > 0.

    Examples
    --------
    >>> curve = gaussian_group_curve(1, 1.0, 0.5)
    >>> exact = special.ndtr(special.ndtri(curve.probability[1:-1]) + 0.5)
    >>> bool((np.abs(curve.bound[1:-1] - exact) < 1e-5).all())
    True
    """
    m, t = check.whole("n", n), check.unit("tau", tau)
    step = check.positive("mu", mu)
    weights, rest = _replacements(m, t)
    shift = step * np.arange(weights.size)
    x = np.linspace(max(-8.0 - shift[-1], -34.0), 8.0, _TANGENTS)  # no slope overflows
    a = special.ndtr(x)
    value = special.ndtr(x[:, None] + shift) @ weights + rest
    slope = np.exp(-shift * (x[:, None] + shift / 2)) @ weights
    # where a tangent meets the next one: between their two points, as the curve is concave
    fall = slope[:-1] - slope[1:]
    meets = value[1:] - value[:-1] + slope[:-1] * a[:-1] - slope[1:] * a[1:]
    at = np.divide(meets, fall, out=a[1:].copy(), where=fall > 0)
    at = np.clip(at, a[:-1], a[1:])
    # the larger of both tangents: the chords are then above Gbar wherever rounding puts ``at``
    bound = np.maximum(
        value[:-1] + slope[:-1] * (at - a[:-1]), value[1:] + slope[1:] * (at - a[1:])
    )
    first = max(value[0] - slope[0] * a[0], 0.0)
    last = min(float(value[-1] + slope[-1] * (1 - a[-1])), 1.0)
    return TestingCurve(
        np.concatenate([[0.0], at, [1.0]]),
        np.minimum(np.concatenate([[first], bound, [last]]), 1.0),
    )


def _replacements(n: int, tau: float) -> tuple[FloatArray, float]:
    """P[K = k] for k = 0 .. k_max, and P[K > k_max]."""
    last = int(min(stats.binom.isf(_TAIL, n, tau), n)) if tau > 0 else 0
    k = np.arange(last + 1)
    weights: FloatArray = stats.binom.pmf(k, n, tau)
    return weights, float(stats.binom.sf(last, n, tau))


@dataclass(frozen=True, eq=False)
class TwoPoints:
    """The two laws of the module's head.

    Parameters
    ----------
    values : array_like, shape (N,)
        V under P.
    visit_probabilities : array_like, shape (N,)
        pi_s in (0, 1].
    returns : array_like, shape (N,), optional
        f, the returns of Q from every state; default 0.

    Raises
    ------
    ValueError
        If the shapes differ or a visit probability is outside (0, 1].

    Examples
    --------
    >>> from dprl.mdp import Chain
    >>> chain = Chain(40, start="first")
    >>> points = TwoPoints(chain.values(), chain.visit_probabilities())
    >>> bound, tau = points.rmse(10_000, epsilon=1.0, delta=1e-6)
    >>> round(1e4 * bound, 2)
    0.94
    """

    values: ArrayLike
    visit_probabilities: ArrayLike
    returns: ArrayLike | None = None

    def __post_init__(self) -> None:
        v = check.finite_array("values", self.values, ndim=1)
        p = check.finite_array("visit_probabilities", self.visit_probabilities, ndim=1)
        f = np.zeros(v.size) if self.returns is None else self.returns
        f = check.finite_array("returns", f, ndim=1)
        if not v.shape == p.shape == f.shape or v.size == 0:
            raise ValueError(
                "values, visit_probabilities and returns must have one entry for each state, got "
                f"shapes {v.shape}, {p.shape}, {f.shape}"
            )
        if (p <= 0).any() or (p > 1).any():
            raise ValueError("visit_probabilities must lie in (0, 1]")
        for name, value in (("values", v), ("visit_probabilities", p), ("returns", f)):
            object.__setattr__(self, name, check.frozen(value.copy()))

    def distance(self, tau: float) -> float:
        """||V - V'||/sqrt(N), the root mean square over the states, by (4)."""
        t = check.unit("tau", tau)
        p, v = np.asarray(self.visit_probabilities), np.asarray(self.values)
        moved = t * (np.asarray(self.returns) - v) / ((1 - t) * p + t)
        return float(np.sqrt(np.mean(moved**2)))

    def rmse(
        self,
        n: int,
        *,
        epsilon: float | None = None,
        delta: float = 0.0,
        mu: float | None = None,
        tau: float | None = None,
    ) -> tuple[float, float]:
        """The bound (3) as an RMSE over the states, and the tau that gives it.

        Parameters
        ----------
        n : int
            Trajectories; neighbours replace one.
        epsilon, delta : float
            The bound for every (epsilon, delta)-private estimate; >= 0, in [0, 1).
        mu : float
            Or: the bound for every mu-GDP estimate.
        tau : float, optional
            In (0, 1]; by default one near the best. Each gives a bound.

        Raises
        ------
        ValueError
            If not exactly one of epsilon and mu is given, or one is outside its range.
        """
        m = check.whole("n", n)
        if (mu is None) == (epsilon is None) or (mu is not None and delta != 0):
            raise ValueError("give either epsilon (and delta), or mu")

        def bound(t: float) -> float:
            if epsilon is not None:
                curve = group_curve(m, t, epsilon, delta)
            else:
                assert mu is not None
                curve = gaussian_group_curve(m, t, mu)
            left = max(curve.separation_left(), 0.0)
            return self.distance(t) * math.sqrt(left / 2) * (1 - _ROUNDING)

        if tau is not None:
            t = check.fraction("tau", tau)
            return bound(t), t
        grid = np.geomspace(min(0.05 / m, 0.5), min(1000 / m, 1.0), 25)
        best = int(np.argmax([bound(t) for t in grid]))
        low, high = np.log(grid[max(best - 1, 0)]), np.log(grid[min(best + 1, 24)])
        found = optimize.minimize_scalar(
            lambda x: -bound(float(np.exp(x))),
            bounds=(low, high),
            method="bounded",
            options={"xatol": 1e-3},
        )
        t = float(np.exp(found.x))
        return max((bound(s), s) for s in (t, float(grid[best])))
