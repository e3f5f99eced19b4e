"""Private rows of a sparse matrix: mapped entry by entry, never made dense."""

from __future__ import annotations

from collections.abc import Mapping
from copy import copy
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from dpstats.design.layout import Layout, RawBlock
from dpstats.design.rows import TableSource
from dpstats.errors import DataError

__all__ = ["SparseSource"]

Float = NDArray[np.float64]
Mask = NDArray[np.bool_]


class SparseSource(TableSource):
    """Rows of one sparse matrix, read block by block as CSR arrays of float64. Private.

    What is not stored is 0, which every bound of a sparse design contains and no centre moves. A
    stored NaN makes its row a missing one. A block has sorted indices and no duplicates.

    Parameters
    ----------
    layout : Layout
        What to compute; its design columns have centre 0.
    columns : mapping of str to array
        Coercible columns that the response and the known term read.
    matrix : scipy.sparse CSR array of shape (n, k)
        Design matrix; not changed.
    """

    is_sparse: ClassVar[bool] = True

    def __init__(self, layout: Layout, columns: Mapping[str, Any], matrix: Any) -> None:
        super().__init__(layout.beside(), columns, matrix.shape[0])
        self._design = layout
        self._stored = matrix
        self._place = np.full(matrix.shape[1], -1, dtype=matrix.indices.dtype)
        self._place[list(layout.lookups)] = layout.positions

    def missing(self, start: int, stop: int) -> Mask:
        """Refused: a mask of a sparse matrix would be as large as the dense one.

        Raises
        ------
        DataError
            Always.
        """
        raise DataError("Which values are missing is known of dense rows alone: pass an array.")

    def observed(self, start: int, stop: int) -> Float:
        """Refused, as `missing` is."""
        raise DataError("Values by themselves are known of dense rows alone: pass an array.")

    def astray(self, start: int, stop: int) -> Mask:
        """Refused, as `missing` is."""
        raise DataError("Values by themselves are known of dense rows alone: pass an array.")

    def under(self, layout: Layout) -> SparseSource:
        """The same rows by another layout; see `Source.under`."""
        made = copy(self)
        made._take(layout.beside())
        made._design = layout
        return made

    def _read(self, start: int, stop: int, internal: bool) -> RawBlock:
        start, stop = max(start, 0), min(stop, len(self))
        beside = super()._read(start, stop, internal)
        with np.errstate(all="ignore"):  # a warning about a value would be a release
            x, complete = self._entries(start, max(start, stop), internal)
        return replace(beside, x=x, keep=beside.keep & complete)

    def _entries(self, start: int, stop: int, internal: bool) -> tuple[Any, Mask]:
        """Design columns of some rows, and the rows without a stored NaN."""
        from scipy.sparse import csr_array

        stored = self._stored[start:stop]
        if not stored.has_canonical_format:
            stored = stored.copy()
            stored.sum_duplicates()  # before clipping: each half of a value may be within bounds
        place = self._place[stored.indices]
        used = place >= 0
        ends = np.concatenate([[0], np.cumsum(used)])[stored.indptr]
        values, place = stored.data[used].astype(np.float64), place[used]
        lost = np.isnan(values)
        complete = np.ones(stop - start, dtype=np.bool_)
        complete[np.searchsorted(ends, np.flatnonzero(lost), side="right") - 1] = False
        values[lost] = 0.0
        np.clip(values, *self._design.bounds[place].T, out=values)
        if internal:
            values /= self._design.scale[place]
        x = csr_array((values, place, ends), shape=(stop - start, self._design.width))
        return x if self._design.intercept is None else x + self._ones(stop - start), complete

    def _ones(self, rows: int) -> Any:
        """The intercept of `rows` rows."""
        from scipy.sparse import csr_array

        column = np.full(rows, self._design.intercept)
        return csr_array(
            (np.ones(rows), column, np.arange(rows + 1)), shape=(rows, self._design.width)
        )
