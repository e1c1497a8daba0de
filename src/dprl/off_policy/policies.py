r"""Policies as arrays of probabilities, and the ratios of two of them.

An array of shape (..., k) holds pi(a | s), the k actions in its last axis, for whatever rows the
other axes stand for: states, or the steps of a data set. The importance ratio of a step is
rho = pi(a | s) / pi_b(a | s) for the action a that the behaviour policy took there (Xie, Thomas and
Miklau 2019, section 2).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from dprl import _validation as check
from dprl._validation import FloatArray


def softmax(q: ArrayLike, temperature: float) -> FloatArray:
    """pi(a | s) proportional to exp(q(s, a) / temperature); (..., k) -> (..., k).

    The k values are finite. Towards temperature 0 (it is > 0) the policy becomes greedy, towards
    infinity uniform.

    >>> softmax([1.0, 0.0], temperature=0.5).round(3).tolist()
    [0.881, 0.119]
    """
    values = _actions(q)
    t = check.positive("temperature", temperature)
    weight = np.exp((values - values.max(axis=-1, keepdims=True)) / t)
    out: FloatArray = weight / weight.sum(axis=-1, keepdims=True)
    return out


def epsilon_greedy(q: ArrayLike, epsilon: float) -> FloatArray:
    """With probability epsilon any action, else a best one; (..., k) -> (..., k).

    epsilon / k for each of the k finite values, and 1 - epsilon shared by the best ones; epsilon
    in [0, 1].

    >>> epsilon_greedy([[1.0, 0.0], [2.0, 2.0]], 0.2).tolist()
    [[0.9, 0.1], [0.5, 0.5]]
    """
    values = _actions(q)
    e = check.unit("epsilon", epsilon)
    best = values == values.max(axis=-1, keepdims=True)
    out: FloatArray = e / values.shape[-1] + (1 - e) * best / best.sum(axis=-1, keepdims=True)
    return out


def uniform(n_rows: int, n_actions: int) -> FloatArray:
    """1 / k for each of k actions, shape (n_rows, n_actions).

    >>> uniform(1, 4).tolist()
    [[0.25, 0.25, 0.25, 0.25]]
    """
    shape = check.whole("n_rows", n_rows), check.whole("n_actions", n_actions)
    return np.full(shape, 1 / shape[1])


def importance_ratios(target: ArrayLike, behaviour: ArrayLike, actions: ArrayLike) -> FloatArray:
    """rho = pi(a | s) / pi_b(a | s) of the actions taken, for *known* policies.

    A promise that is proved for replacing one trajectory needs ratios that are a function of
    that trajectory alone. If the behaviour policy was estimated from the same data, each ratio
    depends on every person, replacing one changes all, and no such promise holds.

    Parameters
    ----------
    target, behaviour : array_like, shape (T, k)
        pi and pi_b at the states of the T steps; rows sum to one within 1e-9, or within the
        rounding of a type such as float32, and are then divided by their sum. For private
        evaluation both must be public: known from the design, or estimated from other data.
    actions : array_like of int, shape (T,)
        The actions taken, in 0 .. k - 1.

    Returns
    -------
    ndarray, shape (T,)
        rho >= 0, finite: beyond the largest number of the machine it is that number.

    Raises
    ------
    ValueError
        Also if an action was taken that the behaviour policy never takes, or if the target policy
        takes one at some step: no weights make up for what the data cannot hold.

    Examples
    --------
    >>> importance_ratios([[0.8, 0.2], [0.8, 0.2]], [[0.5, 0.5], [0.5, 0.5]], [0, 1]).tolist()
    [1.6, 0.4]
    """
    pi, pi_b = (
        check.distributions(name, p) for name, p in (("target", target), ("behaviour", behaviour))
    )
    if pi.shape != pi_b.shape:
        raise ValueError(
            f"target and behaviour must have one shape (T, k), got {pi.shape} and {pi_b.shape}"
        )
    a = check.unmasked("actions", actions)
    if a.dtype.kind not in "iu" or a.shape != pi.shape[:1]:
        raise ValueError(
            f"actions must be {len(pi)} integers, one for each step, "
            f"got {a.dtype} of shape {a.shape}"
        )
    if ((a < 0) | (a >= pi.shape[1])).any():
        raise ValueError(f"actions must lie in 0 .. {pi.shape[1] - 1}")
    uncovered = (pi > 0) & (pi_b == 0)
    if uncovered.any():
        step, action = np.argwhere(uncovered)[0]
        raise ValueError(
            f"behaviour never takes action {action} at step {step}, target does with "
            f"probability {pi[step, action]}: behaviour must be positive where target is"
        )
    steps = np.arange(a.size)
    if (pi_b[steps, a] == 0).any():
        step = int(np.flatnonzero(pi_b[steps, a] == 0)[0])
        raise ValueError(f"action {a[step]} of step {step} has probability 0 under behaviour")
    with np.errstate(over="ignore"):
        return check.representable(pi[steps, a] / pi_b[steps, a])


def _actions(q: ArrayLike) -> FloatArray:
    values = check.finite_array("q", q)
    if values.ndim == 0 or values.shape[-1] == 0:
        raise ValueError(f"q must have one entry per action in the last axis, got {values.shape}")
    return values
