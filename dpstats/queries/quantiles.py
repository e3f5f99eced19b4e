"""Quantiles: searches among candidates by noisy comparisons."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np

from dpstats.errors import PlanError
from dpstats.families import GAUSSIAN, Family
from dpstats.queries.base import AtMostOne, EachRow, Kind, Norm
from dpstats.queries.binned import cell_counts
from dpstats.queries.blocks import (
    Array,
    Block,
    Geometry,
    Ints,
    predictor,
    residual,
)
from dpstats.queries.scalar import increasing

__all__ = [
    "LengthQuantile",
    "NormQuantile",
    "ResidualQuantile",
    "ResponseQuantile",
]


@dataclass(frozen=True, eq=False)
class Search(AtMostOne, EachRow, ABC):
    """The q-quantile of one number per row, found by bisection with noisy comparisons.

    The public `candidates` g_0 < ... < g_N, N a power of two, are halved log2(N) times by the sign
    of the noisy balance ``(1 - q) #{v <= g} - q #{v > g}`` of the middle one, which needs no row
    count. The answer lies between the last two candidates, where their noisy balances say that it
    crosses zero.

    Guarantee: moving a row across g changes its balance by (1 - q) + q = 1; adding, removing or
    blanking a row changes it by max(q, 1 - q) <= 1. Each comparison adds noise to one balance;
    which one that is depends on the data only through earlier noisy ones. With noise of
    sqrt(log2 N) z each, the adaptive composition is that of one Gaussian mechanism of noise
    multiplier z (Dong, Roth & Su 2022, Corollary 3.3).
    """

    candidates: Array
    q: float
    name: ClassVar[str]
    kind: ClassVar[Kind] = "search"
    norm: ClassVar[Norm] = "linf"

    def __post_init__(self) -> None:
        if not 0 < self.q < 1:
            raise PlanError(f"q={self.q}: a share strictly between 0 and 1 is needed.")
        increasing(self.candidates, "candidates")
        cells = self.candidates.size - 1
        if cells < 2 or cells & (cells - 1):
            raise PlanError(f"{cells} cells: a search needs a power of two, at least 2.")

    @property
    def comparisons(self) -> int:
        """Number of noisy comparisons."""
        return int(self.candidates.size - 1).bit_length() - 1

    def parameters(self) -> Mapping[str, Any]:
        """The share asked for and the grid's ends."""
        return {
            "q": self.q,
            "candidates": int(self.candidates.size),
            "lowest": float(self.candidates[0]),
            "highest": float(self.candidates[-1]),
        }

    @abstractmethod
    def values(self, block: Block) -> Array:
        """The number of each row."""

    def total(self, block: Block) -> Ints:
        """Rows per cell of the grid."""
        return cell_counts(self.values(block), self.candidates, block.keep, block.fast)

    def finish(self, total: Ints, grid: Array) -> Array:
        """The balance of each candidate; it increases with the candidate."""
        below = np.cumsum(total)[:-1].astype(np.float64)
        above = float(total.sum()) - below
        balance: Array = (1 - self.q) * below - self.q * above
        return balance

    def decode(self, answer: Array) -> Array:
        """The value at a position, which may lie between two candidates."""
        value: Array = np.interp(answer, np.arange(self.candidates.size), self.candidates)
        return value


@dataclass(frozen=True, eq=False)
class ResponseQuantile(Search):
    """The q-quantile of the response."""

    name: ClassVar[str] = "response quantile by bisection"

    def values(self, block: Block) -> Array:
        """The response."""
        return block.y


@dataclass(frozen=True, eq=False)
class NormQuantile(Search):
    """The q-quantile of ``||whiten @ x||``."""

    whiten: Array | None = None
    name: ClassVar[str] = "norm quantile by bisection"

    def values(self, block: Block) -> Array:
        """Norms of the rows."""
        return Geometry(1.0, self.whiten).lengths(block)


@dataclass(frozen=True, eq=False)
class ResidualQuantile(Search):
    """The q-quantile of ``|y - x @ beta|``, or a family's residual."""

    beta: Array
    family: Family = GAUSSIAN
    name: ClassVar[str] = "residual quantile by bisection"

    def values(self, block: Block) -> Array:
        """Absolute residuals."""
        return np.abs(residual(block, self.beta, self.family))


@dataclass(frozen=True, eq=False)
class LengthQuantile(Search):
    """The q-quantile of ``||z|| |r|`` or ``||z|| sqrt(h)``.

    z is ``whiten @ x``, r the derivative of a row's log-likelihood in its linear predictor and h
    its information there (`Family.information`): lengths of its score, and of its part of the
    curvature. "expected" is that of the part which its law expects (`Family.curvature`), whatever
    its response is.
    """

    whiten: Array
    beta: Array
    of: Literal["score", "curvature", "expected"] = "score"
    family: Family = GAUSSIAN
    name: ClassVar[str] = "length quantile by bisection"

    def values(self, block: Block) -> Array:
        """The length of each row."""
        if self.of == "score":
            factor = np.abs(residual(block, self.beta, self.family))
        else:
            eta, family = predictor(block, self.beta), self.family
            expected = self.of == "expected"
            factor = np.sqrt(
                family.curvature(eta) if expected else family.information(block.y, eta)
            )
        lengths: Array = Geometry(1.0, self.whiten).lengths(block) * factor
        return lengths
