"""Grids of whole steps: bounds on them, values rounded or truncated to them, exact sums."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from dpstats.errors import PlanError

__all__ = ["X_BITS", "bound_grid", "exact_sum", "on_grid", "to_grid", "truncate"]

Array = NDArray[np.float64]
Ints = NDArray[np.int64]
X_BITS = 17  # a design value is at most 2^17 grid steps: exact in float32
_WIDEST = 2.0**960  # numerical: of bounds and their inverses, whose grids have inverses, too
_FARTHEST, _NOTHING = 2.0**500, 2.0**-400  # numerical: of linear predictors; what counts as 0


def bound_grid(bound: float, bits: int) -> float:
    """The power of two on which values of size at most `bound` take at most 2^bits steps.

    One without an inverse in float64 is refused: the integer of what is infinite is not clipped.
    """
    if not 1 / _WIDEST <= bound <= _WIDEST:
        raise PlanError(f"A bound of {bound!r} has no grid of steps in float64.")
    return math.ldexp(1.0, math.ceil(math.log2(bound)) - bits)


def to_grid(values: Array, grid: float | Array) -> Array:
    """Values rounded to the nearest multiple of `grid` (a power of two)."""
    rounded: Array = np.rint(values / grid) * grid
    return rounded


def truncate(values: Array, grid: float) -> Array:
    """Values in whole steps of `grid`, truncated towards zero: never longer than they were.

    No contribution has more than 2^30 steps, so the truncation of a cast to int32 serves, which is
    many times faster than ``np.trunc``.
    """
    steps: Array = (values * (1.0 / grid)).astype(np.int32).astype(np.float64)
    return steps


def exact_sum(steps: Array) -> Ints:
    """Integer-valued float64 totals of one block as int64."""
    return steps.astype(np.int64)


def on_grid(coef: Array, grid: Array) -> tuple[Array, float]:
    """Coefficients as they meet rows, and the grid step (a power of two) they are rounded to.

    Column j of the rows is at most 2^17 steps of ``grid[j]``, so at most b_j = 2^17 grid_j. The
    coefficients (d,) or (d, k) are rounded to a step g on which sum_j b_j |coef_jk| stays below
    2^52 steps of ``min(grid) * g``. Whatever a query does with coefficients after its rows were
    clipped must use the rounded ones: a bound holds for those. Where none of them moves a product
    by 2^-400 all are 0, and products beyond 2^500 are refused: of either float64 makes no number.
    """
    size = float(np.max((grid * 2.0**X_BITS) @ np.abs(coef), initial=0.0))
    if size < _NOTHING:
        return np.zeros_like(coef), 1.0
    if not size <= _FARTHEST:
        raise PlanError(f"Coefficients make products of up to {size!r}: 2^500 is allowed.")
    step = bound_grid(size / float(grid.min()), 52 - 1)
    return to_grid(coef, step), step
