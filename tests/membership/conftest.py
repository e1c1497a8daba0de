"""One tiny study, shared by the tests of what is computed from studies."""

import pytest

from dprl.membership.attacks.tcn import TCNSettings
from dprl.membership.bcq import BCQSettings
from dprl.membership.ddpg import DDPGSettings
from dprl.membership.evaluation import Design
from dprl.membership.study import Cell, run


@pytest.fixture(scope="session")
def tiny_cell():
    return Cell(
        "Hopper-v5",
        6,
        oracles=4,
        ddpg=DDPGSettings(hidden=(8,), batch_size=8, warm_up=50, capacity=200),
        ddpg_steps=150,
        trajectories=10,
        bcq=BCQSettings(
            hidden=(8,), vae_hidden=(8,), batch_size=8, candidates=2, acting_candidates=3
        ),
        bcq_updates=20,
        evaluate_every=100,
        evaluation_episodes=2,
        name="tiny",
    )


@pytest.fixture(scope="session")
def tiny_folder(tmp_path_factory):
    return tmp_path_factory.mktemp("membership")


@pytest.fixture(scope="session")
def tiny_study(tiny_cell, tiny_folder):
    return run(tiny_cell, tiny_folder)


@pytest.fixture(scope="session")
def tiny_design():
    return Design(
        tcn=TCNSettings(channels=4, kernel=2, dilations=(1,), steps=5, batch_size=8),
        lengths=(3,),
        bag_size=5,
    )
