"""The sizes of chapter 5, all in one place: of its pages, and of the long runs.

``QUICK`` is what the pages compute: one study of minutes on two cores, in which BCQ's targets
choose among 5 proposals instead of 10. The command ``python -m experiments.chapter_5`` computes
the two others. ``laptop``: leaks of three sizes, 21 minutes on two cores.
``paper``: network sizes of the thesis; first two studies of 8 oracles at half the thesis's steps
(their names end in "-reduced"), then all ten of table 5.2 at one million steps and updates. They
need a GPU.

In the networks of the attacks ``narrow`` is :meth:`dprl.membership.attacks.tcn.TCNSettings.narrow`;
the ResNet of ``paper`` leaves out the weight decay of table 5.1 (with Adam it shrinks all weights
to zero). Clipping lengths stand where the thesis has them.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from dprl.agents.bcq import BCQSettings
from dprl.agents.ddpg import DDPGSettings
from dprl.membership.attacks.resnet import ResNetSettings
from dprl.membership.attacks.tcn import TCNSettings
from experiments.chapter_5.leaks import LeakSettings
from experiments.chapter_5.pair_attacks import AttackSettings
from experiments.chapter_5.study import StudySettings

#: The maximum lengths of table 5.2.
TABLE_5_2 = {"Hopper-v5": (10, 50, 100, 200, 500), "HalfCheetah-v5": (10, 30, 50, 100, 200)}
#: Steps of an oracle and updates of a model in the thesis (section 5.7.2).
STEPS_OF_THE_THESIS = 1_000_000


@dataclass(frozen=True)
class Sizes:
    """What one run of the chapter computes: studies, the attacks on the pairs of each, and leaks.

    Studies stand in the order in which they are worth computing; names are distinct.
    """

    studies: tuple[StudySettings, ...]
    attacks: tuple[AttackSettings, ...]
    leaks: tuple[LeakSettings, ...]


# -- the pages --------------------------------------------------------------------------

STUDY = StudySettings(
    "Hopper-v5",
    t_max=50,
    oracles=6,
    ddpg=DDPGSettings.laptop(),
    ddpg_steps=15_000,
    trajectories=100,
    bcq=replace(BCQSettings.laptop(), candidates=5),
    bcq_updates=2_000,
    bcq_evaluated_at=(200, 600, 1_200),
)
ATTACKS = AttackSettings(tcn=TCNSettings.narrow(), lengths=(5, 15))
LEAK = LeakSettings(
    STUDY, oracles=(0, 1), size=20, models=6, twins=3, updates=(1_000, 2_000, 3_000), fresh=160
)
QUICK = Sizes((STUDY,), (ATTACKS,), (LEAK,))

# -- a laptop ---------------------------------------------------------------------------

#: The study of the leaks, and of the attacks and the audit of today at their large size.
LAPTOP_STUDY = StudySettings(
    "Hopper-v5",
    t_max=50,
    oracles=8,
    ddpg=DDPGSettings.laptop(),
    ddpg_steps=20_000,
    trajectories=400,
    bcq=BCQSettings.laptop(),
    bcq_updates=3_000,
)


def clipping_lengths(study: StudySettings) -> tuple[int, ...]:
    """Figure 5.6 is about Hopper at T_max 100."""
    return (5, 10, 25, 50) if (study.environment, study.t_max) == ("Hopper-v5", 100) else ()


def _leaks(study: StudySettings, updates: dict[int, tuple[int, ...]]) -> tuple[LeakSettings, ...]:
    return tuple(
        LeakSettings(
            study,
            oracles=(0, 1),
            size=size,
            models=8,
            twins=4 if size == 20 else 0,
            updates=at,
            fresh=2 * study.trajectories - 2 * size,
        )
        for size, at in updates.items()
    )


#: The cells of table 5.2 at this size are run D of :mod:`experiments.chapter_5.runs`.
LAPTOP = Sizes(
    studies=(),
    attacks=(),
    # as many updates at last as in the study; with 400 trajectories scoring takes longest
    leaks=_leaks(
        LAPTOP_STUDY, {20: (1_000, 2_000, 3_000), 100: (1_000, 2_000, 3_000), 400: (3_000,)}
    ),
)

# -- the thesis -------------------------------------------------------------------------

_FULL = tuple(
    StudySettings(
        name,
        t_max,
        oracles=8,
        ddpg=DDPGSettings.paper(),
        ddpg_steps=STEPS_OF_THE_THESIS,
        trajectories=400,
        bcq=BCQSettings.paper(),
        bcq_updates=STEPS_OF_THE_THESIS,
    )
    for name, lengths in TABLE_5_2.items()
    for t_max in lengths
)
_REDUCED = tuple(
    replace(study, ddpg_steps=500_000, bcq_updates=300_000, name=f"{study.name}-reduced")
    for study in _FULL
    if study.name in ("Hopper-v5-50", "Hopper-v5-100")
)
PAPER = Sizes(
    studies=_REDUCED + _FULL,
    attacks=tuple(
        AttackSettings(lengths=clipping_lengths(study), resnet=ResNetSettings(width=64, steps=400))
        for study in _REDUCED + _FULL
    ),
    leaks=_leaks(_REDUCED[0], dict.fromkeys((20, 100, 400), (1_000, 2_000, 5_000, 20_000))),
)

#: The sizes by the name of the profile.
PROFILES = {"quick": QUICK, "laptop": LAPTOP, "paper": PAPER}


def scale(*studies: StudySettings) -> str:
    """How much smaller studies, at least one, are than the thesis's, for the verdict on an outcome.

    The steps of an oracle and the updates of a model against the million of the thesis (section
    5.7.2); empty if no study has fewer.

    >>> scale(STUDY, LAPTOP_STUDY)
    'DDPG 15,000 to 20,000 of 1,000,000 steps, BCQ 2,000 to 3,000 of 1,000,000 updates'
    >>> scale(PAPER.studies[-1])
    ''
    """
    if not studies:
        raise ValueError("scale needs at least one study")
    steps = [study.ddpg_steps for study in studies]
    updates = [study.bcq_updates for study in studies]
    if min(steps + updates) >= STEPS_OF_THE_THESIS:
        return ""
    return (
        f"DDPG {_span(steps)} of {STEPS_OF_THE_THESIS:,} steps, "
        f"BCQ {_span(updates)} of {STEPS_OF_THE_THESIS:,} updates"
    )


def _span(counts: list[int]) -> str:
    low, high = min(counts), max(counts)
    return f"{low:,}" if low == high else f"{low:,} to {high:,}"
