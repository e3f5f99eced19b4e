"""Queries about the norm of each row's score: its histogram, clips of it, curvature and meat.

The score of a row is ``s = z r``, z being ``whiten @ x`` and r the derivative of the row's
log-likelihood in its linear predictor at public coefficients. One number is clipped in each row,
the length of s, so that a row whose score is no longer than the clip counts in full.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np

from dpstats.errors import PlanError
from dpstats.families import GAUSSIAN, Family
from dpstats.families.bounded import BoundedFamily
from dpstats.privacy import Neighbors
from dpstats.queries.base import (
    AtMostOne,
    Contribution,
    EachRow,
    InOneCell,
    Norm,
    need_bounds,
)
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
from dpstats.queries.linear import OuterProducts, law_of
from dpstats.queries.scalar import increasing

__all__ = [
    "NormCount",
    "NormHistogram",
    "ScoreCurvature",
    "ScoreSlope",
    "ScoreSquares",
    "WhitenedScore",
]

SHORTEST = 1 / 8  # whitened rows count as at least this long: their residuals stay on a grid


@dataclass(frozen=True, eq=False)
class AtScores(EachRow):
    """What queries of scores share: public coordinates and coefficients, and lengths of rows.

    Parameters
    ----------
    whiten : ndarray of shape (k, d)
        Public matrix; z is ``whiten @ x``.
    beta : ndarray of shape (d,), or of shape (d, q) for q levels
        Public coefficients, in internal coordinates.
    """

    whiten: Array
    beta: Array
    norm: ClassVar[Norm] = "l2"

    def __post_init__(self) -> None:
        """Refuse parameters for which the guarantee does not hold."""

    def parameters(self) -> Mapping[str, Any]:
        """Whether rows are whitened, and the coefficients (of each level); all public."""
        return {"whitened": True, "beta": self.beta.T.tolist()}

    @cached_property
    def _coordinates(self) -> Geometry:
        return Geometry(1.0, self.whiten)

    def _norms(self, block: Block) -> Array:
        """Upper bounds of ``||z||``, off by a few roundings to float32."""
        return self._coordinates.norms(block) / SAFETY

    def _counted(self, block: Block) -> Array:
        """Likewise of the share of z that counts, where rows have weights."""
        return self._coordinates.lengths(block) / SAFETY


class ShortenedSum(AtScores):
    """A sum of scores, each shortened to the length `clip`, less those shortened to `inner`.

    Guarantee: a contribution points along the score s and is ``min(||s||, clip) - min(||s||,
    inner)`` long, at most clip - inner: two differ by at most twice that.
    """

    clip: float
    inner: float

    def __post_init__(self) -> None:
        super().__post_init__()
        need_bounds(clip=self.clip)
        if not 0 <= self.inner <= self.clip / 2:
            raise PlanError(f"inner={self.inner!r}: a bound from 0 to clip / 2 is needed.")

    def parameters(self) -> Mapping[str, Any]:
        """Those of the score, and both bounds."""
        return {**super().parameters(), "clip": self.clip, "inner": self.inner}

    def sensitivity(self, neighbors: Neighbors, max_rows: int) -> float:
        """2 (clip - inner) per row under replace-one, clip - inner under add-remove."""
        return Contribution.SIGNED.sensitivity(max_rows * (self.clip - self.inner), neighbors)

    def _grid(self) -> float:
        return bound_grid((self.clip - self.inner) / SHORTEST, V_BITS)


class Squares(OuterProducts, AtScores):
    """A sum over units of ``t t'``, t the sum of a unit's scores shortened to `clip`: the meat.

    Guarantee: t is at most max_rows clip long, and outer products make no obtuse angle.
    """

    clip: float
    max_rows: int

    def __post_init__(self) -> None:
        super().__post_init__()
        need_bounds(clip=self.clip)
        if self.max_rows < 1:
            raise PlanError(f"max_rows={self.max_rows!r}: at least 1 is needed.")

    def parameters(self) -> Mapping[str, Any]:
        """Those of the score, and the bound."""
        return {**super().parameters(), "clip": self.clip}

    def sensitivity(self, neighbors: Neighbors, max_rows: int) -> float:
        """sqrt(2) (max_rows clip)^2 under replace-one, (max_rows clip)^2 under add-remove."""
        if max_rows != self.max_rows:
            raise PlanError(f"max_rows={self.max_rows} was planned for a unit of {max_rows} rows.")
        return Contribution.ACUTE.sensitivity((max_rows * self.clip) ** 2, neighbors)

    def _grid(self) -> float:
        return bound_grid(self.max_rows * self.clip, Z_BITS)


class Curvature(OuterProducts, AtScores):
    """A sum of information over rows with ``||s|| <= clip``, each of root at most `radius`.

    It is the bread of the clipped score, minus its derivative: where a score is shortened to the
    clip it no longer changes with the linear predictor.

    Guarantee: contributions have Frobenius norm at most radius^2 and make no obtuse angle.
    """

    clip: float
    radius: float

    def __post_init__(self) -> None:
        super().__post_init__()
        need_bounds(clip=self.clip, radius=self.radius)

    def parameters(self) -> Mapping[str, Any]:
        """Those of the score, the bound on it, and the radius."""
        return {**super().parameters(), "clip": self.clip, "radius": self.radius}

    def sensitivity(self, neighbors: Neighbors, max_rows: int) -> float:
        """sqrt(2) radius^2 per row under replace-one, radius^2 under add-remove."""
        return Contribution.ACUTE.sensitivity(max_rows * self.radius**2, neighbors)

    def _grid(self) -> float:
        return bound_grid(self.radius, Z_BITS)


class Lengths(InOneCell, AtScores):
    """Rows by a length, in the cells between public `edges`."""

    edges: Array

    def __post_init__(self) -> None:
        super().__post_init__()
        increasing(self.edges, "edges of the cells")

    def parameters(self) -> Mapping[str, Any]:
        """Those of the score, and the range of the edges."""
        ends = {"first edge": float(self.edges[0]), "last edge": float(self.edges[-1])}
        return {**super().parameters(), **ends}


class LongScores(AtMostOne, AtScores):
    """The number of rows whose score is longer than `bound`: a row counts once or not at all."""

    bound: float

    def __post_init__(self) -> None:
        super().__post_init__()
        need_bounds(bound=self.bound)

    def parameters(self) -> Mapping[str, Any]:
        """Those of the score, and the bound."""
        return {**super().parameters(), "bound": self.bound}


@dataclass(frozen=True, eq=False)
class _AtScore(AtScores):
    """A score ``s = z r`` at one coefficient vector; r is the residual under a family."""

    family = GAUSSIAN  # a field of each query, its last one

    def parameters(self) -> Mapping[str, Any]:
        """Those of the score, and the family."""
        return {**super().parameters(), **law_of(self.family)}

    def _residual(self, block: Block) -> Array:
        return residual(block, self.beta, self.family)

    def _lengths(self, block: Block) -> Array:
        """``||s||`` of each row."""
        lengths: Array = self._counted(block) * np.abs(self._residual(block))
        return lengths

    def _clipped(self, block: Block, clip: float, each: bool = False) -> Array:
        """The residual as far as ``||s|| <= clip``; with `each`, s over the root of its weight."""
        limit = clip / np.maximum(self._norms(block), SHORTEST)
        left = self._residual(block) * (1 / block.stretch if each else block.share)
        if isinstance(self.family, BoundedFamily):
            left = left - self.family.centre(predictor(block, self.beta), limit)
        clipped: Array = block.keep * np.clip(left, -limit, limit)
        return clipped


@dataclass(frozen=True, eq=False)
class WhitenedScore(ShortenedSum, _AtScore):
    """Sum of scores, each shortened to the length `clip`, less those shortened to `inner`.

    Guarantee: as `ShortenedSum`, which opposite long scores attain. Rows shorter than 1/8 count as
    that long, which only shortens what they contribute; truncation towards zero cannot lengthen it,
    nor can rounding to whole steps within the bound.
    The sum is taken as whiten @ (sum of x times a number).

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
        super().__post_init__()
        if self.inner > 0 and isinstance(self.family, BoundedFamily):
            raise PlanError("The centre of a bounded score depends on its clip: ask for all of it.")

    def total(self, block: Block) -> Ints:
        """Sum of x times the residual that is left, in steps of both grids."""
        left = self._clipped(block, self.clip)
        if self.inner > 0:
            left = left - self._clipped(block, self.inner)
        steps = truncate(left, self._grid()) if block.root is None else self._nearest(left, block)
        return exact_sum(block.sums(steps) / block.grid)

    def _nearest(self, left: Array, block: Block) -> Array:
        """What is left of weighted rows in the nearest whole steps within the bound.

        Of a light row it is a few hundred steps: half a step off each, towards zero, would pull at
        the constant where one answer is rare.
        """
        most = (self.clip - self.inner) / np.maximum(self._norms(block), SHORTEST)
        limit = np.floor(most * (1.0 / self._grid()))
        steps: Array = np.clip(np.rint(left * (1.0 / self._grid())), -limit, limit)
        return steps

    def finish(self, total: Ints, grid: Array) -> Array:
        """The vector in internal units, whitened."""
        summed: Array = self._coordinates.image(total, grid) * self._grid()
        return summed


@dataclass(frozen=True, eq=False)
class ScoreSquares(Squares, _AtScore):
    """Sum over units of ``t t'``, t the sum of a unit's scores shortened to `clip`: the meat.

    Where a unit has one row this is the heteroskedasticity-robust meat, otherwise the
    cluster-robust one.

    With `each`, t is the score over the root of the row's weight w: a row that stands for w others
    then adds w times the square of the score of one.

    Guarantee: as `Squares`.
    """

    clip: float
    max_rows: int = 1
    family: Family = GAUSSIAN
    each: bool = False
    name: ClassVar[str] = "squares of scores"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.each and self.max_rows > 1:
            raise PlanError("Rows that stand for others are units of their own.")

    def total(self, block: Block) -> Ints:
        """Sum of t t' in squared steps."""
        rows = dense(self._coordinates.rows(block))
        left = self._clipped(block, self.clip, self.each)
        return exact_sum(outer_steps(rows, left, self._grid(), block.starts))


@dataclass(frozen=True, eq=False)
class ScoreCurvature(Curvature, _AtScore):
    """Sum of ``h z z'`` over rows with ``||s|| <= clip``; h is the row's information.

    h is the observed information, `Family.information`, which for a canonical link is Fisher's: the
    derivative of the clipped score. Rows ``sqrt(h) z`` longer than `radius` are shortened to it.

    Guarantee: contributions have Frobenius norm at most radius^2 and make no obtuse angle, so that
    replacing one moves the sum by at most sqrt(2) radius^2.

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

    def total(self, block: Block) -> Ints:
        """Sum in squared steps."""
        rows = dense(self._coordinates.rows(block))
        return exact_sum(outer_steps(rows, self._weight(block), self._grid()))

    def _weight(self, block: Block) -> Array:
        """What a row z is multiplied by: the root of its information, as far as it may be long."""
        eta = predictor(block, self.beta)
        root = np.sqrt(self.family.information(block.y, eta))
        longest = np.maximum(self._norms(block), SHORTEST)
        if isinstance(self.family, BoundedFamily):
            inside = block.keep * np.sqrt(self.family.kept(block.y, eta, self.clip / longest))
        else:
            inside = block.keep * (self._lengths(block) <= self.clip)
        weight: Array = inside * np.minimum(root * block.share, self.radius / longest)
        return weight


@dataclass(frozen=True, eq=False)
class ScoreSlope(ScoreCurvature):
    """The trace of `ScoreCurvature`: sum of ``h ||z||^2`` over rows with ``||s|| <= clip``.

    Where noise hides the curvature in each direction, its mean over them takes far less to see.

    Guarantee: a contribution is a number between 0 and radius^2.
    """

    name: ClassVar[str] = "slope of the score"

    def total(self, block: Block) -> Ints:
        """The sum in squared steps."""
        lengths = np.minimum(self._weight(block) * self._norms(block), self.radius)
        steps = truncate(lengths, bound_grid(self.radius, V_BITS))
        return exact_sum(np.array([steps @ steps]))

    def finish(self, total: Ints, grid: Array) -> Array:
        """One number."""
        summed: Array = total * np.float64(bound_grid(self.radius, V_BITS) ** 2)
        return summed

    def decode(self, answer: Array) -> Array:
        """Read as it is."""
        return answer

    def sensitivity(self, neighbors: Neighbors, max_rows: int) -> float:
        """radius^2 per row."""
        return Contribution.INTERVAL.sensitivity(max_rows * self.radius**2, neighbors)


@dataclass(frozen=True, eq=False)
class NormHistogram(Lengths, _AtScore):
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

    def parameters(self) -> Mapping[str, Any]:
        """Those of the cells, and whether lengths are of scores."""
        return {**super().parameters(), "of scores": self.scored}

    def total(self, block: Block) -> Ints:
        """The counts."""
        lengths = self._lengths(block) if self.scored else self._counted(block)
        return cell_counts(lengths, self.edges, block.keep, block.fast)


@dataclass(frozen=True, eq=False)
class NormCount(LongScores, _AtScore):
    """Number of rows whose z, or whose score, is longer than `bound`.

    Guarantee: a row counts once or not at all.

    Parameters
    ----------
    bound : float
        Length > 0.
    scored : bool, default True
        Whether the length is that of the score.
    """

    bound: float
    scored: bool = True
    family: Family = GAUSSIAN
    name: ClassVar[str] = "count of long scores"

    def parameters(self) -> Mapping[str, Any]:
        """Those of the score and the bound, and whether lengths are of scores."""
        return {**super().parameters(), "of scores": self.scored}

    def total(self, block: Block) -> Ints:
        """One count."""
        lengths = self._lengths(block) if self.scored else self._counted(block)
        beyond = block.keep * (lengths > self.bound)
        return exact_sum(np.array([beyond.sum()]))
