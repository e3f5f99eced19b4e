"""Exact sums over public rows that are read in blocks, and what their sensitivities need."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dpstats.errors import PlanError
from dpstats.tall import Tall, read_blocks

__all__ = ["SAFETY", "RowScan", "need_finite", "shortened", "whole_sum"]

Array = NDArray[np.float64]

SAFETY = 1.0 + 2.0**-30  # norms of whole numbers are rounded once
_ADDED = 2**10  # blocks that are added in int64: 38 + 14 + 10 bits < 63


def need_finite(**parameters: float | Array) -> None:
    """Refuse clips that are no finite numbers above 0, and other numbers that are not finite.

    A bound on what one response moves holds for none of them.

    Raises
    ------
    PlanError
        If one is there.
    """
    for name, value in parameters.items():
        if not np.isfinite(value).all() or (name == "clip" and not np.all(np.greater(value, 0))):
            above = " above 0" if name == "clip" else ""
            raise PlanError(f"{name}: finite numbers{above} are needed.")


class RowScan(NamedTuple):
    """What one pass over public rows tells of them."""

    largest: float  # entry
    longest: float  # norm

    @classmethod
    def of(cls, rows: Tall) -> RowScan:
        """Of all rows."""
        largest, square = 0.0, 0.0
        for _, block in read_blocks(rows):
            largest = np.maximum(largest, np.abs(block).max(initial=0.0))  # keeps what is no number
            square = np.maximum(square, np.einsum("ij,ij->i", block, block).max(initial=0.0))
        return cls(float(largest), math.sqrt(square))

    def step(self, bits: int) -> float:
        """A power of two, of which every entry is at most 2^bits."""
        return math.ldexp(1.0, math.ceil(math.log2(max(self.largest, 1e-200))) - bits)


def shortened(steps: Array, length: Array, longest: float) -> Array:
    """Rows in whole steps, none longer than the one that the sensitivity was computed of.

    Rows that are made twice have the same bits both times, so that this moves none; it holds
    whatever made them. Entries go towards 0 and stay whole, so that a row gets no longer.
    """
    over = np.flatnonzero(length > longest)
    if over.size:
        steps[over] = np.trunc(steps[over] * (longest / length[over])[:, None])
    return steps


def whole_sum(parts: Iterable[NDArray[Any]]) -> Array:
    """Sum of blocks of whole numbers below 2^53, exactly, then rounded once to float64.

    So many blocks are added in int64, and these sums in integers of any size.
    """
    total: Any = 0
    here, count = None, 0
    for part in parts:
        whole = part.astype(np.int64)
        here, count = (whole if here is None else here + whole), count + 1
        if count == _ADDED:
            total, here, count = total + here.astype(object), None, 0
    rest = 0 if here is None else here
    summed: Array = np.asarray(total + rest).astype(np.float64)
    return summed
