r"""Every mechanism of the book, audited: one table, by :func:`audit_trial`.

Each mechanism runs on the worst neighbours known, at the three promises of :data:`PROMISES`. Two
things are measured.

*mu of Gaussian rounds.* :func:`gaussian_rows` listens to the running mechanism
(:mod:`experiments.chapter_7.listening`) and divides the shift of a round's mean, the past being the
same, by the standard deviation of draws of its noise. The draws give it to within a percent at any
promise. A row's epsilon is that of the round: the least with which mu_k, the square root of its
share times mu, is (epsilon, delta)-private. The row "all rounds" has the root of the sum of
mu_k^2, and the whole promise.

*epsilon from outputs.* :func:`~dprl.privacy.audit.audit_samples` at confidence 0.99, from outputs
of the whole mechanism or of one round. It has little power where the promise is strong.

``sound`` says that nothing contradicts the promise: epsilon_lower_99 is at most epsilon, the noise
does not depend on the data where it must not, and mu_measured is at most 2 % above mu.

The mechanisms are in :mod:`experiments.chapter_7.audited_rounds` and
:mod:`experiments.chapter_7.audited_outputs`; the broken versions are the package's own programs
with one expression of their source changed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import optimize

from dprl import _validation as check
from dprl._validation import FloatArray
from dprl.privacy import Guarantee, audit_samples, gaussian_delta
from dprl.privacy.gaussian_dp import gaussian_mu
from dprl.private_evaluation import NEIGHBOURS
from dprl.private_evaluation.recentred_intervals import INTERVAL_SETTINGS
from experiments.chapter_7.audited_outputs import OutputsCase, whole_mechanisms
from experiments.chapter_7.audited_rounds import (
    RoundsCase,
    broken_rounds,
    gaussian_mechanisms,
    interval_spread_mu,
)
from experiments.chapter_7.listening import (
    HeardRound,
    exact_mu,
    measured_mu,
    overhear,
    transcript_score,
)

#: The promises (epsilon, delta); mechanisms without a delta are audited at the same epsilon.
PROMISES = ((1.0, 1e-6), (3.0, 1e-3), (5.0, 1e-2))

COLUMNS = [
    "mechanism",
    "epsilon",
    "delta",
    "neighbours",
    "draws",
    "statistic",
    "epsilon_lower_99",
    "mu_measured",
    "sound",
]
KEYS = ["mechanism", "epsilon", "delta", "neighbours", "statistic"]

CONFIDENCE = 0.99
TOLERANCE = 0.02  # of mu_measured
ALL = "all rounds"
OUTPUTS, BROKEN, SPREAD = "outputs", "broken", "spread"  # parts of the table, see audit_trial


@dataclass(frozen=True)
class AuditSizes:
    """How long the audits are.

    Attributes
    ----------
    copies : int
        Draws of the noise of each round: half for its covariance, a quarter for outputs on X,
        a quarter for outputs on X'.
    outputs : int
        Outputs of whole mechanisms on each data set.
    transcripts : int
        Whole runs of mechanisms with several rounds on each data set, at the last promise.
    pasts : int
        Pasts that are tried for the one on which a pair differs most.
    """

    copies: int = 20_000
    outputs: int = 20_000
    transcripts: int = 20
    pasts: int = 4


@dataclass(frozen=True)
class Finding:
    """What draws of one statistic on two neighbours showed; ``sound`` as far as mu says."""

    statistic: str
    draws: int
    epsilon_lower: float
    mu: float = np.nan
    sound: bool = True


def row(mechanism: str, promise: Guarantee, pair: str, found: Finding) -> dict[str, Any]:
    """One line of the table; not sound either if ``epsilon_lower`` exceeds the promise."""
    return dict(
        zip(
            COLUMNS,
            [
                mechanism,
                float(promise.epsilon),
                float(promise.delta),
                f"{promise.neighbours}: {pair}",
                int(found.draws),
                found.statistic,
                float(found.epsilon_lower),
                float(found.mu),
                bool(found.sound and found.epsilon_lower <= promise.epsilon),
            ],
            strict=True,
        )
    )


# -- Gaussian rounds ------------------------------------------------------------------------------


def epsilon_of_mu(mu: float, delta: float) -> float:
    """The least epsilon with which mu-GDP is (epsilon, delta)-private; 0 if none is needed.

    >>> round(epsilon_of_mu(0.2367, 1e-6), 3)
    1.0
    """
    strength, tail = check.positive("mu", mu), check.open_unit("delta", delta)

    def excess(e: float) -> float:
        return float(np.log(max(gaussian_delta(strength, 1.0, e), 1e-300) / tail))

    if excess(0.0) <= 0:
        return 0.0
    most = strength * (strength / 2 + 8)
    return float(optimize.brentq(excess, 0.0, most, xtol=1e-12))


def gaussian_rows(
    case: RoundsCase, promise: tuple[float, float], sizes: AuditSizes, rng: np.random.Generator
) -> Iterator[dict[str, Any]]:
    """A row for each round, and one for all of them where there are several."""
    epsilon, delta = promise
    mu = gaussian_mu(epsilon, delta)
    heard: dict[str, dict[str, list[HeardRound]]] = {}
    for pair_name, pair in case.pairs.items():
        seeds = [int(x) for x in rng.integers(2**31, size=sizes.pasts)]
        tried = {x: overhear(case.program, pair, seed=x) for x in seeds}
        # On many pasts a pair differs alike; which of them counts must not hang on rounding.
        seed = max(seeds, key=lambda x: float(f"{root_of_squares(map(exact_mu, tried[x])):.6g}"))
        for k, one in enumerate(overhear(case.program, pair, seed=seed, copies=sizes.copies)):
            name = case.name_of(k, one)
            if name is not None:
                heard.setdefault(name, {}).setdefault(pair_name, []).append(one)
    if set(heard) != set(case.rounds):
        raise ValueError(f"{case.name}: heard {sorted(heard)}, not {sorted(case.rounds)}")
    for name, share in case.rounds.items():
        pair_name, most = max(
            ((p, root_of_squares(map(measured_mu, parts))) for p, parts in heard[name].items()),
            key=lambda found: found[1],
        )
        parts = heard[name][pair_name]
        own = np.sqrt(share) * mu
        least = epsilon if share == 1 else epsilon_of_mu(own, delta)
        limit = Guarantee(least, delta, case.neighbours)
        depends = any(part.noise_depends_on_data for part in parts)
        audit = audit_samples(
            *round_scores(parts),
            delta=delta,
            rng=rng,
            confidence=CONFIDENCE,
            score=lambda z: z,
        )
        what = "likelihood ratio" if depends else "mean shift over noise"
        found = Finding(
            f"{name}: {what}",
            sizes.copies // 4,
            audit.epsilon_lower,
            np.nan if depends else most,
            sound=not depends and most <= own * (1 + TOLERANCE),
        )
        yield row(case.name, limit, pair_name, found)
    if len(case.rounds) > 1:
        totals = {
            p: root_of_squares(measured_mu(x) for parts in heard.values() for x in parts.get(p, ()))
            for p in case.pairs
        }
        pair_name = max(totals, key=lambda p: totals[p])
        depends = any(x.noise_depends_on_data for parts in heard.values() for x in parts[pair_name])
        whole = Guarantee(epsilon, delta, case.neighbours)
        found = Finding(
            f"{ALL}: root of the sum of squares",
            sizes.copies,
            0.0,
            np.nan if depends else totals[pair_name],
            sound=not depends and totals[pair_name] <= mu * (1 + TOLERANCE),
        )
        yield row(case.name, whole, pair_name, found)
        if sizes.transcripts and case.whole_runs and promise == PROMISES[-1]:
            found = Finding(
                "whole runs: likelihood ratio",
                sizes.transcripts,
                transcript_audit(case, pair_name, delta, sizes.transcripts, rng),
            )
            yield row(case.name, whole, pair_name, found)


def root_of_squares(numbers: Any) -> float:
    """The norm of a vector."""
    return float(np.linalg.norm(list(numbers)))


def round_scores(parts: Sequence[HeardRound]) -> tuple[FloatArray, FloatArray]:
    """Log-likelihood ratios of outputs on X and on X', summed over rounds with one past.

    Half of the draws give the covariances, a quarter each the outputs.
    """
    totals: list[FloatArray] = [np.zeros(1), np.zeros(1)]
    for part in parts:
        half, quarter = len(part.draws) // 2, len(part.draws) // 4
        flat = [x.reshape(len(x), -1) for x in (part.draws, part.draws_other)]
        size, axes = np.linalg.eigh(flat[0][:half].T @ flat[0][:half] / half)
        axes = axes[:, size > 1e-10 * size[-1]]  # of a symmetric matrix, one of two equal entries
        flat = [x @ axes for x in flat]
        shift = part.shift.ravel() @ axes
        laws = [np.linalg.inv(x[:half].T @ x[:half] / half) for x in flat]
        outputs = (flat[0][half : half + quarter] + shift, flat[1][half + quarter :][:quarter])
        for i, y in enumerate(outputs):
            near, far = (
                np.einsum("ki,ij,kj->k", z, law, z)
                for z, law in zip((y - shift, y), laws, strict=True)
            )
            logs = [np.linalg.slogdet(law)[1] for law in laws]
            totals[i] = totals[i] + (far - near + logs[0] - logs[1]) / 2
    return totals[0], totals[1]


def transcript_audit(
    case: RoundsCase, pair_name: str, delta: float, runs: int, rng: np.random.Generator
) -> float:
    """Lower bound on epsilon from everything that whole runs release."""
    pair = case.pairs[pair_name]
    seeds = rng.integers(2**62, size=(2, runs))
    scores = [
        np.array([transcript_score(case.program, data, pair, int(s)) for s in part])
        for data, part in zip(pair, seeds, strict=True)
    ]
    found = audit_samples(*scores, delta=delta, rng=rng, confidence=CONFIDENCE, score=lambda z: z)
    return found.epsilon_lower


# -- outputs --------------------------------------------------------------------------------------


def output_row(case: OutputsCase, sizes: AuditSizes, rng: np.random.Generator) -> dict[str, Any]:
    """The row of a mechanism from outputs on two neighbours."""
    outputs = case.outputs(sizes.outputs, rng)
    found = audit_samples(
        *outputs, delta=case.promise.delta, rng=rng, confidence=CONFIDENCE, **case.options
    )
    mu, most = np.nan, np.inf
    if np.isfinite(case.shift):
        noise = np.concatenate([outputs[0] - case.shift, outputs[1]])
        mu = case.shift / np.sqrt((noise**2).mean())
        most = gaussian_mu(case.promise.epsilon, case.promise.delta) * (1 + TOLERANCE)
    released = Finding(
        case.statistic, len(outputs[0]), found.epsilon_lower, mu, sound=not mu > most
    )
    return row(case.name, case.promise, case.pair, released)


def spread_row(epsilon: float, delta: float, seed: int) -> dict[str, Any]:
    """The spread that the intervals of RC release, from runs with noise 0 and 1."""
    share = INTERVAL_SETTINGS.spread_share
    own = np.sqrt(share) * gaussian_mu(epsilon, delta)
    mu = interval_spread_mu(epsilon, delta, seed)
    limit = Guarantee(epsilon_of_mu(own, delta), delta, NEIGHBOURS)
    sound = mu <= own * (1 + TOLERANCE)
    found = Finding("spread: mean shift over noise", 2, 0.0, mu, sound)
    return row("RC, intervals", limit, "highest everywhere / no step", found)


def audit_tasks(promises: Sequence[tuple[float, float]], sizes: AuditSizes) -> list[dict[str, Any]]:
    """Tasks of :func:`audit_trial`: all parts of the table for each (epsilon, delta)."""
    return [
        {"promise": tuple(promise), "part": part, "sizes": sizes}
        for promise in promises
        for part in (OUTPUTS, *(x.name for x in gaussian_mechanisms(*promise)), BROKEN, SPREAD)
    ]


def audit_trial(task: Mapping[str, Any], seed: np.random.SeedSequence) -> list[dict[str, Any]]:
    """The rows of one part, with ``COLUMNS``; "broken: ..." are versions with a mistake.

    A trial of :func:`companion.sweeps.table`. ``task`` has ``promise``, one of :data:`PROMISES`,
    ``sizes``, an :class:`AuditSizes`, and ``part``: the name of a mechanism of Gaussian rounds,
    or ``OUTPUTS``, ``BROKEN`` or ``SPREAD`` of this module, for all of a kind.
    """
    epsilon, delta = promise = task["promise"]
    part, sizes = task["part"], task["sizes"]
    rng = np.random.default_rng(seed)
    if part == OUTPUTS:
        return [output_row(case, sizes, rng) for case in whole_mechanisms(epsilon, delta)]
    if part == SPREAD:
        return [spread_row(epsilon, delta, int(rng.integers(2**31)))]
    if part == BROKEN:
        cases = list(broken_rounds(epsilon, delta))
    else:
        cases = [case for case in gaussian_mechanisms(epsilon, delta) if case.name == part]
    return [found for case in cases for found in gaussian_rows(case, promise, sizes, rng)]
