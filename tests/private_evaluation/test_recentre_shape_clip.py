"""RC: its identities without clipping, the sensitivity of a round, accuracy, wrong models."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dprl.evaluation import rmse
from dprl.mdp import Chain, MarkovRewardProcess
from dprl.privacy import Guarantee
from dprl.private_evaluation import NEIGHBOURS
from dprl.private_evaluation.recentre_shape_clip import (
    RoundSettings,
    lstd_inverse,
    recentre_shape_clip,
    residuals,
)
from dprl.private_evaluation.working_model import WorkingModel, plan_round, shrunk
from dprl.trajectories import Batch, FirstVisitReturns, first_visit_returns, simulate

PROMISE = Guarantee(1.0, 1e-6, NEIGHBOURS)
FAST = RoundSettings(simulated=200, groups=2)


def chain_data(n, start="uniform", seed=0, n_states=6):
    chain = Chain(n_states, start=start)
    return chain, simulate(chain, n, np.random.default_rng(seed))


def empirical(batch, discount):
    """The reward process with the transition frequencies and mean rewards of a batch."""
    n = batch.n_states
    following = np.append(batch.states[1:], 0)
    following[batch.ends - 1] = n - 1  # the terminal state
    p, r = np.zeros((n, n)), np.zeros((n, n))
    np.add.at(p, (batch.states, following), 1.0)
    np.add.at(r, (batch.states, following), batch.rewards)
    r /= np.maximum(p, 1)
    p[-1, -1] = 1.0
    start = np.bincount(batch.states[batch.ends - batch.lengths], minlength=n) / len(batch)
    return MarkovRewardProcess(p / p.sum(axis=1, keepdims=True), r, discount, start)


def own_returns(batch, chain):
    data = first_visit_returns(batch, chain.discount)
    return FirstVisitReturns(data.returns[:, :-1], data.visited[:, :-1])


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 10**6))
def test_one_step_with_the_batch_itself_is_lstd_whatever_the_centre(seed):
    chain, batch = chain_data(60, seed=seed)
    model = empirical(batch, chain.discount)
    centre = np.random.default_rng(seed).normal(size=6)
    step = residuals(batch, model, centre).mean(axis=0)
    assert centre + step == pytest.approx(model.values()[:-1], abs=1e-8)


def test_with_the_right_model_the_mean_residual_is_the_error_of_the_centre():
    chain, batch = chain_data(40_000)
    wrong = chain.values() + np.linspace(-0.1, 0.2, 6)
    for records in (batch, own_returns(batch, chain)):
        step = residuals(records, chain.process, wrong).mean(axis=0)
        assert step == pytest.approx(chain.values() - wrong, abs=0.01)


def test_with_many_trajectories_privacy_costs_next_to_nothing():
    """The bias of clipping is known well enough: what is left is the noise, which falls as 1/n."""
    chain, batch = chain_data(100_000, n_states=40)
    without = empirical(batch, chain.discount).values()[:-1]
    model, rng = WorkingModel.equal_chain(chain), np.random.default_rng(5)
    apart = [
        rmse(recentre_shape_clip(batch, model, PROMISE, f_max=1.0, rng=rng).values, without)
        for _ in range(4)
    ]
    assert np.mean(apart) < 1e-4  # the error without privacy is 1.6e-4


def test_residuals_of_a_trajectory_by_hand():
    chain = Chain(3, start="first", discount=0.9)
    rows = [[(0, 0, 0.0), (0, 0, 0.0), (1, 0, 0.5)], [(2, 0, 1.0)]]
    batch, v = Batch.from_lists(rows, 4), np.array([0.2, 0.3, 0.4])
    first = np.array([0.9 * 0.2 - 0.2 + 0.9 * 0.3 - 0.2, 0.5 - 0.3, 0.0])
    second = np.array([0.0, 0.0, 1.0 - 0.4])
    expected = np.array([first, second]) @ lstd_inverse(chain.process).T
    assert residuals(batch, chain.process, v) == pytest.approx(expected)


def test_the_shape_is_the_root_of_the_covariance_for_equal_norms_and_better_than_the_ball():
    rng = np.random.default_rng(3)
    scale = np.array([1.0, 0.1, 0.01])
    u = rng.choice([-1.0, 1.0], size=(2, 500, 3)) * scale  # every vector at the same distance
    plan = plan_round(u, 1e-3, bias_weight=1.0)
    assert np.diag(plan.shape) / plan.shape[0, 0] == pytest.approx(scale, rel=0.1)
    noise = plan.radius * np.sqrt(np.trace(plan.shape))
    ball = np.sqrt((scale**2).sum()) * np.sqrt(3)
    assert noise == pytest.approx(scale.sum(), rel=0.05)
    assert noise < ball


def test_the_shape_is_the_fixed_point_and_no_other_one_has_less_noise():
    """For the radius E[norm^8]^(1/8) that the shape is made for, on residuals of the chain."""
    chain, batch = chain_data(1_000, n_states=10)
    centre = chain.values() + np.random.default_rng(1).normal(size=(3, 10)) * 0.01
    u = residuals(batch, chain.process, centre)
    shape, rows = plan_round(u, 1e-3, bias_weight=1.0).shape, u.reshape(-1, 10)

    def norms(of):
        return np.einsum("ij,ij->i", rows, np.linalg.solve(of, rows.T).T)

    def noise(of):
        return np.trace(of) * np.mean(norms(of) ** 4) ** 0.25

    size, axes = np.linalg.eigh((rows * norms(shape)[:, None] ** 3).T @ rows)
    once_more = (axes * np.sqrt(size)) @ axes.T
    scale = np.trace(shape) / np.trace(once_more)
    assert scale * once_more == pytest.approx(shape, abs=0.01 * np.abs(shape).max())
    rng = np.random.default_rng(2)
    for _ in range(20):
        turn = np.eye(10) + 0.05 * rng.normal(size=(10, 10))
        assert noise(turn @ shape @ turn.T) > (1 - 1e-4) * noise(shape)
    assert noise(once_more) == pytest.approx(noise(shape), rel=1e-3)


@pytest.mark.parametrize("start", ["first", "uniform"])
def test_a_fit_is_as_good_as_one_to_the_last_digit(start):
    chain = Chain(20, start=start, stay=0.37)
    model, rng = WorkingModel.equal_chain(chain), np.random.default_rng(4)
    covariance = np.diag(np.linspace(0.01, 0.03, 20) ** 2)
    for _ in range(5):
        values = chain.values() + np.sqrt(np.diag(covariance)) * rng.normal(size=20)
        theta, variance = model.fit_values(values, covariance, np.array([0.6]))
        grid = theta + np.sqrt(variance[0, 0]) * np.linspace(-0.02, 0.02, 41)[:, None]
        cost = [float(((values - model.values(x)) ** 2 / np.diag(covariance)).sum()) for x in grid]
        assert abs(np.argmin(cost) - 20) <= 4  # within a five-hundredth of its standard error


@settings(max_examples=100, deadline=None)
@given(st.integers(0, 10**6), st.sampled_from([1.0, 1e3, 1e100]))
def test_no_record_moves_a_round_by_more_than_twice_the_radius(seed, size):
    rng = np.random.default_rng(seed)
    plan = plan_round(rng.normal(size=(2, 60, 4)), 0.1, bias_weight=1.0)
    pair = plan.clipped(size * rng.normal(size=(2, 4)))
    assert plan.norms(pair[:1] - pair[1:])[0] <= 2 * plan.radius * (1 + 1e-12)
    longest = 1e3 * plan.radius * plan.axes[:, 0] * np.sqrt(plan.sizes[0])
    corner = plan.clipped(np.stack([longest, -longest]))
    assert plan.norms(corner[:1] - corner[1:])[0] == pytest.approx(2 * plan.radius)


def test_shrinking_keeps_what_the_model_cannot_explain():
    model = WorkingModel.known(Chain(40).process)
    truth, rng = Chain(40).values(), np.random.default_rng(0)
    error = 1e-4 * np.eye(40)
    near, kept_near = shrunk(model, np.empty(0), truth + 0.01 * rng.normal(size=40), error)
    assert kept_near < 0.5
    assert rmse(near, truth) < 0.006
    _, kept_far = shrunk(model, np.empty(0), truth + 1.0, error)
    assert kept_far > 0.999


@pytest.mark.parametrize("form", ["returns", "steps"])
@pytest.mark.parametrize(("start", "most"), [("first", 5e-4), ("uniform", 1.5e-3)])
def test_near_the_error_without_privacy(form, start, most):
    chain, batch = chain_data(10_000, start, n_states=40)
    data = own_returns(batch, chain) if form == "returns" else batch
    model = WorkingModel.equal_chain(chain)
    out = recentre_shape_clip(data, model, PROMISE, f_max=1.0, rng=np.random.default_rng(1))
    assert rmse(out.values, chain.values()) < most
    assert out.guarantee == PROMISE
    assert out.theta == pytest.approx([0.5], abs=0.02)


@pytest.mark.parametrize("form", ["returns", "steps"])
def test_a_wrong_model_costs_accuracy_only(form):
    """States that stay with probabilities between 0.3 and 0.7, a model in which all are equal."""
    rng = np.random.default_rng(5)
    stay = rng.uniform(0.3, 0.7, 20)
    p = np.diag(np.append(stay, 1.0)) + np.diag(1 - stay, 1)
    reward = np.zeros((21, 21))
    reward[19, 20] = 1.0
    process = MarkovRewardProcess(p, reward, 0.99, np.eye(21)[0])
    batch = simulate(process, 10_000, rng)
    data = first_visit_returns(batch, 0.99) if form == "returns" else batch
    model = WorkingModel.equal_chain(Chain(20, start="first"))
    out = recentre_shape_clip(data, model, PROMISE, f_max=1.0, rng=rng)
    error = rmse(out.values, process.values()[:-1])
    assert error < 1e-3
    assert error < 0.5 * rmse(model.values(out.theta), process.values()[:-1])


@settings(max_examples=15, deadline=None)
@given(st.integers(0, 10**6), st.sampled_from([0.0, 1e154, 1.7e308, -1.7e308]))
def test_what_is_released_is_finite_and_in_range(seed, size):
    rng = np.random.default_rng(seed)
    model = WorkingModel.equal_chain(Chain(3))
    rows = [
        [(int(s), 0, float(size)) for s in rng.integers(4, size=rng.integers(1, 5))]
        for _ in range(8)
    ]
    batch = Batch.from_lists(rows, 4)
    for data in (batch, first_visit_returns(batch, 0.99)):
        out = recentre_shape_clip(data, model, PROMISE, f_max=1.0, settings=FAST, rng=rng)
        assert ((out.values >= 0) & (out.values <= 1)).all()
        assert np.isfinite(out.shrunk).all()
        assert np.isfinite(out.noise_covariance).all()


def test_same_seed_same_release():
    chain, batch = chain_data(100)
    model = WorkingModel.known(chain.process)
    first, second = (
        recentre_shape_clip(
            batch, model, PROMISE, f_max=1.0, settings=FAST, rng=np.random.default_rng(4)
        ).values
        for _ in range(2)
    )
    assert (first == second).all()


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"data": FirstVisitReturns(np.zeros((2, 3)), np.ones((2, 3), bool))}, "6 columns"),
        ({"data": Batch([0], [0.0], [1], 3)}, "3 states, the model 7"),
        ({"guarantee": Guarantee(1.0, 0.0, NEIGHBOURS)}, "delta"),
        ({"guarantee": Guarantee(1.0, 0.1, "add one record")}, "neighbours"),
        ({"f_max": -1.0}, "f_max"),
    ],
)
def test_bad_input_is_refused(change, words):
    chain, batch = chain_data(10)
    options = {"data": batch, "guarantee": PROMISE, "f_max": 1.0, **change}
    model = WorkingModel.known(chain.process)
    with pytest.raises(ValueError, match=words):
        recentre_shape_clip(model=model, rng=np.random.default_rng(0), **options)


def test_bad_settings_and_models_are_refused():
    with pytest.raises(ValueError, match="two rounds"):
        RoundSettings(shares=(1.0,))
    with pytest.raises(ValueError, match="at most 1"):
        RoundSettings(spread_share=0.1)
    with pytest.raises(ValueError, match="low must be below high"):
        WorkingModel(lambda theta: Chain(3).process, [0.5], [0.5])
    unseen = MarkovRewardProcess(
        [[0, 0, 1], [0, 0, 1], [0, 0, 1]], np.zeros((3, 3)), 0.9, [1, 0, 0]
    )
    with pytest.raises(ValueError, match="never visits"):
        residuals(Batch([0], [0.0], [1], 3), unseen, np.zeros(2))


def test_shares_of_half_precision_are_taken_as_doubles():
    half = RoundSettings(spread_share=np.float16(0.03), shares=(np.float16(0.25), 0.72))
    assert type(half.spread_share) is float
    assert all(type(share) is float for share in half.shares)


def test_several_centres_at_once_are_as_one_by_one():
    chain, batch = chain_data(50)
    centres = chain.values() + np.random.default_rng(0).normal(size=(2, 3, 6))
    for records in (batch, own_returns(batch, chain)):
        found = residuals(records, chain.process, centres)
        for index in np.ndindex(2, 3):
            one = residuals(records, chain.process, centres[index])
            assert found[index] == pytest.approx(one, rel=1e-13, abs=1e-13)


def test_residuals_are_those_of_the_states_of_the_process():
    """A batch that knows of fewer states, since none of its trajectories came further."""
    process = Chain(4).process
    steps = [[(0, 0, 0.0), (1, 0, 0.5)], [(1, 0, 1.0)]]
    centre = np.array([0.4, 0.3, 0.2, 0.1])
    found = [
        residuals(Batch.from_lists(steps, n_states=n), process, centre)
        for n in (2, process.n_states)
    ]
    assert (found[0] == found[1]).all()
