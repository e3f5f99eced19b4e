"""What a climb asks of rows at some coefficients, of one linear predictor here, and has found."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from dpstats.estimators.numerics.parts import ScoreAt
from dpstats.estimators.numerics.tail_law import TailLaw
from dpstats.families import Family
from dpstats.queries import (
    NormCount,
    NormHistogram,
    Query,
    ScoreCurvature,
    ScoreSquares,
    WhitenedScore,
)

__all__ = ["Bread", "ExpectedRows", "OnTheWay", "PredictorQuestions", "Questions"]

Array = NDArray[np.float64]


class ExpectedRows(Protocol):
    """What a model expects of rows, at whitened coefficients."""

    def curvature(self, b: Array) -> Array:
        """Fisher information of one row at `b`."""

    def to(self, b: Array, score: Array) -> Array:
        """Coefficients at which rows would have this mean `score` at `b`."""


class Bread(NamedTuple):
    """A curvature, its entry variances, its mean eigenvalue, and how far out rows lie.

    It was asked `at` some coefficients, of rows shortened at `radius`.
    """

    matrix: Array
    variances: Array
    level: float
    leverage: float
    at: Array
    radius: float


class OnTheWay(NamedTuple):
    """The clip of the last steps, where they begin, and what was asked on the way to them.

    `law` is that of the lengths of scores, where what a clip leaves out is asked for.
    """

    clip: float
    b: Array
    middle: ScoreAt
    bread: Bread | None
    law: TailLaw | None


class Questions(Protocol):
    """Questions at coefficients ``w b``, b being whitened ones."""

    @property
    def w(self) -> Array:
        """Change of coordinates."""

    def score(self, b: Array, clip: float, inner: float) -> Query:
        """Sum of scores of length at most `clip`, less what is within `inner`."""

    def histogram(self, b: Array, edges: Array) -> Query:
        """Rows by the length of their score."""

    def count(self, b: Array, bound: float) -> Query:
        """Rows whose score is longer than `bound`."""

    def curvature(self, b: Array, clip: float, radius: float) -> Query:
        """Minus the derivative of the score clipped at `clip`."""

    def squares(self, b: Array, clip: float, rows: int, each: bool) -> Query:
        """Squares of scores, summed within units of so many rows; `each` of weighted ones."""


@dataclass(frozen=True, eq=False)
class PredictorQuestions:
    """Questions of a response with one linear predictor; see `Questions`."""

    w: Array
    family: Family

    def score(self, b: Array, clip: float, inner: float) -> Query:
        """`WhitenedScore`."""
        return WhitenedScore(self.w.T, self.w @ b, clip, inner, self.family)

    def histogram(self, b: Array, edges: Array) -> Query:
        """`NormHistogram`."""
        return NormHistogram(self.w.T, self.w @ b, edges, True, self.family)

    def count(self, b: Array, bound: float) -> Query:
        """`NormCount`."""
        return NormCount(self.w.T, self.w @ b, bound, family=self.family)

    def curvature(self, b: Array, clip: float, radius: float) -> Query:
        """`ScoreCurvature`."""
        return ScoreCurvature(self.w.T, self.w @ b, clip, radius, self.family)

    def squares(self, b: Array, clip: float, rows: int, each: bool) -> Query:
        """`ScoreSquares`."""
        return ScoreSquares(self.w.T, self.w @ b, clip, rows, self.family, each)
