"""Private records of a text file: where each ends, and how its cells are read.

The first line names the columns and thereby fixes how many fields a record has. It is public; all
that follows is somebody's. How a record is read depends on its own bytes and on the public names,
declarations and options (`dpstats.tables.formats.CSV`) alone. Where it ends is declared.

``records="lines"``: at each line feed. There are as many rows as lines, and two files that differ
in one line, whatever bytes it holds, make tables that differ in one row.

``records="quoted"``: at a line feed outside of quotes. A field is quoted if its first byte is a
quote; a quote within is doubled; a separator or the end of a line follows the closing quote (RFC
4180). Call a record *closed* if it is

(a) fields written by these rules, any number of them, whatever bytes the quoted ones hold; or
(b) one line that does not end within a quoted field: too few or too many fields, no UTF-8, text
    after a closing quote, anything.

**One closed record is one row.** Let a file be closed records, one after the other. `_split` scans
the first record from its first byte. In case (b) it stops at the first line feed, which is the
end of the record. In case (a) it is inside of quotes exactly where quoted fields are, since quotes
within are doubled and no quote follows a closing one. So the first line feed outside of quotes is
the end of the record, and up to there no rule is broken. Either way `_split` yields this record and
starts the next scan at the next record, whatever this one held. By induction it finds the records
that were written. So the number of rows does not depend on what records hold, and files that differ
in one closed record make tables that differ in one row. A writer that quotes makes closed records
of any cells, so nobody's cell moves another row. (Of records with line feeds in them, those of up
to `LONGEST` bytes.)

**A line that leaves a quote open** is scanned on into the lines that follow. Let q be the first
quote in them, pairs of adjacent quotes left aside. If q is followed by neither a separator nor the
end of a line, or is not found within `LONGEST` bytes, no record can start with that line. It is
then one row of missing values, and the next line starts a new record. Every other row, and the
number of rows, are as before. That is so wherever the other records are of kind (a), no quoted cell
starts (quotes aside) with a separator or the end of a line, and no cell without quotes around it
holds one. Other files may lose more: the line swallows the records up to q, at most `LONGEST`
bytes, into its one row, and the text after q may be read inside out.

**No reader bounds that.** Write N for a line feed, and let T be ``",N,N",xN``, a record of two
fields. The file ``a,bN`` T...T with k times T has k + 1 records, all written by the rules. The file
``"aN`` T...T ``y,zN``, in which the last T lacks its end ``",xN``, has 2k + 1 records by the same
rules: each quote that closes in the one opens in the other. Each differs by one line that leaves a
quote open from the file ``"aN`` T...T. Whatever number of rows a reader gives to that, it is k / 2
or more away from one of the others, or else it miscounts a file that is written by the rules. Thus
files of writers that do not quote need ``records="lines"``.
"""

from __future__ import annotations

import csv
import gzip
import itertools
import math
import re
import zlib
from codecs import BOM_UTF8
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpstats.errors import DataError
from dpstats.schema import Categorical, Numeric, Schema
from dpstats.tables.coercion import level_keys, number
from dpstats.tables.formats import CSV, SEPARATORS

__all__ = ["csv_batches", "csv_header", "csv_names", "csv_rows", "read_csv"]

Cells = list[str]

LONGEST = 1 << 24  # bytes of a record that has line feeds in it
_CHUNK = 1 << 14  # records held as text at a time
_PIECE = 1 << 20  # bytes in which lines are counted at a time
_MISSING = frozenset(["", "NA", "N/A", "NaN", "nan", "NULL", "null", "None"])


def read_csv(path: Path, schema: Schema, how: CSV | None = None) -> dict[str, NDArray[Any]]:
    """Declared columns of a CSV file, plain or gzipped; row i is its i-th record.

    A line ends with a line feed, or a carriage return and one; the last may lack it. A record that
    is not UTF-8, has another number of fields than the first line, or leaves a quote open is a row
    of missing values, and so is an empty line.

    Parameters
    ----------
    path : Path
        ``.csv``, ``.tsv`` or ``.gz``; fields may be quoted as in RFC 4180.
    schema : Schema
        What is declared of each column; others are not kept.
    how : CSV, optional
        Separator, decimal mark, and where a record ends.

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
    parts = list(csv_batches(path, schema, how))
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


def csv_batches(
    path: Path, schema: Schema, how: CSV | None = None
) -> Iterator[dict[str, NDArray[Any]]]:
    """The same columns, some records at a time; the last batch has none.

    Raises
    ------
    DataError
        As `read_csv`.
    """
    how = how or CSV(path)
    separator = how.separator_of(path)
    with _opened(path) as file:
        names = _header(file.readline(), schema, path.name, separator)
        readers = {
            at: _reader(schema, n, how.decimal)
            for at, n in enumerate(names)
            if _declared(schema, n)
        }
        nothing = [""] * len(names)
        found = file if how.records == "lines" else _split(file, separator)
        while True:
            records = [_fields(each, separator) for each in itertools.islice(found, _CHUNK)]
            sound = [r if len(r) == len(names) else nothing for r in records]
            columns = list(zip(*sound, strict=True)) or [()] * len(names)
            yield {names[at]: reader(columns[at]) for at, reader in readers.items()}
            if not records:
                return


def csv_names(path: Path, schema: Schema, how: CSV | None = None) -> dict[str, NDArray[Any]]:
    """The same columns without a row; only the first line is read.

    Raises
    ------
    DataError
        As `read_csv`.
    """
    how = how or CSV(path)
    with _opened(path) as file:
        names = _header(file.readline(), schema, path.name, how.separator_of(path))
    return {name: _reader(schema, name, ".")(()) for name in names if _declared(schema, name)}


def csv_header(path: Path, how: CSV | None = None) -> list[str]:
    """All names in the first line, declared or not.

    Raises
    ------
    DataError
        If the file cannot be opened, or its first line looks like a record: a cell is empty, a
        number or there twice. It is not shown. If it evidently has another separator.
    """
    separator = (how or CSV(path)).separator_of(path)
    with _opened(path) as file:
        line = file.readline().removeprefix(BOM_UTF8)
    names = _fields(line, separator)
    _check_separator(line, separator, path.name)
    if not all(names) or len(set(names)) < len(names) or not np.isnan([*map(number, names)]).all():
        raise DataError(
            f"{path.name}: the first line must hold the names of the columns, separated by "
            f"{_SPELT[separator]}, in UTF-8; a cell of it is empty, a number, or there twice."
        )
    return names


def csv_rows(path: Path, how: CSV | None = None) -> int:
    """Number of rows: of records after the first line.

    Raises
    ------
    DataError
        If the file cannot be read.
    """
    how = how or CSV(path)
    with _opened(path) as file:
        file.readline()
        lines, last = 0, b"\n"
        while piece := file.read(_PIECE):
            if how.records == "quoted" and b'"' in piece:
                break
            lines, last = lines + piece.count(b"\n"), piece[-1:]
        else:
            return lines + (last != b"\n")
    with _opened(path) as file:
        file.readline()
        return sum(1 for _ in _split(file, how.separator_of(path)))


@contextmanager
def _opened(path: Path) -> Iterator[Any]:
    try:
        with (gzip.open if path.suffix.lower() == ".gz" else open)(path, "rb") as file:
            yield file
        return
    except (OSError, EOFError, zlib.error) as error:
        unreadable = type(error).__name__
    raise DataError(f"{path.name} could not be read as CSV ({unreadable}).")


def _split(lines: Iterable[bytes], separator: str) -> Iterator[bytes]:
    """Records of a file, one or more lines each; see the proofs above."""
    starts, goes_on = _scans(separator)
    coming, ahead = iter(lines), deque[bytes]()  # ahead: looked at, and to be read anew
    for line in coming:
        if b'"' not in line:
            yield line
            continue
        ahead.append(line)
        while ahead:
            taken = [ahead.popleft()]
            size, opened = len(taken[0]), _leaves_open(starts, taken[0])
            while opened:
                taken.append(more := ahead.popleft() if ahead else next(coming, b""))
                size += len(more)
                opened = _leaves_open(goes_on, more) if more and size <= LONGEST else None
            if opened is None:  # no record by the rules: one line
                ahead.extendleft(more for more in reversed(taken[1:]) if more)
                del taken[1:]
            yield b"".join(taken)


def _scans(separator: str) -> tuple[re.Pattern[bytes], re.Pattern[bytes]]:
    """A line from the start of a record, and from within a quoted field, as far as rules hold."""
    s, inner = re.escape(separator), r'[^"]*+(?:""[^"]*+)*+'
    field = rf'(?:"{inner}"|(?!")[^{s}]*+)'
    rest = rf'(?:{field}{s})*+(?:{field}|(?P<open>"{inner}))'
    starts, goes_on = rest, rf'{inner}(?:"(?:{s}{rest})?|(?P<still>))'
    return re.compile(rf"{starts}\Z".encode()), re.compile(rf"{goes_on}\Z".encode())


def _leaves_open(scan: re.Pattern[bytes], line: bytes) -> bool | None:
    """Whether a line ends within a quoted field; None where it breaks the rules of quotes."""
    found = scan.match(_body(line))
    return None if found is None else found.lastgroup is not None


def _body(line: bytes) -> bytes:
    return line.removesuffix(b"\n").removesuffix(b"\r")


def _fields(record: bytes, separator: str) -> Cells:
    """Fields of one record; none where it is malformed."""
    try:
        text = _body(record).decode("utf-8")
        if '"' not in text:
            return text.split(separator)
        return next(csv.reader([text], strict=True, delimiter=separator))
    except (UnicodeDecodeError, csv.Error):
        return []


_SPELT = {",": "commas", ";": "semicolons", "\t": "tabs", "|": "bars"}


def _header(line: bytes, schema: Schema, name: str, separator: str) -> Cells:
    """The names in the first line, which is not shown: where nobody wrote names it is a record."""
    line = line.removeprefix(BOM_UTF8)
    names = _fields(line, separator)
    known = [n for n in names if _declared(schema, n)]
    if not known:
        _check_separator(line, separator, name)
        raise DataError(
            f"{name}: the first line names no declared column; it must hold the names of the "
            f"columns, separated by {_SPELT[separator]}, in UTF-8."
        )
    twice = sorted({n for n in known if known.count(n) > 1})
    if twice:
        raise DataError(f"{name}: column names appear twice: {twice}. Rename one of them.")
    return names


def _check_separator(line: bytes, separator: str, name: str) -> None:
    """Refuse a first line that is one name, and several with another separator."""
    if len(_fields(line, separator)) > 1:
        return
    for other in SEPARATORS:
        if len(_fields(line, other)) > 1:
            raise DataError(
                f"{name}: the first line holds no {_SPELT[separator]}, and {_SPELT[other]} seem to "
                f"separate its names: give separator={other!r}, as in dp.CSV(path, "
                f"separator={other!r})."
            )


def _declared(schema: Schema, name: str) -> bool:
    return name in schema or name == schema.unit


def _reader(schema: Schema, name: str, decimal: str) -> Callable[[Sequence[str]], NDArray[Any]]:
    """How the cells of a column are read, by its declaration and the decimal mark alone."""
    declared = None if name == schema.unit else schema[name]
    if isinstance(declared, Numeric):
        if decimal == ".":
            return _floats
        return lambda cells: _floats([_with_point(cell) for cell in cells])
    levels = declared.levels if isinstance(declared, Categorical) else ()
    missing = _MISSING - {key for level in levels for key in level_keys(level)}
    seen: dict[str, Any] = {}  # one object for each text
    numeric = all(isinstance(v, (int, float)) and not isinstance(v, bool) for v in levels)
    read: Callable[[str], Any] = str
    if levels and numeric:
        read = _number_or_text if decimal == "." else _comma_number_or_text

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


def _with_point(cell: str) -> str:
    """A number with a decimal comma as Python writes it; nothing where a point is in it."""
    return "" if "." in cell else cell.replace(",", ".")


def _comma_number_or_text(cell: str) -> float | str:
    found = number(_with_point(cell))
    return cell if math.isnan(found) else found
