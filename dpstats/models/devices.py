"""Fits where nobody holds the rows: what ships to a device, and what collects its messages.

A `Randomizer` is public and small: a design, a question, a channel. It is written as JSON, and the
device that loads it answers with bytes. A `Collector` takes such messages, in any order and number,
round by round; between rounds it may be saved and loaded by another process.
"""

from __future__ import annotations

import io
import json
import math
import os
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpstats import estimators
from dpstats.channels import channel
from dpstats.design import Design, design_from_dict
from dpstats.errors import DataError, DPStatsError, OptionError, PlanError
from dpstats.holders.collector import MessageCollector, ReceivedMessages
from dpstats.holders.device import Device, count_of
from dpstats.holders.wire import HEADER_BYTES
from dpstats.mechanisms.noise import Noise, SafeNoise
from dpstats.models.asked import check_asked
from dpstats.models.door import concluded
from dpstats.models.saved_arrays import archive_in, array_of, moments_of
from dpstats.outputs import FileKind, write_output
from dpstats.protocol import DeviceQuestion, Plan
from dpstats.queries.cell_messages import message_of
from dpstats.results import Released as Results
from dpstats.results.archive import plan_from_dict, plan_to_dict
from dpstats.results.warned import warned_of
from dpstats.stored import is_version, json_of, reading, shown, values

__all__ = ["Collector", "Randomizer"]

Array = NDArray[np.float64]

_RANDOMIZER = "dpstats.randomizer"
_COLLECTOR = "dpstats.collector"
_VERSIONS = {_RANDOMIZER: 3, _COLLECTOR: 3}  # of the formats
_LONG = 2**30  # bytes of the longest header in a file

# What a file holds, by type.
_FORMAT = {"format": str, "version": int}
_FIELDS = _FORMAT | {
    "design": dict,
    "round": int,
    "message": dict,
    "channel": dict,
    "counting": float,
}
_CHANNEL = {"name": str, "dim": int, "epsilon": float, "delta": float}
_HEADER = _FORMAT | {"design": dict, "plan": dict, "rounds": int}


class Randomizer:
    """Ships to a device: called with one record, it returns one message of bytes.

    Guarantee: each message is (epsilon, delta)-DP under replacement of the whole record, against
    everybody. The record enters through the sampler of the channel alone, which clips it first;
    see `dpstats.channels` for the proof of each. Whatever the record holds (missing keys, values
    outside their declaration or of another type), a message is sent. Two messages of one record
    cost twice.

    Some devices, by a coin of their own that depends on nothing, count: in place of their answer
    they say which value of theirs is outside of what is declared, or missing, under the same
    epsilon. For any set of messages the probability is a mixture, with the odds of the coin, of
    those of two (epsilon, delta)-DP mechanisms, and so the guarantee is that of each.

    Made by `Model.randomizer`, `Collector.randomizer` or `from_json`.

    Examples
    --------
    >>> import dpstats as dp
    >>> schema = dp.Schema(x=dp.Numeric(0, 1), y=dp.Numeric(0, 1))
    >>> model = dp.ols("y ~ x", schema=schema, n=10_000)
    >>> send = model.randomizer(dp.Local(2.0))
    >>> len(send({"x": 0.3, "y": 0.9})) in (send.message_bytes, send.count_bytes)
    True
    """

    def __init__(
        self, design: Design, question: DeviceQuestion, turn: int = 0, noise: Noise | None = None
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
        """Length of a message that answers."""
        return HEADER_BYTES + self._question.channel.payload_bytes

    @property
    def count_bytes(self) -> int:
        """Length of a message that counts what is astray, in place of an answer; 0 if none does."""
        count = count_of(self.design, self._question)
        return 0 if count is None else HEADER_BYTES + count.channel.payload_bytes

    @property
    def counting(self) -> float:
        """Chance that a message counts what is astray, in place of an answer."""
        return self._question.counting

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
        asked = self._question.message
        return json.dumps(
            {
                "format": _RANDOMIZER,
                "version": _VERSIONS[_RANDOMIZER],
                "design": self.design.to_dict(),
                "round": self._turn,
                "message": {"name": asked.name, **asked.parameters()},
                "channel": _channel_to_dict(self._question),
                "counting": self._question.counting,
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
        DPStatsError
            If the text is no randomizer of this version, it would spend more, or anything in it is
            of another type or size than it has to be. Nothing in it is run; its formula is held to
            the operations that are allowed on private rows.

        Notes
        -----
        Whoever wrote the text, a message spends at most the epsilon and delta of the channel, which
        are compared with the limits here and clip whatever the text asks of the record.
        """
        fields = _opened(text, _RANDOMIZER)
        with reading("The randomizer"):
            found = values(_FIELDS, fields, "randomizer")
            asked = channel(**values(_CHANNEL, found["channel"], "randomizer, channel"))
            if not (asked.epsilon <= epsilon and asked.delta <= delta):
                raise OptionError(
                    f"The randomizer spends ({asked.epsilon:g}, {asked.delta:g}) on a message, and "
                    f"at most ({epsilon:g}, {delta:g}) is allowed. Answer nothing, or allow more."
                )
            design = design_from_dict(found["design"])
            message = message_of(found["message"])
            question = DeviceQuestion(message, asked, found["counting"])
            check_asked(design, question, found["round"])
            return cls(design, question, found["round"], noise)


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

    Examples
    --------
    >>> import dpstats as dp
    >>> schema = dp.Schema(x=dp.Numeric(0, 1), y=dp.Numeric(0, 1))
    >>> server = dp.ols("y ~ x", schema=schema, n=10_000).collector(dp.Local(2.0))
    >>> server.add(server.randomizer()({"x": 0.3, "y": 0.9})), server.accepted
    (True, 1)
    """

    def __init__(self, design: Design, plan: Plan, public: Array | None = None) -> None:
        self.design, self.plan = design, plan
        self._public = public
        self._method: Any = estimators.find(plan.model, plan.privacy, plan.method)
        first = self._asked([])
        if first is None:
            raise PlanError(f"method={plan.method!r} asks no device anything.")
        self._collectors = [MessageCollector(design, first, 0)]

    def _asked(self, collectors: list[MessageCollector]) -> DeviceQuestion | None:
        answers = [collector.messages() for collector in collectors]
        found: DeviceQuestion | None = self._method.question(
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
        return len(self._collectors)

    @property
    def rounds(self) -> int:
        """Rounds in all."""
        return self.plan.mechanisms[0].parts

    @property
    def accepted(self) -> int:
        """Messages accepted, in all rounds, those that count included."""
        return sum(map(len, self._collectors))

    @property
    def rejected(self) -> dict[str, int]:
        """Messages rejected in all rounds, by reason.

        ``"not a message"``, ``"version"``, ``"corrupt"``, ``"schema"``, ``"epsilon"``, ``"round"``,
        ``"question"``, ``"payload"``, ``"duplicate"``.
        """
        return dict(sum((collector.rejected for collector in self._collectors), Counter()))

    @property
    def marked(self) -> int:
        """Messages accepted, in all rounds, that their senders marked as drawn from a seed.

        Their promise is not kept. The mark is the sender's word: a sender can leave it out, and can
        set it on honest noise. Where every message is marked, `fit` is marked NOT private; where
        some are, it says how many.
        """
        return sum(collector.seeded for collector in self._collectors)

    def randomizer(self, *, noise: Noise | None = None) -> Randomizer:
        """What to ship to the devices of the current round."""
        return Randomizer(self.design, self._collectors[-1].question, self.round - 1, noise)

    def add(self, message: Any) -> bool:
        """Take one message of the current round; False, and counted, if it is none."""
        return self._collectors[-1].add(message)

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
        self._append()
        return self.randomizer()

    def _append(self) -> None:
        question = self._asked(self._collectors)
        if question is None:
            raise OptionError(f"Round {self.round} is the last one: call fit().")
        self._collectors.append(MessageCollector(self.design, question, self.round))

    def _check_answered(self) -> None:
        if not self._collectors[-1].answered:
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

        Warns
        -----
        EstimationWarning
            What messages tell of the fit. It carries the results.
        """
        self._check_answered()
        if self.round < self.rounds:
            raise OptionError(
                f"Round {self.round} of {self.rounds}: call next_round() and collect the messages "
                "of other users, until the last one."
            )
        received = ReceivedMessages(self.plan, self._collectors, self._public)
        plan = replace(self.plan, n=self.accepted)
        return warned_of(concluded(self._method, received, self.design, plan), stacklevel=3)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write everything to a file: an ``.npz`` archive, replaced at once, without pickles.

        Raises
        ------
        OptionError
            If the path names no file that can be made, or something there that is no collector.
        """
        written: dict[str, Any] = {"header": np.array(self._header())}
        if self._public is not None:
            written["public"] = self._public
        for collector in self._collectors:
            written |= {
                f"{collector.turn}/{key}": value for key, value in collector.state().items()
            }
        content = io.BytesIO()
        np.savez_compressed(content, **written)
        write_output(path, _COLLECTOR_FILE, content.getvalue())

    def _header(self) -> str:
        return json.dumps(
            {
                "format": _COLLECTOR,
                "version": _VERSIONS[_COLLECTOR],
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
        content = io.BytesIO(Path(path).read_bytes())
        with reading(f"The saved collector {os.fspath(path)!r}", DataError):
            return cls._loaded(content, Path(path))

    @classmethod
    def _loaded(cls, content: io.BytesIO, path: Path) -> Collector:
        with archive_in(content, path) as archive:
            fields = _opened(str(array_of(archive, "header", _LONG)), _COLLECTOR)
            found = values(_HEADER, fields, "collector")
            design, plan = design_from_dict(found["design"]), plan_from_dict(found["plan"])
            if plan.names != design.names:
                raise DataError("The plan and the design of the collector have other columns.")
            collector = cls(design, plan, moments_of(archive, design))
            if not 1 <= found["rounds"] <= collector.rounds:
                raise DataError(f"The collector is in round {found['rounds']}, and has fewer.")
            for turn in range(found["rounds"]):
                if turn:
                    collector._append()
                received, mine = collector._collectors[turn], f"{turn}/"
                most = received.largest
                keys = [key for key in archive.files if key.startswith(mine)]
                received.restore({k.removeprefix(mine): array_of(archive, k, most) for k in keys})
        return collector


def _channel_to_dict(question: DeviceQuestion) -> dict[str, Any]:
    c = question.channel
    return {"name": c.name, "dim": c.dim, "epsilon": c.epsilon, "delta": c.delta}


def _is_collector(path: Path) -> bool:
    try:
        with path.open("rb") as file, archive_in(file, path) as archive:
            return bool(_opened(str(array_of(archive, "header", _LONG)), _COLLECTOR))
    except (DPStatsError, KeyError):
        return False


_COLLECTOR_FILE = FileKind("collector that dpstats saved", _is_collector)


def _opened(text: Any, kind: str) -> dict[str, Any]:
    """Fields of a JSON text of this kind and version."""
    try:
        fields = json_of(text)
    except ValueError:
        fields = None
    if not isinstance(fields, dict) or fields.get("format") != kind:
        raise OptionError(f"This is no {kind!r} file.")
    if not is_version(fields.get("version"), known := _VERSIONS[kind]):
        raise OptionError(
            f"{kind!r} version {shown(fields.get('version'))}: this release reads {known}."
        )
    return fields
