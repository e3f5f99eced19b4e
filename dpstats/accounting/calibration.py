"""How much noise a guarantee needs: the costs of `composition`, solved for the noise."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache

from dpstats.accounting.closed_forms import check_guarantee, largest, over, zcdp_rho
from dpstats.accounting.composition import (
    Cost,
    cost_delta,
    cost_epsilon,
    cost_of,
    cost_within,
    delta_of,
)
from dpstats.accounting.events import Event, Gaussian, Laplace, Peeling, Selection
from dpstats.errors import PlanError

__all__ = ["Share", "calibrate", "gdp_mu"]


@lru_cache(maxsize=1024)
def gdp_mu(epsilon: float, delta: float) -> float:
    """Largest mu for which Gaussian noise is (epsilon, delta)-DP on its grid; 0 for delta 0.

    A fit of T Gaussian releases with sensitivity-relative scales z_t keeps the guarantee if and
    only if ``sum 1/z_t**2 <= gdp_mu(epsilon, delta)**2``.
    """
    check_guarantee(epsilon, delta)
    if delta == 0:
        return 0.0
    return largest(lambda mu: over(cost_delta(Cost(mu=mu), epsilon), delta), start=0.05)


@dataclass(frozen=True, slots=True)
class Share:
    """How much of the budget one mechanism gets.

    Attributes
    ----------
    kind : {"gaussian", "laplace", "selection", "peeling"}
        Which noise.
    weight : float
        Share of the total zero-concentrated budget, relative to the other weights; > 0. With
        ``delta=0``, share of epsilon.
    k : int, default 1
        Choices made by a selection or a peeling.
    """

    kind: str
    weight: float
    k: int = 1

    def __post_init__(self) -> None:
        if self.kind not in _FROM_RHO:
            raise PlanError(f"kind={self.kind!r}: allowed are {sorted(_FROM_RHO)}.")
        if not (math.isfinite(self.weight) and self.weight > 0):
            raise PlanError(f"weight={self.weight!r}: a finite number > 0 is needed.")
        if self.k < 1 or (self.k > 1 and self.kind not in (Selection.kind, Peeling.kind)):
            raise PlanError(f"k={self.k!r}: at least 1, and above 1 for choices only.")


# The event that costs a given rho, and the bounded event that costs a given epsilon.
_FROM_RHO: dict[str, Callable[[float, int], Event]] = {
    Gaussian.kind: lambda rho, k: Gaussian(math.sqrt(0.5 / rho)),
    Laplace.kind: lambda rho, k: Laplace(math.sqrt(0.5 / rho)),
    Selection.kind: lambda rho, k: Selection(math.sqrt(8 * rho / k), k),
    Peeling.kind: lambda rho, k: Peeling(math.sqrt(2.5 * k / rho), k),
}
_FROM_EPSILON: dict[str, Callable[[float, int], Event]] = {
    Laplace.kind: lambda epsilon, k: Laplace(1 / epsilon),
    Selection.kind: lambda epsilon, k: Selection(epsilon / k, k),
    Peeling.kind: lambda epsilon, k: Peeling(3 * k / epsilon, k),
}


def calibrate(shares: Mapping[str, Share], epsilon: float, delta: float) -> dict[str, Event]:
    """Least noise with which all mechanisms together are (epsilon, delta)-DP.

    Parameters
    ----------
    shares : mapping of slot to Share
        Mechanism i gets rho_i, its weight over the sum of weights, of the largest total rho that
        keeps the guarantee; epsilon_i likewise when ``delta=0``.
    epsilon, delta : float
        The guarantee; epsilon > 0, delta in [0, 1).

    Returns
    -------
    dict of slot to Event
        In the order of `shares`, with ``delta_of(events, epsilon) <= delta``.

    Raises
    ------
    PlanError
        If nothing is asked, if Gaussian noise is asked with ``delta=0``, or if the guarantee is
        so small that no finite noise gives it.
    """
    check_guarantee(epsilon, delta)
    if not shares or epsilon == 0:
        raise PlanError(
            f"{len(shares)} mechanisms at epsilon={epsilon:g}: at least one mechanism and "
            "epsilon > 0 are needed."
        )
    items = tuple(shares.values())
    events = _pure(items, epsilon) if delta == 0 else _mixed(items, float(epsilon), float(delta))
    if delta_of(events, epsilon) > delta:
        raise PlanError(
            f"No noise was found that gives ({epsilon:g}, {delta:g}): ask for a larger budget."
        )
    return dict(zip(shares, events, strict=True))


@lru_cache(maxsize=256)
def _pure(shares: tuple[Share, ...], epsilon: float) -> tuple[Event, ...]:
    """Epsilon in proportion to the weights."""
    if any(s.kind not in _FROM_EPSILON for s in shares):
        raise PlanError(
            "Gaussian noise needs delta > 0. Give a delta well below 1/n, such as 1e-7, or choose "
            "a method that uses Laplace noise and selections only."
        )
    total = math.fsum(s.weight for s in shares)
    # The factor absorbs the rounding of the shares and of 1/z, a few ulp each.
    usable = epsilon * (1 - 1e-13 * (1 + len(shares)))
    return tuple(_FROM_EPSILON[s.kind](usable * s.weight / total, s.k) for s in shares)


@lru_cache(maxsize=256)
def _mixed(shares: tuple[Share, ...], epsilon: float, delta: float) -> tuple[Event, ...]:
    """Largest total rho, by the closed form where all noise is Gaussian, else by search."""
    weights = [s.weight / math.fsum(t.weight for t in shares) for s in shares]

    def split(rho: float) -> tuple[Event, ...]:
        return tuple(_FROM_RHO[s.kind](w * rho, s.k) for s, w in zip(shares, weights, strict=True))

    def affordable(rho: float) -> bool:
        return cost_within(cost_of(split(rho)), epsilon, delta)

    if all(s.kind == Gaussian.kind for s in shares):
        rho = gdp_mu(epsilon, delta) ** 2 / 2
    else:
        rho = largest(
            lambda rho: over(cost_delta(cost_of(split(rho)), epsilon), delta),
            start=zcdp_rho(epsilon, delta),
            tolerance=1e-6,
        )
    # Rounding of the shares, and of the search that finds the reported epsilon.
    step = 1e-10
    while not affordable(rho) or cost_epsilon(cost_of(split(rho)), delta) > epsilon:
        rho, step = rho * (1 - step), min(2 * step, 0.5)
    return split(rho)
