"""Public rows that a subset keeps: an expression of public columns picks them, as anybody could."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dpstats.design.public_columns import PublicRows
from dpstats.design.public_values import AT_ONCE
from dpstats.design.subsets import read_subset
from dpstats.design.terms import Terms
from dpstats.errors import DataError, FormulaError
from dpstats.schema import Schema
from dpstats.tables import named_columns, row_count
from dpstats.tables.streams import Stream

__all__ = ["RowsOf", "SomeRows", "of_rows"]


class RowsOf(NamedTuple):
    """Some rows of a table of public covariates, and the expression that says which."""

    table: Any
    subset: str


@dataclass(frozen=True, eq=False)
class SomeRows:
    """Public columns of the rows of a subset.

    Attributes
    ----------
    text : str
        The subset.
    columns : mapping
        Public columns of its rows.
    rows : ndarray of int
        Where these stand in the table.
    table : table or None
        What the response is read from, where it is not the table that was given.
    """

    text: str
    columns: Mapping[str, Any]
    rows: NDArray[np.intp]
    table: Any

    def placed(self, found: PublicRows) -> PublicRows:
        """Rows that were found in `columns`, by their places in the table."""
        return replace(found, kept=self.rows[np.asarray(found.kept)], table=self.table)


def of_rows(
    subset: str, schema: Schema, data: Any, public: Sequence[str], private: Collection[str]
) -> SomeRows:
    """The rows of a subset; no response is looked at.

    Raises
    ------
    FormulaError
        If it is no expression of declared columns, or one of them is the private response.
    DataError
        If it keeps no row, or the table is read in batches and too long to be read at once.
    """
    meant = read_subset(subset, Terms(schema))
    if both := sorted(private & meant.declarations.keys()):
        raise FormulaError(
            f"subset={meant.text!r} reads {both[0]!r}, the private response: which rows are meant "
            "would tell of it. Ask for Central(epsilon, delta), which hides that, too."
        )
    table = None
    if isinstance(data, Stream):
        if data.rows > AT_ONCE:
            raise DataError(
                f"subset= of {data.rows:,} public rows: at most {AT_ONCE:,} are read at once. "
                "Write the rows that are meant to a file first: that they are public makes it safe."
            )
        table = data = data.collected([*public, *private])
    columns, n = named_columns(data, public), row_count(data)
    inside, coerced = np.ones(n, dtype=np.bool_), dict[str, Any]()
    for name, declared in meant.declarations.items():
        coerced[name], missing = declared.coerce(columns[name], name)
        inside &= ~missing
    rows = np.flatnonzero(inside & meant.evaluate(coerced))
    if not rows.size:
        raise DataError(f"subset={meant.text!r} keeps none of the {n:,} public rows.")
    return SomeRows(meant.text, {name: c[rows] for name, c in columns.items()}, rows, table)
