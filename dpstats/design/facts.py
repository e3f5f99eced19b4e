"""What a design is, apart from how it is bound: public facts of its columns."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from dpstats.design.rows import Layout, Source
from dpstats.design.units import Endog, Offset, Standardization
from dpstats.errors import FormulaError
from dpstats.families import Family
from dpstats.schema import Schema

__all__ = ["Design"]

Float = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Design(ABC):
    """Columns of a model, from public facts only.

    `DeclaredDesign` makes one whose bounds are declared, `PublicDesign` one whose covariates are
    public.

    Attributes
    ----------
    formula : str or None
        As it was written; None for arrays.
    schema : Schema or None
        Declarations of the table; None for arrays.
    endog : Endog or None
        The response; None for a one-sided formula.
    family : Family
        Law and link of the response. Unless it is Gaussian with the identity link, the response
        keeps its own units (centre 0, scale 1).
    offset : Offset or None
        Known term of the linear predictor, ``offset + log(exposure)``. `Source` hands it out row by
        row; from a Gaussian response with the identity link, and from its bounds, it is taken off
        instead, which is the same model.
    names : tuple of str
        Columns, of length d.
    bounds : ndarray of shape (d, 2)
        Lower and upper bound of each column, in the user's units. Values are held to them.
    has_intercept : bool
        Whether one of the columns is 1.
    internal_bounds : ndarray of shape (d, 2)
        The same bounds after `standardization`.
    norm_bound : float
        Largest Euclidean norm of an internal row, over every row the schema allows: exact for
        one factor (its dummies are never 1 together) and for separate numeric columns, an upper
        bound otherwise.
    standardization : Standardization
        Between internal and user units.
    columns : tuple of str
        Columns of the table that are read, with the response and the unit.
    notes : tuple of str
        What was dropped and why.
    """

    formula: str | None
    schema: Schema | None
    endog: Endog | None
    family: Family
    offset: Offset | None
    names: tuple[str, ...]
    bounds: Float
    has_intercept: bool
    internal_bounds: Float
    norm_bound: float
    standardization: Standardization
    columns: tuple[str, ...]
    notes: tuple[str, ...]
    _layout: Layout = field(repr=False)
    _recipe: Mapping[str, Any] = field(repr=False)

    @abstractmethod
    def to_dict(self) -> dict[str, Any]:
        """The design as a JSON object: what it is made from; no rows."""

    @classmethod
    @abstractmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Self:
        """Inverse of `to_dict`."""

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self).from_dict, (self.to_dict(),)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Design) and self.to_dict() == other.to_dict()

    def __hash__(self) -> int:
        return hash((self.formula, self.names))

    @property
    def internal_endog_bounds(self) -> tuple[float, float]:
        """Bounds of the response after `standardization`.

        Raises
        ------
        FormulaError
            If the design has no response.
        """
        if self.endog is None:
            raise FormulaError("The design has no response.")
        c, s = self.standardization.y_center, self.standardization.y_scale
        return (self.endog.lower - c) / s, (self.endog.upper - c) / s

    @abstractmethod
    def without_rows(self) -> Design:
        """The same public facts without rows: what results hold."""

    @abstractmethod
    def source(self, table: Any) -> Source:
        """Private rows of a table, to be read block by block.

        Raises
        ------
        DataError
            On names, types and shapes, never on values.
        """

    @abstractmethod
    def exog(self, table: Any, columns: Any = None) -> Float:
        """Rows of the design in the user's units, of shape (m, d); the response is not needed.

        Parameters
        ----------
        table : as for `source`
            New rows; for a design from arrays the matrix alone.
        columns : array of int of shape (k,), optional
            Columns of the design that are wanted.
        """

    @abstractmethod
    def known_term(self, table: Any) -> Float:
        """Values of the offset of shape (m,), for predictions; NaN where one is missing."""
