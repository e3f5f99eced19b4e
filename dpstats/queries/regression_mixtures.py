"""Queries of mixtures of regressions: cells of residuals, and scores of all components at once."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from dpstats.errors import PlanError
from dpstats.privacy import Neighbors
from dpstats.queries.base import Contribution, EachRow, InOneCell, Norm, WeighedRow
from dpstats.queries.blocks import (
    V_BITS,
    Array,
    Block,
    Geometry,
    Ints,
    bound_grid,
    dense,
    exact_sum,
    residual,
    truncate,
    wide,
)
from dpstats.queries.mixtures import R_BITS, products, truncated_shares
from dpstats.queries.scalar import increasing

__all__ = ["MixtureScores", "ResidualCells"]

_CELLS = 2**20
_SQUARED_NORM = 3.0  # proved: of a contribution, in units of a^2
_FAR, _SMALL = 2.0**40, 2.0**-40  # scales and weights between which squares overflow nowhere


@dataclass(frozen=True, eq=False)
class ResidualCells(InOneCell, EachRow):
    """Histogram of residuals ``y - x @ beta`` and of the rows in q public directions.

    Guarantee: a row is in one cell. Replacing it moves two counts by one: L2 sensitivity sqrt(2)
    per row; adding one moves a single count.

    Parameters
    ----------
    beta : ndarray of shape (d,)
        Public coefficients.
    heights : ndarray of shape (m + 1,)
        Edges of the m cells of residuals, the outer ones without an end.
    directions : ndarray of shape (q, d)
        Public matrix; a row is at ``directions @ x``. q may be 0.
    edges : ndarray of shape (c + 1,)
        Edges along each direction, likewise.
    """

    beta: Array
    heights: Array
    directions: Array
    edges: Array
    name: ClassVar[str] = "cells of residuals"
    norm: ClassVar[Norm] = "l2"

    def __post_init__(self) -> None:
        increasing(self.heights, "edges of the residuals")
        increasing(self.edges, "edges of the cells")
        if not len(self.directions):  # JSON keeps no second side of an empty matrix
            object.__setattr__(self, "directions", np.empty((0, self.beta.size)))
        sound = self.directions.ndim == 2 and min(self.heights.size, self.edges.size) >= 2
        if not sound or not math.prod(self.shape) <= _CELLS:
            raise PlanError(f"Cells have edges, and there are at most {_CELLS:,} of them.")

    @property
    def shape(self) -> tuple[int, ...]:
        """Cells of residuals, and along each direction."""
        along = int(self.edges.size) - 1
        return (int(self.heights.size) - 1, *(along,) * len(self.directions))

    def parameters(self) -> Mapping[str, Any]:
        """The coefficients, the directions, and numbers and ranges of cells; all public."""
        return {
            "beta": self.beta.tolist(),
            "directions": self.directions.tolist(),
            "cells": list(self.shape),
            "lowest": float(self.heights[0]),
            "highest": float(self.heights[-1]),
        }

    def total(self, block: Block) -> Ints:
        """Rows in each cell."""
        heights = np.searchsorted(self.heights[1:-1], residual(block, self.beta), side="left")
        sides = products(block, self.directions) if len(self.directions) else np.empty((0, 0))
        along = np.searchsorted(self.edges[1:-1], sides.T, side="left")
        cells = np.ravel_multi_index((heights, *along), self.shape)[block.keep > 0]
        return np.bincount(cells, minlength=math.prod(self.shape)).astype(np.int64)

    def decode(self, answer: Array) -> Array:
        """Noisy counts, one axis for residuals and one for each direction."""
        return answer.reshape(self.shape)


@dataclass(frozen=True, eq=False)
class MixtureScores(WeighedRow):
    """What a step of the EM algorithm for a mixture of regressions needs of all k components.

    A row has residuals ``u_j = (y - x @ coef_j) / scale``, responsibilities ``r_j`` proportional to
    ``exp(offsets_j - u_j^2 / 2)``, the clipped residuals ``psi_j = clip(u_j, -C, C)``, and z,
    which is ``whiten @ x`` shortened to the radius R. With a = R C it answers the sums of
    ``r_j v_j``, ``v_j = (a, z psi_j, a (2 psi_j^2 / C^2 - 1))``.

    Guarantee: the sensitivity under replace-one is sqrt(6) a for any k, and rows attain it. Proof:
    let t = psi_j^2 / C^2, so that |z psi_j|^2 <= a^2 t and ``|v_j|^2 <= a^2 (1 + t + (2 t - 1)^2)``
    = a^2 (2 - 3 t + 4 t^2) <= 3 a^2 on [0, 1]. Hold all v_j of two rows, and let their
    responsibilities r and s vary in ``{r_j >= 0, sum_j r_j <= 1}``: the squared distance ``sum_j
    |r_j v_j - s_j w_j|^2`` is convex, so that it is largest at corners, where each row belongs to
    one component or to none. There it is

    - for two components (or one and none) at most 3 a^2 + 3 a^2;
    - for the same component, where counts cancel, with p and m the sum and the difference of
      |psi| / C of both rows, at most a^2 (p^2 + 4 p^2 m^2). There m <= 2 - p, and m <= 1: this is
      at most 5 a^2 for p <= 1, and beyond, with t = p - 1, ``(1 + t)^2 + 4 (1 - t^2)^2 = 5 + 2 t
      - 7 t^2 + 4 t^4 <= 5 + 2 t - 3 t^2 <= 5 + 1/3``.

    Rows of length R at the clip of two components that they belong to attain the first. Adding a
    row moves the sum by at most sqrt(3) a; each of the m rows of a unit counts once.

    In floating point: responsibilities are multiples of 2^-17 that sum to at most 1 (as in
    `MixtureMoments`), a is rounded up to a grid, the other coordinates are truncated to it towards
    zero, which shortens each, and whole numbers are multiplied and added. In the second case
    truncation may lengthen a difference by a step of 2^-19, for which 5 1/3 leaves room.

    Parameters
    ----------
    geometry : Geometry
        The radius R, and the matrix.
    offsets : ndarray of shape (k,)
        Public: logarithms of the weights.
    coef : ndarray of shape (k, d)
        Public coefficients of each component, in internal coordinates.
    scale : float
        Public: standard deviation of the errors.
    clip : float
        C.
    """

    geometry: Geometry
    offsets: Array
    coef: Array
    scale: float
    clip: float
    name: ClassVar[str] = "scores around regressions"
    norm: ClassVar[Norm] = "l2"

    def __post_init__(self) -> None:
        bounded = all(_SMALL <= v <= _FAR for v in (self.scale, self.clip, self.geometry.radius))
        sound = self.offsets.ndim == 1 and self.offsets.size and self.coef.ndim == 2
        if not bounded or not sound or len(self.coef) != self.offsets.size:
            raise PlanError(
                "Components need an offset and coefficients each, and a scale, a clip and a radius "
                "between 2^-40 and 2^40."
            )
        if not (np.isfinite(self.offsets).all() and np.isfinite(self.coef).all()):
            raise PlanError("Offsets and coefficients of components are finite.")

    def parameters(self) -> Mapping[str, Any]:
        """The geometry, the components and the clip; all public."""
        return {
            **self.geometry.parameters(),
            "offsets": self.offsets.tolist(),
            "coef": self.coef.tolist(),
            "scale": self.scale,
            "clip": self.clip,
        }

    @property
    def k(self) -> int:
        """Number of components."""
        return int(self.offsets.size)

    @property
    def constant(self) -> float:
        """a, rounded up to the grid."""
        return math.ceil(self.geometry.radius * self.clip / self._grid) * self._grid

    @property
    def _grid(self) -> float:
        return bound_grid(self.geometry.radius * self.clip, V_BITS)

    def total(self, block: Block) -> Ints:
        """Sums of every component, one after the other, in steps."""
        at = (block.y[:, None] - products(block, self.coef)) / self.scale
        counted = block.weight * block.share
        rows = wide(dense(self.geometry.rows(block))) * counted[:, None]
        shares = np.ldexp(truncated_shares(self._logs(at)) * block.keep[:, None], R_BITS)
        steps = (truncate(self._part(rows, of), self._grid) for of in at.T)
        sums = np.array([share @ part for share, part in zip(shares.T, steps, strict=True)])
        counts = shares.sum(axis=0) * (self.constant / self._grid)
        return exact_sum(np.column_stack([counts, sums]))

    def _logs(self, at: Array) -> Array:
        logs: Array = self.offsets - 0.5 * at**2
        return logs

    def _part(self, rows: Array, at: Array) -> Array:
        """``(z psi_j, a (2 psi_j^2 / C^2 - 1))`` of each row in one component, (m, c + 1)."""
        psi = np.clip(at, -self.clip, self.clip)
        squares = self.geometry.radius * self.clip * (2 * (psi / self.clip) ** 2 - 1)
        return np.column_stack([rows * psi[:, None], squares])

    def finish(self, total: Ints, grid: Array) -> Array:
        """One vector."""
        return np.ravel(total * (self._grid * 2.0**-R_BITS))

    def rows(self, rows: Array) -> Array:
        """What made-up rows (m, d + 1), the response last, contribute: (m, size of the answer)."""
        x, y = rows[:, :-1], rows[:, -1:]
        z = x if self.geometry.whiten is None else x @ self.geometry.whiten.T
        norms = np.sqrt(np.einsum("mi,mi->m", z, z))
        radius = self.geometry.radius
        z = z * (radius / np.maximum(norms, radius))[:, None]
        at = (y - x @ self.coef.T) / self.scale
        shares = truncated_shares(self._logs(at))
        ahead = np.full(len(rows), self.constant)
        parts = [np.column_stack([ahead, self._part(z, of)]) for of in at.T]
        return np.hstack([share[:, None] * p for share, p in zip(shares.T, parts, strict=True)])

    def sensitivity(self, neighbors: Neighbors, max_rows: int) -> float:
        """sqrt(6) a per row under replace-one, sqrt(3) a under add-remove."""
        # Two rows of one component may make an obtuse angle: sqrt(2) is what the docstring proves.
        longest = max_rows * math.sqrt(_SQUARED_NORM) * self.constant
        return Contribution.ACUTE.sensitivity(longest, neighbors)

    def moments(self, answer: Array) -> tuple[Array, Array, Array]:
        """Noisy counts (k,), sums of ``z psi_j`` (k, c) and of ``psi_j^2`` (k,)."""
        parts = answer.reshape(self.k, -1)
        counts = parts[:, 0] / self.constant
        squares = (parts[:, -1] / (self.geometry.radius * self.clip) + counts) * self.clip**2 / 2
        return counts, parts[:, 1:-1], squares
