"""Where private responses lie: in which cells, and outside of what is declared."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from dpstats.channels import Subset
from dpstats.errors import PlanError
from dpstats.queries.base import Kind, Norm
from dpstats.queries.binned import cell_counts
from dpstats.queries.labels import Interval, LabelContribution
from dpstats.queries.scalar import increasing
from dpstats.queries.whole_sums import whole_sum
from dpstats.tall import Tall, blocks

__all__ = ["LabelAstray", "LabelCells", "LongResiduals", "RandomizedMarks"]

Array = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class LabelCells(LabelContribution):
    """Counts of responses in the cells (e_0, e_1], ... between public edges; the answer is (k,).

    The first cell takes what lies below it, and the last what lies above.

    Guarantee: a response is in one cell. Replacing it moves two counts by one: L1 change 2, L2
    change sqrt(2).
    """

    interval: Interval
    edges: Array
    norm: Norm = "l2"
    name: ClassVar[str] = "cells of responses"
    kind: ClassVar[Kind] = "sum"

    def __post_init__(self) -> None:
        increasing(self.edges, "edges of the cells")
        if self.edges.size < 2:
            raise PlanError("LabelCells: at least two edges are needed.")

    def parameters(self) -> Mapping[str, Any]:
        """Interval, number of cells, and their range."""
        ends = {"lowest": float(self.edges[0]), "highest": float(self.edges[-1])}
        return {**self.interval.parameters(), "cells": int(self.edges.size - 1), **ends}

    def total(self, v: Tall) -> Array:
        """The counts."""
        inner = self.edges[1:-1] - self.interval.middle
        here = (v[part] for part in blocks(len(v)))
        return whole_sum(cell_counts(each, inner, np.ones(each.size)) for each in here)

    @property
    def _change(self) -> float:
        return _two_counts(self.norm)


@dataclass(frozen=True, eq=False)
class LongResiduals(LabelContribution):
    """Counts of ``|y - fitted| length`` in the cells [e_0, e_1), ..., [e_k, inf); (k + 1,).

    Fitted values and lengths (n,), which are not negative, are public.

    Guarantee: a response is in one cell, or in none. Replacing it moves two counts by one (L1
    change 2, L2 change sqrt(2)), where there is only one that count.
    """

    interval: Interval
    fitted: Tall
    lengths: Tall
    edges: Array
    norm: Norm = "l2"
    name: ClassVar[str] = "residuals by length"
    kind: ClassVar[Kind] = "sum"

    def __post_init__(self) -> None:
        if self.edges.size < 1 or not np.isfinite(self.edges).all():
            raise PlanError("LongResiduals: at least one finite edge is needed.")
        if self.edges.size > 1:
            increasing(self.edges, "edges of the cells")

    def parameters(self) -> Mapping[str, Any]:
        """Interval, number of cells, and the least length of the first and the last."""
        ends = {"lowest": float(self.edges[0]), "highest": float(self.edges[-1])}
        return {**self.interval.parameters(), "cells": int(self.edges.size), **ends}

    def total(self, v: Tall) -> Array:
        """The counts."""

        def counts(part: slice) -> Array:
            residual = np.abs(v[part] + self.interval.middle - self.fitted[part])
            cell = np.searchsorted(self.edges, residual * self.lengths[part], side="right")
            return np.bincount(cell, minlength=self.edges.size + 1)[1:].astype(np.float64)

        return whole_sum(counts(part) for part in blocks(len(v)))

    @property
    def _change(self) -> float:
        return 1.0 if self.edges.size == 1 else _two_counts(self.norm)


@dataclass(frozen=True)
class LabelAstray(LabelContribution):
    """How many responses lay outside of what is declared, and how many were missing; (2,).

    Guarantee: a response is one or the other, or neither. Replacing it moves two counts by one: L1
    change 2, L2 change sqrt(2).
    """

    interval: Interval
    norm: Norm = "l2"
    name: ClassVar[str] = "responses outside of what is declared"
    kind: ClassVar[Kind] = "sum"

    def parameters(self) -> Mapping[str, Any]:
        """The interval, which is that of the declaration."""
        return self.interval.parameters()

    def total(self, v: Tall) -> Array:
        """Counts, of responses (n,) that the holder marks: 1 outside, 2 missing, 0 neither."""
        here = (v[part] for part in blocks(len(v)))
        return whole_sum(
            np.array([np.count_nonzero(m == 1), np.count_nonzero(m == 2)]) for m in here
        )

    @property
    def _change(self) -> float:
        return _two_counts(self.norm)


@dataclass(frozen=True)
class RandomizedMarks(LabelContribution):
    """Shares of responses by where they lie, as their devices tell; (k + 3,) for k edges.

    In the cells of the range between the edges, (-inf, e_1], ..., (e_k, inf); outside of what is
    declared; missing. `counters` devices, drawn by lot, answer this and nothing else.

    Guarantee: that of the channel, for each of their responses; one is in one of the cells.
    Replacing it moves what is randomised by 2 in the norm of shares.
    """

    interval: Interval
    channel: Subset
    counters: int
    edges: tuple[float, ...] = ()
    name: ClassVar[str] = "randomised marks of responses"
    kind: ClassVar[Kind] = "sum"
    norm: ClassVar[Norm] = "l1"

    def __post_init__(self) -> None:
        if len(self.edges) > 1:
            increasing(np.array(self.edges), "edges of the cells")
        if self.channel.dim != self.cells + 2:
            raise PlanError(
                f"A channel of {self.channel.dim} cells was asked about {self.cells} between the "
                "edges and two more."
            )

    @property
    def cells(self) -> int:
        """Cells of the range."""
        return len(self.edges) + 1

    def parameters(self) -> Mapping[str, Any]:
        """The interval, which is that of the declaration, its cells, and the channel."""
        told = {"cells": self.cells, "channel": self.channel.name}
        return {**self.interval.parameters(), **told}

    @property
    def _change(self) -> float:
        return 2.0


def _two_counts(norm: Norm) -> float:
    """Length of the change of two counts by one each."""
    return 2.0 if norm == "l1" else math.sqrt(2.0)
