"""Private values that are merely wrong are mapped into the schema; nothing is raised or said."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from dpstats.accounting import Ledger
from dpstats.errors import DataError
from dpstats.mechanisms.noise import SeededNoise
from tests.contracts.cases import OF_LEVELS, Table, warned_before
from tests.contracts.messages import MessageCase, each_message_case
from tests.contracts.test_bad_values import VALUES
from tests.contracts.test_bad_values import N as ROWS
from tests.grids import grid


def private_only(case: MessageCase, data: Table, change: Callable[[Table], Table]) -> Table:
    """The change, of private columns."""
    with np.errstate(all="ignore"):
        changed = change(data)
    return data | {name: changed[name] for name in case.secret}


def outcome(case: MessageCase, data: Table) -> tuple[Any, list[str]]:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        results = case.fit(data, noise=SeededNoise(2))
    return results, warned_before(caught, results)


def numbers(results: Any) -> bool:
    """Whether coefficients are numbers, and standard errors too where there are any."""
    inferred = results.no_inference or (results.bse[results.params != 0] > 0).all()
    return bool(np.isfinite(results.params).all() and inferred)


SHARPEST = ("inf", "-inf", "null", "text for numbers", "all")


@pytest.mark.parametrize("names", grid([SHARPEST, VALUES], lambda v: v is SHARPEST), ids=len)
@each_message_case
def test_wrong_values_raise_nothing_and_warn_nothing(case: MessageCase, names: Any) -> None:
    data = case.table(ROWS)
    usual = outcome(case, data)[1]
    seen = []
    for name in names:
        table = private_only(case, data, VALUES[name])
        if any(table[name] is not data[name] for name in case.secret):
            results, said = outcome(case, table)
            assert said == usual
            assert numbers(results)
            seen.append(results.to_json())
    least = 1 if case.estimator.model in OF_LEVELS else 2
    assert len(set(seen)) > least  # power: the values were seen


@each_message_case
def test_nothing_but_wrong_values_is_still_an_answer(case: MessageCase) -> None:
    data = case.table(ROWS)
    nothing = {
        "y": np.full(ROWS, np.nan),
        "x1": np.full(ROWS, np.inf),
        "x2": np.full(ROWS, -np.inf),
        "g": np.full(ROWS, None, dtype=object),
    }
    results, _ = outcome(case, data | {name: nothing[name] for name in case.secret})
    assert np.isfinite(results.params).all()


@pytest.mark.parametrize(
    "odd",
    [
        np.array(["CANARY"] * ROWS),
        np.full(ROWS, "2020-01-01", dtype="datetime64[D]"),
        np.full(ROWS, 1j),
        np.full((ROWS, 2), 1.0),
    ],
    ids=["text", "dates", "complex", "two columns"],
)
@each_message_case
def test_wrong_types_are_refused_by_name_before_anything_is_charged(
    case: MessageCase, odd: Any
) -> None:
    if case.estimator.model in OF_LEVELS:
        pytest.skip("reads no number")
    ledger = Ledger.memory(2.0, 1e-5)
    with pytest.raises(DataError, match="'y'") as caught:
        case.fit(case.table(ROWS) | {"y": odd}, ledger=ledger)
    assert "CANARY" not in str(caught.value)
    assert ledger.entries == ()
