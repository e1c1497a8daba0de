"""Sub-sample and average: draws, counts, noise and promise against loops and enumeration."""

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
from dprl.privacy import Guarantee, analytic_gaussian_sigma, audit_samples, subsampling
from dprl.private_evaluation import (
    NEIGHBOURS,
    average_diagnostics,
    average_then_perturb,
    average_then_perturb_diagnostics,
    base_promise,
    dp_lsl_diagnostics,
    dp_lsw_diagnostics,
    draw_subsamples,
    lsl_global_sensitivity,
    subsample_and_average,
    subsample_and_average_diagnostics,
    subsample_statistics,
)
from dprl.trajectories import FirstVisitReturns, VisitStatistics, chain_first_visit_returns

# the package exports a function of the same name as the module
module = importlib.import_module("dprl.private_evaluation.subsample_and_average")

seeds = st.integers(0, 2**32 - 1)
PROMISE = {"epsilon": 0.5, "delta": 0.05, "f_max": 0.9}


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


# -- index sets ---------------------------------------------------------------------------

# below n/16: repeated indices drawn again; above: random keys; from 4096 on: keys in a window
SIZES = [(1, 1), (5, 1), (5, 3), (5, 5), (33, 2), (500, 30), (500, 32), (5000, 300), (5000, 400)]
SIZES += [(5000, 4999), (5000, 5000), (70_000, 9), (70_000, 66_000)]


@pytest.mark.parametrize(("n", "k"), SIZES)
def test_rows_are_sorted_subsets(n, k):
    rows = draw_subsamples(n, 40, k, fresh())
    assert rows.shape == (40, k)
    assert rows.dtype == np.int64
    assert rows.min() >= 0
    assert rows.max() < n
    assert (np.diff(rows, axis=1) > 0).all()


@given(st.integers(1, 60), st.integers(1, 40), st.floats(0, 1), seeds)
def test_any_size_gives_sorted_subsets(n, m, share, seed):
    k = max(1, round(share * n))
    rows = draw_subsamples(n, m, k, fresh(seed))
    assert rows.shape == (m, k)
    assert (np.diff(rows, axis=1) > 0).all()
    assert np.isin(rows, np.arange(n)).all()


@pytest.mark.parametrize(("n", "k"), [(6, 3), (8, 1), (9, 8), (35, 2), (49, 3)])
def test_every_subset_is_equally_likely(n, k):
    cells = math.comb(n, k)
    m = max(100_000, 10 * cells)
    rows = draw_subsamples(n, m, k, fresh(1))
    if k <= 3:  # rank of a subset in the order of its digits
        rank = sum(np.array([math.comb(v, i + 1) for v in range(n)])[rows[:, i]] for i in range(k))
    else:
        rank = n * (n - 1) // 2 - rows.sum(axis=1)
    counts = np.bincount(rank, minlength=cells)
    assert counts.size == cells
    assert stats.chisquare(counts).pvalue > 1e-4


@pytest.mark.parametrize(("n", "k"), [(4, 2), (33, 1)])
def test_rows_are_independent(n, k):
    rows = draw_subsamples(n, 200_001, k, fresh(2))
    first = rows @ n ** np.arange(k)
    _, label = np.unique(first, return_inverse=True)
    pairs = np.bincount(label[:-1] * (label.max() + 1) + label[1:])
    assert pairs.size == math.comb(n, k) ** 2
    assert stats.chisquare(pairs[: pairs.size]).pvalue > 1e-4


@pytest.mark.parametrize(("n", "k"), [(5000, 200), (5000, 1700), (300, 100)])
def test_inclusions_of_large_sub_samples(n, k):
    """Each index, and each pair of neighbouring ones, as often as it should be."""
    m = 600
    rows = draw_subsamples(n, m, k, fresh(3))
    member = np.zeros((m, n), bool)
    np.put_along_axis(member, rows, True, axis=1)
    q = k / n
    scores = (member.sum(axis=0) - m * q) / np.sqrt(m * q * (1 - q))
    assert abs(scores.mean()) < 1e-9  # every row has exactly k
    assert stats.kstest(scores, "norm").statistic < 0.06
    pairs = (member[:, :-1] & member[:, 1:]).sum()
    expected = m * k * (k - 1) / n
    assert abs(pairs - expected) < 6 * np.sqrt(expected)


@pytest.mark.parametrize(("n", "k"), [(100, 1), (100, 37), (4096, 1), (4096, 4096), (9000, 2500)])
def test_the_kth_smallest_key(n, k):
    keys = fresh(4).integers(2**32, size=(8, n), dtype=np.uint32)
    keys[1] //= 2**20  # far from where the k-th is expected, and with many ties
    keys[2] = 2**32 - 1
    keys[3] = 0
    assert (module._kth_smallest(keys, k) == np.sort(keys, axis=1)[:, k - 1]).all()


def test_a_tie_at_the_kth_key_is_drawn_again():
    class FewKeys:
        """A generator whose first keys are all equal."""

        def __init__(self):
            self.rng, self.calls = fresh(5), 0

        def integers(self, high, size, dtype):
            self.calls += 1
            scale = 0 if self.calls == 1 else 1
            return scale * self.rng.integers(high, size=size, dtype=dtype)

    rng = FewKeys()
    members = module._dense_rows(20, 7, 50, rng)
    assert rng.calls > 1
    assert (members.sum(axis=1) == 7).all()


def test_draws_repeat_with_the_seed_and_not_otherwise():
    for n, k in ((1000, 3), (1000, 300)):
        one, same, other = (draw_subsamples(n, 20, k, fresh(seed)) for seed in (1, 1, 2))
        assert (one == same).all()
        assert (one != other).any()


# -- counts and means ---------------------------------------------------------------------


@settings(max_examples=60)
@given(st.integers(1, 40), st.integers(1, 60), st.integers(1, 12), st.floats(0, 1), seeds)
def test_statistics_are_those_of_each_sub_sample(n, n_states, m, share, seed):
    data, k = random_data(n, n_states, seed), max(1, round(share * n))
    indices = fresh(seed).permuted(np.tile(np.arange(n), (m, 1)), axis=1)[:, :k]
    all_at_once = subsample_statistics(data, indices, (-0.5, 1.0))
    assert all_at_once.n_trajectories == k
    assert all_at_once.bounds == (-0.5, 1.0)
    for row, index in enumerate(indices):
        one = subset(data, index).statistics((-0.5, 1.0))
        assert (all_at_once.counts[row] == one.counts).all()
        np.testing.assert_allclose(all_at_once.mean_returns[row], one.mean_returns, atol=1e-13)


@pytest.mark.parametrize("k", [1, 2, 63, 64, 255, 1023, 4000])
def test_counts_are_exact_when_every_state_is_visited(k):
    """The counts share floats: none may spill over into the next."""
    n, n_states = 4000, 45
    data = FirstVisitReturns(np.ones((n, n_states)), np.ones((n, n_states), bool))
    found = subsample_statistics(data, draw_subsamples(n, 5, k, fresh()), (0.0, 1.0))
    assert (found.counts == k).all()
    assert (found.mean_returns == 1).all()


@pytest.mark.parametrize("k", [1, 5, 400])
def test_small_working_arrays_change_nothing(monkeypatch, k):
    data = chain_data(2000)
    indices = draw_subsamples(2000, 30, k, fresh())
    kwargs = {"subsamples": 30, "size": k, "ridge": 20.0, "accounting": "optimal", **PROMISE}
    task = (data, fresh(9).random((6, 3)), np.ones(6))
    large = subsample_statistics(data, indices, (0.0, 1.0))
    inside = subsample_and_average_diagnostics(*task, rng=fresh(), **kwargs)
    monkeypatch.setattr(module, "_SLICE", 16)
    small = subsample_statistics(data, indices, (0.0, 1.0))
    again = subsample_and_average_diagnostics(*task, rng=fresh(), **kwargs)
    assert (large.counts == small.counts).all()
    np.testing.assert_allclose(large.mean_returns, small.mean_returns, rtol=1e-12)
    np.testing.assert_allclose(inside.mean, again.mean, rtol=1e-12)
    np.testing.assert_allclose(inside.sigma, again.sigma, rtol=1e-12)


@pytest.mark.parametrize(("m", "k"), [(400_000, 1), (30_000, 16), (40, 10_000)])
def test_memory_does_not_grow_with_the_sub_samples(m, k):
    """All memberships at once would need 30 to 300 MiB, all counts and means 10 to 130."""
    data = chain_data(20_000, n_states=20)
    kwargs = {**PROMISE, "accounting": "optimal", "subsamples": m, "size": k}
    tracemalloc.start()
    try:
        subsample_and_average(data, tabular(20), np.ones(20), rng=fresh(), **kwargs)
        assert tracemalloc.get_traced_memory()[1] < 80 * 2**20
    finally:
        tracemalloc.stop()


# -- the mechanism ------------------------------------------------------------------------

PHI = {"tabular": tabular(6), "aggregated": aggregation(6), "dense": fresh(7).random((6, 3))}


def by_loops(data, indices, phi, weights, ridge, base, bounds, improved=False):
    """Mean, noise per run and share of unvisited states, one sub-sample after another."""
    low, high = bounds
    promise = {"epsilon": base.epsilon, "delta": base.delta, "f_min": low, "f_max": high}
    estimates, sigma, unvisited = [], [], []
    for index in indices:
        one = subset(data, index).statistics(bounds)
        unvisited.append(one.counts == 0)
        if ridge is None:
            estimates.append(lsw(one, phi, weights))
            noise = dp_lsw_diagnostics(one.counts, phi, weights, **promise)
        else:
            estimates.append(lsl(one, phi, weights, ridge))
            noise = dp_lsl_diagnostics(
                one.counts, len(index), phi, weights, ridge, improved=improved, **promise
            )
        sigma.append(noise.sigma)
    return np.mean(estimates, axis=0), np.array(sigma), np.mean(unvisited, axis=0)


@pytest.mark.parametrize("ridge", [None, 40.0])
@pytest.mark.parametrize("features", PHI)
@pytest.mark.parametrize(("m", "k"), [(30, 1), (60, 7), (12, 120), (6, 300), (1, 2000)])
def test_equals_a_loop_over_sub_samples(m, k, features, ridge):
    data, phi, weights = random_data(2000, 6), PHI[features], np.linspace(0.2, 1, 6)
    bounds = (-0.4, 0.9)
    inside = subsample_and_average_diagnostics(
        data,
        phi,
        weights,
        subsamples=m,
        size=k,
        ridge=ridge,
        f_min=-0.4,
        accounting="optimal",
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
        again = average_diagnostics(
            counted, phi, weights, base=inside.base, ridge=ridge, f_min=-0.4, f_max=0.9
        )
        np.testing.assert_allclose(again.mean, inside.mean[r], rtol=1e-10)
        np.testing.assert_allclose(again.sigma, inside.sigma[r], rtol=1e-10)
        assert again.noise == pytest.approx(inside.noise[r], rel=1e-10)
        np.testing.assert_allclose(again.unvisited, unvisited, atol=1e-12)


@settings(max_examples=40, deadline=None)
@given(st.integers(1, 40), st.integers(1, 7), st.floats(0.01, 5), st.booleans(), seeds)
def test_psi_from_a_table_is_psi(k, n_states, epsilon, improved, seed):
    rng = fresh(seed)
    weights = np.where(rng.random(n_states) < 0.3, 0.0, rng.random(n_states))
    weights[0] = 1.0
    counts = rng.integers(k + 1, size=(20, n_states))
    promise = Guarantee(epsilon, 10.0 ** -rng.uniform(1, 9), NEIGHBOURS)
    given_ = {"f_min": -0.5, "f_max": 2.0}
    constants = {**given_, "epsilon": promise.epsilon, "delta": promise.delta}
    ones = np.ones(n_states)
    plain = module._Base(n_states, k, np.eye(n_states), ones, None, **given_)
    expected = dp_lsw_diagnostics(counts, np.eye(n_states), ones, **constants).sigma
    np.testing.assert_allclose(plain.noise(counts, promise), expected, rtol=1e-11)
    task = (np.eye(n_states), weights, 3.0)
    ridge = module._Base(n_states, k, *task, **given_, improved=improved)
    expected = dp_lsl_diagnostics(counts, k, *task, improved=improved, **constants).sigma
    np.testing.assert_allclose(ridge.noise(counts, promise), expected, rtol=1e-11)


@pytest.mark.parametrize("ridge", [None, 40.0])
def test_one_sub_sample_of_all_is_the_plain_mechanism(ridge):
    """m = 1, k = n with the whole budget: same mean and same noise."""
    data = chain_data(3000)
    inside = subsample_and_average_diagnostics(
        data,
        tabular(6),
        np.ones(6),
        subsamples=1,
        size=3000,
        ridge=ridge,
        base=(0.5, 0.05),
        rng=fresh(),
        **PROMISE,
    )
    assert (inside.base.epsilon, inside.base.delta) == (0.5, 0.05)
    all_of_them = data.statistics((0, 0.9))
    task = (tabular(6), np.ones(6))
    if ridge is None:
        mean, noise = lsw(all_of_them, *task), dp_lsw_diagnostics
        sigma = noise(all_of_them.counts, *task, **PROMISE).sigma
    else:
        mean = lsl(all_of_them, *task, ridge)
        sigma = dp_lsl_diagnostics(all_of_them.counts, 3000, *task, ridge, **PROMISE).sigma
    np.testing.assert_allclose(inside.mean, mean, rtol=1e-12)
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
        tabular(5),
        np.ones(5),
        subsamples=200_000,
        size=k,
        f_max=1.0,
        f_min=-1.0,
        epsilon=1.0,
        delta=0.01,
        accounting="optimal",
        rng=fresh(),
    )
    np.testing.assert_allclose(inside.mean, expected, atol=6 / np.sqrt(200_000))
    np.testing.assert_allclose(inside.unvisited, missed, atol=3 / np.sqrt(200_000))


@pytest.mark.parametrize("ridge", [None, 20.0])
def test_a_release_is_the_mean_plus_one_gaussian(ridge):
    data, releases = chain_data(400, start="first"), 1500
    kwargs = {"subsamples": 20, "size": 40, "ridge": ridge, "n_releases": releases, **PROMISE}
    task = (data, aggregation(6), np.ones(6))
    inside = subsample_and_average_diagnostics(*task, rng=fresh(3), **kwargs)
    release = subsample_and_average(*task, rng=fresh(3), **kwargs)
    np.testing.assert_allclose(inside.noise, np.sqrt((inside.sigma**2).sum(axis=1)) / 20)
    assert release.guarantee == Guarantee(0.5, 0.05, "replace one trajectory")
    scores = (release.theta - inside.mean) / inside.noise[:, None]
    assert stats.kstest(scores.ravel(), "norm").pvalue > 1e-3
    assert abs(np.corrcoef(scores.T)[0, 1]) < 0.1


@pytest.mark.parametrize("mechanism", [subsample_and_average, average_then_perturb])
def test_releases_repeat_with_the_seed_and_not_otherwise(mechanism):
    data = chain_data(300)
    kwargs = {"subsamples": 9, "size": 30, **PROMISE}
    one, same, other = (
        mechanism(data, tabular(6), np.ones(6), rng=fresh(seed), **kwargs).theta
        for seed in (1, 1, 2)
    )
    assert one.shape == (6,)
    assert (one == same).all()
    assert (one != other).all()


def test_several_releases_have_index_sets_of_their_own():
    data = chain_data(300)
    kwargs = {"subsamples": 9, "size": 4, "accounting": "optimal", **PROMISE}
    task = (data, tabular(6), np.ones(6))
    several = subsample_and_average_diagnostics(*task, rng=fresh(1), n_releases=3, **kwargs)
    indices = draw_subsamples(300, 27, 4, fresh(1)).reshape(3, 9, 4)
    for r in range(3):
        counted = subsample_statistics(data, indices[r], (0.0, 0.9))
        one = average_diagnostics(counted, *task[1:], base=several.base, f_max=0.9)
        np.testing.assert_allclose(several.mean[r], one.mean)
        np.testing.assert_allclose(several.sigma[r], one.sigma)


def test_returns_are_clipped_one_by_one():
    returns = np.array([[5.0], [-3.0], [0.5], [0.0]])
    data = FirstVisitReturns(returns, np.array([[True], [True], [True], [False]]))
    kwargs = {"subsamples": 1, "size": 4, "f_max": 1.0, "epsilon": 1.0, "delta": 0.1}
    task = (data, [[1.0]], [1.0])
    inside = subsample_and_average_diagnostics(*task, rng=fresh(), base=(1.0, 0.1), **kwargs)
    assert inside.mean == pytest.approx([0.5])  # 1, 0 and 1/2
    blue = average_then_perturb_diagnostics(*task, rng=fresh(), f_min=-2.0, **kwargs)
    assert blue.mean == pytest.approx([-0.5 / 3])  # 1, -2 and 1/2


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
        assert subsampling.optimal_composition_delta(*step, m, 1.0) <= 1e-5
        assert base_promise(*whole, base=(base.epsilon, base.delta)) == base
    other = base_promise(*whole, slack=2e-6)
    assert (other.epsilon, other.delta) == subsampling.base_guarantee_printed(*whole, 2e-6)


def test_a_base_epsilon_beyond_the_proof_is_cut_to_five():
    sizes = {"n": 100_000, "m": 200, "k": 2}
    uncut = subsampling.base_guarantee(5.0, 1e-3, *sizes.values())
    assert uncut[0] > 5
    base = base_promise(5.0, 1e-3, **sizes, accounting="closed-form")
    assert (base.epsilon, base.delta) == (5.0, uncut[1])


def test_a_given_base_must_keep_the_promise():
    sizes = {"n": 10_000, "m": 100, "k": 1000}
    best = base_promise(1.0, 1e-5, **sizes, accounting="optimal")
    with pytest.raises(ValueError, match="more than the 1e-05 promised"):
        base_promise(1.0, 1e-5, **sizes, base=(best.epsilon * 1.01, best.delta))


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
    kwargs = {"subsamples": 6, "size": 2, "ridge": ridge, "accounting": "optimal"}
    kwargs |= {"epsilon": 1.0, "delta": 0.2, "f_max": 1.0, "n_releases": trials}
    one, other = (
        subsample_and_average(data, [[1.0]], [1.0], rng=fresh(i), **kwargs).theta[:, 0]
        for i, data in enumerate(neighbours(6, 1))
    )
    found = audit_samples(one, other, delta=0.2, rng=fresh(8))
    assert found.epsilon_lower <= 1.0


@pytest.mark.parametrize("design", ["random", "partition"])
@pytest.mark.parametrize("ridge", [None, 3.0])
def test_the_sensitivity_of_the_average_is_attained(ridge, design):
    """Replacing the trajectory that most sub-samples share moves the average by exactly b G / m."""
    n, m, k = 40, 8, 5
    kwargs = {"subsamples": m, "size": k, "ridge": ridge, "design": design}
    kwargs |= {"epsilon": 1.0, "delta": 0.01, "f_max": 1.0}
    if design == "random":
        shared = np.bincount(draw_subsamples(n, m, k, fresh(4)).ravel(), minlength=n).argmax()
    else:
        shared = fresh(4).permutation(n)[0]
    moved = []
    for data in neighbours(n, 3):
        swap = np.arange(n)
        swap[[0, shared]] = shared, 0
        x = subset(data, swap)
        moved.append(
            average_then_perturb_diagnostics(x, tabular(3), np.ones(3), rng=fresh(4), **kwargs)
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


@settings(max_examples=60, deadline=None)
@given(st.sampled_from(sorted(PHI)), st.sampled_from([None, 0.5, 30.0]), st.booleans(), seeds)
def test_no_neighbour_moves_the_average_further(features, ridge, partition, seed):
    rng = fresh(seed)
    n, m, k = 12, 4, 3
    data = random_data(n, 6, seed)
    visited, returns = data.visited.copy(), data.returns.copy()
    visited[5] = rng.random(6) < 0.7
    returns[5] = np.where(visited[5], rng.choice([-0.5, 1.0], size=6), 0.0)
    kwargs = {"subsamples": m, "size": k, "ridge": ridge, "f_min": -0.5, "f_max": 1.0}
    kwargs |= {"design": "partition" if partition else "random", "epsilon": 1.0, "delta": 0.01}
    one, other = (
        average_then_perturb_diagnostics(x, PHI[features], np.ones(6), rng=fresh(seed), **kwargs)
        for x in (data, FirstVisitReturns(returns, visited))
    )
    assert np.linalg.norm(one.mean - other.mean) <= one.sensitivity * (1 + 1e-12)
    assert one.sensitivity == other.sensitivity
    assert one.inclusions == other.inclusions


@pytest.mark.parametrize(("n", "m", "k"), [(50, 6, 1), (500, 40, 20), (500, 12, 200)])
def test_inclusions_are_counted(n, m, k):
    data = chain_data(n)
    inside = average_then_perturb_diagnostics(
        data, tabular(6), np.ones(6), subsamples=m, size=k, rng=fresh(6), **PROMISE
    )
    indices = draw_subsamples(n, m, k, fresh(6))
    assert inside.inclusions == np.bincount(indices.ravel()).max()
    expected = lsw(subsample_statistics(data, indices, (0, 0.9)), tabular(6), np.ones(6))
    np.testing.assert_allclose(inside.mean, expected.mean(axis=0), rtol=1e-12)


def test_a_partition_uses_disjoint_blocks():
    data = chain_data(103)
    inside = average_then_perturb_diagnostics(
        data,
        tabular(6),
        np.ones(6),
        subsamples=10,
        size=10,
        design="partition",
        rng=fresh(6),
        **PROMISE,
    )
    blocks = fresh(6).permutation(103)[:100].reshape(10, 10)
    expected = lsw(subsample_statistics(data, blocks, (0, 0.9)), tabular(6), np.ones(6))
    np.testing.assert_allclose(inside.mean, expected.mean(axis=0), rtol=1e-12)
    assert inside.inclusions == 1
    assert inside.sensitivity == pytest.approx(0.1 * 0.9 * np.sqrt(6))


@pytest.mark.parametrize("design", ["random", "partition"])
def test_average_then_perturb_adds_noise_of_the_stated_size(design):
    data = chain_data(60, start="first")
    kwargs = {"subsamples": 6, "size": 10, "design": design, **PROMISE}
    task, scores = (data, tabular(6), np.ones(6)), []
    for seed in range(300):
        inside = average_then_perturb_diagnostics(*task, rng=fresh(seed), **kwargs)
        release = average_then_perturb(*task, rng=fresh(seed), **kwargs)
        assert release.guarantee == Guarantee(0.5, 0.05, NEIGHBOURS)
        scores.append((release.theta - inside.mean) / inside.noise)
    assert stats.kstest(np.ravel(scores), "norm").pvalue > 1e-3


# -- bad input ----------------------------------------------------------------------------

DATA = chain_data(30)


def call(mechanism=subsample_and_average, **change):
    given_ = {"data": DATA, "features": tabular(6), "weights": np.ones(6), "subsamples": 20}
    given_ |= {"size": 5, "rng": fresh(), **PROMISE}
    return mechanism(**{**given_, **change})


def blue(**change):
    return call(average_then_perturb, **change)


def counted(**change):
    statistics = VisitStatistics([[1, 2]], [[0.5, 0.5]], 2, bounds=(0, 1))
    given_ = {"statistics": statistics, "base": Guarantee(1.0, 0.1, NEIGHBOURS), "f_max": 1.0}
    return average_diagnostics(**{**given_, "features": np.eye(2), "weights": [1, 1], **change})


AVERAGED = DATA.statistics((0, 1))
BAD = [
    (lambda: draw_subsamples(5, 3, 6, fresh()), ValueError, "k must not exceed n"),
    (lambda: draw_subsamples(5, 0, 1, fresh()), ValueError, "m must be at least 1"),
    (lambda: draw_subsamples(5, 3, 0, fresh()), ValueError, "k must be at least 1"),
    (lambda: draw_subsamples(5.0, 3, 1, fresh()), TypeError, "n must be an integer"),
    (lambda: draw_subsamples(2**31, 3, 1, fresh()), ValueError, "n must be below"),
    (lambda: draw_subsamples(5, 3, 1, 7), TypeError, "rng must be a numpy.random.Generator"),
    (lambda: subsample_statistics(AVERAGED, [[0]], (0, 1)), TypeError, "FirstVisitReturns"),
    (lambda: subsample_statistics(DATA, [[0, 0]], (0, 1)), ValueError, "must not repeat"),
    (lambda: subsample_statistics(DATA, [[30]], (0, 1)), ValueError, r"0 \.\. 29"),
    (lambda: subsample_statistics(DATA, [[-1]], (0, 1)), ValueError, r"0 \.\. 29"),
    (lambda: subsample_statistics(DATA, [[0.0]], (0, 1)), TypeError, "must be integers"),
    (lambda: subsample_statistics(DATA, [0, 1], (0, 1)), ValueError, "shape"),
    (lambda: subsample_statistics(DATA, [[0], [1, 2]], (0, 1)), ValueError, "one array"),
    (lambda: subsample_statistics(DATA, np.empty((0, 3), int), (0, 1)), ValueError, "empty"),
    (lambda: subsample_statistics(DATA, [[0]], (1, 0)), ValueError, "lower < upper"),
    (lambda: call(data=AVERAGED), TypeError, "data must be a FirstVisitReturns"),
    (lambda: call(size=31), ValueError, "k must not exceed n"),
    (lambda: call(subsamples=0), ValueError, "m must be at least 1"),
    (lambda: call(n_releases=0), ValueError, "n_releases must be at least 1"),
    (lambda: call(rng=None), TypeError, "rng"),
    (lambda: call(epsilon=0.0), ValueError, "epsilon must be positive"),
    (lambda: call(delta=1.0), ValueError, "delta must lie strictly"),
    (lambda: call(f_max=0.0), ValueError, "f_max must be positive"),
    (lambda: call(f_min=1.0), ValueError, "f_min must be below f_max"),
    (lambda: call(features=tabular(5)), ValueError, "one row per state"),
    (lambda: call(features=np.ones((6, 2))), ValueError, "rank 1 below d"),
    (lambda: call(weights=-np.ones(6)), ValueError, "must not be negative"),
    (lambda: call(ridge=20.0, weights=2 * np.ones(6)), ValueError, "at most 1"),
    (lambda: call(ridge=0.0), ValueError, "ridge must be positive"),
    (lambda: call(ridge=0.5), ValueError, "ridge must exceed"),
    (lambda: call(improved=True), ValueError, "improved belongs to DP-LSL"),
    (lambda: call(ridge=9.0, allow_rank_deficient=True), ValueError, "belongs to DP-LSW"),
    (lambda: call(accounting="moments"), ValueError, "accounting must be one of"),
    (lambda: call(accounting="optimal", slack=0.01), ValueError, "no slack"),
    (lambda: call(slack=0.05), ValueError, "slack"),
    (lambda: call(epsilon=50.0), ValueError, "at most 4 ln"),
    (lambda: call(subsamples=1, size=1, delta=0.9), ValueError, "base delta would be 1"),
    (lambda: call(base=(0.1, 0.001), slack=0.01), ValueError, "needs no slack"),
    (lambda: call(base=(6.0, 0.001)), ValueError, "at most 5"),
    (lambda: call(base=0.1), ValueError, "pair"),
    (lambda: call(base=(0.1, 0.0)), ValueError, "base delta"),
    (lambda: call(base=(3.0, 0.01)), ValueError, "promised"),
    (lambda: blue(data=AVERAGED), TypeError, "data must be a FirstVisitReturns"),
    (lambda: blue(design="bagging"), ValueError, "design must be"),
    (lambda: blue(design="partition"), ValueError, r"at most floor\(n / k\) = 6"),
    (lambda: blue(rng=1), TypeError, "rng"),
    (lambda: blue(epsilon=-1.0), ValueError, "epsilon must be positive"),
    (lambda: blue(ridge=-1.0), ValueError, "ridge must be positive"),
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
