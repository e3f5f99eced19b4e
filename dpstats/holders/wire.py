"""The bytes of one message: what was asked, under which guarantee, and the randomised answer.

A message is 63 bytes and its payload, in network byte order::

    magic "DPM", version, flags, round (2), epsilon (8), delta (8), schema (8), question (8),
    id (16), length (4), crc32 of everything else (4), payload

`schema` and `question` are fingerprints of the public design, and of the message and the channel
that were asked for. A flag tells noise that can be drawn again from a seed: such a message is NOT
private. Nothing but the payload depends on the record: the id is drawn on the device.
"""

from __future__ import annotations

import hashlib
import json
import struct
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

__all__ = ["HEADER_BYTES", "ID_BYTES", "Envelope", "Opened", "fingerprint", "pack", "unpack"]

VERSION = 1
ID_BYTES = 16
_MAGIC = b"DPM"
_HEADER = struct.Struct(">3sBBHdd8s8s16sI")
_CHECKSUM = struct.Struct(">I")
HEADER_BYTES = _HEADER.size + _CHECKSUM.size


@dataclass(frozen=True, slots=True)
class Envelope:
    """What is written on a message; equal for all devices of a round.

    Attributes
    ----------
    round : int
        0 for the first round.
    epsilon, delta : float
        The guarantee of the channel.
    schema, question : bytes
        Fingerprints of 8 bytes.
    """

    round: int
    epsilon: float
    delta: float
    schema: bytes
    question: bytes


def fingerprint(description: Mapping[str, Any]) -> bytes:
    """Eight bytes that name a JSON object: the head of the SHA-256 of its canonical form."""
    text = json.dumps(description, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).digest()[:8]


def pack(envelope: Envelope, identity: bytes, payload: bytes, seeded: bool) -> bytes:
    """One message."""
    e = envelope
    head = _HEADER.pack(
        _MAGIC,
        VERSION,
        int(seeded),
        e.round,
        e.epsilon,
        e.delta,
        e.schema,
        e.question,
        identity,
        len(payload),
    )
    return head + _CHECKSUM.pack(zlib.crc32(head + payload)) + payload


@dataclass(frozen=True, slots=True)
class Opened:
    """A message as it was read: why it is rejected, or what it holds."""

    reason: str
    identity: bytes = b""
    payload: bytes = b""
    seeded: bool = False


def unpack(message: Any, expected: Envelope) -> Opened:
    """A message of anyone, read.

    Nothing that may arrive raises an error. Reasons: ``"not a message"``, ``"version"``,
    ``"corrupt"``, ``"schema"``, ``"epsilon"``, ``"round"``, ``"question"``.
    """
    if not isinstance(message, (bytes, bytearray, memoryview)):
        return Opened("not a message")
    data = bytes(message)
    if len(data) < 4 or data[:3] != _MAGIC:
        return Opened("not a message")
    if data[3] != VERSION:
        return Opened("version")
    if len(data) < HEADER_BYTES:
        return Opened("corrupt")
    _, _, flags, turn, epsilon, delta, schema, question, identity, length = _HEADER.unpack_from(
        data
    )
    (checksum,) = _CHECKSUM.unpack_from(data, _HEADER.size)
    payload = data[HEADER_BYTES:]
    if len(payload) != length or zlib.crc32(data[: _HEADER.size] + payload) != checksum:
        return Opened("corrupt")
    e = expected
    for reason, same in (
        ("schema", schema == e.schema),
        ("epsilon", (epsilon, delta) == (e.epsilon, e.delta)),
        ("round", turn == e.round),
        ("question", question == e.question),
    ):
        if not same:
            return Opened(reason)
    return Opened("", identity, payload, bool(flags & 1))
