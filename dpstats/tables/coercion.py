"""Any 1-d values, row by row, into floats or level codes; what cannot be used becomes "missing".

Nothing here raises on a value, warns, or lets one row decide how another is read. What may raise is
a *type*: the dtype of a column. An object column, like a list, has no other type than that, so each
of its cells is read by itself: were the Python types of the cells compared, one person's cell would
decide whether everybody's column is refused.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import date, datetime
from decimal import Decimal
from fractions import Fraction
from typing import Any
from uuid import UUID

import narwhals.stable.v1 as nw
import numpy as np
import pandas as pd
from numpy.typing import NDArray

from dpstats.errors import DataError, scrubbed
from dpstats.tables.series import TEXT, UnreadColumn, in_arrow, of_series

__all__ = [
    "UnreadColumn",
    "as_column",
    "as_matrix",
    "check_kind",
    "is_object",
    "kind_of",
    "level_keys",
    "number",
    "to_codes",
    "to_float",
    "to_keys",
]

Float = NDArray[np.float64]
Column = (
    Any  # a 1-d numpy array or pandas extension array, or `UnreadColumn`: sliceable by position
)

_ARRAYS = (np.ndarray, pd.Series, pd.Index, pd.api.extensions.ExtensionArray)
_NUMPY_KINDS = {"f": "number", "i": "number", "u": "number", "b": "boolean", "U": "text"}
_NAMED = (date, datetime, pd.Timestamp, UUID, bytes)  # what may name a level or a unit, as text
_LONGEST = 10**4000  # Python writes no much longer number in digits


@scrubbed
def as_column(values: Any, name: str) -> Column:
    """Values as a numpy or pandas extension array of one dimension, without a copy where possible.

    Parameters
    ----------
    values : pandas, polars or pyarrow column, numpy array, list or tuple
        Private or public values.
    name : str
        Column name, for the message.

    Raises
    ------
    DataError
        If `values` is not one-dimensional.
    """
    if isinstance(values, nw.Series):
        values = values.to_native()
    if isinstance(values, UnreadColumn):
        return values
    if isinstance(values, (list, tuple, range)):
        values = _objects(values, len(values))
    elif isinstance(values, np.ma.MaskedArray):
        missing = np.ma.getmaskarray(values)
        values = np.ma.getdata(values).astype(object)
        values[missing] = None
    elif (arrow := in_arrow(values)) is not None:
        values = of_series(arrow)
    elif not isinstance(values, _ARRAYS):
        try:
            values = of_series(values)
        except TypeError:
            raise DataError(
                f"Column {name!r} is a {type(values).__name__}; pass a pandas, polars or pyarrow "
                "column, a numpy array or a list."
            ) from None
    if isinstance(values, (pd.Series, pd.Index)):
        native = isinstance(values.dtype, np.dtype)
        values = values.to_numpy() if native else values.array
    if values.dtype.kind == "T":  # text of numpy's own
        values = _texts(values)
    if values.ndim != 1:
        raise DataError(
            f"Column {name!r} has {values.ndim} dimensions; one value per row is needed."
        )
    return values


def as_matrix(values: Any) -> Any:
    """A list of rows as an object array of shape (n, k); anything else as it is.

    Raises
    ------
    DataError
        If the rows of a list differ in length.
    """
    if not isinstance(values, (list, tuple)):
        return values
    widths = {len(row) if isinstance(row, (list, tuple, np.ndarray)) else -1 for row in values}
    if len(widths) != 1 or -1 in widths:
        raise DataError("A list is no array of shape (n, d) unless its rows have one length.")
    shape = len(values), widths.pop()
    return _objects(itertools.chain.from_iterable(values), shape[0] * shape[1]).reshape(shape)


def _objects(values: Iterable[Any], count: int) -> NDArray[Any]:
    """Values as an object array; any other dtype would be learned from them."""
    return np.fromiter(values, dtype=object, count=count)


def _texts(values: Any) -> Column:
    """Text by type, missing where a cell is none."""
    cells = values.astype(object)
    cells[np.fromiter((type(v) is not str for v in cells), np.bool_, len(cells))] = None
    return pd.array(cells, dtype=TEXT)


def is_object(column: Column) -> bool:
    """Whether any Python object may stand in the column."""
    return isinstance(column.dtype, np.dtype) and column.dtype.kind == "O"


def kind_of(column: Column) -> str:
    """``"number"``, ``"boolean"``, ``"text"``, ``"object"`` or a type that cannot be used."""
    dtype = column.dtype
    if isinstance(dtype, pd.CategoricalDtype):
        return kind_of(as_column(dtype.categories, "categories"))
    if is_object(column):
        return "object"
    if isinstance(dtype, np.dtype):
        named = dtype.names[0] if dtype.names is not None else str(dtype)  # see `of_series`
        return _NUMPY_KINDS.get(dtype.kind, named)
    for kind, is_kind in (
        ("boolean", pd.api.types.is_bool_dtype),
        ("number", pd.api.types.is_numeric_dtype),
        ("text", pd.api.types.is_string_dtype),
    ):
        if is_kind(dtype):
            return kind
    return str(dtype)


def check_kind(column: Column, name: str, allowed: Sequence[str]) -> None:
    """Refuse a column whose dtype no rule maps row by row; no value of it is looked at.

    Raises
    ------
    DataError
        Naming the column, its type and the remedy.
    """
    kind = kind_of(column)
    if kind not in (*allowed, "object"):
        raise DataError(
            f"Column {name!r} has type {kind}; it was declared as something that needs "
            f"{' or '.join(allowed)}. Convert it first, or change its declaration."
        )


def to_float(column: Column) -> Float:
    """Numbers as float64 of shape (n,); NaN for whatever is no number."""
    column = column[:] if isinstance(column, UnreadColumn) else column
    dtype = column.dtype
    if isinstance(dtype, pd.CategoricalDtype):
        levels = to_float(as_column(dtype.categories, "categories"))
        found: Float = np.append(levels, np.nan)[np.asarray(column.codes)]
        return found
    kind = dtype.kind if isinstance(dtype, np.dtype) else None
    if kind is not None and kind in "fiub":
        with np.errstate(all="ignore"):
            return np.asarray(column, dtype=np.float64)
    if kind is None and pd.api.types.is_numeric_dtype(dtype):
        numbers_: Float = column.to_numpy(dtype=np.float64, na_value=np.nan)
        return numbers_
    parsed: Float = _by_cell(column, number, math.nan, np.float64)
    return parsed


def number(value: Any) -> float:
    """The number that one cell holds, infinite beyond float64; NaN where it holds none.

    Numbers are those of Python, numpy, `decimal` and `fractions`, and text that ``float`` reads.
    """
    try:
        plain = _plain(value)
        return math.nan if plain is None else float(plain)
    except OverflowError:  # of a whole number or a fraction
        return math.inf if plain > 0 else -math.inf
    except Exception:  # whatever a cell holds, it says so to nobody
        return math.nan


def _plain(value: Any) -> Any:
    """One cell as a text or number of an exact type; None for anything else.

    Types are asked, and their own methods called, never those of a subclass: a cell compares equal
    to no other by a rule of its own, and a hostile one can at worst raise.
    """
    kind = type(value)
    if kind is bool or kind is float or kind is str:
        return value
    if issubclass(kind, str):
        return str.__str__(value)
    if issubclass(kind, np.timedelta64):  # to numpy a whole number
        return None
    if issubclass(kind, (int, np.integer)):
        return int(value) if issubclass(kind, np.integer) else int.__int__(value)
    if issubclass(kind, float):
        return float.__float__(value)
    if issubclass(kind, np.bool_):
        return bool(value)
    if issubclass(kind, np.floating):
        return value
    if issubclass(kind, (Decimal, Fraction)):
        return (Decimal if issubclass(kind, Decimal) else Fraction)(value)
    if kind in _NAMED:
        return repr(value) if kind is bytes else str(value)
    return None


def to_codes(column: Column, levels: Mapping[str, int], unseen: int) -> NDArray[np.intp]:
    """Level codes of shape (n,): -1 where missing, `unseen` where the value is no level.

    Parameters
    ----------
    column : array
        From `as_column`.
    levels : mapping of str to int
        `level_keys` of each level to its code.
    unseen : int
        Code of a value that is no level.
    """

    def code(value: Any) -> int:
        keys = level_keys(value)
        return next((levels[key] for key in keys if key in levels), unseen if keys else -1)

    codes: NDArray[np.intp] = _by_cell(column, code, -1, np.intp)
    return codes


def level_keys(value: Any) -> tuple[str, ...]:
    """Texts under which a level is found: numbers by value (1, 1.0, True and "1"), text exactly.

    None for a missing value, and for what is neither number nor text nor names anything.
    """
    try:
        plain = _plain(value)
        if plain is None or isinstance(plain, str):
            return () if plain is None else (plain,)
        if isinstance(plain, bool):
            return (str(int(plain)), str(plain))
        text = _digits(plain)
        return () if text is None else (text,)
    except Exception:  # as in `number`
        return ()


def _digits(plain: Any) -> str | None:
    """One text for each value of a number; None for NaN."""
    if isinstance(plain, int):
        return str(plain) if -_LONGEST < plain < _LONGEST else hex(plain)
    rounded = number(plain)
    if math.isnan(rounded):
        return None
    whole = math.floor(plain) if math.isfinite(rounded) else None
    if whole == plain:
        return str(whole)
    return str(plain) if isinstance(plain, (float, np.floating)) else str(rounded)


def to_keys(column: Column) -> NDArray[Any]:
    """What each cell of an object column names: a text, or None; see `level_keys`."""
    keys: NDArray[Any] = _by_cell(column, lambda v: next(iter(level_keys(v)), None), None, object)
    return keys


def _by_cell(column: Column, rule: Callable[[Any], Any], missing: Any, dtype: Any) -> Any:
    """Apply `rule` to each cell, once to each distinct one of a type that tells them apart.

    In an object column that is text alone: True, 1 and 1.0 are equal, and what a subclass is equal
    to it decides itself, so the first of several equal cells would say how all of them are read.
    """
    column = column[:] if isinstance(column, UnreadColumn) else column
    if is_object(column):
        text = np.fromiter((type(v) is str for v in column), dtype=np.bool_, count=len(column))
        if not text.all():
            made = np.empty(len(column), dtype=dtype)
            made[text] = _by_cell(column[text], rule, missing, dtype)
            made[~text] = np.fromiter(map(rule, column[~text]), dtype, np.count_nonzero(~text))
            return made
    codes, uniques = pd.factorize(column, use_na_sentinel=True)
    table = np.empty(len(uniques) + 1, dtype=dtype)
    table[:-1] = [rule(value) for value in uniques]
    table[-1] = missing
    return table[codes]
