"""The exact error of averages of published trajectories, beside a simulation."""

import numpy as np
import pytest

from dprl import Chain, chain_first_visit_returns, rmse
from experiments.chapter_7.published_share import averages_error


@pytest.mark.parametrize("n", [1, 3, 8])
@pytest.mark.parametrize("start", ["first", "uniform"])
def test_it_is_the_error_of_averages_with_0_where_nobody_was(start, n):
    chain, rng = Chain(5, start=start), np.random.default_rng(n)
    squares = []
    for _ in range(1_500):
        returns = chain_first_visit_returns(chain, n, rng).statistics((0.0, 1.0)).mean_returns
        squares.append(float(rmse(returns, chain.values())) ** 2)
    exact = averages_error(chain, n) ** 2
    assert abs(np.mean(squares) - exact) < 5 * np.std(squares) / np.sqrt(len(squares))


@pytest.mark.parametrize("idle", [0.0, 0.3])
def test_with_many_the_first_order_is_the_limit(idle):
    chain = Chain(start="uniform")
    exact, beyond = averages_error(chain, 20_000, idle), averages_error(chain, 20_001, idle)
    assert exact == pytest.approx(beyond, rel=0.01)


def test_trajectories_that_earn_nothing_make_values_smaller_and_visits_more():
    """From the first state all are visited: a return, or 0 with probability 1/2."""
    chain = Chain(2, start="first")
    values = chain.values()
    mixed = 0.5 * (chain.return_variance() + values**2) - (0.5 * values) ** 2
    assert averages_error(chain, 1, 0.5) ** 2 == pytest.approx(mixed.mean())


@pytest.mark.parametrize(("n", "idle", "name"), [(0, 0.0, "n"), (10, 1.0, "idle")])
def test_bad_input(n, idle, name):
    with pytest.raises(ValueError, match=name):
        averages_error(Chain(), n, idle)
