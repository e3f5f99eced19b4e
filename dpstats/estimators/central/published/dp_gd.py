"""DP-GD: linear regression by full-batch noisy gradient descent with clipped residuals."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from dpstats.accounting import gdp_mu
from dpstats.errors import OptionError
from dpstats.estimators.base import Ask, check_options, make_plan, need_delta
from dpstats.estimators.bounds import LINEAR_LOWER
from dpstats.estimators.central.published.recursion import (
    REACH,
    after_steps,
    along,
    step_size,
    within,
)
from dpstats.estimators.central.sandwich import (
    noisy_count,
    residual_variance,
    score_covariance,
    shrink,
)
from dpstats.estimators.guesses import (
    Guess,
    clipping_radius,
    expect,
    guess,
    with_resolution,
)
from dpstats.estimators.sources import BROWN, CAI
from dpstats.privacy import Privacy
from dpstats.protocol import Estimate, Holder, Plan
from dpstats.queries import Geometry, Gram, Query, ResidualCount, ResidualMoment, Score
from dpstats.theory import Assumption, Rate, Theory

if TYPE_CHECKING:
    from dpstats.design import Design

__all__ = ["DPGD"]

Array = NDArray[np.float64]

_CONTRACTION = (0.85, 0.97)  # share of the error that a step leaves in the slowest direction
_CLIP = 1.5  # residuals are clipped at this many standard deviations (Huber's choice is 1.345)
_ACTIVE = 0.87  # P(|z| < _CLIP) for a standard normal z
_CLIPPED = 0.78  # E min(z^2, _CLIP^2) for a standard normal z
_PHASES = 3  # the clip is renewed this many times
_GRADIENTS = 0.75  # share of the budget for all steps together
_STEPS = (4, 200)
_MAX_STEPS = 1000

_BROWN = BROWN.at("main accuracy claim, Section 1")

_THEORY = Theory(
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
        Assumption("Privacy noise is smaller than the signal", "n eps > d sqrt(log(1/delta))"),
    ),
    upper=(
        Rate("statistical", "sqrt(d/n)", _BROWN),
        Rate("privacy", "d sqrt(log(1/delta))/(n eps)", _BROWN),
    ),
    lower=LINEAR_LOWER,
    citations=(_BROWN, CAI.at("Theorem 4.1")),
    corrections=(
        "Noise decreases geometrically over the steps instead of being equal: the last iterate "
        "then carries the noise of about one Gaussian release, whatever the number of steps.",
        "Rows are weighted and residuals clipped separately, at 1.5 released standard deviations, "
        "instead of clipping whole gradients at a fixed norm.",
        "Intervals are for the population coefficients: the printed ones cover the empirical "
        "minimiser only.",
    ),
)


@dataclass(frozen=True)
class DPGD:
    """Full-batch noisy gradient descent (Brown et al. 2024), last iterate, for linear regression.

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
    *Guarantee.* Every question is a Gaussian mechanism whose sensitivity its query
    computes and enforces by clipping: `Count`, `Gram`, `ResidualMoment`, `Score` (T times),
    `ResidualCount` and `ScoreOuter`. Each depends on the data only through earlier answers, so
    that adaptive composition of Gaussian mechanisms (Dong, Roth & Su 2022, Corollary 3.3) gives
    the cost in the plan.

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

    name: ClassVar[str] = "dp-gd"
    model: ClassVar[str] = "ols"
    sparse: ClassVar[bool] = False
    theory: ClassVar[Mapping[str, Theory]] = {"central": _THEORY}
    options: ClassVar[Mapping[str, str]] = {
        "steps": "number of gradient steps, 3 to 1000; planned from public facts by default",
        "radius": "norm > 0 at which rows are weighted down, in standardised units; public",
    }

    def plan(self, design: Design, privacy: Privacy, n: int, **options: Any) -> Plan:
        """Mechanisms, cost and expected error from public facts only.

        Parameters
        ----------
        design : Design
            Public design.
        privacy : Privacy
            The guarantee, delta > 0.
        n : int
            Public number of rows, or a public guess of it.
        **options
            ``steps``, ``radius``.

        Raises
        ------
        OptionError
            If an option is unknown or out of range, or delta is 0.
        """
        check_options(self.name, self.options, options)
        need_delta(self.name, privacy)
        facts = guess(design)
        radius = clipping_radius(options.get("radius"), facts, design)
        contraction = _contraction(facts)
        steps = _steps(options.get("steps"), contraction, facts, privacy, n, radius)
        plan = make_plan(
            self,
            design,
            privacy,
            n,
            _asks(steps, contraction),
            {"steps": steps, "radius": radius, "contraction": contraction},
        )
        return _predict(plan, design, facts)

    def fit(self, holder: Holder[Query], design: Design, plan: Plan) -> Estimate:
        """Descend with the planned noise; then ask for what standard errors need."""
        d, steps = len(plan.names), int(plan.options["steps"])
        bound = guess(design).bound
        everyone = Geometry(float(design.norm_bound))
        geometry = Geometry(float(plan.options["radius"]))
        n = noisy_count(holder, d)
        answer, (_, s_gram) = holder.ask(Gram(geometry), "gram")
        gram = shrink(answer / n, s_gram / n)
        values, vectors = np.linalg.eigh(gram)
        rate = step_size(values, s_gram / n, float(plan.options["contraction"]))

        beta, reach, noises = np.zeros(d), math.inf, []
        variance, clip = math.nan, bound
        for t in range(steps):
            if t in _renewals(steps):
                phase = _renewals(steps).index(t)
                limit = bound if phase == 0 else min(bound, 2 * clip)
                slot = f"scale-{phase + 1}"
                variance, error = residual_variance(holder, slot, beta, limit, everyone, n)
                clip = min(bound, _CLIP * math.sqrt(variance + error))
                reach = min(reach, variance + 2 * error) if phase == 0 else reach
            score, (_, s) = holder.ask(Score(geometry, beta, clip), f"step-{t + 1}")
            beta = within(beta + rate * score / n, gram, reach)
            noises.append(s / n)

        inside, _ = holder.ask(ResidualCount(everyone, beta, clip), "active")
        active = float(np.clip(inside[0] / n, 0.5, 1.0))
        meat = score_covariance(holder, "meat", geometry, beta, clip, variance * n * gram)
        left, noise = after_steps(rate * active * values, rate * np.array(noises))
        travelled = (vectors.T @ beta / np.maximum(1 - left, 1e-6)) ** 2
        missing = left**2 * np.minimum(travelled, reach / values)
        bread = along(vectors, (1 - left) / (active * n * values))
        cov_privacy = along(vectors, noise)
        sampling = bread @ meat @ bread * n / (n - d)
        return Estimate(
            params=beta,
            cov=cov_privacy + sampling + along(vectors, missing),
            cov_privacy=cov_privacy,
            cov_sampling=sampling,
            nobs=n,
            released={
                "step size": rate,
                "clip": clip,
                "residual sd": math.sqrt(variance),
                "share of residuals within the clip": active,
                "largest share of the way not gone": float(left.max()),
                "radius": geometry.radius,
            },
        )


def _asks(steps: int, contraction: float) -> tuple[Ask, ...]:
    weights = contraction ** np.arange(steps - 1, -1, -1)
    weights *= _GRADIENTS / weights.sum()
    return (
        Ask("count", 0.01, "number of rows that contribute"),
        Ask("gram", 0.12, "second moments X'X, for the step size and standard errors"),
        *(
            Ask(f"scale-{i + 1}", 0.02, "variance of the residuals, for the clip")
            for i in range(_PHASES)
        ),
        *(
            Ask(f"step-{t + 1}", float(w), "clipped gradient of the squared loss")
            for t, w in enumerate(weights)
        ),
        Ask("active", 0.01, "residuals within the last clip, for standard errors"),
        Ask("meat", 0.05, "outer product of the scores, for standard errors"),
    )


def _renewals(steps: int) -> list[int]:
    """Steps before which the clip is renewed."""
    return [i * steps // _PHASES for i in range(_PHASES)]


def _contraction(facts: Guess) -> float:
    """Share of the error that a step leaves in the slowest direction of the guessed design."""
    values = np.linalg.eigvalsh(facts.gram)
    slowest = 1 - REACH * _ACTIVE * float(values[0] / values[-1])
    return float(np.clip(slowest, *_CONTRACTION))


def _steps(
    asked: Any, contraction: float, facts: Guess, privacy: Privacy, n: int, radius: float
) -> int:
    """Steps until a tenth of the expected error is left of the start."""
    if asked is not None:
        if not (isinstance(asked, int) and _PHASES <= asked <= _MAX_STEPS):
            raise OptionError(
                f"steps={asked!r}: an integer from {_PHASES} to {_MAX_STEPS} is needed."
            )
        return asked
    multiplier = 1 / (gdp_mu(privacy.epsilon, privacy.delta) * math.sqrt(_GRADIENTS))
    noise = multiplier * 2 * radius * _CLIP * facts.sd
    values = n * np.maximum(np.linalg.eigvalsh(facts.gram), 1e-3)
    variance = float(np.sum((noise / values) ** 2 + facts.sd**2 / values))
    error = min(1.0, math.sqrt(variance / facts.coefficient2))
    wanted = math.ceil(math.log(0.1 * error) / math.log(contraction))
    return int(np.clip(wanted, *_STEPS))


def _predict(plan: Plan, design: Design, facts: Guess) -> Plan:
    """The plan with its expected standard errors, by the recursion of the fit at the guesses."""
    n = plan.n
    geometry = Geometry(float(plan.options["radius"]))
    steps = int(plan.options["steps"])
    clip, clips = facts.bound, []
    for phase in range(_PHASES):
        limit = facts.bound if phase == 0 else min(facts.bound, 2 * clip)
        moment = ResidualMoment(geometry, np.zeros(len(plan.names)), limit)
        error = plan.noise(moment, f"scale-{phase + 1}").scale / n
        spread = facts.sd**2 * (2 if phase == 0 else 1)
        clip = min(facts.bound, _CLIP * math.sqrt(spread + error))
        clips += [clip] * (_renewals(steps)[phase + 1] if phase + 1 < _PHASES else steps)
    scores = [Score(geometry, np.zeros(len(plan.names)), c) for c in clips[:steps]]
    noises = [plan.noise(q, f"step-{t + 1}").scale / n for t, q in enumerate(scores)]
    s_gram = plan.noise(Gram(geometry), "gram").scale / n
    values, vectors = np.linalg.eigh(facts.gram)
    values = np.maximum(values, 1e-9)
    rate = step_size(values, s_gram, float(plan.options["contraction"]))
    left, noise = after_steps(rate * _ACTIVE * values, rate * np.array(noises))
    sampling = (1 - left) ** 2 * facts.sd**2 * _CLIPPED / (_ACTIVE**2 * n * values)
    missing = left**2 * facts.coefficient2 / len(values)
    warnings = () if left.max() < 0.1 else (_slow_warning(plan, float(values[-1] / values[0])),)
    hidden = s_gram * math.sqrt(2 * len(values))
    return expect(
        with_resolution(plan, float(values[-1]) / hidden),
        design,
        facts,
        along(vectors, noise),
        along(vectors, sampling + missing),
        warnings,
    )


def _slow_warning(plan: Plan, condition: float) -> str:
    return (
        f"{plan.options['steps']} steps do not reach every direction of this design (condition "
        f"number about {condition:.2g} as guessed from public bounds): coefficients are drawn "
        "towards 0 there and their intervals are wide. Standardise with declared centres and "
        "scales, ask for more steps, or use method='newton'."
    )
