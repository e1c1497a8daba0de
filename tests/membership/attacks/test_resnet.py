"""ResNet-18: against a naive convolution and pooling, published size, batch normalisation."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dprl.membership.attacks import resnet
from dprl.membership.attacks.resnet import ResNetSettings

TINY = ResNetSettings(width=2, blocks=(2, 1), bag_size=6)


def naive_convolution(image, weights, stride):
    """One output at a time, image (height, width, c), zeros outside."""
    k, half = weights.shape[0], weights.shape[0] // 2
    height, width = image.shape[:2]
    rows, columns = -(-height // stride), -(-width // stride)
    out = np.zeros((rows, columns, weights.shape[-1]))
    for r in range(rows):
        for c in range(columns):
            for i in range(k):
                for j in range(k):
                    y, x = r * stride + i - half, c * stride + j - half
                    if 0 <= y < height and 0 <= x < width:
                        out[r, c] += image[y, x] @ weights[i, j]
    return out


def naive_normalise(x, p, s):
    gain, shift = np.asarray(p["gain"]), np.asarray(p["shift"])
    return gain * (x - s["mean"]) / np.sqrt(np.asarray(s["variance"]) + 1e-5) + shift


def naive_maximum(x):
    rows, columns = -(-x.shape[0] // 2), -(-x.shape[1] // 2)
    out = np.empty((rows, columns, x.shape[2]))
    for r in range(rows):
        for c in range(columns):
            window = x[max(0, 2 * r - 1) : 2 * r + 2, max(0, 2 * c - 1) : 2 * c + 2]
            out[r, c] = window.max(axis=(0, 1))
    return out


def naive_network(parameters, statistics, bag):
    def layer(x, p, s, stride):
        return naive_normalise(naive_convolution(x, np.asarray(p["weights"]), stride), p, s)

    x = layer(bag.transpose(1, 2, 0), parameters["stem"], statistics["stem"], 2)
    x = naive_maximum(np.maximum(x, 0))
    for number, (p, s) in enumerate(zip(parameters["blocks"], statistics["blocks"], strict=True)):
        stride = 2 if number == 2 else 1  # the first block of the second stage
        z = np.maximum(layer(x, p["first"], s["first"], stride), 0)
        z = layer(z, p["second"], s["second"], 1)
        x = layer(x, p["shortcut"], s["shortcut"], stride) if "shortcut" in p else x
        x = np.maximum(z + x, 0)
    pooled = x.mean(axis=(0, 1))
    return (pooled @ parameters["head"]["weights"] + parameters["head"]["biases"])[0]


@pytest.fixture(scope="module")
def forward():
    """The two programs, compiled once."""
    apply = jax.jit(resnet.apply, static_argnums=3, static_argnames="training")
    return lambda *arguments, training: apply(*arguments, TINY, training=training)


@pytest.fixture(scope="module")
def network(forward):
    """A network whose statistics have moved away from their start, and its bags."""
    rng = np.random.default_rng(0)
    parameters, statistics = resnet.init(rng, 4, TINY)
    bags = rng.normal(size=(6, 4, 11, 6)).astype(np.float32)
    _, statistics = forward(parameters, statistics, bags, training=True)
    return parameters, jax.device_get(statistics), bags


@pytest.mark.parametrize(("kernel", "stride"), [(1, 1), (1, 2), (3, 1), (3, 2), (7, 2)])
@pytest.mark.parametrize("size", [(5, 8), (1, 2)])
def test_convolution(kernel, stride, size):
    rng = np.random.default_rng(1)
    image, weights = rng.normal(size=(*size, 3)), rng.normal(size=(kernel, kernel, 3, 2))
    got = resnet.convolution(jnp.asarray(image[None]), jnp.asarray(weights), stride)
    np.testing.assert_allclose(
        got[0], naive_convolution(image, weights, stride), rtol=1e-4, atol=1e-4
    )


def test_logits_are_those_of_the_naive_network(network, forward):
    parameters, statistics, bags = network
    logits, _ = forward(parameters, statistics, bags, training=False)
    by_hand = [naive_network(parameters, statistics, bag) for bag in bags]
    np.testing.assert_allclose(logits, by_hand, rtol=1e-3, atol=1e-4)


def test_size_is_that_of_the_published_network():
    # torchvision's resnet18: 3 channels, 1000 classes; ours has one output
    assert resnet.parameter_count(3, ResNetSettings(width=64)) == 11_689_512 - 999 * 513


def test_the_formula_counts_the_parameters():
    for channels, settings in ((4, TINY), (12, ResNetSettings(width=3))):
        parameters, _ = resnet.init(np.random.default_rng(0), channels, settings)
        size = sum(p.size for p in jax.tree.leaves(parameters))
        assert size == resnet.parameter_count(channels, settings)


def test_eighteen_layers():
    parameters, _ = resnet.init(np.random.default_rng(0), 4, ResNetSettings(width=2))
    on_the_path = 1 + sum(2 for _ in parameters["blocks"]) + 1  # stem, blocks, head
    assert on_the_path == 18


def test_testing_uses_running_statistics(network, forward):
    parameters, statistics, bags = network
    others = np.concatenate([bags[:2], 3 * bags[2:]])
    alone, after = forward(parameters, statistics, others, training=False)
    together, _ = forward(parameters, statistics, bags, training=False)
    np.testing.assert_allclose(alone[:2], together[:2], rtol=1e-4)  # not on the bags beside it
    jax.tree.map(np.testing.assert_array_equal, after, statistics)  # nor moved
    batch, moved = forward(parameters, statistics, bags, training=True)
    assert not np.allclose(batch, together, rtol=1e-2)
    assert not np.allclose(moved["stem"]["mean"], statistics["stem"]["mean"])


def test_running_statistics_move_a_tenth_of_the_way(network, forward):
    parameters, statistics, bags = network
    _, moved = forward(parameters, statistics, bags, training=True)
    x = resnet.convolution(jnp.moveaxis(bags, 1, -1), parameters["stem"]["weights"], 2)
    mean, variance = x.mean(axis=(0, 1, 2)), x.reshape(-1, x.shape[-1]).var(axis=0, ddof=1)
    for name, target in (("mean", mean), ("variance", variance)):
        expected = 0.9 * statistics["stem"][name] + 0.1 * target
        np.testing.assert_allclose(moved["stem"][name], expected, rtol=1e-4, atol=1e-6)


def test_they_settle_at_the_statistics_of_the_data(network, forward):
    parameters, statistics, bags = network
    for _ in range(200):
        _, statistics = forward(parameters, statistics, bags, training=True)
    batch, _ = forward(parameters, statistics, bags, training=True)
    testing, _ = forward(parameters, statistics, bags, training=False)
    # what is left is the unbiased variance, of few numbers in the last stage
    np.testing.assert_allclose(testing, batch, atol=0.1 * np.ptp(batch))


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"width": 0}, ValueError, "width must be at least 1"),
        ({"bag_size": 1.5}, TypeError, "bag_size must be an integer"),
        ({"blocks": ()}, TypeError, "non-empty tuple"),
        ({"blocks": (2, 0)}, ValueError, "blocks in a stage must be at least 1"),
        ({"batch_size": 5}, ValueError, "batch_size must be even"),
        ({"weight_decay": -1.0}, ValueError, "must not be negative"),
        ({"weight_decay": float("nan")}, ValueError, "must be finite"),
        ({"decay": "adam"}, ValueError, '"l2" or "decoupled"'),
    ],
)
def test_bad_settings(change, error, message):
    with pytest.raises(error, match=message):
        ResNetSettings(**change)
