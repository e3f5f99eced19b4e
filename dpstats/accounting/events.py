"""Privacy events: what a mechanism did, as data. Accountants interpret them, nobody else.

Every event is already normalised to the neighbours of the fit: a noise multiplier is the noise
scale divided by the sensitivity *under those neighbours*, so that an accountant never has to know
which relation was meant.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, ClassVar, TypeAlias

from dpstats.errors import PlanError
from dpstats.stored import read, record, values

__all__ = [
    "Event",
    "Gaussian",
    "Laplace",
    "Parallel",
    "Peeling",
    "Pure",
    "Selection",
    "event_from_dict",
    "event_to_dict",
]


@dataclass(frozen=True, slots=True)
class Gaussian:
    """Gaussian noise with standard deviation ``noise_multiplier`` times the L2 sensitivity."""

    noise_multiplier: float
    kind: ClassVar[str] = "gaussian"

    def __post_init__(self) -> None:
        _positive("noise_multiplier", self.noise_multiplier)

    @property
    def rho(self) -> float:
        """Zero-concentrated cost, 1 / (2 z^2) (Bun & Steinke 2016, Proposition 1.6)."""
        return 0.5 / self.noise_multiplier**2


@dataclass(frozen=True, slots=True)
class Laplace:
    """Laplace noise with scale ``noise_multiplier`` times the L1 sensitivity; pure 1/z-DP."""

    noise_multiplier: float
    kind: ClassVar[str] = "laplace"

    def __post_init__(self) -> None:
        _positive("noise_multiplier", self.noise_multiplier)

    @property
    def epsilon(self) -> float:
        """Pure cost, 1 / z."""
        return 1.0 / self.noise_multiplier

    @property
    def rho(self) -> float:
        """Zero-concentrated cost, epsilon^2 / 2 (Bun & Steinke 2016, Proposition 1.4)."""
        return 0.5 * self.epsilon**2


@dataclass(frozen=True, slots=True)
class Selection:
    """``k`` rounds of an exponential mechanism, P(choice) proportional to exp(epsilon u / 2).

    ``epsilon`` is the cost of one round with utilities of sensitivity 1, so one round is
    epsilon-bounded-range: epsilon-DP and epsilon^2/8-zCDP (Cesar & Rogers 2021, Lemma 3.2).
    One-shot Gumbel top-k has the law of k peeled rounds (Durfee & Rogers 2019, Lemma 4.2).
    """

    epsilon: float
    k: int = 1
    kind: ClassVar[str] = "selection"

    def __post_init__(self) -> None:
        _positive("epsilon", self.epsilon)
        if self.k < 1:
            raise PlanError(f"Selection(k={self.k}): at least one choice is needed.")

    @property
    def rho(self) -> float:
        """Zero-concentrated cost, k epsilon^2 / 8."""
        return self.k * self.epsilon**2 / 8


@dataclass(frozen=True, slots=True)
class Peeling:
    """``k`` rounds of report noisy max with Laplace noise, each with the value of what it chose.

    ``noise_multiplier`` z is the scale of every Laplace noise over the L-infinity sensitivity of
    the vector. A round's choice is 2/z-DP and its value 1/z-DP, whatever earlier rounds chose.
    """

    noise_multiplier: float
    k: int = 1
    kind: ClassVar[str] = "peeling"

    def __post_init__(self) -> None:
        _positive("noise_multiplier", self.noise_multiplier)
        if self.k < 1:
            raise PlanError(f"Peeling(k={self.k}): at least one choice is needed.")

    @property
    def epsilon(self) -> float:
        """Pure cost, 3 k / z."""
        return 3 * self.k / self.noise_multiplier

    @property
    def rho(self) -> float:
        """Zero-concentrated cost, k ((2/z)^2 + (1/z)^2) / 2 = 2.5 k / z^2."""
        return 2.5 * self.k / self.noise_multiplier**2


@dataclass(frozen=True, slots=True)
class Pure:
    """A mechanism of which no more is known than that it is ``epsilon``-DP: a local randomiser.

    Each such mechanism is a post-processing of randomised response (Kairouz, Oh & Viswanath 2015,
    Theorem 2), as which it is composed.
    """

    epsilon: float
    kind: ClassVar[str] = "pure"

    def __post_init__(self) -> None:
        _positive("epsilon", self.epsilon)

    @property
    def rho(self) -> float:
        """Zero-concentrated cost, epsilon^2 / 2 (Bun & Steinke 2016, Proposition 1.4)."""
        return 0.5 * self.epsilon**2


@dataclass(frozen=True, slots=True)
class Parallel:
    """Mechanisms on disjoint sets of rows, those of one set in one branch.

    Under replace-one neighbours with one row per unit the changed row lies in one set, the same
    for both tables, so the branches together cost what the costliest of them costs.
    """

    branches: tuple[tuple[Event, ...], ...]
    kind: ClassVar[str] = "parallel"

    def __post_init__(self) -> None:
        if not self.branches or not all(self.branches):
            raise PlanError("Parallel: at least one branch is needed, and none may be empty.")

    @property
    def rho(self) -> float:
        """Zero-concentrated cost, that of the costliest branch."""
        return max(math.fsum(event.rho for event in branch) for branch in self.branches)


Event: TypeAlias = Gaussian | Laplace | Selection | Peeling | Pure | Parallel
_KINDS: dict[str, type[Any]] = {
    kind.kind: kind for kind in (Gaussian, Laplace, Selection, Peeling, Pure, Parallel)
}


_LEAST = 1e-150


def _positive(name: str, value: float) -> None:
    if not (math.isfinite(value) and value > 0):
        raise PlanError(f"{name}={value!r}: a finite number > 0 is needed.")
    if not _LEAST <= value <= 1 / _LEAST:  # its square, and that of 1 / value, are numbers, too
        raise PlanError(f"{name}={value!r}: from {_LEAST:g} to {1 / _LEAST:g} is allowed.")


def event_to_dict(event: Event) -> dict[str, Any]:
    """Event as a JSON object, ``{"kind": ..., parameters...}``; branches as lists of objects."""
    if isinstance(event, Parallel):
        branches = [[event_to_dict(e) for e in branch] for branch in event.branches]
        return {"kind": event.kind, "branches": branches}
    return {"kind": event.kind, **asdict(event)}


def event_from_dict(data: Mapping[str, Any]) -> Event:
    """Inverse of `event_to_dict`; an unknown kind is refused, never skipped.

    Raises
    ------
    PlanError, OptionError
        If the kind is unknown, or a parameter is none of it, of another type or outside.
    """
    fields = read(dict, data, "event")
    kind = fields.pop("kind", None)
    if not isinstance(kind, str) or kind not in _KINDS:
        raise PlanError(
            f"Unknown privacy event {kind!r}: this version knows {sorted(_KINDS)}. "
            "Its cost cannot be computed, so nothing may be charged on top of it."
        )
    if kind == Parallel.kind:
        lists = values({"branches": tuple[tuple[dict[str, Any], ...], ...]}, fields, kind)
        return Parallel(tuple(tuple(map(event_from_dict, b)) for b in lists["branches"]))
    made: Event = record(_KINDS[kind], fields, f"event, {kind}")
    return made
