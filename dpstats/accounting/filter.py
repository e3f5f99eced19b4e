"""What a sequence of fits costs when each is chosen in view of the answers to earlier ones.

The events of one fit are fixed before it starts, so its tight composition is exact. A ledger is
different: whether the next fit is large, small or of another kind may depend on what was released.
Composing "whatever was asked" tightly then proves too little, because the asker may pick, after
each answer, the continuation that suits it. A ledger therefore decides by a rule that holds for
every such strategy (a *privacy filter*):

* the first fit, chosen before any answer, counts exactly;
* every later event is priced once and for all, either as the Gaussian event that it is never
  worse than, or, where that is cheaper, by its epsilon;
* the Gaussian prices add up to one Gaussian, the epsilons are subtracted from the ceiling;
* fits whose epsilons simply add up to the ceiling are always admitted.

docs/accounting.md has the proof.

References
----------
Rogers, Roth, Ullman & Vadhan (2016), Privacy odometers and filters. Smith & Thakurta (2022), Fully
adaptive composition for Gaussian differential privacy.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from dpstats.accounting.calibration import epsilon_of, gdp_mu, within
from dpstats.accounting.events import Event, Gaussian
from dpstats.accounting.prices import gaussian_price, pure_price

__all__ = ["admits", "cost_of_fits"]

Fits = Sequence[tuple[Event, ...]]

# The pure part is rounded up to k sixteenths of the ceiling's epsilon. Each k is a filter of its
# own, and their shares of delta, 0.9 for k = 0 and 0.1 / 2^k for the others, add up to at most 1.
_LEVELS = 16
_PLAIN_SHARE = 0.9


@dataclass(frozen=True, slots=True)
class _Price:
    """Of all fits after the first: squared mu of the Gaussian part, epsilon of the pure part."""

    mu2: float
    pure: float


@lru_cache(maxsize=4096)
def _price(events: tuple[Event, ...], epsilon: float, delta: float) -> _Price:
    """Each event as whichever takes the smaller share of the ceiling; a fixed rule."""
    whole = gdp_mu(epsilon, delta)
    mu2, pure = [], []
    for event in events:
        price, alone = gaussian_price(event) ** 2, pure_price(event)
        if alone / epsilon < price / whole**2:
            pure.append(alone)
        else:
            mu2.append(price)
    return _Price(math.fsum(mu2), math.fsum(pure))


def _sum_of_epsilons(fits: Fits) -> float:
    return math.fsum(pure_price(event) for fit in fits for event in fit)


def _bound(fits: Fits, epsilon: float, delta: float) -> tuple[tuple[Event, ...], float, float]:
    """Fixed events that the fits are never worse than, the pure part, and the share of delta."""
    if len(fits) == 1:
        return fits[0], 0.0, 1.0
    prices = [_price(fit, epsilon, delta) for fit in fits[1:]]
    mu2, pure = math.fsum(p.mu2 for p in prices), math.fsum(p.pure for p in prices)
    later = (Gaussian(1 / math.sqrt(mu2)),) if mu2 > 0 else ()
    level = math.ceil(pure / epsilon * _LEVELS)
    share = (1 - _PLAIN_SHARE) / 2.0 ** min(level, 1000) if level else _PLAIN_SHARE
    return fits[0] + later, level * epsilon / _LEVELS, share


def admits(fits: Fits, epsilon: float, delta: float) -> bool:
    """Whether a ledger with this ceiling may hold all `fits`, the last of which is the new one.

    Raises
    ------
    PlanError
        If an event is not known.
    """
    if not fits or _sum_of_epsilons(fits) <= epsilon:
        return True
    if delta == 0:
        return False
    events, pure, share = _bound(fits, epsilon, delta)
    return pure < epsilon and within(events, epsilon - pure, share * delta)


def cost_of_fits(fits: Fits, epsilon: float, delta: float) -> float:
    """How much of the ceiling's epsilon the `fits` take up, at its delta; inf where none would do.

    At most `epsilon` exactly where `admits` holds.
    """
    if not fits:
        return 0.0
    plain = _sum_of_epsilons(fits)
    if delta == 0:
        return plain
    events, pure, share = _bound(fits, epsilon, delta)
    cost = pure + epsilon_of(events, share * delta) if share * delta > 0 else math.inf
    # The search for epsilon may end a few ulp above a ceiling that was kept.
    cost = min(cost, epsilon) if admits(fits, epsilon, delta) else cost
    return min(plain, cost)
