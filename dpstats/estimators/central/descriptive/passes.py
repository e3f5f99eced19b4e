"""Released distribution functions of columns: asked for, and read of noisy prefix sums.

Most of what is said of columns starts here: quantiles, windows to clip to, and ranks.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Literal

import numpy as np
from numpy.typing import NDArray

from dpstats.errors import OptionError, among, given
from dpstats.estimators import columns
from dpstats.estimators.base import need_delta
from dpstats.estimators.guesses import max_rows, round_up, rows_known
from dpstats.privacy import Privacy
from dpstats.protocol import Distribution, Holder, Options, Plan
from dpstats.queries import Axis, ColumnPrefixes, Query, TableCounts
from dpstats.queries.prefixes import prefix_noise

if TYPE_CHECKING:
    from dpstats.design import Design

__all__ = [
    "MECHANISM",
    "NORMAL",
    "ask_distribution",
    "ask_distributions",
    "expected_noise",
    "finer_edges",
    "mechanism_of",
    "norm_of",
    "rank_edges",
    "warn_of_blur",
]

Array = NDArray[np.float64]

MECHANISM = "noise on counts: 'gaussian' (default), or 'laplace' (default where delta is 0)"
NORMAL = (  # what the plan of a mean and a standard deviation presumes
    "For the prediction columns are normal; at the upper end the range is far too wide for them, "
    "and what may lie outside of a window is allowed for.",
)

_FOCUS = 1024  # numerical: cells of a second pass inside of what the first found of its quantiles
_DOUBTS = (0.5, 0.1, 0.01, 1e-4)  # numerical: odds that a quantile is outside nested intervals
_RANKS = 256  # numerical: cells of a second pass that reads ranks
_OUTER = 64  # numerical: cells of a second pass in each part of the range outside
# wording: share of the rows, noise of a count above which windows may be those of noise, after two
# passes and after one
_BLURRED = {2: 0.025, 1: 0.06}
_FEW = 128  # number: cells of a first pass of noisy counts, which add up
_FEW_FOCUS, _FEW_OUTER = 96, 8  # number: the same of a second pass, inside and in each part outside


def finer_edges(
    first: Distribution, levels: Sequence[float], focus: int = _FOCUS, outer: int = _OUTER
) -> Array:
    """Edges for a second pass: the closer, the likelier the quantiles of these levels are there.

    Each quantile has an interval of cells of equal width within wider and wider ones, the last of
    which is the range. What each adds is in cells that grow with the distance, so that an interval
    which noise makes as long as the range costs no more than cells.
    """
    low, high = float(first.edges[0]), float(first.edges[-1])
    each = max(focus // (len(levels) * len(_DOUBTS)), 4)
    least = (high - low) * columns.DEEPEST
    nested = np.array([[first.interval(q, doubt) for doubt in _DOUBTS] for q in levels])
    edges = []
    for intervals in nested:
        start, stop = intervals[0]
        edges.append(np.linspace(start, stop, each + 1))
        for lower, upper in intervals[1:]:
            unit = max(stop - start, least)
            edges += [
                _outward(start, lower, unit, each // 2),
                _outward(stop, upper, unit, each // 2),
            ]
            start, stop = lower, upper
    start, stop = float(nested[..., 0].min()), float(nested[..., 1].max())
    unit = max(float(np.ptp(nested[:, 0])) / 8, least)  # of half the middle, or so
    edges += [_outward(start, low, unit, outer), _outward(stop, high, unit, outer)]
    return columns.between(np.concatenate(edges), low, high)


def _outward(start: float, end: float, unit: float, cells: int) -> Array:
    """Edges of cells that are of equal width up to `unit` from the start, then in equal ratios."""
    made: Array = start + unit * np.sinh(
        np.linspace(0.0, np.arcsinh((end - start) / unit), cells + 1)
    )
    return made


def rank_edges(first: Distribution) -> Array:
    """Edges for a second pass that reads ranks: each cell has one in so many of the rows.

    But for a value that many rows have: it ends up in a cell with hardly another.
    """
    levels = np.arange(1, _RANKS) / _RANKS
    found = np.array([first.quantile(q) for q in levels])
    return columns.between(found, float(first.edges[0]), float(first.edges[-1]))


def ask_distributions(
    holder: Holder[Query],
    design: Design,
    slots: Sequence[str],
    places: NDArray[np.int64],
    finer: Callable[[Distribution], Array] = rank_edges,
) -> list[Distribution]:
    """The distribution functions of columns, from one question about all of them for each slot.

    The first is in coarse cells over the declared range; `finer` says those of the next.

    Notes
    -----
    Noise of the prefix sums is conditioned on the public number of rows, where there is one, they
    are made to rise by least squares, and a second answer is averaged with the first. All are
    functions of what was released.
    """
    plan, whole = holder.plan, design.counts_rows
    known = plan.n if rows_known(design, plan.privacy) else None
    effect = float(max_rows(design))
    edges = [columns.coarse_edges(design, int(place)) for place in places]
    found: list[Distribution] = []
    for slot in slots:
        edges = [finer(each) for each in found] or edges
        query = ColumnPrefixes(tuple(edges), places, missing=whole)
        answer = holder.ask(query, slot)
        answers = [
            _distribution(column, prefix, answer.noise.sd, known, effect)
            for column, prefix in zip(edges, query.split(answer.value), strict=True)
        ]
        found = [*map(_agreed, answers, found)] if found else answers
    return found


def _agreed(found: Distribution, first: Distribution) -> Distribution:
    """A distribution function in finer cells, averaged with what an earlier one says of it.

    That bounds each count by its own at the edges on either side. Where the count is not between
    them, its distance is shared by precision: far from all values, where both see nothing but
    their noise, it falls. The variance that is stated stays that of the finer one.
    """
    known = np.append(0.0, first.below)
    above = np.minimum(np.searchsorted(first.edges, found.edges[1:]), known.size - 1)
    same = first.edges[above] == found.edges[1:]
    held = np.clip(found.below, known[np.where(same, above, above - 1)], known[above])
    noises = float(first.variance.max()), float(found.variance.max())
    return replace(found, below=(noises[0] * found.below + noises[1] * held) / sum(noises))


def mechanism_of(method: str, options: Options, privacy: Privacy) -> Literal["gaussian", "laplace"]:
    """The noise on counts that is asked for; Laplace noise by default where delta is 0.

    Raises
    ------
    OptionError
        If it is none of the two, or Gaussian noise with delta = 0.
    """
    asked = options.get("mechanism", "gaussian" if privacy.delta > 0 else "laplace")
    if not among(asked, ("gaussian", "laplace")):
        raise OptionError(f"mechanism={given(asked)}: 'gaussian' or 'laplace' is needed.")
    if asked == "gaussian":
        need_delta(method, privacy)
        return "gaussian"
    return "laplace"


def norm_of(plan: Plan, slot: str) -> Literal["l1", "l2"]:
    """In which a sensitivity is to be stated for the noise that is planned under a slot."""
    return "l1" if plan.mechanism(slot).event.kind == "laplace" else "l2"


def ask_distribution(
    holder: Holder[Query],
    design: Design,
    slots: Sequence[str],
    levels: Sequence[float] = columns.QUARTILES,
) -> Distribution:
    """The distribution function of the one column of a design, close where its quantiles are.

    By `ask_distributions`. Where noise is Laplace noise, of counts of fewer cells: a root of
    summation has too large an L1 norm.
    """
    plan = holder.plan
    if norm_of(plan, slots[0]) == "l2":
        place = np.zeros(1, dtype=np.int64)

        def finer(first: Distribution) -> Array:
            return finer_edges(first, levels)

        return ask_distributions(holder, design, slots, place, finer)[0]
    whole = design.counts_rows
    known = plan.n if rows_known(design, plan.privacy) else None
    edges = columns.coarse_edges(design, 0, _FEW)
    for slot in slots:
        axis = Axis(np.zeros(1, dtype=np.int64), np.ones(1), edges)
        counts, noise = holder.ask(TableCounts((axis,), missing=whole, norm="l1"), slot)
        found = _summed(edges, counts, noise.sd, known, float(max_rows(design)))
        edges = finer_edges(found, levels, _FEW_FOCUS, _FEW_OUTER)
    return found


def _summed(
    edges: Array, counts: Array, sd: float, known: int | None, effect: float
) -> Distribution:
    """Of noisy counts, the sum of which, where it is known, is the number of rows."""
    cells, size = edges.size - 1, np.arange(1.0, edges.size)
    bridge = 0.0 if known is None else 1 / counts.size
    if known is not None:
        counts = counts - (counts.sum() - known) * bridge
    return Distribution(
        edges=edges,
        below=_rising(np.cumsum(counts[:cells]), known),
        variance=sd**2 * (size - bridge * size**2),
        shared=sd**2 * (size - bridge * size * cells),
        effect=effect,
    )


def _distribution(
    edges: Array, prefix: Array, sd: float, known: int | None, effect: float
) -> Distribution:
    """Of noisy prefix sums, the last of which, where it is known, is the number of rows."""
    law, cells = prefix_noise(prefix.size), edges.size - 1
    variance, last = sd**2 * law.variance, sd**2 * law.with_last
    shared = sd**2 * (law.with_values if prefix.size > cells else law.with_last)
    if known is not None:
        share = last / last[-1]
        prefix = prefix - share * (prefix[-1] - known)
        shared = shared - share * last[cells - 1]
        variance = variance - share * last
    return Distribution(
        edges=edges,
        below=_rising(prefix[:cells], known),
        variance=np.maximum(variance[:cells], 0.0),
        shared=shared[:cells],
        effect=effect,
    )


def _rising(prefix: Array, known: int | None) -> Array:
    """Counts that rise, as least squares says, to the number of values.

    Where no number of rows is known that is the last as it was released: the last of counts that
    were made to rise is the largest of averages up to there, a standard deviation too large. Where
    it is known, this draws it to the number of rows, which it is where no value is missing.
    """
    from scipy.optimize import isotonic_regression

    rising: Array = isotonic_regression(prefix).x
    most = float(prefix[-1] if known is None else known)
    if min(float(rising[-1]), most) < 1:
        return np.linspace(0, 1, prefix.size)
    return np.clip(rising, 0.0, most)


def warn_of_blur(plan: Plan, slots: Sequence[str], columns: int) -> Plan:
    """The plan, with a warning where noise blurs distributions too much to read windows of them."""
    noise, most = expected_noise(plan, slots[-1], columns, 512), _BLURRED[len(slots)]
    if noise <= most * plan.n:
        return plan
    several, fewer = (f" and {columns} columns", ", or fewer columns,") if columns > 1 else ("", "")
    share = "as many rows as there are, or more" if noise >= plan.n else f"{noise / plan.n:.0%}"
    statement = (
        f"n={plan.n:,} is small for epsilon={plan.privacy.epsilon:g}{several}: noise blurs "
        f"distributions of columns by {share}{' of the rows' * (noise < plan.n)}. About "
        f"n={round_up(noise / most):,} rows{fewer} suffice."
    )
    return replace(plan, warnings=(*plan.warnings, statement))


def expected_noise(plan: Plan, slot: str, columns: int, cells: int = _FOCUS) -> float:
    """Standard deviation to be expected of the noise in a count near the median, in rows."""
    if norm_of(plan, slot) == "l1":
        axis = Axis(np.zeros(1, dtype=np.int64), np.ones(1), np.arange(3.0))
        each = plan.noise(TableCounts((axis,), norm="l1"), slot).sd
        return each * math.sqrt((_FEW_FOCUS + 2 * _FEW_OUTER) / 4)
    edges = np.arange(float(cells))
    places = np.arange(columns)
    unit = plan.noise(ColumnPrefixes((edges,) * columns, places), slot).sd
    law = prefix_noise(cells)
    middle = cells // 2
    bridged = law.variance[middle] - law.with_last[middle] ** 2 / law.with_last[-1]
    return unit * math.sqrt(bridged)
