r"""A study: the thesis's experiment for one environment and one T_max, computed once.

:class:`StudySettings` names everything a study depends on. :func:`run` computes it in four stages,

1. *oracles*: O DDPG agents with different initial parameters and data;
2. *inputs*: each collects two halves of M trajectories from one list of initial states;
3. *models*: one BCQ model on each half; model 2 o + h has seen half h of oracle o;
4. *outputs*: the greedy roll-out of each model from each initial state,

and keeps each in a folder of its own (:mod:`experiments.chapter_5.stages`): a changed setting or
a changed line of an algorithm computes again what depends on it, and nothing else. A stage that
was interrupted goes on from its checkpoint.

The thesis trains two oracles and one model for the shadow, the same for the target. Here
every choice of distinct oracles from one population is such an experiment, so that it can be
repeated over *draws* of oracles (:mod:`experiments.chapter_5.pair_attacks`).

Sources: thesis, sections 5.5 and 5.6; figure 5.4 for the learning curves.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd

from companion.sweeps import code_of, fingerprint, load_checkpoint, save_checkpoint
from dprl import _validation as check
from dprl._validation import FloatArray
from dprl.agents import bcq_population, ddpg, ddpg_population, environments
from dprl.agents.bcq import BCQSettings
from dprl.agents.bcq_population import BCQPopulation, BCQTraining
from dprl.agents.ddpg import DDPGSettings, DDPGState
from dprl.agents.ddpg_population import DDPGTraining
from dprl.agents.environments import Task
from dprl.agents.episodes import Episodes
from experiments.chapter_5 import oracles
from experiments.chapter_5.oracles import DataOracles, Mixture
from experiments.chapter_5.stages import (
    Kept,
    ResumableTraining,
    Watch,
    computed_once,
    in_pairs,
    integers,
    load_episodes,
    save_episodes,
)

_PIECE = 1_000  # steps, or updates, between two looks at the clock


@dataclass(frozen=True)
class StudySettings:
    """Everything that a study depends on.

    Parameters
    ----------
    environment, t_max, timeout_is_terminal
        As in :class:`dprl.agents.environments.Task`; in training and in all roll-outs.
    oracles : int
        O, number of data oracles; >= 4, so that a draw of distinct oracles exists.
    ddpg, ddpg_steps : DDPGSettings, int
        Environment steps of each oracle, one update each after the warm-up.
    trajectories : int
        M, trajectories of one half; >= 2.
    bcq, bcq_updates : BCQSettings, int
        Updates of each model.
    mixture : Mixture
        How the oracles explore when they collect.
    evaluate_every : int
        Steps between two points of a learning curve of the oracles.
    evaluation_episodes : int
        Greedy episodes per point and agent.
    bcq_evaluated_at : tuple of int
        Updates, before the last, after which the models are run, too: rising multiples of
        :data:`dprl.agents.bcq_population.CHUNK` below ``bcq_updates``.
    seed : int
        Of everything.
    name : str
        What to call it; it changes no result. By default environment and T_max.
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
    bcq_evaluated_at: tuple[int, ...] = ()
    seed: int = 5
    name: str = ""

    def __post_init__(self) -> None:
        Task(self.environment, self.t_max, self.timeout_is_terminal)
        check.whole("oracles", self.oracles, 4)
        check.whole("trajectories", self.trajectories, 2)
        check.seed(self.seed)
        for name in ("ddpg_steps", "bcq_updates", "evaluate_every", "evaluation_episodes"):
            check.whole(name, getattr(self, name))
        check.instance("ddpg", self.ddpg, DDPGSettings)
        check.instance("bcq", self.bcq, BCQSettings)
        if self.ddpg_steps <= self.ddpg.warm_up:
            raise ValueError(
                f"ddpg_steps must exceed the warm-up of {self.ddpg.warm_up} steps, "
                f"got {self.ddpg_steps}"
            )
        check.instance("mixture", self.mixture, Mixture)
        check.instance("bcq_evaluated_at", self.bcq_evaluated_at, tuple)
        for number in self.bcq_evaluated_at:
            check.whole("each of bcq_evaluated_at", number)
        ends = (*self.bcq_evaluated_at, self.bcq_updates)
        if any(a >= b for a, b in itertools.pairwise(ends)) or any(
            number % bcq_population.CHUNK for number in self.bcq_evaluated_at
        ):
            raise ValueError(
                f"bcq_evaluated_at must be rising multiples of {bcq_population.CHUNK} below "
                f"{self.bcq_updates} updates, got {self.bcq_evaluated_at}"
            )
        if not self.name:
            object.__setattr__(self, "name", f"{self.environment}-{self.t_max}")

    @property
    def task(self) -> Task:
        """Environment, time limit and what the limit means."""
        return Task(self.environment, self.t_max, self.timeout_is_terminal)

    @property
    def models(self) -> int:
        """Number of BCQ models, 2 O."""
        return 2 * self.oracles


@dataclass(frozen=True, eq=False)
class Study:
    """What :func:`run` computed.

    Attributes
    ----------
    folder, kept_models : Path
        Of this study, for what others compute from it; of the models, for :func:`models_after`.
    curve : DataFrame
        Learning curves: ``environment, t_max, algorithm, oracle, step, mean_return`` (of
        greedy episodes, undiscounted). Algorithm ``DDPG``: the data oracles. ``BCQ``: the mean
        over the two models of each oracle, at each of ``bcq_evaluated_at``
        (``evaluation_episodes`` of the initial states) and at the end (the outputs: all).
    initial_states : ndarray, shape (M, k)
        Physics states, shared by all oracles and halves.
    inputs : list of list of Episodes
        ``[oracle][half]``: what the model of this oracle and half was trained on.
    models : BCQPopulation
        Model 2 o + h has seen half h of oracle o.
    outputs : list of list of Episodes
        ``[oracle][half]``: the greedy roll-outs of that model.
    seconds : dict
        What each stage took, in all its pieces.
    """

    settings: StudySettings
    folder: Path
    curve: pd.DataFrame
    initial_states: FloatArray
    oracles: DataOracles
    inputs: list[list[Episodes]]
    models: BCQPopulation
    outputs: list[list[Episodes]]
    seconds: dict[str, float]
    kept_models: Path


def run(
    settings: StudySettings,
    folder: str | Path = "_build/membership",
    watch: Watch = Watch(),  # noqa: B008 - it cannot change
) -> Study:
    """Compute what is missing of a study, or load it.

    Studies are kept in the folder, which is made if it is missing. If the deadline of the watch
    has passed, ``OutOfTime`` is raised; call again to continue.
    """
    check.instance("settings", settings, StudySettings)
    return _Stages(settings, Path(folder), watch).study()


def collect(
    settings: StudySettings,
    folder: str | Path = "_build/membership",
    watch: Watch = Watch(),  # noqa: B008 - it cannot change
) -> list[list[Episodes]]:
    """The first two stages of :func:`run`: ``inputs[oracle][half]``, without any BCQ model.

    Parameters and errors as :func:`run`, which finds what was computed here.
    """
    check.instance("settings", settings, StudySettings)
    kept = _Stages(settings, Path(folder), watch)
    return kept.inputs(kept.oracles())


def train_oracles(
    settings: StudySettings,
    seeds: Sequence[int],
    checkpoint: Path | None = None,
    watch: Watch = Watch(),  # noqa: B008 - it cannot change
) -> DataOracles:
    """Train the data oracles of a study, and run their greedy policies on the way.

    The policies run before training, after every ``evaluate_every`` steps, and at the end. There
    is an agent for each of the distinct seeds; ``settings.oracles`` does not count here. With a
    checkpoint, written about once a minute, a training that ``OutOfTime`` ended goes on.
    """
    task, total = settings.task, settings.ddpg_steps
    # no more room than is needed: a checkpoint holds it all
    learner = replace(settings.ddpg, capacity=min(settings.ddpg.capacity, total))
    when = np.unique([*range(0, total, settings.evaluate_every), total])
    # the same episodes for every agent, time, and training
    starts = environments.draw_initial_states(
        task.environment,
        settings.evaluation_episodes,
        np.random.default_rng(np.random.SeedSequence(0)),
    )
    returns = np.full((len(seeds), when.size, settings.evaluation_episodes), np.nan)
    training = ResumableTraining("oracles", total, checkpoint, _PIECE, watch)
    state, returns = training.begin((ddpg_population.start(task, learner, seeds), returns))

    def advance(
        before: tuple[DDPGTraining, FloatArray], steps: int
    ) -> tuple[DDPGTraining, FloatArray]:
        return ddpg_population.train(before[0], task, learner, steps), before[1]

    for i, step in enumerate(when.tolist()):
        state, returns = training.go_on((state, returns), advance, state.step, step)
        if np.isnan(returns[:, i]).any():
            greedy = oracles.greedy_policies(state.agents)
            found = environments.rollout(
                task.environment, greedy, np.tile(starts, (len(seeds), 1)), task.t_max
            )
            returns[:, i] = found.returns.reshape(len(seeds), -1)
    return DataOracles(task, state.agents, when, returns)


def models_after(done: Study, updates: int) -> BCQPopulation:
    """The models of a study as they were after so many updates.

    They were kept after ``bcq_evaluated_at`` and ``bcq_updates``; another number is an error.
    """
    settings = done.settings
    if updates == settings.bcq_updates:
        return done.models
    if updates not in settings.bcq_evaluated_at:
        raise ValueError(
            f"the models were kept after {(*settings.bcq_evaluated_at, settings.bcq_updates)} "
            f"updates, not after {updates}"
        )
    found = load_checkpoint(_models_at(done.kept_models, updates), done.models.parameters)
    return BCQPopulation(settings.bcq, jax.tree.map(jnp.asarray, found))


def _models_at(place: Path, updates: int) -> Path:
    return place / f"models-{updates}.npz"


def load_models(
    path: Path, settings: BCQSettings, fresh: Callable[[], BCQTraining]
) -> BCQPopulation:
    """Models from a file of their parameters; ``fresh`` says of what shapes they are."""
    found = load_checkpoint(path, jax.eval_shape(lambda: fresh().models.parameters))
    return BCQPopulation(settings, jax.tree.map(jnp.asarray, found))


class _Stages:
    """The stages of one study, each in its own folder."""

    def __init__(self, settings: StudySettings, root: Path, watch: Watch) -> None:
        self.settings, self.watch = settings, watch
        self.seconds: dict[str, float] = {}
        # one stream per use: a longer run of one stage does not change the others
        streams = np.random.SeedSequence(settings.seed).spawn(5)
        self.seeds = dict(
            zip(("states", "oracles", "inputs", "models", "outputs"), streams, strict=True)
        )
        s = settings
        own = [s.seed, s.task, s.oracles, s.ddpg, s.ddpg_steps]
        curve = [s.evaluate_every, s.evaluation_episodes]
        keys = {"oracles": fingerprint(code_of(train_oracles), own, curve)}
        keys["inputs"] = fingerprint(
            code_of(environments.draw_initial_states, oracles.collect_halves),
            keys["oracles"],
            [s.mixture, s.trajectories],
        )
        answers = code_of(oracles.query_outputs)
        learning = [s.bcq, s.bcq_updates, s.bcq_evaluated_at]
        keys["models"] = fingerprint(code_of(bcq_population), answers, keys["inputs"], learning)
        keys["outputs"] = fingerprint(answers, keys["models"])
        self.places = {name: root / f"{name}-{key}" for name, key in keys.items()}
        self.folder = root / f"study-{settings.name}-{keys['outputs']}"

    def study(self) -> Study:
        population = self.oracles()
        inputs = self.inputs(population)
        models, on_the_way = self.models(inputs)
        outputs = self.outputs(models, inputs)
        self.folder.mkdir(parents=True, exist_ok=True)
        return Study(
            settings=self.settings,
            folder=self.folder,
            curve=_curve(self.settings, population, on_the_way, outputs),
            initial_states=inputs[0][0].initial_states,
            oracles=population,
            inputs=inputs,
            models=models,
            outputs=outputs,
            seconds=dict(self.seconds),
            kept_models=self.places["models"],
        )

    def oracles(self) -> DataOracles:
        settings = self.settings
        seeds = integers(self.seeds["oracles"], settings.oracles)
        with self._stage("oracles", settings.ddpg_steps) as kept:
            path, curve = kept.place / "oracles.npz", kept.place / "curve.npz"
            if not kept.done:
                trained = train_oracles(settings, seeds, kept.place / "checkpoint.npz", self.watch)
                save_checkpoint(path, trained.state)
                save_checkpoint(curve, {"steps": trained.steps, "returns": trained.returns})
            found = load_checkpoint(curve)
            state = load_checkpoint(path, _shapes(settings, len(found["returns"])))
            state = jax.tree.map(jnp.asarray, state)
            return DataOracles(settings.task, state, found["steps"], found["returns"])

    def inputs(self, population: DataOracles) -> list[list[Episodes]]:
        settings = self.settings
        with self._stage("inputs", 1) as kept:
            path = kept.place / "episodes.npz"
            if not kept.done:
                states = environments.draw_initial_states(
                    settings.environment,
                    settings.trajectories,
                    np.random.default_rng(self.seeds["states"]),
                )
                rng = np.random.default_rng(self.seeds["inputs"])
                halves = oracles.collect_halves(population, states, settings.mixture, rng)
                save_episodes(path, [half for pair in halves for half in pair])
            return in_pairs(load_episodes(path, settings.models))

    def models(self, inputs: list[list[Episodes]]) -> tuple[BCQPopulation, FloatArray]:
        """The models, and their mean returns on the way, shape (times, models)."""
        settings, total = self.settings, self.settings.bcq_updates
        states = inputs[0][0].initial_states[: settings.evaluation_episodes]
        data = [
            half.transitions(timeout_is_terminal=settings.timeout_is_terminal)
            for pair in inputs
            for half in pair
        ]

        def fresh() -> BCQTraining:
            sizes = (data[0].observation_size, data[0].action_size)
            seeds = integers(self.seeds["models"], settings.models)
            return bcq_population.start(settings.bcq, *sizes, seeds)

        def advance(before: BCQTraining, updates: int) -> BCQTraining:
            return bcq_population.train(before, data, settings.bcq, updates)[0]

        with self._stage("models", total) as kept:
            place, path = kept.place, kept.place / "models.npz"
            evaluated = [place / f"returns-{at}.npz" for at in settings.bcq_evaluated_at]
            if not kept.done:
                training = ResumableTraining(
                    "models", total, place / "checkpoint.npz", _PIECE, self.watch
                )
                state = training.begin(fresh())
                for updates, file in zip(settings.bcq_evaluated_at, evaluated, strict=True):
                    if not file.is_file():
                        state = training.go_on(state, advance, state.updates, updates)
                        now = BCQPopulation(settings.bcq, state.models.parameters)
                        save_checkpoint(_models_at(place, updates), now.parameters)
                        mean = np.array([one.returns.mean() for one in self.query(now, states)])
                        save_checkpoint(file, {"returns": mean})
                state = training.go_on(state, advance, state.updates, total)
                save_checkpoint(path, state.models.parameters)
            models = load_models(path, settings.bcq, fresh)
            returns = [load_checkpoint(file)["returns"] for file in evaluated]
            return models, np.reshape(returns, (len(evaluated), settings.models))

    def outputs(self, models: BCQPopulation, inputs: list[list[Episodes]]) -> list[list[Episodes]]:
        with self._stage("outputs", 1) as kept:
            path = kept.place / "episodes.npz"
            if not kept.done:
                save_episodes(path, self.query(models, inputs[0][0].initial_states))
            return in_pairs(load_episodes(path, len(models)))

    def query(self, models: BCQPopulation, states: FloatArray) -> list[Episodes]:
        seed = integers(self.seeds["outputs"], 1)[0]
        return oracles.query_outputs(models, states, self.settings.task, seed=seed)

    @contextmanager
    def _stage(self, name: str, total: int) -> Iterator[Kept]:
        with computed_once(self.places[name], self.watch) as kept:
            if not kept.done:
                self.watch.report(name, 0, total)
            yield kept
            if not kept.done:
                self.watch.report(name, total, total)
        self.seconds[name] = kept.seconds


def _shapes(settings: StudySettings, agents: int) -> DDPGState:
    """Shapes and types of what the data oracles know."""
    world = environments.environment(settings.environment)
    sizes = (world.observation_size, world.action_size, settings.ddpg)
    keys = jax.random.split(jax.random.key(0), agents)
    shapes: DDPGState = jax.eval_shape(jax.vmap(lambda key: ddpg.initialise(key, *sizes)), keys)
    return shapes


def _curve(
    settings: StudySettings,
    population: DataOracles,
    on_the_way: FloatArray,
    outputs: list[list[Episodes]],
) -> pd.DataFrame:
    mean = population.returns.mean(axis=2)
    last = [half.returns.mean() for pair in outputs for half in pair]
    of_models = np.concatenate([on_the_way, [last]]).reshape(-1, settings.oracles, 2).mean(axis=2)
    updates = (*settings.bcq_evaluated_at, settings.bcq_updates)
    rows = [
        {
            "environment": settings.environment,
            "t_max": settings.t_max,
            "algorithm": algorithm,
            "oracle": o,
            "step": int(step),
            "mean_return": float(reached[o, i]),
        }
        for algorithm, steps, reached in (
            ("DDPG", population.steps, mean),
            ("BCQ", updates, of_models.T),
        )
        for o in range(settings.oracles)
        for i, step in enumerate(steps)
    ]
    return pd.DataFrame(rows)
