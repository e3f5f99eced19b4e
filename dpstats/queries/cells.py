"""Where the values of each column lie, all columns in one question."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from dpstats.errors import PlanError
from dpstats.privacy import Neighbors
from dpstats.queries.base import AsRead, Contribution, Norm
from dpstats.queries.binned import cell_counts
from dpstats.queries.blocks import Array, Block, Ints
from dpstats.queries.scalar import increasing

__all__ = ["AstrayCounts", "ColumnCells", "DeclaredCounts"]


@dataclass(frozen=True)
class AstrayCounts(AsRead):
    """How many values of the inputs lay outside of what is declared, and how many were missing.

    Inputs are counted in groups that follow each other: the average over each group's inputs.

    Guarantee: a value is outside or missing, not both. So a row contributes a vector that is not
    negative and sums to at most 1 in each of g groups, of norm sqrt(g) (L1: g). Two such vectors
    make no obtuse angle: replacing a row moves the answer by at most sqrt(2 g) (L1: 2 g).

    Parameters
    ----------
    sizes : tuple of int
        Columns of the table (or matrix) in each group; together those that the design reads.
    norm : {"l2", "l1"}
        In which the sensitivity is stated.
    """

    sizes: tuple[int, ...]
    norm: Norm = "l2"
    name: ClassVar[str] = "values outside of what is declared"

    def __post_init__(self) -> None:
        if not self.sizes or min(self.sizes) < 1:
            raise PlanError(f"sizes={self.sizes!r}: at least one group, and one input in each.")
        if self.norm not in ("l1", "l2"):
            raise PlanError(f"norm={self.norm!r}: 'l1' or 'l2' is needed.")

    def parameters(self) -> Mapping[str, Any]:
        """The number of inputs in each group."""
        return {"sizes": list(self.sizes)}

    def total(self, block: Block) -> Ints:
        """Counts of those outside, then of those missing, in each group."""
        assert block.astray is not None
        found = block.astray()[:, :2]
        if found.shape[2] != sum(self.sizes):
            raise PlanError(f"{sum(self.sizes)} inputs were asked for; rows have {found.shape[2]}.")
        starts = np.cumsum([0, *self.sizes[:-1]])
        counts: Ints = np.add.reduceat(found.sum(axis=0, dtype=np.int64), starts, axis=1).ravel()
        return counts

    def finish(self, total: Ints, grid: Array) -> Array:
        """The counts, averaged over each group."""
        averages: Array = total / np.tile(self.sizes, 2)
        return averages

    def sensitivity(self, neighbors: Neighbors, max_rows: int) -> float:
        """sqrt(2 g) per row under replace-one, sqrt(g) under add-remove (L1: 2 g, and g)."""
        groups = len(self.sizes)
        if self.norm == "l1":
            return Contribution.SIGNED.sensitivity(float(max_rows * groups), neighbors)
        return Contribution.ACUTE.sensitivity(max_rows * math.sqrt(groups), neighbors)

    def decode(self, answer: Array) -> Array:
        """Noisy counts of shape (2, g): outside, and missing."""
        return answer.reshape(2, -1)


@dataclass(frozen=True)
class DeclaredCounts(AsRead):
    """How many values of each of k inputs are as declared, missing, and outside of it.

    Outside is a number beyond its range, and a value of no declared level, whether or not another
    level takes it. Of units with several rows the number of units is counted, too.

    Guarantee: a value is in one of the three cells of its input, and a row begins at most one unit.
    So a row contributes a vector of zeros and at most g ones, of norm sqrt(g), where g is k, or
    k + 1 with units. Two such vectors make no obtuse angle: replacing a row moves the answer by at
    most sqrt(2 g), adding or removing it by sqrt(g), a unit of up to m rows by m times that.

    Parameters
    ----------
    inputs : int
        Columns of the table that the design reads.
    units : bool
        Whether units are counted.
    """

    inputs: int
    units: bool = False
    name: ClassVar[str] = "values by what is declared"
    norm: ClassVar[Norm] = "l2"

    def __post_init__(self) -> None:
        if self.inputs < 1:
            raise PlanError(f"inputs={self.inputs}: at least one is needed.")

    def parameters(self) -> Mapping[str, Any]:
        """The number of inputs, and whether units are counted."""
        return {"inputs": self.inputs, "units": self.units}

    def total(self, block: Block) -> Ints:
        """Counts (as declared, missing, outside) of each input; then units."""
        assert block.astray is not None
        moved, lost, unlisted, declared = block.astray().transpose(1, 0, 2)
        if declared.shape[1] != self.inputs:
            raise PlanError(f"{self.inputs} inputs were asked for; rows have {declared.shape[1]}.")
        cells = [declared, lost & ~unlisted, moved | unlisted]
        counts = np.stack([c.sum(axis=0, dtype=np.int64) for c in cells], axis=1).ravel()
        if not self.units:
            return counts
        of_somebody = np.logical_or.reduce([c[:, 0] for c in cells])
        first = of_somebody if block.starts is None else of_somebody[block.starts]
        return np.append(counts, first.sum(dtype=np.int64))

    def sensitivity(self, neighbors: Neighbors, max_rows: int) -> float:
        """sqrt(2 g) per row under replace-one, sqrt(g) under add-remove."""
        norm = max_rows * math.sqrt(self.inputs + self.units)
        return Contribution.ACUTE.sensitivity(norm, neighbors)


@dataclass(frozen=True, eq=False)
class ColumnCells(AsRead):
    """Histograms of k columns, each in cells of its own, in the user's units.

    A value is in one cell of its column: (e_0, e_1], ..., the first of which takes what lies below
    it, and the last what lies above; a missing one is in none.

    Guarantee: a row contributes a vector of zeros and at most k ones, of norm sqrt(k), and two such
    vectors make no obtuse angle: replacing a row moves the answer by at most sqrt(2 k).

    Parameters
    ----------
    edges : tuple of k ndarrays
        Public edges that increase, at least two of each column.
    places : ndarray of int of shape (k,)
        Public positions of the columns in the design, each once; its width means the response.
    """

    edges: tuple[Array, ...]
    places: Ints
    name: ClassVar[str] = "cells of columns"
    norm: ClassVar[Norm] = "l2"

    def __post_init__(self) -> None:
        for edges in self.edges:
            increasing(edges, "edges of the cells")
        places = self.places.tolist()
        sound = len(places) == len(self.edges) > 0 and len(set(places)) == len(places)
        if not (sound and min(places) >= 0 and all(e.size >= 2 for e in self.edges)):
            raise PlanError("Each column has a place of its own, and at least two edges.")

    def parameters(self) -> Mapping[str, Any]:
        """The columns, and for each the number of cells and their range."""
        return {
            "places": self.places.tolist(),
            "cells": [int(e.size - 1) for e in self.edges],
            "lowest": [float(e[0]) for e in self.edges],
            "highest": [float(e[-1]) for e in self.edges],
        }

    def total(self, block: Block) -> Ints:
        """Values in each cell, one column after the other."""
        assert block.observed is not None
        values = block.observed()
        seen = ~np.isnan(values)
        counts = [
            cell_counts(values[:, place], edges[1:-1], seen[:, place], block.fast)
            for place, edges in zip(self.places, self.edges, strict=True)
        ]
        return np.concatenate(counts)

    def sensitivity(self, neighbors: Neighbors, max_rows: int) -> float:
        """sqrt(2 k) per row under replace-one, sqrt(k) under add-remove."""
        norm = max_rows * math.sqrt(len(self.edges))
        return Contribution.ACUTE.sensitivity(norm, neighbors)

    def split(self, answer: Array) -> list[Array]:
        """Noisy counts of each column."""
        return np.split(answer, np.cumsum([e.size - 1 for e in self.edges])[:-1])
