"""Differential privacy: guarantees and mechanisms. Nothing of reinforcement learning.

The random numbers are NumPy's. They are for study: floating-point samples of a
continuous distribution do not keep the promise that real numbers would keep
(Mironov 2012). For a real release use a library built for it, such as OpenDP.
"""

from dprl.privacy.audit import (
    AuditResult,
    audit_samples,
    epsilon_lower_bound,
    fit_frequencies,
    fit_projection,
    largest_certifiable_epsilon,
    largest_true_positive_rate,
    run_trials,
)
from dprl.privacy.gaussian import (
    analytic_gaussian_sigma,
    classical_gaussian_sigma,
    gaussian_delta,
    gaussian_mechanism,
)
from dprl.privacy.gaussian_pair import (
    gaussian_pair_delta,
    gaussian_pair_epsilon,
    gaussian_pair_loss,
    gaussian_pair_renyi,
    gaussian_pair_tail,
)
from dprl.privacy.guarantee import Guarantee
from dprl.privacy.laplace import (
    counting_query,
    counting_sensitivity,
    laplace_cdf,
    laplace_delta,
    laplace_density,
    laplace_loss_cdf,
    laplace_mechanism,
    laplace_scale,
    laplace_tail,
)
from dprl.privacy.smooth_sensitivity import (
    GaussianSmoothing,
    smooth_upper_bound,
    smoothing_constants,
)

__all__ = [
    "AuditResult",
    "GaussianSmoothing",
    "Guarantee",
    "analytic_gaussian_sigma",
    "audit_samples",
    "classical_gaussian_sigma",
    "counting_query",
    "counting_sensitivity",
    "epsilon_lower_bound",
    "fit_frequencies",
    "fit_projection",
    "gaussian_delta",
    "gaussian_mechanism",
    "gaussian_pair_delta",
    "gaussian_pair_epsilon",
    "gaussian_pair_loss",
    "gaussian_pair_renyi",
    "gaussian_pair_tail",
    "laplace_cdf",
    "laplace_delta",
    "laplace_density",
    "laplace_loss_cdf",
    "laplace_mechanism",
    "laplace_scale",
    "laplace_tail",
    "largest_certifiable_epsilon",
    "largest_true_positive_rate",
    "run_trials",
    "smooth_upper_bound",
    "smoothing_constants",
]
