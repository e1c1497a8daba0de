"""Populations that learn side by side, on the cores of one machine.

The products of small matrices use one core. On a CPU a population is cut into as many groups as
there are cores, and the groups learn at the same time, each on its own thread; an accelerator
takes all agents at once. A population is a tree of arrays whose first axis are its agents.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

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
    """Consecutive agents that learn on one thread, as even as possible.

    >>> [group.stop - group.start for group in groups(1)]
    [1]
    """
    cores = available_cores() if jax.default_backend() == "cpu" else 1
    parts = np.array_split(np.arange(agents), min(cores, agents))
    return [slice(int(part[0]), int(part[-1]) + 1) for part in parts]


def part_of(tree: Tree, group: slice) -> Tree:
    """A copy of one group's entries, so that it may be overwritten in place."""
    # through NumPy: nothing to compile
    part: Tree = jax.tree.map(lambda leaf: jnp.array(np.asarray(leaf)[group]), tree)
    return part


def joined(trees: Sequence[Tree]) -> Tree:
    """The population that consists of these groups; a copy."""
    whole: Tree = jax.tree.map(
        lambda *leaves: jnp.asarray(np.concatenate([np.asarray(leaf) for leaf in leaves])), *trees
    )
    return whole


def on_threads(function: Callable[..., T], arguments: Sequence[tuple[Any, ...]]) -> list[T]:
    """What a function returns for several tuples of arguments, computed at the same time.

    Of calls with arguments of the same shapes, new in this process, the first runs alone and
    compiles the program once for all. The function returns a tree of JAX arrays.
    """

    def finished(i: int) -> T:
        after = function(*arguments[i])
        jax.tree.map(lambda leaf: leaf.block_until_ready(), after)
        return after

    names = [(function, *map(np.shape, jax.tree.leaves(given))) for given in arguments]
    new = {name: i for i, name in reversed(list(enumerate(names))) if name not in _compiled}
    done = {i: finished(i) for i in new.values()}
    _compiled.update(new)
    rest = [i for i in range(len(names)) if i not in done]
    if rest:
        with ThreadPoolExecutor(len(rest)) as workers:
            done.update(zip(rest, workers.map(finished, rest), strict=True))
    return [done[i] for i in range(len(names))]


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
