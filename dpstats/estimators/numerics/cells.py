"""Centre and scale of a column from noisy counts of its values in public cells.

All of this is post-processing: which cells are counted next follows from earlier noisy counts.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

__all__ = ["CenterScale", "Column", "first_edges", "spread"]

Array = NDArray[np.float64]
Mask = NDArray[np.bool_]

_BASE = 4.0  # numerical: ratio of a cell to the one before it, seen from an anchor
_DEPTH = 16  # numerical: such cells on either side; the next is the anchor by itself
_SPIKE = 4.0**-20  # numerical: its width, as a share of the range
_LINEAR, _MOST = 32, 64  # number: even cells over the whole range, and over a part of it
_RESOLVED = 0.4  # ratio: even cells times the noise of one as a share of the rows
_WIDTHS = (2, 4, 8)  # numerical: neighbours that may stand out together
_FALSE = 4.0  # ratio: cells of all columns to false alarms, is 4 times their number
_EDGE, _MOST_EDGE = 4.5, 0.2  # ratio: rows beyond each end of a zoom, to the noise of a cell
_LEAST_EDGE = 0.06  # share: of rows beyond each end of a zoom
_SEEN = 0.25  # share: of rows that must stand out for anything to be known
_ONE_VALUE = 0.45  # share: of rows at one anchor, from which it is the centre
_APART = 2  # number: cells between groups of cells that stand out
_FAR = 16.0  # ratio: distance of a group from the largest to the width of that
_NARROW = 0.0625  # ratio: zoom to the range, from which on it is a claim that is checked
_DOUBTFUL = 1.5  # ses: more that a cell far from a zoom needs, where an earlier stage saw nothing


class CenterScale(NamedTuple):
    """Centre and scale in the units of the column, and whether the cells resolve them."""

    center: float
    scale: float
    sure: bool


def anchors(lower: float, upper: float) -> Array:
    """Values that a column may sit at: the ends of its range, its middle, and 0."""
    zero = [0.0] if lower < 0 < upper else []
    return np.unique([lower, lower / 2 + upper / 2, upper, *zero])


def first_edges(lower: float, upper: float, tau: float) -> Array:
    """Cells that widen by powers of 4 away from each anchor, none much wider than an even one."""
    at, width = anchors(lower, upper), upper - lower
    steps = width * np.append(_SPIKE, _BASE ** np.arange(-_DEPTH, 1.0))
    ends = np.concatenate([[lower], (at[1:] + at[:-1]) / 2, [upper]])
    edges = [ends]
    for anchor, below, above in zip(at, ends[:-1], ends[1:], strict=True):
        around = np.concatenate([anchor - steps, anchor + steps])
        edges.append(around[(around > below) & (around < above)])
    found = np.unique(np.concatenate(edges))
    count = min(_LINEAR, _even_cells(tau))
    even = np.linspace(lower, upper, count + 1)
    apart = np.abs(even[:, None] - found).min(axis=1) > width / count / 4
    return np.unique(np.concatenate([found, even[apart]]))


def _zoomed(low: float, high: float, lower: float, upper: float, tau: float) -> Array:
    """Even cells from `low` to `high` and somewhat beyond, then octaves; anchors by themselves."""
    count = _even_cells(tau)
    more = max(2, count // 8)
    inner = low + (high - low) / count * np.arange(-more, count + more + 1)
    middle, half = (inner[0] + inner[-1]) / 2, (inner[-1] - inner[0]) / 2
    reach = max(math.ceil(math.log2(max((upper - lower) / half, 1.0))), 0)
    octaves = half * 2.0 ** np.arange(1, reach + 1)
    at, tiny = anchors(lower, upper), (upper - lower) * _SPIKE
    edges = [[lower, upper], inner, middle - octaves, middle + octaves, at - tiny, at + tiny]
    return np.unique(np.clip(np.concatenate(edges), lower, upper))


def _even_cells(tau: float) -> int:
    """Cells across a column that noise of `tau` of the rows in each leaves of use."""
    return int(np.clip(round(_RESOLVED / tau), 8, _MOST))


@dataclass(frozen=True, eq=False)
class _ClearCells:
    """Rows in cells that stand out, and the noise of one cell as a share of the rows."""

    rows: Array
    edges: Array
    tau: float

    def cells(self, *levels: float) -> list[int]:
        """Cells in which quantiles of the rows lie."""
        total = np.cumsum(self.rows) / self.rows.sum()
        return [int(np.searchsorted(total, level - 1e-12)) for level in levels]


@dataclass(eq=False)
class Column:
    """What is known of one column, and the cells to count next.

    Parameters
    ----------
    lower, upper : float
        Declared range.
    n : float
        Rows.
    tau : float
        Noise of a cell of the first stage, as a share of the rows.
    columns : int
        How many are asked together.

    Attributes
    ----------
    edges : ndarray
        Of the cells to count.
    found : CenterScale or None
        None as long as nothing stands out of the noise.
    """

    lower: float
    upper: float
    n: float
    tau: float
    columns: int
    edges: Array = field(init=False)
    found: CenterScale | None = None
    _first: tuple[Array, float] | None = None
    _seen: _ClearCells | None = None
    _zoom: tuple[float, float] | None = None
    _against: float = 0.0  # log of how much likelier narrow zooms were chosen by noise than not

    def __post_init__(self) -> None:
        self.edges = self._start = first_edges(self.lower, self.upper, self.tau)

    @property
    def sure(self) -> bool:
        """Whether centre and scale are found."""
        return self.found is not None and self.found.sure

    def focus(self, tau: float) -> None:
        """Choose the next cells: even ones where most rows are, or the first ones once more."""
        self.edges, self._zoom = self._start, None
        if self._seen is not None:
            seen = self._seen
            beyond = min(max(_LEAST_EDGE, _EDGE * seen.tau), _MOST_EDGE)
            i, k = seen.cells(beyond, 1 - beyond)
            self._zoom = float(seen.edges[i]), float(seen.edges[k + 1])
            self.edges = _zoomed(*self._zoom, self.lower, self.upper, tau)

    def look(self, counts: Array, sd: float) -> None:
        """Take noisy counts of the cells into account."""
        if self.edges is self._start:
            if self._first is not None:
                before, noise = self._first
                weight = noise**-2 / (noise**-2 + sd**-2)
                counts = weight * before + (1 - weight) * counts
                sd = (noise**-2 + sd**-2) ** -0.5
            self._first = counts, sd
        threshold = math.sqrt(2 * math.log(_FALSE * counts.size * self.columns)) * sd
        rows = _standing_out(counts, threshold)
        if self._zoom is not None:
            if self._refuted(counts, sd):
                self._seen = self.found = None
                self._against = 0.0
                return
            self._spread(rows, counts, sd, threshold)
        else:
            _without_doubtful(rows, self.edges, threshold, sd)
        if rows.sum() >= _SEEN * self.n:
            self._conclude(_ClearCells(rows, self.edges, sd / self.n), counts, sd, threshold)

    def _refuted(self, counts: Array, sd: float) -> bool:
        """Whether a zoom into a small part of the range holds rather none of the rows than half.

        What it was chosen by may have been noise, and these counts are new. It is asked where two
        standard deviations of the rows inside exceed the share that had to stand out. None is
        compared with n/2, about the fewest of a zoom that is right, by this zoom and a narrow one
        that it is a part of: a scale that noise made is worse than one that is not found.
        """
        assert self._zoom is not None
        inside = (self.edges[1:] > self._zoom[0]) & (self.edges[:-1] < self._zoom[1])
        noise = sd * math.sqrt(int(np.count_nonzero(inside)))
        if self._zoom[1] - self._zoom[0] >= _NARROW * (self.upper - self.lower):
            return False  # and rows in a wide zoom are no evidence for a narrow one within it
        self._against += _none_likelier(self.n / 2, float(counts[inside].sum()), noise)
        return 2 * noise > _SEEN * self.n and self._against > 0

    def _spread(self, rows: Array, counts: Array, sd: float, threshold: float) -> None:
        """Rows that stand out nowhere are spread over the zoom; far from it nothing was seen."""
        assert self._zoom is not None
        middles = (self.edges[1:] + self.edges[:-1]) / 2
        inside = (middles > self._zoom[0]) & (middles < self._zoom[1])
        near = np.convolve(inside, np.ones(5))[2:-2] > 0  # as long as the cells, few as they are
        rows[~near & (counts < threshold + _DOUBTFUL * sd)] = 0.0
        unseen = self.n - rows.sum() - 2 * sd * math.sqrt(max(int(np.count_nonzero(rows)), 1))
        if unseen > 0:
            widths = np.diff(self.edges) * inside
            rows += unseen * widths / widths.sum()

    def _conclude(self, seen: _ClearCells, counts: Array, sd: float, threshold: float) -> None:
        rows, edges, total = seen.rows, seen.edges, seen.rows.sum()
        spikes = self._spikes(edges)
        (middle,) = seen.cells(0.5)
        if spikes[middle] or rows[spikes].max(initial=0.0) > _ONE_VALUE * total:
            if edges is not self._start:
                self._seen = seen
            self.found = self._around_one_value(seen, counts, sd, threshold)
            return
        self._seen = seen
        left, right = edges[middle], edges[middle + 1]
        center = left + (total / 2 - rows[:middle].sum()) / rows[middle] * (right - left)
        scale = spread(rows, edges, center)
        i, k = seen.cells(0.1, 0.9)
        narrow = k - i <= 2 + spikes[i : k + 1].sum() and total > 0.8 * self.n
        # What the first cells show of a small part of the range no zoom has checked.
        claim = edges is self._start and scale < _NARROW * (self.upper - self.lower)
        least = (right - left) / math.sqrt(12)
        self.found = CenterScale(float(center), float(max(scale, least)), not (narrow or claim))

    def _around_one_value(
        self, seen: _ClearCells, counts: Array, sd: float, threshold: float
    ) -> CenterScale:
        """Most rows have one value: the scale is that of the others, if they can be seen."""
        rows, edges, at = seen.rows.copy(), seen.edges, anchors(self.lower, self.upper)
        spikes = self._spikes(edges)
        most = int(np.argmax(np.where(spikes, rows, -1.0)))
        center = float(at[np.argmin(np.abs(at - (edges[most] + edges[most + 1]) / 2))])
        rows[most] = 0.0
        # Cells that stand out by noise are refuted by the count at the one value, which lacks none.
        if _none_likelier(float(rows.sum()), self.n - float(counts[most]), sd) > math.log(_FALSE):
            rows[:] = 0.0
        if rows.sum() <= 0:
            rest = np.where(np.arange(counts.size) == most, 0.0, counts)
            rows = self._likeliest(rest, self.n - counts[most], sd)
        others = rows.sum()
        if others <= 0:
            farthest = max(self.upper - center, center - self.lower)
            return CenterScale(
                center, math.sqrt(min(float(threshold / self.n), 1.0)) * farthest, False
            )
        rows[most] = max(self.n - others, 0.0)
        return CenterScale(center, spread(rows, edges, center), True)

    def _likeliest(self, counts: Array, others: float, sd: float) -> Array:
        """All other rows in the three cells that have most, if these have what is missing."""
        rows = np.zeros(counts.size)
        sums = np.convolve(counts, np.ones(3), "valid")
        k = int(np.argmax(sums))
        noise = math.sqrt(6 * math.log(_FALSE * sums.size)) * sd
        if others >= 4 * sd and sums[k] >= max(0.4 * others, noise):
            rows[k : k + 3] = np.maximum(counts[k : k + 3], 0.0)
            rows *= others / rows.sum()
        return rows

    def _spikes(self, edges: Array) -> Mask:
        """Cells that hold an anchor and nothing else."""
        tiny, at = (self.upper - self.lower) * _SPIKE, anchors(self.lower, self.upper)
        middles = (edges[1:] + edges[:-1]) / 2
        alone = np.abs(middles[:, None] - at).min(axis=1) <= 1.5 * tiny
        found: Mask = alone & (np.diff(edges) <= 2.5 * tiny)
        return found


def _none_likelier(m: float, seen: float, sd: float) -> float:
    """Log of how much likelier a number of rows is where there are none than where there are m.

    With noise of variance v a number s is exp(m (m - 2 s) / 2v) times as likely.
    """
    return m * (m - 2 * seen) / (2 * sd**2)


def _without_doubtful(rows: Array, edges: Array, threshold: float, sd: float) -> None:
    """Take away groups of cells far from the largest that hardly stand out: likely to be noise.

    They would draw the next cells out over all that lies between. Far is by the width of the
    largest, which has to stand out clearly itself: halves of one column on either side of 0 are
    groups too, and near.
    """
    places = np.flatnonzero(rows)
    groups = np.split(places, np.flatnonzero(np.diff(places) > _APART) + 1)
    if len(groups) == 1:
        return
    sums = np.array([rows[group].sum() for group in groups])
    sure = (threshold + _DOUBTFUL * sd) * np.sqrt([group[-1] - group[0] + 1 for group in groups])
    largest = groups[int(np.argmax(sums))]
    low, high = edges[largest[0]], edges[largest[-1] + 1]
    if sums.max() < sure[int(np.argmax(sums))]:
        return
    for group in (g for g, total, need in zip(groups, sums, sure, strict=True) if total < need):
        if max(edges[group[0]] - high, low - edges[group[-1] + 1]) > _FAR * (high - low):
            rows[group] = 0.0


def spread(rows: Array, edges: Array, center: float) -> float:
    """Root mean squared distance from the centre, of rows that are even in each cell."""
    a, b = edges[:-1] - center, edges[1:] - center
    mean = float(rows @ (a * a + a * b + b * b)) / 3 / float(rows.sum())
    return math.sqrt(mean)


def _standing_out(counts: Array, threshold: float) -> Array:
    """Counts of cells that stand out of noise, alone or with their neighbours; 0 elsewhere.

    Narrow windows go first: what stands out by itself does not lift its neighbours.
    """
    kept = counts > threshold  # alone: no cell changes what another one is compared to
    for width in _WIDTHS:
        while width <= counts.size:
            ones = np.ones(width)
            sums = np.convolve(np.where(kept, 0.0, counts), ones, "valid")
            cells = np.maximum(np.convolve(~kept, ones, "valid"), 1e-9)
            best = int(np.argmax(sums / np.sqrt(cells)))
            if sums[best] <= threshold * math.sqrt(cells[best]):
                break
            kept[best : best + width] = True
    return np.maximum(np.where(kept, counts, 0.0), 0.0)
