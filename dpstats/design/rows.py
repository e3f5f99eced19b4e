"""Private rows on their way into internal blocks: the only reader of a table for a design.

Every number is mapped row by row: coerced to the schema, evaluated, held to the column's public
bounds, standardised with public centres and scales. A chunk therefore equals the same rows of the
whole, bit for bit.
"""

from __future__ import annotations

from collections.abc import Mapping
from copy import copy
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from dpstats.design.layout import Layout, RawBlock
from dpstats.design.weights import NO_WEIGHT
from dpstats.schema import Numeric
from dpstats.tables.coercion import is_object, to_float, to_keys

__all__ = ["KeptEntries", "TableSource"]

Float = NDArray[np.float64]
Mask = NDArray[np.bool_]

_BLOCK = 1 << 17  # numbers worked on at a time: they stay in the cache
_MIN_ROWS = 256
_RESPONSE, _OFFSET, _WEIGHTS = range(3)  # what may stand beside the columns, in this order


@dataclass(frozen=True)
class KeptEntries:
    """Entries of a private column at public positions; none is looked at before it is read."""

    column: Any
    rows: range | NDArray[np.intp]

    def __getitem__(self, part: slice) -> Any:
        rows = self.rows[part]
        return self.column[slice(rows.start, rows.stop) if isinstance(rows, range) else rows]


class TableSource:
    """Rows of one table, read block by block. Private.

    Parameters
    ----------
    layout : Layout
        What to compute.
    columns : mapping of str to array
        Coercible columns that `layout` reads, equally long.
    matrix : ndarray or scipy.sparse CSR array of shape (n, k), optional
        Design matrix given as such, instead of named columns; read as a dense one.
    unit : array, optional
        Column that names the unit of each row.
    rows : int
        Number of rows.

    Attributes
    ----------
    is_sparse : bool
        Whether the rows of a block are a CSR array; see `SparseSource`.
    """

    is_sparse: ClassVar[bool] = False

    def __init__(
        self,
        layout: Layout,
        columns: Mapping[str, Any],
        rows: int,
        matrix: Any = None,
        unit: Any = None,
    ) -> None:
        self._layout = layout
        self._columns = columns
        self._matrix = matrix
        self._rows = rows
        self._unit_column = unit
        self._step = max(_MIN_ROWS, _BLOCK // max(layout.width, 1))
        if matrix is not None:
            self._filled = _run(layout.positions)
            self._taken = _run(np.array(layout.lookups, dtype=np.intp))
        self._declarations = {
            **layout.declarations,
            **layout.endog_declarations,
            **layout.offset_declarations,
            **layout.weight_declarations,
        }
        self._direct = self._native_columns()
        self._take(layout)

    def _take(self, layout: Layout) -> None:
        self._layout = layout
        self._filled_places = layout.filled
        self._moves = bool(layout.center.any())
        self._scales = bool((layout.scale != 1).any())

    def _native_columns(self) -> list[tuple[int, Any, bool]]:
        """(position, column, whether numpy can cast it on assignment) of the direct columns."""
        if self._matrix is not None:
            return []
        places = self._layout.positions.tolist()
        found = [(p, self._columns[n]) for p, n in zip(places, self._layout.lookups, strict=True)]
        return [(p, c, isinstance(c.dtype, np.dtype) and c.dtype.kind in "fiu") for p, c in found]

    @cached_property
    def _unit(self) -> tuple[NDArray[np.intp], Mask] | None:
        """Unit codes, and the rows that may contribute: of a known unit, and of the subset.

        Made when rows are first read: after the ledger was charged.
        """
        if self._unit_column is None:
            return None
        return _unit_codes(self._unit_column[:], self._of_subset(0, self._rows))

    def _inside(self, start: int, stop: int) -> Mask | None:
        """Which of these rows may contribute at all; None where all may.

        Of others nothing is read: every value counts as missing, and none as out of its range.
        """
        if self._unit is not None:
            return self._unit[1][start:stop]
        return self._of_subset(start, stop)

    def _of_subset(self, start: int, stop: int) -> Mask | None:
        """Which of these rows are in the subset, whose columns are all there."""
        layout = self._layout
        if layout.subset is None:
            return None
        rows, inside = dict[str, Any](), np.ones(max(stop - start, 0), dtype=np.bool_)
        for name, declaration in layout.subset_declarations.items():
            rows[name], missing = declaration.clean(self._columns[name][start:stop])
            inside &= ~missing
        with np.errstate(all="ignore"):  # a warning about a value would be a release
            inside &= layout.subset(rows)
        return inside

    def __len__(self) -> int:
        return self._rows

    @property
    def has_offset(self) -> bool:
        """Whether blocks carry a known term of the linear predictor."""
        return self._layout.offset is not None

    @property
    def has_weights(self) -> bool:
        """Whether blocks carry roots of weights."""
        return self._layout.weights is not None

    def block(self, start: int, stop: int) -> RawBlock:
        """Rows ``start`` to ``stop - 1`` in internal coordinates.

        Returns
        -------
        RawBlock
            The same numbers whichever blocks the rows are read in.
        """
        return self._read(start, stop, internal=True)

    def missing(self, start: int, stop: int) -> Mask:
        """Which values of these rows were missing; see `Source.missing`."""
        return self._observe(start, stop)[1]

    def observed(self, start: int, stop: int) -> Float:
        """Values in the user's units; see `Source.observed`."""
        part, missing = self._observe(start, stop)
        values = np.full(
            missing.shape, np.nan, order="F"
        )  # column by column, as they are asked for
        ends = self._layout.bounds[self._filled_places][: missing.shape[1]]
        with np.errstate(all="ignore"):
            np.clip(part[: len(ends)], ends[:, :1], ends[:, 1:], out=values.T[: len(ends)])
        if missing.any():
            values[missing] = np.nan
        return values

    def astray(self, start: int, stop: int) -> Mask:
        """Values that were moved or missing; see `Source.astray`."""
        start, stop = max(start, 0), min(stop, self._rows)
        inputs, places = self._layout.inputs, self._layout.positions.tolist()
        bounds = dict(zip(self._layout.lookups, self._layout.bounds[places], strict=True))
        whole = np.zeros((4, len(inputs), max(stop - start, 0)), dtype=np.bool_)
        found = whole.transpose(2, 0, 1)  # kept column by column, as it is filled
        for at, name in enumerate(inputs):
            declared = self._declarations.get(name)
            named = isinstance(name, str)
            values = self._columns[name][start:stop] if named else self._matrix[start:stop, name]
            if declared is None or isinstance(declared, Numeric):
                ends = bounds[name] if declared is None else (declared.lower, declared.upper)
                numbers = to_float(values) if named else np.asarray(values, dtype=np.float64)
                found[:, 0, at] = (numbers < ends[0]) | (numbers > ends[1])
                found[:, 1, at] = np.isnan(numbers)
            else:
                places, levels = declared.places(values), len(declared.levels)
                found[:, 2, at] = places == levels
                taken = getattr(declared, "other", None) is not None
                found[:, 1, at] = (places < 0) | (found[:, 2, at] & (not taken))
        found[:, 3] = ~found[:, :3].any(axis=1)
        if (inside := self._inside(start, stop)) is not None:
            found[~inside] = False
        return found

    def under(self, layout: Layout) -> TableSource:
        """The same rows by another layout; see `Source.under`."""
        made = copy(self)
        made._take(layout)
        return made

    def _observe(self, start: int, stop: int) -> tuple[Float, Mask]:
        """Columns and tail as they are evaluated, in rows of an array; and what was missing."""
        start, stop = max(start, 0), min(stop, self._rows)
        layout, d = self._layout, self._layout.width
        part = np.empty((d + len(layout.tail), max(stop - start, 0)))
        with np.errstate(all="ignore"):  # a warning about a value would be a release
            lost = self._evaluate(part, start, stop)
        mask = np.zeros((part.shape[1], d + 1), dtype=np.bool_, order="F")
        np.isnan(part[:d], out=mask.T[:d])
        mask[:, d] = np.isnan(part[d:]).any(axis=0)
        beside = (layout.endog_declarations, layout.offset_declarations, layout.weight_declarations)
        tail = np.array([d]), tuple(name for names in beside for name in names)
        for positions, names in [*((p, n) for p, _, n in layout.computed), tail]:
            for name in names:
                mask[:, positions] |= lost[name][:, None]
        if (inside := self._inside(start, stop)) is not None:
            mask[~inside] = True
        return part, mask

    def raw(self, start: int, stop: int) -> RawBlock:
        """The same rows in the user's units."""
        return self._read(start, stop, internal=False)

    def _read(self, start: int, stop: int, internal: bool) -> RawBlock:
        start, stop = max(start, 0), min(stop, self._rows)
        m, layout = max(stop - start, 0), self._layout
        x = np.empty((m, layout.width), order="F")  # column by column, as it is filled
        tail = [np.empty(m) for _ in layout.tail]
        keep = np.ones(m, dtype=np.bool_)
        for a in range(0, m, self._step):
            b = min(a + self._step, m)
            with np.errstate(all="ignore"):  # a warning about a value would be a release
                part, keep[a:b] = self._part(start + a, start + b, internal)
            x[a:b] = part[: layout.width].T
            for values, row in zip(tail, part[layout.width :], strict=True):
                values[a:b] = row
        unit = None if self._unit is None else self._unit[0][start:stop]
        if (inside := self._inside(start, stop)) is not None:
            keep &= inside
        read = dict(zip(layout.filled[layout.width :] - layout.width, tail, strict=True))
        root = read.get(_WEIGHTS)
        if root is not None:
            keep &= root > NO_WEIGHT * layout.bounds[-1, 1] / layout.scale[-1]
            root = np.sqrt(np.where(keep, root, 0.0))
        return RawBlock(x, read.get(_RESPONSE), keep, unit, read.get(_OFFSET), root)

    def _part(self, start: int, stop: int, internal: bool) -> tuple[Float, Mask]:
        """Columns of the design, and its tail, as rows of an array; and rows to keep."""
        layout = self._layout
        part = np.empty((layout.width + len(layout.tail), stop - start))
        keep = np.ones(stop - start, dtype=np.bool_)
        for missing in self._evaluate(part, start, stop).values():
            keep &= ~missing
        at = self._filled_places
        ends = layout.bounds[at]
        np.clip(part, ends[:, :1], ends[:, 1:], out=part)
        if np.isnan(part.min(initial=0.0)):
            lost = np.isnan(part)
            keep &= ~lost.any(axis=0)
            np.copyto(part, layout.fill[at, None], where=lost)
        if internal and self._moves:
            part -= layout.center[at, None]
        if internal and self._scales:
            part /= layout.scale[at, None]
        return part, keep

    def _evaluate(self, part: Float, start: int, stop: int) -> dict[str, Mask]:
        """Fill `part`; return where the values of each declared column are missing."""
        layout = self._layout
        if layout.intercept is not None:
            part[layout.intercept] = 1.0
        for position, column, native in self._direct:
            values = column[start:stop]
            part[position] = values if native else to_float(values)
        if self._matrix is not None and layout.lookups:
            part[self._filled] = _dense(self._matrix[start:stop]).T[self._taken]
        rows: dict[str, Any] = {}
        lost: dict[str, Mask] = {}
        for name, declaration in self._declarations.items():
            rows[name], lost[name] = declaration.clean(self._columns[name][start:stop])
        for positions, function, _ in layout.computed:
            part[positions] = function(rows).T
        for position, function in enumerate(layout.tail, layout.width):
            part[position] = function(rows)
        return lost


def _unit_codes(unit: Any, inside: Mask | None = None) -> tuple[NDArray[np.intp], Mask]:
    """One code per unit, and the rows whose unit is known and which are in a subset.

    A row of nobody is left out, as if a value were missing: whose limit would it count against? So
    is one outside of the subset, which is not to take the place of one inside. Its code
    is its own, so that it takes nobody's place either. In an object column a unit is named by text
    or number, as a level is: a cell that is equal to others by a rule of its own would take the
    places of their rows.
    """
    import pandas as pd

    unit = to_keys(unit) if is_object(unit) else unit
    codes = np.array(pd.factorize(unit, use_na_sentinel=True)[0], dtype=np.intp)
    named = codes >= 0 if inside is None else (codes >= 0) & inside
    codes[~named] = codes.max(initial=-1) + 1 + np.arange(np.count_nonzero(~named))
    return codes, named


def _run(positions: NDArray[np.intp]) -> slice | NDArray[np.intp]:
    """Positions as a slice where they follow each other, so that numpy makes no copy."""
    if positions.size == 0 or not (np.diff(positions) == 1).all():
        return positions
    return slice(int(positions[0]), int(positions[-1]) + 1)


def _dense(rows: Any) -> Float:
    return np.asarray(rows.toarray() if hasattr(rows, "toarray") else rows, dtype=np.float64)
