"""The chain's data, its exact system, and what each weighting estimates."""

from math import comb

import numpy as np
import pytest

from dprl.mdp import CHAIN_CONVENTIONS, MarkovDecisionProcess, MarkovRewardProcess
from dprl.off_policy.chain import ChainData, TwoPolicyChain, simulate_behaviour
from dprl.off_policy.policies import importance_ratios
from dprl.off_policy.population import exact_saddle_point
from dprl.off_policy.saddle_point import FeatureSteps, empirical, trajectory_statistics


def bias(weighting, **setting):
    chain = TwoPolicyChain(**setting)
    return float(np.abs(chain.exact(weighting).solution()[0] - chain.values()).max())


@pytest.mark.parametrize("convention", CHAIN_CONVENTIONS)
@pytest.mark.parametrize("start", ["first", "uniform"])
@pytest.mark.parametrize("target_stay", [0.5, 0.8, 0.0])
def test_plain_sums_estimate_the_value(convention, start, target_stay):
    setting = {"start": start, "convention": convention, "target_stay": target_stay}
    assert bias("sum", **setting) < 1e-12


@pytest.mark.parametrize(
    ("setting", "expected"),
    [
        ({}, 0.010094),
        ({"start": "first"}, 0.004459),
        ({"n_states": 5}, 0.012020),
        ({"convention": "inside-arrival"}, 0.010177),
        ({"n_states": 4}, 0.011274),
        ({"target_stay": 0.8}, 0.025815),
        ({"n_states": 4, "target_stay": 0.8}, 0.039833),
    ],
)
def test_means_over_steps_estimate_something_else(setting, expected):
    assert bias("mean", **setting) == pytest.approx(expected, abs=1e-6)


def test_what_tau_means_changes_the_estimate_too():
    assert bias("printed", start="first") == pytest.approx(0.004517, abs=1e-6)


def inverse_length(r, stay, shift):
    """E[1 / (L + shift)], L the sum of r geometric times, term by term."""
    total, length = 0.0, r
    while length < r + 4000 and length < 1000:
        mass = comb(length - 1, r - 1) * (1 - stay) ** r * stay ** (length - r)
        total += mass / (length + shift)
        length += 1
    return total


@pytest.mark.parametrize(("weighting", "shift"), [("mean", 0), ("printed", -1)])
def test_the_quadrature_is_the_negative_binomial_sum(weighting, shift):
    """Given L, the stays are exchangeable between the r states: E[v_L K_s] = E[v_L L] / r."""
    n, stay = 6, 0.5
    chain = TwoPolicyChain(n, start="first")
    system = chain.exact(weighting)
    visits = (1 - shift * inverse_length(n, stay, shift)) / n  # E[L / (L + shift)] / n
    np.testing.assert_allclose(np.diag(system.c), visits, rtol=1e-12)
    move = inverse_length(n, stay, shift)
    np.testing.assert_allclose(np.diag(system.a, 1), -0.99 * move, rtol=1e-12)
    assert system.b[-1] == pytest.approx(move, rel=1e-12)


@pytest.mark.parametrize("convention", CHAIN_CONVENTIONS)
@pytest.mark.parametrize("weighting", ["sum", "mean"])
def test_the_data_agree_with_the_exact_system(convention, weighting):
    chain = TwoPolicyChain(5, target_stay=0.7, convention=convention)
    data = simulate_behaviour(chain, 20_000, np.random.default_rng(5)).statistics(weighting).dense()
    exact = chain.exact(weighting)
    for name in ("a", "b", "c"):
        each = getattr(data, name)
        error = each.std(axis=0) / np.sqrt(data.n_trajectories)
        assert (np.abs(each.mean(axis=0) - getattr(exact, name)) <= 4 * error + 1e-12).all()


def test_the_printed_weighting_agrees_too():
    chain = TwoPolicyChain(5, target_stay=0.7, start="first")
    data = simulate_behaviour(chain, 20_000, np.random.default_rng(6)).statistics("printed").dense()
    exact = chain.exact("printed")
    error = data.a.std(axis=0) / np.sqrt(data.n_trajectories)
    assert (np.abs(data.a.mean(axis=0) - exact.a) <= 4 * error + 1e-12).all()


@pytest.mark.parametrize("convention", CHAIN_CONVENTIONS)
def test_the_counts_are_trajectories(convention):
    """The same statistics from the steps themselves, with ratios from the two policies."""
    chain = TwoPolicyChain(4, 0.4, 0.7, convention=convention)
    data = simulate_behaviour(chain, 50, np.random.default_rng(7))
    n, holding = chain.n_features, chain.behaviour.n_holding
    rows, ahead, rewards, ratios, lengths = [], [], [], [], []
    features = np.vstack([np.eye(n), np.zeros(n)])
    target, behaviour = [[0.7, 0.3]], [[0.4, 0.6]]
    for first, stays in zip(data.start, data.stays, strict=True):
        before = len(rows)
        for s in range(first, n):
            for step in range(stays[s] + 1):
                moves = step == stays[s]
                rows.append(features[s])
                ahead.append(features[s + moves])
                rewards.append(float(moves and s == n - 1))
                ratio = importance_ratios(target, behaviour, [int(moves)])[0]
                ratios.append(ratio if s < holding else 1.0)
        if len(rows) > before:
            lengths.append(len(rows) - before)
    for weighting in ("sum", "mean"):
        steps = trajectory_statistics(
            FeatureSteps(rows, ahead, rewards, ratios), lengths, 0.99, weighting=weighting
        )
        counts = data.statistics(weighting).dense()
        seen = data.lengths() > 0
        assert data.lengths()[seen].tolist() == lengths
        for name in ("a", "b", "c"):
            np.testing.assert_allclose(
                getattr(counts, name)[seen], getattr(steps, name), atol=1e-13
            )
            assert (getattr(counts, name)[~seen] == 0).all()


def test_single_precision_and_chunks(monkeypatch):
    data = simulate_behaviour(TwoPolicyChain(6), 40, np.random.default_rng(8))
    whole = data.statistics("mean")
    monkeypatch.setattr("dprl.off_policy.chain._CHUNK", 7)
    small = data.statistics("mean", np.float32)
    assert small.diagonal.dtype == np.float32
    np.testing.assert_allclose(small.diagonal, whole.diagonal, rtol=1e-6)
    np.testing.assert_allclose(small.c, whole.c, rtol=1e-6)


def test_more_data_come_nearer_to_the_exact_solution():
    chain = TwoPolicyChain(8, target_stay=0.6)
    theta = chain.exact("mean").solution()[0]
    errors = [
        np.abs(
            empirical(
                simulate_behaviour(chain, m, np.random.default_rng(9)).statistics("mean")
            ).solution()[0]
            - theta
        ).max()
        for m in (200, 20_000)
    ]
    assert errors[1] < errors[0] / 3


def decision_process():
    """Three live states and an end; two actions that lead to the same states with other odds."""
    rng = np.random.default_rng(10)
    p = np.zeros((4, 2, 4))
    p[:3] = rng.dirichlet(np.ones(4), size=(3, 2))
    p[3, :, 3] = 1
    r = rng.normal(size=(4, 2, 4))
    r[3] = 0
    process = MarkovDecisionProcess(p, r, 0.9, [0.5, 0.3, 0.2, 0])
    pi_b, pi = rng.dirichlet([2, 2], size=(2, 4))
    return process, pi_b, pi


@pytest.mark.parametrize("weighting", ["sum", "mean"])
def test_any_process_agrees_with_its_simulation(weighting):
    process, pi_b, pi = decision_process()
    phi = np.random.default_rng(11).normal(size=(3, 2))
    exact = exact_saddle_point(
        process.under(pi_b), process.under(pi), weighting=weighting, features=phi
    )
    rng, table = np.random.default_rng(12), np.vstack([phi, np.zeros(2)])
    s, a, r, s2, lengths = [], [], [], [], []
    for _ in range(4000):
        state, steps = int(rng.choice(4, p=process.start)), 0
        while state != 3:
            action = int(rng.random() < pi_b[state, 1])
            nxt = int(rng.choice(4, p=process.transition[state, action]))
            s.append(state)
            a.append(action)
            r.append(process.reward[state, action, nxt])
            s2.append(nxt)
            state, steps = nxt, steps + 1
        lengths.append(steps)
    ratios = importance_ratios(pi[s], pi_b[s], a)
    data = trajectory_statistics(
        FeatureSteps(table[s], table[s2], r, ratios), lengths, 0.9, weighting=weighting
    )
    for name in ("a", "b", "c"):
        each = getattr(data, name)
        error = each.std(axis=0) / np.sqrt(len(each))
        assert (np.abs(each.mean(axis=0) - getattr(exact, name)) <= 4 * error).all()


def test_in_a_table_sums_give_the_value_of_any_process():
    process, pi_b, pi = decision_process()
    target = process.under(pi)
    theta = exact_saddle_point(process.under(pi_b), target, weighting="sum").solution()[0]
    np.testing.assert_allclose(theta, target.values()[:3], atol=1e-12)


CHAIN = TwoPolicyChain(3)
RNG = np.random.default_rng(0)
TWO = MarkovRewardProcess([[0.5, 0.5], [0, 1]], [[0, 1], [0, 0]], 0.9, [1, 0])
SLOW = MarkovRewardProcess([[1 - 1e-7, 1e-7], [0, 1]], [[0, 1], [0, 0]], 0.9, [1, 0])
LOOP = MarkovRewardProcess([[0, 1, 0], [1, 0, 0], [0, 0, 1]], np.zeros((3, 3)), 0.9, [1, 0, 0])


def changed(**change):
    given = {"transition": TWO.transition, "reward": TWO.reward, "discount": 0.9, "start": [1, 0]}
    return MarkovRewardProcess(**{**given, **change})


BAD = {
    "behaviour that never stays": (lambda: TwoPolicyChain(behaviour_stay=0), "behaviour_stay"),
    "target that never moves": (lambda: TwoPolicyChain(target_stay=1), "target_stay"),
    "unknown start": (lambda: TwoPolicyChain(start="last"), "start must be"),
    "unknown convention": (lambda: TwoPolicyChain(convention="x"), "convention"),
    "no trajectories": (lambda: simulate_behaviour(CHAIN, 0, RNG), "n_trajectories"),
    "stays beyond 16 bits": (
        lambda: simulate_behaviour(TwoPolicyChain(3, 0.999999), 10, np.random.default_rng(0)),
        "too many stays",
    ),
    "counts of another chain": (lambda: ChainData(CHAIN, [0], [[1, 1]]), "stays"),
    "fractional counts": (lambda: ChainData(CHAIN, [0], [[1, 1.5, 1]]), "integers"),
    "start outside": (lambda: ChainData(CHAIN, [4], [[0, 0, 0]]), "lie in 0 .. 3"),
    "stays before the start": (lambda: ChainData(CHAIN, [1], [[1, 0, 0]]), "before the first"),
    "stays too large": (lambda: ChainData(CHAIN, [0], [[40_000, 0, 0]]), "at most"),
    "weighting of data": (lambda: simulate_behaviour(CHAIN, 2, RNG).statistics("avg"), "weighting"),
    "one step": (lambda: ChainData(CHAIN, [2], [[0, 0, 0]]).statistics("printed"), "one step"),
    "dtype": (lambda: simulate_behaviour(CHAIN, 2, RNG).statistics("sum", int), "dtype"),
    "weighting of the system": (lambda: CHAIN.exact("avg"), "weighting"),
    "one step is possible": (lambda: CHAIN.exact("printed"), "probability 0.1666"),
    "features short": (
        lambda: exact_saddle_point(TWO, TWO, weighting="sum", features=np.ones((2, 1))),
        "one per live state",
    ),
    "other states": (lambda: exact_saddle_point(TWO, LOOP, weighting="sum"), "same states"),
    "other discount": (
        lambda: exact_saddle_point(TWO, changed(discount=0.8), weighting="sum"),
        "one discount",
    ),
    "not covered": (
        lambda: exact_saddle_point(changed(transition=[[0, 1], [0, 1]]), TWO, weighting="sum"),
        "behaviour never does",
    ),
    "never ends": (lambda: exact_saddle_point(LOOP, LOOP, weighting="sum"), "never reach"),
    "too long": (lambda: exact_saddle_point(SLOW, SLOW, weighting="mean"), "too long"),
}


@pytest.mark.parametrize("case", BAD, ids=list(BAD))
def test_bad_input(case):
    call, message = BAD[case]
    with pytest.raises(ValueError, match=message):
        call()


@pytest.mark.parametrize(
    "call",
    [
        lambda: simulate_behaviour(CHAIN, 2, 7),
        lambda: simulate_behaviour(TWO, 2, RNG),
        lambda: CHAIN.exact(3),
    ],
)
def test_objects_of_another_kind(call):
    with pytest.raises((TypeError, ValueError)):
        call()
