"""A sweep on a Dask cluster beside joblib: what the scheduler costs.

Usage: python benchmarks/schedulers.py [--record]

Executes the page with figures 4.2 to 4.5 at its quick size, once for each scheduler and number of
workers, and reads the seconds of its sweep from what it records. The tables must be
equal. Needs the dependency group ``cluster``. --record keeps the table in data/results/laptop.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
from pathlib import Path

import pandas as pd
from distributed import LocalCluster

from companion import records
from companion.build import execution
from companion.files import find_root

PAGE = "4-subsampling/experiments"
WORKERS = (1, 2)


def run(workers: int, scheduler: str = "") -> tuple[float, dict[str, bytes]]:
    """Seconds of the page's sweep, and the tables that it records."""
    os.environ["DPRL_SCHEDULER"] = scheduler
    with tempfile.TemporaryDirectory() as folder:
        made = Path(folder)
        page = execution.PageRun(find_root(), PAGE, "quick", workers=workers, results_dir=made)
        execution.execute_page(page)
        tables = {path.name: path.read_bytes() for path in made.rglob("*.csv")}
        origins = [json.loads(path.read_text()) for path in made.rglob("*.json")]
    return max(origin["seconds"] for origin in origins), tables


def on_dask(workers: int) -> tuple[float, dict[str, bytes]]:
    """The same on a cluster of this machine, one thread to a worker."""
    with LocalCluster(n_workers=workers, threads_per_worker=1, dashboard_address=None) as cluster:
        return run(workers, cluster.scheduler_address)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--record", action="store_true", help="keep the table")
    options = parser.parse_args()
    rows, expected = [], None
    for workers in WORKERS:
        for name, call in (("joblib", run), ("dask", on_dask)):
            seconds, tables = call(workers)
            expected = expected or tables
            assert tables == expected, f"{name} with {workers} workers: other numbers"
            rows.append({"scheduler": name, "workers": workers, "seconds": seconds})
            print(f"{name}, {workers} workers: {seconds:.1f} s", flush=True)
    table = pd.DataFrame(rows)
    if options.record:
        records.keep(
            "speed-schedulers",
            table,
            records.Command(
                "python benchmarks/schedulers.py --record",
                "laptop",
                libraries=["joblib", "distributed"],
                device="cpu",
            ),
            seed=None,
            parameters={"page": PAGE},
        )


if __name__ == "__main__":
    main()
