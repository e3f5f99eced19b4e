"""Queries of symmetric mixtures of rows: residuals whose sign is guessed, and long entries."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from dpstats.errors import PlanError
from dpstats.families.signs import mean_sign
from dpstats.privacy import Neighbors
from dpstats.queries.base import AtMostOne, Contribution, EachRow, Kind, Norm
from dpstats.queries.blocks import (
    SAFETY,
    V_BITS,
    Array,
    Block,
    Ints,
    bound_grid,
    dense,
    exact_product,
    exact_sum,
    truncate,
    wide,
)

__all__ = ["LongEntries", "SignedRows"]

_SMALL, _FAR = 2.0**-40, 2.0**40  # of units and radii: nothing overflows


def _need_between(name: str, value: float) -> None:
    if not (math.isfinite(value) and _SMALL <= value <= _FAR):
        raise PlanError(f"{name}={value!r}: a number between 2^-40 and 2^40 is needed.")


@dataclass(frozen=True, eq=False)
class SignedRows(EachRow):
    """Sum of ``tanh(z'c) z - c``, each shortened to a length of at most R; z is ``x / unit``.

    If z is c or -c with equal chances and standard normal noise, ``tanh(z'c)`` is the mean of that
    sign given z, the sum is the gradient of the log-likelihood in c, and its mean is 0 at the true
    c. The residual is shortened and not the row: far from 0 only noise makes it long.

    Guarantee: a contribution is at most R long, so that replacing one moves the sum by at most
    2 R, which residuals at opposite ends attain, and adding one by at most R; each of the m rows
    of a unit counts once. Residuals are shortened by a factor of 1 - 2^-20 more than that, which
    is more than rounding can add, and truncated towards zero.

    Parameters
    ----------
    center : ndarray of shape (d,)
        c; public.
    unit : float
        Standard deviation of the noise, in internal units; public.
    radius : float
        R, in standard deviations.
    """

    center: Array
    unit: float
    radius: float
    name: ClassVar[str] = "residuals of rows with their sign"
    norm: ClassVar[Norm] = "l2"

    def __post_init__(self) -> None:
        _need_between("unit", self.unit)
        _need_between("radius", self.radius)
        if not (self.center.ndim == 1 and np.isfinite(self.center).all()):
            raise PlanError("The center of a symmetric mixture is a vector of finite numbers.")

    def parameters(self) -> Mapping[str, Any]:
        """The centre, the unit and the radius; all public."""
        return {"center": self.center.tolist(), "unit": self.unit, "radius": self.radius}

    @property
    def _grid(self) -> float:
        return bound_grid(self.radius, V_BITS)

    def total(self, block: Block) -> Ints:
        """The sum, in steps."""
        odds = exact_product(block, self.center / self.unit)
        rows = wide(dense(block.x)) / self.unit
        short = self._shortened(rows, odds) * block.keep[:, None]
        return exact_sum(truncate(short, self._grid).sum(axis=0))

    def _shortened(self, rows: Array, odds: Array) -> Array:
        apart = mean_sign(odds)[:, None] * rows - self.center
        norms = np.sqrt(np.einsum("mi,mi->m", apart, apart))
        radius = SAFETY * self.radius
        short: Array = apart * (radius / np.maximum(norms, radius))[:, None]
        return short

    def finish(self, total: Ints, grid: Array) -> Array:
        """One number for each column, in standard deviations."""
        summed: Array = total * np.float64(self._grid)
        return summed

    def rows(self, rows: Array) -> Array:
        """What made-up rows (m, d) in internal units contribute, shape (m, d)."""
        scaled = rows / self.unit
        return self._shortened(scaled, scaled @ self.center)

    def sensitivity(self, neighbors: Neighbors, max_rows: int) -> float:
        """2 R per row under replace-one, R under add-remove."""
        return Contribution.SIGNED.sensitivity(max_rows * self.radius, neighbors)


@dataclass(frozen=True)
class LongEntries(AtMostOne, EachRow):
    """Choice of the columns in which most rows have an entry larger than a threshold in size.

    With `products` an entry is that of the column times the response.

    Guarantee: a row adds 0 or 1 to the count of each column, so that replacing, adding or removing
    it moves no count by more than 1; each of the m rows of a unit counts once.

    Parameters
    ----------
    threshold : float
        In internal units; public.
    products : bool, default False
    """

    threshold: float
    products: bool = False
    name: ClassVar[str] = "choice of columns with long entries"
    kind: ClassVar[Kind] = "choice"
    norm: ClassVar[Norm] = "linf"

    def __post_init__(self) -> None:
        _need_between("threshold", self.threshold)

    def parameters(self) -> Mapping[str, Any]:
        """The threshold, and of what."""
        return {"threshold": self.threshold, "products": self.products}

    def total(self, block: Block) -> Ints:
        """Rows with a long entry, by column."""
        entries = dense(block.x)
        if self.products:  # one multiplication each: the same bits wherever the row stands
            entries = wide(entries) * block.y[:, None]
        long = np.abs(entries) > self.threshold
        long &= (block.keep > 0)[:, None]
        counts: Ints = long.sum(axis=0, dtype=np.int64)
        return counts
