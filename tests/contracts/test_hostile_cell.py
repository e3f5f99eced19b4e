"""Class "hostile cell": whatever object a cell is, it is one row's value, and mapped."""

from __future__ import annotations

import datetime
import uuid
import warnings
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import dpstats as dp
from dpstats.errors import FeasibilityWarning
from dpstats.mechanisms.noise import SeededNoise
from dpstats.tables.coercion import number, to_codes, to_keys
from tests.contracts.cases import Case, Table, answered, each_case, each_method
from tests.contracts.hostile import (
    CELLS,
    HOSTILE,
    Chameleon,
    Unreadable,
    Whole,
    objects,
    text_of,
)
from tests.contracts.messages import MessageCase, each_local, each_message_case
from tests.contracts.spies import record, replay
from tests.contracts.test_sensitivity import ROUNDING, largest_move

N = 48
PRIVATE = ("y", "x1", "x2", "g")
ODDEST = list(HOSTILE).index("raising")
DECLARED = [
    dp.Numeric(0, 10, center=4),
    dp.Categorical(["a", "b", 1, 2.5]),
    dp.Categorical(["a", "b"], other="z"),
    dp.Boolean(),
]


def attacked(data: Table, names: tuple[str, ...], cells: list[Any]) -> Table:
    """The table with object columns; the first rows hold these cells, in each of the columns."""
    return data | {name: objects([*cells, *data[name][len(cells) :]]) for name in names}


@pytest.mark.parametrize("declared", DECLARED, ids=str)
@settings(max_examples=50, deadline=None)
@given(cells=st.lists(CELLS, min_size=1, max_size=6))
def test_a_cell_is_read_as_it_is_alone(declared: Any, cells: list[Any]) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        alone = [declared.coerce(objects([cell])) for cell in cells]
        for column in (objects(cells), cells, pd.Series(objects(cells), dtype=object)):
            clean, missing = declared.coerce(column)
            np.testing.assert_array_equal(clean, [c[0] for c, _ in alone])
            np.testing.assert_array_equal(missing, [m[0] for _, m in alone])


# cell, the number that it is (None for none), the level (None if it is missing)
MEANT = [
    (10**400, np.inf, "z"),
    (-(10**400), -np.inf, "z"),
    (10**5000, np.inf, "z"),
    ("9" * 5000, np.inf, "z"),
    (Decimal("1.50"), 1.5, "1.5"),
    (Decimal("1E+999999999"), np.inf, "z"),
    (Decimal("sNaN"), None, None),
    (Fraction(3, 2), 1.5, "1.5"),
    (Whole(3), 3.0, "3"),
    (np.float32(1.5), 1.5, "1.5"),
    (np.True_, 1.0, "1"),
    (Chameleon("1.5"), 1.5, "1.5"),
    (" 1_0 ", 10.0, "z"),
    (np.timedelta64(5, "ns"), None, None),
    (datetime.date(2020, 1, 1), None, "2020-01-01"),
    (b"1", None, "z"),
    ([1.5], None, None),
    (np.array([1.5]), None, None),
    (1j, None, None),
    (pd.NaT, None, None),
    (pd.NA, None, None),
]


@pytest.mark.parametrize(("cell", "value", "level"), MEANT, ids=[str(type(m[0])) for m in MEANT])
def test_what_a_cell_means(cell: Any, value: float | None, level: str | None) -> None:
    assert number(cell) == value if value is not None else np.isnan(number(cell))
    levels = {"1.5": 0, "3": 1, "1": 2, "2020-01-01": 3}
    code = to_codes(objects([cell]), levels, 9)[0]
    assert code == (-1 if level is None else levels.get(level, 9))


def test_equal_cells_of_other_types_are_not_read_as_one() -> None:
    said = dp.Categorical(["True", "1.0", "no"])
    for first in ([True, 1], [1, True], [1.0, True], [Chameleon("no"), "True"]):
        found = said.coerce(first)
        for i, cell in enumerate(first):
            assert said.coerce([cell])[0][0] == found[0][i]
            assert said.coerce([cell])[1][0] == found[1][i]


def test_a_cell_takes_no_place_of_another_unit() -> None:
    ids = ["a", "b", 1, 1.0, "1", uuid.UUID(int=7), datetime.date(2020, 1, 1)]
    usual = to_keys(objects(ids)).tolist()
    assert usual == ["a", "b", "1", "1", "1", str(uuid.UUID(int=7)), "2020-01-01"]
    for cell in HOSTILE.values():
        assert to_keys(objects([cell, *ids]))[1:].tolist() == usual


@pytest.mark.filterwarnings("ignore::dpstats.errors.FeasibilityWarning")
@each_method
def test_a_hostile_cell_raises_nothing_after_the_charge(case: Case) -> None:
    ledger, data = dp.Ledger.memory(2.0, 1e-5), case.table(N)
    table = attacked(data, PRIVATE, list(HOSTILE.values()))
    results = case.fit(table, noise=SeededNoise(2), ledger=ledger)
    assert answered(results)
    assert len(ledger.entries) == 1


@pytest.mark.filterwarnings("ignore::dpstats.errors.FeasibilityWarning")
@each_method
def test_text_that_is_not_utf8_is_a_missing_level(case: Case) -> None:
    data, fits = case.table(N), []
    typed = text_of(pa.string(), [b"\xff", *data["g"][1:]])
    for cells in (typed, objects([None, *data["g"][1:]])):
        ledger = dp.Ledger.memory(2.0, 1e-5)
        fits.append(case.fit(data | {"g": cells}, noise=SeededNoise(2), ledger=ledger))
        assert len(ledger.entries) == 1
    assert fits[0].to_json() == fits[1].to_json()


@each_case
def test_a_hostile_cell_moves_no_answer_beyond_its_sensitivity(case: Case) -> None:
    data = attacked(case.table(N), (*PRIVATE, "person"), [])
    recording = record(case, case.plan(data, case.privacy(8.0, 1e-5, rows=N)), data)
    factor = 2 if case.setting.neighbors.value == "add-remove" else 1  # one row out, another in
    cells = list(HOSTILE.values())
    found = []
    for i, cell in enumerate(cells[ODDEST::4] + cells[:ODDEST:7]):
        names = (*PRIVATE, "person") if case.setting.person and i % 2 else PRIVATE
        found.append(replay(case, recording.plan, attacked(data, names, [cell]), recording.asked))
    for j, one in enumerate(recording.released):
        stack = np.array([np.ravel(r[j].exact) for r in (recording.released, *found)])
        assert largest_move(stack, one.norm, False) <= factor * one.sensitivity * ROUNDING


@pytest.mark.filterwarnings("ignore::dpstats.errors.FeasibilityWarning")
@each_message_case
def test_a_hostile_cell_of_a_device_or_a_response_raises_nothing(case: MessageCase) -> None:
    table = attacked(case.table(N), case.secret, list(HOSTILE.values()))
    assert np.isfinite(case.fit(table, noise=SeededNoise(2)).params).all()
    typed = {"g": text_of(pa.string(), [b"\xff", *case.table(N)["g"][1:]])}
    assert np.isfinite(case.fit(case.table(N) | typed, noise=SeededNoise(2)).params).all()


@pytest.mark.filterwarnings("ignore::dpstats.errors.FeasibilityWarning")
@each_local
def test_a_device_sends_a_message_whatever_its_record_holds(case: MessageCase) -> None:
    data = case.table(400)
    randomizer = case.collector(data).randomizer(noise=SeededNoise(1))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        records = [dict.fromkeys(PRIVATE, cell) for cell in HOSTILE.values()]
        for held in [*records, Unreadable(), {}]:
            assert len(randomizer(held)) == randomizer.message_bytes


def test_a_device_of_arrays_sends_a_message_too() -> None:
    bounds = {"endog": (-1, 1), "exog": (-1, 1)}
    model = dp.OLS(np.zeros(4000), np.zeros((4000, 2)), bounds=bounds)
    randomizer = model.randomizer(dp.Local(4.0), noise=SeededNoise(1))
    assert 0 < randomizer.counting < 0.05
    for cell in HOSTILE.values():
        held = dict.fromkeys(("y", "x1", "x2"), cell)
        assert len(randomizer(held)) in (randomizer.message_bytes, randomizer.count_bytes)


def test_lists_and_object_arrays_are_read_cell_by_cell() -> None:
    bounds = {"endog": (-1, 1), "exog": (-1, 1), "offset": (-1, 1)}
    n, rows = 60, []
    for cell in HOSTILE.values():
        rows += [[cell, 0.5], [1.0, cell]]
    hostile = objects([c for row in rows for c in row]).reshape(-1, 2)[:n]
    for exog in (hostile, hostile.tolist()):
        for endog in (hostile[:, 0], hostile[:, 0].tolist()):
            model = dp.GLM(endog, exog, bounds, offset=endog)
            with pytest.warns(FeasibilityWarning):
                fit = model.fit(dp.Central(1.0, 1e-6), noise=SeededNoise(1))
            assert np.isfinite(fit.params).all()


@pytest.mark.parametrize(
    "cell",
    [
        pytest.param(cell, id=name, marks=() if i % 4 == 0 else pytest.mark.full)
        for i, (name, cell) in enumerate(HOSTILE.items())
    ],
)
def test_a_range_is_bought_whatever_one_cell_is(cell: Any) -> None:
    values = objects([*np.arange(300.0), cell])
    people = objects([*range(300), cell])
    ledger, of_people = (dp.Ledger.memory(3.0, 1e-6) for _ in range(2))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for column in (values, values.tolist()):
            dp.private_range("income", {"income": column}, dp.Central(1.0, 1e-7), ledger)
        table, privacy = {"income": values, "person": people}, dp.Central(1.0, 1e-7, rows=300)
        dp.private_range("income", table, privacy, of_people, unit="person", max_rows=2)
    assert (len(ledger.entries), len(of_people.entries)) == (2, 1)
