r"""How fast GPOPE converges: the printed statements, and what holds.

xi = x - x*, the distance of x = (theta, w) from the saddle point, moves by (Xie et al., (C.7))

    xi <- (I - beta Q) xi + beta Delta,      Q = [[0, -A^T], [A, C]],                   (1)

Delta being true minus noisy gradient. The paper takes for granted that the spectral norm of
I - beta Q is 1 - beta lambda_min(Q), as for a symmetric Q. This Q is not even normal: for
xi = (theta, 0), |(I - beta Q) xi|^2 = |theta|^2 + beta^2 |A theta|^2, so that no step shortens it.
Lemma 2 and Theorems 2 and 3 are false with it.

**What holds.** Let A be nonsingular and C positive definite. Then the eigenvalues of Q have
positive real parts, and there is one P > 0 with

    P Q + Q^T P = I.                                                                   (2)

Write |xi|_P^2 = xi^T P xi and Lam for the largest eigenvalue of P. If

    E[Delta | xi] = 0,     E[|Delta|^2 | xi] <= S + K |xi|^2,     beta <= 1/(2 Lam (|Q|^2 + K)), (3)

then

    E|xi_{i+1}|_P^2 <= (1 - beta/(2 Lam)) E|xi_i|_P^2 + beta^2 Lam S.                  (4)

Proof: by (2), |(I - beta Q) xi|_P^2 = |xi|_P^2 - beta |xi|^2 + beta^2 |Q xi|_P^2, and
E|Delta|_P^2 <= Lam (S + K |xi|^2); by (3) the sum is at most
|xi|_P^2 - (beta/2) |xi|^2 + beta^2 Lam S, and |xi|^2 >= |xi|_P^2/Lam. For a constant step

    E|xi_{N+1}|_P^2 <= (1 - beta/(2 Lam))^N |xi_1|_P^2 + 2 beta Lam^2 S,               (5)

and for beta_i = 2 Lam eta/(i + i_0), eta > 1, 1 + i_0 >= 4 eta Lam^2 (|Q|^2 + K), by induction

    E|xi_i|_P^2 <= H/(i + i_0),  H = max{(1 + i_0) |xi_1|_P^2, 4 eta^2 Lam^3 S/(eta - 1)}. (6)

The growth K is not zero: a drawn trajectory has Delta = -(Q_i - Q) xi - B_i(x*) - noise, so by
|a + b|^2 <= 2|a|^2 + 2|b|^2

    S = 2 mean |B_i(x*)|^2 + 2n h^2 sigma^2,    K = 2 lambda_max(mean (Q_i - Q)^T (Q_i - Q)). (7)

All this is without clipping, which biases the mean, and about the saddle point of the *data*, since
trajectories are drawn from them again and again.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike
from scipy import special
from scipy.linalg import solve_continuous_lyapunov

from dprl import _validation as check
from dprl._validation import FloatArray
from dprl.off_policy.saddle_point import BidiagonalStatistics, SaddlePoint, Statistics, gradient

# -- as printed -------------------------------------------------------------------------------


def lemma_2_printed(squared: float, beta: float, smallest: float, variance: float) -> float:
    """Right side of (6.6), (1 - beta lambda_min)^2 |xi|^2 + beta^2 (G^2 + c N/m^2). *False.*

    Parameters
    ----------
    squared : float
        E|xi_i|^2 >= 0.
    beta : float
        > 0; the lemma wants beta <= 1/lambda_max(Q).
    smallest : float
        lambda_min(Q) > 0. It is not defined where eigenvalues are complex.
    variance : float
        G^2 + c N/m^2 >= 0.

    Examples
    --------
    >>> Q = np.array([[0.0, -1.0], [1.0, 4.0]])  # A = 1, C = 4
    >>> low, high = np.sort(np.linalg.eigvals(Q).real)
    >>> after = (np.eye(2) - Q / high) @ [1.0, 0.0]
    >>> round(float(after @ after), 4), round(lemma_2_printed(1.0, 1 / high, low, 0.0), 4)
    (1.0718, 0.8616)
    """
    start, step, eigenvalue, spread = _printed(squared, beta, smallest, variance)
    return (1 - step * eigenvalue) ** 2 * start + step**2 * spread


@dataclass(frozen=True)
class TwoTerms:
    """A bound and the two terms that the paper reads in it."""

    #: Term I or III: forgets the start.
    decay: float
    #: Term II or IV: what the noise leaves.
    floor: float

    @property
    def total(self) -> float:
        """The bound."""
        return self.decay + self.floor


def theorem_2_printed(
    squared: float, eta: float, k: float, iterations: int, smallest: float, variance: float
) -> TwoTerms:
    """(6.8), terms I and II, for beta = eta/N^k. *False.*

    squared, smallest and variance as in :func:`lemma_2_printed`, at xi_1; eta > 0 and k in (0, 1),
    with beta below 1/lambda_min(Q), the paper's condition; iterations N >= 1.

    >>> terms = theorem_2_printed(1.0, 0.5, 0.5, 100, smallest=1.0, variance=1.0)
    >>> round(terms.decay, 6), round(terms.floor, 4)
    (3.4e-05, 0.0256)
    """
    start, size, eigenvalue, spread = _printed(squared, eta, smallest, variance)
    if not 0 < check.real("k", k) < 1:
        raise ValueError(f"k must lie in (0, 1), got {k!r}")
    number = check.whole("iterations", iterations)
    beta = size / number**k
    if beta * eigenvalue >= 1:
        raise ValueError(f"eta/N^k must be below 1/lambda_min = {1 / eigenvalue:g}, got {beta:g}")
    floor = beta * spread / (2 * eigenvalue - beta * eigenvalue**2)
    left = math.exp(2 * number * math.log1p(-beta * eigenvalue))  # (1 - beta lambda)^{2N}
    return TwoTerms(left * (start - floor), floor)


def theorem_3_printed(
    squared: float, eta: float, iterations: int, smallest: float, variance: float, noise: float
) -> TwoTerms:
    """(6.13), terms III and IV, for beta_i = eta/(lambda_min i). *False.*

    squared, smallest and iterations as in :func:`theorem_2_printed`; eta > 1; variance G^2 >= 0
    without the noise; noise c N/m^2 >= 0, the noise in one step.

    >>> terms = theorem_3_printed(1.0, 2.0, 100, smallest=1.0, variance=1.0, noise=0.5)
    >>> terms.decay, terms.floor
    (0.04, 0.02)
    """
    start, size, eigenvalue, spread = _printed(squared, eta, smallest, variance)
    if size <= 1:
        raise ValueError(f"eta must exceed 1, got {eta!r}")
    number, added = check.whole("iterations", iterations), check.not_negative("noise", noise)
    factor = size**2 / ((size - 1) * eigenvalue**2)
    return TwoTerms(max(start, factor * spread) / number, factor * added / number)


def noise_constant_printed(n: int, clip: float, sigma: float, m: int, iterations: int) -> float:
    """c = m^2 |h^2 sigma^2 I|_F^2 / N = 2n m^2 h^4 sigma^4 / N, as section 6 defines it.

    The squared Frobenius norm of a covariance is no variance, and with the sigma of Theorem 1 it
    still depends on N/m^2. :func:`noise_constant` has what section 6 needs.

    n features (the gradient has 2n entries), clip h > 0, sigma >= 0 in units of h, trajectories m
    and iterations N.

    >>> noise_constant_printed(1, 2.0, 1.0, 10, 10), noise_constant(1, 2.0, 1.0, 10, 10)
    (320.0, 80.0)
    """
    return noise_constant(n, clip, sigma, m, iterations) * (clip * sigma) ** 2


def noise_constant(n: int, clip: float, sigma: float, m: int, iterations: int) -> float:
    """c = m^2 E|h sigma zeta|^2 / N = 2n m^2 h^2 sigma^2 / N: trace in place of Frobenius norm.

    Parameters as :func:`noise_constant_printed`.
    """
    d, h = 2 * check.whole("n", n), check.positive("clip", clip)
    size, s = check.whole("m", m), check.not_negative("sigma", sigma)
    return size**2 * d * h**2 * s**2 / check.whole("iterations", iterations)


def equation_6_1_printed(n: int, c2: float, epsilon: float, delta: float) -> float:
    """Right side of (6.1), 2n c_2^2 log(1/delta)/epsilon^2; h is missing.

    n features, c_2 > 0 the constant of Theorem 1, epsilon > 0, delta in (0, 1).
    """
    d = 2 * check.whole("n", n)
    constant, eps = check.positive("c2", c2), check.positive("epsilon", epsilon)
    return d * constant**2 * math.log(1 / check.open_unit("delta", delta)) / eps**2


def equation_6_1(n: int, clip: float, c2: float, epsilon: float, delta: float) -> float:
    """(6.1) with its h^2: c of :func:`noise_constant` at sigma = c_2 sqrt(N log(1/delta))/(m eps).

    Parameters as :func:`equation_6_1_printed`; ``clip`` is h > 0.

    >>> m, N, eps, delta = 100, 400, 0.5, 1e-5
    >>> sigma = 4.0 * np.sqrt(N * np.log(1 / delta)) / (m * eps)
    >>> c = equation_6_1(3, 0.1, 4.0, eps, delta)
    >>> bool(np.isclose(c, noise_constant(3, 0.1, sigma, m, N)))
    True
    """
    return check.positive("clip", clip) ** 2 * equation_6_1_printed(n, c2, epsilon, delta)


def equation_6_15_printed(variance: float, length: int) -> float:
    """(6.15), G^2/tau: E|mean of tau one-step errors|^2 if they were uncorrelated.

    ``variance`` is G^2 >= 0 of one transition, ``length`` tau >= 1.
    """
    return check.not_negative("variance", variance) / check.whole("length", length)


def equation_6_15(variance: float, length: int, correlation: float) -> float:
    """E|mean|^2 of tau errors whose correlation at distance k is correlation^k.

    So it is for a function of a two-state Markov chain, whose second eigenvalue is the
    correlation, in [-1, 1]. G^2/tau at 0, G^2 at 1, where a longer trajectory says nothing new.
    Other parameters as :func:`equation_6_15_printed`.

    >>> [round(equation_6_15(1.0, 10, r), 4) for r in (0.0, 0.5, 1.0)]
    [0.1, 0.26, 1.0]
    """
    spread, tau = check.not_negative("variance", variance), check.whole("length", length)
    r = check.real("correlation", correlation)
    if not -1 <= r <= 1:
        raise ValueError(f"correlation must lie in [-1, 1], got {correlation!r}")
    k = np.arange(1, tau)
    return float(spread * (tau + 2 * ((tau - k) * r**k).sum()) / tau**2)


# -- what holds -------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Contraction:
    """The norm in which GPOPE contracts, equation (2), and the bounds (3) to (6) in it.

    Parameters
    ----------
    q : array_like, shape (d, d)
        Q, or any matrix whose eigenvalues all have positive real parts; refused where one has
        not, as if A is singular.
    growth : float
        K >= 0 of (3).

    Attributes
    ----------
    p : ndarray, shape (d, d)
        P of (2).

    Examples
    --------
    >>> c = Contraction([[0.0, -1.0], [1.0, 4.0]])
    >>> c.p.round(4).tolist(), round(c.largest, 4), round(c.largest_step, 5)
    ([[2.25, 0.5], [0.5, 0.25]], 2.368, 0.01177)
    """

    q: FloatArray
    growth: float = 0.0
    p: FloatArray = field(init=False)

    def __post_init__(self) -> None:
        q = check.finite_array("q", self.q, ndim=2).copy()
        if q.shape[0] != q.shape[1] or q.size == 0:
            raise ValueError(f"q must be a square matrix, got shape {q.shape}")
        smallest = float(np.linalg.eigvals(q).real.min())
        if smallest <= 1e-12 * float(np.linalg.norm(q, 2)):
            raise ValueError(
                "all eigenvalues of q must have positive real parts, "
                f"the smallest real part is {smallest:g}"
            )
        p = solve_continuous_lyapunov(q.T, np.eye(len(q)))
        p = (p + p.T) / 2
        object.__setattr__(self, "q", check.frozen(q))
        object.__setattr__(self, "growth", check.not_negative("growth", self.growth))
        object.__setattr__(self, "p", check.frozen(p))

    @cached_property
    def largest(self) -> float:
        """Lam, the largest eigenvalue of P."""
        return float(np.linalg.eigvalsh(self.p)[-1])

    @cached_property
    def smallest(self) -> float:
        """The smallest eigenvalue of P: |xi|^2 is at most |xi|_P^2 over it."""
        return float(np.linalg.eigvalsh(self.p)[0])

    @cached_property
    def largest_step(self) -> float:
        """1/(2 Lam (|Q|^2 + K)) of (3)."""
        return float(1 / (2 * self.largest * (np.linalg.norm(self.q, 2) ** 2 + self.growth)))

    def squared_norm(self, xi: ArrayLike) -> FloatArray:
        """|xi|_P^2; (..., d) -> (...)."""
        x = check.finite_array("xi", xi)
        return np.asarray(np.einsum("...i,ij,...j->...", x, self.p, x))

    def one_step(self, squared: float, beta: float, spread: float) -> float:
        """(4): E|xi_{i+1}|_P^2 from E|xi_i|_P^2 >= 0, beta in (0, ``largest_step``] and S >= 0."""
        start, step, s = self._arguments(squared, beta, spread)
        return (1 - step / (2 * self.largest)) * start + step**2 * self.largest * s

    def constant_step(
        self, squared: float, beta: float, iterations: int, spread: float
    ) -> TwoTerms:
        """(5): what takes the place of terms I and II after N >= 0 iterations."""
        start, step, s = self._arguments(squared, beta, spread)
        number = check.whole("iterations", iterations, minimum=0)
        shrinkage = min(step / (2 * self.largest), 1.0)  # at most 1, but for rounding
        decay = float(np.exp(special.xlog1py(number, -shrinkage))) * start
        return TwoTerms(decay, 2 * step * self.largest**2 * s)

    def schedule(self, eta: float) -> tuple[float, float]:
        """2 Lam eta and the least i_0 >= 0 of (6), for beta_i = 2 Lam eta/(i + i_0); eta > 1."""
        size = check.positive("eta", eta)
        if size <= 1:
            raise ValueError(f"eta must exceed 1, got {eta!r}")
        numerator = 2 * self.largest * size
        return numerator, max(0.0, numerator / self.largest_step - 1)

    def diminishing_step(
        self, squared: float, eta: float, iterations: int, spread: float
    ) -> TwoTerms:
        """(6) after N >= 0 iterations of :meth:`schedule`, split as terms III and IV.

        ``squared`` is |xi_1|_P^2 >= 0, ``spread`` S >= 0. The larger of the two in H counts:
        decay or floor is 0.
        """
        _, offset = self.schedule(eta)
        start, s = check.not_negative("squared", squared), check.not_negative("spread", spread)
        number = check.whole("iterations", iterations, minimum=0)
        first = (1 + offset) * start
        second = 4 * eta**2 * self.largest**3 * s / (eta - 1)
        at = number + 1 + offset
        return TwoTerms(first / at, 0.0) if first >= second else TwoTerms(0.0, second / at)

    def _arguments(self, squared: float, beta: float, spread: float) -> tuple[float, float, float]:
        step = check.positive("beta", beta)
        if step > self.largest_step * (1 + 1e-12):
            raise ValueError(f"beta must be at most {self.largest_step:g}, got {beta!r}")
        return check.not_negative("squared", squared), step, check.not_negative("spread", spread)


@dataclass(frozen=True)
class GradientSpread:
    """How the gradients of single trajectories differ from their mean. *Not private.*"""

    #: mean |B_i(x*)|^2.
    at_solution: float
    #: lambda_max of the mean of (Q_i - Q)^T (Q_i - Q); zero if all trajectories have the same
    #: A_i and C_i, and else the errors are not bounded uniformly: Assumption 1 fails.
    growth: float

    def constants(self, n: int, clip: float = 1.0, sigma: float = 0.0) -> tuple[float, float]:
        """S and K of (7)."""
        d, h = 2 * check.whole("n", n), check.positive("clip", clip)
        noise = d * (h * check.not_negative("sigma", sigma)) ** 2
        return 2 * self.at_solution + noise, 2 * self.growth


def gradient_spread(statistics: Statistics | BidiagonalStatistics) -> GradientSpread:
    """Both constants of (7) without the noise, for the data's own saddle point. *Not private.*

    m trajectories, whose mean A must be nonsingular. O(m n^3) time.

    >>> data = Statistics([[[1.0]], [[3.0]]], [[1.0], [4.0]], [[[1.0]], [[1.0]]])
    >>> gradient_spread(data)  # x* = (5/4, 0)
    GradientSpread(at_solution=0.0625, growth=1.0)
    """
    if isinstance(statistics, BidiagonalStatistics):
        statistics = statistics.dense()
    check.instance("statistics", statistics, Statistics)
    a, c = (np.asarray(x, dtype=np.float64) for x in (statistics.a, statistics.c))
    b = np.asarray(statistics.b, dtype=np.float64)
    theta, w = SaddlePoint(*statistics.mean()).solution()
    at_solution = gradient(theta, w, a, b, c)
    da, dc = a - a.mean(axis=0), c - c.mean(axis=0)
    # (Q_i - Q)^T (Q_i - Q) in blocks
    upper = np.einsum("kji,kjl->il", da, da)
    cross = np.einsum("kji,kjl->il", da, dc)
    lower = np.einsum("kij,klj->il", da, da) + np.einsum("kji,kjl->il", dc, dc)
    mean = np.block([[upper, cross], [cross.T, lower]]) / len(a)
    return GradientSpread(
        float((at_solution**2).sum(axis=1).mean()), max(0.0, float(np.linalg.eigvalsh(mean)[-1]))
    )


# -- counterexamples --------------------------------------------------------------------------


def without_noise(q: ArrayLike, start: ArrayLike, steps: ArrayLike) -> FloatArray:
    """|xi|^2 at the start and after each step of (1) with Delta = 0; shape (N + 1,).

    What refutes Lemma 2 and Theorems 2 and 3 needs no noise: they must hold for G = c = 0.

    Parameters
    ----------
    q : array_like, shape (d, d)
        Q.
    start : array_like, shape (d,)
        xi_1.
    steps : array_like, shape (N,)
        beta_1 .. beta_N.

    Examples
    --------
    >>> without_noise([[0.0, -1.0], [1.0, 4.0]], [1.0, 0.0], [0.1, 0.1]).round(4).tolist()
    [1.0, 1.01, 1.0057]
    """
    matrix = check.finite_array("q", q, ndim=2)
    xi = check.finite_array("start", start, ndim=1)
    sizes = check.finite_array("steps", steps, ndim=1)
    if matrix.shape != (xi.size, xi.size):
        raise ValueError(f"q must have shape {(xi.size, xi.size)}, got {matrix.shape}")
    out = [float(xi @ xi)]
    for beta in sizes:
        xi = xi - beta * (matrix @ xi)
        out.append(float(xi @ xi))
    return np.array(out)


def scalar_matrix(a: float = 1.0, c: float = 4.0) -> FloatArray:
    """Q = [[0, -a], [a, c]] of one feature; real eigenvalues for c >= 2|a|.

    With the defaults it refutes Lemma 2 and Theorems 2 and 3.
    """
    return np.array([[0.0, -check.real("a", a)], [check.real("a", a), check.positive("c", c)]])


def _printed(
    squared: float, step: float, smallest: float, variance: float
) -> tuple[float, float, float, float]:
    return (
        check.not_negative("squared", squared),
        check.positive("step", step),
        check.positive("smallest", smallest),
        check.not_negative("variance", variance),
    )
