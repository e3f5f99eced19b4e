"""Results that are declared: the ends of a range, and centres and scales of columns."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dpstats.errors import OptionError
from dpstats.protocol.estimate import RangeEstimate, ScalesEstimate
from dpstats.results.parameters import ParameterResults
from dpstats.schema import Numeric, Schema

__all__ = ["RangeResults", "ScalesResults"]


@dataclass(frozen=True, eq=False, repr=False)
class RangeResults(ParameterResults):
    """The ends of a range."""

    estimate: RangeEstimate
    estimates = RangeEstimate


@dataclass(frozen=True, eq=False, repr=False)
class ScalesResults(ParameterResults):
    """Centres and scales of columns, and the schema that declares them."""

    estimate: ScalesEstimate
    estimates = ScalesEstimate

    @property
    def schema(self) -> Schema:
        """The schema with the centres and scales that were found, for later fits.

        A column whose scale was not found is declared as it was.
        """
        declared = self.design.schema
        assert declared is not None
        found = {}
        for name, (center, scale) in zip(self.estimate.columns, self.estimate.pairs, strict=True):
            column = declared[name]
            if isinstance(column, Numeric) and np.isfinite(scale):
                found[name] = Numeric(column.lower, column.upper, float(center), float(scale))
        return declared.replaced(found)

    def _check(self) -> None:
        super()._check()
        if self.estimate.columns != self.design.inputs:
            raise OptionError("The result contradicts itself: estimate and design differ.")
