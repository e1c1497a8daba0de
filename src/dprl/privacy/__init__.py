"""Differential privacy: guarantees and mechanisms. Nothing of reinforcement learning.

The random numbers are NumPy's. They are for study: floating-point samples of a
continuous distribution do not keep the promise that real numbers would keep
(Mironov 2012). For a real release use a library built for it, such as OpenDP.
"""

from dprl.privacy.gaussian import (
    analytic_gaussian_sigma,
    classical_gaussian_sigma,
    gaussian_delta,
    gaussian_mechanism,
)
from dprl.privacy.guarantee import Guarantee
from dprl.privacy.smooth_sensitivity import (
    GaussianSmoothing,
    smooth_upper_bound,
)

__all__ = [
    "GaussianSmoothing",
    "Guarantee",
    "analytic_gaussian_sigma",
    "classical_gaussian_sigma",
    "gaussian_delta",
    "gaussian_mechanism",
    "smooth_upper_bound",
]
