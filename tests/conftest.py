"""One Hypothesis profile for all tests, programs compiled fast, a process of no textbook."""

import os
from importlib.metadata import version

import numpy as np
import pytest
from hypothesis import HealthCheck, settings

from dprl.mdp import MarkovRewardProcess

# the same examples on every run, no clock
settings.register_profile(
    "dprl",
    derandomize=True,
    deadline=None,
    max_examples=60,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("dprl")

# A compiled program runs for milliseconds here and is compiled for seconds: a third of them so.
# The flag is of this version; one that a compiler does not know would end the process.
os.environ.setdefault("JAX_DISABLE_MOST_OPTIMIZATIONS", "true")
if version("jaxlib").startswith("0.10."):
    os.environ.setdefault("XLA_FLAGS", "--xla_cpu_use_fusion_emitters=false")


@pytest.fixture(scope="session")
def random_process():
    """A function: seed -> a random process."""
    return build_process


def build_process(seed, discount=0.9, ending=0.2):
    """A process of 2 to 7 states, sparse, that revisits states and ends with certainty."""
    rng = np.random.default_rng(seed)
    n = int(rng.integers(2, 8))
    p = rng.dirichlet(np.full(n, 0.7), size=n) * (1 - ending)
    p[:, -1] += ending
    p[-1] = np.eye(n)[-1]
    p /= p.sum(axis=1, keepdims=True)
    reward = rng.normal(size=(n, n))
    reward[-1] = 0.0
    start = np.append(rng.dirichlet(np.ones(n - 1)), 0.0)
    return MarkovRewardProcess(p, reward, discount, start)
