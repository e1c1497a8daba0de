r"""Listening to a running mechanism: what each Gaussian round adds its noise to, and the noise.

A mechanism that draws its noise as ``rng.standard_normal`` and releases ``value + noise`` is run
with a :class:`Listener` in place of the generator. The listener returns an object that follows
the arithmetic up to the sum, notes the two terms, and hands the sum on as a plain array: the
mechanism runs as it always does, with the numbers that it would have had. Beside the noise that is
used, the object carries more draws of it, or the images of all unit vectors, from which its
covariance Sigma follows exactly.

*Rounds on neighbours.* :func:`overhear` runs the mechanism on X, then on its neighbour X' with all
outputs of rounds *forced* to be those on X. Then each round of the second run sees the same past as
that of the first, and with values f(past), f'(past) the pair of laws in round k is

    N(f, Sigma) and N(f', Sigma),    mu_k^2 = (f - f')' Sigma^{-1} (f - f').           (1)

If on every past sum_k mu_k^2 <= mu^2 for all neighbours, the mechanism is mu-GDP (Dong, Roth and
Su 2022). A round whose noise depends on the data has two covariances, and no mu.

*The whole transcript.* With exact covariances the log-likelihood ratio of everything that was
released is a sum over the rounds, :func:`transcript_score`: no attacker can have a better test.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.lib.mixins import NDArrayOperatorsMixin

from dprl import _validation as check
from dprl._validation import FloatArray

#: Runs a mechanism on one data set with a generator.
Program = Callable[[Any, np.random.Generator], object]

_LINEAR = (np.multiply, np.divide, np.true_divide, np.negative, np.matmul)
_RANK = 1e-10  # eigenvalues of a covariance below this part of the largest are zero


class Heard(NamedTuple):
    """One release: ``value + noise``.

    Attributes
    ----------
    value : ndarray
        What the noise was added to.
    output : ndarray
        The sum, as the mechanism got it.
    draws : ndarray, shape of K values
        More draws of the noise, or its images of the K unit vectors.
    """

    value: FloatArray
    output: FloatArray
    draws: FloatArray


class HeardRound(NamedTuple):
    """One round on two neighbours, with the same past.

    Attributes
    ----------
    shift : ndarray
        Value on X less value on X'.
    draws, draws_other : ndarray, shape of K shifts
        Of the noise on X and on X', as in :class:`Heard`; from the same random numbers.
    """

    shift: FloatArray
    draws: FloatArray
    draws_other: FloatArray

    @property
    def noise_depends_on_data(self) -> bool:
        """Whether the same draws come out different on X and X'."""
        scale = np.abs(self.draws).max() + np.abs(self.draws_other).max()
        return not np.allclose(self.draws, self.draws_other, rtol=1e-9, atol=1e-12 * scale)


class Listener(np.random.Generator):
    """A generator whose standard normal numbers are followed until they are added to something.

    Parameters
    ----------
    seed : int or SeedSequence
        Of the numbers that the mechanism gets: those of ``numpy.random.default_rng(seed)``.
    copies : int
        How many more draws each noise carries; 0 for the images of the unit vectors.
    forced : sequence of Heard
        Outputs that rounds must have, in order: those of an earlier run.
    plain : float, optional
        What a noise is that the mechanism makes a plain number before it adds it: nobody can
        follow it from there on. By default what it would have been.
    """

    def __init__(
        self,
        seed: int | np.random.SeedSequence,
        copies: int = 0,
        forced: Sequence[Heard] = (),
        plain: float | None = None,
    ) -> None:
        super().__init__(np.random.default_rng(seed).bit_generator)
        self._copies = check.whole("copies", copies, minimum=0)
        self._more = np.random.default_rng([1, 0 if copies == 0 else copies])
        self._forced, self._plain = list(forced), plain
        self.heard: list[Heard] = []

    def standard_normal(self, size: Any = None, *args: Any, **options: Any) -> Any:
        """As ``numpy.random.Generator.standard_normal``, to be added to something."""
        used = np.asarray(super().standard_normal(size, *args, **options))
        if self._copies:
            more = self._more.standard_normal((self._copies, *used.shape))
        else:
            more = np.eye(used.size).reshape(-1, *used.shape)
        return _Noise(self, used, more)

    def release(self, value: FloatArray, used: FloatArray, more: FloatArray) -> FloatArray:
        """Note value + noise, and say what it is."""
        k = len(self.heard)
        output = self._forced[k].output if k < len(self._forced) else value + used
        self.heard.append(Heard(value, output, more))
        return output.copy()[()]  # a number where the value is one

    def plain_number(self, used: float) -> float:
        """What a noise is that is made a plain number."""
        return used if self._plain is None else self._plain


class _Noise(NDArrayOperatorsMixin):
    """Linear images of standard normal numbers: the one that is used, and more of them."""

    def __init__(self, listener: Listener, used: FloatArray, more: FloatArray) -> None:
        self.listener, self.used, self.more = listener, used, more

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **options: Any) -> Any:
        if method != "__call__" or options:
            return NotImplemented
        noises = [x for x in inputs if isinstance(x, _Noise)]
        if ufunc in (np.add, np.subtract) and len(noises) < 2:
            value = next(x for x in inputs if not isinstance(x, _Noise))
            sign = -1.0 if ufunc is np.subtract and isinstance(inputs[1], _Noise) else 1.0
            if ufunc is np.subtract and sign > 0:
                value = -np.asarray(value)
            used, more = sign * self.used, sign * self.more
            shape = np.broadcast_shapes(np.shape(value), used.shape)
            full = np.array(np.broadcast_to(value, shape), dtype=np.float64)
            more = np.broadcast_to(_stretched(more, len(shape)), (len(more), *shape))
            return self.listener.release(full, used, more)
        if ufunc not in (*_LINEAR, np.add, np.subtract):
            return NotImplemented
        used = ufunc(*(x.used if isinstance(x, _Noise) else x for x in inputs))
        if ufunc is np.matmul and isinstance(inputs[1], _Noise) and inputs[1].used.ndim == 1:
            more = inputs[1].more @ np.swapaxes(inputs[0], -1, -2)  # each row: A z
        else:
            rows = [_stretched(x.more, used.ndim) if isinstance(x, _Noise) else x for x in inputs]
            more = ufunc(*rows)
        return _Noise(self.listener, used, more)

    def __iter__(self) -> Iterator[_Noise]:
        for used, more in zip(self.used, np.moveaxis(self.more, 1, 0), strict=True):
            yield _Noise(self.listener, used, more)

    def __float__(self) -> float:
        return self.listener.plain_number(float(self.used))

    @property
    def T(self) -> _Noise:
        """Transposed, as of an array."""
        return _Noise(self.listener, self.used.T, self.more.swapaxes(-1, -2))


def _stretched(more: FloatArray, ndim: int) -> FloatArray:
    """Rows of arrays that broadcast as arrays of so many axes do."""
    shape = more.shape[1:]
    return more.reshape(len(more), *(1,) * (ndim - len(shape)), *shape)


def overhear(
    program: Program,
    pair: tuple[Any, Any],
    *,
    seed: int | np.random.SeedSequence,
    copies: int = 0,
) -> list[HeardRound]:
    """All rounds of a mechanism on two neighbours, each after the same past.

    Parameters
    ----------
    program : callable
        ``program(data, rng)`` runs it.
    pair : tuple
        X and X'.
    seed : int or SeedSequence
        Chooses the past.
    copies : int
        Draws of each noise; 0 for its covariance exactly.

    Returns
    -------
    list of HeardRound
        Simulations that a mechanism makes for itself may be among them, with a shift of zero.

    Raises
    ------
    ValueError
        If the two runs have different rounds although their pasts agree.

    Examples
    --------
    >>> def mean(data, rng):
    ...     return np.mean(data) + 0.5 * rng.standard_normal()
    >>> round_, = overhear(mean, ([0.0, 0.0], [0.0, 1.0]), seed=0)
    >>> float(round_.shift), float(exact_mu(round_))
    (-0.5, 1.0)
    """
    first = Listener(seed, copies)
    program(pair[0], first)
    second = Listener(seed, copies, first.heard)
    program(pair[1], second)
    if [h.value.shape for h in first.heard] != [h.value.shape for h in second.heard]:
        raise ValueError("the neighbours have different rounds after the same past")
    return [
        HeardRound(a.value - b.value, a.draws, b.draws)
        for a, b in zip(first.heard, second.heard, strict=True)
    ]


def exact_mu(heard: HeardRound) -> float:
    """mu_k of (1) from the images of the unit vectors; infinite if the shift has no noise."""
    return float(np.linalg.norm(_whitened(heard.shift.ravel(), _covariance(heard.draws, 1))))


def measured_mu(heard: HeardRound) -> float:
    """mu_k of (1) from K draws of the noise, with a standard error of mu_k/sqrt(2 K).

    The inverse of a sample covariance is too large by the factor K/(K - r - 1), r its rank; that
    is taken off.
    """
    count = len(heard.draws)
    if not heard.shift.any():
        return 0.0
    covariance = _covariance(heard.draws, count)
    size = np.linalg.eigvalsh(covariance)
    rank = int((size > _RANK * size[-1]).sum())
    squared = (_whitened(heard.shift.ravel(), covariance) ** 2).sum()
    return float(np.sqrt(squared * (count - rank - 1) / count))


def transcript_score(
    program: Program, data: Any, pair: tuple[Any, Any], seed: int | np.random.SeedSequence
) -> float:
    """Log-likelihood ratio, X against X', of all rounds of one run on ``data``.

    The run on data is made with the seed; on X and X' the same outputs are forced. All noise must
    be independent of the data.
    """
    run = Listener(seed)
    program(data, run)
    values = []
    for other in pair:
        forced = Listener(seed, 0, run.heard)
        program(other, forced)
        values.append([h.value for h in forced.heard])
    total = 0.0
    for heard, value, value_other in zip(run.heard, *values, strict=True):
        shift = (value - value_other).ravel()
        if shift.any():
            covariance = _covariance(heard.draws, 1)
            middle = (value + value_other).ravel() / 2
            w = _whitened(shift, covariance)
            total += float(w @ _whitened(heard.output.ravel() - middle, covariance))
    return total


def _covariance(draws: FloatArray, count: int) -> FloatArray:
    rows = draws.reshape(len(draws), -1)
    return np.asarray(rows.T @ rows / count)


def _whitened(shift: FloatArray, covariance: FloatArray) -> FloatArray:
    """Coordinates of the shift in units of the noise; infinite outside the noise's range."""
    size, axes = np.linalg.eigh(covariance)
    kept = size > _RANK * max(size[-1], 0.0)
    along = shift @ axes
    lost = np.linalg.norm(along[~kept]) > 1e-6 * np.linalg.norm(along)
    out: FloatArray = np.append(along[kept] / np.sqrt(size[kept]), np.inf if lost else 0.0)
    return out
