"""Results that describe columns: quantiles, shares, histograms."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from dpstats.errors import OptionError, need_flag
from dpstats.protocol.comparing import (
    CorrelationEstimate,
    DifferenceEstimate,
    GroupMeansEstimate,
    VarianceEstimate,
)
from dpstats.protocol.criticals import rows_hidden
from dpstats.protocol.descriptive import (
    CountsEstimate,
    CrosstabEstimate,
    DescribeEstimate,
    HistogramEstimate,
    ProportionEstimate,
    QuantileEstimate,
)
from dpstats.results import archive, summary
from dpstats.results.independence import Independence, independence
from dpstats.results.parameters import ParameterResults
from dpstats.text import WIDTH, printable, with_digits, wrap

if TYPE_CHECKING:
    import pandas as pd

__all__ = [
    "CorrelationResults",
    "CountsResults",
    "CrosstabResults",
    "DescribeResults",
    "GroupMeansResults",
    "HistogramResults",
    "ProportionResults",
    "QuantileResults",
    "TTestResults",
    "VarianceResults",
    "allowance_text",
]


def _is_window(ends: Any) -> bool:
    """Whether they are two numbers; a file may hold anything there."""
    return isinstance(ends, (list, tuple)) and [type(end) for end in ends] == [float, float]


def _ends(windows: Iterable[tuple[str, Iterable[float]]]) -> str:
    """Columns and their windows, in a sentence."""
    shown = ((name, *(with_digits(end, 4) for end in ends)) for name, ends in windows)
    return ", ".join(f"{name} [{low}, {high}]" for name, low, high in shown)


def allowance_text(fit: ParameterResults) -> str:
    """What intervals of moments allow for outside of windows, and what they presume of it."""
    most = rows_hidden(fit.released)
    presumed = (
        f" as if tails went on as they look inside (noise hides how far out {most:,} rows at "
        "either end are)"
    )
    return f"Intervals allow for what lies outside{presumed * (most > 0)}"


@dataclass(frozen=True, eq=False, repr=False)
class DescriptiveResults(ParameterResults):
    """What is said of columns; `frame` is it as a table."""

    def frame(self) -> pd.DataFrame:
        """Columns estimate, std err, lower and upper of 95 % intervals; one row a number."""
        table = self._frame_of(0.05)
        table.insert(0, "estimate", self.params)
        table.insert(1, "std err", self.bse)
        return table

    def _shown(self) -> pd.DataFrame:
        """What is printed below its name."""
        return self.frame()

    @property
    def _fitted(self) -> str:
        return f"description of {', '.join(self.design.inputs)}"

    def __repr__(self) -> str:
        shown = printable(self._shown())
        text = shown.to_string(float_format="{:.5g}".format, line_width=WIDTH)
        return "\n".join([*wrap([super().__repr__()], " "), text])

    def _check(self) -> None:
        super()._check()
        if getattr(self.estimate, "columns", self.design.names) != self.design.names:
            raise OptionError("The result contradicts itself: estimate and design differ.")

    @staticmethod
    def _written(estimate: Any) -> dict[str, Any]:
        written: dict[str, Any] = archive.encode(asdict(estimate))
        return written

    def _frame_of(self, alpha: float) -> pd.DataFrame:
        return self.conf_int(alpha).set_axis(["lower", "upper"], axis=1)


@dataclass(frozen=True, eq=False, repr=False)
class QuantileResults(DescriptiveResults):
    """Quantiles of a column, with intervals that also hold at values that many rows have."""

    estimate: QuantileEstimate
    estimates = QuantileEstimate

    def frame(self, alpha: float = 0.05) -> pd.DataFrame:
        """Columns quantile, lower and upper of level 1 - alpha; the index holds the levels."""
        table = self._frame_of(alpha)
        table.insert(0, "quantile", self.params)
        return table.set_axis(list(self.estimate.levels), axis=0)

    def _particulars(self) -> summary.Particulars:
        return summary.Particulars(
            meaning=(
                "Intervals hold all values that a test of the rank does not refuse, noise "
                "included; std err is their longer side over 1.96.",
            )
        )


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
        """Edges of the bins (e_0, e_1], ..., as `numpy.histogram` returns them."""
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
        """As for every table of counts, the index being intervals."""
        import pandas as pd

        bins = pd.IntervalIndex.from_breaks(self.edges, name=self.design.inputs[0])
        return super().frame(alpha).set_axis(bins, axis=0)

    @property
    def _planned(self) -> tuple[str, ...]:
        return self.estimate.cells

    def _check(self) -> None:
        super()._check()
        low, high = self.design.bounds[0]
        if not (low <= self.edges[0] and self.edges[-1] <= high):
            raise OptionError("The result contradicts itself: bins are outside of the range.")


@dataclass(frozen=True, eq=False, repr=False)
class DescribeResults(DescriptiveResults):
    """Number, mean, standard deviation and quartiles of columns."""

    estimate: DescribeEstimate
    estimates = DescribeEstimate

    def frame(self) -> pd.DataFrame:
        """One row a column: count, missing, mean, std and quartiles, as pandas names them.

        The number of missing values is nan where that of rows is private.
        """
        import pandas as pd

        made = self.estimate
        values = self.table.values.reshape(len(made.columns), -1)
        names = [name.partition(" of ")[0] for name in self.table.names[: values.shape[1]]]
        table = pd.DataFrame(values, list(made.columns), names)
        table.insert(0, "count", [each.rows for each in made.distributions])
        table.insert(1, "missing", np.maximum(made.missing, 0.0))
        return table

    def intervals(self, alpha: float = 0.05) -> pd.DataFrame:
        """Columns estimate, lower and upper of level 1 - alpha; rows by column and statistic."""
        import pandas as pd

        table = self.conf_int(alpha).set_axis(["lower", "upper"], axis=1)
        table.insert(0, "estimate", self.params)
        pairs = [name.partition(" of ")[::2][::-1] for name in self.table.names]
        return table.set_axis(pd.MultiIndex.from_tuples(pairs), axis=0)

    def _particulars(self) -> summary.Particulars:
        windows = _ends(zip(self.estimate.columns, self.estimate.windows, strict=True))
        return summary.Particulars(
            meaning=(
                f"Means and standard deviations are of values held to windows: {windows}. "
                f"{allowance_text(self)}, that of a standard deviation above it only; its std err "
                "is the longer side over 1.96.",
            )
        )


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
        return self.counts(margins=True)

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
class GroupMeansResults(DescriptiveResults):
    """Means of a column by groups."""

    estimate: GroupMeansEstimate
    estimates = GroupMeansEstimate

    def frame(self, alpha: float = 0.05) -> pd.DataFrame:
        """Columns count, mean, std err, lower and upper of level 1 - alpha; one row a group."""
        table = self._frame_of(alpha)
        table.insert(0, "count", np.maximum(self.estimate.counts, 0.0))
        table.insert(1, "mean", self.params)
        table.insert(2, "std err", self.bse)
        return table

    def _particulars(self) -> summary.Particulars:
        low, high = (self.estimate.centre + sign * self.estimate.half for sign in (-1, 1))
        return summary.Particulars(
            meaning=(
                f"Means are of values held to [{with_digits(low, 4)}, {with_digits(high, 4)}]; std "
                "err allows for tails as heavy as log-normal ones. Intervals are Fieller's with "
                "the noise in them.",
            )
        )


@dataclass(frozen=True, eq=False, repr=False)
class TTestResults(DescriptiveResults):
    """A comparison of two groups; `statistic` and `pvalue` as in `scipy.stats.ttest_ind`."""

    estimate: DifferenceEstimate
    estimates = DifferenceEstimate

    @property
    def statistic(self) -> float:
        """The difference, less what it is if the groups are alike, over its standard error."""
        return float((self.params.iloc[0] - self.estimate.null) / self.bse.iloc[0])

    @property
    def pvalue(self) -> float:
        """Two-sided, by the normal law."""
        from scipy.special import ndtr

        return float(2 * ndtr(-abs(self.statistic)))

    def _particulars(self) -> summary.Particulars:
        null = f"{self.estimate.names[0]} = {self.estimate.null:g}"
        if self.estimate.hidden:
            return summary.Particulars()
        return summary.Particulars(
            meaning=(f"Test of {null}: z = {self.statistic:.3g}, p = {self.pvalue:.3g}.",)
        )


@dataclass(frozen=True, eq=False, repr=False)
class CorrelationResults(DescriptiveResults):
    """Correlations of columns."""

    estimate: CorrelationEstimate
    estimates = CorrelationEstimate

    def frame(self) -> pd.DataFrame:
        """The matrix, as `pandas.DataFrame.corr`; noise may leave an eigenvalue negative."""
        import pandas as pd

        names = list(self.estimate.columns)
        matrix = np.eye(len(names))
        upper = np.triu_indices(len(names), 1)
        matrix[upper] = matrix.T[upper] = self.estimate.values
        return pd.DataFrame(matrix, names, names)

    def _particulars(self) -> summary.Particulars:
        said = self.released.get("windows")
        pairs = said.items() if isinstance(said, Mapping) else ()
        windows = [(name, ends) for name, ends in pairs if _is_window(ends)]
        if not windows:
            return super()._particulars()
        return summary.Particulars(
            meaning=(
                f"Correlations are of values held to windows: {_ends(windows)}. std err is "
                "that of columns that depend on each other linearly.",
            )
        )


@dataclass(frozen=True, eq=False, repr=False)
class VarianceResults(DescriptiveResults):
    """Mean, variance and standard deviation of a column."""

    estimate: VarianceEstimate
    estimates = VarianceEstimate

    def _particulars(self) -> summary.Particulars:
        low, high = (self.released[f"window {end}"] for end in ("lower", "upper"))
        return summary.Particulars(
            meaning=(
                f"Moments are of values held to [{with_digits(low, 4)}, {with_digits(high, 4)}]. "
                f"{allowance_text(self)}, that of a standard deviation above it only; its std err "
                "is the longer side over 1.96.",
            )
        )
