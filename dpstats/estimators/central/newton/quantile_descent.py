"""Quantile regression: noisy Newton steps on the jumps of the check function, whitened."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from dpstats.estimators.base import Request, floor_eigenvalues
from dpstats.estimators.central.newton.budget import (
    COUNT,
    whitening,
)
from dpstats.estimators.central.newton.climb import solved, whitened
from dpstats.estimators.central.newton.conclusion import Solution, conclude, presumed_effect
from dpstats.estimators.central.newton.curvature import drawn_to
from dpstats.estimators.central.newton.remarks import reported
from dpstats.estimators.central.newton.whitening import Metric
from dpstats.estimators.central.sandwich import noisy_count
from dpstats.estimators.guesses import response_bound, response_grid
from dpstats.estimators.numerics.entrywise import average, operator_norm, symmetric_pattern
from dpstats.estimators.numerics.tail_law import TailLaw, allowed
from dpstats.families.check import Check
from dpstats.protocol import CoefficientEstimate, Holder, Plan, foresee
from dpstats.queries import (
    Geometry,
    NormHistogram,
    Query,
    ResidualCount,
    ResidualQuantile,
    ResponseQuantile,
    ScoreCurvature,
    ScoreSquares,
    Search,
    WhitenedScore,
)

if TYPE_CHECKING:
    from dpstats.design import Design

__all__ = ["last_quantile_noise", "minimize", "quantile_requests"]

Array = NDArray[np.float64]

_LEVEL, _WIDTH = 0.012, 0.008  # budget: each search of a level, and of a width
_RARE = 3.0  # ratio: by which these grow at most with 1 / (4 tau (1 - tau))
_EARLY = (0.015, 0.02, 0.025, 0.04)  # budget: scores of the early steps
_LENGTHS, _BEYOND = 0.02, 0.01  # budget: histogram of lengths of rows; rows beyond the clip
_DENSITIES, _BREAD = (0.015, 0.01), 0.06  # budget: residuals near 0; the curvature
_MEAT = 0.02  # budget: squares of scores
_LAST = (0.28, 0.72)  # share: of what is left, for each of the last two scores
_HELD = 1.2  # share: of rows within a width of the level, over tau (1 - tau)
_NEAR = (0.3, 1.5)  # ratio: half-widths that residuals are near 0 within, to such a width
_SEEN = 0.05  # ratio: noise of an entry of the curvature that narrows them, to its mean eigenvalue
_FEW = 0.005  # share: of rows that the curvature may shorten
_ROWS = 2000.0  # number: of rows within, at least
_UNEQUAL = 0.25  # ratio: density of long rows to that of all, as far as it is off 1
_CELLS, _ENDS = 28, (0.25, 8.0)  # number: of the histogram of lengths; ratio: its ends to sqrt(d)
_OCTAVES, _GRID = 24, 64  # numerical: octaves below the largest residual, cells of a search
_LATER = 16  # numerical: cells of a later search of a width
_TOLD = 3.0  # ses: noise of a search of a width that its share of rows exceeds
_NARROWER = (1 / 16, 2.0)  # ratio: ends of a later search of a width, to the width before
_AROUND = 8.0  # ratio: how far from the level before it is looked for, in widths
_MEAT_DOUBT = 0.3  # ratio: relative error of the second moments as the shape of the meat
_LEAST = 0.15  # share: of their mean that eigenvalues of a late step are, at least
_KERNELS = (1, 2)  # ratio: widths of the kernels whose bias cancels, to the narrower
_UNCUT = 2.0**20  # numerical: clip of curvatures, none of which is cut, over that of scores
_SETTLED = 3.0  # wording: square of the last score over that of a settled one, less 1
_UNSETTLED = (
    "The steps had not come to rest: columns explain nearly all of the response, few rows lie "
    "beyond the quantile, or many have one value. Coefficients may be off by more than their "
    "intervals say. More rows, a larger epsilon, or a q nearer to 0.5 help."
)


def quantile_requests(design: Design, tau: float) -> list[Request]:
    """Every question of a fit, and its share of the budget; more for levels that few exceed."""
    steps = range(1, len(_EARLY) + 1)
    rare = min(_RARE, 0.25 / (tau * (1 - tau)))
    constant = int(design.has_intercept)
    early = [
        request
        for k in steps
        for request in (
            *([Request(f"level {k}", rare * _LEVEL, "quantile of residuals")] * constant),
            Request(f"width {k}", rare * _WIDTH, "width that some residuals are within"),
            Request(f"early score {k}", _EARLY[k - 1], "score of an early Newton step"),
        )
    ]
    aside = [
        COUNT,
        *whitening(),
        Request("lengths", _LENGTHS, "histogram of the lengths of rows, for the clip"),
        Request("beyond", _BEYOND, "rows beyond the clip, to correct it"),
        *early,
        Request("width", rare * _WIDTH, "width of the kernels"),
        Request("near", _DENSITIES[0], "residuals near 0, for their density there"),
        Request("within", _DENSITIES[1], "residuals within twice as much, for its bias"),
        Request("bread", _BREAD, "curvature, for the last step"),
        Request("meat", _MEAT, "squares of scores, for standard errors"),
    ]
    left = 1.0 - sum(r.weight for r in aside)
    last = [
        Request(f"score {k + 1}", left * share, "score of a Newton step")
        for k, share in enumerate(_LAST)
    ]
    return aside + last


def last_quantile_noise(plan: Plan) -> float:
    """Standard deviation of the noise of both last scores together, at clip 1."""
    unit = WhitenedScore(np.eye(1), np.zeros(1), 1.0)
    return 1 / math.sqrt(sum(1 / plan.noise(unit, f"score {k}").sd ** 2 for k in (1, 2)))


def minimize(holder: Holder[Query], design: Design, level: float) -> CoefficientEstimate:
    """Whiten, choose the clip, step five times, and conclude."""
    n = noisy_count(holder, len(design.names))
    found = whitened(holder, design, n)
    return _QuantileDescent(holder, design, found.metric, found.constant, level, n).fit()


@dataclass(frozen=True, eq=False)
class _QuantileDescent:
    """Newton steps for coefficients ``w b`` at which a share tau of responses lies below."""

    holder: Holder[Query]
    design: Design
    metric: Metric
    constant: Array
    tau: float
    n: float

    def fit(self) -> CoefficientEstimate:
        """All steps."""
        law, cut = self.cut()
        clip = cut * self.largest
        b, start, spread, width = self.early(clip)
        width, dense = self.width("width", b, width)
        few = law.numbers.T @ law.chances < _FEW * self.n
        reach = min(cut, float(law.clips[np.argmax(few)]))
        half = self.half(reach, width, dense)
        near = [self.near(b, wide * half) for wide in _KERNELS]
        foresee(self.holder, [*near, self.curvature(b, reach, half), self.scored(b, clip)])
        density, doubt = self.density(b, half)
        bread, variances, level = self.bread(b, reach, half, density, doubt)
        first, noise = self.score("score 1", b, clip)
        least = max(_LEAST * level, operator_norm(variances) / 2)
        at = b + solved(floor_eigenvalues(bread, least), self.kept(first, noise))
        foresee(self.holder, [self.scored(at, clip), self.squares(at, clip)])
        second, other = self.score("score 2", at, clip)
        # Each is linear in where it was asked: a mean of both belongs to the mean place.
        gap = first - second - bread @ (at - b)
        own = max(noise**2, float(gap @ gap) / gap.size - other**2)
        weight = own / (own + other**2)
        score = (1 - weight) * first + weight * second
        excess = float(np.interp(cut, law.clips, law.excess())) * self.largest
        # After a whole step a score is noise and jumps, unless densities changed on the way.
        known = noise**2 + other**2 + self.tau * (1 - self.tau) * self.n
        bent = max(0.0, float(second @ second) / gap.size - known)
        solution = Solution(
            at=(1 - weight) * b + weight * at,
            step=solved(bread, score),
            bread=bread,
            variances=variances,
            meat=self.meat(at, clip) * self.n / max(self.n - b.size, 1.0),
            noise=((1 - weight) * noise) ** 2 + (weight * other) ** 2,
            allowed=(allowed(excess, b.size) + bent) * np.eye(b.size),
            level=level,
            spread=spread,
            start=start,
        )
        found = conclude(solution, self.metric.w, presumed_effect(self.design, spread))
        said = {"row cut": cut, "rows beyond it": law.number(cut), "last score": bent / known}
        remarks = (_UNSETTLED,) if said["last score"] > _SETTLED else ()
        return reported(found, self.design, self.holder.plan, self.n, said, remarks)

    @property
    def largest(self) -> float:
        """Largest residual: max(tau, 1 - tau)."""
        return max(self.tau, 1 - self.tau)

    def check(self, width: float) -> Check:
        """The check function, with a kernel of this half-width."""
        return Check("quantile", "identity", level=self.tau, bandwidth=width)

    # -- where to cut rows --------------------------------------------------------------------

    def cut(self) -> tuple[TailLaw, float]:
        """What is known of long rows, and the length that they are cut at."""
        d = len(self.metric.w)
        edges = math.sqrt(d) * np.geomspace(*_ENDS, _CELLS + 1)
        counts = self.holder.ask(self.histogram(edges), "lengths")
        one = self.holder.plan.noise(self.histogram(edges), "beyond").sd
        least = max(1.0, one * math.sqrt(_BEYOND))
        law = TailLaw.of_histogram(counts.value, counts.noise.sd, edges, self.n, least, 0.5)
        noise = last_quantile_noise(self.holder.plan)
        cut = law.best(noise, d)
        beyond = self.holder.ask(self.histogram(np.array([cut])), "beyond")
        law = law.counted(cut, float(beyond.value[1]), beyond.noise.sd)
        return law, law.best(noise, d)

    def histogram(self, edges: Array) -> NormHistogram:
        """Rows by their length in whitened coordinates."""
        d = len(self.metric.w)
        return NormHistogram(self.metric.w.T, np.zeros(d), edges, scored=False)

    # -- steps --------------------------------------------------------------------------------

    def early(self, clip: float) -> tuple[Array, Array, float, float]:
        """Steps from no slopes: coefficients, those without slopes, and what varies there and here.

        That is the standard deviation of a normal response, and a width of residuals.
        """
        intercept, d = self.design.standardization.intercept, len(self.metric.w)
        b, start, width, spread = np.zeros(d), np.zeros(d), 0.0, 0.0
        for k in range(1, len(_EARLY) + 1):
            if intercept is not None:
                b = b + self.level(f"level {k}", b, width) * self.constant
            foresee(self.holder, [self.search(f"width {k}", b, width)[0], self.scored(b, clip)])
            width, density = self.width(f"width {k}", b, width)
            if k == 1:
                start, spread = b, norm_density(self.tau) / density
            score, noise = self.score(f"early score {k}", b, clip)
            slope = self.n * density * self.metric.curvature
            b = b + solved(slope, self.kept(score, noise))
        return b, start, spread, width

    def level(self, slot: str, b: Array, width: float) -> float:
        """The tau-quantile of residuals; of responses, as long as no width is known."""
        if width == 0:
            grid = response_grid(self.design)
            (found,), _ = self.holder.ask(ResponseQuantile(grid, self.tau), slot)
            return float(found)
        # Residuals with a number added that makes all but senseless ones positive.
        most = _AROUND * width
        added = 2 * (most + response_bound(self.design))
        beta = self.metric.w @ b
        beta[self.design.standardization.intercept] -= added
        grid = added + np.linspace(-most, most, _GRID + 1)
        (found,), _ = self.holder.ask(ResidualQuantile(grid, self.tau, beta), slot)
        return float(found) - added

    def search(self, slot: str, b: Array, before: float) -> tuple[Search, float]:
        """A search for the width that a share of residuals is within, and that share."""
        grid = 2 * response_bound(self.design) * np.geomspace(2.0**-_OCTAVES, 1.0, _GRID + 1)
        if before > 0:
            grid = before * np.geomspace(*_NARROWER, _LATER + 1)
        query = ResidualQuantile(grid, 0.5, self.metric.w @ b)
        told = _TOLD * self.holder.plan.noise(query, slot).sd / self.n
        share = min(0.5, max(_HELD * self.tau * (1 - self.tau), told))
        return ResidualQuantile(grid, share, self.metric.w @ b), share

    def width(self, slot: str, b: Array, before: float) -> tuple[float, float]:
        """A width that a share of residuals is within, and their density there."""
        query, share = self.search(slot, b, before)
        (width,), _ = self.holder.ask(query, slot)
        return float(width), share / (2 * float(width))

    def scored(self, b: Array, clip: float) -> WhitenedScore:
        """What is asked for a score at `b`."""
        return WhitenedScore(self.metric.w.T, self.metric.w @ b, clip, 0.0, self.check(1.0))

    def score(self, slot: str, b: Array, clip: float) -> tuple[Array, float]:
        """A noisy score at `b`, and the standard deviation of its noise."""
        answer = self.holder.ask(self.scored(b, clip), slot)
        return answer.value, answer.noise.sd

    @staticmethod
    def kept(score: Array, noise: float) -> Array:
        """A score shrunk by the size of its noise (positive-part James-Stein)."""
        squared = max(float(score @ score), 1e-300)
        shrunk: Array = score * max(0.0, 1 - score.size * noise**2 / squared)
        return shrunk

    # -- what standard errors need ------------------------------------------------------------

    def half(self, reach: float, width: float, density: float) -> float:
        """Half-width of the kernel: as narrow as the noise of the curvature and rows allow."""
        unit = ScoreCurvature(self.metric.w.T, np.zeros(len(self.metric.w)), 1.0, 1.0)
        noise = self.holder.plan.noise(unit, "bread").sd * reach**2 / (4 * self.n * density)
        wanted = max(noise / _SEEN, _ROWS / (2 * self.n * density))
        return float(np.clip(wanted, *(width * np.array(_NEAR))))

    def near(self, b: Array, width: float) -> ResidualCount:
        """What is asked for the number of residuals within a width."""
        return ResidualCount(Geometry(1.0), self.metric.w @ b, width)

    def density(self, b: Array, half: float) -> tuple[tuple[float, float], float]:
        """Density of residuals at 0, that within the wide kernel, and the former's relative error.

        Shares within h and 2 h, whose bias of second order cancels in ``(4 f(h) - f(2 h)) / 3``.
        """
        found = []
        for slot, wide in zip(("near", "within"), _KERNELS, strict=True):
            answer = self.holder.ask(self.near(b, wide * half), slot)
            unit = 2 * wide * half * self.n
            count = max(float(answer.value[0]), answer.noise.sd)
            found.append((count / unit, math.hypot(answer.noise.sd, math.sqrt(count)) / unit))
        (near, error), (far, other) = found
        density = max((4 * near - far) / 3, _LEAST * far)
        return (density, far), math.hypot(4 * error, other) / 3 / density

    def curvature(self, b: Array, reach: float, half: float) -> ScoreCurvature:
        """What is asked for the squares of rows near the quantile."""
        family = self.check(2 * half)
        radius = reach * math.sqrt(family.largest_curvature)
        beta = self.metric.w @ b
        return ScoreCurvature(self.metric.w.T, beta, _UNCUT * reach, radius, family)

    def bread(
        self, b: Array, reach: float, half: float, densities: tuple[float, float], doubt: float
    ) -> tuple[Array, Array, float]:
        """Minus the derivative of the mean score: squares of rows times their density at 0.

        Its shape is that within the wide kernel, averaged with equal densities in all rows; how
        much of them long rows have is drawn to none.
        """
        density, wide = densities
        d = b.size
        answer = self.holder.ask(self.curvature(b, reach, half), "bread")
        model = self.metric.curvature
        equal = self.n * wide * float(np.trace(model))
        own = answer.noise.sd * math.sqrt(d) / equal
        ratio = max(float(np.trace(answer.value)) / equal, own)
        trust = _UNEQUAL**2 / (_UNEQUAL**2 + own**2)
        unit = density / wide * (1 + trust * (ratio - 1)) / ratio
        moments = self.metric.variances / self.n**2
        found = drawn_to(unit * answer.value, unit * answer.noise.sd, model, moments)
        matrix, variances, level = found
        squared = doubt**2 + trust * own**2
        return matrix, variances + squared * level**2 * np.eye(d), level

    def squares(self, b: Array, clip: float) -> ScoreSquares:
        """What is asked for the squares of scores at `b`."""
        rows = self.holder.plan.max_rows
        return ScoreSquares(self.metric.w.T, self.metric.w @ b, clip, rows, self.check(1.0))

    def meat(self, b: Array, clip: float) -> Array:
        """Sum of squares of scores, averaged with tau (1 - tau) times those of rows."""
        d, rows = b.size, self.holder.plan.max_rows
        answer = self.holder.ask(self.squares(b, clip), "meat")
        expected = self.tau * (1 - self.tau) * self.n * self.metric.curvature
        level = float(np.trace(expected)) / d
        if rows > 1:  # rows of one unit need not be independent
            expected *= max(float(np.trace(answer.value)), answer.noise.sd) / level / d
            level = float(np.trace(expected)) / d
        own = answer.noise.sd**2 * symmetric_pattern(d)
        meat, _ = average(answer.value, own, expected, np.full((d, d), (_MEAT_DOUBT * level) ** 2))
        return floor_eigenvalues(meat, 0.1 * level)


def norm_density(tau: float) -> float:
    """Standard normal density at its tau-quantile."""
    from scipy.special import ndtri

    return math.exp(-(float(ndtri(tau)) ** 2) / 2) / math.sqrt(2 * math.pi)
