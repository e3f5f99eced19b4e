"""Centres and scales are bought once, declared in a schema, and cost later fits nothing."""

from __future__ import annotations

import math
import re
import warnings
from typing import Any

import numpy as np
import pytest

import dpstats as dp
from dpstats.errors import (
    BudgetError,
    DataError,
    DPStatsError,
    FeasibilityWarning,
    OptionError,
    SchemaError,
    TrustError,
)
from dpstats.estimators.central.scales.search import SLOTS

N = 10_000
PRIVACY = dp.Central(0.5, 1e-6)
SD = {"y": 20.9, "x": 10.0, "z": 1.0}  # of the columns, as they are drawn
CENTER = {"y": 200.0, "x": 50.0, "z": 0.0}


def rows(seed: int = 0, n: int = N) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    x, z = rng.normal(50, 10, n), rng.normal(size=n)
    y = 100 + 2 * x + 5 * z + 3 * rng.normal(size=n)
    return {"y": y, "x": x, "z": z, "g": rng.choice(["a", "b"], n), "who": np.arange(n) // 2}


def wide(half: float = 1e6, **more: Any) -> dp.Schema:
    return dp.Schema(
        {name: dp.Numeric(-half, half) for name in SD}, g=dp.Categorical(["a", "b"]), **more
    )


def bought(data: Any = None, schema: dp.Schema | None = None, **options: Any) -> Any:
    options = {"privacy": PRIVACY, "noise": dp.SeededNoise(0)} | options
    return dp.private_ranges(rows() if data is None else data, schema or wide(), **options)


def test_scales_are_near_those_of_the_columns_and_ranges_stay() -> None:
    found = bought().schema
    assert found["g"] == wide()["g"]
    for name, sd in SD.items():
        assert (found[name].lower, found[name].upper) == (-1e6, 1e6)
        assert 0.5 * sd < found[name].scale < 3 * sd
        assert abs(found[name].center - CENTER[name]) < sd


def test_later_fits_pay_nothing_and_are_as_good_as_with_the_right_schema() -> None:
    schema, squares = bought().schema, []
    for seed in range(1, 7):
        model = dp.ols("y ~ x + z + g", rows(seed), schema)
        fit = model.fit(dp.Central(1.0, 1e-6), noise=dp.SeededNoise(seed))
        assert not {m.slot for m in fit.plan.mechanisms} & set(SLOTS)
        squares += [(fit.params["x"] - 2) ** 2 / 0.003**2, (fit.params["z"] - 5) ** 2 / 0.03**2]
    # .003 and .03 are the errors without privacy: noise adds no more than half of them again.
    assert math.sqrt(np.mean(squares)) < 2.2


def test_what_was_bought_is_saved_loaded_and_shown(tmp_path: Any) -> None:
    found = bought()
    found.save(tmp_path / "scales.json")
    loaded = dp.load(tmp_path / "scales.json")
    assert loaded == found
    assert loaded.schema == found.schema
    text = str(found.summary())
    for name in SD:
        assert f"center of {name}" in text
        assert found.params[f"scale of {name}"] == found.schema[name].scale
    assert "Dep. Variable" not in text
    assert found.no_inference


@pytest.mark.parametrize(
    "change",
    [
        {"pairs": [[0.0, 1.0]]},
        {"pairs": [[0.0, -1.0], [0.0, 1.0], [0.0, 1.0]]},
        {"pairs": [[0.0, {"nonfinite": "inf"}], [0.0, 1.0], [0.0, 1.0]]},
        {"columns": ["y", "z", "x"]},
        {"columns": ["y", "x", "g"]},
    ],
    ids=str,
)
def test_a_file_that_contradicts_itself_is_refused(change: dict[str, Any]) -> None:
    data = bought().to_dict()
    data["estimate"] = {**data["estimate"], **change}
    with pytest.raises(OptionError):
        dp.Results.from_dict(data)


def test_the_ledger_is_charged_once_and_can_refuse_before_a_value_is_read() -> None:
    class Unread(np.ndarray):
        """A column whose values may not be looked at."""

        def __array_ufunc__(self, *args: Any, **kwargs: Any) -> Any:
            raise AssertionError("a value was read")

    ledger = dp.Ledger.memory(0.6, 1e-5)
    bought(ledger=ledger)
    assert [entry.label for entry in ledger.entries] == ["y, x, z"]
    with pytest.raises(BudgetError):
        bought({name: np.arange(50.0).view(Unread) for name in SD}, ledger=ledger)
    assert len(ledger.entries) == 1


def test_few_rows_are_warned_of_with_the_number_that_is_enough() -> None:
    with pytest.warns(FeasibilityWarning, match="rows suffice") as caught:
        bought(rows(n=100))
    (text,) = re.findall(r"About n=([\d,]+) rows", str(caught[0].message))
    named = int(text.replace(",", ""))
    assert named > 100
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = bought(rows(n=named))
    assert found.schema["x"].scale is not None


@pytest.mark.parametrize("neighbors", ["replace-one", "add-remove"])
@pytest.mark.parametrize("max_rows", [None, 2])
def test_persons_and_private_numbers_of_rows(neighbors: str, max_rows: int | None) -> None:
    unit = {} if max_rows is None else {"unit": "who", "max_rows": max_rows}
    private = bool(unit) or neighbors == "add-remove"
    privacy = dp.Central(2.0, 1e-6, neighbors=neighbors, rows=N if private else None)
    found = bought(schema=wide(**unit), privacy=privacy)
    assert (found.schema.unit, found.schema.max_rows) == (unit.get("unit"), max_rows)
    expected = (max_rows or 1) * math.sqrt(3 * (1 if neighbors == "add-remove" else 2))
    first = next(m for m in found.privacy.mechanisms if m.slot == SLOTS[0])
    assert first.sensitivity == pytest.approx(expected)
    assert 5 < found.schema["x"].scale < 30


def test_a_scale_that_is_not_found_is_said_and_stays_undeclared() -> None:
    found = bought(rows() | {"z": np.full(N, 0.123)})
    assert found.schema["z"] == wide()["z"]
    assert found.schema["x"].scale is not None
    assert "scale of 'z' could not be found" in " ".join(str(found.summary()).split())
    assert np.isnan(found.params["scale of z"])


def test_values_that_were_moved_or_missing_are_said() -> None:
    data = rows()
    data["x"] = np.where(np.arange(N) % 5 == 0, 1e9, data["x"])
    data["z"] = np.where(np.arange(N) % 8 == 0, np.nan, data["z"])
    found = bought(data)
    assert found.released["share outside"]["x"] == pytest.approx(0.2, abs=0.03)
    text = " ".join(str(found.summary()).split())
    assert "values of 'x' were outside the declared range" in text
    assert "values of 'z' were missing" in text


def test_columns_with_a_scale_or_not_in_the_table_are_left_alone() -> None:
    schema = wide().replaced({"x": dp.Numeric(0, 1e6, scale=9), "there": dp.Numeric(0, 1)})
    found = bought(schema=schema)
    assert list(found.estimate.columns) == ["y", "z"]
    assert {n: found.schema[n] for n in ("x", "there", "g")} == {
        n: schema[n] for n in ("x", "there", "g")
    }


@pytest.mark.parametrize("name", ["it's", "a~b", "f(", "a`b", "größe", "np", "a b", "Intercept"])
def test_a_column_may_have_any_name(name: str) -> None:
    found = bought({name: rows()["x"]}, dp.Schema({name: dp.Numeric(0, 1e5)}))
    assert 5 < found.schema[name].scale < 30


@pytest.mark.parametrize(
    ("change", "error", "says"),
    [
        ({"privacy": dp.Local(1.0)}, TrustError, "local"),
        ({"privacy": dp.LabelOnly(1.0)}, TrustError, "Central"),
        ({"privacy": dp.Central(1.0)}, OptionError, "delta"),
        ({"privacy": 1.0}, OptionError, "guarantee"),
        ({"schema": {"x": (0, 1)}}, SchemaError, "schema"),
        ({"schema": dp.Schema(g=dp.Categorical(["a", "b"]))}, OptionError, "No column"),
        ({"schema": dp.Schema(g=dp.Numeric(0, 1))}, DataError, "'g'"),
        ({"data": rows() | {"x": rows()["x"][:5]}}, DataError, "lengths"),
    ],
)
def test_what_cannot_be_bought_is_not_charged(
    change: dict[str, Any], error: type[DPStatsError], says: str
) -> None:
    ledger = dp.Ledger.memory(2.0, 1e-5)
    with pytest.raises(error, match=says):
        bought(**{"ledger": ledger} | change)
    assert not ledger.entries
