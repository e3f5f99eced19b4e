"""What a holder of private responses beside public covariates may be asked.

The rows of the design are public, so that a question may name any public row of numbers for each
response: nothing but the responses is hidden. Responses are in the design's internal units, and
held to a public interval.

Sums are exact before their noise: responses become at most 2^19 whole steps from the middle, public
rows at most 2^19 steps, so that every product and every sum is a whole number that is represented
exactly. Sensitivities are those of the whole numbers that are added.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, Protocol

import numpy as np
from numpy.typing import NDArray

from dpstats.channels import Channel
from dpstats.errors import PlanError
from dpstats.privacy import Neighbors
from dpstats.queries.base import Kind, Norm

__all__ = [
    "Exchanged",
    "HeldSums",
    "Interval",
    "LabelQuery",
    "LabelSum",
    "LabelSums",
    "RandomizedLabels",
    "SquaredResiduals",
    "WeightedResiduals",
]

Array = NDArray[np.float64]
Ints = NDArray[np.int64]
Positions = NDArray[np.intp]

_BLOCK = 2**14  # rows of exact products that are added in float64: 38 + 14 bits < 53
LABEL_STEPS = 2.0**19  # a response is at most so many steps from the middle
_ROW_BITS = 19  # an entry of a public row is at most 2^19 steps
_SQUARE_STEPS = 2.0**30  # a squared residual is at most so many steps
_WEIGHT_STEPS = 2.0**12  # likewise where it multiplies an outer product
_OUTER_BITS = 13  # of rows in an outer product: 12 + 26 + 14 bits < 53
SAFETY = 1.0 + 2.0**-30  # norms of whole numbers are rounded once
_ROOT2 = math.sqrt(2.0)


@dataclass(frozen=True, slots=True)
class Interval:
    """Where responses are held, in internal units: others are moved to the nearer end.

    A missing response is taken to be in the middle.
    """

    low: float
    high: float

    def __post_init__(self) -> None:
        if not (math.isfinite(self.high - self.low) and self.low < self.high):
            raise PlanError(f"Interval({self.low!r}, {self.high!r}): low < high are needed.")

    @property
    def middle(self) -> float:
        """Centre."""
        return self.low / 2 + self.high / 2

    @property
    def half(self) -> float:
        """Half of the width."""
        return self.high / 2 - self.low / 2

    def parameters(self) -> dict[str, Any]:
        """Public description for the privacy report."""
        return {"interval": [self.low, self.high]}


class LabelQuery(Protocol):
    """A question to a holder of responses."""

    @property
    def name(self) -> str:
        """Name in the privacy report."""
        ...

    @property
    def interval(self) -> Interval:
        """Where responses are held."""
        ...

    @property
    def kind(self) -> Kind:
        """How noise is applied to the answer."""
        ...

    @property
    def norm(self) -> Norm:
        """Norm of the sensitivity: L1 where noise is Laplace."""
        ...

    def parameters(self) -> Mapping[str, Any]:
        """Public parameters, JSON-able."""
        ...

    def sensitivity(self, neighbors: Neighbors = Neighbors.REPLACE_ONE, max_rows: int = 1) -> float:
        """Largest change of the answer when one response is replaced by another."""
        ...


class LabelSum(LabelQuery, Protocol):
    """A question that a curator of responses answers with a noisy sum, or a choice by sums."""

    def total(self, v: Array) -> Array:
        """Exact answer to responses (n,), held to the interval, less its middle."""
        ...

    def decode(self, answer: Array) -> Array:
        """The answer in the shape that an estimator reads."""
        ...


def bounded(**parameters: float | Array) -> None:
    """Refuse clips that are no finite numbers above 0, and other numbers that are not finite.

    A bound on what one response moves holds for none of them.

    Raises
    ------
    PlanError
        If one is there.
    """
    for name, value in parameters.items():
        if not np.isfinite(value).all() or (name == "clip" and not np.all(np.greater(value, 0))):
            above = " above 0" if name == "clip" else ""
            raise PlanError(f"{name}: finite numbers{above} are needed.")


class Exchanged(ABC):
    """What questions to a holder of responses share: one response is replaced by another."""

    def sensitivity(self, neighbors: Neighbors = Neighbors.REPLACE_ONE, max_rows: int = 1) -> float:
        """Largest change of the answer when one response is replaced by another."""
        if neighbors is not Neighbors.REPLACE_ONE or max_rows != 1:
            raise PlanError("Label privacy is about replacing one response of one row.")
        return self._change

    @property
    @abstractmethod
    def _change(self) -> float:
        """What `sensitivity` is, in the query's norm."""

    def decode(self, answer: Array) -> Array:
        """Read as it is."""
        return answer


@dataclass(frozen=True)
class RandomizedLabels(Exchanged):
    """Every response, randomised once on its own device; the answer is (n,), unbiased.

    Guarantee: that of the channel, for each response; different responses meet independent noise.
    """

    interval: Interval
    channel: Channel
    name: ClassVar[str] = "randomised responses"
    kind: ClassVar[Kind] = "sum"
    norm: ClassVar[Norm] = "linf"

    def parameters(self) -> Mapping[str, Any]:
        """Interval and channel."""
        return {**self.interval.parameters(), "channel": self.channel.name}

    @property
    def _change(self) -> float:
        return 2 * self.interval.half


@dataclass(frozen=True, eq=False)
class LabelSums(Exchanged):
    """``rows' y`` for public rows (n, k) and centred responses; the answer is (k,).

    Guarantee: replacing one response by another moves the answer by at most the width of the
    interval times the largest norm of a row.
    """

    interval: Interval
    rows: Array
    norm: Norm = "l2"
    name: ClassVar[str] = "sums of responses"
    kind: ClassVar[Kind] = "sum"

    def parameters(self) -> Mapping[str, Any]:
        """Interval and the largest norm of a row."""
        return {**self.interval.parameters(), "row norm": _longest(self.rows)}

    def __post_init__(self) -> None:
        bounded(rows=self.rows)

    @cached_property
    def _steps(self) -> tuple[Array, float]:
        """Rows in whole steps, and the step."""
        return _whole_steps(self.rows, _ROW_BITS)

    @property
    def _unit(self) -> float:
        """Of the sums."""
        return self._steps[1] * self.interval.half / LABEL_STEPS

    def total(self, v: Array) -> Array:
        """The sums."""
        label = np.rint(v / self.interval.half * LABEL_STEPS)
        summed: Array = product(self._steps[0], label[:, None])[:, 0] * np.float64(self._unit)
        return summed

    @cached_property
    def _change(self) -> float:
        order = 1 if self.norm == "l1" else 2
        longest = float(np.linalg.norm(self._steps[0], order, axis=1).max(initial=0.0))
        return 2 * LABEL_STEPS * longest * SAFETY * self._unit


@dataclass(frozen=True, eq=False)
class HeldSums(Exchanged):
    """``sum row (held(y) - middle)``, each response held to a public interval of its own.

    The interval of a response is where public facts and earlier answers expect it; the answer is
    (k,), for public rows (n, k) and the ends and middles of those intervals.

    Guarantee: rows and intervals are public and stay, so that replacing one response by another
    moves the answer by at most the largest ``(high - low) ||row||``.
    """

    interval: Interval
    rows: Array
    low: Array
    high: Array
    norm: Norm = "l2"
    name: ClassVar[str] = "sums of held responses"
    kind: ClassVar[Kind] = "sum"

    def __post_init__(self) -> None:
        if not bool(np.all((self.low < self.high) & np.isfinite(self.high - self.low))):
            raise PlanError("HeldSums: low < high are needed, for every response.")
        bounded(rows=self.rows)

    @property
    def middle(self) -> Array:
        """Centres, (n,)."""
        return self.low / 2 + self.high / 2

    @property
    def half(self) -> Array:
        """Halves of the widths, (n,)."""
        return self.high / 2 - self.low / 2

    def parameters(self) -> Mapping[str, Any]:
        """Interval, and the largest norm of a row times the width of its interval."""
        longest = _longest(self.rows * (2 * self.half)[:, None])
        return {**self.interval.parameters(), "width times row norm": longest}

    @cached_property
    def _sums(self) -> LabelSums:
        """Sums of responses in units of the half-widths, which lie in [-1, 1]."""
        return LabelSums(Interval(-1.0, 1.0), self.rows * self.half[:, None], self.norm)

    def total(self, v: Array) -> Array:
        """The sums."""
        held = np.clip((v + self.interval.middle - self.middle) / self.half, -1.0, 1.0)
        return self._sums.total(held)

    @property
    def _change(self) -> float:
        return self._sums.sensitivity()


@dataclass(frozen=True, eq=False)
class SquaredResiduals(Exchanged):
    """Sum of ``min(|y - fitted|, clip)^2`` for public fitted values (n,); the answer is (1,).

    Guarantee: every term is in [0, clip^2], so that one response moves the sum by at most clip^2.
    """

    interval: Interval
    fitted: Array
    clip: float
    name: ClassVar[str] = "squared residuals"
    kind: ClassVar[Kind] = "sum"
    norm: ClassVar[Norm] = "l1"

    def __post_init__(self) -> None:
        bounded(fitted=self.fitted, clip=self.clip)

    def parameters(self) -> Mapping[str, Any]:
        """Interval and clip."""
        return {**self.interval.parameters(), "clip": self.clip}

    def total(self, v: Array) -> Array:
        """The sum."""
        share = _clipped_share(self, v)
        total = np.floor(share * _SQUARE_STEPS).astype(np.int64).sum(keepdims=True)
        squares: Array = total * (self.clip**2 / _SQUARE_STEPS)
        return squares

    @property
    def _change(self) -> float:
        return self.clip**2 * SAFETY


@dataclass(frozen=True, eq=False)
class WeightedResiduals(Exchanged):
    """Sum of ``min(|y - fitted|, clip)^2 row row'`` for public rows (n, k); the answer is (k, k).

    The clip is one for all rows, or one for each, (n,).

    Guarantee: the row of a response and its clip are public and stay, so that one response moves
    the sum by a matrix between 0 and ``clip^2 row row'``.
    """

    interval: Interval
    rows: Array
    fitted: Array
    clip: float | Array
    norm: Norm = "l2"
    name: str = "outer products of scores"
    kind: ClassVar[Kind] = "sum"

    def __post_init__(self) -> None:
        bounded(rows=self.rows, fitted=self.fitted, clip=self.clip)

    def parameters(self) -> Mapping[str, Any]:
        """Interval, largest clip and the largest norm of a row."""
        clip = float(np.max(self.clip))
        return {**self.interval.parameters(), "clip": clip, "row norm": _longest(self.rows)}

    @cached_property
    def _steps(self) -> tuple[Array, float]:
        """Rows times their clips in whole steps, and the step."""
        clips = np.broadcast_to(self.clip, len(self.rows))
        return _whole_steps(self.rows * clips[:, None], _OUTER_BITS)

    @property
    def _unit(self) -> float:
        """Of the sums."""
        return self._steps[1] ** 2 / _WEIGHT_STEPS

    def total(self, v: Array) -> Array:
        """The isometric upper triangle: off-diagonal entries times sqrt(2)."""
        steps = self._steps[0]
        total = product(steps, np.floor(_clipped_share(self, v) * _WEIGHT_STEPS)[:, None] * steps)
        rows, columns = np.triu_indices(len(total))
        isometric = np.where(rows == columns, 1.0, _ROOT2)
        outer: Array = total[rows, columns] * (isometric * self._unit)
        return outer

    @cached_property
    def _change(self) -> float:
        steps = self._steps[0]
        square = np.einsum("ij,ij->i", steps, steps)
        if self.norm == "l1":  # of the isometric upper triangle
            square = square + (np.abs(steps).sum(axis=1) ** 2 - square) * _ROOT2 / 2
        return _WEIGHT_STEPS * float(square.max(initial=0.0)) * SAFETY * self._unit

    def decode(self, answer: Array) -> Array:
        """The matrix, of shape (k, k)."""
        rows, columns = np.triu_indices(self.rows.shape[1])
        matrix = np.zeros((self.rows.shape[1],) * 2)
        matrix[rows, columns] = answer / np.where(rows == columns, 1.0, _ROOT2)
        return matrix + np.triu(matrix, 1).T


def _clipped_share(query: SquaredResiduals | WeightedResiduals, v: Array) -> Array:
    """Squared residuals, clipped, over the squares of their clips."""
    size = np.abs(v + query.interval.middle - query.fitted) / query.clip
    share: Array = np.minimum(size, 1.0) ** 2
    return share


def _whole_steps(rows: Array, bits: int) -> tuple[Array, float]:
    """Public rows in whole steps of a power of two, and the step."""
    largest = max(float(np.abs(rows).max(initial=0.0)), 1e-200)
    grid = math.ldexp(1.0, math.ceil(math.log2(largest)) - bits)
    return np.rint(rows / grid), grid


def product(a: Array, b: Array) -> Ints:
    """``a' b`` of whole numbers, exactly."""
    total = np.zeros((a.shape[1], b.shape[1]), dtype=np.int64)
    for start in range(0, len(a), _BLOCK):
        here = slice(start, start + _BLOCK)
        total += (a[here].T @ b[here]).astype(np.int64)
    return total


def _longest(rows: Array) -> float:
    return float(np.sqrt(np.einsum("ij,ij->i", rows, rows).max(initial=0.0)))
