"""A table from a file: CSV or Parquet."""

from __future__ import annotations

import os
from collections.abc import Collection
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from dpstats.errors import DataError
from dpstats.tables.formats import CSV, check_are_text, check_suffix, is_parquet
from dpstats.tables.records import csv_header, read_csv

if TYPE_CHECKING:
    from dpstats.schema import Schema

__all__ = ["check_file", "read_schema", "read_table", "schema_template"]


def read_schema(path: Path) -> Schema:
    """The schema of a file.

    Raises
    ------
    DataError
        If there is no such file.
    """
    from dpstats.schema import Schema

    if not path.is_file():
        raise DataError(f"{path}: no such schema file; dp.Schema(...).save(path) writes one.")
    return Schema.load(path)


def schema_template(
    data: Path | CSV, categorical: Collection[str] = (), boolean: Collection[str] = ()
) -> Schema:
    """A schema with blanks for the columns of a file, of which only names and types are read.

    Parameters
    ----------
    data : Path or CSV
        CSV or Parquet. The columns of a CSV file have no types: all are taken to be numeric.
    categorical, boolean : collection of str
        Columns that are declared so instead.

    Raises
    ------
    DataError
        If there is no such file, or its first line holds no names.
    SchemaError
        If a column is not there.
    """
    from dpstats.schema import Schema

    path, how = _one_file(data)
    if how is None:
        empty = _empty_parquet(path)
    else:
        empty = dict.fromkeys(csv_header(path, how), np.empty(0))
    return Schema.template(empty, categorical=categorical, boolean=boolean)


def read_table(data: str | os.PathLike[str] | CSV, schema: Schema) -> Any:
    """The table of a file, whose kind its name tells.

    Raises
    ------
    DataError
        If there is no such file, or it is none of these; its content is not quoted.
    """
    path, how = _one_file(data)
    return _read_parquet(path) if how is None else read_csv(path, schema, how)


def check_file(data: str | os.PathLike[str] | CSV) -> None:
    """Refuse what cannot be a table by its name, and a file that is not there.

    Raises
    ------
    DataError
        If it is so, or there are several files.
    """
    _one_file(data)


def _one_file(data: str | os.PathLike[str] | CSV) -> tuple[Path, CSV | None]:
    """A file that is there, and how it is read; None for Parquet."""
    how = data if isinstance(data, CSV) else CSV(data)
    path = how.path
    check_suffix(path)
    if not path.exists():
        raise DataError(f"{path}: no such file.")
    if not is_parquet(path):
        return path, how
    if how is data:
        check_are_text([path])
    return path, None


def _empty_parquet(path: Path) -> Any:
    import pyarrow.parquet

    try:
        return pyarrow.parquet.read_schema(path).empty_table()
    except (ValueError, OSError) as error:
        unreadable = type(error).__name__
    raise DataError(f"{path.name} could not be read as Parquet ({unreadable}).")


def _read_parquet(path: Path) -> Any:
    import pandas as pd

    try:
        return pd.read_parquet(path)
    except (ValueError, OSError) as error:
        unreadable = type(error).__name__
    raise DataError(f"{path.name} could not be read as Parquet ({unreadable}).")
