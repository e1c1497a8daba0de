r"""Linear off-policy evaluation as a saddle point.

With phi_t the features of the t-th state, rho_t = pi(a_t | s_t) / pi_b(a_t | s_t)
the ratio of target to behaviour, and gamma the discount, one trajectory of L
steps gives (Xie et al., equation 2.2)

    A_i = v_L sum_t rho_t phi_t (phi_t - gamma phi_{t+1})^T,
    b_i = v_L sum_t rho_t phi_t r_t,       C_i = v_L sum_t phi_t phi_t^T,   (1)

and their expectations A, b, C the saddle point min over theta, max over w of

    L(theta, w) = w^T (b - A theta) - 1/2 w^T C w,                          (2)

w being the dual vector. At its best w it is half the mean squared projected Bellman error,

    MSPBE(theta) = (b - A theta)^T C^{-1} (b - A theta) = 2 max_w L.        (3)

The weight v_L (:data:`WEIGHTINGS`) has no default, since it decides what is estimated.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

from dprl import _validation as check
from dprl._validation import FloatArray

Weighting = Literal["sum", "mean", "printed"]

#: What each name makes of the L steps of a trajectory.
WEIGHTINGS: dict[str, str] = {
    "sum": "v_L = 1: plain sums, every step of the data weighs the same",
    "mean": "v_L = 1/L: means over the L steps, every trajectory weighs the same",
    "printed": "v_L = 1/(L - 1): L terms over tau = L - 1, as (2.2) is printed; L = 1 is an error",
}

# Products of features held at one time: 32 MiB of float64.
_CHUNK = 1 << 22


def trajectory_weights(lengths: ArrayLike, weighting: Weighting) -> FloatArray:
    """v_L of equation (1), shape (m,), for trajectories of L >= 0 steps; 0 for one without steps.

    ``weighting`` is a key of :data:`WEIGHTINGS`. ValueError for a length of 1 under "printed",
    which divides by L - 1.

    Examples
    --------
    >>> trajectory_weights([4, 2], "mean").tolist()
    [0.25, 0.5]
    """
    known_weighting(weighting)
    length = check.unmasked("lengths", lengths)
    if length.ndim != 1 or length.dtype.kind not in "iu" or (length < 0).any():
        raise ValueError("lengths must be one non-negative integer for each trajectory")
    if weighting == "sum":
        return (length > 0).astype(np.float64)
    divisor = length.astype(np.float64)
    if weighting == "printed":
        if (length == 1).any():
            raise ValueError(
                f"weighting 'printed' divides by tau = L - 1, which is 0 for the "
                f"{int((length == 1).sum())} trajectories of one step"
            )
        divisor -= 1
    return np.divide(1.0, divisor, out=np.zeros_like(divisor), where=length > 0)


class _Sizes:
    """m and n, which both kinds of statistics read off b, shape (m, n)."""

    b: NDArray[Any]

    @property
    def n_trajectories(self) -> int:
        """m."""
        return int(self.b.shape[0])

    @property
    def n_features(self) -> int:
        """n."""
        return int(self.b.shape[1])


@dataclass(frozen=True, eq=False)
class Statistics(_Sizes):
    """A_i, b_i and C_i of m trajectories and n features, equation (1); finite.

    Parameters
    ----------
    a, c : array_like, shape (m, n, n)
    b : array_like, shape (m, n)
        float32 is kept, all else becomes float64.
    """

    a: NDArray[Any]
    b: NDArray[Any]
    c: NDArray[Any]

    def __post_init__(self) -> None:
        b = _samples("b", self.b, 2)
        m, n = b.shape
        for name, shape in (("a", (m, n, n)), ("c", (m, n, n))):
            _store(self, name, shape)
        object.__setattr__(self, "b", b)

    def mean(self) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Means of A_i, b_i, C_i over the trajectories, in float64."""
        return _mean(self.a), _mean(self.b), _mean(self.c)

    @classmethod
    def concatenate(cls, parts: Sequence[Statistics]) -> Statistics:
        """The trajectories of one or more parts, of one number of features."""
        every = list(parts)
        for part in every:
            check.instance("each of parts", part, Statistics)
        sizes = sorted({part.n_features for part in every})
        if len(sizes) != 1:
            raise ValueError(
                f"parts must be one or more with one number of features, got {sizes or 'none'}"
            )
        return cls(*(np.concatenate([getattr(part, f) for part in every]) for f in "abc"))


@dataclass(frozen=True, eq=False)
class BidiagonalStatistics(_Sizes):
    """A_i, b_i and C_i where A_i is bidiagonal and C_i diagonal.

    So it is with one feature per state of a chain that only stays or moves one to the right: O(n)
    numbers for each trajectory rather than O(n^2). float32 is kept, all else becomes float64.

    Parameters
    ----------
    diagonal, above : array_like, shapes (m, n) and (m, n - 1)
        Diagonal of A_i, and its entries (s, s + 1).
    b, c : array_like, shape (m, n)
        b_i, and the diagonal of C_i.
    """

    diagonal: NDArray[Any]
    above: NDArray[Any]
    b: NDArray[Any]
    c: NDArray[Any]

    def __post_init__(self) -> None:
        diagonal = _samples("diagonal", self.diagonal, 2)
        m, n = diagonal.shape
        object.__setattr__(self, "diagonal", diagonal)
        for name, shape in (("above", (m, n - 1)), ("b", (m, n)), ("c", (m, n))):
            _store(self, name, shape)

    def dense(self) -> Statistics:
        """The same as full matrices; O(m n^2) memory."""
        m, n = self.diagonal.shape
        a = np.zeros((m, n, n), self.diagonal.dtype)
        c = np.zeros((m, n, n), self.c.dtype)
        i = np.arange(n)
        a[:, i, i] = self.diagonal
        a[:, i[:-1], i[1:]] = self.above
        c[:, i, i] = self.c
        return Statistics(a, self.b, c)

    def mean(self) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Means of A_i, b_i, C_i over the trajectories, as full matrices in float64."""
        a = np.diag(_mean(self.diagonal)) + np.diag(_mean(self.above), 1)
        return a, _mean(self.b), np.diag(_mean(self.c))


@dataclass(frozen=True, eq=False)
class FeatureSteps:
    """T steps of trajectories stored end to end, as linear evaluation reads them.

    Parameters
    ----------
    features, next_features : array_like, shape (T, n)
        phi_t of all steps, trajectory after trajectory, and phi_{t+1}; zero where the step ends
        the episode.
    rewards, ratios : array_like, shape (T,)
        r_t, and rho_t >= 0; ones when on-policy.
    """

    features: FloatArray
    next_features: FloatArray
    rewards: FloatArray
    ratios: FloatArray

    def __post_init__(self) -> None:
        phi = check.finite_array("features", self.features, ndim=2)
        ahead = check.finite_array("next_features", self.next_features, ndim=2)
        if ahead.shape != phi.shape or phi.size == 0:
            raise ValueError(
                f"features and next_features must have one shape (T, n), not empty, "
                f"got {phi.shape} and {ahead.shape}"
            )
        fields = {"features": phi, "next_features": ahead}
        for name in ("rewards", "ratios"):
            fields[name] = values = check.finite_array(name, getattr(self, name), ndim=1)
            if values.shape != (len(phi),):
                raise ValueError(
                    f"{name} must have one entry per step, {len(phi)}, got {values.size}"
                )
        if (fields["ratios"] < 0).any():
            raise ValueError(f"ratios must not be negative, got minimum {fields['ratios'].min()}")
        for name, values in fields.items():
            object.__setattr__(self, name, values)


def trajectory_statistics(
    steps: FeatureSteps,
    lengths: ArrayLike,
    discount: float,
    *,
    weighting: Weighting,
    dtype: DTypeLike = np.float64,
) -> Statistics:
    """A_i, b_i and C_i of trajectories stored end to end, equation (1); O(T n^2).

    rho_t weighs the temporal difference, hence A_i and b_i; C_i goes without, as the paper prints
    it. ``lengths`` (m,) are the steps of each trajectory, >= 1, and sum to T; gamma lies in [0, 1);
    ``weighting`` as in :func:`trajectory_weights`; ``dtype`` is float64 or float32.

    Notes
    -----
    No trajectory of finite numbers is refused for their size: a refusal would tell that it is
    there. Where an entry of A_i, b_i or C_i exceeds the largest number of the dtype, all three are
    divided by one power of two, which depends on that trajectory alone. Its gradient keeps its
    direction, so a gradient that is longer than h either way is clipped to the same vector.

    Examples
    --------
    >>> steps = FeatureSteps([[1, 0], [0, 1]], [[0, 1], [0, 0]], [0, 1], [1, 1])
    >>> data = trajectory_statistics(steps, [2], 0.9, weighting="sum")
    >>> data.a[0].tolist(), data.b[0].tolist()
    ([[1.0, -0.9], [0.0, 1.0]], [0.0, 1.0])
    """
    check.instance("steps", steps, FeatureSteps)
    phi, ahead, r, rho = steps.features, steps.next_features, steps.rewards, steps.ratios
    gamma, (count, n) = check.below_one("discount", discount), phi.shape
    if np.dtype(dtype) not in (np.dtype(np.float32), np.dtype(np.float64)):
        raise ValueError(f"dtype must be float32 or float64, got {np.dtype(dtype)}")
    weight = trajectory_weights(lengths, weighting)
    length = np.asarray(lengths, dtype=np.int64)
    if (length < 1).any() or length.sum() != count:
        raise ValueError(
            f"lengths must be at least 1 and sum to the {count} steps, "
            f"got minimum {length.min(initial=0)} and sum {length.sum()}"
        )
    m = length.size
    first = np.cumsum(length) - length
    a, c = np.empty((m, n, n), dtype), np.empty((m, n, n), dtype)
    b = np.empty((m, n), dtype)
    # Trajectories of one length are one batch of small matrix products.
    order = np.argsort(length, kind="stable")
    for group in np.split(order, np.flatnonzero(np.diff(length[order])) + 1):
        size = max(1, _CHUNK // (int(length[group[0]]) * n + n * n))
        for part in (group[k : k + size] for k in range(0, group.size, size)):
            rows = first[part, None] + np.arange(length[part[0]])
            f = phi[rows]  # (trajectories, steps, features)
            with np.errstate(over="ignore", under="ignore", invalid="ignore"):
                left = (f * weight[part, None, None]).swapaxes(1, 2)
                corrected = left * rho[rows][:, None, :]
                a[part] = corrected @ (f - gamma * ahead[rows])
                b[part] = (corrected @ r[rows][..., None])[..., 0]
                c[part] = left @ f
    finite = np.isfinite(b).all(axis=1)
    for field in (a, c):
        finite &= np.isfinite(field).all(axis=(1, 2))
    for i in np.flatnonzero(~finite):
        own = slice(first[i], first[i] + length[i])
        a[i], b[i], c[i] = _scaled_down(
            phi[own], ahead[own], r[own], rho[own], gamma, float(weight[i]), a.dtype
        )
    return Statistics(a, b, c)


def _scaled_down(
    phi: FloatArray,
    ahead: FloatArray,
    r: FloatArray,
    rho: FloatArray,
    gamma: float,
    weight: float,
    dtype: np.dtype[Any],
) -> list[FloatArray]:
    """(1) of one trajectory, all of it divided by the least power of two with which it is finite.

    The factors are brought below 1 first, so that no product overflows.
    """
    size, reward, ratio = (
        int(np.frexp(max(float(abs(x).max()) for x in every))[1])
        for every in ((phi, ahead), (r,), (rho,))
    )
    with np.errstate(under="ignore"):
        f, g = np.ldexp(phi, -size), np.ldexp(ahead, -size)
        left = weight * f.T
        corrected = left * np.ldexp(rho, -ratio)
        parts = (
            (corrected @ (f - gamma * g), 2 * size + ratio),
            (corrected @ np.ldexp(r, -reward), size + ratio + reward),
            (left @ f, 2 * size),
        )
        sizes = (int(np.frexp(abs(x).max())[1]) + power for x, power in parts if x.any())
        top = max(sizes, default=0)  # all may be too small for a number
        down = min(np.finfo(dtype).maxexp - 1 - top, 0)
        return [np.ldexp(x, power + down) for x, power in parts]


def gradient(
    theta: ArrayLike, w: ArrayLike, a: ArrayLike, b: ArrayLike, c: ArrayLike
) -> FloatArray:
    """Primal and negative dual gradient of (2), stacked (Xie et al., equation 4.1).

    B(theta, w) = [-A^T w; A theta + C w - b], shape (..., 2 n). A step of size beta against it is
    one step of GTD2, equation (2.3). theta, w and b have shape (..., n), A and C, or those of
    single trajectories, (..., n, n); leading axes are broadcast.

    Examples
    --------
    >>> gradient([1.0], [2.0], [[3.0]], [1.0], [[0.5]]).tolist()
    [-6.0, 3.0]
    """
    t, dual, offset = (
        check.finite_array(name, value) for name, value in (("theta", theta), ("w", w), ("b", b))
    )
    first, second = check.finite_array("a", a), check.finite_array("c", c)
    n = t.shape[-1] if t.ndim else 0
    for name, value, shape in (
        ("theta", t, (n,)),
        ("w", dual, (n,)),
        ("b", offset, (n,)),
        ("a", first, (n, n)),
        ("c", second, (n, n)),
    ):
        if n == 0 or value.shape[-len(shape) :] != shape:
            raise ValueError(f"{name} must end in shape {shape or '(n,)'}, got {value.shape}")
    primal = -np.einsum("...ji,...j->...i", first, dual)
    negative_dual = (
        np.einsum("...ij,...j->...i", first, t)
        + np.einsum("...ij,...j->...i", second, dual)
        - offset
    )
    return np.concatenate(np.broadcast_arrays(primal, negative_dual), axis=-1)


@dataclass(frozen=True, eq=False)
class SaddlePoint:
    """The system (A, b, C) of a population or a data set; shapes (n, n), (n,), (n, n).

    A may be singular; C is symmetric and positive semidefinite. Where C is singular, as with states
    that are never visited, its pseudo-inverse takes the place of its inverse, and theta* is the
    shortest of the minimisers.

    Examples
    --------
    >>> system = SaddlePoint([[2.0]], [1.0], [[0.5]])
    >>> system.solution()[0].round(12).tolist(), system.mspbe([0.0]).round(12).tolist()
    ([0.5], 2.0)
    """

    a: FloatArray
    b: FloatArray
    c: FloatArray

    def __post_init__(self) -> None:
        b = check.finite_array("b", self.b, ndim=1).copy()
        n = b.size
        arrays = {"b": b}
        for name in ("a", "c"):
            value = check.finite_array(name, getattr(self, name), ndim=2).copy()
            if n == 0 or value.shape != (n, n):
                raise ValueError(f"{name} must have shape {(n, n)}, got {value.shape}")
            arrays[name] = value
        c = arrays["c"]
        scale = float(np.abs(c).max())
        if np.abs(c - c.T).max() > 1e-9 * scale or np.linalg.eigvalsh(c)[0] < -1e-9 * scale:
            raise ValueError("c must be symmetric and positive semidefinite")
        for name, value in arrays.items():
            object.__setattr__(self, name, check.frozen(value))

    @property
    def matrix(self) -> FloatArray:
        """Q = [[0, -A^T], [A, C]], shape (2n, 2n) (Xie et al., equation 6.3)."""
        return np.block([[np.zeros_like(self.a), -self.a.T], [self.a, self.c]])

    def solution(self) -> tuple[FloatArray, FloatArray]:
        """theta* and w* (Xie et al., equation 6.2), shapes (n,).

        theta* minimises (3), and w* = C^{-1} (b - A theta*), with A where the paper prints A^T. If
        A can be inverted, theta* = A^{-1} b and w* = 0.
        """
        root = self._root()
        theta = _least_squares(root @ self.a, root @ self.b)
        return theta, root.T @ (root @ (self.b - self.a @ theta))

    def lagrangian(self, theta: ArrayLike, w: ArrayLike) -> FloatArray:
        """L(theta, w) of (2); (..., n) and (..., n) -> (...)."""
        dual = self._vectors("w", w)
        residual = self._residual(theta)
        curvature = np.einsum("...i,ij,...j->...", dual, self.c, dual)
        return np.asarray((dual * residual).sum(axis=-1) - curvature / 2)

    def mspbe(self, theta: ArrayLike) -> FloatArray:
        """MSPBE(theta) of (3); (..., n) -> (...)."""
        return np.asarray(((self._residual(theta) @ self._root().T) ** 2).sum(axis=-1))

    def _vectors(self, name: str, value: ArrayLike) -> FloatArray:
        x = check.finite_array(name, value)
        if x.ndim == 0 or x.shape[-1] != self.b.size:
            raise ValueError(
                f"{name} must have {self.b.size} entries in the last axis, got shape {x.shape}"
            )
        return x

    def _residual(self, theta: ArrayLike) -> FloatArray:
        """b - A theta; (..., n) -> (..., n)."""
        out: FloatArray = self.b - self._vectors("theta", theta) @ self.a.T
        return out

    def _root(self) -> FloatArray:
        """R with R^T R = C^{-1}, or the pseudo-inverse; shape (rank, n)."""
        values, vectors = np.linalg.eigh(self.c)
        kept = values > values[-1] * values.size * np.finfo(np.float64).eps
        root: FloatArray = vectors[:, kept].T / np.sqrt(values[kept])[:, None]
        return root


def empirical(statistics: Statistics | BidiagonalStatistics) -> SaddlePoint:
    """The system of a data set: the means of A_i, b_i, C_i over its trajectories.

    >>> empirical(BidiagonalStatistics([[1.0], [3.0]], [[], []], [[1.0], [0.0]], [[1.0], [1.0]])).a
    array([[2.]])
    """
    if not isinstance(statistics, (Statistics, BidiagonalStatistics)):
        raise TypeError(
            "statistics must be a Statistics or a BidiagonalStatistics, "
            f"got {type(statistics).__name__}"
        )
    return SaddlePoint(*statistics.mean())


def lstd(statistics: Statistics | BidiagonalStatistics) -> FloatArray:
    """Least-squares temporal differences: A^{-1} b of the data, shape (n,), without privacy.

    The shortest least-squares solution where A is singular. With weighting "sum" it is
    :func:`wis_lstd`.
    """
    system = empirical(statistics)
    return _least_squares(system.a, system.b)


def wis_lstd(steps: FeatureSteps, discount: float) -> FloatArray:
    r"""WIS-LSTD(0): least-squares temporal differences with weighted importance sampling.

    Each step is one sample, and the weight of its squared error is its ratio, so that theta solves

        sum_t rho_t phi_t (phi_t - gamma phi_{t+1})^T theta = sum_t rho_t phi_t r_t.

    With one feature per state, theta(s) is the mean of r + gamma theta(s') over the visits of s
    with the weights rho_t / sum rho_t. The ordinary kind, which leaves phi_t phi_t^T without rho_t,
    divides by the number of visits instead. Trajectories may come in any order; the shortest
    least-squares solution, shape (n,), where the matrix is singular; gamma in [0, 1).

    Source: Mahmood, van Hasselt and Sutton (2014), at lambda = 0 only: the traces of lambda > 0,
    which give back the products of ratios that were too much, are not here.

    Examples
    --------
    Two visits of one state, of which the target policy would choose only the second:

    >>> wis_lstd(FeatureSteps([[1], [1]], [[0], [0]], [5, 3], [0, 2]), 0.9)
    array([3.])
    """
    check.instance("steps", steps, FeatureSteps)
    weighted = steps.ratios[:, None] * steps.features
    difference = steps.features - check.below_one("discount", discount) * steps.next_features
    return _least_squares(weighted.T @ difference, weighted.T @ steps.rewards)


def _least_squares(a: FloatArray, b: FloatArray) -> FloatArray:
    """The shortest least-squares solution of a theta = b."""
    return np.asarray(np.linalg.lstsq(a, b, rcond=None)[0], dtype=np.float64)


def known_weighting(weighting: str) -> None:
    """Raise ValueError unless it is a key of :data:`WEIGHTINGS`."""
    if not isinstance(weighting, str) or weighting not in WEIGHTINGS:
        raise ValueError(f"weighting must be one of {sorted(WEIGHTINGS)}, got {weighting!r}")


def _samples(name: str, values: Any, ndim: int) -> NDArray[Any]:
    """A finite array of float32 as it is, or of float64."""
    x = check.unmasked(name, values)
    if x.dtype != np.float32:
        return check.finite_array(name, values, ndim=ndim)
    if x.ndim != ndim:
        raise ValueError(f"{name} must have {ndim} dimension(s), got shape {x.shape}")
    if not np.isfinite(x).all():
        raise ValueError(f"{name} holds NaN or infinite values; all must be finite")
    return x


def _store(target: object, name: str, shape: tuple[int, ...]) -> None:
    """Check one field of a frozen dataclass against its shape and keep it."""
    value = _samples(name, getattr(target, name), len(shape))
    if value.shape != shape or shape[0] == 0 or shape[-1] < 0:
        raise ValueError(f"{name} must have shape {shape} with at least one row, got {value.shape}")
    object.__setattr__(target, name, value)


def _mean(values: NDArray[Any]) -> FloatArray:
    out: FloatArray = values.mean(axis=0, dtype=np.float64)
    return out
