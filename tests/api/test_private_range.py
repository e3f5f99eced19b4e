"""A range is bought from the ledger, covers what was asked, and is as coarse as it says."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

import dpstats as dp
from dpstats.errors import BudgetError, DataError

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
    class Guarded:
        """A column whose values may not be looked at."""

        dtype = np.dtype("float64")

        def to_numpy(self) -> np.ndarray:
            return np.arange(5000.0).view(Unread)

    class Unread(np.ndarray):
        def __array_ufunc__(self, *args, **kwargs):
            raise AssertionError("a value was read")

    ledger = dp.Ledger.memory(0.5, 1e-6)
    with pytest.raises(BudgetError):
        dp.private_range("income", {"income": Guarded()}, PRIVACY, ledger)


def test_pure_privacy_is_enough() -> None:
    found = dp.private_range("income", frame(np.arange(5000.0)), dp.Central(1.0))
    assert found.upper > 1000


def test_wild_values_are_mapped() -> None:
    values = np.r_[np.full(50, np.nan), np.full(50, np.inf), np.arange(5000.0)]
    found = dp.private_range("income", frame(values), PRIVACY)
    assert np.isfinite([found.lower, found.upper]).all()


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
