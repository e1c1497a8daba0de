r"""ORL-Auditor on the models of a study, with the control that its authors' setting lacks.

A data set is the first half of an oracle's trajectories. Shadow models and a critic are trained on
it (:mod:`dprl.membership.attacks.orl_auditor`), and the models of the study are suspects, of three
kinds (:data:`KINDS`):

* ``trained on it``: the study's model of this half, and each shadow in turn against the others;
* ``same oracle``: the study's model of the *other* half of the same oracle, which was not
  trained on a single trajectory of the data set;
* ``other oracle``: all models of the other oracles.

"Was this data set used?" is answered only if the first kind is accepted and the second is not.
Acceptance of the first two alike would mean that the audit recognises the oracle.

Sources: Du et al. 2024.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import jax
import numpy as np
import pandas as pd

from companion.sweeps import code_of, fingerprint
from dprl import _validation as check
from dprl._validation import FloatArray
from dprl.agents import bcq_population
from dprl.agents.bcq_population import BCQPopulation
from dprl.membership.attacks import orl_auditor
from dprl.membership.attacks.orl_auditor import CriticSettings
from experiments.chapter_5 import study
from experiments.chapter_5.stages import Watch, computed_once, integers
from experiments.chapter_5.study import Study, StudySettings

#: What the suspects are.
KINDS = ("trained on it", "same oracle", "other oracle")


@dataclass(frozen=True)
class AuditRun:
    """Everything that a run depends on.

    Parameters
    ----------
    study : StudySettings
        Whose models are suspects, and with whose learner shadows are trained.
    oracles : tuple of int
        Whose first halves are audited.
    shadows : int
        Shadow models for each, >= 4.
    critic : CriticSettings
    alpha : float
        Level of Grubbs' test on each trajectory.
    seed : int
    """

    study: StudySettings
    oracles: tuple[int, ...]
    shadows: int = 8
    critic: CriticSettings = field(default_factory=CriticSettings)
    alpha: float = 0.01
    seed: int = 37

    def __post_init__(self) -> None:
        check.instance("study", self.study, StudySettings)
        check.whole("shadows", self.shadows, 4)
        check.instance("critic", self.critic, CriticSettings)
        check.open_unit("alpha", self.alpha)
        if not self.oracles or max(self.oracles) >= self.study.oracles:
            raise ValueError(f"oracles must be below {self.study.oracles}, got {self.oracles}")


def table(run: AuditRun, folder: str | Path = "_build/membership") -> pd.DataFrame:
    """One row for each audited data set, distance and suspect.

    ``audited, distance, kind, suspect``
        Oracle of the data set, one of :data:`dprl.membership.attacks.orl_auditor.DISTANCES`, one of
        :data:`KINDS`, and the number of the model (of the study, or "shadow i").
    ``trajectories, shadows``
        M, and how many shadows the suspect is compared with.
    ``accepted, majority``
        Share of the trajectories on which it is accepted as trained on the data set, and
        whether that is more than half.
    """
    check.instance("run", run, AuditRun)
    key = fingerprint(code_of(_rows, _shadows, study.run), run)
    with computed_once(Path(folder) / f"audit-{run.study.name}-{key}", Watch()) as kept:
        if not kept.done:
            done = study.run(run.study, folder)
            rows = [row for oracle in run.oracles for row in _rows(run, done, oracle)]
            pd.DataFrame(rows).to_csv(kept.place / "table.csv", index=False)
        found = pd.read_csv(kept.place / "table.csv")
    found.attrs["seconds"] = kept.seconds
    return found


def summary(found: pd.DataFrame) -> pd.DataFrame:
    """By distance and kind: suspects, mean share accepted, and how many by majority."""
    by = found.groupby(["distance", "kind"], sort=False)
    return by.agg(
        suspects=("accepted", "size"), accepted=("accepted", "mean"), majority=("majority", "sum")
    ).reset_index()


def _shadows(run: AuditRun, done: Study, oracle: int) -> BCQPopulation:
    """Models of the whole data set, with seeds of their own."""
    data = done.inputs[oracle][0].transitions(timeout_is_terminal=run.study.timeout_is_terminal)
    seeds = integers(np.random.SeedSequence([run.seed, oracle]), run.shadows)
    first = bcq_population.start(run.study.bcq, data.observation_size, data.action_size, seeds)
    sets = [data] * run.shadows
    trained, _ = bcq_population.train(first, sets, run.study.bcq, run.study.bcq_updates)
    return BCQPopulation(run.study.bcq, trained.models.parameters)


def _rows(run: AuditRun, done: Study, oracle: int) -> Iterator[dict[str, object]]:
    data = done.inputs[oracle][0]
    critic = orl_auditor.train_critic(data, run.critic, jax.random.key(run.seed))
    key = jax.random.fold_in(jax.random.key(run.seed), oracle)
    shadows = orl_auditor.value_sequences(critic, _shadows(run, done, oracle), data, key)
    suspects = orl_auditor.value_sequences(critic, done.models, data, key)
    kinds = [
        KINDS[0] if model == 2 * oracle else KINDS[1] if model == 2 * oracle + 1 else KINDS[2]
        for model in range(len(suspects))
    ]
    accused = [(kind, str(m), suspects[m], shadows) for m, kind in enumerate(kinds)]
    accused += [
        (KINDS[0], f"shadow {i}", shadows[i], np.delete(shadows, i, axis=0))
        for i in range(run.shadows)
    ]
    for distance in orl_auditor.DISTANCES:
        for kind, suspect, values, others in accused:
            share = _accepted(values, others, data.lengths, distance, run.alpha)
            yield {
                "audited": oracle,
                "distance": distance,
                "kind": kind,
                "suspect": suspect,
                "trajectories": len(data),
                "shadows": len(others),
                "accepted": share,
                "majority": share > 0.5,
            }


def _accepted(
    suspect: FloatArray, shadows: FloatArray, lengths: np.ndarray, distance: str, alpha: float
) -> float:
    centre = shadows.mean(axis=0)
    of_shadows, own = (
        orl_auditor.distances(values, centre, lengths, distance) for values in (shadows, suspect)
    )
    return float(orl_auditor.accepts(of_shadows, own, alpha).mean())
