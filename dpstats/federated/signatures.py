"""Who asks, and who answers: messages signed with the keys of the parties.

Keys are files that ``ssh-keygen -t ecdsa -b 384`` makes, the kind that Flower registers sites by.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from dpstats.errors import DataError
from dpstats.federated.question import Reply

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ec import (
        EllipticCurvePrivateKey,
        EllipticCurvePublicKey,
    )

    from dpstats.federated.site import Site

__all__ = [
    "UNKNOWN",
    "Role",
    "answering",
    "bare",
    "keys_in",
    "private_key",
    "public_key",
    "signed",
    "verified",
]

Role: TypeAlias = Literal["asker", "site"]

UNKNOWN = (
    "it is signed by nobody who may ask here; --key signs a question, and --askers of a site names "
    "the .pub files of those who may ask"
)
_HEAD = b"dpstats.signed 1 "  # then the signature in hexadecimal digits, a new line, the message
_LONGEST = 1_024  # bytes of the first line


def private_key(path: str | os.PathLike[str]) -> EllipticCurvePrivateKey:
    """The key that a party signs with.

    Parameters
    ----------
    path : path
        An OpenSSH file of an elliptic-curve key, without a passphrase.

    Raises
    ------
    DataError
        If it is no such file.
    """
    key: EllipticCurvePrivateKey = _key(path, "private")
    return key


def public_key(path: str | os.PathLike[str]) -> EllipticCurvePublicKey:
    """The key that a party is known by, a ``.pub`` file.

    Raises
    ------
    DataError
        If it is no such file.
    """
    key: EllipticCurvePublicKey = _key(path, "public")
    return key


def keys_in(folder: str | os.PathLike[str]) -> Mapping[str, EllipticCurvePublicKey]:
    """The keys of sites, by their name: of ``NORTH.pub`` it is NORTH.

    Raises
    ------
    DataError
        If there are none.
    """
    found = {path.stem: public_key(path) for path in sorted(Path(folder).glob("*.pub"))}
    if not found:
        raise DataError(f"{folder}: there is no file NAME.pub of a site's key.")
    return found


def _key(path: str | os.PathLike[str], kind: Literal["private", "public"]) -> Any:
    """Every key comes from here: what is signed or verified needs one, and needs cryptography."""
    try:
        from cryptography.hazmat.primitives.asymmetric import ec
        from cryptography.hazmat.primitives.serialization import ssh
    except ImportError:
        raise DataError(
            f"{path}: keys and signatures need cryptography: pip install 'dpstats[signed]'."
        ) from None
    try:
        data = Path(path).read_bytes()
        if kind == "private":
            key: Any = ssh.load_ssh_private_key(data, None)
            fits = isinstance(key, ec.EllipticCurvePrivateKey)
        else:
            key = ssh.load_ssh_public_key(data)
            fits = isinstance(key, ec.EllipticCurvePublicKey)
        if not fits:
            raise TypeError
    except Exception as error:  # what is in a file that is none may not be shown
        raise DataError(
            f"{path}: no {kind} key ({type(error).__name__}). "
            "`ssh-keygen -t ecdsa -b 384 -N '' -f NAME` makes NAME and NAME.pub."
        ) from None
    return key


def signed(message: bytes, key: EllipticCurvePrivateKey | None, role: Role) -> bytes:
    """The message under a signature; as it is without a key."""
    if key is None:
        return message
    from cryptography.hazmat.primitives.asymmetric.ec import ECDSA
    from cryptography.hazmat.primitives.hashes import SHA384

    signature: bytes = key.sign(_said(message, role), ECDSA(SHA384()))
    return _HEAD + signature.hex().encode() + b"\n" + message


def bare(message: bytes) -> bytes:
    """The message without its signature, whoever made that."""
    head, _, inner = message.partition(b"\n")
    return inner if head.startswith(_HEAD) else message


def verified(message: bytes, keys: Iterable[EllipticCurvePublicKey], role: Role) -> bytes | None:
    """The message that one of these keys signed; None where none of them did.

    Parameters
    ----------
    message : bytes
        As `signed` made it.
    keys : iterable of keys
        Of those who may have signed it.
    role : {"asker", "site"}
        As what they did; a reply of a site is no question of it.
    """
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives.asymmetric.ec import ECDSA
    from cryptography.hazmat.primitives.hashes import SHA384

    head, _, inner = message.partition(b"\n")
    if not head.startswith(_HEAD) or len(head) > _LONGEST:
        return None
    try:
        signature = bytes.fromhex(head[len(_HEAD) :].decode("ascii"))
    except ValueError:
        return None
    for key in keys:
        try:
            key.verify(signature, _said(inner, role), ECDSA(SHA384()))
        except InvalidSignature:
            continue
        return inner
    return None


def _said(message: bytes, role: Role) -> bytes:
    """What is signed: nothing else that a key signs begins so."""
    return f"dpstats {role}\n".encode() + message


def answering(
    site: Site,
    key: EllipticCurvePrivateKey | None = None,
    askers: Iterable[EllipticCurvePublicKey] | None = None,
) -> Callable[[bytes], bytes]:
    """A site that answers those who may ask, and signs what it says.

    Parameters
    ----------
    site : Site
        Whose rows are asked.
    key : private key, optional
        The site's own; its replies are unsigned otherwise.
    askers : public keys, optional
        Of those who may ask; everybody may unless they are given.

    Returns
    -------
    callable
        Bytes in, bytes out. It never raises on account of what comes in.
    """
    known = None if askers is None else tuple(askers)

    def answer(message: bytes) -> bytes:
        inner = bare(message) if known is None else verified(message, known, "asker")
        if inner is None:
            refusal = Reply(site.name, "", "refused", b"", UNKNOWN)
            return signed(refusal.to_bytes(), key, "site")
        return signed(site.answer(inner), key, "site")

    return answer
