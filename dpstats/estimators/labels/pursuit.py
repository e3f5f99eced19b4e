"""Matching pursuit on public columns: noise is on what responses say, and nowhere else.

Everything here is post-processing of noisy answers and public rows. The constants are public; wrong
ones cost accuracy, never privacy. They were chosen by simulation; see docs/label_only.md.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from dpstats.estimators.labels.base import known_term
from dpstats.estimators.labels.sums import deviation, inverse_root, label_norm, reach
from dpstats.estimators.numerics.huber import clipped_square, efficient_clip, unclipped
from dpstats.estimators.numerics.lasso import PublicMoments
from dpstats.estimators.selection import BALL
from dpstats.protocol import LabelHolder
from dpstats.queries.column_scores import ColumnScores
from dpstats.queries.label_held import HeldSums
from dpstats.queries.labels import SquaredResiduals
from dpstats.tall import LazyRows, cross, gram, mean, times, vector

if TYPE_CHECKING:
    from dpstats.design import PublicRows
    from dpstats.estimators.responses import Responses
    from dpstats.protocol import Plan

__all__ = ["FAR", "SCORE_CLIP", "Pursuit", "PursuitResult"]

Array = NDArray[np.float64]
Positions = NDArray[np.intp]

SCORE_CLIP = 1.0  # sds: clip of residuals where columns are scored
_FIRST_CLIP = 4.0  # sds: clip of the first squares; their guess may be wrong
_CLIP = 3.0  # sds: clip of later squares and of the start, as the step before found them
_BOUNDED = 6.0  # sds: width of a range that is not cut, for there a clip is undone by no law
_SEEN = 3.0  # numerical: sds of the noise of squares, from which they are known
_LOST = 1.5  # ratio: size that residuals have at least to what is seen of it, of equal ones
FAR = 12.0  # sds: of residuals, clip where most responses are nearly equal
_ALONE = 0.1  # numerical: share of its variance that others leave to a column, at least
_CONSTANT = 1e-9  # numerical: variance of a column that does not vary
_CLEAR = 2.5  # ses: that a coefficient has to be away from 0, at least


@dataclass(frozen=True, eq=False)
class PursuitResult:
    """Columns that were chosen, their coefficients, and what is known of these.

    Attributes
    ----------
    columns : ndarray of int of shape (m,)
    params : ndarray of shape (m,)
    gram : ndarray of shape (m, m)
        X'X of the columns.
    sampling, noise : ndarray of shape (m, m)
        Covariance of the coefficients by sampling, and by noise.
    """

    columns: Positions
    params: Array
    gram: Array
    sampling: Array
    noise: Array

    def only(self, kept: Positions) -> PursuitResult:
        """The fit of some of the columns, by what the fit of all says of X'y."""
        moments = self.gram[kept]
        part = moments[:, kept]
        back = np.linalg.pinv(part, hermitian=True) @ moments
        sampling, noise = (back @ v @ back.T for v in (self.sampling, self.noise))
        return PursuitResult(self.columns[kept], back @ self.params, part, sampling, noise)


@dataclass(eq=False)
class Pursuit:
    """Rounds of choosing columns by the residuals so far, and of fitting what was chosen.

    Attributes
    ----------
    holder
        Who answers.
    plan : Plan
        What may be asked.
    rows : Covariates
        Public rows, of those that are asked.
    how : Responses
        Interval of the responses, and guesses.
    intercept : int or None
        Column that is in from the start.
    """

    holder: LabelHolder
    plan: Plan
    rows: PublicRows
    how: Responses
    intercept: int | None
    spread: float = field(init=False)  # of the response
    sd: float = field(init=False)  # of the residuals
    fit: PursuitResult = field(init=False)
    equal: bool = field(init=False, default=False)  # whether most responses are nearly equal

    def __post_init__(self) -> None:
        self._moments = PublicMoments(self.rows.x)
        self._squares, self._known = self._moments.squares(), known_term(self.rows)
        self._half, self._n = self.how.interval.half, max(len(self.rows), 1)
        self.spread = self.sd = self.how.sd
        self._least, self._seen = 0.0, False  # size of the residuals, at least; whether it is known
        always = [] if self.intercept is None else [self.intercept]
        start = self.how.center if always else 0.0
        self._set(np.asarray(always, dtype=np.intp), np.full(len(always), start))
        self._looked = self._fitted

    def run(self, picks: tuple[int, ...], steps: int) -> PursuitResult:
        """Choose `picks` columns in as many rounds, and take `steps` steps."""
        if self.intercept is not None:
            self._step("start", _CLIP)
        for t in range(steps):
            self._look(f"scale {t + 1}", first=t == 0)
            if t < len(picks):
                self._choose(f"choice {t + 1}")
            self._step(f"sums {t + 1}")
        return self.fit

    # -- questions -----------------------------------------------------------------------------

    def _look(self, slot: str, first: bool) -> None:
        """The size of the residuals.

        Where most responses are nearly equal, squares clipped at multiples of their size fall from
        round to round, to nothing. But a step to least squares takes off the squares of what
        fitted values change by, but for noise: where more is lost, clips cut it off.
        """
        clip = min((_FIRST_CLIP if first else _CLIP) * self.sd, self._half)
        query = SquaredResiduals(self.how.interval, self._fitted, clip)
        (squares,), noise = self.holder.ask(query, slot)
        self.sd = math.sqrt(max(float(squares), noise.sd) / self._n)
        self.spread = self.sd if first else self.spread
        self.sd = min(self.sd, self.spread, clip)
        changed = float(np.square(self._fitted - self._looked).sum())
        changed = max(changed - float(np.trace(self.fit.gram @ self.fit.noise)), 0.0) / self._n
        self._looked = self._fitted
        self._seen = float(squares) > _SEEN * noise.sd
        left = math.sqrt(max(self._least**2 - changed, 0.0))
        self._least = max(left, self.sd if self._seen else 0.0)
        unexplained = self._least > math.sqrt(float(np.var(self._fitted)))
        self.equal = self.equal or (unexplained and self._least > _LOST * self.sd)

    def _choose(self, slot: str) -> None:
        """The next columns: those whose part beside the chosen ones goes with the residuals."""
        d, chosen = len(self._squares), self.fit.columns
        left = self._squares.copy()
        center = np.zeros(d)
        if self.intercept is not None:
            center = self._moments.column(self.intercept) / self._squares[self.intercept]
        variance = np.maximum(self._squares - center**2, 0.0)
        if chosen.size:
            across = np.array([self._moments.column(int(j)) for j in chosen])
            solved = np.linalg.pinv(self.fit.gram / self._n, hermitian=True) @ across
            left -= np.einsum("ij,ij->j", across, solved)
        scale = np.sqrt(np.maximum(left, _ALONE * variance))
        scale[variance <= _CONSTANT * np.maximum(self._squares, 1e-300)] = math.inf
        clip = min(SCORE_CLIP * self.sd, self._half)
        columns = np.setdiff1d(np.arange(d), chosen)
        query = ColumnScores(
            self.how.interval, self.rows.x, self._fitted, clip, center, scale, columns
        )
        more = self.holder.ask(query, slot).value.astype(np.intp)
        self._set(np.append(chosen, more), np.append(self.fit.params, np.zeros(more.size)))

    def _step(self, slot: str, clip: float | None = None) -> None:
        """One step towards the least sum of Huber losses of the columns so far."""
        columns, params = self.fit.columns, self.fit.params
        x = self.rows.columns(columns)
        root = inverse_root(self.fit.gram)
        rows = LazyRows(x.shape, lambda part: x[part] @ root)
        pure = self.plan.privacy.delta == 0
        multiplier = self.plan.noise_multiplier(slot) * deviation(pure)
        unit = 2 * reach(rows, pure) * multiplier
        bound = self._bound(efficient_clip(unit**2) if clip is None else clip)
        fitted, n, within = self._fitted, (len(self.rows),), self.how.interval
        at = LazyRows(n, lambda part: np.clip(fitted[part], within.low, within.high))
        low = LazyRows(n, lambda part: np.maximum(at[part] - bound, within.low))
        high = LazyRows(n, lambda part: np.minimum(at[part] + bound, within.high))
        query = HeldSums(within, rows, low, high, label_norm(pure))
        middle = query.middle
        sd = self._size
        clips = bound / sd
        slope = float(unclipped(clips))
        sums, noise = self.holder.ask(query, slot)
        away = LazyRows(n, lambda part: middle[part] - fitted[part])
        params = params + root @ (sums + cross(rows, away)) / slope
        square = root @ root / slope**2
        sampling = float(clipped_square(clips)) * sd**2 * square
        self._set(columns, params, sampling, noise.sd**2 * square)
        if clip is None:
            self._draw_back()

    def _bound(self, clips: float) -> float:
        """Clip of residuals, by the best one for normal errors, in their standard deviations.

        A narrow one is undone by the law of normal errors. Of a 0/1, or of few levels, it is not;
        their range is narrow, and no residual is wider.
        """
        widest = 2 * self._half
        if self._seen and widest <= _BOUNDED * self.spread:
            return widest
        return min((FAR if self.equal else clips) * self._size, widest)

    @property
    def _size(self) -> float:
        """Of residuals: as seen, or, where clips cut most of them off, at least."""
        return max(self._least, self.sd) if self.equal else self.sd

    # -- state ---------------------------------------------------------------------------------

    def _set(
        self,
        columns: Positions,
        params: Array,
        sampling: Array | None = None,
        noise: Array | None = None,
    ) -> None:
        x = self.rows.columns(columns)
        none = np.zeros((columns.size, columns.size))
        self.fit = PursuitResult(
            columns,
            params,
            gram(x),
            none if sampling is None else sampling,
            none if noise is None else noise,
        )
        self._fitted = vector(len(x), lambda part: x[part] @ params + self._known[part])

    def _draw_back(self) -> None:
        """Fitted values do not vary more than responses do."""
        free = self.fit.columns != self.intercept
        varying = times(self.rows.columns(self.fit.columns[free]), self.fit.params[free])
        middle = mean(len(varying), lambda part: varying[part])
        square = mean(len(varying), lambda part: np.square(varying[part] - middle))
        size, most = math.sqrt(square), BALL * self.spread
        if size > most:
            params = np.where(free, most / size, 1.0) * self.fit.params
            self._set(self.fit.columns, params, self.fit.sampling, self.fit.noise)

    # -- what stays ----------------------------------------------------------------------------

    def kept(self, sizes: tuple[int, ...] | None, clear: bool = True) -> PursuitResult:
        """What stands out; of the numbers asked for the smallest that holds it, or the largest.

        Of d columns for nothing the largest coefficient has sqrt(2 log d) sampling errors, where s
        are known to matter that of the others passes the last of these at sqrt(2 log(d / s)). Noise
        on coefficients is fresh: only the m columns that were chosen count there. With `clear`,
        what is no larger goes even where a number is asked for.
        """
        fit = self.fit
        free = np.flatnonzero(fit.columns != self.intercept)
        always = np.setdiff1d(np.arange(fit.columns.size), free)
        size = np.abs(fit.params[free])
        sampling, noise = (np.diag(v)[free] for v in (fit.sampling, fit.noise))
        order = np.argsort(-size / np.sqrt(np.maximum(sampling + noise, 1e-300)), kind="stable")

        def clearly(matter: int) -> int:
            many, few = (
                max(2 * math.log(max(v, 2) / matter), _CLEAR**2)
                for v in (len(self._squares), free.size)
            )
            return int((size > np.sqrt(many * sampling + few * noise)).sum())

        number = clearly(1)
        if sizes is not None:
            number = next((s for s in sizes if s >= number), sizes[-1])
            number = min(number, clearly(number)) if clear else number
        part = fit.only(np.sort(np.append(always, free[order[:number]])).astype(np.intp))
        by_column = np.argsort(part.columns)
        return part.only(by_column)
