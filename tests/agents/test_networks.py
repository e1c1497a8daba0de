"""Networks: against loops over neurons, the distribution of new weights, algebra."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dprl.agents.networks import (
    Layer,
    fast_key,
    mlp_apply,
    mlp_inits,
    parameter_count,
    soft_update,
)


def neuron_by_neuron(params, x, final=lambda v: v):
    """One sample, one neuron at a time."""
    for number, (weight, bias) in enumerate(jax.device_get(params)):
        out = []
        for j in range(len(bias)):
            total = float(bias[j]) + sum(float(weight[i, j]) * x[i] for i in range(len(x)))
            last = number == len(params) - 1
            out.append(final(total) if last else max(total, 0.0))
        x = out
    return x


def test_output_is_a_loop_over_neurons():
    rng = np.random.default_rng(1)
    params = tuple(
        Layer(jnp.asarray(rng.normal(size=(m, n))), jnp.asarray(rng.normal(size=n)))
        for m, n in ((3, 5), (5, 4), (4, 2))
    )
    x = np.random.default_rng(0).normal(size=(2, 3, 3)).astype(np.float32)
    plain, squashed = mlp_apply(params, x), mlp_apply(params, x, final=jnp.tanh)
    assert plain.shape == (2, 3, 2)
    for index in np.ndindex(2, 3):
        np.testing.assert_allclose(plain[index], neuron_by_neuron(params, x[index]), rtol=1e-5)
        expected = neuron_by_neuron(params, x[index], math.tanh)
        np.testing.assert_allclose(squashed[index], expected, rtol=1e-5)


def test_new_weights_are_uniform_with_the_scale_of_the_inputs():
    first, second = mlp_inits(jax.random.key(2), [(400, 300, 7)])[0]
    for layer, inputs in ((first, 400), (second, 300)):
        bound = 1 / math.sqrt(inputs)
        both = np.concatenate([np.ravel(layer.weight), layer.bias])
        assert np.abs(both).max() <= bound
        # sd of a sample moment is known: four of them
        assert abs(both.mean()) < 4 * bound / math.sqrt(3 * both.size)
        spread = (both / bound) ** 2
        assert abs(spread.mean() - 1 / 3) < 4 * math.sqrt(4 / 45 / both.size)
    assert first.weight.dtype == first.bias.dtype == jnp.float32
    assert np.unique(first.weight).size > 100_000  # no row or column is repeated


def test_the_key_decides():
    a, b, other = (jax.device_get(mlp_inits(jax.random.key(k), [(2, 3, 1)])) for k in (0, 0, 1))
    assert jax.tree.all(jax.tree.map(lambda x, y: bool((x == y).all()), a, b))
    for x, y in zip(jax.tree.leaves(a), jax.tree.leaves(other), strict=True):
        assert not (x == y).any()


def test_counting():
    assert parameter_count(mlp_inits(jax.random.key(0), [(2, 3, 1)])) == 3 * 3 + 4
    assert parameter_count({"a": np.ones((2, 3)), "b": (1.0, [])}) == 7


def test_soft_update_is_a_weighted_mean_with_its_limits():
    old = (Layer(jnp.array([[1.0]]), jnp.array([2.0])),)
    new = (Layer(jnp.array([[3.0]]), jnp.array([-2.0])),)
    assert soft_update(old, new, 0.25) == (Layer(jnp.array([[1.5]]), jnp.array([1.0])),)
    assert soft_update(old, new, 0.0) == old
    assert soft_update(old, new, 1.0) == new


@pytest.mark.parametrize(
    ("sizes", "error", "message"),
    [
        ((3,), ValueError, "two widths or more"),
        ((), ValueError, "two widths or more"),
        ((3, 0, 1), ValueError, "at least 1"),
        ((3, 2.0, 1), TypeError, "must be an integer"),
    ],
)
def test_bad_sizes(sizes, error, message):
    with pytest.raises(error, match=message):
        mlp_inits(jax.random.key(0), [sizes])


def test_networks_from_one_draw_share_no_number():
    shapes = [(3, 4, 2), (5, 2), (3, 4, 2)]
    many = jax.device_get(mlp_inits(jax.random.key(5), shapes))
    assert [[layer.weight.shape for layer in net] for net in many] == [
        [(3, 4), (4, 2)],
        [(5, 2)],
        [(3, 4), (4, 2)],
    ]
    scaled = [
        (part * np.sqrt(len(layer.weight))).ravel()
        for net in many
        for layer in net
        for part in layer
    ]
    numbers = np.concatenate(scaled)
    assert np.unique(numbers).size == numbers.size == sum(map(parameter_count, many))
    assert np.abs(numbers).max() <= 1 + 1e-6


def test_one_network_is_the_first_of_several():
    one = jax.device_get(mlp_inits(jax.random.key(5), [(3, 4, 2)])[0])
    same = jax.device_get(mlp_inits(jax.random.key(5), [(3, 4, 2)])[0])
    jax.tree.map(np.testing.assert_array_equal, one, same)


def test_a_fast_key_draws_other_numbers_that_its_key_alone_decides():
    keys = [jax.random.key(seed) for seed in (0, 1)]
    one, again, other = (
        np.asarray(jax.random.normal(fast_key(key), (20_000,))) for key in (keys[0], *keys)
    )
    np.testing.assert_array_equal(one, again)
    assert abs(np.corrcoef(one, other)[0, 1]) < 0.03
    assert abs(one.mean()) < 0.03
    assert abs(one.std() - 1) < 0.03
    np.testing.assert_array_equal(one, jax.random.normal(fast_key(fast_key(keys[0])), (20_000,)))
