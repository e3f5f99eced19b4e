"""Results that say how well a table fits its schema."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from dpstats.errors import OptionError
from dpstats.protocol.criticals import USUAL, critical
from dpstats.protocol.data_check import CheckEstimate
from dpstats.results import summary
from dpstats.results.descriptive import DescriptiveResults

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["CheckResults"]


@dataclass(frozen=True, eq=False, repr=False)
class CheckResults(DescriptiveResults):
    """Shares of the values of each column that are missing, or outside of what is declared."""

    estimate: CheckEstimate
    estimates = CheckEstimate

    def frame(self) -> pd.DataFrame:
        """One row a column: declared, missing, outside, margin.

        ``declared`` is the kind of the declaration; ``missing`` and ``outside`` are shares of the
        rows; each is within ``margin`` of that in the table with 95 % confidence.
        """
        import pandas as pd

        made, schema = self.estimate, self.design.schema
        assert schema is not None
        kinds = [type(schema[name]).__name__ for name in made.inputs]
        table = pd.DataFrame(made.shares, list(made.inputs), ["missing", "outside"])
        table.insert(0, "declared", kinds)
        table["margin"] = critical(USUAL) * made.errors.max(axis=1)
        return table

    @property
    def units(self) -> float:
        """Released number of units of privacy, at least 0; nan where the unit is a row."""
        return float(np.maximum(self.estimate.units, 0.0))

    def _particulars(self) -> summary.Particulars:
        units = self.estimate.units
        schema = self.design.schema
        counted = (
            f" There are about {self.units:,.0f} units ({schema.unit})."
            if schema is not None and not math.isnan(units)
            else ""
        )
        return summary.Particulars(
            meaning=(
                "outside: beyond the declared range (Numeric), or of no declared level. Intervals "
                f"count sampling, too; `frame()` has the margin of the noise alone.{counted}",
            )
        )

    def _check(self) -> None:
        super()._check()
        if self.estimate.inputs != self.design.inputs:
            raise OptionError("The result contradicts itself: estimate and design differ.")
