"""The server's side of one round: messages in, any order and number; what is wrong is counted."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dpstats.errors import DataError
from dpstats.holders.clients import check_question, release_of
from dpstats.holders.device import count_of, envelope_of, envelope_of_count
from dpstats.holders.wire import ID_BYTES, Envelope, OpenedMessage, unpack
from dpstats.protocol import Messages

if TYPE_CHECKING:
    from dpstats.design import Design
    from dpstats.protocol import CountQuestion, DeviceQuestion, Plan, Release

__all__ = ["REASONS", "MessageCollector", "ReceivedMessages"]

Array = NDArray[np.float64]

_BATCH = 4096  # messages decoded at a time
_PREFIXES = ("", "astray ")  # of the arrays of those that answer, and of those that count
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


class _Received:
    """Messages to one question: those that came in since the last batch, and sums of the others."""

    def __init__(self, question: DeviceQuestion | CountQuestion, envelope: Envelope) -> None:
        self.channel, self.envelope = question.channel, envelope
        dim = question.message.dim
        self.count, self.sum, self.outer = 0, np.zeros(dim), np.zeros((dim, dim))
        self._waiting: list[bytes] = []

    def __len__(self) -> int:
        return self.count + len(self._waiting)

    def opened(self, message: object) -> OpenedMessage:
        """A message of anyone, read."""
        found = unpack(message, self.envelope, self.channel.payload_bytes)
        if found.reason or bool(self.channel.accepts(_matrix([found.payload]))[0]):
            return found
        return OpenedMessage("payload")

    def take(self, payload: bytes) -> None:
        """Take what was accepted."""
        self._waiting.append(payload)
        if len(self._waiting) >= _BATCH:
            self.decode()

    def decode(self) -> None:
        """Add up what waits."""
        if not self._waiting:
            return
        decoded = self.channel.decode(_matrix(self._waiting))
        self.count += len(decoded)
        self.sum += decoded.sum(axis=0)
        self.outer += decoded.T @ decoded
        self._waiting.clear()

    def messages(self) -> Messages:
        """What a method is handed."""
        self.decode()
        count = max(self.count, 1)
        return Messages(self.count, self.sum / count, self.outer / count)

    def state(self) -> dict[str, NDArray[np.generic]]:
        """Everything to go on from."""
        self.decode()
        count = np.array(self.count, dtype=np.int64)
        return {"count": count, "sum": self.sum, "outer": self.outer}

    def restore(self, state: Mapping[str, NDArray[Any]]) -> bool:
        """Go on from what `state` returned; False if it is no such state."""
        count, total, outer = _whole(state["count"]), state["sum"], state["outer"]
        dim = self.sum.size
        if count < 0 or not (_is(total, "f8", (dim,)) and _is(outer, "f8", (dim, dim))):
            return False
        self.count = count
        self.sum, self.outer = total.astype(np.float64), outer.astype(np.float64)
        return bool(np.isfinite(total).all() and np.isfinite(outer).all())


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
        self.question, self.count = question, count_of(design, question)
        self.turn = turn
        self.rejected: Counter[str] = Counter()
        self.seeded = 0
        self._seen: set[bytes] = set()
        envelope = envelope_of(design, question, turn)
        self._answers = [_Received(question, envelope)]
        if self.count is not None:
            self._answers += [_Received(self.count, envelope_of_count(envelope, self.count))]

    def __len__(self) -> int:
        """Messages accepted."""
        return sum(map(len, self._answers))

    @property
    def answered(self) -> int:
        """Those of them that answer the question, and do not count instead."""
        return len(self._answers[0])

    @property
    def counted(self) -> int:
        """Those of them that count."""
        return len(self) - self.answered

    def add(self, message: object) -> bool:
        """Take one message; False, and one more in `rejected`, if it is not one of this round."""
        for answers in self._answers:
            opened = answers.opened(message)
            if opened.reason != "question":  # otherwise it may be one that counts
                break
        reason = opened.reason or ("duplicate" if opened.identity in self._seen else "")
        if reason:
            self.rejected[reason] += 1
            return False
        self._seen.add(opened.identity)
        self.seeded += opened.seeded
        answers.take(opened.payload)
        return True

    def messages(self) -> Messages:
        """What a method is handed."""
        answered, *counted = (answers.messages() for answers in self._answers)
        return replace(answered, astray=counted[0]) if counted else answered

    def state(self) -> dict[str, NDArray[np.generic]]:
        """Everything to go on from, as numbers, texts and arrays."""
        identities = np.frombuffer(b"".join(sorted(self._seen)), dtype=np.uint8)
        sums = {
            prefix + key: value
            for prefix, answers in zip(_PREFIXES, self._answers, strict=False)
            for key, value in answers.state().items()
        }
        return {
            **sums,
            "seeded": np.array(self.seeded, dtype=np.int64),
            "seen": identities.reshape(-1, ID_BYTES),
            "reasons": np.array(list(self.rejected), dtype=np.str_),
            "rejected": np.array(list(self.rejected.values()), dtype=np.int64),
        }

    @property
    def largest(self) -> int:
        """Bytes of the largest array of a state but that of identities."""
        return max(answers.outer.nbytes for answers in self._answers)

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
        seeded, seen = _whole(state["seeded"]), state["seen"]
        reasons, times = state["reasons"], state["rejected"]
        sound = all(
            answers.restore({key: state[prefix + key] for key in answers.state()})
            for prefix, answers in zip(_PREFIXES, self._answers, strict=False)
        )
        sound = (
            sound
            and 0 <= seeded <= len(self)
            and _is(seen, "u1", (len(self), ID_BYTES))
            and reasons.dtype.kind == "U"
            and set(reasons.tolist()) <= REASONS
            and _is(times, "i8", reasons.shape)
            and reasons.ndim == 1
            and bool((times >= 0).all())
        )
        identities = {bytes(row) for row in seen} if sound else set()
        if not sound or len(identities) != len(self):
            raise DataError(f"Round {self.turn + 1} has counts and sums that do not fit together.")
        self.seeded, self._seen = seeded, identities
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
        return tuple(
            release_of(question, self.plan, each.turn, count)
            for each in self._rounds
            for question, count in ((each.question, each.answered), (each.count, each.counted))
            if question is not None
        )

    def collect(self, question: DeviceQuestion, part: int) -> Messages:
        """The messages of round `part`, which was asked this question.

        Raises
        ------
        DataError, PlanError
            If there was no such round, or not at this cost: of a file, the plan may contradict
            itself.
        """
        if part >= len(self._rounds):
            raise DataError(
                f"The plan has {len(self._rounds)} rounds, and its options ask for more. It was "
                "changed since the rounds were asked: load the file as the collector saved it."
            )
        check_question(question, self.plan)
        return self._rounds[part].messages()


def _whole(value: NDArray[np.generic]) -> int:
    """A whole number >= 0; -1 for anything else."""
    return int(value) if _is(value, "i8", ()) else -1


def _is(value: object, dtype: str, shape: tuple[int, ...]) -> bool:
    return isinstance(value, np.ndarray) and value.dtype == dtype and value.shape == shape


def _matrix(payloads: list[bytes]) -> NDArray[np.uint8]:
    return np.frombuffer(b"".join(payloads), dtype=np.uint8).reshape(len(payloads), -1)
