"""Sums about what clips leave out, and the smallest eigenvalue."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from dpstats.families import GAUSSIAN, Family
from dpstats.privacy import Neighbors
from dpstats.queries.base import Contribution, EachRow, Norm, WeighedRow, need_bounds
from dpstats.queries.blocks import (
    Z_BITS,
    Array,
    Block,
    Geometry,
    Ints,
    bound_grid,
    exact_sum,
    residual,
    truncate,
)
from dpstats.queries.linear import Gram, law_of

__all__ = [
    "MinEigenvalue",
    "ResidualSums",
]

_UNIT_GRID = 2.0**-30
_BITS = 22
_SQUARES = 1 + 2.0**-22  # two squares, each truncated to its grid, differ by a step more at most


@dataclass(frozen=True, eq=False)
class ResidualSums(EachRow):
    """Sums of clipped residuals and of their squares.

    With c = clip(r, -C, C) a row adds (c, c^2 / (2C)), and one with a missing value nothing.

    Guarantee: L2 sensitivity 2C under replace-one, no more than that of the sum alone, so the
    squares are free. Proof: with t = |c + c'| / C, |c - c'| <= (2 - t) C, and the change has the
    square (c - c')^2 (1 + t^2 / 4) <= C^2 (2 - t)^2 (1 + t/2)^2 = C^2 (4 - t^2)^2 / 4 <= (2C)^2.
    Nothing, a row more or less, differs from a row by at most C sqrt(1 + 1/4): the sensitivity
    under add-remove. A unit of up to m rows counts m times.

    Parameters
    ----------
    beta : ndarray of shape (d,)
        Public coefficients, in internal coordinates.
    clip : float
        C > 0.
    family : Family, default gaussian
        Gives the residual.
    """

    beta: Array
    clip: float
    family: Family = GAUSSIAN
    name: ClassVar[str] = "clipped sum and squares"
    norm: ClassVar[Norm] = "l2"

    def __post_init__(self) -> None:
        need_bounds(clip=self.clip)

    def parameters(self) -> Mapping[str, Any]:
        """The coefficients, the clip and the family; all public."""
        beta = [float(b) for b in self.beta]
        return {"beta": beta, "clip": self.clip, **law_of(self.family)}

    def total(self, block: Block) -> Ints:
        """Steps of c and of c^2."""
        r = block.keep * residual(block, self.beta, self.family)
        steps = truncate(np.clip(r, -self.clip, self.clip), self._grid)
        squares = truncate((steps * self._grid) ** 2, self._square_grid)
        return exact_sum(np.array([steps.sum(), squares.sum()]))

    def finish(self, total: Ints, grid: Array) -> Array:
        """``(sum of c, sum of c^2 / (2C))``."""
        units = np.array([self._grid, self._square_grid / (2 * self.clip)])
        sums: Array = total * units
        return sums

    def sensitivity(self, neighbors: Neighbors, max_rows: int) -> float:
        """L2: 2C per row under replace-one, 1.12 C under add-remove."""
        each = 2.0 if neighbors is Neighbors.REPLACE_ONE else math.sqrt(1.25)
        return max_rows * each * self.clip * _SQUARES

    def decode(self, answer: Array) -> Array:
        """``(sum of c, sum of c^2)``."""
        sums: Array = answer * np.array([1.0, 2 * self.clip])
        return sums

    @property
    def _grid(self) -> float:
        return bound_grid(self.clip, _BITS)

    @property
    def _square_grid(self) -> float:
        return bound_grid(self.clip**2, _BITS)


@dataclass(frozen=True, eq=False)
class MinEigenvalue(WeighedRow):
    """Smallest eigenvalue of `Gram`.

    Guarantee: by Weyl's inequality it moves by at most the operator norm of the change of the Gram
    matrix. Replacing one row changes it by z z' - u u', whose operator norm is at most
    max(|z|^2, |u|^2) <= radius^2; so does adding or removing one.
    """

    geometry: Geometry
    name: ClassVar[str] = "smallest eigenvalue"
    norm: ClassVar[Norm] = "l1"

    def parameters(self) -> Mapping[str, Any]:
        """The geometry."""
        return self.geometry.parameters()

    def total(self, block: Block) -> Ints:
        """Z'Z in squared steps of the row grid."""
        return Gram(self.geometry).total(block)

    def finish(self, total: Ints, grid: Array) -> Array:
        """The eigenvalue of the exact Gram matrix."""
        steps = total.astype(np.float64)
        lowest: Array = np.maximum(np.linalg.eigvalsh(steps)[:1], 0.0)
        return lowest * bound_grid(self.geometry.radius, Z_BITS) ** 2

    def sensitivity(self, neighbors: Neighbors, max_rows: int) -> float:
        """radius^2 per row."""
        return Contribution.INTERVAL.sensitivity(max_rows * self.geometry.radius**2, neighbors)
