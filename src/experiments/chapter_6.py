r"""Trials of GPOPE for the figures: some noises, some step sizes, the error of the last iterate.

Step sizes are given as *reach*, step size times clipping norm, beta h: where every gradient is
longer than h only this product matters. Tuning and judging are two runs, on data of their own:
the paper tunes "using similar public data" (section 7), and a step size that was chosen by the
private data would not be covered by the promise.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from dprl import _validation as check
from dprl._validation import FloatArray
from dprl.off_policy.saddle_point import BidiagonalStatistics, Statistics
from dprl.private_evaluation.gpope import (
    ConstantStep,
    Descent,
    Iterates,
    Step,
    gpope_runs_not_private,
)

#: Trials of one task of a sweep. They share the data, not draws and noise.
GROUP = 8


class GPOPESetting(NamedTuple):
    """One curve's point: a name for the noise, its sigma in units of h, and the reach beta h."""

    noise: str
    sigma: float
    reach: float


def grid(noises: Mapping[str, float], reaches: Iterable[float]) -> list[GPOPESetting]:
    """Every noise with every reach.

    >>> grid({"some": 1.0}, [0.1, 0.2])[1]
    GPOPESetting(noise='some', sigma=1.0, reach=0.2)
    """
    every = list(reaches)
    return [GPOPESetting(name, sigma, reach) for name, sigma in noises.items() for reach in every]


def pieces(trials: int, **task: Any) -> list[dict[str, Any]]:
    """The task, once for each :data:`GROUP` trials; what a killed sweep loses is one of these.

    >>> pieces(10, m=100)
    [{'m': 100, 'trials': 8, 'piece': 0}, {'m': 100, 'trials': 2, 'piece': 8}]
    """
    number = check.whole("trials", trials)
    return [{**task, "trials": min(GROUP, number - k), "piece": k} for k in range(0, number, GROUP)]


def errors(
    data: Statistics | BidiagonalStatistics,
    error: Callable[[FloatArray], FloatArray],
    settings: Sequence[GPOPESetting],
    *,
    clip: float,
    iterations: int,
    trials: int,
    rng: np.random.Generator,
) -> list[dict[str, Any]]:
    """Run all settings; one row for each setting and trial. *Not private.*

    Single precision: rounding is far below noise and sampling error.

    Parameters
    ----------
    data, iterations, trials
        As in :func:`dprl.private_evaluation.gpope.gpope_runs_not_private`.
    error : callable
        From parameters, shape (..., n), to numbers, shape (...): the MSPBE, say.
    settings : sequence of GPOPESetting
        Noises and reaches; a reach is > 0.
    clip : float
        h > 0; the step size of a setting is its reach divided by h.
    rng : numpy.random.Generator
        Its seed decides draws and noise; the generator itself does not move on.

    Returns
    -------
    list of dict
        ``noise``, ``reach``, ``error`` of the last iterate, and ``clipped``, the share of
        gradients that were longer than h, which is itself not private.
    """
    seed = check.generator(rng).bit_generator.seed_seq.generate_state(1)[0]
    bound = check.positive("clip", clip)
    if not settings:
        raise ValueError("settings must name at least one noise and reach, got none")
    steps = [ConstantStep(check.positive("reach", s.reach) / bound) for s in settings]
    seen = gpope_runs_not_private(
        data,
        Descent(steps, bound, iterations, precision="single"),
        [s.sigma for s in settings],
        np.random.default_rng(int(seed)),
        trials=trials,
    )
    return [
        {"noise": s.noise, "reach": s.reach, "error": float(e), "clipped": float(c)}
        for s, es, cs in zip(settings, error(seen.theta), seen.clipped / iterations, strict=True)
        for e, c in zip(es, cs, strict=True)
    ]


def without_the_noise(iterates: Iterates, steps: Sequence[Step], iterations: int) -> FloatArray:
    """Differences of the noisy gradients of two settings that share their noise. *An attack.*

    Step i of setting j moves the iterate by minus beta_ij times its noisy gradient, and the
    schedules are public. So the iterates give the noisy gradients away, and the difference of
    two settings is that of two clipped gradients of *one* trajectory, without any noise.

    Returns them in shape (N, trials, 2n), for iterates of two settings with one sigma and clipping
    norm, all N >= 1 of them, started at zero, and the two schedules.

    >>> one = Statistics([[[0.0]]], [[5.0]], [[[0.0]]])  # its gradient never changes
    >>> both = [ConstantStep(0.1), ConstantStep(0.2)]
    >>> descent = Descent(both, clip=1.0, iterations=2, at=[1, 2])
    >>> runs = gpope_runs_not_private(one, descent, 100.0, np.random.default_rng(1))
    >>> bool(abs(without_the_noise(runs, both, 2)).max() < 1e-10)
    True
    """
    number = check.whole("iterations", iterations)
    if iterates.at != tuple(range(1, number + 1)):
        raise ValueError(f"iterates must hold all iterates 1 .. {number}, got {iterates.at}")
    if len(steps) != 2 or iterates.theta.shape[0] != 2:
        raise ValueError(
            f"there must be two settings, got {len(steps)} steps and {iterates.theta.shape[0]} runs"
        )
    x = np.concatenate([iterates.theta_at, iterates.w_at], axis=-1)
    moved = -np.diff(np.concatenate([np.zeros_like(x[:1]), x]), axis=0)
    size = np.stack([s.size(np.arange(number) + 1, number) for s in steps], axis=1)
    gradients = moved / size[:, :, None, None]
    difference: FloatArray = gradients[:, 0] - gradients[:, 1]
    return difference


def best_reaches(table: pd.DataFrame, keys: Sequence[str]) -> pd.Series[float]:
    """The reach with the least mean error, for each value of the keys, such as ``m`` and ``noise``.

    The table has columns ``reach``, ``error`` and the keys; one row for each setting and trial.

    >>> rows = [(1, 0.1, 3.0), (1, 0.1, 1.0), (1, 0.2, 1.5), (2, 0.1, 4.0), (2, 0.2, 5.0)]
    >>> best_reaches(pd.DataFrame(rows, columns=["m", "reach", "error"]), ["m"]).to_dict()
    {1: 0.2, 2: 0.1}
    """
    missing = {"reach", "error", *keys} - set(table.columns)
    if missing:
        raise ValueError(f"the table must have the columns {sorted(missing)} too")
    mean = table.groupby([*keys, "reach"], as_index=False)["error"].mean()
    best = mean.loc[mean.groupby(list(keys))["error"].idxmin()].set_index(list(keys))
    reaches: pd.Series[float] = best["reach"]
    return reaches
