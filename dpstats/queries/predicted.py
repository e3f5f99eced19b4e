"""Questions about predictions: those of columns, asked of what a public fit makes of each row."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from dpstats.errors import PlanError
from dpstats.families import GAUSSIAN, Family
from dpstats.queries.base import OfOtherRows
from dpstats.queries.blocks import Array, Block, Geometry, Ints
from dpstats.queries.prefixes import ColumnPrefixes
from dpstats.queries.scores import GroupSums
from dpstats.queries.tables import ColumnMoments, TableCounts

__all__ = ["ERROR", "MEAN", "RESPONSE", "SQUARE", "Predicted"]

AboutColumns = ColumnMoments | ColumnPrefixes | GroupSums | TableCounts
MEAN, ERROR, SQUARE, RESPONSE = range(4)  # columns that the query is asked of


@dataclass(frozen=True, eq=False)
class Predicted(OfOtherRows):
    """A query about values, asked of the predictions of public coefficients and their errors.

    A row of the design is turned into four numbers: the predicted mean, the response less it, the
    square of that, and the response. If a value that they are made of is missing, so are all four.
    Then the query reads them as it would read columns.

    Guarantee: that of `query`. The four numbers are a function of that row and of public
    coefficients, element by element, so that they have the same bits wherever the row stands; the
    query holds for rows of any values, and clips or counts them after they were made.

    Parameters
    ----------
    query : ColumnMoments, ColumnPrefixes, GroupSums or TableCounts
        Asked of the columns `MEAN`, `ERROR`, `SQUARE` and `RESPONSE`.
    places : ndarray of int of shape (k,)
        Public positions of columns of the design, each once.
    coefficients : ndarray of shape (k,)
        Their public coefficients, in the user's units.
    family : Family
        Its link makes the mean.
    """

    query: AboutColumns
    places: Ints
    coefficients: Array
    family: Family = GAUSSIAN
    geometry: ClassVar[Geometry | None] = None
    columns: ClassVar[tuple[int, ...] | None] = None
    by_lots: ClassVar[bool] = False

    def __post_init__(self) -> None:
        places = self.places.tolist()
        sound = self.places.shape == self.coefficients.shape and len(set(places)) == len(places)
        if not (sound and min(places, default=0) >= 0 and np.isfinite(self.coefficients).all()):
            raise PlanError("Each column has a place of its own, and a finite coefficient.")

    @property
    def name(self) -> str:
        """Name of the query, and of what."""
        return f"{self.query.name}, of predictions"

    def parameters(self) -> Mapping[str, Any]:
        """Those of the query, and how many columns predict."""
        return {**self.query.parameters(), "predictors": int(self.places.size)}

    def total(self, block: Block) -> Ints:
        """The query's total over predictions and their errors."""
        assert block.observed is not None
        made = self.table(block.observed())
        return self.query.total(replace(block, observed=lambda: made, memory={}))

    def table(self, values: Array) -> Array:
        """The four numbers of rows of values (m, d + 1), shape (m, 4)."""
        used, response = values[:, self.places], values[:, -1]
        eta = np.zeros(len(values))
        for column, coefficient in zip(used.T, self.coefficients, strict=True):
            eta = eta + column * coefficient
        mean = self.family.mean(eta)
        error = response - mean
        made = np.stack([mean, error, error**2, response], axis=1)
        made[np.isnan(made).any(axis=1)] = np.nan
        return made
