r"""Lower bounds on the error of evaluating a chain, from its data and from private estimates.

A chain of N states that stays in state j with probability p_j and pays 1 at the end of state N
has the values V_s = (1/gamma) prod_{j >= s} g(p_j), g(p) = (1 - p) gamma/(1 - p gamma). n
trajectories are given; state j is visited with probability pi_j. The risk of an estimate M is

    R = sum_s E (M_s - V_s)^2,          RMSE = sqrt(R/N).

All bounds are Bayes risks, hence at most the largest risk over the class: the p_j are independent
with density cos^2(pi t/2h)/h at p_j = c_j + t, |t| <= h, which has information J = pi^2/h^2. Class
and prior are centred at the chain of interest. One trajectory has the information
pi_j I(p_j), I(p) = 1/(p (1 - p)^2), about p_j (the stays in j are geometric), and

    a_sj = E dV_s/dp_j = (1/gamma) E g'(p_j) prod_{i >= s, i != j} E g(p_i),  j >= s.        (1)

**Without privacy, Markov class** (van Trees 1968). For each s

    E (M_s - V_s)^2 >= sum_{j >= s} a_sj^2/(n pi_j E I(p_j) + J).                          (2)

**Without privacy, any law along the chain.** From a uniform start the p_j may depend on the start
b too. Put the starts into blocks B; parameters p_Bj, each with information k_Bj E I/N a trajectory,
k_Bj the number of starts b <= j in B. The value of s, the mean return from the first visit of s, is
the mean over the starts b <= s of (1/gamma) prod_{j >= s} g(p_Bj), B the block of b, so

    E (M_s - V_s)^2 >= sum_B sum_{j >= s} (k_Bs a_sj/s)^2/(n k_Bj E I(p_j)/N + J).         (3)

Each partition gives a bound: one block gives (2), N blocks the most parameters, each with its own
prior. The best of the partitions into blocks of equal size is taken.

**With privacy, Markov class** (the score attack of Cai, Wang and Zhang 2023, with explicit
constants). Let S(x_i) be the score of trajectory i, C a fixed N x N matrix, and
A_i = (M - V)' C S(x_i). As E S = 0, sum_i E A_i = sum_{sj} C_sj d(E M_s)/dp_j, whose mean over the
prior is, by parts and Cauchy-Schwarz, at least tr(C a') - sqrt(R tr(C J C')). In A_i' the estimate
is computed with x_i replaced by an independent copy: E A_i' = 0 and E A_i'^2 <= lambda R for
lambda >= ||C I_total C'||, I_total = diag(pi_j I(p_j)). Replacing a trajectory changes the law of
M to a neighbour's, with density L of chi^2-divergence at most chi^2:

    E A_i = E (L - 1) A_i' <= chi sqrt(lambda R),                                           (4)
    chi^2 = e^{mu^2} - 1 for mu-GDP (the Gaussian pair dominates),
    chi^2 = 4 sinh^2(eps/2) for (eps, 0) (L in [e^-eps, e^eps] with mean 1).

An (eps, delta) pair of laws is a mixture, with weight 1 - delta, of an (eps, 0) pair, and of
anything (Kairouz, Oh and Viswanath 2015). Clip M to the box of the values of the class, of widths
w_s, which does not raise its risk: then delta adds at most
delta sum_s w_s E|(C S)_s| <= delta sum_s w_s sqrt(lambda) to (4), and chi is multiplied by
sqrt(1 - delta). Summing up,

    sqrt(R) >= (tr(C a') - n delta sqrt(lambda) sum_s w_s)
               / (n chi sqrt((1 - delta) lambda) + sqrt(tr(C J C'))).                       (5)

With I the largest information over the class and C = U V' I^{-1/2}, where U, V are the singular
vectors of a I^{-1/2}, lambda = 1 and tr(C a') is the nuclear norm of a I^{-1/2}, the largest
possible. (5) holds for each class that contains the Markov class, as it bounds a largest risk.

**Numbers.** In (1) to (5) only E g, E g', E I of one p are integrals. g is concave, -g' and I are
convex: in each of K cells of the prior a convex function's mean is at least its value at the
cell's mean (Jensen) and at most that of its chord. Each is used on the side that makes the bound
smaller, so the bounds are proved, up to rounding; 1e-9 of their value is taken off for that. In
(5) C is found from the lower ends of a, and tr(C a') is taken at its least between both ends.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import ArrayLike

from dprl import _validation as check
from dprl._validation import FloatArray
from dprl.mdp import Start

_CELLS = 512  # K
_ROUNDING = 1e-9


@dataclass(frozen=True, eq=False)
class LocalChains:
    """The class of chains near a given one, with the prior of the module's head.

    The bounds are on the largest risk of the class, and hold for every class that contains it. A
    wide class has chains with larger errors than its middle: to compare with an error measured at
    the middle, take h small, .05 at 10,000 trajectories, and larger only where J counts.

    Parameters
    ----------
    stay : array_like, shape (N,)
        c_j, the probabilities to stay of the chain in the middle; N >= 2.
    half_width : float
        h: the class is p_j in [c_j - h, c_j + h], strictly inside (0, 1).
    discount : float
        gamma in (0, 1).
    start : {"first", "uniform"}
        All trajectories start in state 1, or uniformly in the N states.

    Raises
    ------
    ValueError
        If a parameter is outside its range.

    Examples
    --------
    >>> chains = LocalChains([0.5] * 40, 0.1, start="first")
    >>> round(1e4 * chains.markov_rmse(10_000), 2)
    3.89
    """

    stay: FloatArray
    half_width: float
    discount: float
    start: Start
    _gradient: tuple[FloatArray, FloatArray] = field(repr=False)
    _information: FloatArray = field(repr=False)

    def __init__(
        self,
        stay: ArrayLike,
        half_width: float,
        discount: float = 0.99,
        start: Start = "uniform",
    ) -> None:
        c = check.finite_array("stay", stay, ndim=1).copy()
        h = check.positive("half_width", half_width)
        gamma = check.open_unit("discount", discount)
        if c.size < 2 or (c - h <= 0).any() or (c + h >= 1).any():
            raise ValueError(
                "stay must be two probabilities or more, each with half_width on both sides "
                "inside (0, 1)"
            )
        if start not in ("first", "uniform"):
            raise ValueError(f"start must be 'first' or 'uniform', got {start!r}")
        # of the convex functions gamma - g, -g' and I: bounds on the means, shape (2, N)
        falls, steep, information = (
            np.array([mean_bounds(f, float(p), h) for p in c]).T
            for f in (
                lambda p: gamma * (1 - gamma) * p / (1 - gamma * p),
                lambda p: gamma * (1 - gamma) / (1 - gamma * p) ** 2,
                lambda p: 1 / (p * (1 - p) ** 2),
            )
        )
        ends = []
        for g, slope in ((gamma - falls[1], steep[0]), (gamma - falls[0], steep[1])):
            ahead = np.cumprod(g[::-1])[::-1] / gamma  # E V_s
            ends.append(np.triu(np.outer(ahead, slope / g)))  # (1), without its sign; j <= s is 0
        for name, value in (
            ("stay", check.frozen(c)),
            ("half_width", h),
            ("discount", gamma),
            ("start", start),
            ("_gradient", (ends[0], ends[1])),
            ("_information", information[1]),
        ):
            object.__setattr__(self, name, value)

    @property
    def visit_probabilities(self) -> FloatArray:
        """pi_j: 1 from the first state, j/N from a uniform start."""
        n = self.stay.size
        return np.ones(n) if self.start == "first" else np.arange(1, n + 1) / n

    def markov_rmse(self, n: int) -> float:
        """Non-private bound for the Markov class, equation (2), as an RMSE over the states.

        Holds for every estimator from n trajectories, private or not: its RMSE, the root of the
        risk R/N, is at least this at some chain of the class.
        """
        m = check.whole("n", n)
        least = self._gradient[0] ** 2 / (
            m * self.visit_probabilities * self._information + self._prior
        )
        return self._rmse(float(least.sum()))

    def any_law_rmse(self, n: int) -> float:
        """Non-private bound for any law along the chain, equation (3), as an RMSE over the states.

        The class: each step stays or moves on, with a probability in [c_j - h, c_j + h] that may
        depend on the state where the trajectory started. From the first state that is (2).
        """
        m, states = check.whole("n", n), self.stay.size
        if self.start == "first":
            return self.markov_rmse(m)
        visitors = np.arange(1, states + 1)
        squares = self._gradient[0] ** 2

        def risk(size: int) -> float:
            begins = np.arange(0, states, size)[:, None]
            k = np.minimum(np.clip(visitors - begins, 0, size), states - begins)  # (blocks, N)
            least = 1 / (m * k * self._information / states + self._prior)
            return float(((k / visitors) ** 2 * (least @ squares.T)).sum())

        return self._rmse(max(risk(size) for size in range(1, states + 1)))

    def private_rmse(
        self,
        n: int,
        *,
        mu: float | None = None,
        epsilon: float | None = None,
        delta: float = 0.0,
    ) -> float:
        """Private bound for the Markov class, equation (5), as an RMSE over the states.

        Parameters
        ----------
        n : int
            Trajectories; neighbours replace one.
        mu : float, optional
            The bound for mu-GDP mechanisms, as all that add Gaussian noise are.
        epsilon, delta : float, optional
            The bound for every (epsilon, delta)-private mechanism; delta in [0, 1).

        Returns
        -------
        float
            0 where (5) says nothing.

        Raises
        ------
        ValueError
            If not exactly one of mu and epsilon is given, or one is outside its range.

        Examples
        --------
        >>> chains = LocalChains([0.5] * 40, 0.1)
        >>> round(1e5 * chains.private_rmse(10_000, epsilon=1.0), 2)
        1.36
        """
        m, d = check.whole("n", n), check.below_one("delta", delta)
        if (mu is None) == (epsilon is None) or (mu is not None and d > 0):
            raise ValueError("give either mu, or epsilon (and delta)")
        if mu is not None:
            size = check.positive("mu", mu) ** 2
            chi = math.sqrt(math.expm1(size)) if size < 700 else math.inf
        else:
            half = check.positive("epsilon", epsilon) / 2
            chi = 2 * math.sinh(half) if half < 700 else math.inf
        low, high = self._gradient
        ends = np.array([self.stay - self.half_width, self.stay + self.half_width])
        largest = self.visit_probabilities * (1 / (ends * (1 - ends) ** 2)).max(axis=0)
        u, _, v = np.linalg.svd(low / np.sqrt(largest))
        c = u @ v / np.sqrt(largest)  # lambda = 1
        trace = float((c * low).sum() - (np.abs(c) * (high - low)).sum())
        g = self.discount * (1 - ends) / (1 - self.discount * ends)
        best, worst = np.cumprod(g[:, ::-1], axis=1)[:, ::-1] / self.discount
        gain = trace - m * d * float((best - worst).sum())
        cost = m * chi * math.sqrt(1 - d) + math.sqrt(self._prior * float((c**2).sum()))
        return self._rmse((max(gain, 0.0) / cost) ** 2)  # (5)

    @property
    def _prior(self) -> float:
        """J."""
        return (math.pi / self.half_width) ** 2

    def _rmse(self, risk: float) -> float:
        return math.sqrt(risk / self.stay.size) * (1 - _ROUNDING)


def mean_bounds(
    convex: Callable[[FloatArray], FloatArray], centre: float, half_width: float
) -> tuple[float, float]:
    """Bounds on the mean of a convex function under the prior cos^2(pi t/2h)/h at centre + t.

    Parameters
    ----------
    convex : callable
        Convex on [centre - half_width, centre + half_width]; that is not checked.
    centre, half_width : float
        half_width > 0.

    Examples
    --------
    >>> low, high = mean_bounds(np.square, 0.0, 1.0)  # 1/3 - 2/pi^2
    >>> low < 1 / 3 - 2 / np.pi**2 < high, round(high - low, 6)
    (True, 4e-06)
    """
    c, h = check.real("centre", centre), check.positive("half_width", half_width)
    t = np.linspace(-h, h, _CELLS + 1)
    angle = np.pi * t / h
    # distribution function, and the integral of t up to t: of (1 + cos(pi t/h))/(2h)
    below = (t / h + np.sin(angle) / np.pi + 1) / 2
    moment = t**2 / (4 * h) + h * (np.cos(angle) + angle * np.sin(angle)) / (2 * np.pi**2)
    mass, first = np.diff(below), np.diff(moment)
    at = first / mass  # mean of t in each cell
    values = convex(c + t)
    width = np.diff(t)
    share = (at - t[:-1]) / width
    chord = values[:-1] * (1 - share) + values[1:] * share
    return float(mass @ convex(c + at)), float(mass @ chord)
