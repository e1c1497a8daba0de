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
from dprl.privacy.subsampling import (
    advanced_composition,
    amplified,
    amplified_elementary,
    amplified_printed,
    base_guarantee,
    base_guarantee_optimal,
    base_guarantee_printed,
    composed,
    composed_printed,
    inversion_printed,
    optimal_composition_delta,
    optimal_composition_epsilon,
)

__all__ = [
    "AuditResult",
    "GaussianSmoothing",
    "Guarantee",
    "advanced_composition",
    "amplified",
    "amplified_elementary",
    "amplified_printed",
    "analytic_gaussian_sigma",
    "audit_samples",
    "base_guarantee",
    "base_guarantee_optimal",
    "base_guarantee_printed",
    "classical_gaussian_sigma",
    "composed",
    "composed_printed",
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
    "inversion_printed",
    "laplace_cdf",
    "laplace_delta",
    "laplace_density",
    "laplace_loss_cdf",
    "laplace_mechanism",
    "laplace_scale",
    "laplace_tail",
    "largest_certifiable_epsilon",
    "largest_true_positive_rate",
    "optimal_composition_delta",
    "optimal_composition_epsilon",
    "run_trials",
    "smooth_upper_bound",
    "smoothing_constants",
]
