"""Files of rows: those that a path names, their kind, and how text files are written."""

from __future__ import annotations

import glob
import os
from collections.abc import Collection, Iterable
from dataclasses import KW_ONLY, dataclass
from pathlib import Path
from typing import Any

from dpstats.errors import DataError, OptionError, among, given

__all__ = [
    "CSV",
    "SEPARATORS",
    "SUFFIXES",
    "check_are_text",
    "check_suffix",
    "is_parquet",
]

SEPARATORS = (",", ";", "\t", "|")
SUFFIXES = (".csv", ".tsv", ".gz", ".parquet")
_DECIMALS = (".", ",")
_RECORDS = ("quoted", "lines")
_LONGEST = 4096  # characters of a path


def _is_table(path: Path) -> bool:
    """Whether a name ends as those of tables do, in small letters or capitals."""
    return path.suffix.lower() in SUFFIXES


def is_parquet(path: Path) -> bool:
    """Whether a file is Parquet by its name; a table of another name is text."""
    return path.suffix.lower() == ".parquet"


def check_suffix(path: Path) -> None:
    """Refuse what is no table by its name.

    Raises
    ------
    DataError
        With the suffixes that are allowed.
    """
    if not _is_table(path):
        raise DataError(f"{path.name}: allowed are files ending in {', '.join(SUFFIXES)}.")


def check_are_text(paths: Iterable[Path]) -> None:
    """Refuse Parquet files where text is declared.

    Raises
    ------
    DataError
        With the first of them.
    """
    if parquet := [path.name for path in paths if is_parquet(path)]:
        raise DataError(
            f"{parquet[0]}: separator, decimal mark and ends of records are declared of CSV files, "
            "and a Parquet file has none: pass its path alone."
        )


@dataclass(frozen=True)
class CSV:
    r"""Text files of rows, and how they are written: for ``data=`` wherever a path is taken.

    All of it is public, and declared rather than guessed: no record decides how others are read.

    Parameters
    ----------
    data : path, pattern, folder or list of these
        Files ending in ``.csv``, ``.tsv`` or ``.gz``, in small letters or capitals.
    separator : str, optional
        What stands between fields: ``","``, ``";"``, ``"\t"`` or ``"|"``. By default a tab in
        files ending in ``.tsv`` or ``.tsv.gz``, and a comma in all others.
    decimal : str
        The decimal mark of numbers: ``"."`` or ``","``. With a comma ``1,5`` is 1.5, and a cell
        with a point, such as ``1.500``, is missing: it may be 1500 or 1.5. (Where the separator is
        a comma, too, such numbers have to be quoted.)
    records : str
        Where a record ends. ``"quoted"``: at a line feed outside of quotes, as RFC 4180 says; for
        files of programs that quote cells which hold quotes, separators or line feeds (pandas,
        csv.writer, R's write.csv, Excel, databases). ``"lines"``: at every line feed; for all
        other files.

    Raises
    ------
    OptionError
        If an option is none of these.
    DataError
        If `data` is no path or list of paths.

    Notes
    -----
    *Guarantee.* One record is one row, and the number of rows is that of records. With ``"lines"``
    that holds for any bytes in a record but a line feed. With ``"quoted"`` it holds for any cells
    of a writer that quotes them, and for any line that leaves no quote open. The proofs are in
    `dpstats.tables.records`, with what a line does that leaves one open, and why no reader bounds
    that.

    Examples
    --------
    >>> import dpstats as dp
    >>> dp.CSV("clinic.csv", separator=";", decimal=",")  # no file is opened yet
    CSV(data='clinic.csv', separator=';', decimal=',', records='quoted')
    """

    data: Any
    _: KW_ONLY
    separator: str | None = None
    decimal: str = "."
    records: str = "quoted"

    def __post_init__(self) -> None:
        several = isinstance(self.data, (list, tuple)) and len(self.data) > 0
        named = self.data if several else [self.data]
        if not all(isinstance(each, (str, os.PathLike)) for each in named):
            raise DataError(
                f"CSV({type(self.data).__name__}): give the path of a file, or a list of paths."
            )
        if self.separator is not None:
            _need_one_of(SEPARATORS, separator=self.separator)
        _need_one_of(_DECIMALS, decimal=self.decimal)
        _need_one_of(_RECORDS, records=self.records)

    @property
    def path(self) -> Path:
        """The file, where there is one.

        Raises
        ------
        DataError
            If there are several.
        """
        if isinstance(self.data, (list, tuple)):
            raise DataError("One file is needed here; data is a list of them.")
        return Path(self.data)

    def separator_of(self, path: Path) -> str:
        """What separates the fields of a file: what is declared, or what its name implies."""
        if self.separator is not None:
            return self.separator
        name = path.name.lower().removesuffix(".gz")
        return "\t" if name.endswith(".tsv") else ","


def paths_of(data: Any) -> list[Path] | None:
    """Files that a path, a pattern, a folder or a list of these names; None for anything else.

    Raises
    ------
    DataError
        If there is no such file, none that fits, or one of another kind.
    """
    data = data.data if isinstance(data, CSV) else data
    several = isinstance(data, (list, tuple)) and len(data) > 0
    listed = list(data) if several else [data]
    for each in listed:
        if isinstance(each, str) and (len(each) > _LONGEST or "\n" in each):
            raise DataError(f"data is a text of {len(each):,} characters, and no path of a file.")
        if is_url(each):
            raise DataError(
                f"{each}: a URL is no path of a file. Pass polars.scan_parquet(...) or a pyarrow "
                'Dataset of it; with engine=dp.Dask("scheduler:8786") workers read URLs.'
            )
    if not all(isinstance(each, (str, os.PathLike)) for each in listed):
        return None
    return [path for each in listed for path in _expanded(Path(each).expanduser())]


def is_url(data: Any) -> bool:
    """Whether it is a text with a scheme."""
    return isinstance(data, str) and "://" in data


def _expanded(path: Path) -> list[Path]:
    if path.is_dir():
        listed = (p for p in path.iterdir() if _is_table(p) and p.name[0] not in "._")
        found = sorted(filter(Path.is_file, listed))
        if not found:
            raise DataError(
                f"{path}: no files in it end in {', '.join(SUFFIXES)}. Those in folders of it are "
                f"{path / '**' / '*.parquet'}; where names of folders are a column, as year=2020, "
                'pass pyarrow.dataset.dataset(..., partitioning="hive").'
            )
        return found
    several = glob.has_magic(str(path)) and not path.exists()
    names = sorted(glob.glob(str(path), recursive=True)) if several else [path]
    matched = [Path(name) for name in names]
    if not matched:
        raise DataError(f"{path}: no files match.")
    for each in matched:
        check_suffix(each)
        if not each.is_file():
            raise DataError(f"{each}: no such file.")
    return matched


def _need_one_of(allowed: Collection[str], **arguments: object) -> None:
    for name, value in arguments.items():
        if not among(value, allowed):
            listed = ", ".join(map(repr, allowed))
            raise OptionError(f"{name}={given(value)}: allowed are {listed}.")
