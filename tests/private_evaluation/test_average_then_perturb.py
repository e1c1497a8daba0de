"""Average then perturb: the sensitivity of the average, attained and never exceeded."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from dprl.evaluation import lsw
from dprl.features import aggregation, tabular
from dprl.mdp import Chain
from dprl.privacy import Guarantee, analytic_gaussian_sigma
from dprl.private_evaluation import (
    LSL,
    LSW,
    NEIGHBOURS,
    Blocks,
    Draws,
    average_then_perturb,
    average_then_perturb_diagnostics,
    draw_subsamples,
    lsl_global_sensitivity,
    subsample_statistics,
)
from dprl.trajectories import FirstVisitReturns, chain_first_visit_returns

seeds = st.integers(0, 2**32 - 1)
PROMISE = {"epsilon": 0.5, "delta": 0.05}


def estimator(features, weights, ridge=None, **options):
    """LSW, or LSL where there is a ridge."""
    options = {"f_max": 0.9, **options}
    if ridge is None:
        return LSW(features, weights, **options)
    return LSL(features, weights, ridge, **options)


PHI = {
    "tabular": tabular(6),
    "aggregated": aggregation(6),
    "dense": np.random.default_rng(7).random((6, 3)),
    "deficient": np.random.default_rng(8).random((6, 2)) @ [[1, 0, 1], [0, 1, 1]],
}


def fresh(seed=0):
    return np.random.default_rng(seed)


def chain_data(n, n_states=6, start="uniform", seed=0):
    return chain_first_visit_returns(Chain(n_states=n_states, start=start), n, fresh(seed))


def random_data(n, n_states, seed=0):
    rng = fresh(seed)
    visited = rng.random((n, n_states)) < rng.random(n_states)
    return FirstVisitReturns(np.where(visited, rng.normal(0.5, 1.0, visited.shape), 0.0), visited)


def subset(data, index):
    return FirstVisitReturns(data.returns[index], data.visited[index])


def neighbours(n, n_states):
    """Nobody visits anything, but for one trajectory that visits all with the largest return."""
    visited = np.zeros((n, n_states), bool)
    other = visited.copy()
    other[0] = True
    return [FirstVisitReturns(v.astype(float), v) for v in (visited, other)]


@pytest.mark.parametrize("design", [Draws, Blocks])
@pytest.mark.parametrize("ridge", [None, 3.0])
def test_the_sensitivity_of_the_average_is_attained(ridge, design):
    """Replacing the trajectory that most sub-samples share moves the average by exactly b G / m."""
    n, m, k = 40, 8, 5
    task = (estimator(tabular(3), np.ones(3), ridge, f_max=1.0), design(m, k))
    if design is Draws:
        shared = np.bincount(draw_subsamples(n, m, k, fresh(4)).ravel(), minlength=n).argmax()
    else:
        shared = fresh(4).permutation(n)[0]
    moved = []
    for data in neighbours(n, 3):
        swap = np.arange(n)
        swap[[0, shared]] = shared, 0
        x = subset(data, swap)
        moved.append(
            average_then_perturb_diagnostics(x, *task, epsilon=1.0, delta=0.01, rng=fresh(4))
        )
    step = np.linalg.norm(moved[1].mean - moved[0].mean)
    assert step == pytest.approx(moved[0].sensitivity, rel=1e-12)
    single = (
        np.sqrt(3)
        if ridge is None
        else lsl_global_sensitivity(tabular(3), np.ones(3), ridge, f_max=1.0)
    )
    assert moved[0].sensitivity == pytest.approx(moved[0].inclusions / m * single)
    expected = analytic_gaussian_sigma(moved[0].sensitivity, 1.0, 0.01)
    assert moved[0].noise == pytest.approx(expected, rel=1e-9)


@settings(max_examples=150)
@given(
    st.sampled_from(sorted(PHI)),
    st.sampled_from([None, 0.5, 30.0]),
    st.sampled_from([(-0.5, 1.0), (0.0, 1.0), (0.5, 1.0)]),
    st.sampled_from([Draws, Blocks]),
    seeds,
)
def test_no_neighbour_moves_the_average_further(features, ridge, bounds, design, seed):
    rng, (low, high) = fresh(seed), bounds
    n, m, k = 12, 4, 3
    data = random_data(n, 6, seed)
    visited, returns = data.visited.copy(), data.returns.copy()
    visited[5] = rng.random(6) < 0.7
    returns[5] = np.where(visited[5], rng.choice([low, high], size=6), 0.0)
    options = {"f_min": low, "f_max": high}
    if features == "deficient" and ridge is None:
        options["allow_rank_deficient"] = True
    task = (estimator(PHI[features], np.ones(6), ridge, **options), design(m, k))
    one, other = (
        average_then_perturb_diagnostics(x, *task, epsilon=1.0, delta=0.01, rng=fresh(seed))
        for x in (data, FirstVisitReturns(returns, visited))
    )
    assert np.linalg.norm(one.mean - other.mean) <= one.sensitivity * (1 + 1e-12)
    assert one.sensitivity == other.sensitivity
    assert one.inclusions == other.inclusions


@pytest.mark.parametrize(("n", "m", "k"), [(50, 6, 1), (500, 40, 20), (500, 12, 200)])
def test_inclusions_are_counted(n, m, k):
    data = chain_data(n)
    inside = average_then_perturb_diagnostics(
        data, estimator(tabular(6), np.ones(6)), Draws(m, k), rng=fresh(6), **PROMISE
    )
    indices = draw_subsamples(n, m, k, fresh(6))
    assert inside.inclusions == np.bincount(indices.ravel()).max()
    expected = lsw(subsample_statistics(data, indices, (0, 0.9)), tabular(6), np.ones(6))
    np.testing.assert_allclose(inside.mean, expected.mean(axis=0), rtol=1e-12)


def test_a_partition_uses_disjoint_blocks():
    data = chain_data(103)
    inside = average_then_perturb_diagnostics(
        data, estimator(tabular(6), np.ones(6)), Blocks(10, 10), rng=fresh(6), **PROMISE
    )
    blocks = fresh(6).permutation(103)[:100].reshape(10, 10)
    expected = lsw(subsample_statistics(data, blocks, (0, 0.9)), tabular(6), np.ones(6))
    np.testing.assert_allclose(inside.mean, expected.mean(axis=0), rtol=1e-12)
    assert inside.inclusions == 1
    assert inside.sensitivity == pytest.approx(0.1 * 0.9 * np.sqrt(6))


@pytest.mark.parametrize("design", [Draws, Blocks])
def test_average_then_perturb_adds_noise_of_the_stated_size(design):
    data = chain_data(60, start="first")
    task, scores = (data, estimator(tabular(6), np.ones(6)), design(6, 10)), []
    for seed in range(300):
        inside = average_then_perturb_diagnostics(*task, rng=fresh(seed), **PROMISE)
        release = average_then_perturb(*task, rng=fresh(seed), **PROMISE)
        assert release.guarantee == Guarantee(0.5, 0.05, NEIGHBOURS)
        scores.append((release.theta - inside.mean) / inside.noise)
    assert stats.kstest(np.ravel(scores), "norm").pvalue > 1e-3


def test_releases_repeat_with_the_seed_and_not_otherwise():
    data = chain_data(300)
    task = (data, estimator(tabular(6), np.ones(6)), Draws(9, 30))
    one, same, other = (
        average_then_perturb(*task, rng=fresh(seed), **PROMISE).theta for seed in (1, 1, 2)
    )
    assert one.shape == (6,)
    assert (one == same).all()
    assert (one != other).all()


def test_returns_are_clipped_one_by_one():
    returns = np.array([[5.0], [-3.0], [0.5], [0.0]])
    data = FirstVisitReturns(returns, np.array([[True], [True], [True], [False]]))
    one = estimator([[1.0]], [1.0], f_max=1.0, f_min=-2.0)
    inside = average_then_perturb_diagnostics(
        data, one, Draws(1, 4), rng=fresh(), epsilon=1.0, delta=0.1
    )
    assert inside.mean == pytest.approx([-0.5 / 3])  # 1, -2 and 1/2


# -- bad input ----------------------------------------------------------------------------

DATA = chain_data(30)


def call(**change):
    given_ = {"data": DATA, "design": Draws(20, 5), "rng": fresh(), **PROMISE}
    given_["estimator"] = estimator(tabular(6), np.ones(6))
    return average_then_perturb(**{**given_, **change})


def call_with(features=None, **options):
    return call(
        estimator=estimator(tabular(6) if features is None else features, np.ones(6), **options)
    )


BAD = [
    (lambda: call(data=DATA.statistics((0, 1))), TypeError, "data must be a FirstVisitReturns"),
    (lambda: call(design=Draws(20, 31)), ValueError, "k must not exceed n"),
    (lambda: call(design="bagging"), TypeError, "design must be"),
    (lambda: call(design=Blocks(20, 5)), ValueError, r"at most floor\(n / k\) = 6"),
    (lambda: call(rng=1), TypeError, "rng"),
    (lambda: call(epsilon=-1.0), ValueError, "epsilon must be positive"),
    (lambda: call(delta=1.0), ValueError, "delta must lie strictly"),
    (lambda: call_with(f_min=1.0), ValueError, "f_min must be below f_max"),
    (lambda: call_with(features=np.ones((6, 2))), ValueError, "rank 1 below d"),
    (lambda: call_with(ridge=-1.0), ValueError, "ridge must be positive"),
    (lambda: call(estimator=tabular(6)), TypeError, "estimator must be a LeastSquares"),
]


@pytest.mark.parametrize(("bad", "kind", "match"), BAD)
def test_bad_input_is_refused_with_a_reason(bad, kind, match):
    with pytest.raises(kind, match=match):
        bad()
