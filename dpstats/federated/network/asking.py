"""Who asks sites at a link: which of them are there, and a carrier of messages to them."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING, Self, TypeVar

from dpstats.errors import DataError, DPStatsError
from dpstats.federated.network.wire import (
    Address,
    Asking,
    BarredError,
    LostError,
    Note,
    asking,
)
from dpstats.federated.pace import Pace
from dpstats.federated.question import Reply, call
from dpstats.federated.signatures import bare, signed, verified

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ec import (
        EllipticCurvePrivateKey,
        EllipticCurvePublicKey,
    )

__all__ = ["Link"]

T = TypeVar("T")

_LEAST = 30.0  # seconds that a link keeps a message: it may take some to hand it over
_UNSOUND = b""  # stands for a reply that nobody can read


class Link:
    """Sites that are at a Flower link, and messages to them; a context manager.

    Parameters
    ----------
    address : Address
        Of the link.
    secret : bytes, optional
        What the link was started with, in the file of ``--superexec-auth-secret-file``.
    key : private key, optional
        Signs what is asked, for sites that answer only those they know.
    site_keys : mapping of str to public key, optional
        Of the sites, by name. A reply that its site did not sign is invalid then; without them
        sites are who they say they are, and so is the link.
    heard : callable, optional
        Called with the name of a site when it joins and when it replies.

    Notes
    -----
    *Guarantee.* Nothing is executed that comes through a link, at either end, and the link sees
    what everybody may see: questions and released numbers. With keys on both sides it can delay
    and drop messages, and no more.
    """

    def __init__(
        self,
        address: Address,
        *,
        secret: bytes | None = None,
        key: EllipticCurvePrivateKey | None = None,
        site_keys: Mapping[str, EllipticCurvePublicKey] | None = None,
        heard: Callable[[str], None] = lambda _: None,
    ) -> None:
        self._address, self._secret, self._key = address, secret, key
        self._site_keys, self._heard = site_keys, heard
        self._opened = ExitStack()
        self._nodes: dict[str, int] = {}
        self._late: set[str] = set()
        self._timeout = 600.0

    def __enter__(self) -> Self:
        self._party: Asking = self._guarded(
            lambda: self._opened.enter_context(asking(self._address, self._secret))
        )
        return self

    def __exit__(self, *_: object) -> None:
        self._opened.close()

    def _guarded(self, do: Callable[[], T]) -> T:
        try:
            return do()
        except BarredError as refusal:
            raise DataError(
                f"{self._address.link}: {refusal}. Is the secret the one the link was started with?"
            ) from None
        except LostError as loss:
            raise DataError(
                f"{self._address.link}: {loss}. Ask the same question (--question) again when the "
                "link is back: what was answered is not charged twice."
            ) from None

    def gather(self, wanted: int | Sequence[str], timeout: float) -> tuple[str, ...]:
        """Wait for sites.

        Parameters
        ----------
        wanted : int or sequence of str
            How many sites, or their names.
        timeout : float
            Seconds; who has not joined then is left out.

        Returns
        -------
        tuple of str
            Names of the sites that are there; those that are named and are not come last, and
            do not answer.

        Raises
        ------
        DataError
            If two sites have a name, or the link is lost.
        """
        names = () if isinstance(wanted, int) else tuple(wanted)
        number = wanted if isinstance(wanted, int) else len(names)
        message, until = call(), time.monotonic() + timeout
        digest, asked = hashlib.sha256(message).hexdigest(), dict[str, int]()
        called, pace = set[int](), Pace()
        while len(self._nodes) < number and time.monotonic() < until:
            for node in self._guarded(self._party.nodes) - called:
                called.add(node)
                asked[self._put(node, message, timeout)] = node
            for name, node in self._present(asked, digest):
                if names and name not in names:
                    continue
                if self._nodes.setdefault(name, node) != node:
                    raise DataError(f"Two sites call themselves {name!r}.")
                self._heard(name)
            pace.wait()
        missing = [name for name in names if name not in self._nodes]
        return (*sorted(self._nodes), *missing)

    def _put(self, node: int, message: bytes, seconds: float) -> str:
        body = signed(message, self._key, "asker")
        return self._guarded(lambda: self._party.put(node, body, max(seconds, _LEAST)))

    def _present(self, asked: dict[str, int], digest: str) -> list[tuple[str, int]]:
        """Names of those who answered the call, and their numbers."""
        if not asked:
            return []
        found = []
        for number, note in self._guarded(lambda: self._party.fetch(list(asked))):
            node = asked.pop(number, None)
            if node is None or note.body is None:
                continue
            try:
                said = Reply.from_bytes(bare(note.body))
            except DPStatsError:
                continue
            sound = said.status == "refused" or said.digest == digest
            if sound and self._checked(said.site, note) != _UNSOUND:
                found.append((said.site, node))
        return found

    def _checked(self, site: str, note: Note) -> bytes | None:
        """What a site says; nothing that can be read where it did not sign it."""
        if note.body is None:
            return None
        if self._site_keys is None:
            return bare(note.body)
        known = self._site_keys.get(site)
        return verified(note.body, [] if known is None else [known], "site") or _UNSOUND

    def within(self, timeout: float) -> Self:
        """The same link, whose sites have so many seconds for each reply."""
        self._timeout = timeout
        return self

    def send(self, messages: Mapping[str, bytes]) -> dict[str, bytes | None]:
        """Messages to sites, by name, and their replies; None of one that is late.

        Who is late is not waited for, and not asked again through this link; the message is
        dropped there, so that who comes back later does not answer, and pay, for nothing.

        Raises
        ------
        DataError
            If the link is lost.
        """
        until, asked = time.monotonic() + self._timeout, dict[str, str]()
        replies: dict[str, bytes | None] = dict.fromkeys(messages)
        for name in [name for name in messages if name in self._nodes.keys() - self._late]:
            asked[self._put(self._nodes[name], messages[name], self._timeout)] = name
        pace = Pace()
        while asked and time.monotonic() < until:
            for number, note in self._guarded(lambda: self._party.fetch(list(asked))):
                name = asked.pop(number, "")
                if name:
                    replies[name] = self._checked(name, note)
                    self._heard(name)
            if asked:
                pace.wait()
        self._late |= set(asked.values())
        return replies
