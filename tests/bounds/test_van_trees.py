"""Van Trees and score-attack bounds against quadrature, naive formulas and real estimators."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import integrate

from dprl.bounds.van_trees import LocalChains, mean_bounds
from dprl.mdp import Chain


def prior_mean(f, centre, h):
    density = lambda t: math.cos(math.pi * t / (2 * h)) ** 2 / h  # noqa: E731
    return integrate.quad(lambda t: f(centre + t) * density(t), -h, h, epsabs=1e-13)[0]


def factor(p, gamma):
    return (1 - p) * gamma / (1 - p * gamma)


def naive_gradient(stay, h, gamma):
    """E dV_s/dp_j by quadrature and differences, the products written out."""
    n = len(stay)
    g = [prior_mean(lambda p: factor(p, gamma), c, h) for c in stay]
    slope = [
        prior_mean(lambda p: (factor(p + 1e-6, gamma) - factor(p - 1e-6, gamma)) / 2e-6, c, h)
        for c in stay
    ]
    out = np.zeros((n, n))
    for s in range(n):
        for j in range(s, n):
            out[s, j] = slope[j] * math.prod(g[i] for i in range(s, n) if i != j) / gamma
    return out


@settings(max_examples=30)
@given(st.floats(0.3, 0.7), st.floats(0.01, 0.25), st.integers(0, 2))
def test_mean_bounds_enclose_the_mean_closely(centre, h, which):
    f = (lambda p: 1 / (p * (1 - p) ** 2), lambda p: p**4, np.exp)[which]
    low, high = mean_bounds(f, centre, h)
    exact = prior_mean(f, centre, h)
    assert low <= exact * (1 + 1e-12)
    assert exact <= high * (1 + 1e-12)
    assert high - low < 1e-4 * exact


@pytest.mark.parametrize("start", ["first", "uniform"])
def test_non_private_bounds_are_the_formulas(start):
    stay, h, gamma, n = np.array([0.4, 0.55, 0.6, 0.5]), 0.15, 0.9, 500
    chains = LocalChains(stay, h, gamma, start)
    a = naive_gradient(stay, h, gamma)
    info = np.array([prior_mean(lambda p: 1 / (p * (1 - p) ** 2), c, h) for c in stay])
    prior = (math.pi / h) ** 2
    visits = np.ones(4) if start == "first" else np.arange(1, 5) / 4
    risk = sum(a[s] @ np.linalg.inv(np.diag(n * visits * info + prior)) @ a[s] for s in range(4))
    assert chains.markov_rmse(n) == pytest.approx(math.sqrt(risk / 4), rel=1e-4)
    assert chains.markov_rmse(n) <= math.sqrt(risk / 4) * (1 + 1e-9)
    if start == "uniform":  # every block and state one by one
        risk = max(naive_blocks(a, n, info, prior, size) for size in (1, 2, 3, 4))
    assert chains.any_law_rmse(n) == pytest.approx(math.sqrt(risk / 4), rel=1e-4)


def naive_blocks(a, n, info, prior, size):
    states, risk = len(info), 0.0
    for s in range(states):
        for first in range(0, states, size):
            block = range(first, min(first + size, states))
            below = [sum(b <= j for b in block) for j in range(states)]
            for j in range(s, states):
                gradient = below[s] / (s + 1) * a[s, j]
                risk += gradient**2 / (n * below[j] / states * info[j] + prior)
    return risk


@pytest.mark.parametrize(
    ("promise", "chi", "delta"),
    [
        ({"epsilon": 0.7}, 2 * math.sinh(0.35), 0.0),
        ({"epsilon": 0.7, "delta": 1e-5}, 2 * math.sinh(0.35), 1e-5),
        ({"mu": 0.3}, math.sqrt(math.expm1(0.09)), 0.0),
    ],
)
def test_the_private_bound_is_the_formula(promise, chi, delta):
    stay, h, gamma, n = np.array([0.4, 0.55, 0.6, 0.5]), 0.1, 0.9, 300
    a = naive_gradient(stay, h, gamma)
    ends = np.array([stay - h, stay + h])
    info = np.arange(1, 5) / 4 * (1 / (ends * (1 - ends) ** 2)).max(axis=0)
    root = np.diag(info**-0.5)
    u, _, v = np.linalg.svd(a @ root)
    c = u @ v @ root
    assert np.linalg.norm(c @ np.diag(info) @ c.T, 2) == pytest.approx(1)
    values = [
        [math.prod(factor(p, gamma) for p in row[s:]) / gamma for s in range(4)] for row in ends
    ]
    width = float(np.subtract(*values).sum())
    nuclear = np.linalg.svd(a @ root)[1].sum()
    gain = nuclear - n * delta * width
    cost = n * chi * math.sqrt(1 - delta) + math.pi / h * np.linalg.norm(c)
    exact = gain / cost / 2
    found = LocalChains(stay, h, gamma).private_rmse(n, **promise)
    assert found == pytest.approx(exact, rel=1e-3)
    assert found <= exact


def test_chi_squared_constants_are_attained():
    """Randomised response, and the pair of Gaussians."""
    eps, mu = 0.7, 0.4
    p = np.array([math.exp(eps), 1]) / (1 + math.exp(eps))
    assert (p**2 / p[::-1]).sum() - 1 == pytest.approx(4 * math.sinh(eps / 2) ** 2)
    ratio = integrate.quad(
        lambda x: math.exp(-((x - 2 * mu) ** 2) / 2 + mu**2) / math.sqrt(2 * math.pi), -20, 20
    )[0]
    assert ratio - 1 == pytest.approx(math.expm1(mu**2))


@pytest.mark.parametrize("start", ["first", "uniform"])
def test_the_best_estimator_at_the_middle_is_near_the_bound_and_above(start):
    """Maximum likelihood from the stays of each state, whose risk is simulated."""
    rng = np.random.default_rng(5)
    n, states, runs = 20_000, 12, 400
    chain = Chain(states, stay=0.5, discount=0.95, start=start)
    visits = rng.binomial(n, chain.visit_probabilities(), size=(runs, states))
    p = rng.negative_binomial(visits, 0.5)
    p = p / (p + visits)
    v = np.cumprod(factor(p, 0.95)[:, ::-1], axis=1)[:, ::-1] / 0.95
    error = math.sqrt(np.mean((v - chain.values()) ** 2))
    bound = LocalChains([0.5] * states, 0.03, 0.95, start).markov_rmse(n)
    assert 0.85 * error < bound < error * 1.05


def test_bounds_fall_with_n_and_grow_with_privacy():
    chains = LocalChains([0.5] * 20, 0.1)
    for bound in (
        chains.markov_rmse,
        chains.any_law_rmse,
        lambda n: chains.private_rmse(n, mu=0.2),
    ):
        values = [bound(n) for n in (10, 1000, 100_000)]
        assert values[0] > values[1] > values[2] > 0
    assert chains.any_law_rmse(10**6) > 1.3 * chains.markov_rmse(10**6)
    assert chains.any_law_rmse(10) >= chains.markov_rmse(10) * (1 - 1e-12)
    strong, weak = (chains.private_rmse(1000, epsilon=e) for e in (0.1, 1.0))
    assert strong > weak
    assert chains.private_rmse(1000, epsilon=1.0, delta=1e-6) < weak
    assert chains.private_rmse(1000, epsilon=1.0, delta=0.5) == 0


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: LocalChains([0.5], 0.1), "two probabilities"),
        (lambda: LocalChains([0.5, 0.95], 0.1), "inside"),
        (lambda: LocalChains([0.5, 0.5], 0.1, start="last"), "start"),  # type: ignore[arg-type]
        (lambda: LocalChains([0.5, 0.5], 0.1, discount=1.0), "discount"),
        (lambda: LocalChains([0.5, 0.5], 0.1).private_rmse(10), "either mu"),
        (lambda: LocalChains([0.5, 0.5], 0.1).private_rmse(10, mu=1, epsilon=1), "either mu"),
        (lambda: LocalChains([0.5, 0.5], 0.1).markov_rmse(0), "n must be at least 1"),
    ],
)
def test_bad_input_gets_a_clear_error(call, message):
    with pytest.raises(ValueError, match=message):
        call()
