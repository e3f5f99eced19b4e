"""Results that are counts of rows in the cells of a table: shares, histograms, crosstabs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from dpstats.errors import OptionError, need_flag
from dpstats.protocol.cell_shares import GroupSharesEstimate
from dpstats.protocol.descriptive import (
    CountsEstimate,
    CrosstabEstimate,
    HistogramEstimate,
    ProportionEstimate,
)
from dpstats.results import summary
from dpstats.results.descriptive import WHOLE, DescriptiveResults, print_by_error
from dpstats.results.independence import Independence, independence
from dpstats.text import rounded

if TYPE_CHECKING:
    import pandas as pd

__all__ = [
    "CountsResults",
    "CrosstabResults",
    "GroupProportionsResults",
    "HistogramResults",
    "ProportionResults",
]


@dataclass(frozen=True, eq=False, repr=False)
class CountsResults(DescriptiveResults):
    """Shares of the cells of a table, their counts, and Wilson's intervals with the noise."""

    estimate: CountsEstimate

    def frame(self, alpha: float = 0.05) -> pd.DataFrame:
        """Columns count, share, lower and upper of level 1 - alpha; one row a cell.

        Counts are not negative and add up to the number of rows with all values.
        """
        table = self._frame_of(alpha)
        table.insert(0, "count", self.estimate.consistent)
        table.insert(1, "share", self.params)
        return table

    def _shown(self) -> pd.DataFrame:
        frame = self.frame()
        errors = np.repeat(self._errors[:, None], frame.shape[1], axis=1)
        errors[:, 0] = self.count_sd
        return print_by_error(frame, errors)

    @property
    def missing(self) -> float:
        """Released number of rows that miss a value; nan where a unit may have several rows."""
        return max(self.estimate.missing, 0.0)

    @property
    def count_sd(self) -> float:
        """Standard deviation of the noise in one count, in rows."""
        return self.estimate.noise_sd

    def _particulars(self) -> summary.Particulars:
        return summary.Particulars(
            meaning=(
                "Intervals are Wilson's with the noise in them. Noise in one count: "
                f"{self.count_sd:.3g} rows.",
            )
        )


@dataclass(frozen=True, eq=False, repr=False)
class ProportionResults(CountsResults):
    """Shares of the levels of a column."""

    estimate: ProportionEstimate
    estimates = ProportionEstimate


@dataclass(frozen=True, eq=False, repr=False)
class HistogramResults(CountsResults):
    """Shares of the bins of a column."""

    estimate: HistogramEstimate
    estimates = HistogramEstimate

    @property
    def edges(self) -> np.ndarray[Any, np.dtype[np.float64]]:
        """Edges of the bins [e_0, e_1], (e_1, e_2], ..., as `numpy.histogram` returns them."""
        return self.estimate.edges.copy()

    @property
    def counts(self) -> np.ndarray[Any, np.dtype[np.float64]]:
        """Counts of the bins, which are not negative and add up."""
        return self.estimate.consistent

    @property
    def density(self) -> np.ndarray[Any, np.dtype[np.float64]]:
        """Shares over the widths of the bins."""
        return self.estimate.shares / np.diff(self.estimate.edges)

    def frame(self, alpha: float = 0.05) -> pd.DataFrame:
        """As for every table of counts, the index being intervals; the first has both its ends."""
        import pandas as pd

        bins = pd.IntervalIndex.from_breaks(self.edges, name=self.design.inputs[0])
        return super().frame(alpha).set_axis(bins, axis=0)

    def _shown(self) -> pd.DataFrame:
        return super()._shown().set_axis(list(self.table.names)).rename_axis(self.design.inputs[0])

    @property
    def _planned(self) -> tuple[str, ...]:
        cells, planned = self.estimate.cells, self.plan.parameters
        fewer = self.plan.options.get("bins") == "auto" and planned[: len(cells)] == cells
        return planned if fewer else cells

    def _check(self) -> None:
        super()._check()
        low, high = self.design.bounds[0]
        if not (low - 0.5 <= self.edges[0] and self.edges[-1] <= high + 0.5):  # of whole numbers
            raise OptionError("The result contradicts itself: bins are outside of the range.")


@dataclass(frozen=True, eq=False, repr=False)
class CrosstabResults(CountsResults):
    """A contingency table of two columns."""

    estimate: CrosstabEstimate
    estimates = CrosstabEstimate

    def counts(self, *, margins: bool = False) -> pd.DataFrame:
        """Counts by levels, as `pandas.crosstab`; margins are sums of what is shown.

        Parameters
        ----------
        margins : bool, default False
            Whether there is a row and a column ``All``.
        """
        import pandas as pd

        need_flag(margins=margins)
        made = self.estimate
        rows, columns = list(made.rows_of), list(made.columns_of)
        table = pd.DataFrame(made.consistent.reshape(len(rows), -1), rows, columns)
        if margins:
            table["All"] = table.sum(axis=1)
            table.loc["All"] = table.sum(axis=0)
        a, b = self.plan.options["columns"]
        return table.rename_axis(index=a, columns=b)

    def _shown(self) -> pd.DataFrame:
        counts = self.counts(margins=True)
        return rounded(counts, np.full(counts.shape, max(self.count_sd, WHOLE)))

    def chi2_contingency(self) -> Independence:
        """Test of independence with the noise in it: statistic, pvalue, dof, expected_freq.

        The chi-squared distance of the noisy counts from the nearest independent table; what
        `scipy.stats.chi2_contingency` makes of noisy counts is no test.
        """
        return independence(self.estimate)

    def _particulars(self) -> summary.Particulars:
        own, test = super()._particulars(), self.chi2_contingency()
        return summary.Particulars(
            meaning=(
                *own.meaning,
                f"Independence, noise included: chi-squared {test.statistic:.4g} with {test.dof} "
                f"degrees of freedom, p = {test.pvalue:.3g}.",
            )
        )


@dataclass(frozen=True, eq=False, repr=False)
class GroupProportionsResults(CountsResults):
    """Shares of the levels of a column within the groups of another."""

    estimate: GroupSharesEstimate
    estimates = GroupSharesEstimate

    def frame(self, alpha: float = 0.05) -> pd.DataFrame:
        """As for every table of counts, the index being groups and levels."""
        import pandas as pd

        pairs = [self.estimate.rows_of, self.estimate.columns_of]
        index = pd.MultiIndex.from_product(pairs, names=self.plan.options["columns"])
        return super().frame(alpha).set_axis(index, axis=0)
