"""Policies as arrays, and importance ratios."""

import numpy as np
import pytest

from dprl.off_policy.policies import epsilon_greedy, importance_ratios, softmax, uniform

Q = np.random.default_rng(0).normal(size=(5, 3, 4))


def test_softmax_is_a_distribution_with_the_right_odds():
    pi = softmax(Q, 0.7)
    np.testing.assert_allclose(pi.sum(axis=-1), 1, atol=1e-14)
    odds = np.log(pi[..., 0] / pi[..., 1])
    np.testing.assert_allclose(odds, (Q[..., 0] - Q[..., 1]) / 0.7, atol=1e-12)


def test_softmax_has_its_limits_and_does_not_overflow():
    np.testing.assert_allclose(softmax(Q, 1e12), 0.25, atol=1e-9)
    np.testing.assert_allclose(softmax(1e6 * Q, 1.0).max(axis=-1), 1)
    np.testing.assert_allclose(softmax(Q + 1e3, 1.0), softmax(Q, 1.0), atol=1e-10)


def test_epsilon_greedy():
    pi = epsilon_greedy(Q, 0.2)
    np.testing.assert_allclose(pi.sum(axis=-1), 1, atol=1e-14)
    np.testing.assert_allclose(pi.max(axis=-1), 0.85)
    assert epsilon_greedy(Q, 1) == pytest.approx(0.25)
    assert set(np.unique(epsilon_greedy(Q, 0))) == {0.0, 1.0}


def test_ratios_have_mean_one_under_the_behaviour():
    pi, pi_b = softmax(Q[0], 0.5), uniform(3, 4)
    each = [importance_ratios(pi, pi_b, np.full(3, a)) for a in range(4)]
    np.testing.assert_allclose((pi_b.T * each).sum(axis=0), 1, atol=1e-14)


def test_ratios_are_one_on_policy_even_where_the_policy_is_greedy():
    pi = epsilon_greedy(Q[0], 0)
    assert importance_ratios(pi, pi, pi.argmax(axis=1)).tolist() == [1, 1, 1]


def test_a_ratio_beyond_the_numbers_is_the_largest_number():
    rare = importance_ratios([[0.5, 0.5]], [[5e-324, 1.0]], [0])
    assert rare.tolist() == [np.finfo(float).max]


HALF = [[0.5, 0.5]]
BAD = {
    "temperature zero": (lambda: softmax(Q, 0), "temperature must be positive"),
    "no actions": (lambda: softmax(np.ones((2, 0)), 1), "one entry per action"),
    "epsilon above one": (lambda: epsilon_greedy(Q, 1.1), r"\[0, 1\]"),
    "infinite value": (lambda: epsilon_greedy([np.inf, 0], 0.1), "finite"),
    "no rows": (lambda: uniform(0, 2), "n_rows"),
    "rows that do not sum to one": (lambda: importance_ratios([[0.5, 0.4]], HALF, [0]), "row 0"),
    "negative probability": (lambda: importance_ratios([[1.5, -0.5]], HALF, [0]), "negative"),
    "shapes unlike": (lambda: importance_ratios(HALF * 2, HALF, [0]), "one shape"),
    "no such action": (lambda: importance_ratios(HALF, HALF, [2]), "lie in 0 .. 1"),
    "actions not integer": (lambda: importance_ratios(HALF, HALF, [0.0]), "integers"),
    "not covered": (lambda: importance_ratios(HALF, [[1.0, 0.0]], [0]), "never takes action 1"),
    "impossible action": (
        lambda: importance_ratios([[1.0, 0.0]], [[1.0, 0.0]], [1]),
        "probability 0 under behaviour",
    ),
}


@pytest.mark.parametrize("case", BAD, ids=list(BAD))
def test_bad_input(case):
    call, message = BAD[case]
    with pytest.raises(ValueError, match=message):
        call()
