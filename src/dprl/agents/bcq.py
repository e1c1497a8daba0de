r"""Batch-constrained deep Q-learning (BCQ): a policy from a fixed batch of transitions.

BCQ never acts in the environment while it learns. It is the "trainer oracle" of the thesis
(section 5.6.1): private transitions go in, a policy that answers queries comes out.
Four networks per agent, s a state, a an action in [-1, 1]^{d_A}, z a latent vector:

- a conditional variational auto-encoder (VAE), an encoder (s, a) -> (mean, log-std) of z
  and a decoder G(s, z) -> a: it proposes actions like those of the data;
- a perturbation network, (s, a) -> clip(a + Phi tanh(net)): it moves a proposal by at most Phi;
- twin critics Q_1, Q_2, and slowly moving targets of critics and perturbation (primed).

One update on a batch of (s, a, r, s', d), d = 1 where s' is absorbing (:func:`update`):

1. VAE: the mean squared error of G(s, mean + std * noise) against a, plus 1/2 of the mean over the
   latent coordinates of KL(N(mean, std^2) || N(0, 1)).
2. Critics: n proposals a'_j = G(s', z_j), z_j normal and clipped to [-c, c], are perturbed by the
   target network; both critics are fitted, in mean square, to::

       y = r + discount (1 - d) max_j [ lambda min_i Q'_i(s', a'_j)
                                        + (1 - lambda) max_i Q'_i(s', a'_j) ]

3. Perturbation: one gradient step up the mean of Q_1(s, perturbed G(s, z)).
4. Targets move by the rate tau.

A query (:func:`act`) draws proposals for the state, perturbs them and returns the one that Q_1
likes best. It is random only through the latent draws, and a function of its key.

All is about *one* agent, and an update is a pure function;
:mod:`dprl.agents.bcq_population` trains many and asks them. For speed the first layer's share of a
state is computed once for all its proposals instead of being repeated.

Sources: Fujimoto, Meger and Precup 2019, Algorithm 1 and the appendix on its settings (that
what is not stated there, such as which critic chooses the action, is read from the authors'
published program); thesis, sections 5.5 and 5.6.1.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from dprl import _validation as check
from dprl.agents.networks import MiniBatch, Params, fast_key, mlp_apply, mlp_inits, soft_update

#: Names of the four losses that :func:`update` reports, in the order of the last axis.
LOSSES = ("reconstruction", "divergence", "critics", "perturbation")


@dataclass(frozen=True)
class BCQSettings:
    """Hyper-parameters of BCQ; the defaults are those of Fujimoto, Meger and Precup 2019.

    Parameters
    ----------
    hidden, vae_hidden : tuple of int
        Widths of the hidden layers of critics and perturbation network; of encoder and decoder.
    latent_factor : int
        Latent coordinates per action coordinate.
    perturbation : float
        Phi >= 0: how far a proposal may be moved, per coordinate.
    log_std_range : (float, float)
        The encoder's log standard deviation is clipped to it.
    latent_clip : float
        c > 0: latent draws are clipped to [-c, c] when actions are proposed.
    divergence_weight : float
        Weight of the KL term; it multiplies the mean over latent coordinates.
    minimum_weight : float
        lambda in [0, 1]: 1 is the minimum of the two critics, 0 the maximum.
    learning_rate : float
        Of Adam, for all networks.
    discount : float
        In [0, 1).
    target_rate : float
        tau in (0, 1]: share of the new parameters in the targets per update.
    batch_size : int
        Transitions per update, drawn with replacement.
    candidates, acting_candidates : int
        Proposals per next state in the critics' target, n, and per query.
    """

    hidden: tuple[int, ...] = (400, 300)
    vae_hidden: tuple[int, ...] = (750, 750)
    latent_factor: int = 2
    perturbation: float = 0.05
    log_std_range: tuple[float, float] = (-4.0, 15.0)
    latent_clip: float = 0.5
    divergence_weight: float = 0.5
    minimum_weight: float = 0.75
    learning_rate: float = 1e-3
    discount: float = 0.99
    target_rate: float = 0.005
    batch_size: int = 100
    candidates: int = 10
    acting_candidates: int = 100

    def __post_init__(self) -> None:
        for name in ("hidden", "vae_hidden"):
            widths = getattr(self, name)
            if not isinstance(widths, tuple) or not widths:
                raise TypeError(f"{name} must be a tuple of layer widths, got {widths!r}")
            for width in widths:
                check.whole(f"each width in {name}", width)
        for name in ("latent_factor", "batch_size", "candidates", "acting_candidates"):
            check.whole(name, getattr(self, name))
        for name in ("latent_clip", "learning_rate"):
            check.positive(name, getattr(self, name))
        for name in ("perturbation", "divergence_weight"):
            check.not_negative(name, getattr(self, name))
        check.below_one("discount", self.discount)
        check.unit("minimum_weight", self.minimum_weight)
        check.fraction("target_rate", self.target_rate)
        if not isinstance(self.log_std_range, tuple) or len(self.log_std_range) != 2:
            raise TypeError(f"log_std_range must be a pair, got {self.log_std_range!r}")
        low, high = (check.real("log_std_range", x) for x in self.log_std_range)
        if not low < high:
            raise ValueError(f"log_std_range must increase, got {self.log_std_range!r}")

    @classmethod
    def paper(cls) -> BCQSettings:
        """Sizes of Fujimoto, Meger and Precup 2019."""
        return cls()

    @classmethod
    def laptop(cls) -> BCQSettings:
        """The same algorithm with small networks and fewer proposals per query."""
        return cls(hidden=(64, 64), vae_hidden=(128, 128), acting_candidates=20)


class BCQParameters(NamedTuple):
    """Network parameters of one agent; twin critics are stacked in a leading axis of 2."""

    encoder: Params
    decoder: Params
    perturbation: Params
    critics: Params
    target_perturbation: Params
    target_critics: Params


class BCQState(NamedTuple):
    """What an update changes: the parameters and Adam's averages for each of the three steps."""

    parameters: BCQParameters
    vae_adam: Any
    critics_adam: Any
    perturbation_adam: Any


class BCQNoise(NamedTuple):
    """The standard normal draws of one update; b = batch size, L = latent size.

    encoding (b, L) for the VAE's step, proposals (b, candidates, L) for the target,
    proposal (b, L) for the perturbation's step. Clipping happens where they are used.
    """

    encoding: jax.Array
    proposals: jax.Array
    proposal: jax.Array


def noise_shape(action_size: int, settings: BCQSettings) -> tuple[int, int, int]:
    """Shape of the numbers that :func:`as_noise` takes: (b, candidates + 2, L)."""
    latent = settings.latent_factor * action_size
    return settings.batch_size, settings.candidates + 2, latent


def as_noise(numbers: jax.Array) -> BCQNoise:
    """Independent standard normal numbers as the noise of one update.

    >>> numbers = jnp.zeros(noise_shape(3, BCQSettings.laptop()))
    >>> [x.shape for x in as_noise(numbers)]
    [(100, 6), (100, 10, 6), (100, 6)]
    """
    return BCQNoise(numbers[..., 0, :], numbers[..., 2:, :], numbers[..., 1, :])


def initialise(
    key: jax.Array, observation_size: int, action_size: int, settings: BCQSettings
) -> BCQState:
    """A fresh agent. The targets start as copies of their networks.

    >>> state = jax.eval_shape(lambda: initialise(jax.random.key(0), 11, 3, BCQSettings.paper()))
    >>> [layer.weight.shape for layer in state.parameters.critics]
    [(2, 14, 400), (2, 400, 300), (2, 300, 1)]
    """
    check.whole("observation_size", observation_size)
    check.whole("action_size", action_size)
    check.instance("settings", settings, BCQSettings)
    latent, both = settings.latent_factor * action_size, observation_size + action_size
    encoder, decoder, perturbation, *twins = mlp_inits(
        key,
        [
            (both, *settings.vae_hidden, 2 * latent),
            (observation_size + latent, *settings.vae_hidden, action_size),
            (both, *settings.hidden, action_size),
            *[(both, *settings.hidden, 1)] * 2,
        ],
    )
    critics = jax.tree.map(lambda *leaves: jnp.stack(leaves), *twins)
    adam = optax.adam(settings.learning_rate)
    copy = partial(jax.tree.map, jnp.copy)
    return BCQState(
        BCQParameters(encoder, decoder, perturbation, critics, copy(perturbation), copy(critics)),
        vae_adam=adam.init((encoder, decoder)),
        critics_adam=adam.init(critics),
        perturbation_adam=adam.init(perturbation),
    )


# The networks. A first layer sees two inputs side by side, x and y. Its weights are cut
# in two, so that x, computed once, is added to each of several y that share it.


def _joint(
    layers: Params,
    x: jax.Array,
    y: jax.Array,
    final: Callable[[jax.Array], jax.Array] | None = None,
) -> jax.Array:
    """The network at the inputs [x, y]: x (..., d_x), y (..., d_y) or (..., n, d_y)."""
    (weights, bias), rest = layers[0], layers[1:]
    from_x = x @ weights[: x.shape[-1]] + bias
    if y.ndim > x.ndim:
        from_x = from_x[..., None, :]
    hidden = jax.nn.relu(from_x + y @ weights[x.shape[-1] :])
    return mlp_apply(rest, hidden, final=final)


def _encode(
    encoder: Params, observations: jax.Array, actions: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """Mean and log standard deviation (not yet clipped) of the latent vector."""
    mean, log_std = jnp.split(_joint(encoder, observations, actions), 2, axis=-1)
    return mean, log_std


def _decode(decoder: Params, observations: jax.Array, latent: jax.Array) -> jax.Array:
    return _joint(decoder, observations, latent, final=jnp.tanh)


def _propose(
    decoder: Params, observations: jax.Array, noise: jax.Array, settings: BCQSettings
) -> jax.Array:
    clipped = jnp.clip(noise, -settings.latent_clip, settings.latent_clip)
    return _decode(decoder, observations, clipped)


def _perturb(
    perturbation: Params, observations: jax.Array, actions: jax.Array, settings: BCQSettings
) -> jax.Array:
    shift = settings.perturbation * _joint(perturbation, observations, actions, final=jnp.tanh)
    return jnp.clip(actions + shift, -1.0, 1.0)


def _twin_values(critics: Params, observations: jax.Array, actions: jax.Array) -> jax.Array:
    """Values of both critics, leading axis 2."""
    return jax.vmap(lambda one: _joint(one, observations, actions)[..., 0])(critics)


def _first(critics: Params) -> Params:
    one: Params = jax.tree.map(lambda leaf: leaf[0], critics)
    return one


# The losses: what an update descends, one function each.


def vae_loss(
    vae: tuple[Params, Params], batch: MiniBatch, noise: jax.Array, settings: BCQSettings
) -> tuple[jax.Array, tuple[jax.Array, jax.Array]]:
    """Loss of (encoder, decoder); with it its two parts, reconstruction and divergence.

    The divergence is the mean over batch and latent coordinates of
    (mean^2 + std^2 - 1)/2 - log std.
    """
    encoder, decoder = vae
    mean, log_std = _encode(encoder, batch.observations, batch.actions)
    log_std = jnp.clip(log_std, *settings.log_std_range)
    decoded = _decode(decoder, batch.observations, mean + jnp.exp(log_std) * noise)
    reconstruction = jnp.mean((decoded - batch.actions) ** 2)
    divergence = jnp.mean((mean**2 + jnp.exp(2 * log_std) - 1) / 2 - log_std)
    return reconstruction + settings.divergence_weight * divergence, (reconstruction, divergence)


def critic_targets(
    parameters: BCQParameters, batch: MiniBatch, noise: jax.Array, settings: BCQSettings
) -> jax.Array:
    """The soft clipped double-Q target y, shape (batch,)."""
    proposals = _propose(parameters.decoder, batch.next_observations, noise, settings)
    actions = _perturb(parameters.target_perturbation, batch.next_observations, proposals, settings)
    twins = _twin_values(parameters.target_critics, batch.next_observations, actions)
    share = settings.minimum_weight
    values = share * jnp.min(twins, axis=0) + (1 - share) * jnp.max(twins, axis=0)
    best = jnp.max(values, axis=-1)
    return batch.rewards + settings.discount * (1 - batch.terminals) * best


def critics_loss(critics: Params, batch: MiniBatch, targets: jax.Array) -> jax.Array:
    """Sum over the twins of the mean squared distance to the targets."""
    values = _twin_values(critics, batch.observations, batch.actions)
    return jnp.sum(jnp.mean((values - targets) ** 2, axis=-1))


def perturbation_loss(
    perturbation: Params,
    parameters: BCQParameters,
    batch: MiniBatch,
    noise: jax.Array,
    settings: BCQSettings,
) -> jax.Array:
    """Minus the mean value, by the first critic, of perturbed proposals."""
    proposals = _propose(parameters.decoder, batch.observations, noise, settings)
    actions = _perturb(perturbation, batch.observations, proposals, settings)
    return -jnp.mean(_joint(_first(parameters.critics), batch.observations, actions))


def update(
    state: BCQState, batch: MiniBatch, noise: BCQNoise, settings: BCQSettings
) -> tuple[BCQState, jax.Array]:
    """One update of one agent: a pure function (Fujimoto et al. 2019, Algorithm 1).

    Each step starts with what the steps before it have changed. The losses, shape (4,), are each
    before its step; named by :data:`LOSSES`.
    """
    adam, parameters = optax.adam(settings.learning_rate), state.parameters
    vae = (parameters.encoder, parameters.decoder)
    (_, parts), slope = jax.value_and_grad(vae_loss, has_aux=True)(
        vae, batch, noise.encoding, settings
    )
    (encoder, decoder), vae_adam = _step(adam, slope, state.vae_adam, vae)
    parameters = parameters._replace(encoder=encoder, decoder=decoder)

    targets = critic_targets(parameters, batch, noise.proposals, settings)
    critic_value, slope = jax.value_and_grad(critics_loss)(parameters.critics, batch, targets)
    critics, critics_adam = _step(adam, slope, state.critics_adam, parameters.critics)
    parameters = parameters._replace(critics=critics)

    actor_value, slope = jax.value_and_grad(perturbation_loss)(
        parameters.perturbation, parameters, batch, noise.proposal, settings
    )
    perturbation, perturbation_adam = _step(
        adam, slope, state.perturbation_adam, parameters.perturbation
    )
    old = (parameters.target_perturbation, parameters.target_critics)
    new = soft_update(old, (perturbation, critics), settings.target_rate)
    parameters = BCQParameters(encoder, decoder, perturbation, critics, *new)
    losses = jnp.stack([*parts, critic_value, actor_value])
    return BCQState(parameters, vae_adam, critics_adam, perturbation_adam), losses


def _step(adam: optax.GradientTransformation, slope: Any, adam_state: Any, at: Any) -> Any:
    change, adam_state = adam.update(slope, adam_state, at)
    return optax.apply_updates(at, change), adam_state


@partial(jax.jit, static_argnames="settings")
def act(
    parameters: BCQParameters, key: jax.Array, observations: jax.Array, settings: BCQSettings
) -> jax.Array:
    """Greedy actions (n, d_A), in [-1, 1], of one agent at observations (n, d_s).

    Each chosen among ``settings.acting_candidates`` proposals; deterministic given the key.
    """
    _check_inputs(parameters, observations)
    noise = draw_candidates(key, parameters, observations, settings)
    return best_candidate(parameters, noise, observations, settings)


def draw_candidates(
    key: jax.Array, parameters: BCQParameters, observations: jax.Array, settings: BCQSettings
) -> jax.Array:
    """Standard normal numbers for :func:`best_candidate`, (n, acting_candidates, L).

    Drawn by the compiler's own generator; not under ``vmap``, see
    :func:`dprl.agents.networks.fast_key`.
    """
    count, width = observations.shape[-2:]
    latent = parameters.decoder[0].weight.shape[-2] - width
    return jax.random.normal(fast_key(key), (count, settings.acting_candidates, latent))


def best_candidate(
    parameters: BCQParameters, noise: jax.Array, observations: jax.Array, settings: BCQSettings
) -> jax.Array:
    """Of the proposals that noise makes the one that the first critic likes best, (n, d_A)."""
    proposals = _propose(parameters.decoder, observations, noise, settings)
    actions = _perturb(parameters.perturbation, observations, proposals, settings)
    values = _joint(_first(parameters.critics), observations, actions)[..., 0]
    best = jnp.argmax(values, axis=-1)
    return jnp.take_along_axis(actions, best[:, None, None], axis=1)[:, 0]


@jax.jit
def vae_reconstruction_error(
    parameters: BCQParameters, observations: jax.Array, actions: jax.Array
) -> jax.Array:
    """How far the VAE's decoding of the encoding's mean lies from each action, shape (n,).

    The mean over action coordinates of the squared error, for one model at observations (n, d_s)
    and actions (n, d_A). No noise is drawn. Needs the model's parameters: a white-box quantity.
    """
    _check_inputs(parameters, observations, actions)
    mean, _ = _encode(parameters.encoder, observations, actions)
    decoded = _decode(parameters.decoder, observations, mean)
    return jnp.mean((decoded - actions) ** 2, axis=-1)


def _check_inputs(
    parameters: BCQParameters, observations: jax.Array, actions: jax.Array | None = None
) -> None:
    d_a = parameters.decoder[-1].bias.shape[-1]
    d_s = parameters.encoder[0].weight.shape[-2] - d_a
    if observations.ndim != 2 or observations.shape[1] != d_s:
        raise ValueError(f"observations must have shape (n, {d_s}), got {observations.shape}")
    if actions is not None and actions.shape != (observations.shape[0], d_a):
        raise ValueError(
            f"actions must have shape ({observations.shape[0]}, {d_a}), got {actions.shape}"
        )
