"""What a fit of a mixture is expected to find, from public facts alone."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from dpstats.estimators.central.mixtures.components import refuse_unseen
from dpstats.estimators.central.mixtures.steps import left_by_clip
from dpstats.estimators.guesses import enough
from dpstats.protocol import Plan
from dpstats.queries import ProjectedCells
from dpstats.queries.mixtures import CovarianceKind, MixtureMoments

__all__ = ["expect_mixture"]

_SMALL = 0.5  # wording: weight of the smallest component that is thought of, to the average
_OVERLAP = 2.0  # wording: ratio of variances where components overlap, to those where they do not
_SEEN = 10.0  # wording: ratio of a component to the noise of the cells that it covers
_SPAN = 2.5  # wording: standard deviations of a component that it covers
_PART = 0.4  # wording: ratio of its standard deviation to that of all rows
_COARSE = 0.3  # wording: error of a mean, in sds, from which the plan warns
_ASSUMED = (
    "Errors of means are in standard deviations of their component, and range from components that "
    "are alike and far apart to one of half the average weight that overlaps another.",
    "Rows follow a mixture of normal laws; a test of that comes with the fit.",
)


def expect_mixture(
    plan: Plan, shape: CovarianceKind, numbers: tuple[int, ...], cells: int, q: int
) -> Plan:
    """The plan with its expected errors, and with warnings where they are large.

    Raises
    ------
    OptionError
        If noise hides a component whatever the rows are.
    """
    k, names = max(numbers), plan.parameters
    d = (len(names) // k - 1) // 2
    query = MixtureMoments(np.zeros(k), np.tile(np.eye(d), (k, 1)), math.sqrt(d), shape)
    steps = [m.slot for m in plan.mechanisms if m.slot.startswith("step ")]
    # Noise of all steps together, if they were asked at one place.
    noise = 1 / math.sqrt(sum(plan.noise(query, slot).sd ** -2 for slot in steps))
    count = query.constant**2 if query.blocks else query.constant
    squared, linear = left_by_clip(d, query.radius)
    mean = linear * (math.sqrt(2.0) * query.constant if query.blocks else 1.0)
    second = squared if query.blocks else query.square_factor * math.sqrt(2.0)

    def errors(weight: float, factor: float) -> tuple[list[float], float]:
        rows = weight * plan.n
        sampling = np.array([weight * (1 - weight) / plan.n, 1 / rows, 1 / (2 * rows)])
        private = np.array(
            [noise / count / plan.n, noise / mean / rows, noise / (2 * second * rows)]
        )
        found = np.sqrt(factor * (sampling + private**2))
        return [found[0], *[found[1]] * d, *[found[2]] * d], private[1] ** 2 / (
            1 / rows + private[1] ** 2
        )

    low, share = errors(1 / k, 1.0)
    high, _ = errors(_SMALL / k, _OVERLAP)
    units = ["", *["sd"] * (2 * d)]
    plan = replace(
        plan,
        predicted_se=(math.nan,) * len(names),
        predicted_range=tuple((float(a), float(b)) for a, b in zip(low, high, strict=True)) * k,
        predicted_units=tuple(units) * k,
        privacy_share=float(share),
        assumptions=(*plan.assumptions, *_ASSUMED),
    )
    return _visible(plan, numbers, (cells, q), mean / noise, high[1])


def _visible(
    plan: Plan, numbers: tuple[int, ...], grid: tuple[int, int], unit: float, high: float
) -> Plan:
    """The plan with a warning where noise may hide a component; refused where it does.

    Parameters
    ----------
    numbers : tuple of int
        Numbers of components.
    grid : tuple of int
        Cells in each direction, and directions.
    unit : float
        What a standard deviation of a mean adds for each row, over the noise of the steps.
    high : float
        Error of a mean at the upper end, in standard deviations.
    """
    (cells, q), k, fewest = grid, max(numbers), min(numbers)
    # Of a component with that spread in each of q directions.
    covered = max((_PART * _SPAN * cells / 6.4) ** q, 1.0)
    edges = np.linspace(-1.0, 1.0, cells + 1)
    blur = plan.noise(ProjectedCells(np.eye(q), edges), "cells").sd
    hidden = _SEEN * blur * math.sqrt(covered) / (_SMALL * plan.n / k)
    coarse, rows = high / _COARSE, plan.n / fewest
    # A mean that moves by a standard deviation moves the share of two cells by that density.
    known = math.hypot(unit * rows, math.sqrt(1 / math.pi) * rows / blur)
    refuse_unseen(plan, fewest, (1 / known, "its mean"), (blur, cells**q), max(hidden, coarse))
    if max(hidden, coarse) <= 1:
        return plan
    what = "where components are" if hidden > coarse else "means to a third of a standard deviation"
    statement = (
        f"At n={plan.n:,} and epsilon={plan.privacy.epsilon:g} noise may hide {what}, if one of "
        f"{k} is half as heavy as the average. {enough(plan, max(hidden, coarse))}"
    )
    return replace(plan, warnings=(*plan.warnings, statement))
