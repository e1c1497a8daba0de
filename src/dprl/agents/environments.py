r"""Hopper and HalfCheetah, many at once, from any initial state.

The two locomotion tasks of chapter 5, on gymnasium's own models (``Hopper-v5``,
``HalfCheetah-v5``), stepped by ``mujoco.batch`` on several threads. Observation,
reward and end of an episode are those of gymnasium; the tests compare them over thousands
of steps.

State. A physics state is the vector of positions, then velocities (k = nq + nv numbers,
float64). An episode is determined by its first state and its actions: it does not depend on
the number of threads, nor on which other environments run beside it. MuJoCo's solver of
contact forces takes the accelerations of the last physics step as its first guess
(``qacc_warmstart``). As in gymnasium, they are kept from step to step and zero at a reset.
They change the forces only by rounding, about 1e-15. But falling and running are chaotic: a
HalfCheetah multiplies such a difference by 1e15 within some hundred steps. So the first guess
belongs to the state that is kept. ``mujoco.rollout`` does not give it back;
``mujoco.batch`` (MuJoCo 4) does, and agrees with gymnasium to the last bit.

Time limit. An episode ends after ``t_max`` steps by *truncation*: the last state is not
absorbing. With ``timeout_is_terminal=True`` a learner is told that it is, as in code that
stores the ``done`` of the old gym interface (thesis, section 5.4, leaves this open).

Version. The thesis used ``Hopper-v2`` and ``HalfCheetah-v2``, which need the discontinued
``mujoco-py``. Differences of version 5:

* the engine: MuJoCo of today in place of 1.50 or 2.0, hence other contact forces;
* Hopper: no reward of 1 for surviving in the step in which it falls (v2 paid it); the model
  file has the same bodies written in local coordinates;
* HalfCheetah: nothing but the engine.

Initial states, observations (root's x left out; the Hopper's velocities clipped to
[-10, 10]), the weights of the reward, the conditions for falling, and frame skips are the
same in both versions.

Sources: thesis, section 5.6.1; Towers et al. 2024 (gymnasium); Todorov et al. 2012 (MuJoCo).
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from importlib import resources
from typing import Any, NamedTuple

import mujoco
import mujoco.batch
import numpy as np
from numpy.typing import ArrayLike

from dprl import _validation as check
from dprl._validation import BoolArray, FloatArray, IntArray
from dprl.agents.episodes import Episodes, Float32Array

#: The environments of chapter 5.
NAMES = ("Hopper-v5", "HalfCheetah-v5")

#: ``policy(observations (n, d_s) float32, step) -> actions (n, d_A)`` in [-1, 1].
RolloutPolicy = Callable[[Float32Array, int], ArrayLike]


@dataclass(frozen=True)
class Task:
    """What an agent learns: an environment, its time limit, and what the limit means.

    The environment is one of :data:`NAMES`; an episode is truncated after ``t_max`` >= 1 steps; a
    learner is told that the state at the time limit is absorbing if ``timeout_is_terminal``.
    """

    environment: str
    t_max: int
    timeout_is_terminal: bool = False

    def __post_init__(self) -> None:
        _check_name(self.environment)
        check.whole("t_max", self.t_max)
        check.instance("timeout_is_terminal", self.timeout_is_terminal, bool)


@dataclass(frozen=True)
class Environment:
    """What is public about one environment, and its formulas.

    Attributes
    ----------
    observation_size, action_size : int
        d_s and d_A. Actions lie in [-1, 1].
    position_size, state_size : int
        nq, and k = nq + nv.
    frame_skip : int
        Physics steps in one step of the environment.
    dt : float
        Seconds of one step of the environment.
    control_cost, healthy_reward : float
        Weight of the squared norm of the action in the reward, and what is paid for each step
        after which the robot stands.
    reset_noise, normal_velocities : float, bool
        Scale of the noise around the initial posture; whether that of velocities is normal, not
        uniform.
    velocity_clip : float
        Velocities are clipped to [-clip, clip] in observations.
    can_fall : bool
        Whether there are absorbing states.
    """

    name: str
    observation_size: int
    action_size: int
    position_size: int
    state_size: int
    frame_skip: int
    dt: float
    control_cost: float
    healthy_reward: float
    reset_noise: float
    normal_velocities: bool
    velocity_clip: float
    can_fall: bool

    def observe(self, states: FloatArray) -> FloatArray:
        """Observations of physics states: all but the root's x, shape (..., d_s)."""
        observations = states[..., 1:].copy()
        velocities = observations[..., self.position_size - 1 :]
        np.clip(velocities, -self.velocity_clip, self.velocity_clip, out=velocities)
        return observations

    def fallen(self, states: FloatArray) -> BoolArray:
        """Which physics states are absorbing, shape (...).

        The Hopper has fallen when its height is not above 0.7, its torso leans 0.2 or more,
        or another coordinate or velocity reaches 100.
        """
        if not self.can_fall:
            return np.zeros(states.shape[:-1], dtype=bool)
        stands = (np.abs(states[..., 2:]) < 100).all(axis=-1)
        stands &= states[..., 1] > 0.7
        stands &= np.abs(states[..., 2]) < 0.2
        return np.asarray(~stands)

    def rewards(self, before: FloatArray, after: FloatArray, actions: ArrayLike) -> FloatArray:
        """Speed of the root, minus control cost, plus the reward for standing; shape (...)."""
        speed = (after[..., 0] - before[..., 0]) / self.dt
        paid = self.healthy_reward * ~self.fallen(after)
        return np.asarray(speed + paid - self.control_cost * np.square(actions).sum(axis=-1))


_CONSTANTS: dict[str, dict[str, Any]] = {
    "Hopper-v5": {
        "frame_skip": 4,
        "control_cost": 1e-3,
        "healthy_reward": 1.0,
        "reset_noise": 5e-3,
        "normal_velocities": False,
        "velocity_clip": 10.0,
        "can_fall": True,
    },
    "HalfCheetah-v5": {
        "frame_skip": 5,
        "control_cost": 0.1,
        "healthy_reward": 0.0,
        "reset_noise": 0.1,
        "normal_velocities": True,
        "velocity_clip": np.inf,
        "can_fall": False,
    },
}
_FILES = {"Hopper-v5": "hopper.xml", "HalfCheetah-v5": "half_cheetah.xml"}


def _check_name(name: str) -> None:
    if name not in NAMES:
        raise ValueError(f"unknown environment {name!r}; there are {', '.join(NAMES)}")


@lru_cache
def _model(name: str) -> mujoco.MjModel:
    """Gymnasium's model, compiled once in a process."""
    folder = resources.files("gymnasium") / "envs" / "mujoco" / "assets"
    spec = mujoco.MjSpec.from_string((folder / _FILES[name]).read_text(encoding="utf-8"))
    # The compiler warns, in a file too, of a total mass that the text asks for; the same after.
    mass = spec.compiler.settotalmass
    spec.compiler.settotalmass = -1
    model = spec.compile()
    if mass > 0:
        mujoco.mj_setTotalmass(model, mass)
        mujoco.mj_setConst(model, mujoco.MjData(model))
    return model


@lru_cache
def environment(name: str) -> Environment:
    """Sizes and constants of an environment; its name is one of :data:`NAMES`.

    >>> hopper = environment("Hopper-v5")
    >>> hopper.observation_size, hopper.action_size, hopper.state_size, round(hopper.dt, 6)
    (11, 3, 12, 0.008)
    """
    _check_name(name)
    model, constants = _model(name), _CONSTANTS[name]
    return Environment(
        name=name,
        observation_size=model.nq + model.nv - 1,
        action_size=model.nu,
        position_size=model.nq,
        state_size=model.nq + model.nv,
        dt=model.opt.timestep * constants["frame_skip"],
        **constants,
    )


def draw_initial_states(name: str, count: int, rng: np.random.Generator) -> FloatArray:
    """Initial states of gymnasium's own ``reset``.

    Around the initial posture, positions are uniform on [-c, c]; velocities are uniform too
    (Hopper, c = 0.005) or normal with standard deviation c (HalfCheetah, c = 0.1). One after
    the other, so that row i is gymnasium's i-th reset with the same generator. Shape (count, k);
    ``name`` is one of :data:`NAMES`.

    >>> states = draw_initial_states("Hopper-v5", 3, np.random.default_rng(0))
    >>> states.shape, states[:, 1].round(2).tolist()  # three coordinates up: the height
    ((3, 12), [1.25, 1.25, 1.25])
    """
    env = environment(name)
    check.whole("count", count)
    check.generator(rng)
    nq, c = env.position_size, env.reset_noise
    nv = env.state_size - nq
    states = np.zeros((count, env.state_size))
    states[:, :nq] = _model(name).qpos0
    for row in states:
        row[:nq] += rng.uniform(-c, c, size=nq)
        row[nq:] += c * rng.standard_normal(nv) if env.normal_velocities else rng.uniform(-c, c, nv)
    return states


class StepResult(NamedTuple):
    """What one step of all environments gave: arrays of ``count`` rows.

    ``observations`` (count, d_s) after the step, of a finished episode its last one; ``rewards``,
    zero where the episode had already finished; ``terminated``: an absorbing state was reached;
    ``truncated``: time ran out in a state that is not absorbing; ``terminals``, what a learner is
    to store: ``terminated``, or that or ``truncated`` with ``timeout_is_terminal``.
    """

    observations: Float32Array
    rewards: Float32Array
    terminated: BoolArray
    truncated: BoolArray
    terminals: BoolArray

    @property
    def finished(self) -> BoolArray:
        """Shape (count,): the episode is over and must be reset."""
        return self.terminated | self.truncated


class ParallelEnvironments:
    """Many environments of one kind in lockstep.

    Parameters
    ----------
    name, t_max, timeout_is_terminal
        As the fields of a :class:`Task`.
    count : int
        How many, >= 1. Finished episodes are not stepped: their rewards are zero until
        :meth:`reset_where`.
    threads : int, optional
        Threads that step; by default as many as the process may use cores. Results do not
        depend on it.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> hoppers = ParallelEnvironments("Hopper-v5", count=4, t_max=50, threads=1)
    >>> hoppers.reset(draw_initial_states("Hopper-v5", 4, rng)).shape
    (4, 11)
    >>> for _ in range(50):
    ...     step = hoppers.step(rng.uniform(-1, 1, (4, 3)))
    >>> step.finished.all()
    np.True_
    """

    def __init__(
        self,
        name: str,
        count: int,
        t_max: int,
        *,
        timeout_is_terminal: bool = False,
        threads: int | None = None,
    ) -> None:
        self.environment = environment(name)
        self.count = check.whole("count", count)
        self.t_max = check.whole("t_max", t_max)
        check.instance("timeout_is_terminal", timeout_is_terminal, bool)
        self.timeout_is_terminal = timeout_is_terminal
        many = available_cores() if threads is None else check.whole("threads", threads)
        self._batch = mujoco.batch.Batch(_model(name), self.count, min(many, self.count))
        self._fresh = self._batch.state[0].copy()  # what a reset of MuJoCo gives
        # in a row, time is followed by positions and velocities
        self._physics = self._batch.state[:, 1 : 1 + self.environment.state_size]
        self._torques = self._batch.bind("ctrl")
        self._started = self._closed = False
        self._elapsed: IntArray = np.zeros(self.count, dtype=np.int64)
        self._terminated: BoolArray = np.zeros(self.count, dtype=bool)

    @property
    def states(self) -> FloatArray:
        """Physics states now, shape (count, k); a copy."""
        self._check_started()
        return np.array(self._physics)

    @property
    def full_states(self) -> FloatArray:
        """All that the future depends on, shape (count, m), for :meth:`restore`; a copy.

        Physics states, the solver's first guess, and what else MuJoCo integrates.
        """
        self._check_started()
        return np.array(self._batch.state)

    @property
    def elapsed(self) -> IntArray:
        """Steps of the running episodes, shape (count,); a copy."""
        return self._elapsed.copy()

    @property
    def observations(self) -> Float32Array:
        """Observations now, shape (count, d_s), float32."""
        return self.environment.observe(self.states).astype(np.float32)

    def reset(self, states: ArrayLike) -> Float32Array:
        """Start all episodes from states (count, k); float32 observations (count, d_s)."""
        self._check_open()
        first = _checked_states(self.environment, states, self.count)
        self._started = True
        self._start(np.ones(self.count, dtype=bool), first)
        return self.observations

    def reset_where(self, mask: ArrayLike, states: ArrayLike) -> Float32Array:
        """Start the episodes of a mask, bools (count,), from states (mask.sum(), k), in order.

        Returns float32 observations of all environments, (count, d_s).
        """
        self._check_started()
        chosen = np.asarray(mask)
        if chosen.dtype != np.bool_ or chosen.shape != (self.count,):
            raise ValueError(
                f"mask must be {self.count} bools, got {chosen.dtype} of shape {chosen.shape}"
            )
        if chosen.any():
            self._start(chosen, _checked_states(self.environment, states, int(chosen.sum())))
        return self.observations

    def restore(self, full_states: ArrayLike, elapsed: ArrayLike) -> Float32Array:
        """Continue where other environments of the same kind, number and t_max were.

        Takes their ``full_states`` and ``elapsed``; returns float32 observations (count, d_s).
        """
        self._check_open()
        rows = check.finite_array("full_states", full_states, ndim=2)
        ages = check.integers("elapsed", elapsed)
        if rows.shape != self._batch.state.shape:
            raise ValueError(
                f"full_states must have shape {self._batch.state.shape}, got {rows.shape}"
            )
        if ages.shape != (self.count,) or ages.min() < 0 or ages.max() > self.t_max:
            raise ValueError(
                f"elapsed must be {self.count} numbers of steps in 0 ... {self.t_max}, got {ages}"
            )
        self._batch.state[:] = rows
        self._elapsed[:] = ages
        self._terminated[:] = self.environment.fallen(self._physics) & (ages > 0)
        self._started = True
        return self.observations

    def step(self, actions: ArrayLike) -> StepResult:
        """Take one step in every episode that is not finished; actions (count, d_A) in [-1, 1].

        Before :meth:`reset` it is a ``RuntimeError``.
        """
        env, before = self.environment, self.states
        torques = _checked_actions(env, actions, self.count)
        active = ~self._terminated & (self._elapsed < self.t_max)
        after, rewards = before, np.zeros(self.count, dtype=np.float32)
        if active.any():
            self._torques[:] = torques
            self._batch.step(active, nstep=env.frame_skip)
            after = self.states
            rewards[active] = env.rewards(before, after, torques)[active]
            self._elapsed += active
            self._terminated |= active & env.fallen(after)
        truncated = ~self._terminated & (self._elapsed >= self.t_max)
        terminals = self._terminated | truncated if self.timeout_is_terminal else self._terminated
        observations = env.observe(after).astype(np.float32)
        return StepResult(
            observations, rewards, self._terminated.copy(), truncated, terminals.copy()
        )

    def close(self) -> None:
        """End the threads now, not when the object is forgotten. It cannot be used again."""
        self._closed = True
        self.__dict__.pop("_batch", None)

    def _start(self, mask: BoolArray, states: FloatArray) -> None:
        self._batch.state[mask] = self._fresh
        self._physics[mask] = states
        self._elapsed[mask] = 0
        self._terminated[mask] = False

    def _check_open(self) -> None:
        if self._closed:
            raise RuntimeError("the environments are closed")

    def _check_started(self) -> None:
        self._check_open()
        if not self._started:
            raise RuntimeError("the environments must be reset before they are used")


def rollout(
    name: str,
    policy: RolloutPolicy,
    initial_states: ArrayLike,
    t_max: int,
    *,
    threads: int | None = None,
) -> Episodes:
    """One episode from each initial state, all in lockstep.

    Parameters
    ----------
    name, t_max, threads
        As in :class:`ParallelEnvironments`.
    policy : callable
        A :data:`RolloutPolicy`, with step 0 ... t_max - 1. It always sees all n episodes; what it
        answers for finished ones is ignored.
    initial_states : array_like, shape (n, k)

    Examples
    --------
    >>> start = draw_initial_states("HalfCheetah-v5", 2, np.random.default_rng(0))
    >>> still = lambda observations, step: np.zeros((2, 6))
    >>> episodes = rollout("HalfCheetah-v5", still, start, t_max=5, threads=1)
    >>> episodes.lengths.tolist(), episodes.terminated.tolist()
    ([5, 5], [False, False])
    """
    env = environment(name)
    start = check.finite_array("initial_states", initial_states, ndim=2)
    n = len(start)
    parallel = ParallelEnvironments(name, n, t_max, threads=threads)
    current = parallel.reset(start)
    observations = np.zeros((n, t_max + 1, env.observation_size), dtype=np.float32)
    actions = np.zeros((n, t_max, env.action_size), dtype=np.float32)
    rewards = np.zeros((n, t_max), dtype=np.float32)
    observations[:, 0] = current
    running = np.ones(n, dtype=bool)
    for t in range(t_max):
        chosen = _checked_actions(env, policy(current, t), n)
        step = parallel.step(chosen)
        current = step.observations
        observations[running, t + 1] = current[running]
        actions[running, t] = chosen[running]
        rewards[running, t] = step.rewards[running]
        running = ~step.finished
        if not running.any():
            break
    return Episodes(observations, actions, rewards, parallel.elapsed, step.terminated, start.copy())


def available_cores() -> int:
    """How many cores this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _checked_states(env: Environment, states: ArrayLike, count: int) -> FloatArray:
    x = check.finite_array("states", states, ndim=2)
    if x.shape != (count, env.state_size):
        raise ValueError(
            f"states of {env.name} must have shape ({count}, {env.state_size}), got {x.shape}"
        )
    return x


def _checked_actions(env: Environment, actions: ArrayLike, count: int) -> Float32Array:
    """As float32, what gymnasium's action spaces hold and what is stored."""
    x = np.asarray(actions)
    if x.dtype.kind not in "fiu":
        raise ValueError(f"actions must be an array of numbers, got {x.dtype}")
    x = x.astype(np.float32, copy=False)
    if x.shape != (count, env.action_size):
        raise ValueError(
            f"actions for {env.name} must have shape ({count}, {env.action_size}), got {x.shape}"
        )
    size = np.abs(x).max()
    if not size <= 1:  # false for NaN, too
        check.finite_array("actions", x)
        raise ValueError(f"actions must lie in [-1, 1], got {size:g}")
    return x
