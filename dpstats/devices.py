"""Fits where nobody holds the rows: what ships to a device, and what collects its messages.

A `Randomizer` is public and small: a design, a question, a channel. It is written as JSON, and the
device that loads it answers with bytes. A `Collector` takes such messages, in any order and number,
round by round; between rounds it may be saved and loaded by another process.
"""

from __future__ import annotations

import json
import math
import os
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np
from numpy.typing import NDArray

from dpstats import estimators
from dpstats.archive import plan_from_dict, plan_to_dict
from dpstats.channels import channel
from dpstats.design import Design
from dpstats.errors import DataError, OptionError, PlanError
from dpstats.holders.clients import release_of
from dpstats.holders.device import Device
from dpstats.holders.inbox import Inbox
from dpstats.holders.wire import HEADER_BYTES
from dpstats.mechanisms.noise import Noise, SafeNoise
from dpstats.protocol import Plan, Question
from dpstats.queries import MomentMessage
from dpstats.results import Results

__all__ = ["Collector", "Randomizer"]

Array = NDArray[np.float64]

_RANDOMIZER = "dpstats.randomizer"
_COLLECTOR = "dpstats.collector"
_VERSION = 1


class Randomizer:
    """Ships to a device: called with one record, it returns one message of bytes.

    Guarantee: each message is (epsilon, delta)-DP under replacement of the whole record, against
    everybody. The record enters through the sampler of the channel alone, which clips it first;
    see `dpstats.channels` for the proof of each. Whatever the record holds (missing keys, values
    outside their declaration or of another type), a message is sent. Two messages of one record
    cost twice.

    Made by `Model.randomizer`, `Collector.randomizer` or `from_json`.
    """

    def __init__(
        self, design: Design, question: Question, turn: int = 0, noise: Noise | None = None
    ) -> None:
        noise = SafeNoise() if noise is None else noise
        self.design = design
        self._question, self._turn = question, turn
        self._device = Device(design, question, turn, noise)

    @property
    def epsilon(self) -> float:
        """Privacy loss of one message."""
        return self._question.channel.epsilon

    @property
    def delta(self) -> float:
        """Probability with which the loss may exceed epsilon."""
        return self._question.channel.delta

    @property
    def message_bytes(self) -> int:
        """Length of every message."""
        return HEADER_BYTES + self._question.channel.payload_bytes

    def __repr__(self) -> str:
        c = self._question.channel
        return (
            f"<dpstats randomizer: ({c.epsilon:g}, {c.delta:g})-DP, round {self._turn + 1}, "
            f"{c.name} of {c.dim} numbers, {self.message_bytes} bytes>"
        )

    def __call__(self, record: Mapping[str, Any]) -> bytes:
        """The message about one record.

        Parameters
        ----------
        record : mapping
            Column names to values; those of the formula, on both sides.

        Raises
        ------
        DataError
            If it is no mapping; never on what it holds.
        """
        return self._device.send(record)

    def send_all(self, table: Any) -> list[bytes]:
        """Messages of the rows of a table, each as from a device of its own; for simulation."""
        return self._device.send_all(table)

    def to_json(self) -> str:
        """Everything that a device needs; public."""
        return json.dumps(
            {
                "format": _RANDOMIZER,
                "version": _VERSION,
                "design": self.design.to_dict(),
                "round": self._turn,
                "message": self._question.message.parameters(),
                "channel": _channel_to_dict(self._question),
            }
        )

    @classmethod
    def from_json(
        cls,
        text: str,
        *,
        epsilon: float = math.inf,
        delta: float = 1.0,
        noise: Noise | None = None,
    ) -> Randomizer:
        """Inverse of `to_json`.

        Parameters
        ----------
        text : str
            What `to_json` wrote.
        epsilon, delta : float
            The most that the device is willing to spend on one message: it need not believe who
            asks.
        noise : SeededNoise, optional
            For simulation.

        Raises
        ------
        OptionError
            If the text is no randomizer of this version, or it would spend more.
        """
        fields = _opened(text, _RANDOMIZER)
        asked = channel(**fields["channel"])
        if asked.epsilon > epsilon or asked.delta > delta:
            raise OptionError(
                f"The randomizer spends ({asked.epsilon:g}, {asked.delta:g}) on a message, and at "
                f"most ({epsilon:g}, {delta:g}) is allowed. Answer nothing, or allow more."
            )
        question = Question(MomentMessage.from_parameters(fields["message"]), asked)
        return cls(Design.from_dict(fields["design"]), question, fields["round"], noise)


class Collector:
    """Runs on the server: takes messages in any order and number, and fits.

    What it holds was private when it was sent, so it may be stored, copied and looked at.

    Made by `Model.collector` or `load`.

    Attributes
    ----------
    design : Design
        Public design.
    plan : Plan
        What was planned for the number of users expected.
    """

    def __init__(self, design: Design, plan: Plan, public: Array | None = None) -> None:
        self.design, self.plan = design, plan
        self._public = public
        self._method: Any = estimators.find(plan.model, plan.privacy, plan.method)
        first = self._asked([])
        if first is None:
            raise PlanError(f"method={plan.method!r} asks no device anything.")
        self._inboxes = [Inbox(design, first, 0)]

    def _asked(self, inboxes: list[Inbox]) -> Question | None:
        answers = [inbox.messages() for inbox in inboxes]
        found: Question | None = self._method.question(
            self.design, self.plan, answers, self._public
        )
        return found

    def __repr__(self) -> str:
        return (
            f"<dpstats collector: {self.plan.model} by {self.plan.method}, round {self.round} of "
            f"{self.rounds}, {self.accepted:,} messages accepted, "
            f"{sum(self.rejected.values()):,} rejected>"
        )

    @property
    def round(self) -> int:
        """Number of the round that messages are taken of, from 1."""
        return len(self._inboxes)

    @property
    def rounds(self) -> int:
        """Rounds in all."""
        return self.plan.mechanisms[0].parts

    @property
    def accepted(self) -> int:
        """Messages accepted, in all rounds."""
        return sum(map(len, self._inboxes))

    @property
    def rejected(self) -> dict[str, int]:
        """Messages rejected in all rounds, by reason.

        ``"not a message"``, ``"version"``, ``"corrupt"``, ``"schema"``, ``"epsilon"``, ``"round"``,
        ``"question"``, ``"payload"``, ``"duplicate"``.
        """
        return dict(sum((inbox.rejected for inbox in self._inboxes), Counter()))

    def randomizer(self, *, noise: Noise | None = None) -> Randomizer:
        """What to ship to the devices of the current round."""
        return Randomizer(self.design, self._inboxes[-1].question, self.round - 1, noise)

    def add(self, message: Any) -> bool:
        """Take one message of the current round; False, and counted, if it is none."""
        return self._inboxes[-1].add(message)

    def extend(self, messages: Iterable[Any]) -> int:
        """Take several messages; how many were accepted."""
        return sum(map(self.add, messages))

    def next_round(self) -> Randomizer:
        """Close the current round and ask other devices what comes next.

        Raises
        ------
        OptionError
            If this is the last round, or it has no message yet.
        """
        self._check_answered()
        if self.round == self.rounds:
            raise OptionError(f"Round {self.round} is the last one: call fit().")
        question = self._asked(self._inboxes)
        if question is None:
            raise OptionError(f"Round {self.round} is the last one: call fit().")
        self._inboxes.append(Inbox(self.design, question, self.round))
        return self.randomizer()

    def _check_answered(self) -> None:
        if not len(self._inboxes[-1]):
            raise OptionError(
                f"Round {self.round} of {self.rounds} has no accepted message; rejected: "
                f"{self.rejected or 'none'}. Send messages of its randomizer first."
            )

    def fit(self) -> Results:
        """The fit from all messages received.

        Raises
        ------
        OptionError
            If a round is missing or has no message.
        """
        self._check_answered()
        if self.round < self.rounds:
            raise OptionError(
                f"Round {self.round} of {self.rounds}: call next_round() and collect the messages "
                "of other users, until the last one."
            )
        answers = [inbox.messages() for inbox in self._inboxes]
        plan = replace(self.plan, n=self.accepted)
        estimate = self._method.finish(self.design, self.plan, answers, self._public)
        return Results.from_estimate(
            estimate,
            design=self.design,
            plan=plan,
            theory=self._method.theory[plan.privacy.trust].under(plan.options),
            releases=[
                release_of(inbox.question, plan, inbox.turn, len(inbox)) for inbox in self._inboxes
            ],
            reproducible=any(inbox.seeded for inbox in self._inboxes),
        )

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write everything to a file: an ``.npz`` archive, replaced at once, without pickles."""
        target = Path(path)
        written: dict[str, Any] = {"header": np.array(self._header())}
        if self._public is not None:
            written["public"] = self._public
        for inbox in self._inboxes:
            written |= {f"{inbox.turn}/{key}": value for key, value in inbox.state().items()}
        part = target.with_name(target.name + ".part")
        with part.open("wb") as file:
            np.savez_compressed(file, **written)
            file.flush()
            os.fsync(file.fileno())
        part.replace(target)

    def _header(self) -> str:
        return json.dumps(
            {
                "format": _COLLECTOR,
                "version": _VERSION,
                "design": self.design.to_dict(),
                "plan": plan_to_dict(self.plan),
                "rounds": self.round,
            }
        )

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Collector:
        """Go on where `save` stopped, in this process or another one.

        Raises
        ------
        DataError
            If the file is no collector of this version.
        """
        try:
            with Path(path).open("rb") as file, np.load(file, allow_pickle=False) as archive:
                stored = {key: archive[key] for key in archive.files}
            fields = _opened(str(stored["header"]), _COLLECTOR)
        except (ValueError, KeyError, EOFError, OSError, BadZipFile, OptionError) as error:
            raise DataError(f"{os.fspath(path)!r} is no saved collector: {error}.") from None
        design, plan = Design.from_dict(fields["design"]), plan_from_dict(fields["plan"])
        collector = cls(design, plan, stored.get("public"))
        for turn in range(fields["rounds"]):
            if turn:
                question = collector._asked(collector._inboxes)
                assert question is not None  # it was asked before the file was written
                collector._inboxes.append(Inbox(design, question, turn))
            mine = f"{turn}/"
            collector._inboxes[turn].restore(
                {key.removeprefix(mine): v for key, v in stored.items() if key.startswith(mine)}
            )
        return collector


def _channel_to_dict(question: Question) -> dict[str, Any]:
    c = question.channel
    return {"name": c.name, "dim": c.dim, "epsilon": c.epsilon, "delta": c.delta}


def _opened(text: str, kind: str) -> dict[str, Any]:
    """Fields of a JSON text of this kind and version."""
    try:
        fields = json.loads(text)
    except ValueError:
        fields = None
    if not isinstance(fields, dict) or fields.get("format") != kind:
        raise OptionError(f"This is no {kind!r} file.")
    if fields.get("version") != _VERSION:
        raise OptionError(
            f"{kind!r} version {fields.get('version')!r}: this release reads {_VERSION}."
        )
    return fields
