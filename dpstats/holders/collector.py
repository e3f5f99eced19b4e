"""The server's side of one round: messages in, any order and number; what is wrong is counted."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dpstats.errors import DataError
from dpstats.holders.clients import release_of
from dpstats.holders.device import envelope_of
from dpstats.holders.wire import ID_BYTES, unpack
from dpstats.protocol import Messages

if TYPE_CHECKING:
    from dpstats.design import Design
    from dpstats.protocol import DeviceQuestion, Plan, Release

__all__ = ["REASONS", "MessageCollector", "ReceivedMessages"]

Array = NDArray[np.float64]

_BATCH = 4096  # messages decoded at a time
REASONS = frozenset(
    [
        "not a message",
        "version",
        "corrupt",
        "schema",
        "epsilon",
        "round",
        "question",
        "payload",
        "duplicate",
    ]
)


class MessageCollector:
    """Receives the messages of one round and keeps what their average needs.

    Everything here was private when it was sent: a collector may be stored and read by anyone.

    Parameters
    ----------
    design : Design
        Public design.
    question : DeviceQuestion
        What the devices of the round were asked.
    turn : int
        The round.

    Attributes
    ----------
    rejected : Counter
        Messages that were not accepted, by reason: ``"not a message"``, ``"version"``,
        ``"corrupt"``, ``"schema"``, ``"epsilon"``, ``"round"``, ``"question"``, ``"payload"``,
        ``"duplicate"``.
    seeded : int
        Messages accepted whose senders marked them as drawn from a seed, and so NOT private.
    """

    def __init__(self, design: Design, question: DeviceQuestion, turn: int) -> None:
        self.question = question
        self.turn = turn
        self.rejected: Counter[str] = Counter()
        self.seeded = 0
        self._envelope = envelope_of(design, question, turn)
        self._seen: set[bytes] = set()
        self._waiting: list[bytes] = []
        dim = question.message.dim
        self._count, self._sum, self._outer = 0, np.zeros(dim), np.zeros((dim, dim))

    def __len__(self) -> int:
        """Messages accepted."""
        return self._count + len(self._waiting)

    def add(self, message: object) -> bool:
        """Take one message; False, and one more in `rejected`, if it is not one of this round."""
        opened = unpack(message, self._envelope, self.question.channel.payload_bytes)
        reason = opened.reason or self._refused(opened.identity, opened.payload)
        if reason:
            self.rejected[reason] += 1
            return False
        self._seen.add(opened.identity)
        self._waiting.append(opened.payload)
        self.seeded += opened.seeded
        if len(self._waiting) >= _BATCH:
            self._decode()
        return True

    def _refused(self, identity: bytes, payload: bytes) -> str:
        if identity in self._seen:
            return "duplicate"
        channel = self.question.channel
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

    def state(self) -> dict[str, NDArray[np.generic]]:
        """Everything to go on from, as numbers, texts and arrays."""
        self._decode()
        identities = np.frombuffer(b"".join(sorted(self._seen)), dtype=np.uint8)
        return {
            "count": np.array(self._count, dtype=np.int64),
            "seeded": np.array(self.seeded, dtype=np.int64),
            "sum": self._sum,
            "outer": self._outer,
            "seen": identities.reshape(-1, ID_BYTES),
            "reasons": np.array(list(self.rejected), dtype=np.str_),
            "rejected": np.array(list(self.rejected.values()), dtype=np.int64),
        }

    def restore(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Go on from what `state` returned for the same round.

        Raises
        ------
        DataError
            If it is no such state: an array is missing, of another type or shape, or contradicts
            another.
        """
        if set(state) != set(self.state()):
            raise DataError(f"Round {self.turn + 1} has the arrays {sorted(state)}.")
        dim = self.question.message.dim
        count, seeded = (_whole(state[name]) for name in ("count", "seeded"))
        total, outer, seen = state["sum"], state["outer"], state["seen"]
        reasons, times = state["reasons"], state["rejected"]
        sound = (
            0 <= seeded <= count
            and _is(total, "f8", (dim,))
            and _is(outer, "f8", (dim, dim))
            and bool(np.isfinite(total).all() and np.isfinite(outer).all())
            and _is(seen, "u1", (count, ID_BYTES))
            and reasons.dtype.kind == "U"
            and set(reasons.tolist()) <= REASONS
            and _is(times, "i8", reasons.shape)
            and reasons.ndim == 1
            and bool((times >= 0).all())
        )
        identities = {bytes(row) for row in seen} if sound else set()
        if len(identities) != count:
            raise DataError(f"Round {self.turn + 1} has counts and sums that do not fit together.")
        self._count, self.seeded, self._seen = count, seeded, identities
        self._sum, self._outer = total.astype(np.float64), outer.astype(np.float64)
        self.rejected = Counter(dict(zip(reasons.tolist(), times.tolist(), strict=True)))


class ReceivedMessages:
    """The messages of all rounds as the `LocalHolder` that an estimator asks.

    Parameters
    ----------
    plan : Plan
        What was planned for the number of users expected.
    rounds : sequence of MessageCollector
        All rounds of the plan, in order.
    public : ndarray of shape (d, d), optional
        Second moments of public rows.
    """

    remarks: tuple[str, ...] = ()

    def __init__(
        self, plan: Plan, rounds: Sequence[MessageCollector], public: Array | None
    ) -> None:
        self.plan, self.public = plan, public
        self._rounds = rounds
        self.marked = sum(one.seeded for one in rounds)
        self.reproducible = self.marked == sum(map(len, rounds))

    @property
    def transcript(self) -> tuple[Release, ...]:
        """What every round was asked. Public."""
        return tuple(release_of(r.question, self.plan, r.turn, len(r)) for r in self._rounds)

    def collect(self, question: DeviceQuestion, part: int) -> Messages:
        """The messages of round `part`, which was asked this question.

        Raises
        ------
        DataError
            If there was no such round: of a file, the plan may contradict itself.
        """
        if part >= len(self._rounds):
            raise DataError(
                f"The plan has {len(self._rounds)} rounds, and its options ask for more. It was "
                "changed since the rounds were asked: load the file as the collector saved it."
            )
        return self._rounds[part].messages()


def _whole(value: NDArray[np.generic]) -> int:
    """A whole number >= 0; -1 for anything else."""
    return int(value) if _is(value, "i8", ()) else -1


def _is(value: object, dtype: str, shape: tuple[int, ...]) -> bool:
    return isinstance(value, np.ndarray) and value.dtype == dtype and value.shape == shape


def _matrix(payloads: list[bytes]) -> NDArray[np.uint8]:
    return np.frombuffer(b"".join(payloads), dtype=np.uint8).reshape(len(payloads), -1)
