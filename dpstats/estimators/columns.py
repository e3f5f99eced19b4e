"""What descriptions of columns share under every trust model: what is asked for, and where.

All of it follows from public facts, or from what was released.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from dpstats.errors import OptionError, PlanError, given, is_number, is_whole, need_names
from dpstats.estimators.guesses import round_up
from dpstats.protocol import Distribution, Plan
from dpstats.protocol.descriptive import quantile_names
from dpstats.queries import Axis

if TYPE_CHECKING:
    from dpstats.design import Design

__all__ = [
    "CELLS",
    "DEEPEST",
    "QUARTILES",
    "between",
    "bin_numbers",
    "checked_bins",
    "checked_levels",
    "coarse_edges",
    "expected_quantiles",
    "factor_of",
    "too_few",
    "too_many_cells",
    "window",
]

Array = NDArray[np.float64]

QUARTILES = (0.25, 0.5, 0.75)  # wording: levels that are asked for by default
CELLS = 2048  # numerical: cells of a first pass, half of equal width and half of equal ratio
DEEPEST = 2.0**-24  # numerical: part of the range, below which equal ratios become equal widths
_MOST_LEVELS = 100  # wording: levels that one pass is about, at most
_REACH = 1.96  # wording: standard deviations that an interval reaches to either side
_TAIL = 0.005  # share: of the values beyond each end of the window, at least
_SEEN = 2.5  # ratio: values beyond an end to the noise in their count, at least
_LOST = 0.25  # numerical: of the values, in a tail that noise hides: there is no window beyond
_MOST_BINS = 1000  # wording: bins of a histogram
_MANY = 1.0  # wording: noise of a count to the rows of an average cell, above which the plan warns


def factor_of(design: Design, columns: Sequence[str], name: str) -> tuple[Axis, tuple[str, ...]]:
    """A column of levels among those of a design without intercept: its axis, and their names.

    Columns are those of the table in the order of the design's terms. Of factors the first has a
    dummy of each level, later ones of all but the first.
    """
    assert design.schema is not None
    at, before = 0, False
    for column in columns:
        declared = design.schema[column]
        levels = getattr(declared, "levels", ())
        factor = hasattr(declared, "other")  # a Boolean is one number
        width = len(levels) - before if factor else 1
        if column == name:
            return Axis.of_levels(np.arange(at, at + width), len(levels)), tuple(map(str, levels))
        at, before = at + width, before or factor
    raise PlanError(f"{name!r} is no column of the design.")


def checked_pair(design: Design, asked: object) -> list[str]:
    """Two columns of the design, as a model of both names them.

    Raises
    ------
    OptionError
        If they are not.
    """
    names = need_names(columns=asked)
    if len(names) != 2 or set(names) != set(design.inputs):
        raise OptionError(f"columns={given(asked)}: these are {', '.join(design.inputs)}.")
    return names


def checked_levels(q: object) -> tuple[float, ...]:
    """Levels of quantiles: numbers between 0 and 1, each once.

    Raises
    ------
    OptionError
        If they are not.
    """
    levels = list(q) if isinstance(q, Sequence | np.ndarray) and not isinstance(q, str) else [q]
    numbers = [float(x) if is_number(x) else math.nan for x in levels]
    sound = 0 < len(numbers) <= _MOST_LEVELS and len(set(numbers)) == len(numbers)
    if not (sound and all(0 < x < 1 for x in numbers)):
        raise OptionError(
            f"q={given(q)}: from 1 to {_MOST_LEVELS} different numbers between 0 and 1 are needed, "
            "such as q=[0.25, 0.5, 0.75]."
        )
    return tuple(numbers)


def checked_bins(bins: object, low: float, high: float) -> Array | None:
    """Edges of bins that cover the declared range; None where they are to be found.

    Raises
    ------
    OptionError
        If `bins` is no number of bins, and no edges that increase, within the range.
    """
    if isinstance(bins, str) and bins == "auto":
        return None
    if isinstance(bins, str) and bins == "whole" and _has_whole_bins(low, high):
        return np.arange(low - 0.5, high + 1.0)
    if is_whole(bins, 2, _MOST_BINS):
        return np.linspace(low, high, bins + 1)
    if isinstance(bins, Sequence | np.ndarray) and not isinstance(bins, str):
        edges = [float(e) if is_number(e) else math.nan for e in bins]
        inside = 1 <= len(edges) <= _MOST_BINS and low <= min(edges) and max(edges) <= high
        if inside and all(a < b for a, b in pairwise(edges)):
            whole = np.unique(np.array([low, *edges, high]))
            if whole.size > 2:
                return whole
    raise OptionError(
        f"bins={given(bins)}: 'auto', a number from 2 to {_MOST_BINS}, or edges that increase from "
        f"{low:g} to {high:g}, the declared range, are needed; or 'whole', a bin for each of 2 to "
        f"{_MOST_BINS} whole numbers from one end of a range to the other."
    )


def _has_whole_bins(low: float, high: float) -> bool:
    return low.is_integer() and high.is_integer() and 1 <= high - low < _MOST_BINS


def bin_numbers(count: int) -> tuple[str, ...]:
    """Names of bins whose edges are not known yet."""
    return tuple(f"bin {j + 1}" for j in range(count))


def _round_step(width: float) -> float:
    """The next round number that is not below a width."""
    unit = 10.0 ** math.floor(math.log10(width))
    return next(m * unit for m in (1.0, 2.0, 2.5, 5.0, 10.0) if m * unit >= width * (1 - 1e-9))


def round_edges(low: float, high: float, count: int) -> Array:
    """Edges of about `count` bins of one round width, the first and last cut off by the range."""
    step = _round_step((high - low) / count)
    inner = step * np.arange(math.floor(low / step) + 1, math.ceil(high / step))
    edges = np.concatenate([[low], inner, [high]])
    return edges if np.all(np.diff(edges) > 0) else np.linspace(low, high, count + 1)


def window(found: Distribution, count: int) -> Array:
    """Edges of `count` + 2 bins of a range: all but the first and the last have one round width.

    These take what is outside of the window, which stays inside of the range, so that as many bins
    are asked for as were planned. Where noise hides the tails, or so many do not fit, bins of a
    round width cover all of the range, no more of them.
    """
    noise = math.sqrt(float(found.variance.max()))
    low, high = float(found.edges[0]), float(found.edges[-1])
    tail = max(_TAIL, _SEEN * noise / found.rows)
    if tail > _LOST:
        return round_edges(low, high, count + 1)
    start, stop = found.quantile(tail), found.quantile(1 - tail)
    width = max(stop - start, (high - low) * 2.0**-40) / count
    step = _round_step(width)
    most = math.ceil(high / step) - 1 - count
    first = min(max(math.floor(start / step), math.floor(low / step) + 1), most)
    # Products to the digits of the step, so that 3 times 0.1 is printed as 0.3.
    inner = [float(f"{step * (first + j):.12g}") for j in range(count + 1)]
    edges = np.concatenate([[low], inner, [high]])
    return edges if np.all(np.diff(edges) > 0) else round_edges(low, high, count + 1)


def coarse_edges(design: Design, place: int, cells: int = CELLS, deepest: float = DEEPEST) -> Array:
    """Edges over the declared range of a column: equally apart, and in equal ratios of a centre.

    The centre is the declared one, or the number of the range that is nearest to 0; nearer to it
    than `deepest`, as a part of the range, ratios become widths.
    """
    (low, high), centre = _range_of(design, place), 0.0
    if place not in design.unscaled:
        known = design.standardization
        centre = float(np.append(known.x_center, known.y_center)[place])
    centre, unit = min(max(centre, low), high), (high - low) * deepest
    first, last = (math.asinh((end - centre) / unit) for end in (low, high))
    ratios = centre + unit * np.sinh(np.linspace(first, last, cells // 2 + 1))
    return between(np.concatenate([np.linspace(low, high, cells // 2 + 1), ratios]), low, high)


def _range_of(design: Design, place: int) -> tuple[float, float]:
    """Declared range of a column; the width of the design means the response."""
    if place < len(design.bounds):
        return float(design.bounds[place, 0]), float(design.bounds[place, 1])
    assert design.endog is not None
    return design.endog.lower, design.endog.upper


def between(edges: Array, low: float, high: float) -> Array:
    """Distinct edges within a range, ends included."""
    made: Array = np.unique(np.clip(np.concatenate([edges, [low, high]]), low, high))
    return made


def expected_quantiles(
    plan: Plan, design: Design, place: int, levels: Sequence[float], noise: float
) -> Plan:
    """The plan with errors between those of a normal column and one with exponential tails."""
    from scipy.special import ndtri
    from scipy.stats import norm

    q = np.array(levels)
    rank = np.sqrt(plan.max_rows * q * (1 - q) * plan.n + noise**2) / plan.n
    low, high = rank / norm.pdf(ndtri(q)), rank / np.minimum(q, 1 - q)
    known = place not in design.unscaled
    unit = float(design.standardization.x_scale[place]) if known else 1.0
    errors = np.sort(unit * np.stack([low, high], axis=1), axis=1)
    sampling = plan.max_rows * q * (1 - q) * plan.n
    assumption = (
        "Expected errors are those of a normal column, and of one with exponential tails"
        + ("." if known else "; they are in standard deviations of the column.")
        + (" Rows of one unit are taken to be alike." if plan.max_rows > 1 else "")
    )
    return replace(
        plan,
        predicted_se=tuple(np.sqrt(errors[:, 0] * errors[:, 1]).tolist()),
        predicted_range=tuple((float(a), float(b)) for a, b in errors),
        predicted_units=("" if known else f"sd({design.names[place]})",) * q.size,
        privacy_share=float(np.mean(noise**2 / (noise**2 + sampling))),
        assumptions=(*plan.assumptions, assumption),
    )


def too_few(plan: Plan, levels: Sequence[float], noise: float) -> tuple[str, ...]:
    """A warning where the interval of a quantile reaches an end of the range."""
    local = plan.privacy.trust == "local"

    def reaches(n: float, q: float) -> bool:
        square = noise**2 * (n / plan.n if local else 1.0)  # every device adds its own
        return _REACH * math.sqrt(plan.max_rows * q * (1 - q) * n + square) > min(q, 1 - q) * n

    lost = [q for q in levels if reaches(plan.n, q)]
    if not lost:
        return ()
    enough = float(plan.n)
    while any(reaches(enough, q) for q in lost):
        enough *= 1.1
    names = ", ".join(quantile_names(tuple(lost)))
    return (
        f"n={plan.n:,} is small for epsilon={plan.privacy.epsilon:g}: the interval of {names} "
        f"reaches an end of the range. About n={round_up(enough):,} rows suffice.",
    )


def too_many_cells(plan: Plan, cells: int, noise: float) -> tuple[str, ...]:
    """A warning where the noise of a count is more than an average cell holds."""
    if noise * cells <= _MANY * plan.n:
        return ()
    grows = 2.0 if plan.privacy.trust == "local" else 1.0  # noise of devices is as sqrt(n)
    enough = plan.n * (5 * noise * cells / plan.n) ** grows
    return (
        f"n={plan.n:,} is small for epsilon={plan.privacy.epsilon:g} and {cells:,} cells: the "
        f"noise in a count, {noise:.3g} rows, is more than an average cell holds. About "
        f"n={round_up(enough):,} rows, or fewer cells, suffice.",
    )
