"""Shares of the levels of a column, and of the bins of a histogram, with Wilson's intervals."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, ClassVar, TypeVar

import numpy as np
from numpy.typing import NDArray

from dpstats.errors import OptionError
from dpstats.estimators import columns
from dpstats.estimators.base import Request
from dpstats.estimators.bounds import rates
from dpstats.estimators.central.counted import CountingMethod, counted_plan
from dpstats.estimators.central.descriptive import passes
from dpstats.estimators.central.descriptive.quantile import OWN as DISTRIBUTIONS
from dpstats.estimators.guesses import max_rows, rows_known
from dpstats.estimators.sources import DONG, WILSON
from dpstats.privacy import Privacy
from dpstats.protocol import (
    CountsEstimate,
    HistogramEstimate,
    Holder,
    Options,
    Plan,
    ProportionEstimate,
)
from dpstats.protocol.descriptive import bin_names
from dpstats.queries import Axis, Query, TableCounts
from dpstats.theory import Assumption, Citation, Theory

if TYPE_CHECKING:
    from dpstats.design import Design

__all__ = [
    "COUNTS",
    "OWN",
    "THEORY",
    "BinShares",
    "LevelShares",
    "ask_table",
    "expected_shares",
]

Array = NDArray[np.float64]
AnyCounts = TypeVar("AnyCounts", bound=CountsEstimate)

COUNTS = "counts"
_FIRST = "distribution"
_WINDOW = 0.3  # budget: of a histogram with bins="auto", where its values are
_MOST_CELLS = 2**12  # numerical: of a table, whose shares have a covariance of each pair
_CLEAR = 5.0  # ratio: rows of an average bin to the noise in it, at least, of automatic bins

OWN = Citation(
    "dpstats-table",
    "The dpstats developers",
    "Shares of a table's cells, with Wilson's intervals for noisy counts",
    2026,
    "dpstats",
    "proofs in the docstrings of TableCounts and CountsEstimate",
)

THEORY = Theory(
    estimand="share of each cell among the rows that miss nothing",
    guarantee=(
        "(epsilon, delta)-DP for every data set: Gaussian noise on counts of the cells of a table; "
        "a row is in one cell (sensitivity sqrt(2), 1 under add-remove)."
    ),
    assumptions=(Assumption("Rows are independent (of one unit they may be alike)"),),
    upper=rates("1/sqrt(n)", "sqrt(log(1/delta))/(n eps)", OWN),
    lower=(),
    citations=(OWN, WILSON, DONG),
)
_LAPLACE = replace(
    THEORY,
    guarantee=(
        "epsilon-DP for every data set: Laplace noise on counts of the cells of a table; a row is "
        "in one cell (L1 sensitivity 2, 1 under add-remove). Delta is not needed."
    ),
    upper=rates("1/sqrt(n)", "1/(n eps)", OWN),
    citations=(OWN, WILSON),
)
_VARIANTS: Mapping[tuple[str, ...], Theory] = {("mechanism=laplace",): _LAPLACE}


@dataclass(frozen=True)
class LevelShares(CountingMethod[ProportionEstimate]):
    """Share of each level of a categorical column: one noisy count of each, and of missing values.

    All counts add up to the number of rows; where that is public, they are conditioned on it. Of a
    column of two levels a share then has noise of 1/mu rows (mu of Gaussian differential privacy),
    and an interval holds all p with (c - p N)^2 <= z^2 (N p (1 - p) + v(p)), where v(p) is the
    variance of the noise in c - p N: Wilson's, if there is no noise.

    Notes
    -----
    *Guarantee.* Gaussian noise on `TableCounts`; Laplace noise where it is asked for.
    """

    name: ClassVar[str] = "counts"
    model: ClassVar[str] = "proportion"
    theory: ClassVar[Mapping[str, Theory]] = {"central": replace(THEORY, variants=_VARIANTS)}
    options: ClassVar[Mapping[str, str]] = {"mechanism": passes.MECHANISM}

    def _plan(self, design: Design, privacy: Privacy, n: int, options: Options) -> Plan:
        kind = passes.mechanism_of(self.name, options, privacy)
        asks = [Request(COUNTS, 1.0, "rows of each level", kind)]
        plan = counted_plan(self, design, privacy, n, asks, {"mechanism": kind})
        _, levels = columns.factor_of(design, design.inputs, design.inputs[0])
        plan = replace(plan, parameters=levels)
        return expected_shares(plan, len(plan.parameters))

    def _fit(self, holder: Holder[Query], design: Design, plan: Plan) -> ProportionEstimate:
        """Ask for the counts."""
        axis, _ = columns.factor_of(design, design.inputs, design.inputs[0])
        return ask_table(holder, design, (axis,), ProportionEstimate, plan.parameters)


@dataclass(frozen=True)
class BinShares(CountingMethod[HistogramEstimate]):
    """A histogram: one noisy count of each bin, and of missing values.

    With ``bins="auto"`` three tenths of the budget find the window of all but a hundredth of the
    values first; bins of equal, round width cover it, as many as Sturges' rule says, and no more
    than noise leaves clear on average. Values outside are in two more bins.

    Notes
    -----
    *Guarantee.* Gaussian noise on `TableCounts`, before that on `ColumnPrefixes`. Where Laplace
    noise is asked for, on `TableCounts`, twice.
    """

    name: ClassVar[str] = "counts"
    model: ClassVar[str] = "histogram"
    theory: ClassVar[Mapping[str, Theory]] = {
        "central": replace(THEORY, citations=(OWN, DISTRIBUTIONS, WILSON, DONG), variants=_VARIANTS)
    }
    options: ClassVar[Mapping[str, str]] = {
        "bins": "number of bins over the declared range, their edges, 'whole', or 'auto' (default)",
        "mechanism": passes.MECHANISM,
    }

    def _plan(self, design: Design, privacy: Privacy, n: int, options: Options) -> Plan:
        low, high = map(float, design.bounds[0])
        bins = columns.checked_bins(options.get("bins", "auto"), low, high)
        kind = passes.mechanism_of(self.name, options, privacy)
        asks = [Request(COUNTS, 1.0, "rows of each bin", kind)]
        if bins is None:
            first = Request(_FIRST, _WINDOW, "distribution function of the column", kind)
            asks = [first, replace(asks[0], weight=1 - _WINDOW)]
        plan = counted_plan(self, design, privacy, n, asks, {"mechanism": kind})
        if bins is None:
            count = _automatic(plan)
            plan = replace(plan, options={**plan.options, "bins": "auto", "count": count})
            return expected_shares(replace(plan, parameters=columns.bin_numbers(count + 2)), count)
        names = bin_names(bins)
        plan = replace(plan, options={**plan.options, "bins": bins.tolist()}, parameters=names)
        return expected_shares(plan, len(names))

    def _fit(self, holder: Holder[Query], design: Design, plan: Plan) -> HistogramEstimate:
        """Ask where the values are, if nobody said, and how many are in each bin."""
        if plan.options["bins"] == "auto":
            found = passes.ask_distribution(holder, design, [_FIRST])
            edges = columns.window(found, int(plan.options["count"]))
        else:
            edges = np.array(plan.options["bins"], dtype=np.float64)
        axis = Axis(np.zeros(1, dtype=np.int64), np.ones(1), edges)
        kind = partial(HistogramEstimate, edges=edges)
        return ask_table(holder, design, (axis,), kind, plan.parameters[: edges.size - 1])


def _automatic(plan: Plan) -> int:
    """Number of bins: Sturges' rule, or as few as the noise of a count asks for."""
    unit = count_noise(plan)
    clear = plan.n / (_CLEAR * unit)
    return max(2, min(math.ceil(math.log2(plan.n)) + 1, int(clear)))


def ask_table(
    holder: Holder[Query],
    design: Design,
    axes: tuple[Axis, ...],
    kind: Callable[..., AnyCounts],
    cells: tuple[str, ...],
    slot: str = COUNTS,
) -> AnyCounts:
    """Noisy counts of a table, conditioned on the number of rows where that is public."""
    plan, whole = holder.plan, design.counts_rows
    query = TableCounts(axes, missing=whole, norm=passes.norm_of(plan, slot))
    counts, noise = holder.ask(query, slot)
    known = plan.n if rows_known(design, plan.privacy) else 0
    if known:
        counts = counts - (counts.sum() - known) / counts.size
    inside = counts[: query.cells]
    return kind(
        cells=cells,
        counts=inside,
        missing=float(counts[-1]) if query.missing else math.nan,
        noise_sd=noise.sd,
        known_rows=known,
        effect=float(max_rows(design)),
        nobs=float(max(inside.sum(), 1.0)),
        laplace=noise.shape == "laplace",
    )


def count_noise(plan: Plan) -> float:
    """Standard deviation of the noise in one count."""
    norm = passes.norm_of(plan, COUNTS)
    return plan.noise(TableCounts((Axis.of_levels([0], 2),), norm=norm), COUNTS).sd


def expected_shares(plan: Plan, cells: int) -> Plan:
    """The plan with errors of shares that are all alike.

    Raises
    ------
    OptionError
        If there are more cells than a covariance of their shares is kept for.
    """
    if cells > _MOST_CELLS:
        raise OptionError(
            f"{cells:,} cells: a table has at most {_MOST_CELLS:,}. Declare fewer levels."
        )
    noise = count_noise(plan)
    p, n = 1 / cells, float(plan.n)
    sampling = plan.max_rows * p * (1 - p) / n
    privacy = (noise / n) ** 2 * (1 - p)
    assumptions = ["For the prediction all cells are alike."]
    if plan.max_rows > 1:
        assumptions.append("Rows of one unit are taken to be alike.")
    warnings = (*plan.warnings, *columns.too_many_cells(plan, cells, noise))
    return replace(
        plan,
        predicted_se=(math.sqrt(sampling + privacy),) * len(plan.parameters),
        privacy_share=privacy / (sampling + privacy),
        assumptions=(*plan.assumptions, *assumptions),
        warnings=warnings,
    )
