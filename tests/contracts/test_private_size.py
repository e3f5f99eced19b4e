"""Where the number of rows is private no table is too small or too large to be answered."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp

import dpstats as dp
from dpstats.accounting.events import Gaussian, Selection
from dpstats.errors import DataError
from dpstats.holders import rows as rows_module
from dpstats.holders.rows import rounded_total
from dpstats.mechanisms.lots import Lots
from dpstats.mechanisms.noise import SeededNoise
from dpstats.mechanisms.release import ROUNDING, _steps, release
from tests.contracts.cases import OF_ONE_COLUMN, SETTINGS, Case, Table, each_case, each_case_drawn
from tests.contracts.spies import record, releases, replay
from tests.queries.cases import BY_VALUE

N = 48
PRIVATE = dp.Central(1.0, 1e-6, neighbors="add-remove", rows=500)


def no_one(data: Table) -> Table:
    return {name: column[:0] for name, column in data.items()}


def nothing(data: Table) -> Table:
    """One row that misses everything but its person."""
    return {
        name: np.full(1, {"g": None, "person": 0}.get(name, np.nan), column.dtype)
        for name, column in data.items()
    }


@each_case
def test_no_row_is_answered_as_one_that_contributes_nothing(case: Case) -> None:
    """But where missing values are counted, as one is: nobody's is not."""
    data = case.table(N)
    plan = case.plan(data, case.privacy(8.0, 1e-5, rows=N))
    if case.setting == SETTINGS[0]:
        with pytest.raises(DataError, match="no rows"):
            case.fit(no_one(data))
        return
    recording = record(case, plan, nothing(data))
    again = replay(case, plan, no_one(data), recording.asked)
    for asked, one, other in zip(recording.asked, recording.released, again, strict=True):
        if isinstance(asked.query, BY_VALUE):
            move = float(np.linalg.norm(one.exact - other.exact, ord=one.norm))
            assert move <= one.sensitivity * (1 + 1e-9)
        else:
            np.testing.assert_array_equal(one.exact, other.exact)


@pytest.mark.filterwarnings("ignore::dpstats.errors.FeasibilityWarning")
@each_case
def test_a_fit_of_no_rows_is_that_of_an_incomplete_one(case: Case) -> None:
    if case.setting == SETTINGS[0] or case.estimator.model not in (*OF_ONE_COLUMN, "ols"):
        pytest.skip("the number of rows is public, or the same questions are asked")
    data, ledger = case.table(N), dp.Ledger.memory(9.0, 1e-4)
    said = [
        case.fit(
            t, case.privacy(delta=1e-6, rows=N), noise=SeededNoise(3), ledger=ledger
        ).params.tolist()
        for t in (no_one(data), nothing(data))
    ]
    assert said[0] == said[1]
    assert len(ledger.entries) == 2


@pytest.mark.parametrize("delta", [0.0, 1e-6], ids=["pure", "approximate"])
def test_nobody_is_a_neighbour_of_one_person(delta: float) -> None:
    """Where missing values are counted, a person is one in another cell than nobody is in none."""
    privacy = dp.Central(1.0, delta, neighbors="add-remove", rows=100)
    schema = dp.Schema(g=dp.Categorical(["a", "b"]))
    made = []
    for rows in ([], ["a"], [None]):
        data = pd.DataFrame({"g": np.array(rows, dtype=object)})
        with releases() as seen:
            dp.proportion("g", data, schema).fit(privacy, noise=SeededNoise(1))
        made.append(seen)
    for nobody, *persons in zip(*made, strict=True):
        moves = [np.linalg.norm(nobody.exact - one.exact, ord=nobody.norm) for one in persons]
        assert max(moves) <= nobody.sensitivity * (1 + 1e-9)
        assert max(moves) > 0.9 * nobody.sensitivity


BOUNDS = {"endog": (-1, 1), "exog": (-1, 1)}
OF_ARRAYS: dict[str, Callable[[int], Any]] = {
    "dense": lambda n: np.zeros((n, 3)),
    "sparse": lambda n: sp.csr_array((n, 3)),
}


@pytest.mark.filterwarnings("ignore::dpstats.errors.FeasibilityWarning")
@pytest.mark.parametrize("exog", OF_ARRAYS.values(), ids=list(OF_ARRAYS))
def test_empty_arrays_are_answered(exog: Callable[[int], Any]) -> None:
    one, other = (
        dp.GLM(y, exog(y.size), BOUNDS | {"offset": (-1, 1)}, offset=y).fit(
            PRIVATE, noise=SeededNoise(1)
        )
        for y in (np.zeros(0), np.full(1, np.nan))
    )
    assert one.params.tolist() == other.params.tolist()


@pytest.mark.parametrize("unit", [{}, {"unit": "person", "max_rows": 2}], ids=["row", "person"])
def test_a_range_of_nobody_is_sold(unit: dict[str, Any]) -> None:
    column = pd.DataFrame({"income": [math.nan], "person": [1]})
    found = [
        dp.private_range("income", t, PRIVATE, noise=SeededNoise(1), **unit)
        for t in (column, column[:0])
    ]
    assert found[0] == found[1]


# -- the largest size ------------------------------------------------------------------------------


@each_case_drawn
def test_a_table_beyond_what_is_added_at_once_has_the_same_answers(
    case: Case, monkeypatch: Any
) -> None:
    """2^26 rows in tests are as many as are said to be added at once: here a few blocks."""
    data = case.table(300)
    monkeypatch.setattr(rows_module.View, "rows_per_block", property(lambda view: 16))
    recording = record(case, case.plan(data, case.privacy(8.0, 1e-5, rows=300)), data)
    monkeypatch.setattr(rows_module, "MAX_ROWS", 64)
    for table in (data, {name: np.concatenate([c, c[:1]]) for name, c in data.items()}):
        again = replay(case, recording.plan, table, recording.asked)
        if table is data:
            for one, other in zip(recording.released, again, strict=True):
                np.testing.assert_array_equal(one.exact, other.exact)


def test_totals_beyond_int64_are_exact_before_they_are_rounded(monkeypatch: Any) -> None:
    class Huge:
        """A query whose rows contribute 2^61 each, and one."""

        geometry, by_lots = None, False

        def total(self, block: Any) -> Any:
            return np.array([2**61 + 1], dtype=np.int64) * len(block.y)

    monkeypatch.setattr(rows_module.View, "rows_per_block", property(lambda view: 1))
    monkeypatch.setattr(rows_module, "MAX_ROWS", 2)
    table = (np.zeros(9), np.zeros((9, 1)))
    design = dp.OLS(*table, BOUNDS).design
    held = rows_module.ResidentRows(
        design.source(table), design, 1, Lots(SeededNoise(1).start(), 9)
    )
    (total,) = held._totals([Huge()], held.everything, None)
    assert total.tolist() == [9 * (2**61 + 1)]
    assert rows_module.rounded_total(total).tolist() == [float(9 * (2**61 + 1))]


@pytest.mark.parametrize("log_rows", [10, 26, 27, 30, 30.99])
@pytest.mark.parametrize("sensitivity", [1.0, 0.75, 1.999, 2.0**-40 / 3])
def test_neighbours_stay_as_near_as_is_said_up_to_2_to_the_31_rows(
    log_rows: float, sensitivity: float
) -> None:
    """Totals are exact integers, rounded once to float64, and once more to steps of noise."""
    rng, rows = np.random.default_rng(2), int(2**log_rows)
    unit = 2.0 ** (np.floor(np.log2(sensitivity)) - 20)  # of a contribution, a power of two
    most = int(sensitivity / unit)
    farthest = 0.0
    for _ in range(500):
        others = int(rng.integers(most // 2 * (rows - 1), most * (rows - 1), endpoint=True))
        ends = [rounded_total(np.array([others + mine], dtype=object)) * unit for mine in (0, most)]
        (low, grid), (high, _) = (_steps(end, sensitivity) for end in ends)
        farthest = max(farthest, float(abs(high - low)[0]) * grid)
        assert abs(int(high[0])) < 2**62  # not held: half of int64 is left for noise
    assert farthest <= ROUNDING * sensitivity
    assert farthest >= (1 - 2**-18) * sensitivity  # the two ends are neighbours at their farthest


@pytest.mark.parametrize("event", [Gaussian(1.0), Selection(1.0)], ids=["sum", "choice"])
@pytest.mark.parametrize("sign", [1, -1])
def test_an_answer_of_any_size_is_released(event: Any, sign: int) -> None:
    kind, norm = ("choice", "linf") if isinstance(event, Selection) else ("sum", "l2")
    for size in (2.0**31, 2.0**40, 2.0**90):
        answer = sign * size * np.array([1.0, 2.0])
        noisy, _ = release(answer, 1.0, event, SeededNoise(1).start(), kind, norm)
        if kind == "sum":
            assert (np.sign(noisy) == sign).all()
            assert (np.abs(noisy) <= 2.0**33).all()


def test_holding_an_answer_to_its_steps_moves_no_two_apart() -> None:
    """Neighbours on both sides of the largest answer: nearer to each other than they were."""
    edge = 2.0**32
    for low in np.linspace(edge - 2, edge + 2, 41):
        one, grid = _steps(np.array([low]), 1.0)
        other, _ = _steps(np.array([low + 1.0]), 1.0)
        assert 0 <= (other - one)[0] * grid <= 1.0
