"""Algorithm 1 beside a plain loop with the same draws and noise; what is refused."""

import subprocess
import sys
from functools import partial

import numpy as np
import pytest

from dprl.off_policy.saddle_point import BidiagonalStatistics, Statistics, empirical, gradient
from dprl.privacy.noisy_gradients import noisy_gradient_delta
from dprl.private_evaluation.gpope import (
    ConstantStep,
    Descent,
    DiminishingStep,
    gpope,
    gpope_runs_not_private,
)

STEPS = [ConstantStep(0.3), DiminishingStep(2.0, 3.0), ConstantStep(2.0, 0.5)]
SIGMAS = [0.0, 0.5, 2.0]


def secret():
    return np.random.default_rng(11)


def bidiagonal(n, m=20, seed=0):
    rng = np.random.default_rng(seed)
    parts = (rng.normal(size=(m, k)) for k in (n, n - 1, n))
    return BidiagonalStatistics(*parts, rng.random((m, n)))


def dense(n, m=20, seed=0):
    rng = np.random.default_rng(seed)
    root = rng.normal(size=(m, n, n))
    return Statistics(root, rng.normal(size=(m, n)), root @ root.swapaxes(1, 2))


def runs(data, sigma, seed, trials=1, workers=1, **descent):
    rng = np.random.default_rng(seed)
    descent = Descent(**descent)
    return gpope_runs_not_private(data, descent, sigma, rng, trials=trials, workers=workers)


def release_of(data, rng, promise=(1.0, 1e-3), **descent):
    return gpope(data, *promise, Descent(**descent), rng)


def plain(data, sigma, clip, step, iterations, seed, trial, start=None, noise=np.float32):
    """Algorithm 1, line by line; the random numbers are those of the trial's group of eight."""
    data = data.dense() if isinstance(data, BidiagonalStatistics) else data
    n = data.n_features
    draws, normals = (
        np.random.Generator(np.random.SFC64(s))
        for s in np.random.SeedSequence(seed, spawn_key=(trial // 8,)).spawn(2)
    )
    drawn = draws.integers(data.n_trajectories, size=(iterations, 8))[:, trial % 8]
    zeta = normals.standard_normal((iterations, 8, 2 * n), dtype=noise)[:, trial % 8]
    x = np.zeros(2 * n) if start is None else np.concatenate(start)
    path, clipped = [], 0
    for i in range(iterations):
        k = drawn[i]
        g = gradient(x[:n], x[n:], data.a[k], data.b[k], data.c[k])
        norm = np.linalg.norm(g)
        clipped += norm > clip
        noisy = g / max(1.0, norm / clip) + clip * sigma * zeta[i].astype(float)
        x = x - step.size(i + 1, iterations) * noisy
        path.append(x)
    return np.array(path), clipped


@pytest.mark.parametrize("data", [bidiagonal(1), bidiagonal(5), dense(1), dense(4)])
def test_whole_run_equals_the_plain_loop(data):
    start = (np.full(data.n_features, 0.5), np.full(data.n_features, -1.0))
    seen = gpope_runs_not_private(
        data,
        Descent(
            STEPS,
            clip=0.7,
            iterations=300,
            start=start,
            at=[1, 7, 300],
        ),
        SIGMAS,
        np.random.default_rng(3),
        trials=11,
    )
    run = seen
    assert run.theta.shape == (3, 11, data.n_features)
    assert run.theta_at.shape == (3, 3, 11, data.n_features)
    for j, trial in ((0, 0), (1, 7), (2, 10)):
        path, clipped = plain(data, SIGMAS[j], 0.7, STEPS[j], 300, 3, trial, start)
        ours = np.concatenate([run.theta_at[:, j, trial], run.w_at[:, j, trial]], axis=1)
        np.testing.assert_allclose(ours, path[[0, 6, 299]], rtol=1e-10, atol=1e-10)
        assert seen.clipped[j, trial] == clipped
    np.testing.assert_array_equal(run.theta_at[-1], run.theta)


@pytest.mark.parametrize("data", [bidiagonal(6, 1), dense(6, 1)])
def test_one_step_is_the_gradient(data):
    rng = np.random.default_rng(1)
    theta, w = rng.normal(size=(2, 6))
    end = gpope_runs_not_private(
        data,
        Descent(
            ConstantStep(1),
            clip=1e9,
            iterations=1,
            start=(theta, w),
        ),
        0,
        np.random.default_rng(0),
    )
    full = data.dense() if isinstance(data, BidiagonalStatistics) else data
    expected = gradient(theta, w, full.a[0], full.b[0], full.c[0])
    moved = np.concatenate([theta - end.theta[0, 0], w - end.w[0, 0]])
    np.testing.assert_allclose(moved, expected, rtol=0, atol=1e-12)


def test_clipping_is_joint():
    data = Statistics([[[3.0]]], [[0.0]], [[[0.0]]])
    # gradient (-A w, A theta) = (-3, 12); norm sqrt(153), clipped to 1
    end = gpope_runs_not_private(
        data,
        Descent(
            ConstantStep(1.0),
            clip=1.0,
            iterations=1,
            start=([4.0], [1.0]),
        ),
        0,
        np.random.default_rng(0),
    )
    length = np.sqrt(153)
    np.testing.assert_allclose(end.theta, [[[4 + 3 / length]]])
    np.testing.assert_allclose(end.w, [[[1 - 12 / length]]])


@pytest.mark.parametrize("data", [bidiagonal(3), dense(3)])
def test_numbers_do_not_depend_on_the_division(data):
    run = partial(
        runs,
        data,
        clip=1.0,
        iterations=70,
        seed=5,
        sigma=1.0,
        steps=ConstantStep(0.1),
    )
    few = run(trials=3)
    many = run(trials=70, at=[5, 9, 40])
    np.testing.assert_array_equal(many.theta[:, :3], few.theta)
    several = run(trials=70, steps=STEPS)
    third = run(trials=70, steps=STEPS[2])
    np.testing.assert_allclose(several.theta[2:], third.theta, rtol=1e-12, atol=1e-13)
    assert not np.allclose(many.theta[0, 0], many.theta[0, 1])


def test_workers_change_nothing():
    run = partial(
        runs,
        bidiagonal(3),
        clip=1.0,
        iterations=30,
        seed=5,
        sigma=1.0,
        steps=STEPS,
        trials=40,
        at=[2, 30],
    )
    one, two = run(), run(workers=2)
    for field in ("theta", "w", "theta_at", "w_at"):
        # Bit for bit if compiled alike; other tests may have changed how this process compiles.
        np.testing.assert_allclose(getattr(one, field), getattr(two, field), rtol=1e-12, atol=1e-13)


def test_dense_and_bidiagonal_agree():
    data = bidiagonal(4)
    run = partial(runs, sigma=0.5, clip=1.0, steps=STEPS, iterations=200, seed=1, trials=9)
    np.testing.assert_allclose(run(data).w, run(data.dense()).w, rtol=1e-10, atol=1e-12)


def test_single_precision_is_close_and_shares_the_noise():
    run = partial(
        runs,
        bidiagonal(3),
        sigma=0.5,
        clip=1.0,
        steps=STEPS,
        iterations=200,
        seed=1,
    )
    np.testing.assert_allclose(run(precision="single").theta, run().theta, atol=1e-4)


@pytest.mark.parametrize("precision", ["double", "single"])
@pytest.mark.parametrize("shape", [dense, bidiagonal])
def test_any_finite_record_is_clipped_exactly(shape, precision):
    """Its direction, at length h, as exact arithmetic has it, however large the numbers."""
    small = shape(2, m=1)
    names = [f for f in ("a", "diagonal", "above", "b", "c") if hasattr(small, f)]
    start = ([0.3, -0.2], [0.5, 0.25])
    run = partial(runs, sigma=0, clip=1e-3, steps=ConstantStep(1), iterations=1, seed=0)
    moved = run(small, start=start, precision=precision)
    for exponent in (20, 70, 500, 1000):  # from 2^64 the square overflows in single, 2^512 double
        huge = type(small)(*(np.ldexp(getattr(small, f), exponent) for f in names))
        end = run(huge, start=start, precision=precision)
        full = small.dense() if shape is bidiagonal else small
        g = gradient(*start, full.a[0], full.b[0], full.c[0])
        want = -1e-3 * g / np.linalg.norm(g)
        tolerance = 1e-12 if precision == "double" else 1e-7
        np.testing.assert_allclose(end.theta[0, 0] - start[0], want[:2], rtol=0, atol=tolerance)
        np.testing.assert_allclose(end.w[0, 0] - start[1], want[2:], rtol=0, atol=tolerance)
        np.testing.assert_allclose(end.theta, moved.theta, rtol=0, atol=tolerance)


@pytest.mark.parametrize("precision", ["double", "single"])
def test_records_in_single_precision_are_clipped_to_the_same_length(precision):
    """A record is rounded by itself, before it is clipped: the length is that of the arithmetic."""
    exact = dense(3, m=5)
    rounded = type(exact)(*(getattr(exact, f).astype(np.float32) for f in ("a", "b", "c")))
    run = partial(runs, sigma=0, clip=1e-3, precision=precision)
    one = run(rounded, steps=ConstantStep(1), iterations=1, seed=0)
    length = np.linalg.norm(np.concatenate([one.theta[0, 0], one.w[0, 0]]))
    assert length == pytest.approx(1e-3, rel=1e-14 if precision == "double" else 3e-7)
    many = [run(d, steps=ConstantStep(3), iterations=300, seed=0) for d in (exact, rounded)]
    np.testing.assert_allclose(many[1].theta, many[0].theta, atol=1e-5)


def test_each_trial_may_have_its_own_data():
    run = partial(runs, sigma=0.5, clip=1.0, steps=STEPS, iterations=50, seed=1, trials=10)
    own = run(lambda trial: bidiagonal(2, seed=trial))
    for trial in (0, 9):
        shared = run(bidiagonal(2, seed=trial))
        np.testing.assert_array_equal(own.theta[:, trial], shared.theta[:, trial])


def test_without_noise_it_finds_the_saddle_point():
    data = Statistics([[[1.0, 0.5], [0.0, 1.0]]], [[1.0, 2.0]], [np.eye(2)])
    theta, w = empirical(data).solution()
    end = gpope_runs_not_private(
        data,
        Descent(ConstantStep(0.2), clip=1e6, iterations=2_000),
        0,
        np.random.default_rng(0),
    )
    np.testing.assert_allclose(end.theta[0, 0], theta, atol=1e-6)
    np.testing.assert_allclose(end.w[0, 0], w, atol=1e-6)


def test_noise_has_the_stated_size():
    data = Statistics([[[0.0]]], [[0.0]], [[[0.0]]])
    end = gpope_runs_not_private(
        data,
        Descent(ConstantStep(0.1), clip=3.0, iterations=4),
        [2.0, 0.5],
        np.random.default_rng(1),
        trials=20_000,
    )
    expected = 0.1 * 3 * np.array([2.0, 0.5]) * np.sqrt(4)
    for x in (end.theta, end.w):
        np.testing.assert_allclose(x[..., 0].std(axis=1), expected, rtol=0.03)
    assert abs(np.corrcoef(end.theta[0, :, 0], end.w[0, :, 0])[0, 1]) < 0.04


def test_promise_is_certified_and_the_run_is_that_of_its_sigma():
    data = bidiagonal(2, m=60)
    given = {"clip": 1.0, "steps": STEPS[1], "iterations": 60, "at": [3, 60]}
    release = release_of(data, np.random.default_rng(2), (0.5, 1e-3), **given)
    assert noisy_gradient_delta(release.sigma, 60, 60, 0.5) <= 1e-3
    assert str(release.guarantee).endswith("neighbours: replace one trajectory")
    seed = int.from_bytes(np.random.default_rng(2).bytes(16), "little")
    by_hand = plain(data, release.sigma, 1.0, STEPS[1], 60, seed, 0, noise=np.float64)
    end = np.concatenate([release.theta, release.w])
    np.testing.assert_allclose(end, by_hand[0][-1], rtol=1e-9)
    np.testing.assert_array_equal(release.w_at[-1], release.w)


def test_noise_of_a_release_reaches_the_last_digits():
    """With noise of single precision what moved a zero gradient would be such a number."""
    data = Statistics(np.zeros((60, 1, 1)), np.zeros((60, 1)), np.zeros((60, 1, 1)))
    given = {"steps": ConstantStep(1.0), "clip": 1.0, "iterations": 1}

    def digits(theta, w, sigma):
        """How far the noise is from numbers of single precision, in units of their last digit."""
        noise = np.concatenate([theta, w]) / sigma
        coarse = noise.astype(np.float32)
        return abs(noise - coarse) / np.spacing(abs(coarse))

    release = release_of(data, secret(), (0.5, 1e-3), **given)
    assert digits(release.theta, release.w, release.sigma).max() > 1e-3
    run = runs(data, release.sigma, 3, **given)
    assert digits(run.theta[0, 0], run.w[0, 0], release.sigma).max() < 1e-6


def test_a_second_release_has_noise_of_its_own():
    data, rng = Statistics(np.zeros((9, 1, 1)), np.zeros((9, 1)), np.zeros((9, 1, 1))), secret()
    ends = [
        gpope(
            data,
            0.5,
            1e-3,
            Descent(ConstantStep(b), clip=1.0, iterations=2),
            rng,
        ).theta
        / b
        for b in (0.1, 0.1, 0.2)
    ]
    assert min(abs(ends[i] - ends[j]).min() for i, j in ((0, 1), (0, 2), (1, 2))) > 1e-6


def test_a_release_has_one_setting_and_one_data_set():
    given = {"clip": 1.0, "iterations": 3}
    with pytest.raises(TypeError, match="a release has one setting"):
        release_of(bidiagonal(2), secret(), steps=STEPS, **given)
    with pytest.raises(TypeError, match="statistics must be a Statistics or"):
        release_of(lambda trial: bidiagonal(2), secret(), steps=STEPS[0], **given)
    with pytest.raises(TypeError, match=r"rng must be a numpy\.random\.Generator"):
        release_of(bidiagonal(2), 1, steps=STEPS[0], **given)
    with pytest.raises(TypeError, match="descent must be a Descent"):
        gpope(bidiagonal(2), 1.0, 1e-3, STEPS[0], secret())
    with pytest.raises(ValueError, match="steps must be at most 1000000"):
        release_of(bidiagonal(2), secret(), steps=STEPS[0], **{**given, "iterations": 10**7})
    with pytest.raises(TypeError, match="at must be a sequence"):
        release_of(bidiagonal(2), secret(), steps=STEPS[0], at=5, **given)


def test_a_huge_epsilon_is_a_promise_like_any_other():
    given = {"clip": 1.0, "steps": STEPS[0], "iterations": 20}
    release = release_of(bidiagonal(2), secret(), (1e4, 1e-3), **given)
    assert release.guarantee.epsilon == 1e4
    assert release.sigma > 0


def test_package_does_not_import_jax():
    code = "import sys, dprl.private_evaluation; assert 'jax' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


GOOD = {
    "sigma": 1.0,
    "clip": 1.0,
    "steps": ConstantStep(0.1),
    "iterations": 3,
    "seed": 0,
}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"clip": 0.0}, "clip must be positive"),
        ({"clip": -1.0}, "clip must be positive"),
        ({"clip": float("nan")}, "clip must be finite"),
        ({"sigma": -0.1}, "sigma must be one or several numbers >= 0"),
        ({"sigma": float("nan")}, "sigma holds NaN"),
        ({"sigma": []}, "sigma must be one or several"),
        ({"sigma": [1.0, 2.0], "steps": STEPS}, "sigma and steps must be of one length"),
        ({"iterations": 0}, "iterations must be at least 1"),
        ({"iterations": 2.5}, "iterations must be an integer"),
        ({"trials": 0}, "trials must be at least 1"),
        ({"steps": "constant"}, "steps must be a ConstantStep"),
        ({"steps": [0.1]}, "steps must be a ConstantStep"),
        ({"steps": []}, "sigma and steps must be of one length"),
        ({"start": ([0.0], [0.0])}, "start must hold two vectors of 2 entries"),
        ({"start": np.zeros(4)}, "start must be a pair"),
        ({"start": ([0.0, np.nan], [0.0, 0.0])}, "start holds NaN"),
        ({"at": [4]}, "at must be increasing iterations in 1 .. 3"),
        ({"at": [2, 1]}, "at must be increasing"),
        ({"at": [0]}, "at must be at least 1"),
        ({"at": 5}, "at must be a sequence"),
        ({"at": "5"}, "at must be a sequence"),
        ({"steps": 0.1}, "steps must be a ConstantStep"),
        ({"iterations": 10**12}, "iterations must be at most 2147483647"),
        ({"clip": 1e251}, "in double precision clip"),
        ({"clip": 1e-251}, "in double precision clip"),
        ({"sigma": 1e-260}, "in double precision clip"),
        ({"clip": 1e26, "precision": "single"}, "in single precision clip"),
        ({"steps": ConstantStep(1e30), "precision": "single"}, r"iterates up to 5\.1e\+31"),
        ({"start": ([1e300, 0.0], [0.0, 0.0])}, r"iterates up to 1e\+300"),
        ({"precision": "half"}, "precision must be 'double' or 'single'"),
        ({"workers": 0}, "workers must be at least 1"),
    ],
)
def test_bad_input(change, message):
    with pytest.raises((ValueError, TypeError), match=message):
        runs(bidiagonal(2), **{**GOOD, **change})


def test_the_generator_decides_and_a_second_call_has_numbers_of_its_own():
    data, descent = bidiagonal(2), Descent(STEPS[0], clip=1.0, iterations=5)
    rng = np.random.default_rng(3)
    first, second = (gpope_runs_not_private(data, descent, 1.0, rng) for _ in range(2))
    again = runs(data, 1.0, 3, steps=STEPS[0], clip=1.0, iterations=5)
    np.testing.assert_array_equal(first.theta, again.theta)
    assert abs(first.theta - second.theta).min() > 1e-6
    with pytest.raises(TypeError, match=r"rng must be a numpy\.random\.Generator"):
        gpope_runs_not_private(data, descent, 1.0, 3)


def test_bad_data():
    with pytest.raises(ValueError, match="at least one feature"):
        runs(Statistics(np.zeros((3, 0, 0)), np.zeros((3, 0)), np.zeros((3, 0, 0))), **GOOD)
    with pytest.raises(TypeError, match="statistics must be a Statistics"):
        runs(np.zeros((3, 2, 2)), **GOOD)
    with pytest.raises(TypeError, match="statistics must be a Statistics"):
        runs(lambda trial: None, **GOOD)
    with pytest.raises(ValueError, match="of trial 1 are"):
        runs(lambda trial: bidiagonal(2, m=20 + trial), **GOOD, trials=2)
    with pytest.raises(ValueError, match="a holds NaN"):
        Statistics([[[np.nan]]], [[0.0]], [[[0.0]]])


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: ConstantStep(0.0), "eta must be positive"),
        (lambda: ConstantStep(1.0, -0.5), "k must not be negative"),
        (lambda: DiminishingStep(-1.0), "eta must be positive"),
        (lambda: DiminishingStep(1.0, -1.0), "offset must not be negative"),
        (lambda: DiminishingStep(float("inf")), "eta must be finite"),
    ],
)
def test_bad_steps(build, message):
    with pytest.raises(ValueError, match=message):
        build()


@pytest.mark.parametrize(
    ("epsilon", "delta", "message"),
    [
        (0.0, 1e-5, "epsilon must be positive"),
        (-1.0, 1e-5, "epsilon must be positive"),
        (1.0, 0.0, "delta"),
        (1.0, 0.9, "choose delta well below 1/20"),
    ],
)
def test_bad_promise(epsilon, delta, message):
    given = {k: v for k, v in GOOD.items() if k not in ("sigma", "seed")}
    with pytest.raises(ValueError, match=message):
        release_of(bidiagonal(2), secret(), (epsilon, delta), **given)
