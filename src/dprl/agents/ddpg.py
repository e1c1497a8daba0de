r"""Deep deterministic policy gradient (DDPG), the learner behind the data oracle.

An actor :math:`\pi_\phi` and a critic :math:`Q_\theta` are trained on transitions
(s, a, r, s') of a replay buffer. One update on a mini-batch of n transitions is ::

    y      = r + gamma (1 - terminal) Q_theta'(s', pi_phi'(s'))
    theta <- Adam step on  (1/n) sum (Q_theta(s, a) - y)^2
    phi   <- Adam step on -(1/n) sum Q_theta(s, pi_phi(s))
    theta' <- tau theta + (1 - tau) theta',  phi' <- tau phi + (1 - tau) phi'

:func:`update` is this step for *one* agent, a pure function;
:mod:`dprl.agents.ddpg_population` collects transitions and trains many agents with it.

The algorithm is that of Lillicrap et al. (2016) with the changes of Fujimoto et al. (2018),
which later code, also that of BCQ's authors, kept: Gaussian instead of Ornstein-Uhlenbeck
noise, the action enters the critic's first layer, no batch normalisation, no weight decay,
both learning rates 1e-3, tau = 0.005. The thesis names the algorithm (section 5.6.1) and no
setting of it.

Sources: thesis, sections 5.5 and 5.6.1; Lillicrap et al. 2016, algorithm 1; Fujimoto, van
Hoof and Meger 2018, appendix C.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax
from jax.typing import ArrayLike

from dprl import _validation as check
from dprl.agents.networks import MiniBatch, Params, mlp_apply, mlp_inits, soft_update


@dataclass(frozen=True)
class DDPGSettings:
    """Hyper-parameters of DDPG; the defaults are those of :meth:`paper`.

    Parameters
    ----------
    hidden : tuple of int
        Widths of the hidden layers, of actor and critic alike; at least one.
    batch_size : int
        Transitions per update, n >= 1.
    actor_learning_rate, critic_learning_rate : float
        Step sizes of Adam, > 0.
    discount : float
        gamma, in [0, 1).
    tau : float
        Share of the online network in each step of the target network, in (0, 1].
    exploration_noise : float
        Standard deviation of the Gaussian noise on actions while training, >= 0; actions
        lie in [-1, 1].
    warm_up : int
        Environment steps with uniform actions before the first update, >= 1.
    capacity : int
        Transitions that the replay buffer keeps, the newest ones.
    """

    hidden: tuple[int, ...] = (400, 300)
    batch_size: int = 100
    actor_learning_rate: float = 1e-3
    critic_learning_rate: float = 1e-3
    discount: float = 0.99
    tau: float = 0.005
    exploration_noise: float = 0.1
    warm_up: int = 25_000
    capacity: int = 1_000_000

    def __post_init__(self) -> None:
        if not isinstance(self.hidden, tuple) or not self.hidden:
            raise TypeError(f"hidden must be a tuple of at least one width, got {self.hidden!r}")
        for width in self.hidden:
            check.whole("each width of hidden", width)
        for name in ("batch_size", "warm_up", "capacity"):
            check.whole(name, getattr(self, name))
        for name in ("actor_learning_rate", "critic_learning_rate"):
            check.positive(name, getattr(self, name))
        check.fraction("tau", self.tau)
        check.below_one("discount", self.discount)
        check.not_negative("exploration_noise", self.exploration_noise)

    @classmethod
    def paper(cls) -> DDPGSettings:
        """Fujimoto et al. (2018), appendix C, with a warm-up of 25,000 steps."""
        return cls()

    @classmethod
    def laptop(cls) -> DDPGSettings:
        """Two layers of 64, a warm-up of 1,000 steps, and room for 100,000 transitions."""
        return cls(hidden=(64, 64), warm_up=1_000, capacity=100_000)


class DDPGState(NamedTuple):
    """All that one agent's update reads and writes: phi, theta, phi', theta', states of Adam."""

    actor: Params
    critic: Params
    target_actor: Params
    target_critic: Params
    actor_optimiser: optax.OptState
    critic_optimiser: optax.OptState


def initialise(
    key: jax.Array, observation_size: int, action_size: int, settings: DDPGSettings
) -> DDPGState:
    """A new agent; its target networks equal its networks.

    >>> state = initialise(jax.random.key(0), 11, 3, DDPGSettings.laptop())
    >>> [layer.weight.shape for layer in state.critic]
    [(14, 64), (64, 64), (64, 1)]
    """
    d_s = check.whole("observation_size", observation_size)
    d_a = check.whole("action_size", action_size)
    check.instance("settings", settings, DDPGSettings)
    actor, critic = mlp_inits(key, [(d_s, *settings.hidden, d_a), (d_s + d_a, *settings.hidden, 1)])
    return DDPGState(
        actor,
        critic,
        actor,
        critic,
        optax.adam(settings.actor_learning_rate).init(actor),
        optax.adam(settings.critic_learning_rate).init(critic),
    )


def act(actor: Params, observations: ArrayLike) -> jax.Array:
    """The greedy actions pi_phi(s), (..., d_A) in [-1, 1], at observations (..., d_s)."""
    return mlp_apply(actor, jnp.asarray(observations), final=jnp.tanh)


def value(critic: Params, observations: ArrayLike, actions: ArrayLike) -> jax.Array:
    """Q_theta(s, a), shape (...), of observations (..., d_s) and actions (..., d_A)."""
    pair = jnp.concatenate([jnp.asarray(observations), jnp.asarray(actions)], axis=-1)
    return mlp_apply(critic, pair)[..., 0]


def update(
    state: DDPGState, batch: MiniBatch, settings: DDPGSettings
) -> tuple[DDPGState, dict[str, jax.Array]]:
    """One step of one agent; a pure function of its arguments.

    The critic moves first; the actor climbs the new critic. With the new state come
    ``critic_loss``, the mean squared error before the step, and ``actor_loss``, minus the mean
    value of the actor's actions before its step.
    """
    s, a, r, s_next, terminal = batch
    best_next = value(state.target_critic, s_next, act(state.target_actor, s_next))
    y = r + settings.discount * (1 - terminal) * best_next

    def critic_loss(critic: Params) -> jax.Array:
        return jnp.mean((value(critic, s, a) - y) ** 2)

    loss, slope = jax.value_and_grad(critic_loss)(state.critic)
    critic, critic_optimiser = _adam(
        settings.critic_learning_rate, slope, state.critic, state.critic_optimiser
    )

    def actor_loss(actor: Params) -> jax.Array:
        return -jnp.mean(value(critic, s, act(actor, s)))

    minus_value, slope = jax.value_and_grad(actor_loss)(state.actor)
    actor, actor_optimiser = _adam(
        settings.actor_learning_rate, slope, state.actor, state.actor_optimiser
    )
    moved = DDPGState(
        actor,
        critic,
        soft_update(state.target_actor, actor, settings.tau),
        soft_update(state.target_critic, critic, settings.tau),
        actor_optimiser,
        critic_optimiser,
    )
    return moved, {"critic_loss": loss, "actor_loss": minus_value}


def _adam(
    rate: float, slope: Params, params: Params, optimiser: optax.OptState
) -> tuple[Params, optax.OptState]:
    steps, optimiser = optax.adam(rate).update(slope, optimiser)
    moved: Params = optax.apply_updates(params, steps)
    return moved, optimiser
