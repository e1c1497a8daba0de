"""Intervals: cover with a right and with a wrong working model, their width, bad input."""

from dataclasses import replace

import numpy as np
import pytest

from dprl.mdp import Chain, MarkovRewardProcess
from dprl.privacy import Guarantee
from dprl.privacy.gaussian_dp import gaussian_mu
from dprl.private_evaluation import NEIGHBOURS
from dprl.private_evaluation.recentre_shape_clip import RecentredValues, recentre_shape_clip
from dprl.private_evaluation.recentred_intervals import (
    INTERVAL_SETTINGS,
    LARGEST_FIRST_NOISE,
    fewest_for_intervals,
    recentred_intervals,
)
from dprl.private_evaluation.working_model import WorkingModel
from dprl.trajectories import simulate

PROMISE = Guarantee(1.0, 1e-6, NEIGHBOURS)


def a_release(**changes):
    release = RecentredValues(
        values=np.array([0.5, 0.7]),
        shrunk=np.array([0.5, 0.7]),
        noise_covariance=np.diag([9.0, 16.0]),
        sampling_covariance=np.diag([16.0, 9.0]),
        spread_ratio=0.5,
        theta=np.empty(0),
        first_noise=0.05,
        guarantee=PROMISE,
    )
    return replace(release, **changes)


def test_width_by_hand():
    low, high = recentred_intervals(a_release())
    assert high - low == pytest.approx([2 * 1.959964 * 5] * 2, rel=1e-6)  # k is at least 1
    low, high = recentred_intervals(a_release(spread_ratio=2.0))
    assert (high - low) ** 2 == pytest.approx([(2 * 1.959964) ** 2 * x for x in (41, 34)], rel=1e-5)
    assert (low + high) / 2 == pytest.approx([0.5, 0.7])


def process_with(stay):
    n = len(stay)
    p = np.diag(np.append(stay, 1.0)) + np.diag(1 - stay, 1)
    reward = np.zeros((n + 1, n + 1))
    reward[-2, -1] = 1.0
    return MarkovRewardProcess(p, reward, 0.99, np.append(np.ones(n) / n, 0.0))


@pytest.mark.parametrize("wrong", [False, True])
def test_they_cover(wrong):
    """10 states, 60 data sets: about 600 intervals, of which those of one data set depend."""
    rng = np.random.default_rng(7)
    stay = rng.uniform(0.3, 0.7, 10) if wrong else np.full(10, 0.5)
    process = process_with(stay)
    truth, model = process.values()[:-1], WorkingModel.equal_chain(Chain(10))
    hits = []
    for _ in range(60):
        release = recentre_shape_clip(
            simulate(process, 3000, rng),
            model,
            PROMISE,
            f_max=1.0,
            settings=INTERVAL_SETTINGS,
            rng=rng,
        )
        low, high = recentred_intervals(release)
        hits.append(((low <= truth) & (truth <= high)).mean())
    assert 0.9 < np.mean(hits) <= 1.0


@pytest.mark.parametrize("start", ["first", "uniform"])
def test_too_few_trajectories_are_refused_whatever_the_data(start):
    """The least number is public: just below it a release is refused, at it it is not."""
    chain = Chain(10, start=start)
    model = WorkingModel.equal_chain(chain)
    needed = fewest_for_intervals(model, PROMISE)
    for n in (needed - 1, needed):
        release = recentre_shape_clip(
            simulate(chain, n, np.random.default_rng(3)),
            model,
            PROMISE,
            f_max=1.0,
            settings=INTERVAL_SETTINGS,
            rng=np.random.default_rng(4),
        )
        assert (release.first_noise > LARGEST_FIRST_NOISE) == (n < needed)
        if n < needed:
            with pytest.raises(ValueError, match="too few trajectories"):
                recentred_intervals(release)
        else:
            low, high = recentred_intervals(release)
            assert (low < high).all()


def test_the_first_noise_by_hand():
    """All start in the first of two states: p = 1, and the noise of a value is sqrt(2) z / n."""
    model = WorkingModel.equal_chain(Chain(2, start="first"))
    mu = gaussian_mu(1.0, 1e-6) * np.sqrt(INTERVAL_SETTINGS.shares[0])
    needed = fewest_for_intervals(model, PROMISE)
    assert needed == np.ceil(np.sqrt(2) / mu / LARGEST_FIRST_NOISE)


def test_bad_input_is_refused():
    with pytest.raises(ValueError, match="INTERVAL_SETTINGS"):
        recentred_intervals(a_release(spread_ratio=None))
    with pytest.raises(ValueError, match="confidence"):
        recentred_intervals(a_release(), 1.0)
    with pytest.raises(TypeError, match="release"):
        recentred_intervals(np.zeros(3))
