"""A design matrix given as such: columns from their declared bounds, and its rows."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpstats.design.blocks import TermColumns, plain_columns
from dpstats.design.responses import KnownTerm, read_offset
from dpstats.design.terms import Terms
from dpstats.errors import DataError, OptionError, SchemaError, given, scrubbed
from dpstats.families import Family
from dpstats.schema import Numeric, Schema
from dpstats.tables import named_columns
from dpstats.tables.coercion import as_column, as_matrix, check_kind, is_object, to_float

__all__ = [
    "array_blocks",
    "array_offset",
    "check_zeros",
    "column_of",
    "column_pairs",
    "listed",
    "matrix_of",
    "pairs_of",
    "shortest",
    "width_of",
]

Float = NDArray[np.float64]


def shortest(pairs: Float) -> list[Any]:
    """Bounds as JSON: one pair where all are equal."""
    same = len(pairs) > 0 and bool((pairs == pairs[0]).all())
    listed: list[Any] = (pairs[0] if same else pairs).tolist()
    return listed


def listed(pair: Any) -> list[float] | None:
    """One pair as JSON."""
    return None if pair is None else pairs_of(pair, 1)[0].tolist()


def check_zeros(blocks: Sequence[TermColumns]) -> None:
    """Refuse columns of a sparse matrix whose bounds do not contain 0."""
    for block in blocks:
        lower, upper = block.bounds.T
        wrong = np.flatnonzero((lower > 0) | (upper < 0)) if block.factors else np.empty(0, int)
        if wrong.size:
            j = int(wrong[0])
            raise SchemaError(
                f"Column {block.names[j]!r} of a sparse matrix has bounds ({lower[j]:g}, "
                f"{upper[j]:g}), which do not contain 0, and what is not stored is 0. Widen them, "
                "give a column of ones the bounds (1, 1), or pass a dense array."
            )


def array_offset(endog_name: str, bounds: Mapping[str, Any], family: Family) -> KnownTerm | None:
    """The known term that arrays named "offset" and "exposure" make."""
    known = ("offset", "exposure")
    given = {name: bounds[name] for name in known if bounds.get(name) is not None}
    if not given:
        return None
    if endog_name in given:
        raise SchemaError(f"endog_name={endog_name!r} names the known term; choose another.")
    schema = Schema({name: Numeric(*pairs_of(pair, 1, name)[0]) for name, pair in given.items()})
    names = {name: name if name in given else None for name in known}
    return read_offset(**names, terms=Terms(schema), family=family)


def column_pairs(bounds: Any, k: int, asked: str) -> Any:
    """Bounds of k columns as a user writes them, {"lower": ..., "upper": ...} made into pairs.

    Raises
    ------
    OptionError
        Naming what was `asked`, if four numbers for two columns can be read as two pairs and as
        lowers and uppers. A list of two tuples is two pairs.
    """
    if isinstance(bounds, Mapping):
        if set(bounds) != {"lower", "upper"}:
            raise OptionError(f"{asked}={given(bounds)}: {_PAIRS}.")
        try:
            ends = [np.broadcast_to(np.asarray(bounds[n], dtype=float), (k,)) for n in _ENDS]
        except (TypeError, ValueError):
            raise OptionError(
                f"{asked}: one number, or {k} of them, are needed as 'lower' and as 'upper'."
            ) from None
        return list(zip(*(each.tolist() for each in ends), strict=True))
    pairs = isinstance(bounds, list) and all(isinstance(each, tuple) for each in bounds)
    if k != _ENDS_OF_TWO or pairs:
        return bounds
    try:
        read = np.asarray(bounds, dtype=np.float64)
    except (TypeError, ValueError, OverflowError):
        return bounds  # refused as it is
    if read.shape != (k, 2) or np.array_equal(read, read.T):
        return bounds
    apart = (read[0] <= read[1]).all() and (read[0] < read[1]).any()  # or all would be constants
    if apart and (read[:, 0] <= read[:, 1]).all():
        (a, b), (c, d) = read.tolist()
        raise OptionError(
            f"{asked}=(({a:g}, {b:g}), ({c:g}, {d:g})) can be read as pairs, from {a:g} to {b:g} "
            f"and from {c:g} to {d:g}, and as lowers and uppers, from {a:g} to {c:g} and from "
            f"{b:g} to {d:g}. Nothing was charged. Write a list of tuples, [({a:g}, {b:g}), "
            f"({c:g}, {d:g})], or {{'lower': [{a:g}, {b:g}], 'upper': [{c:g}, {d:g}]}}."
        )
    return bounds


_ENDS = ("lower", "upper")
_PAIRS = "(lower, upper), a list of pairs, or {'lower': ..., 'upper': ...} is needed"
_ENDS_OF_TWO = 2  # columns of which the shape of bounds does not say how they are read


def pairs_of(bounds: Any, k: int, *names: str) -> Float:
    """Bounds as an array of shape (k, 2); errors call columns by their names, or numbers from 0."""
    try:
        pairs = np.asarray(bounds, dtype=np.float64)
    except (TypeError, ValueError):
        pairs = np.empty(0)
    if pairs.shape == (2,):
        pairs = np.tile(pairs, (k, 1))
    if pairs.shape != (k, 2):
        raise SchemaError(
            f"bounds={bounds!r}: one pair (lower, upper) for all columns is needed, or {k} pairs."
        )
    wrong = ~(np.isfinite(pairs).all(axis=1) & (pairs[:, 0] <= pairs[:, 1]))
    if wrong.any():
        lower, upper = pairs[wrong][0]
        j = int(np.flatnonzero(wrong)[0])
        raise SchemaError(
            f"bounds ({lower:g}, {upper:g}) of {repr(names[j]) if names else f'column {j}'}: two "
            "finite numbers are needed, the lower first."
        )
    return pairs


def array_blocks(pairs: Float, names: Sequence[str] | None) -> list[TermColumns]:
    """Columns with bounds of shape (k, 2); the first with bounds (1, 1) is the intercept."""
    ones = np.flatnonzero((pairs == 1).all(axis=1))
    intercept = int(ones[0]) if len(ones) else None
    if names is None:
        numbers = itertools.count(1)
        names = ["const" if j == intercept else f"x{next(numbers)}" for j in range(len(pairs))]
    if len(names) != len(pairs):
        raise SchemaError(f"{len(names)} names were given for {len(pairs)} columns.")
    shown = [str(name) for name in names]
    if intercept is None:
        return [plain_columns(shown, range(len(pairs)), pairs)]
    before, after = slice(0, intercept), slice(intercept + 1, len(pairs))
    blocks = [
        plain_columns(shown[part], range(len(pairs))[part], pairs[part]) for part in (before, after)
    ]
    blocks.insert(1, TermColumns((), (shown[intercept],)))
    return [block for block in blocks if block.names]


@scrubbed
def matrix_of(exog: Any, k: int) -> Any:
    """A design matrix given as such: ndarray or CSR array of shape (n, k), without a copy of it.

    Raises
    ------
    DataError
        If it is not two-dimensional with `k` numeric columns, or what a sparse one stores is in no
        place of it.
    """
    if hasattr(exog, "tocsr"):
        matrix = exog.tocsr()
        _check_places(matrix)
    elif hasattr(exog, "columns") or hasattr(exog, "column_names"):
        columns = named_columns(exog)
        for name, column in columns.items():
            check_kind(column, str(name), ("number", "boolean"))
        numeric = exog.to_numpy() if hasattr(exog, "to_numpy") else np.empty((0, 0), object)
        fits = getattr(numeric, "dtype", np.dtype(object)).kind in "fiub" and numeric.ndim == 2
        matrix = numeric if fits else np.column_stack([to_float(c) for c in columns.values()])
    else:
        matrix = np.asarray(as_matrix(exog))
        if is_object(matrix):
            matrix = to_float(matrix.ravel()).reshape(matrix.shape)
    if matrix.ndim == 1:
        matrix = matrix[:, None]
    if matrix.dtype.kind not in "fiub":
        raise DataError(f"exog has type {matrix.dtype}; an array of numbers is needed.")
    if matrix.ndim != 2 or matrix.shape[1] != k:
        raise DataError(f"exog has shape {matrix.shape}; {k} columns were declared.")
    return matrix


def _check_places(matrix: Any) -> None:
    """Refuse a CSR matrix whose index arrays do not describe one; scipy looks only when asked."""
    ends, places = matrix.indptr, matrix.indices
    sound = (
        ends.size == matrix.shape[0] + 1
        and ends[0] == 0
        and ends[-1] <= min(places.size, matrix.data.size)
        and bool((ends[1:] >= ends[:-1]).all())
        and bool(((places >= 0) & (places < matrix.shape[1]))[: ends[-1]].all())
    )
    if not sound:
        raise DataError(
            f"exog is a sparse matrix of shape {matrix.shape} with index arrays that do not fit "
            "it; build it as scipy.sparse.csr_array((values, (rows, columns)), shape=(n, d))."
        )


@scrubbed
def column_of(values: Any, name: str, rows: int) -> Any:
    """A response or a known term given as such: one number per row.

    Raises
    ------
    DataError
        If it is not one-dimensional, its type is not numeric, or its length is not `rows`.
    """
    if getattr(values, "ndim", 1) == 2 and values.shape[1] == 1:
        values = values.iloc[:, 0] if hasattr(values, "iloc") else values[:, 0]
    column = as_column(values, name)
    check_kind(column, name, ("number", "boolean"))
    if len(column) != rows:
        raise DataError(f"{name} has {len(column)} rows and exog {rows}.")
    return column


def width_of(exog: Any) -> int:
    """Columns of a matrix; 1 of what is none."""
    shape = np.shape(exog) if not hasattr(exog, "shape") else exog.shape
    return int(shape[1]) if len(shape) == 2 else 1
