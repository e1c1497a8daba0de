"""The audits: the listener changes nothing, worst pairs attain sensitivities, mistakes are seen."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from companion import sweeps
from dprl.mdp import Chain
from dprl.off_policy.saddle_point import Statistics
from dprl.privacy import Guarantee
from dprl.privacy.gaussian_dp import gaussian_mu
from dprl.private_evaluation import NEIGHBOURS, recentre_shape_clip
from dprl.private_evaluation.private_lstd import private_lstd
from dprl.private_evaluation.structure_free import recentre_clip_structure_free
from dprl.private_evaluation.working_model import WorkingModel
from dprl.trajectories import FirstVisitReturns
from experiments.chapter_7 import mechanism_audits, worst_pairs
from experiments.chapter_7.audited_rounds import (
    broken_rounds,
    gaussian_mechanisms,
    interval_spread_mu,
    mutant,
)
from experiments.chapter_7.listening import (
    Listener,
    exact_mu,
    measured_mu,
    overhear,
    transcript_score,
)
from experiments.chapter_7.mechanism_audits import (
    COLUMNS,
    KEYS,
    PROMISES,
    AuditSizes,
    audit_tasks,
    audit_trial,
    epsilon_of_mu,
    gaussian_rows,
)

PROMISE = Guarantee(3.0, 1e-3, NEIGHBOURS)
MU = gaussian_mu(3.0, 1e-3)
CASES = {case.name: case for case in gaussian_mechanisms(3.0, 1e-3)}
BROKEN = {case.name: case for case in broken_rounds(3.0, 1e-3)}
SMALL = AuditSizes(copies=4_000, outputs=2_000, transcripts=0, pasts=1)


def total(rounds):
    return np.sqrt(sum(exact_mu(r) ** 2 for r in rounds))


# -- listening ----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", CASES)
def test_a_listener_changes_no_number(name):
    case = CASES[name]
    data = next(iter(case.pairs.values()))[0]
    plain, heard = (case.program(data, g) for g in (np.random.default_rng(5), Listener(5)))

    def numbers(release):
        if isinstance(release, tuple):
            release = release[0]
        parts = vars(release) if hasattr(release, "__dict__") else {"": release}
        return [x for x in parts.values() if isinstance(x, np.ndarray)]

    assert numbers(plain)
    for a, b in zip(numbers(plain), numbers(heard), strict=True):
        np.testing.assert_array_equal(a, b)


def rotated(data, rng):
    a = np.array([[2.0, 1.0], [0.0, 1.0]])
    first = np.array(data) - a @ rng.standard_normal(2)
    return first.sum() * np.array(data) + 3 * rng.standard_normal((1, 2)) @ a


def test_exact_and_measured_mu_of_a_known_mechanism():
    first, second = overhear(rotated, ([1.0, 0.0], [0.0, 0.0]), seed=1)
    covariance = np.array([[5.0, 1.0], [1.0, 1.0]])
    assert exact_mu(first) ** 2 == pytest.approx(np.linalg.inv(covariance)[0, 0])
    assert second.shift[0, 1] == 0  # the first release is forced, so it cancels
    assert not second.noise_depends_on_data
    several = overhear(rotated, ([1.0, 0.0], [0.0, 0.0]), seed=1, copies=40_000)
    for one, other in zip(several, (first, second), strict=True):
        assert measured_mu(one) == pytest.approx(exact_mu(other), rel=0.015)
        np.testing.assert_array_equal(one.shift, other.shift)


def test_noise_that_depends_on_the_data_is_noticed():
    def leaky(data, rng):
        return data + data * rng.standard_normal(3)

    (heard,) = overhear(leaky, (np.ones(3), 2 * np.ones(3)), seed=0)
    assert heard.noise_depends_on_data


def test_rounds_that_depend_on_the_data_are_refused():
    def uneven(data, rng):
        return [x + rng.standard_normal() for x in data]

    with pytest.raises(ValueError, match="different rounds"):
        overhear(uneven, ([1.0], [1.0, 2.0]), seed=0)


def test_a_shift_without_noise_is_infinitely_many_standard_deviations():
    def partly(data, rng):
        return data + np.array([1.0, 0.0]) * rng.standard_normal()

    (heard,) = overhear(partly, (np.zeros(2), np.ones(2)), seed=0)
    assert np.isinf(exact_mu(heard))


def test_transcript_scores_have_the_mean_and_variance_of_a_gaussian_pair():
    pair = ([1.0, 0.0], [0.0, 0.0])

    def once(data, rng):
        return np.array(data) + 0.5 * rng.standard_normal(2)

    for data, sign in zip(pair, (1, -1), strict=True):
        scores = [transcript_score(once, data, pair, seed) for seed in range(800)]
        assert np.mean(scores) == pytest.approx(sign * 2, abs=0.3)  # mu^2/2, mu = 2
        assert np.std(scores) == pytest.approx(2, rel=0.1)


# -- worst pairs ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "pair", "part"),
    [
        ("Gaussian mechanism", 0, 1.0),
        ("average, then perturb (LSW, blocks)", 0, 1.0),
        ("sufficient statistics", 0, 1.0),
        ("sufficient statistics", 1, 1.0),
        ("RC, temporal differences", 0, 1.0),
        ("private LSTD", 0, np.sqrt(1 - 0.05 / 1.05)),  # all but the counts, which the other moves
        ("transition counts", 0, 1.0),
        ("DP-APVI, counts of each step", 0, 1.0),
    ],
)
@pytest.mark.parametrize("seed", [0, 1])
def test_the_constructed_pair_uses_all_of_the_promise(name, pair, part, seed):
    case = CASES[name]
    found = overhear(case.program, list(case.pairs.values())[pair], seed=seed)
    assert total(found) == pytest.approx(part * MU, rel=1e-6)
    assert not any(r.noise_depends_on_data for r in found)


def test_returns_of_rc_use_nearly_all_of_it():
    case = CASES["RC, returns"]
    found = overhear(case.program, next(iter(case.pairs.values())), seed=0)
    assert MU * 0.995 < total(found) <= MU * (1 + 1e-9)


def test_the_spread_of_the_intervals_uses_its_share():
    assert interval_spread_mu(3.0, 1e-3, 0) == pytest.approx(np.sqrt(0.03) * MU, rel=1e-6)


def test_random_neighbours_never_exceed_what_the_worst_pair_attains():
    found = worst_pairs.random_and_worst(100_000, np.random.default_rng(4))
    assert (found["random_largest"] <= 1 + 1e-12).all()
    assert (found["worst_pair"] <= 1 + 1e-12).all()
    assert (found["worst_pair"] > 1 - 1e-5).all()


@st.composite
def records(draw):
    """Thirty records, and two for the first place."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    returns, visited = rng.uniform(-150, 150, (31, 3)), rng.random((31, 3)) < 0.7
    returns[:2] = draw(st.sampled_from([1e-3, 1.0, 1e3])) * returns[:2]
    returns *= visited
    return [
        FirstVisitReturns(np.vstack([x[None], returns[2:]]), np.vstack([v[None], visited[2:]]))
        for x, v in zip(returns[:2], visited[:2], strict=True)
    ]


@settings(max_examples=20, deadline=None)
@given(records(), st.integers(0, 1000))
def test_no_neighbours_exceed_the_promise_of_the_whole_mechanism(pair, seed):
    far = {"f_max": worst_pairs.FAR, "f_min": -worst_pairs.FAR}
    model = WorkingModel.equal_chain(Chain(3))
    for program in (
        lambda data, rng: recentre_clip_structure_free(data, PROMISE, rng=rng, **far),
        lambda data, rng: recentre_shape_clip.recentre_shape_clip(
            data, model, PROMISE, rng=rng, **far
        ),
    ):
        found = overhear(program, tuple(pair), seed=seed)
        assert total(found) <= MU * (1 + 1e-9)
        assert not any(r.noise_depends_on_data for r in found)


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 2**32), st.sampled_from([1e-6, 1.0, 1e6]))
def test_no_neighbours_exceed_the_promise_of_private_lstd(seed, size):
    rng = np.random.default_rng(seed)
    pair = []
    a, b = rng.normal(size=(2_000, 2, 2)) + np.eye(2), rng.normal(size=(2_000, 2))
    c = np.tile(np.eye(2), (2_000, 1, 1))
    for _ in range(2):
        a, b, c = a.copy(), b.copy(), c.copy()
        a[0], b[0], c[0] = size * rng.normal(size=(2, 2)), size * rng.normal(size=2), c[1] * size
        pair.append(Statistics(a, b, c))
    found = overhear(lambda data, g: private_lstd(data, 3.0, 1e-3, g), tuple(pair), seed=seed)
    assert total(found) <= MU * (1 + 1e-9)
    assert not any(r.noise_depends_on_data for r in found)


# -- the table ------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def table():
    return sweeps.table(audit_trial, audit_tasks(PROMISES[:1], SMALL), seed=1, label="audit")


def test_table_has_the_columns_and_one_row_for_each_key(table):
    assert list(table.columns) == COLUMNS
    assert not table.duplicated(KEYS).any()
    assert (table["delta"].isin([0.0, PROMISES[0][1]])).all()


def test_no_mechanism_of_the_package_is_refuted_and_each_mistake_shows(table):
    broken = table["mechanism"].str.startswith("broken")
    assert (table["epsilon_lower_99"] <= table["epsilon"])[~broken].all()
    for name, part in table[broken].groupby("mechanism"):
        wasteful = name.endswith("shares of mu, not of mu^2")
        assert part["sound"].all() == wasteful, name
        assert part["mu_measured"].notna().any() or not part["sound"].all()


def test_whole_runs_are_audited_at_the_last_promise():
    last = {case.name: case for case in gaussian_mechanisms(*PROMISES[-1])}
    sizes = AuditSizes(copies=4_000, outputs=0, transcripts=200, pasts=1)
    case = last["RC without structure"]
    whole = list(gaussian_rows(case, PROMISES[-1], sizes, np.random.default_rng(3)))[-1]
    assert whole["statistic"] == "whole runs: likelihood ratio"
    assert 0.5 < whole["epsilon_lower_99"] <= PROMISES[-1][0]


def test_rounding_does_not_choose_the_past(monkeypatch):
    """A processor with other instructions must not find other rows: many pasts are equally bad."""
    case, sizes = CASES["RC, temporal differences"], AuditSizes(400, 400, 0, pasts=4)

    def rows():
        return list(gaussian_rows(case, (3.0, 1e-3), sizes, np.random.default_rng(2)))

    expected, errors = rows(), np.random.default_rng(5)

    def rounded_otherwise(heard):
        return exact_mu(heard) * (1 + 1e-12 * errors.standard_normal())

    monkeypatch.setattr(mechanism_audits, "exact_mu", rounded_otherwise)
    for _ in range(2):
        assert rows() == expected


def test_a_waste_is_seen_though_it_is_no_leak():
    rows = list(
        gaussian_rows(
            BROKEN["broken: shares of mu, not of mu^2"],
            (3.0, 1e-3),
            SMALL,
            np.random.default_rng(2),
        )
    )
    whole = rows[-1]
    assert whole["statistic"].startswith("all rounds")
    assert whole["sound"]
    expected = np.linalg.norm(recentre_shape_clip.RoundSettings().shares)
    assert whole["mu_measured"] / MU == pytest.approx(expected, rel=0.03)


def test_epsilon_of_mu_is_the_inverse_of_mu():
    for epsilon, delta in PROMISES:
        assert epsilon_of_mu(gaussian_mu(epsilon, delta), delta) == pytest.approx(epsilon, rel=1e-5)
    assert epsilon_of_mu(0.01, 0.1) == 0


def test_a_mutant_whose_source_has_changed_is_refused():
    with pytest.raises(ValueError, match="0 times"):
        mutant(recentre_shape_clip, "no such line", "")


def test_a_case_whose_rounds_have_changed_is_refused():
    case = CASES["transition counts"]
    other = type(case)(case.name, case.program, case.pairs, {"two": 1.0}, case.name_of)
    with pytest.raises(ValueError, match="heard"):
        list(gaussian_rows(other, (3.0, 1e-3), SMALL, np.random.default_rng(0)))
