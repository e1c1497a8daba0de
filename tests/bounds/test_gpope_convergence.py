"""The printed bounds fail where they should; the corrected ones hold, on random systems."""

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dprl.bounds import gpope_convergence as bounds
from dprl.bounds.gpope_convergence import Contraction
from dprl.off_policy.saddle_point import BidiagonalStatistics, SaddlePoint, Statistics
from dprl.private_evaluation.gpope import (
    ConstantStep,
    Descent,
    DiminishingStep,
    gpope_runs_not_private,
)

Q = bounds.scalar_matrix()
LOW, HIGH = 2 - math.sqrt(3), 2 + math.sqrt(3)


def system(seed, n):
    rng = np.random.default_rng(seed)
    root = rng.normal(size=(n, n)) + 0.3 * np.eye(n)
    a = rng.normal(size=(n, n)) + np.eye(n)
    return SaddlePoint(a, rng.normal(size=n), root @ root.T + 0.1 * np.eye(n))


def data(seed, n, m=12):
    rng = np.random.default_rng(seed)
    root = rng.normal(size=(m, n, n)) / n
    a = 2 * np.eye(n) + 0.5 * rng.normal(size=(m, n, n))
    return Statistics(a, rng.normal(size=(m, n)), root @ root.swapaxes(1, 2) + np.eye(n))


def test_lemma_2_is_refuted():
    actual = bounds.without_noise(Q, [1.0, 0.0], [1 / HIGH])[1]
    printed = bounds.lemma_2_printed(1.0, 1 / HIGH, LOW, 0.0)
    assert actual == pytest.approx(1.07180, abs=1e-5)
    assert printed == pytest.approx(0.86156, abs=1e-5)


@pytest.mark.parametrize(("n", "ratio"), [(1, 1.209), (10, 1.230), (100, 1.244), (1000, 1.244)])
def test_theorem_2_is_refuted(n, ratio):
    eta = 0.9 / HIGH
    actual = bounds.without_noise(Q, [1.0, 0.0], np.full(n, eta / math.sqrt(n)))[-1]
    printed = bounds.theorem_2_printed(1.0, eta, 0.5, n, LOW, 0.0)
    assert printed.floor == 0
    assert actual / printed.total == pytest.approx(ratio, abs=1e-3)


def test_theorem_3_is_refuted():
    start = np.array([1.0, -HIGH]) / math.hypot(1, HIGH)
    actual = bounds.without_noise(Q, start, 1.5 / LOW / np.arange(1, 11))
    assert actual[1] == pytest.approx(395.7, abs=0.1)
    assert bounds.theorem_3_printed(1.0, 1.5, 1, LOW, 0.0, 0.0).total == 1.0
    assert actual[10] > 1e10 * bounds.theorem_3_printed(1.0, 1.5, 10, LOW, 0.0, 0.0).total


@given(st.integers(0, 500), st.integers(1, 4))
@settings(max_examples=30)
def test_no_step_shortens_a_primal_error(seed, n):
    q = system(seed, n).matrix
    xi = np.concatenate([np.random.default_rng(seed).normal(size=n), np.zeros(n)])
    for beta in (1e-3, 0.1, 1.0):
        before, after = bounds.without_noise(q, xi, [beta])
        assert after >= before


def test_symmetric_matrix_keeps_the_printed_bounds():
    q = np.diag([0.5, 2.0])
    xi = [1.0, 1.0]
    actual = bounds.without_noise(q, xi, np.full(50, 0.05))
    eta = 0.05 * math.sqrt(50)
    assert actual[-1] <= bounds.theorem_2_printed(2.0, eta, 0.5, 50, 0.5, 0.0).total


@given(st.integers(0, 500), st.integers(1, 4), st.floats(0.01, 1.0), st.floats(0, 2))
@settings(max_examples=40)
def test_one_step_contracts(seed, n, share, growth):
    """(4), with an error that attains E|Delta|^2 = S + K|xi|^2 in the worst direction."""
    c = Contraction(system(seed, n).matrix, growth)
    np.testing.assert_allclose(c.p @ c.q + c.q.T @ c.p, np.eye(2 * n), atol=1e-7 * c.largest)
    beta, s = share * c.largest_step, 0.7
    xi = np.random.default_rng(seed).normal(size=2 * n)
    moved = xi - beta * (c.q @ xi)
    worst = c.largest * (s + growth * (xi @ xi))  # E|Delta|_P^2 along the first eigenvector
    actual = c.squared_norm(moved) + beta**2 * worst
    assert actual <= c.one_step(float(c.squared_norm(xi)), beta, s) * (1 + 1e-9)


@given(st.integers(0, 200), st.floats(1.1, 4.0))
@settings(max_examples=20)
def test_recursions_stay_below_the_closed_forms(seed, eta):
    c = Contraction(system(seed, 2).matrix)
    constant = diminishing = start = 1.7
    beta, s = c.largest_step / 2, 0.3
    numerator, offset = c.schedule(eta)
    for i in range(1, 200):
        constant = c.one_step(constant, beta, s)
        size = numerator / (i + offset)
        assert size <= c.largest_step * (1 + 1e-9)
        diminishing = c.one_step(diminishing, min(size, c.largest_step), s)
        assert constant <= c.constant_step(start, beta, i, s).total * (1 + 1e-9)
        assert diminishing <= c.diminishing_step(start, eta, i, s).total * (1 + 1e-9)


@pytest.mark.parametrize("seed", range(3))
def test_bounds_hold_for_the_algorithm(seed):
    sample = data(seed, 2)
    spread = bounds.gradient_spread(sample)
    sigma, clip = 2e-4, 1e4
    s, k = spread.constants(2, clip, sigma)
    point = SaddlePoint(*sample.mean())
    c = Contraction(point.matrix, k)
    x = np.concatenate(point.solution())
    beta, (numerator, offset) = c.largest_step, c.schedule(2.0)
    run = gpope_runs_not_private(
        sample,
        Descent(
            [ConstantStep(beta), DiminishingStep(numerator, offset)],
            clip=clip,
            iterations=2000,
            at=[10, 200, 2000],
        ),
        sigma,
        np.random.default_rng(seed),
        trials=400,
    )
    errors = np.concatenate([run.theta_at, run.w_at], axis=-1) - x
    mean = c.squared_norm(errors).mean(axis=-1)
    start = float(c.squared_norm(x))
    for i, at in enumerate(run.at):
        assert mean[i, 0] <= c.constant_step(start, beta, at, s).total
        assert mean[i, 1] <= c.diminishing_step(start, 2.0, at, s).total


def test_spread_bounds_the_second_moment_everywhere():
    sample = data(1, 3)
    spread = bounds.gradient_spread(sample)
    s, k = spread.constants(3)
    point = SaddlePoint(*sample.mean())
    x = np.concatenate(point.solution())
    rng = np.random.default_rng(0)
    for size in (0.0, 0.1, 1.0, 100.0):
        xi = size * rng.normal(size=6)
        theta, w = np.split(x + xi, 2)
        g = np.concatenate(
            [
                -np.einsum("kji,j->ki", sample.a, w),
                sample.a @ theta + sample.c @ w - sample.b,
            ],
            axis=1,
        )
        second = ((g - g.mean(axis=0)) ** 2).sum(axis=1).mean()
        assert second <= s + k * (xi @ xi) + 1e-9
    assert second > 100 * s  # so no uniform G


def test_spread_of_bidiagonal_statistics():
    rng = np.random.default_rng(0)
    sample = BidiagonalStatistics(
        *(1 + rng.random((9, k)) for k in (4, 3, 4)), 1 + rng.random((9, 4))
    )
    assert bounds.gradient_spread(sample) == bounds.gradient_spread(sample.dense())


def test_correlated_means():
    rng = np.random.default_rng(0)
    tau, p = 8, 0.2
    states = np.empty((100_000, tau))
    states[:, 0] = rng.integers(2, size=100_000)
    for t in range(1, tau):
        switch = rng.random(100_000) < p
        states[:, t] = np.where(switch, 1 - states[:, t - 1], states[:, t - 1])
    signs = 2 * states - 1
    actual = (signs.mean(axis=1) ** 2).mean()
    assert actual == pytest.approx(bounds.equation_6_15(1.0, tau, 1 - 2 * p), rel=0.02)
    assert bounds.equation_6_15(1.0, tau, 0.0) == bounds.equation_6_15_printed(1.0, tau)


def test_noise_constants():
    """The trace version does not depend on m and N at Theorem 1's sigma; the printed one does."""
    values, printed = [], []
    for m, N in ((100, 100), (1000, 1000), (1000, 10)):
        sigma = 4 * math.sqrt(N * math.log(1e5)) / (m * 0.5)
        values.append(bounds.noise_constant(3, 0.2, sigma, m, N))
        printed.append(bounds.noise_constant_printed(3, 0.2, sigma, m, N))
    np.testing.assert_allclose(values, bounds.equation_6_1(3, 0.2, 4.0, 0.5, 1e-5))
    assert printed[0] > 5 * printed[1] > 50 * printed[2]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: Contraction(np.zeros((2, 3))), "square"),
        (lambda: Contraction([[0.0, -1.0], [1.0, 0.0]]), "positive real parts"),
        (lambda: Contraction([[0.0, 0.0], [0.0, 1.0]]), "positive real parts"),
        (lambda: Contraction([[np.nan]]), "NaN"),
        (lambda: Contraction(Q, growth=-1.0), "growth must not be negative"),
        (lambda: Contraction(Q).one_step(1.0, 0.5, 1.0), "beta must be at most"),
        (lambda: Contraction(Q).one_step(1.0, 0.0, 1.0), "beta must be positive"),
        (lambda: Contraction(Q).one_step(1.0, 0.01, -1.0), "spread must not be negative"),
        (lambda: Contraction(Q).constant_step(1.0, 0.01, -1, 1.0), "iterations"),
        (lambda: Contraction(Q).schedule(1.0), "eta must exceed 1"),
        (lambda: Contraction(Q).diminishing_step(-1.0, 2.0, 5, 1.0), "squared"),
        (lambda: bounds.theorem_2_printed(1.0, 1.0, 1.0, 5, 1.0, 0.0), r"k must lie in \(0, 1\)"),
        (lambda: bounds.theorem_2_printed(1.0, 9.0, 0.5, 5, 1.0, 0.0), "below 1/lambda_min"),
        (lambda: bounds.theorem_3_printed(1.0, 1.0, 5, 1.0, 0.0, 0.0), "eta must exceed 1"),
        (lambda: bounds.theorem_3_printed(1.0, 2.0, 0, 1.0, 0.0, 0.0), "iterations"),
        (lambda: bounds.lemma_2_printed(1.0, 0.1, 0.0, 0.0), "smallest must be positive"),
        (lambda: bounds.noise_constant(0, 1.0, 1.0, 1, 1), "n must be at least 1"),
        (lambda: bounds.noise_constant(1, 0.0, 1.0, 1, 1), "clip must be positive"),
        (lambda: bounds.equation_6_1(1, 1.0, 1.0, 1.0, 1.0), "delta"),
        (lambda: bounds.equation_6_15(1.0, 3, 1.5), "correlation"),
        (lambda: bounds.without_noise(Q, [1.0], [0.1]), "q must have shape"),
        (lambda: bounds.gradient_spread(Q), "statistics must be a Statistics"),
    ],
)
def test_bad_input(call, message):
    with pytest.raises((ValueError, TypeError), match=message):
        call()


def test_many_small_steps_keep_their_digits():
    """(1 - x)^n at the floating-point number x: it is not rounded away in 1 - x."""
    size, n = 1e-9, 40_000
    beta = size / math.sqrt(n)
    few = (1 - Fraction(beta)) ** (2 * 64)  # 64 of the n steps
    decay = math.exp(n / 64 * math.log1p(float(few - 1)))
    printed = bounds.theorem_2_printed(1.0, size, 0.5, n, 1.0, 0.0)
    assert printed.decay == pytest.approx(decay, rel=1e-15)

    c = Contraction(np.array([[2.0]]))
    whole = c.constant_step(3.0, c.largest_step, 4, 0.0)  # one step goes all the way
    assert whole.decay == 0.0
    assert c.constant_step(3.0, c.largest_step, 0, 0.0).decay == 3.0
    step, number = 1e-17, 10**17
    assert c.constant_step(3.0, step, number, 0.0).decay == pytest.approx(
        3 * math.exp(-number * step / (2 * c.largest)), rel=1e-13
    )
