"""Sub-sample and average: mean, noise and promise against loops, enumeration and audits."""

import importlib
import itertools
import math
import tracemalloc

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from dprl.evaluation import lsl, lsw
from dprl.features import aggregation, tabular
from dprl.mdp import Chain
from dprl.privacy import (
    GaussianSmoothing,
    Guarantee,
    audit_samples,
    composition,
    subsampling,
)
from dprl.private_evaluation import (
    LSL,
    LSW,
    NEIGHBOURS,
    CountedSubsamples,
    Draws,
    base_promise,
    draw_subsamples,
    subsample_and_average,
    subsample_and_average_diagnostics,
    subsample_statistics,
    subsamples,
)
from dprl.trajectories import FirstVisitReturns, VisitStatistics, chain_first_visit_returns

# the package exports a function of the same name as the module
module = importlib.import_module("dprl.private_evaluation.subsample_and_average")

seeds = st.integers(0, 2**32 - 1)
PROMISE = {"epsilon": 0.5, "delta": 0.05}


def estimator(features, weights, ridge=None, **options):
    """LSW, or LSL where there is a ridge."""
    options = {"f_max": 0.9, **options}
    if ridge is None:
        return LSW(features, weights, **options)
    return LSL(features, weights, ridge, **options)


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


@pytest.mark.parametrize("k", [1, 5, 400])
def test_small_working_arrays_change_nothing(monkeypatch, k):
    data = chain_data(2000)
    base = estimator(fresh(9).random((6, 3)), np.ones(6), 20.0)
    task = (data, base, Draws(30, k, "optimal"))
    inside = subsample_and_average_diagnostics(*task, rng=fresh(), **PROMISE)
    monkeypatch.setattr(subsamples, "_SLICE", 16)
    monkeypatch.setattr(module, "CELLS", 16)
    again = subsample_and_average_diagnostics(*task, rng=fresh(), **PROMISE)
    np.testing.assert_allclose(inside.mean, again.mean, rtol=1e-12)
    np.testing.assert_allclose(inside.sigma, again.sigma, rtol=1e-12)


@pytest.mark.parametrize(("m", "k"), [(400_000, 1), (30_000, 16), (40, 10_000)])
def test_memory_does_not_grow_with_the_sub_samples(m, k):
    """All memberships at once would need 30 to 300 MiB, all counts and means 10 to 130."""
    data = chain_data(20_000, n_states=20)
    task = (estimator(tabular(20), np.ones(20)), Draws(m, k, "optimal"))
    tracemalloc.start()
    try:
        subsample_and_average(data, *task, rng=fresh(), **PROMISE)
        assert tracemalloc.get_traced_memory()[1] < 80 * 2**20
    finally:
        tracemalloc.stop()


# -- the mechanism ------------------------------------------------------------------------

PHI = {
    "tabular": tabular(6),
    "aggregated": aggregation(6),
    "scaled": np.diag([0.5, -2.0, 1.0, 3.0, -0.1, 1.5]),
    "dense": fresh(7).random((6, 3)),
}


def by_loops(data, indices, phi, weights, ridge, base, bounds, **options):
    """Mean, noise per run and share of unvisited states, one sub-sample after another."""
    low, high = bounds
    promise = {"epsilon": base.epsilon, "delta": base.delta}
    one_run = estimator(phi, weights, ridge, f_min=low, f_max=high, **options)
    estimates, sigma, unvisited = [], [], []
    for index in indices:
        one = subset(data, index).statistics(bounds)
        unvisited.append(one.counts == 0)
        if ridge is None:
            estimates.append(lsw(one, phi, weights))
        else:
            estimates.append(lsl(one, phi, weights, ridge))
        sigma.append(one_run.noise(one.counts, len(index), **promise).sigma)
    return np.mean(estimates, axis=0), np.array(sigma), np.mean(unvisited, axis=0)


@pytest.mark.parametrize("ridge", [None, 40.0])
@pytest.mark.parametrize("features", PHI)
@pytest.mark.parametrize(("m", "k"), [(30, 1), (60, 7), (12, 120), (6, 300), (1, 2000)])
def test_equals_a_loop_over_sub_samples(m, k, features, ridge):
    data, phi, weights = random_data(2000, 6), PHI[features], np.linspace(0.2, 1, 6)
    bounds = (-0.4, 0.9)
    inside = subsample_and_average_diagnostics(
        data,
        estimator(phi, weights, ridge, f_min=-0.4),
        Draws(m, k, accounting="optimal"),
        rng=fresh(5),
        n_releases=2,
        **PROMISE,
    )
    assert inside.mean.shape == (2, phi.shape[1])
    assert inside.sigma.shape == (2, m)
    indices = draw_subsamples(2000, 2 * m, k, fresh(5)).reshape(2, m, k)
    for r in range(2):
        mean, sigma, unvisited = by_loops(
            data, indices[r], phi, weights, ridge, inside.base, bounds
        )
        np.testing.assert_allclose(inside.mean[r], mean, rtol=1e-10)
        np.testing.assert_allclose(inside.sigma[r], sigma, rtol=1e-10)
        np.testing.assert_allclose(inside.unvisited[r], unvisited, atol=1e-12)
        counted = subsample_statistics(data, indices[r], bounds)
        again, base = CountedSubsamples(counted), estimator(phi, weights, ridge, f_min=-0.4)
        for _ in range(2):  # from what is kept, the second time
            np.testing.assert_allclose(again.mean(base), inside.mean[r], rtol=1e-10)
            noise = again.noise(base, inside.base)
            assert noise == pytest.approx(inside.noise[r], rel=1e-10)


@settings(max_examples=40, deadline=None)
@given(st.integers(1, 40), st.integers(1, 7), st.floats(0.01, 5), st.booleans(), seeds)
def test_psi_from_a_table_is_psi(k, n_states, epsilon, improved, seed):
    rng = fresh(seed)
    weights = np.where(rng.random(n_states) < 0.3, 0.0, rng.random(n_states))
    weights[0] = 1.0
    counts = rng.integers(k + 1, size=(20, n_states))
    promise = Guarantee(epsilon, 10.0 ** -rng.uniform(1, 9), NEIGHBOURS)
    constants = {"epsilon": promise.epsilon, "delta": promise.delta}
    for one_run in (
        LSW(np.eye(n_states), np.ones(n_states), f_min=-0.5, f_max=2.0),
        LSL(np.eye(n_states), weights, 3.0, f_min=-0.5, f_max=2.0, improved=improved),
    ):
        expected = one_run.noise(counts, k, **constants).sigma
        found = module.base_noise(one_run, counts, k, promise)
        np.testing.assert_allclose(found, expected, rtol=1e-11)


@pytest.mark.parametrize("ridge", [None, 40.0])
def test_one_sub_sample_of_all_is_the_plain_mechanism(ridge):
    """m = 1, k = n: same mean, and the noise that the base promise asks for."""
    data = chain_data(3000)
    base = estimator(tabular(6), np.ones(6), ridge)
    inside = subsample_and_average_diagnostics(
        data,
        base,
        Draws(1, 3000, accounting="optimal"),
        rng=fresh(),
        **PROMISE,
    )
    promise = {"epsilon": inside.base.epsilon, "delta": inside.base.delta}
    all_of_them = data.statistics((0, 0.9))
    sigma = base.noise(all_of_them.counts, 3000, **promise).sigma
    np.testing.assert_allclose(inside.mean, base.theta(all_of_them), rtol=1e-12)
    assert inside.noise == pytest.approx(sigma, rel=1e-12)
    assert inside.sigma.shape == (1,)


def test_the_average_over_all_subsets_has_the_bias_of_unvisited_states():
    """Tabular LSW: E[F_sub] = F (1 - C(n - v, k) / C(n, k)), exactly, by enumeration."""
    n, k = 9, 4
    data = random_data(n, 5, seed=3)
    bounds = (-1.0, 1.0)
    every = subsample_statistics(data, list(itertools.combinations(range(n), k)), bounds)
    whole = data.statistics(bounds)
    missed = np.array([math.comb(n - v, k) for v in whole.counts]) / math.comb(n, k)
    assert missed.min() < missed.max()
    expected = whole.mean_returns * (1 - missed)
    np.testing.assert_allclose(every.mean_returns.mean(axis=0), expected, atol=1e-14)
    np.testing.assert_allclose((every.counts == 0).mean(axis=0), missed, atol=1e-15)
    # and the mechanism's own average, over many sub-samples, within its error
    inside = subsample_and_average_diagnostics(
        data,
        LSW(tabular(5), np.ones(5), f_max=1.0, f_min=-1.0),
        Draws(200_000, k, accounting="optimal"),
        epsilon=1.0,
        delta=0.01,
        rng=fresh(),
    )
    np.testing.assert_allclose(inside.mean, expected, atol=6 / np.sqrt(200_000))
    np.testing.assert_allclose(inside.unvisited, missed, atol=3 / np.sqrt(200_000))


@pytest.mark.parametrize("ridge", [None, 20.0])
def test_a_release_is_the_mean_plus_one_gaussian(ridge):
    data, releases = chain_data(400, start="first"), 1500
    kwargs = {"n_releases": releases, **PROMISE}
    task = (data, estimator(aggregation(6), np.ones(6), ridge), Draws(20, 40))
    inside = subsample_and_average_diagnostics(*task, rng=fresh(3), **kwargs)
    release = subsample_and_average(*task, rng=fresh(3), **kwargs)
    np.testing.assert_allclose(inside.noise, np.sqrt((inside.sigma**2).sum(axis=1)) / 20)
    assert release.guarantee == Guarantee(0.5, 0.05, "replace one trajectory")
    scores = (release.theta - inside.mean) / inside.noise[:, None]
    assert stats.kstest(scores.ravel(), "norm").pvalue > 1e-3
    assert abs(np.corrcoef(scores.T)[0, 1]) < 0.1


def test_releases_repeat_with_the_seed_and_not_otherwise():
    data = chain_data(300)
    task = (data, estimator(tabular(6), np.ones(6)), Draws(9, 30))
    one, same, other = (
        subsample_and_average(*task, rng=fresh(seed), **PROMISE).theta for seed in (1, 1, 2)
    )
    assert one.shape == (6,)
    assert (one == same).all()
    assert (one != other).all()


def test_several_releases_have_index_sets_of_their_own():
    data = chain_data(300)
    base = estimator(tabular(6), np.ones(6))
    task = (data, base, Draws(9, 4, "optimal"))
    several = subsample_and_average_diagnostics(*task, rng=fresh(1), n_releases=3, **PROMISE)
    indices = draw_subsamples(300, 27, 4, fresh(1)).reshape(3, 9, 4)
    for r in range(3):
        counted = subsample_statistics(data, indices[r], (0.0, 0.9))
        one = CountedSubsamples(counted)
        np.testing.assert_allclose(several.mean[r], one.mean(base))
        np.testing.assert_allclose(several.noise[r], one.noise(base, several.base))


def test_mechanisms_on_the_same_sub_samples_do_not_disturb_one_another():
    data = chain_data(300)
    for k in (4, 280):  # psi from a table, and by its formula
        indices = draw_subsamples(300, 30, k, fresh(1))
        drawn = subsample_statistics(data, indices, (0.0, 0.9))
        shared = CountedSubsamples(drawn)
        tasks = itertools.product(
            (tabular(6), aggregation(6)),
            (None, 9.0, 30.0),
            (Guarantee(0.1, 1e-3, NEIGHBOURS), Guarantee(2.0, 1e-2, NEIGHBOURS)),
        )
        for phi, ridge, base in tasks:
            alone = CountedSubsamples(drawn)
            one_run = estimator(phi, np.ones(6), ridge)
            assert (shared.mean(one_run) == alone.mean(one_run)).all()
            assert shared.noise(one_run, base) == alone.noise(one_run, base)


def test_returns_are_clipped_one_by_one():
    returns = np.array([[5.0], [-3.0], [0.5], [0.0]])
    data = FirstVisitReturns(returns, np.array([[True], [True], [True], [False]]))
    task = (data, LSW([[1.0]], [1.0], f_max=1.0), Draws(1, 4, "optimal"))
    inside = subsample_and_average_diagnostics(*task, epsilon=1.0, delta=0.1, rng=fresh())
    assert inside.mean == pytest.approx([0.5])  # 1, 0 and 1/2


# -- what the base promises ---------------------------------------------------------------


@pytest.mark.parametrize("sizes", [(10_000, 100, 1000), (10_000, 464, 464), (10_000, 4, 5000)])
def test_the_base_promise_is_that_of_the_accounting(sizes):
    whole = (1.0, 1e-5, *sizes)
    printed, closed, best = (
        base_promise(*whole, accounting=a) for a in ("printed", "closed-form", "optimal")
    )
    assert (printed.epsilon, printed.delta) == subsampling.base_guarantee_printed(*whole)
    assert (closed.epsilon, closed.delta) == subsampling.base_guarantee(*whole)
    assert printed.epsilon < closed.epsilon < best.epsilon
    n, m, k = sizes
    for base in (printed, closed, best):
        assert base.neighbours == NEIGHBOURS
        step = subsampling.amplified(base.epsilon, base.delta, k / n)
        assert composition.optimal_composition_delta(*step, m, 1.0) <= 1e-5


def test_a_base_epsilon_beyond_the_proof_is_cut_to_five():
    sizes = {"n": 100_000, "m": 200, "k": 2}
    uncut = subsampling.base_guarantee(5.0, 1e-3, *sizes.values())
    assert uncut[0] > 5
    base = base_promise(5.0, 1e-3, **sizes, accounting="closed-form")
    assert (base.epsilon, base.delta) == (5.0, uncut[1])


def test_the_cut_is_known_to_whoever_chooses_the_base_delta():
    """Where epsilon is cut, "optimal" has the least alpha after the cut, not before."""
    n, m, k = sizes = (100_000, 200, 2)
    base = base_promise(5.0, 1e-3, *sizes, accounting="optimal")
    alpha = GaussianSmoothing(base.epsilon, base.delta, 1).alpha
    assert base.epsilon == 5.0
    for delta in base.delta * np.r_[np.geomspace(1e-3, 0.9, 20), np.linspace(0.9, 1.1, 41)]:
        try:
            epsilon, _ = subsampling.base_guarantee_optimal(5.0, 1e-3, n, m, k, float(delta))
        except ValueError:  # this delta costs too much
            continue
        other = GaussianSmoothing(min(epsilon, 5.0), float(delta), 1).alpha
        assert alpha <= other * (1 + 1e-3)


# -- privacy ------------------------------------------------------------------------------


def neighbours(n, n_states):
    """Nobody visits anything, but for one trajectory that visits all with the largest return."""
    visited = np.zeros((n, n_states), bool)
    other = visited.copy()
    other[0] = True
    return [FirstVisitReturns(v.astype(float), v) for v in (visited, other)]


@pytest.mark.parametrize("ridge", [None, 3.0])
def test_the_audit_finds_no_violation(ridge):
    trials = 40_000
    task = (estimator([[1.0]], [1.0], ridge, f_max=1.0), Draws(6, 2, "optimal"))
    kwargs = {"epsilon": 1.0, "delta": 0.2, "n_releases": trials}
    one, other = (
        subsample_and_average(data, *task, rng=fresh(i), **kwargs).theta[:, 0]
        for i, data in enumerate(neighbours(6, 1))
    )
    found = audit_samples(one, other, delta=0.2, rng=fresh(8))
    assert found.epsilon_lower <= 1.0


# -- bad input ----------------------------------------------------------------------------

DATA = chain_data(30)


def call(**change):
    given_ = {"data": DATA, "draws": Draws(20, 5), "rng": fresh(), **PROMISE}
    given_["estimator"] = estimator(tabular(6), np.ones(6))
    return subsample_and_average(**{**given_, **change})


def call_with(features=None, weights=None, **options):
    phi = tabular(6) if features is None else features
    w = np.ones(len(phi)) if weights is None else weights
    return call(estimator=estimator(phi, w, **options))


def draw(subsamples=20, size=5, accounting="printed", **change):
    return call(draws=Draws(subsamples, size, accounting), **change)


def counted(base=None, f_max=1.0, **change):
    statistics = VisitStatistics([[1, 2]], [[0.5, 0.5]], 2, bounds=(0, 1))
    one_run = LSW(np.eye(2), [1, 1], f_max=f_max)
    several = CountedSubsamples(**{"statistics": statistics, **change})
    several.mean(one_run)
    return several.noise(one_run, base or Guarantee(1.0, 0.1, NEIGHBOURS))


AVERAGED = DATA.statistics((0, 1))
BAD = [
    (lambda: call(data=AVERAGED), TypeError, "data must be a FirstVisitReturns"),
    (lambda: draw(size=31), ValueError, "k must not exceed n"),
    (lambda: draw(subsamples=0), ValueError, "m must be at least 1"),
    (lambda: call(n_releases=0), ValueError, "n_releases must be at least 1"),
    (lambda: call(rng=None), TypeError, "rng"),
    (lambda: call(epsilon=0.0), ValueError, "epsilon must be positive"),
    (lambda: call(delta=1.0), ValueError, "delta must lie strictly"),
    (lambda: call_with(f_max=0.0), ValueError, "f_max must be positive"),
    (lambda: call_with(f_min=1.0), ValueError, "f_min must be below f_max"),
    (lambda: call_with(features=tabular(5)), ValueError, "one row per state"),
    (lambda: call_with(features=np.ones((6, 2))), ValueError, "rank 1 below d"),
    (lambda: call_with(weights=-np.ones(6)), ValueError, "must not be negative"),
    (lambda: call_with(ridge=20.0, weights=2 * np.ones(6)), ValueError, "at most 1"),
    (lambda: call_with(ridge=0.0), ValueError, "ridge must be positive"),
    (lambda: call_with(ridge=0.5), ValueError, "ridge must exceed"),
    (lambda: call(estimator=tabular(6)), TypeError, "estimator must be a LeastSquares"),
    (lambda: call(draws=(20, 5)), TypeError, "draws must be a Draws"),
    (lambda: draw(accounting="moments"), ValueError, "accounting must be one of"),
    (lambda: call(epsilon=50.0), ValueError, "at most 4 ln"),
    (lambda: draw(subsamples=1, size=1, delta=0.9), ValueError, "base delta would be 1"),
    (lambda: counted(statistics=DATA), TypeError, "statistics must be a VisitStatistics"),
    (lambda: counted(base=(1.0, 0.1)), TypeError, "base must be a Guarantee"),
    (lambda: counted(base=Guarantee(1, 0.1, "add one")), ValueError, "replace one trajectory"),
    (lambda: counted(f_max=0.5), ValueError, "not inside"),
    (
        lambda: counted(statistics=VisitStatistics([1, 2], [0.5, 0.5], 2, bounds=(0, 1))),
        ValueError,
        "one row for each sub-sample",
    ),
]


@pytest.mark.parametrize(("bad", "kind", "match"), BAD)
def test_bad_input_is_refused_with_a_reason(bad, kind, match):
    with pytest.raises(kind, match=match):
        bad()
