r"""Average then perturb: average least-squares estimates of sub-samples, add noise once.

The blue curves of figures 4.2 and 4.3 of the thesis, which does not say what noise they
add. X are n trajectories, I_1 .. I_m index sets of k each, drawn without looking at X;
theta_i is LSW or LSL on X_{I_i}, without noise. Release

    (1/m) sum_i theta_i + N(0, s^2 I).                                                  (1)

**Promise.** For given index sets let b be the largest number of them that contain one
index. Replacing that trajectory changes at most b of the m estimates, each by at most the
global sensitivity G of LSW or LSL (their ``global_sensitivity``), so

    || (1/m) sum_i theta_i - (1/m) sum_i theta'_i ||_2 <= (b/m) G.                      (2)

Take s from the analytic Gaussian mechanism for this distance. Then, neighbours replace one
trajectory, (1) is (eps, delta)-private for each choice of the index sets, which do not depend on
the data: even the index sets and the release together are (eps, delta)-private.
Unlike in :mod:`dprl.private_evaluation.subsample_and_average` the sets need not be secret,
and the proof gains nothing from their being random.

For m disjoint blocks b = 1: the sample-and-aggregate method of Nissim, Raskhodnikova and
Smith (2007) with the mean.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from dprl import _validation as check
from dprl._validation import FloatArray
from dprl.features import feature_matrix
from dprl.privacy import Guarantee, analytic_gaussian_sigma
from dprl.private_evaluation.common import NEIGHBOURS, LeastSquares, PrivateEstimate
from dprl.private_evaluation.subsample_and_average import Draws
from dprl.private_evaluation.subsamples import Block, SubsampleTable, checked_sizes, draw_blocks
from dprl.trajectories import FirstVisitReturns


@dataclass(frozen=True)
class Blocks:
    """m = ``subsamples`` disjoint blocks of k = ``size`` trajectories at random; m k <= n."""

    subsamples: int
    size: int


@dataclass(frozen=True, eq=False)
class AverageDiagnostics:
    """What happens inside average-then-perturb before the noise. *Not private.*

    Attributes
    ----------
    mean : ndarray, shape (d,)
        (1/m) sum_i theta_i: a function of the data.
    inclusions, sensitivity, noise : int, float, float
        b, (b/m) G of equation (2), and the standard deviation of the noise; public.
    """

    mean: FloatArray
    inclusions: int
    sensitivity: float
    noise: float


def average_then_perturb_diagnostics(
    data: FirstVisitReturns,
    estimator: LeastSquares,
    design: Draws | Blocks,
    *,
    epsilon: float,
    delta: float,
    rng: np.random.Generator,
) -> AverageDiagnostics:
    """The average without noise, and the noise of it, for fresh index sets. *Not private.*

    Parameters, errors and index sets, given a generator in the same state, as in
    :func:`average_then_perturb`, which adds the noise.
    """
    check.instance("data", data, FirstVisitReturns)
    check.instance("estimator", estimator, LeastSquares)
    if not isinstance(design, (Draws, Blocks)):
        raise TypeError(f"design must be Draws or Blocks, got {type(design).__name__}")
    n, m, k = checked_sizes(len(data), design.subsamples, design.size)
    check.generator(rng)
    eps, tail = check.positive("epsilon", epsilon), check.open_unit("delta", delta)
    table = SubsampleTable(data, estimator.f_min, estimator.f_max, k)
    total = np.zeros(feature_matrix(estimator.features, table.n_states).shape[1])
    included = np.zeros(n, dtype=np.int64)
    for block in _index_sets(n, m, k, design, rng):
        if block.dtype == bool:
            included += block.sum(axis=0)
        else:
            included += np.bincount(block.ravel(), minlength=n)
        for part in table.statistics(block):
            total += estimator.thetas(part).sum(axis=0)
    most = int(included.max())
    step = estimator.global_sensitivity(k)
    sensitivity, noise = noise_of_average(step, m, most, eps, tail)
    return AverageDiagnostics(total / m, most, sensitivity, noise)


def noise_of_average(
    sensitivity: float, subsamples: int, inclusions: int, epsilon: float, delta: float
) -> tuple[float, float]:
    """Sensitivity (2) of the average of m estimates, and the noise of each parameter.

    From G of one estimate, m, b and the promise of the one release, all public.
    """
    of_average = inclusions / subsamples * sensitivity  # (2)
    return of_average, of_average * _unit_noise(epsilon, delta)


@lru_cache(maxsize=1024)
def _unit_noise(epsilon: float, delta: float) -> float:
    return analytic_gaussian_sigma(1.0, epsilon, delta)


def _index_sets(
    n: int, m: int, k: int, design: Draws | Blocks, rng: np.random.Generator
) -> Iterator[Block]:
    if isinstance(design, Draws):
        return draw_blocks(n, m, k, rng)
    if m * k > n:
        raise ValueError(f"at most floor(n / k) = {n // k} blocks of {k} are disjoint, got {m}")
    return iter([rng.permutation(n)[: m * k].reshape(m, k).astype(np.int32)])


def average_then_perturb(
    data: FirstVisitReturns,
    estimator: LeastSquares,
    design: Draws | Blocks,
    *,
    epsilon: float,
    delta: float,
    rng: np.random.Generator,
) -> PrivateEstimate:
    """LSW or LSL on sub-samples without noise, their mean, and one Gaussian release of it.

    Parameters and result as in :func:`~dprl.private_evaluation.subsample_and_average`, but

    Parameters
    ----------
    design : Draws or Blocks
        m independent index sets of size k, or m disjoint blocks. The release is one: the
        accounting of Draws plays no part.
    epsilon, delta : float
        The promise; epsilon > 0, delta in (0, 1).

    Examples
    --------
    >>> from dprl.features import tabular
    >>> from dprl.private_evaluation import LSW
    >>> data = FirstVisitReturns(np.full((50, 2), 0.5), np.ones((50, 2), dtype=bool))
    >>> lsw, ten, rng = LSW(tabular(2), [1, 1], f_max=1), Blocks(10, 5), np.random.default_rng(1)
    >>> print(average_then_perturb(data, lsw, ten, epsilon=1, delta=0.01, rng=rng).guarantee)
    (1, 0.01)-differentially private; neighbours: replace one trajectory
    """
    inside = average_then_perturb_diagnostics(
        data, estimator, design, epsilon=epsilon, delta=delta, rng=rng
    )
    noisy = inside.mean + inside.noise * rng.standard_normal(inside.mean.shape)
    return PrivateEstimate(check.representable(noisy), Guarantee(epsilon, delta, NEIGHBOURS))
