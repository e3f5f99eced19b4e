"""DP-GD: regression by full-batch noisy gradient descent with clipped residuals."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np
from numpy.typing import NDArray

from dpstats.accounting import gdp_mu
from dpstats.estimators.base import Request, need_delta, need_integer
from dpstats.estimators.bounds import GLM_LOWER, LINEAR_LOWER, LOGISTIC, rates
from dpstats.estimators.central.counted import CountingMethod, counted_plan
from dpstats.estimators.central.published.recursion import (
    after_steps,
    not_gone,
    project_to_ellipsoid,
    symmetric_of,
)
from dpstats.estimators.central.sandwich import (
    COUNT,
    noisy_count,
    residual_variance,
    score_covariance,
    shrink,
)
from dpstats.estimators.guesses import Guess, clipping_radius, expect, guess, with_resolution
from dpstats.estimators.numerics.huber import clipped_square, unclipped
from dpstats.estimators.sources import BASSILY, BROWN, CAI, SCORE_ATTACK
from dpstats.families import BINOMIAL, GAUSSIAN, Family
from dpstats.privacy import Privacy
from dpstats.protocol import CoefficientEstimate, Holder, Options, Plan
from dpstats.queries import Geometry, Gram, Query, ResidualCount, ResidualMoment, Score
from dpstats.theory import Assumption, Theory

if TYPE_CHECKING:
    from dpstats.design import Design

__all__ = ["DPGD"]

Array = NDArray[np.float64]

# numerical: of the error, by a step in the slowest direction
_CONTRACTION = (0.85, 0.97)
_REACH = 1.2  # ratio: step size times the largest eigenvalue; below 2, with room for noise on it
_CLIP = 1.5  # sds: clip of residuals (Huber's choice is 1.345)
_PHASES = 3  # number: times that the clip is renewed
_STEEPEST = 0.25  # printed: bound of the curvature of a row's logistic loss
_TYPICAL = 0.18  # ratio: a guess of that curvature
_LOGITS = 36.0  # numerical: mean square that linear predictors of a logit are kept below
_GRADIENTS = 0.75  # budget: all steps together
_STEPS, _MAX_STEPS = (4, 200), 1000  # numerical: fewest and most steps, planned and asked for
_WORDS = "Linear predictors have mean 0 and standard deviation 1."

_DECREASING = (
    "Noise decreases geometrically over the steps instead of being equal: the last iterate then "
    "carries the noise of about one Gaussian release, whatever the number of steps."
)
_SIGNAL = Assumption("Privacy noise is smaller than the signal", "n eps > d sqrt(log(1/delta))")

_BROWN = BROWN.at("main accuracy claim, Section 1")

_LINEAR = Theory(
    estimand=(
        "regression coefficients of the Huber M-estimator at a clip of about 1.5 residual "
        "standard deviations: the coefficients of the mean where errors are symmetric; with "
        "skewed errors the intercept is drawn towards the mode"
    ),
    guarantee=(
        "(epsilon, delta)-DP for every data set: each step is a Gaussian mechanism on a sum of "
        "contributions w x clip(r) of norm at most R c (L2 sensitivity 2 R c under replace-one, "
        "R c under add-remove); with the Gram matrix, residual moments and counts they compose "
        "exactly as one Gaussian mechanism, the clip and the step size being post-processing."
    ),
    assumptions=(
        Assumption("Rows x are (sub-)Gaussian, well conditioned: condition number of order 1"),
        Assumption("y = x'beta + noise with Gaussian noise, independent of x"),
        Assumption("The sample size is linear in the dimension", "n >= 10 d"),
        _SIGNAL,
    ),
    upper=rates("sqrt(d/n)", "d sqrt(log(1/delta))/(n eps)", _BROWN),
    lower=LINEAR_LOWER,
    citations=(_BROWN, CAI.at("Theorem 4.1")),
    corrections=(
        _DECREASING,
        "Rows are weighted and residuals clipped separately, at 1.5 released standard deviations, "
        "instead of clipping whole gradients at a fixed norm.",
        "Intervals are for the population coefficients: the printed ones cover the empirical "
        "minimiser only.",
    ),
)

_BASSILY = BASSILY.at("Algorithm 1, full-batch")

_LOGISTIC = Theory(
    estimand=(
        "coefficients of the logistic regression; where its mean is not right, those of maximum "
        "likelihood with far-out rows weighted down"
    ),
    guarantee=(
        "(epsilon, delta)-DP for every data set: each step is a Gaussian mechanism on a sum of "
        "contributions w^2 x (y - p) of norm at most R (L2 sensitivity 2 R under replace-one, R "
        "under add-remove); with the Gram matrix, the curvature and counts they compose exactly "
        "as one Gaussian mechanism, the step size being post-processing."
    ),
    assumptions=(
        LOGISTIC,
        Assumption("Rows x are well conditioned: condition number of order 1"),
        _SIGNAL,
    ),
    upper=rates("sqrt(d/n)", "d sqrt(log(1/delta))/(n eps)", _BASSILY, conjectured=True),
    lower=GLM_LOWER,
    citations=(_BASSILY, SCORE_ATTACK),
    corrections=(
        _DECREASING,
        "Full batches instead of sampled ones, and rows weighted into a ball instead of clipped "
        "gradients, so that the root of the score stays where it is.",
    ),
)


@dataclass(frozen=True)
class Loss:
    """What descent must know of a loss.

    Attributes
    ----------
    family : Family
        Law of the response.
    steepest, typical, counted : float
        Curvature of a row's loss: its bound, a guess, and what the step size counts on.
    clip : float
        Clip of residuals, in guessed standard deviations.
    variance : float
        Of a score over the square of its slope, in squares of the guessed standard deviation.
    phases : int
        How often the clip is released.
    score, last : str and Request
        What a step asks, in words; and what is asked of the curvature after the last one.
    """

    family: Family
    theory: Theory
    steepest: float
    typical: float
    counted: float
    clip: float
    variance: float
    phases: int
    score: str
    last: Request

    def renewals(self, steps: int) -> list[int]:
        """Steps before which the clip is renewed."""
        return [i * steps // self.phases for i in range(self.phases)]

    def rate(self, values: Array, noise: float, contraction: float) -> float:
        """Step size from the increasing eigenvalues of the mean Gram matrix and the noise on it.

        Stable: rate lambda < 2 for the largest true eigenvalue unless noise of operator norm about
        noise sqrt(2 d) hides more than half of it.
        """
        top = self.steepest * float(values[-1])
        top += self.steepest * noise * math.sqrt(len(values) / 2)
        return min((1 - contraction) / (self.counted * float(values[0])), _REACH / top)

    def guess(self, design: Design) -> Guess:
        """Public guesses; linear predictors of a logit are on their own scale."""
        facts = guess(design)
        if self.family == GAUSSIAN:
            return facts
        return Guess(facts.gram, facts.radius, 1.0, 1.0, (facts.assumptions[0], _WORDS))


def loss_of(model: str) -> Loss:
    """The loss of a model."""
    if model == "logit":
        return Loss(
            BINOMIAL,
            _LOGISTIC,
            steepest=_STEEPEST,
            typical=_TYPICAL,
            counted=_TYPICAL,
            clip=1.0,
            variance=1 / _TYPICAL,
            phases=0,
            score="gradient of the logistic loss",
            last=Request("curvature", 0.07, "curvature at the last iterate, for standard errors"),
        )
    active = float(unclipped(_CLIP))
    return Loss(
        GAUSSIAN,
        _LINEAR,
        steepest=1.0,
        typical=active,
        counted=1.0,
        clip=_CLIP,
        variance=float(clipped_square(_CLIP)) / active**2,
        phases=_PHASES,
        score="clipped gradient of the squared loss",
        last=Request("active", 0.01, "residuals within the last clip, for standard errors"),
    )


@dataclass(frozen=True)
class _Bounds:
    """What a step is held to: the clip of residuals and ``beta'G beta``; and their variance."""

    clip: float
    reach: float
    variance: float = math.nan


@dataclass(frozen=True)
class DPGD(CountingMethod[CoefficientEstimate]):
    """Full-batch noisy gradient descent, last iterate (Brown et al. 2024; Bassily et al. 2014).

    From beta = 0, T planned steps

        beta <- Pi(beta + (rate / n) (sum w^2 x clip(y - x'beta, -c, c) + s_t N(0, I))),

    with weights w = min(1, R / ||x||). A contraction k per step, between 0.85 and 0.97, is planned
    from the condition number that public bounds suggest, and T so that what is left of the start,
    k^T, is a tenth of the error expected. The step size is set after one noisy Gram matrix G: rate
    = min((1 - k) / lambda_min, 1.2 / lambda_max), so that the slowest direction contracts by k
    where stability allows. Pi scales beta back to beta'G beta <= E y^2, which the best linear
    predictor satisfies.

    Notes
    -----
    *Guarantee.* Every question is a Gaussian mechanism whose sensitivity its query computes and
    enforces by clipping: `Count`, `Gram`, `ResidualMoment`, `Score` (T times), `ResidualCount` (for
    a logit, a second `Gram`) and `ScoreOuter`. Each depends on the data only through earlier
    answers, so that adaptive composition of Gaussian mechanisms (Dong, Roth & Su 2022, Corollary
    3.3) gives the cost in the plan.

    *Budget.* An error made j steps before the end is multiplied by k^j, so step t gets a share of
    the zero-concentrated budget in proportion to k^(T - t). With h = 1 - k, a sum of noise s per
    unit of budget leaves the last iterate the variance sum_j k^(2 j) (rate s)^2 / rho_j, which is
    (rate s / h)^2 (1 - k^T)^2 / rho: that of one release of the whole budget rho, for any T. (By
    Cauchy-Schwarz no other allocation has less.)

    *Covariance.* Let a be the share of residuals within the clip, H = I - rate a G, Q = H^T. To
    first order the error is (I - Q)(a n G)^-1 (sum of scores) - Q beta + noise, the noise
    satisfying C <- H C H + (rate s_t / n)^2 I. The meat of the scores is released. For -Q beta,
    the part of the way that was not gone, the square of the estimated component enters, at most
    what beta'G beta <= E y^2 permits: intervals are wide, not wrong, in directions that descent
    does not reach (condition numbers above about 30; method "newton" has no such directions).

    *Limits.* The interval rests on the released Gram matrix. Directions whose second moment is
    below the noise on it are not seen; the plan states the condition number up to which intervals
    cover. Beyond it they can fail: about 40 % instead of 95 % coverage at condition number 100
    with n = 10,000, d = 20, epsilon = 1.

    *Units.* Internal coordinates.
    """

    model: str = "ols"
    name: ClassVar[str] = "dp-gd"
    options: ClassVar[Mapping[str, str]] = {
        "steps": "number of gradient steps, 3 to 1000; planned from public facts by default",
        "radius": "norm > 0 at which rows are weighted down, in standardised units; public",
    }

    @property
    def theory(self) -> Mapping[str, Theory]:
        """What is known under each trust model."""
        return {"central": loss_of(self.model).theory}

    def _plan(self, design: Design, privacy: Privacy, n: int, options: Options) -> Plan:
        need_delta(self.name, privacy)
        loss = loss_of(self.model)
        facts = loss.guess(design)
        radius = clipping_radius(options.get("radius"), facts, design)
        contraction = _contraction(loss, facts)
        noise = 2 * radius * loss.clip * facts.sd
        noise /= gdp_mu(privacy.epsilon, privacy.delta) * math.sqrt(_GRADIENTS)
        planned = _steps(loss, contraction, facts, n, noise)
        steps = need_integer("steps", options.get("steps"), planned, _PHASES, _MAX_STEPS)
        public = {"steps": steps, "radius": radius, "contraction": contraction}
        plan = counted_plan(self, design, privacy, n, asks_of(loss, steps, contraction), public)
        return _predict(plan, design, facts)

    def _fit(self, holder: Holder[Query], design: Design, plan: Plan) -> CoefficientEstimate:
        """Descend with the planned noise; then ask for what standard errors need."""
        d, steps, loss = len(plan.names), int(plan.options["steps"]), loss_of(self.model)
        geometry = Geometry(float(plan.options["radius"]))
        n = noisy_count(holder, d)
        answer, (_, s_gram) = holder.ask(Gram(geometry), "gram")
        gram = shrink(answer / n, s_gram / n)
        values, _ = np.linalg.eigh(gram)
        rate = loss.rate(values, s_gram / n, float(plan.options["contraction"]))

        beta, noises, bounds = np.zeros(d), [], _Bounds(1.0, _LOGITS)
        for t in range(steps):
            if t in loss.renewals(steps):
                bounds = _renewed(holder, design, beta, n, loss.renewals(steps).index(t), bounds)
            query = Score(geometry, beta, bounds.clip, loss.family)
            score, (_, s) = holder.ask(query, f"step-{t + 1}")
            beta = project_to_ellipsoid(beta + rate * score / n, gram, bounds.reach)
            noises.append(s / n)

        active, curvature = _curvature(holder, design, geometry, beta, bounds, n, gram)
        values, vectors = np.linalg.eigh(curvature)
        expected = n * symmetric_of(vectors, values)
        if loss.family == GAUSSIAN:
            expected = bounds.variance * n * gram
        meat = score_covariance(holder, "meat", geometry, beta, bounds.clip, expected, loss.family)
        left, noise = after_steps(rate * active * values, rate * np.array(noises))
        bread = symmetric_of(vectors, (1 - left) / (active * n * values))
        cov_privacy = symmetric_of(vectors, noise)
        sampling = bread @ meat @ bread * n / (n - d)
        released = {"step size": rate}
        if loss.family == GAUSSIAN:
            released |= {"clip": bounds.clip, "residual sd": math.sqrt(bounds.variance)}
            released |= {"share of residuals within the clip": active}
        released |= {"largest share of the way not gone": float(left.max())}
        return CoefficientEstimate(
            params=beta,
            cov=cov_privacy + sampling + not_gone(vectors, values, left, beta, bounds.reach),
            cov_privacy=cov_privacy,
            cov_sampling=sampling,
            nobs=n,
            released={**released, "radius": geometry.radius},
        )


def asks_of(loss: Loss, steps: int, contraction: float) -> tuple[Request, ...]:
    """Every question; that of a step has more budget the later it comes."""
    weights = contraction ** np.arange(steps - 1, -1, -1)
    weights *= _GRADIENTS / weights.sum()
    return (
        COUNT,
        Request("gram", 0.12, "second moments X'X of weighted rows"),
        *(
            Request(f"scale-{i + 1}", 0.02, "variance of the residuals, for the clip")
            for i in range(loss.phases)
        ),
        *(Request(f"step-{t + 1}", float(w), loss.score) for t, w in enumerate(weights)),
        loss.last,
        Request("meat", 0.05, "outer product of the scores, for standard errors"),
    )


def _contraction(loss: Loss, facts: Guess) -> float:
    """Share of the error that a step leaves in the slowest direction of the guessed design."""
    values = np.linalg.eigvalsh(facts.gram)
    slowest = 1 - _REACH * loss.typical / loss.steepest * float(values[0] / values[-1])
    return float(np.clip(slowest, *_CONTRACTION))


def _steps(loss: Loss, contraction: float, facts: Guess, n: int, noise: float) -> int:
    """Steps until a tenth of the expected error is left of the start."""
    values = loss.counted * n * np.maximum(np.linalg.eigvalsh(facts.gram), 1e-3)
    variance = float(np.sum((noise / values) ** 2 + facts.sd**2 / values))
    error = min(1.0, math.sqrt(variance / facts.coefficient2))
    wanted = math.ceil(math.log(0.1 * error) / math.log(contraction))
    return int(np.clip(wanted, *_STEPS))


def _renewed(
    holder: Holder[Query], design: Design, beta: Array, n: float, phase: int, last: _Bounds
) -> _Bounds:
    """The clip from the variance of the residuals at `beta`, and once the bound of ``E y^2``."""
    bound = guess(design).bound
    limit = bound if phase == 0 else min(bound, 2 * last.clip)
    everyone = Geometry(float(design.norm_bound))
    variance, error = residual_variance(holder, f"scale-{phase + 1}", beta, limit, everyone, n)
    clip = min(bound, _CLIP * math.sqrt(variance + error))
    return _Bounds(clip, variance + 2 * error if phase == 0 else last.reach, variance)


def _curvature(
    holder: Holder[Query],
    design: Design,
    geometry: Geometry,
    beta: Array,
    bounds: _Bounds,
    n: float,
    gram: Array,
) -> tuple[float, Array]:
    """Share of the rows whose loss is curved, and the mean curvature where all are, (d, d)."""
    if design.family == GAUSSIAN:
        everyone = Geometry(float(design.norm_bound))
        inside, _ = holder.ask(ResidualCount(everyone, beta, bounds.clip), "active")
        return float(np.clip(inside[0] / n, 0.5, 1.0)), gram
    query = Gram(geometry, beta, None, BINOMIAL, _STEEPEST)
    answer, (_, error) = holder.ask(query, "curvature")
    return 1.0, shrink(answer / n, error / n)


def guessed_clips(plan: Plan, facts: Guess, loss: Loss) -> list[float]:
    """The clip of each step, as the fit would renew it at the guesses."""
    geometry = Geometry(float(plan.options["radius"]))
    steps, clips = int(plan.options["steps"]), [facts.bound]
    for t in range(steps):
        clip = clips[-1]
        if t in loss.renewals(steps):
            phase = loss.renewals(steps).index(t)
            limit = facts.bound if phase == 0 else min(facts.bound, 2 * clip)
            moment = ResidualMoment(geometry, np.zeros(len(plan.names)), limit)
            error = plan.noise(moment, f"scale-{phase + 1}").scale / plan.n
            spread = facts.sd**2 * (2 if phase == 0 else 1)
            clip = min(facts.bound, _CLIP * math.sqrt(spread + error))
        clips.append(clip)
    return clips[1:]


def _predict(plan: Plan, design: Design, facts: Guess) -> Plan:
    """The plan with its expected standard errors, by the recursion of the fit at the guesses."""
    n, loss, zero = plan.n, loss_of(plan.model), np.zeros(len(plan.names))
    geometry = Geometry(float(plan.options["radius"]))
    noises = [
        plan.noise(Score(geometry, zero, clip), f"step-{t + 1}").scale / n
        for t, clip in enumerate(guessed_clips(plan, facts, loss))
    ]
    blur = plan.noise(Gram(geometry), "gram").scale / n
    values, vectors = np.linalg.eigh(facts.gram)
    values = np.maximum(values, 1e-9)
    rate = loss.rate(values, blur, float(plan.options["contraction"]))
    left, noise = after_steps(rate * loss.typical * values, rate * np.array(noises))
    sampling = (1 - left) ** 2 * facts.sd**2 * loss.variance / (n * values)
    missing = left**2 * facts.coefficient2 / len(values)
    slow = loss.family == GAUSSIAN and left.max() >= 0.1
    warnings = (_slow_warning(plan, float(values[-1] / values[0])),) if slow else ()
    return expect(
        with_resolution(plan, float(values[-1]) / (blur * math.sqrt(2 * len(values)))),
        design,
        facts,
        symmetric_of(vectors, noise),
        symmetric_of(vectors, sampling + missing),
        warnings,
    )


def _slow_warning(plan: Plan, condition: float) -> str:
    return (
        f"{plan.options['steps']} steps do not reach every direction of this design (condition "
        f"number about {condition:.2g} as guessed from public bounds): coefficients are drawn "
        "towards 0 there and their intervals are wide. Standardise with declared centres and "
        "scales, ask for more steps, or use method='newton'."
    )
