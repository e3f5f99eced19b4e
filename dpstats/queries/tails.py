"""Sums about what clips leave out, and the smallest eigenvalue."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from dpstats.errors import PlanError
from dpstats.families import GAUSSIAN, Family
from dpstats.privacy import Neighbors
from dpstats.queries.base import Contribution, EachRow, Kind, Norm
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
    "TailSums",
]

_UNIT_GRID = 2.0**-30


@dataclass(frozen=True, eq=False)
class TailSums(EachRow):
    """What clips at a ladder of bounds cut off: sums of ``(clip_(j+1)(r) - clip_j(r)) / width_j``.

    ``clip_j`` clips at ``ladder[j]`` and ``width_j = ladder[j+1] - ladder[j]``; J = size - 1 sums.
    They vanish where residuals are symmetric, and show where a skewed tail carries their mean.

    Guarantee: the J numbers of a row are in [-1, 1], so their L2 norm is at most sqrt(J); two rows
    differ by at most 2 sqrt(J). Truncation towards zero cannot lengthen them.
    """

    beta: Array
    ladder: Array
    family: Family = GAUSSIAN
    name: ClassVar[str] = "clipped tails"
    kind: ClassVar[Kind] = "sum"
    norm: ClassVar[Norm] = "l2"
    geometry: ClassVar[Geometry | None] = None

    def __post_init__(self) -> None:
        finite = np.isfinite(self.ladder).all()
        if not (self.ladder.size > 1 and finite and np.all(np.diff(self.ladder, prepend=0) > 0)):
            raise PlanError("A ladder of clips needs two or more increasing bounds > 0.")

    def parameters(self) -> Mapping[str, Any]:
        """The coefficients, the ladder and the family; all public."""
        beta, ladder = ([float(v) for v in values] for values in (self.beta, self.ladder))
        return {"beta": beta, "ladder": ladder, **law_of(self.family)}

    def total(self, block: Block) -> Ints:
        """Steps of each sum."""
        r = block.keep * residual(block, self.beta, self.family)
        size, sign = np.abs(r), np.sign(r)
        rungs = zip(self.ladder[:-1], np.diff(self.ladder), strict=True)
        cut = (np.clip((size - low) / width, 0.0, 1.0) for low, width in rungs)
        return exact_sum(np.array([(sign * truncate(c, _UNIT_GRID)).sum() for c in cut]))

    def finish(self, total: Ints, grid: Array) -> Array:
        """One number for each rung."""
        sums: Array = total * np.float64(_UNIT_GRID)
        return sums

    def sensitivity(self, neighbors: Neighbors, max_rows: int) -> float:
        """2 sqrt(J) per row under replace-one, sqrt(J) under add-remove."""
        bound = max_rows * math.sqrt(self.ladder.size - 1)
        return Contribution.SIGNED.sensitivity(bound, neighbors)

    def decode(self, answer: Array) -> Array:
        """Read as it is."""
        return answer


@dataclass(frozen=True, eq=False)
class MinEigenvalue(EachRow):
    """Smallest eigenvalue of `Gram`.

    Guarantee: by Weyl's inequality it moves by at most the operator norm of the change of the Gram
    matrix. Replacing one row changes it by z z' - u u', whose operator norm is at most
    max(|z|^2, |u|^2) <= radius^2; so does adding or removing one.
    """

    geometry: Geometry
    name: ClassVar[str] = "smallest eigenvalue"
    kind: ClassVar[Kind] = "sum"
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

    def decode(self, answer: Array) -> Array:
        """A length-1 array."""
        return answer
