"""The rule against simulation, and what must never be chosen."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import optimize, stats

from dprl import privacy
from dprl import private_evaluation as private
from dprl.features import aggregation, tabular
from dprl.mdp import Chain
from dprl.privacy import GaussianSmoothing, amplified, optimal_composition_delta
from dprl.private_evaluation import planning
from dprl.trajectories import chain_first_visit_returns

ONES = np.ones(40)
TABULAR = tabular(40)
LSW = private.LSW(TABULAR, ONES, f_max=1.0)


def chain_plan(start="uniform"):
    """Visit probabilities, values, and variance of a return, of the thesis's chain."""
    chain = Chain(start=start)
    values = chain.values()
    # a return is gamma^(T-1): its square is a return with discount gamma^2
    variance = Chain(start=start, discount=chain.discount**2).values() - values**2
    return chain, chain.visit_probabilities(), values, variance


# -- the printed advice -------------------------------------------------------------------


@given(st.integers(2, 10**7), st.floats(-3, 1).map(lambda x: 10**x))
def test_the_printed_rule_minimises_on_the_curve(n, epsilon):
    choice = private.choose_printed(n, epsilon)
    m = np.unique(np.round(np.logspace(0, 2 * np.log10(n), 4_000)))
    on_curve = private.equation_4_31(n, m, n / np.sqrt(m), epsilon)
    assert choice.value <= on_curve.min() + 1e-12 * abs(on_curve.min())
    assert choice.size == min(max(1, round(n / math.sqrt(choice.subsamples))), n)


@given(st.integers(2, 10**6), st.floats(-2, 1).map(lambda x: 10**x))
def test_the_stationary_point_of_the_printed_objective(n, epsilon):
    best = (3 * n * epsilon**2) ** (2 / 3)
    if not 1 < best < n**2:
        return

    def on_curve(log_m):
        m = math.exp(log_m)
        return float(private.equation_4_31(n, m, n / math.sqrt(m), epsilon)) * n

    found = optimize.minimize_scalar(
        on_curve, bounds=(0, 2 * math.log(n)), method="bounded", options={"xatol": 1e-10}
    )
    assert on_curve(math.log(best)) <= found.fun + 1e-9 * abs(found.fun)


def test_the_printed_objective_without_its_condition_is_least_at_one_and_one():
    n, sizes = 50, np.arange(1, 51)
    values = private.equation_4_31(n, sizes[:, None], sizes, 0.1)
    assert values.argmin() == 0
    assert values.min() < 0


def test_the_example_has_both_orders():
    for n in (10**3, 10**6):
        choice = private.choose_printed(n, 1.0, advice="example")
        assert choice.subsamples == choice.size
        assert choice.subsamples**3 == pytest.approx(n**2, rel=0.05)


# -- recalibration ------------------------------------------------------------------------


@given(
    st.floats(-4, 0.6).map(lambda x: 10**x),
    st.floats(-8, -0.3).map(lambda x: 10**x),
    st.floats(0, 1),
)
def test_equivalent_epsilon_is_exactly_tight(epsilon, delta, part):
    d = delta * part
    e = privacy.equivalent_epsilon(epsilon, delta, d)
    # the composition of one: randomised response that says everything with probability d
    assert optimal_composition_delta(e, d, 1, epsilon) == pytest.approx(delta, rel=1e-6)
    assert e >= epsilon


def test_equivalent_epsilon_against_the_worst_mechanism_written_out():
    epsilon, delta, d = 0.3, 0.05, 0.01
    e = privacy.equivalent_epsilon(epsilon, delta, d)
    p = (1 - d) * math.exp(e) / (1 + math.exp(e))
    one, other = np.array([d, p, 1 - d - p, 0]), np.array([0, 1 - d - p, p, d])
    assert np.maximum(one - math.exp(epsilon) * other, 0).sum() == pytest.approx(delta)


def test_recalibration_finds_the_least_noise_on_the_curve():
    def noise(e, d):
        return (
            private.LSW(TABULAR, ONES, f_max=1).noise(np.full(40, 10_000), epsilon=e, delta=d).sigma
        )

    e, d = privacy.recalibrated_guarantee(0.1, 0.1, noise)
    curve = 0.1 * np.linspace(0.001, 0.999, 400)
    values = [noise(privacy.equivalent_epsilon(0.1, 0.1, x), x) for x in curve]
    assert noise(e, d) <= min(values) * (1 + 1e-6)
    assert noise(e, d) < noise(0.1, 0.1) / 200
    assert e == privacy.equivalent_epsilon(0.1, 0.1, d)
    # optimal composition of one release knows the same curve
    assert optimal_composition_delta(e, d, 1, 0.1) == pytest.approx(0.1)


@given(st.floats(0.05, 4), st.floats(-9, -0.5).map(lambda x: 10**x))
@settings(max_examples=30)
def test_recalibration_never_adds_noise(epsilon, delta):
    def noise(e, d):
        return GaussianSmoothing(e, d, 5).alpha if e <= 5 else math.inf

    e, d = privacy.recalibrated_guarantee(epsilon, delta, noise)
    assert noise(e, d) <= noise(epsilon, delta)
    assert e >= epsilon
    assert 0 < d <= delta


def test_recalibration_leaves_a_small_delta_alone():
    def noise(e, d):
        return GaussianSmoothing(e, d, 40).alpha

    e, d = privacy.recalibrated_guarantee(1.0, 1e-6, noise)
    assert e == pytest.approx(1.0, rel=1e-4)
    assert noise(1.0, 1e-6) / noise(e, d) < 1 + 1e-4


# -- the plan -----------------------------------------------------------------------------


def test_quadrature_reproduces_binomial_means():
    nodes, weights = planning._quadrature()
    assert weights.sum() == pytest.approx(1)
    for k, p in [(5, 0.3), (64, 0.05), (1_000, 0.5), (10_000, 0.01)]:
        v = stats.binom.ppf(nodes, k, p)
        x = np.arange(k + 1)
        mass = stats.binom.pmf(x, k, p)
        for f in (lambda n: 1 / np.maximum(n, 1) ** 2, lambda n: n / (n + 3.0)):
            assert weights @ f(v) == pytest.approx(mass @ f(x), rel=0.06)


def test_the_plan_of_plain_dp_lsw_is_its_noise_when_all_states_are_visited():
    error = private.planned_error(
        private.Problem(500, ONES, private.LSW(TABULAR, ONES, f_max=2.0)),
        1,
        500,
        epsilon=1.0,
        delta=1e-5,
    )
    sigma = (
        private.LSW(TABULAR, ONES, f_max=2.0).noise(np.full(40, 500), epsilon=1.0, delta=1e-5).sigma
    )
    assert error.noise == pytest.approx(float(sigma))
    assert error.bias == 0
    assert error.sampling == pytest.approx(math.sqrt(1 / 500))  # a quarter of 2^2, over 500
    assert error.score == pytest.approx(math.sqrt(float(sigma) ** 2 + 1 / 500))


def test_the_plan_of_lsl_shrinks_towards_zero():
    lam, n = 60.0, 30
    error = private.planned_error(
        private.Problem(n, ONES, private.LSL(TABULAR, ONES, lam, f_max=1.0)),
        1,
        n,
        epsilon=1.0,
        delta=0.01,
    )
    sigma = (
        private.LSL(TABULAR, ONES, lam, f_max=1.0)
        .noise(np.full(40, n), n, epsilon=1.0, delta=0.01)
        .sigma
    )
    kept = 1 / (1 + lam / (2 * n))
    assert error.noise == pytest.approx(float(sigma))
    assert error.bias == pytest.approx(1 - kept)
    assert error.sampling == pytest.approx(kept / math.sqrt(4 * n))


def test_the_bias_of_missed_states_is_exact_in_the_plan():
    _, p, values, _ = chain_plan()
    error = private.planned_error(
        private.Problem(1_000, p, LSW, values=values),
        10,
        7,
        epsilon=1.0,
        delta=1e-5,
    )
    assert error.bias == pytest.approx(math.sqrt(np.mean((values * (1 - p) ** 7) ** 2)))
    worst = private.planned_error(
        private.Problem(1_000, p, LSW),
        10,
        7,
        epsilon=1.0,
        delta=1e-5,
    )
    assert worst.bias == pytest.approx(math.sqrt(np.mean((1 - p) ** 14)))


# start, n, m, k, epsilon, delta, accounting, ridge per size, features
SIMULATED = [
    ("first", 1_000, 1024, 1, 1.0, 1e-5, "printed", None, tabular(40)),
    ("uniform", 1_000, 256, 4, 1.0, 1e-5, "printed", None, aggregation(40)),
    ("uniform", 1_000, 2048, 1, 5.0, 1e-4, "optimal", None, tabular(40)),
    ("uniform", 1_000, 512, 16, 5.0, 1e-3, "optimal", 0.5, tabular(40)),
    ("uniform", 1_000, 512, 16, 5.0, 1e-3, "optimal", 1.9, tabular(40)),
    ("uniform", 1_000, 512, 16, 5.0, 1e-3, "optimal", 1.9, aggregation(40)),
]


@pytest.mark.parametrize("case", SIMULATED)
def test_the_plan_predicts_the_error_of_the_release(case):
    start, n, m, k, eps, delta, accounting, slope, phi = case
    chain, p, values, variance = chain_plan(start)
    if slope is None:
        estimator = private.LSW(phi, ONES, f_max=1.0)
    else:
        estimator = private.LSL(phi, ONES, slope * k, f_max=1.0)
    rng = np.random.default_rng(9)
    errors = []
    for _ in range(12):
        data = chain_first_visit_returns(chain, n, rng)
        theta = private.subsample_and_average(
            data,
            estimator,
            private.Draws(m, k, accounting=accounting),
            epsilon=eps,
            delta=delta,
            rng=rng,
            n_releases=10,
        ).theta
        errors.append(((theta @ phi.T - values) ** 2).mean())
    base = private.base_promise(eps, delta, n, m, k, accounting=accounting)
    known = {"values": values, "variance": variance}
    base = {"epsilon": base.epsilon, "delta": base.delta}
    plan = private.planned_error(private.Problem(n, p, estimator, **known), m, k, **base)
    assert math.sqrt(np.mean(errors)) == pytest.approx(plan.score, rel=0.06)
    # without knowledge of the values the plan is cautious
    cautious = private.planned_error(private.Problem(n, p, estimator), m, k, **base)
    assert cautious.score > plan.score * 0.995


def test_sampling_and_bias_without_noise():
    chain, p, values, variance = chain_plan()
    rng = np.random.default_rng(4)
    n, m, k = 200, 8, 10
    means = []
    for _ in range(60):
        data = chain_first_visit_returns(chain, n, rng)
        means.append(
            private.subsample_and_average_diagnostics(
                data,
                LSW,
                private.Draws(m, k),
                epsilon=1.0,
                delta=1e-3,
                rng=rng,
            ).mean
        )
    plan = private.planned_error(
        private.Problem(n, p, LSW, values=values, variance=variance),
        m,
        k,
        epsilon=1.0,
        delta=1e-3,
    )
    spread = math.sqrt(np.var(means, axis=0, ddof=1).mean())
    assert 0.8 * plan.sampling < spread < 1.05 * plan.sampling  # an upper bound
    total = math.sqrt(((np.array(means) - values) ** 2).mean())
    assert total == pytest.approx(math.hypot(plan.bias, plan.sampling), rel=0.1)


# -- the choice ---------------------------------------------------------------------------

PROMISE = private.Promise(1.0, 1e-5)


def test_the_choice_is_the_least_candidate_and_plain_is_one():
    for n in (300, 3_000, 30_000):
        for start in ("first", "uniform"):
            p = Chain(start=start).visit_probabilities()
            found = private.subsampling_candidates(private.Problem(n, p, LSW), PROMISE)
            best = private.choose_subsampling(private.Problem(n, p, LSW), PROMISE)
            assert found[0].plain
            assert sum(c.plain for c in found) == 1
            assert best == min(found, key=lambda c: c.score)


@pytest.mark.parametrize("accounting", ["printed", "closed-form", "optimal"])
@pytest.mark.parametrize("delta", [1e-5, 0.1])
def test_every_candidate_keeps_the_promise_and_uses_each_trajectory_once(accounting, delta):
    n, p = 2_000, Chain().visit_probabilities()
    found = private.subsampling_candidates(
        private.Problem(n, p, LSW),
        private.Promise(0.5, delta, accounting=accounting, allow_large_delta=True),
        private.Budget(subsamples=[2, 64, 1_900, 4096], sizes=[1, 32, 1_000]),
    )
    assert len(found) > 2
    for c in found[1:]:
        assert c.subsamples * c.size >= n
        assert c.delta <= delta
        assert c.epsilon <= 5
        step = amplified(c.epsilon, c.delta, c.size / n)
        assert optimal_composition_delta(*step, c.subsamples, 0.5) <= delta * (1 + 1e-9)


def test_the_corner_of_few_trajectories_is_not_a_candidate():
    """With delta = 0.1 two sub-samples of 2 % would pass; they publish someone almost surely."""
    found = private.subsampling_candidates(
        private.Problem(1_000, ONES, LSW),
        private.Promise(0.1, 0.1, accounting="optimal", allow_large_delta=True),
        private.Budget(subsamples=[1, 2, 4], sizes=[1, 20]),
    )
    assert [c.plain for c in found] == [True]


def test_where_plain_is_useful_plain_is_chosen():
    """And where its noise is on the plateau, sub-sampling is."""

    def choose(n):
        return private.choose_subsampling(private.Problem(n, ONES, LSW), PROMISE)

    assert not choose(500).plain
    assert choose(500).score < choose(500).planned.noise * 1.01 < 50
    for n in (20_000, 90_000):
        assert choose(n).plain
        assert choose(n).score < 0.02


def test_the_best_setting_with_subsamples_where_plain_is_better():
    n, sizes = 20_000, private.Budget(subsamples=[1024, 4096], sizes=[16, 64])
    assert private.choose_subsampling(private.Problem(n, ONES, LSW), PROMISE, sizes).plain
    found = private.subsampling_candidates(private.Problem(n, ONES, LSW), PROMISE, sizes)
    best = private.choose_subsampling(
        private.Problem(n, ONES, LSW),
        PROMISE,
        sizes,
        with_plain=False,
    )
    assert best == min((c for c in found if not c.plain), key=lambda c: c.score)
    # a ridge between the points of the grid does better
    found = private.subsampling_candidates(
        private.Problem(n, ONES, private.LSL(TABULAR, ONES, "tuned", f_max=1.0)),
        PROMISE,
        sizes,
    )
    best = private.choose_subsampling(
        private.Problem(n, ONES, private.LSL(TABULAR, ONES, "tuned", f_max=1.0)),
        PROMISE,
        sizes,
        with_plain=False,
    )
    assert not best.plain
    assert best.score < min(c.score for c in found if not c.plain)


def test_a_tuned_ridge_is_no_worse_than_any_fixed_one():
    p = Chain().visit_probabilities()
    tuned = private.choose_subsampling(
        private.Problem(5_000, p, private.LSL(TABULAR, ONES, "tuned", f_max=1.0)),
        PROMISE,
        private.Budget(most_subsamples=64),
    )
    assert tuned.ridge > 0
    for ratio in (0.01, 0.1, 0.3, 1.0, 10.0):
        fixed = private.choose_subsampling(
            private.Problem(
                5_000, p, private.LSL(TABULAR, ONES, lambda k, r=ratio: max(r * k, 1.01), f_max=1.0)
            ),
            PROMISE,
            private.Budget(most_subsamples=64),
        )
        assert tuned.score <= fixed.score * (1 + 1e-3)


def test_the_budget_of_draws_leaves_out_what_exceeds_it():
    sizes = {"subsamples": [4, 64], "sizes": [16, 100]}
    found = private.subsampling_candidates(
        private.Problem(500, ONES, LSW),
        PROMISE,
        private.Budget(most_draws=1_600, **sizes),
    )
    assert {(c.subsamples, c.size) for c in found[1:]} == {(64, 16)}
    with pytest.raises(private.NoCandidateError):
        private.choose_subsampling(
            private.Problem(500, ONES, LSW),
            PROMISE,
            private.Budget(most_draws=500, **sizes),
            with_plain=False,
        )


def test_a_schedule_of_the_ridge_reaches_every_candidate():
    found = private.subsampling_candidates(
        private.Problem(1_000, ONES, private.LSL(TABULAR, ONES, lambda k: 2 * k**0.5, f_max=1.0)),
        PROMISE,
        private.Budget(most_subsamples=16),
    )
    assert all(c.ridge == pytest.approx(2 * c.size**0.5) for c in found)


def test_the_recalibrated_plain_mechanism_is_a_candidate_on_request():
    problem = private.Problem(10_000, ONES, LSW)
    arguments = {"epsilon": 0.1, "delta": 0.1, "allow_large_delta": True}
    plain = private.subsampling_candidates(problem, private.Promise(**arguments))[0]
    better = private.subsampling_candidates(
        problem,
        private.Promise(recalibrate=True, **arguments),
    )[0]
    assert better.plain
    assert better.score < plain.score / 100
    assert optimal_composition_delta(better.epsilon, better.delta, 1, 0.1) <= 0.1 * (1 + 1e-6)


def test_importance_weights_pick_the_states_that_count():
    p = Chain().visit_probabilities()
    last = np.eye(40)[-1]
    choice = private.planned_error(
        private.Problem(1_000, p, LSW, importance=last),
        64,
        16,
        epsilon=1.0,
        delta=1e-6,
    )
    assert choice.bias == 0  # the last state is always visited
    everywhere = private.planned_error(
        private.Problem(1_000, p, LSW),
        64,
        16,
        epsilon=1.0,
        delta=1e-6,
    )
    assert everywhere.bias > 0.1
    assert everywhere.noise == pytest.approx(choice.noise)


# -- blocks -------------------------------------------------------------------------------


def test_a_partition_has_the_noise_that_the_mechanism_adds():
    chain, p, _, _ = chain_plan()
    data = chain_first_visit_returns(chain, 900, np.random.default_rng(2))
    for estimator in (LSW, private.LSL(TABULAR, ONES, "tuned", f_max=1.0)):
        problem = private.Problem(900, p, estimator)
        choice = private.choose_partition(problem, epsilon=1.0, delta=1e-5)
        if choice.ridge is not None:
            estimator = private.LSL(TABULAR, ONES, choice.ridge, f_max=1.0)
        inside = private.average_then_perturb_diagnostics(
            data,
            estimator,
            private.Blocks(choice.subsamples, choice.size),
            epsilon=1.0,
            delta=1e-5,
            rng=np.random.default_rng(3),
        )
        assert choice.sigma == pytest.approx(inside.noise)
        assert choice.planned.noise == pytest.approx(inside.noise)


def test_a_partition_predicts_its_error():
    chain, p, values, variance = chain_plan()
    rng = np.random.default_rng(6)
    choice = private.choose_partition(
        private.Problem(2_000, p, LSW, values=values, variance=variance),
        epsilon=1.0,
        delta=1e-5,
    )
    errors = []
    for _ in range(60):
        data = chain_first_visit_returns(chain, 2_000, rng)
        theta = private.average_then_perturb(
            data,
            LSW,
            private.Blocks(choice.subsamples, choice.size),
            epsilon=1.0,
            delta=1e-5,
            rng=rng,
        ).theta
        errors.append(((theta - values) ** 2).mean())
    assert math.sqrt(np.mean(errors)) == pytest.approx(choice.score, rel=0.06)


def test_blocks_beat_random_subsamples_in_the_plan():
    for start in ("first", "uniform"):
        p = Chain(start=start).visit_probabilities()
        for n in (1_000, 10_000):
            problem = private.Problem(n, p, LSW)
            blocks = private.choose_partition(problem, epsilon=1.0, delta=1e-5)
            random = private.choose_subsampling(private.Problem(n, p, LSW), PROMISE)
            assert blocks.score < random.score


# -- bad input ----------------------------------------------------------------------------


def problem(features=None, weights=(1, 1), ridge=None, f_max=1.0, **change):
    phi = tabular(2) if features is None else features
    if ridge is None:
        estimator = private.LSW(phi, weights, f_max=f_max)
    else:
        estimator = private.LSL(phi, weights, ridge, f_max=f_max)
    given = {"n": 100, "visit_probabilities": [1.0, 0.5], "estimator": estimator}
    return private.Problem(**{**given, **change})


def choose(given=None, with_plain=True, **budget):
    return private.choose_subsampling(
        given or problem(), PROMISE, private.Budget(**budget), with_plain=with_plain
    )


def promise(epsilon=1.0, delta=1e-5, **change):
    return private.choose_subsampling(problem(), private.Promise(epsilon, delta, **change))


def plan(subsamples=4, size=10, **change):
    return private.planned_error(problem(**change), subsamples, size, epsilon=1.0, delta=1e-5)


BAD = {
    "probability above one": (lambda: choose(problem(visit_probabilities=[1.5, 1])), "visit_prob"),
    "no states": (lambda: choose(problem(visit_probabilities=[])), "visit_prob"),
    "delta above 1/n": (lambda: promise(delta=0.1), "exceeds 1/n"),
    "epsilon above five": (lambda: promise(epsilon=5.5), "epsilon"),
    "accounting unknown": (lambda: promise(accounting="best"), "accounting"),
    "ridge unknown": (lambda: choose(problem(ridge="best")), "ridge"),
    "ridge not positive": (lambda: choose(problem(ridge=lambda k: 0.0)), "ridge"),
    "budget zero": (lambda: choose(most_subsamples=0), "most_subsamples"),
    "draws zero": (lambda: choose(most_draws=0), "most_draws"),
    "over the budget": (lambda: choose(subsamples=[8192]), "most_subsamples"),
    "size above n": (lambda: choose(sizes=[101]), "size"),
    "no pair at all": (lambda: choose(subsamples=[], with_plain=False), "candidate"),
    "plan size above n": (lambda: plan(size=101), "size"),
    "plan without subsamples": (lambda: plan(subsamples=0), "subsamples"),
    "values of another length": (lambda: plan(values=[0.1, 0.2, 0.3]), "values"),
    "variance negative": (lambda: plan(variance=-1.0), "variance"),
    "importance of another length": (lambda: plan(importance=[1.0]), "importance"),
    "rho above one": (lambda: plan(ridge=9.0, weights=[2.0, 1.0]), "rho"),
    "no range": (lambda: plan(f_max=0.0), "f_max"),
    "no blocks": (
        lambda: private.choose_partition(
            private.Problem(10, [1.0], private.LSW(tabular(1), [1.0], f_max=1)),
            epsilon=1,
            delta=0.1,
            sizes=[],
        ),
        "sizes",
    ),
    "advice unknown": (lambda: private.choose_printed(10, 1.0, advice="best"), "advice"),
    "objective at zero": (lambda: private.equation_4_31(10, 0, 1, 1.0), "subsamples"),
    "delta beyond the promise": (lambda: privacy.equivalent_epsilon(1.0, 0.1, 0.2), "base_delta"),
    "no guarantee is proved": (
        lambda: privacy.recalibrated_guarantee(1.0, 0.1, lambda e, d: math.inf),
        "infinite",
    ),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input(case):
    call, words = BAD[case]
    with pytest.raises(ValueError, match=words):
        call()


@pytest.mark.parametrize(
    ("promise", "budget", "kind"),
    [(1.0, None, "Promise"), (private.Promise(1.0, 1e-5), 0, "Budget")],
)
def test_a_promise_and_a_budget_are_objects(promise, budget, kind):
    problem = private.Problem(10, [1.0], private.LSW(tabular(1), [1.0], f_max=1))
    for function in (private.subsampling_candidates, private.choose_subsampling):
        with pytest.raises(TypeError, match=f"must be a {kind}"):
            function(problem, promise, budget)
