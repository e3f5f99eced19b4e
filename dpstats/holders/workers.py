"""Calls of actors on the workers of a Dask cluster: what they return, and who is still there.

Whatever fails on a worker is told by its name alone, for what it says may quote rows. Clients,
futures and actors are those of `distributed`, which has no types: what is used of them is below.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from typing import Protocol, TypeVar

import numpy as np

from dpstats.errors import DataError
from dpstats.version import VERSION

__all__ = [
    "PAUSE",
    "Client",
    "Future",
    "LostWorkerError",
    "call_actor",
    "check_workers",
    "memory_of",
    "result_of",
    "workers_of",
]

PAUSE = 1.0  # seconds: between looks at whether a worker is still there


T = TypeVar("T")


class Future(Protocol):
    """What a task, or a call of an actor, will return."""

    def result(self, timeout: float) -> object:
        """It, once it is there; `TimeoutError` where it is not by then."""
        ...


class Client(Protocol):
    """The client of a cluster."""

    def as_current(self) -> AbstractContextManager[object]:
        """Whatever is called meanwhile goes to this cluster."""
        ...

    def compute(self, task: object, **where: object) -> Future:
        """Run a task of a graph."""
        ...

    def submit(self, function: Callable[..., object], *given: object, **where: object) -> Future:
        """Call a function on a worker, or make an actor there."""
        ...

    def run(self, function: Callable[[], T]) -> Mapping[str, T]:
        """What a function returns on each worker."""
        ...

    def scheduler_info(self, n_workers: int) -> Mapping[str, Mapping[str, Mapping[str, float]]]:
        """What the scheduler says of workers."""
        ...


class LostWorkerError(Exception):
    """A worker is no longer there."""


def call_actor(
    actor: Future, worker: str, client: Client, method: str, arguments: tuple[object, ...]
) -> Future | None:
    """A call of an actor's method, on its way; None where its worker is no longer there."""
    try:
        made = result_of(actor, client, worker)
        with client.as_current():  # a copy of an actor is bound to the current client
            asked: Future = getattr(copy.copy(made), method)(*arguments)
            return asked
    except Exception:  # of the connection: nothing has been computed yet
        return None


def result_of(future: Future | None, client: Client, worker: str) -> object:
    """What a task on a worker returns; the name of its error, where it has one.

    Raises
    ------
    LostWorkerError
        If the worker is no longer there.
    """
    while future is not None:
        try:
            return future.result(timeout=PAUSE)
        except TimeoutError:
            if worker not in workers_of(client):
                break
        except Exception as error:
            unreachable = isinstance(error, OSError) and not hasattr(future, "key")  # of an actor
            if unreachable or worker not in workers_of(client):
                break
            return type(error).__name__
    raise LostWorkerError


def workers_of(client: Client) -> list[str]:
    """Addresses of the workers that are there: none, where no scheduler answers."""
    try:
        return sorted(client.scheduler_info(n_workers=-1)["workers"])
    except Exception:  # of whatever the client is in the middle of
        return []


def memory_of(client: Client) -> float:
    """Bytes that all workers may use together."""
    workers = client.scheduler_info(n_workers=-1)["workers"].values()
    return float(sum(each["memory_limit"] or np.inf for each in workers))


def check_workers(client: Client) -> None:
    """Refuse a cluster without workers, or with one that has another version of the package.

    Raises
    ------
    DataError
        Naming the versions, or what failed.
    """
    if not workers_of(client):
        raise DataError("The cluster has no workers: start some, and fit again.")
    try:
        found = client.run(_version)
    except Exception as error:
        failed = type(error).__name__
    else:
        others = sorted({made for made in found.values() if made != VERSION})
        if not others:
            return
        failed = f"version {', '.join(others)}"
    raise DataError(
        f"Workers of the cluster are without this version of dpstats ({failed}): install dpstats "
        f"{VERSION} on all of them."
    )


def _version() -> str:
    """Of the package that a worker has."""
    return VERSION
