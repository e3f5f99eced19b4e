"""Stores that keep rows elsewhere answer as the resident one: on disk, or nowhere.

What `Rereading` does is all that a store has to do: another one changes neither curator nor
queries. It keeps no row and reads batches again for every question.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from copy import copy
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

import dpstats as dp
from dpstats.design import Design, RawBlock
from dpstats.holders import Curator, MappedRows
from dpstats.holders.rows import ResidentRows, View
from dpstats.holders.store import Grid, RowStore
from dpstats.mechanisms.lots import Lots
from dpstats.mechanisms.noise import SeededNoise
from dpstats.queries import Block, Geometry, LengthQuantile
from tests.contracts.cases import Case, Table, each_case
from tests.contracts.spies import releases

N = 45
BATCH = 17  # rows of a batch on their way to the store
FEW = 16  # rows, or units, of a block: even, since pairs of rows are not to be split


class Batches:
    """Rows behind a design, of which a few are seen at a time."""

    is_sparse = False

    def __init__(self, data: Table, design: Design) -> None:
        self.data, self.design = data, design
        self.has_offset, self.has_weights = self.of(0).has_offset, self.of(0).has_weights

    def __len__(self) -> int:
        return len(self.data["y"])

    def of(self, start: int) -> Any:
        part = {name: column[start : start + BATCH] for name, column in self.data.items()}
        return self.design.source(part)

    def under(self, layout: Any) -> Any:
        """The same rows in other units."""
        made = copy(self)
        made.of = lambda start: self.of(start).under(layout)
        return made

    def observed(self, start: int, stop: int) -> Any:
        """One batch, as it is read."""
        return self.of(start).observed(0, BATCH)

    def astray(self, start: int, stop: int) -> Any:
        """One batch, what of it was moved or missing."""
        return self.of(start).astray(0, BATCH)

    def block(self, start: int, stop: int) -> RawBlock:
        """One batch: numbers that name units serve as their codes."""
        assert start % BATCH == 0
        assert stop - start == BATCH
        raw = self.of(start).block(0, BATCH)
        return replace(raw, unit=None if raw.unit is None else self.data["person"][start:stop])


class Rereading(RowStore):
    """A store of everything but rows."""

    def __init__(self, source: Any, design: Any, max_rows: int, lots: Any) -> None:
        self.source, self.lots = source, lots
        self.grid = Grid.of(design)
        self.units = None
        batches = list(self.batches())
        if batches[0].unit is not None:
            self.units = self.grouped(np.concatenate([raw.unit for raw in batches]), max_rows)

    def batches(self) -> Iterator[RawBlock]:
        for start in range(0, len(self.source), BATCH):
            yield self.grid.rows(self.source.block(start, start + BATCH))

    def grouped(self, codes: Any, max_rows: int) -> list[Any]:
        """Positions of each unit's rows with the smallest lots."""
        drawn = self.lots.ranked(0, codes.size)
        return [drawn[codes[drawn] == code][:max_rows] for code in np.unique(codes)]

    def answer(self, query: Any, cut: tuple[int, int] | None = None) -> Any:
        columns = slice(None) if query.columns is None else list(query.columns)
        step = self.grid.step[columns]
        totals = [
            query.total(self.read(rows, columns, starts).weighted(query.geometry))
            for rows, starts in self.pieces(cut)
        ]
        return query.finish(np.sum(totals, axis=0), step)

    def pieces(self, cut: tuple[int, int] | None) -> Iterator[tuple[Any, Any]]:
        """Positions of the rows of each block, and where its units begin."""
        if self.units is None:
            rows = np.arange(len(self.source))[::-1] if cut is None else self.lots.dealt(*cut)
            for first in range(0, max(rows.size, 1), FEW):
                yield rows[first : first + FEW], None
            return
        assert cut is None
        for first in range(0, len(self.units), FEW):
            few = self.units[first : first + FEW]
            sizes = [len(rows) for rows in few]
            yield np.concatenate(few), np.cumsum([0, *sizes[:-1]])

    def read(self, rows: Any, columns: Any, starts: Any) -> Block:
        """Rows at these positions, from one pass over the batches."""
        x = np.empty((rows.size, self.grid.step.size), dtype=np.float32)
        y, keep, offset, root = np.empty((4, rows.size))
        for batch, raw in enumerate(self.batches()):
            here = rows // BATCH == batch
            at = rows[here] % BATCH
            x[here], y[here], keep[here] = raw.x[at], raw.y[at], raw.keep[at]
            if raw.offset is not None:
                offset[here] = raw.offset[at].astype(np.float32)
            if raw.root is not None:
                root[here] = raw.root[at]
        return Block(
            observed=functools.partial(self.as_read, self.source.observed, rows),
            astray=functools.partial(self.as_read, self.source.astray, rows),
            x=x[:, columns],
            y=y,
            keep=keep,
            weight=keep,
            bound=self.grid.bound[columns],
            grid=self.grid.step[columns],
            starts=starts,
            offset=offset if self.source.has_offset else None,
            root=root if self.source.has_weights else None,
            stretch=self.grid.stretch,
        )

    def as_read(self, read: Any, rows: Any) -> Any:
        """Values of these rows, from one more pass."""
        parts = [read(start, start + BATCH) for start in range(0, len(self.source), BATCH)]
        return np.concatenate(parts)[rows]


def fitted(case: Case, data: Table, source: Any, store: Any) -> tuple[list[Any], Any]:
    """Exact answers to all questions of a fit, and its parameters."""
    design, plan = case.model(data).design, case.plan(data, case.privacy(20.0, 1e-5, rows=N))
    holder = functools.partial(Curator, store=store)(source, design, plan, SeededNoise(1))
    with releases() as released:
        estimate = case.estimator.fit(holder, design, plan)
    return [r.exact for r in released], estimate.table(design).values


@each_case
def test_stores_that_keep_no_row_in_memory_answer_as_the_resident_one(
    case: Case, tmp_path: Path
) -> None:
    data = case.table(N)
    design = case.model(data).design
    answers, params = fitted(case, data, design.source(data), ResidentRows)
    stores: list[tuple[Any, Any]] = [(Batches(data, design), Rereading)]
    if not case.setting.person:
        mapped = functools.partial(MappedRows, folder=tmp_path)
        stores.append((design.source(data), mapped))
    for source, store in stores:
        again, other = fitted(case, data, source, store)
        for one, two in zip(answers, again, strict=True):
            np.testing.assert_array_equal(one, two)
        np.testing.assert_array_equal(params, other)


def test_what_rows_on_disk_remember_is_in_a_file_and_of_the_question_alone(
    tmp_path: Path, monkeypatch: Any
) -> None:
    n, d = 700, 3
    rng = np.random.default_rng(4)
    table = (rng.uniform(-1, 1, n), rng.uniform(-1, 1, (n, d)))
    design = dp.OLS(*table, {"endog": (-1, 1), "exog": (-1, 1)}).design
    monkeypatch.setattr(View, "rows_per_block", property(lambda view: 256))
    lots = Lots(SeededNoise(1).start(), n)
    source = design.source(table)
    here, there = (
        ResidentRows(source, design, 1, lots),
        MappedRows(source, design, 1, lots, tmp_path),
    )
    made: list[int] = []
    whitened = Geometry._whitened
    monkeypatch.setattr(
        Geometry,
        "_whitened",
        lambda self, block: (made.append(len(block.y)), whitened(self, block))[1],
    )
    kept = {id(array) for array in there._kept.values()}
    whitenings = [np.diag(rng.uniform(0.5, 2.0, d)) for _ in range(2)]
    for whiten, beta, again in ((0, 0, n), (0, 1, 0), (0, 0, 0), (1, 0, n), (0, 1, n), (0, 0, 0)):
        query = LengthQuantile(
            np.linspace(0, 3, 33), 0.5, whitenings[whiten], np.full(d, 0.3 * beta), "score"
        )
        made.clear()
        answer = there.answer(query)
        assert sum(made) == again  # whitened rows are made anew for another matrix alone
        np.testing.assert_array_equal(answer, here.answer(query))
    assert {id(array) for array in there._kept.values()} == kept
    assert all(not array.flags.owndata for array in there._kept.values())  # they lie in the file
    assert list(tmp_path.iterdir()) == []
