"""Products of float32 rows with float64 vectors, and cells of values, in one read; needs numba.

Numpy makes a float64 copy of a block before a product. The numbers are the same: every term is a
whole number of steps, and every partial sum of them, in any order, is below 2^53 steps (see
`base`), so that a compiler may reorder and fuse what it likes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, cast

import numba
import numpy as np
from numpy.typing import NDArray

__all__ = ["cell_counts", "column_sums", "row_products", "row_products_of"]

Array = NDArray[np.float64]
Floats = NDArray[np.float32]
_F = TypeVar("_F", bound=Callable[..., Any])

_ROWS = numba.types.Array(numba.float32, 2, "C", readonly=True)
_VECTOR = numba.types.Array(numba.float64, 1, "C", readonly=True)
_INDEX = numba.types.Array(numba.int64, 1, "C", readonly=True)
_MASK = numba.types.Array(numba.bool_, 1, "C", readonly=True)
_ANY_ORDER = frozenset({"reassoc", "contract", "nsz"})  # of exact sums
_BINS, _TINY = 4096, 2.0**-100  # bins; narrower ones, or as much wider, have no inverse


def _jit(
    *arguments: Any, gives: Any = numba.float64, order: frozenset[str] = _ANY_ORDER
) -> Callable[[_F], _F]:
    """Compile for these arguments when the module is imported, or load what was compiled before."""
    made = numba.njit(gives[::1](*arguments), nogil=True, cache=True, fastmath=set(order))
    return cast("Callable[[_F], _F]", made)


@_jit(_ROWS, _VECTOR)
def row_products(x: Floats, coef: Array) -> Array:
    """``x @ coef`` of shape (m,)."""
    products = np.empty(x.shape[0])
    for i in range(x.shape[0]):
        total = 0.0
        for j in range(x.shape[1]):
            total += x[i, j] * coef[j]
        products[i] = total
    return products


@_jit(_ROWS, _INDEX, _VECTOR)
def row_products_of(x: Floats, columns: NDArray[np.int64], coef: Array) -> Array:
    """``x[:, columns] @ coef`` of shape (m,)."""
    products = np.empty(x.shape[0])
    for i in range(x.shape[0]):
        total = 0.0
        for k in range(columns.size):
            total += x[i, columns[k]] * coef[k]
        products[i] = total
    return products


@_jit(_VECTOR, _ROWS)
def column_sums(v: Array, x: Floats) -> Array:
    """``v @ x`` of shape (d,); four rows at a time, so that sums are rarely written."""
    m, d = x.shape
    sums = np.zeros(d)
    whole = m - m % 4
    for i in range(0, whole, 4):
        a, b, c, e = v[i], v[i + 1], v[i + 2], v[i + 3]
        for j in range(d):
            sums[j] += a * x[i, j] + b * x[i + 1, j] + c * x[i + 2, j] + e * x[i + 3, j]
    for i in range(whole, m):
        for j in range(d):
            sums[j] += v[i] * x[i, j]
    return sums


@numba.njit(inline="always")
def _bin(x: float, low: float, inverse: float, last: int) -> int:
    """The bin of a value, or of an edge; what is no number is in the last."""
    place = (x - low) * inverse
    if not place < last:
        return last
    return int(place) if place > 0 else 0


@_jit(_VECTOR, _VECTOR, _MASK, gives=numba.int64, order=frozenset())
def cell_counts(values: Array, edges: Array, keep: NDArray[np.bool_]) -> NDArray[np.int64]:
    """Kept values in each cell (-inf, e_0], ..., (e_last, inf), the last with what is no number.

    A value's bin, which never decreases, says between which edges it is looked up.
    """
    n = edges.size
    low, width = edges[0], edges[-1] / _BINS - edges[0] / _BINS
    last, inverse = (_BINS - 1, 1 / width) if _TINY < width < 1 / _TINY else (0, 0.0)
    first = np.zeros(last + 2, dtype=np.int64)  # edges in lower bins
    for e in edges:
        first[_bin(e, low, inverse, last) + 1] += 1
    first = np.cumsum(first)
    counts = np.zeros(n + 1, dtype=np.int64)
    for i in range(values.size):
        if keep[i]:
            x = values[i]
            at = _bin(x, low, inverse, last)
            a, b = (first[at], first[at + 1]) if x == x else (n, n)
            while a < b:
                middle = (a + b) // 2
                a, b = (middle + 1, b) if x > edges[middle] else (a, middle)
            counts[a] += 1
    return counts
