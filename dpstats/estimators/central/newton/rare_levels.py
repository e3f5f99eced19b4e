"""Levels of which noise nearly hides that any row has the rarer answer."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dpstats.estimators.central.newton.climb import WhitenedRows
from dpstats.estimators.central.newton.normal_rows import NormalRows
from dpstats.estimators.central.newton.whitening import indicators
from dpstats.estimators.numerics.parts import ScoreAt

if TYPE_CHECKING:
    from dpstats.design import Design

__all__ = ["LevelSums"]

Array = NDArray[np.float64]

_MISSED = 0.025  # printed: share of levels without a row of one answer of which nothing is said


class _Level(NamedTuple):
    """A level's name, the g for which ``g'z`` is 1 in its rows and 0 elsewhere, its term's g."""

    name: str
    at: Array
    term: Array


@dataclass(frozen=True, eq=False)
class LevelSums:
    """Sums of responses over the rows of each level, from the score of a fit.

    The score along a level is the sum over its rows of the response less its mean, times the factor
    of the likelihood. With the sum of means, by the fit for normal rows about the centre of the
    level, it makes that of the responses. Where this may be none the coefficient has no bound: each
    step adds about 1 to it, and no curvature on the way says where it ends.
    """

    design: Design
    found: WhitenedRows
    rows: NormalRows

    def nearly_none(self, last: ScoreAt) -> tuple[str, ...]:
        """Levels whose sum, or what it lacks of all 1, is not clear of none after noise."""
        from scipy.special import ndtri

        clear = float(ndtri(1 - _MISSED))
        return tuple(level.name for level in self._levels() if self._sum(level, last) < clear)

    def _levels(self) -> list[_Level]:
        """Of columns that are 0 or 1, and of what is none of a term's columns."""
        marks, made = indicators(self.design) > 0, []
        along = np.asarray(np.linalg.inv(self.found.metric.w).T, np.float64)  # a row is along z
        terms = np.array(self.design.terms)
        for term in dict.fromkeys(terms[marks].tolist()):
            columns = np.flatnonzero(marks & (terms == term))
            of = along[columns]
            names = [self.design.names[j] for j in columns]
            made += [_Level(name, g, of) for name, g in zip(names, of, strict=True)]
            if self.design.has_intercept:
                made.append(_Level(f"none of {term}", self.found.constant - of.sum(axis=0), of))
        return made

    def _sum(self, level: _Level, last: ScoreAt) -> float:
        """The lesser sum, in standard deviations of its noise."""
        family, found = self.rows.family, self.found
        size = max(found.mass * self._share(level), 1.0)
        mean, sd = self._predictors(level, size / found.mass, last.at)
        factor = float(family.factor(np.array([mean]))[0])
        total = size * self.rows.mean(mean, sd) + float(level.at @ last.score.total) / factor
        if family.name == "binomial":
            total = min(total, size - total)
        noise = float(np.linalg.norm(level.at)) * math.sqrt(last.score.variance) / factor
        return total / noise

    def _share(self, level: _Level) -> float:
        """Of rows: the mean of a mark, which is that of its square, too."""
        at, found = level.at, self.found
        return float(at @ (found.centre if self.design.has_intercept else found.cov @ at))

    def _predictors(self, level: _Level, share: float, b: Array) -> tuple[float, float]:
        """Mean and standard deviation of linear predictors in the rows of a level."""
        centre, cov = self.found.centre, self.found.cov
        along = level.at @ cov @ b + float(level.at @ centre) * (centre @ b)
        told, term = level.term @ cov @ b, level.term @ cov @ level.term.T
        within = self.rows.spread(b) ** 2 - float(told @ np.linalg.pinv(term) @ told)
        sd = math.hypot(math.sqrt(max(within, 0.0)), self.rows.offset_sd)
        return float(along) / share + self.rows.offset_mean, sd
