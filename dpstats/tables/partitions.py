"""Tables on a Dask cluster: partitions that are made where they are needed, by tasks of a graph."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol, TypeAlias

import pandas as pd

from dpstats.errors import DataError
from dpstats.tables import named_columns
from dpstats.tables.scratch import let_go

__all__ = [
    "FilePartitions",
    "FilePiece",
    "Frame",
    "FramePiece",
    "Partitions",
    "connected",
    "is_dask",
]

_BATCH = 1 << 16  # rows
_PIECE = 1 << 20  # rows: of a partition of a file, in groups of rows as they were written


def is_dask(data: Any) -> bool:
    """Whether it is a dask DataFrame."""
    return hasattr(data, "to_delayed") and hasattr(data, "npartitions") and hasattr(data, "_meta")


def connected() -> Any:
    """The client of a cluster that this process works with; None where there is none."""
    distributed = sys.modules.get("distributed")  # whoever has a client has imported it
    if distributed is None:
        return None
    try:
        return distributed.default_client()
    except ValueError:
        return None


class Partitions:
    """A dask DataFrame, partition by partition.

    On a cluster partitions stay on its workers (`dpstats.holders.cluster`). Without one, or where a
    fit needs the rows here, they are made one after the other in this process.

    Parameters
    ----------
    data : dask.dataframe.DataFrame
        A row is one of each partition, in their order.
    client : distributed.Client, optional
        Of the cluster; by default the current one, if there is any.
    """

    columns: Mapping[str, Any]

    def __init__(self, data: Any, client: Any = None) -> None:
        self._data, self._client = data, client
        self.columns = named_columns(data._meta)

    @property
    def client(self) -> Any:
        """The client of the cluster; None where there is none."""
        return connected() if self._client is None else self._client

    @cached_property
    def _rows(self) -> int:
        return int(self._made(self._data.index.size))

    def _made(self, task: Any) -> Any:
        """What a task makes, on the cluster or in this process."""
        if (client := self.client) is None:
            return task.compute(scheduler="synchronous")
        return client.compute(task).result()

    def count(self) -> int:
        """Number of rows."""
        return self._rows

    def check(self) -> None:
        """Partitions can be made again."""

    def check_workers(self) -> None:
        """Refuse a cluster whose workers do not find the rows."""

    def _tasks(self, names: Sequence[str]) -> list[Any]:
        """These columns of each partition, as tasks that are still to be run."""
        return list(self._data[list(names)].to_delayed())

    def parts(self, names: Sequence[str]) -> tuple[list[Any], list[int]]:
        """These columns of each partition, as tasks that are still to be run; and their rows.

        Which partitions there are depends on the columns: dask reads several as one where few
        columns are asked for. So the rows of these tasks are counted, and of no others.
        """
        from dask.delayed import delayed

        tasks = self._tasks(names)
        return tasks, self._made(delayed([delayed(len)(task) for task in tasks]))

    def read(self, names: Sequence[str]) -> Iterator[dict[str, Any]]:
        """These columns of all rows, a partition at a time, made in this process."""
        for task in self._tasks(names):
            yield named_columns(task.compute(scheduler="synchronous"), names)


class _Files(Protocol):
    """Parquet files as they are read in this process; see `dpstats.tables.sources`."""

    paths: Sequence[Path]

    @property
    def columns(self) -> Mapping[str, Any]: ...

    def check(self) -> None: ...

    def read(self, names: Sequence[str]) -> Iterator[dict[str, Any]]: ...


class FilePartitions(Partitions):
    """Parquet files that workers read themselves: some groups of rows of one file a partition.

    Parameters
    ----------
    files : _Files
        As this process sees them: names and types of columns, and numbers of rows, are theirs.
    client : distributed.Client
        Of the cluster; its workers find the files under the same paths.
    """

    def __init__(self, files: _Files, client: Any) -> None:
        self._files, self._client = files, client
        self.columns = files.columns
        self._pieces = [(path, *piece) for path in files.paths for piece in _pieces(path)]

    def count(self) -> int:
        """Number of rows, of the footers of the files."""
        return sum(rows for *_, rows in self._pieces)

    def check(self) -> None:
        """Refuse files that are no longer there."""
        self._files.check()

    def check_workers(self) -> None:
        """Refuse a cluster whose workers do not find the files.

        Raises
        ------
        DataError
            Naming one of the files.
        """
        paths = [os.path.abspath(path) for path in self._files.paths]
        try:
            lacking = [path for path in self._client.run(_first_lacking, paths).values() if path]
        except Exception as error:
            raise DataError(f"Workers could not be asked ({type(error).__name__}).") from None
        if lacking:
            raise DataError(
                f"{lacking[0]}: the file is here, and a worker of the cluster does not find it or "
                "may not read it. Put the files where all of them see them, under one path."
            )

    def parts(self, names: Sequence[str]) -> tuple[list[Any], list[int]]:
        """These columns of each partition, as tasks that are still to be run; and their rows."""
        from dask.delayed import delayed

        made = delayed(FilePiece, pure=False)
        tasks = [
            made(os.path.abspath(path), groups, list(names)) for path, groups, _ in self._pieces
        ]
        return tasks, [rows for *_, rows in self._pieces]

    def read(self, names: Sequence[str]) -> Iterator[dict[str, Any]]:
        """These columns of all rows, read in this process."""
        return self._files.read(names)


def _pieces(path: Path) -> Iterator[tuple[tuple[int, ...], int]]:
    """Groups of rows of a file, together about `_PIECE` rows; and how many these are."""
    import pyarrow.parquet

    groups: list[int] = []
    rows = 0
    with pyarrow.parquet.ParquetFile(path) as file:
        for k in range(file.num_row_groups):
            more = file.metadata.row_group(k).num_rows
            if groups and rows + more > _PIECE:
                yield tuple(groups), rows
                groups, rows = [], 0
            groups.append(k)
            rows += more
    if rows:
        yield tuple(groups), rows


class ArrowNames(Protocol):
    """Names and types of a table of Arrow."""

    def empty_table(self) -> object:
        """A table of them, without a row."""
        ...


class ArrowTable(Protocol):
    """What is used of a table of Arrow."""

    @property
    def schema(self) -> ArrowNames:
        """Names and types."""
        ...

    def __len__(self) -> int: ...

    def slice(self, offset: int, length: int) -> ArrowTable:
        """Some rows, without a copy."""
        ...


Frame: TypeAlias = pd.DataFrame | ArrowTable


class FramePiece:
    """A partition that is in memory: given away when it is read.

    Parameters
    ----------
    frame : DataFrame of pandas, or table of Arrow
        The partition.
    """

    def __init__(self, frame: Frame) -> None:
        self._frames, self._rows = [frame], len(frame)
        self.columns = named_columns(_types(frame))

    def count(self) -> int | None:
        """The number of rows that was announced counts, not this one."""
        return None

    def check(self) -> None:
        """It is there."""

    def read(self, names: Sequence[str]) -> Iterator[dict[str, Any]]:
        """These columns, some rows at a time, once."""
        frame = self._frames.pop()
        for start in range(0, self._rows, _BATCH):
            yield named_columns(_some(frame, start), names)
            let_go()


def _some(frame: Frame, start: int) -> Frame:
    """Rows of a partition from one on: `_BATCH` of them, of which copies are made."""
    if isinstance(frame, pd.DataFrame):
        return frame.iloc[start : start + _BATCH]
    return frame.slice(start, _BATCH)


def _types(frame: Frame) -> object:
    """Names and types of a partition; a slice without rows would keep all of them in memory."""
    if isinstance(frame, pd.DataFrame):
        return pd.DataFrame({name: pd.Series(dtype=kind) for name, kind in frame.dtypes.items()})
    return frame.schema.empty_table()


@dataclass(frozen=True)
class FilePiece:
    """Some groups of rows of a Parquet file, which a worker reads a batch at a time.

    Attributes
    ----------
    path : str
        The file.
    groups : sequence of int
        Of rows, as they were written.
    names : list of str
        Columns that are read.
    """

    path: str
    groups: Sequence[int]
    names: list[str]

    @property
    def columns(self) -> Mapping[str, Any]:
        """Names and types: columns without a row."""
        with self._opened() as file:
            return named_columns(file.schema_arrow.empty_table(), self.names)

    def count(self) -> int | None:
        """The number of rows that was announced counts, not this one."""
        return None

    def check(self) -> None:
        """The file is opened when it is read."""

    def read(self, names: Sequence[str]) -> Iterator[dict[str, Any]]:
        """These columns, some rows at a time."""
        import pyarrow

        with self._opened() as file:
            for batch in file.iter_batches(_BATCH, list(self.groups), list(names)):
                yield named_columns(pyarrow.Table.from_batches([batch]), names)
                del batch
                let_go()

    def _opened(self) -> Any:
        import pyarrow.parquet

        return pyarrow.parquet.ParquetFile(self.path, pre_buffer=False)  # not all of it at once


def _first_lacking(paths: Sequence[str]) -> str:
    """The first of these files that this worker cannot read, if there is one."""
    return next((path for path in paths if not os.access(path, os.R_OK)), "")
