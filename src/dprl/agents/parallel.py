"""Populations that learn side by side, on the cores of one machine.

The products of small matrices use one core. On a CPU every agent learns by itself, and as many at
the same time as there are cores, each on a thread; so what it learns depends neither on the number
of cores nor on the other agents, to the last bit. An accelerator takes all agents at once. A
population is a tree of arrays whose first axis are its agents.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar, cast

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from dprl.agents.environments import available_cores
from dprl.agents.networks import Tree

T = TypeVar("T")

# what this process has compiled: functions with the shapes of their arguments
_compiled: set[Hashable] = set()


def groups(agents: int) -> list[slice]:
    """Agents that learn together: on a CPU each by itself, elsewhere all.

    >>> jax.default_backend(), groups(2)
    ('cpu', [slice(0, 1, None), slice(1, 2, None)])
    """
    size = 1 if jax.default_backend() == "cpu" else agents
    return [slice(start, start + size) for start in range(0, agents, size)]


def each(function: Callable[..., T], *trees: Tree) -> T:
    """A function of one agent's trees, for every agent of a group; to be compiled.

    >>> each(lambda x: x + 1, jnp.arange(3)).tolist()
    [1, 2, 3]
    """
    if len(jax.tree.leaves(trees)[0]) == 1:  # a stack of one matrix takes a fifth more time
        return cast("T", jax.lax.map(lambda of_one: function(*of_one), trees))
    return jax.vmap(function)(*trees)


def part_of(tree: Tree, group: slice) -> Tree:
    """A copy of one group's entries, so that it may be overwritten in place."""
    if jax.default_backend() == "cpu":  # through NumPy: nothing to compile
        tree = jax.tree.map(lambda leaf: np.asarray(leaf)[group], tree)
    part: Tree = jax.tree.map(jnp.array, tree)  # elsewhere the group is all, and stays there
    return part


def joined(trees: Sequence[Tree]) -> Tree:
    """The population that consists of these groups; of several, a copy."""
    if len(trees) == 1:
        return trees[0]
    whole: Tree = jax.tree.map(
        lambda *leaves: jnp.asarray(np.concatenate([np.asarray(leaf) for leaf in leaves])), *trees
    )
    return whole


def on_threads(function: Callable[..., T], arguments: Sequence[tuple[Any, ...]]) -> list[T]:
    """What a function returns for several tuples of arguments of equal shapes, side by side.

    Where these shapes are new in this process, the first call runs alone and compiles the program
    once for all. The function returns a tree of JAX arrays.
    """

    def finished(given: tuple[Any, ...]) -> T:
        return cast("T", jax.block_until_ready(function(*given)))  # type: ignore[no-untyped-call]

    name = (function, *map(np.shape, jax.tree.leaves(arguments[0])))
    alone = 0 if name in _compiled else 1
    done = [finished(given) for given in arguments[:alone]]
    _compiled.add(name)
    with ThreadPoolExecutor(available_cores()) as workers:
        return done + list(workers.map(finished, arguments[alone:]))


# -- generators as arrays -------------------------------------------------------------------


def generator_state(rng: np.random.Generator) -> NDArray[np.uint64]:
    """The state of a PCG64 generator: two numbers of 128 bits in halves, and a spare draw.

    >>> rng = np.random.default_rng(0)
    >>> again = generator_from(generator_state(rng))
    >>> bool(rng.random() == again.random())
    True
    """
    known = rng.bit_generator.state
    numbers = (known["state"]["state"], known["state"]["inc"])
    halves = [half for number in numbers for half in divmod(number, 2**64)]
    return np.array([*halves, known["has_uint32"], known["uinteger"]], np.uint64)


def generator_from(state: NDArray[np.uint64]) -> np.random.Generator:
    """The generator whose :func:`generator_state` this is."""
    high, low, inc_high, inc_low, has_spare, spare = (int(word) for word in state)
    bits = np.random.PCG64()
    bits.state = {
        "bit_generator": "PCG64",
        "state": {"state": high * 2**64 + low, "inc": inc_high * 2**64 + inc_low},
        "has_uint32": has_spare,
        "uinteger": spare,
    }
    return np.random.Generator(bits)
