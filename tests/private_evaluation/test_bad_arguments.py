"""Every argument of the newer releases, with what nobody should give: a result or a clear error.

Clear is a TypeError or ValueError that the package raises itself; not one from inside numpy.
"""

import ast
import functools
import traceback
from pathlib import Path

import numpy as np
import pytest

import dprl
from dprl.features import tabular
from dprl.mdp import Chain
from dprl.off_policy.saddle_point import Statistics
from dprl.privacy import Guarantee
from dprl.privacy.discrete_gaussian import discrete_gaussian_sigma, grid_sensitivity, to_grid
from dprl.private_evaluation import LSW, NEIGHBOURS, control
from dprl.private_evaluation.choice import States, choose_evaluator
from dprl.private_evaluation.planning import Problem, planned_error
from dprl.private_evaluation.private_lstd import LSTDRounds, private_lstd
from dprl.private_evaluation.recentre_shape_clip import RoundSettings, recentre_shape_clip
from dprl.private_evaluation.structure_free import recentre_clip_structure_free
from dprl.private_evaluation.sufficient_statistics import release_statistics
from dprl.private_evaluation.working_model import WorkingModel
from dprl.trajectories import Batch, FirstVisitReturns

PACKAGE = Path(dprl.__file__).parent
VALUES = [
    *(float("nan"), float("inf"), -float("inf"), 0, -1, 0.5, 5e-324, 1e-300, 1e300, 1.7e308),
    *(10**12, 10**30, None, "text", True, 1j, [], [1, 2], {}, object(), np.float32(0.3)),
    *(np.array([np.nan]), np.array(0.3), np.zeros((0, 0)), np.ones((2, 2, 2))),
    np.ma.array([1.0, 2.0], mask=[False, True]),
]

BATCH = Batch.from_lists([[(0, 0, 0.5), (1, 0, 0.2)], [(0, 0, 1.0), (1, 0, 0.0)]], 4)
RETURNS = FirstVisitReturns(np.ones((4, 3)), np.ones((4, 3), bool))
SYSTEM = Statistics(
    *(
        np.tile(np.array(x), (1200,) + (1,) * np.ndim(x))
        for x in ([[0.5, -0.25], [-0.25, 0.5]], [0.5, 0.0], [[0.5, 0.0], [0.0, 0.5]])
    )
)
PROMISE = {"epsilon": 1.0, "delta": 1e-5}
TOTAL = Guarantee(1.0, 1e-6, NEIGHBOURS)
COUNTS = control.PrivateCounts(np.ones((2, 1, 2)), 1.0, TOTAL)
RANGE = {"f_max": 1.0, "f_min": 0.0}
RANDOM = {"rng": None}  # a new generator for each call

CALLS = {
    control.private_transition_counts: {
        "batch": BATCH,
        "n_actions": 1,
        "radius": 2.0,
        **PROMISE,
        **RANDOM,
    },
    control.step_counts: {"batch": BATCH, "n_actions": 1, "horizon": 3},
    control.dp_apvi: {
        "counts": np.ones((2, 2, 1, 2)),
        "reward": np.zeros((2, 1)),
        "pessimism": None,
        **PROMISE,
        **RANDOM,
    },
    control.thresholded_policy: {
        "released": COUNTS,
        "reward": np.zeros((2, 1)),
        "discount": 0.9,
        "threshold": 3.0,
        "possible": None,
        "terminal": None,
    },
    private_lstd: {"statistics": SYSTEM, **PROMISE, **RANDOM, "rounds": None},
    LSTDRounds: dict.fromkeys(("covariance", "matrix", "residuals", "radii", "clipped")),
    RoundSettings: dict.fromkeys(
        ("shares", "spread_share", "bias_weight", "radius_factor", "simulated", "groups")
    ),
    recentre_shape_clip: {
        "data": RETURNS,
        "model": WorkingModel.known(Chain(3).process),
        "guarantee": TOTAL,
        **RANGE,
        **RANDOM,
        "settings": RoundSettings(simulated=50, groups=1),
    },
    recentre_clip_structure_free: {
        "data": RETURNS,
        "guarantee": TOTAL,
        "shares": (0.1, 0.1, 0.1, 0.1),
        **RANGE,
        **RANDOM,
    },
    release_statistics: {
        "data": RETURNS,
        "expected_visits": None,
        **PROMISE,
        **RANGE,
        **RANDOM,
    },
    choose_evaluator: {"problem": States([0.1] * 4, 0.3), "n": 1000, **PROMISE},
    planned_error: {
        "problem": Problem(1000, [1.0] * 4, LSW(tabular(4), [1.0] * 4, f_max=1)),
        "subsamples": 10,
        "size": 5,
        **PROMISE,
    },
    discrete_gaussian_sigma: {"sensitivity": 1.0, "dimension": 3, **PROMISE},
    to_grid: {"records": [[0.1, 0.2]], "grid": 0.1},
    grid_sensitivity: {"sensitivity": 1.0, "grid": 0.1, "dimension": 2},
}
CASES = [
    pytest.param(call, name, id=f"{call.__name__}-{name}")
    for call, arguments in CALLS.items()
    for name in arguments
]


@functools.cache
def raised(path: str) -> set[int]:
    """Lines of a module on which an exception is raised."""
    tree = ast.parse(Path(path).read_bytes())
    found = (n for n in ast.walk(tree) if isinstance(n, ast.Raise))
    return {line for n in found for line in range(n.lineno, n.end_lineno + 1)}


def error_of(call, arguments: dict) -> Exception | None:
    try:
        call(**arguments)
    except Exception as error:
        return error
    return None


def is_clear(error: Exception) -> bool:
    last = traceback.extract_tb(error.__traceback__)[-1]
    own = PACKAGE in Path(last.filename).parents
    return (
        isinstance(error, TypeError | ValueError) and own and last.lineno in raised(last.filename)
    )


@pytest.mark.parametrize(("call", "name"), CASES)
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_a_result_or_a_clear_error(call, name):
    defaults = {k: v for k, v in CALLS[call].items() if v is not None}
    for value in VALUES:
        arguments = {**defaults, name: value}
        if "rng" in CALLS[call] and name != "rng":
            arguments["rng"] = np.random.default_rng(0)
        found = error_of(call, arguments)
        assert found is None or is_clear(found), f"{name}={value!r}: {found!r}"


@pytest.mark.parametrize("epsilon", [5e-324, 1e-300, 1e5, 1.7e308])
def test_any_promise_in_rounds(epsilon):
    promise = Guarantee(epsilon, 1e-6, NEIGHBOURS)
    model, rounds = WorkingModel.known(Chain(3).process), RoundSettings(simulated=50, groups=1)
    rng = np.random.default_rng(0)
    found = recentre_shape_clip(RETURNS, model, promise, f_max=1.0, settings=rounds, rng=rng)
    assert np.isfinite(found.values).all()
    free = recentre_clip_structure_free(RETURNS, promise, f_max=1.0, rng=rng)
    assert np.isfinite(free.theta).all()
