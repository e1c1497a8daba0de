"""Bad input: each case is a clear error that names the argument and what is expected."""

import numpy as np
import pytest

from dprl import evaluation, features, mdp, privacy, private_evaluation, trajectories
from dprl.bounds import subsampled_evaluation
from dprl.mdp import Chain, MarkovRewardProcess
from dprl.off_policy.policies import importance_ratios
from dprl.off_policy.population import exact_saddle_point
from dprl.off_policy.saddle_point import trajectory_weights
from dprl.privacy import GaussianSmoothing, Guarantee
from dprl.simulators.hiv import HIV
from dprl.stopping import initial_sample_size, private_law, subset_sums
from dprl.trajectories import Batch, FirstVisitReturns, VisitStatistics

NAN, INF = float("nan"), float("inf")
RNG = np.random.default_rng(0)
EYE, ONES = np.eye(3), np.ones(3)
SEEN = np.ones((2, 3), bool)
RETURNS = FirstVisitReturns(np.full((2, 3), 0.5), SEEN)
DATA = VisitStatistics([2, 2, 1], [0.5, 0.25, 1.0], 2, bounds=(0, 1))
UNCLIPPED = VisitStatistics([2, 2, 1], [0.5, 0.25, 1.0], 2)
BATCH = Batch(states=[0, 1, 1], rewards=[0.0, 1.0, 2.0], lengths=[2, 1], n_states=3)


def process(**change):
    given = {"transition": [[0.5, 0.5], [0, 1]], "reward": [[0, 1], [0, 0]], "discount": 0.9}
    return MarkovRewardProcess(**{**given, "start": [1, 0], **change})


def batch(**change):
    given = {"states": [0, 1, 1], "rewards": [0.0, 1.0, 2.0], "lengths": [2, 1], "n_states": 3}
    return Batch(**{**given, **change})


def lists(*rows, n_states=3):
    return Batch.from_lists(rows, n_states)


def statistics(**change):
    given = {"counts": [2, 1], "mean_returns": [0.5, 1.0], "n_trajectories": 2}
    return VisitStatistics(**{**given, **change})


def gaussian(**change):
    given = {"sensitivity": 1.0, "epsilon": 0.5, "delta": 0.1, "neighbours": "replace one row"}
    return privacy.gaussian_mechanism(**{"value": [0.0], **given, "rng": RNG, **change})


def dp_lsw(**change):
    return _release(private_evaluation.dp_lsw, private_evaluation.LSW, {}, change)


def dp_lsl(**change):
    return _release(private_evaluation.dp_lsl, private_evaluation.LSL, {"ridge": 9.0}, change)


def _release(algorithm, kind, given, change):
    given = {"features": EYE, "weights": ONES, "f_max": 1, **given}
    promise = {"data": DATA, "epsilon": 1, "delta": 0.1, "rng": RNG}
    promise |= {name: x for name, x in change.items() if name in promise}
    given |= {name: x for name, x in change.items() if name not in promise}
    return algorithm(estimator=kind(**given), **promise)


def lsl_bound(**change):
    given = {"counts": [2, 1], "weights": [1, 1], "n_trajectories": 2, "coefficient": 1.0}
    return private_evaluation.lsl_smooth_bound(**{**given, "beta": 0.1, **change})


def constant_returns(value):
    return FirstVisitReturns([[value]], [[True]])


ENDLESS = MarkovRewardProcess([[0.0, 1.0], [1.0, 0.0]], np.zeros((2, 2)), 0.9, [1, 0])
AT_END = MarkovRewardProcess([[0.0, 1.0], [0.0, 1.0]], np.zeros((2, 2)), 0.9, [0.5, 0.5])

# what is wrong: (call, exception, words that the message must hold)
MDP = {
    "empty process": (
        lambda: process(transition=np.zeros((0, 0))),
        ValueError,
        "transition must be sq",
    ),
    "transition not square": (
        lambda: process(transition=[[0.5, 0.5]]),
        ValueError,
        "transition must be square",
    ),
    "transition a vector": (
        lambda: process(transition=[1.0]),
        ValueError,
        r"transition must have 2 dim",
    ),
    "transition NaN": (
        lambda: process(transition=[[NAN, 1], [0, 1]]),
        ValueError,
        "transition holds NaN",
    ),
    "transition text": (
        lambda: process(transition=[["a", "b"]] * 2),
        ValueError,
        "transition must be an array of numbers",
    ),
    "ragged transition": (
        lambda: process(transition=[[1.0], [0.0, 1.0]]),
        ValueError,
        "transition must be an array of numbers",
    ),
    "row not summing to one": (
        lambda: process(transition=[[0.5, 0.4], [0, 1]]),
        ValueError,
        "row 0 of transition sums to 0.9; rows must sum to one",
    ),
    "negative probability": (
        lambda: process(transition=[[1.5, -0.5], [0, 1]]),
        ValueError,
        "transition must not hold negative probabilities",
    ),
    "reward of another shape": (
        lambda: process(reward=[0, 1]),
        ValueError,
        "reward must have 2 dim",
    ),
    "reward too large": (
        lambda: process(reward=np.zeros((3, 3))),
        ValueError,
        "reward must have the shape of transition",
    ),
    "process reward infinite": (
        lambda: process(reward=[[0, INF], [0, 0]]),
        ValueError,
        "reward holds NaN or infinite",
    ),
    "discount one": (lambda: process(discount=1.0), ValueError, r"discount must lie in \[0, 1\)"),
    "discount negative": (
        lambda: process(discount=-0.1),
        ValueError,
        r"discount must lie in \[0, 1\)",
    ),
    "discount NaN": (lambda: process(discount=NAN), ValueError, "discount must be finite"),
    "discount text": (
        lambda: process(discount="0.9"),
        TypeError,
        "discount must be a real number",
    ),
    "start too long": (
        lambda: process(start=[1, 0, 0]),
        ValueError,
        "start must have 2 entries",
    ),
    "start not summing to one": (
        lambda: process(start=[0.5, 0.4]),
        ValueError,
        "start must be non-negative and sum to one",
    ),
    "start negative": (
        lambda: process(start=[1.5, -0.5]),
        ValueError,
        "start must be non-negative and sum to one",
    ),
    "terminal numbers": (
        lambda: process(terminal=[0, 1]),
        ValueError,
        "terminal must be 2 booleans",
    ),
    "terminal not absorbing": (
        lambda: process(terminal=[True, False]),
        ValueError,
        "terminal state 0 must stay",
    ),
    "values of another space": (
        lambda: process().bellman([0.0] * 3),
        ValueError,
        "values must have 2 entries",
    ),
    "visits without an end": (
        ENDLESS.visit_probabilities,
        ValueError,
        r"states \[0, 1\] never reach a terminal",
    ),
    "chain of one state": (lambda: Chain(1), ValueError, "n_states must be at least 2"),
    "chain of 4.0 states": (lambda: Chain(4.0), TypeError, "n_states must be an integer"),
    "chain of True states": (lambda: Chain(True), TypeError, "n_states must be an integer"),
    "chain that never moves": (
        lambda: Chain(4, stay=1.0),
        ValueError,
        r"stay must lie in \[0, 1\)",
    ),
    "chain stay negative": (
        lambda: Chain(4, stay=-0.1),
        ValueError,
        r"stay must lie in \[0, 1\)",
    ),
    "chain discount one": (
        lambda: Chain(4, discount=1),
        ValueError,
        r"discount must lie in \[0, 1\)",
    ),
    "chain start unknown": (
        lambda: Chain(4, start="last"),
        ValueError,
        "start must be 'first' or 'uniform'",
    ),
    "chain convention unknown": (
        lambda: Chain(4, convention="E"),
        ValueError,
        "convention must be one of",
    ),
}

BATCHES = {
    "no trajectory": (lists, ValueError, "at least one trajectory"),
    "empty trajectory": (
        lambda: lists([(0, 0, 1.0)], []),
        ValueError,
        "trajectory 1 is empty; each needs at least one step",
    ),
    "not an iterable": (
        lambda: Batch.from_lists(7, 3),
        ValueError,
        r"trajectories must be an iterable of lists of \(state, action, reward\)",
    ),
    "step a pair": (
        lambda: lists([(0, 1.0)]),
        ValueError,
        r"step 0 of trajectory 0 must be \(state, action, reward\)",
    ),
    "step a number": (
        lambda: lists([5]),
        ValueError,
        r"must be \(state, action, reward\)",
    ),
    "state too large": (
        lambda: lists([(3, 0, 1.0)]),
        ValueError,
        r"state 3 is outside the space 0 \.\. 2",
    ),
    "state negative": (
        lambda: lists([(-1, 0, 1.0)]),
        ValueError,
        r"state -1 is outside the space 0 \.\. 2",
    ),
    "state a float": (
        lambda: lists([(1.0, 0, 1.0)]),
        ValueError,
        "states must be integers, got float64",
    ),
    "state a bool": (
        lambda: lists([(True, 0, 1.0)]),
        ValueError,
        "states must be integers, got bool",
    ),
    "state a tuple": (
        lambda: lists([((0, 1), 0, 1.0), (0, 0, 1.0)]),
        ValueError,
        "states must be an array of integers",
    ),
    "action a float": (
        lambda: lists([(0, 0.5, 1.0)]),
        ValueError,
        "actions must be integers",
    ),
    "reward NaN": (lambda: lists([(0, 0, NAN)]), ValueError, "rewards holds NaN or infinite"),
    "reward infinite": (
        lambda: lists([(0, 0, INF)]),
        ValueError,
        "rewards holds NaN or infinite",
    ),
    "reward missing": (lambda: lists([(0, 0, None)]), ValueError, "rewards holds NaN"),
    "reward text": (
        lambda: lists([(0, 0, "1")]),
        ValueError,
        "rewards must be an array of numbers",
    ),
    "reward complex": (
        lambda: lists([(0, 0, 1j)]),
        ValueError,
        "rewards must be an array of numbers",
    ),
    "lengths beyond the steps": (
        lambda: batch(lengths=[2, 2]),
        ValueError,
        "states holds 3 steps, but lengths sum to 4",
    ),
    "length zero": (lambda: batch(lengths=[3, 0]), ValueError, "trajectory 1 is empty"),
    "length negative": (lambda: batch(lengths=[4, -1]), ValueError, "trajectory 1 is empty"),
    "lengths floats": (
        lambda: batch(lengths=[2.0, 1.0]),
        ValueError,
        "lengths must be integers",
    ),
    "rewards too short": (
        lambda: batch(rewards=[0.0, 1.0]),
        ValueError,
        "rewards must have one entry per step, 3",
    ),
    "actions too short": (
        lambda: batch(actions=[0]),
        ValueError,
        "actions must have one entry per step, 3",
    ),
    "states a matrix": (
        lambda: batch(states=[[0, 1, 1]]),
        ValueError,
        "states must have 1 dim",
    ),
    "space empty": (lambda: batch(n_states=0), ValueError, "n_states must be at least 1"),
    "space a bool": (lambda: batch(n_states=True), TypeError, "n_states must be an integer"),
    "replace outside the batch": (
        lambda: BATCH.replace(2, [(0, 0, 1.0)]),
        ValueError,
        r"index 2 is outside the batch 0 \.\. 1",
    ),
    "replace from the end": (
        lambda: BATCH.replace(-1, [(0, 0, 1.0)]),
        ValueError,
        "index must be at least 0",
    ),
    "replace by nothing": (lambda: BATCH.replace(0, []), ValueError, "is empty"),
    "first visits of a list": (
        lambda: trajectories.first_visit_returns([[(0, 0, 1.0)]], 0.9),
        TypeError,
        "batch must be a Batch, got list",
    ),
    "statistics of a list": (
        lambda: trajectories.visit_statistics([[(0, 0, 1.0)]], 0.9),
        TypeError,
        "batch must be a Batch, got list",
    ),
    "statistics with discount one": (
        lambda: trajectories.visit_statistics(BATCH, 1.0),
        ValueError,
        r"discount must lie in \[0, 1\)",
    ),
    "statistics in an empty range": (
        lambda: trajectories.visit_statistics(BATCH, 0.9, (1, 0)),
        ValueError,
        "lower < upper",
    ),
    "returns with discount one": (
        lambda: trajectories.discounted_returns(BATCH, 1),
        ValueError,
        r"discount must lie in \[0, 1\)",
    ),
    "no returns": (
        lambda: FirstVisitReturns(np.zeros((0, 2)), np.zeros((0, 2), bool)),
        ValueError,
        "at least one trajectory and one state",
    ),
    "single return NaN": (lambda: constant_returns(NAN), ValueError, "returns holds NaN"),
    "visited numbers": (
        lambda: FirstVisitReturns([[0.5]], [[1]]),
        ValueError,
        "visited must be booleans of shape",
    ),
    "return without a visit": (
        lambda: FirstVisitReturns([[0.5]], [[False]]),
        ValueError,
        "returns must be 0 where a state is not visited",
    ),
    "clip to an empty range": (
        lambda: RETURNS.clipped(1.0, 1.0),
        ValueError,
        "range of returns needs lower < upper",
    ),
    "clip to infinity": (
        lambda: RETURNS.statistics((0, INF)),
        ValueError,
        "upper must be finite",
    ),
    "bounds not a pair": (
        lambda: RETURNS.statistics(1.0),
        ValueError,
        r"bounds must be a pair \(lower, upper\)",
    ),
}

STATISTICS = {
    "count beyond m": (
        lambda: statistics(counts=[3, 1]),
        ValueError,
        r"counts must lie in 0 \.\. 2, the number of trajectories",
    ),
    "count negative": (
        lambda: statistics(counts=[-1, 1]),
        ValueError,
        r"counts must lie in 0 \.\. 2",
    ),
    "counts floats": (
        lambda: statistics(counts=[1.0, 2.0]),
        ValueError,
        "counts must be integers",
    ),
    "shapes differ": (
        lambda: statistics(mean_returns=[0.5]),
        ValueError,
        "counts and mean_returns must have the same shape",
    ),
    "no states": (
        lambda: statistics(counts=[], mean_returns=[]),
        ValueError,
        "counts and mean_returns must have the same shape",
    ),
    "mean NaN": (
        lambda: statistics(mean_returns=[0.5, NAN]),
        ValueError,
        "mean_returns holds NaN",
    ),
    "mean without a visit": (
        lambda: statistics(counts=[2, 0]),
        ValueError,
        "mean_returns must be 0 where a state was never visited",
    ),
    "mean outside the bounds": (
        lambda: statistics(bounds=(0, 0.9)),
        ValueError,
        r"mean_returns leave the declared range \[0.0, 0.9\]",
    ),
    "bounds reversed": (
        lambda: statistics(bounds=(1, 0)),
        ValueError,
        "needs lower < upper",
    ),
    "bounds text": (
        lambda: statistics(bounds="01"),
        ValueError,
        "bounds must be a pair",
    ),
    "m zero": (
        lambda: statistics(n_trajectories=0),
        ValueError,
        "n_trajectories must be at least 1",
    ),
    "m a float": (
        lambda: statistics(n_trajectories=2.0),
        TypeError,
        "n_trajectories must be an integer",
    ),
    "merge with other bounds": (
        lambda: DATA.merged(UNCLIPPED),
        ValueError,
        "same clipping range",
    ),
    "merge with a list": (
        lambda: DATA.merged([2, 2, 1]),
        TypeError,
        "other must be a VisitStatistics, got list",
    ),
}

SIMULATION = {
    "endless process": (
        lambda: trajectories.simulate(ENDLESS, 2, RNG),
        ValueError,
        r"states \[0, 1\] never reach a terminal state",
    ),
    "start at the end": (
        lambda: trajectories.simulate(AT_END, 2, RNG),
        ValueError,
        "record_terminal=True",
    ),
    "no trajectories": (
        lambda: trajectories.simulate(process(), 0, RNG),
        ValueError,
        "n_trajectories must be at least 1",
    ),
    "too long": (
        lambda: trajectories.simulate(Chain(9), 9, RNG, max_steps=2),
        RuntimeError,
        "have not ended after max_steps = 2",
    ),
    "statistics of no trajectories": (
        lambda: trajectories.simulate_visit_statistics(process(), 0, RNG),
        ValueError,
        "n_trajectories must be at least 1",
    ),
    "statistics of something else": (
        lambda: trajectories.simulate_visit_statistics(0.5, 9, RNG),
        TypeError,
        "process must be a MarkovRewardProcess",
    ),
    "something else in place of a process": (
        lambda: trajectories.simulate(0.5, 9, RNG),
        TypeError,
        "process must be a MarkovRewardProcess",
    ),
    "process in place of a chain": (
        lambda: trajectories.chain_first_visit_returns(process(), 2, RNG),
        TypeError,
        "chain must be a Chain, got MarkovRewardProcess",
    ),
    "process for the statistics": (
        lambda: trajectories.chain_visit_statistics(process(), 2, RNG),
        TypeError,
        "chain must be a Chain",
    ),
    "chain statistics of 1e3 trajectories": (
        lambda: trajectories.chain_visit_statistics(Chain(4), 1e3, RNG),
        TypeError,
        "n_trajectories must be an integer",
    ),
    "no batches": (
        lambda: trajectories.chain_visit_statistics(Chain(4), 2, RNG, n_batches=0),
        ValueError,
        "n_batches must be at least 1",
    ),
    "chain clipped to nothing": (
        lambda: trajectories.chain_visit_statistics(Chain(4), 2, RNG, bounds=(1, 0)),
        ValueError,
        "needs lower < upper",
    ),
}

FEATURES = {
    "features zero": (lambda: features.rank(np.zeros((3, 2))), ValueError, "features must not all"),
    "features NaN": (
        lambda: features.operator_norm([[NAN]]),
        ValueError,
        "features holds NaN",
    ),
    "features complex": (
        lambda: features.operator_norm(np.array([[1j]])),
        ValueError,
        "features must be an array of numbers",
    ),
    "features a vector": (
        lambda: features.operator_norm([1.0, 2.0]),
        ValueError,
        "features must have 2 dim",
    ),
    "features without columns": (
        lambda: features.rank(np.zeros((3, 0))),
        ValueError,
        "features must have states and columns",
    ),
    "features of other states": (
        lambda: features.feature_matrix(EYE, 4),
        ValueError,
        "features must have one row per state, 4, got 3",
    ),
    "no table": (lambda: features.tabular(0), ValueError, "n_states must be at least 1"),
    "groups of none": (lambda: features.aggregation(4, 0), ValueError, "size must be at least 1"),
    "groups of 2.0": (lambda: features.aggregation(4, 2.0), TypeError, "size must be an integer"),
    "rank-deficient": (
        lambda: features.pseudo_inverse_norm(np.ones((3, 2)), ONES),
        ValueError,
        "rank 1 below d = 2",
    ),
}

EVALUATION = {
    "lsw of a list": (
        lambda: evaluation.lsw([0.5, 1.0], EYE, ONES),
        TypeError,
        "statistics must be a VisitStatistics, got list",
    ),
    "lsl of returns": (
        lambda: evaluation.lsl(RETURNS, EYE, ONES, 1.0),
        TypeError,
        "statistics must be a VisitStatistics, got FirstVisitReturns",
    ),
    "risk of statistics": (
        lambda: evaluation.empirical_risk(DATA, EYE, ONES, ONES),
        TypeError,
        "returns must be a FirstVisitReturns, got VisitStatistics",
    ),
    "lsw rank-deficient": (
        lambda: evaluation.lsw(DATA, np.ones((3, 2)), ONES),
        ValueError,
        "rank 1 below d = 2",
    ),
    "weights negative": (
        lambda: evaluation.lsw(DATA, EYE, [1, 1, -1]),
        ValueError,
        "weights must not be negative",
    ),
    "weights zero": (
        lambda: evaluation.lsw(DATA, EYE, [0, 0, 0]),
        ValueError,
        "weights must not all be zero",
    ),
    "weights NaN": (
        lambda: evaluation.lsw(DATA, EYE, [1, 1, NAN]),
        ValueError,
        "weights holds NaN",
    ),
    "weights too short": (
        lambda: evaluation.lsw(DATA, EYE, [1, 1]),
        ValueError,
        "weights must have one entry per state, 3, got 2",
    ),
    "weights a number": (
        lambda: evaluation.lsw(DATA, EYE, 1.0),
        ValueError,
        "weights must have 1 dim",
    ),
    "rho above one": (
        lambda: evaluation.lsl(DATA, EYE, [1, 1, 1.5], 1.0),
        ValueError,
        "rho must be at most 1",
    ),
    "ridge zero": (
        lambda: evaluation.lsl(DATA, EYE, ONES, 0.0),
        ValueError,
        "ridge must be positive",
    ),
    "ridge infinite": (
        lambda: evaluation.lsl(DATA, EYE, ONES, INF),
        ValueError,
        "ridge must be finite",
    ),
    "theta too short": (
        lambda: evaluation.weighted_risk(DATA, EYE, [0.0], ONES),
        ValueError,
        "theta must have 3 entries",
    ),
    "theta NaN": (
        lambda: evaluation.ridge_risk(RETURNS, EYE, [0, 0, NAN], ONES, 1.0),
        ValueError,
        "theta holds NaN",
    ),
    "theta a matrix": (
        lambda: evaluation.empirical_risk(RETURNS, EYE, np.zeros((2, 3)), ONES),
        ValueError,
        "theta must have 1 dim",
    ),
    "estimates of other states": (
        lambda: evaluation.rmse([0.0, 1.0], [0.0, 1.0, 2.0]),
        ValueError,
        "estimates must have 3 entries",
    ),
    "rmse weights zero": (
        lambda: evaluation.rmse([0.0], [0.0], weights=[0.0]),
        ValueError,
        "weights must not all be zero",
    ),
}

PRIVACY = {
    "guarantee epsilon zero": (
        lambda: Guarantee(0, 0.1, "replace one row"),
        ValueError,
        "epsilon must be positive",
    ),
    "guarantee delta one": (
        lambda: Guarantee(1, 1, "replace one row"),
        ValueError,
        r"delta must lie in \[0, 1\)",
    ),
    "guarantee without a relation": (
        lambda: Guarantee(1, 0.1, " "),
        ValueError,
        "neighbours must say the relation",
    ),
    "guarantee relation None": (
        lambda: Guarantee(1, 0.1, None),
        ValueError,
        "neighbours must say the relation",
    ),
    "lemma above five": (
        lambda: GaussianSmoothing(5.1, 0.1, 2),
        ValueError,
        "Lemma 3.1 is proved for epsilon <= 5, got 5.1",
    ),
    "lemma dimension zero": (
        lambda: GaussianSmoothing(1, 0.1, 0),
        ValueError,
        "dimension must be at least 1",
    ),
    "lemma dimension a bool": (
        lambda: GaussianSmoothing(1, 0.1, True),
        TypeError,
        "dimension must be an integer",
    ),
    "lemma delta zero": (
        lambda: GaussianSmoothing(1, 0.0, 2),
        ValueError,
        "delta must lie strictly between 0 and 1",
    ),
    "classical at one": (
        lambda: privacy.classical_gaussian_sigma(1, 1.0, 0.1),
        ValueError,
        "proved for epsilon < 1, got 1.0; use analytic_gaussian_sigma",
    ),
    "sensitivity zero": (
        lambda: privacy.analytic_gaussian_sigma(0, 1.0, 0.1),
        ValueError,
        "sensitivity must be positive",
    ),
    "profile sensitivity negative": (
        lambda: privacy.gaussian_delta(-1, 1.0, 0.1),
        ValueError,
        "sensitivity must not be negative",
    ),
    "profile without noise": (
        lambda: privacy.gaussian_delta(1, 0.0, 0.1),
        ValueError,
        "sigma must be positive",
    ),
    "profile epsilon negative": (
        lambda: privacy.gaussian_delta(1, 1.0, -0.1),
        ValueError,
        "epsilon must not be negative",
    ),
    "mechanism value NaN": (lambda: gaussian(value=[NAN]), ValueError, "value holds NaN"),
    "mechanism delta one": (
        lambda: gaussian(delta=1),
        ValueError,
        "delta must lie strictly between",
    ),
    "mechanism seed": (
        lambda: gaussian(rng=7),
        TypeError,
        r"rng must be a numpy.random.Generator .* got int",
    ),
    "mechanism without a relation": (
        lambda: gaussian(neighbours=""),
        ValueError,
        "neighbours must say",
    ),
    "smooth bound beta zero": (
        lambda: privacy.smooth_upper_bound(lambda k: 1.0, 0.0, 3),
        ValueError,
        "beta must be positive",
    ),
    "smooth bound last negative": (
        lambda: privacy.smooth_upper_bound(lambda k: 1.0, 0.1, -1),
        ValueError,
        "last must be at least 0",
    ),
}

BOUNDS = {
    "lsw counts negative": (
        lambda: private_evaluation.lsw_smooth_bound([-1, 2], [1, 1], 0.1),
        ValueError,
        "counts must not be negative",
    ),
    "lsw counts NaN": (
        lambda: private_evaluation.lsw_smooth_bound([NAN, 2], [1, 1], 0.1),
        ValueError,
        "counts holds NaN",
    ),
    "lsw counts a number": (
        lambda: private_evaluation.lsw_smooth_bound(3, [1], 0.1),
        ValueError,
        "counts must have one entry per state",
    ),
    "lsw weights of other states": (
        lambda: private_evaluation.lsw_smooth_bound([1, 2], [1], 0.1),
        ValueError,
        "weights must have one entry per state, 2, got 1",
    ),
    "lsw beta negative": (
        lambda: private_evaluation.lsw_smooth_bound([1, 2], [1, 1], -0.1),
        ValueError,
        "beta must be positive",
    ),
    "lsw distance negative": (
        lambda: private_evaluation.lsw_local_bound([1, 2], [1, 1], -1),
        ValueError,
        "distance must not be negative",
    ),
    "lsl counts beyond m": (
        lambda: lsl_bound(counts=[3, 1]),
        ValueError,
        "counts must not exceed the 2 trajectories",
    ),
    "lsl coefficient zero": (
        lambda: lsl_bound(coefficient=0.0),
        ValueError,
        "coefficient must be positive",
    ),
    "lsl step ratio": (
        lambda: lsl_bound(step_ratio=2.1),
        ValueError,
        r"step_ratio must lie in \[1, 2\]",
    ),
    "lsl rho above one": (lambda: lsl_bound(weights=[2, 1]), ValueError, "rho must be at most 1"),
    "lsl m a float": (
        lambda: lsl_bound(n_trajectories=2.0),
        TypeError,
        "n_trajectories must be an integer",
    ),
    "lsl beta NaN": (lambda: lsl_bound(beta=NAN), ValueError, "beta must be finite"),
    "lsl distance negative": (
        lambda: private_evaluation.lsl_local_bound([1, 2], [1, 1], 2, 1.0, -1),
        ValueError,
        "distance must not be negative",
    ),
    "spread of an empty range": (
        lambda: private_evaluation.return_spread(1, 1),
        ValueError,
        "needs lower < upper",
    ),
}

SINGLE = {
    "lsl ridge at its bound": (
        lambda: dp_lsl(ridge=1.0),
        ValueError,
        r"ridge must exceed \|\|Phi\|\|\^2 \|\|rho\|\|_inf = 1, got 1.0",
    ),
    "lsl ridge below its bound": (lambda: dp_lsl(ridge=0.5), ValueError, "ridge must exceed"),
    "lsl ridge negative": (lambda: dp_lsl(ridge=-1.0), ValueError, "ridge must be positive"),
    "lsl ridge NaN": (lambda: dp_lsl(ridge=NAN), ValueError, "ridge must be finite"),
    "lsl ridge a list": (lambda: dp_lsl(ridge=[9.0]), TypeError, "ridge must be a real number"),
    "lsl rho over one": (
        lambda: dp_lsl(weights=[1, 1, 2]),
        ValueError,
        "rho must be at most 1",
    ),
    "lsw features rank-deficient": (
        lambda: dp_lsw(features=np.ones((3, 2))),
        ValueError,
        "rank 1 below d = 2.*allow_rank_deficient=True",
    ),
    "lsw state without weight": (
        lambda: dp_lsw(weights=[1, 0, 1]),
        ValueError,
        "rank 2 below d = 3",
    ),
}

# what both private algorithms refuse: (changed arguments, exception, words)
BOTH = {
    "data a list": ({"data": [0.5, 1.0, 1.0]}, TypeError, "data must be FirstVisitReturns or Vis"),
    "data a batch": ({"data": BATCH}, TypeError, "data must be FirstVisitReturns or VisitStat"),
    "data not clipped": ({"data": UNCLIPPED}, ValueError, "clip every single return before"),
    "data clipped too wide": ({"f_max": 0.5}, ValueError, r"not inside \[0, 0.5\]; clip every"),
    "f_max zero": ({"f_max": 0}, ValueError, "f_max must be positive"),
    "f_max negative": ({"f_max": -1.0}, ValueError, "f_max must be positive"),
    "f_max infinite": ({"f_max": INF}, ValueError, "f_max must be finite"),
    "f_max a bool": ({"f_max": True}, TypeError, "f_max must be a real number"),
    "f_min above f_max": ({"f_min": 2.0}, ValueError, "f_min must be below f_max, got"),
    "f_min equal f_max": ({"f_min": 1.0}, ValueError, "f_min must be below f_max, got"),
    "f_min NaN": ({"f_min": NAN}, ValueError, "f_min must be finite, got nan"),
    "epsilon zero": ({"epsilon": 0}, ValueError, "epsilon must be positive"),
    "epsilon negative": ({"epsilon": -1}, ValueError, "epsilon must be positive"),
    "epsilon NaN": ({"epsilon": NAN}, ValueError, "epsilon must be finite"),
    "epsilon infinite": ({"epsilon": INF}, ValueError, "epsilon must be finite"),
    "epsilon text": ({"epsilon": "0.1"}, TypeError, "epsilon must be a real number"),
    "epsilon a bool": ({"epsilon": True}, TypeError, "epsilon must be a real number"),
    "epsilon None": ({"epsilon": None}, TypeError, "epsilon must be a real number"),
    "epsilon above five": ({"epsilon": 6}, ValueError, "proved for epsilon <= 5, got 6"),
    "delta zero": ({"delta": 0}, ValueError, "delta must lie strictly between 0 and 1"),
    "delta one": ({"delta": 1}, ValueError, "delta must lie strictly between 0 and 1"),
    "delta negative": ({"delta": -0.1}, ValueError, "delta must lie strictly between"),
    "delta NaN": ({"delta": NAN}, ValueError, "delta must be finite"),
    "delta complex": ({"delta": 0.1j}, TypeError, "delta must be a real number"),
    "weights negative": ({"weights": [1, -1, 1]}, ValueError, "weights must not be negative"),
    "weights all zero": ({"weights": [0, 0, 0]}, ValueError, "weights must not all be zero"),
    "weights wrong length": ({"weights": [1, 1]}, ValueError, "weights must have one entry per"),
    "weights NaN": ({"weights": [1, NAN, 1]}, ValueError, "weights holds NaN"),
    "weights text": ({"weights": ["a", "b", "c"]}, ValueError, "weights must be an array of num"),
    "features zero": ({"features": np.zeros((3, 2))}, ValueError, "features must not all be zero"),
    "features NaN": ({"features": EYE * NAN}, ValueError, "features holds NaN"),
    "features wrong rows": (
        {"features": np.eye(4), "weights": np.ones(4)},
        ValueError,
        "one row per state, 3, got 4",
    ),
    "features a vector": ({"features": ONES}, ValueError, "features must have 2 dim"),
    "rng a seed": ({"rng": 1}, TypeError, r"rng must be a numpy.random.Generator.*got int"),
    "rng None": ({"rng": None}, TypeError, "rng must be a numpy.random.Generator.*got NoneType"),
    "rng legacy": (
        {"rng": np.random.RandomState(0)},
        TypeError,
        "rng must be a numpy.random.Generator.*got RandomState",
    ),
}

TABLES = (MDP, BATCHES, STATISTICS, SIMULATION, FEATURES, EVALUATION, PRIVACY, BOUNDS, SINGLE)
CASES = [pytest.param(*case, id=name) for table in TABLES for name, case in table.items()]
PRIVATE = [pytest.param(*case, id=name) for name, case in BOTH.items()]

RANDOM = {
    "simulate": lambda rng: trajectories.simulate(process(), 2, rng),
    "simulated statistics": lambda rng: trajectories.simulate_visit_statistics(process(), 2, rng),
    "chain returns": lambda rng: trajectories.chain_first_visit_returns(Chain(4), 2, rng),
    "chain statistics": lambda rng: trajectories.chain_visit_statistics(Chain(4), 2, rng),
    "gaussian mechanism": lambda rng: gaussian(rng=rng),
    "perturb": lambda rng: GaussianSmoothing(1, 0.1, 1).perturb(np.zeros(1), np.ones(()), rng),
}


@pytest.mark.parametrize(("call", "error", "words"), CASES)
def test_bad_input_is_a_clear_error(call, error, words):
    with pytest.raises(error, match=words):
        call()


@pytest.mark.parametrize("algorithm", [dp_lsw, dp_lsl])
@pytest.mark.parametrize(("change", "error", "words"), PRIVATE)
def test_both_private_algorithms_refuse_it(algorithm, change, error, words):
    with pytest.raises(error, match=words):
        algorithm(**change)


@pytest.mark.parametrize("seed", [0, None, "seed", np.random.SeedSequence(0)])
@pytest.mark.parametrize("name", RANDOM)
def test_a_seed_is_not_a_generator(name, seed):
    with pytest.raises(TypeError, match=r"rng must be a numpy\.random\.Generator"):
        RANDOM[name](seed)


def test_the_arguments_of_this_table_are_otherwise_good():
    """What is refused above is refused for the change alone."""
    assert process().n_states == 2
    assert len(batch()) == 2
    assert statistics().n_states == 2
    assert gaussian()[0].shape == (1,)
    assert dp_lsw().theta.shape == dp_lsl().theta.shape == (3,)
    assert lsl_bound()[0] > 0
    assert mdp.BOOK_CONVENTION in mdp.CHAIN_CONVENTIONS
    for call in RANDOM.values():
        call(np.random.default_rng(0))


def test_a_refused_release_draws_no_noise():
    rng = np.random.default_rng(3)
    for algorithm in (dp_lsw, dp_lsl):
        with pytest.raises(ValueError, match="epsilon <= 5"):
            algorithm(epsilon=6, rng=rng)
    assert rng.random() == np.random.default_rng(3).random()


# ------------------------------------------------------- what is masked, rounded or out of range

MASKED = np.ma.array([1.0, 2.0, 3.0], mask=[False, True, False])
MASKED_ROWS = np.ma.array(np.full((2, 3), 0.5), mask=[[False] * 3, [True, False, False]])
MASKED_WHOLE = np.ma.array([2, 2, 1], mask=[True, False, False])
MASKED_TRUTH = np.ma.array([True, True, True], mask=[True, False, False])

READS = {
    "weights": lambda: evaluation.lsw(DATA, EYE, MASKED),
    "features": lambda: evaluation.lsw(DATA, np.ma.array(EYE, mask=EYE > 0), ONES),
    "returns": lambda: FirstVisitReturns(MASKED_ROWS, SEEN),
    "visited": lambda: FirstVisitReturns(np.zeros((1, 3)), MASKED_TRUTH[None]),
    "counts": lambda: VisitStatistics(MASKED_WHOLE, [0.5, 0.25, 1.0], 2),
    "states": lambda: batch(states=np.ma.array([0, 1, 1], mask=[True, False, False])),
    "transition": lambda: process(
        transition=np.ma.array([[0.5, 0.5], [0, 1]], mask=[[0, 1], [0, 0]])
    ),
    "start": lambda: process(start=np.ma.array([1, 0], mask=[False, True])),
    "terminal": lambda: process(terminal=np.ma.array([False, True], mask=[True, False])),
    "value": lambda: gaussian(value=MASKED),
    "value in a list": lambda: gaussian(value=[MASKED, np.zeros(3)]),
    "value itself": lambda: gaussian(value=np.ma.masked),
    "target": lambda: importance_ratios(MASKED_ROWS, np.full((2, 3), 1 / 3), [0, 1]),
    "actions": lambda: importance_ratios(ROWS, ROWS, MASKED_WHOLE[:2]),
    "lengths": lambda: trajectory_weights(MASKED_WHOLE, "sum"),
    "actions of a simulator": lambda: HIV().step(np.ones((3, 6)), MASKED_WHOLE),
    "states of a simulator": lambda: HIV().step(np.ma.masked_less(np.zeros((1, 6)), 1), [0]),
    "sums": lambda: private_law(np.ma.masked_less(np.zeros(40), 1), 0.5, 0.5, 0.1),
    "values of a stream": lambda: subset_sums(MASKED_WHOLE, [1, 1, 1]),
    "visits": lambda: subsampled_evaluation.missed_given_data(3, MASKED_WHOLE, 2),
}
ROWS = np.full((2, 3), 1 / 3)


@pytest.mark.parametrize("name", READS)
def test_what_is_masked_is_not_read(name):
    with pytest.raises(ValueError, match="masked entries; leave them out or fill them in"):
        READS[name]()


def test_a_mask_that_hides_nothing_is_no_mask():
    whole = np.ma.array(ONES, mask=np.zeros(3, bool))
    expected = evaluation.lsw(DATA, EYE, ONES)
    np.testing.assert_array_equal(evaluation.lsw(DATA, EYE, whole), expected)


@pytest.mark.parametrize("kind", [np.float16, np.float32])
def test_probabilities_are_as_exact_as_their_type(kind):
    """Rows that sum to one within the rounding of float32 are distributions; others are not."""
    rows = np.random.default_rng(1).dirichlet(np.ones(7), size=500).astype(kind)
    sums = rows.sum(axis=1, dtype=np.float64)
    assert np.abs(sums - 1).max() > 1e-8  # the case is there
    ratios = importance_ratios(rows, rows, np.zeros(500, int))
    np.testing.assert_array_equal(ratios, 1.0)
    target = np.where(np.arange(7) == 0, kind(1.0), kind(0.0))[None]
    ratio = importance_ratios(target, rows[:1], [0])
    assert ratio[0] == pytest.approx(float(sums[0]) / float(rows[0, 0]), rel=1e-14)

    stays = np.zeros((7, 7, 7))
    stays[:, np.arange(7), np.arange(7)] = 1
    decision = mdp.MarkovDecisionProcess(stays, np.zeros((7, 7)), 0.9, rows[0])
    assert abs(decision.start.sum() - 1) < 1e-15
    kept = decision.action_probabilities(rows[:7])
    np.testing.assert_allclose(kept.sum(axis=1), 1, atol=1e-15)
    chain = MarkovRewardProcess(rows[:7], np.zeros((7, 7)), 0.9, rows[1])
    np.testing.assert_allclose(chain.transition.sum(axis=1), 1, atol=1e-15)

    wrong = rows.copy()
    wrong[3, 0] += kind(0.02)
    with pytest.raises(ValueError, match="row 3 of target sums to"):
        importance_ratios(wrong, rows, np.zeros(500, int))
    with pytest.raises(ValueError, match="rows must sum to one"):  # in double it is an error
        importance_ratios(rows.astype(float), rows.astype(float), np.zeros(500, int))


def test_probabilities_in_double_are_not_touched():
    rows = np.array([[0.3, 0.7 + 1e-12]])
    start = process(start=rows[0]).start
    np.testing.assert_array_equal(start, rows[0])


HEALTHY = [1e6, 3198.0, 0.0, 0.0, 0.0, 10.0]


@pytest.mark.parametrize(
    ("state", "words"),
    [
        ([-1.0, *HEALTHY[1:]], "must not be negative, got -1"),
        ([NAN, *HEALTHY[1:]], "NaN"),
        ([INF, *HEALTHY[1:]], "infinite"),
        ([1e300] * 6, "so small that a step can be computed"),
    ],
)
def test_a_patient_that_cannot_be(state, words):
    with pytest.raises(ValueError, match=words):
        HIV().step([state], [0])


def test_a_patient_without_virus_stays_without():
    after, rewards, _ = HIV().step([HEALTHY, [0.0] * 6], [0, 3])
    assert np.isfinite(after).all()
    assert np.isfinite(rewards).all()
    np.testing.assert_array_equal(after[:, 2:5], 0.0)


@pytest.mark.parametrize("weighting", [["sum"], {"sum"}, None, 1, "total"])
def test_an_unknown_weighting(weighting):
    chain = process()
    words = r"weighting must be one of \['mean', 'printed', 'sum'\]"
    with pytest.raises(ValueError, match=words):
        trajectory_weights([1], weighting)
    with pytest.raises(ValueError, match=words):
        exact_saddle_point(chain, chain, weighting=weighting)


@pytest.mark.parametrize("alpha", [1e-200, 5e-324, 1e300])
def test_tolerances_out_of_range(alpha):
    for call in (
        lambda: initial_sample_size(alpha, 0.1),
        lambda: private_law(np.zeros(40), alpha, 0.1, 0.1),
    ):
        with pytest.raises(ValueError, match=r"alpha must lie in \[1e-07, 1e\+07\]"):
            call()
    assert initial_sample_size(50.0, 0.1) == 1
    assert 1e17 < initial_sample_size(1e-7, 1e-300) < 2**63


@pytest.mark.parametrize(("sums", "epsilon"), [(0.0, 1e300), (1e300, 0.1), (0.0, 5e-324)])
def test_a_law_that_would_take_for_ever(sums, epsilon):
    with pytest.raises(ValueError, match="too many to integrate over"):
        private_law(np.full(40, sums), 0.5, 0.5, epsilon)


@pytest.mark.parametrize("number", [2**63, 10**400])
def test_whole_numbers_without_end(number):
    with pytest.raises(ValueError, match=r"at most 2\^63 - 1"):
        Chain(number)
    with pytest.raises(ValueError, match="must be a floating-point number"):
        gaussian(sensitivity=10**400)
