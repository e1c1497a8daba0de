r"""A residual network with 18 layers that judges a bag of pairs at once.

The thesis (section 5.6.3.2, figure 5.2b) puts m = 50 pairs of one label into one tensor of
shape 2 d_A x T x m and treats it as an image: channels, height (time) and width (the m pairs).
The network is ResNet-18 of He et al. 2016, table 1: a 7 x 7 convolution of stride 2, a 3 x 3
maximum of stride 2, four stages of two blocks with w, 2w, 4w, 8w channels (the first block of
stages 2 to 4 has stride 2), the mean over the image, and a linear layer: 17 convolutions and
one linear layer on the longest path, hence 18. A block is ::

    y = ReLU(BN(conv3x3(ReLU(BN(conv3x3(x))))) + S(x))

with S the identity, or BN of a 1 x 1 convolution where the shape changes. There is one output,
the logit of "member", in place of a softmax over two classes. w = 64 in He et al.

Batch normalisation subtracts the mean and divides by the standard deviation of a channel over
the batch and the image; when testing, running means and variances take their place, so that
the answer on a bag does not depend on the other bags beside it.

The order of the pairs in a bag matters to this network: convolutions couple neighbouring
pairs, though the pairs of a bag have no order.

Sources: thesis, section 5.6.3.2 and table 5.1; He et al. 2016; Ioffe and Szegedy 2015.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import jax
import jax.numpy as jnp

from dprl import _validation as check

Array: TypeAlias = jax.Array
Parameters: TypeAlias = dict[str, Any]

#: Blocks per stage; with the first convolution and the head these make 18 layers.
BLOCKS = (2, 2, 2, 2)
_EPSILON, _MOMENTUM = 1e-5, 0.1  # as in torch.nn.BatchNorm2d


@dataclass(frozen=True)
class ResNetSettings:
    """Size and training of the network; what the thesis leaves open has a name here.

    Parameters
    ----------
    width : int
        Channels w of the first stage: 64 in He et al., 16 for a laptop.
    bag_size : int
        Pairs m in a bag; 50 in the thesis.
    weight_decay : float
        1 in table 5.1, with Adam; 0 switches it off. It acts on all parameters.
    decay : {"l2", "decoupled"}
        What a weight decay means: the gradient of half its multiple of the squared norm is
        added to that of the loss (``torch.optim.Adam``), or the parameters shrink by the factor
        1 - learning rate * weight decay in each step (AdamW). Not stated in the thesis.
    learning_rate : float
        Of Adam; 1e-3 in table 5.1.
    steps, batch_size : int
        Of training; a batch holds so many bags, half of each label. Not stated.

    Examples
    --------
    >>> parameter_count(6, ResNetSettings()), parameter_count(6, ResNetSettings(width=16))
    (11186433, 702417)
    """

    width: int = 64
    bag_size: int = 50
    weight_decay: float = 0.0
    decay: Literal["l2", "decoupled"] = "l2"
    learning_rate: float = 1e-3
    steps: int = 100
    batch_size: int = 16

    def __post_init__(self) -> None:
        for name in ("width", "bag_size", "steps"):
            check.whole(name, getattr(self, name))
        if check.whole("batch_size", self.batch_size, 2) % 2:
            raise ValueError(f"batch_size must be even, half of each label, got {self.batch_size}")
        if check.real("weight_decay", self.weight_decay) < 0:
            raise ValueError(f"weight_decay must not be negative, got {self.weight_decay!r}")
        if self.decay not in ("l2", "decoupled"):
            raise ValueError(f'decay must be "l2" or "decoupled", got {self.decay!r}')
        check.positive("learning_rate", self.learning_rate)

    @classmethod
    def paper(cls) -> ResNetSettings:
        """Standard width, and the weight decay of table 5.1 in the form of PyTorch's Adam."""
        return cls(width=64, weight_decay=1.0)


def parameter_count(channels: int, settings: ResNetSettings) -> int:
    """Number of trained numbers for bags of so many channels, 2 d_A for pairs.

    A k x k convolution from c to h channels has k^2 c h and no bias, a batch normalisation
    2 h, the head 8 w + 1. Running means and variances are not trained and not counted.
    """
    width = settings.width
    total = 49 * channels * width + 2 * width
    for fan_in, fan_out, stride in _blocks(width):
        total += 9 * fan_in * fan_out + 9 * fan_out**2 + 4 * fan_out
        if stride > 1 or fan_in != fan_out:
            total += fan_in * fan_out + 2 * fan_out
    return total + 8 * width + 1


def init(key: Array, channels: int, settings: ResNetSettings) -> tuple[Parameters, Parameters]:
    """Fresh parameters and running statistics.

    Convolutions are normal with variance 2 / (k^2 h), h output channels (He et al. 2015, the
    choice of torchvision); gains 1, shifts 0; the head uniform on +-1/sqrt(fan-in).

    Parameters
    ----------
    key : jax key
    channels : int
        Of the input, 2 d_A for bags of pairs.
    settings : ResNetSettings

    Returns
    -------
    parameters, statistics : dict
        Statistics start at mean 0 and variance 1.
    """
    check.whole("channels", channels)
    width = settings.width
    stem_key, head_key, *keys = jax.random.split(key, 2 + sum(BLOCKS))
    parameters: Parameters = {"stem": _normal(stem_key, 7, channels, width), "blocks": []}
    statistics: Parameters = {"stem": _fresh(width), "blocks": []}
    for one_key, (fan_in, fan_out, stride) in zip(keys, _blocks(width), strict=True):
        first, second, past = jax.random.split(one_key, 3)
        block = {
            "first": _normal(first, 3, fan_in, fan_out),
            "second": _normal(second, 3, fan_out, fan_out),
        }
        if stride > 1 or fan_in != fan_out:
            block["shortcut"] = _normal(past, 1, fan_in, fan_out)
        parameters["blocks"].append(block)
        statistics["blocks"].append({name: _fresh(fan_out) for name in block})
    bound, (one, two) = (8 * width) ** -0.5, jax.random.split(head_key)
    parameters["head"] = {
        "weights": jax.random.uniform(one, (8 * width, 1), minval=-bound, maxval=bound),
        "biases": jax.random.uniform(two, (1,), minval=-bound, maxval=bound),
    }
    return parameters, statistics


def apply(
    parameters: Parameters, statistics: Parameters, bags: Array, *, training: bool
) -> tuple[Array, Parameters]:
    """Logits of bags, and the running statistics after them.

    Parameters
    ----------
    parameters, statistics : dict
        From :func:`init`.
    bags : array, shape (n, channels, T, m)
    training : bool
        True: normalise by this batch and move the running statistics a tenth of the way.
        False: normalise by the running statistics and leave them.

    Returns
    -------
    logits : array, shape (n,)
        Positive speaks for "member".
    statistics : dict
    """
    x = jnp.moveaxis(bags, 1, -1)
    moved: Parameters = {"blocks": []}

    def layer(x: Array, p: Parameters, s: Parameters, stride: int) -> tuple[Array, Parameters]:
        return _normalise(convolution(x, p["weights"], stride), p, s, training)

    x, moved["stem"] = layer(x, parameters["stem"], statistics["stem"], 2)
    x = _maximum(jax.nn.relu(x))
    strides = [stride for *_, stride in _blocks(1)]
    for p, s, stride in zip(parameters["blocks"], statistics["blocks"], strides, strict=True):
        after: Parameters = {}
        z, after["first"] = layer(x, p["first"], s["first"], stride)
        z, after["second"] = layer(jax.nn.relu(z), p["second"], s["second"], 1)
        if "shortcut" in p:
            x, after["shortcut"] = layer(x, p["shortcut"], s["shortcut"], stride)
        x = jax.nn.relu(z + x)
        moved["blocks"].append(after)
    head = parameters["head"]
    return (x.mean(axis=(1, 2)) @ head["weights"] + head["biases"])[:, 0], moved


def convolution(x: Array, weights: Array, stride: int = 1) -> Array:
    """Convolution with zero padding of (k - 1)/2 on each side, as one matrix product.

    Parameters
    ----------
    x : array, shape (n, height, width, c)
    weights : array, shape (k, k, c, h), k odd
    stride : int

    Returns
    -------
    array, shape (n, ceil(height / stride), ceil(width / stride), h)
    """
    kernel, _, fan_in, fan_out = weights.shape
    columns = jnp.concatenate(_windows(x, kernel, stride, 0.0), axis=-1)
    product: Array = columns @ weights.reshape(kernel * kernel * fan_in, fan_out)
    return product


def _windows(x: Array, kernel: int, stride: int, fill: float) -> list[Array]:
    """The k^2 shifted copies of an image that a window of size k sees."""
    _, height, width, _ = x.shape
    half = kernel // 2
    rows, columns = -(-height // stride), -(-width // stride)
    sides = ((0, 0), (half, half + stride), (half, half + stride), (0, 0))
    padded = jnp.pad(x, sides, constant_values=fill) if kernel > 1 else x
    return [
        padded[
            :, i : i + stride * (rows - 1) + 1 : stride, j : j + stride * (columns - 1) + 1 : stride
        ]
        for i in range(kernel)
        for j in range(kernel)
    ]


def _maximum(x: Array) -> Array:
    """Maximum over 3 x 3 windows with stride 2."""
    windows = _windows(x, 3, 2, -jnp.inf)
    most = windows[0]
    for window in windows[1:]:
        most = jnp.maximum(most, window)
    return most


def _normalise(
    x: Array, parameters: Parameters, statistics: Parameters, training: bool
) -> tuple[Array, Parameters]:
    """Batch normalisation; running variances are the unbiased ones, as in PyTorch."""
    mean, variance = statistics["mean"], statistics["variance"]
    if training:
        count = x.shape[0] * x.shape[1] * x.shape[2]
        mean, variance = x.mean(axis=(0, 1, 2)), x.var(axis=(0, 1, 2))
        unbiased = variance * (count / max(count - 1, 1))
        statistics = {
            "mean": (1 - _MOMENTUM) * statistics["mean"] + _MOMENTUM * mean,
            "variance": (1 - _MOMENTUM) * statistics["variance"] + _MOMENTUM * unbiased,
        }
    scale = parameters["gain"] / jnp.sqrt(variance + _EPSILON)
    return (x - mean) * scale + parameters["shift"], statistics


def _blocks(width: int) -> list[tuple[int, int, int]]:
    """Channels in and out, and stride, of each block."""
    blocks, fan_in = [], width
    for stage, count in enumerate(BLOCKS):
        for block in range(count):
            fan_out = width * 2**stage
            blocks.append((fan_in, fan_out, 2 if stage > 0 and block == 0 else 1))
            fan_in = fan_out
    return blocks


def _normal(key: Array, kernel: int, fan_in: int, fan_out: int) -> Parameters:
    deviation = (2 / (kernel**2 * fan_out)) ** 0.5
    return {
        "weights": deviation * jax.random.normal(key, (kernel, kernel, fan_in, fan_out)),
        "gain": jnp.ones(fan_out),
        "shift": jnp.zeros(fan_out),
    }


def _fresh(width: int) -> Parameters:
    return {"mean": jnp.zeros(width), "variance": jnp.ones(width)}
