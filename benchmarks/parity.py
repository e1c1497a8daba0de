"""Do dprl's learners learn what their peers learn, from equal steps and equal data?

Usage: python benchmarks/parity.py --peers PYTHON [--seeds N] [--folder FOLDER]

DDPG against stable-baselines3's: equal networks, settings, environment steps and updates.
BCQ against d3rlpy's: also equal data, which one of dprl's DDPG agents has collected with the
mixture of chapter 5. Every learner acts greedily, in dprl's environments, from one list of
initial states that no learner has seen. What differs: random numbers; that dprl updates in
blocks of 50 after 50 environment steps; that d3rlpy leaves out the last step of an episode
that ran out of time, for it does not know what followed.

What is finished is kept in FOLDER (_build/parity), so that the work can be spread over several
calls. At the end it records the tables `parity` (mean and spread over seeds) and
`parity-seeds` (one row a seed) in data/results/laptop. Peers: peers.txt.
"""

from __future__ import annotations

import argparse
import dataclasses
import functools
import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pandas as pd
from scipy import stats
from turns import Worker

from companion import records
from dprl.agents import bcq, bcq_population, ddpg, ddpg_population, environments
from dprl.agents.environments import RolloutPolicy, Task
from dprl.agents.episodes import Episodes
from experiments.chapter_5 import oracles
from experiments.chapter_5.stages import load_episodes, save_episodes

ENVIRONMENT = "Hopper-v5"
T_MAX = 100
DDPG_STEPS = (10_000, 20_000)
BCQ_UPDATES = (2_000, 5_000)
TRAJECTORIES = 200
TESTS = 20  # initial states
DDPG = ddpg.DDPGSettings(hidden=(64, 64), warm_up=1_000, capacity=100_000)
# as many proposals when acting as in the targets: d3rlpy has one number for both
BCQ = bcq.BCQSettings(hidden=(64, 64), vae_hidden=(128, 128), candidates=10, acting_candidates=10)


def initial_states(seed: int, count: int) -> np.ndarray:
    return environments.draw_initial_states(ENVIRONMENT, count, np.random.default_rng(seed))


def mean_return(policy: Callable[[np.ndarray, int], Any]) -> float:
    """Of greedy episodes from the test states."""
    states = initial_states(20_210_401, TESTS)
    return float(environments.rollout(ENVIRONMENT, policy, states, T_MAX).returns.mean())


def kept(path: Path, compute: Callable[[], Any]) -> Any:
    """What the file holds; computed first if there is none."""
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        begin = time.perf_counter()
        result = compute()
        path.write_text(json.dumps({"result": result, "seconds": time.perf_counter() - begin}))
        print(f"{path.stem}: {result}", file=sys.stderr)
    return json.loads(path.read_text())


# -- dprl: all seeds together ---------------------------------------------------------------


TASK = Task(ENVIRONMENT, T_MAX)


@functools.cache
def train_ddpg(seeds: int, steps: int) -> ddpg_population.DDPGTraining:
    """A training of so many steps; a longer one goes on from the shorter one."""
    before = [stop for stop in DDPG_STEPS if stop < steps]
    training = (
        train_ddpg(seeds, before[-1]) if before else ddpg_population.start(TASK, DDPG, range(seeds))
    )
    return ddpg_population.train(training, TASK, DDPG, steps - training.step)


def policies(training: ddpg_population.DDPGTraining) -> list[RolloutPolicy]:
    """The greedy policy of each seed."""
    returns = np.empty((len(training.generators), 1, 0))
    agents = oracles.DataOracles(TASK, training.agents, np.array([training.step]), returns)
    return [agents.policy(seed) for seed in range(agents.agents)]


def own_ddpg(seeds: int) -> list[list[float]]:
    """[seed][stop]."""
    stops = [policies(train_ddpg(seeds, steps)) for steps in DDPG_STEPS]
    return [[mean_return(one[seed]) for one in stops] for seed in range(seeds)]


def collect(seeds: int, folder: Path) -> Episodes:
    """The data of BCQ, by the agent that is best after the first stop."""
    path = folder / "data.npz"
    if not path.exists():
        known = policies(train_ddpg(seeds, DDPG_STEPS[0]))
        greedy = known[int(np.argmax([mean_return(policy) for policy in known]))]
        mixture, rng = oracles.Mixture(), np.random.default_rng(2)
        found = environments.rollout(
            ENVIRONMENT,
            lambda observations, step: mixture.act(greedy(observations, step), rng),
            initial_states(1, TRAJECTORIES),
            T_MAX,
        )
        save_episodes(path, [found])
    return load_episodes(path, 1)[0]


def own_bcq(seeds: int, data: Episodes) -> list[list[float]]:
    """[seed][stop]; a longer training goes on from the shorter one."""
    many, models = [data.transitions()] * seeds, []
    training = bcq_population.start(BCQ, data.observation_size, data.action_size, range(seeds))
    for stop in BCQ_UPDATES:
        training, _ = bcq_population.train(training, many, BCQ, stop - training.updates)
        models.append(bcq_population.BCQPopulation(BCQ, training.models.parameters))
    return [
        [mean_return(one.policy(seed, jax.random.key(seed))) for one in models]
        for seed in range(seeds)
    ]


# -- peers ----------------------------------------------------------------------------------


def peer(python: str, worker: str, given: dict[str, Any], stops: tuple[int, ...]) -> list[float]:
    """Returns of a peer after so many steps or updates."""
    process = Worker(python, "peers.py", [worker, json.dumps(given)])
    try:
        returns, done = [], 0
        for stop in stops:
            process.ask({"learn": stop - done})
            done = stop
            returns.append(
                mean_return(
                    lambda observations, step: np.array(
                        process.ask({"observations": observations.tolist()})["actions"]
                    )
                )
            )
        return returns
    finally:
        process.close()


def ddpg_settings(seed: int) -> dict[str, Any]:
    return {
        "environment": ENVIRONMENT,
        "t_max": T_MAX,
        "hidden": DDPG.hidden,
        "learning_rate": DDPG.actor_learning_rate,
        "capacity": DDPG.capacity,
        "warm_up": DDPG.warm_up,
        "batch_size": DDPG.batch_size,
        "tau": DDPG.tau,
        "discount": DDPG.discount,
        "noise": DDPG.exploration_noise,
        "seed": seed,
    }


def bcq_settings(seed: int, data: Path) -> dict[str, Any]:
    return {
        "hidden": BCQ.hidden,
        "vae_hidden": BCQ.vae_hidden,
        "learning_rate": BCQ.learning_rate,
        "batch_size": BCQ.batch_size,
        "discount": BCQ.discount,
        "tau": BCQ.target_rate,
        "minimum_weight": BCQ.minimum_weight,
        "candidates": BCQ.candidates,
        "perturbation": BCQ.perturbation,
        "divergence_weight": BCQ.divergence_weight,
        "data": str(data.resolve()),
        "seed": seed,
    }


def library_versions(python: str, names: list[str]) -> dict[str, str]:
    code = "import importlib.metadata as m, json, sys; "
    code += "print(json.dumps({n: m.version(n) for n in sys.argv[1:]}))"
    run = subprocess.run([python, "-c", code, *names], check=True, capture_output=True, text=True)
    return dict(json.loads(run.stdout))


# -- tables ---------------------------------------------------------------------------------


def tables(rows: list[dict[str, Any]]) -> tuple[pd.DataFrame, pd.DataFrame]:
    """One row a seed; mean, standard deviation and 95% interval over seeds."""
    seeds = pd.DataFrame(rows)
    groups = ["algorithm", "implementation", "steps"]
    summary = []
    for key, group in seeds.groupby(groups, sort=False):
        values = group["mean_return"].to_numpy()
        low, high = stats.t.interval(0.95, len(values) - 1, values.mean(), stats.sem(values))
        summary.append(
            {
                **dict(zip(groups, key, strict=True)),
                "environment": ENVIRONMENT,
                "t_max": T_MAX,
                "seeds": len(values),
                "mean": float(values.mean()),
                "sd": float(values.std(ddof=1)),
                "low": float(low),
                "high": float(high),
            }
        )
    return pd.DataFrame(summary), seeds


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--peers", metavar="PYTHON", required=True)
    parser.add_argument("--seeds", type=int, default=6, metavar="N")
    parser.add_argument("--folder", type=Path, default=Path("_build/parity"))
    parser.add_argument("--only", metavar="NAME", help="one implementation; no tables")
    options = parser.parse_args(arguments)
    folder, n, python = options.folder, options.seeds, options.peers
    folder.mkdir(parents=True, exist_ok=True)
    data, shared = collect(n, folder), folder / "data-peer.npz"
    fields = [field.name for field in dataclasses.fields(data)]
    np.savez(shared, **{name: getattr(data, name) for name in fields})

    def sb3(seed: int) -> list[float]:
        return peer(python, "taught-ddpg", ddpg_settings(seed), DDPG_STEPS)

    def d3rlpy(seed: int) -> list[float]:
        return peer(python, "taught-bcq", bcq_settings(seed, shared), BCQ_UPDATES)

    def together(name: str, compute: Callable[[], Any]) -> dict[str, Any]:
        return dict(kept(folder / f"{name}-dprl.json", compute))

    def one_by_one(name: str, compute: Callable[[int], Any]) -> dict[str, Any]:
        parts = [kept(folder / f"{name}-{i}.json", lambda i=i: compute(i)) for i in range(n)]
        return {
            "result": [part["result"] for part in parts],
            "seconds": sum(part["seconds"] for part in parts),
        }

    runs: list[tuple[str, str, tuple[int, ...], Callable[[], dict[str, Any]]]] = [
        ("DDPG", "dprl", DDPG_STEPS, lambda: together("ddpg", lambda: own_ddpg(n))),
        ("BCQ", "dprl", BCQ_UPDATES, lambda: together("bcq", lambda: own_bcq(n, data))),
        ("DDPG", "stable-baselines3", DDPG_STEPS, lambda: one_by_one("ddpg-sb3", sb3)),
        ("BCQ", "d3rlpy", BCQ_UPDATES, lambda: one_by_one("bcq-d3rlpy", d3rlpy)),
    ]
    rows, seconds = [], 0.0
    for algorithm, implementation, stops, compute in runs:
        if options.only not in (None, implementation):
            continue
        done = compute()
        seconds += done["seconds"]
        rows += [
            {
                "algorithm": algorithm,
                "implementation": implementation,
                "seed": seed,
                "steps": stop,
                "mean_return": value,
            }
            for seed, values in enumerate(done["result"])
            for stop, value in zip(stops, values, strict=True)
        ]
    if options.only is not None:
        return
    summary, seeds = tables(rows)
    print(summary.to_string(index=False))
    parameters = {
        "environment": ENVIRONMENT,
        "t_max": T_MAX,
        "ddpg": dataclasses.asdict(DDPG),
        "bcq": dataclasses.asdict(BCQ),
        "trajectories": TRAJECTORIES,
        "transitions": int(data.lengths.sum()),
        "return_of_the_data": float(data.returns.mean()),
        "test_states": TESTS,
        "peers": library_versions(
            options.peers, ["stable-baselines3", "d3rlpy", "torch", "gymnasium", "mujoco"]
        ),
    }
    for name, table in (("parity", summary), ("parity-seeds", seeds)):
        records.keep(
            name,
            table,
            records.Command(
                "python benchmarks/parity.py --peers PYTHON",
                "laptop",
                libraries=["jax", "optax", "mujoco", "gymnasium"],
                device="cpu",
            ),
            seed=None,
            parameters=parameters,
            seconds=seconds,
        )


if __name__ == "__main__":
    main()
