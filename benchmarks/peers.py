"""What the peers do in a block, with the settings they are given; runs in their environment.

Usage (by membership.py and parity.py): python peers.py WORKER SETTINGS, SETTINGS in JSON.
See peers.txt for the environment. Nothing of dprl is imported here.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from collections.abc import Callable
from typing import Any

import numpy as np
from turns import Turns


def ddpg_model(given: dict[str, Any], seed: int = 0) -> Any:
    """stable-baselines3's DDPG; everything not set here has no counterpart in dprl."""
    import gymnasium
    from stable_baselines3 import DDPG
    from stable_baselines3.common.noise import NormalActionNoise

    env = gymnasium.make(given["environment"], max_episode_steps=given["t_max"])
    size = env.action_space.shape[0]
    return DDPG(
        "MlpPolicy",
        env,
        learning_rate=given["learning_rate"],
        buffer_size=given["capacity"],
        learning_starts=given["warm_up"],
        batch_size=given["batch_size"],
        tau=given["tau"],
        gamma=given["discount"],
        train_freq=(1, "step"),
        gradient_steps=1,
        action_noise=NormalActionNoise(np.zeros(size), np.full(size, given["noise"])),
        policy_kwargs={"net_arch": list(given["hidden"])},
        seed=seed,
        device="cpu",
    )


def torch_turns(given: dict[str, Any]) -> Turns:
    """Turns that set the number of threads before each block."""
    import torch

    torch.set_num_threads(1)  # until the first block
    return Turns(given["seconds"], prepare=torch.set_num_threads)


def ddpg(given: dict[str, Any]) -> None:
    """Environment steps, each with one update, as `learn` makes them."""
    turns, model, piece = torch_turns(given), ddpg_model(given), 100
    model.learn(given["warm_up"] + 1)
    while True:
        model.learn(piece, reset_num_timesteps=False)
        turns(piece)


def ddpg_updates(given: dict[str, Any]) -> None:
    """Updates alone, on what the memory holds."""
    turns, model, piece = torch_turns(given), ddpg_model(given), 100
    model.learn(given["warm_up"] + 1)
    while True:
        model.train(gradient_steps=piece, batch_size=given["batch_size"])
        turns(piece)


def bcq_model(given: dict[str, Any]) -> Any:
    """d3rlpy's BCQ; everything not set here is its default and dprl's."""
    import d3rlpy

    rate, hidden = given["learning_rate"], d3rlpy.models.VectorEncoderFactory(given["hidden"])
    return d3rlpy.algos.BCQConfig(
        actor_learning_rate=rate,
        critic_learning_rate=rate,
        imitator_learning_rate=rate,
        actor_encoder_factory=hidden,
        critic_encoder_factory=hidden,
        imitator_encoder_factory=d3rlpy.models.VectorEncoderFactory(given["vae_hidden"]),
        batch_size=given["batch_size"],
        gamma=given["discount"],
        tau=given["tau"],
        lam=given["minimum_weight"],
        n_critics=2,
        n_action_samples=given["candidates"],
        action_flexibility=given["perturbation"],
        beta=given["divergence_weight"],
    ).create(device="cpu")


def bcq_data(arrays: dict[str, np.ndarray]) -> Any:
    """Episodes as d3rlpy keeps them."""
    import d3rlpy

    episodes = [
        d3rlpy.dataset.Episode(
            arrays["observations"][i, :length],
            arrays["actions"][i, :length],
            arrays["rewards"][i, :length, None],
            bool(arrays["terminated"][i]),
        )
        for i, length in enumerate(arrays["lengths"])
    ]
    return d3rlpy.dataset.create_infinite_replay_buffer(episodes)


def bcq(given: dict[str, Any]) -> None:
    """Updates, each on a mini-batch drawn from the data."""
    rng = np.random.default_rng(0)
    n, t, d_s, d_a = 100, 50, given["observation_size"], given["action_size"]
    data = bcq_data(
        {
            "observations": rng.normal(size=(n, t, d_s)).astype(np.float32),
            "actions": rng.uniform(-1, 1, (n, t, d_a)).astype(np.float32),
            "rewards": rng.normal(size=(n, t)).astype(np.float32),
            "terminated": np.zeros(n, dtype=bool),
            "lengths": np.full(n, t),
        }
    )
    turns, model, piece = torch_turns(given), bcq_model(given), 5
    model.build_with_dataset(data)
    while True:
        for _ in range(piece):
            model.update(data.sample_transition_batch(given["batch_size"]))
        turns(piece)


def answer(learn: Callable[[int], object], act: Callable[[np.ndarray], np.ndarray]) -> None:
    """Lines of input are orders: so many steps to learn, or observations to act on."""
    print(json.dumps({"ready": True}), flush=True)
    for line in sys.stdin:
        order = json.loads(line)
        if "learn" in order:
            learn(order["learn"])
            print(json.dumps({"learned": order["learn"]}), flush=True)
        else:
            actions = act(np.array(order["observations"], np.float32))
            print(json.dumps({"actions": actions.tolist()}), flush=True)


def taught_ddpg(given: dict[str, Any]) -> None:
    """An agent that learns and acts on request; for parity.py."""
    import torch

    torch.set_num_threads(1)
    model = ddpg_model(given, seed=given["seed"])
    answer(
        lambda steps: model.learn(steps, reset_num_timesteps=False),
        lambda observations: model.predict(observations, deterministic=True)[0],
    )


def taught_bcq(given: dict[str, Any]) -> None:
    """A model that learns from a file of episodes, and acts, on request; for parity.py."""
    import d3rlpy
    import torch

    torch.set_num_threads(1)
    d3rlpy.seed(given["seed"])
    with np.load(given["data"]) as file:
        data = bcq_data(dict(file))
    model = bcq_model(given)
    model.build_with_dataset(data)

    def learn(updates: int) -> None:
        for _ in range(updates):
            model.update(data.sample_transition_batch(given["batch_size"]))

    answer(learn, lambda observations: np.clip(model.predict(observations), -1, 1))


WORKERS = {
    "ddpg": ddpg,
    "ddpg-updates": ddpg_updates,
    "bcq": bcq,
    "taught-ddpg": taught_ddpg,
    "taught-bcq": taught_bcq,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("worker", choices=WORKERS)
    parser.add_argument("settings", type=json.loads)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)  # the libraries leave logs where they run
        WORKERS[options.worker](options.settings)


if __name__ == "__main__":
    sys.exit(main())
