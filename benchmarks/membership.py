"""Speed of the learners and environments of chapter 5, beside their peers in the same run.

Usage: python benchmarks/membership.py [--quick] [--peers PYTHON] [--output FILE] [--record]

Units are agent-updates (agents times updates) or environment steps a second. Subject and
peer are two processes that take turns in short blocks, one waiting while the other works, so
that a busy machine disturbs both alike; each number is the best of its blocks, and only
ratios mean something from one machine to another. "by cpu" is the ratio of units per second
of processor time, summed over threads: other programs hardly change it, but it does not see
that a subject keeps two cores busy and its peer one. The peers run in an environment of
their own (peers.txt says how to make it); without --peers, what needs them is left out.
A peer is measured with one thread and with as many as there are cores, and the better counts.
Many environments at once gain from the cores, since their physics is the same code as
gymnasium's: the rows "gymnasium on each core" say how much there is to gain on this machine.
The exit status is 1 if a ratio falls short of its limit; --quick only reports.

Equal settings: widths, batch size, learning rates, one environment step for each update of
DDPG, and as many proposals in the targets of BCQ. Not equal: dprl's agents learn together,
the peers know one agent at a time.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from turns import Turns, Worker, blocks_together

from companion import records

AGENTS = 8
ENVIRONMENTS = 32
T_MAX = 100
CHUNK = 50
GYMNASIUM = "one gymnasium environment"


@dataclass(frozen=True)
class Pair:
    """A subject, its peer, and how many times faster the subject must be."""

    title: str
    subject: tuple[str, dict[str, Any]]
    peer: tuple[str, dict[str, Any]]
    peer_name: str
    at_least: float | None = None


@dataclass(frozen=True)
class Row:
    """One line of the table; rates in units a second."""

    title: str
    rate: float
    peer: str
    peer_rate: float
    cpu_ratio: float  # of units per second of processor time
    at_least: float | None

    @property
    def ratio(self) -> float:
        return self.rate / self.peer_rate

    @property
    def missed(self) -> bool:
        return self.at_least is not None and self.ratio < self.at_least


# -- what a subject does in its own process -------------------------------------------------


def steps(given: dict[str, Any]) -> None:
    """Steps of many environments with random actions."""
    from dprl.agents import environments

    rng, name, n = np.random.default_rng(0), given["environment"], given["count"]
    parallel = environments.ParallelEnvironments(name, n, t_max=1_000)
    starts = environments.draw_initial_states(name, 64 * n, rng)
    actions = rng.uniform(-1, 1, (64, n, parallel.environment.action_size)).astype(np.float32)
    parallel.reset(starts[:n])
    turns = Turns(given["seconds"])
    while True:
        for action in actions:
            over = parallel.step(action).finished
            if over.any():
                parallel.reset_where(over, starts[: over.sum()])
        turns(len(actions) * n)


def gymnasium_steps(given: dict[str, Any]) -> None:
    """The same in gymnasium's own environment."""
    import gymnasium

    env, rng = gymnasium.make(given["environment"]), np.random.default_rng(0)
    actions = rng.uniform(-1, 1, (500, *env.action_space.shape)).astype(np.float32)
    env.reset(seed=0)
    turns = Turns(given["seconds"])
    while True:
        for action in actions:
            _, _, terminated, truncated, _ = env.step(action)
            if terminated or truncated:
                env.reset()
        turns(len(actions))


def ddpg(given: dict[str, Any]) -> None:
    """A training of a population: environment steps, each with an update for every agent."""
    from dprl.agents import ddpg_population
    from dprl.agents.environments import Task

    task, settings = Task(given["environment"], given["t_max"]), _ddpg_settings(given)
    agents, chunk = given["agents"], given["chunk"]
    # the warm-up, and the call that compiles
    training = ddpg_population.start(task, settings, range(agents))
    training = ddpg_population.train(
        training, task, settings, given["warm_up"] + chunk, chunk=chunk
    )
    turns, steps = Turns(given["seconds"], skip=1), 40 * chunk
    while True:
        training = ddpg_population.train(training, task, settings, steps, chunk=chunk)
        turns(steps * agents)


def _ddpg_settings(given: dict[str, Any]) -> Any:
    from dprl.agents.ddpg import DDPGSettings

    return DDPGSettings(
        hidden=tuple(given["hidden"]),
        batch_size=given["batch_size"],
        actor_learning_rate=given["learning_rate"],
        critic_learning_rate=given["learning_rate"],
        discount=given["discount"],
        tau=given["tau"],
        exploration_noise=given["noise"],
        warm_up=given["warm_up"],
        capacity=given["capacity"],
    )


def bcq(given: dict[str, Any]) -> None:
    """A training of a population from data."""
    from dprl.agents import bcq_population
    from dprl.agents.bcq import BCQSettings
    from dprl.agents.episodes import Transitions

    rng, n = np.random.default_rng(0), 5_000
    d_s, d_a, agents = given["observation_size"], given["action_size"], given["agents"]
    data = Transitions(
        rng.normal(size=(n, d_s)),
        rng.uniform(-1, 1, (n, d_a)),
        rng.normal(size=n),
        rng.normal(size=(n, d_s)),
        np.zeros(n, dtype=bool),
    )
    settings = BCQSettings(
        hidden=tuple(given["hidden"]),
        vae_hidden=tuple(given["vae_hidden"]),
        perturbation=given["perturbation"],
        divergence_weight=given["divergence_weight"],
        minimum_weight=given["minimum_weight"],
        learning_rate=given["learning_rate"],
        discount=given["discount"],
        target_rate=given["tau"],
        batch_size=given["batch_size"],
        candidates=given["candidates"],
    )
    training, updates = bcq_population.start(settings, d_s, d_a, range(agents)), 5 * given["chunk"]
    turns = Turns(given["seconds"])
    while True:
        training, _ = bcq_population.train(
            training, [data] * agents, settings, updates, chunk=given["chunk"]
        )
        turns(updates * agents)


WORKERS = {
    "steps": steps,
    "gymnasium": gymnasium_steps,
    "ddpg": ddpg,
    "bcq": bcq,
}


# -- the comparison -------------------------------------------------------------------------


def pairs() -> list[Pair]:
    common = {"discount": 0.99, "tau": 0.005, "learning_rate": 1e-3, "batch_size": 100}
    walking = {"environment": "Hopper-v5", "t_max": T_MAX, "noise": 0.1}
    memory = {"warm_up": 1_000, "capacity": 100_000}
    own = {"agents": AGENTS, "chunk": CHUNK}
    rows = [
        Pair(
            f"{name}, {ENVIRONMENTS} at once: steps",
            ("steps", {"environment": name, "count": ENVIRONMENTS}),
            ("gymnasium", {"environment": name}),
            GYMNASIUM,
            1.8,
        )
        for name in ("Hopper-v5", "HalfCheetah-v5")
    ]
    for hidden, least in (((64, 64), 12.0), ((400, 300), 2.0)):
        given = {**common, **walking, **memory, "hidden": hidden}
        size = "x".join(map(str, hidden))
        ours, title = {**given, **own}, f"DDPG {size}: steps, an update each"
        rows += [
            Pair(title, ("ddpg", ours), ("ddpg", given), "stable-baselines3", least),
            Pair(
                f"{title}; peer: updates only",
                ("ddpg", ours),
                ("ddpg-updates", given),
                "stable-baselines3",
            ),
        ]
    fixed = {"perturbation": 0.05, "divergence_weight": 0.5, "minimum_weight": 0.75}
    data = {"observation_size": 11, "action_size": 3, "candidates": 10}
    for hidden, vae, least in (((64, 64), (128, 128), 5.0), ((400, 300), (750, 750), 1.5)):
        given = {**common, **fixed, **data, "hidden": hidden, "vae_hidden": vae}
        size = f"{'x'.join(map(str, hidden))}, VAE {'x'.join(map(str, vae))}"
        chunk = {"agents": AGENTS, "chunk": CHUNK if vae[0] < 500 else 10}
        rows.append(
            Pair(
                f"BCQ {size}: updates", ("bcq", {**given, **chunk}), ("bcq", given), "d3rlpy", least
            )
        )
    return rows


def measure(pair: Pair, python: str, rounds: int, seconds: float) -> Row:
    """Best rates of both, in turns."""
    cores = os.cpu_count() or 1
    subject, given = pair.subject
    peer, theirs = pair.peer
    own = ["--worker", subject, json.dumps({**given, "seconds": seconds})]
    other = [peer, json.dumps({**theirs, "seconds": seconds})]
    workers = []
    try:
        workers.append(Worker(sys.executable, "membership.py", own))
        if pair.peer_name is GYMNASIUM:
            workers.append(Worker(python, "membership.py", ["--worker", *other]))
        else:
            workers.append(Worker(python, "peers.py", other))
        turns = [(0, cores), (1, 1)] + (
            [(1, cores)] if pair.peer_name is not GYMNASIUM and cores > 1 else []
        )
        blocks: dict[tuple[int, int], list[tuple[float, float]]] = {turn: [] for turn in turns}
        for _ in range(rounds):
            for who, threads in turns:
                blocks[who, threads].append(workers[who].block(threads))
    finally:
        for worker in workers:
            worker.close()
    # the best block by the clock, and the best by processor time
    best = {turn: tuple(map(max, zip(*of, strict=True))) for turn, of in blocks.items()}
    mine = best.pop(turns[0])
    fastest = max(best, key=lambda turn: best[turn][0])
    return Row(
        pair.title,
        mine[0],
        f"{pair.peer_name}, {fastest[1]} thread{'s' if fastest[1] > 1 else ''}",
        best[fastest][0],
        mine[1] / max(cpu for _, cpu in best.values()),
        pair.at_least,
    )


def ceiling(name: str, rounds: int, seconds: float) -> Row:
    """What two cores are worth here: one gymnasium environment on each against one alone."""
    cores = os.cpu_count() or 1
    given = json.dumps({"environment": name, "seconds": seconds})
    workers: list[Worker] = []
    try:
        for _ in range(cores):
            arguments = ["--worker", "gymnasium", given]
            workers.append(Worker(sys.executable, "membership.py", arguments))
        together, alone = [], []
        for _ in range(rounds):
            together.append(blocks_together(workers))
            alone.append(workers[0].block(1))
    finally:
        for worker in workers:
            worker.close()
    (mine, my_cpu), (theirs, their_cpu) = (
        tuple(map(max, zip(*of, strict=True))) for of in (together, alone)
    )
    title = f"{name}, gymnasium on each of {cores} cores: steps"
    return Row(title, mine, f"{GYMNASIUM}, 1 thread", theirs, my_cpu / their_cpu, None)


def keep(rows: list[Row]) -> None:
    """Keep the table in data/results/laptop."""
    table = pd.DataFrame([{**asdict(row), "ratio": row.ratio} for row in rows])
    table["at_least"] = table["at_least"].fillna(0.0)  # 0: no limit
    records.keep(
        "speed-membership",
        table,
        records.Command(
            "python benchmarks/membership.py --peers PYTHON --record",
            "laptop",
            libraries=["jax", "optax", "mujoco", "gymnasium"],
            device="cpu",
        ),
        seed=None,
        parameters={"agents": AGENTS, "environments": ENVIRONMENTS, "cores": os.cpu_count()},
    )


def report(rows: list[Row]) -> str:
    head = f"{'subject':<54}{'a second':>10}{'peer':>10}  {'ratio':<26}{'by cpu':>7}  peer"
    lines = [head, "-" * len(head)]
    for row in rows:
        text = f"{row.ratio:.2f}x"
        if row.at_least is not None:
            text += f" (at least {row.at_least:g}{', MISSED' if row.missed else ''})"
        lines.append(
            f"{row.title:<54}{row.rate:>10.0f}{row.peer_rate:>10.0f}  {text:<26}"
            f"{row.cpu_ratio:>6.2f}x  {row.peer}"
        )
    return "\n".join(lines)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--quick", action="store_true", help="fewer, shorter blocks; no verdict")
    parser.add_argument("--peers", metavar="PYTHON", help="interpreter with the peers")
    parser.add_argument("--only", default="", metavar="TEXT", help="subjects whose name has TEXT")
    parser.add_argument("--output", type=Path, metavar="FILE", help="also write the table as JSON")
    parser.add_argument("--record", action="store_true", help="keep it in data/results/laptop")
    parser.add_argument("--worker", nargs=2, metavar=("NAME", "JSON"), help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.worker is not None:
        WORKERS[options.worker[0]](json.loads(options.worker[1]))
        return 0
    if options.record and (options.quick or options.only or options.peers is None):
        parser.error("--record keeps the whole table: it needs --peers, and no --quick or --only")
    rounds, seconds = (2, 1.0) if options.quick else (8, 2.0)
    rows = []
    for pair in pairs():
        if options.only not in pair.title:
            continue
        python = sys.executable if pair.peer_name is GYMNASIUM else options.peers
        if python is None:
            print(f"left out, no --peers: {pair.title}", file=sys.stderr)
            continue
        rows.append(measure(pair, python, rounds, seconds))
        print(f"measured: {pair.title}", file=sys.stderr)
        if pair.peer_name is GYMNASIUM:
            rows.append(ceiling(pair.peer[1]["environment"], rounds, seconds))
    print(report(rows))
    if options.record:
        keep(rows)
    if options.output is not None:
        libraries = ("dprl", "numpy", "jax", "optax", "mujoco", "gymnasium")
        record = {
            "versions": {
                "python": platform.python_version(), **{name: version(name) for name in libraries}
            },
            "cores": os.cpu_count(),
            "quick": options.quick,
            "rows": [{**asdict(row), "ratio": row.ratio} for row in rows],
        }  # fmt: skip
        options.output.write_text(json.dumps(record, indent=2) + "\n", encoding="utf-8")
    return int(not options.quick and any(row.missed for row in rows))


if __name__ == "__main__":
    sys.exit(main())
