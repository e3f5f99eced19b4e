"""Federated low-dimensional regression as printed by Li et al. (2024), Algorithms 1, 2 and (18)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar

import numpy as np
from numpy.typing import NDArray

from dpstats.estimators.base import Request, make_plan, need_delta, need_positive
from dpstats.estimators.bounds import rates
from dpstats.estimators.federated.published.printed import (
    DISTANCE,
    PrintedMethod,
    SiteAnswers,
    SitesDescent,
    clips,
    how_far,
)
from dpstats.estimators.federated.theory import ALIKE, LINEAR_LOWER, TARGET_LINEAR_LOWER
from dpstats.estimators.guesses import Guess, guess
from dpstats.estimators.private_variance import (
    FAILURE,
    batches,
    eigenvalues,
    few_pairs,
    log_factor,
    need_pairs,
    pair_scales,
)
from dpstats.estimators.sources import KARWA_VADHAN, LI_FEDERATED
from dpstats.privacy import Privacy
from dpstats.protocol import CoefficientEstimate, Plan
from dpstats.queries import Geometry, Score
from dpstats.theory import Assumption, Rate, Theory

if TYPE_CHECKING:
    from dpstats.design import Design

__all__ = ["FTLLowDim"]

Array = NDArray[np.float64]

_LEVEL = 0.05  # printed: probability of setting aside a source that is like the target
_LEAST = 2.64  # printed: the fewest sds of normal numbers that PrivateVariance returns
_LI = LI_FEDERATED.at("Theorem 4, (II)")
_I = LI_FEDERATED.at("Lemma 3, (17); Theorem 4, (I)")
_TARGET = rates(
    "sqrt(d log(n0)/n0) log(log(n0)/eta), eta = 0.05",
    "d log(n0/eta)^2 sqrt(log(1/delta) log(log(n0/eta)))/(n0 eps), eta = 0.05",
    _I,
)

_THEORY = Theory(
    estimand="coefficients of the Gaussian linear model at the target",
    guarantee=(
        "(epsilon, delta)-DP in the rows of each site under replace-one neighbours: the rows of a "
        "site are cut into 2 T disjoint parts, of which T are asked by Algorithm 1 and T by "
        "Algorithm 2; so all histograms of pairs cost one Laplace mechanism and all clipped "
        "gradients one Gaussian mechanism, composed exactly"
    ),
    assumptions=(
        ALIKE,
        Assumption("Rows are Gaussian with eigenvalues of the covariance in [1/L, L]"),
        Assumption("y = x'beta + noise with Gaussian noise of variance 1, independent of x"),
        Assumption("Sources that are not alike are off by more than the target's own rate"),
        Assumption("No site has fewer rows than the target, and logs of all are alike"),
        Assumption(
            "Rows suffice for the target's own descent",
            "n0 >~ d log(n0) log(max(n0, log(n0)/delta)/eta) sqrt(log(log(n0)/eta) log(1/delta))/"
            "eps, eta = 0.05",
        ),
    ),
    upper=(
        Rate("heterogeneity", "h", _LI),
        Rate("statistical", "sqrt(d log(n)/n) log(log(n)/eta), eta = 0.05", _LI),
        Rate(
            "privacy",
            "d sqrt(K) log(n/eta)^2 sqrt(log(log(n)/eta) log(1/delta))/(n eps), eta = 0.05",
            _LI,
        ),
    ),
    lower=LINEAR_LOWER,
    alone={"upper": _TARGET, "lower": TARGET_LINEAR_LOWER},
    citations=(
        LI_FEDERATED.at("Algorithms 1, 2 and 6, equation (18), Theorems 4 and 5"),
        KARWA_VADHAN.at("Algorithm 2, Theorem 3.2"),
    ),
    corrections=(
        "Batches of the second half begin where the first half ends; as printed, index b t begins "
        "at row 1, so that rows asked by Algorithm 1 would be asked again, at up to twice the "
        "cost.",
        "The threshold of detection, a constant times the target's rate with all its logarithms, "
        "is an option; by default a chi-squared distance at the noise that is known decides.",
        "PrivateVariance, the radius and the noise are corrected as in Algorithm 1: absolute "
        "differences, the number of pairs, sqrt(L), the public bound, and exact composition.",
        "h in Theorem 4 hides a factor of L^2: the fixed point of the pooled gradient is a mean "
        "weighted by the sites' covariances.",
        "Step size and number of batches follow from public bounds; the printed T = C log N with "
        "C >= (81 L^2 + 1) / 2 would leave batches of a few dozen rows.",
    ),
)


@dataclass(frozen=True)
class FTLLowDim(PrintedMethod):
    """Descent at every site, detection of useful ones, and descent on all their gradients.

    1. *Detection* (one half of each site's rows): Algorithm 1 at every site by itself, T steps on
       disjoint batches, each clipped at ``R_t = sqrt(log(n / eta)) PrivateVariance``. A source is
       set aside where its estimate is farther from the target's than chance allows.
    2. *Estimation* (the other half): Algorithm 2. In step t every site that is left is asked for
       its own R_t at the common beta, and for the gradient of its batch clipped at it;

           beta <- beta + rate sum_k (n_k / N) (gradient_k + noise_k) / b_k.

    Notes
    -----
    *Guarantee.* A row of a site is in one of its 2 T parts. `PairScales` and `Score` compute their
    sensitivities; beta enters them through earlier answers only.

    *Detection.* With H = I - rate G and G as guessed from public bounds, noise of step t has
    covariance ``(rate s_t)^2 I`` and sampling error ``rate^2 sd^2 G / b``; both go through H. The
    sd is the largest that goes with the released clip: the fullest octave of |W_1 - W_2|, W normal,
    begins at .66 to 1.32 sds, so that PrivateVariance, four times that, is 2.64 to 5.28 of them.
    The sum C_k + C_0 makes a chi-squared distance at level .05 / K. With ``threshold=c`` a source
    is kept within c r of the target, r the printed rate (17).

    *Intervals.* The paper states none, and what the fit asks says too little of second moments for
    one. ``combine="blend"`` has intervals, and smaller errors.
    """

    model: str = "ols"
    name: ClassVar[str] = "ftl-low-dim"
    theory: ClassVar[Mapping[str, Theory]] = {"federated": _THEORY}
    options: ClassVar[Mapping[str, str]] = {
        "steps": "number T of batches of each half, 2 to 500; from public facts by default",
        "step_size": "rate > 0 of descent, in standardised units; from public bounds by default",
        "threshold": "constant c > 0 of the printed detection; a chi-squared test by default",
        "h": DISTANCE,
    }

    def site_plan(self, design: Design, privacy: Privacy, n: int, **options: object) -> Plan:
        """What one site charges: histograms and gradients of 2 T disjoint parts of its rows."""
        need_delta(self.name, privacy)
        need_pairs(self.name, design, privacy, instead="rounds")
        facts = guess(design)
        low, high = eigenvalues(facts)
        steps = batches(options.get("steps"), (high - low) / (high + low), n // 2)
        threshold = options.get("threshold")
        spread = math.sqrt(high * len(facts.gram) * math.log(n / FAILURE))
        public = {
            "steps": steps,
            "step_size": need_positive("step_size", options.get("step_size"), 2 / (high + low)),
            "radius": min(spread, float(design.norm_bound)),
            "threshold": None if threshold is None else need_positive("threshold", threshold, 1.0),
            "h": how_far(options),
        }
        plan = make_plan(self, design, privacy, n, _asks(2 * steps), public)
        parts = replace(plan, options={**public, "steps": 2 * steps})
        pairs = pair_scales(np.zeros(len(facts.gram)), facts.bound)
        return replace(plan, warnings=few_pairs(parts, pairs, instead="rounds"))

    def asked(self, sites: SiteAnswers, design: Design, plan: Plan) -> CoefficientEstimate:
        """Detect, then descend."""
        descent = _DenseSteps(sites, plan, guess(design))
        alone, spreads = descent.alone()
        kept, apart = descent.near(alone, spreads)
        beta = descent.together(kept)
        d, aside = beta.size, [site for site in alone if site not in kept]
        said = f"Set aside: {', '.join(aside)}." if aside else "No source was set aside."
        unknown = np.full((d, d), np.nan)
        return CoefficientEstimate(
            params=beta,
            cov=unknown,
            cov_privacy=unknown,
            nobs=float(sum(sites.plans[site].n for site in kept)),
            released={
                "batches": 2 * descent.steps,
                "sources kept": len(kept) - 1,
                "set aside": aside,
                "distances": apart,
            },
            remarks=(said,),
            inference="none: the paper states no interval; combine='blend' has one",
        )


@dataclass(frozen=True, eq=False)
class _DenseSteps(SitesDescent):
    facts: Guess

    @property
    def rate(self) -> float:
        """Of descent."""
        return float(self.plan.options["step_size"])

    def gradients(
        self, beta: Mapping[str, Array], part: int
    ) -> tuple[dict[str, Array], dict[str, float], dict[str, float]]:
        """Mean clipped gradient of each site's batch, the sd of its noise, and its clip."""
        geometry = Geometry(float(self.plan.options["radius"]))
        found_clips = clips(
            self.sites, beta, "pairs", part, (2 * self.steps, 1.0, self.facts.bound)
        )
        scores = {site: Score(geometry, beta[site], c) for site, c in found_clips.items()}
        found, noises = {}, {}
        for site, (score, law) in self.sites.each(scores, "step", part).items():
            found[site] = score / self.batch(site)
            noises[site] = law.sd / self.batch(site)
        return found, noises, found_clips

    def alone(self) -> tuple[dict[str, Array], dict[str, Array]]:
        """Algorithm 1 at every site by itself: estimates, and their covariances as guessed."""
        gram, rate = self.facts.gram, self.rate
        d = len(gram)
        keep = np.eye(d) - rate * gram
        beta = {site: np.zeros(d) for site in self.sites.plans}
        spread = {site: np.zeros((d, d)) for site in beta}
        for t in range(self.steps):
            found, noises, clip = self.gradients(beta, t)
            beta = {site: beta[site] + rate * g for site, g in found.items()}
            for site in beta:
                sd = clip[site] / (log_factor(self.sites.plans[site].n) * _LEAST)
                own = noises[site] ** 2 * np.eye(d) + sd**2 * gram / self.batch(site)
                spread[site] = keep @ spread[site] @ keep + rate**2 * own
        return beta, {site: spread[site] for site in beta}

    def near(
        self, beta: Mapping[str, Array], spread: Mapping[str, Array]
    ) -> tuple[list[str], dict[str, tuple[float, float]]]:
        """The target and the sources that are not told from it; of each its distance, with p."""
        from scipy.stats import chi2

        target = next(iter(self.sites.plans))
        sources = [site for site in beta if site != target]
        constant = self.plan.options["threshold"]
        level, d = _LEVEL / max(len(sources), 1), beta[target].size
        kept, apart = [target], {target: (0.0, 1.0)}
        for site in sources:
            off = beta[site] - beta[target]
            distance = float(off @ np.linalg.solve(spread[site] + spread[target], off))
            apart[site] = distance, float(chi2.sf(distance, d))
            close = apart[site][1] >= level
            if constant is not None:
                close = float(np.linalg.norm(off)) <= constant * self.printed_rate(target)
            if close:
                kept.append(site)
        return kept, apart

    def printed_rate(self, site: str) -> float:
        """r of equation (17), at the rows of a site's half, in sds of its residuals as guessed."""
        plan, d = self.sites.plans[site], len(self.facts.gram)
        n, epsilon, delta = plan.n / 2, plan.privacy.epsilon, plan.privacy.delta
        logs = math.log(math.log(n) / FAILURE)
        sampling = logs * math.sqrt(d * math.log(n) / n)
        often = math.sqrt(math.log(1 / delta) * math.log(math.log(n / FAILURE)))
        private = d * math.log(n / FAILURE) ** 2 * often / (n * epsilon)
        return self.facts.sd * (sampling + private)

    def together(self, kept: list[str]) -> Array:
        """Algorithm 2 on the other halves of these sites."""
        beta = np.zeros(len(self.facts.gram))
        for t in range(self.steps, 2 * self.steps):
            found, _, _ = self.gradients(dict.fromkeys(kept, beta), t)
            rows = {site: self.sites.plans[site].n for site in found}
            mean = sum(rows[site] * g for site, g in found.items()) / sum(rows.values())
            beta = beta + self.rate * mean
            kept = list(found)
        return beta


def _asks(parts: int) -> tuple[Request, ...]:
    return (
        Request(
            "pairs", 0.12, "scales of residual pairs, for the clip", kind="laplace", parts=parts
        ),
        Request("step", 0.73, "clipped gradient of the squared loss", parts=parts),
    )
