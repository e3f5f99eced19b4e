"""A column that was kept, in memory or on disk, means what the column itself means."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import dpstats as dp
from dpstats.design import DeclaredDesign
from dpstats.tables import streams
from dpstats.tables.streams import Reading, stream_of
from tests.contracts.hostile import text_of

NUMBERS: dict[str, Any] = {
    "double": pa.array([1.5, None, float("nan"), 1e300, -float("inf"), 0.1]),
    "float": pa.array([1.5, None, 0.1, 7, -9, 3e38], pa.float32()),
    "half": pa.array(np.array([1.5, 2, 0.1, 7, -9, np.inf], np.float16)),
    "small int": pa.array([1, None, 3, 100, -100, 0], pa.int8()),
    "long int": pa.array([2**60 + 1, None, 3, 4, -5, 2**53 + 1], pa.int64()),
    "decimal": pa.array([Decimal("1.10"), None, Decimal("7.7"), Decimal(3), Decimal(-9), None]),
    "boolean": pa.array([True, None, False, True, True, False]),
    "dictionary": pa.array([3, 4, None, 3, 99, 4]).dictionary_encode(),
    "nothing": pa.nulls(6),
}
LEVELS: dict[str, tuple[Any, Any]] = {
    "text": (dp.Categorical(["a", "b"]), pa.array(["a", "b", "c", None, "", "b"])),
    "other": (dp.Categorical(["a", "b"], other="z"), pa.array(["a", "b", "c", None, "z", "b"])),
    "whole numbers": (dp.Categorical([1, 2, 10]), pa.array([1, 2, None, 10, 3, 2])),
    "numbers": (dp.Categorical([0.5, 2]), pa.array([0.5, 2.0, None, float("nan"), 3, 2])),
    "numbers as text": (dp.Categorical(["1", "2", "x"]), pa.array([1, 2, 1, None, 3, 2])),
    "not UTF-8": (
        dp.Categorical(["a", "b"]),
        text_of(pa.string(), ["a", b"\xff", "b", None, "c", "a"]),
    ),
    "dictionary": (
        dp.Categorical(["a", "b"]),
        pa.array(["b", "a", None, "c", "a", "b"]).dictionary_encode(),
    ),
    "true or false": (dp.Boolean(), pa.array([True, False, None, True, False, True])),
    "many": (dp.Categorical(range(300)), pa.array([0, 127, 128, 299, 300, None])),
}
CASES = {
    **{f"number: {name}": ("x", dp.Numeric(-8, 8), cells) for name, cells in NUMBERS.items()},
    **{f"term: {name}": ("np.exp(x)", dp.Numeric(-8, 8), cells) for name, cells in NUMBERS.items()},
    **{f"levels: {name}": ("C(x)", declared, cells) for name, (declared, cells) in LEVELS.items()},
}


@pytest.mark.parametrize("place", ["memory", "disk"])
@pytest.mark.parametrize("case", CASES)
def test_a_kept_column_means_what_the_column_means(
    case: str, place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    term, declared, cells = CASES[case]
    schema = dp.Schema(x=declared, y=dp.Numeric(0, 9))
    design = DeclaredDesign.from_formula(f"y ~ {term}", schema)
    table = pa.table({"x": cells, "y": np.arange(6.0)})
    reading = Reading(stream_of(table.to_reader(2), schema, 6))
    kept, itself = design.source(reading), design.source(table)
    if place == "disk":
        monkeypatch.setattr(streams, "RESIDENT_VALUES", 0)
        reading.counted = True
        assert reading.place(6, 3, tmp_path) == tmp_path
    one, other = kept.block(0, 6), itself.block(0, 6)
    np.testing.assert_array_equal(one.x, other.x)
    np.testing.assert_array_equal(one.y, other.y)
    np.testing.assert_array_equal(one.keep, other.keep)
    for what in ("missing", "observed", "astray"):
        np.testing.assert_array_equal(getattr(kept, what)(0, 6), getattr(itself, what)(0, 6))
    assert len(kept) == len(itself)
