"""Who holds the responses where covariates are public: their devices, or one curator."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from dpstats.errors import DataError, PlanError, scrubbed
from dpstats.holders.transcript import RecordingHolder
from dpstats.mechanisms.lots import Lots
from dpstats.mechanisms.noise import Noise
from dpstats.mechanisms.randomize import messages
from dpstats.mechanisms.release import release
from dpstats.privacy import LabelOnly
from dpstats.protocol import Answer, NoiseLaw, Plan, Release
from dpstats.queries.label_cells import LabelAstray, RandomizedMarks
from dpstats.queries.labels import Interval, LabelSum, RandomizedLabels
from dpstats.tables.scratch import Wanted, arrays
from dpstats.tall import LazyRows, blocks

if TYPE_CHECKING:
    from dpstats.design import Design, Source

__all__ = ["Labels", "check_responses"]

Array = NDArray[np.float64]
Ints = NDArray[np.int64]

# Sums are exact, and rounded twice to float64. A row moves one by its sensitivity S at most, in the
# norm of S, so that a sum over n rows is at most n S, and what rounding moves two neighbours apart
# 4 n S / 2^53: 2^-21 S here, of the 2^-16 S that the noise allows for. It fits in the steps of the
# noise like any sum over up to 2^31 rows (`dpstats.mechanisms.release`).
MAX_ROWS = 2**30


def check_responses(count: int) -> None:
    """Refuse more responses than noise on their sums is proved for; their number is public.

    Raises
    ------
    DataError
        If there are more.
    """
    if count > MAX_ROWS:
        raise DataError(
            f"Noise on sums of responses is proved for at most {MAX_ROWS:,} rows, and the table "
            f"has {count:,}. Fit a part of the table, chosen without a look at responses."
        )


class Labels(RecordingHolder):
    """Holder of the private responses of one fit; their covariates are public.

    Under ``LabelOnly(...)`` each response is mapped into the interval of the question and
    randomised once, as by its own device; of a few devices, drawn by lot, it is whether the
    response is outside of what is declared that is randomised, once, in its place. Where
    covariates are in a scratch file, so are responses and messages.

    Under ``LabelOnly(..., curator=True)`` noisy sums are released instead; they are exact before
    their noise, whatever the order of rows, and their sensitivities are those of the very rows that
    are added.

    Parameters
    ----------
    source : Source
        Private responses, from ``design.source(table)``.
    design : Design
        Public design.
    plan : Plan
        The mechanisms that may be used, each once; already charged.
    noise : Noise
        Source of noise.
    on_answer : callable, optional
        Called with the slot after each answer; for progress.
    """

    @scrubbed
    def __init__(
        self,
        source: Source,
        design: Design,
        plan: Plan,
        noise: Noise,
        on_answer: Callable[[str], None] | None = None,
    ) -> None:
        if not isinstance(plan.privacy, LabelOnly):
            raise PlanError(
                f"Holders of responses answer LabelOnly plans, not {plan.privacy.trust!r} ones."
            )
        n = len(source)
        check_responses(n)
        rows = getattr(design, "covariates", None)
        self._folder: Path | None = None if rows is None else rows.folder
        made = arrays(self._folder, kept_of(n))
        self._labels, self._marks = made["labels"], made["marks"]
        for part in blocks(n):
            block = source.block(part.start, part.stop)
            if block.y is None:
                raise PlanError("The design has no response.")
            self._labels[part] = np.where(block.keep, block.y, np.nan)
            moved = np.any(source.astray(part.start, part.stop), axis=2)
            self._marks[part] = np.where(moved[:, 1], 2, moved[:, 0])  # see `LabelAstray`
        super().__init__(plan, noise, on_answer)
        self._curator = plan.privacy.curator
        self._lots, self._counting = Lots(self._noise, n), Lots(self._noise, n)
        self._few: dict[int, NDArray[np.intp]] = {}
        self._answered: set[str] = set()

    def half(self, branch: int) -> NDArray[np.intp]:
        """Positions, ascending, of the rows of a half (1, 2) or of all (0).

        Lots deal the rows out, so that a table in the order of its responses has halves like any
        other. An estimator needs them to compute on public rows; they belong in no result.
        """
        if branch == 0:
            return np.arange(len(self._lots))
        return np.sort(self._lots.dealt(branch - 1, 2))

    @scrubbed
    def ask(
        self, query: LabelSum | RandomizedLabels | RandomizedMarks, slot: str, part: int = 0
    ) -> Answer:
        """Answer `query` once with the noise planned under `slot`.

        Raises
        ------
        PlanError
            If the plan has no such slot, it was already answered, or a curator's question is asked
            of devices, or the other way round.
        """
        mechanism = self._plan.mechanism(slot)
        event = mechanism.event
        if slot in self._answered or part != 0:
            raise PlanError(f"{slot!r} was already answered; each mechanism may be used once.")
        if isinstance(query, RandomizedLabels | RandomizedMarks) == self._curator:
            who = "a curator releases sums" if self._curator else "devices send one response each"
            raise PlanError(f"{query.name!r} was asked under {slot!r}, but {who}.")
        if isinstance(query, RandomizedLabels | RandomizedMarks):
            self._check_devices(query, mechanism.branch)
        self._answered.add(slot)
        sensitivity = query.sensitivity(self._plan.neighbors, self._plan.max_rows)
        if isinstance(query, RandomizedLabels | RandomizedMarks):
            if query.channel.event != event:
                raise PlanError(f"Channel {query.channel.name!r} costs another event than planned.")
            if isinstance(query, RandomizedMarks):
                answer, scale = self._counted(query)
            else:
                answer, scale = self._randomized(query)
            law = NoiseLaw(event.kind, scale)
        else:
            v = self._values(query, mechanism.branch)
            answer, scale = release(
                query.total(v), sensitivity, event, self._noise, query.kind, query.norm
            )
            answer, law = query.decode(answer), self._plan.noise(query, slot)
        self._note(Release(slot, query.name, query.parameters(), sensitivity, scale, event))
        return Answer(answer, law)

    def _check_devices(self, query: RandomizedLabels | RandomizedMarks, branch: int) -> None:
        """Refuse a question to devices of which some would answer two for the price of one."""
        counters, counts = self._plan.options.get("counters", 0), isinstance(query, RandomizedMarks)
        asked = (1 + counts) if counters else 0
        if query.counters != counters or branch != asked or (counts and not counters):
            raise PlanError(
                f"{query.name!r}: {query.counters:,} devices are to count, and the plan says "
                f"{counters:,}; each device answers one question."
            )

    def _values(self, query: LabelSum, branch: int) -> LazyRows:
        """What a question is about, of the rows of a half or of all."""
        rows = None if branch == 0 else self.half(branch)
        marked = isinstance(query, LabelAstray)

        def made(part: slice) -> Array:
            at = part if rows is None else rows[part]
            return self._marks[at] if marked else held(self._labels[at], query.interval)

        return LazyRows((len(self._lots) if rows is None else len(rows),), made)

    def sending(self, counters: int) -> NDArray[np.intp]:
        """Positions, ascending, of the devices that send their response; see `LabelHolder`."""
        mine = np.ones(len(self._lots), dtype=np.bool_)
        mine[self._counters(counters)] = False
        return np.flatnonzero(mine)

    def _counters(self, count: int) -> NDArray[np.intp]:
        """Positions of the devices that count; lots are read once."""
        if count not in self._few:
            self._few[count] = self._counting.ranked(0, count)
        return self._few[count]

    def _randomized(self, query: RandomizedLabels) -> tuple[Array, float]:
        """Messages about responses, decoded, and the standard deviation of their noise at 0."""
        channel, interval = query.channel, query.interval
        half, middle = interval.half, interval.middle
        rows = self.sending(query.counters) if query.counters else None
        m = len(self._lots) - query.counters
        sent: Array = arrays(self._folder, {"sent": _numbers(m)})["sent"]
        for part in blocks(m):
            v = held(self._labels[part if rows is None else rows[part]], interval) / half
            decoded = channel.decode(messages(channel, v[:, None], self._noise))
            sent[part] = middle + half * decoded[:, 0]
        return sent, half * math.sqrt(channel.variance(0.0))

    def _counted(self, query: RandomizedMarks) -> tuple[Array, float]:
        """Decoded shares of the devices that count, and the standard deviation of their noise."""
        channel, few = query.channel, self._counters(query.counters)
        cells, total = np.eye(channel.dim), np.zeros(channel.dim)
        for part in blocks(len(few)):
            marks = self._marks[few[part]]
            within = np.searchsorted(query.edges, self._labels[few[part]], side="left")
            mine = cells[np.where(marks == 0, within, query.cells - 1 + marks)]
            total += channel.decode(messages(channel, mine, self._noise)).sum(axis=0)
        none = float(channel.noise(cells[0])[1, 1])
        return total / len(few), math.sqrt(none / len(few))


def _numbers(n: int) -> tuple[tuple[int, ...], np.dtype[np.float64]]:
    return (n,), np.dtype(np.float64)


def kept_of(n: int) -> Wanted:
    """Shape and type of what a holder of n responses keeps."""
    return {"labels": _numbers(n), "marks": ((n,), np.dtype(np.int8))}


def held(labels: Array, interval: Interval) -> Array:
    """Responses less the middle of the interval they are held to; a missing one is 0."""
    inside = np.clip(labels, interval.low, interval.high) - interval.middle
    within: Array = np.where(np.isnan(inside), 0.0, np.clip(inside, -interval.half, interval.half))
    return within
