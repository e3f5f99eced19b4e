"""Centres and scales that nobody declared: planned, asked for, and given to the design."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, TypeVar

import numpy as np
from numpy.typing import NDArray

from dpstats.accounting import gdp_mu
from dpstats.errors import PlanError
from dpstats.estimators.base import Request
from dpstats.estimators.guesses import max_rows, round_up
from dpstats.estimators.numerics.cells import Column
from dpstats.privacy import Privacy
from dpstats.protocol import Holder, Plan, RowHolder
from dpstats.protocol.estimate import InternalEstimate
from dpstats.queries import ColumnCells, Query

if TYPE_CHECKING:
    from dpstats.design import Design

__all__ = [
    "columns_found",
    "enough_for_scales",
    "found_units",
    "histograms",
    "in_found_scales",
    "used",
    "with_scales",
    "without_scales",
]

Array = NDArray[np.float64]

_STAGES = (0.375, 0.375, 0.25)  # share: of what is spent on scales, for each stage
_WORTH = 15_000.0  # numerical: share of the budget, times (mu n)^2 for each column
_LEAST, _MOST = 0.015, 0.12  # budget: the least and the most that is spent on scales
_HOPELESS = 0.10  # ratio: noise of a cell to the rows, from which nothing would be found
_WIDENED = 1.5  # ratio: scale used to that found, which leaves out the ends of long tails
_MANY = 10  # number: columns from which on those that are alike share a unit
# ratio: of scales that count as alike; more of it for each unit of noise as a share of the rows
_BAND, _BAND_NOISE = 2.0, 40.0
_NEARLY_ALL = 0.8  # share: of columns that are alike, from which on those not seen are taken to be
_BAND_CENTER = 3.0  # ratio: of it to the scales by which a centre is clear of the middle
_DUMMY = 0.05  # ratio: rms of a column in [0, 1] about an end, from where on it may be a dummy
_NARROWEST = 1e-12  # numerical: scale of a column as a share of its range, at least
SLOTS = tuple(f"scales {k + 1}" for k in range(len(_STAGES)))


def _norm(columns: int, design: Design, privacy: Privacy) -> float:
    """Sensitivity of the cells of so many columns."""
    query = ColumnCells((np.array([0.0, 1.0]),) * columns, np.arange(columns))
    return query.sensitivity(privacy.neighbors, max_rows(design))


def _share(design: Design, privacy: Privacy, n: float) -> float:
    """Share of the budget that finding all scales is worth; 0 where noise would hide them."""
    columns = len(design.unscaled)
    if not columns:
        return 0.0
    rows = gdp_mu(privacy.epsilon, privacy.delta) * n
    share = float(np.clip(_WORTH * columns / rows**2, _LEAST, _MOST))
    noise = _norm(columns, design, privacy) / (rows * math.sqrt(_STAGES[0] * share))
    return share if noise <= _HOPELESS else 0.0


def with_scales(
    asks: Sequence[Request], design: Design, privacy: Privacy, n: float
) -> list[Request]:
    """Questions of a fit after those for the scales that nobody declared, if these pay.

    Three stages of histograms, one of each column: cells outward from public anchors by powers of
    4, even ones where most rows are, then nearer for what is still coarse (`Column`).
    """
    share = _share(design, privacy, n) if design.by_value and privacy.delta > 0 else 0.0
    unit = sum(ask.weight for ask in asks) / (1 - share)
    return [*(histograms(unit * share) if share else ()), *asks]


def histograms(weight: float = 1.0) -> list[Request]:
    """The three stages, with that weight together."""
    purpose = "centres and scales that nobody declared"
    return [
        Request(slot, weight * part, purpose) for slot, part in zip(SLOTS, _STAGES, strict=True)
    ]


def without_scales(plan: Plan, design: Design) -> Plan:
    """The plan warning that scales are not found, with the n that suffices."""
    if not (design.unscaled and design.by_value) or plan.asks(SLOTS[0]):
        return plan
    statement = (
        "Ranges are taken to be about as wide as their columns: noise would hide the scales of "
        f"columns that are far narrower. From about "
        f"n={enough_for_scales(plan, design, _MOST):,} rows they are found; "
        "until then declare center= and scale= where a range is wide."
    )
    return replace(plan, warnings=(*plan.warnings, statement))


def enough_for_scales(plan: Plan, design: Design, share: float) -> int:
    """Rows from which a share of the budget finds scales."""
    mu = gdp_mu(plan.privacy.epsilon, plan.privacy.delta)
    norm = _norm(len(design.unscaled), design, plan.privacy)
    return round_up(norm / (mu * math.sqrt(_STAGES[0] * share) * _HOPELESS))


AnyEstimate = TypeVar("AnyEstimate", bound=InternalEstimate)


def in_found_scales(
    fit: Callable[[Holder[Query], Design], AnyEstimate],
    holder: Holder[Query],
    design: Design,
    wide: float = 1.0,
) -> AnyEstimate:
    """What `fit` finds in units of the scales that were planned for; in the design's own units.

    Parameters
    ----------
    fit : callable
        Asks the holder, and estimates in the units of a design.
    holder : Holder
        Of the rows.
    design : Design
        Public design, some of whose columns have no declared scale.
    wide : float, default 1
        Found scales in half of a range, from which on a column is held in other units.
    """
    scaled, scales, remarks = found_units(holder, design, wide)
    if scaled is design:
        return fit(holder, design)
    estimate = fit(holder, scaled).converted(scaled.standardization, design.standardization)
    return replace(
        estimate,
        released={**estimate.released, "scales": scales},
        remarks=(*remarks, *estimate.remarks),
    )


def found_units(
    holder: Holder[Query], design: Design, wide: float = 1.0
) -> tuple[Design, dict[str, dict[str, float]], tuple[str, ...]]:
    """The design in units of the scales that were planned for, in which rows are then held.

    Parameters
    ----------
    holder, design, wide
        As for `in_found_scales`.

    Returns
    -------
    design : Design
        The same one where no scales were planned for.
    scales : dict
        Centre and scale of each column that has one.
    remarks : tuple of str
        What could not be found.
    """
    if not holder.plan.asks(SLOTS[0]):
        return design, {}, ()
    if not isinstance(holder, RowHolder):
        raise PlanError(
            f"{type(holder).__name__} holds no rows that it could hold in other units, and the "
            "plan finds scales: declare center= and scale= for every column."
        )
    columns = columns_found(holder, design, holder.plan.n)
    found = {place: given for place, column in columns.items() if (given := used(column))}
    half = {place: (column.upper - column.lower) / 2 for place, column in columns.items()}
    if wide > 1:
        found |= _alike({p: c for p, c in columns.items() if p < len(design.names)})
    narrow = {
        p: pair for p, pair in found.items() if wide * pair[1] <= half[p] or dummy(columns[p])
    }
    if 2 * len(narrow) > len(found):  # most: beside them units of a whole range are too large
        narrow = found
    unsure = [p for p, column in columns.items() if not (column.sure or dummy(column))]
    # Of a response whose scale is not to be relied on nothing is made of its unit.
    scaled = design.scaled(narrow, tuple(p for p in unsure if p == len(design.names)))
    holder.rescale(scaled, narrow)
    names = [*design.names, "" if design.endog is None else design.endog.name]
    scales = {names[place]: {"center": c, "scale": s} for place, (c, s) in found.items()}
    return scaled, scales, _remarks([names[p] for p in unsure])


def columns_found(holder: Holder[Query], design: Design, n: float) -> dict[int, Column]:
    """What three stages of histograms tell of each column, by its position."""
    places = np.array(design.unscaled, dtype=np.int64)
    noise = _noise(holder.plan, places, SLOTS[0])
    columns = {
        int(place): Column(*_ends(design, int(place)), n, noise / n, places.size)
        for place in places
    }
    for slot in SLOTS:
        if slot == SLOTS[-1]:
            unsure = [place for place, column in columns.items() if not column.sure]
            places = np.array(unsure or places, dtype=np.int64)
        if slot != SLOTS[0]:
            noise = _noise(holder.plan, places, slot)
            for place in places:
                columns[int(place)].focus(noise / n)
        query = ColumnCells(tuple(columns[int(place)].edges for place in places), places)
        answer = holder.ask(query, slot)
        for place, counts in zip(places, query.split(answer.value), strict=True):
            columns[int(place)].look(counts, answer.noise.sd)
    return columns


def _noise(plan: Plan, places: NDArray[np.int64], slot: str) -> float:
    cells = (np.array([0.0, 1.0]),) * places.size
    return plan.noise(ColumnCells(cells, places), slot).sd


def _ends(design: Design, place: int) -> tuple[float, float]:
    """Declared range of a column, or of the response."""
    if place < len(design.names):
        return float(design.bounds[place, 0]), float(design.bounds[place, 1])
    assert design.endog is not None
    return design.endog.lower, design.endog.upper


def _alike(columns: Mapping[int, Column]) -> dict[int, tuple[float, float]]:
    """One unit for the columns whose scale, as a share of the range, is that of most up to noise.

    Noise tells many columns apart that are as wide as each other, and methods that cannot afford to
    whiten all of them need units that are alike. Their centre is the middle of the range, unless it
    is clear of that. Where nearly all are alike, those of which nothing was seen are taken to be.
    """
    given = {p: used(c) for p, c in columns.items() if not dummy(c)}
    seen = {p: pair for p, pair in given.items() if pair is not None}
    if len(seen) < _MANY:
        return {}
    half = {p: (columns[p].upper - columns[p].lower) / 2 for p in given}
    middle = {p: (columns[p].upper + columns[p].lower) / 2 for p in given}
    ratio = float(np.median([scale / half[p] for p, (_, scale) in seen.items()]))
    shared = {}
    for p, (center, scale) in seen.items():
        apart = _BAND + _BAND_NOISE * columns[p].tau
        if 1 / apart <= scale / half[p] / ratio <= apart:
            near = abs(center - middle[p]) <= apart / _BAND_CENTER * ratio * half[p]
            shared[p] = (middle[p] if near else center, ratio * half[p])
    if len(shared) >= _NEARLY_ALL * len(seen):
        hidden = [p for p, pair in given.items() if pair is None]
        shared |= {p: (middle[p], ratio * half[p]) for p in hidden}
    return shared


def dummy(column: Column) -> bool:
    """Whether a column in [0, 1] has most of its values at an end, and others far from it.

    Like a dummy: its scale is the range. How rare the other value is, is found by the fit.
    """
    if column.found is None or (column.lower, column.upper) != (0.0, 1.0):
        return False
    return column.found.center in (0.0, 1.0) and column.found.scale >= _DUMMY


def used(column: Column) -> tuple[float, float] | None:
    """Centre and scale that a fit uses; None where nothing was found."""
    if column.found is None:
        return None
    if dummy(column):
        return 0.0, 1.0
    center, scale, _ = column.found
    width = column.upper - column.lower
    held = min(max(center, column.lower), column.upper)
    return held, min(max(_WIDENED * scale, _NARROWEST * width), width / 2)


def _remarks(unsure: Sequence[str]) -> tuple[str, ...]:
    if not unsure:
        return ()
    return (
        f"The scale of {', '.join(map(repr, unsure))} could not be found: the declared range is "
        "far wider than the values, or nearly all have one value. Coefficients may be far off: "
        "declare a narrower range, or center= and scale= from public knowledge.",
    )
