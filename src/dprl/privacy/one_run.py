r"""A lower bound on the privacy loss from guesses about one run, by a trade-off curve.

*The game.* m *canaries*; a fair coin for each, independent of the others, decides whether it is in
the data. One run of the mechanism. An auditor sees the canaries and all that was released, guesses
c' of the coins and abstains from the others; c guesses are right.

*What privacy allows.* Let the mechanism be f-private for adding or removing one canary: no test
of "in" against "out" at level alpha errs on the other side less than f(alpha). Then the chance of c
or more right guesses of c' is at most tau if the following recursion ends with r + h > c'/m:

    r = tau c / m,   h = tau (c' - c) / m,
    for i = c - 1, ..., 0:   h' = max(h, B^{-1}(r)),   r' = r + i / (c' - i) (h' - h),

with B(x) = 1 - f(x), the largest probability under one hypothesis of a set that has the probability
x under the other (Mahloujifar, Melis and Chaudhuri 2025, for two choices per canary; the
recursion as in the library JAX Privacy). r and h are the shares of right and of wrong guesses in
the probability that at least i are right; one bounds the other by f-privacy of a canary given
the others.

*The family.* f is that of the Gaussian mechanism, G_mu: B^{-1}(x) = Phi(Phi^{-1}(x) - mu). The
bound is the largest mu that is refused at level tau, so with probability at least 1 - tau the
mechanism, *if* it is mu-Gaussian-private for some mu, is so for no smaller one. What is
(epsilon, delta)-private by another curve (many steps of DP-SGD are nearly Gaussian) is compared
by the epsilon that G_mu has at the same delta.

Independent runs on disjoint data are one run on all of it: their canaries may be counted together.

Sources: Mahloujifar, Melis and Chaudhuri 2025; Steinke, Nasr and Jagielski 2023 (the game).
"""

from __future__ import annotations

from scipy import optimize, special

from dprl import _validation as check
from dprl.privacy.gaussian import gaussian_delta

_MOST = 40.0  # mu beyond which nothing is looked for


def one_run_mu(correct: int, guesses: int, canaries: int, confidence: float = 0.95) -> float:
    """Lower bound on mu >= 0, from c right guesses of c' about m canaries.

    Parameters
    ----------
    correct, guesses, canaries : int
        0 <= c <= c' <= m, m >= 1. How many guesses to make, and on which score, must be fixed
        before the coins are looked at.
    confidence : float
        1 - tau in (0, 1).

    Examples
    --------
    >>> round(one_run_mu(90, 100, 1000), 2), one_run_mu(52, 100, 1000)
    (0.6, 0.0)
    """
    m = check.whole("canaries", canaries)
    n = check.whole("guesses", guesses, 0, maximum=m)
    right = check.whole("correct", correct, 0, maximum=n)
    tau = 1 - check.open_unit("confidence", confidence)

    def excess(mu: float) -> float:
        return _total(mu, right, n, m, tau) - n / m

    if right == 0 or excess(0.0) <= 0:
        return 0.0
    if excess(_MOST) > 0:
        return _MOST
    return float(optimize.brentq(excess, 0.0, _MOST, xtol=1e-9))


def _total(mu: float, c: int, n: int, m: int, tau: float) -> float:
    """r + h at the end of the recursion."""
    r, h = tau * c / m, tau * (n - c) / m
    for i in range(c - 1, -1, -1):
        allowed = float(special.ndtr(special.ndtri(min(r, 1.0)) - mu))
        if allowed <= h:
            break  # nothing changes any more
        r, h = min(r + i / (n - i) * (allowed - h), 1.0), allowed
    return r + h


def one_run_epsilon(
    correct: int, guesses: int, canaries: int, delta: float, confidence: float = 0.95
) -> float:
    """The bound of :func:`one_run_mu` as the epsilon >= 0 of G_mu at delta in (0, 1).

    Examples
    --------
    >>> one_run_epsilon(90, 100, 1000, 1e-5) < one_run_epsilon(98, 100, 1000, 1e-5)
    True
    """
    small = check.open_unit("delta", delta)
    mu = one_run_mu(correct, guesses, canaries, confidence)
    if mu == 0 or gaussian_delta(mu, 1.0, 0.0) <= small:
        return 0.0
    high = 1.0
    while gaussian_delta(mu, 1.0, high) > small:
        high *= 2
    return float(optimize.brentq(lambda e: gaussian_delta(mu, 1.0, e) - small, 0.0, high))
