"""Feature matrices: what they span, their norms, and what rank deficiency does."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dprl.features import (
    aggregation,
    feature_matrix,
    operator_norm,
    pseudo_inverse_norm,
    rank,
    tabular,
    weighted_pseudo_inverse,
)

sizes = st.integers(1, 30)
seeds = st.integers(0, 2**32 - 1)


@given(sizes)
def test_tabular_features_tell_all_states_apart(n):
    assert (tabular(n) == np.eye(n)).all()
    assert rank(tabular(n)) == n
    assert operator_norm(tabular(n)) == 1
    assert pseudo_inverse_norm(tabular(n), np.ones(n)) == pytest.approx(1)


@given(sizes, st.integers(1, 12))
def test_aggregation_puts_each_state_in_one_group_of_neighbours(n, size):
    phi = aggregation(n, size)
    assert phi.shape == (n, -(-n // size))
    assert set(phi.ravel()) <= {0.0, 1.0}
    assert (phi.sum(axis=1) == 1).all()
    group = phi.argmax(axis=1)
    assert (group == np.arange(n) // size).all()
    assert rank(phi) == phi.shape[1]


@given(sizes, st.integers(1, 12))
def test_norms_of_aggregation_are_roots_of_group_sizes(n, size):
    phi = aggregation(n, size)
    members = phi.sum(axis=0)
    assert operator_norm(phi) == pytest.approx(np.sqrt(members.max()))
    assert pseudo_inverse_norm(phi, np.ones(n)) == pytest.approx(1 / np.sqrt(members.min()))


@given(sizes, st.integers(1, 12))
def test_orthonormal_aggregation_spans_the_same_functions(n, size):
    plain, scaled = aggregation(n, size), aggregation(n, size, orthonormal=True)
    assert scaled.T @ scaled == pytest.approx(np.eye(plain.shape[1]))
    assert operator_norm(scaled) == pytest.approx(1)
    projection = scaled @ scaled.T
    assert projection @ plain == pytest.approx(plain)
    assert rank(np.c_[plain, scaled]) == rank(plain)


@given(seeds, st.integers(1, 8), st.integers(1, 8))
def test_operator_norm_is_the_largest_stretch(seed, n, d):
    rng = np.random.default_rng(seed)
    phi = rng.normal(size=(n, d))
    assert operator_norm(phi) ** 2 == pytest.approx(np.linalg.eigvalsh(phi.T @ phi).max())
    x = rng.normal(size=(d, 200))
    stretch = np.linalg.norm(phi @ x, axis=0) / np.linalg.norm(x, axis=0)
    assert stretch.max() <= operator_norm(phi) * (1 + 1e-12)


@given(seeds, st.integers(1, 6), st.integers(0, 6), st.booleans())
def test_the_pseudo_inverse_satisfies_the_penrose_equations(seed, d, more, deficient):
    rng = np.random.default_rng(seed)
    n = d + more + 1
    phi = rng.normal(size=(n, d))
    if deficient and d > 1:
        phi[:, -1] = phi[:, 0] - 2 * phi[:, d // 2]
    w = rng.uniform(0.1, 2, size=n)
    scaled = np.sqrt(w)[:, None] * phi
    inverse = weighted_pseudo_inverse(phi, w, allow_rank_deficient=deficient)
    assert inverse.shape == (d, n)
    assert scaled @ inverse @ scaled == pytest.approx(scaled, abs=1e-8)
    assert inverse @ scaled @ inverse == pytest.approx(inverse, rel=1e-6, abs=1e-8)
    assert pytest.approx(scaled @ inverse, abs=1e-8) == (scaled @ inverse).T
    assert pytest.approx(inverse @ scaled, abs=1e-8) == (inverse @ scaled).T


@given(seeds)
def test_the_norm_is_one_over_the_smallest_singular_value(seed):
    rng = np.random.default_rng(seed)
    phi, w = rng.normal(size=(9, 4)), rng.uniform(0.1, 2, size=9)
    smallest = np.linalg.eigvalsh(phi.T @ (w[:, None] * phi)).min()
    assert pseudo_inverse_norm(phi, w) == pytest.approx(1 / np.sqrt(smallest))


@given(seeds, st.floats(0.01, 100))
def test_weights_scale_the_norm_by_an_inverse_root(seed, c):
    rng = np.random.default_rng(seed)
    phi, w = rng.normal(size=(7, 3)), rng.uniform(0.1, 2, size=7)
    scaled = pseudo_inverse_norm(phi, c * w)
    assert scaled == pytest.approx(pseudo_inverse_norm(phi, w) / np.sqrt(c))


@pytest.mark.parametrize(
    ("phi", "w"),
    [
        (np.ones((4, 2)), np.ones(4)),  # equal columns
        (np.eye(3)[:, [0, 1, 1]], np.ones(3)),
        (np.eye(4), np.array([1.0, 1.0, 0.0, 1.0])),  # a state without weight
        (np.ones((2, 3)), np.ones(2)),  # more features than states
    ],
)
def test_rank_deficiency_is_refused_unless_allowed(phi, w):
    with pytest.raises(ValueError, match=r"has rank \d below d = \d: .*allow_rank_deficient"):
        weighted_pseudo_inverse(phi, w)
    allowed = weighted_pseudo_inverse(phi, w, allow_rank_deficient=True)
    assert np.isfinite(allowed).all()
    assert pseudo_inverse_norm(phi, w, allow_rank_deficient=True) < 2


def test_a_direction_that_does_not_count_as_rank_is_not_inverted():
    """A singular value between 1e-15 and the cut-off of the rank: rounding, not a feature."""
    phi = np.zeros((40, 2))
    phi[0, 0], phi[1, 1] = 1.0, 4e-15
    assert rank(phi) == 1
    assert pseudo_inverse_norm(phi, np.ones(40), allow_rank_deficient=True) == pytest.approx(1)


def test_features_of_any_rank_are_a_feature_matrix():
    assert feature_matrix([[1, 1], [1, 1]], 2).dtype == float
    assert rank([[1, 1], [1, 1]]) == 1
