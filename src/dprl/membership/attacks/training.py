r"""Training of attack networks: the loss (5.2), Adam, several trainings in one program.

The expected loss (5.2) of the thesis is approximated by the mean over a training set D; its
loss function l is not stated. Here it is the cross entropy of a logit z and a label g::

    l(z, g) = log(1 + e^z) - g z,         g = 1 for "member"

:func:`train` fits one network, :func:`train_many` several at once, each on its own data with
its own seed, by one pure program: on a GPU in lockstep (``vmap``), on a CPU one after the
other (``lax.map``), where products of many small matrices at once are slower than one by one.
Everything random is drawn from the seed of a training alone: its result does not depend on
what is trained beside it, up to rounding.

Sources: thesis, equation (5.2) and table 5.1; Kingma and Ba 2015 (Adam); Loshchilov and Hutter
2019 (decoupled weight decay).
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
import optax
from numpy.typing import ArrayLike, NDArray

from dprl import _validation as check
from dprl._validation import FloatArray, IntArray

from . import resnet, tcn
from .resnet import ResNetSettings
from .tcn import TCNSettings
from .voting import bag_indices, pair_array, vote

Array: TypeAlias = jax.Array
Settings: TypeAlias = TCNSettings | ResNetSettings
Variables: TypeAlias = tuple[dict[str, Any], dict[str, Any]]
Rates: TypeAlias = tuple[ArrayLike, ArrayLike, ArrayLike]

# inputs judged at once: most sets of pairs are multiples of 100, so that little is filled up
_BLOCKS = {TCNSettings: 100, ResNetSettings: 32}


@dataclass(frozen=True, eq=False)
class Classifier:
    """A trained attack network; made by :func:`train`.

    Attributes
    ----------
    settings : TCNSettings or ResNetSettings
    channels, length : int
        2 d_A and T of the pairs it was trained on; it judges pairs of this shape only.
    parameters, statistics : dict
        Trained numbers; running statistics of batch normalisation, empty for a TCN.
    losses : ndarray, shape (steps,)
        Loss (5.2) of each batch before its step, with dropout and batch statistics.
    """

    settings: Settings
    channels: int
    length: int
    parameters: dict[str, Any]
    statistics: dict[str, Any]
    losses: FloatArray

    def logits(self, pairs: ArrayLike) -> FloatArray:
        """Logits of pairs (n, channels, length), shape (n,); positive speaks for "member".

        A network for bags refuses: use :meth:`bag_logits`.
        """
        if not isinstance(self.settings, TCNSettings):
            raise TypeError("this network judges bags, not single pairs: use bag_logits")
        x = self._fitting(pairs)
        return self._judge(x, np.arange(len(x))[:, None])

    def bag_logits(self, pairs: ArrayLike, bags: ArrayLike) -> FloatArray:
        """Logits of bags, shape (k,): the network's own, or the mean over a bag's pairs.

        ``bags`` (k, m) says which of the pairs (n, channels, length) make each bag; a network for
        bags wants its own bag size.
        """
        x = self._fitting(pairs)
        index = bag_indices(bags, len(x))
        if isinstance(self.settings, TCNSettings):
            return vote(self.logits(x), index)
        if index.shape[1] != self.settings.bag_size:
            raise ValueError(
                f"this network judges bags of {self.settings.bag_size}, got {index.shape[1]}"
            )
        return self._judge(x, index)

    def _fitting(self, pairs: ArrayLike) -> NDArray[np.float32]:
        x = pair_array("pairs", pairs)
        if x.shape[1:] != (self.channels, self.length):
            raise ValueError(
                f"this network was trained on pairs of shape {(self.channels, self.length)}, "
                f"got {x.shape[1:]}"
            )
        return x

    def _judge(self, pairs: NDArray[np.float32], index: IntArray) -> FloatArray:
        # blocks of one size, the last one filled up: one program for all lengths
        size = _BLOCKS[type(self.settings)]
        filled = np.concatenate([index, np.repeat(index[:1], -len(index) % size, axis=0)])
        shape, variables = _shape(self.settings), (self.parameters, self.statistics)
        answers = [
            np.asarray(_evaluate(shape, variables, _gather(shape, pairs, block)))
            for block in filled.reshape(-1, size, index.shape[1])
        ]
        return np.concatenate(answers)[: len(index)].astype(np.float64)


def train(pairs: ArrayLike, labels: ArrayLike, settings: Settings, seed: int) -> Classifier:
    """Fit one attack network.

    A network for bags draws its bags from the pairs (n, 2 d_A, T), each of one label, without
    repetition within a bag, afresh in every step. Labels (n,) are booleans, or 1 for "member"; both
    kinds must occur, and often enough for a bag. The same seed >= 0 gives the same network on the
    same machine.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> labels = np.arange(40) % 2
    >>> pairs = rng.normal(size=(40, 2, 6)) + 3 * labels[:, None, None]
    >>> small = TCNSettings(channels=4, kernel=2, dilations=(1,), learning_rate=0.02, steps=100)
    >>> network = train(pairs, labels, small, seed=1)
    >>> bool(((network.logits(pairs) > 0) == labels).mean() > 0.9)
    True
    """
    return train_many([pairs], [labels], settings, [seed])[0]


def train_many(
    pairs: Sequence[ArrayLike],
    labels: Sequence[ArrayLike],
    settings: Settings,
    seeds: Sequence[int],
) -> list[Classifier]:
    """Fit several networks of one kind in one program; each is what :func:`train` gives.

    Pairs, labels and a seed for each training, as in :func:`train`; pairs of one shape. The
    settings are the same for all.
    """
    if not isinstance(settings, TCNSettings | ResNetSettings):
        raise TypeError(
            f"settings must be a TCNSettings or a ResNetSettings, got {type(settings).__name__}"
        )
    if not len(pairs) == len(labels) == len(seeds) or not len(seeds):
        raise ValueError(
            "each training needs pairs, labels and a seed, "
            f"got {len(pairs)}, {len(labels)} and {len(seeds)}"
        )
    data = [pair_array("pairs", one) for one in pairs]
    shapes = sorted({one.shape for one in data})
    if len(shapes) > 1:
        raise ValueError(
            "all trainings must have pairs of one shape (no mixed action dimensions, lengths or "
            f"numbers), got {', '.join(map(str, shapes))}"
        )
    n, channels, length = shapes[0]
    truth = [_labels(one, n) for one in labels]
    starts, batches = [], []
    for seed, labels_of in zip(seeds, truth, strict=True):
        weights, order = np.random.default_rng(check.seed(seed)).spawn(2)
        starts.append(_init(weights, channels, settings))
        batches.append(_batches(labels_of, settings, order))
    keys = jnp.stack([jax.random.key(seed) for seed in seeds])  # of dropout
    given = _Trainings(
        jax.tree.map(lambda *leaves: np.stack(leaves), *starts),
        jnp.asarray(np.stack(data)),
        jnp.asarray(np.stack(truth), dtype=jnp.float32),
        jnp.asarray(np.stack(batches), dtype=jnp.int32),
    )
    trained, losses = _fit(_shape(settings), _lockstep(), rates_of(settings), given, keys)
    (parameters, statistics), losses = jax.device_get((trained, losses))
    return [
        Classifier(
            settings,
            channels,
            length,
            _entry(parameters, i),
            _entry(statistics, i),
            np.asarray(losses[i], dtype=np.float64),
        )
        for i in range(len(seeds))
    ]


def train_to_plateau(
    data: Sequence[tuple[ArrayLike, ArrayLike]],
    held_out: Sequence[tuple[ArrayLike, ArrayLike]],
    settings: TCNSettings,
    seeds: Sequence[int],
    most_steps: int,
) -> list[Classifier]:
    """Fit networks for single pairs for so long as longer training helps on pairs held out.

    All are trained for ``settings.steps``; then, from the start, for twice as many, and so on,
    until a doubling no longer lowers the mean loss (5.2) on the pairs held out, or would exceed
    ``most_steps`` >= ``settings.steps``. Those with the lowest mean loss are returned, in the order
    given; ``settings.steps`` of each says how long it was trained.

    ``data`` and ``held_out`` are (pairs, labels) of each training, as for :func:`train_many`;
    those held out may differ in number.
    """
    check.instance("settings", settings, TCNSettings)
    if check.whole("most_steps", most_steps) < settings.steps:
        raise ValueError(f"most_steps must be at least {settings.steps}, got {most_steps}")
    if len(held_out) != len(data):
        raise ValueError(
            f"each training needs pairs held out, got {len(held_out)} for {len(data)} trainings"
        )
    pairs, labels = zip(*data, strict=True)
    best: list[Classifier] = []
    lowest = np.inf
    while settings.steps <= most_steps:
        found = train_many(pairs, labels, settings, seeds)
        losses = [
            float(cross_entropy(jnp.asarray(one.logits(x)), jnp.asarray(y, jnp.float32)))
            for one, (x, y) in zip(found, held_out, strict=True)
        ]
        if np.mean(losses) >= lowest:
            break
        best, lowest = found, float(np.mean(losses))
        settings = dataclasses.replace(settings, steps=2 * settings.steps)
    return best


def cross_entropy(logits: Array, labels: Array) -> Array:
    """Mean of the loss l of the module's head: log(1 + e^z) - g z, without overflow."""
    return (jax.nn.softplus(logits) - labels * logits).mean()


def optimiser(rates: Rates) -> optax.GradientTransformation:
    """Adam of table 5.1, with a weight decay added to the gradient, or to the step (AdamW)."""
    rate, added, decoupled = rates
    return optax.chain(
        optax.add_decayed_weights(added),
        optax.scale_by_adam(),
        optax.add_decayed_weights(decoupled),
        optax.scale_by_learning_rate(rate),
    )


def rates_of(settings: Settings) -> tuple[float, float, float]:
    """Learning rate, weight decay in the gradient, weight decay in the step; two may be 0."""
    if isinstance(settings, TCNSettings):
        return settings.learning_rate, 0.0, 0.0
    added = settings.weight_decay if settings.decay == "l2" else 0.0
    return settings.learning_rate, added, settings.weight_decay - added


def _shape(settings: Settings) -> Settings:
    """The settings without what needs no other program: rates, and what the batches show."""
    plain = dataclasses.replace(settings, learning_rate=1.0, steps=1, batch_size=2)
    if isinstance(plain, ResNetSettings):
        return dataclasses.replace(plain, weight_decay=0.0, decay="l2", bag_size=1)
    return plain


def _lockstep() -> bool:
    return jax.default_backend() != "cpu"


class _Trainings(NamedTuple):
    """What is given to each training, in the first axis of every array."""

    starts: Variables
    data: Array
    truth: Array
    batches: Array


@functools.partial(jax.jit, static_argnums=(0, 1))
def _fit(
    settings: Settings, together: bool, rates: Rates, given: _Trainings, keys: Array
) -> tuple[Variables, Array]:
    """All trainings, with a key of each for dropout; in lockstep, or one after the other."""
    one = functools.partial(_fit_one, settings, rates)
    steps, size = given.batches.shape[1:3]
    # not vmap: see fast_key
    dropout = jax.lax.map(lambda key: _dropout(settings, key, steps, size), keys)
    of_all = (*given, dropout)
    if together:
        return jax.vmap(one)(*of_all)
    trained: tuple[Variables, Array] = jax.lax.map(lambda arguments: one(*arguments), of_all)
    return trained


def _dropout(settings: Settings, key: Array, steps: int, size: int) -> Array:
    """What dropout keeps in each step of a training; nothing to say for a ResNet."""
    if isinstance(settings, TCNSettings):
        return tcn.draw_kept(key, size, settings, (steps,))
    return jnp.zeros(steps)


def _fit_one(
    settings: Settings,
    rates: Rates,
    start: Variables,
    data: Array,
    truth: Array,
    batches: Array,
    dropout: Array,
) -> tuple[Variables, Array]:
    rule = optimiser(rates)

    def loss(parameters: Any, statistics: Any, index: Array, kept: Array) -> tuple[Array, Any]:
        inputs = _gather(settings, data, index)
        logits, moved = _apply(settings, (parameters, statistics), inputs, kept)
        return cross_entropy(logits, truth[index[:, 0]]), moved

    def step(carry: Any, inputs: tuple[Array, Array]) -> tuple[Any, Array]:
        parameters, statistics, memory = carry
        (value, statistics), slope = jax.value_and_grad(loss, has_aux=True)(
            parameters, statistics, *inputs
        )
        change, memory = rule.update(slope, memory, parameters)
        return (optax.apply_updates(parameters, change), statistics, memory), value

    parameters, statistics = start
    carry = (parameters, statistics, rule.init(parameters))
    (parameters, statistics, _), losses = jax.lax.scan(step, carry, (batches, dropout))
    return (parameters, statistics), losses


@functools.partial(jax.jit, static_argnums=0)
def _evaluate(settings: Settings, variables: Variables, inputs: Array) -> Array:
    return _apply(settings, variables, inputs, None)[0]


def _init(rng: np.random.Generator, channels: int, settings: Settings) -> Variables:
    if isinstance(settings, TCNSettings):
        return tcn.init(rng, channels, settings), {}
    return resnet.init(rng, channels, settings)


def _entry(tree: dict[str, Any], i: int) -> dict[str, Any]:
    one: dict[str, Any] = jax.tree.map(lambda leaf: leaf[i], tree)
    return one


def _apply(
    settings: Settings, variables: Variables, inputs: Array, kept: Array | None
) -> tuple[Array, dict[str, Any]]:
    """Logits and statistics; training with what dropout keeps, testing without."""
    parameters, statistics = variables
    if isinstance(settings, TCNSettings):
        return tcn.apply(parameters, inputs, settings, kept), statistics
    return resnet.apply(parameters, statistics, inputs, settings, training=kept is not None)


def _gather(settings: Settings, pairs: Any, index: Any) -> Any:
    """Pairs, or bags of them as 2 d_A x T x m tensors, for indices of shape (batch, m)."""
    if isinstance(settings, TCNSettings):
        return pairs[index[:, 0]]
    return pairs[index].transpose(0, 2, 3, 1)


def _batches(truth: NDArray[np.bool_], settings: Settings, rng: np.random.Generator) -> IntArray:
    """Indices of pairs for every step, shape (steps, batch, m); m = 1 for a TCN."""
    n, steps = truth.size, settings.steps
    if isinstance(settings, TCNSettings):  # epoch after epoch, each in its own order
        batch = min(settings.batch_size, n)
        epochs = -(-steps * batch // n)
        order = rng.permuted(np.tile(np.arange(n), (epochs, 1)), axis=1)
        return order.ravel()[: steps * batch].reshape(steps, batch, 1)
    half, m = settings.batch_size // 2, settings.bag_size
    bags = []
    for members in (np.flatnonzero(truth), np.flatnonzero(~truth)):
        if members.size < m:
            raise ValueError(
                f"a bag needs {m} pairs of one label, one of the labels has {members.size}"
            )
        ranks = rng.random((steps, half, members.size)).argpartition(m - 1, axis=-1)
        bags.append(members[ranks[..., :m]])
    return rng.permuted(np.concatenate(bags, axis=1), axis=2)


def _labels(labels: ArrayLike, n: int) -> NDArray[np.bool_]:
    g = check.binary_array("labels", labels, ndim=1)
    if g.shape != (n,):
        raise ValueError(f"labels must have one entry per pair, {n}, got {g.size}")
    if g.all() or not g.any():
        raise ValueError(
            f"both labels must occur, got only {int(g[0])}: nothing can be learned from one class"
        )
    return g
