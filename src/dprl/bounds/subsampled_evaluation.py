r"""What sub-sampling does to LSW and DP-LSW: the bias of missed states, and the law of the noise.

**Bias.** The average return F_{X,s} = (1/|X_s|) sum_{x in X_s} F_{x,s} is a ratio of two linear
queries, and not a linear query. A sub-sample of k of the n trajectories misses state s with
probability

    C(n - |X_s|, k) / C(n, k),                                                         (1)

and then its average return is 0. If it does not miss s, its visits to s are, given their number, a
uniform sub-sample of X_s, so their mean return has the mean F_{X,s}. Hence

    E[F_{x~,s}] = F_{X,s} (1 - C(n - |X_s|, k) / C(n, k)),                             (2)

and over independent trajectories, each of which visits s with probability p_s,
E[F_{x~,s}] = V(s) (1 - (1 - p_s)^k). LSW is a fixed linear map of these averages.

**Noise.** Tabular features, N states, w = 1, returns in [0, F], and all visit counts equal to the
number of trajectories. With alpha, beta of Lemma 3.1 the noise of plain DP-LSW is exactly

    sigma_n = alpha F sqrt(N) max{1/n, e^{-(n-1) beta/2}},                              (3)

a plateau until n is well above 2/beta. The mean of m releases on sub-samples of size k, each with
base guarantee (eps_b, delta_b) and constants alpha_b, beta_b, has

    s = alpha_b F sqrt(N) max{1/k, e^{-(k-1) beta_b/2}} / sqrt(m).                      (4)

Whatever m and k, the accounting allows no more than k sqrt(m) eps_b <= n z:

    printed (4.9)    z = eps*/sqrt(8 L),                 L = ln(1/delta'),
    closed form      z^2 + sqrt(2 L) z = eps*,                                         (5)

(e^{eps_b} - 1 is n z/(k sqrt(m)) divided by e^{eps_b} in the first case, and
n z/(k sqrt(m)) in the second), so

    s >= 5 sqrt(2 ln(2/delta_b)) F sqrt(N) / (n z),                                    (6)

and for k = 1 the ratio of the two sides tends to 1 as m grows. If mk >= n, delta_b is at most
delta* - delta', which can stand in its place: then (6) depends on the promise and n only. By (3),

    sigma_n = (alpha F sqrt(N)/n) max{1, n e^{-(n-1) beta/2}},

and (6) is c alpha F sqrt(N)/n with

    c = sqrt(ln(2/delta_b) / ln(2/delta*)) eps* / z.                                   (7)

For mk >= n and delta' <= 1/2, c >= eps*/z >= sqrt(2 L) > 1. Then (3) is above (6) exactly where
n e^{-(n-1) beta/2} > c, that is (n - 1) beta < 2 ln(n/c): between two crossover points, given by
Lambert's function.

At k = 1 a base run sees one trajectory, and the mean over many sub-samples is the plain average
plus Gaussian noise of standard deviation s. The average has global sensitivity F sqrt(N)/n, so
one Gaussian release needs

    F sqrt(N) / (n mu),   mu = mu(eps*, delta*) of the analytic Gaussian mechanism,     (8)

without any sub-sampling: less than (6) by the factor 5 sqrt(2 ln(2/delta_b)) mu/z, whatever n.

**DP-LSL** has no plateau. Its local bound (c_l sqrt(sum_s rho_s |X_s|) + q ||rho||_2)^2, with c_l
the coefficient of :func:`~dprl.private_evaluation.lsl_coefficient`, grows with the visits and is
largest where all states are visited by all trajectories; there it depends on lambda and the
number of trajectories through their ratio only. So psi of plain DP-LSL is at most that value, and
psi of a base run is at least the local bound of its own counts. With r = lambda/size the same for
both, the means over independent trajectories satisfy

    s >= c sqrt(p_bar) sigma,     p_bar = sum_s rho_s p_s / sum_s rho_s,               (9)

c of (7): with S = sum_s rho_s |X_s|/k in [0, sum rho], E[S] = p_bar sum rho and
E[sqrt S] >= E[S]/sqrt(sum rho), so the mean of (a sqrt S + b)^2 is at least p_bar times its
largest value; alpha_b/(k sqrt(m)) >= c alpha/n as before; and the printed factor
1/(lambda - ||Phi||^2 ||rho||_inf) grows by n/k at least.
"""

from __future__ import annotations

import math
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import lambertw

from dprl import _validation as check
from dprl._validation import FloatArray
from dprl.evaluation import regression_weights
from dprl.features import feature_matrix, weighted_pseudo_inverse
from dprl.privacy import GaussianSmoothing
from dprl.privacy.gaussian import analytic_gaussian_sigma

#: The accountings for which the limit (5) is proved.
CLOSED_ACCOUNTING = ("printed", "closed-form")

ClosedAccounting = Literal["printed", "closed-form"]


def missed_given_data(n: int, visits: ArrayLike, size: int) -> FloatArray:
    """Probability (1) that a sub-sample holds none of the visits to a state. *Not private.*

    Parameters
    ----------
    n, size : int
        Number of trajectories, and k in 1 .. n.
    visits : array_like of int
        |X_s|, in 0 .. n; any shape, that of the result. *Not private* if they come from data.

    Notes
    -----
    (1) is the product of (1 - a/(n - i)) over i < b, where a and b are the larger and the smaller
    of k and |X_s|. The logarithms are summed, so nothing cancels. O(b) for each state.

    Examples
    --------
    >>> missed_given_data(5, [0, 1, 2, 4], 2).round(10).tolist()  # 1, 3/5, 3/10, 0
    [1.0, 0.6, 0.3, 0.0]
    """
    count, k = check.whole("n", n), check.whole("size", size)
    if k > count:
        raise ValueError(f"size must not exceed the {count} trajectories, got {k}")
    raw = check.integers("visits", visits)
    if raw.size and (raw.min() < 0 or raw.max() > count):
        raise ValueError(f"visits must lie in 0 .. {count}, the number of trajectories")
    distinct, where = np.unique(raw, return_inverse=True)
    out = np.array([_none_of(count, int(v), k) for v in distinct])
    return np.asarray(out[where].reshape(raw.shape), dtype=np.float64)


def _none_of(n: int, visits: int, size: int) -> float:
    few, many = min(visits, size), max(visits, size)
    if few + many > n:
        return 0.0
    left = n - np.arange(few, dtype=np.float64)
    return float(np.exp(np.log1p(-many / left).sum()))


def missed(visit_probabilities: ArrayLike, size: int) -> FloatArray:
    """(1 - p_s)^k, the probability that k >= 1 independent trajectories never visit a state.

    >>> missed([0.5, 1.0], 3).tolist()  # p_s in [0, 1]; any shape
    [0.125, 0.0]
    """
    p = check.unit_array("visit_probabilities", visit_probabilities)
    k = check.whole("size", size)
    small = np.exp(k * np.log1p(-np.minimum(p, 0.5)))  # 1 - p would round a small p away
    return np.where(p < 0.5, small, (1 - p) ** k)


def subsampling_bias(
    averages: ArrayLike,
    missing: ArrayLike,
    features: ArrayLike,
    weights: ArrayLike,
    *,
    allow_rank_deficient: bool = False,
) -> FloatArray:
    """Mean of LSW's values on a sub-sample minus those on all the data: from (2), exact.

    -Phi (Gamma^{1/2} Phi)^+ Gamma^{1/2} (missing F). For tabular features -missing F.

    Parameters
    ----------
    averages, missing : array_like, shape (N,)
        F_X for a given batch (*not private*), or V for independent trajectories;
        :func:`missed_given_data`, or :func:`missed`.
    features, weights, allow_rank_deficient
        Phi and w >= 0, as in :func:`~dprl.evaluation.lsw`.

    Returns
    -------
    ndarray, shape (N,)

    Examples
    --------
    >>> from dprl.features import tabular
    >>> subsampling_bias([0.4, 0.8], missed([0.5, 1.0], 2), tabular(2), [1, 1]).tolist()
    [-0.1, 0.0]
    """
    f = check.finite_array("averages", averages, ndim=1)
    lost = check.finite_array("missing", missing, ndim=1)
    if lost.shape != f.shape or (lost.size and (lost.min() < 0 or lost.max() > 1)):
        raise ValueError(f"missing must be one probability for each of {f.size} states")
    phi = feature_matrix(features, f.size)
    w = check.weight_vector("weights", weights, f.size)
    inverse = weighted_pseudo_inverse(phi, w, allow_rank_deficient=allow_rank_deficient)
    return -phi @ (inverse @ (np.sqrt(w) * lost * f))


def plain_noise(
    n: ArrayLike, n_states: int, epsilon: float, delta: float, *, f_max: float = 1.0
) -> FloatArray:
    """Noise (3) of plain tabular DP-LSW when every trajectory visits every state.

    Parameters
    ----------
    n : array_like
        Number of trajectories, >= 1; any shape.
    n_states : int
        N, also the dimension d.
    epsilon, delta : float
        The guarantee; epsilon in (0, 5].
    f_max : float
        F > 0.

    Examples
    --------
    >>> plain_noise([1_000, 100_000], 40, 0.1, 0.1).round(4).tolist()
    [578.9377, 0.0077]
    """
    count = check.array_from("n", n, 1)
    constants = GaussianSmoothing(epsilon, delta, check.whole("n_states", n_states))
    top = check.positive("f_max", f_max)
    shape = np.maximum(1 / count, np.exp(-(count - 1) * constants.beta / 2))
    return constants.alpha * top * math.sqrt(n_states) * shape


def subsampled_noise(
    subsamples: ArrayLike,
    size: ArrayLike,
    n_states: int,
    base_epsilon: float,
    base_delta: float,
    *,
    f_max: float = 1.0,
) -> FloatArray:
    """Noise (4) of the mean of m releases, when every trajectory visits every state.

    n_states, f_max and the guarantee of each base run as in :func:`plain_noise`; m >= 1 sub-samples
    of size k >= 1, which broadcast.

    >>> float(subsampled_noise(4096, 1, 40, 1.0, 1e-5).round(4))
    2.4413
    """
    m = check.array_from("subsamples", subsamples, 1)
    return plain_noise(size, n_states, base_epsilon, base_delta, f_max=f_max) / np.sqrt(m)


def calibration_limit(
    epsilon: float, delta: float, *, accounting: ClosedAccounting = "printed"
) -> float:
    """z of (5) at delta' = delta*/2: k sqrt(m) times the base epsilon is at most n z.

    The promise is eps* > 0 and delta* in (0, 1); the accounting "printed",
    :func:`~dprl.privacy.subsampling.base_guarantee_printed`, or "closed-form",
    :func:`~dprl.privacy.subsampling.base_guarantee`.

    >>> round(calibration_limit(1.0, 1e-5), 4)
    0.1012
    >>> round(calibration_limit(1.0, 1e-5, accounting="closed-form"), 4)
    0.1947
    """
    eps, tail = check.positive("epsilon", epsilon), check.open_unit("delta", delta)
    if accounting not in CLOSED_ACCOUNTING:
        raise ValueError(f"accounting must be one of {CLOSED_ACCOUNTING}, got {accounting!r}")
    big_l = -math.log(tail / 2)
    if accounting == "printed":
        return eps / math.sqrt(8 * big_l)
    return 2 * eps / (math.sqrt(2 * big_l) + math.sqrt(2 * big_l + 4 * eps))


def least_subsampled_noise(
    n: ArrayLike,
    n_states: int,
    epsilon: float,
    delta: float,
    *,
    base_delta: float | None = None,
    f_max: float = 1.0,
    accounting: ClosedAccounting = "printed",
) -> FloatArray:
    """The lower bound (6) on the noise of sub-sample-and-average, for every m and k.

    Parameters
    ----------
    n, n_states, f_max
        As in :func:`plain_noise`.
    epsilon, delta : float
        The promise of the whole.
    base_delta : float, optional
        delta_b in (0, 1), or an upper bound on it; default delta*/2, for all m k >= n.
    accounting
        As in :func:`calibration_limit`.

    Examples
    --------
    >>> float(least_subsampled_noise(10_000, 40, 0.1, 0.1).round(4))
    0.4205
    """
    count = check.array_from("n", n, 1)
    z = calibration_limit(epsilon, delta, accounting=accounting)
    tail = _base_delta(base_delta, delta)
    top = check.positive("f_max", f_max) * math.sqrt(check.whole("n_states", n_states))
    return 5 * math.sqrt(2 * math.log(2 / tail)) * top / (count * z)


def direct_noise(
    n: int, n_states: int, epsilon: float, delta: float, *, f_max: float = 1.0
) -> float:
    """Noise (8) of the average over n trajectories, released once.

    The average of F_x over *all* trajectories, 0 where x does not visit s; it estimates V(s) only
    if every trajectory visits s. Neighbours replace one trajectory.

    >>> round(direct_noise(10_000, 40, 0.1, 0.1), 5)
    0.0018
    """
    top = check.positive("f_max", f_max) * math.sqrt(check.whole("n_states", n_states))
    return analytic_gaussian_sigma(top / check.whole("n", n), epsilon, delta)


def crossover_constant(
    epsilon: float,
    delta: float,
    *,
    base_delta: float | None = None,
    accounting: ClosedAccounting = "printed",
) -> float:
    """c of (7): how much more noise than alpha F sqrt(N)/n sub-sampling needs.

    Parameters as in :func:`least_subsampled_noise`.

    >>> round(crossover_constant(0.1, 0.1), 3)
    5.432
    """
    tail, base = check.open_unit("delta", delta), _base_delta(base_delta, delta)
    z = calibration_limit(epsilon, delta, accounting=accounting)
    return math.sqrt(math.log(2 / base) / math.log(2 / tail)) * epsilon / z


def least_lsl_ratio(
    epsilon: float,
    delta: float,
    *,
    visit_probabilities: ArrayLike,
    weights: ArrayLike,
    base_delta: float | None = None,
    accounting: ClosedAccounting = "printed",
) -> float:
    """Sub-sampled DP-LSL has at least this many times the noise of plain DP-LSL, equation (9).

    For every n, m, k <= n (with m k >= n if base_delta is left out), Phi and lambda_k; plain with
    lambda_n = lambda_k n/k. Root mean square over independent trajectories on the left, any batch
    of n trajectories on the right; the printed algorithm and the improved one. Says nothing
    where it is below 1.

    visit_probabilities p_s in [0, 1] and weights rho in [0, 1], not all zero, both of shape (N,);
    the rest as in :func:`least_subsampled_noise`.

    >>> p = [s / 40 for s in range(1, 41)]
    >>> ratio = least_lsl_ratio(1.0, 1e-5, visit_probabilities=p, weights=[1.0] * 40)
    >>> round(ratio, 2)
    7.27
    """
    p = check.finite_array("visit_probabilities", visit_probabilities, ndim=1)
    if p.size == 0 or p.min() < 0 or p.max() > 1:
        raise ValueError("visit_probabilities must be one number in [0, 1] for each state")
    rho = regression_weights(weights, p.size)
    c = crossover_constant(epsilon, delta, base_delta=base_delta, accounting=accounting)
    return c * math.sqrt(float(rho @ p / rho.sum()))


def crossover_points(beta: ArrayLike, constant: ArrayLike) -> tuple[FloatArray, FloatArray]:
    """Both solutions of n e^{-(n-1) beta/2} = c, the smaller first; NaN where there is none.

    n = -(2/beta) W(-(c beta/2) e^{-beta/2}) with the two real branches of Lambert's function.
    Sub-sampling can have less noise than plain DP-LSW only between them. beta and c are positive
    and broadcast.

    >>> low, high = crossover_points(5.8e-4, 6.0)
    >>> float(low.round(2)), int(high.round(-2))
    (6.01, 29300)
    """
    b, c = np.broadcast_arrays(
        check.positive_array("beta", beta), check.positive_array("constant", constant)
    )
    argument = -(c * b / 2) * np.exp(-b / 2)
    real = argument >= -math.exp(-1)
    inside = np.where(real, argument, -0.1)
    low, high = (-(2 / b) * np.real(lambertw(inside, branch)) for branch in (0, -1))
    return np.where(real, low, np.nan), np.where(real, high, np.nan)


def crossover(
    n_states: int, epsilon: float, delta: float, *, accounting: ClosedAccounting = "printed"
) -> tuple[float, float]:
    """Between which n the law (7) lets sub-sampling have less noise than plain DP-LSW.

    Outside, no m and k with m k >= n do. Inside, some do if m may be large enough, but near the
    ends none may: (6) is approached and not attained. NaN if plain always has less noise.

    n_states N, also the dimension; the promise epsilon in (0, 5] and delta; accounting as in
    :func:`calibration_limit`.

    >>> low, high = crossover(40, 0.1, 0.1)
    >>> round(low, 1), int(round(high, -2))
    (5.4, 29600)
    """
    constants = GaussianSmoothing(epsilon, delta, check.whole("n_states", n_states))
    c = crossover_constant(epsilon, delta, accounting=accounting)
    low, high = crossover_points(constants.beta, c)
    return float(low), float(high)


def _base_delta(base_delta: float | None, delta: float) -> float:
    """delta_b as given, or the largest with m k >= n: delta* - delta' = delta*/2."""
    return delta / 2 if base_delta is None else check.open_unit("base_delta", base_delta)
