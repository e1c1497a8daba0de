"""Centred statistics: the sensitivity, the noise, and regression as post-processing."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dprl.evaluation import lsl, lsw, rmse
from dprl.features import aggregation
from dprl.mdp import Chain
from dprl.privacy import Guarantee
from dprl.privacy.gaussian_dp import gaussian_mu
from dprl.private_evaluation import NEIGHBOURS
from dprl.private_evaluation.sufficient_statistics import (
    noisy_statistics,
    release_statistics,
    statistics_sigma,
)
from dprl.trajectories import FirstVisitReturns, chain_visit_statistics

RANGE = {"f_min": -1.0, "f_max": 2.0}


def moved(first, second, mu, visits):
    """Whitened change of the release when the record ``first`` becomes ``second``; over mu."""
    releases = []
    for returns, visited in (first, second):
        data = FirstVisitReturns(
            np.array([returns, [0.0] * len(returns)]), np.array([visited, [False] * len(visited)])
        )
        rng = np.random.default_rng(0)
        releases.append(noisy_statistics(data, mu, **RANGE, expected_visits=visits, rng=rng))
    a, b = releases
    sums = (a.sums - b.sums) / a.sigma
    counts = (a.counts - b.counts) / a.sigma * np.sqrt(3) / 2
    return np.sqrt((sums**2 + counts**2).sum()) / mu


@pytest.mark.parametrize("visits", [None, [0.1, 1.0, 0.5]])
def test_the_sensitivity_is_attained(visits):
    yes, no = [True] * 3, [False] * 3
    largest = ([2.0] * 3, yes), ([-1.0] * 3, yes)
    assert moved(*largest, 0.3, visits) == pytest.approx(1.0, abs=1e-12)
    appears = ([2.0] * 3, yes), ([0.0] * 3, no)  # a visit costs as much as a change of the return
    assert moved(*appears, 0.3, visits) == pytest.approx(1.0, abs=1e-12)


@settings(max_examples=200, deadline=None)
@given(st.integers(0, 10**6))
def test_no_neighbour_exceeds_it(seed):
    rng = np.random.default_rng(seed)
    visited = rng.random((2, 3)) < rng.random()
    returns = np.where(visited, rng.choice([-1e300, -1, 0.2, 2, 1e300], size=(2, 3)), 0.0)
    pair = [(returns[i], visited[i]) for i in (0, 1)]
    assert moved(*pair, 0.3, rng.random(3) + 0.01) <= 1 + 1e-12


@pytest.mark.parametrize(
    ("low", "high"), [(0.0, 5e-324), (1e16, 1e16 + 2), (-1e16 - 2, -1e16), (1 - 1e-7, 1.0)]
)
def test_a_range_whose_middle_cannot_be_told_is_refused(low, high):
    """Rounded to an end of it, the middle would let one visit move a sum by 1 and not by 1/2."""
    data = FirstVisitReturns(np.ones((2, 3)), np.ones((2, 3), bool))
    with pytest.raises(ValueError, match=r"too narrow|f_max must be positive"):
        noisy_statistics(data, 1.0, f_max=high, f_min=low, rng=np.random.default_rng(0))


def test_noise_follows_the_visits_and_uses_the_whole_budget():
    visits = np.array([1.0, 4.0, 9.0])
    sigma = statistics_sigma(3, 0.5, visits)
    assert (sigma**-2).sum() == pytest.approx(0.25)  # (2)
    assert sigma / sigma[0] == pytest.approx(np.sqrt(visits))  # (3)
    error = (sigma / visits) ** 2
    others = statistics_sigma(3, 0.5, visits * [1.0, 1.1, 0.9])
    assert ((others / visits) ** 2).sum() > error.sum()
    assert np.sqrt(error.sum()) == pytest.approx((1 / visits).sum() / 0.5)


def test_the_noise_has_the_law_it_should_have():
    visited = np.ones((5, 2), bool)
    data = FirstVisitReturns(np.full((5, 2), 2.0), visited)
    rng = np.random.default_rng(1)
    draws = [noisy_statistics(data, 1.0, **RANGE, rng=rng) for _ in range(4000)]
    counts = np.array([d.counts for d in draws])
    sums = np.array([d.sums for d in draws])
    assert counts.mean(axis=0) == pytest.approx(5.0, abs=0.12)
    assert sums.mean(axis=0) == pytest.approx(2.5, abs=0.1)  # five times half the width
    assert sums.std(axis=0) == pytest.approx(np.sqrt(2), rel=0.05)
    assert counts.std(axis=0) == pytest.approx(np.sqrt(8 / 3), rel=0.05)


def test_without_noise_the_regressions_are_those_of_the_data():
    chain = Chain(6)
    data = chain_visit_statistics(chain, 500, np.random.default_rng(2), bounds=(0, 1))
    release = noisy_statistics(data, 1e9, f_max=1.0, rng=np.random.default_rng(3))
    phi, ones = aggregation(6), np.linspace(0.2, 1, 6)
    assert release.values() == pytest.approx(data.mean_returns, abs=1e-6)
    assert release.lsw(phi, ones) == pytest.approx(lsw(data, phi, ones), abs=1e-6)
    assert release.lsl(phi, ones, 7.0) == pytest.approx(lsl(data, phi, ones, 7.0), abs=1e-6)


@pytest.mark.parametrize(("start", "most"), [("first", 6.325), ("uniform", 27.06)])
def test_the_noise_on_the_chain_is_as_predicted(start, most):
    """z sum_s (1/c_s) / sqrt(N), where the noise is far above the sampling error."""
    chain, n, mu = Chain(start=start), 10**6, 1e-3
    rng = np.random.default_rng(4)
    visits = chain.visit_probabilities()
    data = chain_visit_statistics(chain, n, rng, bounds=(0, 1), n_batches=300)
    release = noisy_statistics(data, mu, f_max=1.0, expected_visits=visits, rng=rng)
    error = np.sqrt((rmse(release.values(), chain.values()) ** 2).mean())
    assert error == pytest.approx(most / mu / n, rel=0.06)


def test_a_release_says_what_it_promises_and_is_finite_without_visits():
    nothing = FirstVisitReturns(np.zeros((3, 2)), np.zeros((3, 2), bool))
    rng = np.random.default_rng(0)
    release, guarantee = release_statistics(nothing, epsilon=1.0, delta=1e-6, **RANGE, rng=rng)
    assert guarantee == Guarantee(1.0, 1e-6, NEIGHBOURS)
    assert release.sigma == pytest.approx(np.sqrt(2) / gaussian_mu(1.0, 1e-6))
    values = release.values()
    assert ((values >= -1) & (values <= 2)).all()
    assert np.isfinite(release.lsl(np.eye(2), [1, 1], 1e-3)).all()


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"mu": 0.0}, "mu must be positive"),
        ({"expected_visits": [1.0]}, "must have 6 entries"),
        ({"expected_visits": [0.0] * 6}, "must be positive"),
        ({"f_max": -2.0}, "f_m"),
    ],
)
def test_bad_input_is_refused(change, words):
    data = chain_visit_statistics(Chain(6), 10, np.random.default_rng(0), bounds=(0, 1))
    options = {"mu": 1.0, "f_max": 1.0, "rng": np.random.default_rng(0), **change}
    with pytest.raises(ValueError, match=words):
        noisy_statistics(data, **options)
    with pytest.raises(ValueError, match="not inside"):
        noisy_statistics(data, 1.0, f_max=0.5, rng=np.random.default_rng(0))
