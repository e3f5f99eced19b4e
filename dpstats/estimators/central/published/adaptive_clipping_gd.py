"""Gradient descent on disjoint batches with privately adapted clips (Li, Tian, Feng & Yu)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np
from numpy.typing import NDArray

from dpstats.estimators.base import Request, need_delta, need_positive
from dpstats.estimators.bounds import LINEAR_LOWER, rates
from dpstats.estimators.central.counted import CountingMethod, counted_plan
from dpstats.estimators.central.published.recursion import not_gone, symmetric_of
from dpstats.estimators.central.sandwich import (
    COUNT,
    noisy_count,
    residual_variance,
    score_covariance,
    shrink,
)
from dpstats.estimators.guesses import Guess, expect, guess, round_up
from dpstats.estimators.numerics.huber import MEAT_CLIP
from dpstats.estimators.private_variance import (
    FAILURE,
    TYPICAL,
    adapted_clip,
    batches,
    eigenvalues,
    few_pairs,
    log_factor,
    need_pairs,
    pair_scales,
)
from dpstats.estimators.sources import CAI, KARWA_VADHAN, LI_FEDERATED
from dpstats.privacy import Privacy
from dpstats.protocol import CoefficientEstimate, Holder, Options, Plan
from dpstats.queries import Geometry, Gram, Query, Score
from dpstats.theory import Assumption, Theory

if TYPE_CHECKING:
    from dpstats.design import Design

__all__ = ["AdaptiveClippingGD"]

Array = NDArray[np.float64]


_THEORY = Theory(
    estimand=(
        "coefficients of the Gaussian linear model (the best linear predictor, as far as residuals "
        "are not clipped)"
    ),
    guarantee=(
        "(epsilon, delta)-DP for every data set under replace-one neighbours: batches are "
        "disjoint, so the T histograms of pairs (L1 sensitivity 2) cost one Laplace mechanism "
        "and the T clipped gradients (L2 sensitivity 2 R R_t) one Gaussian mechanism; these two "
        "and three statistics for standard errors are composed exactly."
    ),
    assumptions=(
        Assumption("Rows are Gaussian with eigenvalues of the covariance in [1/L, L]"),
        Assumption("y = x'beta + noise with Gaussian noise of variance 1, independent of x"),
        Assumption("||beta|| is bounded and T = C log n with C >= (81 L^2 + 1) / 2"),
        Assumption(
            "Condition (16)",
            "n >~ d T log(max(n, T/delta)/eta) sqrt(log(T/eta) log(1/delta))/eps, "
            "T = log(n), eta = 0.05",
        ),
    ),
    upper=rates(
        "log(log(n)/eta) sqrt(d log(n)/n), eta = 0.05",
        "d log(n/eta)^2 sqrt(log(1/delta) log(log(n/eta)))/(n eps), eta = 0.05",
        LI_FEDERATED.at("Lemma 3, equation (17)"),
    ),
    lower=LINEAR_LOWER,
    citations=(
        LI_FEDERATED.at("Algorithms 1 and 6, Lemma 3"),
        KARWA_VADHAN.at("Algorithm 2, Theorem 3.2"),
        CAI.at("Theorem 4.1"),
    ),
    corrections=(
        "PrivateVariance as printed bins differences of pairs without their absolute value and "
        "loses the half that is negative; here |W_2i - W_2i-1| is binned.",
        "n in PrivateVariance is the number of pairs, half the batch; with the batch size in "
        "its place the noise would be halved and the guarantee lost.",
        "The printed radius sqrt(d log(n/eta)) lacks sqrt(L), without which the event of the proof "
        "that no row is clipped fails where eigenvalues of the covariance exceed 1.",
        "If no cell of the histogram passes its threshold the printed argmax is undefined; here "
        "the clip falls back to the public bound of the response, and never exceeds it.",
        "Noise is calibrated to the exact composition instead of (epsilon/2, delta/2) by the "
        "classical Gaussian constant.",
        "Rows beyond the radius are weighted symmetrically, so that the curvature is that of the "
        "released Gram matrix; step size and number of batches follow from public bounds.",
    ),
)


@dataclass(frozen=True)
class AdaptiveClippingGD(CountingMethod[CoefficientEstimate]):
    """Noisy descent on disjoint batches, clips by PrivateVariance (Li et al. 2024, Algorithm 1).

    The rows are cut into T disjoint batches of b = n // T. Step t asks batch t for a histogram of
    the scales of pair differences of residuals, then for its clipped gradient:

        R_t  = min(sqrt(log(n / eta)) PrivateVariance(residuals at beta), public bound of |y|),
        beta <- beta + (rate / b) (sum w^2 x clip(y - x'beta, -R_t, R_t) + noise),

    with w = min(1, R / ||x||) and R = min(sqrt(L d log(n / eta)), public bound of ||x||).
    PrivateVariance is 2^(j+2) for the fullest cell (2^j, 2^(j+1)] if its noisy count passes a
    threshold that no empty cell passes with probability 1 - eta, else the public bound is used.

    Notes
    -----
    *Guarantee.* A row belongs to one batch, so that by parallel composition all
    histograms together cost one Laplace mechanism (`PairScales`: a row belongs to one pair and a
    pair to one cell) and all gradients one Gaussian mechanism (`Score`); beta enters them only
    through earlier answers. With `Count`, `Gram`, `ResidualMoment` and `ScoreOuter` on all rows
    these compose adaptively; the plan's cost is that of the composition. Pairs are made by
    position and batches are sets of rows of public size, so that the method needs replace-one
    neighbours and one row per unit.

    *Plan.* With second moments guessed from public bounds up to a factor 2, eigenvalues lie in [l,
    L]; rate = 2 / (l + L) contracts by k = (L - l) / (L + l), and T is the least number with k^T
    <= 1 / sqrt(n). The paper's T = C log n with C >= (81 L^2 + 1) / 2 would leave batches of a few
    dozen rows.

    *Feedback.* Noise is in proportion to the clip, and the clip to the error: the iteration
    contracts only if k + rate 2 R sqrt(d log(n / eta)) 4 sqrt(L) z / b < 1 (z the noise
    multiplier), or else stays at the error of the public bound. The plan warns with the n that
    suffice.

    *Covariance.* With H = I - rate G, noise follows C <- H C H + (rate s_t / b)^2 I and sampling
    error S <- H S H + rate^2 meat / b, batches being independent. For H^T beta, the part of the
    way that was not gone, the square of the estimated component enters.

    Splitting makes both parts of the error sqrt(T) larger than a full batch does (method "dp-gd").
    """

    name: ClassVar[str] = "adaptive-clipping-gd"
    model: ClassVar[str] = "ols"
    by_lots: ClassVar[bool] = True  # rows in pairs, as lots deal them
    theory: ClassVar[Mapping[str, Theory]] = {"central": _THEORY}
    options: ClassVar[Mapping[str, str]] = {
        "steps": "number T of disjoint batches, 2 to 500; planned from public facts by default",
        "step_size": "rate > 0 of descent, in standardised units; from public bounds by default",
    }

    def _plan(self, design: Design, privacy: Privacy, n: int, options: Options) -> Plan:
        need_delta(self.name, privacy)
        need_pairs(self.name, design, privacy, instead="dp-gd")
        facts = guess(design)
        low, high = eigenvalues(facts)
        steps = batches(options.get("steps"), (high - low) / (high + low), n)
        rate = need_positive("step_size", options.get("step_size"), 2 / (high + low))
        spread = math.sqrt(high * len(facts.gram) * math.log(n / FAILURE))
        plan = counted_plan(
            self,
            design,
            privacy,
            n,
            _asks(steps),
            {
                "steps": steps,
                "step_size": rate,
                "radius": min(spread, float(design.norm_bound)),
            },
        )
        return _predict(plan, design, facts)

    def _fit(self, holder: Holder[Query], design: Design, plan: Plan) -> CoefficientEstimate:
        """Take one step per batch; then ask all rows for what standard errors need."""
        d, steps = len(plan.names), int(plan.options["steps"])
        rate = float(plan.options["step_size"])
        bound = guess(design).bound
        geometry = Geometry(float(plan.options["radius"]))
        everyone = Geometry(float(design.norm_bound))
        n = noisy_count(holder, d)
        beta, noises, clips = np.zeros(d), [], []
        for t in range(steps):
            pairs = pair_scales(beta, bound)
            counts, (_, scale) = holder.ask(pairs, "pairs", part=t)
            clips.append(adapted_clip(counts, pairs, scale, steps, log_factor(plan.n), bound))
            score, (_, s) = holder.ask(Score(geometry, beta, clips[-1]), "step", part=t)
            noises.append(s * steps / n)
            beta = beta + rate * score * steps / n

        answer, (_, s_gram) = holder.ask(Gram(geometry), "gram")
        gram = shrink(answer / n, s_gram / n)
        variance, error = residual_variance(holder, "scale", beta, bound, everyone, n)
        clip = min(bound, MEAT_CLIP * math.sqrt(variance + error))
        meat = score_covariance(holder, "meat", geometry, beta, clip, variance * n * gram)
        values, vectors = np.linalg.eigh(gram)
        keep = 1 - np.clip(rate * values, 0.0, 1.0)
        noise, sampling = _law(keep, rate, noises, vectors.T @ meat @ vectors * steps / n**2)
        left = keep**steps
        missing = not_gone(vectors, values, left, beta, bound**2)
        cov_privacy = symmetric_of(vectors, noise)
        cov_sampling = vectors @ sampling @ vectors.T
        return CoefficientEstimate(
            params=beta,
            cov=cov_privacy + cov_sampling + missing,
            cov_privacy=cov_privacy,
            cov_sampling=cov_sampling,
            nobs=n,
            released={
                "batches": steps,
                "clips": [float(c) for c in clips],
                "batches at the public bound": sum(c == bound for c in clips),
                "residual sd": math.sqrt(variance),
                "largest share of the way not gone": float(left.max()),
            },
        )


def _asks(steps: int) -> tuple[Request, ...]:
    return (
        COUNT,
        Request(
            "pairs", 0.12, "scales of residual pairs, for the clip", kind="laplace", parts=steps
        ),
        Request("step", 0.73, "clipped gradient of the squared loss", parts=steps),
        Request("gram", 0.08, "second moments X'X, for standard errors"),
        Request("scale", 0.02, "variance of the residuals, for standard errors"),
        Request("meat", 0.04, "outer product of the scores, for standard errors"),
    )


def _law(keep: Array, rate: float, noises: list[float], meat: Array) -> tuple[Array, Array]:
    """Variances of the noise (d,) and covariance of the sampling error (d, d), in eigenvectors.

    `keep` (d,) is the share of the error that a step keeps, `meat` (d, d) the covariance of one
    batch mean of the scores.
    """
    noise, sampling = np.zeros_like(keep), np.zeros_like(meat)
    for s in noises:
        noise = keep**2 * noise + (rate * s) ** 2
        sampling = np.outer(keep, keep) * sampling + rate**2 * meat
    return noise, sampling


def _predict(plan: Plan, design: Design, facts: Guess) -> Plan:
    """The plan with its expected standard errors, by the recursion of the fit at the guesses."""
    d, n, steps = len(plan.names), plan.n, int(plan.options["steps"])
    rate, radius = float(plan.options["step_size"]), float(plan.options["radius"])
    warnings = few_pairs(plan, pair_scales(np.zeros(d), facts.bound), instead="dp-gd")
    adapted = min(facts.bound, log_factor(plan.n) * TYPICAL * facts.sd)
    clip = facts.bound if warnings else adapted
    unit = plan.noise(Score(Geometry(radius), np.zeros(d), 1.0), "step").scale * steps / n
    values, vectors = np.linalg.eigh(facts.gram)
    values = np.maximum(values, 1e-9)
    keep = 1 - np.clip(rate * values, 0.0, 1.0)
    meat = np.diag(values) * facts.sd**2 * steps / n
    noise, sampling = _law(keep, rate, [unit * clip] * steps, meat)
    rest = np.diag(sampling) + keep ** (2 * steps) * facts.coefficient2 / d
    feedback = rate * unit * log_factor(plan.n) * TYPICAL * math.sqrt(d * float(values[-1]))
    slack = 1 - float(keep.max())
    if feedback > slack:
        needed = round_up(n * feedback / max(slack, 1e-9))
        warnings = (*warnings, _no_contraction(plan, needed))
    return expect(
        plan,
        design,
        facts,
        symmetric_of(vectors, noise),
        symmetric_of(vectors, rest),
        warnings,
    )


def _no_contraction(plan: Plan, needed: int) -> str:
    return (
        f"At n={plan.n:,} and epsilon={plan.privacy.epsilon:g} the noise that adaptive clips let "
        "in exceeds what a step removes, so the clips do not shrink with the error. About "
        f"n={needed:,} rows suffice; method='dp-gd' needs far fewer."
    )
