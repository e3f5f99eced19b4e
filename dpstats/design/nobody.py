"""A row in place of none."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpstats.design.facts import Design
from dpstats.design.layout import Layout, RawBlock, Source

__all__ = ["Nobody"]


class Nobody:
    """One incomplete row, to be read in place of a table that has none.

    Guarantee: a store answers zero for every sum over it, which is the sum over no rows; what it
    reads of the row is the shape of answers. (An incomplete row is no nothing: where missing values
    are counted, it is one more.) A table of one row is then a neighbour of that of nobody, and no
    sum of theirs differs by more than its sensitivity: that no one is in a table is hidden where
    the number of rows is private, as a row more or less is elsewhere.

    Parameters
    ----------
    source : Source
        Rows of the empty table.
    design : Design
        Public design.
    """

    def __init__(self, source: Source, design: Design) -> None:
        self.is_sparse, self.has_offset = source.is_sparse, source.has_offset
        self.has_weights = source.has_weights
        self._design = design

    def __len__(self) -> int:
        return 1

    def block(self, start: int, stop: int) -> RawBlock:
        """The row, as `Source.block` gives rows."""
        m, d = stop - start, len(self._design.names)
        schema = self._design.schema
        x: Any = np.zeros((m, d))
        if self.is_sparse:
            from scipy.sparse import csr_array

            x = csr_array(x)
        y = None if self._design.endog is None else np.zeros(m)
        unit = None if schema is None or schema.unit is None else np.zeros(m, dtype=np.intp)
        offset, root = (np.zeros(m) if has else None for has in (self.has_offset, self.has_weights))
        return RawBlock(x, y, np.zeros(m, np.bool_), unit, offset, root)

    def missing(self, start: int, stop: int) -> NDArray[np.bool_]:
        """Every value of the row is missing."""
        return np.ones((stop - start, len(self._design.names) + 1), np.bool_)

    def observed(self, start: int, stop: int) -> NDArray[np.float64]:
        """No value is there."""
        return np.full((stop - start, len(self._design.names) + 1), np.nan)

    def astray(self, start: int, stop: int) -> NDArray[np.bool_]:
        """Nothing is astray."""
        return np.zeros((stop - start, 4, len(self._design.inputs)), np.bool_)

    def under(self, layout: Layout) -> Nobody:
        """The same row."""
        return self
