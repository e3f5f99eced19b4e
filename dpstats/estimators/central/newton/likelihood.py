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
from dpstats.estimators.central.newton.climb import LIGHTEST, Climb, solved, whitened
from dpstats.estimators.central.newton.conclusion import EFFECT, Conclusion, response_spread
from dpstats.estimators.central.newton.curvature import drawn_to
from dpstats.estimators.central.newton.far_rows import far_columns
from dpstats.estimators.central.newton.identification import NOTHING
from dpstats.estimators.central.newton.normal_rows import NormalRows, SplitRows
from dpstats.estimators.central.newton.questions import Bread, PredictorQuestions
from dpstats.estimators.central.newton.rare_levels import LevelSums
from dpstats.estimators.central.newton.remarks import (
    far_out,
    nearly_equal,
    nearly_none,
    not_at_rest,
    off_model,
    reported,
)
from dpstats.estimators.central.newton.start import Start
from dpstats.estimators.central.newton.whitening import FAR_ROW, REACHED, indicators
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

__all__ = ["PredictorClimb", "largest_sd", "longest_step", "maximize", "prior_sd"]

Array = NDArray[np.float64]

_EARLY_QUANTILE = 0.85  # share: of lengths within an early clip
LONG = 1.2  # ratio: early clip of a response with levels to the length of a row with the rarest one
# numerical: second early clip to the first, at least; most lengths to an event's, below which most
# rows have none
_SHORTER = 1 / 16
_WIDEST = 2.0**-20  # numerical: shortest length, over the longest, that the first clip may have
CELLS = 5  # number: of the histogram of lengths, for each doubling
LEAST_LENGTH = 0.25  # ratio: of the histogram's lower end to early clips, or a typical row
_MOST_LENGTH = 256.0  # ratio: of its upper end to early clips
# sds: of linear predictors that a step changes where one answer is rare, over what is presumed
_LEAP = 0.6


def prior_sd(link: str) -> float:
    """Standard deviation of linear predictors that is presumed before anything is known.

    A binary response is 1 where a latent variable is below its predictor; both are presumed to vary
    alike: by 1 under a probit, as the logistic law under a logit. Under a log link, and a cloglog
    where events are rare, means change by a factor of e; under an identity link responses vary by
    about 1 in internal units.
    """
    return math.pi / math.sqrt(3) if link == "logit" else 1.0


def largest_sd(link: str) -> float:
    """Standard deviation of linear predictors, at most."""
    return EFFECT * prior_sd(link)


def longest_step(link: str, mean: float = 0.0) -> float:
    """Standard deviation of what a step may change linear predictors by, at a mean response.

    Where means bend both ways it is up to twice as much: as answers are equally frequent.
    """
    rarer = min(mean, 1 - mean) if link in ("logit", "probit") else 0.0
    return _LEAP * prior_sd(link) * (1 + 2 * rarer)


def lengths_between(low: float, high: float, farthest: float) -> Array:
    """Edges of the cells of a histogram of lengths.

    Its ends may hang on what was released, the number of cells does not: as many as there are
    between `LEAST_LENGTH` and `farthest`, which is public.
    """
    doublings = math.log2(farthest / LEAST_LENGTH)
    edges: Array = np.geomspace(low, high, math.ceil(CELLS * doublings) + 1)
    return edges


def _normal_quantile(share: float) -> float:
    from scipy.special import ndtri

    return float(ndtri(share))


def maximize(
    holder: Holder[Query], design: Design, climb: type[PredictorClimb] | None = None
) -> CoefficientEstimate:
    """Whiten, step, choose the clip, step twice, and conclude."""
    n = noisy_count(holder, len(design.names))
    level, offset_mean, offset_sd = _start(holder, design, n)
    found = whitened(holder, design, n)
    rows = NormalRows(design.family, found.centre, found.cov, offset_mean, offset_sd)
    asks = PredictorQuestions(found.metric.w, design.family)
    far = found.metric.far
    kind = climb or PredictorClimb
    ready = kind(holder, design, found, asks, n, rows, level, far).looked_far()
    return ready.reported(*ready.fit())


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
    def early_kept(self) -> float:
        """Slope of an early score to that of the whole one: rows within the clip."""
        return _EARLY_QUANTILE

    @property
    def far(self) -> bool:
        """Whether rows are known to lie far out whose scores may be as long as they are."""
        return self.leverage > 1

    def looked_far(self) -> PredictorClimb:
        """With how far out rows lie, where scores and curvatures do not say it."""
        if not looks_far(self.design):
            return self
        start, d = self.start, self.start.size
        w, farthest = self.asks.w, FAR_ROW * math.sqrt(d)
        query = NormCount(w.T, w @ start, farthest, scored=False, family=self.family)
        early = self.asks.score(start, self.early_clip(0, start, 0.0), 0.0)
        foresee(self.holder, [query, early])
        answer = self.holder.ask(query, FAR)
        share = (float(answer.value[0]) - NOTHING * answer.noise.sd) / self.n
        if share <= 0:
            return self
        leverage = far_out(FAR_ROW, 1 - share, 0.0, d)
        return replace(self, leverage=max(leverage, self.leverage))

    def fit(self) -> tuple[Conclusion, dict[str, float]]:
        """All steps; a dispersion is released after the early ones, and again at the end."""
        b, clip, spread = self.early()
        if not self.family.released:
            found, said = self.later(b, clip, spread)
            return found, said | {"early clip": clip}
        w = self.asks.w
        law = dispersion.first(self.holder, self.design, self.rows, w, b, self.n)
        rows = replace(self.rows, family=law)
        there = replace(self, rows=rows, asks=PredictorQuestions(w, law))
        found, said = there.later(b, clip, spread)
        said |= dispersion.last(self.holder, self.design, rows, w, found, self.n)
        return found, said | {"early clip": clip}

    def prior_spread(self, clip: float) -> float:
        """Of a normal response as residuals are, of others by the link."""
        if self.family == GAUSSIAN:
            usual = _normal_quantile((1 + _EARLY_QUANTILE) / 2)  # of |g|, g standard normal
            return response_spread(self.design, clip / (usual * math.sqrt(self.start.size)))
        return prior_sd(self.family.link)

    def reported(self, found: Conclusion, said: dict[str, float]) -> CoefficientEstimate:
        """The estimate, with what was released beside it and what that says of the fit."""
        columns = far_columns(self.design, self.found.metric.far_row)
        remarks = off_model(said["lean of long scores"], said["leverage"], columns)
        if self.family != GAUSSIAN:  # a linear score is solved by the last step
            remarks += not_at_rest(said["last step"])
        remarks += nearly_none(found.unbounded)
        if self.family == GAUSSIAN and said["early clip"] == self.event:
            remarks += nearly_equal(known=len(self.design.names) in self.design.found)
        estimate = reported(found, self.design, self.holder.plan, self.n, said, remarks)
        return replace(estimate, of_these_rows=True)

    def unbounded(self, last: ScoreAt) -> tuple[str, ...]:
        """Levels with hardly a response of one kind, where a mean of 0 or 1 has no predictor."""
        if self.family.link == "identity":
            return ()
        return LevelSums(self.design, self.found, self.rows).nearly_none(last)

    def clipped_score(self, b: Array, clip: float) -> Array:
        """That of normal rows with a count or an answer each; none is known of weighted ones."""
        if self.family.name not in ("binomial", "poisson") or self.design.weights is not None:
            return super().clipped_score(b, clip)
        return self.n * self.rows.clipped_score(b, clip)

    def early_clip(self, k: int, b: Array, before: float) -> float:
        """Most lengths are within it; where scores are short, all that a typical row may have.

        Where most responses are 0, most lengths are those of rows without an event, which say
        nothing of how many events there are: then it is the length of an event's score.
        """
        family, typical = self.family, math.sqrt(b.size)
        eta = np.array([self.rows.predictor(b)[0]])
        if short_scores(self.design):
            either = family.residual(np.array([0.0, 1.0]), np.repeat(eta, 2))
            return LONG * typical * float(np.abs(either).max())
        bound = max(abs(end) for end in self.design.internal_endog_bounds)
        longest = 8 * typical * bound * float(family.factor(eta)[0]) * self.design.largest_root
        grid = before * np.geomspace(_SHORTER, 2.0, 17)
        if k == 0:
            grid = longest * np.geomspace(_WIDEST, 1.0, 65)
        most = self.length(f"length {k + 1}", b, grid, _EARLY_QUANTILE)
        if family.name in ("poisson", "negativebinomial"):
            return max(most, self.event * float(family.residual(family.mean(eta) + 1, eta)[0]))
        if family != GAUSSIAN or len(self.design.names) in self.design.unscaled:
            return most
        rare = most < _SHORTER * self.event if k == 0 else before == self.event
        return max(most, self.event) if rare else most

    @property
    def event(self) -> float:
        """Length of a typical row's score whose residual is 1; 0 where weights may be any.

        In internal units, in which 1 is how far responses spread, or an event more.
        """
        weighted, mass = self.design.weights is not None, self.found.mass
        if weighted and not (self.design.has_intercept and mass > LIGHTEST * self.n):
            return 0.0
        return LONG * math.sqrt(self.start.size * mass / self.n)

    def length(self, slot: str, b: Array, grid: Array, share: float) -> float:
        """One of these lengths, that this share of all scores is within."""
        w = self.asks.w
        query = LengthQuantile(grid, share, w.T, w @ b, "score", self.family)
        (found,), _ = self.holder.ask(query, slot)
        return float(found)

    def bounded(self, to: Array) -> Array:
        """Coefficients drawn back to where predictors vary by a public number at most."""
        limit = largest_sd(self.family.link)
        constant = self.found.constant
        mean, level = float(self.found.centre @ to), self.level
        varying = (to - mean * constant) * min(1.0, limit / max(self.rows.spread(to), 1e-300))
        held = np.clip(mean, level - limit, level + limit)
        drawn: Array = held * constant + varying
        return drawn if constant.any() else to * min(1.0, limit / max(self.rows.spread(to), 1e-300))

    def stepped(self, b: Array, score: Array, noise: float, kept: float, spared: int = 0) -> Array:
        """A step as of every law, no longer than rows that are not normal can bear.

        Counts, and events where they are rare, have means that grow as exponentials do. A factor
        then has other means than normal rows of its variance, by a multiple on the way of one long
        step, from where the next steps do not come back.
        """
        return self.leapt(b, super().stepped(b, score, noise, kept, spared))

    def leapt(self, b: Array, to: Array) -> Array:
        """Where a step ends that is no longer than rows that are not normal can bear."""
        if self.family.link == "identity":
            return to
        mean = self.family.mean(np.array([self.rows.predictor(b)[0]]))
        most = longest_step(self.family.link, float(mean[0]))
        shorter: Array = b + (to - b) * min(1.0, most / max(self.rows.spread(to - b), 1e-300))
        return shorter

    def corrected(self, b: Array, to: Array) -> Array:
        """Where a step ends that corrects earlier ones: no far way off along any level.

        What predictors of a rare level's rows change by hardly shows in how all of them vary: they
        may change by as much as those of a level of half of the rows, which vary by half of it.
        """
        most, level = 2 * longest_step(self.family.link), between_0_and_1(self.design)
        if self.family.link == "identity" or not level.any():
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

    def rarer(self, b: Array) -> float:
        """Share of rows with the rarer answer, whose scores are long where it is small."""
        mean = float(self.family.mean(np.array([self.rows.predictor(b)[0]]))[0])
        return max(min(mean, 1 - mean), 1 / self.n)

    def edges(self, b: Array, clip: float) -> Array:
        """Lengths between the cells of their histogram; short scores are about as long as rows."""
        low, high = LEAST_LENGTH, _MOST_LENGTH
        if short_scores(self.design):
            eta = np.array([self.rows.predictor(b)[0]])
            clip = math.sqrt(b.size) * float(self.family.factor(eta)[0])
            # As many cells as for a rarer answer of a quarter of the rows.
            return clip * lengths_between(low * self.rarer(b), FAR_ROW, 4 * FAR_ROW)
        return clip * lengths_between(low, high, high)

    def bread(self, b: Array, clip: float) -> Bread:
        """Minus the derivative of the score: as released, averaged with what the model expects."""
        family, d, whitening = self.family, b.size, self.asks.w.T
        mean, sd = self.rows.predictor(b)
        away = sd * _normal_quantile(REACHED)
        steep = np.array([mean, mean + away, mean - away])
        roots = np.sqrt(family.curvature(steep) * d)
        grid = np.geomspace(0.7 * roots[0], FAR_ROW * roots.max(), 17)
        beta = self.asks.w @ b
        query = LengthQuantile(grid, 0.5, whitening, beta, "curvature", family)
        reached = resolved(REACHED, self.holder.plan, query, "steepest")
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
        then = [self.asks.score(b, clip, 0.0)] if asked_twice(self.design) else self.parts(b, clip)
        foresee(self.holder, [curvature, *then])
        drawn = self.drawn(curvature, "bread", b)
        return Bread(*drawn, max(leverage, self.leverage), b, float(radius))

    def there(self, bread: Bread, after: Array, clip: float) -> tuple[Bread, bool]:
        """The curvature where the last score was asked: as it changes, or asked again."""
        if not asked_twice(self.design):
            return super().there(bread, after, clip)
        query = self.asks.curvature(after, clip, bread.radius)
        matrix, variances, level = self.drawn(query, LAST_BREAD, after)
        again = bread._replace(matrix=matrix, variances=variances, level=level, at=after)
        return again, True

    def drawn(self, query: Query, slot: str, b: Array) -> tuple[Array, Array, float]:
        """A curvature at `b`, averaged with what the model expects, its variances and its level."""
        model = self.between(self.start, b).curvature(b)
        moments = self.found.metric.variances / self.n**2
        answer = self.holder.ask(query, slot)
        return drawn_to(answer.value, answer.noise.sd, model, moments)
