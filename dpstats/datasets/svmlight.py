"""Sparse tables in the svmlight text format, as E2006 and RCV1 are published."""

from __future__ import annotations

import bz2
import gzip
import re
import warnings
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, NamedTuple, NoReturn

import numpy as np
from numpy.typing import NDArray

from dpstats.errors import DataError

if TYPE_CHECKING:
    from scipy.sparse import csr_array

__all__ = ["load_svmlight"]

Float = NDArray[np.float64]
Int = NDArray[np.int64]

_CHUNK = 1 << 22  # bytes parsed at a time: the arrays of one chunk take some 100 MB
_OPENERS: dict[str, Any] = {".gz": gzip.open, ".bz2": bz2.open}
_NUMBER = re.compile(
    rb"[+-]?(?:(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?|inf(?:inity)?|nan)", re.IGNORECASE
)
_LARGEST = 2**53  # beyond it an index read as a number is not exact


class _Part(NamedTuple):
    """Some rows: targets, entries per row, the entries, and where each row stood in the file."""

    targets: Float
    counts: Int
    indices: Int
    values: Float
    lines: Int


def load_svmlight(
    path: str | PathLike[str], n_features: int | None = None, *, zero_based: bool = False
) -> tuple[csr_array, Float]:
    """Read ``target index:value index:value ... # comment`` lines.

    Parameters
    ----------
    path : str or path
        Text file; one ending in ``.gz`` or ``.bz2`` is decompressed.
    n_features : int, optional
        Columns of the matrix; the largest index in the file by default. That is learned from the
        rows, so give the published number where the rows are private.
    zero_based : bool, default False
        Whether the first column has index 0; usually it has index 1.

    Returns
    -------
    X : scipy.sparse.csr_array of float64, shape (n, n_features)
        Sorted indices, none twice in a row.
    y : ndarray of shape (n,)
        Targets.

    Raises
    ------
    DataError
        Naming the first line that is no such line; never what it holds.

    Notes
    -----
    ``qid:`` entries are skipped, and so are empty lines. Indices may stand in any order.
    """
    from scipy.sparse import csr_array

    path = Path(path)
    parts, line = [_empty()], 1
    with _OPENERS.get(path.suffix.lower(), open)(path, "rb") as file:
        while chunk := _whole_lines(file):
            parts.append(_parse(chunk, line, path.name))
            line += chunk.count(b"\n")
    targets, counts, indices, values, lines = map(np.concatenate, zip(*parts, strict=True))
    indices -= not zero_based
    row_lines = np.repeat(lines, counts)
    width = int(indices.max(initial=-1)) + 1 if n_features is None else n_features
    _check(indices < 0, row_lines, path.name, f"an index is below {int(not zero_based)}")
    _check(indices >= width, row_lines, path.name, f"an index is beyond n_features={n_features}")
    ends = np.concatenate([[0], np.cumsum(counts)])
    X = csr_array((values, indices, ends), shape=(len(targets), width))
    X.sort_indices()
    twice = np.flatnonzero(X.indices[1:] == X.indices[:-1]) + 1
    twice = twice[~np.isin(twice, ends)]  # equal to the last one of the row before is allowed
    _check(twice >= 0, row_lines[twice], path.name, "an index stands twice")
    return X, targets


def _empty() -> _Part:
    ints, floats = np.empty(0, dtype=np.int64), np.empty(0)
    return _Part(floats, ints, ints, floats, ints)


def _whole_lines(file: BinaryIO) -> bytes:
    chunk = file.read(_CHUNK)
    chunk += file.readline() if chunk else b""
    return chunk


def _parse(chunk: bytes, line: int, name: str) -> _Part:
    """Rows of a chunk of whole lines, the first of which is number `line` of the file."""
    text = re.sub(rb"#[^\n]*", b"", chunk) if b"#" in chunk else chunk
    text = re.sub(rb"(?<=\s)qid:\S+", b"", text) if b"qid:" in text else text
    raw = np.frombuffer(text + b"\n", dtype=np.uint8)
    blank = raw <= ord(" ")
    begins = ~blank
    begins[1:] &= blank[:-1]
    lines = line + np.searchsorted(np.flatnonzero(raw == ord("\n")), np.flatnonzero(begins))
    if lines.size == 0:
        return _empty()
    first = np.diff(lines, prepend=0) > 0  # of its line: the target
    colons = np.flatnonzero(raw == ord(":"))
    owner = np.cumsum(begins, dtype=np.int32)[colons] - 1
    owned = np.bincount(owner[owner >= 0], minlength=len(lines))
    form = "a line reads 'target index:value index:value ...'"
    _check(owned != ~first, lines, name, form)
    _check(blank[colons - 1] | blank[colons + 1], lines[owner], name, form)
    numbers = _numbers(text, len(lines) + len(colons))
    if numbers is None:
        _refuse_number(text, line, name)
    begin = np.concatenate([[0], np.cumsum(1 + owned)[:-1]]).astype(np.intp)
    targets, indices = numbers[begin[first]], numbers[begin[~first]]
    whole = (indices == np.floor(indices)) & (np.abs(indices) < _LARGEST)
    _check(~whole, lines[~first], name, "an index is no whole number")
    return _Part(
        targets,
        np.diff(np.flatnonzero(np.append(first, True))) - 1,
        indices.astype(np.int64),
        numbers[begin[~first] + 1],
        lines[first],
    )


def _numbers(text: bytes, count: int) -> Float | None:
    """All numbers of a text in order; None if there are not `count`."""
    with warnings.catch_warnings():
        warnings.simplefilter("error", DeprecationWarning)
        try:
            found = np.fromstring(text.replace(b":", b" "), sep=" ")
        except (DeprecationWarning, ValueError):
            return None
    return found if len(found) == count else None


def _refuse_number(text: bytes, line: int, name: str) -> NoReturn:
    """Name the first line with something else than a number."""
    for number, row in enumerate(text.split(b"\n"), line):
        if not all(_NUMBER.fullmatch(word) for word in row.replace(b":", b" ").split()):
            raise DataError(f"{name}, line {number}: a target, index or value is no number.")
    raise DataError(f"{name}, line {line} or later: a target, index or value is no number.")


def _check(wrong: NDArray[np.bool_], lines: Int, name: str, why: str) -> None:
    if wrong.any():
        raise DataError(f"{name}, line {int(lines[np.argmax(wrong)])}: {why}.")
