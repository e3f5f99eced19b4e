"""Newton steps on clipped scores: what the default OLS asks a holder and makes of the answers.

The constants are public and enter after the noise: they cost accuracy where they are wrong, never
privacy. They were chosen by simulation on uniform, normal, log-normal and 0/1 columns with normal,
t(4), heteroskedastic and skewed errors.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from dpstats.estimators.central.newton.conclusion import Conclusion
from dpstats.estimators.central.newton.remarks import reported
from dpstats.estimators.central.newton.robust.hidden import Hidden, drawn_in
from dpstats.estimators.central.newton.robust.tails import believed, rungs, wide_enough
from dpstats.estimators.central.newton.whitening import Metric, indicators, whiten
from dpstats.estimators.central.sandwich import noisy_count
from dpstats.estimators.guesses import response_bound, response_grid
from dpstats.estimators.numerics.entrywise import average, operator_norm, symmetric_pattern
from dpstats.estimators.numerics.huber import NORMAL_QUANTILE, unclipped
from dpstats.protocol import CoefficientEstimate, Holder
from dpstats.queries import (
    Gram,
    NormQuantile,
    Query,
    ResidualCount,
    ResidualQuantile,
    ResponseQuantile,
    Score,
    ScoreOuter,
    Search,
    TailSums,
)

if TYPE_CHECKING:
    from dpstats.design import Design

__all__ = ["Schedule", "descend"]

Array = NDArray[np.float64]

_SPREAD = 0.7  # quantile of |residual| whose log is least disturbed by noisy counts
_LEAST_CLIP = 2.0**-7  # least clip, in halves of the response's range, or
_WIDE = 8.0  # scales of the response, where the half is wider
_BALL = 1.2  # fitted values are kept within this many spreads of the response
_FLOOR = 0.7
_CURVATURE_DOUBT = 0.05  # relative error of the curvature as a stand-in for the bread
_LEFTOVER, _LEAST_LEFTOVER = 2.0, 0.2
_RESOLVED = 3.5
_PRIOR = 2.0  # variance of a hidden effect on fitted values, in squared spreads
_LEVEL = 3.0  # prior standard deviation of the effect of a hidden level, in spreads
_BLURRED = 0.3  # noise on the Gram matrix above which the whole fit is shrunk
_MOST_JITTER = 0.4  # noise of a comparison above which a search finds little
_SAME_CLIP = 1.2  # factor between clips of the last two scores up to which they are pooled
_REACH_CELLS = 16  # cells of the search for the last radius
_FAR_AWAY = 6.0  # spreads beyond which residuals are counted


@dataclass(frozen=True)
class Schedule:
    """Public numbers of a fit: what a plan decides and a fit follows.

    Attributes
    ----------
    shares : tuple of float
        Budget of each score.
    clips : tuple of float
        Clip of each step, in spreads of the residuals.
    radius : float
        Largest clipping radius of the last step, in whitened coordinates.
    noise : float
        Variance of the noise of both last scores together, at clip 1 and radius sqrt(d), per row.
    moments : float
        Share of their usual budget that both Gram matrices take.
    counts : float
        Share of their usual budget that counts and searches take.
    blur : float
        Operator norm of the noise on the whitened Gram matrix, per row.
    jitter : float
        Standard deviation of one noisy comparison, per row.
    adaptive : bool
        Whether the last clip and radius are chosen from releases of their own.
    reached : float
        Share of rows that the last radius should not touch.
    """

    shares: tuple[float, ...]
    clips: tuple[float, ...]
    radius: float
    noise: float
    moments: float
    counts: float
    blur: float
    jitter: float
    adaptive: bool
    reached: float

    @property
    def shortage(self) -> float:
        """By how much n or epsilon is too small to see anything."""
        return max(self.blur / 3, self.jitter / _MOST_JITTER)

    @property
    def feasible(self) -> bool:
        """Whether the noise leaves anything to see."""
        return self.shortage <= 1


def descend(holder: Holder[Query], public: Schedule, design: Design) -> CoefficientEstimate:
    """Whiten, step, and conclude; see `dpstats.estimators.central.newton.robust.ols.Newton`.

    Parameters
    ----------
    asked : Asked
        The holder and its plan.
    public : Schedule
        What the plan decided.
    design : Design
        Public design.
    """
    n = noisy_count(holder, len(design.names))
    start = _start(holder, design)
    metric = whiten(holder, n, indicators(design), design.norm_bound)
    descent = _Descent(holder, public, metric, start, n, response_bound(design))
    near = descent.approach()
    last = descent.last_step(near)
    found = _conclude(descent, near, last, indicators(design))
    released = {
        "clip": last.score.clip,
        "residual sd": last.sd,
        "share beyond six spreads": last.far,
        "radius": last.radius,
    }
    remarks = _remarks(near, last)
    return reported(found, design, holder.plan, n, released, remarks)


def _start(holder: Holder[Query], design: Design) -> Array:
    """Zero, but the private median of the response for the intercept; shape (d,)."""
    start = np.zeros(len(design.names))
    intercept = design.standardization.intercept
    if intercept is not None:
        query = Search(ResponseQuantile(response_grid(design), 0.5))
        (start[intercept],), _ = holder.ask(query, "median")
    return start


@dataclass(frozen=True, eq=False)
class _Scored:
    """A released score: the coefficients it was asked at, its noise and its clip."""

    at: Array
    total: Array
    noise: float
    clip: float


@dataclass(frozen=True, eq=False)
class _Near:
    """After all steps but the last: coefficients in whitened coordinates, spreads, last score."""

    b: Array
    spread: float
    response_spread: float
    score: _Scored


@dataclass(frozen=True, eq=False)
class _Last:
    """What the last step released; see `Newton`."""

    score: _Scored
    radius: float
    sd: float
    far: float
    far_noise: float
    kept: float
    bread: Array
    bread_noise: float
    meat: Array


@dataclass(frozen=True, eq=False)
class _Descent:
    """Newton steps for coefficients ``start + w b``."""

    holder: Holder[Query]
    public: Schedule
    metric: Metric
    start: Array
    n: float
    bound: float

    def beta(self, b: Array) -> Array:
        """Coefficients in the design's internal coordinates."""
        beta: Array = self.start + self.metric.w @ b
        return beta

    def approach(self) -> _Near:
        """All steps but the last."""
        d = self.start.size
        geometry = self.metric.geometry(math.sqrt(d))
        inverse, hidden = self.metric.inverse, self.metric.unresolved
        b, spread = np.zeros(d), 0.0
        widest = self.bound
        for k, c in enumerate(self.public.clips[:-1]):
            spread = self.spread(k, b, spread)
            if k == 0:
                widest = min(self.bound, spread)
            clip = self.clipped_at(c, spread)
            score, (_, noise) = self.holder.ask(
                Score(geometry, self.beta(b), clip), f"score {k + 1}"
            )
            scored = _Scored(b, score, noise, clip)
            scale = self.n * float(unclipped(max(c, clip / spread)))
            step = inverse @ score / scale
            # Positive-part James-Stein: the noise in the step has a known size.
            squared = float((inverse**2).sum()) * (noise / scale) ** 2
            step *= max(0.0, 1 - squared / max(float(step @ step), 1e-300))
            b = self.within(b + step - hidden @ (hidden.T @ step), widest, math.sqrt(squared))
        spread = self.spread(len(self.public.clips) - 1, b, spread)
        return _Near(b, spread, widest, scored)

    def spread(self, k: int, b: Array, before: float) -> float:
        """Standard deviation that a normal residual with this 70 % quantile of |r| would have."""
        quantile = before * NORMAL_QUANTILE[_SPREAD]
        grid = (
            np.geomspace(2.0**-15 * self.bound, 2 * self.bound, 33)
            if k == 0
            else np.geomspace(quantile / 8, 2 * quantile, 9)
        )
        query = Search(ResidualQuantile(grid, _SPREAD, self.beta(b)))
        (found,), _ = self.holder.ask(query, f"spread {k + 1}")
        return float(found) / NORMAL_QUANTILE[_SPREAD]

    def clipped_at(self, c: float, spread: float) -> float:
        """A clip of `c` spreads, within the public range and not negligible in it."""
        return min(2 * self.bound, max(c * spread, _LEAST_CLIP * min(self.bound, _WIDE)))

    def within(self, b: Array, spread: float, error: float) -> Array:
        """Coefficients drawn back to where fitted values vary by 1.2 `spread` at most.

        But no further than an error of this size explains: `spread` comes from a quantile, and
        fitted values vary by more where a few rows differ much from the rest.
        """
        size = math.sqrt(float(b @ self.metric.curvature @ b))
        return b * min(1.0, max(_BALL * spread, size - error) / max(size, 1e-300))

    def last_step(self, near: _Near) -> _Last:
        """Ask for the last score, its bread and its meat."""
        d, beta, last = self.start.size, self.beta(near.b), len(self.public.clips)
        radius = self.reach()
        geometry = self.metric.geometry(radius)
        unit = Score(geometry, beta, 1.0)
        unit_noise = self.holder.plan.noise(unit, f"score {last}").scale
        clip, sd = self.widened(near, beta, unit_noise)
        score, (_, noise) = self.holder.ask(Score(geometry, beta, clip), f"score {last}")
        far_away = min(_FAR_AWAY * near.spread, 2 * self.bound)
        inside, (_, far_noise) = self.holder.ask(ResidualCount(geometry, beta, far_away), "far")
        bread, (_, bread_noise) = self.holder.ask(Gram(geometry, beta, clip), "bread")
        meat, _ = self.holder.ask(
            ScoreOuter(geometry, beta, clip, self.holder.plan.max_rows), "meat"
        )
        return _Last(
            score=_Scored(near.b, score, noise, clip),
            radius=radius,
            sd=sd,
            far=min(max(1 - float(inside[0]) / self.n, 0.0), 1.0),
            far_noise=far_noise / self.n,
            kept=float(unclipped(max(self.public.clips[-1], clip / near.spread))),
            bread=bread,
            bread_noise=bread_noise,
            meat=meat * self.n / max(self.n - d, 1.0),
        )

    def reach(self) -> float:
        """Clipping radius of the last step: nearly all rows, as far as noise permits."""
        typical = math.sqrt(self.start.size)
        if not self.public.adaptive:
            return typical
        grid = np.geomspace(typical, max(self.public.radius, 1.05 * typical), _REACH_CELLS + 1)
        query = Search(NormQuantile(grid, self.public.reached, self.metric.w.T))
        (radius,), _ = self.holder.ask(query, "reach")
        return float(radius)

    def widened(self, near: _Near, beta: Array, unit_noise: float) -> tuple[float, float]:
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


def _conclude(descent: _Descent, near: _Near, last: _Last, marked: Array) -> Conclusion:
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
    doubt = (_CURVATURE_DOUBT * last.radius**2 / d) ** 2 * pattern
    prior = level**2 * (metric.variances / n**2 + doubt) + last.bread_noise**2 / d * np.eye(d)
    bread, variances = average(
        last.bread, last.bread_noise**2 * pattern, level * metric.curvature, prior
    )
    values, basis = np.linalg.eigh(bread)
    noise = operator_norm(variances)
    floored = np.maximum(values, min(_FLOOR * noise, level / 2))
    inverse = (basis / floored) @ basis.T
    score = _pooled(near, last.score, bread, variances, level / n)
    step = inverse @ score.total

    eigenvalues, vectors = np.linalg.eigh(last.meat)
    meat = (vectors * np.maximum(eigenvalues, 0.0)) @ vectors.T
    cov_privacy = score.noise**2 * inverse @ inverse
    cov_sampling = inverse @ meat @ inverse
    cov = cov_sampling + cov_privacy
    sure = 1 - float(np.trace(cov)) / max(float(step @ step), 1e-300)
    left = _LEFTOVER * max(_LEAST_LEFTOVER, sure) * np.diag(variances @ step**2)
    final = cov + inverse @ left @ inverse

    error = math.sqrt(float(np.trace(metric.curvature @ final)))
    b = descent.within(score.at + step, spread, error)
    at = values < _RESOLVED * noise / math.sqrt(d)
    hidden = Hidden(basis[:, at], values[at], floored[at], noise / math.sqrt(d))
    effects, rare = hidden.effects(metric.w, marked)
    level_prior = (_LEVEL * spread / np.linalg.norm(effects, axis=0)) ** 2
    b, added = hidden.settle(
        b,
        final,
        (score.at, step, meat + score.noise**2 * np.eye(d) + left),
        np.where(rare, level_prior, _PRIOR * spread**2 * level / hidden.used),
    )
    b, drawn = _shrunk(descent, near, b, final)
    w = metric.w
    covs = w @ drawn @ w.T, w @ cov_privacy @ w.T, w @ cov_sampling @ w.T
    levels = np.flatnonzero(effects[:, rare].any(axis=1))
    beta = drawn_in(descent.start + metric.w @ b, covs[0], levels, _LEVEL * spread)
    return hidden.concluded(beta, covs, effects, added, final)


def _shrunk(descent: _Descent, near: _Near, b: Array, cov: Array) -> tuple[Array, Array]:
    """Coefficients and covariance of a fit that noise dominates, drawn towards no effect."""
    public, d = descent.public, b.size
    drawn: Array = cov
    if public.blur > _BLURRED:
        # The posterior mean under a prior of fitted values that vary as much as the response. By
        # how far it lies off the estimate counts as one standard deviation more.
        to = np.linalg.solve(np.eye(d) + d / near.response_spread**2 * cov, b)
        moved: Array = b - to
        b, drawn = b - moved, cov + np.outer(moved, moved)
    if public.jitter > _MOST_JITTER:  # no spread to rely on: James-Stein
        b = b * max(0.0, 1 - float(np.trace(cov)) / max(float(b @ b), 1e-300))
    if not public.feasible:
        drawn = drawn + _PRIOR * (descent.bound / 4) ** 2 * np.eye(d)
    return b, drawn


def _pooled(near: _Near, late: _Scored, bread: Array, variances: Array, level: float) -> _Scored:
    """The last two scores as one.

    S_k = D (b* - b_k) + N_k, so that a weighted mean of the scores belongs to the same mean of the
    points they were asked at. The earlier score is brought to the `level` of D over n A, as its
    rows were clipped to another radius. Weights are inverse to variances of noise; that of the
    earlier score counts what it disagrees by beyond noise. With a much narrower clip it has another
    target and no weight.
    """
    early = near.score
    if late.clip > _SAME_CLIP * early.clip:
        return late
    rescale = level / float(unclipped(early.clip / near.spread))
    total, noise = rescale * early.total, rescale * early.noise
    moved = early.at - late.at
    gap = late.total - total - bread @ moved
    known = late.noise**2 + noise**2
    explained = known + float(np.mean(variances @ moved**2))
    weight = late.noise**2 / (known + max(0.0, float(np.mean(gap**2)) - explained))
    return _Scored(
        at=late.at + weight * moved,
        total=(1 - weight) * late.total + weight * total,
        noise=math.hypot((1 - weight) * late.noise, weight * noise),
        clip=late.clip,
    )


def _remarks(near: _Near, last: _Last) -> tuple[str, ...]:
    """What the released numbers say about the fit; more is expected where the clip was widened."""
    usual = 0.05 if last.sd > near.spread else 0.02
    if last.far <= max(usual, 0.005 + 3 * last.far_noise):
        return ()
    return (
        f"About {last.far:.1%} of the residuals lie beyond six robust standard deviations: the "
        "response is mostly constant or extremely heavy-tailed. Clipped residuals may not describe "
        "its mean; consider a transformation, or method='adassp'.",
    )
