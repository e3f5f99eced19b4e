"""Queries of one number per row: counts, clipped sums, histograms and quantiles on public grids."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from dpstats.errors import PlanError
from dpstats.privacy import Neighbors
from dpstats.queries.base import (
    Array,
    Block,
    Contribution,
    Geometry,
    Ints,
    bound_grid,
    exact_product,
    exact_sum,
    truncate,
)

__all__ = [
    "Count",
    "NormCount",
    "NormQuantile",
    "PairScales",
    "ResidualQuantile",
    "ResponseHistogram",
    "ResponseMoments",
    "ResponseQuantile",
]

_BITS = 22


@dataclass(frozen=True)
class Count:
    """Number of rows that contribute (no value of theirs was missing)."""

    name: ClassVar[str] = "count"
    geometry: ClassVar[Geometry | None] = None

    def parameters(self) -> Mapping[str, Any]:
        """None."""
        return {}

    def total(self, block: Block) -> Ints:
        """The count."""
        return exact_sum(np.array([block.keep.sum()]))

    def finish(self, total: Ints, grid: Array) -> Array:
        """The count."""
        return total.astype(np.float64)

    def sensitivity(self, neighbors: Neighbors, max_rows: int) -> float:
        """One per row: a replaced row may turn from complete to missing."""
        return Contribution.INTERVAL.sensitivity(float(max_rows), neighbors)

    def decode(self, answer: Array) -> Array:
        """A length-1 array."""
        return answer


@dataclass(frozen=True, eq=False)
class NormCount(Count):
    """Number of contributing rows with ``||whiten @ x|| <= radius``."""

    ball: Geometry
    name: ClassVar[str] = "norm count"

    def parameters(self) -> Mapping[str, Any]:
        """The ball."""
        return self.ball.parameters()

    def total(self, block: Block) -> Ints:
        """The count."""
        inside = block.keep * (self.ball.norms(block) <= self.ball.radius)
        return exact_sum(np.array([inside.sum()]))


@dataclass(frozen=True)
class ResponseMoments:
    """Sum of ``clip(y, lower, upper) - centre`` and the number of rows, as one vector.

    With h = (upper - lower) / 2 and centre in the middle, a row contributes ``(c, h / weight)``
    with |c| <= h: the count is carried at the public scale h / weight so that one Gaussian release
    serves both.

    Guarantee: two contributions (c, h/weight) of complete rows differ by at most 2h in the first
    coordinate only; a complete and a missing row differ by sqrt(h^2 + (h/weight)^2) <= 2h for
    weight >= 1/sqrt(3). Under add-remove the norm is at most h sqrt(1 + 1/weight^2).
    """

    lower: float
    upper: float
    weight: float = 4.0
    name: ClassVar[str] = "clipped sum and count"
    geometry: ClassVar[Geometry | None] = None

    def __post_init__(self) -> None:
        if not self.lower < self.upper:
            raise PlanError(f"[{self.lower}, {self.upper}]: lower must be below upper.")
        if self.weight < 1:
            raise PlanError(f"weight={self.weight}: at least 1 is needed.")

    @property
    def centre(self) -> float:
        """Middle of the interval."""
        return (self.lower + self.upper) / 2

    @property
    def half(self) -> float:
        """Half the width of the interval."""
        return (self.upper - self.lower) / 2

    def parameters(self) -> Mapping[str, Any]:
        """The interval."""
        return {"lower": self.lower, "upper": self.upper}

    def total(self, block: Block) -> Ints:
        """Steps of the clipped, centred response; and the count."""
        centred = np.clip(block.y, self.lower, self.upper) - self.centre
        steps = truncate(
            block.keep * np.clip(centred, -self.half, self.half), bound_grid(self.half, _BITS)
        )
        return exact_sum(np.array([steps.sum(), block.keep.sum()]))

    def finish(self, total: Ints, grid: Array) -> Array:
        """``(sum, count * half / weight)``."""
        return np.array(
            [total[0] * bound_grid(self.half, _BITS), total[1] * self.half / self.weight]
        )

    def sensitivity(self, neighbors: Neighbors, max_rows: int) -> float:
        """2 half under replace-one (rows of one unit, however many, move both coordinates)."""
        row = self.half * math.sqrt(1 + 1 / self.weight**2)
        if neighbors is Neighbors.ADD_REMOVE:
            return max_rows * row
        if max_rows == 1:
            return 2 * self.half
        # m against m' rows: sums differ by at most 2 m half, counts by at most m.
        return max_rows * self.half * math.sqrt(4 + 1 / self.weight**2)

    def decode(self, answer: Array) -> Array:
        """``(sum of clip(y) - centre, count)``."""
        return np.array([answer[0], answer[1] * self.weight / self.half])


def _counts(values: Array, edges: Array, keep: Array) -> Ints:
    """Rows in each cell (-inf, e_0], (e_0, e_1], ..., (e_last, inf)."""
    cells = np.searchsorted(edges, values, side="left")
    counts: Array = np.bincount(cells, weights=keep, minlength=edges.size + 1).astype(np.float64)
    return exact_sum(counts)


@dataclass(frozen=True, eq=False)
class ResponseHistogram:
    """Counts of the response in the cells between public `edges`; edges.size + 1 cells.

    Guarantee: a row is in one cell. Replacing it moves two counts by one: L1 sensitivity 2, L2
    sensitivity sqrt(2).
    """

    edges: Array
    norm: str = "l1"
    name: ClassVar[str] = "response histogram"
    geometry: ClassVar[Geometry | None] = None

    def parameters(self) -> Mapping[str, Any]:
        """Number of cells and their range."""
        return {
            "cells": int(self.edges.size + 1),
            "first edge": float(self.edges[0]),
            "last edge": float(self.edges[-1]),
        }

    def total(self, block: Block) -> Ints:
        """The counts."""
        return _counts(block.y, self.edges, block.keep)

    def finish(self, total: Ints, grid: Array) -> Array:
        """The counts."""
        return total.astype(np.float64)

    def sensitivity(self, neighbors: Neighbors, max_rows: int) -> float:
        """2 (L1) or sqrt(2) (L2) per row under replace-one, 1 under add-remove."""
        kind = Contribution.SIGNED if self.norm == "l1" else Contribution.ACUTE
        return kind.sensitivity(float(max_rows), neighbors)

    def decode(self, answer: Array) -> Array:
        """One noisy count per cell."""
        return answer


@dataclass(frozen=True, eq=False)
class PairScales:
    """Histogram over pairs of consecutive rows of ``ceil(log2 |r_(2i) - r_(2i-1)|)``.

    The private variance of Karwa & Vadhan (2018, Algorithm 2; Li et al. 2024, Algorithm 6) on
    public cells 2^low .. 2^high. The absolute value, missing from the printed algorithm, keeps the
    half of the pairs with a negative difference.

    Guarantee: a row belongs to one pair and a pair to one cell, so replacing a row moves two counts
    by one: L1 sensitivity 2. Pairs are formed by position: this query needs replace-one neighbours
    and one row per unit, and is the one query whose answer depends on the order of rows.
    """

    beta: Array
    low: int
    high: int
    name: ClassVar[str] = "pair scale histogram"
    geometry: ClassVar[Geometry | None] = None

    def parameters(self) -> Mapping[str, Any]:
        """The coefficients and the range of scales."""
        return {"beta": [float(b) for b in self.beta], "low": self.low, "high": self.high}

    def total(self, block: Block) -> Ints:
        """Pairs per cell."""
        r = block.y - exact_product(block, self.beta)
        m = r.size // 2 * 2
        edges = np.ldexp(1.0, np.arange(self.low, self.high))
        both = block.keep[0:m:2] * block.keep[1:m:2]
        return _counts(np.abs(r[1:m:2] - r[0:m:2]), edges, both)

    def finish(self, total: Ints, grid: Array) -> Array:
        """Counts of the cells with upper ends 2^low, ..., 2^high."""
        return total.astype(np.float64)

    def sensitivity(self, neighbors: Neighbors, max_rows: int) -> float:
        """L1 sensitivity 2."""
        if neighbors is not Neighbors.REPLACE_ONE or max_rows != 1:
            raise PlanError(
                "Pairs of rows need replace-one neighbours and one row per unit; "
                "choose another method."
            )
        return 2.0

    def decode(self, answer: Array) -> Array:
        """One noisy count per cell."""
        return answer


@dataclass(frozen=True, eq=False)
class _Quantile(ABC):
    """Utilities for choosing the q-quantile of one number per row from a public `candidates` grid.

    The utility of g is -|(1 - q) #{v <= g} - q #{v > g}|, largest where a share q of the rows is at
    or below g; it needs no row count.

    Guarantee: moving a row across g changes it by (1 - q) + q = 1; adding, removing or blanking a
    row changes it by max(q, 1 - q) <= 1.
    """

    candidates: Array
    q: float

    def __post_init__(self) -> None:
        if not 0 < self.q < 1:
            raise PlanError(f"q={self.q}: a share strictly between 0 and 1 is needed.")
        if np.any(np.diff(self.candidates) <= 0):
            raise PlanError("The grid of candidates must increase.")

    def parameters(self) -> Mapping[str, Any]:
        """The share asked for and the grid's ends."""
        return {
            "q": self.q,
            "candidates": int(self.candidates.size),
            "lowest": float(self.candidates[0]),
            "highest": float(self.candidates[-1]),
        }

    @abstractmethod
    def values(self, block: Block) -> Array:
        """The number of each row."""

    def total(self, block: Block) -> Ints:
        """Rows per cell of the grid."""
        return _counts(self.values(block), self.candidates, block.keep)

    def finish(self, total: Ints, grid: Array) -> Array:
        """Utilities of the candidates."""
        below = np.cumsum(total)[:-1].astype(np.float64)
        above = float(total.sum()) - below
        utilities: Array = -np.abs((1 - self.q) * below - self.q * above)
        return utilities

    def sensitivity(self, neighbors: Neighbors, max_rows: int) -> float:
        """L-infinity sensitivity of the utilities: one per row."""
        return Contribution.INTERVAL.sensitivity(float(max_rows), neighbors)

    def decode(self, answer: Array) -> Array:
        """The chosen candidate, from its index."""
        return self.candidates[answer.astype(np.intp)]


@dataclass(frozen=True, eq=False)
class ResponseQuantile(_Quantile):
    """Choice of a candidate near the q-quantile of the response."""

    name: ClassVar[str] = "response quantile"
    geometry: ClassVar[Geometry | None] = None

    def values(self, block: Block) -> Array:
        """The response."""
        return block.y


@dataclass(frozen=True, eq=False)
class NormQuantile(_Quantile):
    """Choice of a candidate near the q-quantile of ``||whiten @ x||``."""

    whiten: Array | None = None
    name: ClassVar[str] = "norm quantile"
    geometry: ClassVar[Geometry | None] = None

    def values(self, block: Block) -> Array:
        """Norms of the rows."""
        return Geometry(1.0, self.whiten).norms(block)


@dataclass(frozen=True, eq=False)
class ResidualQuantile(_Quantile):
    """Choice of a candidate near the q-quantile of ``|y - x @ beta|``."""

    beta: Array
    name: ClassVar[str] = "residual quantile"
    geometry: ClassVar[Geometry | None] = None

    def values(self, block: Block) -> Array:
        """Absolute residuals."""
        return np.abs(block.y - exact_product(block, self.beta))
