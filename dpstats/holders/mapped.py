"""Rows of one table on disk: prepared once, read again for every query."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from dpstats.errors import DataError
from dpstats.holders.rows import Key, Piece, ResidentRows, View
from dpstats.mechanisms.lots import BLOCK
from dpstats.queries.blocks import Block, Floats, Incomplete
from dpstats.tables.scratch import Wanted, arrays

if TYPE_CHECKING:
    from dpstats.design import Design, Source
    from dpstats.mechanisms.lots import Lots

__all__ = ["REMEMBERED", "MappedRows"]

Kind = TypeVar("Kind", bound=np.generic)

# See `Block.recall`.
REMEMBERED: dict[str, np.dtype[np.float32 | np.float64]] = {
    "norms": np.dtype(np.float32),
    "product": np.dtype(np.float64),
}


class MappedRows(ResidentRows):
    """All rows of one table in a scratch file without a name, for one fit. Private.

    What queries see is what `ResidentRows` shows them, and so are the sums, bit for bit. Nothing of
    the length of the table is in memory, unless a query reads rows in order of their lots: then
    their positions are. From one query to the next norms of whitened rows and products with
    coefficients are remembered, in such a file; what is in none is read from the source, which
    keeps its columns in one too.

    Parameters
    ----------
    source : Source
        Private rows behind the design, dense, one row a unit; at least one.
    design : Design
        Public design.
    max_rows : int
        Rows one unit may contribute: one.
    lots : Lots
        Of the rows.
    folder : path
        Where the file is made.
    """

    def __init__(
        self, source: Source, design: Design, max_rows: int, lots: Lots, folder: Path
    ) -> None:
        if source.is_sparse or (design.schema is not None and design.schema.unit is not None):
            raise DataError("On disk rows are dense, and each is a unit of its own.")
        self._folder = folder
        super().__init__(source, design, max_rows, lots)
        n = len(source)
        self._kept = self._arrays({what: ((n,), kind) for what, kind in REMEMBERED.items()})
        self._keys: dict[tuple[str, int], bytes] = {}  # of what is kept of a block, by first row
        self._latest = dict.fromkeys(REMEMBERED, b"")

    def _arrays(self, wanted: Wanted) -> dict[str, NDArray[Any]]:
        return arrays(self._folder, wanted)

    def view(self, columns: tuple[int, ...] | None) -> View:
        """All columns, or some of them: chosen when a block is read."""
        whole = self.everything
        if columns is None:
            return whole
        chosen = np.array(columns, dtype=np.intp)
        return View(whole.x, whole.bound[chosen], whole.grid[chosen], columns, whole=whole.whole)

    def _chosen(self, view: View, rows: Piece) -> Floats:
        x = view.x[rows]
        return x if view.columns is None else np.take(x, view.columns, axis=1)

    def _pieces(
        self, cut: tuple[int, int] | None, size: int, by_lots: bool
    ) -> tuple[dict[Key, Piece], int]:
        """Without an order to keep, the rows of a part are looked up where they stand."""
        if cut is None or by_lots:
            return super()._pieces(cut, size, by_lots)
        n = len(self._lots)
        firsts = range(0, n, BLOCK)
        return {(*cut, first): slice(first, min(first + BLOCK, n)) for first in firsts}, BLOCK

    def _blocks(self, key: Key, piece: Piece, view: View) -> Iterator[Block]:
        part, parts, first = key
        if parts == 0 and isinstance(piece, slice) and view.columns is None:
            yield from self._remembering(piece, view)
            return
        if parts == 0 or not isinstance(piece, slice):
            yield self._block(piece, view, {})
            return
        mine, size = self._lots.among(first, part, parts), view.rows_per_block
        for start in range(0, max(mine.size, 1), size):
            yield self._block(mine[start : start + size], view, {})

    def _remembering(self, rows: slice, view: View) -> Iterator[Block]:
        """A block that knows what an earlier query made of its rows, where it is asked again."""
        known = {w: key for w in REMEMBERED if (key := self._keys.get((w, rows.start))) is not None}
        memory = {what: (key, self._kept[what][rows]) for what, key in known.items()}
        yield self._block(rows, view, memory)
        for what in REMEMBERED:
            if what in memory and memory[what][0] != known.get(what):
                key, self._kept[what][rows] = memory[what]
                if key != self._latest[what]:
                    self._latest[what] = key
                self._keys[what, rows.start] = self._latest[what]  # one object for all blocks

    def _as_read(self, what: str, rows: Piece) -> NDArray[Any]:
        return _gathered(getattr(self._source, what), rows)

    def _incomplete(self, rows: Piece, view: View) -> Incomplete:
        at = np.flatnonzero(~self._keep[rows])
        places = at + rows.start if isinstance(rows, slice) else rows[at]
        d = self._grid.step.size
        chosen = np.arange(d) if view.columns is None else np.array(view.columns)

        def held(start: int, stop: int) -> NDArray[np.float64]:
            raw = self._grid.held(self._source.block(start, stop))
            y = np.zeros(stop - start) if raw.y is None else raw.y
            return np.column_stack([raw.x, y])

        values, missing = _gathered(held, places), _gathered(self._source.missing, places)
        x = values[:, chosen].astype(np.float32)
        return Incomplete(at, x, values[:, d], missing[:, [*chosen, d]])


def _gathered(read: Callable[[int, int], NDArray[Kind]], rows: Piece) -> NDArray[Kind]:
    """Rows at these positions, as a source reads them in a few blocks."""
    if isinstance(rows, slice):
        return read(rows.start, rows.stop)
    if not rows.size:
        return read(0, 0)
    blocks = rows // BLOCK
    made: NDArray[Kind] | None = None
    for block in np.unique(blocks):
        here = np.flatnonzero(blocks == block)
        low, high = int(rows[here].min()), int(rows[here].max()) + 1
        found = read(low, high)[rows[here] - low]
        if made is None:
            made = np.empty((rows.size, *found.shape[1:]), found.dtype)
        made[here] = found
    assert made is not None  # there are rows
    return made
