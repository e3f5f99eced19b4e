"""A query asked of some of the design's columns."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from dpstats.errors import PlanError
from dpstats.queries.base import OfOtherRows, Query
from dpstats.queries.blocks import Block, Geometry, Ints

__all__ = ["Selected"]


@dataclass(frozen=True, eq=False)
class Selected(OfOtherRows):
    """A query of a model with only the chosen columns of the design.

    Its coefficients, whitening matrix and answer have one entry for each chosen column, in the
    order of `columns`, and it reads blocks that have only these; row weights are those of them.

    Guarantee: that of `query`, which holds for rows of any columns; `columns` is public.

    Parameters
    ----------
    query : Query
        Asked of the chosen columns.
    columns : tuple of int
        Distinct positions of design columns.
    """

    query: Query
    columns: tuple[int, ...]

    def __post_init__(self) -> None:
        if not self.columns or len(set(self.columns)) < len(self.columns) or min(self.columns) < 0:
            raise PlanError(
                f"columns={self.columns!r}: one or more distinct positions >= 0 are needed."
            )

    @property
    def geometry(self) -> Geometry | None:
        """Geometry of the query, on the chosen columns."""
        return self.query.geometry

    @property
    def by_lots(self) -> bool:
        """As the query reads rows."""
        return self.query.by_lots

    def parameters(self) -> Mapping[str, Any]:
        """Those of the query, and the columns."""
        return {**self.query.parameters(), "columns": [int(j) for j in self.columns]}

    def total(self, block: Block) -> Ints:
        """The query's total over rows of the chosen columns."""
        return self.query.total(block)
