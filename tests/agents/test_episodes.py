"""Episodes and transitions: against loops over single steps, identities, bad input."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dprl.agents.episodes import Episodes, Transitions


def made(n, t, d_s=2, d_a=3, k=4, seed=0):
    """Random episodes; zeros beyond each end."""
    rng = np.random.default_rng(seed)
    lengths = rng.integers(1, t + 1, n)
    steps = np.arange(t) < lengths[:, None]
    seen = np.arange(t + 1) <= lengths[:, None]
    return Episodes(
        rng.normal(size=(n, t + 1, d_s)) * seen[..., None],
        rng.uniform(-1, 1, (n, t, d_a)) * steps[..., None],
        rng.normal(size=(n, t)) * steps,
        lengths,
        (rng.random(n) < 0.5) | (lengths < t),
        rng.normal(size=(n, k)),
    )


def same(a, b):
    for name in ("observations", "actions", "rewards", "lengths", "terminated", "initial_states"):
        first, second = getattr(a, name), getattr(b, name)
        assert first.dtype == second.dtype
        np.testing.assert_array_equal(first, second)


sizes = st.tuples(st.integers(1, 6), st.integers(1, 7), st.integers(0, 1000))


@given(sizes, st.booleans())
def test_transitions_are_a_loop_over_steps(size, timeout_is_terminal):
    n, t, seed = size
    episodes = made(n, t, seed=seed)
    rows = []
    for i in range(n):
        for j in range(episodes.lengths[i]):
            last = j == episodes.lengths[i] - 1
            rows.append(
                (
                    episodes.observations[i, j],
                    episodes.actions[i, j],
                    episodes.rewards[i, j],
                    episodes.observations[i, j + 1],
                    last and (timeout_is_terminal or episodes.terminated[i]),
                )
            )
    flat = episodes.transitions(timeout_is_terminal=timeout_is_terminal)
    assert len(flat) == len(rows) == episodes.lengths.sum()
    for column, name in zip(
        zip(*rows, strict=True),
        ("observations", "actions", "rewards", "next_observations", "terminals"),
        strict=True,
    ):
        np.testing.assert_array_equal(getattr(flat, name), np.stack(column))


@given(sizes)
def test_one_terminal_an_episode_at_most(size):
    n, t, seed = size
    episodes = made(n, t, seed=seed)
    assert episodes.transitions().terminals.sum() == episodes.terminated.sum()
    assert episodes.transitions(timeout_is_terminal=True).terminals.sum() == n


@given(sizes, st.integers(1, 5))
def test_concatenate_and_select_are_inverse(size, cut):
    n, t, seed = size
    episodes = made(n, t, seed=seed)
    cut = min(cut, n)
    parts = [episodes.select(range(cut))]
    if cut < n:
        parts.append(episodes.select(np.arange(n) >= cut))
    same(Episodes.concatenate(parts), episodes)
    order = np.random.default_rng(seed).permutation(n)
    same(episodes.select(order).select(np.argsort(order)), episodes)


def test_returns_are_sums_until_the_end():
    episodes = made(5, 6)
    by_hand = [
        sum(float(r) for r in row[:k])
        for row, k in zip(episodes.rewards, episodes.lengths, strict=True)
    ]
    np.testing.assert_allclose(episodes.returns, by_hand)
    assert episodes.steps.sum(axis=1).tolist() == episodes.lengths.tolist()


def test_sizes_and_types():
    episodes = made(3, 5)
    assert (len(episodes), episodes.t_max) == (3, 5)
    assert (episodes.observation_size, episodes.action_size) == (2, 3)
    assert episodes.observations.dtype == episodes.rewards.dtype == np.float32
    assert episodes.initial_states.dtype == np.float64
    flat = episodes.transitions()
    assert (flat.observation_size, flat.action_size) == (2, 3)


def test_arrays_make_the_same_episodes():
    episodes = made(4, 5)
    same(Episodes(**episodes.arrays()), episodes)


def good():
    return {
        "observations": np.ones((2, 4, 1)),
        "actions": np.ones((2, 3, 2)),
        "rewards": np.ones((2, 3)),
        "lengths": np.array([3, 3]),
        "terminated": np.array([True, False]),
        "initial_states": np.zeros((2, 5)),
    }


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"observations": np.ones((2, 3, 1))}, "T \\+ 1 entries"),
        ({"actions": np.ones((2, 4, 2))}, "T \\+ 1 entries"),
        ({"rewards": np.ones(2)}, "2 dimension"),
        ({"rewards": np.ones((3, 3))}, "one row for each episode"),
        ({"actions": np.full((2, 3, 2), np.nan)}, "NaN"),
        ({"observations": np.full((2, 4, 1), 1e300)}, "float32"),
        ({"actions": np.full((2, 3, 2), np.nan, dtype=np.float32)}, "NaN"),
        ({"rewards": np.ones((2, 3, 1), dtype=np.float32)}, "2 dimension"),
        ({"lengths": np.array([0, 3])}, "1 ... T = 3"),
        ({"lengths": np.array([3, 4])}, "1 ... T = 3"),
        ({"lengths": np.array([3, 2])}, "zero beyond"),
        ({"lengths": np.array([[3], [3]])}, "1 dimension"),
        ({"terminated": np.array([1, 0])}, "bool"),
        ({"initial_states": np.zeros(2)}, "2 dimension"),
    ],
)
def test_bad_episodes_are_refused(change, message):
    Episodes(**good())
    with pytest.raises(ValueError, match=message):
        Episodes(**(good() | change))


def test_lengths_are_integers_and_episodes_exist():
    with pytest.raises(ValueError, match="integers"):
        Episodes(**(good() | {"lengths": np.array([3.0, 3.0])}))
    with pytest.raises(ValueError, match="at least one episode"):
        Episodes(**{name: array[:0] for name, array in good().items()})


@pytest.mark.parametrize(
    ("indices", "error", "message"),
    [
        ([2], ValueError, "0 ... 1"),
        ([-1], ValueError, "0 ... 1"),
        (np.array([], dtype=int), ValueError, "at least one"),
        ([False, False], ValueError, "at least one"),
        ([True], ValueError, "2 entries"),
        ([0.0], TypeError, "integers or a mask"),
        (0, TypeError, "integers or a mask"),
    ],
)
def test_bad_selections_are_refused(indices, error, message):
    with pytest.raises(error, match=message):
        Episodes(**good()).select(indices)


def test_parts_must_fit():
    episodes = made(3, 5)
    with pytest.raises(ValueError, match="nothing to concatenate"):
        Episodes.concatenate([])
    with pytest.raises(TypeError, match="Episodes"):
        Episodes.concatenate([episodes, episodes.transitions()])
    for other in (made(3, 4), made(3, 5, d_s=3), made(3, 5, d_a=2), made(3, 5, k=3)):
        with pytest.raises(ValueError, match="must agree"):
            Episodes.concatenate([episodes, other])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"rewards": np.ones(3)}, "one row for each step"),
        ({"next_observations": np.ones((2, 2))}, "must agree"),
        ({"actions": np.array([[np.inf], [0]])}, "NaN or infinite"),
        ({"actions": np.ones(2)}, "2 dimension"),
        ({"terminals": np.zeros(2)}, "bool"),
    ],
)
def test_bad_transitions_are_refused(change, message):
    fine = {
        "observations": np.ones((2, 1)),
        "actions": np.ones((2, 1)),
        "rewards": np.ones(2),
        "next_observations": np.ones((2, 1)),
        "terminals": np.zeros(2, dtype=bool),
    }
    assert len(Transitions(**fine)) == 2
    with pytest.raises(ValueError, match=message):
        Transitions(**(fine | change))
    with pytest.raises(ValueError, match="at least one step"):
        Transitions(**{name: array[:0] for name, array in fine.items()})
