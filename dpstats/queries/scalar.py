"""Queries of one number per row: counts, clipped sums, histograms and quantiles on public grids."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from dpstats.errors import PlanError
from dpstats.privacy import Neighbors
from dpstats.queries.base import AtMostOne, EachRow, InOneCell, Kind, Norm
from dpstats.queries.binned import cell_counts
from dpstats.queries.blocks import (
    Array,
    Block,
    Ints,
    bound_grid,
    exact_sum,
    residual,
    truncate,
)

__all__ = [
    "Count",
    "PairScales",
    "ResponseHistogram",
    "ResponseInterval",
    "ResponseMoments",
    "UnitMoments",
]

_BITS = 22
_FARTHEST = 2.0**31  # rows: a penalty beyond that would round the counts beside it


@dataclass(frozen=True)
class Count(AtMostOne, EachRow):
    """Number of rows that contribute (no value of theirs was missing)."""

    name: ClassVar[str] = "count"
    norm: ClassVar[Norm] = "l1"

    def parameters(self) -> Mapping[str, Any]:
        """None."""
        return {}

    def total(self, block: Block) -> Ints:
        """The count."""
        return exact_sum(np.array([block.keep.sum()]))


@dataclass(frozen=True)
class _ClippedResponse(EachRow):
    """A public interval to which the response is clipped, and its middle."""

    lower: float
    upper: float

    def __post_init__(self) -> None:
        if not self.lower < self.upper:
            raise PlanError(f"[{self.lower}, {self.upper}]: lower must be below upper.")

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

    def _steps(self, block: Block) -> Array:
        """``clip(y, lower, upper) - centre`` of each row, in whole steps; zero where missing."""
        centred = np.clip(block.y, self.lower, self.upper) - self.centre
        return truncate(
            block.keep * np.clip(centred, -self.half, self.half), bound_grid(self.half, _BITS)
        )


# Squares are truncated to their grid: two of them differ by at most one step, 2^-23 of the
# sensitivity, more than they would without.
_SQUARES = 1 + 2.0**-22


@dataclass(frozen=True)
class ResponseMoments(_ClippedResponse):
    """Sum and sum of squares of ``c = clip(y, lower, upper) - centre``, and the number of rows.

    With h = (upper - lower) / 2 a row contributes (c, c^2 / (2h), h/2), a missing one zeros.

    Guarantee: L1 sensitivity 2h, no more than that of the sum alone, so the squares and the count
    are free. Proof: let t = |c + c'| / h for two complete rows. From |c|, |c'| <= h follows
    |c - c'| <= (2 - t) h, and |c - c'| (1 + |c + c'| / (2h)) <= h (2 - t) (1 + t/2) <= 2h.
    A complete and a missing row differ by |c| + c^2/(2h) + h/2 <= 2h, which also bounds an added or
    removed one. Rows of one unit are paired, with nothing where one side has fewer.
    """

    name: ClassVar[str] = "clipped sum, squares and count"
    norm: ClassVar[Norm] = "l1"

    def total(self, block: Block) -> Ints:
        """Steps of c and of c^2, and the count."""
        steps = self._steps(block)
        unit = bound_grid(self.half, _BITS)
        squares = truncate((steps * unit) ** 2, bound_grid(self.half**2, _BITS))
        return exact_sum(np.array([steps.sum(), squares.sum(), block.keep.sum()]))

    def finish(self, total: Ints, grid: Array) -> Array:
        """``(sum, squares / (2h), count h / 2)``."""
        units = [bound_grid(self.half, _BITS), bound_grid(self.half**2, _BITS), 1.0]
        weighted: Array = total * np.array(units) / self._weights
        return weighted

    def sensitivity(self, neighbors: Neighbors, max_rows: int) -> float:
        """L1: 2h per row, under both relations."""
        return max_rows * 2 * self.half * _SQUARES

    def decode(self, answer: Array) -> Array:
        """``(sum of c, sum of c^2, count)``."""
        return answer * self._weights

    @property
    def _weights(self) -> Array:
        return np.array([1.0, 2 * self.half, 2 / self.half])


@dataclass(frozen=True)
class UnitMoments(_ClippedResponse):
    """Moments of units with several rows, for a mean with cluster-robust standard errors.

    With c = clip(y, lower, upper) - centre, h = (upper - lower) / 2, and at most m = `rows` rows in
    a unit, a unit of N complete rows with T = sum c contributes (T, T^2/(2mh), N h/2, N^2 h/(8m)).

    Guarantee: L1 sensitivity (9/4) m h. Proof: |T| <= N h, and the first three coordinates change
    by at most |T - T'| (1 + |T + T'| / (2mh)) + |N - N'| h/2. This is monotone in T on either side
    of T', likewise in T', so it is largest at the corners |T| = N h, |T'| = N' h with opposite
    signs, and with N <= N' equals h ((N + N') (1 + (N' - N)/(2m)) + (N' - N)/2). That increases in
    N' <= m, to h (2m + N/2 - N^2/(2m)) <= (17/8) m h. The last coordinate changes by at most
    m h/8. An absent unit has N = 0, so adding or removing one is a case of the same bound.
    """

    rows: int = 1
    name: ClassVar[str] = "clipped sum, squares and counts by unit"
    norm: ClassVar[Norm] = "l1"

    def total(self, block: Block) -> Ints:
        """Steps of T and of T^2; N and N^2; summed over units."""
        starts = np.arange(block.y.size) if block.starts is None else block.starts
        steps = np.add.reduceat(self._steps(block), starts)
        size = np.add.reduceat(block.keep, starts)
        unit = bound_grid(self.half, _BITS)
        squares = truncate((steps * unit) ** 2, bound_grid((self.rows * self.half) ** 2, _BITS))
        return exact_sum(np.array([steps.sum(), squares.sum(), size.sum(), (size**2).sum()]))

    def finish(self, total: Ints, grid: Array) -> Array:
        """``(sum T, sum T^2 / (2mh), sum N h / 2, sum N^2 h / (8m))``."""
        squares = bound_grid((self.rows * self.half) ** 2, _BITS)
        units = [bound_grid(self.half, _BITS), squares, 1.0, 1.0]
        weighted: Array = total * np.array(units) / self._weights
        return weighted

    def sensitivity(self, neighbors: Neighbors, max_rows: int) -> float:
        """L1: (9/4) m h, under both relations."""
        if max_rows > self.rows:
            raise PlanError(f"A unit may have {max_rows} rows, more than the {self.rows} planned.")
        return 2.25 * self.rows * self.half * _SQUARES

    def decode(self, answer: Array) -> Array:
        """``(sum T, sum T^2, sum N, sum N^2)``."""
        return answer * self._weights

    @property
    def _weights(self) -> Array:
        h, m = self.half, self.rows
        return np.array([1.0, 2 * m * h, 2 / h, 8 * m / h])


@dataclass(frozen=True, eq=False)
class ResponseInterval(AtMostOne, EachRow):
    """Utilities for choosing an interval that holds most of the response and is not wide.

    Candidate i covers the cells ``first[i]`` to ``last[i] - 1`` between public, increasing `edges`.
    Its utility is minus the number of rows outside it, minus its public `penalty`, in rows.

    Guarantee: replacing, adding, removing or blanking a row changes the number of rows outside any
    candidate by at most one.
    """

    edges: Array
    first: Ints
    last: Ints
    penalty: Array
    name: ClassVar[str] = "response interval"
    kind: ClassVar[Kind] = "choice"
    norm: ClassVar[Norm] = "linf"

    def __post_init__(self) -> None:
        increasing(self.edges, "edges of the cells")
        inside = self.first.min(initial=0) >= 0 and self.last.max(initial=0) < self.edges.size
        if not (inside and np.all(self.first < self.last) and np.isfinite(self.penalty).all()):
            raise PlanError("Candidates lie between two edges, and have finite penalties.")
        if not self.first.shape == self.last.shape == self.penalty.shape:
            raise PlanError("Each candidate has a first and a last edge, and a penalty.")

    def parameters(self) -> Mapping[str, Any]:
        """Number of candidates, the range they cover, and the narrowest width."""
        return {
            "candidates": int(self.first.size),
            "lowest": float(self.edges[0]),
            "highest": float(self.edges[-1]),
            "narrowest": float(np.min(self.edges[self.last] - self.edges[self.first])),
        }

    def total(self, block: Block) -> Ints:
        """Rows per cell; values beyond the ends are in the first and the last."""
        return cell_counts(block.y, self.edges[1:-1], block.keep, block.fast)

    def finish(self, total: Ints, grid: Array) -> Array:
        """Utilities of the candidates."""
        below = np.concatenate([[0], np.cumsum(total)])
        outside = below[-1] - (below[self.last] - below[self.first])
        utilities: Array = -outside - np.clip(self.penalty, -_FARTHEST, _FARTHEST)
        return utilities

    def decode(self, answer: Array) -> Array:
        """``(lower, upper)`` of the chosen candidate, from its index."""
        i = int(answer[0])
        return np.array([self.edges[self.first[i]], self.edges[self.last[i]]])


def increasing(values: Array, what: str) -> None:
    """Refuse what does not increase strictly: a row would be in two cells.

    Raises
    ------
    PlanError
        If it does not, or has no number.
    """
    if not (values.size and np.all(np.diff(values) > 0) and not np.isnan(values).any()):
        raise PlanError(f"The {what} must be numbers that increase.")


@dataclass(frozen=True, eq=False)
class ResponseHistogram(InOneCell, EachRow):
    """Counts of the response in the cells between public `edges`; edges.size + 1 cells.

    Guarantee: a row is in one cell. Replacing it moves two counts by one: L1 sensitivity 2, L2
    sensitivity sqrt(2).
    """

    edges: Array
    norm: Norm = "l1"
    name: ClassVar[str] = "response histogram"

    def __post_init__(self) -> None:
        increasing(self.edges, "edges of the cells")

    def parameters(self) -> Mapping[str, Any]:
        """Number of cells and their range."""
        return {
            "cells": int(self.edges.size + 1),
            "first edge": float(self.edges[0]),
            "last edge": float(self.edges[-1]),
        }

    def total(self, block: Block) -> Ints:
        """The counts."""
        return cell_counts(block.y, self.edges, block.keep, block.fast)


@dataclass(frozen=True, eq=False)
class PairScales(EachRow):
    """Histogram over pairs of rows of ``ceil(log2 |r_(2i) - r_(2i-1)|)``.

    The private variance of Karwa & Vadhan (2018, Algorithm 2; Li et al. 2024, Algorithm 6) on
    public cells 2^low .. 2^high. The absolute value, missing from the printed algorithm, keeps the
    half of the pairs with a negative difference.

    Guarantee: a row belongs to one pair and a pair to one cell, so replacing a row moves two counts
    by one: L1 sensitivity 2. A holder puts rows in order of their lots, so that pairs do not follow
    from where rows stand. This query needs replace-one neighbours and one row per unit.
    """

    beta: Array
    low: int
    high: int
    by_lots: ClassVar[bool] = True
    name: ClassVar[str] = "pair scale histogram"
    norm: ClassVar[Norm] = "l1"

    def parameters(self) -> Mapping[str, Any]:
        """The coefficients and the range of scales."""
        return {"beta": [float(b) for b in self.beta], "low": self.low, "high": self.high}

    def total(self, block: Block) -> Ints:
        """Pairs per cell."""
        r = residual(block, self.beta)
        m = r.size // 2 * 2
        edges = np.ldexp(1.0, np.arange(self.low, self.high))
        both = block.keep[0:m:2] * block.keep[1:m:2]
        return cell_counts(np.abs(r[1:m:2] - r[0:m:2]), edges, both)

    def sensitivity(self, neighbors: Neighbors, max_rows: int) -> float:
        """L1 sensitivity 2."""
        if neighbors is not Neighbors.REPLACE_ONE or max_rows != 1:
            raise PlanError(
                "Pairs of rows need replace-one neighbours and one row per unit; "
                "choose another method."
            )
        return 2.0
