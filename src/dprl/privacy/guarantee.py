"""What a private release promises, as a value that travels with it."""

from __future__ import annotations

from dataclasses import dataclass

from dprl import _validation as check

#: The neighbouring relation of private evaluation; the number of trajectories is public.
REPLACE_ONE_TRAJECTORY = "replace one trajectory"


@dataclass(frozen=True)
class Guarantee:
    """(epsilon, delta)-differential privacy with its neighbouring relation.

    For all neighbouring data X, X' and every measurable set O of outputs,
    P[A(X) in O] <= e^epsilon P[A(X') in O] + delta (thesis, equation 2.10).

    Parameters
    ----------
    epsilon, delta : float
        epsilon > 0, natural logarithm units; delta in [0, 1).
    neighbours : str
        The relation and its unit, for example "replace one trajectory".

    Raises
    ------
    ValueError
        If epsilon is not positive and finite, delta is outside [0, 1), or the relation is not said.

    Examples
    --------
    >>> print(Guarantee(0.1, 1e-5, "replace one trajectory"))
    (0.1, 1e-05)-differentially private; neighbours: replace one trajectory
    """

    epsilon: float
    delta: float
    neighbours: str

    def __post_init__(self) -> None:
        check.positive("epsilon", self.epsilon)
        check.below_one("delta", self.delta)
        if not isinstance(self.neighbours, str) or not self.neighbours.strip():
            raise ValueError("neighbours must say the relation, e.g. 'replace one trajectory'")

    def __str__(self) -> str:
        return (
            f"({self.epsilon:g}, {self.delta:g})-differentially private; "
            f"neighbours: {self.neighbours}"
        )
