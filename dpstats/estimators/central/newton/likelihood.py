"""The maximum of the likelihood by Newton steps on scores whose length is clipped.

The constants are public and enter after the noise: they cost accuracy where they are wrong, never
privacy.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from dpstats.estimators.central.newton import dispersion
from dpstats.estimators.central.newton.budget import (
    EXPECTED,
    FAR,
    LAST_BREAD,
    asked_twice,
    between_0_and_1,
    looks_far,
    resolved,
    short_scores,
)
from dpstats.estimators.central.newton.climb import Bread, Climb, solved, whitened
from dpstats.estimators.central.newton.conclusion import Conclusion, response_spread
from dpstats.estimators.central.newton.curvature import drawn_to
from dpstats.estimators.central.newton.far_rows import far_columns
from dpstats.estimators.central.newton.identification import NOTHING
from dpstats.estimators.central.newton.normal_rows import NormalRows, SplitRows
from dpstats.estimators.central.newton.questions import PredictorQuestions
from dpstats.estimators.central.newton.rare_levels import LevelSums
from dpstats.estimators.central.newton.remarks import (
    far_out,
    nearly_none,
    not_at_rest,
    off_model,
    reported,
)
from dpstats.estimators.central.newton.start import Start
from dpstats.estimators.central.newton.whitening import indicators
from dpstats.estimators.central.sandwich import noisy_count
from dpstats.estimators.guesses import response_grid
from dpstats.estimators.numerics.parts import ScoreAt
from dpstats.families import GAUSSIAN, Family
from dpstats.protocol import CoefficientEstimate, Holder, foresee
from dpstats.queries import (
    LengthQuantile,
    NormCount,
    Query,
    ResponseQuantile,
)

if TYPE_CHECKING:
    from dpstats.design import Design

__all__ = ["LARGEST_SD", "LEAP", "MORE", "PRIOR_SD", "PredictorClimb", "maximize"]

Array = NDArray[np.float64]

# share: of lengths within an early clip; ratio: that of a normal number to its sd
_EARLY_QUANTILE, _NORMAL = 0.85, 1.44
_BINOMIAL = 1.2  # ratio: clip of early binomial scores to typical lengths of rows
_WIDEST = 2.0**-20  # numerical: shortest length, over the longest, that the first clip may have
_LEAST_SHARE = 0.002  # share: of rows with the rarer answer, at least
_CELLS, _CELLS_SHORT = 40, 28  # number: cells of the histogram of lengths; where scores are short
_AROUND = (0.25, 256.0)  # ratio: ends of the histogram of lengths to early clips
# share: of rows that the curvature should count in full; ratio: its farthest radius
_REACHED, _FARTHEST_ROW = 0.995, 4.0
_STEEPEST = 2.5  # sds: of linear predictors, within which the curvature is looked at for its grid
# sds: of linear predictors, at most
LARGEST_SD = {"logit": 6.0, "probit": 3.5, "log": 2.5, "cloglog": 2.5, "identity": 2.0}
# sds: of linear predictors, before anything is known
PRIOR_SD = {"logit": 2.0, "probit": 1.2, "log": 1.0, "cloglog": 1.2}
# sds: of linear predictors that a step changes, at most
LEAP = {"logit": 1.0, "probit": 0.6, "log": 0.6, "cloglog": 0.8}
# ratio: how much more, for each unit of the share of the rarer answer, where means bend both ways
MORE = {"logit": 2.0, "probit": 2.0}
# ratio: change of a level's coefficient to that, at most, in steps that correct earlier ones
_OF_LEVEL = 1.5
_FARTHEST = 5.0  # number: units of the mean predictor from its start, at most


def maximize(holder: Holder[Query], design: Design) -> CoefficientEstimate:
    """Whiten, step, choose the clip, step twice, and conclude."""
    n = noisy_count(holder, len(design.names))
    level, offset_mean, offset_sd = _start(holder, design, n)
    found = whitened(holder, design, n)
    rows = NormalRows(design.family, found.centre, found.cov, offset_mean, offset_sd)
    asks = PredictorQuestions(found.metric.w, design.family)
    far = found.metric.far
    climb = PredictorClimb(holder, design, found, asks, n, rows, level, far).looked_far()
    return climb.reported(*climb.fit())


def _start(holder: Holder[Query], design: Design, n: float) -> tuple[float, float, float]:
    """Constant linear predictor to start from, and mean and standard deviation of the offset."""
    if design.family != GAUSSIAN:
        level, offset = Start(holder, design, n)()
        return level, offset.mean, offset.sd
    if not design.has_intercept:
        return 0.0, 0.0, 0.0
    (median,), _ = holder.ask(ResponseQuantile(response_grid(design), 0.5), "median")
    return float(median), 0.0, 0.0


@dataclass(frozen=True, eq=False)
class PredictorClimb(Climb):
    """Newton steps for one linear predictor from a constant one, `level`."""

    rows: NormalRows
    level: float
    leverage: float = 0.0  # of rows, whatever their curvature

    @property
    def start(self) -> Array:
        """Coefficients to start from."""
        return self.level * self.found.constant

    @property
    def family(self) -> Family:
        """Law of the response; its dispersion is the one released first, once it was."""
        return self.rows.family

    @property
    def far(self) -> bool:
        """Whether rows are known to lie far out whose scores may be as long as they are."""
        return self.leverage > 1

    def looked_far(self) -> PredictorClimb:
        """With how far out rows lie, where scores and curvatures do not say it."""
        if not looks_far(self.design):
            return self
        start, d = self.start, self.start.size
        w, farthest = self.asks.w, _FARTHEST_ROW * math.sqrt(d)
        query = NormCount(w.T, w @ start, farthest, scored=False, family=self.family)
        early = self.asks.score(start, self.early_clip(0, start, 0.0), 0.0)
        foresee(self.holder, [query, early])
        answer = self.holder.ask(query, FAR)
        share = (float(answer.value[0]) - NOTHING * answer.noise.sd) / self.n
        if share <= 0:
            return self
        leverage = far_out(_FARTHEST_ROW, 1 - share, 0.0, d)
        return replace(self, leverage=max(leverage, self.leverage))

    def fit(self) -> tuple[Conclusion, dict[str, float]]:
        """All steps; a dispersion is released after the early ones, and again at the end."""
        b, clip, spread = self.early()
        if not self.family.released:
            return self.later(b, clip, spread)
        w = self.asks.w
        law = dispersion.first(self.holder, self.design, self.rows, w, b, self.n)
        rows = replace(self.rows, family=law)
        there = replace(self, rows=rows, asks=PredictorQuestions(w, law))
        found, said = there.later(b, clip, spread)
        return found, said | dispersion.last(self.holder, self.design, rows, w, found, self.n)

    def prior_spread(self, clip: float) -> float:
        """Of a normal response as residuals are, of others by the link."""
        if self.family == GAUSSIAN:
            return response_spread(self.design, clip / (_NORMAL * math.sqrt(self.start.size)))
        return PRIOR_SD.get(self.family.link, 1.0)

    def reported(self, found: Conclusion, said: dict[str, float]) -> CoefficientEstimate:
        """The estimate, with what was released beside it and what that says of the fit."""
        columns = far_columns(self.design, self.found.metric.far_row)
        remarks = off_model(said["lean of long scores"], said["leverage"], columns)
        if self.family != GAUSSIAN:  # a linear score is solved by the last step
            remarks += not_at_rest(said["last step"])
        remarks += nearly_none(found.unbounded)
        estimate = reported(found, self.design, self.holder.plan, self.n, said, remarks)
        return replace(estimate, of_these_rows=True)

    def unbounded(self, last: ScoreAt) -> tuple[str, ...]:
        """Levels with hardly a response of one kind, where a mean of 0 or 1 has no predictor."""
        if self.family.link == "identity":
            return ()
        return LevelSums(self.design, self.found, self.rows).nearly_none(last)

    def outer_score(self, b: Array, clip: float) -> Array:
        """That of normal rows with an answer each; nothing is known of weighted ones."""
        if self.family.name != "binomial" or self.design.weights is not None:
            return super().outer_score(b, clip)
        return self.n * self.rows.outer_score(b, clip)

    def early_clip(self, k: int, b: Array, before: float) -> float:
        """Most lengths are within it; where scores are short, all that a typical row may have."""
        family, typical = self.family, math.sqrt(b.size)
        eta = np.array([self.rows.predictor(b)[0]])
        if short_scores(self.design):
            either = family.residual(np.array([0.0, 1.0]), np.repeat(eta, 2))
            return _BINOMIAL * typical * float(np.abs(either).max())
        bound = max(abs(end) for end in self.design.internal_endog_bounds)
        longest = 8 * typical * bound * float(family.factor(eta)[0]) * self.design.largest_root
        grid = before * np.geomspace(1 / 16, 2.0, 17)
        if k == 0:
            grid = longest * np.geomspace(_WIDEST, 1.0, 65)
        query = LengthQuantile(
            grid, _EARLY_QUANTILE, self.asks.w.T, self.asks.w @ b, "score", family
        )
        (clip,), _ = self.holder.ask(query, f"length {k + 1}")
        return float(clip)

    def bounded(self, to: Array) -> Array:
        """Coefficients drawn back to where predictors vary by a public number at most."""
        limit = LARGEST_SD.get(self.family.link)
        if limit is None:
            return to
        constant = self.found.constant
        mean, level = float(self.found.centre @ to), self.level
        varying = (to - mean * constant) * min(1.0, limit / max(self.rows.spread(to), 1e-300))
        held = np.clip(mean, level - _FARTHEST, level + _FARTHEST)
        drawn: Array = held * constant + varying
        return drawn if constant.any() else to * min(1.0, limit / max(self.rows.spread(to), 1e-300))

    def stepped(self, b: Array, score: Array, noise: float, kept: float) -> Array:
        """A step as of every law, no longer than rows that are not normal can bear.

        Counts, and events where they are rare, have means that grow as exponentials do. A factor
        then has other means than normal rows of its variance, by a multiple on the way of one long
        step, from where the next steps do not come back.
        """
        return self.leapt(b, super().stepped(b, score, noise, kept))

    def leapt(self, b: Array, to: Array) -> Array:
        """Where a step ends that is no longer than rows that are not normal can bear."""
        shorter: Array = b + (to - b) * min(
            1.0, self._leap(b) / max(self.rows.spread(to - b), 1e-300)
        )
        return shorter

    def corrected(self, b: Array, to: Array) -> Array:
        """Where a step ends that corrects earlier ones: no far way off along any level.

        What predictors of a rare level's rows change by hardly shows in how all of them vary.
        """
        most, level = _OF_LEVEL * self._leap(b), between_0_and_1(self.design)
        if not (level.any() and math.isfinite(most)):
            return to
        change = self.asks.w @ (to - b)
        change[level] = np.clip(change[level], -most, most)
        return b + solved(self.asks.w, change)

    def between(self, before: Array, after: Array) -> NormalRows | SplitRows:
        """Rows split by the level whose coefficient changes most: its mean is not normal rows'."""
        marks = indicators(self.design)
        if not (marks.any() and self.family.canonical) or self.family == GAUSSIAN:
            return self.rows
        j = int(np.argmax(marks * np.abs(self.asks.w @ (after - before))))
        mark = solved(self.asks.w, np.eye(len(marks))[j])  # the column, of z
        return self.rows.split(mark)

    def _leap(self, b: Array) -> float:
        """Standard deviation of linear predictors that a step may change them by."""
        family = self.family
        if family == GAUSSIAN or family.link not in LEAP:
            return math.inf
        if family.link not in MORE:
            return LEAP[family.link]
        mean = float(family.mean(np.array([self.rows.predictor(b)[0]]))[0])
        return LEAP[family.link] * (1 + MORE[family.link] * min(mean, 1 - mean))

    def rarer(self, b: Array) -> float:
        """Share of rows with the rarer answer, or with a count above 0, but at most half.

        Where it is small, their scores are long and all others short.
        """
        family = self.family
        mean = float(family.mean(np.array([self.rows.predictor(b)[0]]))[0])
        if self.design.weights is not None:  # a row is many answers
            return 0.5
        if family.name == "binomial":
            return max(min(mean, 1 - mean), _LEAST_SHARE)
        if family.name == "poisson":
            return min(0.5, max(1 - math.exp(-mean), _LEAST_SHARE))
        if family.name == "negativebinomial":
            none = math.exp(-math.log1p(family.alpha * mean) / family.alpha)
            return min(0.5, max(1 - none, _LEAST_SHARE))
        return 0.5

    def edges(self, b: Array, clip: float) -> Array:
        """Lengths between the cells of their histogram; short scores are about as long as rows."""
        (low, high), cells = _AROUND, _CELLS
        if short_scores(self.design):
            eta = np.array([self.rows.predictor(b)[0]])
            clip = math.sqrt(b.size) * float(self.family.factor(eta)[0])
            low, high, cells = low * self.rarer(b), _FARTHEST_ROW, _CELLS_SHORT
        edges: Array = clip * np.geomspace(low, high, cells + 1)
        return edges

    def bread(self, b: Array, clip: float) -> Bread:
        """Minus the derivative of the score: as released, averaged with what the model expects."""
        family, d, whitening = self.family, b.size, self.asks.w.T
        mean, sd = self.rows.predictor(b)
        steep = np.array([mean, mean + _STEEPEST * sd, mean - _STEEPEST * sd])
        roots = np.sqrt(family.curvature(steep) * d)
        grid = np.geomspace(0.7 * roots[0], _FARTHEST_ROW * roots.max(), 17)
        beta = self.asks.w @ b
        query = LengthQuantile(grid, 0.5, whitening, beta, "curvature", family)
        reached = resolved(_REACHED, self.holder.plan, query, "steepest")
        query = replace(query, q=reached)
        expected = replace(query, of="expected")
        foresee(self.holder, [query, expected] if family.observed else [query])
        (radius,), _ = self.holder.ask(query, "steepest")
        far = radius
        if family.observed:  # large by the response, too, wherever the row lies
            (far,), _ = self.holder.ask(expected, EXPECTED)
        missed = self.holder.plan.noise(query, "steepest").sd / self.n
        leverage = far_out(float(far) / float(roots.max()), reached, missed, d)
        curvature = self.asks.curvature(b, clip, float(radius))
        then = [self.asks.score(b, clip, 0.0)] if asked_twice(self.design) else self.halves(b, clip)
        foresee(self.holder, [curvature, *then])
        drawn = self._drawn(curvature, "bread", b)
        return Bread(*drawn, max(leverage, self.leverage), b, float(radius))

    def there(self, bread: Bread, after: Array, clip: float) -> tuple[Bread, bool]:
        """The curvature where the last score was asked: as it changes, or asked again."""
        if not asked_twice(self.design):
            return super().there(bread, after, clip)
        query = self.asks.curvature(after, clip, bread.radius)
        matrix, variances, level = self._drawn(query, LAST_BREAD, after)
        again = bread._replace(matrix=matrix, variances=variances, level=level, at=after)
        return again, True

    def _drawn(self, query: Query, slot: str, b: Array) -> tuple[Array, Array, float]:
        """A curvature at `b`, averaged with what the model expects, its variances and its level."""
        answer = self.holder.ask(query, slot)
        return drawn_to(
            answer.value,
            answer.noise.sd,
            self.between(self.start, b).curvature(b),
            self.found.metric.variances / self.n**2,
        )
