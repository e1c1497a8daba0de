"""The larger runs of chapter 5: ``python -m experiments.chapter_5 --run A``.

Each answers a question whose rule of decision was written down before
(:mod:`experiments.chapter_5.decisions`):

===  ============================================================================
run  what is computed
===  ============================================================================
A    Hopper, T_max 50, M = 400: models looked at from 3,000 to 60,000 updates
B    the oracles of A; M = 20 and 100, 8 models an oracle, 20 roll-outs a model
C    four of them; M = 20, four kinds of exploration noise in the data
D    the ten cells of table 5.2: 16 oracles, M = 400 at every T_max
E    the cell of A with networks of the published sizes; 500,000 steps, 300,000 updates
===  ============================================================================

A training uses all cores by itself (:mod:`dprl.agents.parallel`): one process a run.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from companion.sweeps import code_of, fingerprint
from dprl._validation import FloatArray, IntArray
from dprl.agents import environments
from dprl.agents.bcq import BCQSettings
from dprl.agents.ddpg import DDPGSettings
from dprl.agents.environments import Task
from dprl.agents.episodes import Episodes
from dprl.membership import metrics
from dprl.membership.attacks.resnet import ResNetSettings
from dprl.membership.attacks.tcn import TCNSettings
from experiments.chapter_5 import games, leak_tables, leaks, oracles, pair_attacks, study
from experiments.chapter_5.games import Game, GameSettings
from experiments.chapter_5.leaks import Leak, LeakSettings
from experiments.chapter_5.oracles import Mixture
from experiments.chapter_5.pair_attacks import AttackSettings
from experiments.chapter_5.sizes import TABLE_5_2, clipping_lengths
from experiments.chapter_5.stages import Watch, computed_once, split_evenly
from experiments.chapter_5.study import Study, StudySettings

#: Steps of an episode in the environments' own benchmarks.
BENCHMARK_STEPS = 1_000


@dataclass(frozen=True)
class Cell:
    """One part of a run: a study, or models of random halves of an oracle's pool.

    The game is what is asked of the models: of a leak at the end, of a study after each of
    ``asked_after``, numbers of ``bcq_evaluated_at`` or ``bcq_updates``; the attacks of table 5.2
    are on a study.
    """

    of: StudySettings | LeakSettings
    game: GameSettings | None = None
    asked_after: tuple[int, ...] = ()
    attacks: AttackSettings | None = None

    @property
    def name(self) -> str:
        """Of the study, with M for a leak."""
        return self.of.name

    @property
    def study(self) -> StudySettings:
        """The study whose oracles are used."""
        return self.of.study if isinstance(self.of, LeakSettings) else self.of


_A_EVALUATED_AT = (3_000, 6_000, 15_000, 30_000)
_A = StudySettings(
    "Hopper-v5",
    50,
    oracles=8,
    ddpg=replace(DDPGSettings.laptop(), capacity=200_000),
    ddpg_steps=200_000,
    trajectories=400,
    bcq=BCQSettings.laptop(),
    bcq_updates=60_000,
    bcq_evaluated_at=_A_EVALUATED_AT,
    evaluate_every=10_000,
)
_B = LeakSettings(
    _A, oracles=tuple(range(8)), size=20, models=8, twins=0, updates=(3_000, 10_000), fresh=400
)
_D = tuple(
    StudySettings(
        name,
        t_max,
        oracles=16,
        ddpg=DDPGSettings.laptop(),
        ddpg_steps=100_000,
        trajectories=400,
        bcq=BCQSettings.laptop(),
        bcq_updates=30_000,
        bcq_evaluated_at=(3_000, 10_000),
        evaluate_every=10_000,
    )
    for name, lengths in TABLE_5_2.items()
    for t_max in lengths
)
# the smaller of two readings of the thesis; twelve minutes of one GPU
_E = replace(
    _A,
    oracles=4,
    ddpg=DDPGSettings.paper(),
    ddpg_steps=500_000,
    bcq=BCQSettings.paper(),
    bcq_updates=300_000,
    bcq_evaluated_at=(3_000, 50_000, 100_000, 150_000, 200_000, 250_000),
    evaluate_every=50_000,
)


def _attacks(of: StudySettings) -> AttackSettings:
    lengths = clipping_lengths(of)
    resnet = ResNetSettings(width=16, steps=320) if lengths else None
    return AttackSettings(
        tcn=TCNSettings.narrow(), most_steps=3_600, lengths=lengths, resnet=resnet
    )


#: Kinds of exploration in the data of run C: share of random actions, standard deviation.
MIXTURES = ((0.0, 0.1), (0.0, 0.3), (0.3, 0.1), (0.3, 0.3))
_NO_NETWORK = GameSettings(rollouts=5, network=None)

#: The cells of each run, in the order in which they are computed.
RUNS: dict[str, tuple[Cell, ...]] = {
    "A": (Cell(_A, GameSettings(), (*_A_EVALUATED_AT, _A.bcq_updates)),),
    "B": tuple(Cell(replace(_B, size=size), GameSettings(rollouts=20)) for size in (20, 100)),
    "C": tuple(
        Cell(
            LeakSettings(
                replace(
                    _A, mixture=Mixture(share, noise), name=f"Hopper-v5-50-{share:g}-{noise:g}"
                ),
                oracles=(0, 1, 2, 3),
                size=20,
                models=8,
                twins=0,
                updates=(5_000,),
            ),
            _NO_NETWORK,
        )
        for share, noise in MIXTURES
    ),
    "D": tuple(
        Cell(one, replace(_NO_NETWORK, rollouts=1), (one.bcq_updates,), _attacks(one))
        for one in sorted(_D, key=lambda one: one.t_max)
    ),
    "E": (Cell(_E, GameSettings(), (3_000, _E.bcq_updates)),),
}


# -- computing --------------------------------------------------------------------------


def compute(
    cell: Cell,
    folder: Path,
    watch: Watch = Watch(),  # noqa: B008 - it cannot change
) -> tuple[dict[str, pd.DataFrame], dict[str, Any]]:
    """Compute what is missing of a cell; the folder is that of the studies.

    Returns its tables by name, and what they depend on, with seconds. Of a study
    ``learning-curves``, with attacks also the tables of :mod:`experiments.chapter_5.pair_attacks`;
    of a leak ``leak``, and with twins ``twins`` (:mod:`experiments.chapter_5.leak_tables`). With a
    game ``games`` and ``games-by-oracle`` (:func:`experiments.chapter_5.games.table`) and
    ``scale``; a study without one has ``leak``.

    ``scale`` has a row for the oracles of a study and one for the models after each number of
    updates: ``environment, t_max, algorithm, steps`` (of the environment, or updates), ``epochs``
    of a model, ``agents``; of greedy episodes up to T_max ``return_mean, return_low, return_high``
    (undiscounted; 95 % intervals over oracles) and ``return_per_step``, reward by step; and
    the same four with ``benchmark`` for episodes of up to :data:`BENCHMARK_STEPS` steps, which
    published returns are of. Raises ``OutOfTime`` as :func:`experiments.chapter_5.study.run`.
    """
    tables = dict[str, pd.DataFrame]()
    about: dict[str, Any] = {"settings": dataclasses.asdict(cell.of)}
    if isinstance(cell.of, LeakSettings):
        leak = leaks.run(cell.of, folder, watch)
        tables["leak"] = leak_tables.attack_table(leak)
        if cell.of.twins:
            tables["twins"] = leak_tables.twin_table(leak)
        seconds = {"leak": leak.seconds}
    else:
        done = study.run(cell.of, folder, watch)
        seconds = dict(done.seconds)
        if cell.attacks is not None:
            found = pair_attacks.run(done, cell.attacks, watch)
            seconds |= found.seconds
            about["attacks"] = dataclasses.asdict(cell.attacks)
            tables |= pair_attacks.tables(found)
        tables["learning-curves"] = done.curve
        if cell.game is None:
            tables["leak"] = leak_tables.study_table(done)
    if cell.game is not None:
        about["game"] = dataclasses.asdict(cell.game)
        if isinstance(cell.of, LeakSettings):
            played, seconds["games"] = _leak_game(leak, cell.game, folder, watch)
        else:
            played, seconds["games"] = _study_games(done, cell.game, cell.asked_after, watch)
        tables |= played
    return tables, about | {"seconds": {name: round(spent, 1) for name, spent in seconds.items()}}


def _study_games(
    done: Study, asked: GameSettings, asked_after: tuple[int, ...], watch: Watch
) -> tuple[dict[str, pd.DataFrame], float]:
    parts, total = [], 0.0
    for number, updates in enumerate(asked_after):
        watch.report("games", number, len(asked_after))
        key = fingerprint(code_of(games.score, games.table, _study_scale), asked, updates)
        with computed_once(done.folder / f"game-{key}", watch) as kept:
            if not kept.done:
                game = games.of_study(done, updates)
                tables = games.table(game, games.score(game, asked))
                _keep(kept.place, {**tables, "scale": _study_scale(done, updates, game)})
            parts.append(_read(kept.place, {"updates": updates}))
        total += kept.seconds
    watch.report("games", len(asked_after), len(asked_after))
    joined = {name: pd.concat([one[name] for one in parts], ignore_index=True) for name in parts[0]}
    joined["scale"] = joined["scale"].drop_duplicates(ignore_index=True)
    return joined, total


def _leak_game(
    leak: Leak, asked: GameSettings, folder: Path, watch: Watch
) -> tuple[dict[str, pd.DataFrame], float]:
    settings = leak.settings
    key = fingerprint(code_of(leaks.run, games.score, games.table, _leak_scale), settings, asked)
    with computed_once(folder / f"leak-game-{settings.name}-{key}", watch) as kept:
        if not kept.done:
            watch.report("games", 0, 1)
            game = games.of_leak(leak)
            tables = games.table(game, games.score(game, asked))
            ratios = games.table(game, games.ratios(leak), ("same-oracle",))
            tables = {
                name: pd.concat([one, ratios[name]], ignore_index=True)
                for name, one in tables.items()
            }
            _keep(kept.place, {**tables, "scale": _leak_scale(leak, game)})
            watch.report("games", 1, 1)
    fixed = {
        "trajectories": settings.size,
        "random_share": settings.study.mixture.random_share,
        "noise": settings.study.mixture.noise,
        "updates": settings.updates[-1],
    }
    return _read(kept.place, fixed), kept.seconds  # the clock is read when the block has ended


def _keep(place: Path, tables: dict[str, pd.DataFrame]) -> None:
    for name, one in tables.items():
        one.to_csv(place / f"{name}.csv", index=False)


def _read(place: Path, fixed: Mapping[str, float]) -> dict[str, pd.DataFrame]:
    """The tables that :func:`_keep` wrote; columns that are the same in all rows before them."""
    found = {}
    for name in ("games", "games-by-oracle", "scale"):
        one = pd.read_csv(place / f"{name}.csv")
        for column, value in reversed(list(fixed.items())):
            if name != "scale" or column != "updates":  # there they are the "steps"
                one.insert(2, column, value)
        found[name] = one
    return found


# -- scale ------------------------------------------------------------------------------


def _study_scale(done: Study, updates: int, game: Game) -> pd.DataFrame:
    transitions = [len(half.transitions()) for pair in done.inputs for half in pair]
    settings = done.settings
    policy = done.oracles.population_policy()

    def run_oracles(starts: FloatArray, task: Task) -> list[Episodes]:
        every = np.tile(starts, (settings.oracles, 1))
        found = environments.rollout(task.environment, policy, every, task.t_max)
        return split_evenly(found, settings.oracles)

    of_oracles = _reached(settings, "DDPG", np.arange(settings.oracles), run_oracles)
    of_oracles |= {"steps": settings.ddpg_steps, "epochs": np.nan}
    return pd.DataFrame([of_oracles, _model_row(settings, game, updates, transitions)])


def _leak_scale(leak: Leak, game: Game) -> pd.DataFrame:
    transitions = [
        len(pool.select(mask).transitions())
        for pool, masks in zip(leak.pools, leak.members, strict=True)
        for mask in masks
    ]
    settings = leak.settings
    return pd.DataFrame([_model_row(settings.study, game, settings.updates[-1], transitions)])


def _model_row(
    settings: StudySettings, game: Game, updates: int, transitions: Sequence[int]
) -> dict[str, object]:
    def run_models(starts: FloatArray, task: Task) -> list[Episodes]:
        return oracles.query_outputs(game.models, starts, task, seed=settings.seed)

    epochs = updates * settings.bcq.batch_size / float(np.mean(transitions))
    row = _reached(settings, "BCQ", game.oracle, run_models)
    return row | {"steps": updates, "epochs": epochs}


def _reached(
    settings: StudySettings,
    algorithm: str,
    owner: IntArray,
    run: Callable[[FloatArray, Task], list[Episodes]],
) -> dict[str, object]:
    """Returns up to T_max and up to the benchmarks' length, with intervals over oracles."""
    starts = environments.draw_initial_states(
        settings.environment,
        settings.evaluation_episodes,
        np.random.default_rng(np.random.SeedSequence(1)),
    )
    row: dict[str, object] = {
        "environment": settings.environment,
        "t_max": settings.t_max,
        "algorithm": algorithm,
        "steps": 0,
        "epochs": 0.0,
        "agents": owner.size,
    }
    for name, length in (("return", settings.t_max), ("benchmark", BENCHMARK_STEPS)):
        found = run(starts, Task(settings.environment, length))
        means = [float(one.returns.mean()) for one in found]
        of = metrics.clustered_interval(means, owner)
        row |= {f"{name}_mean": of.mean, f"{name}_low": of.low, f"{name}_high": of.high}
        steps = sum(int(one.lengths.sum()) for one in found)
        row[f"{name}_per_step"] = sum(float(one.returns.sum()) for one in found) / steps
    return row
