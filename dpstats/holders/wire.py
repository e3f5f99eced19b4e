"""The bytes of one message: what was asked, under which guarantee, and the randomised answer.

A message is 63 bytes and its payload, in network byte order::

    magic "DPM", version, flags, round (2), epsilon (8), delta (8), schema (8), question (8),
    id (16), length (4), crc32 of everything else (4), payload

`schema` and `question` are fingerprints of the public design, and of the message and the channel
that were asked for. A flag tells noise that can be drawn again from a seed: such a message is NOT
private. The flag is the sender's word, and no more: whoever writes messages may set it or leave it
out. Nothing but the payload depends on the record: the id is drawn on the device.
"""

from __future__ import annotations

import hashlib
import json
import struct
import zlib
from collections.abc import Mapping
from dataclasses import dataclass

__all__ = ["HEADER_BYTES", "ID_BYTES", "Envelope", "OpenedMessage", "fingerprint", "pack", "unpack"]

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


def fingerprint(description: Mapping[str, object]) -> bytes:
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
class OpenedMessage:
    """A message as it was read: why it is rejected, or what it holds."""

    reason: str
    identity: bytes = b""
    payload: bytes = b""
    seeded: bool = False


def unpack(message: object, expected: Envelope, payload_bytes: int) -> OpenedMessage:
    """A message of anyone, read.

    Nothing that may arrive raises an error, and nothing is copied of a message that is longer than
    those that were asked for. Reasons: ``"not a message"``, ``"version"``, ``"corrupt"``,
    ``"schema"``, ``"epsilon"``, ``"round"``, ``"question"``, ``"payload"``.
    """
    if not isinstance(message, (bytes, bytearray, memoryview)):
        return OpenedMessage("not a message")
    try:
        view = memoryview(message).cast("B")
    except (TypeError, ValueError):  # a view with holes, or of nothing any more
        return OpenedMessage("not a message")
    length = len(view)
    start = bytes(view[:HEADER_BYTES])
    if length < 4 or start[:3] != _MAGIC:
        return OpenedMessage("not a message")
    if start[3] != VERSION:
        return OpenedMessage("version")
    if length < HEADER_BYTES:
        return OpenedMessage("corrupt")
    _, _, flags, turn, epsilon, delta, schema, question, identity, size = _HEADER.unpack_from(start)
    if size != length - HEADER_BYTES:
        return OpenedMessage("corrupt")
    fits = size == payload_bytes
    payload = bytes(view[HEADER_BYTES:]) if fits else b""
    (checksum,) = _CHECKSUM.unpack_from(start, _HEADER.size)
    if fits and zlib.crc32(start[: _HEADER.size] + payload) != checksum:
        return OpenedMessage("corrupt")
    e = expected
    for reason, same in (
        ("schema", schema == e.schema),
        ("epsilon", (epsilon, delta) == (e.epsilon, e.delta)),
        ("round", turn == e.round),
        ("question", question == e.question),
        ("payload", fits),
    ):
        if not same:
            return OpenedMessage(reason)
    return OpenedMessage("", identity, payload, bool(flags & 1))
