"""The experiment's table depends on its seed, not on who computes it."""

import pandas as pd
import pytest

from companion import sweeps
from experiments.chapter_3 import chain_trial, summarise

TASKS = [
    {
        "start": start,
        "batch_sizes": [100, 1_000],
        "runs": 3,
        "f_max": (1.0, 100.0),
        "epsilon": 0.1,
        "delta": 0.1,
        "ridges": {"tabular": [[10.0, 100.0], [30.0]], "aggregated": [[10.0], [30.0]]},
    }
    for start in ("first", "uniform")
]


def table(**options):
    return summarise(sweeps.run(chain_trial, TASKS, seed=7, label="workers", **options))


@pytest.fixture
def alone(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("DPRL_SCHEDULER", raising=False)
    return table(workers=1)


def test_two_workers_give_the_table_of_one(alone):
    pd.testing.assert_frame_equal(alone, table(workers=2), check_exact=True)


def test_a_dask_cluster_gives_the_table_of_one(alone, monkeypatch):
    distributed = pytest.importorskip("distributed", reason="the group `cluster` is not installed")
    with distributed.LocalCluster(
        n_workers=2, threads_per_worker=1, processes=False, dashboard_address=None
    ) as cluster:
        monkeypatch.setenv("DPRL_SCHEDULER", cluster.scheduler_address)
        pd.testing.assert_frame_equal(alone, table(), check_exact=True)


def test_another_seed_gives_another_table(alone):
    other = summarise(sweeps.run(chain_trial, TASKS, seed=8, workers=1, label="workers"))
    assert (alone["mean"] != other["mean"]).all()
