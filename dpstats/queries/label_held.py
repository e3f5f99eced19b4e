"""Sums of private responses that are each held to a public interval of its own."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from dpstats.errors import PlanError
from dpstats.queries.base import Kind, Norm
from dpstats.queries.labels import Interval, LabelContribution, LabelSums
from dpstats.queries.whole_sums import need_finite
from dpstats.tall import LazyRows, Tall, blocks

__all__ = ["HeldSums", "OuterSums"]

Array = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class HeldSums(LabelContribution):
    """``sum row (held(y) - middle)``, each response held to a public interval of its own.

    The interval of a response is where public facts and earlier answers expect it; the answer is
    (k,), for public rows (n, k) and the ends and middles of those intervals.

    Guarantee: rows and intervals are public and stay, so that replacing one response by another
    moves the answer by at most the largest ``(high - low) ||row||``.
    """

    interval: Interval
    rows: Tall
    low: Tall
    high: Tall
    norm: Norm = "l2"
    name: ClassVar[str] = "sums of held responses"
    kind: ClassVar[Kind] = "sum"

    def __post_init__(self) -> None:
        for part in blocks(len(self.rows)):
            low, high = self.low[part], self.high[part]
            if not bool(np.all((low < high) & np.isfinite(high - low))):
                raise PlanError("HeldSums: low < high are needed, for every response.")
        need_finite(rows=self._sums._scanned.largest)

    @property
    def middle(self) -> LazyRows:
        """Centres, (n,)."""
        low, high = self.low, self.high  # not `self`, which would then hold itself
        return LazyRows((len(self.rows),), lambda part: low[part] / 2 + high[part] / 2)

    @property
    def half(self) -> LazyRows:
        """Halves of the widths, (n,)."""
        low, high = self.low, self.high
        return LazyRows((len(self.rows),), lambda part: high[part] / 2 - low[part] / 2)

    def parameters(self) -> Mapping[str, Any]:
        """Interval, and the largest norm of a row times the width of its interval."""
        return {
            **self.interval.parameters(),
            "width times row norm": 2 * self._sums._scanned.longest,
        }

    @cached_property
    def _sums(self) -> LabelSums:
        """Sums of responses in units of the half-widths, which lie in [-1, 1]."""
        rows, half = self.rows, self.half
        held = LazyRows(rows.shape, lambda part: rows[part] * half[part][:, None])
        return LabelSums(Interval(-1.0, 1.0), held, self.norm)

    def total(self, v: Tall) -> Array:
        """The sums."""
        middle, half = self.middle, self.half

        def held(part: slice) -> Array:
            inside = v[part] + self.interval.middle - middle[part]
            return np.asarray(np.clip(inside / half[part], -1.0, 1.0), dtype=np.float64)

        return self._sums.total(LazyRows((len(self.rows),), held))

    @property
    def _change(self) -> float:
        return self._sums.sensitivity()


@dataclass(frozen=True, eq=False)
class OuterSums(LabelContribution):
    """``sum row (held(y) - inner(y))``: what wide public intervals hold and narrower ones cut off.

    `low` and `high` are the ends of the wide interval of each response, `inner_low` and
    `inner_high` of the one inside of it; the answer is (k,), for public rows (n, k).

    Guarantee: rows and intervals are public and stay. What a response adds lies between ``low -
    inner_low`` and ``high - inner_high``, so that replacing it moves the answer by at most the
    largest ``(high - low - inner_high + inner_low) ||row||``.
    """

    interval: Interval
    rows: Tall
    wide: tuple[Tall, Tall]
    inner: tuple[Tall, Tall]
    norm: Norm = "l2"
    name: ClassVar[str] = "sums of what narrower intervals cut off"
    kind: ClassVar[Kind] = "sum"

    def __post_init__(self) -> None:
        for part in blocks(len(self.rows)):
            (low, high), (left, right) = _at(self.wide, part), _at(self.inner, part)
            inside = (low <= left) & (left < right) & (right <= high) & np.isfinite(high - low)
            if not bool(np.all(inside)):
                raise PlanError("OuterSums: low <= inner low < inner high <= high are needed.")
        need_finite(rows=self._sums._scanned.largest)

    @property
    def middle(self) -> LazyRows:
        """Centres of what responses may add, (n,), which the answer is less by."""
        wide, inner = self.wide, self.inner
        return LazyRows((len(self.rows),), lambda part: _middle_and_half(wide, inner, part)[0])

    def parameters(self) -> Mapping[str, Any]:
        """Interval, and the largest norm of a row times the width of what it may add."""
        most = 2 * self._sums._scanned.longest
        return {**self.interval.parameters(), "width times row norm": most}

    @cached_property
    def _sums(self) -> LabelSums:
        """Sums in units of half-widths, in which what is added lies in [-1, 1]."""
        rows, wide, inner = self.rows, self.wide, self.inner  # not `self`, which would hold itself

        def held(part: slice) -> Array:
            made: Array = rows[part] * _middle_and_half(wide, inner, part)[1][:, None]
            return made

        return LabelSums(Interval(-1.0, 1.0), LazyRows(rows.shape, held), self.norm)

    def total(self, v: Tall) -> Array:
        """The sums."""

        def added(part: slice) -> Array:
            y = v[part] + self.interval.middle
            middle, half = _middle_and_half(self.wide, self.inner, part)
            beyond = np.clip(y, *_at(self.wide, part)) - np.clip(y, *_at(self.inner, part)) - middle
            share = beyond / np.where(half > 0, half, 1.0)
            return np.asarray(np.clip(share, -1.0, 1.0), dtype=np.float64)

        return self._sums.total(LazyRows((len(self.rows),), added))

    @property
    def _change(self) -> float:
        return self._sums.sensitivity()


def _at(ends: tuple[Tall, Tall], part: slice) -> tuple[Array, Array]:
    """Ends of intervals of some responses."""
    return np.asarray(ends[0][part], np.float64), np.asarray(ends[1][part], np.float64)


def _middle_and_half(
    wide: tuple[Tall, Tall], inner: tuple[Tall, Tall], part: slice
) -> tuple[Array, Array]:
    """Of what a response may add beyond inner intervals: its centre and half of its width."""
    (low, high), (left, right) = _at(wide, part), _at(inner, part)
    above, below = high - right, left - low
    return (above - below) / 2, (above + below) / 2
