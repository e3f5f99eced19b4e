"""Closed forms: what Gaussian noise, and a zero-concentrated cost, come to in (epsilon, delta).

All answers are rounded to the safe side. The proofs are in docs/accounting.md.

References
----------
Balle & Wang (2018), Improving the Gaussian mechanism, Theorem 8. Canonne, Kamath & Steinke (2020),
The discrete Gaussian for differential privacy, Proposition 12.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from dpstats.accounting.roots import root
from dpstats.errors import PlanError

__all__ = [
    "GAUSSIAN_GRID",
    "LAPLACE_GRID",
    "ROUNDING",
    "best_order",
    "check_guarantee",
    "discrete_slack",
    "edge",
    "gaussian_delta",
    "gaussian_deltas",
    "gaussian_epsilon",
    "largest",
    "over",
    "zcdp_delta",
    "zcdp_epsilon",
    "zcdp_rho",
]

Array = NDArray[np.float64]

# What the released noise promises: sqrt(coordinates) / (scale / grid)^2 <= 2^-38 for Gaussian
# and coordinates / (scale / grid)^2 <= 2^-28 for Laplace noise, over the life of a ledger. A grid
# of scale * 2^-24 allows 2^20 coordinates; one of scale * 2^-40 more than can ever be released.
GAUSSIAN_GRID = 2.0**-38
LAPLACE_GRID = 2.0**-28

# Relative error of one evaluation of the closed form: erfcx and exp are good to a few ulp, and
# the exponent u^2/2 <= 745 before underflow turns one ulp of it into 2e-13.
ROUNDING = 1e-12
_SQRT_HALF = math.sqrt(0.5)
_LOG_SQRT_2PI = 0.5 * math.log(2 * math.pi)
_TINY = 1e-300


def gaussian_delta(mu: float, epsilon: float) -> float:
    """Smallest delta at `epsilon` of Gaussian noise whose scale is the sensitivity over `mu`.

    Parameters
    ----------
    mu : float
        Sensitivity over standard deviation, >= 0. Several Gaussian releases, adaptive or not, are
        one with ``mu**2`` the sum of theirs.
    epsilon : float
        Any real number; negative values occur inside compositions.

    Returns
    -------
    float
        ``Phi(mu/2 - epsilon/mu) - exp(epsilon) Phi(-mu/2 - epsilon/mu)``, rounded up.
    """
    return float(gaussian_deltas(mu, np.asarray([epsilon]))[0])


def gaussian_deltas(mu: float, epsilon: Array) -> Array:
    """`gaussian_delta` at each of `epsilon` (any shape), without cancellation or underflow to 0."""
    if mu == 0:
        return np.maximum(-np.expm1(np.minimum(epsilon, 0.0)), 0.0)
    from scipy.special import erfcx, ndtr

    # exp(epsilon) phi(v) = phi(u) for u, v = epsilon/mu -+ mu/2, so with Mills' ratio R the
    # closed form is phi(u) (R(u) - R(v)) for u >= 0, and Phi(-u) - phi(u) R(v) for u < 0.
    u = epsilon / mu - mu / 2
    v = u + mu
    scale = math.sqrt(math.pi / 2)
    with np.errstate(over="ignore", under="ignore", divide="ignore", invalid="ignore"):
        density = np.exp(-0.5 * u * u - _LOG_SQRT_2PI)
        above = scale * erfcx(np.maximum(u, 0.0) * _SQRT_HALF)
        below = scale * erfcx(np.maximum(v, 0.0) * _SQRT_HALF)
        right = density * (above * (1 + ROUNDING) - below * (1 - ROUNDING))
        second = np.where(v >= 0, density * below, np.exp(epsilon) * ndtr(-v))
        left = ndtr(-u) * (1 + ROUNDING) - second * (1 - ROUNDING)
    delta: Array = np.where(u >= 0, right, left) * (1 + ROUNDING)
    return np.clip(delta, _TINY, 1.0)


@lru_cache(maxsize=1024)
def gaussian_epsilon(mu: float, delta: float) -> float:
    """Smallest epsilon >= 0 with ``gaussian_delta(mu, epsilon) <= delta``; inf for delta 0."""
    if mu == 0 or gaussian_delta(mu, 0.0) <= delta:
        return 0.0
    if delta <= 0:
        return math.inf
    # rho + 2 sqrt(rho log 1/delta) is valid for rho = mu^2 / 2 (Bun & Steinke, Proposition 1.3).
    high = mu**2 / 2 + mu * math.sqrt(2 * math.log(1 / delta)) + 1e-9
    return edge(lambda e: over(gaussian_delta(mu, e), delta), good=high, bad=0.0)


def zcdp_delta(rho: float, epsilon: float) -> float:
    """Delta at `epsilon` >= 0 of any rho-zCDP mechanism, by the best order alpha.

    ``inf over alpha > 1 of exp((alpha-1)(alpha rho - epsilon)) (1 - 1/alpha)^alpha / (alpha-1)``.
    Every alpha gives a valid bound, so the search for the best one need not be exact.
    """
    if rho == 0:
        return 0.0
    alpha = best_order(rho, epsilon)
    exponent = (alpha - 1) * (alpha * rho - epsilon + math.log1p(-1 / alpha)) - math.log(alpha)
    return min(1.0, max(math.exp(min(exponent, 0.0)) * (1 + ROUNDING), _TINY))


def best_order(rho: float, epsilon: float) -> float:
    """Root in alpha > 1 of the derivative (2 alpha - 1) rho - epsilon + log(1 - 1/alpha).

    It increases from -inf to inf, so halving log(alpha - 1) cannot fail.
    """
    low, high = -80.0, math.log(max(1.0, (epsilon + 1) / rho))
    for _ in range(50):
        t = 0.5 * (low + high)
        alpha = 1 + math.exp(t)
        slope = (2 * alpha - 1) * rho - epsilon + t - math.log(alpha)
        low, high = (low, t) if slope > 0 else (t, high)
    return max(1 + math.exp(high), 1 + 1e-15)


@lru_cache(maxsize=1024)
def zcdp_epsilon(rho: float, delta: float) -> float:
    """Smallest epsilon >= 0 at which a rho-zCDP mechanism has at most `delta`; inf for delta 0."""
    if rho == 0 or zcdp_delta(rho, 0.0) <= delta:
        return 0.0
    if delta <= 0:
        return math.inf
    high = rho + 2 * math.sqrt(rho * math.log(1 / delta)) + 1e-9
    return edge(lambda e: over(zcdp_delta(rho, e), delta), good=high, bad=0.0)


@lru_cache(maxsize=1024)
def zcdp_rho(epsilon: float, delta: float) -> float:
    """Largest rho for which every rho-zCDP mechanism is (epsilon, delta)-DP; 0 for delta 0."""
    check_guarantee(epsilon, delta)
    if delta == 0:
        return 0.0
    return largest(lambda rho: over(zcdp_delta(rho, epsilon), delta), start=1e-3)


def discrete_slack(epsilon: float, grid: float = GAUSSIAN_GRID) -> float:
    """How much delta at `epsilon` can grow when Gaussian noise lives on a grid.

    With N coordinates released, the i-th from the discrete Gaussian whose scale is s_i >= 2^10
    grid steps, and centres on the grid, the hockey-stick divergence at exp(epsilon) exceeds that
    of the continuous Gaussian by at most ``(1/2 + exp(epsilon/2)) sqrt(sum 1/s_i^4) / 4``.

    Parameters
    ----------
    epsilon : float
        At which delta is evaluated.
    grid : float
        A bound on ``sqrt(sum 1/s_i^4)``, ``sqrt(N) / s^2`` for equal scales.
    """
    return (0.5 + math.exp(min(epsilon, 600.0) / 2)) * grid / 4


# -- search ------------------------------------------------------------------------------------


def over(found: float, delta: float) -> float:
    """By how much a delta that was found is above the one that may be, as a difference of logs."""
    return math.log(max(found, _TINY)) - math.log(delta)


def largest(excess: Callable[[float], float], start: float, tolerance: float = 1e-14) -> float:
    """Largest x > 0 with ``excess(x) <= 0``, to a relative `tolerance`; it holds near 0."""
    good = start
    while excess(good) > 0:
        good /= 2
        if good < 1e-150:
            raise PlanError("The budget is too small: no finite noise gives this guarantee.")
    bad = good * 1.5
    while excess(bad) <= 0:
        good, bad = bad, bad * 1.5
    return edge(excess, good=good, bad=bad, tolerance=tolerance)


def edge(
    excess: Callable[[float], float], good: float, bad: float, tolerance: float = 1e-14
) -> float:
    """Where `excess` changes its sign between `good` and `bad`; always a point where it is <= 0."""
    if excess(bad) <= 0:
        return bad
    if excess(good) >= 0:
        return good
    x = root(excess, good, bad, max(tolerance, 1e-15))
    step = math.copysign(tolerance * abs(x), good - bad)
    while excess(x) > 0:
        x, step = x + step, 2 * step
        if (x - good) * step >= 0:
            return good
    return x


def check_guarantee(epsilon: float, delta: float) -> None:
    """Refuse what is no guarantee."""
    if not (math.isfinite(epsilon) and epsilon >= 0):
        raise PlanError(f"epsilon={epsilon!r}: a finite number >= 0 is needed.")
    if not 0 <= delta < 1:
        raise PlanError(f"delta={delta!r}: a number in [0, 1) is needed.")
