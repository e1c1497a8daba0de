"""Many BCQ models at once: training on a data set each, and asking all of them.

:func:`start` makes a population, :func:`train` goes on with it, and a :class:`BCQPopulation`
answers queries. A training knows no files: all that its future depends on beside the data is in a
:class:`BCQTraining`, a tree of arrays, and to go on from one is, bit by bit on the same machine,
never to have stopped.

Random numbers: networks and the noise of a chunk of updates are drawn by the compiler's own
generator (JAX's ``rbg``), which is faster than JAX's default. Its keys come from
:class:`numpy.random.SeedSequence` of the model's seed and the number of the chunk: no two models
or chunks share one. A CPU and a GPU may draw different numbers. Queries draw by the same generator,
from the key that they are given, of any kind.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import ArrayLike, NDArray

from dprl import _validation as check
from dprl.agents import parallel
from dprl.agents.bcq import (
    BCQParameters,
    BCQSettings,
    BCQState,
    act,
    as_noise,
    best_candidate,
    draw_candidates,
    initialise,
    noise_shape,
    update,
)
from dprl.agents.episodes import Float32Array, Transitions
from dprl.agents.networks import MiniBatch, Tree

#: Updates in one compiled call, unless said otherwise; random numbers are drawn for each.
CHUNK = 200

_ACTION_SLACK = 1e-5  # float32 rounding of an action that was clipped to [-1, 1]


class BCQTraining(NamedTuple):
    """Models in training: all that their future depends on beside the data, only arrays.

    Each leaf of ``models`` has a leading axis of models. Networks, batches and noise of each model
    are drawn from its own seed (models,); each has received ``updates`` updates.
    """

    models: BCQState
    seeds: NDArray[np.int64]
    updates: int


def start(
    settings: BCQSettings, observation_size: int, action_size: int, seeds: Sequence[int]
) -> BCQTraining:
    """One new model per seed (>= 0, at least one); equal seeds give equal networks."""
    check.instance("settings", settings, BCQSettings)
    known = [check.whole("each seed", seed, minimum=0) for seed in seeds]
    if not known:
        raise ValueError("seeds must be one per model, got none")
    # one model after the other, not vmap: this generator mixes the keys of a vmap
    sizes = (observation_size, action_size, settings)
    models = [_start_one(raw, *sizes) for raw in _raw_keys(known, 0)[:, 0]]
    return BCQTraining(_stacked(models), np.array(known), 0)


@partial(jax.jit, static_argnames=("observation_size", "action_size", "settings"))
def _start_one(
    raw_key: jax.Array, observation_size: int, action_size: int, settings: BCQSettings
) -> BCQState:
    key = jax.random.wrap_key_data(raw_key, impl="rbg")
    return initialise(key, observation_size, action_size, settings)


def train(
    training: BCQTraining,
    datasets: Sequence[Transitions],
    settings: BCQSettings,
    updates: int,
    *,
    chunk: int = CHUNK,
) -> tuple[BCQTraining, Float32Array]:
    """Update every model so many more times, each on its own data set.

    Parameters
    ----------
    training, settings
        From :func:`start`, or from this function, with the same settings; it is not changed.
    datasets : sequence of Transitions
        One per model; their sizes may differ. Actions in [-1, 1].
    updates : int
        Updates per model, >= 1.
    chunk : int
        Updates per compiled call; random numbers are drawn per chunk, so it is part of the
        result, and must divide the updates made before. Memory of a chunk's noise:
        models x chunk x batch_size x (candidates + 2) x L floats.

    Returns
    -------
    BCQTraining
    losses : ndarray, shape (models, chunks, 4)
        Means over the updates of each chunk, named by :data:`dprl.agents.bcq.LOSSES`.
    """
    end = training.updates + check.whole("updates", updates)
    if training.updates % check.whole("chunk", chunk):
        raise ValueError(
            f"chunk must divide the updates made before, {training.updates}, got {chunk}"
        )
    action_size = _check_datasets(training, datasets, settings)
    sizes = np.array([len(one) for one in datasets], dtype=np.uint32)
    groups = parallel.groups(len(datasets))
    everything = _padded(datasets, int(sizes.max()))
    data = [parallel.part_of(everything, group) for group in groups]
    states = [parallel.part_of(training.models, group) for group in groups]
    losses = []
    for done in range(training.updates, end, chunk):
        keys, length = _raw_keys(training.seeds, 1, done // chunk), min(chunk, end - done)
        given = [
            (state, rows, sizes[group], keys[group], length, action_size, settings)
            for state, rows, group in zip(states, data, groups, strict=True)
        ]
        states, means = map(list, zip(*parallel.on_threads(_run_chunk, given), strict=True))
        losses.append(np.concatenate(means))
    trained = BCQTraining(parallel.joined(states), training.seeds, end)
    return trained, np.stack(losses, axis=1)


def _raw_keys(seeds: Sequence[int] | NDArray[np.int64], *purpose: int) -> NDArray[np.uint32]:
    """Raw keys (models, 2, 4): two for each seed and purpose."""
    words = [np.random.SeedSequence(int(s), spawn_key=purpose).generate_state(8) for s in seeds]
    return np.array(words, dtype=np.uint32).reshape(-1, 2, 4)


@partial(jax.jit, static_argnames=("length", "action_size", "settings"))
def _run_chunk(
    state: BCQState,
    data: MiniBatch,
    sizes: jax.Array,
    keys: jax.Array,
    length: int,
    action_size: int,
    settings: BCQSettings,
) -> tuple[BCQState, jax.Array]:
    """`length` updates of every model, with the random numbers of raw keys (models, 2, 4)."""

    def draw(raw_and_size: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        raw, size = raw_and_size
        rows, bulk = (jax.random.wrap_key_data(raw[i], impl="rbg") for i in (0, 1))
        # a remainder favours no row by more than a factor 1 + size / 2^32
        chosen = jax.random.bits(rows, (length, settings.batch_size), jnp.uint32) % size
        return chosen, jax.random.normal(bulk, (length, *noise_shape(action_size, settings)))

    chosen, numbers = jax.lax.map(draw, (keys, sizes))  # not vmap, as in start

    def one_model(
        state: BCQState, data: MiniBatch, chosen: jax.Array, numbers: jax.Array
    ) -> tuple[BCQState, jax.Array]:
        def body(state: BCQState, now: tuple[jax.Array, jax.Array]) -> tuple[BCQState, jax.Array]:
            rows, drawn = now
            batch = jax.tree.map(lambda x: x[rows], data)
            return update(state, batch, as_noise(drawn), settings)

        state, losses = jax.lax.scan(body, state, (chosen, numbers))
        return state, losses.mean(axis=0)

    trained: tuple[BCQState, jax.Array] = parallel.each(one_model, state, data, chosen, numbers)
    return trained


def _check_datasets(
    training: BCQTraining, datasets: Sequence[Transitions], settings: BCQSettings
) -> int:
    """Refuse what does not fit; the action size d_A."""
    check.instance("settings", settings, BCQSettings)
    models = len(training.seeds)
    if len(datasets) != models:
        raise ValueError(f"datasets must be one per model, {models}, got {len(datasets)}")
    known = BCQPopulation(settings, training.models.parameters)
    for one in datasets:
        check.instance("each data set", one, Transitions)
        for name, own, other in (
            ("observations", known.observation_size, one.observation_size),
            ("actions", known.action_size, one.action_size),
        ):
            if own != other:
                raise ValueError(f"the models have {name} of {own} numbers, a data set of {other}")
        largest = float(np.abs(one.actions).max())
        if largest > 1 + _ACTION_SLACK:
            raise ValueError(f"actions must lie in [-1, 1], got one of size {largest:g}")
    return known.action_size


def _padded(datasets: Sequence[Transitions], rows: int) -> MiniBatch:
    """All data in arrays (models, rows, ...); zeros after the end of the shorter ones."""

    def padded(name: str) -> Float32Array:
        parts = [np.asarray(getattr(one, name), dtype=np.float32) for one in datasets]
        out = np.zeros((len(parts), rows, *parts[0].shape[1:]), np.float32)
        for place, part in zip(out, parts, strict=True):
            place[: len(part)] = part
        return out

    return MiniBatch(*(jnp.asarray(padded(name)) for name in MiniBatch._fields))


# -- trained models -----------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class BCQPopulation:
    """Models that answer queries: all their parameters, the VAE's too; leading axis = models."""

    settings: BCQSettings
    parameters: BCQParameters

    def __len__(self) -> int:
        return int(self.parameters.decoder[-1].bias.shape[0])

    @property
    def action_size(self) -> int:
        """d_A."""
        return int(self.parameters.decoder[-1].bias.shape[-1])

    @property
    def observation_size(self) -> int:
        """d_s."""
        return int(self.parameters.encoder[0].weight.shape[-2]) - self.action_size

    def model(self, index: int) -> BCQParameters:
        """Parameters of one model, index 0 ... len - 1."""
        if check.whole("model", index, minimum=0) >= len(self):
            raise ValueError(f"model must be below {len(self)}, got {index}")
        one: BCQParameters = jax.tree.map(lambda leaf: leaf[index], self.parameters)
        return one

    def select(self, models: Sequence[int]) -> BCQPopulation:
        """Some of the models as a population of their own, in the order given."""
        rows = [check.whole("each of models", index, minimum=0) for index in models]
        if not rows or max(rows) >= len(self):
            raise ValueError(f"models must be some numbers below {len(self)}, got {list(models)}")
        chosen = np.array(rows)
        return replace(self, parameters=jax.tree.map(lambda leaf: leaf[chosen], self.parameters))

    def act(self, key: jax.Array, observations: ArrayLike) -> jax.Array:
        """Greedy actions (models, n, d_A) of all models, each at its observations (models, n, d_s).

        Each model draws its latent vectors with its own part of the key.
        """
        x = jnp.asarray(observations, dtype=jnp.float32)
        if x.ndim != 3 or x.shape[0] != len(self) or x.shape[2] != self.observation_size:
            raise ValueError(
                f"observations must have shape ({len(self)}, n, {self.observation_size}), "
                f"got {x.shape}"
            )
        keys = jax.random.split(key, len(self))
        actions: jax.Array = _act_all(self.parameters, keys, x, self.settings)
        return actions

    def policy(self, model: int, key: jax.Array) -> Callable[[Float32Array, int], Float32Array]:
        """One model as a policy of :func:`dprl.agents.environments.rollout`.

        The latent draws of a step come from ``fold_in(key, step)``.
        """
        parameters = self.model(model)

        def policy(observations: Float32Array, step: int) -> Float32Array:
            now = jax.random.fold_in(key, step)
            return np.asarray(act(parameters, now, jnp.asarray(observations), self.settings))

        return policy


@partial(jax.jit, static_argnames="settings")
def _act_all(
    parameters: BCQParameters, keys: jax.Array, observations: jax.Array, settings: BCQSettings
) -> jax.Array:
    def draw(key: jax.Array) -> jax.Array:
        return draw_candidates(key, parameters, observations, settings)

    noise = jax.lax.map(draw, keys)  # not vmap: see fast_key
    best = jax.vmap(partial(best_candidate, settings=settings))
    actions: jax.Array = best(parameters, noise, observations)
    return actions


def _stacked(trees: Sequence[Tree]) -> Tree:
    whole: Tree = jax.tree.map(lambda *leaves: jnp.stack(leaves), *trees)
    return whole
