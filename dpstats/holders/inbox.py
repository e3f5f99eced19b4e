"""The server's side of one round: messages in, any order and number; what is wrong is counted."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dpstats.holders.device import envelope_of
from dpstats.holders.wire import ID_BYTES, unpack
from dpstats.protocol import Messages

if TYPE_CHECKING:
    from dpstats.design import Design
    from dpstats.protocol import Question

__all__ = ["Inbox"]

Array = NDArray[np.float64]

_BATCH = 4096  # messages decoded at a time


class Inbox:
    """Receives the messages of one round and keeps what their average needs.

    Everything here was private when it was sent: an inbox may be stored and read by anyone.

    Parameters
    ----------
    design : Design
        Public design.
    question : Question
        What the devices of the round were asked.
    turn : int
        The round.

    Attributes
    ----------
    rejected : Counter
        Messages that were not accepted, by reason: ``"not a message"``, ``"version"``,
        ``"corrupt"``, ``"schema"``, ``"epsilon"``, ``"round"``, ``"question"``, ``"payload"``,
        ``"duplicate"``.
    seeded : bool
        Whether any message accepted was drawn from a seed, and is NOT private.
    """

    def __init__(self, design: Design, question: Question, turn: int) -> None:
        self.question = question
        self.turn = turn
        self.rejected: Counter[str] = Counter()
        self.seeded = False
        self._envelope = envelope_of(design, question, turn)
        self._seen: set[bytes] = set()
        self._waiting: list[bytes] = []
        dim = question.message.dim
        self._count, self._sum, self._outer = 0, np.zeros(dim), np.zeros((dim, dim))

    def __len__(self) -> int:
        """Messages accepted."""
        return self._count + len(self._waiting)

    def add(self, message: Any) -> bool:
        """Take one message; False, and one more in `rejected`, if it is not one of this round."""
        opened = unpack(message, self._envelope)
        reason = opened.reason or self._refused(opened.identity, opened.payload)
        if reason:
            self.rejected[reason] += 1
            return False
        self._seen.add(opened.identity)
        self._waiting.append(opened.payload)
        self.seeded |= opened.seeded
        if len(self._waiting) >= _BATCH:
            self._decode()
        return True

    def _refused(self, identity: bytes, payload: bytes) -> str:
        channel = self.question.channel
        if len(payload) != channel.payload_bytes:
            return "payload"
        if identity in self._seen:
            return "duplicate"
        return "" if bool(channel.accepts(_matrix([payload]))[0]) else "payload"

    def _decode(self) -> None:
        if not self._waiting:
            return
        decoded = self.question.channel.decode(_matrix(self._waiting))
        self._count += len(decoded)
        self._sum += decoded.sum(axis=0)
        self._outer += decoded.T @ decoded
        self._waiting.clear()

    def messages(self) -> Messages:
        """What a method is handed."""
        self._decode()
        count = max(self._count, 1)
        return Messages(self._count, self._sum / count, self._outer / count)

    def state(self) -> dict[str, Any]:
        """Everything to go on from, as numbers, texts and arrays."""
        self._decode()
        identities = np.frombuffer(b"".join(sorted(self._seen)), dtype=np.uint8)
        return {
            "count": np.array(self._count),
            "seeded": np.array(self.seeded),
            "sum": self._sum,
            "outer": self._outer,
            "seen": identities.reshape(-1, ID_BYTES),
            "reasons": np.array(list(self.rejected), dtype=np.str_),
            "rejected": np.array(list(self.rejected.values()), dtype=np.int64),
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Go on from what `state` returned for the same round."""
        self._count, self.seeded = int(state["count"]), bool(state["seeded"])
        self._sum, self._outer = state["sum"].copy(), state["outer"].copy()
        self._seen = {bytes(row) for row in state["seen"]}
        pairs = zip(state["reasons"].tolist(), state["rejected"].tolist(), strict=True)
        self.rejected = Counter(dict(pairs))


def _matrix(payloads: list[bytes]) -> NDArray[np.uint8]:
    return np.frombuffer(b"".join(payloads), dtype=np.uint8).reshape(len(payloads), -1)
