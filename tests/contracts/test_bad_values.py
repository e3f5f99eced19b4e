"""Values that are merely wrong are mapped into the schema; nothing is raised, nothing is said."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pytest

from dpstats.accounting import Ledger
from dpstats.errors import DataError
from dpstats.mechanisms.noise import SeededNoise
from tests.contracts.cases import (
    METHODS,
    OF_LEVELS,
    Case,
    Table,
    answered,
    each_case,
    each_method,
    one_of_each_kind,
    warned_before,
)
from tests.grids import grid

N = 60


def numbers(value: Any) -> Callable[[Table], Table]:
    """Every third entry of every numeric column is `value`."""

    def change(data: Table) -> Table:
        changed = {k: data[k].copy() for k in ("y", "x1", "x2")}
        for column in changed.values():
            column[::3] = value
        return data | changed

    return change


def cast(dtype: Any) -> Callable[[Table], Table]:
    def change(data: Table) -> Table:
        return data | {k: np.asarray(data[k]).astype(dtype) for k in ("y", "x1", "x2")}

    return change


def levels(values: list[Any]) -> Callable[[Table], Table]:
    def change(data: Table) -> Table:
        return data | {"g": np.resize(np.array(values, dtype=object), N)}

    return change


def nullable(data: Table) -> Table:
    return data | {k: pd.array(data[k]).astype("Float64") for k in ("y", "x1", "x2")}


def with_null(data: Table) -> Table:
    changed = nullable(data)
    for k in ("y", "x1", "x2"):
        changed[k][::4] = pd.NA
    return changed


def objects(data: Table) -> Table:
    changed = {k: data[k].astype(object) for k in ("y", "x1", "x2")}
    for column in changed.values():
        column[::4] = None
    return data | changed


def text(data: Table) -> Table:
    words = np.resize(np.array(["0.5", "much", "", "nan", "1e999", "-inf"], dtype=object), N)
    return data | {"x1": words, "x2": words}


VALUES: dict[str, Callable[[Table], Table]] = {
    **{f"{v}": numbers(v) for v in (np.nan, np.inf, -np.inf, 1e308, -1e308, 5e-324, -0.0)},
    **{f"{np.dtype(t)}": cast(t) for t in (np.float32, np.float16, np.int8, np.uint64, bool)},
    "nullable": nullable,
    "null": with_null,
    "objects with None": objects,
    "text for numbers": text,
    "undeclared levels": levels(["zz", "b", ""]),
    "missing levels": levels(["a", None, "b"]),
    "numbers for levels": levels([1, 2, 3]),
    "booleans for levels": levels([True, False]),
    "all": lambda data: numbers(np.inf)(levels(["zz"])(data)),
}


def outcome(case: Case, data: Table) -> tuple[Any, list[str]]:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        results = case.fit(data, noise=SeededNoise(2))
    return results, warned_before(caught, results)


@functools.cache
def said_of_good_values(case: Case) -> list[str]:
    return outcome(case, case.table(N))[1]


SHARPEST = ("inf", "null", "text for numbers", "all")


def by_default(wrong: tuple[Case, str]) -> bool:
    """One method of each kind meets the sharpest, every method all at once."""
    case, name = wrong
    return name == "all" or (name in SHARPEST and one_of_each_kind(case))


@pytest.mark.parametrize(
    ("case", "name"),
    grid([(case, name) for case in METHODS for name in VALUES], by_default),
    ids=str,
)
def test_wrong_values_raise_nothing_and_warn_nothing(case: Case, name: str) -> None:
    with np.errstate(all="ignore"):
        data = VALUES[name](case.table(N))
    try:
        results, said = outcome(case, data)
    except DataError as refusal:  # by the type of a column, which is public, before the charge
        if name != "bool" or "needs number" not in str(refusal):
            raise
        return
    assert said == said_of_good_values(case)
    assert answered(results)
    assert results.no_inference or (results.bse > 0).all()


@each_case
def test_nothing_but_wrong_values_is_still_an_answer(case: Case) -> None:
    data = {
        "y": np.full(N, np.nan),
        "x1": np.full(N, np.inf),
        "x2": np.full(N, -np.inf),
        "g": np.full(N, None, dtype=object),
        "person": np.full(N, 7),
    }
    results, _ = outcome(case, data)
    assert answered(results)


@pytest.mark.filterwarnings("ignore::dpstats.errors.FeasibilityWarning")
@pytest.mark.parametrize(
    "odd",
    [
        np.array(["text"] * N),
        np.full(N, "2020-01-01", dtype="datetime64[D]"),
        np.full(N, 1j),
        np.full((N, 2), 1.0),
    ],
    ids=["text", "dates", "complex", "two columns"],
)
@each_method
def test_wrong_types_are_refused_by_name_before_anything_is_charged(case: Case, odd: Any) -> None:
    if case.estimator.model in OF_LEVELS:
        pytest.skip("reads no number")
    ledger = Ledger.memory(2.0, 1e-5)
    with pytest.raises(DataError, match="'y'"):
        case.model(case.table(N) | {"y": odd}).fit(
            case.privacy(rows=N), ledger, method=case.estimator.name, **case.options
        )
    assert ledger.entries == ()
