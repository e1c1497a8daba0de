r"""The data formatter: trajectories become labelled pairs, and pairs become bags.

An attack classifier is shown pairs (thesis, section 5.6.2). A *pair* joins the actions of an
*input* trajectory, one that may have trained a model, and of an *output* trajectory, the
model's own roll-out from the same initial state. States and rewards are left out. A
trajectory that ends early is *padded* by repeating its last action, a longer one is cut at
the *clipping length* L. With actions of d_A numbers a pair is an array of shape (2 d_A, L).

Which pairs are called positive decides what the classifier learns. With a model that was
trained on one half h of the trajectories of oracle o,

=============  ==================================  =====================================
labels         input of a positive pair            input of a negative pair
=============  ==================================  =====================================
as-printed     oracle o, half h: training data     another oracle
same-oracle    oracle o, half h: training data     oracle o, the other half
never-seen     oracle o, the other half            another oracle
input-only     as-printed, output channels zero    as-printed, output channels zero
swap-twins     half h with the model of half h     half h with the model of the other half
=============  ==================================  =====================================

The output is that model's in all of them; swap-twins uses the models of both halves, so that
both labels hold the same inputs and the same outputs and differ in nothing but the pairing.

Every pair remembers which two trajectories it is made of. :func:`require_disjoint` refuses
parts that share one, and :func:`split` is checked by it.

Only arrays go in and out: this module needs NumPy and nothing else.

Sources: thesis, sections 5.5, 5.6.2 and 5.7.4; figure 5.1 (c). The four labels that are not
printed there are this book's controls.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dprl import _validation as check
from dprl._validation import BoolArray, FloatArray, IntArray

#: The ways to label, see the module.
LABELS = ("as-printed", "same-oracle", "never-seen", "input-only", "swap-twins")

#: Pairs in one bag of the collective mode (thesis, section 5.6.2: m = 50).
BAG_SIZE = 50

Actions = NDArray[Any]  # float32 stays float32, everything else becomes float64

_INDEX_BITS = 32


class Recorded(Protocol):
    """What the formatter reads of a batch of trajectories; ``Episodes`` is one.

    Attributes
    ----------
    actions : ndarray, shape (n, T, d_A)
        Ignored from step ``lengths`` on.
    lengths : ndarray of int, shape (n,)
        Actions of each trajectory, 1 .. T.
    initial_states : ndarray, shape (n, k)
        Physics states from which the trajectories started.
    """

    @property
    def actions(self) -> Any: ...
    @property
    def lengths(self) -> Any: ...
    @property
    def initial_states(self) -> Any: ...


# -- one pair ---------------------------------------------------------------------------


def pad_actions(actions: ArrayLike, lengths: ArrayLike, length: int) -> Actions:
    """Cut or pad trajectories to one length, repeating the last action; O(n L d_A).

    Parameters
    ----------
    actions : array_like, shape (n, T, d_A)
        Finite. What stands at or beyond a trajectory's length is ignored.
    lengths : array_like of int, shape (n,)
        Number of actions of each trajectory, 1 .. T. With none there is no last action.
    length : int
        The clipping length L, 1 .. T: beyond T every entry would be padding.

    Returns
    -------
    ndarray, shape (n, L, d_A)
        float32 if the actions are, else float64.

    Raises
    ------
    ValueError
        If a shape, a length or a value is outside what is said above.

    Examples
    --------
    >>> two = np.array([[[1.0], [2.0], [3.0]], [[7.0], [0.0], [0.0]]])
    >>> pad_actions(two, [3, 1], 2)[:, :, 0].tolist()
    [[1.0, 2.0], [7.0, 7.0]]
    """
    a = _actions("actions", actions)
    n, steps, _ = a.shape
    ends = _lengths("lengths", lengths, n, steps)
    if check.whole("length", length) > steps:
        raise ValueError(
            f"the clipping length must be at most the length {steps} of the arrays, got "
            f"{length}: all of the rest would be padding"
        )
    at = np.minimum(np.arange(length), ends[:, None] - 1)
    return np.take_along_axis(a, at[:, :, None], axis=1)


def padding_share(lengths: ArrayLike, length: int) -> FloatArray:
    """Share of each padded trajectory that repeats its last action, in [0, 1).

    Parameters
    ----------
    lengths : array_like of int, shape (n,)
        Number of actions of each trajectory, >= 1.
    length : int
        The clipping length, >= 1.

    Returns
    -------
    ndarray, shape (n,)

    Examples
    --------
    >>> padding_share([10, 50, 200], 50).tolist()
    [0.8, 0.0, 0.0]
    """
    ends = _integers("lengths", lengths, 1)
    if ends.ndim != 1:
        raise ValueError(f"lengths must be a vector, got shape {ends.shape}")
    share: FloatArray = 1 - np.minimum(ends, check.whole("length", length)) / length
    return share


def make_pairs(a_in: ArrayLike, a_out: ArrayLike) -> Actions:
    """Join padded inputs and outputs into pairs.

    Parameters
    ----------
    a_in, a_out : array_like, shape (n, L, d_A)
        Padded actions, row by row from the same initial state; finite.

    Returns
    -------
    ndarray, shape (n, 2 d_A, L)
        First the d_A channels of the input, then those of the output; time is last.

    Raises
    ------
    ValueError
        If the two differ in number, length or dimension of the actions.

    Examples
    --------
    >>> make_pairs(np.zeros((5, 50, 3)), np.ones((5, 50, 3))).shape
    (5, 6, 50)
    """
    first, second = _actions("a_in", a_in), _actions("a_out", a_out)
    if first.shape[2] != second.shape[2]:
        raise ValueError(
            "input and output must have actions of one dimension, got "
            f"{first.shape[2]} and {second.shape[2]}: are they of one environment?"
        )
    if first.shape != second.shape:
        raise ValueError(
            "a_in and a_out must agree in trajectories and in length, got shapes "
            f"{first.shape} and {second.shape}: pad both to one length"
        )
    return np.ascontiguousarray(np.concatenate([first, second], axis=2).transpose(0, 2, 1))


def format_pairs(inputs: Recorded, outputs: Recorded, length: int | None = None) -> Actions:
    """The data formatter: same initial states checked, padded, cut, joined.

    Parameters
    ----------
    inputs, outputs : Recorded
        n trajectories each; row i of both starts in the same physics state.
    length : int, optional
        The clipping length, 1 .. T; T if it is left out and both have the same.

    Returns
    -------
    ndarray, shape (n, 2 d_A, L)

    Raises
    ------
    ValueError
        If initial states differ, even in one bit, or as :func:`pad_actions` and
        :func:`make_pairs`.
    """
    starts = [_states(*one) for one in (("inputs", inputs), ("outputs", outputs))]
    if starts[0].shape != starts[1].shape:
        raise ValueError(
            "inputs and outputs must start from the same initial states, got "
            f"{starts[0].shape} and {starts[1].shape} numbers"
        )
    differ = np.flatnonzero((starts[0] != starts[1]).any(axis=1))
    if differ.size:
        raise ValueError(
            f"the two trajectories of pair {differ[0]} start in different states, and so do "
            f"those of {differ.size - 1} others: a pair needs one initial state"
        )
    steps = [_actions("actions", one.actions).shape[1] for one in (inputs, outputs)]
    if length is None:
        if steps[0] != steps[1]:
            raise ValueError(
                f"inputs hold {steps[0]} steps and outputs {steps[1]}: give a clipping length"
            )
        length = steps[0]
    return make_pairs(*(pad_actions(one.actions, one.lengths, length) for one in (inputs, outputs)))


# -- labelled pairs ---------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class LabelledPairs:
    """n pairs, their labels, and where each comes from; made by :func:`labelled_pairs`.

    Parameters
    ----------
    pairs : ndarray, shape (n, 2 d_A, L)
        See :func:`make_pairs`; n >= 1.
    labels : ndarray of bool, shape (n,)
        True: positive.
    input_ids, output_ids : ndarray of int, shape (n,)
        The two trajectories of each pair, as :func:`trajectory_id` numbers them.
    input_lengths, output_lengths : ndarray of int, shape (n,)
        Number of actions of the two trajectories before cutting and padding, >= 1.
    pool_ids : ndarray of int, shape (p,)
        Trajectories whose actions were pooled by :func:`decorrelate`: any action of any of
        them may occur in any input. Empty if nothing was pooled.

    Raises
    ------
    ValueError
        If shapes do not fit, an id is not one of a trajectory or the values are not finite.
    """

    pairs: Actions
    labels: BoolArray
    input_ids: IntArray
    output_ids: IntArray
    input_lengths: IntArray
    output_lengths: IntArray
    pool_ids: IntArray = field(default_factory=lambda: np.empty(0, dtype=np.int64))

    def __post_init__(self) -> None:
        pairs = _actions("pairs", self.pairs)
        n = pairs.shape[0]
        if pairs.shape[1] % 2:
            raise ValueError(
                f"pairs must have 2 d_A channels, an even number, got shape {pairs.shape}"
            )
        labels = _labels("labels", self.labels)
        columns = {
            name: _integers(name, getattr(self, name), least)
            for name, least in (
                ("input_ids", 0),
                ("output_ids", 0),
                ("input_lengths", 1),
                ("output_lengths", 1),
            )
        }
        for name, column in {"labels": labels, **columns}.items():
            if column.shape != (n,):
                raise ValueError(
                    f"{name} must have one entry per pair, {n}, got shape {column.shape}"
                )
        pool = _integers("pool_ids", self.pool_ids, 0)
        if pool.ndim != 1:
            raise ValueError(f"pool_ids must be a vector, got shape {pool.shape}")
        for name, ids, is_output in (
            ("input_ids", columns["input_ids"], 0),
            ("output_ids", columns["output_ids"], 1),
            ("pool_ids", pool, 0),
        ):
            if ((ids >> _INDEX_BITS) % 2 != is_output).any():
                kind = ("input", "output")[is_output]
                raise ValueError(f"{name} must be ids of {kind} trajectories: see trajectory_id")
        if (columns["input_ids"] % 2**_INDEX_BITS != columns["output_ids"] % 2**_INDEX_BITS).any():
            raise ValueError("the two trajectories of a pair must have one initial state's index")
        object.__setattr__(self, "pairs", check.frozen(pairs.view()))
        object.__setattr__(self, "labels", check.frozen(labels))
        object.__setattr__(self, "pool_ids", check.frozen(np.unique(pool)))
        for name, column in columns.items():
            object.__setattr__(self, name, check.frozen(column))

    def __len__(self) -> int:
        """Number of pairs n."""
        return int(self.labels.size)

    @property
    def action_size(self) -> int:
        """d_A."""
        return int(self.pairs.shape[1] // 2)

    @property
    def length(self) -> int:
        """The clipping length L."""
        return int(self.pairs.shape[2])

    @property
    def states(self) -> IntArray:
        """Index of each pair's initial state in the shared list, shape (n,)."""
        return np.asarray(self.input_ids % 2**_INDEX_BITS)

    @property
    def input_oracles(self) -> IntArray:
        """Oracle that produced each input trajectory, shape (n,)."""
        return np.asarray(self.input_ids >> (_INDEX_BITS + 2))

    @property
    def output_oracles(self) -> IntArray:
        """Oracle on whose data the judged model was trained, shape (n,)."""
        return np.asarray(self.output_ids >> (_INDEX_BITS + 2))

    @property
    def trajectories(self) -> IntArray:
        """Ids of all trajectories of which anything is in the pairs, sorted, each once."""
        return np.unique(np.concatenate([self.input_ids, self.output_ids, self.pool_ids]))

    def select(self, indices: ArrayLike) -> LabelledPairs:
        """Some of the pairs, in the given order.

        Parameters
        ----------
        indices : array_like of int, shape (k,), or of bool, shape (n,)
            k >= 1; each in 0 .. n - 1.
        """
        raw = np.asarray(indices)
        if raw.dtype == bool and raw.shape == self.labels.shape:
            raw = np.flatnonzero(raw)
        at = _integers("indices", raw, 0)
        if at.ndim != 1 or at.size == 0:
            raise ValueError(f"indices must be a vector of at least one, got shape {at.shape}")
        if at.max() >= len(self):
            raise ValueError(f"indices must lie in 0 .. {len(self) - 1}, got {at.max()}")
        return LabelledPairs(
            self.pairs[at],
            self.labels[at],
            self.input_ids[at],
            self.output_ids[at],
            self.input_lengths[at],
            self.output_lengths[at],
            self.pool_ids,
        )


def trajectory_id(oracle: int, half: int, index: ArrayLike, output: bool = False) -> IntArray:
    """One number for each trajectory, different for different ones.

    Parameters
    ----------
    oracle : int
        >= 0 and below 2**20.
    half : int
        0 or 1. The half that the oracle collected, or on which the model was trained.
    index : array_like of int
        Of the initial state in the shared list; >= 0 and below 2**32.
    output : bool
        False: collected by the oracle. True: the model's roll-out.

    Returns
    -------
    ndarray of int, shape of index

    Examples
    --------
    >>> int(trajectory_id(0, 0, 7)), int(trajectory_id(0, 1, 7, output=True))
    (7, 12884901895)
    """
    o, h = check.whole("oracle", oracle, 0), _half(half)
    if o >= 2**20:
        raise ValueError(f"oracle must be below {2**20}, got {o}")
    i = _integers("index", index, 0)
    if i.size and i.max() >= 2**_INDEX_BITS:
        raise ValueError(f"index must be below 2**{_INDEX_BITS}, got {i.max()}")
    return np.asarray((((o * 2 + h) * 2 + bool(output)) << _INDEX_BITS) + i)


def labelled_pairs(
    inputs: Sequence[Sequence[Recorded]],
    outputs: Sequence[Sequence[Recorded]],
    *,
    judged: int,
    other: int | None = None,
    labels: str = "as-printed",
    half: int = 0,
    length: int | None = None,
    states: ArrayLike | None = None,
    decorrelated: np.random.Generator | None = None,
    keep_lengths: bool = False,
) -> LabelledPairs:
    """Positive and negative pairs for one model, labelled in one of the ways of the module.

    Parameters
    ----------
    inputs : sequence of sequences of Recorded, [oracle][half]
        The trajectories that each oracle collected: two halves of M each.
    outputs : sequence of sequences of Recorded, [oracle][half]
        The roll-outs of the model that was trained on that half, from the same states.
    judged : int
        The oracle whose model is judged.
    other : int, optional
        The oracle of the negatives; needed except for same-oracle and swap-twins.
    labels : str
        One of :data:`LABELS`.
    half : int
        0 or 1: which of the oracle's two models is judged. The negatives of another oracle
        are of the same half.
    length : int, optional
        The clipping length, see :func:`format_pairs`.
    states : array_like of int, shape (k,), optional
        Indices of the initial states to use, each once; all M if left out.
    decorrelated : numpy.random.Generator, optional
        If given, the actions of each set of inputs are pooled over ``states`` and drawn
        anew by :func:`decorrelate`; outputs stay as they are.
    keep_lengths : bool
        Only with ``decorrelated``: whether each input keeps its number of actions.

    Returns
    -------
    LabelledPairs
        Positives first; as many negatives. 2 M pairs, or 4 M with swap-twins.

    Raises
    ------
    ValueError, TypeError
        If an oracle, a half, the labels or the states do not exist, if the sets differ in
        number or dimension, or as :func:`format_pairs`.
    """
    if labels not in LABELS:
        raise ValueError(f"unknown labels {labels!r}, expected one of {', '.join(LABELS)}")
    needs_other = labels in ("as-printed", "never-seen", "input-only")
    if needs_other and other is None:
        raise ValueError(f"{labels} labels need another oracle for the negatives: give other")
    if not needs_other and other is not None:
        raise ValueError(f"{labels} labels need no other oracle: leave other out")
    if other is not None and other == judged:
        raise ValueError(f"judged and other must be different oracles, got {judged} twice")
    h = _half(half)
    data = _Formatter(inputs, outputs, length, states, decorrelated, keep_lengths)
    model = (judged, h)
    twin = (judged, 1 - h)
    if labels == "swap-twins":
        positive = [(model, model), (twin, twin)]
        negative = [(twin, model), (model, twin)]
    else:
        positive = [(twin if labels == "never-seen" else model, model)]
        stranger = (other if other is not None else judged, h)
        negative = [(twin if labels == "same-oracle" else stranger, model)]
    parts = [data.part(*sources, label=True) for sources in positive]
    parts += [data.part(*sources, label=False) for sources in negative]
    pairs = concatenate(parts)
    return without_outputs(pairs) if labels == "input-only" else pairs


class _Formatter:
    """The sets of one study; every set of inputs is decorrelated at most once."""

    def __init__(
        self,
        inputs: Sequence[Sequence[Recorded]],
        outputs: Sequence[Sequence[Recorded]],
        length: int | None,
        states: ArrayLike | None,
        rng: np.random.Generator | None,
        keep_lengths: bool,
    ) -> None:
        self.sets = {False: inputs, True: outputs}
        self.length = length
        self.rng = None if rng is None else check.generator(rng)
        if keep_lengths and rng is None:
            raise ValueError("keep_lengths is about decorrelated inputs: give decorrelated")
        self.keep_lengths = bool(keep_lengths)
        self.states = None if states is None else _integers("states", states, 0)
        if self.states is not None:
            if self.states.ndim != 1 or self.states.size == 0:
                raise ValueError("states must be a vector of at least one index")
            if np.unique(self.states).size != self.states.size:
                raise ValueError("states must name each initial state once")
        self.made: dict[tuple[int, int, bool], _Plain] = {}

    def part(self, source: tuple[int, int], model: tuple[int, int], label: bool) -> LabelledPairs:
        a, b = self.get(*source, output=False), self.get(*model, output=True)
        if len(a.lengths) != len(b.lengths):
            raise ValueError(
                f"every set must have as many trajectories, got {len(a.lengths)} and "
                f"{len(b.lengths)}"
            )
        pairs = format_pairs(a, b, self.length)
        ids = trajectory_id(*source, a.index)
        return LabelledPairs(
            pairs,
            np.full(len(pairs), label),
            ids,
            trajectory_id(*model, b.index, output=True),
            a.lengths,
            b.lengths,
            ids if self.rng is not None else np.empty(0, dtype=np.int64),
        )

    def get(self, oracle: int, half: int, output: bool) -> _Plain:
        key = (oracle, half, output)
        if key not in self.made:
            self.made[key] = self.plain(*key)
        return self.made[key]

    def plain(self, oracle: int, half: int, output: bool) -> _Plain:
        name, sets = ("outputs" if output else "inputs"), self.sets[output]
        if check.whole("oracle", oracle, 0) >= len(sets):
            raise ValueError(f"there is no oracle {oracle}: {name} holds {len(sets)}")
        if len(sets[oracle]) != 2:
            raise ValueError(
                f"{name} must hold two halves of each oracle, got {len(sets[oracle])} of "
                f"oracle {oracle}"
            )
        one = sets[oracle][half]
        actions = _actions("actions", one.actions)
        lengths = _lengths("lengths", one.lengths, *actions.shape[:2])
        starts = _states(name, one)
        index = np.arange(len(actions)) if self.states is None else self.states
        if index.max() >= len(actions):
            raise ValueError(
                f"states must lie in 0 .. {len(actions) - 1}, got {index.max()}: {name} of "
                f"oracle {oracle}, half {half} hold {len(actions)} trajectories"
            )
        actions, lengths, starts = actions[index], lengths[index], starts[index]
        if self.rng is not None and not output:
            actions = decorrelate(actions, lengths, self.rng, keep_lengths=self.keep_lengths)
            if not self.keep_lengths:
                lengths = np.full_like(lengths, actions.shape[1])
        return _Plain(actions, lengths, starts, index)


@dataclass(frozen=True, eq=False)
class _Plain:
    actions: Actions
    lengths: IntArray
    initial_states: FloatArray
    index: IntArray


def concatenate(parts: Sequence[LabelledPairs]) -> LabelledPairs:
    """Several sets of pairs as one, for example of several shadow models.

    Raises
    ------
    ValueError
        If there are none, or they differ in action dimension or clipping length.
    """
    if not parts:
        raise ValueError("there must be at least one set of pairs, got none")
    for part in parts:
        check.instance("parts", part, LabelledPairs)
    shapes = sorted({(part.action_size, part.length) for part in parts})
    if len(shapes) > 1:
        raise ValueError(
            "all sets must have one action dimension and one clipping length, got "
            + " and ".join(f"({d}, {steps})" for d, steps in shapes)
        )
    names = ("pairs", "labels", "input_ids", "output_ids", "input_lengths", "output_lengths")
    columns = {name: np.concatenate([getattr(p, name) for p in parts]) for name in names}
    return LabelledPairs(**columns, pool_ids=np.concatenate([p.pool_ids for p in parts]))


def without_outputs(pairs: LabelledPairs) -> LabelledPairs:
    """The pairs with the d_A output channels set to zero: what the inputs alone tell.

    Examples
    --------
    >>> one = LabelledPairs(np.ones((1, 2, 3)), [True], trajectory_id(0, 0, [5]),
    ...                     trajectory_id(0, 0, [5], output=True), [3], [3])
    >>> without_outputs(one).pairs.tolist()
    [[[1.0, 1.0, 1.0], [0.0, 0.0, 0.0]]]
    """
    check.instance("pairs", pairs, LabelledPairs)
    blind = pairs.pairs.copy()
    blind[:, pairs.action_size :] = 0
    return LabelledPairs(
        blind,
        pairs.labels,
        pairs.input_ids,
        pairs.output_ids,
        pairs.input_lengths,
        pairs.output_lengths,
        pairs.pool_ids,
    )


# -- splits -----------------------------------------------------------------------------


def require_disjoint(*parts: LabelledPairs) -> None:
    """Refuse sets of pairs of which two share a trajectory.

    A trajectory counts as shared if it is an input or an output in both, or if its actions
    were pooled for one and it occurs in the other. O(n log n).

    Raises
    ------
    ValueError
        Names the first shared trajectory, and how many there are.

    Examples
    --------
    >>> make = lambda i: LabelledPairs(np.zeros((1, 2, 3)), [True], trajectory_id(0, 0, [i]),
    ...                                trajectory_id(0, 0, [i], output=True), [3], [3])
    >>> require_disjoint(make(0), make(1))
    >>> require_disjoint(make(0), make(1), make(0))
    Traceback (most recent call last):
    ...
    ValueError: sets 0 and 2 share 2 trajectories, first input 0 of oracle 0, half 0
    """
    for part in parts:
        check.instance("parts", part, LabelledPairs)
    ids = [part.trajectories for part in parts]
    for j in range(len(parts)):
        for i in range(j):
            shared = np.intersect1d(ids[i], ids[j], assume_unique=True)
            if shared.size:
                plural = "trajectory" if shared.size == 1 else "trajectories"
                raise ValueError(
                    f"sets {i} and {j} share {shared.size} {plural}, first {_describe(shared[0])}"
                )


def split_states(count: int, share: float, rng: np.random.Generator) -> tuple[IntArray, IntArray]:
    """Split 0 .. count - 1 at random in two.

    Parameters
    ----------
    count : int
        Number of initial states, >= 2.
    share : float
        Of the second part, in (0, 1); rounded to whole states, none of the parts empty.
    rng : numpy.random.Generator

    Returns
    -------
    training, validation : ndarray of int
        Sorted; together each index once.

    Examples
    --------
    >>> training, validation = split_states(10, 0.2, np.random.default_rng(0))
    >>> training.size, validation.size
    (8, 2)
    """
    n, part = check.whole("count", count, 2), check.open_unit("share", share)
    order = check.generator(rng).permutation(n)
    held = min(max(round(part * n), 1), n - 1)
    return np.sort(order[held:]), np.sort(order[:held])


def split(
    pairs: LabelledPairs, share: float, rng: np.random.Generator
) -> tuple[LabelledPairs, LabelledPairs]:
    """Split pairs in two that share no trajectory, by the index of the initial state.

    An output occurs in a positive and in a negative pair, an input in the pairs of several
    models. All of these have one initial state, so drawing states keeps them together; a
    split of the pairs themselves would put many trajectories on both sides.

    Parameters
    ----------
    pairs : LabelledPairs
        Not decorrelated: each of those inputs holds actions of the whole pool. Split the
        states first (:func:`split_states`) and decorrelate each part.
    share : float
        Of the initial states that go to the second part, in (0, 1).
    rng : numpy.random.Generator

    Returns
    -------
    training, validation : LabelledPairs

    Raises
    ------
    ValueError
        If there are fewer than two initial states, or the actions were pooled.
    """
    check.instance("pairs", pairs, LabelledPairs)
    if pairs.pool_ids.size:
        raise ValueError(
            "decorrelated pairs hold actions of all pooled trajectories and cannot be split: "
            "split the states first, then decorrelate each part"
        )
    present = np.unique(pairs.states)
    if present.size < 2:
        raise ValueError("a split needs pairs of at least two initial states, got one")
    _, held = split_states(present.size, share, rng)
    in_second = np.isin(pairs.states, present[held])
    parts = pairs.select(~in_second), pairs.select(in_second)
    require_disjoint(*parts)
    return parts


# -- bags -------------------------------------------------------------------------------


def bags(pairs: LabelledPairs, size: int, rng: np.random.Generator) -> IntArray:
    """Draw bags for the collective mode: pairs of one label and one origin, each used once.

    The pairs of a bag have one label, their inputs one oracle and half, their outputs one
    model: an accusation is about one batch of trajectories. What is left over when each
    origin is cut into bags is not used; draw again for other bags.

    Parameters
    ----------
    pairs : LabelledPairs
    size : int
        Pairs in each bag, >= 1; 50 in the thesis (:data:`BAG_SIZE`).
    rng : numpy.random.Generator

    Returns
    -------
    ndarray of int, shape (k, size)
        Indices of pairs; no index occurs twice.

    Raises
    ------
    ValueError
        If some origin has fewer pairs than a bag holds: its label would be left out.
    """
    check.instance("pairs", pairs, LabelledPairs)
    m = check.whole("size", size)
    check.generator(rng)
    origin = np.column_stack(
        [pairs.labels, pairs.input_ids >> _INDEX_BITS, pairs.output_ids >> _INDEX_BITS]
    )
    _, group, counts = np.unique(origin, axis=0, return_inverse=True, return_counts=True)
    if counts.min() < m:
        raise ValueError(
            f"a bag of {m} needs as many pairs of one label and origin, got {counts.min()}: "
            "use smaller bags or more trajectories"
        )
    drawn = []
    for one in range(counts.size):
        members = rng.permutation(np.flatnonzero(group.ravel() == one))
        drawn.append(members[: members.size // m * m].reshape(-1, m))
    return np.concatenate(drawn)


def bag_labels(labels: ArrayLike, bag_indices: ArrayLike) -> BoolArray:
    """The label of each bag.

    Parameters
    ----------
    labels : array_like of bool, shape (n,)
    bag_indices : array_like of int, shape (k, m)
        Made by :func:`bags`.

    Returns
    -------
    ndarray of bool, shape (k,)

    Raises
    ------
    ValueError
        If a bag is empty, mixes labels, or an index does not exist.

    Examples
    --------
    >>> bag_labels([True, True, False, False], [[1, 0], [2, 3]]).tolist()
    [True, False]
    """
    y = _labels("labels", labels)
    if y.ndim != 1:
        raise ValueError(f"labels must be a vector, got shape {y.shape}")
    found = y[_bag_indices(bag_indices, y.size)]
    mixed = np.flatnonzero(found.any(axis=1) & ~found.all(axis=1))
    if mixed.size:
        raise ValueError(f"bag {mixed[0]} mixes positive and negative pairs")
    return np.asarray(found[:, 0])


def bag_pairs(pairs: LabelledPairs, bag_indices: ArrayLike) -> Actions:
    """The input of the collective mode, an array of shape (2 d_A, L, m) for each bag.

    Parameters
    ----------
    pairs : LabelledPairs
    bag_indices : array_like of int, shape (k, m)
        Made by :func:`bags`.

    Returns
    -------
    ndarray, shape (k, 2 d_A, L, m)
    """
    check.instance("pairs", pairs, LabelledPairs)
    at = _bag_indices(bag_indices, len(pairs))
    return np.ascontiguousarray(pairs.pairs[at].transpose(0, 2, 3, 1))


# -- decorrelation ----------------------------------------------------------------------


def decorrelate(
    actions: ArrayLike,
    lengths: ArrayLike,
    rng: np.random.Generator,
    keep_lengths: bool = False,
) -> Actions:
    """Break the order in time: pool all actions of the batch and draw uniformly.

    Thesis, sections 5.6 and 5.7.4: the tuples of all trajectories go into one buffer, from
    which "trajectories of the desired length" are drawn. Each drawn action is uniform over
    the pool, independently (with replacement).

    The order in time is not all that is lost. Every result has the full length, so lengths
    and padding are gone; so is what one trajectory has of its own, and with it the tie to
    the initial state. What stays is the pool's distribution. Where trajectories have means
    of their own, those of the results lie closer together.

    Parameters
    ----------
    actions : array_like, shape (n, T, d_A)
        Finite. What stands at or beyond a trajectory's length is not pooled.
    lengths : array_like of int, shape (n,)
        1 .. T.
    rng : numpy.random.Generator
    keep_lengths : bool
        False, as in the thesis: all T steps are drawn. True: trajectory i has
        ``lengths[i]`` drawn actions, then zeros, to be padded afterwards.

    Returns
    -------
    ndarray, shape (n, T, d_A)

    Examples
    --------
    >>> batch = np.array([[[1.0], [2.0], [0.0]], [[3.0], [0.0], [0.0]]])
    >>> new = decorrelate(batch, [2, 1], np.random.default_rng(0))
    >>> new.shape, sorted(set(new.ravel().tolist())) == [1.0, 2.0, 3.0]
    ((2, 3, 1), True)
    """
    a = _actions("actions", actions)
    n, steps, _ = a.shape
    ends = _lengths("lengths", lengths, n, steps)
    real = np.arange(steps) < ends[:, None]
    pool = a[real]
    drawn = pool[check.generator(rng).integers(len(pool), size=(n, steps))]
    if keep_lengths:
        drawn[~real] = 0
    return drawn


# -- checks -----------------------------------------------------------------------------


def _actions(name: str, values: ArrayLike) -> Actions:
    x: Actions = check.finite_array(name, values, ndim=3)
    if 0 in x.shape:
        raise ValueError(f"{name} must not be empty, got shape {x.shape}")
    if getattr(values, "dtype", None) == np.float32:
        x = np.asarray(values)
    return x


def _states(name: str, recorded: Recorded) -> FloatArray:
    x = check.finite_array(f"initial states of {name}", recorded.initial_states, ndim=2)
    if len(x) != len(recorded.actions):
        raise ValueError(
            f"{name} must have one initial state per trajectory, {len(recorded.actions)}, "
            f"got {len(x)}"
        )
    return x


def _lengths(name: str, values: ArrayLike, n: int, steps: int) -> IntArray:
    x = _integers(name, values, 1)
    if x.shape != (n,):
        raise ValueError(f"{name} must have one entry per trajectory, {n}, got shape {x.shape}")
    if x.max() > steps:
        raise ValueError(f"{name} must be at most {steps}, the steps of actions, got {x.max()}")
    return x


def _integers(name: str, values: ArrayLike, least: int) -> IntArray:
    raw = np.asarray(values)
    if raw.size == 0:
        return np.empty(raw.shape, dtype=np.int64)
    if raw.dtype.kind not in "iu":
        raise ValueError(f"{name} must be whole numbers, got {raw.dtype}")
    if raw.min() < least:
        raise ValueError(f"{name} must be at least {least}, got {raw.min()}")
    return np.array(raw, dtype=np.int64)


def _labels(name: str, values: ArrayLike) -> BoolArray:
    raw = np.asarray(values)
    if raw.dtype != bool:
        raise ValueError(f"{name} must be booleans, got {raw.dtype}")
    return raw.copy()


def _half(value: Any) -> int:
    if check.whole("half", value, 0) > 1:
        raise ValueError(f"half must be 0 or 1, got {value}")
    return int(value)


def _bag_indices(values: ArrayLike, n: int) -> IntArray:
    at = _integers("bag indices", values, 0)
    if at.ndim != 2 or 0 in at.shape:
        raise ValueError(f"bags must be an array (k, m) without empty bags, got shape {at.shape}")
    if at.max() >= n:
        raise ValueError(f"bag indices must lie in 0 .. {n - 1}, got {at.max()}")
    return at


def _describe(trajectory: int) -> str:
    source, index = divmod(int(trajectory), 2**_INDEX_BITS)
    kind = ("input", "output")[source % 2]
    return f"{kind} {index} of oracle {source // 4}, half {source // 2 % 2}"
