"""A query may see what incomplete rows were: filled in, they answer as a table without gaps."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy import sparse

from dpstats.design import DeclaredDesign
from dpstats.errors import DataError, PlanError
from dpstats.holders.rows import ResidentRows
from dpstats.mechanisms.lots import Lots
from dpstats.mechanisms.noise import SeededNoise
from dpstats.queries import Block, Count, Geometry, Gram, Score, Selected, ShownRows
from dpstats.queries.base import EachRow
from dpstats.schema import Categorical, Numeric, Schema

N = 700
SCHEMA: dict[str, Any] = {
    "y": Numeric(-1, 1),
    "u": Numeric(-1, 1),
    "v": Numeric(0, 4),
    "g": Categorical(["a", "b", "c"]),
}
FORMULA = "y ~ u + np.sqrt(v) + C(g)"
FILLED = {"u": 0.25, "v": 1.0, "g": "c"}


@dataclass(frozen=True, eq=False)
class Completed(EachRow):
    """A query of rows whose missing covariates are public numbers: one for each column."""

    query: Any
    values: Any
    geometry = None

    def total(self, block: Block) -> Any:
        assert block.incomplete is not None
        gaps = block.incomplete()
        x, y, keep = block.x.copy(), block.y.copy(), block.keep.copy()
        x[gaps.rows] = np.where(gaps.missing[:, :-1], self.values, gaps.x)
        y[gaps.rows] = np.where(gaps.missing[:, -1], 0.0, gaps.y)
        keep[gaps.rows] = ~gaps.missing[:, -1]
        x[keep == 0] = 0.0
        filled = replace(block, x=x, y=y, keep=keep, weight=keep, memory={})
        return self.query.total(filled.weighted(self.query.geometry))

    def finish(self, total: Any, grid: Any) -> Any:
        return self.query.finish(total, grid)


def table(seed: int = 0) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    return pd.DataFrame(
        {
            "y": rng.uniform(-1, 1, N),
            "u": rng.uniform(-1, 1, N),
            "v": rng.uniform(0, 4, N),
            "g": rng.choice(["a", "b", "c"], N),
            "person": rng.integers(0, 300, N),
        }
    )


def with_gaps(data: pd.DataFrame, values: Mapping[str, Any]) -> tuple[pd.DataFrame, pd.DataFrame]:
    """The table with values taken out, and with public ones in their place; no y is filled in."""
    rng, holed, filled = np.random.default_rng(7), data.copy(), data.copy()
    for name in ("y", *values):
        gone = rng.uniform(size=len(data)) < 0.15
        holed.loc[gone, name] = None if name == "g" else np.nan
        filled.loc[gone, name] = values.get(name, np.nan)
    return holed, filled


def opened(data: Any, units: bool = False) -> tuple[Any, ResidentRows]:
    schema = Schema(SCHEMA, **({"unit": "person", "max_rows": 2} if units else {}))
    design = DeclaredDesign.from_formula(FORMULA, schema)
    lots = Lots(SeededNoise(1).start(), len(data))
    return design, ResidentRows(design.source(data), design, 2 if units else 1, lots)


def values_of(design: Any) -> Any:
    """`FILLED` in the design's internal coordinates."""
    row = pd.DataFrame({name: [value] for name, value in (FILLED | {"y": 0.0}).items()})
    return design.source(row.assign(person=1)).block(0, 1).x[0]


def queries(d: int) -> list[Any]:
    return [
        Score(Geometry(0.9), np.linspace(-0.3, 0.4, d), 0.5),
        Gram(Geometry(0.9)),
        Count(),
    ]


@pytest.mark.parametrize(("units", "cut"), [(False, None), (False, (1, 3)), (True, None)])
def test_rows_that_a_query_completes_answer_as_rows_without_gaps(units: bool, cut: Any) -> None:
    holed, filled = with_gaps(table(), FILLED)
    design, store = opened(holed, units)
    _, whole = opened(filled, units)
    values = values_of(design)
    for query in queries(len(design.names)):
        np.testing.assert_allclose(
            store.answer(Completed(query, values), cut), whole.answer(query, cut), rtol=0, atol=2e-3
        )
        assert not np.allclose(store.answer(query, cut), whole.answer(query, cut), atol=1.0)


def test_chosen_columns_know_their_own_gaps() -> None:
    holed, filled = with_gaps(table(), FILLED)
    design, store = opened(holed)
    _, whole = opened(filled)
    columns, query = (3, 1), Gram(Geometry(0.9))
    asked = Selected(Completed(query, values_of(design)[list(columns)]), columns)
    expected = whole.answer(Selected(query, columns))
    np.testing.assert_allclose(store.answer(asked), expected, rtol=0, atol=2e-3)


def test_a_row_of_nobody_misses_everything() -> None:
    data = table().assign(person=lambda t: t.person.astype(float))
    data.loc[5, "person"] = np.nan
    design, _ = opened(data, units=True)
    mask = design.source(data).missing(0, N)
    assert mask[5].all()
    assert mask.sum() == mask.shape[1]


def test_nothing_is_read_again_before_a_query_asks() -> None:
    holed, _ = with_gaps(table(), FILLED)
    design, store = opened(holed)
    for query in queries(len(design.names)):
        store.answer(query)
    assert "_observed" not in vars(store)
    store.answer(Completed(Count(), values_of(design)))
    positions, x, _, bits = store._observed
    assert len(x) == len(positions) < N
    assert bits.dtype == np.uint8
    assert bits.shape == (len(x), 1)  # 5 columns and the response: one bit each


def test_gaps_of_a_sparse_matrix_are_refused_by_name() -> None:
    design = DeclaredDesign.from_arrays(2, {"exog": (-1, 1), "endog": (-1, 1)}, sparse=True)
    source = design.source((np.zeros(4), sparse.csr_array(np.eye(4, 2))))
    with pytest.raises(DataError, match="dense"):
        source.missing(0, 4)


@pytest.mark.parametrize("gap", [0.5, np.nan])
def test_a_sparse_matrix_refuses_what_rows_miss_whether_there_is_a_gap_or_not(gap: float) -> None:
    """An error that only a gap raises would tell of one row."""
    design = DeclaredDesign.from_arrays(2, {"exog": (-1, 1), "endog": (-1, 1)}, sparse=True)
    source = design.source((np.zeros(4), sparse.csr_array(gap * np.eye(4, 2))))
    store = ResidentRows(source, design, 1, Lots(SeededNoise(0).start(), 4))
    with pytest.raises(PlanError, match="dense"):
        store.total(ShownRows())
