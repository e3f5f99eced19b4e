"""What a set of events costs.

Three accountants are run on the closed forms of `closed_forms`, and the smallest valid answer is
taken:

* *pure*: the sum of the epsilons, where no event is Gaussian;
* *zero-concentrated*: the sum of the rhos, turned into (epsilon, delta) by the bound of Canonne,
  Kamath & Steinke (2020), optimal over the order;
* *privacy loss*: Gaussian events add up to one Gaussian exactly; every other event adds a bounded
  loss whose law is known in closed form, discretised upwards and convolved. With Gaussian events
  alone this is the exact closed form.

Of mechanisms on disjoint rows (`Parallel`) the changed row is seen by one branch: the events are
composed once for each branch, and the largest answer counts.

All answers are rounded to the safe side, and are about the noise that is really released, which
lives on a fine grid: `discrete_slack` bounds what the grid costs, and is included. The proofs are
in docs/accounting.md.

References
----------
Balle & Wang (2018), Improving the Gaussian mechanism, Theorem 8. Dong, Roth & Su (2022), Gaussian
differential privacy, Corollary 3.3. Canonne, Kamath & Steinke (2020), The discrete Gaussian for
differential privacy, Proposition 12. Dong, Durfee & Rogers (2020), Optimal differential privacy
composition for exponential mechanisms. Doroshenko et al. (2022), Connect the dots.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpstats.accounting.closed_forms import (
    LAPLACE_GRID,
    ROUNDING,
    check_guarantee,
    discrete_slack,
    edge,
    gaussian_delta,
    gaussian_deltas,
    gaussian_epsilon,
    largest,
    over,
    zcdp_delta,
    zcdp_epsilon,
    zcdp_rho,
)
from dpstats.accounting.events import Event, Gaussian, Laplace, Parallel, Peeling, Pure, Selection
from dpstats.accounting.prices import gaussian_price
from dpstats.errors import PlanError

__all__ = [
    "Cost",
    "cost_delta",
    "cost_epsilon",
    "cost_of",
    "cost_within",
    "delta_of",
    "discrete_slack",
    "epsilon_of",
    "gaussian_delta",
    "gaussian_epsilon",
    "is_within",
    "largest",
    "scaled",
    "zcdp_delta",
    "zcdp_epsilon",
    "zcdp_rho",
]

Array = NDArray[np.float64]

_LARGEST_REACH = 300.0  # epsilon of one event beyond which its loss is not computed


# -- composition -------------------------------------------------------------------------------


_Group = tuple[str, float, int]


@dataclass(frozen=True, slots=True)
class Cost:
    """Events in the form the accountants read.

    Attributes
    ----------
    mu : float
        All Gaussian events as one.
    bounded : tuple of _Group, (kind, epsilon, count)
        All others, equal ones merged.
    """

    mu: float = 0.0
    bounded: tuple[_Group, ...] = ()

    @property
    def rho(self) -> float:
        """Total zero-concentrated cost."""
        return self.mu**2 / 2 + math.fsum(n * e**2 * _RHO[kind] for kind, e, n in self.bounded)

    @property
    def epsilon(self) -> float:
        """Total pure cost; inf where any noise is Gaussian."""
        if self.mu > 0:
            return math.inf
        return math.fsum(n * e for _, e, n in self.bounded)


# A bounded loss about which no more is known than its epsilon: a choice by report noisy max, or a
# local randomiser.
_ANY = "any"
# Zero-concentrated cost of a bounded event of epsilon 1.
_RHO = {Laplace.kind: 1 / 2, Selection.kind: 1 / 8, _ANY: 1 / 2}
_NEGLIGIBLE = 1e-22  # numerical: mass of a tail of losses that is moved upwards
_MOST_WAYS = 16  # in which the changed row can fall into branches, composed one by one


def _costs(events: Iterable[Event]) -> tuple[Cost, ...]:
    """Merged events for every way in which the changed row can fall into branches.

    A way that costs no more than another one is left out. Where too many are left, every `Parallel`
    counts as the Gaussian event that none of its branches is worse than.
    """
    events = tuple(events)
    parallel = [event for event in events if isinstance(event, Parallel)]
    everywhere = [event for event in events if not isinstance(event, Parallel)]
    ways = {cost_of(everywhere)}
    for event in parallel:
        branches = [cost for branch in event.branches for cost in _costs(branch)]
        ways = _costliest({_together(way, branch) for way in ways for branch in branches})
        if len(ways) > _MOST_WAYS:
            prices = (Gaussian(1 / gaussian_price(event)) for event in parallel)
            return (cost_of([*everywhere, *prices]),)
    return tuple(sorted(ways, key=lambda way: (way.mu, way.bounded)))


def _costliest(ways: set[Cost]) -> set[Cost]:
    """Those that no other one contains."""
    return {w for w in ways if not any(w != other and _contains(other, w) for other in ways)}


def _contains(a: Cost, b: Cost) -> bool:
    counts = {(kind, epsilon): n for kind, epsilon, n in a.bounded}
    return a.mu >= b.mu and all(counts.get((kind, e), 0) >= n for kind, e, n in b.bounded)


def _together(a: Cost, b: Cost) -> Cost:
    bounded: Counter[tuple[str, float]] = Counter()
    for kind, epsilon, count in (*a.bounded, *b.bounded):
        bounded[kind, epsilon] += count
    return Cost(math.hypot(a.mu, b.mu), tuple(sorted((k, e, n) for (k, e), n in bounded.items())))


def cost_of(events: Iterable[Event]) -> Cost:
    """Merge equal events; an event that is not known is refused."""
    precisions: list[float] = []
    bounded: Counter[tuple[str, float]] = Counter()
    for event in events:
        match event:
            case Gaussian(noise_multiplier=z):
                precisions.append(z**-2)
            case Laplace():
                bounded[event.kind, event.epsilon] += 1
            case Selection(epsilon=e, k=k):
                bounded[event.kind, e] += k
            case Peeling(noise_multiplier=z, k=k):
                bounded[_ANY, 2 / z] += k
                bounded[Laplace.kind, 1 / z] += k
            case Pure(epsilon=e):
                bounded[_ANY, e] += 1
            case _:
                raise PlanError(
                    f"{event!r} is not a privacy event that this version knows: its cost cannot "
                    "be computed, so it may not be planned or charged."
                )
    mu = math.sqrt(math.fsum(precisions))
    return Cost(mu, tuple(sorted((kind, e, n) for (kind, e), n in bounded.items())))


def delta_of(events: Iterable[Event], epsilon: float) -> float:
    """Smallest delta that the accountants can prove for all `events` together at `epsilon`.

    Parameters
    ----------
    events : iterable of Event
        In any order; each may depend on what the earlier ones released.
    epsilon : float
        >= 0, finite.

    Returns
    -------
    float
        In [0, 1], rounded up; 0 where the epsilons of pure events add up to at most `epsilon`.

    Raises
    ------
    PlanError
        If an event is not known.
    """
    check_guarantee(epsilon, 0.0)
    return max(cost_delta(cost, float(epsilon)) for cost in _costs(events))


def epsilon_of(events: Iterable[Event], delta: float) -> float:
    """Smallest epsilon that the accountants can prove for all `events` together at `delta`.

    Returns inf where no finite epsilon exists: Gaussian noise with ``delta=0``.

    Raises
    ------
    PlanError
        If an event is not known, or `delta` is not in [0, 1).
    """
    check_guarantee(0.0, delta)
    return max(cost_epsilon(cost, float(delta)) for cost in _costs(events))


def is_within(events: Iterable[Event], epsilon: float, delta: float) -> bool:
    """Whether all `events` together are (epsilon, delta)-DP; the quick accountants are asked first.

    Raises
    ------
    PlanError
        If an event is not known.
    """
    check_guarantee(epsilon, delta)
    return all(cost_within(cost, epsilon, delta) for cost in _costs(events))


def cost_within(cost: Cost, epsilon: float, delta: float) -> bool:
    """Whether a cost is at most (epsilon, delta), by one of the accountants."""
    return (
        cost.epsilon <= epsilon
        or zcdp_delta(cost.rho, epsilon) <= delta
        or (delta > 0 and _loss_delta(cost, epsilon) <= delta)
    )


def scaled(events: Iterable[Event], factor: float) -> tuple[Event, ...]:
    """The same events with `factor` times the noise."""
    return tuple(_SCALED[event.kind](event, factor) for event in events)


_SCALED: dict[str, Callable[[Any, float], Event]] = {
    Gaussian.kind: lambda event, factor: Gaussian(event.noise_multiplier * factor),
    Laplace.kind: lambda event, factor: Laplace(event.noise_multiplier * factor),
    Selection.kind: lambda event, factor: Selection(event.epsilon / factor, event.k),
    Peeling.kind: lambda event, factor: Peeling(event.noise_multiplier * factor, event.k),
    Pure.kind: lambda event, factor: Pure(event.epsilon / factor),
    Parallel.kind: lambda event, factor: Parallel(
        tuple(scaled(branch, factor) for branch in event.branches)
    ),
}


def cost_delta(cost: Cost, epsilon: float) -> float:
    """The smallest valid delta of a cost at `epsilon`."""
    if cost.epsilon <= epsilon:
        return 0.0
    return min(zcdp_delta(cost.rho, epsilon), _loss_delta(cost, epsilon))


@lru_cache(maxsize=1024)
def cost_epsilon(cost: Cost, delta: float) -> float:
    """Smaller of the three accountants; each search ends on a point where the bound was checked."""
    alone = sum(n for _, _, n in cost.bounded) <= 1  # of several the sum is rounded up
    pure = cost.epsilon if alone else math.nextafter(cost.epsilon, math.inf)
    if pure == 0 or delta == 0:
        return pure
    if cost_delta(cost, 0.0) <= delta:
        return 0.0
    best = min(pure, zcdp_epsilon(cost.rho, delta))
    if best == math.inf:
        return best
    # The slack of the noise grid grows with epsilon, so a smaller one may hold where `best` fails.
    tried = (best * k / _TRIES for k in range(_TRIES, 0, -1))
    start = next((e for e in tried if _loss_delta(cost, e) <= delta), None)
    if start is None:
        return best
    return edge(lambda e: over(_loss_delta(cost, e), delta), good=start, bad=0.0)


_TRIES = 8


# -- the privacy loss of bounded events --------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _PrivacyLoss:
    """A discrete privacy loss: ``mass[i]`` at ``(first + i) * step``, and `infinite` at infinity.

    `mass` has shape (m,). The law is that of log dP/dQ under P.
    """

    step: float
    first: int
    mass: Array
    infinite: float = 0.0


def _loss_delta(cost: Cost, epsilon: float) -> float:
    """Delta by the composed privacy loss, with the slack of the noise grid; 1 where not available.

    delta(eps) = E_P[(1 - exp(eps - L))_+] and L is a sum of independent losses, so conditioning
    on the bounded part leaves the Gaussian closed form at eps minus that part.
    """
    slack = discrete_slack(epsilon) if cost.mu > 0 else 0.0
    mu = cost.mu * (1 + ROUNDING)
    if not cost.bounded:
        return min(1.0, gaussian_delta(mu, epsilon) + slack)
    if max(e for _, e, _ in cost.bounded) > _LARGEST_REACH:
        return 1.0
    loss = _bounded_loss(Cost(cost.mu, _coarse(cost.bounded)))
    values = (loss.first + np.arange(loss.mass.size, dtype=np.float64)) * loss.step
    tail = float(np.dot(loss.mass, gaussian_deltas(mu, epsilon - values)))
    return min(1.0, (tail + loss.infinite) * (1 + 1e-9) + slack)


def _coarse(bounded: tuple[_Group, ...], limit: int = 16) -> tuple[_Group, ...]:
    """At most `limit` groups of equal events, by rounding epsilons up where there are more.

    More epsilon is more information, so the bound stays valid; it loosens by 0.1 % or, with many
    different events, a few times that, and the work stays bounded however long a ledger grows.
    """
    ratio = math.log1p(0.001)
    while len(bounded) > limit:
        merged: Counter[tuple[str, float]] = Counter()
        for kind, epsilon, count in bounded:
            rounded = math.exp(math.ceil(math.log(epsilon) / ratio) * ratio)
            merged[kind, max(rounded, epsilon)] += count
        bounded = tuple(sorted((kind, e, n) for (kind, e), n in merged.items()))
        ratio *= 1.5
    return bounded


@lru_cache(maxsize=64)
def _bounded_loss(cost: Cost) -> _PrivacyLoss:
    """Loss of all bounded events of `cost` together."""
    step = _step(cost)
    total = _PrivacyLoss(step, 0, np.ones(1))
    for kind, epsilon, count in cost.bounded:
        total = _convolve(total, _power(_single_loss(kind, epsilon, step), count))
    return total


def _step(cost: Cost) -> float:
    """Grid step of the loss: fine enough to matter little, coarse enough to be quick.

    Splitting a loss between two grid points adds at most step^2 / 4 to its variance, so `smooth`
    adds less than 1e-4 of the total variance, about 2 rho. Without Gaussian noise the loss has
    atoms, nothing smooths them, and the step is up to ten times finer where few events make that
    quick. Any step gives a valid bound. Losses reach no less far than the slack of Laplace noise's
    grid, however small epsilon is.
    """
    count = sum(n for _, _, n in cost.bounded)
    widest = max(e for _, e, _ in cost.bounded)
    smooth = math.sqrt(4e-4 * 2 * cost.rho / count)
    if cost.mu == 0:
        smooth = max(smooth / 10, min(smooth, cost.epsilon / 2000))
    return max(smooth, max(widest, LAPLACE_GRID / 4) / 1000)


def _single_loss(kind: str, epsilon: float, step: float) -> _PrivacyLoss:
    """Loss of one bounded event, spread to the grid without lowering delta anywhere.

    All kinds have density c exp(l/2) on (-epsilon, epsilon) and atoms at the ends, some of them
    zero (docs/accounting.md). A loss l in [a, a + step] is replaced by the two ends with the
    weights that keep E[exp(-l)]: a mean-preserving spread of exp(-l), in which delta is convex.
    For this density the spread of a cell equals that of its mass put at its midpoint.
    """
    reach = epsilon + (LAPLACE_GRID / 4 if kind == Laplace.kind else 0.0)
    density, atom = _LOSS[kind](reach)
    first = math.floor(-reach / step)
    last = max(math.ceil(reach / step), first + 1)
    edges = np.clip(np.arange(first, last + 1) * step, -reach, reach)
    middle, width = (edges[1:] + edges[:-1]) / 2, np.diff(edges)
    mass = density * 4 * np.sinh(width / 4) * np.exp((middle - reach) / 2)
    places = np.concatenate([middle, [-reach, reach]])
    weights = np.concatenate([mass, [atom * math.exp(-reach), atom]])
    cell = np.clip(np.floor(places / step).astype(int), first, last - 1) - first
    up = np.clip(np.expm1((first + cell) * step - places) / math.expm1(-step), 0.0, 1.0)
    out = np.zeros(last - first + 1)
    np.add.at(out, cell, weights * (1 - up))
    np.add.at(out, cell + 1, weights * up)
    return _PrivacyLoss(step, first, out)


# Density c exp((l - a)/2) of the loss on (-a, a), and its atom at a; exp(-a) times that at -a.
_LOSS: dict[str, Callable[[float], tuple[float, float]]] = {
    Laplace.kind: lambda a: (0.25, 0.5),
    Selection.kind: lambda a: (-0.5 / math.expm1(-a), 0.0),
    _ANY: lambda a: (0.0, 1 / (1 + math.exp(-a))),
}


def _power(loss: _PrivacyLoss, count: int) -> _PrivacyLoss:
    """Loss of `count` independent copies, by repeated squaring."""
    result: _PrivacyLoss | None = None
    while count:
        if count & 1:
            result = loss if result is None else _convolve(result, loss)
        count >>= 1
        loss = _convolve(loss, loss) if count else loss
    assert result is not None
    return result


def _convolve(a: _PrivacyLoss, b: _PrivacyLoss) -> _PrivacyLoss:
    """Loss of two independent parts; sums of positive terms only, so relative accuracy is kept."""
    mass = np.convolve(a.mass, b.mass)
    infinite = a.infinite + b.infinite
    return _trim(_PrivacyLoss(a.step, a.first + b.first, mass, infinite))


def _trim(loss: _PrivacyLoss) -> _PrivacyLoss:
    """Shorten the tails upwards: the top goes to infinity, the bottom to the lowest kept point."""
    low = int(np.searchsorted(np.cumsum(loss.mass), _NEGLIGIBLE))
    top = np.cumsum(loss.mass[::-1])
    high = loss.mass.size - int(np.searchsorted(top, _NEGLIGIBLE))
    low = min(low, high - 1)
    mass = loss.mass[low:high].copy()
    mass[0] += loss.mass[:low].sum()
    infinite = loss.infinite + float(loss.mass[high:].sum())
    return _PrivacyLoss(loss.step, loss.first + low, mass, infinite)


# -- calibration -------------------------------------------------------------------------------
