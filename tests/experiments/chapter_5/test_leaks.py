"""The honest game: who is trained on what, resuming, known answers on made-up scores."""

import math
from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from companion.sweeps import Deadline, OutOfTime
from dprl.agents import bcq_population
from dprl.agents.episodes import Episodes
from dprl.membership import metrics
from dprl.membership.attacks import scores
from experiments.chapter_5 import leak_tables, leaks
from experiments.chapter_5.stages import Watch


@pytest.fixture(scope="module")
def settings(tiny_leak_settings):
    return tiny_leak_settings


@pytest.fixture(scope="module")
def leak(settings, tiny_folder, tiny_study):
    return leaks.run(settings, tiny_folder)


def made_up(settings, pools, score, twins=None, fresh=None):
    """A leak with given logarithms of scores, the same for every access."""
    sets = leaks._training_sets(settings)
    values = -np.exp(-score(sets.members))
    twin_scores = np.zeros((len(values), len(settings.oracles), settings.twins, 2 * settings.size))
    fresh_shape = (len(settings.oracles), settings.models, settings.fresh)
    return leaks.Leak(
        settings=settings,
        pools=pools,
        fresh=[],
        members=sets.members,
        scores=dict.fromkeys(leaks.ACCESS, values),
        fresh_scores=dict.fromkeys(leaks.ACCESS, -np.ones(fresh_shape) if fresh is None else fresh),
        twin_records=sets.left_out,
        twin_scores=dict.fromkeys(leaks.ACCESS, twin_scores if twins is None else twins(values)),
        returns=np.zeros(values.shape[:3]),
        models=None,
        seconds=0.0,
    )


# who is trained on what


def test_chance_alone_separates_members_from_others(settings):
    sets = leaks._training_sets(settings)
    assert sets.members.shape == (2, 6, 8)
    assert (sets.members.sum(axis=2) == 4).all()
    np.testing.assert_array_equal(sets.members[:, 0::2], ~sets.members[:, 1::2])
    many = [leaks._training_sets(replace(settings, seed=s)).members for s in range(300)]
    share = np.mean(many, axis=0)  # of 300 independent splits
    assert np.abs(share - 0.5).max() < 5 * 0.5 / math.sqrt(300)
    together = np.mean([m[0, 0, 0] & m[0, 2, 0] for m in many])  # pairs are independent
    assert abs(together - 0.25) < 5 * math.sqrt(0.25 * 0.75 / 300)


def test_a_twin_lacks_one_trajectory_and_nothing_else(settings, leak):
    sets = leaks._training_sets(settings)
    assert [oracle for oracle, _ in sets.rows] == [0] * 6 + [1] * 6 + [0] * 2 + [1] * 2
    assert len(set(sets.seeds[:12])) == 12
    for twin, base in ((12, 0), (13, 1), (14, 6), (15, 7)):
        oracle, mask = sets.rows[twin]
        missing = sets.rows[base][1] & ~mask
        assert sets.seeds[twin] == sets.seeds[base]
        assert not (mask & ~sets.rows[base][1]).any()
        assert np.flatnonzero(missing).tolist() == [sets.left_out[oracle, (twin - 12) % 2]]


def test_pools_and_fresh_trajectories_do_not_overlap(leak, tiny_study):
    for number, oracle in enumerate((0, 2)):
        everything = Episodes.concatenate(tiny_study.inputs[oracle])
        np.testing.assert_array_equal(leak.pools[number].actions, everything.actions[:8])
        np.testing.assert_array_equal(leak.fresh[number].actions, everything.actions[-8:])


# computing


def test_scores_are_those_of_models_trained_on_these_sets(leak, settings):
    sets = leaks._training_sets(settings)
    data = [leak.pools[o].select(mask).transitions() for o, mask in sets.rows]
    learner = settings.study.bcq
    training = bcq_population.start(learner, 11, 3, sets.seeds)
    training, _ = bcq_population.train(training, data, learner, 4, chunk=2)
    models = bcq_population.BCQPopulation(learner, training.models.parameters)
    found = scores.vae_score(models, [leak.pools[o] for o, _ in sets.rows])
    np.testing.assert_array_equal(
        models.parameters.encoder[0].bias, leak.models.parameters.encoder[0].bias
    )
    np.testing.assert_allclose(leak.scores["white-box"][-1].reshape(12, 8), found[:12], rtol=1e-5)
    np.testing.assert_allclose(
        leak.twin_scores["white-box"][-1].reshape(4, 8), found[12:], rtol=1e-5
    )
    for access in leaks.ACCESS:
        assert leak.scores[access].shape == (2, 2, 6, 8)
        assert leak.fresh_scores[access].shape == (2, 6, 8)
        assert leak.twin_scores[access].shape == (2, 2, 2, 8)
        assert (leak.scores[access][0] != leak.scores[access][1]).any()
    assert leak.returns.shape == (2, 2, 6)


def test_a_run_is_loaded_and_a_killed_one_goes_on(leak, settings, tiny_folder, tmp_path):
    (folder,) = tiny_folder.glob("leak-*")
    files = {one.name for one in folder.iterdir()}
    assert files == {".lock", "finished", "seconds.json", "leak.npz", "models.npz"}
    again = leaks.run(settings, tiny_folder)
    for stage in ("inputs", "oracles", "models", "outputs"):
        for place in tiny_folder.glob(f"{stage}-*"):
            (tmp_path / place.name).symlink_to(place)
    calls, seen = iter(range(1000)), []
    with pytest.raises(OutOfTime):  # between the two numbers of updates
        leaks.run(settings, tmp_path, Watch(Deadline(1.5, clock=lambda: float(next(calls)))))
    resumed = leaks.run(settings, tmp_path, Watch(progress=lambda *now: seen.append(now)))
    assert seen == [("leak 4", 4, 4)]
    for other in (again, resumed):
        for access in leaks.ACCESS:
            np.testing.assert_array_equal(other.scores[access], leak.scores[access])
            np.testing.assert_array_equal(other.twin_scores[access], leak.twin_scores[access])


# judging


@pytest.fixture(scope="module")
def wide(tiny_settings):
    """Enough made-up models for a law of large numbers."""
    return leaks.LeakSettings(
        replace(tiny_settings, trajectories=100),
        oracles=(0, 1),
        size=40,
        models=40,
        twins=3,
        updates=(200,),
        fresh=120,
    )


def gaussian(shift, seed, hardness=5.0):
    def score(members):
        rng = np.random.default_rng(seed)
        own = rng.normal(scale=hardness, size=(members.shape[0], 1, members.shape[2]))
        return (own + shift * members + rng.normal(size=members.shape))[None]

    return score


def test_a_gaussian_leak_has_its_closed_form(wide):
    table = leak_tables.attack_table(made_up(wide, [], gaussian(1.0, 0))).set_index("attack")
    expected = stats.norm.cdf(1 / math.sqrt(2))
    for attack in ("lira-online", "lira-offline"):
        row = table.loc[attack].iloc[0]
        assert row.auc_low < expected + 0.015
        assert row.auc == pytest.approx(expected, abs=0.015)
        assert (row.unit, row.clusters, row.models) == ("pair", 40, 80)
    # one threshold: the difference of two scores has variance 2 (1 + 5^2)
    blunt = table.loc["threshold"].iloc[0].auc
    assert blunt == pytest.approx(stats.norm.cdf(1 / math.sqrt(52)), abs=0.03)


def test_a_gaussian_leak_at_a_low_false_positive_rate(wide):
    """TPR at FPR f is Phi(d - z_f); the threshold comes from other pairs."""
    table = leak_tables.attack_table(made_up(replace(wide, fresh=0), [], gaussian(2.5, 1)))
    for attack in ("lira-online", "lira-offline"):
        row = table[table["attack"] == attack].iloc[0]
        expected = stats.norm.cdf(2.5 - stats.norm.ppf(0.99))
        assert row.tpr_at_fpr_1pct == pytest.approx(expected, abs=0.08)
        assert row.tpr_low < row.tpr_at_fpr_1pct < row.tpr_high
        assert row.fpr == pytest.approx(0.01, abs=0.005)
        assert row.negatives == 80 * 40
        assert row.tpr_at_fpr_01pct < row.tpr_at_fpr_1pct


def test_without_a_leak_the_interval_holds_one_half(wide):
    held = []
    for seed in range(20):
        table = leak_tables.attack_table(made_up(replace(wide, models=8), [], gaussian(0.0, seed)))
        held.append((table.auc_low <= 0.5) & (table.auc_high >= 0.5))
        assert table.tpr_at_fpr_01pct.isna().any()  # too few to choose a threshold on
    assert np.mean(held) > 0.8  # 95 % each, of few independent ones


def test_fresh_trajectories_are_more_non_members(wide):
    rng = np.random.default_rng(2)
    fresh = -np.exp(-rng.normal(size=(2, 40, 120)))
    table = leak_tables.attack_table(made_up(wide, [], gaussian(1.0, 2, hardness=0.0), fresh=fresh))
    rows = table.drop_duplicates("attack").set_index("attack")
    assert rows.negatives.to_dict() == {
        "threshold": 80 * 60,  # the second half
        "lira-online": 80 * 40,
        "lira-offline": 80 * 60,
    }
    assert rows.fpr.to_numpy() == pytest.approx(0.01, abs=0.006)


def test_points_are_measured_on_one_cluster_and_chosen_on_the_others():
    rng = np.random.default_rng(3)
    labels, values = rng.random((6, 30)) < 0.5, rng.normal(size=(6, 30))
    cluster, family = [0, 0, 1, 1, 2, 3], [0, 0, 0, 0, 1, 1]
    points = leak_tables.operating_points(labels, values, cluster, family, 0.1)
    others = [[2, 3], [0, 1], [5], [4]]
    for one, (point, rest) in enumerate(zip(points, others, strict=True)):
        own = [i for i in range(6) if cluster[i] == one]
        cut = metrics.threshold_on(labels[rest].ravel(), values[rest].ravel(), fpr=0.1)
        assert point.threshold == cut
        assert point.tpr == (values[own][labels[own]] >= cut).mean()
        assert point.fpr == (values[own][~labels[own]] >= cut).mean()
        assert point.chosen_elsewhere


def test_what_chooses_and_what_measures_can_be_kept_apart():
    rng = np.random.default_rng(4)
    labels, values = rng.random((4, 40)) < 0.5, rng.normal(size=(4, 40))
    choose, measure = rng.random((2, 4, 40)) < 0.6
    for target, point in enumerate(
        leak_tables.operating_points(labels, values, range(4), [0] * 4, 0.2, choose, measure)
    ):
        rest = [m for m in range(4) if m != target]
        shadows = [
            values[m, j] for m in rest for j in range(40) if choose[m, j] and not labels[m, j]
        ]
        kept = values[target][measure[target] & ~labels[target]]
        assert (np.array(shadows) >= point.threshold).mean() <= 0.2
        assert point.negatives == kept.size
        assert point.fpr == (kept >= point.threshold).mean()


@pytest.mark.parametrize("models", [6, 8])
def test_fresh_trajectories_are_standardised_as_those_of_the_pool(wide, models):
    """Without a leak both are non-members alike: their scores must have one law."""
    study = replace(wide.study, trajectories=4_000)
    many = replace(wide, study=study, size=2_000, models=models, fresh=4_000)
    rng = np.random.default_rng(11)
    noise = made_up(
        many,
        [],
        lambda members: rng.normal(size=(1, *members.shape)),
        fresh=-np.exp(-rng.normal(size=(len(many.oracles), models, many.fresh))),
    )
    accused = leak_tables._with_fresh(noise, "white-box", "lira-offline")
    labels, values = accused.labels, accused.scores
    pooled = 2 * many.size
    assert not labels[..., pooled:].any()
    ratio = values[..., pooled:].std() / values[..., :pooled].std()
    # with all other models as shadows the mean would have half the variance
    narrow = math.sqrt((1 + 1 / (models - 2)) / (1 + 2 / (models - 2)))
    assert abs(ratio - 1) < 0.02 < (1 - narrow) / 3


def test_fresh_trajectories_that_choose_do_not_measure(leak):
    accused = leak_tables._with_fresh(leak, "white-box", "threshold")
    labels, values = accused.labels, accused.scores
    choose, measure = accused.choose, accused.measure
    assert labels.shape == values.shape == choose.shape == measure.shape == (2, 6, 8 + 8)
    assert not labels[..., 8:].any()
    assert (choose[..., :12]).all()
    assert not choose[..., 12:].any()
    np.testing.assert_array_equal(measure[..., :8], leak.members)
    assert not measure[..., 8:12].any()
    assert measure[..., 12:].all()


def test_twins_by_hand(wide):
    def twins(values):
        out = values[:, :, :3].copy()
        out[0, 0, 0] -= np.arange(80)  # all scores fall, the later the more
        return out

    leak = made_up(wide, [], gaussian(1.0, 4), twins)
    table = leak_tables.twin_table(leak)
    assert len(table) == 3 * 2 * 3
    first = table[(table.access == "white-box") & (table.oracle == 0) & (table.twin == 0)].iloc[0]
    record = leak.twin_records[0, 0]
    both = np.flatnonzero(leak.members[0, 0])
    assert first.record == record
    assert first.score_in - first.score_out == pytest.approx(record)
    assert first.found == (record > 0)
    assert first["rank"] == pytest.approx((both < record).sum() / 39)
    same = table[(table.access == "white-box") & (table.oracle == 1)]
    assert not same.found.any()
    assert (same["rank"] == 0).all()


def test_tables_have_a_row_for_each_attack_and_each_twin(leak):
    assert len(leak_tables.attack_table(leak)) == 2 * 3 * 3
    assert len(leak_tables.twin_table(leak)) == 2 * 3 * 4


def test_a_study_is_an_honest_game_already(tiny_study):
    table = leak_tables.study_table(tiny_study).set_index("access")
    areas = []
    for o in range(4):
        own, other = (
            scores.vae_score(tiny_study.models, tiny_study.inputs[o][half]) for half in (0, 1)
        )
        for half, (members, rest) in enumerate(((own, other), (other, own))):
            m, r = members[2 * o + half], rest[2 * o + half]
            areas.append((m[:, None] > r).mean() + (m[:, None] == r).mean() / 2)
    row = table.loc["white-box"]
    assert row.auc == pytest.approx(np.mean(areas), abs=1e-6)
    areas = []
    for o, half in np.ndindex(4, 2):  # one roll-out for the member and the other of a row
        output = tiny_study.outputs[o][half]
        m, r = (
            scores.action_distance(e.actions, output.actions, e.lengths, output.lengths)
            for e in (tiny_study.inputs[o][half], tiny_study.inputs[o][1 - half])
        )
        areas.append((m[:, None] > r).mean() + (m[:, None] == r).mean() / 2)
    assert table.loc["closed-loop"].auc == pytest.approx(np.mean(areas))
    assert (row.unit, row.clusters, row.models, row.trajectories) == ("oracle", 4, 8, 10)
    assert row.negatives == 80
    columns = set(leak_tables.attack_table.__doc__.replace("``", " ").replace(",", " ").split())
    assert set(table.reset_index().columns) <= columns


# bad input


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        ({"study": "Hopper-v5"}, TypeError, "study must be a StudySettings"),
        ({"oracles": 0}, TypeError, "oracles must be a tuple"),
        ({"oracles": (1, 1)}, ValueError, "distinct numbers below 4"),
        ({"oracles": (0, 4)}, ValueError, "distinct numbers below 4"),
        ({"size": 1}, ValueError, "size must be at least 2"),
        ({"models": 4}, ValueError, "models must be at least 6"),
        ({"models": 7}, ValueError, "models must be even"),
        ({"twins": 7}, ValueError, "twins must be at most 6"),
        ({"updates": ()}, TypeError, "updates must be a tuple"),
        ({"updates": (4, 2)}, ValueError, "updates must rise"),
        ({"updates": (2, 3)}, ValueError, "multiples of chunk 2"),
        ({"fresh": 13}, ValueError, "a pool of 8 and 13 fresh ones are too many"),
        ({"size": 11}, ValueError, "has 20 trajectories"),
        ({"seed": -1}, ValueError, "seed must be at least 0"),
    ],
)
def test_settingss_outside_their_range_are_refused(settings, changes, error, message):
    with pytest.raises(error, match=message):
        replace(settings, **changes)


def test_other_bad_input(settings, leak, tiny_study):
    with pytest.raises(TypeError, match="settings must be a LeakSettings"):
        leaks.run(settings.study)
    with pytest.raises(TypeError, match="done must be a Study"):
        leak_tables.study_table(leak)
    with pytest.raises(ValueError, match="access must be one of"):
        leak_tables.attack_scores(leak, "grey-box")
    with pytest.raises(ValueError, match="attack must be one of"):
        leak_tables.attack_scores(leak, "white-box", "lira")
    with pytest.raises(ValueError, match="labels, values, choose and measure must have the shape"):
        leak_tables.operating_points(np.ones((2, 3)), np.ones((2, 2)), [0, 1], [0, 0], 0.1)
    with pytest.raises(ValueError, match="no others in its family"):
        leak_tables.operating_points(np.eye(2), np.eye(2), [0, 1], [0, 1], 0.1)
