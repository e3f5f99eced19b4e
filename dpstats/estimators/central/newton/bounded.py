"""Bounded-influence regression: the same steps, on scores that keep their mean where clipped."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from dpstats.accounting import gdp_mu
from dpstats.estimators.base import Request
from dpstats.estimators.central.newton.best_bound import (
    DISTRUST,
    Bound,
    Rows,
    best_bound,
    spread_by_length,
    spread_by_square,
)
from dpstats.estimators.central.newton.budget import (
    EARLIER,
    FAR,
    MATRIX,
    MIDDLE,
    MIDDLE_STEP,
    NUMBER,
    VECTOR,
    WHITENED_REACH,
    at_clip,
    beginning,
    blur,
    breads,
    curvature,
    early,
    ending,
    left_to_scores,
    short_scores,
)
from dpstats.estimators.central.newton.conclusion import Conclusion
from dpstats.estimators.central.newton.curvature import DOUBT, shape_doubt
from dpstats.estimators.central.newton.identification import NOTHING, SURE
from dpstats.estimators.central.newton.likelihood import PredictorClimb
from dpstats.estimators.central.newton.questions import Bread, OnTheWay, PredictorQuestions
from dpstats.estimators.central.newton.remarks import (
    far_from_typical,
    nearly_none,
    not_at_rest,
    overdispersed,
    reported,
)
from dpstats.estimators.central.newton.typical import Case
from dpstats.estimators.central.newton.whitening import MOST
from dpstats.estimators.guesses import max_rows
from dpstats.estimators.numerics.parts import ScoreAt, SplitScore
from dpstats.estimators.numerics.tail_law import TailLaw
from dpstats.families import GAUSSIAN
from dpstats.families.bounded import BoundedFamily
from dpstats.privacy import Privacy
from dpstats.protocol import CoefficientEstimate, Plan
from dpstats.queries import (
    Geometry,
    Query,
    ResidualMoment,
    ScoreCurvature,
    ScoreSlope,
    WhitenedScore,
)

if TYPE_CHECKING:
    from dpstats.design import Design

__all__ = ["BoundedClimb", "bounded_requests", "bounded_variances"]

Array = NDArray[np.float64]

LAST, SPREADS = ("score 1", "score 2"), ("first spread", "spread")  # slots
_TYPICAL = 1.7  # printed: clip of an early step over the share of normal scores within it
_LENGTHS = np.geomspace(1 / 8, 1.0, 33)  # numerical: tried for a spread, over early clips
_FAR = 6.0  # wording: scores that are counted, over typical ones
_NODES = 11  # numerical: quantiles of predictors, and of lengths
_EVERYONE = 2.0**40  # numerical: a radius within which all rows are


def scarce(design: Design, privacy: Privacy, n: float) -> bool:
    """Whether an early step would lead astray; public.

    Its noise moves linear predictors by `DOUBT` of what responses vary by, or more.
    """
    d, mu = len(design.names), gdp_mu(privacy.epsilon, privacy.delta)
    clip = _TYPICAL * math.sqrt(d)
    score = WhitenedScore(np.eye(d), np.zeros(d), clip)
    noise = score.sensitivity(privacy.neighbors, max_rows(design)) / (mu * math.sqrt(VECTOR) * n)
    return noise * math.sqrt(d) > DOUBT


def curvature_hidden(design: Design, privacy: Privacy, n: float) -> bool:
    """Whether noise on the curvature exceeds what one may differ by from a model's; public."""
    own = sum(r.weight for r in curvature(design, privacy, n) if r.slot == "bread")
    return blur(design, privacy, n) * math.sqrt(MATRIX / own) > DOUBT


def bounded_requests(design: Design, privacy: Privacy, n: float) -> list[Request]:
    """Every question of a fit, and its share of the budget."""
    few, searched = scarce(design, privacy, n), not short_scores(design)
    counts = design.family.name in ("poisson", "negativebinomial")
    first = [Request("length 1", NUMBER, "length of most scores")] * searched
    told = list(zip(SPREADS, ("how far responses spread, for a clip", "the same"), strict=True))
    if few and not counts:  # the first clip tells it on the way
        told = told[1:]
    spread = [
        *(Request(slot, VECTOR if counts else NUMBER, words) for slot, words in told),
        *([Request(FAR, NUMBER, "number of scores far longer than typical ones")] * (not counts)),
    ]
    aside = [
        *beginning(design, privacy, n),
        *(first if few else early(design)),
        MIDDLE_STEP,
        *(spread * searched),
        *(
            breads(design, VECTOR)
            if curvature_hidden(design, privacy, n)
            else curvature(design, privacy, n)
        ),
        *ending(design),
    ]
    aside, shares = left_to_scores(aside, 1.0 if few else EARLIER)
    last = zip(LAST, shares, strict=True)
    return aside + [Request(slot, share, "score of a Newton step") for slot, share in last]


@dataclass(frozen=True, eq=False)
class BoundedClimb(PredictorClimb):
    """Newton steps on scores of a `BoundedFamily`, whose clip is the best under the model.

    What a clip leaves out is not asked for: no clip moves the root where the model is right. Where
    noise hides the curvature its mean is asked for, and its shape is that of the model; where rows
    are few for the noise there are no early steps, which would lead further away than none.
    """

    law: BoundedFamily | None = None  # once the spread of responses is known
    ready: OnTheWay | None = None  # once the middle step is taken

    def looked_far(self) -> BoundedClimb:
        """As it is: rows far out do not carry the answer."""
        return self

    @property
    def few(self) -> bool:
        """Whether rows are few for the noise; see `scarce`."""
        return scarce(self.design, self.holder.plan.privacy, self.holder.plan.n)

    @property
    def hidden(self) -> bool:
        """Whether the curvature is released by its mean alone."""
        return curvature_hidden(self.design, self.holder.plan.privacy, self.holder.plan.n)

    @property
    def peeled(self) -> bool:
        """False: nothing is left out."""
        return False

    def early(self) -> tuple[Array, float, float]:
        """As of the likelihood; where lengths are hidden the first clip alone."""
        if not self.few:
            return super().early()
        clip = self.early_clip(0, self.start, 0.0)
        return self.start, clip, self.prior_spread(clip)

    def later(self, b: Array, clip: float, spread: float) -> tuple[Conclusion, dict[str, float]]:
        """As of the likelihood, by bounded scores of a law that spreads as responses do."""
        guessed = self.guessed(b, clip)
        found = guessed.bound(b)
        b, middle, bread = guessed.middle_step(b, found.clip, found.kept)
        here = self.spread_at(b, clip, SPREADS[1])
        assert here.law is not None
        said = {"spread": here.law.spread} | here.far_off(b)
        ready = OnTheWay(here.bound(b).clip, b, middle, bread, None)
        last, more = super(BoundedClimb, replace(here, ready=ready)).later(b, clip, spread)
        return last, said | more

    def on_the_way(self, b: Array, clip: float) -> OnTheWay:
        """What `later` has found."""
        assert self.ready is not None
        return self.ready

    # -- how far responses spread -------------------------------------------------------------

    def spreading(self, spread: float) -> BoundedClimb:
        """With scores of a law that spreads so far."""
        family = self.family
        law = BoundedFamily(family.name, family.link, alpha=family.alpha, spread=spread)
        return replace(self, law=law, asks=PredictorQuestions(self.asks.w, law))

    def guessed(self, b: Array, clip: float) -> BoundedClimb:
        """On the way; of few rows by the length that most scores are within."""
        if self.few and self.family.name in ("gaussian", "gamma"):
            rows = self.expected(b)
            return self.spreading(spread_by_length(self.family, rows, clip, self.early_kept))
        return self.spread_at(b, clip, SPREADS[0])

    def spread_at(self, b: Array, clip: float, slot: str) -> BoundedClimb:
        """By a length of scores at `b`; of counts, whose quantiles jump, by their mean square."""
        if short_scores(self.design):
            return self.spreading(0.0)
        rows, family, w = self.expected(b), self.family, self.asks.w
        if family.name in ("gaussian", "gamma"):
            length = self.length(slot, b, clip * _LENGTHS, MOST)
            # A quantile is as likely anywhere between the length before it and its own.
            length *= math.sqrt(_LENGTHS[0] / _LENGTHS[1])
            return self.spreading(spread_by_length(family, rows, length, MOST))
        least = BoundedFamily(family.name, family.link, alpha=family.alpha)
        chances = rows.chances
        typical = math.sqrt(float(chances @ least.score_variance(rows.eta)))
        most = SURE * max(typical, clip / math.sqrt(float(chances @ rows.lengths**2)))
        query = ResidualMoment(Geometry(_EVERYONE, w.T), w @ b, most, family)
        (total,), _ = self.holder.ask(query, slot)
        return self.spreading(spread_by_square(least, rows, most, float(total) / self.n))

    def far_off(self, b: Array) -> dict[str, float]:
        """Share of scores far longer than typical ones, as far as noise does not explain them."""
        if self.family.name not in ("gaussian", "gamma"):
            return {}
        query = self.asks.count(b, _FAR * self.bound(b).typical)
        answer = self.holder.ask(query, FAR)
        surely = float(answer.value[0]) - NOTHING * answer.noise.sd
        return {"share far beyond": min(max(surely / self.n, 0.0), 1.0)}

    def expected(self, b: Array) -> Rows:
        """Linear predictors and lengths of normal rows, at quantiles of both."""
        mean, sd = self.rows.predictor(b)
        g, lengths = self.rows.lengths(b, _NODES)
        return Rows.of(mean + sd * g, lengths)

    def bound(self, b: Array) -> Bound:
        """The clip that is best where rows are as expected at `b`."""
        assert self.law is not None
        noise = _noise(self.holder.plan, self.design)
        return best_bound(self.law, self.expected(b), noise, self.n, b.size)

    # -- the last steps -----------------------------------------------------------------------

    def last(self, k: int, b: Array, clip: float) -> SplitScore:
        """One of the last two scores, all of it within the clip."""
        score, noise = self.score(LAST[k], b, clip)
        return SplitScore(b, score, noise, np.zeros_like(score), 0.0)

    def parts(self, b: Array, clip: float) -> list[Query]:
        """What one of the last two scores is asked by."""
        return [self.asks.score(b, clip, 0.0)]

    def beyond(
        self, law: TailLaw | None, clip: float, last: ScoreAt, meat: Array
    ) -> tuple[Array, Array, dict[str, float]]:
        """Nothing is left out; but centres are those of a law that may not be quite right."""
        assert self.law is not None
        g, lengths = self.rows.lengths(last.at, _NODES)
        rows = self.expected(last.at)
        moved = self.law.bias(rows.eta, clip / rows.lengths).reshape(lengths.shape)
        off = DISTRUST * self.n * self.rows.averaged(last.at, g, moved)
        return np.zeros_like(off), np.outer(off, off), {}

    def bread(self, b: Array, clip: float) -> Bread:
        """What the clip leaves of the curvature."""
        from scipy.special import chdtri

        if not self.hidden:
            return super().bread(b, clip)
        mean, sd = self.rows.predictor(b)
        steep = self.family.curvature(np.array([mean, mean + sd, mean - sd]))
        reached = float(chdtri(b.size, 1 - WHITENED_REACH))  # by squared lengths of normal rows
        radius = math.sqrt(reached * float(steep.max()))
        drawn = self.drawn(self.asks.curvature(b, clip, radius), "bread", b)
        return Bread(*drawn, self.leverage, b, radius)

    def drawn(self, query: Query, slot: str, b: Array) -> tuple[Array, Array, float]:
        """A curvature at `b`, its variances and its level; where that is hidden, by its mean."""
        if not self.hidden:
            return super().drawn(query, slot, b)
        assert isinstance(query, ScoreCurvature)
        asked = ScoreSlope(query.whiten, query.beta, query.clip, query.radius, query.family)
        answer, d = self.holder.ask(asked, slot), b.size
        noise = answer.noise.sd / d
        level = max(float(answer.value[0]) / d, noise)
        model = self.between(self.start, b).curvature(b)
        moments = level**2 * self.found.metric.variances / self.n**2
        variances = moments + shape_doubt(level, d) + noise**2 * np.eye(d)
        return level * d / float(np.trace(model)) * model, variances, level

    def reported(self, found: Conclusion, said: dict[str, float]) -> CoefficientEstimate:
        """The estimate, with what was released beside it and what that says of the fit."""
        remarks = not_at_rest(said["last step"]) if self.family != GAUSSIAN else ()
        remarks += nearly_none(found.unbounded) + far_from_typical(said.get("share far beyond", 0))
        if self.family.name == "poisson":
            remarks += overdispersed(said["spread"])
        return reported(found, self.design, self.holder.plan, self.n, said, remarks)


def _noise(plan: Plan, design: Design) -> float:
    """Standard deviation of the noise of the last three scores together, at clip 1; public."""
    one = at_clip(design, 1.0)
    return 1 / math.hypot(*(1 / plan.noise(one, slot).sd for slot in (MIDDLE, *LAST)))


def bounded_variances(plan: Plan, design: Design, case: Case) -> tuple[float, float]:
    """Of a whitened coefficient times n, of the noise and of sampling, by quadrature."""
    from scipy.special import ndtri

    family = design.family
    eta = case.mean + case.spread * ndtri((np.arange(_NODES) + 0.5) / _NODES)[:, None]
    mean = float(np.mean(family.mean(eta)))
    spread = {
        "gaussian": case.spread if family == GAUSSIAN else mean,
        "gamma": case.dispersion,
        "negativebinomial": family.alpha,
        "poisson": max(case.dispersion - 1, 0.0) / max(mean, 1e-300),
    }.get(family.name, 0.0)
    law = BoundedFamily(family.name, family.link, alpha=family.alpha, spread=spread)
    noise = _noise(plan, design)
    found = best_bound(law, Rows.of(eta, case.lengths), noise, plan.n, len(design.names))
    return found.private, found.sampled
