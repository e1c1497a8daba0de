"""The frontier of smooth sensitivity: proved against found, and the best DP-LSW."""

import numpy as np
import pytest

from dprl.bounds.smooth_frontier import best_lsw_noise, certified_delta
from dprl.bounds.smoothed_gaussian import calibrated_alpha, largest_beta, worst_delta
from dprl.privacy import GaussianSmoothing, analytic_gaussian_sigma, gaussian_pair_delta
from dprl.private_evaluation.dp_lsw import lsw_smooth_bound


@pytest.mark.parametrize(
    ("epsilon", "delta", "d"), [(1.0, 1e-6, 40), (0.1, 0.1, 40), (0.1, 1e-6, 3)]
)
@pytest.mark.parametrize("share", [0.05, 0.5])
def test_the_frontier_is_proved_up_to_a_percent(epsilon, delta, d, share):
    beta = share * largest_beta(epsilon, delta, d)
    alpha = calibrated_alpha(beta, epsilon, delta, d)
    assert certified_delta(alpha * 1.01, beta, epsilon, d, cells=800) <= delta
    coarse, fine = (certified_delta(alpha, beta, epsilon, d, cells=c) for c in (100, 1000))
    found = worst_delta(alpha, beta, epsilon, d)
    assert found <= fine <= coarse
    assert fine - found < 0.2 * (coarse - found)  # first order in the width


def test_the_inequality_of_the_cells():
    rng = np.random.default_rng(2)
    for _ in range(50):
        d, s = int(rng.integers(1, 20)), rng.uniform(0.8, 1.2)
        wider, distance, eps = s * rng.uniform(1, 1.05), rng.uniform(0, 1), rng.uniform(1, 2)
        log_c = d * np.log(wider / s)
        bound = np.exp(log_c) * gaussian_pair_delta(distance, wider, 1.0, eps - log_c, d)
        assert gaussian_pair_delta(distance, s, 1.0, eps, d) <= bound * (1 + 1e-12)


def test_the_frontier_starts_at_the_gaussian_mechanism():
    assert calibrated_alpha(1e-9, 1.0, 1e-6, 40) == pytest.approx(
        analytic_gaussian_sigma(1.0, 1.0, 1e-6), rel=1e-4
    )


@pytest.mark.parametrize("start", ["first", "uniform"])
def test_the_best_noise_lies_between_its_floor_and_every_other_choice(start):
    n = 20_000
    counts = np.full(40, n) if start == "first" else n * np.arange(1, 41) / 40
    best = best_lsw_noise(counts, [1.0] * 40, epsilon=1.0, delta=1e-6, dimension=40)
    assert best.floor < best.noise
    for factor in (0.7, 0.9, 1.1, 1.4):
        beta = best.beta * factor
        psi = float(lsw_smooth_bound(counts, [1.0] * 40, beta)[0])
        assert best.noise <= calibrated_alpha(beta, 1.0, 1e-6, 40) * psi**0.5 * (1 + 1e-6)
    lemma = GaussianSmoothing(1.0, 1e-6, 40)
    psi = float(lsw_smooth_bound(counts, [1.0] * 40, lemma.beta)[0])
    assert best.noise < 0.5 * lemma.alpha * psi**0.5


def test_bad_input_gets_a_clear_error():
    with pytest.raises(ValueError, match="take more"):
        certified_delta(5.0, 1.0, 0.1, 40, cells=2)
    with pytest.raises(ValueError, match="one vector"):
        best_lsw_noise([[1.0]], [1.0], epsilon=1.0, delta=0.1, dimension=1)
