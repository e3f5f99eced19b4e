"""The ledger: what may be spent on a data set, and everything that was.

A ledger is one SQLite file that is only ever appended to. A charge is one transaction: verify what
was added, compose all entries with the new one, refuse or write, and be on disk before any row is
read. Nothing is refunded, since a fit that failed may have released something.

An edited, truncated or reordered file is refused. What no file can show about itself is that it is
an older copy of itself, or was made into one: see docs/ledger.md and `Ledger.witness`.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
import threading
import weakref
from collections.abc import Iterator
from dataclasses import replace
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dpstats.accounting.chain import (
    Budget,
    Chain,
    Entry,
    append,
    check_witness,
    connect,
    create,
    guard,
    make_header,
    name_of,
    pair,
    stamped,
    verify,
    write_schema,
)
from dpstats.accounting.charge import Chargeable, check_same_promise, entry_of, refusal
from dpstats.accounting.filter import Composition, costs
from dpstats.accounting.standing import LedgerState, remaining, spent, state_of
from dpstats.errors import LedgerError, OptionError, given, is_number
from dpstats.outputs import check_name
from dpstats.privacy import NOT_PRIVATE
from dpstats.text import html_text, plain, printable

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["Entry", "Ledger"]

# How the noise of an entry is called, by its `reproducible`.
_NOISE = {None: "not recorded", False: "private", True: NOT_PRIVATE}


class Ledger:
    """What may be spent on one data set, and everything that was. Made by `open` or `memory`.

    Any number of processes and threads may charge one file at once.

    Attributes
    ----------
    ceiling : tuple of float
        The (epsilon, delta) that all entries together may cost.
    spent : tuple of float
        What they take up of it: an epsilon at the ceiling's delta. Entries compose tightly (see
        docs/accounting.md), so this is less than the sum of theirs.
    remaining : tuple of float
        What one more fit may ask for: the largest epsilon, at the ceiling's delta, of a fit that
        uses Gaussian noise (Laplace noise where delta is 0). Again because entries
        compose, ``spent + remaining`` is more than the ceiling.

    Examples
    --------
    >>> import dpstats as dp
    >>> ledger = dp.Ledger.memory(epsilon=3.0, delta=1e-6)
    >>> model = dp.mean("y", {"y": [0.2, 0.8] * 99}, dp.Schema(y=dp.Numeric(0, 1)))
    >>> fit = model.fit(dp.Central(1.0, 1e-7), ledger)
    >>> len(ledger.entries), ledger.remaining[0] < 3.0
    (1, True)
    """

    def __init__(
        self,
        path: Path | None,
        chain: Chain,
        memory: sqlite3.Connection | None = None,
    ) -> None:
        if not isinstance(chain, Chain):
            raise LedgerError(
                "Ledger.open(path, epsilon=, delta=) opens a ledger in a file, and "
                "Ledger.memory(epsilon, delta) one that ends with this process."
            )
        self._path = path
        self._seen = chain
        self._memory = memory
        if memory is not None:
            weakref.finalize(self, memory.close)
        self._lock = threading.RLock()

    # -- opening

    @classmethod
    def open(
        cls,
        path: str | os.PathLike[str],
        epsilon: float | None = None,
        delta: float | None = None,
        *,
        witness: str | None = None,
    ) -> Ledger:
        """Open the ledger at `path`; make it where there is none.

        Parameters
        ----------
        path : path
            One file on a local disk, kept beside the data.
        epsilon, delta : float, optional
            Ceiling. Needed to make a ledger; compared where it exists.
        witness : str, optional
            A `Ledger.witness` noted down earlier and kept elsewhere; the ledger must contain it.

        Raises
        ------
        LedgerError
            If the file is not a ledger, was edited, truncated or reordered, has another ceiling or
            lacks the witness; if there is none and no ceiling is given.
        """
        for name, value in (("epsilon", epsilon), ("delta", delta)):
            if value is not None and not is_number(value):
                raise OptionError(f"{name}={given(value)}: a number is needed, the ceiling.")
        where = check_name(path)
        if not where.exists():
            create(where, epsilon, delta)
        if not where.is_file():
            raise LedgerError(f"{where} is no file: a ledger is one file on a local disk.")
        with guard(where), contextlib.closing(connect(where)) as connection, _reading(connection):
            chain = verify(connection, where, thorough=True)
        asked = (epsilon, delta)
        if any(a is not None and a != c for a, c in zip(asked, chain.header.ceiling, strict=True)):
            raise LedgerError(
                f"{where.name} has the ceiling (epsilon, delta) = {pair(chain.header.ceiling)}, "
                f"but {pair(asked)} was asked. A ceiling never changes: open it as "
                f"Ledger.open({str(path)!r}), or make another ledger for other data."
            )
        if witness is not None:
            check_witness(chain, witness, where)
        return cls(where, chain)

    @classmethod
    def memory(cls, epsilon: float, delta: float) -> Ledger:
        """A ledger that does not outlive the process; a forked child would spend apart from it."""
        header = make_header(epsilon, delta)
        connection = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
        write_schema(connection, header)
        return cls(None, verify(connection, None), connection)

    # -- looking

    @property
    def path(self) -> Path | None:
        """Where it is kept, None in memory."""
        return self._path

    @property
    def persistent(self) -> bool:
        """Whether it outlives the process."""
        return self._path is not None

    @property
    def ceiling(self) -> Budget:
        """The (epsilon, delta) that all entries together may cost."""
        return self._seen.header.ceiling

    @property
    def entries(self) -> tuple[Entry, ...]:
        """Every charge, in order."""
        return self._chain().entries

    @property
    def spent(self) -> Budget:
        """Cost of all entries together; (0, 0) where there are none."""
        return spent(self._chain())

    @property
    def remaining(self) -> Budget:
        """The largest (epsilon, delta) that one more fit may ask for; (0, 0) where nothing is."""
        return remaining(self._chain())

    @property
    def witness(self) -> str:
        """Count of entries and last hash. Kept elsewhere, it detects a restored older copy."""
        return self._chain().witness

    def state(self) -> LedgerState:
        """All of the above at one moment."""
        return state_of(self._chain(), self._path)

    def to_frame(self) -> pd.DataFrame:
        """Entries as a table, with the epsilon spent up to each, at the ceiling's delta.

        Of a long ledger the epsilon spent is computed for some entries, the last among them, and
        interpolated for those between.
        """
        import pandas as pd

        chain = self._chain()
        names = ["id", "time", "label", "model", "method", "epsilon", "delta", "neighbors", "unit"]
        fits = (entry.events for entry in chain.entries)
        states = list(
            accumulate(fits, Composition.then, initial=Composition(*chain.header.ceiling))
        )[1:]
        columns = {name: [getattr(entry, name) for entry in chain.entries] for name in names}
        return pd.DataFrame(
            {
                **columns,
                "noise": [_NOISE[entry.reproducible] for entry in chain.entries],
                "mechanisms": [len(entry.events) for entry in chain.entries],
                "spent": costs(states),
            }
        )

    def can_afford(self, plan: Chargeable, unit: str | None = None) -> bool:
        """Whether `plan` could be charged now. Nothing is charged.

        Raises
        ------
        PlanError
            If the cost of the plan cannot be computed or is not what it states.
        LedgerError
            If the plan protects something else than the entries do.
        """
        chain = self._chain()
        entry = entry_of(plan, "", unit)
        check_same_promise(chain, entry)
        return chain.composed.then(entry.events).admitted

    # -- charging

    def charge(
        self,
        plan: Chargeable,
        label: str = "",
        unit: str | None = None,
        *,
        reproducible: bool | None = None,
    ) -> Entry:
        """Write `plan` into the ledger, on disk when this returns. It is never refunded.

        Parameters
        ----------
        plan : Plan
            Its model, method, privacy and events are read.
        label : str
            Formula or another public text; it is stored as it is.
        unit : str, optional
            The unit of privacy where it is not one record; ``plan.unit`` otherwise, if it has one.
        reproducible : bool, optional
            Whether the noise will be seeded, which the entry records.

        Returns
        -------
        Entry

        Raises
        ------
        BudgetError
            If all entries and this one would cost more than the ceiling. Nothing was charged.
        PlanError
            If the cost of the plan cannot be computed or is not what it states.
        LedgerError
            If the file was tampered with, or holds entries for other neighbours or another unit.
        """
        draft = replace(entry_of(plan, label, unit), reproducible=reproducible)
        with self._connection() as connection:
            with _writing(connection):
                chain = self._verified(connection)
                check_same_promise(chain, draft)
                after = chain.composed.then(draft.events)
                affordable = after.admitted
                if affordable:
                    chain = append(connection, chain, draft, after)
            chain = stamped(connection, self._path, chain)
        self._remember(chain)
        if not affordable:
            raise refusal(chain, draft)
        return chain.entries[-1]

    # -- the file

    def _chain(self) -> Chain:
        """The ledger as it is now, verified."""
        with self._connection() as connection, _reading(connection):
            chain = self._verified(connection)
        self._remember(chain)
        return chain

    def _remember(self, chain: Chain) -> None:
        """Keep the longest chain seen, as it was seen last: a later one must contain it."""
        self._seen = max(chain, self._seen, key=lambda c: len(c.entries))

    @contextlib.contextmanager
    def _connection(self) -> Iterator[sqlite3.Connection]:
        """A connection of its own for each operation, so threads and forked children are safe."""
        with guard(self._path):
            if self._memory is not None:
                with self._lock:
                    yield self._memory
            else:
                assert self._path is not None
                with contextlib.closing(connect(self._path)) as connection:
                    yield connection

    def _verified(self, connection: sqlite3.Connection) -> Chain:
        """Verify, and require that what this object has seen before is still there."""
        seen = self._seen
        chain = verify(connection, self._path, known=seen)
        if chain.header != seen.header or chain.entries[: len(seen.entries)] != seen.entries:
            raise LedgerError(
                f"{name_of(self._path)} was replaced while it was open: some of the "
                f"{len(seen.entries)} entries seen before are gone. Restore the newest copy."
            )
        return chain

    # -- copying: a second ledger with the entries of this one could spend the rest of it again

    def __deepcopy__(self, memo: Any = None) -> Ledger:
        return self

    __copy__ = __deepcopy__

    def __reduce__(self) -> tuple[Any, ...]:
        if self._path is None:
            raise LedgerError(
                "A ledger in memory cannot be sent to another process, which would spend apart "
                "from it: open one in a file, dpstats.Ledger.open(path, epsilon, delta)."
            )
        return _reopened, (str(self._path.resolve()), self.witness)

    # -- showing

    def __repr__(self) -> str:
        state = self.state()
        kept = name_of(self._path) + ("" if self.persistent else ", does not outlive the process")
        return plain(f"<Ledger {kept}; {state.sentence().removesuffix('.')}>")

    def _repr_html_(self) -> str:
        table: str = printable(self.to_frame()).to_html(index=False, escape=True)
        return f"<p>{html_text(repr(self)[1:-1])}</p>{table}"


def _reopened(path: str, witness: str) -> Ledger:
    """The same file, which has to hold what it held."""
    return Ledger.open(path, witness=witness)


# -- money -------------------------------------------------------------------------------------


@contextlib.contextmanager
def _reading(connection: sqlite3.Connection) -> Iterator[None]:
    """One moment of the file: what others commit meanwhile is not seen half."""
    connection.execute("BEGIN")
    try:
        yield
    finally:
        if connection.in_transaction:
            connection.execute("ROLLBACK")


@contextlib.contextmanager
def _writing(connection: sqlite3.Connection) -> Iterator[None]:
    """One write transaction: committed on success, else undone."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
        connection.execute("COMMIT")
    finally:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
