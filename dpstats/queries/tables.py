"""Counts of a table of one or more classifications, and moments of columns in windows."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from dpstats.errors import PlanError
from dpstats.privacy import Neighbors
from dpstats.queries.base import EachRow, InOneCell, Norm
from dpstats.queries.blocks import Array, Block, Ints, truncate
from dpstats.queries.scalar import increasing

__all__ = ["Axis", "ColumnMoments", "TableCounts"]

_MOST_CELLS = 2**20  # numerical: what the rounding of an answer is proved for
_GRID = 2.0**-22  # numerical: steps in which powers of z are added
_ROUNDED = 1 + 2.0**-19  # numerical: two truncated contributions differ by up to one more step each


@dataclass(frozen=True, eq=False)
class Axis:
    """A classification of rows: a number of each row, and the cells that it is sorted into.

    Parameters
    ----------
    places : ndarray of int of shape (k,)
        Public positions in the design; its width means the response.
    codes : ndarray of shape (k,)
        The number of a row is the sum of its values there, times these: 1 for a numeric column; of
        the dummies of a factor, the numbers of their levels.
    edges : ndarray of shape (c + 1,)
        Of the cells (e_0, e_1], ...; the first takes what lies below it, the last what lies above.
    """

    places: Ints
    codes: Array
    edges: Array

    def __post_init__(self) -> None:
        increasing(self.edges, "edges of the cells")
        sound = self.places.shape == self.codes.shape and self.places.size and self.edges.size >= 2
        if not (sound and self.places.min() >= 0 and np.isfinite(self.codes).all()):
            raise PlanError("An axis has places, a code of each of them, and at least two edges.")

    @classmethod
    def of_levels(cls, places: Any, levels: int) -> Axis:
        """The dummies of a factor, of all its levels or of all but the first."""
        codes = np.arange(levels - len(places), levels, dtype=np.float64)
        return cls(np.asarray(places, dtype=np.int64), codes, np.arange(-0.5, levels))

    @property
    def cells(self) -> int:
        """Number of cells."""
        return int(self.edges.size - 1)

    def found(self, values: Array) -> tuple[NDArray[np.intp], NDArray[np.bool_]]:
        """Cell of each row of values (m, d + 1), and whether it has one."""
        number = values[:, self.places] @ self.codes
        there = ~np.isnan(number)
        return np.searchsorted(self.edges[1:-1], number, side="left"), there


@dataclass(frozen=True, eq=False)
class TableCounts(InOneCell, EachRow):
    """Counts of rows in the cells of one classification, or of several that are crossed.

    With `missing` one more cell, the last, takes rows that miss a value of some axis; without, they
    are in none.

    Guarantee: a row adds a vector of zeros and at most one 1: replacing it moves the answer by at
    most sqrt(2) (in L1: 2), adding or removing it by 1, a unit of up to m rows by m times that.

    Parameters
    ----------
    axes : tuple of Axis
        In the order of the table's dimensions; the last one varies fastest.
    missing : bool
        Not where rows may belong to nobody, which are missing.
    norm : {"l2", "l1"}
        In which the sensitivity is stated: L1 for Laplace noise.
    """

    axes: tuple[Axis, ...]
    missing: bool = True
    norm: Norm = "l2"
    name: ClassVar[str] = "counts of a table"

    def __post_init__(self) -> None:
        if not self.axes or self.cells > _MOST_CELLS:
            raise PlanError(f"A table has an axis, and at most {_MOST_CELLS:,} cells.")
        if self.norm not in ("l1", "l2"):
            raise PlanError(f"norm={self.norm!r}: 'l1' or 'l2' is needed.")

    @property
    def shape(self) -> tuple[int, ...]:
        """Cells of each axis."""
        return tuple(axis.cells for axis in self.axes)

    @property
    def cells(self) -> int:
        """Cells of the table, without that of missing values."""
        return math.prod(self.shape)

    def parameters(self) -> Mapping[str, Any]:
        """Places and numbers of cells of each axis."""
        return {"places": [a.places.tolist() for a in self.axes], "cells": list(self.shape)}

    def total(self, block: Block) -> Ints:
        """Rows in each cell, in the order of the table, and then those that miss a value."""
        assert block.observed is not None
        values = block.observed()
        found = [axis.found(values) for axis in self.axes]
        there = np.logical_and.reduce([whole for _, whole in found])
        cell = np.ravel_multi_index(tuple(index for index, _ in found), self.shape)
        counts = np.bincount(cell[there], minlength=self.cells)
        return np.append(counts, (~there).sum()) if self.missing else counts


@dataclass(frozen=True, eq=False)
class ColumnMoments(EachRow):
    """Sums of z, z^2 and z^4 of k columns, z being a value held to a window of its own.

    A window (lower, upper) is mapped to (-1, 1). A row adds (z, 1.4 z^2, 0.8 z^4) for each column,
    and zeros where its value is missing.

    Guarantee: for each column L2 sensitivity 2 per row, that of the sum of z alone, so that squares
    and fourth powers are free. Proof: for two values z, z' let s = |z + z'| and d = |z - z'|, so
    that s + d <= 2. The difference has the square norm d^2 (1 + s^2 (1.96 + 0.16 (s^2 + d^2)^2)),
    since z^2 and z'^2 differ by s d, and z^4 and z'^4 by s d (s^2 + d^2) / 2. It increases in d; at
    d = 2 - s it is at most 4 if 4 - s - s (2 - s)^2 (1.96 + 0.64 (2 - 2 s + s^2)^2), a polynomial
    of degree 7, is not negative on [0, 2]: it is 4 at 0 and has no root there (its minimum is 0.07,
    near 0.64). A value and a missing one differ by at most sqrt(1 + 1.96 + 0.64) < 2, which also
    bounds an added or removed one. Squares add up to 4 k over columns; a unit counts m times.

    Parameters
    ----------
    places : ndarray of int of shape (k,)
        Public positions of the columns in the design, each once; its width means the response.
    lower, upper : ndarray of shape (k,)
        Public ends of the windows.
    """

    places: Ints
    lower: Array
    upper: Array
    name: ClassVar[str] = "moments of columns in windows"
    norm: ClassVar[Norm] = "l2"

    def __post_init__(self) -> None:
        places = self.places.tolist()
        sound = self.places.shape == self.lower.shape == self.upper.shape and places
        if not (sound and len(set(places)) == len(places) and min(places) >= 0):
            raise PlanError("Each column has a place of its own, and a window.")
        if not (np.all(self.lower < self.upper) and np.isfinite([self.lower, self.upper]).all()):
            raise PlanError("The ends of a window are numbers, the lower one below the upper.")
        if not np.all(self.half > 0):  # of two numbers next to 0: it is divided by
            raise PlanError("Half the width of a window is a number above 0.")

    @property
    def centre(self) -> Array:
        """Middle of each window, shape (k,)."""
        return self.lower / 2 + self.upper / 2

    @property
    def half(self) -> Array:
        """Half the width of each window, shape (k,)."""
        return self.upper / 2 - self.lower / 2

    def parameters(self) -> Mapping[str, Any]:
        """The columns and their windows."""
        return {name: getattr(self, name).tolist() for name in ("places", "lower", "upper")}

    def total(self, block: Block) -> Ints:
        """Steps of z, z^2 and z^4 of each column."""
        assert block.observed is not None
        values = block.observed()[:, self.places]
        values = np.where(np.isnan(values), self.centre, np.clip(values, self.lower, self.upper))
        z = truncate(np.clip((values - self.centre) / self.half, -1.0, 1.0), _GRID) * _GRID
        steps = [truncate(z**power, _GRID).sum(axis=0) for power in (1, 2, 4)]
        return np.stack(steps).astype(np.int64).ravel()

    def finish(self, total: Ints, grid: Array) -> Array:
        """``(sum z, 1.4 sum z^2, 0.8 sum z^4)``, each of all columns."""
        weighted: Array = total.reshape(3, -1) * _GRID * _WEIGHTS
        return weighted.ravel()

    def sensitivity(self, neighbors: Neighbors, max_rows: int) -> float:
        """L2: 2 sqrt(k) per row, under both relations."""
        return max_rows * 2.0 * math.sqrt(self.places.size) * _ROUNDED

    def decode(self, answer: Array) -> Array:
        """Noisy sums of z, z^2 and z^4, of shape (3, k)."""
        sums: Array = answer.reshape(3, -1) / _WEIGHTS
        return sums


_WEIGHTS = np.array([[1.0], [1.4], [0.8]])
