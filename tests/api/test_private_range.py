"""A range is bought from the ledger, covers what was asked, and is as coarse as it says."""

from __future__ import annotations

import math
import warnings
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest

import dpstats as dp
from dpstats.errors import BudgetError, DataError, DPStatsError, OptionError, TrustError
from dpstats.holders import Curator
from dpstats.models.ranges import range_model

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


@pytest.mark.parametrize("seed", range(5))
def test_with_little_noise_it_is_the_pair_of_ends_that_is_worth_most(seed: int) -> None:
    """Brute force over all pairs; the noise is a thousandth of what separates the best of them."""
    epsilon, rng = 1e4, np.random.default_rng(seed)
    values = rng.choice([-1.0, 1.0], 300) * rng.lognormal(0, 8, 300)
    ends = [0.0, *(sign * 2.0**k for k in range(-20, 61) for sign in (-1, 1))]

    def worth(lower: float, upper: float) -> float:
        doublings = (np.arcsinh(2.0**20 * upper) - np.arcsinh(2.0**20 * lower)) / np.log(2)
        return -np.sum((values < lower) | (values > upper)) - 6 / epsilon * doublings

    best = max(((a, b) for a in ends for b in ends if a < b), key=lambda pair: worth(*pair))
    found = dp.private_range("income", frame(values), dp.Central(epsilon), noise=dp.SeededNoise(1))
    assert found.lower <= best[0] < best[1] <= found.upper
    for end, bought in zip(best, (found.lower, found.upper), strict=True):
        assert abs(bought) <= 1.1 * abs(end)
        assert bought == float(f"{bought:.1e}")  # of two digits


@pytest.mark.parametrize("name", ["it's", "a~b", "f(", "a`b", "tail\\", "größe", "np", "a b"])
def test_a_column_may_have_any_name(name: str) -> None:
    seeded, ledger = dp.SeededNoise(1), dp.Ledger.memory(2.0, 1e-6)
    found = dp.private_range(name, {name: np.arange(5000.0)}, PRIVACY, ledger, noise=seeded)
    assert found == dp.private_range("x", {"x": np.arange(5000.0)}, PRIVACY, noise=seeded)
    assert [entry.label for entry in ledger.entries] == [name]


def test_the_results_behind_a_range_are_read_from_their_file() -> None:
    model = range_model("income", frame(np.arange(5000.0)), None, None)
    fit = model.fit(PRIVACY, noise=dp.SeededNoise(1))
    assert dp.Results.from_json(fit.to_json()) == fit
    bought = dp.private_range("income", frame(np.arange(5000.0)), PRIVACY, noise=dp.SeededNoise(1))
    assert fit.params.tolist() == [16.0, 8192.0]
    assert (bought.lower, bought.upper) == (16.0, 8200.0)
    for ends in ([1.0], [2.0, 1.0], [0.0, math.nan], "01"):
        data = fit.to_dict()
        data["estimate"] = {**data["estimate"], "params": ends}
        with pytest.raises(OptionError):
            dp.Results.from_dict(data)


def test_a_range_is_bought_from_a_curator_alone() -> None:
    ledger = dp.Ledger.memory(2.0, 1e-6)
    for privacy in (dp.Local(1.0), dp.LabelOnly(1.0)):
        with pytest.raises(TrustError, match="'range'"):
            dp.private_range("income", frame(np.arange(50.0)), privacy, ledger)  # type: ignore[arg-type]
    assert not ledger.entries


def test_the_ledger_is_charged_and_can_refuse() -> None:
    ledger = dp.Ledger.memory(1.5, 1e-6)
    dp.private_range("income", frame(np.arange(5000.0)), PRIVACY, ledger)
    assert len(ledger.entries) == 1
    with pytest.raises(BudgetError):
        dp.private_range("income", frame(np.arange(5000.0)), dp.Central(1.4, 1e-7), ledger)
    assert len(ledger.entries) == 1


def test_the_ledger_records_whether_the_noise_was_seeded() -> None:
    ledger = dp.Ledger.memory(3.0, 1e-6)
    for noise in (None, dp.SeededNoise(1)):
        dp.private_range("income", frame(np.arange(5000.0)), PRIVACY, ledger, noise=noise)
    assert [entry.reproducible for entry in ledger.entries] == [False, True]


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


PEOPLE = dp.Central(1.0, 1e-7, rows=20_000)


def of_people(rows_of_the_rich: int = 1) -> pd.DataFrame:
    rng = np.random.default_rng(5)
    income = np.r_[rng.lognormal(9, 0.5, 20_000), np.full(rows_of_the_rich, 1e15)]
    person = np.r_[np.repeat(np.arange(10_000), 2), np.full(rows_of_the_rich, 10_001)]
    return pd.DataFrame({"income": income, "person": person})


def test_a_ledger_of_people_sells_ranges_to_people_alone() -> None:
    ledger = dp.Ledger.memory(2.5, 1e-6)
    found = dp.private_range("income", of_people(), PEOPLE, ledger, unit="person", max_rows=2)
    assert 2e4 < found.upper < 1e6
    with pytest.raises(DPStatsError, match="unit"):
        dp.private_range("income", of_people(), PRIVACY, ledger)
    dp.private_range("income", of_people(), PEOPLE, ledger, unit="person", max_rows=2)
    assert len(ledger.entries) == 2


@pytest.mark.parametrize("name", ["value", "income"])
def test_a_unit_may_have_any_name(name: str) -> None:
    data = {name: np.arange(3000) // 3, "x": np.arange(3000.0)}
    privacy = dp.Central(1.0, rows=3000)
    assert dp.private_range("x", data, privacy, unit=name, max_rows=3).upper > 500


def test_rows_of_one_person_beyond_the_declared_number_move_nothing() -> None:
    # 2,000 rows of one person at 10^15 would pull the upper end there, were they all counted.
    def upper(**options: Any) -> float:
        seeded = dp.SeededNoise(3)
        data = of_people(rows_of_the_rich=2_000)
        return dp.private_range("income", data, PEOPLE, noise=seeded, **options).upper

    assert upper(unit="person", max_rows=2) < 1e6
    assert upper() > 1e14


def test_noise_grows_with_the_rows_of_a_person(monkeypatch: pytest.MonkeyPatch) -> None:
    found = []
    ask = Curator.ask

    def spied(self: Curator, query: Any, slot: str, part: int = 0) -> Any:
        answer = ask(self, query, slot, part)
        found.extend(release.sensitivity for release in self.transcript)
        return answer

    monkeypatch.setattr(Curator, "ask", spied)
    for rows in (1, 4):
        dp.private_range("income", of_people(), PEOPLE, unit="person", max_rows=rows)
    assert found[1] == 4 * found[0]


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"unit": "person"}, "both"),
        ({"max_rows": 2}, "both"),
        ({"unit": "nobody", "max_rows": 2}, "nobody"),
        ({"unit": "person", "max_rows": 0}, "max_rows"),
    ],
)
def test_a_unit_is_declared_as_in_a_schema(options: dict[str, Any], says: str) -> None:
    ledger = dp.Ledger.memory(2.5, 1e-6)
    with pytest.raises(DPStatsError, match=says):
        dp.private_range("income", of_people(), PEOPLE, ledger, **options)
    assert not ledger.entries


@pytest.mark.parametrize(
    ("data", "options"),
    [
        ({}, {"noise": 7}),
        ({"person": np.arange(7)}, {"unit": "person", "max_rows": 2}),
    ],
    ids=["noise", "length"],
)
def test_what_cannot_be_sold_is_not_charged(data: dict[str, Any], options: dict[str, Any]) -> None:
    ledger = dp.Ledger.memory(2.5, 1e-6)
    table = {name: of_people()[name].to_numpy() for name in ("income", "person")} | data
    with pytest.raises(DPStatsError):
        dp.private_range("income", table, PEOPLE, ledger, **options)
    assert not ledger.entries
    with pytest.raises(DPStatsError, match="ledger"):
        dp.private_range("income", of_people(), PEOPLE, ledger="a")  # type: ignore[arg-type]


def test_with_a_unit_the_number_of_rows_is_private() -> None:
    with pytest.raises(OptionError, match="public guess"):
        dp.private_range("income", of_people(), PRIVACY, unit="person", max_rows=2)


@pytest.mark.parametrize(
    ("column", "data", "options", "error", "says"),
    [
        ("age", frame(np.arange(9.0)), {}, DataError, "age"),
        ("income", frame(np.array(["a"] * 9)), {}, DataError, "'income' has type text"),
        ("income", frame(np.zeros(0)), {}, DataError, "no rows"),
    ],
)
def test_bad_input_is_refused(column, data, options, error, says) -> None:
    with pytest.raises(error, match=says):
        dp.private_range(column, data, PRIVACY, **options)
