"""Random sub-samples: exactly uniform draws, and counts and averages against loops."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from dprl.private_evaluation import draw_subsamples, subsample_statistics, subsamples
from dprl.trajectories import FirstVisitReturns

seeds = st.integers(0, 2**32 - 1)


def fresh(seed=0):
    return np.random.default_rng(seed)


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


class Recorder:
    """A generator that keeps what it draws."""

    def __init__(self, seed):
        self.rng, self.drawn = fresh(seed), []

    def integers(self, *args, **kwargs):
        self.drawn.append(self.rng.integers(*args, **kwargs).copy())
        return self.drawn[-1].copy()


@given(st.integers(1, 12), st.data())
def test_a_row_is_the_first_different_values_of_one_sequence(n, data):
    """Exactly uniform for that reason: the next new value is uniform over the rest."""
    k = data.draw(st.integers(1, n))
    rng = Recorder(data.draw(seeds))
    row = subsamples._sparse_rows(n, k, 1, rng)[0]
    sequence = np.concatenate([x.ravel() for x in rng.drawn]).tolist()
    assert row.tolist() == sorted(list(dict.fromkeys(sequence))[:k])
    assert len(set(sequence)) == k  # none was drawn too many


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
    assert (subsamples._kth_smallest(keys, k) == np.sort(keys, axis=1)[:, k - 1]).all()


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
    members = subsamples._dense_rows(20, 7, 50, rng)
    assert rng.calls > 1
    assert (members.sum(axis=1) == 7).all()


def test_draws_repeat_with_the_seed_and_not_otherwise():
    for n, k in ((1000, 3), (1000, 300)):
        one, same, other = (draw_subsamples(n, 20, k, fresh(seed)) for seed in (1, 1, 2))
        assert (one == same).all()
        assert (one != other).any()


# -- counts and means ---------------------------------------------------------------------


@settings(max_examples=60)
@given(
    st.integers(1, 40),
    st.integers(1, 60),
    st.integers(1, 12),
    st.floats(0, 1),
    st.sampled_from([(-0.5, 1.0), (0.25, 1.0), (-2.0, -0.5)]),
    seeds,
)
def test_statistics_are_those_of_each_sub_sample(n, n_states, m, share, bounds, seed):
    """Also where 0, the sum of a trajectory that does not visit, is outside the range."""
    data, k = random_data(n, n_states, seed), max(1, round(share * n))
    indices = fresh(seed).permuted(np.tile(np.arange(n), (m, 1)), axis=1)[:, :k]
    all_at_once = subsample_statistics(data, indices, bounds)
    assert all_at_once.n_trajectories == k
    assert all_at_once.bounds == bounds
    for row, index in enumerate(indices):
        one = subset(data, index).statistics(bounds)
        assert (all_at_once.counts[row] == one.counts).all()
        np.testing.assert_allclose(all_at_once.mean_returns[row], one.mean_returns, atol=1e-13)


def test_a_resized_table_is_the_table_of_that_size():
    data = random_data(300, 7, seed=5)
    table = subsamples.SubsampleTable(data, 0.0, 1.0, 40)
    for k in (1, 5, 200):  # three widths of packed counts; indices and memberships
        table.resize(k)
        rows = draw_subsamples(300, 30, k, fresh(k))
        got, want = table.statistics_of(rows), subsample_statistics(data, rows, (0.0, 1.0))
        np.testing.assert_array_equal(got.counts, want.counts)
        np.testing.assert_array_equal(got.mean_returns, want.mean_returns)
        assert got.n_trajectories == k


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
    data, indices = random_data(2000, 6), draw_subsamples(2000, 30, k, fresh())
    large = subsample_statistics(data, indices, (0.0, 1.0))
    monkeypatch.setattr(subsamples, "_SLICE", 16)
    monkeypatch.setattr(subsamples, "CELLS", 128)
    small = subsample_statistics(data, indices, (0.0, 1.0))
    assert (large.counts == small.counts).all()
    np.testing.assert_allclose(large.mean_returns, small.mean_returns, rtol=1e-12, atol=1e-15)


# -- bad input ----------------------------------------------------------------------------

DATA = random_data(30, 6)
BAD = [
    (lambda: draw_subsamples(5, 3, 6, fresh()), ValueError, "k must not exceed n"),
    (lambda: draw_subsamples(5, 0, 1, fresh()), ValueError, "m must be at least 1"),
    (lambda: draw_subsamples(5, 3, 0, fresh()), ValueError, "k must be at least 1"),
    (lambda: draw_subsamples(5.0, 3, 1, fresh()), TypeError, "n must be an integer"),
    (lambda: draw_subsamples(2**31, 3, 1, fresh()), ValueError, "n must be below"),
    (lambda: draw_subsamples(5, 3, 1, 7), TypeError, "rng must be a numpy.random.Generator"),
    (
        lambda: subsample_statistics(DATA.statistics((0, 1)), [[0]], (0, 1)),
        TypeError,
        "FirstVisitReturns",
    ),
    (lambda: subsample_statistics(DATA, [[0, 0]], (0, 1)), ValueError, "must not repeat"),
    (lambda: subsample_statistics(DATA, [[30]], (0, 1)), ValueError, r"0 \.\. 29"),
    (lambda: subsample_statistics(DATA, [[-1]], (0, 1)), ValueError, r"0 \.\. 29"),
    (lambda: subsample_statistics(DATA, [[0.0]], (0, 1)), TypeError, "must be integers"),
    (lambda: subsample_statistics(DATA, [0, 1], (0, 1)), ValueError, "shape"),
    (lambda: subsample_statistics(DATA, [[0], [1, 2]], (0, 1)), ValueError, "one array"),
    (lambda: subsample_statistics(DATA, np.empty((0, 3), int), (0, 1)), ValueError, "empty"),
    (lambda: subsample_statistics(DATA, [[0]], (1, 0)), ValueError, "lower < upper"),
]


@pytest.mark.parametrize(("bad", "kind", "match"), BAD)
def test_bad_input_is_refused_with_a_reason(bad, kind, match):
    with pytest.raises(kind, match=match):
        bad()
