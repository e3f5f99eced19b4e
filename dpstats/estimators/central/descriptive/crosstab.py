"""Two crossed columns: counts of all pairs of levels, with consistent margins."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, ClassVar

from dpstats.estimators.base import Request, need_delta
from dpstats.estimators.central.counted import CountingMethod, counted_plan
from dpstats.estimators.central.descriptive.counts import (
    COUNTS,
    OWN,
    THEORY,
    ask_table,
    count_noise,
    expected_shares,
)
from dpstats.estimators.columns import checked_pair, factor_of
from dpstats.estimators.sources import DONG, KIFER_ROGERS, WILSON
from dpstats.privacy import Privacy
from dpstats.protocol import CrosstabEstimate, GroupSharesEstimate, Holder, Options, Plan
from dpstats.protocol.cell_shares import group_share_names
from dpstats.queries import Axis, Query
from dpstats.theory import Theory

if TYPE_CHECKING:
    from dpstats.design import Design

__all__ = ["GroupShares", "PairShares"]


@dataclass(frozen=True)
class PairShares(CountingMethod[CrosstabEstimate]):
    """A contingency table: one noisy count of each pair of levels, and of rows that miss one.

    Counts are conditioned on the public number of rows, and made consistent: not negative, and
    adding up, so that margins are sums of what is shown. Independence is tested by the least
    chi-squared distance, with noise in the covariance (`results.independence`).

    Notes
    -----
    *Guarantee.* Gaussian noise on `TableCounts`, of sensitivity sqrt(2) per row.
    """

    name: ClassVar[str] = "counts"
    model: ClassVar[str] = "crosstab"
    theory: ClassVar[Mapping[str, Theory]] = {
        "central": replace(THEORY, citations=(OWN, KIFER_ROGERS, WILSON, DONG))
    }
    options: ClassVar[Mapping[str, str]] = {"columns": "the two columns, as dp.crosstab names them"}

    def _plan(self, design: Design, privacy: Privacy, n: int, options: Options) -> Plan:
        need_delta(self.name, privacy)
        asks = [Request(COUNTS, 1.0, "rows of each pair of levels")]
        plan = counted_plan(self, design, privacy, n, asks, options)
        (_, rows), (_, columns) = _factors(design, checked_pair(design, options["columns"]))
        plan = replace(plan, parameters=tuple(f"{a}, {b}" for a in rows for b in columns))
        return expected_shares(plan, len(plan.parameters))

    def _fit(self, holder: Holder[Query], design: Design, plan: Plan) -> CrosstabEstimate:
        """Ask for the counts."""
        (first, rows), (second, columns) = _factors(design, plan.options["columns"])
        kind = partial(CrosstabEstimate, rows_of=rows, columns_of=columns)
        return ask_table(holder, design, (first, second), kind, plan.parameters)


@dataclass(frozen=True)
class GroupShares(CountingMethod[GroupSharesEstimate]):
    """Shares of the levels of a column within the groups of another, of one table of both.

    The counts are those of `PairShares`. An interval of a share holds all p that a test of the
    noisy count against p times the noisy count of its group does not refuse: Wilson's, if there is
    no noise. A group of fewer rows than three standard deviations of the noise in their number is
    not identified.

    Notes
    -----
    *Guarantee.* Gaussian noise on `TableCounts`, of sensitivity sqrt(2) per row; groups cost
    nothing more.
    """

    name: ClassVar[str] = "counts"
    model: ClassVar[str] = "group proportions"
    theory: ClassVar[Mapping[str, Theory]] = {
        "central": replace(
            THEORY, estimand="share of each level among the rows of a group that miss nothing"
        )
    }
    options: ClassVar[Mapping[str, str]] = {"columns": "the groups, and the column of levels"}

    def _plan(self, design: Design, privacy: Privacy, n: int, options: Options) -> Plan:
        need_delta(self.name, privacy)
        asks = [Request(COUNTS, 1.0, "rows of each level in each group")]
        plan = counted_plan(self, design, privacy, n, asks, options)
        (_, groups), (_, levels) = _factors(design, checked_pair(design, options["columns"]))
        plan = replace(plan, parameters=group_share_names(groups, levels))
        plan = expected_shares(plan, len(plan.parameters))
        return _within_groups(plan, len(groups), len(levels))

    def _fit(self, holder: Holder[Query], design: Design, plan: Plan) -> GroupSharesEstimate:
        """Ask for the counts."""
        (first, groups), (second, levels) = _factors(design, plan.options["columns"])
        kind = partial(GroupSharesEstimate, rows_of=groups, columns_of=levels)
        return ask_table(holder, design, (first, second), kind, plan.parameters)


def _within_groups(plan: Plan, groups: int, levels: int) -> Plan:
    """The plan with errors of shares that are all alike, in groups that are."""
    noise, rows, p = count_noise(plan), plan.n / groups, 1 / levels
    sampling = plan.max_rows * p * (1 - p) / rows
    privacy = (noise / rows) ** 2 * ((1 - p) ** 2 + (levels - 1) * p**2)
    return replace(
        plan,
        predicted_se=(math.sqrt(sampling + privacy),) * len(plan.parameters),
        privacy_share=privacy / (sampling + privacy),
        assumptions=tuple(a.replace("cells", "groups and levels") for a in plan.assumptions),
    )


def _factors(
    design: Design, columns: Sequence[str]
) -> tuple[tuple[Axis, tuple[str, ...]], tuple[Axis, tuple[str, ...]]]:
    first, second = columns
    return factor_of(design, columns, first), factor_of(design, columns, second)
