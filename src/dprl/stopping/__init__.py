"""Sequential learning: stop as soon as the data suffice, privately.

Stands beside the rest of the package: it uses :mod:`dprl.privacy` and nothing of
reinforcement learning.
"""

from dprl.stopping.laws import largest_loss as largest_loss
from dprl.stopping.laws import pair_delta as pair_delta
from dprl.stopping.laws import printed_law as printed_law
from dprl.stopping.laws import private_law as private_law
from dprl.stopping.penalties import fair_signs as fair_signs
from dprl.stopping.penalties import finite_class_sums as finite_class_sums
from dprl.stopping.penalties import subset_sums as subset_sums
from dprl.stopping.penalties import threshold_penalty as threshold_penalty
from dprl.stopping.penalties import threshold_sums as threshold_sums
from dprl.stopping.rules import NEIGHBOURS as NEIGHBOURS
from dprl.stopping.rules import READINGS as READINGS
from dprl.stopping.rules import SequentialRelease as SequentialRelease
from dprl.stopping.rules import SequentialRuns as SequentialRuns
from dprl.stopping.rules import choose as choose
from dprl.stopping.rules import exponential_mechanism as exponential_mechanism
from dprl.stopping.rules import private_sequential_learning as private_sequential_learning
from dprl.stopping.rules import private_sequential_runs as private_sequential_runs
from dprl.stopping.rules import stop_printed as stop_printed
from dprl.stopping.rules import stop_privately as stop_privately
from dprl.stopping.rules import stop_without_privacy as stop_without_privacy
from dprl.stopping.sample_sizes import deviation_failure as deviation_failure
from dprl.stopping.sample_sizes import efficiency_factor as efficiency_factor
from dprl.stopping.sample_sizes import efficiency_factor_printed as efficiency_factor_printed
from dprl.stopping.sample_sizes import fixed_private_sample_size as fixed_private_sample_size
from dprl.stopping.sample_sizes import fixed_sample_size as fixed_sample_size
from dprl.stopping.sample_sizes import initial_sample_size as initial_sample_size
from dprl.stopping.sample_sizes import lateness as lateness
from dprl.stopping.sample_sizes import noise_allowance as noise_allowance
from dprl.stopping.sample_sizes import packing_limit as packing_limit
from dprl.stopping.sample_sizes import penalty_constant as penalty_constant
from dprl.stopping.sample_sizes import (
    sequential_private_sample_size as sequential_private_sample_size,
)
from dprl.stopping.sample_sizes import subset_penalty_constant as subset_penalty_constant
from dprl.stopping.sample_sizes import usefulness_factor as usefulness_factor
from dprl.stopping.sample_sizes import usefulness_factor_printed as usefulness_factor_printed
