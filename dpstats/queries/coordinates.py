"""Scores of every column of a wide design, of which only the largest are chosen."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from dpstats.errors import PlanError
from dpstats.families import GAUSSIAN, Family
from dpstats.privacy import Neighbors
from dpstats.queries.base import Contribution, EachRow, Kind, Norm, need_bounds
from dpstats.queries.blocks import (
    V_BITS,
    Array,
    Block,
    Ints,
    bound_grid,
    exact_sum,
    residual,
    to_grid,
    truncate,
)

__all__ = ["CoordinateScores", "CoordinateSums", "PeeledScores"]

_FARTHEST = 2.0**31  # a prior beyond that many contributions would round the scores beside it


@dataclass(frozen=True, eq=False)
class _Coordinates(EachRow):
    """Sums ``v_j = prior_j + sum_i x_ij psi_i`` with ``psi = clip(r, -clip, clip)``.

    r is the residual at `beta`: ``y - x @ beta``, or the derivative of a row's log-likelihood in
    its linear predictor under a family. Only columns where `beta` is not zero are read for it, and
    all once for the sums.

    Guarantee: |x_ij| <= reach and |psi_i| <= clip, so replacing a row moves each sum by at most
    2 reach clip, and adding or removing one by at most reach clip. Where a column's bound exceeds
    reach, values are clipped at its last grid point within reach. Where it does so only by its
    rounding to the grid, at most 2^-17 of it, psi is shrunk by as much, which needs no copy of the
    rows: |x_ij psi_i| <= largest (reach / largest) clip. psi is truncated towards zero.

    Parameters
    ----------
    beta : ndarray of shape (d,)
        Public coefficients, in internal coordinates.
    clip : float
        Bound > 0 on the residual.
    reach : float
        Bound > 0 on every |x_ij|; larger values are clipped in the sums, not in the residual.
    prior : ndarray of shape (d,), optional
        Public numbers added to the sums; beyond 2^31 reach clip they are taken to be there.
    """

    beta: Array
    clip: float
    reach: float
    prior: Array | None = None
    family = GAUSSIAN  # a field of each query, its last one

    def __post_init__(self) -> None:
        need_bounds(clip=self.clip, reach=self.reach)
        if self.prior is not None and not (
            self.prior.shape == self.beta.shape and np.isfinite(self.prior).all()
        ):
            raise PlanError("The prior of the scores needs one finite number for each column.")

    def parameters(self) -> Mapping[str, Any]:
        """The coefficients that are not zero, the bounds and the family; all public."""
        support = np.flatnonzero(self.beta)
        family = {} if self.family == GAUSSIAN else {"family": str(self.family)}
        return {
            "columns": int(self.beta.size),
            "support": [int(j) for j in support],
            "beta": [float(b) for b in self.beta[support]],
            "clip": self.clip,
            "reach": self.reach,
            "prior": self.prior is not None,
            **family,
        }

    def total(self, block: Block) -> Ints:
        """Sum of x psi, in steps of the column grid times the grid of psi."""
        clipped = np.clip(residual(block, self.beta, self.family), -self.clip, self.clip)
        x, shrink = self._within_reach(block)
        psi = truncate(shrink * block.keep * clipped, bound_grid(self.clip, V_BITS))
        within = block if x is block.x else replace(block, x=x, memory={})
        return exact_sum(within.sums(psi) / block.grid)

    def sensitivity(self, neighbors: Neighbors, max_rows: int) -> float:
        """L-infinity: 2 reach clip per row under replace-one, reach clip under add-remove."""
        bound = max_rows * self.reach * self.clip
        return Contribution.SIGNED.sensitivity(bound, neighbors)

    @property
    def _reaches(self) -> Any:
        """Bound on each column, or one for all."""
        return self.reach

    def finish(self, total: Ints, grid: Array) -> Array:
        """The sums, the prior among them."""
        sums: Array = total * grid * bound_grid(self.clip, V_BITS) * (self.reach / self._reaches)
        if self.prior is None:
            return sums
        farthest = _FARTHEST * self.reach * self.clip
        return sums + np.clip(self.prior, -farthest, farthest)

    def _within_reach(self, block: Block) -> tuple[Any, float]:
        """Columns, clipped where they may exceed `reach`, and a factor that covers their rounding.

        Sparse rows stay so.
        """
        ratio = float((to_grid(block.bound, block.grid) / self._reaches).max())
        if ratio <= 1 + 2.0**-16:
            return block.x, min(1.0, 1 / ratio)
        limit = (np.floor(self._reaches / block.grid) * block.grid).astype(block.x.dtype)
        if isinstance(block.x, np.ndarray):
            return np.clip(block.x, -limit, limit), 1.0
        x: Any = block.x.copy()
        limits = limit[x.indices]
        x.data = np.clip(x.data, -limits, limits)
        return x, 1.0


@dataclass(frozen=True, eq=False)
class CoordinateScores(_Coordinates):
    """Utilities for choosing columns with a large score.

    The utility of column j is ``|v_j|``, or with `signed` there are two for each column: v_j and
    -v_j. The answer holds the positions of the chosen columns; with `signed`, d + j stands for -v_j
    of column j.

    Guarantee: that of the sums v; no utility moves by more than its sum. With `reaches`, x_ij is
    at most reaches_j in size, and its sum is multiplied by reach / reaches_j: at most reach again.

    Parameters
    ----------
    exclude : tuple of int, optional
        Columns that are no candidates; public.
    reaches : ndarray of shape (d,), optional
        A bound > 0 for each column in the place of `reach`, which remains the unit of the sums.
    """

    signed: bool = False
    exclude: tuple[int, ...] = ()
    reaches: Array | None = None
    family: Family = GAUSSIAN
    name: ClassVar[str] = "choice of columns by score"
    kind: ClassVar[Kind] = "choice"
    norm: ClassVar[Norm] = "linf"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.reaches is not None and not (
            self.reaches.shape == self.beta.shape
            and np.isfinite(self.reaches).all()
            and self.reaches.min() > 0
        ):
            raise PlanError("Reaches: one finite bound > 0 for each column is needed.")

    def parameters(self) -> Mapping[str, Any]:
        """Those of the scores, whether candidates have a sign, and which columns are none."""
        more: dict[str, Any] = {"signed": self.signed, "excluded": [int(j) for j in self.exclude]}
        if self.reaches is not None:
            more["reaches"] = [float(r) for r in np.unique(self.reaches)]
        return {**super().parameters(), **more}

    @property
    def _reaches(self) -> Any:
        return self.reach if self.reaches is None else self.reaches

    def finish(self, total: Ints, grid: Array) -> Array:
        """The utilities of the candidates."""
        sums = super().finish(total, grid)
        utilities = np.concatenate([sums, -sums]) if self.signed else np.abs(sums)
        return utilities[self._candidates()]

    def decode(self, answer: Array) -> Array:
        """Positions of the chosen candidates among all columns."""
        chosen: Array = self._candidates()[answer.astype(np.intp)].astype(np.float64)
        return chosen

    def _candidates(self) -> NDArray[np.intp]:
        d = self.beta.size
        open_columns = np.delete(np.arange(d), np.asarray(self.exclude, dtype=np.intp))
        both = (open_columns, d + open_columns)
        return np.concatenate(both) if self.signed else open_columns


@dataclass(frozen=True, eq=False)
class PeeledScores(_Coordinates):
    """Scores ``v_j`` from which the largest in size are peeled one by one, each with its value.

    The answer has two rows: the positions of the chosen columns and their noisy scores.
    """

    family: Family = GAUSSIAN
    name: ClassVar[str] = "peeled scores"
    kind: ClassVar[Kind] = "peel"
    norm: ClassVar[Norm] = "linf"


@dataclass(frozen=True, eq=False)
class CoordinateSums(_Coordinates):
    """All scores ``v_j``, each with noise.

    Guarantee: no sum moves by more than 2 reach clip, so that the d of them move by at most
    sqrt(d) 2 reach clip in L2 norm, which rows at every bound attain.
    """

    family: Family = GAUSSIAN
    name: ClassVar[str] = "scores of all columns"
    norm: ClassVar[Norm] = "l2"

    def sensitivity(self, neighbors: Neighbors, max_rows: int) -> float:
        """L2: sqrt(d) times that of one sum."""
        return math.sqrt(self.beta.size) * super().sensitivity(neighbors, max_rows)
