r"""Sequential learning: stopping rules, printed and private, and what is learnt at the stop.

S_n = n r_n is the Rademacher sum of the class after n observations
(:mod:`dprl.stopping.penalties`), N = N(alpha, beta) the first n at which a rule may stop
(:mod:`dprl.stopping.sample_sizes`). After n observations, n >= N,

- without privacy: stop if S_n < alpha n;                                              (1)
- as printed, the counter being n + 1 then: stop if S_n < alpha (n + 1) + delta,       (2)
  delta ~ Lap(1/eps), drawn once or afresh at each n (the poster allows both readings);
- private: rho ~ Lap(2/eps_1) once, nu_n ~ Lap(4/eps_1) at each n; stop if
  S_n - alpha n + nu_n < rho.                                                          (3)

At the stop the exponential mechanism chooses a function,

    Pr[f] proportional to exp( -(eps_2/2) sum_{i <= n} f(X_i) ).                       (4)

The poster writes "Exponential(f^erm, eps tau)". Read as weights exp(-eps sum_i f(X_i)), it is
(4) with twice the budget.

(3) is the sparse vector technique (Dwork and Roth 2014, section 3.6; Lyu, Su and Li 2017) on
queries that one observation moves by at most 1; the stop and the function together are
(eps_1 + eps_2, 0)-differentially private, neighbours replacing one observation of the
stream. Both rules (2) are not eps-private.

The random numbers are for study, see :mod:`dprl.privacy`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from dprl import _validation as check
from dprl._validation import BoolArray, FloatArray, IntArray
from dprl.privacy import Guarantee
from dprl.stopping.penalties import fair_signs, finite_class_sums
from dprl.stopping.sample_sizes import initial_sample_size

#: The relation under which the guarantee is proved.
NEIGHBOURS = "replace one observation of the stream"

READINGS = ("one draw", "fresh draws")


# -- rules on the path of sums -----------------------------------------------------------------


def stop_without_privacy(sums: ArrayLike, alpha: float, beta: float) -> IntArray:
    """First n >= N with S_n < alpha n, rule (1). Not private.

    sums, shape (..., n), are S_1, ..., S_n, with n at least N(alpha, beta); alpha > 0, beta in
    (0, 1). Returns shape (...): the number of observations at the stop, 0 if the rule does not stop
    within the path.

    >>> int(stop_without_privacy(np.zeros(100), 0.5, 0.5))
    29
    """
    s, start, n = checked_sums(sums, alpha, beta)
    return _first(s < alpha * n, start)


def stop_printed(
    sums: ArrayLike,
    alpha: float,
    beta: float,
    epsilon: float,
    reading: str,
    rng: np.random.Generator,
) -> IntArray:
    """Rule (2), as the poster prints it. It is **not** epsilon-private, in neither reading.

    Parameters
    ----------
    sums, alpha, beta
        As in :func:`stop_without_privacy`; ``numpy.broadcast_to`` spreads one path over runs.
    epsilon : float
        > 0; the noise has scale 1/epsilon.
    reading : str
        "one draw" or "fresh draws".
    rng : numpy.random.Generator
        One number for each run; or, at each n, one for each run that goes on, in order.

    Returns
    -------
    ndarray of int, shape (...)
        As in :func:`stop_without_privacy`.

    Examples
    --------
    >>> paths = np.broadcast_to(np.zeros(60), (4, 60))
    >>> stop_printed(paths, 0.5, 0.5, 0.1, "fresh draws", np.random.default_rng(0)).tolist()
    [29, 29, 30, 30]
    """
    s, start, n = checked_sums(sums, alpha, beta)
    scale = 1 / check.positive("epsilon", epsilon)
    check_reading(reading)
    source = check.generator(rng)
    if reading == "one draw":
        delta = np.asarray(source.laplace(scale=scale, size=s.shape[:-1]))
        return _first(s - alpha * (n + 1) < delta[..., None], start)
    return _step_by_step(
        s - alpha * (n + 1), start, np.zeros(s.shape[:-1]), lambda k: -source.laplace(0, scale, k)
    )


def stop_privately(
    sums: ArrayLike, alpha: float, beta: float, epsilon: float, rng: np.random.Generator
) -> IntArray:
    """Rule (3). The stop is (epsilon, 0)-private; neighbours replace one observation.

    Also if the signs behind the sums are published. That the path ended without a stop may
    be published too; the length of the path must be public.

    Parameters
    ----------
    sums : array_like, shape (..., n)
        S_1, ..., S_n of each run, from :mod:`dprl.stopping.penalties`: replacing one
        observation must change each by at most 1.
    alpha, beta
        As in :func:`stop_without_privacy`.
    epsilon : float
        eps_1 > 0.
    rng : numpy.random.Generator
        One threshold for each run; then, at each n, one number for each run that goes on.

    Returns
    -------
    ndarray of int, shape (...)
        As in :func:`stop_without_privacy`.

    Examples
    --------
    >>> paths = np.broadcast_to(np.zeros(60), (4, 60))
    >>> stop_privately(paths, 0.5, 0.5, 0.5, np.random.default_rng(0)).tolist()
    [29, 30, 29, 32]
    """
    s, start, n = checked_sums(sums, alpha, beta)
    eps, source = check.positive("epsilon", epsilon), check.generator(rng)
    check.positive("4/epsilon", 4 / eps)
    rho = np.asarray(source.laplace(scale=2 / eps, size=s.shape[:-1]))
    return _step_by_step(s - alpha * n, start, rho, lambda k: source.laplace(0, 4 / eps, k))


def checked_sums(sums: ArrayLike, alpha: float, beta: float) -> tuple[FloatArray, int, IntArray]:
    """The sums from n = N on, N, and these n."""
    s = check.finite_array("sums", sums)
    start = initial_sample_size(alpha, beta)
    _long_enough(s.shape[-1] if s.ndim else 0, start)
    return s[..., start - 1 :], start, np.arange(start, s.shape[-1] + 1)


def _long_enough(length: int, start: int) -> None:
    if length < start:
        raise ValueError(
            f"the stream must hold at least N(alpha, beta) = {start} observations, got {length}"
        )


def check_reading(reading: str) -> None:
    if reading not in READINGS:
        raise ValueError(f"reading must be one of {', '.join(READINGS)}, got {reading!r}")


def _first(stops: BoolArray, start: int) -> IntArray:
    out: IntArray = np.where(stops.any(axis=-1), start + stops.argmax(axis=-1), 0)
    return out


def _step_by_step(
    margin: FloatArray,
    start: int,
    threshold: FloatArray,
    noise: Callable[[int], FloatArray],
) -> IntArray:
    """First n with margin + noise < threshold; noise only for the runs that go on."""
    flat, bar = margin.reshape(-1, margin.shape[-1]), threshold.ravel()
    out = np.zeros(bar.size, dtype=np.int64)
    going = np.arange(bar.size)
    for i in range(flat.shape[1]):
        stops = flat[going, i] + noise(going.size) < bar[going]
        out[going[stops]] = start + i
        going = going[~stops]
        if not going.size:
            break
    return out.reshape(threshold.shape)


# -- the choice of a function ------------------------------------------------------------------


def exponential_mechanism(total_losses: ArrayLike, epsilon: float) -> FloatArray:
    """The exponential mechanism (4) for k functions.

    total_losses, shape (..., k), are sum_{i <= n} f_j(X_i), of which one observation changes each
    by at most 1; epsilon, eps_2, is > 0. Returns the probabilities, shape (..., k).

    >>> exponential_mechanism([0, 2], 1.0).round(4).tolist()  # e : 1
    [0.7311, 0.2689]
    """
    eps, above = check.positive("epsilon", epsilon), _above_the_least(total_losses)
    with np.errstate(over="ignore"):  # what is beyond the numbers has weight 0
        weight = np.exp(-eps / 2 * above)
    out: FloatArray = weight / weight.sum(axis=-1, keepdims=True)
    return out


def choose(total_losses: ArrayLike, epsilon: float, rng: np.random.Generator) -> IntArray:
    """One function from (4) for each run; (epsilon, 0)-private for each.

    Parameters as in :func:`exponential_mechanism`; k Gumbel numbers for each run: the largest
    noisy score has the law (4). The result has shape (...).

    >>> choose([[0, 50], [50, 0]], 1.0, np.random.default_rng(0)).tolist()
    [0, 1]
    """
    eps, above = check.positive("epsilon", epsilon), _above_the_least(total_losses)
    with np.errstate(over="ignore"):
        noisy = -eps / 2 * above + check.generator(rng).gumbel(size=above.shape)
    out: IntArray = np.asarray(noisy.argmax(axis=-1))
    return out


def _above_the_least(total_losses: ArrayLike) -> FloatArray:
    """Losses less the least one: the same law, and no overflow."""
    total = check.array_from("total_losses", total_losses)
    if total.ndim == 0 or total.shape[-1] == 0:
        raise ValueError(f"total_losses must hold one number per function, got {total.shape}")
    out: FloatArray = total - total.min(axis=-1, keepdims=True)
    return out


# -- the whole algorithm -----------------------------------------------------------------------


@dataclass(frozen=True)
class SequentialRelease:
    """What the private algorithm releases.

    Attributes
    ----------
    samples : int
        Observations used, all of them if the rule did not stop.
    stopped : bool
        Whether the rule stopped; if not, nothing is promised about the error.
    chosen : int
        Index of the function.
    guarantee : Guarantee
        For all three together.
    """

    samples: int
    stopped: bool
    chosen: int
    guarantee: Guarantee


@dataclass(frozen=True, eq=False)
class SequentialRuns:
    """Independent runs, for simulation: each alone would be a release, together they are not.

    Attributes
    ----------
    samples : ndarray of int, shape (runs,)
    stopped : ndarray of bool, shape (runs,)
    chosen : ndarray of int, shape (runs,)
    """

    samples: IntArray
    stopped: BoolArray
    chosen: IntArray


def private_sequential_learning(
    losses: ArrayLike,
    *,
    alpha: float,
    beta: float,
    epsilon_stop: float,
    epsilon_choice: float,
    rng: np.random.Generator,
) -> SequentialRelease:
    """Learn from a stream, stop by (3), choose by (4), and say what is promised.

    O(nk) time.

    Parameters
    ----------
    losses : array_like of 0 and 1, shape (n, k)
        f_j(X_i) for the observations of the stream, in order, and k functions; the rule may
        stop before the end. k, the functions and n are public.
    alpha : float
        Tolerance, > 0: the released function is (k_1 alpha, 2 beta)-useful if the rule
        stops, :func:`dprl.stopping.sample_sizes.usefulness_factor`.
    beta : float
        In (0, 1).
    epsilon_stop, epsilon_choice : float
        eps_1, eps_2 > 0; the release is (eps_1 + eps_2, 0)-private.
    rng : numpy.random.Generator
        The signs, the noise of the rule, then the choice.

    Raises
    ------
    TypeError, ValueError
        If an argument is not of the kind or range above, or the stream is shorter than
        N(alpha, beta).

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> losses = rng.random((60, 3)) < [0.1, 0.5, 0.9]
    >>> release = private_sequential_learning(
    ...     losses, alpha=0.5, beta=0.5, epsilon_stop=1, epsilon_choice=1, rng=rng)
    >>> release.samples, release.stopped, release.chosen
    (29, True, 0)
    >>> print(release.guarantee)
    (2, 0)-differentially private; neighbours: replace one observation of the stream
    """
    promise = Guarantee(
        check.positive("epsilon_stop", epsilon_stop)
        + check.positive("epsilon_choice", epsilon_choice),
        0.0,
        NEIGHBOURS,
    )
    f = check.zeros_and_ones("losses", losses)
    if f.ndim != 2:
        raise ValueError(f"losses must have shape (n, k), got {f.shape}")
    out = private_sequential_runs(
        f,
        alpha=alpha,
        beta=beta,
        epsilon_stop=epsilon_stop,
        epsilon_choice=epsilon_choice,
        runs=1,
        rng=rng,
    )
    return SequentialRelease(int(out.samples[0]), bool(out.stopped[0]), int(out.chosen[0]), promise)


def private_sequential_runs(
    losses: ArrayLike,
    *,
    alpha: float,
    beta: float,
    epsilon_stop: float,
    epsilon_choice: float,
    rng: np.random.Generator,
    runs: int | None = None,
) -> SequentialRuns:
    """Many independent runs of the private algorithm, for simulations and audits.

    Parameters
    ----------
    losses : array_like of 0 and 1, shape (n, k) or (runs, n, k)
        The same stream for every run, or one for each.
    alpha, beta, epsilon_stop, epsilon_choice, rng
        As in :func:`private_sequential_learning`.
    runs : int, optional
        >= 1; needed, and allowed, for one stream only.

    Examples
    --------
    >>> out = private_sequential_runs(
    ...     np.zeros((60, 2)), alpha=0.5, beta=0.5, epsilon_stop=1, epsilon_choice=1, runs=3,
    ...     rng=np.random.default_rng(0))
    >>> out.samples.shape
    (3,)
    """
    check.positive("epsilon_stop", epsilon_stop)
    check.positive("epsilon_choice", epsilon_choice)
    f = check.zeros_and_ones("losses", losses)
    if f.ndim == 2 and runs is not None:
        count = check.whole("runs", runs)
    elif f.ndim == 3 and runs is None:
        count = len(f)
    else:
        raise ValueError(
            "give losses of shape (n, k) together with runs, or losses of shape (runs, n, k); "
            f"got shape {f.shape} and runs {runs!r}"
        )
    length = f.shape[-2]
    _long_enough(length, initial_sample_size(alpha, beta))
    sums = finite_class_sums(f, fair_signs((count, length), rng))
    when = stop_privately(sums, alpha, beta, epsilon_stop, rng)
    samples = np.where(when > 0, when, length)
    if f.ndim == 2:
        totals = np.cumsum(f, axis=0, dtype=np.int64)[samples - 1]
    else:
        used = np.arange(length) < samples[:, None]
        totals = np.stack([(f[..., j] * used).sum(axis=1) for j in range(f.shape[-1])], axis=-1)
    return SequentialRuns(samples, when > 0, choose(totals, epsilon_choice, rng))
