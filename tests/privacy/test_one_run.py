"""The one-run audit: exact games, its direction, the Gaussian mechanism, what it refuses."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from dprl.privacy.gaussian import gaussian_delta
from dprl.privacy.one_run import one_run_epsilon, one_run_mu


@pytest.mark.parametrize("mu", [0.3, 1.0, 2.0])
@pytest.mark.parametrize(("canaries", "guesses"), [(400, 40), (400, 400), (60, 12)])
def test_the_bound_holds_for_the_gaussian_mechanism(mu, canaries, guesses):
    """Each canary's coin released with noise: mu-Gaussian-private, and no better."""
    rng = np.random.default_rng(1)
    runs, found = 200, []
    for _ in range(runs):
        coin = rng.random(canaries) < 0.5
        order = np.argsort(mu * coin + rng.standard_normal(canaries))
        low, high = order[: guesses // 2], order[canaries - guesses // 2 :]
        right = int((~coin[low]).sum() + coin[high].sum())
        found.append(one_run_mu(right, guesses, canaries, 0.9))
    wrong = sum(one > mu for one in found)
    assert wrong <= stats.binom.ppf(0.9999, runs, 0.1)
    if mu == 2.0 and guesses == 40:
        assert np.mean(found) > mu / 3  # and it says something


def test_no_privacy_loss_is_a_coin_toss():
    """mu = 0: the recursion is the exact binomial tail, to its own slack, for all canaries guessed.

    The chance of wrongly refusing mu = 0 is at most tau.
    """
    for n in (10, 50, 200):
        refused = [c for c in range(n + 1) if one_run_mu(c, n, n, 0.95) > 0]
        assert refused == list(range(refused[0], n + 1))
        assert stats.binom.sf(refused[0] - 1, n, 0.5) <= 0.05


@given(n=st.integers(1, 80), extra=st.integers(0, 100), c=st.integers(0, 80))
def test_more_right_guesses_never_lower_it_and_more_confidence_never_raises_it(n, extra, c):
    right = min(c, n)
    now = one_run_mu(right, n, n + extra)
    assert 0 <= now <= 40
    assert one_run_mu(right, n, n + extra, 0.99) <= now + 1e-6
    if right < n:
        assert one_run_mu(right + 1, n, n + extra) >= now - 1e-6


def test_epsilon_is_that_of_the_gaussian_mechanism_at_delta():
    mu = one_run_mu(95, 100, 1000)
    found = one_run_epsilon(95, 100, 1000, 1e-5)
    assert gaussian_delta(mu, 1.0, found) == pytest.approx(1e-5, rel=1e-4)
    assert one_run_epsilon(52, 100, 1000, 1e-5) == 0.0
    assert one_run_epsilon(70, 100, 1000, 0.5) == 0.0  # delta alone allows it
    assert math.isfinite(one_run_epsilon(100, 100, 100, 1e-5))


def test_impossible_counts_are_refused():
    for arguments in ((5, 4, 10), (2, 11, 10), (-1, 4, 10), (0, 0, 0)):
        with pytest.raises(ValueError, match="must be"):
            one_run_mu(*arguments)
    with pytest.raises(ValueError, match="confidence"):
        one_run_mu(1, 2, 3, 1.0)
    assert one_run_mu(0, 0, 5) == 0.0
