"""Clusters that tables can be read and held on, as a user names them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from dpstats.errors import DataError, OptionError

__all__ = ["Dask", "PlacedTable", "placed"]


class Dask:
    """A Dask cluster: its workers read the files of a table, hold their rows, and answer queries.

    The cluster is one trusted party with the curator: it sees rows without noise. Noise is drawn in
    this process, which holds the ledger, once.

    Parameters
    ----------
    cluster : str, distributed.Client or cluster object
        Address of the scheduler, such as ``"scheduler:8786"``; or what the user is connected with
        already, as with TLS: ``dp.Dask(Client("tls://scheduler:8786", security=security))``.

    Raises
    ------
    OptionError
        If it is neither, or dask is not installed.

    Examples
    --------
    >>> import dpstats as dp
    >>> dp.Dask("scheduler:8786")  # nobody is asked yet
    Dask('scheduler:8786')
    """

    def __init__(self, cluster: Any) -> None:
        named = isinstance(cluster, str) and cluster != ""
        if not named and not hasattr(cluster, "scheduler_info"):
            raise OptionError(
                f"Dask({type(cluster).__name__}): the address of a scheduler is needed, as in "
                'dp.Dask("scheduler:8786"), or a distributed.Client.'
            )
        self._cluster = cluster
        self._made: Any = None

    def __repr__(self) -> str:
        shown = self._cluster if isinstance(self._cluster, str) else type(self._cluster).__name__
        return f"Dask({shown!r})" if isinstance(self._cluster, str) else f"Dask({shown})"

    @property
    def client(self) -> Any:
        """The client; the first call connects, and later fits use the same one.

        Raises
        ------
        OptionError
            If dask is not installed.
        DataError
            If no scheduler answers, or the client was closed.
        """
        if self._made is None:
            self._made = self._connected()
        if self._made.status != "running":
            raise DataError(
                f"{self!r}: the scheduler is not reached any longer (the client is "
                f"{self._made.status}). Make a new dp.Dask(...)."
            )
        return self._made

    def _connected(self) -> Any:
        try:
            from distributed import Client

            connect: Any = Client
        except ImportError:
            raise OptionError("A Dask cluster needs dask: pip install 'dpstats[dask]'.") from None
        if isinstance(self._cluster, Client):
            return self._cluster
        try:
            return connect(self._cluster, set_as_default=False)
        except Exception as error:
            failed = type(error).__name__
        raise DataError(
            f"{self!r}: no scheduler answers there ({failed}). Look whether the address is right, "
            "and whether it can be reached from here. Nothing was charged."
        )

    def read(self, data: Any) -> PlacedTable:
        """A table that workers are to read: for ``data=`` of models that have no ``engine=``.

        Parameters
        ----------
        data : path, pattern, folder or list of these, or dask DataFrame
            Parquet files that workers find under the same paths, or a URL such as
            ``"s3://survey/*.parquet"``.
        """
        return PlacedTable(data, self)


@dataclass(frozen=True, eq=False)
class PlacedTable:
    """A table, and the cluster that is to read and hold it."""

    data: Any
    engine: Dask

    def __repr__(self) -> str:  # that of a table might print rows
        return f"<table on {self.engine!r}>"


def placed(data: Any, engine: Dask | None) -> Any:
    """The table as it is, or on the cluster that was asked for.

    Raises
    ------
    OptionError
        If `engine` is something else.
    """
    if engine is not None and not isinstance(engine, Dask):
        raise OptionError(
            f"engine is a {type(engine).__name__}; give a cluster, as in "
            'engine=dp.Dask("scheduler:8786").'
        )
    return data if engine is None or data is None else engine.read(data)
