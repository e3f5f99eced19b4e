"""Columns of public rows: which can be used, and their own moments."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpstats.design.collinear import dependent
from dpstats.errors import DataError, FormulaError, SchemaError

__all__ = ["Covariates", "PublicColumns", "floats", "usable"]

Float = NDArray[np.float64]
Rows = NDArray[np.intp]

_COLLINEAR = 1e-9  # relative length below which a column counts as a combination of earlier ones
_CLEAR = 1e-4  # beyond this no further look is needed
_TESTED = 500  # beyond so many, columns are not compared with each other
_HERE = "on these rows"


@dataclass(frozen=True, eq=False)
class Covariates:
    """Public rows of a design in internal coordinates.

    Attributes
    ----------
    x : ndarray, or CSR array, of shape (n, d)
    offset : ndarray of shape (n,) or None
        Known term of the linear predictor, in internal units of the response where it has any.
    kept : ndarray of int of shape (n,)
        Which rows of the table they are.
    """

    x: Any
    offset: Float | None
    kept: Rows

    def __len__(self) -> int:
        return len(self.kept)

    @cached_property
    def gram(self) -> Float:
        """X'X, shape (d, d)."""
        product = self.x.T @ self.x
        dense: Float = product.toarray() if hasattr(product, "toarray") else product
        return dense

    @cached_property
    def longest(self) -> float:
        """Largest norm of a row."""
        return float(np.sqrt(_squares(self.x, axis=1).max(initial=0.0)))

    def part(self, rows: slice | Rows) -> Covariates:
        """Some of the rows."""
        offset = None if self.offset is None else self.offset[rows]
        return Covariates(self.x[rows], offset, self.kept[rows])

    def repeated(self, n: int) -> Covariates:
        """These rows again and again, until there are n."""
        rows = np.resize(np.arange(len(self)), n)
        offset = None if self.offset is None else self.offset[rows]
        return Covariates(self.x[rows], offset, self.kept[rows])

    def columns(self, chosen: Sequence[int] | Rows) -> Float:
        """Some columns as a dense array of shape (n, k)."""
        part = self.x[:, np.asarray(chosen, dtype=np.intp)]
        dense: Float = part.toarray() if hasattr(part, "toarray") else np.ascontiguousarray(part)
        return dense


@dataclass(frozen=True, eq=False)
class PublicColumns:
    """What a fit uses of a public matrix.

    Attributes
    ----------
    x : ndarray, or CSR array, of shape (n, d)
        Rows that are complete, in columns that can be told apart, standardised.
    offset : ndarray of shape (n,) or None
        Known term of these rows.
    kept : ndarray of int of shape (n,)
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
    kept: Rows
    taken: Rows | None
    names: list[str]
    bounds: Float
    center: Float
    scale: Float
    intercept: int | None
    notes: list[str]


def usable(matrix: Any, names: list[str] | None, offset: Float | None) -> PublicColumns:
    """Drop rows and columns that cannot be used, standardise by the columns' own moments."""
    matrix, offset, kept, notes = _complete(matrix, offset)
    ones = _ones(matrix)
    names = _default_names(matrix.shape[1], ones) if names is None else names
    if len(names) != matrix.shape[1]:
        raise SchemaError(f"{len(names)} names were given for {matrix.shape[1]} columns.")
    taken, reasons = _independent(matrix, names, ones)
    notes += [f"dropped {names[j]}: {why}" for j, why in reasons.items()]
    if taken.size == 0:
        raise FormulaError("No column is left: all were zero or combinations of others.")
    some = taken if taken.size < matrix.shape[1] else None
    if some is not None:
        matrix = matrix[:, some]
    at = int(np.flatnonzero(taken == ones)[0]) if ones is not None else None
    sparse = hasattr(matrix, "tocsr")
    center, scale = _moments(matrix, at, sparse)
    bounds = np.stack([_dense(matrix.min(axis=0)), _dense(matrix.max(axis=0))], axis=1)
    x = _standardised(matrix, center, scale, sparse)
    chosen = [names[j] for j in taken]
    return PublicColumns(x, offset, kept, some, chosen, bounds, center, scale, at, notes)


def floats(matrix: Any) -> Any:
    """A dense or sparse matrix in float64."""
    return matrix.astype(np.float64, copy=False)


def _complete(matrix: Any, offset: Float | None) -> tuple[Any, Float | None, Rows, list[str]]:
    """Rows in which every number is there and finite."""
    n = matrix.shape[0]
    if n == 0:
        raise DataError("The table has no rows.")
    keep = np.ones(n, dtype=np.bool_)
    if hasattr(matrix, "tocsr"):
        keep[np.unique(matrix.nonzero()[0][~np.isfinite(matrix.data[matrix.data != 0])])] = False
    else:
        keep &= np.isfinite(matrix).all(axis=1)
    if offset is not None:
        keep &= np.isfinite(offset)
    kept = np.flatnonzero(keep)
    if kept.size == n:
        return matrix, offset, kept, []
    if kept.size == 0:
        raise DataError("No row is complete: every one has a missing or infinite covariate.")
    note = (
        f"{n - kept.size:,} of {n:,} rows were left out: a covariate is missing or infinite there, "
        "which is public"
    )
    return matrix[kept], None if offset is None else offset[kept], kept, [note]


def _dense(values: Any) -> Float:
    full: Float = np.asarray(values.toarray() if hasattr(values, "toarray") else values).ravel()
    return full


def _squares(matrix: Any, axis: int) -> Float:
    if hasattr(matrix, "tocsr"):
        return _dense(matrix.multiply(matrix).sum(axis=axis))
    sums: Float = np.einsum("ij,ij->j" if axis == 0 else "ij,ij->i", matrix, matrix)
    return sums


def _ones(matrix: Any) -> int | None:
    """The first column of ones."""
    low, high = _dense(matrix.min(axis=0)), _dense(matrix.max(axis=0))
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
    low, high = _dense(matrix.min(axis=0)), _dense(matrix.max(axis=0))
    why = {
        int(j): f"equal to {low[j]:g} {_HERE}"
        for j in np.flatnonzero(low == high)
        if j != ones and (low[j] == 0 or ones is not None)
    }
    left = np.array([j for j in range(k) if j not in why], dtype=np.intp)
    if left.size > min(_TESTED, n - 1) and left.size > 1:
        return left, why
    tested = matrix[:, left] if why else matrix
    tested = floats(tested.toarray() if hasattr(tested, "toarray") else np.array(tested))
    if ones is not None:
        tested -= np.where(left == ones, 0.0, tested.mean(axis=0))
    length = np.linalg.norm(tested, axis=0)
    tested /= np.where(length > 0, length, 1.0)
    if _far_from_dependent(tested):
        return left, why
    triangle: Float = np.asarray(np.linalg.qr(tested, mode="r"))
    if triangle.shape[0] == left.size and (np.abs(np.diag(triangle)) > _COLLINEAR).all():
        return left, why
    found = dependent(triangle, [names[j] for j in left], _HERE)
    why |= {int(left[i]): reason for i, reason in found.items()}
    return np.array([j for i, j in enumerate(left) if i not in found], dtype=np.intp), why


def _far_from_dependent(columns: Float) -> bool:
    """Whether columns of length 1 are clearly independent, by a Cholesky factor, at half the cost.

    It squares the condition, so what it calls close is looked at again.
    """
    try:
        factor = np.linalg.cholesky(columns.T @ columns)
    except np.linalg.LinAlgError:
        return False
    return bool(np.diag(factor).min(initial=1.0) > _CLEAR)


def _moments(matrix: Any, intercept: int | None, sparse: bool) -> tuple[Float, Float]:
    """Mean and standard deviation of each column; about 0 without an intercept, or if sparse."""
    n = matrix.shape[0]
    center = np.zeros(matrix.shape[1])
    if intercept is not None and not sparse:
        center = matrix.mean(axis=0)
        center[intercept] = 0.0
    variance = np.maximum(_squares(matrix, axis=0) / n - center**2, 0.0)
    if not sparse and intercept is not None:  # by differences, where the mean is far from 0
        variance = np.array([np.mean((c - m) ** 2) for c, m in zip(matrix.T, center, strict=True)])
    scale = np.sqrt(variance)
    if intercept is not None:
        scale[intercept] = 1.0
    return center, np.where(scale > 0, scale, 1.0)


def _standardised(matrix: Any, center: Float, scale: Float, sparse: bool) -> Any:
    if sparse:
        from scipy.sparse import csr_array, diags_array

        return csr_array(matrix @ diags_array(1 / scale))
    inner = matrix - center
    inner /= scale
    return inner
