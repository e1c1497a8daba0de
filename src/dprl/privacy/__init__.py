"""Differential privacy: guarantees and mechanisms. Nothing of reinforcement learning.

The random numbers are NumPy's. They are for study: floating-point samples of a
continuous distribution do not keep the promise that real numbers would keep
(Mironov 2012). For a real release use a library built for it, such as OpenDP.
"""

from dprl.privacy.accounting import subsampled_gaussian_delta as subsampled_gaussian_delta
from dprl.privacy.accounting import subsampled_gaussian_epsilon as subsampled_gaussian_epsilon
from dprl.privacy.accounting import subsampled_gaussian_mu as subsampled_gaussian_mu
from dprl.privacy.accounting import subsampled_gaussian_profile as subsampled_gaussian_profile
from dprl.privacy.audit import AuditResult as AuditResult
from dprl.privacy.audit import audit_samples as audit_samples
from dprl.privacy.audit import epsilon_lower_bound as epsilon_lower_bound
from dprl.privacy.audit import fit_frequencies as fit_frequencies
from dprl.privacy.audit import fit_projection as fit_projection
from dprl.privacy.audit import largest_certifiable_epsilon as largest_certifiable_epsilon
from dprl.privacy.audit import largest_true_positive_rate as largest_true_positive_rate
from dprl.privacy.audit import run_trials as run_trials
from dprl.privacy.averages import averaged_gaussian_delta as averaged_gaussian_delta
from dprl.privacy.averages import averaged_gaussian_epsilon as averaged_gaussian_epsilon
from dprl.privacy.averages import averaged_gaussian_mu as averaged_gaussian_mu
from dprl.privacy.composition import advanced_composition as advanced_composition
from dprl.privacy.composition import optimal_composition_delta as optimal_composition_delta
from dprl.privacy.composition import optimal_composition_epsilon as optimal_composition_epsilon
from dprl.privacy.gaussian import analytic_gaussian_sigma as analytic_gaussian_sigma
from dprl.privacy.gaussian import classical_gaussian_sigma as classical_gaussian_sigma
from dprl.privacy.gaussian import gaussian_delta as gaussian_delta
from dprl.privacy.gaussian import gaussian_mechanism as gaussian_mechanism
from dprl.privacy.gaussian_pair import gaussian_pair_delta as gaussian_pair_delta
from dprl.privacy.gaussian_pair import gaussian_pair_epsilon as gaussian_pair_epsilon
from dprl.privacy.gaussian_pair import gaussian_pair_loss as gaussian_pair_loss
from dprl.privacy.gaussian_pair import gaussian_pair_renyi as gaussian_pair_renyi
from dprl.privacy.gaussian_pair import gaussian_pair_tail as gaussian_pair_tail
from dprl.privacy.guarantee import Guarantee as Guarantee
from dprl.privacy.laplace import counting_query as counting_query
from dprl.privacy.laplace import counting_sensitivity as counting_sensitivity
from dprl.privacy.laplace import laplace_cdf as laplace_cdf
from dprl.privacy.laplace import laplace_delta as laplace_delta
from dprl.privacy.laplace import laplace_density as laplace_density
from dprl.privacy.laplace import laplace_loss_cdf as laplace_loss_cdf
from dprl.privacy.laplace import laplace_mechanism as laplace_mechanism
from dprl.privacy.laplace import laplace_scale as laplace_scale
from dprl.privacy.laplace import laplace_tail as laplace_tail
from dprl.privacy.noisy_gradients import (
    noisy_gradient_certified_sigma as noisy_gradient_certified_sigma,
)
from dprl.privacy.noisy_gradients import noisy_gradient_delta as noisy_gradient_delta
from dprl.privacy.noisy_gradients import noisy_gradient_delta_lower as noisy_gradient_delta_lower
from dprl.privacy.noisy_gradients import noisy_gradient_epsilon as noisy_gradient_epsilon
from dprl.privacy.noisy_gradients import (
    noisy_gradient_epsilon_lower as noisy_gradient_epsilon_lower,
)
from dprl.privacy.noisy_gradients import (
    noisy_gradient_renyi_epsilon as noisy_gradient_renyi_epsilon,
)
from dprl.privacy.noisy_gradients import noisy_gradient_sigma as noisy_gradient_sigma
from dprl.privacy.noisy_gradients import noisy_gradient_sigma_lower as noisy_gradient_sigma_lower
from dprl.privacy.noisy_gradients import threshold_test_delta as threshold_test_delta
from dprl.privacy.population_utility import OutputPerturbation as OutputPerturbation
from dprl.privacy.population_utility import UtilityTerms as UtilityTerms
from dprl.privacy.population_utility import average_subsampling_bias as average_subsampling_bias
from dprl.privacy.population_utility import (
    average_subsampling_sensitivity as average_subsampling_sensitivity,
)
from dprl.privacy.population_utility import average_utility as average_utility
from dprl.privacy.population_utility import global_sensitivity as global_sensitivity
from dprl.privacy.population_utility import (
    global_subsampling_sensitivity as global_subsampling_sensitivity,
)
from dprl.privacy.population_utility import subsample_and_average_mean as subsample_and_average_mean
from dprl.privacy.population_utility import (
    subsample_and_average_terms as subsample_and_average_terms,
)
from dprl.privacy.population_utility import (
    subsample_and_average_utility as subsample_and_average_utility,
)
from dprl.privacy.populations import DataSets as DataSets
from dprl.privacy.populations import Population as Population
from dprl.privacy.populations import averaging_query as averaging_query
from dprl.privacy.recalibration import equivalent_epsilon as equivalent_epsilon
from dprl.privacy.recalibration import recalibrated_guarantee as recalibrated_guarantee
from dprl.privacy.smooth_sensitivity import GaussianSmoothing as GaussianSmoothing
from dprl.privacy.smooth_sensitivity import smooth_upper_bound as smooth_upper_bound
from dprl.privacy.smooth_sensitivity import smoothing_constants as smoothing_constants
from dprl.privacy.subsampling import amplified as amplified
from dprl.privacy.subsampling import amplified_elementary as amplified_elementary
from dprl.privacy.subsampling import amplified_printed as amplified_printed
from dprl.privacy.subsampling import base_guarantee as base_guarantee
from dprl.privacy.subsampling import base_guarantee_optimal as base_guarantee_optimal
from dprl.privacy.subsampling import base_guarantee_printed as base_guarantee_printed
from dprl.privacy.subsampling import composed as composed
from dprl.privacy.subsampling import composed_printed as composed_printed
from dprl.privacy.subsampling import inversion_printed as inversion_printed
