"""What a design is, apart from how it is bound: public facts of its columns."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from dpstats.design.layout import Layout, Source
from dpstats.design.new_rows import Astray
from dpstats.design.public import typical_table
from dpstats.design.subsets import read_subset
from dpstats.design.terms import Terms
from dpstats.design.units import Endog, Offset, Standardization
from dpstats.design.weights import Weights
from dpstats.errors import FormulaError
from dpstats.families import Family
from dpstats.schema import Numeric, Schema

__all__ = ["Design"]

Float = NDArray[np.float64]
_LEVEL = re.compile(r"\[[^\[\]]*\](?=:|$)")  # "C(g)[T.b]", "bs(x, df=5)[2]:z"


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
        Columns of the table that are read, with the response, the subset and the unit.
    notes : tuple of str
        What was dropped and why.
    bases : frozenset of str
        Columns of the table that splines and polynomials over a declared range read.
    weights : Weights or None
        Public facts about weights of the rows; None where rows count alike.
    subset : str or None
        Expression of declared columns: rows where it is false, or misses a value, contribute
        nothing. None where all rows are meant.
    found : mapping
        Centres and scales that a fit found, by position, where it is such a design: see `scaled`.
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
    bases: frozenset[str]
    weights: Weights | None = field(default=None, kw_only=True)
    subset: str | None = field(default=None, kw_only=True)
    found: Mapping[int, tuple[float, float]] = field(default_factory=dict, repr=False, kw_only=True)
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

    @property
    def terms(self) -> tuple[str, ...]:
        """The term of the formula that each column belongs to, as far as its name says."""
        return tuple(_LEVEL.sub("", name) or name for name in self.names)

    @property
    def largest_root(self) -> float:
        """Largest square root of an internal weight, which a row is multiplied by."""
        return 1.0 if self.weights is None else self.weights.largest_root

    @property
    def inputs(self) -> tuple[str, ...]:
        """What a row is made of, the response first: columns of the table, or of the matrix."""
        return self._called(self._layout)

    @property
    def predictors(self) -> tuple[str, ...]:
        """Declared columns that a prediction reads: of covariates, offset and exposure."""
        layout = replace(self._layout, subset_declarations={})
        unread = {*layout.endog_declarations, *layout.weight_declarations}
        return tuple(name for name in layout.columns if name not in unread)

    @property
    def joint(self) -> tuple[str, ...]:
        """Columns that read an input together with others: where it is missing, so are they all."""
        layout = self._layout
        reads = [(int(j), {name}) for j, name in zip(layout.positions, layout.lookups, strict=True)]
        reads += [(int(j), set(names)) for places, _, names in layout.computed for j in places]
        return tuple(
            self.names[j]
            for j, mine in sorted(reads, key=lambda pair: pair[0])
            if len(mine) > 1 or any(mine & other for k, other in reads if k != j)
        )

    def _called(self, layout: Layout) -> tuple[str, ...]:
        """Names of the inputs of a layout of its columns."""
        named = dict(zip(layout.lookups, (self.names[j] for j in layout.positions), strict=True))
        return tuple(i if isinstance(i, str) else named[i] for i in layout.inputs)

    def part(self, **facts: Any) -> Self:
        """The design with other facts of some of its columns, of which rows are not read."""
        return replace(self, **facts)

    def within(self, subset: str | None) -> Self:
        """The same model of the rows of a subset; see `read_subset`.

        Raises
        ------
        FormulaError
            If it is no expression of declared columns, or the design is one of arrays.
        """
        if subset is None:
            return self
        if self.schema is None:
            raise FormulaError("subset= names declared columns; of arrays, there are none.")
        rows = read_subset(subset, Terms(self.schema))
        return replace(
            self,
            subset=rows.text,
            columns=tuple(dict.fromkeys((*self.columns, *rows.declarations))),
            _layout=replace(
                self._layout, subset=rows.evaluate, subset_declarations=rows.declarations
            ),
            _recipe={**self._recipe, "subset": rows.text},
        )

    @property
    def counts_rows(self) -> bool:
        """Whether each row is a unit of its own, and all are meant: how many is then public.

        Where neighbours replace one row, that is: of rows added or removed the number is private.
        """
        several = self.schema is not None and self.schema.unit is not None
        return self._layout.subset is None and not several

    def expected_rows(self, n: int, share: float | None = None) -> int:
        """Rows of the subset to plan for, of `n`: all without one; public.

        Without a guess the share is that of rows made from the schema: declared shares of levels,
        and ranges of numbers.
        """
        if self.subset is None or self.schema is None or self._layout.subset is None:
            return n
        if share is None:
            share = read_subset(self.subset, Terms(self.schema)).guessed_share()
        return max(round(n * share), 1)

    @property
    def by_value(self) -> bool:
        """Whether a question may be about the values of a column by themselves."""
        return False

    def scaled(
        self, found: Mapping[int, tuple[float, float]], unsure: tuple[int, ...] = ()
    ) -> Design:
        """The same columns in other units, for a fit: what a coefficient means does not change.

        Values are cut at 1000 scales from the centre, so that a grid over what is left is fine.

        Parameters
        ----------
        found : mapping
            Public centre and scale of columns, by position; of the response under d.
        unsure : tuple of int, optional
            Those that stay `unscaled`: what was found of them is no scale to rely on.
        """
        raise FormulaError("Columns that are public have units of their own; none are found.")

    @property
    def unscaled(self) -> tuple[int, ...]:
        """Columns whose scale is neither declared nor found; d is the response."""
        return ()

    def typical_rows(self, m: int, rare: float | None = None) -> Float:
        """Made-up rows (m, d) in the user's units, as the schema guesses them: `typical_table`."""
        if self.schema is None:
            raise FormulaError("A design from arrays has no schema that rows could be made from.")
        names = [name for name in self.columns if name in self.schema and self._is_read(name)]
        return self.exog(typical_table(names, self.schema, m, rare))

    @property
    def open_levels(self) -> bool:
        """Whether a covariate has levels whose shares nobody declared."""
        if self.schema is None:
            return False
        response = None if self.endog is None else self.endog.name
        read = (name for name in self.columns if name != response and self._is_read(name))
        declared = (self.schema.get(name) for name in read)
        return any(not isinstance(d, Numeric) and d.shares is None for d in declared if d)

    def _is_read(self, name: str) -> bool:
        """Whether a column is read for more than the subset."""
        return name in self._layout.inputs or name not in self._layout.subset_declarations

    @property
    def response_guess(self) -> float | None:
        """Declared share or centre of the response; None where nobody declared one."""
        if self.endog is None:
            return None
        declared = None if self.schema is None else self.schema.get(self.endog.name)
        if declared is not None and not isinstance(declared, Numeric):
            return None if declared.shares is None else declared.shares[-1] / sum(declared.shares)
        return self.endog.guess

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

    def reread(self, source: Source) -> Source:
        """Rows of a source of the same columns, in the coordinates of this design."""
        return source.under(self._layout)

    @abstractmethod
    def exog(self, table: Any, columns: Any = None, clip: bool = True) -> Float:
        """Rows of the design in the user's units, of shape (m, d); the response is not needed.

        Parameters
        ----------
        table : as for `source`
            New rows; for a design from arrays the matrix alone.
        columns : array of int of shape (k,), optional
            Columns of the design that are wanted; then no (m, d) array is made.
        clip : bool, default True
            Whether values are held to the declared range, where there is one.
        """

    def astray(self, table: Any, known: Mapping[str, Any]) -> dict[str, Astray]:
        """How many values of new rows lie outside of what is declared, by input.

        Parameters
        ----------
        table : as for `exog`
        known : mapping
            Known terms of the new rows, where the design is one of arrays.
        """
        return {}

    @abstractmethod
    def known_term(self, table: Any, clip: bool = True) -> Float:
        """Values of the offset of shape (m,), for predictions; NaN where one is missing."""
