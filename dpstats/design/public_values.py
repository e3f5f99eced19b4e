"""Values of public terms, of a table in memory or of one that is read in batches."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from dpstats.design.by_blocks import AllRowsAtOnceError, BlockFormula
from dpstats.design.fitted_formula import FittedFormula, may_read
from dpstats.errors import DataError, FormulaError, scrubbed
from dpstats.schema import Numeric, Schema
from dpstats.tables import named_columns, streams
from dpstats.tables.coercion import check_kind, is_object, to_float
from dpstats.tables.scratch import arrays, bytes_of, check_space, scratch_folder
from dpstats.tables.streams import Reading, Stream

__all__ = ["AT_ONCE", "PublicValues", "as_declared", "known_names", "total_of"]

Float = NDArray[np.float64]

AT_ONCE = 2**24  # rows that are read into memory, where a formula has to see all of them
_HELD = 26  # bytes a row: a response as read and as held, its mark, and the message about it


@dataclass(frozen=True, eq=False)
class PublicValues:
    """What a formula and known terms make of public rows.

    Attributes
    ----------
    fitted : mapping
        The formula (``"formula"``) and known terms (``"offset"``, ``"exposure"``), with what they
        learned.
    matrix : ndarray of shape (n, k)
        NaN in rows in which something is missing.
    offset : ndarray of shape (n,) or None
    own : bool
        Whether both may be written over.
    folder : Path or None
        Of the scratch file that they are in.
    table : table or None
        What the response is read from, where it is not the table that was given.
    """

    fitted: Mapping[str, FittedFormula]
    matrix: Float
    offset: Float | None
    own: bool = False
    folder: Path | None = None
    table: Any = None

    @classmethod
    def of(
        cls,
        texts: Mapping[str, str],
        data: Any,
        public: Sequence[str],
        private: Collection[str],
        context: Mapping[str, Any] | None = None,
    ) -> PublicValues:
        """Evaluate terms on all rows of a table.

        Parameters
        ----------
        texts : mapping
            The right side, and known terms, by name.
        data : table
            Of more than 2^25 numbers that are read in batches no more than a batch is in memory,
            where terms allow it; else the columns that terms may read are.
        public, private : sequence of str
            Columns of covariates, and of the response.
        context : mapping, optional
            Python variables and functions that a formula may name.

        Raises
        ------
        FormulaError
            If a term cannot be evaluated.
        DataError
            If there are too many rows for terms that have to see all of them, or the folder is too
            small.
        """
        if not isinstance(data, Stream):
            return _at_once(texts, data, public, context)
        private = list(named_columns(data, private))
        names = [*dict.fromkeys([*may_read(texts.values(), public), *private])]
        if 2 * data.rows * len(names) > streams.RESIDENT_VALUES:
            try:
                return _by_blocks(texts, data, public, private, context)
            except AllRowsAtOnceError as reason:
                why = str(reason)
            if data.rows > AT_ONCE:
                raise DataError(
                    f"{data.rows:,} rows cannot be read in batches: {why}. So they would be read "
                    f"into memory, and that is done with at most {AT_ONCE:,}. Compute such a "
                    "column first and write it to the files, or fit a part of the table, chosen "
                    "without a look at responses."
                )
        table = data.collected(names)
        made = _at_once(texts, table, public, context)
        return cls(made.fitted, made.matrix, made.offset, table=table)


def _at_once(
    texts: Mapping[str, str], data: Any, public: Sequence[str], context: Mapping[str, Any] | None
) -> PublicValues:
    """Values of rows in memory."""
    fitted, matrices = {}, {}
    for name, text in texts.items():
        fitted[name], matrices[name] = FittedFormula.fit(text, data, public, context)
    matrix = matrices.pop("formula")
    known = {name: _single(name, texts, values) for name, values in matrices.items()}
    return PublicValues(fitted, matrix, total_of(known) if known else None)


def _by_blocks(
    texts: Mapping[str, str],
    stream: Stream,
    public: Sequence[str],
    private: Collection[str],
    context: Mapping[str, Any] | None,
) -> PublicValues:
    """Values of rows that are read twice, in a scratch file; the response is kept beside them.

    A source that delivers other rows than it announced is cut, or filled with missing ones.
    """
    n = stream.rows
    if not stream.again:
        raise AllRowsAtOnceError("they come from a stream that can be read once")
    formulas = {name: BlockFormula(text, public, context, n) for name, text in texts.items()}
    reads = [*dict.fromkeys(name for each in formulas.values() for name in each.reads)]
    if not reads:
        raise AllRowsAtOnceError("the formula reads no column")
    report = stream.on_rows or (lambda rows: None)
    left = n
    for batch in stream.read_announced(reads):
        for formula in formulas.values():
            formula.learn(batch)
        m = len(next(iter(batch.values())))
        report(m)
        left -= m
    report(left)
    fitted = {name: formula.learned() for name, formula in formulas.items()}
    number, width = np.dtype(np.float64), len(fitted["formula"].names)
    wanted: dict[str, Any] = {"matrix": ((n, width), number)}
    wanted |= {"offset": ((n,), number)} if len(texts) > 1 else {}
    reading, folder = Reading(stream), None
    for name in private:
        reading[name]  # asks for it
    if n * (width + len(reads)) > streams.RESIDENT_VALUES:
        folder = scratch_folder(stream.scratch)
        check_space(folder, bytes_of(wanted) + n * _HELD)
    made = arrays(folder, wanted, "")
    for values in made.values():
        values[:] = np.nan

    def evaluate(start: int, batch: Mapping[str, Any]) -> None:
        if not len(next(iter(batch.values()))):
            return
        each = {name: formula.rows(batch) for name, formula in formulas.items()}
        rows = each.pop("formula")
        made["matrix"][start : start + len(rows)] = rows
        if each:
            known = {name: _single(name, texts, values) for name, values in each.items()}
            made["offset"][start : start + len(rows)] = total_of(known)

    reading.keep(folder)
    reading.on_rows = stream.on_rows
    reading.read_beside(reads, evaluate)
    return PublicValues(fitted, made["matrix"], made.get("offset"), True, folder, reading)


def _single(name: str, texts: Mapping[str, str], values: Float) -> Float:
    """A known term, one number for each row."""
    if values.shape[1] != 1:
        text = texts[name].removeprefix("0 + {").removesuffix("}")
        raise FormulaError(
            f"The {name} {text!r} has several columns; one number per row is needed."
        )
    return values[:, 0]


def total_of(known: Mapping[str, Float]) -> Float:
    """offset + log(exposure)."""
    with np.errstate(all="ignore"):
        parts = [np.log(v) if name == "exposure" else v for name, v in known.items()]
    total: Float = np.sum(parts, axis=0)
    return total


@scrubbed
def as_declared(data: Any, read: Sequence[str], schema: Schema) -> Any:
    """The table, whose objects and categories are numbers where they are declared Numeric.

    Covariates need no declaration; one that is there means the same as where they are private.

    Raises
    ------
    DataError
        If nothing that is declared can stand in a column of such a type.
    """
    declared = [name for name in read if name in schema]
    columns = named_columns(data, declared)
    for name, column in columns.items():
        check_kind(column, name, schema[name].kinds)
    numbers = {
        name: to_float(column)
        for name, column in columns.items()
        if isinstance(schema[name], Numeric)
        and (is_object(column) or isinstance(column.dtype, pd.CategoricalDtype))
    }
    if not numbers or isinstance(data, Stream):
        return data
    return {**named_columns(data, read), **numbers}


def known_names(recipe: Mapping[str, Any]) -> list[str]:
    """The known term in words."""
    shown = {"offset": "{}", "exposure": "log({})"}
    texts = {name: name for name in recipe.get("known", ())}
    for name in shown:
        if isinstance(recipe.get(name), Mapping):
            texts[name] = recipe[name]["text"].removeprefix("0 + {").removesuffix("}")
    return [shown[name].format(text) for name, text in texts.items()]
