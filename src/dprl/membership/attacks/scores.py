r"""Scores of membership that need no training: how close a model's answers are to the data.

Each score is a number for a model and an accused trajectory; larger speaks for a member. They
differ in what the attacker may ask (a_t, s_t: actions and states of the accused trajectory,
T' its length):

===========  ==================================================  =========================
access       what is asked                                       score
===========  ==================================================  =========================
closed loop  the roll-out of the model from s_0                  :func:`action_distance`,
                                                                 :func:`step_distance`
every state  the model's answers at s_0 ... s_{T'-1}             :func:`every_state_score`
white box    the model's parameters                              :func:`vae_score`
===========  ==================================================  =========================

Closed loop is the access of the thesis. It lets the roll-out drift away from the accused
trajectory, and then compares actions that were taken in different states. The attacker holds
the accused trajectory, its states too, so that nothing but an interface that refuses states in
mid-course keeps him from asking at each of them.

Sources: thesis, sections 5.5 and 5.6.2 (closed loop); Yeom et al. 2018 (the loss as a score).
"""

from __future__ import annotations

from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import ArrayLike

from dprl import _validation as check
from dprl._validation import BoolArray, FloatArray, IntArray
from dprl.agents import bcq
from dprl.agents.bcq_population import BCQPopulation
from dprl.agents.episodes import Episodes, Float32Array

_LAYER = 50_000_000  # numbers in the widest layer when all models are asked at once


# -- closed loop ------------------------------------------------------------------------


def action_distance(
    a_in: ArrayLike,
    a_out: ArrayLike,
    lengths_in: ArrayLike | None = None,
    lengths_out: ArrayLike | None = None,
) -> FloatArray:
    r"""Minus the distance of the mean actions, ``-|mean_t a_in - mean_t a_out|_1``, shape (...).

    No network and no shadow model: one line, against which every trained attack on pairs
    should be compared.

    Parameters
    ----------
    a_in, a_out : array_like, shapes (..., T, d_A) that broadcast to each other
        Actions of the accused trajectory and of the model's roll-out; T may differ. Finite.
    lengths_in, lengths_out : array_like of int, shape (...), optional
        Steps that count, 1 ... T, of each. By default all of them, as for padded pairs.

    Examples
    --------
    >>> action_distance([[[3.0], [9.0]]], [[[1.0], [1.0]]], lengths_in=[1]).tolist()
    [-2.0]
    """
    means = [
        _mean_action(name, actions, lengths)
        for name, actions, lengths in (("a_in", a_in, lengths_in), ("a_out", a_out, lengths_out))
    ]
    if means[0].shape[-1] != means[1].shape[-1]:
        raise ValueError(
            f"a_in and a_out must have the same number of action coordinates, "
            f"got {means[0].shape[-1]} and {means[1].shape[-1]}"
        )
    try:
        gap = means[0] - means[1]
    except ValueError:
        raise ValueError(
            f"a_in and a_out must fit into one shape, got {np.shape(a_in)} and {np.shape(a_out)}"
        ) from None
    return np.asarray(-np.abs(gap).sum(axis=-1))


def step_distance(
    a_in: ArrayLike,
    a_out: ArrayLike,
    lengths_in: ArrayLike,
    lengths_out: ArrayLike,
    steps: int | None = None,
) -> FloatArray:
    """Minus the mean over steps of ``|a_in[t] - a_out[t]|_1 / d_A``: step beside step.

    Only steps that both trajectories have count, so that a fall ends the comparison, and no more
    than the first ``steps``; the rest as for :func:`action_distance`, but with one T.

    Examples
    --------
    >>> a_in, a_out = [[0.0], [1.0], [9.0]], [[0.5], [1.0], [0.0]]
    >>> step_distance(a_in, a_out, 3, 2).tolist(), step_distance(a_in, a_out, 3, 3, 1).tolist()
    (-0.25, -0.5)
    """
    x, y = check.finite_array("a_in", a_in), check.finite_array("a_out", a_out)
    if x.ndim < 2 or y.ndim < 2 or x.shape[-2:] != y.shape[-2:] or 0 in x.shape[-2:]:
        raise ValueError(
            "a_in and a_out must have the shape (..., T, d_A) with the same T, d_A >= 1, "
            f"got {x.shape} and {y.shape}"
        )
    longest = x.shape[-2]
    ends = np.minimum(
        _whole_lengths("lengths of a_in", lengths_in, x.shape[:-2], longest),
        _whole_lengths("lengths of a_out", lengths_out, y.shape[:-2], longest),
    )
    if steps is not None:
        ends = np.minimum(ends, check.whole("steps", steps))
    counts = np.arange(longest) < ends[..., None]
    gap = np.abs(x - y).mean(axis=-1)
    return np.asarray(-(gap * counts).sum(axis=-1) / ends)


def _mean_action(name: str, actions: ArrayLike, lengths: ArrayLike | None) -> FloatArray:
    a = check.finite_array(name, actions)
    if a.ndim < 2 or 0 in a.shape[-2:]:
        raise ValueError(
            f"{name} must have the shape (..., T, d_A) with T, d_A >= 1, got {a.shape}"
        )
    if lengths is None:
        return np.asarray(a.mean(axis=-2))
    ends = _whole_lengths(f"lengths of {name}", lengths, a.shape[:-2], a.shape[-2])
    counts = np.arange(a.shape[-2]) < ends[..., None]
    return np.asarray((a * counts[..., None]).sum(axis=-2) / ends[..., None])


def _whole_lengths(name: str, lengths: ArrayLike, shape: tuple[int, ...], longest: int) -> IntArray:
    ends = check.finite_array(name, lengths)
    if ends.shape != shape:
        raise ValueError(f"{name} must have the shape {shape}, got {ends.shape}")
    if (ends != np.floor(ends)).any() or (ends < 1).any() or (ends > longest).any():
        raise ValueError(f"{name} must be whole numbers in 1 ... {longest}")
    return ends.astype(np.int64)


# -- every state ------------------------------------------------------------------------


def every_state_score(
    models: BCQPopulation, episodes: Episodes | Sequence[Episodes], *, key: jax.Array
) -> FloatArray:
    """Black-box score: minus the mean over the steps of ``|a_t - answer|_1`` / d_A; (models, n).

    Of n accused trajectories, the same for all models, or one set per model, of equal n and T.
    ``key`` is that of the models' own randomness.
    """
    observations, actions, steps = _steps(models, episodes)
    count, n, t_max, d_s = observations.shape
    blocks = _blocks(models, n * t_max)
    flat = np.zeros((count, blocks.size, d_s), dtype=np.float32)
    flat[:, : n * t_max] = observations.reshape(count, n * t_max, d_s)
    now = jax.random.fold_in(key, 0)
    parts = [
        np.asarray(models.act(jax.random.fold_in(now, number), flat[:, block]))
        for number, block in enumerate(blocks)
    ]
    answers = np.concatenate(parts, axis=1)[:, : n * t_max]
    gap = np.abs(actions.astype(np.float64) - answers.reshape(actions.shape)).mean(axis=-1)
    return np.asarray(-(gap * steps).sum(axis=-1) / steps.sum(axis=-1))


def _blocks(models: BCQPopulation, rows: int) -> IntArray:
    """Rows of each model in pieces of one size, as few as memory allows; the last are empty."""
    settings = models.settings
    widest = max(*settings.hidden, *settings.vae_hidden) * settings.acting_candidates
    pieces = -(-len(models) * rows * widest // _LAYER)
    size = -(-rows // pieces)
    return np.arange(pieces * size).reshape(pieces, size)


# -- white box --------------------------------------------------------------------------


@jax.jit
def _reconstruction(
    parameters: bcq.BCQParameters, observations: jax.Array, actions: jax.Array
) -> jax.Array:
    # one model after the other: the layers of all at once may not fit into memory
    errors: jax.Array = jax.lax.map(
        lambda one: bcq.vae_reconstruction_error(*one), (parameters, observations, actions)
    )
    return errors


def vae_score(models: BCQPopulation, episodes: Episodes | Sequence[Episodes]) -> FloatArray:
    """White-box score: minus the reconstruction error of the model's generative part.

    BCQ's VAE is trained to give back the actions of the data. Its error is
    :func:`dprl.agents.bcq.vae_reconstruction_error`, averaged over the steps; the rest as for
    :func:`every_state_score`.
    """
    observations, actions, steps = _steps(models, episodes)
    count, n, t_max, d_s = observations.shape
    errors = np.asarray(
        _reconstruction(
            models.parameters,
            jnp.asarray(observations.reshape(count, n * t_max, d_s)),
            jnp.asarray(actions.reshape(count, n * t_max, -1)),
        ),
        dtype=np.float64,
    ).reshape(count, n, t_max)
    return np.asarray(-(errors * steps).sum(axis=-1) / steps.sum(axis=-1))


def _steps(
    models: BCQPopulation, episodes: Episodes | Sequence[Episodes]
) -> tuple[Float32Array, Float32Array, BoolArray]:
    """Observations, actions and which steps were taken, with a leading axis of models."""
    check.instance("models", models, BCQPopulation)
    if isinstance(episodes, Episodes):
        sets = [episodes] * len(models)
    else:
        sets = list(episodes)
        for one in sets:
            check.instance("each set of episodes", one, Episodes)
        if len(sets) != len(models):
            raise ValueError(f"episodes must be one set per model, {len(models)}, got {len(sets)}")
    sizes = {(len(one), one.t_max) for one in sets}
    if len(sizes) > 1:
        raise ValueError(f"all sets must have the same numbers n and T, got {sorted(sizes)}")
    for one in sets:
        for name, own, other in (
            ("observations", models.observation_size, one.observation_size),
            ("actions", models.action_size, one.action_size),
        ):
            if own != other:
                raise ValueError(
                    f"the models have {name} of {own} numbers, the episodes of {other}"
                )
    return (
        np.stack([one.observations[:, :-1] for one in sets]),
        np.stack([one.actions for one in sets]),
        np.stack([one.steps for one in sets]),
    )
