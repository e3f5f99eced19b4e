"""Results of an evaluation: how well a fit predicts private rows, with intervals."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from dpstats.protocol.evaluation import ClassificationEstimate, PredictionErrorEstimate
from dpstats.results import summary
from dpstats.results.descriptive import DescriptiveResults, allowance_text
from dpstats.text import with_digits

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["ClassificationResults", "PredictionErrorResults"]

_NEW = (
    "The rows should be others than those of the fit: on its own rows a fit predicts better than "
    "it will again."
)


@dataclass(frozen=True, eq=False, repr=False)
class ClassificationResults(DescriptiveResults):
    """How well a logistic fit tells events from others.

    ``params`` and ``conf_int()`` hold accuracy, sensitivity, specificity, precision, the share of
    events, the area under the curve, the Brier score, and the share of events in each bin.
    """

    estimate: ClassificationEstimate
    estimates = ClassificationEstimate

    def confusion_matrix(self) -> pd.DataFrame:
        """Counts of actual (rows) by predicted (columns) classes, as scikit-learn has them.

        They are not negative, and add up to the number of rows with all values.
        """
        import pandas as pd

        counts = self.estimate.confusion.consistent.reshape(2, 2).T
        names = pd.Index([0, 1], name="actual"), pd.Index([0, 1], name="predicted")
        return pd.DataFrame(counts, *names)

    @property
    def count_sd(self) -> float:
        """Standard deviation of the noise in one count of the confusion table, in rows."""
        return self.estimate.confusion.noise_sd

    def calibration(self, alpha: float = 0.05) -> pd.DataFrame:
        """One row a bin of predicted probabilities: count, share of events, and its interval.

        A well calibrated fit has the share within its bin.
        """
        import pandas as pd

        bins = pd.IntervalIndex.from_breaks(self.estimate.edges, name="predicted")
        k, pairs = len(bins), self.estimate.calibration.consistent.reshape(-1, 2)
        table = self._frame_of(alpha).iloc[-k:].set_axis(bins, axis=0)
        table.insert(0, "count", pairs.sum(axis=1))
        table.insert(1, "events", self.params.to_numpy()[-k:])
        return table

    def frame(self, alpha: float = 0.05) -> pd.DataFrame:
        """Columns estimate, std err, lower and upper of level 1 - alpha; without the bins."""
        k = self.estimate.edges.size - 1
        table = self._frame_of(alpha)
        table.insert(0, "estimate", self.params)
        table.insert(1, "std err", self.bse)
        return table.iloc[:-k]

    @property
    def _planned(self) -> tuple[str, ...]:
        planned, names = self.plan.parameters, self.table.names
        return planned if len(planned) == len(names) else names  # bins had other names before

    def _check(self) -> None:
        super()._check()
        options = self.plan.options
        if not np.array_equal(options.get("bins", ()), self.estimate.edges):
            raise _contradiction()

    def _particulars(self) -> summary.Particulars:
        made = self.estimate
        return summary.Particulars(
            meaning=(
                f"A row is predicted to be an event above {made.threshold:g}. Noise in a count of "
                f"the confusion table: {self.count_sd:.3g} rows.",
                _NEW,
            )
        )


def _contradiction() -> Exception:
    from dpstats.errors import OptionError

    return OptionError("The result contradicts itself: plan and estimate have other bins.")


@dataclass(frozen=True, eq=False, repr=False)
class PredictionErrorResults(DescriptiveResults):
    """How far predictions of a linear fit are off: mean square, its root, R-squared, mean error."""

    estimate: PredictionErrorEstimate
    estimates = PredictionErrorEstimate

    def frame(self, alpha: float = 0.05) -> pd.DataFrame:
        """Columns estimate, std err, lower and upper of level 1 - alpha."""
        table = self._frame_of(alpha)
        table.insert(0, "estimate", self.params)
        table.insert(1, "std err", self.bse)
        return table

    def _particulars(self) -> summary.Particulars:
        (low, high), (first, last) = self.estimate.windows
        return summary.Particulars(
            meaning=(
                f"Moments are of errors held to [{with_digits(low, 4)}, {with_digits(high, 4)}] "
                f"and of responses held to [{with_digits(first, 4)}, {with_digits(last, 4)}]. "
                f"{allowance_text(self)}; a std err is their longer side over 1.96.",
                _NEW,
            )
        )
