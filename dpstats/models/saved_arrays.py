"""Arrays of a saved collector: sizes are checked before they are read, and nothing is unpickled."""

from __future__ import annotations

import os
from pathlib import Path
from typing import IO, Any
from zipfile import BadZipFile

import numpy as np
from numpy.typing import NDArray

from dpstats.design import Design
from dpstats.errors import DataError

__all__ = ["archive_in", "array_of", "moments_of"]

Array = NDArray[np.float64]

_SMALL = 2**16  # bytes of a short array


def archive_in(content: IO[bytes], path: Path) -> Any:
    """The arrays of a file.

    Raises
    ------
    DataError
        If it is no file of several arrays.
    """
    try:
        archive = np.load(content, allow_pickle=False)
    except (ValueError, EOFError, BadZipFile) as error:
        raise DataError(f"{os.fspath(path)!r} is no saved collector: {error}.") from None
    if not hasattr(archive, "zip"):
        raise DataError(f"{os.fspath(path)!r} is no saved collector: it is a single array.")
    return archive


def array_of(archive: Any, key: str, most: int) -> Any:
    """An array of a file that has at most so many bytes, or does not compress.

    A short file cannot claim a long array: zeros are the only ones that compress well, and of those
    there are as many as the sums have.
    """
    member = archive.zip.getinfo(f"{key}.npy")
    if member.file_size > _SMALL + most + 2 * member.compress_size:
        raise DataError(f"The array {key!r} is too large for a saved collector.")
    return archive[key]


def moments_of(archive: Any, design: Design) -> Array | None:
    """Second moments of public rows, one for each pair of columns."""
    if "public" not in archive.files:
        return None
    d = len(design.names)
    public = array_of(archive, "public", 8 * d**2)
    if not (public.dtype == np.float64 and public.shape == (d, d) and np.isfinite(public).all()):
        raise DataError(f"The public moments of the collector are no ({d}, {d}) numbers.")
    moments: Array = public
    return moments
