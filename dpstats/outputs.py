"""Files that dpstats writes: nothing that was there is destroyed, and a file is whole or not there.

An output is a new file, or it replaces a file of its own kind that dpstats wrote. It is never a
file that the same call reads, and never a folder, a link to nowhere, a pipe or a device.
"""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import stat
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import TypeAlias

from dpstats.errors import OptionError, given
from dpstats.stored import json_of

__all__ = [
    "HTML",
    "LATEX",
    "MARKDOWN",
    "FileKind",
    "FilePath",
    "check_name",
    "check_output",
    "draft_in",
    "json_kind",
    "replace_file",
    "sync_folder",
    "write_output",
    "write_page",
]

FilePath: TypeAlias = str | os.PathLike[str]


@dataclass(frozen=True)
class FileKind:
    """What a file is.

    Attributes
    ----------
    name : str
        As an error calls it.
    holds : callable
        Whether the file at a path is one that dpstats wrote.
    """

    name: str
    holds: Callable[[Path], bool]


def json_kind(name: str, file_format: str) -> FileKind:
    """JSON objects that name their format."""

    def holds(path: Path) -> bool:
        with path.open("rb") as file:
            if file.read(1) != b"{":
                return False
        try:
            data = json_of(path.read_bytes())
        except ValueError:
            return False
        return isinstance(data, dict) and data.get("format") == file_format

    return FileKind(name, holds)


# A page ends in a comment with the digest of what is above it: a page that somebody edited, or
# another program wrote, has none that fits.
_DIGEST = re.compile(rb"dpstats sha256:([0-9a-f]{64})[ ->]*\n\Z")
_LONGEST_MARK = 100  # bytes, at least


def _is_page(path: Path) -> bool:
    with path.open("rb") as file:
        file.seek(max(os.fstat(file.fileno()).st_size - _LONGEST_MARK, 0))
        found = _DIGEST.search(file.read())
    if found is None:
        return False
    content, _, _ = path.read_bytes()[:-1].rpartition(b"\n")
    return sha256(content + b"\n").hexdigest().encode() == found[1]


HTML = FileKind("report that dpstats wrote (HTML)", _is_page)
MARKDOWN = FileKind("table that dpstats wrote (Markdown)", _is_page)
LATEX = FileKind("table that dpstats wrote (LaTeX)", _is_page)
_COMMENTS = {HTML: "<!-- {} -->", MARKDOWN: "<!-- {} -->", LATEX: "% {}"}


def write_page(path: FilePath, kind: FileKind, text: str, inputs: Iterable[FilePath] = ()) -> None:
    """Write a report or a table, of `HTML`, `MARKDOWN` or `LATEX`, with the mark of dpstats.

    Raises
    ------
    OptionError, OSError
        As `write_output`.
    """
    content = text.rstrip("\n").encode() + b"\n"
    mark = _COMMENTS[kind].format(f"dpstats sha256:{sha256(content).hexdigest()}")
    write_output(path, kind, content + mark.encode() + b"\n", inputs)


def check_name(path: FilePath) -> Path:
    """The path, if it can name a file that is made.

    Raises
    ------
    OptionError
        If it is no path, is empty, or its last part is not what a person can read and type:
        printable, with no space at an end and no dash in front.
    """
    if not isinstance(path, (str, os.PathLike)) or not isinstance(os.fspath(path), str):
        raise OptionError(f"path={given(path)}: the path of a file is needed.")
    text = os.fspath(path)
    name = Path(text).name
    if not name.isprintable() or name != name.strip() or name[:1] in ("", "-") or "\0" in text:
        raise OptionError(
            f"{given(text)} is no name of a file to write: printable characters are needed, no "
            "space at an end and no dash in front."
        )
    return Path(text)


def check_output(path: FilePath, kind: FileKind, inputs: Iterable[FilePath] = ()) -> Path:
    """The file that will be written, with links followed. Nothing is made or changed.

    Parameters
    ----------
    path : path
        What the user named.
    kind : FileKind
        What will be written, and the only thing that may be replaced; so may an empty file.
    inputs : iterable of path
        Files that the same call reads or writes.

    Raises
    ------
    OptionError
        If the name is none, or the folder is not there, or something is that may not be replaced.
    """
    named = check_name(path)
    shown = given(str(named))[1:-1]
    try:
        target = named.resolve()
        folder = target.parent
        if not folder.is_dir():
            raise OptionError(f"{shown}: there is no folder {folder}; make it first.")
        if not os.access(folder, os.W_OK):
            raise OptionError(f"{shown}: the folder {folder} cannot be written to.")
        if any(_is_same(target, each) for each in inputs):
            raise OptionError(f"{shown} is a file that this call uses. Name another file to write.")
        if os.path.lexists(target):
            _check_replaced(shown, target, kind)
    except (OSError, RuntimeError) as error:  # a name that is too long, a circle of links
        reason = getattr(error, "strerror", None) or "its links lead nowhere"
        raise OptionError(f"{shown} cannot be written: {reason}.") from None
    return target


def _check_replaced(shown: str, target: Path, kind: FileKind) -> None:
    facts = target.stat()
    if stat.S_ISDIR(facts.st_mode):
        raise OptionError(f"{shown} is a folder. Name a file in it.")
    if not stat.S_ISREG(facts.st_mode):
        raise OptionError(f"{shown} is no regular file, but a pipe, a device or the like.")
    if not os.access(target, os.W_OK):
        raise OptionError(f"{shown} may not be written: it is read-only.")
    if facts.st_size and not kind.holds(target):
        raise OptionError(
            f"{shown} is there already, and is no {kind.name}; it is not replaced. Name another "
            "file, or move that one away."
        )


def _is_same(target: Path, other: FilePath) -> bool:
    """Whether both are one file, by whatever names; also where neither is there yet."""
    try:
        return os.path.samefile(target, other)
    except (OSError, ValueError):
        return target == Path(other).resolve()


def write_output(
    path: FilePath, kind: FileKind, content: bytes, inputs: Iterable[FilePath] = ()
) -> None:
    """Write a file that `check_output` allows; all outputs of the package that users name are.

    Raises
    ------
    OptionError
        As `check_output`.
    OSError
        If the system does not write it; what was there is there still.
    """
    replace_file(check_output(path, kind, inputs), content)


def replace_file(path: Path, content: bytes, mode: int | None = None) -> None:
    """Write a file in one step: on disk when this returns; before, what was there is.

    It keeps the mode of what it replaces, and its owner where the system allows. A new file has the
    usual mode, or the one that is given.
    """
    old = path.lstat() if mode is None and path.exists() else None
    with draft_in(path.parent, 0o666 if old is None else 0o600) as draft:
        with draft.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        if old is not None:
            with contextlib.suppress(OSError, AttributeError):  # not ours to give, or no owners
                os.chown(draft, old.st_uid, old.st_gid)
        if old is not None or mode is not None:
            draft.chmod(stat.S_IMODE(old.st_mode) if old is not None else mode or 0)
        draft.replace(path)
    sync_folder(path.parent)


@contextlib.contextmanager
def draft_in(folder: Path, mode: int = 0o666) -> Iterator[Path]:
    """A new empty file of a random name in the folder; it is removed in the end if it is there."""
    draft = folder / f".dpstats-{secrets.token_hex(8)}.new"
    os.close(os.open(draft, os.O_CREAT | os.O_EXCL | os.O_WRONLY, mode))
    try:
        yield draft
    finally:
        draft.unlink(missing_ok=True)


def sync_folder(folder: Path) -> None:
    """Make a new name durable, where the system can."""
    with contextlib.suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
