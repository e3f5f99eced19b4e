"""Queries of linear models: clipped Gram matrices, scores, outer products, residual counts."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from dpstats.errors import PlanError
from dpstats.families import GAUSSIAN, Family
from dpstats.privacy import Neighbors
from dpstats.queries.base import AtMostOne, Contribution, EachRow, Norm, WeighedRow, need_bounds
from dpstats.queries.blocks import (
    V_BITS,
    Z_BITS,
    Array,
    Block,
    Geometry,
    Ints,
    bound_grid,
    dense,
    exact_sum,
    outer_steps,
    predictor,
    residual,
    truncate,
)

__all__ = [
    "Gradient",
    "Gram",
    "ResidualCount",
    "ResidualMoment",
    "Score",
    "ScoreOuter",
]


def packed(matrix: NDArray[Any]) -> Array:
    """Upper triangle with off-diagonals times sqrt(2): an isometry, ||vech(A)|| = ||A||_F."""
    rows, cols = np.triu_indices(matrix.shape[0])
    upper: Array = matrix[rows, cols] * np.where(rows == cols, 1.0, math.sqrt(2.0))
    return upper


def unpacked(upper: Array) -> Array:
    """Inverse of `packed`: a symmetric matrix."""
    d = (math.isqrt(8 * upper.size + 1) - 1) // 2
    rows, cols = np.triu_indices(d)
    matrix = np.zeros((d, d))
    matrix[rows, cols] = upper / np.where(rows == cols, 1.0, math.sqrt(2.0))
    symmetric: Array = matrix + np.triu(matrix, 1).T
    return symmetric


class OuterProducts(ABC):
    """What sums of outer products share, which are taken in squared steps of `_grid`.

    The answer is the upper triangle with off-diagonals times sqrt(2), an isometry of the Frobenius
    norm, so that noise of one scale on it is noise in Frobenius geometry.
    """

    @abstractmethod
    def _grid(self) -> float:
        """Step of the vectors whose products are added."""

    def finish(self, total: Ints, grid: Array) -> Array:
        """Packed upper triangle, off-diagonals times sqrt(2)."""
        return packed(total) * self._grid() ** 2

    def decode(self, answer: Array) -> Array:
        """The symmetric matrix."""
        return unpacked(answer)


def law_of(family: Family) -> dict[str, Any]:
    return {} if family == GAUSSIAN else {"family": str(family)}


@dataclass(frozen=True, eq=False)
class _AtResidual(WeighedRow):
    """What queries at a coefficient vector share: the residual, its clip and the row weight.

    With the residual r = y - x @ beta and the row weight w, ``psi = w clip(r, -clip, clip)``: a
    Mallows weight, which leaves the residuals' own scale alone (Maronna et al. 2019, section 5.11).
    Under a `family`, r is the derivative of a row's log-likelihood in its linear predictor.

    Parameters
    ----------
    geometry : Geometry
        Gives each row its weight w.
    beta : ndarray of shape (d,)
        Public coefficients, in internal coordinates.
    clip : float
        Bound > 0 on the residual.
    family : Family, default gaussian
        Law of the response.
    """

    geometry: Geometry
    beta: Array
    clip: float
    family = GAUSSIAN  # a field of each query, its last one

    def __post_init__(self) -> None:
        need_bounds(clip=self.clip)

    def parameters(self) -> Mapping[str, Any]:
        """The geometry, the coefficients, the clip and the family; all public."""
        beta = [float(b) for b in self.beta]
        shared = {**self.geometry.parameters(), "beta": beta, "clip": self.clip}
        return {**shared, **law_of(self.family)}

    def residual(self, block: Block) -> Array:
        """Residual of each row."""
        return residual(block, self.beta, self.family)

    def psi(self, block: Block) -> Array:
        """Weighted clipped residual; at most ``clip`` in size."""
        clipped: Array = block.weight * np.clip(self.residual(block), -self.clip, self.clip)
        return clipped


@dataclass(frozen=True, eq=False)
class Score(_AtResidual):
    """Sum of ``w (whiten @ x) psi``, one (d,) vector.

    Guarantee: ||w whiten @ x|| <= radius and |psi| <= clip, so a contribution has L2 norm at most
    radius * clip. The factor w psi is truncated towards zero, which cannot lengthen it. The sum is
    taken as whiten @ (sum of x w psi), which is the same vector.
    """

    family: Family = GAUSSIAN
    name: ClassVar[str] = "score"
    norm: ClassVar[Norm] = "l2"

    def total(self, block: Block) -> Ints:
        """Sum of x w psi, in steps of the column grid times the grid of w psi."""
        v = truncate(block.share * block.weight * self.psi(block), bound_grid(self.clip, V_BITS))
        return exact_sum(block.sums(v) / block.grid)

    def finish(self, total: Ints, grid: Array) -> Array:
        """The vector in internal units, whitened."""
        summed: Array = self.geometry.image(total, grid) * bound_grid(self.clip, V_BITS)
        return summed

    def sensitivity(self, neighbors: Neighbors, max_rows: int) -> float:
        """2 radius clip per row under replace-one, radius clip under add-remove."""
        bound = max_rows * self.geometry.radius * self.clip
        return Contribution.SIGNED.sensitivity(bound, neighbors)


@dataclass(frozen=True, eq=False)
class Gradient(EachRow):
    """Sum of per-row gradients ``x r``, each clipped to L2 norm `clip`; r = y - x @ beta.

    Under a `family`, r is the derivative of the log-likelihood in the linear predictor.

    Guarantee: the row factor is r min(1, clip / (||x|| |r|)), and truncation towards zero cannot
    lengthen it. ||x|| is rounded to float32, so a contribution has norm at most clip (1 + 2^-24);
    that part above the sensitivity is within the margin of 2^-16 that mechanisms add to noise.
    """

    beta: Array
    clip: float
    family: Family = GAUSSIAN
    name: ClassVar[str] = "gradient"
    norm: ClassVar[Norm] = "l2"

    def parameters(self) -> Mapping[str, Any]:
        """The coefficients, the clip and the family; all public."""
        beta = [float(b) for b in self.beta]
        return {"beta": beta, "clip": self.clip, **law_of(self.family)}

    def total(self, block: Block) -> Ints:
        """Sum of x v in steps, where |v| <= clip / ||x||."""
        limit = self._limit(block)
        r = block.keep * block.share * residual(block, self.beta, self.family)
        v = truncate(np.clip(r, -limit, limit), self._grid())
        return exact_sum(block.sums(v) / block.grid)

    def finish(self, total: Ints, grid: Array) -> Array:
        """The vector in internal units."""
        summed: Array = total * grid * self._grid()
        return summed

    def sensitivity(self, neighbors: Neighbors, max_rows: int) -> float:
        """2 clip per row under replace-one, clip under add-remove."""
        return Contribution.SIGNED.sensitivity(max_rows * self.clip, neighbors)

    def _grid(self) -> float:
        return bound_grid(self.clip * _SMALLEST_NORM_INVERSE, V_BITS)

    def _limit(self, block: Block) -> Array:
        # A cap on clip/||x|| keeps v on its grid; it only clips rows of tiny norm further.
        norms = Geometry(1.0).norms(block)
        cap: Array = self.clip / np.maximum(norms * (1 + 1e-9), 1 / _SMALLEST_NORM_INVERSE)
        return cap


_SMALLEST_NORM_INVERSE = 8.0  # rows shorter than 1/8 have their residual clipped at 8 clip


@dataclass(frozen=True, eq=False)
class Gram(OuterProducts, WeighedRow):
    """Sum of ``h (w whiten @ x)(w whiten @ x)'``, optionally over rows with |r| < clip only.

    With `beta` and `clip` it is the bread of the clipped score, minus its derivative: rows whose
    residual is clipped do not contribute. Under a `family` other than the gaussian one,
    ``h = min(curvature(x @ beta + offset), cap)`` is the row's Fisher information; otherwise 1.

    Guarantee: weighted rows z have ||z||^2 <= radius^2 cap, truncated towards zero per coordinate
    (without a family, cap is 1; with one, no more than its largest curvature); contributions z z'
    have Frobenius norm at most radius^2 cap and inner products (z'u)^2 >= 0, so replacing one moves
    the sum by at most sqrt(2) radius^2 cap (both bounds are attained). The answer is the upper
    triangle with off-diagonals times sqrt(2), an isometry of the Frobenius norm, so noise of one
    scale on it is noise in Frobenius geometry.
    """

    geometry: Geometry
    beta: Array | None = None
    clip: float | None = None
    family: Family = GAUSSIAN
    cap: float = 1.0
    name: ClassVar[str] = "gram"
    norm: ClassVar[Norm] = "l2"

    def __post_init__(self) -> None:
        need_bounds(cap=self.cap)
        if self.beta is None and self.family != GAUSSIAN:
            raise PlanError(f"The curvature of {self.family} rows needs coefficients, beta.")

    def parameters(self) -> Mapping[str, Any]:
        """The geometry; with coefficients also these, the clip, the family and the cap."""
        if self.beta is None:
            return self.geometry.parameters()
        beta = [float(b) for b in self.beta]
        cap = {} if self.family == GAUSSIAN else {**law_of(self.family), "cap": self._cap}
        return {**self.geometry.parameters(), "beta": beta, "clip": self.clip, **cap}

    def total(self, block: Block) -> Ints:
        """Z'Z in squared steps of the row grid."""
        rows = dense(self.geometry.rows(block))
        return exact_sum(outer_steps(rows, self._weight(block), self._grid()))

    def sensitivity(self, neighbors: Neighbors, max_rows: int) -> float:
        """sqrt(2) radius^2 cap per row under replace-one, radius^2 cap under add-remove."""
        bound = max_rows * self.geometry.radius**2 * self._cap
        return Contribution.ACUTE.sensitivity(bound, neighbors)

    @property
    def _cap(self) -> float:
        return 1.0 if self.family == GAUSSIAN else min(self.cap, self.family.largest_curvature)

    def _weight(self, block: Block) -> Array:
        """``w sqrt(h)`` of each share of a row; zero where its residual is clipped."""
        weight = block.share * block.weight
        if self.beta is None:
            return weight
        eta = predictor(block, self.beta)
        if self.clip is not None:
            weight = weight * (np.abs(self.family.residual(block.y, eta)) < self.clip)
        if self.family != GAUSSIAN:
            weight = weight * np.sqrt(np.minimum(self.family.curvature(eta), self._cap))
        return weight

    def _grid(self) -> float:
        return bound_grid(self.geometry.radius * math.sqrt(self._cap), Z_BITS)


@dataclass(frozen=True, eq=False)
class ScoreOuter(OuterProducts, _AtResidual):
    """Sum over units of ``s s'`` with s the unit's sum of ``w (whiten @ x) psi``: the meat.

    Where a unit has one row this is the heteroskedasticity-robust meat, otherwise the
    cluster-robust one.

    Guarantee: s has norm at most max_rows radius clip, and outer products make no obtuse angle.
    """

    max_rows: int = 1
    family: Family = GAUSSIAN
    name: ClassVar[str] = "score outer product"
    norm: ClassVar[Norm] = "l2"

    def total(self, block: Block) -> Ints:
        """S'S in squared steps."""
        rows = dense(self.geometry.rows(block))
        factor = block.share * block.weight * self.psi(block)
        return exact_sum(outer_steps(rows, factor, self._grid(), block.starts))

    def sensitivity(self, neighbors: Neighbors, max_rows: int) -> float:
        """sqrt(2) (max_rows radius clip)^2 under replace-one."""
        if max_rows != self.max_rows:
            raise PlanError(f"max_rows={self.max_rows} was planned for a unit of {max_rows} rows.")
        return Contribution.ACUTE.sensitivity(self._bound() ** 2, neighbors)

    def _bound(self) -> float:
        return self.max_rows * self.geometry.radius * self.clip

    def _grid(self) -> float:
        return bound_grid(self._bound(), Z_BITS)


@dataclass(frozen=True, eq=False)
class ResidualCount(AtMostOne, _AtResidual):
    """Number of contributing rows whose residual is at most `clip` in size."""

    family: Family = GAUSSIAN
    name: ClassVar[str] = "residual count"
    norm: ClassVar[Norm] = "l1"

    def total(self, block: Block) -> Ints:
        """One count."""
        inside = block.keep * (np.abs(self.residual(block)) <= self.clip)
        return exact_sum(np.array([inside.sum()]))


@dataclass(frozen=True, eq=False)
class ResidualMoment(_AtResidual):
    """Sum of ``psi^2`` over rows; a number in [0, clip^2] per row."""

    family: Family = GAUSSIAN
    name: ClassVar[str] = "residual second moment"
    norm: ClassVar[Norm] = "l1"

    def total(self, block: Block) -> Ints:
        """The sum in squared steps."""
        steps = truncate(self.psi(block), bound_grid(self.clip, V_BITS))
        return exact_sum(np.array([steps @ steps]))

    def finish(self, total: Ints, grid: Array) -> Array:
        """The sum in squared internal units."""
        summed: Array = total * np.float64(bound_grid(self.clip, V_BITS) ** 2)
        return summed

    def sensitivity(self, neighbors: Neighbors, max_rows: int) -> float:
        """clip^2 per row."""
        return Contribution.INTERVAL.sensitivity(max_rows * self.clip**2, neighbors)
