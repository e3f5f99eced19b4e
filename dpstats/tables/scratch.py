"""Arrays in memory, or in one file on disk that has no name."""

from __future__ import annotations

import math
import mmap
import os
import shutil
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from weakref import WeakSet

import numpy as np
from numpy.typing import NDArray

from dpstats.errors import DataError, OptionError, need_path

__all__ = [
    "CHARGED",
    "VARIABLE",
    "Wanted",
    "arrays",
    "bytes_of",
    "check_space",
    "let_go",
    "scratch_folder",
]

Wanted = Mapping[str, tuple[tuple[int, ...], np.dtype[np.generic]]]  # shape and type of each array

VARIABLE = "DPSTATS_SCRATCH"
CHARGED = " The fit was charged before, and a charge stands."  # what ends a later error
_ALIGNED = 4096  # bytes: each array begins on a page of its own
_OPEN: WeakSet[mmap.mmap] = WeakSet()  # scratch files of this process


def arrays(folder: Path | None, wanted: Wanted, failing: str = CHARGED) -> dict[str, NDArray[Any]]:
    """Arrays of zeros by name: in memory, or in one scratch file in a folder.

    The file is opened without a name where the system can (``O_TMPFILE``), else its name is removed
    before anything is written; nobody but its owner may open it (mode 0600). All its space is
    reserved at once, so that a full disk is an error here and no crash later. It is gone with
    the last of its arrays, or with the process, however that ends. An error ends with `failing`.

    Raises
    ------
    DataError
        If the folder does not hold so much; its name is quoted.
    """
    if folder is None:
        return {name: np.zeros(shape, dtype) for name, (shape, dtype) in wanted.items()}
    size = bytes_of(wanted)
    try:
        with tempfile.TemporaryFile(dir=folder) as file:
            if hasattr(os, "posix_fallocate"):
                os.posix_fallocate(file.fileno(), 0, size)
            else:
                file.truncate(size)
            pages = mmap.mmap(file.fileno(), size)  # holds the file from here on
    except OSError as error:
        failed = type(error).__name__
    else:
        _OPEN.add(pages)
        return _laid_out(pages, wanted)
    raise DataError(
        f"Scratch folder {folder}: no file for the rows could be made there ({failed}).{failing}"
    )


def _laid_out(pages: mmap.mmap, wanted: Wanted) -> dict[str, NDArray[Any]]:
    made: dict[str, NDArray[Any]] = {}
    start = 0
    for name, (shape, dtype) in wanted.items():
        made[name] = np.ndarray(shape, dtype, pages, start)
        start += _padded(shape, dtype)
    return made


def _padded(shape: tuple[int, ...], dtype: np.dtype[Any]) -> int:
    return -(-math.prod(shape) * dtype.itemsize // _ALIGNED) * _ALIGNED


def let_go() -> None:
    """Give back what counts as memory of this process and is not in use.

    That are pages of scratch files, and memory that pyarrow has freed and keeps. A page that was
    read stays mapped, and whoever limits the resident memory of a process, as dask does of its
    workers, counts it though the system could have it back. The files are shared mappings: what
    was written stays in them, and other threads may read and write meanwhile.
    """
    if hasattr(mmap, "MADV_DONTNEED"):
        for pages in list(_OPEN):
            pages.madvise(mmap.MADV_DONTNEED)
    if (arrow := sys.modules.get("pyarrow")) is not None:
        arrow.default_memory_pool().release_unused()


def bytes_of(wanted: Wanted) -> int:
    """Size of a scratch file."""
    return max(sum(_padded(*each) for each in wanted.values()), _ALIGNED)


def scratch_folder(given: str | os.PathLike[str] | None) -> Path:
    """The folder for scratch files: as given, of the environment, or the system's for large ones.

    Raises
    ------
    OptionError
        If it is no folder that can be written to.
    """
    named = given if given is not None else os.environ.get(VARIABLE) or os.environ.get("TMPDIR")
    if named is None:  # /tmp may be memory
        named = "/var/tmp" if os.access("/var/tmp", os.W_OK) else tempfile.gettempdir()
    folder = need_path(scratch=named).expanduser()
    if not (folder.is_dir() and os.access(folder, os.W_OK)):
        raise OptionError(
            f"Scratch folder {folder}: no folder that can be written to. Name another one with "
            f"scratch=..., or with the environment variable {VARIABLE}."
        )
    return folder


def check_space(folder: Path, size: int) -> None:
    """Refuse a folder with less than `size` bytes free.

    Raises
    ------
    DataError
        Naming both, and what to do.
    """
    free = shutil.disk_usage(folder).free
    if free < size:
        raise DataError(
            f"Scratch folder {folder}: the rows need {_gib(size)} there, and {_gib(free)} are "
            f"free. Name a larger one with scratch=..., or with the environment variable "
            f"{VARIABLE}. Nothing was charged."
        )


def _gib(size: int) -> str:
    gib = size / 2**30
    return f"{gib:,.2f} GiB" if gib >= 1 else f"{gib:.3g} GiB"
