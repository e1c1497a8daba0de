"""The game without reinforcement learning: its formulas against playing it."""

from itertools import permutations

import numpy as np
import pytest

from dprl import privacy
from dprl.bounds import membership as bounds
from dprl.membership import metrics
from dprl.membership.gaussian_game import KINDS, GaussianGame

GAMES = [
    GaussianGame(2, 1, 0.5),
    GaussianGame(10, 20, 1.0),
    GaussianGame(40, 5, 0.3, noise=0.7),
]
PAIRS = list(permutations(KINDS, 2))


@pytest.fixture(scope="module", params=GAMES, ids=str)
def played(request):
    return request.param, request.param.scores(10_000, np.random.default_rng(5))


def labelled(scores, positives, negatives):
    values = np.concatenate([scores[positives], scores[negatives]])
    return np.repeat([1, 0], [scores[positives].size, scores[negatives].size]), values


@pytest.mark.parametrize(("positives", "negatives"), PAIRS)
def test_formulas_are_those_of_the_played_game(played, positives, negatives):
    game, scores = played
    curve = metrics.roc_curve(*labelled(scores, positives, negatives))
    assert curve.area == pytest.approx(game.auc(positives, negatives), abs=0.02)
    assert curve.tpr_at([0.1, 0.5]) == pytest.approx(
        game.tpr([0.1, 0.5], positives, negatives), abs=0.03
    )
    best = (curve.tpr - curve.fpr).max()
    assert best == pytest.approx(game.advantage(positives, negatives), abs=0.03)


@pytest.mark.parametrize("game", GAMES, ids=str)
@pytest.mark.parametrize(("positives", "negatives"), PAIRS)
def test_area_and_advantage_are_those_of_the_curve(game, positives, negatives):
    fpr = np.linspace(0, 1, 20_001)
    tpr = game.tpr(fpr, positives, negatives)
    assert np.trapezoid(tpr, fpr) == pytest.approx(game.auc(positives, negatives), abs=2e-4)
    assert (tpr - fpr).max() == pytest.approx(game.advantage(positives, negatives), abs=1e-6)


@pytest.mark.parametrize("kind", KINDS)
def test_score_is_a_scaled_chi_square(played, kind):
    game, scores = played
    assert -scores[kind].mean() == pytest.approx(game.dimensions * game.variance(kind), rel=0.06)


def test_limits():
    assert GaussianGame(7, 4, spread=0.0).auc("held-out", "other") == pytest.approx(0.5)
    assert GaussianGame(10**9, 4).auc("member", "held-out") == pytest.approx(0.5, abs=1e-6)
    assert GaussianGame(3, 4, noise=1e6).auc("member", "other") == pytest.approx(0.5, abs=1e-6)
    game = GaussianGame(50, 6)
    assert game.auc("member", "held-out") + game.auc("held-out", "member") == pytest.approx(1)
    assert game.advantage("other", "member") == 0
    # r = 1 + 2/(M - 1), as the module says
    ratio = game.variance("held-out") / game.variance("member")
    assert ratio == pytest.approx(1 + 2 / 49)


def test_a_private_release_keeps_its_promise_on_membership_and_not_on_attribution():
    epsilon, delta, members, clip = 1.0, 1e-5, 200, 9.0
    noise = privacy.analytic_gaussian_sigma(2 * clip / members, epsilon, delta)
    game = GaussianGame(members, 20, 1.0, noise)
    scores = game.scores(2_000, np.random.default_rng(6), clip=clip)
    limit = float(bounds.largest_auc(epsilon, delta))
    assert metrics.roc_curve(*labelled(scores, "member", "held-out")).area < limit
    assert metrics.roc_curve(*labelled(scores, "held-out", "other")).area > limit + 0.1


def test_same_generator_same_game_and_clipping_far_out_changes_nothing():
    game = GaussianGame(10, 3)
    first, second = (
        game.scores(50, np.random.default_rng(1), clip=clip)["member"] for clip in (None, 1e9)
    )
    assert np.array_equal(first, second)


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: GaussianGame(1, 3), ValueError, "members must be at least 2"),
        (lambda: GaussianGame(2.0, 3), TypeError, "members must be an integer"),
        (lambda: GaussianGame(2, 0), ValueError, "dimensions must be at least 1"),
        (lambda: GaussianGame(2, 3, spread=-1.0), ValueError, "spread must not be negative"),
        (lambda: GaussianGame(2, 3, noise=float("nan")), ValueError, "noise must be finite"),
        (lambda: GaussianGame(2, 3).auc("member", "stranger"), ValueError, "kind must be one of"),
        (lambda: GaussianGame(2, 3).tpr(1.5, "member", "other"), ValueError, "fpr must lie in"),
        (lambda: GaussianGame(2, 3).scores(0, np.random.default_rng()), ValueError, "runs must"),
        (lambda: GaussianGame(2, 3).scores(5, 1), TypeError, "rng must be a numpy"),
        (
            lambda: GaussianGame(2, 3).scores(5, np.random.default_rng(), clip=0.0),
            ValueError,
            "clip must be positive",
        ),
    ],
)
def test_bad_input_is_refused(call, error, message):
    with pytest.raises(error, match=message):
        call()
