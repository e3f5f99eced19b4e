"""How well a table fits its schema, for a part of the budget."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import dpstats as dp
from dpstats.errors import DataError, FeasibilityWarning, OptionError, SchemaError, TrustError
from dpstats.models.data_check import check_model
from tests.grids import grid

N = 4_000
SCHEMA = dp.Schema(
    x=dp.Numeric(0, 10),
    g=dp.Categorical(["a", "b"]),
    h=dp.Categorical([1, 2], other=9),
    b=dp.Boolean(),
)
SHARES = {"x": (0.25, 0.1), "g": (0.1, 0.2), "h": (0.05, 0.5), "b": (0.0, 0.3)}
CLEAR, PRIVATE = dp.Central(1e6, 1e-6), dp.Central(0.5, 1e-6)


def table() -> dict[str, Any]:
    """Rows of which known shares are missing, and outside of what is declared."""
    cells = {"x": (1.0, None, 12.0), "g": ("a", None, "z"), "h": (2, None, 3), "b": (1, None, 2)}
    made = {}
    for name, (missing, outside) in SHARES.items():
        sound, gap, wrong = cells[name]
        counts = [round(N * (1 - missing - outside)), round(N * missing), round(N * outside)]
        column = np.repeat(np.array([sound, gap, wrong], dtype=object), counts)
        made[name] = np.random.default_rng(3).permutation(column)
    return made


def checked(data: Any, privacy: dp.Central = CLEAR, seed: int = 1, schema: Any = SCHEMA) -> Any:
    return dp.check(data, schema, privacy, noise=dp.SeededNoise(seed))


@pytest.mark.parametrize("kind", ["dict", "pandas", "csv", "parquet", "batches"])
def test_without_noise_to_speak_of_shares_are_those_of_the_table(kind: str, tmp_path: Path) -> None:
    frame = pd.DataFrame(table())
    data: Any = table() if kind == "dict" else frame
    if kind in ("csv", "parquet"):
        data = tmp_path / f"rows.{kind}"
        frame.to_csv(data, index=False) if kind == "csv" else frame.to_parquet(data)
    if kind == "batches":
        import pyarrow as pa

        data = pa.Table.from_pandas(frame).to_reader(500)
        found = check_model(data, SCHEMA, n=N).fit(CLEAR, noise=dp.SeededNoise(1)).frame()
    else:
        found = checked(data).frame()
    assert found["declared"].to_dict() == {
        name: type(SCHEMA[name]).__name__ for name in found.index
    }
    for name, (missing, outside) in SHARES.items():
        assert found.loc[name, "missing"] == pytest.approx(missing, abs=1e-3)
        assert found.loc[name, "outside"] == pytest.approx(outside, abs=1e-3)


@pytest.mark.parametrize("neighbors", grid(["replace-one", "add-remove"], 1))
def test_shares_are_within_the_margin_as_often_as_is_said(neighbors: str) -> None:
    """Of 200 fits of 8 shares; a margin half as wide would hold 67 %. False alarms: below 1e-6."""
    private = dp.Central(0.5, 1e-6, neighbors=neighbors, rows=N)
    data, truth = table(), np.array([SHARES[name] for name in ("x", "b", "g", "h")])
    hits = []
    for seed in range(200):
        found = checked(data, private, seed).frame().loc[["x", "b", "g", "h"]]
        shares = found[["missing", "outside"]].to_numpy()
        hits.append(np.abs(shares - truth) <= found[["margin"]].to_numpy())
    assert 0.92 < np.mean(hits) < 0.985  # a share of 0 is held to 0: more often


def test_rows_of_units_are_counted_and_those_of_nobody_are_not() -> None:
    data = table() | {"who": np.repeat(np.arange(N // 4), 4).astype(object)}
    data["who"][: N // 2] = None
    schema = dp.Schema(dict(SCHEMA), unit="who", max_rows=4)
    found = checked(data, dp.Central(1e6, 1e-6, rows=3 * N), schema=schema)
    assert found.nobs == pytest.approx(N / 2, rel=0.01)
    assert found.units == pytest.approx(N / 8, rel=0.01)
    missing = pd.Series(data["x"][N // 2 :]).isna().mean()
    assert found.frame().loc["x", "missing"] == pytest.approx(missing, abs=0.01)
    assert "units (who)" in found.summary().as_text()
    assert np.isnan(checked(table()).units)


def test_it_is_charged_and_kept_like_any_other_result(tmp_path: Path) -> None:
    ledger = dp.Ledger.memory(1.0, 1e-5)
    found = dp.check(table(), SCHEMA, PRIVATE, ledger, columns=["h", "x"])
    assert [entry.model for entry in ledger.entries] == ["check"]
    assert found.frame().index.tolist() == ["x", "h"]
    found.save(tmp_path / "check.json")
    again = dp.load(tmp_path / "check.json")
    pd.testing.assert_frame_equal(again.frame(), found.frame())
    assert "outside" in again.to_html()
    assert "missing" in repr(again)


@pytest.mark.parametrize("privacy", [dp.Local(1.0), dp.LabelOnly(1.0)])
def test_others_than_a_curator_are_refused_before_anything_is_charged(privacy: Any) -> None:
    ledger = dp.Ledger.memory(1.0, 1e-5)
    with pytest.raises(TrustError, match=r"check|Central"):
        dp.check(table(), SCHEMA, privacy, ledger)
    assert not ledger.entries


@pytest.mark.parametrize(
    ("columns", "error", "words"),
    [
        (["nope"], SchemaError, "not declared"),
        ([], OptionError, "No column"),
        (["x", "x"], OptionError, "once"),
    ],
)
def test_wrong_columns_are_refused(columns: list[str], error: type, words: str) -> None:
    with pytest.raises(error, match=words):
        dp.check(table(), SCHEMA, PRIVATE, columns=columns)


def test_a_declared_column_that_is_not_there_is_left_out_unless_it_is_named() -> None:
    data = {name: column for name, column in table().items() if name != "g"}
    assert set(checked(data).frame().index) == {"x", "h", "b"}
    with pytest.raises(DataError, match="'g'"):
        dp.check(data, SCHEMA, PRIVATE, columns=["g"])


def test_a_plan_says_where_noise_hides_shares() -> None:
    with pytest.warns(FeasibilityWarning, match="known to within"):
        dp.check(table(), SCHEMA, dp.Central(0.05, 1e-6))


@pytest.mark.parametrize(("part", "value"), [("counts", [1.0]), ("inputs", ["x"]), ("nobs", 0.0)])
def test_a_file_of_a_check_that_contradicts_itself_is_refused(part: str, value: Any) -> None:
    data = checked(table()).to_dict()
    data["estimate"] = {**data["estimate"], part: value}
    with pytest.raises(OptionError):
        dp.Results.from_dict(data)
