"""Voting: means of logits, order of a bag, bad input."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from dprl.membership.attacks import voting


@given(hnp.arrays(np.float64, 12, elements=st.floats(-50, 50)), st.randoms())
def test_vote_is_a_mean_and_blind_to_order(logits, random):
    bags = [random.sample(range(12), 5) for _ in range(3)]
    votes = voting.vote(logits, bags)
    assert votes == pytest.approx([sum(logits[i] for i in bag) / 5 for bag in bags])
    shuffled = [random.sample(bag, 5) for bag in bags]
    assert votes == pytest.approx(voting.vote(logits, shuffled))


def test_several_classifiers_at_once():
    logits, bags = np.arange(24.0).reshape(2, 3, 4), np.array([[0, 1], [2, 3]])
    votes = voting.vote(logits, bags)
    assert votes.shape == (2, 3, 2)
    np.testing.assert_array_equal(votes[1, 2], voting.vote(logits[1, 2], bags))


def test_the_sign_is_the_best_answer_for_log_odds():
    # independent normal logits N(+-d/2, d) are exact log odds of their label
    rng, d, m = np.random.default_rng(0), 0.3, 9
    labels = np.arange(2000) % 2
    logits = d * (labels[:, None] - 0.5) + np.sqrt(d) * rng.normal(size=(2000, m))
    votes = voting.vote(logits.ravel(), np.arange(2000 * m).reshape(2000, m))
    from scipy.stats import norm

    bayes = norm.cdf(np.sqrt(m * d) / 2)
    assert ((votes > 0) == labels).mean() == pytest.approx(bayes, abs=0.03)


def test_bag_tensor_is_the_pairs_side_by_side():
    pairs = np.random.default_rng(0).normal(size=(5, 4, 7))
    tensor = voting.bag_tensor(pairs, [[4, 0, 2], [1, 1, 3]])
    assert tensor.shape == (2, 4, 7, 3)
    np.testing.assert_array_equal(tensor[0, :, :, 1], pairs[0].astype(np.float32))
    np.testing.assert_array_equal(tensor[1, :, :, 2], pairs[3].astype(np.float32))


@pytest.mark.parametrize(
    ("bags", "error", "message"),
    [
        ([], ValueError, "one bag of at least one pair"),
        ([[]], ValueError, "one bag of at least one pair"),
        ([0, 1], ValueError, "table of indices"),
        ([[0, 1], [2]], ValueError, "one size"),
        ([[0, 4]], ValueError, "pairs 0 to 3, got 0 to 4"),
        ([[-1, 0]], ValueError, "got -1 to 0"),
        ([[0.0, 1.0]], TypeError, "whole numbers"),
    ],
)
def test_bad_bags(bags, error, message):
    with pytest.raises(error, match=message):
        voting.vote(np.zeros(4), bags)


@pytest.mark.parametrize("logits", [[], 1.0, [np.nan, 1.0]])
def test_bad_logits(logits):
    with pytest.raises(ValueError, match="logits"):
        voting.vote(logits, [[0]])
