"""Means of groups, and comparisons of two: Welch's test and a rank test, with the noise in them."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar

import numpy as np
from numpy.typing import NDArray

from dpstats.estimators.base import Request, need_delta
from dpstats.estimators.central.counted import CountingMethod, counted_plan
from dpstats.estimators.central.descriptive import passes
from dpstats.estimators.central.descriptive.quantile import OWN as DISTRIBUTIONS
from dpstats.estimators.central.descriptive.window import Window, mean_window, unseen
from dpstats.estimators.columns import checked_pair, factor_of
from dpstats.estimators.guesses import max_rows, round_up
from dpstats.estimators.sources import DONG, FICHTENBERGER, WELCH
from dpstats.privacy import Privacy
from dpstats.protocol import (
    DifferenceEstimate,
    Distribution,
    GroupMeansEstimate,
    Holder,
    Options,
    Plan,
)
from dpstats.queries import Axis, GroupSums, Query, ScoredColumn
from dpstats.theory import Assumption, Citation, Rate, Theory

if TYPE_CHECKING:
    from dpstats.design import Design

__all__ = ["GroupMeans", "RankTest", "WelchTest", "means_by_group"]

Array = NDArray[np.float64]

_FIRST, _SECOND, _SUMS = "distribution", "ranks", "sums"
_SHARE = 0.3  # budget: the distribution function, which says where to clip
_RANKS = (0.15, 0.25)  # budget: two passes over it where its ranks are the scores
_LEAST = 0.005  # numerical: least variance of a score
_LOST = 3.0  # wording: noise of a count to the rows of a group, below which the plan warns
_REACH = 4.0  # wording: half the width of a window that the plan presumes, in standard deviations

_OWN = Citation(
    "dpstats-groups",
    "The dpstats developers",
    "Sums of scores by group, in one question",
    2026,
    "dpstats",
    "proof in the docstring of GroupSums",
)


def _theory(estimand: str, *sources: Citation) -> Theory:
    return Theory(
        estimand=estimand,
        guarantee=(
            "(epsilon, delta)-DP for every data set: Gaussian noise on a root of summation applied "
            "to counts of values in cells, and on counts, sums and squares of scores by group "
            "(sensitivity 2)."
        ),
        assumptions=(
            Assumption("Rows are independent (of one unit they may be alike)"),
            Assumption("Tails are not much heavier than log-normal with a shape of 1"),
        ),
        upper=(
            Rate("statistical", "1/sqrt(n)", _OWN),
            Rate("privacy", "sqrt(log(1/delta))/(n eps)", _OWN, conjectured=True),
        ),
        lower=(),
        citations=(_OWN, DISTRIBUTIONS, FICHTENBERGER, *sources, DONG),
    )


class _ByGroup:
    """What methods share that ask for the distribution of a column, and then for sums by group."""

    options: ClassVar[Mapping[str, str]] = {"columns": "the column and its groups, in this order"}

    def _shares(self) -> tuple[float, ...]:
        """Parts of the budget for passes over the distribution function."""
        return (_SHARE,)

    def _asks(self) -> list[Request]:
        return [
            *(
                Request(slot, share, "distribution function of the column")
                for slot, share in zip((_FIRST, _SECOND), self._shares(), strict=False)
            ),
            Request(_SUMS, 1 - sum(self._shares()), "counts, sums and squares of scores by group"),
        ]

    def _asked(self, holder: Holder[Query], design: Design) -> Distribution:
        """The distribution function of the column, which is the first of the design."""
        place = np.zeros(1, dtype=np.int64)
        slots = [request.slot for request in self._asks()[:-1]]
        (found,) = passes.ask_distributions(holder, design, slots, place)
        return found

    def _means(
        self, holder: Holder[Query], design: Design, scored: ScoredColumn, window: Window
    ) -> GroupMeansEstimate:
        """Means of scores in all groups, in the units of the window."""
        columns = holder.plan.options["columns"]
        axis, levels = factor_of(design, columns, columns[1])
        return means_by_group(holder, design, scored, window, (axis, levels), _SUMS)

    def _sums_noise(self, plan: Plan) -> float:
        """Standard deviation of the noise in a sum of scores, in rows."""
        query = GroupSums(ScoredColumn.window(0, -1.0, 1.0), Axis.of_levels([1], 2))
        return plan.noise(query, _SUMS).sd

    def _warned(self, plan: Plan, groups: int) -> Plan:
        """The plan with a warning where groups of equal size would be hidden."""
        noise = math.sqrt(2) * self._sums_noise(plan)
        if plan.n / groups >= _LOST * noise:
            return plan
        enough = round_up(2 * _LOST * noise * groups)
        statement = (
            f"n={plan.n:,} is small for epsilon={plan.privacy.epsilon:g} and {groups} groups: "
            f"noise of {noise:.3g} rows hides groups of fewer than {_LOST * noise:.3g}. About "
            f"n={enough:,} rows, or fewer groups, suffice."
        )
        return replace(plan, warnings=(*plan.warnings, statement))

    def _errors(self, plan: Plan, design: Design, groups: int) -> tuple[float, float, str]:
        """Expected standard error of a group's mean, its share of noise, and its unit."""
        rows = plan.n / groups
        noise = (_REACH * self._sums_noise(plan) / rows) ** 2
        sampling = plan.max_rows / rows
        known = 0 not in design.unscaled
        scale = float(design.standardization.x_scale[0]) if known else 1.0
        unit = "" if known else f"sd({design.names[0]})"
        return scale * math.sqrt(noise + sampling), noise / (noise + sampling), unit


@dataclass(frozen=True)
class GroupMeans(_ByGroup, CountingMethod[GroupMeansEstimate]):
    """Mean of a column in each group: one distribution function, then sums by group.

    The window is that of the whole column (`window.mean_window`). Counts, sums and squares of all
    groups are one question, whose sensitivity is that of one sum. Groups of fewer rows than three
    standard deviations of the noise in their number are not identified. Intervals are Fieller's.

    Notes
    -----
    *Guarantee.* Gaussian noise on `ColumnPrefixes` and on `GroupSums` (sensitivity 2 per row),
    whose window depends on the data only through what was released before.
    """

    name: ClassVar[str] = "windows"
    model: ClassVar[str] = "group means"
    theory: ClassVar[Mapping[str, Theory]] = {
        "central": _theory("mean of each group, of values held to the declared range")
    }

    def _plan(self, design: Design, privacy: Privacy, n: int, options: Options) -> Plan:
        need_delta(self.name, privacy)
        plan = counted_plan(self, design, privacy, n, self._asks(), options)
        names = checked_pair(design, options["columns"])
        _, levels = factor_of(design, names, names[1])
        error, share, unit = self._errors(plan, design, len(levels))
        plan = replace(
            plan,
            parameters=levels,
            predicted_se=(error,) * len(levels),
            predicted_range=((error, error),) * len(levels),
            predicted_units=(unit,) * len(levels),
            privacy_share=share,
            assumptions=(*plan.assumptions, "For the prediction all groups are alike."),
        )
        return passes.warn_of_blur(self._warned(plan, len(levels)), [_FIRST], 1)

    def _fit(self, holder: Holder[Query], design: Design, plan: Plan) -> GroupMeansEstimate:
        """Ask for the distribution function, and for sums in the window that it says."""
        found = self._asked(holder, design)
        window = mean_window(found, self._sums_noise(plan))
        scored = ScoredColumn.window(0, window.lower, window.upper)
        made = self._means(holder, design, scored, window)
        remarks = unseen(design.names[0], found, window.lower, window.upper)
        return replace(made, remarks=(*made.remarks, *remarks))


class _TwoGroups(_ByGroup, CountingMethod[DifferenceEstimate]):
    """A comparison of two groups, made of the means of their scores."""

    model: ClassVar[str] = "ttest"
    theory: ClassVar[Mapping[str, Theory]]

    def _plan(self, design: Design, privacy: Privacy, n: int, options: Options) -> Plan:
        need_delta(self.name, privacy)
        names = checked_pair(design, options["columns"])
        _, levels = factor_of(design, names, names[1])
        plan = counted_plan(self, design, privacy, n, self._asks(), options)
        error, share, unit = self._errors(plan, design, 2)
        plan = replace(
            plan,
            parameters=self._names(levels),
            privacy_share=share,
            assumptions=(*plan.assumptions, "For the prediction both groups are alike."),
        )
        return self._warned(self._predicted(plan, error, unit), 2)

    @abstractmethod
    def _names(self, levels: tuple[str, ...]) -> tuple[str, ...]:
        """Of what is estimated."""

    @abstractmethod
    def _predicted(self, plan: Plan, error: float, unit: str) -> Plan:
        """The plan with expected errors; `error` and `unit` are those of the mean of a group."""


@dataclass(frozen=True)
class WelchTest(_TwoGroups):
    """Difference of the means of two groups, with Welch's standard error and the noise in it.

    Notes
    -----
    *Guarantee.* As `GroupMeans`: `ColumnPrefixes`, and `GroupSums` of sensitivity 2 per row.
    """

    name: ClassVar[str] = "welch"
    theory: ClassVar[Mapping[str, Theory]] = {
        "central": _theory("difference of the means of two groups", WELCH)
    }

    def _names(self, levels: tuple[str, ...]) -> tuple[str, ...]:
        return (f"{levels[1]} - {levels[0]}", *(f"mean of {level}" for level in levels))

    def _predicted(self, plan: Plan, error: float, unit: str) -> Plan:
        errors = (math.sqrt(2) * error, error, error)
        plan = replace(
            plan,
            predicted_se=errors,
            predicted_range=tuple((e, e) for e in errors),
            predicted_units=(unit,) * 3,
        )
        return passes.warn_of_blur(plan, [_FIRST], 1)

    def _fit(self, holder: Holder[Query], design: Design, plan: Plan) -> DifferenceEstimate:
        """As for means of groups; the difference is of the second level less the first."""
        found = self._asked(holder, design)
        window = mean_window(found, self._sums_noise(plan))
        scored = ScoredColumn.window(0, window.lower, window.upper)
        made = self._means(holder, design, scored, window)
        sampling, noise = (made.half**2 * part for part in made.variances)
        means = made.centre + made.half * made.means
        allowed = made.allowance**2
        lost = np.isin([0, 1], made.hidden) * made.half**2
        remarks = unseen(design.names[0], found, window.lower, window.upper)
        return DifferenceEstimate(
            names=plan.parameters,
            values=np.array([means[1] - means[0], *means]),
            sampling=np.array([sampling.sum(), *sampling]),
            noise=np.array([noise.sum(), *noise]),
            allowed=np.array([2 * allowed + lost.sum(), *(allowed + lost)]),
            null=0.0,
            nobs=made.nobs,
            released=made.released,
            remarks=(*made.remarks, *remarks),
            hidden=(0, *(1 + g for g in made.hidden)) if made.hidden else (),
        )


@dataclass(frozen=True)
class RankTest(_TwoGroups):
    """Probability that a value of the second group exceeds one of the first; 1/2 if they are alike.

    The score of a value is its released rank, u = F(y) + F(y-) - 1, of its cell: half of those who
    share it count as below. Of F, the distribution function of
    both groups together, the mean over the second less that over the first is P(y_2 > y_1) - 1/2,
    ties counting half, whatever the sizes of the groups: the statistic of Wilcoxon, Mann and
    Whitney. Far values weigh no more than others, and no window is needed.

    Notes
    -----
    *Guarantee.* `ColumnPrefixes`, and `GroupSums` of sensitivity 2 per row, whose scores depend on
    the data only through what was released before.
    """

    name: ClassVar[str] = "rank"
    theory: ClassVar[Mapping[str, Theory]] = {
        "central": _theory("probability that a value of the second group is the larger one")
    }

    def _shares(self) -> tuple[float, ...]:
        return _RANKS

    def _names(self, levels: tuple[str, ...]) -> tuple[str, ...]:
        return (f"P({levels[1]} > {levels[0]})",)

    def _predicted(self, plan: Plan, error: float, unit: str) -> Plan:
        rows = plan.n / 2
        variance = 2 * (plan.max_rows / 3 + self._sums_noise(plan) ** 2 / rows) / rows
        return replace(plan, predicted_se=(math.sqrt(variance) / 2,))

    def _fit(self, holder: Holder[Query], design: Design, plan: Plan) -> DifferenceEstimate:
        """Ask for the distribution function, and for sums of the ranks that it gives."""
        found = self._asked(holder, design)
        scored = ScoredColumn(0, found.edges, np.clip(found.ranks(), -1.0, 1.0))
        made = self._means(holder, design, scored, Window(-1.0, 1.0))
        sampling, noise = made.variances
        lost = 1.0 if made.hidden else 0.0
        return DifferenceEstimate(
            names=plan.parameters,
            values=np.array([np.clip(0.5 + (made.means[1] - made.means[0]) / 2, 0.0, 1.0)]),
            sampling=np.array([sampling.sum() / 4]),
            noise=np.array([noise.sum() / 4]),
            allowed=np.array([lost]),
            null=0.5,
            nobs=made.nobs,
            remarks=made.remarks,
            hidden=(0,) if made.hidden else (),
        )


def means_by_group(
    holder: Holder[Query],
    design: Design,
    scored: ScoredColumn,
    window: Window,
    groups: tuple[Axis, tuple[str, ...]],
    slot: str,
) -> GroupMeansEstimate:
    """Means of scores in groups of an axis, which have names, in the units of the window."""
    axis, levels = groups
    answer = holder.ask(GroupSums(scored, axis), slot)
    counts, sums, squares = answer.value
    count_sd, sum_sd = answer.noise.sd * math.sqrt(2), answer.noise.sd
    rows = np.maximum(counts, max(count_sd, 1.0))
    means = np.clip(sums / rows, -1.0, 1.0)
    spread = np.clip(squares / rows - means**2, _LEAST, 1.0)
    total = max(float(counts.sum()), count_sd)
    pooled = float(np.clip((squares.sum() - (means**2 * rows).sum()) / total, _LEAST, 1.0))
    noise = count_sd / rows  # of a square, beside the pooled one
    trusted = pooled**2 / (pooled**2 + noise**2)
    found = GroupMeansEstimate(
        groups=levels,
        counts=counts,
        sums=sums,
        spreads=trusted * spread + (1 - trusted) * np.maximum(pooled, spread),
        count_sd=count_sd,
        sum_sd=sum_sd,
        centre=(window.lower + window.upper) / 2,
        half=(window.upper - window.lower) / 2,
        allowance=window.mean,
        effect=float(max_rows(design)),
        nobs=total,
        released={"window lower": window.lower, "window upper": window.upper},
    )
    if not found.hidden:
        return found
    names = ", ".join(repr(levels[g]) for g in found.hidden)
    remark = f"Noise hides the groups {names}: they have too few rows."
    return replace(found, remarks=(remark,))
