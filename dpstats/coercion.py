"""Any 1-d values, row by row, into floats or level codes; what cannot be used becomes "missing".

Nothing here raises on a value, warns, or lets one row decide how another is read. What may raise is
a *type*: the dtype of a column, and for object columns the Python types of its entries.
"""

from __future__ import annotations

import math
import numbers
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import narwhals.stable.v1 as nw
import numpy as np
import pandas as pd
from numpy.typing import NDArray

from dpstats.errors import DataError

__all__ = ["as_column", "check_kind", "kind_of", "level_keys", "to_codes", "to_float"]

Float = NDArray[np.float64]
Column = Any  # a 1-d numpy array or pandas extension array: sliceable by position

_NUMPY_KINDS = {"f": "number", "i": "number", "u": "number", "b": "boolean", "U": "text"}
_OBJECT_KINDS = {
    "string": "text",
    "integer": "number",
    "floating": "number",
    "mixed-integer-float": "number",
    "decimal": "number",
    "boolean": "boolean",
    "empty": "number",
}


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
    if isinstance(values, (list, tuple, range)):
        values = _from_list(list(values))
    elif isinstance(values, np.ma.MaskedArray):
        missing = np.ma.getmaskarray(values)
        values = np.ma.getdata(values).astype(object)
        values[missing] = None
    elif not isinstance(
        values, (np.ndarray, pd.Series, pd.Index, pd.api.extensions.ExtensionArray)
    ):
        values = _from_narwhals(values, name)
    if isinstance(values, (pd.Series, pd.Index)):
        native = isinstance(values.dtype, np.dtype)
        values = values.to_numpy() if native else values.array
    if values.ndim != 1:
        raise DataError(
            f"Column {name!r} has {values.ndim} dimensions; one value per row is needed."
        )
    return values


def _from_list(values: list[Any]) -> pd.Series:
    """A list as a series; one null among whole numbers must not round the others to float64."""
    series = pd.Series(values)
    rounds = series.dtype.kind == "f" and any(isinstance(v, numbers.Integral) for v in values)
    return pd.Series(values, dtype=object) if rounds else series


def _from_narwhals(values: Any, name: str) -> Column:
    try:
        series = (
            values if isinstance(values, nw.Series) else nw.from_native(values, series_only=True)
        )
    except TypeError:
        raise DataError(
            f"Column {name!r} is a {type(values).__name__}; pass a pandas, polars or pyarrow "
            "column, a numpy array or a list."
        ) from None
    dtype = series.dtype
    if dtype in (nw.Categorical, nw.Enum):
        series = series.cast(nw.String)
    elif dtype == nw.Decimal:
        series = series.cast(nw.Float64)
    elif dtype.is_integer() and series.null_count():  # numpy would round all to float64
        missing = np.array(series.is_null().to_numpy(), dtype=np.bool_)
        return pd.arrays.IntegerArray(np.array(series.fill_null(0).to_numpy()), missing)
    return series.to_numpy()


def kind_of(column: Column) -> str:
    """``"number"``, ``"boolean"``, ``"text"`` or a name of the type that cannot be used."""
    dtype = column.dtype
    if isinstance(dtype, pd.CategoricalDtype):
        return kind_of(as_column(dtype.categories, "categories"))
    if isinstance(dtype, np.dtype) and dtype.kind == "O":
        found = pd.api.types.infer_dtype(column, skipna=True)
        return _OBJECT_KINDS.get(found, f"object ({found})")
    if isinstance(dtype, np.dtype):
        return _NUMPY_KINDS.get(dtype.kind, str(dtype))
    for kind, is_kind in (
        ("boolean", pd.api.types.is_bool_dtype),
        ("number", pd.api.types.is_numeric_dtype),
        ("text", pd.api.types.is_string_dtype),
    ):
        if is_kind(dtype):
            return kind
    return str(dtype)


def check_kind(column: Column, name: str, allowed: Sequence[str]) -> None:
    """Refuse a column whose type no rule maps row by row.

    For an object column the Python types of the entries are looked at, never the entries: a
    column that mixes text and numbers is an error of the file reader, and guessing would hide it.

    Raises
    ------
    DataError
        Naming the column, its type and the remedy.
    """
    kind = kind_of(column)
    if kind in allowed:
        return
    if kind.startswith("object"):
        raise DataError(
            f"Column {name!r} is an object column that mixes Python types {kind[7:]}. Give it one "
            f"type first: df[{name!r}].astype(str) for levels, or pd.to_numeric(df[{name!r}], "
            "errors='coerce') for numbers."
        )
    raise DataError(
        f"Column {name!r} has type {kind}; it was declared as something that needs "
        f"{' or '.join(allowed)}. Convert it first, or change its declaration."
    )


def to_float(column: Column) -> Float:
    """Numbers as float64 of shape (n,); NaN for whatever is no number."""
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
    parsed: Float = _by_unique(column, _parse, np.nan, np.float64)
    return parsed


def _parse(value: Any) -> float:
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf
    except (TypeError, ValueError):
        return math.nan


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
        return next((levels[key] for key in level_keys(value) if key in levels), unseen)

    codes: NDArray[np.intp] = _by_unique(column, code, -1, np.intp)
    return codes


def level_keys(value: Any) -> tuple[str, ...]:
    """Texts under which a level is found: numbers by value (1, 1.0, True and "1"), text exactly."""
    if isinstance(value, (bool, np.bool_)):
        return (str(int(value)), str(bool(value)))
    if isinstance(value, numbers.Real) and math.isfinite(value):
        whole = math.floor(value)
        return (str(whole) if value == whole else str(value),)
    return (str(value),)


def _by_unique(column: Column, rule: Callable[[Any], Any], missing: Any, dtype: Any) -> Any:
    """Apply `rule` once to each distinct value; `missing` for nulls."""
    codes, uniques = pd.factorize(column, use_na_sentinel=True)
    table = np.empty(len(uniques) + 1, dtype=dtype)
    table[:-1] = [rule(value) for value in uniques]
    table[-1] = missing
    return table[codes]
