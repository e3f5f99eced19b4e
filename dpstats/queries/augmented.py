"""Augmented scores of rows that miss covariates: their mean is 0 wherever gaps follow no value.

A row x (the constant in it) that shows x_o is completed to x* by the best linear predictor under
public second moments S (`completed_rows`). Its score ``x* (y - x*'b)`` has mean 0 at the
least-squares coefficients b if S is right; where S is off, what is completed is, too, and the mean
is ``C b``, C being the mean over gaps of ``K M (I - K)'``: K completes a row with these gaps, and
M are the second moments that rows have. Every row says of M what it shows, ``m_jk = (x_j x_k -
S_jk) / p_jk`` for two covariates that it has, p_jk being the share of rows that have both. The
augmented score takes off what that says of ``C b``, a public linear function of m:

    phi = x* (y - x*'b) - A m.

Its mean is 0 at b to first order whatever errors S and p have, and its squares, as a sandwich's
meat, count what their sampling adds to errors of coefficients. (The estimating equation is the
augmented one of Robins, Rotnitzky & Zhao 1994, for second moments.)
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dpstats.errors import PlanError
from dpstats.queries.binned import cell_counts
from dpstats.queries.blocks import (
    SAFETY,
    V_BITS,
    Array,
    Block,
    Ints,
    bound_grid,
    dense,
    exact_sum,
    truncate,
    wide,
)
from dpstats.queries.completed import completed_rows, live_rows, need_precision
from dpstats.queries.row_norms import (
    AtScores,
    Curvature,
    Lengths,
    LongScores,
    ShortenedSum,
    Squares,
)

__all__ = [
    "AugmentedCount",
    "AugmentedCurvature",
    "AugmentedLengths",
    "AugmentedScore",
    "AugmentedSquares",
]

_VALUES = 2**17  # numerical: products of two covariates at a time
_LEAST = 1e-300  # numerical: lengths that are divided by


class _CompletedRows(NamedTuple):
    """Rows of a block: completed, with 0 in their gaps, what was observed, response, and keep."""

    completed: Array
    zeros: Array
    observed: NDArray[np.bool_]
    y: Array
    keep: Array


@dataclass(frozen=True, eq=False)
class _AtAugmented(AtScores):
    """Augmented scores at one coefficient vector.

    Parameters
    ----------
    precision : ndarray of shape (d, d)
        Inverse of public second moments of a row, by which it is completed; positive definite.
    second : ndarray of shape (d (d + 1) / 2,)
        These second moments, upper triangle.
    correction : ndarray of shape (k, d (d + 1) / 2)
        A public matrix, ``whiten @ A`` over the shares p.
    """

    precision: Array
    second: Array
    correction: Array

    def __post_init__(self) -> None:
        d = self.beta.size
        pairs = d * (d + 1) // 2
        shapes = [part.shape for part in (self.precision, self.second, self.correction)]
        if self.beta.ndim != 1 or shapes != [(d, d), (pairs,), (len(self.whiten), pairs)]:
            raise PlanError("Coefficients, and matrices that go with their number, are needed.")
        if self.whiten.ndim != 2 or self.whiten.shape[1] != d:
            raise PlanError(f"whiten: a matrix with {d} columns is needed.")
        need_precision(self.precision)
        if not all(np.isfinite(a).all() for a in (self.whiten, self.beta, self.second)):
            raise PlanError("Coefficients, directions and second moments are finite.")
        if not np.isfinite(self.correction).all():
            raise PlanError("correction: a matrix of finite numbers is needed.")

    @cached_property
    def _key(self) -> bytes:
        parts = (self.whiten, self.beta, self.precision, self.second, self.correction)
        return b"".join(part.tobytes() for part in parts)

    def _shown(self, block: Block) -> _CompletedRows:
        zeros, y, keep = wide(dense(block.x)), block.y, block.keep
        observed = np.ones(zeros.shape, dtype=np.bool_)
        rows = None if block.incomplete is None else block.incomplete()
        live = np.zeros(0, dtype=np.bool_) if rows is None else live_rows(rows)
        if rows is None or not live.any():
            return _CompletedRows(zeros, zeros, observed, y, keep)
        at, missing, x = rows.rows[live], rows.missing[live, :-1], wide(rows.x[live])
        zeros, y, keep = np.array(zeros), y.copy(), keep.copy()
        observed[at], zeros[at] = ~missing, np.where(missing, 0.0, x)
        y[at], keep[at] = rows.y[live], 1.0
        completed = zeros.copy()
        completed[at] = block.recall(
            "filled", self.precision.tobytes(), lambda: completed_rows(x, missing, self.precision)
        )
        return _CompletedRows(completed, zeros, observed, y, keep)

    def _scores(self, block: Block) -> tuple[Array, Array, Array]:
        """Whitened augmented scores (m, k), their lengths (m,), and which rows contribute.

        Every row adds its own terms in one order: the same bits in any blocking. One whose score is
        no finite number contributes nothing.
        """
        shown = self._shown(block)
        scores = block.recall("augmented scores", self._key, lambda: self._made(shown, block))
        with np.errstate(all="ignore"):  # a length beyond all numbers is inf, and leaves nothing
            lengths = np.sqrt(np.einsum("ij,ij->i", scores, scores))
        return scores, lengths, shown.keep

    def _made(self, shown: _CompletedRows, block: Block) -> Array:
        residual = shown.y - (shown.completed * self.beta).sum(axis=1)
        if block.offset is not None:
            residual = residual - block.offset
        i, j = np.triu_indices(self.beta.size)
        parts = list(zip(self.whiten, self.correction, strict=True))
        made = np.empty((len(residual), len(parts)))
        size = max(_VALUES // i.size, 64)
        with np.errstate(all="ignore"):
            for start in range(0, len(residual), size):
                part = slice(start, start + size)
                x, zeros, seen = shown.completed[part], shown.zeros[part], shown.observed[part]
                pairs = zeros[:, i] * zeros[:, j] - self.second * (seen[:, i] & seen[:, j])
                for a, (direction, taken) in enumerate(parts):
                    own = (x * direction).sum(axis=1) * residual[part]
                    made[part, a] = own - (pairs * taken).sum(axis=1)
        made[~np.isfinite(made).all(axis=1)] = 0.0
        return made


def _shortened(scores: Array, lengths: Array, keep: Array, clip: float, inner: float) -> Array:
    """Scores shortened to `clip`, less those shortened to `inner`.

    `SAFETY` takes off more than lengths and products round.
    """
    left = np.minimum(lengths, SAFETY * clip) - np.minimum(lengths, inner)
    return np.asarray(scores * (keep * left / np.maximum(lengths, _LEAST))[:, None])


@dataclass(frozen=True, eq=False)
class AugmentedScore(ShortenedSum, _AtAugmented):
    """Sum of augmented scores, each shortened to the length `clip`, less what is within `inner`.

    Guarantee: as `ShortenedSum`. A score is a function of its row and of public numbers, whatever
    these are, and is shortened after everything else; truncation towards zero cannot lengthen it.

    Parameters
    ----------
    clip : float
        Bound > 0 on the length.
    inner : float, default 0
        A bound of at most clip / 2, what is within which is left out.
    """

    clip: float
    inner: float = 0.0
    name: ClassVar[str] = "augmented score"

    def total(self, block: Block) -> Ints:
        """The sum in whole steps."""
        left = _shortened(*self._scores(block), self.clip, self.inner)
        return exact_sum(truncate(left, self._grid()).sum(axis=0))

    def finish(self, total: Ints, grid: Array) -> Array:
        """The vector, whitened."""
        summed: Array = total * np.float64(self._grid())
        return summed

    def _grid(self) -> float:
        return bound_grid(self.clip - self.inner, V_BITS)


@dataclass(frozen=True, eq=False)
class AugmentedSquares(Squares, _AtAugmented):
    """Sum over units of ``t t'``, t the sum of a unit's scores shortened to `clip`: the meat.

    Guarantee: as `Squares`.
    """

    clip: float
    max_rows: int = 1
    name: ClassVar[str] = "squares of augmented scores"

    def total(self, block: Block) -> Ints:
        """Sum of t t' in squared steps."""
        left = truncate(_shortened(*self._scores(block), self.clip, 0.0), self._grid())
        if block.starts is not None:
            left = np.add.reduceat(left, block.starts, axis=0)
        return exact_sum(left.T @ left)


@dataclass(frozen=True, eq=False)
class AugmentedCurvature(Curvature, _AtAugmented):
    """Sum of ``z z'`` over completed rows z whose augmented score is no longer than `clip`.

    It is minus the mean derivative of the score where second moments are right. Rows longer than
    `radius` are shortened to it.

    Guarantee: as `Curvature`.

    Parameters
    ----------
    clip : float
        Bound > 0 on the length of the score.
    radius : float
        Bound > 0 on the length of z.
    """

    clip: float
    radius: float
    name: ClassVar[str] = "curvature of the augmented score"

    def total(self, block: Block) -> Ints:
        """Sum in squared steps."""
        _, lengths, keep = self._scores(block)
        with np.errstate(all="ignore"):
            completed = self._shown(block).completed
            z = np.stack([(completed * row).sum(axis=1) for row in self.whiten], axis=1)
            z[~np.isfinite(z).all(axis=1)] = 0.0
            norms = np.sqrt(np.einsum("ij,ij->i", z, z))
        kept = _shortened(z, norms, keep * (lengths <= self.clip), self.radius, 0.0)
        steps = truncate(kept, self._grid())
        return exact_sum(steps.T @ steps)


@dataclass(frozen=True, eq=False)
class AugmentedLengths(Lengths, _AtAugmented):
    """Rows by the length of their augmented score, in the cells between public `edges`.

    Guarantee: a row is in one cell. Replacing it moves two counts by one: L2 sensitivity sqrt(2).

    Parameters
    ----------
    edges : ndarray of shape (m,)
        Increasing; there are m + 1 cells.
    """

    edges: Array
    name: ClassVar[str] = "histogram of lengths of augmented scores"

    def total(self, block: Block) -> Ints:
        """The counts."""
        _, lengths, keep = self._scores(block)
        return cell_counts(lengths, self.edges, keep, block.fast)


@dataclass(frozen=True, eq=False)
class AugmentedCount(LongScores, _AtAugmented):
    """Number of rows whose augmented score is longer than `bound`.

    Guarantee: a row counts once or not at all.
    """

    bound: float
    name: ClassVar[str] = "count of long augmented scores"

    def total(self, block: Block) -> Ints:
        """One count."""
        _, lengths, keep = self._scores(block)
        return exact_sum(np.array([(keep * (lengths > self.bound)).sum()]))
