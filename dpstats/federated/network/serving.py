"""A site at a link: it takes messages and answers them with the code that is installed there."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from dpstats.errors import DataError
from dpstats.federated.network.wire import Address, BarredError, LostError, Serving, serving
from dpstats.federated.pace import Pace

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey

__all__ = ["serve"]

_AGAIN = 2.0  # seconds before a lost link is dialled again


def serve(
    answer: Callable[[bytes], bytes],
    address: Address,
    key: EllipticCurvePrivateKey | None = None,
    *,
    patience: float = 600.0,
    told: Callable[[str], None] = lambda _: None,
) -> None:
    """Stay at a link and answer what comes, one message after the other, until it is gone for good.

    Parameters
    ----------
    answer : callable
        As `dpstats.federated.signatures.answering` makes it.
    address : Address
        Of the link.
    key : private key, optional
        The one that the link knows the site by.
    patience : float
        Seconds for which a link may be out of reach; it is dialled again meanwhile.
    told : callable, optional
        Called with a line on what happens; public facts only.

    Raises
    ------
    DataError
        If the link does not let the site in, or was out of reach for too long.
    """
    heard = time.monotonic()
    while True:
        try:
            with serving(address, key) as site:
                told(f"at {address.link}")
                pace = Pace()
                while True:
                    if _next(site, answer, told):
                        pace = Pace()
                    else:
                        pace.wait()
                    heard = time.monotonic()
        except BarredError as refusal:
            raise DataError(
                f"{address.link}: {refusal}. Is the site's public key registered there?"
            ) from None
        except LostError as loss:
            if time.monotonic() - heard > patience:
                raise DataError(f"{address.link} was out of reach for too long: {loss}.") from None
            told(f"{address.link}: {loss}; dialled again")
            time.sleep(min(_AGAIN, patience))


def _next(site: Serving, answer: Callable[[bytes], bytes], told: Callable[[str], None]) -> bool:
    """Answer one message; whether there was one."""
    note = site.fetch()
    if note is None:
        return False
    if note.body is None:
        return True
    began = time.monotonic()
    reply = answer(note.body)
    seconds = time.monotonic() - began
    for left in (2, 1, 0):
        if not note.waited_for:
            break
        try:
            site.reply(note, reply)
        except LostError:
            if not left:
                raise
            time.sleep(_AGAIN)
        else:
            told(f"answered in {seconds:.1f} s")
            return True
    told("too late: the same question gets this answer again, at no charge")
    return True
