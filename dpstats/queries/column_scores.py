"""Which public columns go with private responses: a choice by sums of clipped residuals."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, Protocol, cast, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from dpstats.errors import PlanError
from dpstats.queries.base import Kind, Norm
from dpstats.queries.labels import LABEL_STEPS, Interval, LabelContribution
from dpstats.queries.whole_sums import SAFETY, need_finite, whole_sum
from dpstats.tall import Tall, blocks, ends, read_blocks

__all__ = ["ColumnScores"]

Array = NDArray[np.float64]
Ints = NDArray[np.int64]
Positions = NDArray[np.intp]

_ENTRY_STEPS = 2.0**18  # an entry of a column is at most so many steps: 18 + 19 + 24 bits < 63
_COLUMNS = 128  # that are rounded at a time


@runtime_checkable
class SparseMatrix(Protocol):
    """A sparse matrix of scipy."""

    shape: tuple[int, int]

    def tocsr(self) -> Any:
        """By rows."""
        ...

    def __getitem__(self, place: Any) -> Any: ...

    def tocsc(self) -> Any:
        """By columns."""
        ...


@dataclass(frozen=True, eq=False)
class ColumnScores(LabelContribution):
    """The columns with the largest ``|sum_i a_ij clip(y_i - fitted_i, -clip, clip)|``.

    Entries of column j are ``a_ij = clip((x_ij - center_j) / scale_j, -1, 1)``, so that rows are
    neither copied nor made dense. The answer is the positions of as many columns as the planned
    selection chooses.

    Guarantee: rows are public and stay, so that replacing one response moves every sum, and its
    size, by at most 2 clip times the largest entry, which is at most 1.

    Parameters
    ----------
    rows : ndarray or CSR array of shape (n, d)
        Public rows.
    fitted : ndarray of shape (n,)
        Public.
    clip : float
    center, scale : ndarray of shape (d,)
        Public, of each column.
    columns : ndarray of int of shape (k,)
        Columns that may be chosen.
    """

    interval: Interval
    rows: Tall | SparseMatrix
    fitted: Tall
    clip: float
    center: Array
    scale: Array
    columns: Positions
    name: ClassVar[str] = "choice of columns by scores"
    kind: ClassVar[Kind] = "choice"
    norm: ClassVar[Norm] = "linf"

    def __post_init__(self) -> None:
        need_finite(clip=self.clip, center=self.center)
        for part in blocks(len(self.fitted)):
            need_finite(fitted=self.fitted[part])
        if not np.all(self.scale > 0):
            raise PlanError("scale: numbers above 0 are needed; inf leaves a column out.")
        at, d = self.columns, self.rows.shape[1]
        known = at.min(initial=0) >= 0 and at.max(initial=-1) < d
        if not (known and np.unique(at).size == at.size):
            raise PlanError(f"columns: distinct positions from 0 to {d - 1} are needed.")

    def parameters(self) -> Mapping[str, Any]:
        """Interval, clip and the number of columns to choose from."""
        return {**self.interval.parameters(), "clip": self.clip, "candidates": len(self.columns)}

    @property
    def _unit(self) -> float:
        """Of the scores."""
        return self.clip / (LABEL_STEPS * _ENTRY_STEPS)

    @cached_property
    def _change(self) -> float:
        return 2 * LABEL_STEPS * max(self._largest, 1.0) * SAFETY * self._unit

    @property
    def _largest(self) -> float:
        """Steps of the largest entry: rounding is increasing, so it is at an end of its column."""
        at = self.columns
        found: list[Array] = []
        if hasattr(self.rows, "tocsc"):
            found += [np.zeros(at.size)]  # what is not stored
            stored: Any = self.rows
            each = [stored.min(axis=0), stored.max(axis=0)] if self.rows.shape[0] else []
            found += [_dense(end)[at] for end in each]
        elif self.rows.shape[0]:
            found += [end[at] for end in ends(self.rows)]
        steps = [self._entries(end, self.center[at], self.scale[at]) for end in found]
        largest = float(np.abs(steps).max(initial=0.0))
        if math.isnan(largest):
            raise PlanError("rows: an entry is no number; every one is needed.")
        return largest

    @staticmethod
    def _entries(values: Array, center: Array, scale: Array) -> Array:
        """Entries in whole steps."""
        whole: Array = np.rint(np.clip((values - center) / scale, -1.0, 1.0) * _ENTRY_STEPS)
        return whole

    def total(self, v: Tall) -> Array:
        """Sizes of the sums.

        A residual is at most 2^19 whole steps, an entry of a column at most 2^18. What a sparse
        matrix does not store is an entry like any other: it is added for all rows at once, and
        taken off those that are stored. Dense columns are rounded a few at a time.
        """
        if hasattr(self.rows, "tocsc"):
            sums = self._stored(np.concatenate([self._steps(v, p) for p in blocks(len(v))]))
        else:
            sums = self._full(v)
        scores: Array = np.abs(sums) * np.float64(self._unit)
        return scores

    def _steps(self, v: Tall, part: slice) -> Array:
        """Clipped residuals in whole steps."""
        rest = v[part] + self.interval.middle - self.fitted[part]
        whole: Array = np.rint(np.clip(rest / self.clip, -1.0, 1.0) * LABEL_STEPS)
        return whole

    def _stored(self, steps: Array) -> Array:
        """The sums over a sparse matrix."""
        center, scale = self.center[self.columns], self.scale[self.columns]
        every: Any = self.rows
        part = every[:, self.columns].tocsc()
        part.sum_duplicates()  # before clipping: two stored halves of an entry may each pass it
        nothing = self._entries(np.zeros(center.size), center, scale)
        column = np.repeat(np.arange(center.size), np.diff(part.indptr))
        stored = self._entries(part.data, center[column], scale[column])
        total = nothing.astype(np.int64) * int(steps.sum())
        np.add.at(
            total, column, ((stored - nothing[column]) * steps[part.indices]).astype(np.int64)
        )
        return total.astype(np.float64)

    def _full(self, v: Tall) -> Array:
        """The sums over a dense matrix."""

        def products() -> Iterator[Array]:
            dense = cast("Tall", self.rows)
            for part, rows in read_blocks(dense):
                made, steps = np.zeros(self.columns.size), self._steps(v, part)
                for start in range(0, self.columns.size, _COLUMNS):
                    at = self.columns[start : start + _COLUMNS]
                    entries = self._entries(
                        np.take(rows, at, axis=1), self.center[at], self.scale[at]
                    )
                    made[start : start + _COLUMNS] = entries.T @ steps
                yield made

        return whole_sum(products())

    def decode(self, answer: Array) -> Array:
        """Positions of the chosen columns."""
        chosen: Array = self.columns[answer.astype(np.intp)].astype(np.float64)
        return chosen


def _dense(values: Any) -> Array:
    full: Array = np.asarray(values.toarray() if hasattr(values, "toarray") else values).ravel()
    return full
