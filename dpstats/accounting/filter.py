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
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import lru_cache, reduce

import numpy as np

from dpstats.accounting.calibration import gdp_mu
from dpstats.accounting.composition import epsilon_of, within
from dpstats.accounting.events import Event, Gaussian
from dpstats.accounting.prices import gaussian_price, pure_price

__all__ = ["Composed", "admits", "cost_of_fits", "costs"]

Fits = Sequence[tuple[Event, ...]]

# The pure part is rounded up to k sixteenths of the ceiling's epsilon. Each k is a filter of its
# own, and their shares of delta, 0.9 for k = 0 and 0.1 / 2^k for the others, add up to at most 1.
_LEVELS = 16
_PLAIN_SHARE = 0.9
_EXACT = 32  # states of one level whose cost `costs` computes; it interpolates the others


@dataclass(frozen=True, slots=True)
class _Price:
    """Of one fit: squared mu of its Gaussian part, epsilon of its pure part."""

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


@lru_cache(maxsize=4096)
def _sum_of_epsilons(events: tuple[Event, ...]) -> float:
    return math.fsum(map(pure_price, events))


_Total = Fraction | float


def _add(total: _Total, number: float) -> _Total:
    """The exact sum; inf stays inf."""
    return total + (Fraction(number) if math.isfinite(number) else number)


@dataclass(frozen=True, slots=True)
class Composed:
    """Fits that were charged to a ledger, as far as its rule reads them.

    One more fit changes it by its own events alone, however many came before. Totals are exact, so
    they are those of all fits composed anew, in any order.

    Attributes
    ----------
    epsilon, delta : float
        The ceiling.
    first : tuple of Event
        The first fit, which counts exactly.
    count : int
        Number of fits.
    mu2, pure : Fraction or float
        Squared Gaussian price and pure price of the later fits.
    plain : Fraction or float
        Sum of the epsilons of all events; inf where one has none.
    """

    epsilon: float
    delta: float
    first: tuple[Event, ...] = ()
    count: int = 0
    mu2: _Total = Fraction(0)
    pure: _Total = Fraction(0)
    plain: _Total = Fraction(0)

    def then(self, events: tuple[Event, ...]) -> Composed:
        """With one more fit.

        Raises
        ------
        PlanError
            If an event is not known.
        """
        plain = _add(self.plain, _sum_of_epsilons(events))
        if self.count == 0:
            return replace(self, first=events, count=1, plain=plain)
        later = replace(self, count=self.count + 1, plain=plain)
        if self.delta == 0:  # only the epsilons count
            return later
        price = _price(events, self.epsilon, self.delta)
        return replace(later, mu2=_add(self.mu2, price.mu2), pure=_add(self.pure, price.pure))

    @property
    def level(self) -> int:
        """Sixteenths of the ceiling's epsilon that the pure part takes up."""
        return math.ceil(float(self.pure) / self.epsilon * _LEVELS)

    @property
    def mu(self) -> float:
        """Gaussian price of the later fits."""
        return math.sqrt(self.mu2)

    def _fixed(self) -> tuple[tuple[Event, ...], float, float]:
        """Fixed events that the fits are never worse than, the pure part, the share of delta."""
        if self.count == 1:
            return self.first, 0.0, 1.0
        later = (Gaussian(1 / self.mu),) if self.mu2 > 0 else ()
        level = self.level
        share = (1 - _PLAIN_SHARE) / 2.0 ** min(level, 1000) if level else _PLAIN_SHARE
        return self.first + later, level * self.epsilon / _LEVELS, share

    @property
    def admitted(self) -> bool:
        """Whether a ledger with this ceiling may hold all fits, the last being the new one."""
        if float(self.plain) <= self.epsilon:
            return True
        if self.delta == 0:
            return False
        events, pure, share = self._fixed()
        return pure < self.epsilon and within(events, self.epsilon - pure, share * self.delta)

    @property
    def bound(self) -> float:
        """What the rule makes of the fits; it depends on `level` and grows with `mu`."""
        events, pure, share = self._fixed()
        delta = share * self.delta
        return pure + epsilon_of(events, delta) if delta > 0 else math.inf

    @property
    def cost(self) -> float:
        """How much of the ceiling's epsilon the fits take up at its delta; inf where none suffice.

        At most the ceiling's epsilon exactly where they are `admitted`.
        """
        if self.count == 0 or self.delta == 0:
            return float(self.plain)
        # The search for epsilon may end a few ulp above a ceiling that was kept.
        cost = min(self.bound, self.epsilon) if self.admitted else self.bound
        return min(float(self.plain), cost)


def _composed(fits: Fits, epsilon: float, delta: float) -> Composed:
    return reduce(Composed.then, fits, Composed(epsilon, delta))


def admits(fits: Fits, epsilon: float, delta: float) -> bool:
    """Whether a ledger with this ceiling may hold all `fits`, the last of which is the new one.

    Raises
    ------
    PlanError
        If an event is not known.
    """
    return _composed(fits, epsilon, delta).admitted


def cost_of_fits(fits: Fits, epsilon: float, delta: float) -> float:
    """`Composed.cost` of all `fits`."""
    return _composed(fits, epsilon, delta).cost


def costs(states: Sequence[Composed]) -> list[float]:
    """Cost after each charge of one ledger, for a table.

    Of more than 32 states it is computed for about 32 at each level, and interpolated in between,
    where it is a smooth function of the Gaussian price; that is good to 1e-3 of the ceiling.
    """
    levels: dict[tuple[bool, int], list[int]] = {}
    for i, state in enumerate(states):
        levels.setdefault((state.count > 1, state.level), []).append(i)
    found = [float(state.plain) for state in states]
    for at in levels.values() if states and states[0].delta > 0 else ():
        mus = np.array([states[i].mu for i in at])
        spread = np.searchsorted(mus, np.linspace(mus[0], mus[-1], _EXACT))
        nodes = np.unique([*spread, len(at) - 1]) if len(at) > _EXACT else np.arange(len(at))
        bounds = np.interp(mus, mus[nodes], [states[at[k]].bound for k in nodes])
        for i, bound in zip(at, bounds, strict=True):
            found[i] = min(found[i], float(bound))
        for k in nodes:
            found[at[k]] = states[at[k]].cost
    return found
