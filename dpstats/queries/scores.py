"""Sums of scores of columns: by groups of rows, and of their products."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from dpstats.errors import PlanError
from dpstats.privacy import Neighbors
from dpstats.queries.base import EachRow, Norm
from dpstats.queries.blocks import Array, Block, Ints, truncate
from dpstats.queries.scalar import increasing
from dpstats.queries.tables import Axis

__all__ = ["GroupSums", "ScoreProducts", "ScoredColumn"]

_GRID = 2.0**-22  # numerical: steps in which scores and their products are added
_ROUNDED = 1 + 2.0**-18  # numerical: truncated contributions differ by a few more steps
_WIDEST = 2.0**500  # numerical: scores over a radius are numbers
_SQUARE = math.sqrt(0.5)  # weight of counts and of squares beside sums
_PRODUCT = math.sqrt(2.0)  # weight of products beside sums


@dataclass(frozen=True, eq=False)
class ScoredColumn:
    """A column, and a public score of its values.

    Parameters
    ----------
    place : int
        Public position in the design; its width means the response.
    knots : ndarray of shape (c,)
        They increase; there are at least two.
    scores : ndarray of shape (c,) or (c - 1,)
        Of the knots, linear between them and constant beyond the ends; or of the cells (k_0, k_1],
        ..., the first of which takes what lies below it, and the last what lies above.
    """

    place: int
    knots: Array
    scores: Array

    def __post_init__(self) -> None:
        increasing(self.knots, "knots of a score")
        sizes = (self.knots.size, self.knots.size - 1)
        sound = self.scores.ndim == 1 and self.scores.size in sizes
        sound = sound and self.knots.size >= 2 and self.place >= 0
        if not (sound and np.isfinite(self.scores).all()):
            raise PlanError("A column has a place, and scores of two knots or more, or of cells.")

    @classmethod
    def window(cls, place: int, lower: float, upper: float) -> ScoredColumn:
        """Values held to a window, which is mapped to (-1, 1)."""
        return cls(place, np.array([lower, upper]), np.array([-1.0, 1.0]))

    def of(self, values: Array) -> Array:
        """Scores of rows of values (m, d + 1); NaN where the value is missing."""
        column = values[:, self.place]
        if self.scores.size == self.knots.size:
            # Between knots next to each other the slope may be infinite.
            scores = np.interp(column, self.knots, self.scores)
            scores = np.clip(scores, self.scores.min(), self.scores.max())
        else:
            scores = self.scores[np.searchsorted(self.knots[1:-1], column, side="left")]
        found: Array = np.where(np.isnan(column), np.nan, scores)
        return found


@dataclass(frozen=True, eq=False)
class GroupSums(EachRow):
    """Counts, sums of a score z in [-1, 1] and sums of its squares, in each of G groups.

    A row of group g adds 1/sqrt(2), z and z^2/sqrt(2) there; one that misses either adds nothing.

    Guarantee: L2 sensitivity 2 under replace-one. Proof: within a group let s = |z + z'| and d =
    |z - z'|, s + d <= 2; the square of the difference is d^2 (1 + s^2 / 2) <= (2 - s)^2 (1 + s^2/2)
    = 4 - s (4 - 3 s + 2 s^2 - s^3/2), and the bracket has no root in [0, 2]. Between groups it is
    1 + z^2 + z'^2 + (z^4 + z'^4) / 2 <= 4. A row that adds nothing differs from any by at most
    sqrt(2), which also bounds an added or removed one. A unit of up to m rows counts m times.

    Parameters
    ----------
    column : ScoredColumn
        With scores in [-1, 1].
    groups : Axis
    """

    column: ScoredColumn
    groups: Axis
    name: ClassVar[str] = "sums of scores by group"
    norm: ClassVar[Norm] = "l2"

    def __post_init__(self) -> None:
        if np.abs(self.column.scores).max() > 1:
            raise PlanError("Scores that are summed by group are between -1 and 1.")

    def parameters(self) -> Mapping[str, Any]:
        """The column, the range of its knots, and the number of groups."""
        knots = self.column.knots
        return {
            "place": self.column.place,
            "lowest": float(knots[0]),
            "highest": float(knots[-1]),
            "groups": self.groups.cells,
        }

    def total(self, block: Block) -> Ints:
        """Counts, steps of z and of z^2, each of all groups."""
        assert block.observed is not None
        values = block.observed()
        group, there = self.groups.found(values)
        z = self.column.of(values)
        there &= ~np.isnan(z)
        steps = truncate(np.clip(z[there], -1.0, 1.0), _GRID)
        squares = truncate((steps * _GRID) ** 2, _GRID)
        sums = [
            np.bincount(group[there], weights, minlength=self.groups.cells)
            for weights in (np.ones(steps.size), steps, squares)
        ]
        return np.concatenate(sums).astype(np.int64)

    def finish(self, total: Ints, grid: Array) -> Array:
        """``(counts / sqrt(2), sums of z, sums of z^2 / sqrt(2))``, each of all groups."""
        units = np.array([[1.0], [_GRID], [_GRID]])
        weighted: Array = total.reshape(3, -1) * units * _BY_GROUP
        return weighted.ravel()

    def sensitivity(self, neighbors: Neighbors, max_rows: int) -> float:
        """L2: 2 per row under replace-one, sqrt(2) under add-remove."""
        one = math.sqrt(2.0) if neighbors is Neighbors.ADD_REMOVE else 2.0
        return max_rows * one * _ROUNDED

    def decode(self, answer: Array) -> Array:
        """Noisy counts, sums of z and of z^2, of shape (3, G)."""
        sums: Array = answer.reshape(3, -1) / _BY_GROUP
        return sums


_BY_GROUP = np.array([[_SQUARE], [1.0], [_SQUARE]])


@dataclass(frozen=True, eq=False)
class ScoreProducts(EachRow):
    """Sums of scores of k columns and of their products, over rows that miss none of them.

    The scores z of a row are shortened to a length of at most r, and it adds 1.8 r, z and
    sqrt(2) z z' / r (as a matrix: what is off the diagonal counts twice).

    Guarantee: L2 sensitivity 2.5 r under both relations. Proof, at r = 1: let a, b <= 1 be the
    lengths of z and y, and t = z'y. |z - y|^2 + 2 |zz' - yy'|^2 = a^2 + b^2 - 2 t + 2 (a^4 + b^4 -
    2 t^2), in which -2 t - 4 t^2 is at most 1/4, at t = -1/4; all is at most 2 + 4 + 1/4 = 2.5^2.
    A row that adds nothing differs from any by at most sqrt(1.8^2 + 1 + 2) < 2.5, which also bounds
    an added or removed one. A unit of up to m rows counts m times.

    Parameters
    ----------
    scored : tuple of ScoredColumn
    radius : float
        r, above 0.
    """

    scored: tuple[ScoredColumn, ...]
    radius: float
    of_count: ClassVar[float] = 1.8  # weight of the count of complete rows beside sums
    name: ClassVar[str] = "products of scores"
    norm: ClassVar[Norm] = "l2"

    def __post_init__(self) -> None:
        places = [column.place for column in self.scored]
        if len(places) < 2 or len(set(places)) < len(places):
            raise PlanError("Two columns or more are needed, each once.")
        longest = max(float(np.abs(column.scores).max()) for column in self.scored)
        if not (1 / _WIDEST <= self.radius <= _WIDEST and longest <= _WIDEST):
            raise PlanError("A radius from 2^-500 to 2^500 is needed, and scores up to that.")

    def parameters(self) -> Mapping[str, Any]:
        """The columns and the radius."""
        return {"places": [column.place for column in self.scored], "radius": self.radius}

    def total(self, block: Block) -> Ints:
        """The count, steps of z / r and of the products of these, on and above the diagonal."""
        assert block.observed is not None
        values = block.observed()
        z = np.stack([column.of(values) for column in self.scored], axis=1) / self.radius
        z = z[~np.isnan(z).any(axis=1)]
        length = np.sqrt(np.sum(z**2, axis=1, keepdims=True)) * (1 + 2.0**-40)
        z = truncate(z / np.maximum(length, 1.0), _GRID) * _GRID
        upper = np.triu_indices(len(self.scored))
        products = truncate(z[:, upper[0]] * z[:, upper[1]], _GRID).sum(axis=0)
        sums = truncate(z, _GRID).sum(axis=0)
        return np.concatenate([[len(z)], sums, products]).astype(np.int64)

    def finish(self, total: Ints, grid: Array) -> Array:
        """The count times 1.8 r, sums of z, and of products times sqrt(2) / r, doubled above."""
        units = np.where(np.arange(total.size) == 0, 1.0, _GRID)
        weighted: Array = total * units * self._weights * self.radius
        return weighted

    @property
    def _weights(self) -> Array:
        k = len(self.scored)
        rows, columns = np.triu_indices(k)
        products = np.where(rows == columns, _PRODUCT, _PRODUCT * math.sqrt(2))
        return np.concatenate([[self.of_count], np.ones(k), products])

    def sensitivity(self, neighbors: Neighbors, max_rows: int) -> float:
        """L2: 2.5 r per row."""
        return max_rows * 2.5 * self.radius * _ROUNDED

    def decode(self, answer: Array) -> Array:
        """The noisy count, sums of z / r, and sums of products of these."""
        plain: Array = answer / (self._weights * self.radius)
        return plain
