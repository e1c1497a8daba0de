"""The experiment's table: reproducible, complete, and its numbers those of the algorithms."""

import numpy as np
import pandas as pd
import pytest

from dprl.features import aggregation, tabular
from dprl.mdp import Chain
from dprl.private_evaluation import LSW
from experiments.chapter_3 import (
    FEATURES,
    KEYS,
    chain_features,
    chain_trial,
    summarise,
)

TASK = {
    "start": "first",
    "batch_sizes": [50, 200],
    "ridges": {"tabular": [(5.0, 50.0), (5.0, 50.0)], "aggregated": [(9.0,), (9.0,)]},
    "f_max": (1.0, 100.0),
    "epsilon": 0.1,
    "delta": 0.1,
    "runs": 30,
    "chain": {"n_states": 6},
}


@pytest.fixture(scope="module")
def table():
    return chain_trial(TASK, np.random.SeedSequence(7))


def select(frame, **wanted):
    keep = np.ones(len(frame), bool)
    for name, value in wanted.items():
        keep &= (frame[name] == value).to_numpy()
    return frame[keep]


def test_the_table_has_one_row_for_each_run_of_each_curve(table):
    assert list(table.columns) == [*KEYS, "run", "value"]
    sizes = table.groupby(KEYS, dropna=False)["run"].agg(["count", "nunique"])
    assert (sizes == 30).all(axis=None)
    # per batch size: LSW 1 + DP-LSW 2 x 2, and per ridge LSL 1 + DP-LSL 2 x 2
    assert len(sizes) == 2 * (2 * 5 + 3 * 5)
    assert np.isfinite(table["value"]).all()
    assert (table["value"] >= 0).all()


def test_same_seed_same_table(table):
    pd.testing.assert_frame_equal(chain_trial(TASK, np.random.SeedSequence(7)), table)
    other = chain_trial(TASK, np.random.SeedSequence(8))
    assert not np.allclose(other["value"], table["value"])


def test_the_summary_is_mean_and_standard_error_over_all_runs(table):
    second = chain_trial(TASK, np.random.SeedSequence(8))
    summary = summarise([table, second])
    assert (summary["runs"] == 60).all()
    wanted = {"algorithm": "DP-LSW", "features": "tabular", "f_max": 1.0, "batch_size": 200}
    row = select(summary, metric="rmse", **wanted)
    values = pd.concat([select(x, metric="rmse", **wanted)["value"] for x in (table, second)])
    assert row["mean"].item() == pytest.approx(values.mean())
    assert row["standard_error"].item() == pytest.approx(values.std(ddof=1) / np.sqrt(60))


def test_without_privacy_lsw_has_the_error_that_theory_predicts(table):
    """Tabular, from state 1: E[RMSE^2] = mean variance / m; |z| < 5."""
    for m in TASK["batch_sizes"]:
        wanted = {"algorithm": "LSW", "features": "tabular", "batch_size": m}
        squared = select(table, metric="rmse", **wanted)["value"] ** 2
        expected = Chain(6, start="first").return_variance().mean() / m
        assert abs(squared.mean() - expected) < 5 * squared.std() / np.sqrt(30)


def test_private_excess_risk_is_the_noise(table):
    """Lemma 3.13: E[excess] = sigma^2 ||Phi||_F^2 with w = 1; counts are all m; |z| < 5."""
    for name, phi in (("tabular", tabular(6)), ("aggregated", aggregation(6))):
        for f_max in TASK["f_max"]:
            wanted = {"algorithm": "DP-LSW", "features": name, "f_max": f_max, "batch_size": 200}
            excess = select(table, metric="excess_empirical_risk", **wanted)["value"]
            noise = LSW(phi, np.ones(6), f_max=f_max).noise([200] * 6, epsilon=0.1, delta=0.1)
            expected = noise.sigma**2 * (phi**2).sum()
            assert abs(excess.mean() - expected) < 5 * excess.std() / np.sqrt(30)


def test_features_by_name():
    assert FEATURES == ("tabular", "aggregated", "aggregated-orthonormal")
    assert chain_features("tabular", 4).shape == (4, 4)
    assert (chain_features("aggregated", 4) == aggregation(4)).all()
    orthonormal = chain_features("aggregated-orthonormal", 4)
    assert orthonormal.T @ orthonormal == pytest.approx(np.eye(2))
    with pytest.raises(ValueError, match="features must be one of"):
        chain_features("fourier", 4)
