"""One tiny study, shared by the tests of what is computed from studies.

Sizes are chosen so that programs are used again: a training of twice the updates, a second
population of the same size, or another test file compiles nothing new.
"""

import pytest

from dprl.agents.bcq import BCQSettings
from dprl.agents.ddpg import DDPGSettings
from dprl.membership.attacks.tcn import TCNSettings
from experiments.chapter_5.leaks import LeakSettings
from experiments.chapter_5.pair_attacks import AttackSettings
from experiments.chapter_5.study import StudySettings, run


@pytest.fixture(scope="session")
def tiny_settings():
    return StudySettings(
        "Hopper-v5",
        6,
        oracles=4,
        ddpg=DDPGSettings(hidden=(8,), batch_size=8, warm_up=50, capacity=300),
        ddpg_steps=300,
        trajectories=10,
        bcq=BCQSettings(
            hidden=(8,), vae_hidden=(8,), batch_size=8, candidates=2, acting_candidates=3
        ),
        bcq_updates=200,
        evaluate_every=150,
        evaluation_episodes=2,
        name="tiny",
    )


@pytest.fixture(scope="session")
def tiny_folder(tmp_path_factory):
    return tmp_path_factory.mktemp("membership")


@pytest.fixture(scope="session")
def tiny_study(tiny_settings, tiny_folder):
    return run(tiny_settings, tiny_folder)


@pytest.fixture(scope="session")
def tiny_leak_settings(tiny_settings):
    """As many fresh trajectories as the pool has: they are scored by the same programs."""
    return LeakSettings(
        tiny_settings, oracles=(0, 2), size=4, models=6, twins=2, updates=(2, 4), fresh=8, chunk=2
    )


@pytest.fixture(scope="session")
def tiny_attacks():
    return AttackSettings(
        tcn=TCNSettings(channels=4, kernel=2, dilations=(1,), steps=5, batch_size=8),
        lengths=(3,),
        bag_size=5,
    )
