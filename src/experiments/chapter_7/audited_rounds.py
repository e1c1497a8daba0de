r"""The mechanisms of the book whose rounds are Gaussian, on their worst neighbours.

For :mod:`experiments.chapter_7.mechanism_audits`. Records of the pairs are extreme: returns at the
ends of a range that is wide beside the noise of the first estimate, rewards of 10^6. So residuals
of the two neighbours are clipped to opposite points, whatever the past.
"""

from __future__ import annotations

import inspect
import types
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from dprl.features import tabular
from dprl.mdp import Chain
from dprl.privacy import Guarantee
from dprl.privacy.gaussian import gaussian_mechanism
from dprl.private_evaluation import (
    LSW,
    NEIGHBOURS,
    Blocks,
    average_then_perturb,
    control,
    private_lstd,
    recentre_shape_clip,
    structure_free,
    sufficient_statistics,
)
from dprl.private_evaluation.recentre_shape_clip import RoundSettings
from dprl.private_evaluation.recentred_intervals import INTERVAL_SETTINGS
from dprl.private_evaluation.working_model import WorkingModel
from dprl.trajectories import FirstVisitReturns
from experiments.chapter_7 import worst_pairs
from experiments.chapter_7.listening import HeardRound, Listener, Program

_RECORDS = 2_000  # of the data sets
_RECORD = "replace one record"
_FAR: dict[str, Any] = {"f_max": worst_pairs.FAR, "f_min": -worst_pairs.FAR}
_FREE = ("counts", "statistics", "histogram 1", "round 1", "histogram 2", "round 2")
_HORIZON = 6
_HIGHEST, _ABSENT = "highest everywhere / lowest", "highest everywhere / visits nothing"


@dataclass(frozen=True)
class RoundsCase:
    """A mechanism whose rounds are Gaussian.

    Attributes
    ----------
    name : str
    program : callable
        Runs it on a data set with a generator.
    pairs : mapping
        Name: two neighbours. Each round is audited on the pair that moves it most.
    rounds : mapping
        Name of a round: its share of mu^2.
    name_of : callable
        The name of the k-th release that is heard; None for what is not released.
    neighbours : str
    whole_runs : bool
        Whether whole runs are audited as well, which takes longer.
    """

    name: str
    program: Program
    pairs: Mapping[str, tuple[Any, Any]]
    rounds: Mapping[str, float]
    name_of: Callable[[int, HeardRound], str | None]
    neighbours: str = NEIGHBOURS
    whole_runs: bool = True


def one_round(k: int, heard: HeardRound) -> str:
    """For a mechanism that has one."""
    return "one round"


def mutant(module: types.ModuleType, old: str, new: str) -> Any:
    """The module with one expression of its source changed.

    ValueError if the expression does not occur exactly once: then the source has changed, and the
    broken version with it.
    """
    source = inspect.getsource(module)
    if source.count(old) != 1:
        raise ValueError(f"{module.__name__} has {old!r} {source.count(old)} times, not once")
    changed = types.ModuleType(module.__name__)
    exec(compile(source.replace(old, new), f"{module.__name__}, changed", "exec"), vars(changed))
    return changed


def gaussian_mechanisms(epsilon: float, delta: float) -> Iterator[RoundsCase]:
    """All mechanisms with Gaussian rounds, at a promise."""
    budget: dict[str, Any] = {"epsilon": epsilon, "delta": delta}
    yield RoundsCase(
        "Gaussian mechanism",
        lambda data, rng: gaussian_mechanism(
            data, sensitivity=1.0, neighbours=_RECORD, rng=rng, **budget
        ),
        {"sum 1 / sum 0": (np.ones(1), np.zeros(1))},
        {"one round": 1.0},
        one_round,
        _RECORD,
    )
    yield RoundsCase(
        "average, then perturb (LSW, blocks)",
        lambda data, rng: average_then_perturb(
            data, LSW(tabular(2), np.ones(2), f_max=1.0), Blocks(4, 5), rng=rng, **budget
        ),
        {"alone, return 1 everywhere / visits nothing": (_alone(1.0), _alone(None))},
        {"one round": 1.0},
        one_round,
    )
    yield statistics_case("sufficient statistics", sufficient_statistics, epsilon, delta)
    yield rc_case("RC, returns", recentre_shape_clip, _returns_pairs(), epsilon, delta)
    steps = {
        _HIGHEST: worst_pairs.steps_pair(_RECORDS),
        "highest everywhere / no step": worst_pairs.steps_pair(_RECORDS, None),
    }
    yield rc_case("RC, temporal differences", recentre_shape_clip, steps, epsilon, delta)
    yield RoundsCase(
        "RC without structure",
        lambda data, rng: structure_free.recentre_clip_structure_free(
            data, Guarantee(epsilon, delta, NEIGHBOURS), rng=rng, **_FAR
        ),
        _returns_pairs(),
        dict(zip(_FREE, structure_free.SHARES, strict=True)),
        lambda k, heard: (_FREE[0], _FREE[1], *_FREE[1:])[k],
    )
    yield lstd_case("private LSTD", private_lstd, epsilon, delta)
    yield counts_case("transition counts", control, epsilon, delta)
    yield RoundsCase(
        "DP-APVI, counts of each step",
        lambda data, rng: control.dp_apvi(
            control.step_counts(data, 1, _HORIZON), np.ones((2, 1)), rng=rng, **budget
        ),
        {"stays here / stays there": worst_pairs.loops_pair(_HORIZON)},
        {"one round": 1.0},
        one_round,
    )


def broken_rounds(epsilon: float, delta: float) -> Iterator[RoundsCase]:
    """Versions with one mistake each, at a promise."""
    rc, pairs = recentre_shape_clip, _returns_pairs()
    alone = {"the only visit to a state: highest / lowest": (_rare(1.0), _rare(-1.0))}
    ordinary = {"highest everywhere / as the others": worst_pairs.returns_pair(_RECORDS, 0.0)}
    budgets = "first, *rounds = divided_mu(mu, options.shares)"
    for name, old, new, data in (
        ("R in place of 2R", "noise = 2 * plan.radius", "noise = plan.radius", pairs),
        (
            "a radius from raw data",
            "        clipped = plan.clipped(u)\n",
            "        object.__setattr__(plan, 'radius', float(plan.norms(u).max()))\n"
            "        clipped = plan.clipped(u)\n",
            ordinary,
        ),
        (
            "a centre from raw sums",
            "    centre = np.clip(model.values(theta), low, high)\n",
            "    centre = returns.statistics((low, high)).mean_returns\n",
            alone,
        ),
        (
            "shares of mu, not of mu^2",
            budgets,
            "first, *rounds = mu * np.array(options.shares)",
            pairs,
        ),
        ("all of mu in each round", budgets, "first, *rounds = [mu] * len(options.shares)", pairs),
    ):
        case = rc_case(f"broken: {name}", mutant(rc, old, new), data, epsilon, delta)
        yield replace(case, whole_runs=name == "R in place of 2R")
    yield statistics_case(
        "broken: sums not centred",
        mutant(
            sufficient_statistics,
            "(statistics.mean_returns - middle)",
            "(statistics.mean_returns - low)",
        ),
        epsilon,
        delta,
    )
    yield counts_case(
        "broken: R in place of sqrt(2) R",
        mutant(control, "sigma = math.sqrt(2) * radius", "sigma = radius"),
        epsilon,
        delta,
    )


# -- one mechanism each ---------------------------------------------------------------------------


def statistics_case(name: str, module: Any, epsilon: float, delta: float) -> RoundsCase:
    """Sufficient statistics; counts and sums are one round."""
    return RoundsCase(
        name,
        lambda data, rng: module.release_statistics(
            data, epsilon=epsilon, delta=delta, rng=rng, **_FAR
        ),
        _returns_pairs(),
        {"one round": 1.0},
        one_round,
    )


def rc_case(
    name: str,
    module: Any,
    pairs: Mapping[str, tuple[Any, Any]],
    epsilon: float,
    delta: float,
) -> RoundsCase:
    """RC: statistics, then for each round the centres of its plan, which are public, and values."""
    model = WorkingModel.equal_chain(Chain(worst_pairs.STATES))
    promise = Guarantee(epsilon, delta, NEIGHBOURS)
    shares = RoundSettings().shares

    def name_of(k: int, heard: HeardRound) -> str | None:
        if k < 2:
            return "statistics"
        return f"round {k // 2}" if k % 2 else None

    return RoundsCase(
        name,
        lambda data, rng: module.recentre_shape_clip(data, model, promise, rng=rng, **_FAR),
        pairs,
        {"statistics": shares[0], **{f"round {k}": s for k, s in enumerate(shares[1:], 1)}},
        name_of,
    )


def lstd_case(name: str, module: Any, epsilon: float, delta: float) -> RoundsCase:
    """Private LSTD: the noisy counts that find the radii are one round."""
    plan = module.LSTDRounds()
    kinds = (
        *(f"covariance {k}" for k in range(1, len(plan.covariance) + 1)),
        "matrix",
        *(f"residuals {k}" for k in range(1, len(plan.residuals) + 1)),
    )
    weights = (*plan.covariance, plan.matrix, *plan.residuals)
    each = 6  # counts before each mean

    def name_of(k: int, heard: HeardRound) -> str:
        return kinds[k // (each + 1)] if k % (each + 1) == each else "radii"

    return RoundsCase(
        name,
        lambda data, rng: module.private_lstd(data, epsilon, delta, rng),
        {
            "huge record / its negative": worst_pairs.features_pair(_RECORDS),
            "huge record / zero": worst_pairs.features_pair(_RECORDS, 0.0),
        },
        {n: w / plan.total for n, w in zip(("radii", *kinds), (plan.radii, *weights), strict=True)},
        name_of,
    )


def counts_case(name: str, module: Any, epsilon: float, delta: float) -> RoundsCase:
    """Transition counts with the radius 4."""
    return RoundsCase(
        name,
        lambda data, rng: module.private_transition_counts(
            data, 1, radius=4, epsilon=epsilon, delta=delta, rng=rng
        ),
        {"stays here / stays there": worst_pairs.loops_pair(4)},
        {"one round": 1.0},
        one_round,
    )


def _returns_pairs() -> dict[str, tuple[FirstVisitReturns, FirstVisitReturns]]:
    return {
        _HIGHEST: worst_pairs.returns_pair(_RECORDS),
        _ABSENT: worst_pairs.returns_pair(_RECORDS, None),
    }


def _alone(first: float | None) -> FirstVisitReturns:
    """Twenty records, of which at most the first visits anything."""
    returns, visited = np.zeros((20, 2)), np.zeros((20, 2), dtype=bool)
    returns[0], visited[0] = first or 0.0, first is not None
    return FirstVisitReturns(returns, visited)


def _rare(sign: float) -> FirstVisitReturns:
    """The last state is visited by the first record alone, with the highest or lowest return."""
    returns = np.zeros((_RECORDS, worst_pairs.STATES))
    visited = np.ones_like(returns, dtype=bool)
    visited[1:, -1] = False
    returns[0, -1] = sign * worst_pairs.FAR
    return FirstVisitReturns(returns, visited)


def interval_spread_mu(epsilon: float, delta: float, seed: int) -> float:
    """mu of the released spread of the intervals, exactly.

    The mechanism makes this noise a plain number, which cannot be followed: its scale is found from
    two runs in which it is 0 and 1, and the shift on neighbours with all else the same.
    """
    model = WorkingModel.equal_chain(Chain(worst_pairs.STATES))
    promise = Guarantee(epsilon, delta, NEIGHBOURS)
    first: list[Any] = []

    def ratio(data: Any, noise: float) -> float:
        rng = Listener(seed, forced=first, plain=noise)
        release = recentre_shape_clip.recentre_shape_clip(
            data, model, promise, settings=INTERVAL_SETTINGS, rng=rng, **_FAR
        )
        first[:] = first or rng.heard
        assert release.spread_ratio is not None
        return release.spread_ratio

    seen, gone = worst_pairs.steps_pair(_RECORDS, None)
    at_zero, at_one = ratio(seen, 0.0), ratio(seen, 1.0)
    return abs(ratio(gone, 0.0) - at_zero) / abs(at_one - at_zero)
