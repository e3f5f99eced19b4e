"""The maximum of the likelihood by Newton steps on scores whose length is clipped.

The constants are public and enter after the noise: they cost accuracy where they are wrong, never
privacy.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dpstats.estimators.base import floor_eigenvalues
from dpstats.estimators.central.newton import dispersion
from dpstats.estimators.central.newton.budget import (
    ALLOWED,
    CLEAR,
    COUNTS,
    EARLY,
    believed_bias,
    between_0_and_1,
    blur,
    last_noise,
    peels,
    resolved,
    short_scores,
)
from dpstats.estimators.central.newton.conclusion import EFFECT, Conclusion, Solution, conclude
from dpstats.estimators.central.newton.curvature import drawn_to
from dpstats.estimators.central.newton.normal_rows import NormalRows
from dpstats.estimators.central.newton.parts import Asked, Whole, pooled, whole
from dpstats.estimators.central.newton.remarks import far_out, not_identified, off_model, presumed
from dpstats.estimators.central.newton.start import Start
from dpstats.estimators.central.newton.tail_law import TailLaw
from dpstats.estimators.central.newton.whitening import Metric, whiten
from dpstats.estimators.central.sandwich import noisy_count
from dpstats.estimators.guesses import response_grid
from dpstats.estimators.numerics.entrywise import average, operator_norm, symmetric_pattern
from dpstats.families import GAUSSIAN, Family
from dpstats.protocol import CoefficientEstimate, Holder
from dpstats.queries import (
    LengthQuantile,
    NormCount,
    NormHistogram,
    Query,
    ResponseQuantile,
    ScoreCurvature,
    ScoreSquares,
    Search,
    WhitenedScore,
)

if TYPE_CHECKING:
    from dpstats.design import Design

__all__ = ["PRIOR_SD", "maximize"]

Array = NDArray[np.float64]

_EARLY_QUANTILE, _NORMAL = 0.85, 1.44  # of lengths, for early clips; of a normal number's size
_EARLY_KEPT = 0.75  # slope of early scores, as a share of the whole one's
_BINOMIAL = 1.2  # clip of early binomial scores, in typical lengths of rows
_WIDEST = 2.0**-20  # shortest length, in units of the longest, that the first clip may have
_LEAST_SHARE = 0.002  # of rows with the rarer answer
_CELLS, _CELLS_SHORT = 40, 28  # of the histogram of lengths, in number; where scores are short
_AROUND = (0.25, 256.0)  # its ends, in early clips
_WHITENED_REACH = 0.95  # rows that the second Gram matrix should count in full
_REACHED, _FARTHEST_ROW = 0.995, 4.0  # rows that the curvature should count in full
_STEEPEST = 2.5  # standard deviations of the linear predictor
_LEAST_MEAT_CLIP, _MEAT_MISPLACED = 0.1, 0.5  # of squares beyond their clip, the share misplaced
_BETWEEN, _MOST_BETWEEN = 1.5, 0.3  # curvature between both clips, over the share of rows there
_FARTHEST_LEAN = 3.0  # what is beyond the clip over what is seen of it, at most
_LEAN_DOUBT = 0.5  # square of its relative error
_MOST_BEND = 0.5  # change of a step by the bend of means, over its length
_MOST_GROWN = 1.5  # change of the curvature on the last step
_LEAST_CURVATURE, _FLOOR = 0.15, 0.5  # eigenvalues of a late step: of their mean, of noise
_MEAT_DOUBT = 0.3  # relative error of the bread as the shape of the meat
# Standard deviations of linear predictors, at most and before anything is known.
LARGEST_SD = {"logit": 6.0, "probit": 3.5, "log": 2.5, "cloglog": 2.5, "identity": 2.0}
PRIOR_SD = {"logit": 2.0, "probit": 1.2, "log": 1.0, "cloglog": 1.2}
_FARTHEST = 5.0  # of the mean predictor from its start


def maximize(holder: Holder[Query], design: Design) -> CoefficientEstimate:
    """Whiten, step, choose the clip, step twice, and conclude."""
    n = noisy_count(holder, len(design.names))
    level, offset_mean, offset_sd = _start(holder, design, n)
    low, high = np.asarray(design.internal_bounds, dtype=np.float64).T
    indicators = ((low == 0) & (high == 1)).astype(np.float64)
    plan = holder.plan
    # As far as noise on the matrix stays small: it grows with the square of the radius.
    farthest = math.sqrt(max(1.0, CLEAR / blur(design, plan.privacy, plan.n)))
    metric = whiten(holder, n, indicators, design.norm_bound, (_WHITENED_REACH, farthest))
    d = len(design.names)
    constant = np.zeros(d)
    if design.standardization.intercept is not None:
        constant = np.linalg.solve(metric.w, np.eye(d)[design.standardization.intercept])
    total = metric.curvature @ constant
    weight = float(constant @ total) or 1.0
    mass = n if design.weights is None else n * max(weight, 0.1)
    centre = total / weight
    cov = floor_eigenvalues(metric.curvature / weight - np.outer(centre, centre), 0.0)
    rows = NormalRows(design.family, centre, cov, offset_mean, offset_sd)
    return _Climb(holder, design, metric, rows, constant, level, n, mass).fit()


def _start(holder: Holder[Query], design: Design, n: float) -> tuple[float, float, float]:
    """Constant linear predictor to start from, and mean and standard deviation of the offset."""
    if design.family != GAUSSIAN:
        level, offset = Start(holder, design, n)()
        return level, offset.mean, offset.sd
    if not design.has_intercept:
        return 0.0, 0.0, 0.0
    (median,), _ = holder.ask(Search(ResponseQuantile(response_grid(design), 0.5)), "median")
    return float(median), 0.0, 0.0


def solved(matrix: Array, vector: Array) -> Array:
    """The solution of a linear system."""
    solution: Array = np.asarray(np.linalg.solve(matrix, vector), dtype=np.float64)
    return solution


def _beyond(law: TailLaw, clip: float, score: Whole) -> tuple[Array, Array]:
    """What the clip leaves out of a score, extrapolated, and the variance allowed for it."""
    excess, nearer = (float(np.interp(c, law.clips, law.excess())) for c in (clip, clip / 2))
    beyond = min(_FARTHEST_LEAN, excess / max(nearer - excess, 1e-300)) * score.lean
    allowed = ALLOWED * excess**2 * np.eye(beyond.size)
    return beyond, allowed + _LEAN_DOUBT * np.outer(beyond, beyond)


class _Bread(NamedTuple):
    """A curvature, its entry variances, its mean eigenvalue, and how far out rows lie."""

    matrix: Array
    variances: Array
    level: float
    leverage: float


@dataclass(frozen=True, eq=False)
class _Climb:
    """Newton steps for coefficients ``w b``; `constant` is the b of a constant predictor 1."""

    holder: Holder[Query]
    design: Design
    metric: Metric
    rows: NormalRows
    constant: Array
    level: float
    n: float
    mass: float  # sum of the internal weights: n where there are none

    def fit(self) -> CoefficientEstimate:
        """All steps; a dispersion is first released after the early ones."""
        b, clip, spread = self.early()
        if not self.family.released:
            return self.later(b, clip, spread)
        law = dispersion.first(self.holder, self.design, self.rows, self.metric.w, b, self.n)
        return replace(self, rows=replace(self.rows, family=law)).later(b, clip, spread)

    def later(self, b: Array, clip: float, spread: float) -> CoefficientEstimate:
        """All steps that are taken once the clip of the early ones is known."""
        law, b = self.tails(b, clip)
        clip = law.best(last_noise(self.holder.plan, self.design), believed_bias(self.family))
        between = (law.number(clip / 2) - law.number(clip)) / self.n
        share = min(_MOST_BETWEEN, _BETWEEN * between)

        peeled = peels(self.design)
        bread = self.bread(b, clip)
        first = self.last(0, b, clip)
        score = whole(first, bread.matrix, share, peeled)
        b = self.bounded(b + self.late_step(b, score, bread))
        second = self.last(1, b, clip)
        bread = self.carried(bread, first.at, second.at)
        both = pooled(first, second, bread.matrix)
        score = whole(both, bread.matrix, share, peeled)
        meat = self.meat(b, clip, law, bread.matrix) * self.n / max(self.n - b.size, 1.0)

        beyond, allowed = _beyond(law, clip, score)
        solution = Solution(
            at=both.at,
            step=self.bent(both.at, solved(bread.matrix, score.total + beyond)),
            bread=bread.matrix,
            variances=bread.variances,
            meat=meat,
            noise=score.variance,
            allowed=allowed,
            level=bread.level,
            spread=spread,
            start=self.level * self.constant,
        )
        found = conclude(solution, self.metric.w, self.effect(spread))
        said = {
            "clip": clip,
            "scores beyond the clip": min(law.number(clip), self.n),
            "lean of long scores": float(np.linalg.norm(beyond)) / math.sqrt(score.variance),
            "leverage": bread.leverage,
        }
        if self.design.family.released:
            said |= dispersion.last(
                self.holder, self.design, self.rows, self.metric.w, found, self.n
            )
        return self.reported(found, said)

    def reported(self, found: Conclusion, said: dict[str, float]) -> CoefficientEstimate:
        """The estimate, with what was released beside it and what that says of the fit."""
        hidden = presumed(found, self.design)
        return CoefficientEstimate(
            params=found.params,
            cov=found.cov,
            cov_privacy=found.cov_privacy,
            cov_sampling=found.cov_sampling,
            of_these_rows=True,
            nobs=self.n,
            released=said,
            remarks=(
                *not_identified(hidden, found.short, self.holder.plan),
                *off_model(said["lean of long scores"], said["leverage"]),
            ),
            not_identified=hidden,
        )

    def effect(self, spread: float) -> Array:
        """Standard deviation presumed of coefficients of columns between 0 and 1; inf of others."""
        unit = self.design.standardization.x_scale
        effect: Array = np.where(between_0_and_1(self.design), EFFECT * spread * unit, np.inf)
        return effect

    def late_step(self, b: Array, score: Whole, bread: _Bread) -> Array:
        """A step by the released curvature, shrunk by the size of its noise as early ones are."""
        squared = max(float(score.total @ score.total), 1e-300)
        kept = max(0.0, 1 - b.size * score.variance / squared)
        least = max(_LEAST_CURVATURE * bread.level, _FLOOR * operator_norm(bread.variances))
        return self.bent(b, solved(floor_eigenvalues(bread.matrix, least), kept * score.total))

    def carried(self, bread: _Bread, before: Array, after: Array) -> _Bread:
        """The curvature at another place, changed as the model's is."""
        there, here = self.rows.curvature(before), self.rows.curvature(after)
        grown = float(np.trace(here) / np.trace(there))
        if not 1 / _MOST_GROWN <= grown <= _MOST_GROWN:  # the model knows little of so long a step
            factor = float(np.clip(grown, 1 / _MOST_GROWN, _MOST_GROWN))
            return bread._replace(matrix=factor * bread.matrix, level=factor * bread.level)
        unit = bread.level * before.size / float(np.trace(there))
        return bread._replace(
            matrix=bread.matrix + unit * (here - there), level=grown * bread.level
        )

    @property
    def family(self) -> Family:
        """Law of the response; its dispersion is the one released first, once it was."""
        return self.rows.family

    def bent(self, at: Array, step: Array) -> Array:
        """A step as far as the means of normal rows bend on its way, unless that is far off it."""
        if self.family == GAUSSIAN:
            return step
        straight = self.rows.curvature(at) @ step
        found: Array = self.rows.to(at, straight) - at
        far = np.linalg.norm(found - step) > _MOST_BEND * np.linalg.norm(step)
        return step if far else found

    # -- before the clip is known -----------------------------------------------------------

    def early(self) -> tuple[Array, float, float]:
        """Two steps at a clip of most lengths; the last one, and the spread of the response."""
        d = self.constant.size
        b, clip = self.level * self.constant, 0.0
        spread = PRIOR_SD.get(self.family.link, 1.0)
        for k in range(len(EARLY)):
            clip = self.early_clip(k, b, clip)
            if k == 0 and self.family == GAUSSIAN:
                spread = clip / (_NORMAL * math.sqrt(d))
            score, noise = self.score(f"early score {k + 1}", b, clip)
            b = self.stepped(b, score, noise, _EARLY_KEPT)
        return b, clip, spread

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
            grid, _EARLY_QUANTILE, self.metric.w.T, self.metric.w @ b, "score", family
        )
        (clip,), _ = self.holder.ask(Search(query), f"length {k + 1}")
        return float(clip)

    def score(self, slot: str, b: Array, clip: float, inner: float = 0.0) -> tuple[Array, float]:
        """A noisy score at `b`, and the standard deviation of its noise."""
        query = WhitenedScore(self.metric.w.T, self.metric.w @ b, clip, inner, self.family)
        answer = self.holder.ask(query, slot)
        return answer.value, answer.noise.sd

    def stepped(self, b: Array, score: Array, noise: float, kept: float) -> Array:
        """Coefficients after a step, shrunk by the size of its noise (positive-part James-Stein).

        `kept` is the slope of the clipped score as a share of that of the whole.
        """
        squared = max(float(score @ score), 1e-300)
        d = b.size if kept == 1.0 else max(b.size - 2, 0)
        shrunk = score * max(0.0, 1 - d * noise**2 / squared)
        return self.bounded(self.rows.to(b, shrunk / (kept * self.mass)))

    def bounded(self, to: Array) -> Array:
        """Coefficients drawn back to where predictors vary by a public number at most."""
        limit = LARGEST_SD.get(self.family.link)
        if limit is None:
            return to
        mean = float(self.rows.centre @ to)
        varying = (to - mean * self.constant) * min(1.0, limit / max(self.rows.spread(to), 1e-300))
        held = np.clip(mean, self.level - _FARTHEST, self.level + _FARTHEST)
        drawn: Array = held * self.constant + varying
        return (
            drawn
            if self.constant.any()
            else to * min(1.0, limit / max(self.rows.spread(to), 1e-300))
        )

    # -- the clip ---------------------------------------------------------------------------

    def tails(self, b: Array, clip: float) -> tuple[TailLaw, Array]:
        """What is known of long scores, and coefficients after a step on the way."""
        family, whitening = self.family, self.metric.w.T
        edges = self.edges(b, clip)
        query = NormHistogram(whitening, self.metric.w @ b, edges, True, family)
        answer = self.holder.ask(query, "lengths")
        least = self.holder.plan.noise(
            NormCount(whitening, self.metric.w @ b, 1.0, family), "beyond 1"
        ).sd * math.sqrt(COUNTS[0])
        least = max(least, 1.0)  # a row is a row
        law = TailLaw.of_histogram(
            answer.value,
            answer.noise.sd,
            edges,
            self.n,
            least,
            self.rarer(b),
            short_scores(self.design),
        )
        noise = last_noise(self.holder.plan, self.design)
        believed = believed_bias(family)
        for k in range(len(COUNTS)):
            clip = law.best(noise, believed)
            count = self.holder.ask(
                NormCount(whitening, self.metric.w @ b, clip, family), f"beyond {k + 1}"
            )
            law = law.counted(clip, float(count.value[0]), count.noise.sd)
            if k == 0:
                score, spread = self.score("middle score", b, law.best(noise, believed))
                b = self.stepped(b, score, spread, 1.0)
        return law, b

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

    # -- the last two steps -----------------------------------------------------------------

    def last(self, k: int, b: Array, clip: float) -> Asked:
        """One of the last two scores."""
        inner, noise = self.score(f"inner score {k + 1}", b, clip / 2)
        outer, outer_noise = self.score(f"outer score {k + 1}", b, clip, clip / 2)
        return Asked(b, inner, noise, outer, outer_noise)

    def bread(self, b: Array, clip: float) -> _Bread:
        """Minus the derivative of the score: as released, averaged with what the model expects."""
        family, d, whitening = self.family, b.size, self.metric.w.T
        mean, sd = self.rows.predictor(b)
        steep = np.array([mean, mean + _STEEPEST * sd, mean - _STEEPEST * sd])
        roots = np.sqrt(family.curvature(steep) * d)
        grid = np.geomspace(0.7 * roots[0], _FARTHEST_ROW * roots.max(), 17)
        beta = self.metric.w @ b
        query = Search(LengthQuantile(grid, 0.5, whitening, beta, "curvature", family))
        reached = resolved(_REACHED, self.holder.plan, query, "steepest")
        query = replace(query, quantile=replace(query.quantile, q=reached))
        (radius,), _ = self.holder.ask(query, "steepest")
        question = ScoreCurvature(whitening, beta, clip, float(radius), family)
        answer = self.holder.ask(question, "bread")

        matrix, variances, level = drawn_to(
            answer.value,
            answer.noise.sd,
            self.rows.curvature(b),
            self.metric.variances / self.n**2,
        )
        missed = self.holder.plan.noise(query, "steepest").sd / self.n
        leverage = far_out(float(radius) / float(roots.max()), reached, missed, d)
        return _Bread(matrix, variances, level, leverage)

    def meat_clip(self, clip: float, law: TailLaw, unit: float) -> float:
        """Clip of squares: the least noise, `unit` at clip 1, and misplaced squares beyond it."""
        clips = clip * np.geomspace(_LEAST_MEAT_CLIP, 1.0, 25)
        left = np.array([law.squares(float(c), clip) for c in clips]) / self.constant.size
        error = (unit * clips**2) ** 2 + (_MEAT_MISPLACED * left) ** 2
        return float(clips[np.argmin(error)])

    def meat(self, b: Array, clip: float, law: TailLaw, bread: Array) -> Array:
        """Sum of squares of scores: as released, averaged with the shape of the bread.

        A row that stands for w others adds w times the square of the score of one of them.
        """
        d, rows = b.size, self.holder.plan.max_rows
        weights = self.design.weights
        each = weights is not None and weights.kind == "frequency" and rows == 1
        query = ScoreSquares(self.metric.w.T, self.metric.w @ b, 1.0, rows, self.family, each)
        low = self.meat_clip(clip, law, self.holder.plan.noise(query, "meat").sd)
        query = replace(query, clip=low)
        answer = self.holder.ask(query, "meat")
        meat, noise = answer.value, answer.noise.sd
        trace = max(float(np.trace(meat)), noise)
        meat = meat * (1 + max(0.0, law.squares(low, clip)) / trace)
        trace = max(float(np.trace(meat)), noise)
        ratio = trace / float(np.trace(bread))
        doubt = np.full((d, d), (_MEAT_DOUBT * trace / d) ** 2)
        meat, _ = average(meat, noise**2 * symmetric_pattern(d), ratio * bread, doubt)
        unit = 1.0 if weights is None or not each else 1 / weights.scale
        return unit * floor_eigenvalues(meat, 0.1 * trace / d)
