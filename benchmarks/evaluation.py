"""General trajectories: speed beside a compiled pass, and how time and memory grow.

Usage: python benchmarks/evaluation.py [--quick] [--growth] [--record]

The compiled pass is one loop over steps for Numba, as one would first write it; it is left out
where Numba is not installed (it is no part of the project: pip install numba, anywhere that
this Python finds). Both work on the same trajectories in turns, in this process, and agree.
--growth measures instead how the cost grows with trajectories m, states N and features d, each
row with its time and its peak of memory. --record keeps the tables in data/results/laptop.
The exit status is 1 if a stated limit is exceeded; --quick only reports.
"""

from __future__ import annotations

import argparse
import random
import sys
from collections.abc import Callable, Iterator
from dataclasses import asdict
from typing import Any

import naive
import numpy as np
import pandas as pd
from run import Row, fresh, measure, report
from scipy import sparse

from companion import records
from dprl.evaluation import lsl, lsw
from dprl.features import aggregation
from dprl.mdp import Chain, MarkovRewardProcess
from dprl.private_evaluation import LSL, LSW, dp_lsl, dp_lsw
from dprl.trajectories import (
    Batch,
    VisitStatistics,
    chain_visit_statistics,
    first_visit_returns,
    simulate,
    simulate_visit_statistics,
    visit_statistics,
)

try:
    from numba import njit
except ModuleNotFoundError:
    njit = None

GAMMA, RANGE = 0.99, (0.0, 1.0)
PASS = "one compiled pass (Numba)"


def compiled() -> tuple[Callable[..., Any], Callable[..., Any]]:
    """The loops: first visits, clipping and sums; and a simulation."""

    @njit
    def statistics(states, rewards, lengths, n, gamma, low, high):
        counts, sums = np.zeros(n, np.int64), np.zeros(n)
        first, seen = np.zeros(n), np.full(n, -1)
        stop = 0
        for x in range(lengths.size):
            begin = stop
            stop = begin + lengths[x]
            following = 0.0
            for t in range(stop - 1, begin - 1, -1):
                following = rewards[t] + gamma * following
                first[states[t]] = following
            for t in range(begin, stop):
                s = states[t]
                if seen[s] != x:
                    seen[s] = x
                    counts[s] += 1
                    sums[s] += min(max(first[s], low), high)
        return counts, sums / np.maximum(counts, 1)

    @njit
    def steps(to, cumulative, paid, terminal, start, rng, states, rewards, lengths):
        t = 0
        for x in range(lengths.size):
            s, begin = np.searchsorted(start, rng.random(), side="right"), t
            while not terminal[s]:
                u, branch = rng.random(), 0
                while u >= cumulative[s, branch]:
                    branch += 1
                s2 = to[s, branch]
                states[t], rewards[t] = s, paid[s, s2]
                t, s = t + 1, s2
            lengths[x] = t - begin
        return t

    def walk(m, rng, most, *process):
        # NumPy's memory comes in large pages, that of Numba does not
        states, rewards, lengths = np.empty(most, np.int64), np.empty(most), np.empty(m, np.int64)
        t = steps(*process, rng, states, rewards, lengths)
        return states[:t], rewards[:t], lengths

    return statistics, walk


def beside_a_compiled_pass(repeats: int) -> Iterator[Row]:
    """Chain of 40 states, m = 1e5."""
    one_pass, walk = compiled()
    m = 100_000
    for start in ("uniform", "first"):
        chain = Chain(start=start)
        process, batch = chain.process, simulate(chain, m, fresh())
        task = (batch.states, batch.rewards, batch.lengths, batch.n_states, GAMMA, *RANGE)
        data, (counts, means) = visit_statistics(batch, GAMMA, RANGE), one_pass(*task)
        np.testing.assert_array_equal(data.counts, counts)
        np.testing.assert_allclose(data.mean_returns, means, rtol=1e-12)
        yield measure(
            f"visit_statistics, m = {m:.0e}, {start}",
            lambda batch=batch: visit_statistics(batch, GAMMA, RANGE),
            repeats,
            PASS,
            lambda task=task: one_pass(*task),
            limit=1.3,
        )
        starts = np.append(np.cumsum(process.start)[:-1], np.inf)
        s = np.arange(41)
        to = np.stack([s, np.minimum(s + 1, 40)], axis=1)
        cumulative = np.where(to > s[:, None], np.inf, chain.stay)
        given = (to, cumulative, process.reward, process.terminal, starts)
        most = batch.states.size * 11 // 10
        states, _, lengths = walk(m, fresh(), most, *given)
        assert abs(states.size / batch.states.size - 1) < 0.02
        assert lengths.size == m
        yield measure(
            f"simulate, m = {m:.0e}, {start}",
            lambda chain=chain: simulate(chain, m, fresh()),
            repeats,
            PASS,
            lambda given=given, most=most: walk(m, fresh(), most, *given),
            limit=2.0,
        )
        yield measure(
            f"simulate_visit_statistics, m = {m:.0e}, {start}",
            lambda chain=chain: simulate_visit_statistics(chain, m, fresh(), bounds=RANGE),
            repeats,
            "both compiled passes",
            lambda given=given, most=most: one_pass(
                *walk(m, fresh(), most, *given), 41, GAMMA, *RANGE
            ),
        )


def private_from_trajectories(repeats: int) -> Iterator[Row]:
    """DP-LSW and DP-LSL from trajectories, and what of them does not depend on m."""
    m, weights, rng = 10_000, np.ones(40), fresh()
    lists = naive.simulate_chain(Chain(start="uniform"), m, random.Random(1))
    batch = Batch.from_lists(lists, 40)
    one, other = (LSW(np.eye(40), weights, f_max=1), LSL(np.eye(40), weights, 100.0, f_max=1))
    promise = {"epsilon": 0.1, "delta": 0.1, "rng": rng}

    def both(data: VisitStatistics) -> None:
        dp_lsw(data, one, **promise)
        dp_lsl(data, other, **promise)

    def as_written() -> None:
        returns = np.array(naive.first_visit_returns(lists, GAMMA, 40))
        data = first_visit_returns(batch, GAMMA).visit_counts
        assert returns.shape == (m, 40)
        naive.psi_lsw(data, weights, 6e-4)
        naive.psi_lsl(data, weights, m, 0.07, 6e-4)

    yield measure(
        f"DP-LSW + DP-LSL from trajectories, m = {m:.0e}",
        lambda: both(visit_statistics(batch, GAMMA, RANGE)),
        repeats,
        "section 3.2.1 as written, every k",
        as_written,
    )
    data = chain_visit_statistics(Chain(), 100_000, fresh(), bounds=RANGE)
    yield measure("DP-LSW + DP-LSL from statistics, N = d = 40", lambda: both(data), 30 * repeats)


# -- growth ---------------------------------------------------------------------------------


def ring(n: int) -> MarkovRewardProcess:
    """One step left, none or one right on a ring of n states; 50 steps in the mean, then the end.

    Every transition inside pays 1/100. Sparse: four transitions from each state.
    """
    s = np.arange(n)
    to = np.concatenate([(s - 1) % n, s, (s + 1) % n, np.full(n, n), [n]])
    p = np.concatenate([np.full(n, x) for x in (0.25, 0.24, 0.49, 0.02)] + [np.ones(1)])
    index = (np.concatenate([s, s, s, s, [n]]), to)
    transition = sparse.coo_array((p, index), shape=(n + 1, n + 1))
    inside = np.append(to[:-1] < n, False)
    reward = sparse.coo_array((np.where(inside, 0.01, 0.0), index), shape=(n + 1, n + 1))
    return MarkovRewardProcess(transition, reward, GAMMA, np.append(np.full(n, 1 / n), 0.0))


def growth(quick: bool) -> Iterator[dict[str, Any]]:
    """One row for each subject and size: seconds, MiB, and the work in the subject's unit."""

    def row(subject: str, grows: str, size: int, work: float, call: Callable[[], Any]) -> Any:
        seen = measure(subject, call, 1 if work > 2e7 else 5)
        print(f"{subject:<36}{grows} = {size:<10.0e}{seen.seconds:10.4f} s", file=sys.stderr)
        return {
            "subject": subject,
            "grows": grows,
            "size": size,
            "seconds": seen.seconds,
            "peak_mib": seen.peak_mib,
            "work": work,
        }

    chain, last = Chain(start="uniform"), 5 if quick else 7
    for m in (10**e for e in range(3, last + 1)):
        steps = 41.0 * m
        if m <= 10**6:
            yield row("simulate", "m", m, steps, lambda m=m: simulate(chain, m, fresh()))
            batch = simulate(chain, m, fresh())
            yield row(
                "visit_statistics",
                "m",
                m,
                steps,
                lambda batch=batch: visit_statistics(batch, GAMMA, RANGE),
            )
            del batch
        yield row(
            "simulate_visit_statistics",
            "m",
            m,
            steps,
            lambda m=m: simulate_visit_statistics(chain, m, fresh(), bounds=RANGE),
        )
    m = 20_000
    for n in (10, 100, 1_000, 10_000):
        process = ring(n)
        batch = simulate(process, m, fresh())
        steps = float(batch.states.size)
        yield row("simulate", "N", n, steps, lambda p=process: simulate(p, m, fresh()))
        yield row(
            "visit_statistics",
            "N",
            n,
            steps,
            lambda batch=batch: visit_statistics(batch, GAMMA, RANGE),
        )
        edges = float(process.edges.source.size)
        yield row("values of a sparse process", "N", n, edges, lambda n=n: ring(n).values())
        yield row(
            "visit probabilities, sparse", "N", n, edges, lambda n=n: ring(n).visit_probabilities()
        )
    n = 1_000
    counts = np.arange(1, n + 1)
    data = VisitStatistics(counts, np.linspace(0, 1, n), n, RANGE)
    for d in (10, 100, 1_000):
        phi, weights = aggregation(n, n // d), np.ones(n)
        lsl_task = (data, phi, weights, 10.0)
        work = float(n * d * d)
        yield row("LSW, N = 1,000", "d", d, work, lambda t=lsl_task: lsw(*t[:3]))
        yield row("LSL, N = 1,000", "d", d, work, lambda t=lsl_task: lsl(*t))


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--quick", action="store_true", help="fewer runs, no verdict")
    parser.add_argument("--growth", action="store_true", help="how time and memory grow")
    parser.add_argument("--record", action="store_true", help="keep the table")
    options = parser.parse_args(arguments)
    if options.growth:
        table = pd.DataFrame(growth(options.quick))
        print(table.to_string(index=False))
    else:
        repeats = 3 if options.quick else 15
        rows = list(beside_a_compiled_pass(repeats)) if njit is not None else []
        rows += private_from_trajectories(min(repeats, 5))
        print(report(rows))
        if njit is None:
            print("left out, no Numba: everything beside a compiled pass", file=sys.stderr)
        table = pd.DataFrame([{**asdict(row), "multiple": row.multiple} for row in rows])
        table["limit"] = table["limit"].fillna(0.0)  # 0: no limit
    if options.record:
        if options.quick or (njit is None and not options.growth):
            parser.error("--record keeps the whole table: no --quick, and Numba is needed")
        name = "growth" if options.growth else "speed"
        line = f"python benchmarks/evaluation.py{' --growth' if options.growth else ''} --record"
        records.keep(
            f"{name}-evaluation",
            table,
            records.Command(line, "laptop", device="cpu"),
            seed=None,
            parameters={"gamma": GAMMA, "range": list(RANGE)},
        )
    if options.growth:
        return 0
    return int(not options.quick and any(row.exceeded for row in rows))


if __name__ == "__main__":
    sys.exit(main())
