r"""An HIV patient under two drugs: six numbers, four treatments, five days a step.

The state is (T1, T2, T1*, T2*, V, E): healthy and infected cells of two types
per ml, free virus per ml, immune effectors per ml. With the effects e1 of the
reverse transcriptase inhibitor (RTI) and e2 of the protease inhibitor (PI),
days as the unit of time and I = T1* + T2*,

    T1'  = l1 - d1 T1 - (1 - e1) k1 V T1
    T2'  = l2 - d2 T2 - (1 - f e1) k2 V T2
    T1*' = (1 - e1) k1 V T1 - delta T1* - m1 E T1*
    T2*' = (1 - f e1) k2 V T2 - delta T2* - m2 E T2*
    V'   = (1 - e2) NT delta I - c V - ((1 - e1) rho1 k1 T1 + (1 - f e1) rho2 k2 T2) V
    E'   = lE + bE I / (I + Kb) E - dE I / (I + Kd) E - deltaE E.

Source: the model and its constants Adams, Banks, Kwon and Tran (2004); as a
control problem, with its reward

    -Q V - R1 e1^2 - R2 e2^2 + S E,

Ernst, Stan, Goncalves and Wehenkel (2006). Public programs disagree on R2 (2e3
or 2e4), on whether V and E are taken before or after the five days, and on the
order of the treatments: each is named here.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar, Literal

import numpy as np
from numpy.typing import ArrayLike

from dprl import _validation as check
from dprl._validation import BoolArray, FloatArray
from dprl.simulators._common import action_array, state_array

L1, D1, K1 = 1e4, 0.01, 8e-7
L2, D2, K2 = 31.98, 0.01, 1e-4
F, DELTA, M1, M2, NT, C, RHO1, RHO2 = 0.34, 0.7, 1e-5, 1e-5, 100.0, 13.0, 1.0, 1.0
LE, BE, KB, DE, KD, DELTA_E = 1.0, 0.3, 100.0, 0.25, 500.0, 0.1

#: Fixed points of the flow without drugs, from which :func:`fixed_point` starts.
UNTREATED = (163_573.0, 5.0, 11_945.0, 46.0, 63_919.0, 24.0)
HEALTHY = (967_839.0, 621.0, 76.0, 6.0, 415.0, 353_108.0)

#: Rows (e1, e2) of the four treatments, in the order none, PI only, RTI only, both.
TREATMENTS = check.frozen(np.array([[0.0, 0.0], [0.0, 0.3], [0.7, 0.0], [0.7, 0.3]]))
#: The box of logarithms to base ten that features see.
LOW = check.frozen(np.array([4.0, 0.0, 0.0, -1.0, 1.0, 0.0]))
HIGH = check.frozen(np.array([6.0, 3.6, 5.5, 3.5, 7.0, 6.0]))


def derivative(states: ArrayLike, rti: ArrayLike, pi: ArrayLike) -> FloatArray:
    """Rate of change per day, shape (m, 6), at states (m, 6) under effects of shape (m,) or ().

    >>> rate = derivative([fixed_point(UNTREATED)], 0.0, 0.0)
    >>> bool(abs(rate).max() < 1e-6)
    True
    """
    s = state_array(states, 6)
    e1, e2 = (np.broadcast_to(np.asarray(e, dtype=np.float64), s.shape[:1]) for e in (rti, pi))
    gain, loss = _gain_and_loss(s.T, 1 - e1, 1 - F * e1, 1 - e2)
    return np.asarray((gain - loss * s.T).T, dtype=np.float64)


def _gain_and_loss(
    s: FloatArray, u1: FloatArray, u2: FloatArray, u3: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """The flow as s' = gain - loss * s, coordinates first (6, m).

    u1 = 1 - e1, u2 = 1 - f e1, u3 = 1 - e2. The gain is never negative.
    """
    t1, t2, i1, i2, v, e = s
    infected = i1 + i2
    gain, loss = np.empty_like(s), np.empty_like(s)
    rate1, rate2 = u1 * K1, u2 * K2
    infection1, infection2 = rate1 * v, rate2 * v
    gain[0], loss[0] = L1, D1 + infection1
    gain[1], loss[1] = L2, D2 + infection2
    gain[2], loss[2] = infection1 * t1, DELTA + M1 * e
    gain[3], loss[3] = infection2 * t2, DELTA + M2 * e
    gain[4] = u3 * (NT * DELTA) * infected
    loss[4] = C + RHO1 * rate1 * t1 + RHO2 * rate2 * t2
    gain[5] = LE
    loss[5] = DE * infected / (infected + KD) - BE * infected / (infected + KB) + DELTA_E
    return gain, loss


def _relax(s: FloatArray, gain: FloatArray, loss: FloatArray, days: float) -> FloatArray:
    """Exact solution of s' = gain - loss * s for constant gain and loss."""
    z = loss * days
    z[np.abs(z) < 1e-9] = 1e-9  # the limit z -> 0 of (1 - e^-z) / z is 1
    return s - (gain * days - z * s) * (np.expm1(-z) / z)


def _flow(s: FloatArray, effects: FloatArray, days: float, substeps: int) -> FloatArray:
    """Exponential midpoint rule: of second order, and it keeps every number positive."""
    u = (1 - effects[0], 1 - F * effects[0], 1 - effects[1])
    h = days / substeps
    for _ in range(substeps):
        middle = _relax(s, *_gain_and_loss(s, *u), h / 2)
        s = _relax(s, *_gain_and_loss(middle, *u), h)
    return s


def fixed_point(near: ArrayLike, rti: float = 0.0, pi: float = 0.0) -> FloatArray:
    """The fixed point that Newton's method finds from ``near``, shape (6,).

    ValueError if the guess is not six positive numbers, or the method does not reach a point at
    which every rate is below 1e-9 of its state.

    >>> fixed_point(UNTREATED)[[0, 4, 5]].round(2).tolist()
    [163572.75, 63918.6, 23.54]
    >>> fixed_point(HEALTHY)[[0, 4, 5]].round(2).tolist()
    [967838.67, 415.38, 353108.04]
    """
    s = check.finite_array("near", near, ndim=1)
    if s.shape != (6,) or (s <= 0).any():
        raise ValueError(f"near must be six positive numbers, got {s}")
    e1, e2 = check.real("rti", rti), check.real("pi", pi)
    s = s.copy()
    for _ in range(50):
        # central differences of step 1e-6 s: relative, since the states span six decades
        moved = np.concatenate([s + 1e-6 * np.diag(s), s - 1e-6 * np.diag(s)])
        rates = derivative(moved, e1, e2)
        jacobian = ((rates[:6] - rates[6:]) / (2e-6 * s[:, None])).T
        s = s - np.linalg.solve(jacobian, derivative(s[None], e1, e2)[0])
        if not (s > 0).all():
            break
        if (abs(derivative(s[None], e1, e2)[0]) < 1e-9 * s).all():
            return s
    raise ValueError("Newton's method found no fixed point near the given state")


@dataclass(frozen=True)
class HIV:
    """Patients, stepped at once; an action is a row of :data:`TREATMENTS`.

    Parameters
    ----------
    max_steps : int
        Steps of an episode. No state ends it: every episode is cut off there.
    days : float
        Days of a step.
    substeps : int
        The n of the notes: more is slower and more accurate. With 80, 99 of 100 steps of patients
        who are treated at random have all six numbers within 1 %; with 20, some are off by a third.
    r2 : float
        Price of the PI: 2e3 in some programs, 2e4 in others.
    reward_at : {"after", "before"}
        Whether V and E of the reward are those after or before the step.
    spread : float
        Every patient starts at the untreated fixed point, each number
        multiplied by exp(spread times a standard normal number); 0: all alike.

    Raises
    ------
    TypeError, ValueError
        If a count is not a whole number >= 1, ``days`` not positive, ``r2`` or
        ``spread`` negative, or ``reward_at`` unknown.

    Notes
    -----
    The equations are stiff: the virus settles within hours, the cells of type 2
    within minutes while there is much virus. A Runge-Kutta method with fixed
    steps must take thousands of them or explodes. Each equation is linear in
    its own number, s' = gain - loss s, so it is solved exactly for gain and
    loss taken at the middle of the substep; two runs, with n and 2 n substeps,
    are extrapolated. Cost: 6 n evaluations of the rates for a step.

    Examples
    --------
    >>> patients = HIV()
    >>> sick = patients.start(4, np.random.default_rng(0))
    >>> after, rewards, ended = patients.step(sick, [0, 1, 2, 3])
    >>> bool(abs(after[0] / sick[0] - 1).max() < 1e-9)  # a fixed point, untreated
    True
    >>> [round(float(v)) for v in after[:, 4]]
    [63919, 19187, 6944, 3461]
    """

    max_steps: int = 200
    days: float = 5.0
    substeps: int = 80
    r2: float = 2e3
    reward_at: Literal["after", "before"] = "after"
    spread: float = 0.0
    q: float = field(default=0.1, init=False)
    r1: float = field(default=2e4, init=False)
    s: float = field(default=1e3, init=False)
    n_actions: int = field(default=4, init=False)
    low: ClassVar[FloatArray] = LOW
    high: ClassVar[FloatArray] = HIGH

    def __post_init__(self) -> None:
        check.whole("max_steps", self.max_steps)
        check.whole("substeps", self.substeps)
        check.positive("days", self.days)
        for name in ("r2", "spread"):
            check.not_negative(name, getattr(self, name))
        if self.reward_at not in ("after", "before"):
            raise ValueError(f"reward_at must be 'after' or 'before', got {self.reward_at!r}")

    def start(self, episodes: int, rng: np.random.Generator) -> FloatArray:
        """First states, shape (episodes, 6)."""
        m = check.whole("episodes", episodes)
        check.generator(rng)
        sick = np.tile(fixed_point(UNTREATED), (m, 1))
        return sick * np.exp(self.spread * rng.standard_normal((m, 6))) if self.spread else sick

    def observe(self, states: ArrayLike) -> FloatArray:
        """What features are made of: logarithms to base ten, since states span six decades."""
        s = state_array(states, 6)
        if (s <= 0).any():
            raise ValueError("states must be positive: their logarithms are taken")
        return np.asarray(np.log10(s))

    def step(
        self, states: ArrayLike, actions: ArrayLike
    ) -> tuple[FloatArray, FloatArray, BoolArray]:
        """One step of every patient: states (m, 6) and actions (m,) in 0 .. 3.

        Returns
        -------
        tuple
            Next states (m, 6), rewards (m,), and (m,) times False: no end.

        Raises
        ------
        ValueError
            If a shape does not fit, an action does not exist, or a state is negative, not
            finite, or so large that the step is.
        """
        before = state_array(states, 6)
        if (before < 0).any():
            raise ValueError(f"states must not be negative, got {before.min()}")
        effects = TREATMENTS[action_array(actions, before.shape[0], self.n_actions)].T
        with np.errstate(over="ignore", invalid="ignore"):
            coarse, fine = (
                _flow(before.T, effects, self.days, n) for n in (self.substeps, 2 * self.substeps)
            )
        if not (np.isfinite(coarse).all() and np.isfinite(fine).all()):
            raise ValueError(
                f"states must be so small that a step can be computed, got {before.max()}"
            )
        # Richardson's extrapolation, of the logarithms: a number stays positive, and nothing
        # comes of no virus
        ratio = np.divide(fine, coarse, out=np.ones_like(fine), where=coarse > 0)
        s = fine * ratio ** (1 / 3)
        v, e = (s if self.reward_at == "after" else before.T)[4:]
        rewards = -self.q * v - self.r1 * effects[0] ** 2 - self.r2 * effects[1] ** 2 + self.s * e
        return s.T.copy(), rewards, np.zeros(before.shape[0], dtype=np.bool_)
