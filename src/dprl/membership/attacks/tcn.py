r"""A temporal convolutional network that judges one pair of action trajectories.

The thesis (section 5.6.3.1, figure 5.2a) uses a network after Bai et al. 2018 with "three
hidden layers and one output layer". Here a hidden layer is one residual block::

    z = dropout(ReLU(C_d(x)))          once, or twice as in Bai et al. ("convolutions")
    y = ReLU(z + R(x))                 R: identity, or a 1 x 1 convolution if widths differ

with the causal convolution of kernel size k and dilation d ::

    C_d(x)[t] = b + sum_j W[j]^T x[t - (k - 1 - j) d],      j = 0 .. k-1, x[s] = 0 for s < 0

Weights are normalised per output channel, W = g v / |v| (Salimans and Kingma 2016), as in Bai et
al. Dropout drops whole channels of an example, as their text says. The head pools over time (the
mean over all steps, or the last step as in Bai et al.) and is linear with one output, the logit of
"member". One logit is a softmax over two classes, of which only the difference matters.

The convolution is a matrix product with shifted copies of its input, not a call of a
convolution routine: so it stays a matrix product when many trainings run in one program.

Sources: thesis, section 5.6.3.1 and table 5.1; Bai, Kolter and Koltun 2018.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np

from dprl import _validation as check
from dprl.agents.networks import fast_key

Array: TypeAlias = jax.Array
Parameters: TypeAlias = dict[str, Any]


@dataclass(frozen=True)
class TCNSettings:
    """Size and training of the network; what the thesis leaves open has a name here.

    Parameters
    ----------
    channels, kernel : int
        Width of each hidden layer, and kernel size k; not stated in the thesis.
    dilations : tuple of int
        One hidden layer each; the thesis says three and not which.
    convolutions : int
        Causal convolutions in a hidden layer; 2 in Bai et al., not stated in the thesis.
    weight_normalisation : bool
        As in Bai et al.; not stated.
    pooling : {"mean", "last"}
        Over time; not stated.
    dropout, learning_rate : float
        Share of dropped channels in [0, 1), and rate of Adam; 0.5 and 1e-3 in table 5.1.
    steps, batch_size : int
        Of training; not stated. A batch is never larger than the data.

    Examples
    --------
    >>> settings = TCNSettings(channels=16)
    >>> receptive_field(settings), parameter_count(6, settings)
    (29, 3265)
    """

    channels: int = 32
    kernel: int = 5
    dilations: tuple[int, ...] = (1, 2, 4)
    convolutions: int = 1
    weight_normalisation: bool = True
    pooling: Literal["mean", "last"] = "mean"
    dropout: float = 0.5
    learning_rate: float = 1e-3
    steps: int = 300
    batch_size: int = 64

    def __post_init__(self) -> None:
        for name in ("channels", "kernel", "convolutions", "steps", "batch_size"):
            check.whole(name, getattr(self, name))
        if not isinstance(self.dilations, tuple) or not self.dilations:
            raise TypeError(f"dilations must be a non-empty tuple, got {self.dilations!r}")
        for dilation in self.dilations:
            check.whole("each dilation", dilation)
        if self.pooling not in ("mean", "last"):
            raise ValueError(f'pooling must be "mean" or "last", got {self.pooling!r}')
        check.below_one("dropout", self.dropout)
        check.positive("learning_rate", self.learning_rate)

    @classmethod
    def narrow(cls) -> TCNSettings:
        """Half the width and the batch, 1.5 times the steps at 3 times the rate.

        3/16 of the arithmetic. At the printed rate it needs twice these steps for as much.
        """
        return cls(channels=16, batch_size=32, learning_rate=3e-3, steps=450)


def receptive_field(settings: TCNSettings) -> int:
    """Number of steps that one step of the last hidden layer can see, itself included."""
    return 1 + (settings.kernel - 1) * settings.convolutions * sum(settings.dilations)


def parameter_count(channels: int, settings: TCNSettings) -> int:
    """Number of trained numbers for inputs of so many channels, 2 d_A for a pair.

    A convolution from c to h channels has k c h + h, and h more if its weights are
    normalised; a 1 x 1 convolution past it c h + h where c differs from h; the head h + 1.
    """
    width, total = settings.channels, settings.channels + 1
    for _, fan_in in _layers(channels, settings):
        for c in (fan_in, *[width] * (settings.convolutions - 1)):
            total += settings.kernel * c * width + width
            total += width * settings.weight_normalisation
        if fan_in != width:
            total += fan_in * width + width
    return total


def init(rng: np.random.Generator, channels: int, settings: TCNSettings) -> Parameters:
    """Fresh parameters, float32.

    Weights and biases are uniform on +-1/sqrt(fan-in), PyTorch's default for a convolution;
    the gains g start at |v|, so that the normalised weights start as the drawn ones.
    """
    check.generator(rng)
    check.whole("channels", channels)
    width, layers = settings.channels, []
    for _, fan_in in _layers(channels, settings):
        layer: Parameters = {"convolutions": []}
        for c in (fan_in, *[width] * (settings.convolutions - 1)):
            convolution = uniform(rng, (settings.kernel, c, width))
            if settings.weight_normalisation:
                v = convolution["weights"]
                convolution["gain"] = np.sqrt((v**2).sum(axis=(0, 1)))
            layer["convolutions"].append(convolution)
        if fan_in != width:
            layer["shortcut"] = uniform(rng, (fan_in, width))
        layers.append(layer)
    return {"layers": layers, "head": uniform(rng, (width, 1))}


def draw_kept(
    key: Array, pairs: int, settings: TCNSettings, leading: tuple[int, ...] = ()
) -> Array:
    """Which channels dropout keeps, for so many pairs; with ``leading``, for many batches.

    Booleans of shape (..., convolutions of all layers, pairs, settings.channels). Not under
    ``vmap``: see :func:`dprl.agents.networks.fast_key`.

    Examples
    --------
    >>> kept = draw_kept(jax.random.key(0), 64, TCNSettings(dropout=0.25))
    >>> kept.shape, bool(0.72 < kept.mean() < 0.78)
    ((3, 64, 32), True)
    """
    count = len(settings.dilations) * settings.convolutions
    shape = (*leading, count, pairs, settings.channels)
    return jax.random.bernoulli(fast_key(key), 1 - settings.dropout, shape)


def apply(
    parameters: Parameters, pairs: Array, settings: TCNSettings, kept: Array | None = None
) -> Array:
    """Logits (n,) of pairs (n, channels, T); O(n T k h (c + h)) per layer.

    ``kept`` is from :func:`draw_kept` (training); without it nothing is dropped (testing). A
    positive logit speaks for "member".
    """
    hidden = hidden_layers(parameters, pairs, settings, kept)[-1]
    pooled = hidden.mean(axis=1) if settings.pooling == "mean" else hidden[:, -1]
    head = parameters["head"]
    logits: Array = pooled @ head["weights"] + head["biases"]
    return logits[:, 0]


def hidden_layers(
    parameters: Parameters, pairs: Array, settings: TCNSettings, kept: Array | None = None
) -> list[Array]:
    """What the hidden layers hold, each of shape (n, T, channels); arguments as :func:`apply`."""
    x, hidden = jnp.swapaxes(pairs, 1, 2), []
    masks = None if kept is None else iter(kept)
    for layer, dilation in zip(parameters["layers"], settings.dilations, strict=True):
        z = x
        for convolution in layer["convolutions"]:
            z = jax.nn.relu(causal_convolution(z, convolution, dilation))
            if masks is not None:
                z = jnp.where(next(masks)[:, None], z / (1 - settings.dropout), 0.0)
        if "shortcut" in layer:
            x = x @ layer["shortcut"]["weights"] + layer["shortcut"]["biases"]
        x = jax.nn.relu(z + x)
        hidden.append(x)
    return hidden


def causal_convolution(x: Array, convolution: Parameters, dilation: int) -> Array:
    """C_d(x) of the module's head, (n, T, h), as one matrix product.

    x (n, T, c); ``weights`` (k, c, h), ``biases`` (h,) and, if normalised, ``gain`` (h,).

    Examples
    --------
    >>> one = jnp.ones
    >>> x = jnp.arange(5.0).reshape(1, 5, 1)
    >>> taps = {"weights": one((2, 1, 1)), "biases": one(1)}
    >>> causal_convolution(x, taps, dilation=2)[0, :, 0].tolist()  # 1 + x[t] + x[t-2]
    [1.0, 2.0, 3.0, 5.0, 7.0]
    """
    weights, steps = convolution["weights"], x.shape[1]
    if "gain" in convolution:
        weights = weights * (convolution["gain"] / _norm(weights))
    kernel, fan_in, width = weights.shape
    padded = jnp.pad(x, ((0, 0), ((kernel - 1) * dilation, 0), (0, 0)))
    shifted = [padded[:, j * dilation : j * dilation + steps] for j in range(kernel)]
    columns = jnp.concatenate(shifted, axis=-1)
    product: Array = columns @ weights.reshape(kernel * fan_in, width)
    return product + jnp.asarray(convolution["biases"])


def _layers(channels: int, settings: TCNSettings) -> list[tuple[int, int]]:
    """Dilation and input width of each hidden layer."""
    widths = [channels] + [settings.channels] * (len(settings.dilations) - 1)
    return list(zip(settings.dilations, widths, strict=True))


def uniform(rng: np.random.Generator, shape: tuple[int, ...]) -> Parameters:
    """Weights of a shape (..., h) and h biases, uniform on +-1/sqrt(fan-in)."""
    bound = math.prod(shape[:-1]) ** -0.5
    return {
        name: rng.uniform(-bound, bound, size).astype(np.float32)
        for name, size in (("weights", shape), ("biases", shape[-1:]))
    }


def _norm(weights: Array) -> Array:
    """Norm of the weights into each output channel; shape (h,)."""
    return jnp.sqrt((weights**2).sum(axis=(0, 1)))
