"""The HIV simulator: its fixed points, its accuracy, and its named disputes."""

import numpy as np
import pytest
from scipy.integrate import solve_ivp

from dprl.simulators.hiv import HEALTHY, HIV, TREATMENTS, UNTREATED, derivative, fixed_point

SICK = fixed_point(UNTREATED)
RNG = np.random.default_rng(20210680)


def some_states(count):
    """States that patients under random treatments come through."""
    rng, patients = np.random.default_rng(1), HIV(substeps=20)
    states, seen = patients.start(count, rng), []
    for _ in range(30):
        states, _, _ = patients.step(states, rng.integers(0, 4, count))
        seen.append(states)
    return np.concatenate(seen)


STATES = some_states(20)


@pytest.mark.parametrize(
    ("near", "known"),
    [
        (UNTREATED, (163572.75, 4.99542, 11944.943, 45.5990, 63918.596, 23.5440)),
        (HEALTHY, (967838.67, 620.518, 76.012, 6.0918, 415.376, 353108.03)),
    ],
)
def test_fixed_points_are_the_known_ones_and_do_not_move(near, known):
    point = fixed_point(near)
    assert point == pytest.approx(known, rel=2e-5)
    assert derivative([point], 0, 0)[0] / point == pytest.approx(np.zeros(6), abs=1e-9)
    after, _, ended = HIV(substeps=3).step([point], [0])
    assert after[0] == pytest.approx(point, rel=1e-9)
    assert not ended.any()
    treated, _, _ = HIV().step([point], [3])
    assert abs(treated[0] / point - 1).max() > 0.1


def test_a_step_agrees_with_an_adaptive_solver():
    states = STATES[RNG.integers(0, len(STATES), 100)]
    actions = np.arange(100) % 4
    exact = np.array(
        [
            solve_ivp(
                lambda _, y, e=TREATMENTS[a]: derivative(y[None], e[0], e[1])[0],
                (0, 5),
                s,
                method="LSODA",
                rtol=1e-10,
                atol=1e-8,
            ).y[:, -1]
            for s, a in zip(states, actions, strict=True)
        ]
    )
    errors = {
        n: abs(HIV(substeps=n).step(states, actions)[0] / exact - 1).max(axis=1)
        for n in (20, 40, HIV().substeps, 160)
    }
    # the rule by which the number of substeps was chosen: the least that does it
    assert [n for n, e in errors.items() if np.quantile(e, 0.99) <= 0.01] == [HIV().substeps, 160]
    worst = {n: e.max() for n, e in errors.items()}
    assert 0.1 < worst[20] < 1
    assert worst[160] < worst[80] / 5 < worst[40] / 25  # of third order, nearly


def test_numbers_stay_positive_however_long_the_substep():
    after, _, _ = HIV(substeps=1).step(STATES, np.arange(len(STATES)) % 4)
    assert (after > 0).all()
    assert np.isfinite(after).all()


def test_the_rate_is_the_printed_one():
    t1, t2, i1, i2, v, e = STATES[7]
    e1, e2, f = 0.7, 0.3, 0.34
    infected = i1 + i2
    new1, new2 = (1 - e1) * 8e-7 * v * t1, (1 - f * e1) * 1e-4 * v * t2
    printed = [
        1e4 - 0.01 * t1 - new1,
        31.98 - 0.01 * t2 - new2,
        new1 - 0.7 * i1 - 1e-5 * e * i1,
        new2 - 0.7 * i2 - 1e-5 * e * i2,
        (1 - e2) * 100 * 0.7 * infected - 13 * v - new1 - new2,
        1
        + 0.3 * infected / (infected + 100) * e
        - 0.25 * infected / (infected + 500) * e
        - 0.1 * e,
    ]
    assert derivative(STATES[7:8], e1, e2)[0] == pytest.approx(printed, rel=1e-9)


def test_rewards_follow_the_named_disputes():
    states, actions = STATES[:8], np.arange(8) % 4
    after, reward, _ = HIV(substeps=5).step(states, actions)
    e1, e2 = TREATMENTS[actions].T

    def price(s, r2):
        return -0.1 * s[:, 4] - 2e4 * e1**2 - r2 * e2**2 + 1e3 * s[:, 5]

    assert reward == pytest.approx(price(after, 2e3))
    assert HIV(substeps=5, r2=2e4).step(states, actions)[1] == pytest.approx(price(after, 2e4))
    earlier = HIV(substeps=5, reward_at="before").step(states, actions)[1]
    assert earlier == pytest.approx(price(states, 2e3))


def test_patients_start_sick_and_alike_unless_told_otherwise():
    assert (HIV().start(3, RNG) == SICK).all()
    spread = np.log(HIV(spread=0.2).start(4000, RNG) / SICK)
    assert spread.std(axis=0) == pytest.approx(np.full(6, 0.2), rel=0.1)


def test_observations_are_decimal_logarithms():
    assert 10 ** HIV().observe(STATES) == pytest.approx(STATES)
    assert (
        (HIV().observe(STATES) > HIV().low) & (HIV().observe(STATES) < HIV().high)
    ).mean() > 0.95


BAD = {
    "no substeps": (lambda: HIV(substeps=0), ValueError, "substeps"),
    "no days": (lambda: HIV(days=0), ValueError, "days must be positive"),
    "negative price": (lambda: HIV(r2=-1), ValueError, "r2 must not be negative"),
    "negative spread": (lambda: HIV(spread=-1), ValueError, "spread must not be negative"),
    "reward at noon": (lambda: HIV(reward_at="noon"), ValueError, "reward_at"),
    "half a step": (lambda: HIV(max_steps=0.5), TypeError, "max_steps"),
    "five numbers": (lambda: HIV().step([[1.0] * 5], [0]), ValueError, r"\(m, 6\)"),
    "fifth treatment": (lambda: HIV().step([SICK], [4]), ValueError, "actions must lie"),
    "two actions for one": (lambda: HIV().step([SICK], [0, 1]), ValueError, "1 integers"),
    "no virus": (lambda: HIV().observe([[1, 1, 1, 1, 0, 1.0]]), ValueError, "positive"),
    "guess of five": (lambda: fixed_point([1.0] * 5), ValueError, "six positive"),
    "guess far away": (lambda: fixed_point([1.0] * 6), ValueError, "found no fixed point"),
}


@pytest.mark.parametrize(("call", "kind", "words"), BAD.values(), ids=list(BAD))
def test_bad_input_is_refused_by_name(call, kind, words):
    with pytest.raises(kind, match=words):
        call()
