r"""Small networks as plain trees of arrays, and what both learners share around them.

A network is a tuple of layers, a layer a pair (weight, bias). Such a tree can be stacked over
agents (``jax.vmap``), saved and compared leaf by leaf.

Every weight and every bias of a layer with m inputs is drawn from U(-1/sqrt(m), 1/sqrt(m)).
This is the default of PyTorch's linear layer, with which the public implementations of DDPG
and BCQ were written, so it is part of the algorithms as they are known.

All arrays are float32.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeVar

import jax
import jax.numpy as jnp

from dprl import _validation as check

Tree = TypeVar("Tree")


class Layer(NamedTuple):
    """An affine map x -> x W + b; weight (m, n) and bias (n,), float32."""

    weight: jax.Array
    bias: jax.Array


Params = tuple[Layer, ...]


class MiniBatch(NamedTuple):
    """Transitions of one mini-batch, as the update of an agent takes them.

    s (n, d_s), a (n, d_A) in [-1, 1], r (n,), s' (n, d_s), and terminals (n,): 1 where s' is
    absorbing, so that its value counts as zero, else 0.
    """

    observations: jax.Array
    actions: jax.Array
    rewards: jax.Array
    next_observations: jax.Array
    terminals: jax.Array


def mlp_inits(key: jax.Array, networks: Sequence[Sequence[int]]) -> list[Params]:
    """Multi-layer perceptrons with random weights.

    ``networks`` holds of each the widths from the input to the output, at least two, each >= 1.
    All come from one draw: a draw for each layer would take seconds to compile.

    >>> actor, critic = mlp_inits(jax.random.key(0), [(11, 64, 3), (14, 64, 1)])
    >>> parameter_count(actor), parameter_count(critic)
    (963, 1025)
    """
    shapes = []
    for sizes in networks:
        widths = [check.whole("each entry of sizes", width) for width in sizes]
        if len(widths) < 2:
            raise ValueError(f"sizes must name input and output, two widths or more, got {widths}")
        shapes.append(list(itertools.pairwise(widths)))
    count = sum((m + 1) * n for one in shapes for m, n in one)
    numbers, at = jax.random.uniform(key, (count,), jnp.float32, -1.0, 1.0), 0
    drawn = []
    for one in shapes:
        layers = []
        for m, n in one:
            # the last row is the bias
            both = numbers[at : at + (m + 1) * n].reshape(m + 1, n) / math.sqrt(m)
            layers.append(Layer(both[:m], both[m]))
            at += (m + 1) * n
        drawn.append(tuple(layers))
    return drawn


def mlp_apply(
    params: Params, x: jax.Array, *, final: Callable[[jax.Array], jax.Array] | None = None
) -> jax.Array:
    """The network's output (..., n) at x (..., m); ReLU between the layers, ``final`` at the end.

    >>> net = (Layer(jnp.ones((2, 1)), jnp.zeros(1)), Layer(jnp.full((1, 1), -2.0), jnp.ones(1)))
    >>> mlp_apply(net, jnp.array([[1.0, 3.0], [-1.0, -3.0]])).tolist()
    [[-7.0], [1.0]]
    """
    for layer in params[:-1]:
        x = jax.nn.relu(x @ layer.weight + layer.bias)
    x = x @ params[-1].weight + params[-1].bias
    return x if final is None else final(x)


def fast_key(key: jax.Array) -> jax.Array:
    """The key for XLA's own generator in place of JAX's default, threefry.

    A program that draws with threefry takes one to two seconds longer to compile. On one
    machine the numbers are as determined by the key; other kinds of machines draw others.
    Under ``vmap`` this generator mixes the keys: draw with ``jax.lax.map`` first. A key that is of
    this kind stays as it is.

    >>> one = fast_key(jax.random.key(0))
    >>> jax.random.key_data(one).shape, bool(one == fast_key(one))
    ((4,), True)
    """
    words = jax.random.key_data(key)
    # as JAX makes such a key from a seed: threefry's two words, twice
    repeats = 4 // words.shape[-1]
    fast: jax.Array = jax.random.wrap_key_data(jnp.tile(words, repeats), impl="rbg")
    return fast


def soft_update(target: Tree, online: Tree, tau: float) -> Tree:
    """The target network, moved towards the online one: (1 - tau) target + tau online."""
    moved: Tree = jax.tree.map(lambda old, new: (1 - tau) * old + tau * new, target, online)
    return moved


def parameter_count(params: Any) -> int:
    """How many numbers a tree of arrays holds.

    >>> parameter_count((Layer(jnp.ones((4, 3)), jnp.ones(3)),))
    15
    """
    return sum(math.prod(jnp.shape(leaf)) for leaf in jax.tree.leaves(params))
