"""Private least squares on the chain: complete rows, and noise on A and b as it should be."""

import numpy as np
import pandas as pd
import pytest

from dprl.off_policy.saddle_point import BidiagonalStatistics, lstd
from dprl.privacy.gaussian_dp import gaussian_mu
from experiments.chapter_7.chain_lstd import KEYS, chain_trial, lstd_tasks, noisy_system

MUCH = 1e8  # an epsilon at which there is hardly any noise


def two_records():
    diagonal, above = np.array([[2.0, 1.0], [1.0, 1.0]]), np.array([[0.0], [0.5]])
    b = np.array([[1.0, 0.0], [0.0, 3.0]])
    return BidiagonalStatistics(diagonal, above, b, np.ones((2, 2)))


def test_without_noise_and_clipping_it_is_lstd():
    data = two_records()
    found = noisy_system(data, MUCH, 1e-5, 1e-9, np.random.default_rng(0))
    assert np.allclose(found, lstd(data), rtol=1e-3)


def test_its_noise_covers_two_radii(monkeypatch):
    """One number each, |(A_i, b_i)| = 5: the noise of b is 2 * 5 / (mu n)."""
    data = BidiagonalStatistics(
        np.full((100, 1), 4.0), np.empty((100, 0)), np.full((100, 1), 3.0), np.ones((100, 1))
    )
    monkeypatch.setattr(np.linalg, "solve", lambda a, b: b)
    rng = np.random.default_rng(0)
    seen = [noisy_system(data, 1.0, 1e-5, 0.5, rng)[0] for _ in range(4000)]
    assert np.mean(seen) == pytest.approx(3.0, abs=0.1)
    assert np.std(seen) == pytest.approx(10 / (100 * gaussian_mu(1.0, 1e-5)), rel=0.05)


def test_rows_are_complete_and_repeat():
    task = {"start": "first", "n": 2000, "run": 3, "n_states": 5}
    rows = pd.DataFrame(chain_trial(task, np.random.SeedSequence(1)))
    assert not rows.duplicated(KEYS).any()
    assert (rows["run"] == 3).all()
    again = pd.DataFrame(chain_trial(task, np.random.SeedSequence(1)))
    pd.testing.assert_frame_equal(rows, again)


def test_privacy_costs_and_pays():
    """Over runs: in one alone, noise may happen to help."""
    task = {"start": "first", "n": 2000, "run": 0, "n_states": 5}
    runs = [pd.DataFrame(chain_trial(task, np.random.SeedSequence(k))) for k in range(6)]
    squares = pd.concat(runs).assign(square=lambda t: t["rmse"] ** 2)
    error = squares.groupby("method")["square"].mean()
    assert error["LSTD"] < error["private LSTD"] < error["noise on A and b"] < error["nothing"]


def test_tasks_add_up_to_the_runs():
    tasks = lstd_tasks({100: 2, 1000: 1})
    assert sum(t["n"] == 100 for t in tasks) == 4
    assert len({tuple(t.values()) for t in tasks}) == len(tasks) == 6
