"""What one event is worth by itself: a Gaussian event, or an epsilon, that it is never worse than.

The proofs are in docs/accounting.md.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from dpstats.accounting.events import Event, Gaussian, Laplace, Parallel, Peeling, Pure, Selection

__all__ = ["gaussian_price", "pure_price"]


def gaussian_price(event: Event) -> float:
    """Smallest mu such that `event` reveals no more than Gaussian noise of that mu does.

    A selection is never worse than a shift by epsilon of logistic noise, a Laplace release is a
    shift by epsilon of Laplace noise. For both, the normal quantile of the distribution function F
    is concave on the positive axis, so the two-sided worst case is the symmetric one,
    ``mu = 2 Phi^-1(F(epsilon / 2))``. A choice by report noisy max, or a mechanism that is
    just pure, is worth a selection of twice its epsilon. Rounds of one event add up as squares; of
    branches the costliest counts.
    """
    return _PRICE[event.kind](event)


def pure_price(event: Event) -> float:
    """Epsilon of `event` without any delta; inf for Gaussian noise."""
    return _PURE[event.kind](event)


def _shift_price(slope: float, tail: float, epsilon: float) -> float:
    """``2 Phi^-1(1 - tail)``, a little up; below 1e-3, where that cancels, its concave bound.

    `slope` is the density of F over that of the normal at 0, so the bound is slope * epsilon.
    """
    from scipy.special import ndtri

    if epsilon < 1e-3:
        return slope * epsilon
    return -2 * float(ndtri(tail)) * (1 + 1e-11)


_ROOT_2PI = math.sqrt(2 * math.pi)
# Beyond this epsilon the tail of F underflows; 2 Phi^-1 is then above 50, and nothing is admitted.
_LARGEST = 1400.0


def _laplace_price(epsilon: float) -> float:
    epsilon = min(epsilon, _LARGEST)
    return _shift_price(_ROOT_2PI / 2, math.exp(-epsilon / 2) / 2, epsilon)


def _choice_price(epsilon: float) -> float:
    epsilon = min(epsilon, _LARGEST)
    return _shift_price(_ROOT_2PI / 4, 1 / (1 + math.exp(epsilon / 2)), epsilon)


def _peeling_price(event: Peeling) -> float:
    z = event.noise_multiplier
    return math.sqrt(event.k) * math.hypot(_choice_price(4 / z), _laplace_price(1 / z))


_PRICE: dict[str, Callable[[Any], float]] = {
    Gaussian.kind: lambda event: 1 / event.noise_multiplier,
    Laplace.kind: lambda event: _laplace_price(event.epsilon),
    Selection.kind: lambda event: math.sqrt(event.k) * _choice_price(event.epsilon),
    Peeling.kind: _peeling_price,
    Pure.kind: lambda event: _choice_price(2 * event.epsilon),
    Parallel.kind: lambda event: max(
        math.hypot(*map(gaussian_price, branch)) for branch in event.branches
    ),
}
_PURE: dict[str, Callable[[Any], float]] = {
    Gaussian.kind: lambda event: math.inf,
    Laplace.kind: lambda event: event.epsilon,
    Selection.kind: lambda event: event.epsilon * event.k,
    Peeling.kind: lambda event: event.epsilon,
    Pure.kind: lambda event: event.epsilon,
    Parallel.kind: lambda event: max(
        math.fsum(map(pure_price, branch)) for branch in event.branches
    ),
}
