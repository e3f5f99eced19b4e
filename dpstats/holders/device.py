"""One device: its own record in, one randomised message of bytes out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from dpstats.errors import DataError, scrubbed
from dpstats.holders.wire import ID_BYTES, Envelope, fingerprint, pack
from dpstats.mechanisms.draws import drawn
from dpstats.mechanisms.noise import Noise
from dpstats.mechanisms.randomize import randomize
from dpstats.protocol import CountQuestion
from dpstats.queries import AstrayMessage

if TYPE_CHECKING:
    from dpstats.design import Design
    from dpstats.protocol import DeviceQuestion

Array = NDArray[np.float64]

__all__ = ["Device", "count_of", "envelope_of", "envelope_of_count"]


def count_of(design: Design, question: DeviceQuestion) -> CountQuestion | None:
    """What those devices are asked that count in place of an answer, if any do."""
    if not question.counting:
        return None
    message = AstrayMessage(len(design.inputs))
    return CountQuestion(message, message.channel(question.channel.epsilon))


def envelope_of(design: Design, question: DeviceQuestion, turn: int) -> Envelope:
    """What the devices of round `turn` that answer a question write on their messages."""
    channel = question.channel
    schema = fingerprint(design.to_dict())
    return Envelope(turn, channel.epsilon, channel.delta, schema, _named(question))


def envelope_of_count(envelope: Envelope, count: CountQuestion) -> Envelope:
    """What those that count write: another question, under the same guarantee."""
    return replace(envelope, question=_named(count))


def _named(question: DeviceQuestion | CountQuestion) -> bytes:
    channel, message = question.channel, question.message
    asked = {
        "message": {"name": message.name, **message.parameters()},
        "channel": {"name": channel.name, "dim": channel.dim},
    }
    return fingerprint(asked)


class Device:
    """Answers one question about one record, as often as it is called.

    Guarantee: each message is (epsilon, delta)-DP under replacement of the record, on its own:
    the record enters only through the channel's sampler, which clips it to the channel's domain.
    Values that are missing, of another type or outside their declaration are mapped first, so a
    message is sent whatever the record holds. A record sent twice costs twice.

    Whether the device answers or counts is a coin that depends on nothing, and the message says
    which. For a set S of messages, with c the chance of counting and S_0, S_1 those of S that
    answer and that count, P(S) = (1 - c) P_0(S_0) + c P_1(S_1): each of both laws is
    (epsilon, delta)-DP, of the count with delta = 0, and so is their mixture.

    Parameters
    ----------
    design : Design
        Public design.
    question : DeviceQuestion
        What is asked.
    turn : int
        The round it is asked in.
    noise : Noise
        Source of randomness.
    """

    def __init__(self, design: Design, question: DeviceQuestion, turn: int, noise: Noise) -> None:
        self._design = design
        self._question, self._count = question, count_of(design, question)
        self._envelope = envelope_of(design, question, turn)
        self._stream = noise.start()
        self._seeded = noise.reproducible

    @scrubbed
    def send(self, record: Mapping[str, object]) -> bytes:
        """The message of `record`, a mapping from column names to values.

        Raises
        ------
        DataError
            If `record` is no mapping; never on what it holds.
        """
        if not isinstance(record, Mapping):
            raise DataError(
                f"A {type(record).__name__} is no record: a mapping from column names to values is "
                'needed, such as {"x1": 0.3, "y": 1.2}.'
            )
        return self.send_all(self._table(record))[0]

    @scrubbed
    def send_all(self, table: object) -> list[bytes]:
        """Messages of the rows of a table, each as from a device of its own."""
        source = self._design.source(table)
        n = len(source)
        block = source.block(0, n)
        values = self._question.message.rows(block.x, block.y, block.keep)
        answers = (self._question, self._envelope)
        if self._count is None:
            return [self._message(value, *answers) for value in values]
        marks = self._count.message.rows(source.astray(0, n))
        counts = (self._count, envelope_of_count(self._envelope, self._count))
        counting = drawn(self._stream, self._question.counting, n)
        return [
            self._message(mark, *counts) if counted else self._message(value, *answers)
            for value, mark, counted in zip(values, marks, counting, strict=True)
        ]

    def _message(
        self, value: Array, question: DeviceQuestion | CountQuestion, envelope: Envelope
    ) -> bytes:
        identity = self._stream.bits(ID_BYTES)
        payload = randomize(question.channel, value, self._stream)
        return pack(envelope, identity, payload, self._seeded)

    def _table(self, record: Mapping[str, object]) -> object:
        """The record as a table of one row; what cannot be read is missing."""
        schema = self._design.schema
        if schema is None:
            endog = self._design.endog
            exog = np.stack([_cell(record, name) for name in self._design.names], axis=1)
            return (None if endog is None else _cell(record, endog.name), exog)
        return {name: _cell(record, name) for name in self._design.columns}


def _cell(record: Mapping[str, object], name: str) -> NDArray[np.object_]:
    """A column of one value, of any type: it is mapped as the cells of any table are."""
    try:
        value = record.get(name)
    except Exception:  # what cannot be read is missing
        value = None
    return np.fromiter([value], dtype=object, count=1)
