r"""BCQ with private gradients: what remains of the return and of the leak, over epsilon.

From each oracle a pool of 2 M trajectories; a fair coin for each, independent of the others,
says whether it is in the training set, which so has M on average. Models come in pairs on
complementary sets (:class:`PrivateRun`), trained by :func:`dprl.agents.private_bcq.train` with the
noise that :func:`dprl.privacy.poisson_gaussian.poisson_gaussian_noise` asks for at each epsilon,
with no noise (epsilon infinite, clipped as before), and with neither noise nor clipping. All have
the same steps, networks and coins. For epsilon = 0 the networks are left untrained.
Neighbours add or remove one trajectory.

The audit is one game over all oracles (:mod:`dprl.privacy.one_run`): the first model of the first
pair of each oracle, its pool as canaries; it guesses "in" for the tenth of each pool with the
highest scores and "out" for the tenth with the lowest, by one threshold for all trajectories.

Sources: Abadi et al. 2016; Mahloujifar, Melis and Chaudhuri 2025.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd

from companion.sweeps import code_of, fingerprint
from dprl import _validation as check
from dprl._validation import BoolArray, FloatArray
from dprl.agents import bcq, private_bcq
from dprl.agents.bcq import BCQParameters
from dprl.agents.bcq_population import BCQPopulation
from dprl.agents.episodes import Episodes
from dprl.agents.networks import parameter_count
from dprl.agents.private_bcq import PrivateSettings
from dprl.membership import metrics
from dprl.membership.attacks import lira, scores
from dprl.privacy.one_run import one_run_epsilon
from dprl.privacy.poisson_gaussian import poisson_gaussian_epsilon, poisson_gaussian_noise
from experiments.chapter_5 import oracles, study
from experiments.chapter_5.stages import Watch, computed_once
from experiments.chapter_5.study import StudySettings

#: Confidence of the audit's two bounds (every state, white box) together.
CONFIDENCE = 0.95
#: Share of a pool that is guessed to be in, and that is guessed to be out.
GUESSED = 0.1
#: Initial states of the roll-outs that returns are measured on, at most.
ROLLOUTS = 100


@dataclass(frozen=True)
class PrivateRun:
    """Everything that a run depends on.

    Parameters
    ----------
    study : StudySettings
        Whose oracles collect.
    oracles : tuple of int
        Which of them; at least two.
    size : int
        M; pools hold 2 M trajectories.
    learner : PrivateSettings
        Of all models, but for ``clip`` and ``noise``, see the module; its ``rate`` and ``divisor``
        must fit M, and its clip is that of the models that are clipped.
    steps : int
        Of each training.
    epsilons : tuple of float
        > 0, rising.
    delta : float
    models : int
        Models per oracle and epsilon: 1, or an even number. Likelihood ratios need six.
    seed : int
    """

    study: StudySettings
    oracles: tuple[int, ...]
    size: int
    learner: PrivateSettings
    steps: int
    epsilons: tuple[float, ...] = (1.0, 3.0, 10.0)
    delta: float = 1e-5
    models: int = 1
    seed: int = 31

    def __post_init__(self) -> None:
        check.instance("study", self.study, StudySettings)
        check.instance("learner", self.learner, PrivateSettings)
        if len(self.oracles) < 2:
            raise ValueError("intervals are over oracles: at least two are needed")
        if not 1 <= check.whole("size", self.size, 2) <= self.study.trajectories:
            raise ValueError(f"an oracle has {2 * self.study.trajectories} trajectories")
        if check.whole("models", self.models) > 1 and self.models % 2:
            raise ValueError(f"models must be 1 or even, got {self.models}")
        check.whole("steps", self.steps)
        check.open_unit("delta", self.delta)
        for one in self.epsilons:
            check.positive("each of epsilons", one)

    def settings(self, epsilon: float) -> PrivateSettings:
        """Of the models with this epsilon; infinite for no noise, NaN for no clipping either."""
        if epsilon == 0 or math.isnan(epsilon):
            return replace(self.learner, noise=0.0, clip=math.inf)
        if math.isinf(epsilon):
            return replace(self.learner, noise=0.0)
        noise = poisson_gaussian_noise(epsilon, self.delta, self.learner.rate, self.steps)
        return replace(self.learner, noise=noise)

    @property
    def targets(self) -> tuple[float, ...]:
        """All epsilons: 0 first, infinity and NaN last."""
        return (0.0, *self.epsilons, math.inf, math.nan)


def coins(run: PrivateRun) -> BoolArray:
    """Who is in: shape (O, models, 2 M); independent fair coins, complementary in pairs."""
    rng = np.random.default_rng([run.seed, 0])
    pairs = max(run.models // 2, 1)
    first = rng.random((len(run.oracles), pairs, 1, 2 * run.size)) < 0.5
    both = np.concatenate([first, ~first], axis=2).reshape(len(run.oracles), 2 * pairs, -1)
    return both[:, : run.models]


def train(run: PrivateRun, pools: Sequence[Episodes], epsilon: float) -> BCQPopulation:
    """Model ``o * models + m`` is model m of the o-th oracle."""
    members, settings = coins(run), run.settings(epsilon)
    seeds = np.random.default_rng([run.seed, 1]).integers(2**31, size=members.shape[:2])

    def one(at: tuple[int, ...]) -> BCQParameters:
        pool, seed = pools[at[0]], int(seeds[at])
        if epsilon == 0:
            sizes = pool.observation_size, pool.action_size
            return bcq.initialise(jax.random.key(seed), *sizes, settings.bcq).parameters
        ends = run.study.timeout_is_terminal
        rng = np.random.default_rng(seed)
        return private_bcq.train(
            pool, members[at], settings, run.steps, rng, timeout_is_terminal=ends
        )

    found = [one(at) for at in np.ndindex(members.shape[:2])]
    stacked = jax.tree.map(lambda *leaves: jnp.stack(leaves), *found)
    return BCQPopulation(run.learner.bcq, stacked)


def table(run: PrivateRun, folder: str | Path = "_build/membership") -> pd.DataFrame:
    """One row for each epsilon and access ("every-state", "white-box").

    ``trajectories, oracles, models, steps, rate, weights``
        M, O, models in all, U, q, and how many numbers each release holds.
    ``training, epsilon, delta, noise, spent``
        "untrained", "private", "clipped" without noise, or "not clipped" either; epsilon aimed at
        (0 of untrained networks, NaN without a promise), noise multiplier, and what the accountant
        certifies for it.
    ``return_mean, return_low, return_high``
        Of greedy roll-outs up to T_max, undiscounted; 95 % intervals here are over oracles.
    ``auc, auc_low, auc_high, lira, lira_low, lira_high``
        Of members against the rest of the pool, by one threshold and by offline likelihood
        ratios (NaN with fewer than six models per oracle).
    ``canaries, guesses, right, epsilon_low``
        The audit: its lower bound at delta, with :data:`CONFIDENCE` for both accesses together.
    """
    check.instance("run", run, PrivateRun)
    key = fingerprint(code_of(_rows, study.collect), run)
    with computed_once(Path(folder) / f"private-{run.size}-{key}", Watch()) as kept:
        if not kept.done:
            collected = study.collect(run.study, folder)
            pools = [
                Episodes.concatenate(collected[o]).select(np.arange(2 * run.size))
                for o in run.oracles
            ]
            members = coins(run)
            rows = [row for one in run.targets for row in _rows(run, pools, members, one)]
            pd.DataFrame(rows).to_csv(kept.place / "table.csv", index=False)
        found = _named(pd.read_csv(kept.place / "table.csv"))
    found.attrs["seconds"] = kept.seconds
    return found


def _named(found: pd.DataFrame) -> pd.DataFrame:
    """What the trainings without a promise are, by name; records hold no infinite numbers."""
    kinds = [
        "untrained"
        if e == 0
        else "not clipped"
        if np.isnan(e)
        else "clipped"
        if np.isinf(e)
        else "private"
        for e in found["epsilon"]
    ]
    finite = found.replace([np.inf, -np.inf], np.nan)
    finite.insert(list(finite).index("epsilon"), "training", kinds)
    return finite


def _rows(
    run: PrivateRun, pools: list[Episodes], members: BoolArray, epsilon: float
) -> list[dict[str, object]]:
    models, settings = train(run, pools, epsilon), run.settings(epsilon)
    count, each = members.shape[:2]
    accused = [pools[o] for o in range(count) for _ in range(each)]
    outputs = oracles.query_outputs(
        models, pools[0].initial_states[:ROLLOUTS], run.study.task, seed=run.seed
    )
    returns = np.array([one.returns.mean() for one in outputs])
    owner = np.repeat(np.arange(count), each)
    trained = models.model(0)._replace(target_perturbation=(), target_critics=())
    spent = 0.0 if epsilon == 0 else math.inf
    if settings.noise:
        spent = poisson_gaussian_epsilon(settings.noise, settings.rate, run.steps, run.delta)
    fixed: dict[str, object] = {
        "trajectories": run.size,
        "oracles": count,
        "models": count * each,
        "steps": run.steps,
        "rate": settings.rate,
        "weights": parameter_count(trained),
        "epsilon": epsilon,
        "delta": run.delta,
        "noise": settings.noise,
        "spent": spent,
        **_interval("return", returns, owner, "return_mean"),
    }
    key = jax.random.fold_in(jax.random.key(run.seed), 2)
    found = {
        "every-state": scores.every_state_score(models, accused, key=key),
        "white-box": scores.vae_score(models, accused),
    }
    rows = []
    for access, flat in found.items():
        values = np.nan_to_num(flat, nan=-1e6, neginf=-1e6).reshape(members.shape)
        rows.append(fixed | {"access": access} | _leak(run, members, values, owner))
    return rows


def _leak(
    run: PrivateRun, members: BoolArray, values: FloatArray, owner: np.ndarray
) -> dict[str, object]:
    out = _interval("auc", _areas(members, values), owner, "auc")
    ratios = np.full(members.shape[:2], np.nan).ravel()
    if run.models >= 6:
        pairs = np.arange(run.models) // 2
        logarithms = -np.log(np.maximum(-values, np.finfo(float).tiny))
        both = zip(logarithms, members, strict=True)
        judged = np.stack([lira.offline(s, m, groups=pairs) for s, m in both])
        ratios = _areas(members, judged)
    out |= _interval("lira", ratios, owner, "lira")
    right, guesses, canaries = guess(members[:, 0], values[:, 0])
    each = 1 - (1 - CONFIDENCE) / 2
    found = one_run_epsilon(right, guesses, canaries, run.delta, each)
    return out | {
        "canaries": canaries,
        "guesses": guesses,
        "right": right,
        "epsilon_low": found,
    }


def guess(members: BoolArray, values: FloatArray) -> tuple[int, int, int]:
    """Right guesses, guesses and canaries of the audit; both arguments (runs, n).

    Guessed are, in each run, the :data:`GUESSED` share of the n with the highest scores and as
    many with the lowest.

    >>> guess(np.array([[True] * 5 + [False] * 5]), np.arange(10.0)[None])
    (0, 2, 10)
    """
    number = math.ceil(GUESSED * members.shape[1])
    order = np.argsort(values, axis=1, kind="stable")
    low = np.take_along_axis(members, order[:, :number], axis=1)
    high = np.take_along_axis(members, order[:, -number:], axis=1)
    right = int((~low).sum() + high.sum())
    return right, 2 * number * len(members), int(members.size)


def _areas(members: BoolArray, values: FloatArray) -> FloatArray:
    return np.array(
        [metrics.roc_curve(members[at], values[at]).area for at in np.ndindex(members.shape[:2])]
    )


def _interval(name: str, values: FloatArray, owner: np.ndarray, mean: str) -> dict[str, object]:
    if np.isnan(values).any():
        return dict.fromkeys((mean, f"{name}_low", f"{name}_high"), np.nan)
    over = metrics.clustered_interval(values, owner)
    return {mean: over.mean, f"{name}_low": over.low, f"{name}_high": over.high}
