"""The data formatter: loops over single steps, identities, properties, bad input."""

from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dprl.membership.attacks.voting import bag_labels, bag_tensor, draw_bags
from dprl.membership.pairs import (
    LABELS,
    DataFormatter,
    LabelledPairs,
    Trajectory,
    concatenate,
    decorrelate,
    format_pairs,
    pad_actions,
    padding_share,
    require_disjoint,
    split,
    split_states,
)


def batch(rng, n=6, steps=8, size=2, starts=None, shift=0.0):
    """What the formatter reads of a batch; actions are unlike each other."""
    lengths = rng.integers(1, steps + 1, n)
    actions = (rng.normal(size=(n, steps, size)) + shift).astype(np.float32)
    actions[np.arange(steps) >= lengths[:, None]] = 0
    starts = rng.normal(size=(n, 3)) if starts is None else starts
    return SimpleNamespace(actions=actions, lengths=lengths, initial_states=starts)


def labelled_pairs(inputs, outputs, judged=0, other=None, labels="as-printed", half=0, **options):
    return DataFormatter(inputs, outputs, **options).label(judged, other, labels, half)


def world(seed=0, oracles=3, **options):
    """inputs and outputs, [oracle][half], from one list of initial states."""
    rng = np.random.default_rng(seed)
    n = options.get("n", 6)
    starts = rng.normal(size=(n, 3))
    return [
        [[batch(rng, starts=starts, **options) for _ in range(2)] for _ in range(oracles)]
        for _ in range(2)
    ]


@st.composite
def batches(draw):
    n, steps, size = (draw(st.integers(1, k)) for k in (5, 7, 3))
    rng = np.random.default_rng(draw(st.integers(0, 99)))
    one = batch(rng, n, steps, size)
    return one.actions, one.lengths, draw(st.integers(1, steps))


def padded_by_hand(actions, lengths, length):
    """One step at a time."""
    rows = []
    for a, end in zip(actions, lengths, strict=True):
        row = []
        for t in range(length):
            row.append(a[t] if t < end else a[end - 1])
        rows.append(row)
    return np.array(rows)


# one pair


@given(batches())
def test_padding_is_a_loop_over_steps(given_batch):
    actions, lengths, length = given_batch
    padded = pad_actions(actions, lengths, length)
    assert padded.dtype == np.float32
    np.testing.assert_array_equal(padded, padded_by_hand(actions, lengths, length))


@given(batches())
def test_padding_keeps_the_prefix_and_is_idempotent(given_batch):
    actions, lengths, length = given_batch
    padded = pad_actions(actions, lengths, length)
    for i, end in enumerate(np.minimum(lengths, length)):
        np.testing.assert_array_equal(padded[i, :end], actions[i, :end])
    full = np.full(len(actions), length)
    for again in (np.minimum(lengths, length), full):
        np.testing.assert_array_equal(pad_actions(padded, again, length), padded)


@given(batches())
def test_cutting_and_padding_commute(given_batch):
    actions, lengths, length = given_batch
    cut_last = pad_actions(actions, lengths, actions.shape[1])[:, :length]
    cut_first = pad_actions(actions[:, :length], np.minimum(lengths, length), length)
    np.testing.assert_array_equal(cut_first, cut_last)
    np.testing.assert_array_equal(cut_first, pad_actions(actions, lengths, length))


@given(batches())
def test_nothing_beyond_the_end_is_read(given_batch):
    actions, lengths, length = given_batch
    dirty = actions.copy()
    dirty[np.arange(actions.shape[1]) >= lengths[:, None]] = 1e6
    np.testing.assert_array_equal(
        pad_actions(dirty, lengths, length), pad_actions(actions, lengths, length)
    )


@given(batches())
def test_the_padding_share_counts_repeated_steps(given_batch):
    _, lengths, length = given_batch
    beyond = np.arange(length) >= lengths[:, None]
    np.testing.assert_allclose(padding_share(lengths, length), beyond.mean(axis=1), atol=1e-15)


def test_channels_first_time_last():
    inputs, outputs = (side[0][0] for side in world(1, n=4, steps=7, size=3))
    inputs.lengths[:] = outputs.lengths[:] = 7
    pairs = format_pairs(inputs, outputs)
    assert pairs.shape == (4, 6, 7)
    for i, c, t in np.ndindex(4, 3, 7):
        assert pairs[i, c, t] == inputs.actions[i, t, c]
        assert pairs[i, 3 + c, t] == outputs.actions[i, t, c]


def test_formatter_pads_each_by_its_own_length():
    inputs, outputs = (side[0][0] for side in world(2))
    pairs = format_pairs(inputs, outputs, 5)
    for side, channels in ((inputs, pairs[:, :2]), (outputs, pairs[:, 2:])):
        by_hand = padded_by_hand(side.actions, side.lengths, 5)
        np.testing.assert_array_equal(channels, by_hand.transpose(0, 2, 1))
    np.testing.assert_array_equal(format_pairs(inputs, outputs), format_pairs(inputs, outputs, 8))


# labels


def sources(found, label):
    """(input oracle, input half, model oracle, model half) of the pairs of one label."""
    return set(map(tuple, found.origins[found.labels == label, 1:].tolist()))


EXPECTED = {
    "as-printed": ({(0, 1, 0, 1)}, {(2, 1, 0, 1)}),
    "same-oracle": ({(0, 1, 0, 1)}, {(0, 0, 0, 1)}),
    "never-seen": ({(0, 0, 0, 1)}, {(2, 1, 0, 1)}),
    "input-only": ({(0, 1, 0, 1)}, {(2, 1, 0, 1)}),
    "swap-twins": (
        {(0, 1, 0, 1), (0, 0, 0, 0)},
        {(0, 0, 0, 1), (0, 1, 0, 0)},
    ),
}


@pytest.mark.parametrize("labels", LABELS)
def test_labels_are_a_loop_over_pairs(labels):
    inputs, outputs = world(3)
    other = None if labels in ("same-oracle", "swap-twins") else 2
    found = labelled_pairs(inputs, outputs, judged=0, other=other, labels=labels, half=1, length=5)
    assert (sources(found, True), sources(found, False)) == EXPECTED[labels]
    assert found.labels.sum() * 2 == len(found) == (24 if labels == "swap-twins" else 12)
    assert (found.action_size, found.length) == (2, 5)
    for k in range(len(found)):
        first, second = found.members[k]
        i = first.state
        assert (first.output, second.output, second.state) == (False, True, i)
        a, b = inputs[first.oracle][first.half], outputs[second.oracle][second.half]
        one = padded_by_hand(a.actions[[i]], a.lengths[[i]], 5)[0]
        two = padded_by_hand(b.actions[[i]], b.lengths[[i]], 5)[0]
        two = 0 * two if labels == "input-only" else two
        np.testing.assert_array_equal(found.pairs[k], np.hstack([one, two]).T)


def test_both_labels_hold_the_same_outputs_and_twins_the_same_inputs_too():
    inputs, outputs = world(4)
    for labels in LABELS:
        other = None if labels in ("same-oracle", "swap-twins") else 1
        found = labelled_pairs(inputs, outputs, judged=2, other=other, labels=labels)
        yes, no = found.select(found.labels), found.select(~found.labels)
        (ins, outs), (other_ins, other_outs) = (zip(*one.members, strict=True) for one in (yes, no))
        assert sorted(outs) == sorted(other_outs)
        same_inputs = sorted(ins) == sorted(other_ins)
        assert same_inputs == (labels == "swap-twins")


def test_a_sample_of_states():
    inputs, outputs = world(5)
    everything = labelled_pairs(inputs, outputs, judged=0, other=1)
    some = labelled_pairs(inputs, outputs, judged=0, other=1, states=[4, 1])
    assert some.states.tolist() == [4, 1, 4, 1]
    np.testing.assert_array_equal(some.pairs, everything.select([4, 1, 10, 7]).pairs)
    assert some.members == everything.select([4, 1, 10, 7]).members


def test_a_trajectory_says_which_it_is():
    assert str(Trajectory(3, 1, True, 7)) == "output 7 of oracle 3, half 1"
    assert str(Trajectory(0, 0, False, 2)) == "input 2 of oracle 0, half 0"


def test_pairs_are_read_only_and_the_caller_keeps_its_arrays():
    inputs, outputs = world(6)
    found = labelled_pairs(inputs, outputs, judged=0, other=1)
    for name in ("pairs", "labels", "inputs", "states"):
        with pytest.raises(ValueError, match="read-only"):
            getattr(found, name)[...] = 0
    own = np.zeros((1, 2, 3))
    LabelledPairs(own, [True], [[0, 0]], [[0, 0]], [0], [])
    own[0, 0, 0] = 1.0
    assert inputs[0][0].actions.flags.writeable


# splits


@given(st.integers(0, 200), st.floats(0.05, 0.95), st.sampled_from(LABELS))
def test_a_split_shares_no_trajectory_and_loses_no_pair(seed, share, labels):
    inputs, outputs = world(7)
    other = None if labels in ("same-oracle", "swap-twins") else 1
    found = labelled_pairs(inputs, outputs, judged=0, other=other, labels=labels)
    parts = split(found, share, np.random.default_rng(seed))
    assert not parts[0].trajectories & parts[1].trajectories
    together = concatenate(parts)
    rows = [sorted(zip(p.labels.tolist(), p.members, strict=True)) for p in (found, together)]
    assert rows[0] == rows[1]
    for part in parts:
        assert part.labels.any()
        assert not part.labels.all()


def test_a_split_of_pairs_would_share_outputs():
    inputs, outputs = world(8)
    found = labelled_pairs(inputs, outputs, judged=0, other=1)
    order = np.random.default_rng(0).permutation(len(found))
    with pytest.raises(ValueError, match=r"sets 0 and 1 share \d trajector.*, first output"):
        require_disjoint(found.select(order[:9]), found.select(order[9:]))


@given(st.integers(2, 40), st.floats(0.01, 0.99), st.integers(0, 9))
def test_split_states_is_a_partition(count, share, seed):
    parts = split_states(count, share, np.random.default_rng(seed))
    assert sorted(np.concatenate(parts).tolist()) == list(range(count))
    assert min(map(len, parts)) >= 1
    assert abs(len(parts[1]) - share * count) <= 1


def test_pools_count_as_shared():
    inputs, outputs = world(9)
    rng = np.random.default_rng(0)

    def make(states, pooled):
        return labelled_pairs(
            inputs,
            outputs,
            judged=0,
            other=1,
            states=states,
            decorrelated=rng if pooled else None,
        )

    require_disjoint(make([0, 1, 2], True), make([3, 4], True), make([5], False))
    both = make([0, 1, 2], True)
    first, second = both.select(both.states == 0), both.select(both.states == 1)
    with pytest.raises(ValueError, match="sets 0 and 1 share 6 trajectories, first input 0"):
        require_disjoint(first, second)
    with pytest.raises(ValueError, match="share"):
        require_disjoint(first, make([2], False))
    with pytest.raises(ValueError, match="split the states first"):
        split(both, 0.5, rng)
    assert len(both.pool) == len(concatenate([both, both]).pool) == 6


# bags


@given(st.integers(1, 6), st.integers(0, 50), st.sampled_from(["as-printed", "swap-twins"]))
def test_bags_are_disjoint_pure_and_as_many_as_fit(size, seed, labels):
    inputs, outputs = world(10)
    other = None if labels == "swap-twins" else 1
    found = labelled_pairs(inputs, outputs, judged=0, other=other, labels=labels)
    rng = np.random.default_rng(seed)
    drawn = draw_bags(found, size, rng)
    origins = 4 if labels == "swap-twins" else 2
    assert drawn.shape == (origins * (6 // size), size)
    assert np.unique(drawn).size == drawn.size
    for bag in drawn:
        assert len(np.unique(found.origins[bag], axis=0)) == 1
    assert bag_labels(found.labels, drawn).tolist() == [found.labels[bag[0]] for bag in drawn]
    tensor = bag_tensor(found.pairs, drawn)
    assert tensor.shape == (len(drawn), 4, 8, size)
    k, c, t, m = (rng.integers(n) for n in tensor.shape)
    assert tensor[k, c, t, m] == found.pairs[drawn[k, m], c, t]


def test_every_pair_may_be_drawn():
    inputs, outputs = world(11)
    found = labelled_pairs(inputs, outputs, judged=0, other=1)
    rng = np.random.default_rng(0)
    seen = np.unique([draw_bags(found, 4, rng) for _ in range(40)])
    assert seen.tolist() == list(range(len(found)))


# decorrelation


@given(batches())
def test_decorrelated_actions_come_from_the_pool(given_batch):
    actions, lengths, _ = given_batch
    pool = {tuple(a[t]) for a, end in zip(actions, lengths, strict=True) for t in range(end)}
    drawn = decorrelate(actions, lengths, np.random.default_rng(0))
    assert drawn.shape == actions.shape
    assert {tuple(a) for row in drawn for a in row} <= pool


def test_decorrelated_actions_have_the_pooled_law():
    """Each pooled action is as frequent as any other, at every step, whatever the trajectory."""
    lengths = np.array([1, 4, 2])
    actions = np.zeros((3, 4, 1))
    real = np.arange(4) < lengths[:, None]
    actions[real, 0] = np.arange(7)
    rng = np.random.default_rng(5)
    repeats = 3000
    drawn = np.stack([decorrelate(actions, lengths, rng)[:, :, 0] for _ in range(repeats)])
    for one in (drawn, drawn[:, 0], drawn[:, :, 3], drawn[:, 2, 0]):
        counts = np.bincount(one.astype(int).ravel(), minlength=7)
        spread = np.sqrt(one.size / 7 * 6 / 7)
        assert np.abs(counts - one.size / 7).max() < 4.5 * spread
    # neighbours in time are independent
    pairs = drawn[:, 1, 0] * 7 + drawn[:, 1, 1]
    counts = np.bincount(pairs.astype(int), minlength=49)
    assert np.abs(counts - repeats / 49).max() < 5 * np.sqrt(repeats / 49)


def test_decorrelation_brings_the_means_together():
    """Trajectories with means of their own: less spread between them than before."""
    rng = np.random.default_rng(6)
    actions = rng.normal(size=(50, 1, 2)) + 0.1 * rng.normal(size=(50, 40, 2))
    drawn = decorrelate(actions, np.full(50, 40), rng)
    spread, before = (x.mean(axis=1).std(axis=0) for x in (drawn, actions))
    assert (spread < 0.3 * before).all()


def test_decorrelated_pairs_change_inputs_only():
    inputs, outputs = world(12)
    plain = labelled_pairs(inputs, outputs, judged=0, labels="swap-twins")
    mixed = labelled_pairs(
        inputs,
        outputs,
        judged=0,
        labels="swap-twins",
        decorrelated=np.random.default_rng(1),
    )
    np.testing.assert_array_equal(mixed.pairs[:, 2:], plain.pairs[:, 2:])
    assert not np.array_equal(mixed.pairs[:, :2], plain.pairs[:, :2])
    assert {tuple(one) for one in mixed.pool.tolist()} == {
        (one.oracle, one.half, one.state) for one, _ in plain.members
    }
    # one input is the same in its positive and in its negative pair
    names = [one for one, _ in mixed.members]
    first = dict(zip(names[:12], mixed.pairs[:12, :2], strict=True))
    for name, x in zip(names[12:], mixed.pairs[12:, :2], strict=True):
        np.testing.assert_array_equal(x, first[name])


def test_each_set_is_its_own_pool():
    inputs, outputs = world(13, shift=0.0)
    for half in inputs[1]:
        half.actions[...] += 1000
    found = labelled_pairs(
        inputs, outputs, judged=0, other=1, decorrelated=np.random.default_rng(2)
    )
    assert found.pairs[found.labels, :2].max() < 500
    assert found.pairs[~found.labels, :2].min() > 500


# bad input

A = np.zeros((2, 4, 3))
RNG = np.random.default_rng(0)


def pairs_of(n=4, **changes):
    given_fields = {
        "pairs": np.zeros((n, 2, 3)),
        "labels": np.arange(n) < n // 2,
        "inputs": np.zeros((n, 2), int),
        "outputs": np.zeros((n, 2), int),
        "states": np.arange(n),
        "pool": np.empty((0, 3), int),
    }
    return LabelledPairs(**{**given_fields, **changes})


def changed(change, **options):
    """labelled_pairs on a world in which something is wrong."""
    inputs, outputs = world(14)
    change(inputs, outputs)
    return labelled_pairs(inputs, outputs, **{"judged": 0, "other": 1, **options})


def nothing(inputs, outputs):
    """The world as it is."""


def other_state(inputs, outputs):
    inputs[0][0].initial_states = inputs[0][0].initial_states.copy()
    inputs[0][0].initial_states[3, 1] = np.nextafter(inputs[0][0].initial_states[3, 1], 9)


def other_dimension(inputs, outputs):
    outputs[0][0].actions = np.zeros((6, 8, 5))


def other_steps(inputs, outputs):
    outputs[0][0].actions = np.zeros((6, 9, 2))


def nan_action(inputs, outputs):
    inputs[1][0].actions[2, 0, 0] = np.nan


def fewer_outputs(inputs, outputs):
    short = outputs[0][0]
    outputs[0][0] = SimpleNamespace(
        actions=short.actions[:4],
        lengths=short.lengths[:4],
        initial_states=short.initial_states[:4],
    )


def zero_length(inputs, outputs):
    inputs[0][0].lengths[1] = 0


def one_half(inputs, outputs):
    inputs[0] = inputs[0][:1]


def states_missing(inputs, outputs):
    inputs[0][0].initial_states = inputs[0][0].initial_states[:5]


def other_state_space(inputs, outputs):
    inputs[0][0].initial_states = inputs[0][0].initial_states[:, :2]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        # padding
        (lambda: pad_actions(A, [1, 0], 3), "lengths must be at least 1, got 0"),
        (lambda: pad_actions(A, [1, 5], 3), "lengths must be at most 4, the steps of actions"),
        (lambda: pad_actions(A, [1], 3), "lengths must have one entry per trajectory, 2"),
        (lambda: pad_actions(A, [1.0, 2.0], 3), "lengths must be integers"),
        (lambda: pad_actions(A, [1, 2], 5), "clipping length must be at most the length 4"),
        (lambda: pad_actions(A, [1, 2], 0), "length must be at least 1"),
        (lambda: pad_actions(A + np.nan, [1, 2], 3), "actions holds NaN"),
        (lambda: pad_actions(A + np.inf, [1, 2], 3), "actions holds NaN or infinite"),
        (lambda: pad_actions(A[0], [1, 2], 3), r"actions must have 3 dimension\(s\)"),
        (lambda: pad_actions(A[:0], [], 3), "actions must not be empty"),
        (lambda: pad_actions([[[1.0]], [[1.0], [2.0]]], [1, 2], 1), "actions must be an array"),
        (lambda: pad_actions([[["left"]]], [1], 1), "actions must be an array of numbers"),
        (lambda: padding_share([0, 2], 3), "lengths must be at least 1"),
        (lambda: padding_share(3, 3), "lengths must be a vector"),
        # formatting and labelling
        (lambda: changed(other_state), "trajectories of pair 3 start in different states"),
        (lambda: changed(other_state_space), "same initial states, got"),
        (lambda: changed(states_missing), "one initial state per trajectory"),
        (lambda: changed(other_dimension), "actions of one dimension, got 2 and 5"),
        (lambda: changed(other_steps), "inputs hold 8 steps and outputs 9: give a clipping"),
        (lambda: changed(nothing, length=9), "clipping length must be at most"),
        (lambda: changed(nan_action), "actions holds NaN"),
        (lambda: changed(fewer_outputs), "as many trajectories, got 6 and 4"),
        (lambda: changed(zero_length), "lengths must be at least 1"),
        (lambda: changed(one_half), "two halves of each oracle, got 1 of oracle 0"),
        (lambda: changed(nothing, judged=3), "there is no oracle 3: inputs holds 3"),
        (lambda: changed(nothing, judged=1), "must be different oracles, got 1 twice"),
        (lambda: changed(nothing, half=2), "half must be 0 or 1"),
        (lambda: changed(nothing, other=None), "as-printed labels need another oracle"),
        (lambda: changed(nothing, labels="same-oracle"), "need no other oracle"),
        (lambda: changed(nothing, labels="honest"), "unknown labels 'honest', expected one of"),
        (lambda: changed(nothing, states=[6]), r"states must lie in 0 .. 5, got 6"),
        (lambda: changed(nothing, states=[1, 1]), "each initial state once"),
        (lambda: changed(nothing, states=[]), "at least one index"),
        (lambda: changed(nothing, states=[-1]), "states must be at least 0"),
        (lambda: changed(nothing, judged=-1), "oracle must be at least 0"),
        # the container
        (lambda: pairs_of(pairs=np.zeros((4, 3, 3))), "even number"),
        (lambda: pairs_of(pairs=np.full((4, 2, 3), np.nan)), "pairs holds NaN"),
        (lambda: pairs_of(labels=[1, 0, 1, 0]), "labels must be one boolean per pair"),
        (lambda: pairs_of(labels=[True]), "labels must be one boolean per pair, 4"),
        (lambda: pairs_of(inputs=[0, 1, 0, 1]), r"inputs must have shape \(4, 2\)"),
        (lambda: pairs_of(outputs=np.full((4, 2), -1)), "outputs must be at least 0"),
        (lambda: pairs_of(outputs=np.full((4, 2), 2)), "each half in outputs must be 0 or 1"),
        (lambda: pairs_of(states=[0.5] * 4), "states must be integers"),
        (lambda: pairs_of(pool=[[0, 2, 0]]), "each half in pool must be 0 or 1"),
        (lambda: pairs_of().select([4]), r"indices must lie in 0 .. 3"),
        (lambda: pairs_of().select([]), "at least one"),
        (lambda: pairs_of().select([0.5]), "integers"),
        (lambda: concatenate([]), "at least one set of pairs"),
        (
            lambda: concatenate([pairs_of(), pairs_of(pairs=np.zeros((4, 2, 5)))]),
            r"one clipping length, got \(1, 3\) and \(1, 5\)",
        ),
        # splits
        (lambda: split(pairs_of(1), 0.2, RNG), "at least two initial states"),
        (lambda: split(pairs_of(), 1.0, RNG), "share must lie strictly between"),
        (lambda: split_states(1, 0.5, RNG), "count must be at least 2"),
        # bags
        (lambda: draw_bags(pairs_of(), 3, RNG), "a bag of 3 needs as many pairs"),
        (lambda: draw_bags(pairs_of(), 0, RNG), "size must be at least 1"),
        (lambda: bag_labels([True, False], [[0, 1]]), "bag 0 mixes positive and negative"),
        (lambda: bag_labels([True, False], [[], []]), "one bag of at least one pair a row"),
        (lambda: bag_labels([True, False], [0, 1]), "one bag of at least one pair a row"),
        (lambda: bag_labels([True, False], [[2]]), "bags must point at pairs 0 to 1"),
        (lambda: bag_labels([[True]], [[0]]), "labels must be a vector of booleans"),
        (lambda: bag_labels([1, 0], [[0]]), "labels must be a vector of booleans"),
        # decorrelation
        (lambda: decorrelate(A, [0, 1], RNG), "lengths must be at least 1"),
        (lambda: decorrelate(A * np.nan, [1, 1], RNG), "actions holds NaN"),
    ],
)
def test_bad_input_is_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make()


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: pad_actions(A, [1, 2], 2.0), "length must be an integer"),
        (lambda: decorrelate(A, [1, 2], 7), "rng must be a numpy.random.Generator"),
        (lambda: split(pairs_of(), 0.5, 7), "rng must be a numpy.random.Generator"),
        (lambda: draw_bags(pairs_of(), 1, np.random), "rng must be a numpy.random.Generator"),
        (lambda: split(np.zeros((4, 2, 3)), 0.5, RNG), "pairs must be a LabelledPairs"),
        (lambda: draw_bags(np.zeros((4, 2, 3)), 1, RNG), "pairs must be a LabelledPairs"),
        (lambda: require_disjoint(pairs_of(), A), "parts must be a LabelledPairs"),
        (lambda: changed(nothing, judged="0"), "oracle must be an integer"),
    ],
)
def test_wrong_types_are_refused(make, message):
    with pytest.raises(TypeError, match=message):
        make()
