r"""A leak that is real: members and non-members from one distribution.

The pairs of the thesis compare a model's training data with trajectories of *another* oracle.
Here both kinds come from one oracle, and chance alone says which of them a model is trained
on (:class:`LeakSettings`):

* from each chosen oracle a *pool* of 2 M trajectories;
* *models* come in pairs. Each pair splits the pool at random into two halves of M
  trajectories; the first model is trained on one half, the second on the other. So every
  trajectory of the pool is a member of one model of each pair and a non-member of the other,
  and that some trajectories are easier to imitate than others cancels in each pair;
* *fresh* trajectories of the same oracle, on which no model is trained: more non-members, for
  what is to be said about low false positive rates. All trajectories of an oracle start in the
  states of one list: fresh ones and those of the pool are independent given these;
* *twins*: a model's training data without one trajectory, and nothing else changed. Twin and
  model start from the same networks and draw the same noise in every update. Their batches
  are drawn by the same keys, but from M - 1 and M trajectories, so that the rows differ.

Every model is scored after several numbers of updates, with three kinds of access
(:mod:`dprl.membership.attacks.scores`): a roll-out (closed loop), answers at every state of
the accused trajectory, the parameters (white box). :mod:`experiments.chapter_5.leak_tables` judges.

Sources: Yeom et al. 2018 and thesis, section 5.1 (the game).
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field
from pathlib import Path

import jax
import numpy as np

from companion.sweeps import code_of, fingerprint, load_checkpoint, save_checkpoint
from dprl import _validation as check
from dprl._validation import BoolArray, FloatArray, IntArray
from dprl.agents import bcq_population
from dprl.agents.bcq_population import BCQPopulation, BCQTraining
from dprl.agents.episodes import Episodes
from dprl.membership.attacks import scores
from experiments.chapter_5 import oracles, study
from experiments.chapter_5.stages import ResumableTraining, Watch, computed_once, integers
from experiments.chapter_5.study import StudySettings

#: What the attacker may ask, from least to most.
ACCESS = ("closed-loop", "every-state", "white-box")

_FILE, _MODELS = "leak.npz", "models.npz"


@dataclass(frozen=True)
class LeakSettings:
    """Everything that a measurement of the leak depends on.

    Parameters
    ----------
    study : StudySettings
        The study whose oracles collect the trajectories, and whose BCQ settings are used.
    oracles : tuple of int
        Which of its oracles; distinct.
    size : int
        M, trajectories in one training set, >= 2. The pool of an oracle holds its first 2 M
        trajectories, those of half 0 before those of half 1; at most M of the study.
    models : int
        Models per oracle: an even number, >= 6. Likelihood ratios use all but one pair as
        shadows, and need two of them.
    twins : int
        Twins per oracle, 0 ... models.
    updates : tuple of int
        After how many updates of each model to measure; rising, multiples of ``chunk``.
    fresh : int
        Trajectories per oracle that no model is trained on; the last ones of the study.
    chunk : int
        Updates per compiled call.
    seed : int
        Of the splits, the models and their answers.
    """

    study: StudySettings
    oracles: tuple[int, ...]
    size: int
    models: int
    twins: int
    updates: tuple[int, ...]
    fresh: int = 0
    chunk: int = bcq_population.CHUNK
    seed: int = 29

    def __post_init__(self) -> None:
        check.instance("study", self.study, StudySettings)
        _numbers("oracles", self.oracles, minimum=0)
        if len(set(self.oracles)) < len(self.oracles) or max(self.oracles) >= self.study.oracles:
            raise ValueError(
                f"oracles must be distinct numbers below {self.study.oracles}, got {self.oracles}"
            )
        check.whole("size", self.size, 2)
        check.whole("models", self.models, 6)
        if self.models % 2:
            raise ValueError(f"models come in pairs: models must be even, got {self.models}")
        if check.whole("twins", self.twins, 0) > self.models:
            raise ValueError(
                f"twins must be at most {self.models}, one per model, got {self.twins}"
            )
        _numbers("updates", self.updates, minimum=1)
        check.whole("chunk", self.chunk)
        if any(later <= now for now, later in itertools.pairwise(self.updates)):
            raise ValueError(f"updates must rise, got {self.updates}")
        if any(number % self.chunk for number in self.updates):
            raise ValueError(f"updates must be multiples of chunk {self.chunk}, got {self.updates}")
        available = 2 * self.study.trajectories
        if 2 * self.size + check.whole("fresh", self.fresh, 0) > available:
            raise ValueError(
                f"an oracle of this study has {available} trajectories; a pool of {2 * self.size} "
                f"and {self.fresh} fresh ones are too many"
            )
        check.seed(self.seed)

    @property
    def name(self) -> str:
        """What to call it: environment, T_max, M."""
        return f"{self.study.name}-{self.size}"

    @property
    def pairs(self) -> IntArray:
        """Shape (models,): the pair to which each model of an oracle belongs."""
        return np.arange(self.models) // 2


def _numbers(name: str, values: object, minimum: int) -> None:
    if not isinstance(values, tuple) or not values:
        raise TypeError(f"{name} must be a tuple of at least one whole number, got {values!r}")
    for value in values:
        check.whole(f"each of {name}", value, minimum)


@dataclass(frozen=True, eq=False)
class Leak:
    """What :func:`run` measured. k = numbers of updates, O = oracles of the settings.

    Attributes
    ----------
    pools : list of Episodes
        Of each oracle, 2 M trajectories.
    fresh : list of Episodes
        Of each oracle; empty if the settings have none.
    members : ndarray of bool, shape (O, models, 2 M)
        Which trajectories of the pool each model was trained on.
    scores : dict of str to ndarray, shape (k, O, models, 2 M)
        For each kind of :data:`ACCESS`: the score of each trajectory, larger for a member.
    fresh_scores : dict of str to ndarray, shape (O, models, fresh)
        The same for the fresh trajectories, after the last update.
    twin_records : ndarray of int, shape (O, twins)
        Twin i is model i trained without this trajectory of the pool, a member of model i.
    twin_scores : dict of str to ndarray, shape (k, O, twins, 2 M)
        Scores under the twins.
    returns : ndarray, shape (k, O, models)
        Mean undiscounted return of the roll-outs.
    models : BCQPopulation
        After the last update: number ``o * settings.models + m`` is model m of the o-th oracle;
        the twins come after all models, ``O * settings.models + o * settings.twins + i``.
    seconds : float
        For training and scoring them, when it was computed; without collecting the trajectories.
    """

    settings: LeakSettings
    pools: list[Episodes]
    fresh: list[Episodes]
    members: BoolArray
    scores: dict[str, FloatArray]
    fresh_scores: dict[str, FloatArray]
    twin_records: IntArray
    twin_scores: dict[str, FloatArray]
    returns: FloatArray
    models: BCQPopulation
    seconds: float


# -- computing --------------------------------------------------------------------------


def run(
    settings: LeakSettings,
    folder: str | Path = "_build/membership",
    watch: Watch = Watch(),  # noqa: B008 - it cannot change
) -> Leak:
    """Compute what is missing of a measurement, or load it.

    What the oracles of ``settings.study`` collect is computed or loaded first
    (:func:`experiments.chapter_5.study.collect`). Arguments and errors as of
    :func:`experiments.chapter_5.study.run`.
    """
    check.instance("settings", settings, LeakSettings)
    inputs = study.collect(settings.study, folder, watch)
    pools, fresh = _trajectories(settings, inputs)
    sets = _training_sets(settings)
    key = fingerprint(
        code_of(_trajectories, _training_sets, _Measurement),
        settings,
        [one.actions for one in pools + fresh],
    )
    measurement = _Measurement(settings, pools, fresh, sets, watch)
    place = Path(folder) / f"leak-{settings.name}-{key}"
    with computed_once(place, watch) as kept:
        if not kept.done:
            save_checkpoint(place / _FILE, measurement.compute(place))
        arrays = load_checkpoint(place / _FILE)
        models = study.load_models(place / _MODELS, settings.study.bcq, measurement.fresh_models)
    return Leak(
        settings=settings,
        pools=pools,
        fresh=fresh,
        members=sets.members,
        scores={access: arrays[f"scores {access}"] for access in ACCESS},
        fresh_scores={access: arrays[f"fresh {access}"] for access in ACCESS},
        twin_records=sets.left_out,
        twin_scores={access: arrays[f"twins {access}"] for access in ACCESS},
        returns=arrays["returns"],
        models=models,
        seconds=kept.seconds,
    )


@dataclass(frozen=True, eq=False)
class _TrainingSets:
    """Who is trained on what; models of all oracles first, then all twins."""

    members: BoolArray  # (O, models, 2 M)
    left_out: IntArray  # (O, twins)
    rows: list[tuple[int, BoolArray]] = field(default_factory=list)  # (oracle, mask of its pool)
    seeds: list[int] = field(default_factory=list)


def _trajectories(
    settings: LeakSettings, inputs: list[list[Episodes]]
) -> tuple[list[Episodes], list[Episodes]]:
    pools, fresh = [], []
    for oracle in settings.oracles:
        everything = Episodes.concatenate(inputs[oracle])
        pools.append(everything.select(np.arange(2 * settings.size)))
        if settings.fresh:
            fresh.append(
                everything.select(np.arange(len(everything) - settings.fresh, len(everything)))
            )
    return pools, fresh


def _training_sets(settings: LeakSettings) -> _TrainingSets:
    splits, twins, models = np.random.SeedSequence(settings.seed).spawn(3)
    rng, count = np.random.default_rng(splits), len(settings.oracles)
    members = np.zeros((count, settings.models, 2 * settings.size), dtype=bool)
    for of_oracle in members:
        for first in range(0, settings.models, 2):
            of_oracle[first, rng.permutation(2 * settings.size)[: settings.size]] = True
            of_oracle[first + 1] = ~of_oracle[first]
    rng = np.random.default_rng(twins)
    left_out = np.array(
        [
            [rng.choice(np.flatnonzero(mask)) for mask in of_oracle[: settings.twins]]
            for of_oracle in members
        ],
        dtype=np.int64,
    ).reshape(count, settings.twins)
    sets = _TrainingSets(members, left_out)
    sets.seeds.extend(integers(models, count * settings.models))
    sets.rows.extend((oracle, mask) for oracle in range(count) for mask in members[oracle])
    for oracle, twin in np.ndindex(left_out.shape):
        mask = members[oracle, twin].copy()
        mask[left_out[oracle, twin]] = False
        sets.rows.append((oracle, mask))
        sets.seeds.append(sets.seeds[oracle * settings.models + twin])
    return sets


@dataclass(frozen=True, eq=False)
class _Measurement:
    """Training of all models and twins, and scoring after each number of updates."""

    settings: LeakSettings
    pools: list[Episodes]
    fresh: list[Episodes]
    sets: _TrainingSets
    watch: Watch

    def fresh_models(self) -> BCQTraining:
        pool, learner = self.pools[0], self.settings.study.bcq
        return bcq_population.start(
            learner, pool.observation_size, pool.action_size, self.sets.seeds
        )

    def compute(self, place: Path) -> dict[str, FloatArray]:
        settings, learner = self.settings, self.settings.study.bcq
        terminal = settings.study.timeout_is_terminal
        data = [
            self.pools[oracle].select(mask).transitions(timeout_is_terminal=terminal)
            for oracle, mask in self.sets.rows
        ]

        def advance(before: BCQTraining, updates: int) -> BCQTraining:
            return bcq_population.train(before, data, learner, updates, chunk=settings.chunk)[0]

        last = settings.updates[-1]
        training = ResumableTraining(
            f"leak {settings.size}", last, place / "checkpoint.npz", 5 * settings.chunk, self.watch
        )
        state = training.begin(self.fresh_models())
        parts: list[dict[str, FloatArray]] = []
        for updates in settings.updates:
            scored = place / f"checkpoint-scores-{updates}.npz"
            if not scored.is_file():
                state = training.go_on(state, advance, state.updates, updates)
                training.keep(state)
                models = BCQPopulation(learner, state.models.parameters)
                save_checkpoint(scored, self.score(models, updates == last))
                if updates < last:
                    self.watch.check()
            parts.append(load_checkpoint(scored))
        save_checkpoint(place / _MODELS, state.models.parameters)
        fresh = {name: values for name, values in parts[-1].items() if name.startswith("fresh")}
        measured = [name for name in parts[0] if name not in fresh]
        return fresh | {name: np.stack([part[name] for part in parts]) for name in measured}

    def score(self, population: BCQPopulation, last: bool) -> dict[str, FloatArray]:
        """All scores of all models and twins."""
        settings, count = self.settings, len(self.settings.oracles)
        split = count * settings.models
        own = [oracle for oracle, _ in self.sets.rows]
        accused = [self.pools[oracle] for oracle in own]
        outputs = self.roll_outs(population, accused)
        pooled = three_scores(population, accused, outputs, settings.seed)
        returns = np.array([one.returns.mean() for one in outputs[:split]])
        out: dict[str, FloatArray] = {"returns": returns.reshape(count, settings.models)}
        size = 2 * settings.size
        for access, values in pooled.items():
            out[f"scores {access}"] = values[:split].reshape(count, settings.models, size)
            out[f"twins {access}"] = values[split:].reshape(count, settings.twins, size)
        if last:
            empty = np.zeros((count, settings.models, settings.fresh))
            found = dict.fromkeys(ACCESS, empty)
            if self.fresh:
                models = population.select(range(split))
                accused = [self.fresh[o] for o in own[:split]]
                outputs = self.roll_outs(models, accused)
                found = three_scores(models, accused, outputs, settings.seed)
            for access, values in found.items():
                out[f"fresh {access}"] = values.reshape(empty.shape)
        return out

    def roll_outs(self, models: BCQPopulation, accused: list[Episodes]) -> list[Episodes]:
        """Of each model, from the states in which all the accused start."""
        starts, seed = accused[0].initial_states, self.settings.seed
        return oracles.query_outputs(models, starts, self.settings.study.task, seed=seed)


def three_scores(
    models: BCQPopulation, accused: list[Episodes], outputs: list[Episodes], seed: int
) -> dict[str, FloatArray]:
    """For each access: scores of the accused of each model, shape (models, n)."""
    closed = [
        scores.action_distance(a.actions, b.actions, a.lengths, b.lengths)
        for a, b in zip(accused, outputs, strict=True)
    ]
    key = jax.random.fold_in(jax.random.key(seed), 1)
    return {
        "closed-loop": np.stack(closed),
        "every-state": scores.every_state_score(models, accused, key=key),
        "white-box": scores.vae_score(models, accused),
    }
