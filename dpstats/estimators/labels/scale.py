"""The scale of private responses that nobody declared, found by the curator who holds them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from dpstats.accounting import gdp_mu
from dpstats.estimators.counters import ASTRAY, CHANCE, MANY, TO_THE_MIDDLE, shares_astray
from dpstats.estimators.labels.base import covariates_of
from dpstats.estimators.labels.sums import deviation, label_norm
from dpstats.estimators.numerics.cells import Column
from dpstats.privacy import LabelOnly
from dpstats.protocol import LabelHolder, NoiseLaw
from dpstats.queries.label_cells import LabelAstray, LabelCells
from dpstats.queries.labels import Interval, SquaredResiduals
from dpstats.tall import constant

if TYPE_CHECKING:
    from dpstats.design import Design

Array = NDArray[np.float64]

__all__ = [
    "ASTRAY",
    "PURPOSES",
    "TAILS",
    "beyond",
    "counted",
    "counting",
    "found_scale",
    "with_scale",
]

_STAGES = (0.375, 0.375, 0.25)  # share: of what is spent on the scale, for each stage
_NOISE = 0.03  # ratio: noise of a cell to the rows, in the first stage
_LEAST, _MOST = 0.015, 0.12  # budget: the least and the most that is spent on the scale
_HOPELESS = 0.05  # ratio: noise of a cell to the rows, from which nothing would be found
_SPREAD = 0.02  # budget: the second moment, which has the tails that cells leave out
_CLIP = 8.0  # sds: clip of the second moment, in scales of the cells
# budget: counting responses that are outside of what is declared, at least and at most
_COUNTS, _MOST_COUNTS = 0.004, 0.03
# budget: the same where noise is Laplace noise
_PURE_COUNTS, _MOST_PURE_COUNTS = 0.01, 0.03
_TAILS = 0.04  # budget: counting responses beyond the clip, and beyond wider ones
_WIDER, _RUNGS = 2.0, 6  # ratio: of each clip that is tried to the one before; their number
_LAPLACE = 2.0  # ratio: of the quantile of Laplace noise to the normal one, at one in a million
_SLOTS = tuple(f"place {k + 1}" for k in range(len(_STAGES)))
PURPOSES = dict.fromkeys(_SLOTS, "centre and scale of the response, which nobody declared")
TAILS = "tails"
PURPOSES |= {
    "spread": "second moment of the response around its centre",
    ASTRAY: "responses that are outside of what is declared, or missing",
}


def _share(design: Design, privacy: LabelOnly, n: int) -> float:
    """Share of the budget that finding the scale is worth; 0 where noise would hide it."""
    if design.endog is None or not design.endog.unscaled or _of_levels(design):
        return 0.0
    pure = privacy.delta == 0
    query = LabelCells(Interval(-1.0, 1.0), np.array([-1.0, 1.0]), label_norm(pure))
    rows = n * (privacy.epsilon if pure else gdp_mu(privacy.epsilon, privacy.delta))
    whole = query.sensitivity() * deviation(pure) / rows  # noise at the whole budget
    power = 1 if pure else 2  # of noise in the budget
    share = float(np.clip((whole / _NOISE) ** power / _STAGES[0], _LEAST, _MOST))
    noise = whole / (_STAGES[0] * share) ** (1 / power)
    return share if noise <= _HOPELESS else 0.0


def _of_levels(design: Design) -> bool:
    """Whether the response has declared levels, or is a yes or no."""
    assert design.endog is not None
    declaration = None if design.schema is None else design.schema.get(design.endog.name)
    return hasattr(declaration, "levels") or design.family.name == "binomial"


def with_scale(
    shares: Mapping[str, float],
    design: Design,
    privacy: LabelOnly,
    find: bool,
    tails: bool = True,
) -> dict[str, float]:
    """Shares of a fit's questions after counts, and the scale where none is declared.

    With `tails` responses beyond a clip are counted where one is chosen.
    """
    n = len(covariates_of(design))
    share = _share(design, privacy, n) if find else 0.0
    first = {ASTRAY: counting(privacy, n)}
    if share:
        first |= {slot: share * part for slot, part in zip(_SLOTS, _STAGES, strict=True)}
        first["spread"] = _SPREAD
    if find and tails:
        first[TAILS] = _TAILS
    left = 1 - sum(first.values())
    return first | {slot: left * part for slot, part in shares.items()}


def counting(privacy: LabelOnly, n: int) -> float:
    """Share of the budget at which noise hides no share of responses astray that is to be said."""
    pure = privacy.delta == 0
    query = LabelAstray(Interval(-1.0, 1.0), label_norm(pure))
    law = NoiseLaw("laplace" if pure else "gaussian", query.sensitivity())
    hidden = law.upper(CHANCE / 2) / (MANY * max(n, 1))  # at a unit of noise
    if pure:
        return float(np.clip(hidden / privacy.epsilon, _PURE_COUNTS, _MOST_PURE_COUNTS))
    mu = gdp_mu(privacy.epsilon, privacy.delta)
    return float(np.clip((hidden / mu) ** 2, _COUNTS, _MOST_COUNTS))


def found_scale(
    holder: LabelHolder, design: Design
) -> tuple[Design, dict[str, dict[str, dict[str, float]]], tuple[str, ...]]:
    """The design with the centre and scale that were found; what to release, and to remark.

    Three stages of histograms of the response: cells outward from public anchors by powers of 4,
    even ones where most rows are, then nearer (`Column`).
    """
    endog, slots = design.endog, {m.slot for m in holder.plan.mechanisms}
    assert endog is not None
    if not slots >= {*_SLOTS}:
        return design, {}, ()
    column = _column(holder, design)
    remarks = () if column.sure else (_UNSURE.format(endog.name),)
    center, scale, _ = column.found or (endog.center, endog.scale, False)
    center = min(max(center, endog.lower), endog.upper)
    scale = min(_spread(holder, design, center, scale), (endog.upper - endog.lower) / 2)
    known = replace(endog, center=center, scale=scale)
    released = {"scales": {endog.name: {"center": center, "scale": scale}}}
    return replace(design, endog=known), released, remarks


def counted(
    holder: LabelHolder, design: Design
) -> tuple[dict[str, dict[str, float]], tuple[str, ...]]:
    """Noisy shares of responses outside of what is declared, and missing; and remarks."""
    assert design.endog is not None
    name, n = design.endog.name, holder.plan.n
    norm = label_norm(holder.plan.privacy.delta == 0)
    value, noise = holder.ask(LabelAstray(Interval(*design.internal_endog_bounds), norm), ASTRAY)
    law = NoiseLaw(noise.shape, noise.scale / n)
    return shares_astray((name,), value[:, None] / n, law, TO_THE_MIDDLE)


def beyond(holder: LabelHolder, whole: Interval, center: float, half: float) -> tuple[Array, Array]:
    """How much of the responses clips around a centre cut off: one histogram of the distance.

    Noise alone rarely makes a count that is not taken for 0: its threshold is that of the largest
    of as many normal errors.

    Parameters
    ----------
    whole : Interval
        The declared range, in internal units.
    center, half : float
        Centre and half-width of the narrowest clip.

    Returns
    -------
    halves : ndarray of shape (k,)
        Half-widths of clips, each twice the one before.
    excess : ndarray of shape (k,)
        Estimated sums of what is beyond them; where any is seen, with what noise may hide of it.
    """
    halves: Array = half * _WIDER ** np.arange(_RUNGS, dtype=np.float64)
    halves = halves[halves < max(whole.high - center, center - whole.low)]
    inner = center + np.concatenate([-halves[::-1], halves])
    inside = inner[(inner > whole.low) & (inner < whole.high)]
    norm = label_norm(holder.plan.privacy.delta == 0)
    edges = np.concatenate([[whole.low], inside, [whole.high]])
    counts, noise = holder.ask(LabelCells(whole, edges, norm), TAILS)
    distances = np.abs((edges[1:] + edges[:-1]) / 2 - center)
    clear = counts > noise.sd * math.sqrt(2 * math.log(counts.size))
    seen = np.where(clear | np.append(clear[1:], False) | np.append(False, clear[:-1]), counts, 0.0)
    seen = np.maximum(seen, 0.0)
    distances = np.minimum(distances, (1 + _WIDER) / 2 * halves[-1])
    excess = np.maximum(distances - halves[:, None], 0.0) @ seen
    hidden = noise.sd * (_WIDER - 1) / 2 * halves if clear[distances > half].any() else 0.0
    return halves, excess + hidden


def _column(holder: LabelHolder, design: Design) -> Column:
    """What three stages of histograms tell of the response, in the user's units."""
    endog, plan, units = design.endog, holder.plan, design.standardization
    assert endog is not None
    low, high = design.internal_endog_bounds
    pure, n = plan.privacy.delta == 0, float(plan.n)

    def query(edges: Array) -> LabelCells:
        inner = np.clip((edges - units.y_center) / units.y_scale, low, high)
        return LabelCells(Interval(low, high), inner, label_norm(pure))

    some = query(np.array([endog.lower, endog.upper]))
    sds = [plan.noise(some, slot).sd * (_LAPLACE if pure else 1.0) for slot in _SLOTS]
    column = Column(endog.lower, endog.upper, n, sds[0] / n, 1)
    for slot, sd in zip(_SLOTS, sds, strict=True):
        if slot != _SLOTS[0]:
            column.focus(sd / n)
        counts, _ = holder.ask(query(column.edges), slot)
        column.look(counts, sd)
    return column


def _spread(holder: LabelHolder, design: Design, center: float, scale: float) -> float:
    """Root mean square around the centre, no less than what noise leaves open."""
    units, n = design.standardization, holder.plan.n
    middle = constant(n, (center - units.y_center) / units.y_scale)
    interval = Interval(*design.internal_endog_bounds)
    query = SquaredResiduals(interval, middle, _CLIP * scale / units.y_scale)
    (squares,), noise = holder.ask(query, "spread")
    return float(units.y_scale) * math.sqrt(max(float(squares) + noise.sd, noise.sd) / n)


_UNSURE = (
    "The scale of {!r} could not be found: the declared range is far wider than the values, or "
    "nearly all have one value. Coefficients may be far off: declare a narrower range, or center= "
    "and scale= from public knowledge."
)
