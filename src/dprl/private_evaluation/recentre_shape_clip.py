r"""RC: recentre, shape, clip. Private values at nearly the cost of values that are not private.

Where noise costs so much is the range of the returns: [0, 1] for residuals that are hardly larger
than 0.1. RC finds a centre first and then releases residuals around it.

*Round 0* releases centred sufficient statistics; a working model is fitted to them, and its
values are the first centre V. *Each further round k* forms for each trajectory a vector u whose
mean is about the true values minus V, clips it in a norm with a shape S, and releases

    V <- V + (1/n) sum_i clip(u_i) + N(0, (2 R / (mu_k n))^2 S) - bias,                       (1)
    clip(u) = u min(1, R / ||S^{-1/2} u||).

*Privacy.* S, R and the bias are computed from earlier releases and public numbers. Replacing one
trajectory moves the sum by at most 2 R in the norm ||S^{-1/2} .||, whatever it holds: round k is
mu_k-GDP given the rounds before. All of them compose to mu-GDP if the mu_k^2, shares of mu^2, add
up to mu^2. Nothing is assumed of the trajectories or of the working model.

*Two residuals.* From first-visit returns F, with the working probability p_s of a visit,

    u_s = v_s (F_s - V_s) / p_s;                                                      (2)

from temporal differences of the trajectory s_1, r_1, s_2, ..., the value behind its end being 0,

    u = A^{-1} sum_t e(s_t) (r_t + gamma V(s_{t+1}) - V(s_t)),   A = D (I - gamma P),         (3)

D the expected numbers of visits and P the transitions of the working model. With p and A of the
batch itself and no clipping, (2) gives the averages of the returns and (3) the LSTD solution,
whatever V is; with other ones the error is (I - A^{-1} A_batch) times the error of V, a
product of two small things. That is why noise in A costs little here, and much where A^{-1} b is
computed from noisy A and b. (3) uses that the process is Markov; (2) does not.

*Assumed known:* the family of the working model, through it which states there are, and the range
of the returns. What is wrong with it is paid in accuracy.

*Centre.* Before a further round the working model is fitted to V, and V is moved towards it
as far as their distance allows (:func:`~dprl.private_evaluation.working_model.shrunk`).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dprl import _passes
from dprl import _validation as check
from dprl._validation import FloatArray, IntArray
from dprl.mdp import MarkovRewardProcess
from dprl.privacy import Guarantee
from dprl.privacy.gaussian_dp import divided_mu
from dprl.private_evaluation.common import (
    LARGEST_RETURN,
    promised_mu,
    public_range,
)
from dprl.private_evaluation.sufficient_statistics import noisy_statistics
from dprl.private_evaluation.working_model import (
    WorkingModel,
    plan_round,
    reachable,
    shrunk,
)
from dprl.trajectories import Batch, FirstVisitReturns, first_visit_returns, simulate

_EARLIER = 1000  # simulated trajectories that plan a round before the last, at most


@dataclass(frozen=True)
class RoundSettings:
    """How the budget is divided, and how carefully rounds are planned. All public.

    The defaults were chosen once, on the chain of the thesis.

    Attributes
    ----------
    shares : tuple of float
        Shares of mu^2 of round 0 and of the rounds behind it, at least one.
    spread_share : float
        Share of the release of E min(||S^{-1/2} u|| / R, 1)^2 in the last round, for intervals;
        0 for none.
    bias_weight : float
        Of the clipping bias when a radius is chosen, :func:`~.working_model.plan_round`.
    correct_bias : bool
        Whether the working model's clipping bias is subtracted in (1).
    radius_factor : float
        Factor of the radius of the last round.
    simulated, groups : int
        Trajectories of the working model that plan the last round, around how many centres. Too
        few, and the bias that is subtracted in (1) is itself inaccurate: an error that does not
        fall with n. At most 1,000 plan the rounds before, whose errors the next one corrects.
    """

    shares: tuple[float, ...] = (0.1, 0.1, 0.15, 0.65)
    spread_share: float = 0.0
    bias_weight: float = 0.25
    correct_bias: bool = True
    radius_factor: float = 1.0
    simulated: int = 10_000
    groups: int = 3

    def __post_init__(self) -> None:
        if not isinstance(self.shares, tuple) or len(self.shares) < 2:
            raise ValueError(
                f"shares must be a tuple that names at least two rounds, got {self.shares!r}"
            )
        spread = check.not_negative("spread_share", self.spread_share)
        shares = tuple(check.positive("each share", share) for share in self.shares)
        divided_mu(1.0, [*shares, spread] if spread else shares)
        kept = {
            "shares": shares,
            "spread_share": spread,
            "bias_weight": check.not_negative("bias_weight", self.bias_weight),
            "radius_factor": check.positive("radius_factor", self.radius_factor),
        }
        for name, value in kept.items():  # as doubles
            object.__setattr__(self, name, value)
        check.whole("simulated", self.simulated, minimum=50)
        check.whole("groups", self.groups)


@dataclass(frozen=True, eq=False)
class RecentredValues:
    """A release of RC; everything in it is computed from what was released.

    Attributes
    ----------
    values : ndarray, shape (N,)
        Of the states that are not terminal, in order, within [f_min, f_max].
    shrunk : ndarray, shape (N,)
        The same, moved towards the working model.
    noise_covariance : ndarray, shape (N, N)
        Of the noise of the last round, exactly.
    sampling_covariance : ndarray, shape (N, N)
        Of the mean of u under the working model.
    spread_ratio : float or None
        Released E min(||S^{-1/2} u|| / R, 1)^2 over its value under the working model.
    theta : ndarray, shape (k,)
        The last working model.
    first_noise : float
        Root mean square of the noise of round 0 in the values, by the visits that the working model
        expects before it is fitted, in units of the range of the returns; public.
    guarantee : Guarantee
    """

    values: FloatArray
    shrunk: FloatArray
    noise_covariance: FloatArray
    sampling_covariance: FloatArray
    spread_ratio: float | None
    theta: FloatArray
    first_noise: float
    guarantee: Guarantee


def recentre_shape_clip(
    data: FirstVisitReturns | Batch,
    model: WorkingModel,
    guarantee: Guarantee,
    *,
    f_max: float,
    f_min: float = 0.0,
    settings: RoundSettings | None = None,
    rng: np.random.Generator,
) -> RecentredValues:
    """Private values of all states, equation (1); neighbours replace one trajectory.

    Parameters
    ----------
    data : FirstVisitReturns or Batch
        Returns for residuals (2), steps for residuals (3). States numbered as in the model;
        terminal ones may be left out of the returns.
    model : WorkingModel
        Public.
    guarantee : Guarantee
        The promise; delta > 0.
    f_max, f_min : float
        Public range of the returns and of the values.
    settings : RoundSettings, optional
    rng : numpy.random.Generator
        For study only: floating-point noise is not safe for a release.

    Examples
    --------
    >>> from dprl.mdp import Chain
    >>> from dprl.private_evaluation import NEIGHBOURS
    >>> from dprl.trajectories import chain_first_visit_returns
    >>> chain, rng = Chain(start="first"), np.random.default_rng(0)
    >>> data = chain_first_visit_returns(chain, 10_000, rng)
    >>> promise = Guarantee(1.0, 1e-6, NEIGHBOURS)
    >>> model = WorkingModel.equal_chain(chain)
    >>> release = recentre_shape_clip(data, model, promise, f_max=1.0, rng=rng)
    >>> bool(np.abs(release.values - chain.values()).max() < 0.003)
    True
    """
    low, high = public_range(f_max, f_min)
    check.instance("model", model, WorkingModel)
    mu = promised_mu(guarantee)
    options = RoundSettings() if settings is None else settings
    check.instance("settings", options, RoundSettings)
    if not isinstance(data, FirstVisitReturns):
        check.instance("data", data, Batch)
    n = len(data)
    first, *rounds = divided_mu(mu, options.shares)

    example = model.process((model.low + model.high) / 2)
    states = reachable(example)
    returns = data if isinstance(data, FirstVisitReturns) else _returns(data, example)
    returns = _columns(returns, example.n_states, states).clipped(low, high)
    records = returns if isinstance(data, FirstVisitReturns) else data
    visits = example.visit_probabilities()[states]
    release = noisy_statistics(
        returns, first, f_max=high, f_min=low, expected_visits=visits, rng=rng
    )
    theta, theta_covariance = model.fit_statistics(release)
    centre = np.clip(model.values(theta), low, high)
    uncertain = _spread_of_values(model, theta, theta_covariance)

    for k, mu_k in enumerate(rounds):
        last = k == len(rounds) - 1
        process = model.process(theta)
        plan = plan_round(
            _simulated_residuals(
                isinstance(data, Batch),
                process,
                uncertain,
                options.groups,
                options.simulated if last else min(options.simulated, _EARLIER),
                rng,
            ),
            2 / (mu_k * n),
            bias_weight=options.bias_weight,
            radius_factor=options.radius_factor if last else 1.0,
        )
        u = residuals(records, process, centre)
        clipped = plan.clipped(u)
        noise = 2 * plan.radius / (mu_k * n) * plan.root @ rng.standard_normal(centre.size)
        values = centre + clipped.mean(axis=0) + noise  # (1)
        if options.correct_bias:
            values -= plan.bias
        noise_covariance = (2 * plan.radius / (mu_k * n)) ** 2 * plan.shape
        error = noise_covariance + plan.covariance / n
        theta, theta_covariance = model.fit_values(values, error, theta)
        centre, kept = shrunk(model, theta, values, error)
        centre = np.clip(centre, low, high)
        uncertain = _spread_of_values(model, theta, theta_covariance) + kept * error

    ratio = None
    if options.spread_share:
        mean = float((np.minimum(plan.norms(u) / plan.radius, 1) ** 2).mean())
        scale = 1 / (np.sqrt(options.spread_share) * mu * n)  # one trajectory moves it by 1/n
        ratio = (mean + scale * float(rng.standard_normal())) / plan.spread
    return RecentredValues(
        values=np.clip(values, low, high),
        shrunk=centre,
        noise_covariance=noise_covariance,
        sampling_covariance=plan.covariance / n,
        spread_ratio=ratio,
        theta=theta,
        first_noise=float(np.sqrt(np.mean((release.sigma / (n * visits)) ** 2))),
        guarantee=guarantee,
    )


def residuals(
    records: FirstVisitReturns | Batch, process: MarkovRewardProcess, centre: FloatArray
) -> FloatArray:
    """u of (2) or (3) for each trajectory, shape (..., m, N); *not private*.

    Parameters
    ----------
    records : FirstVisitReturns or Batch
        Returns of the N states that are not terminal, or steps.
    process : MarkovRewardProcess
        The working model, for p or A.
    centre : ndarray, shape (..., N)
        V, or several of them.
    """
    states = reachable(process)
    if isinstance(records, FirstVisitReturns):
        u = records.returns - centre[..., None, :]
        u *= records.visited / process.visit_probabilities()[states]  # (2)
        return np.asarray(u)
    values = np.zeros((*centre.shape[:-1], process.n_states))
    values[..., states] = centre
    inverse = np.zeros((process.n_states, len(states)))
    inverse[states] = lstd_inverse(process).T
    return _summed_differences(records, values, process.discount) @ inverse  # (3)


def _summed_differences(batch: Batch, values: FloatArray, discount: float) -> FloatArray:
    """sum_t e(s_t) (r_t + gamma V(s_{t+1}) - V(s_t)) of each trajectory, block after block."""
    n = values.shape[-1]
    out = np.empty((*values.shape[:-1], len(batch), n))
    each = list(zip(values.reshape(-1, n), out.reshape(-1, len(batch), n), strict=True))
    for x, y, begin, end in _passes.blocks(batch.lengths, len(batch)):
        states, lengths = batch.states[begin:end], batch.lengths[x:y]
        last = np.cumsum(lengths) - 1
        rewards = np.clip(batch.rewards[begin:end], -LARGEST_RETURN, LARGEST_RETURN)
        cells = np.repeat(np.arange(0, (y - x) * n, n), lengths) + states
        for v, sums in each:
            here = v.take(states)
            following = np.append(here[1:], 0.0)
            following[last] = 0.0
            difference = rewards + discount * following - here
            summed = np.bincount(cells, weights=difference, minlength=(y - x) * n)
            sums[x:y] = summed.reshape(-1, n)
    return out


def lstd_inverse(process: MarkovRewardProcess) -> FloatArray:
    """A^{-1} of (3) for the states that are not terminal: (I - gamma P)^{-1} D^{-1}."""
    states = reachable(process)
    p = process.transition[np.ix_(states, states)]
    identity = np.eye(len(states))
    visits = np.linalg.solve((identity - p).T, process.start[states])
    return np.asarray(np.linalg.inv(identity - process.discount * p) / visits)


def _simulated_residuals(
    steps: bool,
    process: MarkovRewardProcess,
    uncertain: FloatArray,
    groups: int,
    simulated: int,
    rng: np.random.Generator,
) -> FloatArray:
    """u of simulated trajectories, in groups around centres that differ from the truth."""
    batch = simulate(process, simulated, rng)
    states = reachable(process)
    records = batch if steps else _columns(_returns(batch, process), process.n_states, states)
    size, axes = np.linalg.eigh(uncertain)
    root = (axes * np.sqrt(np.maximum(size, 0))) @ axes.T
    truth = process.values()[states]
    centres = truth + rng.standard_normal((groups, truth.size)) @ root.T
    return residuals(records, process, centres)


def _spread_of_values(model: WorkingModel, theta: FloatArray, covariance: FloatArray) -> FloatArray:
    """Covariance of the model's values if theta has the given one, by differences."""
    values = model.values(theta)
    jacobian = np.zeros((values.size, theta.size))
    for j in range(theta.size):
        step = np.zeros(theta.size)
        step[j] = 1e-5 * (model.high[j] - model.low[j]) * (1 if theta[j] < model.high[j] else -1)
        jacobian[:, j] = (model.values(theta + step) - values) / step[j]
    return jacobian @ covariance @ jacobian.T


def _returns(batch: Batch, process: MarkovRewardProcess) -> FirstVisitReturns:
    if batch.n_states != process.n_states:
        raise ValueError(
            f"the trajectories have {batch.n_states} states, the model {process.n_states}"
        )
    return first_visit_returns(batch, process.discount)


def _columns(returns: FirstVisitReturns, n_states: int, states: IntArray) -> FirstVisitReturns:
    """Those of the states that are not terminal."""
    given = returns.returns.shape[1]
    if given == len(states):
        return returns
    if given != n_states:
        raise ValueError(
            f"the returns must have {len(states)} columns, or {n_states} with terminal states, "
            f"got {given}"
        )
    return FirstVisitReturns(returns.returns[:, states], returns.visited[:, states])
