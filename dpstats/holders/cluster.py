"""Rows of one table on the workers of a Dask cluster, asked for exact totals of queries.

The cluster is one trusted party with the curator: it holds the rows. Workers draw no noise. They
answer in exact integers, which are added up where the ledger is, so that the bits are those of the
same rows in memory, however they are divided; and a worker that dies loses nothing that cannot be
asked again: its partitions are prepared elsewhere, and the same question has the same answer.

Whatever fails on a worker is told by its name alone, for what it says may quote rows.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, cast

import numpy as np
from numpy.typing import NDArray

from dpstats.design import design_from_dict
from dpstats.errors import DataError
from dpstats.holders.mapped import MappedRows
from dpstats.holders.rows import Added, ResidentRows, Work, rounded_total
from dpstats.holders.store import AnnouncedQueries, Grid, Total
from dpstats.holders.workers import (
    PAUSE,
    Client,
    Future,
    LostWorkerError,
    call_actor,
    check_workers,
    memory_of,
    result_of,
    workers_of,
)
from dpstats.mechanisms.lots import GivenKey, Lots, LotsWindow
from dpstats.queries.as_json import query_from_dict, query_to_dict
from dpstats.queries.blocks import MAX_ROWS
from dpstats.tables.partitions import FilePiece, Frame, FramePiece, Partitions
from dpstats.tables.scratch import CHARGED, let_go, scratch_folder
from dpstats.tables.sources import withheld
from dpstats.tables.streams import Reading, Stream

if TYPE_CHECKING:
    from dpstats.design import Design, Source
    from dpstats.queries import Query
    from dpstats.schema import Schema

__all__ = ["ClusterRows", "Spread"]

Array = NDArray[np.float64]
Cut = tuple[int, int]

PATIENCE = 60.0  # seconds: for a worker, where all that had rows were lost
_TRIES = 3  # times that workers may be lost under one question
_MAPPED_BLOCKS = 8  # of half a million numbers or a million, that a worker has mapped at once
_HELD_BYTES = 12  # bytes: a value, as it was read and as queries see it, at the most
_HELD_SHARE = 0.5  # ratio: of the workers' memory, beyond which rows go to their disks
_MEMORY = (
    " Dask restarts workers that pass their memory limit: see its log, and use workers with more "
    "memory or smaller partitions."
)
_LOST = f"Workers were lost {_TRIES} times under one question.{_MEMORY}{CHARGED}"


@dataclass(frozen=True, eq=False)
class Piece:
    """What a worker has to know of one partition: its place in the table, and where to keep it."""

    start: int
    rows: int
    whole: int
    schema: Schema
    scratch: str | None
    on_disk: bool


class NamedActor(Protocol):
    """What a task is told of an actor."""

    key: str


class Actor:
    """The partitions of one worker. Private; no method raises, and none returns a row."""

    def __init__(self, whole: int) -> None:
        self._key = GivenKey()
        self._lots = Lots(self._key, whole)
        self._held: list[tuple[Piece, Source, Path | None]] = []
        self._stores: list[ResidentRows] = []

    def add(self, piece: Piece, frame: Frame | FilePiece, design: DescribedDesign) -> str:
        """Read a partition, and prepare it for queries; the name of what failed, or nothing."""
        return _failing(lambda: self._add(piece, frame, design))

    def open(self, design: DescribedDesign) -> str:
        """Prepare the same rows for another design of the same columns."""
        return _failing(lambda: self._open(design))

    def totals(
        self, queries: Sequence[Mapping[str, object]], cut: Cut | None, key: bytes
    ) -> list[Total] | str:
        """Exact totals of the rows that are here, in integers; or the name of what failed."""
        made: list[Total] = []
        return _failing(lambda: made.extend(self._totals(queries, cut, key))) or made

    def _add(self, piece: Piece, frame: Frame | FilePiece, design: DescribedDesign) -> None:
        bound = design.bound()
        batches = frame if isinstance(frame, FilePiece) else FramePiece(frame)
        reading = Reading(Stream(batches, piece.schema, piece.rows))
        source = bound.source(reading)
        folder = scratch_folder(piece.scratch) if piece.on_disk else None
        reading.keep(folder)
        self._held.append((piece, source, folder))
        self._stores.append(self._store(source, bound, piece, folder))

    def _open(self, design: DescribedDesign) -> None:
        bound = design.bound()
        self._stores.clear()  # before the others are there
        for k, (piece, source, folder) in enumerate(self._held):
            again = bound.reread(source)
            self._held[k] = piece, again, folder
            self._stores.append(self._store(again, bound, piece, folder))

    def _store(
        self, source: Source, design: Design, piece: Piece, folder: Path | None
    ) -> ResidentRows:
        lots = LotsWindow(self._lots, piece.start, piece.rows)
        store = (
            ResidentRows(source, design, 1, lots)
            if folder is None
            else _UnmappedRows(source, design, 1, lots, folder)
        )
        store.everything.whole = piece.whole  # compiled products pay as if it were one table
        let_go()  # dask stops a worker whose resident memory is beyond its limit
        return store

    def _totals(
        self, queries: Sequence[Mapping[str, object]], cut: Cut | None, key: bytes
    ) -> list[Total]:
        asked, self._key.key = [query_from_dict(query) for query in queries], key
        made: list[list[Total]] = []
        for store in self._stores:
            several = len(asked) > 1
            made.append(store.totals(asked) if several else [store.total(asked[0], cut)])
            let_go()
        return _sums(made)


class _UnmappedRows(MappedRows):
    """Rows in a scratch file of which few pages count as memory, for dask limits what counts."""

    def _reduce(self, task: Callable[[Work], NDArray[Added]], blocks: list[Work]) -> NDArray[Added]:
        made: NDArray[Added] | None = None
        for first in range(0, len(blocks), _MAPPED_BLOCKS):
            more = super()._reduce(task, blocks[first : first + _MAPPED_BLOCKS])
            made = more if made is None else made + more
            let_go()
        return super()._reduce(task, blocks) if made is None else made


@dataclass(frozen=True, eq=False)
class DescribedDesign:
    """What a worker makes a design of: its record, and the scales that were found for it."""

    record: Mapping[str, object]
    found: Mapping[int, tuple[float, float]]

    def bound(self) -> Design:
        """The design."""
        made = design_from_dict(self.record)
        return made.scaled(self.found) if self.found else made


def _failing(task: Callable[[], object]) -> str:
    """The name of the error that a task ends in; nothing where it ends well."""
    try:
        with np.errstate(all="ignore"), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # a warning about a value would be in a worker's log
            task()
    except Exception as error:
        return type(error).__name__
    return ""


def _sums(answers: Sequence[Sequence[Total]]) -> list[Total]:
    """Of each query, in Python's integers: int64 holds sums over up to `MAX_ROWS` rows."""
    each = zip(*answers, strict=True)
    return [np.sum([total.astype(object) for total in totals], axis=0) for totals in each]


def _fed(actor: NamedActor, piece: Piece, frame: Frame | FilePiece, design: DescribedDesign) -> str:
    """A task beside an actor: hands it a partition without a way over the network.

    It does not raise: dask logs the arguments of a task that does.
    """
    answers: list[str] = []

    def hand() -> None:
        from distributed import get_worker

        own = cast(Actor, get_worker().state.actors[actor.key])
        answers.append(own.add(piece, frame, design))

    return _failing(hand) or answers[0]


# -- where the ledger is -----------------------------------------------------------------------


@dataclass(eq=False)
class _WorkerActor:
    """A worker's actor, and the places of the partitions that it holds."""

    worker: str
    actor: Future
    partitions: list[int]


class Spread:
    """The partitions of a table on the workers of a cluster, for one fit.

    Parameters
    ----------
    partitions : Partitions
        The table.
    names : sequence of str
        Columns that are read.
    schema : Schema
        What is declared of them.
    width : int
        Columns of the design.
    scratch : str, optional
        Folder of the workers for rows that do not fit into half of a worker's memory.

    Raises
    ------
    DataError
        If there is no worker, or one without this version of dpstats, or without the files.
    """

    def __init__(
        self,
        partitions: Partitions,
        names: Sequence[str],
        schema: Schema,
        width: int,
        scratch: str | None = None,
    ) -> None:
        self._client: Client = partitions.client
        check_workers(self._client)
        partitions.check_workers()
        n = partitions.count()
        on_disk = _HELD_BYTES * n * (width + len(names)) > _HELD_SHARE * memory_of(self._client)
        parts, sizes = withheld("Partitions could not be counted", lambda: partitions.parts(names))
        ends = np.minimum(np.cumsum(sizes), n).tolist()
        ends[-1] = n  # rows that were announced, whatever is counted now: see `Reading`
        dealt = zip(parts, [0, *ends[:-1]], ends, strict=True)
        filled = [(part, a, b - a) for part, a, b in dealt if a < b]
        self._parts = [part for part, *_ in filled]
        self._pieces = [Piece(a, m, n, schema, scratch, on_disk) for _, a, m in filled]
        self._homes: list[_WorkerActor] = []
        self._design: DescribedDesign | None = None

    def open(self, design: DescribedDesign) -> None:
        """Prepare all rows for a design."""
        self._design = design
        if self._homes:
            self._everywhere("open", design)
            return
        workers, every = workers_of(self._client), range(len(self._parts))
        self._settle([(w, list(every[k :: len(workers)])) for k, w in enumerate(workers)])

    def totals(
        self, queries: Sequence[Mapping[str, object]], cut: Cut | None, key: bytes
    ) -> list[Total]:
        """Exact totals over all rows, in Python's integers."""
        return _sums(cast("list[list[Total]]", self._everywhere("totals", queries, cut, key)))

    def _everywhere(self, method: str, *arguments: object) -> list[object]:
        """What every actor answers; partitions of lost workers are prepared anew, and asked."""
        answers: list[object] = []
        left, tries = list(self._homes), _TRIES
        while left:
            asked = [
                (home, call_actor(home.actor, home.worker, self._client, method, arguments))
                for home in left
            ]
            lost = []
            for home, future in asked:
                try:
                    answers.append(result_of(future, self._client, home.worker))
                except LostWorkerError:
                    lost.append(home)
            if lost and (tries := tries - 1) == 0:
                raise DataError(_LOST)
            before = self._homes = [home for home in self._homes if home not in lost]
            self._settle(self._elsewhere(lost) if lost else [])
            left = [home for home in self._homes if home not in before]
        for failed in (a for a in answers if isinstance(a, str) and a):
            raise DataError(f"A worker could not do its part ({failed}).{CHARGED}")
        return answers

    def _elsewhere(self, lost: Sequence[_WorkerActor]) -> list[tuple[str, list[int]]]:
        """The partitions of lost workers, and workers that are there: those without rows first."""
        gone, busy = {h.worker for h in lost}, {h.worker for h in self._homes}
        until = time.monotonic() + PATIENCE
        while not (there := [w for w in workers_of(self._client) if w not in gone]):
            if time.monotonic() > until:
                raise DataError(
                    f"No worker came back within {PATIENCE:g} seconds, or the scheduler is gone."
                    + _MEMORY
                    + CHARGED
                )
            time.sleep(PAUSE)
        there.sort(key=busy.__contains__)
        return [(there[k % len(there)], home.partitions) for k, home in enumerate(lost)]

    def _settle(self, dealt: list[tuple[str, list[int]]]) -> None:
        """Make actors on workers, and hand them partitions; where one is lost, on others."""
        for _ in range(_TRIES):
            made = [self._home(worker, mine) for worker, mine in dealt if mine]
            lost = self._filled(made)
            self._homes = [*self._homes, *(home for home in made if home not in lost)]
            if not lost:
                return
            dealt = self._elsewhere(lost)
        raise DataError(_LOST)

    def _home(self, worker: str, partitions: list[int]) -> _WorkerActor:
        whole, where = self._pieces[0].whole, {"workers": [worker], "pure": False}
        return _WorkerActor(
            worker, self._client.submit(Actor, whole, actor=True, **where), partitions
        )

    def _filled(self, homes: Sequence[_WorkerActor]) -> list[_WorkerActor]:
        """Hand actors their partitions, one each at a time; those whose workers were lost."""
        lost: list[_WorkerActor] = []
        for turn in range(max((len(home.partitions) for home in homes), default=0)):
            turns = [h for h in homes if turn < len(h.partitions) and h not in lost]
            tasks = [self._feeding(home, home.partitions[turn]) for home in turns]
            for home, task in zip(turns, tasks, strict=True):
                try:
                    failed = result_of(task, self._client, home.worker)
                except LostWorkerError:
                    lost.append(home)
                    continue
                if failed:
                    raise DataError(f"A partition could not be read ({failed}).{CHARGED}")
        return lost

    def _feeding(self, home: _WorkerActor, at: int) -> Future:
        where = {"workers": [home.worker]}  # dask may know a partition as that of one that is gone
        part = self._client.compute(self._parts[at], allow_other_workers=True, **where)
        known = (self._pieces[at], part, self._design)
        fed: Future = self._client.submit(_fed, home.actor, *known, pure=False, **where)
        return fed


class ClusterRows:
    """The store of rows that are spread over a cluster; see `RowStore`. Private.

    Parameters
    ----------
    source : Source
        Not read: the rows are on the workers.
    design : Design
        Public design.
    max_rows : int
        1: rows of a unit would have to be brought together.
    lots : Lots
        Of the rows. Where parts are dealt the key goes to the workers.
    spread : Spread
        The rows.
    """

    def __init__(
        self, source: Source, design: Design, max_rows: int, lots: Lots, spread: Spread
    ) -> None:
        if max_rows != 1 or len(source) != len(lots):
            raise DataError("On a cluster each row is a unit of its own.")
        self._step, self._lots, self._spread = Grid.of(design).step, lots, spread
        self._foreseen = AnnouncedQueries()
        spread.open(DescribedDesign(design.to_dict(), dict(design.found)))

    def foresee(self, queries: Sequence[Query]) -> None:
        """Workers are asked once for these; see `RowStore.foresee`."""
        self._foreseen.expect(queries)

    def answer(self, query: Query, cut: Cut | None = None) -> Array:
        """Exact answer before noise; see `RowStore.answer`."""
        key = b"" if cut is None else self._lots.key

        def asked(queries: Sequence[Query]) -> list[Total]:
            return self._spread.totals([query_to_dict(q) for q in queries], cut, key)

        total = asked([query])[0] if cut else self._foreseen.total(query, asked)
        n, (part, parts) = len(self._lots), cut or (0, 1)
        rows = n * (part + 1) // parts - n * part // parts
        step = self._step if query.columns is None else self._step[list(query.columns)]
        return query.finish(
            rounded_total(total if rows > MAX_ROWS else total.astype(np.int64)), step
        )
