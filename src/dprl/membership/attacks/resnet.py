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
import numpy as np

from dprl import _validation as check

from .tcn import uniform

Array: TypeAlias = jax.Array
Parameters: TypeAlias = dict[str, Any]

_EPSILON, _MOMENTUM = 1e-5, 0.1  # as in torch.nn.BatchNorm2d


@dataclass(frozen=True)
class ResNetSettings:
    """Size and training of the network; what the thesis leaves open has a name here.

    Parameters
    ----------
    width : int
        Channels w of the first stage: 64 in He et al., 16 for a laptop.
    blocks : tuple of int
        Blocks in each stage: (2, 2, 2, 2) is ResNet-18.
    bag_size : int
        Pairs m in a bag; 50 in the thesis.
    weight_decay : float
        >= 0, on all parameters; 1 in table 5.1, with Adam.
    decay : {"l2", "decoupled"}
        What a weight decay means: the gradient of half its multiple of the squared norm is added to
        that of the loss (``torch.optim.Adam``), or the parameters shrink by the factor
        1 - learning rate * weight decay in each step (AdamW). Not stated in the thesis.
    learning_rate : float
        Of Adam; 1e-3 in table 5.1.
    steps, batch_size : int
        Of training; a batch holds so many bags, half of each label. Not stated.

    Examples
    --------
    >>> parameter_count(6, ResNetSettings()), parameter_count(6, ResNetSettings(width=16))
    (11186433, 704577)
    """

    width: int = 64
    blocks: tuple[int, ...] = (2, 2, 2, 2)
    bag_size: int = 50
    weight_decay: float = 0.0
    decay: Literal["l2", "decoupled"] = "l2"
    learning_rate: float = 1e-3
    steps: int = 100
    batch_size: int = 16

    def __post_init__(self) -> None:
        for name in ("width", "bag_size", "steps"):
            check.whole(name, getattr(self, name))
        if not isinstance(self.blocks, tuple) or not self.blocks:
            raise TypeError(f"blocks must be a non-empty tuple, got {self.blocks!r}")
        for blocks in self.blocks:
            check.whole("the number of blocks in a stage", blocks)
        if check.whole("batch_size", self.batch_size, 2) % 2:
            raise ValueError(f"batch_size must be even, half of each label, got {self.batch_size}")
        check.not_negative("weight_decay", self.weight_decay)
        if self.decay not in ("l2", "decoupled"):
            raise ValueError(f'decay must be "l2" or "decoupled", got {self.decay!r}')
        check.positive("learning_rate", self.learning_rate)

    @classmethod
    def paper(cls) -> ResNetSettings:
        """Standard width, and the weight decay of table 5.1 in the form of PyTorch's Adam."""
        return cls(width=64, weight_decay=1.0)


def parameter_count(channels: int, settings: ResNetSettings) -> int:
    """Number of trained numbers for bags of so many channels, 2 d_A for pairs.

    A k x k convolution from c to h channels has k^2 c h and no bias, a batch normalisation 2 h, the
    head 8 w + 1 with four stages. Running means and variances are not trained and not counted.
    """
    width = settings.width
    total = 49 * channels * width + 2 * width
    for fan_in, fan_out, stride in _blocks(settings):
        total += 9 * fan_in * fan_out + 9 * fan_out**2 + 4 * fan_out
        if stride > 1 or fan_in != fan_out:
            total += fan_in * fan_out + 2 * fan_out
    return total + _last(settings) + 1


def init(
    rng: np.random.Generator, channels: int, settings: ResNetSettings
) -> tuple[Parameters, Parameters]:
    """Fresh parameters and running statistics, float32.

    Convolutions are normal with variance 2 / (k^2 h), h output channels (He et al. 2015, the choice
    of torchvision); gains 1, shifts 0; the head uniform on +-1/sqrt(fan-in); statistics of mean 0
    and variance 1.
    """
    check.generator(rng)
    check.whole("channels", channels)
    width = settings.width
    parameters: Parameters = {"stem": _normal(rng, 7, channels, width), "blocks": []}
    statistics: Parameters = {"stem": _fresh(width), "blocks": []}
    for fan_in, fan_out, stride in _blocks(settings):
        block = {
            "first": _normal(rng, 3, fan_in, fan_out),
            "second": _normal(rng, 3, fan_out, fan_out),
        }
        if stride > 1 or fan_in != fan_out:
            block["shortcut"] = _normal(rng, 1, fan_in, fan_out)
        parameters["blocks"].append(block)
        statistics["blocks"].append({name: _fresh(fan_out) for name in block})
    parameters["head"] = uniform(rng, (_last(settings), 1))
    return parameters, statistics


def apply(
    parameters: Parameters,
    statistics: Parameters,
    bags: Array,
    settings: ResNetSettings,
    *,
    training: bool,
) -> tuple[Array, Parameters]:
    """Logits (n,) of bags (n, channels, T, m), and the running statistics after them.

    ``training``: normalise by this batch and move the running statistics a tenth of the way;
    otherwise normalise by them and leave them. A positive logit speaks for "member".
    """
    x = jnp.moveaxis(bags, 1, -1)
    moved: Parameters = {"blocks": []}

    def layer(x: Array, p: Parameters, s: Parameters, stride: int) -> tuple[Array, Parameters]:
        return _normalise(convolution(x, p["weights"], stride), p, s, training)

    x, moved["stem"] = layer(x, parameters["stem"], statistics["stem"], 2)
    x = _maximum(jax.nn.relu(x))
    strides = [stride for *_, stride in _blocks(settings)]
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
    """Convolution of x (n, height, width, c) with weights (k, k, c, h), k odd, as one product.

    Zero padding of (k - 1)/2 on each side; (n, ceil(height / stride), ceil(width / stride), h).
    """
    kernel, _, fan_in, fan_out = weights.shape
    for axis in (1, 2):  # rows first, then columns of rows: 2 k copies instead of k^2
        x = jnp.concatenate(_shifted(x, axis, kernel, stride, 0.0), axis=-1)
    by_column = weights.swapaxes(0, 1).reshape(kernel * kernel * fan_in, fan_out)
    product: Array = x @ by_column
    return product


def _shifted(x: Array, axis: int, kernel: int, stride: int, fill: float) -> list[Array]:
    """The k shifted copies along an axis that a window of size k sees."""
    half, size = kernel // 2, -(-x.shape[axis] // stride)
    if half:
        sides = [(half, half + stride) if a == axis else (0, 0) for a in range(4)]
        x = jnp.pad(x, sides, constant_values=fill)
    reach = stride * (size - 1) + 1
    return [jax.lax.slice_in_dim(x, i, i + reach, stride, axis) for i in range(kernel)]


def _maximum(x: Array) -> Array:
    """Maximum over 3 x 3 windows with stride 2."""
    for axis in (1, 2):
        one, two, three = _shifted(x, axis, 3, 2, -jnp.inf)
        x = jnp.maximum(jnp.maximum(one, two), three)
    return x


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


def _blocks(settings: ResNetSettings) -> list[tuple[int, int, int]]:
    """Channels in and out, and stride, of each block."""
    blocks, fan_in = [], settings.width
    for stage, count in enumerate(settings.blocks):
        for block in range(count):
            fan_out = settings.width * 2**stage
            blocks.append((fan_in, fan_out, 2 if stage > 0 and block == 0 else 1))
            fan_in = fan_out
    return blocks


def _last(settings: ResNetSettings) -> int:
    """Channels of the last stage."""
    return settings.width << (len(settings.blocks) - 1)


def _normal(rng: np.random.Generator, kernel: int, fan_in: int, fan_out: int) -> Parameters:
    deviation = (2 / (kernel**2 * fan_out)) ** 0.5
    weights = deviation * rng.standard_normal((kernel, kernel, fan_in, fan_out))
    return {
        "weights": weights.astype(np.float32),
        "gain": np.ones(fan_out, dtype=np.float32),
        "shift": np.zeros(fan_out, dtype=np.float32),
    }


def _fresh(width: int) -> Parameters:
    return {
        "mean": np.zeros(width, dtype=np.float32),
        "variance": np.ones(width, dtype=np.float32),
    }
