"""Devices that randomise their own records, all simulated in this process."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from dpstats.errors import DataError, PlanError
from dpstats.holders.sealed import sealed
from dpstats.holders.transcript import RecordingHolder
from dpstats.mechanisms.lots import BLOCK, Lots
from dpstats.mechanisms.noise import Noise
from dpstats.mechanisms.randomize import MessageSums
from dpstats.privacy import SIMULATED, Local
from dpstats.protocol import DeviceQuestion, Messages, Plan, Release

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
        Its one mechanism is a message; its ``"shares"`` say how devices are divided into rounds.
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

    @sealed
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
        self._source = source
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

    @sealed
    def collect(self, question: DeviceQuestion, part: int) -> Messages:
        """Ask the devices of round `part`; see `LocalHolder.collect`."""
        check_question(question, self._plan)
        if part != len(self._transcript) or part >= len(self._rounds):
            raise PlanError(f"Round {part} was already asked, or is not the next one.")
        (begin, end), message = self._rounds[part], question.message
        sums = MessageSums(question.channel, self._noise)
        step, few = (max(1, cells // message.dim) for cells in (_CELLS, _CACHED))
        for places in self._places(begin, end, step):
            block = self._source.block(int(places[0]), int(places[-1]) + 1)
            here = places - places[0]
            for first in range(0, here.size, few):
                some = here[first : first + few]
                y = None if block.y is None else block.y[some]
                sums.add(message.rows(block.x[some], y, block.keep[some]))
        mean, second = sums.averages()
        self._note(release_of(question, self._plan, part, end - begin))
        return Messages(end - begin, mean, second)


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
    if (channel.dim, channel.domain) != (message.dim, message.ball):
        raise PlanError(
            f"The channel takes the {channel.domain} ball in {channel.dim} dimensions, the message "
            f"lies in that of {message.ball} in {message.dim}."
        )


def release_of(question: DeviceQuestion, plan: Plan, part: int, count: int) -> Release:
    """The record of a round in which `count` devices answered."""
    channel, message = question.channel, question.message
    sd = float(np.sqrt(channel.variance() / channel.dim))
    return Release(
        slot=plan.mechanisms[0].slot,
        query=message.name,
        parameters=message.parameters(),
        sensitivity=2.0,  # two messages are at most the diameter of the ball apart
        scale=sd,
        event=channel.event,
        part=part,
        law=f"{channel.name}, {channel.dim} number{'s' * (channel.dim > 1)}, {count:,} users",
    )
