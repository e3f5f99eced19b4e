"""Rows that miss covariates: which values they have, and queries of rows that are completed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from dpstats.errors import PlanError
from dpstats.privacy import Neighbors
from dpstats.queries.base import Contribution, EachRow, Norm, OfOtherRows
from dpstats.queries.blocks import (
    Array,
    Block,
    Floats,
    Geometry,
    Incomplete,
    Ints,
    dense,
    exact_sum,
    to_grid,
    wide,
)
from dpstats.queries.linear import Gram, packed, unpacked
from dpstats.queries.quantiles import Search

__all__ = ["Completed", "ObservedPairs", "completed_rows"]

_CONDITION = 1e6  # numerical: largest eigenvalue of a precision, and of its inverse
_NUMBERS = 2**20  # numerical: of the systems that are solved at a time


def completed_rows(x: Array, missing: NDArray[np.bool_], precision: Array) -> Array:
    """Rows whose missing entries are what the best linear predictor of observed ones says.

    With second moments S of a row and P its inverse, ``x_u = S_uo S_oo^-1 x_o`` solves
    ``P_uu x_u = -P_uo x_o``.

    Parameters
    ----------
    x : ndarray of shape (m, d)
        Rows; entries that are missing are not read.
    missing : ndarray of bool of shape (m, d)
        Which are.
    precision : ndarray of shape (d, d)
        P, positive definite: every P_uu is, so that there is one solution but for rounding.
    """
    whole = np.where(missing, 0.0, x)
    if not precision[~np.eye(len(precision), dtype=np.bool_)].any():
        return whole
    size = max(_NUMBERS // precision.size, 1)
    for start in range(0, len(x), size):
        part = slice(start, start + size)
        # One small system a row, by itself: the same bits whichever rows stand beside it.
        systems = np.where(missing[part, :, None], precision, np.eye(len(precision)))
        whole[part] = _solved(systems, whole[part, :, None])[..., 0]
    return whole


def _solved(systems: Array, right: Array) -> Array:
    """Solutions of small systems, none of which stops the others; `right` where there is none.

    Whether all of them have one depends on what is missing in each row, and is no answer to give.
    """
    try:
        made = np.linalg.solve(systems, right)
    except np.linalg.LinAlgError:
        if len(systems) == 1:
            return right
        each = [_solved(s[None], r[None]) for s, r in zip(systems, right, strict=True)]
        made = np.concatenate(each)
    solved = np.isfinite(made).all(axis=(1, 2), keepdims=True)
    found: Array = np.where(solved, made, right)
    return found


def live_rows(rows: Incomplete) -> NDArray[np.bool_]:
    """Incomplete rows that contribute: their response, and some covariate, was observed."""
    live: NDArray[np.bool_] = ~rows.missing[:, -1] & ~rows.missing[:, :-1].all(axis=1)
    return live


def need_precision(precision: Array) -> None:
    """Refuse what is no inverse of second moments, or one of directions that are too unlike."""
    shape = precision.shape
    square = len(shape) == 2 and shape[0] == shape[1] > 0
    if not (square and np.isfinite(precision).all()):
        raise PlanError("precision: a square matrix of finite numbers is needed.")
    sizes = np.linalg.eigvalsh(precision)
    symmetric = np.allclose(precision, precision.T, rtol=1e-9, atol=1e-9)
    if not (symmetric and sizes[0] >= 1 / _CONDITION and sizes[-1] <= _CONDITION):
        raise PlanError(
            "precision: a symmetric matrix is needed, whose eigenvalues are from "
            f"{1 / _CONDITION:g} to {_CONDITION:g}."
        )


@dataclass(frozen=True, eq=False)
class Completed(OfOtherRows):
    """A query of a linear model asked of completed rows.

    A row whose response was observed, and some but not all covariates, has the best linear
    predictions of these in place of the others (`completed_rows`), held to their bounds and
    rounded to the grid; then the query reads it like any other. With the identity for `precision`
    what is missing is 0.

    Guarantee: that of `query`. A completed row is a function of that row and of public numbers,
    within the bounds and on the grid that rows have; the query holds for every such row, and clips
    it after it was completed. So a row moves the answer by as much as a row of the query does.

    Parameters
    ----------
    query : Gram or Search
        Asked of the completed rows.
    precision : ndarray of shape (d, d)
        Inverse of public second moments of a row, positive definite.
    """

    query: Gram | Search
    precision: Array
    geometry: ClassVar[Geometry | None] = None
    columns: ClassVar[tuple[int, ...] | None] = None
    by_lots: ClassVar[bool] = False

    def __post_init__(self) -> None:
        need_precision(self.precision)

    @property
    def name(self) -> str:
        """Name of the query, and of what."""
        return f"{self.query.name} of completed rows"

    def parameters(self) -> Mapping[str, Any]:
        """Those of the query, and the precision."""
        return {**self.query.parameters(), "precision": self.precision.tolist()}

    def total(self, block: Block) -> Ints:
        """The query's total over completed rows, which have row weights of their own."""
        whole = self._completed(block)
        return self.query.total(whole.weighted(self.query.geometry))

    def _completed(self, block: Block) -> Block:
        """The block with its incomplete rows filled; what is remembered is of these rows alone."""
        rows = None if block.incomplete is None else block.incomplete()
        if rows is None or not rows.rows.size:
            return block
        live = live_rows(rows)
        at = rows.rows[live]
        if not at.size:
            return block

        def fill() -> Floats:
            made = completed_rows(wide(rows.x[live]), rows.missing[live, :-1], self.precision)
            held = np.clip(made, -block.bound, block.bound)
            return to_grid(held, block.grid).astype(np.float32)

        x, y, keep = np.array(dense(block.x)), block.y.copy(), block.keep.copy()
        x[at] = block.recall("completed", self.precision.tobytes(), fill)
        y[at], keep[at] = rows.y[live], 1.0
        return replace(block, x=x, y=y, keep=keep, weight=keep, memory={}, incomplete=None)


@dataclass(frozen=True)
class ObservedPairs(EachRow):
    """Sum of ``s s'`` over rows, s_j being 1 where covariate j was observed and -1 where not.

    Of rows whose response was observed, and some covariate; others contribute zero.

    Guarantee: ``||s s'||_F = ||s||^2 = d`` and ``<s s', v v'> = (s'v)^2 >= 0``, so that replacing
    a row moves the sum by at most sqrt(2) d, which orthogonal signs attain, and adding one by d.

    Parameters
    ----------
    size : int
        Number of columns, d.
    """

    size: int
    name: ClassVar[str] = "observed pairs"
    norm: ClassVar[Norm] = "l2"

    def __post_init__(self) -> None:
        if self.size < 1:
            raise PlanError(f"size={self.size!r}: one column or more is needed.")

    def parameters(self) -> Mapping[str, Any]:
        """Number of columns."""
        return {"size": self.size}

    def total(self, block: Block) -> Ints:
        """The sum, as whole numbers."""
        if block.grid.size != self.size:
            raise PlanError(f"Rows have {block.grid.size} columns, not {self.size}.")
        complete = float(block.keep.sum())
        total = np.full((self.size, self.size), complete)
        rows = None if block.incomplete is None else block.incomplete()
        if rows is not None and rows.rows.size:
            signs = 1.0 - 2.0 * rows.missing[live_rows(rows), :-1]
            total = total + signs.T @ signs
        return exact_sum(total)

    def finish(self, total: Ints, grid: Array) -> Array:
        """Packed upper triangle, off-diagonals times sqrt(2)."""
        return packed(total)

    def sensitivity(self, neighbors: Neighbors, max_rows: int) -> float:
        """sqrt(2) d per row under replace-one, d under add-remove."""
        return Contribution.ACUTE.sensitivity(float(max_rows * self.size), neighbors)

    def decode(self, answer: Array) -> Array:
        """The symmetric (d, d) matrix."""
        return unpacked(answer)
