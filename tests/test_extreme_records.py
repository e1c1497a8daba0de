"""One record with extreme finite numbers, in every private mechanism of the package.

Beside it a data set with an ordinary record in its place. Every release must be finite, and with
one state of the generator the part without noise must move by no more than the mechanism's own
sensitivity: then the noise, whose law the mechanism fixes, hides the record as it hides any other.
"""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dprl.bandits import thompson_sampling
from dprl.evaluation import lsl, lsw
from dprl.features import aggregation, tabular
from dprl.mdp import Chain
from dprl.off_policy.saddle_point import (
    BidiagonalStatistics,
    FeatureSteps,
    Statistics,
    trajectory_statistics,
)
from dprl.privacy import Guarantee, audit_samples
from dprl.privacy.gaussian import gaussian_mechanism
from dprl.privacy.laplace import counting_query, counting_sensitivity, laplace_mechanism
from dprl.privacy.noisy_gradients import noisy_gradient_certified_sigma
from dprl.privacy.smooth_sensitivity import GaussianSmoothing
from dprl.private_evaluation import (
    LSL,
    LSW,
    Draws,
    control,
    lsl_global_sensitivity,
)
from dprl.private_evaluation import NEIGHBOURS as TRAJECTORY
from dprl.private_evaluation.average_then_perturb import (
    average_then_perturb,
    average_then_perturb_diagnostics,
)
from dprl.private_evaluation.dp_lsl import dp_lsl
from dprl.private_evaluation.dp_lsw import dp_lsw
from dprl.private_evaluation.gpope import ConstantStep, Descent, gpope, gpope_runs_not_private
from dprl.private_evaluation.recentre_shape_clip import (
    RoundSettings,
    recentre_shape_clip,
    residuals,
)
from dprl.private_evaluation.structure_free import recentre_clip_structure_free
from dprl.private_evaluation.subsample_and_average import (
    subsample_and_average,
    subsample_and_average_diagnostics,
)
from dprl.private_evaluation.subsamples import draw_subsamples
from dprl.private_evaluation.sufficient_statistics import COUNT_SCALE, noisy_statistics
from dprl.private_evaluation.working_model import WorkingModel, plan_round
from dprl.stopping.rules import (
    choose,
    exponential_mechanism,
    private_sequential_learning,
    stop_privately,
)
from dprl.trajectories import Batch, FirstVisitReturns, first_visit_returns

N, M = 3, 12  # states, trajectories
LOW, HIGH = -1.0, 2.0
SPREAD = 3.0  # D, the largest change of a clipped return
NEIGHBOURS = "replace one trajectory"
ROUNDING = 1e-9

# Both signs of what a machine number can be: subnormal, beyond single precision, with squares
# beyond single (2e19) and double (1e154), the largest of both.
_SIZES = [0.0, 5e-324, 1e-310, 1e-45, 1.0, 2e19, 3.4e38, 1e39, 1e154, 2e154, 8.9e307, 1.7e308]
extreme = st.sampled_from([s * x for x in _SIZES for s in (1.0, -1.0)])
quick = settings(max_examples=40, deadline=None)


def generator(seed=0):
    return np.random.default_rng(seed)


def batch(rewards, states):
    """M trajectories; the first is given, the others are always the same."""
    rng = generator(1)
    rows = [[(s, 0, r) for s, r in zip(states, rewards, strict=True)]]
    rows += [[(s, 0, float(rng.normal())) for s in rng.permutation(N)] for _ in range(M - 1)]
    return Batch.from_lists(rows, N)


@st.composite
def neighbours(draw):
    """First-visit returns with an extreme first trajectory, and with an ordinary one."""
    steps = draw(st.lists(st.tuples(st.integers(0, N - 1), extreme), min_size=1, max_size=6))
    states, rewards = zip(*steps, strict=True)
    discount = draw(st.sampled_from([0.0, 0.5, 0.99]))
    return [
        first_visit_returns(batch(*pair), discount)
        for pair in ((rewards, states), ([0.3, 0.1], [0, 1]))
    ]


def moved(pair):
    return float(np.linalg.norm(pair[0] - pair[1]))


# -- answers with a known sensitivity ----------------------------------------------------------


@quick
@given(neighbours())
def test_laplace_and_gaussian_mechanism(pair):
    """The average of the clipped returns; L1 sensitivity N D / m, L2 sqrt(N) D / m."""
    values = [d.clipped(LOW, HIGH).returns.mean(axis=0) for d in pair]
    most = {1: N * SPREAD / M, 2: N**0.5 * SPREAD / M}
    for order, sensitivity in most.items():
        assert np.linalg.norm(values[0] - values[1], order) <= sensitivity + ROUNDING
    for value in values:
        options = {"epsilon": 0.5, "neighbours": NEIGHBOURS, "rng": generator()}
        noisy, _ = laplace_mechanism(value, sensitivity=most[1], **options)
        other, _ = gaussian_mechanism(value, sensitivity=most[2], delta=1e-3, **options)
        assert np.isfinite(noisy).all()
        assert np.isfinite(other).all()


@quick
@given(extreme, st.sampled_from([1e-300, 1.0, 1e300]))
def test_mechanisms_at_the_end_of_the_numbers(value, sensitivity):
    """Any value and any noise that the machine has: the sum is a number, too."""
    answer = np.full(200, value)
    options = {"sensitivity": sensitivity, "neighbours": NEIGHBOURS, "rng": generator()}
    noisy, _ = laplace_mechanism(answer, epsilon=1e-7, **options)
    assert np.isfinite(noisy).all()
    noisy, _ = gaussian_mechanism(answer, epsilon=0.1, delta=1e-5, **options)
    assert np.isfinite(noisy).all()
    smoothing = GaussianSmoothing(1.0, 1e-5, 1)
    noisy = smoothing.perturb(answer[:, None], np.full(200, sensitivity), generator())
    assert np.isfinite(noisy).all()


def test_noise_beyond_the_numbers_is_refused():
    options = {"sensitivity": 1e300, "neighbours": NEIGHBOURS, "rng": generator()}
    with pytest.raises(ValueError, match="sensitivity/epsilon must be finite"):
        laplace_mechanism(0.0, epsilon=1e-10, **options)
    with pytest.raises(ValueError, match="4/epsilon must be finite"):
        stop_privately(np.zeros(60), 0.5, 0.5, 1e-310, generator())


@quick
@given(extreme, st.booleans())
def test_counting_queries_take_nothing_but_zeros_and_ones(record, other):
    hits = [[record]] + [[1.0], [0.0]] * 5
    if record not in (0.0, 1.0):
        with pytest.raises(ValueError, match="only 0 and 1"):
            counting_query(hits)
        return
    beside = [[float(other)], *hits[1:]]
    gap = abs(counting_query(hits) - counting_query(beside)).max()
    assert gap <= counting_sensitivity([[0.0], [1.0]], len(hits)) + ROUNDING


# -- policy evaluation -------------------------------------------------------------------------

PHI = {"tabular": tabular(N), "aggregated": aggregation(N)}
WEIGHTS = np.array([1.0, 0.5, 0.25])
RANGE = {"f_max": HIGH, "f_min": LOW}
PROMISE = {"epsilon": 1.0, "delta": 1e-3}


@pytest.mark.parametrize("name", PHI)
@quick
@given(pair=neighbours())
def test_dp_lsw(name, pair):
    phi = PHI[name]
    seen = [d.statistics((LOW, HIGH)) for d in pair]
    thetas = [lsw(s, phi, WEIGHTS) for s in seen]
    noise = [LSW(phi, WEIGHTS, **RANGE).noise(s.counts, **PROMISE) for s in seen]
    assert moved(thetas) <= LSW(phi, WEIGHTS, **RANGE).global_sensitivity() + ROUNDING
    smooth(thetas, noise)
    for data in pair:
        release = dp_lsw(data, LSW(phi, WEIGHTS, **RANGE), rng=generator(), **PROMISE)
        assert np.isfinite(release.theta).all()


@pytest.mark.parametrize("improved", [False, True])
@pytest.mark.parametrize("name", PHI)
@quick
@given(pair=neighbours())
def test_dp_lsl(name, improved, pair):
    phi, ridge = PHI[name], 30.0
    seen = [d.statistics((LOW, HIGH)) for d in pair]
    thetas = [lsl(s, phi, WEIGHTS, ridge) for s in seen]
    estimator = LSL(phi, WEIGHTS, ridge, **RANGE, improved=improved)
    noise = [estimator.noise(s.counts, M, **PROMISE) for s in seen]
    most = lsl_global_sensitivity(phi, WEIGHTS, ridge, **RANGE)
    assert moved(thetas) <= most + ROUNDING
    assert most <= LSL(phi, WEIGHTS, ridge, **RANGE).global_sensitivity(M) + ROUNDING
    smooth(thetas, noise)
    for data in pair:
        release = dp_lsl(data, estimator, rng=generator(), **PROMISE)
        assert np.isfinite(release.theta).all()


def smooth(thetas, noise):
    """(a) the noise is alpha times the displacement at least; (b) its logarithm moves by beta."""
    for one in noise:
        assert moved(thetas) <= one.sigma / one.alpha * (1 + ROUNDING) + ROUNDING
    assert abs(np.log(noise[0].psi / noise[1].psi)) <= noise[0].beta * (1 + ROUNDING)


@pytest.mark.parametrize("ridge", [None, 30.0])
@quick
@given(pair=neighbours())
def test_sub_sampled_releases(ridge, pair):
    """The same generator draws the same index sets; b of the m hold the replaced trajectory."""
    m, k, phi = 40, 4, PHI["tabular"]
    drawn = draw_subsamples(M, m, k, generator())
    included = int((drawn == 0).any(axis=1).sum())
    task, options = Draws(m, k), {"epsilon": 0.5, "delta": 0.01}
    if ridge is None:
        estimator = LSW(phi, WEIGHTS, **RANGE)
    else:
        estimator = LSL(phi, WEIGHTS, ridge, **RANGE, improved=True)
    one = estimator.global_sensitivity(k)
    averaged = [
        average_then_perturb_diagnostics(d, estimator, task, rng=generator(), **options)
        for d in pair
    ]
    assert moved([a.mean for a in averaged]) <= averaged[0].sensitivity + ROUNDING
    assert averaged[0].noise == averaged[1].noise
    inside = [
        subsample_and_average_diagnostics(d, estimator, task, rng=generator(), **options)
        for d in pair
    ]
    assert moved([a.mean for a in inside]) <= included / m * one + ROUNDING
    assert all(np.isfinite(a.noise) and a.noise > 0 for a in inside)
    for data in pair:
        for release in (average_then_perturb, subsample_and_average):
            theta = release(data, estimator, task, rng=generator(), **options).theta
            assert np.isfinite(theta).all()


def test_a_range_that_would_overflow_is_refused():
    data = FirstVisitReturns(np.ones((2, N)), np.ones((2, N), dtype=bool))
    for wide in ({"f_max": 1e101}, {"f_max": 1.0, "f_min": -1e101}):
        with pytest.raises(ValueError, match=r"must lie within 1e\+100"):
            dp_lsw(data, LSW(PHI["tabular"], WEIGHTS, **wide), rng=generator(), **PROMISE)


# -- releases in rounds ------------------------------------------------------------------------

MODEL = WorkingModel.known(Chain(N).process)
ROUNDS = RoundSettings(simulated=50, groups=1, spread_share=0.01, shares=(0.3, 0.3, 0.3))
TOTAL = Guarantee(1.0, 1e-6, TRAJECTORY)


@st.composite
def walks(draw):
    """Batches with an extreme first trajectory, and with an ordinary one; rewards as they are."""
    steps = draw(st.lists(st.tuples(st.integers(0, N), extreme), min_size=1, max_size=6))
    states, rewards = zip(*steps, strict=True)
    rng = generator(1)
    others = [[(s, 0, float(rng.normal())) for s in rng.permutation(N + 1)] for _ in range(M - 1)]
    return [
        Batch.from_lists([[(s, 0, r) for s, r in zip(*pair, strict=True)], *others], N + 1)
        for pair in ((states, rewards), ([0, 1], [0.3, 0.1]))
    ]


@quick
@given(neighbours())
def test_counts_and_sums(pair):
    """In units of its noise the release moves by at most mu, whatever the noise of each state."""
    mu, visits = 0.5, np.array([1.0, 0.5, 0.01])
    releases = [
        noisy_statistics(d, mu, **RANGE, expected_visits=visits, rng=generator()) for d in pair
    ]
    one, other = releases
    change = [COUNT_SCALE * (one.counts - other.counts), one.sums - other.sums]
    assert np.isfinite(change).all()
    assert np.linalg.norm(np.array(change) / one.sigma) <= mu * (1 + ROUNDING)
    assert all(np.isfinite(release.values()).all() for release in releases)


@pytest.mark.parametrize("form", ["returns", "steps"])
@quick
@given(pair=walks(), centre=st.lists(st.floats(LOW, HIGH), min_size=N, max_size=N))
def test_a_round_of_rc(form, pair, centre):
    """Around the same centre the mean of clipped vectors moves by at most 2 R/m in its shape."""
    process = MODEL.process([])
    data = pair
    if form == "returns":
        found = [first_visit_returns(batch, process.discount) for batch in pair]
        data = [
            FirstVisitReturns(d.returns[:, :N], d.visited[:, :N]).clipped(LOW, HIGH) for d in found
        ]
    plan = plan_round(generator(3).normal(size=(1, 60, N)), 0.1, bias_weight=1.0)
    u = [residuals(records, process, np.array(centre)) for records in data]
    assert np.isfinite(u).all()
    clipped = [plan.clipped(x) for x in u]
    move = (clipped[0] - clipped[1]).mean(axis=0)
    assert plan.norms(move[None])[0] <= 2 * plan.radius / M * (1 + ROUNDING)
    spread = [np.minimum(plan.norms(x) / plan.radius, 1) ** 2 for x in u]  # released for intervals
    assert abs(spread[0].mean() - spread[1].mean()) <= 1 / M + ROUNDING


@settings(max_examples=15, deadline=None)
@given(walks())
def test_releases_in_rounds(pair):
    process = MODEL.process([])
    for batch in pair:
        returns = first_visit_returns(batch, process.discount)
        for data in (batch, returns):
            found = recentre_shape_clip(
                data, MODEL, TOTAL, **RANGE, settings=ROUNDS, rng=generator()
            )
            for number in (found.values, found.shrunk, found.noise_covariance, found.spread_ratio):
                assert np.isfinite(number).all()
            assert ((found.values >= LOW) & (found.values <= HIGH)).all()
        free = recentre_clip_structure_free(returns, TOTAL, **RANGE, rng=generator()).theta
        assert ((free >= LOW) & (free <= HIGH)).all()


@quick
@given(walks())
def test_private_transition_counts(pair):
    """Rewards are not read; counts of one trajectory move by at most sqrt(2) R, or 1 at a step."""
    radius, horizon = 2.0, 4
    options = {"radius": radius, "epsilon": 1.0, "delta": 1e-6}
    found = [
        control.private_transition_counts(b, 1, **options, rng=generator()).counts for b in pair
    ]
    assert np.isfinite(found).all()
    assert np.linalg.norm(found[0] - found[1]) <= 2**0.5 * radius * (1 + ROUNDING)
    steps = [control.step_counts(b, 1, horizon) for b in pair]
    of_pairs = [c.sum(axis=3) for c in steps]
    squares = sum(np.sum((x[0] - x[1]) ** 2) for x in (steps, of_pairs))
    assert squares <= 4 * horizon
    reward = np.zeros((N + 1, 1))
    for counts in steps:
        policy = control.dp_apvi(counts, reward, epsilon=1.0, delta=1e-6, rng=generator())
        assert np.isfinite(policy.values).all()


# -- noisy gradients ---------------------------------------------------------------------------


@st.composite
def gradients(draw, m=6, n=2):
    """Statistics with an extreme first record, and with an ordinary one."""
    rng = generator(2)
    bidiagonal, single = draw(st.booleans()), draw(st.booleans())
    shapes = [(n,), (n - 1,), (n,), (n,)] if bidiagonal else [(n, n), (n,), (n, n)]
    common = [rng.normal(size=(m, *shape)) for shape in shapes]
    one = draw(st.lists(extreme, min_size=2 * n * n + n, max_size=2 * n * n + n))
    rare = [field.copy() for field in common]
    for field, shape in zip(rare, shapes, strict=True):
        field[0] = np.reshape(one[: int(np.prod(shape))], shape)
        one = one[int(np.prod(shape)) :]
    if single:  # stored in single precision, where that is possible
        largest = float(np.finfo(np.float32).max)
        rare = [np.clip(field, -largest, largest).astype(np.float32) for field in rare]
    kind = BidiagonalStatistics if bidiagonal else Statistics
    return [kind(*fields) for fields in (rare, common)], draw(st.sampled_from(["double", "single"]))


@quick
@given(st.lists(extreme, min_size=12, max_size=12), st.sampled_from([np.float64, np.float32]))
def test_statistics_of_an_extreme_trajectory(record, dtype):
    """Never refused; the others do not notice; one factor for all three, where it is needed."""
    phi, ahead = np.ones((4, 2)), np.zeros((4, 2))
    rewards, ratios = np.ones(4), np.ones(4)
    phi[:2], ahead[:2] = np.reshape(record[:4], (2, 2)), np.reshape(record[4:8], (2, 2))
    rewards[:2], ratios[:2] = record[8:10], np.abs(record[10:])
    columns = (phi, ahead, rewards, ratios)
    kind = {"discount": 0.9, "weighting": "mean", "dtype": dtype}
    both = trajectory_statistics(FeatureSteps(*columns), [2, 2], **kind)
    alone = trajectory_statistics(FeatureSteps(*(x[2:] for x in columns)), [2], **kind)
    for name in "abc":
        assert np.isfinite(getattr(both, name)).all()
        assert np.array_equal(getattr(both, name)[1:], getattr(alone, name))


def test_statistics_beyond_the_numbers_keep_their_proportions():
    phi, rewards = [[3e200], [1e200]], [2e100, -5e100]
    with np.errstate(all="raise"):
        steps = FeatureSteps(phi, [[0.0], [0.0]], rewards, [1.0, 2.0])
        data = trajectory_statistics(steps, [2], 0.5, weighting="sum")
    largest = data.a[0, 0, 0]
    assert largest > 2.0**1020
    assert np.isclose(data.c[0, 0, 0] / largest, 10 / 11)
    assert np.isclose(data.b[0, 0] / largest * 1e100, -4 / 11)


@settings(max_examples=60, deadline=None)
@given(gradients())
def test_gpope_steps(case):
    """From one point, one step with the same draw and noise moves by at most 2 beta h."""
    pair, precision = case
    start = ([0.3, -0.7], [1.1, 0.2])
    h, beta, sigma, trials = 0.5, 0.1, 3.0, 16
    ends = []
    for data in pair:
        run = gpope_runs_not_private(
            data,
            Descent(
                ConstantStep(beta),
                clip=h,
                iterations=1,
                start=start,
                precision=precision,
            ),
            sigma,
            np.random.default_rng(4),
            trials=trials,
        )
        ends.append(np.concatenate([run.theta, run.w], axis=-1)[0])
    assert np.isfinite(ends).all()
    far = np.linalg.norm(ends[0] - ends[1], axis=-1)
    tolerance = 1e-9 if precision == "double" else 1e-5
    assert (far <= 2 * beta * h * (1 + tolerance) + tolerance * beta).all()
    # of noise there is as much with the record as without it
    still = gpope_runs_not_private(
        pair[0],
        Descent(
            ConstantStep(beta),
            clip=h,
            iterations=1,
            start=start,
            precision=precision,
        ),
        0.0,
        np.random.default_rng(4),
        trials=trials,
    )
    without = np.concatenate([still.theta, still.w], axis=-1)[0]
    assert (np.linalg.norm(without - np.concatenate(start), axis=-1) <= beta * h * 1.00001).all()


@settings(max_examples=15, deadline=None)
@given(gradients())
def test_gpope_releases(case):
    pair, precision = case
    for data in pair:
        release = gpope(
            data,
            *(0.5, 1e-3),
            Descent(
                ConstantStep(0.1),
                clip=0.5,
                iterations=40,
                at=range(1, 41),
                precision=precision,
            ),
            generator(),
        )
        assert np.isfinite(release.theta_at).all()
        assert np.isfinite(release.w_at).all()


@pytest.mark.parametrize("precision", ["double", "single"])
@pytest.mark.parametrize("size", [1e39, 1.7e308])
def test_the_law_of_gpope_with_a_huge_record_keeps_the_promise(size, precision):
    """Not only finite: an auditor who looks for the record in the last iterate is not convinced."""
    m, ones = 10, np.ones((10, 1, 1))
    promise = Guarantee(0.5, 0.01, NEIGHBOURS)
    sigma = noisy_gradient_certified_sigma(promise.epsilon, promise.delta, m, m)
    huge = ones.copy()
    huge[0] = size
    scores = []
    for k, a in enumerate((huge, ones)):
        run = gpope_runs_not_private(
            Statistics(a, np.where(a[:, 0] > 1, -size, 1.0), ones),
            Descent(
                ConstantStep(0.1),
                clip=1.0,
                iterations=m,
                precision=precision,
            ),
            sigma,
            np.random.default_rng(k),
            trials=4_000,
        )
        assert np.isfinite(run.w).all()
        assert np.isfinite(run.theta).all()
        scores.append(run.w[0, :, 0])
    audit = audit_samples(*scores, delta=promise.delta, confidence=0.999, rng=generator())
    assert not audit.contradicts(promise)


# -- stopping, choosing, bandits ---------------------------------------------------------------


@quick
@given(extreme)
def test_sequential_learning_takes_nothing_but_zeros_and_ones(record):
    losses = np.tile([0.0, 1.0], (60, 1))
    losses[3, 0] = record
    options = {"alpha": 0.5, "beta": 0.5, "epsilon_stop": 0.5, "epsilon_choice": 0.5}
    if record in (0.0, 1.0):
        release = private_sequential_learning(losses, **options, rng=generator())
        assert 0 <= release.chosen < 2
    else:
        with pytest.raises(ValueError, match="0 and 1"):
            private_sequential_learning(losses, **options, rng=generator())


@quick
@given(st.lists(extreme.map(abs), min_size=2, max_size=4), st.sampled_from([1e-9, 1.0, 1e9]))
def test_the_choice_of_a_function(totals, epsilon):
    """Whatever the totals, probabilities; moved by at most one each, by at most e^epsilon."""
    p = exponential_mechanism(totals, epsilon)
    assert np.isfinite(p).all()
    assert abs(p.sum() - 1) < ROUNDING
    assert totals[int(choose(totals, 1e6, generator()))] <= min(totals) + 1
    if epsilon <= 1:
        q = exponential_mechanism(np.asarray(totals) + np.eye(len(totals))[0], epsilon)
        assert (q <= np.exp(epsilon) * p * (1 + ROUNDING)).all()
        assert (p <= np.exp(epsilon) * q * (1 + ROUNDING)).all()


@quick
@given(extreme, extreme)
def test_private_stop(size, other):
    """The path of sums is the caller's; extreme numbers in it still give a stop or none."""
    stop = stop_privately(np.linspace(size / 2, other / 2, 60), 0.5, 0.5, 0.5, generator())
    assert stop == 0 or 29 <= stop <= 60


class Wild:
    mean = 0.5

    def __init__(self, reward):
        self.reward = reward

    def sample(self, rng, size):
        return np.full(size, self.reward)


@quick
@given(extreme)
def test_thompson_sampling_takes_rewards_in_its_range_only(reward):
    """It is no private mechanism; one huge reward is an error, never a number of plays."""
    arms = [Wild(reward), Wild(0.5)]
    if 0 <= reward <= 1:
        runs = thompson_sampling(arms, 5, 2, generator())
        assert (runs.plays.sum(axis=-1) == runs.times).all()
    else:
        with pytest.raises(ValueError, match=r"reward outside \[0, 1\]"):
            thompson_sampling(arms, 200, 1, generator())
