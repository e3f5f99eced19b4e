"""Rows of one table in memory: mapped into the declared domain, on a public grid, added exactly."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import cached_property
from itertools import chain
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from dpstats.design.nobody import Nobody
from dpstats.errors import DataError, PlanError
from dpstats.holders.store import AnnouncedQueries, Grid, Total
from dpstats.holders.threads import one_blas_thread
from dpstats.queries.base import AsRead
from dpstats.queries.blocks import (
    BLOCK_BITS,
    MAX_ROWS,
    Block,
    Floats,
    Geometry,
    Incomplete,
    Memory,
    kernels,
)
from dpstats.tables.scratch import Wanted, arrays

if TYPE_CHECKING:
    from scipy.sparse import csr_array

    from dpstats.design import Design, Source
    from dpstats.mechanisms.lots import Lots
    from dpstats.queries import Query

__all__ = ["ResidentRows", "View", "rounded_total"]

Array = NDArray[np.float64]
Work = TypeVar("Work")
Added = TypeVar("Added", np.int64, np.object_)
Piece = slice | NDArray[np.intp]  # rows of a block: one after the other, or by their lots
Key = tuple[int, int, int]  # part, parts and first row of a block; no parts for all rows

_BLOCK_VALUES = 2**19  # 4 MB of float64 a block: in a shared cache, and few Python calls a row
# Below, threads wait for the interpreter and hold copies of blocks in vain.
_THREADED_VALUES = 2**20
_NARROW = 64  # columns, up to which products are over before threads of BLAS have met
_MANY_VALUES = 16_000_000  # from here on compiled code is worth starting: it takes 0.4 s
# Rows, and values of them, that are read at a time where nothing else is asked of them.
_TABLE_ROWS, _TABLE_VALUES = 2**15, 2**20
_VIEWS = 4  # column selections kept at a time
# Above, whitened rows are made again for every query: as fast as reading them, in half the memory.
_REMEMBERED_VALUES = 2**25


def _compiled(values: int) -> bool:
    """Whether compiled code is there, and so many values are worth starting it."""
    return values >= _MANY_VALUES and kernels() is not None


@dataclass(eq=False)
class View:
    """The rows' covariates, or some columns of them, and what queries remember of each block.

    Attributes
    ----------
    x : ndarray of float32 or CSR array of float32, shape (n, s)
        Exact on `grid`.
    bound, grid : ndarray of shape (s,)
        Public bound and grid step of each column.
    columns : tuple of int or None
        Which columns they are, where some were chosen.
    memory : dict
        For each block, given by its part, the number of parts and its first row: see
        `Block.recall`.
    whole : int
        Rows of the table, where these are a part of it that is asked beside others.
    """

    x: Floats | csr_array
    bound: Array
    grid: Array
    columns: tuple[int, ...] | None = None
    memory: dict[Key, Memory] = field(default_factory=dict)
    whole: int = 0

    @property
    def fast(self) -> bool:
        """Whether compiled code pays: starting it takes as long as reading this much."""
        return (
            isinstance(self.x, np.ndarray)
            and self.x.flags.c_contiguous
            and _compiled(max(self.whole, len(self.x)) * self.x.shape[1])
        )

    @property
    def rows_per_block(self) -> int:
        """About `_BLOCK_VALUES` numbers."""
        if not isinstance(self.x, np.ndarray):
            return 1 << BLOCK_BITS
        # Compiled products hold no copy of a block: it may be larger, and Python is called less.
        values = 2 * _BLOCK_VALUES if self.fast else _BLOCK_VALUES
        size = 1 << int(np.log2(max(values / max(self.bound.size, 1), 1)))
        return min(max(size, 256), 1 << BLOCK_BITS)


class ResidentRows:
    """All rows of one table, kept as float32 (exact on the public grid) for one fit. Private.

    Parameters
    ----------
    source : Source
        Private rows behind the design; at least one.
    design : Design
        Public design.
    max_rows : int
        Rows one unit may contribute; of more, those with the smallest lots are kept.
    lots : Lots
        Of the rows: they decide which part a row falls in, wherever it stands.
    """

    def __init__(self, source: Source, design: Design, max_rows: int, lots: Lots) -> None:
        self._pool = ThreadPoolExecutor(max(os.cpu_count() or 1, 1))  # threads start when needed
        self._max_rows = max_rows
        self._lots = lots
        self._parts: dict[tuple[int, int], NDArray[np.intp]] = {}
        self._source, self._grid = source, Grid.of(design)
        values = len(source) * self._grid.step.size
        self._threads = (os.cpu_count() or 1) if values >= _THREADED_VALUES else 1
        self._of_units = design.schema is not None and design.schema.unit is not None
        self._views: dict[tuple[int, ...], View] = {}
        self._whole: dict[
            str, NDArray[np.generic]
        ] = {}  # the source as it is read, where units are kept
        self._foreseen = AnnouncedQueries()

    @cached_property
    def everything(self) -> View:
        """All columns: rows are prepared when a question first asks for more than was read."""
        return self._load(self._source, self._grid)

    def view(self, columns: tuple[int, ...] | None) -> View:
        """All columns, or some of them, dense; the latest few selections are kept."""
        if columns is None:
            return self.everything
        if columns not in self._views:
            chosen = np.array(columns, dtype=np.intp)
            x = self.everything.x[:, chosen]
            dense = x if isinstance(x, np.ndarray) else x.toarray()
            while len(self._views) >= _VIEWS:
                self._views.pop(next(iter(self._views)))
            whole = self.everything
            self._views[columns] = View(
                dense, whole.bound[chosen], whole.grid[chosen], columns, whole=whole.whole
            )
        return self._views[columns]

    def answer(self, query: Query, cut: tuple[int, int] | None = None) -> Array:
        """Exact answer before noise; see `RowStore.answer`."""
        columns = slice(None) if query.columns is None else list(query.columns)
        total = self.total(query, cut)
        if isinstance(self._source, Nobody):  # its row tells the shape alone
            total = np.zeros_like(total)
        return query.finish(rounded_total(total), self._grid.step[columns])

    def foresee(self, queries: Sequence[Query]) -> None:
        """Read the rows once for these; see `RowStore.foresee`."""
        self._foreseen.expect(queries)

    def total(self, query: Query, cut: tuple[int, int] | None = None) -> Total:
        """Exact total of a query in whole steps: int64, or of very many rows Python's integers."""
        if isinstance(query, AsRead) and cut is None and not self._of_units:
            return self._of_table(query)
        if cut is None:
            return self._foreseen.total(query, self.totals)
        return self._totals([query], self.view(query.columns), cut)[0]

    def totals(self, queries: Sequence[Query]) -> list[Total]:
        """Exact totals over all rows, of queries that read the same columns."""
        return self._totals(queries, self.view(queries[0].columns), None)

    def _of_table(self, query: Query) -> NDArray[np.int64]:
        """Total of a query about values as they were read."""
        n, source = len(self._source), self._source
        size = max(min(_TABLE_ROWS, _TABLE_VALUES // (self._grid.step.size + 1)), 1)
        fast = _compiled(n * self._grid.step.size)

        def task(start: int) -> NDArray[np.int64]:
            rows = start, min(start + size, n)
            return query.total(
                Block.of_table(
                    functools.partial(source.observed, *rows),
                    functools.partial(source.astray, *rows),
                    fast,
                )
            )

        return self._reduce(task, list(range(0, n, size)))

    def _pieces(
        self, cut: tuple[int, int] | None, size: int, by_lots: bool
    ) -> tuple[dict[Key, Piece], int]:
        """Rows of a cut in pieces, and the length of the longest."""
        if cut is None:
            return {(0, 0, rows.start): rows for rows in self._slices(size)}, size
        mine = self._part(*cut)
        # With more parts than rows some are empty; they answer like any other.
        firsts = range(0, max(mine.size, 1), size)
        return {(*cut, first): mine[first : first + size] for first in firsts}, size

    def _blocks(self, key: Key, piece: Piece, view: View) -> Iterator[Block]:
        """Blocks of the rows of a piece: one, in memory."""
        memory = view.memory.setdefault(key, {})
        yield self._block(piece, view, memory)
        if isinstance(view.x, np.ndarray) and view.x.size > _REMEMBERED_VALUES:
            for made in ("rows", "filled", "augmented scores"):
                memory.pop(made, None)

    def _totals(
        self, queries: Sequence[Query], view: View, cut: tuple[int, int] | None
    ) -> list[Total]:
        pieces, longest = self._pieces(cut, view.rows_per_block, queries[0].by_lots)

        def each(block: Block) -> NDArray[np.object_]:  # an array of arrays, which add one by one
            found = np.empty(len(queries), dtype=object)
            for k, query in enumerate(queries):
                found[k] = query.total(block.weighted(query.geometry))
            return found

        def task(key: Key) -> NDArray[np.object_]:
            return _sum(map(each, self._blocks(key, pieces[key], view)))

        keys, few = list(pieces), MAX_ROWS // longest
        groups = (keys[first : first + few] for first in range(0, len(keys), few))
        totals = [self._reduce(task, group) for group in groups]
        if len(totals) == 1:
            return list(totals[0])
        by_query = zip(*totals, strict=True)
        return [np.sum([total.astype(object) for total in every], axis=0) for every in by_query]

    def _part(self, part: int, parts: int) -> NDArray[np.intp]:
        """Positions of the rows of a part; units are refused parts, so that these are all."""
        if (part, parts) not in self._parts:
            self._parts[part, parts] = self._lots.dealt(part, parts)
        return self._parts[part, parts]

    def _load(self, source: Source, grid: Grid) -> View:
        """Prepare every row once: clamp, put on the grid, blank the incomplete ones."""
        n, d = len(source), grid.step.size
        single = np.dtype(np.float32)
        wanted = {"y": ((n,), single), "keep": ((n,), np.dtype(np.bool_))}
        made = self._arrays(
            wanted
            | ({} if source.is_sparse else {"x": ((n, d), single)})
            | ({"offset": ((n,), single)} if source.has_offset else {})
            | ({"root": ((n,), single)} if source.has_weights else {})
        )
        x, self._offset, self._root = (made.get(name) for name in ("x", "offset", "root"))
        self._y, self._keep = made["y"], made["keep"]
        self._starts: NDArray[np.intp] | None = None
        self._order: NDArray[np.intp] | None = None  # places in the source, of rows of units
        units: dict[int, NDArray[np.intp]] = {}
        sparse: dict[int, csr_array] = {}

        def prepare(rows: slice) -> NDArray[np.int64]:
            raw = grid.rows(source.block(rows.start, rows.stop))
            if x is None:
                sparse[rows.start] = raw.x
            else:
                x[rows] = raw.x
            self._y[rows] = raw.y
            if self._offset is not None:
                self._offset[rows] = raw.offset
            if self._root is not None:
                self._root[rows] = raw.root
            self._keep[rows] = raw.keep
            if raw.unit is not None:
                units[rows.start] = raw.unit
            elif x is not None:  # what is asked first, while the rows are at hand
                for block in self._blocks((0, 0, rows.start), rows, view):
                    Geometry(1.0).norms(block)
            return np.zeros(0, dtype=np.int64)

        view = View(x, grid.bound, grid.step)
        self._reduce(prepare, list(self._slices(view.rows_per_block)))
        if x is None:
            from scipy.sparse import vstack

            view.x = vstack([sparse[a] for a in sorted(sparse)], format="csr")
        if units:
            self._group(np.concatenate([units[start] for start in sorted(units)]), view)
        return view

    def _arrays(self, wanted: Wanted) -> dict[str, NDArray[Any]]:
        return arrays(None, wanted)

    def _group(self, codes: NDArray[np.intp], view: View) -> None:
        """Bring each unit's rows together by their lots, and drop those beyond `max_rows`."""
        drawn = self._lots.ranked(0, codes.size)
        order = drawn[np.argsort(codes[drawn], kind="stable")]
        sorted_codes = codes[order]
        first = np.flatnonzero(np.r_[True, sorted_codes[1:] != sorted_codes[:-1]])
        rank = np.arange(codes.size) - np.repeat(first, np.diff(np.r_[first, codes.size]))
        inside = rank < self._max_rows
        self._starts = np.flatnonzero(rank[inside] == 0)
        self._order = order[inside]
        self._reorder(self._order, view)

    def _reorder(self, order: NDArray[np.intp], view: View) -> None:
        view.x = view.x[order]
        self._y, self._keep = self._y[order], self._keep[order]
        self._offset = None if self._offset is None else self._offset[order]
        self._root = None if self._root is None else self._root[order]

    def _slices(self, size: int) -> Iterator[slice]:
        """Blocks of about `size` rows as they stand; units are never split."""
        n = self._y.size
        if self._starts is None:
            cuts = np.arange(0, max(n, 1), size)
        else:
            step = max(size - self._max_rows, 1)
            wanted = np.searchsorted(self._starts, np.arange(0, n, step))
            cuts = np.unique(self._starts[np.minimum(wanted, self._starts.size - 1)])
        for start, stop in zip(cuts, [*cuts[1:], n], strict=True):
            yield slice(int(start), int(stop))

    def _block(self, rows: Piece, view: View, memory: Memory) -> Block:
        keep = self._keep[rows].astype(np.float64)
        starts = None
        if self._starts is not None and isinstance(rows, slice):
            low, high = np.searchsorted(self._starts, [rows.start, rows.stop])
            starts = self._starts[low:high] - rows.start
        return Block(
            x=self._chosen(view, rows),
            y=self._y[rows].astype(np.float64),
            keep=keep,
            weight=keep,
            bound=view.bound,
            grid=view.grid,
            starts=starts,
            offset=None if self._offset is None else self._offset[rows].astype(np.float64),
            root=None if self._root is None else self._root[rows].astype(np.float64),
            stretch=self._grid.stretch,
            memory=memory,
            fast=view.fast,
            incomplete=functools.partial(self._incomplete, rows, view),
            observed=functools.partial(self._as_read, "observed", rows),
            astray=functools.partial(self._as_read, "astray", rows),
        )

    def _chosen(self, view: View, rows: Piece) -> Floats | csr_array:
        return view.x[rows]

    def _as_read(self, what: str, rows: Piece) -> NDArray[Any]:
        """Rows of a block as they were read; see `Block.observed` and `Block.astray`."""
        read: Callable[[int, int], NDArray[Any]] = getattr(self._source, what)
        if isinstance(rows, slice) and self._order is None:
            return read(rows.start, rows.stop)
        places = (np.arange(self._y.size) if self._order is None else self._order)[rows]
        if what not in self._whole:  # rows of a unit stand anywhere: one pass, not one a block
            size = self.everything.rows_per_block
            starts = range(0, len(self._source), size)
            self._whole[what] = np.concatenate([read(a, a + size) for a in starts])
        return self._whole[what][places]

    def _incomplete(self, rows: Piece, view: View) -> Incomplete:
        """Incomplete rows of a block; see `Block.incomplete`.

        Refused of a sparse matrix, whether there are any or not: an error is an answer.
        """
        if self._source.is_sparse:
            raise PlanError("Incomplete rows are known of dense rows alone.")
        everywhere, x, y, missing = self._observed
        at = np.flatnonzero(~self._keep[rows])
        place = at + rows.start if isinstance(rows, slice) else rows[at]
        these = np.searchsorted(everywhere, place)
        d = x.shape[1]
        chosen = np.arange(d) if view.columns is None else np.array(view.columns)
        bits = np.unpackbits(missing[these], axis=1, count=d + 1).astype(np.bool_)
        return Incomplete(at, x[np.ix_(these, chosen)], y[these], bits[:, [*chosen, d]])

    @cached_property
    def _observed(self) -> tuple[NDArray[np.intp], Floats, Array, NDArray[np.uint8]]:
        """Positions of incomplete rows, what they hold, and one bit for each value that is missing.

        They are read again from the source, when a query first asks.
        """
        here = np.flatnonzero(~self._keep)
        places = here if self._order is None else self._order[here]
        x = np.empty((here.size, self._grid.step.size), dtype=np.float32)
        y, bits = np.empty(here.size), np.empty((here.size, x.shape[1] // 8 + 1), dtype=np.uint8)
        size = self.everything.rows_per_block
        for start in range(0, len(self._source), size):
            mine = np.flatnonzero((places >= start) & (places < start + size))
            if mine.size:
                at = places[mine] - start
                held = self._grid.held(self._source.block(start, start + size))
                x[mine], y[mine] = held.x[at], 0.0 if held.y is None else held.y[at]
                missing = self._source.missing(start, start + size)[at]
                bits[mine] = np.packbits(missing, axis=1)
        return here, x, y, bits

    def _reduce(self, task: Callable[[Work], NDArray[Added]], blocks: list[Work]) -> NDArray[Added]:
        """Sum of integer arrays over blocks: threads over blocks, BLAS on one thread in each."""

        def work(share: list[Work]) -> NDArray[Added]:
            with np.errstate(all="ignore"):  # a warning about a value would be a release
                return _sum(map(task, share))

        workers = min(len(blocks), self._threads)
        if workers <= 1 and self._grid.step.size > _NARROW:
            return work(blocks)
        with one_blas_thread:
            own, *rest = (blocks[i::workers] for i in range(workers))
            others: list[Future[NDArray[Added]]] = [self._pool.submit(work, s) for s in rest]
            mine = work(own)
            return _sum(chain([mine], (other.result() for other in others)))


def rounded_total(total: Total) -> NDArray[Any]:
    """A total as queries take it: that of more than `MAX_ROWS` rows is rounded once to float64."""
    return total.astype(np.float64) if total.dtype == object else total


def _sum(arrays: Iterable[NDArray[Added]]) -> NDArray[Added]:
    total: NDArray[Added] | None = None
    for array in arrays:
        total = array if total is None else total + array
    if total is None:
        raise DataError("The table has no rows.")
    return total
