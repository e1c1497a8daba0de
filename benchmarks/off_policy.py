"""Speed of private off-policy evaluation beside a plain loop in the same run.

Usage: python benchmarks/off_policy.py [--quick] [--output FILE]

The reference is Algorithm 1 as one would first write it: Python loops over trials, settings and
iterations, NumPy vectors inside. Both use the same random numbers and are compared first. What
is measured are iterations per second, one iteration being one step of one setting in one trial;
the two take turns, and the best of several turns counts. The compiled loop uses as many threads
as JAX takes, the reference one. The exit status is 1 if the stated ratio is not reached; --quick
only reports.
"""

from __future__ import annotations

import argparse
import itertools
import json
import platform
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path

import jax
import numpy as np

from dprl import __version__
from dprl.off_policy.saddle_point import BidiagonalStatistics, Statistics
from dprl.private_evaluation.gpope import ConstantStep, Descent, gpope_runs_not_private

SEED = 20190611
ETAS = tuple(np.geomspace(0.03, 30, 13))
TRIALS = 100


@dataclass(frozen=True)
class Row:
    """One line of the table; rates in iterations per second."""

    subject: str
    rate: float
    reference_rate: float
    limit: float | None

    @property
    def ratio(self) -> float:
        return self.rate / self.reference_rate

    @property
    def missed(self) -> bool:
        return self.limit is not None and self.ratio < self.limit


def draws_and_noise(m: int, n: int, iterations: int, trial: int) -> tuple[np.ndarray, np.ndarray]:
    """The random numbers of one trial: it shares two streams with the seven beside it."""
    draws, normals = (
        np.random.Generator(np.random.SFC64(s))
        for s in np.random.SeedSequence(SEED, spawn_key=(trial // 8,)).spawn(2)
    )
    drawn = draws.integers(m, size=(iterations, 8))[:, trial % 8]
    noise = normals.standard_normal((iterations, 8, 2 * n), dtype=np.float32)[:, trial % 8]
    return drawn, noise


def plain(
    data: Statistics, sigma: float, clip: float, beta: float, drawn: np.ndarray, noise: np.ndarray
) -> np.ndarray:
    """Algorithm 1 for one setting and one trial."""
    n = data.n_features
    theta, w = np.zeros(n), np.zeros(n)
    for k, zeta in zip(drawn, noise, strict=True):
        a, b, c = data.a[k], data.b[k], data.c[k]
        gradient = np.concatenate([-a.T @ w, a @ theta + c @ w - b])
        gradient = gradient / max(1.0, np.linalg.norm(gradient) / clip) + clip * sigma * zeta
        theta = theta - beta * gradient[:n]
        w = w - beta * gradient[n:]
    return np.concatenate([theta, w])


def compare(
    subject: str,
    data: Statistics | BidiagonalStatistics,
    sigmas: tuple[float, ...],
    etas: tuple[float, ...],
    iterations: int,
    repeats: int,
    limit: float | None,
) -> Row:
    grid = list(itertools.product(sigmas, etas))
    full = data.dense() if isinstance(data, BidiagonalStatistics) else data
    m, n, clip = data.n_trajectories, data.n_features, 1.0

    def fast(count: int, precision: str = "single") -> np.ndarray:
        end = gpope_runs_not_private(
            data,
            Descent(
                [ConstantStep(e, 0.5) for _, e in grid],
                clip=clip,
                iterations=count,
                precision=precision,
            ),
            [s for s, _ in grid],
            np.random.default_rng(SEED),
            trials=TRIALS,
        )
        return np.concatenate([end.theta, end.w], axis=-1)

    def slow(count: int, setting: int, trial: int) -> np.ndarray:
        drawn, noise = draws_and_noise(m, n, count, trial)
        sigma, eta = grid[setting]
        return plain(full, sigma, clip, eta / count**0.5, drawn, noise)

    some = 300
    ends = fast(some, "double")
    for setting, trial in ((0, 0), (len(grid) - 1, TRIALS - 1)):
        np.testing.assert_allclose(ends[setting, trial], slow(some, setting, trial), rtol=1e-6)
    fast(iterations)  # compiles
    best, best_other = np.inf, np.inf
    for _ in range(repeats):
        begin = time.perf_counter()
        fast(iterations)
        best = min(best, time.perf_counter() - begin)
        begin = time.perf_counter()
        slow(3_000, 0, 0)
        best_other = min(best_other, time.perf_counter() - begin)
    rate = iterations * len(grid) * TRIALS / best
    return Row(subject, rate, 3_000 / best_other, limit)


def chain(m: int, n: int) -> BidiagonalStatistics:
    """Numbers of the size that the 40-state chain gives."""
    rng = np.random.default_rng(SEED)
    stays = rng.geometric(0.5, size=(m, n)).astype(np.float32)
    ends = np.zeros((m, n), np.float32)
    ends[:, -1] = 1
    return BidiagonalStatistics(stays - 0.99 * (stays - 1), -0.99 + 0 * stays[:, 1:], ends, stays)


def table(repeats: int, scale: int) -> list[Row]:
    small = chain(2_000, 40)
    rng = np.random.default_rng(SEED)
    a, b = rng.normal(size=(500, 36, 36)), rng.normal(size=(500, 36))
    full = Statistics(*(x.astype(np.float32) for x in (a, b, a @ a.swapaxes(1, 2) / 36)))
    steps = f"{TRIALS} trials"
    return [
        compare(
            f"bidiagonal, n = 40, {steps}, 26 settings", small, (1, 2), ETAS, scale, repeats, 50
        ),
        compare(
            f"bidiagonal, n = 40, {steps}, 13 settings", small, (1,), ETAS, scale, repeats, None
        ),
        compare(
            f"bidiagonal, n = 40, {steps}, 3 settings",
            small,
            (1,),
            ETAS[:3],
            4 * scale,
            repeats,
            None,
        ),
        compare(
            f"dense, n = 36, {steps}, 26 settings", full, (1, 2), ETAS, scale // 4, repeats, 50
        ),
        compare(
            f"dense, n = 36, {steps}, 13 settings", full, (1,), ETAS, scale // 4, repeats, None
        ),
    ]


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--quick", action="store_true", help="shorter runs, no verdict")
    parser.add_argument("--output", type=Path, metavar="FILE", help="also write the table as JSON")
    options = parser.parse_args(arguments)
    rows = table(3, 500) if options.quick else table(5, 2_000)
    print(f"{'subject':<46}{'per second':>12}{'reference':>12}{'ratio':>8}")
    for row in rows:
        verdict = "" if row.limit is None else f"  (at least {row.limit:g})"
        print(
            f"{row.subject:<46}{row.rate:>12.3g}{row.reference_rate:>12.3g}"
            f"{row.ratio:>8.0f}{verdict}"
        )
    if options.output is not None:
        record = {
            "versions": {
                "dprl": __version__,
                "python": platform.python_version(),
                "numpy": np.__version__,
                "jax": jax.__version__,
            },
            "quick": options.quick,
            "rows": [{**asdict(row), "ratio": row.ratio} for row in rows],
        }
        options.output.write_text(json.dumps(record, indent=2) + "\n", encoding="utf-8")
    return int(not options.quick and any(row.missed for row in rows))


if __name__ == "__main__":
    sys.exit(main())
