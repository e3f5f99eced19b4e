"""Tables of Dask: partitions that are made where they are needed, by the tasks of a graph."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Any

from dpstats.errors import DataError
from dpstats.tables import named_columns

__all__ = ["Partitions", "connected", "is_dask"]


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
    """

    def __init__(self, data: Any) -> None:
        self._data = data
        self.columns = named_columns(data._meta)

    @cached_property
    def sizes(self) -> tuple[int, ...]:
        """Number of rows of each partition."""
        found = self._data.map_partitions(len, meta=("rows", "i8"))
        client = connected()
        counted = found.compute(scheduler="synchronous") if client is None else found.compute()
        return tuple(int(rows) for rows in counted)

    def count(self) -> int:
        """Number of rows."""
        return sum(self.sizes)

    def check(self) -> None:
        """Partitions can be made again."""

    def parts(self, names: Sequence[str]) -> list[Any]:
        """These columns of each partition, as tasks that are still to be run."""
        made = self._data[list(names)].to_delayed()
        if len(made) != len(self.sizes):
            raise DataError("The partitions of a dask DataFrame have to stay the same ones.")
        return list(made)

    def read(self, names: Sequence[str]) -> Iterator[dict[str, Any]]:
        """These columns of all rows, a partition at a time, made in this process."""
        for part in self.parts(names):
            yield named_columns(part.compute(scheduler="synchronous"), names)
