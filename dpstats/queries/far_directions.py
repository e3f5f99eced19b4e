"""Where the longest rows lie: outer products of their directions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np

from dpstats.privacy import Neighbors
from dpstats.queries.base import Contribution, EachRow, Norm, need_bounds
from dpstats.queries.blocks import (
    SAFETY,
    Z_BITS,
    Array,
    Block,
    Geometry,
    Ints,
    bound_grid,
    dense,
    exact_sum,
    outer_steps,
)
from dpstats.queries.linear import OuterProducts

__all__ = ["FarDirections"]


@dataclass(frozen=True, eq=False)
class FarDirections(OuterProducts, EachRow):
    """Sum of ``u u'`` over rows longer than `radius`; z is ``whiten @ x`` and u is ``z / ||z||``.

    Its trace is the number of these rows, an eigenvalue how many of them lie along a direction.

    Guarantee: u, truncated towards zero, is at most 1 long, and outer products make no obtuse
    angle: replacing a row moves the sum by at most sqrt(2), adding one by 1.

    Parameters
    ----------
    whiten : ndarray of shape (k, d)
        Public matrix.
    radius : float
        Public length; a row with a weight is as long as its share of z that counts.
    """

    whiten: Array
    radius: float
    name: ClassVar[str] = "directions of far rows"
    norm: ClassVar[Norm] = "l2"

    def __post_init__(self) -> None:
        need_bounds(radius=self.radius)

    def parameters(self) -> Mapping[str, Any]:
        """The length; and that rows are whitened, all public."""
        return {"whitened": True, "radius": self.radius}

    def total(self, block: Block) -> Ints:
        """U'U in squared steps."""
        lengths = self._coordinates.norms(block)
        far = block.keep * (self._coordinates.lengths(block) > self.radius)
        factor = SAFETY * far / np.where(far > 0, lengths, 1.0)
        return exact_sum(outer_steps(dense(self._coordinates.rows(block)), factor, self._grid()))

    def sensitivity(self, neighbors: Neighbors, max_rows: int) -> float:
        """sqrt(2) per row under replace-one, 1 under add-remove."""
        return Contribution.ACUTE.sensitivity(float(max_rows), neighbors)

    @cached_property
    def _coordinates(self) -> Geometry:
        return Geometry(1.0, self.whiten)

    def _grid(self) -> float:
        return bound_grid(1.0, Z_BITS)
