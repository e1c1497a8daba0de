"""BCQ: losses against a second implementation, known answers, going on, bad input."""

from __future__ import annotations

from dataclasses import dataclass, replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dprl.agents import bcq, bcq_population, parallel
from dprl.agents.bcq import BCQSettings
from dprl.agents.bcq_population import BCQPopulation
from dprl.agents.episodes import Transitions
from dprl.agents.networks import MiniBatch, fast_key

D_S, D_A = 2, 2
# one set of sizes for all tests: each program is compiled once
SMALL = BCQSettings(
    hidden=(24, 20), vae_hidden=(28, 26), batch_size=32, candidates=3, acting_candidates=20,
    discount=0.5, target_rate=0.02, learning_rate=3e-3,
)  # fmt: skip
CHUNK = 20
SEEDS = [5, 5, 6, 7]


def one_state(sign: float) -> Transitions:
    """Actions near -(1/2, 1/2) and near (1/2, 1/2); the reward is their mean, times `sign`.

    It grows beyond the data: a critic that extrapolates likes (1, 1) best, or -(1, 1). Among
    the actions of the data (1/2, 1/2) is best, or -(1/2, 1/2).
    """
    rng = np.random.default_rng(0)
    actions = rng.choice([-0.5, 0.5], (400, 1)) + rng.normal(0, 0.02, (400, D_A))
    states, ends = np.zeros((400, D_S)), np.ones(400, dtype=bool)
    return Transitions(states, actions, sign * actions.mean(axis=1), states, ends)


def chain(n: int) -> Transitions:
    """s0 -> s1 -> end, with reward 1 at the end, whatever the action; n times each."""
    first, second = np.tile([1.0, 0.0], (n, 1)), np.tile([0.0, 1.0], (n, 1))
    return Transitions(
        np.vstack([first, second]),
        np.random.default_rng(n).uniform(-1, 1, (2 * n, D_A)),
        np.repeat([0.0, 1.0], n),
        np.vstack([second, np.zeros((n, 2))]),
        np.repeat([False, True], n),
    )


DATASETS = [one_state(1), one_state(-1), chain(120), chain(40)]


@dataclass(frozen=True)
class Trained:
    training: bcq_population.BCQTraining
    losses: np.ndarray
    models: BCQPopulation

    @property
    def parameters(self) -> bcq.BCQParameters:
        return self.models.parameters


def learn(*pieces: int, datasets=DATASETS, settings=SMALL, seeds=SEEDS, chunk=CHUNK) -> Trained:
    training, losses = bcq_population.start(settings, D_S, D_A, seeds), []
    for updates in pieces:
        training, of_piece = bcq_population.train(
            training, datasets, settings, updates, chunk=chunk
        )
        losses.append(of_piece)
    models = BCQPopulation(settings, training.models.parameters)
    return Trained(training, np.concatenate(losses, axis=1), models)


def random_transitions(n: int, seed: int) -> Transitions:
    rng = np.random.default_rng(seed)
    return Transitions(
        rng.normal(size=(n, D_S)),
        rng.uniform(-1, 1, (n, D_A)),
        rng.normal(size=n),
        rng.normal(size=(n, D_S)),
        rng.random(n) < 0.3,
    )


# Trees are cut and compared by NumPy: nothing to compile.


def fresh(seed: int) -> bcq.BCQState:
    """What a training with this seed starts from."""
    return jax.device_get(
        bcq_population._start_one(bcq_population._raw_keys([seed], 0)[0, 0], D_S, D_A, SMALL)
    )


def draw_noise(key: jax.Array, *leading: int) -> bcq.BCQNoise:
    numbers = jax.random.normal(key, (*leading, *bcq.noise_shape(D_A, SMALL)))
    return jax.device_get(bcq.as_noise(numbers))


def model_of(population: BCQPopulation | Trained, index: int) -> bcq.BCQParameters:
    return jax.tree.map(lambda leaf: np.asarray(leaf)[index], population.parameters)


def as_batch(data: Transitions) -> MiniBatch:
    return MiniBatch(*(np.asarray(getattr(data, name), float) for name in MiniBatch._fields))


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
    return np.clip(a + settings.perturbation * network(net, np.hstack([s, a]), tanh=True), -1, 1)


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
    state, other = fresh(3), fresh(4).parameters
    parameters = state.parameters._replace(
        target_perturbation=other.perturbation,
        # large values, so that it matters which actions they are asked about
        target_critics=jax.tree.map(lambda leaf: 5 * leaf, other.critics),
    )
    batch = as_batch(random_transitions(SMALL.batch_size, 5))
    noise = draw_noise(jax.random.key(6))
    return state._replace(parameters=parameters), batch, noise


update = jax.jit(bcq.update, static_argnames="settings")


@pytest.fixture(scope="module")
def updated(case):
    state, batch, noise = case
    return jax.device_get(update(state, MiniBatch(*map(np.float32, batch)), noise, SMALL))


def own_losses(parameters, batch, noise):
    total, parts = bcq.vae_loss(
        (parameters.encoder, parameters.decoder), batch, noise.encoding, SMALL
    )
    targets = bcq.critic_targets(parameters, batch, noise.proposals, SMALL)
    critics = bcq.critics_loss(parameters.critics, batch, targets)
    moved = bcq.perturbation_loss(parameters.perturbation, parameters, batch, noise.proposal, SMALL)
    return targets, jnp.stack([*parts, critics, moved]), total


def test_losses_equal_the_plain_formulas(case):
    state, batch, noise = case
    parameters = state.parameters
    expected, y = naive_losses(parameters, batch, noise, SMALL)
    targets, found, total = jax.jit(own_losses)(parameters, batch, noise)
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
                    assert moved[index] == pytest.approx(-3e-3 * np.sign(slope), rel=1e-2)
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
            np.testing.assert_allclose(after, 0.98 * before + 0.02 * goal, atol=1e-6)


def test_initial_targets_are_copies_and_twins_differ():
    parameters = fresh(0).parameters
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
    parameters = fresh(7).parameters
    observations = jnp.asarray(random_transitions(9, 8).observations)
    first, again, other = (
        np.asarray(bcq.act(parameters, jax.random.key(k), observations, SMALL)) for k in (1, 1, 2)
    )
    assert np.array_equal(first, again)
    assert not np.array_equal(first, other)
    # by hand: proposals, perturbed, the first critic's favourite
    shape = (9, SMALL.acting_candidates, 2 * D_A)
    z = np.asarray(jax.random.normal(fast_key(jax.random.key(1)), shape))
    for s, rows, chosen in zip(np.asarray(observations), z, first, strict=True):
        many = np.repeat(s[None], len(rows), axis=0)
        proposals = network(
            parameters.decoder, np.hstack([many, np.clip(rows, -0.5, 0.5)]), tanh=True
        )
        actions = perturbed(parameters.perturbation, many, proposals, SMALL)
        values = network(twin(parameters.critics, 0), np.hstack([many, actions]))[:, 0]
        np.testing.assert_allclose(chosen, actions[values.argmax()], atol=1e-5)


def test_reconstruction_error_decodes_the_mean():
    parameters = fresh(7).parameters
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


@pytest.fixture(scope="module")
def trained():
    return learn(3 * CHUNK)


@pytest.fixture(scope="module")
def taught():
    return learn(600)


def leaves(trained: Trained) -> list[np.ndarray]:
    return [np.asarray(leaf) for leaf in jax.tree.leaves(trained.parameters)]


@pytest.mark.parametrize("pieces", [(20, 40), (40, 20), (20, 20, 20)])
def test_to_go_on_is_never_to_have_stopped_bit_by_bit(trained, pieces):
    other = learn(*pieces)
    assert other.training.updates == trained.training.updates == 3 * CHUNK
    for a, b in zip(*map(jax.tree.leaves, (other.training, trained.training)), strict=True):
        assert np.array_equal(a, b)
    assert np.array_equal(other.losses, trained.losses)


def test_a_model_depends_on_its_own_seed_only(trained):
    other = learn(3 * CHUNK, seeds=[5, 5, 6, 8])
    for a, b in zip(leaves(trained), leaves(other), strict=True):
        assert np.array_equal(a[:3], b[:3])
        assert not np.allclose(a[3], b[3])


def test_updates_equal_single_updates_in_a_loop():
    """The compiled population against `update` called one by one, with the same numbers.

    The loop knows one model only, so models do not depend on the others of their population.
    """
    population, model = learn(CHUNK), 3
    state, batch = fresh(SEEDS[model]), as_batch(DATASETS[model])
    raw = bcq_population._raw_keys([SEEDS[model]], 1, 0)[0]
    rows, bulk = (jax.random.wrap_key_data(one, impl="rbg") for one in raw)
    bits = np.asarray(jax.random.bits(rows, (CHUNK, SMALL.batch_size), jnp.uint32))
    noise = draw_noise(bulk, CHUNK)
    losses = []
    for i, chosen in enumerate(bits % len(DATASETS[model])):
        drawn = MiniBatch(*(np.float32(x[chosen]) for x in batch))
        state, one = update(state, drawn, jax.tree.map(lambda x, i=i: x[i], noise), SMALL)
        losses.append(one)
    np.testing.assert_allclose(population.losses[model, 0], np.mean(losses, axis=0), rtol=1e-3)
    for one, many in zip(jax.tree.leaves(state.parameters), leaves(population), strict=True):
        np.testing.assert_allclose(one, many[model], atol=2e-3)


@pytest.mark.parametrize("cores", [1, 3])
def test_models_learn_the_same_alone_in_company_and_on_any_number_of_cores(
    trained, monkeypatch, cores
):
    monkeypatch.setattr(parallel, "available_cores", lambda: cores)
    for chosen in ([0, 1, 2, 3], [2], [3, 0]):
        given = {"datasets": [DATASETS[i] for i in chosen], "seeds": [SEEDS[i] for i in chosen]}
        other = learn(3 * CHUNK, **given)
        assert np.array_equal(other.losses, trained.losses[chosen])
        for some, of_all in zip(leaves(other), leaves(trained), strict=True):
            assert np.array_equal(some, of_all[chosen])


def test_an_accelerator_learns_what_a_cpu_learns(monkeypatch):
    """All models at once, up to rounding; here on a CPU."""
    alone = learn(CHUNK)
    monkeypatch.setattr(parallel, "groups", lambda agents: [slice(0, agents)])
    together = learn(CHUNK)
    np.testing.assert_allclose(together.losses, alone.losses, rtol=1e-3, atol=1e-5)
    for one, two in zip(leaves(together), leaves(alone), strict=True):
        np.testing.assert_allclose(one, two, atol=2e-3)


def test_every_seed_chunk_and_purpose_has_its_own_keys():
    keys = np.concatenate(
        [
            bcq_population._raw_keys([0, 1, 2**40], *purpose).reshape(-1, 4)
            for purpose in ((0,), (1, 0), (1, 1), (1, 2**33))
        ]
    )
    assert len(np.unique(keys, axis=0)) == 24


def test_population_and_policy_act_as_the_single_model(trained):
    observations = np.stack([random_transitions(9, i).observations for i in range(4)])
    together = np.asarray(trained.models.act(jax.random.key(0), observations))
    for i, key in enumerate(jax.random.split(jax.random.key(0), 4)):
        alone = bcq.act(trained.models.model(i), key, jnp.asarray(observations[i]), SMALL)
        np.testing.assert_allclose(together[i], alone, atol=1e-5)
    policy = trained.models.policy(1, jax.random.key(4))
    assert np.array_equal(policy(observations[1], 2), policy(observations[1], 2))
    assert not np.array_equal(policy(observations[1], 2), policy(observations[1], 3))
    assert np.abs(together).max() <= 1


def test_selected_models_are_the_same_models(trained):
    some = trained.models.select([2, 0])
    assert (len(some), some.observation_size, some.action_size) == (2, D_S, D_A)
    for now, before in ((0, 2), (1, 0)):
        same = jax.tree.map(np.array_equal, some.model(now), trained.models.model(before))
        assert all(jax.tree.leaves(same))


@pytest.mark.parametrize(
    ("models", "error", "message"),
    [
        ([], ValueError, "models must be some numbers below 4"),
        ([0, 4], ValueError, "models must be some numbers below 4"),
        ([-1], ValueError, "each of models must be at least 0"),
        ([0.5], TypeError, "each of models must be an integer"),
    ],
)
def test_models_that_are_not_there_cannot_be_selected(trained, models, error, message):
    with pytest.raises(error, match=message):
        trained.models.select(models)


# -- behaviour: problems with a known answer ----------------------------------------------------


def test_the_better_kind_of_action_in_the_data_is_found_and_none_beyond(taught):
    observations = np.zeros((4, 9, D_S))
    answers = np.concatenate(
        [np.asarray(taught.models.act(jax.random.key(k), observations)) for k in range(5)], axis=1
    )
    assert (np.abs(answers[0] - 0.5) < 0.2).all()
    assert (np.abs(answers[1] + 0.5) < 0.2).all()


def test_the_critic_alone_would_leave_the_data(taught):
    grid = np.linspace(-1, 1, 41)
    inputs = np.hstack([np.zeros((41, D_S)), np.stack([grid, grid], axis=1)])
    values = network(twin(model_of(taught, 0).critics, 0), inputs)[:, 0]
    assert grid[values.argmax()] > 0.8


def test_the_next_state_counts_discounted(taught):
    """Q(s0) = discount = 1/2 and Q(s1) = 1, for any action."""
    for model in (2, 3):
        critics = model_of(taught, model).critics
        inputs = np.hstack([np.eye(2), np.zeros((2, D_A))])
        values = [network(twin(critics, i), inputs)[:, 0] for i in range(2)]
        np.testing.assert_allclose(values, [[0.5, 1.0]] * 2, atol=0.1)


def test_reconstruction_error_falls_and_critics_learn(taught):
    losses = taught.losses
    assert losses.shape == (4, 600 // CHUNK, len(bcq.LOSSES))
    assert (losses[:2, -5:, 0].mean(axis=1) < 0.2 * losses[:2, 0, 0]).all()
    assert (losses[:, -5:, 2].mean(axis=1) < 0.1 * losses[:, 0, 2]).all()
    five = DATASETS[0].observations[:5], DATASETS[0].actions[:5]
    before, after = (
        np.mean(bcq.vae_reconstruction_error(one, *five))
        for one in (fresh(SEEDS[0]).parameters, model_of(taught, 0))
    )
    assert after < 0.2 * before


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


ONE = DATASETS[3]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"datasets": []}, "datasets must be one per model, 1, got 0"),
        ({"datasets": [ONE.actions]}, "each data set must be a Transitions"),
        (
            {"datasets": [replace(ONE, actions=2 * ONE.actions)]},
            r"actions must lie in \[-1, 1\], got one of size",
        ),
        (
            {"datasets": [ONE, replace(ONE, actions=ONE.actions[:, :1])], "seeds": [0, 1]},
            "the models have actions of 2 numbers, a data set of 1",
        ),
        ({"seeds": [0, 1]}, "one per model, 2, got 1"),
        ({"seeds": []}, "one per model, got none"),
        ({"seeds": [-1]}, "each seed must be at least 0"),
        ({"updates": 0}, "updates must be at least 1"),
        ({"chunk": 0}, "chunk must be at least 1"),
        ({"settings": {"hidden": (4,)}}, "settings must be a BCQSettings"),
    ],
)
def test_bad_training_input(change, message):
    arguments = {"datasets": [ONE], "settings": SMALL, "seeds": [0], "updates": 2, **change}
    with pytest.raises((TypeError, ValueError), match=message):
        learn(arguments.pop("updates"), **arguments)


def test_a_training_that_stopped_within_a_chunk_is_not_continued(trained):
    with pytest.raises(ValueError, match="chunk must divide the updates made before, 60, got 25"):
        bcq_population.train(trained.training, DATASETS, SMALL, 20, chunk=25)


def test_bad_queries(trained):
    with pytest.raises(ValueError, match=r"shape \(4, n, 2\), got \(3, 2, 2\)"):
        trained.models.act(jax.random.key(0), np.zeros((3, 2, D_S)))
    with pytest.raises(ValueError, match="model must be below 4, got 4"):
        trained.models.model(4)
    with pytest.raises(ValueError, match=r"observations must have shape \(n, 2\)"):
        bcq.act(trained.models.model(0), jax.random.key(0), jnp.zeros((2, D_S + 1)), SMALL)
    with pytest.raises(ValueError, match=r"actions must have shape \(2, 2\)"):
        bcq.vae_reconstruction_error(
            trained.models.model(0), jnp.zeros((2, D_S)), jnp.zeros((3, D_A))
        )
    with pytest.raises(ValueError, match="action_size must be at least 1"):
        bcq.initialise(jax.random.key(0), 4, 0, SMALL)
