"""Planning reads nothing, a refusal reads nothing, and the ledger is charged before any row."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest

from dpstats.accounting import Ledger
from dpstats.errors import BudgetError
from dpstats.holders import Curator
from dpstats.mechanisms.noise import SafeNoise, SeededNoise
from tests.contracts.cases import Case, Table, each_case, each_method, each_method_drawn
from tests.contracts.spies import order_of_events, overwrite

N = 60
pytestmark = pytest.mark.filterwarnings("ignore::dpstats.errors.FeasibilityWarning")


class Untouchable(np.ndarray):
    """A column that may be passed on, and fails when a value of it is looked at."""

    def _refuse(self, *args: Any, **kwargs: Any) -> Any:
        raise AssertionError("a value was looked at")

    __getitem__ = __iter__ = __array_ufunc__ = __array_function__ = _refuse
    tolist = astype = item = min = max = sum = mean = copy = tobytes = _refuse


def untouchable(data: Table) -> Table:
    """The numeric columns guarded; Python types of an object column may be looked at."""
    return {k: c if c.dtype == object else c.view(Untouchable) for k, c in data.items()}


def same(a: Table, b: Table) -> bool:
    return all(np.array_equal(a[name], b[name]) for name in a)


@each_case
def test_a_plan_reads_no_row_and_charges_nothing(case: Case) -> None:
    data = case.table(N)
    before = copy.deepcopy(data)
    ledger = Ledger.memory(1.0, 1e-6)
    with order_of_events() as log:
        plan = case.plan(untouchable(data), case.privacy(rows=N))
    assert log == []
    assert ledger.entries == ()
    assert ledger.spent == (0.0, 0.0)
    assert same(data, before)
    assert plan == case.plan(case.table(N, seed=8), case.privacy(rows=N))  # values do not matter


@each_case
def test_the_ledger_is_charged_before_the_first_row_is_read(case: Case) -> None:
    data = case.table(N)  # the fit that is evaluated is one of its own
    with order_of_events() as log:
        case.fit(data, ledger=Ledger.memory(2.0, 1e-5), noise=SeededNoise(1))
    assert log[0] == "charge"
    assert log.count("charge") == 1
    assert "read" in log  # power: reading is seen


@each_case
def test_nothing_before_the_charge_depends_on_a_value(
    case: Case, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Values that are replaced at the moment of the charge might as well never have been there."""
    mine, other = case.table(N), case.table(N, seed=8)
    expected = case.fit(copy.deepcopy(other), noise=SeededNoise(1))
    charge = Ledger.charge

    def charge_then_replace(self: Ledger, *args: Any, **kwargs: Any) -> Any:
        entry = charge(self, *args, **kwargs)
        overwrite(mine, other)
        return entry

    monkeypatch.setattr(Ledger, "charge", charge_then_replace)
    found = case.fit(mine, noise=SeededNoise(1))
    assert found.to_json() == expected.to_json()


@each_case
def test_a_refused_charge_reads_no_row(case: Case) -> None:
    ledger = Ledger.memory(0.5, 1e-6)
    data = case.table(N)
    case.plan(data)
    with (
        order_of_events() as log,
        pytest.raises(BudgetError, match=r"requested: .* remaining: .* difference: ") as caught,
    ):
        case.fit(untouchable(data), ledger=ledger, noise=SeededNoise(1))
    assert log == []
    assert ledger.entries == ()
    assert caught.value.requested[0] > caught.value.remaining[0]


@each_method
def test_a_fit_that_fails_stays_charged(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    ledger = Ledger.memory(2.0, 1e-5)

    def failing(self: Any, *args: Any, **kwargs: Any) -> Any:
        raise ArithmeticError

    monkeypatch.setattr(Curator, "ask", failing)
    with pytest.raises(ArithmeticError):
        case.fit(case.table(N), ledger=ledger)
    assert len(ledger.entries) == 1


@each_method
def test_every_fit_is_charged(case: Case) -> None:
    ledger = Ledger.memory(2.0, 1e-5)
    for fits in (1, 2):
        results = case.fit(case.table(N), case.privacy(0.5), ledger=ledger)
        assert len(ledger.entries) == fits
        assert results.privacy.ledger.entries == fits
    # Two peelings of one step are almost pure: their bound is a little above the sum.
    assert 0.5 < ledger.spent[0] < 1.1


@each_case
def test_a_fit_leaves_the_table_as_it_was(case: Case) -> None:
    data = case.table(N)
    before = copy.deepcopy(data)
    case.fit(data, noise=SeededNoise(1))
    assert same(data, before)


@each_method_drawn
def test_the_default_noise_cannot_be_repeated(case: Case) -> None:
    def fit() -> Any:
        np.random.seed(0)  # noqa: NPY002 - the global state must not matter
        return case.fit(case.table(N))

    def numbers(fit: Any) -> list[float]:
        return [*fit.params, fit.estimate.nobs]  # coefficients may be zero

    one = fit()
    assert not one.reproducible
    assert one.to_dict()["privacy_status"] == "private"
    # What is chosen among few may be chosen again: of a range in one of seven fits.
    assert any(not np.isclose(numbers(one), numbers(fit()), rtol=1e-6).all() for _ in range(8))
    assert type(SafeNoise().start()) is not type(SeededNoise(0).start())


@each_method
def test_seeded_noise_is_marked_wherever_it_appears(case: Case) -> None:
    one, two = (case.fit(case.table(N), noise=SeededNoise(9)) for _ in range(2))
    assert one.params.equals(two.params)
    for text in (str(one.summary()), one.to_json(), repr(one), one.to_html(), repr(one.privacy)):
        assert "NOT private" in text
