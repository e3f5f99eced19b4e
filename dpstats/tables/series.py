"""Columns in the memory of pyarrow, polars or pandas' Arrow types, as arrays of numpy or pandas.

Nobody checks that the text in such memory is UTF-8, and what reads it mostly fails as a whole where
one cell is not. So text is taken as bytes, and each value is decoded by itself: what is no text is
missing. This happens where rows are read, after they were paid for.
"""

from __future__ import annotations

import sys
from abc import ABC, abstractmethod
from typing import Any

import narwhals.stable.v1 as nw
import numpy as np
import pandas as pd
from numpy.typing import NDArray

__all__ = ["TEXT", "TextColumn", "UnreadColumn", "in_arrow", "of_series"]

_OF_NUMPY = (nw.Boolean, nw.Object, nw.Date, nw.Datetime, nw.Duration)
TEXT = pd.StringDtype("python")  # of Python texts, whose dtype an object array would hide


class UnreadColumn(ABC):
    """A column that is read when it is sliced; it has a ``dtype`` and a length before."""

    ndim = 1

    @abstractmethod
    def __getitem__(self, part: slice) -> Any:
        """Some of its values, as an array."""


class TextColumn(UnreadColumn):
    """Text that may not be UTF-8: a slice of it is an array of texts, missing where it is not.

    Parameters
    ----------
    series : narwhals Series
        Of texts or categories.
    """

    dtype = TEXT

    def __init__(self, series: Any) -> None:
        self._series = series

    def __len__(self) -> int:
        return len(self._series)

    def __getitem__(self, part: slice | NDArray[Any]) -> Any:
        if not isinstance(part, slice) or part.step not in (None, 1):  # which pyarrow may not take
            rows = np.arange(len(self))[part]
            first, end = int(rows.min(initial=len(self))), int(rows.max(initial=-1)) + 1
            return self[first:end][rows - first]
        start, stop, _ = part.indices(len(self))
        series = _plain(self._series[start : max(start, stop)])
        series = series if series.dtype == nw.String else series.cast(nw.String)
        cells = series.cast(nw.Binary).to_numpy()
        codes, distinct = pd.factorize(cells, use_na_sentinel=True)
        texts = np.empty(len(distinct) + 1, dtype=object)  # the last one is missing
        texts[:-1] = [_decoded(each) for each in distinct]
        return pd.array(texts[codes], dtype=TEXT)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        return np.asarray(self[:], dtype=dtype)


def _decoded(cell: bytes) -> str | None:
    try:
        return cell.decode("utf-8")
    except UnicodeDecodeError:
        return None


def in_arrow(values: Any) -> Any:
    """A column of pyarrow or of pandas' Arrow types as pyarrow's own; None for any other."""
    dtype = getattr(values, "dtype", None)
    of_pandas = isinstance(dtype, pd.ArrowDtype)
    if of_pandas or (isinstance(dtype, pd.StringDtype) and dtype.storage != "python"):
        values = getattr(values, "array", values).__arrow_array__()
    elif not type(values).__module__.startswith("pyarrow"):
        return None
    arrow = sys.modules["pyarrow"]
    values = arrow.chunked_array([values]) if isinstance(values, arrow.Array) else values
    return values if isinstance(values, arrow.ChunkedArray) else None


def of_series(values: Any) -> Any:
    """A column of pyarrow or polars as an array.

    Numbers and truth values keep their type where some are missing; decimals become float64. Of a
    type that is neither number nor text an array of this name comes back, which whoever needs one
    of them refuses.

    Raises
    ------
    TypeError
        If it is no column.
    """
    series = nw.from_native(values, series_only=True)
    dtype = _plain(series.head(0)).dtype
    if dtype in (nw.String, nw.Categorical, nw.Enum):
        return TextColumn(series)
    series = _plain(series)
    if dtype in (nw.Decimal, nw.Int128, nw.UInt128):
        series = series.cast(nw.Float64)
    elif (dtype == nw.Boolean or dtype.is_integer()) and series.null_count():
        return _masked(series)
    elif dtype == nw.Unknown and _type_of(series).lower() == "null":
        return np.full(len(series), None, dtype=object)
    elif not (dtype.is_numeric() or dtype in _OF_NUMPY):
        return np.empty(len(series), dtype=[(_type_of(series), "V1")])
    return series.to_numpy()


def _plain(series: Any) -> Any:
    """A column of pyarrow without dictionary and runs, and decimals as float64; others as is."""
    values = series.to_native()
    if not type(values).__module__.startswith("pyarrow"):
        return series
    arrow, kind = sys.modules["pyarrow"], values.type
    if arrow.types.is_dictionary(kind):
        values = values.cast(kind.value_type)
    elif arrow.types.is_run_end_encoded(kind):
        from pyarrow.compute import run_end_decode

        values = run_end_decode(values)
    elif arrow.types.is_decimal(kind):
        return nw.from_native(values.cast(arrow.float64()), series_only=True)
    else:
        return series
    return _plain(nw.from_native(values, series_only=True))


def _masked(series: Any) -> Any:
    """Whole numbers or truth values, some missing: numpy would make other types of them."""
    missing = np.array(series.is_null().to_numpy(), dtype=np.bool_)
    if series.dtype == nw.Boolean:
        return pd.arrays.BooleanArray(np.array(series.fill_null(False).to_numpy()), missing)
    return pd.arrays.IntegerArray(np.array(series.fill_null(0).to_numpy()), missing)


def _type_of(series: Any) -> str:
    """The type of a column as its package calls it."""
    native = series.to_native()
    return str(getattr(native, "type", getattr(native, "dtype", series.dtype)))
