"""Newton steps on clipped scores: what robust OLS asks a holder and makes of the answers.

The constants are public and enter after the noise: they cost accuracy where they are wrong, never
privacy. They were chosen by simulation on uniform, normal, log-normal and 0/1 columns with normal,
t(4), heteroskedastic and skewed errors.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from dpstats.estimators.central.newton.conclusion import (
    Conclusion,
    Solution,
    conclude,
    presumed_effect,
)
from dpstats.estimators.central.newton.remarks import reported
from dpstats.estimators.central.newton.robust.tails import believed, rungs, wide_enough
from dpstats.estimators.central.newton.whitening import Metric, indicators, whiten
from dpstats.estimators.central.sandwich import noisy_count
from dpstats.estimators.guesses import response_bound, response_grid
from dpstats.estimators.numerics.entrywise import average, symmetric_pattern
from dpstats.estimators.numerics.huber import NORMAL_QUANTILE, slope_by_length, unclipped
from dpstats.protocol import CoefficientEstimate, Holder
from dpstats.queries import (
    Gram,
    Query,
    ResidualCount,
    ResidualQuantile,
    ResponseQuantile,
    Score,
    ScoreOuter,
    ScoreSlope,
    ScoreSquares,
    TailSums,
    WhitenedScore,
)

if TYPE_CHECKING:
    from dpstats.design import Design

__all__ = ["Schedule", "descend_linear", "first_spread"]

Array = NDArray[np.float64]

_SPREAD = 0.7  # quantile of |residual| whose log is least disturbed by noisy counts
_LEAST_CLIP = 2.0**-7  # least clip, in halves of the response's range, or
_WIDE = 8.0  # scales of the response, where the half is wider
_BALL = 1.2  # fitted values are kept within this many spreads of the response
_CURVATURE_DOUBT = 0.05  # relative error of the curvature as a stand-in for the bread
_MOST_JITTER = 0.4  # noise of a comparison above which a search finds little
_SAME_CLIP = 1.2  # factor between clips of the last two scores up to which they are pooled
_REACHED = 0.95  # share of rows that are counted in full
_FAR_AWAY = 6.0  # spreads beyond which residuals are counted
_FULL = 1.5  # ratio: longest rows that the bread counts in full to sqrt(d), where noise dominates


@dataclass(frozen=True)
class Schedule:
    """Public numbers of a fit: what a plan decides and a fit follows.

    Attributes
    ----------
    shares : tuple of float
        Budget of each score.
    clips : tuple of float
        Clip of each step, in spreads of the residuals.
    farthest : float
        Largest radius of the rows that count in full, over sqrt(d).
    noise : float
        Variance of the noise of both last scores together, at clip 1, per row.
    moments : float
        Share of their usual budget that both Gram matrices take.
    counts : float
        Share of their usual budget that counts and searches take.
    blur : float
        Operator norm of the noise on the whitened Gram matrix, per row.
    jitter : float
        Standard deviation of one noisy comparison, per row.
    adaptive : bool
        Whether the last clip is chosen from a release of its own. Else noise dominates: scores are
        clipped by their length, since the direction of a row is nearly all that a score can tell.
    """

    shares: tuple[float, ...]
    clips: tuple[float, ...]
    farthest: float
    noise: float
    moments: float
    counts: float
    blur: float
    jitter: float
    adaptive: bool

    @property
    def shortage(self) -> float:
        """By how much n or epsilon is too small to see anything."""
        return max(self.blur / 3, self.jitter / _MOST_JITTER)


def first_spread(bound: float, beta: Array) -> ResidualQuantile:
    """The search of the first step, which knows no more of residuals than their public bound."""
    return ResidualQuantile(np.geomspace(2.0**-15 * bound, 2 * bound, 33), _SPREAD, beta)


def descend_linear(holder: Holder[Query], public: Schedule, design: Design) -> CoefficientEstimate:
    """Whiten, step, and conclude; see `dpstats.estimators.central.newton.robust.ols.RobustOLS`.

    Parameters
    ----------
    holder : Holder
        The holder and its plan.
    public : Schedule
        What the plan decided.
    design : Design
        Public design.
    """
    n = noisy_count(holder, len(design.names))
    start = _start(holder, design)
    reach = (_REACHED, public.farthest) if public.adaptive else None
    metric = whiten(holder, n, indicators(design), design.norm_bound, reach)
    descent = _LinearDescent(holder, design, public, metric, start, n, response_bound(design))
    near = descent.approach()
    last = descent.last_step(near)
    found = _conclude(descent, near, last)
    found = found.moved(descent.shrunk(found))
    found = found._replace(params=start + found.params)
    released = {
        "clip": last.score.clip,
        "residual sd": last.sd,
        "share beyond six spreads": last.far,
        "radius": metric.radius,
    }
    remarks = _remarks(near, last)
    return reported(found, design, holder.plan, n, released, remarks)


def _start(holder: Holder[Query], design: Design) -> Array:
    """Zero, but the private median of the response for the intercept; shape (d,)."""
    start = np.zeros(len(design.names))
    intercept = design.standardization.intercept
    if intercept is not None:
        query = ResponseQuantile(response_grid(design), 0.5)
        (start[intercept],), _ = holder.ask(query, "median")
    return start


@dataclass(frozen=True, eq=False)
class _ReleasedScore:
    """A released score: the coefficients it was asked at, its noise and its clip."""

    at: Array
    total: Array
    noise: float
    clip: float


@dataclass(frozen=True, eq=False)
class _NearFit:
    """After all steps but the last: coefficients in whitened coordinates, spreads, last score."""

    b: Array
    spread: float
    response_spread: float
    score: _ReleasedScore


@dataclass(frozen=True, eq=False)
class _LastStep:
    """What the last step released; see `RobustOLS`."""

    score: _ReleasedScore
    sd: float
    far: float
    far_noise: float
    kept: float
    bread: Array
    bread_noise: float
    meat: Array


@dataclass(frozen=True, eq=False)
class _LinearDescent:
    """Newton steps for coefficients ``start + w b``."""

    holder: Holder[Query]
    design: Design
    public: Schedule
    metric: Metric
    start: Array
    n: float
    bound: float

    def beta(self, b: Array) -> Array:
        """Coefficients in the design's internal coordinates."""
        beta: Array = self.start + self.metric.w @ b
        return beta

    def approach(self) -> _NearFit:
        """All steps but the last."""
        d = self.start.size
        inverse, hidden = self.metric.inverse, self.metric.unresolved
        b, spread = np.zeros(d), 0.0
        widest = self.bound
        for k, c in enumerate(self.public.clips[:-1]):
            spread = self.spread(k, b, spread)
            if k == 0:
                widest = min(self.bound, spread)
            clip = self.clipped_at(c, spread)
            query = self.clipped_score(self.beta(b), clip, math.sqrt(d))
            score, (_, noise) = self.holder.ask(query, f"score {k + 1}")
            scored = _ReleasedScore(b, score, noise, clip)
            scale = self.n * self.slope(max(c, clip / spread))
            step = inverse @ score / scale
            # Positive-part James-Stein: the noise in the step has a known size.
            squared = float((inverse**2).sum()) * (noise / scale) ** 2
            step *= max(0.0, 1 - squared / max(float(step @ step), 1e-300))
            b = self.bounded(b + step - hidden @ (hidden.T @ step), widest, math.sqrt(squared))
        spread = self.spread(len(self.public.clips) - 1, b, spread)
        return _NearFit(b, spread, widest, scored)

    def spread(self, k: int, b: Array, before: float) -> float:
        """Standard deviation that a normal residual with this 70 % quantile of |r| would have."""
        beta, quantile = self.beta(b), before * NORMAL_QUANTILE[_SPREAD]
        query = first_spread(self.bound, beta)
        if k > 0:
            query = replace(query, candidates=np.geomspace(quantile / 8, 2 * quantile, 9))
        (found,), _ = self.holder.ask(query, f"spread {k + 1}")
        return float(found) / NORMAL_QUANTILE[_SPREAD]

    def slope(self, c: float) -> float:
        """Slope of a score of normal residuals clipped at `c` spreads, over the curvature."""
        d = self.start.size
        return float(unclipped(c)) if self.public.adaptive else slope_by_length(c, d)

    def clipped_score(self, beta: Array, clip: float, radius: float) -> Query:
        """Rows at most `radius` long times residuals clipped, or scores of at most that length."""
        if self.public.adaptive:
            return Score(self.metric.geometry(radius), beta, clip)
        return WhitenedScore(self.metric.w.T, beta, clip * math.sqrt(beta.size))

    def clipped_at(self, c: float, spread: float) -> float:
        """A clip of `c` spreads, within the public range and not negligible in it."""
        return min(2 * self.bound, max(c * spread, _LEAST_CLIP * min(self.bound, _WIDE)))

    def bounded(self, b: Array, spread: float, error: float) -> Array:
        """Coefficients drawn back to where fitted values vary by 1.2 `spread` at most.

        But no further than an error of this size explains: `spread` comes from a quantile, and
        fitted values vary by more where a few rows differ much from the rest.
        """
        size = math.sqrt(float(b @ self.metric.curvature @ b))
        return b * min(1.0, max(_BALL * spread, size - error) / max(size, 1e-300))

    def last_step(self, near: _NearFit) -> _LastStep:
        """Ask for the last score, its bread and its meat."""
        d, beta, last = self.start.size, self.beta(near.b), len(self.public.clips)
        geometry = self.metric.geometry(self.metric.radius)
        unit = Score(geometry, beta, 1.0)
        unit_noise = self.holder.plan.noise(unit, f"score {last}").scale
        clip, sd = self.widened(near, beta, unit_noise)
        query = self.clipped_score(beta, clip, self.metric.radius)
        score, (_, noise) = self.holder.ask(query, f"score {last}")
        far_away = min(_FAR_AWAY * near.spread, 2 * self.bound)
        inside, (_, far_noise) = self.holder.ask(ResidualCount(geometry, beta, far_away), "far")
        bread, bread_noise = self.bread(beta, clip)
        meat = self.meat(beta, clip, bread)
        return _LastStep(
            score=_ReleasedScore(near.b, score, noise, clip),
            sd=sd,
            far=min(max(1 - float(inside[0]) / self.n, 0.0), 1.0),
            far_noise=far_noise / self.n,
            kept=float(unclipped(max(self.public.clips[-1], clip / near.spread))),
            bread=bread,
            bread_noise=bread_noise,
            meat=meat * self.n / max(self.n - d, 1.0),
        )

    def bread(self, beta: Array, clip: float) -> tuple[Array, float]:
        """Minus the derivative of the last score, and its noise.

        Where noise dominates, the curvature at the level that is released.
        """
        radius, d = self.metric.radius, beta.size
        if self.public.adaptive:
            query: Query = Gram(self.metric.geometry(radius), beta, clip)
            answer = self.holder.ask(query, "bread")
            return answer.value, answer.noise.scale
        typical = math.sqrt(d)
        query = ScoreSlope(self.metric.w.T, beta, clip * typical, _FULL * typical)
        (trace,), (_, noise) = self.holder.ask(query, "slope")
        level = max(float(trace), noise) / float(np.trace(self.metric.curvature))
        bread: Array = level * self.metric.curvature
        return bread, noise / math.sqrt(d)

    def meat(self, beta: Array, clip: float, bread: Array) -> Array:
        """Squares of the last score; where noise dominates, what its short clip makes of them.

        Of scores with a share p within a clip C that is short against their spread, squares add up
        to n C^2 (1 - 2 p / 3), as lengths within it are about uniform.
        """
        rows, curvature = self.holder.plan.max_rows, self.metric.curvature
        if self.public.adaptive:
            geometry = self.metric.geometry(self.metric.radius)
            return self.holder.ask(ScoreOuter(geometry, beta, clip, rows), "meat").value
        length, whole = clip * math.sqrt(beta.size), float(np.trace(curvature))
        if rows > 1:  # those of a person may err together
            return self.holder.ask(ScoreSquares(self.metric.w.T, beta, length, rows), "meat").value
        within = min(max(float(np.trace(bread)) / (self.n * whole), 0.0), 1.0)
        squares: Array = self.n * length**2 * (1 - 2 * within / 3) / whole * curvature
        return squares

    def shrunk(self, found: Conclusion) -> Array:
        """Steps drawn to none (positive-part James-Stein) where no spread is there to rely on."""
        if self.public.jitter <= _MOST_JITTER:
            return found.params
        inverse = np.linalg.inv(self.metric.w)
        b, noise = inverse @ found.params, float(np.trace(inverse @ found.cov @ inverse.T))
        drawn: Array = found.params * max(0.0, 1 - noise / max(float(b @ b), 1e-300))
        return drawn

    def widened(self, near: _NearFit, beta: Array, unit_noise: float) -> tuple[float, float]:
        """The last clip and the standard deviation of residuals clipped there.

        A ladder of clips leads from the efficient one to the public range. Where the sums of what
        they cut off stand out from their noise, residuals are skewed, and the clip is widened until
        the mean beyond it is below 0.6 standard errors of a whitened coefficient. `unit_noise` is
        the noise of the last score per unit of its clip.
        """
        top, n = 2 * self.bound, self.n
        clip = self.clipped_at(self.public.clips[-1], near.spread)
        if not self.public.adaptive:
            return clip, near.spread
        first = min(clip, top / 2)
        ladder = rungs(first, top)
        sums, (_, noise) = self.holder.ask(TailSums(beta, ladder), "tails")
        if clip >= top:
            return top, near.spread
        cut = believed(sums, noise)
        chosen, square = wide_enough(ladder, cut, near.spread**2, unit_noise, n)
        return chosen, math.sqrt(square)


def _conclude(descent: _LinearDescent, near: _NearFit, last: _LastStep) -> Conclusion:
    """Coefficients and their covariance with its parts, in internal coordinates."""
    metric, n, d = descent.metric, descent.n, descent.start.size
    spread = max(near.response_spread, last.sd)
    pattern = symmetric_pattern(d)

    # The bread: what was released, averaged with the curvature times its level.
    level = max(
        float(np.trace(last.bread) / np.trace(metric.curvature)),
        last.bread_noise / math.sqrt(d),
        0.02 * n * last.kept,
    )
    doubt = (_CURVATURE_DOUBT * metric.radius**2 / d) ** 2 * pattern
    prior = level**2 * (metric.variances / n**2 + doubt) + last.bread_noise**2 / d * np.eye(d)
    bread, variances, slope = last.bread, prior, descent.slope(last.score.clip / near.spread)
    if descent.public.adaptive:
        own = last.bread_noise**2 * pattern
        bread, variances = average(last.bread, own, level * metric.curvature, prior)
        slope = level / n
    slopes = descent.slope(near.score.clip / near.spread), slope
    score = _pooled(near, last.score, bread, variances, slopes)
    eigenvalues, vectors = np.linalg.eigh(last.meat)
    return conclude(
        Solution(
            at=score.at,
            step=np.asarray(np.linalg.solve(bread, score.total), dtype=np.float64),
            bread=bread,
            variances=variances,
            meat=(vectors * np.maximum(eigenvalues, 0.0)) @ vectors.T,
            noise=score.noise**2,
            allowed=np.zeros((d, d)),
            level=level,
            spread=spread,
            start=np.zeros(d),
        ),
        metric.w,
        presumed_effect(descent.design, spread),
    )


def _pooled(
    near: _NearFit,
    late: _ReleasedScore,
    bread: Array,
    variances: Array,
    slopes: tuple[float, float],
) -> _ReleasedScore:
    """The last two scores as one.

    S_k = D (b* - b_k) + N_k, so that a weighted mean of the scores belongs to the same mean of the
    points they were asked at. The earlier score is brought to the slope of the later one, both of
    them over n A: rows may have been clipped to another radius. Weights are inverse to variances of
    noise; that of the earlier score counts what it disagrees by beyond noise. With a much narrower
    clip it has another target and no weight.
    """
    early = near.score
    if late.clip > _SAME_CLIP * early.clip:
        return late
    rescale = slopes[1] / slopes[0]
    total, noise = rescale * early.total, rescale * early.noise
    moved = early.at - late.at
    gap = late.total - total - bread @ moved
    known = late.noise**2 + noise**2
    explained = known + float(np.mean(variances @ moved**2))
    weight = late.noise**2 / (known + max(0.0, float(np.mean(gap**2)) - explained))
    return _ReleasedScore(
        at=late.at + weight * moved,
        total=(1 - weight) * late.total + weight * total,
        noise=math.hypot((1 - weight) * late.noise, weight * noise),
        clip=late.clip,
    )


def _remarks(near: _NearFit, last: _LastStep) -> tuple[str, ...]:
    """What the released numbers say about the fit; more is expected where the clip was widened."""
    usual = 0.05 if last.sd > near.spread else 0.02
    if last.far <= max(usual, 0.005 + 3 * last.far_noise):
        return ()
    return (
        f"About {last.far:.1%} of the residuals lie beyond six robust standard deviations: the "
        "response is mostly constant or extremely heavy-tailed. Clipped residuals may not describe "
        "its mean; consider a transformation, or method='adassp'.",
    )
