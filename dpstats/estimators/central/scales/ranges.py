"""Centres and scales of columns that are bought once, for all fits that come later."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from dpstats.estimators.base import need_delta
from dpstats.estimators.central.counted import CountingMethod, counted_plan
from dpstats.estimators.central.scales import search
from dpstats.estimators.sources import DONG
from dpstats.privacy import Privacy
from dpstats.protocol import Holder, Options, Plan, ScalesEstimate
from dpstats.protocol.estimate import scale_names
from dpstats.queries import Query
from dpstats.theory import Assumption, Citation, Rate, Theory

if TYPE_CHECKING:
    from dpstats.design import Design

__all__ = ["ColumnScales"]

_OWN = Citation(
    "dpstats-scales",
    "The dpstats developers",
    "Centres and scales of columns from three stages of histograms",
    2026,
    "dpstats",
    "proof in the docstring of ColumnCells",
)

_THEORY = Theory(
    estimand=(
        "median of each column and root mean square around it, of values held to the declared "
        "range; of a column that mostly has one value, that value and the spread of the others"
    ),
    guarantee=(
        "(epsilon, delta)-DP for every data set: counts of values in public cells, which a row "
        "moves by a vector of one 1 for each column, and in cells that follow from earlier counts."
    ),
    assumptions=(
        Assumption("Rows (units) are independent"),
        Assumption("A column is wider than the finest cells, and has many values"),
    ),
    upper=(
        Rate("statistical", "1/sqrt(n)", _OWN),
        Rate("privacy", "sqrt(d log(1/delta))/(n eps)", _OWN, conjectured=True),
    ),
    lower=(),
    citations=(_OWN, DONG),
)


@dataclass(frozen=True)
class ColumnScales(CountingMethod[ScalesEstimate]):
    """Centres and scales of all columns that have none, from three stages of histograms.

    What a fit that looks for scales asks first (`dpstats.estimators.central.scales.search`), with
    the whole budget.

    Notes
    -----
    *Guarantee.* Gaussian noise on `ColumnCells`, three times, of sensitivity sqrt(2 k) for k
    columns (sqrt(k) under add-remove), times the rows of a unit.
    """

    name: ClassVar[str] = "cells"
    model: ClassVar[str] = "scales"
    theory: ClassVar[Mapping[str, Theory]] = {"central": _THEORY}
    options: ClassVar[Mapping[str, str]] = {}

    def _plan(self, design: Design, privacy: Privacy, n: int, options: Options) -> Plan:
        need_delta(self.name, privacy)
        plan = counted_plan(self, design, privacy, n, search.histograms(), options)
        plan = replace(plan, parameters=scale_names(design.inputs))
        rows = search.enough_for_scales(plan, design, 1.0)
        if n >= rows:
            return plan
        statement = (
            f"At n={n:,} and epsilon={privacy.epsilon:g} noise may hide where the values of a "
            f"column are. About n={rows:,} rows suffice, or fewer columns at a time."
        )
        return replace(plan, warnings=(statement,))

    def _fit(self, holder: Holder[Query], design: Design, plan: Plan) -> ScalesEstimate:
        """Ask for the histograms, each of which says where the next one looks."""
        columns = search.columns_found(holder, design, float(plan.n)).values()
        found = [search.used(column) if column.sure else None for column in columns]
        unsure = [name for name, pair in zip(design.inputs, found, strict=True) if pair is None]
        remark = (
            f"The scale of {', '.join(map(repr, unsure))} could not be found, and is not declared "
            "in the schema: the declared range is far wider than the values, or nearly all have "
            "one value. Declare a narrower range, or center= and scale= from public knowledge.",
        )
        return ScalesEstimate(
            columns=design.inputs,
            pairs=np.array([(math.nan, math.nan) if pair is None else pair for pair in found]),
            nobs=float(plan.n),
            remarks=remark if unsure else (),
        )
