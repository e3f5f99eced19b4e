"""What a query is: a clipped, row-wise contribution, its exact sum, and its sensitivity."""

from __future__ import annotations

import math
from collections.abc import Mapping
from enum import Enum
from typing import Any, ClassVar, Literal, Protocol

import numpy as np

from dpstats.errors import PlanError
from dpstats.privacy import Neighbors
from dpstats.queries.blocks import Array, Block, Geometry, Ints

__all__ = [
    "AsRead",
    "AtMostOne",
    "Contribution",
    "EachRow",
    "InOneCell",
    "Kind",
    "Norm",
    "OfOtherRows",
    "Query",
    "WeighedRow",
    "need_bounds",
]

# How noise is applied: to every coordinate of a sum, to the utilities of a choice, to the
# comparisons of a search along an increasing balance, or to the largest of many sums, one by one.
Kind = Literal["sum", "choice", "search", "peel"]
# Norm of the change that a sensitivity bounds; a bound in one holds in those after it.
Norm = Literal["l1", "l2", "linf"]


def need_bounds(**bounds: float) -> None:
    """Refuse bounds that are no finite numbers above 0: what one row moves would be anything.

    Raises
    ------
    PlanError
        If one is there.
    """
    for name, value in bounds.items():
        if not (math.isfinite(value) and value > 0):
            raise PlanError(f"{name}={value!r}: a finite bound > 0 is needed.")


class Contribution(Enum):
    """How two contributions of norm <= G can differ; the value is the factor under replace-one.

    ``SIGNED``: any two vectors, ||a - b|| <= 2 G. ``ACUTE``: no two make an obtuse angle (outer
    products, one-hot vectors), ||a - b||^2 <= |a|^2 + |b|^2 <= 2 G^2. ``INTERVAL``: numbers in
    [0, G], |a - b| <= G. Adding or removing a contribution moves the sum by at most G in all cases.
    """

    SIGNED = 2.0
    ACUTE = math.sqrt(2.0)
    INTERVAL = 1.0

    def sensitivity(self, bound: float, neighbors: Neighbors) -> float:
        """Largest change of a sum when one contribution of norm at most `bound` changes."""
        return bound * (self.value if neighbors is Neighbors.REPLACE_ONE else 1.0)


class WeighedRow:
    """A query that reads all columns of each row by itself, with a weight from its geometry.

    Unless it says otherwise its total is of counts, which are released as a sum and read as they
    are.
    """

    kind: ClassVar[Kind] = "sum"
    columns: ClassVar[tuple[int, ...] | None] = None
    by_lots: ClassVar[bool] = False

    def finish(self, total: Ints, grid: Array) -> Array:
        """The counts."""
        return total.astype(np.float64)

    def decode(self, answer: Array) -> Array:
        """Read as it is."""
        return answer


class EachRow(WeighedRow):
    """A query in which rows have no weight: what most queries share."""

    geometry: ClassVar[Geometry | None] = None


class AtMostOne:
    """What queries share in which a row moves each number by at most one, a unit by its rows."""

    def sensitivity(self, neighbors: Neighbors, max_rows: int) -> float:
        """One per row: of a count, or the L-infinity sensitivity of utilities."""
        return Contribution.INTERVAL.sensitivity(float(max_rows), neighbors)


class InOneCell:
    """What counts share in which a row is in one cell: replacing it moves two counts by one."""

    def sensitivity(self: Query, neighbors: Neighbors, max_rows: int) -> float:
        """sqrt(2) per row under replace-one (L1: 2), 1 under add-remove."""
        differ = Contribution.SIGNED if self.norm == "l1" else Contribution.ACUTE
        return differ.sensitivity(float(max_rows), neighbors)


class AsRead(EachRow):
    """A query that asks blocks for values as they were read (`Block.observed`), and nothing else.

    A store need not prepare its rows for it.
    """


class Query(Protocol):
    """A question that may be asked of a holder.

    A holder adds ``total(block)`` over its blocks as integers, calls ``finish`` once, and adds the
    planned noise at ``sensitivity``; only the noisy answer leaves. ``finish`` is a deterministic
    function of the exact total, so it cannot depend on how rows were ordered or blocked.
    """

    @property
    def name(self) -> str:
        """Name in the privacy report."""
        ...

    @property
    def kind(self) -> Kind:
        """How noise is applied to the answer."""
        ...

    @property
    def norm(self) -> Norm:
        """Norm in which `sensitivity` bounds a change; the noise must be made for it."""
        ...

    @property
    def geometry(self) -> Geometry | None:
        """Geometry whose row weights `total` reads, if any."""
        ...

    @property
    def columns(self) -> tuple[int, ...] | None:
        """Design columns that blocks are to have, in this order; None for all."""
        ...

    @property
    def by_lots(self) -> bool:
        """Whether rows must come in order of their lots: what is next to what then counts."""
        ...

    def parameters(self) -> Mapping[str, Any]:
        """Public parameters, JSON-able."""
        ...

    def total(self, block: Block) -> Ints:
        """Exact integer total over one block."""
        ...

    def finish(self, total: Ints, grid: Array) -> Array:
        """The answer before noise, in its own units, from the exact total over all rows.

        `grid` holds the public grid step of each column of the blocks.
        """
        ...

    def sensitivity(self, neighbors: Neighbors, max_rows: int) -> float:
        """Bound on the change of ``finish`` between neighbours, in the query's `norm`.

        `max_rows` is the number of rows one unit of privacy may contribute.
        """
        ...

    def decode(self, answer: Array) -> Array:
        """The noisy answer in the shape an estimator reads (post-processing)."""
        ...


class OfOtherRows:
    """A query asked of what a deterministic function makes of each row, or of some columns.

    All but the rows that `total` reads is the query's own.
    """

    query: Query

    @property
    def name(self) -> str:
        """Name of the query."""
        return self.query.name

    @property
    def kind(self) -> Kind:
        """How noise is applied to the answer."""
        return self.query.kind

    @property
    def norm(self) -> Norm:
        """Norm of the query's sensitivity."""
        return self.query.norm

    @property
    def comparisons(self) -> int:
        """Noisy comparisons of a search; 1 for any other query."""
        return int(getattr(self.query, "comparisons", 1))

    def finish(self, total: Ints, grid: Array) -> Array:
        """The query's answer."""
        return self.query.finish(total, grid)

    def sensitivity(self, neighbors: Neighbors, max_rows: int) -> float:
        """That of the query: it bounds any two rows, so also those that this makes of two."""
        return self.query.sensitivity(neighbors, max_rows)

    def decode(self, answer: Array) -> Array:
        """As the query reads it."""
        return self.query.decode(answer)
