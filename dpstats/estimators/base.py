"""What estimators share: their public face, a budget in shares, and repairs of noisy matrices."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from dpstats.accounting import Share, calibrate, epsilon_of
from dpstats.errors import OptionError
from dpstats.privacy import Privacy
from dpstats.protocol import Estimator, Mechanism, Options, Plan

if TYPE_CHECKING:
    from dpstats.design import Design

__all__ = [
    "Method",
    "Request",
    "check_options",
    "floor_eigenvalues",
    "make_plan",
    "need_delta",
    "need_integer",
    "need_positive",
    "schedule",
]

Array = NDArray[np.float64]


class Method(ABC):
    """A method's public face: what a user may pass is checked once, in the same words."""

    name: ClassVar[str]
    options: ClassVar[Mapping[str, str]]
    sparse: ClassVar[bool] = False

    def plan(self, design: Design, privacy: Privacy, n: int, **options: Any) -> Plan:
        """Mechanisms, cost, expected error and warnings, from public facts only.

        Parameters
        ----------
        design : Design
            Public design.
        privacy : Privacy
            The guarantee: central, or that of one message of a device.
        n : int
            Public number of rows (a device has one), or a public guess of it.
        **options
            See `options`.

        Raises
        ------
        OptionError
            If an option is missing, unknown or out of range, delta is 0 where noise is Gaussian, or
            rows are too few for the rounds or batches asked for.
        TrustError
            If the method asks devices in rounds, and the guarantee allows none.
        """
        check_options(self.name, self.options, options)
        return self._plan(design, privacy, n, options)

    @abstractmethod
    def _plan(self, design: Design, privacy: Privacy, n: int, options: Options) -> Plan:
        """The plan with these options, all of which the method has."""


@dataclass(frozen=True, slots=True)
class Request:
    """One planned question and its share of the budget.

    `weight` is proportional to the zero-concentrated cost (to epsilon where delta is 0): halving a
    weight multiplies Gaussian noise by sqrt(2).
    """

    slot: str
    weight: float
    purpose: str
    kind: Literal["gaussian", "laplace", "selection", "peeling"] = "gaussian"
    k: int = 1
    parts: int = 1


def schedule(
    asks: Sequence[Request], privacy: Privacy
) -> tuple[tuple[Mechanism, ...], tuple[float, float]]:
    """Mechanisms that together cost at most the guarantee asked for, and what they do cost."""
    shares = {a.slot: Share(a.kind, a.weight, a.k) for a in asks}
    events = calibrate(shares, privacy.epsilon, privacy.delta)
    mechanisms = tuple(Mechanism(a.slot, events[a.slot], a.purpose, a.parts) for a in asks)
    cost = epsilon_of([m.event for m in mechanisms], privacy.delta)
    return mechanisms, (cost, privacy.delta)


def make_plan(
    method: Estimator,
    design: Design,
    privacy: Privacy,
    n: int,
    asks: Sequence[Request],
    options: Options,
) -> Plan:
    """The plan of a method that will ask `asks`, with its public options after defaults."""
    mechanisms, cost = schedule(asks, privacy)
    return Plan(
        model=method.model,
        method=method.name,
        privacy=privacy,
        n=n,
        names=tuple(design.names),
        mechanisms=mechanisms,
        cost=cost,
        options=options,
        max_rows=1 if design.schema is None else design.schema.max_rows or 1,
    )


def check_options(method: str, allowed: Mapping[str, str], options: Options) -> None:
    """Refuse an option that `method` does not take."""
    for name in options:
        if name not in allowed:
            known = "; ".join(f"{k}: {v}" for k, v in allowed.items()) or "none"
            raise OptionError(f"method={method!r} has no option {name!r}. Its options: {known}.")


def need_delta(method: str, privacy: Privacy) -> None:
    """Refuse delta = 0 for a method that adds Gaussian noise."""
    if privacy.delta == 0:
        raise OptionError(
            f"method={method!r} adds Gaussian noise, which needs delta > 0: for example "
            f"Central(epsilon={privacy.epsilon:g}, delta=1e-7)."
        )


def need_integer(name: str, asked: object, default: int, least: int, most: int) -> int:
    """The integer asked for, or the default where it is None.

    Raises
    ------
    OptionError
        If it is not an integer from `least` to `most`.
    """
    if asked is None:
        return default
    if isinstance(asked, bool) or not isinstance(asked, int) or not least <= asked <= most:
        raise OptionError(f"{name}={asked!r}: an integer from {least} to {most} is needed.")
    return asked


def need_positive(
    name: str, asked: object, default: float, zero: bool = False, most: float = math.inf
) -> float:
    """A finite number above zero (or at it, with `zero`), at most `most`; a default for None.

    Raises
    ------
    OptionError
        If it is none.
    """
    if asked is None:
        return default
    value = asked if isinstance(asked, (int, float)) and not isinstance(asked, bool) else math.nan
    if (0 < value <= most and value < math.inf) or (zero and value == 0):
        return float(value)
    ends = f"{'>= 0' if zero else '> 0'}" + ("" if math.isinf(most) else f", at most {most:g}")
    raise OptionError(f"{name}={asked!r}: a finite number {ends} is needed.")


def floor_eigenvalues(matrix: Array, floor: float) -> Array:
    """The symmetric matrix with eigenvalues raised to at least `floor` > 0."""
    values, vectors = np.linalg.eigh((matrix + matrix.T) / 2)
    repaired: Array = (vectors * np.maximum(values, floor)) @ vectors.T
    return repaired
