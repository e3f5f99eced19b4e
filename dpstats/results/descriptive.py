"""Results that describe columns: quantiles, shares, histograms."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dpstats.errors import OptionError
from dpstats.protocol.comparing import (
    CorrelationEstimate,
    DifferenceEstimate,
    GroupMeansEstimate,
    VarianceEstimate,
)
from dpstats.protocol.criticals import rows_hidden
from dpstats.protocol.descriptive import (
    DescribeEstimate,
    Distribution,
    QuantileEstimate,
)
from dpstats.results import archive, summary
from dpstats.results.parameters import ParameterResults
from dpstats.text import WIDTH, printable, rounded, with_digits, wrap

if TYPE_CHECKING:
    import pandas as pd

__all__ = [
    "WHOLE",
    "CorrelationResults",
    "DescribeResults",
    "GroupMeansResults",
    "QuantileResults",
    "TTestResults",
    "VarianceResults",
    "allowance_text",
    "print_by_error",
]


Array = NDArray[np.float64]


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
        """What is printed below its name: `frame`, each number to the second digit of its error."""
        frame = self.frame()
        errors = self._errors[: len(frame), None]
        return print_by_error(frame, np.repeat(errors, frame.shape[1], axis=1))

    @property
    def _errors(self) -> Array:
        """Of the number in each row that is printed."""
        return np.asarray(self.bse, dtype=np.float64)

    @property
    def _fitted(self) -> str:
        return f"description of {', '.join(self.design.inputs)}"

    def __repr__(self) -> str:
        shown = printable(self._shown())
        text = shown.to_string(line_width=WIDTH)
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


_COUNTED = ("count", "missing")  # columns of rows, which are whole
WHOLE = 10.0  # wording: error from which on two digits of it are whole
_FINE = 1e-6  # wording: of a range, below which nothing is read


def print_by_error(frame: pd.DataFrame, errors: Array) -> pd.DataFrame:
    """A table as it is printed, errors being of its shape."""
    counted = frame.columns.isin(_COUNTED)
    return rounded(frame, np.where(counted & ~(errors > WHOLE), WHOLE, errors))


def _held(errors: Array, distributions: Sequence[Distribution]) -> Array:
    """Errors of quantiles and moments, (k, s), of columns whose ranges these distributions have."""
    ranges = np.array([[d.edges[-1] - d.edges[0]] for d in distributions])
    held: Array = np.maximum(np.nan_to_num(errors), _FINE * ranges)
    return held


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

    @property
    def _errors(self) -> Array:
        (errors,) = _held(super()._errors[None], [self.estimate.distribution])
        return np.asarray(errors, dtype=np.float64)

    def _particulars(self) -> summary.Particulars:
        return summary.Particulars(
            meaning=(
                "Intervals hold all values that a test of the rank does not refuse, noise "
                "included; std err is their longer side over 1.96.",
            )
        )


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

    def _shown(self) -> pd.DataFrame:
        frame, made = self.frame(), self.estimate
        errors = np.full(frame.shape, WHOLE)
        errors[:, 2:] = _held(self.bse.to_numpy().reshape(len(frame), -1), made.distributions)
        return print_by_error(frame, errors)

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

    def _shown(self) -> pd.DataFrame:
        frame = self.frame()
        errors = np.zeros(frame.shape)
        upper = np.triu_indices(len(frame), 1)
        errors[upper] = errors.T[upper] = self.bse
        return rounded(frame, errors)

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
