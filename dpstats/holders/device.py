"""One device: its own record in, one randomised message of bytes out."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from dpstats.errors import DataError
from dpstats.holders.sealed import sealed
from dpstats.holders.wire import ID_BYTES, Envelope, fingerprint, pack
from dpstats.mechanisms.noise import Noise
from dpstats.mechanisms.randomize import randomize

if TYPE_CHECKING:
    from dpstats.design import Design
    from dpstats.protocol import DeviceQuestion

__all__ = ["Device", "envelope_of"]


def envelope_of(design: Design, question: DeviceQuestion, turn: int) -> Envelope:
    """What the devices of round `turn` write on their messages."""
    channel, message = question.channel, question.message
    asked = {
        "message": {"name": message.name, **message.parameters()},
        "channel": {"name": channel.name, "dim": channel.dim},
    }
    return Envelope(
        turn, channel.epsilon, channel.delta, fingerprint(design.to_dict()), fingerprint(asked)
    )


class Device:
    """Answers one question about one record, as often as it is called.

    Guarantee: each message is (epsilon, delta)-DP under replacement of the record, on its own:
    the record enters only through the channel's sampler, which clips it to the channel's domain.
    Values that are missing, of another type or outside their declaration are mapped first, so a
    message is sent whatever the record holds. A record sent twice costs twice.

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
        self._question = question
        self._envelope = envelope_of(design, question, turn)
        self._stream = noise.start()
        self._seeded = noise.reproducible

    @sealed
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

    @sealed
    def send_all(self, table: object) -> list[bytes]:
        """Messages of the rows of a table, each as from a device of its own."""
        source = self._design.source(table)
        block = source.block(0, len(source))
        values = self._question.message.rows(block.x, block.y, block.keep)
        channel, stream = self._question.channel, self._stream
        return [
            pack(
                self._envelope,
                stream.bits(ID_BYTES),
                randomize(channel, value, stream),
                self._seeded,
            )
            for value in values
        ]

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
