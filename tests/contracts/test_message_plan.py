"""What a fit from messages costs, when it is charged, and that what ran is what was planned."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest

from dpstats.accounting import Ledger
from dpstats.accounting.events import Gaussian, Laplace, Parallel, Pure, Selection
from dpstats.errors import BudgetError, OptionError, PlanError, TrustError
from dpstats.estimators import find
from dpstats.holders import Clients, Labels
from dpstats.mechanisms.noise import SeededNoise
from dpstats.privacy import SIMULATED
from dpstats.protocol import Plan
from tests.contracts.accountants import attack, upper, worlds
from tests.contracts.cases import Table
from tests.contracts.messages import (
    DELTA,
    GUARANTEES,
    MessageCase,
    each_message_case,
    each_of_devices,
    opened,
    questions,
    served,
)
from tests.contracts.spies import order_of_events, overwrite
from tests.contracts.test_cost import SELECTION_SLACK, with_noise
from tests.contracts.test_order import Untouchable, same, untouchable

N = 60
BUDGETS = [(0.1, 1e-8), (1.0, 1e-6), (4.0, 1e-5)]
SLACK = 1e-3  # of the other accountant, which discretises upwards


def guarded(case: MessageCase, data: Table) -> Table:
    """The private numeric columns fail when a value of them is looked at."""
    hidden = untouchable({name: data[name] for name in case.secret})
    return data | hidden


# Cost ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("epsilon", "delta"), BUDGETS)
@each_message_case
def test_another_accountant_agrees_that_the_plan_costs_what_was_asked(
    case: MessageCase, epsilon: float, delta: float
) -> None:
    plan = case.plan(case.table(2000), case.privacy(epsilon, delta))
    slack = SELECTION_SLACK if selects(plan) else SLACK
    assert upper(plan.events, delta) <= epsilon * (1 + slack)
    assert attack(plan.events, epsilon) <= delta * (1 + 1e-9)
    assert plan.cost[0] <= epsilon
    assert plan.cost[1] == delta


@each_message_case
def test_the_budget_is_used(case: MessageCase) -> None:
    """Power: the bounds above are tight enough to see a plan that costs more."""
    plan = case.plan(case.table(N))
    assert plan.cost[0] > 0.97
    weaker = [with_noise(e, 0.8) for e in plan.events]
    assert upper(weaker, DELTA) > 1.13
    # The attack plays too few of a selection's candidates to attain what it costs.
    assert selects(plan) or attack(weaker, 1.0) > DELTA


def selects(plan: Plan) -> bool:
    """Whether columns are chosen with noise."""
    return any(isinstance(m.event, Selection) for m in plan.mechanisms)


@each_message_case
def test_pure_privacy_is_kept_or_refused(case: MessageCase) -> None:
    plan, refusal = planned_or_refused(case, case.privacy(1.0, 0.0))
    if plan is None:
        assert "delta" in refusal
        return
    for events in worlds(plan.events):
        assert all(isinstance(e, Pure | Laplace | Selection) for e in events)
        assert sum(getattr(e, "k", 1) * e.epsilon for e in events) <= 1.0 + 1e-12
    assert plan.cost == (pytest.approx(1.0), 0.0)


def planned_or_refused(case: MessageCase, privacy: Any) -> tuple[Plan | None, str]:
    """The plan, or why there is none."""
    try:
        return case.plan(case.table(N), privacy), ""
    except (OptionError, TrustError) as refusal:
        return None, str(refusal)


@each_message_case
def test_a_smaller_budget_never_means_less_noise(case: MessageCase) -> None:
    data = case.table(N)
    small, large = (case.plan(data, case.privacy(e)) for e in (0.5, 2.0))
    total = [sum(e.rho for e in plan.events) for plan in (small, large)]
    assert total[0] < total[1]


@each_of_devices
def test_a_device_is_charged_for_one_message(case: MessageCase) -> None:
    """One event, however many rounds there are: a device answers in one of them."""
    plan = case.plan(case.table(N))
    (event,) = plan.events
    assert isinstance(event, Pure | Gaussian | Laplace)
    assert not isinstance(event, Parallel)
    (mechanism,) = plan.mechanisms
    assert mechanism.event == event


@each_message_case
def test_delta_has_to_be_below_one_in_n(case: MessageCase) -> None:
    with pytest.raises(OptionError, match="1/n"):
        case.plan(case.table(N), case.privacy(1.0, 0.1))


# Who is asked -------------------------------------------------------------------------------------


@each_message_case
def test_a_method_is_found_under_the_guarantee_it_serves_and_refused_under_others(
    case: MessageCase,
) -> None:
    model, name = case.estimator.model, case.estimator.name
    assert find(model, case.privacy(), name) is case.estimator
    for guarantee, make in GUARANTEES.items():
        if guarantee in served(case.estimator):
            continue
        privacy = make(1.0, DELTA)
        plan, refusal = planned_or_refused(case, privacy)
        if plan is None:
            assert name in refusal or "All columns are private" in refusal
        else:  # a method that asks once may be asked for where rounds are allowed
            assert (guarantee, plan.mechanisms[0].parts) == ("local-rounds", 1)


# Order --------------------------------------------------------------------------------------------


@each_message_case
def test_a_plan_reads_nothing_private_and_charges_nothing(case: MessageCase) -> None:
    data = case.table(N)
    before = copy.deepcopy(data)
    ledger = Ledger.memory(1.0, DELTA)
    with order_of_events() as log:
        plan = case.plan(guarded(case, data))
    assert log == []
    assert ledger.entries == ()
    assert same(data, before)
    assert plan == case.plan(case.other(data))  # private values do not matter
    assert Untouchable not in map(type, plan.options.values())


@each_message_case
def test_the_ledger_is_charged_before_the_first_row_is_read(case: MessageCase) -> None:
    with order_of_events() as log:
        case.fit(case.table(N), ledger=Ledger.memory(2.0, 1e-5), noise=SeededNoise(1))
    assert log[0] == "charge"
    assert log.count("charge") == 1
    assert "read" in log  # power: reading is seen


@each_message_case
def test_nothing_before_the_charge_depends_on_a_private_value(
    case: MessageCase, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Values that are replaced at the moment of the charge might as well never have been there."""
    mine = case.table(N)
    other = case.other(mine)
    expected = case.fit(copy.deepcopy(other), noise=SeededNoise(1))
    charge = Ledger.charge

    def charge_then_replace(self: Ledger, *args: Any, **kwargs: Any) -> Any:
        entry = charge(self, *args, **kwargs)
        overwrite(mine, other)
        return entry

    monkeypatch.setattr(Ledger, "charge", charge_then_replace)
    found = case.fit(mine, noise=SeededNoise(1))
    assert found.to_json() == expected.to_json()


@each_message_case
def test_a_refused_charge_reads_nothing_private(case: MessageCase) -> None:
    ledger = Ledger.memory(0.5, DELTA)
    with (
        order_of_events() as log,
        pytest.raises(BudgetError, match=r"requested: .* remaining: .* difference: "),
    ):
        case.fit(guarded(case, case.table(N)), ledger=ledger, noise=SeededNoise(1))
    assert log == []
    assert ledger.entries == ()


@each_message_case
def test_a_fit_that_fails_stays_charged(case: MessageCase, monkeypatch: pytest.MonkeyPatch) -> None:
    ledger = Ledger.memory(2.0, 1e-5)

    def failing(self: Any, *args: Any, **kwargs: Any) -> Any:
        raise ArithmeticError

    monkeypatch.setattr(Clients, "collect", failing)
    monkeypatch.setattr(Labels, "ask", failing)
    with pytest.raises(ArithmeticError):
        case.fit(case.table(N), ledger=ledger)
    assert len(ledger.entries) == 1


@each_message_case
def test_every_fit_is_charged(case: MessageCase) -> None:
    ledger = Ledger.memory(2.0, 1e-5)
    for fits in (1, 2):
        results = case.fit(case.table(N), case.privacy(0.5), ledger=ledger)
        assert len(ledger.entries) == fits
        assert results.privacy.ledger.entries == fits
    assert 0.5 < ledger.spent[0] < 1.05


@each_message_case
def test_a_fit_leaves_the_table_as_it_was(case: MessageCase) -> None:
    data = case.table(N)
    before = copy.deepcopy(data)
    case.fit(data, noise=SeededNoise(1))
    assert same(data, before)


# What ran -----------------------------------------------------------------------------------------


@each_message_case
def test_the_mechanisms_that_ran_equal_the_plan_and_the_ledger_entry(case: MessageCase) -> None:
    data = case.table(N)
    ledger = Ledger.memory(2.0, 1e-5)
    results = case.fit(data, ledger=ledger, noise=SeededNoise(1))
    plan = case.plan(data)
    (entry,) = ledger.entries
    assert entry.events == plan.events == results.plan.events
    assert (entry.epsilon, entry.delta) == (1.0, DELTA)
    assert (entry.model, entry.method) == (case.estimator.model, case.estimator.name)
    assert entry.unit == ("record" if case.local else "response 'y'")
    planned = [(m.slot, part) for m in plan.mechanisms for part in range(m.parts)]
    assert sorted((m.slot, m.part) for m in results.privacy.mechanisms) == sorted(planned)
    cost = {(e.kind, e.rho) for events in worlds(plan.events) for e in events}
    assert {(m.kind, m.cost) for m in results.privacy.mechanisms} == cost


@each_message_case
def test_the_transcript_is_what_was_asked(case: MessageCase) -> None:
    with questions() as asked:
        results = case.fit(case.table(N), noise=SeededNoise(1))
    shown = [(m.slot, m.part, m.query) for m in results.privacy.mechanisms]
    assert shown == [(a.slot, a.part, getattr(a.query, "message", a.query).name) for a in asked]
    for asked_one, one in zip(asked, results.privacy.mechanisms, strict=True):
        channel = getattr(asked_one.query, "channel", None)
        assert channel is None or (channel.event.kind, channel.event.rho) == (one.kind, one.cost)
        assert one.scale > 0
        assert one.sensitivity > 0


@each_message_case
def test_a_simulation_of_devices_says_so(case: MessageCase) -> None:
    results = case.fit(case.table(N), noise=SeededNoise(1))
    assert (SIMULATED in results.estimate.remarks) == case.local


def wild_tables(case: MessageCase, data: Table) -> list[Table]:
    """Tables of the same public facts whose private values are missing, alike or extreme."""
    signs = np.where(np.arange(N) % 2, 1e308, -np.inf)
    blank = {"x1": np.full(N, np.nan), "x2": np.full(N, np.nan), "g": np.full(N, None, object)}
    alike = {"x1": np.zeros(N), "x2": np.full(N, 10.0), "g": np.full(N, "a", object)}
    far = {"x1": -signs, "x2": signs, "g": np.full(N, "undeclared", object)}
    tables = [
        {"y": np.full(N, np.nan), **blank},
        {"y": np.full(N, 3.0), **alike},
        {"y": signs, **far},
        {"y": data["x1"] + 1.0},
    ]
    return [data | {k: v for k, v in t.items() if k in case.secret} for t in tables]


@each_message_case
def test_every_table_is_asked_the_same_questions(case: MessageCase) -> None:
    data = case.table(N)

    def shapes(table: Table) -> list[Any]:
        with questions() as asked:
            case.fit(table, noise=SeededNoise(1))
        return [a.shape for a in asked]

    usual = shapes(data)
    assert usual
    for wild in wild_tables(case, data):
        assert shapes(wild) == usual


@each_message_case
def test_no_question_is_answered_twice(case: MessageCase) -> None:
    """The holder refuses, whatever an estimator does."""
    data = case.table(N)
    plan = case.plan(data)
    holder = opened(case, plan, data)
    with questions() as asked:
        case.estimator.fit(holder, case.design(data), plan)
    before = holder.transcript
    assert len(before) == len(asked)
    for one in asked:
        again = (one.query, one.part) if case.local else (one.query, one.slot)
        with pytest.raises(PlanError):
            (holder.collect if case.local else holder.ask)(*again)
    assert holder.transcript == before


@each_message_case
def test_asking_twice_gives_the_same_plan(case: MessageCase) -> None:
    data = case.table(N)
    assert case.plan(data) == case.plan(data)
