"""The limit without noise, the budget, the largest change by one record, and (1) done naively."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dprl.off_policy.saddle_point import Statistics, lstd
from dprl.privacy import analytic_gaussian_sigma
from dprl.private_evaluation import private_lstd as module
from dprl.private_evaluation.private_lstd import LSTDRounds, private_lstd

N, D = 400, 3
MUCH = 1e7  # an epsilon at which there is hardly any noise
SIZES = [0.0, 5e-324, 1e-310, 1.0, 2e19, 1e39, 1e154, 1.7e308]
extreme = st.sampled_from([s * x for x in SIZES for s in (1.0, -1.0)])


def data(n=N, d=D, seed=0):
    """Trajectories of some steps between random features, discount .9."""
    rng = np.random.default_rng(seed)
    phi = rng.uniform(-1, 1, size=(n, 6, d))
    after = np.roll(phi, -1, axis=1)
    left = phi.swapaxes(1, 2) / 6
    reward = phi @ np.arange(1.0, d + 1) + rng.normal(size=(n, 6)) / 4
    return Statistics(left @ (phi - 0.9 * after), (left @ reward[..., None])[..., 0], left @ phi)


def replaced(statistics, a, b, c):
    fields = [x.copy() for x in (statistics.a, statistics.b, statistics.c)]
    for field, value in zip(fields, (a, b, c), strict=True):
        field[0] = value
    return Statistics(*fields)


def measurements(statistics, z=1.0, seed=5, plan=None):
    return module._Measurements(statistics, plan or LSTDRounds(), z, np.random.default_rng(seed))


def test_without_noise_and_clipping_it_is_lstd():
    few = LSTDRounds(clipped=(1e-9, 1e-9, 1e-9))
    release = private_lstd(data(), MUCH, 1e-5, np.random.default_rng(1), few)
    assert np.allclose(release.theta, lstd(data()), rtol=1e-4)
    assert release.noise_error < 1e-6
    c = data().mean()[2]
    assert np.allclose(release.whitening.T @ c @ release.whitening, np.eye(D), atol=0.01)


def test_residual_rounds_correct_what_clipping_does_to_the_matrix():
    far = []
    for count in (1, 12):
        rough = LSTDRounds(residuals=(1.0,) * count, clipped=(0.3, 0.3, 1e-9))
        release = private_lstd(data(), MUCH, 1e-5, np.random.default_rng(1), rough)
        far.append(np.linalg.norm(release.theta - lstd(data())))
    assert far[1] < far[0] / 50


@pytest.mark.parametrize("plan", [LSTDRounds(), LSTDRounds((0.3,), 1.0, (2.0, 3.0), 0.5)])
def test_the_rounds_and_the_counts_use_the_budget_and_no_more(plan):
    release = private_lstd(data(), 10.0, 1e-5, np.random.default_rng(1), plan)
    used = sum((2 * r.radius / (N * r.sigma)) ** 2 for r in release.rounds)
    mu = 1 / analytic_gaussian_sigma(1.0, 10.0, 1e-5)
    assert used == pytest.approx(mu**2 * (1 - plan.radii / plan.total))
    assert len(release.rounds) == plan.rounds


def test_the_counts_of_a_radius_have_the_noise_of_their_share():
    """The generator is asked for one number a count; the share of each is that of radii / all."""
    plan = LSTDRounds()
    measure = measurements(data(), z=3.0)
    seen = []

    class Recorder:
        def standard_normal(self):
            seen.append(0)
            return -np.inf  # every count is far below the limit

    measure.rng = Recorder()
    few, radius, _ = measure._clipping("matrix", np.ones(N))
    assert len(seen) == 6
    assert radius == module.RADII[0]
    each = plan.radii / plan.total / plan.rounds / 6
    # two standard deviations are the limit where few records are to be clipped
    sigma = 3.0 / np.sqrt(each)
    assert few == pytest.approx(2 * sigma / N)

    class Threshold:
        def __init__(self, deviations):
            self.deviations = deviations

        def standard_normal(self):
            return self.deviations

    for deviations, expected in ((1.999, module.RADII[0]), (2.001, module.RADII[-1])):
        measure.rng = Threshold(deviations)
        assert 2 * sigma > plan.clipped[1] * N
        assert measure._clipping("matrix", np.zeros(N))[1] == expected


@pytest.mark.parametrize("kind", ["covariance", "matrix", "residual"])
def test_the_sensitivity_is_attained(kind):
    w = np.array([[2.0, 1.0, 0.0], [0.0, 1.0, 0.0], [0.3, 0.0, 0.5]])
    big = 1e6 * np.eye(D)
    means = []
    for sign in (1.0, -1.0):
        changed = replaced(data(), sign * big, sign * np.full(D, 1e6), sign * big)
        measure = measurements(changed)
        if kind == "residual":
            found = measure.residuals(w, np.zeros(D), 0.2)
        else:
            found = measure.matrices(kind, w, 0.2)
        means.append(found)
    assert means[0].radius == means[1].radius
    gap = np.linalg.norm(means[0].mean - means[1].mean)
    assert gap == pytest.approx(2 * means[0].radius / N, rel=1e-6)


@settings(max_examples=60, deadline=None)
@given(st.lists(extreme, min_size=2 * D * D + D, max_size=2 * D * D + D), st.integers(0, 2))
def test_no_record_moves_a_mean_by_more_than_the_sensitivity(values, which):
    a, b, c = np.split(np.array(values), [D * D, D * D + D])
    changed = replaced(data(), a.reshape(D, D), b, c.reshape(D, D))
    w, theta = np.diag([3.0, 1.0, 0.1]), np.array([50.0, -1.0, 1e-3])
    found = []
    for statistics in (data(), changed):
        measure = measurements(statistics)
        found.append(
            measure.residuals(w, theta, 0.1)
            if which == 2
            else measure.matrices(("covariance", "matrix")[which], w, 0.1)
        )
    one, other = found
    assert np.isfinite(other.mean).all()
    if one.radius == other.radius:  # else a count has changed, which its own noise hides
        assert np.linalg.norm(one.mean - other.mean) <= 2 * one.radius / N * (1 + 1e-9)


@settings(max_examples=40, deadline=None)
@given(st.lists(extreme, min_size=2 * D * D + D, max_size=2 * D * D + D), st.booleans())
def test_releases_of_extreme_records_are_finite(values, everyone):
    a, b, c = np.split(np.array(values), [D * D, D * D + D])
    record = a.reshape(D, D), b, c.reshape(D, D)
    if everyone:
        statistics = Statistics(*(np.tile(x, (N,) + (1,) * x.ndim) for x in record))
    else:
        statistics = replaced(data(), *record)
    release = private_lstd(statistics, 10.0, 1e-5, np.random.default_rng(2))
    assert np.isfinite(release.theta).all()
    assert np.isfinite(release.noise_error)
    assert all(np.isfinite(r.mean).all() for r in release.rounds)


@pytest.mark.parametrize(("epsilon", "needed"), [(1.0, 1112), (0.1, 9159)])
def test_too_few_trajectories_are_refused(epsilon, needed):
    one = Statistics(
        np.ones((needed - 1, 1, 1)), np.ones((needed - 1, 1)), np.ones((needed - 1, 1, 1))
    )
    with pytest.raises(ValueError, match=f"at least {needed} trajectories"):
        private_lstd(one, epsilon, 1e-5, np.random.default_rng(1))


def test_noise_of_a_symmetric_matrix():
    draws = []
    for seed in range(3000):
        measure = measurements(data(n=2), seed=seed)
        draws.append(measure._noisy("covariance", (0.0, 1.0), np.zeros((D, D)), 1.0))
    noise = np.array([d.mean for d in draws]) / draws[0].sigma
    assert (noise == noise.swapaxes(1, 2)).all()
    off = 1 - np.eye(D, dtype=bool)
    expected = np.where(off, np.sqrt(0.5), 1.0)
    assert np.allclose(noise.std(axis=0), expected, atol=0.05)


def test_row_estimates_are_generalised_least_squares():
    rng = np.random.default_rng(3)
    a = rng.normal(size=(D, D))
    system = module._RowEstimates(a, 0.3)
    design, seen, weight = [np.append(e, 0.0) for e in np.eye(D)], list(a.T), [1 / 0.3] * D
    for sigma in (0.1, 0.7):
        eta, y = rng.normal(size=D), rng.normal(size=D)
        system.add(eta, y, sigma)
        design.append(np.append(-eta, 1.0))
        seen.append(y)
        weight.append(1 / sigma)
    eta, error = system.best()
    x = np.array(design) * np.array(weight)[:, None]
    rows = np.linalg.lstsq(x, np.array(seen) * np.array(weight)[:, None], rcond=None)[0]
    covariance = np.linalg.inv(x.T @ x)

    def expected(eta):  # (1)
        h = np.append(-eta, 1.0)
        return np.sum((rows[D] - rows[:D].T @ eta) ** 2) + D * h @ covariance @ h

    assert error == pytest.approx(expected(eta))
    assert all(expected(eta + 0.01 * e) > error for e in rng.normal(size=(20, D)))


def test_the_expected_error_is_the_mean_of_draws():
    """(1) for one eta: draw (A, b) from the law that the measurements leave."""
    rng = np.random.default_rng(4)
    system = module._RowEstimates(np.eye(2), 0.5)
    system.add(np.zeros(2), np.ones(2), 0.2)
    eta, error = system.best()
    a = np.eye(2) + 0.5 * rng.standard_normal((100_000, 2, 2))
    b = np.ones(2) + 0.2 * rng.standard_normal((100_000, 2))
    seen = ((b - a @ eta) ** 2).sum(axis=1)
    assert error == pytest.approx(seen.mean(), abs=4 * seen.std() / np.sqrt(seen.size))


def test_a_seed_repeats_and_chunks_do_not_matter(monkeypatch):
    first, again = (private_lstd(data(), 10.0, 1e-5, np.random.default_rng(7)) for _ in range(2))
    assert (first.theta == again.theta).all()
    monkeypatch.setattr(module, "_CHUNK", 37)
    small = private_lstd(data(), 10.0, 1e-5, np.random.default_rng(7))
    assert np.allclose(first.theta, small.theta, rtol=1e-9)


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: private_lstd(3, 1.0, 1e-5, np.random.default_rng(1)), TypeError, "statistics"),
        (lambda: private_lstd(data(), 0.0, 1e-5, np.random.default_rng(1)), ValueError, "epsilon"),
        (lambda: private_lstd(data(), 1.0, 1.0, np.random.default_rng(1)), ValueError, "delta"),
        (lambda: private_lstd(data(), 1.0, 1e-5, 1), TypeError, "rng"),
        (
            lambda: private_lstd(data(), 1.0, 1e-5, np.random.default_rng(1), 3),
            TypeError,
            "rounds",
        ),
        (lambda: LSTDRounds(covariance=()), ValueError, "covariance"),
        (lambda: LSTDRounds(residuals=[1.0]), ValueError, "residuals"),
        (lambda: LSTDRounds(residuals=(0.0,)), ValueError, "residuals"),
        (lambda: LSTDRounds(matrix=-1.0), ValueError, "matrix"),
        (lambda: LSTDRounds(radii=0.0), ValueError, "radii"),
        (lambda: LSTDRounds(clipped=(0.1, 0.1)), ValueError, "clipped"),
        (lambda: LSTDRounds(clipped=(0.1, 0.1, 1.0)), ValueError, "clipped"),
    ],
)
def test_bad_input(call, error, message):
    with pytest.raises(error, match=message):
        call()


def test_a_released_symmetric_matrix_is_symmetric_whatever_rounding_does():
    """Its antisymmetric part would have no noise: one record would show in it."""
    none, d = np.zeros((1_200, 10, 10)), 10
    with_one = none.copy()
    with_one[0] = np.diag(np.arange(1.0, 11.0))
    for c in (none, with_one):
        statistics = Statistics(none, np.zeros((1_200, d)), c)
        for seed in range(20):
            rng = np.random.default_rng(seed)
            release = private_lstd(statistics, epsilon=1.0, delta=1e-5, rng=rng)
            for one in release.rounds:
                if one.kind == "covariance":
                    assert np.array_equal(one.mean, one.mean.T)


def test_numbers_of_half_precision_are_taken_as_doubles():
    half = LSTDRounds(matrix=np.float16(0.2), radii=np.float16(0.05))
    assert type(half.matrix) is type(half.radii) is float
