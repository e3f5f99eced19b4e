"""What is asked of rows that miss covariates: of completed rows, and of their augmented scores."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from dpstats.estimators.central.gaps.moments import SecondMoments
from dpstats.protocol import Holder, foresee
from dpstats.queries import (
    AugmentedCount,
    AugmentedCurvature,
    AugmentedLengths,
    AugmentedScore,
    AugmentedSquares,
    Completed,
    Gram,
    Query,
    Search,
)

if TYPE_CHECKING:
    from dpstats.protocol import Answer, Plan

__all__ = ["AugmentedQuestions", "CompletingHolder"]

Array = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class CompletingHolder:
    """A holder whose rows are completed for Gram matrices and searches; scores do it themselves."""

    holder: Holder[Query]
    precision: Array

    @property
    def plan(self) -> Plan:
        """That of the holder."""
        return self.holder.plan

    def ask(self, query: Query, slot: str, part: int = 0) -> Answer:
        """The answer of completed rows."""
        return self.holder.ask(self._asked(query), slot, part)

    def foresee(self, queries: Sequence[Query]) -> None:
        """Tell the holder."""
        foresee(self.holder, [self._asked(query) for query in queries])

    def _asked(self, query: Query) -> Query:
        return Completed(query, self.precision) if isinstance(query, Gram | Search) else query


@dataclass(frozen=True, eq=False)
class AugmentedQuestions:
    """Questions of augmented scores; see `Questions`.

    Attributes
    ----------
    w : ndarray of shape (d, d)
        Change of coordinates.
    moments : SecondMoments
        By which rows are completed.
    """

    w: Array
    moments: SecondMoments

    def score(self, b: Array, clip: float, inner: float) -> Query:
        """`AugmentedScore`."""
        return AugmentedScore(*self._at(b), clip, inner)

    def histogram(self, b: Array, edges: Array) -> Query:
        """`AugmentedLengths`."""
        return AugmentedLengths(*self._at(b), edges)

    def count(self, b: Array, bound: float) -> Query:
        """`AugmentedCount`."""
        return AugmentedCount(*self._at(b), bound)

    def curvature(self, b: Array, clip: float, radius: float) -> Query:
        """`AugmentedCurvature`."""
        return AugmentedCurvature(*self._at(b), clip, radius)

    def squares(self, b: Array, clip: float, rows: int, each: bool) -> Query:
        """`AugmentedSquares`; rows have no weights."""
        return AugmentedSquares(*self._at(b), clip, rows)

    def _at(self, b: Array) -> tuple[Array, Array, Array, Array, Array]:
        beta, second = self.w @ b, self.moments.second
        upper = second[np.triu_indices(len(second))]
        return self.w.T, beta, self.moments.precision, upper, self.w.T @ (self._correction @ beta)

    @cached_property
    def _correction(self) -> Array:
        """The correction of scores over coefficients, of shape (d, d (d + 1) / 2, d).

        It is the mean of ``K m (I - K)'`` over gaps: linear in m, the products of two columns that
        a row shows, each over the share of rows that show it. The gaps are those of made-up rows.
        Where second moments are right it is 0 at them for all gaps there are.
        """
        d, (filled, shares) = len(self.moments.second), self.moments.completions
        left = (np.eye(d) - filled).reshape(len(filled), -1)
        mean = (filled.reshape(len(filled), -1) * shares[:, None]).T @ left
        a = mean.reshape(d, d, d, d)  # of K_aj (I - K)_lk, at a, j, l, k
        i, j = np.triu_indices(d)
        other = np.where(i == j, 0.0, 1.0)[:, None, None]
        pairs = a[:, i, :, j] + other * a[:, j, :, i]
        correction: Array = np.moveaxis(pairs, 0, 1) / self.moments.both[i, j][None, :, None]
        return correction
