"""How rows of a table fill a design, and who hands them out: layouts, blocks, sources."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from dpstats.schema import Declaration
from dpstats.tables.coercion import check_kind

__all__ = ["Evaluate", "Layout", "RawBlock", "Source"]

Float = NDArray[np.float64]
Mask = NDArray[np.bool_]
Evaluate = Callable[[Mapping[str, Any]], Float]  # from coerced columns


@dataclass(frozen=True, slots=True)
class RawBlock:
    """Consecutive rows in internal coordinates. Private.

    Attributes
    ----------
    x : ndarray, or CSR array, of shape (m, d)
        Rows of the design; every entry inside its internal bounds.
    y : ndarray of shape (m,) or None
        Response, inside its internal bounds; None for a one-sided design.
    keep : ndarray of bool of shape (m,)
        False where a column used was missing: such a row contributes zero.
    unit : ndarray of int of shape (m,) or None
        Code of the unit each row belongs to, where the schema declares one: the same for all rows
        of a unit and for no others, over all blocks. (A short hash of names will not do: where
        two units share a code, a unit more or less may move a sum by twice its bound.) A row of
        nobody has a code of its own.
    offset : ndarray of shape (m,) or None
        Known term of the linear predictor, inside its bounds, where the family takes one.
    root : ndarray of shape (m,) or None
        Square root of the internal weight of each row, where rows are weighted; 0 where it counts
        as none, and ``keep`` is False there.
    """

    x: Any
    y: Float | None
    keep: Mask
    unit: NDArray[np.intp] | None = None
    offset: Float | None = None
    root: Float | None = None


@dataclass(frozen=True, kw_only=True)
class Layout:
    """How columns of a table fill the columns of a design. Public, holds no row.

    Attributes
    ----------
    bounds, fill, center, scale : ndarray
        Of each design column, then of the response, the known term and the weights: of shape
        (d + 3, 2), and (d + 3,) each.
    width : int
        Columns of the design, d.
    positions : ndarray of int
        Design columns that are table columns as they are, in ascending order.
    lookups : tuple
        Names of those table columns; for a matrix their positions, in ascending order.
    computed : tuple of (positions, function, names)
        Design columns at `positions`, as a function from coerced columns to (m, k), and the names
        of those that it reads.
    intercept : int or None
        Design column that is 1.
    declarations, endog_declarations, offset_declarations, weight_declarations : mapping
        Declared columns that `computed`, `endog`, `offset` and `weights` read.
    endog, offset, weights : function or None
        From coerced columns to the response, the known term and the weights, shape (m,). There is
        no known term, and there are no weights, without a response.
    subset : function or None
        From coerced columns, none of which is missing, to which rows are inside, shape (m,).
    subset_declarations : mapping
        Declared columns that `subset` reads.
    """

    bounds: Float
    fill: Float
    center: Float
    scale: Float
    width: int = 0
    positions: NDArray[np.intp] = field(default_factory=lambda: np.empty(0, dtype=np.intp))
    lookups: tuple[Any, ...] = ()
    computed: tuple[tuple[NDArray[np.intp], Evaluate, tuple[str, ...]], ...] = ()
    intercept: int | None = None
    declarations: Mapping[str, Declaration] = field(default_factory=dict)
    endog: Evaluate | None = None
    endog_declarations: Mapping[str, Declaration] = field(default_factory=dict)
    offset: Evaluate | None = None
    offset_declarations: Mapping[str, Declaration] = field(default_factory=dict)
    weights: Evaluate | None = None
    weight_declarations: Mapping[str, Declaration] = field(default_factory=dict)
    subset: Callable[[Mapping[str, Any]], Mask] | None = None
    subset_declarations: Mapping[str, Declaration] = field(default_factory=dict)

    @property
    def columns(self) -> tuple[str, ...]:
        """Table columns that are read, the response first."""
        read = [name for name in self.inputs if isinstance(name, str)]
        return tuple(dict.fromkeys([*read, *self.subset_declarations]))

    @property
    def inputs(self) -> tuple[Any, ...]:
        """What a row is made of, the response first; columns of a matrix by their position."""
        rest = (*self.declarations, *self.offset_declarations, *self.weight_declarations)
        return tuple(dict.fromkeys([*self.endog_declarations, *self.lookups, *rest]))

    @property
    def tail(self) -> tuple[Evaluate, ...]:
        """What is read beside the design: the response, the known term, then the weights."""
        return tuple(f for f in (self.endog, self.offset, self.weights) if f is not None)

    @property
    def filled(self) -> NDArray[np.intp]:
        """Places, among the columns and what may stand beside them, of what is read."""
        beside = (self.endog, self.offset, self.weights)
        there = [self.width + i for i, f in enumerate(beside) if f is not None]
        return np.array([*range(self.width), *there], dtype=np.intp)

    def check_kinds(self, columns: Mapping[str, Any], schema: Mapping[str, Declaration]) -> None:
        """Refuse columns in which nothing that is declared can stand, by their types alone."""
        for name in self.columns:
            if name in columns:
                check_kind(columns[name], name, schema[name].kinds)

    def covariates(self) -> Layout:
        """The same design without its response, known term, weights and subset."""
        return replace(self.asked_anew(), offset=None, offset_declarations={})

    def asked_anew(self) -> Layout:
        """What new rows bring: the covariates and the known term."""
        alone = replace(self, endog=None, endog_declarations={}, subset=None)
        return replace(alone, weights=None, weight_declarations={}, subset_declarations={})

    def beside(self) -> Layout:
        """The response and the known term without the design."""
        tail = slice(self.width, None)
        return Layout(
            bounds=self.bounds[tail],
            fill=self.fill[tail],
            center=self.center[tail],
            scale=self.scale[tail],
            endog=self.endog,
            endog_declarations=self.endog_declarations,
            offset=self.offset,
            offset_declarations=self.offset_declarations,
        )


class Source(Protocol):
    """Private rows behind a design, handed out in blocks: of a table, or of batches on disk.

    A row is the same in whichever block it is handed out, its unit's code too.
    """

    @property
    def is_sparse(self) -> bool:
        """Whether the rows of a block are a CSR array."""
        ...

    @property
    def has_offset(self) -> bool:
        """Whether blocks carry a known term of the linear predictor."""
        ...

    @property
    def has_weights(self) -> bool:
        """Whether blocks carry roots of weights."""
        ...

    def __len__(self) -> int:
        """Number of rows."""
        ...

    def block(self, start: int, stop: int) -> RawBlock:
        """Rows ``start`` to ``stop - 1`` in internal coordinates."""
        ...

    def missing(self, start: int, stop: int) -> Mask:
        """Which values of these rows were missing: shape (m, d + 1), the response last.

        A missing known term counts as a missing response; of a row of nobody every value does.
        """
        ...

    def observed(self, start: int, stop: int) -> Float:
        """Values of these rows in the user's units, NaN where missing: shape as `missing`.

        They are held to the design's bounds, and rounded to no grid.
        """
        ...

    def astray(self, start: int, stop: int) -> Mask:
        """Which values were moved, missing, of no declared level, as declared: shape (m, 4, t).

        Of the t inputs of the design, in the order of `Layout.inputs`. A value of no declared level
        is missing, too, unless `Categorical.other` takes it. A row of nobody has no mark.
        """
        ...

    def under(self, layout: Layout) -> Source:
        """The same rows by a layout that differs in bounds, centres and scales only."""
        ...
