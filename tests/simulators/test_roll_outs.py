"""Roll-outs, their statistics, Fourier features and Q-learning."""

from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dprl.features import FourierBasis
from dprl.off_policy.policies import epsilon_greedy, uniform
from dprl.off_policy.saddle_point import trajectory_statistics
from dprl.simulators.mountain_car import MountainCar
from dprl.simulators.q_learning import QFunction, QLearningSettings, q_learning
from dprl.simulators.roll_outs import draw_actions, episode_statistics, roll_out, roll_outs

CAR = MountainCar(max_steps=400)
BASIS = FourierBasis(2, CAR.low, CAR.high)


def swing(observations):
    """Push the way the car goes, mostly: reaches the goal."""
    return epsilon_greedy(np.outer(observations[:, 1], [-1, 0, 1]), 0.3)


def any_action(observations):
    return uniform(len(observations), 3)


@given(st.integers(1, 4), st.integers(1, 4), st.integers(0, 2**32 - 1))
@settings(deadline=None, max_examples=25)
def test_fourier_features_are_cosines_of_all_frequencies(order, d, seed):
    rng = np.random.default_rng(seed)
    low = rng.normal(size=d)
    high = low + rng.uniform(0.1, 5, d)
    states = rng.uniform(low, high, (3, d))
    basis = FourierBasis(order, low, high)
    wanted = [
        [
            np.cos(np.pi * np.dot(c, (s - low) / (high - low)))
            for c in product(range(order + 1), repeat=d)
        ]
        for s in states
    ]
    assert basis(states) == pytest.approx(np.array(wanted))
    for coupling, most in (("independent", 1), ("pairs", 2)):
        part = FourierBasis(order, low, high, coupling=coupling)
        chosen = {tuple(c) for c in part.frequencies}
        assert len(chosen) == part.n_features
        assert chosen == {
            c for c in product(range(order + 1), repeat=d) if np.count_nonzero(c) <= most
        }


def test_fourier_features_have_mean_square_one_half_and_are_held_at_the_edge_of_the_box():
    basis = FourierBasis(3, [0, 0], [1, 1])
    middle = (np.arange(64) + 0.5) / 64
    grid = np.array(list(product(middle, middle)))
    gram = basis(grid).T @ basis(grid) / len(grid)
    i = int(np.flatnonzero((basis.frequencies == [1, 2]).all(axis=1))[0])
    assert gram[i, i] == pytest.approx(0.5)
    assert gram[0, 0] == 1
    assert (basis([[2.0, -1.0]]) == basis([[1.0, 0.0]])).all()
    assert basis.step_scale[i] == pytest.approx(1 / np.sqrt(5))
    assert basis.step_scale[0] == 1


def test_episodes_hang_together():
    data = roll_out(CAR, swing, 30, np.random.default_rng(0), target=any_action)
    ends = np.cumsum(data.lengths)
    inside = np.setdiff1d(np.arange(ends[-1]), ends - 1)
    assert (data.next_observations[inside] == data.observations[inside + 1]).all()
    assert not data.ended[inside].any()
    assert (data.ended[ends - 1] == (data.next_observations[ends - 1, 0] >= 0.5)).all()
    assert data.ended.any()
    assert data.returns == pytest.approx(-data.lengths)
    behaviour = swing(data.observations)[np.arange(ends[-1]), data.actions]
    assert data.ratios == pytest.approx(1 / 3 / behaviour)
    steps = data.steps(BASIS)
    before, after = steps.features, steps.next_features
    assert (before == BASIS(data.observations)).all()
    assert (after[data.ended] == 0).all()
    assert (after[~data.ended] == BASIS(data.next_observations[~data.ended])).all()


def test_ratios_average_to_one():
    data = roll_out(CAR, swing, 100, np.random.default_rng(1), target=any_action)
    error = data.ratios.std() / np.sqrt(data.ratios.size)
    assert data.ratios.mean() == pytest.approx(1, abs=4 * error)
    assert (roll_out(CAR, swing, 2, np.random.default_rng(1)).ratios == 1).all()


def test_statistics_in_chunks_are_those_of_the_episodes():
    parts = roll_outs(CAR, swing, 7, np.random.default_rng(3), any_action, at_once=3)
    got = episode_statistics(parts, BASIS, 0.99, weighting="mean", dtype=np.float64)
    rng, first = np.random.default_rng(3), 0
    for size in (3, 3, 1):
        data = roll_out(CAR, swing, size, rng, target=any_action)
        part = trajectory_statistics(data.steps(BASIS), data.lengths, 0.99, weighting="mean")
        assert got.a[first : first + size] == pytest.approx(part.a)
        assert got.b[first : first + size] == pytest.approx(part.b)
        assert got.c[first : first + size] == pytest.approx(part.c)
        first += size


def test_actions_are_drawn_with_their_probabilities():
    p = np.tile([0.2, 0.0, 0.5, 0.3], (20_000, 1))
    drawn = np.bincount(draw_actions(p, np.random.default_rng(0)), minlength=4) / 20_000
    assert drawn == pytest.approx([0.2, 0, 0.5, 0.3], abs=0.015)
    assert drawn[1] == 0


def test_one_update_of_q_learning_is_the_written_one():
    basis = FourierBasis(2, CAR.low, CAR.high)
    car = MountainCar(start_low=-0.5, start_high=-0.5)
    q = q_learning(
        car,
        basis,
        QLearningSettings(
            discount=0.9,
            step_size=0.1,
            exploration=0,
            updates=1,
            side_by_side=1,
        ),
        np.random.default_rng(0),
    )
    wanted = np.zeros((3, 9))  # all values are zero: action 0, error -1
    wanted[0] = -0.1 * basis.step_scale * basis([-0.5, 0.0])
    assert q.weights == pytest.approx(wanted)


def test_q_learning_climbs_the_hill_and_repeats_itself():
    car = MountainCar(max_steps=1000)
    basis = FourierBasis(5, car.low, car.high)

    def learn(updates):
        return q_learning(
            car,
            basis,
            QLearningSettings(
                discount=1.0,
                step_size=0.05,
                exploration=0.05,
                updates=updates,
                side_by_side=10,
            ),
            np.random.default_rng(5),
        )

    assert (learn(50).weights == learn(50).weights).all()
    q = learn(8000)
    data = roll_out(car, lambda o: epsilon_greedy(q(o), 0.0), 100, np.random.default_rng(0))
    assert data.returns.mean() > -200


NAN = float("nan")
RNG = np.random.default_rng(0)
UNIT = FourierBasis(1, [0.0], [1.0])


def learn(**change):
    given = {"discount": 1.0, "step_size": 0.1, "exploration": 0.1, "updates": 2, "side_by_side": 1}
    rng = change.pop("rng", RNG)
    return q_learning(CAR, BASIS, QLearningSettings(**given | change), rng)


def simulate(**change):
    given = {"basis": BASIS, "discount": 0.9, "weighting": "mean"}
    parts = roll_outs(CAR, swing, 2, RNG, at_once=change.pop("at_once", 1))
    return episode_statistics(parts, **given | change)


def constant(*p):
    return lambda o: np.tile(p, (len(o), 1))


BAD = {
    "order zero": (lambda: FourierBasis(0, [0], [1]), ValueError, "order"),
    "order a float": (lambda: FourierBasis(1.5, [0], [1]), TypeError, "order"),
    "box of two sizes": (lambda: FourierBasis(1, [0], [1, 2]), ValueError, "one length"),
    "box without coordinates": (lambda: FourierBasis(1, [], []), ValueError, "one length"),
    "empty box": (lambda: FourierBasis(1, [0, 1], [1, 1]), ValueError, "low must be below"),
    "box not finite": (lambda: FourierBasis(1, [0], [NAN]), ValueError, "high holds NaN"),
    "unknown coupling": (lambda: FourierBasis(1, [0], [1], "some"), ValueError, "coupling must"),
    "too many features": (lambda: FourierBasis(9, [0] * 6, [1] * 6), ValueError, "1000000 feat"),
    "state of another size": (lambda: BASIS([0.0]), ValueError, "2 coordinates"),
    "state not finite": (lambda: BASIS([NAN, 0.0]), ValueError, "states holds NaN"),
    "weights that do not fit": (lambda: QFunction(UNIT, [[1.0]]), ValueError, "2 columns"),
    "no basis": (lambda: QFunction("x", [[1.0]]), TypeError, "basis must be a FourierBasis"),
    "discount above one": (lambda: learn(discount=1.1), ValueError, "discount must lie"),
    "no step": (lambda: learn(step_size=0), ValueError, "step_size must be positive"),
    "exploration negative": (lambda: learn(exploration=-1), ValueError, "exploration must lie"),
    "no updates": (lambda: learn(updates=0), ValueError, "updates"),
    "no episodes side by side": (lambda: learn(side_by_side=0), ValueError, "side_by_side"),
    "a seed": (lambda: learn(rng=0), TypeError, "rng must be"),
    "step too large": (
        lambda: learn(step_size=50.0, updates=200),
        ArithmeticError,
        "smaller step_size",
    ),
    "no episodes": (lambda: roll_out(CAR, swing, 0, RNG), ValueError, "episodes"),
    "behaviour of two actions": (
        lambda: roll_out(CAR, constant(0.5, 0.5), 2, RNG),
        ValueError,
        r"shape \(2, 3\)",
    ),
    "behaviour that sums to two": (
        lambda: roll_out(CAR, constant(1, 0.5, 0.5), 2, RNG),
        ValueError,
        "sum to one",
    ),
    "no support": (
        lambda: roll_out(CAR, constant(1, 0, 0), 2, RNG, any_action),
        ValueError,
        "never takes",
    ),
    "chunks of nothing": (lambda: simulate(at_once=0), ValueError, "at_once"),
    "discount one": (lambda: simulate(discount=1.0), ValueError, "discount"),
    "no Fourier basis": (lambda: simulate(basis=swing), TypeError, "basis must be"),
    "goal at the start": (lambda: MountainCar(start_high=0.5), ValueError, "first position"),
    "start out of order": (lambda: MountainCar(start_low=-0.1), ValueError, "first position"),
    "no steps": (lambda: MountainCar(max_steps=0), ValueError, "max_steps"),
    "fourth push": (lambda: CAR.step([[0, 0]], [3]), ValueError, "actions must lie"),
    "action a float": (lambda: CAR.step([[0, 0]], [1.0]), ValueError, "integers"),
    "state of a patient": (lambda: CAR.step([[0.0] * 6], [1]), ValueError, r"\(m, 2\)"),
}


@pytest.mark.parametrize(("call", "kind", "words"), BAD.values(), ids=list(BAD))
def test_bad_input_is_refused_by_name(call, kind, words):
    with pytest.raises(kind, match=words):
        call()
