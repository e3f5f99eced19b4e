"""Queries of mixture models: cells in few directions, and moments of rows around components."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, Literal

import numpy as np

from dpstats.errors import PlanError
from dpstats.privacy import Neighbors
from dpstats.queries.base import Contribution, EachRow, InOneCell, Norm
from dpstats.queries.blocks import (
    SAFETY,
    V_BITS,
    Z_BITS,
    Array,
    Block,
    Ints,
    bound_grid,
    dense,
    exact_sum,
    on_grid,
    outer_steps,
    truncate,
    wide,
)
from dpstats.queries.linear import packed
from dpstats.queries.scalar import increasing

__all__ = [
    "R_BITS",
    "CovarianceKind",
    "MixtureMoments",
    "ProjectedCells",
    "products",
    "truncated_shares",
]

CovarianceKind = Literal["full", "tied", "diagonal", "spherical"]

_LARGEST = 2.0**60  # of whitened rows: their squares overflow nowhere
_CELLS = 2**20
R_BITS = 17  # a responsibility is at most 2^17 steps: 17 + 19 + 13 < 53


def truncated_shares(logs: Array) -> Array:
    """Responsibilities proportional to ``exp(logs)``, (m, k): multiples of 2^-17, sum at most 1.

    Without truncation they may sum to more than 1 by rounding errors; a sum of multiples cannot.
    """
    shares = np.exp(logs - logs.max(axis=1, keepdims=True))
    shares /= shares.sum(axis=1, keepdims=True)
    truncated: Array = np.floor(np.ldexp(shares, R_BITS)) * 2.0**-R_BITS
    return truncated


def products(block: Block, matrix: Array) -> Array:
    """``x @ matrix.T`` without rounding error, of shape (m, k)."""
    if not np.all(block.bound @ np.abs(matrix.T) <= _LARGEST):
        raise PlanError("A public matrix makes numbers beyond 2^60.")
    made: Array = wide(dense(block.x)) @ on_grid(matrix.T, block.grid)[0]
    return made


@dataclass(frozen=True, eq=False)
class ProjectedCells(InOneCell, EachRow):
    """Histogram of the rows in q public directions, in the product of the cells of each.

    Guarantee: a row is in one cell. Replacing it moves two counts by one: L2 sensitivity sqrt(2)
    per row; adding one moves a single count.

    Parameters
    ----------
    directions : ndarray of shape (q, d)
        Public matrix; a row is at ``directions @ x``.
    edges : ndarray of shape (m + 1,)
        Increasing; m cells along each direction, the outer ones without an end.
    """

    directions: Array
    edges: Array
    name: ClassVar[str] = "cells in few directions"
    norm: ClassVar[Norm] = "l2"

    def __post_init__(self) -> None:
        increasing(self.edges, "edges of the cells")
        sound = self.directions.ndim == 2 and self.directions.size and self.edges.size >= 2
        if not sound or not self.cells ** len(self.directions) <= _CELLS:
            raise PlanError(f"At least one direction, and at most {_CELLS:,} cells are needed.")

    @property
    def cells(self) -> int:
        """Cells along each direction."""
        return int(self.edges.size) - 1

    def parameters(self) -> Mapping[str, Any]:
        """The directions, and for each the number of cells and their range."""
        ends = {"lowest": float(self.edges[0]), "highest": float(self.edges[-1])}
        return {"directions": self.directions.tolist(), "cells": self.cells, **ends}

    def total(self, block: Block) -> Ints:
        """Rows in each cell."""
        inside = self._cells(products(block, self.directions))[block.keep > 0]
        return np.bincount(inside, minlength=self.cells ** len(self.directions)).astype(np.int64)

    def places(self, rows: Array) -> Ints:
        """The cell of each of some made-up rows, shape (m,)."""
        return self._cells(rows @ self.directions.T)

    def _cells(self, at: Array) -> Ints:
        each = np.searchsorted(self.edges[1:-1], at.T, side="left")
        made: Ints = np.ravel_multi_index(tuple(each), (self.cells,) * len(each)).astype(np.int64)
        return made

    def decode(self, answer: Array) -> Array:
        """Noisy counts, one axis for each direction."""
        return answer.reshape((self.cells,) * len(self.directions))


@dataclass(frozen=True, eq=False)
class MixtureMoments(EachRow):
    """What a step of the EM algorithm for a normal mixture needs of all k components at once.

    A row has a residual ``z_j = whiten_j @ x`` to each component, responsibilities ``r_j``
    proportional to ``exp(offsets_j - |z_j|^2 / 2)``, and ``u_j``, which is z_j shortened to R.

    ``"full"`` answers the blocks ``r_j (a, u_j)(a, u_j)'`` with a = R / sqrt(2); ``"tied"`` the
    same, but for one block of second moments, ``sum_j r_j u_j u_j'``; ``"diagonal"`` and
    ``"spherical"`` answer ``r_j (B, u_j, b v_j)``. There v_j is ``u_j^2 - 1`` (of a spherical
    component the number ``(|u_j|^2 - d) / sqrt(d)``) shortened to Q, b = 0.7 R / Q and
    B^2 = R^2 + (b Q)^2.

    Guarantee: the sensitivity is the same for any k. Responsibilities are truncated to multiples of
    2^-17, so that their sum, which may exceed 1 by rounding errors only and is such a multiple, is
    at most 1. With w_j = (a, u_j), |w_j|^2 <= a^2 + R^2 = G:

    - full: a row's Frobenius norm is ``(sum_j r_j^2 |w_j|^4)^(1/2) <= G sum_j r_j <= G``, and two
      rows have the product ``sum_j r_j s_j (w_j'w'_j)^2 >= 0``. So replacing one moves the sum by
      at most sqrt(2) G; rows at R from two components that they belong to attain it.
    - tied: the blocks are w_j w_j' without their last part, which is summed over j; that sum is at
      most ``sum_j r_j |u_j|^2`` long, so the triangle inequality over j gives the norm G again. The
      product of two rows is ``sum_j r_j s_j (a^4 + 2 a^2 u_j'u'_j) + sum_jl r_j s_l (u_j'u'_l)^2``,
      and its terms with j = l alone add up to ``sum_j r_j s_j (a^2 + u_j'u'_j)^2 >= 0``.
    - diagonal, spherical: |(u_j, b v_j)| <= B, so the norm is at most sqrt(2) B, and the product of
      two rows ``sum_j r_j s_j (B^2 + ...) >= 0``: at most 2 B, the norm of the change of
      (u, b v) alone, and counts cost nothing. B is rounded up to the grid, the others towards zero,
      and whole numbers are multiplied: all of it holds in floating point.

    Adding a row moves the sum by its norm. The m rows of a unit add up to what is m times as long,
    and products of such sums are not negative either.

    Parameters
    ----------
    offsets : ndarray of shape (k,)
        Public: logarithm of the weight of a component times the determinant of its matrix.
    whiten : ndarray of shape (k d, D)
        Public: the matrices of all components, below each other.
    radius : float
        R.
    shape : {"full", "tied", "diagonal", "spherical"}
        Of the covariances.
    """

    offsets: Array
    whiten: Array
    radius: float
    shape: CovarianceKind = "full"
    name: ClassVar[str] = "moments around components"
    norm: ClassVar[Norm] = "l2"

    def __post_init__(self) -> None:
        if not (math.isfinite(self.radius) and 2.0**-20 <= self.radius <= 2.0**20):
            raise PlanError(f"radius={self.radius!r}: a radius between 2^-20 and 2^20 is needed.")
        k, parts = self.offsets.size, len(self.whiten) if self.whiten.ndim == 2 else 0
        sound = self.offsets.ndim == 1 and k and parts and parts % k == 0
        if not sound or not (np.isfinite(self.offsets).all() and np.isfinite(self.whiten).all()):
            raise PlanError("Each component needs an offset, and a matrix of the same shape.")

    def parameters(self) -> Mapping[str, Any]:
        """The components, the radius and the shape; all public."""
        return {
            "offsets": self.offsets.tolist(),
            "whiten": self.whiten.tolist(),
            "radius": self.radius,
            "shape": self.shape,
        }

    @property
    def k(self) -> int:
        """Number of components."""
        return int(self.offsets.size)

    @property
    def d(self) -> int:
        """Dimension of a residual."""
        return len(self.whiten) // self.k

    @property
    def constant(self) -> float:
        """What stands before the residual: a, or B."""
        if self.blocks:
            return self.radius * _AHEAD
        bound = self.radius * math.hypot(1.0, _PART)
        grid = bound_grid(bound, V_BITS)
        return math.ceil(bound / grid) * grid

    @property
    def blocks(self) -> bool:
        """Whether products of coordinates are asked."""
        return self.shape in ("full", "tied")

    @property
    def square_factor(self) -> float:
        """b."""
        return _PART * self.radius / self._longest_square

    @property
    def _longest_square(self) -> float:
        return math.sqrt(2 * self.d) + 2 if self.shape == "diagonal" else 4.0

    @cached_property
    def _grid(self) -> float:
        if self.blocks:
            return bound_grid(math.hypot(self.constant, self.radius), Z_BITS)
        return bound_grid(self.radius * math.hypot(1.0, _PART), V_BITS)

    def responsibilities(self, residuals: Array) -> Array:
        """Of rows with residuals (m, k, d): multiples of 2^-17 whose sum is at most 1, (m, k)."""
        squares = np.einsum("mkd,mkd->mk", residuals, residuals)
        return truncated_shares(self.offsets - 0.5 * squares)

    def _shortened(self, residuals: Array) -> Array:
        """Residuals at most R long, shape (m, k, d)."""
        norms = np.sqrt(np.einsum("mkd,mkd->mk", residuals, residuals))
        radius = SAFETY * self.radius
        short: Array = residuals * (radius / np.maximum(norms, radius))[..., None]
        return short

    def _linear(self, short: Array) -> Array:
        """``(u, b v)`` of each row and component, at most B long."""
        squares = short**2 - 1
        if self.shape == "spherical":
            squares = squares.sum(axis=2, keepdims=True) / math.sqrt(self.d)
        norms = np.sqrt(np.einsum("mkd,mkd->mk", squares, squares))
        longest = SAFETY * self._longest_square
        squares *= (longest / np.maximum(norms, longest) * self.square_factor)[..., None]
        return np.concatenate([short, squares], axis=2)

    def total(self, block: Block) -> Ints:
        """Sums of every component, one after the other, in steps."""
        residuals = products(block, self.whiten).reshape(-1, self.k, self.d)
        weights = self.responsibilities(residuals) * block.keep[:, None]
        short = self._shortened(residuals)
        if not self.blocks:
            steps = truncate(self._linear(short), self._grid)
            shares = np.ldexp(weights, R_BITS)
            sums = [shares[:, j] @ steps[:, j] for j in range(self.k)]
            counts = shares.sum(axis=0) * (self.constant / self._grid)
            return exact_sum(np.column_stack([counts, np.array(sums)]))
        ahead = np.full((len(short), 1), self.constant)
        return exact_sum(
            np.array(
                [
                    outer_steps(
                        np.hstack([ahead, short[:, j]]).astype(np.float32),
                        SAFETY * np.sqrt(weights[:, j]),
                        self._grid,
                    )
                    for j in range(self.k)
                ]
            )
        )

    def finish(self, total: Ints, grid: Array) -> Array:
        """One vector; of symmetric blocks the upper triangles, off-diagonals times sqrt(2)."""
        if not self.blocks:
            return np.ravel(total * (self._grid * 2.0**-R_BITS))
        if self.shape == "full":
            return np.concatenate([packed(part) for part in total]) * self._grid**2
        firsts = total[:, 0] * np.r_[1.0, np.full(self.d, math.sqrt(2.0))]
        pooled = packed(total[:, 1:, 1:].sum(axis=0))
        return np.concatenate([firsts.ravel(), pooled]) * self._grid**2

    def rows(self, rows: Array) -> Array:
        """What each of some made-up rows (m, D) contributes, shape (m, size of the answer)."""
        residuals = (rows @ self.whiten.T).reshape(-1, self.k, self.d)
        weights, short = self.responsibilities(residuals), self._shortened(residuals)
        if not self.blocks:
            ahead = np.full((*short.shape[:2], 1), self.constant)
            linear = np.concatenate([ahead, self._linear(short)], axis=2)
            made: Array = (weights[..., None] * linear).reshape(len(rows), -1)
            return made
        i, j = np.triu_indices(self.d)
        pairs = short[..., i] * short[..., j] * np.where(i == j, 1.0, math.sqrt(2.0))
        ones = np.full((*short.shape[:2], 1), self.constant**2)
        firsts = np.concatenate([ones, math.sqrt(2.0) * self.constant * short], axis=2)
        firsts *= weights[..., None]
        if self.shape == "tied":
            pooled = np.einsum("mk,mkp->mp", weights, pairs)
            return np.hstack([firsts.reshape(len(rows), -1), pooled])
        whole = np.concatenate([firsts, weights[..., None] * pairs], axis=2)
        return whole.reshape(len(rows), -1)

    def sensitivity(self, neighbors: Neighbors, max_rows: int) -> float:
        """sqrt(2) (a^2 + R^2), or 2 B, per row under replace-one; under add-remove over sqrt(2)."""
        if self.blocks:
            norm = self.constant**2 + self.radius**2
        else:
            norm = math.sqrt(2.0) * self.constant
        return Contribution.ACUTE.sensitivity(max_rows * norm, neighbors)

    def moments(self, answer: Array) -> tuple[Array, Array, Array]:
        """Noisy counts (k,), sums of u_j (k, d), and of second moments.

        The last are of shape (k, d, d): sums of ``u_j u_j'`` (of all components together divided by
        k, where they are tied); else the count plus the sum of v_j on the diagonal.
        """
        k, d, a = self.k, self.d, self.constant
        if not self.blocks:
            parts = answer.reshape(k, -1)
            counts, sums = parts[:, 0] / a, parts[:, 1 : 1 + d]
            squares = parts[:, 1 + d :] / self.square_factor
            if self.shape == "spherical":
                squares = np.repeat(squares / math.sqrt(d), d, axis=1)
            return counts, sums, (counts[:, None] + squares)[:, :, None] * np.eye(d)
        i, j = np.triu_indices(d)
        size = 1 + d + (0 if self.shape == "tied" else i.size)
        parts = answer[: k * size].reshape(k, size)
        upper = (
            parts[:, 1 + d :] if self.shape == "full" else np.tile(answer[k * size :] / k, (k, 1))
        )
        seconds = np.zeros((k, d, d))
        seconds[:, i, j] = seconds[:, j, i] = upper / np.where(i == j, 1.0, math.sqrt(2.0))
        return parts[:, 0] / a**2, parts[:, 1 : 1 + d] / (math.sqrt(2.0) * a), seconds


# ratio: of a to R. Noise on a sum of u_j is in proportion to (a^2 + R^2) / a, which is least at R,
# and that on products to a^2 + R^2.
_AHEAD = math.sqrt(0.5)
_PART = 0.7  # ratio: of b Q to R, what squares may move an answer to what residuals may
