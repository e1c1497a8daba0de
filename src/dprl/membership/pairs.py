r"""The data formatter: trajectories become labelled pairs.

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

Every pair remembers which two trajectories it is made of (:class:`Trajectory`).
:func:`require_disjoint` refuses parts that share one, and :func:`split` is checked by it.

Sources: thesis, sections 5.5, 5.6.2 and 5.7.4; figure 5.1 (c). The four labels that are not
printed there are this book's controls.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dprl import _validation as check
from dprl._validation import BoolArray, FloatArray, IntArray

#: The ways to label, see the module.
LABELS = ("as-printed", "same-oracle", "never-seen", "input-only", "swap-twins")

Actions = NDArray[Any]  # float32 stays float32, everything else becomes float64


class Recorded(Protocol):
    """What the formatter reads of a batch of trajectories; ``Episodes`` is one."""

    @property
    def actions(self) -> Any:
        """Shape (n, T, d_A); ignored from step ``lengths`` on."""

    @property
    def lengths(self) -> Any:
        """Actions of each trajectory, 1 .. T; shape (n,)."""

    @property
    def initial_states(self) -> Any:
        """Physics states from which the trajectories started, shape (n, k)."""


# -- one pair ---------------------------------------------------------------------------


def pad_actions(actions: ArrayLike, lengths: ArrayLike, length: int) -> Actions:
    """Cut or pad trajectories to one length, repeating the last action; O(n L d_A).

    Parameters
    ----------
    actions : array_like, shape (n, T, d_A)
        Finite. What stands at or beyond a trajectory's length is ignored.
    lengths : array_like of int, shape (n,)
        Number of actions of each trajectory, 1 .. T.
    length : int
        The clipping length L, 1 .. T. The result, (n, L, d_A), is float32 if the actions are.

    Examples
    --------
    >>> two = np.array([[[1.0], [2.0], [3.0]], [[7.0], [0.0], [0.0]]])
    >>> pad_actions(two, [3, 1], 2)[:, :, 0].tolist()
    [[1.0, 2.0], [7.0, 7.0]]
    """
    a = _actions("actions", actions)
    n, steps, _ = a.shape
    ends = _lengths(lengths, n, steps)
    if check.whole("length", length) > steps:
        raise ValueError(
            f"the clipping length must be at most the length {steps} of the arrays, got "
            f"{length}: all of the rest would be padding"
        )
    at = np.minimum(np.arange(length), ends[:, None] - 1)
    return np.take_along_axis(a, at[:, :, None], axis=1)


def padding_share(lengths: ArrayLike, length: int) -> FloatArray:
    """Share of each padded trajectory that repeats its last action, in [0, 1), shape (n,).

    >>> padding_share([10, 50, 200], 50).tolist()
    [0.8, 0.0, 0.0]
    """
    ends = check.integers("lengths", lengths, 1)
    if ends.ndim != 1:
        raise ValueError(f"lengths must be a vector, got shape {ends.shape}")
    share: FloatArray = 1 - np.minimum(ends, check.whole("length", length)) / length
    return share


def format_pairs(inputs: Recorded, outputs: Recorded, length: int | None = None) -> Actions:
    """Join trajectories in pairs, padded and cut, shape (n, 2 d_A, L): inputs above outputs.

    Row i of both starts in the same physics state, to the last bit. The clipping length L is in
    1 .. T; T if it is left out and both have the same.
    """
    starts = [_starts(*one) for one in (("inputs", inputs), ("outputs", outputs))]
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
    (_, steps, d_a), (_, other_steps, other_d_a) = (
        _actions("actions", one.actions).shape for one in (inputs, outputs)
    )
    if d_a != other_d_a:
        raise ValueError(
            f"input and output must have actions of one dimension, got {d_a} and {other_d_a}: "
            "are they of one environment?"
        )
    if length is None:
        if steps != other_steps:
            raise ValueError(
                f"inputs hold {steps} steps and outputs {other_steps}: give a clipping length"
            )
        length = steps
    both = [pad_actions(one.actions, one.lengths, length) for one in (inputs, outputs)]
    return np.ascontiguousarray(np.concatenate(both, axis=2).transpose(0, 2, 1))


# -- labelled pairs ---------------------------------------------------------------------


class Trajectory(NamedTuple):
    """Which trajectory it is.

    Attributes
    ----------
    oracle, half : int
        >= 0, and 0 or 1: the half that the oracle collected, or that trained the model.
    output : bool
        False: collected by the oracle. True: the roll-out of the model.
    state : int
        Number of its initial state in the shared list, >= 0.
    """

    oracle: int
    half: int
    output: bool
    state: int

    def __str__(self) -> str:
        kind = "output" if self.output else "input"
        return f"{kind} {self.state} of oracle {self.oracle}, half {self.half}"


@dataclass(frozen=True, eq=False)
class LabelledPairs:
    """n pairs, their labels, and where each comes from; made by :class:`DataFormatter`.

    Parameters
    ----------
    pairs : ndarray, shape (n, 2 d_A, L)
        See :func:`format_pairs`; n >= 1.
    labels : ndarray of bool, shape (n,)
        True: positive.
    inputs, outputs : ndarray of int, shape (n, 2)
        Oracle and half of the two trajectories of each pair.
    states : ndarray of int, shape (n,)
        Number of the initial state of both, in the list that all share.
    pool : ndarray of int, shape (p, 3)
        Oracle, half and state of the inputs whose actions were pooled by :func:`decorrelate`:
        any action of any of them may occur in any input. Empty if nothing was pooled.
    """

    pairs: Actions
    labels: BoolArray
    inputs: IntArray
    outputs: IntArray
    states: IntArray
    pool: IntArray

    def __post_init__(self) -> None:
        pairs = _actions("pairs", self.pairs)
        n = pairs.shape[0]
        if pairs.shape[1] % 2:
            raise ValueError(
                f"pairs must have 2 d_A channels, an even number, got shape {pairs.shape}"
            )
        labels = np.asarray(self.labels)
        if labels.dtype != bool or labels.shape != (n,):
            raise ValueError(
                f"labels must be one boolean per pair, {n}, got {labels.dtype} of shape "
                f"{labels.shape}"
            )
        columns: dict[str, NDArray[Any]] = {"labels": labels.copy()}
        for name, shape in (("inputs", (n, 2)), ("outputs", (n, 2)), ("states", (n,))):
            columns[name] = check.integers(name, getattr(self, name), 0)
            if columns[name].shape != shape:
                raise ValueError(f"{name} must have shape {shape}, got {columns[name].shape}")
        pool = np.unique(check.integers("pool", self.pool, 0).reshape(-1, 3), axis=0)
        for name, rows in (*columns.items(), ("pool", pool)):
            if rows.ndim == 2 and rows.size and rows[:, 1].max() > 1:
                raise ValueError(f"each half in {name} must be 0 or 1, got {rows[:, 1].max()}")
        for name, column in {"pairs": pairs.view(), "pool": pool, **columns}.items():
            object.__setattr__(self, name, check.frozen(column))

    def __len__(self) -> int:
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
    def origins(self) -> IntArray:
        """Label, oracle and half of the input, oracle and half of the output; shape (n, 5)."""
        return np.column_stack([self.labels, self.inputs, self.outputs])

    @property
    def members(self) -> list[tuple[Trajectory, Trajectory]]:
        """The two trajectories of each pair, input and output."""
        rows = np.column_stack([self.inputs, self.outputs, self.states]).tolist()
        return [
            (Trajectory(o, h, False, state), Trajectory(p, g, True, state))
            for o, h, p, g, state in rows
        ]

    @property
    def trajectories(self) -> set[Trajectory]:
        """All trajectories of which anything is in the pairs."""
        pooled = {Trajectory(o, h, False, state) for o, h, state in self.pool.tolist()}
        return pooled.union(*self.members)

    def select(self, indices: ArrayLike) -> LabelledPairs:
        """Some of the pairs, in the given order: k >= 1 numbers 0 .. n - 1, or n booleans."""
        raw = np.asarray(indices)
        if raw.dtype == bool and raw.shape == self.labels.shape:
            raw = np.flatnonzero(raw)
        at = check.integers("indices", raw, 0)
        if at.ndim != 1 or at.size == 0:
            raise ValueError(f"indices must be a vector of at least one, got shape {at.shape}")
        if at.max() >= len(self):
            raise ValueError(f"indices must lie in 0 .. {len(self) - 1}, got {at.max()}")
        chosen = {name: getattr(self, name)[at] for name in _COLUMNS}
        return LabelledPairs(**chosen, pool=self.pool)


_COLUMNS = tuple(one.name for one in fields(LabelledPairs) if one.name != "pool")


class DataFormatter:
    """Makes labelled pairs of the trajectories of several oracles and their models.

    Parameters
    ----------
    inputs, outputs : sequence of sequences of Recorded, [oracle][half]
        The trajectories that each oracle collected, two halves of M each, and the roll-outs of the
        model that was trained on that half, from the same states.
    length : int, optional
        The clipping length, see :func:`format_pairs`.
    states : array_like of int, shape (k,), optional
        Numbers of the initial states to use, each once; all M if left out.
    decorrelated : numpy.random.Generator, optional
        If given, each set of inputs goes through :func:`decorrelate` once, pooled over ``states``.
    """

    def __init__(
        self,
        inputs: Sequence[Sequence[Recorded]],
        outputs: Sequence[Sequence[Recorded]],
        *,
        length: int | None = None,
        states: ArrayLike | None = None,
        decorrelated: np.random.Generator | None = None,
    ) -> None:
        self._sets = {False: inputs, True: outputs}
        self._length = length
        self._rng = None if decorrelated is None else check.generator(decorrelated)
        self._states = None if states is None else check.integers("states", states, 0)
        if self._states is not None:
            if self._states.ndim != 1 or self._states.size == 0:
                raise ValueError("states must be a vector of at least one index")
            if np.unique(self._states).size != self._states.size:
                raise ValueError("states must name each initial state once")
        self._made: dict[tuple[int, int, bool], _Plain] = {}

    def label(
        self, judged: int, other: int | None = None, labels: str = "as-printed", half: int = 0
    ) -> LabelledPairs:
        """Positives, then as many negatives, for one model: 2 M pairs, or 4 M with swap-twins.

        Parameters
        ----------
        judged : int
            The oracle whose model is judged.
        other : int, optional
            The oracle of the negatives; needed except for same-oracle and swap-twins.
        labels : str
            One of :data:`LABELS`.
        half : int
            0 or 1: of the model that is judged, and of the negatives of another oracle.
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
        if check.whole("half", half, 0) > 1:
            raise ValueError(f"half must be 0 or 1, got {half}")
        model, twin = (judged, half), (judged, 1 - half)
        if labels == "swap-twins":
            positive = [(model, model), (twin, twin)]
            negative = [(twin, model), (model, twin)]
        else:
            positive = [(twin if labels == "never-seen" else model, model)]
            stranger = (other if other is not None else judged, half)
            negative = [(twin if labels == "same-oracle" else stranger, model)]
        parts = [self._part(*sources, label=True) for sources in positive]
        parts += [self._part(*sources, label=False) for sources in negative]
        pairs = concatenate(parts)
        if labels != "input-only":
            return pairs
        blind = pairs.pairs.copy()
        blind[:, pairs.action_size :] = 0  # only what the inputs tell
        return replace(pairs, pairs=blind)

    def _part(self, source: tuple[int, int], model: tuple[int, int], label: bool) -> LabelledPairs:
        a, b = self._plain(*source, output=False), self._plain(*model, output=True)
        if len(a.lengths) != len(b.lengths):
            raise ValueError(
                f"every set must have as many trajectories, got {len(a.lengths)} and "
                f"{len(b.lengths)}"
            )
        pairs = format_pairs(a, b, self._length)
        n = len(pairs)
        inputs, outputs = np.tile(source, (n, 1)), np.tile(model, (n, 1))
        pool = np.column_stack([inputs, a.states])[: n if self._rng is not None else 0]
        return LabelledPairs(pairs, np.full(n, label), inputs, outputs, a.states, pool)

    def _plain(self, oracle: int, half: int, output: bool) -> _Plain:
        key = (oracle, half, output)
        if key in self._made:
            return self._made[key]
        name, sets = ("outputs" if output else "inputs"), self._sets[output]
        if check.whole("oracle", oracle, 0) >= len(sets):
            raise ValueError(f"there is no oracle {oracle}: {name} holds {len(sets)}")
        if len(sets[oracle]) != 2:
            raise ValueError(
                f"{name} must hold two halves of each oracle, got {len(sets[oracle])} of "
                f"oracle {oracle}"
            )
        one = sets[oracle][half]
        actions = _actions("actions", one.actions)
        lengths = _lengths(one.lengths, *actions.shape[:2])
        starts = _starts(name, one)
        states = np.arange(len(actions)) if self._states is None else self._states
        if states.max() >= len(actions):
            raise ValueError(
                f"states must lie in 0 .. {len(actions) - 1}, got {states.max()}: {name} of "
                f"oracle {oracle}, half {half} hold {len(actions)} trajectories"
            )
        actions, lengths, starts = actions[states], lengths[states], starts[states]
        if self._rng is not None and not output:
            actions = decorrelate(actions, lengths, self._rng)
            lengths = np.full_like(lengths, actions.shape[1])
        self._made[key] = _Plain(actions, lengths, starts, states)
        return self._made[key]


class _Plain(NamedTuple):
    actions: Actions
    lengths: IntArray
    initial_states: FloatArray
    states: IntArray


def concatenate(parts: Sequence[LabelledPairs]) -> LabelledPairs:
    """Several sets of pairs, of one action dimension and clipping length, as one."""
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
    names = (*_COLUMNS, "pool")
    return LabelledPairs(**{n: np.concatenate([getattr(p, n) for p in parts]) for n in names})


# -- splits -----------------------------------------------------------------------------


def require_disjoint(*parts: LabelledPairs) -> None:
    """Refuse sets of pairs of which two share a trajectory.

    A trajectory counts as shared if it is an input or an output in both, or if its actions were
    pooled for one and it occurs in the other. The ValueError names the first. O(n log n).
    """
    for part in parts:
        check.instance("parts", part, LabelledPairs)
    held = [part.trajectories for part in parts]
    for i, j in itertools.combinations(range(len(parts)), 2):
        if shared := held[i] & held[j]:
            plural = "trajectory" if len(shared) == 1 else "trajectories"
            raise ValueError(f"sets {i} and {j} share {len(shared)} {plural}, first {min(shared)}")


def split_states(count: int, share: float, rng: np.random.Generator) -> tuple[IntArray, IntArray]:
    """Split 0 .. count - 1, count >= 2, at random in two sorted parts.

    ``share``, in (0, 1), is that of the second part, rounded to whole states; none is empty.

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
    """Split pairs in two that share no trajectory, by the number of the initial state.

    An output occurs in a positive and in a negative pair, an input in the pairs of several
    models. All of these have one initial state, so drawing states (:func:`split_states`) keeps them
    together. Decorrelated pairs are refused: split the states, then decorrelate each part.
    """
    check.instance("pairs", pairs, LabelledPairs)
    if pairs.pool.size:
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


# -- decorrelation ----------------------------------------------------------------------


def decorrelate(actions: ArrayLike, lengths: ArrayLike, rng: np.random.Generator) -> Actions:
    """Break the order in time: pool all actions of the batch and draw uniformly.

    Thesis, sections 5.6 and 5.7.4: the tuples of all trajectories go into one buffer, from
    which "trajectories of the desired length" are drawn. Each drawn action is uniform over
    the pool, independently (with replacement).

    Not only the order in time is lost: lengths and padding are gone, and what one trajectory has
    of its own, and with it the tie to the initial state. Actions (n, T, d_A) and lengths (n,) as
    in :func:`pad_actions`.
    """
    a = _actions("actions", actions)
    n, steps, _ = a.shape
    ends = _lengths(lengths, n, steps)
    pool = a[np.arange(steps) < ends[:, None]]
    drawn: Actions = pool[check.generator(rng).integers(len(pool), size=(n, steps))]
    return drawn


# -- checks -----------------------------------------------------------------------------


def _actions(name: str, values: ArrayLike) -> Actions:
    x: Actions = check.finite_array(name, values, ndim=3)
    if 0 in x.shape:
        raise ValueError(f"{name} must not be empty, got shape {x.shape}")
    if getattr(values, "dtype", None) == np.float32:
        x = np.asarray(values)
    return x


def _starts(name: str, recorded: Recorded) -> FloatArray:
    x = check.finite_array(f"initial states of {name}", recorded.initial_states, ndim=2)
    if len(x) != len(recorded.actions):
        raise ValueError(
            f"{name} must have one initial state per trajectory, {len(recorded.actions)}, "
            f"got {len(x)}"
        )
    return x


def _lengths(values: ArrayLike, n: int, steps: int) -> IntArray:
    x = check.integers("lengths", values, 1)
    if x.shape != (n,):
        raise ValueError(f"lengths must have one entry per trajectory, {n}, got shape {x.shape}")
    if x.max() > steps:
        raise ValueError(f"lengths must be at most {steps}, the steps of actions, got {x.max()}")
    return x
