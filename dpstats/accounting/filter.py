"""What a sequence of fits costs when each is chosen in view of the answers to earlier ones.

The events of one fit are fixed before it starts, so its tight composition is exact. A ledger is
different: whether the next fit is large, small or of another kind may depend on what was released.
Composing "whatever was asked" tightly then proves too little, because the asker may pick, after
each answer, the continuation that suits it. A ledger therefore decides by rules that hold for
every such strategy (*privacy filters*), and admits what one of them admits:

* the first fit alone counts exactly: it was chosen before any answer;
* *one Gaussian*: the first fit, and every later event as the Gaussian event that it is never worse
  than, with nine tenths of delta;
* *Renyi*: at each of five public orders every event counts as its epsilon or as what its rho comes
  to, whichever is less, and these add up; each order has a fiftieth of delta;
* epsilons add up: without any delta.

Shares of delta add up to one, so all rules together keep the ceiling, whichever of them admitted
what the asker chose. docs/accounting.md has the proof.

References
----------
Rogers, Roth, Ullman & Vadhan (2016), Privacy odometers and filters. Smith & Thakurta (2022), Fully
adaptive composition for Gaussian differential privacy. Feldman & Zrnic (2021), Individual privacy
accounting via a Renyi filter.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import lru_cache

import numpy as np

from dpstats.accounting.closed_forms import ROUNDING, best_order, zcdp_rho
from dpstats.accounting.composition import epsilon_of, is_within
from dpstats.accounting.events import Event, Gaussian
from dpstats.accounting.prices import gaussian_price, pure_price

__all__ = ["Composition", "costs"]

Fits = Sequence[tuple[Event, ...]]

_GAUSSIAN_SHARE = 0.9  # share of delta: the rule of one Gaussian
# Shares of the ceiling's epsilon: the Gaussian noise for which each order is the best one. Between
# two of them an order is short of the best one by 6 % of that noise's epsilon.
_BEST_FOR = (1.0, 0.5, 0.25, 0.125, 0.0625)
_ORDER_SHARE = (1 - _GAUSSIAN_SHARE) / len(_BEST_FOR)  # share of delta: each order
_EXACT = 32  # states whose Gaussian rule `costs` evaluates; it interpolates the others


@dataclass(frozen=True, slots=True)
class _Order:
    """A Renyi order, and the epsilon that turning a divergence into (epsilon, delta) costs."""

    alpha: float
    conversion: float


@lru_cache(maxsize=256)
def _orders(epsilon: float, delta: float) -> tuple[_Order, ...]:
    """Those of a ceiling; a fixed rule.

    A Renyi divergence R of order a gives ``exp((a-1)(R - epsilon)) (1 - 1/a)^(a-1) / a`` for delta.
    """
    delta *= _ORDER_SHARE
    if delta == 0:
        return ()
    orders = []
    for share in _BEST_FOR:
        alpha = best_order(zcdp_rho(share * epsilon, delta), share * epsilon)
        log_ratio = math.log1p(-1 / alpha) - (math.log(alpha) + math.log(delta)) / (alpha - 1)
        orders.append(_Order(alpha, log_ratio))
    return tuple(orders)


@dataclass(frozen=True, slots=True)
class _Price:
    """Of one fit: squared mu as one Gaussian, divergence at each order, sum of epsilons."""

    mu2: float
    renyi: tuple[float, ...]
    plain: float


@lru_cache(maxsize=4096)
def _price(events: tuple[Event, ...], orders: tuple[_Order, ...]) -> _Price:
    """Each event by itself, added up.

    A divergence of any order is at most epsilon, and at order a at most a rho.
    """
    epsilons = [pure_price(event) for event in events]
    rhos = [event.rho for event in events]
    renyi = (math.fsum(map(min, epsilons, (o.alpha * rho for rho in rhos))) for o in orders)
    return _Price(
        math.fsum(gaussian_price(event) ** 2 for event in events),
        tuple(renyi),
        math.fsum(epsilons),
    )


_Total = Fraction | float


def _add(total: _Total, number: float) -> _Total:
    """The exact sum; inf stays inf."""
    return total + (Fraction(number) if math.isfinite(number) else number)


@dataclass(frozen=True, slots=True)
class Composition:
    """Fits that were charged to a ledger, as far as its rules read them.

    One more fit changes it by its own events alone, however many came before. Totals are exact, so
    they are those of all fits composed anew, in any order.

    Attributes
    ----------
    epsilon, delta : float
        The ceiling.
    first : tuple of Event
        The first fit.
    count : int
        Number of fits.
    mu2 : Fraction or float
        Squared Gaussian price of the later fits.
    renyi : tuple of Fraction or float
        Divergence of all fits at each order.
    plain : Fraction or float
        Sum of the epsilons of all events; inf where one has none.
    """

    epsilon: float
    delta: float
    first: tuple[Event, ...] = ()
    count: int = 0
    mu2: _Total = Fraction(0)
    renyi: tuple[_Total, ...] = (Fraction(0),) * len(_BEST_FOR)
    plain: _Total = Fraction(0)

    def then(self, events: tuple[Event, ...]) -> Composition:
        """With one more fit.

        Raises
        ------
        PlanError
            If an event is not known.
        """
        price = _price(events, _orders(self.epsilon, self.delta))
        return replace(
            self,
            first=self.first if self.count else events,
            count=self.count + 1,
            mu2=_add(self.mu2, price.mu2 if self.count else 0.0),
            renyi=tuple(map(_add, self.renyi, price.renyi)),
            plain=_add(self.plain, price.plain),
        )

    @property
    def mu(self) -> float:
        """Gaussian price of the later fits."""
        return math.sqrt(self.mu2)

    def _as_gaussian(self) -> tuple[tuple[Event, ...], float]:
        """Fixed events that the fits are never worse than, and their delta."""
        if self.count == 1:
            return self.first, self.delta
        later = (Gaussian(1 / self.mu),) if self.mu2 > 0 else ()
        return self.first + later, _GAUSSIAN_SHARE * self.delta

    @property
    def _by_terms(self) -> float:
        """The least epsilon of the rules that add up: divergences, epsilons."""
        orders = _orders(self.epsilon, self.delta)
        added = (float(r) + o.conversion for r, o in zip(self.renyi, orders, strict=False))
        return min(float(self.plain), *(e * (1 + ROUNDING) for e in added), math.inf)

    @property
    def admitted(self) -> bool:
        """Whether a ledger with this ceiling may hold all fits, the last being the new one."""
        if self._by_terms <= self.epsilon:
            return True
        if self.delta == 0:
            return False
        events, delta = self._as_gaussian()
        return is_within(events, self.epsilon, delta)

    @property
    def gaussian_bound(self) -> float:
        """What the rule of one Gaussian makes of the fits; it grows with `mu`."""
        return epsilon_of(*self._as_gaussian())

    @property
    def cost(self) -> float:
        """How much of the ceiling's epsilon the fits take up at its delta; inf where none suffice.

        At most the ceiling's epsilon exactly where they are `admitted`.
        """
        if self.count == 0 or self.delta == 0:
            return float(self.plain)
        cost = min(self._by_terms, self.gaussian_bound)
        # The search for epsilon may end a few ulp above a ceiling that was kept.
        return min(cost, self.epsilon) if self.admitted else cost


def costs(states: Sequence[Composition]) -> list[float]:
    """Cost after each charge of one ledger, for a table.

    Of more than 32 states the rule of one Gaussian is evaluated for about 32, and interpolated in
    between, where it is a smooth function of the Gaussian price; that is good to 1e-3 of the
    ceiling.
    """
    if not states or states[0].delta == 0:
        return [float(state.plain) for state in states]
    mus = np.array([state.mu for state in states[1:]])
    nodes = np.arange(len(mus))
    if len(mus) > _EXACT:
        spread = np.searchsorted(mus, np.linspace(mus[0], mus[-1], _EXACT))
        nodes = np.unique([*spread, len(mus) - 1])
    at = nodes.tolist()
    bounds = [states[1 + k].gaussian_bound for k in at]
    between = np.interp(mus, mus[nodes], bounds) if len(mus) else mus
    found = [min(s._by_terms, float(b)) for s, b in zip(states[1:], between, strict=True)]
    for k in at:
        found[k] = states[1 + k].cost
    return [states[0].cost, *found]
