"""Columns of public rows: which can be used, and their own moments."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpstats.design.collinear import dependent
from dpstats.errors import DataError, FormulaError, SchemaError
from dpstats.tall import LazyRows, Tall, blocks, ends, gram, read_blocks, triangle

__all__ = ["PublicColumns", "PublicRows", "floats", "usable"]

Float = NDArray[np.float64]
Rows = NDArray[np.intp]

_COLLINEAR = 1e-9  # relative length below which a column counts as a combination of earlier ones
_CLEAR = 1e-4  # beyond this no further look is needed
_TESTED = 500  # beyond so many, columns are not compared with each other
_HERE = "on these rows"


@dataclass(frozen=True, eq=False)
class PublicRows:
    """Public rows of a design in internal coordinates.

    Attributes
    ----------
    x : ndarray, CSR array or LazyRows, of shape (n, d)
    offset : ndarray of shape (n,), LazyRows or None
        Known term of the linear predictor, in internal units of the response where it has any.
    kept : range, or ndarray of int, of shape (n,)
        Which rows of the table they are.
    folder : Path or None
        Where scratch files are made, if the rows are in one: nothing as large as they are is to be
        in memory then.
    table : table or None
        The table that rows were read from, where it was read together with them.
    """

    x: Any
    offset: Any
    kept: range | Rows
    folder: Path | None = None
    table: Any = field(default=None, repr=False)  # it has the private response

    def __len__(self) -> int:
        return len(self.kept)

    @cached_property
    def gram(self) -> Float:
        """X'X, shape (d, d)."""
        if not hasattr(self.x, "tocsr"):
            return gram(self.x)
        dense: Float = (self.x.T @ self.x).toarray()
        return dense

    def part(self, rows: Rows) -> PublicRows:
        """Some of the rows, at these positions."""
        return self._at((len(rows),), lambda part: rows[part], np.asarray(self.kept)[rows])

    def repeated(self, n: int) -> PublicRows:
        """These rows again and again, until there are n."""
        m = len(self)
        return self._at((n,), lambda part: np.arange(part.start, part.stop) % m, range(n))

    def _at(
        self, shape: tuple[int], where: Callable[[slice], Rows], kept: range | Rows
    ) -> PublicRows:
        """Rows at positions, in memory if these are."""
        every = slice(0, shape[0])
        if self.folder is None and not isinstance(self.x, LazyRows):
            rows = where(every)
            offset = None if self.offset is None else self.offset[rows]
            return PublicRows(self.x[rows], offset, kept)
        offset = None if self.offset is None else _picked(self.offset, shape, where)
        x = _picked(self.x, (*shape, self.x.shape[1]), where)
        return PublicRows(x, offset, kept, self.folder)

    def columns(self, chosen: Sequence[int] | Rows) -> Tall:
        """Some columns, dense and of shape (n, k): as they are where these are all of them."""
        at = np.asarray(chosen, dtype=np.intp)
        sparse, x = hasattr(self.x, "tocsr"), self.x
        if not sparse and np.array_equal(at, np.arange(x.shape[1])):
            whole: Tall = x
            return whole
        if self.folder is not None or isinstance(x, LazyRows):
            return LazyRows((len(x), at.size), lambda part: np.take(x[part], at, axis=1))
        made: Float = x[:, at].toarray() if sparse else np.take(x, at, axis=1)
        return made


def _picked(values: Any, shape: tuple[int, ...], where: Callable[[slice], Rows]) -> LazyRows:
    """Rows at positions, whenever they are read."""
    return LazyRows(shape, lambda part: _rows_at(values, where(part)))


def _rows_at(values: Any, rows: Rows) -> Float:
    """Rows at positions, of an array or of rows that are made in blocks."""
    if not isinstance(values, LazyRows):
        found: Float = values[rows]
        return found
    made = np.empty((len(rows), *values.shape[1:]))
    for part in blocks(len(values)):
        here = np.flatnonzero((rows >= part.start) & (rows < part.stop))
        if here.size:
            made[here] = values[part][rows[here] - part.start]
    return made


@dataclass(frozen=True, eq=False)
class PublicColumns:
    """What a fit uses of a public matrix.

    Attributes
    ----------
    x : ndarray, or CSR array, of shape (n, d)
        Rows that are complete, in columns that can be told apart, standardised.
    offset : ndarray of shape (n,) or None
        Known term of these rows.
    kept : range, or ndarray of int, of shape (n,)
        Which rows of the matrix they are.
    taken : ndarray of int of shape (d,) or None
        Which columns they are, where some were left out.
    names : list of str
        Of the d columns.
    bounds : ndarray of shape (d, 2)
        Least and largest value of each column.
    center, scale : ndarray of shape (d,)
        What was taken off, and divided by.
    intercept : int or None
        The column that is 1.
    notes : list of str
        What was left out and why.
    """

    x: Any
    offset: Float | None
    kept: range | Rows
    taken: Rows | None
    names: list[str]
    bounds: Float
    center: Float
    scale: Float
    intercept: int | None
    notes: list[str]


def usable(
    matrix: Any, names: list[str] | None, offset: Float | None, own: bool = False
) -> PublicColumns:
    """Drop rows and columns that cannot be used, standardise by the columns' own moments.

    With `own` the matrix and the offset are nobody else's, and are written over: they may be in a
    scratch file, of which there is to be no copy in memory.
    """
    matrix, offset, kept, notes = _complete(matrix, offset, own)
    ones = _ones(matrix)
    names = _default_names(matrix.shape[1], ones) if names is None else names
    if len(names) != matrix.shape[1]:
        raise SchemaError(f"{len(names)} names were given for {matrix.shape[1]} columns.")
    taken, reasons = _independent(matrix, names, ones)
    notes += [f"dropped {names[j]}: {why}" for j, why in reasons.items()]
    if taken.size == 0:
        raise FormulaError("No column is left: all were zero or combinations of others.")
    some = taken if taken.size < matrix.shape[1] else None
    if some is not None and own:
        matrix = _written(matrix, lambda rows: np.take(rows, taken, axis=1), taken.size)
    elif some is not None:
        matrix = matrix[:, some]
    at = int(np.flatnonzero(taken == ones)[0]) if ones is not None else None
    center, scale = _moments(matrix, at)
    bounds = np.stack(_ends(matrix), axis=1)
    x = _standardised(matrix, center, scale, own)
    chosen = [names[j] for j in taken]
    return PublicColumns(x, offset, kept, some, chosen, bounds, center, scale, at, notes)


def _written(matrix: Float, make: Callable[[Float], Float], width: int) -> Float:
    """What is made of each block of rows, from where the rows begin on, without a gap."""
    n, flat = len(matrix), matrix.reshape(-1)  # a view: rows of one's own follow each other
    for part in blocks(n):
        flat[part.start * width : part.stop * width] = make(matrix[part]).reshape(-1)
    return flat[: n * width].reshape(n, width)


def floats(matrix: Any) -> Any:
    """A dense or sparse matrix in float64."""
    return matrix.astype(np.float64, copy=False)


def _complete(
    matrix: Any, offset: Float | None, own: bool
) -> tuple[Any, Float | None, range | Rows, list[str]]:
    """Rows in which every number is there and finite."""
    n = matrix.shape[0]
    if n == 0:
        raise DataError("The table has no rows.")
    keep = np.ones(n, dtype=np.bool_)
    if hasattr(matrix, "tocsr"):
        keep[np.unique(matrix.nonzero()[0][~np.isfinite(matrix.data[matrix.data != 0])])] = False
    else:
        for part in blocks(n):
            keep[part] = np.isfinite(matrix[part]).all(axis=1)
    if offset is not None:
        keep &= np.isfinite(offset)
    if keep.all():
        return matrix, offset, range(n), []
    kept = np.flatnonzero(keep)
    if kept.size == 0:
        raise DataError("No row is complete: every one has a missing or infinite covariate.")
    note = (
        f"{n - kept.size:,} of {n:,} rows were left out: a covariate is missing or infinite there, "
        "which is public"
    )
    if not own:
        return matrix[kept], None if offset is None else offset[kept], kept, [note]
    for values in [matrix] if offset is None else [matrix, offset]:
        for part in blocks(kept.size):
            values[part] = values[kept[part]]  # upwards: no row is read after it was written over
    return matrix[: kept.size], None if offset is None else offset[: kept.size], kept, [note]


def _dense(values: Any) -> Float:
    full: Float = np.asarray(values.toarray() if hasattr(values, "toarray") else values).ravel()
    return full


def _ends(matrix: Any) -> tuple[Float, Float]:
    """Least and largest value of each column."""
    if hasattr(matrix, "tocsr"):
        return _dense(matrix.min(axis=0)), _dense(matrix.max(axis=0))
    return ends(matrix)


def _ones(matrix: Any) -> int | None:
    """The first column of ones."""
    low, high = _ends(matrix)
    found = np.flatnonzero((low == 1) & (high == 1))
    return int(found[0]) if found.size else None


def _default_names(k: int, ones: int | None) -> list[str]:
    numbers = iter(range(1, k + 1))
    return ["const" if j == ones else f"x{next(numbers)}" for j in range(k)]


def _independent(
    matrix: Any, names: Sequence[str], ones: int | None
) -> tuple[Rows, dict[int, str]]:
    """Columns that are no constants and no combinations of earlier ones, and why others go."""
    n, k = matrix.shape
    low, high = _ends(matrix)
    why = {
        int(j): f"equal to {low[j]:g} {_HERE}"
        for j in np.flatnonzero(low == high)
        if j != ones and (low[j] == 0 or ones is not None)
    }
    left = np.array([j for j in range(k) if j not in why], dtype=np.intp)
    if left.size > min(_TESTED, n - 1) and left.size > 1:
        return left, why
    tested = _unit_columns(matrix, left, ones)
    if _far_from_dependent(tested):
        return left, why
    rest = triangle(tested)
    rests = np.abs(np.diag(rest))
    if rests.size == left.size and (rests > _COLLINEAR).all():
        return left, why
    found = dependent(rest, [names[j] for j in left], _HERE)
    why |= {int(left[i]): reason for i, reason in found.items()}
    return np.array([j for i, j in enumerate(left) if i not in found], dtype=np.intp), why


def _unit_columns(matrix: Any, chosen: Rows, ones: int | None) -> LazyRows:
    """Columns of length 1, about their means where there is an intercept."""
    n, every = matrix.shape[0], chosen.size == matrix.shape[1]

    def raw(part: slice) -> Float:
        rows = matrix[part]
        rows = rows.toarray() if hasattr(rows, "toarray") else rows
        return np.asarray(rows if every else np.take(rows, chosen, axis=1), dtype=np.float64)

    columns, center = LazyRows((n, chosen.size), raw), np.zeros(chosen.size)
    if ones is not None:
        center = np.where(chosen == ones, 0.0, _total(columns, lambda rows: rows) / n)
    length = np.sqrt(_total(columns, lambda rows: np.square(rows - center)))
    length = np.where(length > 0, length, 1.0)
    return LazyRows((n, chosen.size), lambda part: (raw(part) - center) / length)


def _total(columns: Tall, make: Callable[[Float], Float]) -> Float:
    """Sum of what is made of the rows of each block, in their order."""
    total: Float = np.sum([make(rows).sum(axis=0) for _, rows in read_blocks(columns)], axis=0)
    return total


def _far_from_dependent(columns: LazyRows) -> bool:
    """Whether columns of length 1 are clearly independent, by a Cholesky factor, at half the cost.

    It squares the condition, so what it calls close is looked at again.
    """
    try:
        factor = np.linalg.cholesky(gram(columns))
    except np.linalg.LinAlgError:
        return False
    return bool(np.diag(factor).min(initial=1.0) > _CLEAR)


def _moments(matrix: Any, intercept: int | None) -> tuple[Float, Float]:
    """Mean and standard deviation of each column; about 0 without an intercept, or if sparse."""
    n, k = matrix.shape
    center = np.zeros(k)
    if hasattr(matrix, "tocsr"):
        variance = _dense(matrix.multiply(matrix).sum(axis=0)) / n
    else:
        if intercept is not None:
            center = _total(matrix, lambda rows: rows) / n
            center[intercept] = 0.0
        variance = _total(matrix, lambda rows: np.square(rows - center)) / n
    scale = np.sqrt(variance)
    if intercept is not None:
        scale[intercept] = 1.0
    return center, np.where(scale > 0, scale, 1.0)


def _standardised(matrix: Any, center: Float, scale: Float, own: bool) -> Any:
    if hasattr(matrix, "tocsr"):
        from scipy.sparse import csr_array, diags_array

        return csr_array(matrix @ diags_array(1 / scale))
    if own:
        return _written(matrix, lambda rows: (rows - center) / scale, matrix.shape[1])
    inner = np.subtract(matrix, center, order="C")
    inner /= scale
    return inner
