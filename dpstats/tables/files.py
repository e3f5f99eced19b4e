"""A table from a file: CSV or Parquet."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from dpstats.errors import DataError
from dpstats.tables.records import read_csv

if TYPE_CHECKING:
    from dpstats.schema import Schema

__all__ = ["read_schema", "read_table"]

_ALLOWED = (".csv", ".gz", ".parquet")


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


def read_table(path: Path, schema: Schema) -> Any:
    """The table of a file, whose kind its name tells.

    Raises
    ------
    DataError
        If there is no such file, or it is none of these; its content is not quoted.
    """
    if path.suffix not in _ALLOWED:
        raise DataError(f"{path.name}: allowed are files ending in {', '.join(_ALLOWED)}.")
    if not path.exists():
        raise DataError(f"{path}: no such file.")
    return _read_parquet(path) if path.suffix == ".parquet" else read_csv(path, schema)


def _read_parquet(path: Path) -> Any:
    import pandas as pd

    try:
        return pd.read_parquet(path)
    except (ValueError, OSError) as error:
        unreadable = type(error).__name__
    raise DataError(f"{path.name} could not be read as Parquet ({unreadable}).")
