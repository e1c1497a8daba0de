"""Recorded steps against a naive reading of them, and each fault of a record."""

import re

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dprl.trajectories import Batch, first_visit_returns
from dprl.transitions import COLUMNS, from_transitions

N = 5  # states; the last two end an episode

#: Episode 0 goes 0, 1, 3 and ends; episode 1 stays in 0 and is cut; episode 2 goes 2, 4.
ROWS = {
    "episode": [7, 7, 3, 3, 9],
    "state": [0, 1, 0, 0, 2],
    "action": [1, 0, 0, 1, 1],
    "reward": [0.0, 1.0, 0.5, -0.5, 2.0],
    "next_state": [1, 3, 0, 0, 4],
    "terminated": [False, True, False, False, True],
    "truncated": [False, False, False, True, False],
}


def rows(**change):
    return {**ROWS, **change}


@st.composite
def records(draw):
    """Episodes as lists of (s, a, r, s'), each with whether it ended; and their columns."""
    episodes = []
    for _ in range(draw(st.integers(1, 6))):
        state, steps = draw(st.integers(0, 2)), []
        for _ in range(draw(st.integers(1, 6))):
            following = draw(st.integers(0, N - 1))
            action, reward = draw(st.integers(0, 3)), draw(st.floats(-5, 5))
            steps.append((state, action, reward, following))
            state = following
            if state >= 3:
                break
        episodes.append((steps, state >= 3))
    names = draw(
        st.lists(st.integers(-9, 99), min_size=len(episodes), max_size=len(episodes), unique=True)
    )
    table = {name: [] for name in COLUMNS}
    for name, (steps, ended) in zip(names, episodes, strict=True):
        for t, step in enumerate(steps):
            last = t == len(steps) - 1
            entries = (name, *step, ended and last, not ended and last)
            for column, entry in zip(COLUMNS, entries, strict=True):
                table[column].append(entry)
    return episodes, table


@given(records())
def test_what_is_read_is_what_was_recorded(record):
    episodes, table = record
    data = from_transitions(table, N, terminal=[3, 4])
    assert len(data) == len(episodes)
    assert data.lengths.tolist() == [len(steps) for steps, _ in episodes]
    assert data.terminated.tolist() == [ended for _, ended in episodes]
    batch = data.trajectories(cut="as ends")
    expected = Batch.from_lists([[step[:3] for step in steps] for steps, _ in episodes], N)
    for name in ("states", "actions", "rewards", "lengths"):
        assert getattr(batch, name).tolist() == getattr(expected, name).tolist()
    values = np.array([2.0, 3.0, 5.0, 7.0, 11.0])
    ahead = [
        0.0 if ended and t == len(steps) - 1 else values[step[3]]
        for steps, ended in episodes
        for t, step in enumerate(steps)
    ]
    assert data.following(values).tolist() == ahead


@given(records())
def test_tables_and_types_do_not_matter(record):
    table = record[1]
    frame = pd.DataFrame({**table, "comment": "x", "step": np.arange(len(table["state"]))})
    frame["terminated"] = frame["terminated"].astype(int)
    frame["episode"] = [f"name {i}" for i in frame["episode"]]
    one, other = from_transitions(table, N), from_transitions(frame, N, terminal=[3, 4])
    assert one.lengths.tolist() == other.lengths.tolist()
    assert one.next_states.tolist() == other.next_states.tolist()


@given(records(), st.data())
def test_a_lost_row_is_noticed_or_changes_nothing_else(record, data):
    """Without one row: an error, or a record that is as good with the row left out."""
    episodes, table = record
    total = len(table["state"])
    gone = data.draw(st.integers(0, total - 1))
    without = {name: [x for i, x in enumerate(col) if i != gone] for name, col in table.items()}
    if total == 1:
        with pytest.raises(ValueError, match="episode must have one entry"):
            from_transitions(without, N)
        return
    try:
        kept = from_transitions(without, N, terminal=[3, 4])
    except ValueError:
        return
    first = gone == 0 or table["episode"][gone - 1] != table["episode"][gone]
    stays = table["state"][gone] == table["next_state"][gone]
    assert first or stays  # the one is an episode that begins later, the other needs `step`
    assert len(kept) in (len(episodes), len(episodes) - 1)


@given(st.integers(0, 3))
def test_step_numbers_show_what_states_do_not(gone):
    stay = {name: [0] * 4 for name in COLUMNS} | {"truncated": [0, 0, 0, 1], "step": [4, 5, 6, 7]}
    assert from_transitions(stay, N).lengths.tolist() == [4]
    without = {name: [x for i, x in enumerate(col) if i != gone] for name, col in stay.items()}
    if gone == 0:
        assert from_transitions(without, N).lengths.tolist() == [3]
        return
    with pytest.raises(ValueError, match=r"step is|never ends"):
        from_transitions(without, N)


def test_the_example():
    data = from_transitions(ROWS, N, terminal=[3, 4])
    assert data.lengths.tolist() == [2, 2, 1]
    assert data.terminated.tolist() == [True, False, True]
    batch = data.trajectories(cut="as ends")
    assert first_visit_returns(batch, 0.5).returns[0].tolist() == [0.5, 1.0, 0.0, 0.0, 0.0]
    phi = np.eye(N)[:, :2]
    assert data.following(phi).tolist() == [[0, 1], [0, 0], [1, 0], [1, 0], [0, 0]]
    assert not data.states.flags.writeable


def test_both_flags_mean_an_end():
    both = rows(truncated=[False, True, False, True, False])
    assert from_transitions(both, N).terminated.tolist() == [True, False, True]


def test_an_end_may_be_anywhere_if_no_states_are_named():
    assert from_transitions(rows(next_state=[1, 0, 0, 0, 1]), N).terminated[0]


MISSING = {name: values for name, values in ROWS.items() if name != "truncated"}
DONE = {name: v for name, v in ROWS.items() if name not in ("terminated", "truncated")}
DONE["done"] = [False, True, False, True, True]
WRONG = {
    "done alone": (lambda: from_transitions(DONE, N), "done does not say whether an episode ended"),
    "done and one": (
        lambda: from_transitions({**MISSING, "done": DONE["done"]}, N),
        "done does not say",
    ),
    "a missing column": (lambda: from_transitions(MISSING, N), "there is no truncated"),
    "a short column": (
        lambda: from_transitions(rows(action=[0]), N),
        "action has 1 entries, episode has 5",
    ),
    "a short flag": (lambda: from_transitions(rows(terminated=[0]), N), "terminated has 1 entries"),
    "nothing": (
        lambda: from_transitions({name: [] for name in COLUMNS}, N),
        "episode must have one entry",
    ),
    "unnamed": (
        lambda: from_transitions(rows(episode=[1.0, 1.0, 2.0, 2.0, np.nan]), N),
        "episode must hold integers or text",
    ),
    "a name that is missing": (
        lambda: from_transitions(rows(episode=["a", "a", "b", None, "c"]), N),
        "episode must hold integers or text",
    ),
    "states in words": (
        lambda: from_transitions(rows(state=["a", "b", "a", "a", "c"]), N),
        "state must hold integers",
    ),
    "real states": (
        lambda: from_transitions(rows(state=[0.5, 1, 0, 0, 2]), N),
        "state must hold integers",
    ),
    "a negative action": (
        lambda: from_transitions(rows(action=[0, 0, -1, 0, 0]), N),
        "action is -1 in row 2",
    ),
    "a state too many": (
        lambda: from_transitions(ROWS, 4),
        "next_state is 4 in row 4; with n_states = 4",
    ),
    "no reward": (
        lambda: from_transitions(rows(reward=[0, 1, np.nan, 0, 0]), N),
        "reward holds NaN",
    ),
    "flags in words": (
        lambda: from_transitions(rows(terminated=["no", "yes", "no", "no", "yes"]), N),
        "terminated must be an array of numbers",
    ),
    "flags of another kind": (
        lambda: from_transitions(rows(terminated=[0, 2, 0, 0, 1]), N),
        "terminated must be booleans",
    ),
    "torn apart": (
        lambda: from_transitions(rows(episode=[7, 7, 3, 3, 7]), N),
        "episode 7 goes on in row 4, after another episode",
    ),
    "goes on": (
        lambda: from_transitions(rows(terminated=[1, 1, 0, 0, 1]), N),
        "row 0 is terminated, but episode 7 goes on",
    ),
    "goes on behind a cut": (
        lambda: from_transitions(rows(truncated=[0, 0, 1, 1, 0]), N),
        "row 2 is truncated, but episode 3 goes on",
    ),
    "never ends": (
        lambda: from_transitions(rows(truncated=[0] * 5), N),
        "episode 3 never ends: its last row, 3,",
    ),
    "a missing step": (
        lambda: from_transitions(rows(next_state=[2, 3, 0, 0, 4]), N),
        "row 0 leads to state 2, but the next row of episode 7 starts in state 1",
    ),
    "steps that jump": (
        lambda: from_transitions(rows(step=[0, 1, 5, 7, 0]), N),
        "step is 7 in row 3, after 5 in the same episode 3",
    ),
    "after a reset": (
        lambda: from_transitions(rows(next_state=[1, 0, 0, 0, 4]), N, terminal=[3, 4]),
        "row 1 is terminated, but state 0, which it leads to, is none of the terminal states",
    ),
    "an end that is not said": (
        lambda: from_transitions(ROWS, N, terminal=[0, 3, 4]),
        "row 0 starts in state 0, in which episodes end",
    ),
    "a cut in the goal": (
        lambda: from_transitions(rows(next_state=[1, 3, 0, 4, 4]), N, terminal=[3, 4]),
        "row 3 is not terminated, but state 4, which it leads to, is one of",
    ),
    "ends elsewhere": (
        lambda: from_transitions(ROWS, N, terminal=[9]),
        "terminal must hold states 0 .. 4, got 9",
    ),
    "a cut return": (
        lambda: from_transitions(ROWS, N).trajectories(),
        "1 of 3 episodes were cut, the first of them number 1, after 2 steps",
    ),
    "another word": (
        lambda: from_transitions(ROWS, N).trajectories(cut="drop"),
        "cut must be 'refuse' or 'as ends', got 'drop'",
    ),
    "values of other states": (
        lambda: from_transitions(ROWS, N).following([1.0]),
        "values must have 5 rows",
    ),
    "no states": (lambda: from_transitions(ROWS, 0), "n_states must be at least 1"),
}


@pytest.mark.parametrize("case", WRONG)
def test_a_fault_of_the_record_is_a_plain_error(case):
    call, words = WRONG[case]
    with pytest.raises(ValueError, match=re.escape(words)):
        call()


@pytest.mark.parametrize("columns", [[(0, 1, 0.0)], "episode", np.zeros((3, 7)), 5])
def test_what_has_no_columns_is_refused(columns):
    with pytest.raises(TypeError, match="columns must be a dictionary or data frame"):
        from_transitions(columns, N)


def test_masked_entries_are_refused():
    masked = np.ma.array([0.0, 1.0, 0.5, 0.0, 1.0], mask=[0, 0, 1, 0, 0])
    with pytest.raises(ValueError, match="reward has masked entries"):
        from_transitions(rows(reward=masked), N)
