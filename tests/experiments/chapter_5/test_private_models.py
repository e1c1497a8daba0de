"""Private trainings of a study: coins, settings, the audit's guesses, the table."""

import math
from dataclasses import replace

import numpy as np
import pytest

from dprl.agents.private_bcq import PrivateSettings
from dprl.privacy.poisson_gaussian import poisson_gaussian_epsilon
from experiments.chapter_5 import private_models
from experiments.chapter_5.private_models import PrivateRun


@pytest.fixture(scope="module")
def run(tiny_settings):
    return PrivateRun(
        tiny_settings,
        oracles=(0, 1),
        size=5,
        learner=PrivateSettings(tiny_settings.bcq, rate=0.5, divisor=2.5),
        steps=2,
        epsilons=(2.0,),
        models=2,
    )


def test_coins_are_fair_independent_and_complementary_in_pairs(run):
    many = np.stack([private_models.coins(replace(run, seed=s)) for s in range(400)])
    assert many.shape == (400, 2, 2, 10)
    np.testing.assert_array_equal(many[:, :, 0], ~many[:, :, 1])
    first = many[:, :, 0]
    assert abs(first.mean(axis=0) - 0.5).max() < 5 * 0.5 / 20
    sizes = first.sum(axis=-1)
    assert sizes.var() == pytest.approx(10 / 4, rel=0.35)  # not always five
    assert private_models.coins(replace(run, models=1)).shape == (2, 1, 10)


def test_every_epsilon_has_its_noise_and_the_others_have_none(run):
    private = run.settings(2.0)
    spent = poisson_gaussian_epsilon(private.noise, 0.5, 2, run.delta)
    assert 1.99 < spent <= 2.0
    assert run.settings(math.inf) == replace(run.learner, noise=0.0)
    assert run.settings(math.nan).clip == math.inf
    assert run.targets[:3] == (0.0, 2.0, math.inf)
    assert math.isnan(run.targets[3])


def test_guesses_are_the_ends_of_the_order_of_each_run():
    members = np.zeros((2, 20), dtype=bool)
    members[0, -2:] = True
    members[1, :3] = True
    values = np.tile(np.arange(20.0), (2, 1))
    right, guesses, canaries = private_models.guess(members, values)
    assert (right, guesses, canaries) == (2 + 2 + 0 + 0, 8, 40)


def test_the_table_has_a_row_for_each_epsilon_and_access(run, tiny_folder, tiny_study):
    found = private_models.table(run, tiny_folder)
    assert len(found) == 2 * 4
    np.testing.assert_array_equal(found["epsilon"][::2], [0.0, 2.0, np.nan, np.nan])
    names = ["untrained", "private", "clipped", "not clipped"]
    assert found["training"][::2].tolist() == names
    assert (found["trajectories"] == 5).all()
    assert (found["canaries"] == 20).all()
    assert (found["guesses"] == 4).all()
    assert found["lira"].isna().all()
    assert found["auc"].between(0, 1).all()
    untrained = found[found["epsilon"] == 0]
    assert (untrained["spent"] == 0).all()
    assert (untrained["return_mean"] != found["return_mean"].iloc[-1]).all()
    again = private_models.table(run, tiny_folder)
    np.testing.assert_array_equal(found["auc"], again["auc"])


def test_likelihood_ratios_need_six_models(run, tiny_folder, tiny_study):
    more = replace(run, models=6, epsilons=(), steps=1)
    found = private_models.table(more, tiny_folder)
    assert found["lira"].between(0, 1).all()


def test_what_makes_no_sense_is_refused(run):
    for change, message in (
        ({"oracles": (0,)}, "at least two"),
        ({"size": 11}, "20 trajectories"),
        ({"models": 3}, "1 or even"),
        ({"epsilons": (0.0,)}, "epsilons"),
        ({"delta": 0.0}, "delta"),
    ):
        with pytest.raises(ValueError, match=message):
            replace(run, **change)
