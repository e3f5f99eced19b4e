"""What a curator needs of the rows of a table, wherever they lie; and how a store prepares them."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Protocol

import numpy as np
from numpy.typing import NDArray

from dpstats.queries.as_json import query_to_dict
from dpstats.queries.blocks import X_BITS, Y_BITS, bound_grid

if TYPE_CHECKING:
    from scipy.sparse import csr_array

    from dpstats.design import Design, RawBlock, Source
    from dpstats.mechanisms.lots import Lots
    from dpstats.queries import Query

__all__ = ["AnnouncedQueries", "Grid", "OpenStore", "RowStore"]

Array = NDArray[np.float64]
Total = NDArray[np.int64 | np.object_]  # whole steps; of very many rows in Python\'s integers

_NEAREST = 1.5 * 2.0**52
_FARTHEST = 2.0**60  # wider declared bounds are clipped here: float32 must not overflow to inf


class RowStore(Protocol):
    """Private rows of one table, for one fit.

    Sums of a query are exact (`Query.total`), so that any division of the rows into blocks has the
    same bits. A store passes blocks of at most 2^13 rows on the grid (`Grid.rows`) to the query,
    with its row weights (`Block.weighted`). A block but the last has an even length: no pair is
    split. Rows of one unit stand in one block, those with the smallest lots up to the largest
    number that a unit may contribute. A query may ask what incomplete rows were
    (`Block.incomplete`), and for values as they were read (`Block.observed`).
    """

    def answer(self, query: Query, cut: tuple[int, int] | None = None) -> Array:
        """Exact answer of `query` before noise: over all rows, or over those of a cut.

        A cut is (part, parts): one of so many disjoint parts, which lots deal out. Its rows come in
        order of their lots; (0, 1) is all rows in that order.
        """
        ...

    def foresee(self, queries: Sequence[Query]) -> None:
        """These are asked next, of all rows: a store may answer all from one pass."""


class AnnouncedQueries:
    """Queries that were announced together, and their totals from the first to the last."""

    def __init__(self) -> None:
        self._waiting: list[tuple[dict[str, object], Query]] = []
        self._totals: list[Total] = []

    def expect(self, queries: Sequence[Query]) -> None:
        """Wait for these, where one pass does for all."""
        alike = len({query.columns for query in queries}) == 1
        self._waiting = [(query_to_dict(query), query) for query in queries if alike]
        self._totals = []

    def total(self, query: Query, make: Callable[[Sequence[Query]], list[Total]]) -> Total:
        """The total of a query over all rows; `make` is asked for those of all that wait."""
        asked = [described for described, _ in self._waiting]
        this = query_to_dict(query) if asked else {}
        if this not in asked:
            return make([query])[0]
        self._totals = self._totals or make([waiting for _, waiting in self._waiting])
        at = asked.index(this)
        del self._waiting[at]
        return self._totals.pop(at)


class OpenStore(Protocol):
    """Makes a store of rows that a source hands out."""

    def __call__(self, source: Source, design: Design, max_rows: int, lots: Lots) -> RowStore:
        """Rows behind a public design, at least one; `max_rows` of a unit may contribute."""
        ...


@dataclass(frozen=True, eq=False)
class Grid:
    """Public grid of a design: rows are held to its bounds and rounded to its steps.

    Attributes
    ----------
    bound, step : ndarray of shape (d,)
        Of each column.
    y_bound, y_step : float
        Of the response.
    stretch : float
        Power of two that weighted rows are multiplied by, at least each root of a weight. The
        steps are as many as without weights: of what a root multiplied they would be coarse beside
        a row of usual weight.
    """

    bound: Array
    step: Array
    y_bound: Array
    y_step: Array
    stretch: float = 1.0

    @classmethod
    def of(cls, design: Design) -> Grid:
        """The grid that follows from a design's bounds."""
        ends = (0.0, 0.0) if design.endog is None else design.internal_endog_bounds
        stretch = 2.0 ** math.ceil(math.log2(min(design.largest_root, _FARTHEST)))
        reach = np.abs(design.internal_bounds).max(axis=1) * stretch
        bound = np.clip(reach, 2.0**-20, _FARTHEST)
        y_bound = np.clip(np.max(np.abs(ends)), 2.0**-20, _FARTHEST)
        step = np.array([bound_grid(b, X_BITS) for b in bound])
        y_step = np.array(bound_grid(float(y_bound), Y_BITS))
        return cls(bound, step, y_bound, y_step, stretch)

    def rows(self, raw: RawBlock) -> RawBlock:
        """Rows as queries meet them: held, rounded, and 0 where a value was missing.

        x and y are exact as float32; the offset and roots of weights are rounded to it.
        """
        rows = self.held(raw)
        if not raw.keep.all():
            for values in (rows.y, rows.x):
                if isinstance(values, np.ndarray):
                    values[~raw.keep] = 0.0
        return rows

    def held(self, raw: RawBlock) -> RawBlock:
        """The same, but what an incomplete dense row has stays: what it misses is in bounds."""
        y = np.zeros(len(raw.keep)) if raw.y is None else _rounded(raw.y, self.y_bound, self.y_step)
        root = None if raw.root is None else self._held_roots(raw.root)
        if isinstance(raw.x, np.ndarray):
            stretched = raw.x if root is None else raw.x * self.stretch
            x: Array | csr_array = _rounded(stretched, self.bound, self.step)
        else:
            x = self._sparse(raw.x, raw.keep)
        offset = None if raw.offset is None else np.clip(raw.offset, -_FARTHEST, _FARTHEST)
        return replace(raw, x=x, y=y, offset=offset, root=root)

    def _held_roots(self, root: Array) -> Array:
        """Roots of weights as float32, at most the stretch.

        One that is infinite there times a residual of 0 is no number, and no clip bounds what is
        none.
        """
        return np.minimum(root, self.stretch).astype(np.float32).astype(np.float64)

    def _sparse(self, x: csr_array, keep: NDArray[np.bool_]) -> csr_array:
        """Stored values of a CSR array on the grid; incomplete rows become empty."""
        from scipy.sparse import csr_array

        x.sum_duplicates()  # before clipping: two stored halves of a value may each pass it
        values = _rounded(x.data.astype(np.float64), self.bound[x.indices], self.step[x.indices])
        values[np.isnan(values) | np.repeat(~keep, np.diff(x.indptr))] = 0.0
        return csr_array((values.astype(np.float32), x.indices, x.indptr), shape=x.shape)


def _rounded(values: Array, bound: Array, step: Array) -> Array:
    """Values within their bound, rounded to the nearest multiple of the step."""
    steps = np.clip(values, -bound, bound)
    steps *= 1.0 / step
    steps += _NEAREST  # adding 1.5 * 2^52 leaves no bit for a fraction: round to nearest, fast
    steps -= _NEAREST
    steps *= step
    return steps
