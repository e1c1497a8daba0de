r"""Members, held-out trajectories and others: every score on the same models.

A model is accused of three kinds of trajectories: its *members*; *held-out* ones of the same
oracle; *others*, of another oracle. Three questions are asked of each score, by the AUC:

===========  ====================  ====================
labels       positives             negatives
===========  ====================  ====================
same-oracle  members               held-out
never-seen   held-out              others
as-printed   members               others
===========  ====================  ====================

Four scores compare the accused with several roll-outs from its initial state,
and take the mean over these: ``mean-action`` is the one line, ``first-steps`` and ``all-steps``
compare actions step by step, ``network`` is a TCN for pairs that is trained with the labels
``same-oracle`` on the models of all other oracles but one, for as long as the loss on that one
falls. ``every-state`` asks at every state of the accused, ``white-box`` reads the parameters
(:mod:`dprl.membership.attacks.scores`). ``lira-online`` and ``lira-offline`` read these two by
shadow models, where the models of :mod:`experiments.chapter_5.leaks` allow it.

The unit of replication is the oracle: intervals are over oracles.

Sources: thesis, sections 5.5 and 5.6; Carlini et al. 2022 (likelihood ratios).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import jax
import numpy as np
import pandas as pd

from dprl import _validation as check
from dprl._validation import FloatArray, IntArray
from dprl.agents.bcq_population import BCQPopulation
from dprl.agents.environments import Task
from dprl.agents.episodes import Episodes, Float32Array
from dprl.membership import metrics, pairs
from dprl.membership.attacks import scores, training
from dprl.membership.attacks.tcn import TCNSettings
from experiments.chapter_5 import leak_tables, oracles
from experiments.chapter_5.leaks import Leak
from experiments.chapter_5.study import Study, models_after

#: Positives and negatives of each question, as numbers of :class:`Game`.
LABELS = {"same-oracle": (0, 1), "never-seen": (1, 2), "as-printed": (0, 2)}


@dataclass(frozen=True)
class GameSettings:
    """How the models are asked, and what is compared.

    Parameters
    ----------
    rollouts : int
        Of each model from each initial state; they differ in BCQ's latent draws.
    first_steps : int
        Compared by ``first-steps``.
    network, most_steps : TCNSettings or None, int
        Of the score ``network``, with the number of steps at which its training begins and ends
        (:func:`dprl.membership.attacks.training.train_to_plateau`); without it no such score.
    seed : int
        Of roll-outs, answers and networks.
    """

    rollouts: int = 5
    first_steps: int = 20
    network: TCNSettings | None = field(default_factory=TCNSettings)
    most_steps: int = 4_800
    seed: int = 61

    def __post_init__(self) -> None:
        check.whole("rollouts", self.rollouts)
        check.whole("first_steps", self.first_steps)
        check.whole("most_steps", self.most_steps)
        check.seed(self.seed)


@dataclass(frozen=True, eq=False)
class Game:
    """Models of several oracles and what they are accused of.

    Attributes
    ----------
    accused : list of Episodes
        Of each model, n trajectories.
    kinds : ndarray of int, shape (models, n)
        0: member, 1: held-out, 2: of another oracle.
    oracle : ndarray of int, shape (models,)
        Whose trajectories each model was trained on.
    starts : ndarray, shape (m, k)
        Initial states, n a multiple of m: trajectory i starts in state i mod m.
    """

    task: Task
    models: BCQPopulation
    accused: list[Episodes]
    kinds: IntArray
    oracle: IntArray
    starts: FloatArray

    @property
    def oracles(self) -> IntArray:
        """Numbers of the oracles, in order."""
        return np.unique(self.oracle)


def of_study(done: Study, updates: int) -> Game:
    """The game of a study's models after so many updates, as ``models_after`` gives them.

    Held-out is the other half of the oracle; the others are the same half of the next oracle.
    """
    settings = done.settings
    m, count = settings.trajectories, settings.oracles
    accused = [
        Episodes.concatenate(
            [done.inputs[o][h], done.inputs[o][1 - h], done.inputs[(o + 1) % count][h]]
        )
        for o in range(count)
        for h in range(2)
    ]
    return Game(
        settings.task,
        models_after(done, updates),
        accused,
        np.tile(np.repeat([0, 1, 2], m), (settings.models, 1)),
        np.repeat(np.arange(count), 2),
        done.initial_states,
    )


def of_leak(leak: Leak) -> Game:
    """The game of a leak's models after the last update; the others are the next oracle's pool."""
    settings = leak.settings
    count, size = len(settings.oracles), 2 * settings.size
    accused, kinds = [], []
    for o in range(count):
        both = Episodes.concatenate([leak.pools[o], leak.pools[(o + 1) % count]])
        for members in leak.members[o]:
            accused.append(both)
            kinds.append(np.r_[np.where(members, 0, 1), np.full(size, 2)])
    return Game(
        settings.study.task,
        leak.models.select(range(count * settings.models)),
        accused,
        np.array(kinds),
        np.repeat(np.arange(count), settings.models),
        leak.pools[0].initial_states,
    )


def score(game: Game, settings: GameSettings) -> dict[str, FloatArray]:
    """Every score of every accused, each of shape (models, n); larger for a member."""
    found: dict[str, list[FloatArray]] = {"mean-action": [], "first-steps": [], "all-steps": []}
    inputs = np.stack([one.actions for one in game.accused])
    lengths = np.stack([one.lengths for one in game.accused])
    answers = []
    for number in range(settings.rollouts):
        a_out, ends = _roll_out(game, settings.seed + number)
        answers.append(pairs_of(inputs, lengths, a_out, ends))
        both = (inputs, a_out, lengths, ends)
        found["mean-action"].append(scores.action_distance(*both))
        found["first-steps"].append(scores.step_distance(*both, settings.first_steps))
        found["all-steps"].append(scores.step_distance(*both))
    out = {name: np.mean(values, axis=0) for name, values in found.items()}
    if settings.network is not None:
        out["network"] = _network(game, np.stack(answers, axis=2), settings)
    key = jax.random.key(settings.seed)
    out["every-state"] = scores.every_state_score(game.models, game.accused, key=key)
    out["white-box"] = scores.vae_score(game.models, game.accused)
    return out


def pairs_of(
    a_in: Float32Array, lengths_in: IntArray, a_out: Float32Array, lengths_out: IntArray
) -> Float32Array:
    """Padded pairs, shape (models, n, 2 d_A, T), of actions (models, n, T, d_A)."""
    shape = a_in.shape
    padded = [
        pairs.pad_actions(a.reshape(-1, *shape[2:]), ends.ravel(), shape[2])
        for a, ends in ((a_in, lengths_in), (a_out, lengths_out))
    ]
    joined = np.concatenate(padded, axis=2).transpose(0, 2, 1)
    return joined.reshape(*shape[:2], *joined.shape[1:])


def _roll_out(game: Game, seed: int) -> tuple[Float32Array, IntArray]:
    """Actions (models, n, T, d_A) and lengths (models, n) of one roll-out beside each accused."""
    outputs = oracles.query_outputs(game.models, game.starts, game.task, seed=seed)
    repeats = game.kinds.shape[1] // len(game.starts)
    actions = np.stack([one.actions for one in outputs])
    lengths = np.stack([one.lengths for one in outputs])
    return np.tile(actions, (1, repeats, 1, 1)), np.tile(lengths, (1, repeats))


def _network(game: Game, answers: Float32Array, settings: GameSettings) -> FloatArray:
    """Mean logit over roll-outs, shape (models, n); ``answers`` (models, n, roll-outs, ...)."""
    assert settings.network is not None
    out = np.zeros(game.kinds.shape)
    shape = answers.shape[3:]
    names = game.oracles
    # which models train, and which say how long: all oracles but the judged one
    for place, judged in enumerate(names):
        own = game.oracle == judged
        waiting = game.oracle == names[(place + 1) % len(names)]
        known = [
            _labelled(answers[chosen], game.kinds[chosen]) for chosen in (~own & ~waiting, waiting)
        ]
        seed = settings.seed + place
        (network,) = training.train_to_plateau(
            known[:1], known[1:], settings.network, [seed], settings.most_steps
        )
        logits = network.logits(answers[own].reshape(-1, *shape))
        out[own] = logits.reshape(answers[own].shape[:3]).mean(axis=2)
    return out


def _labelled(answers: Float32Array, kinds: IntArray) -> tuple[Float32Array, FloatArray]:
    """Pairs of members and held-out trajectories, and who is a member."""
    chosen = kinds < 2
    found = answers[chosen]
    labels = np.repeat(kinds[chosen] == 0, found.shape[1]).astype(float)
    return found.reshape(-1, *found.shape[2:]), labels


# -- tables -----------------------------------------------------------------------------


def ratios(leak: Leak) -> dict[str, FloatArray]:
    """Likelihood ratios of the models of :func:`of_leak`; 0 for others, which have no shadows."""
    out = {}
    for access in ("every-state", "white-box"):
        for attack in ("lira-online", "lira-offline"):
            values = leak_tables.attack_scores(leak, access, attack)
            flat = values.reshape(-1, values.shape[-1])
            out[f"{access} {attack}"] = np.hstack([flat, np.zeros_like(flat)])
    return out


def table(
    game: Game, found: dict[str, FloatArray], labels: Sequence[str] = tuple(LABELS)
) -> dict[str, pd.DataFrame]:
    """AUC of every score, of :func:`score` or :func:`ratios`, for some questions of :data:`LABELS`.

    ``games``: ``environment, t_max, labels, score, oracles, models`` and ``auc, auc_low,
    auc_high``, the mean over models with its 95 % interval over oracles
    (:func:`dprl.membership.metrics.clustered_interval`). ``games-by-oracle``: ``environment, t_max,
    labels, score, oracle, auc``, the mean over the models of each oracle.
    """
    rows, by_oracle = [], []
    for name, values in found.items():
        for question in labels:
            areas = np.array(list(_areas(game.kinds, values, *LABELS[question])))
            interval = metrics.clustered_interval(areas, game.oracle)
            task = {"environment": game.task.environment, "t_max": game.task.t_max}
            row = {**task, "labels": question, "score": name}
            counts = {"oracles": interval.clusters, "models": areas.size}
            ends = {"auc_low": interval.low, "auc_high": interval.high}
            rows.append({**row, **counts, "auc": interval.mean, **ends})
            by_oracle += [
                {**row, "oracle": int(one), "auc": float(areas[game.oracle == one].mean())}
                for one in game.oracles
            ]
    return {"games": pd.DataFrame(rows), "games-by-oracle": pd.DataFrame(by_oracle)}


def _areas(kinds: IntArray, values: FloatArray, positive: int, negative: int) -> Iterator[float]:
    for of_model, one in zip(kinds, values, strict=True):
        chosen = (of_model == positive) | (of_model == negative)
        yield metrics.roc_curve(of_model[chosen] == positive, one[chosen]).area
