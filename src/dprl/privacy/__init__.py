"""Differential privacy: guarantees and mechanisms. Nothing of reinforcement learning.

The random numbers are NumPy's. They are for study: floating-point samples of a
continuous distribution do not keep the promise that real numbers would keep
(Mironov 2012). For a real release use a library built for it, such as OpenDP.
"""

from dprl.privacy.accounting import (
    subsampled_gaussian_delta,
    subsampled_gaussian_epsilon,
    subsampled_gaussian_mu,
    subsampled_gaussian_profile,
)
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
from dprl.privacy.averages import (
    averaged_gaussian_delta,
    averaged_gaussian_epsilon,
    averaged_gaussian_mu,
)
from dprl.privacy.composition import (
    advanced_composition,
    optimal_composition_delta,
    optimal_composition_epsilon,
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
from dprl.privacy.noisy_gradients import (
    noisy_gradient_certified_sigma,
    noisy_gradient_delta,
    noisy_gradient_delta_lower,
    noisy_gradient_epsilon,
    noisy_gradient_epsilon_lower,
    noisy_gradient_guarantee,
    noisy_gradient_renyi_epsilon,
    noisy_gradient_sigma,
    noisy_gradient_sigma_lower,
    threshold_test_delta,
)
from dprl.privacy.population_utility import (
    OutputPerturbation,
    UtilityTerms,
    average_subsampling_bias,
    average_subsampling_sensitivity,
    average_utility,
    global_sensitivity,
    global_subsampling_sensitivity,
    subsample_and_average_mean,
    subsample_and_average_terms,
    subsample_and_average_utility,
)
from dprl.privacy.populations import DataSets, Population, averaging_query
from dprl.privacy.recalibration import equivalent_epsilon, recalibrated_guarantee
from dprl.privacy.smooth_sensitivity import (
    GaussianSmoothing,
    smooth_upper_bound,
    smoothing_constants,
)
from dprl.privacy.subsampling import (
    amplified,
    amplified_elementary,
    amplified_printed,
    base_guarantee,
    base_guarantee_optimal,
    base_guarantee_printed,
    composed,
    composed_printed,
    inversion_printed,
)

__all__ = [
    "AuditResult",
    "DataSets",
    "GaussianSmoothing",
    "Guarantee",
    "OutputPerturbation",
    "Population",
    "UtilityTerms",
    "advanced_composition",
    "amplified",
    "amplified_elementary",
    "amplified_printed",
    "analytic_gaussian_sigma",
    "audit_samples",
    "average_subsampling_bias",
    "average_subsampling_sensitivity",
    "average_utility",
    "averaged_gaussian_delta",
    "averaged_gaussian_epsilon",
    "averaged_gaussian_mu",
    "averaging_query",
    "base_guarantee",
    "base_guarantee_optimal",
    "base_guarantee_printed",
    "classical_gaussian_sigma",
    "composed",
    "composed_printed",
    "counting_query",
    "counting_sensitivity",
    "epsilon_lower_bound",
    "equivalent_epsilon",
    "fit_frequencies",
    "fit_projection",
    "gaussian_delta",
    "gaussian_mechanism",
    "gaussian_pair_delta",
    "gaussian_pair_epsilon",
    "gaussian_pair_loss",
    "gaussian_pair_renyi",
    "gaussian_pair_tail",
    "global_sensitivity",
    "global_subsampling_sensitivity",
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
    "noisy_gradient_certified_sigma",
    "noisy_gradient_delta",
    "noisy_gradient_delta_lower",
    "noisy_gradient_epsilon",
    "noisy_gradient_epsilon_lower",
    "noisy_gradient_guarantee",
    "noisy_gradient_renyi_epsilon",
    "noisy_gradient_sigma",
    "noisy_gradient_sigma_lower",
    "optimal_composition_delta",
    "optimal_composition_epsilon",
    "recalibrated_guarantee",
    "run_trials",
    "smooth_upper_bound",
    "smoothing_constants",
    "subsample_and_average_mean",
    "subsample_and_average_terms",
    "subsample_and_average_utility",
    "subsampled_gaussian_delta",
    "subsampled_gaussian_epsilon",
    "subsampled_gaussian_mu",
    "subsampled_gaussian_profile",
    "threshold_test_delta",
]
