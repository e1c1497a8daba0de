"""Private policy evaluation: where reinforcement learning and privacy meet."""

from dprl.private_evaluation.average_then_perturb import (
    AverageDiagnostics,
    Blocks,
    average_then_perturb,
    average_then_perturb_diagnostics,
)
from dprl.private_evaluation.common import (
    NEIGHBOURS,
    Noise,
    PrivateEstimate,
    return_spread,
)
from dprl.private_evaluation.dp_lsl import (
    LSL,
    dp_lsl,
    lsl_coefficient,
    lsl_global_sensitivity,
    lsl_local_bound,
    lsl_smooth_bound,
    lsl_step_factor,
)
from dprl.private_evaluation.dp_lsw import (
    LSW,
    dp_lsw,
    lsw_local_bound,
    lsw_smooth_bound,
)
from dprl.private_evaluation.planning import (
    PlannedError,
    Problem,
    planned_error,
)
from dprl.private_evaluation.subsample_and_average import (
    CountedSubsamples,
    Draws,
    SubsampleDiagnostics,
    base_promise,
    subsample_and_average,
    subsample_and_average_diagnostics,
)
from dprl.private_evaluation.subsamples import (
    draw_subsamples,
    subsample_statistics,
)
from dprl.private_evaluation.subsampling_rule import (
    Budget,
    NoCandidateError,
    PartitionChoice,
    PrintedChoice,
    Promise,
    SubsamplingChoice,
    choose_partition,
    choose_printed,
    choose_subsampling,
    equation_4_31,
    subsampling_candidates,
)

__all__ = [
    "LSL",
    "LSW",
    "NEIGHBOURS",
    "AverageDiagnostics",
    "Blocks",
    "Budget",
    "CountedSubsamples",
    "Draws",
    "NoCandidateError",
    "Noise",
    "PartitionChoice",
    "PlannedError",
    "PrintedChoice",
    "PrivateEstimate",
    "Problem",
    "Promise",
    "SubsampleDiagnostics",
    "SubsamplingChoice",
    "average_then_perturb",
    "average_then_perturb_diagnostics",
    "base_promise",
    "choose_partition",
    "choose_printed",
    "choose_subsampling",
    "dp_lsl",
    "dp_lsw",
    "draw_subsamples",
    "equation_4_31",
    "lsl_coefficient",
    "lsl_global_sensitivity",
    "lsl_local_bound",
    "lsl_smooth_bound",
    "lsl_step_factor",
    "lsw_local_bound",
    "lsw_smooth_bound",
    "planned_error",
    "return_spread",
    "subsample_and_average",
    "subsample_and_average_diagnostics",
    "subsample_statistics",
    "subsampling_candidates",
]
