"""What a pursuit knows about residuals: of unknown spread in a linear model, in [-1, 1] in a logit.

Also the state that it passes on: chosen columns, coefficients, and the coordinates they are in.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import numpy as np
from numpy.typing import NDArray

from dpstats.estimators.base import floor_eigenvalues
from dpstats.estimators.guesses import response_bound
from dpstats.estimators.numerics.huber import (
    NORMAL_QUANTILE,
    clipped_square,
    efficient_clip,
    unclipped,
)
from dpstats.estimators.numerics.normal import NODES, WEIGHTS
from dpstats.estimators.selection import BALL
from dpstats.families import BINOMIAL, GAUSSIAN, Family
from dpstats.families.damped import DampedFamily
from dpstats.protocol import Holder
from dpstats.queries import (
    Geometry,
    Query,
    ResidualQuantile,
    ResponseQuantile,
    Score,
    Selected,
)

if TYPE_CHECKING:
    from dpstats.design import Design

__all__ = ["LAWS", "Aim", "ChosenColumns", "Residuals", "WideFacts", "layout"]

Array = NDArray[np.float64]

_SPREAD = 0.7  # share: quantile of |residual| whose log is least disturbed by noisy counts
# numerical: spread of most responses to that of all, below which most have one value
_RARE = 1 / 16
_GROWN = 3.0  # ratio: growth of residuals, to the share of rows that noise blurs, of too long steps
_UNSURE = 0.2  # share: of rows that a noisy comparison may be wrong by
_LOSS_CLIP = 3.0  # sds: clip of the losses that compare fits
_LARGEST_SD = 6.0  # numerical: largest spread of a logit's linear predictor
_STEEP_SD = 3.0  # numerical: of it and of its change in a step, beyond which no step is longer
_FIRST_SD = 0.7  # sds: of it, before anything is known
_LEAST_SD = 0.05  # numerical: of it, so that derivatives can be taken
_LEAST_SLOPE = 0.15  # numerical: least eigenvalue of a logit's curvature, over its mean
_LEVELS = np.linspace(0.5, 1.0, 11)  # numerical: damping that is tried


@dataclass(frozen=True, eq=False)
class WideFacts:
    """Public facts about a wide design, in internal coordinates.

    Attributes
    ----------
    columns : int
        Number of columns d.
    intercept : tuple of int
        Position of the intercept, if there is one.
    half : ndarray of shape (d,)
        Half-range that each column would have if it were uniform.
    centred : ndarray of bool, shape (d,)
        Whether 0 is a public centre of the column: declared as such, or the middle of a range that
        is symmetric in the users' units. Such a column can be clipped far inside its range. Columns
        of 0 and 1 count too: to clip them is to change their unit.
    bound : float
        Largest size of the response.
    sd : float
        Guessed size of residuals; in a logit, of linear predictors.
    endog : tuple of float
        Range of the response.
    family : Family
        Law of the response.
    widest : ndarray of shape (d,)
        Largest size of each column.
    scaled : bool
        Whether it was declared or found how far the response spreads: by about 1.
    """

    columns: int
    intercept: tuple[int, ...]
    half: Array
    centred: NDArray[np.bool_]
    bound: float
    sd: float
    endog: tuple[float, float]
    family: Family
    widest: Array
    scaled: bool


def layout(design: Design) -> WideFacts:
    """Facts and guesses from declared bounds, centres and scales."""
    low, high = np.asarray(design.internal_bounds, dtype=np.float64).T
    intercept = design.standardization.intercept
    widest = np.maximum(np.maximum(np.abs(low), np.abs(high)), 2.0**-20)
    spread = np.sqrt(np.minimum((high - low) ** 2 / 12, 1.0))
    declared = widest > 1 + 1e-9  # only a declared centre or scale puts a bound beyond 1
    ends = np.asarray(design.bounds, dtype=np.float64)
    symmetric = np.abs(ends.sum(axis=1)) <= 1e-9 * np.abs(ends).max(axis=1)
    bound = response_bound(design) if design.family == GAUSSIAN else 1.0
    return WideFacts(
        columns=low.size,
        intercept=() if intercept is None else (int(intercept),),
        half=np.where(spread > 0, math.sqrt(3) * spread, widest),
        centred=declared | symmetric | ((low == 0) & (high == 1)),
        bound=bound,
        sd=min(1.0, bound / 4) if design.family == GAUSSIAN else 1.0,
        endog=design.internal_endog_bounds,
        family=design.family,
        widest=widest,
        scaled=low.size not in design.unscaled,
    )


@dataclass(frozen=True, eq=False)
class ChosenColumns:
    """Chosen columns and their coefficients, with the coordinates z = w'x in which they are found.

    `beta` (m,) is for x; `origin` (m,) holds the intercept it started from and is 0 elsewhere.
    `gram` (m, m) holds second moments of x per row, `cov` (m, m) the covariance of `beta` and
    `noise` (m, m) the part of it that is due to privacy. `ridge` is the penalty in units of
    second moments. `blur` is the noise on `gram` over its
    mean eigenvalue: where it is large, earlier steps were not corrected by the last one.
    """

    columns: tuple[int, ...]
    beta: Array
    origin: Array
    gram: Array
    w: Array
    cov: Array
    noise: Array
    blur: float = 0.0
    ridge: float = 0.0

    def full(self, d: int) -> Array:
        """Coefficients of all d columns."""
        beta = np.zeros(d)
        beta[list(self.columns)] = self.beta
        return beta


@dataclass(frozen=True)
class Aim:
    """How a score is clipped, and what that leaves: E psi^2 and the mean slope, per row.

    `bend` is the mean slope of the likelihood's own score, neither clipped nor damped.
    """

    family: Family
    clip: float
    square: float
    slope: float
    bend: float


class Residuals(Protocol):
    """What differs between a linear and a logistic model."""

    def presume(self, size: float) -> None:
        """Take residuals to be of this size, and linear predictors to vary as much."""
        ...

    def intercept(self) -> float:
        """Where the intercept starts; asks the slot ``start``."""
        ...

    def look(self, k: int, fit: ChosenColumns) -> None:
        """Ask for the size of the residuals before step k (``spread``), or work it out."""
        ...

    def aim(self, noise: float) -> Aim:
        """The best clip where noise of variance `noise` per row falls on a clip of 1."""
        ...

    def curvature(self, aim: Aim, fit: ChosenColumns, score: Array, noise: float) -> Array:
        """Minus the derivative of the mean score, in whitened coordinates; shape (m, m)."""
        ...

    def largest(self) -> float:
        """Largest root mean square of fitted values."""
        ...

    def stride(self) -> float:
        """Largest root mean square change of linear predictors in a step."""
        ...

    def share(self) -> float:
        """Part of a step that is taken: less where residuals grew, as steps were too long."""
        ...

    def loss(self) -> tuple[float, float]:
        """Clip of the losses that compare fits, and the size of a residual over it."""
        ...

    def released(self) -> dict[str, object]:
        """Numbers worth reporting."""
        ...


class _Linear:
    """Residuals of unknown spread, clipped at a multiple of it."""

    def __init__(self, holder: Holder[Query], facts: WideFacts, n: float) -> None:
        self._holder, self._facts, self._n = holder, facts, n
        self._first = self._spread = 0.0
        self._share, self._rare = 1.0, False

    def presume(self, size: float) -> None:
        self._first = self._spread = size

    def intercept(self) -> float:
        low, high = np.arcsinh(self._facts.endog)  # fine near the centre, as a range may be wide
        grid = np.sinh(np.linspace(low, high, 129))
        (found,), _ = self._holder.ask(ResponseQuantile(grid, 0.5), "start")
        return float(found)

    def look(self, k: int, fit: ChosenColumns) -> None:
        bound, before = self._facts.bound, self._spread * NORMAL_QUANTILE[_SPREAD]
        grid = (
            np.geomspace(2.0**-15 * bound, 2 * bound, 33)
            if k == 0
            else np.geomspace(before / 8, 2 * before, 9)
        )
        columns = fit.columns or (0,)  # of zero coefficients one will do
        beta = fit.beta if fit.columns else np.zeros(1)
        query = Selected(ResidualQuantile(grid, _SPREAD, beta), columns)
        (found,), (_, noise) = self._holder.ask(query, f"spread {k + 1}")
        if self._rare:  # most residuals say nothing of the others; all tables are asked alike
            return
        last, self._spread = self._spread, float(found) / NORMAL_QUANTILE[_SPREAD]
        if k > 0 and self._spread > (1 + _GROWN * noise / self._n) * last:
            self._share /= 2
        if k == 0:
            # Where the comparisons are mostly noise, no more than the guess.
            if noise > _UNSURE * self._n:
                self._spread = min(self._spread, math.sqrt(2) * self._facts.sd)
            if self._facts.scaled and self._spread < _RARE * self._facts.sd:
                self._rare, self._spread = True, min(1.0, bound)
            self._first = self._spread

    def aim(self, noise: float) -> Aim:
        clip = min(efficient_clip(noise) * self._spread, 2 * self._facts.bound)
        c = clip / self._spread
        square = float(clipped_square(c)) * self._spread**2
        return Aim(GAUSSIAN, clip, square, float(unclipped(c)), 1.0)

    def curvature(self, aim: Aim, fit: ChosenColumns, score: Array, noise: float) -> Array:
        level: Array = aim.slope * np.eye(len(fit.columns))
        return level

    def largest(self) -> float:
        return BALL * self._first

    def stride(self) -> float:
        return math.inf

    def share(self) -> float:
        return self._share

    def loss(self) -> tuple[float, float]:
        clip = min(_LOSS_CLIP * self._spread, 2 * self._facts.bound)
        return clip, self._spread / clip

    def released(self) -> dict[str, object]:
        found: dict[str, object] = {
            "residual sd": self._spread,
            "spread of the response": self._first,
        }
        return found | {"most responses are equal": True} if self._rare else found


class _Logistic:
    """Residuals between -1 and 1, of known law where the linear predictor is normal.

    Scores are damped (`DampedFamily`): ``psi = (y - mu) / max(mu, 1 - mu, level)``, mu the mean,
    is within [-1, 1], has mean zero at the truth, and a variance and a slope that are averages of
    ``mu (1 - mu)`` over the linear predictor, weighted with the square and the first power of the
    damping.
    """

    def __init__(self, holder: Holder[Query], facts: WideFacts, n: float) -> None:
        self._holder, self._facts, self._n = holder, facts, n
        self._start = self._mean = 0.0
        self._sd = _FIRST_SD

    def presume(self, size: float) -> None:
        self._sd = size

    def intercept(self) -> float:
        query = Selected(Score(Geometry(1.0), np.zeros(1), 0.5, BINOMIAL), self._facts.intercept)
        (total,), _ = self._holder.ask(query, "start")
        share = float(np.clip(0.5 + total / self._n, 1 / self._n, 1 - 1 / self._n))
        self._start = self._mean = math.log(share / (1 - share))
        return self._start

    def look(self, k: int, fit: ChosenColumns) -> None:
        if np.any(fit.beta != fit.origin):
            self._mean, self._sd, _ = self._normal(fit)

    def aim(self, noise: float) -> Aim:
        eta = self._mean + max(self._sd, _LEAST_SD) * NODES
        bend = float(WEIGHTS @ BINOMIAL.slope(eta))
        found = []
        for level in _LEVELS:
            family = DampedFamily("binomial", "logit", float(level))
            curvature = BINOMIAL.slope(eta)
            weight = family.weight(eta)
            square = float(WEIGHTS @ (curvature * weight**2))
            slope = float(WEIGHTS @ (curvature * weight))
            found.append(((square + noise) / slope**2, Aim(family, 1.0, square, slope, bend)))
        return min(found, key=lambda f: f[0])[1]

    def curvature(self, aim: Aim, fit: ChosenColumns, score: Array, noise: float) -> Array:
        """By Stein's identity for normal rows; solved for its own step at the start.

        At b = 0 the mean score is E[slope] Cov(z) b with the slope at the b that is sought, so its
        length gives the spread of the linear predictor.
        """
        m = len(fit.columns)
        if not np.any(fit.beta != fit.origin):
            squared = max(float(score @ score) - m * noise**2, 0.0)
            level: Array = self._first_slope(aim, squared) * np.eye(m)
            return level
        mean, sd, (a, moved) = self._normal(fit)
        sd = max(sd, _LEAST_SD)
        eta = mean + sd * NODES
        slopes = BINOMIAL.slope(eta) * aim.family.factor(eta)
        first = float(WEIGHTS @ slopes)
        tilt = float(WEIGHTS @ (slopes * NODES)) / sd
        bend = float(WEIGHTS @ (slopes * (NODES**2 - 1))) / sd**2
        crossed = np.outer(a, moved)
        curvature = first * np.eye(m) + tilt * (crossed + crossed.T) + bend * np.outer(moved, moved)
        return floor_eigenvalues(curvature, _LEAST_SLOPE * first)

    def largest(self) -> float:
        return _LARGEST_SD

    def stride(self) -> float:
        return _STEEP_SD

    def share(self) -> float:
        return 1.0

    def loss(self) -> tuple[float, float]:
        eta = self._mean + self._sd * NODES
        return 1.0, math.sqrt(float(WEIGHTS @ BINOMIAL.slope(eta)))

    def released(self) -> dict[str, object]:
        return {"spread of linear predictors": self._sd}

    def _normal(self, fit: ChosenColumns) -> tuple[float, float, tuple[Array, Array]]:
        """Mean and deviation of x'beta; mean of z and Cov(z) b, in whitened coordinates.

        Drawn back to a deviation of at most 3. A noisy Gram matrix may say more, slopes would seem
        to vanish there, and the next step would overshoot.
        """
        b = np.linalg.solve(fit.w, fit.beta)
        a = np.zeros(b.size)
        if self._facts.intercept:
            a = fit.w.T @ fit.gram[0] / fit.gram[0, 0]
        mean = float(a @ b)
        moved = b - a * mean
        sd = math.sqrt(max(float(b @ moved), 0.0))
        back = min(1.0, _STEEP_SD / max(sd, 1e-300))
        return back * mean, back * sd, (a, back * moved)

    def _first_slope(self, aim: Aim, squared: float) -> float:
        """Mean slope at the spread s with ``(s slope(s))^2 = squared``."""
        factor = float(aim.family.factor(np.array([self._start]))[0])

        def slope(sd: float) -> float:
            return factor * float(WEIGHTS @ BINOMIAL.slope(self._start + sd * NODES))

        low, high = 0.0, _LARGEST_SD
        for _ in range(40):
            middle = (low + high) / 2
            short = (middle * slope(middle)) ** 2 < squared
            low, high = (middle, high) if short else (low, middle)
        return slope(low)


LAWS: dict[Family, type[_Linear] | type[_Logistic]] = {GAUSSIAN: _Linear, BINOMIAL: _Logistic}
