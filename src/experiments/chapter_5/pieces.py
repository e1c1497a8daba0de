"""A piece of a larger run: its first oracle alone, as ``make verify SAMPLE=1`` computes it.

``python -m experiments.chapter_5.pieces --run C --folder EMPTY --records FOLDER`` computes, in some
minutes, rows that the tables of :mod:`experiments.chapter_5.runs` have of the first oracle of the
first cell. All trainings have seeds of their own, so that the rows are those of the whole run:

* of a study the oracle's learning curve, of ``learning-curves``;
* of a leak the scores of its models, members against held-out trajectories, of
  ``games-by-oracle``: those that draw no numbers for all models at once, as ``every-state`` does,
  and need no network that learns from other oracles.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import jax
import numpy as np
import pandas as pd

from companion import records
from companion.sweeps import save_checkpoint
from experiments.chapter_5 import games, leaks, study
from experiments.chapter_5.__main__ import LIBRARIES
from experiments.chapter_5.leaks import LeakSettings
from experiments.chapter_5.oracles import DataOracles
from experiments.chapter_5.runs import RUNS, Cell
from experiments.chapter_5.stages import Watch, integers
from experiments.chapter_5.study import StudySettings


def keep_first_oracle(of: StudySettings, folder: Path) -> DataOracles:
    """Train the first oracle alone, and keep it in the place of every oracle of the study.

    In this folder :func:`experiments.chapter_5.study.collect` then draws the random numbers of all
    oracles, so that what it collects for the first one is as in the whole study; what it collects
    for the others is not. The folder must be empty, so that no study finds these oracles.
    """
    if any(folder.glob("*")):
        raise FileExistsError(f"{folder} must be empty: no study is to find these oracles")
    kept = study._Stages(of, folder, Watch())  # where and with which seeds the study itself would
    one = study.train_oracles(of, integers(kept.seeds["oracles"], 1))
    state = jax.tree.map(lambda leaf: np.repeat(leaf, of.oracles, axis=0), one.state)
    returns = np.repeat(one.returns, of.oracles, axis=0)
    with kept._stage("oracles", of.ddpg_steps) as stage:
        save_checkpoint(stage.place / "oracles.npz", state)
        save_checkpoint(stage.place / "curve.npz", {"steps": one.steps, "returns": returns})
    return one


def learning_curve(of: StudySettings, folder: Path) -> pd.DataFrame:
    """The rows of the first oracle in the study's ``learning-curves``."""
    trained = keep_first_oracle(of, folder)
    return pd.DataFrame(
        {
            "environment": of.environment,
            "t_max": of.t_max,
            "algorithm": "DDPG",
            "oracle": 0,
            "step": trained.steps,
            "mean_return": trained.returns.mean(axis=2)[0],
        }
    )


def scores(cell: Cell, folder: Path) -> pd.DataFrame:
    """Rows of the first oracle in the leak's ``games-by-oracle``; the cell has a game."""
    whole, asked = cell.of, cell.game
    if not isinstance(whole, LeakSettings) or asked is None or whole.oracles[0] != 0:
        raise ValueError("scores are those of the first oracle of a leak with a game")
    keep_first_oracle(whole.study, folder)
    leak = leaks.run(replace(whole, oracles=(0,)), folder)
    game = games.of_leak(leak)
    found = games.score(game, replace(asked, network=None)) | games.ratios(leak)
    sides = games.LABELS["same-oracle"]
    rows = [
        [name, 0, float(np.mean(list(games._areas(game.kinds, values, *sides))))]
        for name, values in found.items()
        if not name.startswith("every-state")
    ]
    table = pd.DataFrame(rows, columns=["score", "oracle", "auc"])
    of = whole.study
    fixed: dict[str, str | float] = {
        "environment": of.environment,
        "t_max": of.t_max,
        "trajectories": whole.size,
        "random_share": of.mixture.random_share,
        "noise": of.mixture.noise,
        "updates": whole.updates[-1],
        "labels": "same-oracle",
    }
    for place, (name, value) in enumerate(fixed.items()):
        table.insert(place, name, value)
    return table


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; see the module."""
    parser = argparse.ArgumentParser(
        prog="python -m experiments.chapter_5.pieces",
        description="Compute what a larger run's tables say of its first oracle.",
    )
    parser.add_argument("--run", choices=RUNS, required=True)
    parser.add_argument("--folder", type=Path, required=True, help="empty, or not there yet")
    parser.add_argument("--records", type=Path, required=True, help="not data/results")
    options = parser.parse_args(argv)
    cell = RUNS[options.run][0]
    if isinstance(cell.of, StudySettings):
        name, table = "learning-curves", learning_curve(cell.of, options.folder)
    else:
        name, table = "games-by-oracle", scores(cell, options.folder)
    made_by = records.Command(
        f"{parser.prog} --run {options.run}",
        profile="laptop",
        libraries=LIBRARIES,
        device=jax.devices()[0].device_kind,
        folder=options.records,
    )
    records.keep(
        f"run-{options.run.lower()}-{name}",
        table.assign(cell=cell.name),
        made_by,
        seed=cell.study.seed,
        parameters={"cell": cell.name, "oracle": 0},
    )
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
