"""What was paid for reaches its asker: released numbers are on disk before anything is rendered."""

from __future__ import annotations

import contextlib
import os
import sys
import tempfile
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from typing import NoReturn

from dpstats.errors import DataError, DPStatsError
from dpstats.results.parameters import ParameterResults
from dpstats.results.released import Released
from dpstats.results.report import write_report
from dpstats.text import plain

__all__ = ["FORMATS", "deliver", "numbers_file"]

_WRITERS: dict[str, Callable[[ParameterResults, Path], object]] = {
    ".html": write_report,
    ".md": lambda result, path: path.write_text(result.to_markdown(), encoding="utf-8"),
    ".tex": lambda result, path: path.write_text(result.to_latex(), encoding="utf-8"),
    ".csv": lambda result, path: result.tidy().to_csv(path),
}
FORMATS = (".json", *_WRITERS)


@contextlib.contextmanager
def numbers_file(out: Path | None) -> Iterator[Path | None]:
    """The file that the numbers of a fit will be written to, made before it is charged.

    It is `out`, or, where that is to be something else, a new file beside it of the same name and
    .json (-2.json, -3.json, ... where there is one already: an earlier answer is never replaced).
    If the fit fails it is removed.

    Raises
    ------
    DataError
        If it cannot be written.
    """
    if out is None:
        yield None
        return
    replaced = out.suffix == ".json" and out.exists()
    try:
        made = _writable(out) if replaced else _new(out)
    except OSError as error:
        raise DataError(f"--out {out}: {error.strerror}. Nothing was charged.") from None
    try:
        yield made
    except BaseException:
        if not replaced:
            made.unlink()
        raise


def _writable(path: Path) -> Path:
    """`path`; refused by the system where it may not be written."""
    with path.open("ab"):
        return path


def _new(out: Path) -> Path:
    """An empty file that was not there before."""
    for number in count(1):
        path = out.with_name(f"{out.stem}{'' if number == 1 else f'-{number}'}.json")
        with contextlib.suppress(FileExistsError):
            path.touch(exist_ok=False)
            return path
    raise AssertionError


def deliver(result: Released, numbers: Path | None, out: Path | None, summary: bool) -> None:
    """Write the numbers, then what else was asked for, then print the summary.

    Parameters
    ----------
    result : Released
        Paid for.
    numbers : path, optional
        Of the numbers, from `numbers_file`.
    out : path, optional
        Of what is written besides, by its suffix (`FORMATS`).
    summary : bool
        Whether to print it.

    Raises
    ------
    DPStatsError
        If something could not be rendered or written; it says where the numbers are.
    """
    try:
        if numbers is not None:
            result.save(numbers)
    except BaseException as error:
        _tell(error, _rescue(result))
    try:
        if out is not None and out.suffix in _WRITERS:
            assert isinstance(result, ParameterResults)
            _WRITERS[out.suffix](result, out)
        if summary:
            print(result.summary(), flush=True)
    except BaseException as error:
        _tell(error, _rescue(result) if numbers is None else str(numbers))


def _tell(error: BaseException, kept: str) -> NoReturn:
    """Raise `error` so that its reader learns where the numbers are."""
    text = (
        f"The answer could not be written or shown ({type(error).__name__}: {error}). The fit was "
        f"made, and its released numbers are in {kept}: see dpstats.load."
    )
    if isinstance(error, Exception) and not isinstance(error, BrokenPipeError):
        raise DPStatsError(text) from error
    with contextlib.suppress(OSError):
        print(f"dpstats: {plain(text)}", file=sys.stderr)
    raise error


def _rescue(result: Released) -> str:
    """Write the numbers to the system's temporary folder, or else to standard output."""
    try:
        handle, name = tempfile.mkstemp(prefix="dpstats-", suffix=".json")
        os.close(handle)
        result.save(name)
    except OSError:
        print(result.to_json(), flush=True)
        return "standard output, as JSON"
    return name
