"""The rules of the larger runs: every outcome can happen, and for the right tables."""

import itertools

import numpy as np
import pandas as pd
import pytest

from experiments.chapter_5 import decisions
from experiments.chapter_5.dataset_audit import KINDS

SPREAD = np.array([-1, 1, -1, 1, -1, 1, -1, 1])


def by_oracle(auc, sd=0.005, oracles=8, **columns):
    """A table whose AUC have these means over oracles, by score."""
    noise = SPREAD[:oracles] * sd
    return pd.DataFrame(
        [
            {**columns, "labels": "same-oracle", "score": score, "oracle": o, "auc": mean + e}
            for score, mean in auc.items()
            for o, e in enumerate(noise)
        ]
    )


@pytest.mark.parametrize(
    ("first", "last", "outcome"),
    [
        (0.50, 0.53, "leak after longer training"),
        (0.52, 0.53, "leak all along"),
        (0.50, 0.50, "no leak above 0.55"),
    ],
)
def test_run_a(first, last, outcome):
    table = pd.concat(
        by_oracle({"first-steps": mean, "network": 0.5, "white-box": 0.9}, updates=at)
        for at, mean in ((3_000, first), (60_000, last))
    )
    found = decisions.run_a(table)
    assert found.outcome == outcome
    assert np.isclose(found.evidence["first-steps, 60,000 updates"].mean, last)


def test_run_a_with_wide_intervals_is_undecided():
    auc = {"first-steps": 0.52, "network": 0.5}
    table = pd.concat(by_oracle(auc, sd=0.1, updates=at) for at in (3_000, 60_000))
    assert decisions.run_a(table).outcome == "undecided"


@pytest.mark.parametrize(
    ("memory", "closed", "sd", "outcome"),
    [
        (0.6, 0.53, 0.005, "memory is weak"),
        (0.9, 0.53, 0.005, "leak"),
        (0.9, 0.50, 0.005, "no leak above 0.55"),
        (0.9, 0.52, 0.05, "undecided"),
    ],
)
def test_run_b(memory, closed, sd, outcome):
    auc = {"every-state": memory, "first-steps": closed, "network": 0.5}
    table = pd.concat(by_oracle(auc, sd=sd, trajectories=m) for m in (20, 100))
    found = decisions.run_b(table)
    assert found.outcome == outcome
    assert len(found.evidence) == 5


@pytest.mark.parametrize(
    ("quiet", "loud", "sd", "outcome"),
    [
        (0.52, 0.9, 0.005, "noise alone"),
        (0.75, 0.9, 0.005, "noise in part"),
        (0.9, 0.9, 0.005, "not noise"),
        (0.5, 0.5, 0.005, "undecided"),
        (0.7, 0.72, 0.2, "undecided"),
    ],
)
def test_run_c(quiet, loud, sd, outcome):
    table = pd.concat(
        by_oracle(
            {"every-state": quiet if (r, s) == (0.0, 0.1) else loud},
            sd=sd,
            oracles=4,
            random_share=r,
            noise=s,
        )
        for r, s in itertools.product((0.0, 0.3), (0.1, 0.3))
    )
    assert decisions.run_c(table).outcome == outcome


def table_5_2(accuracies, labels, se=0.01):
    return pd.DataFrame(
        [
            {
                "environment": "Hopper-v5",
                "t_max": t,
                "mode": "individual",
                "split": "target",
                "training": "as-printed",
                "labels": labels,
                "shadows": shadows,
                "oracles": 16,
                "accuracy": accuracy if shadows == 14 else 0.9,
                "accuracy_se": se,
            }
            for t, accuracy in zip((10, 50, 100, 200, 500), accuracies, strict=True)
            for shadows in (1, 14)
        ]
    )


@pytest.mark.parametrize(
    ("accuracies", "se", "outcome"),
    [
        ([0.5] * 5, 0.01, "no membership above 0.55"),
        ([0.5, 0.5, 0.5, 0.5, 0.6], 0.01, "membership in some cells"),
        ([0.5] * 5, 0.05, "undecided"),
    ],
)
def test_membership_in_run_d(accuracies, se, outcome):
    found = decisions.run_d_membership(table_5_2(accuracies, "same-oracle", se))
    assert found.outcome == outcome
    assert len(found.evidence) == 5


@pytest.mark.parametrize(
    ("accuracies", "se", "outcome"),
    [
        ([0.5, 0.6, 0.65, 0.7, 0.75], 0.01, "rises"),
        ([0.75, 0.7, 0.65, 0.6, 0.5], 0.01, "falls"),
        ([0.6] * 5, 0.01, "no rise above 0.05"),
        ([0.6] * 5, 0.1, "undecided"),
    ],
)
def test_trend_in_run_d(accuracies, se, outcome):
    found = decisions.run_d_trend(table_5_2(accuracies, "as-printed", se), "Hopper-v5")
    assert found.outcome == outcome


def test_the_trend_of_exact_points_is_their_slope():
    t = np.log10([10, 50, 100, 200, 500])
    found = decisions.run_d_trend(table_5_2(0.4 + 0.1 * t, "as-printed"), "Hopper-v5")
    assert np.isclose(found.evidence["Hopper-v5"].mean, 0.1)


def test_a_missing_score_is_named():
    with pytest.raises(ValueError, match="network"):
        decisions.run_a(by_oracle({"first-steps": 0.5}, updates=3_000))


def test_one_oracle_gives_no_interval():
    with pytest.raises(ValueError, match="at least two"):
        decisions.over_oracles(np.array([0.5]))


@pytest.mark.parametrize(
    ("trained", "same", "other", "outcome"),
    [
        (1.0, 0.0, 0.0, "tells the data set"),
        (1.0, 1.0, 0.0, "tells the oracle"),
        (1.0, 1.0, 0.5, "undecided"),
        (0.5, 0.0, 0.0, "undecided"),
    ],
)
def test_orl_auditor(trained, same, other, outcome):
    shares = dict(zip(KINDS, (trained, same, other), strict=True))
    rows = [
        {"audited": o, "distance": distance, "kind": kind, "majority": i < 2 * share}
        for o in range(4)
        for kind, share in shares.items()
        for i in range(2)
        for distance in ("l1", "l2")
    ]
    table = pd.DataFrame(rows)
    table.loc[table["distance"] == "l2", "majority"] ^= True  # does not count
    found = decisions.orl_auditor(table)
    assert found.outcome == outcome
    assert [one.mean for one in found.evidence.values()] == [trained, same, other]


def test_attacks_are_read_against_the_threshold_of_the_same_access_and_size():
    def row(trajectories, attack, low, high, shadows="own"):
        keys = {"trajectories": trajectories, "access": "every-state", "attack": attack}
        return {**keys, "shadows": shadows, "auc_low": low, "auc_high": high}

    table = pd.DataFrame(
        [
            row(20, "threshold", 0.7, 0.8),
            row(20, "threshold", 0.1, 0.9, "other"),  # the same order: not what is compared with
            row(20, "lira-online", 0.81, 0.9),
            row(20, "lira-offline", 0.79, 0.9),
            row(20, "lira-offline", 0.5, 0.69, "other"),
            row(400, "threshold", 0.5, 0.51),
            row(400, "lira-online", 0.4, 0.49),
        ]
    )
    found = decisions.against_threshold(table)
    assert found.tolist() == ["better", "undecided", "worse", "worse"]
    assert found.index[-1] == (400, "every-state", "lira-online", "own")


@pytest.mark.parametrize(
    ("returns", "aucs", "outcome"),
    [
        ((80, 70, 90), (0.50, 0.45, 0.55), "works"),
        ((80, 70, 90), (0.50, 0.45, 0.56), "undecided"),  # a leak is not excluded
        ((60, 29, 90), (0.50, 0.45, 0.55), "undecided"),  # perhaps no better than untrained
        ((80, 70, 90), (0.60, 0.56, 0.64), "fails"),  # it leaks
        ((45, 41, 49), (0.50, 0.45, 0.55), "fails"),  # above untrained, but half the gain is lost
        ((45, 41, 51), (0.50, 0.45, 0.55), "works"),
    ],
)
@pytest.mark.parametrize("leaking", ["auc", "lira"])
@pytest.mark.parametrize("access", ["every-state", "white-box"])
def test_private_training(returns, aucs, outcome, leaking, access):
    """Clipping alone has 100 (90 to 110), untrained networks 20 (10 to 30): half the gain is 40."""
    trainings = {
        ("untrained", 0.0): (20, 10, 30),
        ("private", 3.0): returns,
        ("clipped", np.nan): (100, 90, 110),
    }
    rows = [
        {"trajectories": 20, "training": kind, "epsilon": epsilon, "access": one}
        | dict(zip(("return_mean", "return_low", "return_high"), at, strict=True))
        | {"auc": 0.5, "auc_low": 0.46, "auc_high": 0.54}
        | {"lira": 0.5, "lira_low": 0.46, "lira_high": 0.54}
        for (kind, epsilon), at in trainings.items()
        for one in ("every-state", "white-box")
    ]
    for row in rows:
        if row["training"] == "private" and row["access"] == access:
            row |= dict(zip((leaking, f"{leaking}_low", f"{leaking}_high"), aucs, strict=True))
    assert decisions.private_training(pd.DataFrame(rows)).to_dict() == {(20, 3.0): outcome}
