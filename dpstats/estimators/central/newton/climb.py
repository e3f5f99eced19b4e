"""Newton steps on scores whose length is clipped, of one linear predictor or of several.

The constants are public and enter after the noise: they cost accuracy where they are wrong, never
privacy.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dpstats.estimators.base import floor_eigenvalues
from dpstats.estimators.central.newton.beyond import beyond_clip
from dpstats.estimators.central.newton.budget import (
    BEYOND,
    CLEAR,
    EARLY,
    MIDDLE,
    NUMBER,
    WHITENED_REACH,
    asked_twice,
    blur,
    last_noise,
    peels,
    short_scores,
)
from dpstats.estimators.central.newton.conclusion import (
    Conclusion,
    Solution,
    clear_of_noise,
    conclude,
    presumed_effect,
)
from dpstats.estimators.central.newton.curvature import FLOOR, shape_doubt
from dpstats.estimators.central.newton.identification import NOTHING
from dpstats.estimators.central.newton.questions import Bread, ExpectedRows, OnTheWay, Questions
from dpstats.estimators.central.newton.secant import SecantCurvature, along, untold
from dpstats.estimators.central.newton.whitening import Metric, coordinates
from dpstats.estimators.numerics.entrywise import average, operator_norm, symmetric_pattern
from dpstats.estimators.numerics.parts import (
    ScoreAt,
    SplitScore,
    Whole,
    as_asked,
    join_scores,
    pool_scores,
    told_apart,
    whole,
)
from dpstats.estimators.numerics.tail_law import TailLaw
from dpstats.families import GAUSSIAN, Family
from dpstats.protocol import Holder, foresee
from dpstats.queries import Query

if TYPE_CHECKING:
    from dpstats.design import Design

__all__ = ["LIGHTEST", "Climb", "WhitenedRows", "solved", "whitened"]

Array = NDArray[np.float64]

LIGHTEST = 0.1  # numerical: mean weight of rows over the largest that may be, at least
_FARTHER = math.sqrt(2.0)  # ratio: where counts tell of what lies beyond a clip, to the clip
_MOST_BEND = 0.5  # ratio: change of a step, or of the curvature on it, by a model, to itself


class WhitenedRows(NamedTuple):
    """Whitened rows: coefficients b of a constant predictor 1, moments, and the sum of weights."""

    metric: Metric
    constant: Array
    centre: Array
    cov: Array
    mass: float


def whitened(holder: Holder[Query], design: Design, n: float) -> WhitenedRows:
    """Rows in whitened coordinates, and what is known of them there."""
    plan = holder.plan
    # As far as noise on the matrix stays small: it grows with the square of the radius.
    farthest = math.sqrt(max(1.0, CLEAR / blur(design, plan.privacy, plan.n)))
    metric, constant = coordinates(holder, design, n, (WHITENED_REACH, farthest))
    centre, cov, weight = metric.moments(constant)
    mass = n if design.weights is None else n * max(weight, LIGHTEST)
    return WhitenedRows(metric, constant, centre, cov, mass)


def solved(matrix: Array, vector: Array) -> Array:
    """The solution of a linear system."""
    solution: Array = np.asarray(np.linalg.solve(matrix, vector), dtype=np.float64)
    return solution


@dataclass(frozen=True, eq=False)
class Climb(ABC):
    """Newton steps for coefficients ``w b`` from `start`."""

    holder: Holder[Query]
    design: Design
    found: WhitenedRows
    asks: Questions
    n: float
    rows: ExpectedRows

    @property
    def early_kept(self) -> float:
        """Slope of an early score to that of the whole one."""
        return 1.0

    @property
    def peeled(self) -> bool:
        """Whether what half a clip leaves out is drawn to what the model expects; see `peels`."""
        return peels(self.design)

    @property
    @abstractmethod
    def start(self) -> Array:
        """Coefficients to start from."""

    @property
    def far(self) -> bool:
        """Whether rows are known to lie far out whose scores may be as long as they are."""
        return False

    @abstractmethod
    def prior_spread(self, clip: float) -> float:
        """Standard deviation of linear predictors before anything is known, from the first clip."""

    def effect(self, spread: float) -> Array:
        """Standard deviation presumed of coefficients of columns between 0 and 1; inf of others."""
        return presumed_effect(self.design, spread)

    @abstractmethod
    def early_clip(self, k: int, b: Array, before: float) -> float:
        """Length that most scores of an early step are within."""

    @abstractmethod
    def bounded(self, to: Array) -> Array:
        """Coefficients drawn back to where predictors vary by a public number at most."""

    @abstractmethod
    def rarer(self, b: Array) -> float:
        """Share of rows with the rarest answer, but at most half: their scores are long."""

    @abstractmethod
    def edges(self, b: Array, clip: float) -> Array:
        """Lengths between the cells of their histogram."""

    @abstractmethod
    def bread(self, b: Array, clip: float) -> Bread:
        """Minus the derivative of the score: as released, averaged with what the model expects."""

    def fit(self) -> tuple[Conclusion, dict[str, float]]:
        """All steps; and what was released beside their end."""
        return self.later(*self.early())

    def later(self, b: Array, clip: float, spread: float) -> tuple[Conclusion, dict[str, float]]:
        """The steps that are taken once the clip of the early ones is known."""
        clip, b, middle, bread, law = self.on_the_way(b, clip)
        bread = bread or self.bread(b, clip)
        first = self.last(0, b, clip)
        score = whole(first, self.peeled)
        bread, _ = self.carried(bread, b)
        b = self.corrected(b, self.bounded(b + self.late_step(b, score, bread)))
        foresee(self.holder, [*self.parts(b, clip), self.squares(b, clip)])
        second = self.last(1, b, clip)
        bread, told = self.told(bread, as_asked(first), as_asked(second), clip)
        both = pool_scores(first, second, bread.matrix)
        score = whole(both, self.peeled)
        at, score = join_scores(middle, ScoreAt(both.at, score), bread.matrix)
        meat = self.meat(b, clip, bread.matrix) * self.n / max(self.n - b.size, 1.0)

        added, anywhere, seen = self.beyond(law, clip, ScoreAt(at, score), meat)
        step = self.bent(at, solved(bread.matrix, score.total + added))
        if self.family != GAUSSIAN:  # on the last step the curvature may change as much again
            anywhere = anywhere + told.again(step)
        solution = Solution(
            at=at,
            step=step,
            bread=bread.matrix,
            variances=told.variances,
            meat=meat,
            noise=score.variance,
            allowed=anywhere,
            level=bread.level,
            spread=spread,
            start=self.start,
        )
        found = conclude(solution.turned(told.basis), self.asks.w @ told.basis, self.effect(spread))
        ending = Whole(score.total + added, score.variance, score.lean)
        found = found.moved(self.within_reach(found))
        found = found._replace(unbounded=self.unbounded(ScoreAt(at, ending)))
        said = {"clip": clip, "leverage": bread.leverage, "last step": clear_of_noise(solution)}
        return found, said | seen

    def leapt(self, b: Array, to: Array) -> Array:
        """Where a step ends that is no longer than rows that are not normal can bear."""
        return to

    def corrected(self, b: Array, to: Array) -> Array:
        """Where a step ends that corrects earlier ones."""
        return to

    def within_reach(self, found: Conclusion) -> Array:
        """Reported coefficients, drawn to what they may be on the way where errors explain that.

        Where they do not, predictors vary by more than was presumed.
        """
        if self.family == GAUSSIAN:
            return found.params
        drawn: Array = self.asks.w @ self.bounded(solved(self.asks.w, found.params))
        away = drawn - found.params
        explained = float(away @ np.linalg.pinv(found.cov, hermitian=True) @ away) <= NOTHING**2
        return drawn if explained else found.params

    def clipped_score(self, b: Array, clip: float) -> Array:
        """Sum of clipped scores that the model expects where it is right at `b`."""
        return np.zeros_like(b)

    def outer_score(self, b: Array, clip: float) -> Array:
        """What it expects of what a clip leaves of scores beyond half of it."""
        return self.clipped_score(b, clip) - self.clipped_score(b, clip / 2)

    def unbounded(self, last: ScoreAt) -> tuple[str, ...]:
        """Levels of whose coefficients noise hides where they end."""
        return ()

    def late_step(self, b: Array, score: Whole, bread: Bread) -> Array:
        """A step by the released curvature, shrunk by the size of its noise as early ones are."""
        kept = told_apart(score)
        floored = floor_eigenvalues(bread.matrix, FLOOR * operator_norm(bread.variances))
        return self.bent(b, solved(floored, kept * score.total))

    def told(
        self, bread: Bread, earlier: ScoreAt, later: ScoreAt, clip: float
    ) -> tuple[Bread, SecantCurvature]:
        """The curvature where the earlier score was asked, where the later one was; given both.

        A fall tells of the curvature half-way: what it changes from there is added to it. On a step
        too long for a model to know that, nothing is told.
        """
        there, known = self.there(bread, later.at, clip)
        if not known:
            return there, untold(there.matrix, there.variances)
        # The step was by the earlier score, with its noise: less what of it is expected to be that.
        kept, moved = told_apart(earlier.score), later.at - earlier.at
        fall = kept * earlier.score.total - later.score.total
        told = along(
            there.matrix,
            there.variances,
            moved,
            fall + (there.matrix - bread.matrix) @ moved / 2,
            kept * earlier.score.variance + later.score.variance,
        )
        return there._replace(matrix=told.plain), told

    def there(self, bread: Bread, after: Array, clip: float) -> tuple[Bread, bool]:
        """The curvature where the last score was asked, and whether it is known."""
        return self.carried(bread, after)

    def carried(self, bread: Bread, after: Array) -> tuple[Bread, bool]:
        """The curvature at another place, changed as the model's is, and whether it knows that."""
        rows = self.between(bread.at, after)
        there, here = rows.curvature(bread.at), rows.curvature(after)
        grown = float(np.trace(here) / np.trace(there))
        most = 1 + _MOST_BEND
        if not 1 / most <= grown <= most:  # the model knows little of so long a step
            factor = float(np.clip(grown, 1 / most, most))
            matrix, level = factor * bread.matrix, factor * bread.level
            return bread._replace(matrix=matrix, level=level, at=after), False
        unit = bread.level * after.size / float(np.trace(there))
        matrix = bread.matrix + unit * (here - there)
        return bread._replace(matrix=matrix, level=grown * bread.level, at=after), True

    def between(self, before: Array, after: Array) -> ExpectedRows:
        """What rows are expected to be like between two places."""
        return self.rows

    @property
    def family(self) -> Family:
        """Law of the response."""
        return self.design.family

    def bent(self, at: Array, step: Array) -> Array:
        """A step as far as the means of normal rows bend on its way, unless that is far off it."""
        if self.family == GAUSSIAN:
            return step
        rows = self.between(at, at + step)
        straight = rows.curvature(at) @ step
        found: Array = rows.to(at, straight) - at
        far = np.linalg.norm(found - step) > _MOST_BEND * np.linalg.norm(step)
        return step if far else found

    # -- before the clip is known -----------------------------------------------------------

    def early(self) -> tuple[Array, float, float]:
        """Two steps at a clip of most lengths; the last one, and the spread of the response."""
        b, clip, spread = self.start, 0.0, 0.0
        for k, slot in enumerate(EARLY):
            clip = self.early_clip(k, b, clip)
            spread = spread or self.prior_spread(clip)
            score, noise = self.score(slot, b, clip)
            b = self.stepped(b, score, noise, self.early_kept, 2 * (self.early_kept < 1))
        return b, clip, spread

    def score(self, slot: str, b: Array, clip: float, inner: float = 0.0) -> tuple[Array, float]:
        """A noisy score at `b`, and the standard deviation of its noise."""
        answer = self.holder.ask(self.asks.score(b, clip, inner), slot)
        return answer.value, answer.noise.sd

    def stepped(self, b: Array, score: Array, noise: float, kept: float, spared: int = 0) -> Array:
        """Coefficients after a step, shrunk by the size of its noise (positive-part James-Stein).

        `kept` is the slope of the clipped score as a share of that of the whole; `spared` is how
        many coordinates fewer are taken to be noise.
        """
        squared = max(float(score @ score), 1e-300)
        d = max(b.size - spared, 0)
        shrunk = score * max(0.0, 1 - d * noise**2 / squared)
        return self.bounded(self.rows.to(b, shrunk / (kept * self.found.mass)))

    # -- the clip ---------------------------------------------------------------------------

    def on_the_way(self, b: Array, clip: float) -> OnTheWay:
        """The clip, by what counts tell of long scores, before and after a middle step."""
        edges = self.edges(b, clip)
        answer = self.holder.ask(self.asks.histogram(b, edges), "lengths")
        one = self.holder.plan.noise(self.asks.count(b, 1.0), BEYOND[0]).sd
        least = one * math.sqrt(NUMBER)
        least = max(least, 1.0)  # a row is a row
        short = short_scores(self.design)
        upper = self.rarer(b) if short else None
        law = TailLaw.of_histogram(
            answer.value, answer.noise.sd, edges, self.n, least, upper, short and not self.far
        )
        if self.far:  # nothing is known of lengths that the histogram does not reach, but of rows
            law = law.far_out(float(edges[-1]) if one > 1 else math.inf)
        noise = last_noise(self.holder.plan, self.design, self.peeled)
        law = self.counted(law, BEYOND[0], b, noise, _FARTHER)
        b, middle, bread = self.middle_step(b, law.best(noise, b.size), 1.0)
        law = self.counted(law, BEYOND[1], b, noise, 1.0)
        law = self.counted(law, BEYOND[2], b, noise, _FARTHER)
        return OnTheWay(law.best(noise, b.size), b, middle, bread, law)

    def middle_step(
        self, b: Array, clip: float, kept: float
    ) -> tuple[Array, ScoreAt, Bread | None]:
        """Coefficients after it, its score, and the curvature that it was by, where it was asked.

        `kept` is the slope of the clipped score as a share of that of the whole.
        """
        bread = self.bread(b, clip) if asked_twice(self.design) else None
        score, spread = self.score(MIDDLE, b, clip)
        middle = ScoreAt(b, Whole(score, spread**2, np.zeros_like(b)))
        if bread is None:
            return self.corrected(b, self.stepped(b, score, spread, kept)), middle, None
        to = self.bounded(b + self.late_step(b, middle.score, bread))
        return self.corrected(b, self.leapt(b, to)), middle, bread

    def beyond(
        self, law: TailLaw | None, clip: float, last: ScoreAt, meat: Array
    ) -> tuple[Array, Array, dict[str, float]]:
        """What the clip leaves out of the last score, the variance allowed for it, what is said."""
        assert law is not None
        sampling = float(np.trace(meat)) / meat.shape[0]
        along = self.found.metric.far_direction
        model = np.zeros_like(last.at) if self.peeled else self.outer_score(last.at, clip)
        beyond, anywhere, lean = beyond_clip(
            law, clip, last.score, sampling, model, along, self.peeled
        )
        if self.peeled and along is None:  # in full the model's scores add up to nothing
            beyond = beyond - self.clipped_score(last.at, clip)
        seen = {
            "scores beyond the clip": min(law.number(clip), self.n),
            "lean of long scores": lean,
        }
        return beyond, anywhere, seen

    def counted(self, law: TailLaw, slot: str, b: Array, noise: float, farther: float) -> TailLaw:
        """The law given also how many scores are so much longer than the clip that is best.

        A clip is where the law says that lengths end. Counts there say whether it is right about
        how many are left; only counts farther out, whether they end. Where rows are known to lie
        far out they do not.
        """
        bound = (1.0 if self.far else farther) * law.best(noise, b.size)
        count = self.holder.ask(self.asks.count(b, bound), slot)
        return law.counted(bound, float(count.value[0]), count.noise.sd)

    # -- the last two steps -----------------------------------------------------------------

    def last(self, k: int, b: Array, clip: float) -> SplitScore:
        """One of the last two scores; what is expected of an outer part goes with the inner one."""
        inner, noise = self.score(f"inner score {k + 1}", b, clip / 2)
        outer, outer_noise = self.score(f"outer score {k + 1}", b, clip, clip / 2)
        known = self.outer_score(b, clip) if self.peeled else np.zeros_like(b)
        return SplitScore(b, inner + known, noise, outer - known, outer_noise)

    def parts(self, b: Array, clip: float) -> list[Query]:
        """What one of the last two scores is asked by."""
        return [self.asks.score(b, clip / 2, 0.0), self.asks.score(b, clip, clip / 2)]

    @property
    def each(self) -> bool:
        """Whether a row stands for several, each of which has a square of its own."""
        weights = self.design.weights
        return (
            weights is not None and weights.kind == "frequency" and self.holder.plan.max_rows == 1
        )

    def squares(self, b: Array, clip: float) -> Query:
        """The question for squares of scores."""
        return self.asks.squares(b, clip, self.holder.plan.max_rows, self.each)

    def meat(self, b: Array, clip: float, bread: Array) -> Array:
        """Sum of squares of scores: as released, averaged with the shape of the bread.

        A row that stands for w others adds w times the square of the score of one of them.
        """
        d, weights = b.size, self.design.weights
        answer = self.holder.ask(self.squares(b, clip), "meat")
        meat, noise = answer.value, answer.noise.sd
        trace = max(float(np.trace(meat)), noise)
        ratio = trace / float(np.trace(bread))
        doubt = np.full((d, d), shape_doubt(trace / d, d))
        meat, _ = average(meat, noise**2 * symmetric_pattern(d), ratio * bread, doubt)
        unit = 1 / weights.scale if weights is not None and self.each else 1.0
        return unit * floor_eigenvalues(meat, 0.1 * trace / d)
