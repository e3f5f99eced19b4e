"""A table that may be larger than memory: known before, and read once when a fit needs it."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from dpstats.errors import DataError, DPStatsError, OptionError
from dpstats.tables import SizedTable
from dpstats.tables.coercion import UnreadColumn, as_column, level_keys, to_float
from dpstats.tables.declarations import Numeric
from dpstats.tables.partitions import Partitions
from dpstats.tables.scratch import (
    CHARGED,
    Wanted,
    arrays,
    bytes_of,
    check_space,
    scratch_folder,
)
from dpstats.tables.sources import Batches, batches_of, withheld

if TYPE_CHECKING:
    from dpstats.schema import Schema

__all__ = ["DeferredColumn", "Reading", "Scratch", "Stream", "stream_of"]

# values: rows times columns, from which on rows go to disk; about 400 MiB of them in memory
RESIDENT_VALUES = 2**25
Scratch: TypeAlias = str | os.PathLike[str] | None
Beside = Callable[[int, Mapping[str, Any]], None]  # of the first row of a batch, and its columns
_EXACT = ("f2", "f4", "i1", "i2", "u1", "u2", "b1")  # numbers that float32 holds


class Stream(Mapping[str, Any]):
    """What is public of a table that is read in batches: names, types, the number of rows.

    As a mapping it has columns without rows.

    Parameters
    ----------
    batches : Batches
        Where rows come from.
    schema : Schema
        What is declared of columns; others are not read for a fit.
    n : int, optional
        Number of rows, where the source does not say it.

    Attributes
    ----------
    scratch : path or None
        Folder for what is kept of its rows by whoever makes a model of public covariates.
    on_rows : callable or None
        Called by them with a number of rows after each batch; for progress.
    """

    scratch: Scratch = None
    on_rows: Callable[[int], None] | None = None

    def __init__(self, batches: Batches, schema: Schema, n: int | None) -> None:
        self.batches, self.schema = batches, schema
        self._n = n

    @property
    def rows(self) -> int:
        """Number of rows that are announced.

        Raises
        ------
        OptionError
            If nobody says it, or the source says another number than ``n=``.
        """
        counted = withheld("Rows could not be counted", self.batches.count)
        if counted is None and self._n is None:
            raise OptionError(
                "The number of rows is public and has to be known first, and an Arrow stream does "
                "not say it: give n=..."
            )
        if counted is None:
            assert self._n is not None
            return self._n
        if self._n not in (None, counted):
            raise OptionError(
                f"n={self._n:,} and a table of {counted:,} rows: n= is for a stream that does not "
                "say how many rows it has, or for planning without a table; leave it out."
            )
        return counted

    @property
    def again(self) -> bool:
        """Whether the source can be read more than once."""
        return getattr(self.batches, "again", True)

    def __getitem__(self, name: str) -> Any:
        return self.batches.columns[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.batches.columns)

    def __len__(self) -> int:
        return len(self.batches.columns)

    def __repr__(self) -> str:
        return f"<table of {len(self)} columns, read in batches>"

    def read(self, names: Sequence[str], failing: str = "") -> Iterator[dict[str, Any]]:
        """These columns of all rows, some rows at a time; an error ends with `failing`.

        Raises
        ------
        DataError
            If the source fails; what it says is withheld, for it may quote rows.
        """
        batches = self.batches.read(names)
        while True:
            try:
                batch = next(batches, None)
            except DPStatsError:
                raise
            except Exception as error:
                failed = type(error).__name__
                break
            if batch is None:
                return
            yield batch
            del batch
        raise DataError(f"Rows could not be read to the end ({failed}).{failing}")

    def read_announced(self, names: Sequence[str]) -> Iterator[dict[str, Any]]:
        """The same, of no more rows than were announced."""
        left = self.rows
        for batch in self.read(names):
            m = min(len(next(iter(batch.values()))), left)
            yield {name: values[:m] for name, values in batch.items()}
            left -= m
            if left == 0:
                return

    def collected(self, names: Sequence[str]) -> dict[str, Any]:
        """These columns in memory as they are, for a model with public covariates.

        Rows that were announced and do not come are rows of missing values.
        """
        parts, n = list(self.read_announced(names)), self.rows
        return {
            name: _filled(_joined([part.pop(name) for part in parts], self[name]), n)
            for name in names
        }


def stream_of(data: Any, schema: Schema | None, n: int | None = None) -> Any:
    """What is known of data that is read in batches; any other data as it is.

    Arrays have no schema, and are in memory.

    Raises
    ------
    DataError
        As `dpstats.tables.sources.batches_of`.
    """
    if schema is None or isinstance(data, Stream):
        return data
    batches = batches_of(data, schema)
    return data if batches is None else Stream(batches, schema, n)


class Reading(SizedTable):
    """The rows of a stream for one fit: a table whose columns are read together, once. Private.

    A number is kept as it is, of a column of levels the place of the level: what a declaration maps
    to the same values as the column itself.

    Rows that the source has beyond the n it announced are not read, and those that it lacks are
    rows of missing values. So there are n rows whatever it delivers; and two sources of which one
    has one row more than the other make tables that differ in one row, up to the order of rows,
    which decides nothing (`dpstats.mechanisms.lots`): the row that is there in one alone, and in
    the other the row beyond its n-th, or a missing one.

    Parameters
    ----------
    stream : Stream
        What is to be read.

    Attributes
    ----------
    counted : bool
        Whether the number of rows is public.
    on_rows : callable or None
        Called with a number of rows after each batch; for progress.
    """

    def __init__(self, stream: Stream) -> None:
        self._stream = stream
        self.rows = stream.rows
        self.counted = False
        self._folder: Path | None = None
        self.on_rows: Callable[[int], None] | None = None
        self._asked: dict[str, None] = {}
        self._held: dict[str, Any] = {}
        self._lock = Lock()

    def __getitem__(self, name: str) -> DeferredColumn:
        column = self._stream[name]
        self._asked[name] = None
        return DeferredColumn(self, name, column.dtype)

    def __iter__(self) -> Iterator[str]:
        return iter(self._stream)

    def __len__(self) -> int:
        return len(self._stream)

    def place(self, n: int, width: int, scratch: Scratch) -> Path | None:
        """Decide where rows are kept, by public numbers, before they are paid for; None is memory.

        The size of a file is seen by others, and whether it fits: a private number of rows does not
        go to disk.

        Parameters
        ----------
        n : int
            Number of rows, or the public guess of it.
        width : int
            Columns of the design.
        scratch : path, optional
            Folder for scratch files; see `dpstats.tables.scratch.scratch_folder`.

        Raises
        ------
        DataError
            If rows cannot be read again, the folder is too small, or so many rows are of units or
            their number is private.
        OptionError
            If it is no such folder.
        """
        self._stream.batches.check()
        if n * (width + len(self._asked)) <= RESIDENT_VALUES:
            return None
        if self._stream.schema.unit is not None:
            raise DataError(
                f"{n:,} rows of units are kept on disk, and there the rows of a unit are not "
                "brought together. Write one row a unit first, as by a GROUP BY, and declare the "
                "schema without unit=; or read the table into memory and pass that."
            )
        if not self.counted:
            raise DataError(
                f"{n:,} rows are kept on disk, where their number has to be public: ask for "
                'neighbors="replace-one", or read the table into memory and pass that.'
            )
        folder = scratch_folder(scratch)
        # Beside the columns: response, offset, weight, length and product (twice as long) of a row.
        prepared = {"x": ((n, width + 6), np.dtype(np.float32)), "keep": ((n,), np.dtype(np.bool_))}
        check_space(folder, bytes_of(self._wanted(n)) + bytes_of(prepared))
        self.keep(folder)
        return folder

    @property
    def partitions(self) -> Partitions | None:
        """The table, where its rows are on a cluster and stay there."""
        found = self._stream.batches
        return found if isinstance(found, Partitions) and found.client is not None else None

    def keep(self, folder: Path | None) -> None:
        """Keep rows in scratch files of a folder; None is memory."""
        self._folder = folder

    def held(self, name: str) -> Any:
        """A column as it is kept; the first call reads all that were asked for."""
        with self._lock:
            if not self._held:
                self._read()
        return self._held[name]

    def read_beside(self, names: Sequence[str], each: Beside) -> None:
        """Read all rows now, before a charge: `each` gets other columns, of each batch.

        Both are of the same rows: a query need not deliver its rows in the same order twice.
        """
        with self._lock:
            self._read(names, each, "")

    def levels(self, name: str) -> list[str] | None:
        """Names of the levels of a column, and of all else; None for numbers, and for units."""
        declared = self._stream.schema.get(name)
        if declared is None or isinstance(declared, Numeric):
            return None
        names = [level_keys(level)[0] for level in declared.levels]
        return [*names, max(names, key=len) + "?"]  # longer than each, and so none of them

    def _wanted(self, n: int) -> Wanted:
        """Shape and type of the columns that are asked for."""
        found: dict[str, tuple[tuple[int, ...], np.dtype[Any]]] = {}
        for name in self._asked:
            levels, of = self.levels(name), self._stream[name].dtype
            if levels is not None:
                kept = np.min_scalar_type(-len(levels))
            else:
                exact = isinstance(of, np.dtype) and of.str[1:] in _EXACT
                kept = np.dtype(np.float32 if exact else np.float64)
            if name != self._stream.schema.unit:
                found[name] = ((n,), kept)
        return found

    def _read(
        self, beside: Sequence[str] = (), each: Beside | None = None, failing: str = CHARGED
    ) -> None:
        n, unit, report = self.rows, self._stream.schema.unit, self.on_rows or (lambda rows: None)
        made = arrays(self._folder, self._wanted(n), failing)
        units, at = [], 0
        with np.errstate(all="ignore"):  # a warning about a value would be a release
            for batch in self._stream.read([*dict.fromkeys([*self._asked, *beside])], failing):
                m = min(len(next(iter(batch.values()))), n - at)
                for name, kept in made.items():
                    kept[at : at + m] = self._values(name, batch[name][:m])
                if unit in batch:
                    units.append(batch[unit][:m])
                if each is not None:
                    each(at, {name: batch[name][:m] for name in beside})
                at += m
                report(m)
                if at == n:
                    break
        for name, kept in made.items():
            kept[at:] = np.nan if self.levels(name) is None else -1
        report(n - at)
        if unit in self._asked:
            rest = [np.full(n - at, None, dtype=object)] if at < n else []
            made[unit] = _joined([*units, *rest], self._stream[unit])
        self._held = made

    def _values(self, name: str, column: Any) -> NDArray[Any]:
        """Cells of a column as they are kept."""
        declared = self._stream.schema[name]
        if isinstance(declared, Numeric):
            return to_float(column)
        return declared.places(column)


class DeferredColumn(UnreadColumn):
    """A column that is read when its first entry is. Private.

    Parameters
    ----------
    reading : Reading
        The table it is of.
    name : str
        Its name.
    dtype : dtype
        Its type in the source.
    """

    def __init__(self, reading: Reading, name: str, dtype: Any) -> None:
        self._reading, self._name, self.dtype = reading, name, dtype

    def __len__(self) -> int:
        return self._reading.rows

    def __getitem__(self, part: slice) -> Any:
        kept = self._reading.held(self._name)[part]
        levels = self._reading.levels(self._name)
        return kept if levels is None else pd.Categorical.from_codes(kept, levels)


def _joined(parts: list[Any], empty: Any) -> Any:
    """Parts of a column one after the other."""
    filled = [part for part in parts if len(part)]
    if not filled:
        return empty[:]
    if _is_nested(filled[0]):
        return np.concatenate(filled)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a warning about a value would be a release
        return as_column(pd.concat(map(pd.Series, filled), ignore_index=True), "")


def _filled(column: Any, n: int) -> Any:
    """A column of at most n rows, and missing values after them."""
    if column is None:  # no row, and files that do not agree on its type
        column = np.empty(0)
    if len(column) == n or _is_nested(column):
        return column
    return as_column(pd.Series(column).reindex(range(n)), "")


def _is_nested(column: Any) -> bool:
    """Whether values are lists or records: whoever needs one value a row refuses them."""
    return bool(column.dtype.kind == "V")
