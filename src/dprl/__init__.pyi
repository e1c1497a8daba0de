"""The names in front, each with its part: the one list of them, which ``__init__`` reads too."""

from dprl.evaluation import lsl as lsl
from dprl.evaluation import lsw as lsw
from dprl.evaluation import rmse as rmse
from dprl.features import aggregation as aggregation
from dprl.features import tabular as tabular
from dprl.mdp import Chain as Chain
from dprl.membership.metrics import ConfusionCounts as ConfusionCounts
from dprl.membership.metrics import clustered_interval as clustered_interval
from dprl.membership.metrics import roc_curve as roc_curve
from dprl.off_policy.chain import TwoPolicyChain as TwoPolicyChain
from dprl.privacy.audit import audit_samples as audit_samples
from dprl.privacy.gaussian import analytic_gaussian_sigma as analytic_gaussian_sigma
from dprl.privacy.gaussian import classical_gaussian_sigma as classical_gaussian_sigma
from dprl.privacy.gaussian import gaussian_delta as gaussian_delta
from dprl.privacy.gaussian_pair import gaussian_pair_delta as gaussian_pair_delta
from dprl.privacy.guarantee import Guarantee as Guarantee
from dprl.privacy.noisy_gradients import noisy_gradient_sigma as noisy_gradient_sigma
from dprl.privacy.smooth_sensitivity import GaussianSmoothing as GaussianSmoothing
from dprl.privacy.smooth_sensitivity import smoothing_constants as smoothing_constants
from dprl.private_evaluation.dp_lsl import LSL as LSL
from dprl.private_evaluation.dp_lsl import dp_lsl as dp_lsl
from dprl.private_evaluation.dp_lsl import lsl_smooth_bound as lsl_smooth_bound
from dprl.private_evaluation.dp_lsw import LSW as LSW
from dprl.private_evaluation.dp_lsw import dp_lsw as dp_lsw
from dprl.private_evaluation.dp_lsw import lsw_smooth_bound as lsw_smooth_bound
from dprl.private_evaluation.gpope import gpope as gpope
from dprl.private_evaluation.subsample_and_average import Draws as Draws
from dprl.private_evaluation.subsample_and_average import (
    subsample_and_average as subsample_and_average,
)
from dprl.trajectories import FirstVisitReturns as FirstVisitReturns
from dprl.trajectories import VisitStatistics as VisitStatistics
from dprl.trajectories import chain_first_visit_returns as chain_first_visit_returns
from dprl.trajectories import chain_visit_statistics as chain_visit_statistics
from dprl.trajectories import first_visit_returns as first_visit_returns
from dprl.trajectories import simulate as simulate

__version__: str
