"""Trials of noises and step sizes: what they compute, and what they refuse."""

import numpy as np
import pandas as pd
import pytest

from dprl.off_policy.saddle_point import BidiagonalStatistics, Statistics
from dprl.private_evaluation.gpope import (
    ConstantStep,
    Descent,
    DiminishingStep,
    gpope_runs_not_private,
)
from experiments import chapter_6 as experiment


def fixed(seed):
    return np.random.default_rng(np.random.SeedSequence(seed))


def data(m=20, n=3):
    rng = np.random.default_rng(1)
    a = rng.normal(size=(m, n, n)).astype(np.float32)
    return Statistics(a, rng.normal(size=(m, n)).astype(np.float32), a @ a.swapaxes(1, 2))


def square(theta):
    return (theta**2).sum(axis=-1)


def run(settings, **changes):
    arguments = {"clip": 0.5, "iterations": 40, "trials": 3, "rng": fixed(7)} | changes
    return experiment.errors(data(), square, settings, **arguments)


def test_a_row_is_what_the_runs_give():
    settings = experiment.grid({"none": 0.0, "some": 0.7}, [0.01, 0.1])
    rows = run(settings)
    ends = gpope_runs_not_private(
        data(),
        Descent(
            [ConstantStep(x / 0.5) for x in (0.01, 0.1, 0.01, 0.1)],
            clip=0.5,
            iterations=40,
            precision="single",
        ),
        [0.0, 0.0, 0.7, 0.7],
        np.random.default_rng(int(np.random.SeedSequence(7).generate_state(1)[0])),
        trials=3,
    )
    assert [row["error"] for row in rows] == square(ends.theta).ravel().tolist()
    assert [(row["noise"], row["reach"]) for row in rows[::3]] == [s[::2] for s in settings]
    assert all(0 <= row["clipped"] <= 1 for row in rows)


def test_only_the_reach_matters_where_everything_is_clipped():
    n = 4
    one = BidiagonalStatistics(
        np.full((1, n), 9.0), np.zeros((1, n - 1)), np.full((1, n), 9.0), np.ones((1, n))
    )
    ends = [
        experiment.errors(
            one,
            square,
            experiment.grid({"some": 0.3}, [1e-4]),
            clip=clip,
            iterations=50,
            trials=2,
            rng=fixed(7),
        )
        for clip in (0.01, 0.1)
    ]
    assert [row["clipped"] for rows in ends for row in rows] == [1.0] * 4
    np.testing.assert_allclose(*([r["error"] for r in rows] for rows in ends), rtol=1e-5)


def test_seeds_differ():
    settings = experiment.grid({"some": 1.0}, [0.1])
    assert run(settings) == run(settings)
    assert run(settings) != run(settings, rng=fixed(8))


@pytest.mark.parametrize("trials", [1, 8, 9, 24, 100])
def test_pieces_hold_every_trial_once(trials):
    parts = experiment.pieces(trials, m=5)
    covered = [k for p in parts for k in range(p["piece"], p["piece"] + p["trials"])]
    assert covered == list(range(trials))
    assert all(p["m"] == 5 and 1 <= p["trials"] <= experiment.GROUP for p in parts)


def test_the_best_reach_has_the_least_mean():
    rng = np.random.default_rng(3)
    table = pd.DataFrame(
        [
            {"m": m, "noise": noise, "reach": reach, "error": rng.random()}
            for m in (1, 2)
            for noise in "ab"
            for reach in (0.1, 0.2, 0.4)
            for _ in range(4)
        ]
    )
    best = experiment.best_reaches(table, ["m", "noise"])
    for (m, noise), reach in best.items():
        part = table[(table["m"] == m) & (table["noise"] == noise)]
        means = {r: part[part["reach"] == r]["error"].mean() for r in (0.1, 0.2, 0.4)}
        assert means[reach] == min(means.values())


GOOD = experiment.grid({"none": 0.0}, [0.1])


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: experiment.pieces(0), ValueError, "trials"),
        (lambda: experiment.pieces(2.5), TypeError, "trials"),
        (lambda: run([]), ValueError, "settings"),
        (lambda: run(GOOD, rng=3), TypeError, "rng"),
        (lambda: run(GOOD, clip=0.0), ValueError, "clip"),
        (lambda: run(experiment.grid({"none": 0.0}, [0.0])), ValueError, "reach"),
        (lambda: run(experiment.grid({"bad": -1.0}, [0.1])), ValueError, "sigma"),
        (lambda: run(GOOD, iterations=0), ValueError, "iterations"),
        (
            lambda: experiment.best_reaches(pd.DataFrame({"reach": [1.0]}), ["m"]),
            ValueError,
            "error.*m",
        ),
    ],
)
def test_bad_input(call, error, message):
    with pytest.raises(error, match=message):
        call()


def rates(sigma, trials=600, m=40):
    """How often two settings once move alike, after step 1: with the odd record and without."""
    steps = [ConstantStep(0.1), DiminishingStep(2.0, 3.0)]
    odd = np.where(np.arange(m) == 0, 0.0, 1.0)[:, None]
    found = []
    for keep in (odd, np.ones_like(odd)):
        runs = gpope_runs_not_private(
            Statistics(keep[..., None], np.where(keep, 1.0, 5.0), keep[..., None]),
            Descent(steps, clip=1.0, iterations=m, at=range(1, m + 1)),
            sigma,
            np.random.default_rng(5),
            trials=trials,
        )
        gap = experiment.without_the_noise(runs, steps, m)[1:]
        found.append((abs(gap).max(axis=-1) < 1e-9).any(axis=0).mean())
    return found


@pytest.mark.parametrize("sigma", [1.0, 50.0])
def test_noise_that_settings_share_hides_nothing(sigma):
    """The attack that makes several settings no release: as often as the odd one is drawn."""
    present, absent = rates(sigma)
    drawn = 1 - (1 - 1 / 40) ** 39
    assert absent == 0
    assert abs(present - drawn) < 4 * (drawn * (1 - drawn) / 600) ** 0.5


def test_the_attack_needs_all_iterates_of_two_settings():
    runs = gpope_runs_not_private(
        data(),
        Descent(ConstantStep(1), clip=1.0, iterations=2, at=[1, 2]),
        1.0,
        np.random.default_rng(1),
    )
    with pytest.raises(ValueError, match="two settings"):
        experiment.without_the_noise(runs, [ConstantStep(1)], 2)
    with pytest.raises(ValueError, match=r"all iterates 1 \.\. 3"):
        experiment.without_the_noise(runs, [ConstantStep(1)] * 2, 3)
