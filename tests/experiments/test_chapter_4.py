"""The experiment of section 4.8: numbers that keep the promise, runs that are the package's."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from dprl.evaluation import lsl, lsw, rmse
from dprl.mdp import Chain
from dprl.privacy import (
    composition,
    equivalent_epsilon,
    gaussian_delta,
    subsampling,
)
from dprl.private_evaluation import (
    LSL,
    LSW,
    Blocks,
    Budget,
    Draws,
    average_then_perturb_diagnostics,
    base_promise,
    dp_lsl,
    dp_lsw,
    subsample_and_average_diagnostics,
)
from dprl.trajectories import chain_first_visit_returns
from experiments.chapter_3 import chain_features
from experiments.chapter_4 import (
    ALGORITHMS,
    KEYS,
    NOISE_FREE,
    PUBLIC,
    Curve,
    constant_errors,
    noise_free_setting,
    plan_settings,
    scheduled_ridge,
    subsampling_trial,
    summarise,
)

CHAIN = {"n_states": 6}
BASES = (("DP-LSW", ""), ("DP-LSL", "schedule"), ("DP-LSL", "tuned"))


def planned(start, n, base, rule, epsilon=0.1, delta=0.1, features="aggregated", **options):
    chain = Chain(start=start, **CHAIN)
    curve = {name: options.pop(name) for name in ("schedule", "f_max") if name in options}
    return plan_settings(
        chain,
        n,
        Curve(base, features, epsilon, delta, ridge_rule=rule, **curve),
        budget=Budget(512, 4096),
        **options,
    )


@pytest.fixture(scope="module")
def settings():
    """Both starts and all bases, 200 trajectories; the cheap bases also for 60."""
    return {
        start: [
            s
            for n, bases in ((60, BASES[:1]), (200, BASES))
            for base, rule in bases
            for s in planned(start, n, base, rule)
        ]
        + [noise_free_setting("aggregated", 200, 0.1)]
        for start in ("first", "uniform")
    }


def trial(start, settings, seed=3, runs=2, **more):
    task = {"start": start, "settings": settings, "runs": runs, "f_max": 1.0, "chain": CHAIN}
    return subsampling_trial({**task, **more}, np.random.SeedSequence(seed))


# -- public numbers -----------------------------------------------------------------------


def test_every_algorithm_gets_its_numbers(settings):
    for found in settings.values():
        assert {s.algorithm for s in found} == {*ALGORITHMS, NOISE_FREE}
        for s in found:
            assert 1 <= s.size <= s.batch_size
            assert s.subsamples >= 1
            assert (s.ridge is None) == (s.base in ("DP-LSW", "LSW"))
            if s.algorithm == "partition":
                assert s.subsamples * s.size <= s.batch_size


@pytest.mark.parametrize(
    ("base", "rule", "epsilon", "delta"),
    [
        ("DP-LSW", "", 0.1, 0.1),
        ("DP-LSW", "", 1e-3, 0.1),
        ("DP-LSW", "", 1.0, 1e-3),
        ("DP-LSW", "", 0.1, 1e-5),
        ("DP-LSL", "schedule", 0.1, 1e-5),
        ("DP-LSL", "tuned", 1.0, 1e-3),
    ],
)
def test_the_base_guarantee_keeps_the_promise(base, rule, epsilon, delta):
    """By composition forwards; never by the inverse that made it."""
    found = planned("uniform", 300, base, rule, epsilon, delta)
    for s in found:
        q, m = s.size / s.batch_size, s.subsamples
        pair = (s.base_epsilon, s.base_delta)
        if s.algorithm in ("algorithm-3", "algorithm-3-printed"):
            spent = subsampling.composed_printed(*pair, s.batch_size, m, s.size, delta / 2)
            assert spent[0] <= epsilon * (1 + 1e-9)
            assert spent[1] <= delta * (1 + 1e-9)
        elif s.algorithm == "algorithm-3-optimal":
            step = subsampling.amplified(*pair, q)
            assert composition.optimal_composition_delta(*step, m, epsilon) <= delta * (1 + 1e-9)
        elif s.algorithm == "recalibrated":
            assert pair == (epsilon, delta) or pair[0] <= equivalent_epsilon(
                epsilon, delta, pair[1]
            ) * (1 + 1e-12)
            # any (e, d) mechanism, the Gaussian one among them, keeps the promise
            assert composition.optimal_composition_delta(*pair, 1, epsilon) <= delta * (1 + 1e-9)
        else:
            assert pair == (epsilon, delta)


def test_the_rule_prefers_one_of_the_two(settings):
    for found in settings.values():
        table = pd.DataFrame([vars(s) for s in found])
        table = table[table.algorithm.isin(["plain", "algorithm-3"])]
        count = table.groupby(["base", "ridge_rule", "batch_size"])["chosen"].sum()
        assert (count == 1).all()
        assert len(count) == 4


def test_the_schedule_follows_the_size_that_a_run_sees():
    found = {s.algorithm: s for s in planned("uniform", 400, "DP-LSL", "schedule", schedule=7.0)}
    for name in ("plain", "algorithm-3", "algorithm-3-printed", "partition"):
        assert found[name].ridge == pytest.approx(max(7.0 * found[name].size ** 0.5, 2.02))
    assert scheduled_ridge(7.0, np.eye(6))(400) == 140.0


def test_a_budget_bounds_the_sub_samples():
    chain = Chain(start="uniform", **CHAIN)
    for most, draws in ((4, 10), (64, 10_000)):
        found = plan_settings(
            chain, 200, Curve("DP-LSW", "tabular", 0.1, 0.1), budget=Budget(most, draws)
        )
        rule = next(s for s in found if s.algorithm == "algorithm-3")
        assert rule.subsamples <= most
        assert rule.subsamples * rule.size <= max(draws, 800)


def test_a_noise_free_subsample_holds_the_replaced_trajectory_with_probability_delta():
    for n, delta in ((10, 0.1), (95, 0.1), (10**6, 1e-5), (30, 0.7)):
        size = noise_free_setting("tabular", n, delta).size
        assert size / n <= delta * (1 + 1e-12) < (size + 1) / n
    with pytest.raises(ValueError, match="at least 1"):
        noise_free_setting("tabular", 9, 0.1)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"base": "LSW"}, "base must be"),
        ({"rule": "tuned"}, "ridge_rule must be"),
        ({"base": "DP-LSL"}, "ridge_rule must be"),
        ({"base": "DP-LSL", "rule": "best"}, "ridge_rule must be"),
        ({"features": "fourier"}, "features must be one of"),
        ({"epsilon": 0.0}, "epsilon must be positive"),
        ({"delta": 1.0}, "delta must lie"),
        ({"algorithms": ["plain", "magic"]}, "algorithms must be among"),
        ({"f_max": -1.0}, "f_max must be positive"),
        ({"base": "DP-LSL", "rule": "schedule", "schedule": 0.0}, "schedule must be positive"),
        ({"n": 0}, "batch_size must be at least 1"),
    ],
)
def test_bad_plans_are_refused(change, message):
    arguments = {"start": "first", "n": 50, "base": "DP-LSW", "rule": "", **change}
    with pytest.raises(ValueError, match=message):
        planned(**arguments)


# -- runs ---------------------------------------------------------------------------------


def test_the_table_has_one_row_for_each_setting_weighting_and_run(settings):
    for start, found in settings.items():
        table = trial(start, found)
        assert list(table.columns) == [*KEYS, *PUBLIC, "run", "value"]
        weightings = {"first": ["start", "uniform"], "uniform": ["uniform"]}[start]
        assert sorted(table["weighting"].unique()) == weightings
        assert len(table) == 2 * len(found) * len(weightings)
        assert not table.duplicated([*KEYS, "run"]).any()
        assert np.isfinite(table["value"]).all()
        assert (table["value"] >= 0).all()


def test_same_seed_same_table_and_runs_are_numbered_through(settings):
    found = [s for s in settings["first"] if s.batch_size == 60]
    table = trial("first", found, first_run=10)
    pd.testing.assert_frame_equal(table, trial("first", found, first_run=10))
    assert set(table["run"]) == {10, 11}
    assert not np.allclose(table["value"], trial("first", found, seed=4)["value"])


def streams(seed):
    child = np.random.SeedSequence(seed).spawn(1)[0]
    return [np.random.default_rng(s) for s in child.spawn(3)]


@pytest.mark.parametrize("start", ["first", "uniform"])
@pytest.mark.parametrize("algorithm", [*ALGORITHMS, NOISE_FREE])
@pytest.mark.parametrize(("base", "rule"), BASES)
def test_a_run_is_what_the_package_releases(settings, start, algorithm, base, rule):
    """Each algorithm on its own: the same generators give the public function's answer."""
    wanted = ("LSW", "") if algorithm == NOISE_FREE else (base, rule)
    s = next(
        s
        for s in settings[start]
        if s.algorithm == algorithm and (s.base, s.ridge_rule) == wanted and s.batch_size == 200
    )
    rng, index, noise = streams(5)
    chain, phi, ones = Chain(start=start, **CHAIN), chain_features(s.features, 6), np.ones(6)
    data = chain_first_visit_returns(chain, 200, rng)
    whole = data.statistics((0.0, 1.0))
    task = (phi, ones)
    estimator = LSW(*task, f_max=1.0) if s.ridge is None else LSL(*task, s.ridge, f_max=1.0)
    promise = {"epsilon": s.base_epsilon, "delta": s.base_delta}
    if algorithm == "non-private":
        theta = lsw(whole, phi, ones) if s.ridge is None else lsl(whole, phi, ones, s.ridge)
    elif algorithm in ("plain", "recalibrated"):
        if s.ridge is None:
            theta = dp_lsw(whole, estimator, rng=noise, **promise).theta
        else:
            theta = dp_lsl(whole, estimator, rng=noise, **promise).theta
    elif algorithm.startswith("algorithm-3"):
        accounting = "optimal" if algorithm.endswith("optimal") else "printed"
        inside = subsample_and_average_diagnostics(
            data,
            estimator,
            Draws(s.subsamples, s.size, accounting),
            epsilon=s.epsilon,
            delta=s.delta,
            rng=index,
        )
        assert inside.base.epsilon == pytest.approx(s.base_epsilon, rel=1e-9)
        assert inside.base.delta == pytest.approx(s.base_delta, rel=1e-9)
        theta = inside.mean + inside.noise * noise.standard_normal(inside.mean.shape)
    else:
        released = average_then_perturb_diagnostics(
            data,
            estimator,
            (Blocks if algorithm == "partition" else Draws)(s.subsamples, s.size),
            epsilon=max(s.epsilon, 1e-9),
            delta=s.delta,
            rng=index,
        )
        size = 0.0 if algorithm == NOISE_FREE else released.noise
        theta = released.mean + size * noise.standard_normal(released.mean.shape)
    table = trial(start, [s], seed=5, runs=1)
    for weighting, w in (("uniform", ones), ("start", chain.start_distribution)):
        value = table[table.weighting == weighting]["value"]
        if len(value):
            expected = rmse(phi @ theta, chain.values(), w)
            assert value.item() == pytest.approx(float(expected), rel=1e-9)


def test_settings_that_share_sub_samples_keep_their_own_noise(settings):
    """One drawing serves two promises: the error scales with the noise of each."""
    s = next(s for s in settings["first"] if s.algorithm == "algorithm-3" and s.base == "DP-LSW")
    other = replace(s, epsilon=s.epsilon / 100, base_epsilon=s.base_epsilon / 100)
    table = trial("first", [s, other], runs=40)
    mean = table[table.weighting == "uniform"].groupby("epsilon")["value"].mean()
    # alpha is 1/epsilon; a smaller beta adds a little more
    assert 90 < mean.loc[s.epsilon / 100] / mean.loc[s.epsilon] < 200


def test_start_weighting_looks_at_state_one_only(settings):
    s = [x for x in settings["first"] if x.algorithm == "non-private" and x.base == "DP-LSW"][-1:]
    table = trial("first", s, seed=5, runs=1)
    chain = Chain(start="first", **CHAIN)
    data = chain_first_visit_returns(chain, s[0].batch_size, streams(5)[0])
    phi = chain_features(s[0].features, 6)
    error = abs((phi @ lsw(data.statistics((0.0, 1.0)), phi, np.ones(6)) - chain.values())[0])
    assert table[table.weighting == "start"]["value"].item() == pytest.approx(error)


def test_the_summary_counts_all_runs_and_the_first_five(settings):
    s = [x for x in settings["uniform"] if x.batch_size == 60]
    trials = [trial("uniform", s, seed=i, runs=4, first_run=4 * i) for i in range(3)]
    summary = summarise(trials)
    assert list(summary.columns) == [
        *KEYS,
        *PUBLIC,
        "mean",
        "standard_error",
        "runs",
        "mean_of_5",
        "standard_error_of_5",
    ]
    assert (summary["runs"] == 12).all()
    assert len(summary) == len(s)
    whole = pd.concat(trials)
    row = summary[summary.algorithm == "plain"]
    values = whole[whole.algorithm == "plain"].sort_values("run")
    assert row["mean"].item() == pytest.approx(values["value"].mean())
    assert row["standard_error"].item() == pytest.approx(values["value"].std() / 12**0.5)
    five = values["value"].iloc[:5]
    assert row["mean_of_5"].item() == pytest.approx(five.mean())
    assert row["standard_error_of_5"].item() == pytest.approx(five.std() / 5**0.5)


# -- what a curve is compared with --------------------------------------------------------


def test_no_constant_beats_the_best_one():
    for start in ("first", "uniform"):
        chain = Chain(start=start, **CHAIN)
        for name, errors in constant_errors(chain).items():
            w = np.ones(6) if name == "uniform" else chain.start_distribution
            grid = np.linspace(0, 1, 2001)
            found = rmse(np.repeat(grid[:, None], 6, axis=1), chain.values(), w)
            assert errors["best"] <= found.min() + 1e-12
            assert errors["best"] == pytest.approx(found.min(), abs=1e-3)
            assert errors["middle"] == pytest.approx(found[1000])
            assert errors["zero"] == pytest.approx(found[0])
    assert constant_errors(Chain(start="first"))["start"]["best"] == 0
    with pytest.raises(ValueError, match="f_max"):
        constant_errors(Chain(), f_max=0.0)


def test_one_gaussian_after_the_average_needs_the_least_noise_that_keeps_the_promise(settings):
    """The noise of the partition is exactly the analytic one for (1/m) of the sensitivity."""
    s = next(s for s in settings["first"] if s.algorithm == "partition" and s.base == "DP-LSW")
    data = chain_first_visit_returns(Chain(start="first", **CHAIN), s.batch_size, streams(1)[0])
    released = average_then_perturb_diagnostics(
        data,
        LSW(chain_features(s.features, 6), np.ones(6), f_max=1.0),
        Blocks(s.subsamples, s.size),
        epsilon=s.epsilon,
        delta=s.delta,
        rng=streams(1)[1],
    )
    step = np.sqrt(6 / 2) / s.subsamples  # pairs: the norm of (1, 1, 1)
    assert released.sensitivity == pytest.approx(step)
    assert gaussian_delta(step, released.noise, s.epsilon) == pytest.approx(s.delta, rel=1e-6)


def test_the_printed_sizes_get_the_printed_guarantee():
    s = next(
        s
        for s in planned("uniform", 300, "DP-LSW", "", 1.0, 1e-3)
        if s.algorithm == "algorithm-3-printed"
    )
    base = base_promise(1.0, 1e-3, 300, s.subsamples, s.size, accounting="printed")
    assert (s.base_epsilon, s.base_delta) == (base.epsilon, base.delta)
    assert abs(s.subsamples * s.size**2 / 300**2 - 1) < 0.1
