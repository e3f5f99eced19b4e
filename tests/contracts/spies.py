"""Spies: what a fit asks, what the private side answers before noise, when rows are read."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from dpstats.accounting.events import Gaussian, Laplace
from dpstats.accounting.ledger import Ledger
from dpstats.design import Design, TableSource
from dpstats.holders import Curator, curator, labels
from dpstats.mechanisms.noise import Noise, SeededNoise
from dpstats.protocol import Plan
from tests.contracts.cases import Case, Table


@dataclass(frozen=True)
class Released:
    """One call of a mechanism: the exact answer and everything it was released with."""

    exact: np.ndarray
    sensitivity: float
    event: Any
    noisy: np.ndarray
    scale: float
    kind: str
    draws: tuple[np.ndarray, ...] = ()  # what the noise stream added, call by call, in grid steps

    @property
    def norm(self) -> float:
        """Norm of the sensitivity: that of the noise on a sum, the largest coordinate otherwise."""
        return {Gaussian: 2, Laplace: 1}[type(self.event)] if self.kind == "sum" else np.inf

    @property
    def noise_per_sensitivity(self) -> float:
        """Scale of each draw that the event allows, per unit of sensitivity."""
        if self.kind == "choice":
            return 2.0 / self.event.epsilon
        # A search composes log2(cells) Gaussian comparisons into one event.
        draws = math.log2(self.exact.size - 1) if self.kind == "search" else 1
        return self.event.noise_multiplier * math.sqrt(draws)


@dataclass(frozen=True)
class Asked:
    """One question of an estimator, and the design whose units it is in, if not the holder's."""

    query: Any
    slot: str
    part: int
    design: Any = None

    @property
    def shape(self) -> tuple[Any, ...]:
        """What must not depend on the data."""
        return self.slot, self.part, type(self.query), tuple(self.query.parameters())


class Overheard:
    """A noise stream, with what it adds to numbers."""

    def __init__(self, stream: Any) -> None:
        self.stream = stream
        self.draws: list[np.ndarray] = []

    def gaussian(self, values: Any, scale: float) -> Any:
        return self._noted(values, self.stream.gaussian(values, scale))

    def laplace(self, values: Any, scale: float) -> Any:
        return self._noted(values, self.stream.laplace(values, scale))

    def top_k(self, utilities: Any, k: int, scale: float) -> Any:
        return self.stream.top_k(utilities, k, scale)

    def _noted(self, values: Any, noisy: Any) -> Any:
        self.draws.append(noisy - values)
        return noisy


@contextmanager
def releases() -> Iterator[list[Released]]:
    """Everything that a curator, of rows or of responses, hands to the mechanisms, in order."""
    seen: list[Released] = []
    original = curator.release

    def spy(
        answer: Any, sensitivity: float, event: Any, noise: Any, kind: str = "sum", norm: str = "l2"
    ) -> Any:
        stream = Overheard(noise)
        noisy, scale = original(answer, sensitivity, event, stream, kind, norm)
        draws = tuple(stream.draws)
        seen.append(Released(answer.copy(), sensitivity, event, np.copy(noisy), scale, kind, draws))
        return noisy, scale

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(curator, "release", spy)
        patch.setattr(labels, "release", spy)
        yield seen


class Recorder(Curator):
    """A curator that notes the questions."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.asked: list[Asked] = []
        self.units: Any = None

    def rescale(self, design: Any, found: Any) -> None:
        self.units = design
        super().rescale(design, found)

    def ask(self, query: Any, slot: str, part: int = 0) -> Any:
        self.asked.append(Asked(query, slot, part, self.units))
        return super().ask(query, slot, part)


def ask_again(holder: Any, asked: list[Asked]) -> None:
    """The same questions in the same units."""
    units = None
    for a in asked:
        if a.design is not units:
            units = a.design
            holder.rescale(units, {})
        holder.ask(a.query, a.slot, a.part)


class Repeater(Curator):
    """A curator that answers a question again and again, each time with new noise."""

    def ask(self, query: Any, slot: str, part: int = 0) -> Any:
        self._answered.clear()
        return super().ask(query, slot, part)


@functools.cache
def design_of(case: Case) -> Any:
    """The design of all tables of a case: it is public, and knows nothing of the rows."""
    return case.model(case.table(1)).design


def opened(
    case: Case,
    plan: Plan,
    data: Any,
    noise: Noise | None = None,
    holder: Callable[..., Any] = Curator,
) -> Any:
    """A holder on `data`, as the front door opens it."""
    design = design_of(case)
    return holder(design.source(data), design, plan, noise or SeededNoise(1))


@dataclass(frozen=True)
class Recording:
    """One fit: its questions, the answers before and after noise, the estimate."""

    plan: Plan
    asked: list[Asked]
    released: list[Released]
    estimate: Any


def record(case: Case, plan: Plan, data: Any, seed: int = 1) -> Recording:
    """Fit with a recorder; no ledger, no results."""
    holder = opened(case, plan, data, SeededNoise(seed), Recorder)
    with releases() as released:
        estimate = case.estimator.fit(holder, design_of(case), plan)
    return Recording(plan, holder.asked, released, estimate)


def replay(case: Case, plan: Plan, data: Any, asked: list[Asked]) -> list[Released]:
    """The same questions, with the same parameters, put to other data."""
    holder = opened(case, plan, data)
    with releases() as released:
        ask_again(holder, asked)
    return released


@contextmanager
def order_of_events() -> Iterator[list[str]]:
    """``"charge"`` when a ledger was charged, ``"read"`` when rows were read."""
    log: list[str] = []
    typical = Design.typical_rows

    def made_up(*args: Any, **kwargs: Any) -> Any:
        before = list(log)
        rows = typical(*args, **kwargs)
        log[:] = before  # rows that a plan made up from the schema are nobody's
        return rows

    def noting(name: str, original: Callable[..., Any]) -> Callable[..., Any]:
        def spy(*args: Any, **kwargs: Any) -> Any:
            result = original(*args, **kwargs)
            log.append(name)
            return result

        return spy

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Ledger, "charge", noting("charge", Ledger.charge))
        patch.setattr(Design, "typical_rows", made_up)
        for door in ("block", "raw", "missing", "observed", "astray"):
            patch.setattr(TableSource, door, noting("read", getattr(TableSource, door)))
        yield log


def overwrite(data: Table, other: Table) -> None:
    """Replace every value of a table in place."""
    for name, column in data.items():
        column[:] = other[name]
