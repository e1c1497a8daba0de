r"""ORL-Auditor: was a model trained on a given *data set* of trajectories?

The published audit of data sets in offline reinforcement learning. The auditor holds the data set
D and may ask the suspect model what it would do in any state.

1. A *critic* Q is trained on D: the value of (s_t, a_t), the cumulative discounted reward that
   follows in D, by temporal differences, Q(s_t, a_t) -> r_t + gamma Q(s_{t+1}, a_{t+1}).
2. *Shadow models* are trained on all of D, with the suspect's algorithm and other seeds.
3. For each trajectory of D, each model gives the sequence Q(s_t, model(s_t)), t = 0, 1, ... Let
   q-bar be the mean sequence of the shadows, and d the distance of each model's to it.
4. *Grubbs' test* (one-sided): "not trained on D" if the suspect's d is an outlier, too large, among
   the shadows' distances and its own, at level alpha.

The audit answers for each trajectory, and accepts the suspect if a majority is accepted. What is
tested is "behaves like a model trained on D", with the shadows' spread as the measure. It says
"another data set" where a model behaves otherwise; a data set on which models behave alike it
cannot tell from D.

Sources: Du et al. 2024; the critic and the four distances as in their published program, with the
standard deviation in Grubbs' test by n - 1, as in Grubbs 1950 (the program divides by n).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from numpy.typing import ArrayLike
from scipy import special

from dprl import _validation as check
from dprl._validation import BoolArray, FloatArray
from dprl.agents.bcq_population import BCQPopulation
from dprl.agents.episodes import Episodes
from dprl.agents.networks import Params, mlp_apply, mlp_inits

#: Distances between sequences of values.
DISTANCES = ("l1", "l2", "cosine", "wasserstein")


@dataclass(frozen=True)
class CriticSettings:
    """Training of the auditor's critic.

    Parameters
    ----------
    hidden : tuple of int
        Widths of the hidden layers.
    learning_rate : float
        Of Adam.
    discount : float
        gamma in [0, 1).
    batch_size, steps : int
    """

    hidden: tuple[int, ...] = (64, 128, 64)
    learning_rate: float = 1e-3
    discount: float = 0.99
    batch_size: int = 256
    steps: int = 2_000

    def __post_init__(self) -> None:
        for width in self.hidden:
            check.whole("each width in hidden", width)
        check.positive("learning_rate", self.learning_rate)
        check.below_one("discount", self.discount)
        check.whole("batch_size", self.batch_size)
        check.whole("steps", self.steps)


class _Steps(NamedTuple):
    """Steps of a data set: inputs (N, d_s + d_A), rewards (N,), what follows, 1 where nothing."""

    now: jax.Array
    rewards: jax.Array
    after: jax.Array
    last: jax.Array


def train_critic(episodes: Episodes, settings: CriticSettings, key: jax.Array) -> Params:
    """The auditor's critic of a data set; rewards are divided by the largest one in size.

    Nothing is counted after the last step of a trajectory, also where it ended by the clock.
    """
    check.instance("episodes", episodes, Episodes)
    check.instance("settings", settings, CriticSettings)
    first, second = jax.random.split(key)
    inputs = np.concatenate([episodes.observations[:, :-1], episodes.actions], axis=-1)
    following = np.concatenate([inputs[:, 1:], np.zeros_like(inputs[:, :1])], axis=1)
    ends = np.arange(episodes.t_max) == episodes.lengths[:, None] - 1
    largest = max(float(np.abs(episodes.rewards).max()), 1e-30)
    steps = _Steps(
        jnp.asarray(inputs[episodes.steps]),
        jnp.asarray(episodes.rewards[episodes.steps] / largest),
        jnp.asarray(following[episodes.steps]),
        jnp.asarray(ends[episodes.steps].astype(np.float32)),
    )
    (critic,) = mlp_inits(first, [(inputs.shape[-1], *settings.hidden, 1)])
    trained: Params = _fit(critic, steps, second, settings)
    return trained


@partial(jax.jit, static_argnames="settings")
def _fit(critic: Params, steps: _Steps, key: jax.Array, settings: CriticSettings) -> Params:
    adam = optax.adam(settings.learning_rate)

    def loss(critic: Params, batch: _Steps) -> jax.Array:
        after = mlp_apply(critic, batch.after)[:, 0]
        target = batch.rewards + settings.discount * (1 - batch.last) * after
        value = mlp_apply(critic, batch.now)[:, 0]
        return jnp.mean(optax.huber_loss(value, jax.lax.stop_gradient(target)))

    def body(state: tuple[Params, object], key: jax.Array) -> tuple[tuple[Params, object], None]:
        critic, moments = state
        rows = jax.random.randint(key, (settings.batch_size,), 0, len(steps.rewards))
        slope = jax.grad(loss)(critic, _Steps(*(leaf[rows] for leaf in steps)))
        change, moments = adam.update(slope, moments)
        return (optax.apply_updates(critic, change), moments), None

    keys = jax.random.split(key, settings.steps)
    (critic, _), _ = jax.lax.scan(body, (critic, adam.init(critic)), keys)
    return critic


def value_sequences(
    critic: Params, models: BCQPopulation, episodes: Episodes, key: jax.Array
) -> FloatArray:
    """Q(s_t, model(s_t)) at all states of the trajectories, shape (models, n, T).

    Entries after the end of a trajectory are 0; the key is that of the models' own randomness.
    """
    n, t_max, d_s = episodes.observations[:, :-1].shape
    flat = episodes.observations[:, :-1].reshape(n * t_max, d_s)
    states = np.broadcast_to(flat, (len(models), *flat.shape))
    answers = np.asarray(models.act(key, states))
    values = mlp_apply(critic, jnp.concatenate([states, answers], axis=-1))[..., 0]
    return np.asarray(values, dtype=np.float64).reshape(len(models), n, t_max) * episodes.steps


def distances(
    values: ArrayLike, centre: ArrayLike, lengths: ArrayLike, kind: str = "l1"
) -> FloatArray:
    """Distance of sequences (..., n, T) to (n, T), over the first ``lengths`` (n,) entries.

    ``l1``: sum of absolute differences; ``l2``: of squares; ``cosine``: 1 minus the cosine;
    ``wasserstein``: mean absolute difference of the sorted entries. Shape (..., n).

    >>> distances([[3.0, 1.0, 9.0]], [[1.0, 1.0, 0.0]], [2], "l1").tolist()
    [2.0]
    """
    x, c = check.finite_array("values", values), check.finite_array("centre", centre, ndim=2)
    ends = check.whole_array("lengths", lengths)
    if kind not in DISTANCES:
        raise ValueError(f"kind must be one of {', '.join(DISTANCES)}, got {kind!r}")
    if x.shape[-2:] != c.shape or ends.shape != c.shape[:1] or (ends > c.shape[1]).any():
        raise ValueError(f"shapes do not fit: {x.shape}, {c.shape}, lengths {ends.shape}")
    counts = np.arange(c.shape[1]) < ends[:, None]
    if kind == "wasserstein":
        x, c = (np.sort(np.where(counts, array, np.inf), axis=-1) for array in (x, c))
        gap = np.abs(np.where(counts, x, 0.0) - np.where(counts, c, 0.0))
        return np.asarray(gap.sum(axis=-1) / ends)
    x, c = np.where(counts, x, 0.0), np.where(counts, c, 0.0)
    if kind == "cosine":
        norms = np.linalg.norm(x, axis=-1) * np.linalg.norm(c, axis=-1)
        return np.asarray(1 - (x * c).sum(axis=-1) / np.maximum(norms, np.finfo(float).tiny))
    gap = np.abs(x - c)
    return np.asarray((gap if kind == "l1" else gap**2).sum(axis=-1))


def grubbs_limit(n: int, alpha: float) -> float:
    """Largest (d - mean)/sd, sd by n - 1, of one of n >= 3 numbers that is no outlier.

    Grubbs' one-sided test at level alpha in (0, 1), exact for independent normal numbers. No number
    can exceed (n - 1)/sqrt(n).

    >>> round(grubbs_limit(10, 0.05), 3)
    2.176
    """
    count = check.whole("n", n, 3)
    t = -special.stdtrit(count - 2, check.open_unit("alpha", alpha) / count)
    return float((count - 1) / np.sqrt(count) * np.sqrt(t**2 / (count - 2 + t**2)))


def accepts(shadows: ArrayLike, suspect: ArrayLike, alpha: float = 0.01) -> BoolArray:
    """Whether the suspect's distances are no outliers: "trained on the data set", by trajectory.

    Parameters
    ----------
    shadows : array_like, shape (k, ...)
        Distances of k >= 2 shadow models.
    suspect : array_like, shape (...)
        Those of the suspect.
    alpha : float
        Level of each test, in (0, 1).

    Returns
    -------
    ndarray of bool, shape (...)

    Examples
    --------
    >>> accepts([[1.0], [1.2], [0.9], [1.1], [1.0]], [9.0]).tolist()
    [False]
    """
    d, own = check.finite_array("shadows", shadows), check.finite_array("suspect", suspect)
    if d.ndim < 1 or len(d) < 2 or d.shape[1:] != own.shape:
        raise ValueError(f"shadows must be (k, ...), suspect (...); got {d.shape}, {own.shape}")
    both = np.concatenate([d, own[None]])
    deviation = both.std(axis=0, ddof=1)
    excess = own - both.mean(axis=0)
    return np.asarray(excess <= grubbs_limit(len(both), alpha) * deviation)
