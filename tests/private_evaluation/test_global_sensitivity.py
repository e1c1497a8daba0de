"""Global sensitivities of LSW and LSL: never exceeded, and attained where they say so."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dprl.bounds import lsl_privacy
from dprl.evaluation import lsl, lsw
from dprl.features import aggregation, pseudo_inverse_norm, tabular
from dprl.private_evaluation import (
    LSL,
    LSW,
    lsl_coefficient,
    lsl_global_sensitivity,
    lsl_local_bound,
    lsl_step_factor,
    return_spread,
)
from dprl.trajectories import FirstVisitReturns, VisitStatistics

N = 6
RNG = np.random.default_rng(0)
FEATURES = {
    "tabular": tabular(N),
    "aggregated": aggregation(N),
    "orthonormal": aggregation(N, 3, orthonormal=True),
    "dense": RNG.random((N, 3)),
    "signed": RNG.normal(size=(N, 4)),
}
RANGES = [(0.0, 1.0), (-1.0, 1.0), (-3.0, 0.5), (0.5, 2.0)]
features = st.sampled_from(sorted(FEATURES))
ranges = st.sampled_from(RANGES)
seeds = st.integers(0, 2**32 - 1)


def pair(rng, k, low, high):
    """Two neighbouring batches of k trajectories, returns often at the ends, few visits."""

    def rows(size):
        visited = rng.random((size, N)) < rng.random()
        ends = rng.choice([low, high], size=visited.shape)
        drawn = np.where(rng.random(visited.shape) < 0.7, ends, rng.uniform(low, high, (size, N)))
        return np.where(visited, drawn, 0.0), visited

    shared, one, other = rows(k), rows(1), rows(1)
    out = []
    for last in (one, other):
        returns, visited = (np.concatenate([a[:-1], b]) for a, b in zip(shared, last, strict=True))
        out.append(FirstVisitReturns(returns, visited).statistics((low, high)))
    return out


@settings(max_examples=150, deadline=None)
@given(features, ranges, st.integers(1, 5), seeds)
def test_no_pair_of_neighbours_moves_lsw_further(name, bounds, k, seed):
    rng, (low, high) = np.random.default_rng(seed), bounds
    phi, w = FEATURES[name], rng.random(N) + 0.01
    most = LSW(phi, w, f_max=high, f_min=low).global_sensitivity()
    one, other = (lsw(x, phi, w) for x in pair(rng, k, low, high))
    assert np.linalg.norm(one - other) <= most * (1 + 1e-12)


@settings(max_examples=150, deadline=None)
@given(features, ranges, st.integers(1, 5), st.floats(-2, 2), seeds)
def test_no_pair_of_neighbours_moves_lsl_further(name, bounds, k, scale, seed):
    rng, (low, high) = np.random.default_rng(seed), bounds
    phi, rho, ridge = FEATURES[name], rng.random(N) + 1e-3, 10.0**scale
    rho = np.minimum(rho, 1.0)
    most = LSL(phi, rho, ridge, f_max=high, f_min=low).global_sensitivity(k)
    one, other = (lsl(x, phi, rho, ridge) for x in pair(rng, k, low, high))
    assert np.linalg.norm(one - other) <= most * (1 + 1e-9)


def extremes(low, high, k=1):
    """One trajectory, visiting every state, against one that visits none or has the other end.

    The k - 1 others visit nothing.
    """
    ends = np.array([low, 0.0, high])
    first, last = max(((a, b) for a in ends for b in ends), key=lambda x: abs(x[0] - x[1]))
    one, other = (
        VisitStatistics(np.full(N, int(v != 0)), np.full(N, v), k, (low, high))
        for v in (first, last)
    )
    return one, other


@pytest.mark.parametrize("bounds", [*RANGES, (-1.0, 4.0)])
@pytest.mark.parametrize("name", ["tabular", "aggregated", "orthonormal"])
def test_lsw_attains_it_where_states_share_parameters(name, bounds):
    low, high = bounds
    phi, w = FEATURES[name], np.linspace(0.2, 2, N)
    one, other = (lsw(x, phi, w) for x in extremes(low, high))
    most = LSW(phi, w, f_max=high, f_min=low).global_sensitivity()
    assert np.linalg.norm(one - other) == pytest.approx(most, rel=1e-12)


@pytest.mark.parametrize("bounds", [*RANGES, (-1.0, 4.0)])
@pytest.mark.parametrize("k", [1, 3, 100])
@pytest.mark.parametrize("name", ["tabular", "aggregated", "orthonormal"])
def test_lsl_is_exact_where_states_share_parameters(name, k, bounds):
    task, (low, high) = (FEATURES[name], np.linspace(0.2, 1, N), 2.5), bounds
    exact = lsl_global_sensitivity(*task, f_max=high, f_min=low)
    assert LSL(*task, f_max=high, f_min=low).global_sensitivity(k) == exact
    # the largest step: D c R / (c^2 R + lambda/2) in each group
    one, other = (lsl(x, *task) for x in extremes(low, high, k))
    assert np.linalg.norm(one - other) == pytest.approx(exact, rel=1e-12)


def test_lsl_bound_for_other_features_is_attained():
    """Twice the largest norm: one trajectory at one end of the range, replaced by the other end."""
    phi, ridge = np.array([[1.0], [1 - 1e-6]]), 4.0  # ridge/2 is the square of the singular value
    ends = (VisitStatistics([1, 1], [v, v], 1, (-1, 1)) for v in (-1.0, 1.0))
    one, other = (lsl(x, phi, [1, 1], ridge) for x in ends)
    bound = LSL(phi, [1, 1], ridge, f_max=1.0, f_min=-1.0).global_sensitivity(1)
    assert bound == pytest.approx(1.0, rel=1e-5)
    assert np.linalg.norm(one - other) == pytest.approx(bound, rel=1e-5)


@pytest.mark.parametrize("ridge", [0.3, 30.0, 3000.0])
@pytest.mark.parametrize("bounds", RANGES)
def test_lsl_bound_is_the_largest_local_bound_or_the_norm_bound(bounds, ridge):
    k, (low, high) = 4, bounds
    phi, rho = np.array([[1.0, 0.5], [0.3, -1.0], [0.2, 0.1]]), np.array([1.0, 0.5, 0.2])
    step, size = return_spread(low, high)
    counts = np.array(list(itertools.product(range(k + 1), repeat=3)))
    c = lsl_coefficient(phi, rho, ridge)
    local = lsl_local_bound(counts, rho, k, c, step_ratio=step / size).max()
    factor = lsl_step_factor(phi, rho, ridge, size=size, improved=True)
    norm = 2 * size * np.sqrt(k * rho.sum() / (2 * ridge))
    expected = min(factor * np.sqrt(local), norm)
    found = LSL(phi, rho, ridge, f_max=high, f_min=low).global_sensitivity(k)
    assert found == pytest.approx(expected, rel=1e-12)


def test_closed_forms():
    ones = np.ones(40)
    assert LSW(tabular(40), ones, f_max=2.0).global_sensitivity() == pytest.approx(2 * np.sqrt(40))
    assert LSW(aggregation(40), ones, f_max=1.0).global_sensitivity() == pytest.approx(np.sqrt(20))
    signed = LSW(tabular(40), ones, f_max=1.0, f_min=-2.0).global_sensitivity()
    assert signed == pytest.approx(return_spread(-2.0, 1.0)[0] * np.sqrt(40))
    assert lsl_global_sensitivity(tabular(40), ones, 6.0, f_max=1.0) == pytest.approx(
        np.sqrt(40) / 4
    )


@given(features, seeds)
def test_lsw_is_never_above_the_norm_bound(name, seed):
    phi, w = FEATURES[name], np.random.default_rng(seed).random(N) + 0.01
    norm_bound = pseudo_inverse_norm(phi, w) * np.sqrt(w.sum())
    assert LSW(phi, w, f_max=1.0).global_sensitivity() <= norm_bound * (1 + 1e-12)


def test_a_state_without_weight_adds_nothing():
    w = np.array([1.0, 0.0, 1.0, 1.0, 1.0, 1.0])
    with pytest.raises(ValueError, match="rank 5"):
        LSW(tabular(6), w, f_max=1.0).global_sensitivity()
    most = LSW(tabular(6), w, f_max=1.0, allow_rank_deficient=True).global_sensitivity()
    assert most == pytest.approx(np.sqrt(5))


def test_the_bounds_have_the_same_function():
    assert lsl_privacy.lsl_global_sensitivity is lsl_global_sensitivity


@pytest.mark.parametrize(
    ("bad", "match"),
    [
        (lambda: LSW(tabular(2), [1.0], f_max=1.0).global_sensitivity(), "one entry per state"),
        (lambda: LSW(tabular(2), [1, 1], f_max=0.0).global_sensitivity(), "f_max must be positive"),
        (lambda: LSW(tabular(2), [1, -1], f_max=1.0).global_sensitivity(), "negative"),
        (lambda: LSW(tabular(2), [1, 1], f_max=1.0, f_min=1).global_sensitivity(), "below f_max"),
        (lambda: lsl_global_sensitivity([[1.0, 1.0]], [1.0], 1.0, f_max=1.0), "one parameter"),
        (lambda: lsl_global_sensitivity([[1.0], [2.0]], [1, 1], 1.0, f_max=1.0), "one positive"),
        (lambda: LSL(tabular(1), [1.0], 0.0, f_max=1.0).global_sensitivity(3), "ridge"),
        (lambda: LSL(tabular(1), [2.0], 1.0, f_max=1.0).global_sensitivity(3), "at most 1"),
        (lambda: LSL(tabular(1), [1.0], 1.0, f_max=1.0).global_sensitivity(0), "n_trajectories"),
    ],
)
def test_bad_input_is_refused_with_a_reason(bad, match):
    with pytest.raises(ValueError, match=match):
        bad()
