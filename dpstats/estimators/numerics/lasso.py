"""Choosing columns by randomised responses: the LASSO by coordinate descent, and thresholds."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from dpstats.tall import LazyRows, Tall, blocks, cross, read_blocks

__all__ = ["PublicMoments", "lasso", "sizes_of", "universal"]

Array = NDArray[np.float64]
Positions = NDArray[np.intp]

_SWEEPS = 2_000  # numerical: of coordinate descent
_CLOSE = 1e-6  # numerical: a sweep is the last


def universal(error: float, columns: int, n: int) -> float:
    """``error sqrt(2 log p / n)``: what the largest of p means of pure noise rarely exceeds."""
    return error * math.sqrt(2 * math.log(max(columns, 2)) / n)


def sizes_of(asked: int | Iterable[int] | None) -> tuple[int, ...] | None:
    """Numbers of columns asked for by ``sparsity=``, ascending; None where noise decides."""
    if asked is None:
        return None
    return (int(asked),) if isinstance(asked, int) else tuple(sorted({int(s) for s in asked}))


@dataclass
class PublicMoments:
    """Means ``X'v / n`` of public columns, and columns of ``X'X / n`` as they are needed.

    Attributes
    ----------
    x : Tall, or CSR array, of shape (n, d)
        Public rows.
    """

    x: Tall | csr_array
    _columns: dict[int, Array] = field(default_factory=dict)

    def with_(self, values: Tall) -> Array:
        """``X'v / n``, shape (d,)."""
        n = self.x.shape[0]
        if not isinstance(self.x, csr_array):
            return cross(self.x, values) / n
        every = np.concatenate([values[part] for part in blocks(n)])
        product: Array = np.asarray(self.x.T @ every).ravel() / n
        return product

    def squares(self) -> Array:
        """Mean square of each column."""
        if isinstance(self.x, csr_array):
            return np.asarray(self.x.multiply(self.x).sum(axis=0)).ravel() / max(len(self), 1)
        total = [np.einsum("ij,ij->j", rows, rows) for _, rows in read_blocks(self.x)]
        return np.asarray(np.sum(total, axis=0) / max(len(self), 1), dtype=np.float64)

    def __len__(self) -> int:
        return int(self.x.shape[0])

    def column(self, j: int) -> Array:
        """Column j of ``X'X / n``."""
        if j not in self._columns:
            x = self.x
            if isinstance(x, csr_array):
                own: Tall = np.asarray(x[:, [j]].toarray(), dtype=np.float64).ravel()
            else:
                own = LazyRows((len(self),), lambda part: x[part][:, j])
            self._columns[j] = self.with_(own)
        return self._columns[j]

    def times(self, params: Array) -> Array:
        """``X'X params / n`` of sparse coefficients."""
        total = np.zeros(len(params))
        for j in np.flatnonzero(params):
            total += params[j] * self.column(int(j))
        return total


def lasso(
    score: Array,
    curvature: float,
    moments: PublicMoments,
    penalty: float,
    start: Array,
    free: int | None,
) -> Array:
    """Minimiser of ``curvature b'Gb / 2 - score'b + penalty |b|_1``, by coordinate descent.

    Only columns of G = X'X / n that enter are computed. Columns have mean square 1; column `free`
    is not penalised.

    Parameters
    ----------
    score : ndarray of shape (d,)
    curvature, penalty : float
        > 0.
    start : ndarray of shape (d,)
        Where to start.
    """
    params, limits = start.copy(), np.full(len(score), penalty)
    if free is not None:
        limits[free] = 0.0
    fitted = curvature * moments.times(params)
    active = np.flatnonzero(params)
    for _ in range(_SWEEPS):
        largest = 0.0
        for j in active:
            own = score[j] - fitted[j] + curvature * params[j]
            new = math.copysign(max(abs(own) - limits[j], 0.0), own) / curvature
            change = new - params[j]
            if change:
                fitted += curvature * change * moments.column(int(j))
                params[j] = new
                largest = max(largest, abs(change) * curvature)
        if largest > _CLOSE * penalty:
            continue
        wrong = np.flatnonzero((np.abs(score - fitted) > limits * (1 + 1e-6)) & (params == 0))
        if not wrong.size:
            break
        active = np.union1d(np.flatnonzero(params), wrong)
    return params
