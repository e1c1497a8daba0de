"""Sequential learning: stop as soon as the data suffice, privately.

Stands beside the rest of the package: it uses :mod:`dprl.privacy` and nothing of
reinforcement learning.
"""

from dprl.stopping.laws import largest_loss, pair_delta, printed_law, private_law
from dprl.stopping.penalties import (
    fair_signs,
    finite_class_sums,
    subset_sums,
    threshold_penalty,
    threshold_sums,
)
from dprl.stopping.rules import (
    NEIGHBOURS,
    READINGS,
    SequentialRelease,
    SequentialRuns,
    choose,
    exponential_mechanism,
    printed_sequential_runs,
    private_sequential_learning,
    private_sequential_runs,
    stop_printed,
    stop_privately,
    stop_without_privacy,
)
from dprl.stopping.sample_sizes import (
    deviation_failure,
    efficiency_factor,
    efficiency_factor_printed,
    fixed_private_sample_size,
    fixed_sample_size,
    initial_sample_size,
    lateness,
    noise_allowance,
    noise_tail,
    packing_limit,
    penalty_constant,
    sequential_private_sample_size,
    subset_penalty_constant,
    usefulness_factor,
    usefulness_factor_printed,
)

__all__ = [
    "NEIGHBOURS",
    "READINGS",
    "SequentialRelease",
    "SequentialRuns",
    "choose",
    "deviation_failure",
    "efficiency_factor",
    "efficiency_factor_printed",
    "exponential_mechanism",
    "fair_signs",
    "finite_class_sums",
    "fixed_private_sample_size",
    "fixed_sample_size",
    "initial_sample_size",
    "largest_loss",
    "lateness",
    "noise_allowance",
    "noise_tail",
    "packing_limit",
    "pair_delta",
    "penalty_constant",
    "printed_law",
    "printed_sequential_runs",
    "private_law",
    "private_sequential_learning",
    "private_sequential_runs",
    "sequential_private_sample_size",
    "stop_printed",
    "stop_privately",
    "stop_without_privacy",
    "subset_penalty_constant",
    "subset_sums",
    "threshold_penalty",
    "threshold_sums",
    "usefulness_factor",
    "usefulness_factor_printed",
]
