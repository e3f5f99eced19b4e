"""Devices and a server apart: what is shipped, what is accepted, and what comes out."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dpstats.errors import OptionError
from dpstats.holders.device import envelope_of
from dpstats.holders.wire import HEADER_BYTES, ID_BYTES, pack
from dpstats.mechanisms.noise import SafeNoise, SeededNoise
from dpstats.models.devices import Collector, Randomizer
from dpstats.privacy import SIMULATED
from tests.contracts.cases import Table
from tests.contracts.messages import MessageCase, each_local
from tests.contracts.test_message_independence import garbage

N = 60
ID = bytes(range(ID_BYTES))
SEED = SeededNoise(4)


def part_of(data: Table, part: int, parts: int) -> Table:
    """Users of one round."""
    return {name: column[part::parts] for name, column in data.items()}


def collected(case: MessageCase, data: Table, noise: Any = SEED, save: Path | None = None) -> Any:
    """A collector that heard all rounds; saved and loaded before every round if asked to."""
    collector = case.collector(data)
    for part in range(collector.rounds):
        if part:
            collector.next_round()
        if save is not None:
            collector.save(save)
            collector = Collector.load(save)
        randomizer = collector.randomizer(noise=noise)
        collector.extend(randomizer.send_all(part_of(data, part, collector.rounds)))
    return collector


@each_local
def test_a_fit_from_the_wire_is_what_was_planned(case: MessageCase) -> None:
    data = case.table(N)
    collector = collected(case, data)
    results, plan = collector.fit(), case.plan(data)
    assert collector.accepted == N == results.nobs
    assert collector.rejected == {}
    assert results.plan.events == plan.events
    assert results.plan.cost == plan.cost
    planned = [(m.slot, part) for m in plan.mechanisms for part in range(m.parts)]
    assert [(m.slot, m.part) for m in results.privacy.mechanisms] == planned
    assert np.isfinite(results.params).all()
    assert SIMULATED not in results.estimate.remarks


@each_local
def test_seeded_messages_are_marked_and_others_are_not(case: MessageCase) -> None:
    data = case.table(N)
    seeded, honest = (collected(case, data, noise).fit() for noise in (SEED, SafeNoise()))
    assert "NOT private" in str(seeded.summary())
    assert "NOT private" not in str(honest.summary())


@each_local
def test_a_server_that_stops_between_rounds_gets_the_same_fit(
    case: MessageCase, tmp_path: Path
) -> None:
    data = case.table(N)
    whole = collected(case, data).fit()
    stopped = collected(case, data, save=tmp_path / "round.npz").fit()
    assert stopped.to_json() == whole.to_json()


@each_local
def test_what_ships_knows_nothing_of_any_record(case: MessageCase) -> None:
    data = case.table(N)
    shipped = [case.collector(t).randomizer().to_json() for t in (data, garbage(case, data))]
    assert shipped[0] == shipped[1]
    record = {name: column[0] for name, column in data.items()}
    sent = Randomizer.from_json(shipped[0], noise=SEED)(record)
    assert sent == case.collector(data).randomizer(noise=SEED)(record)


@each_local
def test_a_header_is_the_same_for_every_record(case: MessageCase) -> None:
    data = case.table(N)
    randomizer = case.collector(data).randomizer(noise=SEED)
    sent = [m for t in (data, garbage(case, data)) for m in randomizer.send_all(t)]
    assert {len(m) for m in sent} == {randomizer.message_bytes}
    tail = 4 + 4 + ID_BYTES  # checksum, length, id
    assert len({m[: HEADER_BYTES - tail] for m in sent}) == 1
    assert len({m[HEADER_BYTES - tail : HEADER_BYTES - 8] for m in sent}) == len(sent)


# What is refused ----------------------------------------------------------------------------------


def genuine(case: MessageCase) -> tuple[Any, bytes, Any]:
    """A collector, a payload that it takes, and the envelope that it expects."""
    data = case.table(N)
    collector = case.collector(data)
    question = collector._collectors[-1].question
    message = collector.randomizer(noise=SEED).send_all(data)[0]
    envelope = envelope_of(collector.design, question, 0)
    return collector, message[HEADER_BYTES:], envelope


@each_local
def test_a_message_counts_once(case: MessageCase) -> None:
    collector, payload, envelope = genuine(case)
    message = pack(envelope, ID, payload, seeded=True)
    assert collector.add(message)
    assert not collector.add(message)
    assert not collector.add(pack(envelope, ID, payload, seeded=False))
    assert collector.rejected == {"duplicate": 2}
    assert collector.accepted == 1


@each_local
def test_a_message_under_another_guarantee_is_no_message(case: MessageCase) -> None:
    collector, payload, envelope = genuine(case)
    others = [
        replace(envelope, epsilon=2 * envelope.epsilon),
        replace(envelope, epsilon=envelope.epsilon / 2),
        replace(envelope, delta=envelope.delta + 1e-9),
        replace(envelope, epsilon=float("nan")),
    ]
    for other in others:
        assert not collector.add(pack(other, ID, payload, seeded=True))
    assert collector.rejected == {"epsilon": len(others)}
    assert collector.add(pack(envelope, ID, payload, seeded=True))  # power: nothing else was wrong


@each_local
def test_a_message_to_another_question_is_no_message(case: MessageCase) -> None:
    collector, payload, envelope = genuine(case)
    others = {
        "schema": replace(envelope, schema=b"\0" * 8),
        "round": replace(envelope, round=1),
        "question": replace(envelope, question=b"\0" * 8),
    }
    for reason, other in others.items():
        assert not collector.add(pack(other, ID, payload, seeded=True))
        assert collector.rejected[reason] == 1
    assert not collector.add(pack(envelope, ID, payload + b"\0", seeded=True))
    assert not collector.add(pack(envelope, ID, payload[:-1], seeded=True))
    assert collector.rejected["payload"] == 2
    assert collector.accepted == 0


@each_local
def test_a_device_of_another_budget_is_not_heard(case: MessageCase) -> None:
    """Whatever gives it away: the guarantee, or that it was asked something else."""
    data = case.table(N)
    louder = case.collector(data, case.privacy(2.0)).randomizer(noise=SEED).send_all(data)
    collector = case.collector(data)
    assert collector.extend(louder) == 0
    assert sum(collector.rejected.values()) == N


@each_local
def test_what_was_altered_on_the_way_is_refused(case: MessageCase) -> None:
    collector, payload, envelope = genuine(case)
    message = pack(envelope, ID, payload, seeded=True)
    rng = np.random.default_rng(1)
    for at in range(len(message)):
        broken = bytearray(message)
        broken[at] ^= int(rng.integers(1, 256))
        assert not collector.add(bytes(broken))
    for junk in (None, 1.5, "text", b"", message[:-1], message + b"\0", rng.bytes(200), [message]):
        assert not collector.add(junk)
    assert collector.accepted == 0


@each_local
def test_a_message_of_an_earlier_round_is_refused(case: MessageCase) -> None:
    data = case.table(N)
    collector = case.collector(data)
    if collector.rounds == 1:
        with pytest.raises(OptionError):
            collector.next_round()
        return
    early = collector.randomizer(noise=SEED).send_all(part_of(data, 0, 2))
    assert collector.extend(early[:-1]) == len(early) - 1
    collector.next_round()
    assert collector.extend(early) == 0
    assert collector.rejected["round"] == len(early)


@each_local
def test_a_round_without_messages_is_no_fit(case: MessageCase) -> None:
    collector = case.collector(case.table(N))
    with pytest.raises(OptionError, match="no accepted message"):
        collector.fit()
    with pytest.raises(OptionError, match="no accepted message"):
        collector.next_round()
