"""Small runs of the study: what a row holds, what is refused."""

import numpy as np
import pandas as pd
import pytest

from dprl.off_policy.saddle_point import empirical, lstd
from experiments.chapter_7 import mountain_car_lstd as study


def fixed(seed=1):
    return np.random.default_rng(seed)


@pytest.fixture(scope="module")
def q():
    return study.learned(fixed(), updates=2_000)


@pytest.mark.parametrize("kind", study.KINDS)
def test_rows_hold_the_errors_of_releases_and_of_their_limits(q, kind):
    data, other = (study.simulated(q, kind, 200, fixed(s)) for s in (2, 3))
    system = empirical(other)
    rows = study.errors(data, system, (10.0, 1e6), 1e-5, 2, fixed(4))
    assert [(r["epsilon"], r["trial"]) for r in rows] == [(10, 0), (1e6, 0), (10, 1), (1e6, 1)]
    assert all(r["n"] == 200 for r in rows)
    assert rows[0]["lstd"] == float(system.mspbe(lstd(data)))
    assert rows[0]["nothing"] == pytest.approx(1, abs=0.1)
    assert all(np.isfinite([r["error"], r["noise_error"]]).all() for r in rows)
    assert rows == study.errors(data, system, (10.0, 1e6), 1e-5, 2, fixed(4))
    assert rows[0]["noise_error"] > rows[1]["noise_error"]
    assert rows[0]["matrix_noise"] > rows[1]["matrix_noise"] > 0


def test_ratios_are_one_on_policy_only(q):
    on, off = (study.simulated(q, kind, 20, fixed()) for kind in study.KINDS)
    # b_i of the constant feature is minus the mean ratio
    assert np.allclose(on.b[:, 0], -1, atol=1e-5)
    assert (abs(off.b[:, 0] + 1) > 1e-3).any()


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda q: study.learned(3), TypeError, "rng"),
        (lambda q: study.simulated(q, "neither", 2, fixed()), ValueError, "kind"),
        (lambda q: study.simulated(q, "on-policy", 0, fixed()), ValueError, "episodes"),
    ],
)
def test_bad_input(q, call, error, message):
    with pytest.raises(error, match=message):
        call(q)


def test_trials_of_a_policy_hold_every_method():
    task = {"policy": 1, "kind": "on-policy", "sizes": [60, 1200], "trials": 2, "fresh": 50}
    task["reaches"] = [(60, 1.0, 0.01), (60, 0.1, 0.01), (1200, 1.0, 0.003)]
    rows = pd.DataFrame(study.car_trial(task, np.random.SeedSequence(1)))
    counts = rows.groupby(["method", "n"]).size()
    assert (counts["GPOPE", 60], counts["GPOPE", 1200]) == (4, 2)
    assert counts["private LSTD", 1200] == 2  # too few for epsilon = .1, and 60 for either
    assert ("private LSTD", 60) not in counts
    assert counts["LSTD", 60] == counts["nothing", 1200] == 1
    assert rows["error"].notna().all()
    for private in ("noise_error", "matrix_noise", "smallest"):
        assert rows[private].notna().sum() == 2
    assert set(rows["reach"].dropna()) == {0.003, 0.01}
