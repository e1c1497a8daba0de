"""Values: closed form against linear solve against iteration; variances, visits; policies."""

from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dprl.mdp import (
    BOOK_CONVENTION,
    CHAIN_CONVENTIONS,
    Chain,
    MarkovDecisionProcess,
    MarkovRewardProcess,
    policy_iteration,
)
from dprl.trajectories import discounted_returns, first_visit_returns, simulate

seeds = st.integers(0, 2**32 - 1)
discounts = st.one_of(st.just(0.0), st.floats(1e-9, 0.995))
conventions = st.sampled_from(sorted(CHAIN_CONVENTIONS))
starts = st.sampled_from(["first", "uniform"])
chains = st.builds(
    Chain,
    n_states=st.integers(2, 30),
    stay=st.one_of(st.just(0.0), st.floats(0.0, 0.95)),
    discount=discounts,
    start=starts,
    convention=conventions,
)


# the chain


@given(chains)
def test_chain_values_are_powers_of_g(chain):
    assert chain.values() == pytest.approx(chain.closed_form_values(), rel=1e-9, abs=1e-12)


@pytest.mark.parametrize("convention", sorted(CHAIN_CONVENTIONS))
@pytest.mark.parametrize("stay", [0.0, 0.5])
def test_without_discount_factor_only_an_immediate_unit_counts(convention, stay):
    chain = Chain(5, stay, 0.0, convention=convention)
    expected = {
        "inside-arrival": [0, 0, 0, 1 - stay, 0],
        "outside-arrival": [0, 0, 0, 0, 1 - stay],
        "inside-occupancy": [0, 0, 0, 0, 1],
        "outside-occupancy": [0, 0, 0, 0, 0],
    }[convention]
    assert chain.values() == pytest.approx(expected)
    assert chain.closed_form_values() == pytest.approx(expected)


@given(st.integers(2, 30), st.floats(0.01, 0.99), conventions)
def test_a_chain_that_never_stays_walks_straight_to_its_unit(n, gamma, convention):
    rules = CHAIN_CONVENTIONS[convention]
    steps = np.arange(n, 0, -1) - rules.absorbing_inside  # to the absorbing state
    delay = steps if rules.reward_on == "occupancy" else steps - 1
    expected = np.where(delay < 0, 0.0, gamma ** np.maximum(delay, 0.0))
    assert Chain(n, 0.0, gamma, convention=convention).values() == pytest.approx(expected)


@pytest.mark.parametrize(
    ("convention", "values", "root_mean_square"),
    [
        ("inside-arrival", [0.463024336, 0.472378363, 0.990099010, 0.0], 0.702617809),
        ("outside-arrival", [0.453855537, 0.463024336, 0.970493089, 0.990099010], 0.706272898),
        ("inside-occupancy", [0.458394092, 0.467654579, 0.980198020, 1.0], 0.713335627),
        ("outside-occupancy", [0.449316981, 0.458394092, 0.960788158, 0.980198020], 0.699210169),
    ],
)
def test_the_thesis_chain_in_the_four_conventions(convention, values, root_mean_square):
    v = Chain(40, 0.5, 0.99, convention=convention).values()
    assert v.shape == (40,)
    assert v[[0, 1, 38, 39]] == pytest.approx(values, abs=5e-10)
    assert np.sqrt((v**2).mean()) == pytest.approx(root_mean_square, abs=5e-10)


def test_the_book_reads_the_chain_with_forty_transient_states_paid_on_arrival():
    assert BOOK_CONVENTION == "outside-arrival"
    assert Chain().convention == BOOK_CONVENTION
    assert (Chain().n_states, Chain().n_holding, Chain().process.n_states) == (40, 40, 41)


@given(chains)
def test_chain_values_lie_in_the_unit_interval_and_do_not_fall_towards_the_end(chain):
    v = chain.values()
    assert (v >= -1e-12).all()
    assert (v <= 1 + 1e-12).all()
    rising = v[:-1] if chain.convention == "inside-arrival" else v
    assert (np.diff(rising) >= -1e-12).all()


@given(st.integers(2, 40), st.floats(0, 0.9), conventions)
def test_from_a_uniform_start_state_s_is_visited_with_probability_s_over_n(n, stay, convention):
    uniform = Chain(n, stay, 0.9, "uniform", convention).visit_probabilities()
    assert uniform == pytest.approx(np.arange(1, n + 1) / n)
    first = Chain(n, stay, 0.9, "first", convention).visit_probabilities()
    assert first == pytest.approx(np.ones(n))


@given(st.integers(2, 40), st.floats(0, 0.9), st.floats(0.1, 0.99))
def test_chain_return_variance_closed_form(n, stay, gamma):
    """The square of a power of gamma is a power of gamma^2: g2^k / gamma^2 - V^2."""
    chain = Chain(n, stay, gamma, convention="outside-arrival")
    left = n - np.arange(n)
    g2 = (1 - stay) * gamma**2 / (1 - stay * gamma**2)
    expected = g2**left / gamma**2 - chain.values() ** 2
    assert chain.return_variance() == pytest.approx(expected, abs=1e-12)


def test_a_single_state_before_the_end_has_a_geometric_return():
    """E and Var of gamma^(H-1), summed over the holding time itself."""
    chain = Chain(2, 0.7, 0.8, convention="outside-arrival")
    h = np.arange(1, 400)
    mass = 0.3 * 0.7 ** (h - 1)
    first, second = (mass * 0.8 ** (h - 1.0)).sum(), (mass * 0.64 ** (h - 1.0)).sum()
    assert chain.values()[-1] == pytest.approx(first)
    assert chain.process.return_variance()[1] == pytest.approx(second - first**2)


# any finite process


@given(seeds, discounts)
def test_values_are_the_fixed_point_of_the_bellman_operator(random_process, seed, gamma):
    process = random_process(seed, gamma)
    v = process.values()
    assert process.bellman(v) == pytest.approx(v, rel=1e-9, abs=1e-9)


@given(seeds, st.floats(0.0, 0.9))
def test_values_are_the_limit_of_iteration(random_process, seed, gamma):
    process = random_process(seed, gamma)
    v = np.zeros(process.n_states)
    for _ in range(400):
        v = process.bellman(v)
    assert v == pytest.approx(process.values(), abs=1e-9)


@given(seeds, discounts)
def test_the_bellman_operator_contracts_by_the_discount_factor(random_process, seed, gamma):
    process = random_process(seed, gamma)
    u, v = np.random.default_rng(seed).normal(size=(2, 16, process.n_states))
    before = np.abs(u - v).max(axis=-1)
    after = np.abs(process.bellman(u) - process.bellman(v)).max(axis=-1)
    assert (after <= gamma * before + 1e-12).all()


@given(seeds)
def test_bellman_on_leading_axes_is_a_loop(random_process, seed):
    process = random_process(seed)
    v = np.random.default_rng(seed).normal(size=(3, 2, process.n_states))
    looped = [[process.bellman(x) for x in row] for row in v]
    assert process.bellman(v) == pytest.approx(np.array(looped))


@given(seeds, st.floats(0.0, 0.95))
def test_return_variance_solves_the_variance_equation(random_process, seed, gamma):
    """A second recursion: Var(s) = E[(R + gamma V' - V)^2 + gamma^2 Var']."""
    process = random_process(seed, gamma)
    v = process.values()
    surprise = process.reward + gamma * v - v[:, None]
    local = (process.transition * surprise**2).sum(axis=1)
    variance = np.linalg.solve(
        np.eye(process.n_states) - gamma**2 * process.transition,
        local,
    )
    assert process.return_variance() == pytest.approx(variance, abs=1e-9)


@given(seeds)
def test_visit_probabilities_are_hitting_probabilities(random_process, seed):
    """Second method: for each state one linear system with that state made absorbing."""
    process = random_process(seed)
    n, expected = process.n_states, []
    for s in range(n):
        others = [i for i in range(n) if i != s and not process.terminal[i]]
        p = process.transition
        hit = np.zeros(n)
        hit[s] = 1.0
        matrix = np.eye(len(others)) - p[np.ix_(others, others)]
        hit[others] = np.linalg.solve(matrix, p[others, s])
        expected.append(process.start @ hit)
    assert process.visit_probabilities() == pytest.approx(expected, abs=1e-9)


@pytest.mark.parametrize("seed", range(6))
def test_values_variances_and_visits_agree_with_simulation(random_process, seed):
    """z-scores below 5: with about 100 of them in all, a false alarm has chance below 1e-4."""
    process = random_process(seed, 0.8)
    m = 20_000
    batch = simulate(process, m, np.random.default_rng(seed), record_terminal=True)
    observed = first_visit_returns(batch, 0.8).visited.mean(axis=0)
    p = process.visit_probabilities()
    assert (np.abs(observed - p) <= 5 * np.sqrt(p * (1 - p) / m) + 1e-9).all()

    # the returns from one state: the discounted return of the first step
    mass = process.start[batch.states[batch.ends - batch.lengths]]
    assert (mass > 0).all()
    values, variances = process.values(), process.return_variance()
    returns = discounted_returns(batch, 0.8)[batch.ends - batch.lengths]
    for s in np.flatnonzero(process.start > 0.05):
        mine = returns[batch.states[batch.ends - batch.lengths] == s]
        centred = (mine - values[s]) ** 2
        assert abs(mine.mean() - values[s]) < 5 * np.sqrt(variances[s] / mine.size) + 1e-9
        spread = centred.std() / np.sqrt(mine.size)
        assert abs(centred.mean() - variances[s]) < 5 * spread + 1e-9


def test_terminal_states_are_found_and_can_be_chosen():
    eye, zero = np.eye(2), np.zeros((2, 2))
    assert MarkovRewardProcess(eye, zero, 0.5, [1, 0]).terminal.tolist() == [True, True]
    chosen = MarkovRewardProcess(eye, zero, 0.5, [1, 0], terminal=[False, True])
    assert chosen.terminal.tolist() == [False, True]
    paying = MarkovRewardProcess(eye, np.eye(2), 0.5, [1, 0])  # absorbing but not at rest
    assert paying.terminal.tolist() == [False, False]
    assert paying.values() == pytest.approx([2.0, 2.0])


def test_a_process_keeps_its_own_read_only_arrays():
    p = np.array([[0.5, 0.5], [0.0, 1.0]])
    process = MarkovRewardProcess(p, np.zeros((2, 2)), 0.9, [1, 0])
    p[0] = 0.0
    assert process.transition[0].tolist() == [0.5, 0.5]
    with pytest.raises(ValueError, match="read-only"):
        process.transition[0, 0] = 1.0


# decision processes


def decision_process(seed, discount=0.9, states=None, actions=None, per_transition=True):
    """Random sparse transitions, rewards of both signs, no state that must end."""
    rng = np.random.default_rng(seed)
    n = int(rng.integers(1, 6)) if states is None else states
    k = int(rng.integers(1, 4)) if actions is None else actions
    p = rng.dirichlet(np.full(n, 0.5), size=(n, k))
    reward = rng.normal(size=(n, k, n) if per_transition else (n, k))
    return MarkovDecisionProcess(p, reward, discount, rng.dirichlet(np.ones(n)))


def random_policy(process, seed):
    return np.random.default_rng(seed + 1).dirichlet(
        np.full(process.n_actions, 0.5), size=process.n_states
    )


@given(seeds, st.booleans())
def test_fixing_a_policy_averages_over_its_actions(seed, per_transition):
    """Equation 2.3 and the mean reward, one sum at a time."""
    process = decision_process(seed, per_transition=per_transition)
    pi = random_policy(process, seed)
    left = process.under(pi)
    for s, t in product(range(process.n_states), repeat=2):
        arrive = sum(pi[s, a] * process.transition[s, a, t] for a in range(process.n_actions))
        paid = sum(
            pi[s, a] * process.transition[s, a, t] * process.reward[s, a, t]
            for a in range(process.n_actions)
        )
        assert left.transition[s, t] == pytest.approx(arrive, abs=1e-12)
        assert left.transition[s, t] * left.reward[s, t] == pytest.approx(paid, abs=1e-12)
    assert (left.discount, left.start.tolist()) == (process.discount, process.start.tolist())


@given(seeds, discounts)
def test_values_are_the_mean_of_action_values_under_the_policy(seed, gamma):
    process = decision_process(seed, gamma)
    pi = random_policy(process, seed)
    v = process.under(pi).values()
    assert (pi * process.action_values(v)).sum(axis=1) == pytest.approx(v, rel=1e-9, abs=1e-9)


@given(seeds)
def test_action_values_are_values_of_the_process_that_acts_once(seed):
    """Equation 2.5 itself: a copy of the states in which the first action is a, then pi."""
    process = decision_process(seed)
    n, k, pi = process.n_states, process.n_actions, random_policy(process, seed)
    left, expected = process.under(pi), np.empty((n, k))
    for s, a in product(range(n), range(k)):
        p, r = np.zeros((n + 1, n + 1)), np.zeros((n + 1, n + 1))
        p[:n, :n], r[:n, :n] = left.transition, left.reward
        p[n, :n], r[n, :n] = process.transition[s, a], process.reward[s, a]
        expected[s, a] = MarkovRewardProcess(p, r, 0.9, np.eye(n + 1)[n]).values()[n]
    assert process.action_values(left.values()) == pytest.approx(expected)


@given(seeds)
def test_action_values_on_leading_axes_are_a_loop(seed):
    process = decision_process(seed)
    v = np.random.default_rng(seed).normal(size=(3, 2, process.n_states))
    looped = [[process.action_values(x) for x in row] for row in v]
    assert process.action_values(v) == pytest.approx(np.array(looped))


@given(seeds)
def test_a_deterministic_policy_is_the_stochastic_one_that_is_certain(seed):
    process = decision_process(seed)
    actions = np.random.default_rng(seed).integers(0, process.n_actions, process.n_states)
    by_name, by_chance = process.under(actions), process.under(np.eye(process.n_actions)[actions])
    assert (by_name.transition == by_chance.transition).all()
    assert (by_name.reward == by_chance.reward).all()


@given(seeds, st.floats(0, 0.97))
def test_policy_iteration_finds_the_best_of_all_policies_and_never_falls(seed, gamma):
    process = decision_process(seed, gamma)
    n, k = process.n_states, process.n_actions
    first = np.random.default_rng(seed).integers(0, k, n)
    rounds = policy_iteration(process, first)
    every = np.array([process.under(list(pi)).values() for pi in product(range(k), repeat=n)])
    scale = max(1.0, np.abs(every).max())
    assert rounds.values[-1] == pytest.approx(every.max(axis=0), abs=1e-8 * scale)
    assert (np.diff(rounds.values, axis=0) >= -1e-9 * scale).all()
    assert rounds.policies[0].tolist() == first.tolist()
    assert len({tuple(pi) for pi in rounds.policies.tolist()}) == len(rounds) <= k**n
    for pi, v in zip(rounds.policies, rounds.values, strict=True):
        assert process.under(pi).values() == pytest.approx(v)


@given(seeds, st.floats(0, 0.95))
def test_policy_iteration_ends_at_the_fixed_point_of_value_iteration(seed, gamma):
    process = decision_process(seed, gamma)
    v = np.zeros(process.n_states)
    for _ in range(600):
        v = process.action_values(v).max(axis=-1)
    rounds = policy_iteration(process, np.zeros(process.n_states, dtype=int))
    assert rounds.values[-1] == pytest.approx(v, abs=1e-7)


@given(seeds)
def test_where_actions_do_not_differ_the_first_policy_stays(seed):
    one = decision_process(seed, actions=1)
    p, r = np.repeat(one.transition, 3, axis=1), np.repeat(one.reward, 3, axis=1)
    same = MarkovDecisionProcess(p, r, one.discount, one.start)
    first = np.random.default_rng(seed).integers(0, 3, one.n_states)
    rounds = policy_iteration(same, first)
    assert rounds.policies.tolist() == [first.tolist()]
    assert rounds.values[0] == pytest.approx(one.under(np.zeros_like(first)).values())


@pytest.mark.parametrize("seed", range(3))
def test_values_agree_with_simulated_actions(seed):
    """Actions are drawn and rewards are those of the action; z-scores below 5."""
    process = decision_process(seed, 0.8, states=4, actions=3, per_transition=False)
    rng, m, pi = np.random.default_rng(seed), 40_000, random_policy(process, seed)
    s, returns = np.zeros(m, dtype=int), np.zeros(m)
    for t in range(120):  # 0.8**120 is 2e-12
        a = (rng.random(m)[:, None] > pi[s].cumsum(axis=1)).sum(axis=1).clip(0, 2)
        returns += 0.8**t * process.reward[s, a, 0]
        s = (
            (rng.random(m)[:, None] > process.transition[s, a].cumsum(axis=1))
            .sum(axis=1)
            .clip(0, 3)
        )
    left = process.under(pi)
    assert abs(returns.mean() - left.values()[0]) < 5 * returns.std() / np.sqrt(m)
    # the spread between actions is averaged out of the process that is left
    centred = (returns - returns.mean()) ** 2
    assert centred.mean() > left.return_variance()[0] - 5 * centred.std() / np.sqrt(m)


def test_averaged_rewards_have_less_variance():
    """One state, two actions that pay 1 and -1: the return varies, its average does not."""
    process = MarkovDecisionProcess(np.ones((1, 2, 1)), [[1.0, -1.0]], 0.5, [1])
    left = process.under([[0.5, 0.5]])
    assert left.values() == pytest.approx([0.0])
    assert left.return_variance() == pytest.approx([0.0])  # of the return itself: 4/3


@pytest.mark.parametrize("weights", [(0.1, 0.2, 0.7), (1 / 3, 1 / 3, 1 / 3), (0.7, 0.2, 0.1)])
def test_a_state_that_no_action_leaves_is_terminal_whatever_the_rounding(weights):
    p = np.zeros((2, 3, 2))
    p[0, :, 1], p[1, :, 1] = 1.0, 1.0
    left = MarkovDecisionProcess(p, [[1.0] * 3, [0.0] * 3], 0.9, [1, 0]).under([weights, weights])
    assert left.terminal.tolist() == [False, True]
    left.require_termination()
    assert left.values() == pytest.approx([1.0, 0.0])


def test_a_decision_process_keeps_its_own_read_only_arrays():
    p = np.ones((1, 2, 1))
    process = MarkovDecisionProcess(p, [[0.0, 1.0]], 0.5, [1])
    p[0] = 0.0
    assert process.transition.tolist() == [[[1.0], [1.0]]]
    assert process.reward.tolist() == [[[0.0], [1.0]]]
    for array in (process.transition, process.reward, process.start):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 1.0


def two_states(**change):
    given = {"transition": np.full((2, 2, 2), 0.5), "reward": np.zeros((2, 2)), "discount": 0.9}
    return MarkovDecisionProcess(**{**given, "start": [1, 0], **change})


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: two_states(transition=np.full((2, 2), 0.5)), "transition must have 3"),
        (lambda: two_states(transition=np.full((2, 2, 3), 0.5)), "states, actions, states"),
        (lambda: two_states(transition=np.zeros((2, 0, 2))), "none of them 0"),
        (
            lambda: two_states(transition=np.full((2, 2, 2), 0.4)),
            "row 0, 0 of transition sums to 0.8",
        ),
        (lambda: two_states(transition=[[[1.5, -0.5]] * 2] * 2), "negative"),
        (lambda: two_states(reward=np.zeros(2)), "reward must have shape"),
        (lambda: two_states(reward=np.full((2, 2), np.nan)), "reward holds NaN"),
        (lambda: two_states(discount=1.0), r"discount must lie in \[0, 1\)"),
        (lambda: two_states(start=[1, 1]), "start must be"),
        (lambda: two_states().under([0, 2]), "action 2; actions are 0 .. 1"),
        (lambda: two_states().under([0, -1]), "action -1"),
        (lambda: two_states().under([0.0, 1.0]), "2 integer actions or probabilities"),
        (lambda: two_states().under([0]), "2 integer actions"),
        (lambda: two_states().under([[0.5, 0.6], [1, 0]]), "policy must not hold|row 0 of policy"),
        (lambda: two_states().under([[1.5, -0.5], [1, 0]]), "policy must not hold|row 0 of policy"),
        (lambda: two_states().action_values([1.0]), "values must have 2 entries"),
        (lambda: two_states().action_values(1.0), "values must have 2 entries"),
        (lambda: policy_iteration(two_states(), np.eye(2)), "one action per state"),
        (lambda: policy_iteration(two_states(), [0, 0], tolerance=0), "tolerance must be positive"),
    ],
)
def test_bad_decision_processes_and_policies_are_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def test_policy_iteration_wants_a_decision_process():
    with pytest.raises(TypeError, match="process must be a MarkovDecisionProcess"):
        policy_iteration(Chain().process, [0])
