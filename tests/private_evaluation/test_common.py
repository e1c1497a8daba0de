"""The constant D of a range of returns, by looking at every pair of contributions."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dprl.private_evaluation import return_spread


@given(st.floats(-50, 50), st.floats(0.01, 50))
def test_the_spread_is_the_largest_change_of_a_contribution(low, width):
    """A return in [low, high] where the state is visited, 0 where it is not."""
    high = low + width
    contributions = [low, high, 0.0]
    both_visit = abs(high - low)
    one_visits = max(abs(low), abs(high))
    step, size = return_spread(low, high)
    assert step == pytest.approx(max(both_visit, one_visits))
    assert size == pytest.approx(one_visits)
    assert 1 <= step / size <= 2
    assert step >= max(abs(a - b) for a, b in itertools.combinations(contributions, 2)) - 1e-12


def test_thesis_and_signed_ranges():
    assert return_spread(0, 1) == (1, 1)
    assert return_spread(0, 100) == (100, 100)
    assert return_spread(-100, 100) == (200, 100)  # |r| <= R_max doubles the constant
    assert return_spread(-3, 0.5) == (3.5, 3)
    assert return_spread(0.5, 2) == (2, 2)  # an unvisited state contributes 0
