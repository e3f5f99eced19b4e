"""Scores of least squares on public rows: their lengths, the best clip, and what it leaves out."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr

from dpstats.accounting import gdp_mu
from dpstats.estimators.labels.base import covariates_of, known_term
from dpstats.estimators.labels.sums import deviation, inverse_root, label_norm
from dpstats.estimators.numerics.parts import omitted
from dpstats.estimators.numerics.tail_law import TailLaw, allowed, best_clip
from dpstats.estimators.responses import Responses
from dpstats.protocol import LabelHolder, Plan
from dpstats.queries.label_cells import LongResiduals
from dpstats.queries.labels import Interval
from dpstats.tall import LazyRows, Tall, gram, times, vector

if TYPE_CHECKING:
    from dpstats.design import Design

__all__ = ["ALIGNED", "COUNTS", "ChosenClip", "PublicScores", "chosen_clip", "far_share"]

Array = NDArray[np.float64]

_CELLS = 40  # number: of cells of lengths
_AROUND = (0.15, 150.0)  # ratio: ends of the cells of lengths to a typical one
_BELOW = 1 - 2.0**-20  # numerical: next to 1
COUNTS = 3  # numerical: counts of scores beyond the clip that is best so far
ALIGNED = 0.75  # ratio: length of the mean direction of the scores beyond a clip
_MEDIAN = 0.6745  # printed: of the size of a standard normal number
_SEEN = 3.0  # wording: sds of a count's noise, below which it may hide rows


@dataclass(frozen=True, eq=False)
class PublicScores:
    """Public rows, whitened, and what is known of responses."""

    x: Tall
    root: Array
    known: Tall
    interval: Interval
    how: Responses
    pure: bool

    @classmethod
    def of(cls, design: Design, plan: Plan) -> PublicScores:
        """Of a design with public covariates, and what a plan says of responses."""
        rows = covariates_of(design)
        x, how = rows.columns(np.arange(len(plan.names))), Responses.of(plan, design)
        pure = plan.privacy.delta == 0
        return cls(x, inverse_root(gram(x)), known_term(rows), how.interval, how, pure)

    @property
    def sd(self) -> float:
        """Standard deviation that is expected of a residual."""
        return math.sqrt(self.how.residual_variance)

    @cached_property
    def rows(self) -> LazyRows:
        """Whitened rows (n, d), whose squares add up to the identity."""
        x, root = self.x, self.root
        return LazyRows(x.shape, lambda part: np.asarray(x[part] @ root, dtype=np.float64))

    @cached_property
    def lengths(self) -> Array:
        """Lengths of whitened rows (n,), in the norm of sensitivities."""
        order, rows = 1 if self.pure else 2, self.rows
        return vector(len(rows), lambda part: np.linalg.norm(rows[part], order, axis=1))

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
        clips = self.sd * float(self.lengths.max(initial=1e-300)) * np.geomspace(0.02, 8.0, 60)
        excess = self.excess(clips, self.sd)
        k = best_clip(clips, excess, unit, self.x.shape[1], ALIGNED)
        return (unit * float(clips[k])) ** 2 + allowed(float(excess[k]), self.x.shape[1], ALIGNED)

    def excess(self, clips: Array, sd: float) -> Array:
        """Sums of what clips take off lengths of scores, of normal residuals, shape (m,)."""
        lengths = sd * np.maximum(self.lengths, 1e-300)
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

    def fitted(self, b: Array) -> LazyRows:
        """What coefficients make of every row."""
        params, known = self.root @ b, self.known
        made = times(self.x, params)
        return LazyRows((len(self.x),), lambda part: made[part] + known[part])

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


def chosen_clip(holder: LabelHolder, scores: PublicScores, b: Array) -> ChosenClip:
    """The clip of least variance of scores about a fit."""
    plan, (n, d) = holder.plan, scores.x.shape
    fitted, unit = scores.fitted(b), scores.unit(plan)
    typical = scores.sd * float(np.median(scores.lengths))
    edges = typical * np.geomspace(*_AROUND, _CELLS + 1)
    answer = holder.ask(scores.by_length(np.append(0.0, edges), fitted), "lengths")
    least = max(1.0, _whole_budget(plan))
    law = TailLaw.of_histogram(answer.value, answer.noise.sd, edges, float(n), least, 0.5)
    # No law of lengths knows where responses end; but these and rows are public.
    law = replace(law, numbers=np.minimum(law.numbers, scores.at_most(law.clips, fitted)))
    # No law of lengths knows of a few rows far out; but rows are public, and say what it would be.
    half = int(np.argmax(np.maximum.accumulate(np.cumsum(answer.value)) >= n / 2))
    middle = float(edges[min(half, edges.size - 1)]) / float(np.median(scores.lengths))
    of_rows = scores.excess(law.clips, min(middle / _MEDIAN, scores.sd))

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


def far_share(scores: PublicScores, plan: Plan) -> float:
    """Share of the squared lengths of rows that is of as few rows as counts may hide."""
    hidden = math.ceil(_SEEN * plan.noise(scores.by_length(np.ones(1)), "beyond 1").sd)
    squares = np.sort(scores.lengths**2)[::-1]
    return float(squares[:hidden].sum() / squares.sum())


def _whole_budget(plan: Plan) -> float:
    """Standard deviation of a count with all the budget."""
    privacy = plan.privacy
    if privacy.delta == 0:
        return deviation(True) / privacy.epsilon
    return 1 / gdp_mu(privacy.epsilon, privacy.delta)
