"""New rows that are to be predicted. They are the user's own: what is odd of them may be said."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dpstats.design.layout import Layout
from dpstats.schema import Boolean, Categorical, Declaration, Numeric, Schema
from dpstats.tables import named_columns
from dpstats.tables.coercion import to_float

__all__ = ["Astray", "astray", "columns_of", "held_columns", "unheld", "without_range"]

Float = NDArray[np.float64]

_FARTHEST = 1e300  # numerical: where a value is held that is held to no declared range


class Astray(NamedTuple):
    """How many values of one input lie outside of what is declared.

    Attributes
    ----------
    outside : int
        Outside of the declared range.
    undeclared : int
        Of no declared level; missing ones are not counted.
    """

    outside: int = 0
    undeclared: int = 0


def unheld(declared: Mapping[str, Declaration]) -> dict[str, Declaration]:
    """The declarations of numbers that are held to no range."""
    return {
        name: replace(d, lower=-_FARTHEST, upper=_FARTHEST) if isinstance(d, Numeric) else d
        for name, d in declared.items()
    }


def without_range(layout: Layout) -> Layout:
    """The layout of the same columns, held to no range."""
    ends = np.broadcast_to([-_FARTHEST, _FARTHEST], layout.bounds.shape)
    return replace(layout, bounds=ends, declarations=unheld(layout.declarations))


def astray(
    layout: Layout, rows: Mapping[Any, Any], declared: Mapping[str, Declaration]
) -> list[Astray]:
    """Of each input of the design but the response, in the order of `Layout.inputs`.

    Parameters
    ----------
    layout : Layout
        Of a design without its response.
    rows : mapping of columns
        The new rows, as the design reads them; columns of a matrix by their position.
    declared : mapping
        Declarations of columns that have a name.
    """
    held = dict(zip(layout.lookups, layout.bounds[layout.positions], strict=True))
    declared = {**declared, **layout.offset_declarations}
    found = []
    for name in layout.inputs:
        declaration = declared.get(name)
        if isinstance(declaration, Categorical | Boolean):
            found.append(Astray(undeclared=_undeclared(rows[name], declaration)))
            continue
        if declaration is not None:
            held.setdefault(name, np.array([declaration.lower, declaration.upper]))
        found.append(_outside(to_float(np.atleast_1d(rows[name])), *held[name]))
    return found


def _outside(values: Float, lower: float, upper: float) -> Astray:
    return Astray(int(np.count_nonzero((values < lower) | (values > upper))))


def _undeclared(column: Any, declaration: Categorical | Boolean) -> int:
    if isinstance(declaration, Categorical) and declaration.other is not None:
        return 0
    return int(np.count_nonzero(declaration.places(column) == len(declaration.levels)))


def columns_of(matrix: Any, places: tuple[int, ...]) -> dict[Any, Float]:
    """Columns of a matrix; of a sparse one what is stored, for 0 is inside of its bounds."""
    if not hasattr(matrix, "tocsc"):
        dense = np.asarray(matrix, dtype=np.float64)
        return {place: dense[:, place] for place in places}
    stored = matrix.tocsc(copy=True)
    stored.sum_duplicates()
    ends = stored.indptr
    return {place: stored.data[ends[place] : ends[place + 1]] for place in places}


def held_columns(table: Any, names: Iterable[str], schema: Schema) -> dict[str, Any]:
    """Columns of new rows by name: numbers within their declared range, nan where missing."""
    columns = named_columns(table, names)
    for name, column in columns.items():
        if isinstance(schema[name], Numeric):
            values, missing = schema.coerce(name, column)
            columns[name] = np.where(missing, np.nan, values)
    return columns
