"""Two crossed columns: counts of all pairs of levels, with consistent margins."""

from __future__ import annotations

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
    expected_shares,
)
from dpstats.estimators.columns import checked_pair, factor_of
from dpstats.estimators.sources import DONG, KIFER_ROGERS, WILSON
from dpstats.privacy import Privacy
from dpstats.protocol import CrosstabEstimate, Holder, Options, Plan
from dpstats.queries import Axis, Query
from dpstats.theory import Theory

if TYPE_CHECKING:
    from dpstats.design import Design

__all__ = ["PairShares"]


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


def _factors(
    design: Design, columns: Sequence[str]
) -> tuple[tuple[Axis, tuple[str, ...]], tuple[Axis, tuple[str, ...]]]:
    first, second = columns
    return factor_of(design, columns, first), factor_of(design, columns, second)
