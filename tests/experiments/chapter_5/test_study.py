"""Studies: computed once, continued after an interruption, keyed by settings and code."""

import dataclasses
import itertools
import math
import shutil
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from companion.sweeps import Deadline, OutOfTime
from dprl.agents import environments
from dprl.agents.bcq import BCQSettings
from dprl.agents.ddpg import DDPGSettings
from experiments.chapter_5 import sizes, stages, study


def arrays(done):
    """All numbers of a study that training decides."""
    outputs = [half.actions for pair in done.outputs for half in pair]
    inputs = [half.actions for pair in done.inputs for half in pair]
    critics = [np.asarray(layer.weight) for layer in done.models.parameters.critics]
    return [*inputs, *outputs, *critics, done.oracles.returns]


def assert_same(one, two):
    for a, b in zip(arrays(one), arrays(two), strict=True):
        np.testing.assert_array_equal(a, b)


def test_a_study_has_the_sizes_of_its_settings(tiny_study, tiny_settings):
    assert tiny_study.settings is tiny_settings
    assert tiny_study.initial_states.shape == (10, 12)
    assert [len(pair) for pair in tiny_study.inputs] == [2] * 4
    assert [len(pair) for pair in tiny_study.outputs] == [2] * 4
    assert {half.t_max for pair in tiny_study.inputs for half in pair} == {6}
    assert len(tiny_study.models) == tiny_settings.models == 8
    assert set(tiny_study.seconds) == {"oracles", "inputs", "models", "outputs"}


def test_the_last_point_of_the_curve_is_the_trained_policy(tiny_study):
    found, rng = tiny_study.oracles, np.random.default_rng(np.random.SeedSequence(0))
    starts = environments.draw_initial_states("Hopper-v5", 2, rng)
    assert found.steps.tolist() == [0, 150, 300]
    assert found.returns.shape == (4, 3, 2)
    assert np.isfinite(found.returns).all()
    for agent in range(4):
        episodes = environments.rollout("Hopper-v5", found.policy(agent), starts, 6, threads=1)
        np.testing.assert_allclose(episodes.returns, found.returns[agent, -1], rtol=1e-3)


def test_the_learning_curve_has_both_algorithms(tiny_study):
    curve = tiny_study.curve
    assert list(curve) == ["environment", "t_max", "algorithm", "oracle", "step", "mean_return"]
    assert list(curve[curve.algorithm == "DDPG"].step.unique()) == [0, 150, 300]
    last = curve[curve.algorithm == "BCQ"]
    assert list(last.step.unique()) == [200]
    for row in last.itertuples():
        pair = tiny_study.outputs[row.oracle]
        assert math.isclose(row.mean_return, np.mean([half.returns for half in pair]))


def test_models_are_run_on_the_way_and_that_changes_nothing(
    tiny_settings, tiny_folder, tiny_study, tmp_path
):
    kept = study._Stages(tiny_settings, tiny_folder, stages.Watch())
    for stage in ("oracles", "inputs"):
        (tmp_path / kept.places[stage].name).symlink_to(kept.places[stage])
    longer = dataclasses.replace(tiny_settings, bcq_updates=400)
    told = []
    watched = study.run(
        dataclasses.replace(longer, bcq_evaluated_at=(200,)),
        tmp_path,
        watch=stages.Watch(progress=lambda *to: told.append(to)),
    )
    assert {total for stage, _, total in told if stage == "models"} == {400}
    assert_same(watched, study.run(longer, tmp_path))
    curve = watched.curve[watched.curve.algorithm == "BCQ"]
    assert list(curve.step.unique()) == [200, 400]
    # half way it is the study of half the updates, run from the first states only
    at_time = curve[curve.step == 200].mean_return
    states = tiny_study.initial_states[: tiny_settings.evaluation_episodes]
    runs = kept.query(tiny_study.models, states)
    mean = np.reshape([one.returns.mean() for one in runs], (tiny_settings.oracles, 2)).mean(axis=1)
    np.testing.assert_allclose(at_time, mean, rtol=1e-6)


@pytest.mark.parametrize("times", [(200, 200), (400, 200), (600,), (300,), (0,)])
def test_times_must_be_on_the_way(tiny_settings, times):
    with pytest.raises(ValueError, match="bcq_evaluated_at"):
        dataclasses.replace(tiny_settings, bcq_updates=600, bcq_evaluated_at=times)


def test_what_was_computed_is_loaded_not_computed(
    tiny_settings, tiny_folder, tiny_study, monkeypatch
):
    def refuse(*_, **__):
        raise AssertionError("computed again")

    monkeypatch.setattr(study.ddpg_population, "train", refuse)
    monkeypatch.setattr(study.bcq_population, "train", refuse)
    calls = []
    again = study.run(
        tiny_settings, tiny_folder, stages.Watch(progress=lambda *args: calls.append(args))
    )
    assert_same(again, tiny_study)
    assert calls == []
    assert again.seconds == tiny_study.seconds


def test_what_the_oracles_collect_needs_no_models(tiny_settings, tiny_folder, tiny_study, tmp_path):
    places = study._Stages(tiny_settings, tiny_folder, stages.Watch()).places
    for stage in ("oracles", "inputs"):
        (tmp_path / places[stage].name).symlink_to(places[stage])
    inputs = study.collect(tiny_settings, tmp_path)
    for pair, known in zip(inputs, tiny_study.inputs, strict=True):
        for half, same in zip(pair, known, strict=True):
            np.testing.assert_array_equal(half.actions, same.actions)
            np.testing.assert_array_equal(half.initial_states, same.initial_states)
    assert {path.name.split("-")[0] for path in tmp_path.iterdir()} == {"oracles", "inputs"}
    with pytest.raises(TypeError, match="settings must be a StudySettings"):
        study.collect("Hopper-v5", tmp_path)


def test_after_the_deadline_nothing_is_begun(tiny_settings, tmp_path):
    deadline = Deadline(1, clock=itertools.count(0.0, 2.0).__next__)  # over when first asked
    with pytest.raises(OutOfTime):
        study.run(tiny_settings, tmp_path, stages.Watch(deadline))
    assert not list(tmp_path.glob("*/finished"))


def test_training_stopped_in_the_middle_continues_to_the_same_result(
    tiny_settings, tiny_study, tmp_path, monkeypatch
):
    class Late(Deadline):
        """Passes in the middle of the first training, after its first chunk."""

        def __init__(self):
            super().__init__(1)

        @property
        def passed(self):
            return bool(reached)

    reached = []

    def note(stage, done, total):
        if 0 < done < total:
            reached.append(stage)

    with pytest.raises(OutOfTime):
        study.run(tiny_settings, tmp_path, stages.Watch(Late(), note))
    assert reached == ["oracles"]
    assert list(tmp_path.glob("oracles-*/checkpoint.npz"))
    assert not list(tmp_path.glob("oracles-*/finished"))
    done = study.run(tiny_settings, tmp_path)
    assert_same(done, tiny_study)
    assert not list(tmp_path.glob("*/checkpoint.npz"))


def test_a_changed_setting_computes_only_what_depends_on_it(
    tiny_settings, tiny_folder, tiny_study, tmp_path
):
    for place in study._Stages(tiny_settings, tiny_folder, stages.Watch()).places.values():
        shutil.copytree(place, tmp_path / place.name)
    before = {path.name for path in tmp_path.iterdir()}
    assert {name.split("-")[0] for name in before} == {"oracles", "inputs", "models", "outputs"}
    done = study.run(dataclasses.replace(tiny_settings, bcq_updates=400), tmp_path)
    new = sorted(p.name.split("-")[0] for p in tmp_path.iterdir() if p.name not in before)
    assert new == ["models", "outputs", "study"]
    np.testing.assert_array_equal(done.inputs[1][0].actions, tiny_study.inputs[1][0].actions)


def test_the_name_of_a_study_changes_no_result(tiny_settings, tiny_folder, tiny_study):
    renamed = study.run(dataclasses.replace(tiny_settings, name="other"), tiny_folder)
    assert_same(renamed, tiny_study)
    assert renamed.folder != tiny_study.folder


def test_two_at_the_same_time_do_not_compute_the_same_thing(tiny_settings, tmp_path, monkeypatch):
    begun, start = [], study.ddpg_population.start

    def counted(*args, **kwargs):
        begun.append(args)
        return start(*args, **kwargs)

    monkeypatch.setattr(study.ddpg_population, "start", counted)
    with ThreadPoolExecutor(2) as both:
        one, two = both.map(lambda folder: study.run(tiny_settings, folder), [tmp_path] * 2)
    assert len(begun) == 1
    assert_same(one, two)


# -- sizes ------------------------------------------------------------------------------


def test_the_paper_profile_holds_all_of_table_5_2_at_the_stated_steps():
    studies = sizes.PAPER.studies
    full = [one for one in studies if not one.name.endswith("-reduced")]
    assert {(c.environment, c.t_max) for c in full} == {
        *(("Hopper-v5", t) for t in (10, 50, 100, 200, 500)),
        *(("HalfCheetah-v5", t) for t in (10, 30, 50, 100, 200)),
    }
    assert {(c.ddpg_steps, c.bcq_updates, c.evaluate_every) for c in full} == {
        (1_000_000, 1_000_000, 5_000)
    }
    assert {c.ddpg for c in studies} == {DDPGSettings.paper()}
    assert {c.bcq for c in studies} == {BCQSettings.paper()}
    reduced = {(c.t_max, c.oracles, c.ddpg_steps, c.bcq_updates) for c in studies if c not in full}
    assert reduced == {(50, 8, 500_000, 300_000), (100, 8, 500_000, 300_000)}


@pytest.mark.parametrize("profile", sizes.PROFILES)
def test_names_are_distinct_and_every_study_has_its_attacks(profile):
    run = sizes.PROFILES[profile]
    names = [one.name for one in (*run.studies, *run.leaks)]
    assert len(set(names)) == len(names)
    for settings, attacks in zip(run.studies, run.attacks, strict=True):
        assert all(length < settings.t_max for length in attacks.lengths)


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        ({"environment": "Ant-v5"}, ValueError, "unknown environment 'Ant-v5'"),
        ({"t_max": 0}, ValueError, "t_max must be at least 1"),
        ({"oracles": 3}, ValueError, "oracles must be at least 4"),
        ({"trajectories": 1}, ValueError, "trajectories must be at least 2"),
        ({"ddpg_steps": 0}, ValueError, "ddpg_steps must be at least 1"),
        ({"ddpg_steps": 50}, ValueError, "ddpg_steps must exceed the warm-up of 50 steps"),
        ({"bcq_updates": 2.5}, TypeError, "bcq_updates must be an integer"),
        ({"ddpg": BCQSettings()}, TypeError, "ddpg must be a DDPGSettings"),
        ({"bcq": None}, TypeError, "bcq must be a BCQSettings"),
        ({"mixture": (0.3, 0.3)}, TypeError, "mixture must be a Mixture"),
        ({"timeout_is_terminal": 1}, TypeError, "timeout_is_terminal must be a bool"),
        ({"seed": -1}, ValueError, "seed must be at least 0"),
        ({"evaluation_episodes": 0}, ValueError, "evaluation_episodes must be at least 1"),
    ],
)
def test_malformed_settings_are_refused(tiny_settings, changes, error, message):
    with pytest.raises(error, match=message):
        dataclasses.replace(tiny_settings, **changes)


def test_scale_compares_with_the_thesis() -> None:
    quick, paper = sizes.STUDY, sizes.PAPER.studies[-1]
    text = sizes.scale(quick, paper)
    for number in (quick.ddpg_steps, quick.bcq_updates, sizes.STEPS_OF_THE_THESIS):
        assert f"{number:,}" in text
    assert len(text) <= 120
    assert sizes.scale(paper) == ""
    assert sizes.scale(dataclasses.replace(paper, bcq_updates=10)) != ""
    with pytest.raises(ValueError, match="at least one"):
        sizes.scale()
