"""Devices that randomise their own records, all simulated in this process."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from dpstats.errors import DataError, PlanError, scrubbed
from dpstats.holders.device import count_of
from dpstats.holders.transcript import RecordingHolder
from dpstats.mechanisms.draws import drawn
from dpstats.mechanisms.lots import BLOCK, Lots
from dpstats.mechanisms.noise import Noise, NoiseStream
from dpstats.mechanisms.randomize import MessageSums
from dpstats.privacy import SIMULATED, Local
from dpstats.protocol import CountQuestion, DeviceQuestion, Messages, Plan, Release

if TYPE_CHECKING:
    from dpstats.design import Design, Source

__all__ = ["Clients", "check_question", "release_of"]

Array = NDArray[np.float64]

_CELLS = 1 << 21  # coordinates of rows and of their messages read at a time: 16 MiB
_CACHED = 1 << 18  # made, randomised and added at a time: 2 MiB stay near the processor


class Clients(RecordingHolder):
    """Every row of a table as a device of its own.

    The messages follow the law of the devices' messages exactly; only their order is lost. Noise is
    drawn in float64 for many rows at a time, so the guarantee that holds bit for bit is that of
    the devices themselves (`dpstats.Randomizer`).

    Parameters
    ----------
    source : Source
        Rows behind the design.
    design : Design
        Public design.
    plan : Plan
        Its first mechanism is a message; a second is that of devices that count instead, where the
        share ``"counting"`` of them do. ``"shares"`` say how devices are divided into rounds.
    noise : Noise
        Source of randomness, of the division into rounds too.
    public : ndarray of shape (d, d), optional
        Second moments of public rows.
    on_answer : callable, optional
        Called with the slot after each round; for progress.

    Raises
    ------
    DataError
        On names, types or shape; never on values.
    """

    remarks = (SIMULATED,)

    @scrubbed
    def __init__(
        self,
        source: Source,
        design: Design,
        plan: Plan,
        noise: Noise,
        public: Array | None = None,
        on_answer: Callable[[str], None] | None = None,
    ) -> None:
        if not isinstance(plan.privacy, Local):
            raise PlanError(f"Devices answer Local plans, not {plan.privacy.trust!r} ones.")
        if source.is_sparse:
            raise DataError("A device holds one dense record: pass a dense array or a table.")
        self.public = public
        self._source, self._design = source, design
        self._asked = 0  # rounds
        super().__init__(plan, noise, on_answer)
        self._lots = Lots(self._noise, len(source))
        self._rounds = self._divided(len(source), plan.options["shares"])
        if len(self._rounds) > 1:
            self._lots.key  # noqa: B018 - drawn before any message

    def _divided(self, n: int, shares: tuple[float, ...]) -> list[tuple[int, int]]:
        """Ranks of the lots of each round's devices."""
        ends = np.rint(np.cumsum(shares) / sum(shares) * n).astype(int)[:-1].tolist()
        rounds = list(itertools.pairwise([0, *ends, n]))
        if not all(begin < end for begin, end in rounds):
            raise DataError(f"{n} rows for {len(shares)} rounds: each needs at least one row.")
        return rounds

    def _places(self, begin: int, end: int, step: int) -> Iterator[NDArray[np.intp]]:
        """Positions of the devices of a round in ascending order, `step` at a time."""
        n, waiting = len(self._lots), np.zeros(0, dtype=np.intp)
        for start in range(0, n, BLOCK):
            if (begin, end) == (0, n):
                here = np.arange(start, min(start + BLOCK, n))
            else:
                here = self._lots.between(start, begin, end)
            waiting = np.concatenate([waiting, here])
            while waiting.size >= step:
                yield waiting[:step]
                waiting = waiting[step:]
        if waiting.size:
            yield waiting

    @scrubbed
    def collect(self, question: DeviceQuestion, part: int) -> Messages:
        """Ask the devices of round `part`; see `LocalHolder.collect`."""
        check_question(question, self._plan)
        if part != self._asked or part >= len(self._rounds):
            raise PlanError(f"Round {part} was already asked, or is not the next one.")
        self._asked += 1
        count, message = count_of(self._design, question), question.message
        asked: list[DeviceQuestion | CountQuestion] = [question]
        asked += [] if count is None else [count]
        answers, *counts = (_Simulated(each, self._noise) for each in asked)
        for places in self._places(*self._rounds[part], max(1, _CELLS // message.dim)):
            start, stop = int(places[0]), int(places[-1]) + 1
            if count is not None:
                counting = drawn(self._noise, question.counting, places.size)
                astray = self._source.astray(start, stop)[places[counting] - start]
                counts[0].add(count.message.rows(astray))
                places = places[~counting]
            block, few = self._source.block(start, stop), max(1, _CACHED // message.dim)
            for first in range(0, places.size, few):
                some = places[first : first + few] - start
                y = None if block.y is None else block.y[some]
                answers.add(message.rows(block.x[some], y, block.keep[some]))
        for each, sent in zip(asked, (answers, *counts), strict=True):
            self._note(release_of(each, self._plan, part, sent.count))
        return replace(answers.messages(), astray=counts[0].messages() if counts else None)


class _Simulated:
    """Messages to one question, added up."""

    def __init__(self, question: DeviceQuestion | CountQuestion, noise: NoiseStream) -> None:
        self.count, self._dim = 0, question.channel.dim
        self._sums = MessageSums(question.channel, noise)

    def add(self, values: Array) -> None:
        """Randomise values (m, dim), and add them."""
        self.count += len(values)
        self._sums.add(values)

    def messages(self) -> Messages:
        """What a method is handed; zeros where no device answered."""
        if not self.count:
            return Messages(0, np.zeros(self._dim), np.zeros((self._dim,) * 2))
        return Messages(self.count, *self._sums.averages())


def check_question(question: DeviceQuestion, plan: Plan) -> None:
    """Refuse a channel that costs something else than the plan charged, or another ball.

    Raises
    ------
    PlanError
        If one of them differs.
    """
    channel, message = question.channel, question.message
    if channel.event != plan.mechanisms[0].event:
        raise PlanError(f"The channel costs {channel.event}, the plan {plan.mechanisms[0].event}.")
    counts = len(plan.mechanisms) > 1
    if question.counting != plan.options.get("counting", 0.0) or counts != (question.counting > 0):
        raise PlanError(f"{question.counting:.3g} of the devices are to count: not as planned.")
    if (channel.dim, channel.domain) != (message.dim, message.ball):
        raise PlanError(
            f"The channel takes the {channel.domain} ball in {channel.dim} dimensions, the message "
            f"lies in that of {message.ball} in {message.dim}."
        )


def release_of(
    question: DeviceQuestion | CountQuestion, plan: Plan, part: int, count: int
) -> Release:
    """The record of a round in which `count` devices answered."""
    channel, message = question.channel, question.message
    sd = float(np.sqrt(channel.variance() / channel.dim))
    counts = isinstance(question, CountQuestion)
    return Release(
        slot=plan.mechanisms[int(counts)].slot,
        query=message.name,
        parameters=message.parameters(),
        sensitivity=2.0,  # two messages are at most the diameter of the ball apart
        scale=sd,
        event=channel.event,
        part=part,
        law=f"{channel.name}, {channel.dim} number{'s' * (channel.dim > 1)}, {count:,} users",
    )
