"""Sites and who asks them through a folder that all of them see: a file a message, no server.

A site has a folder of its name in it. ``0007.QUESTION.question.json`` there is the seventh message
to it, and ``0007.QUESTION.ANSWER.answer.json`` what it replied; QUESTION and ANSWER are the first
digits of the SHA-256 of what is inside, so that a file that is half copied is not taken for whole,
and the same question finds its answer again.
"""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Self

from dpstats.errors import DataError
from dpstats.federated.pace import Pace
from dpstats.federated.signatures import bare, signed, verified
from dpstats.outputs import replace_file

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ec import (
        EllipticCurvePrivateKey,
        EllipticCurvePublicKey,
    )

__all__ = ["Folder", "answer_in", "serve_in"]

_DIGITS = 16  # number: of a digest, in a file's name
_LONGEST = 5_000_000  # bytes of a file; a message is shorter
_UNSOUND = b""  # stands for a reply that its site did not sign


class Folder:
    """Sites that answer in a folder, and messages to them.

    Parameters
    ----------
    path : path
        A folder that sites see, too, or that somebody copies to them and back.
    key : private key, optional
        Signs what is asked, for sites that answer only those they know.
    site_keys : mapping of str to public key, optional
        Of the sites, by name. A reply that its site did not sign is invalid then.
    heard : callable, optional
        Called with the name of a site when it is found and when it replies.

    Raises
    ------
    DataError
        If there is no such folder.

    Notes
    -----
    *Guarantee.* Files hold questions and released numbers, which everybody may see, and nothing in
    them is run. A site charges for a question once, however often its file is found.

    Examples
    --------
    >>> import tempfile
    >>> from dpstats.federated.folder import Folder
    >>> with tempfile.TemporaryDirectory() as shared:
    ...     Folder(shared).gather(("home", "north"), timeout=0.0)
    ('home', 'north')
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        key: EllipticCurvePrivateKey | None = None,
        site_keys: Mapping[str, EllipticCurvePublicKey] | None = None,
        heard: Callable[[str], None] = lambda _: None,
    ) -> None:
        self._path, self._key, self._site_keys, self._heard = Path(path), key, site_keys, heard
        self._there: set[str] = set()
        self._sent: Counter[str] = Counter()
        self._timeout = 600.0
        if not self._path.is_dir():
            raise DataError(f"{path}: no such folder.")

    def gather(self, wanted: int | Sequence[str], timeout: float) -> tuple[str, ...]:
        """Wait for the folders of sites.

        Parameters
        ----------
        wanted : int or sequence of str
            How many sites, or their names.
        timeout : float
            Seconds; who has no folder then is left out.

        Returns
        -------
        tuple of str
            Names of the sites that are there; those that are named and are not come last, and do
            not answer.
        """
        names = None if isinstance(wanted, int) else tuple(wanted)
        number = wanted if isinstance(wanted, int) else len(wanted)
        until, pace = time.monotonic() + timeout, Pace()
        while True:
            found = {p.name for p in self._path.iterdir() if p.is_dir() and p.name[0] != "."}
            new = sorted(found.intersection(names if names is not None else found) - self._there)
            for name in new:
                self._heard(name)
            self._there |= set(new)
            if len(self._there) >= number or time.monotonic() >= until:
                break
            pace.wait()
        return (*sorted(self._there), *(name for name in names or () if name not in self._there))

    def within(self, timeout: float) -> Self:
        """The same folder, whose sites have so many seconds for each reply."""
        self._timeout = timeout
        return self

    def send(self, messages: Mapping[str, bytes]) -> dict[str, bytes | None]:
        """Messages to sites, by name, and their replies; None of one that is late.

        Who is late is not waited for, and not asked again; the file of the question is taken away,
        so that who comes back later does not answer, and pay, for nothing. A question that was
        answered before, by whomever it was asked, has its answer here.
        """
        until, waiting = time.monotonic() + self._timeout, dict[str, Path]()
        replies: dict[str, bytes | None] = dict.fromkeys(messages)
        for name in [name for name in messages if name in self._there]:
            self._sent[name] += 1
            stem = f"{self._sent[name]:04d}.{_digest(messages[name])}"
            waiting[name] = self._path / name / f"{stem}.question.json"
            if not waiting[name].exists():
                _write(waiting[name], signed(messages[name], self._key, "asker"))
        pace = Pace()
        while waiting:
            for name, path in list(waiting.items()):
                if (reply := _reply_to(path)) is not None:
                    del waiting[name]
                    replies[name] = self._checked(name, reply)
                    self._heard(name)
            if not waiting or time.monotonic() >= until:
                break
            pace.wait()
        for path in waiting.values():
            path.unlink(missing_ok=True)
        self._there -= set(waiting)
        return replies

    def _checked(self, site: str, reply: bytes) -> bytes:
        """What a site says; nothing that can be read where it did not sign it."""
        if self._site_keys is None:
            return bare(reply)
        known = self._site_keys.get(site)
        return verified(reply, [] if known is None else [known], "site") or _UNSOUND


def serve_in(
    path: str | os.PathLike[str],
    name: str,
    answer: Callable[[bytes], bytes],
    told: Callable[[str], None] = lambda _: None,
) -> None:
    """Answer what is asked of a site in a folder, one question after the other, until stopped.

    Parameters
    ----------
    path : path
        The folder that who asks sees, too.
    name : str
        Of the site, and of its folder in this one.
    answer : callable
        As `dpstats.federated.signatures.answering` makes it.
    told : callable, optional
        Called with a line on what happens; public facts only.

    Raises
    ------
    DataError
        If there is no such folder, or the name is none of a folder.
    """
    home = Path(path) / name
    if not Path(path).is_dir():
        raise DataError(f"{path}: no such folder.")
    if home.name != name or name.startswith("."):
        raise DataError(f"--name {name!r}: a name that a folder can have is needed.")
    home.mkdir(exist_ok=True)
    told(f"in {path}")
    pace = Pace()
    while True:
        if count := answer_in(home, answer):
            told(f"answered {count}")
            pace = Pace()
        pace.wait()


def answer_in(home: Path, answer: Callable[[bytes], bytes]) -> int:
    """Answer what waits in the folder of a site; how many questions that were."""
    count = 0
    for path in sorted(home.glob("*.question.json")):
        message = None if _reply_to(path) is not None else _whole(path, 1)
        if message is None:
            continue
        reply = answer(message)
        _write(path.with_name(f"{_stem(path)}.{_digest(reply)}.answer.json"), reply)
        count += 1
    return count


def _reply_to(question: Path) -> bytes | None:
    """The first whole answer to a question, if there is one."""
    for path in sorted(question.parent.glob(f"{_stem(question)}.*.answer.json")):
        if (reply := _whole(path, 2)) is not None:
            return reply
    return None


def _stem(question: Path) -> str:
    return question.name.removesuffix(".question.json")


def _whole(path: Path, place: int) -> bytes | None:
    """What is in a file, if that has the digest at this place of its name."""
    try:
        if path.stat().st_size > _LONGEST:
            return None
        found = path.read_bytes()
    except OSError:  # it is not there any more, or not yet to be read
        return None
    parts = path.name.split(".")
    return found if place < len(parts) and parts[place] == _digest(found) else None


def _digest(message: bytes) -> str:
    """Of a message, whoever signed it: signatures differ from one time to the next."""
    return sha256(bare(message)).hexdigest()[:_DIGITS]


def _write(path: Path, message: bytes) -> None:
    """A file that others may read, there whole or not at all; a link in its place is replaced.

    Its name has the digest of what is in it, so what is replaced is half a copy of it at most.
    """
    replace_file(path, message, mode=0o644)
