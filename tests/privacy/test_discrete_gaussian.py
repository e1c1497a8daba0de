"""Discrete Gaussian noise: the proof, the exact delta, and OpenDP's draws if it is there."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from dprl.privacy import analytic_gaussian_sigma, gaussian_delta
from dprl.privacy import discrete_gaussian as discrete

NEIGHBOURS = "replace one record"


def masses(sigma, reach):
    k = np.arange(-reach, reach + 1)
    weights = np.exp(-(k**2) / (2 * sigma**2))
    return k, weights / weights.sum()


def exact_delta(shift, sigma, epsilon):
    """Hockey-stick divergence of the discrete Gaussian from its shift by an integer vector."""
    reach = int(12 * sigma) + max(shift)
    p = q = np.ones(1)
    for step in shift:
        k, weights = masses(sigma, reach + step)
        moved = np.interp(k - step, k, weights, left=0.0, right=0.0)
        p, q = np.outer(p, weights).ravel(), np.outer(q, moved).ravel()
    return float(np.maximum(p - math.exp(epsilon) * q, 0).sum())


@pytest.mark.parametrize("shift", [(1,), (3,), (7,), (1, 1), (2, 1)])
@pytest.mark.parametrize(("epsilon", "delta"), [(1.0, 1e-6), (0.1, 0.1), (2.0, 1e-3)])
def test_the_promise_holds_exactly_even_on_a_coarse_grid(shift, epsilon, delta):
    sigma = discrete.discrete_gaussian_sigma(
        float(np.linalg.norm(shift)), len(shift), epsilon=epsilon, delta=delta
    )
    assert exact_delta(shift, sigma, epsilon) <= delta


def test_on_a_fine_grid_the_exact_delta_is_that_of_the_continuous_noise():
    shift, sigma = 200, 850.0
    assert exact_delta((shift,), sigma, 1.0) == pytest.approx(
        gaussian_delta(shift, sigma, 1.0), rel=1e-3
    )


def test_a_random_rounding_of_the_continuous_mechanism_has_the_masses_of_the_proof():
    """q of the proof by quadrature, against the discrete Gaussian with the added variance."""
    first, s = 2.0, math.sqrt(discrete.ROUNDING_VARIANCE)
    y = np.linspace(-40, 40, 160_001)
    near = np.exp(-((np.arange(-60, 61)[:, None] - y) ** 2) / (2 * s**2))
    density = stats.norm.pdf(y, scale=first) * (y[1] - y[0])
    rounded = (near / near.sum(axis=0)) @ density
    expected = masses(math.hypot(first, s), 60)[1]
    core = expected > 1e-12
    assert rounded[core] == pytest.approx(expected[core], rel=1e-9)


def test_the_constant_of_the_proof():
    eta = 2 * sum(math.exp(-2 * math.pi**2 * discrete.ROUNDING_VARIANCE * m**2) for m in (1, 2, 3))
    assert 2 * eta * 1.01 < 5e-19


@given(
    st.floats(0.5, 1e6),
    st.integers(1, 1000),
    st.floats(0.01, 5.0),
    st.floats(1e-9, 0.5),
)
def test_sigma_is_the_continuous_one_plus_the_rounding(shift, d, epsilon, delta):
    sigma = discrete.discrete_gaussian_sigma(shift, d, epsilon=epsilon, delta=delta)
    exact = analytic_gaussian_sigma(shift, epsilon, delta)
    assert sigma == pytest.approx(math.sqrt(exact**2 + 2.25), rel=1e-5)
    left = math.sqrt(sigma**2 - 2.25)
    assert gaussian_delta(shift, left, epsilon) <= delta * (1 + 1e-9)


@given(st.integers(0, 10**6), st.floats(1e-3, 10.0), st.integers(1, 6))
def test_rounding_moves_a_record_by_no_more_than_the_sensitivity_says(seed, grid, d):
    rng = np.random.default_rng(seed)
    one, other = rng.uniform(-50, 50, (2, 1, d))
    moved = discrete.to_grid(one, grid) - discrete.to_grid(other, grid)
    distance = float(np.linalg.norm(one - other))
    assert np.linalg.norm(moved) <= discrete.grid_sensitivity(distance, grid, d)


def test_the_rounding_term_is_attained():
    """Two records just beside the middle between two multiples of the grid, in every sum."""
    d, tiny = 9, 1e-9
    one, other = np.full((1, d), 0.5 + tiny), np.full((1, d), 0.5 - tiny)
    moved = np.linalg.norm(discrete.to_grid(one, 1.0) - discrete.to_grid(other, 1.0))
    assert moved == math.sqrt(d)
    assert discrete.grid_sensitivity(2 * tiny * 3, 1.0, d) == pytest.approx(moved, rel=1e-3)


def test_the_way_to_the_grid_and_back():
    x = np.random.default_rng(1).normal(size=(50, 3))
    units = discrete.to_grid(x, 1e-6)
    assert discrete.from_grid(units.sum(axis=0), 1e-6) == pytest.approx(x.sum(axis=0), abs=1e-4)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: discrete.to_grid([[1e300]], 1e-300), "overflow"),
        (lambda: discrete.to_grid([[1.0]], 0.0), "grid must be positive"),
        (lambda: discrete.to_grid([1.0], 1.0), "2 dimension"),
        (lambda: release([0.5]), "vector of integers"),
        (lambda: release([]), "vector of integers"),
        (lambda: release([2**63 - 1]), "within 2\\^62"),
        (lambda: release([1], epsilon=1e-9), "epsilon >= 1e-6"),
        (lambda: release([1], neighbours=" "), "neighbours"),
        (lambda: release([1], sensitivity=0.0), "sensitivity"),
    ],
)
def test_bad_input_gets_a_clear_error(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def release(sums, **changes):
    settings = {"sensitivity": 5.0, "epsilon": 1.0, "delta": 1e-3, "neighbours": NEIGHBOURS}
    return discrete.discrete_gaussian_mechanism(sums, **(settings | changes))


def test_without_opendp_the_error_says_what_to_install(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "opendp.prelude", None)
    with pytest.raises(ImportError, match=r"dprl\[release\]"):
        release([1])


@pytest.mark.release
def test_opendp_draws_from_the_distribution_of_the_proof():
    pytest.importorskip("opendp", reason="the extra 'release' (OpenDP) is not installed")
    n, truth = 40_000, 1000
    changes = {"sensitivity": 1.0, "epsilon": 1.0, "delta": 1e-3}
    noise = release([truth] * n, **changes)[0] - truth
    sigma = discrete.discrete_gaussian_sigma(1.0, n, epsilon=1.0, delta=1e-3)
    k, expected = masses(sigma, int(6 * sigma))
    observed = np.array([(noise == value).sum() for value in k])
    core = expected * n >= 10
    counts = np.append(observed[core], n - observed[core].sum())
    wanted = np.append(expected[core], 1 - expected[core].sum()) * n
    assert stats.chisquare(counts, wanted).pvalue > 1e-6
    # fine against the noise, it is the Gaussian of the study in dprl.privacy.gaussian
    wide = discrete.from_grid(release([0] * 10_000, sensitivity=2000.0)[0], 1 / 2000)
    continuous = analytic_gaussian_sigma(1.0, 1.0, 1e-3)
    assert stats.kstest(wide, "norm", args=(0, continuous)).pvalue > 1e-6


@pytest.mark.release
def test_opendp_keeps_extreme_sums_finite():
    pytest.importorskip("opendp", reason="the extra 'release' (OpenDP) is not installed")
    out, promise = release([2**62, -(2**62), 0])
    assert out.shape == (3,)
    assert promise.neighbours == NEIGHBOURS
