"""Which of several fits describes the rows best: a choice by clipped losses."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from dpstats.errors import PlanError
from dpstats.families import GAUSSIAN, Family
from dpstats.queries.base import AtMostOne, EachRow, Kind, Norm, need_bounds
from dpstats.queries.blocks import Array, Block, Ints, exact_sum, residual, truncate

__all__ = ["CandidateLosses"]

_UNIT_GRID = 2.0**-30
_FARTHEST = 2.0**31  # rows: a penalty beyond that would round the losses beside it


@dataclass(frozen=True, eq=False)
class CandidateLosses(AtMostOne, EachRow):
    """Utilities for choosing one of several coefficient vectors by its clipped squared residuals.

    The utility of candidate k is ``-sum_i min(r_ik^2 / clip^2, 1) - penalty_k``, in rows.

    Guarantee: the loss of a row is in [0, 1] for every candidate, so replacing, adding or removing
    one moves each utility by at most 1; truncation towards zero keeps it there.

    Parameters
    ----------
    betas : ndarray of shape (k, d)
        Public candidates, in internal coordinates.
    clip : float
        Bound > 0 on the residuals.
    penalty : ndarray of shape (k,)
        Public numbers, in rows.
    """

    betas: Array
    clip: float
    penalty: Array
    family: Family = GAUSSIAN
    name: ClassVar[str] = "choice of a fit by clipped losses"
    kind: ClassVar[Kind] = "choice"
    norm: ClassVar[Norm] = "linf"

    def __post_init__(self) -> None:
        need_bounds(clip=self.clip)
        if self.penalty.shape != self.betas.shape[:1] or not np.isfinite(self.penalty).all():
            raise PlanError("Each candidate needs one finite penalty.")

    def parameters(self) -> Mapping[str, Any]:
        """The candidates (coefficients that are not 0, by position), clip and penalties; public."""
        return {
            "candidates": [
                {str(j): float(beta[j]) for j in np.flatnonzero(beta)} for beta in self.betas
            ],
            "clip": self.clip,
            "penalty": [float(p) for p in self.penalty],
            **({} if self.family == GAUSSIAN else {"family": str(self.family)}),
        }

    def total(self, block: Block) -> Ints:
        """Summed losses in steps, one for each candidate."""
        return exact_sum(np.array([self._loss(block, beta).sum() for beta in self.betas]))

    def finish(self, total: Ints, grid: Array) -> Array:
        """The utilities."""
        losses: Array = total * np.float64(_UNIT_GRID)
        return -losses - np.clip(self.penalty, -_FARTHEST, _FARTHEST)

    def _loss(self, block: Block, beta: Array) -> Array:
        r = residual(block, beta, self.family) / self.clip
        return truncate(block.keep * np.minimum(np.square(r), 1.0), _UNIT_GRID)
