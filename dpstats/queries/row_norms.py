"""Queries about the norm of each row's score: its histogram, clips of it, curvature and meat.

The score of a row is ``s = z r``, z being ``whiten @ x`` and r the derivative of the row's
log-likelihood in its linear predictor at public coefficients. One number is clipped in each row,
the length of s, so that a row whose score is no longer than the clip counts in full.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np

from dpstats.errors import PlanError
from dpstats.families import GAUSSIAN, Family
from dpstats.privacy import Neighbors
from dpstats.queries.base import Contribution, EachRow, Norm
from dpstats.queries.binned import cell_counts
from dpstats.queries.blocks import (
    SAFETY,
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
from dpstats.queries.linear import law_of, packed, unpacked
from dpstats.queries.scalar import increasing

__all__ = ["NormCount", "NormHistogram", "ScoreCurvature", "ScoreSquares", "WhitenedScore"]

_SHORTEST = 1 / 8  # whitened rows count as at least this long: their residuals stay on a grid


@dataclass(frozen=True, eq=False)
class _AtScore(EachRow):
    """What these queries share: public coordinates and coefficients, norms and residuals.

    Parameters
    ----------
    whiten : ndarray of shape (k, d)
        Public matrix; z is ``whiten @ x``.
    beta : ndarray of shape (d,)
        Public coefficients, in internal coordinates.
    """

    whiten: Array
    beta: Array
    family = GAUSSIAN  # a field of each query, its last one
    norm: ClassVar[Norm] = "l2"
    geometry: ClassVar[Geometry | None] = None

    def parameters(self) -> Mapping[str, Any]:
        """Whether rows are whitened, the coefficients and the family; all public."""
        return {
            "whitened": True,
            "beta": [float(b) for b in self.beta],
            **law_of(self.family),
        }

    @cached_property
    def _coordinates(self) -> Geometry:
        return Geometry(1.0, self.whiten)

    def _norms(self, block: Block) -> Array:
        """Upper bounds of ``||z||``, off by a few roundings to float32."""
        return self._coordinates.norms(block) / SAFETY

    def _residual(self, block: Block) -> Array:
        return residual(block, self.beta, self.family)

    def _lengths(self, block: Block) -> Array:
        """``||s||`` of each row."""
        lengths: Array = self._norms(block) * np.abs(self._residual(block))
        return lengths

    def _clipped(self, block: Block, clip: float, each: bool = False) -> Array:
        """The residual as far as ``||s|| <= clip``; with `each`, s over the root of its weight."""
        limit = clip / np.maximum(self._norms(block), _SHORTEST)
        left = self._residual(block)
        if each and block.root is not None:
            left = left / np.where(block.root > 0, block.root, 1.0)
        clipped: Array = block.keep * np.clip(left, -limit, limit)
        return clipped


def _need_clip(clip: float, what: str = "clip") -> None:
    if not (math.isfinite(clip) and clip > 0):
        raise PlanError(f"{what}={clip!r}: a finite bound > 0 is needed.")


@dataclass(frozen=True, eq=False)
class WhitenedScore(_AtScore):
    """Sum of scores, each shortened to the length `clip`, less those shortened to `inner`.

    Guarantee: a contribution points along s and is ``min(||s||, clip) - min(||s||, inner)`` long,
    at most clip - inner: two differ by at most twice that, which opposite long scores attain. Rows
    shorter than 1/8 count as that long, which only shortens what they contribute; truncation
    towards zero cannot lengthen it. The sum is taken as whiten @ (sum of x times a number).

    Parameters
    ----------
    clip : float
        Bound > 0 on the length.
    inner : float, default 0
        A bound of at most clip / 2, what is within which is left out.
    """

    clip: float
    inner: float = 0.0
    family: Family = GAUSSIAN
    name: ClassVar[str] = "whitened score"

    def __post_init__(self) -> None:
        _need_clip(self.clip)
        if not 0 <= self.inner <= self.clip / 2:
            raise PlanError(f"inner={self.inner!r}: a bound from 0 to clip / 2 is needed.")

    def parameters(self) -> Mapping[str, Any]:
        """Those of the score, and both bounds."""
        return {**super().parameters(), "clip": self.clip, "inner": self.inner}

    def total(self, block: Block) -> Ints:
        """Sum of x times the residual that is left, in steps of both grids."""
        left = self._clipped(block, self.clip)
        if self.inner > 0:
            left = left - self._clipped(block, self.inner)
        return exact_sum(block.sums(truncate(left, self._grid())) / block.grid)

    def finish(self, total: Ints, grid: Array) -> Array:
        """The vector in internal units, whitened."""
        summed: Array = self._coordinates.image(total, grid) * self._grid()
        return summed

    def sensitivity(self, neighbors: Neighbors, max_rows: int) -> float:
        """2 (clip - inner) per row under replace-one, clip - inner under add-remove."""
        return Contribution.SIGNED.sensitivity(max_rows * (self.clip - self.inner), neighbors)

    def _grid(self) -> float:
        return bound_grid((self.clip - self.inner) / _SHORTEST, V_BITS)


@dataclass(frozen=True, eq=False)
class ScoreSquares(_AtScore):
    """Sum over units of ``t t'``, t the sum of a unit's scores shortened to `clip`: the meat.

    Where a unit has one row this is the heteroskedasticity-robust meat, otherwise the
    cluster-robust one.

    With `each`, t is the score over the root of the row's weight w: a row that stands for w others
    then adds w times the square of the score of one.

    Guarantee: t is at most max_rows clip long, and outer products make no obtuse angle. The answer
    is the upper triangle with off-diagonals times sqrt(2), an isometry of the Frobenius norm.
    """

    clip: float
    max_rows: int = 1
    family: Family = GAUSSIAN
    each: bool = False
    name: ClassVar[str] = "squares of scores"

    def __post_init__(self) -> None:
        _need_clip(self.clip)
        if self.each and self.max_rows > 1:
            raise PlanError("Rows that stand for others are units of their own.")
        if self.max_rows < 1:
            raise PlanError(f"max_rows={self.max_rows!r}: at least 1 is needed.")

    def parameters(self) -> Mapping[str, Any]:
        """Those of the score, and the bound."""
        return {**super().parameters(), "clip": self.clip}

    def total(self, block: Block) -> Ints:
        """Sum of t t' in squared steps."""
        rows = dense(self._coordinates.rows(block))
        left = self._clipped(block, self.clip, self.each)
        return exact_sum(outer_steps(rows, left, self._grid(), block.starts))

    def finish(self, total: Ints, grid: Array) -> Array:
        """Packed upper triangle, off-diagonals times sqrt(2)."""
        return packed(total) * self._grid() ** 2

    def sensitivity(self, neighbors: Neighbors, max_rows: int) -> float:
        """sqrt(2) (max_rows clip)^2 under replace-one, (max_rows clip)^2 under add-remove."""
        if max_rows != self.max_rows:
            raise PlanError(f"max_rows={self.max_rows} was planned for a unit of {max_rows} rows.")
        return Contribution.ACUTE.sensitivity((max_rows * self.clip) ** 2, neighbors)

    def decode(self, answer: Array) -> Array:
        """The symmetric (k, k) matrix."""
        return unpacked(answer)

    def _grid(self) -> float:
        return bound_grid(self.max_rows * self.clip, Z_BITS)


@dataclass(frozen=True, eq=False)
class ScoreCurvature(_AtScore):
    """Sum of ``h z z'`` over rows with ``||s|| <= clip``; h is the row's information.

    It is the bread of the clipped score, minus its derivative: where a score is shortened to the
    clip it no longer changes with the linear predictor. Hence h is the observed information,
    `Family.information`, which for a canonical link is Fisher's. Rows ``sqrt(h) z`` longer than
    `radius` are shortened to it.

    Guarantee: contributions have Frobenius norm at most radius^2 and make no obtuse angle, so that
    replacing one moves the sum by at most sqrt(2) radius^2. The answer is the upper triangle with
    off-diagonals times sqrt(2), an isometry of that norm.

    Parameters
    ----------
    clip : float
        Bound > 0 on the length of the score.
    radius : float
        Bound > 0 on the length of ``sqrt(h) z``.
    """

    clip: float
    radius: float
    family: Family = GAUSSIAN
    name: ClassVar[str] = "curvature of the score"

    def __post_init__(self) -> None:
        _need_clip(self.clip)
        _need_clip(self.radius, "radius")

    def parameters(self) -> Mapping[str, Any]:
        """Those of the score, the bound on it, and the radius."""
        return {**super().parameters(), "clip": self.clip, "radius": self.radius}

    def total(self, block: Block) -> Ints:
        """Sum in squared steps."""
        rows = dense(self._coordinates.rows(block))
        root = np.sqrt(self.family.information(block.y, predictor(block, self.beta)))
        longest = np.maximum(self._norms(block), _SHORTEST)
        inside = block.keep * (self._lengths(block) <= self.clip)
        weight = inside * np.minimum(root, self.radius / longest)
        return exact_sum(outer_steps(rows, weight, self._grid()))

    def finish(self, total: Ints, grid: Array) -> Array:
        """Packed upper triangle, off-diagonals times sqrt(2)."""
        return packed(total) * self._grid() ** 2

    def sensitivity(self, neighbors: Neighbors, max_rows: int) -> float:
        """sqrt(2) radius^2 per row under replace-one, radius^2 under add-remove."""
        return Contribution.ACUTE.sensitivity(max_rows * self.radius**2, neighbors)

    def decode(self, answer: Array) -> Array:
        """The symmetric (k, k) matrix."""
        return unpacked(answer)

    def _grid(self) -> float:
        return bound_grid(self.radius, Z_BITS)


@dataclass(frozen=True, eq=False)
class NormHistogram(_AtScore):
    """Rows by the length of z, or of their score, in the cells between public `edges`.

    Guarantee: a row is in one cell. Replacing it moves two counts by one: L2 sensitivity sqrt(2).

    Parameters
    ----------
    edges : ndarray of shape (m,)
        Increasing; there are m + 1 cells.
    scored : bool, default True
        Whether the length is that of the score.
    """

    edges: Array
    scored: bool = True
    family: Family = GAUSSIAN
    name: ClassVar[str] = "histogram of lengths"

    def __post_init__(self) -> None:
        increasing(self.edges, "edges of the cells")

    def parameters(self) -> Mapping[str, Any]:
        """Those of the score, and the range of the edges."""
        ends = {"first edge": float(self.edges[0]), "last edge": float(self.edges[-1])}
        return {**super().parameters(), "of scores": self.scored, **ends}

    def total(self, block: Block) -> Ints:
        """The counts."""
        lengths = self._lengths(block) if self.scored else self._norms(block)
        return cell_counts(lengths, self.edges, block.keep, block.fast)

    def sensitivity(self, neighbors: Neighbors, max_rows: int) -> float:
        """sqrt(2) per row under replace-one, 1 under add-remove."""
        return Contribution.ACUTE.sensitivity(float(max_rows), neighbors)


@dataclass(frozen=True, eq=False)
class NormCount(_AtScore):
    """Number of rows whose score is longer than `bound`.

    Guarantee: a row counts once or not at all.
    """

    bound: float
    family: Family = GAUSSIAN
    name: ClassVar[str] = "count of long scores"

    def __post_init__(self) -> None:
        _need_clip(self.bound, "bound")

    def parameters(self) -> Mapping[str, Any]:
        """Those of the score, and the bound."""
        return {**super().parameters(), "bound": self.bound}

    def total(self, block: Block) -> Ints:
        """One count."""
        beyond = block.keep * (self._lengths(block) > self.bound)
        return exact_sum(np.array([beyond.sum()]))

    def sensitivity(self, neighbors: Neighbors, max_rows: int) -> float:
        """One per row."""
        return Contribution.INTERVAL.sensitivity(float(max_rows), neighbors)
