"""Scores on public rows: their lengths, the best clip, and what it leaves out."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr

from dpstats.accounting import gdp_mu
from dpstats.estimators.labels.base import covariates_of, known_term, meaningful
from dpstats.estimators.labels.rounds import Equations, RoundFacts
from dpstats.estimators.labels.sums import deviation, inverse_root, label_norm
from dpstats.estimators.numerics.parts import omitted
from dpstats.estimators.numerics.tail_law import TailLaw, allowed, best_clip
from dpstats.estimators.responses import Responses
from dpstats.families import Family
from dpstats.protocol import LabelHolder, Plan
from dpstats.queries.label_cells import LongResiduals
from dpstats.queries.labels import Interval
from dpstats.tall import LazyRows, Tall, constant, cross, gram, times, vector

if TYPE_CHECKING:
    from dpstats.design import Design

__all__ = ["ALIGNED", "COUNTS", "ChosenClip", "PublicScores", "chosen_clip", "far_share"]

Array = NDArray[np.float64]

_CELLS = 40  # number: of cells of lengths
_AROUND = (0.15, 150.0)  # ratio: ends of the cells of lengths to a typical one
_BELOW = 1 - 2.0**-20  # numerical: next to 1
COUNTS = 3  # numerical: counts of scores beyond the clip that is best so far
ALIGNED = 0.75  # ratio: length of the mean direction of the scores beyond a clip
_RARE = 1e-6  # numerical: a mean that is never 0
_MEDIAN = 0.6745  # printed: of the size of a standard normal number
_ALIKE = 1e-9  # numerical: relative difference of lengths that are equal but for rounding
_SEEN = 3.0  # wording: sds of a count's noise, below which it may hide rows


@dataclass(frozen=True, eq=False)
class PublicScores:
    """Public rows, whitened, and what is known of responses.

    Attributes
    ----------
    x : Tall, of shape (n, d)
    root : ndarray of shape (d, d)
        Symmetric: of the inverse of ``sum v x x'``, with v the variances of residuals over `sd`^2.
    known : Tall, of shape (n,)
    interval : Interval
        Of all responses.
    link : Family
        Whose mean is fitted, and whose score is 0 at the fit.
    sd : float
        Standard deviation that is expected of a residual; of counts over the root of their mean.
    deviations : Tall, of shape (n,)
        What it is to be multiplied by for each row.
    pure : bool
        Whether noise is Laplace.
    """

    x: Tall
    root: Array
    known: Tall
    interval: Interval
    link: Family
    sd: float
    deviations: Tall
    pure: bool

    @classmethod
    def linear(cls, design: Design, plan: Plan) -> PublicScores:
        """Of least squares on public covariates, by what a plan says of responses."""
        rows = covariates_of(design)
        x, how = rows.columns(np.arange(len(plan.names))), Responses.of(plan, design)
        pure, sd = plan.privacy.delta == 0, math.sqrt(how.residual_variance)
        one, known = constant(len(x), 1.0), known_term(rows)
        return cls(x, inverse_root(gram(x)), known, how.interval, design.family, sd, one, pure)

    @classmethod
    def of_counts(cls, rounds: RoundFacts, params: Array) -> PublicScores:
        """Of counts whose means are about those by `params`: each its own variance."""
        x, means = rounds.x, rounds.means(params)
        mu = LazyRows((len(x),), lambda part: np.maximum(means[part], _RARE))
        root = inverse_root(gram(x, mu))
        deviations = vector(len(x), lambda part: np.sqrt(mu[part]))
        known, interval = rounds.known, rounds.interval
        return cls(x, root, known, interval, rounds.link, 1.0, deviations, rounds.pure)

    @cached_property
    def rows(self) -> LazyRows:
        """Whitened rows (n, d), in which scores without privacy have covariance ``sd^2 I``."""
        x, root = self.x, self.root
        return LazyRows(x.shape, lambda part: np.asarray(x[part] @ root, dtype=np.float64))

    @cached_property
    def lengths(self) -> Array:
        """Lengths of whitened rows (n,), in the norm of sensitivities."""
        order, rows = 1 if self.pure else 2, self.rows
        return vector(len(rows), lambda part: np.linalg.norm(rows[part], order, axis=1))

    @cached_property
    def usual(self) -> Array:
        """Lengths of scores whose residuals are as large as expected, shape (n,)."""
        lengths, deviations = self.lengths, self.deviations
        return vector(len(lengths), lambda part: self.sd * lengths[part] * deviations[part])

    def unit(self, plan: Plan) -> float:
        """Standard deviation of the noise of both last scores together, at clip 1.

        Of outer parts, what taking them for nothing leaves of it.
        """
        left = (1.0, omitted(self.x.shape[1]))
        sizes = [
            sum(
                part * plan.noise_multiplier(f"{name} score {k + 1}") ** 2
                for part, name in zip(left, ("inner", "outer"), strict=True)
            )
            for k in range(2)
        ]
        return deviation(self.pure) / math.sqrt(sum(1 / v for v in sizes))

    def expected_square(self, unit: float) -> float:
        """Least variance of noise and what a clip leaves out, of normal residuals."""
        clips = float(self.usual.max(initial=1e-300)) * np.geomspace(0.02, 8.0, 60)
        excess = self.excess(clips, 1.0)
        k = best_clip(clips, excess, unit, self.x.shape[1], ALIGNED)
        return (unit * float(clips[k])) ** 2 + allowed(float(excess[k]), self.x.shape[1], ALIGNED)

    def excess(self, clips: Array, ratio: float) -> Array:
        """Sums of what clips take off lengths of scores, of normal residuals, shape (m,).

        Residuals have `ratio` times the standard deviations that are expected.
        """
        lengths = ratio * np.maximum(self.usual, 1e-300)
        return np.array([float((lengths * _above(c / lengths)).sum()) for c in clips])

    def at_most(self, clips: Array, fitted: Tall) -> Array:
        """Numbers of scores about fitted values that may be longer than clips, shape (m,)."""
        low, high, lengths = self.interval.low, self.interval.high, self.lengths

        def longest(part: slice) -> Array:
            at = np.clip(fitted[part], low, high)
            return np.asarray(lengths[part] * np.maximum(at - low, high - at), dtype=np.float64)

        ends = np.sort(vector(len(lengths), longest))
        return len(ends) - np.searchsorted(ends, clips, side="right").astype(np.float64)

    @cached_property
    def longest(self) -> float:
        """A clip of which some score may be longer than half, wherever fitted values are."""
        return _BELOW * 2 * self.interval.half * float(self.lengths.max(initial=1e-300))

    def by_length(self, edges: Array, fitted: Tall | None = None) -> LongResiduals:
        """The question for scores by length, about fitted values; about the known term without."""
        about = self.known if fitted is None else fitted
        return LongResiduals(self.interval, about, self.lengths, edges, label_norm(self.pure))

    def predictors(self, params: Array) -> LazyRows:
        """Linear predictors of every row."""
        known, made = self.known, times(self.x, params)
        return LazyRows((len(self.x),), lambda part: made[part] + known[part])

    def fitted(self, params: Array) -> LazyRows:
        """What coefficients make of every row."""
        eta, link = self.predictors(params), self.link
        return LazyRows((len(self.x),), lambda part: link.mean(eta[part]))

    def slopes(self, params: Array) -> LazyRows:
        """Derivatives of fitted values by linear predictors."""
        eta, link = self.predictors(params), self.link
        return LazyRows((len(self.x),), lambda part: link.slope(eta[part]))

    def sums(self, params: Array) -> Array:
        """What is expected of whitened sums of responses, (d,).

        Their score is linear in it, whatever the link: ``sum b y`` less this.
        """
        return cross(self.rows, self.fitted(params))

    def solved(self, sums: Array, start: Array) -> tuple[Array, bool]:
        """Coefficients by which these sums are expected, and whether there are any."""
        if self.link.link == "identity":
            return self.root @ (sums - cross(self.rows, self.known)), True
        total = np.linalg.pinv(self.root, hermitian=True) @ sums
        one = constant(len(self.x), 1.0)
        equations = Equations(self.x, self.known, self.link, one, total, self.interval)
        params, found = equations.solve(start)
        return params, found and meaningful(self.link, equations.eta(params), self.interval)

    def back(self, params: Array) -> Array:
        """From an error of the sums to one of the coefficients, (d, d)."""
        if self.link.link == "identity":
            return self.root
        bread = np.linalg.pinv(gram(self.x, self.slopes(params)), hermitian=True)
        return np.asarray(bread @ np.linalg.pinv(self.root, hermitian=True), dtype=np.float64)

    def ends(self, fitted: Tall, clip: float) -> tuple[LazyRows, LazyRows]:
        """Intervals of responses about fitted values, within which scores are at most `clip` long.

        About the nearer end where these lie outside of where responses do.
        """
        low, high, lengths = self.interval.low, self.interval.high, self.lengths

        def middle(part: slice) -> tuple[Array, Array]:
            return np.clip(fitted[part], low, high), clip / np.maximum(lengths[part], 1e-300)

        def lower(part: slice) -> Array:
            at, half = middle(part)
            return np.asarray(np.maximum(low, at - half), dtype=np.float64)

        def upper(part: slice) -> Array:
            at, half = middle(part)
            return np.asarray(np.minimum(high, at + half), dtype=np.float64)

        return LazyRows((len(lengths),), lower), LazyRows((len(lengths),), upper)


def _above(c: Array) -> Array:
    """``E (|Z| - c)_+`` of a standard normal Z."""
    made: Array = 2 * (np.exp(-(c**2) / 2) / math.sqrt(2 * math.pi) - c * ndtr(-c))
    return made


class ChosenClip(NamedTuple):
    """A clip of scores, how many are longer, and what it and half of it may take off their sum."""

    at: float
    number: float
    excess: float
    nearer: float


def chosen_clip(holder: LabelHolder, scores: PublicScores, params: Array) -> ChosenClip:
    """The clip of least variance of scores about a fit."""
    plan, (n, d) = holder.plan, scores.x.shape
    fitted, unit = scores.fitted(params), scores.unit(plan)
    typical = float(np.median(scores.usual))
    edges = typical * np.geomspace(*_AROUND, _CELLS + 1)
    answer = holder.ask(scores.by_length(np.append(0.0, edges), fitted), "lengths")
    least = max(1.0, _whole_budget(plan))
    # Most counts may be 0, and their scores say nothing of others.
    upper = 0.5 if scores.link.link == "identity" else None
    law = TailLaw.of_histogram(answer.value, answer.noise.sd, edges, float(n), least, upper)
    # No law of lengths knows where responses end; but these and rows are public.
    law = replace(law, numbers=np.minimum(law.numbers, scores.at_most(law.clips, fitted)))
    # No law of lengths knows of a few rows far out; but rows are public, and say what it would be.
    half = int(np.argmax(np.maximum.accumulate(np.cumsum(answer.value)) >= n / 2))
    middle = float(edges[min(half, edges.size - 1)]) / typical
    of_rows = scores.excess(law.clips, min(middle / _MEDIAN, 1.0))

    def best() -> int:
        k = best_clip(law.clips, np.maximum(law.excess(), of_rows), unit, d, ALIGNED)
        return min(k, max(int(np.searchsorted(law.clips, scores.longest)) - 1, 0))

    for k in range(COUNTS):
        clip = float(law.clips[best()])
        answer = holder.ask(scores.by_length(np.array([clip]), fitted), f"beyond {k + 1}")
        law = law.counted(clip, float(answer.value[0]), answer.noise.sd)
    clip = min(float(law.clips[best()]), scores.longest)
    excess = np.maximum(law.excess(), of_rows)
    nearer = float(np.interp(clip / 2, law.clips, excess))
    return ChosenClip(clip, law.number(clip), float(np.interp(clip, law.clips, excess)), nearer)


def far_share(scores: PublicScores, params: Array, plan: Plan) -> float:
    """Share of what tells some coefficients at a fit that is of as few rows as counts may hide.

    Of rows ``root x`` whose squares, times slopes of the mean, add up to the identity: the largest
    eigenvalue of that sum over the longest ones. Of those that are equally long, as all rows of a
    level are, each counts as often as it would be one of so few.
    """
    hidden = math.ceil(_SEEN * plan.noise(scores.by_length(np.ones(1)), "beyond 1").sd)
    x, slopes, n = scores.x, scores.slopes(params), len(scores.x)
    root = inverse_root(gram(x, slopes))

    def leverage(part: slice) -> Array:
        return np.asarray(slopes[part] * np.square(x[part] @ root).sum(axis=1), dtype=np.float64)

    longest = vector(n, leverage)
    least = np.partition(longest, max(n - hidden, 0))[max(n - hidden, 0)]
    longer = longest > least * (1 + _ALIKE)
    alike = (longest >= least * (1 - _ALIKE)) & ~longer
    often = np.where(longer, 1.0, alike * (hidden - longer.sum()) / alike.sum())
    far = LazyRows((n,), lambda part: slopes[part] * np.minimum(often[part], 1.0))
    return float(np.linalg.eigvalsh(root @ gram(x, far) @ root)[-1])


def _whole_budget(plan: Plan) -> float:
    """Standard deviation of a count with all the budget."""
    privacy = plan.privacy
    if privacy.delta == 0:
        return deviation(True) / privacy.epsilon
    return 1 / gdp_mu(privacy.epsilon, privacy.delta)
