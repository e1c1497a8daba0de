"""BCQ: losses against a second implementation, known answers, resuming, files, bad input."""

from __future__ import annotations

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dprl.membership import bcq, checkpoints
from dprl.membership.bcq import BCQPopulation, BCQSettings, train
from dprl.membership.episodes import Transitions

D_S, D_A = 4, 2
SMALL = BCQSettings(
    hidden=(6, 5), vae_hidden=(7, 6), batch_size=8, candidates=3, acting_candidates=4
)


def random_transitions(n: int, seed: int) -> Transitions:
    rng = np.random.default_rng(seed)
    return Transitions(
        rng.normal(size=(n, D_S)),
        rng.uniform(-1, 1, (n, D_A)),
        rng.normal(size=n),
        rng.normal(size=(n, D_S)),
        rng.random(n) < 0.3,
    )


def as_batch(data: Transitions) -> bcq.Batch:
    return bcq.Batch(*(np.asarray(getattr(data, name), float) for name in bcq.Batch._fields))


# -- one update, written again in plain NumPy: inputs concatenated, states repeated ----------


def network(layers, x, *, tanh=False):
    x = np.asarray(x, float)
    for i, (w, b) in enumerate(layers):
        x = x @ np.asarray(w, float) + np.asarray(b, float)
        if i < len(layers) - 1:
            x = np.maximum(x, 0)
    return np.tanh(x) if tanh else x


def twin(layers, i):
    return [(w[i], b[i]) for w, b in layers]


def perturbed(net, s, a, settings):
    return np.clip(
        a + settings.perturbation * network(net, np.hstack([s, a]), tanh=True), -1, 1
    )


def naive_losses(parameters, batch, noise, settings):
    """The four losses, for parameters that do not change between the steps."""
    s, a, r, s2, d = batch
    z_enc, z_next, z_now = (np.asarray(z, float) for z in noise)
    out = network(parameters.encoder, np.hstack([s, a]))
    mean, log_std = np.split(out, 2, axis=1)
    std = np.exp(np.clip(log_std, *settings.log_std_range))
    decoded = network(parameters.decoder, np.hstack([s, mean + std * z_enc]), tanh=True)
    reconstruction = ((decoded - a) ** 2).mean()
    # KL of N(mean, std^2) from N(0, 1), by its definition E[log p - log q] in closed form
    kl = -np.log(std) - 0.5 + (std**2 + mean**2) / 2

    n = settings.candidates
    s2_many = np.repeat(s2, n, axis=0)
    z = np.clip(z_next, -settings.latent_clip, settings.latent_clip).reshape(len(s2_many), -1)
    proposals = network(parameters.decoder, np.hstack([s2_many, z]), tanh=True)
    a2 = perturbed(parameters.target_perturbation, s2_many, proposals, settings)
    q = np.stack(
        [
            network(twin(parameters.target_critics, i), np.hstack([s2_many, a2]))[:, 0]
            for i in range(2)
        ]
    )
    lam = settings.minimum_weight
    value = (lam * q.min(axis=0) + (1 - lam) * q.max(axis=0)).reshape(len(s2), n).max(axis=1)
    y = r + settings.discount * (1 - d) * value
    critics = sum(
        ((network(twin(parameters.critics, i), np.hstack([s, a]))[:, 0] - y) ** 2).mean()
        for i in range(2)
    )

    z = np.clip(z_now, -settings.latent_clip, settings.latent_clip)
    proposals = network(parameters.decoder, np.hstack([s, z]), tanh=True)
    moved = perturbed(parameters.perturbation, s, proposals, settings)
    actor = -network(twin(parameters.critics, 0), np.hstack([s, moved])).mean()
    return np.array([reconstruction, kl.mean(), critics, actor]), y


@pytest.fixture(scope="module")
def case():
    """A state whose targets differ from the networks, a batch, and noise."""
    state = bcq.initialise(jax.random.key(3), D_S, D_A, SMALL)
    other = bcq.initialise(jax.random.key(4), D_S, D_A, SMALL).parameters
    parameters = state.parameters._replace(
        target_perturbation=other.perturbation, target_critics=other.critics
    )
    batch = as_batch(random_transitions(SMALL.batch_size, 5))
    noise = bcq.draw_noise(jax.random.key(6), D_A, SMALL)
    return state._replace(parameters=parameters), batch, noise


@pytest.fixture(scope="module")
def updated(case):
    state, batch, noise = case
    run = jax.jit(bcq.update, static_argnames="settings")
    return run(state, bcq.Batch(*map(jnp.float32, batch)), noise, SMALL)


def test_losses_equal_the_plain_formulas(case):
    state, batch, noise = case
    parameters = state.parameters
    expected, y = naive_losses(parameters, batch, noise, SMALL)
    total, parts = bcq.vae_loss(
        (parameters.encoder, parameters.decoder), batch, noise.encoding, SMALL
    )
    targets = bcq.critic_targets(parameters, batch, noise.proposals, SMALL)
    found = [
        *parts,
        bcq.critics_loss(parameters.critics, batch, targets),
        bcq.perturbation_loss(parameters.perturbation, parameters, batch, noise.proposal, SMALL),
    ]
    np.testing.assert_allclose(targets, y, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(found, expected, rtol=1e-5)
    assert float(total) == pytest.approx(expected[0] + 0.5 * expected[1], rel=1e-5)


def test_the_steps_see_what_the_steps_before_changed(case, updated):
    """Critics use the new VAE, the perturbation the new critics: by the plain formulas."""
    state, batch, noise = case
    new, losses = updated
    old = state.parameters
    after_vae = old._replace(encoder=new.parameters.encoder, decoder=new.parameters.decoder)
    after_critics = after_vae._replace(critics=new.parameters.critics)
    expected = [
        *naive_losses(old, batch, noise, SMALL)[0][:2],
        naive_losses(after_vae, batch, noise, SMALL)[0][2],
        naive_losses(after_critics, batch, noise, SMALL)[0][3],
    ]
    np.testing.assert_allclose(losses, expected, rtol=1e-5)
    # and the order matters here
    at_once = naive_losses(old, batch, noise, SMALL)[0]
    assert abs(at_once[2] / expected[2] - 1) > 1e-4
    assert abs(at_once[3] / expected[3] - 1) > 1e-4


def test_each_network_takes_adams_first_step_down_its_own_loss(case, updated):
    """Adam's first step is -rate * sign(slope); the slope by differences of the plain losses."""
    state, batch, noise = case
    new = updated[0].parameters
    old = state.parameters
    after_vae = old._replace(encoder=new.encoder, decoder=new.decoder)
    after_critics = after_vae._replace(critics=new.critics)
    fields = {
        "encoder": (old, lambda losses: losses[0] + 0.5 * losses[1]),
        "decoder": (old, lambda losses: losses[0] + 0.5 * losses[1]),
        "critics": (after_vae, lambda losses: losses[2]),
        "perturbation": (after_critics, lambda losses: losses[3]),
    }
    step = 1e-5
    compared = 0
    for field, (base, loss) in fields.items():
        before, after = getattr(old, field), getattr(new, field)
        for layer in range(len(before)):
            moved = np.asarray(after[layer].weight - before[layer].weight, float).ravel()
            for index in (0, moved.size // 2, moved.size - 1):
                slopes = []
                for sign in (1, -1):
                    weight = np.array(before[layer].weight, float)
                    weight.ravel()[index] += sign * step
                    layers = list(before)
                    layers[layer] = (weight, before[layer].bias)
                    value = naive_losses(base._replace(**{field: layers}), batch, noise, SMALL)[0]
                    slopes.append(loss(value))
                slope = (slopes[0] - slopes[1]) / (2 * step)
                if abs(slope) > 1e-4:  # a dead unit has no slope and makes no step
                    assert moved[index] == pytest.approx(-1e-3 * np.sign(slope), rel=1e-2)
                    compared += 1
    assert compared > 20


def test_targets_move_by_their_rate_towards_the_new_networks(case, updated):
    old, new = case[0].parameters, updated[0].parameters
    for target, online in (("target_critics", "critics"), ("target_perturbation", "perturbation")):
        for before, after, goal in zip(
            *(
                jax.tree.leaves(getattr(p, name))
                for p, name in ((old, target), (new, target), (new, online))
            ),
            strict=True,
        ):
            np.testing.assert_allclose(after, 0.995 * before + 0.005 * goal, atol=1e-7)


def test_initial_targets_are_copies_and_twins_differ():
    parameters = bcq.initialise(jax.random.key(0), D_S, D_A, SMALL).parameters
    for a, b in (
        (parameters.critics, parameters.target_critics),
        (parameters.perturbation, parameters.target_perturbation),
    ):
        assert all(map(np.array_equal, jax.tree.leaves(a), jax.tree.leaves(b)))
    assert not np.array_equal(parameters.critics[0].weight[0], parameters.critics[0].weight[1])


def test_paper_sizes():
    shapes = jax.eval_shape(
        lambda: bcq.initialise(jax.random.key(0), 11, 3, BCQSettings.paper()).parameters
    )
    sizes = {
        name: [layer.weight.shape for layer in getattr(shapes, name)] for name in shapes._fields
    }
    assert sizes["encoder"] == [(14, 750), (750, 750), (750, 12)]
    assert sizes["decoder"] == [(17, 750), (750, 750), (750, 3)]
    assert sizes["perturbation"] == [(14, 400), (400, 300), (300, 3)]
    assert sizes["critics"] == [(2, 14, 400), (2, 400, 300), (2, 300, 1)]


# -- acting ---------------------------------------------------------------------------------


def test_act_is_a_function_of_its_key_and_returns_the_best_candidate():
    parameters = bcq.initialise(jax.random.key(7), D_S, D_A, SMALL).parameters
    observations = jnp.asarray(random_transitions(9, 8).observations)
    first, again, other = (
        np.asarray(bcq.act(parameters, jax.random.key(k), observations, SMALL)) for k in (1, 1, 2)
    )
    assert np.array_equal(first, again)
    assert not np.array_equal(first, other)
    # by hand: proposals, perturbed, the first critic's favourite
    z = np.asarray(jax.random.normal(jax.random.key(1), (9, SMALL.acting_candidates, 2 * D_A)))
    for s, rows, chosen in zip(np.asarray(observations), z, first, strict=True):
        many = np.repeat(s[None], len(rows), axis=0)
        proposals = network(
            parameters.decoder, np.hstack([many, np.clip(rows, -0.5, 0.5)]), tanh=True
        )
        actions = perturbed(parameters.perturbation, many, proposals, SMALL)
        values = network(twin(parameters.critics, 0), np.hstack([many, actions]))[:, 0]
        np.testing.assert_allclose(chosen, actions[values.argmax()], atol=1e-5)


def test_reconstruction_error_decodes_the_mean():
    parameters = bcq.initialise(jax.random.key(7), D_S, D_A, SMALL).parameters
    data = random_transitions(5, 1)
    found = bcq.vae_reconstruction_error(
        parameters, jnp.asarray(data.observations), jnp.asarray(data.actions)
    )
    out = network(parameters.encoder, np.hstack([data.observations, data.actions]))
    decoded = network(
        parameters.decoder, np.hstack([data.observations, out[:, : 2 * D_A]]), tanh=True
    )
    np.testing.assert_allclose(found, ((decoded - data.actions) ** 2).mean(axis=1), rtol=1e-4)


# -- training ---------------------------------------------------------------------------------


DATASETS = [random_transitions(30, 1), random_transitions(12, 2), random_transitions(50, 3)]


@pytest.fixture(scope="module")
def trained():
    return train(DATASETS, SMALL, seeds=[5, 6, 7], updates=12, chunk=4)


def leaves(population: BCQPopulation) -> list[np.ndarray]:
    return [np.asarray(leaf) for leaf in jax.tree.leaves(population.parameters)]


def same(one: BCQPopulation, two: BCQPopulation) -> bool:
    return (
        all(map(np.array_equal, leaves(one), leaves(two)))
        and np.array_equal(one.losses, two.losses)
        and one.updates == two.updates
    )


def test_resumed_training_is_bitwise_the_uninterrupted_one(trained, tmp_path):
    path = tmp_path / "run.npz"

    def killed(done: int, total: int) -> None:
        assert total == 12
        if done == 8:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train(
            DATASETS, SMALL, seeds=[5, 6, 7], updates=12, chunk=4,
            checkpoint=path, save_every=1e-9, progress=killed,
        )  # fmt: skip
    assert checkpoints.read_metadata(path)["done"] == 4  # killed before chunk 2 was written
    done = []
    resumed = train(
        DATASETS, SMALL, seeds=[5, 6, 7], updates=12, chunk=4,
        checkpoint=path, progress=lambda now, _: done.append(now),
    )  # fmt: skip
    assert done == [8, 12]
    assert same(resumed, trained)
    # a finished run is read, not computed
    again = train(
        DATASETS, SMALL, seeds=[5, 6, 7], updates=12, chunk=4, checkpoint=path,
        progress=lambda *_: pytest.fail("nothing was left to do"),
    )  # fmt: skip
    assert same(again, trained)


def test_a_deadline_leaves_a_checkpoint_that_continues(trained, tmp_path):
    path = tmp_path / "run.npz"
    arguments = {"seeds": [5, 6, 7], "updates": 12, "chunk": 4, "checkpoint": path}
    rounds = 0
    for _ in range(4):
        deadline = checkpoints.Deadline(1.0, clock=iter(np.arange(0.0, 100.0)).__next__)
        try:
            result = train(DATASETS, SMALL, **arguments, deadline=deadline)
            break
        except checkpoints.OutOfTime:
            rounds += 1
    assert rounds == 2
    assert same(result, trained)


def test_a_shorter_run_can_be_continued(trained, tmp_path):
    path = tmp_path / "run.npz"
    for updates in (4, 12):
        result = train(
            DATASETS, SMALL, seeds=[5, 6, 7], updates=updates, chunk=4, checkpoint=path
        )
    assert same(result, trained)
    with pytest.raises(checkpoints.CheckpointError, match="12 updates already"):
        train(DATASETS, SMALL, seeds=[5, 6, 7], updates=8, chunk=4, checkpoint=path)


def test_a_model_does_not_depend_on_the_others_in_its_population(trained):
    alone = train(DATASETS[1:2], SMALL, seeds=[6], updates=12, chunk=4)
    for one, many in zip(leaves(alone), leaves(trained), strict=True):
        np.testing.assert_allclose(one[0], many[1], atol=2e-5)


def test_seeds_matter(trained):
    other = train(DATASETS, SMALL, seeds=[5, 6, 8], updates=12, chunk=4)
    equal = [np.allclose(a[i], b[i]) for i in (0, 2) for a, b in zip(leaves(trained), leaves(other), strict=True)]  # fmt: skip # noqa: E501
    assert all(equal[: len(equal) // 2])
    assert not any(equal[len(equal) // 2 :])


def test_updates_equal_single_updates_in_a_loop(trained):
    """The compiled population against `update` called one by one, with the same numbers."""
    first, carried = (jax.random.split(jax.random.key(6))[i] for i in (0, 1))
    state = bcq.initialise(first, D_S, D_A, SMALL)
    batch = as_batch(DATASETS[1])
    run = jax.jit(bcq.update, static_argnames="settings")
    for index in range(3):
        bits = jax.random.bits(jax.random.fold_in(carried, index), (4,), jnp.uint32)
        bulk, rows = jax.random.split(jax.random.wrap_key_data(bits, impl="rbg"))
        chosen = np.asarray(jax.random.randint(rows, (4, SMALL.batch_size), 0, len(DATASETS[1])))
        noise = bcq.draw_noise(bulk, D_A, SMALL, leading=(4,))
        for i in range(4):
            drawn = bcq.Batch(*(jnp.float32(x[chosen[i]]) for x in batch))
            state, _ = run(state, drawn, jax.tree.map(lambda x, i=i: x[i], noise), SMALL)
    for one, many in zip(jax.tree.leaves(state.parameters), leaves(trained), strict=True):
        np.testing.assert_allclose(one, many[1], atol=2e-5)


def test_saved_and_loaded_models_answer_identically(trained, tmp_path):
    trained.save(tmp_path / "models.npz")
    back = BCQPopulation.load(tmp_path / "models.npz")
    assert same(back, trained)
    assert (back.settings, back.seeds) == (trained.settings, trained.seeds)
    assert (back.observation_size, back.action_size, len(back)) == (D_S, D_A, 3)
    observations = np.stack([random_transitions(6, i).observations for i in range(3)])
    key = jax.random.key(9)
    assert np.array_equal(trained.act(key, observations), back.act(key, observations))
    data = random_transitions(6, 1)
    errors = [
        bcq.vae_reconstruction_error(
            one.model(2), jnp.asarray(data.observations), jnp.asarray(data.actions)
        )
        for one in (trained, back)
    ]
    assert np.array_equal(*errors)


def test_population_and_policy_act_as_the_single_model(trained):
    observations = np.stack([random_transitions(6, i).observations for i in range(3)])
    together = np.asarray(trained.act(jax.random.key(0), observations))
    for i, key in enumerate(jax.random.split(jax.random.key(0), 3)):
        alone = bcq.act(trained.model(i), key, jnp.asarray(observations[i]), SMALL)
        np.testing.assert_allclose(together[i], alone, atol=1e-5)
    policy = trained.policy(1, jax.random.key(4))
    assert np.array_equal(policy(observations[1], 2), policy(observations[1], 2))
    assert not np.array_equal(policy(observations[1], 2), policy(observations[1], 3))
    assert np.abs(together).max() <= 1


# -- behaviour: one state, known answer ---------------------------------------------------------


@pytest.fixture(scope="module")
def bandit():
    """Actions near -0.5 and near +0.5; the reward grows with the action, beyond the data too.

    A critic that extrapolates likes +1 best; among the actions of the data +0.5 is best.
    The second data set has the reward reversed, so that -0.5 is best.
    """
    rng = np.random.default_rng(0)
    n = 400
    actions = rng.choice([-0.5, 0.5], (n, 1)) + rng.normal(0, 0.02, (n, 1))
    states = np.zeros((n, 1))
    ends = np.ones(n, dtype=bool)
    datasets = [
        Transitions(states, actions, sign * actions[:, 0], states, ends) for sign in (1, -1)
    ]
    settings = BCQSettings(hidden=(32, 32), vae_hidden=(32, 32), batch_size=64, candidates=2)
    return train(datasets, settings, seeds=[1, 1], updates=2000, chunk=500), datasets


def test_the_better_kind_of_action_in_the_data_is_found_and_none_beyond(bandit):
    models, _ = bandit
    answers = np.asarray(models.act(jax.random.key(0), np.zeros((2, 50, 1))))[:, :, 0]
    assert (np.abs(answers[0] - 0.5) < 0.15).all()
    assert (np.abs(answers[1] + 0.5) < 0.15).all()


def test_the_critic_alone_would_leave_the_data(bandit):
    models, _ = bandit
    grid = jnp.linspace(-1, 1, 41)[:, None]
    values = bcq._twin_values(models.model(0).critics, jnp.zeros((41, 1)), grid)[0]
    assert float(grid[values.argmax(), 0]) > 0.8


def test_reconstruction_error_falls_and_critics_learn(bandit):
    models, datasets = bandit
    losses = models.losses
    assert losses.shape == (2, 4, len(bcq.LOSSES))
    assert (losses[:, -1, 0] < 0.5 * losses[:, 0, 0]).all()
    assert (losses[:, -1, 2] < 0.05 * losses[:, 0, 2]).all()
    fresh = bcq.initialise(jax.random.key(0), 1, 1, models.settings).parameters
    inputs = jnp.asarray(datasets[0].observations), jnp.asarray(datasets[0].actions)
    before, after = (
        float(bcq.vae_reconstruction_error(p, *inputs).mean()) for p in (fresh, models.model(0))
    )
    assert after < 0.2 * before


def test_a_chain_of_two_states_discounts_the_value_of_the_next():
    """s0 -> s1 -> end with reward 1 at the end: Q(s0) = discount, Q(s1) = 1."""
    rng = np.random.default_rng(1)
    n = 200
    first = np.tile([1.0, 0.0], (n, 1))
    second = np.tile([0.0, 1.0], (n, 1))
    data = Transitions(
        np.vstack([first, second]),
        rng.uniform(-1, 1, (2 * n, 1)),
        np.repeat([0.0, 1.0], n),
        np.vstack([second, np.zeros((n, 2))]),
        np.repeat([False, True], n),
    )
    settings = BCQSettings(
        hidden=(16, 16), vae_hidden=(8, 8), batch_size=32, candidates=2,
        discount=0.5, target_rate=0.05,
    )  # fmt: skip
    models = train([data], settings, seeds=[0], updates=1500, chunk=500)
    values = bcq._twin_values(models.model(0).critics, jnp.eye(2), jnp.zeros((2, 1)))
    np.testing.assert_allclose(values, [[0.5, 1.0]] * 2, atol=0.05)


# -- bad input ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"hidden": (64, 0)}, "each width in hidden must be at least 1"),
        ({"hidden": [64, 64]}, "hidden must be a tuple"),
        ({"vae_hidden": ()}, "vae_hidden must be a tuple of layer widths"),
        ({"latent_factor": 0}, "latent_factor must be at least 1"),
        ({"perturbation": -0.1}, "perturbation must not be negative"),
        ({"perturbation": float("nan")}, "perturbation must be finite"),
        ({"log_std_range": (2.0, -2.0)}, "log_std_range must increase"),
        ({"log_std_range": (1.0,)}, "log_std_range must be a pair"),
        ({"latent_clip": 0.0}, "latent_clip must be positive"),
        ({"divergence_weight": -1.0}, "divergence_weight must not be negative"),
        ({"minimum_weight": 1.1}, r"minimum_weight must lie in \[0, 1\]"),
        ({"learning_rate": 0.0}, "learning_rate must be positive"),
        ({"discount": 1.0}, r"discount must lie in \[0, 1\)"),
        ({"target_rate": 0.0}, r"target_rate must lie in \(0, 1\]"),
        ({"batch_size": 2.5}, "batch_size must be an integer"),
        ({"candidates": 0}, "candidates must be at least 1"),
        ({"acting_candidates": True}, "acting_candidates must be an integer"),
    ],
)
def test_bad_settings(change, message):
    with pytest.raises((TypeError, ValueError), match=message):
        replace(SMALL, **change)


ONE = DATASETS[1]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"datasets": []}, "at least one data set"),
        ({"datasets": [ONE.actions]}, "each data set must be a Transitions"),
        (
            {"datasets": [replace(ONE, actions=2 * ONE.actions)]},
            r"actions must lie in \[-1, 1\], got one of size",
        ),
        (
            {"datasets": [ONE, replace(ONE, actions=ONE.actions[:, :1])], "seeds": [0, 1]},
            r"same sizes of observation and action, got \[\(4, 1\), \(4, 2\)\]",
        ),
        ({"seeds": [0, 1]}, "one entry per data set, 1, got 2"),
        ({"seeds": [-1]}, "each seed must be at least 0"),
        ({"updates": 0}, "updates must be at least 1"),
        ({"chunk": 0}, "chunk must be at least 1"),
        ({"save_every": 0.0}, "save_every must be positive"),
        ({"settings": {"hidden": (4,)}}, "settings must be a BCQSettings"),
    ],
)
def test_bad_training_input(change, message):
    arguments = {
        "datasets": [ONE], "settings": SMALL, "seeds": [0], "updates": 2, **change,
    }  # fmt: skip
    with pytest.raises((TypeError, ValueError), match=message):
        train(arguments.pop("datasets"), arguments.pop("settings"), **arguments)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"seeds": [5, 6, 9]}, "seeds"),
        ({"chunk": 3}, "chunk"),
        ({"settings": replace(SMALL, discount=0.9)}, "settings"),
        ({"settings": replace(SMALL, hidden=(6, 6))}, "settings"),
        ({"datasets": DATASETS[::-1]}, "data"),
    ],
)
def test_a_checkpoint_of_another_training_is_refused(change, message, trained, tmp_path):
    path = tmp_path / "run.npz"
    arguments = {"seeds": [5, 6, 7], "updates": 4, "chunk": 4, "checkpoint": path}
    train(DATASETS, SMALL, **arguments)
    arguments |= {"datasets": DATASETS, "settings": SMALL, **change}
    with pytest.raises(checkpoints.CheckpointError, match=message):
        train(arguments.pop("datasets"), arguments.pop("settings"), **arguments)


def test_other_files_are_refused(tmp_path):
    path = tmp_path / "other.npz"
    checkpoints.save(path, {"x": np.zeros(2)}, {"kind": "something else"})
    with pytest.raises(checkpoints.CheckpointError, match="does not hold a BCQ population"):
        BCQPopulation.load(path)


def test_bad_queries(trained):
    good = np.zeros((3, 2, D_S))
    with pytest.raises(ValueError, match=r"shape \(3, n, 4\), got \(2, 2, 4\)"):
        trained.act(jax.random.key(0), good[:2])
    with pytest.raises(ValueError, match="model must be below 3, got 3"):
        trained.model(3)
    with pytest.raises(ValueError, match=r"observations must have shape \(n, 4\)"):
        bcq.act(trained.model(0), jax.random.key(0), jnp.zeros((2, D_S + 1)), SMALL)
    with pytest.raises(ValueError, match=r"actions must have shape \(2, 2\)"):
        bcq.vae_reconstruction_error(trained.model(0), jnp.zeros((2, D_S)), jnp.zeros((3, D_A)))
    with pytest.raises(ValueError, match="action_size must be at least 1"):
        bcq.initialise(jax.random.key(0), 4, 0, SMALL)
