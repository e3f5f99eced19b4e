"""Quantiles: a noisy choice among candidates, or a search by noisy comparisons."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np

from dpstats.errors import PlanError
from dpstats.families import GAUSSIAN, Family
from dpstats.privacy import Neighbors
from dpstats.queries.base import AtMostOne, EachRow, Kind, Norm, WeighedRow
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
    "Search",
]


@dataclass(frozen=True, eq=False)
class _Quantile(AtMostOne, EachRow, ABC):
    """Utilities for choosing the q-quantile of one number per row from a public `candidates` grid.

    The utility of g is -|(1 - q) #{v <= g} - q #{v > g}|, largest where a share q of the rows is at
    or below g; it needs no row count.

    Guarantee: moving a row across g changes it by (1 - q) + q = 1; adding, removing or blanking a
    row changes it by max(q, 1 - q) <= 1.
    """

    candidates: Array
    q: float

    def __post_init__(self) -> None:
        if not 0 < self.q < 1:
            raise PlanError(f"q={self.q}: a share strictly between 0 and 1 is needed.")
        increasing(self.candidates, "candidates")

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

    def balance(self, total: Ints) -> Array:
        """``(1 - q) #{v <= g} - q #{v > g}`` of each candidate g; increases with g."""
        below = np.cumsum(total)[:-1].astype(np.float64)
        above = float(total.sum()) - below
        weighed: Array = (1 - self.q) * below - self.q * above
        return weighed

    def finish(self, total: Ints, grid: Array) -> Array:
        """Utilities of the candidates."""
        return -np.abs(self.balance(total))

    def decode(self, answer: Array) -> Array:
        """The chosen candidate, from its index."""
        return self.candidates[answer.astype(np.intp)]


@dataclass(frozen=True, eq=False)
class ResponseQuantile(_Quantile):
    """Choice of a candidate near the q-quantile of the response."""

    name: ClassVar[str] = "response quantile"
    kind: ClassVar[Kind] = "choice"
    norm: ClassVar[Norm] = "linf"

    def values(self, block: Block) -> Array:
        """The response."""
        return block.y


@dataclass(frozen=True, eq=False)
class NormQuantile(_Quantile):
    """Choice of a candidate near the q-quantile of ``||whiten @ x||``."""

    whiten: Array | None = None
    name: ClassVar[str] = "norm quantile"
    kind: ClassVar[Kind] = "choice"
    norm: ClassVar[Norm] = "linf"

    def values(self, block: Block) -> Array:
        """Norms of the rows."""
        return Geometry(1.0, self.whiten).norms(block)


@dataclass(frozen=True, eq=False)
class ResidualQuantile(_Quantile):
    """Choice of a candidate near the q-quantile of ``|y - x @ beta|``, or a family's residual."""

    beta: Array
    family: Family = GAUSSIAN
    name: ClassVar[str] = "residual quantile"
    kind: ClassVar[Kind] = "choice"
    norm: ClassVar[Norm] = "linf"

    def values(self, block: Block) -> Array:
        """Absolute residuals."""
        return np.abs(residual(block, self.beta, self.family))


@dataclass(frozen=True, eq=False)
class LengthQuantile(_Quantile):
    """Choice of a candidate near the q-quantile of ``||z|| |r|`` or ``||z|| sqrt(h)``.

    z is ``whiten @ x``, r the derivative of a row's log-likelihood in its linear predictor and h
    its information there (`Family.information`): lengths of its score, and of its part of the
    curvature.
    """

    whiten: Array
    beta: Array
    of: Literal["score", "curvature"] = "score"
    family: Family = GAUSSIAN
    name: ClassVar[str] = "length quantile"
    kind: ClassVar[Kind] = "choice"
    norm: ClassVar[Norm] = "linf"

    def values(self, block: Block) -> Array:
        """The length of each row."""
        if self.of == "score":
            factor = np.abs(residual(block, self.beta, self.family))
        else:
            eta = predictor(block, self.beta)
            factor = np.sqrt(self.family.information(block.y, eta))
        lengths: Array = Geometry(1.0, self.whiten).norms(block) * factor
        return lengths


@dataclass(frozen=True, eq=False)
class Search(WeighedRow):
    """A quantile found by bisection with noisy comparisons, instead of a noisy choice.

    The candidates g_0 < ... < g_N, N a power of two, are halved log2(N) times by the sign of the
    noisy balance of the middle one. The answer lies between the last two candidates, where their
    noisy balances say that it crosses zero.

    Guarantee: each comparison adds noise to one number of sensitivity 1 (see `_Quantile`); which
    number that is depends on the data only through earlier noisy ones. With noise of
    sqrt(log2 N) z each, the adaptive composition is that of one Gaussian mechanism of noise
    multiplier z (Dong, Roth & Su 2022, Corollary 3.3).
    """

    quantile: ResponseQuantile | NormQuantile | ResidualQuantile | LengthQuantile
    kind: ClassVar[Kind] = "search"
    norm: ClassVar[Norm] = "linf"

    def __post_init__(self) -> None:
        cells = self.quantile.candidates.size - 1
        if cells < 2 or cells & (cells - 1):
            raise PlanError(f"{cells} cells: a search needs a power of two, at least 2.")

    @property
    def comparisons(self) -> int:
        """Number of noisy comparisons."""
        return int(self.quantile.candidates.size - 1).bit_length() - 1

    @property
    def name(self) -> str:
        """Name of the quantile, and how it is found."""
        return f"{self.quantile.name} by bisection"

    @property
    def geometry(self) -> Geometry | None:
        """Geometry of the quantile."""
        return self.quantile.geometry

    def parameters(self) -> Mapping[str, Any]:
        """Those of the quantile."""
        return self.quantile.parameters()

    def total(self, block: Block) -> Ints:
        """Rows per cell of the grid."""
        return self.quantile.total(block)

    def finish(self, total: Ints, grid: Array) -> Array:
        """Balances of the candidates."""
        return self.quantile.balance(total)

    def sensitivity(self, neighbors: Neighbors, max_rows: int) -> float:
        """Of each balance: one per row."""
        return self.quantile.sensitivity(neighbors, max_rows)

    def decode(self, answer: Array) -> Array:
        """The value at a position, which may lie between two candidates."""
        candidates = self.quantile.candidates
        value: Array = np.interp(answer, np.arange(candidates.size), candidates)
        return value
