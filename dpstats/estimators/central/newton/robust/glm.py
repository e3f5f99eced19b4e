"""Robust private logit and GLM: noisy Newton steps on damped scores, whitened."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np
from numpy.typing import NDArray

from dpstats.accounting import gdp_mu
from dpstats.estimators.base import Request, need_delta
from dpstats.estimators.bounds import GLM_LOWER, GRAM_SEEN, NEWTON, NEWTON_UPPER, SMALL_DELTA
from dpstats.estimators.central.counted import CountingMethod, counted_plan
from dpstats.estimators.central.newton.remarks import blur_warnings
from dpstats.estimators.central.newton.robust.glm_descent import GLMSchedule, descend_glm
from dpstats.estimators.central.newton.robust.glm_law import NormalPredictor, tune
from dpstats.estimators.central.newton.typical import Case, expect_typical
from dpstats.estimators.central.scales.search import in_found_scales, with_scales, without_scales
from dpstats.estimators.guesses import max_rows
from dpstats.estimators.sources import GANESH, SCORE_ATTACK
from dpstats.families import Family
from dpstats.privacy import Privacy
from dpstats.protocol import CoefficientEstimate, Holder, Options, Plan
from dpstats.queries import Geometry, Gram, Query, Score
from dpstats.theory import Assumption, Theory

if TYPE_CHECKING:
    from dpstats.design import Design

__all__ = ["THEORY", "RobustGLM"]

Array = NDArray[np.float64]

# Shares of the budget; the scores take what is left, each six times the one before.
_COUNT, _MEAN, _START, _NORM = 0.01, 0.02, 0.01, 0.015
_GRAM, _WHITENED, _BREAD, _MEAT = 0.05, 0.06, 0.04, 0.03
_FIRST_SPREAD, _LATER_SPREAD, _TAILS, _EXPOSURE = 0.02, 0.008, 0.04, 0.02
_NOISY = 0.1  # noise over sampling variance, of one score with all the budget
# Growth of the budget, and steps where noise is small and where it is not. Binomial residuals are
# bounded; others begin with the signal in them, and shrink.
_STEPS = {"binomial": (6.0, 4, 3), "poisson": (4.0, 5, 4), "gaussian": (4.0, 5, 4)}
_DOMINATED = 1.0  # that ratio, beyond which there is nothing left to look at tails
_RADIUS_SLACK, _MOST_RADIUS = 0.1, 2.0
_CONSERVATIVE = 0.38  # noise on the Gram matrix at which intervals lose precision


_NOISE_LIMIT = 3.0


THEORY = Theory(
    estimand=(
        "coefficients of the generalised linear model; where its mean is not right, the root of "
        "its weighted and clipped score"
    ),
    guarantee=(
        "(epsilon, delta)-DP for every data set: every answer is a Gaussian mechanism on a sum "
        "whose sensitivity its query enforces by clipping (counts 1; Gram matrices sqrt(2) R^2 "
        "under replace-one, R^2 under add-remove, times the cap on a row's curvature; scores 2 R "
        "C, R C; their outer products sqrt(2) (R C)^2, (R C)^2; squares C^2; J cut-off tails 2 "
        "sqrt(J), sqrt(J)), composed exactly as one Gaussian mechanism."
    ),
    assumptions=(
        Assumption("The mean of the response is the inverse link of a linear function"),
        Assumption("Linear predictors vary by no more than a few units"),
        GRAM_SEEN,
        SMALL_DELTA,
    ),
    upper=NEWTON_UPPER,
    lower=GLM_LOWER,
    citations=(NEWTON, GANESH.at("noisy Newton steps for logistic regression"), SCORE_ATTACK),
)


@dataclass(frozen=True)
class RobustGLM(CountingMethod[CoefficientEstimate]):
    """Generalised linear models by noisy Newton steps on damped scores; robust.

    1. Release the number of rows and, with an intercept, the mean response, from which everything
       below starts.
    2. Whiten rows by two noisy Gram matrices as for linear regression (`whiten`): in the new
       coordinates z they have norm about sqrt(d), and noise costs the same in every direction.
    3. K times: release a clipped, damped score and take a Newton step,

           S = sum w^2 z clip(a(eta) f(eta) (y - mean(eta)), C) + N,     b <- b + (n H)^-1 S,

       with eta = z'b, w = min(1, R / ||z||), f the factor of the likelihood (1 for canonical links)
       and H the curvature that the model expects for normal rows with the released moments. The
       weight a (`DampedFamily`) and the clip C are those with the least variance, noise in the
       account: with much noise, a logistic row counts 1 / max(p, 1 - p) times what it counts in the
       likelihood, which nearly halves the noise. Budgets grow sixfold from score to score. The
       first step is made exact for normal rows: it goes to where mean and slope of the mean match.
    4. With the last score, release the bread D = sum w^2 a f mean' z z' over unclipped rows and the
       meat M = sum w^4 psi^2 z z'. The last step uses D, averaged with what H says about it. In a
       logit, whose scores are not clipped, it is averaged with the step before, by precision.

    Notes
    -----
    *Guarantee.* Every question is a Gaussian mechanism whose sensitivity its query computes and
    enforces: `Count`, `Search` (of `NormQuantile`, `ResponseQuantile`, `ResidualQuantile`), `Gram`,
    `Score`, `ResidualMoment`, `TailSums`, `ScoreOuter`. A row of a score has norm at most R C
    whatever the family, and one of the bread at most R^2 times the cap on its curvature. Families
    enter as public functions of single rows. Later questions depend on the data only through
    earlier answers, so the whole fit has the cost of one Gaussian mechanism (Dong, Roth & Su 2022,
    Corollary 3.3).

    *Root.* The damped score has mean zero given the columns at the true coefficients, for any
    weight that is a function of the columns. A binomial score is never clipped. What a clip does to
    the skewed residuals of the model is known and taken off; where noise permits, sums of what
    clips cut off beyond that are released, and the clip is widened where they lean to one side.
    Counts may be overdispersed: what clips cut off is then taken for negative binomial, with a
    dispersion from the released mean square of clipped residuals.

    *Covariance.* With b* the target, b_K - b* = D^-1 (S(b*) + N) + (I - D^-1 D*)(b_(K-1) - b*), so

        V = D^-1 [M n/(n-d) + s^2 I + L] D^-1.

    s is the known scale of N: the middle term is exact given the earlier releases. L allows for the
    error of D times the last step. It is calibrated by simulation, not proved. The meat makes
    no assumption on variances. Directions that the noise on D hides are concluded
    as those of the default are (`dpstats.estimators.central.newton.conclusion`).

    *Rate.* The last noise has scale 2 sqrt(d) C / mu per direction, over n times the curvature: an
    error of d sqrt(log(1/delta)) / (n eps), which is that of the lower bound (Cai, Wang & Zhang
    2023) but for sqrt(log(1/delta)).

    *Limits.* Linear predictors are kept to a standard deviation of 6 (logit) or 2.5 (log): where
    responses are separated, coefficients stay finite and are too small: a logit says so where they
    have four fifths of that, or where the last step changed them by more than .5, noise apart, in
    directions whose curvature is clear. Where the noise hides the second moments, the plan says so.
    With a log link, counts whose mean varies by orders of magnitude between rows are described
    mostly by the rows with small means.
    """

    model: str = "logit"
    name: ClassVar[str] = "newton"
    theory: ClassVar[Mapping[str, Theory]] = {"central": THEORY}
    options: ClassVar[Mapping[str, str]] = {}

    def _plan(self, design: Design, privacy: Privacy, n: int, options: Options) -> Plan:
        need_delta(self.name, privacy)
        public = _schedule(design, privacy, n)
        asks = with_scales(_asks(public, design), design, privacy, n)
        plan = counted_plan(self, design, privacy, n, asks, {"steps": len(public.shares)})
        return without_scales(_predict(plan, public, design), design)

    def _fit(self, holder: Holder[Query], design: Design, plan: Plan) -> CoefficientEstimate:
        """Whiten, step, and ask for what standard errors need."""
        public = _schedule(design, plan.privacy, plan.n)
        return in_found_scales(lambda h, scaled: descend_glm(h, public, scaled), holder, design)


def _expected(design: Design) -> tuple[NormalPredictor, float]:
    """Public guesses that shares are chosen by: linear predictors, spread of a normal response."""
    family = design.family
    top = max(abs(v) for v in design.internal_endog_bounds)
    if family.link == "logit":
        return NormalPredictor(0.0, 1.0), 1.0
    if family.link == "log":
        return NormalPredictor(math.log(top / 8), 0.5), top / 8
    return NormalPredictor(top / 8, top / 32), top / 8


def _unit(design: Design, privacy: Privacy, n: int) -> float:
    """Noise variance per row of a score with all the budget, clip 1 and radius sqrt(d)."""
    d = len(design.names)
    one = Score(Geometry(1.0), np.zeros(d), 1.0).sensitivity(privacy.neighbors, max_rows(design))
    return one**2 * d / (n * gdp_mu(privacy.epsilon, privacy.delta) ** 2)


def _schedule(design: Design, privacy: Privacy, n: int) -> GLMSchedule:
    d = len(design.names)
    unit = _unit(design, privacy, n)
    law, spread = _expected(design)
    private, sampled = _parts(design.family, law, unit, spread, n)
    ratio = private / sampled
    growth, many, few = _STEPS[design.family.name]
    steps = few if ratio > _NOISY else many
    adaptive = ratio <= _DOMINATED
    left = 1.0 - _fixed_share(steps, design, adaptive)
    growing = [growth**k for k in range(steps)]
    # A wider radius reaches more rows, for a share of the variance.
    slack = _RADIUS_SLACK / (1 + ratio) ** 2 * (1 + ratio) / ratio
    acute = Gram(Geometry(1.0)).sensitivity(privacy.neighbors, max_rows(design))
    mu = gdp_mu(privacy.epsilon, privacy.delta)
    return GLMSchedule(
        shares=tuple(left * g / sum(growing) for g in growing),
        stretch=min(_MOST_RADIUS, math.sqrt(1 + slack)) if adaptive else 1.0,
        blur=acute * math.sqrt(2) * d**1.5 / (mu * math.sqrt(_WHITENED) * n),
        adaptive=adaptive and design.family.name != "binomial",
    )


def _parts(
    family: Family, law: NormalPredictor, noise: float, spread: float, n: int
) -> tuple[float, float]:
    """Variances of a whitened coefficient times n: of the noise, and of sampling."""
    tuning = tune(family, law, noise, spread if family.name == "gaussian" else 0.0, n)
    m = tuning.moments(law.eta)
    slope = float(law.average(m.slope * family.slope(law.eta)))
    return noise * (tuning.clip / slope) ** 2, float(law.average(m.square)) / slope**2


def _fixed_share(steps: int, design: Design, adaptive: bool) -> float:
    share = _COUNT + _NORM + _GRAM + _WHITENED + _BREAD + _MEAT
    share += _MEAN * design.has_intercept
    if design.family.name == "binomial":
        return share
    share += (_START + _EXPOSURE * _exposed(design)) * design.has_intercept + _TAILS * adaptive
    return share + _FIRST_SPREAD + (steps - 1) * _LATER_SPREAD


def _exposed(design: Design) -> bool:
    """Whether means are proportional to exp(offset)."""
    return design.family.link == "log" and design.offset is not None


def _asks(public: GLMSchedule, design: Design) -> list[Request]:
    steps, binomial = range(len(public.shares)), design.family.name == "binomial"
    spreads = [_FIRST_SPREAD] + [_LATER_SPREAD] * (len(public.shares) - 1)
    start = [Request("level", _START, "size of the response, for the next clip")] * (not binomial)
    start.append(Request("mean", _MEAN, "mean response, to start from"))
    start += [Request("exposure", _EXPOSURE, "mean of exp(offset), to start from")] * _exposed(
        design
    )
    return [
        Request("count", _COUNT, "number of rows that contribute"),
        *(start * design.has_intercept),
        Request("norm", _NORM, "a radius that most rows are within"),
        Request("gram", _GRAM, "second moments of the columns"),
        Request("whitened gram", _WHITENED, "second moments in whitened coordinates"),
        *(
            Request(f"spread {k + 1}", spreads[k], "spread of the residuals, for the clip")
            for k in (() if binomial else steps)
        ),
        *(
            Request(f"score {k + 1}", public.shares[k], "clipped score of a Newton step")
            for k in steps
        ),
        *([Request("tails", _TAILS, "what the last clip cuts off, to widen it")] * public.adaptive),
        Request("bread", _BREAD, "curvature, for the last step"),
        Request("meat", _MEAT, "outer products of the scores, for standard errors"),
    ]


def _predict(plan: Plan, public: GLMSchedule, design: Design) -> Plan:
    """The plan with its expected standard errors and its warnings."""
    # Both last scores of a logit count.
    share = sum(public.shares[-2:]) if design.family.name == "binomial" else public.shares[-1]
    noise = _unit(design, plan.privacy, plan.n) * public.stretch**2 / share
    unit = (1 + 0.4 * max(0.0, public.blur - 0.7)) ** 2

    def variances(case: Case) -> tuple[float, float]:
        law = NormalPredictor(case.mean, case.spread)
        spread = float(np.mean(design.family.mean(law.eta)))  # of a normal response
        private, sampled = _parts(design.family, law, noise, spread, plan.n)
        return unit * case.dispersion * private, unit * case.dispersion * sampled

    warned = blur_warnings(plan, public.blur / _NOISE_LIMIT, public.blur / _CONSERVATIVE)
    return expect_typical(plan, design, variances, warned)
