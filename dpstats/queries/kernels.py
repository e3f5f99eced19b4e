"""Products of float32 rows with float64 vectors in one read of the rows; needs numba.

Numpy makes a float64 copy of a block first. The numbers are the same: every term is a whole number
of steps, and every partial sum of them, in any order, is below 2^53 steps (see `base`), so that a
compiler may reorder and fuse what it likes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, cast

import numba
import numpy as np
from numpy.typing import NDArray

__all__ = ["column_sums", "row_products", "row_products_of"]

Array = NDArray[np.float64]
Floats = NDArray[np.float32]
_F = TypeVar("_F", bound=Callable[..., Any])

_ROWS = numba.types.Array(numba.float32, 2, "C", readonly=True)
_VECTOR = numba.types.Array(numba.float64, 1, "C", readonly=True)
_INDEX = numba.types.Array(numba.int64, 1, "C", readonly=True)


def _jit(*arguments: Any) -> Callable[[_F], _F]:
    """Compile for these arguments when the module is imported, or load what was compiled before."""
    made = numba.njit(
        numba.float64[::1](*arguments),
        nogil=True,
        cache=True,
        fastmath={"reassoc", "contract", "nsz"},
    )
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
