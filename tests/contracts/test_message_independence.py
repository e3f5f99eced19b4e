"""Nothing but messages leaves a device, and nothing that was not mapped into the domain.

The strongest test of the whole room: with messages drawn of nothing, all that is private may be
exchanged, and the result stays the same byte for byte.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from dpstats.channels import CHANNELS
from dpstats.errors import OptionError, PlanError
from dpstats.holders import Clients, labels
from dpstats.mechanisms.noise import SeededNoise
from dpstats.protocol import DeviceQuestion
from tests.contracts.cases import OF_LEVELS, Table
from tests.contracts.messages import (
    MESSAGE_KINDS,
    MessageCase,
    each_local,
    each_message_case,
    each_of_devices,
    each_response,
    handed_over,
    opened,
    questions,
    rows_of_rounds,
    silenced,
)

N = 60
ROUNDING = 1 + 1e-12


def garbage(case: MessageCase, data: Table) -> Table:
    """Whatever is private is missing or absurd."""
    wild = np.resize([np.nan, np.inf, -1e308, 7.0], len(data["y"]))
    changed = {name: wild for name in case.secret if name != "g"}
    if "g" in case.secret:
        changed["g"] = np.resize(np.array(["never declared", None, "a"], object), len(wild))
    return data | changed


def written(case: MessageCase, data: Table, **options: Any) -> str:
    return str(case.fit(data, noise=SeededNoise(5), **options).to_json())


@each_message_case
def test_without_messages_the_result_knows_nothing_of_the_data(case: MessageCase) -> None:
    data = case.table(N)
    tables = [data, case.other(data), garbage(case, data)]
    assert written(case, data) != written(case, tables[1])  # power: messages tell
    with silenced():
        one, other, wild = (written(case, t) for t in tables)
    assert one == other
    assert one == wild


@each_of_devices
def test_the_same_holds_where_some_devices_count(case: MessageCase) -> None:
    data = case.table(3_000)
    if case.estimator.model == "proportion":
        pytest.skip("no level is out of range, and missing values are a cell")
    assert case.plan(data).asks("astray")
    tables = [data, case.other(data), garbage(case, data)]
    assert written(case, data) != written(case, tables[2])
    with silenced():
        one, other, wild = (written(case, t) for t in tables)
    assert '"share outside"' in one
    assert one == other == wild


@each_of_devices
def test_the_same_holds_for_every_channel(case: MessageCase) -> None:
    if "channel" not in case.estimator.options:
        pytest.skip("has one channel")
    data, tried = case.table(N), []
    for channel in CHANNELS:
        try:
            case.plan(data, channel=channel)
        except OptionError:
            continue
        with silenced():
            one, other = (written(case, t, channel=channel) for t in (data, case.other(data)))
        assert one == other
        tried.append(channel)
    assert len(tried) > 1


@each_local
def test_without_messages_the_wire_says_nothing_of_the_record(case: MessageCase) -> None:
    data = case.table(20)

    def sent(table: Table) -> list[bytes]:
        randomizer = case.collector(data).randomizer(noise=SeededNoise(3))
        return list(randomizer.send_all(table))

    tables = [data, case.other(data), garbage(case, data)]
    assert sent(data) != sent(tables[1])
    with silenced():
        one, other, wild = map(sent, tables)
    assert one == other == wild


# The channel clips --------------------------------------------------------------------------------


def blown_up(patch: pytest.MonkeyPatch) -> None:
    """Messages far outside their ball, as from a query with a wrong bound."""

    def blowing(original: Any) -> Any:
        def rows(self: Any, x: Any, y: Any, keep: Any) -> Any:
            made = original(self, x, y, keep) * 1e3
            made[::5], made[1::5, :1], made[2::5] = np.nan, np.inf, 1e308
            return made

        return rows

    for kind in MESSAGE_KINDS:
        patch.setattr(kind, "rows", blowing(kind.rows))


@each_of_devices
def test_what_is_randomised_lies_in_the_domain(case: MessageCase) -> None:
    data = case.table(N)
    with handed_over() as seen:
        for table in (data, garbage(case, data)):
            case.fit(table, noise=SeededNoise(1))
    assert sum(len(one.rows) for one in seen) >= 2 * N
    assert all(np.isfinite(one.rows).all() for one in seen)
    assert max(one.size for one in seen) <= ROUNDING


@each_local
def test_the_channel_clips_whatever_a_message_claims(
    case: MessageCase, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A claim about privacy rests on the sampler alone, not on the bounds of a message."""
    data = case.table(N)
    collector = case.collector(data)
    blown_up(monkeypatch)
    with handed_over() as seen:
        case.fit(data, noise=SeededNoise(1))
        collector.randomizer(noise=SeededNoise(1)).send_all(data)
    assert all(np.isfinite(one.rows).all() for one in seen)
    assert max(one.size for one in seen) <= ROUNDING
    assert max(one.size for one in seen) > 0.99  # power: there was something to clip


@each_response
def test_the_channel_clips_whatever_a_holder_of_responses_hands_over(
    case: MessageCase, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unheld(responses: Any, interval: Any) -> Any:
        wild = original(responses, interval) * 1e3
        wild[::5], wild[1::5], wild[2::5] = np.nan, np.inf, -1e300
        return wild

    original = labels.held
    monkeypatch.setattr(labels, "held", unheld)
    with handed_over() as seen:
        case.fit(case.table(N), noise=SeededNoise(1))
    assert all(np.isfinite(one.rows).all() for one in seen)
    assert 0.99 < max(one.size for one in seen) <= ROUNDING


# Rounds -------------------------------------------------------------------------------------------


@each_local
def test_every_device_answers_in_one_round_only(case: MessageCase) -> None:
    data = case.table(N)
    data["y"] = np.linspace(0.1, 0.9, N)  # no two alike, inside every declared range
    with rows_of_rounds() as rounds:
        results = case.fit(data, noise=SeededNoise(1))
    assert len(rounds) == results.plan.mechanisms[0].parts
    everyone = np.concatenate(rounds)
    assert len(everyone) == N
    if case.estimator.model not in OF_LEVELS:  # where numbers tell devices apart
        assert len(np.unique(everyone)) == N


def divided(case: MessageCase, shares: tuple[float, ...]) -> tuple[Clients, DeviceQuestion]:
    """Devices of a plan with rounds of these shares, and a question for them."""
    data = case.table(N)
    data["y"] = np.linspace(0.1, 0.9, N)
    plan = case.plan(data)
    question = case.estimator.question(case.design(data), plan, [], None)  # type: ignore[attr-defined]
    mechanism = replace(plan.mechanisms[0], parts=len(shares))
    options = {**plan.options, "shares": shares}
    plan = replace(plan, mechanisms=(mechanism,), options=options)
    return opened(case, plan, data), question


@pytest.mark.parametrize("shares", [(1.0,), (0.5, 0.5), (0.2, 0.5, 0.3), (1.0,) * 7, (1.0,) * N])
@each_local
def test_rounds_of_any_shares_are_disjoint_and_exhaustive(
    case: MessageCase, shares: tuple[float, ...]
) -> None:
    clients, question = divided(case, shares)
    with rows_of_rounds() as rounds:
        counts = [clients.collect(question, part).count for part in range(len(shares))]
    assert sum(counts) == N
    if case.estimator.model not in OF_LEVELS:
        assert len(np.unique(np.concatenate(rounds))) == N
    sizes = np.array(shares) / sum(shares) * N
    assert np.abs(np.array(counts) - sizes).max() <= 1


@each_local
def test_no_round_is_asked_twice_or_out_of_turn(case: MessageCase) -> None:
    clients, question = divided(case, (0.5, 0.5))
    with pytest.raises(PlanError):
        clients.collect(question, 1)
    clients.collect(question, 0)
    with pytest.raises(PlanError):
        clients.collect(question, 0)
    clients.collect(question, 1)
    for part in (0, 1, 2):
        with pytest.raises(PlanError):
            clients.collect(question, part)
    assert len(clients.transcript) == 2


@each_local
def test_another_channel_than_the_one_charged_is_refused(case: MessageCase) -> None:
    clients, question = divided(case, (1.0,))
    channel: Any = question.channel
    dearer = DeviceQuestion(question.message, replace(channel, epsilon=2 * channel.epsilon))
    with pytest.raises(PlanError, match="costs"):
        clients.collect(dearer, 0)
    assert clients.transcript == ()


@each_response
def test_another_channel_for_a_response_than_the_one_charged_is_refused(case: MessageCase) -> None:
    data = case.table(N)
    plan = case.plan(data)
    with questions() as asked:
        case.fit(data, noise=SeededNoise(1))
    (question,) = asked
    channel = question.query.channel
    dearer = replace(channel, epsilon=2 * channel.epsilon)
    holder = opened(case, plan, data)
    with pytest.raises(PlanError, match="costs"):
        holder.ask(replace(question.query, channel=dearer), question.slot)
    assert holder.transcript == ()


@each_message_case
def test_a_question_that_was_not_planned_is_refused(case: MessageCase) -> None:
    data = case.table(N)
    plan = case.plan(data)
    with questions() as asked:
        case.fit(data, noise=SeededNoise(1))
    holder = opened(case, plan, data)
    if case.local:
        with pytest.raises(PlanError):
            holder.collect(asked[0].query, plan.mechanisms[0].parts)
    else:
        with pytest.raises(PlanError, match="planned"):
            holder.ask(asked[0].query, "another slot")
    assert holder.transcript == ()
