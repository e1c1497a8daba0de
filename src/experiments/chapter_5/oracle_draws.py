r"""Draws of oracles: which are the shadow's and which the target's in one experiment.

A **draw** is one experiment as the thesis describes it (section 5.6.1): distinct oracles for
the shadow's training data and the shadow's negatives, for the target's training data and the
target's negatives.

All O oracles are matched at random in pairs (with an odd number one rests);

* ``shadows = 1``, the thesis's design: each match, in both orders, trains one attack (O of
  them), and each judges all other matches in both orders: O (O - 2) draws;
* ``shadows = O - 2``: for each match one attack is trained on the models of *all other*
  oracles, in random order around a ring, each with the next one's data as negatives; it
  judges the match in both orders: O draws.

Each oracle is the target equally often, and both orders of a match are judged on the same
half. So the answers of an attack that looks at the input alone cancel: what is right in one
order is wrong in the other, and its mean accuracy is 1/2.

Source: thesis, section 5.6.1.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import numpy as np

from dprl import _validation as check


@dataclass(frozen=True)
class Shadow:
    """What one attack is trained on.

    For each shadow model its oracle, and the oracle of its negatives; for all one of the halves.
    """

    models: tuple[tuple[int, int], ...]
    half: int


@dataclass(frozen=True)
class Draw:
    """One experiment.

    Attributes
    ----------
    positive, negative : int
        The target's oracle, and the oracle of its negatives.
    half : int
        Which of the target's two models.
    matches : (int, int)
        Numbers of the shadow's and the target's match. With several shadows both are the
        target's.
    """

    shadow: Shadow
    positive: int
    negative: int
    half: int
    matches: tuple[int, int]

    @property
    def target(self) -> tuple[int, int, int]:
        """``positive``, ``negative``, ``half``: what decides which pairs are judged."""
        return self.positive, self.negative, self.half


def draws(oracles: int, several: bool, seed: int) -> list[Draw]:
    """The draws of O >= 4 oracles, grouped by shadow: one model, or all remaining oracles.

    >>> len(draws(6, several=False, seed=0)), len(draws(6, several=True, seed=0))
    (24, 6)
    """
    count = check.whole("oracles", oracles, 4)
    rng = np.random.default_rng(check.seed(seed))
    meeting = _matches(count, rng)
    found = []
    for number, match in enumerate(meeting):
        if several:
            others = rng.permutation([o for o in range(count) if o not in match])
            ring = [int(o) for o in others]
            models = tuple(zip(ring, [*ring[1:], ring[0]], strict=True))
            shadows, targets = [Shadow(models, int(rng.integers(2)))], [number]
        else:
            shadows = [Shadow((two,), int(rng.integers(2))) for two in (match, match[::-1])]
            targets = [other for other in range(len(meeting)) if other != number]
        for shadow, target in itertools.product(shadows, targets):
            half, order = int(rng.integers(2)), meeting[target]
            found += [Draw(shadow, *two, half, (number, target)) for two in (order, order[::-1])]
    return found


def _matches(oracles: int, rng: np.random.Generator) -> list[tuple[int, int]]:
    """A random perfect matching; with an odd number one oracle rests."""
    order = [int(o) for o in rng.permutation(oracles)]
    return list(zip(order[0::2], order[1::2], strict=False))
