"""Any table as columns by name: pandas, polars, pyarrow, or a mapping of 1-d arrays."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import narwhals.stable.v1 as nw
import pandas as pd

from dpstats.errors import DataError, scrubbed
from dpstats.tables.coercion import as_column

__all__ = [
    "SizedTable",
    "check_arrow",
    "check_unique",
    "column_names",
    "named_columns",
    "row_count",
    "without_rows",
]

_SHOWN = 30  # names in an error


class SizedTable(Mapping[str, Any]):
    """A table whose number of rows is known before one is read.

    Attributes
    ----------
    rows : int
        Their number.
    """

    rows: int


@scrubbed
def named_columns(table: Any, names: Iterable[str] | None = None) -> dict[str, Any]:
    """Columns of a table by name, as 1-d arrays in row order, without a copy where possible.

    Parameters
    ----------
    table : pandas or polars DataFrame, pyarrow.Table, or mapping of names to 1-d values
        Private or public rows.
    names : iterable of str, optional
        Columns wanted; all of them by default.

    Returns
    -------
    dict of str to array
        All of one length.

    Raises
    ------
    DataError
        If the object is no table, a name is missing or twice there, or lengths differ.
    """
    available, column = _open(table)
    check_unique(available)
    wanted = list(available) if names is None else list(names)
    known = set(available)
    absent = [name for name in wanted if name not in known]
    if absent:
        raise DataError(f"The table has no column {_some(absent)}. It has: {_some(available)}.")
    columns = {name: as_column(column(name), str(name)) for name in wanted}
    if len({len(values) for values in columns.values()}) > 1:
        raise DataError("The columns have different lengths; one value per row is needed in each.")
    return columns


def check_unique(names: Iterable[Any], where: str = "") -> None:
    """Refuse names that are there twice, after the name of the file that they are of.

    Raises
    ------
    DataError
        With these names.
    """
    twice = [name for name, times in Counter(names).items() if times > 1]
    if twice:
        said = "column names appear twice" if where else "Column names appear twice"
        raise DataError(f"{where}{said}: {twice}. Rename them so that each is unique.")


def check_arrow(table: Any) -> None:
    """Refuse a table of pyarrow that has two columns of one name, which narwhals cannot open.

    Raises
    ------
    DataError
        With the name.
    """
    if isinstance(names := getattr(table, "column_names", None), list):
        check_unique(names)


def _some(names: Sequence[Any]) -> str:
    """The first names of a list, and how many there are beyond."""
    shown = ", ".join(map(repr, names[:_SHOWN]))
    return shown if len(names) <= _SHOWN else f"{shown} ... ({len(names):,} in all)"


def _several(table: dict[str, Any]) -> bool:
    """Whether what is given as columns are whole tables."""
    tables = (isinstance(v, Mapping) or hasattr(v, "columns") for v in table.values())
    return bool(table) and all(tables)


def _open(table: Any) -> tuple[list[Any], Any]:
    """Column names, and a function from a name to its column."""
    if isinstance(table, pd.DataFrame):
        return list(table.columns), table.__getitem__
    if isinstance(table, Mapping):
        if type(table) is dict and _several(table):  # others may read a column when it is looked at
            raise DataError(
                f"One table is needed here; {_some(list(table))} are several. Tables of sites are "
                "for ols, logit, glm and mean under Federated(..., target=...)."
            )
        return list(table), table.__getitem__
    check_arrow(table)
    try:
        frame = nw.from_native(table)
    except TypeError:
        raise DataError(
            f"A {type(table).__name__} is no table: pass a pandas or polars DataFrame, a "
            "pyarrow.Table or a dict of arrays."
        ) from None
    if isinstance(frame, nw.LazyFrame):
        raise DataError("The table is lazy: collect it first, as in frame.collect().")
    return list(frame.columns), frame.get_column


def column_names(table: Any) -> list[str]:
    """Names of the columns of a table that `named_columns` reads, those that are text."""
    return [name for name in _open(table)[0] if isinstance(name, str)]


def row_count(table: Any) -> int:
    """Number of rows of a table that `named_columns` reads."""
    if isinstance(table, SizedTable):
        return table.rows
    if isinstance(table, Mapping):
        return len(next(iter(table.values()), ()))
    return len(table)


def without_rows(table: Any) -> Any:
    """The table's names and types with no row in it."""
    if isinstance(table, pd.DataFrame):
        return table.iloc[:0]
    if isinstance(table, Mapping):
        return {name: as_column(values, str(name))[:0] for name, values in table.items()}
    try:
        return nw.from_native(table, eager_only=True).head(0).to_native()
    except TypeError:
        return table
