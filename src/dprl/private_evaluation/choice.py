r"""Which evaluator? The error to be expected of each, in closed form, before any data are seen.

With mu-Gaussian differential privacy, z = 1/mu, the error of every mechanism below is, to first
order and as a root mean square over the N states,

    error^2 = (c z/n)^2 + b^2/n,                                                   (1)

noise and sampling, from some least n/z on. Below it, the mechanism does not work, or its noise
exceeds a tenth of what there is to learn. With p_s the probability that a trajectory visits state
s, tau_s the standard deviation of a return from it, w the width of the range of the returns, and s
the share of mu^2 that the last round has:

================================  ======================================  =======================
mechanism                         c                                       least n/z
================================  ======================================  =======================
counts and sums, equal noise      w sqrt(sum 1/p^2)                       C sqrt(N)/p_min
counts and sums, noise by visits  w sum(1/p)/sqrt(N)                      C sqrt(sum(1/p)/p_min)
RC without structure              4 sqrt(sum(tau^2) sum(1/p)/(s N))       2 sqrt(N/s_0)/p_min
RC with a working model           2 tr(M^{1/2})/sqrt(s N)                 10 c_1/(w sqrt(s_0))
private LSTD with d features      4 r sqrt(d/s)                           see below
================================  ======================================  =======================

with b^2 = mean tau^2/p, except that for RC with a working model b^2 = tr(M)/N, M the second moment
of the residuals u at the true values. C = 4/sqrt(3): the noise of a count is to be at most half the
count. For RC without structure the same, of the counts that are released first
with share s_0; for RC with a working model the first estimate, whose c is c_1, is to be within a
tenth of w.

*Radii.* The noise of a round is 2 R z/(n sqrt(s)) S^{1/2}. For RC with a working model R is taken
as the root mean square of ||S^{-1/2} u||, whose shape makes the lengths alike; where there is no
shape, as twice it, since a normal variable lies within two standard deviations in 95 % of cases.

*M* of RC with temporal differences is G diag(v_s/D_s) G', with G = (I - gamma P)^{-1}, D_s the
expected number of visits and v_s the variance of r + gamma V(s') - V(s), as these differences are
uncorrelated; b is the asymptotic error of LSTD. For returns along a chain, M_st =
V_s Var_t/(V_t p_t), s before t, as F_s is a discount times F_t that does not depend on it.

*Features.* The error is the root of the MSPBE, in units of rewards; r is the root mean square of
the whitened residual ||W'(b_i - A_i theta)|| of a trajectory, b = r. The noise of the matrix has a
norm of about 2 sigma sqrt(d), which is to be at most 1 - gamma, the least singular value
of the whitened A where one feature is constant; its radius is taken to be the number of features,
d, the largest that whitened matrices have on average, or what the user knows. And below
``_FEWEST`` there is no radius to be found.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from dprl import _validation as check
from dprl._validation import FloatArray
from dprl.mdp import Chain, MarkovRewardProcess, reward_process
from dprl.privacy import analytic_gaussian_sigma
from dprl.private_evaluation.private_lstd import RADII, LSTDRounds
from dprl.private_evaluation.recentre_shape_clip import RoundSettings, lstd_inverse
from dprl.private_evaluation.structure_free import SHARES
from dprl.private_evaluation.working_model import reachable

_ROUNDS = LSTDRounds()
#: Least n/z at which private LSTD finds its radii.
_FEWEST = 8 * math.sqrt(int(math.log2(RADII.size)) * _ROUNDS.rounds * _ROUNDS.total / _ROUNDS.radii)


@dataclass(frozen=True)
class Forecast:
    """Equation (1) for one mechanism.

    Attributes
    ----------
    mechanism : str
    noise : float
        c.
    sampling : float
        b.
    least : float
        n/z from which on (1) is to be trusted and the noise is at most a tenth of the range.
    """

    mechanism: str
    noise: float
    sampling: float
    least: float

    def error(self, n: float, z: float) -> float:
        """The root of (1)."""
        return math.hypot(self.noise * z / n, self.sampling / math.sqrt(n))

    def n_where_noise_is_sampling(self, z: float) -> float:
        """n = (c z/b)^2, from which on privacy costs less than a finite sample does."""
        return (self.noise * z / self.sampling) ** 2 if self.sampling else math.inf


@dataclass(frozen=True, eq=False)
class States:
    """On policy, N states, no model.

    Attributes
    ----------
    visits : array_like, shape (N,)
        p, in (0, 1]; a guess will do, unless ``visits_known``.
    spread : array_like, shape () or (N,)
        tau, a public guess; half the width is the most there can be.
    width : float
        w > 0.
    visits_known : bool
        Whether p is public, so that noise can follow it.
    """

    visits: ArrayLike
    spread: ArrayLike
    width: float = 1.0
    visits_known: bool = False


@dataclass(frozen=True, eq=False)
class Model:
    """On policy, with a working model of the process.

    Attributes
    ----------
    process : Chain or MarkovRewardProcess
        What the working model is expected to be once it is fitted.
    width : float
        w > 0.
    markov : bool
        Whether the process is trusted to be Markov, so that temporal differences can be used.
        Otherwise returns are, with closed formulas for chains only.
    """

    process: Chain | MarkovRewardProcess
    width: float = 1.0
    markov: bool = True


@dataclass(frozen=True)
class Features:
    """On or off policy, d features, one of them constant; for a table one for each state.

    Attributes
    ----------
    dimension : int
        d.
    residual : float
        r > 0, a public guess; importance ratios enlarge it.
    discount : float
        gamma in [0, 1).
    width : float
        Root of the MSPBE of theta = 0, a public guess.
    matrix : float, optional
        Root mean square of ||W' A_i W||; default d.
    """

    dimension: int
    residual: float
    discount: float
    width: float
    matrix: float | None = None


@dataclass(frozen=True)
class Choice:
    """The mechanism of least expected error, or None where none is useful.

    Attributes
    ----------
    best : Forecast or None
    error : float
        Expected, by (1); infinite if there is none.
    n_over_z : float
    needed : float
        The n/z from which on the first mechanism becomes useful.
    """

    best: Forecast | None
    error: float
    n_over_z: float
    needed: float


def choose_evaluator(
    problem: States | Model | Features, n: int, *, epsilon: float, delta: float
) -> Choice:
    """The mechanism to use on n trajectories; neighbours replace one. No data are read.

    Parameters
    ----------
    problem : States, Model or Features
        What is known; public.
    n : int
        >= 1.
    epsilon, delta : float
        > 0, and in (0, 1).

    Examples
    --------
    >>> from dprl.mdp import Chain
    >>> found = choose_evaluator(Model(Chain(start="first")), 10_000, epsilon=1, delta=1e-6)
    >>> found.best.mechanism, round(found.error, 5), round(found.n_over_z)
    ('RC, temporal differences', 0.0004, 2367)
    >>> choose_evaluator(States([0.1] * 40, 0.3), 1000, epsilon=0.1, delta=1e-6).best is None
    True
    """
    z = analytic_gaussian_sigma(1.0, epsilon, delta)
    size = check.whole("n", n)
    known = forecasts(problem)
    able = [f for f in known if size / z >= f.least]
    best = min(able, key=lambda f: f.error(size, z), default=None)
    error = math.inf if best is None else best.error(size, z)
    return Choice(best, error, size / z, min(f.least for f in known))


def forecasts(problem: States | Model | Features) -> tuple[Forecast, ...]:
    """(1) for every mechanism that does with what is known."""
    if isinstance(problem, Features):
        return (_lstd(problem),)
    if isinstance(problem, Model):
        return _with_model(problem)
    check.instance("problem", problem, States)
    visits = check.positive_array("visits", problem.visits)
    if visits.ndim != 1 or visits.size == 0 or (visits > 1).any():
        raise ValueError("visits must be one probability in (0, 1] for each state")
    spread = check.array_from("spread", problem.spread)
    if spread.shape not in ((), visits.shape):
        raise ValueError(f"spread must be a number or one for each of {visits.size} states")
    spread = np.broadcast_to(spread, visits.shape)
    return _without_model(visits, spread, check.positive("width", problem.width))[
        0 if problem.visits_known else 1 :
    ]


def _without_model(p: FloatArray, tau: FloatArray, w: float) -> tuple[Forecast, ...]:
    """Noise by visits; equal noise; RC without structure."""
    n, least, inverse = p.size, float(p.min()), (1 / p).sum()
    b = math.sqrt(np.mean(tau**2 / p))
    by_visits, equal = w * inverse / math.sqrt(n), w * math.sqrt((p**-2.0).sum())
    free = 4 * math.sqrt((tau**2).sum() * inverse / (SHARES[-1] * n))
    half = 4 / math.sqrt(3)
    enough = half * math.sqrt(inverse / least)
    return (
        _forecast("counts and sums, noise by visits", by_visits, b, w, enough),
        _forecast("counts and sums, equal noise", equal, b, w, half * math.sqrt(n) / least),
        _forecast("RC without structure", free, b, w, 2 * math.sqrt(n / SHARES[0]) / least),
    )


def _with_model(problem: Model) -> tuple[Forecast, ...]:
    chain = problem.process if isinstance(problem.process, Chain) else None
    process = reward_process("process", problem.process)
    w = check.positive("width", problem.width)
    states = reachable(process)
    p = process.visit_probabilities()[states]
    plain = _without_model(p, np.sqrt(process.return_variance()[states]), w)
    shares = RoundSettings().shares
    usable = 10 * plain[0].noise / (w * math.sqrt(shares[0]))
    rounds: list[tuple[str, FloatArray]] = []
    if chain is not None:
        rounds.append(("RC, returns", returns_moment(chain)))
    if problem.markov:
        rounds.append(("RC, temporal differences", differences_moment(process)))
    shaped = []
    for name, m in rounds:
        sizes = np.maximum(np.linalg.eigvalsh(m), 0.0)
        c = 2 * np.sqrt(sizes).sum() / math.sqrt(shares[-1] * p.size)
        shaped.append(_forecast(name, c, math.sqrt(sizes.sum() / p.size), w, usable))
    return (*plain, *shaped)


def differences_moment(process: MarkovRewardProcess) -> FloatArray:
    """M of RC with temporal differences, for the states that are not terminal; shape (N, N)."""
    states = reachable(process)
    transition, values = process.transition, process.values()
    difference = process.reward + process.discount * values - values[:, None]
    variance = (transition * difference**2).sum(axis=1)[states]
    inside = transition[np.ix_(states, states)]
    visited = np.linalg.solve((np.eye(states.size) - inside).T, process.start[states])
    root = lstd_inverse(process) * np.sqrt(visited * variance)
    return np.asarray(root @ root.T)


def returns_moment(chain: Chain) -> FloatArray:
    """M of RC with returns, shape (N, N)."""
    v, variance, p = chain.values(), chain.return_variance(), chain.visit_probabilities()
    s, t = np.indices((chain.n_states, chain.n_states))
    first, second = np.minimum(s, t), np.maximum(s, t)
    return np.asarray(v[first] / v[second] * variance[second] / p[second])


def _lstd(problem: Features) -> Forecast:
    d, r = check.whole("dimension", problem.dimension), check.positive("residual", problem.residual)
    gamma, w = check.below_one("discount", problem.discount), check.positive("width", problem.width)
    length = d if problem.matrix is None else check.positive("matrix", problem.matrix)
    c = 4 * r * math.sqrt(d * _ROUNDS.total / _ROUNDS.residuals[-1])
    matrix = 4 * length * math.sqrt(d * _ROUNDS.total / _ROUNDS.matrix) / (1 - gamma)
    return _forecast("private LSTD", c, r, w, max(matrix, _FEWEST))


def _forecast(name: str, c: float, b: float, w: float, valid: float) -> Forecast:
    return Forecast(name, float(c), float(b), float(max(valid, 10 * c / w)))
