r"""The exact A, b and C of finite processes, for each weighting of the steps.

The weight v_L of a trajectory depends on its length, which depends on what comes after each step:
E[v_L sum_t x_t] is not w times a sum over states. But

    1/L = integral over [0, 1] of z^{L-1} dz,    1/(L-1) = that of z^{L-2},  (1)

and E[z^{L-1} x_t] splits at the step t -> t + 1: with P_b the behaviour's
transitions between the states that are not terminal and mu its start,

    D_z = mu (I - z P_b)^{-1}                      what comes before,
    h_z(s) = E[z^{steps left from s}]              what comes after,         (2)

h_z = 1 where the trajectory has ended. A step of the target policy weighs

    A = integral of sum_{s, s'} D_z(s) P_pi(s, s') h_z(s') phi_s (phi_s - gamma phi_{s'})^T dz,

since rho turns the behaviour's step into one of the target and leaves the steps before and after to
the behaviour. b has R_pi(s, s') in place of the difference, C has P_b in place of P_pi. The
integrands are rational in z; Gauss and Legendre's rule is exact to rounding with few nodes. For
plain sums, z = 1 alone.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from dprl import _validation as check
from dprl._validation import FloatArray
from dprl.mdp import Chain, MarkovRewardProcess, reward_process
from dprl.off_policy.saddle_point import SaddlePoint, Weighting, known_weighting

_TOLERANCE = 1e-14
_MOST_NODES = 1024


def exact_saddle_point(
    behaviour: MarkovRewardProcess | Chain,
    target: MarkovRewardProcess | Chain,
    *,
    weighting: Weighting,
    features: ArrayLike | None = None,
) -> SaddlePoint:
    """A, b and C of Xie et al., section 2, without simulation.

    Parameters
    ----------
    behaviour, target : MarkovRewardProcess or Chain
        What the two policies leave of one decision process; the same states, discount and terminal
        states. The target takes no transition that the behaviour never takes. Start and lengths are
        the behaviour's; a trajectory that starts in a terminal state has no steps and adds 0.
    weighting : {"sum", "mean", "printed"}
        A key of :data:`dprl.off_policy.saddle_point.WEIGHTINGS`.
    features : array_like, shape (n, d), optional
        phi_s of the n states that are not terminal, in order; terminal states have features 0.
        Default: one feature per state.

    Raises
    ------
    ValueError
        Also if a trajectory may never end, or under "printed" one may have a single step: the
        expectation of 1 / (L - 1) is then infinite.

    Notes
    -----
    O(nodes n^3). Source: Xie, Thomas and Miklau (2019), the display under (2.1).

    Examples
    --------
    A state that ends with probability 1/2 and pays 1 then; L is geometric and E[1/L] = log 2:

    >>> process = MarkovRewardProcess([[0.5, 0.5], [0, 1]], [[0, 1], [0, 0]], 0.9, [1, 0])
    >>> exact_saddle_point(process, process, weighting="sum").b.round(12)
    array([1.])
    >>> exact_saddle_point(process, process, weighting="mean").b.round(12)
    array([0.69314718])
    """
    behaviour = reward_process("behaviour", behaviour)
    target = reward_process("target", target)
    _fit(behaviour, target)
    known_weighting(weighting)
    live = ~behaviour.terminal
    n = int(live.sum())
    phi = np.eye(n) if features is None else check.finite_array("features", features, ndim=2)
    if phi.shape[0] != n or phi.size == 0:
        raise ValueError(f"features must have {n} rows, one per live state, got shape {phi.shape}")
    ends_at_once = behaviour.start[live] @ behaviour.transition[np.ix_(live, ~live)].sum(axis=1)
    if weighting == "printed" and ends_at_once > 0:
        raise ValueError(
            f"weighting 'printed' divides by L - 1, and a trajectory has one step with "
            f"probability {ends_at_once:.6g}"
        )
    if weighting == "sum":
        visits = _visits(behaviour, target, np.ones(1))[0]
    else:
        visits = _integral(behaviour, target, power=0 if weighting == "mean" else -1)
    # Rows of `visits`: pi's steps to live states, pi's reward, and the behaviour's steps.
    ahead, paid, all_pi, all_b = visits[:, :n], visits[:, n], visits[:, n + 1], visits[:, n + 2]
    a = np.diag(all_pi) - behaviour.discount * ahead
    return SaddlePoint(phi.T @ a @ phi, phi.T @ paid, (phi.T * all_b) @ phi)


def _visits(
    behaviour: MarkovRewardProcess, target: MarkovRewardProcess, z: FloatArray
) -> FloatArray:
    """Integrands of equation (2) at the nodes z; shape (nodes, n, n + 3)."""
    live = ~behaviour.terminal
    p_b, p_pi = behaviour.transition[live], target.transition[live]
    n = len(p_b)
    system = np.eye(n) - z[:, None, None] * p_b[:, live]
    before = np.linalg.solve(system.swapaxes(1, 2), behaviour.start[live, None])[..., 0]
    after = np.ones((z.size, live.size))  # h_z over all states, 1 where it is over
    leaving = z[:, None] * p_b[:, ~live].sum(axis=1)
    after[:, live] = np.linalg.solve(system, leaving[..., None])[..., 0]
    out = np.empty((z.size, n, n + 3))
    out[..., :n] = p_pi[:, live] * after[:, None, live]
    out[..., n] = after @ (p_pi * target.reward[live]).T
    out[..., n + 1] = after @ p_pi.T
    out[..., n + 2] = after @ p_b.T
    return out * before[..., None]


def _integral(
    behaviour: MarkovRewardProcess, target: MarkovRewardProcess, power: int
) -> FloatArray:
    """Integral over [0, 1] of z^power times the integrand; nodes doubled until it rests."""
    previous, nodes = None, 32
    while nodes <= _MOST_NODES:
        x, w = np.polynomial.legendre.leggauss(nodes)
        z, w = (x + 1) / 2, w / 2
        value: FloatArray = np.einsum("q,qij->ij", w * z**power, _visits(behaviour, target, z))
        if previous is not None and np.abs(value - previous).max() <= _TOLERANCE * max(
            1.0, float(np.abs(value).max())
        ):
            return value
        previous, nodes = value, 2 * nodes
    raise ValueError(
        f"trajectories are too long for {_MOST_NODES} nodes: some state is left "
        "with a probability near 0"
    )


def _fit(behaviour: MarkovRewardProcess, target: MarkovRewardProcess) -> None:
    if behaviour.n_states != target.n_states or (behaviour.terminal != target.terminal).any():
        raise ValueError("behaviour and target must have the same states and terminal states")
    if behaviour.discount != target.discount:
        raise ValueError(
            f"behaviour and target must have one discount, got {behaviour.discount} "
            f"and {target.discount}"
        )
    behaviour.require_termination()
    uncovered = (target.transition > 0) & (behaviour.transition == 0)
    if uncovered.any():
        s, s2 = np.argwhere(uncovered)[0]
        raise ValueError(
            f"target goes from state {s} to {s2}, behaviour never does: "
            "behaviour must be positive where target is"
        )
