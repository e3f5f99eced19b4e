"""What a site has answered: a question is answered once, and again only with the same bytes."""

from __future__ import annotations

import contextlib
import os
import sqlite3
import threading
import weakref
from collections.abc import Iterable, Iterator
from pathlib import Path

from dpstats.outputs import FileKind, FilePath, check_output

__all__ = ["Replies"]

_TABLE = (
    "CREATE TABLE IF NOT EXISTS replies "
    "(nonce TEXT PRIMARY KEY, digest TEXT NOT NULL, reply BLOB) WITHOUT ROWID"
)


def _is_replies(path: Path) -> bool:
    find = "SELECT name FROM sqlite_master WHERE type = 'table'"
    try:
        with contextlib.closing(
            sqlite3.connect(f"{path.as_uri()}?mode=ro", uri=True, timeout=30)
        ) as connection:
            return connection.execute(find).fetchall() == [("replies",)]
    except sqlite3.DatabaseError:
        return False


_REPLIES_FILE = FileKind("file of replies", _is_replies)


class Replies:
    """The replies of one site, by the nonce of their question; in memory, or in a file.

    A nonce is taken, on disk, before anything is charged for it. So a site that stops between the
    charge and its reply refuses the question from then on, and never charges it a second time; and
    whoever asks again gets the same bytes, which tell nothing new.
    """

    def __init__(self, path: FilePath | None = None, inputs: Iterable[FilePath] = ()) -> None:
        self._path = None if path is None else check_output(path, _REPLIES_FILE, inputs)
        self._lock = threading.Lock()
        self._memory = None
        if self._path is None:
            self._memory = sqlite3.connect(":memory:", check_same_thread=False)
            weakref.finalize(self, self._memory.close)
        elif not self._path.exists():
            os.close(os.open(self._path, os.O_CREAT | os.O_RDWR, 0o600))
        with self._connection() as connection:
            connection.execute(_TABLE)

    def take(self, nonce: str, digest: str) -> bool:
        """Whether the nonce was free; it is taken from now on, also by other processes."""
        with self._connection() as connection:
            found = connection.execute(
                "INSERT OR IGNORE INTO replies VALUES (?, ?, NULL)", (nonce, digest)
            )
            return found.rowcount == 1

    def known(self, nonce: str) -> tuple[str, bytes | None]:
        """The digest of the question that took a nonce, and the reply if there is one.

        Of a nonce that nobody took, no digest.
        """
        with self._connection() as connection:
            query = "SELECT digest, reply FROM replies WHERE nonce = ?"
            digest, reply = connection.execute(query, (nonce,)).fetchone() or ("", None)
            return digest, reply

    def free(self, nonce: str) -> None:
        """Give back a nonce for which nothing was charged."""
        with self._connection() as connection:
            connection.execute("DELETE FROM replies WHERE nonce = ? AND reply IS NULL", (nonce,))

    def keep(self, nonce: str, reply: bytes) -> None:
        """The reply, on disk when this returns."""
        with self._connection() as connection:
            connection.execute("UPDATE replies SET reply = ? WHERE nonce = ?", (reply, nonce))

    @contextlib.contextmanager
    def _connection(self) -> Iterator[sqlite3.Connection]:
        with self._lock:
            if self._memory is not None:
                with self._memory:
                    yield self._memory
                return
            connection = sqlite3.connect(str(self._path), timeout=30)
            try:
                connection.execute("PRAGMA synchronous = FULL")
                with connection:
                    yield connection
            finally:
                connection.close()
