r"""BCQ from noisy gradients: every network private, the unit is one trajectory.

The training of :mod:`dprl.agents.bcq` with differentially private gradients (DP-SGD). One step:

1. *Poisson sampling.* Each trajectory of the data is taken with probability q, independently.
2. Of each one taken, b of its transitions are drawn with replacement, and g_i is the gradient of
   the sum of the three losses (auto-encoder, critics, perturbation), all at the parameters
   *before* the step; what a loss takes from another network is a constant.
3. g_i is cut in its three groups of networks, and each is clipped to norm C / sqrt 3, so that
   all of it has norm at most C.
4. The release is sum_i g_i + z C N(0, I). Divided by the public number B it goes to Adam, and the
   target networks move towards what Adam makes of it: both are computed from releases alone.

Neighbours add or remove one trajectory. It changes the sum by at most C, whatever its length, so a
step is a Gaussian mechanism of noise multiplier z on a Poisson sample, and U steps are U adaptive
releases of that kind: :func:`dprl.privacy.poisson_gaussian.poisson_gaussian_epsilon`. The
promise covers *all six* networks, critics and targets too, after every step: a white box attack
sees nothing else. It needs that q, z, C, B, b, the number of steps, the sizes and the learning rate
are fixed without looking at the data. Nothing else is taken from them: observations and rewards
are not normalised, actions are bounded by the task, and no step is left out.

Sources: Abadi et al. 2016 (DP-SGD); Fujimoto, Meger and Precup 2019 (BCQ); McMahan et al. 2018
(one contribution per person). Gradients have single precision, their noise is NumPy's, of double
precision; its rounding is for study, not for a real release.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.flatten_util import ravel_pytree

from dprl import _validation as check
from dprl._validation import BoolArray, FloatArray, IntArray
from dprl.agents import bcq
from dprl.agents.bcq import BCQParameters, BCQSettings, as_noise, noise_shape
from dprl.agents.episodes import Episodes
from dprl.agents.networks import MiniBatch, soft_update

#: Samples are filled up to multiples of this.
SLOTS = 16


@dataclass(frozen=True)
class PrivateSettings:
    """What a private training depends on beside the data; all of it public.

    Parameters
    ----------
    bcq : BCQSettings
        Networks and losses; its ``batch_size`` is b, the transitions of each trajectory taken.
    rate : float
        q in (0, 1], with which a trajectory is taken in a step.
    divisor : float
        B > 0, by which the noisy sum is divided: what q times the number of trajectories should be.
    clip : float
        C > 0; may be infinite if there is no noise.
    noise : float
        z >= 0, standard deviation of the noise in units of C; with 0 nothing is promised.
    """

    bcq: BCQSettings = field(default_factory=BCQSettings.laptop)
    rate: float = 0.1
    divisor: float = 50.0
    clip: float = 1.0
    noise: float = 1.0

    def __post_init__(self) -> None:
        check.instance("bcq", self.bcq, BCQSettings)
        check.fraction("rate", self.rate)
        check.positive("divisor", self.divisor)
        check.not_negative("noise", self.noise)
        if not self.clip > 0:
            raise ValueError(f"clip must be positive, got {self.clip}")
        if np.isinf(self.clip) and self.noise:
            raise ValueError("noise needs a finite clip: without one a trajectory is unbounded")


class _Trainable(NamedTuple):
    """What gradients are taken of, by group."""

    vae: Any
    critics: Any
    perturbation: Any


def train(
    episodes: Episodes,
    members: BoolArray,
    settings: PrivateSettings,
    steps: int,
    rng: np.random.Generator,
    *,
    timeout_is_terminal: bool = False,
) -> BCQParameters:
    """Train one model privately on some of the trajectories.

    Parameters
    ----------
    episodes : Episodes
        A pool of n trajectories.
    members : array of bool, shape (n,)
        Which of them are the data. The others are never touched.
    settings : PrivateSettings
    steps : int
        U >= 1.
    rng : numpy.random.Generator
        Of the networks, the samples and the noise.
    timeout_is_terminal : bool
        As for :meth:`dprl.agents.episodes.Episodes.transitions`.

    Returns
    -------
    BCQParameters
        All networks, targets included.

    Notes
    -----
    Private for adding or removing one trajectory, see the module; the computing time, which tells
    how many trajectories were taken, is not.
    """
    check.instance("episodes", episodes, Episodes)
    check.instance("settings", settings, PrivateSettings)
    held = np.asarray(members)
    if held.dtype != np.bool_ or held.shape != (len(episodes),):
        raise ValueError(f"members must be {len(episodes)} bools, got {held.dtype} {held.shape}")
    check.generator(rng)
    rows, taken = poisson_samples(held, settings.rate, check.whole("steps", steps), rng)
    parameters = bcq.initialise(
        jax.random.key(int(rng.integers(2**31))),
        episodes.observation_size,
        episodes.action_size,
        settings.bcq,
    ).parameters
    # whole keys, not seeds: a step's two draws share nothing with those of another
    keys = rng.integers(2**32, size=(len(rows), 2, 4), dtype=np.uint32)
    data, lengths = _data(episodes, timeout_is_terminal), jnp.asarray(episodes.lengths)
    deviation = settings.noise * settings.clip if settings.noise else 0.0
    moments = _adam(settings.bcq).init(_trainable(parameters))
    for row, weight, raw in zip(rows, taken, keys, strict=True):
        slots = _slots(int(weight.sum()), row.size)
        sample = (row[:slots], weight[:slots], raw)
        total = _clipped_sum(parameters, data, lengths, sample, settings.clip, settings.bcq)
        release = np.asarray(total, dtype=np.float64)
        release = release + deviation * rng.standard_normal(release.size)
        mean = (release / settings.divisor).astype(np.float32)
        parameters, moments = _follow(parameters, moments, mean, settings.bcq)
    return parameters


def poisson_samples(
    members: BoolArray, rate: float, steps: int, rng: np.random.Generator
) -> tuple[IntArray, FloatArray]:
    """Which trajectories each step takes: each member with the given probability, independently.

    Returns their numbers, shape (steps, most), and 1 where an entry counts, 0 where it only fills
    up the row, which is after those that count; ``most`` is what the largest sample holds, so that
    none is cut off, rounded up to a multiple of :data:`SLOTS` (or n).
    """
    chosen = (rng.random((steps, members.size)) < rate) & members
    most = _slots(int(chosen.sum(axis=1).max()), members.size)
    rows = np.argsort(~chosen, axis=1, kind="stable")[:, :most]
    return rows, np.take_along_axis(chosen, rows, axis=1).astype(np.float32)


def _slots(taken: int, most: int) -> int:
    """Slots for so many trajectories: few different numbers, each of which is compiled once."""
    return min(-(-max(taken, 1) // SLOTS) * SLOTS, most)


def clipped(gradient: _Trainable, clip: float | jax.Array) -> _Trainable:
    """Each group of one trajectory's gradient clipped to norm clip / sqrt 3.

    A group that is not finite counts as zero: its norm could not be bounded.
    """
    share = clip / np.sqrt(len(gradient))

    def shorten(group: Any) -> Any:
        norm = optax.tree.norm(group)
        factor = jnp.minimum(1.0, share / (norm + 1e-12))
        return jax.tree.map(lambda leaf: jnp.where(jnp.isfinite(norm), leaf * factor, 0.0), group)

    return _Trainable(*(shorten(group) for group in gradient))


def trajectory_gradient(
    parameters: BCQParameters, batch: MiniBatch, numbers: jax.Array, settings: BCQSettings
) -> _Trainable:
    """Gradient of the three losses on transitions of one trajectory, all at ``parameters``.

    ``numbers`` are standard normal, of shape :func:`dprl.agents.bcq.noise_shape`.
    """
    noise = as_noise(numbers)
    targets = bcq.critic_targets(parameters, batch, noise.proposals, settings)

    def loss(at: _Trainable) -> jax.Array:
        vae, _ = bcq.vae_loss(at.vae, batch, noise.encoding, settings)
        critics = bcq.critics_loss(at.critics, batch, targets)
        actor = bcq.perturbation_loss(at.perturbation, parameters, batch, noise.proposal, settings)
        return vae + critics + actor

    slope: _Trainable = jax.grad(loss)(_trainable(parameters))
    return slope


def _trainable(parameters: BCQParameters) -> _Trainable:
    vae = (parameters.encoder, parameters.decoder)
    return _Trainable(vae, parameters.critics, parameters.perturbation)


def _data(episodes: Episodes, timeout_is_terminal: bool) -> MiniBatch:
    """Arrays (n, T, ...) of all transitions, padded after the end of each trajectory."""
    last = np.arange(episodes.t_max) == episodes.lengths[:, None] - 1
    ended = episodes.terminated[:, None] | timeout_is_terminal
    return MiniBatch(
        observations=jnp.asarray(episodes.observations[:, :-1]),
        actions=jnp.asarray(episodes.actions),
        rewards=jnp.asarray(episodes.rewards),
        next_observations=jnp.asarray(episodes.observations[:, 1:]),
        terminals=jnp.asarray((last & ended).astype(np.float32)),
    )


@partial(jax.jit, static_argnames="learner")
def _clipped_sum(
    parameters: BCQParameters,
    data: MiniBatch,
    lengths: jax.Array,
    sample: tuple[jax.Array, jax.Array, jax.Array],
    clip: float,
    learner: BCQSettings,
) -> jax.Array:
    """The clipped gradients of a sample, summed, in one row; raw keys (2, 4) of its draws."""
    rows, weight, raw = sample
    shares_key, numbers_key = (jax.random.wrap_key_data(raw[i], impl="rbg") for i in (0, 1))
    shares = jax.random.uniform(shares_key, (rows.size, learner.batch_size))
    shape = noise_shape(data.actions.shape[-1], learner)
    numbers = jax.random.normal(numbers_key, (rows.size, *shape))

    def one(row: jax.Array, share: jax.Array, numbers: jax.Array) -> _Trainable:
        step = jnp.floor(share * lengths[row]).astype(int)
        batch = MiniBatch(*(leaf[row, step] for leaf in data))
        return clipped(trajectory_gradient(parameters, batch, numbers, learner), clip)

    each = jax.vmap(one)(rows, shares, numbers)
    total = jax.tree.map(lambda leaf: jnp.tensordot(weight, leaf, axes=1), each)
    return ravel_pytree(total)[0]


@partial(jax.jit, static_argnames="learner")
def _follow(
    parameters: BCQParameters, moments: Any, mean: jax.Array, learner: BCQSettings
) -> tuple[BCQParameters, Any]:
    """Adam's step for a released mean, then the targets'."""
    known = _trainable(parameters)
    change, moments = _adam(learner).update(ravel_pytree(known)[1](mean), moments)
    at: _Trainable = optax.apply_updates(known, change)
    old = (parameters.target_perturbation, parameters.target_critics)
    new = soft_update(old, (at.perturbation, at.critics), learner.target_rate)
    encoder, decoder = at.vae
    return BCQParameters(encoder, decoder, at.perturbation, at.critics, *new), moments


def _adam(learner: BCQSettings) -> optax.GradientTransformation:
    return optax.adam(learner.learning_rate)
