r"""A study: the thesis's experiment for one environment and one T_max, computed once.

A :class:`Cell` names everything a study depends on. :func:`run` computes it in four stages,

1. *oracles*: O DDPG agents with different initial parameters and data;
2. *inputs*: each collects two halves of M trajectories from one list of initial states;
3. *models*: one BCQ model on each half; model 2 o + h has seen half h of oracle o;
4. *outputs*: the greedy roll-out of each model from each initial state,

and keeps each stage in a folder of its own. The folder's name is a fingerprint of the
settings that the stage depends on and of the code of the modules that computed it, so a
changed setting or a changed line of an algorithm computes again what depends on it, and
nothing else. A stage that was interrupted goes on from its checkpoint. Two processes that
ask for the same stage at the same time do not compute it twice: the second waits.

The thesis trains two oracles and one model for the shadow, the same for the target. Here
every choice of distinct oracles from one population is such an experiment, so that it can be
repeated over *draws* of oracles (:mod:`experiments.chapter_5.evaluation`).

Sources: thesis, sections 5.5 and 5.6; figure 5.4 for the learning curves.
"""

from __future__ import annotations

import ast
import dataclasses
import itertools
import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from types import ModuleType

import numpy as np
import pandas as pd

from dprl import _validation as check
from dprl._validation import FloatArray
from dprl.agents import bcq, checkpoints, ddpg, environments, episodes, networks
from dprl.agents.bcq import BCQPopulation, BCQSettings
from dprl.agents.checkpoints import Deadline, fingerprint, locked
from dprl.agents.ddpg import DDPGPopulation, DDPGSettings
from dprl.agents.episodes import Episodes
from experiments.chapter_5 import oracles
from experiments.chapter_5.oracles import Mixture

PROFILES = ("quick", "laptop", "paper")
#: The maximum lengths of table 5.2.
TABLE_5_2 = {"Hopper-v5": (10, 50, 100, 200, 500), "HalfCheetah-v5": (10, 30, 50, 100, 200)}
#: Steps of an oracle and updates of a model in the thesis (section 5.7.2).
STEPS_OF_THE_THESIS = 1_000_000

# CPython 3.11 counts the depth of a tree in one place for all threads: two that parse at the
# same time may end with "SystemError: AST constructor recursion depth mismatch"
_PARSING = threading.Lock()

#: Called with a stage's name, what is done of it and what is to be done.
Progress = Callable[[str, int, int], None]


@dataclass(frozen=True)
class Cell:
    """Everything that a study depends on.

    Parameters
    ----------
    environment : str
        One of :data:`dprl.agents.environments.NAMES`.
    t_max : int
        Maximum length of an episode, in training and in all roll-outs; >= 1.
    oracles : int
        O, number of data oracles; >= 4, so that a draw of distinct oracles exists.
    ddpg : DDPGSettings
    ddpg_steps : int
        Environment steps of each oracle, one update each after the warm-up.
    trajectories : int
        M, trajectories of one half; >= 2.
    bcq : BCQSettings
    bcq_updates : int
        Updates of each model.
    mixture : Mixture
        How the oracles explore when they collect.
    timeout_is_terminal : bool
        Whether the learners take the end of time for an absorbing state.
    evaluate_every : int
        Steps between two points of a learning curve.
    evaluation_episodes : int
        Greedy episodes per point and agent.
    bcq_looks : tuple of int
        Updates, before the last, after which the models are run, too: rising multiples of
        :data:`dprl.agents.bcq.CHUNK` below ``bcq_updates``.
    seed : int
        Of everything.
    name : str
        What to call it; it changes no result. By default environment and T_max.

    Raises
    ------
    TypeError, ValueError
        If a value is malformed.

    Examples
    --------
    >>> cell = cells("quick")[0]
    >>> cell.name, cell.oracles, cell.trajectories
    ('Hopper-v5-50', 6, 100)
    """

    environment: str
    t_max: int
    oracles: int
    ddpg: DDPGSettings
    ddpg_steps: int
    trajectories: int
    bcq: BCQSettings
    bcq_updates: int
    mixture: Mixture = field(default_factory=Mixture)
    timeout_is_terminal: bool = False
    evaluate_every: int = 5_000
    evaluation_episodes: int = 10
    bcq_looks: tuple[int, ...] = ()
    seed: int = 5
    name: str = ""

    def __post_init__(self) -> None:
        environments.environment(self.environment)
        check.whole("oracles", self.oracles, 4)
        check.whole("trajectories", self.trajectories, 2)
        check.seed(self.seed)
        for name in ("t_max", "ddpg_steps", "bcq_updates", "evaluate_every", "evaluation_episodes"):
            check.whole(name, getattr(self, name))
        check.instance("ddpg", self.ddpg, DDPGSettings)
        check.instance("bcq", self.bcq, BCQSettings)
        check.instance("mixture", self.mixture, Mixture)
        check.instance("timeout_is_terminal", self.timeout_is_terminal, bool)
        check.instance("bcq_looks", self.bcq_looks, tuple)
        for look in self.bcq_looks:
            check.whole("each of bcq_looks", look)
        ends = (*self.bcq_looks, self.bcq_updates)
        if any(a >= b for a, b in itertools.pairwise(ends)) or any(
            look % bcq.CHUNK for look in self.bcq_looks
        ):
            raise ValueError(
                f"bcq_looks must be rising multiples of {bcq.CHUNK} below "
                f"{self.bcq_updates} updates, got {self.bcq_looks}"
            )
        if not self.name:
            object.__setattr__(self, "name", f"{self.environment}-{self.t_max}")

    @property
    def models(self) -> int:
        """Number of BCQ models, 2 O."""
        return 2 * self.oracles


@dataclass(frozen=True, eq=False)
class Study:
    """What :func:`run` computed.

    Attributes
    ----------
    cell : Cell
    folder : Path
        Of this study, for what others compute from it.
    curve : DataFrame
        Learning curves: ``environment, t_max, algorithm, oracle, step, mean_return`` (of
        greedy episodes, undiscounted). Algorithm ``DDPG``: the data oracles. ``BCQ``: the mean
        over the two models of each oracle, after each look (``evaluation_episodes`` of the
        initial states) and at the end (the outputs: all of them).
    initial_states : ndarray, shape (M, k)
        Physics states, shared by all oracles and halves.
    oracles : DDPGPopulation
        The data oracles.
    inputs : list of list of Episodes
        ``[oracle][half]``: what the model of this oracle and half was trained on.
    models : BCQPopulation
        Model 2 o + h has seen half h of oracle o.
    outputs : list of list of Episodes
        ``[oracle][half]``: the greedy roll-outs of that model.
    seconds : dict
        What each stage took, in all its pieces.
    """

    cell: Cell
    folder: Path
    curve: pd.DataFrame
    initial_states: FloatArray
    oracles: DDPGPopulation
    inputs: list[list[Episodes]]
    models: BCQPopulation
    outputs: list[list[Episodes]]
    seconds: dict[str, float]


# -- which cells there are --------------------------------------------------------------


def cells(profile: str) -> list[Cell]:
    """The studies of a profile, in the order in which they are worth computing.

    Parameters
    ----------
    profile : str
        ``quick``: one cell, for pages (minutes on two cores); BCQ's targets choose among 5
        proposals instead of 10. ``laptop``: six cells, within an hour on two cores with
        their attacks and leaks. ``paper``: network sizes of the thesis; first two cells of 8
        oracles at half the thesis's steps (names end in ``-reduced``), then all ten of
        table 5.2 at one million steps and updates. They need a GPU.

    Raises
    ------
    ValueError
        If there is no such profile.

    Examples
    --------
    >>> [cell.name for cell in cells("laptop")]  # doctest: +NORMALIZE_WHITESPACE
    ['Hopper-v5-50', 'Hopper-v5-100', 'HalfCheetah-v5-50', 'Hopper-v5-10',
     'HalfCheetah-v5-100', 'Hopper-v5-200']
    >>> len(cells("paper"))
    12
    """
    if profile == "quick":
        return [
            Cell(
                "Hopper-v5",
                50,
                oracles=6,
                ddpg=DDPGSettings.laptop(),
                ddpg_steps=15_000,
                trajectories=100,
                bcq=dataclasses.replace(BCQSettings.laptop(), candidates=5),
                bcq_updates=2_000,
                bcq_looks=(200, 600, 1_200),
            )
        ]
    if profile == "laptop":
        return [
            Cell(
                name,
                t_max,
                oracles=8,
                ddpg=DDPGSettings.laptop(),
                ddpg_steps=20_000,
                trajectories=200 if t_max == 200 else 400,
                bcq=BCQSettings.laptop(),
                bcq_updates=3_000,
            )
            for name, t_max in (
                ("Hopper-v5", 50),
                ("Hopper-v5", 100),
                ("HalfCheetah-v5", 50),
                ("Hopper-v5", 10),
                ("HalfCheetah-v5", 100),
                ("Hopper-v5", 200),
            )
        ]
    if profile == "paper":
        reduced = [
            Cell(
                "Hopper-v5",
                t_max,
                oracles=8,
                ddpg=DDPGSettings.paper(),
                ddpg_steps=500_000,
                trajectories=400,
                bcq=BCQSettings.paper(),
                bcq_updates=300_000,
                name=f"Hopper-v5-{t_max}-reduced",
            )
            for t_max in (50, 100)
        ]
        return reduced + [
            Cell(
                name,
                t_max,
                oracles=8,
                ddpg=DDPGSettings.paper(),
                ddpg_steps=1_000_000,
                trajectories=400,
                bcq=BCQSettings.paper(),
                bcq_updates=1_000_000,
            )
            for name, lengths in TABLE_5_2.items()
            for t_max in lengths
        ]
    raise ValueError(f"profile must be one of {', '.join(PROFILES)}, got {profile!r}")


def scale(*studies: Cell) -> str:
    """How much smaller studies are than the thesis's, for the verdict on an outcome.

    Returns
    -------
    str
        The steps of an oracle and the updates of a model against the million of the thesis
        (section 5.7.2); empty if no study has fewer.

    Raises
    ------
    ValueError
        If no study is given.

    Examples
    --------
    >>> scale(*cells("quick"), *cells("laptop"))
    'DDPG 15,000 to 20,000 of 1,000,000 steps, BCQ 2,000 to 3,000 of 1,000,000 updates'
    >>> scale(cells("paper")[-1])
    ''
    """
    if not studies:
        raise ValueError("scale needs at least one study")
    steps = [cell.ddpg_steps for cell in studies]
    updates = [cell.bcq_updates for cell in studies]
    if min(steps + updates) >= STEPS_OF_THE_THESIS:
        return ""
    return (
        f"DDPG {_span(steps)} of {STEPS_OF_THE_THESIS:,} steps, "
        f"BCQ {_span(updates)} of {STEPS_OF_THE_THESIS:,} updates"
    )


def _span(counts: list[int]) -> str:
    low, high = min(counts), max(counts)
    return f"{low:,}" if low == high else f"{low:,} to {high:,}"


# -- computing --------------------------------------------------------------------------


def run(
    cell: Cell,
    folder: str | Path = "_build/membership",
    deadline: Deadline | None = None,
    progress: Progress | None = None,
) -> Study:
    """Compute what is missing of a study, or load it.

    Parameters
    ----------
    cell : Cell
    folder : path
        Where studies are kept; made if it is missing.
    deadline : Deadline, optional
        When to stop. What is done until then is kept.
    progress : callable, optional
        ``progress(stage, done, total)`` now and then, and at the end of each stage.

    Returns
    -------
    Study

    Raises
    ------
    OutOfTime
        If the deadline has passed; call again to continue.
    """
    check.instance("cell", cell, Cell)
    return _Stages(cell, Path(folder), deadline, progress).study()


def collect(
    cell: Cell,
    folder: str | Path = "_build/membership",
    deadline: Deadline | None = None,
    progress: Progress | None = None,
) -> list[list[Episodes]]:
    """The first two stages of :func:`run`: ``inputs[oracle][half]``, without any BCQ model.

    Parameters
    ----------
    cell, folder, deadline, progress
        As in :func:`run`, which finds what was computed here.

    Raises
    ------
    OutOfTime
        If the deadline has passed; call again to continue.
    """
    check.instance("cell", cell, Cell)
    stages = _Stages(cell, Path(folder), deadline, progress)
    return stages.inputs(stages.oracles())[1]


class _Stages:
    """The stages of one cell, each in its own folder."""

    def __init__(
        self, cell: Cell, root: Path, deadline: Deadline | None, progress: Progress | None
    ) -> None:
        self.cell, self.root = cell, root
        self.deadline, self.progress = deadline, progress
        self.seconds: dict[str, float] = {}
        # one stream per use: a longer run of one stage does not change the others
        streams = np.random.SeedSequence(cell.seed).spawn(5)
        self.seeds = dict(
            zip(("states", "oracles", "inputs", "models", "outputs"), streams, strict=True)
        )
        c, own = cell, {"seed": cell.seed, "t_max": cell.t_max, "environment": cell.environment}
        marks = {
            "oracles": fingerprint(
                *map(code_of, (networks, environments, ddpg)),
                checkpoints.VERSION,
                own,
                [c.oracles, c.ddpg, c.ddpg_steps, c.timeout_is_terminal],
                [c.evaluate_every, c.evaluation_episodes],
            )
        }
        marks["inputs"] = fingerprint(
            code_of(oracles), code_of(episodes), marks["oracles"], c.mixture, c.trajectories
        )
        marks["models"] = fingerprint(
            *map(code_of, (bcq, oracles)), marks["inputs"], c.bcq, c.bcq_updates, c.bcq_looks
        )
        marks["outputs"] = fingerprint(code_of(oracles), marks["models"])
        self.places = {name: root / f"{name}-{mark}" for name, mark in marks.items()}
        self.folder = root / f"study-{cell.name}-{marks['outputs']}"

    def study(self) -> Study:
        cell, population = self.cell, self.oracles()
        states, inputs = self.inputs(population)
        models, looks = self._models(inputs, states)
        outputs = self._outputs(models, states)
        self.folder.mkdir(parents=True, exist_ok=True)
        return Study(
            cell=cell,
            folder=self.folder,
            curve=_curve(cell, population, looks, outputs),
            initial_states=states,
            oracles=population,
            inputs=inputs,
            models=models,
            outputs=outputs,
            seconds=dict(self.seconds),
        )

    def oracles(self) -> DDPGPopulation:
        cell = self.cell
        with self._stage("oracles", cell.ddpg_steps) as (place, done):
            path = place / "population.npz"
            if not done:
                ddpg.train(
                    cell.environment,
                    cell.ddpg,
                    seeds=_integers(self.seeds["oracles"], cell.oracles),
                    steps=cell.ddpg_steps,
                    t_max=cell.t_max,
                    evaluate_every=cell.evaluate_every,
                    evaluation_episodes=cell.evaluation_episodes,
                    timeout_is_terminal=cell.timeout_is_terminal,
                    checkpoint=place / "checkpoint.npz",
                    deadline=self.deadline,
                    progress=self._reporter("oracles", cell.ddpg_steps),
                ).save(path)
            return DDPGPopulation.load(path)

    def inputs(self, population: DDPGPopulation) -> tuple[FloatArray, list[list[Episodes]]]:
        cell = self.cell
        with self._stage("inputs", 1) as (place, done):
            path = place / "episodes.npz"
            if not done:
                states = environments.draw_initial_states(
                    cell.environment,
                    cell.trajectories,
                    np.random.default_rng(self.seeds["states"]),
                )
                halves = oracles.collect_halves(
                    population,
                    states,
                    cell.mixture,
                    cell.t_max,
                    np.random.default_rng(self.seeds["inputs"]),
                )
                Episodes.concatenate([half for pair in halves for half in pair]).save(path)
            inputs = self._by_oracle(Episodes.load(path))
        return inputs[0][0].initial_states, inputs

    def _models(
        self, inputs: list[list[Episodes]], states: FloatArray
    ) -> tuple[BCQPopulation, FloatArray]:
        """The models, and the mean return of each after each look, shape (looks, models)."""
        cell = self.cell
        with self._stage("models", cell.bcq_updates) as (place, done):
            path = place / "population.npz"
            looks = [place / f"returns-{updates}.npz" for updates in cell.bcq_looks]
            if not done:
                terminal = cell.timeout_is_terminal
                train = partial(
                    bcq.train,
                    [
                        half.transitions(timeout_is_terminal=terminal)
                        for pair in inputs
                        for half in pair
                    ],
                    cell.bcq,
                    seeds=_integers(self.seeds["models"], cell.models),
                    checkpoint=place / "checkpoint.npz",
                    deadline=self.deadline,
                    progress=self._reporter("models", cell.bcq_updates),
                )
                for updates, look in zip(cell.bcq_looks, looks, strict=True):
                    if not look.is_file():
                        some = states[: cell.evaluation_episodes]
                        found = self._query(train(updates=updates), some)
                        mean = np.array([one.returns.mean() for one in found])
                        checkpoints.save(look, {"returns": mean}, {})
                train(updates=cell.bcq_updates).save(path)
            returns = [checkpoints.load(look)["returns"] for look in looks]
            return BCQPopulation.load(path), np.reshape(returns, (len(looks), cell.models))

    def _outputs(self, models: BCQPopulation, states: FloatArray) -> list[list[Episodes]]:
        with self._stage("outputs", 1) as (place, done):
            path = place / "episodes.npz"
            if not done:
                Episodes.concatenate(self._query(models, states)).save(path)
            return self._by_oracle(Episodes.load(path))

    def _query(self, models: BCQPopulation, states: FloatArray) -> list[Episodes]:
        cell = self.cell
        return oracles.query_outputs(
            models,
            states,
            cell.t_max,
            environment=cell.environment,
            seed=_integers(self.seeds["outputs"], 1)[0],
        )

    def _by_oracle(self, all_of_them: Episodes) -> list[list[Episodes]]:
        m = self.cell.trajectories
        numbers = np.arange(len(all_of_them)).reshape(self.cell.oracles, 2, m)
        return [[all_of_them.select(half) for half in pair] for pair in numbers]

    @contextmanager
    def _stage(self, name: str, total: int) -> Iterator[tuple[Path, bool]]:
        """Folder of a stage, under its lock, and whether its result is there."""
        place = self.places[name]
        with locked(place):
            clock, finished = place / "seconds.json", place / "finished"
            before = json.loads(clock.read_text()) if clock.is_file() else 0.0
            if finished.is_file():
                self.seconds[name] = before
                yield place, True
                return
            if self.deadline is not None:
                self.deadline.check()
            if self.progress is not None:
                self.progress(name, 0, total)
            start = time.perf_counter()
            try:
                yield place, False
            finally:
                self.seconds[name] = before + time.perf_counter() - start
                clock.write_text(json.dumps(self.seconds[name]))
            finished.touch()
            (place / "checkpoint.npz").unlink(missing_ok=True)
            if self.progress is not None:
                self.progress(name, total, total)

    def _reporter(self, name: str, total: int) -> Callable[[int, int], None] | None:
        progress = self.progress
        if progress is None:
            return None
        return lambda done, _: progress(name, done, total)


def code_of(module: ModuleType) -> str:
    """What a module computes: its source without comments, docstrings and layout.

    For fingerprints: a sentence that is put better must not compute everything again.

    Parameters
    ----------
    module : module
        With a source file.

    Raises
    ------
    TypeError
        If the module has none.
    """
    path = getattr(module, "__file__", None)
    if path is None:
        raise TypeError(f"a module with a source file is needed, got {module!r}")
    with _PARSING:
        tree = ast.parse(Path(path).read_text(encoding="utf-8"))
    for node in ast.walk(tree):
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef)):
            first = node.body[0]
            if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant):
                first.value.value = None
    return f"{module.__name__}\n{ast.dump(tree)}"


def _integers(stream: np.random.SeedSequence, count: int) -> list[int]:
    return [int(x) for x in stream.generate_state(count)]


def _curve(
    cell: Cell, population: DDPGPopulation, looks: FloatArray, outputs: list[list[Episodes]]
) -> pd.DataFrame:
    mean = population.returns.mean(axis=2)
    last = [half.returns.mean() for pair in outputs for half in pair]
    of_models = np.concatenate([looks, [last]]).reshape(-1, cell.oracles, 2).mean(axis=2)
    rows = [
        {"algorithm": "DDPG", "oracle": o, "step": int(step), "mean_return": float(mean[o, i])}
        for o in range(cell.oracles)
        for i, step in enumerate(population.steps)
    ]
    rows += [
        {"algorithm": "BCQ", "oracle": o, "step": step, "mean_return": float(of_models[i, o])}
        for o in range(cell.oracles)
        for i, step in enumerate((*cell.bcq_looks, cell.bcq_updates))
    ]
    frame = pd.DataFrame(rows)
    frame.insert(0, "environment", cell.environment)
    frame.insert(1, "t_max", cell.t_max)
    return frame


def as_parameters(cell: Cell) -> dict[str, object]:
    """A cell as nested dicts of numbers and texts, for a record's provenance."""
    return dataclasses.asdict(cell)
