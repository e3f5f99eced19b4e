"""Robust private OLS: noisy Newton steps on clipped scores, in whitened coordinates."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar

import numpy as np
from numpy.typing import NDArray

from dpstats.accounting import gdp_mu
from dpstats.estimators.base import Request, need_delta
from dpstats.estimators.bounds import (
    GRAM_SEEN,
    LINEAR,
    LINEAR_LOWER,
    NEWTON,
    NEWTON_UPPER,
    SMALL_DELTA,
)
from dpstats.estimators.central.counted import CountingMethod, counted_plan
from dpstats.estimators.central.newton.remarks import blur_warnings, covering
from dpstats.estimators.central.newton.robust.descent import Schedule, descend_linear, first_spread
from dpstats.estimators.central.newton.typical import Case, expect_typical
from dpstats.estimators.central.scales.search import in_found_scales, with_scales, without_scales
from dpstats.estimators.guesses import max_rows
from dpstats.estimators.numerics.huber import (
    efficient_clip,
    score_variance,
    unclipped,
)
from dpstats.estimators.sources import CAI, DONG, TANG
from dpstats.privacy import Privacy
from dpstats.protocol import CoefficientEstimate, Holder, Options, Plan
from dpstats.queries import (
    Geometry,
    Gram,
    Query,
    Score,
)
from dpstats.theory import Assumption, Theory

if TYPE_CHECKING:
    from dpstats.design import Design

__all__ = ["THEORY", "RobustOLS"]

Array = NDArray[np.float64]

# Shares of the budget; the scores take what is left, each three times the one before. Where a part
# of them is enough to find scales and coordinates, counts and Gram matrices take that part.
_COUNT, _MEDIAN, _NORM, _FAR = 0.01, 0.02, 0.015, 0.005
_GRAM, _WHITENED, _BREAD, _MEAT = 0.08, 0.08, 0.06, 0.04
_FIRST_SPREAD, _LATER_SPREAD = 0.02, 0.008
_REACH, _TAILS = 0.01, 0.08  # where noise does not dominate anyway
_SLOPE = 0.04  # where it does: in the place of the bread
_LEAST_PART, _CLEAR_BLUR, _CLEAR_JITTER = 0.25, 0.3, 0.03
_GROWTH = 3.0
_STEPS, _STEPS_IF_NOISY, _NOISY = 5, 3, 0.5
_DOMINATED = 1.0  # noise over sampling variance, of one score with all the budget

_FIRST_CLIP = 1.345  # least clip of the first step, whose residuals are far from normal
_TYPICAL_RADIUS = 1.2  # of the rows that are counted in full, over sqrt(d)
_CONSERVATIVE, _SHARP = 1.5, 0.35  # noise on the Gram matrix at which intervals lose precision


THEORY = Theory(
    estimand=(
        "coefficients of the linear model; where the mean is not linear, those of the best linear "
        "predictor with far-out rows weighted down and residuals clipped"
    ),
    guarantee=(
        "(epsilon, delta)-DP for every data set: every answer is a Gaussian mechanism on a sum "
        "whose sensitivity its query enforces by clipping (counts 1; Gram matrices sqrt(2) R^2 "
        "under replace-one, R^2 under add-remove; their traces R^2; scores 2 R C, R C; their outer "
        "products sqrt(2) (R C)^2, (R C)^2; J cut-off tails 2 sqrt(J), sqrt(J)), composed exactly "
        "as one Gaussian mechanism."
    ),
    assumptions=(
        LINEAR,
        Assumption(
            "Residuals are symmetric about it, or skewed alike in all rows; clips widen where the "
            "released tails show skewness"
        ),
        GRAM_SEEN,
        SMALL_DELTA,
    ),
    upper=NEWTON_UPPER,
    lower=LINEAR_LOWER,
    citations=(NEWTON, TANG.at("BoostedAdaSSP"), DONG.at("Corollary 3.3"), CAI.at("Theorem 4.1")),
)


_ASSUMED = (
    "The mean is linear in the columns. Where it is not, intervals need not cover the best linear "
    "predictor; target='mle' aims at it, with more noise."
)


@dataclass(frozen=True)
class RobustOLS(CountingMethod[CoefficientEstimate]):
    """Linear regression by noisy Newton steps in whitened coordinates; robust.

    1. Release the number of rows and, with an intercept, the median of the response, from which
       everything below starts.
    2. Release a noisy Gram matrix, whiten the rows with it, release a second one there (`whiten`):
       in the new coordinates z every design has rows of norm about sqrt(d) and noise costs the same
       in every direction. Where noise permits, R is the length that 95 % of the rows are within.
    3. K times: release a spread of the residuals r = y - z'b (from the 70 % quantile of |r|), and
       the clipped score S = sum w^2 z clip(r, C) + N, with w = min(1, R / ||z||); then

           b <- b + (n f A)^-1 S,

       A the curvature and f the share of residuals that a clip at C leaves alone. Budgets grow
       threefold from score to score, so that the last two carry most of it. The last clip is
       widened where released sums of what it cuts off show a skewed tail.
    4. With the last score, release the bread D = sum w^2 z z' over unclipped rows and the meat
       M = sum w^4 z z' clip(r, C)^2. The last step uses D, averaged with what A says about it,
       and both last scores: each is linear in the point that it was asked at, so that their mean,
       weighted by precision, belongs to the mean of the two points.

    Where the noise of one score with all of the budget exceeds sampling (public), clips are short,
    and of a row little counts but its direction. Then s = z r is shortened to the length C sqrt(d):
    rows have as much to say as a bound on their length allows, and for the same noise the slope is
    1.1 (d = 20) to 1.2 (d = 5) times that of w^2 z clip(r, C). D, which noise would hide, is A at
    the level of its released trace, and M follows from the share of scores within the clip.

    Notes
    -----
    *Guarantee.* Every question is a Gaussian mechanism whose sensitivity its query computes and
    enforces: `Count`, `Search` (of `ResponseQuantile`, `NormQuantile`, `ResidualQuantile`), `Gram`,
    `Score`, `ScoreOuter`, `TailSums`, `ResidualCount`; `WhitenedScore`, `ScoreSlope`,
    `ScoreSquares` in the place of the last ones where noise dominates. Later questions depend on
    the data only through earlier answers, so the whole fit has the cost of one Gaussian mechanism
    (Dong, Roth & Su 2022, Corollary 3.3), which the plan states; the rest is post-processing.

    *Covariance.* With b* the target, b_K - b* = D^-1 (S(b*) + N) + (I - D^-1 D*)(b_(K-1) - b*), so

        V = D^-1 [M n/(n-d) + s^2 I + L] D^-1,

    S, N and b_(K-1) being means over both last scores. s is the known scale of N: the middle term
    is exact for one score given the earlier releases, and to first order for both. L allows for the
    error of D times the last step, entry variances times squared steps. It is calibrated by
    simulation, not proved. Directions that the noise on D hides, and fits that noise dominates, are
    concluded as those of the default are (`dpstats.estimators.central.newton.conclusion`): the
    former have Fieller's intervals, the latter are drawn to no effect as far as a prior would.

    *Rate.* Rows of norm sqrt(d) in whitened coordinates make the last noise 2 sqrt(d) C / mu per
    direction, over n f: an error of d sqrt(log(1/delta)) / (n eps) in prediction norm, whatever the
    condition number, once the noise resolves the Gram matrices.

    *Target.* Clips are as tight as the noise asks for: efficient where the mean is linear and
    residuals are symmetric. Where the mean is not linear, clipping and weighting choose another
    compromise than least squares does.

    *Limits.* With residuals whose skewness varies with the columns the target is a clipped
    regression until n mu^2 / d is large. A level of a factor with fewer than about 4 d^(3/2) / mu
    rows is usually not resolved. Of mostly constant responses the spread is not identified; the
    share of residuals beyond six robust standard deviations is released, and a remark says so.
    """

    name: ClassVar[str] = "newton"
    model: ClassVar[str] = "ols"
    theory: ClassVar[Mapping[str, Theory]] = {"central": THEORY}
    options: ClassVar[Mapping[str, str]] = {}

    def _plan(self, design: Design, privacy: Privacy, n: int, options: Options) -> Plan:
        need_delta(self.name, privacy)
        public = _schedule(design, privacy, n)
        asks = _asks(public.shares, public.moments, public.counts, public.adaptive, design)
        asks = with_scales(asks, design, privacy, n)
        plan = counted_plan(self, design, privacy, n, asks, {"steps": len(public.clips)})
        return without_scales(_predict(plan, public, design), design)

    def _fit(self, holder: Holder[Query], design: Design, plan: Plan) -> CoefficientEstimate:
        """Whiten, step, and ask for what standard errors need."""
        public = _schedule(design, plan.privacy, plan.n)
        return in_found_scales(lambda h, scaled: descend_linear(h, public, scaled), holder, design)


def _schedule(design: Design, privacy: Privacy, n: int) -> Schedule:
    d, rows = len(design.names), max_rows(design)
    mu = gdp_mu(privacy.epsilon, privacy.delta)
    ball = Geometry(1.0)
    signed = Score(ball, np.zeros(d), 1.0).sensitivity(privacy.neighbors, rows)
    acute = Gram(ball).sensitivity(privacy.neighbors, rows)
    unit = signed**2 / (n * mu**2)  # noise variance per row of a score with radius and clip 1
    steps = _STEPS_IF_NOISY if unit * d > _NOISY else _STEPS
    adaptive = unit * d <= _DOMINATED
    blur = acute * math.sqrt(2) * d**1.5 / (mu * math.sqrt(_WHITENED) * n)
    search = first_spread(1.0, np.zeros(d))
    comparison = search.sensitivity(privacy.neighbors, rows) * math.sqrt(search.comparisons)
    jitter = comparison / (mu * math.sqrt(_FIRST_SPREAD) * n)
    moments = min(1.0, max(_LEAST_PART, blur / _CLEAR_BLUR))
    counts = min(1.0, max(_LEAST_PART, jitter / _CLEAR_JITTER))
    growing = [_GROWTH**k for k in range(steps)]
    aside = _asks([0.0] * steps, moments, counts, adaptive, design)
    left = 1.0 - sum(a.weight for a in aside)
    shares = tuple(left * g / sum(growing) for g in growing)
    noise = unit * d / (shares[-2] + shares[-1])  # the last two scores count together
    blur /= math.sqrt(moments)
    farthest = max(1.0, math.sqrt(_CLEAR_BLUR / blur))
    typical = min(farthest, _TYPICAL_RADIUS)
    clips = [efficient_clip(unit * d / share) for share in shares]
    clips[0] = max(clips[0], _FIRST_CLIP)
    clips[-2:] = [efficient_clip(noise * typical**2)] * 2
    return Schedule(
        shares=shares,
        clips=tuple(clips),
        farthest=farthest,
        noise=noise * typical**2,
        moments=moments,
        counts=counts,
        blur=blur,
        jitter=jitter / math.sqrt(counts),
        adaptive=adaptive,
    )


def _asks(
    shares: Sequence[float], moments: float, counts: float, adaptive: bool, design: Design
) -> list[Request]:
    steps = range(len(shares))
    squares = adaptive or max_rows(design) > 1
    spreads = [_FIRST_SPREAD] + [_LATER_SPREAD] * (len(shares) - 1)
    return [
        Request("count", counts * _COUNT, "number of rows that contribute"),
        *(
            [Request("median", counts * _MEDIAN, "median of the response, to start from")]
            * design.has_intercept
        ),
        Request("norm", counts * _NORM, "a radius that most rows are within"),
        Request("gram", moments * _GRAM, "second moments of the columns"),
        Request("whitened gram", moments * _WHITENED, "second moments in whitened coordinates"),
        *(
            [Request("reach", counts * _REACH, "a radius that nearly all rows are within")]
            * adaptive
        ),
        *(
            Request(f"spread {k + 1}", counts * spreads[k], "spread of the residuals, for the clip")
            for k in steps
        ),
        *(Request(f"score {k + 1}", shares[k], "clipped score of a Newton step") for k in steps),
        *([Request("tails", _TAILS, "what the last clip cuts off, to widen it")] * adaptive),
        Request("far", counts * _FAR, "number of residuals beyond six robust standard deviations"),
        (
            Request("bread", _BREAD, "second moments of unclipped rows, for the last step")
            if adaptive
            else Request("slope", counts * _SLOPE, "mean slope of the last score")
        ),
        *([Request("meat", _MEAT, "outer products of the scores, for standard errors")] * squares),
    ]


def _predict(plan: Plan, public: Schedule, design: Design) -> Plan:
    """The plan with its expected standard errors and its warnings."""
    c = public.clips[-1]
    wider = 1 + 0.4 * max(0.0, public.blur - 0.7) + 2 * public.jitter
    noisy = public.noise * c**2 / float(unclipped(c)) ** 2
    sampled = float(score_variance(c, public.noise)) - noisy
    assumptions = (*plan.assumptions, covering(public.blur), _ASSUMED)
    plan = replace(plan, assumptions=assumptions)

    def variances(case: Case) -> tuple[float, float]:
        unit = (wider * case.spread) ** 2
        return unit * noisy, unit * sampled

    both = "the second moments or the spread of residuals"
    wide, sharp = public.blur / _CONSERVATIVE, public.blur / _SHARP
    warned = blur_warnings(plan, public.shortage, wide, sharp, both)
    return expect_typical(plan, design, variances, warned)
