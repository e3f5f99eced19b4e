"""What a fit will cost, and what was released: frozen records, all public."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dpstats.accounting.events import Event, Parallel, Selection, event_to_dict
from dpstats.errors import PlanError
from dpstats.privacy import Federated, Neighbors, Privacy
from dpstats.text import WIDTH, grid, plain, reword, with_digits, wrap

if TYPE_CHECKING:
    from dpstats.queries import Query
    from dpstats.queries.labels import LabelQuery

__all__ = ["Answer", "Mechanism", "NoiseLaw", "Options", "Plan", "Release"]

Array = NDArray[np.float64]
# Options of a method by name, each of its own type: `Estimator.options` says which there are.
Options = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Mechanism:
    """One planned use of noise: asked once, under a name, at a cost fixed before any row is read.

    Attributes
    ----------
    slot : str
        Name under which the estimator asks, such as ``"gram"``.
    event : Event
        The cost; its noise multiplier is relative to the sensitivity that the query computes.
    purpose : str
        One line for the privacy block.
    parts : int, default 1
        With ``parts > 1`` the slot may be asked once for each of that many disjoint sets of rows;
        by parallel composition all of them together cost one event.
    branch : {0, 1, 2}, default 0
        0 asks all rows, 1 and 2 ask the first and the second half of them, or disjoint parts of
        this half. One row is in one half, so the branches together cost what the costlier of them
        costs (`Parallel`).
    """

    slot: str
    event: Event
    purpose: str
    parts: int = 1
    branch: int = 0

    def __post_init__(self) -> None:
        if self.branch not in (0, 1, 2) or self.parts < 1:  # an unknown branch would be free
            raise PlanError(
                f"Mechanism {self.slot!r} with branch={self.branch!r}, parts={self.parts!r}: a "
                "branch is 0 (all rows), 1 or 2 (a half); parts are at least 1."
            )

    def cut(self, part: int) -> tuple[int, int]:
        """Which of how many disjoint parts of all rows a part of this mechanism is.

        Rows are dealt by rank (`Lots.dealt`): the first P of 2 P parts are the ranks below
        floor(n P / (2 P)) = floor(n / 2), so that parts of a half are of that half, whatever P is.
        """
        if self.branch:
            return (self.branch - 1) * self.parts + part, 2 * self.parts
        return part, self.parts


@dataclass(frozen=True, slots=True)
class Release:
    """A mechanism that ran: what was asked, its sensitivity and its noise. All public."""

    slot: str
    query: str
    parameters: Mapping[str, Any]
    sensitivity: float
    scale: float
    event: Event
    part: int = 0
    law: str = ""  # the noise in words, where the event alone does not say it


class NoiseLaw(NamedTuple):
    """The law of the noise on an answer; public before the answer is.

    Attributes
    ----------
    shape : str
        Kind of the event that pays for it: ``"gaussian"``, ``"laplace"``, ``"peeling"`` (Laplace
        noise), ``"selection"`` (Gumbel noise), or ``"pure"`` (a local randomiser).
    scale : float
        Of one coordinate: the standard deviation of Gaussian noise, the scale of the others. Of a
        symmetric matrix, on the diagonal; off it noise is smaller by sqrt(2).
    """

    shape: str
    scale: float

    @property
    def sd(self) -> float:
        """Standard deviation of one coordinate."""
        return self.scale * _DEVIATIONS[self.shape]

    def upper(self, chance: float) -> float:
        """What one coordinate of Gaussian or Laplace noise is above with this chance, below 1/2."""
        if self.shape == "gaussian":
            from scipy.special import ndtri

            return float(-self.scale * ndtri(chance))
        return -self.scale * math.log(2 * chance)


_DEVIATIONS = {
    "gaussian": 1.0,
    "laplace": math.sqrt(2.0),
    "peeling": math.sqrt(2.0),
    "selection": math.pi / math.sqrt(6.0),
}


class Answer(NamedTuple):
    """A noisy answer, in the query's own shape and units, and the law of its noise.

    A choice is answered by the positions that were chosen, a search by the value it found.
    """

    value: Array
    noise: NoiseLaw


def _same(one: Any, other: Any) -> bool:
    if isinstance(one, tuple) and isinstance(other, tuple):
        return len(one) == len(other) and all(map(_same, one, other))
    unknown = all(isinstance(value, float) and math.isnan(value) for value in (one, other))
    return unknown or bool(one == other)


@dataclass(frozen=True)
class Plan:
    """What a fit will cost and how well it should do. Made without reading a row.

    Attributes
    ----------
    model, method : str
        Registry row that answers.
    privacy : Privacy
        The guarantee asked for.
    n : int
        Public number of rows, or the public guess where the number is private.
    names : tuple of str
        Design columns.
    parameters : tuple of str
        Parameters of the model; the design columns, of which they are coefficients, unless given.
    mechanisms : tuple of Mechanism
        Every use of noise, in order; nothing else may be asked of the holder.
    cost : tuple of float
        (epsilon, delta) of all mechanisms together, by the accountant.
    options : mapping
        Public options of the method after defaults.
    predicted_se : tuple of float
        Expected standard error of each parameter, from public facts only; nan where public facts
        do not determine one. In the user's units, or those of `predicted_units`.
    privacy_share : float
        Expected share of the error variance that is due to privacy noise, in [0, 1]; of the lower
        end where a range is expected.
    assumptions : tuple of str
        What the prediction rests on, one sentence each.
    warnings : tuple of str
        Feasibility warnings, each with the n or epsilon that suffice.
    max_rows : int, default 1
        Rows that one unit of privacy may contribute.
    unit : str, default "record"
        What is protected: a record, the unit that the schema names, or with public covariates a
        response.
    predicted_range : tuple of (float, float)
        What these errors are between, where public facts tell no more; empty where not given.
    predicted_units : tuple of str
        Standard deviations that no one declared, in units of which an error is expected, such as
        ``"sd(y)/sd(x)"``; ``""`` for the user's own units. Empty where all are.
    predicted_error : float
        Expected error of fitted values over their own standard deviation, root mean square, as far
        as public facts tell: 1 is that of an answer of nothing. Methods are chosen by it; inf
        where a method does not say.
    subset : str, default ""
        Expression of the rows that are meant, all without one. `n` is then a public guess of them,
        but where rows are public, or their messages.
    """

    model: str
    method: str
    privacy: Privacy
    n: int
    names: tuple[str, ...]
    mechanisms: tuple[Mechanism, ...]
    cost: tuple[float, float]
    options: Options = field(default_factory=dict)
    predicted_se: tuple[float, ...] = ()
    privacy_share: float = float("nan")
    assumptions: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    max_rows: int = 1
    unit: str = "record"
    parameters: tuple[str, ...] = ()
    predicted_range: tuple[tuple[float, float], ...] = ()
    predicted_units: tuple[str, ...] = ()
    predicted_error: float = math.inf
    subset: str = ""

    def __post_init__(self) -> None:
        object.__setattr__(self, "parameters", self.parameters or self.names)

    def __eq__(self, other: object) -> bool:
        """The same numbers; what neither knows, a nan, is the same, too."""
        if type(other) is not type(self):
            return NotImplemented
        return all(_same(getattr(self, f.name), getattr(other, f.name)) for f in fields(self))

    def __str__(self) -> str:
        """What it will cost and how well it should do, as a page to read before spending."""
        p, (epsilon, delta) = self.privacy, self.cost
        lines = [
            f"Plan: {self.model} by {self.method}, {p.trust}, n = {self.n:,}; no row was read",
            *wrap([f"Subset: {self.subset}{self._guessed}."] * bool(self.subset)),
            f"Asked: epsilon = {p.epsilon:g}, delta = {p.delta:g}. All mechanisms together cost "
            f"({epsilon:.4g}, {delta:.4g}).",
        ]
        lines += wrap([f"WARNING: {reword(text)}" for text in self.warnings])
        if self.predicted_se:
            what = "coefficient" if self.parameters == self.names else "parameter"
            rows = list(zip(self.parameters, self._expected(), strict=True))
            lines += ["", *_listed(what, rows[:_LISTED])]
            if (left := len(rows) - _LISTED) > 0:
                lines += [reword(f"and {left:,} more, in plan.parameters and plan.predicted_se.")]
        if not math.isnan(self.privacy_share):
            where = "At the lower end of" if self.predicted_range else "Of"
            whose = "their variance" if self.predicted_se else "the variance of estimates"
            more = "; long tails make it more" if self.predicted_range else ""
            noise = f"{self.privacy_share:.1%} is privacy noise"
            lines += wrap([f"{where} {whose} {noise}{more}."])
        lines += wrap([f"Assumed: {reword(text)}" for text in self.assumptions])
        used = [(m.slot, _law(m.event), _share(m, self), m.purpose) for m in self.mechanisms]
        lines += ["", *grid(("mechanism", "noise", "share", "purpose"), used)]
        return "\n".join(map(plain, lines)).rstrip()

    @property
    def _guessed(self) -> str:
        """That the number of rows of a subset is a guess, where nobody may count them."""
        counted = self.privacy.trust in ("local", "label-only")  # messages, and public rows
        return "" if counted else "; n is a public guess of its rows"

    def _expected(self) -> list[str]:
        """Expected standard errors as they are shown."""
        if not self.predicted_range:
            return ["unknown" if math.isnan(se) else f"{se:.4g}" for se in self.predicted_se]
        units = self.predicted_units or ("",) * len(self.predicted_range)
        return [
            f"{_range(low, high)} {unit}".rstrip()
            for (low, high), unit in zip(self.predicted_range, units, strict=True)
        ]

    @property
    def events(self) -> tuple[Event, ...]:
        """What is charged: one event per mechanism, those on disjoint halves as one `Parallel`.

        The mechanisms of a federation are whole fits, each charged at its own site to the rows that
        are there and nowhere else.
        """
        if isinstance(self.privacy, Federated):
            return (Parallel(tuple((m.event,) for m in self.mechanisms)),)
        branches = tuple(
            tuple(m.event for m in self.mechanisms if m.branch == b) for b in range(1, 3)
        )
        everywhere = tuple(m.event for m in self.mechanisms if m.branch == 0)
        halves = tuple(b for b in branches if b)
        return (*everywhere, Parallel(halves)) if halves else everywhere

    def mechanism(self, slot: str) -> Mechanism:
        """The mechanism planned under `slot`.

        Raises
        ------
        PlanError
            If the plan has none.
        """
        for m in self.mechanisms:
            if m.slot == slot:
                return m
        planned = ", ".join(m.slot for m in self.mechanisms)
        raise PlanError(f"No mechanism {slot!r} was planned; the plan has: {planned}.")

    def asks(self, slot: str) -> bool:
        """Whether a mechanism is planned under `slot`."""
        return any(m.slot == slot for m in self.mechanisms)

    @property
    def neighbors(self) -> Neighbors:
        """Which two data sets must look alike."""
        return self.privacy.neighbors

    def noise(self, query: Query | LabelQuery, slot: str) -> NoiseLaw:
        """The law of the noise on the answer to `query` under `slot`."""
        event = self.mechanism(slot).event
        unit = 2.0 / event.epsilon if isinstance(event, Selection) else self.noise_multiplier(slot)
        unit *= math.sqrt(getattr(query, "comparisons", 1))  # of a search: together they cost it
        return NoiseLaw(event.kind, unit * query.sensitivity(self.neighbors, self.max_rows))

    def noise_multiplier(self, slot: str) -> float:
        """Noise scale of `slot` per unit of sensitivity."""
        event = self.mechanism(slot).event
        multiplier = getattr(event, "noise_multiplier", None)
        if multiplier is None:
            raise PlanError(f"{slot!r} is a selection: it has no noise multiplier.")
        return float(multiplier)


_LISTED = 60  # parameters whose expected standard errors a plan prints
_LAWS = {
    "gaussian": "Gaussian, sd {noise_multiplier:.4g} x sens.",
    "laplace": "Laplace, scale {noise_multiplier:.4g} x sens.",
    "selection": "selection, eps {epsilon:.4g}, k {k}",
    "pure": "local randomiser, eps {epsilon:.4g}",
    "peeling": "peeling, scale {noise_multiplier:.4g} x sens., k {k}",
    "parallel": "a whole fit",
}


def _range(low: float, high: float) -> str:
    """Two numbers of two digits, or one where they are alike."""
    ends = [with_digits(low, 2), with_digits(high, 2)]
    return " to ".join(dict.fromkeys(ends))


def _listed(what: str, rows: Sequence[tuple[str, str]]) -> list[str]:
    """Expected standard errors as a table, or where units are too long for one, as lines."""
    if all(len(plain(cell)) <= WIDTH for _, cell in rows):
        return grid((what, "expected std err"), rows, numbers=(1,))
    return [f"{what}: expected std err", *wrap([f"{a}: {b}" for a, b in rows], indent="    ")]


def _law(event: Event) -> str:
    return _LAWS[event.kind].format(**event_to_dict(event))


def _share(mechanism: Mechanism, plan: Plan) -> str:
    total = sum(event.rho for event in plan.events)
    return f"{mechanism.event.rho / total:.1%}" if total > 0 else ""
