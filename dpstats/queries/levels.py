"""Queries about a response of several levels: the score of a multinomial logit, row by row.

Levels are 0 to q, the first of which is the base. With coefficients of shape (d, q) the level y has
the probability pi_y, proportional to ``exp(x' beta_y)``, the base to 1. The score of a row is the
matrix ``(A u) z'``, written row after row as one vector of length q k: u is ``e_y - pi`` without
the base, z is ``whiten @ x``, and A is a public matrix, such as the inverse root of the covariance
of u. Its length is ``||A u|| ||z||``, one number, which is what is clipped.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from dpstats.errors import PlanError
from dpstats.privacy import Neighbors
from dpstats.queries.base import Contribution
from dpstats.queries.binned import cell_counts
from dpstats.queries.blocks import (
    SAFETY,
    Array,
    Block,
    Floats,
    Ints,
    dense,
    exact_sum,
    outer_steps,
    predictor,
    truncate,
)
from dpstats.queries.linear import unpacked
from dpstats.queries.row_norms import (
    SHORTEST,
    AtScores,
    Curvature,
    Lengths,
    LongScores,
    ShortenedSum,
    Squares,
)

__all__ = ["LevelCount", "LevelCurvature", "LevelLengths", "LevelScore", "LevelSquares"]

_LARGEST = 30.0  # numerical: linear predictors beyond it are taken to be at it
_WIDEST = 2.0**60  # numerical: of the matrix of levels, whose fourth powers are numbers
_LEAST = 1e-300  # numerical: lengths that are divided by


@dataclass(frozen=True, eq=False)
class _AtLevels(AtScores):
    """Scores at the coefficients of each level but the first, under the matrix A.

    Parameters
    ----------
    root : ndarray of shape (q, q)
        Public matrix A.
    """

    root: Array

    def __post_init__(self) -> None:
        q = self.beta.shape[-1] if self.beta.ndim == 2 else 0
        fits = self.whiten.ndim == 2 and self.whiten.shape[1] == len(self.beta)
        if not (fits and q and self.root.shape == (q, q)):
            raise PlanError("Coefficients of each level but the first, and a square matrix of them")
        if not (np.isfinite(self.beta).all() and np.abs(self.root).sum() <= _WIDEST):
            raise PlanError("Coefficients are finite, and the matrix of levels is up to 2^60.")

    @property
    def _q(self) -> int:
        return int(self.beta.shape[1])

    def _probabilities(self, block: Block) -> Array:
        """Of all levels, the base first, of shape (q + 1, m).

        Elementwise and in one order, so that a row has the same bits in every block.
        """
        etas = [np.zeros(len(block.keep))]
        for beta in self.beta.T:
            eta = predictor(block, np.ascontiguousarray(beta))
            etas.append(np.clip(eta, -_LARGEST, _LARGEST))
        highest = etas[0]
        for eta in etas:
            highest = np.maximum(highest, eta)
        odds = [np.exp(eta - highest) for eta in etas]
        total = odds[0].copy()
        for part in odds[1:]:
            total += part
        return np.stack([part / total for part in odds])

    def _directions(self, chances: Array) -> Iterator[Array]:
        """``A (e_y - pi)``, of shape (q, m), of each level y in turn."""
        middle = self._turned(chances[1:])
        for y in range(self._q + 1):
            yield (self.root[:, y - 1, None] if y else 0.0) - middle

    def _turned(self, u: Array) -> Array:
        """``A u`` of each column of u (q, m), term by term."""
        made = np.zeros_like(u)
        for j in range(self._q):
            made += self.root[:, j, None] * u[j]
        return made

    def _residuals(self, block: Block) -> Array:
        """``A u`` of each row, of shape (q, m)."""
        level = np.rint(block.y)
        chances = self._probabilities(block)[1:]
        seen = np.stack([(level == y + 1).astype(np.float64) for y in range(self._q)])
        return self._turned(seen - chances)

    def _lengths(self, block: Block, residuals: Array) -> Array:
        """``||A u|| ||z||`` of each row."""
        lengths: Array = self._norms(block) * _sizes(residuals)
        return lengths

    def _clipped(self, block: Block, clip: float) -> Array:
        """``A u`` of each row, shortened as far as ``||A u|| ||z|| <= clip``; shape (q, m)."""
        residuals = self._residuals(block)
        longest = np.maximum(self._norms(block), SHORTEST) * _sizes(residuals)
        kept: Array = residuals * (block.keep * np.minimum(1.0, clip / np.maximum(longest, _LEAST)))
        return kept


def _sizes(columns: Array) -> Array:
    """Length of each column of (q, m), summed in one order."""
    total = columns[0] ** 2
    for row in columns[1:]:
        total = total + row**2
    return np.asarray(np.sqrt(total), dtype=np.float64)


def _products(columns: Array, rows: Floats) -> Floats:
    """The vectors ``a z'``, row after row, of columns a (q, m) and rows z (m, k): (m, q k)."""
    made: Floats = (columns.T.astype(np.float32)[:, :, None] * rows[:, None, :]).reshape(
        len(rows), -1
    )
    return made


@dataclass(frozen=True, eq=False)
class LevelScore(ShortenedSum, _AtLevels):
    """Sum of scores, each shortened to the length `clip`, less those shortened to `inner`.

    Guarantee: as `ShortenedSum`, however many levels there are; opposite rows z of one level attain
    it. Rows shorter than 1/8 count as that long, which only shortens what they contribute;
    truncation towards zero cannot lengthen it. The sum is taken as whiten @ (sum of x times a
    number), of each of the q numbers.

    Parameters
    ----------
    clip : float
        Bound > 0 on the length.
    inner : float, default 0
        A bound of at most clip / 2, what is within which is left out.
    """

    clip: float
    inner: float = 0.0
    name: ClassVar[str] = "whitened score of levels"

    def total(self, block: Block) -> Ints:
        """Sums of x times each number that is left, in steps of both grids."""
        left = self._clipped(block, self.clip)
        if self.inner > 0:
            left = left - self._clipped(block, self.inner)
        steps = [block.sums(truncate(part, self._grid())) / block.grid for part in left]
        return exact_sum(np.concatenate(steps))

    def finish(self, total: Ints, grid: Array) -> Array:
        """The vectors in internal units, whitened, one after another."""
        parts = total.reshape(self._q, -1)
        return np.concatenate([self._coordinates.image(p, grid) * self._grid() for p in parts])


@dataclass(frozen=True, eq=False)
class LevelSquares(Squares, _AtLevels):
    """Sum over units of ``t t'``, t the sum of a unit's scores shortened to `clip`: the meat.

    Guarantee: as `Squares`.
    """

    clip: float
    max_rows: int = 1
    name: ClassVar[str] = "squares of scores of levels"

    def total(self, block: Block) -> Ints:
        """Sum of t t' in squared steps."""
        left = self._clipped(block, SAFETY * self.clip)
        rows = _products(left, dense(self._coordinates.rows(block)))
        return exact_sum(outer_steps(rows, np.ones(len(rows)), self._grid(), block.starts))


@dataclass(frozen=True, eq=False)
class LevelCurvature(Curvature, _AtLevels):
    """Sum of ``(A S A') x (z z')``, x the Kronecker product, over rows with ``||s|| <= clip``.

    S is the covariance of u at the row's probabilities, ``diag(pi) - pi pi'`` without the base.
    Rows with ``||A S A'||_F ||z||^2`` above radius^2 are scaled down to it.

    Guarantee: contributions are positive semidefinite, so no two make an obtuse angle, and have
    Frobenius norm at most radius^2: replacing one moves the sum by at most sqrt(2) radius^2. Proof
    of what truncation adds: A S A' is the sum over the q + 1 levels of ``pi_y a_y a_y'``, a_y = A
    (e_y - pi), so that a contribution is a sum of squares of q + 1 vectors v_y, each no longer than
    radius. A vector t truncated to a grid of step g is off v by less than sqrt(q k) g and no
    longer, so that ||t t' - v v'||_F <= 2 radius sqrt(q k) g; q + 1 times this is added to
    radius^2. The matrix is symmetric in levels and in columns, each by itself: the answer is made
    so after the noise, which leaves its law as it would be in such coordinates.

    Parameters
    ----------
    clip : float
        Bound > 0 on the length of the score.
    radius : float
        Bound > 0 on the root of ``||A S A'||_F ||z||^2``.
    """

    clip: float
    radius: float
    name: ClassVar[str] = "curvature of the score of levels"

    def total(self, block: Block) -> Ints:
        """Sum in squared steps."""
        rows = dense(self._coordinates.rows(block))
        chances = self._probabilities(block)
        inside = block.keep * (self._lengths(block, self._residuals(block)) <= self.clip)
        size = np.sqrt(self._curvatures(chances)) * self._norms(block)
        weight = inside * np.minimum(1.0, SAFETY * self.radius / np.maximum(size, _LEAST))
        total = np.zeros((rows.shape[1] * self._q,) * 2, dtype=np.int64)
        for chance, direction in zip(chances, self._directions(chances), strict=True):
            each = _products(direction * (np.sqrt(chance) * weight), rows)
            total += exact_sum(outer_steps(each, np.ones(len(each)), self._grid()))
        return total

    def _curvatures(self, chances: Array) -> Array:
        """``||A S A'||_F`` of each row."""
        entries = [[0.0 * chances[0] for _ in range(self._q)] for _ in range(self._q)]
        for chance, a in zip(chances, self._directions(chances), strict=True):
            for i in range(self._q):
                for j in range(self._q):
                    entries[i][j] = entries[i][j] + chance * a[i] * a[j]
        return _sizes(np.stack([entry for row in entries for entry in row]))

    def sensitivity(self, neighbors: Neighbors, max_rows: int) -> float:
        """sqrt(2) radius^2 per row under replace-one, radius^2 under add-remove; and truncation."""
        size = self._q * len(self.whiten)
        more = 2 * (self._q + 1) * self.radius * math.sqrt(size) * self._grid()
        return Contribution.ACUTE.sensitivity(max_rows * (self.radius**2 + more), neighbors)

    def decode(self, answer: Array) -> Array:
        """The (q k, q k) matrix, symmetric in levels and in columns."""
        full, q = unpacked(answer), self._q
        parts = full.reshape(q, len(full) // q, q, -1)
        both: Array = ((parts + parts.transpose(2, 1, 0, 3)) / 2).reshape(full.shape)
        return both


@dataclass(frozen=True, eq=False)
class LevelLengths(Lengths, _AtLevels):
    """Rows by the length of their score in the cells between public `edges`.

    Guarantee: a row is in one cell. Replacing it moves two counts by one: L2 sensitivity sqrt(2).

    Parameters
    ----------
    edges : ndarray of shape (m,)
        Increasing; there are m + 1 cells.
    """

    edges: Array
    name: ClassVar[str] = "histogram of lengths of scores of levels"

    def total(self, block: Block) -> Ints:
        """The counts."""
        return cell_counts(self._lengths(block, self._residuals(block)), self.edges, block.keep)


@dataclass(frozen=True, eq=False)
class LevelCount(LongScores, _AtLevels):
    """Number of rows whose score is longer than `bound`.

    Guarantee: a row counts once or not at all.
    """

    bound: float
    name: ClassVar[str] = "count of long scores of levels"

    def total(self, block: Block) -> Ints:
        """One count."""
        beyond = block.keep * (self._lengths(block, self._residuals(block)) > self.bound)
        return exact_sum(np.array([beyond.sum()]))
