"""Private policy evaluation: where reinforcement learning and privacy meet."""

from dprl.private_evaluation.average_then_perturb import (
    AverageDiagnostics,
    average_then_perturb,
    average_then_perturb_diagnostics,
)
from dprl.private_evaluation.common import (
    NEIGHBOURS,
    PrivateEstimate,
    return_spread,
)
from dprl.private_evaluation.dp_lsl import (
    LSLDiagnostics,
    dp_lsl,
    dp_lsl_diagnostics,
    lsl_coefficient,
    lsl_local_bound,
    lsl_smooth_bound,
    lsl_step_factor,
)
from dprl.private_evaluation.dp_lsw import (
    LSWDiagnostics,
    dp_lsw,
    dp_lsw_diagnostics,
    lsw_local_bound,
    lsw_smooth_bound,
)
from dprl.private_evaluation.global_sensitivity import (
    lsl_global_sensitivity,
    lsl_sensitivity_bound,
    lsw_global_sensitivity,
)
from dprl.private_evaluation.subsample_and_average import (
    CountedSubsamples,
    SubsampleDiagnostics,
    base_promise,
    subsample_and_average,
    subsample_and_average_diagnostics,
)
from dprl.private_evaluation.subsamples import draw_subsamples, subsample_statistics
from dprl.private_evaluation.subsampling_rule import (
    NoCandidateError,
    PartitionChoice,
    PlannedError,
    PrintedChoice,
    SubsamplingChoice,
    choose_partition,
    choose_printed,
    choose_subsampling,
    equation_4_31,
    equivalent_epsilon,
    planned_error,
    recalibrated_guarantee,
    subsampling_candidates,
)

__all__ = [
    "NEIGHBOURS",
    "AverageDiagnostics",
    "CountedSubsamples",
    "LSLDiagnostics",
    "LSWDiagnostics",
    "NoCandidateError",
    "PartitionChoice",
    "PlannedError",
    "PrintedChoice",
    "PrivateEstimate",
    "SubsampleDiagnostics",
    "SubsamplingChoice",
    "average_then_perturb",
    "average_then_perturb_diagnostics",
    "base_promise",
    "choose_partition",
    "choose_printed",
    "choose_subsampling",
    "dp_lsl",
    "dp_lsl_diagnostics",
    "dp_lsw",
    "dp_lsw_diagnostics",
    "draw_subsamples",
    "equation_4_31",
    "equivalent_epsilon",
    "lsl_coefficient",
    "lsl_global_sensitivity",
    "lsl_local_bound",
    "lsl_sensitivity_bound",
    "lsl_smooth_bound",
    "lsl_step_factor",
    "lsw_global_sensitivity",
    "lsw_local_bound",
    "lsw_smooth_bound",
    "planned_error",
    "recalibrated_guarantee",
    "return_spread",
    "subsample_and_average",
    "subsample_and_average_diagnostics",
    "subsample_statistics",
    "subsampling_candidates",
]
