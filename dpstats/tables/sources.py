"""Tables that are read in batches: files, queries and streams of other packages."""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeVar
from weakref import WeakSet

import narwhals.stable.v1 as nw
import numpy as np
import pandas as pd

from dpstats.errors import DataError, DPStatsError
from dpstats.tables import check_arrow, check_unique, named_columns
from dpstats.tables.coercion import kind_of
from dpstats.tables.engines import Dask, PlacedTable
from dpstats.tables.formats import CSV, check_are_text, is_parquet, is_url, paths_of
from dpstats.tables.partitions import FilePartitions, Partitions, is_dask
from dpstats.tables.records import csv_batches, csv_names, csv_rows

if TYPE_CHECKING:
    from dpstats.schema import Schema

__all__ = ["Batches", "batches_of", "withheld"]

Columns = dict[str, Any]  # 1-d arrays by name, all of one length

_BATCH = 1 << 16  # rows
_READ: WeakSet[Any] = WeakSet()  # streams that can be read once, and were: by whichever model
T = TypeVar("T")


class Batches(Protocol):
    """Rows that are read in batches, and what is known of them before: all of it public."""

    @property
    def columns(self) -> Mapping[str, Any]:
        """Names and types: columns without a row."""
        ...

    def count(self) -> int | None:
        """Number of rows, where the source says it."""
        ...

    def check(self) -> None:
        """Refuse rows that cannot be read again."""
        ...

    def read(self, names: Sequence[str]) -> Iterator[Columns]:
        """These columns of all rows, some rows at a time."""
        ...


def batches_of(data: Any, schema: Schema) -> Batches | None:
    """What is read in batches; None for a table in memory, or for no table.

    Raises
    ------
    DataError
        If there is no such file, a file cannot be read, or files differ; if a cluster is asked for
        and cannot be reached, or cannot read such a table.
    """
    if isinstance(data, PlacedTable):
        return _on_cluster(data.data, data.engine, schema)
    if isinstance(data, (list, tuple)) and not data:
        raise DataError("data is an empty list: no files to read.")
    if (paths := paths_of(data)) is not None:
        if isinstance(data, CSV):
            check_are_text(paths)
        kinds = set(map(is_parquet, paths))
        if len(kinds) > 1:
            raise DataError(f"{paths[0].parent}: some files are Parquet and some are CSV.")
        if kinds == {True}:
            return _Parquet(paths, schema)
        return _Csv(paths, schema, data if isinstance(data, CSV) else CSV(data))
    if is_dask(data):
        return Partitions(data)
    if data is None or isinstance(data, (pd.DataFrame, Mapping, list, tuple)):
        return None
    if hasattr(data, "get_fragments") and hasattr(data, "count_rows"):
        return _Dataset(data, schema)
    check_arrow(data)
    frame = nw.from_native(data, eager_only=True, allow_series=True, pass_through=True)
    if isinstance(frame, (nw.DataFrame, nw.Series)):  # a column is refused as no table
        return None
    frame = nw.from_native(data, pass_through=True)
    if isinstance(frame, nw.LazyFrame) and hasattr(data, "collect_batches"):
        return _Lazy(data)
    return _ArrowStream(data) if hasattr(data, "__arrow_c_stream__") else None


def _on_cluster(data: Any, engine: Dask, schema: Schema) -> Partitions:
    """Files or a dask DataFrame, to be read by the workers of a cluster."""
    urls = data if isinstance(data, (list, tuple)) else [data]
    if urls and all(map(is_url, urls)):
        import dask.dataframe as dd

        named = ", ".join(urls)
        data = withheld(f"{named} could not be read by dask", lambda: dd.read_parquet(list(urls)))
        if not len(data.columns):
            raise DataError(f"{named}: no files match.")
    if is_dask(data):
        return Partitions(data, engine.client)
    if (paths := paths_of(data)) is None:
        raise DataError(
            f"engine={engine!r}: a cluster reads paths of Parquet files, or a dask DataFrame, and "
            f"a {type(data).__name__} is in this process. Leave engine= out to fit it here."
        )
    if isinstance(data, CSV):
        check_are_text(paths)
    if others := [path.name for path in paths if not is_parquet(path)]:
        raise DataError(
            f"engine={engine!r}: {others[0]} is no Parquet file. Write it as Parquet, or pass "
            "dask.dataframe.read_csv(...), whose types you choose."
        )
    return FilePartitions(_Parquet(paths, schema), engine.client)


def withheld(what: str, call: Callable[[], T]) -> T:
    """What a call returns; of an error in it the type alone is told.

    Raises
    ------
    DataError
        If it fails: another package's message may quote rows.
    """
    try:
        return call()
    except DPStatsError:
        raise
    except Exception as error:
        failed = type(error).__name__
    raise DataError(f"{what} ({failed}); its message is withheld, for it may quote rows.")


def _pyarrow() -> Any:
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError:
        raise DataError(
            "Parquet files and Arrow streams are read by pyarrow: pip install 'dpstats[parquet]'."
        ) from None
    return pyarrow


class _Csv:
    """CSV files, one after the other; a row is a record."""

    def __init__(self, paths: Sequence[Path], schema: Schema, how: CSV) -> None:
        self._paths, self._schema, self._how = paths, schema, how
        self.columns = csv_names(paths[0], schema, how)
        for path in paths[1:]:
            _check_names(path, set(csv_names(path, schema, how)), paths[0], set(self.columns))

    @functools.cached_property
    def _rows(self) -> int:
        return sum(csv_rows(path, self._how) for path in self._paths)

    def count(self) -> int:
        return self._rows

    def check(self) -> None:
        pass

    def read(self, names: Sequence[str]) -> Iterator[Columns]:
        for path in self._paths:
            for batch in csv_batches(path, self._schema, self._how):
                yield {name: batch[name] for name in names}


class _Parquet:
    """Parquet files, one after the other, in the order of their names."""

    def __init__(self, paths: Sequence[Path], schema: Schema) -> None:
        self.paths = paths
        found = [_parquet_facts(path) for path in paths]
        self._rows = sum(rows for _, rows in found)
        tables = [table for table, _ in found]
        declared = [
            [name for name in table.column_names if name in schema or name == schema.unit]
            for table in tables
        ]
        names = set(declared[0])
        self.columns = dict.fromkeys(tables[0].column_names)
        for path, here in zip(paths, declared, strict=True):
            check_unique(here, f"{path.name}: ")
            _check_names(path, set(here), paths[0], names)
        for name in names:
            self.columns[name] = _one_type(name, paths, [table.schema for table in tables])

    def count(self) -> int:
        return self._rows

    def check(self) -> None:
        for path in self.paths:
            if not path.is_file():
                raise DataError(f"{path}: the file is no longer there.")

    def read(self, names: Sequence[str]) -> Iterator[Columns]:
        arrow = _pyarrow()
        for path in self.paths:
            with arrow.parquet.ParquetFile(path, pre_buffer=False) as file:  # not all at once
                for batch in file.iter_batches(_BATCH, columns=list(names)):
                    yield _columns_of(batch, names)


def _parquet_facts(path: Path) -> tuple[Any, int]:
    """A table of the names and types of a file, without rows; and how many there are."""
    arrow = _pyarrow()
    try:
        with arrow.parquet.ParquetFile(path) as file:
            return file.schema_arrow.empty_table(), file.metadata.num_rows
    except (OSError, ValueError) as error:  # those of pyarrow are some of these
        unreadable = type(error).__name__
    raise DataError(f"{path.name} could not be read as Parquet ({unreadable}).")


def _check_names(path: Path, names: set[str], first: Path, expected: set[str]) -> None:
    """Files have the same declared columns; their order is their own."""
    if names != expected:
        lacking, having = (path, first) if expected - names else (first, path)
        absent = sorted(expected - names or names - expected)
        raise DataError(
            f"{lacking.name} has no column {', '.join(map(repr, absent))}, and {having.name} has. "
            "Files of one table have the same columns."
        )


def _one_type(name: str, paths: Sequence[Path], schemas: Sequence[Any]) -> Any:
    """A column without rows, of a type that holds those of all files."""
    arrow = _pyarrow()
    types = {path: each.field(name).type for path, each in zip(paths, schemas, strict=True)}
    known = {path: t for path, t in types.items() if not arrow.types.is_null(t)} or types
    empty = {path: _empty(name, kind) for path, kind in known.items()}
    first, *others = empty
    for path in others:
        if kind_of(empty[path]) != kind_of(empty[first]):
            raise DataError(
                f"Column {name!r} has type {known[first]} in {first.name} and {known[path]} in "
                f"{path.name}. Write it with one type in all files."
            )
    if len(set(types.values())) == 1 or kind_of(empty[first]) != "number":
        return empty[first]
    return np.empty(0)  # one file's narrower numbers say nothing about another's


def _empty(name: str, kind: Any) -> Any:
    arrow = _pyarrow()
    return named_columns(arrow.table({name: arrow.array([], kind)}))[name]


def _columns_of(batch: Any, names: Sequence[str]) -> Columns:
    return named_columns(_pyarrow().Table.from_batches([batch]), names)


class _Dataset:
    """A pyarrow Dataset, with its filters and partitions."""

    def __init__(self, data: Any, schema: Schema) -> None:
        self._data = data
        self.columns = named_columns(data.schema.empty_table())
        read = {name for name in data.schema.names if name in schema or name == schema.unit}
        withheld("The files of a Dataset could not be read", lambda: _check_casts(data, read))

    @functools.cached_property
    def _rows(self) -> int:
        return int(self._data.count_rows())

    def count(self) -> int:
        return self._rows

    def check(self) -> None:
        pass

    def read(self, names: Sequence[str]) -> Iterator[Columns]:
        ahead = {"batch_readahead": 2, "fragment_readahead": 1}  # rows in memory
        for batch in self._data.to_batches(columns=list(names), batch_size=_BATCH, **ahead):
            yield _columns_of(batch, names)


def _check_casts(data: Any, read: Collection[str], whole: Any = None) -> None:
    """Refuse files with columns of other types than the Dataset, which casts them.

    Whether a cast succeeds may depend on a value: then an error would tell something of a row.
    What types CSV and JSON have depends on values itself, and is not looked at.
    """
    whole = data.schema if whole is None else whole
    for child in getattr(data, "children", ()):
        _check_casts(child, read, whole)
    files = getattr(data, "files", ())
    if not files or data.format.default_extname in ("csv", "json"):
        return
    for path in files:
        for field in data.format.inspect(path, data.filesystem):
            if field.name in read and not _never_fails(field.type, whole.field(field.name).type):
                raise DataError(
                    f"Column {field.name!r} has type {field.type} in {Path(path).name} and "
                    f"{whole.field(field.name).type} in the Dataset, and a value might not fit. "
                    "Write it with one type in all files, or pass their paths: then each file is "
                    "read with its own types."
                )


def _never_fails(one: Any, other: Any) -> bool:
    """Whether values of a type can be cast to another one, whatever they are."""
    types = _pyarrow().types
    if one == other or types.is_null(one):
        return True
    if types.is_floating(one) and types.is_floating(other):
        return bool(one.bit_width <= other.bit_width)
    if types.is_integer(one) and types.is_integer(other):
        return bool(np.can_cast(one.to_pandas_dtype(), other.to_pandas_dtype()))
    plain = one.value_type if types.is_dictionary(one) else one
    return all(types.is_string(t) or types.is_large_string(t) for t in (plain, other))


class _Lazy:
    """A polars LazyFrame; its query runs to count rows, and once more to read them."""

    def __init__(self, data: Any) -> None:
        self._data = data
        none = withheld("The query could not be run", lambda: data.head(0).collect())
        self.columns = named_columns(none)

    @functools.cached_property
    def _rows(self) -> int:
        return int(nw.from_native(self._data).select(nw.len()).collect().item())

    def count(self) -> int:
        return self._rows

    def check(self) -> None:
        pass

    def read(self, names: Sequence[str]) -> Iterator[Columns]:
        chosen = self._data.select(list(names))
        for batch in chosen.collect_batches(chunk_size=_BATCH, maintain_order=True):
            yield named_columns(batch, names)


class _ArrowStream:
    """Anything with ``__arrow_c_stream__``, such as a DuckDB relation or a RecordBatchReader.

    What has a length is a table, opened whenever it is read, and closed in between: a connection
    may serve one query at a time. What has none may be good for one opening, which is kept.
    """

    def __init__(self, data: Any) -> None:
        self._data = data
        self._sized = self.again = hasattr(data, "__len__")
        self._once = hasattr(data, "read_next_batch")
        self._reader: Any = None
        reader = self._opened()
        self.columns = named_columns(reader.schema.empty_table())
        if self._sized:
            reader.close()

    @functools.cached_property
    def _rows(self) -> int | None:
        return len(self._data) if self._sized else None

    def count(self) -> int | None:
        return self._rows

    def check(self) -> None:
        if not self._sized:
            self._opened()

    def _opened(self) -> Any:
        if self._reader is not None:
            return self._reader
        if self._once and self._data in _READ:
            raise DataError(
                f"The rows of a {type(self._data).__name__} can be read once, and were: make the "
                "model again with a new one."
            )
        what = f"A {type(self._data).__name__} could not be read as an Arrow stream"
        read = _pyarrow().RecordBatchReader.from_stream
        reader = withheld(what, lambda: read(self._data))
        self._reader = None if self._sized else reader
        return reader

    def read(self, names: Sequence[str]) -> Iterator[Columns]:
        reader, self._reader = self._opened(), None
        if self._once:
            _READ.add(self._data)
        with reader:
            for batch in reader:
                for start in range(0, batch.num_rows, _BATCH):
                    yield _columns_of(batch.slice(start, _BATCH), names)
