"""Speed and memory of what the book computes most, beside a naive reference in the same run.

Usage: python benchmarks/run.py [--quick] [--output FILE]

Times are the best of several runs, the reference taking turns with the subject, so
that a busy machine disturbs both alike; only ratios mean something from one machine
to another. Peak memory is that of one further run under tracemalloc. Every subject
that has a reference is first compared with it. Nothing is written but FILE (JSON).
The exit status is 1 if a stated limit is exceeded; --quick only reports.
"""

from __future__ import annotations

import argparse
import json
import platform
import random
import sys
import time
import tracemalloc
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import naive
import numpy as np
import scipy

from dprl import __version__, stopping
from dprl.bandits import bernoulli_arms, thompson_sampling
from dprl.bounds.binomial_visits import expected_smooth_term
from dprl.mdp import Chain
from dprl.privacy import GaussianSmoothing
from dprl.private_evaluation import (
    LSL,
    LSW,
    Draws,
    base_promise,
    draw_subsamples,
    lsl_smooth_bound,
    lsw_smooth_bound,
    subsample_and_average_diagnostics,
)
from dprl.trajectories import (
    Batch,
    chain_first_visit_returns,
    chain_visit_statistics,
    first_visit_returns,
    simulate,
)

SEED = 20160619
Call = Callable[[], Any]


@dataclass(frozen=True)
class Row:
    """One line of the table."""

    subject: str
    seconds: float
    peak_mib: float
    reference: str = ""
    reference_seconds: float | None = None
    limit: float | None = None  # seconds may be at most this multiple of reference_seconds

    @property
    def multiple(self) -> float | None:
        """The subject's time in units of the reference's."""
        return None if self.reference_seconds is None else self.seconds / self.reference_seconds

    @property
    def exceeded(self) -> bool:
        return self.limit is not None and self.multiple is not None and self.multiple > self.limit


def clock(call: Call) -> float:
    begin = time.perf_counter()
    call()
    return time.perf_counter() - begin


def peak_mib(call: Call) -> float:
    tracemalloc.start()
    try:
        call()
        return tracemalloc.get_traced_memory()[1] / 2**20
    finally:
        tracemalloc.stop()


def measure(
    subject: str,
    call: Call,
    repeats: int,
    reference: str = "",
    other: Call | None = None,
    limit: float | None = None,
) -> Row:
    """Best times of both calls, in turns, and the peak memory of the subject."""
    call()  # caches and lazy imports
    best, best_other = np.inf, np.inf
    for _ in range(repeats):
        best = min(best, clock(call))
        if other is not None:
            best_other = min(best_other, clock(other))
    seconds = None if other is None else float(best_other)
    return Row(subject, float(best), peak_mib(call), reference, seconds, limit)


def fresh() -> np.random.Generator:
    return np.random.default_rng(SEED)


def fast_chain(repeats: int) -> list[Row]:
    """(a) 1e5 first-visit returns in at most three times the time of their random numbers."""
    m, rows = 100_000, []
    for start in ("first", "uniform"):
        chain = Chain(start=start)
        rows.append(
            measure(
                f"chain_first_visit_returns, m = {m:.0e}, {start}",
                lambda chain=chain: chain_first_visit_returns(chain, m, fresh()),
                repeats,
                "rng.geometric of the same shape",
                lambda chain=chain: fresh().geometric(1 - chain.stay, size=(chain.n_states, m)),
                limit=3.0,
            )
        )
    return rows


def general_simulation(repeats: int) -> list[Row]:
    """(b) any finite process, against loops over trajectories and steps."""
    m, chain = 2_000, Chain(start="first")
    lists = naive.simulate_chain(chain, m, random.Random(SEED))
    batch = Batch.from_lists(lists, chain.n_states)
    task = (lists, chain.discount, chain.n_states)
    returns = first_visit_returns(batch, chain.discount).returns
    np.testing.assert_allclose(returns, naive.first_visit_returns(*task))
    np.testing.assert_allclose(returns, naive.first_visit_returns_one_pass(*task))
    return [
        measure(
            f"first_visit_returns, m = {m}, same trajectories",
            lambda: first_visit_returns(batch, chain.discount),
            repeats,
            "section 3.2.1 as written, a sum for each state",
            partial(naive.first_visit_returns, *task),
        ),
        measure(
            f"first_visit_returns, m = {m}, same trajectories",
            lambda: first_visit_returns(batch, chain.discount),
            repeats,
            "one backward pass for each trajectory",
            partial(naive.first_visit_returns_one_pass, *task),
        ),
        measure(
            f"simulate + first_visit_returns, m = {m}",
            lambda: first_visit_returns(simulate(chain, m, fresh()), chain.discount),
            repeats,
            "loops, section 3.2.1 as written",
            lambda: naive.first_visit_returns(
                naive.simulate_chain(chain, m, random.Random(SEED)),
                chain.discount,
                chain.n_states,
            ),
        ),
    ]


def batch_of_any_size(repeats: int, largest: int) -> list[Row]:
    """(c) counts and averages without trajectories: the same time for every m."""
    chain = Chain(start="uniform")
    return [
        measure(
            f"chain_visit_statistics, m = {m:.0e}",
            lambda m=m: chain_visit_statistics(chain, m, fresh()),
            repeats,
            "the same at m = 1e+03",
            lambda: chain_visit_statistics(chain, 1_000, fresh()),
        )
        for m in (10**e for e in range(3, largest + 1))
    ]


def smooth_bounds(repeats: int, largest: int) -> list[Row]:
    """(d) psi of both algorithms, N = 40, uniform starts, epsilon = delta = 0.1."""
    weights, beta = np.ones(40), GaussianSmoothing(0.1, 0.1, 40).beta
    rows = []
    for m in (10**3, 10**largest):
        counts = np.arange(1, 41) * m // 40
        coefficient = 1 / np.sqrt(2 * np.sqrt(m))  # tabular, rho = 1, lambda = sqrt(m)
        lsw = (counts, weights, beta)
        lsl = (counts, weights, m, coefficient, beta)
        for name, fast, slow in (
            ("DP-LSW", partial(lsw_smooth_bound, *lsw), partial(naive.psi_lsw, *lsw)),
            ("DP-LSL", partial(lsl_smooth_bound, *lsl), partial(naive.psi_lsl, *lsl)),
        ):
            np.testing.assert_allclose(fast()[0], slow(), rtol=1e-12)
            reference = "every k, as printed, O(K N), in NumPy"
            rows.append(measure(f"psi of {name}, m = {m:.0e}", fast, repeats, reference, slow))
    return rows


def penalties(repeats: int) -> list[Row]:
    """Rademacher sums of thresholds for every sample size up to n."""
    rng, n = fresh(), 2_000
    points, signs = rng.random(n), stopping.fair_signs(n, rng)

    def one_sort_each() -> list[int]:
        return [stopping.threshold_penalty(points[:i], signs[:i]) for i in range(1, n + 1)]

    loop = partial(naive.threshold_sums, points.tolist(), signs.tolist())
    path = stopping.threshold_sums(points, signs)
    np.testing.assert_array_equal(path, one_sort_each())
    np.testing.assert_array_equal(path, loop())
    subject = f"threshold_sums, n = {n}, all sample sizes"
    fast = partial(stopping.threshold_sums, points, signs)
    return [
        measure(subject, fast, repeats, "one sort for each size, in NumPy", one_sort_each),
        measure(subject, fast, repeats, "a loop over sizes and thresholds", loop),
        measure(
            "threshold_sums, n = 1e+05", partial(stopping.threshold_sums, *_long(100_000)), repeats
        ),
    ]


def _long(n: int) -> tuple[np.ndarray, np.ndarray]:
    rng = fresh()
    return rng.random(n), stopping.fair_signs(n, rng)


def exact_expectations(repeats: int, largest: int) -> list[Row]:
    """(e) binomial means of the utility bounds: only counts that have a probability."""
    beta, rows = GaussianSmoothing(0.1, 0.1, 40).beta, []
    for m in (10**3, 10**largest):
        args = (m, 0.5, beta)
        np.testing.assert_allclose(
            expected_smooth_term(*args), naive.expected_smooth_term(*args), rtol=1e-9
        )
        rows.append(
            measure(
                f"expected_smooth_term, m = {m:.0e}",
                partial(expected_smooth_term, *args),
                repeats,
                "every count from 0 to m, in NumPy",
                partial(naive.expected_smooth_term, *args),
            )
        )
    return rows


def bandits(repeats: int) -> list[Row]:
    """(f) Thompson sampling, all runs at once."""
    means, horizon, n_runs = [0.9, 0.8, 0.5, 0.5, 0.1], 200, 200
    arms = bernoulli_arms(means)
    fast, slow = (
        np.mean(plays, axis=0)
        for plays in (
            thompson_sampling(arms, horizon, 2_000, fresh(), times=[horizon]).plays[:, -1],
            naive.thompson_sampling(means, horizon, 400, random.Random(SEED)),
        )
    )
    np.testing.assert_allclose(fast, slow, atol=15)  # plays of 200; more than four standard errors
    return [
        measure(
            f"thompson_sampling, 5 arms, T = {horizon}, {n_runs} runs",
            lambda: thompson_sampling(arms, horizon, n_runs, fresh(), times=[horizon]),
            repeats,
            "a loop over runs and steps",
            lambda: naive.thompson_sampling(means, horizon, n_runs, random.Random(SEED)),
        )
    ]


def averages_of_sub_samples(repeats: int, largest: int) -> list[Row]:
    """(g) all sub-samples at once, against one base run for each: times and peak memory."""
    n, rows = 10**largest, []
    data = chain_first_visit_returns(Chain(start="uniform"), n, fresh())
    task = (np.eye(40), np.ones(40))
    for m, k in ((1024, 32), (64, n // 3)):
        base = base_promise(0.1, 0.1, n, m, k)
        promise = {"f_max": 1.0, "epsilon": base.epsilon, "delta": base.delta}
        for name, ridge in (("DP-LSW", None), ("DP-LSL", 10.0)):

            def fast(m: int = m, k: int = k, ridge: float | None = ridge) -> Any:
                one = LSW(*task, f_max=1) if ridge is None else LSL(*task, ridge, f_max=1)
                whole = {"epsilon": 0.1, "delta": 0.1, "rng": fresh()}
                return subsample_and_average_diagnostics(data, one, Draws(m, k), **whole)

            def slow(
                index_sets: Any = None,
                m: int = m,
                k: int = k,
                ridge: float | None = ridge,
                promise: dict[str, float] = promise,
            ) -> Any:
                rng = fresh()
                drawn = (rng.choice(n, k, replace=False, shuffle=False) for _ in range(m))
                sets = drawn if index_sets is None else index_sets
                return naive.subsample_and_average(data, sets, *task, ridge=ridge, **promise)

            mean, noise = slow(draw_subsamples(n, m, k, fresh()))
            np.testing.assert_allclose(fast().mean, mean, rtol=1e-9)
            np.testing.assert_allclose(fast().noise, noise, rtol=1e-9)
            subject = f"{m} sub-samples of {k}, n = {n:.0e}, {name}"
            reference = f"one base run each, peak {peak_mib(slow):.0f} MiB"
            rows.append(measure(subject, fast, repeats, reference, slow))
    return rows


def report(rows: list[Row]) -> str:
    """The table; a subject faster than its reference reads '12.3x faster'."""
    lines = []
    for row in rows:
        text = ""
        if row.multiple is not None:
            slower = row.limit is not None or row.multiple >= 1
            text = f"{row.multiple:.2f}x" if slower else f"{1 / row.multiple:.1f}x faster"
        if row.limit is not None:
            text += f" (limit {row.limit:g}x{', EXCEEDED' if row.exceeded else ''})"
        reference = "" if row.reference_seconds is None else f"{1e3 * row.reference_seconds:.2f}"
        lines.append(
            f"{row.subject:<52}{1e3 * row.seconds:>10.2f}{row.peak_mib:>11.2f}"
            f"{reference:>14}  {text:<20}{row.reference}"
        )
    head = f"{'subject':<52}{'ms':>10}{'peak MiB':>11}{'reference ms':>14}  {'ratio':<20}reference"
    return "\n".join([head, "-" * len(head), *lines])


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument(
        "--quick", action="store_true", help="fewer runs, smaller batches, no verdict"
    )
    parser.add_argument("--output", type=Path, metavar="FILE", help="also write the table as JSON")
    options = parser.parse_args(arguments)
    repeats, statistics_e, psi_e = (3, 5, 5) if options.quick else (9, 7, 6)
    rows = [
        *fast_chain(repeats),
        *general_simulation(repeats),
        *batch_of_any_size(repeats, statistics_e),
        *penalties(repeats),
        *smooth_bounds(repeats, psi_e),
        *exact_expectations(repeats, psi_e),
        *bandits(repeats),
        *averages_of_sub_samples(min(repeats, 3), 4 if options.quick else 5),
    ]
    print(report(rows))
    if options.output is not None:
        record = {
            "versions": {
                "dprl": __version__,
                "python": platform.python_version(),
                "numpy": np.__version__,
                "scipy": scipy.__version__,
            },
            "quick": options.quick,
            "rows": [{**asdict(row), "multiple": row.multiple} for row in rows],
        }
        options.output.write_text(json.dumps(record, indent=2) + "\n", encoding="utf-8")
    return int(not options.quick and any(row.exceeded for row in rows))


if __name__ == "__main__":
    sys.exit(main())
