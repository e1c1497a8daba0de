"""The passes over steps against the loops and the vector operations that they replace."""

import copy
import pickle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import sparse

from dprl import _passes
from dprl.mdp import Chain, MarkovDecisionProcess, MarkovRewardProcess, policy_iteration
from dprl.trajectories import (
    Batch,
    VisitStatistics,
    discounted_returns,
    first_visit_returns,
    simulate,
    simulate_visit_statistics,
    visit_statistics,
)

seeds = st.integers(0, 2**32 - 1)


def random_process(seed, n_states=None, density=0.4):
    """Rows of unequal support; the last state, which every other may reach, is the end."""
    rng = np.random.default_rng(seed)
    n = int(rng.integers(2, 12)) if n_states is None else n_states
    p = rng.random((n, n)) * (rng.random((n, n)) < density)
    p[:, -1] += 0.1
    p[-1] = np.eye(n)[-1]
    reward = rng.normal(size=(n, n))
    reward[-1] = 0
    start = np.append(rng.dirichlet(np.ones(n - 1)), 0.0)
    return MarkovRewardProcess(p / p.sum(axis=1, keepdims=True), reward, 0.9, start)


def random_batch(seed, n_states=7, scale=1.0):
    rng = np.random.default_rng(seed)
    lengths = rng.integers(1, 30, size=int(rng.integers(1, 60)))
    states = rng.integers(0, n_states, lengths.sum())
    return Batch(states, scale * rng.normal(size=states.size), lengths, n_states)


def simulate_reference(process, m, rng, record_terminal=False):
    """All trajectories a step further at a time, every successor of every state tried."""
    support = process.transition > 0
    width = int(support.sum(axis=1).max())
    successors = np.argsort(~support, axis=1, kind="stable")[:, :width]
    cumulative = np.cumsum(np.take_along_axis(process.transition, successors, axis=1), axis=1)
    for s, last in enumerate(support.sum(axis=1) - 1):
        cumulative[s, last:] = np.inf
    state, alive = rng.choice(process.n_states, size=m, p=process.start), np.arange(m)
    lists = [[] for _ in range(m)]
    while alive.size:
        ended = process.terminal[state]
        if record_terminal:
            for i, s in zip(alive[ended], state[ended], strict=True):
                lists[i].append((int(s), 0, 0.0))
        alive, state = alive[~ended], state[~ended]
        branch = (rng.random(alive.size)[:, None] >= cumulative[state]).sum(axis=1)
        following = successors[state, branch]
        rows = zip(alive, state, process.reward[state, following], strict=True)
        for i, s, r in rows:
            lists[i].append((int(s), 0, float(r)))
        state = following
    return Batch.from_lists(lists, process.n_states)


@pytest.fixture
def small_blocks(monkeypatch):
    """Blocks of a few steps, so that small batches have many."""
    monkeypatch.setattr(_passes, "BLOCK", 40)
    monkeypatch.setattr(_passes, "CELLS", 50)
    monkeypatch.setattr(_passes, "CHUNK", 7)
    monkeypatch.setattr(_passes, "GROUP", 11)


@given(seeds, st.booleans())
def test_simulation_draws_the_trajectories_of_the_reference(seed, record_terminal):
    process, m = random_process(seed), 40
    ours, theirs = np.random.default_rng(seed), np.random.default_rng(seed)
    batch = simulate(process, m, ours, record_terminal=record_terminal)
    reference = simulate_reference(process, m, theirs, record_terminal)
    for name in ("states", "rewards", "lengths"):
        np.testing.assert_array_equal(getattr(batch, name), getattr(reference, name))
        assert not getattr(batch, name).flags.writeable
        assert getattr(batch, name).dtype == getattr(reference, name).dtype
    assert ours.random() == theirs.random()  # not one number more


@pytest.mark.usefixtures("small_blocks")
@pytest.mark.parametrize("process", [Chain(4).process, random_process(3)], ids=["two", "many"])
def test_groups_of_trajectories_draw_the_same(process):
    reference = simulate_reference(process, 200, np.random.default_rng(1))
    batch = simulate(process, 200, np.random.default_rng(1))
    np.testing.assert_array_equal(batch.states, reference.states)
    np.testing.assert_array_equal(batch.lengths, reference.lengths)


def test_a_trajectory_that_starts_at_the_end_is_its_end_alone():
    process = MarkovRewardProcess([[0.0, 1.0], [0.0, 1.0]], np.eye(2) * 0, 0.9, [0.0, 1.0])
    batch = simulate(process, 3, np.random.default_rng(0), record_terminal=True)
    assert batch.states.tolist() == [1, 1, 1]
    assert batch.lengths.tolist() == [1, 1, 1]


@pytest.mark.usefixtures("small_blocks")
@pytest.mark.parametrize("seed", range(40))
def test_many_blocks_find_what_a_loop_finds(seed):
    batch, gamma = random_batch(seed), 0.9
    returns, visited = np.zeros((len(batch), 7)), np.zeros((len(batch), 7), bool)
    every = np.empty(batch.states.size)
    stop = 0
    for i, length in enumerate(batch.lengths):
        stop += length
        carry = 0.0
        for t in range(stop - 1, stop - length - 1, -1):
            carry = batch.rewards[t] + gamma * carry
            every[t] = returns[i, batch.states[t]] = carry
            visited[i, batch.states[t]] = True
    np.testing.assert_allclose(discounted_returns(batch, gamma), every, rtol=1e-13, atol=1e-14)
    found = first_visit_returns(batch, gamma)
    np.testing.assert_array_equal(found.visited, visited)
    np.testing.assert_allclose(found.returns, returns, rtol=1e-13, atol=1e-14)
    for bounds in (None, (-0.5, 0.7)):
        expected, data = found.statistics(bounds), visit_statistics(batch, gamma, bounds)
        assert data.counts.tolist() == expected.counts.tolist()
        np.testing.assert_allclose(data.mean_returns, expected.mean_returns, rtol=1e-12, atol=1e-14)
        assert (data.n_trajectories, data.bounds) == (expected.n_trajectories, expected.bounds)


@given(seeds)
def test_more_states_than_visits_wait_for_each_other(seed):
    batch = random_batch(seed)
    wide = Batch(batch.states, batch.rewards, batch.lengths, 10_000)
    narrow, data = visit_statistics(batch, 0.8), visit_statistics(wide, 0.8)
    np.testing.assert_array_equal(data.counts[:7], narrow.counts)
    np.testing.assert_allclose(data.mean_returns[:7], narrow.mean_returns, rtol=1e-12, atol=1e-14)
    assert not data.counts[7:].any()


@pytest.mark.usefixtures("small_blocks")
def test_a_block_of_huge_rewards_is_clipped_to_the_largest_number():
    largest = np.finfo(float).max
    rewards = np.tile([largest, largest, -largest, 1.0], 30)
    batch = Batch(np.zeros(120, int), rewards, np.full(30, 4), 1)
    found = discounted_returns(batch, 0.9).reshape(30, 4)
    assert found[:, 0].tolist() == [largest] * 30
    np.testing.assert_allclose(found[:, 1] / largest, 0.1)
    assert found[:, 3].tolist() == [1.0] * 30


def test_what_follows_an_end_does_not_matter():
    """The returns of a trajectory are the same to the last bit, whatever stands behind it."""
    first, rng = random_batch(5), np.random.default_rng(0)
    returns = discounted_returns(first, 0.95)
    other = rng.normal(size=50) * 1e12
    both = Batch(
        np.append(first.states, rng.integers(0, 7, 50)),
        np.append(first.rewards, other),
        np.append(first.lengths, 50),
        7,
    )
    np.testing.assert_array_equal(discounted_returns(both, 0.95)[: returns.size], returns)


# statistics that are drawn, read and forgotten


def test_few_trajectories_are_those_of_simulate():
    chain = Chain(6)
    drawn = simulate_visit_statistics(chain, 900, np.random.default_rng(2), bounds=(0, 0.5))
    batch = simulate(chain, 900, np.random.default_rng(2))
    kept = visit_statistics(batch, chain.discount, (0, 0.5))
    np.testing.assert_array_equal(drawn.counts, kept.counts)
    np.testing.assert_array_equal(drawn.mean_returns, kept.mean_returns)
    assert drawn.bounds == (0.0, 0.5)


def test_many_trajectories_have_the_right_counts_and_means(monkeypatch):
    monkeypatch.setattr("dprl.trajectories.KEPT_STEPS", 5_000)
    drawn_at_once = []
    original = _passes.walk

    def recorded(*arguments):
        found = original(*arguments)
        drawn_at_once.append(found[0].size)
        return found

    monkeypatch.setattr(_passes, "walk", recorded)
    chain, m = Chain(8), 30_000
    data = simulate_visit_statistics(chain, m, np.random.default_rng(3))
    assert data.n_trajectories == m
    assert len(drawn_at_once) > 20
    assert max(drawn_at_once[1:]) < 8_000  # the first part has 1,000 trajectories
    p = chain.visit_probabilities()
    assert (np.abs(data.counts[:8] - m * p) <= 5 * np.sqrt(m * p * (1 - p))).all()
    spread = np.sqrt(chain.return_variance() / data.counts[:8])
    assert (np.abs(data.mean_returns[:8] - chain.values()) <= 5 * spread).all()


def test_terminal_states_count_where_they_are_recorded():
    process = random_process(11)
    data = simulate_visit_statistics(process, 2_000, np.random.default_rng(4), record_terminal=True)
    assert data.counts[-1] == 2_000
    assert isinstance(data, VisitStatistics)


# sparse transition matrices


@given(seeds, st.sampled_from(["csr_array", "coo_array", "csc_matrix"]), st.booleans())
def test_a_sparse_process_is_the_dense_one(seed, kind, sparse_reward):
    dense = random_process(seed)
    form = getattr(sparse, kind)
    reward = form(dense.reward) if sparse_reward else dense.reward
    thin = MarkovRewardProcess(form(dense.transition), reward, 0.9, dense.start)
    assert thin.n_states == dense.n_states
    assert thin.terminal.tolist() == dense.terminal.tolist()
    for name in ("expected_reward",):
        np.testing.assert_allclose(getattr(thin, name), getattr(dense, name), atol=1e-12)
    for name in ("values", "return_variance", "visit_probabilities"):
        np.testing.assert_allclose(getattr(thin, name)(), getattr(dense, name)(), atol=1e-9)
    v = np.random.default_rng(seed).normal(size=(2, 3, dense.n_states))
    np.testing.assert_allclose(thin.bellman(v), dense.bellman(v), atol=1e-12)
    ours, theirs = (simulate(x, 20, np.random.default_rng(seed)) for x in (thin, dense))
    np.testing.assert_array_equal(ours.states, theirs.states)
    np.testing.assert_array_equal(ours.rewards, theirs.rewards)
    np.testing.assert_array_equal(thin.transition, dense.transition)
    possible = dense.transition > 0
    np.testing.assert_array_equal(thin.reward[possible], dense.reward[possible])


@given(seeds, st.booleans(), st.booleans())
def test_a_sparse_decision_process_is_the_dense_one(seed, per_transition, sparse_reward):
    rng = np.random.default_rng(seed)
    n, k = int(rng.integers(1, 6)), int(rng.integers(1, 4))
    p = rng.dirichlet(np.full(n, 0.4), size=(n, k))
    p[rng.random((n, k)) < 0.3] = np.eye(n)[0]  # certain steps
    reward = rng.normal(size=(n, k, n) if per_transition else (n, k))
    dense = MarkovDecisionProcess(p, reward, 0.9, np.ones(n) / n)
    paid = reward
    if per_transition and sparse_reward:
        paid = [sparse.coo_array(reward[:, a]) for a in range(k)]
    thin = MarkovDecisionProcess(
        [sparse.csr_array(p[:, a]) for a in range(k)], paid, 0.9, np.ones(n) / n
    )
    assert (thin.n_states, thin.n_actions) == (n, k)
    np.testing.assert_allclose(thin.expected_reward, dense.expected_reward, atol=1e-12)
    v = rng.normal(size=(2, n))
    np.testing.assert_allclose(thin.action_values(v), dense.action_values(v), atol=1e-12)
    pi = rng.dirichlet(np.full(k, 0.3), size=n)
    pi[rng.random(n) < 0.3] = np.eye(k)[-1]
    for policy in (pi, rng.integers(0, k, n)):
        ours, theirs = thin.under(policy), dense.under(policy)
        assert ours.terminal.tolist() == theirs.terminal.tolist()
        np.testing.assert_allclose(ours.transition, theirs.transition, atol=1e-12)
        np.testing.assert_allclose(ours.values(), theirs.values(), atol=1e-9)
    ours, theirs = (policy_iteration(x, np.zeros(n, int)) for x in (thin, dense))
    np.testing.assert_allclose(ours.values[-1], theirs.values[-1], atol=1e-9)
    assert "transition" not in vars(thin)
    np.testing.assert_array_equal(thin.transition, dense.transition)
    possible = p > 0
    np.testing.assert_array_equal(thin.reward[possible], dense.reward[possible])


def long_path(n):
    """0 -> 1 -> ... -> n - 1, which is the end; one step back with probability 0.1."""
    i = np.arange(n - 1)
    back = np.maximum(i - 1, 0)
    p = sparse.coo_array(
        (
            np.r_[np.full(n - 1, 0.9), np.full(n - 1, 0.1), 1.0],
            (np.r_[i, i, n - 1], np.r_[i + 1, back, n - 1]),
        ),
        shape=(n, n),
    )
    reward = sparse.coo_array(([1.0], ([n - 2], [n - 1])), shape=(n, n))
    return MarkovRewardProcess(p, reward, 0.999, np.eye(1, n)[0])


def test_a_process_of_many_states_never_becomes_dense():
    process = long_path(20_000)  # two dense matrices would take 6.4 GB
    process.require_termination()
    assert process.values()[-2] == pytest.approx(0.9 + 0.1 * 0.999 * process.values()[-3])
    batch = simulate(process, 2, np.random.default_rng(0))
    assert batch.states.max() == 19_998
    data = visit_statistics(batch, process.discount, (0, 1))
    assert data.counts[:-1].tolist() == [2] * 19_999
    assert "transition" not in vars(process)


def test_a_state_without_a_way_out_is_found_in_a_sparse_process():
    p = sparse.csr_array(np.array([[0.5, 0.5, 0.0], [0.0, 0.0, 1.0], [0.0, 1.0, 0.0]]))
    process = MarkovRewardProcess(p, np.zeros((3, 3)), 0.9, [1, 0, 0])
    with pytest.raises(ValueError, match=r"states \[0, 1, 2\] never reach a terminal state"):
        process.require_termination()


def test_single_precision_in_a_sparse_matrix_is_as_exact_as_its_type():
    rows = np.random.default_rng(1).dirichlet(np.ones(7), size=7).astype(np.float32)
    process = MarkovRewardProcess(sparse.csr_array(rows), np.zeros((7, 7)), 0.9, np.eye(7)[0])
    np.testing.assert_allclose(process.transition.sum(axis=1), 1, atol=1e-15)


SPARSE = sparse.csr_array(np.array([[0.5, 0.5], [0.0, 1.0]]))
WRONG = {
    "row": (SPARSE * 0.9, SPARSE * 0, "row 0 of transition sums to 0.9; rows must sum to one"),
    "negative": (
        sparse.csr_array(np.array([[1.5, -0.5], [0.0, 1.0]])),
        SPARSE * 0,
        "transition must not hold negative",
    ),
    "nan": (SPARSE * np.nan, SPARSE * 0, "transition holds NaN"),
    "complex": (SPARSE * 1j, SPARSE * 0, "transition must be an array of numbers"),
    "not square": (sparse.csr_array(np.array([[0.5, 0.5]])), SPARSE, "transition must be square"),
    "reward shape": (SPARSE, sparse.csr_array((3, 3)), "reward must have the shape of transition"),
    "reward shape, dense": (SPARSE, np.zeros((3, 3)), "reward must have the shape of transition"),
    "reward": (SPARSE, SPARSE * np.inf, "reward holds NaN or infinite"),
}


@pytest.mark.parametrize(("transition", "reward", "words"), WRONG.values(), ids=WRONG)
def test_a_sparse_matrix_is_checked_like_a_dense_one(transition, reward, words):
    with pytest.raises(ValueError, match=words):
        MarkovRewardProcess(transition, reward, 0.9, [1, 0])


WRONG_ACTIONS = {
    "one dense": ([SPARSE, np.eye(2)], np.zeros((2, 2)), "one sparse matrix for each action"),
    "shapes": ([SPARSE, sparse.eye_array(3)], np.zeros((2, 2)), r"matrices of one shape \(n, n\)"),
    "rewards": ([SPARSE] * 2, [SPARSE], "reward must hold 2 matrices"),
    "reward shape": ([SPARSE] * 2, np.zeros(2), r"reward must have shape \(2, 2\) or"),
    "row": ([SPARSE, SPARSE * 0.9], np.zeros((2, 2)), "row 0 of transition sums to 0.9"),
}


@pytest.mark.parametrize(
    ("transition", "reward", "words"), WRONG_ACTIONS.values(), ids=WRONG_ACTIONS
)
def test_sparse_matrices_of_actions_are_checked(transition, reward, words):
    with pytest.raises(ValueError, match=words):
        MarkovDecisionProcess(transition, reward, 0.9, [1, 0])


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda x: pickle.loads(pickle.dumps(x))])
def test_a_sparse_process_can_be_copied(copied):
    process = copied(MarkovRewardProcess(SPARSE, SPARSE * 0, 0.9, [1, 0]))
    assert process.transition.tolist() == [[0.5, 0.5], [0.0, 1.0]]
    with pytest.raises(AttributeError, match="no attribute 'policy'"):
        process.policy  # noqa: B018
