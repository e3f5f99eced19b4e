"""Private records of a CSV file: one line each, and each read by itself, whatever it holds.

The first line names the columns and thereby fixes how many fields a record has. It is public; every
other line is somebody's. Whatever bytes stand between two line feeds they are one record, and how
they are read depends on them and on the public names and declarations alone. So two files that
differ in one line make tables that differ in one row, and there are as many rows as lines.
"""

from __future__ import annotations

import csv
import gzip
import itertools
import math
import zlib
from codecs import BOM_UTF8
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpstats.errors import DataError
from dpstats.schema import Categorical, Numeric, Schema
from dpstats.tables.coercion import level_keys, number

__all__ = ["csv_batches", "csv_header", "csv_names", "csv_rows", "read_csv"]

Cells = list[str]

_CHUNK = 1 << 14  # lines held as text at a time
_PIECE = 1 << 20  # bytes in which lines are counted at a time
_MISSING = frozenset(["", "NA", "N/A", "NaN", "nan", "NULL", "null", "None"])


def read_csv(path: Path, schema: Schema) -> dict[str, NDArray[Any]]:
    """Declared columns of a CSV file, plain or gzipped; row i is line i + 1.

    A line ends with a line feed, or a carriage return and one; the last may lack it. What is not
    UTF-8, has another number of fields than the first line, or leaves a quote open is a row of
    missing values, and so is an empty line.

    Parameters
    ----------
    path : Path
        ``.csv`` or ``.gz``; fields are separated by commas, and may be quoted as in RFC 4180.
    schema : Schema
        What is declared of each column; others are not kept.

    Returns
    -------
    dict of str to ndarray
        Numbers where a column is declared as a number, else objects: text, and None where a cell is
        empty or says ``NA``, ``N/A``, ``NaN``, ``nan``, ``NULL``, ``null`` or ``None`` and that is
        no declared level.

    Raises
    ------
    DataError
        If the file cannot be opened, or its first line is no line of names.
    """
    parts = list(csv_batches(path, schema))
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


def csv_batches(path: Path, schema: Schema) -> Iterator[dict[str, NDArray[Any]]]:
    """The same columns, some lines at a time; the last batch has none.

    Raises
    ------
    DataError
        As `read_csv`.
    """
    with _opened(path) as file:
        names = _header(file.readline(), schema, path.name)
        readers = {at: _reader(schema, n) for at, n in enumerate(names) if _declared(schema, n)}
        nothing = [""] * len(names)
        while True:
            records = [_fields(line) for line in itertools.islice(file, _CHUNK)]
            sound = [r if len(r) == len(names) else nothing for r in records]
            columns = list(zip(*sound, strict=True)) or [()] * len(names)
            yield {names[at]: reader(columns[at]) for at, reader in readers.items()}
            if not records:
                return


def csv_names(path: Path, schema: Schema) -> dict[str, NDArray[Any]]:
    """The same columns without a row; only the first line is read.

    Raises
    ------
    DataError
        As `read_csv`.
    """
    with _opened(path) as file:
        names = _header(file.readline(), schema, path.name)
    return {name: _reader(schema, name)(()) for name in names if _declared(schema, name)}


def csv_header(path: Path) -> list[str]:
    """All names in the first line, declared or not.

    Raises
    ------
    DataError
        If the file cannot be opened, or its first line looks like a record: a cell is empty, a
        number or there twice. It is not shown.
    """
    with _opened(path) as file:
        names = _fields(file.readline().removeprefix(BOM_UTF8))
    if not all(names) or len(set(names)) < len(names) or not np.isnan([*map(number, names)]).all():
        raise DataError(
            f"{path.name}: the first line must hold the names of the columns, separated by commas, "
            "in UTF-8; a cell of it is empty, a number, or there twice."
        )
    return names


def csv_rows(path: Path) -> int:
    """Number of rows: of lines after the first.

    Raises
    ------
    DataError
        If the file cannot be read.
    """
    with _opened(path) as file:
        file.readline()
        lines, last = 0, b"\n"
        while piece := file.read(_PIECE):
            lines, last = lines + piece.count(b"\n"), piece[-1:]
        return lines + (last != b"\n")


@contextmanager
def _opened(path: Path) -> Iterator[Any]:
    try:
        with (gzip.open if path.suffix.lower() == ".gz" else open)(path, "rb") as file:
            yield file
        return
    except (OSError, EOFError, zlib.error) as error:
        unreadable = type(error).__name__
    raise DataError(f"{path.name} could not be read as CSV ({unreadable}).")


def _fields(line: bytes) -> Cells:
    """Fields of one line; none where it is no record."""
    try:
        text = line.decode("utf-8").removesuffix("\n").removesuffix("\r")
        return next(csv.reader([text], strict=True)) if '"' in text else text.split(",")
    except (UnicodeDecodeError, csv.Error):
        return []


def _header(line: bytes, schema: Schema, name: str) -> Cells:
    """The names in the first line, which is not shown: where nobody wrote names it is a record."""
    names = _fields(line.removeprefix(BOM_UTF8))
    known = [n for n in names if _declared(schema, n)]
    if not known:
        raise DataError(
            f"{name}: the first line names no declared column; it must hold the names of the "
            "columns, separated by commas, in UTF-8."
        )
    twice = sorted({n for n in known if known.count(n) > 1})
    if twice:
        raise DataError(f"{name}: column names appear twice: {twice}. Rename one of them.")
    return names


def _declared(schema: Schema, name: str) -> bool:
    return name in schema or name == schema.unit


def _reader(schema: Schema, name: str) -> Callable[[Sequence[str]], NDArray[Any]]:
    """How the cells of a column are read, by its declaration alone."""
    declared = None if name == schema.unit else schema[name]
    if isinstance(declared, Numeric):
        return _floats
    levels = declared.levels if isinstance(declared, Categorical) else ()
    missing = _MISSING - {key for level in levels for key in level_keys(level)}
    seen: dict[str, Any] = {}  # one object for each text
    numeric = all(isinstance(v, (int, float)) and not isinstance(v, bool) for v in levels)
    read: Callable[[str], Any] = _number_or_text if levels and numeric else str

    def reader(cells: Sequence[str]) -> NDArray[Any]:
        for cell in cells:
            if cell not in seen:
                seen[cell] = None if cell in missing else read(cell)
        return np.fromiter(map(seen.__getitem__, cells), dtype=object)

    return reader


def _floats(cells: Sequence[str]) -> NDArray[Any]:
    try:
        return np.array(list(map(float, cells)), dtype=np.float64)
    except ValueError:  # some are no numbers: the same cell by cell, a few times slower
        return np.array(list(map(number, cells)), dtype=np.float64)


def _number_or_text(cell: str) -> float | str:
    found = number(cell)
    return cell if math.isnan(found) else found
