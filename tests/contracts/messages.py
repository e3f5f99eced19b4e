"""Every registered method whose rows stay on devices, or whose covariates are public; and spies.

As in `tests.contracts.cases` the suite is parametrised over the registry: a method is tested from
the moment it is registered, under each guarantee that it serves.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import pytest

from dpstats.channels import Channel
from dpstats.estimators import ESTIMATORS
from dpstats.holders import Clients, Labels, labels
from dpstats.mechanisms import randomize
from dpstats.mechanisms.noise import Noise, SeededNoise
from dpstats.models import door, regressions
from dpstats.privacy import LabelOnly, Local, Privacy
from dpstats.protocol import Estimator, Plan
from dpstats.queries import CellMessage, MomentMessage
from dpstats.schema import Schema
from tests.contracts.cases import (
    COLUMNS,
    COLUMNS_TO_SELECT,
    MODELS,
    SPARSITY,
    Table,
    table,
)
from tests.grids import grid

DELTA = 1e-6
MESSAGE_KINDS: tuple[type[Any], ...] = (MomentMessage, CellMessage)

# What may be asked for: the trust model, and who answers.
GUARANTEES: dict[str, Callable[[float, float], Privacy]] = {
    "local": lambda epsilon, delta: Local(epsilon, delta),
    "local-rounds": lambda epsilon, delta: Local(epsilon, delta, interactive=True),
    "label-only": lambda epsilon, delta: LabelOnly(epsilon, delta),
    "label-curator": lambda epsilon, delta: LabelOnly(epsilon, delta, curator=True),
}


def served(estimator: Estimator) -> list[str]:
    """The guarantees that a method is made for."""
    serves = getattr(estimator, "serves", lambda privacy: True)
    asked = {name: make(1.0, DELTA) for name, make in GUARANTEES.items()}
    return [n for n, p in asked.items() if p.trust in estimator.theory and serves(p)]


@dataclass(frozen=True)
class MessageCase:
    """One method under one guarantee."""

    estimator: Estimator
    guarantee: str
    split: bool = False  # half of the rows selects columns, the other half tests them

    def __str__(self) -> str:
        split = "-split" if self.split else ""
        return f"{self.estimator.model}-{self.estimator.name}{split}-{self.guarantee}"

    @property
    def trust(self) -> str:
        return self.privacy().trust

    @property
    def local(self) -> bool:
        """Whether whole records are private; otherwise covariates are public."""
        return self.trust == "local"

    @property
    def curator(self) -> bool:
        """Whether one holder adds noise to sums; otherwise every value is randomised."""
        return self.guarantee == "label-curator"

    @property
    def secret(self) -> tuple[str, ...]:
        """Columns that are private."""
        return ("y", *COLUMNS) if self.local else ("y",)

    @property
    def options(self) -> dict[str, Any]:
        if self.split:
            return {"sparsity": COLUMNS_TO_SELECT, "inference": "split"}
        return {"sparsity": SPARSITY} if self.estimator.sparse else {}

    @property
    def truth(self) -> Mapping[str, float]:
        return MODELS[self.estimator.model].truth

    def privacy(self, epsilon: float = 1.0, delta: float = DELTA) -> Any:
        return GUARANTEES[self.guarantee](epsilon, delta)

    def model(self, data: Any) -> regressions.Model:
        kind = MODELS[self.estimator.model]
        return kind.make(data, Schema({"y": kind.endog, **COLUMNS}))

    def design(self, data: Any) -> Any:
        """The public design that a fit uses."""
        return self.model(data)._design(self.privacy())

    def table(self, n: int, seed: int = 0) -> Table:
        data = table(n, seed, model=self.estimator.model)
        del data["person"]
        return data

    def other(self, data: Table, seed: int = 99) -> Table:
        """Another table of the same public facts: all that is private is drawn again."""
        fresh = self.table(len(data["y"]), seed)
        return data | {name: fresh[name] for name in self.secret}

    def plan(self, data: Any, privacy: Any = None, **options: Any) -> Plan:
        return self.model(data).plan(
            privacy or self.privacy(), method=self.estimator.name, **(self.options | options)
        )

    def fit(self, data: Any, privacy: Any = None, **arguments: Any) -> Any:
        """Results by way of the front door."""
        return self.model(data).fit(
            privacy or self.privacy(), method=self.estimator.name, **(self.options | arguments)
        )

    def collector(self, data: Any, privacy: Any = None, **options: Any) -> Any:
        return self.model(data).collector(
            privacy or self.privacy(), method=self.estimator.name, **(self.options | options)
        )


MESSAGES = [MessageCase(e, name) for e in ESTIMATORS for name in served(e)]
MESSAGES += [
    MessageCase(e, name, split=True)
    for e in ESTIMATORS
    for name in served(e)
    if "inference" in e.options
]
LOCAL = [case for case in MESSAGES if case.local]
DEVICES = [case for case in MESSAGES if not case.curator]
RESPONSES = [case for case in MESSAGES if case.guarantee == "label-only"]
SUMS = [case for case in MESSAGES if case.curator]

# Tests of many draws or fits run by default where the mechanism is another one.
DRAWN = ("local-mean", "local-moments", "local-cells", "label-curator", "label-curator-omp")


def _whole(case: MessageCase) -> bool:
    """Whether a law is tested by default: once for each method, with its first model."""
    first = next(c for c in MESSAGES if c.estimator.name == case.estimator.name)
    return case is first


def _drawn(case: MessageCase) -> bool:
    usual = not case.split and case.estimator.model in ("mean", "ols", "proportion")
    return usual and case.estimator.name in DRAWN


def _each(cases: Sequence[MessageCase], by_default: Callable[[MessageCase], bool]) -> Any:
    return pytest.mark.parametrize("case", grid(cases, by_default), ids=str)


each_message_case_drawn = _each(MESSAGES, _drawn)
each_local_drawn = _each(LOCAL, _drawn)
each_response_drawn = _each(RESPONSES, _drawn)
each_sum_drawn = _each(SUMS, _drawn)
each_message_case = _each(MESSAGES, _whole)
each_local = _each(LOCAL, _whole)
each_of_devices = _each(DEVICES, _whole)
each_response = _each(RESPONSES, _whole)
each_response_counted = _each(RESPONSES, lambda case: str(case) == "ols-label-ols-label-only")
each_sum = _each(SUMS, _whole)


def frame(data: Table) -> pd.DataFrame:
    return pd.DataFrame(data)


# What reaches the samplers ------------------------------------------------------------------------


@dataclass(frozen=True)
class Handed:
    """Values that a sampler was given, and the channel it draws from."""

    channel: Channel
    rows: np.ndarray

    @property
    def size(self) -> float:
        """Largest norm of a row, in the norm of the channel's domain."""
        order = 2 if self.channel.domain == "l2" else np.inf
        return float(np.linalg.norm(self.rows, order, axis=1).max(initial=0.0))


@contextmanager
def handed_over() -> Iterator[list[Handed]]:
    """Everything that is about to be randomised, after it was mapped into the domain."""
    seen: list[Handed] = []

    def noting(original: Callable[..., Any]) -> Callable[..., Any]:
        def spy(channel: Channel, rows: Any, noise: Any) -> Any:
            seen.append(Handed(channel, rows.copy()))
            return original(channel, rows, noise)

        return spy

    def accumulate(self: Any, rows: Any) -> None:
        if self._exact:  # values whose noise is drawn once, on their sum
            seen.append(Handed(self._channel, rows.copy()))
        original(self, rows)

    original = randomize.MessageSums._accumulate
    with pytest.MonkeyPatch.context() as patch:
        for name in ("_SENDERS", "_SIMULATORS"):
            samplers = {k: noting(sampler) for k, sampler in getattr(randomize, name).items()}
            patch.setattr(randomize, name, samplers)
        patch.setattr(randomize.MessageSums, "_accumulate", accumulate)
        yield seen


@contextmanager
def silenced() -> Iterator[None]:
    """Messages about nothing: every value is 0 when it reaches a sampler, every sum before noise.

    What a fit still says about its table then, it knows by another way.
    """

    def nothing(channel: Channel, rows: Any) -> Any:
        return np.zeros(np.shape(rows))

    def release(answer: Any, *args: Any, **kwargs: Any) -> Any:
        return original(np.zeros_like(answer), *args, **kwargs)

    original = labels.release
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(randomize, "inside", nothing)
        patch.setattr(labels, "release", release)
        yield


@contextmanager
def simulated() -> Iterator[list[tuple[Any, Any, Any]]]:
    """Channel, values and decoded messages of every device that is simulated."""
    seen: list[tuple[Any, Any, Any]] = []
    original = randomize.simulate

    def simulate(channel: Channel, values: Any, noise: Any) -> Any:
        decoded = original(channel, values, noise)
        seen.append((channel, np.array(values), decoded.copy()))
        return decoded

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(randomize, "simulate", simulate)
        yield seen


@contextmanager
def rows_of_rounds() -> Iterator[list[np.ndarray]]:
    """The responses (or first numbers) that each round of devices read, of its message."""
    seen: list[np.ndarray] = []
    collect = Clients.collect

    def noting(self: Any, question: Any, part: int) -> Any:
        seen.append(np.empty(0))
        return collect(self, question, part)

    def reading(rows: Any) -> Any:
        def read(self: Any, x: Any, y: Any, keep: Any) -> Any:
            seen[-1] = np.concatenate([seen[-1], x[:, 0] if y is None else y])
            return rows(self, x, y, keep)

        return read

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Clients, "collect", noting)
        for kind in MESSAGE_KINDS:
            patch.setattr(kind, "rows", reading(kind.rows))
        yield seen


# What is asked ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Question:
    """One question to a holder, of devices or of responses."""

    query: Any
    slot: str
    part: int = 0

    @property
    def shape(self) -> tuple[Any, ...]:
        """What must not depend on the data."""
        asked = getattr(self.query, "message", self.query)
        channel = getattr(self.query, "channel", None)
        law = None if channel is None else (channel.name, channel.domain, channel.event)
        return self.slot, self.part, type(asked), tuple(asked.parameters()), law


@contextmanager
def questions() -> Iterator[list[Question]]:
    """Everything that holders are asked, in order."""
    seen: list[Question] = []
    collect, ask = Clients.collect, Labels.ask

    def collecting(self: Any, question: Any, part: int) -> Any:
        seen.append(Question(question, self._plan.mechanisms[0].slot, part))
        return collect(self, question, part)

    def asking(self: Any, query: Any, slot: str, part: int = 0) -> Any:
        seen.append(Question(query, slot, part))
        return ask(self, query, slot, part)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Clients, "collect", collecting)
        patch.setattr(Labels, "ask", asking)
        yield seen


class Repeater(Labels):
    """A curator of responses that answers again and again, each time with new noise."""

    def ask(self, query: Any, slot: str, part: int = 0) -> Any:
        self._answered.clear()
        return super().ask(query, slot, part)


def opened(
    case: MessageCase,
    plan: Plan,
    data: Any,
    noise: Noise | None = None,
    holder: Callable[..., Any] | None = None,
) -> Any:
    """A holder on `data`, as the front door opens it."""
    design = case.design(data)
    made = (Clients if case.local else Labels) if holder is None else holder
    return made(design.source(data), design, plan, noise or SeededNoise(1))


@contextmanager
def holders() -> Iterator[list[Any]]:
    """Weak references to every holder that a fit opens."""
    import functools
    import weakref

    seen: list[Any] = []

    def noting(made: type) -> Any:
        @functools.wraps(made, updated=())
        class Noted(made):  # type: ignore[misc, valid-type]
            def __init__(self, *args: Any, **kwargs: Any) -> None:
                super().__init__(*args, **kwargs)
                seen.append(weakref.ref(self))

        return Noted

    with pytest.MonkeyPatch.context() as patch:
        for name in ("Clients", "Labels"):
            patch.setattr(door, name, noting(getattr(door, name)))
        yield seen
