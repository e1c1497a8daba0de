"""FrozenLake of gymnasium: its table as a decision process, and the columns of its episodes.

One walks over ice, four by four fields, from the upper left corner to the lower right one, where 1
is paid, past four holes; on the ice one goes where one wants to with the success rate, and
otherwise to one of the sides. Holes and the goal end the episode, and 100 steps cut it.

Sources: Towers et al. 2024 (gymnasium), ``FrozenLake-v1``.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import gymnasium
import numpy as np
from numpy.typing import ArrayLike, NDArray

from dprl import _validation as check
from dprl._validation import FloatArray, IntArray
from dprl.mdp import MarkovDecisionProcess

#: Fields; actions, left, down, right, up; steps after which an episode is cut.
N_STATES, N_ACTIONS, LIMIT = 16, 4, 100
#: The holes and the goal.
TERMINAL = (5, 7, 11, 12, 15)


def lake(success_rate: float, discount: float) -> MarkovDecisionProcess:
    """The decision process behind ``gymnasium.make("FrozenLake-v1", success_rate=...)``.

    ``success_rate`` in [0, 1]; that of gymnasium itself is 1/3.

    >>> lake(1 / 3, 0.9).transition[0, 2].round(3)[[0, 1, 4]].tolist()
    [0.333, 0.333, 0.333]
    """
    transition, reward = _table(check.unit("success_rate", success_rate))
    return MarkovDecisionProcess(transition, reward, discount, np.eye(N_STATES)[0])


@lru_cache(maxsize=256)
def _table(rate: float) -> tuple[FloatArray, FloatArray]:
    """Transitions and rewards; fitting a working model asks for the same rates many times."""
    game: Any = gymnasium.make("FrozenLake-v1", success_rate=rate).unwrapped
    transition = np.zeros((N_STATES, N_ACTIONS, N_STATES))
    reward = np.zeros_like(transition)
    for s, actions in game.P.items():
        for a, outcomes in actions.items():
            for p, following, paid, _ in outcomes:
                transition[s, a, following] += p
                reward[s, a, following] = paid
    return check.frozen(transition), check.frozen(reward)


def columns(
    process: MarkovDecisionProcess, policy: ArrayLike, episodes: int, rng: np.random.Generator
) -> dict[str, NDArray[Any]]:
    """What a policy's episodes on such a process leave in a record, all episodes in step.

    Parameters
    ----------
    process : MarkovDecisionProcess
        Of :func:`lake`.
    policy : array_like, shape (16, 4)
        pi(a | s).
    episodes : int
        >= 1.
    rng : numpy.random.Generator

    Returns
    -------
    dict
        The columns of :func:`dprl.transitions.from_transitions`.
    """
    m = check.whole("episodes", episodes)
    check.generator(rng)
    choice = process.action_probabilities(policy).cumsum(axis=1)
    leads = process.transition.cumsum(axis=2)
    alive, state = np.arange(m), np.zeros(m, dtype=np.int64)
    parts: list[list[NDArray[Any]]] = []
    for step in range(LIMIT):
        action = _drawn(choice[state], rng)
        following = _drawn(leads[state, action], rng)
        ended = np.isin(following, TERMINAL)
        cut = np.full(alive.size, step == LIMIT - 1)
        reward = process.reward[state, action, following]
        parts.append([alive, state, action, reward, following, ended, cut])
        alive, state = alive[~ended], following[~ended]
        if not alive.size:
            break
    names = ("episode", "state", "action", "reward", "next_state", "terminated", "truncated")
    whole = [np.concatenate(pieces) for pieces in zip(*parts, strict=True)]
    order = np.argsort(whole[0], kind="stable")
    return {name: values[order] for name, values in zip(names, whole, strict=True)}


def _drawn(cumulative: FloatArray, rng: np.random.Generator) -> IntArray:
    """An outcome for each row of cumulative probabilities."""
    drawn = (rng.random(len(cumulative))[:, None] >= cumulative).sum(axis=1)
    return np.asarray(np.minimum(drawn, cumulative.shape[1] - 1), dtype=np.int64)
