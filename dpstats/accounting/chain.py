"""The file of a ledger: a chain of entries in SQLite.

Every entry carries the SHA-256 hash of the entry before it and its own content, and a head record
carries the count and the last hash. Triggers refuse updates and deletions by mistake; the hashes
show those that were made around them. Opening verifies everything; who has it open and sees that
it was only appended to verifies what was appended.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import secrets
import sqlite3
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from dpstats.accounting.events import Event, event_from_dict, event_to_dict
from dpstats.accounting.filter import Composition
from dpstats.errors import DPStatsError, LedgerError, OptionError, PlanError
from dpstats.outputs import draft_in, sync_folder
from dpstats.stored import json_of, read, record

Budget = tuple[float, float]

_APPLICATION = 0x64707374  # "dpst", marks the file as a ledger
_VERSION = 1
_WAIT_SECONDS = 60.0
_HASH_LENGTH = 64
_FIRST = -(2**63)  # the least number that SQLite can give a row, which no entry may have

# Compared word for word when a ledger is opened: a file with other tables or without the triggers
# is not one that this module wrote.
_TABLES = {
    "header": """CREATE TABLE header (
        one INTEGER PRIMARY KEY CHECK (one = 1), payload TEXT NOT NULL)""",
    "entry": """CREATE TABLE entry (
        id INTEGER PRIMARY KEY, payload TEXT NOT NULL, hash TEXT NOT NULL)""",
    "head": """CREATE TABLE head (
        one INTEGER PRIMARY KEY CHECK (one = 1), count INTEGER NOT NULL, hash TEXT NOT NULL)""",
}
_REFUSED = "BEGIN SELECT RAISE(ABORT, 'a ledger is only ever appended to'); END"
_TRIGGERS = {
    f"no_{action.lower()}_{table}": f"CREATE TRIGGER no_{action.lower()}_{table} "
    f"BEFORE {action} ON {table} {_REFUSED}"
    for table, action in [
        ("header", "UPDATE"),
        ("header", "DELETE"),
        ("entry", "UPDATE"),
        ("entry", "DELETE"),
        ("head", "DELETE"),
    ]
} | {
    "head_counts_up": "CREATE TRIGGER head_counts_up BEFORE UPDATE ON head "
    f"WHEN NEW.count <> OLD.count + 1 {_REFUSED}"
}
_SCHEMA = _TABLES | _TRIGGERS


# -- records -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Entry:
    """One charge. Public: it says what was asked, never what was answered.

    Attributes
    ----------
    id : int
        1, 2, ... in the order of charging.
    time : str
        When it was charged, ISO 8601, UTC.
    label : str
        Formula, or another public text.
    model, method : str
        What was fitted, and how.
    epsilon, delta : float
        The guarantee that the charge stated for itself.
    neighbors : str
        Relation under which its events hold, such as ``"replace-one"``.
    unit : str
        What is protected: ``"record"``, or the name of the unit that owns several records.
    events : tuple of Event
        What is composed.
    reproducible : bool or None
        Whether the noise was seeded, so that what was released is NOT private; None where nobody
        said.
    nonce : str
        Drawn for this entry alone: without it equal charges of one second have one hash, and one
        of them cannot stand for the other. Empty in entries of earlier versions.
    hash : str
        SHA-256 of the previous entry's hash and this entry.
    """

    id: int
    time: str
    label: str
    model: str
    method: str
    epsilon: float
    delta: float
    neighbors: str
    unit: str
    events: tuple[Event, ...]
    reproducible: bool | None = None
    nonce: str = ""
    hash: str = ""

    def payload(self) -> str:
        """Canonical JSON of everything but the hash."""
        fields = {name: getattr(self, name) for name in self.__slots__ if name != "hash"}
        return _canonical({**fields, "events": [event_to_dict(e) for e in self.events]})

    @classmethod
    def read(cls, payload: str, digest: str) -> Entry:
        """Inverse of `payload`."""
        fields = read(dict, json_of(payload), "entry")
        events = read(tuple[dict[str, Any], ...], fields.pop("events", None), "entry, events")
        made = tuple(map(event_from_dict, events))
        return record(cls, fields, "entry", events=made, hash=digest)


@dataclass(frozen=True, slots=True)
class Header:
    """What never changes in a ledger; the first hash is taken over it."""

    version: int
    id: str
    created: str
    epsilon: float
    delta: float

    @property
    def ceiling(self) -> Budget:
        """(epsilon, delta)."""
        return self.epsilon, self.delta


# Version of the tables and triggers, as SQLite counts it, and the state of the file.
Stamp = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Chain:
    """A verified ledger.

    Attributes
    ----------
    header : Header
    origin : str
        Hash of the header.
    entries : tuple of Entry
    composed : Composition
        All entries, as the rule of the ledger reads them.
    stamp : Stamp
        What the file looked like when it was verified.
    """

    header: Header
    origin: str
    entries: tuple[Entry, ...]
    composed: Composition
    stamp: Stamp

    @property
    def head(self) -> str:
        """Hash that the next entry is linked to."""
        return self.entries[-1].hash if self.entries else self.origin

    @property
    def witness(self) -> str:
        """Length and head, ``"count:hash"``."""
        return f"{len(self.entries)}:{self.head}"


# -- the chain ---------------------------------------------------------------------------------


def _canonical(fields: dict[str, Any]) -> str:
    return json.dumps(fields, sort_keys=True, separators=(",", ":"), allow_nan=False)


def link(previous: str, payload: str) -> str:
    """Hash of an entry: of the hash before it and its content."""
    return hashlib.sha256(f"{previous}\n{payload}".encode()).hexdigest()


def now() -> str:
    """The time, UTC, ISO 8601."""
    return datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")


def make_header(epsilon: float, delta: float) -> Header:
    """Header of a new ledger, with an id that no other ledger has."""
    from dpstats.privacy import Central

    Central(epsilon, delta)  # the same demands as on any guarantee
    return Header(_VERSION, secrets.token_hex(16), now(), float(epsilon), float(delta))


def verify(
    connection: sqlite3.Connection,
    path: Path | None,
    known: Chain | None = None,
    thorough: bool = False,
) -> Chain:
    """Read and check what is not `known` to be as it was verified before; else everything.

    Everything is layout, header, numbering, every hash, and the head.
    """
    if known is not None and (grown := _grown(connection, path, known)) is not None:
        return grown
    if thorough:
        _demand(_one(connection, "PRAGMA quick_check")[0] == "ok", path, "its pages are damaged")
    mark = _one(connection, "PRAGMA application_id")[0]
    _demand(mark == _APPLICATION, path, "it was not made by dpstats")
    layout = dict(connection.execute("SELECT name, sql FROM sqlite_master"))
    _demand(layout == _SCHEMA, path, "its tables or triggers were changed")
    payload = _one(connection, "SELECT payload FROM header")[0]
    try:
        header = record(Header, json_of(payload), "header")
    except OptionError as error:
        raise _broken(path, str(error)) from None
    _demand(header.version == _VERSION, path, f"it has version {header.version} of the format")
    origin = link("", payload)
    nothing = Chain(header, origin, (), Composition(*header.ceiling), _stamp(connection, path))
    return _followed(connection, path, nothing)


def _grown(connection: sqlite3.Connection, path: Path | None, known: Chain) -> Chain | None:
    """`known` with what was appended to it since; None where something else may have changed.

    What SQLite wrote under the triggers was appended, and SQLite counts each change of them. What
    was written around SQLite changes the file's stamp without a new entry. New entries are hashed
    on to what is known. Who edits old entries around SQLite and appends new ones too is found when
    the ledger is opened next; what is known, and composed, stays what it was.
    """
    stamp = _stamp(connection, path)
    same_header = link("", _one(connection, "SELECT payload FROM header")[0]) == known.origin
    if not same_header or stamp[0] != known.stamp[0]:
        return None
    count, head = _one(connection, "SELECT count, hash FROM head")
    if count > len(known.entries):
        number = len(known.entries) + 1
        row = connection.execute("SELECT payload, hash FROM entry WHERE id = ?", (number,))
        payload, digest = row.fetchone() or ("", "")
        if link(known.head, payload) == digest:
            return _followed(connection, path, replace(known, stamp=stamp))
    return known if (count, head, stamp) == (len(known.entries), known.head, known.stamp) else None


def _followed(connection: sqlite3.Connection, path: Path | None, chain: Chain) -> Chain:
    """`chain` and all entries that follow it, each checked, up to the head."""
    before = len(chain.entries)
    rows = connection.execute(
        "SELECT id, payload, hash FROM entry WHERE id >= ? ORDER BY id",
        (before + 1 if before else _FIRST,),
    ).fetchall()
    previous, composed, entries = chain.head, chain.composed, []
    for position, (number, payload, digest) in enumerate(rows, start=before + 1):
        at = f"entry {position} was edited, or does not follow the one before"
        _demand(number == position and link(previous, payload) == digest, path, at)
        try:
            entries.append(Entry.read(payload, digest))
        except (OptionError, PlanError) as error:
            raise _broken(path, f"entry {position}: {error}") from None
        _demand(entries[-1].id == number, path, at)
        previous, composed = digest, composed.then(entries[-1].events)
    count, head = _one(connection, "SELECT count, hash FROM head")
    whole = (count, head) == (before + len(entries), previous)
    _demand(whole, path, "entries are missing at its end")
    return replace(chain, entries=(*chain.entries, *entries), composed=composed)


def _stamp(connection: sqlite3.Connection, path: Path | None) -> Stamp:
    version: int = _one(connection, "PRAGMA schema_version")[0]
    if path is None:
        return (version,)
    state = path.stat()
    return version, state.st_ino, state.st_size, state.st_mtime_ns, state.st_ctime_ns


def stamped(connection: sqlite3.Connection, path: Path | None, chain: Chain) -> Chain:
    """`chain`, with the stamp of the file it was just written to."""
    return replace(chain, stamp=_stamp(connection, path))


def check_witness(chain: Chain, witness: str, path: Path) -> None:
    """The chain must have had this very hash at this very length."""
    count, _, digest = witness.partition(":")
    if not (count.isdigit() and len(digest) == _HASH_LENGTH):
        raise LedgerError(
            f"witness={witness!r}: expected 'count:hash', as Ledger.witness gives it."
        )
    hashes = [chain.origin, *(entry.hash for entry in chain.entries)]
    if int(count) >= len(hashes) or hashes[int(count)] != digest:
        raise LedgerError(
            f"{path.name} lacks the noted entry {count}: it is an older copy or another ledger. "
            "Charging it would spend the same budget twice. Restore the newest copy."
        )


def _demand(condition: bool, path: Path | None, reason: str) -> None:
    if not condition:
        raise _broken(path, reason)


def _broken(path: Path | None, reason: object) -> LedgerError:
    return LedgerError(
        f"{name_of(path)} is not an intact ledger: {reason}. Nothing was charged. Restore the "
        "newest copy; without one, count the budget of these data as spent."
    )


# -- SQLite ------------------------------------------------------------------------------------


def name_of(path: Path | None) -> str:
    """File name for a message."""
    return "in memory" if path is None else path.name


def pair(budget: tuple[float | None, float | None], digits: int = 6) -> str:
    """(epsilon, delta) for a message, or to fewer digits for a table."""
    return "(" + ", ".join("any" if b is None else f"{b:.{digits}g}" for b in budget) + ")"


def _one(connection: sqlite3.Connection, sql: str) -> Any:
    row = connection.execute(sql).fetchone()
    if row is None:
        raise sqlite3.DatabaseError("a record is missing")
    return row


@contextlib.contextmanager
def guard(path: Path | None) -> Iterator[None]:
    """Turn what SQLite and the parsing of a damaged file raise into a `LedgerError`."""
    try:
        yield
    except (sqlite3.OperationalError, OSError) as error:
        raise LedgerError(
            f"{name_of(path)} cannot be used now: {error}. Nothing was charged unless a charge was "
            "already confirmed. Check that the file exists, may be written, and is not held open."
        ) from error
    except DPStatsError:
        raise
    except (sqlite3.DatabaseError, KeyError, TypeError, ValueError) as error:
        raise _broken(path, error) from error


def connect(path: Path) -> sqlite3.Connection:
    """Open an existing file; SQLite itself would make a missing one, and the budget with it."""
    uri = path.resolve().as_uri() + "?mode=rw"
    connection = sqlite3.connect(uri, uri=True, isolation_level=None, timeout=_WAIT_SECONDS)
    # A rollback journal with a synced directory: a commit that returned survives a killed process
    # and a lost power supply, and the ledger stays one file.
    try:
        connection.execute("PRAGMA synchronous = EXTRA")
        connection.execute("PRAGMA fullfsync = ON")
    except BaseException:
        connection.close()
        raise
    return connection


def create(path: Path, epsilon: float | None, delta: float | None) -> None:
    """Write a new ledger beside `path`, then give it its name in one step that cannot overwrite."""
    if epsilon is None or delta is None:
        raise LedgerError(
            f"There is no ledger at {path}. To make one, give its ceiling: "
            "Ledger.open(path, epsilon=3.0, delta=1e-6)."
        )
    if not path.parent.is_dir():
        raise LedgerError(f"There is no folder {path.parent} to make the ledger in.")
    if path.with_name(path.name + "-journal").exists():
        raise LedgerError(
            f"{path.name} is gone but its journal is there: the ledger was deleted or moved while "
            "in use. Restore the file; a new ledger would forget what was spent."
        )
    try:
        with draft_in(path.parent) as draft:
            with guard(path), contextlib.closing(connect(draft)) as connection:
                write_schema(connection, make_header(epsilon, delta))
            with contextlib.suppress(FileExistsError):  # another process was first: use its ledger
                os.link(draft, path)
    except OSError as error:
        raise LedgerError(
            f"No ledger can be made at {path}: {error}. Choose a folder on a local disk."
        ) from error
    sync_folder(path.parent)


def write_schema(connection: sqlite3.Connection, header: Header) -> None:
    """Write tables, header, head and triggers into an empty database."""
    payload = _canonical(asdict(header))
    connection.execute("BEGIN IMMEDIATE")
    connection.execute(f"PRAGMA application_id = {_APPLICATION}")
    for statement in _TABLES.values():
        connection.execute(statement)
    connection.execute("INSERT INTO header VALUES (1, ?)", (payload,))
    connection.execute("INSERT INTO head VALUES (1, 0, ?)", (link("", payload),))
    for statement in _TRIGGERS.values():
        connection.execute(statement)
    connection.execute("COMMIT")


def append(connection: sqlite3.Connection, chain: Chain, draft: Entry, after: Composition) -> Chain:
    """Write `draft` as the next entry, inside the caller's transaction; `after` composes it."""
    number = len(chain.entries) + 1
    payload = replace(draft, id=number, nonce=secrets.token_hex(16)).payload()
    entry = Entry.read(payload, link(chain.head, payload))
    connection.execute("INSERT INTO entry VALUES (?, ?, ?)", (number, payload, entry.hash))
    connection.execute("UPDATE head SET count = ?, hash = ?", (number, entry.hash))
    return replace(chain, entries=(*chain.entries, entry), composed=after)
