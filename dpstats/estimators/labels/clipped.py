"""Linear regression through clipped responses: what clipping does to means is undone by the model.

A narrow clip makes privacy cheap, since noise grows with the width of the interval, but it shrinks
coefficients. For normal errors the mean of a clipped response is known in closed form, and fitting
that mean instead of a line takes the shrinkage back.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dpstats.estimators.responses import Responses
from dpstats.tall import LazyRows, Tall, blocks, cross, gram, mean, read_blocks, times

__all__ = ["ClippedRegression", "Refit", "clipped_mean"]

Array = NDArray[np.float64]

_STEPS = 60  # numerical: steps of the descent
_CLOSE = 1e-3  # numerical: gain in the log-likelihood below which a step is the last
_SMALLEST = 0.02  # numerical: least error over the guessed spread of a response
_ALIKE = 1e-6  # numerical: least variance of messages, over the squared half-width
_TRUST = {True: 0.25, False: 0.6}  # log: sd of the guess's logarithm: a declared scale, or none
_ROOT_2PI = math.sqrt(2 * math.pi)  # numerical: of the normal density


class _ClippedMoments(NamedTuple):
    """Mean and mean square of a clipped normal response, and their derivatives; (n,) each."""

    mean: Array
    slope: Array
    mean_by_error: Array
    square: Array
    square_by_eta: Array
    square_by_error: Array


def _moments(eta: Array, sd: float, half: float) -> _ClippedMoments:
    """Moments of ``clip(eta + sd e, -half, half)`` for standard normal e.

    Derivatives by sd follow from Stein's lemma, E e g(Y) = sd E g'(Y).
    """
    from scipy.special import ndtr

    low, high = (-half - eta) / sd, (half - eta) / sd
    below, above = ndtr(low), ndtr(-high)
    inside = 1.0 - below - above
    at_low, at_high = (np.exp(-0.5 * v**2) / _ROOT_2PI for v in (low, high))
    return _ClippedMoments(
        mean=eta * inside + sd * (at_low - at_high) + half * (above - below),
        slope=inside,
        mean_by_error=at_low - at_high,
        square=(eta**2 + sd**2) * inside
        + sd * ((eta - half) * at_low - (eta + half) * at_high)
        + half**2 * (above + below),
        square_by_eta=2 * (eta * inside + sd * (at_low - at_high)),
        square_by_error=2 * (sd * inside - half * (at_low + at_high)),
    )


def clipped_mean(eta: Array, sd: float, half: float) -> tuple[Array, Array, Array]:
    """Moments of ``clip(eta + sd e, -half, half)`` for standard normal e.

    Returns
    -------
    mean, slope, square : ndarray
        Its mean, the derivative of that by eta (the share that is not clipped), its second moment.
    """
    found = _moments(np.asarray(eta, dtype=np.float64), sd, half)
    return found.mean, found.slope, found.square


@dataclass(frozen=True)
class Refit:
    """Coefficients (k,), and the standard deviation of the errors."""

    params: Array
    error: float


@dataclass(frozen=True, eq=False)
class ClippedRegression:
    """Regression with two limits on randomised responses: nonlinear least squares.

    Coefficients and the standard deviation of the errors minimise

        sum (z - m)^2 / v + ((mean square - square) / square_error)^2
                          + (log(spread / guess) / trust)^2

    for the mean m and the mean square of clipped responses, and their spread without clipping. The
    last term decides only where noise hides the size of the coefficients.

    Attributes
    ----------
    z : Tall, of shape (n,)
        Randomised responses less the middle of the interval.
    known : Tall, of shape (n,)
        Known part of the linear predictor, less the middle of the interval.
    half : float
        Half-width of the interval.
    guess, trust : float
        Guessed standard deviation of a response, and that of its logarithm.
    square, square_error : float
        Mean square of clipped responses as messages tell it, and its standard error; infinite where
        they say nothing.
    whole : bool
        Whether the interval has all responses: nothing is to undo then, and the fit is a line,
        whatever their law.
    """

    z: Tall
    known: Tall
    half: float
    guess: float
    trust: float
    square: float
    square_error: float
    whole: bool = False

    @classmethod
    def of(
        cls, z: Tall, known: Tall, how: Responses, declared: bool, whole: bool = False
    ) -> ClippedRegression:
        """From randomised responses and the known term, in internal units."""
        half, middle, n = how.interval.half, how.interval.middle, len(z)
        none, all_ = how.noise(0.0), how.noise(1.0)
        per_square = 1 + (all_ - none) / half**2  # d E z^2 / d E v^2; one bit says nothing
        own, error = 0.0, math.inf
        if per_square > 1e-6:
            square = mean(n, lambda part: (z[part] - middle) ** 2)
            spread = mean(n, lambda part: ((z[part] - middle) ** 2 - square) ** 2)
            own = (square - none) / per_square
            error = max(math.sqrt(spread) / per_square / math.sqrt(n), 1e-12)
        away, rest = (_less(v, middle) for v in (z, known))
        return cls(away, rest, half, how.sd, _TRUST[declared], own, error, whole)

    def part(self, rows: NDArray[np.intp]) -> ClippedRegression:
        """Some of the rows."""
        z, known = (_picked(values, rows) for values in (self.z, self.known))
        return replace(self, z=z, known=known)

    def mean(self, eta: Array, error: float) -> tuple[Array, Array]:
        """Mean of z, and its slope, at linear predictors (m,)."""
        if self.whole:
            return eta, np.ones_like(eta)
        mean, slope, _ = clipped_mean(eta, error, self.half)
        return mean, slope

    def fit(self, x: Tall) -> Refit:
        """Coefficients of columns (n, k), and the errors' deviation: Levenberg-Marquardt."""
        n = len(self.z)
        response = LazyRows((n,), lambda part: self.z[part] - self.known[part])
        solved = np.linalg.lstsq(gram(x), cross(x, response), rcond=None)[0]
        line: Array = np.asarray(solved, dtype=np.float64)
        rest = LazyRows((n,), lambda part: response[part] - x[part] @ line)
        if self.whole:
            return Refit(line, self._left(x, line))
        # Messages of one bit may all be alike, though no response is known that well.
        state, noise = self._start(x, line), max(_variance(rest), _ALIKE * self.half**2)
        loss, score, hessian = self._expand(x, state, noise)
        damping, floor = 1e-3, math.log(_SMALLEST * self.guess)
        for _ in range(_STEPS):
            if state[-1] <= floor and score[-1] <= 0:  # the error is as small as it may be
                score[-1] = hessian[-1] = hessian[:, -1] = 0.0
            diagonal = np.diag(hessian)
            step = np.linalg.solve(hessian + np.diag(damping * diagonal + 1e-12), score)
            if float(step @ score) < _CLOSE:
                break
            step[-1] = np.clip(step[-1], -1.0, 1.0)
            tried = state + step
            tried[-1] = max(tried[-1], floor)
            expanded = self._expand(x, tried, noise)
            if expanded[0] <= loss:
                gain = loss - expanded[0]
                state, (loss, score, hessian) = tried, expanded
                damping = max(damping / 5, 1e-9)
                if gain < _CLOSE:
                    break
            else:
                damping *= 8
                if damping > 1e12:
                    break
        return Refit(state[:-1], math.exp(state[-1]))

    def _left(self, x: Tall, line: Array) -> float:
        """Standard deviation of errors, as the mean square of responses leaves it; else guessed."""
        if not math.isfinite(self.square_error):
            return self.guess
        fitted = mean(len(self.z), lambda p: (x[p] @ line + self.known[p]) ** 2)
        return max(math.sqrt(max(self.square - fitted, 0.0)), _SMALLEST * self.guess)

    def _start(self, x: Tall, line: Array) -> Array:
        """The linear fit without the shrinkage by clipping, and the error that the guess leaves."""
        zero = np.zeros(1)
        inside = float(clipped_mean(zero, self.guess, self.half)[1][0])
        params = line / inside
        own, most = _variance(times(x, params)), 0.8 * self.guess**2
        params *= min(1.0, math.sqrt(most / max(own, 1e-300)))
        error = math.sqrt(max(self.guess**2 - min(own, most), 0.2 * self.guess**2))
        return np.append(params, math.log(error))

    def _expand(self, x: Tall, state: Array, noise: float) -> tuple[float, Array, Array]:
        """Loss, minus half of its gradient, and half of its Hessian (Gauss-Newton)."""
        error, n = math.exp(state[-1]), len(self.z)
        middle = mean(n, times(x, state[:-1]).make)
        score, hessian = np.zeros(state.size), np.zeros((state.size,) * 2)
        loss = square = by_error = varies = 0.0
        by_square, by_spread = np.zeros(x.shape[1]), np.zeros(x.shape[1])
        for part, rows in read_blocks(x):
            fitted = rows @ state[:-1]
            moments = _moments(fitted + self.known[part], error, self.half)
            # 1. Quasi-likelihood of the messages.
            rest = (self.z[part] - moments.mean) / noise
            slopes = rows * moments.slope[:, None]
            jacobian = np.column_stack([slopes, error * moments.mean_by_error])
            score += jacobian.T @ rest
            hessian += jacobian.T @ jacobian / noise
            loss += float(rest @ rest) * noise
            square += float(moments.square.sum())
            by_error += float(moments.square_by_error.sum())
            by_square += rows.T @ moments.square_by_eta
            varies += float(np.square(fitted - middle).sum())
            by_spread += rows.T @ (fitted - middle)
        # 2. The mean square, and 3. the spread, one number each.
        spread2 = error**2 + varies / n
        parts = [
            (
                (square / n - self.square) / self.square_error,
                np.append(by_square, error * by_error) / n / self.square_error,
            ),
            (
                math.log(math.sqrt(spread2) / self.guess) / self.trust,
                np.append(by_spread / n, error**2) / spread2 / self.trust,
            ),
        ]
        for value, gradient in parts:
            loss += value**2
            score -= value * gradient
            hessian += np.outer(gradient, gradient)
        return loss, score, hessian


def _less(values: Tall, middle: float) -> LazyRows:
    return LazyRows((len(values),), lambda part: values[part] - middle)


def _picked(values: Tall, rows: NDArray[np.intp]) -> Array:
    """Those of some rows, in ascending order."""
    found = [values[part][_positions(rows, part)] for part in blocks(len(values))]
    return np.concatenate(found)


def _positions(rows: NDArray[np.intp], part: slice) -> NDArray[np.intp]:
    first, last = np.searchsorted(rows, [part.start, part.stop])
    within: NDArray[np.intp] = rows[first:last] - part.start
    return within


def _variance(values: Tall) -> float:
    n = len(values)
    middle = mean(n, lambda part: values[part])
    return mean(n, lambda part: np.square(values[part] - middle))
