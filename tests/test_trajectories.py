"""Batches and first visits against a naive loop; fast paths against the slow one."""

import itertools
from collections import defaultdict

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dprl.mdp import CHAIN_CONVENTIONS, Chain, MarkovRewardProcess
from dprl.trajectories import (
    Batch,
    FirstVisitReturns,
    VisitStatistics,
    chain_first_visit_returns,
    chain_visit_statistics,
    discounted_returns,
    first_visit_returns,
    simulate,
    value_range,
)

N = 4  # states of the random batches: few, so that trajectories revisit them
steps = st.tuples(st.integers(0, N - 1), st.integers(0, 2), st.floats(-10, 10))
trajectories = st.lists(steps, min_size=1, max_size=9)
batches = st.lists(trajectories, min_size=1, max_size=7)
discounts = st.one_of(st.just(0.0), st.floats(0.0, 0.99))

ALL_CHAINS = [
    pytest.param(convention, start, id=f"{convention}-{start}")
    for convention in sorted(CHAIN_CONVENTIONS)
    for start in ("first", "uniform")
]


def naive_returns(trajectory, gamma):
    return [
        sum(gamma**j * reward for j, (_, _, reward) in enumerate(trajectory[t:]))
        for t in range(len(trajectory))
    ]


def naive_first_visits(rows, gamma, n_states=N):
    """Thesis, section 3.2.1, as it is written: one trajectory and one state at a time."""
    returns = np.zeros((len(rows), n_states))
    visited = np.zeros((len(rows), n_states), bool)
    for i, row in enumerate(rows):
        seen = [state for state, _, _ in row]
        for s in set(seen):
            visited[i, s] = True
            returns[i, s] = naive_returns(row, gamma)[seen.index(s)]
    return returns, visited


def naive_statistics(returns, visited):
    """Thesis, equation (3.2)."""
    counts, means = [], []
    for s in range(returns.shape[1]):
        mine = [returns[i, s] for i in range(len(returns)) if visited[i, s]]
        counts.append(len(mine))
        means.append(sum(mine) / len(mine) if mine else 0.0)
    return counts, means


def standard_score(a, b):
    """Two-sample z-scores of the columns; a column without spread in both must agree."""
    difference = a.mean(axis=0) - b.mean(axis=0)
    error = np.sqrt(a.var(axis=0) / len(a) + b.var(axis=0) / len(b))
    return np.where(np.abs(difference) < 1e-12, 0.0, difference / np.maximum(error, 1e-300))


def with_products(x):
    """All columns, their squares and the product of each pair: first and second moments."""
    i, j = np.triu_indices(x.shape[1])
    return np.concatenate([x, x[:, i] * x[:, j]], axis=1)


# batches


@given(batches)
def test_a_batch_keeps_what_the_lists_say(rows):
    batch = Batch.from_lists(rows, N)
    assert len(batch) == len(rows)
    for i, row in enumerate(rows):
        mine = batch.trajectory_ids == i
        kept = zip(batch.states[mine], batch.actions[mine], batch.rewards[mine], strict=True)
        assert [tuple(step) for step in kept] == row
        assert batch.ends[i] == sum(len(x) for x in rows[: i + 1])


@given(batches, trajectories, st.data())
def test_a_neighbour_replaces_one_trajectory_and_moves_a_count_by_one(rows, new, data):
    i = data.draw(st.integers(0, len(rows) - 1))
    batch = Batch.from_lists(rows, N)
    neighbour = batch.replace(i, new)
    expected = Batch.from_lists([*rows[:i], new, *rows[i + 1 :]], N)
    for name in ("states", "actions", "rewards", "lengths"):
        assert getattr(neighbour, name).tolist() == getattr(expected, name).tolist()
    old, changed = (first_visit_returns(b, 0.9).visit_counts for b in (batch, neighbour))
    assert np.abs(old - changed).max() <= 1
    assert batch.rewards.tolist() == [r for row in rows for _, _, r in row]  # untouched


def test_a_neighbour_of_a_batch_without_actions_has_none():
    batch = Batch(states=[0, 1], rewards=[0.0, 1.0], lengths=[1, 1], n_states=2)
    neighbour = batch.replace(1, [(0, 0, 5.0), (1, 0, 2.0)])
    assert neighbour.actions is None
    assert neighbour.states.tolist() == [0, 0, 1]
    assert neighbour.lengths.tolist() == [1, 2]


# returns


@given(batches, discounts)
def test_discounted_returns_equal_the_naive_sum(rows, gamma):
    expected = [g for row in rows for g in naive_returns(row, gamma)]
    assert discounted_returns(Batch.from_lists(rows, N), gamma) == pytest.approx(expected)


@given(batches, discounts)
def test_first_visit_returns_equal_the_naive_loop(rows, gamma):
    fast = first_visit_returns(Batch.from_lists(rows, N), gamma)
    returns, visited = naive_first_visits(rows, gamma)
    assert fast.visited.tolist() == visited.tolist()
    assert fast.returns == pytest.approx(returns)
    assert fast.visit_counts.tolist() == visited.sum(axis=0).tolist()


@pytest.mark.parametrize("seed", range(8))
def test_first_visit_returns_of_simulated_processes_equal_the_naive_loop(random_process, seed):
    process = random_process(seed, 0.9)
    batch = simulate(process, 50, np.random.default_rng(seed), record_terminal=True)
    rows = [
        [
            (int(s), 0, float(r))
            for s, r in zip(batch.states[mine], batch.rewards[mine], strict=True)
        ]
        for mine in (batch.trajectory_ids == i for i in range(len(batch)))
    ]
    assert any(len(row) > len({s for s, _, _ in row}) for row in rows)  # states are revisited
    returns, visited = naive_first_visits(rows, 0.9, process.n_states)
    fast = first_visit_returns(batch, 0.9)
    assert (fast.visited == visited).all()
    assert fast.returns == pytest.approx(returns)


@given(batches, discounts)
def test_statistics_equal_the_naive_averages(rows, gamma):
    returns = first_visit_returns(Batch.from_lists(rows, N), gamma)
    counts, means = naive_statistics(*naive_first_visits(rows, gamma))
    data = returns.statistics()
    assert data.counts.tolist() == counts
    assert data.mean_returns == pytest.approx(np.array(means))
    assert data.n_trajectories == len(rows)
    assert data.bounds is None


@given(batches, st.floats(-5, 5), st.floats(0.1, 5))
def test_clipping_is_done_return_by_return_before_the_average(rows, lower, width):
    returns = first_visit_returns(Batch.from_lists(rows, N), 0.9)
    upper = lower + width
    clipped = np.where(returns.visited, returns.returns.clip(lower, upper), 0.0)
    counts, means = naive_statistics(clipped, returns.visited)
    data = returns.statistics((lower, upper))
    assert data.counts.tolist() == counts
    assert data.mean_returns == pytest.approx(np.array(means))
    assert data.bounds == (lower, upper)


def test_clipping_the_average_would_not_be_the_same():
    returns = FirstVisitReturns([[0.0], [100.0]], np.ones((2, 1), bool))
    assert returns.statistics((0, 1)).mean_returns.tolist() == [0.5]
    assert returns.statistics().mean_returns.clip(0, 1).tolist() == [1.0]


@given(batches, batches, st.sampled_from([None, (-1.0, 2.0)]))
def test_merged_statistics_are_those_of_the_batches_together(first, second, bounds):
    def statistics(rows):
        return first_visit_returns(Batch.from_lists(rows, N), 0.9).statistics(bounds)

    merged, whole = statistics(first).merged(statistics(second)), statistics(first + second)
    assert merged.counts.tolist() == whole.counts.tolist()
    assert merged.mean_returns == pytest.approx(whole.mean_returns)
    assert (merged.n_trajectories, merged.bounds) == (whole.n_trajectories, whole.bounds)


def test_batches_clipped_to_different_ranges_do_not_merge():
    a = VisitStatistics([1], [0.5], 1, bounds=(0, 1))
    with pytest.raises(ValueError, match="same clipping range"):
        a.merged(VisitStatistics([1], [0.5], 1, bounds=(0, 2)))


def test_a_range_is_checked_and_made_of_floats():
    assert value_range(0, 2) == (0.0, 2.0)
    with pytest.raises(ValueError, match="lower < upper"):
        value_range(1, 1)


# simulation


@pytest.mark.parametrize("seed", range(8))
def test_simulated_steps_have_the_process_distribution(random_process, seed):
    """Start states and every transition cell, |z| < 5; rewards follow the transition."""
    process = random_process(seed)
    m = 20_000
    batch = simulate(process, m, np.random.default_rng(seed), record_terminal=True)
    begins, last = batch.ends - batch.lengths, batch.ends - 1
    assert process.terminal[batch.states[last]].all()
    assert not batch.rewards[last].any()
    inner = np.setdiff1d(np.arange(batch.states.size), last)
    assert not process.terminal[batch.states[inner]].any()

    count = np.bincount(batch.states[begins], minlength=process.n_states)
    error = np.sqrt(m * process.start * (1 - process.start))
    assert (np.abs(count - m * process.start) <= 5 * error).all()

    here, there = batch.states[inner], batch.states[inner + 1]
    assert (batch.rewards[inner] == process.reward[here, there]).all()
    cells = np.zeros((process.n_states, process.n_states))
    np.add.at(cells, (here, there), 1)
    p = process.transition
    departures = cells.sum(axis=1, keepdims=True)
    error = np.sqrt(departures * p * (1 - p))
    assert (np.abs(cells - departures * p) <= 5 * error + 1e-9).all()


def test_chain_trajectories_last_a_sum_of_geometric_times():
    """N holding times: mean N/q and variance N (1 - q)/q^2, q = 1 - p; |z| < 5."""
    n, q, m = 6, 0.4, 40_000
    batch = simulate(Chain(n, 1 - q, start="first"), m, np.random.default_rng(3))
    length = batch.lengths
    mean, variance = n / q, n * (1 - q) / q**2
    assert abs(length.mean() - mean) < 5 * np.sqrt(variance / m)
    squares = (length - mean) ** 2
    assert abs(squares.mean() - variance) < 5 * squares.std() / np.sqrt(m)
    assert length.min() >= n


def test_a_chain_stands_for_its_reward_process():
    chain = Chain(5, 0.3)
    one, other = (simulate(x, 9, np.random.default_rng(1)) for x in (chain, chain.process))
    assert (one.states == other.states).all()
    assert (one.lengths == other.lengths).all()


def test_recording_the_terminal_state_adds_one_step_and_changes_nothing_else():
    process = Chain(5, 0.3, start="uniform")
    plain = simulate(process, 30, np.random.default_rng(1))
    recorded = simulate(process, 30, np.random.default_rng(1), record_terminal=True)
    assert (recorded.lengths == plain.lengths + 1).all()
    inner = np.setdiff1d(np.arange(recorded.states.size), recorded.ends - 1)
    assert (recorded.states[inner] == plain.states).all()
    assert (recorded.rewards[inner] == plain.rewards).all()
    assert (recorded.states[recorded.ends - 1] == 5).all()


@pytest.mark.parametrize("record_terminal", [False, True])
@pytest.mark.parametrize("start", ["first", "uniform"])
def test_a_trajectory_may_take_max_steps_and_not_one_more(start, record_terminal):
    process = Chain(6, 0.0, start=start)  # from state 1 exactly 6 steps
    options = {"record_terminal": record_terminal}
    batch = simulate(process, 50, np.random.default_rng(0), max_steps=6, **options)
    assert batch.lengths.max() == 6 + record_terminal
    with pytest.raises(RuntimeError, match="max_steps = 5"):
        simulate(process, 50, np.random.default_rng(0), max_steps=5, **options)


def test_a_trajectory_that_starts_at_the_end_is_only_the_recorded_end():
    process = MarkovRewardProcess(np.eye(2), np.zeros((2, 2)), 0.5, [0.0, 1.0])
    batch = simulate(process, 3, np.random.default_rng(0), record_terminal=True)
    assert batch.states.tolist() == [1, 1, 1]
    assert batch.lengths.tolist() == [1, 1, 1]


def test_same_seed_same_trajectories():
    chain = Chain(5, 0.5, start="uniform")

    def draws():
        rng = np.random.default_rng(11)
        batch = simulate(chain, 20, rng)
        fast = chain_first_visit_returns(chain, 20, rng)
        data = chain_visit_statistics(chain, 20, rng, n_batches=3)
        return [batch.states, batch.lengths, fast.returns, data.counts, data.mean_returns]

    for a, b in zip(draws(), draws(), strict=True):
        assert (a == b).all()


# the chain's fast paths


def simulated(chain, m, seed):
    """First-visit returns in the N states by the general road."""
    inside = chain.rules.absorbing_inside and chain.rules.reward_on == "arrival"
    rng = np.random.default_rng(seed)
    batch = simulate(chain, m, rng, record_terminal=inside)
    slow = first_visit_returns(batch, chain.discount)
    n = chain.n_states
    return FirstVisitReturns(slow.returns[:, :n], slow.visited[:, :n])


@pytest.mark.parametrize(("convention", "start"), ALL_CHAINS)
def test_chain_first_visit_returns_have_the_distribution_of_simulation(convention, start):
    """All first and second moments of visits and returns in 5 states, |z| < 5."""
    chain = Chain(5, 0.6, 0.8, start, convention)
    m = 20_000
    slow = simulated(chain, m, 1)
    fast = chain_first_visit_returns(chain, m, np.random.default_rng(2))
    a, b = (with_products(np.c_[x.visited.astype(float), x.returns]) for x in (slow, fast))
    assert np.abs(standard_score(a, b)).max() < 5


@pytest.mark.parametrize(("convention", "start"), ALL_CHAINS)
def test_chain_returns_are_unbiased_for_the_values(convention, start):
    chain = Chain(6, 0.5, 0.9, start, convention)
    data = chain_first_visit_returns(chain, 50_000, np.random.default_rng(4)).statistics((0, 1))
    spread = np.sqrt(np.maximum(chain.return_variance(), 0) / data.counts)
    assert (np.abs(data.mean_returns - chain.values()) <= 5 * spread + 1e-12).all()


@pytest.mark.parametrize("bounds", [None, (0.0, 1.0), (0.3, 0.7)], ids=["free", "unit", "narrow"])
@pytest.mark.parametrize(("convention", "start"), ALL_CHAINS)
def test_chain_visit_statistics_have_the_distribution_of_simulation(convention, start, bounds):
    """3000 batches of 3 trajectories: means, variances, covariances of counts and averages."""
    chain = Chain(4, 0.5, 0.8, start, convention)
    runs, m = 3000, 3
    slow = simulated(chain, runs * m, 5)
    if bounds is not None:
        slow = slow.clipped(*bounds)
    visited = slow.visited.reshape(runs, m, 4)
    counts = visited.sum(axis=1)
    means = slow.returns.reshape(runs, m, 4).sum(axis=1) / np.maximum(counts, 1)
    rng = np.random.default_rng(6)
    fast = chain_visit_statistics(chain, m, rng, bounds=bounds, n_batches=runs)
    assert fast.counts.shape == fast.mean_returns.shape == (runs, 4)
    assert fast.bounds == bounds
    a = with_products(np.c_[counts, means])
    b = with_products(np.c_[fast.counts, fast.mean_returns])
    assert np.abs(standard_score(a, b)).max() < 5


@pytest.mark.parametrize(("convention", "start"), ALL_CHAINS)
def test_chain_visit_statistics_follow_the_exact_law_of_two_trajectories(convention, start):
    """Chi-square over every pair (counts, averages) that two trajectories can show.

    Holding times beyond 9 have probability 0.25^9 < 4e-6 each and go to the bin of rare
    outcomes. The statistic has about 60 degrees of freedom; z < 5 in the normal approximation.
    """
    stay, gamma, longest, runs = 0.25, 0.7, 9, 40_000
    chain = Chain(2, stay, gamma, start, convention)
    process, holding = chain.process, chain.n_holding
    one = defaultdict(float)  # law of (visited, returns) of one trajectory
    for first in np.flatnonzero(process.start):
        passed = list(range(first, holding))
        for times in itertools.product(range(1, longest + 1), repeat=len(passed)):
            tail = range(holding, process.n_states)
            path = np.r_[np.repeat(passed, times), tail].astype(int)
            if first >= holding:
                path = np.arange(first, process.n_states)
            rewards = np.r_[process.reward[path[:-1], path[1:]], 0.0]
            row = [(int(s), 0, float(r)) for s, r in zip(path, rewards, strict=True)]
            returns, visited = naive_first_visits([row], gamma, process.n_states)
            key = (tuple(visited[0, :2]), tuple(returns[0, :2]))
            mass = np.prod([(1 - stay) * stay ** (h - 1) for h in times])
            one[key] += process.start[first] * mass
    law = defaultdict(float)
    for (x, px), (y, py) in itertools.product(one.items(), repeat=2):
        counts = np.add(x[0], y[0], dtype=int)
        means = np.add(x[1], y[1]) / np.maximum(counts, 1)
        law[(*counts, *means.round(9))] += px * py
    assert sum(law.values()) == pytest.approx(1, abs=1e-4)

    drawn = chain_visit_statistics(chain, 2, np.random.default_rng(8), n_batches=runs)
    rows = np.c_[drawn.counts, drawn.mean_returns.round(9)]
    seen = defaultdict(int)
    for row in rows:
        seen[(int(row[0]), int(row[1]), row[2], row[3])] += 1
    common = {key: p for key, p in law.items() if p * runs >= 10}
    expected = np.array([p * runs for p in common.values()])
    observed = np.array([seen[key] for key in common])
    expected = np.append(expected, runs - expected.sum())
    observed = np.append(observed, runs - observed.sum())
    # outcomes outside the enumerated law need a holding time beyond the longest
    assert sum(k for key, k in seen.items() if key not in law) < 5
    kept = expected >= 1
    chi = ((observed - expected)[kept] ** 2 / expected[kept]).sum()
    free = kept.sum() - 1
    assert abs(chi - free) < 5 * np.sqrt(2 * max(free, 1))


def test_chain_visit_statistics_of_one_batch_have_no_leading_axis():
    chain = Chain(5, start="first")
    data = chain_visit_statistics(chain, 7, np.random.default_rng(0))
    assert data.counts.tolist() == [7] * 5
    assert data.n_trajectories == 7


def test_chain_visit_statistics_of_a_huge_batch_are_the_values():
    """m = 10^9 in milliseconds, and right: |z| < 5 in each state."""
    chain = Chain(40, start="uniform")
    m = 10**9
    data = chain_visit_statistics(chain, m, np.random.default_rng(0), bounds=(0, 1))
    p = chain.visit_probabilities()
    assert (np.abs(data.counts - m * p) <= 5 * np.sqrt(m * p * (1 - p))).all()
    spread = np.sqrt(chain.return_variance() / data.counts)
    assert (np.abs(data.mean_returns - chain.values()) <= 5 * spread).all()


@pytest.mark.parametrize("convention", sorted(CHAIN_CONVENTIONS))
def test_a_chain_that_never_stays_leaves_nothing_to_chance(convention):
    chain = Chain(5, 0.0, 0.9, "first", convention)
    fast = chain_first_visit_returns(chain, 3, np.random.default_rng(0))
    data = chain_visit_statistics(chain, 3, np.random.default_rng(0))
    assert fast.returns == pytest.approx(np.tile(chain.values(), (3, 1)))
    assert data.mean_returns == pytest.approx(chain.values())
    assert data.counts.tolist() == [3] * 5


def test_what_was_checked_cannot_be_changed_by_the_caller():
    means = np.array([0.5, 0.5])
    statistics = VisitStatistics(np.array([2, 2]), means, 2, bounds=(0.0, 1.0))
    means[0] = 50.0
    assert statistics.mean_returns.tolist() == [0.5, 0.5]
