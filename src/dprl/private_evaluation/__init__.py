"""Private policy evaluation: where reinforcement learning and privacy meet."""

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

__all__ = [
    "NEIGHBOURS",
    "LSLDiagnostics",
    "LSWDiagnostics",
    "PrivateEstimate",
    "dp_lsl",
    "dp_lsl_diagnostics",
    "dp_lsw",
    "dp_lsw_diagnostics",
    "lsl_coefficient",
    "lsl_local_bound",
    "lsl_smooth_bound",
    "lsl_step_factor",
    "lsw_local_bound",
    "lsw_smooth_bound",
    "return_spread",
]
