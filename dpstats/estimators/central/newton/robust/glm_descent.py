"""Newton steps on damped, clipped scores: what robust GLMs ask and makes of the answers.

The constants are public and enter after the noise: they cost accuracy where they are wrong, never
privacy.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dpstats.estimators.base import floor_eigenvalues
from dpstats.estimators.central.newton.conclusion import (
    Solution,
    clear_of_doubt,
    conclude,
    presumed_effect,
)
from dpstats.estimators.central.newton.likelihood import largest_sd, prior_sd
from dpstats.estimators.central.newton.remarks import (
    nearly_separated,
    not_at_rest,
    overdispersed,
    reported,
)
from dpstats.estimators.central.newton.robust.glm_law import (
    NormalPredictor,
    SolvedScore,
    Tuning,
    WeightedNormalRows,
    dispersion,
    pooled_steps,
    residual_quantile,
    tune,
)
from dpstats.estimators.central.newton.robust.tails import believed, rungs, wide_enough
from dpstats.estimators.central.newton.start import Start
from dpstats.estimators.central.newton.whitening import Metric, coordinates
from dpstats.estimators.central.sandwich import noisy_count
from dpstats.estimators.numerics.entrywise import average, operator_norm, symmetric_pattern
from dpstats.families import Family
from dpstats.protocol import CoefficientEstimate, Holder
from dpstats.queries import (
    Geometry,
    Gram,
    Query,
    ResidualMoment,
    ResidualQuantile,
    Score,
    ScoreOuter,
    TailSums,
)

if TYPE_CHECKING:
    from dpstats.design import Design

__all__ = ["GLMSchedule", "descend_glm"]

Array = NDArray[np.float64]

_FARTHEST = 5.0  # of the mean predictor from its start
_FIRST_SD = 0.7  # presumed before anything is known
_QUANTILE = {"poisson": 0.9, "gaussian": 0.7}  # of |residual|, for its scale
_TOLERATED = 1.25  # first residuals that exceed the model's by less count as the model's
_MOMENT_CLIP = 3.0  # of residuals for their mean square, in their standard deviations
_CLEARLY = 1.5  # standard deviations of noise at which counts are taken to be dispersed
_EVERYONE = 2.0**40  # a radius within which all rows are
_MOST_EXPLAINED = 0.8  # wording: spread of predictors over the largest that is allowed
_STEEPEST = 1.5  # the released curvature is cut off this many deviations above the mean predictor
_LEAST_CURVATURE = 0.1  # eigenvalues of a curvature are kept above this share of their mean
_ITERATIONS = 8
_FLOOR = 0.7
_LEAST_COUNT = 3.0  # clip of counts, at least, in their units
_CURVATURE_DOUBT = 0.05  # relative error of the model's curvature as a stand-in for the bread
_LEVEL_DOUBT, _LEVELS = 0.15, (0.2, 2.0)  # relative error of its level, and the range of that
_SHAPE_DOUBT = 0.3  # relative error of how it differs from the second moments
_BELIEVED = 0.5  # of the largest error of that bias
_MEAT_DOUBT = 0.1  # relative error of the bread as the shape of the meat


@dataclass(frozen=True)
class GLMSchedule:
    """Public numbers of a fit: what a plan decides and a fit follows.

    Attributes
    ----------
    shares : tuple of float
        Budget of each score.
    stretch : float
        Clipping radius of the last step over sqrt(d).
    blur : float
        Operator norm of the noise on the whitened Gram matrix, per row.
    adaptive : bool
        Whether noise leaves room to look at the tails of residuals.
    """

    shares: tuple[float, ...]
    stretch: float
    blur: float
    adaptive: bool


def descend_glm(holder: Holder[Query], public: GLMSchedule, design: Design) -> CoefficientEstimate:
    """Whiten, step, and conclude; see `dpstats.estimators.central.newton.robust.glm.RobustGLM`."""
    n = noisy_count(holder, len(design.names))
    level, offset = Start(holder, design, n)()
    metric, constant = coordinates(holder, design, n)
    descent = _GLMDescent(holder, public, design, metric, constant, n, level, offset)
    near = descent.approach()
    last = descent.last_step(near)
    solution = _solution(descent, near, last)
    effect = presumed_effect(design, solution.spread)
    found = conclude(solution, metric.w, effect)
    released = {
        "clip": last.tuning.clip,
        "damping level": last.tuning.family.level,
        "spread of linear predictors": near.law.sd,
        "radius": last.radius,
        "last step": clear_of_doubt(solution),
        **({"dispersion": near.spread.taken} if design.family.name == "poisson" else {}),
    }
    remarks = _remarks(descent, near, solution)
    return reported(found, design, holder.plan, n, released, remarks)


def _remarks(descent: _GLMDescent, near: _NearEta, solution: Solution) -> tuple[str, ...]:
    """What the released numbers say about the fit."""
    if descent.family.name != "binomial":
        return overdispersed(near.spread.taken) if descent.family.name == "poisson" else ()
    explained, most = descent.rows.explained(near.b).sd, largest_sd(descent.family.link)
    return (
        *not_at_rest(clear_of_doubt(solution)),
        *nearly_separated(explained, _MOST_EXPLAINED * most),
    )


# -- steps -------------------------------------------------------------------------------------


class _ResponseSpread(NamedTuple):
    """Spread of a normal response or dispersion of counts, and another that may be as true."""

    taken: float
    other: float


class _NearEta(NamedTuple):
    """After all steps but the last: coefficients in whitened coordinates, and what they imply.

    `solved` is the last of these steps, not shrunk.
    """

    b: Array
    law: NormalPredictor
    spread: _ResponseSpread
    solved: SolvedScore


class _LastScore(NamedTuple):
    """What the last step released; see `RobustGLM`."""

    tuning: Tuning
    radius: float
    score: Array
    noise: float
    bread: Array
    bread_noise: float
    meat: Array
    meat_noise: float


@dataclass(frozen=True, eq=False)
class _GLMDescent:
    """Newton steps for coefficients ``w b``; `constant` is the b of a constant predictor 1."""

    holder: Holder[Query]
    public: GLMSchedule
    design: Design
    metric: Metric
    constant: Array
    n: float
    level: float
    offset: NormalPredictor

    @property
    def family(self) -> Family:
        """Law of the response."""
        return self.design.family

    @property
    def top(self) -> float:
        """Public bound of the response."""
        low, high = self.design.internal_endog_bounds
        return max(abs(low), abs(high))

    @cached_property
    def rows(self) -> WeightedNormalRows:
        """Normal rows with the released moments; their mean is known with an intercept."""
        centre, cov, weight = self.metric.moments(self.constant)
        return WeightedNormalRows(centre, cov, weight, self.offset)

    def beta(self, b: Array) -> Array:
        """Coefficients in the design's internal coordinates."""
        beta: Array = self.metric.w @ b
        return beta

    def approach(self) -> _NearEta:
        """All steps but the last."""
        geometry = self.metric.geometry(math.sqrt(self.constant.size))
        b = self.level * self.constant
        law = NormalPredictor(self.level + self.offset.mean, math.hypot(_FIRST_SD, self.offset.sd))
        spread, solved = 0.0, SolvedScore(b, np.zeros((b.size, b.size)))
        for k in range(len(self.public.shares) - 1):
            spread = self.scale(k, b, law, spread).taken
            tuning = self.tuned(geometry, f"score {k + 1}", law, spread)
            query = Score(geometry, self.beta(b), tuning.clip, tuning.family)
            score, (_, noise) = self.holder.ask(query, f"score {k + 1}")
            curvature = self.n * self.curvature(b, tuning)
            to, slope = self.solve(score, b, curvature, self.n, tuning)
            inverse = np.linalg.inv(slope)
            solved = SolvedScore(to, noise**2 * inverse @ inverse)
            b = self.stepped(b, solved)
            law = self.rows.law(b)
        scale = self.scale(len(self.public.shares) - 1, b, law, spread)
        return _NearEta(b, law, scale, solved)

    def scale(self, k: int, b: Array, law: NormalPredictor, before: float) -> _ResponseSpread:
        """Spread of a normal response, dispersion of counts; see `Tuning`."""
        if self.family.name == "poisson":
            return self.dispersion(k, b, law, before) if k else self.first_dispersion(b, law)
        if self.family.name == "gaussian":
            expected = residual_quantile(self.family, law, _QUANTILE["gaussian"], 1.0)
            least, most = (before / 8, 2 * before) if k else (self.top * 2.0**-12, 2 * self.top)
            grid = expected * np.geomspace(least, most, 17 if k else 33)
            before = self.residual_quantile(k, b, grid) / expected
        return _ResponseSpread(before, before)

    def residual_quantile(self, k: int, b: Array, grid: Array) -> float:
        """A quantile of the residuals' size."""
        query = ResidualQuantile(grid, _QUANTILE[self.family.name], self.beta(b), self.family)
        (found,), _ = self.holder.ask(query, f"spread {k + 1}")
        return float(found)

    def first_dispersion(self, b: Array, law: NormalPredictor) -> _ResponseSpread:
        """Dispersion of counts whose size is not known yet, from a quantile of residuals."""
        expected = residual_quantile(self.family, law, _QUANTILE["poisson"], 0.0)
        grid = expected * np.geomspace(0.8, max(2 * self.top / expected, 2.0), 33)
        ratio = self.residual_quantile(0, b, grid) / expected
        mean = self.family.mean(law.eta)
        excess = ratio**2 - 1 if ratio > _TOLERATED else 0.0
        alpha = excess * float(law.average(mean) / law.average(mean**2))
        return _ResponseSpread(alpha, alpha)

    def dispersion(self, k: int, b: Array, law: NormalPredictor, before: float) -> _ResponseSpread:
        """Dispersion of counts, from the mean square of clipped residuals."""
        factor, mean = self.family.factor(law.eta), self.family.mean(law.eta)
        square = float(law.average(factor**2 * mean * (1 + before * mean)))
        least, most = _LEAST_COUNT * float(law.average(factor)), self.top * float(factor.max())
        clip = min(max(_MOMENT_CLIP * math.sqrt(square), least), most)
        everyone = self.metric.geometry(_EVERYONE)
        query = ResidualMoment(everyone, self.beta(b), clip, self.family)
        (total,), (_, noise) = self.holder.ask(query, f"spread {k + 1}")
        found, less, surely = (
            dispersion(self.family, law, clip, (float(total) - s * noise) / self.n)
            for s in (0.0, 1.0, _CLEARLY)
        )
        return _ResponseSpread(found, less) if surely > 0 else _ResponseSpread(0.0, found)

    def tuned(self, geometry: Geometry, slot: str, law: NormalPredictor, spread: float) -> Tuning:
        """Weight and clip of a step, for the noise that it will get."""
        noise = self.unit_noise(geometry, slot)
        return tune(self.family, law, noise**2 / self.n, spread, self.n)

    def unit_noise(self, geometry: Geometry, slot: str) -> float:
        """Scale of the noise on a score with clip 1; public."""
        unit = Score(geometry, np.zeros(self.constant.size), 1.0)
        return self.holder.plan.noise(unit, slot).scale

    def curvature(self, b: Array, tuning: Tuning) -> Array:
        """What the model expects of the derivative of a score at `b`, per row."""
        matrix = self.rows.expected(b, b, tuning)[1]
        return floor_eigenvalues(matrix, _LEAST_CURVATURE * float(np.trace(matrix)) / b.size)

    def solve(
        self, score: Array, b: Array, bread: Array, level: float, tuning: Tuning
    ) -> tuple[Array, Array]:
        """Coefficients at which this score at `b` is expected, and the derivative of that score.

        Linear in the step with the derivative `bread`, plus what the model of `level` rows says
        about how means bend between `b` and there. Newton's method, kept to predictors of a public
        size.
        """
        straight = bread - level * self.curvature(b, tuning)
        least = _LEAST_CURVATURE * float(np.trace(bread)) / b.size
        at, slope = b, bread
        for _ in range(_ITERATIONS):
            expected, bent = self.rows.expected(b, at, tuning)
            slope = floor_eigenvalues(straight + level * bent, least)
            gap = score - level * expected - straight @ (at - b)
            at = self.bounded(at + np.linalg.solve(slope, gap))
        return at, slope

    def stepped(self, b: Array, solved: SolvedScore) -> Array:
        """Coefficients after a step, shrunk by the size of its noise."""
        hidden = self.metric.unresolved
        step = solved.b - b
        step -= hidden @ (hidden.T @ step)
        # Positive-part James-Stein: the noise in the step has a known size.
        squared = float(np.trace(solved.cov))
        moved: Array = b + step * max(0.0, 1 - squared / max(float(step @ step), 1e-300))
        return moved

    def bounded(self, b: Array) -> Array:
        """Coefficients drawn back to where predictors vary by a public number at most."""
        limit = largest_sd(self.family.link)
        if self.family.link == "identity":  # predictors are in the units of the response
            return b
        law = self.rows.explained(b)
        varying = (b - law.mean * self.constant) * min(1.0, limit / max(law.sd, 1e-300))
        mean = np.clip(law.mean, self.level - _FARTHEST, self.level + _FARTHEST)
        drawn: Array = mean * self.constant + varying
        return drawn

    def last_step(self, near: _NearEta) -> _LastScore:
        """Ask for the last score, its bread and its meat."""
        d, beta = self.constant.size, self.beta(near.b)
        slot = f"score {len(self.public.shares)}"
        radius = math.sqrt(d) * self.public.stretch
        geometry = self.metric.geometry(radius)
        tuning = self.tuned(geometry, slot, near.law, near.spread.taken)
        tuning = self.widened(near, tuning, self.unit_noise(geometry, slot))
        family, clip = tuning.family, tuning.clip
        score, (_, noise) = self.holder.ask(Score(geometry, beta, clip, family), slot)
        # A binomial residual is never clipped; the bread then counts all rows.
        inside = None if family.name == "binomial" else clip
        steep = np.array([near.law.mean + s * near.law.sd for s in (0.0, _STEEPEST)])
        cap = min(family.largest_curvature, float(family.curvature(steep).max()))
        query = Gram(geometry, beta, inside, family, cap)
        bread, (_, bread_noise) = self.holder.ask(query, "bread")
        bread = bread + self.n * self.rows.cut_off(near.b, tuning, cap)
        outer = ScoreOuter(geometry, beta, clip, self.holder.plan.max_rows, family)
        meat, (_, meat_noise) = self.holder.ask(outer, "meat")
        inflate = self.n / max(self.n - d, 1.0)
        return _LastScore(
            tuning, radius, score, noise, bread, bread_noise, meat * inflate, meat_noise * inflate
        )

    def widened(self, near: _NearEta, tuning: Tuning, unit_noise: float) -> Tuning:
        """The last clip, widened until what it cuts off beyond the model is negligible."""
        if not self.public.adaptive:
            return tuning
        law = near.law
        top = self.top * float(np.max(tuning.family.factor(law.eta)))
        ladder = rungs(min(tuning.clip, top / 2), top)
        sums, (_, noise) = self.holder.ask(
            TailSums(self.beta(near.b), ladder, tuning.family), "tails"
        )
        if tuning.clip >= top:
            return replace(tuning, clip=top)
        # What the model itself leaves beyond a clip is taken off the score instead.
        each = [replace(tuning, clip=float(c)).moments(law.eta) for c in ladder]
        bias = np.array([law.average(m.bias) for m in each])
        cut = believed(sums - self.n * np.diff(bias) / np.diff(ladder), noise)
        square = float(law.average(each[0].square))
        clip, _ = wide_enough(ladder, cut, square, unit_noise, self.n)
        return replace(tuning, clip=clip)


# -- what it comes to --------------------------------------------------------------------------


def _bread(
    descent: _GLMDescent, near: _NearEta, last: _LastScore
) -> tuple[Array, Array, float, float]:
    """What was released, averaged with what the model expects; its variances, level and size."""
    metric, n, d = descent.metric, descent.n, len(last.bread)
    pattern = symmetric_pattern(d)
    model = descent.curvature(near.b, last.tuning)
    total = n * float(np.trace(model))
    trust = 1 / (1 + (last.bread_noise * math.sqrt(d) / (_LEVEL_DOUBT * total)) ** 2)
    ratio = float(np.clip(np.trace(last.bread) / total, *_LEVELS))
    level = n * (1 + trust * (ratio - 1))
    size = float(np.trace(model)) / d
    doubt = (_CURVATURE_DOUBT * size * last.radius**2 / d) ** 2 * pattern
    shape = model - float(np.trace(model) / np.trace(metric.curvature)) * metric.curvature
    doubt = doubt + (_SHAPE_DOUBT * shape) ** 2
    prior = level**2 * (size**2 * metric.variances / n**2 + doubt)
    prior += last.bread_noise**2 / d * np.eye(d)
    bread, variances = average(last.bread, last.bread_noise**2 * pattern, level * model, prior)
    return bread, variances, level, size


def _solution(descent: _GLMDescent, near: _NearEta, last: _LastScore) -> Solution:
    """The last step, and what it rests on."""
    bread, variances, level, size = _bread(descent, near, last)
    noise = operator_norm(variances)
    floored = floor_eigenvalues(bread, min(_FLOOR * noise, level * size / 2))
    to, slope = descent.solve(last.score, near.b, floored, level, last.tuning)
    inverse = np.linalg.inv(slope)
    solved = SolvedScore(to, last.noise**2 * inverse @ inverse)
    if descent.family.name == "binomial":  # others clip, and the two scores differ in their target
        blurred = inverse @ np.diag(variances @ (to - near.b) ** 2) @ inverse
        solved = pooled_steps(near.solved, solved, float(np.trace(blurred)))

    # What the model says of the clip's bias was taken off, and is not quite believed.
    bias, _ = descent.rows.expected(near.b, near.b, last.tuning)
    other = replace(last.tuning, spread=near.spread.other)
    changed = descent.rows.expected(near.b, near.b, other)[0] - bias
    doubts = np.array([_BELIEVED * last.tuning.distrust * bias, changed])
    return Solution(
        at=near.b,
        step=solved.b - near.b,
        bread=bread + slope - floored,
        variances=variances,
        meat=_meat(last, slope, variances),
        noise=float(np.trace(solved.cov) / np.trace(inverse @ inverse)),
        allowed=level**2 * doubts.T @ doubts,
        level=level * size,
        spread=prior_sd(descent.family.link),
        start=descent.level * descent.constant,
    )


def _meat(last: _LastScore, bread: Array, variances: Array) -> Array:
    """The meat: its level as released, its shape averaged with that of the bread."""
    d, pattern = len(bread), symmetric_pattern(len(bread))
    ratio = float(np.trace(last.meat)) / float(np.trace(bread))
    ratio = max(ratio, last.meat_noise / math.sqrt(d) / float(np.trace(bread)) * d)
    doubt = (_MEAT_DOUBT * ratio * np.trace(bread) / d) ** 2 * pattern + ratio**2 * variances
    meat, _ = average(last.meat, last.meat_noise**2 * pattern, ratio * bread, doubt)
    values, vectors = np.linalg.eigh(meat)
    positive: Array = (vectors * np.maximum(values, 0.0)) @ vectors.T
    return positive
