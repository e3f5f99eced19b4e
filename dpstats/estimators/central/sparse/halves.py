"""Sample splitting: one half of the rows selects columns, the other estimates on them alone.

A row is in one half, so both may spend the whole budget (parallel composition, under replace-one
neighbours with one row per unit). Given the selection, the second half is a fresh sample of the
population: its standard errors hold for the coefficients of the selected model, whatever was
selected and why.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from dpstats.errors import OptionError
from dpstats.estimators.guesses import max_rows
from dpstats.estimators.selection import CONDITIONAL, half_of, restricted
from dpstats.privacy import Neighbors, Privacy
from dpstats.protocol import Answer, CoefficientEstimate, Estimator, Holder, Mechanism, Plan
from dpstats.queries import Query, Selected

if TYPE_CHECKING:
    from dpstats.design import Design

__all__ = ["CONDITIONAL", "half_of", "need_halves", "on_second_half", "restricted", "second_half"]

Array = NDArray[np.float64]

_SLOT = "half 2: {}"


def need_halves(privacy: Privacy, design: Design) -> None:
    """Refuse to split where neighbours or units would straddle the halves.

    Raises
    ------
    OptionError
        Unless neighbours are replace-one and a unit is one row.
    """
    if privacy.neighbors is not Neighbors.REPLACE_ONE or max_rows(design) > 1:
        raise OptionError(
            "inference='split' gives each half of the rows the whole budget, which needs "
            "replace-one neighbours and one row per unit; use inference='none'."
        )


def second_half(
    estimator: Estimator, design: Design, size: int, privacy: Privacy, n: int
) -> tuple[Mechanism, ...]:
    """What the second half will be asked: a fit of the intercept and `size` other columns."""
    part = _first_columns(design, size)
    plan = estimator.plan(restricted(design, part), privacy, n)
    return tuple(replace(m, slot=_SLOT.format(m.slot), branch=2) for m in plan.mechanisms)


def on_second_half(
    estimator: Estimator, holder: Holder[Query], design: Design, plan: Plan, columns: Sequence[int]
) -> CoefficientEstimate:
    """The fit of the selected columns on the second half; its arrays are those of the columns."""
    part = restricted(design, columns)
    half = estimator.plan(part, plan.privacy, half_of(plan.n))
    estimate = estimator.fit(_SecondHalf(holder, tuple(columns), half), part, half)
    assert isinstance(estimate, CoefficientEstimate)
    return estimate


def _first_columns(design: Design, size: int) -> list[int]:
    intercept = design.standardization.intercept
    always = [] if intercept is None else [int(intercept)]
    free = [j for j in range(len(design.names)) if j != intercept]
    return sorted(always + free[:size])


@dataclass(frozen=True)
class _SecondHalf:
    """The holder, asked about the selected columns in the slots of the second half."""

    holder: Holder[Query]
    columns: tuple[int, ...]
    plan: Plan

    def ask(self, query: Query, slot: str, part: int = 0) -> Answer:
        """The noisy answer and its law."""
        return self.holder.ask(Selected(query, self.columns), _SLOT.format(slot), part)
