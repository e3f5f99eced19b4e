"""What was paid for reaches its asker: released numbers are on disk before anything is rendered."""

from __future__ import annotations

import contextlib
import os
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator
from itertools import chain, count, takewhile
from pathlib import Path
from typing import NoReturn

from dpstats.errors import DataError, DPStatsError, OptionError
from dpstats.outputs import (
    HTML,
    LATEX,
    MARKDOWN,
    FileKind,
    FilePath,
    check_output,
    write_output,
    write_page,
)
from dpstats.results import report
from dpstats.results.parameters import ParameterResults
from dpstats.results.released import RESULTS_FILE, Released
from dpstats.text import plain

__all__ = ["FORMATS", "check_out", "deliver", "write_as"]


def _is_table(path: Path) -> bool:
    """Whether it is the table of results in a .json beside it: a CSV file has room for no mark."""
    for numbers in takewhile(Path.exists, _beside(path)):
        with contextlib.suppress(DPStatsError):
            made = _csv(Released.load(numbers)) if RESULTS_FILE.holds(numbers) else b""
            if len(made) == path.stat().st_size and made == path.read_bytes():
                return True
    return False


def _csv(result: Released) -> bytes:
    assert isinstance(result, ParameterResults)
    text: str = result.tidy().to_csv()
    return text.encode()


_CSV = FileKind("table of a .json beside it", _is_table)
_PAGES: dict[str, tuple[FileKind, Callable[[ParameterResults], str]]] = {
    ".html": (HTML, lambda result: report.html_report(result)),
    ".md": (MARKDOWN, lambda result: result.to_markdown()),
    ".tex": (LATEX, lambda result: result.to_latex()),
}
FORMATS = (".json", *_PAGES, ".csv")


def _kind(out: Path) -> FileKind:
    suffix = out.suffix.lower()
    return _PAGES[suffix][0] if suffix in _PAGES else _CSV if suffix == ".csv" else RESULTS_FILE


def check_out(out: Path, inputs: Iterable[FilePath]) -> None:
    """Refuse a file that an answer cannot be written to, before the answer is paid for.

    Raises
    ------
    DataError
        If its ending is no format, or it may not be made or replaced.
    """
    if out.suffix.lower() not in FORMATS:
        raise DataError(f"{plain(out.name)}: --out takes a name ending in {', '.join(FORMATS)}.")
    try:
        check_output(out, _kind(out), inputs)
    except OptionError as error:
        raise DataError(f"--out {error}") from None


def write_as(result: Released, out: Path, inputs: Iterable[FilePath] = ()) -> None:
    """Write results in the format that the ending of a name says.

    Raises
    ------
    OptionError, OSError
        As `dpstats.outputs.write_output`.
    """
    suffix = out.suffix.lower()
    if suffix in _PAGES:
        assert isinstance(result, ParameterResults)
        kind, page = _PAGES[suffix]
        write_page(out, kind, page(result), inputs)
    elif suffix == ".csv":
        write_output(out, _CSV, _csv(result), inputs)
    else:
        write_output(out, RESULTS_FILE, result.to_json().encode() + b"\n", inputs)


def deliver(
    ask: Callable[[], Released],
    out: Path | None,
    *,
    summary: bool,
    inputs: Iterable[FilePath] = (),
) -> None:
    """Check where an answer goes, ask for it, write its numbers, then what else is wanted.

    Parameters
    ----------
    ask : callable
        Charges, and returns what was paid for.
    out : path, optional
        What is written, by its ending (`FORMATS`). But for .json, the numbers are written first, to
        a new .json beside it.
    summary : bool
        Whether to print it.
    inputs : iterable of path
        Files that are read, charged or written by `ask`.

    Raises
    ------
    DataError
        If nothing is to be shown or written, or it cannot be; nothing was charged then.
    DPStatsError
        If something could not be rendered or written afterwards; it says where the numbers are.
    """
    inputs = list(inputs)
    if out is None and not summary:
        raise DataError(
            "--quiet without --out: the answer would be paid for, and neither shown nor written. "
            "Add --out fit.json, or leave out --quiet."
        )
    if out is not None:
        check_out(out, inputs)
    with _reserved(out, inputs) as numbers:
        result = ask()
    try:
        if numbers is not None:
            check_output(numbers, RESULTS_FILE, inputs)
            result.save(numbers)
    except BaseException as error:
        _tell(error, _rescue(result))
    try:
        if out is not None and out != numbers:
            write_as(result, out, inputs)
        if summary:
            print(result.summary(), flush=True)
    except BaseException as error:
        _tell(error, _rescue(result) if numbers is None else str(numbers))


@contextlib.contextmanager
def _reserved(out: Path | None, inputs: list[FilePath]) -> Iterator[Path | None]:
    """The file that the numbers will be written to, made before they are charged.

    It is `out`, or, where that is to be something else, a new file beside it of the same name and
    .json (-2.json, -3.json, ... where there is one already: an earlier answer is never replaced).
    If the answer does not come it is removed.
    """
    if out is None:
        yield None
        return
    numbers = out.suffix.lower() == ".json"
    if numbers and out.exists():
        yield out
        return
    try:
        made = _new(iter([out]) if numbers else _beside(out))
    except OSError as error:
        raise DataError(f"--out {out}: {error.strerror}. Nothing was charged.") from None
    try:
        check_output(made, RESULTS_FILE, inputs)
        yield made
    except BaseException:
        made.unlink(missing_ok=True)
        raise


def _beside(out: Path) -> Iterator[Path]:
    """Names of numbers that belong to a report: fit.json, fit-2.json, ... of fit.html."""
    tails = chain([""], (f"-{number}" for number in count(2)))
    return (out.with_name(f"{out.stem}{tail}.json") for tail in tails)


def _new(names: Iterator[Path]) -> Path:
    """The first that was not there before; it is there now, and empty."""
    for path in names:
        with contextlib.suppress(FileExistsError):
            path.touch(exist_ok=False)
            return path
    raise DataError("--out: another program has just made that file. Nothing was charged.")


def _tell(error: BaseException, kept: str) -> NoReturn:
    """Raise `error` so that its reader learns where the numbers are."""
    text = (
        f"The answer could not be written or shown ({type(error).__name__}: {error}). The fit was "
        f"made, and its released numbers are in {kept}: `dpstats show` prints them."
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
    except (OSError, DPStatsError):
        print(result.to_json(), flush=True)
        return "standard output, as JSON"
    return name
