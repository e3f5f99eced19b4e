"""AdaSSP: ordinary least squares from noisy sufficient statistics with an adaptive ridge."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np
from numpy.typing import NDArray

from dpstats.estimators.base import Request, floor_eigenvalues, need_delta
from dpstats.estimators.bounds import LINEAR, LINEAR_LOWER, SMALL_DELTA, rates
from dpstats.estimators.central.counted import CountingMethod, counted_plan
from dpstats.estimators.central.sandwich import (
    COUNT,
    noisy_count,
    residual_variance,
    score_covariance,
    symmetric_noise_square,
)
from dpstats.estimators.guesses import (
    Guess,
    clipping_radius,
    expect,
    guess,
    round_up,
    with_resolution,
)
from dpstats.estimators.numerics.huber import MEAT_CLIP
from dpstats.estimators.private_variance import FAILURE
from dpstats.estimators.sources import CAI, WANG_ADASSP
from dpstats.privacy import Privacy
from dpstats.protocol import CoefficientEstimate, Holder, Options, Plan
from dpstats.queries import Geometry, Gram, MinEigenvalue, Query, Score
from dpstats.theory import Assumption, Theory

if TYPE_CHECKING:
    from dpstats.design import Design

__all__ = ["AdaSSP"]

Array = NDArray[np.float64]


_ASKS = (
    COUNT,
    Request("gram", 0.42, "second moments X'X of weighted rows"),
    Request("eigenvalue", 0.04, "smallest eigenvalue of X'X, for the ridge"),
    Request("cross", 0.46, "cross moments X'y of weighted rows"),
    Request("scale", 0.02, "variance of the residuals, for standard errors"),
    Request("meat", 0.05, "outer product of the scores, for standard errors"),
)

_WANG = WANG_ADASSP.at("Algorithm 2, Theorem 3")

_THEORY = Theory(
    estimand=(
        "best linear predictor of the response, rows beyond the clipping radius weighted down "
        "(the same coefficients wherever the linear model holds)"
    ),
    guarantee=(
        "(epsilon, delta)-DP for every data set: Gaussian mechanisms on the weighted Gram "
        "matrix (L2 sensitivity sqrt(2) R^2 under replace-one, R^2 under add-remove), its "
        "smallest eigenvalue (R^2), the weighted cross moments (2 R B; R B), and three "
        "statistics for standard errors, composed exactly as one Gaussian mechanism."
    ),
    assumptions=(
        LINEAR,
        Assumption(
            "The smallest eigenvalue of X'X exceeds the noise on X'X, for rows of squared norm d",
            "n >~ d sqrt(d log(1/delta))/eps",
            resolution=True,
        ),
        SMALL_DELTA,
    ),
    upper=rates("sqrt(d/n)", "d sqrt(d log(1/delta))/(n eps)", _WANG),
    lower=LINEAR_LOWER,
    citations=(_WANG, CAI.at("Theorem 4.1")),
    corrections=(
        "The three releases are composed exactly as Gaussian mechanisms, not as three times "
        "(epsilon/3, delta/3).",
        "The printed sensitivity of X'X, R^2, holds for added or removed rows; under replace-one "
        "neighbours it is sqrt(2) R^2, and that of X'y is 2 R B.",
        "Noise on X'X is isotropic in Frobenius norm (off-diagonal variance halved), which the "
        "same guarantee permits.",
        "Long rows are weighted down in x and y alike; clipping x alone biases the coefficients.",
    ),
)


@dataclass(frozen=True)
class AdaSSP(CountingMethod[CoefficientEstimate]):
    """Adaptive sufficient-statistics perturbation (Wang 2018, Algorithm 2) for linear regression.

    With weights w = min(1, R / ||x||), noisy sums A = sum w^2 x x' + N and b = sum w^2 x y + e,
    and a lower confidence bound l of the smallest eigenvalue of sum w^2 x x',

        params = (A + ridge I)^-1 b,    ridge = max(0, t - l),

    where N lies above -t I with probability 95 %: t = s (sqrt(2 d) + sqrt(2 log 20)) for the noise
    scale s of A. (Proof: the negative part of N is a 1-Lipschitz function of its isometric
    coordinates, which are independent with standard deviation s; its mean is at most s sqrt(2 d),
    and Gaussian concentration adds the second term.)

    Notes
    -----
    *Guarantee.* Every question is a Gaussian mechanism whose sensitivity its query
    computes and enforces by clipping: `Count`, `Gram`, `MinEigenvalue`, `Score` at coefficients 0
    (which is the cross moment), `ResidualMoment` and `ScoreOuter`. Later questions depend on the
    data only through earlier answers, so that adaptive composition of Gaussian mechanisms (Dong,
    Roth & Su 2022, Corollary 3.3) gives the cost in the plan. Everything else is post-processing.

    *Covariance.* To first order the error is M^-1 (sum w^2 x r + e - N beta - ridge beta) with
    M = A + ridge I, hence

        V = M^-1 [meat + s_b^2 I + E(N beta beta' N) + ridge^2 beta beta'] M^-1.

    The meat is released; the noise terms are known. The last term allows for the bias of the
    ridge. Where the ridge is active (the plan warns) it dominates, it is estimated from
    coefficients that it shrinks, and the interval need not cover.

    *Units.* Internal coordinates; R and B are the clipping radius and the public bound of |y|.
    """

    name: ClassVar[str] = "adassp"
    model: ClassVar[str] = "ols"
    theory: ClassVar[Mapping[str, Theory]] = {"central": _THEORY}
    options: ClassVar[Mapping[str, str]] = {
        "radius": "norm > 0 at which rows are weighted down, in standardised units; public",
    }

    def _plan(self, design: Design, privacy: Privacy, n: int, options: Options) -> Plan:
        need_delta(self.name, privacy)
        facts = guess(design)
        radius = clipping_radius(options.get("radius"), facts, design)
        plan = counted_plan(self, design, privacy, n, _ASKS, {"radius": radius})
        return _predict(plan, design, facts)

    def _fit(self, holder: Holder[Query], design: Design, plan: Plan) -> CoefficientEstimate:
        """Ask for the sufficient statistics, solve, and ask for what standard errors need."""
        d = len(plan.names)
        bound = guess(design).bound
        everyone = Geometry(float(design.norm_bound))
        geometry = Geometry(float(plan.options["radius"]))
        n = noisy_count(holder, d)
        gram, (_, s_gram) = holder.ask(Gram(geometry), "gram")
        eigenvalue, (_, s_eigenvalue) = holder.ask(MinEigenvalue(geometry), "eigenvalue")
        cross, (_, s_cross) = holder.ask(Score(geometry, np.zeros(d), bound), "cross")

        lowest = max(0.0, float(eigenvalue[0]) - _quantile() * s_eigenvalue)
        ridge = max(0.0, _noise_floor(s_gram, d) - lowest)
        matrix = floor_eigenvalues(gram + ridge * np.eye(d), s_gram)
        inverse = np.linalg.inv(matrix)
        params = inverse @ cross

        variance, error = residual_variance(holder, "scale", params, bound, everyone, n)
        clip = min(bound, MEAT_CLIP * math.sqrt(variance + error))
        meat = score_covariance(holder, "meat", geometry, params, clip, variance * matrix)
        beta2 = np.outer(params, params)
        noise = s_cross**2 * np.eye(d) + symmetric_noise_square(s_gram, beta2)
        cov_privacy = inverse @ noise @ inverse
        sampling = inverse @ meat @ inverse * n / (n - d)
        shrunk = inverse @ beta2 @ inverse * ridge**2
        return CoefficientEstimate(
            params=params,
            cov=cov_privacy + sampling + shrunk,
            cov_privacy=cov_privacy,
            cov_sampling=sampling,
            nobs=n,
            released={
                "ridge": ridge,
                "smallest eigenvalue": lowest,
                "radius": geometry.radius,
                "residual sd": math.sqrt(variance),
            },
        )


def _quantile() -> float:
    """Bound that a standard normal exceeds with probability below `FAILURE`."""
    return math.sqrt(2 * math.log(1 / FAILURE))


def _noise_floor(scale: float, d: int) -> float:
    """Bound t with N >= -t I with probability at least 1 - `FAILURE`; see `AdaSSP`."""
    return scale * (math.sqrt(2 * d) + _quantile())


def _predict(plan: Plan, design: Design, facts: Guess) -> Plan:
    """The plan with its expected standard errors and its warnings."""
    d, n = len(plan.names), plan.n
    geometry = Geometry(float(plan.options["radius"]))
    s_gram = plan.noise(Gram(geometry), "gram").scale
    s_cross = plan.noise(Score(geometry, np.zeros(d), facts.bound), "cross").scale
    s_eigenvalue = plan.noise(MinEigenvalue(geometry), "eigenvalue").scale
    needed = _noise_floor(s_gram, d) + _quantile() * s_eigenvalue
    smallest = float(np.linalg.eigvalsh(facts.gram)[0])
    ridge = max(0.0, needed - n * smallest)
    inverse = np.linalg.inv(n * facts.gram + ridge * np.eye(d))
    beta2 = facts.coefficient2 / d * np.eye(d)
    noise = s_cross**2 * np.eye(d) + symmetric_noise_square(s_gram, beta2)
    sampling = n * facts.sd**2 * facts.gram + ridge**2 * beta2
    warnings = () if ridge == 0 else (_ridge_warning(plan, needed / max(smallest, 1e-12)),)
    largest = n * float(np.linalg.eigvalsh(facts.gram)[-1])
    return expect(
        with_resolution(plan, largest / needed),
        design,
        facts,
        inverse @ noise @ inverse,
        inverse @ sampling @ inverse,
        warnings,
    )


def _ridge_warning(plan: Plan, enough: float) -> str:
    return (
        f"At n={plan.n:,} and epsilon={plan.privacy.epsilon:g} the noise on X'X exceeds its "
        "smallest eigenvalue as guessed from public bounds: a ridge will shrink the "
        f"coefficients, and intervals may not cover. About n={round_up(enough):,} rows suffice."
    )
