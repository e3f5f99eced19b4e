"""A range is bought from the ledger, covers what was asked, and is as coarse as it says."""

from __future__ import annotations

import warnings

import numpy as np
import pandas as pd
import polars as pl
import pytest

import dpstats as dp
from dpstats.errors import BudgetError, DataError, OptionError

PRIVACY = dp.Central(1.0, 1e-7)


def frame(values: np.ndarray) -> pd.DataFrame:
    return pd.DataFrame({"income": values})


@pytest.mark.parametrize(
    "values",
    [
        np.random.default_rng(1).lognormal(9, 1, 20_000),
        np.random.default_rng(2).normal(-5, 0.01, 20_000),
        np.random.default_rng(3).uniform(-3, 1e6, 20_000),
    ],
    ids=["lognormal", "narrow and negative", "wide"],
)
def test_a_range_holds_most_rows_and_is_not_much_wider(values: np.ndarray) -> None:
    found = dp.private_range("income", frame(values), PRIVACY, noise=dp.SeededNoise(1))
    inside = np.mean((values >= found.lower) & (values <= found.upper))
    low, high = np.quantile(values, [0.001, 0.999])
    assert inside > 0.97
    assert found.upper <= max(4 * abs(high), 2.0**-20)
    assert found.lower >= -4 * max(abs(low), 2.0**-20)


def test_the_ledger_is_charged_and_can_refuse() -> None:
    ledger = dp.Ledger.memory(1.5, 1e-6)
    dp.private_range("income", frame(np.arange(5000.0)), PRIVACY, ledger)
    assert len(ledger.entries) == 1
    with pytest.raises(BudgetError):
        dp.private_range("income", frame(np.arange(5000.0)), dp.Central(1.4, 1e-7), ledger)
    assert len(ledger.entries) == 1


def test_a_refused_purchase_reads_no_value() -> None:
    class Unread(np.ndarray):
        """A column whose values may not be looked at."""

        def __array_ufunc__(self, *args, **kwargs):
            raise AssertionError("a value was read")

    ledger = dp.Ledger.memory(0.5, 1e-6)
    with pytest.raises(BudgetError):
        dp.private_range("income", {"income": np.arange(5000.0).view(Unread)}, PRIVACY, ledger)


def test_pure_privacy_is_enough() -> None:
    found = dp.private_range("income", frame(np.arange(5000.0)), dp.Central(1.0))
    assert found.upper > 1000


def test_wild_values_are_mapped() -> None:
    values = np.r_[np.full(50, np.nan), np.full(50, np.inf), np.arange(5000.0)]
    found = dp.private_range("income", frame(values), PRIVACY)
    assert np.isfinite([found.lower, found.upper]).all()


@pytest.mark.parametrize(
    "column",
    [
        pd.array([True, False, None] * 99, dtype="boolean"),
        pd.array([1, 2, None] * 99, dtype="Int64"),
        pl.Series([True, False, None] * 99),
        [1, 2, None] * 99,
        np.r_[np.ones(297), np.longdouble("1e4000")],
        np.r_[np.ones(297), 1e308],
    ],
    ids=["boolean", "Int64", "polars", "list", "long double", "huge"],
)
def test_one_odd_value_neither_raises_nor_warns(column) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        dp.private_range("income", {"income": column}, PRIVACY)


def test_a_private_row_count_decides_nothing() -> None:
    private = dp.Central(1.0, 1e-3, neighbors="add-remove", rows=500)
    for rows in (999, 1001):  # on both sides of 1 / delta
        dp.private_range("income", frame(np.ones(rows)), private)
    with pytest.raises(OptionError, match="public guess"):
        dp.private_range("income", frame(np.ones(9)), dp.Central(1.0, neighbors="add-remove"))


@pytest.mark.parametrize(
    ("column", "data", "options", "error", "says"),
    [
        ("age", frame(np.arange(9.0)), {}, DataError, "age"),
        ("income", frame(np.array(["a"] * 9)), {}, DataError, "numeric"),
        ("income", frame(np.zeros(0)), {}, DataError, "empty"),
    ],
)
def test_bad_input_is_refused(column, data, options, error, says) -> None:
    with pytest.raises(error, match=says):
        dp.private_range(column, data, PRIVACY, **options)
