"""How many values are in each cell, exactly and fast."""

from __future__ import annotations

import functools
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dpstats.queries.blocks import Array, Ints, kernels

__all__ = ["cell_counts"]

_BINS, _MANY = 4096, 1024  # bins, and values from which dealing beats sorting
_FINER = 16  # bins to an edge, at least
_OCTAVES, _TINY, _DROPPED = 16.0, 2.0**-100, 16  # last edge over the first; limits, bits of float32


def cell_counts(
    values: Array, edges: Array, keep: Array | NDArray[np.bool_], fast: bool = False
) -> Ints:
    """Rows in each cell (-inf, e_0], (e_0, e_1], ..., (e_last, inf).

    What is no number is in the last one. `fast`: see `Block.fast`.
    """
    kept = keep > 0
    if fast and edges.size:
        compiled: Ints = kernels().cell_counts(np.ascontiguousarray(values), edges, kept)
        return compiled
    held = values if kept.all() else values[kept]
    below = np.zeros(edges.size + 2, dtype=np.int64)
    below[1:-1] = _at_or_below(held, edges)
    below[-1] = held.size
    return below[1:] - below[:-1]


def _at_or_below(values: Array, edges: Array) -> Ints:
    """How many values are at or below each edge, which increase.

    Values are dealt into bins by a function that never decreases, in floating point too: those in
    bins below an edge's are below it, and those in its own are looked up. So are all where they
    are few.
    """
    width = edges[-1] / _BINS - edges[0] / _BINS if edges.size else 0.0
    if values.size < _MANY or not _TINY < width < 1 / _TINY:
        return _looked_up(values, edges)
    bins = _bins_of(np.asarray(edges, dtype=np.float64).tobytes())
    mine = bins.places(values)
    alone = np.bincount(mine, minlength=bins.shared.size)
    alone[bins.at] = 0
    among = values[np.flatnonzero(bins.shared.take(mine))]
    below: Ints = np.cumsum(alone)[bins.at] + _looked_up(among, edges)
    return below


def _looked_up(values: Array, edges: Array) -> Ints:
    """How many of these are at or below each edge; many that share bins lie in few cells."""
    if values.size < _MANY:
        few: Ints = np.searchsorted(np.sort(values), edges, side="right")
        return few
    cells = np.searchsorted(edges, values)
    many: Ints = np.cumsum(np.bincount(cells, minlength=edges.size + 1)[:-1])
    return many


class _Bins(NamedTuple):
    """Bins from one below the first edge on, and which of them edges are in.

    The first and the last take what lies beyond, and the last what is no number. Bins are even, or
    where edges are positive and far apart 128 an octave, by the leading bits of float32. Rounding
    to float32, twice as fast, keeps the order, which is all that bins need.
    """

    low: float
    inverse: float  # 0 for octaves
    at: NDArray[np.int32]
    shared: NDArray[np.bool_]

    def places(self, values: Array) -> NDArray[np.int32]:
        """The bin of each value."""
        last = self.shared.size - 1
        if not self.inverse:
            narrow = np.fmin(values.astype(np.float32), np.float32(np.inf))
            bits = narrow.view(np.int32) >> _DROPPED
            bits -= int(self.low)
            return np.clip(bits, 0, last, out=bits)
        place = (values - self.low).astype(np.float32)
        place *= np.float32(self.inverse)
        np.fmin(place, last, out=place)
        np.maximum(place, 0, out=place)
        return place.astype(np.int32)


@functools.lru_cache(maxsize=256)
def _bins_of(edges: bytes) -> _Bins:
    """Of public edges, once for all blocks of the rows."""
    ends = np.frombuffer(edges)
    none = np.zeros(0, dtype=np.int32)
    if ends[0] > _TINY and ends[0] * _OCTAVES <= ends[-1] < 1 / _TINY:
        low, high = (ends[[0, -1]].astype(np.float32).view(np.int32) >> _DROPPED).tolist()
        made = _Bins(low - 1, 0.0, none, np.zeros(high - low + 3, dtype=np.bool_))
    else:
        count = max(_BINS, _FINER * ends.size)
        width = ends[-1] / count - ends[0] / count
        shared = np.zeros(count + 3, dtype=np.bool_)
        made = _Bins(float(ends[0] - width), float(1 / width), none, shared)
    made = made._replace(at=made.places(ends))
    made.shared[made.at] = True
    return made
