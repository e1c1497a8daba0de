"""Attacks and a defence as one would do them today: ``python -m experiments.chapter_5.today``.

========  ==============================================================================
run       what is computed
========  ==============================================================================
shadows   LiRA and RMIA, shadows of the own pool or of another oracle
          (:mod:`experiments.chapter_5.shadow_tables`), M = 20, 100 and 400
audit     ORL-Auditor (:mod:`experiments.chapter_5.dataset_audit`)
private   BCQ from noisy gradients (:mod:`experiments.chapter_5.private_models`)
========  ==============================================================================

With ``--size small`` a run takes minutes on two cores, and its tables have names that end in
"-small"; with ``--size large`` it takes hours. Both are kept under ``data/results/laptop``. What
was computed before is used. The rules by which the large ones are read stand on the pages, and were
fixed before the runs.
"""

from __future__ import annotations

import argparse
import dataclasses
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import jax
import pandas as pd

from companion import records
from dprl.agents.bcq import BCQSettings
from dprl.agents.private_bcq import PrivateSettings
from experiments.chapter_5 import dataset_audit, leaks, private_models, shadow_tables, sizes
from experiments.chapter_5.dataset_audit import AuditRun
from experiments.chapter_5.leaks import LeakSettings
from experiments.chapter_5.private_models import PrivateRun

_STUDY = replace(sizes.LAPTOP_STUDY, trajectories=1_000, name="Hopper-v5-50-today")

#: Leaks of the run "shadows".
SHADOWS = {
    "small": (sizes.LEAK,),
    "large": tuple(
        LeakSettings(
            _STUDY,
            oracles=(0, 1, 2, 3),
            size=size,
            models=8,
            twins=0,
            updates=(3_000,),
            fresh=1_000,
        )
        for size in (20, 100, 400)
    ),
}

_SMALL_NETS = BCQSettings(
    hidden=(32, 32), vae_hidden=(64, 64), candidates=5, acting_candidates=20, batch_size=8
)


def _private(base: PrivateRun, sizes_of_pool: tuple[int, ...]) -> tuple[PrivateRun, ...]:
    """Fifty trajectories in a step on average, or all of fewer."""
    return tuple(
        replace(
            base,
            size=m,
            learner=replace(base.learner, rate=min(50 / m, 1.0), divisor=float(min(50, m))),
        )
        for m in sizes_of_pool
    )


#: Private trainings of the run "private".
PRIVATE = {
    "small": _private(
        PrivateRun(
            replace(sizes.STUDY, trajectories=500, name="Hopper-v5-50-private"),
            oracles=(0, 1, 2, 3),
            size=20,
            learner=PrivateSettings(_SMALL_NETS),
            steps=1_000,
        ),
        (20, 500),
    ),
    "large": _private(
        PrivateRun(
            _STUDY,
            oracles=tuple(range(8)),
            size=20,
            learner=PrivateSettings(_SMALL_NETS),
            steps=1_000,
            models=6,
        ),
        (20, 100, 400, 1_000),
    ),
}

#: Audits of the run "audit".
AUDIT = {
    "small": AuditRun(sizes.STUDY, oracles=(0, 1)),
    "large": AuditRun(sizes.LAPTOP_STUDY, oracles=tuple(range(8)), shadows=15),
}


def shadows(size: str, folder: Path, first: int | None) -> tuple[dict[str, pd.DataFrame], object]:
    """The table ``attacks-today``, and the settings it was made with."""
    chosen = SHADOWS[size][:first]
    measured = [leaks.run(one, folder) for one in chosen]
    found = pd.concat([shadow_tables.table(one) for one in measured], ignore_index=True)
    found.attrs["seconds"] = sum(one.seconds for one in measured)
    return {"attacks-today": found}, [dataclasses.asdict(one) for one in chosen]


def audit(size: str, folder: Path, first: int | None) -> tuple[dict[str, pd.DataFrame], object]:
    """The table ``orl-auditor`` with what it took, and the settings it was made with."""
    chosen = replace(AUDIT[size], oracles=AUDIT[size].oracles[:first])
    found = dataset_audit.table(chosen, folder)
    return {"orl-auditor": found}, dataclasses.asdict(chosen)


def private(size: str, folder: Path, first: int | None) -> tuple[dict[str, pd.DataFrame], object]:
    """The table ``private-bcq`` with what it took, and the settings it was made with."""
    chosen = [replace(one, epsilons=one.epsilons[:first]) for one in PRIVATE[size][:first]]
    parts = [private_models.table(one, folder) for one in chosen]
    about = [dataclasses.asdict(one) for one in chosen]
    seconds = sum(part.attrs.pop("seconds") for part in parts)
    found = pd.concat(parts, ignore_index=True)
    found.attrs["seconds"] = seconds
    return {"private-bcq": found}, about


Run = Callable[[str, Path, int | None], tuple[dict[str, pd.DataFrame], object]]
RUNS: dict[str, Run] = {"shadows": shadows, "audit": audit, "private": private}
_SUFFIX = {"small": "-small", "large": ""}
_LIBRARIES = ("jax", "jaxlib", "optax", "mujoco", "gymnasium", "numpy", "dp-accounting", "scipy")


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; see the module."""
    parser = argparse.ArgumentParser(
        prog="python -m experiments.chapter_5.today",
        description="Attacks and a defence as one would do them today; records the tables.",
    )
    parser.add_argument("--run", choices=RUNS, required=True)
    parser.add_argument("--size", choices=tuple(_SUFFIX), default="large")
    parser.add_argument("--folder", type=Path, default=Path("_build/membership"))
    parser.add_argument("--records", type=Path, default=None, help="instead of data/results")
    parser.add_argument(
        "--first",
        type=int,
        default=None,
        help="only so many leaks, audited oracles, or private pools and their epsilons; "
        "needs --records",
    )
    options = parser.parse_args(argv)
    if options.first is not None and (options.first < 1 or options.records is None):
        parser.error("--first is a number of at least 1, and its table is kept under --records")
    tables, about = RUNS[options.run](options.size, options.folder, options.first)
    made_by = records.Command(
        f"{parser.prog} --run {options.run} --size {options.size}",
        profile="laptop",
        libraries=_LIBRARIES,
        device=jax.devices()[0].device_kind,
        folder=options.records,
    )
    for name, table in tables.items():
        records.keep(
            name + _SUFFIX[options.size],
            table,
            made_by,
            seed=sizes.LEAK.seed,
            parameters={"settings": about},
            seconds=table.attrs["seconds"],
        )
        print(table.round(3).to_string(index=False), file=sys.stdout)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
