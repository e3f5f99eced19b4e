"""Tall matrices of public rows, block by block: in memory, on disk, or made when they are read.

Blocks are always the same, and are added in their order, so that products have the same bits
wherever rows lie. Nothing here is exact, nor for private rows: their sums are those of queries.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

__all__ = [
    "ROWS",
    "LazyRows",
    "Tall",
    "blocks",
    "constant",
    "cross",
    "ends",
    "farthest",
    "gram",
    "mean",
    "outer",
    "read_blocks",
    "times",
    "triangle",
    "vector",
]

Array = NDArray[np.float64]

ROWS = 2**14  # rows of a block


@dataclass(frozen=True, eq=False)
class LazyRows:
    """Rows that are made of others whenever a block of them is read, and never kept.

    Attributes
    ----------
    shape : tuple of int
        (n, k) or (n,).
    make : callable
        From a slice of the rows to these rows.
    """

    shape: tuple[int, ...]
    make: Callable[[slice], Array]

    def __getitem__(self, part: slice, /) -> Array:
        return self.make(part)

    def __len__(self) -> int:
        return self.shape[0]


Tall: TypeAlias = (
    Array | LazyRows
)  # of shape (n, k) or (n,): in memory, or mapped from a file, or made


def constant(n: int, value: float) -> LazyRows:
    """The same number for each of n rows."""
    return LazyRows((n,), lambda part: np.full(part.stop - part.start, value))


def blocks(n: int) -> Iterator[slice]:
    """The blocks of n rows, in order; of none an empty one."""
    return (slice(start, min(start + ROWS, n)) for start in range(0, max(n, 1), ROWS))


def read_blocks(x: Tall) -> Iterator[tuple[slice, Array]]:
    """Every block of rows, each laid out row by row."""
    return ((part, _block(x, part)) for part in blocks(x.shape[0]))


def _block(x: Tall, part: slice) -> Array:
    rows = x[part]
    dense = rows.toarray() if hasattr(rows, "toarray") else rows
    return np.ascontiguousarray(dense, dtype=np.float64)


def vector(n: int, make: Callable[[slice], Array]) -> Array:
    """One number for each of n rows, kept in memory."""
    made = np.empty(n)
    for part in blocks(n):
        made[part] = make(part)
    return made


def times(x: Tall, v: Array) -> LazyRows:
    """``x v``, one number for each row."""
    return LazyRows(x.shape[:1], lambda part: np.asarray(_block(x, part) @ v, dtype=np.float64))


def cross(x: Tall, v: Tall) -> Array:
    """``x'v`` for one number v of each row."""
    total = np.zeros(x.shape[1])
    for part, rows in read_blocks(x):
        total += rows.T @ v[part]
    return total


def gram(x: Tall, weights: Tall | None = None) -> Array:
    """``sum w x x'``."""
    total = np.zeros((x.shape[1],) * 2)
    for part, rows in read_blocks(x):
        weighted = rows if weights is None else rows * weights[part][:, None]
        total += weighted.T @ rows
    return total


def outer(x: Tall, factor: Callable[[slice, Array], Array]) -> Array:
    """``sum (f x) (f x)'`` for a number f of each row, made of its block."""
    total = np.zeros((x.shape[1],) * 2)
    for part, rows in read_blocks(x):
        scaled = rows * factor(part, rows)[:, None]
        total += scaled.T @ scaled
    return total


def ends(x: Tall) -> tuple[Array, Array]:
    """Least and largest number of each column; no number where one of a column is none."""
    low, high = np.full(x.shape[1], np.inf), np.full(x.shape[1], -np.inf)
    for _, rows in read_blocks(x):
        low = np.minimum(low, rows.min(axis=0, initial=np.inf))
        high = np.maximum(high, rows.max(axis=0, initial=-np.inf))
    return low, high


def mean(n: int, make: Callable[[slice], Array]) -> float:
    """Mean over n rows of a number of each."""
    return float(sum(float(np.sum(make(part))) for part in blocks(n))) / n


def farthest(x: Tall, v: Array) -> float:
    """Largest entry of ``|x v|``."""
    return max(float(np.abs(rows @ v).max(initial=0.0)) for _, rows in read_blocks(x))


def triangle(x: Tall) -> Array:
    """The triangular factor of ``x = Q R``, of shape (min(n, k), k)."""
    made = np.zeros((0, x.shape[1]))
    for _, rows in read_blocks(x):
        made = np.asarray(np.linalg.qr(np.concatenate([made, rows]), mode="r"), dtype=np.float64)
    return made
