"""Closed forms against direct computation: constants, moments of residuals, thresholds."""

import math

import numpy as np
import pytest

from dprl.mdp import Chain, MarkovRewardProcess
from dprl.privacy import analytic_gaussian_sigma
from dprl.private_evaluation import choice
from dprl.private_evaluation.private_lstd import private_lstd
from dprl.private_evaluation.recentre_shape_clip import residuals
from dprl.trajectories import FirstVisitReturns, first_visit_returns, simulate

WANDER = MarkovRewardProcess(
    [[0.2, 0.4, 0.2, 0.2], [0.3, 0.1, 0.4, 0.2], [0.1, 0.3, 0.3, 0.3], [0, 0, 0, 1]],
    [[0.1, 0, 0, 0.5], [0, 0.3, 0, 0], [0.2, 0, 0, 0.4], [0, 0, 0, 0]],
    0.9,
    [0.5, 0.3, 0.2, 0],
)


def by_name(problem):
    return {f.mechanism: f for f in choice.forecasts(problem)}


def test_constants_of_the_chain_of_the_thesis():
    for start, equal, visits in (("first", 6.32, 6.32), ("uniform", 50.9, 27.06)):
        found = by_name(choice.Model(Chain(start=start)))
        assert found["counts and sums, equal noise"].noise == pytest.approx(equal, abs=0.05)
        assert found["counts and sums, noise by visits"].noise == pytest.approx(visits, abs=0.01)


@pytest.mark.parametrize("process", [Chain(4, start="uniform").process, WANDER])
def test_moment_of_temporal_differences(process):
    batch = simulate(process, 40_000, np.random.default_rng(1))
    u = residuals(batch, process, process.values()[~process.terminal])
    assert np.abs(u.T @ u / len(u) - choice.differences_moment(process)).max() < 0.05 * (
        np.trace(choice.differences_moment(process))
    )


@pytest.mark.parametrize("start", ["first", "uniform"])
def test_moment_of_returns_along_a_chain(start):
    chain = Chain(4, start=start, discount=0.8)
    batch = simulate(chain, 40_000, np.random.default_rng(2))
    found = first_visit_returns(batch, chain.discount)
    returns = FirstVisitReturns(found.returns[:, :4], found.visited[:, :4])
    u = residuals(returns, chain.process, chain.values())
    exact = choice.returns_moment(chain)
    assert np.abs(u.T @ u / len(u) - exact).max() < 0.04 * np.trace(exact)


def test_returns_have_the_sampling_error_of_averages_and_differences_less():
    found = by_name(choice.Model(Chain(10)))
    assert found["RC, returns"].sampling == pytest.approx(
        found["counts and sums, equal noise"].sampling
    )
    assert found["RC, temporal differences"].sampling < found["RC, returns"].sampling
    assert "RC, temporal differences" not in by_name(choice.Model(Chain(10), markov=False))
    assert "RC, returns" not in by_name(choice.Model(WANDER))


def test_width_scales_counts_and_sums_and_known_visits_help():
    visits, spread = np.linspace(0.1, 1, 8), 0.2
    one, other = (
        by_name(choice.States(visits, spread * w, width=w, visits_known=True)) for w in (1, 10)
    )
    for name in one:
        assert other[name].noise == pytest.approx(10 * one[name].noise)
        assert other[name].least == pytest.approx(one[name].least)
    assert len(one) == 3
    assert len(choice.forecasts(choice.States(visits, spread))) == 2
    assert one["counts and sums, noise by visits"].noise < one["counts and sums, equal noise"].noise


def test_the_choice_is_the_least_error_among_the_useful():
    z = analytic_gaussian_sigma(1.0, 1.0, 1e-6)
    problem = choice.Model(Chain(20))
    for n in (50, 300, 1000, 10_000, 10**6):
        found = choice.choose_evaluator(problem, n, epsilon=1.0, delta=1e-6)
        able = [f for f in choice.forecasts(problem) if n / z >= f.least]
        assert found.error == min([f.error(n, z) for f in able], default=math.inf)
        assert (found.best is None) == (n / z < found.needed)
    best = choice.choose_evaluator(problem, 10**6, epsilon=1.0, delta=1e-6).best
    n = best.n_where_noise_is_sampling(z)
    assert best.error(n, z) == pytest.approx(math.sqrt(2 / n) * best.sampling)


def test_no_forecast_of_private_lstd_where_it_refuses():
    """The least number of trajectories is that of the module, in units of z."""
    few = choice.forecasts(choice.Features(1, 0.1, 0.0, 1.0))[0].least
    z = analytic_gaussian_sigma(1.0, 1.0, 1e-5)
    assert math.ceil(few * z) == 1112
    assert private_lstd.__doc__ is not None
    assert "1,112" in private_lstd.__doc__


def test_features_scale_as_they_should():
    small, large = (choice.forecasts(choice.Features(d, 0.5, 0.9, 1.0))[0] for d in (4, 16))
    assert large.noise == pytest.approx(2 * small.noise)
    assert large.least == pytest.approx(8 * small.least)
    known = choice.forecasts(choice.Features(16, 0.5, 0.9, 1.0, matrix=4.0))[0]
    assert known.least == pytest.approx(large.least / 4)


@pytest.mark.parametrize(
    ("problem", "message"),
    [
        (choice.States([0.5, 1.5], 0.2), "visits"),
        (choice.States([0.5, 0.0], 0.2), "visits"),
        (choice.States([0.5], -0.2), "spread"),
        (choice.States([0.5], 0.2, width=0.0), "width"),
        (choice.Features(0, 0.1, 0.9, 1.0), "dimension"),
        (choice.Features(2, 0.1, 1.0, 1.0), "discount"),
    ],
)
def test_bad_input_gets_a_clear_error(problem, message):
    with pytest.raises(ValueError, match=message):
        choice.forecasts(problem)


def test_other_types_are_refused():
    with pytest.raises(TypeError, match="problem"):
        choice.forecasts(3)
