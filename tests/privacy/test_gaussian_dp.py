"""Gaussian differential privacy: the conversion is exact, budgets add up in squares."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import norm

from dprl.privacy.gaussian_dp import divided_mu, gaussian_mu


@pytest.mark.parametrize(
    ("epsilon", "delta", "z"),
    [(0.1, 0.1, 2.8469), (1.0, 1e-6, 4.2247), (0.1, 1e-6, 36.305), (1.0, 1e-5, 3.7306)],
)
def test_known_values_and_the_profile(epsilon, delta, z):
    mu = gaussian_mu(epsilon, delta)
    assert 1 / mu == pytest.approx(z, rel=2e-5)
    first, second = norm.cdf(mu / 2 - epsilon / mu), norm.cdf(-mu / 2 - epsilon / mu)
    assert first - np.exp(epsilon) * second == pytest.approx(delta, rel=1e-6)  # (1)


@given(st.lists(st.floats(0.01, 1.0), min_size=1, max_size=8), st.floats(1e-3, 10))
def test_the_rounds_compose_to_mu(sizes, mu):
    parts = divided_mu(mu, np.array(sizes) / sum(sizes))
    assert np.sqrt((parts**2).sum()) == pytest.approx(mu)  # (2)


@pytest.mark.parametrize("shares", [[0.6, 0.6], [0.5, 0.0], [[0.5]], [np.nan]])
def test_bad_shares_are_refused(shares):
    with pytest.raises(ValueError, match="shares"):
        divided_mu(1.0, shares)
