r"""Whole mechanisms of the book and their outputs on two neighbours.

For :mod:`experiments.chapter_7.mechanism_audits`. These are the mechanisms whose noise depends on
the data, is not Gaussian, or is hidden by sub-sampling: no mu describes them. The pairs are those
of the pages that audit them one by one; where the law of the outputs is known exactly, the score
is their log-likelihood ratio.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import special

from dprl import bandits, privacy, stopping
from dprl._validation import FloatArray, IntArray
from dprl.features import tabular
from dprl.off_policy.saddle_point import Statistics
from dprl.privacy import GaussianSmoothing, Guarantee, fit_frequencies, gaussian_pair_loss
from dprl.privacy.discrete_gaussian import discrete_gaussian_sigma
from dprl.privacy.laplace import laplace_mechanism
from dprl.private_evaluation import (
    LSL,
    LSW,
    NEIGHBOURS,
    Draws,
    dp_lsl,
    dp_lsw,
    draw_subsamples,
    subsample_and_average,
)
from dprl.private_evaluation.gpope import ConstantStep, Descent, gpope_runs_not_private
from dprl.trajectories import FirstVisitReturns, VisitStatistics

Outputs = tuple[NDArray[Any], NDArray[Any]]

_RECORD = "replace one record"
_PEOPLE = 20  # records of the data sets with sub-samples
_STEP = 0.1  # of GPOPE
_LOOKS = 29  # first look of the stopping rule at alpha = beta = 1/2


@dataclass(frozen=True)
class OutputsCase:
    """A mechanism on its worst pair.

    Attributes
    ----------
    name : str
    promise : Guarantee
    pair : str
        The neighbours.
    outputs : callable
        Number of runs and a generator -> outputs on X and on X'.
    statistic : str
        What the auditor looks at.
    options : mapping
        ``score`` or ``fit`` of :func:`dprl.privacy.audit.audit_samples`.
    shift : float
        Known distance of the means where the outputs are Gaussian numbers, else NaN.
    """

    name: str
    promise: Guarantee
    pair: str
    outputs: Callable[[int, np.random.Generator], Outputs]
    statistic: str
    options: Mapping[str, Any] = field(default_factory=dict)
    shift: float = math.nan


def whole_mechanisms(epsilon: float, delta: float) -> Iterator[OutputsCase]:
    """All mechanisms that are audited by their outputs; those with delta = 0 keep epsilon alone."""
    yield dp_lsw_case(epsilon, delta)
    yield dp_lsl_case(epsilon, delta)
    yield from subsampling_cases(epsilon, delta)
    yield from gpope_cases(epsilon, delta)
    yield discrete_case(epsilon, delta)
    yield OutputsCase(
        "Laplace mechanism, counting query",
        Guarantee(epsilon, 0.0, _RECORD),
        "count 1 / count 0",
        lambda runs, rng: _each(
            (1.0, 0.0),
            lambda x: laplace_mechanism(
                np.full(runs, x), sensitivity=1.0, epsilon=epsilon, neighbours=_RECORD, rng=rng
            )[0],
        ),
        "noisy count",
    )
    yield from sequential_cases(epsilon)


def _each(pair: tuple[Any, Any], release: Callable[[Any], NDArray[Any]]) -> Outputs:
    return release(pair[0]), release(pair[1])


# -- the thesis -----------------------------------------------------------------------------------


def _many(data: VisitStatistics, runs: int) -> VisitStatistics:
    counts: IntArray = np.tile(data.counts, (runs, 1))
    means: FloatArray = np.tile(data.mean_returns, (runs, 1))
    return VisitStatistics(counts, means, data.n_trajectories, bounds=data.bounds)


def _statistics(counts: list[int], means: list[float], n: int) -> VisitStatistics:
    visits: IntArray = np.asarray(counts)
    averages: FloatArray = np.asarray(means)
    return VisitStatistics(visits, averages, n, bounds=(0.0, 1.0))


def _least_squares_case(
    name: str,
    pair: tuple[VisitStatistics, VisitStatistics],
    estimator: LSW | LSL,
    budget: dict[str, Any],
    words: str,
) -> OutputsCase:
    run: Any = dp_lsw if isinstance(estimator, LSW) else dp_lsl
    laws = [
        (estimator.theta(x), float(estimator.noise(x.counts, x.n_trajectories, **budget).sigma))
        for x in pair
    ]
    return OutputsCase(
        name,
        Guarantee(budget["epsilon"], budget["delta"], NEIGHBOURS),
        words,
        lambda runs, rng: _each(
            pair, lambda x: run(_many(x, runs), estimator, rng=rng, **budget).theta
        ),
        "likelihood ratio of the estimate",
        {"score": lambda z: gaussian_pair_loss(z, *laws[0], *laws[1])},
    )


def dp_lsw_case(epsilon: float, delta: float) -> OutputsCase:
    """Two states: alone in one, in the other with K others; the replacement visits nothing."""
    beta = GaussianSmoothing(epsilon, delta, 2).beta
    counts = np.arange(1, 100_000)
    last = 2 * np.exp(-beta * counts) >= 1 + (counts + 1.0) ** -2
    others = int(counts[last].max()) if last.any() else 1
    pair = (
        _statistics([1, others + 1], [1.0, 0.0], others + 1),
        _statistics([0, others], [0.0, 0.0], others + 1),
    )
    lsw = LSW(tabular(2), np.ones(2), f_max=1.0)
    words = "alone in one of two states, return 1 / visits nothing"
    return _least_squares_case("DP-LSW", pair, lsw, {"epsilon": epsilon, "delta": delta}, words)


def dp_lsl_case(epsilon: float, delta: float) -> OutputsCase:
    """One state and one trajectory, which visits it or not; the ridge that makes this worst."""
    beta = GaussianSmoothing(epsilon, delta, 1).beta
    pair = (
        _statistics([1], [1.0], 1),
        _statistics([0], [0.0], 1),
    )
    lsl = LSL(tabular(1), np.ones(1), max(0.5 / np.expm1(beta / 2) ** 2, 1.01), f_max=1.0)
    words = "alone in the state, return 1 / visits nothing"
    return _least_squares_case("DP-LSL", pair, lsl, {"epsilon": epsilon, "delta": delta}, words)


def subsampling_cases(epsilon: float, delta: float) -> Iterator[OutputsCase]:
    """Four sub-samples of ten out of twenty: Gaussian base, DP-LSW, DP-LSL."""
    m, k = 4, 10
    mu = privacy.subsampled_gaussian_mu(k / _PEOPLE, m, epsilon, delta)

    def averages(runs: int, rng: np.random.Generator) -> Outputs:
        def release(present: float) -> FloatArray:
            drawn = (draw_subsamples(_PEOPLE, runs * m, k, rng) == 0).any(axis=1)
            noisy = present * drawn / k + rng.standard_normal(runs * m) / (k * mu)
            return np.asarray(noisy.reshape(runs, m).mean(axis=1))

        return release(1.0), release(0.0)

    yield OutputsCase(
        "sub-sample and average, Gaussian base",
        Guarantee(epsilon, delta, _RECORD),
        "one record 1, the others 0 / all 0",
        averages,
        "average",
    )
    alone = np.arange(_PEOPLE)[:, None] == 0
    pair = tuple(
        FirstVisitReturns(seen.astype(float), seen) for seen in (alone, np.zeros_like(alone))
    )
    steep = 0.5 / np.expm1(GaussianSmoothing(1.0, delta, 1).beta / 2) ** 2
    for name, estimator in (
        ("DP-LSW", LSW(tabular(1), np.ones(1), f_max=1.0)),
        ("DP-LSL", LSL(tabular(1), np.ones(1), steep, f_max=1.0)),
    ):

        def outputs(
            runs: int, rng: np.random.Generator, estimator: LSW | LSL = estimator
        ) -> Outputs:
            draws = Draws(m, k, accounting="optimal")
            budget = {"epsilon": epsilon, "delta": delta}
            a, b = (
                subsample_and_average(x, estimator, draws, rng=rng, n_releases=runs, **budget).theta
                for x in pair
            )
            return a[:, 0], b[:, 0]

        yield OutputsCase(
            f"Algorithm 3, {name}",
            Guarantee(epsilon, delta, NEIGHBOURS),
            "alone in the state, return 1 / visits nothing",
            outputs,
            "average estimate",
        )


# -- off-policy evaluation ------------------------------------------------------------------------


def _iterates(
    runs: int, rng: np.random.Generator, sigmas: list[float], steps: int
) -> list[FloatArray]:
    """w of all iterates on both data sets, shape (steps + 1, settings, runs)."""
    found = []
    for odd in (True, False):
        rewards = np.full(_PEOPLE, -1e6)
        rewards[0] = 1e6 if odd else -1e6
        ones = np.ones((_PEOPLE, 1, 1))
        descent = Descent(
            [ConstantStep(_STEP)] * len(sigmas), clip=1.0, iterations=steps, at=range(1, steps + 1)
        )
        data = Statistics(ones, rewards[:, None], ones)
        w = gpope_runs_not_private(data, descent, sigmas, rng, trials=runs).w_at[..., 0]
        found.append(np.concatenate([np.zeros((1, *w.shape[1:])), w]))
    return found


def gpope_cases(epsilon: float, delta: float) -> Iterator[OutputsCase]:
    """All iterates with certified noise; and two settings that share their noise."""
    sigma = privacy.noisy_gradient_certified_sigma(epsilon, delta, _PEOPLE, _PEOPLE)
    promise = Guarantee(epsilon, delta, NEIGHBOURS)
    pair = "one reward huge, the others its negative / all the negative"

    def evidence(runs: int, rng: np.random.Generator) -> Outputs:
        def ratio(w: FloatArray) -> FloatArray:
            z = (1 + np.diff(w[:, 0], axis=0) / _STEP) / sigma  # -R gives gradients of 1
            odds = np.expm1(2 * z / sigma - 2 / sigma**2) / _PEOPLE
            return np.asarray(np.log1p(odds).sum(axis=0))

        one, other = _iterates(runs, rng, [sigma], _PEOPLE)
        return ratio(one), ratio(other)

    yield OutputsCase(
        "GPOPE", promise, pair, evidence, "likelihood ratio of all iterates", {"score": lambda z: z}
    )

    def difference(runs: int, rng: np.random.Generator) -> Outputs:
        def gradient(w: FloatArray) -> FloatArray:
            noisy = -np.diff(w, axis=0) / _STEP  # gradient + sigma z, gradient + 2 sigma z
            return np.asarray((2 * noisy[:, 0] - noisy[:, 1]).min(axis=0).round(3))

        one, other = _iterates(runs, rng, [sigma, 2 * sigma], _PEOPLE)
        return gradient(one), gradient(other)

    yield OutputsCase(
        "broken: shared noise over settings", promise, pair, difference, "noise removed"
    )


# -- the discrete release -------------------------------------------------------------------------


def discrete_case(epsilon: float, delta: float) -> OutputsCase:
    """Draws of the discrete Gaussian of one sum that moves by 1000 units of the grid."""
    sensitivity = 1000
    sigma = discrete_gaussian_sigma(sensitivity, 1, epsilon=epsilon, delta=delta)
    reach = int(8 * sigma)
    support = np.arange(-reach, reach + 1)
    mass = np.exp(-(support**2) / (2 * sigma**2))

    def outputs(runs: int, rng: np.random.Generator) -> Outputs:
        # the law, not OpenDP's generator, which takes no seed
        noise = rng.choice(support, size=(2, runs), p=mass / mass.sum())
        return (noise[0] + sensitivity).astype(float), noise[1].astype(float)

    return OutputsCase(
        "discrete release",
        Guarantee(epsilon, delta, _RECORD),
        f"sum {sensitivity} / sum 0, in units of the grid",
        outputs,
        "noisy sum",
        shift=float(sensitivity),
    )


# -- stopping, choosing, Thompson sampling --------------------------------------------------------


def sequential_cases(epsilon: float) -> Iterator[OutputsCase]:
    """The private stop, the choice, both together, and the arms of Thompson sampling."""
    promise = Guarantee(epsilon, 0.0, stopping.NEIGHBOURS)
    limits = {"alpha": 0.5, "beta": 0.5}
    # two looks, at S_n - n/2 = -6/eps and 4/eps, or one higher and one lower
    looks = np.arange(_LOOKS, _LOOKS + 2) / 2 + np.array([-6.0, 4.0]) / epsilon
    paths = _each(
        (np.array([1, -1]), np.zeros(2)),
        lambda moved: np.concatenate([np.zeros(_LOOKS - 1), looks + moved]),
    )

    def stops(runs: int, rng: np.random.Generator) -> Outputs:
        return _each(
            paths,
            lambda path: stopping.stop_privately(
                np.broadcast_to(path, (runs, path.size)), **limits, epsilon=epsilon, rng=rng
            ),
        )

    yield OutputsCase(
        "private stop",
        promise,
        "sums one higher, then one lower / neither",
        stops,
        "when it stops",
        {"fit": fit_frequencies},
    )
    best = np.where(np.arange(50) == 0, 0, 1)
    yield OutputsCase(
        "exponential mechanism",
        promise,
        "one of 50 functions best / worst",
        lambda runs, rng: _each(
            (best, 1 - best), lambda x: stopping.choose(np.tile(x, (runs, 1)), epsilon, rng)
        ),
        "whether it is chosen",
        {"score": lambda z: z == 0},
    )
    low = np.where(np.arange(6) == 0, 0, 1)
    streams = _each(
        (low, 1 - low),
        lambda first: np.vstack([first, np.zeros((_LOOKS + 1, 6), dtype=int)]),
    )

    def learns(runs: int, rng: np.random.Generator) -> Outputs:
        def release(f: NDArray[Any]) -> NDArray[Any]:
            out = stopping.private_sequential_runs(
                f,
                **limits,
                epsilon_stop=epsilon / 2,
                epsilon_choice=epsilon / 2,
                runs=runs,
                rng=rng,
            )
            return np.asarray(2 * np.where(out.stopped, out.samples, 0) + out.chosen)

        return _each(streams, release)

    yield OutputsCase(
        "private sequential learning",
        promise,
        "first losses 0, 1, 1, .. / 1, 0, 0, ..",
        learns,
        "when it stops, what it chooses",
        {"fit": fit_frequencies},
    )
    horizon = {1.0: 2, 3.0: 4, 5.0: 5}.get(epsilon, 2)

    def arms(runs: int, rng: np.random.Generator) -> Outputs:
        # of the event only the first reward of arm 1 is used, and arm 2 always fails
        def event(first: float) -> NDArray[Any]:
            pair = bandits.bernoulli_arms([first, 0.0])
            plays = bandits.thompson_sampling(pair, horizon, runs, rng).plays
            return np.asarray((plays[:, 0, 0] == 1) & (plays[:, -1, 0] == 1))

        return event(0.0), event(1.0)

    yield OutputsCase(
        f"Thompson sampling, first {horizon} arms",
        Guarantee(float(special.gammaln(horizon + 1)), 0.0, "replace one reward"),
        "first reward of arm 1 is 0 / 1",
        arms,
        "arm 1, then arm 2 to the end",
        {"score": lambda z: z},
    )
