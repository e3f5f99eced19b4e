"""A fit of a subset moves with its rows within what is declared, and with nothing that is outside.

A row may leave the subset, enter it, or change within: each is one replaced row. How many are in it
is private: whatever a fit shows follows from noisy answers, also on a table with more of them.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from dpstats.mechanisms.noise import SeededNoise
from tests.contracts.cases import CASES, METHODS, SETTINGS, Case, Table, _each, _usual
from tests.contracts.spies import record, replay
from tests.contracts.test_replayed import absurd, missing, observed
from tests.contracts.test_sensitivity import CORNERS, N, moves

SUBSET = "(x2 < 4 | x2 > 8) & g != 'c'"  # corners of the columns are inside


def inside(data: Table) -> Any:
    return ((data["x2"] < 4) | (data["x2"] > 8)) & (data["g"] != "c")


def of_subset(case: Case) -> Case:
    return replace(case, subset=SUBSET)


def _serves(case: Case) -> bool:
    return case.estimator.model != "range"  # whose column nobody declared


def _default(case: Case) -> bool:
    """A method of each kind; and where persons are counted, once."""
    one = case.setting == SETTINGS[2] and (case.estimator.model, case.estimator.name) == (
        "ols",
        "newton",
    )
    return (one and not case.law) or (_usual(case) and case.setting == SETTINGS[0])


each_subset = _each(_default, [of_subset(case) for case in CASES if _serves(case)])
each_method_of_a_subset = _each(_default, [of_subset(case) for case in METHODS if _serves(case)])


def planned(case: Case, data: Any) -> Any:
    """The plan; a method that deals rows to sets of public size says that it takes no subset."""
    try:
        return case.plan(data, case.privacy(8.0, 1e-5, rows=len(data["y"])))
    except Exception as refusal:
        if "a subset" not in str(refusal):
            raise
        pytest.skip(f"refused: {refusal}")


@each_subset
def test_a_row_that_leaves_or_enters_moves_no_answer_beyond_its_sensitivity(case: Case) -> None:
    planned(case, case.table(N))
    found = moves(case)
    assert not [f for f in found if f[1] > f[2] * (1 + 1e-9)]
    # Power: a claim half as large would fail, but for some multinomial logits: rows of the search
    # need not be the worst ones inside.
    least = 0.35 if case.estimator.model == "mnlogit" else 0.5
    assert max(move / claim for _, move, claim in found) > least


@each_subset
def test_rows_outside_have_no_influence(case: Case) -> None:
    """Whatever they hold: the exact answers are the same, and so is the fit with seeded noise."""
    data = case.table(90, seed=3)
    plan = planned(case, data)
    outside = ~inside(data)
    assert 10 < outside.sum() < 80
    other = {name: column.copy() for name, column in data.items()}
    corner = CORNERS[3]
    for name in ("y", "x1"):
        other[name][outside] = np.resize([corner[name][0], np.nan, np.inf], outside.sum())
    recording = record(case, plan, data)
    again = replay(case, plan, other, recording.asked)
    for one, two in zip(recording.released, again, strict=True):
        np.testing.assert_array_equal(one.exact, two.exact)
    privacy = case.privacy(8.0, 1e-5, rows=90)
    fits = [case.fit(table, privacy, noise=SeededNoise(3)) for table in (data, other)]
    np.testing.assert_array_equal(fits[0].params, fits[1].params)
    assert not fits[0].nobs_public


@each_subset
def test_a_row_inside_has_influence(case: Case) -> None:
    """Power of the test above."""
    data = case.table(90, seed=3)
    plan = planned(case, data)
    other = {name: column.copy() for name, column in data.items()}
    other["x2"][inside(data)] = 7.0  # nobody is left
    recording = record(case, plan, data)
    again = replay(case, plan, other, recording.asked)
    assert any(
        not np.array_equal(one.exact, two.exact)
        for one, two in zip(recording.released, again, strict=True)
    )


@each_method_of_a_subset
def test_how_many_rows_are_inside_is_in_nothing_that_is_shown(case: Case) -> None:
    """Whatever is shown is a function of noisy answers: of all, some and no rows inside."""
    planned(case, case.table(90))
    data = case.table(90)
    first = observed(case, data)
    answers = first.pop("answers")
    assert answers, first
    everybody = data | {"x2": np.full(90, 1.0), "g": np.full(90, "a", dtype=object)}
    nobody = data | {"x2": np.full(90, 7.0)}
    assert observed(case, everybody)["file"] != first["file"]
    for table in (everybody, nobody, absurd(data, 90), missing(data, 90)):
        again = observed(case, table, answers)
        again.pop("answers")
        for what, shown in first.items():
            assert again.get(what) == shown, what
