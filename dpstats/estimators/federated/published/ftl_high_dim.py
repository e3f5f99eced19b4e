"""Federated sparse regression as printed by Li et al. (2024), Algorithms 3, 4 and 5."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar

import numpy as np
from numpy.typing import NDArray

from dpstats.accounting import Peeling, epsilon_of
from dpstats.combining.sparse import alike
from dpstats.errors import OptionError, is_whole
from dpstats.estimators.base import (
    Request,
    make_plan,
    need_delta,
    need_integer,
    need_positive,
    schedule,
)
from dpstats.estimators.bounds import rates
from dpstats.estimators.federated.published.printed import (
    DISTANCE,
    PrintedMethod,
    SiteAnswers,
    SitesDescent,
    clips,
    how_far,
)
from dpstats.estimators.federated.theory import ALIKE
from dpstats.estimators.private_variance import (
    FAILURE,
    TYPICAL,
    covariate_clip,
    few_pairs,
    log_factor,
    need_pairs,
    pair_scales,
)
from dpstats.estimators.selection import INFERENCE
from dpstats.estimators.sources import KARWA_VADHAN, LI_FEDERATED
from dpstats.estimators.wide import SparseGuess, hard_threshold, project, sparse_guess
from dpstats.privacy import Privacy
from dpstats.protocol import CoefficientEstimate, Plan
from dpstats.queries import Geometry, PeeledScores, Score
from dpstats.theory import Assumption, Rate, Theory

if TYPE_CHECKING:
    from dpstats.design import Design

__all__ = ["FTLHighDim"]

Array = NDArray[np.float64]

_PAIRS = 0.10  # untried: share of the budget of a half for scales of residual pairs
_DROWNED = 0.15  # untried: noise of a step over a coefficient, up to which batches are cut
_LIFT = 2.0**30  # numerical: of the intercept, which is always peeled first
_FEWEST = 8  # numerical: rows that a batch has at least

_II, _I = LI_FEDERATED.at("Theorem 7, (ii)"), LI_FEDERATED.at("Lemma 6; Theorem 7, (i)")
_TARGET = rates(
    "sqrt(s log(d/eta) log(n0)/n0), eta = 0.05",
    "s sqrt(log(1/delta)) log(n0 d/eta)^(5/2)/(n0 eps), eta = 0.05",
    _I,
)
_NOISE = "sqrt(K d s) sqrt(log(1/delta)) log(n d/eta)^(5/2)"

_THEORY = Theory(
    estimand="coefficients of the sparse Gaussian linear model at the target",
    guarantee=(
        "(epsilon, delta)-DP in the rows of each site under replace-one neighbours: a row is in "
        "one of two halves and there in one of T batches, which is asked one histogram of pairs "
        "(Laplace) and either one peeling (first half, Algorithm 3) or one clipped gradient "
        "(second half, Algorithm 4); each half spends the whole budget on its own rows"
    ),
    assumptions=(
        ALIKE,
        Assumption("Rows are Gaussian with eigenvalues of the covariance in [1/L, L]"),
        Assumption("y = x'beta + noise with Gaussian noise of variance 1, independent of x"),
        Assumption(
            "sparsity >= 4.18 L^4 s*, and sources differ from the target, or from s*-sparse "
            "coefficients, by vectors of L1 norm at most sqrt(s*) times their length"
        ),
        Assumption("Sources that are not alike are off by more than the target's own rate"),
        Assumption("Every source's own estimate is as good as the target's"),
        Assumption("Rows suffice for descent on all columns", f"n eps >~ {_NOISE}, eta = 0.05"),
    ),
    upper=(
        Rate("heterogeneity", "h", _II),
        Rate("statistical", "sqrt(s log(d/eta) log(n)/n), eta = 0.05", _II),
        Rate("privacy", f"{_NOISE}/(n eps), eta = 0.05", _II),
    ),
    lower=(),
    alone={"upper": _TARGET},
    citations=(
        LI_FEDERATED.at("Algorithms 3 to 7, Lemma 6, Theorem 7"),
        KARWA_VADHAN.at("Algorithm 2, Theorem 3.2"),
    ),
    corrections=(
        "|A| + 1 and n_A + n_0 stand in Algorithm 5, line 2, where |A| and log(n_A) are printed: "
        "without a source the printed test compares 0, and always takes the noise of d columns.",
        "Where the target is better alone its estimate of the first half stands. Another peeling "
        "of its other half, as printed, has the same error.",
        "Batches of the second half begin where the first half ends.",
        "Algorithm 3 is corrected as method 'adaptive-clipping-iht' is: noise level 2 rho R_t R/b "
        "with b the rows of a batch, coordinatewise clips, PrivateVariance.",
        "Whether a source is alike is told by how far sites that are alike are apart; the printed "
        "threshold c r_HLR, whose constant is not given, is an option.",
        "Assumption 3 needs the largest rate over sites, not the smallest, to be the target's.",
        "The number of batches follows from public bounds, not from C log(n).",
    ),
)


@dataclass(frozen=True)
class FTLHighDim(PrintedMethod):
    """Peeling at every site, detection of useful ones, and hard thresholding on all gradients.

    1. *Detection* (one half of each site's rows): Algorithm 3 at every site by itself. In step t
       one batch of b rows is asked for R_t, by PrivateVariance, and s columns are peeled of

           beta + (rate / b) sum clip(x, -R, R) clip(y - x'beta, -R_t, R_t).

       A source is set aside where its estimate is farther from the target's than sites that are
       alike are from each other.
    2. *Choice* (Algorithm 5): with A sources left, M rows at these sites, and the same logarithms,
       gradients of all d columns are asked for if ``sqrt((A + 1) d s) log^(1/2)(1/delta)
       log^(5/2)(M d/eta) / (M eps)`` is at most the target's own rate r_HLR. Otherwise the estimate
       of the target's first half stands.
    3. *Estimation* (the other half): Algorithm 4. In step t every site that is left is asked for
       its own R_t at the common beta, and for the gradient of its batch, x clipped in length at R;

           beta <- the s largest of beta + rate sum_k (n_k / N) (gradient_k + noise_k) / b_k.

    Notes
    -----
    *Guarantee.* A row of a site is in one half, and in one batch of it (`Mechanism.cut`): it is
    asked `PairScales` once and then `PeeledScores` or `Score` once, whose sensitivities they
    compute. The mechanisms of a half cost the whole budget by their privacy loss, the two halves
    what the costlier of them costs. beta enters them through earlier answers only. The choice reads
    released numbers.

    *Detection.* Peeled estimates have no covariance, so the scale of their distances is taken from
    the sites, as for ``"averaged-sparse"``: see `dpstats.combining.sparse.alike`. With
    ``threshold=c`` a source is kept within c r_HLR of the target, as printed.

    *Intervals.* None, as for any sparse fit whose rows chose its columns. ``sparsity=`` without a
    method has smaller errors.
    """

    model: str = "ols"
    name: ClassVar[str] = "ftl-high-dim"
    sparse: ClassVar[bool] = True
    theory: ClassVar[Mapping[str, Theory]] = {"federated": _THEORY}
    options: ClassVar[Mapping[str, str]] = {
        "sparsity": "columns to keep at every site and together, beside the intercept; needed",
        "steps": "number T of batches of each half, 1 to 100; planned from public facts by default",
        "step_size": "step as a multiple > 0 of the paper's; 1 by default",
        "threshold": "constant c > 0 of the printed detection; distances among sites by default",
        "h": DISTANCE,
    }

    def site_plan(self, design: Design, privacy: Privacy, n: int, **options: object) -> Plan:
        """What one site charges: T peelings on one half of its rows, T gradients on the other."""
        need_delta(self.name, privacy)
        need_pairs(self.name, design, privacy, instead="averaged-sparse")
        facts = sparse_guess(design, _sparsity(design, options.get("sparsity")))
        first, _ = schedule(_asks("peel", facts.picks), privacy)
        asked = make_plan(self, design, privacy, n, _asks("step"), {})
        halves = [(m, b) for b, half in ((1, first), (2, asked.mechanisms)) for m in half]
        most = max(1, min(100, n // (2 * _FEWEST)))
        multiplier = next(m.event.noise_multiplier for m in first if isinstance(m.event, Peeling))
        drowned = _DROWNED * facts.signal / _noise(facts, multiplier, n)
        planned = int(np.clip(drowned, 1, min(most, math.ceil(math.log(n)))))
        steps = need_integer("steps", options.get("steps"), planned, 1, most)
        threshold = options.get("threshold")
        public = {
            "sparsity": facts.sparsity,
            "steps": steps,
            "step_size": need_positive("step_size", options.get("step_size"), 1.0),
            "threshold": None if threshold is None else need_positive("threshold", threshold, 1.0),
            "h": how_far(options),
        }
        mechanisms = tuple(
            replace(m, slot=f"{m.slot}-{branch}", parts=steps, branch=branch)
            for m, branch in halves
        )
        plan = replace(asked, mechanisms=mechanisms, options=public)
        plan = replace(plan, cost=(epsilon_of(plan.events, privacy.delta), privacy.delta))
        pairs = pair_scales(np.zeros(len(plan.names)), facts.bound)
        parts = replace(plan, options={"steps": 2 * steps}, mechanisms=asked.mechanisms)
        return replace(plan, warnings=few_pairs(parts, pairs, instead="averaged-sparse"))

    def asked(self, sites: SiteAnswers, design: Design, plan: Plan) -> CoefficientEstimate:
        """Detect, choose, and descend."""
        facts = sparse_guess(design, int(plan.options["sparsity"]))
        descent = _SparseSteps(sites, plan, facts)
        alone = descent.alone()
        kept, apart = descent.near(alone)
        target = next(iter(sites.plans))
        together = descent.worthwhile(kept)
        beta = descent.together(kept) if together else alone[target]
        support = tuple(int(j) for j in np.flatnonzero(beta))
        unknown = np.full((len(support),) * 2, np.nan)
        said = "" if together else f"{target} alone has the smaller rate: no other rows were asked."
        used = kept if together else [target]
        return CoefficientEstimate(
            params=beta,
            cov=unknown,
            cov_privacy=unknown,
            nobs=float(sum(sites.plans[site].n for site in used)),
            released={
                "batches": 2 * descent.steps,
                "sources kept": len(kept) - 1,
                "set aside": [site for site in alone if site not in kept],
                "together": together,
                "distances": apart,
            },
            remarks=tuple(filter(None, [descent.said(alone, kept), said])),
            support=support,
            inference=INFERENCE,
        )


@dataclass(frozen=True, eq=False)
class _SparseSteps(SitesDescent):
    """In standardised units."""

    facts: SparseGuess

    @property
    def rate(self) -> float:
        """The paper's step size for eigenvalues up to L, times what was asked for."""
        top = self.facts.top
        return float(self.plan.options["step_size"]) * 9 / (10 * top) * (1 - 0.296 / top**4)

    def clips(self, beta: Mapping[str, Array], half: int, part: int) -> dict[str, float]:
        """R_t of each site, twice what PrivateVariance and its logarithm say."""
        of = (self.steps, 2.0, self.facts.bound)
        return clips(self.sites, beta, f"pairs-{half}", part, of)

    def alone(self) -> dict[str, Array]:
        """Algorithm 3 at every site by itself."""
        facts, always = self.facts, list(self.facts.always)
        beta = {site: np.zeros(facts.moments.size) for site in self.sites.plans}
        for t in range(self.steps):
            queries, lifts = {}, {}
            for site, clip in self.clips(beta, 1, t).items():
                reach = covariate_clip(facts, self.sites.plans[site].n)
                prior = self.batch(site) * facts.moments / self.rate * beta[site]
                lifts[site] = _LIFT * reach * clip  # larger than any sum
                prior[always] += lifts[site]
                queries[site] = PeeledScores(beta[site], clip, reach, prior)
            moved = {}
            for site, ((columns, values), _) in self.sites.each(queries, "peel-1", t).items():
                chosen = columns.astype(np.intp)
                scores = values - lifts[site] * np.isin(chosen, always)
                moved[site] = np.zeros(facts.moments.size)
                bend = self.batch(site) * facts.moments[chosen] / self.rate
                moved[site][chosen] = scores / bend
                moved[site] = project(moved[site], facts)
            beta = moved
        return beta

    def near(self, beta: Mapping[str, Array]) -> tuple[list[str], dict[str, tuple[float, float]]]:
        """The target and the sources that are like it; of each its distance, with p."""
        from scipy.stats import chi2

        names, s = list(beta), self.facts.sparsity
        units = np.sqrt(self.facts.moments)
        slopes = np.delete(np.array([b * units for b in beta.values()]), self.facts.always, axis=1)
        constant = self.plan.options["threshold"]
        rows = np.array([float(self.sites.plans[site].n) for site in names])
        kept, distances = alike(slopes, rows, s)
        if constant is not None:
            limit = self.facts.sd * constant * self._printed_rate(names[0])
            kept = np.linalg.norm(slopes - slopes[0], axis=1) <= limit
        told = zip(distances.tolist(), chi2.sf(distances, s).tolist(), strict=True)
        apart = dict(zip(names, told, strict=True))
        return [site for site, near in zip(names, kept, strict=True) if near], apart

    def worthwhile(self, kept: list[str]) -> bool:
        """Algorithm 5, line 2, with |A| + 1: whether to ask for gradients of all columns."""
        plan, facts = self.sites.plans[kept[0]], self.facts
        rows = sum(self.sites.plans[site].n for site in kept) / 2
        d = facts.moments.size
        noise = math.sqrt(len(kept) * d * facts.picks) * _logs(rows, d, plan.privacy)
        return noise / (rows * plan.privacy.epsilon) <= self._printed_rate(kept[0])

    def _printed_rate(self, site: str) -> float:
        """r_HLR of equation (25), at the rows of a site's half."""
        plan, d, s = self.sites.plans[site], self.facts.moments.size, self.facts.picks
        n = plan.n / 2
        sampling = math.sqrt(s * math.log(d / FAILURE) * math.log(n) / n)
        return sampling + s * _logs(n, d, plan.privacy) / (n * plan.privacy.epsilon)

    def together(self, kept: list[str]) -> Array:
        """Algorithm 4 on the other halves of these sites."""
        facts, beta = self.facts, np.zeros(self.facts.moments.size)
        for t in range(self.steps):
            at = dict.fromkeys(kept, beta)
            scores = {
                site: Score(Geometry(_radius(facts, self.sites.plans[site].n)), beta, clip)
                for site, clip in self.clips(at, 2, t).items()
            }
            found = self.sites.each(scores, "step-2", t)
            rows = {site: self.sites.plans[site].n for site in found}
            mean = sum(rows[site] * a.value / self.batch(site) for site, a in found.items())
            moved = beta + self.rate * mean / sum(rows.values()) / facts.moments
            beta = project(hard_threshold(np.asarray(moved), facts), facts)
            kept = list(found)
        return beta

    def said(self, beta: Mapping[str, Array], kept: list[str]) -> str:
        """Which sources were set aside."""
        aside = [site for site in beta if site not in kept]
        return f"Set aside: {', '.join(aside)}." if aside else "No source was set aside."


def _sparsity(design: Design, asked: object) -> int:
    free = len(design.names) - bool(design.has_intercept)
    if is_whole(asked, 1, free):
        return int(asked)
    raise OptionError(
        f"sparsity={asked!r}: method='ftl-high-dim' keeps a number of columns that it is told, an "
        f"integer from 1 to {free:,} (the intercept is always in and is not counted)."
    )


def _asks(kind: str, picks: int = 1) -> tuple[Request, ...]:
    """What one batch of a half is asked."""
    pairs = Request("pairs", _PAIRS, "scales of residual pairs, for the clip", kind="laplace")
    if kind == "peel":
        purpose = "largest coordinates of a step of one site"
        return pairs, Request("peel", 1 - _PAIRS, purpose, "peeling", picks)
    return pairs, Request("step", 1 - _PAIRS, "clipped gradient of the squared loss")


def _noise(facts: SparseGuess, multiplier: float, n: int) -> float:
    """Of a peeled coefficient in standardised units, were all of a half one batch."""
    clip = min(facts.bound, 2 * log_factor(n) * TYPICAL * facts.sd)
    rate = 9 / (10 * facts.top) * (1 - 0.296 / facts.top**4)
    noise = math.sqrt(2) * multiplier * 2 * covariate_clip(facts, n) * clip * rate / (n / 2)
    return noise / math.sqrt(float(np.median(facts.moments)))


def _logs(rows: float, d: int, privacy: Privacy) -> float:
    """The logarithms that both sides of Algorithm 5, line 2, have."""
    return float(math.sqrt(math.log(1 / privacy.delta)) * math.log(rows * d / FAILURE) ** 2.5)


def _radius(facts: SparseGuess, n: int) -> float:
    """Algorithm 4's clip of the length of a row, and the public bound if that is smaller."""
    spread = facts.top * float(np.sum(facts.moments)) * math.log(n / FAILURE)
    return min(facts.longest, 2 * math.sqrt(spread))
