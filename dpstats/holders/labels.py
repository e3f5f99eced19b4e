"""Who holds the responses where covariates are public: their devices, or one curator."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dpstats.accounting.events import Event, Laplace
from dpstats.errors import DataError, PlanError
from dpstats.holders.sealed import sealed
from dpstats.mechanisms.lots import Lots
from dpstats.mechanisms.noise import Noise
from dpstats.mechanisms.randomize import messages
from dpstats.mechanisms.release import release
from dpstats.privacy import LabelOnly
from dpstats.protocol import Plan, Release
from dpstats.queries.labels import (
    ColumnScores,
    HeldSums,
    Interval,
    LabelQuery,
    LabelSums,
    RandomizedLabels,
    SquaredResiduals,
    WeightedResiduals,
)

if TYPE_CHECKING:
    from dpstats.design import Design, Source

__all__ = ["Labels"]

Array = NDArray[np.float64]
Ints = NDArray[np.int64]

MAX_ROWS = 2**24
_BLOCK = 2**14  # rows of exact products that are added in float64: 38 + 14 bits < 53
_LABEL_STEPS = 2.0**19  # a response is at most so many steps from the middle
_ROW_BITS = 19  # an entry of a public row is at most 2^19 steps
_ENTRY_STEPS = 2.0**18  # likewise of a column that is scored: 18 + 19 + 24 bits < 63
_SQUARE_STEPS = 2.0**30  # a squared residual is at most so many steps
_WEIGHT_STEPS = 2.0**12  # likewise where it multiplies an outer product
_OUTER_BITS = 13  # of rows in an outer product: 12 + 26 + 14 bits < 53
_COLUMNS = 128  # that are rounded at a time, where they are scored
_SAFETY = 1.0 + 2.0**-30  # norms of whole numbers are rounded once
_ROOT2 = math.sqrt(2.0)


class Labels:
    """Holder of the private responses of one fit; their covariates are public.

    Under ``LabelOnly(...)`` each response is mapped into the interval of the question and
    randomised once, as its own device would do. Under ``LabelOnly(..., curator=True)`` noisy sums
    are released instead; they are exact before their noise, whatever the order of rows, and their
    sensitivities are computed here, from the very rows that are added.

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

    @sealed
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
        if len(source) > MAX_ROWS:
            raise DataError(f"Exact sums hold at most {MAX_ROWS} rows, and the table has more.")
        block = source.block(0, len(source))
        if block.y is None:
            raise PlanError("The design has no response.")
        self._labels: Array = np.where(block.keep, block.y, np.nan)
        self._plan = plan
        self._curator = plan.privacy.curator
        self._noise = noise.start()
        self._lots = Lots(self._noise, len(source))
        self._on_answer = on_answer
        self._answered: set[str] = set()
        self._transcript: list[Release] = []

    @property
    def transcript(self) -> tuple[Release, ...]:
        """Every answer given: question, sensitivity, noise. Public."""
        return tuple(self._transcript)

    def half(self, branch: int) -> NDArray[np.intp]:
        """Positions, ascending, of the rows of a half (1, 2) or of all (0).

        Lots deal the rows out, so that a table in the order of its responses has halves like any
        other. An estimator needs them to compute on public rows; they belong in no result.
        """
        if branch == 0:
            return np.arange(len(self._lots))
        return np.sort(self._lots.dealt(branch - 1, 2))

    @sealed
    def ask(self, query: LabelQuery, slot: str, part: int = 0) -> Array:
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
        if isinstance(query, RandomizedLabels) == self._curator:
            who = "a curator releases sums" if self._curator else "devices send one response each"
            raise PlanError(f"{query.name!r} was asked under {slot!r}, but {who}.")
        self._answered.add(slot)
        v = held(self._labels[self.half(mechanism.branch)], query.interval)
        if isinstance(query, RandomizedLabels):
            answer, sensitivity, scale = self._randomized(query, v, event)
        else:
            exact, sensitivity = exact_sums(query, v, event)
            kind, norm = "sum", "l1" if isinstance(event, Laplace) else "l2"
            if isinstance(query, ColumnScores):
                kind, norm = "choice", "linf"
            answer, scale = release(exact, sensitivity, event, self._noise, kind=kind, norm=norm)
        self._transcript.append(
            Release(slot, query.name, query.parameters(), sensitivity, scale, event)
        )
        if self._on_answer is not None:
            self._on_answer(slot)
        return decoded(query, answer)

    def _randomized(
        self, query: RandomizedLabels, v: Array, event: Event
    ) -> tuple[Array, float, float]:
        """Messages about responses, decoded; their sensitivity, and the sd of the noise at 0."""
        if query.channel.event != event:
            raise PlanError(f"Channel {query.channel.name!r} costs another event than planned.")
        half = query.interval.half
        sent = query.channel.decode(messages(query.channel, (v / half)[:, None], self._noise))
        noise = half * math.sqrt(query.channel.variance(0.0))
        return query.interval.middle + half * sent[:, 0], 2 * half, noise


def held(labels: Array, interval: Interval) -> Array:
    """Responses less the middle of the interval they are held to; a missing one is 0."""
    inside = np.clip(labels, interval.low, interval.high) - interval.middle
    within: Array = np.where(np.isnan(inside), 0.0, np.clip(inside, -interval.half, interval.half))
    return within


def exact_sums(query: Any, v: Array, event: Event) -> tuple[Array, float]:
    """Exact answer before noise, and its sensitivity in the norm of the event's noise.

    Responses `v` become at most 2^19 whole steps from the middle, public rows at most 2^19 steps,
    so that every product and every sum is a whole number that is represented exactly. The norms of
    rows are those of the whole numbers that are added.
    """
    l1 = isinstance(event, Laplace)
    interval = query.interval
    if isinstance(query, ColumnScores):
        return _scores(query, v)
    if isinstance(query, HeldSums):  # in units of the half-widths: responses in [-1, 1]
        inside = np.clip((v + interval.middle - query.middle) / query.half, -1.0, 1.0)
        scaled = query.rows * query.half[:, None]
        return exact_sums(LabelSums(Interval(-1.0, 1.0), scaled), inside, event)
    if isinstance(query, LabelSums):
        steps, grid = _steps(query.rows, _ROW_BITS)
        label = np.rint(v / interval.half * _LABEL_STEPS)
        total = _product(steps, label[:, None])[:, 0]
        unit = grid * interval.half / _LABEL_STEPS
        longest = float(np.linalg.norm(steps, 1 if l1 else 2, axis=1).max(initial=0.0))
        summed: Array = total * unit
        return summed, 2 * _LABEL_STEPS * longest * _SAFETY * unit
    share = np.minimum(np.abs(v + interval.middle - query.fitted) / query.clip, 1.0) ** 2
    if isinstance(query, SquaredResiduals):
        total = np.floor(share * _SQUARE_STEPS).astype(np.int64).sum(keepdims=True)
        unit = query.clip**2 / _SQUARE_STEPS
        squares: Array = total * unit
        return squares, query.clip**2 * _SAFETY
    assert isinstance(query, WeightedResiduals)
    clips = np.broadcast_to(query.clip, v.shape)
    steps, grid = _steps(query.rows * clips[:, None], _OUTER_BITS)
    weight = np.floor(share * _WEIGHT_STEPS)
    total = _product(steps, weight[:, None] * steps)
    unit = grid**2 / _WEIGHT_STEPS
    rows, columns = np.triu_indices(len(total))
    isometric = np.where(rows == columns, 1.0, _ROOT2)
    square = np.einsum("ij,ij->i", steps, steps)
    if l1:  # of the isometric upper triangle
        square = square + (np.abs(steps).sum(axis=1) ** 2 - square) * _ROOT2 / 2
    largest = float(square.max(initial=0.0))
    outer: Array = total[rows, columns] * (isometric * unit)
    return outer, _WEIGHT_STEPS * largest * _SAFETY * unit


def _scores(query: ColumnScores, v: Array) -> tuple[Array, float]:
    """Sizes of the sums of clipped residuals over columns, and their L-infinity sensitivity.

    A residual is at most 2^19 whole steps, an entry of a column at most 2^18. What a sparse matrix
    does not store is an entry like any other: it is added for all rows at once, and taken off
    those that are stored. Dense columns are rounded a few at a time.
    """
    residual = np.clip((v + query.interval.middle - query.fitted) / query.clip, -1.0, 1.0)
    steps = np.rint(residual * _LABEL_STEPS)
    sizes: Ints = np.zeros(len(query.columns), dtype=np.int64)
    largest = 0.0
    width = max(len(query.columns), 1) if hasattr(query.rows, "tocsc") else _COLUMNS
    for start in range(0, len(query.columns), width):
        at = query.columns[start : start + width]
        center, scale = query.center[at], query.scale[at]
        part = query.rows[:, at]
        if hasattr(part, "tocsc"):
            part = part.tocsc()
            nothing = np.rint(np.clip(-center / scale, -1.0, 1.0) * _ENTRY_STEPS)
            column = np.repeat(np.arange(len(at)), np.diff(part.indptr))
            stored = (part.data - center[column]) / scale[column]
            stored = np.rint(np.clip(stored, -1.0, 1.0) * _ENTRY_STEPS)
            largest = max(largest, *(float(np.abs(a).max(initial=0.0)) for a in (nothing, stored)))
            products = ((stored - nothing[column]) * steps[part.indices]).astype(np.int64)
            total = nothing.astype(np.int64) * int(steps.sum())
            np.add.at(total, column, products)
        else:
            entries = np.rint(np.clip((part - center) / scale, -1.0, 1.0) * _ENTRY_STEPS)
            largest = max(largest, float(np.abs(entries).max(initial=0.0)))
            total = _product(entries, steps[:, None])[:, 0]
        sizes[start : start + width] = np.abs(total)
    unit = query.clip / (_LABEL_STEPS * _ENTRY_STEPS)
    scores: Array = sizes * np.float64(unit)
    return scores, 2 * _LABEL_STEPS * max(largest, 1.0) * _SAFETY * unit


def decoded(query: Any, answer: Array) -> Array:
    """The answer in the shape that an estimator reads."""
    if isinstance(query, ColumnScores):
        return query.columns[answer.astype(np.intp)].astype(np.float64)
    if not isinstance(query, WeightedResiduals):
        return answer
    d = query.rows.shape[1]
    rows, columns = np.triu_indices(d)
    matrix = np.zeros((d, d))
    matrix[rows, columns] = answer / np.where(rows == columns, 1.0, _ROOT2)
    return matrix + np.triu(matrix, 1).T


def _steps(rows: Array, bits: int) -> tuple[Array, float]:
    """Public rows in whole steps of a power of two, and the step."""
    largest = max(float(np.abs(rows).max(initial=0.0)), 1e-200)
    grid = math.ldexp(1.0, math.ceil(math.log2(largest)) - bits)
    return np.rint(rows / grid), grid


def _product(a: Array, b: Array) -> Ints:
    """``a' b`` of whole numbers, exactly."""
    total = np.zeros((a.shape[1], b.shape[1]), dtype=np.int64)
    for start in range(0, len(a), _BLOCK):
        here = slice(start, start + _BLOCK)
        total += (a[here].T @ b[here]).astype(np.int64)
    return total
