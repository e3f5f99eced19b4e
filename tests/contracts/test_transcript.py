"""What ran is what was planned, what was charged, and the same on every table."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import pytest

from dpstats.accounting import Ledger
from dpstats.accounting.events import Event, Parallel
from dpstats.mechanisms.noise import SeededNoise
from dpstats.models import arrays
from tests.contracts.cases import (
    MODELS,
    Case,
    Table,
    each_case,
    each_case_drawn,
    each_case_split,
    each_method,
)
from tests.contracts.spies import record
from tests.queries.cases import CELLS

N = 60
pytestmark = pytest.mark.filterwarnings("ignore::dpstats.errors.FeasibilityWarning")


@each_case
def test_the_mechanisms_that_ran_equal_the_plan_and_the_ledger_entry(case: Case) -> None:
    data = case.table(N)
    ledger = Ledger.memory(2.0, 1e-5)
    results = case.fit(data, ledger=ledger, noise=SeededNoise(1))
    plan = case.plan(data)
    (entry,) = ledger.entries
    assert entry.events == plan.events == results.plan.events
    assert (entry.epsilon, entry.delta) == (1.0, 1e-6)
    assert (entry.model, entry.method) == (case.estimator.model, case.estimator.name)
    assert entry.neighbors == case.setting.neighbors.value
    assert entry.unit == ("person" if case.setting.person else "record")
    planned = [(m.slot, part) for m in plan.mechanisms for part in range(m.parts)]
    assert sorted((m.slot, m.part) for m in results.privacy.mechanisms) == sorted(planned)


def flat(events: Iterable[Event]) -> Iterator[Event]:
    for event in events:
        if isinstance(event, Parallel):
            for branch in event.branches:
                yield from flat(branch)
        else:
            yield event


@each_case_split
def test_every_mechanism_is_charged(case: Case) -> None:
    plan = case.plan(case.table(N))
    planned = Counter(m.event for m in plan.mechanisms)
    assert Counter(flat(plan.events)) == planned


@each_case
def test_every_release_has_the_noise_that_was_planned(case: Case) -> None:
    data = case.table(N)
    plan = case.plan(data)
    recording = record(case, plan, data)
    for asked, one in zip(recording.asked, recording.released, strict=True):
        assert one.event == plan.mechanism(asked.slot).event
        planned = one.noise_per_sensitivity * one.sensitivity
        assert one.scale == pytest.approx(planned, rel=1e-4)
        assert one.scale >= planned * (1 - 1e-12)


@each_case_drawn
def test_the_transcript_is_what_ran(case: Case) -> None:
    data = case.table(N)
    results = case.fit(data, noise=SeededNoise(1))
    recording = record(case, case.plan(data), data, seed=1)
    shown = [(m.slot, m.part, m.query, m.sensitivity, m.scale) for m in results.privacy.mechanisms]
    assert shown == [
        (a.slot, a.part, a.query.name, r.sensitivity, r.scale)
        for a, r in zip(recording.asked, recording.released, strict=True)
    ]


def everything_missing(data: Table) -> Table:
    blank = {k: np.full(N, np.nan) for k in ("y", "x1", "x2")}
    return data | blank | {"g": np.full(N, None, dtype=object)}


def constant(data: Table) -> Table:
    return data | {"y": np.full(N, 3.0), "x1": np.zeros(N), "x2": np.full(N, 10.0), "g": ["a"] * N}


def extreme(data: Table) -> Table:
    signs = np.where(np.arange(N) % 2, 1e308, -np.inf)
    return data | {"y": signs, "x1": -signs, "x2": signs, "g": ["undeclared"] * (N - 1) + ["c"]}


def exact_fit(data: Table) -> Table:
    return data | {"y": data["x1"] + 1.0}


WILD = [everything_missing, constant, extreme, exact_fit]


def questions(case: Case, data: Any) -> list[Any]:
    recording = record(case, case.plan(data), data)
    # Which cells are asked for next follows from what was released of those before.
    return [
        (*a.shape, () if set(CELLS).intersection(a.shape) else r.exact.shape, r.event)
        for a, r in zip(recording.asked, recording.released, strict=True)
    ]


@each_case_drawn
def test_every_table_is_asked_the_same_questions(case: Case) -> None:
    data = case.table(N)
    usual = questions(case, data)
    for wild in WILD:
        assert questions(case, wild(data)) == usual


@each_case_drawn
def test_one_row_is_asked_everything_that_was_planned(case: Case) -> None:
    data = {name: column[:1] for name, column in case.table(N).items()}
    plan = case.plan(data, case.privacy(1.0, 1e-6, rows=N))
    recording = record(case, plan, data)
    assert {a.slot for a in recording.asked} == {m.slot for m in plan.mechanisms}
    # Scales that are not found are nan.
    assert np.isfinite(getattr(recording.estimate, "params", recording.estimate.nobs)).all()


@each_method
def test_arrays_without_a_schema_are_held_to_the_same_contract(case: Case) -> None:
    if case.estimator.model != "ols" or case.kind in (
        MODELS["completed ols"],
        MODELS["gappy ols"],
    ):
        pytest.skip("takes no matrix")
    data = case.table(N)
    others = [data["x1"], data["x2"], data["g"] == "b", data["g"] == "c"]
    exog = np.column_stack([np.ones(N), *others])
    bounds = {"endog": (-8, 8), "exog": [(1, 1), (-1, 1), (0, 10), (0, 1), (0, 1)]}
    ledger = Ledger.memory(2.0, 1e-5)
    results = arrays.OLS(data["y"], exog, bounds).fit(
        case.privacy(), ledger, method=case.estimator.name, **case.options, noise=SeededNoise(1)
    )
    (entry,) = ledger.entries
    assert entry.events == results.plan.events
    assert entry.label == "y on 5 columns"
    ran = [(m.slot, m.part) for m in results.privacy.mechanisms]
    planned = [(m.slot, part) for m in results.plan.mechanisms for part in range(m.parts)]
    assert sorted(ran) == sorted(planned)
    assert np.isfinite(results.params).all()


@each_method
def test_asking_twice_gives_the_same_plan(case: Case) -> None:
    data = case.table(N)
    assert case.plan(data) == case.plan(data)


@each_case
def test_the_guess_of_the_row_count_is_all_that_a_plan_knows_where_it_is_private(
    case: Case,
) -> None:
    if case.setting.public_n:
        pytest.skip("the number of rows is public")
    short = {name: column[: N // 2] for name, column in case.table(N).items()}
    privacy = case.privacy(rows=77)
    plans = [case.plan(data, privacy) for data in (case.table(N), short)]
    assert plans[0] == plans[1]
    assert plans[0].n == 77
    fits = [case.fit(data, privacy, noise=SeededNoise(2)) for data in (case.table(N), short)]
    assert fits[0].plan == fits[1].plan
