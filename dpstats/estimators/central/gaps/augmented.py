"""Least squares on rows that miss covariates, from augmented scores: no law of rows is needed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from dpstats.estimators.central.gaps.moments import Moments, moment_requests
from dpstats.estimators.central.newton.budget import COUNT, requests
from dpstats.estimators.central.newton.climb import whitened
from dpstats.estimators.central.newton.likelihood import PredictorClimb
from dpstats.estimators.central.newton.normal_rows import NormalRows
from dpstats.estimators.guesses import response_grid
from dpstats.estimators.numerics.released import even_points
from dpstats.protocol import CoefficientEstimate, Holder, foresee
from dpstats.queries import (
    AugmentedCount,
    AugmentedCurvature,
    AugmentedLengths,
    AugmentedScore,
    AugmentedSquares,
    Completed,
    Query,
    ResponseQuantile,
)

if TYPE_CHECKING:
    from dpstats.design import Design
    from dpstats.estimators.base import Request
    from dpstats.privacy import Privacy
    from dpstats.protocol import Answer, Plan

__all__ = ["augmented_requests", "maximize_augmented"]

Array = NDArray[np.float64]

_GRAM = 0.1  # budget: second moments of what was observed
_MADE = 2**11  # numerical: made-up rows, over whose gaps is averaged
_AUGMENTED = (
    AugmentedCount,
    AugmentedCurvature,
    AugmentedLengths,
    AugmentedScore,
    AugmentedSquares,
)


def augmented_requests(design: Design, privacy: Privacy, n: float) -> list[Request]:
    """Those for second moments, and those of a Newton fit with what is left."""
    first = moment_requests(_GRAM)
    left = 1 - sum(ask.weight for ask in first)
    rest = [ask for ask in requests(design, privacy, n) if ask.slot != COUNT.slot]
    return [*first, *(replace(ask, weight=left * ask.weight) for ask in rest)]


def maximize_augmented(holder: Holder[Query], design: Design) -> CoefficientEstimate:
    """Ask for moments, whiten completed rows, and take the steps of a fit of whole rows."""
    moments = Moments.of(holder, design)
    rows = _CompletingHolder(holder, moments.precision)
    (level,), _ = rows.ask(ResponseQuantile(response_grid(design), 0.5), "median")
    found = whitened(rows, design, moments.rows)
    asks = _AugmentedQuestions(found.metric.w, moments, design.reads)
    expected = NormalRows(design.family, found.centre, found.cov)
    climb = PredictorClimb(rows, design, found, asks, moments.rows, expected, float(level))
    estimate = climb.reported(*climb.fit())
    return replace(estimate, of_these_rows=False)


@dataclass(frozen=True, eq=False)
class _CompletingHolder:
    """A holder whose rows are completed before they are asked anything but augmented scores."""

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
        return query if isinstance(query, _AUGMENTED) else Completed(query, self.precision)


@dataclass(frozen=True, eq=False)
class _AugmentedQuestions:
    """Questions of augmented scores; see `Questions`."""

    w: Array
    moments: Moments
    reads: tuple[frozenset[str], ...]

    @cached_property
    def _lift(self) -> Array:
        """The correction as a function of coefficients, of shape (d, d (d + 1) / 2, d).

        It is the mean over gaps of ``K m (I - K)'``, for independent gaps: where second moments are
        right each of them is 0, whatever the gaps are.
        """
        d, precision = len(self.moments.second), self.moments.precision
        gaps, times = np.unique(self._gaps, axis=0, return_counts=True)
        filled = np.stack([completion(missing, precision) for missing in gaps])
        left = (np.eye(d) - filled).reshape(len(gaps), -1)
        mean = (filled.reshape(len(gaps), -1) * (times / times.sum())[:, None]).T @ left
        a = mean.reshape(d, d, d, d)  # K_aj, (I - K)_lk
        i, j = np.triu_indices(d)
        lift = a[:, i, :, j] + np.where(i == j, 0.0, 1.0)[:, None, None] * a[:, j, :, i]
        return np.moveaxis(lift, 0, 1) / self.moments.both[i, j][None, :, None]

    @property
    def _gaps(self) -> NDArray[np.bool_]:
        """Where made-up rows miss columns: these miss what they read, each input by itself."""
        shares = np.diag(self.moments.both)
        alone = {  # the share of rows that have an input; of a product's, a root of that of both
            name: float(share) ** (1 / len(mine))
            for share, mine in sorted(
                zip(shares, self.reads, strict=True), key=lambda p: -len(p[1])
            )
            for name in mine
        }
        points = even_points(max(len(alone), 1), _MADE).T
        lost = {name: row >= alone[name] for name, row in zip(alone, points, strict=False)}
        gaps = np.zeros((_MADE, len(self.reads)), dtype=np.bool_)
        for j, mine in enumerate(self.reads):
            for name in mine:
                gaps[:, j] |= lost[name]
        return gaps

    def _at(self, b: Array) -> tuple[Array, Array, Array, Array, Array]:
        beta = self.w @ b
        i, j = np.triu_indices(beta.size)
        second = self.moments.second[i, j]
        return self.w.T, beta, self.moments.precision, second, self._lift @ beta

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
        """`AugmentedSquares`."""
        return AugmentedSquares(*self._at(b), clip, rows)


def completion(missing: NDArray[np.bool_], precision: Array) -> Array:
    """The matrix K that completes a row with these gaps (True where missing)."""
    d, seen = len(missing), ~missing
    made = np.zeros((d, d))
    made[seen, seen] = 1.0
    if missing.any():
        rest = np.linalg.solve(precision[np.ix_(missing, missing)], precision[missing][:, seen])
        made[np.ix_(missing, seen)] = -rest
    return made
