"""What a holder of private responses beside public covariates may be asked.

The rows of the design are public, so that a question may name any public row of numbers for each
response: nothing but the responses is hidden. Responses are in the design's internal units, and
held to a public interval.

Sums are exact before their noise: responses become at most 2^19 whole steps from the middle, public
rows at most 2^19 steps, so that every product and every sum of a block is a whole number that is
represented exactly; blocks are added as integers. Sensitivities are those of the whole numbers that
are added. Rows may be made when they are read (`dpstats.tall`): a sum holds them to the length of
which the sensitivity was computed.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, Protocol

import numpy as np
from numpy.typing import NDArray

from dpstats.channels import Channel
from dpstats.errors import PlanError
from dpstats.privacy import Neighbors
from dpstats.queries.base import Kind, Norm
from dpstats.queries.whole_sums import SAFETY, RowScan, need_finite, shortened, whole_sum
from dpstats.tall import LazyRows, Tall, blocks, read_blocks

__all__ = [
    "Interval",
    "LabelContribution",
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

LABEL_STEPS = 2.0**19  # a response is at most so many steps from the middle
_ROW_BITS = 19  # an entry of a public row is at most 2^19 steps
_SQUARE_STEPS = 2.0**30  # a squared residual is at most so many steps
_WEIGHT_STEPS = 2.0**12  # likewise where it multiplies an outer product
_OUTER_BITS = 13  # of rows in an outer product: 12 + 26 + 14 bits < 53
_ROOT2 = math.sqrt(2.0)


@dataclass(frozen=True, slots=True)
class Interval:
    """Where responses are held, in internal units: others are moved to the nearer end.

    A missing response is taken to be in the middle.
    """

    low: float
    high: float

    def __post_init__(self) -> None:
        if not (math.isfinite(self.high - self.low) and self.low < self.high and self.half > 0):
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

    def total(self, v: Tall) -> Array:
        """Exact answer to responses (n,), held to the interval, less its middle."""
        ...

    def decode(self, answer: Array) -> Array:
        """The answer in the shape that an estimator reads."""
        ...


class LabelContribution(ABC):
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
class RandomizedLabels(LabelContribution):
    """Every response, randomised once on its own device; the answer is (m,), unbiased.

    `counters` devices, drawn by lot, do not send theirs: they answer `RandomizedMarks`.

    Guarantee: that of the channel, for each response; different responses meet independent noise.
    """

    interval: Interval
    channel: Channel
    counters: int = 0
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
class LabelSums(LabelContribution):
    """``rows' y`` for public rows (n, k) and centred responses; the answer is (k,).

    Guarantee: replacing one response by another moves the answer by at most the width of the
    interval times the largest norm of a row.
    """

    interval: Interval
    rows: Tall
    norm: Norm = "l2"
    name: ClassVar[str] = "sums of responses"
    kind: ClassVar[Kind] = "sum"

    def __post_init__(self) -> None:
        need_finite(rows=self._scanned.largest)

    @cached_property
    def _scanned(self) -> RowScan:
        return RowScan.of(self.rows)

    def parameters(self) -> Mapping[str, Any]:
        """Interval and the largest norm of a row."""
        return {**self.interval.parameters(), "row norm": self._scanned.longest}

    @cached_property
    def _step(self) -> float:
        """Of the rows."""
        return self._scanned.step(_ROW_BITS)

    @property
    def _unit(self) -> float:
        """Of the sums."""
        return self._step * self.interval.half / LABEL_STEPS

    def total(self, v: Tall) -> Array:
        """The sums."""
        summed: Array = whole_sum(self._products(v)) * np.float64(self._unit)
        return summed

    def _products(self, v: Tall) -> Iterator[Array]:
        for part, rows in read_blocks(self.rows):
            steps = np.rint(rows / self._step)
            steps = shortened(steps, self._lengths(steps), self._longest)
            yield steps.T @ np.rint(v[part] / self.interval.half * LABEL_STEPS)

    def _lengths(self, steps: Array) -> Array:
        order = 1 if self.norm == "l1" else 2
        return np.asarray(np.linalg.norm(steps, order, axis=1), dtype=np.float64)

    @cached_property
    def _longest(self) -> float:
        """Length of the longest row in whole steps."""
        every = (self._lengths(np.rint(rows / self._step)) for _, rows in read_blocks(self.rows))
        return max(float(lengths.max(initial=0.0)) for lengths in every)

    @property
    def _change(self) -> float:
        return 2 * LABEL_STEPS * self._longest * SAFETY * self._unit


@dataclass(frozen=True, eq=False)
class SquaredResiduals(LabelContribution):
    """Sum of ``min(|y - fitted|, clip)^2`` for public fitted values (n,); the answer is (1,).

    Guarantee: every term is in [0, clip^2], so that one response moves the sum by at most clip^2.
    """

    interval: Interval
    fitted: Tall
    clip: float
    name: ClassVar[str] = "squared residuals"
    kind: ClassVar[Kind] = "sum"
    norm: ClassVar[Norm] = "l1"

    def __post_init__(self) -> None:
        need_finite(clip=self.clip)
        _bounded_each(fitted=self.fitted)

    def parameters(self) -> Mapping[str, Any]:
        """Interval and clip."""
        return {**self.interval.parameters(), "clip": self.clip}

    def total(self, v: Tall) -> Array:
        """The sum."""
        parts = blocks(len(self.fitted))
        steps = (np.floor(_clipped_share(self, v, part) * _SQUARE_STEPS) for part in parts)
        total = whole_sum(here.sum(keepdims=True) for here in steps)
        squares: Array = total * (self.clip**2 / _SQUARE_STEPS)
        return squares

    @property
    def _change(self) -> float:
        return self.clip**2 * SAFETY


@dataclass(frozen=True, eq=False)
class WeightedResiduals(LabelContribution):
    """Sum of ``min(|y - fitted|, clip)^2 row row'`` for public rows (n, k); the answer is (k, k).

    The clip is one for all rows, or one for each, (n,).

    Guarantee: the row of a response and its clip are public and stay, so that one response moves
    the sum by a matrix between 0 and ``clip^2 row row'``.
    """

    interval: Interval
    rows: Tall
    fitted: Tall
    clip: float | Tall
    norm: Norm = "l2"
    name: str = "outer products of scores"
    kind: ClassVar[Kind] = "sum"

    def __post_init__(self) -> None:
        _bounded_each(fitted=self.fitted, clip=self.clip)
        need_finite(rows=self._scanned.largest)
        need_finite(rows=self._clipped.largest)

    @cached_property
    def _scanned(self) -> RowScan:
        return RowScan.of(self.rows)

    @cached_property
    def _clipped(self) -> RowScan:
        """Of rows times their clips."""
        return RowScan.of(LazyRows(self.rows.shape, self._of_clips))

    def _of_clips(self, part: slice) -> Array:
        clips = _at(self.clip, part)
        made: Array = self.rows[part] * (clips[:, None] if isinstance(clips, np.ndarray) else clips)
        return made

    def parameters(self) -> Mapping[str, Any]:
        """Interval, largest clip and the largest norm of a row."""
        clip = max(float(np.max(_at(self.clip, part))) for part in blocks(len(self.rows)))
        return {**self.interval.parameters(), "clip": clip, "row norm": self._scanned.longest}

    @cached_property
    def _step(self) -> float:
        """Of rows times their clips."""
        return self._clipped.step(_OUTER_BITS)

    def _stepped(self) -> Iterator[tuple[slice, Array]]:
        return (
            (part, np.rint(rows / self._step))
            for part, rows in read_blocks(LazyRows(self.rows.shape, self._of_clips))
        )

    @property
    def _unit(self) -> float:
        """Of the sums."""
        return self._step**2 / _WEIGHT_STEPS

    def total(self, v: Tall) -> Array:
        """The isometric upper triangle: off-diagonal entries times sqrt(2)."""
        total = whole_sum(self._products(v))
        rows, columns = np.triu_indices(len(total))
        isometric = np.where(rows == columns, 1.0, _ROOT2)
        outer: Array = total[rows, columns] * (isometric * self._unit)
        return outer

    def _products(self, v: Tall) -> Iterator[Array]:
        for part, steps in self._stepped():
            steps = shortened(steps, self._lengths(steps), self._longest)
            share = np.floor(_clipped_share(self, v, part) * _WEIGHT_STEPS)
            yield steps.T @ (share[:, None] * steps)

    def _lengths(self, steps: Array) -> Array:
        """Roots of the norms of outer products, in whole steps."""
        square = np.einsum("ij,ij->i", steps, steps)
        if self.norm == "l1":  # of the isometric upper triangle
            square = square + (np.abs(steps).sum(axis=1) ** 2 - square) * _ROOT2 / 2
        return np.asarray(np.sqrt(square), dtype=np.float64)

    @cached_property
    def _longest(self) -> float:
        every = (self._lengths(steps) for _, steps in self._stepped())
        return max(float(lengths.max(initial=0.0)) for lengths in every)

    @property
    def _change(self) -> float:
        return _WEIGHT_STEPS * self._longest**2 * SAFETY * self._unit

    def decode(self, answer: Array) -> Array:
        """The matrix, of shape (k, k)."""
        rows, columns = np.triu_indices(self.rows.shape[1])
        matrix = np.zeros((self.rows.shape[1],) * 2)
        matrix[rows, columns] = answer / np.where(rows == columns, 1.0, _ROOT2)
        return matrix + np.triu(matrix, 1).T


def _at(values: float | Tall, part: slice) -> Any:
    """The one number of all rows, or those of some."""
    return values[part] if isinstance(values, np.ndarray | LazyRows) else values


def _bounded_each(**parameters: float | Tall) -> None:
    """`need_finite`, of one number or of one for each row."""
    for name, values in parameters.items():
        n = len(values) if isinstance(values, np.ndarray | LazyRows) else 0
        for part in blocks(n):
            need_finite(**{name: _at(values, part)})


def _clipped_share(query: SquaredResiduals | WeightedResiduals, v: Tall, part: slice) -> Array:
    """Squared residuals, clipped, over the squares of their clips."""
    rest = np.abs(v[part] + query.interval.middle - query.fitted[part])
    share: Array = np.minimum(rest / _at(query.clip, part), 1.0) ** 2
    return share
