"""Rows on disk: the same sums as of rows in memory, over all rows, parts, pairs and columns."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dpstats as dp
from dpstats.design import DeclaredDesign
from dpstats.errors import DataError
from dpstats.holders import MappedRows, ResidentRows, rows
from dpstats.mechanisms.lots import Lots
from dpstats.mechanisms.noise import SeededNoise
from dpstats.queries import Block, Geometry, Gram

N = 2**16 + 5_000  # rows of parts are looked up in two blocks
SCHEMA = dp.Schema(x=dp.Numeric(-3, 3), z=dp.Numeric(0, 9), y=dp.Numeric(-9, 9))


class Sums:
    """Sums of what a block says of its rows, with parts that the order of rows decides or not."""

    def __init__(self, columns: tuple[int, ...] | None = None, by_lots: bool = False) -> None:
        self.columns, self.by_lots, self.geometry = columns, by_lots, None

    def total(self, block: Block) -> Any:
        x = np.asarray(block.x, dtype=np.float64)
        read = [block.observed(), block.astray().reshape(len(x), -1)]  # type: ignore[misc]
        gap = block.incomplete()  # type: ignore[misc]
        parts = [
            *(x / block.grid).sum(axis=0),
            block.y.sum() * 2**22,
            block.keep.sum(),
            np.abs(np.diff(block.y)).sum() * 2**22 * self.by_lots,
            *(np.floor(np.nan_to_num(values) * 2**22).sum() for values in read),
            *(gap.x * 2**22).sum(axis=0, dtype=np.float64),
            gap.y.sum() * 2**22,
            *gap.missing.sum(axis=0),
        ]
        return np.rint(parts).astype(np.int64)

    def finish(self, total: Any, grid: Any) -> Any:
        return total


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, Any]:
    rng = np.random.default_rng(0)
    data = {name: rng.normal(0, 2, N) for name in SCHEMA}
    data["z"][::9] = np.nan
    design = DeclaredDesign.from_formula("y ~ x + z", SCHEMA)
    source, lots = design.source(data), Lots(SeededNoise(1).start(), N)
    folder = tmp_path_factory.mktemp("scratch")
    made = ResidentRows(source, design, 1, lots), MappedRows(source, design, 1, lots, folder)
    assert not list(folder.iterdir())
    return made


@pytest.mark.parametrize("cut", [None, (0, 1), (0, 2), (1, 2), (2, 7)])
@pytest.mark.parametrize("columns", [None, (2, 0)])
def test_answers_are_those_of_rows_in_memory(stores: Any, cut: Any, columns: Any) -> None:
    memory, disk = (store.answer(Sums(columns), cut) for store in stores)
    np.testing.assert_array_equal(memory, disk)
    assert np.count_nonzero(memory) > 6


def test_pairs_are_those_of_rows_in_memory(stores: Any) -> None:
    memory, disk = (store.answer(Sums(by_lots=True), (1, 2)) for store in stores)
    np.testing.assert_array_equal(memory, disk)


def test_a_part_is_not_another_part(stores: Any) -> None:
    first, second = (stores[1].answer(Sums(), (part, 2)) for part in (0, 1))
    assert not np.array_equal(first, second)
    np.testing.assert_array_equal(first + second, stores[1].answer(Sums()))


def test_rows_of_units_are_refused_on_disk(tmp_path: Path) -> None:
    schema = dp.Schema(dict(SCHEMA), unit="person", max_rows=2)
    design = DeclaredDesign.from_formula("y ~ x", schema)
    source = design.source({"x": [1.0], "y": [1.0], "person": [1]})
    with pytest.raises(DataError, match="each is a unit of its own"):
        MappedRows(source, design, 1, Lots(SeededNoise(1).start(), 1), tmp_path)


def test_whitened_rows_of_large_tables_are_not_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    design = DeclaredDesign.from_formula("y ~ x", SCHEMA)
    data = {name: np.linspace(-1, 1, 60) for name in SCHEMA}
    query = Gram(Geometry(0.5, np.array([[1.0, 0.5], [0.0, 2.0]])))
    answers, remembered = [], []
    for limit in (2**25, 1):
        monkeypatch.setattr(rows, "_REMEMBERED_VALUES", limit)
        store = ResidentRows(design.source(data), design, 1, Lots(SeededNoise(1).start(), 60))
        answers.append(store.answer(query).tolist())
        remembered.append("rows" in next(iter(store.everything.memory.values())))
    assert answers[0] == answers[1]
    assert remembered == [True, False]
